package crds_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	gvk "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	kaiv1 "github.com/muster-scheduler/muster/api/kai/v1"
	kaiv1alpha1 "github.com/muster-scheduler/muster/api/kai/v1alpha1"
	"github.com/muster-scheduler/muster/api/scheduling/v1alpha2"
	schedulingv2 "github.com/muster-scheduler/muster/api/scheduling/v2"
	"github.com/muster-scheduler/muster/api/scheduling/v2alpha2"
)

// notObjects are the example files that are no API objects, with what they are.
var notObjects = map[string]string{
	"docs/migrationguides/v0.6.0/values.yaml":                                    "values of a Helm chart",
	"examples/time-based-fairshare/two-queue-oscillation/simulation-config.yaml": "input of the fair share simulator",
}

// foreignKinds are the kinds in the examples whose CRDs come from other projects.
var foreignKinds = map[gvk.GroupVersionKind]string{
	{Group: "kubeflow.org", Version: "v1", Kind: "PyTorchJob"}:                "Kubeflow training operator",
	{Group: "ray.io", Version: "v1", Kind: "RayJob"}:                          "KubeRay",
	{Group: "resource.nvidia.com", Version: "v1beta1", Kind: "ComputeDomain"}: "NVIDIA's DRA driver",
}

func newScheme(t *testing.T) *runtime.Scheme {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		corev1.AddToScheme, batchv1.AddToScheme, kaiv1.AddToScheme, kaiv1alpha1.AddToScheme,
		v1alpha2.AddToScheme, schedulingv2.AddToScheme, v2alpha2.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	return scheme
}

// documents splits a YAML file and drops documents without content.
func documents(t *testing.T, content []byte) [][]byte {
	t.Helper()
	var all [][]byte
	reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(content)))
	for {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		var parsed any
		if err := yaml.Unmarshal(document, &parsed); err != nil {
			t.Fatal(err)
		}
		if parsed != nil {
			all = append(all, document)
		}
	}
}

// TestExamples decodes every example manifest strictly: a field that our types lack is an error. Objects of our kinds
// must also pass the CRD's validation.
func TestExamples(t *testing.T) {
	t.Parallel()
	folder := sharedFolder(t, "compat/kai/examples")
	scheme := newScheme(t)
	decoder := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
	validators := map[gvk.GroupKind]*validator{}
	for _, d := range ownDefinitions(t) {
		names := d.typed.Spec.Names
		validators[gvk.GroupKind{Group: d.typed.Spec.Group, Kind: names.Kind}] = newValidator(t, d.typed.Spec.Group, names.Plural)
	}
	all := examples(t, folder)
	for _, e := range all {
		_, kind, err := decoder.Decode(e.document, nil, nil)
		if err != nil {
			t.Errorf("%s: %v", e.at, err)
			continue
		}
		if validator := validators[kind.GroupKind()]; validator != nil {
			if found := validator.errors(object(t, string(e.document)), nil); len(found) > 0 {
				t.Errorf("%s: %v", e.at, found.ToAggregate())
			}
		}
	}
	t.Logf("%d objects decoded strictly", len(all))
}

// example is one API object among the example manifests.
type example struct {
	file     string
	at       string // file and number of the document
	document []byte
}

// examples reads all objects that need no foreign CRD, in order of their files. What it leaves out is listed in
// notObjects and foreignKinds; entries that are not among the examples are errors.
func examples(t *testing.T, folder string) []example {
	t.Helper()
	usedFiles, usedKinds := map[string]bool{}, map[gvk.GroupVersionKind]bool{}
	var all []example
	err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".yaml") {
			return err
		}
		name, err := filepath.Rel(folder, path)
		if err != nil {
			return err
		}
		name = filepath.ToSlash(name)
		if _, ok := notObjects[name]; ok {
			usedFiles[name] = true
			return nil
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for i, document := range documents(t, content) {
			var meta metav1.TypeMeta
			if err := yaml.Unmarshal(document, &meta); err != nil {
				return fmt.Errorf("%s, document %d: %w", name, i+1, err)
			}
			if foreign := meta.GroupVersionKind(); foreignKinds[foreign] != "" {
				usedKinds[foreign] = true
				continue
			}
			all = append(all, example{name, fmt.Sprintf("%s, document %d", name, i+1), document})
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for name := range notObjects {
		if !usedFiles[name] {
			t.Errorf("%s is listed as no API object but is not among the examples", name)
		}
	}
	for kind := range foreignKinds {
		if !usedKinds[kind] {
			t.Errorf("%s is listed as a foreign kind but is not among the examples", kind)
		}
	}
	if len(all) == 0 {
		t.Error("there are no examples")
	}
	return all
}
