package node

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/muster-scheduler/muster/internal/vm/image"
	"github.com/muster-scheduler/muster/internal/vm/runtime"
	"github.com/muster-scheduler/muster/internal/vm/spec"
	"github.com/muster-scheduler/muster/internal/vm/volume"
)

var _ runtime.Images = (*image.Store)(nil)

// Volumes is a volume.Manager in the runtime's words. Dir is the manager's.
type Volumes struct {
	Manager *volume.Manager
	Dir     string
}

var _ runtime.Volumes = Volumes{}

// Setup makes a machine's disks.
func (v Volumes) Setup(ctx context.Context, id string, s *spec.Spec, img image.Image) (runtime.Volume, error) {
	got, err := v.Manager.Setup(ctx, volume.Request{ID: id, Spec: s, Image: volume.Image{
		Path: img.Path, Format: string(img.Format), VirtualSize: img.VirtualSize, Digest: string(img.ID),
	}})
	if err != nil {
		return runtime.Volume{}, err
	}
	return runtime.Volume(*got), nil
}

// Teardown takes them away.
func (v Volumes) Teardown(ctx context.Context, id string) error { return v.Manager.Teardown(ctx, id) }

// List gives the ids that have something.
func (v Volumes) List(context.Context) ([]string, error) { return v.Manager.List() }

// Usage adds up the blocks of the files in each container's directory: no image is there, and devices have none.
func (v Volumes) Usage(ctx context.Context, ids []string) map[string]uint64 {
	out := make(map[string]uint64, len(ids))
	for _, id := range ids {
		if !filepath.IsLocal(id) || filepath.Base(id) != id || ctx.Err() != nil {
			continue
		}
		var sum uint64
		err := filepath.WalkDir(filepath.Join(v.Dir, id), func(_ string, d fs.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() {
				return err
			}
			info, err := d.Info()
			if err != nil {
				return err
			}
			if st, ok := info.Sys().(*syscall.Stat_t); ok {
				sum += uint64(st.Blocks) * 512
			}
			return nil
		})
		if err == nil || errors.Is(err, fs.ErrNotExist) && sum > 0 {
			out[id] = sum
		}
	}
	return out
}

// Cgroups are the kernel's, for a machine's process and those of its file servers.
type Cgroups struct {
	runtime.KernelCgroups
	// Servers gives the processes of a container's file servers: volume.Manager.Processes.
	Servers func(id string) ([]int, error)
}

var _ runtime.Cgroups = Cgroups{}

// Enter moves them all, and what they started before they were moved: a file server begins the process that serves in a sandbox when the machine connects, which is about now.
// What a process starts after it was moved is born in its group, so whoever is asked for its children after its own move has told of all.
func (c Cgroups) Enter(ctx context.Context, parent, id string, pid int) error {
	servers, err := c.Servers(id)
	if err != nil {
		return err
	}
	for _, p := range servers {
		if err := c.enter(ctx, parent, id, p); err != nil {
			return err
		}
	}
	return c.KernelCgroups.Enter(ctx, parent, id, pid)
}

// enter moves a process and what descends from it. A descendant that ends meanwhile needs no group.
func (c Cgroups) enter(ctx context.Context, parent, id string, pid int) error {
	if err := c.KernelCgroups.Enter(ctx, parent, id, pid); err != nil {
		return err
	}
	for _, child := range c.children(pid) {
		if err := c.enter(ctx, parent, id, child); err != nil && !errors.Is(err, syscall.ESRCH) {
			return err
		}
	}
	return nil
}

// children are what a process's threads started (proc(5)); none where it has ended.
func (c Cgroups) children(pid int) (out []int) {
	proc := c.Proc
	if proc == "" {
		proc = "/proc"
	}
	threads, _ := filepath.Glob(filepath.Join(proc, strconv.Itoa(pid), "task", "*", "children"))
	for _, t := range threads {
		text, _ := os.ReadFile(t)
		for f := range strings.FieldsSeq(string(text)) {
			if child, err := strconv.Atoi(f); err == nil {
				out = append(out, child)
			}
		}
	}
	return out
}
