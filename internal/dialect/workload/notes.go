package workload

import "github.com/muster-scheduler/muster/api/kai/keys"

// schedulers says whether an annotation is one that the scheduler alone writes on PodGroups.
func schedulers(annotation string) bool {
	switch annotation {
	case keys.StaleSinceAnnotation, keys.LastStartAnnotation, keys.LastEvictionAnnotation:
		return true
	}
	return false
}
