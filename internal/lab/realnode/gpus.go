package main

import (
	"context"
	"crypto/sha256"
	"fmt"
	"net"
	"path/filepath"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

const (
	gpuResource = "nvidia.com/gpu"
	// envVisible is how NVIDIA's plugin tells the container runtime which GPUs a container gets, by their UUIDs.
	envVisible = "NVIDIA_VISIBLE_DEVICES"
	// envSimulated tells a program of Muster's own the UUID of the GPU that it would find.
	envSimulated = "MUSTER_SIMULATED_DEVICE"
)

// offer registers a device plugin with the kubelet that offers so many GPUs, none of which there is. A container that gets one is
// told by its environment, as by NVIDIA's.
func offer(ctx context.Context, failed chan<- error, node string, gpus int) error {
	if err := await(ctx, "the kubelet's socket for device plugins", func() bool { return exists(pluginapi.KubeletSocket) }); err != nil {
		return err
	}
	const socket = "simulated-gpus.sock"
	listener, err := net.Listen("unix", filepath.Join(pluginapi.DevicePluginPath, socket))
	if err != nil {
		return fmt.Errorf("the device plugin: %w", err)
	}
	server := grpc.NewServer()
	pluginapi.RegisterDevicePluginServer(server, &plugin{node: node, gpus: gpus})
	go func() { failed <- fmt.Errorf("the device plugin ended: %w", server.Serve(listener)) }()
	conn, err := grpc.NewClient("unix://"+pluginapi.KubeletSocket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return fmt.Errorf("register the device plugin: %w", err)
	}
	defer conn.Close()
	_, err = pluginapi.NewRegistrationClient(conn).Register(ctx, &pluginapi.RegisterRequest{Version: pluginapi.Version, Endpoint: socket, ResourceName: gpuResource},
		grpc.WaitForReady(true))
	if err != nil {
		return fmt.Errorf("register the device plugin: %w", err)
	}
	return nil
}

// plugin offers devices whose names are their UUIDs.
type plugin struct {
	pluginapi.UnimplementedDevicePluginServer
	node string
	gpus int
}

func (p *plugin) GetDevicePluginOptions(context.Context, *pluginapi.Empty) (*pluginapi.DevicePluginOptions, error) {
	return &pluginapi.DevicePluginOptions{}, nil
}

// ListAndWatch tells all devices once: none ever falls ill.
func (p *plugin) ListAndWatch(_ *pluginapi.Empty, s pluginapi.DevicePlugin_ListAndWatchServer) error {
	var all pluginapi.ListAndWatchResponse
	for i := range p.gpus {
		all.Devices = append(all.Devices, &pluginapi.Device{ID: deviceUUID(p.node, i), Health: pluginapi.Healthy})
	}
	if err := s.Send(&all); err != nil {
		return err
	}
	<-s.Context().Done()
	return nil
}

// Allocate says what a container that gets devices is told.
func (p *plugin) Allocate(_ context.Context, r *pluginapi.AllocateRequest) (*pluginapi.AllocateResponse, error) {
	var out pluginapi.AllocateResponse
	for _, c := range r.ContainerRequests {
		env := map[string]string{envVisible: strings.Join(c.DevicesIds, ",")}
		if len(c.DevicesIds) == 1 {
			env[envSimulated] = c.DevicesIds[0]
		}
		out.ContainerResponses = append(out.ContainerResponses, &pluginapi.ContainerAllocateResponse{Envs: env})
	}
	return &out, nil
}

// deviceUUID is a GPU's, in the form of NVIDIA's, and the same whenever it is asked for.
func deviceUUID(node string, index int) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s/%d", node, index))
	return fmt.Sprintf("GPU-%x-%x-%x-%x-%x", sum[:4], sum[4:6], sum[6:8], sum[8:10], sum[10:16])
}
