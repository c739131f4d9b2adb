package ui

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/explain"
	"github.com/muster-scheduler/muster/internal/journal"
	"github.com/muster-scheduler/muster/internal/monitoring/judge"
	"github.com/muster-scheduler/muster/internal/see"
)

// The metrics that are derived from cycles: what the scheduler and the queue role export of them.
const (
	metricFair      = "kai_queue_fair_share_gpu"
	metricAllocated = "kai_queue_allocated_gpus"
	metricRequested = "muster_queue_requested_gpus"
	metricWaiting   = "muster_queue_waiting_gangs"
	metricOverfull  = "muster_overcommitted_nodes"
	// metricDisrupted is derived from the journal.
	metricDisrupted = "muster_disruption_gpus_total"
)

const (
	// ruleMemory is how long points are kept, longer than any rule looks back, and maxTracks how many series of a shard.
	ruleMemory, maxTracks = 2 * time.Hour, 8000
	// unheardAfter is how long no news may come from a scheduler before nothing quiet is believed of it.
	unheardAfter = time.Minute
)

// gauges are what the cycles of one shard say of metrics, over time.
type gauges struct {
	mu     sync.Mutex
	from   time.Time // of the first cycle
	latest time.Time
	tracks map[track]*[]judge.Point
	full   bool // series were left out
}

// gpu is a GPU in milli-GPU.
const gpu = float64(cluster.Whole)

type track struct{ metric, queue string }

// take takes in a cycle that has been looked at. now is the moment of looking: a cycle holds from when it came. Points that say nothing new are not kept.
func (g *gauges) take(run *explain.Run, now time.Time) {
	values := map[track]float64{}
	snap, t := run.Snapshot(), run.Trace()
	for i := range t.Queues {
		q := &t.Queues[i]
		values[track{metricFair, q.Name}] = float64(q.FairShare.At(cluster.GPU)) / gpu
		values[track{metricWaiting, q.Name}] = 0
	}
	for _, id := range snap.QueueOrder { // as they stand before the run, with what is below them
		own := snap.Queue(id)
		for q, steps := own, 0; q != nil && steps <= len(snap.QueueOrder); q, steps = snap.QueueByName(q.Parent), steps+1 {
			values[track{metricAllocated, q.Name}] += float64(own.Allocated.At(cluster.GPU)) / gpu
			values[track{metricRequested, q.Name}] += float64(own.Requested.At(cluster.GPU)) / gpu
		}
	}
	for i := range t.Gangs {
		if gang := snap.GangByKey(t.Gangs[i].Gang); gang != nil && t.Gangs[i].Diagnosis != nil {
			k := track{metricWaiting, gang.Queue}
			if _, there := values[k]; !there {
				k.queue = "" // of queues that do not exist
			}
			values[k]++
		}
	}
	overfull := track{metric: metricOverfull}
	values[overfull] = 0
	for _, id := range snap.NodeOrder {
		n := snap.Node(id)
		for d := range snap.Dims.Len() {
			if n.Used.At(d) > n.Allocatable.At(d) {
				values[overfull]++
				break
			}
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if now.Before(g.latest) {
		return // the clock was set back; the next one counts from where this is made up for
	}
	if g.latest = now; g.tracks == nil {
		g.tracks, g.from = map[track]*[]judge.Point{}, now
	}
	for _, k := range slices.SortedFunc(maps.Keys(values), func(a, b track) int { return cmp.Or(cmp.Compare(a.queue, b.queue), cmp.Compare(a.metric, b.metric)) }) {
		points := g.tracks[k]
		if points == nil {
			if len(g.tracks) >= maxTracks {
				g.full = true
				continue
			}
			points = &[]judge.Point{}
			g.tracks[k] = points
		}
		if n := len(*points); n == 0 || (*points)[n-1].Value != values[k] {
			*points = append(*points, judge.Point{At: now, Value: values[k]})
		}
		forget(points, now)
	}
	for k, points := range g.tracks { // order: each on its own
		if _, there := values[k]; !there {
			if n := len(*points); (*points)[n-1].Value != 0 {
				*points = append(*points, judge.Point{At: now}) // the queue has gone
			}
			if forget(points, now); len(*points) == 1 && now.Sub((*points)[0].At) > ruleMemory {
				delete(g.tracks, k)
			}
		}
	}
}

// forget drops the points that held no more when what is kept begins, and keeps of a minute its first value and its last.
func forget(points *[]judge.Point, now time.Time) {
	list := *points
	for len(list) > 1 && now.Sub(list[1].At) > ruleMemory {
		list = list[1:]
	}
	if n := len(list); n > 2 && list[n-1].At.Truncate(time.Minute).Equal(list[n-2].At.Truncate(time.Minute)) && list[n-2].At.Truncate(time.Minute).Equal(list[n-3].At.Truncate(time.Minute)) {
		list[n-2] = list[n-1]
		list = list[:n-1]
	}
	*points = list
}

// Known is what the cycles of all shards say of metrics.
func (f *Following) Known(now time.Time) *judge.Known {
	out := &judge.Known{Now: now, From: map[string]time.Time{}, Doubt: map[string]string{}}
	f.mu.Lock()
	shards := slices.Collect(maps.Values(f.shards))
	f.mu.Unlock()
	slices.SortFunc(shards, func(a, b *shard) int { return cmp.Compare(a.name, b.name) })
	doubt := ""
	var from time.Time
	known := len(shards) > 0
	for _, s := range shards {
		heard, _ := s.client.Heard()
		if now.Sub(heard) > unheardAfter {
			doubt = fmt.Sprintf("no news comes from the scheduler of shard %q", s.name)
		}
		since, full := s.gauges.tell(s.name, out)
		if full {
			doubt = "there are more queues than are kept"
		}
		known = known && !since.IsZero()
		if since.After(from) {
			from = since
		}
	}
	if !known {
		return out
	}
	for _, m := range []string{metricFair, metricAllocated, metricRequested, metricWaiting, metricOverfull} {
		out.From[m], out.Doubt[m] = from, doubt
	}
	return out
}

// tell adds what is known, and says since when.
func (g *gauges) tell(shard string, out *judge.Known) (from time.Time, full bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for k, points := range g.tracks { // order: the engine's own
		s := judge.Series{Metric: k.metric, Labels: map[string]string{"job": "scheduler", "shard": shard}, Points: slices.Clone(*points)}
		if k.metric != metricOverfull {
			s.Labels["queue_name"] = k.queue
		}
		out.Series = append(out.Series, s)
	}
	return g.from, g.full
}

// Judging has the Answerer evaluate the rules of monitoring on what is known; nil: none is. It returns the Answerer.
func (a *Answerer) Judging(known func(now time.Time) *judge.Known) *Answerer {
	a.known = known
	return a
}

// AlertList is the rules and what there is to say of each. Field names are stable.
type AlertList struct {
	APIVersion string    `json:"apiVersion"`
	Kind       string    `json:"kind"` // AlertList
	At         time.Time `json:"at"`
	// Evaluated are how many of Items are evaluated here.
	Evaluated int             `json:"evaluated"`
	Items     []judge.Verdict `json:"items"`
}

// alerts evaluates the rules, for those who may list queues: they are about all of them.
func (a *Answerer) alerts(q *question) (any, error) { return a.judged(q) }

func (a *Answerer) judged(q *question) (*AlertList, error) {
	if err := q.viewer.list(groupWork, "queues"); err != nil {
		return nil, reviewed(err)
	}
	now := a.now()
	known := &judge.Known{Now: now, From: map[string]time.Time{}}
	if a.known != nil {
		known = a.known(now)
	}
	if a.journal != nil {
		ctx, cancel := context.WithTimeout(q.Context(), a.reading)
		defer cancel()
		if err := disrupted(ctx, a.journal, known); err != nil {
			return nil, err
		}
	}
	items, err := judge.Evaluate(q.Context(), known)
	if err != nil {
		return nil, err
	}
	order := []judge.State{judge.Firing, judge.Pending, judge.Quiet, judge.NotEvaluated}
	slices.SortStableFunc(items, func(a, b judge.Verdict) int {
		return cmp.Compare(slices.Index(order, a.State), slices.Index(order, b.State))
	})
	out := &AlertList{APIVersion: see.APIVersion, Kind: "AlertList", At: now.UTC(), Items: items}
	for i := range items {
		if items[i].State != judge.NotEvaluated {
			out.Evaluated++
		}
	}
	return out, nil
}

// disrupted adds what the journal says of GPUs that were evicted and placed, as far back as it can be read before ctx ends.
func disrupted(ctx context.Context, j *journal.Journal, known *judge.Known) error {
	doubt := ""
	entries, from, err := j.Latest(ctx, known.Now.Add(-ruleMemory), mostLast, func(e *journal.Entry) *journal.Entry {
		if e.Kind == journal.Gap {
			return e
		}
		if slices.ContainsFunc(e.Decisions, func(d journal.Decision) bool { return d.Cause != nil }) {
			return &journal.Entry{At: e.At, Kind: e.Kind, Decisions: e.Decisions}
		}
		return nil
	})
	if err != nil {
		return err
	}
	evicted := judge.Series{Metric: metricDisrupted, Labels: map[string]string{"job": "scheduler", "fate": "evicted"}, Points: []judge.Point{{At: from}}}
	placed := judge.Series{Metric: metricDisrupted, Labels: map[string]string{"job": "scheduler", "fate": "placed"}, Points: []judge.Point{{At: from}}}
	var out, in float64
	for _, e := range entries {
		if e.Missing != nil {
			doubt = "the journal has a gap: " + e.Missing.Text()
		}
		for i := range e.Decisions {
			if c := e.Decisions[i].Cause; c != nil {
				out += float64(c.Evicted) / gpu
				in += float64(c.Placed) / gpu
			}
		}
		evicted.Points = append(evicted.Points, judge.Point{At: e.At, Value: out})
		placed.Points = append(placed.Points, judge.Point{At: e.At, Value: in})
	}
	known.Series = append(known.Series, evicted, placed)
	known.From[metricDisrupted] = from
	if known.Doubt == nil {
		known.Doubt = map[string]string{}
	}
	known.Doubt[metricDisrupted] = doubt
	return nil
}
