package enginetest

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/muster-scheduler/muster/internal/cluster"
)

// sharedDevice is what is held of one device that pods share, summed up from the pods.
type sharedDevice struct {
	now, later cluster.DeviceUnits // with what is being released, and without
	reserved   bool                // its reservation pod is there
}

// seat adds up what a pod holds of the devices of its node.
func (a *auditor) seat(p *cluster.Pod) {
	if !p.Phase.Holds() || p.Node == cluster.None {
		return
	}
	n := a.snap.Node(p.Node)
	for _, g := range p.Groups {
		d := a.device(n, g)
		switch {
		case !p.Class.Share.None():
			d.now += p.Class.Share.Takes(n.DeviceUnits())
			if p.Phase != cluster.Releasing {
				d.later += p.Class.Share.Takes(n.DeviceUnits())
			}
		case p.Utility:
			d.reserved = true
		}
	}
}

func (a *auditor) device(n *cluster.Node, group string) *sharedDevice {
	d := a.devices[n.ID][group]
	if d == nil {
		d = &sharedDevice{}
		a.devices[n.ID][group] = d
	}
	return d
}

// sums holds what the snapshot says of each node's devices, and of what they take of its sums, against the pods.
func (a *auditor) sums() error {
	for _, id := range a.snap.NodeOrder {
		n := a.snap.Node(id)
		if len(n.Devices) != len(a.devices[id]) {
			return fmt.Errorf("node %s has %d shared devices, and its pods hold %d", n.Name, len(n.Devices), len(a.devices[id]))
		}
		var used, releasing cluster.Resources
		for _, pid := range n.Pods {
			p := a.snap.Pod(pid)
			used.Add(p.Class.Requests)
			if p.Phase == cluster.Releasing {
				releasing.Add(p.Class.Requests)
			}
		}
		for i := range n.Devices {
			d := &n.Devices[i]
			held := a.devices[id][d.Group]
			if held == nil || held.now != d.Used || held.later != d.Used-d.Releasing || held.reserved != d.Reserved {
				return fmt.Errorf("node %s: device %s is said to be %+v, and its pods hold %+v", n.Name, d.Group, *d, held)
			}
			now, later := held.stands()
			used.Add(now)
			now.Sub(later)
			releasing.Add(now)
		}
		if !used.Equal(n.Used) || !releasing.Equal(n.Releasing) {
			return fmt.Errorf("node %s: used %s, of it releasing %s; its pods hold %s, of it releasing %s", n.Name,
				a.snap.Dims.Format(n.Used), a.snap.Dims.Format(n.Releasing), a.snap.Dims.Format(used), a.snap.Dims.Format(releasing))
		}
	}
	return nil
}

// stands is what a shared device takes of its node's sums, now and once all releases have happened: a whole GPU, and the
// slot of a reservation pod that is still to come.
func (d *sharedDevice) stands() (now, later cluster.Resources) {
	slots := int64(1)
	if d.reserved {
		slots = 0
	}
	if d.now > 0 || d.reserved {
		now.Set(cluster.GPU, cluster.Whole)
		now.Set(cluster.Slots, slots)
	}
	if d.later > 0 {
		later.Set(cluster.GPU, cluster.Whole)
		later.Set(cluster.Slots, slots)
	}
	return now, later
}

// devicesOf moves what is held of the devices of a node by what a pod of the class takes: by now at once, and by later after
// releases. It reports devices that give more than they have, and devices that the node has not.
func (a *auditor) devicesOf(n *cluster.Node, c *cluster.Class, groups []string, now, later int64) error {
	if c.Share.None() {
		if len(groups) > 0 {
			return fmt.Errorf("it shares no devices, and is on %v", groups)
		}
		return nil
	}
	if distinct := slices.Compact(slices.Sorted(slices.Values(groups))); len(distinct) != int(c.Share.Devices) {
		return fmt.Errorf("it asks for %d devices, and is on %v", c.Share.Devices, groups)
	}
	units := n.DeviceUnits()
	takes := c.Share.Takes(units)
	for _, g := range groups {
		d := a.device(n, g)
		idle, free := a.idle[n.ID].Clone(), a.later[n.ID].Clone()
		was, will := d.stands()
		d.now += cluster.DeviceUnits(now) * takes
		d.later += cluster.DeviceUnits(later) * takes
		is, stays := d.stands()
		is.Sub(was)
		stays.Sub(will)
		if now > 0 && (d.now > units || !is.Fits(idle)) || later > 0 && (d.later > units || !stays.Fits(free)) {
			return fmt.Errorf("device %s: %d of %d units are held, %d after releases; the node has %s besides, %s after releases", g, d.now, units, d.later,
				a.snap.Dims.Format(idle), a.snap.Dims.Format(free))
		}
		idle.Sub(is)
		free.Sub(stays)
		a.idle[n.ID], a.later[n.ID] = idle, free
	}
	return nil
}

// roomFor counts, the obvious way, how many pods of a class the node takes after releases: one after the other, each on the
// devices of which most is left.
func (a *auditor) roomFor(c *cluster.Class, n *cluster.Node) int64 {
	const most = 1000
	free := a.later[n.ID].Clone()
	if c.Share.None() {
		return int64(c.Requests.CountIn(free, most))
	}
	units := n.DeviceUnits()
	takes := c.Share.Takes(units)
	var left []cluster.DeviceUnits
	for _, d := range a.devices[n.ID] { // order: sorted below
		if d.later > 0 {
			left = append(left, units-d.later)
		}
	}
	one := cluster.Resources{}
	one.Set(cluster.GPU, cluster.Whole)
	one.Set(cluster.Slots, 1)
	for count := range int64(most) {
		if !c.Requests.Fits(free) {
			return count
		}
		free.Sub(c.Requests)
		slices.SortFunc(left, func(x, y cluster.DeviceUnits) int { return cmp.Compare(y, x) })
		k := 0
		for ; k < min(int(c.Share.Devices), len(left)) && left[k] >= takes; k++ {
			left[k] -= takes
		}
		for ; k < int(c.Share.Devices); k++ {
			if takes > units || !one.Fits(free) {
				return count
			}
			free.Sub(one)
			left = append(left, units-takes)
		}
	}
	return most
}
