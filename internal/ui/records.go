package ui

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/muster-scheduler/muster/internal/app/review"
	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/entry"
	"github.com/muster-scheduler/muster/internal/journal"
	"github.com/muster-scheduler/muster/internal/replay"
	"github.com/muster-scheduler/muster/internal/see"
)

const (
	// usualSince is how far back is looked if nobody says otherwise, and usualLast how many entries are told, mostLast at most.
	usualSince          = 24 * time.Hour
	usualLast, mostLast = 100, 1000
)

// ErrNoJournal says that nobody keeps what was decided here.
var ErrNoJournal = errors.New("no journal is kept here")

// Keeping has the Answerer answer from a journal, too, and say when starts are forecast; either may be nil. It returns the Answerer.
func (a *Answerer) Keeping(j *journal.Journal, outlook func(shard string) *see.Outlook) *Answerer {
	a.journal, a.outlook = j, outlook
	return a
}

// DecisionList is what a journal has, the latest first. Field names are stable.
type DecisionList struct {
	APIVersion string    `json:"apiVersion"`
	Kind       string    `json:"kind"` // DecisionList
	Since      time.Time `json:"since"`
	// Items are cycles of which the viewer may read something, forecasts that were met or missed, and gaps. Of gangs that he may not read no name is told.
	Items []*journal.Entry `json:"items"`
	// More says that there are older ones of that time.
	More bool `json:"more,omitempty"`
}

// since is the beginning of the time that is asked about.
func (a *Answerer) since(q *question) (time.Time, error) {
	text := q.FormValue("since")
	if text == "" {
		return a.now().Add(-usualSince), nil
	}
	d, err := Past(text)
	if err != nil {
		return time.Time{}, err
	}
	return a.now().Add(-d), nil
}

// Past reads how long ago something is: a duration of Go, or days such as 3d. What is none is a see.Refusal.
func Past(text string) (time.Duration, error) {
	var d time.Duration
	var err error
	if days, ok := strings.CutSuffix(text, "d"); ok {
		var n float64
		n, err = strconv.ParseFloat(days, 64)
		if n > 3660 || n != n {
			n = -1
		}
		d = time.Duration(n * float64(24*time.Hour))
	} else {
		d, err = time.ParseDuration(text)
	}
	if err != nil || d <= 0 {
		return 0, &see.Refusal{Field: "since", Rule: fmt.Sprintf("is %.40q; it must be a time such as 90m, 36h or 3d", text)}
	}
	return d, nil
}

// decisions lists what the journal has of gangs of ?namespace= (none: all), and ?gang=, since ?since=, the ?last= of it.
func (a *Answerer) decisions(q *question) (any, error) { return a.decided(q) }

func (a *Answerer) decided(q *question) (*DecisionList, error) {
	if a.journal == nil {
		return nil, ErrNoJournal
	}
	ns, err := namespace(q, q.FormValue("namespace"))
	if err != nil {
		return nil, err
	}
	since, err := a.since(q)
	if err != nil {
		return nil, err
	}
	last := usualLast
	if text := q.FormValue("last"); text != "" {
		if last, err = strconv.Atoi(text); err != nil || last < 1 || last > mostLast {
			return nil, &see.Refusal{Field: "last", Rule: fmt.Sprintf("is %.40q; it must be 1 to %d", text, mostLast)}
		}
	}
	shares := q.viewer.list(groupWork, "queues") == nil
	name := q.FormValue("gang")
	about := func(k cluster.Key) bool {
		return (ns == "" || k.Namespace == ns) && (name == "" || k.Name == name || strings.HasPrefix(k.Name, "pg-"+name+"-")) && q.viewer.gang(k)
	}
	out := &DecisionList{APIVersion: see.APIVersion, Kind: "DecisionList", Since: since.UTC(), Items: []*journal.Entry{}}
	ring := make([]*journal.Entry, 0, last)
	n := 0
	err = a.journal.Each(q.Context(), since, func(e *journal.Entry) bool {
		if e = narrowed(e, q.viewer, about, shares); e == nil {
			return true
		}
		if len(ring) < last {
			ring = append(ring, e)
		} else {
			ring[n%last] = e
		}
		n++
		return true
	})
	if err != nil {
		return nil, err
	}
	for i := range ring {
		out.Items = append(out.Items, ring[(n-1-i)%len(ring)])
	}
	out.More = n > last
	return out, nil
}

// narrowed is what a viewer may read of an entry; nil for nothing that is about what he asks for. Gaps are everybody's to know.
func narrowed(e *journal.Entry, v *viewer, about func(cluster.Key) bool, shares bool) *journal.Entry {
	if e.Kind == journal.Gap {
		return e
	}
	if e.Kind != journal.Cycle && e.Kind != journal.Came {
		return nil
	}
	s := see.ScopeOf(e.Names, v.may)
	out := *e
	out.Decisions, out.Reasons, out.Starts, out.Names = nil, nil, nil, nil
	for _, d := range e.Decisions {
		mine := about(d.Gang)
		if d.Cause != nil {
			mine = mine || slices.ContainsFunc(d.Cause.Victims, func(x engine.Victim) bool { return about(x.Gang) })
		}
		if !mine {
			continue
		}
		if !v.gang(d.Gang) {
			d.Gang, d.Bundle = foreign(d.Queue), ""
		}
		if d.Cause != nil {
			d.Cause = cause(d.Cause, v, s, shares)
		}
		out.Decisions = append(out.Decisions, d)
	}
	for _, r := range e.Reasons {
		if about(r.Gang) {
			r.Text = s.Words(r.Text)
			out.Reasons = append(out.Reasons, r)
		}
	}
	for _, t := range e.Starts {
		if about(t.Gang) {
			out.Starts = append(out.Starts, t)
		}
	}
	if len(out.Decisions)+len(out.Reasons)+len(out.Starts) == 0 {
		return nil
	}
	return &out
}

// forTimeline is how long the journal is read for a timeline: what is older than could be read by then is not told.
const forTimeline = 3 * time.Second

// timeline is what the journal has of a gang since ?since=, or since it was made if that is later.
func (a *Answerer) timeline(q *question, c *see.Cycle, key cluster.Key, shard string) (*see.Timeline, error) {
	since, err := a.since(q)
	if err != nil {
		return nil, err
	}
	group, pod := c.Born(key)
	if group.After(since) {
		since = group // another gang had that name before
	}
	shares := q.viewer.list(groupWork, "queues") == nil
	ctx, cancel := context.WithTimeout(q.Context(), a.reading)
	defer cancel()
	entries, from, err := a.journal.Latest(ctx, since, mostLast, func(e *journal.Entry) *journal.Entry {
		return narrowed(e, q.viewer, func(k cluster.Key) bool { return k == key }, shares)
	})
	if err != nil {
		return nil, err
	}
	t := journal.Timeline(key, shard, entries)
	t.From = from.UTC()
	return t.With(group, pod), nil
}

// foreign stands for a gang whose name is not told.
func foreign(queue string) cluster.Key { return cluster.Key{Name: see.Someone(queue)} }

// cause is the record of an eviction as a viewer may read it; what queues hold is told to those who may list queues.
func cause(c *engine.EvictionRecord, v *viewer, s *see.Scope, shares bool) *engine.EvictionRecord {
	out := *c
	out.Victims = nil
	for _, x := range c.Victims {
		if !v.gang(x.Gang) {
			x.Gang, x.UID = foreign(x.Queue), ""
		}
		x.Rule = s.Words(x.Rule)
		out.Victims = append(out.Victims, x)
	}
	if !shares {
		out.Shares = nil
	}
	return &out
}

// Replay is a cycle that was decided on again, step by step. Field names are stable.
type Replay struct {
	APIVersion string     `json:"apiVersion"`
	Kind       string     `json:"kind"` // Replay
	Number     uint64     `json:"number"`
	Cycle      see.Origin `json:"cycle"`
	// Version is of the scheduler that decided.
	Version string `json:"version,omitempty"`
	// Same says whether what is decided now is what was decided then, byte for byte.
	Same  bool   `json:"same"`
	Steps []Step `json:"steps"`
	// Waiting are gangs of the viewer's that were left without what they ask for; Others are how many more there were.
	Waiting []journal.Reason `json:"waiting"`
	Others  int              `json:"others,omitempty"`
}

// Step is what one action did for one gang.
type Step struct {
	Action string      `json:"action"`
	Gang   cluster.Key `json:"gang"`
	Queue  string      `json:"queue,omitempty"`
	Starts bool        `json:"starts,omitempty"`
	Binds  int         `json:"binds,omitempty"`
	Evicts int         `json:"evicts,omitempty"`
	// Promises counts pods for which room is kept.
	Promises int `json:"promises,omitempty"`
	// Pods are those of gangs that the viewer may read, each with what becomes of it.
	Pods  []PodStep              `json:"pods,omitempty"`
	Cause *engine.EvictionRecord `json:"cause,omitempty"`
	// Holds are the queues that hold something else after it, what is promised to their pods included; told to those who may list queues.
	Holds []Holding `json:"holds,omitempty"`
}

// Holding is what a queue holds with all below it, before a step and after, in milli-GPU. Field names are stable.
type Holding struct {
	Queue  string `json:"queue"`
	Before int64  `json:"beforeMilliGPU"`
	After  int64  `json:"afterMilliGPU"`
}

// holdings are what queues hold while a cycle is gone through, by name.
type holdings struct {
	snap *cluster.Snapshot
	held map[string]int64
}

func held(snap *cluster.Snapshot) *holdings {
	h := &holdings{snap, map[string]int64{}}
	for _, id := range snap.QueueOrder {
		q := snap.Queue(id)
		h.move(h.held, q.Name, q.Allocated.At(cluster.GPU))
	}
	return h
}

// move adds to a queue and to what is above it.
func (h *holdings) move(to map[string]int64, queue string, gpu int64) {
	for q, steps := h.snap.QueueByName(queue), 0; q != nil && steps <= len(h.snap.QueueOrder); q, steps = h.snap.QueueByName(q.Parent), steps+1 {
		to[q.Name] += gpu
	}
}

// after are the queues that hold something else after a bundle. Pods that are moved stay on the account.
func (h *holdings) after(b *engine.Bundle, queue func(cluster.Key) string) (out []Holding) {
	change := map[string]int64{}
	for i := range b.Intents {
		switch in := &b.Intents[i]; {
		case in.Verb == engine.Bind, in.Verb == engine.Nominate:
			h.move(change, queue(b.Gang), in.GPU)
		case in.Verb == engine.Evict && in.To == "":
			h.move(change, queue(in.Gang), -in.GPU)
		}
	}
	for _, q := range slices.Sorted(maps.Keys(change)) {
		if by := change[q]; by != 0 {
			out = append(out, Holding{Queue: q, Before: h.held[q], After: h.held[q] + by})
			h.held[q] += by
		}
	}
	return out
}

// PodStep is what becomes of a pod.
type PodStep struct {
	Verb      string `json:"verb"`
	Namespace string `json:"namespace"`
	Pod       string `json:"pod"`
	Node      string `json:"node,omitempty"`
	To        string `json:"to,omitempty"`
}

// cycle decides on a cycle of the journal again, by its number.
func (a *Answerer) cycle(q *question) (any, error) { return a.replayed(q) }

func (a *Answerer) replayed(q *question) (*Replay, error) {
	if a.journal == nil {
		return nil, ErrNoJournal
	}
	number, err := strconv.ParseUint(q.PathValue("number"), 10, 64)
	if err != nil {
		return nil, &see.Refusal{Field: "cycle", Rule: fmt.Sprintf("is %.40q; it must be a number", q.PathValue("number"))}
	}
	ns, err := namespace(q, q.FormValue("namespace"))
	if err != nil {
		return nil, err
	}
	c, e, id, err := a.journal.Case(q.Context(), number)
	if errors.Is(err, journal.ErrNone) {
		return nil, &see.Refusal{Object: "cycle " + fmt.Sprint(number), Rule: "is not kept", Missing: true}
	}
	if err != nil {
		return nil, err
	}
	k := &see.Cycle{Cluster: id, Case: c, Registry: a.registry(c)}
	run, err := k.Look(q.Context())
	if err != nil {
		return nil, err
	}
	v := q.viewer
	s := k.Scope(v.may)
	mine := func(key cluster.Key) bool { return (ns == "" || key.Namespace == ns) && v.gang(key) }
	shares := v.list(groupWork, "queues") == nil
	out := &Replay{
		APIVersion: see.APIVersion, Kind: "Replay", Number: number, Version: c.Version, Same: k.Own(), Steps: []Step{}, Waiting: []journal.Reason{},
		Cycle: see.Origin{Cluster: id, At: e.At, Scheduler: k.Own(), Shard: e.Shard},
	}
	if !k.Own() {
		out.Cycle.Note = see.NotItsView
	}
	out.Cycle.Aged(a.now())
	snap := run.Snapshot()
	queue := func(key cluster.Key) string {
		if g := snap.GangByKey(key); g != nil {
			return g.Queue
		}
		return ""
	}
	plans, hold := run.Plans(), held(snap)
	for i := range plans {
		for j := range plans[i].Bundles {
			b := &plans[i].Bundles[j]
			st := Step{Action: plans[i].Action, Gang: b.Gang, Queue: queue(b.Gang), Starts: b.Starts}
			for n := range b.Intents {
				in := &b.Intents[n]
				whose := b.Gang
				switch in.Verb {
				case engine.Bind:
					st.Binds++
				case engine.Nominate:
					st.Promises++
				case engine.Evict:
					st.Evicts++
					whose = in.Gang
				}
				if mine(whose) && v.may(in.Namespace) {
					st.Pods = append(st.Pods, PodStep{Verb: fmt.Sprint(in.Verb), Namespace: in.Namespace, Pod: in.Pod, Node: in.Node, To: in.To})
				}
			}
			if b.Eviction != nil {
				st.Cause = cause(b.Eviction, v, s, shares)
			}
			if holds := hold.after(b, queue); shares {
				st.Holds = holds
			}
			if !v.gang(st.Gang) {
				st.Gang = foreign(st.Queue)
			}
			out.Steps = append(out.Steps, st)
		}
	}
	trace := run.Trace()
	for i := range trace.Gangs {
		g := &trace.Gangs[i]
		switch {
		case g.Diagnosis == nil:
		case mine(g.Gang):
			out.Waiting = append(out.Waiting, journal.Reason{Gang: g.Gang, Queue: queue(g.Gang), Reason: g.Diagnosis.Verdict.Reason.Key, Text: s.Words(g.Diagnosis.Verdict.String())})
		default:
			out.Others++
		}
	}
	return out, nil
}

// registry is what a kept cycle's profile stands for.
func (a *Answerer) registry(c *replay.Case) engine.Registry {
	if r, ok := a.cycles.(interface {
		Registers(storageCapacity bool) engine.Registry
	}); ok {
		return r.Registers(c.StorageCapacity)
	}
	return engine.Registry{}
}

// Registers is the registry of cycles of schedulers with or without --schedule-csi-storage.
func (f *Following) Registers(storageCapacity bool) engine.Registry {
	return f.Registry(storageCapacity)
}

// Ledger is what queues used and what they were owed in a time. Amounts are GPU hours. Field names are stable.
type Ledger struct {
	APIVersion string    `json:"apiVersion"`
	Kind       string    `json:"kind"` // Ledger
	From       time.Time `json:"from"`
	To         time.Time `json:"to"`
	// Hours is how much of that time is known.
	Hours  float64       `json:"hours"`
	Queues []LedgerQueue `json:"queues"`
	// Gaps are times of which nothing is known, Hidden how many queues are not told.
	Gaps   []*journal.Entry `json:"gaps,omitempty"`
	Hidden int              `json:"hidden,omitempty"`
}

// LedgerQueue is one queue's account: Used; Owed, its fair share; Above and Below, by how much it used more than its fair share, and less while it asked for it.
type LedgerQueue struct {
	Shard  string  `json:"shard,omitempty"`
	Queue  string  `json:"queue"`
	Parent string  `json:"parent,omitempty"`
	Used   float64 `json:"usedGPUHours"`
	Owed   float64 `json:"owedGPUHours"`
	Above  float64 `json:"aboveGPUHours"`
	Below  float64 `json:"belowGPUHours"`
	// Points are the last of its moments, at most a hundred, for those who draw them.
	Points []LedgerPoint `json:"points,omitempty"`
}

// LedgerPoint is one moment, in GPUs.
type LedgerPoint struct {
	At   time.Time `json:"at"`
	Used float64   `json:"used"`
	Owed float64   `json:"owed"`
}

// ledger adds up the entries of use since ?since=: of all queues for those who may list queues, else of those that gangs of ?namespace= name now, and what is above these.
func (a *Answerer) ledger(q *question) (any, error) { return a.account(q) }

func (a *Answerer) account(q *question) (*Ledger, error) {
	if a.journal == nil {
		return nil, ErrNoJournal
	}
	since, err := a.since(q)
	if err != nil {
		return nil, err
	}
	all := q.viewer.list(groupWork, "queues")
	if all != nil && !errors.Is(all, review.ErrMayNot) {
		return nil, fmt.Errorf("%w: %w", errReview, all)
	}
	own := map[string]bool{}
	if all != nil {
		lists, err := a.queues(q) // refuses without a namespace
		if err != nil {
			return nil, err
		}
		for _, l := range lists.(*List).Items {
			if l, ok := l.(*see.QueueList); ok {
				for i := range l.Items {
					own[l.Items[i].Name] = true
				}
			}
		}
	}
	out := &Ledger{APIVersion: see.APIVersion, Kind: "Ledger", From: since.UTC(), To: a.now().UTC(), Queues: []LedgerQueue{}}
	if err := sum(q.Context(), a.journal, out); err != nil {
		return nil, err
	}
	if all != nil {
		n := len(out.Queues)
		out.Queues = slices.DeleteFunc(out.Queues, func(l LedgerQueue) bool { return !own[l.Queue] })
		out.Hidden = n - len(out.Queues)
	}
	return out, nil
}

// sum adds up what the journal has of the time of a ledger: an entry of use holds until the next one of its shard, or until a gap.
func sum(ctx context.Context, j *journal.Journal, out *Ledger) error {
	type key struct{ shard, queue string }
	type last struct {
		at  time.Time
		use []journal.QueueUse
	}
	now, sums := map[string]*last{}, map[key]*LedgerQueue{}
	known := map[string]time.Duration{}
	spend := func(shard string, to time.Time) {
		l := now[shard]
		if l == nil {
			return
		}
		from := l.at
		if from.Before(out.From) {
			from = out.From
		}
		d := to.Sub(from)
		if l.at = to; d <= 0 {
			return
		}
		known[shard] += d
		for _, u := range l.use {
			k := key{shard, u.Queue}
			q := entry.Or(sums, k, func() *LedgerQueue { return &LedgerQueue{Shard: shard, Queue: u.Queue, Parent: u.Parent} })
			h := d.Hours() / 1000
			q.Used += h * float64(u.Used)
			q.Owed += h * float64(u.FairShare)
			q.Above += h * float64(max(0, u.Used-u.FairShare))
			q.Below += h * float64(max(0, min(u.FairShare, u.Requested)-u.Used))
		}
	}
	err := j.Each(ctx, out.From.Add(-usualSince), func(e *journal.Entry) bool {
		switch {
		case e.At.After(out.To):
		case e.Kind == journal.Use:
			spend(e.Shard, e.At)
			now[e.Shard] = &last{e.At, e.Queues}
			for _, u := range e.Queues {
				if q := sums[key{e.Shard, u.Queue}]; q != nil && !e.At.Before(out.From) {
					q.Points = append(q.Points[max(0, len(q.Points)-99):], LedgerPoint{e.At, float64(u.Used) / 1000, float64(u.FairShare) / 1000})
				}
			}
		case e.Kind == journal.Gap:
			if e.Missing.Why == journal.Away { // otherwise what was known holds, until it is told anew
				for shard := range now { // order: each on its own
					if e.Missing.Since.After(now[shard].at) {
						spend(shard, e.Missing.Since)
					}
				}
				clear(now)
			}
			if !e.At.Before(out.From) && len(out.Gaps) < mostLast {
				out.Gaps = append(out.Gaps, e)
			}
		}
		return true
	})
	if err != nil {
		return err
	}
	for shard := range now { // order: each on its own
		spend(shard, out.To)
	}
	for _, d := range known { // order: the largest
		out.Hours = max(out.Hours, d.Hours())
	}
	for _, q := range sums { // order: sorted below
		out.Queues = append(out.Queues, *q)
	}
	slices.SortFunc(out.Queues, func(a, b LedgerQueue) int {
		return cmp.Or(cmp.Compare(a.Shard, b.Shard), cmp.Compare(a.Queue, b.Queue))
	})
	return nil
}

// outlooks says when gangs of ?namespace= (none: all) are forecast to start.
func (a *Answerer) outlooks(q *question) (any, error) {
	if a.outlook == nil {
		return nil, fmt.Errorf("%w: nor are starts forecast", ErrNoJournal)
	}
	ns, err := namespace(q, q.FormValue("namespace"))
	if err != nil {
		return nil, err
	}
	out := &List{APIVersion: see.APIVersion, Kind: "List", Items: []any{}}
	for _, shard := range a.shards(q) {
		o := a.outlook(shard)
		c, _, err := a.look(q.Context(), shard)
		if o == nil || err != nil {
			continue
		}
		out.Items = append(out.Items, o.Within(c.Scope(q.viewer.may), func(k cluster.Key) bool { return (ns == "" || k.Namespace == ns) && q.viewer.gang(k) }))
	}
	if len(out.Items) == 0 {
		return nil, &see.Refusal{Object: "forecast", Rule: "is not made yet", Missing: true}
	}
	return out, nil
}

// expect adds to an explanation when the gang is forecast to start.
func (a *Answerer) expect(e *see.Explanation, shard string, key cluster.Key, s *see.Scope) {
	if o := a.foretold(shard); o != nil && e.Word != "" {
		e.Start = o.Expect(key, s)
	}
}

// foretold is the latest outlook of a shard; nil for none.
func (a *Answerer) foretold(shard string) *see.Outlook {
	if a.outlook == nil {
		return nil
	}
	return a.outlook(shard)
}

// simulate says what changes would do. The question's body is a [Proposal].
func (a *Answerer) simulate(q *question) (any, error) {
	var sim Proposal
	if err := readBody(q.Request, &sim); err != nil {
		return nil, err
	}
	return a.simulated(q, &sim)
}
