package kai

import (
	"strings"

	"github.com/muster-scheduler/muster/api/kai/keys"
	"github.com/muster-scheduler/muster/internal/cluster"
)

// ReadCharged returns the record that the annotations of an object of the namespace are; the zero value for none, and for a
// text that is none. The names of queues and PodGroups have no slash; what follows the second is the subgroup, whatever it is.
func ReadCharged(namespace string, annotations map[string]string) cluster.Charged {
	queue, rest, ok := strings.Cut(annotations[keys.ChargedAnnotation], "/")
	group, set, _ := strings.Cut(rest, "/")
	if !ok || queue == "" || group == "" {
		return cluster.Charged{}
	}
	return cluster.Charged{Queue: queue, Gang: GangKey(namespace, group), Set: set, Fixed: annotations[keys.ChargedAsAnnotation] == keys.ChargedFixed}
}

// WriteCharged is the inverse of ReadCharged, but for the namespace; nil for the zero value.
func WriteCharged(c cluster.Charged) map[string]string {
	if c.Queue == "" {
		return nil
	}
	out := map[string]string{keys.ChargedAnnotation: c.Queue + "/" + c.Gang.Name}
	if c.Set != "" {
		out[keys.ChargedAnnotation] += "/" + c.Set
	}
	if c.Fixed {
		out[keys.ChargedAsAnnotation] = keys.ChargedFixed
	}
	return out
}
