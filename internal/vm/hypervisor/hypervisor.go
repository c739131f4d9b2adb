package hypervisor

import "context"

// Hypervisor runs machines. All methods may be called at once from many goroutines. A context's end ends the wait, not always what was asked for.
type Hypervisor interface {
	// Define makes a machine known, or replaces the description of one that is off, and gives its UUID. Invalid: the XML is none, has no UUID or lacks our
	// element, or the hypervisor refuses it. Conflict: the machine is not off, or UUID or name belong to another container, or to nobody of ours.
	Define(ctx context.Context, xml string) (uuid string, err error)
	// Start starts a machine with its CPUs held, and gives the process that is it. One that is not off stays as it is.
	Start(ctx context.Context, uuid string) (pid int, err error)
	// Resume lets the CPUs go. Conflict: the machine is off.
	Resume(ctx context.Context, uuid string) error
	// Shutdown presses the power button once. A guest may not notice.
	Shutdown(ctx context.Context, uuid string) error
	// Destroy ends the machine now; when it returns without an error, the machine is off or gone.
	Destroy(ctx context.Context, uuid string) error
	// Undefine forgets a machine. Conflict: it is not off.
	Undefine(ctx context.Context, uuid string) error
	// Save writes the machine with its memory to a file and turns it off. The file is replaced. After an error the machine goes on, held or not
	// as it was, and the file is of no use. Conflict: the machine is off, and not because it was saved.
	Save(ctx context.Context, uuid, path string) error
	// Restore defines a machine and starts it from a file of Save's, with its CPUs held. The description may differ from the saved one only in what
	// a guest cannot see; what it says of the host counts, not what the file says.
	Restore(ctx context.Context, path, xml string) (pid int, err error)
	// Machine is one machine as it is now; NotFound if there is none.
	Machine(ctx context.Context, uuid string) (Machine, error)
	// List gives all machines, by UUID ascending.
	List(ctx context.Context) ([]Machine, error)
	// Stats are of all machines that are not off, by UUID ascending. A machine that does not answer at once is left out, or lacks figures.
	Stats(ctx context.Context) ([]Stats, error)
	// Update changes the limits of a machine that is not off, now and for later starts. It stops at the first that cannot be changed.
	Update(ctx context.Context, uuid string, limits Limits) error
	// Console is the path of the socket that the first serial port connects to.
	Console(ctx context.Context, uuid string) (path string, err error)
	// Agent passes a command to the guest agent and gives its answer, both JSON. Unavailable: no agent answers (yet). Conflict: the machine
	// is off. Invalid: the machine has no port for an agent. What the answer holds is the guest's word.
	Agent(ctx context.Context, uuid, command string) (answer string, err error)
	// Events tells of changes from now on, until ctx ends or Close: then the channel is closed. It starts with a Resync.
	Events(ctx context.Context) <-chan Event
	// Close ends connections and goroutines, and waits for them.
	Close()
}

// State is what a machine does.
type State uint8

// The states of a machine.
const (
	// Off has no process. Its Reason says how it ended.
	Off State = iota
	// Paused has a process whose CPUs stand still. Its Reason says why.
	Paused
	// Running runs, or is on its way down.
	Running
)

func (s State) String() string {
	switch s {
	case Off:
		return "off"
	case Paused:
		return "paused"
	case Running:
		return "running"
	}
	return "unknown"
}

// Reason says why a machine is in its State.
type Reason string

// The reasons. A hypervisor that was restarted may not know a reason any more.
const (
	Unknown Reason = ""
	// ShutDown: the guest powered itself off, asked by Shutdown or not.
	ShutDown Reason = "shut down"
	// Destroyed: by Destroy, or by somebody else of that power.
	Destroyed Reason = "destroyed"
	// Crashed: the guest panicked, or its process ended without a word.
	Crashed Reason = "crashed"
	// Saved: by Save.
	Saved Reason = "saved"
	// Failed: it could not be started.
	Failed Reason = "failed"
	// Held is Paused after Start or Restore, and before Resume, or by an administrator.
	Held Reason = "held"
	// IOError is Paused because a disk cannot be read or written. The guest goes on when somebody mends that and calls Resume.
	IOError Reason = "I/O error"
	// Busy is Paused for the time of a Save or the like.
	Busy Reason = "busy"
	// Asleep is Paused by the guest itself.
	Asleep Reason = "asleep"
)

// Machine is a machine of ours.
type Machine struct {
	UUID, Name string
	Owner      Owner
	State      State
	Reason     Reason
}

// Kind says what an Event is.
type Kind uint8

// The kinds of events.
const (
	// Changed: the machine has this State and Reason now, or had them between.
	Changed Kind = iota
	// Gone: the machine is not known any more.
	Gone
	// Resync: events before it may be missing. Whoever follows events takes a List now. It comes first, when the hypervisor is back, after the Events
	// of what has changed meanwhile, and instead of events that nobody fetched.
	Resync
)

// Event is one change.
type Event struct {
	Kind Kind
	// Machine is as of the Event; with Gone, as it was known last; with Resync, zero.
	Machine Machine
}

// Stats are figures of one machine, since its start where they add up.
type Stats struct {
	UUID string
	// CPUTime is in nanoseconds, of all CPUs and the emulator.
	CPUTime uint64
	// Resident is what the process has in memory, in bytes.
	Resident uint64
}

// Limits are what Update can change. A zero field stays as it is.
type Limits struct {
	// VCPUs is the number of CPUs, up to what the description says at most. Fewer need the guest's help.
	VCPUs int
	// Shares is the CPU weight in the unit of the node's cgroups, as in the description.
	Shares uint64
	// Period and Quota bound the whole machine's CPU time, in microseconds. Quota -1: no bound.
	Period uint64
	Quota  int64
	// Memory is the guest's, in bytes, up to what it was started with. It shrinks as the guest gives it back.
	Memory uint64
	// CPUs are the host's that CPUs and emulator run on.
	CPUs []int
}
