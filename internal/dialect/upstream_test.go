package dialect

import (
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
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

// TestUpstreamsHistory: whatever has been told of groups, their pods and nodes, in whatever order and batches, is as if only what is there had been told of, once.
func TestUpstreamsHistory(t *testing.T) {
	t.Parallel()
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1))
		pick := func(words ...string) string { return words[r.IntN(len(words))] }
		s, tr := cluster.NewStore(cluster.Options{}), NewTranslator(Options{})
		apply := func(e cluster.Event) { s.Apply(e) }
		standing := map[name]Object{}
		for range 60 {
			var k Kind
			var o Object
			switch r.IntN(4) {
			case 0:
				k, o = UpstreamPodGroups, upstreamGroupOf(pick("a", "b"), pick("", "", "q", "r"), pick("", "rack", "hall"))
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
		if d := cmp.Diff(told(Options{}, objects).Image().Events, s.Snapshot(cluster.UnixNano(1)).Image().Events); d != "" {
			t.Fatalf("seed %d: (-told once +as it came):\n%s", seed, d)
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
