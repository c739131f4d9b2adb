package core

import (
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/muster-scheduler/muster/internal/cluster"
)

// RootCertificates is the ConfigMap that the control plane publishes in every namespace and that admission makes
// every pod with a service account mount. It is never what keeps a pod waiting, so it is no part of a pod's class;
// otherwise pods of different namespaces would never share one.
const RootCertificates = "kube-root-ca.crt"

// Pod returns the parts of a pod's event that need no knowledge beyond core/v1. Gang, SetName, Ours, Utility,
// Spec.Unsupported and Spec.RestrictTo are left for the dialect and the feed. A pod that has ended takes no room and
// will never be placed, so its Spec, Requests and NodeName are left out.
func Pod(p *v1.Pod) cluster.PodState {
	st := cluster.PodState{
		UID: string(p.UID), Namespace: p.Namespace, Name: p.Name, Labels: p.Labels,
		Phase: PodPhase(p), Created: Nanoseconds(&p.CreationTimestamp), DeletedAt: Nanoseconds(p.DeletionTimestamp),
	}
	if st.Phase == cluster.Succeeded || st.Phase == cluster.Failed {
		st.Spec = &cluster.ClassSpec{}
		return st
	}
	st.NodeName, st.Nominated = p.Spec.NodeName, p.Status.NominatedNodeName
	st.Recreated = Recreated(p)
	st.Returning = st.Recreated && p.DeletionTimestamp != nil && disrupted(p)
	memory := &struct { // one piece of memory, for this happens to every pod
		spec     cluster.ClassSpec
		requests [usual]cluster.Quantity
	}{}
	st.Requests, st.Spec = appendRequests(p, memory.requests[:0]), &memory.spec
	class(p, st.Spec)
	return st
}

// Recreated says whether somebody makes a new pod when p is deleted: p has a controller, and not one of a kind that takes
// the end of its pod for its own. A pod without a controller, whatever else owns it, is gone for good. A kind that is not
// known here is taken to do what controllers do.
func Recreated(p *v1.Pod) bool {
	c := metav1.GetControllerOfNoCopy(p)
	if c == nil {
		return false
	}
	group, _, versioned := strings.Cut(c.APIVersion, "/")
	if !versioned {
		group = "" // core
	}
	switch (schema.GroupKind{Group: group, Kind: c.Kind}) {
	case schema.GroupKind{Kind: "Node"}, // a static pod: it is the node's
		schema.GroupKind{Kind: "Pod"},                                          // a helper of another pod
		schema.GroupKind{Group: "scheduling.run.ai", Kind: "PodGroup"},         // groups pods and makes none
		schema.GroupKind{Group: "scheduling.k8s.io", Kind: "PodGroup"},         //
		schema.GroupKind{Group: "scheduling.volcano.sh", Kind: "PodGroup"},     //
		schema.GroupKind{Group: "argoproj.io", Kind: "Workflow"},               // a step whose pod is gone has failed
		schema.GroupKind{Group: "tekton.dev", Kind: "TaskRun"},                 //
		schema.GroupKind{Group: "kubevirt.io", Kind: "VirtualMachineInstance"}: // a machine whose pod is gone has ended
		return false
	}
	return true
}

// disrupted says whether p ends because somebody evicts it: the API server notes that of every eviction. A tenant can write
// it too, and gains nothing: a waiting pod asks for as much.
func disrupted(p *v1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c v1.PodCondition) bool {
		return c.Type == v1.DisruptionTarget && c.Status == v1.ConditionTrue
	})
}

// PodPhase returns where p stands, as far as p itself says: a decision that waits in another object is not known here.
//
// A pod being deleted is Releasing when it has a node. Without one it is Failed: it holds nothing, and the API server
// refuses to bind a pod that is being deleted, so it never will, however long its finalizers keep it.
func PodPhase(p *v1.Pod) cluster.Phase {
	switch p.Status.Phase {
	case v1.PodSucceeded:
		return cluster.Succeeded
	case v1.PodFailed:
		return cluster.Failed
	case v1.PodUnknown:
		if p.Spec.NodeName == "" {
			return cluster.Unknown
		}
		// Nobody knows what became of it: so it has its room.
	}
	switch {
	case p.DeletionTimestamp != nil && p.Spec.NodeName != "":
		return cluster.Releasing
	case p.DeletionTimestamp != nil:
		return cluster.Failed
	case p.Status.Phase == v1.PodRunning:
		return cluster.Running
	case p.Spec.NodeName != "":
		return cluster.Bound
	case len(p.Spec.SchedulingGates) > 0:
		return cluster.Gated
	}
	return cluster.Pending
}

// class sets in s, which is empty, what decides where p may run, apart from its requests.
func class(p *v1.Pod, s *cluster.ClassSpec) {
	s.NodeSelector, s.Tolerations, s.Spread = p.Spec.NodeSelector, p.Spec.Tolerations, p.Spec.TopologySpreadConstraints
	s.HostPorts, s.Claims, s.ConfigMaps = hostPorts(p), claims(p), configMaps(p)
	if a := p.Spec.Affinity; a != nil {
		if n := a.NodeAffinity; n != nil && (n.RequiredDuringSchedulingIgnoredDuringExecution != nil || len(n.PreferredDuringSchedulingIgnoredDuringExecution) > 0) {
			s.NodeAffinity = n
		}
		if n := a.PodAffinity; n != nil && len(n.RequiredDuringSchedulingIgnoredDuringExecution)+len(n.PreferredDuringSchedulingIgnoredDuringExecution) > 0 {
			s.PodAffinity = n
		}
		if n := a.PodAntiAffinity; n != nil && len(n.RequiredDuringSchedulingIgnoredDuringExecution)+len(n.PreferredDuringSchedulingIgnoredDuringExecution) > 0 {
			s.PodAntiAffinity = n
		}
	}
	social := s.PodAffinity != nil || s.PodAntiAffinity != nil || len(s.Spread) > 0
	if social { // its own labels decide whether it matches its own terms
		s.Labels = p.Labels
	}
	if social || len(s.Claims) > 0 || len(s.ConfigMaps) > 0 {
		s.Namespace = p.Namespace
	}
}

// hostPorts lists the ports p opens on its node: those of containers and sidecars with a non-zero hostPort.
func hostPorts(p *v1.Pod) []cluster.HostPort {
	var out []cluster.HostPort
	add := func(c *v1.Container) {
		for i := range c.Ports {
			port := &c.Ports[i]
			if port.HostPort <= 0 {
				continue
			}
			h := cluster.HostPort{IP: port.HostIP, Protocol: string(port.Protocol), Port: port.HostPort}
			if h.IP == "" {
				h.IP = "0.0.0.0"
			}
			if h.Protocol == "" {
				h.Protocol = string(v1.ProtocolTCP)
			}
			out = append(out, h)
		}
	}
	for i := range p.Spec.Containers {
		add(&p.Spec.Containers[i])
	}
	for i := range p.Spec.InitContainers {
		c := &p.Spec.InitContainers[i]
		if c.RestartPolicy != nil && *c.RestartPolicy == v1.ContainerRestartPolicyAlways {
			add(c)
		}
	}
	return out
}

// claims lists the PersistentVolumeClaims p mounts, sorted; the claim of an ephemeral volume is called after the pod
// and the volume.
func claims(p *v1.Pod) []string {
	var out []string
	for i := range p.Spec.Volumes {
		switch v := &p.Spec.Volumes[i]; {
		case v.PersistentVolumeClaim != nil:
			out = append(out, v.PersistentVolumeClaim.ClaimName)
		case v.Ephemeral != nil:
			out = append(out, p.Name+"-"+v.Name)
		}
	}
	return sorted(out)
}

// configMaps lists the ConfigMaps p's containers cannot start without, sorted.
func configMaps(p *v1.Pod) []string {
	var out []string
	add := func(name string, optional *bool) {
		if name != "" && name != RootCertificates && (optional == nil || !*optional) {
			out = append(out, name)
		}
	}
	for i := range p.Spec.Volumes {
		v := &p.Spec.Volumes[i]
		if v.ConfigMap != nil {
			add(v.ConfigMap.Name, v.ConfigMap.Optional)
		}
		if v.Projected != nil {
			for j := range v.Projected.Sources {
				if c := v.Projected.Sources[j].ConfigMap; c != nil {
					add(c.Name, c.Optional)
				}
			}
		}
	}
	for _, cs := range [2][]v1.Container{p.Spec.Containers, p.Spec.InitContainers} {
		for i := range cs {
			for j := range cs[i].Env {
				if f := cs[i].Env[j].ValueFrom; f != nil && f.ConfigMapKeyRef != nil {
					add(f.ConfigMapKeyRef.Name, f.ConfigMapKeyRef.Optional)
				}
			}
			for j := range cs[i].EnvFrom {
				if r := cs[i].EnvFrom[j].ConfigMapRef; r != nil {
					add(r.Name, r.Optional)
				}
			}
		}
	}
	return sorted(out)
}

func sorted(names []string) []string {
	if len(names) < 2 {
		return names
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Nanoseconds returns t in Unix nanoseconds; 0 for no time.
func Nanoseconds(t *metav1.Time) cluster.Instant {
	if t == nil || t.IsZero() {
		return cluster.Instant{}
	}
	return cluster.InstantOf(t.Time)
}
