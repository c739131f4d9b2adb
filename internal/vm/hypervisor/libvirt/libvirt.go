package libvirt

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	golibvirt "github.com/digitalocean/go-libvirt"
	"github.com/go-logr/logr"

	"github.com/muster-scheduler/muster/internal/vm"
	"github.com/muster-scheduler/muster/internal/vm/hypervisor"
)

// Options say where libvirtd is. Zero fields have the defaults named.
type Options struct {
	// Socket is libvirtd's: /run/libvirt/libvirt-sock.
	Socket string
	// URI is the driver's: qemu:///system.
	URI string
	// PIDs is the folder of the drivers' pid files: /run/libvirt/qemu.
	PIDs string
	// Patience is how long libvirtd may leave the simplest question unanswered: 10 s.
	Patience time.Duration
	// Slow is how many calls that may take long are under way at once: 64.
	Slow int
	Log  logr.Logger
}

// Hypervisor is libvirt's QEMU driver.
type Hypervisor struct {
	options Options
	ctx     context.Context
	cancel  context.CancelFunc
	ended   chan struct{}
	feed    hypervisor.Feed
	quickly chan struct{}
	slowly  chan struct{}
	calls   sync.WaitGroup

	mu   sync.Mutex
	link *link
	down error // why link is nil
	// owners are those of machines that were seen, so that a list need not ask for each. A machine that comes, changes or goes is asked for anew.
	owners map[golibvirt.UUID]hypervisor.Owner
}

var _ hypervisor.Hypervisor = (*Hypervisor)(nil)

// quickCalls is how many calls of one connection libvirtd serves at once.
const quickCalls = 5

// Open begins to connect. It tries once before it returns, for as long as ctx allows, and tries on by itself until Close.
func Open(ctx context.Context, o Options) *Hypervisor {
	for _, d := range []struct {
		value *string
		is    string
	}{{&o.Socket, "/run/libvirt/libvirt-sock"}, {&o.URI, string(golibvirt.QEMUSystem)}, {&o.PIDs, "/run/libvirt/qemu"}} {
		if *d.value == "" {
			*d.value = d.is
		}
	}
	if o.Patience <= 0 {
		o.Patience = 10 * time.Second
	}
	if o.Slow <= 0 {
		o.Slow = 64
	}
	if o.Log.GetSink() == nil {
		o.Log = logr.Discard()
	}
	h := &Hypervisor{
		options: o, ended: make(chan struct{}), quickly: make(chan struct{}, quickCalls), slowly: make(chan struct{}, o.Slow),
		down: errors.New("it was not dialled yet"), owners: map[golibvirt.UUID]hypervisor.Owner{},
	}
	h.ctx, h.cancel = context.WithCancel(context.WithoutCancel(ctx))
	tried := make(chan struct{})
	go h.run(sync.OnceFunc(func() { close(tried) }))
	select {
	case <-tried:
	case <-ctx.Done():
	}
	return h
}

// Close is hypervisor.Hypervisor's.
func (h *Hypervisor) Close() {
	h.cancel()
	<-h.ended
	h.calls.Wait()
	h.feed.Close()
}

// own gives a machine if it is ours; any other is NotFound. It asks libvirtd, whatever was known.
func (h *Hypervisor) own(l *link, uuid string) (golibvirt.Domain, hypervisor.Owner, error) {
	none := vm.Errorf(vm.NotFound, "there is none")
	id, err := parseUUID(uuid)
	if err != nil {
		return golibvirt.Domain{}, hypervisor.Owner{}, err
	}
	d, err := l.DomainLookupByUUID(id)
	if is(err, golibvirt.ErrNoDomain) {
		return d, hypervisor.Owner{}, none
	}
	if err != nil {
		return d, hypervisor.Owner{}, err
	}
	owner, err := h.owner(l, d)
	if err == nil && owner.Container == "" {
		err = none
	}
	return d, owner, err
}

// owner reads our element of a domain; a zero Owner: it is not ours.
func (h *Hypervisor) owner(l *link, d golibvirt.Domain) (hypervisor.Owner, error) {
	text, err := l.DomainGetMetadata(d, int32(golibvirt.DomainMetadataElement), golibvirt.OptString{hypervisor.Namespace}, 0)
	var o hypervisor.Owner
	switch {
	case is(err, golibvirt.ErrNoDomain, golibvirt.ErrNoDomainMetadata):
		err = nil
	case err == nil:
		if o, err = hypervisor.ParseOwner(text); err != nil {
			o, err = hypervisor.Owner{}, nil // an element that we did not write makes nothing ours
		}
	}
	if err == nil {
		h.mu.Lock()
		h.owners[d.UUID] = o
		h.mu.Unlock()
	}
	return o, err
}

// state of a domain of ours, now.
func (h *Hypervisor) state(l *link, d golibvirt.Domain, o hypervisor.Owner) (hypervisor.Machine, error) {
	s, r, err := l.DomainGetState(d, 0)
	m := hypervisor.Machine{UUID: uuidOf(d), Name: d.Name, Owner: o}
	m.State, m.Reason = stateOf(golibvirt.DomainState(s), r)
	return m, err
}

// on makes quick or slow calls for a machine of ours, and is given how it is.
func (h *Hypervisor) on(ctx context.Context, how func(context.Context, string, func(*link) error) error, verb, uuid string,
	f func(*link, golibvirt.Domain, hypervisor.Machine) error,
) error {
	return how(ctx, fmt.Sprintf("%s machine %.64s", verb, uuid), func(l *link) error {
		d, owner, err := h.own(l, uuid)
		if err != nil {
			return err
		}
		m, err := h.state(l, d, owner)
		if err != nil {
			return err
		}
		return f(l, d, m)
	})
}

func gone(err error) error {
	if err != nil && vm.KindOf(err) == vm.NotFound {
		return nil
	}
	return err
}

func isOff(m hypervisor.Machine) error {
	if m.State == hypervisor.Off {
		return vm.Errorf(vm.Conflict, "machine %s: it is off", m.UUID)
	}
	return nil
}

// Define is hypervisor.Hypervisor's, as are the other methods.
func (h *Hypervisor) Define(ctx context.Context, xml string) (string, error) {
	about, err := hypervisor.Describe(xml)
	if err != nil {
		return "", err
	}
	return about.UUID, h.slow(ctx, "define machine "+about.UUID, func(l *link) error { return h.define(l, about, xml) })
}

func (h *Hypervisor) define(l *link, about hypervisor.Description, xml string) error {
	d, owner, err := h.own(l, about.UUID)
	switch {
	case err == nil && owner.Container != about.Owner.Container:
		return vm.Errorf(vm.Conflict, "machine %s: it belongs to another container", about.UUID)
	case err == nil:
		m, err := h.state(l, d, owner)
		if err != nil {
			return err
		}
		if m.State != hypervisor.Off {
			return vm.Errorf(vm.Conflict, "machine %s: it is %s", about.UUID, m.State)
		}
	case vm.KindOf(err) != vm.NotFound:
		return err
	case d.Name != "":
		return vm.Errorf(vm.Conflict, "machine %s: it is not ours", about.UUID)
	}
	_, err = l.DomainDefineXMLFlags(xml, 0)
	// A name or UUID that is another's is an "operation failed" like many: libvirt says which in words only.
	if is(err, golibvirt.ErrOperationFailed) && strings.Contains(err.Error(), "already") {
		return vm.Errorf(vm.Conflict, "machine %s: libvirt: %.512s", about.UUID, err)
	}
	return err
}

// Start is hypervisor.Hypervisor's.
func (h *Hypervisor) Start(ctx context.Context, uuid string) (pid int, err error) {
	err = h.on(ctx, h.slow, "start", uuid, func(l *link, d golibvirt.Domain, m hypervisor.Machine) error {
		if m.State == hypervisor.Off {
			if _, err := l.DomainCreateWithFlags(d, uint32(golibvirt.DomainStartPaused)); err != nil {
				return err
			}
		}
		pid, err = h.pid(m)
		return err
	})
	return pid, err
}

// pid finds a machine's process. libvirt tells it in a file, and the process's arguments say that it is that.
func (h *Hypervisor) pid(m hypervisor.Machine) (int, error) {
	text, err := os.ReadFile(filepath.Join(h.options.PIDs, filepath.Base(m.Name)+".pid"))
	if err != nil {
		return 0, fmt.Errorf("machine %s: process: %w", m.UUID, err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text[:min(len(text), 32)])))
	if err != nil || pid <= 1 {
		return 0, fmt.Errorf("machine %s: process: %.32q is no pid", m.UUID, text)
	}
	args, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cmdline"))
	if err != nil || !slices.Contains(strings.Split(string(args), "\x00"), m.UUID) {
		return 0, fmt.Errorf("machine %s: process %d is not it, or has ended", m.UUID, pid)
	}
	return pid, nil
}

// Resume is hypervisor.Hypervisor's.
func (h *Hypervisor) Resume(ctx context.Context, uuid string) error {
	return h.on(ctx, h.slow, "resume", uuid, func(l *link, d golibvirt.Domain, m hypervisor.Machine) error {
		if m.State == hypervisor.Running {
			return nil
		}
		if err := isOff(m); err != nil {
			return err
		}
		return l.DomainResume(d)
	})
}

// Shutdown is hypervisor.Hypervisor's.
func (h *Hypervisor) Shutdown(ctx context.Context, uuid string) error {
	return gone(h.on(ctx, h.slow, "shut down", uuid, func(l *link, d golibvirt.Domain, m hypervisor.Machine) error {
		if m.State == hypervisor.Off {
			return nil
		}
		err := l.DomainShutdownFlags(d, golibvirt.DomainShutdownAcpiPowerBtn)
		if is(err, golibvirt.ErrOperationInvalid, golibvirt.ErrNoDomain) { // it has just gone by itself
			return nil
		}
		return err
	}))
}

// Destroy is hypervisor.Hypervisor's.
func (h *Hypervisor) Destroy(ctx context.Context, uuid string) error {
	return gone(h.on(ctx, h.slow, "destroy", uuid, func(l *link, d golibvirt.Domain, m hypervisor.Machine) error {
		if m.State == hypervisor.Off {
			return nil
		}
		err := l.DomainDestroyFlags(d, 0)
		if is(err, golibvirt.ErrOperationInvalid, golibvirt.ErrNoDomain) {
			return nil
		}
		return err
	}))
}

// Undefine is hypervisor.Hypervisor's.
func (h *Hypervisor) Undefine(ctx context.Context, uuid string) error {
	return gone(h.on(ctx, h.slow, "undefine", uuid, func(l *link, d golibvirt.Domain, m hypervisor.Machine) error {
		if m.State != hypervisor.Off {
			return vm.Errorf(vm.Conflict, "machine %s: it is %s", uuid, m.State)
		}
		return l.DomainUndefineFlags(d, golibvirt.DomainUndefineManagedSave|golibvirt.DomainUndefineSnapshotsMetadata|golibvirt.DomainUndefineNvram)
	}))
}

// Save is hypervisor.Hypervisor's.
func (h *Hypervisor) Save(ctx context.Context, uuid, path string) error {
	if !filepath.IsAbs(path) {
		return vm.Errorf(vm.Invalid, "machine %.64s: save to %q: must be an absolute path", uuid, path)
	}
	return h.on(ctx, h.slow, "save", uuid, func(l *link, d golibvirt.Domain, m hypervisor.Machine) error {
		if m.State == hypervisor.Off && m.Reason == hypervisor.Saved {
			return nil
		}
		if err := isOff(m); err != nil {
			return err
		}
		return l.DomainSaveFlags(d, path, nil, 0)
	})
}

// Restore is hypervisor.Hypervisor's.
func (h *Hypervisor) Restore(ctx context.Context, path, xml string) (pid int, err error) {
	about, err := hypervisor.Describe(xml)
	if err != nil {
		return 0, err
	}
	err = h.slow(ctx, "restore machine "+about.UUID, func(l *link) error {
		m := hypervisor.Machine{UUID: about.UUID, Name: about.Name}
		d, owner, err := h.own(l, about.UUID)
		if err == nil && owner == about.Owner {
			if m, err = h.state(l, d, owner); err != nil {
				return err
			}
			if m.State != hypervisor.Off {
				pid, err = h.pid(m)
				return err
			}
		}
		if err := h.define(l, about, xml); err != nil {
			return err
		}
		if err := l.DomainRestoreFlags(path, golibvirt.OptString{xml}, uint32(golibvirt.DomainSavePaused)); err != nil {
			return err
		}
		pid, err = h.pid(m)
		return err
	})
	return pid, err
}

// Machine is hypervisor.Hypervisor's.
func (h *Hypervisor) Machine(ctx context.Context, uuid string) (out hypervisor.Machine, err error) {
	err = h.on(ctx, h.quick, "look for", uuid, func(_ *link, _ golibvirt.Domain, m hypervisor.Machine) error {
		out = m
		return nil
	})
	return out, err
}

// Console is hypervisor.Hypervisor's.
func (h *Hypervisor) Console(ctx context.Context, uuid string) (path string, err error) {
	err = h.on(ctx, h.quick, "console of", uuid, func(l *link, d golibvirt.Domain, _ hypervisor.Machine) error {
		xml, err := l.DomainGetXMLDesc(d, 0)
		if err != nil {
			return err
		}
		about, err := hypervisor.Describe(xml)
		if err == nil && about.Console == "" {
			err = vm.Errorf(vm.NotFound, "machine %s: it has no serial port with a socket", uuid)
		}
		path = about.Console
		return err
	})
	return path, err
}

// agentWait is how long libvirt waits for an agent, in seconds: an agent that is there answers at once, and a command runs beside.
const agentWait = 5

// Agent is hypervisor.Hypervisor's.
func (h *Hypervisor) Agent(ctx context.Context, uuid, command string) (answer string, err error) {
	err = h.on(ctx, h.slow, "guest agent of", uuid, func(l *link, d golibvirt.Domain, m hypervisor.Machine) error {
		if err := isOff(m); err != nil {
			return err
		}
		wait := int32(agentWait)
		if end, ok := ctx.Deadline(); ok {
			wait = int32(min(max(time.Until(end)/time.Second, 1), agentWait))
		}
		out, err := l.QEMUDomainAgentCommand(d, command, wait, 0)
		if err == nil && len(out) == 1 {
			answer = out[0]
		}
		return err
	})
	return answer, err
}

// Update is hypervisor.Hypervisor's.
func (h *Hypervisor) Update(ctx context.Context, uuid string, want hypervisor.Limits) error {
	if err := want.Check(); err != nil {
		return fmt.Errorf("machine %.64s: %w", uuid, err)
	}
	return h.on(ctx, h.slow, "update", uuid, func(l *link, d golibvirt.Domain, m hypervisor.Machine) error {
		if err := isOff(m); err != nil {
			return err
		}
		xml, err := l.DomainGetXMLDesc(d, 0)
		if err != nil {
			return err
		}
		about, err := hypervisor.Describe(xml)
		switch {
		case err != nil:
			return err
		case want.VCPUs > about.MaxVCPUs:
			return vm.Errorf(vm.Invalid, "machine %s: %d CPUs: it has room for %d", uuid, want.VCPUs, about.MaxVCPUs)
		case want.Memory > about.Memory:
			return vm.Errorf(vm.Invalid, "machine %s: %d bytes of memory: it was started with %d", uuid, want.Memory, about.Memory)
		}
		return l.update(d, about, want)
	})
}

func (l *link) update(d golibvirt.Domain, about hypervisor.Description, want hypervisor.Limits) error {
	const both = uint32(golibvirt.DomainAffectLive | golibvirt.DomainAffectConfig)
	cpus := about.VCPUs
	if want.VCPUs > 0 && want.VCPUs != about.VCPUs {
		if err := l.DomainSetVcpusFlags(d, uint32(want.VCPUs), both); err != nil {
			return err
		}
		cpus = want.VCPUs
	}
	var params []golibvirt.TypedParam
	if want.Shares > 0 {
		params = append(params, golibvirt.TypedParam{Field: "cpu_shares", Value: *golibvirt.NewTypedParamValueUllong(want.Shares)})
	}
	if want.Period > 0 {
		params = append(params, golibvirt.TypedParam{Field: "global_period", Value: *golibvirt.NewTypedParamValueUllong(want.Period)})
	}
	if want.Quota != 0 {
		params = append(params, golibvirt.TypedParam{Field: "global_quota", Value: *golibvirt.NewTypedParamValueLlong(want.Quota)})
	}
	if params != nil {
		if err := l.DomainSetSchedulerParametersFlags(d, params, both); err != nil {
			return err
		}
	}
	if len(want.CPUs) > 0 {
		set := make([]byte, slices.Max(want.CPUs)/8+1)
		for _, c := range want.CPUs {
			set[c/8] |= 1 << (c % 8)
		}
		for i := range cpus {
			if err := l.DomainPinVcpuFlags(d, uint32(i), set, both); err != nil {
				return err
			}
		}
		if err := l.DomainPinEmulator(d, set, golibvirt.DomainModificationImpact(both)); err != nil {
			return err
		}
	}
	if want.Memory > 0 {
		return l.DomainSetMemoryFlags(d, want.Memory>>10, both)
	}
	return nil
}

// Events is hypervisor.Hypervisor's.
func (h *Hypervisor) Events(ctx context.Context) <-chan hypervisor.Event { return h.feed.Read(ctx) }
