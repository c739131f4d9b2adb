package install

import (
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kaiv1 "github.com/muster-scheduler/muster/api/kai/v1"
)

// TestPace: the times of Leases and of hung work that the Config asks for are every role's, a shard's own count before them, and what no
// role would start with is told and left out.
func TestPace(t *testing.T) {
	t.Parallel()
	const duration, deadline, retry, hung = AnnotationLeaseDuration, AnnotationRenewDeadline, AnnotationRetryPeriod, AnnotationHungAfter
	for name, c := range map[string]struct {
		notes map[string]string
		shard map[string]string
		want  []string // of every role
		own   []string // of the scheduler, if others
		said  string
	}{
		"nothing":    {},
		"all":        {notes: map[string]string{duration: "15s", deadline: "10s", retry: "2s", hung: "5m"}, want: []string{"--lease-duration=15s", "--renew-deadline=10s", "--retry-period=2s", "--hung-after=5m0s"}},
		"one":        {notes: map[string]string{duration: "15s"}, want: []string{"--lease-duration=15s", "--renew-deadline=2.5s", "--retry-period=400ms"}},
		"never hung": {notes: map[string]string{hung: "0s"}, want: []string{"--hung-after=0s"}},
		"a shard's":  {notes: map[string]string{hung: "5m"}, shard: map[string]string{"hung-after": "1m"}, want: []string{"--hung-after=5m0s"}, own: []string{"--hung-after=1m"}},
		"too short":  {notes: map[string]string{duration: "2s", hung: "5m"}, want: []string{"--hung-after=5m0s"}, said: "a renew deadline of 2.5s"},
		"no time":    {notes: map[string]string{duration: "soon"}, said: `"soon" is no duration`},
		"negative":   {notes: map[string]string{hung: "-1s"}, said: `"-1s" is no duration`},
	} {
		shard := kaiv1.SchedulingShard{ObjectMeta: metav1.ObjectMeta{Name: "default"}, Spec: kaiv1.SchedulingShardSpec{Args: c.shard}}
		env := testEnvironment()
		env.SchedulerFlags = nil
		objects, warnings, err := Render(&kaiv1.Config{ObjectMeta: metav1.ObjectMeta{Name: kaiv1.ConfigName, Annotations: c.notes}}, []kaiv1.SchedulingShard{shard}, env)
		if err != nil {
			t.Fatal(err)
		}
		seen := 0
		for _, o := range objects {
			d, ok := o.(*appsv1.Deployment)
			if !ok {
				continue
			}
			seen++
			var got []string
			for _, arg := range d.Spec.Template.Spec.Containers[0].Args {
				if flag, _, _ := strings.Cut(arg, "="); slices.Contains([]string{"--lease-duration", "--renew-deadline", "--retry-period", "--hung-after"}, flag) {
					got = append(got, arg)
				}
			}
			want := c.want
			if d.Spec.Template.Spec.Containers[0].Name == Scheduler && c.own != nil {
				want = c.own
			}
			if !slices.Equal(got, want) {
				t.Errorf("%s: %s gets %q, want %q", name, d.Name, got, want)
			}
		}
		if seen < 5 {
			t.Errorf("%d roles", seen)
		}
		said := 0
		for _, w := range warnings {
			if strings.Contains(w.Field, "muster.dev/") {
				if said++; c.said == "" || !strings.Contains(w.Rule, c.said) {
					t.Errorf("%s: %s", name, w)
				}
			}
		}
		if want := map[bool]int{true: 1}[c.said != ""]; said != want {
			t.Errorf("%s: told %d times", name, said)
		}
	}
}
