package enginetest

import (
	"context"
	"fmt"
	"testing"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/engine/builtin"
	"github.com/muster-scheduler/muster/internal/engine/ledger"
	"github.com/muster-scheduler/muster/internal/profile"
)

// kindsOf is n nodes of 8 GPUs of so many kinds in turn, all held by one-GPU gangs of queue victims, the younger ones on
// later kinds, and a gang of queue taker whose pods each need a whole node of the first kind. The victims' queue is above its
// quota by what that takes, and no GPU more.
func kindsOf(n, kinds, pods int) *situation {
	s := &situation{}
	kind := func(i int) string { return fmt.Sprint("kind", i%kinds) }
	for i := range n {
		s.node(nodeName(i), map[string]string{"kind": kind(i)})
	}
	s.rest = append(s.rest, queue("victims", "", int64(n-pods)*8000), queue("taker", "", int64(pods)*8000))
	for i := range 8 * n {
		s.crew(crew{
			name: fmt.Sprintf("victim-%06d", i), queue: "victims", pods: 1, gpu: 1, node: nodeName(i / 8),
			age: int64(10 + i + 1000*(kinds-1-i/8%kinds)*n/1000), priority: 50, preemptible: true,
		})
	}
	s.crew(crew{name: "taker", queue: "taker", pods: pods, gpu: 8, age: 1, priority: 50, preemptible: true, spec: cluster.ClassSpec{NodeSelector: map[string]string{"kind": "kind0"}}})
	return s
}

// gapped is kindsOf for one kind, with half of the oldest gangs' node empty: the taker needs the other half and may take no
// more than that.
func gapped(n int) *situation {
	s := &situation{}
	s.plant(n)
	s.rest = append(s.rest, queue("victims", "", int64(n-1)*8000), queue("taker", "", 8000))
	for i := range 8*n - 4 {
		s.crew(crew{name: fmt.Sprintf("victim-%06d", i), queue: "victims", pods: 1, gpu: 1, node: nodeName((i + 4) / 8), age: int64(100_000 - i), priority: 50, preemptible: true})
	}
	s.crew(crew{name: "taker", queue: "taker", pods: 1, gpu: 8, age: 1, priority: 50, preemptible: true})
	return s
}

// TestWhereItFits: a queue gets what it is owed however many hold something elsewhere, whether or not victims may move.
func TestWhereItFits(t *testing.T) {
	t.Parallel()
	type ask struct {
		name  string
		s     *situation
		evict int
		pods  int
	}
	var asks []ask
	for _, n := range []int{4, 16, 126, 130, 1000} {
		asks = append(asks, ask{fmt.Sprintf("gap/nodes=%d", n), gapped(n), 4, 1})
		for _, kinds := range []int{2, 3} {
			for _, pods := range []int{1, 2, 16} {
				if pods*kinds < n {
					asks = append(asks, ask{fmt.Sprintf("kinds=%d/pods=%d/nodes=%d", kinds, pods, n), kindsOf(n, kinds, pods), 8 * pods, pods})
				}
			}
		}
	}
	for _, a := range asks {
		for _, free := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/moves=%v", a.name, free), func(t *testing.T) {
				t.Parallel()
				p := profile.BuiltIn()
				p.Actions, p.Settings.MovedAreFree = []string{"reclaim"}, free
				e, err := engine.New(p, builtin.Registry())
				if err != nil {
					t.Fatal(err)
				}
				evicted, nominated := 0, 0
				r := e.Run(context.Background(), a.s.store().Snapshot(cluster.UnixNano(benchNow*1e9)), func(pl engine.Plan) {
					for i := range pl.Bundles {
						for _, in := range pl.Bundles[i].Intents {
							switch {
							case in.Verb == ledger.Evict && in.To == "":
								evicted++
							case in.Verb == ledger.Nominate:
								nominated++
							}
						}
					}
				})
				if evicted != a.evict || nominated != a.pods {
					t.Errorf("evicted %d for good and nominated %d, want %d and %d; %d steps", evicted, nominated, a.evict, a.pods, r.Stats.Steps)
				}
			})
		}
	}
}

// short is kindsOf with one GPU too few for the taker; unlike lets no two nodes be alike, so that each has to be tried.
func short(n, kinds, pods int, unlike bool) *situation {
	s := kindsOf(n, kinds, pods)
	s.rest[0] = queue("victims", "", int64(n-pods)*8000+1000)
	if unlike {
		for i := range s.rest {
			if p, ok := s.rest[i].(cluster.PodState); ok && p.NodeName != "" {
				p.Requests[0].Value += int64(i % 997)
			}
		}
	}
	return s
}

// BenchmarkReclaimWhereItFits: 8,000 victims on 1,000 nodes of two kinds, and what is asked for is just within what they owe,
// or just not.
func BenchmarkReclaimWhereItFits(b *testing.B) {
	const n = 1000
	for _, pods := range []int{1, 10} {
		b.Run(fmt.Sprintf("yes/pods=%d", pods), func(b *testing.B) {
			kindsOf(n, 2, pods).bench(b, reclaimOnly, func(e, p int) bool { return e == 8*pods && p == pods })
		})
		b.Run(fmt.Sprintf("no/pods=%d", pods), func(b *testing.B) { short(n, 2, pods, false).bench(b, reclaimOnly, none) })
		b.Run(fmt.Sprintf("no/unlike/pods=%d", pods), func(b *testing.B) { short(n, 2, pods, true).bench(b, reclaimOnly, none) })
	}
}
