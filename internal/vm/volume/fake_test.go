package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/muster-scheduler/muster/internal/vm/flexvolume"
	"github.com/muster-scheduler/muster/internal/vm/spec"
)

// fakeHost is a machine whose block devices are plain files, with a kubelet's directory, and who keeps secrets and serves shares. It outlives the
// managers that die in it.
type fakeHost struct {
	t       testing.TB
	base    string
	devices map[string]bool // paths that are devices
	busy    map[string]bool // devices that are mounted
	mu      sync.Mutex
	secrets map[string]string // by UUID
	serving map[string]Daemon // by Dir
}

func newFakeHost(t testing.TB) *fakeHost {
	t.Helper()
	base, err := os.MkdirTemp("", "vol")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(base) })
	w := &fakeHost{t: t, base: base, devices: map[string]bool{}, busy: map[string]bool{}, secrets: map[string]string{}, serving: map[string]Daemon{}}
	for _, dir := range []string{"dev", "pods", "srv", "images"} {
		must(t, os.Mkdir(w.path(dir), 0o755))
	}
	return w
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (w *fakeHost) path(parts ...string) string {
	return filepath.Join(append([]string{w.base}, parts...)...)
}

func (w *fakeHost) write(content string, mode os.FileMode, parts ...string) string {
	p := w.path(parts...)
	must(w.t, os.MkdirAll(filepath.Dir(p), 0o755))
	_ = os.Remove(p) // one that cannot be written can be replaced
	must(w.t, os.WriteFile(p, []byte(content), mode))
	must(w.t, os.Chmod(p, mode))
	return p
}

// device makes a block device of zeros, or finds it.
func (w *fakeHost) device(name string, size int64) string {
	p := w.path("dev", name)
	if !w.devices[p] {
		w.write("", 0o600, "dev", name)
		must(w.t, os.Truncate(p, size))
		w.devices[p] = true
	}
	return p
}

// image is a raw image of sectors.
func (w *fakeHost) image(name string, sectors int) Image {
	text := strings.Repeat(name+"|", sectors*sector)[:sectors*sector]
	p := w.write(text, 0o444, "images", name)
	return Image{Path: p, Format: "raw", VirtualSize: int64(len(text)), Digest: "sha256:" + strings.Repeat(fmt.Sprintf("%02x", name[0]), 32)}
}

// flex is what the driver leaves of a FlexVolume.
func (w *fakeHost) flex(uid, name, options string) string {
	w.write(options, 0o600, "pods", uid, "volumes", flexvolume.DirName, name, flexvolume.FileName)
	return w.path("pods", uid, "volumes", flexvolume.DirName, name)
}

// configMap is a volume as a kubelet's atomic writer leaves it.
func (w *fakeHost) configMap(uid, kind, name string, files map[string]string) string {
	dir := []string{"pods", uid, "volumes", kind, name}
	for f, text := range files {
		w.write(text, 0o640, append(slices.Clone(dir), "..2026_01_01", f)...)
		top, _, _ := strings.Cut(f, "/")
		if err := os.Symlink("..data/"+top, w.path(append(slices.Clone(dir), top)...)); err != nil && !errors.Is(err, fs.ErrExist) {
			w.t.Fatal(err)
		}
	}
	_ = os.Symlink("..2026_01_01", w.path(append(slices.Clone(dir), "..data")...))
	return w.path(dir...)
}

// files are all files and directories below the volumes' directory and the sockets'.
func (w *fakeHost) files() []string {
	var out []string
	for _, dir := range []string{"v", "s"} {
		_ = filepath.WalkDir(w.path(dir), func(p string, _ fs.DirEntry, err error) error {
			if err == nil && p != w.path(dir) {
				out = append(out, strings.TrimPrefix(p, w.base+"/"))
			}
			return nil
		})
	}
	return out
}

// clean says what is left of anything.
func (w *fakeHost) clean() string {
	left := w.files()
	for id := range w.secrets {
		left = append(left, "secret "+id)
	}
	for dir := range w.serving {
		left = append(left, "server of "+dir)
	}
	slices.Sort(left)
	return strings.Join(left, "\n")
}

// fakeMachine is the host of a world.
type fakeMachine struct {
	machine
	w *fakeHost
}

func inode(path string) (uint64, int64, bool) {
	info, err := os.Stat(path)
	if err != nil || !info.Mode().IsRegular() {
		return 0, 0, false
	}
	return info.Sys().(*syscall.Stat_t).Ino, info.Size(), true
}

func (f *fakeMachine) lookup(path string) (string, bool) {
	number, _, ok := inode(path)
	for d := range f.w.devices {
		if n, _, _ := inode(d); ok && n == number {
			return d, true
		}
	}
	return "", false
}

func (f *fakeMachine) Device(path string) (device, error) {
	if _, ok := f.lookup(path); !ok {
		return f.machine.Device(path)
	}
	number, size, _ := inode(path)
	return device{number: number, size: size}, nil
}

func (f *fakeMachine) Mknod(path string, d device, _ os.FileMode) error {
	_ = os.Remove(path)
	for p := range f.w.devices {
		if n, _, _ := inode(p); n == d.number {
			return os.Link(p, path)
		}
	}
	return errors.New("there is no such device")
}

func (f *fakeMachine) Number(path string) (uint64, bool) {
	_, ok := f.lookup(path)
	number, _, _ := inode(path)
	return number, ok
}

func (f *fakeMachine) Open(path string, write, exclusive bool) (file, error) {
	if d, ok := f.lookup(path); ok && exclusive && f.w.busy[d] {
		return nil, syscall.EBUSY
	}
	return f.machine.Open(path, write, false)
}

var (
	errDied   = errors.New("died")
	errFailed = errors.New("failed")
)

// mortal is a process that dies at a call that changes something: before it, or after it, and a write before it is done by half. With once, the
// call fails instead, and life goes on.
type mortal struct {
	host
	at          int // 0: never
	after, once bool
	calls       int
	dead        bool
	last        string
}

func (m *mortal) do(what string, op func() error) error {
	if m.dead {
		return errDied
	}
	m.calls++
	if m.calls != m.at {
		return op()
	}
	m.last = what
	if m.once {
		if m.after {
			_ = op()
		}
		return errFailed
	}
	m.dead = true
	if m.after {
		_ = op()
	}
	return errDied
}

func (m *mortal) Mkdir(p string, mode os.FileMode) error {
	return m.do("mkdir "+p, func() error { return m.host.Mkdir(p, mode) })
}

func (m *mortal) Create(p string) (f file, err error) {
	err = m.do("create "+p, func() error { f, err = m.host.Create(p); return err })
	if err != nil {
		if f != nil {
			f.Close()
		}
		return nil, err
	}
	return &mortalFile{f, m, p}, nil
}

func (m *mortal) Open(p string, write, exclusive bool) (file, error) {
	f, err := m.host.Open(p, write, exclusive)
	if err != nil {
		return nil, err
	}
	return &mortalFile{f, m, p}, nil
}

func (m *mortal) Mknod(p string, d device, mode os.FileMode) error {
	return m.do("mknod "+p, func() error { return m.host.Mknod(p, d, mode) })
}

func (m *mortal) Chown(p string, uid, gid int) error {
	return m.do("chown "+p, func() error { return m.host.Chown(p, uid, gid) })
}

func (m *mortal) Rename(from, to string) error {
	return m.do("rename "+to, func() error { return m.host.Rename(from, to) })
}

func (m *mortal) Remove(p string) error {
	return m.do("remove "+p, func() error { return m.host.Remove(p) })
}

func (m *mortal) SyncDir(p string) error {
	return m.do("syncdir "+p, func() error { return m.host.SyncDir(p) })
}

type mortalFile struct {
	file
	m    *mortal
	path string
}

func (f *mortalFile) WriteAt(b []byte, at int64) (n int, err error) {
	if f.m.calls+1 == f.m.at && !f.m.after && !f.m.dead {
		_, _ = f.file.WriteAt(b[:len(b)/2], at)
	}
	err = f.m.do("write "+f.path, func() error { n, err = f.file.WriteAt(b, at); return err })
	return n, err
}

func (f *mortalFile) Truncate(size int64) error {
	return f.m.do("truncate "+f.path, func() error { return f.file.Truncate(size) })
}

func (f *mortalFile) Sync() error {
	return f.m.do("sync "+f.path, func() error { return f.file.Sync() })
}

// keeper is the world's Secrets, server its Daemons, as a mortal process calls them.
type keeper struct {
	w *fakeHost
	m *mortal
}

func (k keeper) Define(_ context.Context, uuid, usage string, value []byte) error {
	return k.m.do("define secret", func() error { k.w.secrets[uuid] = usage + "=" + string(value); return nil })
}

func (k keeper) Undefine(_ context.Context, uuid string) error {
	return k.m.do("undefine secret", func() error { delete(k.w.secrets, uuid); return nil })
}

type server struct {
	w *fakeHost
	m *mortal
}

func (s server) Start(_ context.Context, d Daemon) error {
	return s.m.do("start server", func() error {
		s.w.mu.Lock()
		defer s.w.mu.Unlock()
		s.w.serving[d.Dir] = d
		return os.WriteFile(d.Socket, nil, 0o600)
	})
}

func (s server) Pid(dir string) (int, bool) {
	_, ok := s.w.serving[dir]
	return 4711, ok
}

func (s server) Stop(_ context.Context, dir, socket string) error {
	return s.m.do("stop server", func() error {
		delete(s.w.serving, dir)
		if err := os.Remove(socket); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		return nil
	})
}

// manager is a new process in the world.
func (w *fakeHost) manager(m *mortal, change ...func(*Options)) *Manager {
	w.t.Helper()
	m.host = &fakeMachine{w: w}
	o := Options{
		Dir: w.path("v"), SocketDir: w.path("s"), PodsDir: w.path("pods"), RawDevices: []string{"loop*"},
		Secrets: keeper{w, m}, Daemons: server{w, m}, host: m,
		// Half of the bytes are written when it dies before its end.
		copier: func(_ context.Context, image Image, device string, offset int64) error {
			content, err := os.ReadFile(image.Path)
			if err != nil {
				return err
			}
			f, err := os.OpenFile(device, os.O_WRONLY, 0)
			if err != nil {
				return err
			}
			defer f.Close()
			if _, err := f.WriteAt(content[:len(content)/2], offset); err != nil {
				return err
			}
			return m.do("copy", func() error { _, err := f.WriteAt(content, offset); return err })
		},
		inject: func(_ context.Context, s *site, disk string, offset, _ int64) error {
			return m.do("inject", func() error {
				f, err := os.OpenFile(disk, os.O_WRONLY, 0)
				if err != nil {
					return err
				}
				defer f.Close()
				_, err = f.WriteAt(s.spec.Files[0].Content, offset+injectedAt)
				return err
			})
		},
		rebase: func(_ context.Context, disk string, image Image) error {
			return m.do("rebase", func() error { return rebased(disk, image) })
		},
		format: func(_ context.Context, path string, offset, _ int64) error {
			return m.do("format", func() error {
				f, err := os.OpenFile(path, os.O_WRONLY, 0)
				if err != nil {
					return err
				}
				defer f.Close()
				_, err = f.WriteAt([]byte("a file system"), offset+1024)
				return err
			})
		},
	}
	for _, c := range change {
		c(&o)
	}
	must(w.t, os.MkdirAll(o.SocketDir, 0o755))
	out, err := Open(o)
	must(w.t, err)
	return out
}

// injectedAt is where a pod's file lies in its root.
const injectedAt = 100

// rebased writes a disk anew that lies over an unpacked image: over the image, with the file.
func rebased(disk string, image Image) error {
	f, err := os.OpenFile(disk, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	o, err := readOverlay(f)
	if err != nil {
		return err
	}
	below, err := os.Open(o.backing)
	if err != nil {
		return err
	}
	defer below.Close()
	o.backing, o.backingFormat = image.Path, image.Format
	o.content = []extent{{at: 0, from: below}}
	return o.write(f)
}

// alive is a manager that nothing happens to.
func (w *fakeHost) alive(change ...func(*Options)) *Manager { return w.manager(&mortal{}, change...) }

// everything is a container with a volume of each kind; persistent makes its root a device.
func (w *fakeHost) everything(id, uid string, persistent bool) Request {
	s := &spec.Spec{
		Pod:       spec.Pod{Namespace: "team", Name: "web", UID: uid, Hostname: "web"},
		Container: spec.Container{Name: "vm"},
		Resources: spec.Resources{VCPUs: 1, Memory: 512 << 20},
		Machine:   spec.Machine{DiskDriver: spec.SCSI, Network: spec.NetworkVirtIO, RootSize: 1 << 20},
		CloudInit: spec.CloudInit{Type: spec.NoCloud},
		Files:     []spec.File{{Path: "/etc/motd", Content: []byte("injected")}},
	}
	r := Request{ID: id, Spec: s, Image: w.image("tiny", 9)}
	s.Blocks = []spec.Block{{DevicePath: "/dev/data", HostPath: w.device("data-"+uid, 1<<20)}, {DevicePath: "/dev/old", HostPath: w.device("old", 1<<20), ReadOnly: true}}
	if persistent {
		s.Blocks = append(s.Blocks, spec.Block{DevicePath: "/", HostPath: w.device("root-"+uid, 64<<10)})
	}
	w.device("loop7", 1<<20)
	scratch := w.flex(uid, "scratch", `{"type":"qcow2","capacity":"9MiB"}`)
	ceph := w.flex(uid, "ceph", `{"type":"ceph","monitor":"192.0.2.1:6789","pool":"rbd","volume":"vol","user":"muster","secret":"Z2VoZWlt","part":"0","kubernetes.io/readwrite":"ro"}`)
	data := w.path("srv", "data")
	must(w.t, os.MkdirAll(data, 0o755))
	s.Mounts = []spec.Mount{
		{Path: "/etc/conf", HostPath: w.configMap(uid, "kubernetes.io~configmap", "conf", map[string]string{"a": "1\n", "sub/b": "2\n"}), ReadOnly: true, Kind: spec.Copy},
		{Path: "/etc/hosts", HostPath: w.write("127.0.0.1 web\n", 0o644, "pods", uid, "etc-hosts"), Kind: spec.SingleFile},
		{Path: "/data", HostPath: data, ReadOnly: true},
		{Path: "/work", HostPath: data, Follow: true},
		{Path: "/scratch", HostPath: scratch},
		{Path: "/ceph", HostPath: ceph, ReadOnly: true},
	}
	return r
}
