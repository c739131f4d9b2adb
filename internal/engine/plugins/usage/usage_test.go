package usage_test

import (
	"context"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/engine/builtin"
	"github.com/muster-scheduler/muster/internal/engine/ledger"
	"github.com/muster-scheduler/muster/internal/engine/plugins/usage"
	"github.com/muster-scheduler/muster/internal/engine/policy"
	"github.com/muster-scheduler/muster/internal/profile"
)

// plugin is what the engine asks an instance.
type plugin interface {
	policy.NodeScore
	policy.NodeRefusals
	policy.Observer
	policy.Timetable
}

// opened opens the plugin on a cluster.
func opened(t *rapid.T, s *cluster.Store, now cluster.Instant, args policy.Arguments, use func(plugin, *policy.View)) {
	known, prof := builtin.Registry(), profile.BuiltIn()
	known.Plugins["probe"] = []policy.Factory{policy.Opens(func(v *policy.View) *struct{} {
		open, unknown, err := usage.Factory.New(args)
		if err != nil || len(unknown) > 0 {
			t.Fatal(err, unknown)
		}
		use(open(v).(plugin), v)
		return nil
	})}
	prof.Tiers = append(prof.Tiers, []engine.PluginUse{{Name: "probe"}})
	e, err := engine.New(prof, known)
	if err != nil {
		t.Fatal(err)
	}
	e.Run(context.Background(), s.Snapshot(now), func(engine.Plan) {})
}

// guest is a pod of the oracle: what it asks for, in CPUs and GiB, and how long before the moment it came.
type guest struct {
	cpu, memory float64
	ago         time.Duration
}

// estimator is what the oracle reads of the arguments.
type estimator struct{ ratio, threshold, factor, cpu, memory float64 }

// expected are the CPUs and GiB that pods are expected to use which a measurement does not tell of that is a mean over the ten minutes before it.
func (e *estimator) expected(pods []guest, measuredAgo time.Duration) (cpu, memory float64) {
	for _, p := range pods {
		there := min(max((p.ago-measuredAgo).Minutes(), 0), 10)
		c, m := e.ratio*p.cpu, e.ratio*p.memory
		if p.cpu == 0 && p.memory == 0 {
			c, m = e.cpu, e.memory
		}
		cpu, memory = cpu+c*(1-there/10), memory+m*(1-there/10)
	}
	return cpu, memory
}

// used is which part of a machine counts as used.
func (e *estimator) used(real, expected, of float64) float64 {
	part := expected / of
	if real+part > e.threshold {
		part *= e.factor
	}
	return min(1, real+part)
}

// TestOracle compares refusals and points with a second reading of the page, in floating point, on random nodes: with measurements and pods of many ages, before and after one more
// comes. All amounts are such that no two of their sums and thresholds are closer than a cut division can tell apart.
func TestOracle(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		now := cluster.UnixNano(1e15)
		whole := func(name string, most int) int { return rapid.IntRange(0, most).Draw(t, name) }
		weight, wCPU, wMemory := whole("weight", 9), whole("cpu.weight", 3), whole("memory.weight", 3)
		limitCPU, limitMemory := whole("thresholds.cpu", 100), whole("thresholds.mem", 100)
		e := estimator{float64(whole("ratio", 20)) / 10, float64(whole("threshold", 10))/10 + 0.00001, float64(whole("factor", 30)) / 10, float64(whole("be_cpu", 20)) / 10, float64(whole("be_mem", 16)) / 8}
		args := policy.Arguments{
			"usage.weight": fmt.Sprint(weight), "cpu.weight": fmt.Sprint(wCPU), "memory.weight": fmt.Sprint(wMemory), "thresholds": fmt.Sprintf(`{"cpu":%d,"mem":"%d"}`, limitCPU, limitMemory),
			"estimator.request_ratio": fmt.Sprint(e.ratio), "estimator.risk_threshold": fmt.Sprint(e.threshold), "estimator.risk_factor": fmt.Sprint(e.factor),
			"estimator.be_cpu": fmt.Sprintf("%dm", int(math.Round(e.cpu*1000))), "estimator.be_mem": fmt.Sprintf("%dMi", int(math.Round(e.memory*1024))),
		}
		s := cluster.NewStore(cluster.Options{})
		s.Apply(cluster.QueueState{Name: "q"})
		type node struct {
			cpu, memory           int
			realCPU, realMemory   int
			ago                   time.Duration
			measured, fresh, busy bool
			pods                  []guest
		}
		nodes := map[string]*node{}
		quantities := func(cpu, memory int) []cluster.Quantity {
			return []cluster.Quantity{{Name: "cpu", Value: int64(cpu) * 1000}, {Name: "memory", Value: int64(memory) << 30}}
		}
		busy, next := 0, cluster.Forever
		for i := range rapid.IntRange(1, 4).Draw(t, "nodes") {
			name := fmt.Sprintf("n%d", i)
			n := &node{cpu: 1 + whole("cpu", 15), memory: 1 + whole("memory", 63), realCPU: whole("real cpu", 100), realMemory: whole("real memory", 100), measured: whole("measured", 4) > 0}
			n.ago = time.Duration(whole("ago", 400)) * time.Second
			n.fresh = n.measured && n.ago < 5*time.Minute
			n.busy = n.fresh && (n.realCPU > limitCPU || n.realMemory > limitMemory)
			s.Apply(cluster.NodeState{Name: name, Allocatable: append(quantities(n.cpu, n.memory), cluster.Quantity{Name: "pods", Value: 100})})
			if n.measured {
				s.Apply(cluster.ObjectState{Kind: cluster.NodeUses, Key: name, Object: &cluster.NodeUse{CPU: int64(n.realCPU), Memory: int64(n.realMemory), At: now.Add(-n.ago)}})
			}
			for k := range whole("pods", 4) {
				p := guest{float64(whole("asks", 3)), float64(whole("asks memory", 3)), n.ago + time.Duration(whole("came", 20)-3)*time.Minute}
				n.pods = append(n.pods, p)
				s.Apply(cluster.PodState{
					UID: fmt.Sprintf("%s-%d", name, k), Namespace: "x", Name: fmt.Sprintf("%s-%d", name, k), Phase: cluster.Running, NodeName: name,
					Requests: quantities(int(p.cpu), int(p.memory)), Spec: &cluster.ClassSpec{}, Created: now.Add(-p.ago),
				})
			}
			if nodes[name] = n; n.busy {
				busy++
			}
			if n.fresh {
				next = cluster.Earliest(next, now.Add(5*time.Minute-n.ago))
			}
		}
		newcomer := guest{cpu: float64(whole("asks", 3)), memory: float64(whole("asks memory", 3))}
		s.Apply(cluster.GangState{Key: cluster.Key{Face: "volcano", Namespace: "x", Name: "g"}, Queue: "q", Sets: []cluster.Set{{Name: "root", Parent: cluster.None, Leaf: true, Min: 1}}})
		s.Apply(cluster.PodState{UID: "new", Namespace: "x", Name: "new", Ours: true, Gang: cluster.Key{Face: "volcano", Namespace: "x", Name: "g"}, SetName: "root", Requests: quantities(int(newcomer.cpu), int(newcomer.memory)), Spec: &cluster.ClassSpec{}, Created: now})
		opened(t, s, now, args, func(p plugin, v *policy.View) {
			snap := v.Snapshot()
			if p.NextChange() != next { // which is asked before anything else
				t.Fatalf("the next change is %v, want %v", p.NextChange(), next)
			}
			var pod *cluster.Pod
			snap.EachPod(func(p *cluster.Pod) {
				if p.UID == "new" {
					pod = p
				}
			})
			if p.Wants(pod.Class) != (busy > 0) || p.RefusesAll(pod) != (busy == len(nodes)) {
				t.Fatalf("wants %v, refuses all %v; %d of %d are busy", p.Wants(pod.Class), p.RefusesAll(pod), busy, len(nodes))
			}
			refused, _ := p.Refuses(pod)
			check := func(when string) {
				for _, id := range snap.NodeOrder {
					at := snap.Node(id)
					n := nodes[at.Name]
					if yes := p.CheckNode(pod, at).Yes(); yes == n.busy || (refused[id>>6]&(1<<(id&63)) != 0) != n.busy {
						t.Fatalf("%s, %s: busy %v, and let in %v", when, at.Name, n.busy, yes)
					}
					want := 0.0
					if n.fresh && wCPU+wMemory > 0 {
						cpu, memory := e.expected(n.pods, n.ago)
						u, m := e.used(float64(n.realCPU)/100, cpu, float64(n.cpu)), e.used(float64(n.realMemory)/100, memory, float64(n.memory))
						want = (float64(wCPU)*(1-u) + float64(wMemory)*(1-m)) / float64(wCPU+wMemory) * 100 * float64(weight)
					}
					// Each of some divisions cuts up to a millionth of a node off, or three times that.
					if got := float64(p.ScoreNode(pod.Class, at)) / float64(policy.ScorePoint); math.Abs(got-want) > 0.001*float64(weight) {
						t.Fatalf("%s, %s: %f points, want %f: %+v", when, at.Name, got, want, n)
					}
				}
			}
			check("at first")
			to := snap.Node(snap.NodeOrder[0])
			n := nodes[to.Name]
			for _, verb := range []ledger.Verb{ledger.Bind, ledger.Nominate, ledger.Move} {
				before := n.pods
				n.pods = append(n.pods[:len(n.pods):len(n.pods)], guest{newcomer.cpu, newcomer.memory, -time.Hour})
				p.Done(ledger.Op{Verb: verb, Pod: pod, Node: to.ID})
				check(string(verb))
				p.Undone(ledger.Op{Verb: verb, Pod: pod, Node: to.ID})
				n.pods = before
				check("undone")
			}
			p.Done(ledger.Op{Verb: ledger.Evict, Pod: pod, Node: to.ID})
			check("evicted")
		})
	})
}

// TestArguments: groups are read as single ones; what is out of bounds, said twice or no value is refused by the name that the file has; what nobody knows is told.
func TestArguments(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args    policy.Arguments
		unknown string
		err     string
	}{
		{policy.Arguments{}, "", ""},
		{policy.Arguments{"thresholds": `{"cpu": 80, "mem": "75.5"}`, "estimator": `{"be_cpu": "1", "be_mem": "1Gi", "burst_ratio": 0.5}`, "usage.weight": "1000"}, "", ""},
		{policy.Arguments{"thresholds": `{"gpu": 80}`, "estimator.whim": "1", "whim": "2"}, "estimator.whim thresholds.gpu whim", ""},
		{policy.Arguments{"thresholds": `{"cpu": 100.5}`}, "", `argument "thresholds": cpu is "100.5"; it must be a number from 0 to 100`},
		{policy.Arguments{"thresholds.mem": "NaN"}, "", `argument "thresholds.mem" is "NaN"; it must be a number from 0 to 100`},
		{policy.Arguments{"thresholds": `80`}, "", `argument "thresholds" must be a mapping`},
		{policy.Arguments{"thresholds": `{"cpu": [1]}`}, "", `argument "thresholds": cpu must be one value`},
		{policy.Arguments{"thresholds": `{"cpu": 1}`, "thresholds.cpu": "1"}, "", `argument "thresholds" says cpu, and so does "thresholds.cpu"`},
		{policy.Arguments{"usage.weight": "1001"}, "", `argument "usage.weight" is "1001"; it must be a whole number from 0 to 1000`},
		{policy.Arguments{"memory.weight": "-1"}, "", `argument "memory.weight" is "-1"`},
		{policy.Arguments{"estimator": `{"request_ratio": 11}`}, "", `argument "estimator": request_ratio is "11"; it must be a number from 0 to 10`},
		{policy.Arguments{"estimator.be_mem": "-1Gi"}, "", `argument "estimator.be_mem" is "-1Gi"; it must be an amount, such as 200Mi`},
		{policy.Arguments{"estimator.burst_ratio": "much"}, "", `argument "estimator.burst_ratio" is "much"`},
	} {
		_, unknown, err := usage.Factory.New(c.args)
		if (err != nil) != (c.err != "") || err != nil && !strings.HasPrefix(err.Error(), c.err) {
			t.Errorf("%v: %v", c.args, err)
		}
		if got := strings.Join(unknown, " "); got != c.unknown {
			t.Errorf("%v: unknown are %s", c.args, got)
		}
	}
}
