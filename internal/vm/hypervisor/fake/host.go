package fake

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/muster-scheduler/muster/internal/vm/hypervisor"
)

// Options say how a Host is. The zero value is a good one.
type Options struct {
	// Now is the time at first; zero: 2030-01-01 in UTC.
	Now time.Time
	// Guest says how the guest of a machine behaves; nil: Guest{} for all.
	Guest func(hypervisor.Machine) Guest
	// FirstPID is the process of the first machine that is started, 0: 100000. The following count up. They are not real.
	FirstPID int
}

// Guest is how a guest behaves. Times count from when its CPUs run first.
type Guest struct {
	// Boot is how long it is deaf: neither the power button nor the agent's port reach it.
	Boot time.Duration
	// ShutsDown is how long it takes to power off when asked.
	ShutsDown time.Duration
	// Stubborn says that it never powers off when asked.
	Stubborn bool
	// Runs is when it powers off by itself; 0: never.
	Runs time.Duration
	// Crashes says that it ends as Crashed at Runs.
	Crashes bool
	// Exec is its agent's answer to a command; nil: there is no agent.
	Exec func(command []string) Result
}

// Result is what a command in a guest does.
type Result struct {
	Stdout, Stderr []byte
	ExitCode       int32
	// Takes is how long it runs.
	Takes time.Duration
}

// Host is a libvirtd and its machines.
type Host struct {
	mu       sync.Mutex
	options  Options
	now      time.Time
	away     bool
	machines map[string]*machine
	pid      int
	later    []event
	asked    int // numbers what is put into later
	clients  map[*Client]bool
}

type machine struct {
	hypervisor.Machine
	foreign bool
	xml     string
	about   hypervisor.Description
	pid     int
	run     int // a start's number: what was meant for an earlier one is void
	guest   Guest
	began   time.Time     // when CPUs ran first in this life, whatever was saved meanwhile
	ran     time.Duration // CPU time up to since
	since   time.Time     // running since
	boot    int           // the guest's boot id: a restored one keeps it
	limits  hypervisor.Limits
	jobs    []job
}

type job struct {
	result Result
	ends   time.Time
}

type event struct {
	at    time.Time
	order int
	uuid  string
	run   int
	what  func(*machine)
}

// NewHost makes a Host without machines.
func NewHost(o Options) *Host {
	if o.Now.IsZero() {
		o.Now = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	}
	if o.Guest == nil {
		o.Guest = func(hypervisor.Machine) Guest { return Guest{} }
	}
	if o.FirstPID == 0 {
		o.FirstPID = 100_000
	}
	return &Host{options: o, now: o.Now, machines: map[string]*machine{}, pid: o.FirstPID, clients: map[*Client]bool{}}
}

// Now is the Host's time.
func (h *Host) Now() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.now
}

// Advance lets time pass.
func (h *Host) Advance(d time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.until(h.now.Add(d))
}

// until carries out what is due until then. What that asks for in turn comes later than it.
func (h *Host) until(end time.Time) {
	for len(h.later) > 0 {
		i := 0
		for j := range h.later {
			if c := h.later[j].at.Compare(h.later[i].at); c < 0 || c == 0 && h.later[j].order < h.later[i].order {
				i = j
			}
		}
		e := h.later[i]
		if e.at.After(end) {
			break
		}
		h.later = slices.Delete(h.later, i, i+1)
		h.now = e.at
		if m := h.machines[e.uuid]; m != nil && m.run == e.run && m.State != hypervisor.Off {
			e.what(m)
		}
	}
	h.now = end
}

func (h *Host) after(m *machine, d time.Duration, what func(*machine)) {
	h.asked++
	h.later = append(h.later, event{at: h.now.Add(d), order: h.asked, uuid: m.UUID, run: m.run, what: what})
}

// Away makes the Host unreachable: calls are Unavailable, machines go on, and nobody is told.
func (h *Host) Away() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.away = true
}

// Back ends Away: clients learn what has changed.
func (h *Host) Back() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.away {
		return
	}
	h.away = false
	for c := range h.clients { // order: clients do not see one another
		c.feed.Compare(h.ours())
	}
}

// Kill ends a machine's process, as the kernel's OOM killer would. It does nothing to one that is off.
func (h *Host) Kill(uuid string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if m := h.machines[uuid]; m != nil && m.State != hypervisor.Off {
		h.off(m, hypervisor.Crashed)
	}
}

// PowerOff has a guest power off by itself, now.
func (h *Host) PowerOff(uuid string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if m := h.machines[uuid]; m != nil && m.State == hypervisor.Running {
		h.off(m, hypervisor.ShutDown)
	}
}

// Foreign adds a machine that is nobody's of ours and runs. No call reaches it: All shows that it is as before.
func (h *Host) Foreign(uuid, name string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.machines[uuid] = &machine{Machine: hypervisor.Machine{UUID: uuid, Name: name, State: hypervisor.Running}, foreign: true}
}

// Boot is the number of the boot that a machine's guest is in; 0: there is none. A restored guest is in the one that it was saved in.
func (h *Host) Boot(uuid string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	if m := h.machines[uuid]; m != nil && m.State != hypervisor.Off {
		return m.boot
	}
	return 0
}

// LimitsOf are those that a machine was given last.
func (h *Host) LimitsOf(uuid string) hypervisor.Limits {
	h.mu.Lock()
	defer h.mu.Unlock()
	if m := h.machines[uuid]; m != nil {
		return m.limits
	}
	return hypervisor.Limits{}
}

// All describes every machine, foreign ones too, by UUID: for comparing one run of a test with another.
func (h *Host) All() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var out []string
	for _, uuid := range slices.Sorted(maps.Keys(h.machines)) {
		m := h.machines[uuid]
		out = append(out, fmt.Sprintf("%s %s %s %s %s", m.UUID, m.Name, m.Owner.Container, m.State, m.Reason))
	}
	return out
}

func (h *Host) ours() []hypervisor.Machine {
	var out []hypervisor.Machine
	for _, m := range h.machines { // order: sorted below
		if !m.foreign {
			out = append(out, m.Machine)
		}
	}
	slices.SortFunc(out, func(a, b hypervisor.Machine) int { return cmp.Compare(a.UUID, b.UUID) })
	return out
}

func (h *Host) set(m *machine, s hypervisor.State, r hypervisor.Reason) {
	if m.State == hypervisor.Running {
		m.ran += h.now.Sub(m.since)
	}
	m.State, m.Reason = s, r
	if s == hypervisor.Running {
		m.since = h.now
	}
	h.tell(func(c *Client) { c.feed.Tell(m.Machine) })
}

func (h *Host) off(m *machine, r hypervisor.Reason) {
	m.pid, m.run, m.jobs = 0, m.run+1, nil
	h.set(m, hypervisor.Off, r)
}

func (h *Host) tell(what func(*Client)) {
	if h.away {
		return
	}
	for c := range h.clients { // order: clients do not see one another
		what(c)
	}
}
