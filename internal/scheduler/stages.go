package scheduler

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/muster-scheduler/muster/internal/engine"
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
}

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
	}
	for _, c := range []prometheus.Collector{
		s.open, s.shut, s.plugins, s.actions, s.acted, s.simulated, s.filtered, s.attempts, s.searches, s.steps,
	} {
		if err := r.Register(c); err != nil {
			return nil, err
		}
	}
	return s, nil
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
func (s *stages) did(run *engine.Stats) {
	s.steps.Add(float64(run.Steps))
	for i := range run.Actions {
		a := &run.Actions[i]
		s.acted.WithLabelValues(a.Action).Add(float64(a.Considered))
		s.simulated.WithLabelValues(a.Action).Add(float64(a.Simulated))
		s.filtered.WithLabelValues(a.Action).Add(float64(a.Filtered))
		s.attempts.Add(float64(a.Searches))
		s.searches.WithLabelValues(a.Action, "found").Add(float64(a.Found))
		s.searches.WithLabelValues(a.Action, "none").Add(float64(a.Searches - a.Found))
	}
}
