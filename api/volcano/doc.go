// Package volcano is the root of the Go forms of Volcano's custom resources, in the shape that Volcano's own clients write and read.
//
//	batch/v1alpha1       batch.volcano.sh/v1alpha1       Job, CronJob
//	bus/v1alpha1         bus.volcano.sh/v1alpha1         Command; the words of policies
//	scheduling/v1beta1   scheduling.volcano.sh/v1beta1   PodGroup, Queue
//	topology/v1alpha1    topology.volcano.sh/v1alpha1    HyperNode
//	flow/v1alpha1        flow.volcano.sh/v1alpha1        JobFlow, JobTemplate
//	nodeinfo/v1alpha1    nodeinfo.volcano.sh/v1alpha1    Numatopology
//	shard/v1alpha1       shard.volcano.sh/v1alpha1       NodeShard
//	config/v1alpha1      config.volcano.sh/v1alpha1      ColocationConfiguration
//	keys                 labels, annotations and fixed names
//	crds                 the generated CustomResourceDefinitions, embedded
//
// Packages and types are called as Volcano calls them.
package volcano

import (
	"k8s.io/apimachinery/pkg/runtime"

	batch "github.com/muster-scheduler/muster/api/volcano/batch/v1alpha1"
	bus "github.com/muster-scheduler/muster/api/volcano/bus/v1alpha1"
	config "github.com/muster-scheduler/muster/api/volcano/config/v1alpha1"
	flow "github.com/muster-scheduler/muster/api/volcano/flow/v1alpha1"
	nodeinfo "github.com/muster-scheduler/muster/api/volcano/nodeinfo/v1alpha1"
	scheduling "github.com/muster-scheduler/muster/api/volcano/scheduling/v1beta1"
	shard "github.com/muster-scheduler/muster/api/volcano/shard/v1alpha1"
	topology "github.com/muster-scheduler/muster/api/volcano/topology/v1alpha1"
)

// AddToScheme registers every kind of the packages below with a scheme.
func AddToScheme(scheme *runtime.Scheme) error {
	builder := runtime.NewSchemeBuilder(
		batch.AddToScheme, bus.AddToScheme, scheduling.AddToScheme, topology.AddToScheme,
		flow.AddToScheme, nodeinfo.AddToScheme, shard.AddToScheme, config.AddToScheme,
	)
	return builder.AddToScheme(scheme)
}
