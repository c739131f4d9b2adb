package filters

import (
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine"
)

// TestRollbackIsExact places and undoes at random, asking in between, and expects at each mark the verdicts that were
// given there before; and at the end of the run those that a new instance gives.
func TestRollbackIsExact(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := draw(t, true)
		p.run(t, Options{StorageCapacity: true}, func(s *engine.Session, i *instance) {
			if rapid.Bool().Draw(t, "cold") { // nothing was asked before the first placement
				walk(t, s, i, 2)
			}
			before, first := verdicts(s, i), rehearse(s, i)
			walk(t, s, i, 12)
			if d := cmp.Diff(first, rehearse(s, i)); d != "" {
				t.Fatalf("the same placements, again (-first +second):\n%s", d)
			}
			if d := cmp.Diff(before, verdicts(s, i)); d != "" {
				t.Fatalf("after everything is undone (-before +after):\n%s", d)
			}
			fresh := newInstance(i.view, i.options)
			if d := cmp.Diff(verdicts(s, fresh), before); d != "" {
				t.Fatalf("the same view (-fresh +used):\n%s", d)
			}
		})
	})
}

// rehearse places every pod on the first node that takes it, undoes all, and returns what was said at the height of it.
func rehearse(s *engine.Session, i *instance) map[string]engine.Verdict {
	st := s.Begin()
	s.Snap.EachPod(func(p *pod) {
		if p.Phase != cluster.Pending {
			return
		}
		for _, id := range s.Snap.NodeOrder {
			if judge(i, p, s.Snap.Node(id)).Yes() {
				st.Place(p, id)
				return
			}
		}
	})
	out := verdicts(s, i)
	st.Discard()
	return out
}

// walk does and undoes steps operations in one statement, and in the end undoes all.
func walk(t *rapid.T, s *engine.Session, i *instance, steps int) {
	var waiting []*pod
	s.Snap.EachPod(func(p *pod) {
		if p.Phase == cluster.Pending {
			waiting = append(waiting, p)
		}
	})
	type point struct {
		mark  engine.Mark
		want  map[string]engine.Verdict
		taken int
	}
	st := s.Begin()
	var points []point
	placed := map[cluster.PodID]bool{}
	var order []cluster.PodID
	for range steps {
		switch rapid.IntRange(0, 3).Draw(t, "step") {
		case 0:
			points = append(points, point{st.Mark(), verdicts(s, i), len(order)})
		case 1:
			if len(points) == 0 {
				continue
			}
			k := rapid.IntRange(0, len(points)-1).Draw(t, "back to")
			st.RollbackTo(points[k].mark)
			for _, id := range order[points[k].taken:] {
				delete(placed, id)
			}
			order = order[:points[k].taken]
			if rapid.Bool().Draw(t, "ask after") {
				if d := cmp.Diff(points[k].want, verdicts(s, i)); d != "" {
					t.Fatalf("after a rollback (-before +after):\n%s", d)
				}
			}
			points = points[:k+1]
		default:
			p := rapid.SampledFrom(waiting).Draw(t, "pod")
			n := s.Snap.Node(rapid.SampledFrom(s.Snap.NodeOrder).Draw(t, "node"))
			if placed[p.ID] || !judge(i, p, n).Yes() && rapid.IntRange(0, 3).Draw(t, "all the same") > 0 {
				continue
			}
			if rapid.Bool().Draw(t, "now") {
				st.Place(p, n.ID)
			} else {
				st.Nominate(p, n.ID)
			}
			placed[p.ID] = true
			order = append(order, p.ID)
		}
	}
	st.Discard()
}

// TestPlacedIsAsBound compares what a run says after its placements with what a new run says once they are bound.
func TestPlacedIsAsBound(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := draw(t, false)
		got := map[string]engine.Verdict{}
		where := map[string]string{}
		p.run(t, Options{}, func(s *engine.Session, i *instance) {
			if rapid.Bool().Draw(t, "warm") {
				verdicts(s, i)
			}
			st := s.Begin()
			s.Snap.EachPod(func(q *pod) {
				if q.Phase != cluster.Pending || rapid.Bool().Draw(t, "leave") {
					return
				}
				for _, id := range s.Snap.NodeOrder {
					if judge(i, q, s.Snap.Node(id)).Yes() {
						st.Place(q, id)
						where[q.UID] = s.Snap.Node(id).Name
						return
					}
				}
			})
			s.Snap.EachPod(func(q *pod) {
				if q.Phase == cluster.Pending && where[q.UID] == "" {
					for _, id := range s.Snap.NodeOrder {
						got[q.Name+" on "+s.Snap.Node(id).Name] = judge(i, q, s.Snap.Node(id))
					}
				}
			})
			st.Discard()
		})
		for uid, node := range maps.All(where) {
			if !p.store.Assume(uid, node, cluster.Forever) {
				t.Fatal("no such pod: ", uid)
			}
		}
		var want map[string]engine.Verdict
		p.run(t, Options{}, func(s *engine.Session, i *instance) { want = verdicts(s, i) })
		if d := cmp.Diff(want, got); d != "" {
			t.Fatalf("bound, and placed in the run (-bound +placed):\n%s", d)
		}
	})
}
