package libvirt

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime/debug"
	"syscall"

	golibvirt "github.com/digitalocean/go-libvirt"

	"github.com/muster-scheduler/muster/internal/vm"
)

// A link is one connection to libvirtd.
type link struct {
	*golibvirt.Libvirt
	conn *guard
}

// dialled hands a connection that is there to the library.
type dialled struct{ conn net.Conn }

func (d dialled) Dial() (net.Conn, error) { return d.conn, nil }

// connect opens a link. Until it is open, ctx ends what waits.
func (h *Hypervisor) connect(ctx context.Context) (*link, error) {
	c, err := (&net.Dialer{}).DialContext(ctx, "unix", h.options.Socket)
	if err != nil {
		return nil, err
	}
	g := newGuard(c)
	l := &link{Libvirt: golibvirt.NewWithDialer(dialled{g}), conn: g}
	stop := context.AfterFunc(ctx, func() { _ = g.Close() })
	defer stop()
	if err := caught(func() error { return l.ConnectToURI(golibvirt.ConnectURI(h.options.URI)) }); err != nil {
		l.close()
		if why := g.reason(); why != nil {
			err = fmt.Errorf("%w: %w", err, why)
		}
		return nil, err
	}
	return l, nil
}

// close ends the link, and waits until nothing reads it.
func (l *link) close() {
	_ = l.conn.Close()
	<-l.conn.dead
}

// caught turns a panic of the library, which an answer might bring about, into an error.
func caught(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("libvirt's client: %v\n%s", p, debug.Stack())
		}
	}()
	return f()
}

// begin gives the standing link, or why there is none. What it began, end ends; Close waits for that.
func (h *Hypervisor) begin(what string) (*link, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.link == nil {
		return nil, vm.Errorf(vm.Unavailable, "%s: libvirtd does not answer: %w", what, h.down)
	}
	h.calls.Add(1)
	return h.link, nil
}

// quick makes a call, or several, that libvirtd answers without waiting for a machine.
func (h *Hypervisor) quick(ctx context.Context, what string, f func(*link) error) error {
	l, err := h.begin(what)
	if err != nil {
		return err
	}
	select {
	case h.quickly <- struct{}{}:
	case <-ctx.Done():
		h.calls.Done()
		return vm.Errorf(vm.Unavailable, "%s: %w", what, context.Cause(ctx))
	case <-l.conn.dead:
		h.calls.Done()
		return vm.Errorf(vm.Unavailable, "%s: libvirtd is gone", what)
	}
	done := make(chan error, 1)
	go func() {
		defer h.calls.Done()
		defer func() { <-h.quickly }()
		done <- caught(func() error { return f(l) })
	}()
	select {
	case err := <-done:
		return translate(ctx, what, err)
	case <-ctx.Done(): // the call ends with libvirtd's answer, or with the link
		return vm.Errorf(vm.Unavailable, "%s: %w", what, context.Cause(ctx))
	}
}

// slow makes calls that may take long, on a link of their own, which ends with ctx.
func (h *Hypervisor) slow(ctx context.Context, what string, f func(*link) error) error {
	if _, err := h.begin(what); err != nil {
		return err
	}
	defer h.calls.Done()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := context.AfterFunc(h.ctx, func() { cancel(errClosed) })
	defer stop()
	select {
	case h.slowly <- struct{}{}:
		defer func() { <-h.slowly }()
	case <-ctx.Done():
		return vm.Errorf(vm.Unavailable, "%s: %w", what, context.Cause(ctx))
	}
	l, err := h.connect(ctx)
	if err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return vm.Errorf(vm.Unavailable, "%s: libvirtd does not answer: %w", what, err)
	}
	defer l.close()
	end := context.AfterFunc(ctx, func() { _ = l.conn.Close() })
	defer end()
	return translate(ctx, what, caught(func() error { return f(l) }))
}

var errClosed = errors.New("the hypervisor is closed")

// maxText bounds what libvirt's errors say, in bytes.
const maxText = 8 << 10

// translate gives an error of libvirt's its kind.
func translate(ctx context.Context, what string, err error) error {
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return vm.Errorf(vm.Unavailable, "%s: %w", what, context.Cause(ctx))
	}
	if vm.KindOf(err) != vm.Internal {
		return err
	}
	var e golibvirt.Error
	if !errors.As(err, &e) {
		var broken *net.OpError
		if errors.Is(err, golibvirt.ErrInterrupted) || errors.Is(err, syscall.EINVAL) || errors.As(err, &broken) {
			return vm.Errorf(vm.Unavailable, "%s: libvirtd is gone", what)
		}
		return fmt.Errorf("%s: %w", what, err)
	}
	text := e.Message
	if len(text) > maxText {
		text = text[:maxText] + "…"
	}
	return vm.Errorf(kind(golibvirt.ErrorNumber(e.Code)), "%s: libvirt: %s", what, text)
}

func kind(code golibvirt.ErrorNumber) vm.Kind {
	switch code {
	case golibvirt.ErrNoDomain, golibvirt.ErrNoDomainMetadata:
		return vm.NotFound
	case golibvirt.ErrOperationInvalid, golibvirt.ErrDomExist:
		return vm.Conflict
	case golibvirt.ErrXMLError, golibvirt.ErrXMLDetail, golibvirt.ErrXMLInvalidSchema, golibvirt.ErrInvalidArg, golibvirt.ErrConfigUnsupported,
		golibvirt.ErrArgumentUnsupported, golibvirt.ErrOperationUnsupported, golibvirt.ErrOverflow:
		return vm.Invalid
	case golibvirt.ErrAgentUnresponsive, golibvirt.ErrAgentUnsynced, golibvirt.ErrAgentCommandTimeout, golibvirt.ErrOperationTimeout, golibvirt.ErrResourceBusy:
		return vm.Unavailable
	case golibvirt.ErrNoMemory:
		return vm.Exhausted
	}
	return vm.Internal
}

func is(err error, codes ...golibvirt.ErrorNumber) bool {
	var e golibvirt.Error
	if !errors.As(err, &e) {
		return false
	}
	for _, c := range codes {
		if e.Code == uint32(c) {
			return true
		}
	}
	return false
}
