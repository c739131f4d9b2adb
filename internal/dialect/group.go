package dialect

import (
	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/dialect/kai"
	"github.com/muster-scheduler/muster/internal/dialect/upstream"
	"github.com/muster-scheduler/muster/internal/dialect/volcano"
)

// Group names the object that a gang of that key and UID is, of whichever face, and says nothing else of it: for patches and events. For a remnant it is the one
// that its pods were of, of whatever UID.
func Group(key cluster.Key, uid string) Object {
	if key.Remnant() {
		key, uid = key.Former(), ""
	}
	switch key.Face {
	case volcano.Face:
		return volcano.PodGroup(key, uid)
	case upstream.Face:
		return upstream.PodGroup(key, uid)
	case upstream.CompositeFace:
		return upstream.CompositePodGroup(key, uid)
	}
	return kai.PodGroup(key, uid)
}
