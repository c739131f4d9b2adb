package conformance

import (
	"math"
	"strconv"
	"strings"
	"time"

	topologyv1alpha2 "github.com/k8stopologyawareschedwg/noderesourcetopology-api/pkg/apis/topology/v1alpha2"
	v1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-scheduler/muster/api/kai/keys"
	v2 "github.com/muster-scheduler/muster/api/scheduling/v2"
	"github.com/muster-scheduler/muster/api/scheduling/v2alpha2"
	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/dialect/core"
	"github.com/muster-scheduler/muster/internal/dialect/nodetopology"
	"github.com/muster-scheduler/muster/internal/engine/enginetest"
)

// Units and constants of the files.
const (
	second        = time.Second
	defaultSpace  = "default" // namespace of gangs that name none
	defaultLeaf   = "default" // pod set of gangs without others
	nodeTypeLabel = "kai.scheduler/type"
	// startedAgo is for how long running gangs have run.
	startedAgo = 60 * second
	// stuckAfter is when a pod that should be gone is no longer counted on. Only its order of magnitude matters here:
	// pods are either just being deleted or stuck for good.
	stuckAfter = 60 * second
)

// start is the moment cases begin at: any moment with room before and after it.
var start = cluster.UnixNano(1_700_000_000_000_000_000)

// moment is a time of the run as objects write it. Objects here keep the nanoseconds that an API server would drop.
func moment(at cluster.Instant) metav1.Time { return metav1.NewTime(at.Time().UTC()) }

// stamp is a time as annotations write it.
func stamp(at cluster.Instant) string { return at.Time().UTC().Format(time.RFC3339Nano) }

// objects returns everything the case begins with, but for pods and their gangs, what others refer to first. Everything is
// identified by its name.
func (c *Case) objects() []enginetest.Object {
	var out []enginetest.Object
	for i := range c.Given.Topologies {
		out = append(out, &c.Given.Topologies[i])
	}
	for i := range c.Given.Nodes {
		out = append(out, c.Given.Nodes[i].object())
		if z := c.Given.Nodes[i].zones(); z != nil {
			out = append(out, z)
		}
	}
	out = append(out, c.Given.DRA.objects()...)
	for i := range c.Given.Queues {
		out = append(out, c.Given.Queues[i].object())
	}
	known := map[int32]bool{}
	for i := range c.Given.Gangs {
		p := c.Given.Gangs[i].Priority
		if !known[p] {
			known[p] = true
			out = append(out, &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: className(p)}, Value: p})
		}
	}
	return out
}

// className is what the priority class of that value is called.
func className(priority int32) string { return "priority-" + strconv.Itoa(int(priority)) }

func meta(namespace, name string, created cluster.Instant) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(name), CreationTimestamp: moment(created), Labels: map[string]string{}, Annotations: map[string]string{}}
}

func set(list v1.ResourceList, name v1.ResourceName, x int64) {
	if x > 0 {
		list[name] = *resource.NewQuantity(x, resource.DecimalSI)
	}
}

func (n *Node) object() *v1.Node {
	o := &v1.Node{ObjectMeta: meta("", n.Name, start)}
	o.Labels[nodeTypeLabel] = n.Name
	o.Labels[keys.GPUMemoryNodeLabel] = strconv.FormatInt(n.GPUMemoryMiB, 10)
	if n.MIGStrategy != "" {
		o.Labels[keys.MIGStrategyNodeLabel] = n.MIGStrategy
		o.Labels[keys.MIGWorkerNodeLabel] = strconv.FormatBool(n.MIGStrategy != "none")
	}
	for k, v := range n.Labels { // order: a set
		o.Labels[k] = v
	}
	room := v1.ResourceList{v1.ResourceCPU: *resource.NewMilliQuantity(n.CPUMilli, resource.DecimalSI)}
	set(room, v1.ResourceMemory, n.MemoryBytes)
	set(room, v1.ResourcePods, n.PodSlots)
	if n.MIGStrategy != "mixed" {
		set(room, core.NvidiaGPU, n.GPUs)
	}
	for name, x := range n.MIGInstances { // order: named quantities
		set(room, v1.ResourceName(name), x)
	}
	o.Status = v1.NodeStatus{Capacity: room, Allocatable: room, Conditions: []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue}}}
	return o
}

// zones returns what the node says of its NUMA zones; nil for nothing.
func (n *Node) zones() *topologyv1alpha2.NodeResourceTopology {
	if n.NUMA == nil {
		return nil
	}
	o := &topologyv1alpha2.NodeResourceTopology{ObjectMeta: meta("", n.Name, start)}
	o.Attributes = topologyv1alpha2.AttributeList{
		{Name: nodetopology.AttributePolicy, Value: n.NUMA.Policy}, {Name: nodetopology.AttributeScope, Value: n.NUMA.Scope},
	}
	quantity := func(name string, x int64) resource.Quantity {
		if name == string(v1.ResourceCPU) {
			return *resource.NewMilliQuantity(x, resource.DecimalSI)
		}
		return *resource.NewQuantity(x, resource.DecimalSI)
	}
	for i := range n.NUMA.Zones {
		z := topologyv1alpha2.Zone{Name: n.NUMA.Zones[i].ID, Type: nodetopology.TypeNode}
		for name, x := range n.NUMA.Zones[i].Allocatable { // order: named quantities
			all := quantity(name, x)
			z.Resources = append(z.Resources, topologyv1alpha2.ResourceInfo{Name: name, Capacity: all, Allocatable: all, Available: quantity(name, n.NUMA.Zones[i].Available[name])})
		}
		o.Zones = append(o.Zones, z)
	}
	return o
}

// objects returns classes, slices and claims. A class selects nothing: its devices are those of the slices that name it.
func (d *DRA) objects() []enginetest.Object {
	var out []enginetest.Object
	for _, name := range d.DeviceClasses {
		out = append(out, &resourcev1.DeviceClass{ObjectMeta: meta("", name, start)})
	}
	for i := range d.Slices {
		s := &d.Slices[i]
		o := &resourcev1.ResourceSlice{ObjectMeta: meta("", s.Name, start), Spec: resourcev1.ResourceSliceSpec{
			Driver: s.Driver, Pool: resourcev1.ResourcePool{Name: s.Node, ResourceSliceCount: 1},
		}}
		if s.AllNodes {
			o.Spec.AllNodes = &s.AllNodes
		} else {
			o.Spec.NodeName = &s.Node
		}
		for k := range s.Devices {
			o.Spec.Devices = append(o.Spec.Devices, resourcev1.Device{Name: strconv.Itoa(k)})
		}
		out = append(out, o)
	}
	for i := range d.Claims {
		out = append(out, d.Claims[i].object())
	}
	return out
}

func (c *Claim) object() *resourcev1.ResourceClaim {
	o := &resourcev1.ResourceClaim{ObjectMeta: meta(c.Namespace, c.Name, start)}
	for k, v := range c.Labels { // order: a set
		o.Labels[k] = v
	}
	o.Spec.Devices.Requests = []resourcev1.DeviceRequest{{Name: "request", Exactly: &resourcev1.ExactDeviceRequest{
		DeviceClassName: c.Class, AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: c.Count,
	}}}
	if c.Status != nil {
		o.Status = *c.Status.DeepCopy()
	}
	return o
}

func (q *Queue) object() *v2.Queue {
	o := &v2.Queue{ObjectMeta: meta("", q.Name, start.Add(-24*3600*second).Add(time.Duration(q.CreatedAt)*second))}
	o.Spec.ParentQueue = q.Parent
	if q.Priority != nil {
		o.Spec.Priority = new(int(*q.Priority))
	}
	o.Spec.Resources = &v2.QueueResources{GPU: q.GPU.resource(), CPU: q.CPU.resource(), Memory: q.Memory.resource()}
	return o
}

// resource returns the share in the API's numbers. Weights below 0 have no effect where the files come from.
func (s *Share) resource() v2.QueueResource {
	number := func(a Amount) float64 {
		if a.Unlimited {
			return v2.Unlimited
		}
		return a.Value
	}
	return v2.QueueResource{Quota: number(s.Quota), Limit: number(s.Limit), OverQuotaWeight: math.Max(0, s.Weight)}
}

func (g *Gang) namespace() string {
	if g.Namespace == "" {
		return defaultSpace
	}
	return g.Namespace
}

func (g *Gang) key() cluster.Key {
	return cluster.Key{Face: "kai", Namespace: g.namespace(), Name: g.Name}
}

func (g *Gang) created() cluster.Instant { return start.Add(-time.Duration(g.AgeSeconds) * second) }

func (g *Gang) object() *v2alpha2.PodGroup {
	o := &v2alpha2.PodGroup{ObjectMeta: meta(g.namespace(), g.Name, g.created())}
	o.Spec.Queue, o.Spec.PriorityClassName, o.Spec.Preemptibility = g.Queue, className(g.Priority), v2alpha2.Preemptibility(g.Preemptibility)
	o.Spec.TopologyConstraint = g.Tree.Topology.constraint()
	if only := &g.Tree.Members; len(*only) == 1 && (*only)[0].Name == defaultLeaf && len((*only)[0].Members) == 0 && (*only)[0].Topology == (Together{}) && g.Tree.MinSubGroup == nil {
		o.Spec.MinMember = (*only)[0].MinMember
	} else {
		o.Spec.MinSubGroup = g.Tree.MinSubGroup
		o.Spec.SubGroups = subGroups(&g.Tree, nil, nil)
	}
	for i := range g.Pods {
		if g.Pods[i].Status == running {
			o.Annotations[keys.LastStartAnnotation] = stamp(start.Add(-startedAgo))
		}
	}
	if g.StaleForSeconds != nil {
		o.Annotations[keys.StaleSinceAnnotation] = stamp(start.Add(-time.Duration(*g.StaleForSeconds) * second))
	}
	o.Spec.StalenessGracePeriod = span(g.StalenessGraceSeconds)
	o.Spec.PreemptionDelay = span(g.PreemptionDelaySeconds)
	return o
}

func span(seconds *int64) *metav1.Duration {
	if seconds == nil {
		return nil
	}
	return &metav1.Duration{Duration: time.Duration(*seconds) * time.Second}
}

func (t Together) constraint() v2alpha2.TopologyConstraint {
	return v2alpha2.TopologyConstraint{Topology: t.Topology, RequiredTopologyLevel: t.Required, PreferredTopologyLevel: t.Preferred}
}

// subGroups appends the members of t and all below them, parents before children.
func subGroups(t *Tree, parent *string, out []v2alpha2.SubGroup) []v2alpha2.SubGroup {
	for i := range t.Members {
		m := &t.Members[i]
		sg := v2alpha2.SubGroup{Name: m.Name, Parent: parent, MinMember: m.MinMember, MinSubGroup: m.MinSubGroup}
		if m.Topology != (Together{}) {
			sg.TopologyConstraint = new(m.Topology.constraint())
		}
		out = append(out, sg)
		out = subGroups(m, &m.Name, out)
	}
	return out
}

// gpus returns what the pod asks for in milli-GPU, on all devices together; 0 for an amount of memory.
func (g *Gang) gpus(p *Pod) int64 {
	if p.GPUs != nil {
		return int64(math.Round(*p.GPUs * 1000))
	}
	if g.PerPod == nil || g.BestEffort {
		return 0
	}
	return int64(math.Round(g.PerPod.GPUs*1000)) * max(1, g.PerPod.GPUDevices)
}

// shares says whether the pod shares devices rather than having them for itself.
func (g *Gang) shares(p *Pod) bool {
	return !g.BestEffort && (g.perDevice(p)%1000 != 0 || g.PerPod != nil && g.PerPod.GPUMemoryMiB > 0 && p.GPUs == nil)
}

// perDevice returns what the pod asks for of each device, in milli-GPU.
func (g *Gang) perDevice(p *Pod) int64 {
	if p.GPUs != nil {
		return int64(math.Round(*p.GPUs * 1000))
	}
	if g.PerPod == nil || g.BestEffort {
		return 0
	}
	return int64(math.Round(g.PerPod.GPUs * 1000))
}

// pod returns a pod as it is at the start, placed says on which shared devices.
func (g *Gang) pod(p *Pod, groups []string) *v1.Pod {
	o := &v1.Pod{ObjectMeta: meta(g.namespace(), p.Name, g.created())}
	o.OwnerReferences = []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: g.Name, UID: types.UID(g.Name), Controller: new(true)}}
	for k, v := range p.AffinityLabels { // order: a set
		o.Labels[k] = v
	}
	for k, v := range p.Annotations { // order: a set
		o.Annotations[k] = v
	}
	o.Annotations[keys.PodGroupAnnotation] = g.Name
	if p.Subgroup != "" {
		o.Labels[keys.SubGroupLabel] = p.Subgroup
	}
	if p.TaskPriority != nil {
		o.Labels[keys.TaskPriorityLabel] = strconv.Itoa(*p.TaskPriority)
	}
	o.Spec.SchedulerName = keys.SchedulerName
	g.ask(p, o)
	p.demand(o)
	for i := range p.Claims {
		o.Spec.ResourceClaims = append(o.Spec.ResourceClaims, v1.PodResourceClaim{Name: "claim-" + strconv.Itoa(i), ResourceClaimName: &p.Claims[i]})
	}
	o.Status.Phase = v1.PodPending
	switch p.Status { // a promise of an earlier run (Pipelined) is not part of what the API server knows
	case running, releasing, stuck:
		o.Spec.NodeName, o.Status.Phase = p.Node, v1.PodRunning
		enginetest.SetGroups(o, groups)
	case "Failed":
		o.Status.Phase = v1.PodFailed
	case "Succeeded":
		o.Status.Phase = v1.PodSucceeded
	}
	deleted := moment(start)
	switch p.Status {
	case stuck:
		deleted = moment(start.Add(-60 * stuckAfter))
		fallthrough
	case releasing:
		o.DeletionTimestamp = &deleted
	}
	return o
}

// ask writes down what the pod asks for.
func (g *Gang) ask(p *Pod, o *v1.Pod) {
	want := v1.ResourceList{}
	o.Spec.Containers = []v1.Container{{Name: "main", Resources: v1.ResourceRequirements{Requests: want}}}
	if g.BestEffort {
		return
	}
	if r := g.PerPod; r != nil {
		if r.CPUMilli > 0 {
			want[v1.ResourceCPU] = *resource.NewMilliQuantity(r.CPUMilli, resource.DecimalSI)
		}
		set(want, v1.ResourceMemory, r.MemoryBytes)
		if r.GPUMemoryMiB > 0 && p.GPUs == nil {
			o.Annotations[keys.GPUMemoryAnnotation] = strconv.FormatInt(r.GPUMemoryMiB, 10)
		}
		if r.GPUDevices > 0 {
			o.Annotations[keys.GPUFractionDevicesAnnotation] = strconv.FormatInt(r.GPUDevices, 10)
		}
	}
	if milli := g.perDevice(p); milli%1000 != 0 {
		o.Annotations[keys.GPUFractionAnnotation] = strconv.FormatFloat(float64(milli)/1000, 'f', -1, 64)
	} else {
		set(want, core.NvidiaGPU, milli/1000)
	}
	for name, x := range p.MIG { // order: named quantities
		if p.LegacyMIG {
			o.Annotations[name] = strconv.FormatInt(x, 10)
		} else {
			set(want, v1.ResourceName(name), x)
		}
	}
	if p.LegacyMIG && len(p.MIG) == 0 { // the file says that it asks by annotation, not for what
		o.Annotations[keys.MIGResourcePrefix+"1g.10gb"] = "1"
	}
	if strings.EqualFold(g.QOSClass, string(v1.PodQOSGuaranteed)) {
		o.Spec.Containers[0].Resources.Limits = want
	}
	o.Status.QOSClass = v1.PodQOSClass(g.QOSClass)
}

// demand writes down where the pod may run.
func (p *Pod) demand(o *v1.Pod) {
	a := &v1.Affinity{}
	if len(p.OnlyNodes) > 0 {
		a.NodeAffinity = &v1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{{
			MatchExpressions: []v1.NodeSelectorRequirement{{Key: nodeTypeLabel, Operator: v1.NodeSelectorOpIn, Values: p.OnlyNodes}},
		}}}}
	}
	term := func(key string) []v1.PodAffinityTerm {
		return []v1.PodAffinityTerm{{LabelSelector: &metav1.LabelSelector{MatchLabels: p.AffinityLabels}, TopologyKey: key}}
	}
	if p.AffinityKey != "" {
		a.PodAffinity = &v1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: term(p.AffinityKey)}
	}
	if p.AntiAffinityKey != "" {
		a.PodAntiAffinity = &v1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: term(p.AntiAffinityKey)}
	}
	if *a != (v1.Affinity{}) {
		o.Spec.Affinity = a
	}
}
