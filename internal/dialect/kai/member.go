package kai

import (
	"cmp"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/muster-scheduler/muster/api/kai/keys"
	"github.com/muster-scheduler/muster/api/scheduling/v2alpha2"
	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/dialect/core"
)

// Roles are the settings by which pods are told apart.
type Roles struct {
	// SchedulerNames are the values of spec.schedulerName that make a pod ours.
	SchedulerNames []string
	// ReservationApp is the value of AppLabel on our reservation pods, ReservationSpace and ScalingSpace are the namespaces of
	// reservation and scaling pods: anybody may write a label, and not there. "" for KAI's.
	ReservationApp, ReservationSpace, ScalingSpace string
	// RestrictGPU and RestrictCPU, when not "", are labels: pods that ask for GPUs go only to nodes that have
	// RestrictGPU, all other pods only to nodes that have RestrictCPU.
	RestrictGPU, RestrictCPU string
	// Zones says that somebody asks which NUMA zones pods need and have.
	Zones bool
	// MIGWorker is the label that says whether a node's GPUs are cut into slices ("true" or "false"); "" for KAI's.
	MIGWorker string
	// OwnGangs, if set, is asked what gangs pods are by themselves, by whoever calls Pod or Complete.
	OwnGangs *OwnGangs
}

// Pod returns the event that makes the model know p as it is. promised is a live BindRequest for this very pod
// (Binding.Meant), nil for none: it makes a pending pod Binding where it says, and says nothing about any other.
func (r *Roles) Pod(p *v1.Pod, promised *Binding) cluster.PodState {
	st := core.Pod(p)
	given := promised != nil && promised.Node != "" && st.Phase == cluster.Pending && !promised.Charged.Share.None()
	if given { // whatever it has come to ask for since
		r.complete(&st, p, promised.Charged.Share, "")
	} else {
		r.Complete(&st, p)
	}
	if p.Spec.NodeName != "" { // before, anybody could have written it
		st.Charged = ReadCharged(p.Namespace, p.Annotations)
	}
	if st.Phase == cluster.Pending && promised != nil && promised.Node != "" {
		st.Phase, st.NodeName = cluster.Binding, promised.Node
		st.Groups, st.Charged = promised.Groups, promised.Charged
	}
	if r.Zones && st.Phase.Holds() {
		st.Zones = Zones(p, promised)
	}
	if promised != nil && st.Phase.Holds() {
		st.Allocations = promised.Allocations
	}
	return st
}

// Complete adds to st, which core.Pod made of p, what this API family says about the pod: its gang and set, whether it
// is ours or a utility pod, what it asks for that cannot be honoured, and which nodes are reserved for its kind.
func (r *Roles) Complete(st *cluster.PodState, p *v1.Pod) {
	share, wrong := Share(p)
	r.complete(st, p, share, wrong)
}

func (r *Roles) complete(st *cluster.PodState, p *v1.Pod, share cluster.Share, wrong string) {
	st.Gang, st.SetName = MembershipOf(p, r.ownGang(p))
	st.Ours = slices.Contains(r.SchedulerNames, p.Spec.SchedulerName)
	reserves := r.reserves(p)
	st.Utility = reserves || r.scales(p)
	if reserves && st.Phase.Holds() {
		reserve(st, p.Labels)
	}
	if st.Phase == cluster.Succeeded || st.Phase == cluster.Failed {
		return
	}
	takeSlices(st, p)
	if !st.Ours {
		return
	}
	st.Spec.Share = share
	if !share.None() {
		forgetOwnMaps(st.Spec, p)
		st.Groups = Groups(p.Labels)
		if share.Portion != 0 {
			core.Charge(st, share.Charge(0))
		}
	}
	if !st.Phase.Alive() {
		return
	}
	if r.Zones {
		st.Spec.Align = core.Needs(p)
	}
	st.Spec.Unsupported = cmp.Or(wrong, Unsupported(p))
	if r.restricted() {
		st.Spec.RestrictTo = []string{r.RestrictCPU}
		if !share.None() || slices.ContainsFunc(st.Requests, func(q cluster.Quantity) bool { return q.Name == "gpu" || cluster.SliceGPUs(q.Name) > 0 }) {
			st.Spec.RestrictTo[0] = r.RestrictGPU
		}
	}
}

// Restrict looks again at which workers a pod of Pod may go to, once its claims are known (package devices): GPUs by claim are GPUs.
func (r *Roles) Restrict(st *cluster.PodState) {
	if len(st.Spec.RestrictTo) > 0 && slices.ContainsFunc(st.Spec.Devices, func(d cluster.DeviceNeed) bool { return d.GPUs > 0 }) {
		st.Spec.RestrictTo = []string{r.RestrictGPU}
	}
}

func (r *Roles) ownGang(p *v1.Pod) *v2alpha2.PodGroup {
	if r.OwnGangs == nil {
		return OwnGang(p)
	}
	return r.OwnGangs.Of(p)
}

func (r *Roles) restricted() bool { return r.RestrictGPU != "" || r.RestrictCPU != "" }

// labelled says whether a node carries a label, with whatever value; none carries a label without a name.
func labelled(n *v1.Node, key string) bool {
	_, there := n.Labels[key]
	return there && key != ""
}

// reserves says whether p holds a device for pods that share it, scales whether it shows demand to an autoscaler.
func (r *Roles) reserves(p *v1.Pod) bool {
	return p.Labels[AppLabel] == cmp.Or(r.ReservationApp, DefaultReservationApp) && p.Namespace == cmp.Or(r.ReservationSpace, keys.ReservationNamespace)
}

func (r *Roles) scales(p *v1.Pod) bool {
	return p.Labels[AppLabel] == ScalingApp && p.Namespace == cmp.Or(r.ScalingSpace, keys.ScaleAdjustNamespace)
}

// Membership returns the gang p asks to be in, or is by itself, or is in by its owner; the zero Key for none; and the set of it. A pod can
// only be in a gang of its own namespace.
func Membership(p *v1.Pod) (gang cluster.Key, set string) { return MembershipOf(p, OwnGang(p)) }

// MembershipOf is Membership for who knows OwnGang of the pod.
func MembershipOf(p *v1.Pod, own *v2alpha2.PodGroup) (gang cluster.Key, set string) {
	name := p.Annotations[PodGroupAnnotation]
	if name == "" {
		if own != nil {
			return GangKey(p.Namespace, own.Name), ""
		}
		if name = GangOfOwner(p); name == "" {
			return cluster.Key{}, ""
		}
		return GangKey(p.Namespace, name), ""
	}
	return GangKey(p.Namespace, name), p.Labels[SubGroupLabel]
}

// maxName is how long the name of an object may be.
const maxName = 253

// GangOfOwner returns the name of the PodGroup that a pod's owner has if it is the workload itself, has one PodGroup for all of its pods and
// no subgroups: whoever sees such a pod knows its gang without being told (ADR 18). There need not be one of that name. "" for a pod that
// says anything else: it names its PodGroup, or is or was a gang by itself, or a subgroup, or is not to be grouped, or has not one owner.
func GangOfOwner(p *v1.Pod) string {
	if len(p.OwnerReferences) != 1 || p.Annotations[PodGroupAnnotation] != "" || p.Annotations[keys.OwnGangAnnotation] != "" || p.Labels[SubGroupLabel] != "" ||
		p.Annotations[keys.SkipPodGrouperAnnotation] == "true" {
		return ""
	}
	o := &p.OwnerReferences[0]
	name := "pg-" + o.Name + "-" + string(o.UID)
	if o.Controller == nil || !*o.Controller || o.Name == "" || o.UID == "" || len(name) > maxName {
		return ""
	}
	return name
}

// Unsupported names what p asks for that this version cannot honour; "" for nothing. When it asks for several such
// things the first of this order is named: MIG slices by annotation.
func Unsupported(p *v1.Pod) string {
	if name, value := legacySlices(p); name != "" {
		return "a slice of a GPU by annotation (" + name + ": " + core.Brief(value) + "; ask for it as a container's resource instead)"
	}
	return ""
}
