package engine

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/muster-scheduler/muster/internal/engine/ledger"
	"github.com/muster-scheduler/muster/internal/engine/policy"
)

// TestDependsOn: a bundle names those before it that evict on a node on which it promises room, and those for its own gang; binds that are
// decided before anybody is evicted name none.
func TestDependsOn(t *testing.T) {
	t.Parallel()
	on := func(v ledger.Verb, nodes ...string) (out []Intent) {
		for _, n := range nodes {
			out = append(out, Intent{Verb: v, Node: n})
		}
		return out
	}
	because := &EvictionRecord{Cause: policy.Reclaim}
	var p past
	for _, c := range []struct {
		b    Bundle
		want []string
	}{
		{Bundle{ID: "binds", UID: "a", Intents: on(ledger.Bind, "n1", "n2")}, nil},
		{Bundle{ID: "binds again", UID: "a", Intents: on(ledger.Bind, "n1")}, nil},
		{Bundle{ID: "evicts", UID: "b", Eviction: because, Intents: append(on(ledger.Evict, "n1", "n1", "n2"), on(ledger.Nominate, "n1")...)}, nil},
		{Bundle{ID: "elsewhere", UID: "c", Eviction: because, Intents: append(on(ledger.Evict, "n3"), on(ledger.Nominate, "n3")...)}, nil},
		{Bundle{ID: "binds beside", UID: "d", Intents: on(ledger.Bind, "n1")}, nil},
		{Bundle{ID: "of what is left", UID: "e", Eviction: because, Intents: append(on(ledger.Evict, "n2"), on(ledger.Nominate, "n1", "n2")...)}, []string{"evicts"}},
		{Bundle{ID: "of all", UID: "f", Intents: on(ledger.Nominate, "n3", "n2")}, []string{"elsewhere", "evicts", "of what is left"}},
		{Bundle{ID: "moves", UID: "g", Eviction: because, Intents: []Intent{{Verb: ledger.Evict, Node: "n4", To: "n3"}}}, []string{"elsewhere"}},
		{Bundle{ID: "more for a", UID: "a", Eviction: because, Intents: append(on(ledger.Evict, "n5"), on(ledger.Nominate, "n5")...)}, []string{"binds", "binds again"}},
		{Bundle{ID: "repairs", UID: "h", Eviction: because, Intents: on(ledger.Evict, "n1")}, nil},
	} {
		p.add(&c.b)
		if d := cmp.Diff(c.want, c.b.DependsOn); d != "" {
			t.Errorf("%s: %s", c.b.ID, d)
		}
	}
}
