package policy

import "github.com/muster-scheduler/muster/internal/cluster"

// FreeGPUs is what is free on one node, as far as GPUs are concerned.
type FreeGPUs struct {
	// Room is what is free of the node's sums; whole GPUs are its dimension GPU.
	Room cluster.Resources
	// Parts is what is free of each device that pods share, and Units what each device has.
	Parts []cluster.DeviceUnits
	Units cluster.DeviceUnits
}

// whole is how many GPUs are nobody's.
func (f *FreeGPUs) whole() int64 { return max(0, f.Room.At(cluster.GPU)) / cluster.Whole }

// Total is all that is free, in milli-GPU.
func (f *FreeGPUs) Total() int64 {
	sum := f.whole() * cluster.Whole
	for _, p := range f.Parts {
		sum += f.milli(p)
	}
	return sum
}

func (f *FreeGPUs) milli(part cluster.DeviceUnits) int64 {
	return int64(max(0, part)) * cluster.Whole / int64(f.Units)
}

// Unusable returns how much of what is free one kind of work could not use, in milli-GPU: everything, if not one of its pods
// fits on the node; else what lies on devices that have less left than the pod takes of one.
//
// It is F_n(m) of Fragmentation Gradient Descent (Weng et al., "Beware of Fragmentation", USENIX ATC 2023).
func (f *FreeGPUs) Unusable(d *cluster.Demand) int64 {
	if !d.Requests.Fits(f.Room) {
		return f.Total()
	}
	takes, lost, places := f.Units, int64(0), int64(0)
	if !d.Share.None() {
		takes = d.Share.Takes(f.Units)
	}
	for _, p := range f.Parts {
		if p < takes {
			lost += f.milli(p)
		} else {
			places++
		}
	}
	if besides := d.Requests.At(cluster.GPU) / cluster.Whole; !d.Share.None() && (takes > f.Units || places+f.whole()-besides < int64(d.Share.Devices)) {
		return f.Total()
	}
	return lost
}

// Mix is the work that is typical of the cluster: the kinds that use GPUs, each as likely to come as it is common among the
// pods there are.
type Mix struct {
	Kinds []cluster.Demand
	// Pods is how many pods they have in all.
	Pods int64
}

// NewMix returns the mix of a snapshot. It costs nothing.
func NewMix(snap *cluster.Snapshot) Mix {
	m := Mix{Kinds: snap.Demands()}
	for i := range m.Kinds {
		m.Pods += int64(m.Kinds[i].Pods)
	}
	return m
}

// Expected returns how much of what is free on a node the next pod of the mix could not use, in millionths of a GPU: the mean
// of Unusable over the mix. 0 for an empty mix.
func (m *Mix) Expected(f *FreeGPUs) int64 {
	if m.Pods == 0 || f.Total() == 0 {
		return 0
	}
	sum := int64(0)
	for i := range m.Kinds {
		sum += int64(m.Kinds[i].Pods) * f.Unusable(&m.Kinds[i])
	}
	return sum/m.Pods*1000 + sum%m.Pods*1000/m.Pods
}
