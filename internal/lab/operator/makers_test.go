package operator

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// TestDefinitions: the CRDs can be read, and each kind that is played has one that serves its version.
func TestDefinitions(t *testing.T) {
	t.Parallel()
	served := map[string]bool{}
	for _, doc := range AllCRDs() {
		u := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(doc, &u.Object); err != nil {
			t.Fatal(err)
		}
		if u.GetKind() != "CustomResourceDefinition" || u.GetName() == "" {
			t.Errorf("%s %q is no CRD", u.GetKind(), u.GetName())
		}
		for _, v := range listed(u.Object, "spec", "versions") {
			key := text(v, "name") + " " + u.GetName()
			if served[key] {
				t.Errorf("%s is there twice", key)
			}
			served[key] = true
		}
	}
	for _, k := range Table() {
		if key := k.Resource.Version + " " + k.Resource.Resource + "." + k.Resource.Group; !served[key] && k.Kind != "PaddleJob" {
			t.Errorf("no CRD serves %s", key)
		}
	}
}

// TestWith: a template gets labels and annotations, and the one that was given stays as it is.
func TestWith(t *testing.T) {
	t.Parallel()
	template := fields{"metadata": fields{"labels": fields{"a": "1"}}, "spec": fields{}}
	p := pod("p", template, labels{"b": "2"}, labels{"c": "3"})
	if l := p.GetLabels(); l["a"] != "1" || l["b"] != "2" || p.GetAnnotations()["c"] != "3" || p.GetName() != "p" {
		t.Errorf("%v", p.Object)
	}
	if len(at(template, "metadata", "labels")) != 1 {
		t.Errorf("the template became %v", template)
	}
}
