package kai

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-scheduler/muster/api/kai/keys"
	"github.com/muster-scheduler/muster/api/scheduling/v1alpha2"
	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/dialect/core"
)

// Binding is what a BindRequest says.
type Binding struct {
	Namespace, Name string // of the BindRequest
	UID             types.UID
	// Pod is the name of the pod that was meant, in the same namespace; PodUID its UID, "" when the request does not
	// say. A request without it is meant for no pod.
	Pod    string
	PodUID types.UID
	Node   string
	// Groups are the shared devices on it that the pod is given, sorted; nil for none.
	Groups []string
	// Zones is what the pod is expected to take from NUMA zones; nil for nothing.
	Zones []cluster.ZoneShare
	// Allocations are the devices that the pod's claims are given; nil for none.
	Allocations []cluster.ClaimAllocation
	// Charged is to whose account, the zero value when the request does not say.
	Charged cluster.Charged
	// Created is when the request was made, Unix nanoseconds in whole seconds.
	Created cluster.Instant
	// Failed says that the binder has given up: the last attempt failed and none will follow.
	Failed bool
	// Succeeded says that the pod was bound.
	Succeeded bool
	// Bundle is the id of the bundle the request belongs to, "" for none; Size is the number of its requests, 0 when
	// it is not a positive number.
	Bundle string
	Size   int
}

// Read returns what br says. A request has failed when its phase is Failed and it allows no further attempt: it has
// no backoffLimit, or as many attempts have failed.
func Read(br *v1alpha2.BindRequest) Binding {
	b := Binding{
		Namespace: br.Namespace, Name: br.Name, UID: br.UID,
		Pod: br.Spec.PodName, PodUID: PodUID(br), Node: br.Spec.SelectedNode, Created: core.Nanoseconds(&br.CreationTimestamp),
		Succeeded: br.Status.Phase == v1alpha2.BindRequestSucceeded,
		Bundle:    br.Labels[BundleLabel],
		Charged:   ReadCharged(br.Namespace, br.Annotations),
	}
	if b.Pod == "" {
		b.Pod = br.Name
	}
	b.Zones = zonesOf(br.Spec.PredictedNUMAZones)
	if len(br.Spec.SelectedGPUGroups) > 0 {
		b.Groups = slices.Sorted(slices.Values(br.Spec.SelectedGPUGroups))
	}
	b.Allocations = allocations(&br.Spec)
	b.Failed = br.Status.Phase == v1alpha2.BindRequestFailed &&
		(br.Spec.BackoffLimit == nil || br.Status.FailedAttempts >= *br.Spec.BackoffLimit)
	if n, err := strconv.Atoi(br.Labels[BundleSizeLabel]); err == nil && n > 0 {
		b.Size = n
	}
	return b
}

// PodUID returns the UID of the pod br was made for: that of its first owner of kind v1 Pod called as spec.podName
// says; "" when it has none.
func PodUID(br *v1alpha2.BindRequest) types.UID {
	name := br.Spec.PodName
	if name == "" {
		name = br.Name
	}
	for i := range br.OwnerReferences {
		if o := &br.OwnerReferences[i]; o.Kind == "Pod" && o.APIVersion == "v1" && o.Name == name {
			return o.UID
		}
	}
	return ""
}

// Meant says whether the request was made for this very pod, not for an earlier one of its name.
func (b *Binding) Meant(p *v1.Pod) bool {
	return b.PodUID != "" && b.PodUID == p.UID && b.Pod == p.Name && b.Namespace == p.Namespace
}

// maxLabelValue is the longest value the API server lets a label have.
const maxLabelValue = 63

// Intent is one decision of the scheduler: this pod goes to this node.
type Intent struct {
	Namespace, Pod string
	PodUID         types.UID
	Node           string
	// GPU is what the pod receives, in milli-GPU: of whole devices, or, with Groups, of as many shared ones together.
	GPU int64
	// Groups are the shared devices, nil for none.
	Groups []string
	// Zones are what the pod is expected to take from NUMA zones, nil for nothing.
	Zones []cluster.ZoneShare
	// Claims are the devices that its claims get; nil for none. Containers says which of its containers asked for what
	// extended resources.
	Claims     []cluster.ClaimAllocation
	Containers []v1.ContainerExtendedResourceRequest
	// Charged is to whose account it is; the zero value for nobody's.
	Charged cluster.Charged
	// Bundle and Size name the bundle the decision belongs to, and how many decisions it has; "" for none.
	Bundle string
	Size   int
	// Decided is when; the zero time where nobody says.
	Decided time.Time
	// OwnGang is the annotation that says what gang the pod is by itself, if that is to come with its Binding (keys.OwnGangAnnotation).
	OwnGang string
	// Partition is the shard that decided.
	Partition Partition
}

// BindRequest returns the object that asks the binder for the intent. It is called as the pod is and owned by it, so
// that it goes when the pod goes.
func (in *Intent) BindRequest() *v1alpha2.BindRequest {
	labels := map[string]string{}
	if len(in.Node) <= maxLabelValue { // a node's name may be longer than a label; spec.selectedNode says it anyway
		labels[SelectedNodeLabel] = in.Node
	}
	if in.Bundle != "" {
		labels[BundleLabel] = in.Bundle
		labels[BundleSizeLabel] = strconv.Itoa(in.Size)
	}
	if in.Partition.Key != "" && in.Partition.Value != "" {
		labels[in.Partition.Key] = in.Partition.Value
	}
	spec := v1alpha2.BindRequestSpec{
		PodName: in.Pod, SelectedNode: in.Node, ReceivedResourceType: v1alpha2.ResourceTypeRegular,
		ReceivedGPU: &v1alpha2.ReceivedGPU{Count: int(in.GPU / 1000), Portion: "1.00"},
	}
	if n := len(in.Groups); n > 0 {
		part := in.GPU / int64(n) / 10 // hundredths of a device
		spec.ReceivedResourceType, spec.SelectedGPUGroups = v1alpha2.ResourceTypeFraction, in.Groups
		spec.ReceivedGPU = &v1alpha2.ReceivedGPU{Count: n, Portion: fmt.Sprintf("%d.%02d", part/100, part%100)}
	}
	spec.PredictedNUMAZones = placements(in.Zones)
	in.allocate(&spec)
	annotations := WriteCharged(in.Charged)
	note := func(key, text string) {
		if annotations == nil {
			annotations = map[string]string{}
		}
		annotations[key] = text
	}
	if !in.Decided.IsZero() {
		note(keys.DecidedAnnotation, Decided(in.Decided))
	}
	if in.OwnGang != "" {
		note(keys.OwnGangAnnotation, in.OwnGang)
	}
	return &v1alpha2.BindRequest{
		TypeMeta: metav1.TypeMeta{APIVersion: v1alpha2.GroupVersion.String(), Kind: "BindRequest"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: in.Namespace, Name: in.Pod, Labels: labels, Annotations: annotations,
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: in.Pod, UID: in.PodUID}},
		},
		Spec: spec,
	}
}
