package kueue

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/muster-scheduler/muster/api/kai/keys"
)

// clusterQueues tells what no Queue says.
func (p *planner) clusterQueues() {
	for i := range p.in.ClusterQueues {
		q := &p.in.ClusterQueues[i]
		about := called("ClusterQueue", "", q.Name)
		lose := func(field, rule, instead string) { p.lose(about, "spec."+field, rule, instead) }
		p.groups(about, q.Spec.ResourceGroups)
		p.lending(about, q.Spec.ResourceGroups)
		if several(q.Spec.ResourceGroups) && q.Spec.FlavorFungibility != nil {
			for _, f := range []struct{ name, value string }{
				{"whenCanBorrow", q.Spec.FlavorFungibility.WhenCanBorrow}, {"whenCanPreempt", q.Spec.FlavorFungibility.WhenCanPreempt}, {"preference", q.Spec.FlavorFungibility.Preference},
			} {
				if f.value != "" {
					lose("flavorFungibility."+f.name, "is "+brief(f.value)+": a Queue has no flavors to try one after the other; pods go to any node that they may go to", "preferred node affinity in the workloads")
				}
			}
		}
		if q.Spec.QueueingStrategy == "StrictFIFO" {
			lose("queueingStrategy", "is StrictFIFO: a gang that waits does not keep later ones of its queue from starting", "a PriorityClass for what must not be overtaken: higher priorities are served first")
		}
		switch s := q.Spec.NamespaceSelector; {
		case s == nil:
			lose("namespaceSelector", "is not set, so that Kueue admits nothing: a Queue can be named from every namespace", "authorize queues: the verb use on the Queue says who may name it")
		case len(s.MatchLabels)+len(s.MatchExpressions) > 0:
			lose("namespaceSelector", "a Queue can be named from every namespace", "authorize queues: the verb use on the Queue says who may name it")
		}
		if c := q.Spec.Preemption; c != nil {
			if c.WithinClusterQueue == "LowerOrNewerEqualPriority" {
				lose("preemption.withinClusterQueue", "is LowerOrNewerEqualPriority: work of equal priority is not preempted within a queue, however new", "a higher PriorityClass for what is to go first")
			}
			if c.ReclaimWithinCohort == "LowerPriority" {
				lose("preemption.reclaimWithinCohort", "is LowerPriority: a queue takes back its own whatever the priority of who has it", "the label "+keys.PreemptibilityLabel+"=non-preemptible on what must stay; it stays within quota then")
			}
			if b := c.BorrowWithinCohort; b != nil {
				if b.Policy != "" && b.Policy != "Never" {
					lose("preemption.borrowWithinCohort.policy", "is "+brief(b.Policy)+": who borrows takes from others up to the fair share, by weight and not by priority of work", "priority and weight of the Queues")
				}
				if b.MaxPriorityThreshold != nil {
					lose("preemption.borrowWithinCohort.maxPriorityThreshold", fmt.Sprintf("is %d: there is no such bound", *b.MaxPriorityThreshold), "the label "+keys.PreemptibilityLabel+"=non-preemptible on what must stay")
				}
			}
		}
		checks := slices.Clone(q.Spec.AdmissionChecks)
		if len(checks) > 0 {
			p.checks(about, "spec.admissionChecks", checks)
		}
		if s := q.Spec.AdmissionChecksStrategy; s != nil {
			for j := range s.AdmissionChecks {
				c := &s.AdmissionChecks[j]
				p.checks(about, fmt.Sprintf("spec.admissionChecksStrategy.admissionChecks[%d].name", j), []string{c.Name})
				if len(c.OnFlavors) > 0 {
					lose(fmt.Sprintf("admissionChecksStrategy.admissionChecks[%d].onFlavors", j), "a Queue has no flavors", "")
				}
			}
		}
		if s := q.Spec.AdmissionScope; s != nil && s.AdmissionMode != "" && s.AdmissionMode != "NoAdmissionFairSharing" {
			lose("admissionScope.admissionMode", "is "+brief(s.AdmissionMode)+": past usage does not order the work of one queue", "time-based shares between Queues, one for each LocalQueue")
		}
		if len(q.Spec.ConcurrentAdmissionPolicy) > 0 {
			lose("concurrentAdmissionPolicy", "a gang is placed once, on nodes of any kind that it may go to", "preferred node affinity in the workloads")
		}
		if len(q.Spec.ExcludeResourcePrefixes) > 0 {
			lose("excludeResourcePrefixes", "limits of what Kueue does not count are -1 here and in the Queues above, of resources that some quota is of", "")
		}
		p.uncovered(q, about)
	}
	for i := range p.in.Cohorts {
		c := &p.in.Cohorts[i]
		about := called("Cohort", "", c.Name)
		p.groups(about, c.Spec.ResourceGroups)
		p.lending(about, c.Spec.ResourceGroups)
	}
}

func (p *planner) checks(about, field string, names []string) {
	p.lose(about, field, brief(strings.Join(names, ", "))+": nothing is asked before work starts", "for autoscaling nothing: pods that wait are what an autoscaler looks at; for others an admission policy, or schedulingGates that the check takes off")
}

// uncovered tells of CPU and memory that a ClusterQueue has no quota of, which nearly all work asks for.
func (p *planner) uncovered(q *ClusterQueue, about string) {
	var missing []string
	for _, name := range []string{"cpu", "memory"} {
		covered := false
		for g := range q.Spec.ResourceGroups {
			for _, f := range q.Spec.ResourceGroups[g].Flavors {
				covered = covered || slices.ContainsFunc(f.Resources, func(r ResourceQuota) bool { return r.Name == name })
			}
		}
		if !covered && !p.excluded(&node{queue: q}, name) {
			missing = append(missing, name)
		}
	}
	if len(missing) > 0 {
		p.lose(about, "spec.resourceGroups[].coveredResources[]", "has not "+strings.Join(missing, " and ")+", so that Kueue admits nothing that asks for it, unless its configuration excludes it; the Queue's limit is 0",
			"limit -1, here and in the Queues above, if Kueue's configuration excludes it: read it with the other objects")
	}
}

// several says that some resource comes in several flavors.
func several(groups []ResourceGroup) bool {
	return slices.ContainsFunc(groups, func(g ResourceGroup) bool { return len(g.Flavors) > 1 })
}

// groups tells of flavors that were added up, and of numbers of pods.
func (p *planner) groups(about string, groups []ResourceGroup) {
	pods := false
	for g := range groups {
		var names []string
		for _, f := range groups[g].Flavors {
			names = append(names, f.Name)
			pods = pods || slices.ContainsFunc(f.Resources, func(r ResourceQuota) bool { return r.Name == "pods" })
		}
		if len(names) > 1 {
			p.lose(about, fmt.Sprintf("spec.resourceGroups[%d].flavors[].name", g), "quotas and limits are those of "+brief(strings.Join(names, ", "))+" together: a Queue counts a resource, on whatever node it is",
				"a shard and a Queue for each flavor, or node selectors in the workloads")
		}
	}
	if pods {
		p.lose(about, "spec.resourceGroups[].flavors[].resources[].name", "pods: a Queue does not count pods", "a ResourceQuota with pods in the namespaces")
	}
}

// lending tells of what would be kept back.
func (p *planner) lending(about string, groups []ResourceGroup) {
	for g := range groups {
		for f, flavor := range groups[g].Flavors {
			for r, quota := range flavor.Resources {
				if quota.LendingLimit == nil {
					continue
				}
				p.lose(about, fmt.Sprintf("spec.resourceGroups[%d].flavors[%d].resources[%d].lendingLimit", g, f, r),
					fmt.Sprintf("is %s of %s: the limits of the others leave it to each alone; several together may hold what is not lent, until its queue wants it", brief(string(*quota.LendingLimit)), brief(quota.Name)),
					"lower limits of the others, by what is to stay idle")
			}
		}
	}
}

// flavors tells what Kueue writes into pods and Muster does not.
func (p *planner) flavors() {
	known := map[string]bool{}
	for i := range p.in.ResourceFlavors {
		f := &p.in.ResourceFlavors[i]
		about := called("ResourceFlavor", "", f.Name)
		if known[f.Name] {
			p.refuse(about, "metadata.name", "a second one of that name was read", "leave one out")
			continue
		}
		known[f.Name] = true
		if len(f.Spec.NodeLabels) > 0 {
			var pairs []string
			for _, k := range slices.Sorted(maps.Keys(f.Spec.NodeLabels)) {
				pairs = append(pairs, k+"="+f.Spec.NodeLabels[k])
			}
			p.lose(about, "spec.nodeLabels", brief(strings.Join(pairs, ","))+": Kueue gives admitted pods this node selector; Muster adds none", "nodeSelector in the workloads, or a shard whose node pool these nodes are")
		}
		if len(f.Spec.NodeTaints) > 0 {
			p.lose(about, "spec.nodeTaints", "taints are those of the nodes: a pod that does not tolerate them goes elsewhere, and is counted all the same", "nothing, if the nodes have them")
		}
		if len(f.Spec.Tolerations) > 0 {
			p.lose(about, "spec.tolerations", "Kueue gives them to admitted pods; Muster adds none", "tolerations in the workloads")
		}
		if f.Spec.TopologyName != "" {
			p.lose(about, "spec.topologyName", brief(f.Spec.TopologyName)+": Kueue's Topology is not read", "a Topology of kai.scheduler/v1alpha1 with the same node labels, and the annotation "+keys.TopologyAnnotation+" on workloads")
		}
		if len(f.Spec.ResourceWeights) > 0 {
			p.lose(about, "spec.resourceWeights", "resources do not influence each other in the division", "")
		}
	}
	missing := map[string]bool{}
	tell := func(about string, groups []ResourceGroup) {
		for g := range groups {
			for f, flavor := range groups[g].Flavors {
				if !known[flavor.Name] && flavor.Name != "" && !missing[flavor.Name] {
					missing[flavor.Name] = true
					p.lose(about, fmt.Sprintf("spec.resourceGroups[%d].flavors[%d].name", g, f), "there is no ResourceFlavor "+brief(flavor.Name)+": Kueue admits nothing then, and a Queue does", "")
				}
			}
		}
	}
	for i := range p.in.ClusterQueues {
		tell(called("ClusterQueue", "", p.in.ClusterQueues[i].Name), p.in.ClusterQueues[i].Spec.ResourceGroups)
	}
}

// localQueues are labels of workloads.
func (p *planner) localQueues() {
	queues, seen := map[string]bool{}, map[[2]string]bool{}
	for i := range p.in.ClusterQueues {
		queues[p.in.ClusterQueues[i].Name] = true
	}
	for i := range p.in.LocalQueues {
		q := &p.in.LocalQueues[i]
		about := called("LocalQueue", q.Namespace, q.Name)
		key := [2]string{q.Namespace, q.Name}
		if seen[key] {
			p.refuse(about, "metadata.name", "a second one of that name was read", "leave one out")
			continue
		}
		seen[key] = true
		if q.Spec.ClusterQueue == "" || !queues[q.Spec.ClusterQueue] {
			p.lose(about, "spec.clusterQueue", fmt.Sprintf("is %q, and there is no such ClusterQueue: its work waits, and no label takes its place", brief(q.Spec.ClusterQueue)), "create a Queue for it")
		} else {
			p.out.Labels = append(p.out.Labels, Label{Namespace: brief(q.Namespace), Kueue: QueueLabel + "=" + brief(q.Name), Muster: keys.QueueLabel + "=" + q.Spec.ClusterQueue})
		}
		if q.Namespace == "" {
			p.lose(about, "metadata.namespace", "is not in what was read", "add the namespace that it is applied to")
		}
		if q.Name == "default" {
			p.lose(about, "metadata.name", "is default, which Kueue gives to work of the namespace without a label; work without Muster's label goes to "+keys.DefaultQueue, "the label on the workloads, or an admission policy that adds it")
		}
		if q.Spec.StopPolicy != "" && q.Spec.StopPolicy != "None" {
			p.lose(about, "spec.stopPolicy", "is "+brief(q.Spec.StopPolicy)+": a Queue is open to all who may name it", "authorize queues, and take the verb use from the namespace's users; or hold the workloads: suspend, or schedulingGates")
		}
		if q.Spec.FairSharing != nil && q.Spec.FairSharing.Weight != nil {
			p.lose(about, "spec.fairSharing.weight", "LocalQueues of one ClusterQueue share a Queue, and have no shares in it", "a Queue below it for each, with overQuotaWeight "+brief(string(*q.Spec.FairSharing.Weight)))
		}
		if len(q.Spec.WallTimePolicy) > 0 {
			p.lose(about, "spec.wallTimePolicy", "there is no budget of hours", "time-based shares")
		}
	}
}

// settings tells of Kueue's own configuration.
func (p *planner) settings() {
	c := p.in.Config
	if c == nil {
		return
	}
	lose := func(field, rule, instead string) { p.lose("Kueue's configuration", field, rule, instead) }
	if len(c.Resources.ExcludeResourcePrefixes) > 0 {
		lose("resources.excludeResourcePrefixes", "limits of what Kueue does not count are -1, of resources that some quota is of", "")
	}
	if c.Resources.QuotaCheckStrategy == ignoreUndeclared {
		lose("resources.quotaCheckStrategy", "is "+ignoreUndeclared+": limits of what a ClusterQueue has no quota of are -1, in the Queues above too", "")
	}
	if len(c.Resources.Transformations) > 0 {
		lose("resources.transformations", "a Queue counts what pods ask for, and nothing made of it", "quotas of the resources that pods name")
	}
	if len(c.Resources.DeviceClassMappings) > 0 {
		lose("resources.deviceClassMappings", "claims for GPUs count as GPUs; other device classes are not counted", "")
	}
	if len(c.AdmissionFairSharing) > 0 {
		lose("admissionFairSharing", "past usage of LocalQueues does not order the work of one queue", "time-based shares between Queues")
	}
	if len(c.WaitForPodsReady) > 0 {
		lose("waitForPodsReady", "a gang starts whole or not at all; whether its pods become ready is not looked at", "stalenessGracePeriod, after which a gang below its minimum is evicted")
	}
	if c.ManageJobsWithoutQueueName {
		lose("manageJobsWithoutQueueName", "work is Muster's if its pods name the scheduler kai-scheduler", "an admission policy that sets spec.schedulerName")
	}
}
