package enginetest

import (
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-scheduler/muster/api/kai/keys"
	"github.com/muster-scheduler/muster/api/kai/v1alpha1"
	v2 "github.com/muster-scheduler/muster/api/scheduling/v2"
	"github.com/muster-scheduler/muster/api/scheduling/v2alpha2"
	"github.com/muster-scheduler/muster/internal/dialect/kai"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/engine/builtin"
	"github.com/muster-scheduler/muster/internal/engine/plugins/kubeflow"
	"github.com/muster-scheduler/muster/internal/engine/plugins/ray"
	"github.com/muster-scheduler/muster/internal/engine/plugins/taskorder"
	"github.com/muster-scheduler/muster/internal/engine/policy"
)

// Mutation switches something off, to prove that scenarios notice. The zero value switches nothing off.
type Mutation struct {
	// Name says what: "point queue-order", "plugin priority/gang-order", "field Pod.spec.nodeSelector", "option stuck-after".
	Name string
	// Neutralised is passed to the profile.
	Neutralised []string
	// Object, when not nil, takes a field off an object before the dialects see it.
	Object func(Object)
	// Options, when not nil, takes a setting back to its default.
	Options func(*Options)
}

func (m *Mutation) active() bool {
	return len(m.Neutralised) > 0 || m.Object != nil || m.Options != nil
}

// Mutations lists one mutation for every extension point, for every plugin at every point it implements, for every field
// of an object that decides something here, and for every option.
func Mutations(r engine.Registry) ([]Mutation, error) {
	var out []Mutation
	for _, p := range policy.Points() {
		out = append(out, Mutation{Name: "point " + string(p), Neutralised: []string{string(p)}})
	}
	r = WithProbe(r.Clone())
	for _, name := range slices.Sorted(maps.Keys(r.Plugins)) {
		for _, f := range r.Plugins[name] {
			for _, p := range f.Points {
				pair := name + "/" + string(p)
				out = append(out, Mutation{Name: "plugin " + pair, Neutralised: []string{pair}})
			}
		}
	}
	for _, face := range slices.Sorted(maps.Keys(r.Faces)) {
		if face == builtin.KubeBatchsFace {
			continue // its plugins are Volcano's
		}
		for _, name := range slices.Sorted(maps.Keys(r.Faces[face].Plugins)) {
			for _, f := range r.Faces[face].Plugins[name] {
				for _, p := range f.Points {
					pair := face + ":" + name + "/" + string(p)
					out = append(out, Mutation{Name: "plugin " + pair, Neutralised: []string{pair}})
				}
			}
		}
	}
	for _, f := range fields() {
		out = append(out, Mutation{Name: "field " + f.name, Object: f.off})
	}
	return append(out, optionMutations()...), nil
}

func optionMutations() []Mutation {
	return []Mutation{
		{Name: "option config", Options: func(o *Options) { o.Config = "" }},
		{Name: "option shard", Options: func(o *Options) { o.Shard = nil }},
		{Name: "option scheduler-names", Options: func(o *Options) { o.SchedulerNames = nil }},
		{Name: "option restrict-gpu", Options: func(o *Options) { o.RestrictGPU = "" }},
		{Name: "option restrict-cpu", Options: func(o *Options) { o.RestrictCPU = "" }},
		{Name: "option volcano-config", Options: func(o *Options) { o.VolcanoConfig = "" }},
		{Name: "option volcano", Options: func(o *Options) { o.Volcano = false }},
		{Name: "option kube-batch", Options: func(o *Options) { o.KubeBatch = false }},
		{Name: "option kube-batch-config", Options: func(o *Options) { o.KubeBatchConfig = "" }},
		{Name: "option sharding", Options: func(o *Options) { o.Sharding = "" }},
		{Name: "option queue-gates", Options: func(o *Options) { o.QueueGates = false }},
		{Name: "option flat-queues", Options: func(o *Options) { o.FlatQueues = false }},
		{Name: "option consolidation-victims", Options: func(o *Options) { o.ConsolidationVictims = "" }},
		{Name: "option search-steps", Options: func(o *Options) { o.SearchSteps = "" }},
		{Name: "option moved-count", Options: func(o *Options) { o.MovedCount = false }},
		{Name: "option stale-grace", Options: func(o *Options) { o.StaleGrace = "" }},
		{Name: "option stuck-after", Options: func(o *Options) { o.StuckAfter = "" }},
	}
}

// field is one field of an object and how to take it off.
type field struct {
	name string
	off  func(Object)
}

// on makes a field of one kind of object.
func on[T Object](name string, off func(T)) field {
	return field{name, func(o Object) {
		if x, ok := o.(T); ok {
			off(x)
		}
	}}
}

func fields() []field {
	out := append(nodeFields(), podFields()...)
	out = append(out, queueFields()...)
	return append(out, slices.Concat(gangFields(), nearFields(), placementFields(), volcanoFields(), upstreamFields(), kubeBatchFields())...)
}

func nodeFields() []field {
	out := []field{
		on("Node.metadata.labels", func(n *v1.Node) { n.Labels = nil }),
		on("Node.spec.taints", func(n *v1.Node) { n.Spec.Taints = nil }),
		on("Node.spec.unschedulable", func(n *v1.Node) { n.Spec.Unschedulable = false }),
		on("Node.status.conditions[Ready]", func(n *v1.Node) { ready(n, v1.ConditionTrue) }),
	}
	for _, c := range []v1.NodeConditionType{v1.NodeMemoryPressure, v1.NodeDiskPressure, v1.NodePIDPressure, v1.NodeNetworkUnavailable} {
		out = append(out, on("Node.status.conditions["+string(c)+"]", func(n *v1.Node) {
			n.Status.Conditions = slices.DeleteFunc(n.Status.Conditions, func(x v1.NodeCondition) bool { return x.Type == c })
		}))
	}
	for _, label := range []string{keys.MIGWorkerNodeLabel, keys.MIGStrategyNodeLabel} {
		out = append(out, on("Node.metadata.labels["+label+"]", func(n *v1.Node) { delete(n.Labels, label) }))
	}
	for _, r := range []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory, v1.ResourcePods, "nvidia.com/gpu", "nvidia.com/mig-1g.10gb", v1.ResourceEphemeralStorage, "example.com/nic"} {
		out = append(out, on("Node.status.allocatable["+string(r)+"]", func(n *v1.Node) { delete(n.Status.Allocatable, r) }))
	}
	return out
}

func podFields() []field {
	out := []field{
		on("Pod.metadata.ownerReferences", func(p *v1.Pod) { p.OwnerReferences = nil }),
		on("Pod.metadata.creationTimestamp", func(p *v1.Pod) { p.CreationTimestamp = metav1.Time{} }),
		on("Pod.metadata.deletionTimestamp", func(p *v1.Pod) { p.DeletionTimestamp = nil }),
		on("Pod.spec.schedulerName", func(p *v1.Pod) { p.Spec.SchedulerName = kai.DefaultSchedulerName }),
		on("Pod.spec.schedulingGates", func(p *v1.Pod) { p.Spec.SchedulingGates = nil }),
		on("Pod.spec.nodeName", func(p *v1.Pod) { p.Spec.NodeName = "" }),
		on("Pod.spec.nodeSelector", func(p *v1.Pod) { p.Spec.NodeSelector = nil }),
		on("Pod.spec.affinity.nodeAffinity", func(p *v1.Pod) {
			if p.Spec.Affinity != nil {
				p.Spec.Affinity.NodeAffinity = nil
			}
		}),
		on("Pod.spec.tolerations", func(p *v1.Pod) { p.Spec.Tolerations = nil }),
		on("Pod.spec.volumes[configMap]", func(p *v1.Pod) {
			p.Spec.Volumes = slices.DeleteFunc(p.Spec.Volumes, func(v v1.Volume) bool { return v.ConfigMap != nil })
		}),
		on("Pod.spec.resourceClaims", func(p *v1.Pod) { p.Spec.ResourceClaims = nil }),
		on("Pod.spec.overhead", func(p *v1.Pod) { p.Spec.Overhead = nil }),
		on("Pod.spec.initContainers", func(p *v1.Pod) { p.Spec.InitContainers = nil }),
		on("Pod.status.nominatedNodeName", func(p *v1.Pod) { p.Status.NominatedNodeName = "" }),
		on("Pod.status.phase", func(p *v1.Pod) { p.Status.Phase = v1.PodPending }),
		on("Pod.spec.containers[].ports", func(p *v1.Pod) {
			for i := range p.Spec.Containers {
				p.Spec.Containers[i].Ports = nil
			}
		}),
	}
	for _, part := range []struct {
		name string
		off  func(*v1.ContainerPort)
	}{{"hostIP", func(c *v1.ContainerPort) { c.HostIP = "" }}, {"protocol", func(c *v1.ContainerPort) { c.Protocol = v1.ProtocolTCP }}} {
		out = append(out, on("Pod.spec.containers[].ports."+part.name, func(p *v1.Pod) {
			for i := range p.Spec.Containers {
				for k := range p.Spec.Containers[i].Ports {
					part.off(&p.Spec.Containers[i].Ports[k])
				}
			}
		}))
	}
	for _, r := range []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory, "nvidia.com/gpu", v1.ResourceEphemeralStorage, "example.com/nic"} {
		out = append(out, on("Pod.spec.containers[].resources.requests["+string(r)+"]", func(p *v1.Pod) {
			for i := range p.Spec.Containers {
				delete(p.Spec.Containers[i].Resources.Requests, r)
			}
		}))
	}
	for _, l := range []string{kai.SubGroupLabel, kai.AppLabel, taskorder.PriorityLabel, kubeflow.RoleLabel, ray.NodeTypeLabel} {
		out = append(out, on("Pod.metadata.labels["+l+"]", func(p *v1.Pod) { delete(p.Labels, l) }))
	}
	for _, a := range []string{kai.PodGroupAnnotation, kai.FractionAnnotation, kai.MemoryAnnotation} {
		out = append(out, on("Pod.metadata.annotations["+a+"]", func(p *v1.Pod) { delete(p.Annotations, a) }))
	}
	return out
}

func queueFields() []field {
	out := []field{
		on("Queue.metadata.creationTimestamp", func(q *v2.Queue) { q.CreationTimestamp = metav1.Time{} }),
		on("Queue.spec.parentQueue", func(q *v2.Queue) { q.Spec.ParentQueue = "" }),
		on("Queue.spec.priority", func(q *v2.Queue) { q.Spec.Priority = nil }),
		on("Queue.metadata.annotations["+kai.BudgetsAnnotation+"]", func(q *v2.Queue) { delete(q.Annotations, kai.BudgetsAnnotation) }),
		on("Queue.spec.preemptMinRuntime", func(q *v2.Queue) { q.Spec.PreemptMinRuntime = nil }),
		on("Queue.spec.reclaimMinRuntime", func(q *v2.Queue) { q.Spec.ReclaimMinRuntime = nil }),
		on("Queue.metadata.annotations["+keys.ExtendedResourcesAnnotation+"]", func(q *v2.Queue) { delete(q.Annotations, keys.ExtendedResourcesAnnotation) }),
		on("Queue.spec.resources", func(q *v2.Queue) { q.Spec.Resources = nil }),
		on("Queue.spec.resources.extended", func(q *v2.Queue) {
			if q.Spec.Resources != nil {
				q.Spec.Resources.Extended = nil
			}
		}),
	}
	for _, d := range []struct {
		name string
		of   func(*v2.QueueResources) *v2.QueueResource
	}{
		{"gpu", func(r *v2.QueueResources) *v2.QueueResource { return &r.GPU }},
		{"cpu", func(r *v2.QueueResources) *v2.QueueResource { return &r.CPU }},
		{"memory", func(r *v2.QueueResources) *v2.QueueResource { return &r.Memory }},
	} {
		for _, f := range []struct {
			name string
			off  func(*v2.QueueResource)
		}{
			{"quota", func(r *v2.QueueResource) { r.Quota = v2.Unlimited }},
			{"limit", func(r *v2.QueueResource) { r.Limit = v2.Unlimited }},
			{"overQuotaWeight", func(r *v2.QueueResource) { r.OverQuotaWeight = 1 }},
		} {
			out = append(out, on("Queue.spec.resources."+d.name+"."+f.name, func(q *v2.Queue) {
				if q.Spec.Resources != nil {
					f.off(d.of(q.Spec.Resources))
				}
			}))
		}
	}
	for _, f := range []struct {
		name string
		off  func(*v2.QueueResource)
	}{
		{"quota", func(r *v2.QueueResource) { r.Quota = 0 }},
		{"limit", func(r *v2.QueueResource) { r.Limit = v2.Unlimited }},
		{"overQuotaWeight", func(r *v2.QueueResource) { r.OverQuotaWeight = 1 }},
	} {
		out = append(out, on("Queue.spec.resources.extended{}."+f.name, func(q *v2.Queue) {
			if q.Spec.Resources == nil {
				return
			}
			for name, r := range q.Spec.Resources.Extended { // order: each by itself
				f.off(&r)
				q.Spec.Resources.Extended[name] = r
			}
		}))
	}
	return out
}

// nearFields are those of constraints, of gangs and of their sets, and the levels they refer to.
func nearFields() []field {
	out := []field{
		on("Topology.spec.levels[].nodeLabel", func(t *v1alpha1.Topology) {
			for i := range t.Spec.Levels {
				t.Spec.Levels[i].NodeLabel = "x/" + t.Spec.Levels[i].NodeLabel
			}
		}),
		on("Topology.spec.levels[].alias", func(t *v1alpha1.Topology) {
			for i := range t.Spec.Levels {
				t.Spec.Levels[i].Alias = ""
			}
		}),
	}
	for _, f := range []struct {
		name string
		off  func(*v2alpha2.TopologyConstraint)
	}{
		{"topology", func(c *v2alpha2.TopologyConstraint) { c.Topology = "" }},
		{"requiredTopologyLevel", func(c *v2alpha2.TopologyConstraint) { c.RequiredTopologyLevel = "" }},
		{"preferredTopologyLevel", func(c *v2alpha2.TopologyConstraint) { c.PreferredTopologyLevel = "" }},
	} {
		out = append(out,
			on("PodGroup.spec.topologyConstraint."+f.name, func(g *v2alpha2.PodGroup) { f.off(&g.Spec.TopologyConstraint) }),
			on("PodGroup.spec.subGroups[].topologyConstraint."+f.name, func(g *v2alpha2.PodGroup) {
				eachSubGroup(g, func(s *v2alpha2.SubGroup) {
					if s.TopologyConstraint != nil {
						f.off(s.TopologyConstraint)
					}
				})
			}))
	}
	return out
}

func gangFields() []field {
	return []field{
		on("PodGroup.spec.subGroups[].name", func(g *v2alpha2.PodGroup) { eachSubGroup(g, func(s *v2alpha2.SubGroup) { s.Name = "x" + s.Name }) }),
		on("PodGroup.metadata.creationTimestamp", func(g *v2alpha2.PodGroup) { g.CreationTimestamp = metav1.Time{} }),
		on("PodGroup.metadata.annotations["+kai.LastStartAnnotation+"]", func(g *v2alpha2.PodGroup) { delete(g.Annotations, kai.LastStartAnnotation) }),
		on("PodGroup.spec.minMember", func(g *v2alpha2.PodGroup) { g.Spec.MinMember = nil }),
		on("PodGroup.spec.minSubGroup", func(g *v2alpha2.PodGroup) { g.Spec.MinSubGroup = nil }),
		on("PodGroup.spec.preemptionDelay", func(g *v2alpha2.PodGroup) { g.Spec.PreemptionDelay = nil }),
		on("PodGroup.spec.stalenessGracePeriod", func(g *v2alpha2.PodGroup) { g.Spec.StalenessGracePeriod = nil }),
		on("PodGroup.metadata.annotations["+kai.LastStartAnnotation+"]", func(g *v2alpha2.PodGroup) { delete(g.Annotations, kai.LastStartAnnotation) }),
		on("PodGroup.metadata.annotations["+kai.LastEvictionAnnotation+"]", func(g *v2alpha2.PodGroup) { delete(g.Annotations, kai.LastEvictionAnnotation) }),
		on("PodGroup.metadata.annotations["+kai.StaleSinceAnnotation+"]", func(g *v2alpha2.PodGroup) { delete(g.Annotations, kai.StaleSinceAnnotation) }),
		on("PodDisruptionBudget.spec.selector", func(b *policyv1.PodDisruptionBudget) { b.Spec.Selector = nil }),
		on("PodDisruptionBudget.status.disruptionsAllowed", func(b *policyv1.PodDisruptionBudget) { b.Status.DisruptionsAllowed = 0 }),
		on("PodGroup.spec.queue", func(g *v2alpha2.PodGroup) { g.Spec.Queue = "" }),
		on("PodGroup.spec.priorityClassName", func(g *v2alpha2.PodGroup) { g.Spec.PriorityClassName = "" }),
		on("PodGroup.spec.preemptibility", func(g *v2alpha2.PodGroup) { g.Spec.Preemptibility = "" }),
		on("PodGroup.spec.schedulingBackoff", func(g *v2alpha2.PodGroup) { g.Spec.SchedulingBackoff = nil }),
		on("PodGroup.spec.subGroups", func(g *v2alpha2.PodGroup) { g.Spec.SubGroups = nil }),
		on("PodGroup.spec.subGroups[].minMember", func(g *v2alpha2.PodGroup) { eachSubGroup(g, func(s *v2alpha2.SubGroup) { s.MinMember = nil }) }),
		on("PodGroup.spec.subGroups[].minSubGroup", func(g *v2alpha2.PodGroup) { eachSubGroup(g, func(s *v2alpha2.SubGroup) { s.MinSubGroup = nil }) }),
		on("PodGroup.spec.subGroups[].parent", func(g *v2alpha2.PodGroup) { eachSubGroup(g, func(s *v2alpha2.SubGroup) { s.Parent = nil }) }),
		on("PodGroup.status.schedulingConditions", func(g *v2alpha2.PodGroup) { g.Status.SchedulingConditions = nil }),
		on("PriorityClass.value", func(p *schedulingv1.PriorityClass) { p.Value = 0 }),
		on("PriorityClass.globalDefault", func(p *schedulingv1.PriorityClass) { p.GlobalDefault = false }),
	}
}

func eachSubGroup(g *v2alpha2.PodGroup, f func(*v2alpha2.SubGroup)) {
	for i := range g.Spec.SubGroups {
		f(&g.Spec.SubGroups[i])
	}
}
