package enginetest

import (
	"strconv"

	v1 "k8s.io/api/core/v1"
	schedulingv1alpha3 "k8s.io/api/scheduling/v1alpha3"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"

	"github.com/muster-scheduler/muster/api/kai/keys"
	"github.com/muster-scheduler/muster/api/scheduling/v2alpha2"
	"github.com/muster-scheduler/muster/internal/dialect/kai"
	"github.com/muster-scheduler/muster/internal/dialect/upstream"
)

// Gangs of Kubernetes' own are stated as those of KAI's, with the word upstream. The queue is a label of the group and of its pods, sets are its annotation of subgroups. Words of such
// gangs alone: basic (the policy), all (disrupted all together), layout=LABEL (a topology constraint), never (preemptionPolicy), unlabelled (the group names no queue), in=COMPOSITE (its parent), ofgroup (its claims are the group's).

// inUpstreams returns the objects of a gang statement as a user of Kubernetes' own groups would have made them.
func inUpstreams(s *statement, objects []Object) []Object {
	queue := s.text("queue", "")
	var pg *schedulingv1beta1.PodGroup
	var pods []*v1.Pod
	for i, o := range objects {
		switch o := o.(type) {
		case *v2alpha2.PodGroup:
			pg = upstreamGroup(s, o)
			objects[i] = pg
		case *v1.Pod:
			intoUpstream(o, o.Annotations[kai.PodGroupAnnotation], queue)
			pods = append(pods, o)
		}
	}
	if s.flag("ofgroup") && pg != nil && len(pods) > 0 {
		for _, c := range pods[0].Spec.ResourceClaims {
			pg.Spec.ResourceClaims = append(pg.Spec.ResourceClaims, schedulingv1beta1.PodGroupResourceClaim{Name: c.Name, ResourceClaimName: c.ResourceClaimName, ResourceClaimTemplateName: c.ResourceClaimTemplateName})
		}
	}
	return objects
}

func upstreamGroup(s *statement, o *v2alpha2.PodGroup) *schedulingv1beta1.PodGroup {
	pg := &schedulingv1beta1.PodGroup{ObjectMeta: o.ObjectMeta}
	pg.Labels, pg.Annotations = map[string]string{}, map[string]string{}
	pg.Spec.PriorityClassName = o.Spec.PriorityClassName
	if o.Spec.Queue != "" && !s.flag("unlabelled") {
		pg.Labels[keys.QueueLabel] = o.Spec.Queue
	}
	if o.Spec.Preemptibility != "" {
		pg.Labels[keys.PreemptibilityLabel] = string(o.Spec.Preemptibility)
	}
	least, sum, sets := int32(1), int32(0), ""
	for _, set := range o.Spec.SubGroups {
		if set.Parent != nil || set.MinMember == nil {
			s.bad("the sets of a gang of Kubernetes' own are its subgroups: they have no parents")
			return pg
		}
		if sets != "" {
			sets += ","
		}
		sets += set.Name + "=" + strconv.Itoa(int(*set.MinMember))
		sum += *set.MinMember
	}
	switch {
	case sets != "":
		pg.Annotations[keys.SubgroupsAnnotation], least = sets, sum
		if o.Spec.MinSubGroup != nil { // min= beside sets
			least = *o.Spec.MinSubGroup
		}
	case o.Spec.MinMember != nil:
		least = *o.Spec.MinMember
	}
	if s.flag("basic") {
		pg.Spec.SchedulingPolicy.Basic = &schedulingv1beta1.BasicSchedulingPolicy{}
	} else {
		pg.Spec.SchedulingPolicy.Gang = &schedulingv1beta1.GangSchedulingPolicy{MinCount: least}
	}
	if s.flag("all") {
		pg.Spec.DisruptionMode = &schedulingv1beta1.DisruptionMode{All: &schedulingv1beta1.AllDisruptionMode{}}
	}
	if s.flag("never") {
		pg.Spec.PreemptionPolicy = new(schedulingv1beta1.PreemptNever)
	}
	if key := s.text("layout", ""); key != "" {
		pg.Spec.SchedulingConstraints = &schedulingv1beta1.PodGroupSchedulingConstraints{Topology: []schedulingv1beta1.TopologyConstraint{{Key: key}}}
	}
	pg.Spec.ParentCompositePodGroupName = parent(s)
	return pg
}

// parent is what in= names, nil for nothing.
func parent(s *statement) *string {
	if name := s.text("in", ""); name != "" {
		return &name
	}
	return nil
}

// composite makes a CompositePodGroup: "composite NAME [in=PARENT] groups=MINIMUM|basic [queue=NAME] [layout=LABEL] [priority=NUMBER|CLASS] [all] [never] [preemptible|nonpreemptible]".
func (c *compiler) composite(s *statement) []Object {
	made := &v2alpha2.PodGroup{} // for the words that all gangs have
	made.CreationTimestamp = c.created(s)
	out, least := c.podGroupSpec(s, made), s.int("groups", 1)
	o := &schedulingv1alpha3.CompositePodGroup{ObjectMeta: made.ObjectMeta}
	o.Namespace, o.Name = splitName(s.name())
	o.Labels = map[string]string{}
	if made.Spec.Queue != "" {
		o.Labels[keys.QueueLabel] = made.Spec.Queue
	}
	if made.Spec.Preemptibility != "" {
		o.Labels[keys.PreemptibilityLabel] = string(made.Spec.Preemptibility)
	}
	o.Spec.PriorityClassName, o.Spec.ParentCompositePodGroupName = made.Spec.PriorityClassName, parent(s)
	if s.flag("basic") {
		o.Spec.SchedulingPolicy.Basic = &schedulingv1alpha3.CompositeBasicSchedulingPolicy{}
	} else {
		o.Spec.SchedulingPolicy.Gang = &schedulingv1alpha3.CompositeGangSchedulingPolicy{MinGroupCount: int32(least)}
	}
	if s.flag("all") {
		o.Spec.DisruptionMode = &schedulingv1alpha3.CompositeDisruptionMode{All: &schedulingv1alpha3.AllCompositeDisruptionMode{}}
	}
	if s.flag("never") {
		o.Spec.PreemptionPolicy = new(schedulingv1alpha3.PreemptNever)
	}
	if key := s.text("layout", ""); key != "" {
		o.Spec.SchedulingConstraints = &schedulingv1alpha3.CompositePodGroupSchedulingConstraints{Topology: []schedulingv1alpha3.TopologyConstraint{{Key: key}}}
	}
	return append(out, o)
}

// intoUpstream has a pod name a group in spec.schedulingGroup, and not by KAI's annotation, and its queue by the label.
func intoUpstream(p *v1.Pod, name, queue string) {
	if p.Annotations[kai.PodGroupAnnotation] == name {
		delete(p.Annotations, kai.PodGroupAnnotation)
	}
	p.Spec.SchedulingGroup = &v1.PodSchedulingGroup{PodGroupName: &name}
	if queue != "" {
		p.Labels[keys.QueueLabel] = queue
	}
}

// upstreamFields are the fields of Kubernetes' own groups that decide something.
func upstreamFields() []field {
	const kind = "PodGroup.scheduling.k8s.io."
	const composite = "CompositePodGroup.scheduling.k8s.io."
	type group = schedulingv1beta1.PodGroup
	type tree = schedulingv1alpha3.CompositePodGroup
	return []field{
		on(kind+"spec.schedulingPolicy.gang.minCount", func(g *group) {
			if g.Spec.SchedulingPolicy.Gang != nil {
				g.Spec.SchedulingPolicy.Gang.MinCount = 1
			}
		}),
		on(kind+"spec.schedulingPolicy.basic", func(g *group) { g.Spec.SchedulingPolicy.Basic = nil }),
		on(kind+"spec.disruptionMode.all", func(g *group) { g.Spec.DisruptionMode = nil }),
		on(kind+"spec.schedulingConstraints.topology[].key", func(g *group) { g.Spec.SchedulingConstraints = nil }),
		on(kind+"spec.priorityClassName", func(g *group) { g.Spec.PriorityClassName = "" }),
		on(kind+"spec.priority", func(g *group) { g.Spec.Priority = nil }),
		on(kind+"spec.preemptionPolicy", func(g *group) { g.Spec.PreemptionPolicy = nil }),
		on(kind+"spec.parentCompositePodGroupName", func(g *group) { g.Spec.ParentCompositePodGroupName = nil }),
		on(composite+"spec.parentCompositePodGroupName", func(c *tree) { c.Spec.ParentCompositePodGroupName = nil }),
		on(composite+"spec.schedulingPolicy.gang.minGroupCount", func(c *tree) {
			if c.Spec.SchedulingPolicy.Gang != nil {
				c.Spec.SchedulingPolicy.Gang.MinGroupCount = 1
			}
		}),
		on(composite+"spec.schedulingPolicy.basic", func(c *tree) { c.Spec.SchedulingPolicy.Basic = nil }),
		on(composite+"spec.schedulingConstraints.topology[].key", func(c *tree) { c.Spec.SchedulingConstraints = nil }),
		on(composite+"spec.disruptionMode.all", func(c *tree) { c.Spec.DisruptionMode = nil }),
		on(composite+"spec.priorityClassName", func(c *tree) { c.Spec.PriorityClassName = "" }),
		on(composite+"spec.priority", func(c *tree) { c.Spec.Priority = nil }),
		on(composite+"spec.preemptionPolicy", func(c *tree) { c.Spec.PreemptionPolicy = nil }),
		on(composite+"metadata.labels["+keys.QueueLabel+"]", func(c *tree) { delete(c.Labels, keys.QueueLabel) }),
		on(composite+"metadata.labels["+keys.PreemptibilityLabel+"]", func(c *tree) { delete(c.Labels, keys.PreemptibilityLabel) }),
		on(kind+"metadata.labels["+keys.QueueLabel+"]", func(g *group) { delete(g.Labels, keys.QueueLabel) }),
		on(kind+"metadata.labels["+keys.PreemptibilityLabel+"]", func(g *group) { delete(g.Labels, keys.PreemptibilityLabel) }),
		on(kind+"metadata.annotations["+keys.SubgroupsAnnotation+"]", func(g *group) { delete(g.Annotations, keys.SubgroupsAnnotation) }),
		on("Pod.spec.schedulingGroup", func(p *v1.Pod) { p.Spec.SchedulingGroup = nil }),
		on("Pod.metadata.labels["+keys.QueueLabel+"], of a group", func(p *v1.Pod) {
			if p.Spec.SchedulingGroup != nil {
				delete(p.Labels, keys.QueueLabel)
			}
		}),
	}
}

// upstreamOf is the name of the group of Kubernetes' own that a pod names, "" for none.
func upstreamOf(p *v1.Pod) string { return upstream.Membership(p).Name }
