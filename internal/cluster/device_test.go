package cluster

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// TestSharedDevices: a device that pods share is one whole GPU of the node for as long as anybody is on it, and it comes
// back when the last one leaves.
func TestSharedDevices(t *testing.T) {
	t.Parallel()
	s := NewStore(Options{})
	pod := func(uid string, phase Phase, portion Portion, groups ...string) PodState {
		return PodState{
			UID: uid, Name: uid, Namespace: "a", Ours: true, Phase: phase, NodeName: "n", Groups: groups, Requests: []Quantity{{"pods", 1}},
			Charge: []Quantity{{"gpu", portion.MilliGPU()}}, Spec: &ClassSpec{Share: Share{Devices: int32(len(groups)), Portion: portion}},
		}
	}
	reservation := func(uid, group string) PodState {
		return PodState{UID: uid, Name: uid, Namespace: "r", Utility: true, Phase: Running, NodeName: "n", Groups: []string{group}, Requests: []Quantity{{"pods", 1}}}
	}
	type sums struct {
		UsedGPU, LeavingGPU, UsedSlots int64
		Devices                        []SharedDevice
	}
	steps := []struct {
		name string
		do   Event
		want sums
	}{
		{"a node", NodeState{Name: "n", GPUMemoryMiB: 8192, Allocatable: []Quantity{{"gpu", 8000}, {"pods", 110}}}, sums{}},
		{"the first takes a GPU, a slot, and one for the reservation", pod("p1", Binding, 500_000, "x"), sums{1000, 0, 2, []SharedDevice{{Group: "x", Used: 4050}}}},
		{"the reservation takes what was counted for it", reservation("r1", "x"), sums{1000, 0, 2, []SharedDevice{{Group: "x", Used: 4050, Reserved: true}}}},
		{"the second joins", pod("p2", Running, 250_000, "x"), sums{1000, 0, 3, []SharedDevice{{Group: "x", Used: 6075, Reserved: true}}}},
		{"two devices at once", pod("p3", Running, 100_000, "y", "x"), sums{2000, 0, 5, []SharedDevice{{Group: "x", Used: 6885, Reserved: true}, {Group: "y", Used: 810}}}},
		{"one leaves", pod("p1", Releasing, 500_000, "x"), sums{2000, 0, 5, []SharedDevice{{Group: "x", Used: 6885, Releasing: 4050, Reserved: true}, {Group: "y", Used: 810}}}},
		{"all leave one", pod("p3", Releasing, 100_000, "x", "y"), sums{2000, 1000, 5, []SharedDevice{{Group: "x", Used: 6885, Releasing: 4860, Reserved: true}, {Group: "y", Used: 810, Releasing: 810}}}},
		{"they are gone", PodGone{UID: "p3"}, sums{1000, 0, 3, []SharedDevice{{Group: "x", Used: 6075, Releasing: 4050, Reserved: true}}}},
		{"", PodGone{UID: "p2"}, sums{1000, 1000, 2, []SharedDevice{{Group: "x", Used: 4050, Releasing: 4050, Reserved: true}}}},
		{"only the reservation is left", PodGone{UID: "p1"}, sums{1000, 1000, 1, []SharedDevice{{Group: "x", Reserved: true}}}},
		{"and goes", PodGone{UID: "r1"}, sums{}},
	}
	for _, step := range steps {
		s.Apply(step.do)
		n := s.Snapshot(UnixNano(1)).NodeByName("n")
		got := sums{n.Used.At(GPU), n.Releasing.At(GPU), n.Used.At(Slots), n.Devices}
		if d := cmp.Diff(step.want, got, cmp.Transformer("device", func(d SharedDevice) SharedDevice { d.reservations = 0; return d }), cmp.AllowUnexported(SharedDevice{})); len(got.Devices)+len(step.want.Devices) > 0 && d != "" {
			t.Errorf("%s (-want +got):\n%s", step.name, d)
		}
	}
}

// TestSharesAreSums: whatever happens, a node's devices are what its pods hold, and its sums are theirs and the devices'.
func TestSharesAreSums(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := NewStore(Options{})
		for range rapid.IntRange(1, 40).Draw(t, "events") {
			s.Apply(small.event(t))
		}
		snap := s.Snapshot(UnixNano(1))
		for _, id := range snap.NodeOrder {
			n := snap.Node(id)
			var used, releasing Resources
			type device struct {
				used, releasing DeviceUnits
				reserved        bool
			}
			devices := map[string]device{}
			for _, pid := range n.Pods {
				p := snap.Pod(pid)
				used.Add(p.Class.Requests)
				if p.Phase == Releasing {
					releasing.Add(p.Class.Requests)
				}
				for _, g := range p.Groups {
					d := devices[g]
					switch units := p.Class.Share.Takes(n.DeviceUnits()); {
					case p.Class.Share.None():
						d.reserved = d.reserved || p.reserves()
					case p.Phase == Releasing:
						d.releasing += units
						d.used += units
					default:
						d.used += units
					}
					devices[g] = d
				}
			}
			for g, d := range devices {
				if d.used == 0 && !d.reserved {
					delete(devices, g)
					continue
				}
				whole := Resources{0, 0, 1000, 1}
				if d.reserved {
					whole[Slots] = 0
				}
				used.Add(whole)
				if d.used == d.releasing {
					releasing.Add(whole)
				}
			}
			got := map[string]device{}
			for _, d := range n.Devices {
				got[d.Group] = device{d.Used, d.Releasing, d.Reserved}
			}
			if d := cmp.Diff(devices, got, cmp.AllowUnexported(device{})); d != "" {
				t.Fatalf("devices of %s (-pods +node):\n%s", n.Name, d)
			}
			if !used.Equal(n.Used) || !releasing.Equal(n.Releasing) {
				t.Fatalf("%s: used %v, releasing %v; the sums are %v and %v", n.Name, n.Used, n.Releasing, used, releasing)
			}
		}
	})
}

// TestShareAmounts: a share in units of a device and as a charge, rounded as KAI rounds.
func TestShareAmounts(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		share        Share
		units, takes DeviceUnits
		charge       int64
	}{
		{Share{Devices: 1, Portion: 500_000}, 100, 50, 500},
		{Share{Devices: 1, Portion: 333_000}, 81900, 27272, 330},
		{Share{Devices: 2, Portion: 335_000}, 81900, 27436, 680},
		{Share{Devices: 1, Portion: 1}, 100, 1, 0},
		{Share{Devices: 1, MemoryMiB: 1}, 81900, 1, 10},
		{Share{Devices: 3, MemoryMiB: 40950}, 81900, 40950, 1500},
	} {
		if takes, charge := c.share.Takes(c.units), c.share.Charge(c.units); takes != c.takes || charge != c.charge {
			t.Errorf("%+v of %d units: takes %d, is charged %d; want %d and %d", c.share, c.units, takes, charge, c.takes, c.charge)
		}
	}
}
