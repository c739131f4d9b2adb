package volume

import (
	"bytes"
	"encoding/binary"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/muster-scheduler/muster/internal/vm"
	"github.com/muster-scheduler/muster/internal/vm/spec"
)

// shell runs a line that may use root's programs.
func shell(t *testing.T, line string, args ...string) string {
	t.Helper()
	cmd := exec.Command("/bin/sh", append([]string{"-c", "PATH=$PATH:/usr/sbin:/sbin; " + line, "sh"}, args...)...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %q: %v: %s", line, args, err, out)
	}
	return string(out)
}

// extImage is an image with an ext4 file system in its second partition; the first has none.
func (w *fakeHost) extImage() Image {
	w.t.Helper()
	w.write("image", 0o644, "tree", "etc", "motd")
	must(w.t, os.Symlink("usr/local", w.path("tree", "link")))
	must(w.t, os.MkdirAll(w.path("tree", "usr", "local"), 0o755))
	raw := w.write("", 0o644, "images", "ext.raw")
	must(w.t, os.Truncate(raw, 24<<20))
	table := mbr(2048, 2048)
	second := table[446+16:]
	second[4] = 0x83
	binary.LittleEndian.PutUint32(second[8:], 4096)
	binary.LittleEndian.PutUint32(second[12:], 20<<11)
	f, err := os.OpenFile(raw, os.O_RDWR, 0)
	must(w.t, err)
	_, err = f.WriteAt(table, 0)
	must(w.t, err)
	f.Close()
	shell(w.t.(*testing.T), `mkfs.ext4 -q -F -E offset=2097152 -d "$1" "$2" 20480k`, w.path("tree"), raw)
	image := Image{Path: w.path("images", "ext.qcow2"), Format: "qcow2", VirtualSize: 24 << 20, Digest: "sha256:" + strings.Repeat("ab", 32)}
	shell(w.t.(*testing.T), `qemu-img convert -f raw -O qcow2 "$1" "$2"`, raw, image.Path)
	return image
}

// TestInject: files are in the root, over the image and on a device, its file system is sound, and the image is as it was.
func TestInject(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"mkfs.ext4", "debugfs", "e2fsck", "qemu-img"} {
		if program("", name) == name {
			if _, err := exec.LookPath(name); err != nil {
				t.Skip("NOT CHECKED: there is no " + name)
			}
		}
	}
	for _, persistent := range []bool{false, true} {
		w := newFakeHost(t)
		r := w.everything("3f1c", "0f1e", false)
		r.Spec.Mounts, r.Spec.Blocks = nil, nil
		must(t, os.RemoveAll(w.path("pods", "0f1e")))
		r.Image = w.extImage()
		before, err := os.ReadFile(r.Image.Path)
		must(t, err)
		if persistent {
			r.Spec.Blocks = []spec.Block{{DevicePath: "/", HostPath: w.device("root", 25<<20)}}
		}
		large := bytes.Repeat([]byte("0123456789abcde\n"), 20000)
		r.Spec.Files = []spec.File{
			{Path: "/etc/empty", Content: nil},
			{Path: "/etc/motd", Content: []byte("ours\n")},
			{Path: "/link/a b/c\\d/größe", Content: large},
			{Path: "/new", Content: []byte{0, 255}},
		}
		real := func(o *Options) { o.copier, o.inject, o.rebase = nil, nil, nil }
		v, err := w.alive(real).Setup(t.Context(), r)
		must(t, err)
		raw := w.path("raw")
		if persistent {
			shell(t, `dd if="$1" of="$2" bs=512 skip=1 status=none`, v.Disks[0].Block, raw)
		} else {
			shell(t, `qemu-img check -q -f qcow2 "$1" && qemu-img convert -f qcow2 -O raw "$1" "$2"`, v.Disks[0].File, raw)
			if info, err := os.Stat(v.Disks[0].File); err != nil || info.Size() > 6<<20 {
				t.Errorf("the overlay has %d bytes (%v): more than what differs", info.Size(), err)
			}
		}
		fs := raw + "?offset=2097152"
		shell(t, `e2fsck -fn "$1"`, fs)
		for path, want := range map[string][]byte{"/etc/empty": nil, "/etc/motd": []byte("ours\n"), "/usr/local/a b/c\\d/größe": large, "/new": {0, 255}} {
			if got := shell(t, `debugfs -R "$2" "$1" 2>/dev/null`, fs, `cat "`+path+`"`); got != string(want) {
				t.Errorf("%s holds %d bytes, must hold %d", path, len(got), len(want))
			}
			if got := shell(t, `debugfs -R "$2" "$1" 2>/dev/null`, fs, `stat "`+path+`"`); !strings.Contains(got, "Mode:  0644") || !strings.Contains(got, "User:     0   Group:     0") {
				t.Errorf("%s: %s", path, got)
			}
		}
		if after, err := os.ReadFile(r.Image.Path); err != nil || !bytes.Equal(before, after) {
			t.Errorf("the image was written (%v)", err)
		}
		for _, f := range w.files() {
			if strings.Contains(f, partSuffix) {
				t.Errorf("left: %s", f)
			}
		}
		must(t, w.alive().Teardown(t.Context(), "3f1c"))
		if left := w.clean(); left != "" {
			t.Error(left)
		}
		// What the file system cannot take is said, and leaves nothing.
		for path, want := range map[string]string{"/etc": "the image's file system does not take it", `/a"b`: "a path must hold no quotation mark", "/etc/motd/x": "the image's file system does not take it"} {
			r.Spec.Files = []spec.File{{Path: path, Content: []byte("x")}}
			if persistent {
				r.Image.Digest = "sha256:" + strings.Repeat("cd", 32)
			}
			if _, err := w.alive(real).Setup(t.Context(), r); vm.KindOf(err) != vm.Invalid || !strings.Contains(err.Error(), "file "+path+": VirtletFilesFromDataSource: "+want) {
				t.Errorf("%s: %v", path, err)
			}
			if left := w.clean(); left != "" {
				t.Error(left)
			}
		}
	}
}

// TestInjectNowhere: an image without a file system for it is refused by name.
func TestInjectNowhere(t *testing.T) {
	t.Parallel()
	w := newFakeHost(t)
	r := w.everything("3f1c", "0f1e", false)
	_, err := w.alive(func(o *Options) { o.inject = nil }).Setup(t.Context(), r)
	if vm.KindOf(err) != vm.Invalid || !strings.Contains(err.Error(), "root: VirtletFilesFromDataSource: ") || !strings.Contains(err.Error(), "has no such file system") {
		t.Error(err)
	}
}

// FuzzFileSystems: whatever a disk says of its partitions, what is found lies in it.
func FuzzFileSystems(f *testing.F) {
	disk := make([]byte, 8192)
	copy(disk, mbr(4, 8))
	binary.LittleEndian.PutUint16(disk[4*512+extMagicAt:], extMagic)
	f.Add(disk)
	table := bytes.Clone(disk)
	table[446+4] = 0xee
	copy(table[512:], "EFI PART")
	binary.LittleEndian.PutUint64(table[512+72:], 2)
	binary.LittleEndian.PutUint32(table[512+80:], 4)
	binary.LittleEndian.PutUint32(table[512+84:], 128)
	table[1024] = 1
	binary.LittleEndian.PutUint64(table[1024+32:], 4)
	f.Add(table)
	if found, _ := fileSystems(bytes.NewReader(table), int64(len(table))); len(found) != 1 || found[0] != 2048 {
		f.Fatal(found)
	}
	f.Fuzz(func(t *testing.T, disk []byte) {
		found, _ := fileSystems(bytes.NewReader(disk), int64(len(disk)))
		for _, at := range found {
			if at < 0 || at+superblockAt > int64(len(disk)) {
				t.Fatal(at)
			}
		}
		if len(found) > maxPartitions+1 {
			t.Fatal(len(found))
		}
	})
}
