package keys

// Keys of Muster's own for decisions: those by which a pod is a gang of its own, without a PodGroup, and the label of gangs' records.
const (
	// OwnGangAnnotation, on a pod that is alone in its gang, is all that a PodGroup of it would say: JSON of the pod's UID, the PodGroup's
	// name, the UID of what it is named after, its node pool label and its spec. The podgrouper writes it, and nobody else may. It counts
	// for the pod of that UID alone, while the pod names no PodGroup or if it was bound as that gang; a PodGroup of that name that is there counts more.
	OwnGangAnnotation = "muster.dev/gang"

	// DecidedAnnotation, on a BindRequest and on a bound pod, is when it was decided on: RFC 3339 with fractions of a second. It comes with the
	// Binding, and nobody but Muster may write it. For a gang that has no PodGroup it is when it started.
	DecidedAnnotation = "muster.dev/decided"

	// GangRecordLabel, on a ConfigMap of the control plane's namespace, makes it the record of a decision about a gang. Its value is the name
	// of the shard that decided. The scheduler writes it, and nobody else may write there.
	GangRecordLabel = "muster.dev/gang-record"
)
