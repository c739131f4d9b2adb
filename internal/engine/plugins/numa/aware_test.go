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
	profiles "github.com/muster-scheduler/muster/internal/profile"
)

// TestAwareArguments: a weight that cannot be read is refused, and the error names the argument and the rule.
func TestAwareArguments(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{ // order: each for itself
		"0": "", " 7 ": "", "1000": "", "1001": `argument "weight" is "1001"; it must be a whole number from 0 to 1000`, "-1": `"weight" is "-1"`, "1.5": `"weight" is "1.5"`, "": `"weight" is ""`,
	} {
		_, unknown, err := numa.AwareFactory.New(policy.Arguments{"weight": text, "colour": "red"})
		if said := fmt.Sprint(err); (err != nil) != (want != "") || !strings.Contains(said, want) && want != "" || err == nil && fmt.Sprint(unknown) != "[colour]" {
			t.Errorf("%q: %v, unknown %v", text, err, unknown)
		}
	}
}

// site is a node of the oracle, in whole CPUs.
type site struct {
	policy cluster.ZonePolicy
	static bool
	tells  bool
	room   int64 // of the node, taken off
	free   []int64
}

// takes says, by the words of the description and the kubelet's, whether the node takes a pod of one container that asks for so many CPUs and names a policy: it aligns by just that
// policy, with CPUs of containers' own, and its zones together have as many; one of them by single-numa-node; by restricted, as few of them as it would need were all empty.
func (s *site) takes(by cluster.ZonePolicy, want int64, size []int64) bool {
	if s.room < want {
		return false
	}
	if by == "" {
		return true
	}
	if !s.tells || !s.static || s.policy != by || len(s.free) == 0 {
		return false
	}
	narrow := func(of []int64) int {
		best := len(of) + 1
		for mask := 1; mask < 1<<len(of); mask++ {
			sum, wide := int64(0), 0
			for z := range of {
				if mask&(1<<z) != 0 {
					sum, wide = sum+of[z], wide+1
				}
			}
			if sum >= want {
				best = min(best, wide)
			}
		}
		return best
	}
	switch by {
	case cluster.ZonesSingle:
		return narrow(s.free) == 1
	case cluster.ZonesRestricted:
		return narrow(size) <= len(size) && narrow(s.free) == narrow(size)
	}
	return true
}

// TestAware: on random nodes no pod that names a policy is where that is not kept, none crosses zones under single-numa-node, no zone gives more than it has, beside what its node says that
// others have; and no pod waits that some node would take.
func TestAware(t *testing.T) {
	t.Parallel()
	placed, waited := 0, 0
	policies := []cluster.ZonePolicy{cluster.ZonesSingle, cluster.ZonesRestricted, cluster.ZonesBestEffort, cluster.ZonesIgnored}
	rapid.Check(t, func(t *rapid.T) {
		p := profiles.BuiltIn()
		p.Faces = []engine.Face{{Name: "volcano", Actions: []string{"allocate"}, Tiers: [][]engine.PluginUse{{{Name: numa.AwareName}}}}}
		e, err := engine.New(p, builtin.Registry())
		if err != nil {
			t.Fatal(err)
		}
		s := cluster.NewStore(cluster.Options{})
		sites, sizes := map[string]*site{}, map[string][]int64{}
		for n := range rapid.IntRange(1, 3).Draw(t, "nodes") {
			name := fmt.Sprint("n", n)
			at := &site{policy: rapid.SampledFrom(policies).Draw(t, "policy"), static: rapid.IntRange(0, 3).Draw(t, "static") > 0, tells: rapid.IntRange(0, 3).Draw(t, "tells") > 0}
			z := &cluster.NodeZones{Policy: at.policy, Scope: cluster.PerContainer, Shared: !at.static, Pods: map[string][]cluster.ZoneShare{}}
			held := int64(0)
			for i := range rapid.IntRange(0, 3).Draw(t, "zones") {
				has, zone := rapid.Int64Range(1, 4).Draw(t, "CPUs"), fmt.Sprint("node-", i)
				taken := rapid.Int64Range(0, has).Draw(t, "taken")
				z.Zones = append(z.Zones, cluster.Zone{Name: zone, Allocatable: []cluster.Quantity{{Name: "cpu", Value: 1000 * has}}})
				if taken > 0 {
					z.Pods["held-"+name] = append(z.Pods["held-"+name], cluster.ZoneShare{Zone: zone, Amounts: []cluster.Quantity{{Name: "cpu", Value: 1000 * taken}}})
				}
				at.free, sizes[name], at.room, held = append(at.free, has-taken), append(sizes[name], has), at.room+has-taken, held+taken
			}
			at.room += rapid.Int64Range(0, 2).Draw(t, "beside") // CPUs that are in no zone
			sites[name] = at
			s.Apply(cluster.NodeState{Name: name, UID: name, Allocatable: []cluster.Quantity{{Name: "cpu", Value: 1000 * (at.room + held)}, {Name: "pods", Value: 50}}})
			if held > 0 {
				s.Apply(cluster.PodState{UID: "held-" + name, Name: "held-" + name, Phase: cluster.Running, NodeName: name, Requests: []cluster.Quantity{{Name: "cpu", Value: 1000 * held}}})
			}
			if at.tells {
				s.Apply(cluster.ObjectState{Kind: rapid.SampledFrom([]cluster.ObjectKind{cluster.Numatopologies, cluster.NodeResourceTopologies}).Draw(t, "kind"), Key: name, Object: z})
			}
		}
		s.Apply(cluster.QueueState{Name: "volcano:q", UID: "q", Weight: []cluster.Quantity{{Name: "cpu", Value: 1000}}})
		type asked struct {
			by   cluster.ZonePolicy
			want int64
		}
		asks := map[string]asked{}
		for g := range rapid.IntRange(1, 6).Draw(t, "gangs") {
			name := fmt.Sprint("p", g)
			a := asked{rapid.SampledFrom([]cluster.ZonePolicy{cluster.ZonesSingle, cluster.ZonesRestricted, cluster.ZonesBestEffort, "", "odd"}).Draw(t, "asks by"), rapid.Int64Range(1, 5).Draw(t, "asks")}
			asks[name] = a
			key := cluster.Key{Face: "volcano", Namespace: "x", Name: name}
			spec := &cluster.ClassSpec{ZonesBy: a.by}
			if a.by != "" {
				spec.Align = []cluster.Need{{Amounts: []cluster.Quantity{{Name: "cpu", Value: 1000 * a.want}}}}
			}
			s.Apply(
				cluster.GangState{Key: key, UID: name, Queue: "volcano:q", Preemptible: true, Created: cluster.UnixNano(int64(g)), Sets: cluster.FlatTree(1)},
				cluster.PodState{UID: name, Namespace: "x", Name: name, Ours: true, Gang: key, Requests: []cluster.Quantity{{Name: "cpu", Value: 1000 * a.want}, {Name: "pods", Value: 1}}, Spec: spec},
			)
		}
		e.Run(context.Background(), s.Snapshot(cluster.UnixNano(1)), func(plan engine.Plan) {
			for _, b := range plan.Bundles {
				for _, in := range b.Intents {
					a, at := asks[in.Pod], sites[in.Node]
					if !at.takes(a.by, a.want, sizes[in.Node]) {
						t.Fatalf("%s, which asks for %d by %q, is on %s, which is %+v of %v", in.Pod, a.want, a.by, in.Node, *at, sizes[in.Node])
					}
					at.room -= a.want
					sum := int64(0)
					for _, share := range in.Zones {
						var z int
						_, _ = fmt.Sscanf(share.Zone, "node-%d", &z)
						x := share.Amounts[0].Value / 1000
						if sum, at.free[z] = sum+x, at.free[z]-x; at.free[z] < 0 {
							t.Fatalf("%s takes %d CPUs of zone %d of %s: %d too many", in.Pod, x, z, in.Node, -at.free[z])
						}
					}
					if a.by == "" && len(in.Zones) > 0 || a.by == cluster.ZonesSingle && len(in.Zones) != 1 || sum > a.want || a.by != "" && a.by != cluster.ZonesBestEffort && sum != a.want {
						t.Fatalf("%s, which asks for %d by %q, takes %v of %s", in.Pod, a.want, a.by, in.Zones, in.Node)
					}
					placed++
					delete(asks, in.Pod)
				}
			}
		})
		for name, a := range asks { // order: any
			waited++
			for node, at := range sites { // order: any
				if at.takes(a.by, a.want, sizes[node]) {
					t.Fatalf("%s, which asks for %d by %q, waits, and %s would take it: %+v of %v", name, a.want, a.by, node, *at, sizes[node])
				}
			}
		}
	})
	if placed == 0 || waited == 0 {
		t.Errorf("%d placed, %d waited", placed, waited)
	}
}
