package kueue

// Field is one field of Kueue's objects, and what becomes of it.
type Field struct {
	Kind string
	// Path has [] for each list.
	Path string
	// Becomes says what a Queue, a PriorityClass or a label has of it.
	Becomes string
	// Lost says what is not kept; "" for nothing. Where such a field is set so that it matters, a Plan has a loss that names it.
	Lost string
}

// Fields are all fields of the kinds that are read, of both versions, but for metadata and status.
func Fields() []Field {
	const (
		queue, cohort, local, flavor, class = "ClusterQueue", "Cohort", "LocalQueue", "ResourceFlavor", "WorkloadPriorityClass"
		groups                              = "spec.resourceGroups[]."
		quotas                              = groups + "flavors[].resources[]."
	)
	return []Field{
		{queue, "spec.cohortName", "`parentQueue`: the Queue that the cohort becomes", ""},
		{queue, "spec.cohort", "the same, of v1beta1", ""},
		{queue, groups + "coveredResources[]", "nothing: the quotas say it. What has no quota has limit 0", "a resource that no ClusterQueue covers is not limited"},
		{queue, groups + "flavors[].name", "quotas of flavors are added up", "which flavor: a Queue counts a resource on whatever node"},
		{queue, quotas + "name", "`cpu`, `memory`, `gpu` (NVIDIA's, AMD's and slices together), or below `extended`", "`pods`"},
		{queue, quotas + "nominalQuota", "`quota`", "what is finer than a Queue's numbers, and beyond any cluster"},
		{queue, quotas + "borrowingLimit", "`limit`", ""},
		{queue, quotas + "lendingLimit", "`limit` of the others", "what it keeps back from several others at once"},
		{queue, "spec.queueingStrategy", "`BestEffortFIFO` is how Queues work", "`StrictFIFO`"},
		{queue, "spec.namespaceSelector", "`{}` is how Queues work", "any other, and none: every namespace may name a Queue unless [queues are authorized](../concepts/admission.md)"},
		{queue, "spec.flavorFungibility.whenCanBorrow", "nothing where there is one flavor", "the order of flavors"},
		{queue, "spec.flavorFungibility.whenCanPreempt", "nothing where there is one flavor", "the order of flavors"},
		{queue, "spec.flavorFungibility.preference", "nothing where there is one flavor", "the order of flavors"},
		{queue, "spec.preemption.reclaimWithinCohort", "`Any` is how Queues work; `reclaimMinRuntime` of ten years on the top of a tree in which all say `Never`", "`LowerPriority`; `Never` of some only"},
		{queue, "spec.preemption.borrowWithinCohort.policy", "nothing", "shares are by weight, whatever the priority of work"},
		{queue, "spec.preemption.borrowWithinCohort.maxPriorityThreshold", "nothing", "the bound"},
		{queue, "spec.preemption.withinClusterQueue", "`LowerPriority` is how Queues work; `Never` is `preemptMinRuntime` of ten years", "`LowerOrNewerEqualPriority`; of `Never` the pods above a gang's minimum"},
		{queue, "spec.admissionChecks[]", "nothing", "nothing is asked before work starts"},
		{queue, "spec.admissionChecksStrategy.admissionChecks[].name", "nothing", "nothing is asked before work starts"},
		{queue, "spec.admissionChecksStrategy.admissionChecks[].onFlavors[]", "nothing", "as the check"},
		{queue, "spec.stopPolicy", "limits 0; the loss says what they would be", "`HoldAndDrain` does not end what runs"},
		{queue, "spec.fairSharing.weight", "`overQuotaWeight`, 1 where it is not set; 0 is weight 1 and priority 1, after all others", "what is below a thousandth"},
		{queue, "spec.admissionScope.admissionMode", "nothing", "past usage orders nothing within a Queue; [time-based shares](../concepts/time-based-shares.md) do between Queues"},
		{queue, "spec.concurrentAdmissionPolicy", "nothing", "moving to a better flavor"},
		{queue, "spec.excludeResourcePrefixes[]", "`limit` -1 of these, in the Queues above too", "limits of the Queues above"},

		{cohort, "spec.parentName", "`parentQueue`", ""},
		{cohort, "spec.parent", "the same, of v1beta1", ""},
		{cohort, groups + "coveredResources[]", "nothing: the quotas say it", ""},
		{cohort, groups + "flavors[].name", "quotas of flavors are added up", "which flavor"},
		{cohort, quotas + "name", "as a ClusterQueue's", "`pods`"},
		{cohort, quotas + "nominalQuota", "`quota`, to which those of all below it are added: what is left over is divided by weight", ""},
		{cohort, quotas + "borrowingLimit", "`limit`", ""},
		{cohort, quotas + "lendingLimit", "`limit` of the others", "what it keeps back from several others at once"},
		{cohort, "spec.fairSharing.weight", "`overQuotaWeight`, as a ClusterQueue's", "what is below a thousandth"},

		{local, "spec.clusterQueue", "the label `kai.scheduler/queue` on workloads, with the name of the ClusterQueue", "the work of a LocalQueue without a ClusterQueue"},
		{local, "spec.stopPolicy", "nothing", "a Queue is open to all who may name it"},
		{local, "spec.fairSharing.weight", "nothing", "LocalQueues of one ClusterQueue share its Queue"},
		{local, "spec.wallTimePolicy", "nothing", "the budget of hours"},

		{flavor, "spec.nodeLabels", "nothing", "the node selector that Kueue gives to pods"},
		{flavor, "spec.nodeTaints[]", "nothing: the nodes' own taints count", "that work without the toleration is not counted"},
		{flavor, "spec.tolerations[]", "nothing", "the tolerations that Kueue gives to pods"},
		{flavor, "spec.topologyName", "nothing", "Kueue's Topology; there is [Muster's](../concepts/topology.md)"},
		{flavor, "spec.resourceWeights", "nothing", "resources do not influence each other in the division"},

		{class, "value", "`value` of a PriorityClass of that name, which the label `priorityClassName` on workloads names", "from 100 on work is not preempted unless a label says so"},
		{class, "description", "`description`", ""},
	}
}
