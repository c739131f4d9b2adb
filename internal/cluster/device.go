package cluster

import (
	"slices"
	"strconv"
	"strings"
)

// Whole is one whole device in the model's unit, milli-GPU.
const Whole = int64(1000)

// Portion is a part of one device, in millionths.
type Portion int64

// WholePortion is a whole device.
const WholePortion Portion = 1_000_000

// MilliGPU is the portion of one device in the model's unit, cut to whole thousandths.
func (p Portion) MilliGPU() int64 { return int64(p) * Whole / int64(WholePortion) }

// MiB is an amount of a device's memory, in mebibytes.
type MiB int64

// DeviceUnits is a part of one device in the units of its node (see Node.DeviceUnits). Those of two nodes do not compare.
type DeviceUnits int64

// maxDeviceUnits is more than any device has: 2^40 MiB. It keeps the sum over a million pods on one device inside an int64.
const maxDeviceUnits = 1 << 40

// Share is what a pod takes of GPUs that it has not to itself: the same part of each of several devices of one node. The
// zero Share takes nothing.
type Share struct {
	// Devices is how many different devices; 0 for no share.
	Devices int32
	// Portion is how much of each device; 0 when it is asked for by memory.
	Portion Portion
	// MemoryMiB is how much memory of each device, when Portion is 0.
	MemoryMiB MiB
}

// None says that the pod shares nothing.
func (s Share) None() bool { return s.Devices == 0 }

// Takes returns what the share takes of one device that has so many units (Node.DeviceUnits): at least one. A portion is
// cut to whole units, as KAI does.
func (s Share) Takes(units DeviceUnits) DeviceUnits {
	if s.Portion == 0 {
		return max(1, DeviceUnits(min(s.MemoryMiB, maxDeviceUnits)))
	}
	return max(1, units*DeviceUnits(s.Portion)/DeviceUnits(WholePortion))
}

// Charge returns what a queue is charged for all devices of the share on a node with so many units each, in milli-GPU:
// hundredths of a device, a portion rounded to the nearest and memory rounded up, as KAI does.
func (s Share) Charge(units DeviceUnits) int64 {
	part := int64((s.Portion + WholePortion/200) / (WholePortion / 100))
	if s.Portion == 0 {
		if units <= 0 {
			return 0
		}
		part = (min(int64(s.MemoryMiB), MaxQuantity/100)*100 + int64(units) - 1) / int64(units)
	}
	return Clamp(int64(s.Devices) * min(part, MaxQuantity/1000) * (Whole / 100))
}

// SharedDevice is a GPU of a node that pods share, by the name of its group. It is one of the node's GPUs: while a pod or
// its reservation pod is on it, a whole one is in Node.Used.
type SharedDevice struct {
	Group string
	// Used is what pods hold of it, Releasing the part that is being given back.
	Used, Releasing DeviceUnits
	// Reserved says that its reservation pod is on the node. Until there is one, it has a pod slot of the node in Used.
	Reserved bool

	reservations int32
}

// Kept says whether somebody stays on it once all releases have happened: only then may others join.
func (d *SharedDevice) Kept() bool { return d.Used > d.Releasing }

// DeviceUnits is how much there is of each GPU of the node to share: MiB of its memory in whole hundreds, as KAI counts,
// or 100 when the memory is not known.
func (n *Node) DeviceUnits() DeviceUnits {
	if n.GPUMemoryMiB < 100 {
		return 100
	}
	return DeviceUnits(min(n.GPUMemoryMiB, maxDeviceUnits) / 100 * 100)
}

// Device returns the shared device of a group, nil when there is none.
func (n *Node) Device(group string) *SharedDevice {
	if i, ok := n.device(group); ok {
		return &n.Devices[i]
	}
	return nil
}

func (n *Node) device(group string) (int, bool) {
	return slices.BinarySearchFunc(n.Devices, group, func(d SharedDevice, g string) int { return strings.Compare(d.Group, g) })
}

// ChargeOn returns what a queue is charged for a pod of the class on a node; for a node that is not known (nil), what can
// be said without it.
func (c *Class) ChargeOn(n *Node) Resources {
	if c.Share.None() || c.Share.Portion != 0 || n == nil {
		return c.Charge
	}
	return c.chargeFor(n.DeviceUnits())
}

func (c *Class) chargeFor(units DeviceUnits) Resources {
	r := c.Charge.Clone()
	r.Set(GPU, r.At(GPU)+c.Share.Charge(units))
	return r
}

// ChargeWaiting returns what a queue is charged for a pod of the class before its node is known: GPU memory counts as on
// the node whose GPUs have least, as KAI does, and nothing while no node says how much its GPUs have.
func (s *Snapshot) ChargeWaiting(c *Class) Resources {
	if c.Share.None() || c.Share.Portion != 0 || s.LeastDeviceUnits == 0 {
		return c.Charge
	}
	return c.chargeFor(s.LeastDeviceUnits)
}

// reserves says whether the pod is the reservation pod of a shared device.
func (p *Pod) reserves() bool { return p.Utility && p.Class.Share.None() && len(p.Groups) == 1 }

// groups returns the groups of the devices that a pod with a share holds, as many as it has devices: those it says, and
// devices of its own for what it does not say, because they are in use whoever uses them.
func (p *Pod) groupsHeld(said []string) []string {
	if p.Class.Share.None() {
		return said
	}
	held := slices.Clone(said)
	slices.Sort(held)
	held = slices.Compact(held)
	held = held[:min(len(held), int(p.Class.Share.Devices))]
	for i := len(held); i < int(p.Class.Share.Devices); i++ {
		held = append(held, "pod-"+p.UID+"-"+strconv.Itoa(i))
	}
	return held
}

// share moves the node's shared devices by what the pod on it takes: by 1 when it comes, -1 when it goes.
func (n *Node) share(p *Pod, by int64) {
	if p.Class.Share.None() && !p.reserves() {
		return
	}
	units := DeviceUnits(by) * p.Class.Share.Takes(n.DeviceUnits())
	for _, g := range p.Groups {
		i, ok := n.device(g)
		if !ok {
			n.Devices = slices.Insert(n.Devices, i, SharedDevice{Group: g})
		}
		d := &n.Devices[i]
		n.countDevice(d, -1)
		if p.reserves() {
			d.reservations += int32(by)
			d.Reserved = d.reservations > 0
		} else {
			d.Used += units
			if p.Phase == Releasing {
				d.Releasing += units
			}
		}
		n.countDevice(d, 1)
		if d.Used == 0 && !d.Reserved {
			n.Devices = slices.Delete(n.Devices, i, i+1)
		}
	}
}

// countDevice moves the node's sums by what a shared device stands for: a whole GPU, and a slot for the reservation pod
// that is still to come.
func (n *Node) countDevice(d *SharedDevice, by int64) {
	if d.Used == 0 && !d.Reserved {
		return
	}
	n.used.bump(GPU, by*Whole)
	if !d.Kept() {
		n.releasing.bump(GPU, by*Whole)
	}
	if d.Reserved {
		return
	}
	n.used.bump(Slots, by)
	if !d.Kept() {
		n.releasing.bump(Slots, by)
	}
}
