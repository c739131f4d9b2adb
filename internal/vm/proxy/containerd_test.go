package proxy

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// TestContainerd holds what a real runtime says through the proxy, beside a backend, against what it says without. It changes nothing there.
// The socket is that of MUSTER_CRI_SOCKET.
func TestContainerd(t *testing.T) {
	t.Parallel()
	socket := os.Getenv("MUSTER_CRI_SOCKET")
	if socket == "" {
		t.Skip("NOT CHECKED: MUSTER_CRI_SOCKET names no runtime's socket")
	}
	dir := shortDir(t)
	nobody().serve(t, dir+"/b")
	direct := dialKubelet(t, socket)
	t.Cleanup(func() { _ = direct.Close() })
	proxied := startProxy(t, Config{Listen: dir + "/l", Primary: socket, State: dir + "/state", Backends: []Backend{{Name: "other", Socket: dir + "/b"}}})
	nothing := &cri.ImageSpec{Image: "example.com/nothing:1"}
	for _, call := range []struct {
		method string
		req    proto.Message
	}{
		{runtimeService + "Version", &cri.VersionRequest{}},
		{runtimeService + "RuntimeConfig", &cri.RuntimeConfigRequest{}},
		{runtimeService + "ListPodSandbox", &cri.ListPodSandboxRequest{}},
		{runtimeService + "ListContainers", &cri.ListContainersRequest{}},
		{runtimeService + "ListContainerStats", &cri.ListContainerStatsRequest{}},
		{runtimeService + "ListPodSandboxStats", &cri.ListPodSandboxStatsRequest{}},
		{runtimeService + "ListMetricDescriptors", &cri.ListMetricDescriptorsRequest{}},
		{runtimeService + "ListPodSandboxMetrics", &cri.ListPodSandboxMetricsRequest{}},
		{runtimeService + "StreamPodSandboxes", &cri.StreamPodSandboxesRequest{}},
		{runtimeService + "PodSandboxStatus", &cri.PodSandboxStatusRequest{PodSandboxId: "nothing"}},
		{runtimeService + "ContainerStatus", &cri.ContainerStatusRequest{ContainerId: "nothing"}},
		{runtimeService + "StopPodSandbox", &cri.StopPodSandboxRequest{PodSandboxId: "nothing"}},
		{runtimeService + "RemoveContainer", &cri.RemoveContainerRequest{ContainerId: "nothing"}},
		{runtimeService + "ExecSync", &cri.ExecSyncRequest{ContainerId: "nothing"}},
		{runtimeService + "CheckpointContainer", &cri.CheckpointContainerRequest{ContainerId: "nothing"}},
		{imageService + "ListImages", &cri.ListImagesRequest{}},
		{imageService + "ImageStatus", &cri.ImageStatusRequest{Image: nothing}},
		{imageService + "RemoveImage", &cri.RemoveImageRequest{Image: nothing}},
		{runtimeService + "Status", &cri.StatusRequest{}},
		{imageService + "ImageFsInfo", &cri.ImageFsInfoRequest{}},
	} {
		req, err := proto.Marshal(call.req)
		if err != nil {
			t.Fatal(err)
		}
		want, got := ask(t, direct, call.method, req, 0), ask(t, proxied, call.method, req, 0)
		t.Logf("%s: %v %s, %d answers", call.method, got.Code, got.Message, len(got.Bodies))
		switch {
		case strings.HasSuffix(call.method, "/Status"): // what is added is at its end, what is left out are handlers
			var a, b cri.StatusResponse
			if err := proto.Unmarshal([]byte(got.Bodies[0]), &a); err != nil {
				t.Fatal(err)
			}
			if err := proto.Unmarshal([]byte(want.Bodies[0]), &b); err != nil {
				t.Fatal(err)
			}
			a.Status.Conditions = a.Status.Conditions[:len(a.Status.Conditions)-1]
			if !proto.Equal(&a, &b) {
				t.Errorf("status: %v, want %v", &a, &b)
			}
		case strings.HasSuffix(call.method, "FsInfo"): // has the time
			if got.Code != want.Code || len(got.Bodies) != 1 || len(got.Bodies[0]) != len(want.Bodies[0]) {
				t.Errorf("%s: %+v, want %+v", call.method, got, want)
			}
		default:
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s: -direct +proxied:\n%s", call.method, diff)
			}
		}
	}
}
