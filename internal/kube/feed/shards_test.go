package feed

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-scheduler/muster/api/kai/keys"
	"github.com/muster-scheduler/muster/api/scheduling/v2"
	"github.com/muster-scheduler/muster/api/scheduling/v2alpha2"
	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/dialect/kai"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/engine/builtin"
	"github.com/muster-scheduler/muster/internal/profile"
)

// shard is one shard's view of a cluster that all shards watch.
type shard struct {
	*stage
	pool   string // "" for objects without the label
	engine *engine.Engine
}

// pooled puts an object into a pool.
func pooled[O client.Object](o O, pool string) O {
	if pool == "" {
		o.SetLabels(nil)
	} else {
		o.SetLabels(map[string]string{kai.DefaultNodePoolKey: pool})
	}
	return o
}

// prefix begins the names of what is in a pool.
func prefix(pool string) string {
	if pool == "" {
		return "none-"
	}
	return pool + "-"
}

// poolEvent draws something that happens to an object of a pool.
func poolEvent(rng *rand.Rand, pool string) (o client.Object, gone bool) {
	pre, serial := prefix(pool), rng.IntN(3)
	switch rng.IntN(6) {
	case 0:
		n := pooled(node(fmt.Sprint(pre, "n", serial)), pool)
		n.Status.Allocatable["nvidia.com/gpu"] = *resource.NewQuantity(int64(rng.IntN(9)), resource.DecimalSI)
		o = n
	case 1:
		q := pooled(&v2.Queue{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint(pre, "q", serial)}}, pool)
		free := v2.QueueResource{Quota: float64(rng.IntN(5)), Limit: -1, OverQuotaWeight: 1}
		q.Spec.Resources = &v2.QueueResources{GPU: free, CPU: v2.QueueResource{Quota: -1, Limit: -1}, Memory: v2.QueueResource{Quota: -1, Limit: -1}}
		o = q
	case 2:
		g := pooled(gang(fmt.Sprint(pre, "g", serial), ""), pool)
		g.Spec = v2alpha2.PodGroupSpec{Queue: fmt.Sprint(pre, "q", rng.IntN(3)), MinMember: ptr.To(int32(rng.IntN(3)))}
		o = g
	case 3, 4:
		serial = rng.IntN(9)
		p := pod(fmt.Sprint(pre, "p", serial), fmt.Sprint(pre, "u", serial), int64(serial))
		p.Annotations[kai.PodGroupAnnotation] = fmt.Sprint(pre, "g", serial%3)
		if rng.IntN(2) == 0 {
			p.Spec.NodeName, p.Status.Phase = fmt.Sprint(pre, "n", rng.IntN(3)), v1.PodRunning
		}
		o = p
	default: // another scheduler's pod on a node of the pool
		p := pod(fmt.Sprint(pre, "f", serial), fmt.Sprint(pre, "f", serial), 1)
		p.Annotations, p.Spec.SchedulerName = nil, "default-scheduler"
		p.Spec.NodeName, p.Status.Phase = fmt.Sprint(pre, "n", rng.IntN(3)), v1.PodRunning
		o = p
	}
	return o, rng.IntN(10) == 0
}

// strangers counts the pods of others in the shard's store: those of which neither gang nor node exists are everybody's.
func (s *shard) strangers() (n int) {
	s.store.Snapshot(cluster.UnixNano(1)).EachPod(func(p *cluster.Pod) {
		if !strings.HasPrefix(p.Name, prefix(s.pool)) {
			n++
		}
	})
	return n
}

// TestShardsDoNotMeet: schedulers with partitions of their own watch one random cluster. An event about what belongs to one
// changes nothing in the stores of the others, not even their generation, which would make them look again; each decides as
// if it were alone; and its plans name only what is its own.
func TestShardsDoNotMeet(t *testing.T) {
	t.Parallel()
	pools := []string{"", "gold", "iron"}
	decided, untouched := 0, 0
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 7))
		shards := make([]*shard, len(pools))
		for i, pool := range pools {
			p, err := profile.ForShard(profile.Shard{GPUStrategy: []string{"binpack", "spread"}[i%2]})
			if err != nil {
				t.Fatal(err)
			}
			e, err := engine.New(p, builtin.Registry())
			if err != nil {
				t.Fatal(err)
			}
			s := newStage(t, Options{Partition: kai.Partition{Key: kai.DefaultNodePoolKey, Value: pool}})
			shards[i] = &shard{s, pool, e}
		}
		for _, pool := range pools { // so that few pods are nobody's
			for k := range 3 {
				for _, s := range shards {
					s.say(pooled(node(fmt.Sprint(prefix(pool), "n", k)), pool), pooled(gang(fmt.Sprint(prefix(pool), "g", k), ""), pool))
				}
			}
		}
		for step := range 120 {
			i := rng.IntN(len(pools))
			o, gone := poolEvent(rng, pools[i])
			before := make([]uint64, len(shards))
			for j, s := range shards {
				s.drain()
				before[j] = s.store.Generation()
			}
			for j, s := range shards {
				strangers := s.strangers()
				switch _, known := s.known[s.key(o)]; {
				case !gone:
					s.say(o)
				case known:
					s.end(o)
				}
				s.drain()
				if j == i || strangers+s.strangers() > 0 {
					continue
				}
				untouched++
				if s.store.Generation() != before[j] {
					t.Fatalf("seed %d, step %d: %T %s (gone: %v) of pool %q changed shard %q", seed, step, o, o.GetName(), gone, pools[i], s.pool)
				}
			}
		}
		for i, s := range shards {
			snap := s.store.Snapshot(cluster.UnixNano(1))
			alone := newStage(t, Options{Partition: kai.Partition{Key: kai.DefaultNodePoolKey, Value: s.pool}})
			for _, o := range s.known {
				if strings.HasPrefix(o.GetName(), prefix(s.pool)) {
					alone.say(o)
				}
			}
			alone.drain()
			// A pod of no known gang and on no known node is everybody's; what it is to others does not matter.
			differ := slices.DeleteFunc(Compare(alone.store.Snapshot(cluster.UnixNano(1)), snap), func(line string) bool {
				return strings.HasPrefix(line, "pod ") && !strings.HasPrefix(line, "pod a/"+prefix(s.pool))
			})
			if len(differ) > 0 {
				t.Fatalf("seed %d: shard %q alone (first) and among others:\n%s", seed, s.pool, strings.Join(differ, "\n"))
			}
			decided += s.decide(t, snap, seed)
			if i == 0 && snap.QueueByName(prefix("gold")+"q0") != nil {
				t.Fatalf("seed %d: the shard without a pool sees another's queue", seed)
			}
		}
	}
	if decided < 100 || untouched < 3000 {
		t.Errorf("only %d intents and %d events were looked at", decided, untouched)
	}
}

// decide runs the shard's engine, checks that what it intends is about its own, and counts it.
func (s *shard) decide(t *testing.T, snap *cluster.Snapshot, seed uint64) (n int) {
	t.Helper()
	own := func(name string) bool { return name == "" || strings.HasPrefix(name, prefix(s.pool)) }
	s.engine.Run(context.Background(), snap, func(p engine.Plan) {
		for i := range p.Bundles {
			b := &p.Bundles[i]
			if !own(b.Gang.Name) {
				t.Errorf("seed %d: shard %q decides on gang %s", seed, s.pool, b.Gang)
			}
			for j := range b.Intents {
				n++
				if in := &b.Intents[j]; !own(in.Pod) || !own(in.Node) || !own(in.Gang.Name) {
					t.Errorf("seed %d: shard %q: %s %s of %s on %s", seed, s.pool, in.Verb, in.Pod, in.Gang, in.Node)
				}
			}
		}
	})
	return n
}

// TestWhatChangesShards: a gang and a node that go over to another shard take their pods with them, in whatever order it is
// told, and what a foreign pod holds on a node of ours counts.
func TestWhatChangesShards(t *testing.T) {
	t.Parallel()
	gold, iron := kai.Partition{Key: kai.DefaultNodePoolKey, Value: "gold"}, kai.Partition{Key: kai.DefaultNodePoolKey, Value: "iron"}
	waits, runs := pod("waits", "w", 1), pod("runs", "r", 1)
	runs.Spec.NodeName, runs.Status.Phase = "n1", v1.PodRunning
	for name, c := range map[string]struct {
		say  []client.Object
		want []string // in gold
	}{
		"all theirs":                        {[]client.Object{pooled(node("n1"), "iron"), pooled(gang("g", ""), "iron"), waits, runs}, nil},
		"their gang, pods first":            {[]client.Object{waits, runs, pooled(gang("g", ""), "iron"), pooled(node("n1"), "iron")}, nil},
		"their gang on our node":            {[]client.Object{waits, runs, pooled(gang("g", ""), "iron"), pooled(node("n1"), "gold")}, []string{"r@n1 Running"}},
		"our gang on their node":            {[]client.Object{waits, runs, pooled(gang("g", ""), "gold"), pooled(node("n1"), "iron")}, []string{"w@ Pending", "r@n1 Running"}},
		"the gang comes over":               {[]client.Object{pooled(gang("g", ""), "iron"), waits, pooled(gang("g", ""), "gold")}, []string{"w@ Pending"}},
		"the gang goes over":                {[]client.Object{pooled(gang("g", ""), "gold"), waits, pooled(gang("g", ""), "iron")}, nil},
		"the node comes over":               {[]client.Object{pooled(gang("g", ""), "iron"), runs, pooled(node("n1"), "iron"), pooled(node("n1"), "gold")}, []string{"r@n1 Running"}},
		"the node goes over":                {[]client.Object{pooled(gang("g", ""), "iron"), pooled(node("n1"), "gold"), runs, pooled(node("n1"), "iron")}, nil},
		"promised to our node":              {[]client.Object{pooled(gang("g", ""), "iron"), pooled(node("n1"), "gold"), waits, pooled(bind(waits, "n1", 2), "iron")}, []string{"w@n1 Binding"}},
		"a gang that does not exist (yet)":  {[]client.Object{pooled(node("n1"), "gold"), waits}, []string{"w@ Pending"}},
		"their node, a gang of nobody":      {[]client.Object{pooled(node("n1"), "iron"), runs}, nil},
		"a node that does not exist (more)": {[]client.Object{pooled(gang("g", ""), "gold"), runs}, []string{"r@n1 Running"}},
	} {
		for _, often := range []bool{false, true} {
			s := newStage(t, Options{Partition: gold})
			for _, o := range c.say {
				s.say(o)
				if often {
					s.drain()
				}
			}
			t.Log(name, often)
			s.expect(c.want...)
		}
	}
	s := newStage(t, Options{Partition: iron})
	s.say(pooled(gang("g", ""), "gold"), waits, pooled(node("n1"), "gold"), runs)
	s.expect()
	s.end(&v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "waits", UID: types.UID("w")}}, pooled(gang("g", ""), "gold"))
	s.expect()
}

// TestGangLeavesItsPods: a gang that goes to another pool leaves what runs to the shard that placed it, which knows whom to tell.
func TestGangLeavesItsPods(t *testing.T) {
	t.Parallel()
	s := newStage(t, Options{Partition: kai.Partition{Key: kai.DefaultNodePoolKey, Value: "gold"}})
	p, g := pod("runs", "r", 1), gang("g", "")
	g.UID = "group-1"
	p.Spec.NodeName, p.Status.Phase = "n1", v1.PodRunning
	p.Annotations[keys.ChargedAnnotation] = "research/g"
	s.say(pooled(node("n1"), "gold"), pooled(g, "gold"), p)
	s.drain()
	left := func() (out []string) {
		for g := range s.store.Snapshot(cluster.Instant{}).OddGangs() {
			out = append(out, fmt.Sprintf("%s of %s", g.Key, g.FormerUID))
		}
		return out
	}
	for _, step := range []struct {
		pool string
		want []string
	}{
		{"iron", []string{"a/g@research of group-1"}},
		{"gold", []string{"a/g@research of group-1"}}, // its object names no queue
	} {
		s.say(pooled(g, step.pool))
		s.drain()
		if d := cmp.Diff(step.want, left()); d != "" {
			t.Errorf("in %s: %s", step.pool, d)
		}
	}
	s.end(g)
	s.drain()
	if d := cmp.Diff([]string{"a/g@research of "}, left()); d != "" {
		t.Errorf("gone: %s", d)
	}
}
