package dynamicresources

import (
	"context"
	"errors"
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"

	"github.com/muster-scheduler/muster/internal/cluster"
)

// Most who wait for devices wait because too few are free. That is counted, as the allocator tries every selection: whatever
// expressions say, there are no more than there are, and no more of one zone than the zone has. Only a no is found so.

// request is a request for so many devices.
type request struct {
	count     int
	class     string
	selectors []resourceapi.DeviceSelector
}

// need is so many devices that must be free on one node for some requests, all of which have one value of an attribute ("" for any).
type need struct {
	count int
	same  string
	of    []int // requests; if they are several, they may be given a device in common if it can be shared
}

// needsOf adds what a claim needs of what can be counted: in each request, in all of them, and under each constraint.
func (w *wish) needsOf(d *resourceapi.DeviceClaim) {
	first := len(w.requests)
	var names []string
	for i := range d.Requests {
		r := d.Requests[i].Exactly
		if r == nil || r.AllocationMode != resourceapi.DeviceAllocationModeExactCount || r.AdminAccess != nil && *r.AdminAccess ||
			r.Count < 1 || r.Count > resourceapi.AllocationResultsMaxSize {
			continue
		}
		w.requests = append(w.requests, request{int(r.Count), r.DeviceClassName, r.Selectors})
		names = append(names, d.Requests[i].Name)
	}
	among := func(same string, constrained []string) {
		all := need{same: same}
		for i, name := range names {
			if len(constrained) == 0 || slices.Contains(constrained, name) {
				w.needs = append(w.needs, need{w.requests[first+i].count, same, []int{first + i}})
				all.count, all.of = all.count+w.requests[first+i].count, append(all.of, first+i)
			}
		}
		if len(all.of) > 1 {
			w.needs = append(w.needs, all)
		}
	}
	among("", nil)
	for i := range d.Constraints {
		if name := d.Constraints[i].MatchAttribute; name != nil {
			among(string(*name), d.Constraints[i].Requests)
		}
	}
}

// together adds what all claims of a pod need.
func (w *wish) together() {
	all := need{}
	for i := range w.requests {
		all.count, all.of = all.count+w.requests[i].count, append(all.of, i)
	}
	if len(all.of) > 1 {
		w.needs = append(w.needs, all)
	}
}

// straight is about how many steps the allocator takes that need not go back; 0 if nothing can be counted.
func (w *wish) straight() int {
	n := 0
	for i := range w.requests {
		n += w.requests[i].count + 8
	}
	return n
}

// free is the devices of a node that are not taken.
type free struct {
	at      uint64 // what the ledger's clock said
	devices []freeDevice
	shared  bool // some may be given to several
}

type freeDevice struct {
	*describedDevice
	driver string
	of     *resourceapi.Device
}

// freeOn looks at the devices of a node once, until something changes there.
func (l *claimLedger) freeOn(n *cluster.Node, s side) *free {
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
			f.devices = append(f.devices, freeDevice{&of.devices[i], slice.Spec.Driver, &slice.Spec.Devices[i]})
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

// scarce returns no if too few devices are free on a node for a wish. Nothing that expressions say is needed for that, but which value
// of an attribute they demand.
func (l *claimLedger) scarce(w *wish, n *cluster.Node, s side) (answer, bool) {
	if len(w.needs) == 0 || len(l.catalog.shared) > 0 || len(l.catalog.byNode[n.Name]) == 0 {
		return answer{}, false
	}
	f := l.freeOn(n, s)
	if w.short(f, nil) {
		return answer{verdict: taken()}, true
	}
	if w.decisive == nil {
		return answer{}, false
	}
	for i := range f.devices {
		if a, n := f.devices[i].get(w.decisive.name); n != 1 || a.text == nil || !f.devices[i].plain() {
			return answer{}, false // looking at it is an error, perhaps
		}
	}
	has := func(_ int, d *freeDevice) bool {
		a, _ := d.get(w.decisive.name)
		return *a.text == w.decisive.value
	}
	return answer{verdict: taken(), compiled: w.decisive.expression != ""}, w.short(f, has) && l.compiles(w)
}

// unmatched says whether too few free devices on a node satisfy the expressions of a wish. It costs about as much as the allocator's
// look at each of them.
func (l *claimLedger) unmatched(w *wish, n *cluster.Node, s side) bool {
	if len(w.needs) == 0 || len(l.catalog.shared) > 0 {
		return false
	}
	f, broken := l.freeOn(n, s), false
	matching := make([]map[*freeDevice]bool, len(w.requests))
	for i := range w.requests {
		matching[i] = map[*freeDevice]bool{}
		for k := range f.devices {
			matches, err := l.matches(&w.requests[i], &f.devices[k])
			matching[i][&f.devices[k]], broken = matches, broken || err != nil
		}
	}
	return !broken && w.short(f, func(request int, d *freeDevice) bool { return matching[request][d] }) // else the allocator says what is broken
}

// matches says whether the expressions of a request and of its class are true of a device.
func (l *claimLedger) matches(r *request, d *freeDevice) (bool, error) {
	class, err := l.catalog.classes.Get(r.class)
	if err != nil {
		return false, err
	}
	for _, of := range [...][]resourceapi.DeviceSelector{class.Spec.Selectors, r.selectors} {
		for i := range of {
			if of[i].CEL == nil {
				return false, errors.ErrUnsupported
			}
			compiled := l.cache.GetOrCompile(of[i].CEL.Expression)
			if compiled.Error != nil {
				return false, compiled.Error
			}
			is, _, err := compiled.DeviceMatches(context.Background(), cel.Device{
				Driver: d.driver, AllowMultipleAllocations: d.of.AllowMultipleAllocations, Attributes: d.of.Attributes, Capacity: d.of.Capacity,
			})
			if err != nil || !is {
				return false, err
			}
		}
	}
	return true, nil
}

// short says whether too few devices are free, of those that a request may have; nil for all.
func (w *wish) short(f *free, may func(request int, d *freeDevice) bool) bool {
	for i := range w.needs {
		need := &w.needs[i]
		if f.shared && len(need.of) > 1 {
			continue
		}
		any, largest, by := 0, 0, map[int32]int{}
		for k := range f.devices {
			d := &f.devices[k]
			if may != nil && !slices.ContainsFunc(need.of, func(r int) bool { return may(r, d) }) {
				continue
			}
			if need.same == "" {
				any++
				continue
			}
			switch a, n := d.get(need.same); {
			case n == 0: // a constraint admits none without it
			case n > 1 || !a.one:
				any++
			default:
				by[a.value]++
				largest = max(largest, by[a.value])
			}
		}
		if any+largest < need.count {
			return true
		}
	}
	return false
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
