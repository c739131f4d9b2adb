package write

import (
	"context"
	"net/http"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// MaxGrace is how long an evicted pod may go on unless somebody says otherwise: enough to write a large checkpoint, and not a year.
const MaxGrace = time.Hour

// Within is the grace period, in seconds, of a pod that may go on for so long at most; nothing for its own. 0 is no bound.
func Within(pod *v1.Pod, most time.Duration) []int64 {
	seconds := int64(most / time.Second)
	if own := pod.Spec.TerminationGracePeriodSeconds; seconds > 0 && own != nil && *own > seconds {
		return []int64{seconds}
	}
	return nil
}

// Evict asks the API server to evict the pod of this namespace, name and UID, under its PodDisruptionBudgets. The API server
// itself writes the condition DisruptionTarget, and would overwrite anybody else's. The pod has its own grace period, or as many
// seconds as within says, if it says anything.
func (k *Kit) Evict(ctx context.Context, pod *v1.Pod, within ...int64) (Result, error) {
	options := &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: new(pod.UID)}}
	for i := range within {
		options.GracePeriodSeconds = &within[i]
	}
	err := k.client.SubResource("eviction").Create(ctx, pod, &policyv1.Eviction{
		ObjectMeta:    metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name},
		DeleteOptions: options,
	})
	result, err := judgeDelete(err)
	return k.count("evict", pod, result, err)
}

// Delete deletes the object of this namespace, name and UID; a pod within its own grace period, or as Evict.
func (k *Kit) Delete(ctx context.Context, obj client.Object, within ...int64) (Result, error) {
	options := []client.DeleteOption{client.Preconditions{UID: new(obj.GetUID())}}
	for _, s := range within {
		options = append(options, client.GracePeriodSeconds(s))
	}
	result, err := judgeDelete(k.client.Delete(ctx, obj, options...))
	return k.count("delete", obj, result, err)
}

func judgeDelete(err error) (Result, error) {
	switch {
	case err == nil:
		return Written, nil
	case apierrors.IsNotFound(err):
		return Gone, nil
	case apierrors.IsConflict(err):
		return Changed, nil
	case apierrors.HasStatusCause(err, policyv1.DisruptionBudgetCause):
		return Blocked, nil
	case severalBudgets(err):
		return Unjudged, nil
	}
	return failed, err
}

// severalBudgets tells the API server's refusal to evict a pod that more than one budget is about: an internal error that
// only its words tell from others.
func severalBudgets(err error) bool {
	return apierrors.ReasonForError(err) == metav1.StatusReasonUnknown && strings.Contains(err.Error(), "more than one PodDisruptionBudget")
}

// Impatient returns a copy of the configuration whose clients hear at once that a budget blocks an eviction. The API server
// sends such an answer with the advice to ask again after ten seconds, which clients follow, ten times, without a word.
func Impatient(c *rest.Config) *rest.Config {
	c = rest.CopyConfig(c)
	c.Wrap(func(next http.RoundTripper) http.RoundTripper { return impatientTransport{next} })
	return c
}

type impatientTransport struct{ next http.RoundTripper }

// RoundTrip takes the advice out of the answer.
func (i impatientTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := i.next.RoundTrip(r)
	if err == nil && resp.StatusCode == http.StatusTooManyRequests && r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/eviction") {
		resp.Header.Del("Retry-After")
	}
	return resp, err
}
