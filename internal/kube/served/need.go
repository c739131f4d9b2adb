package served

import (
	"fmt"
	"slices"

	topologyv1alpha2 "github.com/k8stopologyawareschedwg/noderesourcetopology-api/pkg/apis/topology/v1alpha2"
	admissionregv1 "k8s.io/api/admissionregistration/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/muster-scheduler/muster/api/kai/v1alpha1"
)

// Oldest and Newest are the minor versions of Kubernetes 1 between which Needs is true, both included. Muster is not installed on
// an older one. On a newer one nothing is taken to be missing that Newest has.
const (
	Oldest = 34
	Newest = 37
)

// Name is what a need is called: the resource and group of its first kind, or the feature gate.
type Name string

// The needs that code asks about.
const (
	// ResourceClaims are the kinds of Dynamic Resource Allocation.
	ResourceClaims Name = "resourceclaims.resource.k8s.io"
	// ExtendedByClaim is that pods may get an extended resource as devices, by a claim that the binder makes.
	ExtendedByClaim Name = "DRAExtendedResource"
)

// Need is something of Kubernetes, or beside it, that Muster uses where it is.
type Need struct {
	Name Name
	// Kinds have all to be served; of a feature gate, none.
	Kinds []schema.GroupVersionKind
	// Since is the first minor version of Kubernetes 1 that has it, unless somebody has switched it; 0 says that it does not come with
	// Kubernetes. For gates the source is pkg/features/kube_features.go of k8s.io/kubernetes, and the release notes for what is newer.
	Since int
	// Roles are those that use it.
	Roles []string
	// Plugin is the scheduler's plugin without which nobody asks for it; "" for none.
	Plugin string
	// Lost says what does not work without it.
	Lost string
}

// Has says whether a version of Kubernetes has what is needed by itself: 34 is 1.34.
func (n *Need) Has(minor int) bool { return n.Since > 0 && n.Since <= minor }

// Gate says whether it is a matter of a feature gate alone, which no client can see.
func (n *Need) Gate() bool { return len(n.Kinds) == 0 }

// concerns says whether a process with these roles, whose scheduler has plugins for which uses is true, has to do with it.
func (n *Need) concerns(roles []string, uses func(plugin string) bool) bool {
	return slices.ContainsFunc(n.Roles, func(r string) bool { return slices.Contains(roles, r) }) && (n.Plugin == "" || uses == nil || uses(n.Plugin))
}

// Needs is all that Muster can do without, in the order in which it is told. What it cannot do without is not here: the kinds that
// every version since Oldest serves, and Muster's own PodGroups, Queues and BindRequests.
func Needs() []Need {
	const scheduler, binder, podgroup, operator = "scheduler", "binder", "podgroup", "operator"
	dra := resourcev1.SchemeGroupVersion
	return []Need{
		{
			Name: ResourceClaims, Kinds: []schema.GroupVersionKind{dra.WithKind("ResourceClaim"), dra.WithKind("ResourceSlice"), dra.WithKind("DeviceClass")},
			Since: 34, Roles: []string{scheduler, binder, podgroup},
			Lost: "nobody can ask for devices by claim; nothing else changes",
		},
		{
			Name: ExtendedByClaim, Since: 36, Roles: []string{scheduler, binder},
			Lost: "no pod gets an extended resource as devices, by a DeviceClass's name or extendedResourceName: it waits for a node whose device plugin has it",
		},
		{
			Name: "DRAPartitionableDevices", Since: 36, Roles: []string{scheduler},
			Lost: "the API server drops sharedCounters and consumesCounters: a driver that publishes overlapping partitions all the same has them given away as if each were a device of its own",
		},
		{
			Name: "DRAConsumableCapacity", Since: 36, Roles: []string{scheduler},
			Lost: "a device goes whole to one claim, and the capacity that a request states is dropped",
		},
		{
			Name: "DRADeviceTaints", Since: 36, Roles: []string{scheduler},
			Lost: "drivers cannot taint devices: one that ails is given away like any other",
		},
		{
			Name: "DRADeviceBindingConditions", Since: 36, Roles: []string{scheduler, binder},
			Lost: "pods are bound without waiting until a driver has made their devices ready",
		},
		{
			Name: "DRAResourceClaimGranularStatusAuthorization", Since: 36, Roles: []string{binder},
			Lost: "the API server itself lets whoever may write resourceclaims/status give devices away; what refuses it is our own policy (admission.identity)",
		},
		{
			Name: "validatingadmissionpolicies.admissionregistration.k8s.io",
			Kinds: []schema.GroupVersionKind{
				admissionregv1.SchemeGroupVersion.WithKind("ValidatingAdmissionPolicy"), admissionregv1.SchemeGroupVersion.WithKind("ValidatingAdmissionPolicyBinding"),
			},
			Since: 30, Roles: []string{operator},
			Lost: "no policy of ours can be installed: nothing keeps tenants from writing what only Muster may write, and the Config's condition Deployed stays False",
		},
		{
			Name: "topologies.kai.scheduler", Kinds: []schema.GroupVersionKind{v1alpha1.GroupVersion.WithKind("Topology")}, Roles: []string{scheduler},
			Lost: "no gang can ask for a topology; the definition comes with the chart, and with muster crds",
		},
		{
			Name: "noderesourcetopologies.topology.node.k8s.io", Kinds: []schema.GroupVersionKind{topologyv1alpha2.SchemeGroupVersion.WithKind("NodeResourceTopology")},
			Roles: []string{scheduler}, Plugin: "numa",
			Lost: "the plugin numa knows no zones and refuses nothing; an exporter such as NFD's topology updater brings the kind",
		},
	}
}

// LackingSince returns what a version of Kubernetes lacks by itself, whatever the roles: 34 is 1.34.
func LackingSince(minor int) []Need {
	return slices.DeleteFunc(Needs(), func(n Need) bool { return n.Since == 0 || n.Has(minor) })
}

// Minor writes a minor version as people do: 34 is "1.34".
func Minor(minor int) string { return fmt.Sprintf("1.%d", minor) }
