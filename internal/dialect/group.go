package dialect

import (
	"strings"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/dialect/kai"
	"github.com/muster-scheduler/muster/internal/dialect/volcano"
)

// Group names the object that a gang of that key and UID is, of whichever face, and says nothing else of it: for patches and events. For a remnant it is the one
// that its pods were of, of whatever UID.
func Group(key cluster.Key, uid string) Object {
	face := key.Face
	if key.Remnant() {
		_, queue, _ := strings.Cut(key.Name, "@")
		face, _ = cluster.SplitQueue(queue)
	}
	if face != volcano.Face {
		return kai.PodGroup(key, uid)
	}
	if key.Remnant() {
		key.Namespace, key.Name = key.Former()
		uid = ""
	}
	return volcano.PodGroup(key, uid)
}
