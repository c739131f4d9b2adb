package filters

import (
	"slices"

	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/engine/policy"
)

// Host is the plugin whose name opens the filters as well: KAI's `predicates` contains its inter-pod affinity and volume
// checks, so a profile that lists `predicates` has asked for them.
const Host = "predicates"

// Options are the settings of the process that bear on the filters. The zero value is KAI's defaults.
type Options struct {
	// StorageCapacity takes the free capacity that CSI drivers publish into account when a volume is still to be made
	// (--schedule-csi-storage). Without it, every node that the storage class allows is taken to have room.
	StorageCapacity bool
}

// Register returns a copy of r in which Host opens the filters too, after whatever it opened before. The plugin takes
// the arguments it took before.
func Register(r engine.Registry, o Options) engine.Registry {
	c := r.Clone()
	// The filters cost nothing until a pod needs them.
	c.Plugins[Host] = append(slices.Clip(c.Plugins[Host]), policy.Opens(func(v *policy.View) *instance { return newInstance(v, o) },
		ReasonFilter, ReasonPodAffinity, ReasonPodAntiAffinity, ReasonTopologySpread, ReasonVolumeClaimMissing, ReasonVolumeClaimBroken,
		ReasonVolumeNodeConflict, ReasonVolumeNone, ReasonVolumeNoSpace, ReasonVolumeInUse, ReasonVolumeLimit,
	))
	return c
}
