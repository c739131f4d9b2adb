package filters

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/engine/builtin"
	"github.com/muster-scheduler/muster/internal/engine/policy"
	"github.com/muster-scheduler/muster/internal/profile"
)

// decide runs KAI's built-in profile with the filters, and returns the node of each pod that was placed and the
// diagnosis of each gang that was not.
func (p *plant) decide(tb testing.TB, o ...Options) (map[string]string, map[string]string) {
	tb.Helper()
	e, err := engine.New(profile.BuiltIn(), Register(builtin.Registry(), append(o, Options{})[0]))
	if err != nil {
		tb.Fatal(err)
	}
	where, why := map[string]string{}, map[string]string{}
	r := e.Run(context.Background(), p.store.Snapshot(cluster.UnixNano(1)), func(pl engine.Plan) {
		for _, b := range pl.Bundles {
			for _, in := range b.Intents {
				where[in.Pod] = in.Node
			}
		}
	})
	for _, g := range r.Trace.Gangs {
		if g.Diagnosis != nil {
			why[g.Gang.Name] = g.Diagnosis.Tally.String()
			if len(g.Diagnosis.Tally) == 0 {
				why[g.Gang.Name] = g.Diagnosis.Verdict.String()
			}
		}
	}
	return where, why
}

// members adds a gang of n equal pods.
func (p *plant) members(gang string, n int, app string, with ...func(*v1.Pod)) {
	p.gang(cluster.Key{Face: "kai", Namespace: "ns", Name: gang}, int32(n))
	for i := range n {
		p.add(aPod(fmt.Sprintf("%s-%d", gang, i), app, "", append([]func(*v1.Pod){ofGang(gang)}, with...)...))
	}
}

func distinct(where map[string]string) int {
	return len(slices.Compact(slices.Sorted(maps.Values(where))))
}

func TestGangApart(t *testing.T) {
	t.Parallel()
	p := newPlant(zones()...)
	p.members("g", 4, "x", apart(term("x", hostKey)))
	where, why := p.decide(t)
	if len(where) != 4 || distinct(where) != 4 {
		t.Errorf("each pod on a node of its own; got %v (%v)", where, why)
	}
}

func TestGangApartThatDoesNotFit(t *testing.T) {
	t.Parallel()
	p := newPlant(zones()...)
	p.members("big", 5, "x", apart(term("x", hostKey)))
	p.members("late", 4, "x", apart(term("x", hostKey)))
	where, why := p.decide(t)
	if len(where) != 4 || distinct(where) != 4 || where["late-0"] == "" {
		t.Errorf("the second gang has the nodes that the first gave back; got %v", where)
	}
	if want := "4 pod anti-affinity keeps it away from pods that are near"; why["big"] != want {
		t.Errorf("the first gang was told %q, want %q", why["big"], want)
	}
}

func TestGangTogether(t *testing.T) {
	t.Parallel()
	p := newPlant(zones()...)
	for _, n := range []string{"a1", "a2", "b1", "b2"} { // two more fit on each node
		p.add(aPod("fill-"+n, "z", n, asking("98")))
	}
	p.members("four", 4, "x", near(term("x", zoneKey)), asking("1"))
	p.members("five", 5, "y", near(term("y", zoneKey)), asking("1"))
	where, why := p.decide(t)
	zone := map[string]bool{}
	for _, n := range where {
		zone[n[:1]] = true
	}
	if len(where) != 4 || len(zone) != 1 || where["four-0"] == "" {
		t.Errorf("four pods share a zone, five find none; got %v (%v)", where, why)
	}
}

func asking(cpu string) func(*v1.Pod) {
	return func(p *v1.Pod) { p.Spec.Containers[0].Resources.Requests = v1.ResourceList{"cpu": quantity(cpu)} }
}

func TestGangSpread(t *testing.T) {
	t.Parallel()
	p := newPlant(zones()...)
	p.members("g", 7, "x", spreadOver(zoneKey, "x", 1), spreadOver(hostKey, "x", 1))
	where, why := p.decide(t)
	count := map[string]int{}
	for _, n := range where {
		count[n]++
		count[n[:1]]++
	}
	if len(where) != 7 || count["a"]+count["b"] != 7 || max(count["a"], count["b"]) != 4 || slices.Max([]int{count["a1"], count["a2"], count["b1"], count["b2"]}) != 2 {
		t.Errorf("four and three by zone, two at most by node; got %v (%v)", where, why)
	}
}

func TestGangOnOneExclusiveClaim(t *testing.T) {
	t.Parallel()
	p := newPlant(append(zones(), aClaim("c", "1Gi", boundTo("v"), exclusive), aVolume("v", "1Gi", "", "", heldBy("c")))...)
	p.members("pair", 2, "x", mountingOne("c"))
	p.members("single", 1, "x", mountingOne("c"))
	where, why := p.decide(t)
	if len(where) != 1 || where["single-0"] == "" {
		t.Errorf("one pod may have the claim; got %v", where)
	}
	if want := "4 a ReadWriteOncePod volume is in use by another pod"; why["pair"] != want {
		t.Errorf("the pair was told %q, want %q", why["pair"], want)
	}
}

// TestGangOnLocalVolumes has claims of three pods for two volumes that lie on two nodes.
func TestGangOnLocalVolumes(t *testing.T) {
	t.Parallel()
	given := []metav1.Object{aStorageClass("wait", "kubernetes.io/no-provisioner", true), aVolume("v1", "1Gi", hostKey, "a2"), aVolume("v2", "1Gi", hostKey, "b1")}
	p := newPlant(append(zones(), given...)...)
	for i := range 5 {
		p.add(aClaim(fmt.Sprintf("c%d", i), "1Gi"))
	}
	gang := func(name string, first, n int) {
		p.gang(cluster.Key{Face: "kai", Namespace: "ns", Name: name}, int32(n))
		for i := range n {
			p.add(aPod(fmt.Sprintf("%s-%d", name, i), "x", "", ofGang(name), mountingOne(fmt.Sprintf("c%d", first+i))))
		}
	}
	gang("three", 0, 3)
	gang("two", 3, 2)
	where, why := p.decide(t)
	if got := slices.Sorted(maps.Values(where)); !cmp.Equal(got, []string{"a2", "b1"}) || where["two-0"] == "" {
		t.Errorf("two pods, one at each volume; got %v (%v)", where, why)
	}
	// The next run begins before anything is bound: what the first decided is taken.
	for pod, node := range maps.All(where) {
		p.store.Assume(pod, node, nil, cluster.Forever)
	}
	gang("one", 0, 1)
	if where, why = p.decide(t); len(where) != 0 || why["one"] != "4 no volume for a claim, and none can be made there" {
		t.Errorf("no volume is left; got %v (%v)", where, why)
	}
}

// TestFiltersShareAName: the filters are opened by the host's name beside it, know of no argument more, and leave the registry alone that
// they are given.
func TestFiltersShareAName(t *testing.T) {
	t.Parallel()
	alone := builtin.Registry()
	with := Register(alone, Options{})
	if len(alone.Plugins[Host]) != 1 || len(with.Plugins[Host]) != 2 {
		t.Errorf("%d factories, %d with the filters", len(alone.Plugins[Host]), len(with.Plugins[Host]))
	}
	e, err := engine.New(engine.Profile{Tiers: [][]engine.PluginUse{{{Name: Host, Arguments: policy.Arguments{"strange": "x"}}}}}, with)
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{`plugin "predicates" does not know argument "strange"; it has no effect`}; !cmp.Equal(e.Warnings, want) {
		t.Errorf("%q", e.Warnings)
	}
}

// BenchmarkGangs decides on 500 nodes with 4,000 pods.
func BenchmarkGangs(b *testing.B) {
	for name, c := range map[string]struct {
		members int
		with    func(*v1.Pod)
	}{
		"plain/50":   {50, func(*v1.Pod) {}},
		"apart/50":   {50, apart(term("g", hostKey))},
		"apart/500":  {500, apart(term("g", hostKey))},
		"apart/501":  {501, apart(term("g", hostKey))}, // one too many
		"near/50":    {50, near(term("g", zoneKey))},
		"spread/50":  {50, spreadOver(zoneKey, "g", 1)},
		"spread/500": {500, spreadOver(zoneKey, "g", 1)},
	} {
		b.Run(name, func(b *testing.B) {
			p := newPlant()
			for i := range 500 {
				p.add(aNode(fmt.Sprintf("n%03d", i), fmt.Sprintf("z%d", i%5)))
			}
			p.gang(cluster.Key{Face: "kai", Namespace: "ns", Name: "old"}, 1)
			for i := range 4000 {
				p.add(aPod(fmt.Sprintf("old-%d", i), "old", fmt.Sprintf("n%03d", i%500), ofGang("old")))
			}
			p.members("g", c.members, "g", c.with, asking("1"))
			want := c.members
			if want > 500 {
				want = 0
			}
			b.ReportAllocs()
			for b.Loop() {
				if where, why := p.decide(b); len(where) != want {
					b.Fatalf("placed %d of %d: %v", len(where), c.members, why)
				}
			}
		})
	}
}

// BenchmarkStrangers decides 4,000 pods that say nothing, each with labels of its own, while 500 others keep their like away.
func BenchmarkStrangers(b *testing.B) {
	p := newPlant()
	for i := range 500 {
		p.add(aNode(fmt.Sprintf("n%03d", i), "z"))
		p.add(aPod(fmt.Sprintf("old-%d", i), "old", fmt.Sprintf("n%03d", i), apart(term("old", hostKey))))
	}
	for i := range 4000 {
		p.add(aPod(fmt.Sprintf("new-%d", i), fmt.Sprintf("new-%d", i), "", asking("1")))
	}
	b.ReportAllocs()
	for b.Loop() {
		if where, _ := p.decide(b); len(where) != 4000 {
			b.Fatalf("placed %d of 4000", len(where))
		}
	}
}
