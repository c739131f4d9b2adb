package volume

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"path"
	"strings"

	"github.com/muster-scheduler/muster/internal/vm"
	"github.com/muster-scheduler/muster/internal/vm/spec"
)

// Files that a pod wants in its root before the first boot are written by debugfs of e2fsprogs, as QEMU's user: nothing of a stranger's image is
// mounted, or read by this process beyond its partition table and the first block of a file system. debugfs wants a plain disk. A persistent
// root is one. For a root over an image the image is unpacked into a sparse file, and qemu-img then puts what differs into the overlay.

// makeRoot makes the overlay, with the pod's files if there are any.
func (s *site) makeRoot(ctx context.Context, name string, want overlay) error {
	if len(s.spec.Files) == 0 {
		return s.place(name, true, func(f file) error { return want.write(f) })
	}
	raw := s.file("unpacked" + partSuffix)
	f, err := s.host.Create(raw)
	if err != nil {
		return err
	}
	err = f.Truncate(s.image.VirtualSize)
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err == nil {
		err = s.give(raw)
	}
	if err == nil {
		err = s.options.copier(ctx, s.image, raw, 0)
	}
	if err == nil {
		err = s.options.inject(ctx, s, raw, 0, s.image.VirtualSize)
	}
	if err != nil {
		return err
	}
	over := want
	over.backing, over.backingFormat = raw, "raw"
	if err := s.place(name+".over"+partSuffix, true, func(f file) error { return over.write(f) }); err != nil {
		return err
	}
	if err := s.options.rebase(ctx, name+".over"+partSuffix, s.image); err != nil {
		return err
	}
	if f, err = s.host.Open(name+".over"+partSuffix, true, false); err != nil {
		return err
	}
	err = f.Sync()
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err == nil {
		err = s.host.Rename(name+".over"+partSuffix, name)
	}
	if err == nil {
		err = s.host.SyncDir(s.dir)
	}
	if err == nil {
		err = s.host.Remove(raw)
	}
	return err
}

// rebaseQEMU lets a disk lie over its image: what differs from what it lay over before goes into it.
func (o *Options) rebaseQEMU(ctx context.Context, disk string, image Image) error {
	_, err := run(ctx, o.QEMU, program(o.QEMUImg, "qemu-img"), "rebase", "-f", "qcow2", "-F", image.Format, "-b", image.Path, disk)
	return err
}

const (
	superblockAt  = 1024
	extMagicAt    = superblockAt + 0x38
	extIncompatAt = superblockAt + 0x60
	extMagic      = 0xef53
	needsRecovery = 4
	maxPartitions = 256
	injectedMode  = "0100644"
)

// fileSystems are the offsets of file systems of the ext family in a disk, the disk itself first, then its partitions in their order. They are
// found by an MBR's four primary partitions or by a GPT with sectors of 512 bytes.
func fileSystems(disk io.ReaderAt, size int64) (out []int64, dirty bool) {
	for _, at := range append([]int64{0}, partitions(disk, size)...) {
		b := make([]byte, extIncompatAt+4)
		if n, _ := disk.ReadAt(b, at); n < len(b) || binary.LittleEndian.Uint16(b[extMagicAt:]) != extMagic {
			continue
		}
		if binary.LittleEndian.Uint32(b[extIncompatAt:])&needsRecovery != 0 {
			dirty = true // what is written would be overwritten from its journal
			continue
		}
		out = append(out, at)
	}
	return out, dirty
}

func partitions(disk io.ReaderAt, size int64) []int64 {
	var out []int64
	add := func(lba uint64) {
		if lba > 0 && lba < uint64(size)/sector {
			out = append(out, int64(lba)*sector)
		}
	}
	mbr := make([]byte, sector)
	if n, _ := disk.ReadAt(mbr, 0); n < sector || mbr[510] != 0x55 || mbr[511] != 0xaa {
		return nil
	}
	for i := range 4 {
		entry := mbr[446+16*i:]
		switch entry[4] {
		case 0:
		case 0xee:
			return gpt(disk, add, &out)
		default:
			add(uint64(binary.LittleEndian.Uint32(entry[8:])))
		}
	}
	return out
}

func gpt(disk io.ReaderAt, add func(uint64), out *[]int64) []int64 {
	head := make([]byte, 92)
	if n, _ := disk.ReadAt(head, sector); n < len(head) || string(head[:8]) != "EFI PART" {
		return nil
	}
	at, number, length := binary.LittleEndian.Uint64(head[72:]), binary.LittleEndian.Uint32(head[80:]), binary.LittleEndian.Uint32(head[84:])
	if at > 1<<40 || length < 128 || length > 4096 {
		return nil
	}
	entry := make([]byte, length)
	for i := range min(number, maxPartitions) {
		if n, _ := disk.ReadAt(entry, int64(at)*sector+int64(i)*int64(length)); n < len(entry) {
			break
		}
		if strings.Trim(string(entry[:16]), "\x00") != "" {
			add(binary.LittleEndian.Uint64(entry[32:]))
		}
	}
	return *out
}

// injectExt is the inject of machines: it writes the pod's files into the first file system of a disk that has a directory /etc. The disk is
// size bytes at an offset of a file or device.
func (o *Options) injectExt(ctx context.Context, s *site, disk string, offset, size int64) error {
	f, err := s.host.Open(disk, false, false)
	if err != nil {
		return err
	}
	found, dirty := fileSystems(io.NewSectionReader(f, offset, size), size)
	if err := f.Close(); err != nil {
		return err
	}
	debugfs := func(args ...string) (string, error) {
		return run(ctx, o.QEMU, program(o.Debugfs, "debugfs"), args...)
	}
	for _, at := range found {
		where := fmt.Sprintf("%s?offset=%d", disk, offset+at)
		text, err := debugfs("-R", "stat /etc", where)
		if err != nil {
			return err
		}
		if !strings.Contains(text, "Type: directory") {
			continue
		}
		for i, file := range s.spec.Files {
			if err := s.injectOne(debugfs, where, i, file); err != nil {
				return fmt.Errorf("file %s: %w", file.Path, err)
			}
		}
		return nil
	}
	why := "has no such file system"
	if dirty {
		why = "has one that was not unmounted"
	}
	return vm.Errorf(vm.Invalid, "%s: files can be written into an ext2, ext3 or ext4 file system with a directory /etc, in the disk or in a primary or GPT partition of it; the image %s", spec.KeyFiles, why)
}

// injectOne writes one file. debugfs does not tell of failures by its exit code, so the file is read back.
func (s *site) injectOne(debugfs func(...string) (string, error), where string, i int, f spec.File) error {
	if strings.Contains(f.Path, `"`) {
		return vm.Errorf(vm.Invalid, "%s: a path must hold no quotation mark", spec.KeyFiles)
	}
	quoted := func(name string) string { return `"` + name + `"` } // debugfs knows no escapes
	content, script, back := s.file(fmt.Sprintf("file-%d%s", i, partSuffix)), s.file("script"+partSuffix), s.file("back"+partSuffix)
	var b strings.Builder
	dir := "/"
	for _, name := range strings.Split(strings.Trim(path.Dir(f.Path), "/"), "/") {
		if name == "" {
			continue
		}
		fmt.Fprintf(&b, "cd %s\nmkdir %s\n", quoted(path.Clean(dir)+"/."), quoted(name)) // fails where it is there; the dot follows a link
		dir = path.Join(dir, name)
	}
	base := quoted(path.Base(f.Path))
	for _, command := range []string{
		"cd " + quoted(dir+"/."), "rm " + base, "write " + quoted(content) + " " + base,
		"sif " + base + " mode " + injectedMode, "sif " + base + " uid 0", "sif " + base + " gid 0",
		"cd /", "dump " + quoted(f.Path) + " " + quoted(back),
	} {
		fmt.Fprintln(&b, command)
	}
	other := append([]byte("?"), f.Content...) // what is read back if nothing is
	for _, p := range []struct {
		name string
		text []byte
	}{{content, f.Content}, {script, []byte(b.String())}, {back, other}} {
		if err := s.place(p.name, true, func(out file) error { _, err := out.WriteAt(p.text, 0); return err }); err != nil {
			return err
		}
	}
	said, err := debugfs("-w", "-f", script, where)
	if err != nil {
		return err
	}
	got, err := s.host.Open(back, false, false)
	if err != nil {
		return err
	}
	read, err := io.ReadAll(io.NewSectionReader(got, 0, int64(len(other))))
	if closed := got.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return err
	}
	if string(read) != string(f.Content) {
		return vm.Errorf(vm.Invalid, "%s: the image's file system does not take it: %s", spec.KeyFiles, last(said))
	}
	for _, name := range []string{content, script, back} {
		if err := s.host.Remove(name); err != nil {
			return err
		}
	}
	return nil
}

// last is the last line that debugfs says of a failure: it repeats its commands, and a file's content is none of them.
func last(said string) string {
	lines := strings.Split(strings.TrimSpace(said), "\n")
	for i := len(lines) - 1; i >= 0; i-- {
		if line := strings.TrimSpace(lines[i]); line != "" && !strings.HasPrefix(line, "debugfs") {
			return line
		}
	}
	return "no reason was given"
}
