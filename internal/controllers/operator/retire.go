package operator

import (
	"regexp"
	"slices"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/muster-scheduler/muster/api/kai/keys"
	"github.com/muster-scheduler/muster/internal/install"
)

// usualRetention is how long a store is kept that does not say for how long it keeps samples.
const usualRetention = 30 * 24 * time.Hour

// retire takes the store of metrics, and what belongs to it, out of what is to be removed, for as long as its samples are
// good for shares of usage. It returns the store that has to be marked with the time from which on nobody asked for it.
func retire(p *plan, now time.Time) (mark object, due time.Duration) {
	for _, o := range p.Remove {
		if o.GetKind() != install.KindPrometheus.Kind {
			continue
		}
		since, err := time.Parse(time.RFC3339, o.GetAnnotations()[keys.DeprecationAnnotation])
		if err != nil {
			mark, since = o, now
		}
		text, _, _ := unstructured.NestedString(o.Object, "spec", "retention")
		if left := since.Add(retention(text)).Sub(now); left > 0 {
			due = max(due, left)
		}
	}
	if due <= 0 {
		return nil, 0
	}
	stay := p.Remove[:0:0]
	for _, o := range p.Remove {
		if o.GetLabels()[install.LabelComponent] != install.Prometheus {
			stay = append(stay, o)
		}
	}
	p.Remove = stay
	return mark, due
}

// overlapping is how long policies that nobody asks for any more stay beside those that came or changed last. An API server takes policies over
// once a second, and hears of them and of their bindings apart from each other.
const overlapping = 10 * time.Second

// overlap takes policies and their bindings out of what is to be removed while others are to be made or changed, or have just been: what
// the old ones refuse, the new ones refuse by then. So nothing is unguarded while a version follows another that had other policies; and as
// long as a new one cannot be made, the old ones stay; but where none are desired any more, all go. It returns how long they stay at least,
// 0 if there are none.
func (r *reconciler) overlap(p *plan, desired []object) time.Duration {
	if !slices.ContainsFunc(desired, guards) {
		return 0
	}
	if slices.ContainsFunc(p.Apply, guards) {
		r.guarded = r.now()
	}
	left := r.guarded.Add(overlapping).Sub(r.now())
	if left <= 0 || !slices.ContainsFunc(p.Remove, guards) {
		return 0
	}
	p.Remove = slices.DeleteFunc(p.Remove, guards)
	return left
}

// guards says whether an object is a policy of the API server's, or its binding.
func guards(o object) bool {
	return o.GetKind() == "ValidatingAdmissionPolicy" || o.GetKind() == "ValidatingAdmissionPolicyBinding"
}

var (
	durationForm = regexp.MustCompile(`^(?:(\d+)y)?(?:(\d+)w)?(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?$`)
	units        = []time.Duration{365 * 24 * time.Hour, 7 * 24 * time.Hour, 24 * time.Hour, time.Hour, time.Minute, time.Second}
)

// retention reads a duration in Prometheus' notation.
func retention(text string) time.Duration {
	parts := durationForm.FindStringSubmatch(text)
	if text == "" || parts == nil {
		return usualRetention
	}
	var out time.Duration
	for i, unit := range units {
		if parts[i+1] == "" {
			continue
		}
		n, err := strconv.ParseInt(parts[i+1], 10, 32)
		if err != nil || n > int64(100*units[0]/unit) {
			return usualRetention
		}
		out += time.Duration(n) * unit
	}
	return out
}
