//go:build lab

package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-scheduler/muster/api/scheduling/v2alpha2"
	"github.com/muster-scheduler/muster/internal/lab"
	"github.com/muster-scheduler/muster/internal/lab/operator"
)

// example is one of KAI's own example files, and what must be seen once it is applied unchanged.
type example struct {
	file string // below the folder of examples
	see  string // one line for people
	// busy are the GPUs of each node, by index, that others hold before.
	busy []int
	// lacking is what is still to be seen, "" for nothing. The file's objects are in namespace default.
	lacking func(w *fixture) string
}

// Labels of the examples' topologies. The fleet has 2 zones of 2 racks of 2 nodes of 8 GPUs.
const (
	zoneDomain = "topology.test/zone-domain"
	rackDomain = "topology.test/rack-domain"
	rackAlias  = "accelerator.nvidia.com/rack"
)

// shows are in the order in which they are played, each on an empty cluster.
func shows() []example {
	return []example{
		{
			file: "examples/topology-aliases/topology-aliases.yaml",
			see:  "three pods run in the one rack that has room for all of them, which the gang asks for by the level's alias",
			busy: []int{6, 8, 8, 6, 6, 7, 8, 7},
			lacking: func(w *fixture) string {
				return w.together("job-name", "aliased-topology-job", 3, rackAlias, "rack-2")
			},
		},
		{
			file: "examples/external-podgroup/multi-topology-jobs.yaml",
			see:  "of one gang, three pods run in the one rack with room for them, by one topology, and three in one zone, by another",
			busy: []int{4, 4, 4, 4, 4, 4, 0, 0},
			lacking: func(w *fixture) string {
				if what := w.together("job-name", "rack-bound-job", 3, rackDomain, "rack-domain-3"); what != "" {
					return what
				}
				return w.together("job-name", "zone-bound-job", 3, zoneDomain, "")
			},
		},
		{
			file: "examples/batch/external-podgroup-job.yaml",
			see:  "two pods run as the gang that the user made, and nobody made another for them",
			lacking: func(w *fixture) string {
				groups := list(w, &v2alpha2.PodGroupList{}, client.InNamespace(metav1.NamespaceDefault)).Items
				if len(groups) != 1 || groups[0].Name != "external-batch-job" || len(groups[0].OwnerReferences) != 0 {
					return fmt.Sprintf("there are %d PodGroups, not the user's alone", len(groups))
				}
				return w.together("job-name", "external-batch-job", 2, "", "")
			},
		},
		{
			file: "docs/elastic/pytorch-elastic.yaml",
			see:  "a gang of which one pod is enough, and both run",
			lacking: func(w *fixture) string {
				groups := list(w, &v2alpha2.PodGroupList{}, client.InNamespace(metav1.NamespaceDefault)).Items
				if len(groups) != 1 || leastOf(&groups[0]) != 1 {
					return fmt.Sprintf("there are %d PodGroups, not one whose minimum is 1", len(groups))
				}
				return w.together("training.kubeflow.org/job-name", "elastic-example-imagenet", 2, "", "")
			},
		},
	}
}

// leastOf is how many pods a PodGroup needs in all: its minimum, or else the sum of those of its subgroups.
func leastOf(pg *v2alpha2.PodGroup) int {
	if pg.Spec.MinMember != nil {
		return int(*pg.Spec.MinMember)
	}
	sum := 0
	for i := range pg.Spec.SubGroups {
		if m := pg.Spec.SubGroups[i].MinMember; m != nil {
			sum += int(*m)
		}
	}
	return sum
}

// together says what is missing until n pods that carry the label run, all on nodes of one value of level: the one given,
// unless it is "". Without a level they may be anywhere.
func (w *fixture) together(label, value string, n int, level, domain string) string {
	running := 0
	var domains []string
	for _, p := range w.pods(metav1.NamespaceDefault) {
		if p.Labels[label] != value || p.Status.Phase != corev1.PodRunning {
			continue
		}
		running++
		for _, node := range list(w, &corev1.NodeList{}).Items {
			if d := node.Labels[level]; node.Name == p.Spec.NodeName && level != "" && !slices.Contains(domains, d) {
				domains = append(domains, d)
			}
		}
	}
	switch {
	case running != n:
		return fmt.Sprintf("%d of %d pods with %s=%s run", running, n, label, value)
	case len(domains) > 1, domain != "" && !slices.Equal(domains, []string{domain}):
		return fmt.Sprintf("the pods with %s=%s are in %s, not in one %s%s", label, value, strings.Join(domains, " and "), level, " "+domain)
	}
	return ""
}

// TestExamples applies KAI's example files as they are and sees what they are there to show.
func TestExamples(t *testing.T) {
	root := examples(t)
	if root == "" {
		return
	}
	w := newFixture(t, 0, lab.Options{CRDs: operator.CRDs(), Fleet: lab.Fleet{Pools: []lab.Pool{{
		Name: "n", Count: 8, GPUs: 8, Tree: []lab.Level{{Label: zoneDomain, Count: 2}, {Label: rackDomain, Count: 2}, {Label: rackAlias, Count: 1}},
	}}}})
	w.deploy(t, filepath.Join(root, "examples/quickstart/default-queues.yaml"))
	muster := newProcess(t, "all", w.lab.Kubeconfig())
	muster.start()
	muster.awaitReady(t)
	for _, e := range shows() {
		t.Run(strings.TrimSuffix(filepath.Base(e.file), ".yaml"), func(t *testing.T) {
			for i, gpus := range e.busy {
				w.occupy(t, i, gpus)
			}
			applied := w.deploy(t, filepath.Join(root, e.file))
			took, lacking := w.await(20*time.Second, func() string { return e.lacking(w) })
			if lacking != "" {
				t.Errorf("%s: not seen: %s: %s", e.file, e.see, lacking)
			} else {
				t.Logf("%s: seen after %v: %s", e.file, took.Round(time.Millisecond), e.see)
			}
			w.withdraw(t, applied)
		})
	}
}

// deploy creates what a file holds, as it is; objects that do not say otherwise go into namespace default.
func (w *fixture) deploy(t *testing.T, path string) []*unstructured.Unstructured {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	out := manifestsOf(t, path, text)
	for _, o := range out {
		if namespaced, err := w.client.IsObjectNamespaced(o); err != nil {
			t.Fatalf("%s: %s %s: %v", path, o.GetKind(), o.GetName(), err)
		} else if namespaced && o.GetNamespace() == "" {
			o.SetNamespace(metav1.NamespaceDefault)
		}
		if err := w.client.Create(t.Context(), o); err != nil {
			t.Fatalf("%s: %s %s: %v", path, o.GetKind(), o.GetName(), err)
		}
	}
	return out
}

// manifestsOf are the objects of a text, as it is; name is for messages.
func manifestsOf(t *testing.T, name string, text []byte) (out []*unstructured.Unstructured) {
	t.Helper()
	for r := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096); ; {
		o := &unstructured.Unstructured{}
		if err := r.Decode(&o.Object); errors.Is(err, io.EOF) {
			return out
		} else if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if len(o.Object) > 0 {
			out = append(out, o)
		}
	}
}

// occupy puts a pod of another scheduler on the i-th node.
func (w *fixture) occupy(t *testing.T, i, gpus int) {
	t.Helper()
	if gpus == 0 {
		return
	}
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "busy-" + strconv.Itoa(i)}}
	p.Spec.NodeName = "n-" + strconv.Itoa(i)
	some := corev1.ResourceList{lab.GPUResource: *resource.NewQuantity(int64(gpus), resource.DecimalSI)}
	p.Spec.Containers = []corev1.Container{{Name: "main", Image: "example.com/main", Resources: corev1.ResourceRequirements{Limits: some}}}
	w.create(t, p)
}

// withdraw deletes objects and all pods of namespace default, and waits until nothing is left of them.
func (w *fixture) withdraw(t *testing.T, objects []*unstructured.Unstructured) {
	t.Helper()
	for _, o := range objects {
		if err := w.client.Delete(t.Context(), o, client.PropagationPolicy(metav1.DeletePropagationBackground)); client.IgnoreNotFound(err) != nil {
			t.Fatal(err)
		}
	}
	w.must(t, time.Minute, func() string {
		if n := len(list(w, &batchv1.JobList{}, client.InNamespace(metav1.NamespaceDefault)).Items); n > 0 {
			return fmt.Sprintf("%d Jobs are left", n)
		}
		return ""
	})
	if err := w.client.DeleteAllOf(t.Context(), &corev1.Pod{}, client.InNamespace(metav1.NamespaceDefault)); err != nil {
		t.Fatal(err)
	}
	w.must(t, time.Minute, func() string {
		pods, groups := len(w.pods(metav1.NamespaceDefault)), len(list(w, &v2alpha2.PodGroupList{}, client.InNamespace(metav1.NamespaceDefault)).Items)
		if pods+groups > 0 {
			return fmt.Sprintf("%d pods and %d PodGroups are left", pods, groups)
		}
		return ""
	})
}
