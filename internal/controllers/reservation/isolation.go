package reservation

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/muster-scheduler/muster/api/kai/keys"
	schedulingv1alpha2 "github.com/muster-scheduler/muster/api/scheduling/v1alpha2"
)

// Isolation is what keeps a pod's use of its GPUs apart from that of other pods.
type Isolation string

// The kinds of isolation, as the condition PodBound tells them.
const (
	// IsolationNone: pods take turns on the device, and nothing bounds what one takes of its memory or time.
	IsolationNone Isolation = "none"

	// IsolationMPS: an NVIDIA MPS daemon of the node lets pods use the device at the same time; memory is protected
	// between processes, and not limited.
	IsolationMPS Isolation = "MPS"

	// IsolationHAMi: a library that is loaded into the container refuses device memory beyond the pod's part. It does
	// not stop a program that circumvents it.
	IsolationHAMi Isolation = "HAMi-core"

	// IsolationMIG: the hardware divides the device.
	IsolationMIG Isolation = "MIG"
)

// isolationOf says what keeps a pod that shares devices apart on its node, which may be nil.
func (o Options) isolationOf(pod *corev1.Pod, node *corev1.Node) Isolation {
	switch {
	case o.MemoryLimits:
		return IsolationHAMi
	case pod.Annotations[keys.MPSAnnotation] == "true" && node != nil && node.Labels[keys.MPSCapableNodeLabel] == "true":
		return IsolationMPS
	}
	return IsolationNone
}

// text says in a clause what the kind means.
func (i Isolation) text() string {
	switch i {
	case IsolationMPS:
		return "the node's MPS daemon runs pods side by side; device memory is protected, not limited"
	case IsolationHAMi:
		return "a library in the container limits device memory; it does not bind programs that circumvent it"
	case IsolationMIG:
		return "the hardware divides the device"
	}
	return "nothing limits what other pods take of the device's memory and time"
}

// Note tells the user of a bound pod which GPUs it shares, and how well it is isolated there.
func (c *Controller) Note(r *schedulingv1alpha2.BindRequest, pod *corev1.Pod) string {
	if !c.Relevant(r, pod) {
		if usesMIG(pod) {
			return fmt.Sprintf("GPU isolation: %s (%s).", IsolationMIG, IsolationMIG.text())
		}
		return ""
	}
	// From the cache, so that the context is of no importance.
	node, err := c.cluster.node(context.Background(), r.Spec.SelectedNode)
	if err != nil {
		node = nil
	}
	is := c.options.isolationOf(pod, node)
	note := fmt.Sprintf("Receives %s of each of %d shared GPUs. GPU isolation: %s (%s).", r.Spec.ReceivedGPU.Portion, len(r.Spec.SelectedGPUGroups), is, is.text())
	if len(r.Spec.SelectedGPUGroups) == 1 {
		note = strings.Replace(note, "each of 1 shared GPUs", "a shared GPU", 1)
	}
	if pod.Annotations[keys.MPSAnnotation] == "true" && is == IsolationNone {
		note += " MPS was asked for, but the node does not offer it."
	}
	return note
}

// usesMIG says whether a container of the pod gets a MIG slice.
func usesMIG(pod *corev1.Pod) bool {
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			for name := range list[i].Resources.Limits { // order: any will do
				if strings.HasPrefix(string(name), keys.MIGResourcePrefix) {
					return true
				}
			}
		}
	}
	return false
}
