package vcpodgroup

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-scheduler/muster/api/volcano/keys"
	scheduling "github.com/muster-scheduler/muster/api/volcano/scheduling/v1beta1"
	"github.com/muster-scheduler/muster/internal/kubetest"
)

func serves() kubetest.Options {
	return kubetest.Options{Kinds: append(kubetest.Builtin(), kubetest.Volcano()...)}
}

// run runs the controller in a process until the test ends, or stop is called. Pods are told their PodGroup at once.
func run(t *testing.T, p *kubetest.Process, tell func(string)) (stop func()) {
	t.Helper()
	o := DefaultOptions()
	o.NameAfter = 0
	return runWith(t, p, o, tell)
}

func runWith(t *testing.T, p *kubetest.Process, o Options, tell func(string)) (stop func()) {
	t.Helper()
	return p.Run(t, func(objects cache.Cache, c client.Client) (func(context.Context) error, error) {
		r, err := New(Deps{Cache: objects, Client: c, Log: logr.Discard(), Tell: func(o client.Object, _ bool, reason, message string) {
			if tell != nil {
				tell(o.GetName() + " " + reason + ": " + message)
			}
		}}, o)
		if err != nil {
			return nil, err
		}
		return r.Run, nil
	})
}

func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// set is a ReplicaSet.
func set(name string, replicas int32, notes map[string]string) *appsv1.ReplicaSet {
	return &appsv1.ReplicaSet{
		TypeMeta:   metav1.TypeMeta{APIVersion: "apps/v1", Kind: "ReplicaSet"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("uid-" + name), Annotations: notes},
		Spec:       appsv1.ReplicaSetSpec{Replicas: &replicas},
	}
}

// pod is a pod of an owner, or of nobody, that asks for a CPU.
func pod(name string, of client.Object, edit ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("uid-" + name)},
		Spec: corev1.PodSpec{SchedulerName: "volcano", Containers: []corev1.Container{{Name: "c", Image: "i", Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{"cpu": resource.MustParse("1")},
		}}}},
	}
	if of != nil {
		p.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(of, of.GetObjectKind().GroupVersionKind())}
	}
	for _, e := range edit {
		e(p)
	}
	return p
}

// groups are the PodGroups, and marks what pods say of theirs.
func groups(s *kubetest.Server) string {
	var out []string
	for k := range s.State() { // order: sorted below
		if name, ok := strings.CutPrefix(k, "PodGroup default/"); ok {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

func marks(s *kubetest.Server, names ...string) string {
	var out []string
	for _, name := range names {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
		if s.Get(p) {
			out = append(out, name+"="+p.Annotations[keys.GroupName])
		}
	}
	return strings.Join(out, " ")
}

func get(t *testing.T, s *kubetest.Server, name string) *scheduling.PodGroup {
	t.Helper()
	g := &scheduling.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	if !s.Get(g) {
		t.Fatalf("there is no PodGroup %s: %s", name, groups(s))
	}
	return g
}

// TestBarePods: pods of one controller share a PodGroup, one without has its own; what names another scheduler, another PodGroup, or has ended, is
// left alone; at rest nothing is written.
func TestBarePods(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := kubetest.New(serves())
		run(t, s.Process("vcpodgroup"), nil)
		rs := set("rs", 2, map[string]string{keys.GroupMinMember: "2"})
		s.Put(rs, pod("rs-a", rs), pod("rs-b", rs), pod("alone", nil),
			pod("foreign", nil, func(p *corev1.Pod) { p.Spec.SchedulerName = "default-scheduler" }),
			pod("named", nil, func(p *corev1.Pod) { p.Annotations = map[string]string{keys.GroupName: "theirs"} }),
			pod("over", nil, func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }))
		pass(time.Second)
		if got := marks(s, "rs-a", "rs-b", "alone", "foreign", "named", "over"); got != "rs-a=podgroup-uid-rs rs-b=podgroup-uid-rs alone=podgroup-uid-alone foreign= named=theirs over=" {
			t.Errorf("pods: %s", got)
		}
		g := get(t, s, "podgroup-uid-rs")
		if o := g.OwnerReferences; g.Spec.MinMember != 2 || g.Spec.MinResources.Cpu().String() != "2" || g.Spec.Queue != "default" || len(o) != 1 || o[0].Kind != "ReplicaSet" || ptr.Deref(o[0].BlockOwnerDeletion, false) {
			t.Errorf("%+v", g)
		}
		if g := get(t, s, "podgroup-uid-alone"); g.Spec.MinMember != 1 || len(g.OwnerReferences) != 1 || g.OwnerReferences[0].UID != "uid-alone" || !*g.OwnerReferences[0].Controller {
			t.Errorf("%+v", g)
		}
		if all := s.Writes(); len(all) != 5 {
			t.Errorf("%d writes: %v", len(all), all)
		}
		pass(time.Hour)
		if all := s.Writes(); len(all) > 0 {
			t.Errorf("at rest: %v", all)
		}
	})
}

// TestNamedByTheBinding: a pod that waits is told its PodGroup after a while, since its Binding tells it; one that is on a node without that at once, and one that was told not again. That there is a
// PodGroup waits for nothing.
func TestNamedByTheBinding(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := kubetest.New(serves())
		o := DefaultOptions()
		runWith(t, s.Process("vcpodgroup"), o, nil)
		rs := set("rs", 3, nil)
		on := func(p *corev1.Pod) { p.Spec.NodeName = "n" }
		s.Put(rs, pod("waits", rs), pod("foreign", rs, on), pod("bound", rs), pod("alone", nil))
		pass(time.Second)
		if got := groups(s) + ": " + marks(s, "waits", "foreign", "bound", "alone"); got != "podgroup-uid-alone podgroup-uid-rs: waits= foreign=podgroup-uid-rs bound= alone=" {
			t.Errorf("at first: %s", got)
		}
		s.Writes()
		kubetest.Edit(s, pod("bound", nil), func(p *corev1.Pod) {
			p.Spec.NodeName, p.Annotations = "n", map[string]string{keys.GroupName: "podgroup-uid-rs"}
		})
		pass(o.NameAfter - 3*time.Second)
		if all := s.Writes(); len(all) > 0 {
			t.Errorf("before it is time: %v", all)
		}
		pass(3 * time.Second)
		if got := marks(s, "waits", "alone"); got != "waits=podgroup-uid-rs alone=podgroup-uid-alone" {
			t.Errorf("in the end: %s", got)
		}
		if all := s.Writes(); len(all) != 2 {
			t.Errorf("%d writes: %v", len(all), all)
		}
		pass(time.Hour)
		if all := s.Writes(); len(all) > 0 {
			t.Errorf("at rest: %v", all)
		}
	})
}

// TestEmptySets: the PodGroup of a ReplicaSet without replicas goes, though its pods are still ending, and comes back with them; so no old ReplicaSet
// of a Deployment holds room.
func TestEmptySets(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := kubetest.New(serves())
		run(t, s.Process("vcpodgroup"), nil)
		rs := set("rs", 1, nil)
		s.Put(rs, pod("a", rs))
		pass(time.Second)
		get(t, s, "podgroup-uid-rs")
		for range 3 {
			rs = set("rs", 0, nil)
			s.Put(rs)
			pass(time.Second)
			if got := groups(s); got != "" {
				t.Errorf("of an empty set there is %s", got)
			}
			s.Remove(pod("a", rs))
			pass(time.Second)
			rs = set("rs", 1, nil)
			s.Put(rs, pod("a", rs))
			pass(time.Second)
			if got := marks(s, "a"); got != "a=podgroup-uid-rs" || groups(s) != "podgroup-uid-rs" {
				t.Errorf("%s, %s", got, groups(s))
			}
		}
	})
}

// TestWhatAGroupSays: a PodGroup is made of what its first pod and the pods' controller say (fact sheet, 2.8), and that of a ReplicaSet or
// StatefulSet follows them.
func TestWhatAGroupSays(t *testing.T) {
	t.Parallel()
	long := map[string]string{keys.GroupMinMember: "3", keys.OwnPrefix + "mine": "1", "theirs": "2"}
	says := func(p *corev1.Pod) {
		p.Spec.PriorityClassName = "high"
		p.Annotations = map[string]string{
			keys.QueueName: "q", keys.Preemptable: "false", keys.JDBMinAvailable: "1", keys.JDBMaxUnavailable: "50%", keys.RevocableZone: "*",
			keys.NetworkTopologyHighestTier: "2", "note": "x",
		}
		p.Labels = map[string]string{keys.Preemptable: "false", "app": "x"}
	}
	kind := func(o client.Object, kind string) client.Object {
		o.SetNamespace("default")
		o.SetName("o")
		o.SetUID("uid-o")
		o.SetAnnotations(long)
		o.GetObjectKind().SetGroupVersionKind(appsv1.SchemeGroupVersion.WithKind(kind))
		return o
	}
	job := kind(&batchv1.Job{}, "Job")
	job.GetObjectKind().SetGroupVersionKind(batchv1.SchemeGroupVersion.WithKind("Job"))
	stranger := kind(&appsv1.Deployment{}, "Strange")
	for name, c := range map[string]struct {
		of    client.Object
		edit  func(*corev1.Pod)
		least int32
		cpu   string
		notes string
		mode  string
	}{
		"ReplicaSet":  {kind(&appsv1.ReplicaSet{}, "ReplicaSet"), says, 3, "3", "jdb-min-available=1 mine=1 preemptable=false revocable-zone=*", "hard 2"},
		"StatefulSet": {kind(&appsv1.StatefulSet{}, "StatefulSet"), says, 3, "3", "jdb-min-available=1 mine=1 preemptable=false revocable-zone=*", "hard 2"},
		"DaemonSet":   {kind(&appsv1.DaemonSet{}, "DaemonSet"), says, 3, "3", "jdb-min-available=1 mine=1 preemptable=false revocable-zone=*", "hard 2"},
		"Job":         {job, says, 3, "3", "jdb-min-available=1 mine=1 preemptable=false revocable-zone=*", "hard 2"},
		"another":     {stranger, says, 1, "1", "jdb-min-available=1 preemptable=false revocable-zone=*", "hard 2"},
		"nobody":      {nil, says, 1, "1", "jdb-min-available=1 preemptable=false revocable-zone=*", "hard 2"},
		"soft":        {nil, func(p *corev1.Pod) { p.Annotations = map[string]string{keys.NetworkTopologyMode: "soft"} }, 1, "1", "", "soft"},
		"no mode": {nil, func(p *corev1.Pod) {
			p.Annotations = map[string]string{keys.NetworkTopologyMode: "fluffy", keys.NetworkTopologyHighestTier: "-7"}
		}, 1, "1", "", "hard"},
		"nothing": {nil, func(*corev1.Pod) {}, 1, "1", "", ""},
	} {
		b := newBook(Options{SchedulerNames: []string{"volcano"}, InheritAnnotations: true})
		var of client.Object
		if c.of != nil {
			of = c.of
			if name != "another" { // of which there are no watches
				b.ownerSeen(of, false)
			}
		}
		p := pod("p", of, c.edit)
		k := b.podSeen(p, false, time.Unix(0, 0))[0]
		got, _ := b.decide(k, time.Unix(0, 0))
		if got.create == nil || len(got.mark) != 1 {
			t.Errorf("%s: %+v", name, got)
			continue
		}
		var notes []string
		for _, n := range slices.Sorted(maps.Keys(got.create.Annotations)) {
			notes = append(notes, strings.TrimPrefix(n, keys.OwnPrefix)+"="+got.create.Annotations[n])
		}
		mode := ""
		if n := got.create.Spec.NetworkTopology; n != nil {
			mode = string(n.Mode)
			if n.HighestTierAllowed != nil {
				mode += fmt.Sprint(" ", *n.HighestTierAllowed)
			}
		}
		queue, class := "default", ""
		if p.Annotations[keys.QueueName] != "" {
			queue, class = "q", "high"
		}
		if s := got.create.Spec; s.MinMember != c.least || s.MinResources.Cpu().String() != c.cpu || s.Queue != queue || s.PriorityClassName != class || mode != c.mode {
			t.Errorf("%s: %+v, topology %s", name, s, mode)
		}
		if text := strings.Join(notes, " "); text != c.notes {
			t.Errorf("%s: annotations %s, want %s", name, text, c.notes)
		}
		if d := cmp.Diff(p.Labels[keys.Preemptable], got.create.Labels[keys.Preemptable]); d != "" || got.create.Labels["app"] != "" {
			t.Errorf("%s: labels %v", name, got.create.Labels)
		}
	}
	// Bad numbers are as if nothing were said, and without the flag nothing is inherited.
	for _, bad := range []string{"", "x", "-1", "99999999999", "1.5"} {
		b := newBook(Options{SchedulerNames: []string{"volcano"}})
		rs := set("rs", 1, map[string]string{keys.GroupMinMember: bad, keys.OwnPrefix + "mine": "1"})
		b.ownerSeen(rs, false)
		if got, _ := b.decide(b.podSeen(pod("p", rs), false, time.Unix(0, 0))[0], time.Unix(0, 0)); got.create.Spec.MinMember != 1 || len(got.create.Annotations) != 0 {
			t.Errorf("%q: %+v", bad, got.create)
		}
	}
}

// TestFollows: a ReplicaSet's PodGroup follows its pods and annotations, what others wrote beside stays, and that of another's is left alone.
func TestFollows(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := kubetest.New(serves())
		run(t, s.Process("vcpodgroup"), nil)
		rs := set("rs", 2, nil)
		s.Put(rs, pod("a", rs))
		other := set("other", 1, nil)
		s.Put(other, &scheduling.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "podgroup-uid-other"}, Spec: scheduling.PodGroupSpec{MinMember: 9}}, pod("o", other))
		pass(time.Second)
		g := get(t, s, "podgroup-uid-rs")
		g.Annotations = map[string]string{"theirs": "x"}
		g.Status.Phase = scheduling.PodGroupRunning
		s.Put(g)
		s.Put(set("rs", 2, map[string]string{keys.GroupMinMember: "2"}))
		s.Remove(pod("a", rs))
		s.Put(pod("b", rs, func(p *corev1.Pod) {
			p.Annotations = map[string]string{keys.QueueName: "q", keys.Preemptable: "true", keys.NetworkTopologyMode: "soft"}
		}))
		pass(time.Second)
		g = get(t, s, "podgroup-uid-rs")
		if g.Spec.MinMember != 2 || g.Spec.MinResources.Cpu().String() != "2" || g.Spec.Queue != "q" || g.Annotations["theirs"] != "x" || g.Annotations[keys.Preemptable] != "true" ||
			g.Status.Phase != scheduling.PodGroupRunning || g.Spec.NetworkTopology.Mode != "soft" {
			t.Errorf("%+v", g)
		}
		s.Remove(pod("b", rs))
		s.Put(pod("c", rs))
		pass(time.Second)
		if g = get(t, s, "podgroup-uid-rs"); g.Spec.NetworkTopology != nil || g.Spec.Queue != "default" {
			t.Errorf("%+v", g.Spec)
		}
		if g := get(t, s, "podgroup-uid-other"); g.Spec.MinMember != 9 || marks(s, "o") != "o=podgroup-uid-other" {
			t.Errorf("%+v, %s", g, marks(s, "o"))
		}
		s.Writes()
		pass(time.Hour)
		if all := s.Writes(); len(all) > 0 {
			t.Errorf("at rest: %v", all)
		}
	})
}

// TestRevision: of a StatefulSet that is brought to another revision, a pod of that revision speaks.
func TestRevision(t *testing.T) {
	t.Parallel()
	b := newBook(Options{SchedulerNames: []string{"volcano"}, InheritAnnotations: true})
	o := &appsv1.StatefulSet{
		TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "StatefulSet"}, ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "s", UID: "uid-s"},
		Spec: appsv1.StatefulSetSpec{Replicas: ptr.To[int32](2)}, Status: appsv1.StatefulSetStatus{UpdateRevision: "2"},
	}
	b.ownerSeen(o, false)
	of := func(name, revision, queue string) *corev1.Pod {
		return pod(name, o, func(p *corev1.Pod) {
			p.Labels, p.Annotations = map[string]string{appsv1.ControllerRevisionHashLabelKey: revision}, map[string]string{keys.QueueName: queue}
		})
	}
	b.podSeen(of("a", "1", "old"), false, time.Unix(0, 0))
	k := b.podSeen(of("b", "2", "new"), false, time.Unix(0, 0))[0]
	if p, _ := b.decide(k, time.Unix(0, 0)); p.create.Spec.Queue != "new" || len(p.mark) != 2 {
		t.Errorf("%+v", p.create.Spec)
	}
}

// TestOwnerComesLater: pods whose controller is not seen yet wait for it.
func TestOwnerComesLater(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := kubetest.New(serves())
		run(t, s.Process("vcpodgroup"), nil)
		rs := set("rs", 3, map[string]string{keys.GroupMinMember: "3"})
		pass(time.Second)
		s.Hold("ReplicaSet")
		s.Put(rs, pod("a", rs))
		pass(time.Minute)
		if got := groups(s); got != "" {
			t.Errorf("before its owner is known there is %s", got)
		}
		s.Release("ReplicaSet")
		pass(time.Second)
		if g := get(t, s, "podgroup-uid-rs"); g.Spec.MinMember != 3 {
			t.Errorf("%+v", g.Spec)
		}
	})
}

// TestRefused: what the API server refuses is told to the pod's user, and hinders nobody else.
func TestRefused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := kubetest.New(serves())
		var told []string
		s.Fault(func(c kubetest.Call) kubetest.Outcome {
			if c.Verb == "create" && c.Kind == "PodGroup" && c.Name == "podgroup-uid-bad" {
				return kubetest.Outcome{Err: apierrors.NewForbidden(schema.GroupResource{Resource: "podgroups"}, "podgroup-uid-bad", errors.New("no"))}
			}
			return kubetest.Outcome{}
		})
		run(t, s.Process("vcpodgroup"), func(text string) { told = append(told, text) })
		s.Put(pod("bad", nil), pod("good", nil))
		pass(time.Minute)
		if got := marks(s, "bad", "good"); got != "bad= good=podgroup-uid-good" {
			t.Error(got)
		}
		if len(told) == 0 || !strings.HasPrefix(told[0], "bad FailedCreate: create PodGroup podgroup-uid-bad: ") {
			t.Errorf("told: %q", told)
		}
	})
}

// TestCrashes: the controller dies before and after each of its writes, and the next one ends where it would have ended.
func TestCrashes(t *testing.T) {
	t.Parallel()
	kubetest.Story{
		Options: serves(),
		Set: func(s *kubetest.Server) {
			rs, empty := set("rs", 3, map[string]string{keys.GroupMinMember: "3"}), set("empty", 0, nil)
			old := set("old", 1, map[string]string{keys.GroupMinMember: "1"})
			s.Put(rs, pod("a", rs), pod("b", rs, func(p *corev1.Pod) { p.Spec.NodeName = "n" }), pod("c", rs), pod("alone", nil), empty, old, pod("d", old))
			ref := func(o client.Object) []metav1.OwnerReference {
				return []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: o.GetName(), UID: o.GetUID(), Controller: ptr.To(true)}}
			}
			s.Put(&scheduling.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "podgroup-uid-empty", OwnerReferences: ref(empty)}},
				&scheduling.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "podgroup-uid-old", OwnerReferences: ref(old)}, Spec: scheduling.PodGroupSpec{MinMember: 7}})
		},
		Run:    func(t *testing.T, p *kubetest.Process) func() { return runWith(t, p, DefaultOptions(), nil) },
		Settle: 2 * time.Minute,
		Check: func(t *testing.T, s *kubetest.Server) {
			if got := groups(s); got != "podgroup-uid-alone podgroup-uid-old podgroup-uid-rs" {
				t.Errorf("in the end: %s", got)
			}
			if got := marks(s, "a", "b", "c", "alone", "d"); got != "a=podgroup-uid-rs b=podgroup-uid-rs c=podgroup-uid-rs alone=podgroup-uid-alone d=podgroup-uid-old" {
				t.Errorf("in the end: %s", got)
			}
			if g := get(t, s, "podgroup-uid-old"); g.Spec.MinMember != 1 {
				t.Errorf("%+v", g.Spec)
			}
		},
	}.Crashes(t)
}

// TestTroubles: lost answers, conflicts and refusals of writes end where undisturbed ones do.
func TestTroubles(t *testing.T) {
	t.Parallel()
	for _, what := range []string{"create PodGroup", "patch Pod"} {
		for name, o := range map[string]kubetest.Outcome{
			"lost request": kubetest.LostRequest(), "lost answer": kubetest.LostAnswer(), "conflict": kubetest.Conflict(), "busy": kubetest.TooMany(1), "broken": kubetest.Broken("disk"),
		} {
			t.Run(what+" "+name, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					s := kubetest.New(serves())
					for n := 1; n < 4; n += 2 {
						s.Fault(kubetest.Nth(n, kubetest.Is(what), o))
					}
					run(t, s.Process("vcpodgroup"), nil)
					rs := set("rs", 2, nil)
					s.Put(rs, pod("a", rs), pod("b", rs))
					pass(10 * time.Minute)
					if got := marks(s, "a", "b"); got != "a=podgroup-uid-rs b=podgroup-uid-rs" || groups(s) != "podgroup-uid-rs" {
						t.Errorf("%s, %s", got, groups(s))
					}
				})
			})
		}
	}
}
