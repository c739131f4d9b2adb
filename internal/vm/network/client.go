package network

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"github.com/muster-scheduler/muster/internal/vm"
	"github.com/muster-scheduler/muster/internal/vm/network/wire"
)

// Client calls a network process. Each call has a connection of its own. Errors have the kinds of package vm; a process that does not
// answer, or goes away meanwhile, is Unavailable, and what became of the call is then open: List tells.
type Client struct {
	// Socket is the path of the process's socket.
	Socket string
}

// Add makes the network of a pod. A pod that is there already is a Conflict. Where it fails nothing is left, or what is left is removed
// by the process itself.
func (c Client) Add(ctx context.Context, pod Pod) (Attached, error) {
	return c.attached(ctx, request{Verb: verbAdd, Pod: &pod})
}

// Recover gives the network of a pod that was added, repairs what is missing of it, and makes a new token; the one before is void.
func (c Client) Recover(ctx context.Context, id string) (Attached, error) {
	return c.attached(ctx, request{Verb: verbRecover, ID: id})
}

// Release removes a pod's network. NotFound: there is none. After any other error it is to be called again; the process too tries on.
func (c Client) Release(ctx context.Context, id string) error {
	_, _, err := c.call(ctx, request{Verb: verbRelease, ID: id})
	return err
}

// List tells of all pods, in the order of their ids.
func (c Client) List(ctx context.Context) ([]Listed, error) {
	r, _, err := c.call(ctx, request{Verb: verbList})
	return r.Pods, err
}

// Collect finds what no pod has and, unless dry, has it taken away: see Manager.Collect.
func (c Client) Collect(ctx context.Context, dry bool) ([]Garbage, error) {
	r, _, err := c.call(ctx, request{Verb: verbCollect, Dry: dry})
	return r.Garbage, err
}

// Status says whether a pod could be added now, as far as CNI's configuration and plugins (STATUS) know. nil: it could.
func (c Client) Status(ctx context.Context) error {
	_, _, err := c.call(ctx, request{Verb: verbStatus})
	return err
}

// Get takes the taps of a pod, in the order of its cards; the files are the caller's, in the places that Tap.Descriptor names. It needs
// the token that Add or Recover made, which is void afterwards. Conflict: the token was used, or another process still has a tap.
func (c Client) Get(ctx context.Context, id, token string) ([]Tap, []*os.File, error) {
	r, files, err := c.call(ctx, request{Verb: verbGet, ID: id, Token: token})
	if err == nil {
		used := map[int]bool{}
		for _, t := range r.Taps {
			if t.Descriptor < 0 || t.Descriptor >= len(files) || used[t.Descriptor] {
				err = fmt.Errorf("network process: card %s has descriptor %d of %d", t.Name, t.Descriptor, len(files))
			}
			used[t.Descriptor] = true
		}
		if err == nil && len(used) != len(files) {
			err = fmt.Errorf("network process: %d descriptors came for %d cards", len(files), len(used))
		}
	}
	if err != nil {
		for _, f := range files {
			_ = f.Close()
		}
		return nil, nil, err
	}
	return r.Taps, files, nil
}

func (c Client) attached(ctx context.Context, q request) (Attached, error) {
	r, _, err := c.call(ctx, q)
	switch {
	case err != nil:
		return Attached{}, err
	case r.Attached == nil:
		return Attached{}, fmt.Errorf("network process: %s was answered without a network", q.Verb)
	}
	return *r.Attached, nil
}

func (c Client) call(ctx context.Context, q request) (r response, files []*os.File, err error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", c.Socket)
	if err != nil {
		return r, nil, c.failed(ctx, q, err)
	}
	defer conn.Close()
	// A context that ends, ends what waits.
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	uc, ok := conn.(*net.UnixConn)
	if !ok {
		return r, nil, fmt.Errorf("network process: %T is no unix connection", conn)
	}
	// A process that refuses a caller answers before it reads: what it says counts, not that it did not listen.
	sendErr := wire.Write(uc, q, nil)
	most := 0
	if q.Verb == verbGet {
		most = wire.MaxDescriptors
	}
	files, err = wire.Read(uc, &r, maxResponse, most)
	if err != nil {
		if sendErr != nil {
			err = sendErr
		}
		return response{}, nil, c.failed(ctx, q, err)
	}
	if r.Error != nil {
		for _, f := range files {
			_ = f.Close()
		}
		return response{}, nil, fromWire(r.Error)
	}
	return r, files, nil
}

func (c Client) failed(ctx context.Context, q request, err error) error {
	if ctx.Err() != nil {
		return vm.Errorf(vm.Unavailable, "network process: %s: %w", q.Verb, context.Cause(ctx))
	}
	if errors.Is(err, wire.ErrMalformed) {
		return fmt.Errorf("network process: %s: %w", q.Verb, err)
	}
	if errors.Is(err, io.EOF) {
		err = errors.New("it closed the connection")
	}
	return vm.Errorf(vm.Unavailable, "network process: %s: %w", q.Verb, err)
}
