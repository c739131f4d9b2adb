package roles

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/muster-scheduler/muster/docs/ledgers"
	"github.com/muster-scheduler/muster/docs/operations"
	"github.com/muster-scheduler/muster/internal/controllers/vcqueue"
	"github.com/muster-scheduler/muster/internal/kube/control"
	"github.com/muster-scheduler/muster/internal/scheduler"
)

// volcanosMetrics are the names that Volcano's programs serve, typed from its description; a word in braces stands for each of its parts.
const volcanosMetrics = `e2e_scheduling_latency_milliseconds open_session_duration_milliseconds e2e_job_scheduling_latency_milliseconds e2e_job_scheduling_duration e2e_job_scheduling_start_time
e2e_job_scheduling_last_time plugin_scheduling_latency_milliseconds action_scheduling_latency_milliseconds task_scheduling_latency_milliseconds scheduling_stage_duration_milliseconds schedule_attempts_total
pod_preemption_victims total_preemption_attempts eviction_transactions_total unschedule_task_count unschedule_job_count goroutines job_share job_retry_counts namespace_share namespace_weight
namespace_weighted_share queue_{allocated,request,deserved,capacity,real_capacity,inqueue}_milli_cpu queue_{allocated,request,deserved,capacity,real_capacity,inqueue}_memory_bytes
queue_{allocated,request,deserved,capacity,real_capacity,inqueue}_scalar_resources queue_share queue_weight queue_overused vgpu_device_* job_completed_phase_count job_failed_phase_count
jobflow_succeed_phase_count jobflow_failed_phase_count controller_job_to_pod_creation_latency_milliseconds queue_pod_group_{inqueue,pending,running,unknown,completed}_count`

// TestVolcanoMetricNames: each of Volcano's metrics is served, with the labels of the page, or the ledger says why not; and none is both, or of another name.
func TestVolcanoMetricNames(t *testing.T) {
	t.Parallel()
	r := prometheus.NewRegistry()
	m, err := scheduler.NewMetrics("kai", "default", prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	if err := m.ServeVolcano(r); err != nil {
		t.Fatal(err)
	}
	queues := prometheus.NewRegistry()
	if _, err := vcqueue.New(control.Shell{Registry: queues}, 1); err != nil {
		t.Fatal(err)
	}
	served := described(t, r)
	for name, labels := range described(t, queues) {
		if strings.HasPrefix(name, "volcano_") {
			served[name] = labels
		}
	}
	rows, err := operations.VolcanoMetrics()
	if err != nil {
		t.Fatal(err)
	}
	listed := map[string][]string{}
	for _, m := range rows {
		listed[m.Name] = append([]string{}, slices.Sorted(slices.Values(m.Labels))...)
	}
	if d := cmp.Diff(listed, served); d != "" {
		t.Errorf("docs/operations/volcano.md (-) and what is served (+), by name, with labels:\n%s", d)
	}
	all, err := ledgers.Volcano()
	if err != nil {
		t.Fatal(err)
	}
	left := map[string]bool{}
	for _, row := range all["metrics"] {
		if !strings.HasPrefix(row.What, "Not served are") {
			continue
		}
		sentence, _, _ := strings.Cut(row.What, ";")
		sentence, _, _ = strings.Cut(sentence, ", which")
		for i, word := range strings.Split(sentence, "`") {
			if i%2 == 1 {
				left[word] = true
			}
		}
	}
	for _, name := range volcanosNames() {
		if _, ok := served[name]; ok == left[name] {
			t.Errorf("%s: served %t, in the ledger as not served %t", name, ok, left[name])
		}
		delete(served, name)
		delete(left, name)
	}
	if len(served)+len(left) > 0 {
		t.Errorf("Volcano has none of these: served %v, in the ledger %v", served, left)
	}
}

// volcanosNames are the names one by one.
func volcanosNames() (out []string) {
	for _, word := range strings.Fields(volcanosMetrics) {
		before, rest, ok := strings.Cut(word, "{")
		if !ok {
			out = append(out, "volcano_"+word)
			continue
		}
		parts, after, _ := strings.Cut(rest, "}")
		for _, part := range strings.Split(parts, ",") {
			out = append(out, "volcano_"+before+part+after)
		}
	}
	return out
}
