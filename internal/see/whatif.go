package see

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/explain"
	"github.com/muster-scheduler/muster/internal/replay"
	"github.com/muster-scheduler/muster/internal/sim"
)

// The bounds of a what-if.
const (
	MaxChanges = 64
	MaxCycles  = 200  // decisions
	MaxNodes   = 1000 // that are added, in all
)

// Horizon is how far a what-if looks: so many decisions, 1 to MaxCycles, or fewer when the cluster is at rest before; 0 means 1. Nothing
// ends by itself meanwhile: what runs runs on.
type Horizon struct{ Cycles int }

// Consequences are what changes would bring about, compared with what the scheduler does without them. Field names are stable.
type Consequences struct {
	APIVersion string            `json:"apiVersion"`
	Kind       string            `json:"kind"` // "Consequences"
	Cycle      Origin            `json:"cycle"`
	Changes    []*explain.Change `json:"changes"`
	// Cycles is how many decisions were looked at; AtRest says that nothing more would happen after them.
	Cycles int  `json:"cycles"`
	AtRest bool `json:"atRest"`
	// Gains are the gangs that have more pods with room with the changes than without, Loses those that have fewer; by namespace and name.
	Gains []Effect `json:"gains"`
	Loses []Effect `json:"loses"`
	// Evicted counts the pods that are evicted with the changes and without, moved ones left out.
	Evicted Pair `json:"evicted"`
	// Queues are those of which something differs, by name.
	Queues []QueueEffect `json:"queues"`
	// Submitted is what becomes of gangs that the changes bring, in their order.
	Submitted []SubmittedGang `json:"submitted,omitempty"`
}

// SubmittedGang is what becomes of a gang that a change brings. Field names are stable.
type SubmittedGang struct {
	Namespace string `json:"namespace"`
	Gang      string `json:"gang"`
	// Workload is the name of what it was made for; "" for a gang that was written by hand.
	Workload string `json:"workload,omitempty"`
	Queue    string `json:"queue"`
	Pods     int    `json:"pods"`
	Needed   int    `json:"needed"`
	// Placed are those of its pods that have room, or to which room is promised, at the end.
	Placed int `json:"placed"`
	// Word is starting for one that has its minimum then; of others it is what [Explain] would say of them next.
	Word explain.Word `json:"word"`
	// Reason and Message say why it waits, Turn its place in the order of service.
	Reason  string        `json:"reason,omitempty"`
	Message string        `json:"message,omitempty"`
	Turn    *explain.Turn `json:"turn,omitempty"`
}

// Pair is a number without the changes and with them.
type Pair struct {
	Without int `json:"without"`
	With    int `json:"with"`
}

// Effect is a gang that fares otherwise.
type Effect struct {
	Namespace string `json:"namespace,omitempty"`
	Gang      string `json:"gang"`
	Queue     string `json:"queue"`
	// Pods are those that have room, or to which room is promised.
	Pods Pair `json:"pods"`
	// Starts says that it has its minimum only with the changes, Stops only without.
	Starts bool `json:"starts,omitempty"`
	Stops  bool `json:"stops,omitempty"`
}

// Share is GPUs of a queue without the changes and with them, in the notation of Kubernetes.
type Share struct {
	Without string `json:"without"`
	With    string `json:"with"`
}

// QueueEffect is a queue of which something differs: its quota, its fair share, and what it holds at the end, in GPUs.
type QueueEffect struct {
	Queue     string `json:"queue"`
	Quota     Share  `json:"quota"`
	FairShare Share  `json:"fairShare"`
	Used      Share  `json:"used"`
}

// WhatIf says what the scheduler would do if changes were made in a cycle, beside what it does without. Nothing is written anywhere. Too many
// changes, and what they name and is not there, are a [Refusal]. It costs twice as many decisions as the horizon has, and two copies of the
// cluster.
func WhatIf(ctx context.Context, c *Cycle, changes []*explain.Change, h Horizon) (_ *Consequences, err error) {
	h.Cycles = cmp.Or(h.Cycles, 1)
	if h.Cycles < 1 || h.Cycles > MaxCycles {
		return nil, &Refusal{Field: "horizon", Rule: fmt.Sprintf("is %d; it must be 1 to %d decisions", h.Cycles, MaxCycles)}
	}
	run, err := c.Look(ctx)
	if err != nil {
		return nil, err
	}
	defer caught("what if", &err)
	snap := run.Snapshot()
	if err := checkChanges(snap, changes); err != nil {
		return nil, err
	}
	store := cluster.Fork(snap, cluster.Options{Revisits: true})
	for _, k := range changes {
		k.Apply(store, snap.Now)
		k.Describe(snap.Dims)
	}
	without, err := c.play(ctx, &c.Case.Image, h)
	if err != nil {
		return nil, err
	}
	image := store.Snapshot(snap.Now).Image()
	with, err := c.play(ctx, &image, h)
	if err != nil {
		return nil, err
	}
	out := &Consequences{
		APIVersion: APIVersion, Kind: "Consequences", Cycle: c.origin(), Changes: changes, Cycles: max(without.cycles, with.cycles), AtRest: without.rest && with.rest,
		Gains: []Effect{}, Loses: []Effect{}, Queues: []QueueEffect{}, Evicted: Pair{without.evicted, with.evicted},
	}
	out.compareGangs(without.snap, with.snap)
	out.compareQueues(snap.Dims, without.queues, with.queues)
	out.Submitted, err = c.submitted(ctx, changes, &image, with.snap)
	return out, err
}

// submitted says what becomes of the gangs that changes bring, in the cluster with them.
func (c *Cycle) submitted(ctx context.Context, changes []*explain.Change, im *cluster.Image, after *cluster.Snapshot) (out []SubmittedGang, err error) {
	next := &Cycle{Case: &replay.Case{Profile: c.Case.Profile, Image: *im}, Registry: c.Registry}
	for _, k := range changes {
		for _, key := range k.Submitted() {
			g := after.GangByKey(key)
			if g == nil {
				continue
			}
			s := SubmittedGang{Namespace: key.Namespace, Gang: key.Name, Queue: g.Queue, Pods: len(g.Pods), Needed: g.MinPods(), Placed: room(after, g), Word: explain.Starting}
			if name := stripped(key.Name); name != key.Name {
				s.Workload = name
			}
			if s.Placed < s.Needed {
				e, err := Explain(ctx, next, key)
				if err != nil {
					return nil, err
				}
				if s.Word, s.Reason, s.Message, s.Turn = e.Word, e.Reason, e.Message, e.Turn; s.Word == explain.Starting {
					s.Word = explain.InLine // with others that go before it, it had no room at the end
				}
			}
			out = append(out, s)
		}
	}
	return out, nil
}

// checkChanges refuses what cannot be meant.
func checkChanges(snap *cluster.Snapshot, changes []*explain.Change) error {
	if len(changes) == 0 || len(changes) > MaxChanges {
		return &Refusal{Field: "changes", Rule: fmt.Sprintf("are %d; there must be 1 to %d", len(changes), MaxChanges)}
	}
	nodes := 0
	for _, k := range changes {
		names := k.Nodes
		if k.Kind == explain.AddNodes {
			names = []string{k.Node}
			if k.Count < 1 || k.Count > MaxNodes-nodes {
				return &Refusal{Object: "node " + k.Node, Field: "count", Rule: fmt.Sprintf("is %d; 1 to %d nodes more may be added", k.Count, MaxNodes-nodes)}
			}
			nodes += k.Count
		}
		for _, n := range names {
			if snap.NodeByName(n) == nil {
				return &Refusal{Object: "node " + n, Rule: "does not exist"}
			}
		}
		if k.Queue != "" && k.Kind != explain.CreateQueue && snap.QueueByName(k.Queue) == nil {
			return &Refusal{Object: "queue " + k.Queue, Rule: "does not exist"}
		}
		if _, ok := snap.Dims.Index(k.Dimension); k.Dimension != "" && !ok {
			return &Refusal{Object: "queue " + k.Queue, Field: "resource " + k.Dimension, Rule: "is none that this cluster has"}
		}
		for _, key := range k.Submitted() {
			if snap.GangByKey(key) != nil {
				return &Refusal{Object: "gang " + key.String(), Rule: "is there already"}
			}
		}
		if g := k.Gang(); g != (cluster.Key{}) && snap.GangByKey(g) == nil {
			return &Refusal{Object: "gang " + g.String(), Rule: "does not exist"}
		}
	}
	return nil
}

// played is what became of a cluster.
type played struct {
	snap    *cluster.Snapshot
	queues  []engine.QueueTrace // of the last decision
	cycles  int
	rest    bool
	evicted int
}

// play lets the scheduler decide until the horizon or until nothing more happens.
func (c *Cycle) play(ctx context.Context, im *cluster.Image, h Horizon) (*played, error) {
	e, err := engine.New(c.Case.Profile, c.Registry)
	if err != nil {
		return nil, err
	}
	p := &played{}
	o := sim.Options{Engine: e, Cycle: time.Second, Grace: time.Second, Check: func(_ *cluster.Snapshot, plans []engine.Plan, trace *engine.Trace) error {
		p.queues = trace.Queues
		for i := range plans {
			for _, b := range plans[i].Bundles {
				for _, in := range b.Intents {
					if in.Verb == engine.Evict && in.To == "" {
						p.evicted++
					}
				}
			}
		}
		return nil
	}}
	w := sim.NewClusterFrom(o, im, func(*cluster.GangState) time.Duration { return 0 })
	if _, err := w.Decide(ctx); err != nil {
		return nil, err
	}
	more := true
	for p.cycles = 1; p.cycles < h.Cycles && more; p.cycles++ {
		if more, err = w.Step(ctx); err != nil {
			return nil, err
		}
	}
	p.rest = !more || !w.Due() && w.Next() == cluster.Forever
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("what if: %w", err)
	}
	p.snap = w.Store.Snapshot(w.Now())
	return p, nil
}

// room counts the pods of a gang that have room, or to which room is promised.
func room(snap *cluster.Snapshot, g *cluster.Gang) int {
	if g == nil {
		return 0
	}
	n := 0
	for _, id := range g.Pods {
		if p := snap.Pod(id); p.Phase.Active() || p.Phase == cluster.Pending && p.Nominated != "" {
			n++
		}
	}
	return n
}

func (o *Consequences) compareGangs(without, with *cluster.Snapshot) {
	with.EachGang(func(g *cluster.Gang) {
		before := without.GangByKey(g.Key)
		e := Effect{Namespace: g.Key.Namespace, Gang: g.Key.Name, Queue: g.Queue, Pods: Pair{room(without, before), room(with, g)}}
		least := g.MinPods()
		switch {
		case e.Pods.With > e.Pods.Without:
			e.Starts = e.Pods.With >= least && e.Pods.Without < least
			o.Gains = append(o.Gains, e)
		case e.Pods.With < e.Pods.Without:
			e.Stops = e.Pods.Without >= least && e.Pods.With < least
			o.Loses = append(o.Loses, e)
		}
	})
	for _, list := range [][]Effect{o.Gains, o.Loses} {
		slices.SortFunc(list, func(a, b Effect) int {
			return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Gang, b.Gang))
		})
	}
}

func (o *Consequences) compareQueues(dims cluster.Dims, without, with []engine.QueueTrace) {
	gpu := func(r cluster.Resources) string { return dims.FormatOne(cluster.GPU, r.At(cluster.GPU)) }
	for i := range with {
		b := &with[i]
		k := slices.IndexFunc(without, func(q engine.QueueTrace) bool { return q.Name == b.Name })
		if k < 0 {
			continue
		}
		a := &without[k]
		e := QueueEffect{Queue: b.Name, Quota: Share{gpu(a.Quota), gpu(b.Quota)}, FairShare: Share{gpu(a.FairShare), gpu(b.FairShare)}, Used: Share{gpu(a.Allocated), gpu(b.Allocated)}}
		if e.Quota.Without != e.Quota.With || e.FairShare.Without != e.FairShare.With || e.Used.Without != e.Used.With {
			o.Queues = append(o.Queues, e)
		}
	}
	slices.SortFunc(o.Queues, func(a, b QueueEffect) int { return cmp.Compare(a.Queue, b.Queue) })
}

// Within returns the consequences as a viewer may read them: of gangs in namespaces that he may not read no name is told.
func (o *Consequences) Within(s *Scope) *Consequences {
	out := *o
	hide := func(list []Effect) []Effect {
		list = slices.Clone(list)
		for i := range list {
			if e := &list[i]; !s.may(e.Namespace) {
				e.Namespace, e.Gang = "", someoneOf(e.Queue)
			}
		}
		return list
	}
	out.Gains, out.Loses = hide(o.Gains), hide(o.Loses)
	out.Submitted = slices.Clone(o.Submitted)
	for i := range out.Submitted {
		out.Submitted[i].Message = s.words(out.Submitted[i].Message)
	}
	out.Changes = nil
	for _, c := range o.Changes {
		k := *c
		k.Text, k.Object, k.Detail = s.words(c.Text), s.words(c.Object), s.words(c.Detail)
		out.Changes = append(out.Changes, &k)
	}
	return &out
}

// Text is the consequences for people.
func (o *Consequences) Text() string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("if somebody would:")
	for _, c := range o.Changes {
		line("  - %s", c.Text)
	}
	for i := range o.Submitted {
		s := &o.Submitted[i]
		why := ""
		if s.Reason != "" {
			why = fmt.Sprintf(": %s [%s]", s.Message, s.Reason)
		}
		line("%s/%s (queue %s): %s; room for %d of %d pods, %d needed to start%s", s.Namespace, cmp.Or(s.Workload, s.Gang), cmp.Or(s.Queue, "none"), s.Word, s.Placed, s.Pods, s.Needed, why)
	}
	rest := "at rest after"
	if !o.AtRest {
		rest = "as it stands after"
	}
	line("%s %d decisions, compared with the same without:", rest, o.Cycles)
	if len(o.Gains)+len(o.Loses)+len(o.Queues) == 0 && o.Evicted.With == o.Evicted.Without {
		line("  nothing would be different")
		return b.String()
	}
	tell := func(what, whole string, list []Effect, is func(*Effect) bool) {
		for i := range list {
			e := &list[i]
			verb, name := what, e.Gang
			if is(e) {
				verb = whole
			}
			if e.Namespace != "" {
				name = e.Namespace + "/" + e.Gang
			}
			line("  %s %s (queue %s): room for %d pods instead of %d", verb, name, e.Queue, e.Pods.With, e.Pods.Without)
		}
	}
	tell("more for", "starts:", o.Gains, func(e *Effect) bool { return e.Starts })
	tell("less for", "does not run:", o.Loses, func(e *Effect) bool { return e.Stops })
	line("  evicted pods: %d instead of %d", o.Evicted.With, o.Evicted.Without)
	for _, q := range o.Queues {
		line("  queue %s: %s gpu used instead of %s, fair share %s instead of %s, quota %s instead of %s", q.Queue, q.Used.With, q.Used.Without, q.FairShare.With, q.FairShare.Without, q.Quota.With, q.Quota.Without)
	}
	return b.String()
}
