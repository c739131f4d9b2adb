package scheduler

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/engine/actions"
	"github.com/muster-scheduler/muster/internal/engine/ledger"
)

// JobOrder is the order in which the gangs that wait are looked at, in the form of KAI's /get-job-order.
type JobOrder struct {
	Global []Job            `json:"global_order"`
	Queues map[string][]Job `json:"queue_order"`
}

// Job is a gang in an order: the name of its PodGroup, and its priority.
type Job struct {
	ID       string `json:"id"`
	Priority int32  `json:"priority"`
}

// OrderOf returns the order of a snapshot under a profile.
func OrderOf(ctx context.Context, snap *cluster.Snapshot, p engine.Profile, r engine.Registry) (JobOrder, error) {
	out := JobOrder{Global: []Job{}, Queues: map[string][]Job{}}
	const order = "order"
	r = r.Clone()
	r.Actions[order] = func() engine.Action {
		return actions.Order{Next: func(g *ledger.GangState) {
			j := Job{ID: g.Key.Name, Priority: g.Priority}
			out.Global = append(out.Global, j)
			out.Queues[g.Queue] = append(out.Queues[g.Queue], j)
		}}
	}
	p.Actions, p.Settings.QueueDepth = []string{order}, nil
	e, err := engine.New(p, r)
	if err != nil {
		return out, err
	}
	e.Run(ctx, snap, func(engine.Plan) {})
	return out, nil
}

// ServeJobOrder answers with the order as of the latest cycle, with 503 before there has been one.
func ServeJobOrder(latest func() *cluster.Snapshot, p engine.Profile, r engine.Registry) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		snap := latest()
		if snap == nil {
			http.Error(w, "there has been no cycle yet", http.StatusServiceUnavailable)
			return
		}
		o, err := OrderOf(req.Context(), snap, p, r)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(o) // the reader has gone
	})
}
