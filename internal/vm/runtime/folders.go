package runtime

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"

	"golang.org/x/sys/unix"

	"github.com/muster-scheduler/muster/internal/vm"
	"github.com/muster-scheduler/muster/internal/vm/cloudinit"
	"github.com/muster-scheduler/muster/internal/vm/domain"
)

// DiskFolders keeps each container's small files in a folder of its own below Dir, and its sockets below Sockets, whose path may be short: a
// socket's has to have at most 107 bytes. Both are this program's alone.
type DiskFolders struct {
	Dir, Sockets string
	// UID and GID are QEMU's, which owns what it opens. -1 leaves it to whoever runs this, and mounts nothing: what a guest writes to its exit port is not bounded
	// then.
	UID, GID int
}

// exitLimit is how much of what a guest writes to its exit port is looked at.
const exitLimit = 64

var folderName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,127}$`)

// OpenFolders makes the two folders if need be.
func OpenFolders(d DiskFolders) (*DiskFolders, error) {
	for name, dir := range map[string]string{"folder of containers": d.Dir, "folder of sockets": d.Sockets} {
		if !filepath.IsAbs(dir) || filepath.Clean(dir) != dir {
			return nil, vm.Errorf(vm.Invalid, "%s %q: must be an absolute path without '..'", name, dir)
		}
		if err := os.MkdirAll(dir, 0o711); err != nil {
			return nil, err
		}
	}
	if n := len(d.sockets("x")) + len("/vnc"); n > 107 {
		return nil, vm.Errorf(vm.Invalid, "folder of sockets %q: a socket in it has a path of %d bytes, which must be at most 107", d.Sockets, n)
	}
	return &d, nil
}

// sockets is the folder of a container's sockets: its name is short, and no two containers have the same.
func (d DiskFolders) sockets(id string) string {
	sum := sha256.Sum256([]byte(id))
	return filepath.Join(d.Sockets, hex.EncodeToString(sum[:8]))
}

// Screen is the path of the socket of a container's screen, where its pod asked for one.
func (d DiskFolders) Screen(id string) string { return filepath.Join(d.sockets(id), "vnc") }

func (d DiskFolders) folder(id string) (string, error) {
	if !folderName.MatchString(id) {
		return "", vm.Errorf(vm.Invalid, "container %q: no id for a folder", id)
	}
	return filepath.Join(d.Dir, id), nil
}

// Make writes first-boot data and what the exit code's pipe consists of: a FIFO that nobody writes to, and a file. Both may be secret: only QEMU's user reads them.
func (d DiskFolders) Make(_ context.Context, id string, data *cloudinit.Data) (iso string, paths domain.Paths, err error) {
	dir, err := d.folder(id)
	if err != nil {
		return "", paths, err
	}
	iso = filepath.Join(dir, "first-boot.iso")
	paths = domain.Paths{Exit: filepath.Join(dir, "exit", "port"), Serial: filepath.Join(dir, "serial"), VNC: d.Screen(id)}
	// QEMU makes its sockets itself. In the folder it can replace nothing: what is there has owners of its own.
	if err := errors.Join(os.MkdirAll(dir, 0o711), os.MkdirAll(d.sockets(id), 0o700)); err != nil { //nolint:gosec // it is passed through
		return "", paths, err
	}
	if err := cloudinit.WriteISO(iso, data); err != nil {
		return "", paths, err
	}
	if err := os.Chmod(iso, 0o400); err != nil {
		return "", paths, err
	}
	if err := d.exitFolder(filepath.Dir(paths.Exit)); err != nil {
		return "", paths, err
	}
	if err := os.WriteFile(paths.Exit+".out", nil, 0o600); err != nil {
		return "", paths, err
	}
	if err := unix.Mkfifo(paths.Exit+".in", 0o600); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", paths, err
	}
	if d.UID >= 0 {
		for _, p := range []string{iso, paths.Exit + ".in", paths.Exit + ".out", d.sockets(id)} {
			if err := os.Lchown(p, d.UID, d.GID); err != nil {
				return "", paths, err
			}
		}
	}
	return iso, paths, nil
}

// exitFolder makes the folder of the exit port's files: a file system in memory that has room for one page. A guest can write there as fast and as long
// as it likes, whether this process is there or not, and what it wrote first stays.
func (d DiskFolders) exitFolder(path string) error {
	if err := os.MkdirAll(path, 0o711); err != nil { //nolint:gosec // it is passed through
		return err
	}
	if d.UID < 0 {
		return nil
	}
	var above, here unix.Stat_t
	if err := errors.Join(unix.Stat(filepath.Dir(path), &above), unix.Stat(path, &here)); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if here.Dev != above.Dev {
		return nil // it was mounted before
	}
	if err := unix.Mount("muster-vm-exit", path, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "size=4096,nr_inodes=4,mode=0711"); err != nil {
		return fmt.Errorf("mount at %s: %w", path, err)
	}
	return nil
}

// ExitText reads the beginning of what the guest wrote. QEMU's user could have put something else in the file's place: links, devices and
// pipes are not followed, opened or waited for.
func (d DiskFolders) ExitText(_ context.Context, id string) ([]byte, error) {
	dir, err := d.folder(id)
	if err != nil {
		return nil, err
	}
	f, err := openRegular(filepath.Join(dir, "exit", "port.out"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, vm.Errorf(vm.NotFound, "exit code of container %s: there is no file", id)
	}
	if err != nil {
		return nil, fmt.Errorf("exit code of container %s: %w", id, err)
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, exitLimit))
}

// Remove removes the folder and the sockets.
func (d DiskFolders) Remove(_ context.Context, id string) error {
	dir, err := d.folder(id)
	if err != nil {
		return err
	}
	if d.UID >= 0 {
		if err := unix.Unmount(filepath.Join(dir, "exit"), unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("unmount %s: %w", filepath.Join(dir, "exit"), err)
		}
	}
	return errors.Join(os.RemoveAll(d.sockets(id)), os.RemoveAll(dir))
}

// List gives the ids that have a folder.
func (d DiskFolders) List(context.Context) ([]string, error) {
	entries, err := os.ReadDir(d.Dir)
	if err != nil {
		return nil, err
	}
	out := []string{}
	for _, e := range entries {
		if folderName.MatchString(e.Name()) {
			out = append(out, e.Name())
		}
	}
	return out, nil
}

var _ Folders = DiskFolders{}
