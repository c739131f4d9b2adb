package podgrouper

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/go-logr/logr"

	"github.com/muster-scheduler/muster/api/kai/keys"
	"github.com/muster-scheduler/muster/api/scheduling/v2alpha2"
)

func custom(apiVersion, kind, name string, spec map[string]any, owners ...metav1.OwnerReference) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": apiVersion, "kind": kind, "spec": spec}}
	u.SetNamespace("team")
	u.SetName(name)
	u.SetUID(types.UID("u-" + name))
	u.SetOwnerReferences(owners)
	return u
}

func fleetDefinition(name, replicas string) *unstructured.Unstructured {
	u := custom("run.ai/v1alpha1", "Karta", name, map[string]any{
		"structureDefinition": map[string]any{"rootComponent": map[string]any{
			"name": "fleet", "kind": map[string]any{"group": "example.org", "version": "v1", "kind": "Fleet"},
			"scaleDefinition": map[string]any{"replicasPath": replicas},
		}},
		"optimizationInstructions": map[string]any{"gangScheduling": map[string]any{"podGroups": []any{
			map[string]any{"name": "fleet", "members": []any{map[string]any{"componentName": "fleet"}}},
		}}},
	})
	u.SetNamespace("")
	return u
}

// TestDefinitions: a Karta object makes a gang of a kind that has no rule; two for one kind, or the flag, make none; one that
// comes later is found after a while.
func TestDefinitions(t *testing.T) {
	t.Parallel()
	fleet := custom("example.org/v1", "Fleet", "f", map[string]any{"size": int64(3)})
	pod := podOf("p", ref("example.org/v1", "Fleet", "f"))
	w := newWorld(t, nil, fleet, pod)
	w.mustReconcile("p")
	if g := w.podGroup("pg-f-u-f"); *g.Spec.MinMember != 1 {
		t.Errorf("without a definition: %+v", g.Spec)
	}
	if err := w.client.Create(t.Context(), fleetDefinition("one", ".spec.size")); err != nil {
		t.Fatal(err)
	}
	w.clock.Step(2 * time.Minute)
	w.mustReconcile("p")
	if g := w.podGroup("pg-u-f"); *g.Spec.MinSubGroup != 1 || *g.Spec.SubGroups[0].MinMember != 3 || w.pod("p").Labels[keys.SubGroupLabel] != "fleet" {
		t.Errorf("with a definition: %+v", g.Spec)
	}
	if err := w.client.Create(t.Context(), fleetDefinition("two", ".spec.size")); err != nil {
		t.Fatal(err)
	}
	w.clock.Step(2 * time.Minute)
	w.mustReconcile("p")
	if got := w.pod("p").Annotations[keys.PodGroupAnnotation]; got != "pg-f-u-f" {
		t.Errorf("with two definitions the pod is in %s", got)
	}

	off := newWorld(t, func(o *Options) { o.Definitions = false }, fleet.DeepCopy(), pod.DeepCopy(), fleetDefinition("one", ".spec.size"))
	off.mustReconcile("p")
	if got := off.pod("p").Annotations[keys.PodGroupAnnotation]; got != "pg-f-u-f" {
		t.Errorf("switched off, the pod is in %s", got)
	}
}

// TestDefinitionOfNothing: a definition that yields no group is told to the pods of its kind, unless another one is for them.
func TestDefinitionOfNothing(t *testing.T) {
	t.Parallel()
	nothing := fleetDefinition("nothing", ".spec.size")
	nothing.Object["spec"].(map[string]any)["optimizationInstructions"] = map[string]any{"gangScheduling": map[string]any{"podGroup": map[string]any{"name": "g"}}}
	list := &unstructured.UnstructuredList{Items: []unstructured.Unstructured{*nothing}}
	kind := schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: "Fleet"}
	if d := parseDefinitions(logr.Discard(), list)[kind]; d == nil || d.Name != "nothing" {
		t.Errorf("nobody would be told: %+v", d)
	}
	list.Items = append(list.Items, *fleetDefinition("one", ".spec.size"))
	if d := parseDefinitions(logr.Discard(), list)[kind]; d == nil || d.Name != "one" {
		t.Errorf("the other one does not count: %+v", d)
	}
	fleet := custom("example.org/v1", "Fleet", "f", map[string]any{"size": int64(3)})
	w := newWorld(t, nil, fleet, podOf("p", ref("example.org/v1", "Fleet", "f")), nothing)
	w.mustReconcile("p")
	if g := w.podGroup("pg-f-u-f"); *g.Spec.MinMember != 1 {
		t.Errorf("%+v", g.Spec)
	}
	if text := strings.Join(w.events, "\n"); !strings.Contains(text, "spec.optimizationInstructions.gangScheduling.podGroup.subGroups: must list from 1 to 64 components, lists 0") {
		t.Errorf("told: %s", text)
	}
}

// TestDefinitionsUnreadable: no such kind is as none; a server that fails is an error, tried again.
func TestDefinitionsUnreadable(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil, job("j", nil), podOf("p", ref("batch/v1", "Job", "j")))
	failing := &listFails{Reader: w.role.grouper.definitions.reader, err: errors.New("overloaded")}
	w.role.grouper.definitions.reader = failing
	if _, err := w.reconcile("p"); err == nil || !strings.Contains(err.Error(), "overloaded") {
		t.Errorf("got %v", err)
	}
	failing.err = apierrors.NewNotFound(schema.GroupResource{Group: "run.ai", Resource: "kartas"}, "")
	w.mustReconcile("p")
	failing.err = errors.New("not asked again so soon")
	if _, err := w.role.grouper.definitions.get(t.Context()); err != nil {
		t.Error(err)
	}
}

type listFails struct {
	client.Reader
	err error
}

func (f *listFails) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	if f.err != nil {
		return f.err
	}
	return f.Reader.List(ctx, list, opts...)
}

// TestParts: pods of one owner that are in different gangs get a group each, and each is remembered.
func TestParts(t *testing.T) {
	t.Parallel()
	lws := custom("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", "vllm", map[string]any{"leaderWorkerTemplate": map[string]any{"size": int64(1)}})
	leader := func(i string) *corev1.Pod {
		p := podOf("vllm-"+i, ref("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", "vllm"))
		p.Labels = map[string]string{
			"leaderworkerset.sigs.k8s.io/name": "vllm", "leaderworkerset.sigs.k8s.io/group-index": i, "leaderworkerset.sigs.k8s.io/worker-index": "0",
		}
		return p
	}
	w := newWorld(t, nil, lws, leader("0"), leader("1"))
	w.mustReconcile("vllm-0", "vllm-1", "vllm-0", "vllm-1")
	for _, i := range []string{"0", "1"} {
		if got := w.pod("vllm-" + i).Annotations[keys.PodGroupAnnotation]; got != "pg-vllm-u-vllm-group-"+i {
			t.Errorf("pod %s is in %s", i, got)
		}
		w.podGroup("pg-vllm-u-vllm-group-" + i)
		if !w.role.grouper.settled(w.pod("vllm-" + i)) {
			t.Errorf("pod %s is not known to be grouped", i)
		}
	}
	if got := w.role.grouper.memory.forgetOwner("u-vllm"); len(got) != 1 || len(w.role.grouper.memory.all()) != 0 {
		t.Errorf("forgot %v, kept %d", got, len(w.role.grouper.memory.all()))
	}
}

// TestPodGang: the object that a pod names stands for its gang; while there is none the pod waits with an event.
func TestPodGang(t *testing.T) {
	t.Parallel()
	set := custom("grove.io/v1alpha1", "PodCliqueSet", "llm", nil)
	pod := podOf("p", ref("grove.io/v1alpha1", "PodCliqueSet", "llm"))
	pod.Labels = map[string]string{keys.GrovePodGangLabel: "llm-0", "grove.io/podclique": "llm-0-a"}
	w := newWorld(t, nil, set, pod)
	w.mustReconcile("p")
	if len(w.events) != 1 || !strings.Contains(w.events[0], `must name a PodGang that exists, "llm-0" does not`) {
		t.Errorf("events: %v", w.events)
	}
	gang := custom("scheduler.grove.io/v1alpha1", "PodGang", "llm-0", map[string]any{"podgroups": []any{
		map[string]any{"name": "llm-0-a", "minReplicas": int64(2)},
	}})
	if err := w.client.Create(t.Context(), gang); err != nil {
		t.Fatal(err)
	}
	w.clock.Step(2 * time.Minute)
	w.mustReconcile("p")
	if g := w.podGroup("pg-llm-0-u-llm-0"); *g.Spec.MinMember != 2 || w.pod("p").Labels[keys.SubGroupLabel] != "llm-0-a" {
		t.Errorf("%+v", g.Spec)
	}
}

// TestFlatGroupStaysFlat: a JobSet's group that was made before it had subgroups gets none.
func TestFlatGroupStaysFlat(t *testing.T) {
	t.Parallel()
	set := custom("jobset.x-k8s.io/v1alpha2", "JobSet", "js", map[string]any{"replicatedJobs": []any{
		map[string]any{"name": "w", "replicas": int64(2), "template": map[string]any{"spec": map[string]any{"parallelism": int64(3)}}},
	}})
	owned := job("js-w-0", nil, *ref("jobset.x-k8s.io/v1alpha2", "JobSet", "js"))
	pod := podOf("p", ref("batch/v1", "Job", "js-w-0"))
	pod.Labels = map[string]string{"jobset.sigs.k8s.io/replicatedjob-name": "w", "jobset.sigs.k8s.io/job-index": "0"}
	one := int32(1)
	old := &v2alpha2.PodGroup{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "pg-js-u-js"},
		Spec:       v2alpha2.PodGroupSpec{MinMember: &one, Queue: "default-queue"},
	}
	w := newWorld(t, nil, set, owned, pod, old)
	w.mustReconcile("p")
	if g := w.podGroup("pg-js-u-js"); len(g.Spec.SubGroups) != 0 || *g.Spec.MinMember != 6 || w.pod("p").Labels[keys.SubGroupLabel] != "" {
		t.Errorf("%+v", g.Spec)
	}
	fresh := newWorld(t, nil, set.DeepCopy(), owned.DeepCopy(), pod.DeepCopy())
	fresh.mustReconcile("p")
	if g := fresh.podGroup("pg-js-u-js"); len(g.Spec.SubGroups) != 3 || fresh.pod("p").Labels[keys.SubGroupLabel] != "w-replica-0" {
		t.Errorf("%+v", g.Spec)
	}
}

// TestContentIsReadOnce: the Jobs of a JobSet share one reading of it, until its spec changes.
func TestContentIsReadOnce(t *testing.T) {
	t.Parallel()
	jobs := func(replicas int64) map[string]any {
		return map[string]any{"replicatedJobs": []any{map[string]any{"name": "w", "replicas": replicas}}}
	}
	set := custom("jobset.x-k8s.io/v1alpha2", "JobSet", "js", jobs(2))
	set.SetGeneration(1)
	objects := []client.Object{set}
	for _, i := range []string{"0", "1"} {
		pod := podOf("p"+i, ref("batch/v1", "Job", "js-w-"+i))
		pod.Labels = map[string]string{"jobset.sigs.k8s.io/replicatedjob-name": "w", "jobset.sigs.k8s.io/job-index": i}
		objects = append(objects, pod, job("js-w-"+i, nil, *ref("jobset.x-k8s.io/v1alpha2", "JobSet", "js")))
	}
	w := newWorld(t, nil, objects...)
	reads := func() int {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.reads
	}
	w.mustReconcile("p0")
	before := reads()
	w.mustReconcile("p1")
	first := reads() - before
	if len(w.podGroup("pg-js-u-js").Spec.SubGroups) != 3 {
		t.Errorf("%+v", w.podGroup("pg-js-u-js").Spec)
	}
	edited := &unstructured.Unstructured{}
	edited.SetGroupVersionKind(set.GroupVersionKind())
	if err := w.client.Get(t.Context(), key("js"), edited); err != nil {
		t.Fatal(err)
	}
	edited.Object["spec"] = jobs(3)
	edited.SetGeneration(2)
	if err := w.client.Update(t.Context(), edited); err != nil {
		t.Fatal(err)
	}
	w.role.grouper.memory.forgetOwner("u-js")
	before = reads()
	w.mustReconcile("p1")
	if again := reads() - before; again != first+1 || len(w.podGroup("pg-js-u-js").Spec.SubGroups) != 4 {
		t.Errorf("%d reads for another Job, %d after an edit; %+v", first, again, w.podGroup("pg-js-u-js").Spec)
	}
}

// TestDecisivePod: the leader of a group gets its node, and the gang is the whole group from then on.
func TestDecisivePod(t *testing.T) {
	t.Parallel()
	lws := custom("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", "vllm", map[string]any{
		"startupPolicy": "LeaderReady", "leaderWorkerTemplate": map[string]any{"size": int64(3)},
	})
	leader := podOf("vllm-0", ref("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", "vllm"))
	leader.Labels = map[string]string{
		"leaderworkerset.sigs.k8s.io/name": "vllm", "leaderworkerset.sigs.k8s.io/group-index": "0", "leaderworkerset.sigs.k8s.io/worker-index": "0",
	}
	w := newWorld(t, nil, lws, leader)
	pods, _ := w.running()
	pods.Add(leader)
	w.expect("create PodGroup team/pg-vllm-u-vllm-group-0", "patch Pod team/vllm-0")
	if g := w.podGroup("pg-vllm-u-vllm-group-0"); *g.Spec.MinMember != 1 {
		t.Errorf("before: %+v", g.Spec)
	}
	before := w.pod("vllm-0")
	if err := w.client.Patch(t.Context(), before.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(`{"spec":{"nodeName":"n"}}`))); err != nil {
		t.Fatal(err)
	}
	pods.Update(before, w.pod("vllm-0"))
	w.expect("patch PodGroup team/pg-vllm-u-vllm-group-0")
	// The write is told of before it is done.
	var got v2alpha2.PodGroupSpec
	if err := wait.PollUntilContextTimeout(t.Context(), time.Millisecond, 10*time.Second, true, func(context.Context) (bool, error) {
		got = w.podGroup("pg-vllm-u-vllm-group-0").Spec
		return *got.MinMember == 3, nil
	}); err != nil {
		t.Errorf("after: %+v", got)
	}
}
