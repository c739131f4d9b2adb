package runtime

import (
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/muster-scheduler/muster/internal/vm"
	"github.com/muster-scheduler/muster/internal/vm/cloudinit"
	"github.com/muster-scheduler/muster/internal/vm/domain"
	"github.com/muster-scheduler/muster/internal/vm/image"
	"github.com/muster-scheduler/muster/internal/vm/network"
	"github.com/muster-scheduler/muster/internal/vm/spec"
	"github.com/muster-scheduler/muster/internal/vm/suspend"
)

// fakeNode is a node without the runtime's process: what runs and lies there, whoever made it. It outlives every process.
type fakeNode struct {
	mu         sync.Mutex
	machines   map[string]*fakeMachine
	networks   map[string]network.Pod
	volumes    map[string]bool
	firstBoot  string            // the first-boot data that was made last
	folders    map[string]string // what the guest wrote to its exit port, by container
	groups     map[string]bool
	logs       map[string]bool // consoles of the process that is alive
	sandboxes  map[string][]byte
	containers map[string][]byte
	images     map[string]image.Image
	away       map[string]bool          // parts that do not answer
	function   string                   // the PCI address of a virtual function that each pod's network has besides
	stuck      map[string]chan struct{} // effects that stand still until their channel is closed
	deaf       bool                     // guests do not hear the power button
	boots      time.Duration            // how long an agent needs to come up
	listeners  []chan string
	news       []string // what happened since somebody asked
	ids        int
	pids       int
	// Each time that a machine's CPUs run, its memory and its disk become of that time. memories are files of the node by path, states those of claims by place and by who has taken
	// them.
	ticks    int
	disks    map[string]int
	memories map[string]moment
	states   map[string]*fakeState
	full     bool     // claims have no room
	corrupt  []string // machines whose memory knew another disk
}

// moment is a machine's memory: since which boot, and of which time.
type moment struct{ boot, tick int }

type fakeState struct {
	about  suspend.About
	memory moment
	disk   int
}

type fakeMachine struct {
	Machine
	started time.Time
	limits  spec.Resources
	memory  moment
}

func newFakeNode() *fakeNode {
	w := &fakeNode{
		machines: map[string]*fakeMachine{}, networks: map[string]network.Pod{}, volumes: map[string]bool{}, folders: map[string]string{}, groups: map[string]bool{},
		logs: map[string]bool{}, sandboxes: map[string][]byte{}, containers: map[string][]byte{}, away: map[string]bool{}, stuck: map[string]chan struct{}{},
		images: map[string]image.Image{}, disks: map[string]int{}, memories: map[string]moment{}, states: map[string]*fakeState{},
	}
	w.images["tiny"] = image.Image{
		ID: "sha256:" + image.Digest(strings.Repeat("a", 64)), RepoTags: []string{"tiny"}, Path: "/images/tiny", Format: image.QCOW2, VirtualSize: 64 << 20, Size: 16 << 20,
	}
	return w
}

// hand is a process's hold on the world. It can be made to die at an effect: then it has done it, or not, and does nothing ever after.
type hand struct {
	w     *fakeNode
	ctx   context.Context
	count int
	die   int // at which effect
	after bool
	dead  bool
}

var errDead = errors.New("this process is dead")

// look is an access without effect. The world is locked while f runs.
func (h *hand) look(part string, f func() error) error {
	h.w.mu.Lock()
	defer h.w.mu.Unlock()
	switch {
	case h.dead:
		return errDead
	case h.w.away[part]:
		return vm.Errorf(vm.Unavailable, "%s is away", part)
	}
	return f()
}

// effect is one that changes the world.
func (h *hand) effect(ctx context.Context, part, what string, f func() error) error {
	h.w.mu.Lock()
	wait := h.w.stuck[part+" "+strings.Fields(what)[0]]
	h.w.mu.Unlock()
	if wait != nil {
		select {
		case <-wait:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return h.look(part, func() error {
		h.count++
		if h.count == h.die && !h.after {
			h.dead = true
			return errDead
		}
		err := f()
		if err == nil {
			h.w.news = append(h.w.news, part+" "+what)
		}
		if h.count == h.die {
			h.dead = true
			return errDead
		}
		return err
	})
}

func (h *hand) parts(clock Clock) Parts {
	return Parts{
		Hypervisor: fakeHypervisor{h}, Agent: fakeAgent{h}, Networks: fakeNetworks{h}, Images: fakeImages{h}, Volumes: fakeVolumes{h}, Folders: fakeFolders{h},
		Consoles: fakeConsoles{h}, States: fakeStates{h}, Cgroups: fakeCgroups{h}, Host: fakeHost{h}, Records: fakeRecords{h}, Clock: clock, IDs: h.w.id,
	}
}

func (w *fakeNode) id() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ids++
	return fmt.Sprintf("id%d", w.ids)
}

// told gives what happened since it was asked.
func (w *fakeNode) told() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := w.news
	w.news = nil
	return out
}

// turn changes a machine's state, as itself or its hypervisor does, and tells those who listen. The world is locked.
func (w *fakeNode) turn(m *fakeMachine, to State, why Why) {
	m.State, m.Why = to, why
	for _, l := range w.listeners {
		l <- m.UUID
	}
}

// guest has the guest of a container do something.
func (w *fakeNode) guest(container string, f func(m *fakeMachine)) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, m := range w.machines {
		if m.ContainerID == container && m.State == Runs {
			f(m)
			return true
		}
	}
	return false
}

// leave closes the events of everybody, as a hypervisor does that ends.
func (w *fakeNode) leave() {
	for _, l := range w.listeners {
		close(l)
	}
	w.listeners = nil
}

type fakeHypervisor struct{ *hand }

var uuidText = regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)

func (h fakeHypervisor) Define(ctx context.Context, text string) error {
	var d struct {
		UUID     string `xml:"uuid"`
		Metadata struct {
			Owner domain.Owner
		} `xml:"metadata"`
	}
	if err := xml.Unmarshal([]byte(text), &d); err != nil {
		return err
	}
	owner := d.Metadata.Owner
	return h.effect(ctx, "hypervisor", "define "+owner.Container, func() error {
		if was := h.w.machines[d.UUID]; was != nil && (was.ContainerID != owner.Container || was.State != Off) {
			return vm.Errorf(vm.Conflict, "machine %s: it is %s's, and there already", d.UUID, was.ContainerID)
		}
		if !h.w.logs[owner.Container] || !h.w.volumes[owner.Container] {
			return fmt.Errorf("machine of %s: no console or no disk", owner.Container)
		}
		h.w.machines[d.UUID] = &fakeMachine{Machine: Machine{UUID: d.UUID, ContainerID: owner.Container, SandboxID: owner.Sandbox}}
		return nil
	})
}

// machine is an effect on one machine.
func (h fakeHypervisor) machine(ctx context.Context, verb, uuid string, f func(*fakeMachine) error) error {
	what := verb + " " + uuid
	_ = h.look("", func() error {
		if m := h.w.machines[uuid]; m != nil {
			what = verb + " " + m.ContainerID
		}
		return nil
	})
	return h.effect(ctx, "hypervisor", what, func() error {
		m := h.w.machines[uuid]
		if m == nil {
			return vm.Errorf(vm.NotFound, "machine %s: there is none", uuid)
		}
		return f(m)
	})
}

func (h fakeHypervisor) Start(ctx context.Context, uuid string) (pid int, err error) {
	err = h.machine(ctx, "start", uuid, func(m *fakeMachine) error {
		if m.State != Off {
			return vm.Errorf(vm.Conflict, "machine %s: it runs", uuid)
		}
		h.w.pids++
		pid = h.w.pids
		m.memory = moment{boot: pid, tick: h.w.disks[m.ContainerID]}
		h.w.turn(m, Held, Unknown)
		return nil
	})
	return pid, err
}

func (h fakeHypervisor) Save(ctx context.Context, uuid, path string) error {
	return h.machine(ctx, "save", uuid, func(m *fakeMachine) error {
		if _, saved := h.w.memories[path]; m.State == Off && saved {
			return nil
		}
		if m.State == Off {
			return vm.Errorf(vm.Conflict, "machine of %s: it is off", m.ContainerID)
		}
		if h.w.deaf {
			return fmt.Errorf("machine of %s: it cannot be saved", m.ContainerID)
		}
		h.w.memories[path] = m.memory
		h.w.turn(m, Off, Unknown)
		return nil
	})
}

func (h fakeHypervisor) Restore(ctx context.Context, path, text string) (pid int, err error) {
	owner := ownerOf(text)
	err = h.effect(ctx, "hypervisor", "restore "+owner.id, func() error {
		if m := h.w.machines[owner.uuid]; m != nil && m.State != Off && m.ContainerID == owner.id {
			pid = h.w.pids
			return nil
		} else if m != nil && m.ContainerID != owner.id {
			return vm.Errorf(vm.Conflict, "machine %s: it is %s's", owner.uuid, m.ContainerID)
		}
		memory, ok := h.w.memories[path]
		if !ok || !h.w.logs[owner.id] || !h.w.volumes[owner.id] {
			return fmt.Errorf("machine of %s: no memory, no console or no disk", owner.id)
		}
		h.w.pids++
		pid = h.w.pids
		m := &fakeMachine{Machine: Machine{UUID: owner.uuid, ContainerID: owner.id, SandboxID: owner.sandbox}, memory: memory}
		h.w.machines[owner.uuid] = m
		h.w.turn(m, Held, Unknown)
		return nil
	})
	return pid, err
}

// ownerOf reads what a description says of whose machine it is.
func ownerOf(text string) (out struct{ uuid, id, sandbox string }) {
	var d struct {
		UUID     string `xml:"uuid"`
		Metadata struct {
			Owner domain.Owner
		} `xml:"metadata"`
	}
	_ = xml.Unmarshal([]byte(text), &d)
	out.uuid, out.id, out.sandbox = d.UUID, d.Metadata.Owner.Container, d.Metadata.Owner.Sandbox
	return out
}

func (h fakeHypervisor) Resume(ctx context.Context, uuid string) error {
	return h.machine(ctx, "resume", uuid, func(m *fakeMachine) error {
		if m.State == Off || !h.w.groups[m.ContainerID] {
			return fmt.Errorf("machine of %s: off, or outside of its pod's cgroup", m.ContainerID)
		}
		if m.State == Held {
			if m.memory.tick != h.w.disks[m.ContainerID] {
				h.w.corrupt = append(h.w.corrupt, m.ContainerID)
			}
			h.w.ticks++
			m.memory.tick, h.w.disks[m.ContainerID] = h.w.ticks, h.w.ticks
		}
		m.started = time.Now()
		h.w.turn(m, Runs, Unknown)
		return nil
	})
}

func (h fakeHypervisor) Shutdown(ctx context.Context, uuid string) error {
	return h.machine(ctx, "press", uuid, func(m *fakeMachine) error {
		if !h.w.deaf {
			h.w.turn(m, Off, PoweredOff)
		}
		return nil
	})
}

func (h fakeHypervisor) Destroy(ctx context.Context, uuid string) error {
	return h.machine(ctx, "destroy", uuid, func(m *fakeMachine) error {
		if m.State != Off {
			h.w.turn(m, Off, Destroyed)
		}
		return nil
	})
}

func (h fakeHypervisor) Undefine(ctx context.Context, uuid string) error {
	return h.machine(ctx, "undefine", uuid, func(m *fakeMachine) error {
		if m.State != Off {
			return vm.Errorf(vm.Conflict, "machine of %s: it runs", m.ContainerID)
		}
		delete(h.w.machines, uuid)
		return nil
	})
}

func (h fakeHypervisor) Machine(_ context.Context, uuid string) (out Machine, err error) {
	err = h.look("hypervisor", func() error {
		m := h.w.machines[uuid]
		if m == nil {
			return vm.Errorf(vm.NotFound, "machine %s: there is none", uuid)
		}
		out = m.Machine
		return nil
	})
	return out, err
}

func (h fakeHypervisor) List(context.Context) (out []Machine, err error) {
	err = h.look("hypervisor", func() error {
		for _, m := range h.w.machines {
			out = append(out, m.Machine)
		}
		return nil
	})
	return out, err
}

func (h fakeHypervisor) Update(ctx context.Context, uuid string, limits spec.Resources) error {
	return h.machine(ctx, fmt.Sprintf("limit memory=%dMi shares=%d", limits.Memory>>20, limits.CPUShares), uuid, func(m *fakeMachine) error {
		m.limits = limits
		return nil
	})
}

func (h fakeHypervisor) Stats(context.Context) (out map[string]MachineStats, err error) {
	err = h.look("hypervisor", func() error {
		out = map[string]MachineStats{}
		for uuid, m := range h.w.machines {
			if m.State == Runs {
				out[uuid] = MachineStats{CPUTime: uint64(time.Since(m.started) / 2), Resident: 100 << 20}
			}
		}
		return nil
	})
	return out, err
}

func (h fakeHypervisor) Events(ctx context.Context) (<-chan string, error) {
	ch := make(chan string, 4096)
	err := h.look("hypervisor", func() error {
		h.w.listeners = append(h.w.listeners, ch)
		return nil
	})
	context.AfterFunc(ctx, func() {
		h.w.mu.Lock()
		defer h.w.mu.Unlock()
		if i := slices.Index(h.w.listeners, ch); i >= 0 {
			h.w.listeners = slices.Delete(h.w.listeners, i, i+1)
			close(ch)
		}
	})
	return ch, err
}

type fakeAgent struct{ *hand }

// Terminal says its size and what is typed until its end.
func (h fakeAgent) Terminal(ctx context.Context, uuid string, command []string, in io.Reader, out io.Writer, sizes <-chan [2]uint16) (int32, error) {
	if _, err := h.Exec(ctx, uuid, command, nil, 0); err != nil {
		return 0, err
	}
	size := <-sizes
	typed, err := io.ReadAll(in)
	fmt.Fprintf(out, "%v on %dx%d: %s", command, size[0], size[1], typed)
	return 3, err
}

func (h fakeAgent) Exec(ctx context.Context, uuid string, command []string, input []byte, _ int) (out Output, err error) {
	err = h.look("hypervisor", func() error {
		if m := h.w.machines[uuid]; m == nil || m.State != Runs || time.Since(m.started) < h.w.boots {
			return vm.Errorf(vm.Unavailable, "the guest agent does not answer")
		}
		out = Output{Stdout: []byte(strings.Join(command, " ") + "\n" + string(input))}
		if command[0] == "false" {
			out = Output{ExitCode: 1}
		}
		return nil
	})
	if err == nil && command[0] == "sleep" {
		<-ctx.Done()
		return Output{}, ctx.Err()
	}
	return out, err
}

type fakeNetworks struct{ *hand }

func (h fakeNetworks) Add(ctx context.Context, pod network.Pod) (out network.Attached, err error) {
	err = h.effect(ctx, "network", "add "+pod.ID, func() error {
		h.w.networks[pod.ID] = pod
		out = h.attached()
		return nil
	})
	return out, err
}

func (h fakeNetworks) attached() network.Attached {
	out := network.Attached{Token: "token", Network: vm.Network{Interfaces: []vm.Interface{{
		Name: "eth0", MAC: "02:00:00:00:00:01", Addresses: []netip.Prefix{netip.MustParsePrefix("10.0.0.2/24"), netip.MustParsePrefix("fd00::2/64")},
	}}}}
	if h.w.function != "" {
		out.Network.Interfaces = append(out.Network.Interfaces, vm.Interface{Name: "net1", MAC: "02:00:00:00:00:02", PCI: h.w.function})
	}
	return out
}

func (h fakeNetworks) Recover(ctx context.Context, id string) (out network.Attached, err error) {
	err = h.effect(ctx, "network", "token "+id, func() error {
		if _, ok := h.w.networks[id]; !ok {
			return vm.Errorf(vm.NotFound, "pod %s: there is none", id)
		}
		out = h.attached()
		return nil
	})
	return out, err
}

func (h fakeNetworks) Release(ctx context.Context, id string) error {
	return h.effect(ctx, "network", "release "+id, func() error {
		for _, m := range h.w.machines {
			if m.SandboxID == id && m.State != Off {
				return fmt.Errorf("network of %s: taken from a machine that runs", id)
			}
		}
		delete(h.w.networks, id)
		return nil
	})
}

func (h fakeNetworks) List(context.Context) (out []network.Listed, err error) {
	err = h.look("network", func() error {
		for id := range h.w.networks {
			out = append(out, network.Listed{ID: id})
		}
		return nil
	})
	return out, err
}

func (h fakeNetworks) Status(context.Context) error {
	return h.look("network", func() error { return nil })
}

type fakeImages struct{ *hand }

func (h fakeImages) Pull(ctx context.Context, r image.Request) (out image.Image, err error) {
	err = h.effect(ctx, "images", "pull "+r.Name, func() error {
		out = h.w.images["tiny"]
		out.RepoTags = []string{r.Name}
		h.w.images[r.Name] = out
		return nil
	})
	return out, err
}

func (h fakeImages) Status(name string) (out image.Image, err error) {
	err = h.look("images", func() error {
		i, ok := h.w.images[name]
		if !ok {
			return vm.Errorf(vm.NotFound, "image %q: it is not here", name)
		}
		out = i
		return nil
	})
	return out, err
}

func (h fakeImages) List(name string) (out []image.Image) {
	_ = h.look("images", func() error {
		for _, n := range slices.Sorted(maps.Keys(h.w.images)) {
			if name == "" || name == n {
				out = append(out, h.w.images[n])
			}
		}
		return nil
	})
	return out
}

func (h fakeImages) Remove(name string) error {
	return h.effect(context.Background(), "images", "remove "+name, func() error { delete(h.w.images, name); return nil })
}

func (fakeImages) Usage() (image.Usage, error) {
	return image.Usage{Mountpoint: "/", Bytes: 16 << 20, Inodes: 3}, nil
}

type fakeVolumes struct{ *hand }

func (h fakeVolumes) Setup(ctx context.Context, id string, s *spec.Spec, _ image.Image) (Volume, error) {
	out := Volume{Disks: []domain.Disk{{Role: domain.Root, Format: "qcow2", File: "/volumes/" + id, Serial: "root"}}}
	for i, b := range s.Blocks {
		out.Disks = append(out.Disks, domain.Disk{Format: "raw", Block: b.HostPath, Serial: fmt.Sprintf("block-%d", i)})
	}
	return out, h.effect(ctx, "volumes", "setup "+id, func() error { h.w.volumes[id] = true; return nil })
}

func (h fakeVolumes) Teardown(ctx context.Context, id string) error {
	return h.effect(ctx, "volumes", "teardown "+id, func() error {
		for _, m := range h.w.machines {
			if m.ContainerID == id && m.State != Off {
				return fmt.Errorf("volumes of %s: taken from a machine that runs", id)
			}
		}
		delete(h.w.volumes, id)
		delete(h.w.disks, id)
		return nil
	})
}

func (h fakeVolumes) List(context.Context) (out []string, err error) {
	err = h.look("volumes", func() error { out = slices.AppendSeq([]string{}, maps.Keys(h.w.volumes)); return nil })
	return out, err
}

func (h fakeVolumes) Usage(_ context.Context, ids []string) map[string]uint64 {
	out := map[string]uint64{}
	for _, id := range ids {
		out[id] = 1 << 20
	}
	return out
}

type fakeFolders struct{ *hand }

func (h fakeFolders) Make(ctx context.Context, id string, data *cloudinit.Data) (string, domain.Paths, error) {
	h.w.mu.Lock()
	h.w.firstBoot = ""
	for _, f := range data.Files {
		h.w.firstBoot += string(f.Content)
	}
	h.w.mu.Unlock()
	return "/run/" + id + "/first-boot.iso", domain.Paths{Serial: "/run/" + id + "/serial", Exit: "/run/" + id + "/exit", VNC: "/run/" + id + "/vnc"},
		h.effect(ctx, "folder", "make "+id, func() error { h.w.folders[id] = ""; return nil })
}

func (h fakeFolders) ExitText(_ context.Context, id string) (out []byte, err error) {
	err = h.look("folder", func() error { out = []byte(h.w.folders[id]); return nil })
	return out, err
}

func (h fakeFolders) Remove(ctx context.Context, id string) error {
	return h.effect(ctx, "folder", "remove "+id, func() error {
		delete(h.w.folders, id)
		delete(h.w.memories, "/run/"+id+"/memory")
		return nil
	})
}

func (h fakeFolders) List(context.Context) (out []string, err error) {
	err = h.look("folder", func() error { out = slices.AppendSeq([]string{}, maps.Keys(h.w.folders)); return nil })
	return out, err
}

type fakeConsoles struct{ *hand }

func (h fakeConsoles) Open(ctx context.Context, id string, _ domain.Paths, _ string) error {
	open := false
	if err := h.look("console", func() error { open = h.w.logs[id]; return nil }); err != nil || open {
		return err
	}
	return h.effect(ctx, "console", "open "+id, func() error { h.w.logs[id] = true; return nil })
}

func (h fakeConsoles) Reopen(ctx context.Context, id string) error {
	return h.effect(ctx, "console", "reopen "+id, func() error { return nil })
}

func (fakeConsoles) Attach(_ context.Context, _ string, stdin io.Reader, stdout io.Writer) error {
	if stdin == nil {
		stdin = strings.NewReader("")
	}
	_, err := io.Copy(stdout, io.MultiReader(strings.NewReader("login: "), stdin))
	return err
}

func (h fakeConsoles) Close(ctx context.Context, id string) error {
	return h.effect(ctx, "console", "close "+id, func() error { delete(h.w.logs, id); return nil })
}

type fakeStates struct{ *hand }

// container is the one whose files these are.
func (fakeStates) container(files map[string]string) string {
	return strings.TrimPrefix(files["root"], "/volumes/")
}

func (h fakeStates) Room(suspend.Place, int64) error {
	return h.look("state", func() error {
		if h.w.full {
			return vm.Errorf(vm.Exhausted, "the claim is full")
		}
		return nil
	})
}

func (h fakeStates) Put(ctx context.Context, p suspend.Place, id string, a suspend.About, files map[string]string) error {
	return h.effect(ctx, "state", "put "+p.String()+" of "+id, func() error {
		memory, ok := h.w.memories[files["memory"]]
		if !ok {
			return errors.New("there is no memory")
		}
		h.w.states[p.String()] = &fakeState{about: a, memory: memory, disk: h.w.disks[h.container(files)]}
		return nil
	})
}

func (h fakeStates) Find(p suspend.Place) (out suspend.About, err error) {
	err = h.look("state", func() error {
		s := h.w.states[p.String()]
		if s == nil {
			return vm.Errorf(vm.NotFound, "state %s: there is none", p)
		}
		out = s.about
		return nil
	})
	return out, err
}

func (h fakeStates) Fetch(ctx context.Context, p suspend.Place, files map[string]string) error {
	return h.effect(ctx, "state", "fetch "+p.String(), func() error {
		s := h.w.states[p.String()]
		if s == nil {
			return vm.Errorf(vm.NotFound, "state %s: there is none", p)
		}
		h.w.memories[files["memory"]], h.w.disks[h.container(files)] = s.memory, s.disk
		return nil
	})
}

// move takes a state to another place: "" for nowhere.
func (h fakeStates) move(from, to string) {
	if s := h.w.states[from]; s != nil && to != "" {
		h.w.states[to] = s
	}
	delete(h.w.states, from)
}

func (h fakeStates) Take(p suspend.Place, id string) error {
	return h.effect(h.ctx, "state", "take "+p.String()+" by "+id, func() error {
		if h.w.states[p.String()+" "+id] != nil {
			return nil
		}
		if h.w.states[p.String()] == nil {
			return vm.Errorf(vm.Conflict, "state %s: another machine has begun from it", p)
		}
		h.move(p.String(), p.String()+" "+id)
		return nil
	})
}

func (h fakeStates) Return(p suspend.Place, id string) error {
	return h.effect(h.ctx, "state", "return "+p.String()+" by "+id, func() error {
		if h.w.states[p.String()+" "+id] != nil {
			h.move(p.String()+" "+id, p.String())
		}
		return nil
	})
}

func (h fakeStates) Drop(p suspend.Place, id string) error {
	return h.effect(h.ctx, "state", "drop "+p.String()+" by "+id, func() error { h.move(p.String()+" "+id, ""); return nil })
}

func (h fakeStates) Clear(p suspend.Place) error {
	return h.effect(h.ctx, "state", "clear "+p.String(), func() error { h.move(p.String(), ""); return nil })
}

func (h fakeStates) Others(p suspend.Place) error {
	return h.look("state", func() error {
		maps.DeleteFunc(h.w.states, func(at string, _ *fakeState) bool { return !strings.HasPrefix(at, p.Owner+"@") })
		return nil
	})
}

func (h fakeStates) Whole(path string) (ok bool, err error) {
	err = h.look("state", func() error { _, ok = h.w.memories[path]; return nil })
	return ok, err
}

func (h fakeStates) Forget(path string) error {
	return h.effect(h.ctx, "state", "forget "+path, func() error { delete(h.w.memories, path); return nil })
}

type fakeCgroups struct{ *hand }

func (h fakeCgroups) There(_ context.Context, parent string) error {
	return h.look("cgroup", func() error {
		if parent == "/kubepods/groupless" {
			return noGroup(parent)
		}
		return nil
	})
}

func (h fakeCgroups) Enter(ctx context.Context, parent, id string, _ int) error {
	return h.effect(ctx, "cgroup", "enter "+parent+" "+id, func() error { h.w.groups[id] = true; return nil })
}

func (h fakeCgroups) Limit(ctx context.Context, _, id string, limits spec.Resources) error {
	return h.effect(ctx, "cgroup", fmt.Sprintf("limit shares=%d quota=%d %s", limits.CPUShares, limits.CPUQuota, id), func() error { return nil })
}

func (h fakeCgroups) Leave(ctx context.Context, _, id string) error {
	return h.effect(ctx, "cgroup", "leave "+id, func() error { delete(h.w.groups, id); return nil })
}

type fakeHost struct{ *hand }

func (fakeHost) RegularFiles([]string) map[string]bool { return nil }

func (fakeHost) Devices(spec.HostDevices) ([]string, error) { return nil, nil }

func (h fakeHost) Dial(_ context.Context, to netip.AddrPort) (net.Conn, error) {
	a, b := net.Pipe()
	go func() { // the guest's server says who it was asked for, and what it was told
		defer b.Close()
		text := make([]byte, 64)
		n, _ := b.Read(text)
		_, _ = fmt.Fprintf(b, "%s says %s", to, text[:n])
	}()
	return a, nil
}

type fakeRecords struct{ *hand }

func (h fakeRecords) SaveSandbox(ctx context.Context, r *Sandbox) error {
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if strings.Contains(string(text), "hunter2") {
		return fmt.Errorf("sandbox %s: its record holds a secret: %s", r.ID, text)
	}
	return h.effect(ctx, "record", fmt.Sprintf("sandbox %s %s", r.ID, r.Phase), func() error { h.w.sandboxes[r.ID] = text; return nil })
}

func (h fakeRecords) SaveContainer(ctx context.Context, r *Container) error {
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if strings.Contains(string(text), "hunter2") {
		return fmt.Errorf("container %s: its record holds a secret: %s", r.ID, text)
	}
	what := fmt.Sprintf("container %s %s", r.ID, r.Phase)
	if r.Phase == Exited {
		what += fmt.Sprintf(" %d %s", r.ExitCode, r.Reason)
		if !r.Defined {
			what += ", forgotten"
		}
	}
	return h.effect(ctx, "record", what, func() error { h.w.containers[r.ID] = text; return nil })
}

func (h fakeRecords) DeleteSandbox(ctx context.Context, id string) error {
	return h.effect(ctx, "record", "delete sandbox "+id, func() error { delete(h.w.sandboxes, id); return nil })
}

func (h fakeRecords) DeleteContainer(ctx context.Context, id string) error {
	return h.effect(ctx, "record", "delete container "+id, func() error { delete(h.w.containers, id); return nil })
}

func (h fakeRecords) Load(context.Context) (boxes []*Sandbox, cs []*Container, err error) {
	err = h.look("record", func() error {
		for _, id := range slices.Sorted(maps.Keys(h.w.sandboxes)) {
			b := &Sandbox{}
			if err := json.Unmarshal(h.w.sandboxes[id], b); err != nil {
				return err
			}
			boxes = append(boxes, b)
		}
		for _, id := range slices.Sorted(maps.Keys(h.w.containers)) {
			c := &Container{}
			if err := json.Unmarshal(h.w.containers[id], c); err != nil {
				return err
			}
			cs = append(cs, c)
		}
		return nil
	})
	return boxes, cs, err
}
