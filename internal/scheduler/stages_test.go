package scheduler

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/engine/policy"
	"github.com/muster-scheduler/muster/internal/engine/recorder"
	"github.com/muster-scheduler/muster/internal/profile"
)

// TestStagesCarryKAIsNames: what a run consists of, under KAI's names and labels.
func TestStagesCarryKAIsNames(t *testing.T) {
	t.Parallel()
	r := prometheus.NewPedanticRegistry()
	s, err := newStages("ns", r)
	if err != nil {
		t.Fatal(err)
	}
	for i, stage := range []engine.Stage{
		{Kind: engine.StageOpen},
		{Kind: engine.StageOpenPlugin, Name: "p"},
		{Kind: engine.StageAction, Name: "reclaim"},
		{Kind: engine.StageClose},
		{Kind: engine.StageClosePlugin, Name: "p"},
	} {
		s.took(stage, time.Hour) // the last value counts
		s.took(stage, time.Duration(i+1)*time.Millisecond)
	}
	did := engine.Stats{Steps: 7, Actions: []recorder.ActionStats{
		{Action: "allocate", Considered: 3}, {Action: "reclaim", Considered: 2, Searches: 2, Found: 1, Filtered: 5, Simulated: 4},
	}}
	later := engine.Verdict{Code: engine.No, Reason: policy.ReasonNextCycle}
	trace := engine.Trace{Gangs: []engine.GangTrace{
		{Tried: []engine.Attempt{{Action: "reclaim", Verdict: later}, {Action: "reclaim", Verdict: later}}}, // one gang
		{Tried: []engine.Attempt{{Action: "reclaim", Verdict: later}}},
		{Tried: []engine.Attempt{{Action: "allocate", Verdict: later}, {Action: "reclaim", Verdict: engine.Verdict{Code: engine.No, Reason: policy.ReasonNoVictims}}}},
	}}
	s.did(&did, &trace)
	s.did(&did, &engine.Trace{})
	want := `
ns_open_session_latency_milliseconds 1
ns_plugin_scheduling_latency_milliseconds{OnSession="OnSessionOpen",plugin="p"} 2
ns_plugin_scheduling_latency_milliseconds{OnSession="OnSessionClose",plugin="p"} 5
ns_action_scheduling_latency_milliseconds{action="reclaim"} 3
ns_close_session_latency_milliseconds 4
ns_podgroups_acted_on_by_action{action="allocate"} 6
ns_podgroups_acted_on_by_action{action="reclaim"} 4
ns_scenarios_simulation_by_action{action="allocate"} 0
ns_scenarios_simulation_by_action{action="reclaim"} 8
ns_scenarios_filtered_by_action{action="allocate"} 0
ns_scenarios_filtered_by_action{action="reclaim"} 10
ns_total_preemption_attempts 4
muster_victim_searches_total{action="allocate",result="found"} 0
muster_victim_searches_total{action="allocate",result="none"} 0
muster_victim_searches_total{action="reclaim",result="found"} 2
muster_victim_searches_total{action="reclaim",result="none"} 2
muster_search_steps_total 14
ns_scenario_search_jobs_total{action="reclaim",reduced_budget="false",result="solved"} 2
ns_scenario_search_jobs_total{action="reclaim",reduced_budget="false",result="unsolved"} 2
ns_scenario_search_jobs_total{action="reclaim",reduced_budget="false",result="not_attempted"} 2
ns_scenario_search_action_budget_exhausted_total{action="reclaim"} 1
ns_scenario_search_action_budget_configured_seconds{action="consolidation"} 0
ns_scenario_search_action_budget_configured_seconds{action="reclaim"} 0
ns_scenario_search_action_budget_configured_seconds{action="preempt"} 0
ns_scenario_search_job_budget_configured_seconds 0
`
	got, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	lines := map[string]bool{}
	for _, family := range got {
		for _, m := range family.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetName()+`="`+l.GetValue()+`"`)
			}
			line := family.GetName()
			if len(labels) > 0 {
				line += "{" + strings.Join(labels, ",") + "}"
			}
			lines[line+" "+fmt.Sprint(m.GetGauge().GetValue()+m.GetCounter().GetValue())] = true
		}
	}
	for _, line := range strings.Split(strings.TrimSpace(want), "\n") {
		if !lines[line] {
			t.Errorf("missing: %s", line)
		}
		delete(lines, line)
	}
	for line := range lines {
		t.Errorf("not expected: %s", line)
	}
}

// TestRunIsTakenApart: the engine tells of its stages, and a search for victims is counted where it happens.
func TestRunIsTakenApart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := begin(t, Options{Period: time.Hour}, func(w *fixture) { full(w, "a", "b") })
		w.pass(time.Second)
		w.happens(urgent("new", "p")...)
		w.pass(500 * time.Millisecond)
		s := w.metrics.stages
		for name, c := range map[string]struct {
			is, least float64
		}{
			"tried by preempt": {counter(s.acted.WithLabelValues("preempt")), 1},
			"found by preempt": {counter(s.searches.WithLabelValues("preempt", "found")), 1},
			"attempts":         {counter(s.attempts), 1},
			"worked out":       {counter(s.simulated.WithLabelValues("preempt")), 1},
			"ruled out":        {counter(s.filtered.WithLabelValues("preempt")), 1}, // with nobody gone
			"actions timed":    {float64(testutil.CollectAndCount(s.actions)), float64(len(profile.BuiltIn().Actions))},
			"plugins timed":    {float64(testutil.CollectAndCount(s.plugins)), 10},
		} {
			if c.is < c.least {
				t.Errorf("%s: %v, want at least %v", name, c.is, c.least)
			}
		}
	})
}
