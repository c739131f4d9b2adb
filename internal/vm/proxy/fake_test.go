package proxy

import (
	"context"
	"crypto/sha256"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// fakeRuntime is a container runtime that has its pods in memory, and keeps them while it is down. Its ids are its name and a number.
type fakeRuntime struct {
	cri.UnimplementedRuntimeServiceServer
	cri.UnimplementedImageServiceServer
	t      testing.TB
	name   string
	socket string

	mu         sync.Mutex
	server     *grpc.Server
	ended      chan struct{}
	last       int
	sandboxes  []*cri.PodSandbox
	containers []*cri.Container
	images     []*cri.Image
	handlers   []*cri.RuntimeHandler
	notReady   string        // message of RuntimeReady, if it is false
	muted      chan struct{} // closed when the runtime is to answer again; nil: it answers
	cidr       string
	streams    bool // has streaming lists and events
	watchers   map[chan *cri.ContainerEventResponse]struct{}
}

func newFake(t testing.TB, name, socket string) *fakeRuntime {
	f := &fakeRuntime{t: t, name: name, socket: socket, watchers: map[chan *cri.ContainerEventResponse]struct{}{}}
	t.Cleanup(f.down)
	return f
}

func (f *fakeRuntime) up() {
	l, err := net.Listen("unix", f.socket)
	if err != nil {
		f.t.Errorf("fake %s: %v", f.name, err)
		return
	}
	s := grpc.NewServer(grpc.MaxRecvMsgSize(maxMessage), grpc.WaitForHandlers(true), grpc.UnaryInterceptor(f.answer), grpc.StreamInterceptor(f.answerStream))
	cri.RegisterRuntimeServiceServer(s, f)
	cri.RegisterImageServiceServer(s, f)
	ended := make(chan struct{})
	f.mu.Lock()
	f.server, f.ended = s, ended
	f.mu.Unlock()
	go func() {
		_ = s.Serve(l)
		close(ended)
	}()
}

func (f *fakeRuntime) down() {
	f.mu.Lock()
	s, ended := f.server, f.ended
	f.server = nil
	f.mu.Unlock()
	if s != nil {
		s.Stop()
		<-ended
		_ = os.Remove(f.socket)
	}
}

// mute makes calls wait until they are cancelled or the runtime is unmuted.
func (f *fakeRuntime) mute() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.muted = make(chan struct{})
}

func (f *fakeRuntime) unmute() {
	f.mu.Lock()
	defer f.mu.Unlock()
	close(f.muted)
	f.muted = nil
}

func (f *fakeRuntime) wait(ctx context.Context) error {
	f.mu.Lock()
	muted := f.muted
	f.mu.Unlock()
	if muted == nil {
		return nil
	}
	select {
	case <-muted:
		return nil
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	}
}

func (f *fakeRuntime) answer(ctx context.Context, req any, _ *grpc.UnaryServerInfo, h grpc.UnaryHandler) (any, error) {
	if err := f.wait(ctx); err != nil {
		return nil, err
	}
	return h(ctx, req)
}

func (f *fakeRuntime) answerStream(srv any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, h grpc.StreamHandler) error {
	if err := f.wait(ss.Context()); err != nil {
		return err
	}
	return h(srv, ss)
}

// id gives the next id; f is locked.
func (f *fakeRuntime) id() string {
	f.last++
	return fmt.Sprintf("%s-%d", f.name, f.last)
}

func (f *fakeRuntime) Version(context.Context, *cri.VersionRequest) (*cri.VersionResponse, error) {
	return &cri.VersionResponse{RuntimeName: f.name, RuntimeApiVersion: "v1"}, nil
}

func (f *fakeRuntime) RunPodSandbox(_ context.Context, r *cri.RunPodSandboxRequest) (*cri.RunPodSandboxResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := &cri.PodSandbox{Id: f.id(), Metadata: r.GetConfig().GetMetadata(), Labels: r.GetConfig().GetLabels(), Annotations: r.GetConfig().GetAnnotations(), RuntimeHandler: r.GetRuntimeHandler()}
	f.sandboxes = append(f.sandboxes, s)
	return &cri.RunPodSandboxResponse{PodSandboxId: s.Id}, nil
}

func (f *fakeRuntime) sandbox(id string) *cri.PodSandbox {
	i := slices.IndexFunc(f.sandboxes, func(s *cri.PodSandbox) bool { return s.Id == id })
	if i < 0 {
		return nil
	}
	return f.sandboxes[i]
}

func (f *fakeRuntime) container(id string) *cri.Container {
	i := slices.IndexFunc(f.containers, func(c *cri.Container) bool { return c.Id == id })
	if i < 0 {
		return nil
	}
	return f.containers[i]
}

func (f *fakeRuntime) StopPodSandbox(_ context.Context, r *cri.StopPodSandboxRequest) (*cri.StopPodSandboxResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if s := f.sandbox(r.PodSandboxId); s != nil {
		s.State = cri.PodSandboxState_SANDBOX_NOTREADY
	}
	return &cri.StopPodSandboxResponse{}, nil
}

func (f *fakeRuntime) RemovePodSandbox(_ context.Context, r *cri.RemovePodSandboxRequest) (*cri.RemovePodSandboxResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.sandboxes = slices.DeleteFunc(f.sandboxes, func(s *cri.PodSandbox) bool { return s.Id == r.PodSandboxId })
	f.containers = slices.DeleteFunc(f.containers, func(c *cri.Container) bool { return c.PodSandboxId == r.PodSandboxId })
	return &cri.RemovePodSandboxResponse{}, nil
}

func (f *fakeRuntime) PodSandboxStatus(_ context.Context, r *cri.PodSandboxStatusRequest) (*cri.PodSandboxStatusResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.sandbox(r.PodSandboxId)
	if s == nil {
		return nil, status.Errorf(codes.NotFound, "%s has no sandbox %q", f.name, r.PodSandboxId)
	}
	return &cri.PodSandboxStatusResponse{Status: &cri.PodSandboxStatus{Id: s.Id, Metadata: s.Metadata, State: s.State}}, nil
}

func (f *fakeRuntime) ListPodSandbox(_ context.Context, r *cri.ListPodSandboxRequest) (*cri.ListPodSandboxResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := &cri.ListPodSandboxResponse{}
	for _, s := range f.sandboxes {
		if (r.GetFilter().GetId() == "" || r.Filter.Id == s.Id) && (r.GetFilter().GetState() == nil || r.Filter.State.State == s.State) {
			out.Items = append(out.Items, proto.CloneOf(s))
		}
	}
	return out, nil
}

func (f *fakeRuntime) StreamPodSandboxes(r *cri.StreamPodSandboxesRequest, ss grpc.ServerStreamingServer[cri.StreamPodSandboxesResponse]) error {
	if !f.streams {
		return status.Error(codes.Unimplemented, f.name+" does not stream")
	}
	all, err := f.ListPodSandbox(ss.Context(), &cri.ListPodSandboxRequest{Filter: r.Filter})
	if err != nil {
		return err
	}
	for _, s := range all.Items {
		if err := ss.Send(&cri.StreamPodSandboxesResponse{PodSandboxes: []*cri.PodSandbox{s}}); err != nil {
			return err
		}
	}
	return nil
}

func (f *fakeRuntime) CreateContainer(_ context.Context, r *cri.CreateContainerRequest) (*cri.CreateContainerResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.sandbox(r.PodSandboxId) == nil {
		return nil, status.Errorf(codes.NotFound, "%s has no sandbox %q", f.name, r.PodSandboxId)
	}
	c := &cri.Container{Id: f.id(), PodSandboxId: r.PodSandboxId, Metadata: r.GetConfig().GetMetadata(), Image: r.GetConfig().GetImage(), ImageRef: r.GetConfig().GetImage().GetImage(), ImageId: r.GetConfig().GetImage().GetImage()}
	f.containers = append(f.containers, c)
	return &cri.CreateContainerResponse{ContainerId: c.Id}, nil
}

// state sets a container's state if it is there, and tells the watchers of events.
func (f *fakeRuntime) state(id string, s cri.ContainerState, e cri.ContainerEventType) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := f.container(id)
	if c == nil {
		return status.Errorf(codes.NotFound, "%s has no container %q", f.name, id)
	}
	c.State = s
	for w := range f.watchers {
		w <- &cri.ContainerEventResponse{ContainerId: id, ContainerEventType: e}
	}
	return nil
}

func (f *fakeRuntime) StartContainer(_ context.Context, r *cri.StartContainerRequest) (*cri.StartContainerResponse, error) {
	return &cri.StartContainerResponse{}, f.state(r.ContainerId, cri.ContainerState_CONTAINER_RUNNING, cri.ContainerEventType_CONTAINER_STARTED_EVENT)
}

func (f *fakeRuntime) StopContainer(_ context.Context, r *cri.StopContainerRequest) (*cri.StopContainerResponse, error) {
	_ = f.state(r.ContainerId, cri.ContainerState_CONTAINER_EXITED, cri.ContainerEventType_CONTAINER_STOPPED_EVENT)
	return &cri.StopContainerResponse{}, nil
}

func (f *fakeRuntime) RemoveContainer(_ context.Context, r *cri.RemoveContainerRequest) (*cri.RemoveContainerResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.containers = slices.DeleteFunc(f.containers, func(c *cri.Container) bool { return c.Id == r.ContainerId })
	return &cri.RemoveContainerResponse{}, nil
}

func (f *fakeRuntime) ContainerStatus(_ context.Context, r *cri.ContainerStatusRequest) (*cri.ContainerStatusResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := f.container(r.ContainerId)
	if c == nil {
		return nil, status.Errorf(codes.NotFound, "%s has no container %q", f.name, r.ContainerId)
	}
	return &cri.ContainerStatusResponse{Status: &cri.ContainerStatus{Id: c.Id, State: c.State}}, nil
}

func (f *fakeRuntime) ListContainers(_ context.Context, r *cri.ListContainersRequest) (*cri.ListContainersResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := &cri.ListContainersResponse{}
	for _, c := range f.containers {
		if (r.GetFilter().GetId() == "" || r.Filter.Id == c.Id) && (r.GetFilter().GetPodSandboxId() == "" || r.Filter.PodSandboxId == c.PodSandboxId) {
			out.Containers = append(out.Containers, proto.CloneOf(c))
		}
	}
	return out, nil
}

func (f *fakeRuntime) ListPodSandboxStats(context.Context, *cri.ListPodSandboxStatsRequest) (*cri.ListPodSandboxStatsResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := &cri.ListPodSandboxStatsResponse{}
	for _, s := range f.sandboxes {
		out.Stats = append(out.Stats, &cri.PodSandboxStats{Attributes: &cri.PodSandboxAttributes{Id: s.Id}})
	}
	return out, nil
}

func (f *fakeRuntime) ListMetricDescriptors(context.Context, *cri.ListMetricDescriptorsRequest) (*cri.ListMetricDescriptorsResponse, error) {
	return &cri.ListMetricDescriptorsResponse{Descriptors: []*cri.MetricDescriptor{{Name: "shared", Help: f.name}, {Name: f.name}}}, nil
}

func (f *fakeRuntime) Exec(_ context.Context, r *cri.ExecRequest) (*cri.ExecResponse, error) {
	return &cri.ExecResponse{Url: strings.Join(r.Cmd, "")}, nil // what was asked for, so that a test chooses the URL
}

func (f *fakeRuntime) Status(_ context.Context, r *cri.StatusRequest) (*cri.StatusResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := &cri.StatusResponse{RuntimeHandlers: f.handlers, Status: &cri.RuntimeStatus{Conditions: []*cri.RuntimeCondition{
		{Type: cri.RuntimeReady, Status: f.notReady == "", Message: f.notReady}, {Type: cri.NetworkReady, Status: true},
	}}}
	if f.notReady != "" {
		out.Status.Conditions[0].Reason = "Broken"
	}
	if r.Verbose {
		out.Info = map[string]string{"who": f.name}
	}
	return out, nil
}

func (f *fakeRuntime) UpdateRuntimeConfig(_ context.Context, r *cri.UpdateRuntimeConfigRequest) (*cri.UpdateRuntimeConfigResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.cidr = r.GetRuntimeConfig().GetNetworkConfig().GetPodCidr()
	return &cri.UpdateRuntimeConfigResponse{}, nil
}

func (f *fakeRuntime) GetContainerEvents(_ *cri.GetEventsRequest, ss grpc.ServerStreamingServer[cri.ContainerEventResponse]) error {
	if !f.streams {
		return status.Error(codes.Unimplemented, f.name+" has no events")
	}
	w := make(chan *cri.ContainerEventResponse, 16)
	f.mu.Lock()
	f.watchers[w] = struct{}{}
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.watchers, w)
	}()
	for {
		select {
		case e := <-w:
			if err := ss.Send(e); err != nil {
				return err
			}
		case <-ss.Context().Done():
			return ss.Context().Err()
		}
	}
}

// digest makes an image's id.
func digest(name string) string { return fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(name))) }

func (f *fakeRuntime) find(name string) int {
	return slices.IndexFunc(f.images, func(i *cri.Image) bool { return i.Id == name || slices.Contains(i.RepoTags, name) })
}

func (f *fakeRuntime) PullImage(_ context.Context, r *cri.PullImageRequest) (*cri.PullImageResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	name := r.GetImage().GetImage()
	if f.find(name) < 0 {
		f.images = append(f.images, &cri.Image{Id: digest(name), RepoTags: []string{name}, Size: 1, Spec: &cri.ImageSpec{Image: name}})
	}
	return &cri.PullImageResponse{ImageRef: digest(name)}, nil
}

func (f *fakeRuntime) ImageStatus(_ context.Context, r *cri.ImageStatusRequest) (*cri.ImageStatusResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if i := f.find(r.GetImage().GetImage()); i >= 0 {
		return &cri.ImageStatusResponse{Image: f.images[i]}, nil
	}
	return &cri.ImageStatusResponse{}, nil
}

func (f *fakeRuntime) RemoveImage(_ context.Context, r *cri.RemoveImageRequest) (*cri.RemoveImageResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if i := f.find(r.GetImage().GetImage()); i >= 0 {
		f.images = slices.Delete(f.images, i, i+1)
	}
	return &cri.RemoveImageResponse{}, nil
}

func (f *fakeRuntime) ListImages(context.Context, *cri.ListImagesRequest) (*cri.ListImagesResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return &cri.ListImagesResponse{Images: slices.Clone(f.images)}, nil
}

func (f *fakeRuntime) ImageFsInfo(context.Context, *cri.ImageFsInfoRequest) (*cri.ImageFsInfoResponse, error) {
	return &cri.ImageFsInfoResponse{ImageFilesystems: []*cri.FilesystemUsage{{FsId: &cri.FilesystemIdentifier{Mountpoint: "/" + f.name}}}}, nil
}
