package app

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
)

func TestParse(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{"--qps", "100", "--burst=7", "--kubeconfig", "f", "--v=5", "--log-json"}, ""},
		{[]string{"--qp=1"}, "binder has no flag --qp; did you mean --qps?"},
		{[]string{"--kube_config=1"}, "binder has no flag --kube_config; did you mean --kubeconfig?"},
		{[]string{"--unheard-of"}, "binder has no flag --unheard-of; --help lists its flags"},
		{[]string{"-x"}, "binder: unknown shorthand flag: 'x' in -x"},
		{[]string{"--burst=many"}, `binder: invalid argument "many" for "--burst" flag`},
		{[]string{"extra"}, `binder takes no arguments, only flags: "extra"`},
		{[]string{"--log-json=maybe"}, `binder: invalid argument "maybe" for "--log-json" flag`},
		{[]string{"--help"}, "pflag: help requested"},
	} {
		fs := pflag.NewFlagSet("binder", pflag.ContinueOnError)
		fs.SetOutput(new(bytes.Buffer))
		client, log := DefaultClientOptions(), LogOptions{Verbosity: 3}
		BindClientFlags(fs, &client)
		BindLogFlags(fs, &log)
		err := Parse("binder", fs, test.args)
		switch {
		case test.want == "" && err != nil, test.want != "" && (err == nil || !strings.HasPrefix(err.Error(), test.want)):
			t.Errorf("%q: got %v, want %q", test.args, err, test.want)
		case test.want == "":
			if want := (ClientOptions{Kubeconfig: "f", QPS: 100, Burst: 7}); client != want {
				t.Errorf("got %+v, want %+v", client, want)
			}
			if want := (LogOptions{Format: LogJSON, Verbosity: 5}); log != want {
				t.Errorf("got %+v, want %+v", log, want)
			}
		}
	}
}

func TestZapFlags(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		args []string
		want LogOptions
		bad  bool
	}{
		{args: nil, want: LogOptions{}},
		{args: []string{"--zap-log-level=debug", "--zap-encoder=json"}, want: LogOptions{Format: LogJSON, Verbosity: 1}},
		{args: []string{"--zap-log-level=4", "--zap-encoder=console", "--zap-devel=false"}, want: LogOptions{Format: LogText, Verbosity: 4}},
		{args: []string{"--zap-log-level=info", "--zap-stacktrace-level=panic", "--zap-time-encoding=rfc3339"}, want: LogOptions{}},
		{args: []string{"--zap-devel"}, want: LogOptions{Format: LogText}},
		{args: []string{"--zap-devel=false"}, want: LogOptions{Format: LogJSON}},
		{args: []string{"--zap-encoder=console", "--zap-devel=false"}, want: LogOptions{Format: LogText}},
		{args: []string{"--zap-devel=true", "--zap-encoder=json"}, want: LogOptions{Format: LogJSON}},
		{args: []string{"--zap-devel=often"}, bad: true},
		{args: []string{"--zap-log-level=loud"}, bad: true},
		{args: []string{"--zap-log-level=-1"}, bad: true},
		{args: []string{"--zap-encoder=xml"}, bad: true},
	} {
		fs := pflag.NewFlagSet("podgroup", pflag.ContinueOnError)
		var got LogOptions
		BindZapFlags(fs, &got)
		err := Parse("podgroup", fs, test.args)
		if (err != nil) != test.bad || (!test.bad && got != test.want) {
			t.Errorf("%q: got %+v, %v; want %+v, error %t", test.args, got, err, test.want, test.bad)
		}
	}
}

func TestLogger(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	log, err := Logger(&out, LogOptions{Format: LogJSON, Verbosity: 2})
	if err != nil {
		t.Fatal(err)
	}
	log.V(2).Info("heard", "node", "n1")
	log.V(3).Info("not heard")
	var line map[string]any
	if err := json.Unmarshal(out.Bytes(), &line); err != nil {
		t.Fatalf("want one JSON object, got %q: %v", out.String(), err)
	}
	if line["msg"] != "heard" || line["node"] != "n1" {
		t.Errorf("got %v", line)
	}
	out.Reset()
	log, err = Logger(&out, LogOptions{})
	if err != nil {
		t.Fatal(err)
	}
	log.V(1).Info("not heard")
	log.Error(errors.New("broken"), "could not bind")
	if got := out.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, `msg="could not bind" err=broken`) {
		t.Errorf("got %q", got)
	}
	for _, bad := range []LogOptions{{Format: "xml"}, {Verbosity: -1}} {
		if _, err := Logger(&out, bad); err == nil {
			t.Errorf("%+v was accepted", bad)
		}
	}
}

// kubeconfig writes a file of two contexts, the first of which names server.
func kubeconfig(t *testing.T, server string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	text := `
apiVersion: v1
kind: Config
current-context: one
clusters: [{name: c, cluster: {server: "` + server + `"}}, {name: d, cluster: {server: "https://other.test"}}]
users: [{name: u, user: {token: secret}}]
contexts: [{name: one, context: {cluster: c, user: u}}, {name: two, context: {cluster: d, user: u}}]
`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestRESTConfig(t *testing.T) {
	t.Parallel()
	file := kubeconfig(t, "https://example.test")
	o := DefaultClientOptions()
	o.Kubeconfig, o.UserAgent = file, "muster-binder"
	config, err := RESTConfig(o)
	if err != nil {
		t.Fatal(err)
	}
	if config.Host != "https://example.test" || config.QPS != 50 || config.Burst != 300 || config.UserAgent != "muster-binder" || config.BearerToken != "secret" {
		t.Errorf("got host %s, qps %g, burst %d, agent %s", config.Host, config.QPS, config.Burst, config.UserAgent)
	}
	o.Context = "two"
	if config, err = RESTConfig(o); err != nil || config.Host != "https://other.test" {
		t.Errorf("context two: got %v, %v", config, err)
	}
	core := Protobuf(config)
	if core.ContentType != "application/vnd.kubernetes.protobuf" || config.ContentType != "" {
		t.Errorf("core clients speak %q, others %q", core.ContentType, config.ContentType)
	}
	for _, bad := range []ClientOptions{
		{Kubeconfig: filepath.Join(t.TempDir(), "absent"), QPS: 1, Burst: 1},
		{Kubeconfig: file, QPS: 1, Burst: 0},
		{Kubeconfig: file, Context: "three", QPS: 1, Burst: 1},
	} {
		if _, err := RESTConfig(bad); err == nil {
			t.Errorf("%+v was accepted", bad)
		}
	}
}

// TestWatchCredentials: 401 is borne for a minute, and starts anew with every other answer of the API server; a token that has been
// renewed in its file is used at once.
func TestWatchCredentials(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	synctest.Test(t, func(t *testing.T) {
		config := &rest.Config{BearerTokenFile: file}
		role := WatchCredentials(config)
		status, valid := http.StatusUnauthorized, ""
		var heard []string
		api := config.WrapTransport(roundTripper(func(r *http.Request) (*http.Response, error) {
			body := ""
			if r.Body != nil {
				b, err := io.ReadAll(r.Body)
				if err != nil {
					t.Error(err)
				}
				body = string(b)
			}
			token := r.Header.Get("Authorization")
			heard = append(heard, token+body)
			answer := status
			if token == "Bearer "+valid {
				answer = http.StatusOK
			}
			return &http.Response{StatusCode: answer, Body: http.NoBody}, nil
		}))
		ask := func(body string) int {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://x/", strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Authorization", "Bearer old")
			resp, err := api.RoundTrip(r)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			return resp.StatusCode
		}
		ended := make(chan error, 1)
		go func() { ended <- role(t.Context()) }()
		lives := func(when string) {
			t.Helper()
			synctest.Wait()
			select {
			case err := <-ended:
				t.Fatalf("%s ended the role: %v", when, err)
			default:
			}
		}
		for range 59 {
			ask("")
			elapse(time.Second)
		}
		lives("59 s of 401")
		status = http.StatusForbidden
		ask("")
		elapse(time.Hour)
		lives("403")
		status = http.StatusUnauthorized
		ask("")
		elapse(30 * time.Second)
		status = http.StatusBadGateway
		ask("")
		elapse(29 * time.Second)
		status = http.StatusUnauthorized
		ask("")
		lives("59 s of 401")

		// The token is renewed: the request goes through, body and all.
		if err := os.WriteFile(file, []byte("new\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		valid, heard = "new", nil
		if got := ask("x"); got != http.StatusOK || !slices.Equal(heard, []string{"Bearer oldx", "Bearer newx"}) {
			t.Errorf("answered %d after %q", got, heard)
		}
		valid = "newer"
		ask("")
		elapse(59 * time.Second)
		ask("")
		lives("59 s since the last other answer")
		elapse(time.Second)
		ask("")
		if err := <-ended; !errors.Is(err, ErrUnauthorized) {
			t.Errorf("got %v, want ErrUnauthorized", err)
		}
		ask("")
		ctx, stop := context.WithCancel(t.Context())
		stop()
		if err := WatchCredentials(&rest.Config{})(ctx); err != nil {
			t.Errorf("a stop returned %v", err)
		}
	})
}
