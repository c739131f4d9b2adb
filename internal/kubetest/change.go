package kubetest

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"reflect"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/apimachinery/pkg/util/validation/field"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
)

// same compares what objects say, but for who manages which field.
func same(a, b map[string]any) bool {
	bare := func(o map[string]any) map[string]any {
		m, ok := o["metadata"].(map[string]any)
		if !ok || m["managedFields"] == nil {
			return o
		}
		o, m = maps.Clone(o), maps.Clone(m)
		delete(m, "managedFields")
		o["metadata"] = m
		return o
	}
	return reflect.DeepEqual(bare(a), bare(b))
}

// create stores an object that does not exist.
func (s *Server) create(in *request) (any, error) {
	u, err := in.object()
	if err != nil {
		return nil, err
	}
	if err := in.belongs(u); err != nil {
		return nil, err
	}
	if u.GetName() == "" && u.GetGenerateName() != "" {
		const letters = "bcdfghjklmnpqrstvwxz2456789"
		name := []byte(u.GetGenerateName())
		for range 5 {
			name = append(name, letters[rand.IntN(len(letters))])
		}
		u.SetName(string(name))
	}
	switch {
	case u.GetName() == "":
		return nil, apierrors.NewInvalid(in.kind.groupKind(), "", field.ErrorList{field.Required(field.NewPath("metadata", "name"), "name or generateName is required")})
	case u.GetResourceVersion() != "":
		return nil, &apierrors.StatusError{ErrStatus: metav1.Status{
			Status: metav1.StatusFailure, Code: http.StatusInternalServerError, Message: "resourceVersion should not be set on objects to be created",
		}}
	case in.table.objects[key(u)] != nil:
		return nil, apierrors.NewAlreadyExists(in.kind.groupResource(), u.GetName())
	}
	if in.kind.Namespaced {
		namespaces := s.tables[schema.GroupResource{Resource: "namespaces"}]
		if namespaces != nil && namespaces.objects[types.NamespacedName{Name: u.GetNamespace()}] == nil {
			return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, u.GetNamespace())
		}
	}
	for _, f := range []string{"uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation", "selfLink", "managedFields"} {
		unstructured.RemoveNestedField(u.Object, "metadata", f)
	}
	if in.kind.Status {
		delete(u.Object, "status")
	}
	if in.kind.Kind == "Pod" {
		u.Object["status"] = map[string]any{"phase": "Pending"}
	}
	s.stamp(in.kind, u)
	return in.form()(s.store(in.table, nil, u)), nil
}

// belongs checks that an object that was sent is of the kind and the place that the path says.
func (in *request) belongs(u object) error {
	if u.GetKind() != "" && u.GroupVersionKind() != in.kind.GroupVersionKind {
		return apierrors.NewBadRequest(fmt.Sprintf("the API version or kind in the data (%s) does not match that of the request (%s)", u.GroupVersionKind(), in.kind.GroupVersionKind))
	}
	u.SetGroupVersionKind(in.kind.GroupVersionKind)
	if in.kind.Namespaced && u.GetNamespace() == "" {
		u.SetNamespace(in.key.Namespace)
	}
	if u.GetNamespace() != in.key.Namespace {
		return apierrors.NewBadRequest("the namespace of the provided object does not match the namespace sent on the request")
	}
	if in.key.Name != "" && u.GetName() != in.key.Name {
		return apierrors.NewBadRequest(fmt.Sprintf("the name of the object (%s) does not match the name on the URL (%s)", u.GetName(), in.key.Name))
	}
	return nil
}

// change updates or patches.
func (s *Server) change(in *request) (answer any, code int, err error) {
	old := in.table.objects[in.key]
	var u object
	switch {
	case in.call.Verb == "apply":
		u, err = in.applied(old)
	case old == nil:
		return nil, 0, in.notFound()
	case in.call.Verb == "update":
		u, err = in.object()
	default:
		u, err = in.patched(old)
	}
	if err == nil {
		err = in.belongs(u)
	}
	if err != nil {
		return nil, 0, err
	}
	if old == nil { // applied for the first time
		unstructured.RemoveNestedField(u.Object, "metadata", "creationTimestamp")
		if in.kind.Status {
			delete(u.Object, "status")
		}
		s.stamp(in.kind, u)
		return in.form()(s.store(in.table, nil, u)), http.StatusCreated, nil
	}
	if u, err = s.judged(in, old, u); err != nil {
		return nil, 0, err
	}
	if u.GetDeletionTimestamp() != nil && len(u.GetFinalizers()) == 0 && len(old.GetFinalizers()) > 0 && (u.GetDeletionGracePeriodSeconds() == nil || *u.GetDeletionGracePeriodSeconds() == 0) {
		s.drop(in.table, u)
		return in.form()(u), http.StatusOK, nil
	}
	return in.form()(s.store(in.table, old, u)), http.StatusOK, nil
}

// judged is what a write makes of an object: its demands are checked, and what is not its to change stays.
func (s *Server) judged(in *request, old, u object) (object, error) {
	version := u.GetResourceVersion()
	customStatus := in.kind.Custom && in.call.Subresource == "status"
	switch uid := u.GetUID(); {
	case version == "" && in.call.Verb == "update" && in.kind.Custom:
		return nil, apierrors.NewInvalid(in.kind.groupKind(), in.key.Name, field.ErrorList{field.Invalid(field.NewPath("metadata", "resourceVersion"), 0, "must be specified for an update")})
	case version != "" && version != old.GetResourceVersion():
		return nil, in.conflict("the object has been modified; please apply your changes to the latest version and try again")
	case uid != "" && uid != old.GetUID() && in.call.Verb == "update":
		return nil, in.conflict(fmt.Sprintf("Precondition failed: UID in precondition: %s, UID in object meta: %s", uid, old.GetUID()))
	case uid != "" && uid != old.GetUID() && !customStatus:
		return nil, apierrors.NewInvalid(in.kind.groupKind(), in.key.Name, field.ErrorList{field.Invalid(field.NewPath("metadata", "uid"), string(uid), "field is immutable")})
	}
	switch {
	case customStatus:
		status, managed := u.Object["status"], u.GetManagedFields()
		u = &unstructured.Unstructured{Object: maps.Clone(old.Object)}
		u = u.DeepCopy()
		keep(u.Object, "status", status)
		u.SetManagedFields(managed)
	case in.call.Subresource == "status":
		keep(u.Object, "spec", old.DeepCopy().Object["spec"])
	case in.kind.Status:
		keep(u.Object, "status", old.DeepCopy().Object["status"])
	}
	u.SetUID(old.GetUID())
	u.SetCreationTimestamp(old.GetCreationTimestamp())
	u.SetDeletionTimestamp(old.GetDeletionTimestamp())
	u.SetDeletionGracePeriodSeconds(old.GetDeletionGracePeriodSeconds())
	u.SetGeneration(old.GetGeneration())
	tidy(u)
	s.count(in.kind, old, u)
	return u, nil
}

// keep sets a field, or takes it away.
func keep(o map[string]any, field string, value any) {
	if value == nil {
		delete(o, field)
	} else {
		o[field] = value
	}
}

func (in *request) conflict(why string) error {
	return apierrors.NewConflict(in.kind.groupResource(), in.key.Name, fmt.Errorf("%s", why))
}

// patched is the object that a patch makes of the old one.
func (in *request) patched(old object) (object, error) {
	before, err := json.Marshal(in.whole(old))
	if err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	var after []byte
	switch kind := types.PatchType(in.Header.Get("Content-Type")); {
	case kind == types.JSONPatchType:
		patch, err := jsonpatch.DecodePatch(in.body)
		if err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
		if after, err = patch.Apply(before); err != nil {
			return nil, apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "", schema.GroupResource{}, "", err.Error(), 0, false)
		}
	case kind == types.MergePatchType:
		if after, err = jsonpatch.MergePatch(before, in.body); err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
	case kind == types.StrategicMergePatchType && !in.kind.Custom:
		typed, err := clientgoscheme.Scheme.New(in.kind.GroupVersionKind)
		if err != nil {
			return nil, apierrors.NewInternalError(err)
		}
		if after, err = strategicpatch.StrategicMergePatch(before, in.body, typed); err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
	default:
		return nil, &apierrors.StatusError{ErrStatus: metav1.Status{
			Status: metav1.StatusFailure, Code: http.StatusUnsupportedMediaType, Reason: metav1.StatusReasonUnsupportedMediaType,
			Message: "the body of the request was in an unknown format: " + string(kind),
		}}
	}
	u := &unstructured.Unstructured{Object: map[string]any{}}
	if err := utiljson.Unmarshal(after, &u.Object); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	return u, nil
}

// remove deletes, or begins to.
func (s *Server) remove(in *request) (any, error) {
	o := &metav1.DeleteOptions{}
	switch {
	case len(in.body) == 0:
	case in.kind.Custom: // clients send options of the kind's own group
		if err := json.Unmarshal(in.body, o); err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
	default:
		if _, _, err := clientgoscheme.Codecs.UniversalDeserializer().Decode(in.body, &schema.GroupVersionKind{Version: "v1", Kind: "DeleteOptions"}, o); err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
	}
	return s.deleted(in, o)
}

func (s *Server) deleted(in *request, o *metav1.DeleteOptions) (any, error) {
	old := in.table.objects[in.key]
	if old == nil {
		return nil, in.notFound()
	}
	if p := o.Preconditions; p != nil {
		if p.UID != nil && *p.UID != old.GetUID() {
			return nil, in.conflict(fmt.Sprintf("Precondition failed: UID in precondition: %s, UID in object meta: %s", *p.UID, old.GetUID()))
		}
		if p.ResourceVersion != nil && *p.ResourceVersion != old.GetResourceVersion() {
			return nil, in.conflict(fmt.Sprintf("Precondition failed: ResourceVersion in precondition: %s, ResourceVersion in object meta: %s", *p.ResourceVersion, old.GetResourceVersion()))
		}
	}
	grace := graceOf(old, o.GracePeriodSeconds)
	if grace == 0 && len(old.GetFinalizers()) == 0 {
		s.drop(in.table, old)
		return &metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusSuccess}, nil
	}
	if own := old.GetDeletionGracePeriodSeconds(); old.GetDeletionTimestamp() != nil && (own == nil || *own <= grace) {
		return in.form()(old), nil // it goes already, and no later
	}
	u := old.DeepCopy()
	u.SetDeletionTimestamp(new(metav1.NewTime(time.Now().Add(time.Duration(grace) * time.Second))))
	u.SetDeletionGracePeriodSeconds(&grace)
	if in.kind.Generation && old.GetDeletionTimestamp() == nil {
		u.SetGeneration(old.GetGeneration() + 1)
	}
	return in.form()(s.store(in.table, old, u)), nil
}

// graceOf is the time, in seconds, that an object has before it goes. Only pods that run somewhere have any.
func graceOf(u object, asked *int64) int64 {
	if u.GetKind() != "Pod" || u.GetAPIVersion() != "v1" {
		return 0
	}
	node, _, _ := unstructured.NestedString(u.Object, "spec", "nodeName")
	phase, _, _ := unstructured.NestedString(u.Object, "status", "phase")
	if node == "" || phase == "Succeeded" || phase == "Failed" {
		return 0
	}
	if asked != nil {
		return max(0, *asked)
	}
	if own, found, _ := unstructured.NestedInt64(u.Object, "spec", "terminationGracePeriodSeconds"); found {
		return own
	}
	return 30
}
