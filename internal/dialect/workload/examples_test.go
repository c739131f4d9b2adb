package workload

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

func gvk(group, version, kind string) schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: group, Version: version, Kind: kind}
}

// shared finds a folder of the shared material beside the checkout.
func shared(path string) (string, bool) {
	for dir, i := ".", 0; i < 7; dir, i = filepath.Join(dir, ".."), i+1 {
		at := filepath.Join(dir, "shared", path)
		if _, err := os.Stat(at); err == nil {
			return at, true
		}
	}
	return "", false
}

// podOf makes a pod of a template, as a controller does.
func podOf(t *testing.T, owner *unstructured.Unstructured, name string, labels map[string]string, template ...string) *unstructured.Unstructured {
	t.Helper()
	content, found, err := unstructured.NestedMap(owner.Object, template...)
	if err != nil || !found {
		t.Fatalf("%s has no template: %v", owner.GetName(), err)
	}
	pod := &unstructured.Unstructured{Object: content}
	pod.SetAPIVersion("v1")
	pod.SetKind("Pod")
	pod.SetNamespace(owner.GetNamespace())
	pod.SetName(name)
	pod.SetUID(types.UID("uid-of-" + name))
	all := pod.GetLabels()
	if all == nil {
		all = map[string]string{}
	}
	for k, v := range labels {
		all[k] = v
	}
	pod.SetLabels(all)
	if err := unstructured.SetNestedSlice(pod.Object, []any{map[string]any{
		"apiVersion": owner.GetAPIVersion(), "kind": owner.GetKind(), "name": owner.GetName(), "uid": string(owner.GetUID()),
		"controller": true, "blockOwnerDeletion": true,
	}}, "metadata", "ownerReferences"); err != nil {
		t.Fatal(err)
	}
	return pod
}

// withPods adds to a workload the first pods that its controller makes.
func withPods(t *testing.T, u *unstructured.Unstructured) []*unstructured.Unstructured {
	t.Helper()
	u.SetNamespace("team")
	u.SetUID(types.UID("uid-of-" + u.GetName()))
	out := []*unstructured.Unstructured{u}
	switch u.GetKind() {
	case "Job":
		for _, suffix := range []string{"4kx2p", "zv8wq"} {
			out = append(out, podOf(t, u, u.GetName()+"-"+suffix, map[string]string{
				"batch.kubernetes.io/controller-uid": string(u.GetUID()), "batch.kubernetes.io/job-name": u.GetName(),
				"controller-uid": string(u.GetUID()), "job-name": u.GetName(),
			}, "spec", "template"))
		}
	case "PyTorchJob":
		specs, _, _ := unstructured.NestedMap(u.Object, "spec", "pytorchReplicaSpecs")
		for _, role := range []string{"Master", "Worker"} {
			if specs[role] == nil {
				continue
			}
			role := strings.ToLower(role)
			labels := map[string]string{
				"training.kubeflow.org/job-name": u.GetName(), "training.kubeflow.org/operator-name": "pytorchjob-controller",
				"training.kubeflow.org/replica-index": "0", "training.kubeflow.org/replica-type": role,
			}
			if role == "master" {
				labels["training.kubeflow.org/job-role"] = "master"
			}
			out = append(out, podOf(t, u, fmt.Sprintf("%s-%s-0", u.GetName(), role), labels,
				"spec", "pytorchReplicaSpecs", strings.ToUpper(role[:1])+role[1:], "template"))
		}
	}
	return out
}

// TestExamples groups the pods of KAI's own example manifests, read in place.
func TestExamples(t *testing.T) {
	t.Parallel()
	root, ok := shared("compat/kai/examples")
	if !ok {
		t.Skip("KAI's example manifests do not lie beside this checkout: nothing to compare with")
	}
	for _, path := range []string{
		"docs/batch/batch-job.yaml", "docs/batch/batch-job-min-member.yaml", "docs/batch/pytorch-job.yaml",
		"docs/elastic/pytorch-elastic.yaml", "docs/quickstart/pods/cpu-only-pod.yaml", "docs/quickstart/pods/gpu-pod.yaml",
		"docs/priority/example/build-priority-pod.yaml", "examples/staleness-grace-period/01-with-annotation.yaml",
		"examples/preemption-delay/02-delayed-preemptor.yaml",
	} {
		name := strings.TrimSuffix(filepath.Base(path), ".yaml")
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(filepath.Join(root, path))
			if err != nil {
				t.Fatal(err)
			}
			var objects []*unstructured.Unstructured
			for _, u := range decode(t, text) {
				objects = append(objects, withPods(t, u)...)
			}
			settings := DefaultSettings()
			got := outcome(t, objects, &settings)
			golden := filepath.Join("testdata", "examples", name+".txt")
			if *update {
				if err := os.MkdirAll(filepath.Dir(golden), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(string(want), got); d != "" {
				t.Errorf("(-want +got)\n%s", d)
			}
		})
	}
}
