package fake

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/muster-scheduler/muster/internal/vm"
	"github.com/muster-scheduler/muster/internal/vm/hypervisor"
)

// Client is one caller's connection to a Host.
type Client struct {
	host   *Host
	faults Faults
	feed   hypervisor.Feed
	calls  int
	dead   bool
	closed bool
}

var _ hypervisor.Hypervisor = (*Client)(nil)

// Connect makes a Client whose calls go wrong as faults says.
func (h *Host) Connect(faults Faults) *Client {
	h.mu.Lock()
	defer h.mu.Unlock()
	c := &Client{host: h, faults: faults}
	h.clients[c] = true
	if !h.away {
		c.feed.Compare(h.ours())
	}
	return c
}

// Calls is how many calls were made.
func (c *Client) Calls() int {
	c.host.mu.Lock()
	defer c.host.mu.Unlock()
	return c.calls
}

// do carries out a call with what can go wrong.
func (c *Client) do(ctx context.Context, verb, uuid string, what func(h *Host) error) error {
	h := c.host
	h.mu.Lock()
	defer h.mu.Unlock()
	if c.dead {
		return ErrCrashed
	}
	c.calls++
	var f Fault
	if c.faults != nil {
		f = c.faults(Call{N: c.calls, Verb: verb, UUID: uuid})
	}
	if f.Dead {
		c.dead = true
		delete(h.clients, c)
		c.feed.Close()
	}
	switch {
	case f.Before != nil:
		return f.Before
	case ctx.Err() != nil:
		return vm.Errorf(vm.Unavailable, "%s: %w", verb, context.Cause(ctx))
	case c.closed:
		return vm.Errorf(vm.Unavailable, "%s: the hypervisor's client is closed", verb)
	case h.away:
		return vm.Errorf(vm.Unavailable, "%s: the hypervisor does not answer", verb)
	}
	if err := what(h); err != nil {
		return err
	}
	return f.After
}

// with is do for a machine of ours.
func (c *Client) with(ctx context.Context, verb, uuid string, what func(h *Host, m *machine) error) error {
	if err := hypervisor.CheckUUID(uuid); err != nil {
		return err
	}
	return c.do(ctx, verb, uuid, func(h *Host) error {
		m := h.machines[uuid]
		if m == nil || m.foreign {
			return vm.Errorf(vm.NotFound, "machine %s: there is none", uuid)
		}
		return what(h, m)
	})
}

func gone(err error) error {
	if err != nil && vm.KindOf(err) == vm.NotFound {
		return nil
	}
	return err
}

// Define is hypervisor.Hypervisor's, as are the other methods.
func (c *Client) Define(ctx context.Context, xml string) (string, error) {
	about, err := hypervisor.Describe(xml)
	if err != nil {
		return "", err
	}
	return about.UUID, c.do(ctx, "Define", about.UUID, func(h *Host) error { return h.define(about, xml) })
}

func (h *Host) define(about hypervisor.Description, xml string) error {
	m := h.machines[about.UUID]
	for _, other := range h.machines { // order: at most one has the name
		if other.Name == about.Name && other.UUID != about.UUID {
			return vm.Errorf(vm.Conflict, "machine %s: name %s is another's", about.UUID, about.Name)
		}
	}
	switch {
	case m == nil:
		m = &machine{}
		h.machines[about.UUID] = m
	case m.foreign, m.Owner.Container != about.Owner.Container:
		return vm.Errorf(vm.Conflict, "machine %s: it belongs to somebody else", about.UUID)
	case m.State != hypervisor.Off:
		return vm.Errorf(vm.Conflict, "machine %s: it is %s", about.UUID, m.State)
	case m.Name != about.Name:
		return vm.Errorf(vm.Conflict, "machine %s: it is called %s already", about.UUID, m.Name)
	}
	m.UUID, m.Name, m.Owner = about.UUID, about.Name, about.Owner
	m.xml, m.about = xml, about
	h.set(m, m.State, m.Reason)
	return nil
}

// Start is hypervisor.Hypervisor's.
func (c *Client) Start(ctx context.Context, uuid string) (pid int, err error) {
	err = c.with(ctx, "Start", uuid, func(h *Host, m *machine) error {
		if m.State == hypervisor.Off {
			h.asked++
			h.start(m, h.asked, time.Time{})
		}
		pid = m.pid
		return nil
	})
	return pid, err
}

// start makes a process. began is zero for a guest that has not run.
func (h *Host) start(m *machine, boot int, began time.Time) {
	m.pid, m.run, m.boot, m.began, m.ran = h.pid, m.run+1, boot, began, 0
	h.pid++
	h.set(m, hypervisor.Paused, hypervisor.Held)
	m.guest = h.options.Guest(m.Machine)
}

// Resume is hypervisor.Hypervisor's.
func (c *Client) Resume(ctx context.Context, uuid string) error {
	return c.with(ctx, "Resume", uuid, func(h *Host, m *machine) error {
		switch m.State {
		case hypervisor.Off:
			return vm.Errorf(vm.Conflict, "machine %s: it is off", uuid)
		case hypervisor.Running:
			return nil
		}
		h.set(m, hypervisor.Running, hypervisor.Unknown)
		if !m.began.IsZero() {
			return nil
		}
		m.began = h.now
		if m.guest.Runs > 0 {
			why := hypervisor.ShutDown
			if m.guest.Crashes {
				why = hypervisor.Crashed
			}
			h.after(m, m.guest.Runs, func(m *machine) { h.off(m, why) })
		}
		return nil
	})
}

// deaf says that the guest has not booted.
func (h *Host) deaf(m *machine) bool {
	return m.State != hypervisor.Running || h.now.Sub(m.began) < m.guest.Boot
}

// Shutdown is hypervisor.Hypervisor's.
func (c *Client) Shutdown(ctx context.Context, uuid string) error {
	return gone(c.with(ctx, "Shutdown", uuid, func(h *Host, m *machine) error {
		if !h.deaf(m) && !m.guest.Stubborn {
			h.after(m, m.guest.ShutsDown, func(m *machine) { h.off(m, hypervisor.ShutDown) })
			h.until(h.now) // at once, if it takes no time
		}
		return nil
	}))
}

// Destroy is hypervisor.Hypervisor's.
func (c *Client) Destroy(ctx context.Context, uuid string) error {
	return gone(c.with(ctx, "Destroy", uuid, func(h *Host, m *machine) error {
		if m.State != hypervisor.Off {
			h.off(m, hypervisor.Destroyed)
		}
		return nil
	}))
}

// Undefine is hypervisor.Hypervisor's.
func (c *Client) Undefine(ctx context.Context, uuid string) error {
	return gone(c.with(ctx, "Undefine", uuid, func(h *Host, m *machine) error {
		if m.State != hypervisor.Off {
			return vm.Errorf(vm.Conflict, "machine %s: it is %s", uuid, m.State)
		}
		delete(h.machines, uuid)
		h.tell(func(c *Client) { c.feed.Gone(uuid) })
		return nil
	}))
}

// saved is what a file of Save's holds.
type saved struct {
	UUID  string
	Boot  int
	Began time.Time
}

// Save is hypervisor.Hypervisor's. The file is real, and small.
func (c *Client) Save(ctx context.Context, uuid, path string) error {
	if !filepath.IsAbs(path) {
		return vm.Errorf(vm.Invalid, "machine %s: save to %q: must be an absolute path", uuid, path)
	}
	return c.with(ctx, "Save", uuid, func(h *Host, m *machine) error {
		if m.State == hypervisor.Off {
			if m.Reason == hypervisor.Saved {
				return nil
			}
			return vm.Errorf(vm.Conflict, "machine %s: it is off", uuid)
		}
		b, err := json.Marshal(saved{UUID: uuid, Boot: m.boot, Began: m.began})
		if err != nil {
			return err
		}
		if err := os.WriteFile(path, b, 0o600); err != nil {
			return fmt.Errorf("machine %s: save: %w", uuid, err)
		}
		h.off(m, hypervisor.Saved)
		return nil
	})
}

// Restore is hypervisor.Hypervisor's.
func (c *Client) Restore(ctx context.Context, path, xml string) (pid int, err error) {
	about, err := hypervisor.Describe(xml)
	if err != nil {
		return 0, err
	}
	err = c.do(ctx, "Restore", about.UUID, func(h *Host) error {
		if m := h.machines[about.UUID]; m != nil && !m.foreign && m.State != hypervisor.Off && m.Owner == about.Owner {
			pid = m.pid
			return nil
		}
		if err := h.define(about, xml); err != nil {
			return err
		}
		var s saved
		b, err := os.ReadFile(path)
		if err == nil {
			err = json.Unmarshal(b, &s)
		}
		if err == nil && s.UUID != about.UUID {
			err = fmt.Errorf("it is of machine %s", s.UUID)
		}
		if err != nil {
			return fmt.Errorf("machine %s: restore: %w", about.UUID, err)
		}
		m := h.machines[about.UUID]
		h.start(m, s.Boot, s.Began)
		pid = m.pid
		return nil
	})
	return pid, err
}

// Machine is hypervisor.Hypervisor's.
func (c *Client) Machine(ctx context.Context, uuid string) (out hypervisor.Machine, err error) {
	err = c.with(ctx, "Machine", uuid, func(_ *Host, m *machine) error {
		out = m.Machine
		return nil
	})
	return out, err
}

// List is hypervisor.Hypervisor's.
func (c *Client) List(ctx context.Context) (out []hypervisor.Machine, err error) {
	err = c.do(ctx, "List", "", func(h *Host) error {
		out = h.ours()
		return nil
	})
	return out, err
}

// Stats is hypervisor.Hypervisor's. CPU time is the time that the CPUs ran; the whole memory is resident.
func (c *Client) Stats(ctx context.Context) (out []hypervisor.Stats, err error) {
	err = c.do(ctx, "Stats", "", func(h *Host) error {
		for _, one := range h.ours() {
			m := h.machines[one.UUID]
			if m.State == hypervisor.Off {
				continue
			}
			ran := m.ran
			if m.State == hypervisor.Running {
				ran += h.now.Sub(m.since)
			}
			memory := m.about.Memory
			if m.limits.Memory > 0 {
				memory = m.limits.Memory
			}
			out = append(out, hypervisor.Stats{
				UUID: m.UUID, CPUTime: uint64(ran) * uint64(m.about.VCPUs), Resident: memory,
			})
		}
		return nil
	})
	return out, err
}

// Update is hypervisor.Hypervisor's.
func (c *Client) Update(ctx context.Context, uuid string, l hypervisor.Limits) error {
	if err := l.Check(); err != nil {
		return fmt.Errorf("machine %s: %w", uuid, err)
	}
	return c.with(ctx, "Update", uuid, func(_ *Host, m *machine) error {
		switch {
		case m.State == hypervisor.Off:
			return vm.Errorf(vm.Conflict, "machine %s: it is off", uuid)
		case l.VCPUs > m.about.MaxVCPUs:
			return vm.Errorf(vm.Invalid, "machine %s: %d CPUs: it has room for %d", uuid, l.VCPUs, m.about.MaxVCPUs)
		case l.Memory > m.about.Memory:
			return vm.Errorf(vm.Invalid, "machine %s: %d bytes of memory: it was started with %d", uuid, l.Memory, m.about.Memory)
		}
		l.CPUs = slices.Clone(l.CPUs)
		m.limits = m.limits.With(l)
		if l.VCPUs > 0 {
			m.about.VCPUs = l.VCPUs
		}
		return nil
	})
}

// Console is hypervisor.Hypervisor's.
func (c *Client) Console(ctx context.Context, uuid string) (path string, err error) {
	err = c.with(ctx, "Console", uuid, func(_ *Host, m *machine) error {
		if path = m.about.Console; path == "" {
			return vm.Errorf(vm.NotFound, "machine %s: it has no serial port with a socket", uuid)
		}
		return nil
	})
	return path, err
}

// Agent is hypervisor.Hypervisor's. It knows guest-ping, guest-exec and guest-exec-status.
func (c *Client) Agent(ctx context.Context, uuid, command string) (answer string, err error) {
	err = c.with(ctx, "Agent", uuid, func(h *Host, m *machine) error {
		switch {
		case m.State == hypervisor.Off:
			return vm.Errorf(vm.Conflict, "machine %s: it is off", uuid)
		case !m.about.Agent:
			return vm.Errorf(vm.Invalid, "machine %s: it has no port for a guest agent", uuid)
		case m.guest.Exec == nil || h.deaf(m):
			return vm.Errorf(vm.Unavailable, "machine %s: the guest agent does not answer", uuid)
		}
		answer, err = m.agent(h.now, command)
		return err
	})
	return answer, err
}

func (m *machine) agent(now time.Time, command string) (string, error) {
	var q struct {
		Execute   string `json:"execute"`
		Arguments struct {
			Path string   `json:"path"`
			Arg  []string `json:"arg"`
			PID  int      `json:"pid"`
		} `json:"arguments"`
	}
	if err := json.Unmarshal([]byte(command), &q); err != nil {
		return "", vm.Errorf(vm.Invalid, "guest agent: %w", err)
	}
	answer := map[string]any{}
	switch q.Execute {
	case "guest-ping":
	case "guest-exec":
		r := m.guest.Exec(append([]string{q.Arguments.Path}, q.Arguments.Arg...))
		m.jobs = append(m.jobs, job{result: r, ends: now.Add(r.Takes)})
		answer["pid"] = len(m.jobs)
	case "guest-exec-status":
		if q.Arguments.PID < 1 || q.Arguments.PID > len(m.jobs) {
			return "", fmt.Errorf("guest agent: there is no process %d", q.Arguments.PID)
		}
		j := m.jobs[q.Arguments.PID-1]
		if answer["exited"] = !now.Before(j.ends); answer["exited"] == true {
			answer["exitcode"], answer["out-data"], answer["err-data"] = j.result.ExitCode, j.result.Stdout, j.result.Stderr
		}
	default:
		return "", fmt.Errorf("guest agent: %q is not known", q.Execute)
	}
	b, err := json.Marshal(map[string]any{"return": answer})
	return string(b), err
}

// Events is hypervisor.Hypervisor's.
func (c *Client) Events(ctx context.Context) <-chan hypervisor.Event { return c.feed.Read(ctx) }

// Close is hypervisor.Hypervisor's.
func (c *Client) Close() {
	c.host.mu.Lock()
	defer c.host.mu.Unlock()
	c.closed = true
	delete(c.host.clients, c)
	c.feed.Close()
}
