package node

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/muster-scheduler/muster/internal/vm"
	"github.com/muster-scheduler/muster/internal/vm/hypervisor"
	"github.com/muster-scheduler/muster/internal/vm/hypervisor/fake"
	"github.com/muster-scheduler/muster/internal/vm/runtime"
	"github.com/muster-scheduler/muster/internal/vm/spec"
)

const (
	testUUID = "5d3b1c1e-6c0f-4d6b-9c39-0d1d3c4c5b6a"
	patience = time.Minute
)

func testXML() string {
	return fmt.Sprintf(`<domain type="qemu"><name>a</name><uuid>%s</uuid><metadata><owner xmlns=%q container="c1" sandbox="b1" pod="team/web" uid="u"/></metadata>
		<memory unit="MiB">256</memory><vcpu>1</vcpu><devices/></domain>`, testUUID, hypervisor.Namespace)
}

// next waits for an event, or for the end of events.
func next(t *testing.T, events <-chan string) (string, bool) {
	t.Helper()
	select {
	case uuid, ok := <-events:
		return uuid, ok
	case <-time.After(patience):
		t.Fatal("no event")
		return "", false
	}
}

// TestMachines: a machine's life in the runtime's words: its states and ends, its figures, an event for each change.
func TestMachines(t *testing.T) {
	t.Parallel()
	h := fake.NewHost(fake.Options{})
	m := Machines{Of: h.Connect(nil)}
	ctx := t.Context()
	events, err := m.Events(ctx)
	if err != nil {
		t.Fatal(err)
	}
	is := func(state runtime.State, why runtime.Why) {
		t.Helper()
		want := runtime.Machine{UUID: testUUID, ContainerID: "c1", SandboxID: "b1", State: state, Why: why}
		if got, err := m.Machine(ctx, testUUID); err != nil || got != want {
			t.Errorf("%+v, %v; want %+v", got, err, want)
		}
		if all, err := m.List(ctx); err != nil || len(all) != 1 || all[0] != want {
			t.Errorf("list: %+v, %v", all, err)
		}
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(m.Define(ctx, testXML()))
	is(runtime.Off, runtime.Unknown)
	pid, err := m.Start(ctx, testUUID)
	if err != nil || pid == 0 {
		t.Fatal(pid, err)
	}
	is(runtime.Held, runtime.Unknown)
	must(m.Resume(ctx, testUUID))
	is(runtime.Runs, runtime.Unknown)
	if uuid, ok := next(t, events); uuid != testUUID || !ok {
		t.Errorf("event of %q, %v", uuid, ok)
	}
	must(m.Update(ctx, testUUID, spec.Resources{Memory: 128 << 20, CPUs: []int{0}, CPUQuota: 5})) // a quota is the control groups'
	if stats, err := m.Stats(ctx); err != nil || len(stats) != 1 || stats[testUUID].Resident == 0 {
		t.Errorf("stats: %v, %v", stats, err)
	}
	must(m.Destroy(ctx, testUUID))
	is(runtime.Off, runtime.Destroyed)
	must(m.Undefine(ctx, testUUID))
	must(m.Undefine(ctx, testUUID)) // of nothing
	if _, err := m.Machine(ctx, testUUID); vm.KindOf(err) != vm.NotFound {
		t.Error(err)
	}
}

// TestMachineWords: what the hypervisor says of a machine, and what it means for its container.
func TestMachineWords(t *testing.T) {
	t.Parallel()
	for in, want := range map[hypervisor.Machine]runtime.Machine{
		{State: hypervisor.Off, Reason: hypervisor.ShutDown}:   {Why: runtime.PoweredOff},
		{State: hypervisor.Off, Reason: hypervisor.Crashed}:    {Why: runtime.Crashed},
		{State: hypervisor.Off, Reason: hypervisor.Destroyed}:  {Why: runtime.Destroyed},
		{State: hypervisor.Off, Reason: hypervisor.Saved}:      {Why: runtime.Unknown},
		{State: hypervisor.Off, Reason: hypervisor.Failed}:     {Why: runtime.Unknown},
		{State: hypervisor.Off}:                                {Why: runtime.Unknown},
		{State: hypervisor.Paused, Reason: hypervisor.IOError}: {State: runtime.Held},
		{State: hypervisor.Running}:                            {State: runtime.Runs},
	} {
		if got := machine(in); got != want {
			t.Errorf("%+v is %+v, want %+v", in, got, want)
		}
	}
}

// TestEventsEnd: where events may be missing, they end, so that their reader compares; and so they do when the hypervisor is gone.
func TestEventsEnd(t *testing.T) {
	t.Parallel()
	h := fake.NewHost(fake.Options{})
	c := h.Connect(nil)
	m := Machines{Of: c, Pulse: time.Millisecond}
	events, err := m.Events(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	if uuid, ok := next(t, events); ok {
		t.Errorf("an event of %q", uuid)
	}
	if _, err := m.Events(t.Context()); vm.KindOf(err) != vm.Unavailable {
		t.Errorf("events of a hypervisor that is gone: %v", err)
	}

	gone := Machines{Of: &silent{Hypervisor: h.Connect(nil)}, Pulse: time.Millisecond}
	if events, err = gone.Events(t.Context()); err != nil {
		t.Fatal(err)
	}
	if uuid, ok := next(t, events); ok {
		t.Errorf("an event of %q", uuid)
	}
}

// silent says nothing of its end: only those who ask again learn of it.
type silent struct {
	hypervisor.Hypervisor
	asked atomic.Int32
}

func (s *silent) Machine(ctx context.Context, uuid string) (hypervisor.Machine, error) {
	if s.asked.Add(1) > 2 {
		return hypervisor.Machine{}, vm.Errorf(vm.Unavailable, "it is gone")
	}
	return s.Hypervisor.Machine(ctx, uuid)
}
