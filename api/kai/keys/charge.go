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

	// EventRoomAtRisk, on a PodGroup: pods of it hold room otherwise than the PodGroup reads, and may have to make way.
	EventRoomAtRisk = "RoomAtRisk"
)
