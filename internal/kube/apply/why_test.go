package apply

import (
	"testing"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine"
)

// TestWhy: a pod that goes is told for whom, and where it goes for nobody, why.
func TestWhy(t *testing.T) {
	t.Parallel()
	b := engine.Bundle{Gang: cluster.Key{Face: "volcano", Namespace: "a", Name: "g"}}
	for want, record := range map[string]*engine.EvictionRecord{
		"x for a/g":             {Cause: engine.Reclaim, Victims: []engine.Victim{{Rule: "no matter"}}},
		"x: node n is given up": {Cause: engine.Shuffle, Victims: []engine.Victim{{Rule: "node n is given up"}}},
	} {
		b.Eviction = record
		if got := why("x", &b); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
