package monitoring

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"sigs.k8s.io/yaml"
)

// healthy is two hours of a cluster in which nothing is wrong, a value each minute, in promtool's notation.
func healthy() map[string]string {
	const scheduler, binder = `namespace="kai",job="scheduler"`, `namespace="kai",job="binder"`
	return map[string]string{
		`muster_scheduler_looks_total{` + scheduler + `}`:                                        "0+60x120",
		`muster_scheduler_run_seconds_bucket{` + scheduler + `,le="0.064"}`:                      "0+60x120",
		`muster_scheduler_run_seconds_bucket{` + scheduler + `,le="16.384"}`:                     "0+60x120",
		`muster_scheduler_run_seconds_bucket{` + scheduler + `,le="+Inf"}`:                       "0+60x120",
		`muster_feed_lag_seconds_bucket{` + scheduler + `,le="0.064"}`:                           "0+60x120",
		`muster_feed_lag_seconds_bucket{` + scheduler + `,le="16.384"}`:                          "0+60x120",
		`muster_feed_lag_seconds_bucket{` + scheduler + `,le="+Inf"}`:                            "0+60x120",
		`muster_disruption_gpus_total{` + scheduler + `,right="reclaim",fate="evicted"}`:         "0+10x120",
		`muster_disruption_gpus_total{` + scheduler + `,right="reclaim",fate="placed"}`:          "0+8x120",
		`muster_frozen_pairs_total{` + scheduler + `}`:                                           "3x120",
		`muster_store_differences_total{` + scheduler + `,kind="Pod"}`:                           "0x120",
		`muster_overcommitted_nodes{` + scheduler + `}`:                                          "0x120",
		`muster_usage_last_fetch_timestamp_seconds{` + scheduler + `}`:                           "0+60x120",
		`muster_queue_waiting_gangs{` + scheduler + `,queue_name="team"}`:                        "2x120",
		`kai_queue_fair_share_gpu{` + scheduler + `,queue_name="team"}`:                          "8x120",
		`muster_queue_requested_gpus{namespace="kai",job="queue",queue_name="team"}`:             "20x120",
		`kai_queue_allocated_gpus{namespace="kai",job="queue",queue_name="team"}`:                "8x120",
		`kai_queue_info{namespace="kai",job="queue",queue_name="team"}`:                          "1x120",
		`muster_bindrequests{` + binder + `,phase="Pending"}`:                                    "3x120",
		`muster_binder_actions_total{` + binder + `,action="bind",outcome="done"}`:               "0+30x120",
		`muster_binder_actions_total{` + binder + `,action="prepare",outcome="failure"}`:         "5x120",
		`muster_binder_bind_delay_seconds_bucket{` + binder + `,le="2"}`:                         "0+30x120",
		`muster_binder_bind_delay_seconds_bucket{` + binder + `,le="300"}`:                       "0+30x120",
		`muster_binder_bind_delay_seconds_bucket{` + binder + `,le="+Inf"}`:                      "0+30x120",
		`muster_events_dropped_total{` + binder + `}`:                                            "7x120",
		`leader_election_master_status{` + binder + `,instance="a",name="binder"}`:               "1x120",
		`leader_election_master_status{` + binder + `,instance="b",name="binder"}`:               "0x120",
		`rest_client_requests_total{` + binder + `,code="200",method="GET"}`:                     "0+600x120",
		`rest_client_requests_total{` + binder + `,code="500",method="GET"}`:                     "0+6x120",
		`rest_client_requests_total{` + binder + `,code="403",method="GET"}`:                     "1x120",
		`muster_admission_review_seconds_bucket{namespace="kai",job="admission",le="0.0256"}`:    "0+60x120",
		`muster_admission_review_seconds_bucket{namespace="kai",job="admission",le="1.6384"}`:    "0+60x120",
		`muster_admission_review_seconds_bucket{namespace="kai",job="admission",le="6.5536"}`:    "0+60x120",
		`muster_admission_review_seconds_bucket{namespace="kai",job="admission",le="+Inf"}`:      "0+60x120",
		`muster_queue_waiting_gangs{` + scheduler + `,queue_name="content"}`:                     "0x120",
		`kai_queue_fair_share_gpu{` + scheduler + `,queue_name="content"}`:                       "8x120",
		`muster_queue_requested_gpus{namespace="kai",job="queue",queue_name="content"}`:          "2x120",
		`kai_queue_allocated_gpus{namespace="kai",job="queue",queue_name="content"}`:             "2x120",
		`muster_queue_waiting_gangs{` + scheduler + `,queue_name=""}`:                            "1x120",
		`muster_binder_actions_total{` + binder + `,action="report",outcome="failure"}`:          "0x120",
		`muster_disruption_gpus_total{` + scheduler + `,right="consolidation",fate="moved"}`:     "0x120",
		`muster_usage_last_fetch_timestamp_seconds{namespace="kai",job="scheduler-without-any"}`: "0x120",
	}
}

// stories are what breaks the healthy cluster, each with exactly the alerts that then fire, at the end of the two hours. A series
// with "" is gone.
func stories() map[string]struct {
	breaks map[string]string
	fires  []string
} {
	const scheduler, binder = `namespace="kai",job="scheduler"`, `namespace="kai",job="binder"`
	type story = struct {
		breaks map[string]string
		fires  []string
	}
	late := func(metric, who, good, bad string) map[string]string { // half of it in the larger bucket only
		return map[string]string{metric + `_bucket{` + who + `,le="` + good + `"}`: "0+30x120", metric + `_bucket{` + who + `,le="` + bad + `"}`: "0+60x120"}
	}
	return map[string]story{
		"nothing is wrong":            {},
		"the scheduler hangs":         {map[string]string{`muster_scheduler_looks_total{` + scheduler + `}`: "0+60x100 6000x20"}, []string{"MusterSchedulerStalled"}},
		"no scheduler is scraped":     {map[string]string{`muster_scheduler_looks_total{` + scheduler + `}`: ""}, []string{"MusterSchedulerAbsent"}},
		"no binder leads":             {map[string]string{`muster_bindrequests{` + binder + `,phase="Pending"}`: ""}, []string{"MusterBinderAbsent"}},
		"no queue role leads":         {map[string]string{`kai_queue_info{namespace="kai",job="queue",queue_name="team"}`: ""}, []string{"MusterQueueRoleAbsent"}},
		"all binders stand by":        {map[string]string{`leader_election_master_status{` + binder + `,instance="a",name="binder"}`: "0x120"}, []string{"MusterNoLeader"}},
		"two binders lead":            {map[string]string{`leader_election_master_status{` + binder + `,instance="b",name="binder"}`: "1x120"}, []string{"MusterTwoLeaders"}},
		"runs take long":              {late("muster_scheduler_run_seconds", scheduler, "0.064", "16.384"), []string{"MusterRunsSlow"}},
		"news wait long":              {late("muster_feed_lag_seconds", scheduler, "0.064", "16.384"), []string{"MusterFeedBehind"}},
		"a queue lacks its share":     {map[string]string{`kai_queue_allocated_gpus{namespace="kai",job="queue",queue_name="team"}`: "5x120"}, []string{"MusterQueueStarving"}},
		"much is evicted for little":  {map[string]string{`muster_disruption_gpus_total{` + scheduler + `,right="reclaim",fate="placed"}`: "0+1x120"}, []string{"MusterManyEvictions"}},
		"two gangs fight":             {map[string]string{`muster_frozen_pairs_total{` + scheduler + `}`: "3x110 4x10"}, []string{"MusterFrozenPairs"}},
		"somebody else binds":         {map[string]string{`muster_overcommitted_nodes{` + scheduler + `}`: "0x100 2x20"}, []string{"MusterNodesOvercommitted"}},
		"an event was lost":           {map[string]string{`muster_store_differences_total{` + scheduler + `,kind="Pod"}`: "0x110 1x10"}, []string{"MusterStoreDiffers"}},
		"usage is not fetched":        {map[string]string{`muster_usage_last_fetch_timestamp_seconds{` + scheduler + `}`: "0+60x90 5400x30"}, []string{"MusterUsageStale"}},
		"nothing is bound":            {map[string]string{`muster_binder_actions_total{` + binder + `,action="bind",outcome="done"}`: "0+30x80 2400x40"}, []string{"MusterBindsStuck"}},
		"volumes cannot be made":      {map[string]string{`muster_binder_actions_total{` + binder + `,action="prepare",outcome="failure"}`: "0+20x120"}, []string{"MusterBindsFail"}},
		"devices take minutes":        {late("muster_binder_bind_delay_seconds", binder, "2", "300"), []string{"MusterBindsSlow"}},
		"too many events":             {map[string]string{`muster_events_dropped_total{` + binder + `}`: "7x110 90x10"}, []string{"MusterEventsDropped"}},
		"the API server is not well":  {map[string]string{`rest_client_requests_total{` + binder + `,code="500",method="GET"}`: "0+60x120"}, []string{"MusterAPIErrors"}},
		"a rule is missing":           {map[string]string{`rest_client_requests_total{` + binder + `,code="403",method="GET"}`: "1x110 9x10"}, []string{"MusterWritesForbidden"}},
		"admission takes more than 1": {late("muster_admission_review_seconds", `namespace="kai",job="admission"`, "0.0256", "6.5536"), []string{"MusterAdmissionSlow"}},
	}
}

// TestRules lets promtool, if there is one, check the rules and tell the stories: in each exactly the named alerts fire.
func TestRules(t *testing.T) {
	t.Parallel()
	rules, err := filepath.Abs(folder + "/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	type object = map[string]any
	var tests []object
	told := map[string]bool{}
	for name, s := range stories() {
		series := healthy()
		for k, v := range s.breaks {
			if series[k] == "" {
				t.Errorf("%s: the healthy cluster has no series %s", name, k)
			}
			if series[k] = v; v == "" {
				delete(series, k)
			}
		}
		var input, firing []object
		for _, k := range slices.Sorted(maps.Keys(series)) {
			input = append(input, object{"series": k, "values": series[k]})
		}
		for _, alert := range s.fires {
			told[alert] = true
			firing = append(firing, object{"labels": `{alertname="` + alert + `"}`, "value": 1})
		}
		tests = append(tests, object{"name": name, "interval": "1m", "input_series": input, "promql_expr_test": []object{
			{"expr": `count by (alertname) (ALERTS{alertstate="firing"})`, "eval_time": "2h", "exp_samples": firing},
		}})
	}
	for _, g := range Alerts() {
		for _, a := range g.Alerts {
			if !told[a.Name] {
				t.Errorf("in no story does %s fire", a.Name)
			}
		}
	}
	if _, err := exec.LookPath("promtool"); err != nil {
		t.Log("rules not tested: there is no promtool on PATH (Debian's package prometheus has it)")
		return
	}
	text, err := yaml.Marshal(object{"rule_files": []string{rules}, "evaluation_interval": "1m", "tests": tests})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "stories.yaml")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"check", "rules", rules}, {"test", "rules", file}} {
		if out, err := exec.CommandContext(t.Context(), "promtool", args...).CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", args[0], err, out)
		}
	}
}
