package nodescale

import (
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/muster-scheduler/muster/api/kai/keys"
)

// Options are the settings of the nodescale role. The flags of the process around it (addresses, leader election, client
// rates) are not among them.
type Options struct {
	// SchedulerNames are the values of spec.schedulerName of the pods that nodes are asked for. At least one. Default:
	// kai-scheduler.
	SchedulerNames []string

	// Namespace is where scaling pods run, App the value of their label app, ServiceAccount theirs. Defaults:
	// kai-scale-adjust, scaling-pod, scaling-pod.
	Namespace, App, ServiceAccount string

	// Image is what scaling pods run: an image that ends at once with success, such as Muster's own with the argument
	// scalingpod, which they are given.
	Image string

	// MemoryRatio is what part of a GPU a pod counts as that asks for an amount of its memory: the device of a node that
	// does not exist yet has no known size. Above 0, at most 1. Default: 0.1.
	MemoryRatio float64

	// NodePoolLabel is the label of the shards: a scaling pod of a pod that has it asks for nodes that have it too. Empty
	// for none. Default: kai.scheduler/node-pool.
	NodePoolLabel string
}

// DefaultOptions are KAI's, but for the image, whose default there is no valid name.
func DefaultOptions() Options {
	return Options{
		SchedulerNames: []string{keys.SchedulerName}, Namespace: keys.ScaleAdjustNamespace, App: keys.ScalingPodApp,
		ServiceAccount: keys.ScalingPodApp, Image: "registry/local/kai-scheduler/scalingpodscaling-pod", MemoryRatio: 0.1,
		NodePoolLabel: keys.NodePoolLabel,
	}
}

// Validate returns an error that names the first setting that makes no sense.
func (o Options) Validate() error {
	switch {
	case len(o.SchedulerNames) == 0:
		return errors.New("scheduler-name: at least one name is needed")
	case len(validation.IsDNS1123Label(o.Namespace)) > 0:
		return fmt.Errorf("scale-adjust-namespace is %q, must be the name of a namespace", o.Namespace)
	case o.App == "" || len(validation.IsValidLabelValue(o.App)) > 0:
		return fmt.Errorf("scaling-pod-app-label is %q, must be the value of a label", o.App)
	case len(validation.IsDNS1123Subdomain(o.ServiceAccount)) > 0:
		return fmt.Errorf("scaling-pod-service-account is %q, must be the name of a ServiceAccount", o.ServiceAccount)
	case o.Image == "" || strings.TrimSpace(o.Image) != o.Image:
		return fmt.Errorf("scaling-pod-image is %q, must be the name of an image", o.Image)
	case !(o.MemoryRatio > 0 && o.MemoryRatio <= 1): // not a number is neither
		return fmt.Errorf("gpu-memory-to-fraction-ratio is %v, must be above 0 and at most 1", o.MemoryRatio)
	}
	return nil
}
