package see

import (
	"context"
	"fmt"
	"regexp"
	"runtime/debug"
	"strings"
	"time"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/explain"
	"github.com/muster-scheduler/muster/internal/replay"
)

// Origin says which cycle something was said of.
type Origin struct {
	// Cluster is the UID of the namespace kube-system; "" where nobody knows.
	Cluster string    `json:"cluster,omitempty"`
	At      time.Time `json:"at"`
	// AgeSeconds is how old the cycle was when this was written, see [Explanation.Aged].
	AgeSeconds float64 `json:"ageSeconds"`
	// Scheduler says that this is the scheduler's own view: its plans are on record, and to decide on the cycle again came to the
	// same plans byte for byte. Otherwise somebody looked at the cluster by himself, or another version decides otherwise.
	Scheduler bool `json:"scheduler"`
	// Shard is the partition value of the scheduler whose cycle it is; "" for the one without, and where nobody said.
	Shard string `json:"shard,omitempty"`
	// Note is what else is to be known of it before anything is believed: [NotItsView], or that no news comes from the scheduler.
	Note string `json:"note,omitempty"`
}

// NotItsView is the note of a cycle of which the scheduler's plans are on record and to decide on it again came to others.
const NotItsView = "not the scheduler's view: to decide again on its cycle comes to other plans"

// Explanation is why a gang of a cycle waits, and what would change that. Field names are stable: they are what -o json and -o yaml print.
type Explanation struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Cycle      Origin `json:"cycle"`
	// Start is when it is forecast to start; nil where nobody forecasts, or it does not wait.
	Start *Expected `json:"start,omitempty"`
	// Timeline is what became of it, where somebody asked and a journal is kept; nil otherwise.
	Timeline *Timeline `json:"timeline,omitempty"`
	explain.Explanation
}

// NewCycle returns the cycle of a snapshot on which nobody's decision is on record: of a command that looks at a cluster by itself.
func NewCycle(snap *cluster.Snapshot, p engine.Profile, r engine.Registry) *Cycle {
	return &Cycle{Cluster: replay.Cluster(snap), Registry: r, Case: &replay.Case{Profile: p, Image: snap.Image()}, snap: snap}
}

// Look decides on the cycle again, at the first call; later ones answer from that. It is safe for concurrent use. The error is of a profile
// that cannot be, of an engine that panics, or of an aborted ctx.
func (c *Cycle) Look(ctx context.Context) (_ *explain.Run, err error) {
	defer caught("decide on the cycle", &err)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.run != nil {
		return c.run, nil
	}
	if c.snap == nil {
		c.snap = c.Case.Image.Store(cluster.Options{}).Snapshot(c.Case.Image.Now)
	}
	run, err := explain.Look(ctx, c.snap, func() (*engine.Engine, error) { return engine.New(c.Case.Profile, c.Registry) })
	if err != nil {
		return nil, err
	}
	if c.Case.Decided {
		then, err := replay.Bytes(c.Case.Plans)
		if err != nil {
			return nil, err
		}
		again, err := replay.Bytes(run.Plans())
		if err != nil {
			return nil, err
		}
		c.own = string(then) == string(again)
	}
	c.run = run
	return run, nil
}

// Own says whether the cycle, once it was looked at, is the scheduler's own view; see [Origin].
func (c *Cycle) Own() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.own
}

// caught makes an error of a panic of the engine: to reproduce that may be what a cycle is kept for.
func caught(what string, err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("%s: the engine panics: %v\n%s", what, p, debug.Stack())
	}
}

// origin is what there is to say of the cycle, once it was looked at.
func (c *Cycle) origin() Origin {
	o := Origin{Cluster: c.Cluster, At: c.Case.Image.Now.Time().UTC(), Scheduler: c.own}
	if c.Case.Decided && !c.own {
		o.Note = NotItsView
	}
	return o
}

// Explain says why a gang waits, its turn, and what would let it start were it next. A gang that is not there is a [Refusal].
//
// The first question of a cycle costs a run of the engine and a copy of the cluster, the first of a shape some dozens of runs with that gang
// alone; all others are answered from that. [Explain] does not prove that the gang starts at its turn: [InLine] does.
func Explain(ctx context.Context, c *Cycle, gang cluster.Key) (_ *Explanation, err error) {
	run, err := c.Look(ctx)
	if err != nil {
		return nil, err
	}
	if run.Snapshot().GangByKey(gang) == nil {
		return nil, &Refusal{Object: "gang " + gang.String(), Rule: "does not exist", Missing: true}
	}
	defer caught("explain gang "+gang.String(), &err)
	e, err := run.Gang(ctx, gang)
	if err != nil {
		return nil, err
	}
	e.Workload = workload(c.Works[gang].Kind, gang.Name)
	return &Explanation{APIVersion: APIVersion, Kind: "Explanation", Cycle: c.origin(), Explanation: *e}, nil
}

// InLine is [Explain], with every remedy tried while everybody waits, and those looked for that start the gang at its place in line. It
// costs up to some 160 runs of the engine over the whole cluster.
func InLine(ctx context.Context, c *Cycle, gang cluster.Key) (_ *Explanation, err error) {
	e, err := Explain(ctx, c, gang)
	if err != nil {
		return nil, err
	}
	defer caught("explain gang "+gang.String(), &err)
	if err := c.run.Prove(ctx, &e.Explanation); err != nil {
		return nil, err
	}
	return e, nil
}

// made is the name of a PodGroup that Muster made for a workload: its name, and its UID.
var made = regexp.MustCompile(`^pg-(.+)-[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`)

// workload is what a gang was made for, as its owner calls it; "" where nobody said of which kind it is.
func workload(kind, gang string) string {
	if kind == "" {
		return ""
	}
	return kind + " " + stripped(gang)
}

// Aged says how old the cycle is at a moment.
func (o *Origin) Aged(now time.Time) { o.AgeSeconds = max(0, now.Sub(o.At).Seconds()) }

// Scope says which namespaces somebody may read.
type Scope struct {
	may func(namespace string) bool
	// queue of each gang, and every namespace there is; a cycle's, of all its scopes
	queues     map[string]string
	namespaces map[string]bool
}

// Scope is the scope of a viewer of this cycle who may read the namespaces for which may is true. The cycle must have been looked at.
func (c *Cycle) Scope(may func(namespace string) bool) *Scope {
	c.naming.Do(c.name)
	return &Scope{may: may, queues: c.queues, namespaces: c.namespaces}
}

// name finds the names that texts may have in them.
func (c *Cycle) name() {
	c.queues, c.namespaces = map[string]string{}, map[string]bool{}
	for _, e := range c.Case.Image.Events {
		switch e := e.(type) {
		case cluster.GangState:
			c.queues[e.Key.Namespace+"/"+e.Key.Name], c.namespaces[e.Key.Namespace] = e.Queue, true
		case cluster.PodState:
			c.namespaces[e.Namespace] = true
		case cluster.ObjectState:
			if ns, _, ok := strings.Cut(e.Key, "/"); ok {
				c.namespaces[ns] = true
			}
		}
	}
}

// full is a name with its namespace before it.
var full = regexp.MustCompile(`[a-z0-9][a-z0-9.-]*/[A-Za-z0-9][A-Za-z0-9._-]*`)

// words replaces the names that the viewer may not read.
func (s *Scope) words(text string) string {
	return full.ReplaceAllStringFunc(text, func(name string) string {
		ns, rest, _ := strings.Cut(name, "/")
		if !s.namespaces[ns] || s.may(ns) {
			return name
		}
		end := rest[len(strings.TrimRight(rest, ".")):]
		if q, ok := s.queues[strings.TrimRight(name, ".")]; ok {
			return someoneOf(q) + end
		}
		return "something of another namespace" + end
	})
}

// Names are the names in texts that have the name of a namespace of this cycle before them, and the queue of each that is a gang's, "" for others: what [ScopeOf] takes to hide them when the
// cycle is no longer at hand. Nil for none.
func (s *Scope) Names(texts []string) map[string]string {
	var out map[string]string
	for _, text := range texts {
		for _, name := range full.FindAllString(text, -1) {
			if ns, _, _ := strings.Cut(name, "/"); s.namespaces[ns] {
				if out == nil {
					out = map[string]string{}
				}
				name = strings.TrimRight(name, ".")
				out[name] = s.queues[name]
			}
		}
	}
	return out
}

// ScopeOf is the scope of a viewer for texts with these names in them, which [Scope.Names] found.
func ScopeOf(names map[string]string, may func(namespace string) bool) *Scope {
	s := &Scope{may: may, queues: map[string]string{}, namespaces: map[string]bool{}}
	for name, queue := range names { // order: into maps
		ns, _, _ := strings.Cut(name, "/")
		s.namespaces[ns] = true
		if queue != "" {
			s.queues[name] = queue
		}
	}
	return s
}

// Words is a text as the viewer may read it.
func (s *Scope) Words(text string) string { return s.words(text) }

// Someone is what a gang of a queue is called for those who may not read its name.
func Someone(queue string) string { return someoneOf(queue) }

func someoneOf(queue string) string {
	if queue == "" {
		return "a gang without a queue"
	}
	return "a gang of queue " + queue
}

func (s *Scope) victims(d *explain.Displaced) *explain.Displaced {
	if d == nil {
		return nil
	}
	out := *d
	out.From = nil
	for _, v := range d.From {
		if !s.may(v.Namespace) {
			v.Namespace, v.Gang = "", someoneOf(v.Queue)
		}
		out.From = append(out.From, v)
	}
	return &out
}

// Within returns the explanation as the viewer may read it: of what is in namespaces that he may not read, names are not told, and counts stay.
// It is a function of the value: nothing else that is written of the cycle may pass it by. An explanation of a gang that the viewer may not read
// at all is nobody's to give, and a [Refusal].
func (e *Explanation) Within(s *Scope) (*Explanation, error) {
	if !s.may(e.Namespace) {
		return nil, &Refusal{Object: "gang " + e.Gang, Rule: "is in a namespace whose podgroups you may not get"}
	}
	out := *e
	out.Message, out.Beyond, out.Selector, out.Class = s.words(e.Message), s.words(e.Beyond), s.words(e.Selector), e.Class
	if e.Verdict != nil {
		v := *e.Verdict
		v.Object, v.Detail = s.words(v.Object), s.words(v.Detail)
		out.Verdict = &v
	}
	out.Tally = nil
	for _, a := range e.Tally {
		a.Message = s.words(a.Message)
		out.Tally = append(out.Tally, a)
	}
	out.Tried = nil
	for _, a := range e.Tried {
		a.Message = s.words(a.Message)
		barred := a.Barred
		a.Barred = nil
		for _, b := range barred {
			b.Message = s.words(b.Message)
			names := b.Named
			b.Named = nil
			for _, n := range names {
				b.Named = append(b.Named, s.words(n))
			}
			a.Barred = append(a.Barred, b)
		}
		out.Tried = append(out.Tried, a)
	}
	out.Displaces = s.victims(e.Displaces)
	out.Remedies = nil
	for _, r := range e.Remedies {
		r.Cost = s.victims(r.Cost)
		changes := r.Changes
		r.Changes = nil
		for _, c := range changes {
			k := *c
			k.Text, k.Detail, k.Object = s.words(c.Text), s.words(c.Detail), s.words(c.Object)
			r.Changes = append(r.Changes, &k)
		}
		out.Remedies = append(out.Remedies, r)
	}
	return &out, nil
}
