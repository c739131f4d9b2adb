package runtime

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/muster-scheduler/muster/internal/vm"
	"github.com/muster-scheduler/muster/internal/vm/spec"
)

// Bounds of what is read of the Container Device Interface's folders.
const (
	maxCDI      = 1 << 20 // bytes of a file
	maxCDIFiles = 1024    // in a folder
)

// cdiSpec is what a specification of devices (CDI 1.0 and before) has that a machine can be given, and what it cannot.
type cdiSpec struct {
	Kind           string   `json:"kind"`
	ContainerEdits cdiEdits `json:"containerEdits"`
	Devices        []struct {
		Name           string   `json:"name"`
		ContainerEdits cdiEdits `json:"containerEdits"`
	} `json:"devices"`
}

// cdiEdits are what a device does to a container. Environment and groups are left out: the guest's programs see the device itself.
type cdiEdits struct {
	DeviceNodes []struct {
		Path     string `json:"path"`
		HostPath string `json:"hostPath"`
	} `json:"deviceNodes"`
	Mounts     json.RawMessage `json:"mounts"`
	Hooks      json.RawMessage `json:"hooks"`
	IntelRdt   json.RawMessage `json:"intelRdt"`
	NetDevices json.RawMessage `json:"netDevices"`
}

// cdiDevice is a device with the edits that it brings: those of all devices of its specification, and its own.
type cdiDevice struct {
	file  string
	edits [2]cdiEdits
}

// cdi gives the IOMMU groups of devices by their qualified names. Files are read anew each time: a device plugin or driver may have written one for this pod. A file that cannot be read
// hinders only who asks for a device that is in no other.
func (n Node) cdi(names []string) ([]string, error) {
	if len(names) == 0 {
		return nil, nil
	}
	dirs := n.CDI
	if dirs == nil {
		dirs = []string{"/etc/cdi", "/var/run/cdi"}
	}
	found := map[string][]cdiDevice{}
	var broken []error
	for _, dir := range dirs {
		here, bad := readCDI(dir, names)
		maps.Copy(found, here)
		broken = append(broken, bad...)
	}
	var groups []string
	for _, name := range names {
		devices := found[name]
		switch len(devices) {
		case 0:
			err := vm.Errorf(vm.Invalid, "CDI device %q: no specification in %s has it", spec.Short(name), strings.Join(dirs, ", "))
			if len(broken) > 0 {
				err = vm.Errorf(vm.Invalid, "%v; what could not be read: %v", err, errors.Join(broken...))
			}
			return nil, err
		case 1:
		default:
			return nil, vm.Errorf(vm.Invalid, "CDI device %q: %s and %s both have it", spec.Short(name), devices[len(devices)-1].file, devices[0].file)
		}
		more, err := devices[0].groups()
		if err != nil {
			return nil, vm.Errorf(vm.Invalid, "CDI device %q: %s: %v", spec.Short(name), devices[0].file, err)
		}
		groups = append(groups, more...)
	}
	return groups, nil
}

// groups are the IOMMU groups that a device is, or an error that names what a machine cannot be given.
func (d cdiDevice) groups() ([]string, error) {
	var out []string
	for _, e := range d.edits {
		for _, one := range []struct {
			field string
			text  json.RawMessage
		}{{"mounts", e.Mounts}, {"hooks", e.Hooks}, {"intelRdt", e.IntelRdt}, {"netDevices", e.NetDevices}} {
			if text := string(one.text); text != "" && text != "null" && text != "[]" && text != "{}" {
				return nil, fmt.Errorf("%s: are for a container, and a machine has a kernel and files of its own", one.field)
			}
		}
		for _, node := range e.DeviceNodes {
			path := node.HostPath
			if path == "" {
				path = node.Path
			}
			if path == "/dev/vfio/vfio" {
				continue
			}
			m := groupNode.FindStringSubmatch(path)
			if m == nil {
				return nil, fmt.Errorf("deviceNodes %q: a machine is given IOMMU groups, /dev/vfio/N, and no other device", spec.Short(path))
			}
			out = append(out, m[1])
		}
	}
	if len(out) == 0 {
		return nil, errors.New("deviceNodes: has no IOMMU group, /dev/vfio/N")
	}
	return out, nil
}

// readCDI gives the wanted devices that a folder's specifications have, and what of it could not be read.
func readCDI(dir string, names []string) (found map[string][]cdiDevice, broken []error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err == nil && len(entries) > maxCDIFiles {
		err = fmt.Errorf("%s: has %d files, and may have %d", dir, len(entries), maxCDIFiles)
	}
	if err != nil {
		return nil, []error{err}
	}
	found = map[string][]cdiDevice{}
	for _, e := range entries {
		if ext := filepath.Ext(e.Name()); ext != ".json" && ext != ".yaml" {
			continue
		}
		file := filepath.Join(dir, e.Name())
		s, err := parseCDI(file)
		if err != nil {
			broken = append(broken, fmt.Errorf("%s: %w", file, err))
			continue
		}
		for _, d := range s.Devices {
			if name := s.Kind + "=" + d.Name; slices.Contains(names, name) {
				found[name] = append(found[name], cdiDevice{file: file, edits: [2]cdiEdits{s.ContainerEdits, d.ContainerEdits}})
			}
		}
	}
	return found, broken
}

func parseCDI(path string) (out cdiSpec, err error) {
	f, err := openRegular(path)
	if err != nil {
		return out, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxCDI+1))
	if err != nil {
		return out, err
	}
	if len(text) > maxCDI {
		return out, fmt.Errorf("has more than %d bytes", maxCDI)
	}
	err = yaml.Unmarshal(text, &out)
	return out, err
}
