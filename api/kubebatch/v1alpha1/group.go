package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion names this package's API group and version, scheduling.incubator.k8s.io/v1alpha1.
var GroupVersion = schema.GroupVersion{Group: "scheduling.incubator.k8s.io", Version: "v1alpha1"}

// SchemeGroupVersion is GroupVersion under the name that generated clients use.
var SchemeGroupVersion = GroupVersion

// SchemeBuilder collects what AddToScheme registers; callers normally need only AddToScheme.
var SchemeBuilder = runtime.NewSchemeBuilder(addKnownTypes)

// AddToScheme registers every kind of this package, and the meta kinds of its group version, with a scheme.
var AddToScheme = SchemeBuilder.AddToScheme

// Resource qualifies an unversioned resource name with this package's group.
func Resource(resource string) schema.GroupResource {
	return GroupVersion.WithResource(resource).GroupResource()
}

func addKnownTypes(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion, &PodGroup{}, &PodGroupList{}, &Queue{}, &QueueList{})
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}
