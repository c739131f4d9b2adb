package sim

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/engine/builtin"
	"github.com/muster-scheduler/muster/internal/engine/enginetest"
	"github.com/muster-scheduler/muster/internal/profile"
)

// soakRounds is the environment variable that says how many cycles TestSoak runs: make test-soak sets it.
const soakRounds = "SOAK_ROUNDS"

// TestSoak lets a busy cluster live: gangs of many shapes come to six queues, run and end, nodes fail and come back, with all
// actions on. After every cycle the plans are audited against the snapshot they were made for, and the cluster against its
// nodes' room and its queues' limits and quotas. Nobody may displace the same pod twice without news. It prints what happened. The
// short one is for every day; make test-soak asks for 10,000 cycles of 200 nodes.
func TestSoak(t *testing.T) {
	t.Parallel()
	rounds, nodes, outages := 600, 40, time.Minute
	if text := os.Getenv(soakRounds); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil {
			t.Fatalf("%s is %q; it must be a number", soakRounds, text)
		}
		rounds, nodes, outages = n, 200, 10*time.Minute
	}
	s, err := newSoak(1, nodes, outages)
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if err := s.live(t.Context(), rounds); err != nil {
		t.Fatal(err)
	}
	took := time.Since(began)
	f := &s.cluster.Figures
	t.Attr("GPUs", fmt.Sprintf("%d placed, %.2f evicted for each", f.PlacedGPU/1000, float64(f.EvictedGPU)/float64(max(1, f.PlacedGPU))))
	t.Attr("Jain", fmt.Sprintf("%.3f against fair share; %d pairs of beneficiary and victim seen again without news", Jain(s.got, s.entitled), f.Unprovoked))
	t.Logf("%d nodes of %d GPUs\n%s\n%s for all, %s the longest cycle", nodes, soakGPUs, s.report(), took.Round(time.Millisecond), s.longest.Round(time.Microsecond))
	s.freeze(t)
	if f.Unprovoked != 0 {
		t.Errorf("%d evictions repeated a pair of beneficiary and victim without news", f.Unprovoked)
	}
	if f.PlacedPods == 0 || f.Ended == 0 || f.LostPods == 0 || f.ByCause[engine.Reclaim] == 0 || f.ByCause[engine.Preempt] == 0 {
		t.Error("the cluster does not live")
	}
}

// TestSmallSoaks lets clusters of several sizes live, each with another seed, and freezes them.
func TestSmallSoaks(t *testing.T) {
	t.Parallel()
	for seed := range uint64(6) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			s, err := newSoak(100+seed, 8+4*int(seed), time.Minute)
			if err != nil {
				t.Fatal(err)
			}
			if err := s.live(t.Context(), 300); err != nil {
				t.Fatal(err)
			}
			s.freeze(t)
			if f := &s.cluster.Figures; f.Unprovoked != 0 {
				t.Errorf("%d evictions repeated a pair of beneficiary and victim without news", f.Unprovoked)
			}
		})
	}
}

// soak is a cluster that lives, and what is asked of it over time.
type soak struct {
	cluster *Cluster
	queues  []string
	// Over time: what each queue held and was entitled to, GPU-seconds.
	got, entitled []float64
	used, whole   float64
	last          cluster.Instant
	longest       time.Duration // of a cycle
}

const soakGPUs = 8 // per node

func newSoak(seed uint64, nodes int, outages time.Duration) (*soak, error) {
	e, err := engine.New(profile.BuiltIn(), builtin.Registry())
	if err != nil {
		return nil, err
	}
	s := &soak{}
	var names []string
	for i := range nodes {
		names = append(names, fmt.Sprintf("node-%03d", i))
	}
	gpus := nodes * soakGPUs
	streams := soakStreams(gpus)
	s.cluster = NewCluster(Options{
		Engine: e, Cycle: 2 * time.Second, Grace: 20 * time.Second, Arrivals: Arrivals(seed, streams),
		Outages: Outages(seed, names, outages, 20*time.Minute), Check: s.check,
	})
	s.last = s.cluster.Now()
	for _, name := range names {
		if err := s.cluster.AddNode(Node{Name: name, Allocatable: Room(soakGPUs*1000, 128_000, 1<<40, 110)}); err != nil {
			return nil, err
		}
	}
	s.tree(gpus)
	return s, nil
}

// tree is two departments of three teams: quotas of half the cluster, weights of 1 to 3, one team with a limit.
func (s *soak) tree(gpus int) {
	add := func(name, parent string, quota, limit, weight int64) {
		room := func(gpu int64) []cluster.Quantity {
			return []cluster.Quantity{{Name: "gpu", Value: gpu}, {Name: "cpu", Value: cluster.Unlimited}, {Name: "memory", Value: cluster.Unlimited}}
		}
		s.cluster.Store.Apply(cluster.QueueState{
			Name: name, UID: name, Parent: parent, Priority: 100, Created: s.cluster.Now(), Quota: room(quota), Limit: room(limit),
			Weight: []cluster.Quantity{{Name: "gpu", Value: weight * 1000}, {Name: "cpu", Value: 1000}, {Name: "memory", Value: 1000}},
		})
	}
	milli := int64(gpus) * 1000
	for d, dept := range []string{"research", "product"} {
		add(dept, "", milli/4, cluster.Unlimited, int64(d+1))
		for i := range 3 {
			limit := cluster.Unlimited
			if d == 0 && i == 2 {
				limit = milli / 8 / 1000 * 1000
			}
			name := fmt.Sprintf("%s-%d", dept, i)
			s.queues = append(s.queues, name)
			add(name, dept, milli/12/1000*1000, limit, int64(i+1))
		}
	}
	s.got, s.entitled = make([]float64, len(s.queues)), make([]float64, len(s.queues))
}

// soakStreams asks in all for about a third more than there is: single GPUs, whole nodes, gangs over nodes, elastic gangs, some
// of higher priority, some that may not be preempted.
func soakStreams(gpus int) []Stream {
	shapes := []struct {
		name      string
		pods, min int
		gpu       int64
		priority  int32
		lasting   time.Duration
		part      float64 // of the cluster that the stream would take, over all queues
	}{
		{"single", 1, 1, 1000, 50, 20 * time.Minute, 0.25},
		{"urgent", 2, 2, 2000, 75, 10 * time.Minute, 0.15},
		{"node", 1, 1, 8000, 50, 40 * time.Minute, 0.2},
		{"gang", 8, 8, 4000, 50, 40 * time.Minute, 0.3},
		{"big", 16, 16, 8000, 60, time.Hour, 0.15},
		{"elastic", 12, 4, 1000, 50, 30 * time.Minute, 0.2},
		{"fixed", 2, 2, 1000, 125, 30 * time.Minute, 0.08},
	}
	var out []Stream
	for d, dept := range []string{"research", "product"} {
		for i := range 3 {
			for _, x := range shapes {
				// Each queue sends its part, but not all equally much.
				part := x.part * float64(gpus) / 6 * (0.4 + 0.4*float64((d*3+i)%4))
				every := time.Duration(float64(x.lasting) * float64(int64(x.pods)*x.gpu) / 1000 / part)
				queue := fmt.Sprintf("%s-%d", dept, i)
				out = append(out, Stream{
					Name: queue + "-" + x.name, Queue: queue, Every: every, Random: true, Pods: x.pods, Min: x.min,
					Requests: Room(x.gpu, 4000, 16<<30, 1), Priority: x.priority, Fixed: x.priority >= 100, Duration: x.lasting,
				})
			}
		}
	}
	return out
}

// live lets the cluster decide so often.
func (s *soak) live(ctx context.Context, rounds int) error {
	for range rounds {
		began := time.Now()
		more, err := s.cluster.Step(ctx)
		if err != nil {
			return err
		}
		if !more {
			return errors.New("nothing will ever happen again")
		}
		s.longest = max(s.longest, time.Since(began))
	}
	return nil
}

// freeze lets nothing come, end or fail any more, and sees the scheduler come to rest: no pod is evicted twice from then on, and
// there comes a time from which nothing is decided.
func (s *soak) freeze(t *testing.T) {
	t.Helper()
	s.cluster.frozen = true
	evicted := map[string]int{} // by what survives a pod: gang and index
	check := s.cluster.o.Check
	s.cluster.o.Check = func(snap *cluster.Snapshot, plans []engine.Plan, trace *engine.Trace) error {
		for i := range plans {
			for j := range plans[i].Bundles {
				for _, in := range plans[i].Bundles[j].Intents {
					if in.Verb == engine.Evict {
						evicted[in.Pod]++
					}
				}
			}
		}
		return check(snap, plans, trace)
	}
	began := s.cluster.Elapsed()
	for cycles := range 5000 {
		more, err := s.cluster.Step(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if more {
			continue
		}
		twice := 0
		for pod, n := range evicted {
			if n > 1 {
				twice++
				t.Errorf("frozen: pod %s was evicted %d times", pod, n)
			}
		}
		t.Logf("frozen: at rest after %d cycles, %s; %d pods were evicted, %d of them twice", cycles, s.cluster.Elapsed()-began, len(evicted), twice)
		return
	}
	t.Error("frozen: it does not come to rest")
}

// check audits a cycle, and notes who held what since the one before, and who was entitled to what.
func (s *soak) check(snap *cluster.Snapshot, plans []engine.Plan, trace *engine.Trace) error {
	if err := enginetest.Audit(snap, plans, true); err != nil {
		return err
	}
	for _, id := range snap.NodeOrder {
		n := snap.Node(id)
		for d, x := range n.Idle() {
			if x < 0 {
				return fmt.Errorf("node %s: %d of %s are used, of %d", n.Name, n.Used.At(d), snap.Dims.Name(d), n.Allocatable.At(d))
			}
		}
	}
	seconds := float64(snap.Now.Sub(s.last)) / 1e9
	s.last = snap.Now
	for _, id := range snap.NodeOrder {
		if n := snap.Node(id); n.Problem == "" {
			s.whole += float64(n.Allocatable.At(cluster.GPU)) / 1000 * seconds
		}
	}
	held := map[string]int64{} // of the whole subtree
	for _, id := range snap.QueueOrder {
		for q := snap.Queue(id); q != nil; q = snap.QueueByName(q.Parent) {
			held[q.Name] += snap.Queue(id).Allocated.At(cluster.GPU)
		}
	}
	for i := range trace.Queues {
		q := &trace.Queues[i]
		if limit := q.Limit.At(cluster.GPU); limit != cluster.Unlimited && held[q.Name] > limit {
			return fmt.Errorf("queue %s: holds %d, above its limit of %d", q.Name, held[q.Name], limit)
		}
		if fixed, quota := snap.QueueByName(q.Name).AllocatedNonPreemptible.At(cluster.GPU), q.Quota.At(cluster.GPU); fixed > quota {
			return fmt.Errorf("queue %s: non-preemptible work holds %d, above its quota of %d", q.Name, fixed, quota)
		}
		k := slices.Index(s.queues, q.Name)
		if k < 0 {
			continue
		}
		if w := s.cluster.Held(q.Name); w != held[q.Name] {
			return fmt.Errorf("queue %s: the store says that it holds %d, the cluster %d", q.Name, held[q.Name], w)
		}
		s.got[k] += float64(held[q.Name]) / 1000 * seconds
		s.used += float64(held[q.Name]) / 1000 * seconds
		s.entitled[k] += float64(q.FairShare.At(cluster.GPU)) / 1000 * seconds
	}
	return nil
}

func (s *soak) report() string {
	f := &s.cluster.Figures
	var b strings.Builder
	fmt.Fprintf(&b, "%d rounds, %s of virtual time\n", f.Decisions, s.cluster.Elapsed().Round(time.Second))
	fmt.Fprintf(&b, "gangs: %d came, %d ended, %d are there\n", f.Arrived, f.Ended, s.cluster.Gangs())
	fmt.Fprintf(&b, "nodes: %d outages, %d running pods lost\n", f.Outages, f.LostPods)
	fmt.Fprintf(&b, "pods: %d placed, %d evicted (%d of them moved, %d from gangs that worked on): %v\n", f.PlacedPods, f.EvictedPods, f.MovedPods, f.ShrunkPods, f.ByCause)
	fmt.Fprintf(&b, "GPUs: %d placed, %d evicted, %.4f evicted per placed; %.1f %% of the ready ones in use\n",
		f.PlacedGPU/1000, f.EvictedGPU/1000, float64(f.EvictedGPU)/float64(max(1, f.PlacedGPU)), 100*s.used/max(1, s.whole))
	for i, name := range s.queues {
		fmt.Fprintf(&b, "queue %s: %.1f GPUs of a fair share of %.1f\n", name, s.got[i]/s.cluster.Elapsed().Seconds(), s.entitled[i]/s.cluster.Elapsed().Seconds())
	}
	fmt.Fprintf(&b, "Jain's index of allocation against fair share: %.4f\n", Jain(s.got, s.entitled))
	fmt.Fprintf(&b, "pairs of beneficiary and victim seen again: %d after news, %d without", f.Repeats-f.Unprovoked, f.Unprovoked)
	return b.String()
}

// TestCostlyAnswerRests: a no for which a thousand gangs had to be looked at is not asked for again while nothing happens, and is
// when something does.
func TestCostlyAnswerRests(t *testing.T) {
	t.Parallel()
	const nodes = 150
	e, err := engine.New(profile.BuiltIn(), builtin.Registry())
	if err != nil {
		t.Fatal(err)
	}
	w := NewCluster(Options{Engine: e, Cycle: 10 * time.Millisecond}) // shorter than any rest
	for i := range nodes {
		if err := w.AddNode(Node{Name: fmt.Sprintf("node-%03d", i), Allocatable: Room(soakGPUs*1000, 128_000, 1<<40, 110)}); err != nil {
			t.Fatal(err)
		}
	}
	none := func(v int64) []cluster.Quantity {
		return []cluster.Quantity{{Name: "gpu", Value: v}, {Name: "cpu", Value: v}, {Name: "memory", Value: v}}
	}
	w.Store.Apply(cluster.QueueState{
		Name: "team", UID: "team", Priority: 100, Created: w.Now(), Quota: none(cluster.Unlimited), Limit: none(cluster.Unlimited), Weight: none(1000),
	})
	submit := func(g Gang) {
		t.Helper()
		g.Queue = "team"
		if err := w.Submit(g); err != nil {
			t.Fatal(err)
		}
	}
	rest := func(what string) (steps int) {
		t.Helper()
		for cycles := range 20 {
			at := w.now.Add(w.o.Cycle)
			if !w.Due() {
				next := cluster.Earliest(w.Next(), w.driver.Wake())
				if next == cluster.Forever {
					t.Logf("%s: at rest after %d cycles and %d what-ifs", what, cycles, steps)
					return steps
				}
				at = cluster.Latest(at, next)
			}
			if err := w.Advance(at); err != nil {
				t.Fatal(err)
			}
			r, err := w.Decide(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			steps += r.Stats.Steps
		}
		t.Fatalf("%s: it does not come to rest", what)
		return 0
	}
	one := Room(1000, 1000, 1<<30, 1)
	submit(Gang{Name: "fixed", Pods: 1, Requests: one, Priority: 125, Fixed: true})
	for i := range nodes*soakGPUs - 1 {
		submit(Gang{Name: fmt.Sprintf("single-%04d", i), Pods: 1, Requests: one, Priority: 50})
	}
	rest("full")
	submit(Gang{Name: "everything", Pods: nodes, Requests: Room(soakGPUs*1000, 1000, 1<<30, 1), Priority: 75})
	if steps := rest("one GPU too few"); steps < 1000 {
		t.Errorf("%d what-ifs are no costly answer", steps)
	}
	submit(Gang{Name: "other", Pods: 1, Requests: one, Priority: 50})
	if steps := rest("something else came"); steps < 1000 {
		t.Errorf("%d what-ifs: the question was not asked again", steps)
	}
}
