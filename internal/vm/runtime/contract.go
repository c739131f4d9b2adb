package runtime

import (
	"context"
	"io"
	"net"
	"net/netip"

	"github.com/muster-scheduler/muster/internal/vm/cloudinit"
	"github.com/muster-scheduler/muster/internal/vm/domain"
	"github.com/muster-scheduler/muster/internal/vm/image"
	"github.com/muster-scheduler/muster/internal/vm/network"
	"github.com/muster-scheduler/muster/internal/vm/spec"
	"github.com/muster-scheduler/muster/internal/vm/suspend"
)

// This file is what the server needs of the parts, in its own words. What holds for all of them:
//
//   - Errors have the kinds of package vm. Unavailable says that a part is gone for now: the server gives that to its caller, and goes on when the
//     part is back. What became of the call is then open.
//   - Every call may be repeated. What makes, makes the same again; what takes away succeeds when there is nothing.
//   - Calls for different containers run at once, and the slowness of one is not that of another.

// Parts are what a Server is made of. All are needed but Sources, without which annotations that name Secrets or ConfigMaps are refused.
type Parts struct {
	Hypervisor Hypervisor
	Agent      Agent
	Networks   Networks
	Images     Images
	Volumes    Volumes
	Folders    Folders
	Consoles   Consoles
	States     States
	Cgroups    Cgroups
	Host       Host
	Sources    Sources
	Records    Records
	Clock      Clock
	IDs        IDs
}

// Hypervisor runs machines. It knows, lists and touches only those that carry our metadata element. A machine is called by its UUID.
type Hypervisor interface {
	// Define makes a machine known, or replaces the description of one that is off. Conflict: the UUID is a machine's of another container.
	Define(ctx context.Context, xml string) error
	// Start starts a machine with its CPUs held, and gives the process that is it.
	Start(ctx context.Context, uuid string) (pid int, err error)
	// Resume lets the CPUs go.
	Resume(ctx context.Context, uuid string) error
	// Shutdown presses the power button once. A guest may not notice.
	Shutdown(ctx context.Context, uuid string) error
	// Destroy ends the machine now; when it returns, the machine is off.
	Destroy(ctx context.Context, uuid string) error
	// Undefine forgets a machine that is off.
	Undefine(ctx context.Context, uuid string) error
	// Save writes a machine with its memory to a file and turns it off. After an error it goes on.
	Save(ctx context.Context, uuid, path string) error
	// Restore is Define and Start at once, from a file of Save's: the CPUs are held. One that is there already stays as it is.
	Restore(ctx context.Context, path, xml string) (pid int, err error)
	// Machine is one machine as it is now; NotFound if there is none.
	Machine(ctx context.Context, uuid string) (Machine, error)
	List(ctx context.Context) ([]Machine, error)
	// Update changes limits of a machine that runs: its memory, at most what it was started with, and the CPUs that its own are bound to.
	Update(ctx context.Context, uuid string, limits spec.Resources) error
	// Stats are of all machines that run, by UUID. A machine that cannot be asked is left out.
	Stats(ctx context.Context) (map[string]MachineStats, error)
	// Events gives the UUID of each machine whose state has changed since the call. The channel holds many; when the hypervisor goes, the
	// reader is too slow or ctx ends, it is closed.
	Events(ctx context.Context) (<-chan string, error)
}

// State is a machine's.
type State uint8

// The states of a machine. Held: its CPUs never ran (it was started and not resumed), or they stand still for another reason.
const (
	Off State = iota
	Held
	Runs
)

// Why says why a machine is off.
type Why uint8

// The reasons. Unknown: nobody saw it, or it never ran.
const (
	Unknown Why = iota
	PoweredOff
	Destroyed
	Crashed
)

// Machine is a machine of ours as the hypervisor knows it. ContainerID and SandboxID are those of its metadata element.
type Machine struct {
	UUID, ContainerID, SandboxID string
	State                        State
	Why                          Why
}

// Agent speaks with the guest agent.
type Agent interface {
	// Exec runs a command in the guest, with all its input given (nil: none), until it ends or ctx does. Each output is cut at limit bytes. Unavailable: no agent answers (yet).
	Exec(ctx context.Context, uuid string, command []string, input []byte, limit int) (Output, error)
	// Terminal is Exec on a terminal of the command's own, whose columns and rows come by sizes. Unavailable as above; Invalid: the guest has nothing that opens terminals.
	Terminal(ctx context.Context, uuid string, command []string, in io.Reader, out io.Writer, sizes <-chan [2]uint16) (exitCode int32, err error)
}

// Networks is the network process: network.Client.
type Networks interface {
	Add(ctx context.Context, pod network.Pod) (network.Attached, error)
	Recover(ctx context.Context, id string) (network.Attached, error)
	Release(ctx context.Context, id string) error
	List(ctx context.Context) ([]network.Listed, error)
	Status(ctx context.Context) error
}

// Images is the store of images: image.Store, whose Options.InUse is Server.ImagesInUse.
type Images interface {
	Pull(ctx context.Context, request image.Request) (image.Image, error)
	Status(reference string) (image.Image, error)
	List(reference string) []image.Image
	Remove(reference string) error
	Usage() (image.Usage, error)
}

// Volumes makes a machine's disks.
type Volumes interface {
	// Setup makes what a container mounts, and its root from the image. An error leaves nothing behind that Teardown does not take away.
	Setup(ctx context.Context, id string, s *spec.Spec, img image.Image) (Volume, error)
	// Teardown undoes that, but for what outlives a pod.
	Teardown(ctx context.Context, id string) error
	// List gives the ids that have something to tear down.
	List(ctx context.Context) ([]string, error)
	// Usage is the space that each container's own disks take, in bytes. One that cannot be asked is left out.
	Usage(ctx context.Context, ids []string) map[string]uint64
}

// Volume is all that a container's volumes come to, for packages domain and cloudinit. It may hold data of Secrets.
type Volume struct {
	// Disks are in the guest's order, the root first. First-boot data comes after them.
	Disks []domain.Disk
	// Shares and Mounts are the same directories, from outside and from inside.
	Shares []domain.Share
	Mounts []cloudinit.Share
	// Files are what the guest has to find, Devices and FileSystems what of its disks it has to find where.
	Files       []cloudinit.File
	Devices     []cloudinit.Device
	FileSystems []cloudinit.FileSystem
}

// Folders keeps the small files of each container: first-boot data, the exit code, sockets.
type Folders interface {
	// Make writes first-boot data and gives its path and those that the machine needs. What a guest writes to its exit port has to be there when it has ended,
	// whoever was there meanwhile, and must fill no disk.
	Make(ctx context.Context, id string, data *cloudinit.Data) (iso string, paths domain.Paths, err error)
	// ExitText is what the guest wrote to its port dev.muster.exit, at most the first 64 bytes.
	ExitText(ctx context.Context, id string) ([]byte, error)
	Remove(ctx context.Context, id string) error
	List(ctx context.Context) ([]string, error)
}

// Consoles keeps each machine's serial console: its log, and who is attached.
type Consoles interface {
	// Open takes a machine's console from now on, where the paths say, and writes the log, in CRI's format; "" for none. One that is
	// open stays so.
	Open(ctx context.Context, id string, paths domain.Paths, log string) error
	// Reopen goes on with a new file under the same name.
	Reopen(ctx context.Context, id string) error
	// Attach connects a person until the machine ends, they leave or ctx ends. Both streams may be nil.
	Attach(ctx context.Context, id string, stdin io.Reader, stdout io.Writer) error
	// Close writes what has come and lets everybody go.
	Close(ctx context.Context, id string) error
}

// States keeps suspended machines on their claims: suspend.Store, whose methods these are.
type States interface {
	Room(p suspend.Place, bytes int64) error
	Put(ctx context.Context, p suspend.Place, id string, a suspend.About, files map[string]string) error
	Find(p suspend.Place) (suspend.About, error)
	Fetch(ctx context.Context, p suspend.Place, files map[string]string) error
	Take(p suspend.Place, id string) error
	Return(p suspend.Place, id string) error
	Drop(p suspend.Place, id string) error
	Clear(p suspend.Place) error
	Others(p suspend.Place) error
	Whole(path string) (bool, error)
	Forget(path string) error
}

// Cgroups puts machines below their pods, whose accounting, limits and eviction then hold for them.
type Cgroups interface {
	// There is an error if a pod has no group that a machine's could be made in: said before a machine is started, which Enter needs.
	There(ctx context.Context, parent string) error
	// Enter makes a group for a machine and moves its process there, which leaves the hypervisor's own group and the limits that it has; processes that
	// serve its volumes go along.
	Enter(ctx context.Context, parent, id string, pid int) error
	// Limit gives the group the limits of CPU time and CPUs. Memory is bounded by the pod's own group.
	Limit(ctx context.Context, parent, id string, limits spec.Resources) error
	// Leave removes the empty group of a machine that has ended.
	Leave(ctx context.Context, parent, id string) error
}

// Host is the rest of the node.
type Host interface {
	// RegularFiles says which of the paths are regular files.
	RegularFiles(paths []string) map[string]bool
	// Devices gives the PCI addresses to pass through, each judged to be the pod's.
	Devices(want spec.HostDevices) ([]string, error)
	// Dial connects from the node's network namespace.
	Dial(ctx context.Context, to netip.AddrPort) (net.Conn, error)
}

// Sources reads Secrets and ConfigMaps: those of the wanted ones that the pod mounts, and no other.
type Sources interface {
	Read(ctx context.Context, namespace, pod, uid string, wanted []spec.Source) (spec.Sources, error)
}

// Records keeps what must outlive this process. A write that has returned is there after a crash; one that has not may be. No record holds a secret.
type Records interface {
	SaveSandbox(ctx context.Context, r *Sandbox) error
	SaveContainer(ctx context.Context, r *Container) error
	DeleteSandbox(ctx context.Context, id string) error
	DeleteContainer(ctx context.Context, id string) error
	Load(ctx context.Context) ([]*Sandbox, []*Container, error)
}
