package libvirt

import (
	"context"
	"errors"
	"fmt"
	"time"

	golibvirt "github.com/digitalocean/go-libvirt"

	"github.com/muster-scheduler/muster/internal/vm/hypervisor"
)

// How long it takes until libvirtd is dialled again.
const (
	waitFirst = 100 * time.Millisecond
	waitMost  = 5 * time.Second
)

// run keeps the standing link until Close.
func (h *Hypervisor) run(tried func()) {
	defer close(h.ended)
	defer tried()
	wait := waitFirst
	for h.ctx.Err() == nil {
		was, err := h.once(tried)
		tried()
		h.mu.Lock()
		h.link, h.down = nil, err
		h.mu.Unlock()
		if h.ctx.Err() != nil {
			break
		}
		if was {
			wait = waitFirst
			h.options.Log.Info("libvirtd is gone", "reason", err.Error())
		}
		t := time.NewTimer(wait)
		select {
		case <-t.C:
		case <-h.ctx.Done():
			t.Stop()
		}
		wait = min(2*wait, waitMost)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.link, h.down = nil, errClosed
}

// once has a link for as long as it lasts, and says whether there was one and why it ended.
func (h *Hypervisor) once(up func()) (bool, error) {
	ctx, cancel := context.WithTimeout(h.ctx, h.options.Patience)
	l, err := h.connect(ctx)
	cancel()
	if err != nil {
		return false, err
	}
	defer l.close()
	// What comes before anybody listens stays in the socket, and what happened until then is in the list.
	ctx, cancel = context.WithCancel(h.ctx)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = l.conn.Close() })
	defer stop()
	start := time.AfterFunc(h.options.Patience, func() { _ = l.conn.Close() })
	defer start.Stop()
	listening, listen := context.WithCancel(context.Background()) // the library is to be told only when nothing comes any more
	defer listen()
	events, err := l.LifecycleEvents(listening)
	if err != nil {
		return false, err
	}
	defer func() {
		l.close()
		listen()
		for range events { // the library's goroutine ends when it has passed on what it had
		}
	}()
	h.mu.Lock()
	clear(h.owners)
	h.mu.Unlock()
	all, err := h.list(l)
	if err != nil {
		return false, err
	}
	if !start.Stop() {
		return false, errors.New("libvirtd is too slow")
	}
	h.feed.Compare(all)
	h.mu.Lock()
	h.link, h.down = l, nil
	h.mu.Unlock()
	up()
	h.options.Log.Info("libvirtd answers", "machines", len(all))
	return true, h.follow(l, events)
}

// askFirst is when a fresh link is asked how machines are: a libvirtd that has just started looks for its machines while it answers already,
// and tells of none that it does not find. Then it is asked after twice as long each time, up to Options.Patience.
const askFirst = 500 * time.Millisecond

// follow tells what libvirtd tells, and asks from time to time how machines are. That shows too whether it is there.
func (h *Hypervisor) follow(l *link, events <-chan golibvirt.DomainEventLifecycleMsg) error {
	type answer struct {
		all []hypervisor.Machine
		err error
	}
	wait := min(askFirst, h.options.Patience)
	ask := time.NewTimer(wait)
	defer ask.Stop()
	var late <-chan time.Time
	answered := make(chan answer, 1)
	fresh := false // nothing was told since it was asked
	for {
		select {
		case e, ok := <-events:
			if !ok {
				<-l.conn.dead
				return l.why()
			}
			fresh = false
			l.conn.events.Add(-1)
			end := time.AfterFunc(h.options.Patience, func() { _ = l.conn.Close() })
			err := caught(func() error { return h.event(l, e) })
			end.Stop()
			if err != nil {
				return err
			}
		case <-l.conn.dead:
			return l.why()
		case a := <-answered:
			if a.err != nil {
				return a.err
			}
			if fresh { // else it may be older than what was told
				h.feed.Check(a.all)
				wait = min(2*wait, h.options.Patience)
			}
			late = nil
			ask.Reset(wait)
		case <-ask.C:
			late, fresh = time.After(h.options.Patience), true
			go func() { // ends with an answer, or with the link
				var a answer
				a.err = caught(func() (err error) {
					a.all, err = h.list(l)
					return err
				})
				answered <- a
			}()
		case <-late:
			return fmt.Errorf("libvirtd has not answered for %s", h.options.Patience)
		}
	}
}

func (l *link) why() error {
	return fmt.Errorf("connection: %w", l.conn.reason())
}

// event tells of one event. The machine's state is the event's own where it says it, so that an end is told with its reason even if the machine is
// gone or started again by now.
func (h *Hypervisor) event(l *link, e golibvirt.DomainEventLifecycleMsg) error {
	uuid := uuidOf(e.Dom)
	kind := golibvirt.DomainEventType(e.Event)
	if kind == golibvirt.DomainEventUndefined && golibvirt.DomainEventUndefinedDetailType(e.Detail) == golibvirt.DomainEventUndefinedRemoved {
		h.mu.Lock()
		delete(h.owners, e.Dom.UUID)
		h.mu.Unlock()
		h.feed.Gone(uuid)
		return nil
	}
	m, known := h.feed.Known(uuid)
	if !known || kind == golibvirt.DomainEventDefined {
		o, err := h.owner(l, e.Dom)
		if err != nil {
			return err
		}
		if o.Container == "" {
			if known {
				h.feed.Gone(uuid)
			}
			return nil
		}
		m.UUID, m.Name, m.Owner = uuid, e.Dom.Name, o
	}
	switch kind {
	case golibvirt.DomainEventDefined:
	case golibvirt.DomainEventStarted: // held or not: the event does not say
		now, err := h.state(l, e.Dom, m.Owner)
		if is(err, golibvirt.ErrNoDomain) {
			return nil
		}
		if err != nil {
			return err
		}
		m = now
	case golibvirt.DomainEventResumed:
		m.State, m.Reason = hypervisor.Running, hypervisor.Unknown
	case golibvirt.DomainEventPmsuspended:
		m.State, m.Reason = hypervisor.Paused, hypervisor.Asleep
	case golibvirt.DomainEventCrashed:
		m.State, m.Reason = hypervisor.Paused, hypervisor.Crashed // what follows, on_crash says
	case golibvirt.DomainEventSuspended:
		m.State, m.Reason = hypervisor.Paused, hypervisor.Busy
		switch golibvirt.DomainEventSuspendedDetailType(e.Detail) {
		case golibvirt.DomainEventSuspendedPaused, golibvirt.DomainEventSuspendedRestored:
			m.Reason = hypervisor.Held
		case golibvirt.DomainEventSuspendedIoerror:
			m.Reason = hypervisor.IOError
		}
	case golibvirt.DomainEventStopped:
		m.State, m.Reason = hypervisor.Off, hypervisor.Unknown
		switch golibvirt.DomainEventStoppedDetailType(e.Detail) {
		case golibvirt.DomainEventStoppedShutdown:
			m.Reason = hypervisor.ShutDown
		case golibvirt.DomainEventStoppedDestroyed:
			m.Reason = hypervisor.Destroyed
		case golibvirt.DomainEventStoppedCrashed, golibvirt.DomainEventStoppedFailed: // failed: the process ended without a word
			m.Reason = hypervisor.Crashed
		case golibvirt.DomainEventStoppedSaved:
			m.Reason = hypervisor.Saved
		}
	default: // a shutdown that is under way, and what is not known
		return nil
	}
	h.feed.Tell(m)
	return nil
}
