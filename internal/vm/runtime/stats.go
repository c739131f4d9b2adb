package runtime

import (
	"context"
	"time"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// MachineStats are the hypervisor's figures of one machine: CPU time since its start in nanoseconds, resident memory in bytes.
type MachineStats struct{ CPUTime, Resident uint64 }

// usage is a container's CPU time as it was seen last, for its rate.
type usage struct {
	at    time.Time
	cpu   uint64
	cores uint64 // nanoseconds of CPU a second, over the time before
}

// leastWindow is what a rate is measured over at least; who asks more often gets the same.
const leastWindow = time.Second

func value(v uint64) *runtimeapi.UInt64Value { return &runtimeapi.UInt64Value{Value: v} }

// stats are of the given containers. One that does not run, or cannot be asked, has no figures.
func (s *Server) stats(ctx context.Context, cs []*containerState) ([]*runtimeapi.ContainerStats, error) {
	if len(cs) == 0 {
		return nil, nil
	}
	var machines map[string]MachineStats
	if err := s.do(ctx, "statistics", func(ctx context.Context) (err error) {
		machines, err = s.Hypervisor.Stats(ctx)
		return err
	}); err != nil {
		return nil, err
	}
	ids := make([]string, 0, len(cs))
	for _, c := range cs {
		ids = append(ids, c.rec.Load().ID)
	}
	disks := s.Volumes.Usage(ctx, ids)
	where, err := s.Images.Usage()
	if err != nil {
		return nil, err
	}
	now := s.Clock()
	out := make([]*runtimeapi.ContainerStats, 0, len(cs))
	for _, c := range cs {
		r := c.rec.Load()
		st := &runtimeapi.ContainerStats{Attributes: &runtimeapi.ContainerAttributes{
			Id: r.ID, Metadata: &runtimeapi.ContainerMetadata{Name: r.Name, Attempt: r.Attempt}, Labels: r.Labels, Annotations: r.Annotations,
		}}
		if m, ok := machines[r.UUID]; ok && r.ran() {
			st.Cpu = &runtimeapi.CpuUsage{Timestamp: now.UnixNano(), UsageCoreNanoSeconds: value(m.CPUTime)}
			if cores, ok := c.rate(now, m.CPUTime); ok {
				st.Cpu.UsageNanoCores = value(cores)
			}
			// The host's pages that the machine has are all in use for it: none can be reclaimed but by its balloon.
			st.Memory = &runtimeapi.MemoryUsage{
				Timestamp: now.UnixNano(), WorkingSetBytes: value(m.Resident), UsageBytes: value(m.Resident), RssBytes: value(m.Resident),
			}
			if most := uint64(max(r.Memory, 0)); most > m.Resident {
				st.Memory.AvailableBytes = value(most - m.Resident)
			}
		}
		if bytes, ok := disks[r.ID]; ok {
			st.WritableLayer = &runtimeapi.FilesystemUsage{
				Timestamp: now.UnixNano(), FsId: &runtimeapi.FilesystemIdentifier{Mountpoint: where.Mountpoint}, UsedBytes: value(bytes), InodesUsed: value(1),
			}
		}
		out = append(out, st)
	}
	return out, nil
}

// rate gives nanoseconds of CPU a second since the time before; false while there is none.
func (c *containerState) rate(now time.Time, cpu uint64) (uint64, bool) {
	was := c.last.Load()
	if was == nil || cpu < was.cpu {
		c.last.Store(&usage{at: now, cpu: cpu})
		return 0, false
	}
	window := now.Sub(was.at)
	if window < leastWindow {
		return was.cores, was.cores > 0
	}
	cores := uint64(float64(cpu-was.cpu) / window.Seconds())
	c.last.Store(&usage{at: now, cpu: cpu, cores: cores})
	return cores, true
}

// ContainerStats are of one container.
func (s *Server) ContainerStats(ctx context.Context, r *runtimeapi.ContainerStatsRequest) (*runtimeapi.ContainerStatsResponse, error) {
	c := s.container(r.GetContainerId())
	if c == nil {
		return nil, noContainer(r.GetContainerId())
	}
	out, err := s.stats(ctx, []*containerState{c})
	if err != nil {
		return nil, c.problem(err)
	}
	return &runtimeapi.ContainerStatsResponse{Stats: out[0]}, nil
}

func (s *Server) listStats(ctx context.Context, f *runtimeapi.ContainerStatsFilter) ([]*runtimeapi.ContainerStats, error) {
	return s.stats(ctx, s.made(containerFilter(f.GetId(), f.GetPodSandboxId(), nil, f.GetLabelSelector())))
}

// ListContainerStats are of many.
func (s *Server) ListContainerStats(ctx context.Context, r *runtimeapi.ListContainerStatsRequest) (*runtimeapi.ListContainerStatsResponse, error) {
	out, err := s.listStats(ctx, r.GetFilter())
	if err != nil {
		return nil, err
	}
	return &runtimeapi.ListContainerStatsResponse{Stats: out}, nil
}

// StreamContainerStats is ListContainerStats in pieces.
func (s *Server) StreamContainerStats(r *runtimeapi.StreamContainerStatsRequest, stream grpc.ServerStreamingServer[runtimeapi.StreamContainerStatsResponse]) error {
	out, err := s.listStats(stream.Context(), r.GetFilter())
	if err != nil {
		return err
	}
	return sendChunks(out, stream, func(p []*runtimeapi.ContainerStats) *runtimeapi.StreamContainerStatsResponse {
		return &runtimeapi.StreamContainerStatsResponse{ContainerStats: p}
	})
}

// podStats are of the given sandboxes: what their machines use. Network figures are not known: the cards are no links of the node.
func (s *Server) podStats(ctx context.Context, boxes []*Sandbox) ([]*runtimeapi.PodSandboxStats, error) {
	want := map[string]bool{}
	for _, b := range boxes {
		want[b.ID] = true
	}
	all, err := s.stats(ctx, s.made(func(c *Container) bool { return want[c.SandboxID] }))
	if err != nil {
		return nil, err
	}
	byBox := map[string][]*runtimeapi.ContainerStats{}
	for _, st := range all {
		if c := s.container(st.GetAttributes().GetId()); c != nil {
			id := c.rec.Load().SandboxID
			byBox[id] = append(byBox[id], st)
		}
	}
	now := s.Clock().UnixNano()
	var out []*runtimeapi.PodSandboxStats
	for _, b := range boxes {
		linux := &runtimeapi.LinuxPodSandboxStats{Containers: byBox[b.ID]}
		var cpu, cores, memory uint64
		for _, st := range byBox[b.ID] {
			cpu += st.GetCpu().GetUsageCoreNanoSeconds().GetValue()
			cores += st.GetCpu().GetUsageNanoCores().GetValue()
			memory += st.GetMemory().GetWorkingSetBytes().GetValue()
		}
		linux.Cpu = &runtimeapi.CpuUsage{Timestamp: now, UsageCoreNanoSeconds: value(cpu), UsageNanoCores: value(cores)}
		linux.Memory = &runtimeapi.MemoryUsage{Timestamp: now, WorkingSetBytes: value(memory), UsageBytes: value(memory), RssBytes: value(memory)}
		out = append(out, &runtimeapi.PodSandboxStats{
			Attributes: &runtimeapi.PodSandboxAttributes{Id: b.ID, Metadata: b.Config.GetMetadata(), Labels: b.Config.GetLabels(), Annotations: b.Config.GetAnnotations()},
			Linux:      linux,
		})
	}
	return out, nil
}

// PodSandboxStats are of one sandbox.
func (s *Server) PodSandboxStats(ctx context.Context, r *runtimeapi.PodSandboxStatsRequest) (*runtimeapi.PodSandboxStatsResponse, error) {
	box := s.sandbox(r.GetPodSandboxId())
	if box == nil {
		return nil, noSandbox(r.GetPodSandboxId())
	}
	out, err := s.podStats(ctx, []*Sandbox{box.rec.Load()})
	if err != nil {
		return nil, err
	}
	return &runtimeapi.PodSandboxStatsResponse{Stats: out[0]}, nil
}

func (s *Server) listPodStats(ctx context.Context, f *runtimeapi.PodSandboxStatsFilter) ([]*runtimeapi.PodSandboxStats, error) {
	return s.podStats(ctx, s.boxes(sandboxFilter(&runtimeapi.PodSandboxFilter{Id: f.GetId(), LabelSelector: f.GetLabelSelector()})))
}

// ListPodSandboxStats are of many.
func (s *Server) ListPodSandboxStats(ctx context.Context, r *runtimeapi.ListPodSandboxStatsRequest) (*runtimeapi.ListPodSandboxStatsResponse, error) {
	out, err := s.listPodStats(ctx, r.GetFilter())
	if err != nil {
		return nil, err
	}
	return &runtimeapi.ListPodSandboxStatsResponse{Stats: out}, nil
}

// StreamPodSandboxStats is ListPodSandboxStats in pieces.
func (s *Server) StreamPodSandboxStats(r *runtimeapi.StreamPodSandboxStatsRequest, stream grpc.ServerStreamingServer[runtimeapi.StreamPodSandboxStatsResponse]) error {
	out, err := s.listPodStats(stream.Context(), r.GetFilter())
	if err != nil {
		return err
	}
	return sendChunks(out, stream, func(p []*runtimeapi.PodSandboxStats) *runtimeapi.StreamPodSandboxStatsResponse {
		return &runtimeapi.StreamPodSandboxStatsResponse{PodSandboxStats: p}
	})
}

// metric is one of cAdvisor's, by its name there, that makes sense of a machine.
type metric struct {
	name, help string
	kind       runtimeapi.MetricType
	of         func(*runtimeapi.ContainerStats) *runtimeapi.UInt64Value
}

// metrics are cAdvisor's of a container that are known of a machine. CRI's values are whole numbers: seconds of CPU are cut.
func metrics() []metric {
	return []metric{
		{"container_cpu_usage_seconds_total", "CPU time of the machine in seconds", runtimeapi.MetricType_COUNTER, func(st *runtimeapi.ContainerStats) *runtimeapi.UInt64Value {
			if st.GetCpu() == nil {
				return nil
			}
			return value(st.GetCpu().GetUsageCoreNanoSeconds().GetValue() / uint64(time.Second))
		}},
		{"container_memory_working_set_bytes", "memory of the host that the machine has", runtimeapi.MetricType_GAUGE, func(st *runtimeapi.ContainerStats) *runtimeapi.UInt64Value {
			return st.GetMemory().GetWorkingSetBytes()
		}},
		{"container_fs_usage_bytes", "space that the machine's own disks take", runtimeapi.MetricType_GAUGE, func(st *runtimeapi.ContainerStats) *runtimeapi.UInt64Value {
			return st.GetWritableLayer().GetUsedBytes()
		}},
	}
}

// ListMetricDescriptors names the metrics there are.
func (*Server) ListMetricDescriptors(context.Context, *runtimeapi.ListMetricDescriptorsRequest) (*runtimeapi.ListMetricDescriptorsResponse, error) {
	out := &runtimeapi.ListMetricDescriptorsResponse{}
	for _, m := range metrics() {
		out.Descriptors = append(out.Descriptors, &runtimeapi.MetricDescriptor{Name: m.name, Help: m.help, LabelKeys: []string{"id", "name"}})
	}
	return out, nil
}

func (s *Server) podMetrics(ctx context.Context) ([]*runtimeapi.PodSandboxMetrics, error) {
	pods, err := s.listPodStats(ctx, nil)
	if err != nil {
		return nil, err
	}
	now := s.Clock().UnixNano()
	var out []*runtimeapi.PodSandboxMetrics
	for _, p := range pods {
		pod := &runtimeapi.PodSandboxMetrics{PodSandboxId: p.GetAttributes().GetId()}
		for _, st := range p.GetLinux().GetContainers() {
			a := st.GetAttributes()
			c := &runtimeapi.ContainerMetrics{ContainerId: a.GetId()}
			for _, m := range metrics() {
				if v := m.of(st); v != nil {
					c.Metrics = append(c.Metrics, &runtimeapi.Metric{Name: m.name, Timestamp: now, MetricType: m.kind, LabelValues: []string{a.GetId(), a.GetMetadata().GetName()}, Value: v})
				}
			}
			pod.ContainerMetrics = append(pod.ContainerMetrics, c)
		}
		out = append(out, pod)
	}
	return out, nil
}

// ListPodSandboxMetrics gives their values.
func (s *Server) ListPodSandboxMetrics(ctx context.Context, _ *runtimeapi.ListPodSandboxMetricsRequest) (*runtimeapi.ListPodSandboxMetricsResponse, error) {
	out, err := s.podMetrics(ctx)
	if err != nil {
		return nil, err
	}
	return &runtimeapi.ListPodSandboxMetricsResponse{PodMetrics: out}, nil
}

// StreamPodSandboxMetrics is ListPodSandboxMetrics in pieces.
func (s *Server) StreamPodSandboxMetrics(_ *runtimeapi.StreamPodSandboxMetricsRequest, stream grpc.ServerStreamingServer[runtimeapi.StreamPodSandboxMetricsResponse]) error {
	out, err := s.podMetrics(stream.Context())
	if err != nil {
		return err
	}
	return sendChunks(out, stream, func(p []*runtimeapi.PodSandboxMetrics) *runtimeapi.StreamPodSandboxMetricsResponse {
		return &runtimeapi.StreamPodSandboxMetricsResponse{PodSandboxMetrics: p}
	})
}
