package scheduler

import (
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/engine/policy"
)

// stages are the metrics of what a run consists of: how long each part took, and what each action tried. Times are taken
// around the engine, which has no clock. Used by the loop's goroutine.
type stages struct {
	open, shut prometheus.Gauge
	plugins    *prometheus.GaugeVec
	actions    *prometheus.GaugeVec

	acted     *prometheus.CounterVec
	simulated *prometheus.CounterVec
	filtered  *prometheus.CounterVec
	attempts  prometheus.Counter
	searches  *prometheus.CounterVec
	steps     prometheus.Counter

	jobs *prometheus.CounterVec
	over *prometheus.CounterVec
}

// searching are the actions that look for somebody to displace or move.
func searching() []string { return []string{"consolidation", "reclaim", "preempt"} }

// The results of a search, in KAI's words: of a question that was answered, and of one that was left for the next run.
const (
	jobSolved       = "solved"
	jobUnsolved     = "unsolved"
	jobNotAttempted = "not_attempted"
)

// The values of the label OnSession.
const (
	sessionOpen  = "OnSessionOpen"
	sessionClose = "OnSessionClose"
)

func newStages(namespace string, r prometheus.Registerer) (*stages, error) {
	gauge := func(name, help string) prometheus.GaugeOpts {
		return prometheus.GaugeOpts{Namespace: namespace, Name: name, Help: help}
	}
	counter := func(name, help string) prometheus.CounterOpts {
		return prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help}
	}
	action := []string{"action"}
	s := &stages{
		open:      prometheus.NewGauge(gauge("open_session_latency_milliseconds", "Time to lay the last run over its snapshot, plugins included, in milliseconds.")),
		shut:      prometheus.NewGauge(gauge("close_session_latency_milliseconds", "Time to put the trace of the last run together, plugins included, in milliseconds.")),
		plugins:   prometheus.NewGaugeVec(gauge("plugin_scheduling_latency_milliseconds", "Time the plugin took to open or close in the last run, in milliseconds."), []string{"plugin", "OnSession"}),
		actions:   prometheus.NewGaugeVec(gauge("action_scheduling_latency_milliseconds", "Duration of the action in the last run, in milliseconds."), action),
		acted:     prometheus.NewCounterVec(counter("podgroups_acted_on_by_action", "Times a gang was tried, by action."), action),
		simulated: prometheus.NewCounterVec(counter("scenarios_simulation_by_action", "Sets of gangs that might make way for which it was worked out whether the gang fits, by action."), action),
		filtered:  prometheus.NewCounterVec(counter("scenarios_filtered_by_action", "Sets of gangs that might make way that queues and sums alone ruled out, by action."), action),
		attempts:  prometheus.NewCounter(counter("total_preemption_attempts", "Searches for somebody to displace or move, by all actions.")),
		searches: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "muster", Name: "victim_searches_total", Help: "Searches for somebody to displace or move, by action and result (found, none).",
		}, []string{"action", "result"}),
		steps: prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: "muster", Name: "search_steps_total", Help: "Steps of searches for somebody to displace or move; their budgets are counted in these.",
		}),
		jobs: prometheus.NewCounterVec(counter("scenario_search_jobs_total", "Searches for somebody to displace or move, by action and result: solved, unsolved, or not_attempted because the action had searched as much as it may in the run. Those that are begun are finished: reduced_budget is false."), []string{"action", "result", "reduced_budget"}),
		over: prometheus.NewCounterVec(counter("scenario_search_action_budget_exhausted_total", "Runs in which the action had searched as much as it may before all were asked about."), action),
	}
	seconds := prometheus.NewGaugeVec(gauge("scenario_search_action_budget_configured_seconds", "Time that an action may search in a run: 0, which is without limit. Searches are bounded in steps."), action)
	each := prometheus.NewGauge(gauge("scenario_search_job_budget_configured_seconds", "Time that a search may take: 0, which is without limit. Searches are bounded in steps."))
	for _, name := range searching() {
		seconds.WithLabelValues(name)
	}
	return s, register(r, s.open, s.shut, s.plugins, s.actions, s.acted, s.simulated, s.filtered, s.attempts, s.searches, s.steps, s.jobs, s.over, seconds, each)
}

// register registers metrics, up to the first that cannot be.
func register(r prometheus.Registerer, all ...prometheus.Collector) error {
	for _, c := range all {
		if err := r.Register(c); err != nil {
			return err
		}
	}
	return nil
}

// took shows how long a stage of the last run took.
func (s *stages) took(stage engine.Stage, d time.Duration) {
	ms := milliseconds(d)
	switch stage.Kind {
	case engine.StageOpen:
		s.open.Set(ms)
	case engine.StageClose:
		s.shut.Set(ms)
	case engine.StageAction:
		s.actions.WithLabelValues(stage.Name).Set(ms)
	case engine.StageOpenPlugin:
		s.plugins.WithLabelValues(stage.Name, sessionOpen).Set(ms)
	case engine.StageClosePlugin:
		s.plugins.WithLabelValues(stage.Name, sessionClose).Set(ms)
	}
}

// did counts what a run did. Every action that ran has its series, at 0 if need be, so that a rate over them is known.
func (s *stages) did(run *engine.Stats, trace *engine.Trace) {
	left := leftOpen(trace)
	s.steps.Add(float64(run.Steps))
	for i := range run.Actions {
		a := &run.Actions[i]
		s.acted.WithLabelValues(a.Action).Add(float64(a.Considered))
		s.simulated.WithLabelValues(a.Action).Add(float64(a.Simulated))
		s.filtered.WithLabelValues(a.Action).Add(float64(a.Filtered))
		s.attempts.Add(float64(a.Searches))
		s.searches.WithLabelValues(a.Action, "found").Add(float64(a.Found))
		s.searches.WithLabelValues(a.Action, "none").Add(float64(a.Searches - a.Found))
		if !slices.Contains(searching(), a.Action) {
			continue
		}
		jobs := func(result string, n int) { s.jobs.WithLabelValues(a.Action, result, "false").Add(float64(n)) }
		jobs(jobSolved, a.Found)
		jobs(jobUnsolved, a.Searches-a.Found)
		jobs(jobNotAttempted, left[a.Action])
		s.over.WithLabelValues(a.Action).Add(float64(min(left[a.Action], 1)))
	}
}

// leftOpen is how many gangs each action left for the next run because it had searched as much as it may.
func leftOpen(t *engine.Trace) map[string]int {
	out := map[string]int{}
	for i := range t.Gangs {
		tried := t.Gangs[i].Tried
		for j := range tried {
			left := func(a engine.Attempt) bool {
				return a.Action == tried[j].Action && a.Verdict.Reason == policy.ReasonNextCycle
			}
			if left(tried[j]) && !slices.ContainsFunc(tried[:j], left) { // once of each gang
				out[tried[j].Action]++
			}
		}
	}
	return out
}
