package explain

import (
	"context"
	"fmt"
	"math/rand"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/engine/builtin"
	"github.com/muster-scheduler/muster/internal/profile"
)

func newEngine() (*engine.Engine, error) { return engine.New(profile.BuiltIn(), builtin.Registry()) }

const gib = int64(1) << 30

var now = cluster.UnixNano(1_700_000_000_000_000_000)

// draw makes a random cluster with a gang that waits in it, target, and blocks it in some of all known ways.
type draw struct {
	*rand.Rand
	store  *cluster.Store
	target cluster.Key
	gang   cluster.GangState
	pods   []cluster.PodState
}

func (d *draw) chance(percent int) bool { return d.Intn(100) < percent }

func pickOne[T any](d *draw, of ...T) T { return of[d.Intn(len(of))] }

func request(cpu, memGiB, gpu int) []cluster.Quantity {
	qs := []cluster.Quantity{{Name: "cpu", Value: int64(cpu) * 1000}, {Name: "memory", Value: int64(memGiB) * gib}, {Name: "pods", Value: 1}}
	if gpu > 0 {
		qs = append(qs, cluster.Quantity{Name: "gpu", Value: int64(gpu) * 1000})
	}
	return qs
}

func newDraw(seed int64) *draw {
	d := &draw{Rand: rand.New(rand.NewSource(seed)), store: cluster.NewStore(cluster.Options{}), target: cluster.Key{Face: "kai", Namespace: "team", Name: "target"}}
	d.nodes()
	d.queues()
	d.others()
	d.makeTarget()
	if d.chance(25) {
		d.fill()
	} else {
		for range 1 + d.Intn(3) {
			d.block()
		}
	}
	if d.chance(30) {
		d.gang.PreemptionDelay, d.gang.Created = time.Duration(1+d.Intn(100))*1e9, now.Add(-1e9)
	}
	d.store.Apply(d.gang)
	for _, p := range d.pods {
		d.store.Apply(p)
	}
	return d
}

func (d *draw) nodes() {
	for i := range d.Intn(8) {
		n := cluster.NodeState{
			Name: fmt.Sprintf("n%d", i), UID: fmt.Sprintf("n%d", i), Labels: map[string]string{"zone": pickOne(d, "a", "b"), "model": pickOne(d, "a100", "h100")},
			Allocatable: []cluster.Quantity{
				{Name: "cpu", Value: 64000},
				{Name: "memory", Value: 256 * gib},
				{Name: "gpu", Value: int64(pickOne(d, 0, 4, 8)) * 1000},
				{Name: "pods", Value: int64(pickOne(d, 4, 20, 110))},
			},
		}
		if d.chance(20) {
			n.Taints = append(n.Taints, v1.Taint{Key: "team", Value: pickOne(d, "x", "y"), Effect: v1.TaintEffectNoSchedule})
		}
		if d.chance(20) {
			n.Problem = pickOne(d, "Unschedulable", "NotReady", "DiskPressure")
		}
		d.store.Apply(n)
	}
}

func (d *draw) queues() {
	bound := func(percent int) []cluster.Quantity {
		var out []cluster.Quantity
		for _, dim := range []string{"gpu", "cpu", "memory"} {
			if d.chance(percent) {
				unit := map[string]int64{"gpu": 1000, "cpu": 1000, "memory": gib}[dim]
				out = append(out, cluster.Quantity{Name: dim, Value: unit * int64(d.Intn(80))})
			}
		}
		return out
	}
	add := func(name, parent string) {
		d.store.Apply(cluster.QueueState{Name: name, UID: name, Parent: parent, Quota: bound(70), Limit: bound(8)})
	}
	add("org", "")
	add("dept", "org")
	add("leaf", "dept")
	add("other", "dept")
	add("lost", "nowhere")
	add("ring1", "ring2")
	add("ring2", "ring1")
	add("hang", "ring1")
	add("self", "self")
	for name, value := range map[string]int32{"one": 1, "two": 2, "three": 3, "four": 4, "fixed": 125} {
		d.store.Apply(class(name, value))
	}
}

// others run, and wait.
func (d *draw) others() {
	for i := range d.Intn(6) {
		name := fmt.Sprintf("other%d", i)
		key := cluster.Key{Face: "kai", Namespace: "team", Name: name}
		d.store.Apply(cluster.GangState{Key: key, UID: name, Queue: pickOne(d, "leaf", "other"), Priority: int32(d.Intn(3)), Preemptible: d.chance(50), Created: cluster.UnixNano(int64(i))})
		for k := range 1 + d.Intn(4) {
			p := cluster.PodState{
				UID: fmt.Sprintf("%s-%d", name, k), Namespace: "team", Name: fmt.Sprintf("%s-%d", name, k), Ours: true, Gang: key, Spec: &cluster.ClassSpec{},
				Requests: request(1+d.Intn(8), 1+d.Intn(16), d.Intn(5)),
			}
			if d.chance(15) {
				p.Spec.HostPorts = []cluster.HostPort{{IP: "0.0.0.0", Protocol: "TCP", Port: 80}}
			}
			if d.chance(75) {
				p.Phase, p.NodeName = pickOne(d, cluster.Running, cluster.Running, cluster.Bound, cluster.Releasing), fmt.Sprintf("n%d", d.Intn(8))
				if p.Phase == cluster.Releasing {
					p.DeletedAt = now
				}
			}
			d.store.Apply(p)
		}
	}
}

func (d *draw) makeTarget() {
	d.gang = cluster.GangState{Key: d.target, UID: "target", Queue: "leaf", Priority: 1, Preemptible: d.chance(60), Created: cluster.UnixNano(100)}
	names := []string{""}
	if d.chance(40) {
		names = []string{"workers", "chief"}[:1+d.Intn(2)]
		d.gang.Sets = []cluster.Set{{Parent: cluster.None, Min: int32(1 + d.Intn(len(names)))}}
	}
	for _, name := range names {
		min := 1 + d.Intn(5)
		if name == "" {
			d.gang.Sets = cluster.FlatTree(int32(min))
		} else {
			d.gang.Sets[0].Children = append(d.gang.Sets[0].Children, int32(len(d.gang.Sets)))
			d.gang.Sets = append(d.gang.Sets, cluster.Set{Name: name, Parent: 0, Leaf: true, Min: int32(min)})
		}
		req := request(1+d.Intn(8), 1+d.Intn(32), pickOne(d, 0, 1, 2, 4, 8))
		extra := pickOne(d, 0, 0, 0, 1, 2)
		for k := range min + extra {
			p := cluster.PodState{UID: fmt.Sprintf("t-%s%d", name, k), Namespace: "team", Name: fmt.Sprintf("t-%s%d", name, k), Ours: true, Gang: d.target, SetName: name, Spec: &cluster.ClassSpec{}, Requests: req}
			d.pods = append(d.pods, p)
		}
	}
}

// fill puts work that may be preempted everywhere: of a higher priority than the target's, or of a lower one that is
// protected for a while.
func (d *draw) fill() {
	protected := d.chance(50)
	leaf := cluster.QueueState{Name: "leaf", UID: "leaf", Parent: "dept", Quota: []cluster.Quantity{{Name: "cpu", Value: cluster.Unlimited}, {Name: "memory", Value: cluster.Unlimited}, {Name: "gpu", Value: cluster.Unlimited}}}
	if protected {
		leaf.PreemptMinRuntime = cluster.Maybe[time.Duration]{Set: true, Value: 60e9}
	}
	d.store.Apply(leaf)
	for i := range 8 {
		key := cluster.Key{Face: "kai", Namespace: "team", Name: fmt.Sprintf("full%d", i)}
		priority := int32(1 + d.Intn(3))
		if protected {
			priority = 0
		}
		d.store.Apply(cluster.GangState{Key: key, UID: key.Name, Queue: "leaf", Priority: priority, Preemptible: true, Sets: cluster.FlatTree(1), LastStart: now.Add(-time.Duration(d.Intn(50)) * 1e9)})
		d.store.Apply(cluster.PodState{
			UID: key.Name, Namespace: "team", Name: key.Name, Ours: true, Gang: key, Phase: cluster.Running, NodeName: fmt.Sprintf("n%d", i), Requests: request(64, 250, 0),
		})
	}
}

// block puts one obstacle in the target's way.
func (d *draw) block() {
	all := func(f func(p *cluster.PodState)) {
		for i := range d.pods {
			f(&d.pods[i])
		}
	}
	someOf := func(f func(p *cluster.PodState)) {
		for i := range d.pods {
			if d.chance(60) {
				f(&d.pods[i])
			}
		}
	}
	selector := func(op v1.NodeSelectorOperator, key string, values ...string) *v1.NodeAffinity {
		return &v1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{{
			MatchExpressions: []v1.NodeSelectorRequirement{{Key: key, Operator: op, Values: values}},
		}}}}
	}
	switch d.Intn(24) {
	case 0:
		d.gang.Queue = pickOne(d, "absent", "", "lost")
	case 1:
		d.gang.Queue = pickOne(d, "dept", "org")
	case 2:
		d.gang.Queue = pickOne(d, "ring1", "ring2", "hang", "self")
	case 3:
		d.gang.Invalid, d.gang.Sets = "spec.subGroups[0].parent makes a cycle", []cluster.Set{{Parent: cluster.None}}
	case 4:
		d.gang.GaveUp = true
	case 5:
		someOf(func(p *cluster.PodState) { p.Phase = cluster.Gated })
	case 6:
		if k := d.Intn(len(d.pods)); k > 0 {
			d.pods = d.pods[:k]
		}
	case 7:
		someOf(func(p *cluster.PodState) { p.SetName = "typo" })
	case 8:
		all(func(p *cluster.PodState) { p.Spec.ConfigMaps = []string{"settings"} })
		d.store.Apply(cluster.ObjectState{Kind: cluster.ConfigMaps, Key: "team/else", Object: &metav1.PartialObjectMetadata{}})
	case 9:
		all(func(p *cluster.PodState) { p.Spec.Unsupported = "a shared GPU" })
	case 10:
		all(func(p *cluster.PodState) { p.Requests = request(100, 8, 0) })
	case 11:
		d.store.Apply(cluster.QueueState{Name: "dept", UID: "dept", Parent: "org", Limit: []cluster.Quantity{{Name: "gpu", Value: 1000}, {Name: "cpu", Value: 3000}}})
		d.store.Apply(cluster.QueueState{Name: "leaf", UID: "leaf", Parent: "dept", Limit: []cluster.Quantity{{Name: "gpu", Value: 0}, {Name: "memory", Value: gib}}})
	case 12:
		d.gang.Preemptible = false
	case 13:
		for i := range 8 {
			if n := d.store.Snapshot(now).NodeByName(fmt.Sprintf("n%d", i)); n != nil && d.chance(80) {
				st := n.State(d.store.Snapshot(now).Dims)
				switch d.Intn(2) {
				case 0:
					st.Problem = pickOne(d, "Unschedulable", "NotReady")
				case 1:
					st.Taints = []v1.Taint{{Key: "team", Value: pickOne(d, "x", "y"), Effect: v1.TaintEffectNoExecute}}
				}
				d.store.Apply(st)
			}
		}
	case 14:
		all(func(p *cluster.PodState) { p.Spec.NodeSelector = map[string]string{pickOne(d, "zone", "disk"): "a"} })
	case 15:
		a := pickOne(d, selector(v1.NodeSelectorOpExists, "fast"), selector(v1.NodeSelectorOpGt, "generation", "4"), selector(v1.NodeSelectorOpNotIn, "zone", "a"),
			selector(v1.NodeSelectorOpDoesNotExist, "zone"), selector(v1.NodeSelectorOpIn, "zone", "c", "d"))
		all(func(p *cluster.PodState) { p.Spec.NodeAffinity = a })
	case 16:
		a := &v1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{{
			MatchFields: []v1.NodeSelectorRequirement{{Key: "metadata.name", Operator: v1.NodeSelectorOpIn, Values: []string{pickOne(d, "n0", "n1", "gone")}}},
		}}}}
		all(func(p *cluster.PodState) { p.Spec.NodeAffinity = a })
	case 17:
		all(func(p *cluster.PodState) {
			p.Spec.HostPorts = []cluster.HostPort{{IP: "0.0.0.0", Protocol: "TCP", Port: 80}}
		})
	case 23:
		all(func(p *cluster.PodState) { p.Spec.NodeSelector = map[string]string{"model": "a1000"} })
	case 18:
		all(func(p *cluster.PodState) { p.Spec.RestrictTo = []string{"node-role.kubernetes.io/worker"} })
	case 22: // a contradiction
		all(func(p *cluster.PodState) {
			p.Spec.NodeSelector, p.Spec.NodeAffinity = map[string]string{"zone": "a"}, selector(v1.NodeSelectorOpNotIn, "zone", "a")
		})
	case 21: // two pods that cannot be on the one node they ask for
		d.store.Apply(cluster.NodeState{Name: "n0", UID: "n0", Allocatable: append(request(64, 256, 8), cluster.Quantity{Name: "pods", Value: 110})})
		a := &v1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{{
			MatchFields: []v1.NodeSelectorRequirement{{Key: "metadata.name", Operator: v1.NodeSelectorOpIn, Values: []string{"n0"}}},
		}}}}
		all(func(p *cluster.PodState) {
			p.Spec.NodeAffinity, p.Spec.HostPorts = a, []cluster.HostPort{{IP: "0.0.0.0", Protocol: "TCP", Port: 80}}
		})
	case 20: // a whole pool for somebody else
		for i := range 6 {
			d.store.Apply(cluster.NodeState{
				Name: fmt.Sprintf("n%d", i), UID: "pool", Taints: []v1.Taint{{Key: "pool", Value: "vision", Effect: v1.TaintEffectNoSchedule}},
				Labels: map[string]string{"zone": "a"}, Allocatable: append(request(64, 256, 8), cluster.Quantity{Name: "pods", Value: 110}),
			})
		}
	case 19:
		all(func(p *cluster.PodState) { p.Requests = request(8, 64, 8) })
	}
}

// placeable asks a fresh engine in a fresh fork, in which nobody else waits.
func placeable(t *testing.T, snap *cluster.Snapshot, key cluster.Key, changes []*Change) bool {
	t.Helper()
	store := cluster.Fork(snap, cluster.Options{})
	snap.EachPod(func(p *cluster.Pod) {
		if p.Phase == cluster.Pending && p.GangKey() != key {
			store.Apply(cluster.PodGone{UID: p.UID})
		}
	})
	at := snap.Now
	for _, c := range changes {
		if c != nil {
			at = c.Apply(store, at)
		}
	}
	e, err := newEngine()
	if err != nil {
		t.Fatal(err)
	}
	o := ask(context.Background(), e, store.Snapshot(at), key)
	return o.placed()
}

// For 400 gangs that cannot start: the printed change makes each startable, and no part of it can be left out.
func TestExplanationIsTrue(t *testing.T) {
	t.Parallel()
	const want = 400
	kinds, reasons := map[Kind]int{}, map[string]int{}
	unknown, parts, waiting := 0, 0, 0
	for seed := int64(0); waiting < want; seed++ {
		if seed > 20*want {
			t.Fatalf("only %d of the first %d clusters have a blocked gang", waiting, seed)
		}
		d := newDraw(seed)
		for _, p := range d.pods { // a few were tried before
			if d.chance(3) {
				d.store.Postpone(p.UID, now.Add(time.Duration(1+d.Intn(5))*1e9))
			}
		}
		snap := d.store.Snapshot(now)
		if placeable(t, snap, d.target, nil) {
			continue
		}
		e, err := gangOf(t.Context(), snap, newEngine, d.target)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if e.Pods.Pending+e.Pods.Gated == 0 {
			continue
		}
		waiting++
		reasons[e.Reason]++
		if e.Unknown {
			unknown++
			t.Errorf("seed %d: nothing is known to help: %s", seed, e.Text(100))
			continue
		}
		for _, r := range e.Remedies {
			changes := r.Changes
			if !r.First {
				t.Errorf("seed %d: a remedy is not proven: %+v", seed, r)
			}
			if len(changes) == 0 || !placeable(t, snap, d.target, changes) {
				t.Errorf("seed %d: after the changes the gang does not start:\n%s", seed, e.Text(100))
			}
			for i, c := range changes {
				kinds[c.Kind]++
				if c.Text == "" {
					t.Errorf("seed %d: change %s has no text", seed, c.Kind)
				}
				for _, part := range c.Parts() {
					less := slices.Clone(changes)
					less[i] = part
					parts++
					if placeable(t, snap, d.target, less) {
						t.Errorf("seed %d: the gang starts without a part of %q:\n%s", seed, c.Text, e.Text(100))
					}
				}
			}
		}
		if e.Message == "" || e.Reason == "" {
			t.Errorf("seed %d: no reason:\n%s", seed, e.Text(100))
		}
	}
	for _, k := range []Kind{
		AddRoom, Uncordon, RepairNode, RemoveTaint, Tolerate, LabelNode, RaiseLimit, RaiseQuota, CreateQueue, MoveToQueue, FixParent,
		CreateConfigMap, LiftGate, AddPods, SetSubgroup, EditGang, DropFeature, DropNodeName, DropAffinity, MakePreemptible, Retry, WaitUntil,
		RaisePriority, CorrectSelector, DropSelector, ShrinkPods,
	} {
		if kinds[k] < 2 {
			t.Errorf("%s was proposed %d times: too few to prove anything", k, kinds[k])
		}
	}
	t.Attr("explained", fmt.Sprintf("%d blocked gangs, %d parts left out in turn, %d without a known change", waiting, parts, unknown))
	t.Logf("changes: %s", strings.TrimPrefix(fmt.Sprint(kinds), "map"))
	t.Logf("reasons: %s", strings.TrimPrefix(fmt.Sprint(reasons), "map"))
}
