package keys

// ScalingShapeAnnotation names, on a pod that shows demand to a cluster autoscaler, the constraints it repeats: pods with
// equal constraints have equal names. It is Muster's own. Such a pod also has ScalingPodSourceLabel as an annotation,
// because names of pods can be longer than labels.
const ScalingShapeAnnotation = "muster.dev/scaling-shape"
