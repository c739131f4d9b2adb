package enginetest

import (
	"cmp"
	"context"
	"fmt"
	"hash/fnv"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/engine/builtin"
	"github.com/muster-scheduler/muster/internal/engine/policy"
	"github.com/muster-scheduler/muster/internal/engine/recorder"
	"github.com/muster-scheduler/muster/internal/profile"
)

// grudge is a filter that has to be asked about each node: no pod may use one called bad, and of the others, a pod may use about
// half.
type grudge struct{}

func (grudge) Wants(*cluster.Class) bool { return true }

// bias is a filter that has to be asked about each node, too: no pod may use one called bad.
type bias struct{ grudge }

func (bias) CheckNode(_ *cluster.Pod, n *cluster.Node) policy.Verdict {
	if strings.HasPrefix(n.Name, "bad") {
		return policy.Verdict{Code: policy.No, Reason: policy.ReasonInsufficient, Dim: "sympathy"}
	}
	return policy.Verdict{}
}

func (grudge) CheckNode(p *cluster.Pod, n *cluster.Node) policy.Verdict {
	h := fnv.New32()
	fmt.Fprint(h, p.UID, n.Name)
	if strings.HasPrefix(n.Name, "bad") || h.Sum32()>>8%2 != 0 {
		return policy.Verdict{Code: policy.No, Reason: policy.ReasonInsufficient, Dim: "sympathy"}
	}
	return policy.Verdict{}
}

// begrudging allocates with a filter, within a bound.
func begrudging(t rapid.TB, filter policy.Factory, steps int) *engine.Engine {
	r, p := builtin.Registry(), profile.BuiltIn()
	r.Plugins["grudges"] = []policy.Factory{filter}
	p.Tiers = append(slices.Clip(p.Tiers), []engine.PluginUse{{Name: "grudges"}})
	p.Actions, p.Settings.SearchSteps = []string{"allocate"}, steps
	e, err := engine.New(p, r)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// TestTurnsKeepTheOrder: allocate that may look once in vain in a cycle first gives what allocate without a bound gives at once,
// where one queue waits, whatever comes or is edited before a queue is challenged; whoever else waits, it gives nothing to a gang behind one of its own
// queue that it has not got to; and it comes to an end.
func TestTurnsKeepTheOrder(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		queues := rapid.IntRange(1, 3).Draw(t, "queues")
		s := cluster.NewStore(cluster.Options{})
		free := []cluster.Quantity{{Name: "gpu", Value: cluster.Unlimited}, {Name: "cpu", Value: cluster.Unlimited}, {Name: "memory", Value: cluster.Unlimited}}
		for i := range queues {
			s.Apply(cluster.QueueState{Name: fmt.Sprint("q", i), UID: fmt.Sprint("q", i), Quota: free, Limit: free})
		}
		node := func(name string, most int) {
			s.Apply(cluster.NodeState{Name: name, UID: name, Allocatable: []cluster.Quantity{
				{Name: "cpu", Value: 64000}, {Name: "memory", Value: 1 << 40}, {Name: "gpu", Value: 1000 * int64(rapid.IntRange(0, most).Draw(t, "gpus"))}, {Name: "pods", Value: 110},
			}})
		}
		gang := func(i int) {
			pods := rapid.IntRange(1, 3).Draw(t, "pods")
			key := cluster.Key{Face: "kai", Namespace: "ns", Name: fmt.Sprint("g", i)}
			s.Apply(cluster.GangState{
				Key: key, UID: key.Name, Queue: fmt.Sprint("q", rapid.IntRange(0, queues-1).Draw(t, "queue")), Priority: int32(rapid.IntRange(1, 3).Draw(t, "priority")),
				Preemptible: true, Created: noon.Add(-time.Duration(i)), Sets: cluster.FlatTree(int32(rapid.IntRange(1, pods).Draw(t, "min"))),
			})
			for k := range pods {
				uid := fmt.Sprint(key.Name, "-", k)
				s.Apply(cluster.PodState{
					UID: uid, Namespace: "ns", Name: uid, Gang: key, Ours: true, Created: noon.Add(-1), Spec: &cluster.ClassSpec{Claims: []string{uid}},
					Requests: []cluster.Quantity{{Name: "gpu", Value: 1000 * int64(rapid.IntRange(1, 2).Draw(t, "gpu"))}, {Name: "pods", Value: 1}},
				})
			}
		}
		for i := range rapid.IntRange(1, 6).Draw(t, "nodes") {
			node(fmt.Sprint("bad", i), 3)
		}
		for i := range rapid.IntRange(1, 10).Draw(t, "gangs") {
			gang(i)
		}
		unbounded, bounded := begrudging(t, policy.Is(grudge{}), 0), engine.NewDriver(begrudging(t, policy.Is(grudge{}), 1), s)
		changes, now := rapid.IntRange(1, 6).Draw(t, "changes"), noon
		during := false // something changed while the queue was challenged
		for cycle := 0; ; cycle++ {
			_, challenged := s.Snapshot(now).RememberedAnswer("allocate of queue/q0")
			during = during && challenged
			if changes > 0 && rapid.IntRange(0, 2).Draw(t, "change") == 0 {
				during = challenged
				switch changes--; rapid.IntRange(0, 1).Draw(t, "of") {
				case 0:
					node(fmt.Sprint("good", rapid.IntRange(0, 3).Draw(t, "node")), 3)
				case 1:
					gang(rapid.IntRange(0, 12).Draw(t, "gang"))
				}
			}
			var want []engine.Plan
			unbounded.Run(context.Background(), s.Snapshot(now), func(p engine.Plan) { want = append(want, p) })
			snap, plans, r := bounded.Cycle(context.Background(), now)
			left := map[string][]cluster.Key{} // by queue
			for i := range r.Trace.Gangs {
				if g := &r.Trace.Gangs[i]; slices.ContainsFunc(g.Tried, func(a recorder.Attempt) bool { return a.Verdict.Reason == policy.ReasonNextCycle }) {
					queue := snap.Gang(g.ID).Queue
					left[queue] = append(left[queue], g.Gang)
				}
			}
			for i := range plans {
				for k := range plans[i].Bundles {
					g := snap.GangByKey(plans[i].Bundles[k].Gang)
					for _, other := range left[g.Queue] {
						if o := snap.GangByKey(other); o.Priority > g.Priority && !placed(plans, other) {
							t.Fatalf("%s was given room before %s, which is before it in %s and was left", g.Key, o.Key, g.Queue)
						}
					}
				}
			}
			if len(plans) > 0 {
				if len(want) == 0 {
					t.Fatalf("within bounds\n%v\nwithout\n%v", plans, want)
				}
				// What a gang gets above its minimum may come a cycle later.
				a, b := &plans[0].Bundles[0], &want[0].Bundles[0]
				if queues == 1 && !during && (a.Gang != b.Gang || len(a.Intents) > len(b.Intents) || !reflect.DeepEqual(a.Intents, b.Intents[:len(a.Intents)])) {
					t.Fatalf("within bounds\n%v\nwithout\n%v", a, b)
				}
				return
			}
			if len(left) > 0 && r.Trace.WakeAt.After(now) {
				t.Fatalf("%v are left, and no cycle is wanted now", left)
			}
			if len(want) == 0 && len(left) == 0 && changes == 0 {
				return
			}
			if len(want) > 0 && r.Trace.WakeAt == cluster.Forever {
				t.Fatalf("nobody is given anything, no cycle is wanted, and without bounds\n%v", want)
			}
			if cycle > 60 {
				t.Fatalf("%v are left, after five times as many cycles as there are gangs", left)
			}
			now = now.Add(100_000_000)
		}
	})
}

// placed says whether a plan gives a gang anything.
func placed(plans []engine.Plan, key cluster.Key) bool {
	return slices.ContainsFunc(plans, func(p engine.Plan) bool {
		return slices.ContainsFunc(p.Bundles, func(b engine.Bundle) bool { return b.Gang == key })
	})
}

// TestNominatedLeaveOthersTheirTurn: gangs that wait for room that is being released are asked for in every cycle. If one such
// question costs more than allocate may spend in one, the gangs behind it in its queue, and those of other queues, are asked for all the
// same, again and again, and so are they.
func TestNominatedLeaveOthersTheirTurn(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name     string
		nominate []string // the queues of gangs that are nominated
		asks     string   // the queue of the gang behind them
		idle     int      // queues whose gangs no node has room for
		cycles   int      // until that one has the room that is free
	}{
		{"behind one in its queue", []string{"a"}, "a", 0, 2},
		{"behind one of another queue", []string{"a"}, "b", 0, 2},
		{"behind three of another queue", []string{"a", "a", "a"}, "b", 0, 3},
		{"behind three queues", []string{"a", "c", "d"}, "b", 0, 6},
		{"more queues than steps", []string{"a", "a", "a"}, "b", 20, 6},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := cluster.NewStore(cluster.Options{})
			free := []cluster.Quantity{{Name: "gpu", Value: cluster.Unlimited}, {Name: "cpu", Value: cluster.Unlimited}, {Name: "memory", Value: cluster.Unlimited}}
			for _, q := range []string{"a", "b", "c", "d"} {
				priority := int32(1)
				if q == c.asks {
					priority = 0
				}
				s.Apply(cluster.QueueState{Name: q, UID: q, Priority: priority, Quota: free, Limit: free})
			}
			node := func(name string, gpus int64) {
				s.Apply(cluster.NodeState{Name: name, UID: name, Allocatable: []cluster.Quantity{{Name: "cpu", Value: 64000}, {Name: "gpu", Value: 1000 * gpus}, {Name: "pods", Value: 110}}})
			}
			gang := func(name, queue string, priority int32, gpus int64) {
				key := cluster.Key{Face: "kai", Namespace: "ns", Name: name}
				s.Apply(cluster.GangState{Key: key, UID: name, Queue: queue, Priority: priority, Created: noon, Sets: cluster.FlatTree(1)}, cluster.PodState{
					UID: name, Namespace: "ns", Name: name, Gang: key, Ours: true, Created: noon, Spec: &cluster.ClassSpec{Claims: []string{name}},
					Requests: []cluster.Quantity{{Name: "gpu", Value: 1000 * gpus}, {Name: "pods", Value: 1}},
				})
			}
			for i := range 20 {
				node(fmt.Sprint("bad", i), 8)
			}
			for i, q := range c.nominate {
				node(fmt.Sprint("leaving", i), 2)
				s.Apply(cluster.PodState{UID: fmt.Sprint("old", i), Namespace: "x", Name: fmt.Sprint("old", i), Phase: cluster.Releasing, NodeName: fmt.Sprint("leaving", i), Requests: []cluster.Quantity{{Name: "gpu", Value: 2000}}})
				gang(fmt.Sprint("first", i), q, 9, 2)
			}
			node("free", 1)
			gang("behind", c.asks, 1, 1)
			for i := range c.idle {
				s.Apply(cluster.QueueState{Name: fmt.Sprint("idle", i), UID: fmt.Sprint("idle", i), Quota: free, Limit: free})
				gang(fmt.Sprint("large", i), fmt.Sprint("idle", i), 1, 9)
			}
			d := engine.NewDriver(begrudging(t, policy.Is(bias{}), 10), s)
			const cycles = 24
			first, last := map[string]int{}, map[string]int{} // when a queue was given room
			for cycle := 1; cycle <= cycles; cycle++ {
				snap, plans, _ := d.Cycle(context.Background(), noon.Add(time.Duration(cycle)*100_000_000))
				snap.EachGang(func(g *cluster.Gang) {
					if placed(plans, g.Key) {
						who := g.Queue
						if g.Key.Name == "behind" {
							who = "behind"
						}
						first[who], last[who] = cmp.Or(first[who], cycle), cycle
					}
				})
				for i := range plans { // nothing of it can be carried out
					for k := range plans[i].Bundles {
						plans[i].Bundles[k].Forget(s, func(string) bool { return false })
					}
				}
			}
			if at := first["behind"]; at == 0 || at > c.cycles {
				t.Errorf("it is first given room in cycle %d, not in one of the first %d", at, c.cycles)
			}
			for _, who := range append(c.nominate, "behind") {
				if last[who] <= cycles-6 {
					t.Errorf("%s is given no room after cycle %d of %d", who, last[who], cycles)
				}
			}
		})
	}
}

// loyal is a filter that has to be asked about each node: a pod may use one that is called after it.
type loyal struct{ grudge }

func (loyal) CheckNode(p *cluster.Pod, n *cluster.Node) policy.Verdict {
	if n.Name != "for-"+p.Name {
		return policy.Verdict{Code: policy.No, Reason: policy.ReasonInsufficient, Dim: "sympathy"}
	}
	return policy.Verdict{}
}

// TestChallengeEnds: there is room for a gang behind, so those before it are asked again; but the room goes. When all have been asked, what
// came up for one of the first meanwhile is his, and not only when answers have rested.
func TestChallengeEnds(t *testing.T) {
	t.Parallel()
	s := cluster.NewStore(cluster.Options{})
	free := []cluster.Quantity{{Name: "gpu", Value: cluster.Unlimited}, {Name: "cpu", Value: cluster.Unlimited}, {Name: "memory", Value: cluster.Unlimited}}
	s.Apply(cluster.QueueState{Name: "q", UID: "q", Quota: free, Limit: free})
	node := func(name string, gpus int64) {
		s.Apply(cluster.NodeState{Name: name, UID: name, Allocatable: []cluster.Quantity{{Name: "cpu", Value: 64000}, {Name: "gpu", Value: 1000 * gpus}, {Name: "pods", Value: 110}}})
	}
	for i := range 5 {
		name := fmt.Sprint("g", i)
		key := cluster.Key{Face: "kai", Namespace: "ns", Name: name}
		s.Apply(cluster.GangState{Key: key, UID: name, Queue: "q", Created: noon.Add(time.Duration(i)), Sets: cluster.FlatTree(1)}, cluster.PodState{
			UID: name, Namespace: "ns", Name: name, Gang: key, Ours: true, Created: noon, Spec: &cluster.ClassSpec{Claims: []string{name}},
			Requests: []cluster.Quantity{{Name: "gpu", Value: 1000}, {Name: "pods", Value: 1}},
		})
	}
	node("nobodys", 1)
	d, now := engine.NewDriver(begrudging(t, policy.Is(loyal{}), 1), s), noon
	// cycles lets some pass, and returns who is given room in the first that gives any, and how many it took.
	cycles := func(most int) (who string, took int) {
		for took = 1; took <= most && who == ""; took++ {
			now = now.Add(100_000_000)
			if _, plans, _ := d.Cycle(context.Background(), now); len(plans) > 0 {
				who = plans[len(plans)-1].Bundles[0].Gang.Name
			}
		}
		return who, took - 1
	}
	challenged := func() bool {
		_, ok := s.Snapshot(now).RememberedAnswer("allocate of queue/q")
		return ok
	}
	if who, _ := cycles(4); who != "" || challenged() {
		t.Fatalf("%s is given room, where there is none", who)
	}
	node("for-g4", 1) // which has not been asked for yet
	if who, _ := cycles(1); who != "" || !challenged() {
		t.Fatalf("there is room for g4, and those before it are not asked (%q)", who)
	}
	node("for-g4", 0)
	if who, _ := cycles(2); who != "" || !challenged() {
		t.Fatalf("the challenge is over before all have been asked (%q)", who)
	}
	node("for-g0", 1) // it has been asked again
	if who, took := cycles(20); who != "g0" {
		t.Errorf("after %d cycles %q is given room, and there is some for g0", took, who)
	}
}
