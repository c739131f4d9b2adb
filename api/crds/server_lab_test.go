//go:build lab

package crds_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	gvk "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/restmapper"
	"sigs.k8s.io/yaml"

	"github.com/muster-scheduler/muster/api/crds"
	"github.com/muster-scheduler/muster/api/kai/keys"
	"github.com/muster-scheduler/muster/internal/lab"
)

// TestServer gives our CRDs to a real API server, then the PriorityClasses of an installation, every example manifest
// and every case of TestObjects.
func TestServer(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	l, err := lab.Start(ctx, lab.Options{CRDs: crds.Documents(), Logf: t.Logf})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := l.Stop(); err != nil {
			t.Error(err)
		}
	}()
	client, err := dynamic.NewForConfig(l.Config())
	if err != nil {
		t.Fatal(err)
	}
	resources, err := restmapper.GetAPIGroupResources(l.Client().Discovery())
	if err != nil {
		t.Fatal(err)
	}
	s := &server{client: client, mapper: restmapper.NewDiscoveryRESTMapper(resources)}
	for name, value := range map[string]int32{
		keys.PriorityClassTrain: 50, keys.PriorityClassBuildPreemptible: 75,
		keys.PriorityClassBuild: 100, keys.PriorityClassInference: 125,
	} {
		class := &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Value: value}
		if _, err := l.Client().SchedulingV1().PriorityClasses().Create(ctx, class, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	t.Run("examples", func(t *testing.T) { s.examples(ctx, t) })
	t.Run("objects", func(t *testing.T) { s.objects(ctx, t) })
}

type server struct {
	client dynamic.Interface
	mapper meta.RESTMapper
}

// resource finds where objects of a kind live, in namespace default unless they name another one.
func (s *server) resource(object *unstructured.Unstructured) (dynamic.ResourceInterface, error) {
	kind := object.GroupVersionKind()
	mapping, err := s.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		return nil, err
	}
	if mapping.Scope.Name() == meta.RESTScopeNameRoot {
		return s.client.Resource(mapping.Resource), nil
	}
	namespace := object.GetNamespace()
	if namespace == "" {
		namespace = metav1.NamespaceDefault
	}
	return s.client.Resource(mapping.Resource).Namespace(namespace), nil
}

// examples applies every example unchanged, with unknown fields forbidden. What a file made is removed after it,
// namespaces excepted, because some files use the same names.
func (s *server) examples(ctx context.Context, t *testing.T) {
	folder := sharedFolder(t, "compat/kai/examples")
	all := examples(t, folder)
	for i, e := range all {
		object := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(e.document, &object.Object); err != nil {
			t.Errorf("%s: %v", e.at, err)
			continue
		}
		if err := s.apply(ctx, object, e.document); err != nil {
			t.Errorf("%s: %v", e.at, err)
		}
		if i+1 == len(all) || all[i+1].file != e.file {
			s.remove(ctx, t, all, e.file)
		}
	}
	t.Logf("%d objects applied", len(all))
}

// apply waits for the service account that a new namespace is given before pods are admitted.
func (s *server) apply(ctx context.Context, object *unstructured.Unstructured, document []byte) error {
	resource, err := s.resource(object)
	if err != nil {
		return err
	}
	raw, err := yaml.YAMLToJSON(document)
	if err != nil {
		return err
	}
	var last error
	err = wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, 30*time.Second, true, func(ctx context.Context) (bool, error) {
		_, last = resource.Patch(ctx, object.GetName(), types.ApplyPatchType, raw, metav1.PatchOptions{
			FieldManager: "examples", FieldValidation: metav1.FieldValidationStrict,
		})
		return !apierrors.IsForbidden(last) || !strings.Contains(last.Error(), "serviceaccount"), nil
	})
	if last != nil {
		return last
	}
	return err
}

func (s *server) remove(ctx context.Context, t *testing.T, all []example, file string) {
	t.Helper()
	now, background := int64(0), metav1.DeletePropagationBackground
	for _, e := range all {
		object := &unstructured.Unstructured{}
		if e.file != file || yaml.Unmarshal(e.document, &object.Object) != nil || object.GetKind() == "Namespace" {
			continue
		}
		resource, err := s.resource(object)
		if err != nil {
			t.Errorf("%s: %v", e.at, err)
			continue
		}
		err = resource.Delete(ctx, object.GetName(), metav1.DeleteOptions{GracePeriodSeconds: &now, PropagationPolicy: &background})
		if err != nil && !apierrors.IsNotFound(err) {
			t.Errorf("%s: %v", e.at, err)
		}
	}
}

// objects repeats the cases of TestObjects. A status cannot be given at creation and goes through its own door.
func (s *server) objects(ctx context.Context, t *testing.T) {
	kinds := map[string]gvk.GroupVersionKind{}
	for _, d := range ownDefinitions(t) {
		spec := d.typed.Spec
		kinds[spec.Names.Plural] = gvk.GroupVersionKind{Group: spec.Group, Version: spec.Versions[0].Name, Kind: spec.Names.Kind}
	}
	for i, c := range objectCases() {
		t.Run(c.kind+"/"+c.name, func(t *testing.T) {
			make := func(text string) *unstructured.Unstructured {
				made := &unstructured.Unstructured{Object: object(t, text)}
				made.SetGroupVersionKind(kinds[c.kind])
				made.SetName(fmt.Sprintf("case-%d", i))
				return made
			}
			wanted := make(c.object)
			resource, err := s.resource(wanted)
			if err != nil {
				t.Fatal(err)
			}
			var got error
			switch _, isStatus := wanted.Object["status"]; {
			case isStatus:
				empty := make("spec: {}")
				if _, err := resource.Create(ctx, empty, metav1.CreateOptions{}); err != nil {
					t.Fatal(err)
				}
				raw, err := json.Marshal(map[string]any{"status": wanted.Object["status"]})
				if err != nil {
					t.Fatal(err)
				}
				_, got = resource.Patch(ctx, empty.GetName(), types.MergePatchType, raw, metav1.PatchOptions{}, "status")
			case c.old != "":
				old, err := resource.Create(ctx, make(c.old), metav1.CreateOptions{})
				if err != nil {
					t.Fatal(err)
				}
				wanted.SetResourceVersion(old.GetResourceVersion())
				_, got = resource.Update(ctx, wanted, metav1.UpdateOptions{})
			default:
				_, got = resource.Create(ctx, wanted, metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict})
			}
			switch {
			case c.want == "" && got != nil:
				t.Errorf("refused: %v", got)
			case c.want != "" && got == nil:
				t.Errorf("taken, want %q", c.want)
			case c.want != "" && !strings.Contains(got.Error(), c.want):
				t.Errorf("refused with %q, want %q", got, c.want)
			}
		})
	}
}
