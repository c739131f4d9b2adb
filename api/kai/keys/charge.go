package keys

// Annotations of Muster's own by which a charge travels with the pod.
const (
	// ChargedAnnotation says to whose account a pod holds its room: QUEUE/PODGROUP, or QUEUE/PODGROUP/SUBGROUP, as it was decided.
	// The scheduler writes it on each BindRequest; the binder repeats it on the pod in the very write that binds it, and nobody may
	// change it afterwards. While the pod is there it counts more than all that labels and PodGroups say.
	ChargedAnnotation = "muster.dev/charged-to"

	// ChargedAsAnnotation, beside it, is ChargedFixed if the pod was placed as non-preemptible, and so within its queue's quota.
	ChargedAsAnnotation = "muster.dev/charged-as"

	// ChargedFixed is the only value of ChargedAsAnnotation.
	ChargedFixed = "non-preemptible"

	// RoomAtRiskCondition, on a PodGroup, says that pods of it may lose their room although the PodGroup reads otherwise, or are
	// charged to another queue than it names. It is ours, not KAI's.
	RoomAtRiskCondition = "RoomAtRisk"

	// ReasonUnknownSubgroup is RoomAtRiskCondition's reason when running pods are of no subgroup of the PodGroup.
	ReasonUnknownSubgroup = "UnknownSubgroup"

	// ReasonNonPreemptibleOverQuota is its reason when the PodGroup calls itself non-preemptible and its queue holds more for such
	// work than its quota.
	ReasonNonPreemptibleOverQuota = "NonPreemptibleOverQuota"

	// ReasonChargedElsewhere is its reason when pods run that were bound for another queue.
	ReasonChargedElsewhere = "ChargedElsewhere"
)
