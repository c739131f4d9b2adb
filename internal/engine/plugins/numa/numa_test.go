package numa_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/engine/builtin"
	"github.com/muster-scheduler/muster/internal/engine/plugins/numa"
	"github.com/muster-scheduler/muster/internal/engine/policy"
)

func TestArguments(t *testing.T) {
	t.Parallel()
	if _, unknown, err := numa.Factory.New(policy.Arguments{"ignoreList": "memory, nvidia.com/gpu", "reconstructAvailable": "false", "other": "x"}); err != nil || len(unknown) != 1 || unknown[0] != "other" {
		t.Errorf("%v, unknown %v", err, unknown)
	}
	if _, _, err := numa.Factory.New(policy.Arguments{"reconstructAvailable": "maybe"}); err == nil || !strings.Contains(err.Error(), `"reconstructAvailable" is "maybe"`) {
		t.Errorf("error %v, want one that names the argument", err)
	}
}

func profile(args policy.Arguments) engine.Profile {
	return engine.Profile{
		Actions: []string{"allocate", "consolidation", "reclaim", "preempt"},
		Tiers: [][]engine.PluginUse{{
			{Name: "predicates"}, {Name: "proportion"}, {Name: "priority"}, {Name: "nodeavailability"}, {Name: "nodeplacement"}, {Name: "numa", Arguments: args},
		}},
		Settings: engine.Settings{ConsolidationVictims: -1, MovedAreFree: true},
	}
}

// TestLedger plays several cycles on random clusters. Every step is checked by the audit.
func TestLedger(t *testing.T) {
	t.Parallel()
	placed, evicted := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		registry := builtin.Registry()
		registry.Plugins["numa"] = []policy.Factory{numa.Audited(func(text string) { t.Fatal(text) })}
		args := policy.Arguments{}
		if rapid.Bool().Draw(t, "as reported") {
			args["reconstructAvailable"] = "false"
		}
		e, err := engine.New(profile(args), registry)
		if err != nil {
			t.Fatal(err)
		}
		s := cluster.NewStore(cluster.Options{})
		nodes := rapid.IntRange(1, 3).Draw(t, "nodes")
		for n := range nodes {
			node(t, s, fmt.Sprint("n", n))
		}
		for q := range 2 {
			s.Apply(cluster.QueueState{
				Name: fmt.Sprint("q", q), UID: fmt.Sprint("q", q),
				Quota: []cluster.Quantity{{Name: "cpu", Value: rapid.Int64Range(0, 8).Draw(t, "quota") * 1000}, {Name: "memory", Value: 100}},
				Limit: []cluster.Quantity{}, Weight: []cluster.Quantity{{Name: "cpu", Value: 1000}, {Name: "gpu", Value: 1000}, {Name: "memory", Value: 1000}},
			})
		}
		for g := range rapid.IntRange(1, 7).Draw(t, "gangs") {
			gang(t, s, g, nodes)
		}
		d := engine.NewDriver(e, s)
		for cycle := range 3 {
			_, plans, _ := d.Cycle(context.Background(), cluster.UnixNano(int64(cycle+1)*1e9))
			for i := range plans {
				placed += plans[i].Binds()
				evicted += plans[i].Evictions()
			}
		}
	})
	if placed == 0 || evicted == 0 {
		t.Error("nothing was ever placed, or evicted")
	}
	t.Logf("%d pods placed, %d evicted", placed, evicted)
}

func node(t *rapid.T, s *cluster.Store, name string) {
	z := &cluster.NodeZones{
		Policy: rapid.SampledFrom([]cluster.ZonePolicy{cluster.ZonesSingle, cluster.ZonesRestricted, cluster.ZonesBestEffort, cluster.ZonesIgnored}).Draw(t, "policy"),
		Scope:  rapid.SampledFrom([]cluster.ZoneScope{cluster.PerContainer, cluster.PerPod}).Draw(t, "scope"),
	}
	cpu, gpu := int64(0), int64(0)
	for i := range rapid.IntRange(1, 3).Draw(t, "zones") {
		c, g := rapid.Int64Range(1, 4).Draw(t, "cpu")*1000, rapid.Int64Range(0, 2).Draw(t, "gpu")*1000
		all := []cluster.Quantity{{Name: "cpu", Value: c}, {Name: "gpu", Value: g}}
		z.Zones = append(z.Zones, cluster.Zone{Name: fmt.Sprint("node-", i), Allocatable: all, Available: all})
		cpu, gpu = cpu+c, gpu+g
	}
	s.Apply(
		cluster.NodeState{Name: name, UID: name, Allocatable: []cluster.Quantity{{Name: "cpu", Value: cpu + 2000}, {Name: "gpu", Value: gpu}, {Name: "memory", Value: 1000}, {Name: "pods", Value: 20}}},
	)
	if rapid.IntRange(0, 5).Draw(t, "tells") > 0 {
		s.Apply(cluster.ObjectState{Kind: cluster.NodeResourceTopologies, Key: name, Object: z})
	}
}

func gang(t *rapid.T, s *cluster.Store, g, nodes int) {
	name := fmt.Sprint("g", g)
	key := cluster.Key{Face: "kai", Namespace: "ns", Name: name}
	pods := rapid.IntRange(1, 3).Draw(t, "pods")
	s.Apply(cluster.GangState{
		Key: key, UID: name, Queue: fmt.Sprint("q", rapid.IntRange(0, 1).Draw(t, "queue")), Priority: int32(rapid.IntRange(1, 3).Draw(t, "priority")), Preemptible: true,
		Created: cluster.UnixNano(int64(g)), Sets: []cluster.Set{{Name: "", Parent: cluster.None, Children: []int32{1}, Min: 1}, {Name: "default", Parent: 0, Leaf: true, Min: int32(rapid.IntRange(1, pods).Draw(t, "min"))}},
	})
	var needs []cluster.Need
	cpu, gpu := int64(0), int64(0)
	for range rapid.IntRange(1, 2).Draw(t, "containers") {
		c, d := rapid.Int64Range(1, 4).Draw(t, "asks cpu")*1000, rapid.Int64Range(0, 1).Draw(t, "asks gpu")*1000
		n := cluster.Need{Role: rapid.SampledFrom([]cluster.ContainerRole{cluster.Together, cluster.Sidecar}).Draw(t, "role"), Amounts: []cluster.Quantity{{Name: "cpu", Value: c}}}
		if d > 0 {
			n.Amounts = append(n.Amounts, cluster.Quantity{Name: "gpu", Value: d})
		}
		needs, cpu, gpu = append(needs, n), cpu+c, gpu+d
	}
	running := rapid.Bool().Draw(t, "running")
	for k := range pods {
		st := cluster.PodState{
			UID: fmt.Sprint(name, "-", k), Namespace: "ns", Name: fmt.Sprint(name, "-", k), Gang: key, SetName: "default", Ours: true, Recreated: true,
			Requests: []cluster.Quantity{{Name: "cpu", Value: cpu}, {Name: "gpu", Value: gpu}, {Name: "memory", Value: 1}, {Name: "pods", Value: 1}},
			Spec:     &cluster.ClassSpec{Align: needs},
		}
		if running {
			st.Phase, st.NodeName = cluster.Running, fmt.Sprint("n", rapid.IntRange(0, nodes-1).Draw(t, "on"))
			if rapid.IntRange(0, 3).Draw(t, "leaving") == 0 {
				st.Phase, st.DeletedAt = cluster.Releasing, cluster.UnixNano(1)
			}
			// Anything may stand in an annotation: zones that do not exist, amounts that nobody asked for.
			for z := range rapid.IntRange(0, 2).Draw(t, "zones on record") {
				st.Zones = append(st.Zones, cluster.ZoneShare{Zone: fmt.Sprint("node-", rapid.IntRange(0, 3).Draw(t, "zone")+z), Amounts: []cluster.Quantity{{Name: "cpu", Value: rapid.Int64Range(0, 9).Draw(t, "recorded") * 1000}, {Name: "no/such", Value: 1}}})
			}
		}
		s.Apply(st)
	}
}

// TestForgedRecord: what an annotation claims beyond the pod's own request takes no zone from others.
func TestForgedRecord(t *testing.T) {
	t.Parallel()
	e, err := engine.New(profile(nil), builtin.Registry())
	if err != nil {
		t.Fatal(err)
	}
	s := cluster.NewStore(cluster.Options{})
	cpu := func(x int64) []cluster.Quantity { return []cluster.Quantity{{Name: "cpu", Value: x}} }
	key := cluster.Key{Face: "kai", Namespace: "ns", Name: "g"}
	request := func(x int64) []cluster.Quantity {
		return []cluster.Quantity{{Name: "cpu", Value: x}, {Name: "pods", Value: 1}}
	}
	s.Apply(
		cluster.NodeState{Name: "n", UID: "n", Allocatable: []cluster.Quantity{{Name: "cpu", Value: 100_000}, {Name: "pods", Value: 10}}},
		cluster.ObjectState{Kind: cluster.NodeResourceTopologies, Key: "n", Object: &cluster.NodeZones{
			Policy: cluster.ZonesSingle, Scope: cluster.PerPod, Zones: []cluster.Zone{{Name: "node-0", Allocatable: cpu(4000)}},
		}},
		cluster.QueueState{Name: "q", UID: "q", Quota: cpu(100_000)},
		cluster.GangState{Key: key, UID: "g", Queue: "q", Sets: []cluster.Set{{Parent: cluster.None, Children: []int32{1}, Min: 1}, {Name: "default", Parent: 0, Leaf: true, Min: 1}}},
		cluster.PodState{UID: "liar", Namespace: "ns", Name: "liar", Phase: cluster.Running, NodeName: "n", Requests: request(500), Zones: []cluster.ZoneShare{{Zone: "node-0", Amounts: cpu(4000)}}},
		cluster.PodState{UID: "p", Namespace: "ns", Name: "p", Gang: key, SetName: "default", Ours: true, Requests: request(3000), Spec: &cluster.ClassSpec{Align: []cluster.Need{{Amounts: cpu(3000)}}}},
	)
	var got []string
	e.Run(context.Background(), s.Snapshot(cluster.UnixNano(1)), func(p engine.Plan) {
		for _, b := range p.Bundles {
			for _, in := range b.Intents {
				got = append(got, fmt.Sprint(in.Verb, in.Pod, in.Node, in.Zones))
			}
		}
	})
	if len(got) != 1 || got[0] != "bindpn[{node-0 [{cpu 3000}]}]" {
		t.Errorf("decided %v, want the pod placed in the zone", got)
	}
}
