package queue

import (
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/spf13/pflag"

	v2 "github.com/muster-scheduler/muster/api/scheduling/v2"
)

func TestMetricsCarryKAIsNames(t *testing.T) {
	t.Parallel()
	o := DefaultOptions()
	fs := pflag.NewFlagSet("queue", pflag.ContinueOnError)
	o.Bind(fs)
	if err := fs.Parse([]string{"--queue-label-to-metric-label=example.com/site=site,tier=tier", "--queue-label-to-default-metric-value=tier=none"}); err != nil {
		t.Fatal(err)
	}
	extra, err := o.mapped()
	if err != nil {
		t.Fatal(err)
	}
	c := newCluster(t)
	c.put(makeQueue("dept", ""))
	c.put(makeQueue("team", "dept", func(q *v2.Queue) {
		q.Labels = map[string]string{"example.com/site": "north"}
		q.Spec.DisplayName = "The Team"
		q.Spec.Resources = &v2.QueueResources{GPU: v2.QueueResource{Quota: 2.5}, CPU: v2.QueueResource{Quota: 1500}, Memory: v2.QueueResource{Quota: 2000}}
	}))
	pg := makeGroup("g", "team", 3)
	// Three devices, in all the ways there are to hold them, whatever the order of the map.
	pg.Status.ResourcesStatus.Allocated = list("nvidia.com/gpu", "500m", "amd.com/gpu", "500m", "gpu.example.com", "1", "nvidia.com/mig-1g.5gb", "1",
		"run.ai/gpu.memory", "5000", "cpu", "1234567u", "memory", "1Gi")
	pg.Status.ResourcesStatus.Requested = list("nvidia.com/gpu", "4", "cpu", "2", "memory", "2Gi")
	c.note(c.aggregator.groupChanged(pg))
	c.settle()

	var mu sync.Mutex
	m := newMetrics(&mu, c.aggregator, o.MetricsNamespace, extra)
	want := `
# HELP kai_queue_allocated_cpu_cores CPU that the queue and the queues below it hold, in cores.
# TYPE kai_queue_allocated_cpu_cores gauge
kai_queue_allocated_cpu_cores{queue_display_name="",queue_metadata_name="dept",queue_name="dept",site="",tier="none"} 1.2346
kai_queue_allocated_cpu_cores{queue_display_name="The Team",queue_metadata_name="team",queue_name="team",site="north",tier="none"} 1.2346
# HELP kai_queue_allocated_gpus GPUs that the queue and the queues below it hold, in devices.
# TYPE kai_queue_allocated_gpus gauge
kai_queue_allocated_gpus{queue_display_name="",queue_metadata_name="dept",queue_name="dept",site="",tier="none"} 3
kai_queue_allocated_gpus{queue_display_name="The Team",queue_metadata_name="team",queue_name="team",site="north",tier="none"} 3
# HELP kai_queue_allocated_memory_bytes Memory that the queue and the queues below it hold, in bytes.
# TYPE kai_queue_allocated_memory_bytes gauge
kai_queue_allocated_memory_bytes{queue_display_name="",queue_metadata_name="dept",queue_name="dept",site="",tier="none"} 1.073741824e+09
kai_queue_allocated_memory_bytes{queue_display_name="The Team",queue_metadata_name="team",queue_name="team",site="north",tier="none"} 1.073741824e+09
# HELP kai_queue_deserved_gpus The queue's GPU quota in devices; -1 is without bound.
# TYPE kai_queue_deserved_gpus gauge
kai_queue_deserved_gpus{queue_display_name="",queue_metadata_name="dept",queue_name="dept",site="",tier="none"} -1
kai_queue_deserved_gpus{queue_display_name="The Team",queue_metadata_name="team",queue_name="team",site="north",tier="none"} 2.5
# HELP kai_queue_info A queue; always 1.
# TYPE kai_queue_info gauge
kai_queue_info{queue_display_name="",queue_metadata_name="dept",queue_name="dept",site="",tier="none"} 1
kai_queue_info{queue_display_name="The Team",queue_metadata_name="team",queue_name="team",site="north",tier="none"} 1
# HELP kai_queue_quota_cpu_cores The queue's CPU quota in cores; -1 is without bound.
# TYPE kai_queue_quota_cpu_cores gauge
kai_queue_quota_cpu_cores{queue_display_name="",queue_metadata_name="dept",queue_name="dept",site="",tier="none"} -1
kai_queue_quota_cpu_cores{queue_display_name="The Team",queue_metadata_name="team",queue_name="team",site="north",tier="none"} 1.5
# HELP kai_queue_quota_memory_bytes The queue's memory quota in bytes; -1 is without bound.
# TYPE kai_queue_quota_memory_bytes gauge
kai_queue_quota_memory_bytes{queue_display_name="",queue_metadata_name="dept",queue_name="dept",site="",tier="none"} -1
kai_queue_quota_memory_bytes{queue_display_name="The Team",queue_metadata_name="team",queue_name="team",site="north",tier="none"} 2e+09
# HELP muster_queue_condition Whether a condition of the queue is true (1) or not (0).
# TYPE muster_queue_condition gauge
muster_queue_condition{condition="Orphan",queue_display_name="",queue_metadata_name="dept",queue_name="dept",site="",tier="none"} 0
muster_queue_condition{condition="Orphan",queue_display_name="The Team",queue_metadata_name="team",queue_name="team",site="north",tier="none"} 0
muster_queue_condition{condition="OverQuota",queue_display_name="",queue_metadata_name="dept",queue_name="dept",site="",tier="none"} 0
muster_queue_condition{condition="OverQuota",queue_display_name="The Team",queue_metadata_name="team",queue_name="team",site="north",tier="none"} 1
# HELP muster_queue_limit_gpus The queue's GPU limit in devices; -1 is without bound.
# TYPE muster_queue_limit_gpus gauge
muster_queue_limit_gpus{queue_display_name="",queue_metadata_name="dept",queue_name="dept",site="",tier="none"} -1
muster_queue_limit_gpus{queue_display_name="The Team",queue_metadata_name="team",queue_name="team",site="north",tier="none"} 0
# HELP muster_queue_requested_cpu_cores CPU that the queue and the queues below it ask for, what they hold included, in cores.
# TYPE muster_queue_requested_cpu_cores gauge
muster_queue_requested_cpu_cores{queue_display_name="",queue_metadata_name="dept",queue_name="dept",site="",tier="none"} 2
muster_queue_requested_cpu_cores{queue_display_name="The Team",queue_metadata_name="team",queue_name="team",site="north",tier="none"} 2
# HELP muster_queue_requested_gpus GPUs that the queue and the queues below it ask for, what they hold included, in devices.
# TYPE muster_queue_requested_gpus gauge
muster_queue_requested_gpus{queue_display_name="",queue_metadata_name="dept",queue_name="dept",site="",tier="none"} 4
muster_queue_requested_gpus{queue_display_name="The Team",queue_metadata_name="team",queue_name="team",site="north",tier="none"} 4
# HELP muster_queue_requested_memory_bytes Memory that the queue and the queues below it ask for, what they hold included, in bytes.
# TYPE muster_queue_requested_memory_bytes gauge
muster_queue_requested_memory_bytes{queue_display_name="",queue_metadata_name="dept",queue_name="dept",site="",tier="none"} 2.147483648e+09
muster_queue_requested_memory_bytes{queue_display_name="The Team",queue_metadata_name="team",queue_name="team",site="north",tier="none"} 2.147483648e+09
`
	if err := testutil.CollectAndCompare(m, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
	if err := prometheus.NewPedanticRegistry().Register(m); err != nil {
		t.Error(err)
	}
	c.drop("team")
	c.settle()
	if n := testutil.CollectAndCount(m, "kai_queue_info"); n != 1 {
		t.Errorf("%d queues after one was deleted", n)
	}
}

func TestBadOptionsAreNamed(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		options Options
		want    string
	}{
		"namespace":    {Options{MetricsNamespace: "my-kai"}, `queue role: --metrics-namespace="my-kai": it must consist of letters, digits and _`},
		"no pair":      {Options{LabelToMetricLabel: "site"}, `queue role: --queue-label-to-metric-label: "site" is not of the form key=value`},
		"no label":     {Options{LabelToMetricLabel: "site=a-b"}, `queue role: --queue-label-to-metric-label: "a-b" is no name of a metric label`},
		"reserved":     {Options{LabelToMetricLabel: "site=queue_name"}, `queue role: --queue-label-to-metric-label: metric label queue_name is given twice`},
		"twice":        {Options{LabelToMetricLabel: "a=x,a=y"}, `queue role: --queue-label-to-metric-label: key a is given twice`},
		"no default":   {Options{LabelToDefaultMetricValue: "=x"}, `queue role: --queue-label-to-default-metric-value: "=x" is not of the form key=value`},
		"nothing much": {Options{LabelToMetricLabel: " a=x , "}, ""},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := ""
			if _, err := tc.options.mapped(); err != nil {
				got = err.Error()
			}
			if d := cmp.Diff(tc.want, got); d != "" {
				t.Error(d)
			}
		})
	}
}
