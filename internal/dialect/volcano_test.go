package dialect

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-scheduler/muster/api/scheduling/v2alpha2"
	vckeys "github.com/muster-scheduler/muster/api/volcano/keys"
	"github.com/muster-scheduler/muster/api/volcano/scheduling/v1beta1"
	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/dialect/kai"
	"github.com/muster-scheduler/muster/internal/dialect/volcano"
)

// volcanoWorld is a gang of Volcano's in a queue that is not there, and what is like it in another face.
func volcanoWorld() []Object {
	group := &v1beta1.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "g", UID: "vg"}, Spec: v1beta1.PodGroupSpec{MinMember: 1, Queue: "q", PriorityClassName: "high"}}
	queue := &v1beta1.Queue{ObjectMeta: metav1.ObjectMeta{Name: "q", UID: "vq"}}
	kais := &v2alpha2.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "g", UID: "kg"}, Spec: v2alpha2.PodGroupSpec{Queue: volcano.QueueName("q")}}
	class := &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "high"}, Value: 9}
	pod := func(name, scheduler string) *v1.Pod {
		return &v1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: "u" + "-" + "p", Annotations: map[string]string{vckeys.GroupName: "g", kai.PodGroupAnnotation: "g"}},
			Spec:       v1.PodSpec{SchedulerName: scheduler},
		}
	}
	theirs, mine := pod("v", vckeys.SchedulerName), pod("k", kai.DefaultSchedulerName)
	mine.UID = "u-k"
	return []Object{theirs, mine, group, queue, kais, class}
}

// told is the store that objects make, told of in that order, one by one.
func told(o Options, objects []Object) *cluster.Snapshot {
	s, t := cluster.NewStore(cluster.Options{}), NewTranslator(o)
	for _, object := range objects {
		k, _ := KindOf(object)
		t.Take(k, KeyOf(object), object, func(e cluster.Event) { s.Apply(e) })
	}
	return s.Snapshot(cluster.UnixNano(1))
}

// TestVolcanosFace: pods that name Volcano's scheduler are ours with the face, in the gang of their face; a PodGroup of KAI's cannot name another face's
// queue; the order of what is told makes no difference; and without the face such a pod is somebody else's.
func TestVolcanosFace(t *testing.T) {
	t.Parallel()
	on := Options{Volcano: []string{vckeys.SchedulerName}}
	objects := volcanoWorld()
	snap := told(on, objects)
	g := snap.GangByKey(volcano.GangKey("ns", "g"))
	if g == nil || g.Queue != "volcano:q" || g.Priority != 9 || len(g.Pods) != 1 || snap.Pod(g.Pods[0]).Name != "v" || !snap.Pod(g.Pods[0]).Ours {
		t.Errorf("Volcano's gang is %+v", g)
	}
	k := snap.GangByKey(kai.GangKey("ns", "g"))
	if k == nil || len(k.Pods) != 1 || snap.Pod(k.Pods[0]).Name != "k" || snap.QueueByName(k.Queue) != nil {
		t.Errorf("KAI's gang is %+v", k)
	}
	if q, root := snap.QueueByName("volcano:q"), snap.QueueByName("volcano:root"); q == nil || root == nil || q.Parent != root.Name || root.Parent != "" {
		t.Errorf("queue %+v below %+v", q, root)
	}
	want := snap.Image().Events
	slices.Reverse(objects)
	if d := cmp.Diff(want, told(on, objects).Image().Events); d != "" {
		t.Errorf("told of in another order (-want +got):\n%s", d)
	}
	off := told(Options{}, objects[4:])
	off.EachPod(func(p *cluster.Pod) {
		if p.Ours != (p.Name == "k") || strings.HasPrefix(p.GangKey().Face, volcano.Face) {
			t.Errorf("without the face pod %s is ours: %v, of %v", p.Name, p.Ours, p.GangKey())
		}
	})
}

// TestVolcanosRootComesAndGoes: root is there while there is any queue, with its object's word where there is one.
func TestVolcanosRootComesAndGoes(t *testing.T) {
	t.Parallel()
	s, tr := cluster.NewStore(cluster.Options{}), NewTranslator(Options{Volcano: []string{vckeys.SchedulerName}})
	tell := func(name string, q *v1beta1.Queue) *cluster.Queue {
		var o Object
		if q != nil {
			o = q
		}
		tr.Take(VolcanoQueues, KeyOf(&v1beta1.Queue{ObjectMeta: metav1.ObjectMeta{Name: name}}), o, func(e cluster.Event) { s.Apply(e) })
		return s.Snapshot(cluster.UnixNano(1)).QueueByName("volcano:root")
	}
	object := &v1beta1.Queue{ObjectMeta: metav1.ObjectMeta{Name: "root", UID: "r"}}
	for i, step := range []struct {
		name string
		q    *v1beta1.Queue
		uid  string
		none bool
	}{
		{"q", &v1beta1.Queue{ObjectMeta: metav1.ObjectMeta{Name: "q"}}, "", false},
		{"root", object, "r", false},
		{"root", nil, "", false},
		{"q", nil, "", true},
		{"root", object, "r", false},
		{"root", nil, "", true},
	} {
		if root := tell(step.name, step.q); (root == nil) != step.none || root != nil && root.UID != step.uid {
			t.Errorf("step %d: root is %+v", i, root)
		}
	}
}
