package dialect

import (
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	schedulingv1alpha3 "k8s.io/api/scheduling/v1alpha3"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-scheduler/muster/api/kai/keys"
	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/dialect/kai"
	"github.com/muster-scheduler/muster/internal/dialect/upstream"
)

func upstreamPod(name, uid, group, queue string, made int64) *v1.Pod {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(uid), CreationTimestamp: metav1.Unix(made, 0)}, Spec: v1.PodSpec{SchedulerName: kai.DefaultSchedulerName}}
	if group != "" {
		p.Spec.SchedulingGroup = &v1.PodSchedulingGroup{PodGroupName: &group}
	}
	if queue != "" {
		p.Labels = map[string]string{keys.QueueLabel: queue}
	}
	return p
}

func upstreamGroupOf(name, queue, near string) *schedulingv1beta1.PodGroup {
	pg := &schedulingv1beta1.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID("u-" + name)}}
	pg.Spec.SchedulingPolicy.Gang = &schedulingv1beta1.GangSchedulingPolicy{MinCount: 2}
	if queue != "" {
		pg.Labels = map[string]string{keys.QueueLabel: queue}
	}
	if near != "" {
		pg.Spec.SchedulingConstraints = &schedulingv1beta1.PodGroupSchedulingConstraints{Topology: []schedulingv1beta1.TopologyConstraint{{Key: near}}}
	}
	return pg
}

func compositeOf(name, queue, parent string) *schedulingv1alpha3.CompositePodGroup {
	c := &schedulingv1alpha3.CompositePodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID("c-" + name)}}
	c.Spec.SchedulingPolicy.Gang = &schedulingv1alpha3.CompositeGangSchedulingPolicy{MinGroupCount: 1}
	if queue != "" {
		c.Labels = map[string]string{keys.QueueLabel: queue}
	}
	if parent != "" {
		c.Spec.ParentCompositePodGroupName = &parent
	}
	return c
}

// TestUpstreamsHistory: whatever has been told of groups, trees of them, their pods and nodes, in whatever order and batches, is as if only what is there had been told of, once.
func TestUpstreamsHistory(t *testing.T) {
	t.Parallel()
	const pool = "example.com/pool"
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1))
		pick := func(words ...string) string { return words[r.IntN(len(words))] }
		options := Options{Partition: kai.Partition{Key: pool}}
		s, tr := cluster.NewStore(cluster.Options{}), NewTranslator(options)
		apply := func(e cluster.Event) { s.Apply(e) }
		standing := map[name]Object{}
		for range 90 {
			var k Kind
			var o Object
			switch r.IntN(6) {
			case 0:
				pg := upstreamGroupOf(pick("a", "b"), pick("", "", "q", "r"), pick("", "rack", "hall"))
				if parent := pick("", "c", "d", "e"); parent != "" {
					pg.Spec.ParentCompositePodGroupName = &parent
				}
				if r.IntN(4) == 0 {
					pg.DeletionTimestamp = &metav1.Time{Time: metav1.Unix(9, 0).Time}
				}
				if r.IntN(4) == 0 {
					pg.Annotations = map[string]string{keys.SubgroupsAnnotation: "x=1"}
				}
				k, o = UpstreamPodGroups, pg
			case 2, 3:
				c := compositeOf(pick("c", "d", "e"), pick("", "", "q", "r"), pick("", "", "c", "d", "e"))
				if r.IntN(3) == 0 {
					c.Spec.SchedulingConstraints = &schedulingv1alpha3.CompositePodGroupSchedulingConstraints{Topology: []schedulingv1alpha3.TopologyConstraint{{Key: pick("rack", "hall")}}}
				}
				if r.IntN(5) == 0 {
					c.Labels = map[string]string{pool: pick("here", "there")}
				}
				k, o = CompositePodGroups, c
			case 1:
				n := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: pick("n1", "n2"), Labels: map[string]string{}}}
				if label := pick("", "rack", "hall"); label != "" {
					n.Labels[label] = "x"
				}
				n.UID = types.UID(n.Name)
				k, o = Nodes, n
			default:
				called := pick("p", "o", "m", "l")
				p := upstreamPod(called, called+pick("1", "2"), pick("", "a", "b"), pick("", "q", "r"), int64(r.IntN(3)))
				if r.IntN(4) == 0 {
					p.Annotations = map[string]string{kai.PodGroupAnnotation: "k"}
				}
				if r.IntN(8) == 0 {
					p.Spec.SchedulerName = "other"
				}
				k, o = Pods, p
			}
			if of := (name{k, KeyOf(o)}); r.IntN(3) == 0 {
				delete(standing, of)
				tr.Take(k, of.key, nil, apply)
			} else {
				standing[of] = o
				tr.Take(k, of.key, o, apply)
			}
		}
		var objects []Object
		for _, o := range standing { // order: any will do
			objects = append(objects, o)
		}
		if d := cmp.Diff(told(options, objects).Image().Events, s.Snapshot(cluster.UnixNano(1)).Image().Events); d != "" {
			t.Fatalf("seed %d: (-told once +as it came):\n%s", seed, d)
		}
	}
}

// TestUpstreamsStatus: of a group that changed in its status alone nothing is told, neither of itself nor of the tree that it is in; of one whose spec, label or annotation changed, the gang.
func TestUpstreamsStatus(t *testing.T) {
	t.Parallel()
	parent := "c"
	tr, gangs := NewTranslator(Options{}), 0
	take := func(k Kind, o Object) int {
		gangs = 0
		tr.Take(k, KeyOf(o), o, func(e cluster.Event) {
			if _, ok := e.(cluster.GangState); ok {
				gangs++
			}
		})
		return gangs
	}
	take(CompositePodGroups, compositeOf(parent, "q", ""))
	for _, below := range []*string{nil, &parent} {
		pg := upstreamGroupOf("a", "q", "")
		pg.Spec.ParentCompositePodGroupName = below
		if take(UpstreamPodGroups, pg) == 0 {
			t.Fatal("a new group is not told")
		}
		pg = pg.DeepCopy()
		pg.Status.Conditions = []metav1.Condition{{Type: schedulingv1beta1.PodGroupInitiallyScheduled, Status: metav1.ConditionTrue}}
		pg.ResourceVersion = "2"
		if n := take(UpstreamPodGroups, pg); n != 0 {
			t.Errorf("a status has %d gangs told", n)
		}
		for what, edit := range map[string]func(*schedulingv1beta1.PodGroup){
			"spec":  func(g *schedulingv1beta1.PodGroup) { g.Spec.SchedulingPolicy.Gang.MinCount++ },
			"label": func(g *schedulingv1beta1.PodGroup) { g.Labels = map[string]string{keys.QueueLabel: "r" + g.Name} },
			"annotation": func(g *schedulingv1beta1.PodGroup) {
				g.Annotations = map[string]string{keys.SubgroupsAnnotation: "x=1"}
			},
		} {
			next := pg.DeepCopy()
			edit(next)
			if take(UpstreamPodGroups, next) == 0 {
				t.Errorf("another %s has no gang told", what)
			}
			take(UpstreamPodGroups, pg)
		}
	}
}

// TestUpstreamsMembers: which gang a pod is in, which queue a gang is of, and which topologies there are, is as a slow reading of all objects says: pods of ours go to the group that they name
// if it is not there (or is, by its own label or the first pod's, of the queue that theirs names), unless it is not there and they name a PodGroup of KAI's.
func TestUpstreamsMembers(t *testing.T) {
	t.Parallel()
	or := func(words ...string) string {
		for _, w := range words {
			if w != "" {
				return w
			}
		}
		return ""
	}
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 2))
		pick := func(words ...string) string { return words[r.IntN(len(words))] }
		groups, pods, labels := map[string]*schedulingv1beta1.PodGroup{}, []*v1.Pod{}, map[string]bool{}
		var objects []Object
		for _, g := range []string{"a", "b"} {
			if r.IntN(4) > 0 {
				groups[g] = upstreamGroupOf(g, pick("", "q", "r"), pick("", "rack", "hall"))
				objects = append(objects, groups[g])
			}
		}
		for _, n := range []string{"n1", "n2"} {
			label := pick("rack", "hall", "other")
			labels[label] = true
			objects = append(objects, &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: n, UID: types.UID(n), Labels: map[string]string{label: "x"}}})
		}
		for i := range r.IntN(6) {
			p := upstreamPod(string(rune('p'+i)), string(rune('z'-i)), pick("", "a", "b"), pick("", "q", "r", keys.DefaultQueue), int64(r.IntN(3)))
			if r.IntN(4) == 0 {
				p.Annotations = map[string]string{kai.PodGroupAnnotation: "k"}
			}
			pods, objects = append(pods, p), append(objects, p)
		}
		r.Shuffle(len(objects), func(i, j int) { objects[i], objects[j] = objects[j], objects[i] })
		snap := told(Options{}, objects)
		named := func(p *v1.Pod) string {
			if p.Spec.SchedulingGroup == nil {
				return ""
			}
			return *p.Spec.SchedulingGroup.PodGroupName
		}
		queueOf := func(g string) string {
			queue, first := groups[g].Labels[keys.QueueLabel], (*v1.Pod)(nil)
			for _, p := range pods {
				earlier := first == nil || p.CreationTimestamp.Unix() < first.CreationTimestamp.Unix() || p.CreationTimestamp.Unix() == first.CreationTimestamp.Unix() && p.UID < first.UID
				if named(p) == g && earlier {
					first = p
				}
			}
			if queue == "" && first != nil {
				queue = first.Labels[keys.QueueLabel]
			}
			return or(queue, keys.DefaultQueue)
		}
		want := map[string]cluster.Key{}
		for _, p := range pods {
			g, kais := named(p), p.Annotations[kai.PodGroupAnnotation]
			switch there := groups[g] != nil; {
			case g == "" && kais != "", g != "" && !there && kais != "":
				want[p.Name] = kai.GangKey("ns", kais)
			case g == "", there && or(p.Labels[keys.QueueLabel], keys.DefaultQueue) != queueOf(g):
				want[p.Name] = cluster.Key{}
			default:
				want[p.Name] = upstream.GangKey("ns", g)
			}
		}
		got := map[string]cluster.Key{}
		snap.EachPod(func(p *cluster.Pod) { got[p.Name] = p.GangKey() })
		if d := cmp.Diff(want, got); d != "" {
			t.Fatalf("seed %d: gangs of pods (-want +got):\n%s", seed, d)
		}
		laid := map[string]bool{}
		for g, pg := range groups { // order: each by itself
			if is := snap.GangByKey(upstream.GangKey("ns", g)); is == nil || is.Queue != queueOf(g) {
				t.Fatalf("seed %d: group %s is %+v, want queue %s", seed, g, is, queueOf(g))
			}
			if key := upstream.TopologyKey(pg); labels[key] {
				laid[upstream.TopologyName(key)] = true
			}
		}
		for _, e := range snap.Image().Events {
			if of, ok := e.(cluster.TopologyState); ok {
				if !laid[of.Name] {
					t.Fatalf("seed %d: topology %s is there, want %v", seed, of.Name, laid)
				}
				delete(laid, of.Name)
			}
		}
		if len(laid) > 0 {
			t.Fatalf("seed %d: the topologies %v are lacking", seed, laid)
		}
	}
}

// TestUpstreamsCharge: what a pod is charged for as of a group stays charged to the group's queue when the group goes, or moves: in a remnant of its own, and not in that of
// a gang of KAI's of the same name.
func TestUpstreamsCharge(t *testing.T) {
	t.Parallel()
	bound := upstreamPod("p", "p", "g", "q", 1)
	bound.Spec.NodeName, bound.Status.Phase = "n", v1.PodRunning
	bound.Annotations = kai.WriteCharged(cluster.Charged{Queue: "q", Gang: upstream.GangKey("ns", "g")})
	if got := bound.Annotations[keys.ChargedAnnotation]; got != "q/upstream:g" {
		t.Fatalf("the record is %q", got)
	}
	kais := upstreamPod("k", "k", "", "q", 1)
	kais.Spec.NodeName, kais.Status.Phase = "n", v1.PodRunning
	kais.Annotations = kai.WriteCharged(cluster.Charged{Queue: "q", Gang: kai.GangKey("ns", "g")})
	node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "n"}}
	for what, objects := range map[string][]Object{ // order: each by itself
		"gone":  {node, bound, kais},
		"moved": {node, bound, kais, upstreamGroupOf("g", "other", "")},
	} {
		snap := told(Options{}, objects)
		of := map[cluster.Key]string{}
		snap.EachGang(func(g *cluster.Gang) {
			for _, id := range g.Pods {
				of[g.Key] = snap.Pod(id).Name + " of " + g.Queue
			}
		})
		want := map[cluster.Key]string{cluster.RemnantKey(upstream.GangKey("ns", "g"), "q"): "p of q", cluster.RemnantKey(kai.GangKey("ns", "g"), "q"): "k of q"}
		if d := cmp.Diff(want, of); d != "" {
			t.Errorf("%s: (-want +got):\n%s", what, d)
		}
	}
	snap := told(Options{}, []Object{node, bound, kais, upstreamGroupOf("g", "q", "")})
	if g := snap.GangByKey(upstream.GangKey("ns", "g")); g == nil || len(g.Pods) != 1 || snap.Pod(g.Pods[0]).Name != "p" {
		t.Errorf("where the group is there, it is %+v", g)
	}
	for _, key := range []cluster.Key{upstream.GangKey("ns", "g"), kai.GangKey("ns", "g"), {Face: "volcano", Namespace: "ns", Name: "g"}} {
		queue := "q"
		if key.Face == "volcano" {
			queue = "volcano:q"
		}
		if got := cluster.RemnantKey(key, queue).Former(); got != key {
			t.Errorf("a remnant of %v was one of %v", key, got)
		}
	}
}
