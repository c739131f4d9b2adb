package podgrouper

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-scheduler/muster/api/kai/keys"
	"github.com/muster-scheduler/muster/api/scheduling/v2alpha2"
)

func forbidden(name string) error {
	return apierrors.NewForbidden(schema.GroupResource{Resource: "objects"}, name, fmt.Errorf("no"))
}

// TestGang: however many pods at once, a gang costs one create, one read of its owner, one patch per pod, and nothing the
// second time.
func TestGang(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const size = 200
		objects := []client.Object{job("train", map[string]string{keys.BatchMinMemberAnnotation: "200"})}
		for i := range size {
			objects = append(objects, podOf(fmt.Sprintf("train-%d", i), ref("batch/v1", "Job", "train")))
		}
		w := newFakeAPI(t, nil, objects...)
		w.unwatched("Job")
		var workers sync.WaitGroup
		for k := range 10 {
			workers.Go(func() {
				for i := k; i < size; i += 10 {
					if _, err := w.reconcile(fmt.Sprintf("train-%d", i)); err != nil {
						t.Error(err)
					}
				}
			})
		}
		workers.Wait()
		writes := w.take()
		if len(writes) != size+1 || writes[0] != "create PodGroup team/pg-train-u-train" {
			t.Fatalf("%d writes, the first is %q; want the group's create, then %d patches", len(writes), writes[0], size)
		}
		if w.reads != 1 {
			t.Errorf("%d reads from the API server, want one of the Job", w.reads)
		}
		if got := *w.podGroup("pg-train-u-train").Spec.MinMember; got != size {
			t.Errorf("minimum %d", got)
		}
		for i := range size {
			name := fmt.Sprintf("train-%d", i)
			if got := w.pod(name).Annotations[keys.PodGroupAnnotation]; got != "pg-train-u-train" {
				t.Fatalf("pod %s is in %q", name, got)
			}
			w.mustReconcile(name)
		}
		if again := w.take(); len(again) != 0 {
			t.Errorf("second time: %v", again)
		}
	})
}

// TestSinglePod: a pod alone costs one create and one patch, and is its own business afterwards.
func TestSinglePod(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newFakeAPI(t, nil, podOf("solo", nil))
		w.mustReconcile("solo", "solo")
		want := []string{"create PodGroup team/pg-solo-u-solo", "patch Pod team/solo"}
		if d := cmp.Diff(want, w.take()); d != "" {
			t.Error(d)
		}
	})
}

// TestLeftAlone: pods that are not to be grouped cost no write.
func TestLeftAlone(t *testing.T) {
	t.Parallel()
	skip := map[string]string{keys.SkipPodGrouperAnnotation: "true"}
	now := metav1.Now()
	for name, c := range map[string]struct {
		pod    func(*corev1.Pod)
		owner  client.Object
		change func(*Options)
	}{
		"another scheduler": {pod: func(p *corev1.Pod) { p.Spec.SchedulerName = "default-scheduler" }},
		"external group": {
			owner: &v2alpha2.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "mine"}},
			pod:   func(p *corev1.Pod) { p.Annotations = map[string]string{keys.PodGroupAnnotation: "mine"} },
		},
		"external group that is missing, pod bound": {pod: func(p *corev1.Pod) {
			p.Annotations, p.Spec.NodeName = map[string]string{keys.PodGroupAnnotation: "mine"}, "n"
		}},
		"upstream's group, pod bound": {pod: func(p *corev1.Pod) {
			p.Spec.SchedulingGroup, p.Spec.NodeName = &corev1.PodSchedulingGroup{PodGroupName: new("theirs")}, "n"
		}},
		"skipped pod": {pod: func(p *corev1.Pod) { p.Annotations = skip }},
		"skipped owner": {
			owner: job("train", skip), pod: func(p *corev1.Pod) { p.OwnerReferences = []metav1.OwnerReference{*ref("batch/v1", "Job", "train")} },
		},
		"finished": {pod: func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }},
		"deleted":  {pod: func(p *corev1.Pod) { p.DeletionTimestamp, p.Finalizers = &now, []string{"a/b"} }},
		"not selected": {
			change: func(o *Options) { o.PodSelector = map[string]string{"grouped": "yes"} },
		},
		"namespace not selected": {
			owner:  &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team"}},
			change: func(o *Options) { o.NamespaceSelector = map[string]string{"grouped": "yes"} },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p := podOf("p", nil)
				if c.pod != nil {
					c.pod(p)
				}
				objects := []client.Object{p}
				if c.owner != nil {
					objects = append(objects, c.owner)
				}
				w := newFakeAPI(t, c.change, objects...)
				w.mustReconcile("p", "gone")
				if writes := w.take(); len(writes) != 0 {
					t.Errorf("writes: %v", writes)
				}
				if len(w.events) != 0 {
					t.Errorf("events: %v", w.events)
				}
			})
		})
	}
}

// TestUpstreamsGroup: a pod that is in a group of Kubernetes' own gets no second one. Where the API server serves such groups it is the scheduler's; elsewhere it is told that it waits.
func TestUpstreamsGroup(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := podOf("p", ref("batch/v1", "Job", "train"))
		p.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: new("theirs")}
		w := newFakeAPI(t, nil, p, job("train", nil))
		served := &shown{lists: []*metav1.APIResourceList{serves("scheduling.k8s.io/v1beta1", "PodGroup")}}
		w.role.grouper.owners.kinds = &kinds{discovery: served, clock: clock.RealClock{}}
		w.mustReconcile("p")
		if writes := w.take(); len(writes)+len(w.events) != 0 {
			t.Errorf("where there are such groups: writes %v, events %v", writes, w.events)
		}
		w.role.grouper.owners.kinds = &kinds{discovery: &shown{lists: []*metav1.APIResourceList{serves("scheduling.k8s.io/v1", "PriorityClass")}}, clock: clock.RealClock{}}
		w.mustReconcile("p")
		if writes := w.take(); len(writes) != 0 {
			t.Errorf("writes: %v", writes)
		}
		want := `[Warning PodGrouperWarning p: spec.schedulingGroup: the API server does not serve PodGroups of scheduling.k8s.io/v1beta1, such as "theirs", and no other group is made for the pod: it waits]`
		if have := fmt.Sprint(w.events); have != want {
			t.Errorf("events:\n%s\nwant:\n%s", have, want)
		}
	})
}

// TestMissingExternalGroup: a pod that names a PodGroup that its namespace does not have is told so, after the grace in which
// the PodGroup may still come, and left alone.
func TestMissingExternalGroup(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := podOf("p", nil)
		p.Annotations = map[string]string{keys.PodGroupAnnotation: "mine"}
		elsewhere := &v2alpha2.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "other", Name: "mine"}}
		w := newFakeAPI(t, nil, p, elsewhere)
		w.sleep(externalGrace)
		w.mustReconcile("p")
		if writes := w.take(); len(writes) != 0 {
			t.Errorf("writes: %v", writes)
		}
		want := `[Warning PodGrouperWarning p: annotation pod-group-name: there is no PodGroup "mine" in namespace team, where the pod is; it waits for one]`
		if have := fmt.Sprint(w.events); have != want {
			t.Errorf("events:\n%s\nwant:\n%s", have, want)
		}
	})
}

// TestFurtherSchedulers: the role answers to every name that it is given.
func TestFurtherSchedulers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := podOf("p", nil)
		p.Spec.SchedulerName = "muster"
		w := newFakeAPI(t, func(o *Options) { o.SchedulerNames = []string{"kai-scheduler", "muster"} }, p)
		w.mustReconcile("p")
		if writes := w.take(); len(writes) != 2 {
			t.Errorf("writes: %v", writes)
		}
	})
}

// TestLabelKeys: queue and node pool are read from the labels that the options name, and not from others.
func TestLabelKeys(t *testing.T) {
	t.Parallel()
	p := podOf("p", nil)
	p.Labels = map[string]string{"team/queue": "own", "team/pool": "gold", keys.QueueLabel: "usual", keys.NodePoolLabel: "silver"}
	for name, c := range map[string]struct {
		change            func(*Options)
		queue, key, value string
	}{
		"KAI's":  {nil, "usual", keys.NodePoolLabel, "silver"},
		"queue":  {func(o *Options) { o.QueueLabel = "team/queue" }, "own", keys.NodePoolLabel, "silver"},
		"shards": {func(o *Options) { o.NodePoolLabel = "team/pool" }, "usual", "team/pool", "gold"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newFakeAPI(t, c.change, p.DeepCopy())
				w.mustReconcile("p")
				if pg := w.podGroup("pg-p-u-p"); pg.Spec.Queue != c.queue || pg.Labels[c.key] != c.value {
					t.Errorf("queue %q, labels %v", pg.Spec.Queue, pg.Labels)
				}
			})
		})
	}
}

// TestBrokenOwners: each broken chain is told to the user in one event that names object and rule, and costs no write.
// What is said of an owner that is another object is what is said of one that is not there: a tenant may guess names of objects that it
// cannot read, those without a namespace among them, and learns neither their UIDs nor that they exist.
func TestBrokenOwners(t *testing.T) {
	t.Parallel()
	owned := func(name string, owners ...metav1.OwnerReference) client.Object { return job(name, nil, owners...) }
	other := owned("a")
	other.SetUID("u-of-another")
	var long []client.Object
	for i := range 20 {
		long = append(long, owned(fmt.Sprintf("l%d", i), *ref("batch/v1", "Job", fmt.Sprintf("l%d", i+1))))
	}
	nameless := *ref("batch/v1", "Job", "a")
	nameless.APIVersion = "a/b/c"
	back := *ref("v1", "Pod", "p")
	for name, c := range map[string]struct {
		first   *metav1.OwnerReference
		objects []client.Object
		want    string
	}{
		"gone":                          {want: "Pod team/p: metadata.ownerReferences: must name an object that exists, Job a with UID u-a does not"},
		"a namespace that is not there": {first: ref("v1", "Namespace", "a"), want: "Pod team/p: metadata.ownerReferences: must name an object that exists, Namespace a with UID u-a does not"},
		"another's namespace": {
			first: ref("v1", "Namespace", "a"), objects: []client.Object{&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "u-of-another"}}},
			want: "Pod team/p: metadata.ownerReferences: must name an object that exists, Namespace a with UID u-a does not",
		},
		"replaced":   {objects: []client.Object{other}, want: "Pod team/p: metadata.ownerReferences: must name an object that exists, Job a with UID u-a does not"},
		"two owners": {objects: []client.Object{owned("a", *ref("batch/v1", "Job", "b"), *ref("batch/v1", "Job", "c"))}, want: "Job team/a: metadata.ownerReferences: must have one owner at most, has 2"},
		"circle": {
			objects: []client.Object{owned("a", *ref("batch/v1", "Job", "b")), owned("b", *ref("batch/v1", "Job", "a"))},
			want:    "Job team/b: metadata.ownerReferences: must not lead in a circle, comes back to Job team/a",
		},
		"back to the pod": {objects: []client.Object{owned("a", back)}, want: "Job team/a: metadata.ownerReferences: must not lead back to the pod that it owns"},
		"too long":        {first: ref("batch/v1", "Job", "l0"), objects: long, want: "Pod team/p: metadata.ownerReferences: must lead to the top owner in at most 16 steps"},
		"no API version":  {first: &nameless, want: `Pod team/p: metadata.ownerReferences: must name an API version and kind, names "a/b/c" and "Job"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				first := c.first
				if first == nil {
					first = ref("batch/v1", "Job", "a")
				}
				p := podOf("p", nil)
				// Several owners of the pod itself are fine: the first one counts.
				p.OwnerReferences = []metav1.OwnerReference{*first, *ref("v1", "ConfigMap", "x")}
				w := newFakeAPI(t, nil, append(c.objects, p, podOf("p2", first))...)
				for range 2 {
					result, err := w.reconcile("p")
					if err != nil || result.RequeueAfter != w.role.grouper.options.MaxBackoff {
						t.Errorf("got %v, %v", result, err)
					}
				}
				w.mustReconcile("p2")
				if d := cmp.Diff([]string{"Warning PodGrouperWarning p: " + c.want}, w.events); d != "" {
					t.Error(d)
				}
				if writes := w.take(); len(writes) != 0 {
					t.Errorf("writes: %v", writes)
				}
			})
		})
	}
}

// TestForbiddenOwner: what may not be read ends the chain; the last readable owner, or the pod, is the top.
func TestForbiddenOwner(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newFakeAPI(t, nil,
			job("train", nil, *ref("example.org/v1", "Fleet", "fleet")),
			podOf("p", ref("batch/v1", "Job", "train")), podOf("q", ref("example.org/v1", "Fleet", "fleet")))
		w.fail("get Fleet", forbidden("fleet"))
		w.mustReconcile("p", "q")
		want := []string{
			"create PodGroup team/pg-train-u-train", "patch Pod team/p", "create PodGroup team/pg-q-u-q", "patch Pod team/q",
		}
		if d := cmp.Diff(want, w.take()); d != "" {
			t.Error(d)
		}
	})
}

// TestPyTorchJob: subgroups by label; the whole object is read once for all pods; an edit changes the group in place.
func TestPyTorchJob(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		spec := func(workers int64) map[string]any {
			return map[string]any{"pytorchReplicaSpecs": map[string]any{
				"Master": map[string]any{"replicas": int64(1)}, "Worker": map[string]any{"replicas": workers},
			}}
		}
		member := func(name, role string) *corev1.Pod {
			p := podOf(name, ref("kubeflow.org/v1", "PyTorchJob", "mnist"))
			p.Labels = map[string]string{"training.kubeflow.org/replica-type": role}
			return p
		}
		w := newFakeAPI(t, nil, pytorch("mnist", spec(2)), member("m", "master"), member("w0", "worker"), member("w1", "worker"))
		w.mustReconcile("m", "w0", "w1")
		if writes := w.take(); len(writes) != 4 {
			t.Errorf("writes: %v", writes)
		}
		if w.reads != 1 {
			t.Errorf("%d reads from the API server, want one of the whole job", w.reads)
		}
		for name, want := range map[string]string{"m": "master", "w0": "worker", "w1": "worker"} {
			if got := w.pod(name).Labels[keys.SubGroupLabel]; got != want {
				t.Errorf("pod %s is in subgroup %q, want %q", name, got, want)
			}
		}
		group := w.podGroup("pg-mnist-u-mnist")
		group.Spec.Queue = "moved"
		w.Put(group)
		w.Hold("PyTorchJob")
		w.Put(pytorch("mnist", spec(5)))
		w.mustReconcile("w0")
		if writes := w.take(); len(writes) != 0 {
			t.Errorf("before the change is known: %v", writes)
		}
		w.Release("PyTorchJob")
		w.mustReconcile("w0", "w1", "m")
		if d := cmp.Diff([]string{"patch PodGroup team/pg-mnist-u-mnist"}, w.take()); d != "" {
			t.Error(d)
		}
		group = w.podGroup("pg-mnist-u-mnist")
		if *group.Spec.MinMember != 6 || *group.Spec.SubGroups[1].MinMember != 5 || group.Spec.Queue != "moved" {
			t.Errorf("after the edit: %+v", group.Spec)
		}
	})
}

// TestBrokenGang: a workload that cannot be understood is read and told of once, not once per pod.
func TestBrokenGang(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		objects := []client.Object{pytorch("mnist", map[string]any{})}
		var names []string
		for i := range 100 {
			names = append(names, fmt.Sprintf("w%d", i))
			objects = append(objects, podOf(names[i], ref("kubeflow.org/v1", "PyTorchJob", "mnist")))
		}
		w := newFakeAPI(t, nil, objects...)
		w.mustReconcile(names...)
		if len(w.take()) != 0 || len(w.events) != 1 || w.reads != 1 {
			t.Errorf("events %v, reads %d", w.events, w.reads)
		}
		w.sleep(time.Minute)
		w.mustReconcile(names...)
		if len(w.events) != 2 || w.reads != 1 { // it is as it was
			t.Errorf("a minute later: %d events, %d reads", len(w.events), w.reads)
		}
	})
}

// TestDeployment: a group per pod, written when a label of the Deployment changes.
func TestDeployment(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "web", UID: "u-web"}}
		rs := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{
			Namespace: "team", Name: "rs", UID: "u-rs", OwnerReferences: []metav1.OwnerReference{*ref("apps/v1", "Deployment", "web")},
		}}
		w := newFakeAPI(t, nil, deployment, rs, podOf("a", ref("apps/v1", "ReplicaSet", "rs")), podOf("b", ref("apps/v1", "ReplicaSet", "rs")))
		w.mustReconcile("a", "b", "a", "b")
		want := []string{"create PodGroup team/pg-a-u-a", "patch Pod team/a", "create PodGroup team/pg-b-u-b", "patch Pod team/b"}
		if d := cmp.Diff(want, w.take()); d != "" {
			t.Error(d)
		}
		if got := w.podGroup("pg-b-u-b").Spec.PriorityClassName; got != "inference" {
			t.Errorf("priority class %q", got)
		}
		deployment.Labels = map[string]string{keys.PriorityClassLabel: "build"}
		w.Put(deployment)
		w.role.ownerChanged("u-web")
		w.mustReconcile("a", "b")
		if d := cmp.Diff([]string{"patch PodGroup team/pg-a-u-a", "patch PodGroup team/pg-b-u-b"}, w.take()); d != "" {
			t.Error(d)
		}
	})
}

// TestOwnNamespaceOnly: a PodGroup of the same name elsewhere is nobody's business.
func TestOwnNamespaceOnly(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		foreign := &v2alpha2.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "other", Name: "pg-train-u-train", UID: "u-foreign"}}
		w := newFakeAPI(t, nil, job("train", nil), podOf("p", ref("batch/v1", "Job", "train")), foreign)
		w.mustReconcile("p")
		want := []string{"create PodGroup team/pg-train-u-train", "patch Pod team/p"}
		if d := cmp.Diff(want, w.take()); d != "" {
			t.Error(d)
		}
	})
}

// TestPodNamedGroup: a group from an old installation is taken over, for its pod only.
func TestPodNamedGroup(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		old := &v2alpha2.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "pg-p-u-train"}}
		objects := func() []client.Object {
			return []client.Object{
				job("train", nil), podOf("p", ref("batch/v1", "Job", "train")), podOf("q", ref("batch/v1", "Job", "train")), old.DeepCopy(),
			}
		}
		w := newFakeAPI(t, nil, objects()...)
		w.mustReconcile("p", "q", "p", "q")
		want := []string{"patch Pod team/p", "create PodGroup team/pg-train-u-train", "patch Pod team/q"}
		if d := cmp.Diff(want, w.take()); d != "" {
			t.Error(d)
		}
		if got := w.pod("p").Annotations[keys.PodGroupAnnotation]; got != "pg-p-u-train" {
			t.Errorf("p is in %q", got)
		}
		w = newFakeAPI(t, func(o *Options) { o.PodNamedGroups = false }, objects()...)
		w.mustReconcile("p")
		if got := w.pod("p").Annotations[keys.PodGroupAnnotation]; got != "pg-train-u-train" {
			t.Errorf("switched off: p is in %q", got)
		}
	})
}

// TestFailures: what each answer of the API server leads to.
func TestFailures(t *testing.T) {
	t.Parallel()
	resource := schema.GroupResource{Resource: "pods"}
	terminating := apierrors.NewForbidden(resource, "x", fmt.Errorf("unable to create new content"))
	terminating.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	for name, c := range map[string]struct {
		call   string
		err    error
		again  time.Duration
		fails  bool
		events int
	}{
		"pod changed hands": {call: "patch Pod", err: apierrors.NewConflict(resource, "p", fmt.Errorf("uid")), again: conflictDelay},
		"pod was replaced": {
			call: "patch Pod", again: conflictDelay,
			err: apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, "p", field.ErrorList{
				field.Invalid(field.NewPath("metadata", "uid"), "u-p", "field is immutable"),
			}),
		},
		"pod went away":         {call: "patch Pod", err: apierrors.NewNotFound(resource, "p")},
		"namespace terminating": {call: "create PodGroup", err: terminating},
		"server is unwell":      {call: "create PodGroup", err: apierrors.NewInternalError(fmt.Errorf("boom")), fails: true, events: 1},
		"create is forbidden":   {call: "create PodGroup", err: forbidden("x"), fails: true, events: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newFakeAPI(t, nil, job("train", nil), podOf("p", ref("batch/v1", "Job", "train")))
				works := w.fail(c.call, c.err)
				result, err := w.reconcile("p")
				if (err != nil) != c.fails || result.RequeueAfter != c.again || len(w.events) != c.events {
					t.Errorf("got %v, %v, events %v", result, err, w.events)
				}
				if w.pod("p").Annotations != nil {
					t.Error("the pod names a group although that failed")
				}
				works()
				w.mustReconcile("p")
				if got := w.pod("p").Annotations[keys.PodGroupAnnotation]; got != "pg-train-u-train" {
					t.Errorf("afterwards the pod is in %q", got)
				}
			})
		})
	}
}

// TestStaleCache: a group that the watch has not shown yet is found by the create that fails.
func TestStaleCache(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		minimum := int32(7)
		existing := &v2alpha2.PodGroup{
			ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "pg-train-u-train"},
			Spec:       v2alpha2.PodGroupSpec{MinMember: &minimum, Queue: "kept", PriorityClassName: "train"},
		}
		w := newFakeAPI(t, nil, job("other", nil), podOf("q", ref("batch/v1", "Job", "other")))
		w.mustReconcile("q") // Jobs are watched from here on
		w.take()
		w.Hold("Job")
		w.Hold("PodGroup")
		w.Put(job("train", nil), podOf("p", ref("batch/v1", "Job", "train")), existing)
		w.mustReconcile("p")
		want := []string{"create PodGroup team/pg-train-u-train", "patch PodGroup team/pg-train-u-train", "patch Pod team/p"}
		if d := cmp.Diff(want, w.take()); d != "" {
			t.Error(d)
		}
		if got := w.podGroup("pg-train-u-train").Spec; *got.MinMember != 1 || got.Queue != "kept" {
			t.Errorf("spec %+v", got)
		}
	})
}

// TestKindDefaults: the ConfigMap of defaults is read once in a while, and its mistakes do no harm.
func TestKindDefaults(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kai", Name: "defaults"}, Data: map[string]string{
			"types": `[{"typeName":"Job","group":"batch","priorityName":"build"}]`,
		}}
		objects := []client.Object{cm}
		for i := range 3 {
			name := fmt.Sprintf("j%d", i)
			objects = append(objects, job(name, nil), podOf("p"+name, ref("batch/v1", "Job", name)))
		}
		w := newFakeAPI(t, func(o *Options) { o.DefaultsNamespace, o.DefaultsName = "kai", "defaults" }, objects...)
		w.mustReconcile("pj0", "pj1")
		if w.reads != 1 {
			t.Errorf("%d reads, want one of the ConfigMap", w.reads)
		}
		cm.Data["types"] = "no JSON"
		w.Put(cm)
		w.sleep(time.Minute)
		w.mustReconcile("pj2")
		for i := range 3 {
			if got := w.podGroup(fmt.Sprintf("pg-j%d-u-j%d", i, i)).Spec.PriorityClassName; got != "build" {
				t.Errorf("group %d: priority class %q", i, got)
			}
		}
	})
}

// TestUnwatchedOwner: what is derived from owners that are not watched is derived again after a while.
func TestUnwatchedOwner(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newFakeAPI(t, nil, job("train", nil), podOf("p", ref("batch/v1", "Job", "train")))
		w.unwatched("Job")
		w.mustReconcile("p")
		w.take()
		w.Put(job("train", map[string]string{keys.BatchMinMemberAnnotation: "3"}))
		w.sleep(w.role.grouper.options.Refresh)
		if d := cmp.Diff([]types.UID{"u-train"}, w.role.grouper.doubtful(t.Context())); d != "" {
			t.Error(d)
		}
		w.mustReconcile("p")
		if d := cmp.Diff([]string{"patch PodGroup team/pg-train-u-train"}, w.take()); d != "" {
			t.Error(d)
		}
	})
}
