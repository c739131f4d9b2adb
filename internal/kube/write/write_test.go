package write

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

var pods = schema.GroupResource{Resource: "pods"}

// answering returns a client whose API server answers every patch with err, and remembers what was sent.
func answering(t *testing.T, err error) (client.Client, *[]string) {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	sent := &[]string{}
	note := func(where string, obj client.Object, p client.Patch) error {
		body, bodyErr := p.Data(obj)
		if bodyErr != nil {
			t.Error(bodyErr)
		}
		*sent = append(*sent, where+" "+string(p.Type())+" "+string(body))
		return err
	}
	return fake.NewClientBuilder().WithScheme(scheme).WithInterceptorFuncs(interceptor.Funcs{
		Patch: func(_ context.Context, _ client.WithWatch, obj client.Object, p client.Patch, _ ...client.PatchOption) error {
			return note("object", obj, p)
		},
		SubResourcePatch: func(_ context.Context, _ client.Client, sub string, obj client.Object, p client.Patch, _ ...client.SubResourcePatchOption) error {
			return note(sub, obj, p)
		},
	}).Build(), sent
}

func pod() *corev1.Pod { return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p"}} }

func TestResultsAreToldFromErrors(t *testing.T) {
	t.Parallel()
	failedTest := &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: http.StatusUnprocessableEntity, Reason: metav1.StatusReasonInvalid, Message: "testing value failed"}}
	badField := &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusUnprocessableEntity, Reason: metav1.StatusReasonInvalid,
		Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{Field: "spec.x"}}},
	}}
	invalid := func(fields ...string) error {
		e := &apierrors.StatusError{ErrStatus: metav1.Status{
			Status: metav1.StatusFailure, Code: http.StatusUnprocessableEntity, Reason: metav1.StatusReasonInvalid,
			Message: "field is immutable", Details: &metav1.StatusDetails{},
		}}
		for _, f := range fields {
			e.ErrStatus.Details.Causes = append(e.ErrStatus.Details.Causes, metav1.StatusCause{Field: f})
		}
		return e
	}
	tests := map[string]struct {
		kind   types.PatchType
		body   string
		answer error
		want   Result
		err    string
	}{
		"taken":                 {types.MergePatchType, `{}`, nil, Written, ""},
		"nothing to send":       {types.MergePatchType, ``, errors.New("must not be asked"), Unchanged, ""},
		"gone":                  {types.MergePatchType, `{}`, apierrors.NewNotFound(pods, "p"), Gone, ""},
		"conflict":              {types.MergePatchType, `{}`, apierrors.NewConflict(pods, "p", errors.New("uid")), Changed, ""},
		"test operation failed": {types.JSONPatchType, `[]`, failedTest, Changed, ""},
		"schema broken by JSON": {types.JSONPatchType, `[]`, badField, failed, "patch Pod ns/p: "},
		"another object by now": {types.MergePatchType, `{}`, invalid("metadata.uid"), Changed, ""},
		"another pod by now":    {types.StrategicMergePatchType, `{}`, invalid("metadata.uid"), Changed, ""},
		"UID and a bad field":   {types.MergePatchType, `{}`, invalid("metadata.uid", "spec.x"), failed, "patch Pod ns/p: "},
		"422 without a field":   {types.MergePatchType, `{}`, invalid(), failed, "patch Pod ns/p: "},
		"422 to another kind":   {types.MergePatchType, `{}`, failedTest, failed, "patch Pod ns/p: testing value failed"},
		"no connection":         {types.StrategicMergePatchType, `{}`, errors.New("no route"), failed, "patch Pod ns/p: no route"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, _ := answering(t, tc.answer)
			k, err := New(c, "tester", nil)
			if err != nil {
				t.Fatal(err)
			}
			got, err := k.send(t.Context(), pod(), tc.kind, []byte(tc.body), false)
			if got != tc.want || (err != nil) != (tc.err != "") || err != nil && !strings.HasPrefix(err.Error(), tc.err) {
				t.Errorf("got %s, %v; want %s, %q", got, err, tc.want, tc.err)
			}
			if err != nil && tc.answer != nil && !errors.Is(err, tc.answer) {
				t.Error("the cause is lost")
			}
		})
	}
}

func TestEachMethodSendsItsKind(t *testing.T) {
	t.Parallel()
	c, sent := answering(t, nil)
	k, err := New(c, "tester", nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, send := range []func(context.Context, client.Object, []byte) (Result, error){k.Merge, k.MergeStatus, k.JSON, k.JSONStatus, k.Strategic, k.StrategicStatus} {
		if got, err := send(t.Context(), pod(), []byte(`x`)); got != Written || err != nil {
			t.Errorf("%s, %v", got, err)
		}
	}
	want := []string{
		"object application/merge-patch+json x", "status application/merge-patch+json x",
		"object application/json-patch+json x", "status application/json-patch+json x",
		"object application/strategic-merge-patch+json x", "status application/strategic-merge-patch+json x",
	}
	if d := cmp.Diff(want, *sent); d != "" {
		t.Error(d)
	}
}

func TestRolesShareOneCounter(t *testing.T) {
	t.Parallel()
	c, _ := answering(t, nil)
	registry := prometheus.NewPedanticRegistry()
	for _, role := range []string{"a", "b"} {
		k, err := New(c, role, registry)
		if err != nil {
			t.Fatal(err)
		}
		for _, body := range []string{"{}", ""} {
			if _, err := k.Merge(t.Context(), pod(), []byte(body)); err != nil {
				t.Error(err)
			}
		}
	}
	want := `
# HELP muster_writes_total Writes to API objects, by the role that made them, the object's kind and what became of them.
# TYPE muster_writes_total counter
muster_writes_total{kind="Pod",result="unchanged",role="a"} 1
muster_writes_total{kind="Pod",result="unchanged",role="b"} 1
muster_writes_total{kind="Pod",result="written",role="a"} 1
muster_writes_total{kind="Pod",result="written",role="b"} 1
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
	taken := prometheus.NewRegistry()
	taken.MustRegister(prometheus.NewGauge(prometheus.GaugeOpts{Name: "muster_writes_total", Help: "Another thing."}))
	if _, err := New(c, "c", taken); err == nil {
		t.Error("a name taken by something else is no error")
	}
}
