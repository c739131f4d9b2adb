package proxy

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// mostAdded is how many microseconds the proxy may add at the 99th percentile, on two idle cores; of fewer than a thousand calls that is not judged.
const mostAdded = 500

// BenchmarkAdded measures what the proxy adds to calls: quantiles of the latency through it less those without it, taken in turns on the
// same runtime, which has 110 pods.
func BenchmarkAdded(b *testing.B) {
	h := newFixture(b)
	h.config.StatusEvery = 0 // as it is served
	for _, f := range h.runtimes {
		f.up()
	}
	if err := h.start(); err != nil {
		b.Fatal(err)
	}
	ctx := context.Background()
	var id string
	for i := range 110 {
		config := sandboxConfig(fmt.Sprint("p", i), nil)
		config.Annotations = map[string]string{"some": "annotation", "other": "annotation"}
		config.Labels = map[string]string{"app": "bench", "io.kubernetes.pod.name": "p", "io.kubernetes.pod.namespace": "default"}
		r, err := h.RunPodSandbox(ctx, &cri.RunPodSandboxRequest{Config: config})
		if err != nil {
			b.Fatal(err)
		}
		c, err := h.CreateContainer(ctx, &cri.CreateContainerRequest{PodSandboxId: r.PodSandboxId, Config: &cri.ContainerConfig{Metadata: &cri.ContainerMetadata{Name: "c"}}})
		if err != nil {
			b.Fatal(err)
		}
		id = c.ContainerId
	}
	direct := dialKubelet(b, h.config.Primary)
	defer func() { _ = direct.Close() }()
	for _, call := range []struct {
		name string
		do   func(cri.RuntimeServiceClient) error
	}{
		{"Version", func(c cri.RuntimeServiceClient) error {
			_, err := c.Version(ctx, &cri.VersionRequest{})
			return err
		}},
		{"ContainerStatus", func(c cri.RuntimeServiceClient) error {
			_, err := c.ContainerStatus(ctx, &cri.ContainerStatusRequest{ContainerId: id})
			return err
		}},
		{"ListPodSandbox", func(c cri.RuntimeServiceClient) error {
			_, err := c.ListPodSandbox(ctx, &cri.ListPodSandboxRequest{})
			return err
		}},
		{"Status", func(c cri.RuntimeServiceClient) error {
			_, err := c.Status(ctx, &cri.StatusRequest{})
			return err
		}},
	} {
		b.Run(call.name, func(b *testing.B) {
			var with, without []time.Duration
			plain := cri.NewRuntimeServiceClient(direct)
			for b.Loop() {
				for _, side := range []struct {
					c   cri.RuntimeServiceClient
					all *[]time.Duration
				}{{plain, &without}, {h.RuntimeServiceClient, &with}} {
					start := time.Now()
					if err := call.do(side.c); err != nil {
						b.Fatal(err)
					}
					*side.all = append(*side.all, time.Since(start))
				}
			}
			slices.Sort(with)
			slices.Sort(without)
			at := func(all []time.Duration, q float64) float64 {
				return float64(all[int(q*float64(len(all)-1))]) / float64(time.Microsecond)
			}
			b.ReportMetric(at(with, .5)-at(without, .5), "µs-added-p50")
			b.ReportMetric(at(with, .99)-at(without, .99), "µs-added-p99")
			b.ReportMetric(at(without, .99), "µs-direct-p99")
			if added := at(with, .99) - at(without, .99); added > mostAdded && len(with) >= 1000 {
				b.Errorf("%.0f µs are added at the 99th percentile: may be %d", added, mostAdded)
			}
		})
	}
}
