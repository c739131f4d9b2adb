package workload

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// Object is what grouping reads of one owner. Its maps are shared with whoever made it and are never written.
type Object struct {
	GVK         schema.GroupVersionKind
	Namespace   string
	Name        string
	UID         types.UID
	Labels      map[string]string
	Annotations map[string]string
	// Generation counts the changes of the object's spec; 0 where that is not known.
	Generation int64
	// Owners are the object's own owner references.
	Owners []metav1.OwnerReference
	// Content is the whole object as decoded JSON. Only kinds whose rule NeedsContent have to bring it.
	Content map[string]any
}

// FromMeta views an API object as an owner. content may be nil, see Object.Content.
func FromMeta(gvk schema.GroupVersionKind, meta metav1.Object, content map[string]any) Object {
	notes, _ := Notes(meta.GetAnnotations(), OtherNotes)
	return Object{
		GVK:         gvk,
		Namespace:   meta.GetNamespace(),
		Name:        meta.GetName(),
		UID:         meta.GetUID(),
		Labels:      meta.GetLabels(),
		Annotations: notes,
		Generation:  meta.GetGeneration(),
		Owners:      meta.GetOwnerReferences(),
		Content:     content,
	}
}

// FromPod views a pod as its own owner.
func FromPod(pod *corev1.Pod) Object {
	return FromMeta(corev1.SchemeGroupVersion.WithKind("Pod"), pod, nil)
}

// judged returns the owners of a pod, without the queue labels of those whose labels nobody judged for the pod's author: an
// owner without a namespace, and everything above it.
func (s *Settings) judged(pod *corev1.Pod, owners []Object) []Object {
	if !s.Authorized {
		return owners
	}
	foreign := slices.IndexFunc(owners, func(o Object) bool { return o.Namespace != pod.Namespace })
	if foreign < 0 {
		return owners
	}
	out := slices.Clone(owners)
	for i := foreign; i < len(out); i++ {
		if _, has := out[i].Labels[s.QueueLabel]; has {
			out[i].Labels = maps.Clone(out[i].Labels)
			delete(out[i].Labels, s.QueueLabel)
		}
	}
	return out
}

// String names the object as messages do: kind, namespace and name.
func (o *Object) String() string {
	if o.Namespace == "" {
		return o.GVK.Kind + " " + o.Name
	}
	return o.GVK.Kind + " " + o.Namespace + "/" + o.Name
}

// Invalid is the error for an object from which no gang can be derived. Trying again is of no use until the object
// changes.
type Invalid struct {
	// Object is the object at fault, as its String gives it.
	Object string
	// Field is the path, label or annotation at fault.
	Field string
	// Rule is what should hold, and what was found.
	Rule string
}

// Error implements error.
func (e *Invalid) Error() string { return e.Object + ": " + e.Field + ": " + e.Rule }

func invalidField(o *Object, field, format string, args ...any) error {
	return &Invalid{Object: o.String(), Field: field, Rule: fmt.Sprintf(format, args...)}
}
