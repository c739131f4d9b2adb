package kai

import (
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/dialect/core"
)

// Roles are the settings by which pods are told apart.
type Roles struct {
	// SchedulerNames are the values of spec.schedulerName that make a pod ours.
	SchedulerNames []string
	// ReservationApp is the value of AppLabel on our reservation pods.
	ReservationApp string
	// RestrictGPU and RestrictCPU, when not "", are labels: pods that ask for GPUs go only to nodes that have
	// RestrictGPU, all other pods only to nodes that have RestrictCPU.
	RestrictGPU, RestrictCPU string
}

// Pod returns the event that makes the model know p as it is. promised is the node that a live BindRequest for this very
// pod (Binding.Meant) chose, "" for none: it makes a pending pod Binding there, and says nothing about any other.
func (r *Roles) Pod(p *v1.Pod, promised string) cluster.PodState {
	st := core.Pod(p)
	r.Complete(&st, p)
	if st.Phase == cluster.Pending && promised != "" {
		st.Phase, st.NodeName = cluster.Binding, promised
	}
	return st
}

// Complete adds to st, which core.Pod made of p, what this API family says about the pod: its gang and set, whether it
// is ours or a utility pod, what it asks for that cannot be honoured, and which nodes are reserved for its kind.
func (r *Roles) Complete(st *cluster.PodState, p *v1.Pod) {
	st.Gang, st.SetName = Membership(p)
	st.Ours = slices.Contains(r.SchedulerNames, p.Spec.SchedulerName)
	if app := p.Labels[AppLabel]; app != "" {
		st.Utility = app == r.ReservationApp || app == ScalingApp
	}
	if !st.Ours || !st.Phase.Alive() {
		return
	}
	st.Spec.Unsupported = Unsupported(p)
	if r.RestrictGPU != "" || r.RestrictCPU != "" {
		st.Spec.RestrictTo = []string{r.RestrictCPU}
		if slices.ContainsFunc(st.Requests, func(q cluster.Quantity) bool { return q.Name == "gpu" }) {
			st.Spec.RestrictTo[0] = r.RestrictGPU
		}
	}
}

// Membership returns the gang p asks to be in, the zero Key for none, and the set of it. A pod can only be in a gang of
// its own namespace.
func Membership(p *v1.Pod) (gang cluster.Key, set string) {
	name := p.Annotations[PodGroupAnnotation]
	if name == "" {
		return cluster.Key{}, ""
	}
	return GangKey(p.Namespace, name), p.Labels[SubGroupLabel]
}

// Unsupported names what p asks for that this version cannot honour; "" for nothing. When it asks for several such
// things the first of this order is named: gpu-fraction, gpu-memory, MIG resources, resource claims.
func Unsupported(p *v1.Pod) string {
	if v, ok := p.Annotations[FractionAnnotation]; ok {
		return "a share of a GPU (annotation " + FractionAnnotation + ": " + brief(v) + ")"
	}
	if v, ok := p.Annotations[MemoryAnnotation]; ok {
		return "an amount of GPU memory (annotation " + MemoryAnnotation + ": " + brief(v) + ")"
	}
	mig := ""
	for _, cs := range [2][]v1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for i := range cs {
			for name := range cs[i].Resources.Requests { // order: minimum
				if strings.HasPrefix(string(name), MIGPrefix) && (mig == "" || string(name) < mig) {
					mig = string(name)
				}
			}
		}
	}
	if mig != "" {
		return "a slice of a GPU (resource " + mig + ")"
	}
	if len(p.Spec.ResourceClaims) > 0 {
		return "devices by resource claim (spec.resourceClaims: " + p.Spec.ResourceClaims[0].Name + ")"
	}
	return ""
}

// brief cuts a user's text to a length fit for a sentence.
func brief(s string) string {
	const most = 32
	if len(s) > most {
		return strings.ToValidUTF8(s[:most], "") + "…"
	}
	return s
}
