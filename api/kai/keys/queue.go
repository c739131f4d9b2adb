package keys

// ExtendedResourcesAnnotation on a Queue repeats spec.resources.extended: a JSON object from resource name to
// {"quota":…,"overQuotaWeight":…,"limit":…}. It is Muster's own. Where KAI's definition of the Queue is applied over
// Muster's, API servers drop the field without a word, and the limits it stated would be gone; the annotation survives.
//
// Written by the queue controller whenever the field is present; read by the scheduler where the field is absent. So
// removing the field alone changes nothing: to lift all its limits, set it to {}, which removes the annotation too.
const ExtendedResourcesAnnotation = "muster.dev/extended-resources"

// RemnantsAnnotation on a Queue is what pods hold that are charged to it and counted in the status of no PodGroup, because theirs is
// gone or in another queue now: JSON of the form of a PodGroup's status.resourcesStatus. The podgroup controller keeps it, and the
// queue controller adds it to the status.
const RemnantsAnnotation = "muster.dev/remnants"
