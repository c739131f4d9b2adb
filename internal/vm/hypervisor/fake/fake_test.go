package fake_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muster-scheduler/muster/internal/vm"
	"github.com/muster-scheduler/muster/internal/vm/hypervisor"
	"github.com/muster-scheduler/muster/internal/vm/hypervisor/conformance"
	"github.com/muster-scheduler/muster/internal/vm/hypervisor/fake"
)

const console = "/run/vm/serial.sock"

func description(uuid, name, container string) string {
	return fmt.Sprintf(`<domain type="qemu"><name>%s</name><uuid>%s</uuid>
<metadata><owner xmlns=%q container=%q sandbox="sandbox" pod="team/web" uid="uid"/></metadata>
<memory unit="KiB">65536</memory><vcpu>1</vcpu><devices><serial type="unix"><source mode="connect" path=%q/></serial>
<channel type="unix"><target type="virtio" name="org.qemu.guest_agent.0"/></channel></devices></domain>`, name, uuid, hypervisor.Namespace, container, console)
}

func uuid(n int) string { return fmt.Sprintf("00000000-0000-4000-8000-%012d", n) }

func TestConformance(t *testing.T) {
	t.Parallel()
	var h *fake.Host
	conformance.Run(t, conformance.Subject{
		Connect: func(*testing.T) hypervisor.Hypervisor {
			if h == nil {
				h = fake.NewHost(fake.Options{Guest: func(hypervisor.Machine) fake.Guest { return fake.Guest{Stubborn: true} }})
			}
			return h.Connect(nil)
		},
		XML: description, Console: console,
		Kill: func(_ *testing.T, uuid string, _ int) { h.Kill(uuid) },
		Foreign: func(_ *testing.T, uuid, name string) func() bool {
			h.Foreign(uuid, name)
			return func() bool { return slices.Contains(h.All(), uuid+" "+name+"  running ") }
		},
		Interrupt: func(*testing.T) func() {
			h.Away()
			return h.Back
		},
	})
}

// started makes n machines that run.
func started(t *testing.T, c *fake.Client, n int) {
	t.Helper()
	for i := 1; i <= n; i++ {
		id := uuid(i)
		_, err := c.Define(t.Context(), description(id, fmt.Sprintf("muster-%d", i), fmt.Sprintf("container-%d", i)))
		if err == nil {
			_, err = c.Start(t.Context(), id)
		}
		if err == nil {
			err = c.Resume(t.Context(), id)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func state(t *testing.T, c *fake.Client, id string) hypervisor.Machine {
	t.Helper()
	m, err := c.Machine(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestGuestsLiveInTheirOwnTime(t *testing.T) {
	t.Parallel()
	h := fake.NewHost(fake.Options{Guest: func(m hypervisor.Machine) fake.Guest {
		switch m.UUID {
		case uuid(1):
			return fake.Guest{Boot: 8 * time.Second, ShutsDown: time.Second}
		case uuid(2):
			return fake.Guest{Runs: 20 * time.Second}
		}
		return fake.Guest{Runs: 20 * time.Second, Crashes: true}
	}})
	c := h.Connect(nil)
	started(t, c, 3)
	if err := c.Shutdown(t.Context(), uuid(1)); err != nil { // it has not booted
		t.Fatal(err)
	}
	h.Advance(8 * time.Second)
	if m := state(t, c, uuid(1)); m.State != hypervisor.Running {
		t.Fatalf("the power button reached a guest that was not there yet: %+v", m)
	}
	if err := c.Shutdown(t.Context(), uuid(1)); err != nil {
		t.Fatal(err)
	}
	h.Advance(999 * time.Millisecond)
	if m := state(t, c, uuid(1)); m.State != hypervisor.Running {
		t.Fatalf("too early: %+v", m)
	}
	h.Advance(time.Millisecond)
	if m := state(t, c, uuid(1)); m.State != hypervisor.Off || m.Reason != hypervisor.ShutDown {
		t.Fatalf("%+v", m)
	}
	stats, err := c.Stats(t.Context())
	if err != nil || len(stats) != 2 || stats[0].CPUTime != uint64(9*time.Second) {
		t.Fatalf("%+v %v", stats, err)
	}
	h.Advance(time.Hour)
	if m := state(t, c, uuid(2)); m.Reason != hypervisor.ShutDown {
		t.Fatalf("%+v", m)
	}
	if m := state(t, c, uuid(3)); m.Reason != hypervisor.Crashed {
		t.Fatalf("%+v", m)
	}
}

func TestASavedGuestIsTheSameLater(t *testing.T) {
	t.Parallel()
	h := fake.NewHost(fake.Options{})
	c := h.Connect(nil)
	started(t, c, 1)
	boot, file := h.Boot(uuid(1)), filepath.Join(t.TempDir(), "memory")
	if err := c.Save(t.Context(), uuid(1), file); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Restore(t.Context(), file, description(uuid(1), "muster-1", "container-1")); err != nil {
		t.Fatal(err)
	}
	if got := h.Boot(uuid(1)); got != boot {
		t.Errorf("boot %d became %d", boot, got)
	}
	if _, err := c.Restore(t.Context(), file, description(uuid(2), "muster-2", "container-2")); err == nil {
		t.Error("another machine was restored from it")
	}
}

// TestFaults walks a life with each fault at each call.
func TestFaults(t *testing.T) {
	t.Parallel()
	walk := func(c *fake.Client) (err error) {
		ctx := context.Background()
		for _, step := range []func() error{
			func() error {
				_, err := c.Define(ctx, description(uuid(1), "muster-1", "container-1"))
				return err
			},
			func() error {
				_, err := c.Start(ctx, uuid(1))
				return err
			},
			func() error { return c.Resume(ctx, uuid(1)) },
			func() error { return c.Destroy(ctx, uuid(1)) },
			func() error { return c.Undefine(ctx, uuid(1)) },
		} {
			if err := step(); err != nil {
				return err
			}
		}
		return nil
	}
	for n := 1; n <= 5; n++ {
		for name, f := range map[string]fake.Faults{"fail": fake.FailAt(n), "lose": fake.LoseAt(n), "before": fake.CrashAt(n, false), "after": fake.CrashAt(n, true)} {
			h := fake.NewHost(fake.Options{})
			c := h.Connect(f)
			err := walk(c)
			dead := name == "before" || name == "after"
			if err == nil || errors.Is(err, fake.ErrCrashed) != dead || !dead && vm.KindOf(err) != vm.Unavailable || c.Calls() != n {
				t.Errorf("%s %d: %v after %d calls", name, n, err, c.Calls())
			}
			if dead {
				if _, err := c.List(context.Background()); !errors.Is(err, fake.ErrCrashed) {
					t.Errorf("%s %d: a dead client answers %v", name, n, err)
				}
				c = h.Connect(nil)
			}
			// Whatever has happened, the same walk comes to its end: every call may be repeated. Only what is up has to be ended first.
			err = errors.Join(c.Destroy(context.Background(), uuid(1)), walk(c))
			if err != nil || len(h.All()) != 0 {
				t.Errorf("%s %d: again: %v %v", name, n, err, h.All())
			}
		}
	}
}

func TestExec(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var asked []string
		h := fake.NewHost(fake.Options{Guest: func(hypervisor.Machine) fake.Guest {
			return fake.Guest{Exec: func(command []string) fake.Result {
				asked = append(asked, strings.Join(command, " "))
				return fake.Result{Stdout: []byte(strings.Join(command, " ")), Stderr: []byte("e"), ExitCode: 3, Takes: time.Second}
			}}
		}})
		c := h.Connect(nil)
		started(t, c, 1)
		go func() {
			time.Sleep(700 * time.Millisecond)
			h.Away() // while it waits
			time.Sleep(300 * time.Millisecond)
			h.Advance(time.Second)
			h.Back()
		}()
		out, err := hypervisor.Exec(t.Context(), c, uuid(1), []string{"/bin/echo", "hello", "world"}, nil, 10)
		if err != nil || string(out.Stdout) != "/bin/echo " || string(out.Stderr) != "e" || out.ExitCode != 3 || !out.Truncated {
			t.Fatalf("%+v %v", out, err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		if _, err := hypervisor.Exec(ctx, c, uuid(1), []string{"/bin/sleep"}, nil, 10); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("%v", err)
		}
		// What has no time left is ended in the guest too, by the process id that it has there.
		if last := asked[len(asked)-1]; last != "kill -KILL 2" {
			t.Errorf("after the time is over the guest is asked for %q", last)
		}
		// The answer to the start is lost: nobody may think that it can be run again.
		lossy := h.Connect(fake.LoseAt(2))
		if _, err := hypervisor.Exec(t.Context(), lossy, uuid(1), []string{"/bin/true"}, nil, 10); err == nil || vm.KindOf(err) != vm.Internal {
			t.Fatalf("%v", err)
		}
		for i, answer := range []string{`{"return":{"pid":"x"}}`, `{"return":[]}`, `{`, `{"return":{}}`, "", `{"return":null}`, `{"error":{"desc":"no"}}`} {
			if _, err := hypervisor.Exec(t.Context(), hostile(answer), uuid(1), []string{"/bin/true"}, nil, 10); err == nil {
				t.Errorf("%d: %q was believed", i, answer)
			}
		}
		huge := hostile(`{"return":{"pid":1,"exited":true,"exitcode":-1,"signal":9,"out-data":"` + strings.Repeat("QUJD", 1<<20) + `"}}`)
		out, err = hypervisor.Exec(t.Context(), huge, uuid(1), []string{"/bin/true"}, nil, 5)
		if err != nil || string(out.Stdout) != "ABCAB" || out.ExitCode != 137 || !out.Truncated {
			t.Fatalf("%q %d %v", out.Stdout, out.ExitCode, err)
		}
	})
}

// hostile answers everything alike.
type hostile string

func (h hostile) Agent(context.Context, string, string) (string, error) { return string(h), nil }

func TestAReaderThatSleepsIsToldToCompare(t *testing.T) {
	t.Parallel()
	h := fake.NewHost(fake.Options{})
	c := h.Connect(nil)
	events := c.Events(t.Context())
	started(t, c, 500)
	for i := 1; i <= 500; i++ {
		h.Kill(uuid(i))
	}
	resyncs, last := 0, hypervisor.Event{}
	for len(events) > 0 {
		if last = <-events; last.Kind == hypervisor.Resync {
			resyncs++
		}
	}
	if resyncs != 2 || last.Kind != hypervisor.Resync {
		t.Fatalf("%d resyncs; the last event is %+v", resyncs, last)
	}
	if _, err := c.Start(t.Context(), uuid(7)); err != nil {
		t.Fatal(err)
	}
	if e := <-events; e.Kind != hypervisor.Changed || e.Machine.UUID != uuid(7) {
		t.Fatalf("%+v", e)
	}
}

// TestFiveHundred bounds what a list with stats allocates, and says what it takes.
func TestFiveHundred(t *testing.T) {
	h := fake.NewHost(fake.Options{})
	c := h.Connect(nil)
	started(t, c, 500)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	begin := time.Now()
	list, err := c.List(t.Context())
	stats, err2 := c.Stats(t.Context())
	took := time.Since(begin)
	runtime.ReadMemStats(&after)
	if err := errors.Join(err, err2); err != nil || len(list) != 500 || len(stats) != 500 {
		t.Fatal(len(list), len(stats), err)
	}
	if allocated := after.TotalAlloc - before.TotalAlloc; allocated > 8<<20 {
		t.Errorf("%d bytes were allocated", allocated)
	}
	t.Logf("a list with stats of 500 machines: %s", took)
}
