package install

import (
	"slices"
	"strings"
	"time"

	"github.com/muster-scheduler/muster/internal/app"
)

// pace is the flags that the Config's annotations give to every role: the times of its Lease, and after how long its work counts as
// hung. Times that no role would start with have no effect, all three together.
func (r *renderer) pace() []string {
	read := func(annotation string, into *time.Duration) (given bool) {
		text := r.notes[annotation]
		if text == "" {
			return false
		}
		d, err := time.ParseDuration(text)
		if err != nil || d < 0 {
			r.warn("metadata.annotations."+annotation, "has no effect: %q is no duration such as 15s", text)
			return false
		}
		*into = d
		return true
	}
	var f flags
	times := app.DefaultLeaseTimes()
	given := []bool{read(AnnotationLeaseDuration, &times.Lease), read(AnnotationRenewDeadline, &times.Renew), read(AnnotationRetryPeriod, &times.Retry)}
	if err := times.Validate(); err != nil {
		r.warn("metadata.annotations."+AnnotationLeaseDuration, "has no effect, as the renew deadline and the retry period have none: %v", err)
	} else if slices.Contains(given, true) {
		f.set("lease-duration", times.Lease)
		f.set("renew-deadline", times.Renew)
		f.set("retry-period", times.Retry)
	}
	var hung time.Duration
	if read(AnnotationHungAfter, &hung) {
		f.set("hung-after", hung)
	}
	return f
}

// without leaves out the flags that are given already: what a shard says of itself counts.
func (f flags) without(given []string) flags {
	return slices.DeleteFunc(f, func(flag string) bool {
		name, _, _ := strings.Cut(flag, "=")
		return slices.ContainsFunc(given, func(other string) bool { return other == name || strings.HasPrefix(other, name+"=") })
	})
}
