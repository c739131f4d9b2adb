package network

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sys/unix"

	"github.com/muster-scheduler/muster/internal/vm"
	"github.com/muster-scheduler/muster/internal/vm/network/wire"
)

// Bounds of the socket. Whoever may only Get has room of his own, so that a compromised QEMU, which has the wrapper's user id, cannot keep
// the runtime out.
const (
	maxAdminConns = 128
	maxGetConns   = 32
	readTimeout   = 5 * time.Second
	writeTimeout  = 10 * time.Second
)

// caller is what the kernel says of a connection's other end.
type caller struct {
	uid   uint32
	admin bool
	get   bool
}

// server answers the calls of a socket: one goroutine a connection, of which there is a bounded number.
type server struct {
	manager *Manager
	admins  []uint32
	getters []uint32
	log     logr.Logger
	// called, if set, is told of each call that has ended: its verb, and the kind of its error.
	called func(verb string, took time.Duration, code string)
	// who asks the kernel; another one in tests.
	who func(*net.UnixConn) (uint32, error)
}

// serve accepts until the listener is closed, and then waits for what is under way. ops is the context of calls: it should outlive the
// listener for a while.
func (s *server) serve(ops context.Context, l *net.UnixListener) error {
	var calls sync.WaitGroup
	defer calls.Wait()
	admins, getters := make(chan struct{}, maxAdminConns), make(chan struct{}, maxGetConns)
	for {
		c, err := l.AcceptUnix()
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return nil
			}
			if errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) || errors.Is(err, unix.ENOMEM) || errors.Is(err, unix.ECONNABORTED) {
				s.log.Error(err, "A connection could not be accepted")
				select {
				case <-ops.Done():
					return nil
				case <-time.After(100 * time.Millisecond):
				}
				continue
			}
			return fmt.Errorf("accept: %w", err)
		}
		from, err := s.caller(c)
		room := admins
		if err == nil && !from.admin {
			room = getters
		}
		if err == nil {
			select {
			case room <- struct{}{}:
			default:
				err = vm.Errorf(vm.Exhausted, "user %d has %d calls under way; no more are taken", from.uid, cap(room))
			}
		}
		if err != nil {
			// Said into the socket's buffer, so that it takes no time; and not read, so that it takes none either.
			s.refuse(c, err)
			continue
		}
		calls.Add(1)
		go func() {
			defer calls.Done()
			defer func() { <-room }()
			defer func() { _ = c.Close() }()
			s.answer(ops, c, from)
		}()
	}
}

func (s *server) refuse(c *net.UnixConn, err error) {
	defer func() { _ = c.Close() }()
	// A new connection's buffer is empty, and its size is this side's: the write never waits. The deadline is for what is not foreseen, and so long because it goes by the
	// clock: on a busy machine a process may stand still between these lines, and whoever was not told sees a connection that breaks.
	_ = c.SetWriteDeadline(time.Now().Add(10 * time.Second))
	_ = wire.Write(c, response{Error: toWire(err)}, nil)
}

func (s *server) caller(c *net.UnixConn) (caller, error) {
	uid, err := s.who(c)
	if err != nil {
		return caller{}, fmt.Errorf("who calls is not known: %w", err)
	}
	from := caller{uid: uid, admin: slices.Contains(s.admins, uid), get: slices.Contains(s.getters, uid)}
	from.get = from.get || from.admin
	if !from.get {
		return caller{}, vm.Errorf(vm.Invalid, "user %d may not call the network process", uid)
	}
	return from, nil
}

// peer is the user id of the process that made the connection.
func peer(c *net.UnixConn) (uint32, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, err
	}
	var cred *unix.Ucred
	var got error
	if err := raw.Control(func(fd uintptr) { cred, got = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); err != nil {
		return 0, err
	}
	if got != nil {
		return 0, got
	}
	return cred.Uid, nil
}

// answer reads one call, and says what became of it.
func (s *server) answer(ops context.Context, c *net.UnixConn, from caller) {
	defer func() {
		if p := recover(); p != nil {
			// One call's defect is not the end of the other pods' DHCP.
			s.log.Error(fmt.Errorf("%v", p), "A call ended in a defect")
		}
	}()
	_ = c.SetReadDeadline(time.Now().Add(readTimeout))
	most := maxRequest
	if !from.admin {
		most = maxGetRequest
	}
	var q request
	if _, err := wire.Read(c, &q, most, 0); err != nil {
		if errors.Is(err, wire.ErrMalformed) {
			s.say(c, response{Error: toWire(vm.Errorf(vm.Invalid, "%w", err))}, nil)
		}
		s.log.V(1).Info("A call was not read", "user", from.uid, "error", err.Error())
		return
	}
	began := time.Now()
	if q.Verb == verbGet {
		taps, fds, err := s.manager.Get(ops, q.ID, q.Token)
		s.count(q.Verb, began, err)
		if err != nil {
			s.say(c, response{Error: toWire(err)}, nil)
			return
		}
		s.say(c, response{Taps: taps}, fds)
		for _, fd := range fds {
			_ = unix.Close(fd)
		}
		return
	}
	r, err := s.do(ops, q, from)
	s.count(q.Verb, began, err)
	if err != nil {
		r = response{Error: toWire(err)}
	}
	s.say(c, r, nil)
}

func (s *server) do(ops context.Context, q request, from caller) (r response, err error) {
	if !from.admin {
		return r, vm.Errorf(vm.Invalid, "user %d may only get taps, not %q", from.uid, short(q.Verb))
	}
	switch q.Verb {
	case verbAdd:
		if q.Pod == nil {
			return r, vm.Errorf(vm.Invalid, "add: a pod is needed")
		}
		var a Attached
		a, err = s.manager.Add(ops, *q.Pod)
		r.Attached = &a
	case verbRecover:
		var a Attached
		a, err = s.manager.Recover(ops, q.ID)
		r.Attached = &a
	case verbRelease:
		err = s.manager.Release(ops, q.ID)
	case verbList:
		r.Pods, err = s.manager.List()
	case verbCollect:
		r.Garbage, err = s.manager.Collect(ops, q.Dry)
	case verbStatus:
		err = s.manager.Status(ops)
	default:
		err = vm.Errorf(vm.Invalid, "there is no verb %q", short(q.Verb))
	}
	return r, err
}

func (s *server) say(c *net.UnixConn, r response, fds []int) {
	_ = c.SetWriteDeadline(time.Now().Add(writeTimeout))
	if err := wire.Write(c, r, fds); err != nil {
		s.log.V(1).Info("An answer was not sent", "error", err.Error())
	}
}

// count tells of a call that has ended. What callers write is no label.
func (s *server) count(verb string, began time.Time, err error) {
	if s.called == nil {
		return
	}
	if !slices.Contains(verbs, verb) {
		verb = "other"
	}
	code := ""
	if err != nil {
		code = kindNames()[vm.KindOf(err)]
	}
	s.called(verb, time.Since(began), code)
}
