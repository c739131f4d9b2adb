package write

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// Result is what became of a write.
type Result uint8

// The results of a write. Gone and Changed are no errors: the object's next event tells the rest.
const (
	Unchanged Result = iota // the body was empty, nothing was sent
	Written                 // the API server took the patch
	Gone                    // the object does not exist any more
	Changed                 // the object is not the one, or not in the state, that the write demands
	Blocked                 // a PodDisruptionBudget allows no eviction now
	Unjudged                // several PodDisruptionBudgets are about the pod, which the eviction API refuses to judge
	failed                  // an error; only ever counted
)

var resultNames = [...]string{"unchanged", "written", "gone", "changed", "blocked", "unjudged", "failed"}

// String is the result's name as the metric shows it.
func (r Result) String() string {
	if int(r) < len(resultNames) {
		return resultNames[r]
	}
	return "?"
}

// Kit writes in the name of one role. It is safe for concurrent use.
type Kit struct {
	client client.Client
	writes *prometheus.CounterVec
}

// New returns the kit of a role. It registers the counter muster_writes_total{role,kind,result} unless another role
// of the process has done so, and fails when the registry holds something else of that name. A nil registry counts
// for nobody.
func New(c client.Client, role string, registry prometheus.Registerer) (*Kit, error) {
	writes := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "muster_writes_total",
		Help: "Writes to API objects, by the role that made them, the object's kind and what became of them.",
	}, []string{"role", "kind", "result"})
	if registry != nil {
		if err := registry.Register(writes); err != nil {
			already, ok := err.(prometheus.AlreadyRegisteredError)
			if !ok {
				return nil, fmt.Errorf("register muster_writes_total: %w", err)
			}
			writes, ok = already.ExistingCollector.(*prometheus.CounterVec)
			if !ok {
				return nil, fmt.Errorf("register muster_writes_total: the name is taken by a %T", already.ExistingCollector)
			}
		}
	}
	return &Kit{client: c, writes: writes.MustCurryWith(prometheus.Labels{"role": role})}, nil
}

// Merge sends a JSON merge patch to the object that obj names. On Written, obj holds the API server's answer.
func (k *Kit) Merge(ctx context.Context, obj client.Object, body []byte) (Result, error) {
	return k.send(ctx, obj, types.MergePatchType, body, false)
}

// MergeStatus sends a JSON merge patch, of the form {"status":…}, to the object's status subresource.
func (k *Kit) MergeStatus(ctx context.Context, obj client.Object, body []byte) (Result, error) {
	return k.send(ctx, obj, types.MergePatchType, body, true)
}

// JSON sends a JSON patch, a list of operations. A failed "test" operation is Changed.
func (k *Kit) JSON(ctx context.Context, obj client.Object, body []byte) (Result, error) {
	return k.send(ctx, obj, types.JSONPatchType, body, false)
}

// JSONStatus sends a JSON patch to the object's status subresource. A failed "test" operation is Changed.
func (k *Kit) JSONStatus(ctx context.Context, obj client.Object, body []byte) (Result, error) {
	return k.send(ctx, obj, types.JSONPatchType, body, true)
}

// Strategic sends a strategic merge patch, which merges lists by key; built-in kinds only.
func (k *Kit) Strategic(ctx context.Context, obj client.Object, body []byte) (Result, error) {
	return k.send(ctx, obj, types.StrategicMergePatchType, body, false)
}

// StrategicStatus sends a strategic merge patch to the object's status subresource; built-in kinds only.
func (k *Kit) StrategicStatus(ctx context.Context, obj client.Object, body []byte) (Result, error) {
	return k.send(ctx, obj, types.StrategicMergePatchType, body, true)
}

func (k *Kit) send(ctx context.Context, obj client.Object, kind types.PatchType, body []byte, status bool) (Result, error) {
	result, err := Unchanged, error(nil)
	if len(body) > 0 {
		patch := client.RawPatch(kind, body)
		if status {
			err = k.client.Status().Patch(ctx, obj, patch)
		} else {
			err = k.client.Patch(ctx, obj, patch)
		}
		result, err = judge(err, kind)
	}
	what := "patch"
	if status {
		what = "patch the status of"
	}
	return k.count(what, obj, result, err)
}

// count counts a write, and says of an error what was attempted.
func (k *Kit) count(what string, obj client.Object, result Result, err error) (Result, error) {
	gvk, gvkErr := apiutil.GVKForObject(obj, k.client.Scheme())
	if gvkErr != nil {
		return failed, fmt.Errorf("%s %T: %w", what, obj, gvkErr)
	}
	k.writes.WithLabelValues(gvk.Kind, result.String()).Inc()
	if err != nil {
		return result, fmt.Errorf("%s %s %s: %w", what, gvk.Kind, client.ObjectKeyFromObject(obj), err)
	}
	return result, nil
}

// judge tells results from errors.
func judge(err error, kind types.PatchType) (Result, error) {
	switch {
	case err == nil:
		return Written, nil
	case apierrors.IsNotFound(err):
		return Gone, nil
	case apierrors.IsConflict(err):
		return Changed, nil
	case kind == types.JSONPatchType && apierrors.IsInvalid(err) && testFailed(err), apierrors.IsInvalid(err) && otherUID(err):
		return Changed, nil
	}
	return failed, err
}

// testFailed tells a failed "test" operation from a patch whose result breaks the schema: the API server answers 422
// to both, but only the latter names the fields at fault.
func testFailed(err error) bool {
	status, ok := err.(apierrors.APIStatus)
	return ok && (status.Status().Details == nil || len(status.Status().Details.Causes) == 0)
}

// otherUID tells a patch that names the UID of an earlier object: the API server takes it for a change of the field
// metadata.uid, which is immutable, and refuses that field alone.
func otherUID(err error) bool {
	status, ok := err.(apierrors.APIStatus)
	if !ok || status.Status().Details == nil || len(status.Status().Details.Causes) == 0 {
		return false
	}
	return !slices.ContainsFunc(status.Status().Details.Causes, func(c metav1.StatusCause) bool { return c.Field != "metadata.uid" })
}

// Body is a patch as it is sent. What patches are made of, texts, numbers, types of the API, lists and maps of them, always has a JSON
// form: that v has none is a defect.
func Body(v any) []byte {
	body, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("a patch has no JSON form: %v", err))
	}
	return body
}
