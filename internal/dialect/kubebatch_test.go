package dialect

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	kbkeys "github.com/muster-scheduler/muster/api/kubebatch/keys"
	kbv1alpha1 "github.com/muster-scheduler/muster/api/kubebatch/v1alpha1"
	kbv1alpha2 "github.com/muster-scheduler/muster/api/kubebatch/v1alpha2"
	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/dialect/kai"
)

const kubeBatchPool = "example.com/pool"

func kubeBatchOptions() Options {
	return Options{KubeBatch: KubeBatch{Schedulers: []string{kbkeys.SchedulerName}}, Partition: kai.Partition{Key: kubeBatchPool}}
}

// kubeBatchObject makes one object of a small world, in which names, ages, owners and minimums clash.
func kubeBatchObject(r *rand.Rand) Object {
	pick := func(words ...string) string { return words[r.IntN(len(words))] }
	meta := func(namespace string, names ...string) metav1.ObjectMeta {
		m := metav1.ObjectMeta{Namespace: namespace, Name: pick(names...), CreationTimestamp: metav1.Unix(int64(r.IntN(3)), 0)}
		m.UID = types.UID(fmt.Sprintf("%s-%d", m.Name, r.IntN(3)))
		if r.IntN(8) == 0 {
			m.Labels = map[string]string{kubeBatchPool: "theirs"}
		}
		return m
	}
	owned := func(m *metav1.ObjectMeta) {
		if owner := pick("", "o1", "o2"); owner != "" {
			m.OwnerReferences = []metav1.OwnerReference{{UID: types.UID(owner), Controller: ptr.To(r.IntN(4) > 0)}}
		}
	}
	spec := kbv1alpha1.PodGroupSpec{MinMember: int32(r.IntN(4)), Queue: pick("", "q", "r"), PriorityClassName: pick("", "high")}
	switch r.IntN(8) {
	case 0:
		o := &kbv1alpha1.PodGroup{ObjectMeta: meta("ns", "a", "b"), Spec: spec}
		o.UID += "-first"
		return o
	case 1:
		o := &kbv1alpha2.PodGroup{ObjectMeta: meta("ns", "a", "b"), Spec: spec}
		o.UID += "-second"
		return o
	case 2:
		return &kbv1alpha1.Queue{ObjectMeta: meta("", "q", "default"), Spec: kbv1alpha1.QueueSpec{Weight: int32(r.IntN(3))}}
	case 3:
		return &kbv1alpha2.Queue{ObjectMeta: meta("", "q", "default"), Spec: kbv1alpha1.QueueSpec{Weight: int32(3 + r.IntN(3))}}
	case 4:
		b := &policyv1.PodDisruptionBudget{ObjectMeta: meta("ns", "x", "y")}
		owned(&b.ObjectMeta)
		if r.IntN(3) > 0 {
			b.Spec.MinAvailable = ptr.To(intstr.FromInt32(int32(5 + r.IntN(3))))
		} else if r.IntN(2) > 0 {
			b.Spec.MinAvailable = ptr.To(intstr.FromString("50%"))
		}
		return b
	case 5:
		return &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "high", UID: "high"}, Value: int32(r.IntN(3))}
	}
	p := &v1.Pod{ObjectMeta: meta("ns", "k", "l", "m", "n"), Spec: v1.PodSpec{SchedulerName: pick(kbkeys.SchedulerName, kbkeys.SchedulerName, kbkeys.SchedulerName, "other")}}
	owned(&p.ObjectMeta)
	p.Annotations = map[string]string{}
	if group := pick("", "", "a", "b", "A"); group != "" {
		p.Annotations[kbkeys.GroupName] = group
	}
	if least := pick("", "2", "3", "x"); least != "" {
		p.Annotations[kbkeys.GroupMinMember] = least
	}
	return p
}

// TestKubeBatchsHistory: whatever has been told of groups, queues, budgets and pods, in whatever order, is as if only what is there had been told of, once; and what it is agrees, object by object, with an oracle that
// reads kube-batch's rules slowly.
func TestKubeBatchsHistory(t *testing.T) {
	t.Parallel()
	for seed := range uint64(400) {
		r := rand.New(rand.NewPCG(seed, 2))
		s, tr := cluster.NewStore(cluster.Options{}), NewTranslator(kubeBatchOptions())
		apply := func(e cluster.Event) { s.Apply(e) }
		standing := map[name]Object{}
		for range 80 {
			o := kubeBatchObject(r)
			k, _ := KindOf(o)
			of := name{k, KeyOf(o)}
			if r.IntN(3) == 0 {
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
		is := s.Snapshot(cluster.UnixNano(1))
		if d := gocmp.Diff(told(kubeBatchOptions(), objects).Image().Events, is.Image().Events); d != "" {
			t.Fatalf("seed %d: (-told once +as it came):\n%s", seed, d)
		}
		once := NewTranslator(kubeBatchOptions())
		for _, o := range objects {
			k, _ := KindOf(o)
			once.Take(k, KeyOf(o), o, func(cluster.Event) {})
		}
		if d := gocmp.Diff(once.Problems(), tr.Problems()); d != "" {
			t.Fatalf("seed %d: problems (-told once +as it came):\n%s", seed, d)
		}
		kubeBatchOracle(t, seed, is, objects)
	}
}

// kubeBatchOracle holds a store against kube-batch's rules, and those that are added: of two objects of one name the older counts, then that of the first API group; of a gang without a PodGroup the oldest budget of its owner,
// then the eldest pod.
func kubeBatchOracle(t *testing.T, seed uint64, is *cluster.Snapshot, objects []Object) {
	t.Helper()
	before := func(a, b metav1.Object, byUID bool) bool {
		x, y := a.GetCreationTimestamp(), b.GetCreationTimestamp()
		tie := cmp.Compare(a.GetName(), b.GetName())
		if byUID {
			tie = cmp.Compare(a.GetUID(), b.GetUID())
		}
		return cmp.Or(x.Compare(y.Time), tie) < 0
	}
	class := int32(0)
	groups, queues := map[string]*kbv1alpha1.PodGroup{}, map[string]int32{}
	var eldest metav1.Object
	for _, o := range objects {
		switch o := o.(type) {
		case *schedulingv1.PriorityClass:
			class = o.Value
		case *kbv1alpha1.PodGroup:
			groups[o.Name] = o
		case *kbv1alpha1.Queue:
			if o.Labels == nil {
				queues[o.Name] = max(1, o.Spec.Weight)
			}
		}
	}
	for _, o := range objects {
		switch o := o.(type) {
		case *kbv1alpha2.PodGroup:
			if first := groups[o.Name]; first == nil || o.CreationTimestamp.Time.Before(first.CreationTimestamp.Time) {
				groups[o.Name] = &kbv1alpha1.PodGroup{ObjectMeta: o.ObjectMeta, Spec: o.Spec}
			}
		case *kbv1alpha2.Queue:
			if eldest = nil; o.Labels != nil {
				continue
			}
			for _, other := range objects {
				if first, is := other.(*kbv1alpha1.Queue); is && first.Name == o.Name && first.Labels == nil && !o.CreationTimestamp.Time.Before(first.CreationTimestamp.Time) {
					eldest = first
				}
			}
			if eldest == nil {
				queues[o.Name] = o.Spec.Weight
			}
		}
	}
	want, members := map[string]string{}, map[string]string{}
	add := func(key, uid, queue string, priority, least int32) {
		if queue == "" {
			queue = "default"
		}
		want[key] = fmt.Sprint(uid, " ", queue, " ", priority, " ", least)
	}
	for name, g := range groups {
		if g.Labels == nil {
			priority := int32(0)
			if g.Spec.PriorityClassName != "" {
				priority = class
			}
			add(name, string(g.UID), g.Spec.Queue, priority, g.Spec.MinMember)
		}
	}
	shadow := map[string]*v1.Pod{}
	owner := func(o metav1.Object) types.UID {
		if c := metav1.GetControllerOf(o); c != nil {
			return c.UID
		}
		return o.GetUID()
	}
	for _, o := range objects {
		p, is := o.(*v1.Pod)
		if !is || p.Spec.SchedulerName != kbkeys.SchedulerName {
			continue
		}
		switch group := p.Annotations[kbkeys.GroupName]; group {
		case "A":
			members[p.Name] = ""
		case "":
			members[p.Name] = "shadow_" + string(owner(p))
			if was := shadow[members[p.Name]]; was == nil || before(p, was, true) {
				shadow[members[p.Name]] = p
			}
		default:
			members[p.Name] = group
		}
	}
	for key, p := range shadow {
		least := int32(1)
		if n, err := strconv.Atoi(p.Annotations[kbkeys.GroupMinMember]); err == nil {
			least = int32(n)
		}
		var budget *policyv1.PodDisruptionBudget
		for _, o := range objects {
			b, is := o.(*policyv1.PodDisruptionBudget)
			if is && metav1.GetControllerOf(b) != nil && owner(b) == owner(p) && b.Spec.MinAvailable != nil && b.Spec.MinAvailable.Type == intstr.Int && (budget == nil || before(b, budget, false)) {
				budget, least = b, b.Spec.MinAvailable.IntVal
			}
		}
		if p.Labels == nil {
			add(key, string(owner(p)), "", 0, least)
		}
	}
	got, in, weights := map[string]string{}, map[string]string{}, map[string]int32{}
	is.EachGang(func(g *cluster.Gang) {
		_, queue := cluster.SplitQueue(g.Queue)
		got[g.Key.Name] = fmt.Sprint(g.UID, " ", queue, " ", g.Priority, " ", g.Sets[1].Min)
	})
	is.EachPod(func(p *cluster.Pod) {
		if p.Ours {
			in[p.Name] = p.GangKey().Name
		}
	})
	for _, name := range []string{"q", "default"} {
		if q := is.QueueByName("kubebatch:" + name); q != nil {
			weights[name] = int32(q.Weight[0] / 1000)
		}
	}
	for name, g := range members { // those of other shards' gangs are no business of ours
		if _, ours := want[g]; !ours && in[name] == "" && (groups[g] != nil || shadow[g] != nil) {
			delete(members, name)
			delete(in, name)
		}
	}
	if d := gocmp.Diff(want, got); d != "" {
		t.Fatalf("seed %d: gangs (-oracle +translator):\n%s", seed, d)
	}
	if d := gocmp.Diff(members, in); d != "" {
		t.Fatalf("seed %d: members (-oracle +translator):\n%s", seed, d)
	}
	if d := gocmp.Diff(queues, weights); d != "" {
		t.Fatalf("seed %d: queues (-oracle +translator):\n%s", seed, d)
	}
}

// TestWithoutKubeBatch: where nobody is told of the face, its pods are somebody else's, and nothing else of it is there.
func TestWithoutKubeBatch(t *testing.T) {
	t.Parallel()
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "u"}, Spec: v1.PodSpec{SchedulerName: kbkeys.SchedulerName}}
	b := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "b", OwnerReferences: []metav1.OwnerReference{{UID: "o", Controller: ptr.To(true)}}}}
	b.Spec.MinAvailable = ptr.To(intstr.FromString("50%"))
	tr, s := NewTranslator(Options{}), cluster.NewStore(cluster.Options{})
	for _, o := range []Object{p, b} {
		k, _ := KindOf(o)
		tr.Take(k, KeyOf(o), o, func(e cluster.Event) { s.Apply(e) })
	}
	snap := s.Snapshot(cluster.UnixNano(1))
	snap.EachPod(func(p *cluster.Pod) {
		if p.Ours {
			t.Error("the pod is ours")
		}
	})
	snap.EachGang(func(g *cluster.Gang) { t.Errorf("there is gang %v", g.Key) })
	if problems := tr.Problems(); len(problems) > 0 {
		t.Errorf("it is told %v", problems)
	}
}

// TestKubeBatchsTwins: of two objects of one name one counts, and the other is told of, with the one that counts.
func TestKubeBatchsTwins(t *testing.T) {
	t.Parallel()
	made := func(at int64, uid types.UID) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: "ns", Name: "g", UID: uid, CreationTimestamp: metav1.Unix(at, 0)}
	}
	tr := NewTranslator(kubeBatchOptions())
	for _, o := range []Object{&kbv1alpha1.PodGroup{ObjectMeta: made(2, "u1")}, &kbv1alpha2.PodGroup{ObjectMeta: made(1, "u2")}} {
		k, _ := KindOf(o)
		tr.Take(k, KeyOf(o), o, func(cluster.Event) {})
	}
	want := map[string]string{"PodGroup.scheduling.incubator.k8s.io ns/g": "PodGroup ns/g: it is overlooked: the PodGroup.scheduling.sigs.dev of the same name counts, which is no younger"}
	if d := gocmp.Diff(want, tr.Problems()); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	tr.Take(KubeBatchSigsPodGroups, types.NamespacedName{Namespace: "ns", Name: "g"}, nil, func(cluster.Event) {})
	if problems := tr.Problems(); len(problems) > 0 {
		t.Errorf("alone: %v", problems)
	}
}
