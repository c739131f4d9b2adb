package scheduler

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/dialect/kai"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/engine/plugins/proportion"
	"github.com/muster-scheduler/muster/internal/engine/recorder"
)

func counter(c prometheus.Collector) float64 { return testutil.ToFloat64(c) }

func containsWord(line, word string) bool { return slices.Contains(strings.Fields(line), word) }

// TestMetricsNamespace: --metrics-namespace is what the names of KAI's metrics begin with; the names are KAI's.
func TestMetricsNamespace(t *testing.T) {
	t.Parallel()
	for _, namespace := range []string{"kai", "other"} {
		r := prometheus.NewPedanticRegistry()
		m, err := NewMetrics(namespace, "default", r)
		if err != nil {
			t.Fatal(err)
		}
		store := cluster.NewStore(cluster.Options{})
		store.Apply(gang("g", "p", "q")...)
		store.Apply(cluster.QueueState{Name: "q", UID: "q", Display: "Team Q"})
		store.Apply(cluster.UsageState{Queues: map[string][]cluster.Quantity{"q": {{Name: "gpu", Value: 250_000}, {Name: "memory", Value: 1_500_000}}}})
		snap := store.Snapshot(cluster.Instant{})
		at := time.Unix(0, 0).Add(20 * time.Millisecond)
		plan := &engine.Plan{Action: "allocate", Bundles: []engine.Bundle{
			{Gang: kai.GangKey("a", "g"), Intents: []engine.Intent{{Verb: engine.Bind, UID: "u-p"}, {Verb: engine.Bind, UID: "u-q"}}},
			{Gang: kai.GangKey("a", "g"), Intents: []engine.Intent{{Verb: engine.Nominate, UID: "u-q"}}},
		}}
		m.plan(plan, snap, gangsOf(plan, store, snap), at)
		m.Bound(12 * time.Millisecond)
		share := engine.QueueTrace{Name: "q", FairShare: cluster.Resources{1500, 2e9, 3000}}
		wait := engine.GangTrace{Diagnosis: &engine.Diagnosis{Verdict: engine.Verdict{Code: engine.No, Reason: proportion.ReasonOverLimit}}}
		m.run(snap, &engine.Result{Trace: engine.Trace{Queues: []engine.QueueTrace{share, {Name: "gone", FairShare: cluster.Resources{1}}}, Gangs: []engine.GangTrace{wait}}}, time.Second)
		m.run(snap, &engine.Result{Trace: engine.Trace{
			Queues: []engine.QueueTrace{share, {Name: "gone"}}, Fragmentation: recorder.Fragmentation{Free: 12_500, Unusable: 1250},
		}, Stats: engine.Stats{Considered: 4}}, 2500*time.Microsecond)

		queue := `{queue_display_name="Team Q",queue_metadata_name="q",queue_name="q"}`
		want := strings.ReplaceAll(`
# HELP NS_e2e_scheduling_latency_milliseconds Duration of the last run that decided, from its snapshot to its last plan, in milliseconds.
# TYPE NS_e2e_scheduling_latency_milliseconds gauge
NS_e2e_scheduling_latency_milliseconds 2.5
# HELP NS_podgroups_scheduled_by_action Gangs given room, by action.
# TYPE NS_podgroups_scheduled_by_action counter
NS_podgroups_scheduled_by_action{action="allocate"} 1
# HELP NS_queue_fair_share_cpu_cores Fair share of CPU cores.
# TYPE NS_queue_fair_share_cpu_cores gauge
NS_queue_fair_share_cpu_coresQUEUE 1.5
# HELP NS_queue_fair_share_gpu Fair share of GPUs.
# TYPE NS_queue_fair_share_gpu gauge
NS_queue_fair_share_gpuQUEUE 3
# HELP NS_queue_fair_share_memory_gb Fair share of memory in 10^9 bytes.
# TYPE NS_queue_fair_share_memory_gb gauge
NS_queue_fair_share_memory_gbQUEUE 2
# HELP NS_queue_gpu_usage GPUs the queue used lately, decayed, as a part of the cluster: 1 is all of it. Only with a history of usage.
# TYPE NS_queue_gpu_usage gauge
NS_queue_gpu_usageQUEUE 0.25
# HELP NS_queue_memory_usage Memory the queue used lately, decayed, as a part of the cluster: 1 is all of it. Only with a history of usage.
# TYPE NS_queue_memory_usage gauge
NS_queue_memory_usageQUEUE 1.5
# HELP muster_gangs_waiting Gangs that wait, by reason, after the last run.
# TYPE muster_gangs_waiting gauge
muster_gangs_waiting{reason="OverLimit"} 0
# HELP muster_gpus_free GPUs that are free on nodes that take pods, free parts of shared ones included, before the last run.
# TYPE muster_gpus_free gauge
muster_gpus_free 12.5
# HELP muster_gpus_unusable The part of muster_gpus_free that the next pod could not use, on average over the kinds of work in the cluster: the expected fragmentation.
# TYPE muster_gpus_unusable gauge
muster_gpus_unusable 1.25
# HELP muster_scheduler_runs_total Runs of the engine.
# TYPE muster_scheduler_runs_total counter
muster_scheduler_runs_total 2
`, "NS", namespace)
		want = strings.ReplaceAll(want, "QUEUE", queue)
		if err := testutil.GatherAndCompare(r, strings.NewReader(want), namespace+"_e2e_scheduling_latency_milliseconds", namespace+"_podgroups_scheduled_by_action",
			namespace+"_queue_fair_share_cpu_cores", namespace+"_queue_fair_share_gpu", namespace+"_queue_fair_share_memory_gb",
			namespace+"_queue_gpu_usage", namespace+"_queue_memory_usage", "muster_gangs_waiting", "muster_gpus_free", "muster_gpus_unusable",
			"muster_scheduler_runs_total"); err != nil {
			t.Error(err)
		}
		families, err := r.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for name, samples := range map[string]uint64{"_task_scheduling_latency_milliseconds": 2, "_task_bind_latency_milliseconds": 1} {
			i := 0
			for i < len(families) && families[i].GetName() != namespace+name {
				i++
			}
			if i == len(families) {
				t.Errorf("no %s%s", namespace, name)
				continue
			}
			if h := families[i].GetMetric()[0].GetHistogram(); h.GetSampleCount() != samples || len(h.GetBucket()) != 10 || h.GetBucket()[0].GetUpperBound() != 5 {
				t.Errorf("%s: %v", name, h)
			}
		}
		if _, err := NewMetrics(namespace, "default", r); err == nil {
			t.Error("registered twice without an error")
		}
	}
}
