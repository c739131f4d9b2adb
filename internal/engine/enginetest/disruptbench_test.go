package enginetest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/engine/builtin"
	"github.com/muster-scheduler/muster/internal/engine/ledger"
	"github.com/muster-scheduler/muster/internal/engine/policy"
	"github.com/muster-scheduler/muster/internal/profile"
)

// The benchmarks of this file have the definitions of KAI Scheduler's own: N nodes of 8 GPUs, from plain objects to the
// plan. Every one asserts what was decided.

// situation is plain objects: events in the order in which a feed would bring them.
type situation struct {
	nodes, rest []cluster.Event
	shuffled    bool
}

// store builds the store, as KAI's benchmarks build their session in the timed loop.
func (s *situation) store() *cluster.Store {
	st := cluster.NewStore(cluster.Options{})
	st.Apply(s.nodes...)
	st.Apply(s.rest...)
	return st
}

func (s *situation) node(name string, labels map[string]string) {
	s.nodes = append(s.nodes, cluster.NodeState{
		Name: name, UID: name, Labels: labels,
		Allocatable: []cluster.Quantity{{Name: "cpu", Value: 128000}, {Name: "memory", Value: 1 << 40}, {Name: "gpu", Value: 8000}, {Name: "pods", Value: 110}},
	})
}

func (s *situation) plant(n int) {
	for i := range n {
		s.node(nodeName(i), map[string]string{"kubernetes.io/hostname": nodeName(i), "zone": fmt.Sprint("z", i%4)})
	}
}

func nodeName(i int) string { return fmt.Sprintf("node-%05d", i) }

// crew is a gang to be.
type crew struct {
	name, queue  string
	pods         int
	gpu          int64
	node         string // running there; "" for waiting
	age          int64
	priority     int32
	preemptible  bool
	spec         cluster.ClassSpec
	labels       map[string]string
	startSeconds int64
}

// now is the moment of all these situations, in seconds.
const benchNow = 1_000_000

func (s *situation) crew(c crew) {
	key := cluster.Key{Face: "kai", Namespace: "ns", Name: c.name}
	s.rest = append(s.rest, cluster.GangState{
		Key: key, UID: c.name, Queue: c.queue, Priority: c.priority, Preemptible: c.preemptible, Created: cluster.UnixNano((benchNow - c.age) * 1e9),
		Sets: cluster.FlatTree(int32(c.pods)), LastStart: cluster.UnixNano(c.startSeconds * 1e9),
	})
	for i := range c.pods {
		name := fmt.Sprintf("%s-%d", c.name, i)
		p := cluster.PodState{
			UID: name, Namespace: "ns", Name: name, Gang: key, Ours: true, Recreated: true, Labels: c.labels, Spec: &c.spec,
			Requests: []cluster.Quantity{{Name: "cpu", Value: 1000}, {Name: "memory", Value: 1 << 30}, {Name: "gpu", Value: c.gpu * 1000}, {Name: "pods", Value: 1}},
			Created:  cluster.UnixNano((benchNow - c.age) * 1e9),
		}
		if c.node != "" {
			p.Phase, p.NodeName = cluster.Running, c.node
		}
		s.rest = append(s.rest, p)
	}
}

// bench runs the situation from plain objects, and from a warm store; check looks at what was decided.
func (s *situation) bench(b *testing.B, actions []string, check func(evicted, nominated int) bool, p ...func(*engine.Profile)) {
	run := func(b *testing.B, e *engine.Engine, st *cluster.Store) {
		evicted, nominated := 0, 0
		e.Run(context.Background(), st.Snapshot(cluster.UnixNano(benchNow*1e9)), func(pl engine.Plan) {
			for i := range pl.Bundles {
				for _, in := range pl.Bundles[i].Intents {
					switch in.Verb {
					case ledger.Evict:
						evicted++
					case ledger.Nominate:
						nominated++
					}
				}
			}
		})
		if !check(evicted, nominated) {
			b.Fatalf("evicted %d, nominated %d", evicted, nominated)
		}
	}
	e := func() *engine.Engine {
		prof := profile.BuiltIn()
		prof.Settings.ConsolidationVictims = -1
		if actions != nil {
			prof.Actions = actions
		}
		for _, f := range p {
			f(&prof)
		}
		e, err := engine.New(prof, builtin.Registry())
		if err != nil {
			b.Fatal(err)
		}
		return e
	}
	if s.shuffled {
		rand.New(rand.NewPCG(1, 2)).Shuffle(len(s.rest), func(i, j int) { s.rest[i], s.rest[j] = s.rest[j], s.rest[i] })
	}
	b.Run("objects", func(b *testing.B) {
		for b.Loop() {
			run(b, e(), s.store())
		}
	})
	b.Run("store", func(b *testing.B) {
		st := s.store()
		st.Snapshot(cluster.UnixNano(benchNow * 1e9))
		warm := e()
		for b.Loop() {
			run(b, warm, st)
		}
	})
}

var reclaimOnly = []string{"reclaim"}

// largeJob is KAI's ReclaimLargeJobs: 8·N one-GPU victims of one queue, one waiting job of N/2 × 8 GPUs.
func largeJob(n int) *situation {
	s := &situation{}
	s.plant(n)
	s.rest = append(s.rest, queue("victims", "", 0), queue("taker", "", int64(n)*8000))
	for i := range 8 * n {
		s.crew(crew{name: fmt.Sprintf("victim-%06d", i), queue: "victims", pods: 1, gpu: 1, node: nodeName(i / 8), age: int64(10 + i), priority: 50, preemptible: true})
	}
	s.crew(crew{name: "large", queue: "taker", pods: n / 2, gpu: 8, age: 1, priority: 50, preemptible: true})
	return s
}

func BenchmarkReclaimLargeJobs(b *testing.B) {
	for _, n := range []int{100, 500, 1000} {
		b.Run(fmt.Sprintf("nodes=%d", n), func(b *testing.B) {
			largeJob(n).bench(b, reclaimOnly, func(e, p int) bool { return e == 4*n && p == n/2 })
		})
	}
	b.Run("nodes=1000/shuffled", func(b *testing.B) {
		s := largeJob(1000)
		s.shuffled = true
		s.bench(b, reclaimOnly, func(e, p int) bool { return e == 4000 && p == 500 })
	})
}

// BenchmarkReclaimManySingleGPUJobs: 8·N running and 8·N waiting one-GPU jobs, half of the cluster for each queue, all
// actions.
func BenchmarkReclaimManySingleGPUJobs(b *testing.B) {
	for _, n := range []int{100, 500} {
		for _, runtime := range []string{"", "30s"} {
			b.Run(fmt.Sprintf("nodes=%d/minruntime=%s", n, runtime), func(b *testing.B) {
				s := &situation{}
				s.plant(n)
				s.rest = append(s.rest, queue("victims", "", int64(n)*4000), queue("taker", "", int64(n)*4000))
				for i := range 8 * n {
					s.crew(crew{name: fmt.Sprintf("victim-%06d", i), queue: "victims", pods: 1, gpu: 1, node: nodeName(i / 8), age: int64(10 + i), priority: 50, preemptible: true, startSeconds: benchNow - 60})
					s.crew(crew{name: fmt.Sprintf("waiting-%06d", i), queue: "taker", pods: 1, gpu: 1, age: 1, priority: 50, preemptible: true})
				}
				s.bench(b, nil, func(e, p int) bool { return e == 4*n && p == 4*n }, func(p *engine.Profile) {
					if runtime == "" {
						return
					}
					for i := range p.Tiers[0] {
						if p.Tiers[0][i].Name == "minruntime" {
							p.Tiers[0][i].Arguments = policy.Arguments{"defaultReclaimMinRuntime": runtime}
						}
					}
				})
			})
		}
	}
}

// impossible is KAI's ReclaimUnschedulableDistributedJob: a gang of 10 × 8 GPUs where reclaim may free 79 of 80.
func impossible(n int, spec cluster.ClassSpec, labels map[string]string) *situation {
	s := &situation{}
	s.plant(n)
	s.rest = append(s.rest, queue("victims", "", int64(8*n-80+1)*1000), queue("taker", "", 80_000))
	for i := range 8 * n {
		s.crew(crew{name: fmt.Sprintf("victim-%06d", i), queue: "victims", pods: 1, gpu: 1, node: nodeName(i / 8), age: int64(10 + i), priority: 50, preemptible: true})
	}
	s.crew(crew{name: "gang", queue: "taker", pods: 10, gpu: 8, age: 1, priority: 50, preemptible: true, spec: spec, labels: labels})
	return s
}

// pinned is the harder kind: the sums pass, and one pod that must not be touched on all nodes but nine makes it impossible.
func pinned(n int) *situation {
	s := &situation{}
	s.plant(n)
	s.rest = append(s.rest, queue("victims", "", 0), queue("taker", "", int64(n)*8000))
	for i := range 8 * n {
		s.crew(crew{
			name: fmt.Sprintf("victim-%06d", i), queue: "victims", pods: 1, gpu: 1, node: nodeName(i / 8), age: int64(10 + i), priority: 50,
			preemptible: i%8 != 0 || i/8 < 9,
		})
	}
	s.crew(crew{name: "gang", queue: "taker", pods: 10, gpu: 8, age: 1, priority: 50, preemptible: true})
	return s
}

func apart() (cluster.ClassSpec, map[string]string) {
	labels := map[string]string{"app": "gang"}
	return cluster.ClassSpec{PodAntiAffinity: &v1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []v1.PodAffinityTerm{{
		LabelSelector: &metav1.LabelSelector{MatchLabels: labels}, TopologyKey: "kubernetes.io/hostname",
	}}}}, labels
}

func none(e, p int) bool { return e == 0 && p == 0 }

func BenchmarkReclaimCannot(b *testing.B) {
	for _, n := range []int{100, 200, 500} {
		b.Run(fmt.Sprintf("one-gpu-short/nodes=%d", n), func(b *testing.B) { impossible(n, cluster.ClassSpec{}, nil).bench(b, reclaimOnly, none) })
	}
	b.Run("one-gpu-short/nodes=500/shuffled", func(b *testing.B) {
		s := impossible(500, cluster.ClassSpec{}, nil)
		s.shuffled = true
		s.bench(b, reclaimOnly, none)
	})
	b.Run("pinned/nodes=500", func(b *testing.B) { pinned(500).bench(b, reclaimOnly, none) })
	b.Run("pinned/nodes=500/shuffled", func(b *testing.B) {
		s := pinned(500)
		s.shuffled = true
		s.bench(b, reclaimOnly, none)
	})
	b.Run("anti-affinity/nodes=100", func(b *testing.B) {
		spec, labels := apart()
		impossible(100, spec, labels).bench(b, reclaimOnly, none)
	})
	b.Run("node-selector/nodes=500", func(b *testing.B) {
		impossible(500, cluster.ClassSpec{NodeSelector: map[string]string{"zone": "nowhere"}}, nil).bench(b, reclaimOnly, none)
	})
	b.Run("minruntime/nodes=500", func(b *testing.B) {
		s := &situation{}
		s.plant(500)
		s.rest = append(s.rest, queue("victims", "", 0), queue("taker", "", 80_000))
		for i := range 4000 {
			s.crew(crew{name: fmt.Sprintf("victim-%06d", i), queue: "victims", pods: 1, gpu: 1, node: nodeName(i / 8), age: int64(10 + i), priority: 50, preemptible: true, startSeconds: benchNow - 5})
		}
		s.crew(crew{name: "gang", queue: "taker", pods: 10, gpu: 8, age: 1, priority: 50, preemptible: true})
		s.bench(b, reclaimOnly, none, func(p *engine.Profile) {
			for i := range p.Tiers[0] {
				if p.Tiers[0][i].Name == "minruntime" {
					p.Tiers[0][i].Arguments = policy.Arguments{"defaultReclaimMinRuntime": "30s"}
				}
			}
		})
	})
}

// full is KAI's benchmark of actions: N nodes, one-GPU jobs in 4 queues of 2 departments; running of the jobs hold room,
// in node order.
func full(nodes, jobs, running int, priority func(i int) int32) *situation {
	s := &situation{}
	s.plant(nodes)
	for d := range 2 {
		dept := fmt.Sprintf("dept-%d", d)
		s.rest = append(s.rest, queue(dept, "", cluster.Unlimited))
		for t := range 2 {
			s.rest = append(s.rest, queue(fmt.Sprintf("%s-team-%d", dept, t), dept, int64(nodes)*2000))
		}
	}
	for i := range jobs {
		c := crew{name: fmt.Sprintf("job-%06d", i), queue: fmt.Sprintf("dept-%d-team-%d", i%2, i/2%2), pods: 1, gpu: 1, age: int64(jobs - i), priority: priority(i), preemptible: true}
		if i < running {
			c.node = nodeName(i % nodes)
		}
		s.crew(c)
	}
	return s
}

// BenchmarkActions has KAI's definitions of single actions and the full cycle, and, as KAI's leave the actions nothing to
// do, variants in which they have: a full cluster.
func BenchmarkActions(b *testing.B) {
	same := func(int) int32 { return 50 }
	for _, a := range []string{"consolidation", "reclaim", "preempt"} {
		b.Run(a+"/nodes=50/jobs=200", func(b *testing.B) { full(50, 200, 200, same).bench(b, []string{a}, none) })
	}
	b.Run("cycle/nodes=100/jobs=500", func(b *testing.B) {
		full(100, 500, 250, same).bench(b, nil, func(e, _ int) bool { return e == 0 })
	})
	b.Run("preempt-busy/nodes=50/jobs=450", func(b *testing.B) { // 400 running, the 50 waiting are of higher priority
		full(50, 450, 400, func(i int) int32 {
			if i < 400 {
				return 50
			}
			return 60
		}).bench(b, []string{"preempt"}, func(e, p int) bool { return e == 50 && p == 50 })
	})
	b.Run("reclaim-busy/nodes=50", func(b *testing.B) {
		s := &situation{}
		s.plant(50)
		s.rest = append(s.rest, queue("victims", "", 100_000), queue("taker", "", 300_000))
		for i := range 400 {
			s.crew(crew{name: fmt.Sprintf("victim-%06d", i), queue: "victims", pods: 1, gpu: 1, node: nodeName(i / 8), age: int64(10 + i), priority: 50, preemptible: true})
		}
		for i := range 200 {
			s.crew(crew{name: fmt.Sprintf("waiting-%06d", i), queue: "taker", pods: 1, gpu: 1, age: 1, priority: 50, preemptible: true})
		}
		s.bench(b, reclaimOnly, func(e, p int) bool { return e == 200 && p == 200 })
	})
	b.Run("consolidation-busy/nodes=50", func(b *testing.B) { // every node has 4 of 8 GPUs in use; 10 jobs want a node each
		s := &situation{}
		s.plant(50)
		s.rest = append(s.rest, queue("team", "", cluster.Unlimited))
		for i := range 200 {
			s.crew(crew{name: fmt.Sprintf("small-%06d", i), queue: "team", pods: 1, gpu: 1, node: nodeName(i / 4), age: int64(10 + i), priority: 50, preemptible: true})
		}
		for i := range 10 {
			s.crew(crew{name: fmt.Sprintf("large-%06d", i), queue: "team", pods: 1, gpu: 8, age: 1, priority: 50, preemptible: true})
		}
		s.bench(b, []string{"consolidation"}, func(e, p int) bool { return e == 40 && p == 10 })
	})
}

// BenchmarkContendedCycle is the cycle after one of 40,000 running pods ended on 5,000 nodes while 100 gangs wait that can
// neither be placed nor take anything from others: they hold more than their share already.
func BenchmarkContendedCycle(b *testing.B) {
	s := plant{nodes: 5000, gangs: 40000, members: 1, running: true}.store()
	for i := range 100 {
		key := cluster.Key{Face: "kai", Namespace: "ns", Name: fmt.Sprintf("late-%06d", i)}
		s.Apply(cluster.GangState{Key: key, UID: key.Name, Queue: fmt.Sprintf("dept-%d-team-%d", i%2, i/2%2), Priority: 50, Preemptible: true, Created: cluster.UnixNano(1 << 40), Sets: cluster.FlatTree(1)},
			cluster.PodState{UID: key.Name, Namespace: "ns", Name: key.Name, Gang: key, Ours: true, Recreated: true, Requests: []cluster.Quantity{{Name: "cpu", Value: 1000}, {Name: "gpu", Value: 8000}, {Name: "pods", Value: 1}}})
	}
	e := builtIn(b)
	e.Run(context.Background(), s.Snapshot(cluster.UnixNano(1)), func(p engine.Plan) { b.Fatalf("%+v", p) })
	d := engine.NewDriver(e, s)
	i := 0
	b.ReportAllocs()
	for b.Loop() {
		s.Apply(cluster.PodGone{UID: fmt.Sprintf("gang-%06d-0", i*8)})
		i++
		if _, plans, _ := d.Cycle(context.Background(), cluster.UnixNano(int64(i)*50_000_000)); len(plans) > 0 {
			b.Fatal("nothing was to be decided")
		}
	}
}

// BenchmarkPromisedCycle is a cycle in the middle of a large reclaim: 500 nodes, 2,000 pods being evicted for 125 gangs of
// 16 to which their room is promised, and the evicted back and waiting; one more victim goes.
func BenchmarkPromisedCycle(b *testing.B) {
	const n = 500
	s := &situation{}
	s.plant(n)
	s.rest = append(s.rest, queue("victims", "", n*4000), queue("taker", "", n*4000))
	for i := range 8 * n {
		s.crew(crew{name: fmt.Sprintf("victim-%06d", i), queue: "victims", pods: 1, gpu: 1, node: nodeName(i / 8), age: int64(10 + i), priority: 50, preemptible: true})
	}
	for i := range 125 {
		s.crew(crew{name: fmt.Sprintf("gang-%03d", i), queue: "taker", pods: 16, gpu: 1, age: 1, priority: 50, preemptible: true})
	}
	st := s.store()
	d := engine.NewDriver(builtIn(b), st)
	now := cluster.UnixNano(benchNow * 1e9)
	var gone []engine.Intent
	_, plans, _ := d.Cycle(context.Background(), now)
	for _, p := range plans {
		for i := range p.Bundles {
			for _, in := range p.Bundles[i].Intents {
				if in.Verb == ledger.Evict {
					gone = append(gone, in)
				}
			}
		}
	}
	if len(gone) != 4*n {
		b.Fatalf("%d are evicted", len(gone))
	}
	for _, in := range gone { // those that were evicted are made anew at once, while they leave
		st.Apply(cluster.PodState{
			UID: in.UID + "'", Namespace: in.Namespace, Name: in.Pod + "'", Gang: in.Gang, Ours: true, Recreated: true, Created: now,
			Requests: []cluster.Quantity{{Name: "cpu", Value: 1000}, {Name: "memory", Value: 1 << 30}, {Name: "gpu", Value: 1000}, {Name: "pods", Value: 1}},
		})
	}
	i := 0
	b.ReportAllocs()
	for b.Loop() {
		now = now.Add(50_000_000)
		st.Apply(cluster.PodGone{UID: gone[i%len(gone)].UID})
		i++
		_, plans, _ := d.Cycle(context.Background(), now)
		for _, p := range plans {
			if p.Evictions() > 0 {
				b.Fatalf("%s evicts %d more", p.Action, p.Evictions())
			}
		}
	}
}
