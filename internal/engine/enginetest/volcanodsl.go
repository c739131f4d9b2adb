package enginetest

import (
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	kbkeys "github.com/muster-scheduler/muster/api/kubebatch/keys"
	"github.com/muster-scheduler/muster/api/scheduling/v2alpha2"
	"github.com/muster-scheduler/muster/api/volcano/keys"
	vcnodeinfo "github.com/muster-scheduler/muster/api/volcano/nodeinfo/v1alpha1"
	"github.com/muster-scheduler/muster/api/volcano/scheduling/v1beta1"
	vcshard "github.com/muster-scheduler/muster/api/volcano/shard/v1alpha1"
	vctopology "github.com/muster-scheduler/muster/api/volcano/topology/v1alpha1"
	"github.com/muster-scheduler/muster/internal/dialect/kai"
	"github.com/muster-scheduler/muster/internal/dialect/volcano/nodeshards"
)

// Gangs of Volcano's are stated as those of KAI's, with the word volcano: what the statement means is put into Volcano's objects. Sets are tasks. Queues of
// Volcano's are stated as manifests.

// VolcanoNames are the values of spec.schedulerName that are Volcano's; none without the option.
func (o *Options) VolcanoNames() []string {
	if o.Volcano {
		return []string{keys.SchedulerName}
	}
	return nil
}

// NodeShards is the part of Volcano's pods in its NodeShards.
func (o *Options) NodeShards() nodeshards.Sharding {
	mode, name, _ := strings.Cut(o.Sharding, " ")
	return nodeshards.Sharding{Mode: nodeshards.Mode(mode), Name: name}
}

// inVolcanos returns the objects of a gang statement as a user of Volcano's would have made them.
func inVolcanos(s *statement, objects []Object) []Object {
	for i, o := range objects {
		switch o := o.(type) {
		case *v2alpha2.PodGroup:
			pg := &v1beta1.PodGroup{ObjectMeta: o.ObjectMeta}
			pg.Spec.Queue, pg.Spec.PriorityClassName = o.Spec.Queue, o.Spec.PriorityClassName
			if o.Spec.MinMember != nil {
				pg.Spec.MinMember = *o.Spec.MinMember
			}
			for _, set := range o.Spec.SubGroups {
				if set.Parent != nil || set.MinMember == nil {
					s.bad("the sets of a gang of Volcano's are its tasks: they have no parents")
					return nil
				}
				if pg.Spec.MinTaskMember == nil {
					pg.Spec.MinTaskMember = map[string]int32{}
				}
				pg.Spec.MinTaskMember[set.Name] = *set.MinMember
				pg.Spec.MinMember += *set.MinMember
			}
			if o.Spec.MinSubGroup != nil { // min= beside sets
				pg.Spec.MinMember = *o.Spec.MinSubGroup
			}
			admission(s, pg)
			pg.Spec.NetworkTopology = network(s)
			objects[i] = pg
		case *v1.Pod:
			o.Spec.SchedulerName = keys.SchedulerName
			o.Annotations[keys.GroupName] = o.Annotations[kai.PodGroupAnnotation]
			delete(o.Annotations, kai.PodGroupAnnotation)
			if task := o.Labels[kai.SubGroupLabel]; task != "" {
				o.Annotations[keys.TaskSpec] = task
				delete(o.Labels, kai.SubGroupLabel)
			}
		}
	}
	return objects
}

// network is what within=TIER (a number or a name: hard), or soft, asks of HyperNodes; nil for neither.
func network(s *statement) *v1beta1.NetworkTopologySpec {
	if s.flag("soft") {
		return &v1beta1.NetworkTopologySpec{Mode: v1beta1.SoftNetworkTopologyMode}
	}
	text := s.text("within", "")
	if text == "" {
		return nil
	}
	n := &v1beta1.NetworkTopologySpec{Mode: v1beta1.HardNetworkTopologyMode}
	if tier, err := strconv.Atoi(text); err == nil {
		n.HighestTierAllowed = ptr.To(tier)
	} else {
		n.HighestTierName = text
	}
	return n
}

// admission fills what bears on whether a PodGroup is admitted: asks=RESOURCE:AMOUNT[,…] is minResources, sla=DURATION how long it waits at most.
func admission(s *statement, pg *v1beta1.PodGroup) {
	if s.has("asks") {
		list := v1.ResourceList{}
		for _, one := range strings.Split(s.text("asks", ""), ",") {
			name, amount, _ := strings.Cut(one, ":")
			q, err := resource.ParseQuantity(amount)
			if err != nil {
				s.bad("asks=%s: want RESOURCE:AMOUNT", one)
			}
			list[v1.ResourceName(name)] = q
		}
		pg.Spec.MinResources = &list
	}
	if wait := s.text("sla", ""); wait != "" {
		pg.Annotations = map[string]string{keys.SLAWaitingTime: wait}
	}
}

// groupOf is the name of the PodGroup that a pod names, of whichever face; "" for none.
func groupOf(p *v1.Pod) string {
	switch p.Spec.SchedulerName {
	case keys.SchedulerName:
		return p.Annotations[keys.GroupName]
	case kbkeys.SchedulerName:
		return kubeBatchGroup(p)
	}
	if name := upstreamOf(p); name != "" {
		return name
	}
	return p.Annotations[kai.PodGroupAnnotation]
}

// volcanoFields are the fields of Volcano's objects that decide something.
func volcanoFields() []field {
	return []field{
		on("Queue.scheduling.volcano.sh.spec.dequeueStrategy", func(q *v1beta1.Queue) { q.Spec.DequeueStrategy = "" }),
		on("Numatopology.nodeinfo.volcano.sh.spec.policies", func(n *vcnodeinfo.Numatopology) { n.Spec.Policies = nil }),
		on("Numatopology.nodeinfo.volcano.sh.spec.cpuDetail", func(n *vcnodeinfo.Numatopology) { n.Spec.CPUDetail = nil }),
		on("Numatopology.nodeinfo.volcano.sh.spec.numares", func(n *vcnodeinfo.Numatopology) { n.Spec.NumaResMap = nil }),
		on("Numatopology.nodeinfo.volcano.sh.spec.resReserved", func(n *vcnodeinfo.Numatopology) { n.Spec.ResReserved = nil }),
		on("Numatopology.nodeinfo.volcano.sh.spec.podAllocations", func(n *vcnodeinfo.Numatopology) { n.Spec.PodAllocations = nil }),
		on("Pod.metadata.annotations["+keys.NumaTopologyPolicy+"]", func(p *v1.Pod) { delete(p.Annotations, keys.NumaTopologyPolicy) }),
		on("PodGroup.scheduling.volcano.sh.spec.minMember", func(g *v1beta1.PodGroup) { g.Spec.MinMember = 0 }),
		on("PodGroup.scheduling.volcano.sh.spec.minTaskMember", func(g *v1beta1.PodGroup) { g.Spec.MinTaskMember = nil }),
		on("PodGroup.scheduling.volcano.sh.spec.networkTopology", func(g *v1beta1.PodGroup) { g.Spec.NetworkTopology = nil }),
		on("PodGroup.scheduling.volcano.sh.spec.networkTopology.mode", func(g *v1beta1.PodGroup) {
			if g.Spec.NetworkTopology != nil {
				g.Spec.NetworkTopology.Mode = v1beta1.SoftNetworkTopologyMode
			}
		}),
		on("PodGroup.scheduling.volcano.sh.spec.subGroupPolicy", func(g *v1beta1.PodGroup) { g.Spec.SubGroupPolicy = nil }),
		on("PodGroup.scheduling.volcano.sh.spec.subGroupPolicy[].networkTopology", func(g *v1beta1.PodGroup) {
			for i := range g.Spec.SubGroupPolicy {
				g.Spec.SubGroupPolicy[i].NetworkTopology = nil
			}
		}),
		on("PodGroup.scheduling.volcano.sh.spec.subGroupPolicy[].minSubGroups", func(g *v1beta1.PodGroup) {
			for i := range g.Spec.SubGroupPolicy {
				g.Spec.SubGroupPolicy[i].MinSubGroups = nil
			}
		}),
		on("PodGroup.scheduling.volcano.sh.spec.subGroupPolicy[].subGroupSize", func(g *v1beta1.PodGroup) {
			for i := range g.Spec.SubGroupPolicy {
				g.Spec.SubGroupPolicy[i].SubGroupSize = nil
			}
		}),
		on("HyperNode.topology.volcano.sh.spec.tier", func(h *vctopology.HyperNode) { h.Spec.Tier = 0 }),
		on("HyperNode.topology.volcano.sh.spec.tierName", func(h *vctopology.HyperNode) { h.Spec.TierName = "" }),
		on("HyperNode.topology.volcano.sh.spec.members", func(h *vctopology.HyperNode) { h.Spec.Members = nil }),
		on("NodeShard.shard.volcano.sh.spec.nodesDesired", func(s *vcshard.NodeShard) { s.Spec.NodesDesired = nil }),
		on("NodeShard.shard.volcano.sh.status.nodesInUse", func(s *vcshard.NodeShard) { s.Status.NodesInUse = nil }),
		on("PodGroup.scheduling.volcano.sh.spec.minResources", func(g *v1beta1.PodGroup) { g.Spec.MinResources = nil }),
		on("PodGroup.scheduling.volcano.sh.metadata.annotations["+keys.SLAWaitingTime+"]", func(g *v1beta1.PodGroup) { delete(g.Annotations, keys.SLAWaitingTime) }),
		on("PodGroup.scheduling.volcano.sh.metadata.annotations["+keys.TaskTopologyAffinity+"]", func(g *v1beta1.PodGroup) { delete(g.Annotations, keys.TaskTopologyAffinity) }),
		on("PodGroup.scheduling.volcano.sh.metadata.annotations["+keys.TaskTopologyAntiAffinity+"]", func(g *v1beta1.PodGroup) { delete(g.Annotations, keys.TaskTopologyAntiAffinity) }),
		on("PodGroup.scheduling.volcano.sh.metadata.annotations["+keys.TaskTopologyOrder+"]", func(g *v1beta1.PodGroup) { delete(g.Annotations, keys.TaskTopologyOrder) }),
		on("PodGroup.scheduling.volcano.sh.metadata.annotations["+keys.Preemptable+"]", func(g *v1beta1.PodGroup) { delete(g.Annotations, keys.Preemptable) }),
		on("PodGroup.scheduling.volcano.sh.metadata.labels["+keys.Preemptable+"]", func(g *v1beta1.PodGroup) { delete(g.Labels, keys.Preemptable) }),
		on("PodGroup.scheduling.volcano.sh.metadata.annotations["+keys.JDBMaxUnavailable+"]", func(g *v1beta1.PodGroup) { delete(g.Annotations, keys.JDBMaxUnavailable) }),
		on("PodGroup.scheduling.volcano.sh.metadata.annotations["+keys.JDBMinAvailable+"]", func(g *v1beta1.PodGroup) { delete(g.Annotations, keys.JDBMinAvailable) }),
		on("Pod.metadata.annotations["+keys.RevocableZone+"]", func(p *v1.Pod) { delete(p.Annotations, keys.RevocableZone) }),
		on("PodGroup.scheduling.volcano.sh.spec.queue", func(g *v1beta1.PodGroup) { g.Spec.Queue = "" }),
		on("PodGroup.scheduling.volcano.sh.spec.priorityClassName", func(g *v1beta1.PodGroup) { g.Spec.PriorityClassName = "" }),
		on("Queue.scheduling.volcano.sh.spec.weight", func(q *v1beta1.Queue) { q.Spec.Weight = 0 }),
		on("Queue.scheduling.volcano.sh.spec.capability", func(q *v1beta1.Queue) { q.Spec.Capability = nil }),
		on("Queue.scheduling.volcano.sh.spec.deserved", func(q *v1beta1.Queue) { q.Spec.Deserved = nil }),
		on("Queue.scheduling.volcano.sh.spec.guarantee", func(q *v1beta1.Queue) { q.Spec.Guarantee = v1beta1.Guarantee{} }),
		on("Queue.scheduling.volcano.sh.spec.parent", func(q *v1beta1.Queue) { q.Spec.Parent = "" }),
		on("Queue.scheduling.volcano.sh.spec.reclaimable", func(q *v1beta1.Queue) { q.Spec.Reclaimable = nil }),
		on("Queue.scheduling.volcano.sh.spec.priority", func(q *v1beta1.Queue) { q.Spec.Priority = 0 }),
		onAffinity("nodeGroupAffinity.requiredDuringSchedulingIgnoredDuringExecution", func(a *v1beta1.Affinity) *[]string {
			return &nodeGroupsOf(&a.NodeGroupAffinity).RequiredDuringSchedulingIgnoredDuringExecution
		}),
		onAffinity("nodeGroupAffinity.preferredDuringSchedulingIgnoredDuringExecution", func(a *v1beta1.Affinity) *[]string {
			return &nodeGroupsOf(&a.NodeGroupAffinity).PreferredDuringSchedulingIgnoredDuringExecution
		}),
		onAffinity("nodeGroupAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution", func(a *v1beta1.Affinity) *[]string {
			return &nodeGroupsOf(&a.NodeGroupAntiAffinity).RequiredDuringSchedulingIgnoredDuringExecution
		}),
		onAffinity("nodeGroupAntiAffinity.preferredDuringSchedulingIgnoredDuringExecution", func(a *v1beta1.Affinity) *[]string {
			return &nodeGroupsOf(&a.NodeGroupAntiAffinity).PreferredDuringSchedulingIgnoredDuringExecution
		}),
		on("ResourceQuota.spec.hard", func(q *v1.ResourceQuota) { q.Spec.Hard = nil }),
		on("ResourceQuota.status.used", func(q *v1.ResourceQuota) { q.Status.Used = nil }),
		on("Queue.scheduling.volcano.sh.status.state", func(q *v1beta1.Queue) { q.Status.State = "" }),
		on("Pod.metadata.annotations["+keys.GroupName+"]", func(p *v1.Pod) { delete(p.Annotations, keys.GroupName) }),
		on("Pod.metadata.annotations["+keys.TaskSpec+"]", func(p *v1.Pod) { delete(p.Annotations, keys.TaskSpec) }),
		on("Pod.metadata.annotations["+keys.Preemptable+"]", func(p *v1.Pod) { delete(p.Annotations, keys.Preemptable) }),
		on("Pod.metadata.annotations["+keys.QueueAllocationGate+"]", func(p *v1.Pod) { delete(p.Annotations, keys.QueueAllocationGate) }),
		on("Pod.metadata.annotations["+keys.CooldownTime+"]", func(p *v1.Pod) { delete(p.Annotations, keys.CooldownTime) }),
		on("Pod.metadata.labels["+keys.CooldownTime+"]", func(p *v1.Pod) { delete(p.Labels, keys.CooldownTime) }),
		on("Pod.status.conditions[PodScheduled]", func(p *v1.Pod) {
			p.Status.Conditions = slices.DeleteFunc(p.Status.Conditions, func(c v1.PodCondition) bool { return c.Type == v1.PodScheduled })
		}),
		on("Pod.metadata.annotations["+keys.TaskPriority+"]", func(p *v1.Pod) { delete(p.Annotations, keys.TaskPriority) }),
		on("Queue.scheduling.volcano.sh.metadata.annotations["+keys.Hierarchy+"]", func(q *v1beta1.Queue) { delete(q.Annotations, keys.Hierarchy) }),
		on("Queue.scheduling.volcano.sh.metadata.annotations["+keys.HierarchyWeights+"]", func(q *v1beta1.Queue) { delete(q.Annotations, keys.HierarchyWeights) }),
	}
}

// onAffinity makes a field of one list of a queue's groups of nodes.
func onAffinity(name string, list func(*v1beta1.Affinity) *[]string) field {
	return on("Queue.scheduling.volcano.sh.spec.affinity."+name, func(q *v1beta1.Queue) {
		if q.Spec.Affinity != nil {
			*list(q.Spec.Affinity) = nil
		}
	})
}

// nodeGroupsOf is what is there, or else something to take nothing off.
func nodeGroupsOf(at **v1beta1.NodeGroupAffinity) *v1beta1.NodeGroupAffinity {
	if *at == nil {
		return &v1beta1.NodeGroupAffinity{}
	}
	return *at
}
