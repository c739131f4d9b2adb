package runtime

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/muster-scheduler/muster/internal/vm"
	"github.com/muster-scheduler/muster/internal/vm/cloudinit"
	"github.com/muster-scheduler/muster/internal/vm/domain"
	"github.com/muster-scheduler/muster/internal/vm/image"
	"github.com/muster-scheduler/muster/internal/vm/spec"
)

// isoSerial is by what a guest finds the disk with its first-boot data.
const isoSerial = "first-boot"

// create makes a container's record, volumes and first-boot data; again is the sandbox's configuration as the call has it. An error leaves nothing, or a record that Reconcile takes away.
func (s *Server) create(ctx context.Context, box *sandboxState, again *runtimeapi.PodSandboxConfig, config *runtimeapi.ContainerConfig) (*Container, error) {
	b, name := box.rec.Load(), config.GetMetadata().GetName()
	img, err := s.Images.Status(config.GetImage().GetImage())
	if err != nil {
		return nil, fmt.Errorf("pod %s: container %q: %w", b, name, err)
	}
	pod, err := b.whole(again)
	if err != nil {
		return nil, err
	}
	judged, err := s.judge(ctx, b, pod, config)
	if err != nil {
		return nil, err
	}
	fits, resumes, err := s.saved(b, judged, img)
	if err != nil {
		return nil, fmt.Errorf("pod %s: container %q: %w", b, name, err)
	}
	rec := &Container{
		ID: s.IDs(), Fits: fits, SandboxID: b.ID, Phase: Creating, Name: name, Attempt: config.GetMetadata().GetAttempt(),
		Image: config.GetImage().GetImage(), UserImage: config.GetImage().GetUserSpecifiedImage(), ImageID: string(img.ID),
		Labels: config.GetLabels(), Annotations: keptAnnotations(config.GetAnnotations()), Mounts: config.GetMounts(), LogPath: config.GetLogPath(), Stdin: config.GetStdin(),
		Resources: config.GetLinux().GetResources(), Created: s.Clock(),
	}
	rec.UUID = domain.UUID(rec.ID, judged)
	if err := s.unclaimed(box, rec.UUID, name); err != nil {
		return nil, err
	}
	if err := s.Records.SaveContainer(ctx, rec); err != nil {
		return nil, fmt.Errorf("pod %s: container %q: record: %w", b, name, err)
	}
	s.mu.Lock()
	c := s.addContainer(box, rec)
	s.mu.Unlock()
	input, err := s.prepare(ctx, b, rec, judged, img)
	if err == nil && resumes {
		err = s.States.Fetch(ctx, place(input.Spec), stateFiles(input))
	}
	if err == nil {
		err = s.saveContainer(ctx, c, func(r *Container) error {
			r.Phase, r.Domain, r.Resumes = Created, input, resumes
			return nil
		})
	} else {
		err = c.problem(err)
	}
	if err != nil {
		if undo := s.removeContainer(undoing(ctx), c); undo != nil {
			s.log.Error(undo, "what was made for a container could not be taken away yet; it will be tried again", "container", rec.ID)
		}
		return nil, err
	}
	return c.rec.Load(), nil
}

// judge gives the Spec of a container of a pod.
func (s *Server) judge(ctx context.Context, b *Sandbox, pod *runtimeapi.PodSandboxConfig, config *runtimeapi.ContainerConfig) (*spec.Spec, error) {
	in := spec.Input{Sandbox: pod, Container: config, Node: s.opt.Limits}
	if wanted := spec.Wanted(pod); len(wanted) > 0 && s.Sources != nil {
		m := b.Config.GetMetadata()
		if err := s.do(ctx, "data sources of pod "+b.String(), func(ctx context.Context) (err error) {
			in.Sources, err = s.Sources.Read(ctx, m.GetNamespace(), m.GetName(), m.GetUid(), wanted)
			return err
		}); err != nil {
			return nil, err
		}
	}
	var paths []string
	for _, m := range config.GetMounts() {
		paths = append(paths, m.GetHostPath())
	}
	in.SingleFiles = s.Host.RegularFiles(paths)
	judged, err := spec.Judge(in)
	if err != nil {
		return nil, err
	}
	return judged, nil
}

// unclaimed is an error if a container of another pod has the UUID: an annotation can set it.
func (s *Server) unclaimed(box *sandboxState, uuid, name string) error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if other := s.machines[uuid]; other != nil && other.box != box {
		if rec := other.rec.Load(); rec.Phase == Exited && !rec.Defined {
			return nil // it has ended, and what is resumed may have been it
		}
		return vm.Errorf(vm.Conflict, "pod %s: container %q: VirtletSystemUUID %s: pod %s has it", box.rec.Load(), name, uuid, other.box.rec.Load())
	}
	return nil
}

// prepare makes volumes and first-boot data, and gives what the domain is made of.
func (s *Server) prepare(ctx context.Context, b *Sandbox, rec *Container, judged *spec.Spec, img image.Image) (*domain.Input, error) {
	devices, err := s.Host.Devices(judged.HostDevices)
	if err != nil {
		return nil, err
	}
	for _, pci := range b.functions() { // a device plugin may have given the container the same one
		if !slices.Contains(devices, pci) {
			devices = append(devices, pci)
		}
	}
	volume, err := s.Volumes.Setup(ctx, rec.ID, judged, img)
	if err != nil {
		return nil, fmt.Errorf("volumes: %w", err)
	}
	// The disk with first-boot data comes last, so that it moves no other.
	first := domain.Disk{Role: domain.FirstBoot, Format: "raw", Serial: isoSerial, ReadOnly: true}
	input := &domain.Input{
		Spec: judged, ContainerID: rec.ID, SandboxID: b.ID, Disks: append(slices.Clone(volume.Disks), first), Shares: volume.Shares, HostDevices: devices,
		LogPath: logPath(b, rec), Node: s.opt.Domain,
	}
	told := cloudinit.Input{
		Spec: judged, Network: b.Network, UUID: rec.UUID, Files: volume.Files, Shares: volume.Mounts, Devices: volume.Devices, FileSystems: volume.FileSystems,
	}
	data, err := cloudinit.Build(told)
	if err != nil {
		return nil, err
	}
	if err := s.do(ctx, "first-boot data", func(ctx context.Context) error {
		iso, paths, err := s.Folders.Make(ctx, rec.ID, data)
		input.Disks[len(input.Disks)-1].File, input.Paths = iso, paths
		return err
	}); err != nil {
		return nil, err
	}
	input.Spec = scrub(judged)
	if _, err := domain.XML(*input); err != nil { // said now, not when it is started
		return nil, err
	}
	return input, nil
}

// boot starts the machine of a Created container. The sandbox's lock is held.
func (s *Server) boot(ctx context.Context, c *containerState) error {
	rec, b := c.rec.Load(), c.box.rec.Load()
	for _, other := range s.of(c.box) { // an annotation gives all machines of a pod one UUID: the one before has to be forgotten
		if other != c {
			if err := s.forget(ctx, other); err != nil {
				return err
			}
		}
	}
	if err := s.saveContainer(ctx, c, func(r *Container) error { r.Phase, r.Defined = Starting, true; return nil }); err != nil {
		return err
	}
	s.mu.Lock()
	s.machines[rec.UUID] = c
	s.mu.Unlock()
	err := s.bootSteps(ctx, c, rec, b)
	if err == nil {
		err = s.runs(ctx, c)
	}
	if err == nil {
		return nil
	}
	if c.rec.Load().LetGo {
		return err // whether its CPUs have run is open, so it cannot begin again: settle finds out
	}
	// What may come back by itself is tried again; anything else is how this container ended.
	undo := undoing(ctx)
	rec = c.rec.Load()
	if back := s.unboot(undo, c); back != nil {
		s.log.Error(back, "a start that failed could not be taken back yet; it will be tried again", "container", rec.ID)
		return err
	}
	if kind := vm.KindOf(err); kind == vm.Unavailable || kind == vm.Exhausted || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	if back := s.giveBack(rec); back != nil {
		s.log.Error(back, "a machine's state could not be given back", "container", rec.ID)
	}
	if save := s.saveContainer(undo, c, func(r *Container) error {
		r.Phase, r.Finished, r.ExitCode, r.Reason, r.Message, r.Domain = Exited, s.Clock(), 128, "StartError", short(err.Error()), nil
		return nil
	}); save != nil {
		s.log.Error(save, "why a container did not start could not be recorded", "container", rec.ID)
	}
	return err
}

// runs records that a machine's CPUs run. What it resumed from is of the past.
func (s *Server) runs(ctx context.Context, c *containerState) error {
	rec := c.rec.Load()
	if rec.Resumes {
		if err := s.used(rec); err != nil {
			return err
		}
	}
	return s.saveContainer(ctx, c, func(r *Container) error {
		r.Phase, r.Started, r.Memory, r.Resumes, r.LetGo = Running, s.Clock(), rec.Domain.Spec.Resources.Memory, false, false
		return nil
	})
}

func (s *Server) bootSteps(ctx context.Context, c *containerState, rec *Container, b *Sandbox) error {
	input := *rec.Domain
	pid := 0
	steps := []struct {
		what string
		f    func(context.Context) error
	}{
		{"cgroup", func(ctx context.Context) error { return s.Cgroups.There(ctx, b.Config.GetLinux().GetCgroupParent()) }},
		{"console", func(ctx context.Context) error { return s.Consoles.Open(ctx, rec.ID, input.Paths, input.LogPath) }},
		{"network", func(ctx context.Context) error {
			got, err := s.Networks.Recover(ctx, b.ID)
			input.NetKey = got.Token
			return err
		}},
		{"define", func(ctx context.Context) error {
			xml, err := domain.XML(input)
			if err != nil {
				return err
			}
			return s.Hypervisor.Define(ctx, xml)
		}},
		{"start", func(ctx context.Context) (err error) {
			pid, err = s.Hypervisor.Start(ctx, rec.UUID)
			return err
		}},
		{"cgroup", func(ctx context.Context) error {
			return s.Cgroups.Enter(ctx, b.Config.GetLinux().GetCgroupParent(), rec.ID, pid)
		}},
		{"limits", func(ctx context.Context) error {
			return s.Cgroups.Limit(ctx, b.Config.GetLinux().GetCgroupParent(), rec.ID, input.Spec.Resources)
		}},
		{"resume", func(ctx context.Context) error { return s.Hypervisor.Resume(ctx, rec.UUID) }},
	}
	for _, step := range steps {
		do := s.do
		if rec.Resumes {
			switch step.what {
			case "define":
				continue
			case "start":
				do = s.doLong(rec)
				step.f = func(ctx context.Context) error {
					xml, err := domain.XML(input)
					if err != nil {
						return err
					}
					pid, err = s.Hypervisor.Restore(ctx, memoryFile(&input), xml)
					return err
				}
			case "resume":
				if err := s.letGo(ctx, c); err != nil {
					return err
				}
			}
		}
		if err := do(ctx, step.what, step.f); err != nil {
			return err
		}
	}
	return nil
}

// unboot brings a Starting container back to Created. The sandbox's lock is held.
func (s *Server) unboot(ctx context.Context, c *containerState) error {
	rec := c.rec.Load()
	if err := s.do(ctx, "destroy", func(ctx context.Context) error { return s.Hypervisor.Destroy(ctx, rec.UUID) }); err != nil && vm.KindOf(err) != vm.NotFound {
		return err
	}
	if err := s.forget(ctx, c); err != nil {
		return err
	}
	if err := s.do(ctx, "console", func(ctx context.Context) error { return s.Consoles.Close(ctx, rec.ID) }); err != nil {
		return err
	}
	return s.phase(ctx, c, Created)
}

// settle finds out what became of a start that nobody saw the end of: the machine runs, or it is as if it had not been tried. The sandbox's lock is held.
func (s *Server) settle(ctx context.Context, c *containerState) error {
	rec := c.rec.Load()
	var m Machine
	err := s.do(ctx, "state", func(ctx context.Context) (err error) {
		m, err = s.Hypervisor.Machine(ctx, rec.UUID)
		return err
	})
	if err != nil && vm.KindOf(err) != vm.NotFound {
		return err
	}
	if err == nil && m.State == Runs && m.ContainerID == rec.ID {
		if err := s.do(ctx, "console", func(ctx context.Context) error {
			return s.Consoles.Open(ctx, rec.ID, rec.Domain.Paths, rec.Domain.LogPath)
		}); err != nil {
			return err
		}
		return s.runs(ctx, c)
	}
	if rec.LetGo {
		if err == nil && m.State == Held && m.ContainerID == rec.ID { // it is as it was saved, or stands still for another reason
			if err := s.do(ctx, "resume", func(ctx context.Context) error { return s.Hypervisor.Resume(ctx, rec.UUID) }); err != nil {
				return err
			}
			return s.runs(ctx, c)
		}
		if err != nil || m.ContainerID != rec.ID {
			m = Machine{}
		}
		return s.finish(ctx, c, m)
	}
	if err == nil && m.ContainerID != rec.ID { // the UUID is a machine's of the pod that came before: this one was never defined
		return s.phase(ctx, c, Created)
	}
	if err == nil && m.Why == PoweredOff || m.Why == Crashed {
		// It ran, and ended by itself before anybody recorded that it ran.
		return s.finish(ctx, c, m)
	}
	return s.unboot(ctx, c)
}

// short cuts what a guest, an image or a program said to what a status can carry.
func short(text string) string {
	const most = 1024
	if len(text) > most {
		text = text[:most] + "…"
	}
	return strings.ToValidUTF8(text, "�")
}
