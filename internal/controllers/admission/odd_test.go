package admission

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
)

// TestDryRun: a request that is only tried is judged like any other, and nothing comes of it: the role has nothing to write with when
// it judges, and tells the API server so, which would refuse to try otherwise.
func TestDryRun(t *testing.T) {
	t.Parallel()
	o := DefaultOptions()
	o.AuthorizeQueues = true
	mutating, validating := o.Webhooks(nil)
	for _, w := range mutating.Webhooks {
		if *w.SideEffects != admissionregv1.SideEffectClassNone {
			t.Errorf("%s: side effects %s", w.Name, *w.SideEffects)
		}
	}
	for _, v := range validating {
		for _, w := range v.Webhooks {
			if *w.SideEffects != admissionregv1.SideEffectClassNone {
				t.Errorf("%s: side effects %s", w.Name, *w.SideEffects)
			}
		}
	}
	h, err := NewHandler(*sharing(), Sources{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{MutatePodPath, ValidatePodPath} {
		for _, pod := range []string{
			`{"metadata": {"name": "p"}, "spec": {"schedulerName": "kai-scheduler", "containers": [{"name": "a"}]}}`,
			`{"metadata": {"name": "p", "annotations": {"gpu-fraction": "7"}}, "spec": {"schedulerName": "kai-scheduler", "containers": [{"name": "a"}]}}`,
		} {
			var answers []string
			for _, dry := range []*bool{nil, ptr.To(false), ptr.To(true)} {
				w := post(h, path, reviewOf(t, pod, dry), nil)
				var got admissionv1.AdmissionReview
				if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || got.Response == nil {
					t.Fatalf("%s: %d %s", path, w.Code, w.Body)
				}
				text, err := json.Marshal(got.Response)
				if err != nil {
					t.Fatal(err)
				}
				answers = append(answers, string(text))
			}
			if answers[0] != answers[1] || answers[1] != answers[2] {
				t.Errorf("%s answers differently when it is only tried:\n%s", path, strings.Join(answers, "\n"))
			}
		}
	}
}

func reviewOf(t *testing.T, pod string, dry *bool) []byte {
	t.Helper()
	in := admissionv1.AdmissionReview{Request: &admissionv1.AdmissionRequest{
		UID: "u", Namespace: "team", Operation: admissionv1.Create, DryRun: dry, Object: runtime.RawExtension{Raw: []byte(pod)},
	}}
	in.SetGroupVersionKind(admissionv1.SchemeGroupVersion.WithKind("AdmissionReview"))
	text, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func post(h http.Handler, path string, body []byte, headers map[string]string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, path, bytes.NewReader(body))
	for k, v := range headers { // order: each by itself
		r.Header.Set(k, v)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// TestOddRequests: a body is what was sent, whatever a header says of it: a small one that unpacks to a large one is not unpacked, and
// one of another type is no review.
func TestOddRequests(t *testing.T) {
	t.Parallel()
	h, err := NewHandler(*sharing(), Sources{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	review := reviewOf(t, `{"metadata": {"name": "p"}, "spec": {"schedulerName": "kai-scheduler", "containers": [{"name": "a"}]}}`, nil)
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, _ = z.Write(review)
	_ = z.Close()
	for _, c := range []struct {
		name, method, path string
		body               []byte
		headers            map[string]string
		want               int
	}{
		{"a review", http.MethodPost, ValidatePodPath, review, map[string]string{"Content-Type": "application/json"}, http.StatusOK},
		{"packed", http.MethodPost, ValidatePodPath, packed.Bytes(), map[string]string{"Content-Type": "application/json", "Content-Encoding": "gzip"}, http.StatusBadRequest},
		{"protobuf", http.MethodPost, ValidatePodPath, []byte("k8s\x00\x0a\x02v1"), map[string]string{"Content-Type": "application/vnd.kubernetes.protobuf"}, http.StatusBadRequest},
		{"a form", http.MethodPost, ValidatePodPath, []byte("a=b"), map[string]string{"Content-Type": "application/x-www-form-urlencoded"}, http.StatusBadRequest},
		{"nothing", http.MethodPost, ValidatePodPath, nil, nil, http.StatusBadRequest},
		{"read", http.MethodGet, ValidatePodPath, nil, nil, http.StatusMethodNotAllowed},
		{"nowhere", http.MethodPost, "/", review, nil, http.StatusNotFound},
	} {
		r := httptest.NewRequest(c.method, c.path, bytes.NewReader(c.body))
		for k, v := range c.headers { // order: each by itself
			r.Header.Set(k, v)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != c.want {
			t.Errorf("%s: %d %s, want %d", c.name, w.Code, w.Body, c.want)
		}
	}
}

// TestHeadersAreBounded: by HTTP/1 and HTTP/2 the webhooks' own server takes short headers only, and few requests at a time on a
// connection.
func TestHeadersAreBounded(t *testing.T) {
	t.Parallel()
	h, err := NewHandler(*sharing(), Sources{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	c := &Controller{deps: Deps{Log: logr.Discard()}}
	if s := c.server(h); s.ReadHeaderTimeout <= 0 || s.ReadTimeout <= 0 || s.WriteTimeout <= 0 || s.IdleTimeout <= 0 || s.HTTP2.MaxConcurrentStreams != maxStreams {
		t.Errorf("without a bound: %+v", s)
	}
	for _, two := range []bool{false, true} {
		server := httptest.NewUnstartedServer(h)
		server.Config, server.EnableHTTP2 = c.server(h), two
		server.Config.TLSConfig = nil // the test's certificate
		server.StartTLS()
		t.Cleanup(server.Close)
		ask := func(header string) (int, int, error) {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+ValidatePodPath, strings.NewReader("{}"))
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Note", header)
			resp, err := server.Client().Do(r)
			if err != nil {
				return 0, 0, err
			}
			_, _ = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
			return resp.StatusCode, resp.ProtoMajor, nil
		}
		if code, proto, err := ask(strings.Repeat("x", 1<<10)); err != nil || code != http.StatusBadRequest || (proto == 2) != two {
			t.Errorf("a short header: %d by HTTP/%d, %v", code, proto, err)
		}
		if code, _, err := ask(strings.Repeat("x", 128<<10)); err == nil && code != http.StatusRequestHeaderFieldsTooLarge {
			t.Errorf("a long header by HTTP/2 (%t): %d", two, code)
		}
	}
}
