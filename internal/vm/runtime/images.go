package runtime

import (
	"context"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/muster-scheduler/muster/internal/vm"
	"github.com/muster-scheduler/muster/internal/vm/image"
)

func criImage(i image.Image) *runtimeapi.Image {
	return &runtimeapi.Image{Id: string(i.ID), RepoTags: i.RepoTags, RepoDigests: i.RepoDigests, Size: uint64(max(i.Size, 0)), Pinned: i.Pinned}
}

func (s *Server) listImages(f *runtimeapi.ImageFilter) []*runtimeapi.Image {
	var out []*runtimeapi.Image
	for _, i := range s.Images.List(f.GetImage().GetImage()) {
		out = append(out, criImage(i))
	}
	return out
}

// ListImages lists images.
func (s *Server) ListImages(_ context.Context, r *runtimeapi.ListImagesRequest) (*runtimeapi.ListImagesResponse, error) {
	return &runtimeapi.ListImagesResponse{Images: s.listImages(r.GetFilter())}, nil
}

// StreamImages is ListImages in pieces.
func (s *Server) StreamImages(r *runtimeapi.StreamImagesRequest, stream grpc.ServerStreamingServer[runtimeapi.StreamImagesResponse]) error {
	return sendChunks(s.listImages(r.GetFilter()), stream, func(p []*runtimeapi.Image) *runtimeapi.StreamImagesResponse {
		return &runtimeapi.StreamImagesResponse{Images: p}
	})
}

// ImageStatus tells of one image; of one that is not there, nothing.
func (s *Server) ImageStatus(_ context.Context, r *runtimeapi.ImageStatusRequest) (*runtimeapi.ImageStatusResponse, error) {
	name := r.GetImage().GetImage()
	if name == "" {
		return nil, vm.Errorf(vm.Invalid, "image.image: must not be empty")
	}
	i, err := s.Images.Status(name)
	if err != nil {
		if vm.KindOf(err) == vm.NotFound {
			return &runtimeapi.ImageStatusResponse{}, nil
		}
		return nil, err
	}
	out := &runtimeapi.ImageStatusResponse{Image: criImage(i)}
	if r.GetVerbose() {
		out.Info = info(map[string]any{"format": i.Format, "virtualSize": i.VirtualSize, "pulled": i.Pulled})
	}
	return out, nil
}

// PullImage gets an image.
func (s *Server) PullImage(ctx context.Context, r *runtimeapi.PullImageRequest) (*runtimeapi.PullImageResponse, error) {
	if r.GetImage().GetImage() == "" {
		return nil, vm.Errorf(vm.Invalid, "image.image: must not be empty")
	}
	request := image.Request{Name: r.GetImage().GetImage()}
	if a := r.GetAuth(); a != nil {
		request.Auth = &image.Auth{
			Username: a.GetUsername(), Password: a.GetPassword(), Auth: a.GetAuth(), ServerAddress: a.GetServerAddress(),
			IdentityToken: a.GetIdentityToken(), RegistryToken: a.GetRegistryToken(),
		}
	}
	i, err := s.Images.Pull(ctx, request)
	if err != nil {
		return nil, err
	}
	return &runtimeapi.PullImageResponse{ImageRef: string(i.ID)}, nil
}

// RemoveImage removes an image; what is not there is removed. Disks of machines that are based on it stay good: see image.Store.
func (s *Server) RemoveImage(_ context.Context, r *runtimeapi.RemoveImageRequest) (*runtimeapi.RemoveImageResponse, error) {
	name := r.GetImage().GetImage()
	if name == "" {
		return nil, vm.Errorf(vm.Invalid, "image.image: must not be empty")
	}
	if err := s.Images.Remove(name); err != nil && vm.KindOf(err) != vm.NotFound {
		return nil, err
	}
	return &runtimeapi.RemoveImageResponse{}, nil
}

// ImageFsInfo says how much space images take. Disks of machines are on the same file system.
func (s *Server) ImageFsInfo(context.Context, *runtimeapi.ImageFsInfoRequest) (*runtimeapi.ImageFsInfoResponse, error) {
	u, err := s.Images.Usage()
	if err != nil {
		return nil, err
	}
	fs := []*runtimeapi.FilesystemUsage{{
		Timestamp: s.Clock().UnixNano(), FsId: &runtimeapi.FilesystemIdentifier{Mountpoint: u.Mountpoint},
		UsedBytes: value(uint64(max(u.Bytes, 0))), InodesUsed: value(uint64(max(u.Inodes, 0))),
	}}
	return &runtimeapi.ImageFsInfoResponse{ImageFilesystems: fs, ContainerFilesystems: fs}, nil
}
