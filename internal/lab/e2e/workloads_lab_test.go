//go:build lab

package e2e

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/muster-scheduler/muster/api/kai/keys"
	"github.com/muster-scheduler/muster/api/scheduling/v2alpha2"
	"github.com/muster-scheduler/muster/internal/dialect/kai"
	"github.com/muster-scheduler/muster/internal/lab"
	"github.com/muster-scheduler/muster/internal/lab/operator"
)

var update = flag.Bool("update", false, "write what was seen into the pages that show it")

// workloadsPage shows the table that TestWorkloadKinds makes, between two comments.
const workloadsPage = "../../../docs/concepts/workloads.md"

// workloadExample is one object of testdata/workloads.yaml.
type workloadExample struct {
	object *unstructured.Unstructured
	pods   int // that its operator makes; 0 for an object that is no workload
}

func (e *workloadExample) namespace() string {
	return strings.ToLower(e.object.GetKind()) + "-" + e.object.GetName()
}

func workloadExamples(t *testing.T) []workloadExample {
	t.Helper()
	raw, err := os.ReadFile("testdata/workloads.yaml")
	if err != nil {
		t.Fatal(err)
	}
	pods := regexp.MustCompile(`# pods: (\d+)`)
	var out []workloadExample
	for _, doc := range strings.Split(string(raw), "\n---\n")[1:] {
		e := workloadExample{object: &unstructured.Unstructured{}}
		if err := yaml.Unmarshal([]byte(doc), &e.object.Object); err != nil {
			t.Fatalf("%v\n%s", err, doc)
		}
		if m := pods.FindStringSubmatch(doc); m != nil {
			e.pods, _ = strconv.Atoi(m[1])
		}
		out = append(out, e)
	}
	return out
}

// TestWorkloadKinds: one object of each kind of workload, defined by its project's own CRD where that is public, becomes the gang
// that the table says, and runs, while its operator makes the pods one by one. The table is that of docs/concepts/workloads.md.
func TestWorkloadKinds(t *testing.T) {
	w := newFixture(t, 8, lab.Options{CRDs: operator.AllCRDs()})
	examples := workloadExamples(t)
	for _, e := range examples { // definitions of kinds come first
		if e.pods == 0 {
			w.create(t, e.object)
		}
	}
	muster := newProcess(t, "all", w.lab.Kubeconfig())
	muster.start()
	muster.awaitReady(t)
	began := time.Now()
	for _, e := range examples {
		if e.pods == 0 {
			continue
		}
		e.object.SetNamespace(e.namespace())
		w.create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: e.namespace()}})
		w.create(t, e.object.DeepCopy())
		if e.object.GetKind() == "CronJob" {
			w.trigger(t, e.object)
		}
	}
	for _, e := range examples {
		if e.pods == 0 {
			continue
		}
		if _, lacking := w.await(max(time.Minute-time.Since(began), 5*time.Second), func() string { return w.gangRuns(e.namespace(), e.pods) }); lacking != "" {
			t.Errorf("%s: %s", e.object.GetKind(), lacking)
		}
	}
	t.Logf("all run after %v", time.Since(began).Round(time.Millisecond))
	w.checkPage(t, func() string {
		var rows []string
		for _, e := range examples {
			if e.pods > 0 {
				rows = append(rows, fmt.Sprintf("| %s `%s` | %s | %s | %s | %d/%d |", e.object.GetKind(), e.object.GetAPIVersion(), definition(&e),
					e.object.GetName(), w.gangs(e.namespace()), w.running(e.namespace()), e.pods))
			}
		}
		slices.Sort(rows)
		return "| kind | CRD | example | gang | running |\n|---|---|---|---|---|\n" + strings.Join(rows, "\n") + "\n"
	})

	// An edit of the owner in mid-flight reaches the gang, and the pods that are new join it.
	for _, e := range []struct {
		namespace, apiVersion, kind, name, patch, want string
		patchType                                      types.PatchType
		pods                                           int
	}{
		{
			"pytorchjob-torch", "kubeflow.org/v1", "PyTorchJob", "torch", `{"spec":{"pytorchReplicaSpecs":{"Worker":{"replicas":4}}}}`,
			"min 5: master 1, worker 4; train", types.MergePatchType, 5,
		},
		{
			"raycluster-ray", "ray.io/v1", "RayCluster", "ray", `[{"op":"replace","path":"/spec/workerGroupSpecs/0/replicas","value":3}]`,
			"min 5: headgroup 1, gpu 3, cpu 1; train", types.JSONPatchType, 6,
		},
	} {
		o := &unstructured.Unstructured{}
		o.SetAPIVersion(e.apiVersion)
		o.SetKind(e.kind)
		o.SetNamespace(e.namespace)
		o.SetName(e.name)
		if err := w.client.Patch(t.Context(), o, client.RawPatch(e.patchType, []byte(e.patch))); err != nil {
			t.Fatal(err)
		}
		took := w.must(t, 20*time.Second, func() string {
			if got := w.gangs(e.namespace); got != e.want {
				return fmt.Sprintf("the gang of %s is %q, not %q", e.kind, got, e.want)
			}
			return w.gangRuns(e.namespace, e.pods)
		})
		t.Logf("%s scaled: gang followed, %d pods run after %v", e.kind, e.pods, took.Round(time.Millisecond))
	}
}

// trigger makes the Job that a CronJob makes when its time comes.
func (w *fixture) trigger(t *testing.T, cron *unstructured.Unstructured) {
	t.Helper()
	var c batchv1.CronJob
	if err := w.client.Get(t.Context(), client.ObjectKeyFromObject(cron), &c); err != nil {
		t.Fatal(err)
	}
	w.create(t, &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: c.Namespace, Name: c.Name + "-28000000", Labels: map[string]string{keys.QueueLabel: "team"},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "batch/v1", Kind: "CronJob", Name: c.Name, UID: c.UID, Controller: ptr.To(true), BlockOwnerDeletion: ptr.To(true),
			}},
		},
		Spec: c.Spec.JobTemplate.Spec,
	})
}

// gangRuns says what lacks until n pods of a namespace run, each in a gang.
func (w *fixture) gangRuns(namespace string, n int) string {
	for _, p := range w.pods(namespace) {
		if gangOf(&p) == "" {
			return fmt.Sprintf("pod %s is in no gang", p.Name)
		}
	}
	return w.allRunning(namespace, n)()
}

func definition(e *workloadExample) string {
	switch g := e.object.GroupVersionKind().Group; {
	case g == "" || g == "apps" || g == "batch":
		return "built in"
	case slices.Contains(operator.Minimal(), e.object.GroupVersionKind()):
		return "minimal"
	}
	return "real"
}

// gangs describes the gangs of a namespace, PodGroups and pods that are one by themselves; several that look alike count as one.
func (w *fixture) gangs(namespace string) string {
	shapes, groups := map[string]int{}, map[string]bool{}
	for _, g := range list(w, &v2alpha2.PodGroupList{}, client.InNamespace(namespace)).Items {
		shapes[gangShape(&g)]++
		groups[g.Name] = true
	}
	for _, p := range w.pods(namespace) {
		if own := kai.OwnGang(&p); own != nil && !groups[own.Name] {
			shapes[gangShape(own)+", by itself"]++
		}
	}
	var out []string
	for shape, n := range shapes { // order: sorted below
		if n > 1 {
			shape = fmt.Sprintf("%d × %s", n, shape)
		}
		out = append(out, shape)
	}
	slices.Sort(out)
	return strings.Join(out, " and ")
}

func gangShape(g *v2alpha2.PodGroup) string {
	var parts func(parent string) string
	parts = func(parent string) string {
		var out []string
		for _, s := range g.Spec.SubGroups {
			switch {
			case ptr.Deref(s.Parent, "") != parent:
			case s.MinSubGroup != nil:
				out = append(out, fmt.Sprintf("%s %d of (%s)", s.Name, *s.MinSubGroup, parts(s.Name)))
			default:
				out = append(out, fmt.Sprintf("%s %d", s.Name, ptr.Deref(s.MinMember, 0)))
			}
		}
		return strings.Join(out, ", ")
	}
	out := fmt.Sprintf("min %d", ptr.Deref(g.Spec.MinMember, 0))
	if g.Spec.MinSubGroup != nil {
		out = fmt.Sprintf("%d of", *g.Spec.MinSubGroup)
	}
	if p := parts(""); p != "" {
		out += ": " + p
	}
	return out + "; " + g.Spec.PriorityClassName
}

// checkPage waits until the table is the page's, for a PodGroup may follow the last pod by a moment; or writes it there.
func (w *fixture) checkPage(t *testing.T, table func() string) {
	t.Helper()
	const begin, end = "<!-- kinds: written by TestWorkloadKinds -->\n", "<!-- end of kinds -->\n"
	raw, err := os.ReadFile(workloadsPage)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(raw), begin)
	page, after, closed := strings.Cut(rest, end)
	if !found || !closed {
		t.Fatalf("%s has no place for the table", workloadsPage)
	}
	if *update {
		if err := os.WriteFile(workloadsPage, []byte(before+begin+table()+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if _, diff := w.await(20*time.Second, func() string { return cmp.Diff(page, table()) }); diff != "" {
		t.Errorf("%s shows another table (-page +seen):\n%s", workloadsPage, diff)
	}
	t.Logf("the table:\n%s", table())
}
