package network

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/muster-scheduler/muster/internal/vm"
)

// fakeSys is a sysfs with a physical function, the link pf0, and two virtual functions of it: 0000:3b:02.0 and, with the driver and the link that are its own, 0000:3b:02.1.
type fakeSys struct {
	dir  string
	said []string
	// probed, if set, is told when the function gets its own driver again, which makes its link.
	probed func() error
	// deaf: no driver takes a device.
	deaf bool
}

const function = "0000:3b:02.1"

func newFakeSys(t *testing.T) *fakeSys {
	t.Helper()
	s := &fakeSys{dir: t.TempDir()}
	devices := filepath.Join(s.dir, "bus/pci/devices")
	for _, d := range []string{"0000:3b:00.0/net/pf0", "0000:3b:02.0", function + "/net", "0000:00:02.0"} {
		must(t, os.MkdirAll(filepath.Join(devices, d), 0o755))
	}
	for _, d := range []string{"iavf", "vfio-pci"} {
		must(t, os.MkdirAll(filepath.Join(s.dir, "bus/pci/drivers", d), 0o755))
	}
	for name, to := range map[string]string{
		"0000:3b:02.0/physfn": "../0000:3b:00.0", function + "/physfn": "../0000:3b:00.0", "0000:3b:00.0/virtfn0": "../0000:3b:02.0", "0000:3b:00.0/virtfn1": "../" + function,
		function + "/driver": "../../drivers/iavf",
	} {
		must(t, os.Symlink(to, filepath.Join(devices, name)))
	}
	return s
}

// write does what the kernel does.
func (s *fakeSys) write(file, text string) error {
	rel, err := filepath.Rel(s.dir, file)
	if err != nil {
		return err
	}
	device := filepath.Join(s.dir, "bus/pci/devices", function)
	s.said = append(s.said, rel+" "+strings.TrimSpace(text))
	switch filepath.Base(file) {
	case "driver_override":
		return os.WriteFile(file, []byte(text), 0o600)
	case "unbind":
		return os.Remove(filepath.Join(device, "driver"))
	case "drivers_probe":
		if s.deaf {
			return nil
		}
		override, err := os.ReadFile(filepath.Join(device, "driver_override"))
		if err != nil {
			return err
		}
		driver := strings.TrimSpace(string(override))
		if driver == "" {
			driver = "iavf"
		}
		if err := os.Symlink("../../drivers/"+driver, filepath.Join(device, "driver")); err != nil {
			return err
		}
		if driver == "iavf" && s.probed != nil {
			return s.probed()
		}
		return nil
	}
	return fmt.Errorf("nobody writes %s", rel)
}

// TestFunctions: a function gets its card's MAC and the driver of guests, once, and its own driver back; what is none is refused by name.
func TestFunctions(t *testing.T) {
	t.Parallel()
	s := newFakeSys(t)
	var macs []string
	l := &linux{dir: t.TempDir(), sys: s.dir, write: s.write, vfMAC: func(pf string, index int, mac string) error {
		macs = append(macs, fmt.Sprint(pf, " ", index, " ", mac))
		return nil
	}}
	for pci, rule := range map[string]string{"0000:00:02.0": "no virtual function", "../../x": "must be a PCI address", "0000:99:02.0": "no virtual function"} {
		_, err := l.function(pci)
		kind(t, err, vm.Invalid)
		if !strings.Contains(err.Error(), rule) {
			t.Errorf("%s: %v", pci, err)
		}
	}
	driver, err := l.function(function)
	must(t, err)
	if driver != "iavf" {
		t.Fatalf("driver %q", driver)
	}
	c := Card{Interface: vm.Interface{Name: "net1", MAC: "0a:58:0a:02:00:02", PCI: function}, Driver: driver}
	must(t, l.takeFunction(c))
	must(t, l.takeFunction(c))
	device := "bus/pci/devices/" + function
	want := []string{device + "/driver_override vfio-pci", device + "/driver/unbind " + function, "bus/pci/drivers_probe " + function}
	if !slices.Equal(s.said, want) {
		t.Errorf("wrote %q, want %q", s.said, want)
	}
	if fmt.Sprint(macs) != "[pf0 1 0a:58:0a:02:00:02 pf0 1 0a:58:0a:02:00:02]" {
		t.Errorf("MACs %v", macs)
	}
	s.said = nil
	must(t, l.giveBack(filepath.Join(l.dir, "gone"), []Card{c}))
	must(t, l.giveBack(filepath.Join(l.dir, "gone"), []Card{c}))
	want = []string{device + "/driver_override ", device + "/driver/unbind " + function, "bus/pci/drivers_probe " + function}
	if !slices.Equal(s.said, want) {
		t.Errorf("wrote %q, want %q", s.said, want)
	}
	// One that came with the driver of guests keeps it.
	s.said = nil
	c.Driver = vfioDriver
	must(t, l.giveBack(filepath.Join(l.dir, "gone"), []Card{c}))
	if len(s.said) != 0 {
		t.Errorf("wrote %q", s.said)
	}
	// Without the module the pod has to wait, and is told why.
	s.deaf = true
	err = l.takeFunction(c)
	kind(t, err, vm.Unavailable)
	if !strings.Contains(err.Error(), "module") {
		t.Error(err)
	}
	// What was left between two steps is gone on with.
	s.deaf, c.Driver = false, "iavf"
	must(t, l.giveBack(filepath.Join(l.dir, "gone"), []Card{c}))
	if now, err := l.driver(function); err != nil || now != "iavf" {
		t.Errorf("driver %q, %v", now, err)
	}
}

// TestRealFunction: a pod with a tap and a function joins and parts on a real kernel; the link that the kernel makes anew on the node, here a veth,
// is in the pod under its old name before CNI's DEL.
func TestRealFunction(t *testing.T) {
	t.Parallel()
	if !onNode(t) {
		return
	}
	s := newFakeSys(t)
	l := &linux{dir: t.TempDir(), sys: s.dir, write: s.write, vfMAC: func(string, int, string) error { return nil }}
	path := filepath.Join(l.dir, "p")
	must(t, l.makeNetns(path))
	defer func() { must(t, l.removeNetns(path)) }()
	must(t, inside(path, func() error {
		return netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "eth0"}, PeerName: "peer"})
	}))
	s.probed = func() error {
		if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "ens1f0v1"}, PeerName: "wire"}); err != nil {
			return err
		}
		return os.MkdirAll(filepath.Join(s.dir, "bus/pci/devices", function, "net/ens1f0v1"), 0o755)
	}
	cs := []Card{
		{Interface: vm.Interface{Name: "eth0", MAC: "0a:58:0a:59:00:02", MTU: 1400, Addresses: []netip.Prefix{netip.MustParsePrefix("10.89.0.2/24")}}, LinkMAC: newMAC(), Tap: "tap0", Bridge: "br0"},
		{Interface: vm.Interface{Name: "net1", MAC: "0a:58:0a:02:00:02", PCI: function}, Driver: "iavf"},
	}
	ports, err := l.join(path, cs)
	must(t, err)
	if len(ports) != 1 || ports[0].Tap == 0 {
		t.Fatalf("ports %+v", ports)
	}
	if now, err := l.driver(function); err != nil || now != vfioDriver {
		t.Errorf("driver %q, %v", now, err)
	}
	fds, err := l.open(path, tapped(cs))
	must(t, err)
	if len(fds) != 1 {
		t.Errorf("%d descriptors", len(fds))
	}
	closeAll(fds)
	must(t, l.giveBack(path, cs))
	must(t, l.part(path, cs))
	back, err := l.links(path)
	must(t, err)
	i := slices.IndexFunc(back, func(k Link) bool { return k.Name == "net1" })
	if i < 0 || back[i].MAC != "0a:58:0a:02:00:02" || slices.ContainsFunc(back, func(k Link) bool { return k.Name == "tap0" }) {
		t.Errorf("given back %s", text(t, back))
	}
	if _, err := netlink.LinkByName("ens1f0v1"); !missing(err) {
		t.Errorf("the function's link is still the node's: %v", err)
	}
	must(t, l.giveBack(path, cs))
}
