package volume

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/muster-scheduler/muster/internal/vm"
)

const (
	partitionAt  = 1 << 20 // where the only partition of a new disk begins
	minFormatted = 8 << 20 // ext4 with a journal needs about 2 MiB
	maxFormatted = sector * (1<<32 - 1)
)

// formatted makes a disk with an MBR and one partition, an empty ext4 file system. The file system is made in a sparse file, whose data then goes
// into the qcow2 image.
func (s *site) formatted(ctx context.Context, name string, size int64) error {
	if size > maxFormatted {
		return vm.Errorf(vm.Invalid, "option capacity: is %d bytes, and a disk with an MBR has at most %d", size, int64(maxFormatted))
	}
	raw := s.file("format" + partSuffix)
	f, err := s.host.Create(raw)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := f.Truncate(size); err != nil {
		return err
	}
	length := (size - partitionAt) / 4096 * 4096
	if _, err := f.WriteAt(mbr(partitionAt/sector, length/sector), 0); err != nil {
		return err
	}
	if err := s.options.format(ctx, raw, partitionAt, length); err != nil {
		return err
	}
	content, err := data(f, size)
	if err != nil {
		return err
	}
	if err := s.place(name, true, func(to file) error { return overlay{size: size, content: content}.write(to) }); err != nil {
		return err
	}
	return s.host.Remove(raw)
}

// mbr is a boot sector that boots nothing, with one Linux partition. Addresses by cylinder, head and sector say "too large".
func mbr(start, length int64) []byte {
	b := make([]byte, sector)
	entry := b[446:]
	copy(entry[1:], []byte{0xfe, 0xff, 0xff})
	entry[4] = 0x83
	copy(entry[5:], []byte{0xfe, 0xff, 0xff})
	binary.LittleEndian.PutUint32(entry[8:], uint32(start))
	binary.LittleEndian.PutUint32(entry[12:], uint32(length))
	b[510], b[511] = 0x55, 0xaa
	return b
}

// data are the clusters of a sparse file that hold anything.
func data(f file, size int64) ([]extent, error) {
	var out []extent
	buffer := make([]byte, cluster)
	zeros := make([]byte, cluster)
	for at := int64(0); at < size; {
		start, err := unix.Seek(int(f.Fd()), at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			break // there is no more
		} else if err != nil {
			return nil, os.NewSyscallError("lseek", err)
		}
		end, err := unix.Seek(int(f.Fd()), start, unix.SEEK_HOLE)
		if err != nil {
			return nil, os.NewSyscallError("lseek", err)
		}
		start = start / cluster * cluster
		for ; start < end; start += cluster {
			if len(out) > 0 && out[len(out)-1].at >= start {
				continue
			}
			clear(buffer)
			if _, err := f.ReadAt(buffer, start); err != nil && !errors.Is(err, io.EOF) {
				return nil, err
			}
			if !bytes.Equal(buffer, zeros) {
				out = append(out, extent{at: start, from: f})
			}
		}
		at = start
	}
	return out, nil
}

// mkfs is the format of machines: mkfs.ext4 of e2fsprogs, which writes nothing outside the part.
func (o *Options) mkfs(ctx context.Context, path string, offset, size int64) error {
	_, err := run(ctx, nil, program(o.Mkfs, "mkfs.ext4"), "-q", "-F", "-E", fmt.Sprintf("offset=%d,lazy_itable_init=1,lazy_journal_init=1,nodiscard", offset), path, fmt.Sprintf("%dk", size>>10))
	return err
}

// program is the one that is configured, or one of a name: PATH of a daemon may lack the directories of root's programs.
func program(configured, name string) string {
	if configured != "" {
		return configured
	}
	if _, err := exec.LookPath(name); err == nil {
		return name
	}
	for _, dir := range []string{"/usr/sbin", "/sbin"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err == nil {
			return filepath.Join(dir, name)
		}
	}
	return name
}

// convert is the copier of machines: qemu-img, as QEMU's user, told the format of everything. It writes every byte of the disk, zeros too.
func (o *Options) convert(ctx context.Context, image Image, device string, offset int64) error {
	driver := "host_device"
	if info, err := os.Stat(device); err == nil && info.Mode().IsRegular() {
		driver = "file"
	}
	_, err := run(ctx, o.QEMU, program(o.QEMUImg, "qemu-img"), "convert", "-n", "--image-opts", "--target-image-opts",
		fmt.Sprintf("driver=%s,file.driver=file,file.filename=%s", image.Format, escaped(image.Path)),
		fmt.Sprintf("driver=raw,offset=%d,size=%d,file.driver=%s,file.filename=%s", offset, image.VirtualSize, driver, escaped(device)))
	return err
}

// escaped is a value of QEMU's option lists.
func escaped(s string) string { return strings.ReplaceAll(s, ",", ",,") }

// run runs a program to its end, and gives the last of what it says. It dies with this process: nobody writes to a device any more when another begins to.
func run(ctx context.Context, as *Owner, program string, args ...string) (string, error) {
	// The kernel tells of the death of the thread that started it, so this one stays.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	said := &tail{}
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C"}
	cmd.Dir, cmd.Stdout, cmd.Stderr = "/", said, said
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if as != nil && os.Geteuid() == 0 {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(as.UID), Gid: uint32(as.GID)}
	}
	err := cmd.Run()
	text := strings.TrimSpace(string(said.text))
	if err != nil {
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return "", fmt.Errorf("%s: %w: %s", filepath.Base(program), err, text)
	}
	return text, nil
}

// tail keeps the last of what a program says.
type tail struct{ text []byte }

func (t *tail) Write(b []byte) (int, error) {
	const most = 2048
	t.text = append(t.text, b[max(0, len(b)-most):]...)
	t.text = t.text[max(0, len(t.text)-most):]
	return len(b), nil
}
