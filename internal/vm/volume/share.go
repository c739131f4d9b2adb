package volume

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/muster-scheduler/muster/internal/vm"
	"github.com/muster-scheduler/muster/internal/vm/cloudinit"
	"github.com/muster-scheduler/muster/internal/vm/domain"
	"github.com/muster-scheduler/muster/internal/vm/spec"
)

// share is a directory that the guest mounts by virtiofs. A file server of ours serves it, over a socket that QEMU connects to: libvirt
// 9.0 knows no read-only virtiofs, and a server of libvirt's would have to see a mount that is, which somebody would have to take away again.
type share struct {
	mount spec.Mount
	index int
}

func (h *share) name() string { return "mount " + h.mount.Path }

func (h *share) setup(ctx context.Context, s *site, v *Volumes) error {
	if s.options.Daemons == nil {
		return vm.Errorf(vm.Invalid, "this node shares no directories with machines")
	}
	source, err := filepath.EvalSymlinks(h.mount.HostPath)
	if err != nil {
		return err
	}
	info, err := os.Lstat(source)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return vm.Errorf(vm.Invalid, "%s: must be a directory or a regular file, is %s: a machine can be given nothing else", h.mount.HostPath, kindOf(info))
	}
	if strings.ContainsAny(source, ",\\\n") { // the file server's options end there
		return vm.Errorf(vm.Invalid, "%s: must hold no comma, backslash or newline", source)
	}
	d := Daemon{Dir: s.dir, Socket: s.socket(), Source: source, ReadOnly: h.mount.ReadOnly, Follow: h.mount.Follow, Owner: s.options.QEMU}
	if err := s.options.Daemons.Start(ctx, d); err != nil {
		return err
	}
	tag := fmt.Sprintf("muster-%d", h.index)
	v.Shares = append(v.Shares, domain.Share{Tag: tag, Source: source, Socket: d.Socket})
	v.Mounts = append(v.Mounts, cloudinit.Share{Tag: tag, Path: h.mount.Path, ReadOnly: h.mount.ReadOnly})
	return nil
}

func (*share) write(context.Context, *site) error { return nil }

func (*share) teardown(ctx context.Context, s *site) error {
	if s.options.Daemons == nil {
		return nil // nobody here ever started one
	}
	return s.options.Daemons.Stop(ctx, s.dir, s.socket())
}

func (s *site) socket() string {
	return filepath.Join(s.options.SocketDir, socketName(s.id, s.key[:3]))
}

// socketName is short, because a socket's path has to be, and the container's own all the same.
func socketName(id, number string) string {
	sum := sha256.Sum256([]byte(id))
	return hex.EncodeToString(sum[:10]) + "-" + number + ".sock"
}
