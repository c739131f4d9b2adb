package keys

// Annotations of Muster's own by which a charge travels with the pod.
const (
	// ChargedAnnotation says to whose account a pod holds its room: QUEUE/PODGROUP, or QUEUE/PODGROUP/SUBGROUP, as it was decided.
	// The scheduler writes it on each BindRequest; the binder repeats it on the pod in the very write that binds it, and nobody may
	// change it afterwards. While the pod is there it counts more than all that labels and PodGroups say.
	ChargedAnnotation = "muster.dev/charged-to"

	// ChargedAsAnnotation, beside it, says as what it was decided: words with commas between them, each at most once.
	ChargedAsAnnotation = "muster.dev/charged-as"

	// ChargedFixed is the word of a pod that was placed as non-preemptible, and so within its queue's quota.
	ChargedFixed = "non-preemptible"

	// ChargedShare begins the word for shared GPUs: share=2x0.5 is half of each of two, share=1x4096Mi so much memory of one.
	// What the pod's own annotations ask for may have been changed between the decision and the Binding.
	ChargedShare = "share="

	// EventRoomAtRisk, on a PodGroup: pods of it hold room otherwise than the PodGroup reads, and may have to make way.
	EventRoomAtRisk = "RoomAtRisk"
)
