package engine

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine/ledger"
	"github.com/muster-scheduler/muster/internal/engine/policy"
)

// byShare orders queues by what they hold and their next asks for, and counts how often it is asked.
type byShare struct {
	view  *policy.View
	asked *int
}

func (b byShare) CompareQueues(l, r cluster.QueueID, lNext, rNext cluster.Resources) int {
	*b.asked++
	of := func(id cluster.QueueID, next cluster.Resources) int64 {
		return b.view.Queue(id).Allocated.At(cluster.GPU) + next.At(cluster.GPU)
	}
	return cmp.Compare(of(l, lNext), of(r, rNext))
}

// forest is a session over a random forest of queues with so many gangs that wait in its leaves, of pods of so many
// sizes, and room for all of them.
func forest(t *testing.T, r *rand.Rand, queues, gangs int, flat bool, sizes int) (*Session, *int) {
	t.Helper()
	store := cluster.NewStore(cluster.Options{})
	store.Apply(cluster.NodeState{Name: "n", Allocatable: []cluster.Quantity{{Name: "gpu", Value: 1_000_000_000}, {Name: "pods", Value: 1_000_000}}})
	parents := map[int]bool{}
	for i := range queues {
		q := cluster.QueueState{Name: fmt.Sprintf("q%05d", i), Quota: []cluster.Quantity{{Name: "gpu", Value: cluster.Unlimited}}}
		if up := r.IntN(queues); !flat && up < i {
			q.Parent, parents[up] = fmt.Sprintf("q%05d", up), true
		}
		store.Apply(q)
	}
	for i := range gangs {
		at := i % queues
		for parents[at] {
			at = r.IntN(queues)
		}
		key := cluster.Key{Face: "kai", Namespace: "d", Name: fmt.Sprintf("g%05d", i)}
		store.Apply(cluster.GangState{Key: key, UID: key.Name, Queue: fmt.Sprintf("q%05d", at), Created: cluster.UnixNano(int64(r.IntN(5)))})
		for k := range 1 + r.IntN(2) {
			name := fmt.Sprintf("%s-%d", key.Name, k)
			store.Apply(cluster.PodState{
				UID: name, Namespace: "d", Name: name, Gang: key, Ours: true,
				Requests: []cluster.Quantity{{Name: "gpu", Value: int64(1+r.IntN(sizes)) * 1000}, {Name: "pods", Value: 1}},
			})
		}
	}
	asked := 0
	e, err := New(Profile{Tiers: [][]PluginUse{{{Name: "share"}}}}, Registry{Plugins: map[string][]policy.Factory{
		"share": {policy.Opens(func(v *policy.View) byShare { return byShare{asked: &asked, view: v} })},
	}})
	if err != nil {
		t.Fatal(err)
	}
	return newSession(context.Background(), e, store.Snapshot(cluster.UnixNano(1))), &asked
}

// firstOf finds the gang that is served first by looking at all of them, queue by queue.
func firstOf(s *Session, q *GangQueue, of []*ledger.QueueLedger, waiting map[*ledger.QueueLedger][]*ledger.GangState) *ledger.GangState {
	var best *ledger.GangState
	var bestAt *ledger.QueueLedger
	for _, l := range of {
		var g *ledger.GangState
		for _, o := range waiting[l] {
			if g == nil || s.Rules.CompareGangs(o, g) < 0 {
				g = o
			}
		}
		if len(l.Children) > 0 {
			g = firstOf(s, q, l.Children, waiting)
		}
		if g != nil && (best == nil || q.before(&queueNode{ledger: l, best: g}, &queueNode{ledger: bestAt, best: best})) {
			best, bestAt = g, l
		}
	}
	return best
}

// TestGangQueueOrder: whatever is placed, taken back, put back and given by others in between, the next gang is the one that a
// look at all of them finds; and so it is in the actions that follow, which begin with the order of those before.
func TestGangQueueOrder(t *testing.T) {
	t.Parallel()
	for seed := range uint64(150) {
		r := rand.New(rand.NewPCG(seed, 7))
		s, _ := forest(t, r, 1+r.IntN(12), 1+r.IntN(40), seed%3 == 0, 2)
		for range 3 {
			s.draft.bundles = map[cluster.GangID]int{}
			gangs := s.Pending()
			q := s.NewGangQueue(gangs)
			waiting := map[*ledger.QueueLedger][]*ledger.GangState{}
			for _, g := range gangs {
				waiting[g.Leaf] = append(waiting[g.Leaf], g)
			}
			var given []*ledger.GangState
			for step := 0; ; step++ {
				want, got := firstOf(s, q, s.Ledger.Tops(), waiting), q.Pop()
				if got != want {
					t.Fatalf("seed %d, step %d: %v is served, not %v", seed, step, got, want)
				}
				if got == nil {
					break
				}
				rest := waiting[got.Leaf][:0:0]
				for _, g := range waiting[got.Leaf] {
					if g != got {
						rest = append(rest, g)
					}
				}
				waiting[got.Leaf] = rest
				st := s.Ledger.Begin()
				switch r.IntN(4) {
				case 0: // it gets something, and asks for more
					if s.Placer.TryGang(st, got) == nil {
						s.Accept(st)
						if pods, _ := s.Ledger.Next(got); len(pods) > 0 {
							q.Push(got)
							waiting[got.Leaf] = append(waiting[got.Leaf], got)
						}
					}
				case 1: // a what-if
					s.Placer.TryGang(st, got)
					st.Discard()
				case 2: // another queue is charged
					if given = append(given, got); len(given) > 1 {
						other := given[r.IntN(len(given))]
						more := int64(r.IntN(3)) * 1000
						for l := other.Leaf; l != nil; l = l.Parent {
							l.Allocated[cluster.GPU] += more
							l.Charges++
						}
						q.Changed(other.Leaf)
					}
				}
			}
		}
	}
}

// TestGangQueueComparisons: gangs that get nothing are handed out without comparing queues, once those are in order; and the
// next action finds them so.
func TestGangQueueComparisons(t *testing.T) {
	t.Parallel()
	const n = 1000
	s, asked := forest(t, rand.New(rand.NewPCG(1, 1)), n, 2*n, true, 1) // all ask for the same
	gangs := make([]*ledger.GangState, 0, 2*n)
	s.Ledger.EachGang(func(g *ledger.GangState) { gangs = append(gangs, g) })
	for action, most := range []int{15 * n, n + n/10, n + n/10} {
		*asked = 0
		q := s.NewGangQueue(gangs)
		for range gangs {
			if q.Pop() == nil {
				t.Fatal("a gang is lost")
			}
		}
		if *asked > most {
			t.Errorf("action %d: queues were compared %d times, want at most %d", action, *asked, most)
		}
	}
}
