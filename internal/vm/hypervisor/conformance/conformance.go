// Package conformance is what every hypervisor.Hypervisor has to pass: one contract, whoever does it.
package conformance

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/muster-scheduler/muster/internal/vm"
	"github.com/muster-scheduler/muster/internal/vm/hypervisor"
)

// Subject is an implementation, with what only its test knows how to do.
type Subject struct {
	// Connect makes another client of one hypervisor, which the suite closes.
	Connect func(t *testing.T) hypervisor.Hypervisor
	// XML describes a machine of 64 MiB and one CPU, which has a serial port to the socket Console and a port for a guest agent that
	// nobody serves. Machines of one UUID and name are one.
	XML func(uuid, name, container string) string
	// Console is the path in XML.
	Console string
	// Kill ends a machine's process without a word.
	Kill func(t *testing.T, uuid string, pid int)
	// Foreign makes a machine that runs and is not ours; it is alive as long as the function says so.
	Foreign func(t *testing.T, uuid, name string) (alive func() bool)
	// Interrupt makes the hypervisor go away, and its machines not. back undoes it.
	Interrupt func(t *testing.T) (back func())
}

// patience is how long the suite waits for what has to come.
const patience = time.Minute

// Run checks a Subject.
func Run(t *testing.T, s Subject) {
	for _, c := range []struct {
		name string
		run  func(*one)
	}{
		{"a life", life},
		{"define", define},
		{"save and restore", save},
		{"another's", foreign},
		{"a process killed", killed},
		{"limits", limits},
		{"console and agent", ports},
		{"gone and back", interrupt},
		{"closed", closed},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := &one{T: t, s: s, h: s.Connect(t)}
			t.Cleanup(o.h.Close)
			c.run(o)
		})
	}
}

type one struct {
	*testing.T
	s Subject
	h hypervisor.Hypervisor
}

// machine defines a machine, numbered from 1 in a test, that is gone when the test ends.
func (o *one) machine(n int) (uuid, xml string) {
	o.Helper()
	uuid = "c0f00000-0000-4000-8000-00000000000" + string(rune('0'+n))
	xml = o.s.XML(uuid, "muster-test-"+string(rune('0'+n)), "container-"+string(rune('0'+n)))
	got, err := o.h.Define(o.Context(), xml)
	o.ok(err)
	if got != uuid {
		o.Fatalf("Define gives %s; the description has %s", got, uuid)
	}
	o.Cleanup(func() {
		h := o.s.Connect(o.T)
		defer h.Close()
		if err := errors.Join(h.Destroy(context.Background(), uuid), h.Undefine(context.Background(), uuid)); err != nil {
			o.Errorf("cleaning up: %v", err)
		}
	})
	return uuid, xml
}

func (o *one) ok(err error) {
	o.Helper()
	if err != nil {
		o.Fatal(err)
	}
}

func (o *one) kind(err error, k vm.Kind) {
	o.Helper()
	if err == nil || vm.KindOf(err) != k {
		o.Fatalf("error %v is not of kind %d", err, k)
	}
}

func (o *one) is(uuid string, s hypervisor.State, r hypervisor.Reason) {
	o.Helper()
	m, err := o.h.Machine(o.Context(), uuid)
	o.ok(err)
	if m.State != s || m.Reason != r {
		o.Fatalf("machine is %s (%s); want %s (%s)", m.State, m.Reason, s, r)
	}
}

// next waits for an event.
func (o *one) next(ch <-chan hypervisor.Event, what string, is func(hypervisor.Event) bool) {
	o.Helper()
	end := time.After(patience)
	var seen []hypervisor.Event
	for {
		select {
		case e, ok := <-ch:
			if !ok {
				o.Fatalf("events ended before %s; seen %v", what, seen)
			}
			if is(e) {
				return
			}
			seen = append(seen, e)
		case <-end:
			o.Fatalf("no event: %s; seen %v", what, seen)
		}
	}
}

func changed(uuid string, s hypervisor.State, r hypervisor.Reason) func(hypervisor.Event) bool {
	return func(e hypervisor.Event) bool {
		return e.Kind == hypervisor.Changed && e.Machine.UUID == uuid && e.Machine.State == s && e.Machine.Reason == r
	}
}

func resync(e hypervisor.Event) bool { return e.Kind == hypervisor.Resync }

func life(o *one) {
	ctx := o.Context()
	events := o.h.Events(ctx)
	if e := <-events; !resync(e) {
		o.Fatalf("events start with %v", e)
	}
	uuid, _ := o.machine(1)
	o.is(uuid, hypervisor.Off, hypervisor.Unknown)
	o.kind(o.h.Resume(ctx, uuid), vm.Conflict)
	o.ok(o.h.Shutdown(ctx, uuid))
	o.ok(o.h.Destroy(ctx, uuid))

	pid, err := o.h.Start(ctx, uuid)
	o.ok(err)
	if pid <= 1 {
		o.Fatalf("pid %d", pid)
	}
	o.is(uuid, hypervisor.Paused, hypervisor.Held)
	o.next(events, "held", changed(uuid, hypervisor.Paused, hypervisor.Held))
	if again, err := o.h.Start(ctx, uuid); err != nil || again != pid {
		o.Fatalf("started again: %d, %v; it was %d", again, err, pid)
	}
	o.ok(o.h.Resume(ctx, uuid))
	o.is(uuid, hypervisor.Running, hypervisor.Unknown)
	o.next(events, "running", changed(uuid, hypervisor.Running, hypervisor.Unknown))
	o.ok(o.h.Resume(ctx, uuid))
	o.kind(o.h.Undefine(ctx, uuid), vm.Conflict)
	if again, err := o.h.Start(ctx, uuid); err != nil || again != pid {
		o.Fatalf("started while it runs: %d, %v; it was %d", again, err, pid)
	}
	o.is(uuid, hypervisor.Running, hypervisor.Unknown)
	o.ok(o.h.Shutdown(ctx, uuid)) // this guest may be deaf

	list, err := o.h.List(ctx)
	o.ok(err)
	at := slices.IndexFunc(list, func(m hypervisor.Machine) bool { return m.UUID == uuid })
	if at < 0 || list[at].Owner != (hypervisor.Owner{Container: "container-1", Sandbox: "sandbox", Pod: "team/web", UID: "uid"}) || list[at].Name != "muster-test-1" {
		o.Fatalf("list: %+v", list)
	}
	stats, err := o.h.Stats(ctx)
	o.ok(err)
	if m, err := o.h.Machine(ctx, uuid); err != nil || m.State != hypervisor.Off { // a guest that hears is off already
		if at := slices.IndexFunc(stats, func(s hypervisor.Stats) bool { return s.UUID == uuid }); at < 0 || stats[at].Resident == 0 {
			o.Fatalf("stats: %+v", stats)
		}
		o.ok(o.h.Destroy(ctx, uuid))
		o.is(uuid, hypervisor.Off, hypervisor.Destroyed)
		o.next(events, "destroyed", changed(uuid, hypervisor.Off, hypervisor.Destroyed))
	}
	o.ok(o.h.Destroy(ctx, uuid))
	o.ok(o.h.Undefine(ctx, uuid))
	o.next(events, "gone", func(e hypervisor.Event) bool { return e.Kind == hypervisor.Gone && e.Machine.UUID == uuid })
	o.ok(o.h.Undefine(ctx, uuid))
	o.ok(o.h.Destroy(ctx, uuid))
	o.ok(o.h.Shutdown(ctx, uuid))
	_, err = o.h.Machine(ctx, uuid)
	o.kind(err, vm.NotFound)
	_, err = o.h.Start(ctx, uuid)
	o.kind(err, vm.NotFound)
	_, err = o.h.Machine(ctx, "../../etc")
	o.kind(err, vm.Invalid)
}

func define(o *one) {
	ctx := o.Context()
	uuid, xml := o.machine(1)
	for what, bad := range map[string]string{
		"nothing": "", "no domain": "<network/>", "unclosed": xml[:len(xml)/2], "two": xml + xml,
		"no uuid": strings.ReplaceAll(xml, uuid, ""), "not ours": strings.ReplaceAll(xml, hypervisor.Namespace, "https://example.com/other"),
		"no container": strings.ReplaceAll(xml, `container="container-1"`, `container=""`), "a path for a name": strings.ReplaceAll(xml, "muster-test-1", "../x"),
		"long": xml + strings.Repeat(" ", hypervisor.MaxXML), "no memory": strings.ReplaceAll(xml, "65536", "0"),
	} {
		if _, err := o.h.Define(ctx, bad); err == nil || vm.KindOf(err) != vm.Invalid {
			o.Errorf("%s: %v", what, err)
		}
	}
	again, err := o.h.Define(ctx, xml)
	o.ok(err)
	if again != uuid {
		o.Fatalf("again: %s", again)
	}
	_, err = o.h.Define(ctx, o.s.XML(uuid, "muster-test-1", "another"))
	o.kind(err, vm.Conflict)
	_, err = o.h.Define(ctx, o.s.XML("c0f00000-0000-4000-8000-0000000000ff", "muster-test-1", "another"))
	o.kind(err, vm.Conflict)
	_, err = o.h.Start(ctx, uuid)
	o.ok(err)
	_, err = o.h.Define(ctx, xml)
	o.kind(err, vm.Conflict)
}

func save(o *one) {
	ctx := o.Context()
	events := o.h.Events(ctx)
	uuid, xml := o.machine(1)
	dir := o.TempDir()
	file := filepath.Join(dir, "memory")
	o.kind(o.h.Save(ctx, uuid, file), vm.Conflict)
	o.kind(o.h.Save(ctx, uuid, "memory"), vm.Invalid)
	_, err := o.h.Start(ctx, uuid)
	o.ok(err)
	o.ok(o.h.Resume(ctx, uuid))
	if err := o.h.Save(ctx, uuid, filepath.Join(dir, "no", "such", "folder")); err == nil {
		o.Fatal("saved into a folder that is not there")
	}
	m, err := o.h.Machine(ctx, uuid)
	o.ok(err)
	if m.State == hypervisor.Off {
		o.Fatalf("after a save that failed: %+v", m)
	}
	o.ok(o.h.Save(ctx, uuid, file))
	o.is(uuid, hypervisor.Off, hypervisor.Saved)
	o.next(events, "saved", changed(uuid, hypervisor.Off, hypervisor.Saved))
	if fi, err := os.Stat(file); err != nil || fi.Size() == 0 {
		o.Fatalf("the file: %v", err)
	}
	o.ok(o.h.Save(ctx, uuid, file)) // the answer was lost
	if _, err := o.h.Restore(ctx, filepath.Join(dir, "nothing"), xml); err == nil {
		o.Fatal("restored from nothing")
	}
	_, err = o.h.Restore(ctx, file, strings.ReplaceAll(xml, hypervisor.Namespace, "https://example.com/other"))
	o.kind(err, vm.Invalid)
	_, err = o.h.Restore(ctx, file, strings.ReplaceAll(xml, "container-1", "another"))
	o.kind(err, vm.Conflict)
	pid, err := o.h.Restore(ctx, file, xml)
	o.ok(err)
	if again, err := o.h.Restore(ctx, file, xml); err != nil || again != pid || pid <= 1 {
		o.Fatalf("restored again: %d, %v; it was %d", again, err, pid)
	}
	o.is(uuid, hypervisor.Paused, hypervisor.Held)
	o.ok(o.h.Resume(ctx, uuid))
	o.next(events, "running", changed(uuid, hypervisor.Running, hypervisor.Unknown))
}

func foreign(o *one) {
	ctx := o.Context()
	const uuid = "f0e10000-0000-4000-8000-000000000001"
	alive := o.s.Foreign(o.T, uuid, "somebody-elses")
	list, err := o.h.List(ctx)
	o.ok(err)
	if slices.ContainsFunc(list, func(m hypervisor.Machine) bool { return m.UUID == uuid }) {
		o.Error("it is on the list")
	}
	stats, err := o.h.Stats(ctx)
	o.ok(err)
	if slices.ContainsFunc(stats, func(s hypervisor.Stats) bool { return s.UUID == uuid }) {
		o.Error("it has stats")
	}
	_, err = o.h.Machine(ctx, uuid)
	o.kind(err, vm.NotFound)
	_, err = o.h.Start(ctx, uuid)
	o.kind(err, vm.NotFound)
	o.kind(o.h.Resume(ctx, uuid), vm.NotFound)
	o.kind(o.h.Save(ctx, uuid, filepath.Join(o.TempDir(), "memory")), vm.NotFound)
	o.kind(o.h.Update(ctx, uuid, hypervisor.Limits{Shares: 100}), vm.NotFound)
	_, err = o.h.Agent(ctx, uuid, `{"execute":"guest-ping"}`)
	o.kind(err, vm.NotFound)
	_, err = o.h.Console(ctx, uuid)
	o.kind(err, vm.NotFound)
	o.ok(o.h.Shutdown(ctx, uuid))
	o.ok(o.h.Destroy(ctx, uuid))
	o.ok(o.h.Undefine(ctx, uuid))
	_, err = o.h.Define(ctx, o.s.XML(uuid, "somebody-elses", "ours"))
	o.kind(err, vm.Conflict)
	_, err = o.h.Define(ctx, o.s.XML("c0f00000-0000-4000-8000-0000000000fe", "somebody-elses", "ours"))
	o.kind(err, vm.Conflict)
	_, err = o.h.Restore(ctx, "/nonexistent/memory", o.s.XML(uuid, "somebody-elses", "ours"))
	o.kind(err, vm.Conflict)
	if !alive() {
		o.Error("it was ended")
	}
}

func killed(o *one) {
	ctx := o.Context()
	events := o.h.Events(ctx)
	uuid, _ := o.machine(1)
	pid, err := o.h.Start(ctx, uuid)
	o.ok(err)
	o.ok(o.h.Resume(ctx, uuid))
	o.s.Kill(o.T, uuid, pid)
	o.next(events, "crashed", changed(uuid, hypervisor.Off, hypervisor.Crashed))
	o.is(uuid, hypervisor.Off, hypervisor.Crashed)
	// It can be started anew, as another process.
	again, err := o.h.Start(ctx, uuid)
	o.ok(err)
	if again == pid {
		o.Fatalf("pid %d is the dead one's", again)
	}
}

func limits(o *one) {
	ctx := o.Context()
	uuid, _ := o.machine(1)
	o.kind(o.h.Update(ctx, uuid, hypervisor.Limits{Shares: 100}), vm.Conflict)
	_, err := o.h.Start(ctx, uuid)
	o.ok(err)
	o.ok(o.h.Update(ctx, uuid, hypervisor.Limits{VCPUs: 1, Shares: 300, Period: 100_000, Quota: 50_000, Memory: 48 << 20, CPUs: []int{0}}))
	o.ok(o.h.Update(ctx, uuid, hypervisor.Limits{Quota: -1}))
	o.ok(o.h.Update(ctx, uuid, hypervisor.Limits{}))
	for _, bad := range []hypervisor.Limits{{VCPUs: -1}, {VCPUs: 5}, {Shares: 1 << 40}, {Period: 5}, {Quota: -2}, {Memory: 1 << 40}, {CPUs: []int{-1}}, {CPUs: []int{1 << 20}}} {
		if err := o.h.Update(ctx, uuid, bad); err == nil || vm.KindOf(err) != vm.Invalid {
			o.Errorf("%+v: %v", bad, err)
		}
	}
}

func ports(o *one) {
	ctx := o.Context()
	uuid, _ := o.machine(1)
	path, err := o.h.Console(ctx, uuid)
	o.ok(err)
	if path != o.s.Console {
		o.Errorf("console %q, want %q", path, o.s.Console)
	}
	_, err = o.h.Agent(ctx, uuid, `{"execute":"guest-ping"}`)
	o.kind(err, vm.Conflict)
	_, err = o.h.Start(ctx, uuid)
	o.ok(err)
	o.ok(o.h.Resume(ctx, uuid))
	_, err = o.h.Agent(ctx, uuid, `{"execute":"guest-ping"}`)
	o.kind(err, vm.Unavailable)
	_, err = hypervisor.Exec(ctx, o.h, uuid, []string{"/bin/true"}, nil, 100)
	o.kind(err, vm.Unavailable)
}

func interrupt(o *one) {
	ctx := o.Context()
	uuid, _ := o.machine(1)
	other, _ := o.machine(2)
	pid, err := o.h.Start(ctx, uuid)
	o.ok(err)
	o.ok(o.h.Resume(ctx, uuid))
	_, err = o.h.Start(ctx, other)
	o.ok(err)
	o.ok(o.h.Resume(ctx, other))
	events := o.h.Events(ctx)
	o.next(events, "the first resync", resync)

	back := o.s.Interrupt(o.T)
	_, err = o.h.List(ctx)
	o.kind(err, vm.Unavailable)
	o.kind(o.h.Destroy(ctx, uuid), vm.Unavailable)
	o.s.Kill(o.T, uuid, pid)
	back()

	// What was missed comes by itself, whatever the reason is taken for now.
	o.next(events, "off", func(e hypervisor.Event) bool {
		return e.Kind == hypervisor.Changed && e.Machine.UUID == uuid && e.Machine.State == hypervisor.Off
	})
	o.next(events, "the resync", resync)
	o.is(other, hypervisor.Running, hypervisor.Unknown)
	o.ok(o.h.Destroy(ctx, other))
	o.next(events, "destroyed", changed(other, hypervisor.Off, hypervisor.Destroyed))
}

func closed(o *one) {
	ctx, cancel := context.WithCancel(o.Context())
	defer cancel()
	uuid, _ := o.machine(1)
	events, more := o.h.Events(ctx), o.h.Events(o.Context())
	cancel()
	if _, err := o.h.List(ctx); err == nil || vm.KindOf(err) != vm.Unavailable || !errors.Is(err, context.Canceled) {
		o.Errorf("with a context that ended: %v", err)
	}
	drained(o, events)
	o.h.Close()
	o.h.Close()
	drained(o, more)
	drained(o, o.h.Events(o.Context()))
	_, err := o.h.Machine(o.Context(), uuid)
	o.kind(err, vm.Unavailable)
}

func drained(o *one, ch <-chan hypervisor.Event) {
	o.Helper()
	end := time.After(patience)
	for {
		select {
		case _, ok := <-ch:
			if !ok {
				return
			}
		case <-end:
			o.Fatal("events did not end")
		}
	}
}
