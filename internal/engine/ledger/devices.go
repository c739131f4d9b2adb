package ledger

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"

	"github.com/muster-scheduler/muster/internal/cluster"
)

// device is a GPU of a node that pods share, in a session.
type device struct {
	group    string
	now      cluster.DeviceUnits // held now, what is being released included
	later    cluster.DeviceUnits // held once releases have happened, promises included
	reserved bool                // its reservation pod is there
}

// ManyPods bounds how many pods that ask for nothing are counted on one node.
const ManyPods = 1 << 16

// devices returns the shared devices of a node as they stand, by group. A device has a whole GPU of the node's ledgers for
// as long as anything of it is held, and the pod slot of its reservation pod until that is there.
func (l *Ledger) devices(n cluster.NodeID) []device {
	if l.shared[n] == nil {
		if of := l.snap.Node(n).Devices; len(of) > 0 {
			ds := make([]device, len(of))
			for i := range of {
				ds[i] = device{of[i].Group, of[i].Used, of[i].Used - of[i].Releasing, of[i].Reserved}
			}
			l.shared[n] = ds
		}
	}
	return l.shared[n]
}

// FitsIdle says whether one more pod of the class fits on the node at once: its sums, and the devices it shares.
func (l *Ledger) FitsIdle(c *cluster.Class, n cluster.NodeID) bool {
	return c.Requests.Fits(l.Idle(n)) && (c.Share.None() || l.shareable(c.Requests, c.Share, n, true))
}

// FitsLater says whether one more pod of the class will fit on the node once all releases have happened.
func (l *Ledger) FitsLater(c *cluster.Class, n cluster.NodeID) bool {
	return l.roomLater(c.Requests, c.Share, n)
}

func (l *Ledger) roomLater(r cluster.Resources, sh cluster.Share, n cluster.NodeID) bool {
	return r.Fits(l.Later(n)) && (sh.None() || l.shareable(r, sh, n, false))
}

// joins says whether a pod that takes so many units may join a device that others use or, of those that are there only later, one that is
// promised to others. See shareable for what it costs to join such a one now.
func (d *device) joins(takes, units cluster.DeviceUnits, now bool) bool {
	return d.later > 0 && d.later+takes <= units && (!now || d.now+takes <= units)
}

// opens says whether a device begins to be used by whoever joins it now: it is promised to others, who have not come yet. It takes a GPU
// that is free until then, and the slot of its reservation pod.
func (d *device) opens() bool { return d.now == 0 && !d.reserved }

// sparedDevices is how many devices a pod may be the first on.
type sparedDevices struct {
	fresh int64 // that nobody has, now or later
	all   int64 // those, and such as are promised to others and free until they come; the same as fresh when it is about later
}

// sparedDevices returns how many devices are left on the node besides what r asks for whole: of its GPUs, and of its pod slots, of which each
// device needs one for its reservation.
func (l *Ledger) spare(r cluster.Resources, n cluster.NodeID, now bool) sparedDevices {
	left := func(of cluster.Resources) int64 {
		return max(0, min((of[cluster.GPU]-r.At(cluster.GPU))/cluster.Whole, of[cluster.Slots]-r.At(cluster.Slots)))
	}
	later := left(l.Later(n))
	if !now {
		return sparedDevices{later, later}
	}
	idle := left(l.Idle(n))
	return sparedDevices{min(later, idle), idle}
}

func (l *Ledger) shareable(r cluster.Resources, sh cluster.Share, n cluster.NodeID, now bool) bool {
	units := l.snap.Node(n).DeviceUnits()
	takes := sh.Takes(units)
	if takes > units {
		return false
	}
	missing, opened := int64(sh.Devices), int64(0)
	for i := range l.devices(n) {
		switch d := &l.shared[n][i]; {
		case !d.joins(takes, units, now):
		case now && d.opens():
			opened++
		default:
			missing--
		}
	}
	left := l.spare(r, n, now)
	return missing <= min(left.all, left.fresh+opened)
}

// CountLater returns how many pods of the class the node takes once all releases have happened, at most ManyPods. It may be
// too many by what reservation pods still to come need, and by GPUs that pods which share ask for besides.
func (l *Ledger) CountLater(c *cluster.Class, n cluster.NodeID) int {
	count := c.Requests.CountIn(l.Later(n), ManyPods)
	if count == 0 || c.Share.None() {
		return count
	}
	if !l.shareable(c.Requests, c.Share, n, false) {
		return 0
	}
	units := l.snap.Node(n).DeviceUnits()
	takes := c.Share.Takes(units)
	var places []int64 // by device
	for _, d := range l.devices(n) {
		if d.joins(takes, units, false) {
			places = append(places, int64((units-d.later)/takes))
		}
	}
	whole := max(0, (l.Later(n)[cluster.GPU]-c.Requests.At(cluster.GPU))/cluster.Whole)
	// No pod is on one device twice: k pods need k places per device of theirs, at most k of them on any one device.
	fit := func(k int64) bool {
		have := whole * min(k, int64(units/takes))
		for _, p := range places {
			have += min(k, p)
		}
		return have >= k*int64(c.Share.Devices)
	}
	low, high := int64(1), int64(count)+1 // fits, does not
	for high-low > 1 {
		if k := (low + high) / 2; fit(k) {
			low = k
		} else {
			high = k
		}
	}
	return int(low)
}

// pick chooses the devices that the pod gets on the node, best first, by the groups' names; new groups are named for it.
// The pod must fit.
func (l *Ledger) pick(p *cluster.Pod, n cluster.NodeID, now bool) []string {
	if p.Class.Share.None() {
		return nil
	}
	return l.pickFor(p.Class, p.UID, n, now)
}

func (l *Ledger) pickFor(c *cluster.Class, uid string, n cluster.NodeID, now bool) []string {
	node := l.snap.Node(n)
	units := node.DeviceUnits()
	takes := c.Share.Takes(units)
	type choice struct {
		group string // "" for a new one
		used  cluster.DeviceUnits
		score int64
		opens bool
	}
	var choices []choice
	add := func(group string, used cluster.DeviceUnits, opens bool) {
		choices = append(choices, choice{group, used, l.hooks.ScoreDevice(c, node, used, units), opens})
	}
	for _, d := range l.devices(n) {
		if d.joins(takes, units, now) {
			add(d.group, d.later, now && d.opens())
		}
	}
	left := l.spare(c.Requests, n, now)
	for range min(int64(c.Share.Devices), left.fresh) {
		add("", 0, true)
	}
	slices.SortStableFunc(choices, func(a, b choice) int {
		return cmp.Or(cmp.Compare(b.score, a.score), cmp.Compare(min(1, b.used), min(1, a.used)), cmp.Compare(a.group, b.group))
	})
	// The best that there are, one after the other, are as many as any others would be.
	groups := make([]string, 0, c.Share.Devices)
	for _, d := range choices {
		if len(groups) == cap(groups) || d.opens && left.all == 0 {
			continue
		}
		if d.opens {
			left.all--
		}
		if d.group == "" {
			d.group = groupName(l.snap.Now, node.Name, uid, len(groups))
		}
		groups = append(groups, d.group)
	}
	if len(groups) < cap(groups) {
		panic(fmt.Sprintf("ledger: a pod of %d shared devices was put on node %s, which has room on %d", c.Share.Devices, node.Name, len(groups)))
	}
	slices.Sort(groups)
	return groups
}

// groupName names the group of a device that a pod is the first on, in the form of a UUID. It is the same for the same
// decision, and for no other.
func groupName(now cluster.Instant, node, uid string, i int) string {
	h := fnv.New128a()
	var b [16]byte
	binary.BigEndian.PutUint64(b[:8], uint64(now.UnixNano()))
	binary.BigEndian.PutUint64(b[8:], uint64(i))
	h.Write(b[:])
	h.Write([]byte(node))
	h.Write([]byte{0})
	h.Write([]byte(uid))
	sum := h.Sum(nil)
	sum[6], sum[8] = sum[6]&0x0f|0x80, sum[8]&0x3f|0x80 // version 8, for what its maker likes; variant of RFC 9562
	return fmt.Sprintf("%x-%x-%x-%x-%x", sum[:4], sum[4:6], sum[6:8], sum[8:10], sum[10:])
}

// move moves a node's ledgers by what a pod takes there: by -1 when it takes it, 1 when it gives it back, 0 where nothing
// changes. Only what will be there later tells rankings to look again.
func (l *Ledger) move(n cluster.NodeID, r cluster.Resources, sh cluster.Share, groups []string, idle, later int64) {
	if idle != 0 {
		l.addIdle(n, r, idle)
	}
	if later != 0 {
		l.addLater(n, r, later)
	}
	if sh.None() {
		return
	}
	takes := sh.Takes(l.snap.Node(n).DeviceUnits())
	for _, g := range groups {
		l.shift(n, g, -cluster.DeviceUnits(idle)*takes, -cluster.DeviceUnits(later)*takes)
	}
}

// shift changes what is held of one device, and the whole GPU that it stands for.
func (l *Ledger) shift(n cluster.NodeID, group string, now, later cluster.DeviceUnits) {
	ds := l.devices(n)
	i, ok := slices.BinarySearchFunc(ds, group, func(d device, g string) int { return strings.Compare(d.group, g) })
	if !ok {
		ds = slices.Insert(ds, i, device{group: group})
		l.shared[n] = ds
	}
	d := &ds[i]
	l.countDevice(n, d, 1)
	d.now += now
	d.later += later
	l.countDevice(n, d, -1)
	if d.now == 0 && d.later == 0 && !d.reserved {
		l.shared[n] = slices.Delete(ds, i, i+1)
	}
}

// countDevice takes what the device stands for out of the node's ledgers, or gives it back.
func (l *Ledger) countDevice(n cluster.NodeID, d *device, sign int64) {
	idle, later := l.Idle(n), l.Later(n)
	if d.now > 0 || d.reserved {
		idle[cluster.GPU] += sign * cluster.Whole
	}
	if d.later > 0 {
		later[cluster.GPU] += sign * cluster.Whole
	}
	if d.reserved {
		return
	}
	if d.now > 0 {
		idle[cluster.Slots] += sign
	}
	if d.later > 0 {
		later[cluster.Slots] += sign
	}
}

// returns says whether what was held on the node with these devices can be held there again, once releases have happened.
func (l *Ledger) returns(n cluster.NodeID, r cluster.Resources, sh cluster.Share, groups []string) bool {
	return l.again(n, r, sh, groups, false)
}

// again is returns, or, with now, whether it can be held at once.
func (l *Ledger) again(n cluster.NodeID, r cluster.Resources, sh cluster.Share, groups []string, now bool) bool {
	room := l.Later(n)
	if now {
		room = l.Idle(n)
	}
	if !r.Fits(room) {
		return false
	}
	if sh.None() {
		return true
	}
	units := l.snap.Node(n).DeviceUnits()
	takes, opened, slots := sh.Takes(units), int64(0), int64(0)
	ds := l.devices(n)
	for _, g := range groups {
		i, ok := slices.BinarySearchFunc(ds, g, func(d device, g string) int { return strings.Compare(d.group, g) })
		held, reserved := cluster.DeviceUnits(0), false
		if ok {
			held, reserved = ds[i].later, ds[i].reserved
			if now {
				held = ds[i].now
			}
		}
		switch {
		case held > 0:
			if held+takes > units {
				return false
			}
		case now && reserved:
		default:
			opened++
			if !reserved {
				slots++
			}
		}
	}
	return r.At(cluster.GPU)+opened*cluster.Whole <= room[cluster.GPU] && r.At(cluster.Slots)+slots <= room[cluster.Slots]
}

// partsLater is what will be free of devices that others use, in milli-GPU.
func (l *Ledger) partsLater(n cluster.NodeID) int64 {
	units, sum := l.snap.Node(n).DeviceUnits(), int64(0)
	for _, d := range l.devices(n) {
		if d.later > 0 {
			sum += int64(max(0, units-d.later)) * cluster.Whole / int64(units)
		}
	}
	return sum
}

// Needs is the least that the pods take of the nodes in all, to be compared with TotalLater; GPU memory is not in it.
func (l *Ledger) Needs(pods []cluster.PodID) cluster.Resources {
	sum := make(cluster.Resources, l.dims)
	for _, id := range pods {
		c := l.snap.Pod(id).Class
		sum.AddCapped(c.Requests)
		sum[cluster.GPU] += int64(c.Share.Devices) * c.Share.Portion.MilliGPU()
	}
	return sum
}
