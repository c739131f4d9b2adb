// Package kubebatch is the root of the Go forms of kube-batch's custom resources, in the shape that kube-batch's own clients write and read.
//
//	v1alpha1   scheduling.incubator.k8s.io/v1alpha1   PodGroup, Queue
//	v1alpha2   scheduling.sigs.dev/v1alpha2           PodGroup, Queue: the same fields
//	keys       annotations and names that kube-batch gives a meaning
//	crds       the CustomResourceDefinitions, as YAML
package kubebatch

import (
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/muster-scheduler/muster/api/kubebatch/v1alpha1"
	"github.com/muster-scheduler/muster/api/kubebatch/v1alpha2"
)

// AddToScheme registers every kind of kube-batch's with a scheme.
func AddToScheme(scheme *runtime.Scheme) error {
	builder := runtime.NewSchemeBuilder(v1alpha1.AddToScheme, v1alpha2.AddToScheme)
	return builder.AddToScheme(scheme)
}
