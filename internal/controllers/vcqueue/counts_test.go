package vcqueue

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	scheduling "github.com/muster-scheduler/muster/api/volcano/scheduling/v1beta1"
)

// TestCounts: PodGroups are counted by queue and phase as they come, change, move and go; a queue without any has no series.
func TestCounts(t *testing.T) {
	t.Parallel()
	r := prometheus.NewPedanticRegistry()
	c, err := newCounts(r)
	if err != nil {
		t.Fatal(err)
	}
	see := func(name, queue string, phase scheduling.PodGroupPhase, gone bool) {
		g := group(queue)
		g.Name, g.Status.Phase = name, phase
		c.seen(g, gone)
	}
	shown := func() map[string]float64 {
		families, err := r.Gather()
		if err != nil {
			t.Fatal(err)
		}
		out := map[string]float64{}
		for _, f := range families {
			for _, s := range f.GetMetric() {
				name := strings.TrimSuffix(strings.TrimPrefix(f.GetName(), "volcano_queue_pod_group_"), "_count")
				out[name+" "+s.GetLabel()[0].GetValue()] = s.GetGauge().GetValue()
			}
		}
		return out
	}
	expect := func(what string, want map[string]float64) {
		t.Helper()
		if d := cmp.Diff(want, shown()); d != "" {
			t.Errorf("%s: -want +got:\n%s", what, d)
		}
	}
	expect("at first", map[string]float64{})
	see("g", "q", "", false)
	see("h", "q", scheduling.PodGroupInqueue, false)
	see("h", "q", scheduling.PodGroupInqueue, false)
	expect("two", map[string]float64{"pending q": 1, "inqueue q": 1, "running q": 0, "unknown q": 0, "completed q": 0})
	see("g", "q", scheduling.PodGroupRunning, false)
	see("h", "r", scheduling.PodGroupCompleted, false)
	expect("one runs, one moves", map[string]float64{
		"pending q": 0, "inqueue q": 0, "running q": 1, "unknown q": 0, "completed q": 0, "pending r": 0, "inqueue r": 0, "running r": 0, "unknown r": 0, "completed r": 1,
	})
	see("g", "q", scheduling.PodGroupUnknown, false)
	see("h", "r", scheduling.PodGroupCompleted, true)
	see("nobody", "r", "", true)
	expect("one goes", map[string]float64{"pending q": 0, "inqueue q": 0, "running q": 0, "unknown q": 1, "completed q": 0})
	see("g", "q", scheduling.PodGroupUnknown, true)
	expect("all have gone", map[string]float64{})
}
