package enginetest

import (
	"context"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/engine/builtin"
	"github.com/muster-scheduler/muster/internal/engine/ledger"
	"github.com/muster-scheduler/muster/internal/engine/policy"
	"github.com/muster-scheduler/muster/internal/engine/recorder"
	"github.com/muster-scheduler/muster/internal/profile"
)

// The benchmarks of this file are clusters in which the work of a cycle is a product: of questions and victims, of queues
// and units, of gangs and nodes. What is measured is processor time, garbage collection included, from snapshot to what is
// remembered: of the worst cycle, and of all cycles until every question has its answer.

// cliff is one of them: a situation, the profile's changes, and for how long cycles go on.
type cliff struct {
	name string
	make func() *situation
	with []func(*engine.Profile)
	want func(evicted, nominated, bound int) bool // of all cycles together
}

// fewestCycles are run whether or not questions are open, as a question may be asked again in each. They are a tenth of a
// second apart.
const (
	fewestCycles = 4
	cycleApart   = time.Duration(100_000_000)
)

func (c cliff) bench(b *testing.B) {
	worst, total, answered, steps := int64(0), int64(0), 0, 0
	for b.Loop() {
		b.StopTimer()
		p, err := profile.ForShard(profile.Shard{})
		if err != nil {
			b.Fatal(err)
		}
		for _, f := range c.with {
			f(&p)
		}
		e, err := engine.New(p, builtin.Registry())
		if err != nil {
			b.Fatal(err)
		}
		st := c.make().store()
		st.Snapshot(cluster.UnixNano(benchNow * 1e9))
		d := engine.NewDriver(e, st)
		runtime.GC()
		b.StartTimer()
		worst, total, answered, steps = 0, 0, 0, 0
		evicted, nominated, bound := 0, 0, 0
		for i, now := 0, cluster.UnixNano(benchNow*1e9); i < fewestCycles || answered == 0; i, now = i+1, now.Add(cycleApart) {
			began := processorTime(b)
			_, plans, r := d.Cycle(context.Background(), now)
			for _, pl := range plans {
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
				bound += pl.Binds()
			}
			took := processorTime(b) - began
			worst = max(worst, took)
			if answered == 0 {
				total += took
				steps += r.Stats.Steps
			}
			if answered == 0 && !unanswered(&r.Trace) {
				answered = i + 1
			}
		}
		if !c.want(evicted, nominated, bound) {
			b.Fatalf("evicted %d, nominated %d, bound %d", evicted, nominated, bound)
		}
	}
	b.ReportMetric(float64(worst)/1e6, "worst-ms")
	b.ReportMetric(float64(total)/1e6, "total-ms")
	b.ReportMetric(float64(answered), "cycles")
	b.ReportMetric(float64(steps), "steps")
	b.ReportMetric(0, "ns/op")
}

// unanswered says whether some gang was left for another cycle.
func unanswered(t *recorder.Trace) bool {
	for i := range t.Gangs {
		if slices.ContainsFunc(t.Gangs[i].Tried, func(a recorder.Attempt) bool { return a.Verdict.Reason == policy.ReasonNextCycle }) {
			return true
		}
	}
	return false
}

// processorTime is what this process has used, in nanoseconds.
func processorTime(b *testing.B) int64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return u.Utime.Nano() + u.Stime.Nano()
}

// minimum is a default minimum runtime against reclaim.
func minimum(runtime string) func(*engine.Profile) {
	return func(p *engine.Profile) {
		for t := range p.Tiers {
			for i := range p.Tiers[t] {
				if u := &p.Tiers[t][i]; u.Name == "minruntime" {
					u.Arguments = policy.Arguments{"defaultReclaimMinRuntime": runtime}
				}
			}
		}
	}
}

// victims fills n nodes with 8 one-GPU gangs each.
func (s *situation) victims(n int, c func(i int) crew) {
	s.plant(n)
	for i := range 8 * n {
		v := c(i)
		v.name, v.pods, v.gpu, v.node, v.age = fmt.Sprintf("victim-%06d", i), 1, 1, nodeName(i/8), int64(10+i)
		s.crew(v)
	}
}

func idly(e, p, bound int) bool { return e == 0 && p == 0 && bound == 0 }

// overShare is finding 3: nobody may be touched yet, a thousand wait for room that is theirs, and one waits that may not
// take any: with several shapes, the thousand ask several questions.
func overShare(shapes int) *situation {
	s := &situation{}
	s.victims(1000, func(int) crew {
		return crew{queue: "victims", priority: 50, preemptible: true, startSeconds: benchNow - 5}
	})
	s.rest = append(s.rest, queue("victims", "", 0), queue("taker", "", 8_000_000))
	for i := range 1000 {
		s.crew(crew{name: fmt.Sprintf("waiting-%06d", i), queue: "taker", pods: 1 + i%shapes/8, gpu: int64(1 + i%shapes%8), age: 2, priority: 50, preemptible: true})
	}
	s.crew(crew{name: "late", queue: "victims", pods: 1, gpu: 1, age: 1, priority: 50, preemptible: true})
	return s
}

// manyVictimQueues is one beneficiary of everything, and n victim queues.
func manyVictimQueues(n, nodes int) *situation {
	s := &situation{}
	for i := range n {
		s.rest = append(s.rest, queue(fmt.Sprintf("giver-%05d", i), "", 0))
	}
	s.rest = append(s.rest, queue("taker", "", int64(nodes)*8000))
	s.victims(nodes, func(i int) crew {
		return crew{queue: fmt.Sprintf("giver-%05d", i%n), priority: 50, preemptible: true}
	})
	s.crew(crew{name: "large", queue: "taker", pods: nodes / 2, gpu: 8, age: 1, priority: 50, preemptible: true})
	return s
}

// company is n gangs each of which wants to be near pods of a label of its own, in the domains of a topology. running of each
// node's GPUs are in use, by pods that have such labels too.
func company(n, running int, topology string) *situation {
	s := &situation{}
	s.plant(1000)
	s.rest = append(s.rest, queue("team", "", cluster.Unlimited))
	like := func(name string, i int) crew {
		labels := map[string]string{"app": fmt.Sprint("app-", i)}
		spec := cluster.ClassSpec{PodAffinity: &v1.PodAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []v1.WeightedPodAffinityTerm{{
			Weight: 100, PodAffinityTerm: v1.PodAffinityTerm{LabelSelector: &metav1.LabelSelector{MatchLabels: labels}, TopologyKey: topology},
		}}}}
		return crew{name: name, queue: "team", pods: 1, gpu: 1, age: 1, priority: 50, preemptible: true, spec: spec, labels: labels}
	}
	for i := range 1000 * running {
		c := like(fmt.Sprintf("running-%06d", i), i%n)
		c.node = nodeName(i % 1000)
		s.crew(c)
	}
	for i := range n {
		s.crew(like(fmt.Sprintf("waiting-%06d", i), i))
	}
	return s
}

// preempting is n waiting gangs of different priority and shape, each of which asks for a node more than there are.
func preempting(n int) *situation {
	s := &situation{}
	s.rest = append(s.rest, queue("team", "", 1_600_000))
	s.victims(200, func(int) crew { return crew{queue: "team", priority: 50, preemptible: true} })
	for i := range 200 { // one pod per node that stays
		s.crew(crew{name: fmt.Sprintf("fixed-%06d", i), queue: "team", pods: 1, gpu: 0, node: nodeName(i), age: 1, priority: 1000})
	}
	for i := range n {
		spec := cluster.ClassSpec{}
		s.crewOf(crew{name: fmt.Sprintf("waiting-%06d", i), queue: "team", pods: 201, gpu: 8, age: 1, priority: int32(60 + i), preemptible: true, spec: spec}, int64(1000+i))
	}
	return s
}

// crewOf is crew with milli-CPUs of its own.
func (s *situation) crewOf(c crew, cpu int64) {
	from := len(s.rest)
	s.crew(c)
	for i := from; i < len(s.rest); i++ {
		if p, ok := s.rest[i].(cluster.PodState); ok {
			p.Requests[0].Value = cpu
			s.rest[i] = p
		}
	}
}

// pinnedShapes is n gangs of 2 × 8 GPUs, where on every node is somebody who need not go.
func pinnedShapes(n int) *situation {
	s := &situation{}
	s.rest = append(s.rest, queue("victims", "", 0), queue("taker", "", 8_000_000))
	s.victims(1000, func(i int) crew { return crew{queue: "victims", priority: 50, preemptible: i%8 != 0} })
	for i := range n {
		s.crewOf(crew{name: fmt.Sprintf("waiting-%06d", i), queue: "taker", pods: 2, gpu: 8, age: 1, priority: 50, preemptible: true}, int64(1000+i))
	}
	return s
}

// manyQueues is a queue for each waiting gang. The nodes are full of the gangs of other queues, where there are any.
func manyQueues(n, nodes int, full bool) *situation {
	s := &situation{}
	for i := range n {
		s.rest = append(s.rest, queue(fmt.Sprintf("queue-%05d", i), "", 0))
	}
	if full {
		s.victims(nodes, func(i int) crew { return crew{queue: fmt.Sprintf("queue-%05d", i), priority: 50, preemptible: true} })
	} else {
		s.plant(nodes)
	}
	for i := range n {
		s.crew(crew{name: fmt.Sprintf("waiting-%06d", i), queue: fmt.Sprintf("queue-%05d", i), pods: 1, gpu: 1, age: 1, priority: 50, preemptible: true})
	}
	return s
}

// ownShapes is manyQueues of which the gangs are no two alike.
func ownShapes(n, nodes int) *situation {
	s := manyQueues(0, 0, false)
	for i := range n {
		s.rest = append(s.rest, queue(fmt.Sprintf("queue-%05d", i), "", 0))
	}
	s.victims(nodes, func(i int) crew { return crew{queue: fmt.Sprintf("queue-%05d", i), priority: 50, preemptible: true} })
	for i := range n {
		s.crewOf(crew{name: fmt.Sprintf("waiting-%06d", i), queue: fmt.Sprintf("queue-%05d", i), pods: 1, gpu: 1, age: 1, priority: 50, preemptible: true}, int64(1000+i))
	}
	return s
}

// again adds so many more gangs that wait in each of n queues.
func (s *situation) again(n, more int) *situation {
	for k := range more {
		for i := range n {
			s.crew(crew{name: fmt.Sprintf("waiting-%d-%06d", k, i), queue: fmt.Sprintf("queue-%05d", i), pods: 1, gpu: 1, age: 1, priority: 50, preemptible: true})
		}
	}
	return s
}

// oneQueue is n waiting gangs of the queue whose others hold all nodes.
func oneQueue(n, nodes int) *situation {
	s := &situation{}
	s.rest = append(s.rest, queue("queue-00000", "", 0))
	s.victims(nodes, func(int) crew { return crew{queue: "queue-00000", priority: 50, preemptible: true} })
	return s.again(1, n)
}

// rightful is n queues each of which has a right to a GPU and a gang that waits for it, while another queue holds all of them, and need not give any.
func rightful(n, nodes int, preemptible bool) *situation {
	s := &situation{}
	s.rest = append(s.rest, queue("victims", "", 0))
	for i := range n {
		s.rest = append(s.rest, queue(fmt.Sprintf("queue-%05d", i), "", 1000))
	}
	s.victims(nodes, func(int) crew {
		return crew{queue: "victims", priority: 50, preemptible: preemptible, startSeconds: benchNow - 5}
	})
	return s.again(n, 1)
}

// within is n queues of a quota each, of which one gang waits and, as far as there are nodes, one runs: nobody has more than is his.
func within(n, nodes int, quota int64) *situation {
	s := &situation{}
	for i := range n {
		s.rest = append(s.rest, queue(fmt.Sprintf("queue-%05d", i), "", quota))
	}
	s.victims(nodes, func(i int) crew { return crew{queue: fmt.Sprintf("queue-%05d", i), priority: 50, preemptible: true} })
	return s.again(n, 1)
}

// mixed adds a gang that waits in each of n queues, no two of which ask for the same.
func (s *situation) mixed(n int) *situation {
	for i := range n {
		s.crewOf(crew{name: fmt.Sprintf("mixed-%06d", i), queue: fmt.Sprintf("queue-%05d", i), pods: 1, gpu: 1, age: 1, priority: 50, preemptible: true}, int64(1000+i))
	}
	return s
}

// holding is n departments of so many teams, each of which holds a GPU and has a right to more, of various amounts; a gang waits in each.
func holding(departments, teams int) *situation {
	s := &situation{}
	team := func(i int) string { return fmt.Sprintf("team-%05d", i) }
	n := departments * teams
	for d := range departments {
		s.rest = append(s.rest, queue(fmt.Sprintf("department-%05d", d), "", int64(teams)*2000))
	}
	for i := range n {
		s.rest = append(s.rest, queue(team(i), fmt.Sprintf("department-%05d", i/teams), int64(2000+i)))
	}
	s.victims(n/8, func(i int) crew { return crew{queue: team(i), priority: 50, preemptible: true} })
	for i := range n {
		s.crew(crew{name: fmt.Sprintf("waiting-%06d", i), queue: team(i), pods: 1, gpu: 1, age: 1, priority: 50, preemptible: true})
	}
	return s
}

// except adds a queue that holds more than it may, on nodes of its own, of which nobody may go, or not yet.
func (s *situation) except(nodes int, preemptible bool) *situation {
	s.rest = append(s.rest, queue("holds-all", "", 0))
	at := len(s.nodes)
	for i := range nodes {
		s.node(nodeName(at+i), map[string]string{"kubernetes.io/hostname": nodeName(at + i)})
	}
	for i := range 8 * nodes {
		s.crew(crew{name: fmt.Sprintf("kept-%06d", i), queue: "holds-all", pods: 1, gpu: 1, node: nodeName(at + i/8), age: 5, priority: 50, preemptible: preemptible, startSeconds: benchNow - 5})
	}
	return s
}

// fitting is n waiting gangs no two of which are alike, and room for all.
func fitting(n int) *situation {
	s := &situation{}
	s.plant(1000)
	s.rest = append(s.rest, queue("team", "", cluster.Unlimited))
	for i := range n {
		s.crewOf(crew{name: fmt.Sprintf("waiting-%06d", i), queue: "team", pods: 1, gpu: 1, age: 1, priority: 50, preemptible: true}, int64(1000+i))
	}
	return s
}

// ranked is n waiting gangs of as many priorities and shapes, each of which asks for a whole node, in a queue whose own gangs
// hold all: on each node is one who need not go.
func ranked(n int) *situation {
	s := &situation{}
	s.rest = append(s.rest, queue("team", "", 8_000_000))
	s.victims(1000, func(i int) crew { return crew{queue: "team", priority: int32(i % 50), preemptible: i%8 != 0} })
	for i := range n {
		s.crewOf(crew{name: fmt.Sprintf("waiting-%06d", i), queue: "team", pods: 1, gpu: 8, age: 1, priority: int32(60 + i), preemptible: true}, int64(1000+i))
	}
	return s
}

// tainted is n waiting gangs of as many shapes, where each node has a taint of its own, which one of them tolerates.
func tainted(n int) *situation {
	s := pinnedShapes(0)
	own := func(i int) string { return fmt.Sprint("owner-", i) }
	for i := range s.nodes {
		node := s.nodes[i].(cluster.NodeState)
		node.Taints = []v1.Taint{{Key: "own", Value: own(i), Effect: v1.TaintEffectNoSchedule}}
		s.nodes[i] = node
	}
	for i := range n {
		spec := cluster.ClassSpec{Tolerations: []v1.Toleration{{Key: "own", Operator: v1.TolerationOpEqual, Value: own(i)}}}
		s.crewOf(crew{name: fmt.Sprintf("waiting-%06d", i), queue: "taker", pods: 1, gpu: 8, age: 1, priority: 50, preemptible: true, spec: spec}, int64(1000+i))
	}
	return s
}

// promisedRoom is tainted, where whoever has the nodes may be evicted: the room of n gangs of as many shapes is being released, for many cycles.
func promisedRoom(n int) *situation {
	s := &situation{}
	s.rest = append(s.rest, queue("taker", "", 8_000_000), queue("giver", "", 0))
	s.victims(1000, func(int) crew { return crew{queue: "giver", priority: 50, preemptible: true} })
	for i := range s.nodes {
		node := s.nodes[i].(cluster.NodeState)
		node.Taints = []v1.Taint{{Key: "own", Value: fmt.Sprint("owner-", i), Effect: v1.TaintEffectNoSchedule}}
		s.nodes[i] = node
	}
	for i := range n {
		spec := cluster.ClassSpec{Tolerations: []v1.Toleration{{Key: "own", Operator: v1.TolerationOpEqual, Value: fmt.Sprint("owner-", i)}}}
		s.crewOf(crew{name: fmt.Sprintf("waiting-%06d", i), queue: "taker", pods: 1, gpu: 8, age: 1, priority: 50, preemptible: true, spec: spec}, int64(1000+i))
	}
	return s
}

// selecting is n waiting gangs of as many shapes, each of which names the node that it would run on, and all nodes are full.
func selecting(n int) *situation {
	s := &situation{}
	s.rest = append(s.rest, queue("victims", "", 0), queue("taker", "", 8_000_000))
	s.victims(1000, func(i int) crew { return crew{queue: "victims", priority: 50, preemptible: i%8 != 0} })
	own := func(i int) string { return fmt.Sprint("owner-", i) }
	for i := range s.nodes {
		node := s.nodes[i].(cluster.NodeState)
		node.Labels = maps.Clone(node.Labels)
		node.Labels["own"] = own(i)
		s.nodes[i] = node
	}
	for i := range n {
		spec := cluster.ClassSpec{NodeSelector: map[string]string{"own": own(i)}}
		s.crewOf(crew{name: fmt.Sprintf("waiting-%06d", i), queue: "taker", pods: 1, gpu: 8, age: 1, priority: 50, preemptible: true, spec: spec}, int64(1000+i))
	}
	return s
}

// leaves is a tree of queues, wide ones below each, of so many levels; each leaf has one gang that waits. The nodes are full of
// gangs of the leaves, in turn.
func leaves(levels, wide, n, nodes int) *situation {
	s := &situation{}
	name := func(level, i int) string { return fmt.Sprintf("queue-%d-%05d", level, i) }
	count := n
	for level := levels - 1; level >= 0; level-- {
		for i := range count {
			parent := ""
			if level > 0 {
				parent = name(level-1, i/wide)
			}
			s.rest = append(s.rest, queue(name(level, i), parent, 0))
		}
		count = (count + wide - 1) / wide
	}
	s.victims(nodes, func(i int) crew { return crew{queue: name(levels-1, i%n), priority: 50, preemptible: true} })
	for i := range n {
		s.crew(crew{name: fmt.Sprintf("waiting-%06d", i), queue: name(levels-1, i), pods: 1, gpu: 1, age: 1, priority: 50, preemptible: true})
	}
	return s
}

// crowded is n gangs of 20 queues that wait, of 8 shapes, where the nodes are full of the gangs of those and others.
func crowded(nodes, n int) *situation {
	s := &situation{}
	name := func(i int) string { return fmt.Sprintf("queue-%02d", i) }
	for i := range 40 {
		s.rest = append(s.rest, queue(name(i), "", int64(nodes)*200))
	}
	s.victims(nodes, func(i int) crew { return crew{queue: name(i % 40), priority: int32(40 + i%20), preemptible: true} })
	for i := range n {
		s.crew(crew{name: fmt.Sprintf("waiting-%06d", i), queue: name(i % 20), pods: 1 + i%3, gpu: int64(1 + i%8), age: 1, priority: 40, preemptible: true})
	}
	return s
}

// BenchmarkCliffs are the cliffs that were found, and others of their kinds.
func BenchmarkCliffs(b *testing.B) {
	all := func(n int) func(e, p, bound int) bool {
		return func(e, p, bound int) bool { return e == 0 && bound == n }
	}
	replaced := func(e, p, bound int) bool { return e > 0 && e == p && bound == 0 }
	for _, c := range append([]cliff{
		{"over-share/equal", func() *situation { return overShare(1) }, []func(*engine.Profile){minimum("60s")}, idly},
		{"over-share/shapes=200", func() *situation { return overShare(200) }, []func(*engine.Profile){minimum("60s")}, idly},
		{"givers=100", func() *situation { return manyVictimQueues(100, 1000) }, nil, func(e, p, _ int) bool { return e == 4000 && p >= 500 }},
		{"givers=1000", func() *situation { return manyVictimQueues(1000, 1000) }, nil, func(e, p, _ int) bool { return e == 4000 && p >= 500 }},
		{"givers=8000", func() *situation { return manyVictimQueues(8000, 1000) }, nil, func(e, p, _ int) bool { return e == 4000 && p >= 500 }},
		{"company=1500/empty", func() *situation { return company(1500, 0, "kubernetes.io/hostname") }, nil, all(1500)},
		{"company=1500/busy", func() *situation { return company(1500, 4, "kubernetes.io/hostname") }, nil, all(1500)},
		{"company=1500/zones", func() *situation { return company(1500, 4, "zone") }, nil, all(1500)},
		{"preempt=200", func() *situation { return preempting(200) }, nil, idly},
		{"priorities=1000", func() *situation { return ranked(1000) }, nil, idly},
		{"taints=300", func() *situation { return tainted(300) }, nil, idly},
		{"taints=1000", func() *situation { return tainted(1000) }, nil, idly},
		{"promised=1000", func() *situation { return promisedRoom(1000) }, nil, func(e, p, bound int) bool { return e == 8000 && p >= 1000 && bound == 0 }},
		{"selectors=1000", func() *situation { return selecting(1000) }, nil, idly},
		{"pinned-shapes=300", func() *situation { return pinnedShapes(300) }, nil, idly},
		{"queues=10000/full", func() *situation { return manyQueues(10000, 100, true) }, nil, idly},
		{"queues=10000/empty", func() *situation { return manyQueues(10000, 100, false) }, nil, all(800)},
		{"queues=10000/gangs=2", func() *situation { return manyQueues(10000, 100, true).again(10000, 1) }, nil, idly},
		{"queues=10000/running", func() *situation { return manyQueues(10000, 1250, true) }, nil, idly},
		{"queues=10000/shapes", func() *situation { return ownShapes(10000, 100) }, nil, idly},
		{"queues=10000/levels=3", func() *situation { return leaves(3, 100, 10000, 100) }, nil, replaced},
		{"queues=1/gangs=2000", func() *situation { return oneQueue(2000, 100) }, nil, idly},
		{"queues=10000/claims/fixed", func() *situation { return rightful(10000, 100, false) }, nil, idly},
		{"queues=10000/claims/young", func() *situation { return rightful(10000, 100, true) }, []func(*engine.Profile){minimum("60s")}, idly},
		{"queues=10000/claims/within", func() *situation { return within(10000, 100, 1000) }, nil, idly},
		{"queues=10000/holding/equal", func() *situation { return within(10000, 1250, 2000) }, nil, idly},
		{"queues=10000/holding/gangs=2", func() *situation { return within(10000, 1250, 2000).again(10000, 1) }, nil, idly},
		{"queues=10000/holding/shapes=1500", func() *situation { return within(10000, 1250, 2000).mixed(1500) }, nil, idly},
		{"queues=10000/holding/departments=100", func() *situation { return holding(100, 100) }, nil, idly},
		{"queues=10000/holding/fixed", func() *situation { return within(10000, 1250, 2000).except(10, false) }, nil, idly},
		{"queues=10000/holding/young", func() *situation { return within(10000, 1250, 2000).except(10, true) }, []func(*engine.Profile){minimum("60s")}, idly},
		{"leaves=3000/levels=3", func() *situation { return leaves(3, 15, 3000, 1000) }, nil, replaced},
		{"leaves=3000/levels=4", func() *situation { return leaves(4, 8, 3000, 1000) }, nil, replaced},
		{"nodes=5000/waiting=2000", func() *situation { return crowded(5000, 2000) }, nil, idly},
		{"shapes=1500", func() *situation { return fitting(1500) }, nil, all(1500)},
	}, slices.Concat(domainCliffs(), specCliffs(), claimCliffs())...) {
		b.Run(c.name, c.bench)
	}
}
