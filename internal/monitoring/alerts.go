package monitoring

import (
	"fmt"

	"sigs.k8s.io/yaml"
)

// Severity says who should hear of an alert.
type Severity string

// The severities.
const (
	Critical Severity = "critical" // somebody has to act now: nothing is scheduled, or a promise may be broken
	Warning  Severity = "warning"  // somebody has to look today
	Info     Severity = "info"     // worth knowing
)

// Alert is a rule that fires when Expr has had an answer for as long as For says.
type Alert struct {
	Name     string
	Expr     string
	For      string // Prometheus's notation
	Severity Severity
	Summary  string // one line, with {{ $labels.x }} and {{ $value }}
	Action   string // what to do
}

// Group is a list of alerts that are about one thing.
type Group struct {
	Name   string
	Alerts []Alert
}

// Alerts are all rules.
func Alerts() []Group {
	return []Group{
		{Name: "muster-alive", Alerts: []Alert{
			{
				"MusterSchedulerStalled", `sum by (namespace, job) (rate(muster_scheduler_looks_total[5m])) == 0`, "3m", Critical,
				"The scheduler {{ $labels.job }} does not look at the cluster.",
				"Nothing is scheduled. Read the log of the leader; if it hangs, take a goroutine dump (kill -QUIT) and restart it.",
			},
			{
				"MusterSchedulerAbsent", `absent(muster_scheduler_looks_total)`, "5m", Critical,
				"No scheduler is scraped.", "Is its Deployment running, and does the ServiceMonitor select it?",
			},
			{
				"MusterBinderAbsent", `absent(muster_bindrequests)`, "5m", Critical,
				"No binder is at work: decisions are made and not carried out.", "Is its Deployment running, and does one of its pods hold the Lease?",
			},
			{
				"MusterQueueRoleAbsent", `absent(kai_queue_info)`, "5m", Warning,
				"No queue role is at work, or there are no queues: statuses and history of queues stand still.", "Is its Deployment running, and is there a Queue?",
			},
			{
				"MusterNoLeader", `max by (namespace, name) (leader_election_master_status) == 0`, "1m", Critical,
				"Nobody holds the Lease {{ $labels.name }}.", "All replicas stand by. Can they write the Lease? Their logs say.",
			},
			{
				"MusterTwoLeaders", `sum by (namespace, name) (leader_election_master_status) > 1`, "1m", Critical,
				"{{ $value }} processes hold the Lease {{ $labels.name }}.", "This must not happen. Stop all replicas but one and keep their logs.",
			},
		}},
		{Name: "muster-scheduler", Alerts: []Alert{
			{
				"MusterRunsSlow", `histogram_quantile(0.99, sum by (namespace, job, le) (rate(muster_scheduler_run_seconds_bucket[10m]))) > 2`, "15m", Warning,
				"One run in a hundred takes {{ $value | humanizeDuration }}.", "The dashboard Scheduler shows which action takes the time; scenarioSearchBudgets and queueDepthPerAction bound it.",
			},
			{
				"MusterFeedBehind", `histogram_quantile(0.99, sum by (namespace, job, le) (rate(muster_feed_lag_seconds_bucket[10m]))) > 5`, "10m", Warning,
				"Decisions are {{ $value | humanizeDuration }} behind the API server.", "Runs take long, or the process lacks processor time.",
			},
			{
				"MusterQueueStarving", starved("") + ` > 0 and on (queue_name) muster_queue_waiting_gangs > 0`, "30m", Warning,
				"Queue {{ $labels.queue_name }} lacks {{ $value }} GPUs of its share, and has gangs that wait.", "muster explain tells for each gang what blocks it; muster queue list who holds what.",
			},
			{
				"MusterManyEvictions", `sum by (namespace, job) (increase(muster_disruption_gpus_total{fate="evicted"}[1h])) / (sum by (namespace, job) (increase(muster_disruption_gpus_total{fate="placed"}[1h])) > 0) > 4`, "30m", Warning,
				"{{ $value | humanize }} GPUs are evicted for each that is placed.", "muster decisions shows the latest evictions with their causes.",
			},
			{
				"MusterFrozenPairs", `increase(muster_frozen_pairs_total[1h]) > 0`, "0m", Info,
				"Gangs have displaced each other again and again and are left alone for a while.", "Two queues fight for one room. Look at their quotas and at minimum runtimes.",
			},
			{
				"MusterNodesOvercommitted", `max by (namespace, job) (muster_overcommitted_nodes) > 0`, "10m", Warning,
				"On {{ $value }} nodes more is used than there is.", "Another scheduler binds pods there, or a node has shrunk. Events on the nodes name the resource.",
			},
			{
				"MusterStoreDiffers", `sum by (namespace, job, kind) (increase(muster_store_differences_total[1h])) > 0`, "0m", Warning,
				"The scheduler knew something else of {{ $value }} objects ({{ $labels.kind }}) than the API server.", "It was told again. The log names the objects; muster debug store compares everything now. This is a defect: please report it.",
			},
			{
				"MusterUsageStale", `time() - (muster_usage_last_fetch_timestamp_seconds > 0) > 900`, "5m", Warning,
				"The history of usage is {{ $value | humanizeDuration }} old: time-based shares do not move.", "Is the Prometheus server of usageDBConfig reachable?",
			},
		}},
		{Name: "muster-pipeline", Alerts: []Alert{
			{
				"MusterBindsStuck", `sum by (namespace) (muster_bindrequests{phase="Pending"}) > 0 unless sum by (namespace) (rate(muster_binder_actions_total{action="bind",outcome="done"}[10m])) > 0`, "10m", Critical,
				"{{ $value }} BindRequests wait and nothing is bound.", "The binder's log says what its actions fail of.",
			},
			{
				"MusterBindsFail", `sum by (namespace) (rate(muster_binder_actions_total{action=~"prepare|bind",outcome="failure"}[15m])) > 0.05`, "15m", Warning,
				"{{ $value | humanize }} attempts to bind fail per second.", "Events on the pods and the BindRequests' status say why: a volume, a device that is not reported, a node that is gone.",
			},
			{
				"MusterBindsSlow", `histogram_quantile(0.9, sum by (namespace, le) (rate(muster_binder_bind_delay_seconds_bucket[15m]))) > 60`, "15m", Warning,
				"One bind in ten takes more than {{ $value | humanizeDuration }}.", "Volumes and shared devices take long to prepare, or the API server is slow.",
			},
			{
				"MusterEventsDropped", `increase(muster_events_dropped_total[15m]) > 0`, "0m", Info,
				"{{ $value }} events were not written because too many waited.", "Nothing is lost that conditions do not say; the API server is slow.",
			},
			{
				"MusterAPIErrors", `sum by (namespace, job) (rate(rest_client_requests_total{code=~"429|5..|<error>"}[10m])) / sum by (namespace, job) (rate(rest_client_requests_total[10m])) > 0.05`, "10m", Warning,
				"{{ $value | humanizePercentage }} of the requests of {{ $labels.job }} to the API server fail.", "Look at the API server; 429 means that its fairness configuration gives Muster too little.",
			},
			{
				"MusterWritesForbidden", `increase(rest_client_requests_total{code="403"}[15m]) > 0`, "0m", Warning,
				"{{ $labels.job }} was refused {{ $value }} requests for want of rights.", "Its ClusterRole lacks a rule: was it installed with another version?",
			},
			{
				"MusterAdmissionSlow", `histogram_quantile(0.99, sum by (namespace, le) (rate(muster_admission_review_seconds_bucket[10m]))) > 1`, "10m", Warning,
				"Admission takes {{ $value | humanizeDuration }}; every pod of ours waits for it.", "Give the role more processor time or more replicas.",
			},
		}},
	}
}

// groups are the alerts as Prometheus and its operator have them.
func groups() []any {
	type object = map[string]any
	var out []any
	for _, g := range Alerts() {
		var rules []object
		for _, a := range g.Alerts {
			rules = append(rules, object{
				"alert": a.Name, "expr": a.Expr, "for": a.For, "labels": object{"severity": a.Severity},
				"annotations": object{"summary": a.Summary, "description": a.Action},
			})
		}
		out = append(out, object{"name": g.Name, "rules": rules})
	}
	return out
}

const generated = "# Written by internal/monitoring (go test ./internal/monitoring -update); edit alerts.go there.\n"

// RulesFile is the alerts as a file that a Prometheus server takes.
func RulesFile() ([]byte, error) { return document(map[string]any{"groups": groups()}) }

// PrometheusRule is the alerts as the object that the Prometheus operator takes, in no particular namespace.
func PrometheusRule() ([]byte, error) {
	return document(map[string]any{
		"apiVersion": "monitoring.coreos.com/v1", "kind": "PrometheusRule",
		"metadata": map[string]any{"name": "muster", "labels": map[string]any{"app.kubernetes.io/name": "muster"}},
		"spec":     map[string]any{"groups": groups()},
	})
}

func document(o any) ([]byte, error) {
	text, err := yaml.Marshal(o)
	if err != nil {
		return nil, fmt.Errorf("write alerts: %w", err)
	}
	return append([]byte(generated), text...), nil
}
