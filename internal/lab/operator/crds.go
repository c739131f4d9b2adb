package operator

import (
	"bytes"
	"compress/gzip"
	"embed"
	"fmt"
	"io"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

//go:embed crds/*.yaml crds/*.yaml.gz
var crdFiles embed.FS

// CRDs returns the real CustomResourceDefinitions, as YAML, of the kinds that the demo and most tests use. See
// crds/README.md for where they are from.
func CRDs() [][]byte { return read(".yaml") }

// AllCRDs returns the definitions of every kind of the Table and of the kinds that their operators make: the real ones where
// they are public in a form that can be had, else minimal ones, which accept any spec.
func AllCRDs() [][]byte {
	docs := append(CRDs(), read(".yaml.gz")...)
	for _, m := range Minimal() {
		docs = append(docs, minimalCRD(m))
	}
	return docs
}

func read(suffix string) [][]byte {
	entries, err := crdFiles.ReadDir("crds")
	if err != nil {
		panic(fmt.Sprintf("the embedded CRDs cannot be listed: %v", err))
	}
	var docs [][]byte
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), suffix) {
			continue
		}
		b, err := crdFiles.ReadFile("crds/" + e.Name())
		if err == nil && suffix == ".yaml.gz" {
			b, err = unpack(b)
		}
		if err != nil {
			panic(fmt.Sprintf("the embedded CRD %s cannot be read: %v", e.Name(), err))
		}
		docs = append(docs, b)
	}
	return docs
}

func unpack(b []byte) ([]byte, error) {
	r, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		return nil, fmt.Errorf("unpack: %w", err)
	}
	out, err := io.ReadAll(r)
	if err != nil {
		return nil, fmt.Errorf("unpack: %w", err)
	}
	return out, nil
}

// Minimal returns the kinds whose definition is a minimal one: their projects publish none, or publish it only within a
// program, or their module cannot be had.
func Minimal() []schema.GroupVersionKind {
	kind := func(group, version, kind string) schema.GroupVersionKind {
		return schema.GroupVersionKind{Group: group, Version: version, Kind: kind}
	}
	return []schema.GroupVersionKind{
		kind("amlarc.azureml.com", "v1alpha1", "AmlJob"),
		kind("apps.nvidia.com", "v1alpha1", "NIMService"),
		kind("egx.nvidia.io", "v1", "SPOTRequest"),
		kind("example.org", "v1", "Fleet"),
		kind("grove.io", "v1alpha1", "PodClique"),
		kind("grove.io", "v1alpha1", "PodCliqueSet"),
		kind("grove.io", "v1alpha1", "PodGangSet"),
		kind("kubeflow.org", "v1alpha1", "ScheduledWorkflow"),
		kind("kubeflow.org", "v1beta1", "Notebook"),
		kind("kubevirt.io", "v1", "VirtualMachineInstance"),
		kind("machinelearning.seldon.io", "v1", "SeldonDeployment"),
		kind("nvidia.com", "v1alpha1", "DynamoGraphDeployment"),
		kind("run.ai", "v1", "RunaiJob"),
		kind("run.ai", "v1alpha1", "Karta"),
		kind("run.ai", "v2alpha1", "DistributedInferenceWorkload"),
		kind("run.ai", "v2alpha1", "DistributedWorkload"),
		kind("run.ai", "v2alpha1", "InferenceWorkload"),
		kind("run.ai", "v2alpha1", "InteractiveWorkload"),
		kind("run.ai", "v2alpha1", "TrainingWorkload"),
		kind("scheduler.grove.io", "v1alpha1", "PodGang"),
	}
}

// minimalCRD is a definition that accepts any spec.
func minimalCRD(gvk schema.GroupVersionKind) []byte {
	plural, singular := meta.UnsafeGuessKindToResource(gvk)
	scope := "Namespaced"
	if gvk.Kind == "Karta" {
		scope = "Cluster"
	}
	return fmt.Appendf(nil, `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: %[1]s.%[2]s
  annotations: {lab.muster.dev/minimal: "true"}
spec:
  group: %[2]s
  scope: %[6]s
  names: {kind: %[3]s, listKind: %[3]sList, plural: %[1]s, singular: %[4]s}
  versions:
  - name: %[5]s
    served: true
    storage: true
    subresources: {status: {}}
    schema:
      openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}
`, plural.Resource, gvk.Group, gvk.Kind, singular.Resource, gvk.Version, scope)
}
