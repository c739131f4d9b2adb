package network

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"github.com/muster-scheduler/muster/internal/vm"
)

// A virtual function (SR-IOV) is a card of its own hardware: the guest drives it, by VFIO, and what is a tap for other cards is here a driver
// that is exchanged. The kernel's documents are Documentation/ABI/testing/sysfs-bus-pci and Documentation/driver-api/vfio.rst. Its MAC is set by the physical
// function, because the guest begins with that one. NOT CHECKED on hardware.

// vfioDriver is the driver by which QEMU has a device.
const vfioDriver = "vfio-pci"

var pciForm = regexp.MustCompile(`^[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$`)

func (l *linux) device(pci string, more ...string) string {
	sys := l.sys
	if sys == "" {
		sys = "/sys"
	}
	return filepath.Join(append([]string{sys, "bus/pci/devices", pci}, more...)...)
}

// driver is the name of a device's driver, "" where it has none.
func (l *linux) driver(pci string) (string, error) {
	to, err := os.Readlink(l.device(pci, "driver"))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return filepath.Base(to), err
}

func (l *linux) function(pci string) (string, error) {
	if !pciForm.MatchString(pci) {
		return "", vm.Errorf(vm.Invalid, "%q: must be a PCI address such as 0000:3b:02.1", short(pci))
	}
	if _, err := os.Stat(l.device(pci, "physfn")); err != nil {
		return "", vm.Errorf(vm.Invalid, "PCI device %s is no virtual function (SR-IOV): a guest is given no other device by CNI", pci)
	}
	return l.driver(pci)
}

// takeFunction gives a function its card's MAC and the driver for guests. Done again, it changes nothing.
func (l *linux) takeFunction(c Card) error {
	pf, index, err := l.physical(c.PCI)
	if err != nil {
		return err
	}
	if err := l.may("MAC of function %d of %s", index, pf); err != nil {
		return err
	}
	set := l.vfMAC
	if set == nil {
		set = vfMAC
	}
	if err := set(pf, index, c.MAC); err != nil {
		return fmt.Errorf("MAC of function %d of %s: %w", index, pf, err)
	}
	return l.bind(c.PCI, vfioDriver)
}

// bind exchanges the driver of a device. "" leaves the choice to the kernel.
func (l *linux) bind(pci, driver string) error {
	now, err := l.driver(pci)
	if err != nil || now != "" && now == driver {
		return err
	}
	if err := l.may("driver of %s", pci); err != nil {
		return err
	}
	if err := l.put(l.device(pci, "driver_override"), driver+"\n"); err != nil {
		return fmt.Errorf("driver of %s: %w", pci, err)
	}
	if now != "" {
		if err := l.put(l.device(pci, "driver", "unbind"), pci); err != nil {
			return fmt.Errorf("driver of %s: unbind: %w", pci, err)
		}
	}
	if err := l.put(filepath.Join(l.device(""), "../drivers_probe"), pci); err != nil {
		return fmt.Errorf("driver of %s: probe: %w", pci, err)
	}
	now, err = l.driver(pci)
	if err == nil && (now != driver && driver != "" || now == "") {
		err = vm.Errorf(vm.Unavailable, "PCI device %s has the driver %q, not %q: is the module loaded?", pci, now, driver)
	}
	return err
}

// put writes to a file of sysfs.
func (l *linux) put(file, text string) error {
	if l.write != nil {
		return l.write(file, text)
	}
	return os.WriteFile(file, []byte(text), 0o200)
}

// physical finds the link of a function's physical function, and which of its functions it is.
func (l *linux) physical(pci string) (link string, index int, err error) {
	names, err := os.ReadDir(l.device(pci, "physfn", "net"))
	if err != nil || len(names) == 0 {
		return "", 0, fmt.Errorf("PCI device %s: its physical function has no link here: %w", pci, err)
	}
	functions, err := filepath.Glob(l.device(pci, "physfn", "virtfn*"))
	if err != nil {
		return "", 0, err
	}
	for _, f := range functions {
		to, err := os.Readlink(f)
		if err != nil || filepath.Base(to) != pci {
			continue
		}
		index, err := strconv.Atoi(strings.TrimPrefix(filepath.Base(f), "virtfn"))
		return names[0].Name(), index, err
	}
	return "", 0, fmt.Errorf("PCI device %s: its physical function %s does not know it", pci, names[0].Name())
}

func vfMAC(pf string, index int, mac string) error {
	k, err := netlink.LinkByName(pf)
	if err != nil {
		return err
	}
	return netlink.LinkSetVfHardwareAddr(k, index, hardware(mac))
}

// giveBack gives functions back to the drivers that they had, and their links to the pod, as CNI made them.
func (l *linux) giveBack(path string, cards []Card) error {
	var errs []error
	for _, c := range cards {
		if c.PCI == "" || c.Driver == vfioDriver || c.Driver == "" {
			continue // a function that came without a link has none to be given
		}
		if err := l.giveBackOne(path, c); err != nil {
			errs = append(errs, fmt.Errorf("card %s: %w", c.Name, err))
		}
	}
	return errors.Join(errs...)
}

func (l *linux) giveBackOne(path string, c Card) error {
	now, err := l.driver(c.PCI)
	if err != nil {
		return err
	}
	if now == vfioDriver || now == "" {
		if err := l.bind(c.PCI, ""); err != nil {
			return err
		}
	}
	if !l.alive(path) {
		return nil
	}
	// The kernel makes the link anew, in the node's namespace.
	names, err := os.ReadDir(l.device(c.PCI, "net"))
	if err != nil || len(names) == 0 {
		return nil //nolint:nilerr // it is in the pod already
	}
	k, err := netlink.LinkByName(names[0].Name())
	if missing(err) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := l.may("%s into the pod", names[0].Name()); err != nil {
		return err
	}
	there, err := netns.GetFromPath(path)
	if err != nil {
		return err
	}
	defer func() { _ = there.Close() }()
	if err := netlink.LinkSetDown(k); err != nil {
		return err
	}
	if err := netlink.LinkSetNsFd(k, int(there)); err != nil {
		return fmt.Errorf("%s into the pod: %w", names[0].Name(), err)
	}
	return inside(path, func() error {
		k, err := netlink.LinkByName(names[0].Name())
		if err != nil {
			return err
		}
		if names[0].Name() != c.Name {
			if err := netlink.LinkSetName(k, c.Name); err != nil {
				return fmt.Errorf("name %s: %w", c.Name, err)
			}
		}
		if err := netlink.LinkSetHardwareAddr(k, hardware(c.MAC)); err != nil {
			return fmt.Errorf("MAC: %w", err)
		}
		return netlink.LinkSetUp(k)
	})
}

// tapped are the cards that are taps.
func tapped(all []Card) (out []Card) {
	for _, c := range all {
		if c.PCI == "" {
			out = append(out, c)
		}
	}
	return out
}
