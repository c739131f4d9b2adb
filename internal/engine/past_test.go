package engine

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestDependsOn: a bundle names those before it that evict on a node on which it promises room, and those for its own gang; binds that are
// decided before anybody is evicted name none.
func TestDependsOn(t *testing.T) {
	t.Parallel()
	on := func(v Verb, nodes ...string) (out []Intent) {
		for _, n := range nodes {
			out = append(out, Intent{Verb: v, Node: n})
		}
		return out
	}
	because := &EvictionRecord{Cause: Reclaim}
	var p past
	for _, c := range []struct {
		b    Bundle
		want []string
	}{
		{Bundle{ID: "binds", UID: "a", Intents: on(Bind, "n1", "n2")}, nil},
		{Bundle{ID: "binds again", UID: "a", Intents: on(Bind, "n1")}, nil},
		{Bundle{ID: "evicts", UID: "b", Eviction: because, Intents: append(on(Evict, "n1", "n1", "n2"), on(Nominate, "n1")...)}, nil},
		{Bundle{ID: "elsewhere", UID: "c", Eviction: because, Intents: append(on(Evict, "n3"), on(Nominate, "n3")...)}, nil},
		{Bundle{ID: "binds beside", UID: "d", Intents: on(Bind, "n1")}, nil},
		{Bundle{ID: "of what is left", UID: "e", Eviction: because, Intents: append(on(Evict, "n2"), on(Nominate, "n1", "n2")...)}, []string{"evicts"}},
		{Bundle{ID: "of all", UID: "f", Intents: on(Nominate, "n3", "n2")}, []string{"elsewhere", "evicts", "of what is left"}},
		{Bundle{ID: "moves", UID: "g", Eviction: because, Intents: []Intent{{Verb: Evict, Node: "n4", To: "n3"}}}, []string{"elsewhere"}},
		{Bundle{ID: "more for a", UID: "a", Eviction: because, Intents: append(on(Evict, "n5"), on(Nominate, "n5")...)}, []string{"binds", "binds again"}},
		{Bundle{ID: "repairs", UID: "h", Eviction: because, Intents: on(Evict, "n1")}, nil},
	} {
		p.add(&c.b)
		if d := cmp.Diff(c.want, c.b.DependsOn); d != "" {
			t.Errorf("%s: %s", c.b.ID, d)
		}
	}
}
