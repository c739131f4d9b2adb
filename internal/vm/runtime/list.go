package runtime

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/muster-scheduler/muster/internal/vm"
)

// Version says who answers.
func (s *Server) Version(context.Context, *runtimeapi.VersionRequest) (*runtimeapi.VersionResponse, error) {
	return &runtimeapi.VersionResponse{Version: "0.1.0", RuntimeName: "muster-vm", RuntimeVersion: cmp.Or(s.opt.Version, "0.0.0"), RuntimeApiVersion: "v1"}, nil
}

// HypervisorAway says that machines can neither be made nor asked about now.
func (s *Server) HypervisorAway() bool { return s.away.Load() != nil }

// Status says whether machines and networks can be made now.
func (s *Server) Status(ctx context.Context, r *runtimeapi.StatusRequest) (*runtimeapi.StatusResponse, error) {
	ready := &runtimeapi.RuntimeCondition{Type: runtimeapi.RuntimeReady, Status: true}
	if why := s.away.Load(); why != nil {
		ready.Status, ready.Reason, ready.Message = false, "HypervisorAway", *why
	}
	network := &runtimeapi.RuntimeCondition{Type: runtimeapi.NetworkReady, Status: true}
	if err := s.do(ctx, "network", s.Networks.Status); err != nil {
		network.Status, network.Reason, network.Message = false, "NetworkNotReady", short(err.Error())
	}
	out := &runtimeapi.StatusResponse{
		Status:   &runtimeapi.RuntimeStatus{Conditions: []*runtimeapi.RuntimeCondition{ready, network}},
		Features: &runtimeapi.RuntimeFeatures{},
	}
	for _, h := range append([]string{""}, s.opt.Handlers...) {
		out.RuntimeHandlers = append(out.RuntimeHandlers, &runtimeapi.RuntimeHandler{Name: h, Features: &runtimeapi.RuntimeHandlerFeatures{}})
	}
	if r.GetVerbose() {
		out.Info = info(map[string]any{"domain": s.opt.Domain, "limits": s.opt.Limits})
	}
	return out, nil
}

// info is the verbose part of an answer: JSON under one key, as crictl shows it.
func info(v any) map[string]string {
	text, err := json.Marshal(v)
	if err != nil {
		text = []byte(`{}`)
	}
	return map[string]string{"info": string(text)}
}

// RuntimeConfig says which cgroup driver is meant.
func (s *Server) RuntimeConfig(context.Context, *runtimeapi.RuntimeConfigRequest) (*runtimeapi.RuntimeConfigResponse, error) {
	driver := runtimeapi.CgroupDriver_CGROUPFS
	if s.opt.SystemdCgroups {
		driver = runtimeapi.CgroupDriver_SYSTEMD
	}
	return &runtimeapi.RuntimeConfigResponse{Linux: &runtimeapi.LinuxRuntimeConfiguration{CgroupDriver: driver}}, nil
}

// UpdateRuntimeConfig has nothing to do: the node's pod CIDR is for CNI plugins that are configured by the kubelet, of which there are none.
func (*Server) UpdateRuntimeConfig(context.Context, *runtimeapi.UpdateRuntimeConfigRequest) (*runtimeapi.UpdateRuntimeConfigResponse, error) {
	return &runtimeapi.UpdateRuntimeConfigResponse{}, nil
}

// CheckpointContainer is not there: a machine's memory is no image that a container could be restored from.
func (*Server) CheckpointContainer(context.Context, *runtimeapi.CheckpointContainerRequest) (*runtimeapi.CheckpointContainerResponse, error) {
	return runtimeapi.UnimplementedRuntimeServiceServer{}.CheckpointContainer(context.TODO(), nil)
}

// boxes gives the records of the sandboxes that were made, oldest first.
func (s *Server) boxes(keep func(*Sandbox) bool) []*Sandbox {
	s.mu.RLock()
	out := make([]*Sandbox, 0, len(s.sandboxes))
	for _, box := range s.sandboxes {
		if b := box.rec.Load(); b.Phase != Creating && keep(b) {
			out = append(out, b)
		}
	}
	s.mu.RUnlock()
	slices.SortFunc(out, func(a, b *Sandbox) int { return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.ID, b.ID)) })
	return out
}

// made gives the containers that were made, oldest first.
func (s *Server) made(keep func(*Container) bool) []*containerState {
	s.mu.RLock()
	out := make([]*containerState, 0, len(s.containers))
	for _, c := range s.containers {
		if r := c.rec.Load(); r.Phase != Creating && keep(r) {
			out = append(out, c)
		}
	}
	s.mu.RUnlock()
	slices.SortFunc(out, func(x, y *containerState) int {
		a, b := x.rec.Load(), y.rec.Load()
		return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.ID, b.ID))
	})
	return out
}

// has says that labels has all of want.
func has(labels, want map[string]string) bool {
	for k, v := range want {
		if got, ok := labels[k]; !ok || got != v {
			return false
		}
	}
	return true
}

func sandboxFilter(f *runtimeapi.PodSandboxFilter) func(*Sandbox) bool {
	return func(b *Sandbox) bool {
		return (f.GetId() == "" || f.GetId() == b.ID) && (f.GetState() == nil || f.GetState().GetState() == b.state()) &&
			has(b.Config.GetLabels(), f.GetLabelSelector())
	}
}

func containerFilter(id, sandbox string, state *runtimeapi.ContainerStateValue, labels map[string]string) func(*Container) bool {
	return func(c *Container) bool {
		return (id == "" || id == c.ID) && (sandbox == "" || sandbox == c.SandboxID) && (state == nil || state.GetState() == c.state()) && has(c.Labels, labels)
	}
}

func (s *Server) listSandboxes(f *runtimeapi.PodSandboxFilter) []*runtimeapi.PodSandbox {
	var out []*runtimeapi.PodSandbox
	for _, b := range s.boxes(sandboxFilter(f)) {
		out = append(out, &runtimeapi.PodSandbox{
			Id: b.ID, Metadata: b.Config.GetMetadata(), State: b.state(), CreatedAt: b.Created.UnixNano(), Labels: b.Config.GetLabels(),
			Annotations: b.Config.GetAnnotations(), RuntimeHandler: b.Handler,
		})
	}
	return out
}

// ListPodSandbox lists sandboxes.
func (s *Server) ListPodSandbox(_ context.Context, r *runtimeapi.ListPodSandboxRequest) (*runtimeapi.ListPodSandboxResponse, error) {
	return &runtimeapi.ListPodSandboxResponse{Items: s.listSandboxes(r.GetFilter())}, nil
}

func (s *Server) listContainers(f *runtimeapi.ContainerFilter) []*runtimeapi.Container {
	var out []*runtimeapi.Container
	for _, x := range s.made(containerFilter(f.GetId(), f.GetPodSandboxId(), f.GetState(), f.GetLabelSelector())) {
		c := x.rec.Load()
		out = append(out, &runtimeapi.Container{
			Id: c.ID, PodSandboxId: c.SandboxID, Metadata: &runtimeapi.ContainerMetadata{Name: c.Name, Attempt: c.Attempt},
			Image: &runtimeapi.ImageSpec{Image: c.Image, UserSpecifiedImage: c.UserImage}, ImageRef: c.ImageID, ImageId: c.ImageID, State: c.state(),
			CreatedAt: c.Created.UnixNano(), Labels: c.Labels, Annotations: c.Annotations,
		})
	}
	return out
}

// ListContainers lists containers.
func (s *Server) ListContainers(_ context.Context, r *runtimeapi.ListContainersRequest) (*runtimeapi.ListContainersResponse, error) {
	return &runtimeapi.ListContainersResponse{Containers: s.listContainers(r.GetFilter())}, nil
}

func sandboxStatus(b *Sandbox) *runtimeapi.PodSandboxStatus {
	out := &runtimeapi.PodSandboxStatus{
		Id: b.ID, Metadata: b.Config.GetMetadata(), State: b.state(), CreatedAt: b.Created.UnixNano(), Network: &runtimeapi.PodSandboxNetworkStatus{},
		Linux:  &runtimeapi.LinuxPodSandboxStatus{Namespaces: &runtimeapi.Namespace{Options: b.Config.GetLinux().GetSecurityContext().GetNamespaceOptions()}},
		Labels: b.Config.GetLabels(), Annotations: b.Config.GetAnnotations(), RuntimeHandler: b.Handler,
	}
	if b.Phase == Ready {
		for i, a := range b.addresses() {
			if i == 0 {
				out.Network.Ip = a
			} else {
				out.Network.AdditionalIps = append(out.Network.AdditionalIps, &runtimeapi.PodIP{Ip: a})
			}
		}
	}
	return out
}

func containerStatus(b *Sandbox, c *Container) *runtimeapi.ContainerStatus {
	out := &runtimeapi.ContainerStatus{
		Id: c.ID, Metadata: &runtimeapi.ContainerMetadata{Name: c.Name, Attempt: c.Attempt}, State: c.state(), CreatedAt: c.Created.UnixNano(),
		Image: &runtimeapi.ImageSpec{Image: c.Image, UserSpecifiedImage: c.UserImage}, ImageRef: c.ImageID, ImageId: c.ImageID,
		ExitCode: c.ExitCode, Reason: c.Reason, Message: c.Message, Labels: c.Labels, Annotations: c.Annotations, Mounts: c.Mounts, LogPath: logPath(b, c),
	}
	if !c.Started.IsZero() {
		out.StartedAt = c.Started.UnixNano()
	}
	if !c.Finished.IsZero() {
		out.FinishedAt = c.Finished.UnixNano()
	}
	if c.Resources != nil {
		out.Resources = &runtimeapi.ContainerResources{Linux: c.Resources}
	}
	return out
}

// statuses are of all containers of a pod.
func (s *Server) statuses(box *sandboxState) []*runtimeapi.ContainerStatus {
	var out []*runtimeapi.ContainerStatus
	b := box.rec.Load()
	for _, c := range s.of(box) {
		if r := c.rec.Load(); r.Phase != Creating {
			out = append(out, containerStatus(b, r))
		}
	}
	return out
}

// PodSandboxStatus tells of one sandbox and its containers.
func (s *Server) PodSandboxStatus(_ context.Context, r *runtimeapi.PodSandboxStatusRequest) (*runtimeapi.PodSandboxStatusResponse, error) {
	box := s.sandbox(r.GetPodSandboxId())
	if box == nil {
		return nil, noSandbox(r.GetPodSandboxId())
	}
	b := box.rec.Load()
	out := &runtimeapi.PodSandboxStatusResponse{Status: sandboxStatus(b), ContainersStatuses: s.statuses(box), Timestamp: s.Clock().UnixNano()}
	if r.GetVerbose() {
		out.Info = info(map[string]any{"phase": b.Phase, "network": b.Network, "cgroupParent": b.Config.GetLinux().GetCgroupParent()})
	}
	return out, nil
}

// ContainerStatus tells of one container.
func (s *Server) ContainerStatus(_ context.Context, r *runtimeapi.ContainerStatusRequest) (*runtimeapi.ContainerStatusResponse, error) {
	c := s.container(r.GetContainerId())
	if c == nil {
		return nil, noContainer(r.GetContainerId())
	}
	rec := c.rec.Load()
	out := &runtimeapi.ContainerStatusResponse{Status: containerStatus(c.box.rec.Load(), rec)}
	if r.GetVerbose() {
		out.Info = info(map[string]any{"phase": rec.Phase, "sandboxID": rec.SandboxID, "domainUUID": rec.UUID, "imageID": rec.ImageID})
	}
	return out, nil
}

// chunk is how many items a message of a streamed list holds: far below gRPC's limit of 4 MiB, for items as large as the kubelet lets them be.
const chunk = 32

// sendChunks streams a list.
func sendChunks[T, R any](items []T, stream grpc.ServerStreamingServer[R], message func([]T) *R) error {
	for part := range slices.Chunk(items, chunk) {
		if err := stream.Send(message(part)); err != nil {
			return vm.Errorf(vm.Unavailable, "the list: %w", err)
		}
	}
	return nil
}

// StreamPodSandboxes is ListPodSandbox in pieces.
func (s *Server) StreamPodSandboxes(r *runtimeapi.StreamPodSandboxesRequest, stream grpc.ServerStreamingServer[runtimeapi.StreamPodSandboxesResponse]) error {
	return sendChunks(s.listSandboxes(r.GetFilter()), stream, func(p []*runtimeapi.PodSandbox) *runtimeapi.StreamPodSandboxesResponse {
		return &runtimeapi.StreamPodSandboxesResponse{PodSandboxes: p}
	})
}

// StreamContainers is ListContainers in pieces.
func (s *Server) StreamContainers(r *runtimeapi.StreamContainersRequest, stream grpc.ServerStreamingServer[runtimeapi.StreamContainersResponse]) error {
	return sendChunks(s.listContainers(r.GetFilter()), stream, func(p []*runtimeapi.Container) *runtimeapi.StreamContainersResponse {
		return &runtimeapi.StreamContainersResponse{Containers: p}
	})
}
