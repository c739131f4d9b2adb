package scheduler

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/engine/plugins/proportion"
	"github.com/muster-scheduler/muster/internal/engine/recorder"
	"github.com/muster-scheduler/muster/internal/kube/apply"
)

// TestVolcanoMetrics: what Volcano's dashboards ask for, with values worked out by hand; of what has gone there is no series left; KAI's gangs and queues are no part of it.
func TestVolcanoMetrics(t *testing.T) {
	t.Parallel()
	r := prometheus.NewPedanticRegistry()
	m, err := NewMetrics("kai", "default", prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	if err := m.ServeVolcano(r); err != nil {
		t.Fatal(err)
	}
	store := cluster.NewStore(cluster.Options{})
	store.Apply(cluster.QueueState{Name: "volcano:train", UID: "q", Weight: []cluster.Quantity{{Name: "cpu", Value: 3000}}})
	store.Apply(cluster.GangState{Key: cluster.Key{Face: "volcano", Namespace: "a", Name: "g"}, UID: "u", Queue: "volcano:train"})
	snap := store.Snapshot(cluster.Instant{})
	key := cluster.Key{Face: "volcano", Namespace: "a", Name: "g"}
	id, ok := store.GangID(key)
	if !ok {
		t.Fatal("there is no gang")
	}
	no := &engine.Diagnosis{Verdict: engine.Verdict{Code: engine.No, Reason: proportion.ReasonOverLimit}}
	train := engine.QueueTrace{
		Name: "volcano:train", Allocated: cluster.Resources{1500, 2e9, 3000, 4}, Requested: cluster.Resources{2500, 3e9, 5000, 6}, Quota: cluster.Resources{1000},
		Limit: cluster.Resources{8000, cluster.Unlimited, 16_000, cluster.Unlimited},
	}
	gone := engine.QueueTrace{Name: "volcano:gone", Allocated: cluster.Resources{1}}
	m.run(snap, &engine.Result{Trace: engine.Trace{
		Queues: []engine.QueueTrace{train, gone, {Name: "kais", Allocated: cluster.Resources{7}}},
		Gangs:  []engine.GangTrace{{Gang: key, ID: id, Diagnosis: no}, {Gang: cluster.Key{Face: "volcano", Namespace: "a", Name: "gone"}, ID: id, Diagnosis: no}, {Gang: cluster.Key{Namespace: "a", Name: "k"}, ID: id, Diagnosis: no}},
	}, Stats: engine.Stats{Actions: []recorder.ActionStats{{Action: "preempt", Searches: 2}, {Action: "reclaim", Searches: 1}}}}, 7*time.Millisecond)
	m.run(snap, &engine.Result{Trace: engine.Trace{Queues: []engine.QueueTrace{train}, Gangs: []engine.GangTrace{{Gang: key, ID: id, Diagnosis: no}}}}, 3*time.Millisecond)
	m.volcano.starts(snap.Gang(id), time.Unix(0, 0).Add(40*time.Millisecond))
	m.volcano.starts(&cluster.Gang{GangState: cluster.GangState{Key: key}, ActivePods: 1}, time.Unix(9, 0))
	m.volcano.starts(&cluster.Gang{GangState: cluster.GangState{Key: cluster.Key{Name: "kais"}}}, time.Unix(9, 0))
	m.volcano.took(engine.Stage{Kind: engine.StageOpen}, 6*time.Millisecond)
	m.volcano.took(engine.Stage{Kind: engine.StageAction, Name: "allocate"}, 11*time.Millisecond)
	m.volcano.took(engine.Stage{Kind: engine.StageOpenPlugin, Name: "drf"}, time.Millisecond)
	m.volcano.took(engine.Stage{Kind: engine.StageClosePlugin, Name: "drf"}, 2*time.Millisecond)
	m.volcano.evicted(&apply.Outcome{Bundle: engine.Bundle{Intents: []engine.Intent{
		{Verb: engine.Evict, UID: "1", Gang: key}, {Verb: engine.Evict, UID: "2", Gang: key}, {Verb: engine.Evict, UID: "3", Gang: key}, {Verb: engine.Evict, UID: "4"}, {Verb: engine.Bind, UID: "5", Gang: key},
	}}, Evicted: map[string]bool{"1": true, "2": true, "4": true, "5": true}})

	got := map[string]float64{}
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, s := range f.GetMetric() {
			var labels []string
			for _, l := range s.GetLabel() {
				labels = append(labels, l.GetName()+"="+l.GetValue())
			}
			name := strings.TrimSuffix(f.GetName()+" "+strings.Join(labels, " "), " ")
			if h := s.GetHistogram(); h != nil {
				got[name] = h.GetSampleSum()
				continue
			}
			got[name] = s.GetGauge().GetValue() + s.GetCounter().GetValue()
		}
	}
	want := map[string]float64{
		"volcano_e2e_scheduling_latency_milliseconds": 10, "volcano_open_session_duration_milliseconds": 6, "volcano_e2e_job_scheduling_latency_milliseconds": 40,
		"volcano_action_scheduling_latency_milliseconds action=allocate":                    11,
		"volcano_plugin_scheduling_latency_milliseconds OnSession=OnSessionOpen plugin=drf": 1, "volcano_plugin_scheduling_latency_milliseconds OnSession=OnSessionClose plugin=drf": 2,
		"volcano_total_preemption_attempts": 3, "volcano_pod_preemption_victims": 2, "volcano_eviction_transactions_total": 1,
		"volcano_unschedule_job_count": 1, "volcano_unschedule_task_count job_id=a/g": 0, "volcano_queue_weight queue_name=train": 3,
	}
	for what, of := range map[string][4]float64{"allocated": {1500, 2e9, 3000, 4}, "request": {2500, 3e9, 5000, 6}, "deserved": {1000, 0, 0, 0}, "capacity": {8000, -1, 16_000, -1}} {
		for i, name := range []string{"_milli_cpu queue_name=train", "_memory_bytes queue_name=train", "_scalar_resources queue_name=train resource=nvidia.com/gpu", "_scalar_resources queue_name=train resource=pods"} {
			if of[i] >= 0 {
				want["volcano_queue_"+what+name] = of[i]
			}
		}
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	if n := testutil.CollectAndCount(m.volcano.tasks); n != 1 {
		t.Errorf("%d series of gangs", n)
	}
}

// TestVolcanoMetricsAreAsked: without Volcano's face nothing is served or said of it.
func TestVolcanoMetricsAreAsked(t *testing.T) {
	t.Parallel()
	r := prometheus.NewPedanticRegistry()
	m, err := NewMetrics("kai", "default", r)
	if err != nil {
		t.Fatal(err)
	}
	m.run(cluster.NewStore(cluster.Options{}).Snapshot(cluster.Instant{}), &engine.Result{}, time.Second)
	m.volcano.took(engine.Stage{}, time.Second)
	m.volcano.evicted(&apply.Outcome{})
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if slices.Contains(strings.Split(f.GetName(), "_"), "volcano") {
			t.Errorf("%s is served", f.GetName())
		}
	}
}
