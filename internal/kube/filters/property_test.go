package filters

import (
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/engine/ledger"
	"github.com/muster-scheduler/muster/internal/engine/policy"
)

// TestRollbackIsExact places and undoes at random, asking in between, and expects at each mark the verdicts that were
// given there before; and at the end of the run those that a new instance gives.
func TestRollbackIsExact(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := draw(t, true)
		if rapid.Bool().Draw(t, "capacities") {
			publish(t, p)
		}
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
func rehearse(s *engine.Session, i *instance) map[string]policy.Verdict {
	st := s.Ledger.Begin()
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

// walk does and undoes steps operations of every kind in one statement, and in the end undoes all.
func walk(t *rapid.T, s *engine.Session, i *instance, steps int) {
	const waits, runs, evicted, decided = 0, 1, 2, 3
	type state struct {
		mark ledger.Mark
		want map[string]policy.Verdict
		at   map[cluster.PodID]int
	}
	at := map[cluster.PodID]int{}
	var all []*pod
	s.Snap.EachPod(func(p *pod) {
		if p.Phase == cluster.Pending || p.Phase.Active() {
			all = append(all, p)
			if p.Phase.Active() {
				at[p.ID] = runs
			}
		}
	})
	st := s.Ledger.Begin()
	var points []state
	for range steps {
		switch rapid.IntRange(0, 4).Draw(t, "step") {
		case 0:
			points = append(points, state{st.Mark(), verdicts(s, i), maps.Clone(at)})
		case 1:
			if len(points) == 0 {
				continue
			}
			k := rapid.IntRange(0, len(points)-1).Draw(t, "back to")
			st.RollbackTo(points[k].mark)
			at = maps.Clone(points[k].at)
			if rapid.Bool().Draw(t, "ask after") {
				if d := cmp.Diff(points[k].want, verdicts(s, i)); d != "" {
					t.Fatalf("after a rollback (-before +after):\n%s", d)
				}
			}
			points = points[:k+1]
		default:
			p := rapid.SampledFrom(all).Draw(t, "pod")
			n := s.Snap.Node(rapid.SampledFrom(s.Snap.NodeOrder).Draw(t, "node"))
			allowed := func() bool {
				return judge(i, p, n).Yes() || rapid.IntRange(0, 3).Draw(t, "all the same") == 0
			}
			switch at[p.ID] {
			case waits:
				switch {
				case !allowed():
					continue
				case rapid.Bool().Draw(t, "now"):
					st.Place(p, n.ID)
				default:
					st.Nominate(p, n.ID)
				}
				at[p.ID] = decided
			case runs:
				st.Evict(p)
				at[p.ID] = evicted
			case evicted:
				if rapid.Bool().Draw(t, "spare") {
					st.Spare(p)
					at[p.ID] = runs
				} else if allowed() {
					st.Move(p, n.ID)
					at[p.ID] = decided
				}
			}
		}
	}
	st.Discard()
}

// TestDecidedIsAsDone compares what a run says after its placements, evictions and moves with what a new run says once
// they have happened.
func TestDecidedIsAsDone(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := draw(t, false)
		got := map[string]policy.Verdict{}
		where := map[string]string{} // by UID; "" for nowhere
		p.run(t, Options{}, func(s *engine.Session, i *instance) {
			if rapid.Bool().Draw(t, "warm") {
				verdicts(s, i)
			}
			st := s.Ledger.Begin()
			free := func(q *pod) (cluster.NodeID, bool) {
				for _, id := range s.Snap.NodeOrder {
					if judge(i, q, s.Snap.Node(id)).Yes() {
						return id, true
					}
				}
				return cluster.None, false
			}
			s.Snap.EachPod(func(q *pod) {
				switch {
				case rapid.Bool().Draw(t, "leave"):
				case q.Phase == cluster.Pending:
					if id, ok := free(q); ok {
						st.Place(q, id)
						where[q.UID] = s.Snap.Node(id).Name
					}
				case q.Phase.Active():
					st.Evict(q)
					where[q.UID] = ""
					switch rapid.IntRange(0, 2).Draw(t, "then") {
					case 1:
						st.Spare(q)
						delete(where, q.UID)
					case 2:
						if id, ok := free(q); ok {
							st.Move(q, id)
							where[q.UID] = s.Snap.Node(id).Name
						}
					}
				}
			})
			s.Snap.EachPod(func(q *pod) {
				if _, decided := where[q.UID]; q.Phase == cluster.Pending && !decided {
					for _, id := range s.Snap.NodeOrder {
						got[q.Name+" on "+s.Snap.Node(id).Name] = judge(i, q, s.Snap.Node(id))
					}
				}
			})
			st.Discard()
		})
		for _, o := range p.pods {
			switch node, decided := where[string(o.UID)]; {
			case !decided:
			case o.Spec.NodeName == "":
				if !p.store.Assume(string(o.UID), node, nil, cluster.Forever) {
					t.Fatal("no such pod: ", o.UID)
				}
			default:
				p.store.Apply(cluster.PodGone{UID: string(o.UID)})
				if node != "" {
					moved := o.DeepCopy()
					moved.Spec.NodeName = node
					p.add(moved)
				}
			}
		}
		var want map[string]policy.Verdict
		p.run(t, Options{}, func(s *engine.Session, i *instance) { want = verdicts(s, i) })
		if d := cmp.Diff(want, got); d != "" {
			t.Fatalf("done, and decided in the run (-done +decided):\n%s", d)
		}
	})
}
