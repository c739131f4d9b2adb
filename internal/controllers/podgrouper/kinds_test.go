package podgrouper

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/go-logr/logr"

	"github.com/muster-scheduler/muster/api/kai/keys"
	"github.com/muster-scheduler/muster/api/scheduling/v2alpha2"
	"github.com/muster-scheduler/muster/internal/kubetest"
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
	synctest.Test(t, func(t *testing.T) {
		fleet := custom("example.org/v1", "Fleet", "f", map[string]any{"size": int64(3)})
		pod := podOf("p", ref("example.org/v1", "Fleet", "f"))
		w := newFakeAPI(t, nil, fleet, pod)
		w.mustReconcile("p")
		if g := w.podGroup("pg-f-u-f"); *g.Spec.MinMember != 1 {
			t.Errorf("without a definition: %+v", g.Spec)
		}
		w.Put(fleetDefinition("one", ".spec.size"))
		w.sleep(2 * time.Minute)
		w.mustReconcile("p")
		if g := w.podGroup("pg-u-f"); *g.Spec.MinSubGroup != 1 || *g.Spec.SubGroups[0].MinMember != 3 || w.pod("p").Labels[keys.SubGroupLabel] != "fleet" {
			t.Errorf("with a definition: %+v", g.Spec)
		}
		w.Put(fleetDefinition("two", ".spec.size"))
		w.sleep(2 * time.Minute)
		w.mustReconcile("p")
		if got := w.pod("p").Annotations[keys.PodGroupAnnotation]; got != "pg-f-u-f" {
			t.Errorf("with two definitions the pod is in %s", got)
		}

		off := newFakeAPI(t, func(o *Options) { o.Definitions = false }, fleet.DeepCopy(), pod.DeepCopy(), fleetDefinition("one", ".spec.size"))
		off.mustReconcile("p")
		if got := off.pod("p").Annotations[keys.PodGroupAnnotation]; got != "pg-f-u-f" {
			t.Errorf("switched off, the pod is in %s", got)
		}
	})
}

// TestDefinitionOfNothing: a definition that yields no group is told to the pods of its kind, unless another one is for them.
func TestDefinitionOfNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
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
		w := newFakeAPI(t, nil, fleet, podOf("p", ref("example.org/v1", "Fleet", "f")), nothing)
		w.mustReconcile("p")
		if g := w.podGroup("pg-f-u-f"); *g.Spec.MinMember != 1 {
			t.Errorf("%+v", g.Spec)
		}
		if text := strings.Join(w.events, "\n"); !strings.Contains(text, "spec.optimizationInstructions.gangScheduling.podGroup.subGroups: must list from 1 to 64 components, lists 0") {
			t.Errorf("told: %s", text)
		}
	})
}

// TestDefinitionsUnreadable: no such kind is as none; a server that fails is an error, tried again.
func TestDefinitionsUnreadable(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newFakeAPI(t, nil, job("j", nil), podOf("p", ref("batch/v1", "Job", "j")))
		works := w.fail("list Karta", errors.New("overloaded"))
		if _, err := w.reconcile("p"); err == nil || !strings.Contains(err.Error(), "list the Karta objects") {
			t.Errorf("got %v", err)
		}
		works()
		works = w.fail("list Karta", apierrors.NewNotFound(schema.GroupResource{Group: "run.ai", Resource: "kartas"}, ""))
		w.mustReconcile("p")
		works()
		w.fail("list Karta", errors.New("not asked again so soon"))
		if _, err := w.role.grouper.definitions.get(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// TestPodGang: the object that a pod names stands for its gang; while there is none the pod waits with an event.
func TestPodGang(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		set := custom("grove.io/v1alpha1", "PodCliqueSet", "llm", nil)
		pod := podOf("p", ref("grove.io/v1alpha1", "PodCliqueSet", "llm"))
		pod.Labels = map[string]string{keys.GrovePodGangLabel: "llm-0", "grove.io/podclique": "llm-0-a"}
		w := newFakeAPI(t, nil, set, pod)
		w.mustReconcile("p")
		if len(w.events) != 1 || !strings.Contains(w.events[0], `must name a PodGang that exists, "llm-0" does not`) {
			t.Errorf("events: %v", w.events)
		}
		gang := custom("scheduler.grove.io/v1alpha1", "PodGang", "llm-0", map[string]any{"podgroups": []any{
			map[string]any{"name": "llm-0-a", "minReplicas": int64(2)},
		}})
		w.Put(gang)
		w.sleep(2 * time.Minute)
		w.mustReconcile("p")
		if g := w.podGroup("pg-llm-0-u-llm-0"); *g.Spec.MinMember != 2 || w.pod("p").Labels[keys.SubGroupLabel] != "llm-0-a" {
			t.Errorf("%+v", g.Spec)
		}
	})
}

// TestFlatGroupStaysFlat: a JobSet's group that was made before it had subgroups gets none.
func TestFlatGroupStaysFlat(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
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
		w := newFakeAPI(t, nil, set, owned, pod, old)
		w.mustReconcile("p")
		if g := w.podGroup("pg-js-u-js"); len(g.Spec.SubGroups) != 0 || *g.Spec.MinMember != 6 || w.pod("p").Labels[keys.SubGroupLabel] != "" {
			t.Errorf("%+v", g.Spec)
		}
		fresh := newFakeAPI(t, nil, set.DeepCopy(), owned.DeepCopy(), pod.DeepCopy())
		fresh.mustReconcile("p")
		if g := fresh.podGroup("pg-js-u-js"); len(g.Spec.SubGroups) != 3 || fresh.pod("p").Labels[keys.SubGroupLabel] != "w-replica-0" {
			t.Errorf("%+v", g.Spec)
		}
	})
}

// TestContentIsReadOnce: the Jobs of a JobSet share one reading of it, until its spec changes.
func TestContentIsReadOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
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
		w := newFakeAPI(t, nil, objects...)
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
		edited.SetNamespace("team")
		edited.SetName("js")
		kubetest.Edit(w.Server, edited, func(u *unstructured.Unstructured) { u.Object["spec"] = jobs(3) })
		w.role.grouper.memory.forgetOwner("u-js")
		before = reads()
		w.mustReconcile("p1")
		if again := reads() - before; again != first+1 || len(w.podGroup("pg-js-u-js").Spec.SubGroups) != 4 {
			t.Errorf("%d reads for another Job, %d after an edit; %+v", first, again, w.podGroup("pg-js-u-js").Spec)
		}
	})
}

// TestDecisivePod: the leader of a group gets its node, and the gang is the whole group from then on.
func TestDecisivePod(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		lws := custom("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", "vllm", map[string]any{
			"startupPolicy": "LeaderReady", "leaderWorkerTemplate": map[string]any{"size": int64(3)},
		})
		leader := podOf("vllm-0", ref("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", "vllm"))
		leader.Labels = map[string]string{
			"leaderworkerset.sigs.k8s.io/name": "vllm", "leaderworkerset.sigs.k8s.io/group-index": "0", "leaderworkerset.sigs.k8s.io/worker-index": "0",
		}
		w := server(t, lws, leader)
		w.run(w.Process("podgrouper"))
		w.expect("create PodGroup team/pg-vllm-u-vllm-group-0", "patch Pod team/vllm-0")
		if g := w.podGroup("pg-vllm-u-vllm-group-0"); *g.Spec.MinMember != 1 {
			t.Errorf("before: %+v", g.Spec)
		}
		kubetest.Edit(w.Server, podOf("vllm-0", nil), func(p *corev1.Pod) { p.Spec.NodeName = "n" })
		w.expect("patch PodGroup team/pg-vllm-u-vllm-group-0")
		if g := w.podGroup("pg-vllm-u-vllm-group-0"); *g.Spec.MinMember != 3 {
			t.Errorf("after: %+v", g.Spec)
		}
	})
}
