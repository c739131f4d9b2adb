package runtime

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/muster-scheduler/muster/internal/vm"
	"github.com/muster-scheduler/muster/internal/vm/spec"
)

// Node is the machine that this process runs on, with its network namespace.
type Node struct {
	// Sys is where sysfs is; "" for /sys.
	Sys string
	// CDI are the folders of specifications of devices, what counts more after what counts less; nil for /etc/cdi and /var/run/cdi.
	CDI []string
}

// RegularFiles asks the file system; what cannot be asked is none.
func (Node) RegularFiles(paths []string) map[string]bool {
	out := map[string]bool{}
	for _, p := range paths {
		if st, err := os.Stat(p); err == nil && st.Mode().IsRegular() {
			out[p] = true
		}
	}
	return out
}

var (
	groupNode  = regexp.MustCompile(`^/dev/vfio/([0-9]{1,6})$`)
	pciAddress = regexp.MustCompile(`^[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$`)
)

// Devices gives the PCI devices of the IOMMU groups that the pod was given, by device nodes and by CDI: of a group those that its environment names, or all, where it names none. A name of
// a device of another group is refused: a pod's author can write any.
func (n Node) Devices(want spec.HostDevices) ([]string, error) {
	var groups []string
	add := func(group string) {
		if !slices.Contains(groups, group) {
			groups = append(groups, group)
		}
	}
	for _, node := range want.VFIO {
		m := groupNode.FindStringSubmatch(node)
		if m == nil {
			return nil, vm.Errorf(vm.Invalid, "device %q: must be an IOMMU group, /dev/vfio/N", spec.Short(node))
		}
		add(m[1])
	}
	given, err := n.cdi(want.CDI)
	if err != nil {
		return nil, err
	}
	for _, group := range given {
		add(group)
	}
	if len(groups) == 0 && len(want.PCI) > 0 {
		return nil, vm.Errorf(vm.Invalid, "PCI device %q: the pod was given no IOMMU group, /dev/vfio/N", spec.Short(want.PCI[0]))
	}
	var out, all []string
	for _, group := range groups {
		members, err := n.members(group)
		if err != nil {
			return nil, err
		}
		all = append(all, members...)
		named := slices.DeleteFunc(slices.Clone(members), func(p string) bool { return !slices.Contains(want.PCI, p) })
		if len(named) == 0 {
			named = members
		}
		out = append(out, named...)
	}
	for _, p := range want.PCI {
		if !slices.Contains(all, p) {
			return nil, vm.Errorf(vm.Invalid, "PCI device %q: it is in none of the IOMMU groups that the pod was given", spec.Short(p))
		}
	}
	return out, nil
}

// members are the PCI devices of an IOMMU group.
func (n Node) members(group string) ([]string, error) {
	sys := n.Sys
	if sys == "" {
		sys = "/sys"
	}
	entries, err := os.ReadDir(filepath.Join(sys, "kernel/iommu_groups", group, "devices"))
	if err != nil {
		return nil, fmt.Errorf("device /dev/vfio/%s: %w", group, err)
	}
	var out []string
	for _, e := range entries {
		if pciAddress.MatchString(e.Name()) {
			out = append(out, e.Name())
		}
	}
	return out, nil
}

// Dial connects by TCP.
func (Node) Dial(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, "tcp", to.String())
}

// openRegular opens a file for reading if it is one.
func openRegular(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	st, err := f.Stat()
	if err == nil && !st.Mode().IsRegular() {
		err = fmt.Errorf("%s is no regular file", path)
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

var _ Host = Node{}
