package dialect

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-scheduler/muster/api/kai/keys"
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

// barePod is a pod of Volcano's scheduler that a Job of Kubernetes' made.
func barePod(change func(*v1.Pod)) *v1.Pod {
	p := ownedPod("p", change)
	p.Spec.SchedulerName = vckeys.SchedulerName
	return p
}

// TestVolcanosGangOfOwner: a pod that names no PodGroup is in that of its controller, or in its own, in whatever order is told of them, and in no other; nothing that it says of a queue counts, as it
// does not where it names the PodGroup.
func TestVolcanosGangOfOwner(t *testing.T) {
	t.Parallel()
	const in, out = "[podgroup-u-job vg in volcano:q: p]", "[podgroup-u-job vg in volcano:q: ]"
	for name, c := range map[string]struct {
		pod   func(*v1.Pod)
		group string
		want  string
	}{
		"it says nothing":               {nil, "podgroup-u-job", in},
		"it names it":                   {func(p *v1.Pod) { p.Annotations[vckeys.GroupName] = "podgroup-u-job" }, "podgroup-u-job", in},
		"it names another":              {func(p *v1.Pod) { p.Annotations[vckeys.GroupName] = "g" }, "podgroup-u-job", out},
		"it names another queue":        {func(p *v1.Pod) { p.Annotations[vckeys.QueueName] = "r" }, "podgroup-u-job", in},
		"it is of another namespace":    {func(p *v1.Pod) { p.Namespace = "b" }, "podgroup-u-job", out},
		"its owner is another":          {func(p *v1.Pod) { p.OwnerReferences[0].UID = "u-other" }, "podgroup-u-job", out},
		"its owner does not control it": {func(p *v1.Pod) { p.OwnerReferences[0].Controller = nil }, "podgroup-u-job", out},
		"it has two owners":             {func(p *v1.Pod) { p.OwnerReferences = append([]metav1.OwnerReference{{UID: "u"}}, p.OwnerReferences...) }, "podgroup-u-job", in},
		"it has no owner":               {func(p *v1.Pod) { p.OwnerReferences = nil }, "podgroup-u-p", "[podgroup-u-p vg in volcano:q: p]"},
	} {
		p := barePod(c.pod)
		pg := &v1beta1.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: c.group, UID: "vg"}, Spec: v1beta1.PodGroupSpec{MinMember: 1, Queue: "q"}}
		for _, order := range [][]Object{{p, pg}, {pg, p}} {
			tr, store := NewTranslator(Options{Volcano: []string{vckeys.SchedulerName}}), cluster.NewStore(cluster.Options{})
			apply := func(e cluster.Event) { store.Apply(e) }
			for _, o := range order {
				k, _ := KindOf(o)
				tr.Take(k, KeyOf(o), o, apply)
			}
			if got := fmt.Sprint(gangs(store)); got != c.want {
				t.Errorf("%s: gangs %s, want %s", name, got, c.want)
			}
			if c.want != in {
				continue
			}
			told := p.DeepCopy() // by its Binding
			told.Annotations[vckeys.GroupName] = c.group
			tr.Take(Pods, KeyOf(told), told, apply)
			if got := fmt.Sprint(gangs(store)); got != in {
				t.Errorf("%s, and it is told: gangs %s", name, got)
			}
			tr.Take(VolcanoPodGroups, KeyOf(pg), nil, apply)
			if got := fmt.Sprint(gangs(store)); got != "[]" {
				t.Errorf("%s, and the PodGroup is gone: gangs %s", name, got)
			}
			tr.Take(Pods, KeyOf(p), nil, apply)
			if n := len(tr.volcano.members); n > 0 {
				t.Errorf("%s: left over: %v", name, tr.volcano.members)
			}
		}
	}
}

// TestVolcanosOwnGroups: a pod that was told that it says all that its PodGroup would say is in that gang, in the queue that it names, as long as there is no PodGroup of the name, in whatever order is told of them; a PodGroup
// that is there counts.
func TestVolcanosOwnGroups(t *testing.T) {
	t.Parallel()
	bare := func(name string) *v1.Pod {
		p := ownedPod(name, nil)
		p.Spec.SchedulerName = vckeys.SchedulerName
		p.Annotations[vckeys.QueueName] = "q"
		return p
	}
	told := func(name string) *v1.Pod {
		p := bare(name)
		p.Annotations[keys.OwnGangAnnotation] = volcano.OwnText(p)
		return p
	}
	theirs := told("p")
	theirs.Spec.SchedulerName = "other"
	pg := &v1beta1.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "podgroup-u-job", UID: "vg"}, Spec: v1beta1.PodGroupSpec{MinMember: 1, Queue: "r"}}
	for name, c := range map[string]struct {
		objects []Object
		want    string
	}{
		"it waits":                {[]Object{bare("p")}, "[]"},
		"it is told":              {[]Object{told("p")}, "[podgroup-u-job u-job in volcano:q: p]"},
		"another of its Job":      {[]Object{told("p"), bare("o")}, "[podgroup-u-job u-job in volcano:q: o p]"},
		"both are":                {[]Object{told("p"), told("o")}, "[podgroup-u-job u-job in volcano:q: o p]"},
		"there is a PodGroup":     {[]Object{told("p"), pg}, "[podgroup-u-job vg in volcano:r: p]"},
		"it is another scheduler": {[]Object{theirs}, "[]"},
	} {
		for range 2 {
			slices.Reverse(c.objects)
			tr, store := NewTranslator(Options{Volcano: []string{vckeys.SchedulerName}}), cluster.NewStore(cluster.Options{})
			take := func(o Object, gone bool) {
				k, _ := KindOf(o)
				if gone {
					tr.Take(k, KeyOf(o), nil, func(e cluster.Event) { store.Apply(e) })
				} else {
					tr.Take(k, KeyOf(o), o, func(e cluster.Event) { store.Apply(e) })
				}
			}
			for _, o := range c.objects {
				take(o, false)
			}
			if got := fmt.Sprint(gangs(store)); got != c.want {
				t.Errorf("%s: gangs %s, want %s", name, got, c.want)
			}
			if len(c.objects) == 2 && c.objects[0] == Object(pg) || len(c.objects) == 2 && c.objects[1] == Object(pg) {
				take(pg, true)
				if got := fmt.Sprint(gangs(store)); got != "[podgroup-u-job u-job in volcano:q: p]" {
					t.Errorf("%s, and is gone: gangs %s", name, got)
				}
			}
			for _, o := range c.objects {
				take(o, true)
			}
			if n := len(gangs(store)) + len(tr.volcano.owns) + len(tr.volcano.groups) + len(tr.volcano.objects); n > 0 {
				t.Errorf("%s: %d are left over", name, n)
			}
		}
	}
}

// TestBindingNamesVolcanosGang: a pod that nobody has told its PodGroup is told by its Binding, whoever makes that; no other is, and none is told one that it was not bound for.
func TestBindingNamesVolcanosGang(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		pod  func(*v1.Pod)
		gang cluster.Key // that it was bound for
		want string
	}{
		"it says nothing":      {nil, volcano.GangKey("a", "podgroup-u-job"), "podgroup-u-job"},
		"it has no owner":      {func(p *v1.Pod) { p.OwnerReferences = nil }, volcano.GangKey("a", "podgroup-u-p"), "podgroup-u-p"},
		"it names it":          {func(p *v1.Pod) { p.Annotations[vckeys.GroupName] = "podgroup-u-job" }, volcano.GangKey("a", "podgroup-u-job"), ""},
		"it names another":     {func(p *v1.Pod) { p.Annotations[vckeys.GroupName] = "g" }, volcano.GangKey("a", "podgroup-u-job"), ""},
		"bound for another":    {nil, volcano.GangKey("a", "podgroup-u-other"), ""},
		"bound for KAI's":      {nil, kai.GangKey("a", "podgroup-u-job"), ""},
		"bound for none":       {nil, cluster.Key{}, ""},
		"bound before it said": {func(p *v1.Pod) { p.Annotations = nil }, volcano.GangKey("a", "podgroup-u-job"), "podgroup-u-job"},
	} {
		in := kai.Intent{Namespace: "a", Pod: "p", PodUID: "u-p", Node: "n"}
		if c.gang.Name != "" {
			in.Charged = cluster.Charged{Queue: volcano.QueueName("q"), Gang: c.gang}
		}
		p := barePod(c.pod)
		alone, err := in.Binding(p)
		if err != nil {
			t.Fatal(err)
		}
		binders, err := kai.Bind(in.BindRequest(), p, "")
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range []*v1.Binding{alone, binders} {
			if got := b.Annotations[vckeys.GroupName]; got != c.want || b.Annotations[kai.PodGroupAnnotation] != "" {
				t.Errorf("%s: the Binding says %v, want the name %q", name, b.Annotations, c.want)
			}
		}
		in.OwnGang = volcano.OwnText(p)
		if b, err := in.Binding(p); err != nil || b.Annotations[vckeys.GroupName] != c.want || b.Annotations[keys.OwnGangAnnotation] != in.OwnGang {
			t.Errorf("%s, and it was told: the Binding says %v, want the name %q", name, b.Annotations, c.want)
		}
		in.OwnGang = ""
		if b, err := kai.Bind(in.BindRequest(), nil, ""); err != nil || b.Annotations[vckeys.GroupName] != "" {
			t.Errorf("%s: of a pod that was not seen the Binding says %v, %v", name, b.Annotations, err)
		}
	}
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
