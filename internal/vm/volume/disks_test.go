package volume

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/muster-scheduler/muster/internal/vm"
	"github.com/muster-scheduler/muster/internal/vm/domain"
	"github.com/muster-scheduler/muster/internal/vm/spec"
)

func contextThatEnded(t *testing.T) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx, cancel
}

// header is Virtlet's, by its description: magic, version, digest, big-endian, 42 bytes.
func header(version uint16, digest string) []byte {
	b := []byte{0x26, 0x3d, 0xbe, 0x52, 0xba, 0x57, 0x67, 0x02, byte(version >> 8), byte(version)}
	sum, _ := hex.DecodeString(strings.TrimPrefix(digest, "sha256:"))
	return append(b, sum...)
}

// holdsRoot says whether a device is the whole persistent root of a raw image, and holds what was put into it.
func holdsRoot(t *testing.T, device string, image Image, injected string) {
	t.Helper()
	got, err := os.ReadFile(device)
	must(t, err)
	want, err := os.ReadFile(image.Path)
	must(t, err)
	copy(want[injectedAt:], injected)
	first := append(header(1, image.Digest), make([]byte, 512-42)...)
	if !bytes.Equal(got[:512], first) {
		t.Errorf("the header is %x", got[:64])
	}
	if !bytes.Equal(got[512:512+len(want)], want) {
		t.Error("it does not hold the image")
	}
}

// TestPersistentRoot: which devices are written, and which are kept.
func TestPersistentRoot(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		begins func(image Image) []byte
		kept   bool
		fails  string
	}{
		"blank":         {begins: func(Image) []byte { return nil }},
		"other data":    {begins: func(Image) []byte { return []byte("somebody's file system") }},
		"same image":    {begins: func(i Image) []byte { return header(1, i.Digest) }, kept: true},
		"other image":   {begins: func(Image) []byte { return header(1, "sha256:"+strings.Repeat("00", 32)) }},
		"other version": {begins: func(i Image) []byte { return header(2, i.Digest) }, kept: true, fails: "has a header of version 2: must be 1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newFakeHost(t)
			r := w.everything("3f1c", "0f1e", true)
			device := w.path("dev", "root-0f1e")
			f, err := os.OpenFile(device, os.O_RDWR, 0)
			must(t, err)
			_, err = f.WriteAt(c.begins(r.Image), 0)
			must(t, err)
			f.Close()
			before, err := os.ReadFile(device)
			must(t, err)
			v, err := w.alive().Setup(t.Context(), r)
			if c.fails != "" {
				if err == nil || !strings.Contains(err.Error(), c.fails) || vm.KindOf(err) != vm.Invalid {
					t.Error(err)
				}
			} else if must(t, err); *v.Disks[0].Slice != (domain.Slice{Offset: 512, Size: 64<<10 - 512}) {
				t.Errorf("%+v", v.Disks[0].Slice)
			}
			if after, err := os.ReadFile(device); err != nil || bytes.Equal(before, after) != c.kept {
				t.Errorf("kept %v, must be %v (%v)", !c.kept, c.kept, err)
			}
			if !c.kept {
				holdsRoot(t, device, r.Image, "injected")
			}
		})
	}
}

// TestHalfWritten: a copy that fails leaves no header, and the next pod copies anew.
func TestHalfWritten(t *testing.T) {
	t.Parallel()
	w := newFakeHost(t)
	r := w.everything("3f1c", "0f1e", true)
	device := w.path("dev", "root-0f1e")
	_, err := w.alive().Setup(t.Context(), r)
	must(t, err)
	must(t, w.alive().Teardown(t.Context(), "3f1c"))
	other := w.everything("3f1d", "0f1e", true)
	other.Image = w.image("other", 9)
	_, err = w.alive(func(o *Options) {
		o.copier = func(context.Context, Image, string, int64) error { return errFailed }
	}).Setup(t.Context(), other)
	if !errors.Is(err, errFailed) {
		t.Fatal(err)
	}
	got, err := os.ReadFile(device)
	must(t, err)
	if !bytes.Equal(got[:512], make([]byte, 512)) {
		t.Errorf("a half has the header %x", got[:42])
	}
	_, err = w.alive().Setup(t.Context(), other)
	must(t, err)
	holdsRoot(t, device, other.Image, "injected")
}

// readQCOW2 reads a disk by the format's description alone: cluster by cluster through L1 and L2, with what lies below. Every cluster
// of the file must be counted once, and used at most once.
func readQCOW2(t *testing.T, path string, below io.ReaderAt) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	must(t, err)
	be := binary.BigEndian
	if string(b[:4]) != "QFI\xfb" || be.Uint32(b[4:]) != 3 || be.Uint32(b[96:]) != 4 {
		t.Fatal("it is no qcow2 of version 3 with counters of 16 bits")
	}
	size := 1 << be.Uint32(b[20:])
	used := map[int]string{}
	use := func(what string, at, bytes int) []byte {
		if at%size != 0 || at+bytes > (len(b)+size-1)/size*size {
			t.Fatalf("%s at %d leaves the file", what, at)
		}
		for c := at / size; c*size < at+bytes; c++ {
			if used[c] != "" {
				t.Fatalf("cluster %d is %s, and %s", c, used[c], what)
			}
			used[c] = what
		}
		return b[at:min(len(b), at+bytes)]
	}
	use("header", 0, size)
	refTable := use("refcount table", int(be.Uint64(b[48:])), int(be.Uint32(b[56:]))*size)
	counts := map[int]uint16{}
	for i := 0; i+8 <= len(refTable); i += 8 {
		if at := be.Uint64(refTable[i:]); at != 0 {
			block := use("refcount block", int(at), size)
			for k := 0; k < size; k += 2 {
				if n := be.Uint16(block[k:]); n > 0 {
					counts[i/8*size/2+k/2] = n
				}
			}
		}
	}
	out := make([]byte, be.Uint64(b[24:]))
	if below != nil {
		_, _ = below.ReadAt(out, 0)
	}
	l1 := use("L1", int(be.Uint64(b[40:])), int(be.Uint32(b[36:]))*8)
	for i := 0; i+8 <= len(l1); i += 8 {
		e := be.Uint64(l1[i:])
		if e == 0 {
			continue
		}
		l2 := use("L2", int(e&0x00fffffffffffe00), size)
		for k := 0; k < size; k += 8 {
			e := be.Uint64(l2[k:])
			if e == 0 {
				continue
			}
			if e>>63 != 1 || e&(1<<62) != 0 {
				t.Fatalf("entry %#x", e)
			}
			at := (i/8*(size/8) + k/8) * size
			copy(out[at:], use("data", int(e&0x00fffffffffffe00), size))
		}
	}
	for c := range used {
		if counts[c] != 1 {
			t.Errorf("cluster %d (%s) is counted %d times", c, used[c], counts[c])
		}
	}
	if len(counts) != len(used) {
		t.Errorf("%d clusters are counted, %d used", len(counts), len(used))
	}
	return out
}

// TestQCOW2: disks that are written are those that are read, by a reader of its own and by qemu-img.
func TestQCOW2(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	for i := range 12 {
		dir := t.TempDir()
		size := int64(1+random.IntN(3000)) * 4096
		want := make([]byte, size)
		name := filepath.Join(dir, "disk.qcow2")
		o := overlay{size: size}
		if i%3 == 2 {
			o.backing, o.backingFormat = filepath.Join(dir, "below.raw"), "raw"
			for k := range want[:size/2/512*512] {
				want[k] = byte(random.Uint32())
			}
			must(t, os.WriteFile(o.backing, want[:size/2/512*512], 0o644))
		} else {
			for at := int64(0); at < size; at += cluster {
				if random.IntN(3) == 0 {
					for k := at; k < min(at+cluster, size); k++ {
						want[k] = byte(random.Uint32())
					}
					o.content = append(o.content, extent{at: at, from: bytes.NewReader(want)})
				}
			}
		}
		f, err := os.Create(name)
		must(t, err)
		must(t, o.write(f))
		f.Close()
		var below io.ReaderAt
		if o.backing != "" {
			b, err := os.Open(o.backing)
			must(t, err)
			defer b.Close()
			below = b
		}
		if !bytes.Equal(readQCOW2(t, name, below), want) {
			t.Errorf("disk %d is not what was written", i)
		}
		qemuAgrees(t, name, want)
	}
}

func qemuAgrees(t *testing.T, name string, want []byte) {
	t.Helper()
	if _, err := exec.LookPath("qemu-img"); err != nil {
		t.Log("NOT CHECKED with qemu-img, which is not here")
		return
	}
	for _, args := range [][]string{{"check", "-f", "qcow2", name}, {"convert", "-f", "qcow2", "-O", "raw", name, name + ".raw"}} {
		if out, err := exec.Command("qemu-img", args...).CombinedOutput(); err != nil {
			t.Fatalf("qemu-img %q: %v: %s", args, err, out)
		}
	}
	if got, err := os.ReadFile(name + ".raw"); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s: qemu-img reads something else (%v)", name, err)
	}
}

// TestLargest: a disk of 1 TiB is 3 MiB of tables at the most.
func TestLargest(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), "d")
	f, err := os.Create(name)
	must(t, err)
	defer f.Close()
	must(t, overlay{size: 1 << 40}.write(f))
	if info, err := f.Stat(); err != nil || info.Size() > 3<<20 {
		t.Errorf("%d bytes, %v", info.Size(), err)
	}
	for _, o := range []overlay{{size: 0}, {size: 513}, {size: 1 << 62}, {size: 512, backing: "json:{}"}, {size: 512, backing: "/" + strings.Repeat("x", 1023)}, {size: 512, content: []extent{{at: 65536}}}} {
		if o.write(f) == nil {
			t.Errorf("%+v is written", o)
		}
	}
}

// TestConvert: qemu-img unpacks an image behind the header, zeros too.
func TestConvert(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("qemu-img"); err != nil {
		t.Skip("NOT CHECKED: there is no qemu-img")
	}
	dir := t.TempDir()
	content := make([]byte, 300<<10)
	copy(content[200<<10:], "far behind")
	image := Image{Path: filepath.Join(dir, "an,image"), Format: "qcow2", VirtualSize: int64(len(content))}
	f, err := os.Create(image.Path)
	must(t, err)
	must(t, overlay{size: image.VirtualSize, content: []extent{{at: 192 << 10, from: bytes.NewReader(content)}}}.write(f))
	f.Close()
	device := filepath.Join(dir, "de,vice")
	must(t, os.WriteFile(device, bytes.Repeat([]byte{0xff}, 400<<10), 0o600))
	o := &Options{}
	must(t, o.convert(t.Context(), image, device, 512))
	got, err := os.ReadFile(device)
	must(t, err)
	if !bytes.Equal(got[512:512+len(content)], content) {
		t.Error("the image is not there")
	}
	if rest := append(got[:512:512], got[512+len(content):]...); !bytes.Equal(rest, bytes.Repeat([]byte{0xff}, len(rest))) {
		t.Error("something beside it was written")
	}
	image.Path += "-gone"
	if err := o.convert(t.Context(), image, device, 512); err == nil || !strings.Contains(err.Error(), "qemu-img: exit status 1: qemu-img: Could not open") {
		t.Error(err)
	}
}

// TestFormatted: a FlexVolume of type qcow2 has a partition with an ext4 file system that is sound.
func TestFormatted(t *testing.T) {
	t.Parallel()
	for _, program := range []string{"mkfs.ext4", "e2fsck", "qemu-img"} {
		if _, err := exec.LookPath(program); err != nil {
			if _, err := os.Stat("/usr/sbin/" + program); err != nil {
				t.Skip("NOT CHECKED: there is no " + program)
			}
		}
	}
	w := newFakeHost(t)
	r := w.everything("3f1c", "0f1e", false)
	r.Spec.Mounts, r.Spec.Blocks = nil, nil
	w.flex("0f1e", "scratch", `{"type":"qcow2","capacity":"300MiB"}`)
	v, err := w.alive(func(o *Options) { o.format = nil }).Setup(t.Context(), r)
	must(t, err)
	disk := v.Disks[2]
	raw := w.path("raw")
	if out, err := exec.Command("qemu-img", "convert", "-f", "qcow2", "-O", "raw", disk.File, raw).CombinedOutput(); err != nil {
		t.Fatal(string(out))
	}
	info, err := os.Stat(disk.File)
	must(t, err)
	if info.Size() > 20<<20 {
		t.Errorf("an empty disk takes %d bytes", info.Size())
	}
	f, err := os.Open(raw)
	must(t, err)
	defer f.Close()
	head := make([]byte, 512)
	_, err = f.ReadAt(head, 0)
	must(t, err)
	entry := head[446:462]
	if head[510] != 0x55 || head[511] != 0xaa || entry[4] != 0x83 || binary.LittleEndian.Uint32(entry[8:]) != 2048 || binary.LittleEndian.Uint32(entry[12:]) != (300-1)*2048 {
		t.Errorf("MBR %x", entry)
	}
	if out, err := exec.Command("/bin/sh", "-c", "PATH=$PATH:/usr/sbin e2fsck -fn '"+raw+"?offset=1048576'").CombinedOutput(); err != nil {
		t.Errorf("e2fsck: %v: %s", err, out)
	}
}

// loop makes a loop device over a file, or skips.
func loop(t *testing.T, size int64) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("NOT CHECKED: loop devices need root")
	}
	name := filepath.Join(t.TempDir(), "disk")
	must(t, os.WriteFile(name, nil, 0o600))
	must(t, os.Truncate(name, size))
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		t.Skip("NOT CHECKED: " + err.Error())
	}
	defer control.Close()
	backing, err := os.OpenFile(name, os.O_RDWR, 0)
	must(t, err)
	defer backing.Close()
	for range 16 { // somebody else may take it first
		n, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
		if err != nil {
			t.Skip("NOT CHECKED: " + err.Error())
		}
		path := "/dev/loop" + strconv.Itoa(n)
		d, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			t.Skip("NOT CHECKED: " + err.Error())
		}
		err = unix.IoctlSetInt(int(d.Fd()), unix.LOOP_SET_FD, int(backing.Fd()))
		if errors.Is(err, unix.EBUSY) {
			d.Close()
			continue
		}
		must(t, err)
		t.Cleanup(func() {
			if err := unix.IoctlSetInt(int(d.Fd()), unix.LOOP_CLR_FD, 0); err != nil {
				t.Errorf("%s is held: %v", path, err)
			}
			d.Close()
		})
		return path
	}
	t.Skip("NOT CHECKED: no loop device is free")
	return ""
}

// TestRealDevices: block devices of the kernel, and qemu-img as another user, as root.
func TestRealDevices(t *testing.T) {
	t.Parallel()
	root, data := loop(t, 4<<20), loop(t, 1<<20)
	if _, err := exec.LookPath("qemu-img"); err != nil {
		t.Skip("NOT CHECKED: there is no qemu-img")
	}
	w := newFakeHost(t)
	must(t, os.Chmod(w.base, 0o755))
	link := w.path("srv", "link")
	must(t, os.Symlink(data, link))
	r := w.everything("3f1c", "0f1e", false)
	r.Spec.Mounts, r.Spec.Files = nil, nil
	must(t, os.RemoveAll(w.path("pods", "0f1e")))
	r.Spec.Blocks = []spec.Block{{DevicePath: "/", HostPath: root}, {DevicePath: "/dev/data", HostPath: link}}
	real := func(o *Options) { o.host, o.copier, o.QEMU = machine{}, nil, &Owner{UID: 65534, GID: 65534} }
	m := w.alive(real)
	v, err := m.Setup(t.Context(), r)
	if errors.Is(err, os.ErrPermission) {
		t.Skip("NOT CHECKED: " + err.Error())
	}
	must(t, err)
	for i, from := range []string{root, data} {
		var a, b unix.Stat_t
		must(t, unix.Stat(from, &a))
		must(t, unix.Lstat(v.Disks[i].Block, &b))
		if a.Rdev != b.Rdev || b.Mode != unix.S_IFBLK|0o600 || b.Uid != 65534 {
			t.Errorf("%s: %+v", v.Disks[i].Block, b)
		}
	}
	holdsRoot4(t, root, r.Image)
	other := w.everything("b", "other", false)
	other.Spec.Mounts, other.Spec.Files, other.Spec.Blocks = nil, nil, r.Spec.Blocks[1:]
	must(t, os.RemoveAll(w.path("pods", "other")))
	if _, err := m.Setup(t.Context(), other); vm.KindOf(err) != vm.Conflict {
		t.Errorf("another pod's: %v", err)
	}
	must(t, m.Teardown(t.Context(), "3f1c"))
	if left := w.clean(); left != "" {
		t.Error(left)
	}
	// A FlexVolume of type raw, by the node's list.
	raw := other
	raw.Spec.Blocks = nil
	w.flex("other", "raw", `{"type":"raw","path":"`+data+`"}`)
	v, err = m.Setup(t.Context(), raw)
	must(t, err)
	if d := v.Disks[1]; d.Block != w.path("v", "b", "001-flex", "disk") || d.Serial != "flex-0" {
		t.Errorf("%+v", d)
	}
	must(t, m.Teardown(t.Context(), "b"))
	must(t, os.RemoveAll(w.path("pods", "other")))
	other.Spec.Blocks = r.Spec.Blocks[1:]
	// A device that is mounted is nobody's disk.
	if out, err := exec.Command("/bin/sh", "-c", "PATH=$PATH:/usr/sbin mkfs.ext4 -q -F "+data).CombinedOutput(); err != nil {
		t.Skipf("NOT CHECKED for a mounted device: %s", out)
	}
	at := w.path("mnt")
	must(t, os.Mkdir(at, 0o755))
	if err := unix.Mount(data, at, "ext4", 0, ""); err != nil {
		t.Skipf("NOT CHECKED for a mounted device: %v", err)
	}
	defer func() { must(t, unix.Unmount(at, 0)) }()
	if _, err := m.Setup(t.Context(), other); vm.KindOf(err) != vm.Conflict || !strings.Contains(fmt.Sprint(err), "is mounted on the node") {
		t.Errorf("a mounted device: %v", err)
	}
}

// holdsRoot4 reads a device through its file: what the kernel has of the one is not of the other before it is synced, which it was.
func holdsRoot4(t *testing.T, device string, image Image) {
	t.Helper()
	copied := filepath.Join(t.TempDir(), "copy")
	in, err := os.Open(device)
	must(t, err)
	defer in.Close()
	b, err := io.ReadAll(in)
	must(t, err)
	must(t, os.WriteFile(copied, b, 0o600))
	holdsRoot(t, copied, image, "")
}
