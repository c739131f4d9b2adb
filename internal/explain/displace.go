package explain

import (
	"slices"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/engine/policy"
	"github.com/muster-scheduler/muster/internal/engine/recorder"
)

// Attempt is why an action that makes others give way did not help, or several that were stopped alike.
type Attempt struct {
	Action  string `json:"action"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
	// Barred counts the gangs that could not be touched, by the rule that protects them.
	Barred []Barred `json:"barred,omitempty"`
}

// Barred is a number of gangs that one rule protects; Named are the first of them.
type Barred struct {
	Gangs   int      `json:"gangs"`
	Reason  string   `json:"reason"`
	Message string   `json:"message"`
	Named   []string `json:"named,omitempty"`
}

// Displaced is what a run of the scheduler takes from others for the gang.
type Displaced struct {
	// Action is the one that does it; Gangs is from how many gangs.
	Action string `json:"action"`
	Gangs  int    `json:"gangs"`
	// Evicted pods lose their room, GPUs is what they had; Moved ones have room elsewhere.
	Evicted int    `json:"evicted,omitempty"`
	Moved   int    `json:"moved,omitempty"`
	GPUs    string `json:"gpus"`
	// From are the first of the gangs, at most eight.
	From []Victim `json:"from,omitempty"`
}

// Victim is a gang that gives room.
type Victim struct {
	Namespace string `json:"namespace,omitempty"`
	Gang      string `json:"gang"`
	Queue     string `json:"queue"`
	Pods      int    `json:"pods"`
	GPUs      string `json:"gpus"`
}

// named is how many gangs an explanation names.
const named = 8

// String prints "reclaim takes the room of 3 pods and moves 2, of 2 gangs".
func (d *Displaced) String() string {
	s := d.Action
	if d.Evicted > 0 {
		s += " takes the room of " + some(d.Evicted, "pod", "pods")
	}
	if d.Moved > 0 {
		if d.Evicted > 0 {
			s += " and"
		}
		s += " moves " + some(d.Moved, "pod", "pods")
	}
	return s + ", of " + some(d.Gangs, "gang", "gangs")
}

// tried takes over what a run says of the actions that disturb others. Those that are switched off, had nobody to ask, or
// were stopped by what stops the gang anyway have nothing to say.
func tried(o *outcome) []Attempt {
	if o.gang == nil {
		return nil
	}
	var out []Attempt
	for _, t := range o.gang.Tried {
		d := o.gang.Diagnosis
		if t.Verdict.Reason == policy.ReasonSwitchedOff || t.Verdict.Reason == policy.ReasonNoVictims && len(t.Barred) == 0 || d != nil && d.Verdict == t.Verdict {
			continue
		}
		a := Attempt{Action: t.Action, Reason: t.Verdict.Reason.Key, Message: t.Verdict.String()}
		for _, b := range t.Barred {
			a.Barred = append(a.Barred, Barred{Gangs: b.Gangs, Reason: b.Verdict.Reason.Key, Message: b.Verdict.String(), Named: b.Named})
		}
		if k := len(out) - 1; k >= 0 && len(a.Barred)+len(out[k].Barred) == 0 && out[k].Message == a.Message {
			out[k].Action += ", " + a.Action
			continue
		}
		out = append(out, a)
	}
	return out
}

// displacedBy finds what a run takes from others for the gang; nil for nothing.
func displacedBy(o *outcome, key cluster.Key) *Displaced {
	for i := range o.plans {
		for _, b := range o.plans[i].Bundles {
			if b.Gang != key || b.Eviction == nil || b.Eviction.Cause.Own() {
				continue
			}
			d := &Displaced{Action: o.plans[i].Action, Gangs: len(b.Eviction.Victims)}
			for _, v := range b.Eviction.Victims {
				d.Evicted += v.Pods - v.Moved
				d.Moved += v.Moved
				if len(d.From) < named {
					d.From = append(d.From, Victim{Namespace: v.Gang.Namespace, Gang: v.Gang.Name, Queue: v.Queue, Pods: v.Pods, GPUs: o.snap.Dims.FormatOne(cluster.GPU, v.GPU)})
				}
			}
			d.GPUs = o.snap.Dims.FormatOne(cluster.GPU, b.Eviction.Evicted)
			return d
		}
	}
	return nil
}

// The bounds of what is tried instead.
const (
	maxWaits  = 16 // moments at which something may change by itself
	maxRaises = 16 // rules in a row about the queue's share
)

// instead looks for changes after which others make way for the gang, when o says that they do not: to wait, to have a
// higher priority, to be entitled to more. Empty when none is known.
func (w *trial) instead(o *outcome) [][]*Change {
	var out [][]*Change
	for _, way := range []func(*outcome) []*Change{w.wait, w.outrank, w.entitle} {
		if changes := way(o); changes != nil {
			out = append(out, changes)
		}
	}
	return out
}

// outrank finds the PriorityClass with which others of its queue make way for the gang, when it is their priority that protects them.
func (w *trial) outrank(o *outcome) []*Change {
	if !slices.ContainsFunc(o.gang.Tried, func(a engine.Attempt) bool {
		return slices.ContainsFunc(a.Barred, func(b recorder.Barrier) bool { return b.Verdict.Reason.Unblock == policy.UnblockPriority })
	}) {
		return nil
	}
	return w.promote(nil)
}

// wait finds the moment from which time alone helps: a preemption delay is over, or others have had their minimum runtime.
func (w *trial) wait(o *outcome) []*Change {
	at := o.trace.WakeAt
	for range maxWaits {
		if !at.Before(cluster.Forever) {
			return nil
		}
		changes := w.one(Change{Kind: WaitUntil, At: new(at.Time().UTC()), Detail: "when others may make way for it"})
		next := w.try(changes)
		if next.placed() {
			return changes
		}
		if !next.trace.WakeAt.After(at) {
			return nil
		}
		at = next.trace.WakeAt
	}
	return nil
}

// entitle finds the quotas with which the gang's queue may take room back from others.
func (w *trial) entitle(o *outcome) []*Change {
	var changes []*Change
	for range maxRaises {
		i := slices.IndexFunc(o.gang.Tried, func(a engine.Attempt) bool { return a.Verdict.Reason.Unblock == policy.UnblockShare })
		if i < 0 {
			return nil
		}
		v := o.gang.Tried[i].Verdict
		q := o.snap.QueueByName(v.Object)
		dim, known := o.snap.Dims.Index(v.Dim)
		if q == nil || !known || q.Quota.At(dim) == cluster.Unlimited || q.Quota.At(dim) >= v.Need {
			return nil
		}
		bound := w.base.QueueByName(v.Object).Quota.At(dim)
		changes = merge(changes, w.one(Change{
			Kind: RaiseQuota, Queue: v.Object, Dimension: v.Dim, bound: bound, to: v.Need, From: o.snap.Dims.FormatOne(dim, bound),
		}))
		next := w.try(changes)
		if next.placed() {
			return w.minimise(changes)
		}
		if next.gang == nil {
			return nil
		}
		o = &next
	}
	return nil
}
