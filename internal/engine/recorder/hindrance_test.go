package recorder

import (
	"testing"

	"github.com/muster-scheduler/muster/internal/engine/policy"

	"github.com/muster-scheduler/muster/internal/cluster"
)

func TestHindrance(t *testing.T) {
	t.Parallel()
	over := Attempt{Action: "reclaim", Verdict: policy.Verdict{Code: policy.No, Reason: &policy.Reason{Key: "Over", Text: "queue {object} would hold {need} {dim}, above its fair share of {have}", Hinders: true}, Object: "q", Dim: "gpu", Need: 12000, Have: 8000}}
	room := policy.Verdict{Code: policy.No, Reason: policy.ReasonGangNoRoom, Need: 4}
	for _, c := range []struct {
		name  string
		why   policy.Verdict
		tried []Attempt
		want  string
	}{
		{"nothing was tried", room, nil, ""},
		{"another reason says enough", policy.Verdict{Code: policy.No, Reason: &policy.Reason{Key: "Limit"}}, []Attempt{over}, ""},
		{"no room is no news", room, []Attempt{{Action: "consolidation", Verdict: policy.Verdict{Code: policy.No, Reason: policy.ReasonNothingToMove}}}, ""},
		{"a share", room, []Attempt{over}, "; reclaim: queue q would hold 12 gpu, above its fair share of 8"},
		{
			"time before a share", room,
			[]Attempt{over, {Action: "preempt", Verdict: policy.Verdict{Code: policy.Wait, Reason: policy.ReasonPreemptionDelay, WakeAt: cluster.UnixNano(1)}}},
			"; preempt: its preemption delay is not over",
		},
		{
			"without a count that changes", room,
			[]Attempt{{Action: "reclaim", Verdict: policy.Verdict{Code: policy.No, Reason: policy.ReasonVictimsTooFew, Have: 17}}},
			"; reclaim: all that may be displaced would not make room enough",
		},
		{
			"one rule protects all", room,
			[]Attempt{{Action: "preempt", Verdict: policy.Verdict{Code: policy.No, Reason: policy.ReasonNoVictims}, Barred: []Barrier{{Verdict: policy.Verdict{Code: policy.No, Reason: policy.ReasonHigherPriority}, Gangs: 3}}}},
			"; preempt: there is nobody it may displace: its priority is not lower",
		},
	} {
		g := GangTrace{Diagnosis: &Diagnosis{Verdict: c.why}, Tried: c.tried}
		if got := g.Hindrance(); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
	if got := (&GangTrace{}).Hindrance(); got != "" {
		t.Errorf("a gang that waits for nothing: %q", got)
	}
}
