package node

import (
	"context"
	"io"
	"time"

	"github.com/muster-scheduler/muster/internal/vm"
	"github.com/muster-scheduler/muster/internal/vm/hypervisor"
	"github.com/muster-scheduler/muster/internal/vm/runtime"
	"github.com/muster-scheduler/muster/internal/vm/spec"
)

// Machines are a hypervisor in the runtime's words.
type Machines struct {
	Of hypervisor.Hypervisor
	// Pulse is how often a hypervisor that says nothing is asked whether it is there. 0: every second.
	Pulse time.Duration
}

var (
	_ runtime.Hypervisor = Machines{}
	_ runtime.Agent      = Machines{}
)

// Define is runtime.Hypervisor's, as are the other methods.
func (m Machines) Define(ctx context.Context, xml string) error {
	_, err := m.Of.Define(ctx, xml)
	return err
}

// Start starts a machine, its CPUs held.
func (m Machines) Start(ctx context.Context, uuid string) (int, error) { return m.Of.Start(ctx, uuid) }

// Resume lets its CPUs go.
func (m Machines) Resume(ctx context.Context, uuid string) error { return m.Of.Resume(ctx, uuid) }

// Shutdown presses its power button.
func (m Machines) Shutdown(ctx context.Context, uuid string) error { return m.Of.Shutdown(ctx, uuid) }

// Destroy ends it.
func (m Machines) Destroy(ctx context.Context, uuid string) error { return m.Of.Destroy(ctx, uuid) }

// Undefine forgets it.
func (m Machines) Undefine(ctx context.Context, uuid string) error {
	if err := m.Of.Undefine(ctx, uuid); err != nil && vm.KindOf(err) != vm.NotFound {
		return err
	}
	return nil
}

// Save saves it with its memory.
func (m Machines) Save(ctx context.Context, uuid, path string) error {
	return m.Of.Save(ctx, uuid, path)
}

// Restore starts it from there, its CPUs held.
func (m Machines) Restore(ctx context.Context, path, xml string) (int, error) {
	return m.Of.Restore(ctx, path, xml)
}

// Machine is one machine.
func (m Machines) Machine(ctx context.Context, uuid string) (runtime.Machine, error) {
	got, err := m.Of.Machine(ctx, uuid)
	return machine(got), err
}

// List gives all machines.
func (m Machines) List(ctx context.Context) ([]runtime.Machine, error) {
	all, err := m.Of.List(ctx)
	out := make([]runtime.Machine, len(all))
	for i, one := range all {
		out[i] = machine(one)
	}
	return out, err
}

// machine translates. What a machine that is off was saved or could not be started for is nobody's end of it: Unknown.
func machine(m hypervisor.Machine) runtime.Machine {
	out := runtime.Machine{UUID: m.UUID, ContainerID: m.Owner.Container, SandboxID: m.Owner.Sandbox}
	switch m.State {
	case hypervisor.Running:
		out.State = runtime.Runs
	case hypervisor.Paused:
		out.State = runtime.Held
	case hypervisor.Off:
		out.Why = map[hypervisor.Reason]runtime.Why{
			hypervisor.ShutDown: runtime.PoweredOff, hypervisor.Destroyed: runtime.Destroyed, hypervisor.Crashed: runtime.Crashed,
		}[m.Reason]
	}
	return out
}

// Update changes what control groups do not: CPU time is bounded by the pod's.
func (m Machines) Update(ctx context.Context, uuid string, limits spec.Resources) error {
	return m.Of.Update(ctx, uuid, hypervisor.Limits{Memory: uint64(max(limits.Memory, 0)), CPUs: limits.CPUs})
}

// Stats are by UUID.
func (m Machines) Stats(ctx context.Context) (map[string]runtime.MachineStats, error) {
	all, err := m.Of.Stats(ctx)
	out := make(map[string]runtime.MachineStats, len(all))
	for _, s := range all {
		out[s.UUID] = runtime.MachineStats{CPUTime: s.CPUTime, Resident: s.Resident}
	}
	return out, err
}

// Exec runs a command by the guest agent.
func (m Machines) Exec(ctx context.Context, uuid string, command []string, input []byte, limit int) (runtime.Output, error) {
	out, err := hypervisor.Exec(ctx, m.Of, uuid, command, input, limit)
	return runtime.Output{Stdout: out.Stdout, Stderr: out.Stderr, ExitCode: out.ExitCode}, err
}

// Terminal runs a command on a terminal of its own.
func (m Machines) Terminal(ctx context.Context, uuid string, command []string, in io.Reader, out io.Writer, sizes <-chan [2]uint16) (int32, error) {
	return hypervisor.Terminal{In: in, Out: out, Sizes: sizes}.Exec(ctx, m.Of, uuid, command)
}

// nobody is a UUID that no machine has: who asks for it learns whether there is a hypervisor that answers.
const nobody = "00000000-0000-0000-0000-000000000000"

// Events tells of machines by UUID. The channel is closed where events may be missing (a Resync), and soon after the hypervisor stops answering: its
// reader then compares.
func (m Machines) Events(ctx context.Context) (<-chan string, error) {
	ctx, cancel := context.WithCancel(ctx)
	events := m.Of.Events(ctx)
	<-events // the Resync that it begins with
	if _, err := m.Of.Machine(ctx, nobody); err != nil && vm.KindOf(err) != vm.NotFound {
		cancel()
		return nil, err
	}
	pulse := m.Pulse
	if pulse <= 0 {
		pulse = time.Second
	}
	out := make(chan string)
	go func() {
		defer close(out)
		defer cancel()
		tick := time.NewTicker(pulse)
		defer tick.Stop()
		for {
			select {
			case e, ok := <-events:
				if !ok || e.Kind == hypervisor.Resync {
					return
				}
				select {
				case out <- e.Machine.UUID:
				case <-ctx.Done():
					return
				}
			case <-tick.C:
				if _, err := m.Of.Machine(ctx, nobody); err != nil && vm.KindOf(err) == vm.Unavailable {
					return
				}
			}
		}
	}()
	return out, nil
}
