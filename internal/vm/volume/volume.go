package volume

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/muster-scheduler/muster/internal/vm"
	"github.com/muster-scheduler/muster/internal/vm/cloudinit"
	"github.com/muster-scheduler/muster/internal/vm/domain"
	"github.com/muster-scheduler/muster/internal/vm/spec"
)

// Options say where things are. Only Dir is needed.
type Options struct {
	// Dir is this package's alone: an absolute path, on a file system with room for disks that takes special files. It is made if need be.
	Dir string
	// SocketDir is where sockets of file servers are made, each "xxxxxxxxxxxxxxxxxxxx-nnn.sock"; with that its paths must have at most 107 bytes. Default Dir.
	SocketDir string
	// PodsDir is the kubelet's directory of pods. Default /var/lib/kubelet/pods.
	PodsDir string
	// RawDevices are patterns (path.Match) of names below /dev that FlexVolumes of type raw may have. Default Virtlet's, "loop*"; an empty list that
	// is not nil lets none.
	RawDevices []string
	// MaxDiskBytes bounds the disks that are made here. Default 1 TiB.
	MaxDiskBytes int64
	// QEMU owns what QEMU opens; nil leaves everything this process's.
	QEMU *Owner
	// QEMUImg is the program that unpacks images onto persistent roots. Default qemu-img, by PATH.
	QEMUImg string
	// Mkfs is the program that makes ext4 file systems. Default mkfs.ext4, by PATH and then in /usr/sbin and /sbin.
	Mkfs string
	// Debugfs is the program that writes files into ext4 file systems. Default debugfs, as Mkfs.
	Debugfs string
	// Secrets keeps keys of Ceph users; nil refuses volumes that need one.
	Secrets Secrets
	// Daemons serves shares; nil refuses mounts that need one. Virtiofsd is one.
	Daemons Daemons
	// InUse says whether the machine of a container may still be running; Teardown refuses then. nil leaves that to the caller.
	InUse func(id string) (bool, error)

	host   host
	copier func(ctx context.Context, image Image, device string, offset int64) error
	format func(ctx context.Context, path string, offset, size int64) error
	inject func(ctx context.Context, s *site, disk string, offset, size int64) error
	rebase func(ctx context.Context, disk string, image Image) error
}

// Owner is a user of the machine.
type Owner struct{ UID, GID int }

// Secrets keeps secrets where QEMU gets them from, and nowhere on a disk: libvirt's private, ephemeral secrets.
type Secrets interface {
	// Define makes a secret, or replaces what the UUID is of.
	Define(ctx context.Context, uuid, usage string, value []byte) error
	// Undefine removes a secret. What is not there is removed.
	Undefine(ctx context.Context, uuid string) error
}

// Image is the disk image that a machine starts from. Its file may not change while a machine has it.
type Image struct {
	// Path is absolute, and QEMU's user can read the file.
	Path string
	// Format is "qcow2" or "raw".
	Format string
	// VirtualSize is the size of the disk in it, in bytes.
	VirtualSize int64
	// Digest is "sha256:" and 64 lower-case hexadecimal digits, of the file.
	Digest string
}

// Request is a container whose machine is to have its volumes.
type Request struct {
	// ID is the container's: 1 to 64 letters, digits and hyphens. It is the name of all that is made here.
	ID string
	// Spec is the pod's, judged.
	Spec  *spec.Spec
	Image Image
}

// Volumes are what a machine gets, for packages domain and cloudinit. They hold data of Secrets.
type Volumes struct {
	// Disks are in the guest's order, the root first. First-boot data, the caller's, comes after them.
	Disks []domain.Disk
	// Shares and Mounts are the same directories, from outside and from inside.
	Shares []domain.Share
	Mounts []cloudinit.Share
	// Files are what the guest has to find, Devices and FileSystems what of its disks it has to find where.
	Files       []cloudinit.File
	Devices     []cloudinit.Device
	FileSystems []cloudinit.FileSystem
}

// Manager makes the volumes of containers and takes them away. Its methods can be called at once; calls about one container wait for each other.
// A directory must have only one at a time.
type Manager struct {
	options Options
	host    host
	// claims is held while it is found out who has a device.
	claims sync.Mutex
	mu     sync.Mutex
	busy   map[string]chan struct{}
}

// volume is one thing that a pod mounts, whatever its kind. What it makes on the machine lies in its site's directory, or is named by a file
// there, written before: so it can be taken away without knowing anything else.
type volume interface {
	// name is whose fault an error is: "mount /data".
	name() string
	// setup makes what the machine is given, or finds it made, and adds it to the volumes.
	setup(ctx context.Context, s *site, v *Volumes) error
	// write fills it, or finds it filled, whole. It is called when every volume is set up.
	write(ctx context.Context, s *site) error
	// teardown takes away what is not a file of the site's directory. It is called of the kind's zero value.
	teardown(ctx context.Context, s *site) error
}

// site is where a volume keeps what it makes.
type site struct {
	host    host
	options *Options
	manager *Manager
	// id is the container's, key the directory's name: three digits, a hyphen, the kind.
	id, key, dir, pod string
	spec              *spec.Spec
	image             Image
}

func (s *site) file(name string) string { return filepath.Join(s.dir, name) }

// The kinds that make something on the machine. The others only read.
var kinds = map[string]func() volume{
	"root":       func() volume { return &root{} },
	"persistent": func() volume { return &persistent{} },
	"block":      func() volume { return &block{} },
	"flex":       func() volume { return &flex{} },
	"share":      func() volume { return &share{} },
}

const (
	podFile   = "pod"   // whose container it is
	readyFile = "ready" // everything was made: from then on a failure undoes nothing
	maxSocket = 107     // bytes of a Unix socket's path
	defaultTB = 1 << 40
	dirMode   = 0o711 // QEMU's user goes through, and does not look around
)

var (
	containerID = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9-]{0,63}$`)
	digestForm  = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)
	siteName    = regexp.MustCompile(`^([0-9]{3})-([a-z]+)$`)
)

// Open opens a directory of volumes. Wrong options are errors of kind Invalid.
func Open(o Options) (*Manager, error) {
	if o.host == nil {
		o.host = machine{}
	}
	if o.SocketDir == "" {
		o.SocketDir = o.Dir
	}
	if o.PodsDir == "" {
		o.PodsDir = "/var/lib/kubelet/pods"
	}
	if o.RawDevices == nil {
		o.RawDevices = []string{"loop*"}
	}
	if o.MaxDiskBytes <= 0 {
		o.MaxDiskBytes = defaultTB
	}
	if o.copier == nil {
		o.copier = o.convert
	}
	if o.inject == nil {
		o.inject = o.injectExt
	}
	if o.rebase == nil {
		o.rebase = o.rebaseQEMU
	}
	if o.format == nil {
		o.format = o.mkfs
	}
	for name, dir := range map[string]string{"Dir": o.Dir, "SocketDir": o.SocketDir, "PodsDir": o.PodsDir} {
		if !filepath.IsAbs(dir) || filepath.Clean(dir) != dir {
			return nil, vm.Errorf(vm.Invalid, "volumes: %s %q: must be an absolute path, without '..'", name, dir)
		}
	}
	for _, pattern := range o.RawDevices {
		if _, err := filepath.Match(pattern, ""); err != nil || strings.HasPrefix(pattern, "/") {
			return nil, vm.Errorf(vm.Invalid, "volumes: RawDevices %q: must be a pattern of names below /dev", pattern)
		}
	}
	if most := len(filepath.Join(o.SocketDir, socketName("", "000"))); o.Daemons != nil && most > maxSocket {
		return nil, vm.Errorf(vm.Invalid, "volumes: SocketDir %q: a socket in it has a path of %d bytes, which must be at most %d", o.SocketDir, most, maxSocket)
	}
	if err := os.MkdirAll(o.Dir, dirMode); err != nil {
		return nil, err
	}
	return &Manager{options: o, host: o.host, busy: map[string]chan struct{}{}}, nil
}

// lock waits until nobody else works on a container.
func (m *Manager) lock(ctx context.Context, id string) (func(), error) {
	for {
		m.mu.Lock()
		done, taken := m.busy[id]
		if !taken {
			done = make(chan struct{})
			m.busy[id] = done
			m.mu.Unlock()
			return func() {
				m.mu.Lock()
				delete(m.busy, id)
				m.mu.Unlock()
				close(done)
			}, nil
		}
		m.mu.Unlock()
		select {
		case <-done:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// Setup makes everything that a container's machine gets, or finds it made: after a crash the same call goes on where it died, and gives the
// same. Where it fails, what it made is undone in reverse order, unless an earlier call had succeeded: that one's machine may run.
// Errors of kind Invalid name the pod, what it mounts and the rule; Conflict is a device that another pod has.
func (m *Manager) Setup(ctx context.Context, r Request) (*Volumes, error) {
	if err := r.check(); err != nil {
		return nil, err
	}
	unlock, err := m.lock(ctx, r.ID)
	if err != nil {
		return nil, err
	}
	defer unlock()
	v, err := m.setup(ctx, r)
	if err != nil {
		return nil, fmt.Errorf("pod %s: %w", r.Spec.Pod, err)
	}
	return v, nil
}

func (r *Request) check() error {
	switch {
	case r.Spec == nil:
		return errors.New("volumes: there is no Spec")
	case !containerID.MatchString(r.ID):
		return vm.Errorf(vm.Invalid, "container id %q: must be 1 to 64 letters, digits and hyphens", r.ID)
	case !containerID.MatchString(r.Spec.Pod.UID):
		return vm.Errorf(vm.Invalid, "pod %s: uid %q: must be 1 to 64 letters, digits and hyphens", r.Spec.Pod, r.Spec.Pod.UID)
	case r.Image.Format != "qcow2" && r.Image.Format != "raw" || !filepath.IsAbs(r.Image.Path) || r.Image.VirtualSize <= 0 || !digestForm.MatchString(r.Image.Digest):
		return fmt.Errorf("volumes: image %q: must have an absolute path, a format, a size and a digest", r.Image.Path)
	}
	return nil
}

func (m *Manager) setup(ctx context.Context, r Request) (_ *Volumes, err error) {
	volumes, err := m.plan(r)
	if err != nil {
		return nil, err
	}
	home := filepath.Join(m.options.Dir, r.ID)
	_, notReady := m.host.ReadFile(filepath.Join(home, readyFile))
	defer func() {
		if err != nil && notReady != nil {
			// What was begun is undone even where the caller has gone.
			if undone := m.teardown(context.WithoutCancel(ctx), r.ID); undone != nil {
				err = fmt.Errorf("%w; and undoing it: %w", err, undone)
			}
		}
	}()
	if err := m.host.Mkdir(home, dirMode); err != nil {
		return nil, err
	}
	at := &site{host: m.host, options: &m.options, manager: m, dir: home}
	if err := at.note(podFile, r.Spec.Pod.UID); err != nil {
		return nil, err
	}
	if err := m.host.SyncDir(m.options.Dir); err != nil {
		return nil, err
	}
	out := &Volumes{}
	sites := make([]*site, len(volumes))
	for i, v := range volumes {
		s := &site{host: m.host, options: &m.options, manager: m, id: r.ID, pod: r.Spec.Pod.UID, spec: r.Spec, image: r.Image}
		sites[i] = s
		if kind := kindOfVolume(v); kind != "" {
			s.key = fmt.Sprintf("%03d-%s", i, kind)
			s.dir = filepath.Join(home, s.key)
			if err := m.host.Mkdir(s.dir, dirMode); err != nil {
				return nil, err
			}
		}
		if err := v.setup(ctx, s, out); err != nil {
			return nil, fmt.Errorf("%s: %w", v.name(), err)
		}
	}
	for i, v := range volumes {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if err := v.write(ctx, sites[i]); err != nil {
			return nil, fmt.Errorf("%s: %w", v.name(), err)
		}
	}
	if notReady != nil {
		if err := at.note(readyFile, ""); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// note leaves a short text in the site, unless it is there.
func (s *site) note(name, text string) error {
	if old, err := s.host.ReadFile(s.file(name)); err == nil {
		if string(old) != text {
			return vm.Errorf(vm.Conflict, "container %s was made with %s %q before, and now with %q", filepath.Base(s.dir), name, old, text)
		}
		return nil
	} else if !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return s.place(s.file(name), false, func(f file) error {
		if text == "" {
			return nil
		}
		_, err := f.WriteAt([]byte(text), 0)
		return err
	})
}

func kindOfVolume(v volume) string {
	switch v.(type) {
	case *root:
		return "root"
	case *persistent:
		return "persistent"
	case *block:
		return "block"
	case *flex:
		return "flex"
	case *share:
		return "share"
	}
	return ""
}

// Teardown takes away all that a container has here: what runs, what is mounted, secrets, files. It is called when the machine has ended, and as often
// as one likes: what is not there is taken away. One volume that cannot go keeps no other from going; the error then says which, and the next
// call goes on. It is of kind Conflict where Options.InUse says that the machine may run.
func (m *Manager) Teardown(ctx context.Context, id string) error {
	if !containerID.MatchString(id) {
		return nil // nothing here was ever called that
	}
	unlock, err := m.lock(ctx, id)
	if err != nil {
		return err
	}
	defer unlock()
	if m.options.InUse != nil {
		if used, err := m.options.InUse(id); err != nil {
			return err
		} else if used {
			return vm.Errorf(vm.Conflict, "volumes of container %s: its machine may still be running", id)
		}
	}
	return m.teardown(ctx, id)
}

func (m *Manager) teardown(ctx context.Context, id string) error {
	home := filepath.Join(m.options.Dir, id)
	entries, err := m.host.ReadDir(home)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	// A half of what was made is not ready.
	if err := m.host.Remove(filepath.Join(home, readyFile)); err != nil {
		return err
	}
	var errs []error
	for _, e := range slices.Backward(entries) { // they are sorted, so the last that was made comes first
		match := siteName.FindStringSubmatch(e.Name())
		if match == nil {
			continue
		}
		s := &site{host: m.host, options: &m.options, manager: m, id: id, key: e.Name(), dir: filepath.Join(home, e.Name())}
		if err := s.clear(ctx, match[2]); err != nil {
			errs = append(errs, fmt.Errorf("volumes of container %s: %s: %w", id, e.Name(), err))
		}
	}
	if len(errs) > 0 {
		return errors.Join(errs...)
	}
	// Whose it is goes last of all: as long as the directory is there, so is that.
	for _, name := range []string{readyFile + partSuffix, podFile + partSuffix, podFile} {
		if err := m.host.Remove(filepath.Join(home, name)); err != nil {
			return err
		}
	}
	if err := m.host.Remove(home); err != nil {
		return err
	}
	return m.host.SyncDir(m.options.Dir)
}

// clear takes a site away.
func (s *site) clear(ctx context.Context, kind string) error {
	if make, ok := kinds[kind]; !ok {
		return fmt.Errorf("there is no kind of volume %q", kind)
	} else if err := make().teardown(ctx, s); err != nil {
		return err
	}
	entries, err := s.host.ReadDir(s.dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := s.host.Remove(s.file(e.Name())); err != nil {
			return err
		}
	}
	return s.host.Remove(s.dir)
}

// List gives the ids of all containers that have something here, sorted, whether whole or not. A caller that starts compares them with what it knows, and
// tears down what is nobody's.
func (m *Manager) List() ([]string, error) {
	entries, err := m.host.ReadDir(m.options.Dir)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, e := range entries {
		if e.IsDir() && containerID.MatchString(e.Name()) {
			out = append(out, e.Name())
		}
	}
	return out, nil
}

// Counts says how many volumes there are of each kind, whether whole or not, those of kinds that only read left out. It reads a directory for each container.
func (m *Manager) Counts() (map[string]int, error) {
	out := map[string]int{}
	for kind := range kinds { // order: a map's
		out[kind] = 0
	}
	ids, err := m.List()
	for _, id := range ids {
		entries, bad := m.host.ReadDir(filepath.Join(m.options.Dir, id))
		if bad != nil && !errors.Is(bad, os.ErrNotExist) { // it may have gone since
			err = errors.Join(err, bad)
		}
		for _, e := range entries {
			if match := siteName.FindStringSubmatch(e.Name()); match != nil && kinds[match[2]] != nil {
				out[match[2]]++
			}
		}
	}
	return out, err
}

// Processes are the process ids of a container's file servers, which a caller moves to the pod's cgroup.
func (m *Manager) Processes(id string) ([]int, error) {
	if m.options.Daemons == nil || !containerID.MatchString(id) {
		return nil, nil
	}
	home := filepath.Join(m.options.Dir, id)
	entries, err := m.host.ReadDir(home)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	var out []int
	for _, e := range entries {
		if match := siteName.FindStringSubmatch(e.Name()); match != nil && match[2] == "share" {
			if pid, ok := m.options.Daemons.Pid(filepath.Join(home, e.Name())); ok {
				out = append(out, pid)
			}
		}
	}
	return out, nil
}

// claim makes a special file of a device for QEMU in the site, and finds it made. A device that is written by one machine is no other pod's: QEMU
// would not notice, because each has a file of its own. Machines of one pod come one after another.
func (s *site) claim(d device, readOnly bool) (string, error) {
	s.manager.claims.Lock()
	defer s.manager.claims.Unlock()
	if err := s.free(d, readOnly); err != nil {
		return "", err
	}
	name, other, mode := s.file(diskFile), s.file(diskFileReadOnly), os.FileMode(0o600)
	if readOnly {
		name, other, mode = other, name, 0o400
	}
	if number, ok := s.host.Number(name); !ok || number != d.number {
		part := name + partSuffix
		if err := s.host.Mknod(part, d, mode); err != nil {
			return "", err
		}
		if err := s.give(part); err != nil {
			return "", err
		}
		if err := s.host.Rename(part, name); err != nil {
			return "", err
		}
	}
	if err := s.host.Remove(other); err != nil {
		return "", err
	}
	f, err := s.host.Open(name, !readOnly, false)
	if errors.Is(err, os.ErrPermission) {
		return "", fmt.Errorf("%w: the file system of %s must take special files (no nodev)", err, s.options.Dir)
	} else if err != nil {
		return "", err
	}
	return name, f.Close()
}

// The special files tell by their names whether they are written: a machine's claim.
const (
	diskFile         = "disk"
	diskFileReadOnly = "disk-ro"
)

// free says whether no other pod's machine stands in the way.
func (s *site) free(d device, readOnly bool) error {
	ids, err := s.manager.List()
	if err != nil {
		return err
	}
	for _, id := range ids {
		home := filepath.Join(s.options.Dir, id)
		entries, err := s.host.ReadDir(home)
		if errors.Is(err, os.ErrNotExist) {
			continue
		} else if err != nil {
			return err
		}
		pod, err := s.host.ReadFile(filepath.Join(home, podFile))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		for _, e := range entries {
			if id == s.id && e.Name() == s.key || id != s.id && string(pod) == s.pod {
				continue
			}
			taken := false
			for _, name := range []string{diskFile, diskFileReadOnly} {
				if number, ok := s.host.Number(filepath.Join(home, e.Name(), name)); ok && number == d.number && (!readOnly || name == diskFile) {
					taken = true
				}
			}
			if taken && id == s.id {
				return vm.Errorf(vm.Invalid, "it is the same device as another of the pod's: a device that is written must be only one disk")
			} else if taken {
				return vm.Errorf(vm.Conflict, "the device belongs to the machine of container %s, of pod %s", id, pod)
			}
		}
	}
	return nil
}
