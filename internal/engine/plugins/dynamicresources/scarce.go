package dynamicresources

import (
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/structured"

	"github.com/muster-scheduler/muster/internal/cluster"
)

// Most who wait for devices wait because too few are free. That is counted before the allocator is asked, which tries every
// selection: whatever expressions say, there are no more than there are, and no more of one zone than the zone has. Only a no is
// found so.

// need is so many devices that must be free on one node, all of which have one value of an attribute ("" for any devices).
type need struct {
	count   int
	same    string
	several bool // of several requests, which may be given a device in common if it can be shared
}

// needsOf adds what a claim needs of what can be counted: in each request, in all of them, and under each constraint.
func (w *wish) needsOf(d *resourceapi.DeviceClaim) {
	among := func(same string, of []string) {
		most, sum, n := 0, 0, 0
		for i := range d.Requests {
			r := d.Requests[i].Exactly
			if r == nil || r.AllocationMode != resourceapi.DeviceAllocationModeExactCount || r.AdminAccess != nil && *r.AdminAccess ||
				len(of) > 0 && !slices.Contains(of, d.Requests[i].Name) || r.Count < 1 || r.Count > resourceapi.AllocationResultsMaxSize {
				continue
			}
			most, sum, n = max(most, int(r.Count)), sum+int(r.Count), n+1
		}
		if n > 0 {
			w.needs = append(w.needs, need{most, same, false})
		}
		if n > 1 {
			w.needs = append(w.needs, need{sum, same, true})
		}
		if same == "" {
			w.total += sum
		}
	}
	among("", nil)
	for i := range d.Constraints {
		if name := d.Constraints[i].MatchAttribute; name != nil {
			among(string(*name), d.Constraints[i].Requests)
		}
	}
}

// free is the devices of a node that are not taken.
type free struct {
	at      uint64 // what the ledger's clock said
	devices []*describedDevice
	shared  bool // some may be given to several
}

// freeOn looks at the devices of a node once, until something changes there.
func (l *ledger) freeOn(n *cluster.Node, s side) *free {
	key := place{n.ID, s}
	f := l.free[key]
	if f != nil && f.at == l.changed[n.Name] {
		return f
	}
	f = &free{at: l.changed[n.Name]}
	l.free[key] = f
	for _, slice := range l.catalog.byNode[n.Name] {
		of := l.catalog.memory.describe(slice)
		some := l.used[s].pools[poolKey{slice.Spec.Driver, slice.Spec.Pool.Name}] != 0
		for i := range of.devices {
			if some && l.used[s].state.AllocatedDevices.Has(structured.MakeDeviceID(slice.Spec.Driver, slice.Spec.Pool.Name, slice.Spec.Devices[i].Name)) {
				continue
			}
			f.devices = append(f.devices, &of.devices[i])
			f.shared = f.shared || of.devices[i].many
		}
	}
	return f
}

// place is a side of a node.
type place struct {
	node cluster.NodeID
	side side
}

// scarce says whether too few devices are free on a node for a wish. Nothing that expressions say is needed for that, but which
// value of an attribute they demand.
func (l *ledger) scarce(w *wish, n *cluster.Node, s side) bool {
	if len(w.needs) == 0 || len(l.catalog.shared) > 0 || len(l.catalog.byNode[n.Name]) == 0 {
		return false
	}
	f := l.freeOn(n, s)
	if w.short(f.devices, f.shared) {
		return true
	}
	if w.decisive == nil {
		return false
	}
	var those []*describedDevice
	for _, d := range f.devices {
		a, n := d.get(w.decisive.name)
		if n != 1 || a.text == nil || !d.plain() {
			return false // looking at it is an error, perhaps
		}
		if *a.text == w.decisive.value {
			those = append(those, d)
		}
	}
	return w.short(those, f.shared) && l.compiles(w)
}

// short says whether devices are too few.
func (w *wish) short(devices []*describedDevice, shared bool) bool {
	if !shared && len(devices) < w.total {
		return true
	}
	for _, need := range w.needs {
		if (!need.several || !shared) && most(devices, need.same) < need.count {
			return true
		}
	}
	return false
}

// most is how many of the devices may have one value of an attribute at most.
func most(devices []*describedDevice, same string) int {
	if same == "" {
		return len(devices)
	}
	any, largest, by := 0, 0, map[int32]int{}
	for _, d := range devices {
		switch a, n := d.get(same); {
		case n == 0: // a constraint admits none without it
		case n > 1 || !a.one:
			any++
		default:
			by[a.value]++
			largest = max(largest, by[a.value])
		}
	}
	return largest + any
}

// get returns a device's attribute, and how many it has of that name.
func (d *describedDevice) get(name string) (attribute, int) {
	var out attribute
	n := 0
	for _, a := range d.attributes {
		if a.name == name {
			out, n = a, n+1
		}
	}
	return out, n
}

// plain says whether looking at any attribute of a device is no error.
func (d *describedDevice) plain() bool {
	return !slices.ContainsFunc(d.attributes, func(a attribute) bool { return !a.plain })
}
