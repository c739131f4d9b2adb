package cli

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"github.com/muster-scheduler/muster/api/kai/keys"
	"github.com/muster-scheduler/muster/internal/cli/form"
	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/scheduler"
)

// TestDecisions reads records from events among which others lie, and tells them.
func TestDecisions(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	gang := func(name string) cluster.Key { return cluster.Key{Face: "kai", Namespace: "team", Name: name} }
	gpu := func(n int64) cluster.Resources { return cluster.Resources{0, 0, n * 1000} }
	first := scheduler.Record{
		At: at, Action: "reclaim", Bundle: "b1", Gang: "team/pg-train-1", Pods: 3, Evicted: 3,
		Eviction: &engine.EvictionRecord{
			Cause: engine.Reclaim, Queue: "vision", Evicted: 2000, Moved: 1000, Placed: 3000,
			Victims: []engine.Victim{
				{Gang: gang("pg-night-2"), Queue: "language", Priority: 50, Pods: 3, Moved: 1, GPU: 3000, Rule: "its queue held more than its fair share"},
			},
			Shares: []engine.ShareChange{
				{Queue: "language", Quota: gpu(4), FairShare: gpu(4), Before: gpu(7), After: gpu(5)},
				{Queue: "root", Quota: cluster.Resources{0, 0, cluster.Unlimited}, FairShare: gpu(8), Before: gpu(8), After: gpu(8)},
			},
		},
	}
	second := scheduler.Record{
		At: at.Add(time.Minute), Action: "stalegangeviction", Bundle: "b2", Gang: "team/broken", Pods: 2, Evicted: 1, Spared: "the world moved", More: 1,
		Eviction: &engine.EvictionRecord{Cause: engine.Repair, Queue: "vision", Evicted: 2000, Partial: true, Victims: []engine.Victim{{Gang: gang("broken"), Queue: "vision", Pods: 2, GPU: 2000}}},
	}
	event := func(text string) v1.Event {
		e := v1.Event{}
		e.Annotations = map[string]string{keys.DecisionAnnotation: text}
		return e
	}
	record := func(r scheduler.Record) v1.Event {
		b, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		return event(string(b))
	}
	events := []v1.Event{{}, event("{"), event("{}"), record(first), record(second)}
	all := decisions(events, "")
	if d := cmp.Diff([]scheduler.Record{second, first}, all); d != "" {
		t.Error(d)
	}
	for name, want := range map[string]int{"train": 1, "night": 1, "pg-night-2": 1, "broken": 1, "brok": 0, "tra": 0} {
		if got := len(decisions(events, name)); got != want {
			t.Errorf("%d decisions concern %s, want %d", got, name, want)
		}
	}
	table := drawDecisions(all)
	for line := range strings.Lines(table) {
		if n := utf8.RuneCountInString(strings.TrimRight(line, "\n")); n > form.Width {
			t.Errorf("%d columns: %s", n, line)
		}
	}
	if d := cmp.Diff(`Times are UTC; EVICTED, MOVED and PLACED count GPUs; --detail says from whom
TIME      BY       FOR                PODS  EVICTED  MOVED  PLACED  BECAUSE
03:05:05  repair   team/broken      1 of 2        2      0       0  spared: the world moved
03:04:05  reclaim  team/pg-train-1       3        2      1       3  its queue held more than its
                                                                    fair share
`, table); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff(`03:05:05  stalegangeviction releases team/broken (queue vision)
  team/broken (queue vision, priority 0) gives 2 pods, 2 gpu
  and 1 more gangs
  gpu: 2 evicted, 0 moved, 0 placed
  the search was cut short: a gentler choice may exist
  1 of 2 pods spared: the world moved
03:04:05  reclaim for team/pg-train-1 (queue vision)
  team/pg-night-2 (queue language, priority 50) gives 3 pods, 1 of them to another node, 3 gpu:
    its queue held more than its fair share
  queue language: 7 -> 5 gpu (quota 4, fair share 4)
  gpu: 2 evicted, 1 moved, 3 placed
`, tellDecisions(all)); d != "" {
		t.Error(d)
	}
	if got := tellDecisions(nil); !strings.HasPrefix(got, "No decision") {
		t.Error(got)
	}
}
