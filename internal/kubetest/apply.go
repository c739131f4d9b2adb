package kubetest

import (
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/applyconfigurations"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"
)

// applied is the object that server-side apply makes of the old one, or of none. Lists of custom kinds are replaced whole. Fields that
// are written by other means than apply have no manager here, so that apply meets no conflict with their writers.
func (in *request) applied(old object) (object, error) {
	sent := &unstructured.Unstructured{Object: map[string]any{}}
	if err := yaml.Unmarshal(in.body, &sent.Object); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	query := in.URL.Query()
	manager := query.Get("fieldManager")
	if manager == "" {
		return nil, apierrors.NewInvalid(schema.GroupKind{Group: "meta.k8s.io", Kind: "PatchOptions"}, "", field.ErrorList{
			field.Required(field.NewPath("fieldManager"), "is required for apply patch"),
		})
	}
	if err := in.belongs(sent); err != nil {
		return nil, err
	}
	live := &unstructured.Unstructured{Object: map[string]any{}}
	if old != nil {
		live = old.DeepCopy()
	} else {
		live.SetName(in.key.Name)
		live.SetNamespace(in.key.Namespace)
	}
	live.SetGroupVersionKind(in.kind.GroupVersionKind)
	converter := managedfields.NewDeducedTypeConverter()
	if !in.kind.Custom {
		converter = applyconfigurations.NewTypeConverter(clientgoscheme.Scheme)
	}
	m, err := managedfields.NewDefaultCRDFieldManager(converter, oneVersion{}, oneVersion{}, oneVersion{}, in.kind.GroupVersionKind, in.kind.GroupVersion(), in.call.Subresource, nil)
	if err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	out, err := m.Apply(live, sent, manager, query.Get("force") == "true")
	if err != nil {
		if statusOf(err) == nil {
			err = apierrors.NewBadRequest(err.Error())
		}
		return nil, err
	}
	u, ok := out.(*unstructured.Unstructured)
	if !ok {
		return nil, apierrors.NewInternalError(errors.New("apply made another type"))
	}
	return u, nil
}

// oneVersion is what apply needs to know of versions and defaults: there is one version, and there are none.
type oneVersion struct{}

// Default does nothing.
func (oneVersion) Default(runtime.Object) {}

// Convert copies.
func (oneVersion) Convert(in, out, _ any) error {
	from, ok := in.(*unstructured.Unstructured)
	to, also := out.(*unstructured.Unstructured)
	if !ok || !also {
		return errors.New("kubetest converts no types")
	}
	to.Object = from.DeepCopy().Object
	return nil
}

// ConvertToVersion returns the object itself.
func (oneVersion) ConvertToVersion(in runtime.Object, _ runtime.GroupVersioner) (runtime.Object, error) {
	return in, nil
}

// ConvertFieldLabel knows no labels.
func (oneVersion) ConvertFieldLabel(schema.GroupVersionKind, string, string) (string, string, error) {
	return "", "", errors.New("kubetest converts no field labels")
}

// New returns an empty object.
func (oneVersion) New(gvk schema.GroupVersionKind) (runtime.Object, error) {
	u := &unstructured.Unstructured{Object: map[string]any{}}
	u.SetGroupVersionKind(gvk)
	return u, nil
}
