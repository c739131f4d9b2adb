package flexvolume

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// Machine is the Mounts of the machine that the process runs on; it has to be root in the mount namespace of the kubelet.
type Machine struct{}

// Mounted compares a directory's device with its parent's.
func (Machine) Mounted(dir string) (bool, error) {
	at, err := os.Lstat(dir)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	} else if err != nil {
		return false, err
	}
	above, err := os.Lstat(filepath.Dir(dir))
	if err != nil {
		return false, err
	}
	a, okA := at.Sys().(*syscall.Stat_t)
	b, okB := above.Sys().(*syscall.Stat_t)
	return at.IsDir() && okA && okB && a.Dev != b.Dev, nil
}

// Mount mounts a memory file system of 1 MiB.
func (Machine) Mount(dir string) error {
	err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "mode=0700,size=1m,nr_inodes=16")
	return os.NewSyscallError("mount tmpfs", err)
}

// Unmount takes the mount away even while somebody looks into it: nobody works in there.
func (Machine) Unmount(dir string) error {
	return os.NewSyscallError("unmount", unix.Unmount(dir, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW))
}
