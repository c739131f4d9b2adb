package volume

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/muster-scheduler/muster/internal/vm"
	"github.com/muster-scheduler/muster/internal/vm/domain"
	"github.com/muster-scheduler/muster/internal/vm/flexvolume"
	"github.com/muster-scheduler/muster/internal/vm/spec"
)

const maxFlexVolumes = 64

// plan says which volumes a container has, in the order of its disks. Nothing is made.
func (m *Manager) plan(r Request) ([]volume, error) {
	var first volume = &root{}
	out := []volume{nil}
	for i, b := range r.Spec.Blocks {
		if b.Root() {
			first = &persistent{device: b}
			continue
		}
		out = append(out, &block{device: b, index: i})
	}
	out[0] = first
	flexes, err := m.flexVolumes(r.Spec)
	if err != nil {
		return nil, err
	}
	for _, f := range flexes {
		out = append(out, f)
	}
	if err := fits(r.Spec.Machine.DiskDriver, len(out)); err != nil {
		return nil, err
	}
	budget := &budget{}
	shares := 0
	for i := range r.Spec.Mounts {
		mount := r.Spec.Mounts[i]
		switch {
		case mount.Kind == spec.Copy:
			out = append(out, &directory{mount: mount, budget: budget})
		case mount.Kind == spec.SingleFile:
			out = append(out, &singleFile{mount: mount, budget: budget})
		case isFlex(flexes, mount):
		default:
			if shares == domain.MaxShares {
				return nil, vm.Errorf(vm.Invalid, "mount %s: a machine can share at most %d directories with its host", mount.Path, domain.MaxShares)
			}
			out = append(out, &share{mount: mount, index: shares})
			shares++
		}
	}
	if len(out) > 999 {
		return nil, vm.Errorf(vm.Invalid, "a machine can have at most 999 volumes")
	}
	return out, nil
}

// fits says whether the bus has room for that many disks and first-boot data.
func fits(driver spec.DiskDriver, disks int) error {
	all := make([]domain.Disk, disks+1)
	for i := range all {
		all[i].Serial = fmt.Sprint(i)
	}
	all[0].Role, all[disks].Role = domain.Root, domain.FirstBoot
	_, err := domain.Places(driver, all)
	return err
}

// flexVolumes are the FlexVolumes that the kubelet has mounted for the pod, in the order of their names. All are disks, those too that no
// container mounts, as in Virtlet.
func (m *Manager) flexVolumes(s *spec.Spec) ([]*flex, error) {
	dir := filepath.Join(m.options.PodsDir, s.Pod.UID, "volumes", flexvolume.DirName)
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	if len(entries) > maxFlexVolumes {
		return nil, vm.Errorf(vm.Invalid, "FlexVolumes: must be at most %d, are %d", maxFlexVolumes, len(entries))
	}
	var out []*flex
	for i, e := range entries {
		f := &flex{volume: e.Name(), index: i}
		v, err := flexvolume.Read(filepath.Join(dir, e.Name()))
		var options *flexvolume.OptionsError
		if errors.As(err, &options) {
			return nil, vm.Errorf(vm.Invalid, "%s: %w", f.name(), err)
		} else if err != nil {
			return nil, fmt.Errorf("%s: %w", f.name(), err)
		}
		f.options = v
		for _, mount := range s.Mounts {
			if filepath.Clean(mount.HostPath) == filepath.Join(dir, e.Name()) {
				f.mounts = append(f.mounts, mount)
			}
		}
		out = append(out, f)
	}
	return out, nil
}

func isFlex(all []*flex, mount spec.Mount) bool {
	for _, f := range all {
		for _, m := range f.mounts {
			if m.Path == mount.Path {
				return true
			}
		}
	}
	return false
}

// SingleFiles says which of a container's paths on the host are regular files, for spec.Input. A link is none, wherever it leads.
func SingleFiles(paths []string) map[string]bool {
	out := map[string]bool{}
	for _, p := range paths {
		if info, err := os.Lstat(p); err == nil && info.Mode().IsRegular() {
			out[p] = true
		}
	}
	return out
}
