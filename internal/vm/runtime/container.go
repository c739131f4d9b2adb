package runtime

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/muster-scheduler/muster/internal/vm"
	"github.com/muster-scheduler/muster/internal/vm/spec"
)

// CreateContainer makes all of a machine but the machine. Called again for the same attempt it gives the container that there is.
func (s *Server) CreateContainer(ctx context.Context, r *runtimeapi.CreateContainerRequest) (*runtimeapi.CreateContainerResponse, error) {
	config := r.GetConfig()
	if config == nil || config.GetMetadata().GetName() == "" || config.GetImage().GetImage() == "" {
		return nil, vm.Errorf(vm.Invalid, "config: a container needs a configuration with metadata.name and image.image")
	}
	box := s.sandbox(r.GetPodSandboxId())
	if box == nil {
		return nil, noSandbox(r.GetPodSandboxId())
	}
	there, err := s.hold(ctx, box)
	if err != nil {
		return nil, err
	}
	if !there {
		return nil, noSandbox(r.GetPodSandboxId())
	}
	defer s.free(box)
	if rec := box.rec.Load(); rec.Phase != Ready {
		return nil, vm.Errorf(vm.Conflict, "pod %s: container %q: its sandbox is not ready", rec, config.GetMetadata().GetName())
	}
	if old := s.named(box, config.GetMetadata()); old != nil {
		switch rec := old.rec.Load(); rec.Phase {
		case Created:
			return &runtimeapi.CreateContainerResponse{ContainerId: rec.ID}, nil
		case Creating: // what a call left behind
			if err := s.removeContainer(undoing(ctx), old); err != nil {
				return nil, err
			}
		default:
			return nil, old.problem(vm.Errorf(vm.Conflict, "attempt %d: it was started already, as %s", rec.Attempt, rec.ID))
		}
	}
	if err := s.alone(box, nil, config.GetMetadata().GetName()); err != nil {
		return nil, err
	}
	if n := len(s.of(box)); n >= s.opt.MaxContainers {
		return nil, vm.Errorf(vm.Exhausted, "pod %s: container %q: the pod has %d containers, and may have no more", box.rec.Load(), config.GetMetadata().GetName(), n)
	}
	rec, err := s.create(ctx, box, r.GetSandboxConfig(), config)
	if err != nil {
		return nil, err
	}
	s.announce(box, rec.ID, runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT)
	return &runtimeapi.CreateContainerResponse{ContainerId: rec.ID}, nil
}

// named gives the container of a name and attempt.
func (s *Server) named(box *sandboxState, m *runtimeapi.ContainerMetadata) *containerState {
	for _, c := range s.of(box) {
		if r := c.rec.Load(); r.Name == m.GetName() && r.Attempt == m.GetAttempt() {
			return c
		}
	}
	return nil
}

// alone is an error if a container of the pod, other than c, has a machine that runs.
func (s *Server) alone(box *sandboxState, c *containerState, name string) error {
	for _, other := range s.of(box) {
		if r := other.rec.Load(); other != c && r.live() {
			return vm.Errorf(vm.Conflict, "pod %s: container %q: the pod's machine runs already, for container %q; a pod has one machine at a time", box.rec.Load(), name, r.Name)
		}
	}
	return nil
}

// StartContainer boots the machine. Of one that runs it is true already.
func (s *Server) StartContainer(ctx context.Context, r *runtimeapi.StartContainerRequest) (*runtimeapi.StartContainerResponse, error) {
	c := s.container(r.GetContainerId())
	if c == nil {
		return nil, noContainer(r.GetContainerId())
	}
	there, err := s.hold(ctx, c.box)
	if err != nil {
		return nil, err
	}
	if !there || s.container(r.GetContainerId()) != c {
		if there {
			s.free(c.box)
		}
		return nil, noContainer(r.GetContainerId())
	}
	defer s.free(c.box)
	if c.rec.Load().Phase == Starting { // what a call left behind
		if err := s.settle(ctx, c); err != nil {
			return nil, c.problem(err)
		}
	}
	switch p := c.rec.Load().Phase; p {
	case Running:
		return &runtimeapi.StartContainerResponse{}, nil
	case Created:
	default:
		return nil, c.problem(vm.Errorf(vm.Conflict, "it is %s, and a container is started once", p))
	}
	if rec := c.box.rec.Load(); rec.Phase != Ready {
		return nil, c.problem(vm.Errorf(vm.Conflict, "its sandbox is not ready"))
	}
	if err := s.alone(c.box, c, c.rec.Load().Name); err != nil {
		return nil, err
	}
	if err := s.boot(ctx, c); err != nil {
		return nil, c.problem(err)
	}
	s.announce(c.box, r.GetContainerId(), runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT)
	s.look(c)
	return &runtimeapi.StartContainerResponse{}, nil
}

func noContainer(id string) error { return vm.Errorf(vm.NotFound, "container %q: there is none", id) }

// farAway is a grace period without end.
const farAway = 100 * 365 * 24 * time.Hour

// StopContainer presses the machine's power button until it is off or the time is over, and then destroys it.
func (s *Server) StopContainer(ctx context.Context, r *runtimeapi.StopContainerRequest) (*runtimeapi.StopContainerResponse, error) {
	c := s.container(r.GetContainerId())
	if c == nil {
		return &runtimeapi.StopContainerResponse{}, nil
	}
	there, err := s.hold(ctx, c.box)
	if err != nil || !there {
		return &runtimeapi.StopContainerResponse{}, err
	}
	err = s.stopping(ctx, c)
	s.free(c.box)
	if errors.Is(err, errUnchanged) {
		return &runtimeapi.StopContainerResponse{}, nil
	}
	if err != nil {
		return nil, err
	}
	grace := farAway
	if seconds := max(r.GetTimeout(), 0); seconds < int64(farAway/time.Second) {
		grace = time.Duration(seconds) * time.Second
	}
	began := s.Clock()
	if err := s.suspend(ctx, c, grace); err != nil {
		return nil, c.problem(err)
	}
	// A machine that could not be saved has its power button pressed for what is left of the grace.
	if err := s.press(ctx, c, grace-s.Clock().Sub(began)); err != nil {
		return nil, c.problem(err)
	}
	return &runtimeapi.StopContainerResponse{}, nil
}

// stopping records that a machine is to end; errUnchanged if none runs. The sandbox's lock is held.
func (s *Server) stopping(ctx context.Context, c *containerState) error {
	if c.rec.Load().Phase == Starting {
		if err := s.settle(ctx, c); err != nil {
			return c.problem(err)
		}
	}
	return s.saveContainer(ctx, c, func(r *Container) error {
		switch r.Phase {
		case Running:
			r.Phase = Stopping
			return nil
		case Stopping:
			return nil
		default:
			return errUnchanged
		}
	})
}

// press presses the power button of a machine until it ends, and destroys it after the grace.
func (s *Server) press(ctx context.Context, c *containerState, grace time.Duration) error {
	if grace > 0 {
		deadline := time.NewTimer(grace)
		defer deadline.Stop()
		again := time.NewTicker(s.opt.Press)
		defer again.Stop()
		uuid := c.rec.Load().UUID
		for pressing := true; pressing; {
			// Whether the guest heard is told by its end alone. A hypervisor that is gone may come back before the deadline.
			bounded, cancel := context.WithTimeout(ctx, s.opt.Press)
			if err := s.Hypervisor.Shutdown(bounded, uuid); err != nil {
				s.log.V(1).Info("the power button could not be pressed", "container", c.rec.Load().ID, "error", err.Error())
			}
			cancel()
			select {
			case <-c.ended:
				return nil
			case <-again.C:
			case <-deadline.C:
				pressing = false
			case <-ctx.Done():
				return fmt.Errorf("it has not ended yet: %w", ctx.Err())
			}
		}
	}
	return s.destroy(ctx, c)
}

// destroy ends a machine and waits until its end is recorded.
func (s *Server) destroy(ctx context.Context, c *containerState) error {
	uuid := c.rec.Load().UUID
	if err := s.do(ctx, "destroy", func(ctx context.Context) error { return s.Hypervisor.Destroy(ctx, uuid) }); err != nil && vm.KindOf(err) != vm.NotFound {
		return err
	}
	return s.check(ctx, c)
}

// endNow ends the machine of a container at once, if it has one. The sandbox's lock is held.
func (s *Server) endNow(ctx context.Context, c *containerState) error {
	err := s.stopping(ctx, c)
	if errors.Is(err, errUnchanged) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := s.destroy(ctx, c); err != nil {
		return c.problem(err)
	}
	return nil
}

// RemoveContainer ends the machine if it runs, and removes everything of it.
func (s *Server) RemoveContainer(ctx context.Context, r *runtimeapi.RemoveContainerRequest) (*runtimeapi.RemoveContainerResponse, error) {
	c := s.container(r.GetContainerId())
	if c == nil {
		return &runtimeapi.RemoveContainerResponse{}, nil
	}
	return &runtimeapi.RemoveContainerResponse{}, s.held(ctx, c.box, func(ctx context.Context, _ *sandboxState) error { return s.removeContainer(ctx, c) })
}

// removeContainer brings a container from any phase to nothing. The sandbox's lock is held.
func (s *Server) removeContainer(ctx context.Context, c *containerState) error {
	id := c.rec.Load().ID
	if s.container(id) != c {
		return nil
	}
	if err := s.endNow(ctx, c); err != nil {
		return err
	}
	was := c.rec.Load().Phase
	if err := s.phase(ctx, c, Removing); err != nil {
		return err
	}
	rec := c.rec.Load()
	if err := s.forget(ctx, c); err != nil {
		return c.problem(err)
	}
	parent := c.box.rec.Load().Config.GetLinux().GetCgroupParent()
	if err := errors.Join(
		s.do(ctx, "console", func(ctx context.Context) error { return s.Consoles.Close(ctx, id) }),
		s.do(ctx, "volumes", func(ctx context.Context) error { return s.Volumes.Teardown(ctx, id) }),
		s.do(ctx, "cgroup", func(ctx context.Context) error { return s.Cgroups.Leave(ctx, parent, id) }), // whose processes are gone by now
		s.do(ctx, "folder", func(ctx context.Context) error { return s.Folders.Remove(ctx, id) }),
		s.giveBack(rec),
	); err != nil {
		return c.problem(err)
	}
	c.write.Lock() // whoever saw something of it writes before or not at all
	err := s.Records.DeleteContainer(ctx, id)
	if err != nil {
		c.write.Unlock()
		return c.problem(fmt.Errorf("record: %w", err))
	}
	s.mu.Lock()
	delete(s.containers, id)
	if s.machines[rec.UUID] == c {
		delete(s.machines, rec.UUID)
	}
	i := slices.Index(c.box.containers, c)
	c.box.containers = slices.Concat(c.box.containers[:i], c.box.containers[i+1:])
	s.mu.Unlock()
	c.write.Unlock()
	if was != Creating {
		s.announce(c.box, id, runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT)
	}
	return nil
}

// forget has the hypervisor forget a machine that is off, where it may know it.
func (s *Server) forget(ctx context.Context, c *containerState) error {
	c.forgetting.Lock() // once it is forgotten, its UUID may be another machine's of the pod
	defer c.forgetting.Unlock()
	rec := c.rec.Load()
	if !rec.Defined {
		return nil
	}
	if err := s.do(ctx, "undefine", func(ctx context.Context) error { return s.Hypervisor.Undefine(ctx, rec.UUID) }); err != nil && vm.KindOf(err) != vm.NotFound {
		return err
	}
	err := s.saveContainer(ctx, c, func(r *Container) error {
		if !r.Defined {
			return errUnchanged
		}
		r.Defined = false
		return nil
	})
	if errors.Is(err, errUnchanged) {
		return nil
	}
	return err
}

// UpdateContainerResources changes a machine's limits, at once where it runs.
func (s *Server) UpdateContainerResources(ctx context.Context, r *runtimeapi.UpdateContainerResourcesRequest) (*runtimeapi.UpdateContainerResourcesResponse, error) {
	c := s.container(r.GetContainerId())
	if c == nil {
		return nil, noContainer(r.GetContainerId())
	}
	there, err := s.hold(ctx, c.box)
	if err != nil {
		return nil, err
	}
	if !there {
		return nil, noContainer(r.GetContainerId())
	}
	defer s.free(c.box)
	rec := c.rec.Load()
	if rec.Domain == nil || rec.Phase == Stopping {
		return nil, c.problem(vm.Errorf(vm.Conflict, "it is %s: only limits of what is created or runs can be changed", rec.Phase))
	}
	want := merged(rec.Resources, r.GetLinux())
	limits, err := s.judgeResources(c, want)
	if err != nil {
		return nil, err
	}
	if rec.Phase != Created && limits.Memory > rec.Memory {
		return nil, c.problem(vm.Errorf(vm.Invalid, "memory %d: a machine that runs has at most the memory that it was started with, %d bytes", limits.Memory, rec.Memory))
	}
	next := *rec.Domain
	nextSpec := *next.Spec
	nextSpec.Resources, next.Spec = limits, &nextSpec
	// First the record: what is recorded is what a repetition of this call, or the next start, makes true.
	if err := s.saveContainer(ctx, c, func(r *Container) error { r.Resources, r.Domain = want, &next; return nil }); err != nil {
		return nil, err
	}
	if rec.Phase == Running {
		parent := c.box.rec.Load().Config.GetLinux().GetCgroupParent()
		if err := errors.Join(
			s.do(ctx, "limits", func(ctx context.Context) error { return s.Cgroups.Limit(ctx, parent, rec.ID, limits) }),
			s.do(ctx, "limits", func(ctx context.Context) error { return s.Hypervisor.Update(ctx, rec.UUID, limits) }),
		); err != nil {
			return nil, c.problem(err)
		}
	}
	return &runtimeapi.UpdateContainerResourcesResponse{}, nil
}

// merged is was with what next sets.
func merged(was, next *runtimeapi.LinuxContainerResources) *runtimeapi.LinuxContainerResources {
	out := &runtimeapi.LinuxContainerResources{
		CpuPeriod: was.GetCpuPeriod(), CpuQuota: was.GetCpuQuota(), CpuShares: was.GetCpuShares(), MemoryLimitInBytes: was.GetMemoryLimitInBytes(),
		OomScoreAdj: was.GetOomScoreAdj(), CpusetCpus: was.GetCpusetCpus(), CpusetMems: was.GetCpusetMems(), HugepageLimits: was.GetHugepageLimits(),
		Unified: was.GetUnified(), MemorySwapLimitInBytes: was.GetMemorySwapLimitInBytes(),
	}
	for _, f := range []struct{ to, from *int64 }{
		{&out.CpuPeriod, ptr(next.GetCpuPeriod())},
		{&out.CpuQuota, ptr(next.GetCpuQuota())},
		{&out.CpuShares, ptr(next.GetCpuShares())},
		{&out.MemoryLimitInBytes, ptr(next.GetMemoryLimitInBytes())},
		{&out.OomScoreAdj, ptr(next.GetOomScoreAdj())},
		{&out.MemorySwapLimitInBytes, ptr(next.GetMemorySwapLimitInBytes())},
	} {
		if *f.from != 0 {
			*f.to = *f.from
		}
	}
	if v := next.GetCpusetCpus(); v != "" {
		out.CpusetCpus = v
	}
	if v := next.GetCpusetMems(); v != "" {
		out.CpusetMems = v
	}
	if len(next.GetUnified()) > 0 {
		out.Unified = map[string]string{}
		maps.Copy(out.Unified, was.GetUnified())
		maps.Copy(out.Unified, next.GetUnified())
	}
	return out
}

func ptr[T any](v T) *T { return &v }

// judgeResources is spec's judgement of resources alone.
func (s *Server) judgeResources(c *containerState, r *runtimeapi.LinuxContainerResources) (spec.Resources, error) {
	rec, box := c.rec.Load(), c.box.rec.Load()
	in := spec.Input{
		Sandbox: &runtimeapi.PodSandboxConfig{Metadata: box.Config.GetMetadata(), Linux: &runtimeapi.LinuxPodSandboxConfig{CgroupParent: box.Config.GetLinux().GetCgroupParent()}},
		Container: &runtimeapi.ContainerConfig{
			Metadata: &runtimeapi.ContainerMetadata{Name: rec.Name, Attempt: rec.Attempt}, Image: &runtimeapi.ImageSpec{Image: rec.Image},
			Linux: &runtimeapi.LinuxContainerConfig{Resources: r},
		},
		Node: s.opt.Limits,
	}
	if v, ok := box.Config.GetAnnotations()[spec.KeyVCPUCount]; ok {
		in.Sandbox.Annotations = map[string]string{spec.KeyVCPUCount: v}
	}
	judged, err := spec.Judge(in)
	if err != nil {
		return spec.Resources{}, err
	}
	return judged.Resources, nil
}

// ReopenContainerLog goes on with a new log file, after the kubelet has moved the old one away.
func (s *Server) ReopenContainerLog(ctx context.Context, r *runtimeapi.ReopenContainerLogRequest) (*runtimeapi.ReopenContainerLogResponse, error) {
	c := s.container(r.GetContainerId())
	if c == nil {
		return nil, noContainer(r.GetContainerId())
	}
	rec := c.rec.Load()
	if !rec.live() {
		return nil, c.problem(vm.Errorf(vm.Conflict, "it is %s, and writes no log", rec.Phase))
	}
	if err := s.do(ctx, "log", func(ctx context.Context) error { return s.Consoles.Reopen(ctx, rec.ID) }); err != nil {
		return nil, c.problem(err)
	}
	return &runtimeapi.ReopenContainerLogResponse{}, nil
}

// logPath is where a container's log is; "" if the kubelet wants none.
func logPath(b *Sandbox, r *Container) string {
	if b.Config.GetLogDirectory() == "" || r.LogPath == "" {
		return ""
	}
	return filepath.Join(b.Config.GetLogDirectory(), r.LogPath)
}
