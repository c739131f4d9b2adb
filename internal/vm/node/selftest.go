package node

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/muster-scheduler/muster/internal/vm/domain"
	"github.com/muster-scheduler/muster/internal/vm/hypervisor/libvirt"
	"github.com/muster-scheduler/muster/internal/vm/runtime"
	"github.com/muster-scheduler/muster/internal/vm/spec"
)

// selfTestWord is what the machine of a self-test says at its serial port.
const selfTestWord = "muster-vm: a machine runs\r\n"

// bootSector is a disk that a BIOS starts: it says selfTestWord at the first serial port, one byte after another, and powers off.
func bootSector() []byte {
	code := []byte{
		0xfa,       // cli
		0x31, 0xc0, // xor ax, ax
		0x8e, 0xd8, // mov ds, ax
		0xfc,             // cld
		0xbe, 0x00, 0x00, // mov si, the word's address
		0xac,       // next: lodsb
		0x84, 0xc0, // test al, al
		0x74, 0x12, // jz off
		0x88, 0xc4, // mov ah, al
		0xba, 0xfd, 0x03, // wait: mov dx, 0x3fd: the port's state
		0xec,       // in al, dx
		0xa8, 0x20, // test al, 0x20: may it be written
		0x74, 0xf8, // jz wait
		0x88, 0xe0, // mov al, ah
		0xba, 0xf8, 0x03, // mov dx, 0x3f8: the port
		0xee,       // out dx, al
		0xeb, 0xe9, // jmp next
		0xba, 0x04, 0x06, // off: mov dx, 0x604: power management of QEMU's machine "pc"
		0xb8, 0x00, 0x20, // mov ax, 0x2000: sleep, state 5
		0xef,       // out dx, ax
		0xf4,       // hang: hlt
		0xeb, 0xfd, // jmp hang
	}
	at := 0x7c00 + len(code) // where a BIOS puts the sector
	code[7], code[8] = byte(at), byte(at>>8)
	disk := make([]byte, 1<<20)
	copy(disk, append(append(code, selfTestWord...), 0))
	disk[510], disk[511] = 0x55, 0xaa
	return disk
}

// SelfTest boots a machine that says a word and powers off, as a pod's is described and started: by libvirt, through the wrapper, of the domain type that the node
// is to have. Nothing of it stays, and the runtime, which may run meanwhile, does not see it. The error says how far it came. self is this program, which QEMU's
// user has to be able to run. ctx bounds it.
func SelfTest(ctx context.Context, c Config, self string) (took time.Duration, err error) {
	if err := passable(c.StateDir); err != nil {
		return 0, err
	}
	dir, err := os.MkdirTemp(c.StateDir, "self-test-")
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	in, err := c.selfTestMachine(dir, self)
	if err != nil {
		return 0, err
	}
	d, err := domain.Build(in)
	if err != nil {
		return 0, err
	}
	d.Metadata = nil // it is nobody's: with our element the runtime would end it
	xml, err := d.Marshal()
	if err != nil {
		return 0, err
	}
	options, err := libvirtAt(c.LibvirtURI)
	if err != nil {
		return 0, err
	}
	machines := libvirt.Open(ctx, options)
	defer machines.Close()
	began := time.Now()
	err = machines.Try(ctx, xml, func(ctx context.Context) error {
		return heard(ctx, in.Paths.Serial+".out")
	})
	return time.Since(began), err
}

// heard waits for the word.
func heard(ctx context.Context, file string) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		text, err := beginning(file)
		if err != nil {
			return err
		}
		if bytes.Contains(text, []byte(selfTestWord)) {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			said := strings.ToValidUTF8(string(text[max(0, len(text)-200):]), "?")
			return fmt.Errorf("libvirt started the machine, and it did not say what it was to say (it said %q): %w", said, context.Cause(ctx))
		}
	}
}

// beginning is what a file begins with: a guest may talk without end.
func beginning(file string) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, 64<<10))
}

// selfTestMachine makes the files of the machine, and describes it.
func (c Config) selfTestMachine(dir, self string) (in domain.Input, err error) {
	id := runtime.RandomID()
	in = domain.Input{
		Spec: &spec.Spec{
			Pod: spec.Pod{Namespace: "muster-vm", Name: "self-test"}, Container: spec.Container{Name: "self-test"},
			Resources: spec.Resources{VCPUs: 1, Memory: 64 << 20}, Machine: spec.Machine{DiskDriver: spec.SCSI, Network: spec.NetworkVirtIO},
		},
		ContainerID: id, SandboxID: id,
		Disks: []domain.Disk{{Role: domain.Root, Format: "raw", File: filepath.Join(dir, "disk"), Serial: "root"}},
		Paths: domain.Paths{Serial: filepath.Join(dir, "serial"), Exit: filepath.Join(dir, "exit")},
		Node:  domain.Node{DomainType: c.DomainType, Emulator: filepath.Join(dir, "muster-vm-wrap"), QEMU: c.QEMU, CgroupV2: unified()},
	}
	if err := errors.Join(os.Chmod(dir, 0o711), os.Symlink(self, in.Node.Emulator), os.WriteFile(in.Disks[0].File, bootSector(), 0o600)); err != nil { //nolint:gosec // QEMU's user gets through
		return in, err
	}
	owned := []string{in.Disks[0].File}
	for _, pipe := range []string{in.Paths.Serial, in.Paths.Exit} {
		if err := errors.Join(unix.Mkfifo(pipe+".in", 0o600), os.WriteFile(pipe+".out", nil, 0o600)); err != nil {
			return in, err
		}
		owned = append(owned, pipe+".in", pipe+".out")
	}
	for _, p := range owned {
		if c.UID >= 0 {
			if err := os.Lchown(p, c.UID, c.GID); err != nil {
				return in, err
			}
		}
	}
	return in, nil
}

// unified says that the node's control groups are of version 2.
func unified() bool {
	_, err := os.Stat("/sys/fs/cgroup/cgroup.controllers")
	return err == nil
}

// LibvirtVersions asks libvirtd: see libvirt.Hypervisor.Versions.
func LibvirtVersions(ctx context.Context, uri string) (own, qemu string, err error) {
	options, err := libvirtAt(uri)
	if err != nil {
		return "", "", err
	}
	machines := libvirt.Open(ctx, options)
	defer machines.Close()
	return machines.Versions(ctx)
}
