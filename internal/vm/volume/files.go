package volume

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/muster-scheduler/muster/internal/vm"
	"github.com/muster-scheduler/muster/internal/vm/cloudinit"
	"github.com/muster-scheduler/muster/internal/vm/spec"
)

// Bounds of what is read of one volume beside cloudinit's of all.
const (
	maxDepth   = 32
	maxEntries = 2 * cloudinit.MaxFiles // directories count too
	attempts   = 3
)

// budget is how much all files of a pod may still be.
type budget struct {
	files int
	bytes int64
}

func (b *budget) take(n int64) error {
	if b.files++; b.files > cloudinit.MaxFiles {
		return vm.Errorf(vm.Invalid, "the pod's ConfigMaps, Secrets and single files are more than %d files", cloudinit.MaxFiles)
	}
	if b.bytes += n; b.bytes > cloudinit.MaxFileBytes {
		return vm.Errorf(vm.Invalid, "the pod's ConfigMaps, Secrets and single files hold more than %d bytes", cloudinit.MaxFileBytes)
	}
	return nil
}

// directory is a volume of kind configMap, secret, projected or downward API: the guest gets its files as they are now.
type directory struct {
	mount  spec.Mount
	budget *budget
}

func (d *directory) name() string { return "mount " + d.mount.Path }

// errChanged is a volume that the kubelet exchanged while it was read.
var errChanged = errors.New("the volume changes faster than it can be read")

func (d *directory) setup(ctx context.Context, _ *site, v *Volumes) error {
	for range attempts {
		spent := *d.budget
		files, err := d.read(ctx)
		if err == nil {
			v.Files = append(v.Files, files...)
			return nil
		}
		if !errors.Is(err, errChanged) {
			return err
		}
		*d.budget = spent
	}
	return vm.Errorf(vm.Unavailable, "%w", errChanged)
}

func (*directory) write(context.Context, *site) error    { return nil }
func (*directory) teardown(context.Context, *site) error { return nil }

// dataDir is the link of a kubelet's atomic writer to the files that hold together:
// https://pkg.go.dev/k8s.io/kubernetes/pkg/volume/util#AtomicWriter
const dataDir = "..data"

// read reads all files. Links lead nowhere out of the volume: os.Root sees to that, whoever exchanges what meanwhile.
func (d *directory) read(ctx context.Context) ([]cloudinit.File, error) {
	outer, err := os.OpenRoot(d.mount.HostPath)
	if err != nil {
		return nil, err
	}
	defer outer.Close() //nolint:errcheck // only read
	from := outer
	atomic := false
	if info, err := outer.Lstat(dataDir); err == nil && info.Mode()&os.ModeSymlink != 0 {
		// What the link leads to now is of one moment; it stays readable to whoever has it open until the kubelet deletes it.
		if from, err = outer.OpenRoot(dataDir); err != nil {
			return nil, fmt.Errorf("%s: %w", dataDir, err)
		}
		defer from.Close() //nolint:errcheck // only read
		atomic = true
	}
	w := &walk{ctx: ctx, root: from, budget: d.budget}
	err = w.dir(".", d.mount.Path, 0)
	if atomic && errors.Is(err, os.ErrNotExist) {
		return nil, errChanged
	}
	return w.files, err
}

type walk struct {
	ctx     context.Context
	root    *os.Root
	budget  *budget
	entries int
	files   []cloudinit.File
}

func (w *walk) dir(name, guest string, depth int) error {
	if err := w.ctx.Err(); err != nil {
		return err
	}
	if depth > maxDepth {
		return vm.Errorf(vm.Invalid, "%s: directories must be at most %d deep", name, maxDepth)
	}
	f, err := w.root.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	entries, err := f.ReadDir(maxEntries + 1)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	slices.SortFunc(entries, func(a, b os.DirEntry) int { return strings.Compare(a.Name(), b.Name()) }) // a file's ReadDir does not sort
	for _, e := range entries {
		if w.entries++; w.entries > maxEntries {
			return vm.Errorf(vm.Invalid, "must have at most %d files and directories", maxEntries)
		}
		if name == "." && strings.HasPrefix(e.Name(), "..") {
			continue // the atomic writer's own
		}
		at := filepath.Join(name, e.Name())
		info, err := w.root.Stat(at)
		if err != nil {
			return outside(at, err)
		}
		where := path.Join(guest, e.Name())
		switch {
		case info.IsDir():
			err = w.dir(at, where, depth+1)
		case info.Mode().IsRegular():
			var f *os.File
			if f, err = w.root.OpenFile(at, os.O_RDONLY|syscall.O_NONBLOCK, 0); err == nil {
				err = w.file(f, where)
			}
		default:
			err = vm.Errorf(vm.Invalid, "%s: must be a regular file or a directory, is %s", at, kindOf(info))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// outside tells of a link that leads out: that is the pod's fault. os has no error of its own for it.
func outside(name string, err error) error {
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, os.ErrPermission) {
		return err
	}
	return vm.Errorf(vm.Invalid, "%s: must lead to a file of the volume: %w", name, err)
}

// file reads a file that is to be regular, and closes it.
func (w *walk) file(f *os.File, guest string) error {
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s: was exchanged while it was opened", guest)
	}
	content, err := io.ReadAll(io.LimitReader(f, cloudinit.MaxFileBytes+1))
	if err != nil {
		return err
	}
	if err := w.budget.take(int64(len(content))); err != nil {
		return err
	}
	w.files = append(w.files, cloudinit.File{Path: guest, Content: content, Mode: uint32(info.Mode().Perm())})
	return nil
}

// singleFile is one file of the host that the kubelet mounts, such as /etc/hosts or a file of a volume.
type singleFile struct {
	mount  spec.Mount
	budget *budget
}

func (s *singleFile) name() string { return "mount " + s.mount.Path }

func (s *singleFile) setup(ctx context.Context, _ *site, v *Volumes) error {
	f, err := os.OpenFile(s.mount.HostPath, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if errors.Is(err, syscall.ELOOP) {
		return vm.Errorf(vm.Invalid, "%s: must be a regular file, is a link", s.mount.HostPath)
	} else if err != nil {
		return err
	}
	w := &walk{ctx: ctx, budget: s.budget}
	if err := w.file(f, s.mount.Path); err != nil {
		return err
	}
	v.Files = append(v.Files, w.files...)
	return nil
}

func (*singleFile) write(context.Context, *site) error    { return nil }
func (*singleFile) teardown(context.Context, *site) error { return nil }
