package libvirt

import (
	"context"
	"fmt"

	golibvirt "github.com/digitalocean/go-libvirt"
)

// Versions are those of libvirt and of the QEMU that it runs, such as "9.0.0" and "7.2.22".
func (h *Hypervisor) Versions(ctx context.Context) (libvirt, qemu string, err error) {
	err = h.quick(ctx, "versions", func(l *link) error {
		own, err := l.ConnectGetLibVersion()
		if err != nil {
			return err
		}
		of, err := l.ConnectGetVersion()
		libvirt, qemu = number(own), number(of)
		return err
	})
	return libvirt, qemu, err
}

// number is a version as libvirt packs it: a million times the major, a thousand times the minor, and the release.
func number(v uint64) string { return fmt.Sprintf("%d.%d.%d", v/1_000_000, v/1_000%1_000, v%1_000) }

// Try starts a machine that nobody keeps, calls watch, and ends the machine when that returns. libvirt never lists it among ours, unless its description has
// our element, and ends it too when this process dies. The error is that of the start, or watch's.
func (h *Hypervisor) Try(ctx context.Context, xml string, watch func(context.Context) error) error {
	return h.slow(ctx, "try a machine", func(l *link) error {
		d, err := l.DomainCreateXML(xml, golibvirt.DomainStartAutodestroy)
		if err != nil {
			return err
		}
		err = watch(ctx)
		if bad := l.DomainDestroyFlags(d, 0); bad != nil && err == nil && !is(bad, golibvirt.ErrNoDomain, golibvirt.ErrOperationInvalid) {
			return bad
		}
		return err
	})
}
