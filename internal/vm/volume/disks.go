package volume

import (
	"context"
	"crypto/sha1"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"

	"github.com/muster-scheduler/muster/internal/vm"
	"github.com/muster-scheduler/muster/internal/vm/cloudinit"
	"github.com/muster-scheduler/muster/internal/vm/domain"
	"github.com/muster-scheduler/muster/internal/vm/flexvolume"
	"github.com/muster-scheduler/muster/internal/vm/spec"
)

// addDisk adds a disk and says how the guest finds it.
func (s *site) addDisk(v *Volumes, d domain.Disk) (cloudinit.Disk, error) {
	v.Disks = append(v.Disks, d)
	places, err := domain.Places(s.spec.Machine.DiskDriver, v.Disks)
	if err != nil {
		return cloudinit.Disk{}, err
	}
	p := places[len(places)-1]
	return cloudinit.Disk{Link: p.Path, Sysfs: p.Sysfs}, nil
}

// root is a disk of the machine's own over its image.
type root struct{}

func (*root) name() string { return "root" }

func (*root) setup(ctx context.Context, s *site, v *Volumes) error {
	want := overlay{size: ceil(max(s.image.VirtualSize, s.spec.Machine.RootSize), sector) * sector, backing: s.image.Path, backingFormat: s.image.Format}
	if want.size > s.options.MaxDiskBytes {
		return vm.Errorf(vm.Exhausted, "its disk has %d bytes, and this node makes at most %d", want.size, s.options.MaxDiskBytes)
	}
	name := s.file("root.qcow2")
	f, err := s.host.Open(name, false, false)
	if err == nil { // made before; a guest may have written to it
		defer f.Close()
		have, err := readOverlay(f)
		if err != nil {
			return err
		}
		if have.size != want.size || have.backing != want.backing {
			return vm.Errorf(vm.Conflict, "the disk was made before, with %d bytes over %s, and is now to have %d over %s", have.size, have.backing, want.size, want.backing)
		}
	} else if !errors.Is(err, os.ErrNotExist) {
		return err
	} else if err := s.makeRoot(ctx, name, want); err != nil {
		return err
	}
	_, err = s.addDisk(v, domain.Disk{Role: domain.Root, Format: "qcow2", File: name, Serial: "root"})
	return err
}

func (*root) write(context.Context, *site) error    { return nil }
func (*root) teardown(context.Context, *site) error { return nil }

// block is a block device as a disk.
type block struct {
	device spec.Block
	index  int
}

func (b *block) name() string { return "device " + b.device.DevicePath }

func (b *block) setup(_ context.Context, s *site, v *Volumes) error {
	node, _, err := s.attach(b.device.HostPath, b.device.ReadOnly)
	if err != nil {
		return err
	}
	disk, err := s.addDisk(v, domain.Disk{Format: "raw", Block: node, ReadOnly: b.device.ReadOnly, Serial: fmt.Sprintf("block-%d", b.index)})
	v.Devices = append(v.Devices, cloudinit.Device{Path: b.device.DevicePath, Disk: disk})
	return err
}

func (*block) write(context.Context, *site) error    { return nil }
func (*block) teardown(context.Context, *site) error { return nil }

// attach judges a block device and claims it.
func (s *site) attach(hostPath string, readOnly bool) (string, device, error) {
	d, err := s.host.Device(hostPath)
	if err != nil {
		return "", device{}, err
	}
	node, err := s.claim(d, readOnly)
	if err != nil {
		return "", device{}, err
	}
	if !readOnly {
		f, err := s.host.Open(node, true, true)
		if errors.Is(err, syscall.EBUSY) {
			return "", device{}, vm.Errorf(vm.Conflict, "%s: is mounted on the node, or part of another device", hostPath)
		} else if err != nil {
			return "", device{}, err
		}
		if err := f.Close(); err != nil {
			return "", device{}, err
		}
	}
	return node, d, nil
}

// persistent is a block device that the machine boots from, and keeps.
type persistent struct {
	device spec.Block
}

// Virtlet's header of a persistent root, the device's first sector: big-endian, the rest zeros. The image follows at the second. Unlike Virtlet's,
// it is only there while the image is whole.
const (
	headerMagic   = 0x263dbe52ba576702
	headerVersion = 1
	headerBytes   = 8 + 2 + 32
)

func (p *persistent) name() string { return "device " + p.device.DevicePath }

func (p *persistent) setup(_ context.Context, s *site, v *Volumes) error {
	node, d, err := s.attach(p.device.HostPath, false)
	if err != nil {
		return err
	}
	size := (d.size - sector) / sector * sector
	if size < s.image.VirtualSize {
		return vm.Errorf(vm.Invalid, "%s has %d bytes: must have at least %d, for the image and a header of %d", p.device.HostPath, d.size, s.image.VirtualSize+sector, sector)
	}
	_, err = s.addDisk(v, domain.Disk{
		Role: domain.Root, Format: "raw", Block: node, Slice: &domain.Slice{Offset: sector, Size: size}, Serial: "root",
	})
	return err
}

func (p *persistent) write(ctx context.Context, s *site) (err error) {
	node := s.file(diskFile)
	f, err := s.host.Open(node, true, true) // nobody mounts it meanwhile
	if errors.Is(err, syscall.EBUSY) {
		return vm.Errorf(vm.Conflict, "%s: is mounted on the node, or part of another device", p.device.HostPath)
	} else if err != nil {
		return err
	}
	defer func() {
		if closed := f.Close(); err == nil {
			err = closed
		}
	}()
	digest, err := hex.DecodeString(strings.TrimPrefix(s.image.Digest, "sha256:"))
	if err != nil {
		return err
	}
	want := binary.BigEndian.AppendUint64(nil, headerMagic)
	want = binary.BigEndian.AppendUint16(want, headerVersion)
	want = append(want, digest...)
	have := make([]byte, headerBytes)
	if n, err := f.ReadAt(have, 0); n < len(have) {
		return fmt.Errorf("reading the header: %w", err)
	}
	if slices.Equal(have, want) {
		return nil
	}
	if version := binary.BigEndian.Uint16(have[8:]); binary.BigEndian.Uint64(have) == headerMagic && version != headerVersion {
		return vm.Errorf(vm.Invalid, "%s has a header of version %d: must be %d, and is left as it is", p.device.HostPath, version, headerVersion)
	}
	// From here on the device is nobody's, until the copy lies on it.
	if _, err := f.WriteAt(make([]byte, sector), 0); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if err := s.options.copier(ctx, s.image, node, sector); err != nil {
		return fmt.Errorf("copy the image: %w", err)
	}
	if len(s.spec.Files) > 0 {
		if err := s.options.inject(ctx, s, node, sector, s.image.VirtualSize); err != nil {
			return err
		}
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if _, err := f.WriteAt(append(want, make([]byte, sector-headerBytes)...), 0); err != nil {
		return err
	}
	return f.Sync()
}

func (*persistent) teardown(context.Context, *site) error { return nil } // the device is the pod's, and stays as it is

// flex is a FlexVolume.
type flex struct {
	volume  string
	index   int
	options flexvolume.Volume
	mounts  []spec.Mount
}

func (f *flex) name() string { return "FlexVolume " + f.volume }

const secretFile = "secret" // there may be a secret

func (f *flex) setup(ctx context.Context, s *site, v *Volumes) error {
	d := domain.Disk{Serial: fmt.Sprintf("flex-%d", f.index), ReadOnly: f.options.ReadOnly}
	switch f.options.Type {
	case flexvolume.QCOW2:
		if f.options.Capacity > s.options.MaxDiskBytes {
			return vm.Errorf(vm.Invalid, "option capacity: is %d bytes, must be at most %d on this node", f.options.Capacity, s.options.MaxDiskBytes)
		}
		if f.options.Capacity < minFormatted {
			return vm.Errorf(vm.Invalid, "option capacity: is %d bytes, must be at least %d, to hold a file system", f.options.Capacity, minFormatted)
		}
		d.Format, d.File = "qcow2", s.file("volume.qcow2")
	case flexvolume.Raw:
		if !f.allowed(s.options.RawDevices) {
			return vm.Errorf(vm.Invalid, "option path %q: must be one of this node's raw devices, %s", f.options.Path, strings.Join(s.options.RawDevices, ", "))
		}
		node, _, err := s.attach(f.options.Path, d.ReadOnly)
		if err != nil {
			return err
		}
		d.Format, d.Block = "raw", node
	case flexvolume.Ceph:
		rbd, err := f.ceph(ctx, s)
		if err != nil {
			return err
		}
		d.Format, d.RBD = "raw", rbd
	default:
		return fmt.Errorf("there is no type %q", f.options.Type)
	}
	disk, err := s.addDisk(v, d)
	if err != nil {
		return err
	}
	for _, m := range f.mounts {
		v.FileSystems = append(v.FileSystems, cloudinit.FileSystem{Path: m.Path, Disk: disk, Partition: f.options.Partition, ReadOnly: m.ReadOnly || d.ReadOnly})
	}
	return nil
}

// allowed says whether a device is on the list. It is the name that counts: who may make links in /dev is who may open its devices.
func (f *flex) allowed(patterns []string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		ok, err := path.Match(pattern, strings.TrimPrefix(f.options.Path, "/dev/"))
		return ok && err == nil
	})
}

func (f *flex) ceph(ctx context.Context, s *site) (*domain.RBD, error) {
	c := f.options.Ceph
	out := &domain.RBD{Pool: c.Pool, Image: c.Image}
	for _, m := range c.Monitors {
		out.Monitors = append(out.Monitors, domain.Monitor{Host: m.Host, Port: m.Port})
	}
	if c.User == "" {
		return out, nil
	}
	if s.options.Secrets == nil {
		return nil, vm.Errorf(vm.Invalid, "option secret: this node keeps no keys of Ceph users")
	}
	out.User, out.Secret = c.User, s.secret()
	if err := s.note(secretFile, out.Secret); err != nil { // before it is made: whoever finds the note takes it away
		return nil, err
	}
	return out, s.options.Secrets.Define(ctx, out.Secret, c.User+"-"+out.Secret+"-"+f.volume, c.Key)
}

// secret is the UUID of the site's secret, of version 5: the same after a restart.
func (s *site) secret() string {
	sum := sha1.Sum([]byte("muster-vm ceph secret\x00" + s.id + "\x00" + s.key))
	b := sum[:16]
	b[6], b[8] = b[6]&0x0f|0x50, b[8]&0x3f|0x80
	h := hex.EncodeToString(b)
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}

func (f *flex) write(ctx context.Context, s *site) error {
	if f.options.Type != flexvolume.QCOW2 {
		return nil
	}
	name := s.file("volume.qcow2")
	if old, err := s.host.Open(name, false, false); err == nil {
		return old.Close()
	} else if !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return s.formatted(ctx, name, ceil(f.options.Capacity, sector)*sector)
}

func (f *flex) teardown(ctx context.Context, s *site) error {
	if _, err := s.host.ReadFile(s.file(secretFile)); errors.Is(err, os.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	if s.options.Secrets == nil {
		return errors.New("it has a secret, and there is nobody to take it away")
	}
	if err := s.options.Secrets.Undefine(ctx, s.secret()); err != nil {
		return err
	}
	return s.host.Remove(s.file(secretFile))
}
