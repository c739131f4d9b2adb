package see

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/muster-scheduler/muster/internal/explain"
	"github.com/muster-scheduler/muster/internal/sim"
)

// TestWhatIf: a full node of queue a, a gang of queue b that waits. One node more lets it start; cordoned, what runs there runs on, and its queue is owed less; deleted, the gang that
// runs gives its room; nothing of it is done in the cycle.
func TestWhatIf(t *testing.T) {
	t.Parallel()
	s := newStage(t, 1, "a", "b")
	s.submit("runs", "a", 8, 0, Work{})
	s.live(time.Minute, nil)
	s.submit("waits", "a", 8, 0, Work{})
	for name, c := range map[string]struct {
		change *explain.Change
		says   []string
		gains  int
	}{
		"node":   {explain.MoreNodes("node-000", 1), []string{"add 1 node like node-000", "starts: sim/waits (queue a): room for 1 pods instead of 0"}, 1},
		"delete": {explain.WithoutGang(sim.Key("runs")), []string{"starts: sim/waits"}, 1},
		"cordon": {explain.CordonNodes("node-000"), []string{"cordon node node-000", "fair share 4 instead of 8"}, 0},
		"weight": {explain.OfQueue(explain.SetWeight, "b", "gpu", 3000), []string{"set the gpu weight of queue b to 3"}, 0},
		"quota":  {explain.OfQueue(explain.SetQuota, "a", "gpu", 2000), []string{"set the gpu quota of queue a to 2", "quota 2 instead of 4"}, 0},
	} {
		for _, cycles := range []int{1, 20} {
			cycle := s.cycle()
			o, err := WhatIf(t.Context(), cycle, []*explain.Change{c.change}, Horizon{Cycles: cycles})
			if err != nil {
				t.Fatal(err)
			}
			if len(o.Gains) != c.gains || o.Kind != "Consequences" || o.Cycle.Cluster != "c1" {
				t.Errorf("%s: %+v", name, o)
			}
			for _, want := range c.says {
				if text := o.Text(); !strings.Contains(text, want) {
					t.Errorf("%s, %d cycles: %q is not in\n%s", name, cycles, want, text)
				}
			}
			again, err := WhatIf(t.Context(), cycle, []*explain.Change{c.change}, Horizon{Cycles: cycles})
			if err != nil || again.Text() != o.Text() {
				t.Errorf("%s: asked again it says otherwise: %v\n%s", name, err, again.Text())
			}
		}
	}
}

// What cannot be meant is refused by name, and what is too much by its bound.
func TestWhatIfRefuses(t *testing.T) {
	t.Parallel()
	s := newStage(t, 1, "a")
	c := s.cycle()
	for want, changes := range map[string][]*explain.Change{
		"changes are 0; there must be 1 to 64":                 nil,
		"changes are 65; there must be 1 to 64":                make([]*explain.Change, 65),
		"node gone: does not exist":                            {explain.CordonNodes("gone")},
		"node node-000: count is 1001":                         {explain.MoreNodes("node-000", 1001)},
		"queue gone: does not exist":                           {explain.OfQueue(explain.SetQuota, "gone", "gpu", 1)},
		"queue a: resource gold is none that this cluster has": {explain.OfQueue(explain.SetLimit, "a", "gold", 1)},
		"gang sim/gone: does not exist":                        {explain.WithoutGang(sim.Key("gone"))},
		"node node-000: count is 600; 1 to 400 nodes more":     {explain.MoreNodes("node-000", 600), explain.MoreNodes("node-000", 600)},
	} {
		var refusal *Refusal
		if _, err := WhatIf(t.Context(), c, changes, Horizon{}); !errors.As(err, &refusal) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", want, err)
		}
	}
	if _, err := WhatIf(t.Context(), c, []*explain.Change{explain.CordonNodes("node-000")}, Horizon{Cycles: 201}); err == nil {
		t.Error("a horizon without an end")
	}
}
