package dialect

import (
	"github.com/muster-scheduler/muster/api/kubebatch/v1alpha2"
	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/dialect/kai"
	"github.com/muster-scheduler/muster/internal/dialect/kubebatch"
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
	case kubebatch.Face:
		return kubebatch.PodGroup(key, uid)
	case upstream.Face:
		return upstream.PodGroup(key, uid)
	case upstream.CompositeFace:
		return upstream.CompositePodGroup(key, uid)
	}
	return kai.PodGroup(key, uid)
}

// Groups are objects of each kind that a gang of that key may be, to be read into: one, or of kube-batch's face two, the names of which are the same; none of a gang that is none by any object.
func Groups(key cluster.Key) []Object {
	first := Group(key, "")
	if key.Remnant() || key.Face != kubebatch.Face {
		return []Object{first}
	}
	if _, shadow := kubebatch.Shadow(key); shadow {
		return nil
	}
	second := &v1alpha2.PodGroup{}
	second.Namespace, second.Name = key.Namespace, key.Name
	return []Object{first, second}
}
