// Package minruntime lets gangs run for a while before others may take their room: each queue may say how long its gangs
// are safe from their own queue (preempt) and from other queues (reclaim), counted from the gang's start.
//
// For preempt the victim's queue or the nearest queue above it that states a value decides. For reclaim, method "queue"
// does the same. Method "lca", the default, looks at where the two queues' ways from the top part: a promise among the
// teams of a department does not bind the department towards others. The victim's side of that fork, or the nearest
// queue above it that states a value, decides; under different top-level queues the victim's top-level queue alone does.
// Where no queue states a value the plugin's default holds.
//
// A gang with pods above its minimum still gives those, however young it is: the promise is that what a gang needs to run
// is left alone.
package minruntime

import (
	"fmt"
	"time"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine/ledger"
	"github.com/muster-scheduler/muster/internal/engine/policy"
)

// Name is the plugin's name in a profile.
const Name = "minruntime"

// The plugin's arguments.
const (
	argReclaim = "defaultReclaimMinRuntime"
	argPreempt = "defaultPreemptMinRuntime"
	argMethod  = "reclaimResolveMethod"
)

// Factory declares the plugin. Arguments "defaultReclaimMinRuntime" and "defaultPreemptMinRuntime" are Go durations (default 0s:
// no protection), "reclaimResolveMethod" is lca (the default) or queue.
var Factory = policy.Makes(build, ReasonMinRuntime)

func build(args policy.Arguments) (func(*policy.View) *instance, []string, error) {
	p := &plugin{}
	var err error
	if p.reclaim, err = duration(args, argReclaim); err != nil {
		return nil, nil, err
	}
	if p.preempt, err = duration(args, argPreempt); err != nil {
		return nil, nil, err
	}
	switch method := args[argMethod]; method {
	case "", "lca":
	case "queue":
		p.byQueue = true
	default:
		return nil, nil, fmt.Errorf("argument %q is %q; it must be lca or queue", argMethod, method)
	}
	return p.open, args.Unknown(argReclaim, argPreempt, argMethod), nil
}

func duration(args policy.Arguments, name string) (time.Duration, error) {
	text := args[name]
	if text == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		return 0, fmt.Errorf("argument %q is %q; it must be a duration that is not negative, for instance 90s or 1h30m", name, text)
	}
	return d, nil
}

type plugin struct {
	reclaim, preempt time.Duration // defaults
	byQueue          bool
}

// open opens the plugin for a run.
func (p *plugin) open(v *policy.View) *instance { return &instance{plugin: p, view: v} }

type instance struct {
	*plugin
	view *policy.View
}

// CheckVictim implements policy.VictimFilter: a gang within its minimum runtime gives nothing, unless some pod set of it
// has more than its minimum. Which of its pods may then go is CheckUnit's.
func (i *instance) CheckVictim(r policy.EvictionCause, g *ledger.GangState, _ cluster.Resources, v *ledger.GangState) policy.Verdict {
	until := i.until(r, g, v)
	if until.IsZero() {
		return policy.Verdict{}
	}
	if v.StrayActive() > 0 {
		return policy.Verdict{}
	}
	for s := range v.Sets {
		if v.Sets[s].Leaf && v.Spares(int32(s)) {
			return policy.Verdict{}
		}
	}
	return protected(v, until)
}

// AnyBeneficiary implements policy.AnyBeneficiary: nobody's minimum that might count, of the gang's queue, of those above it or the default,
// protects the gang.
func (i *instance) AnyBeneficiary(r policy.EvictionCause, v *ledger.GangState) bool {
	least, read := i.preempt, preemptOf
	if r == policy.Reclaim {
		least, read = i.reclaim, reclaimOf
	}
	for q := v.Leaf; q != nil; q = q.Parent {
		least = max(least, read(q).Value)
	}
	start := i.view.Snapshot().Past(v.LastStart)
	return start.IsZero() || least <= 0 || !start.Add(least).After(i.view.Snapshot().Now)
}

// CheckUnit implements policy.UnitCheck: nothing brings a pod set of a gang within its minimum runtime below its minimum.
func (i *instance) CheckUnit(r policy.EvictionCause, g *ledger.GangState, _ cluster.Resources, u *ledger.VictimUnit) (string, policy.Verdict) {
	until := i.until(r, g, u.Gang)
	if until.IsZero() {
		return "", policy.Verdict{}
	}
	if u.BelowMinimum {
		return "", protected(u.Gang, until)
	}
	for from := 0; from < len(u.Pods); { // pods of one set are in one run
		to, set := from+1, u.Pods[from].Set
		for to < len(u.Pods) && u.Pods[to].Set == set {
			to++
		}
		if set == cluster.None { // of no set, so no minimum needs it
			from = to
			continue
		}
		if u.Gang.SetActive(set)-int32(to-from) < u.Gang.SetNeed(set) {
			return "", protected(u.Gang, until)
		}
		from = to
	}
	return "", policy.Verdict{}
}

// protected is the answer about thousands of gangs in a search, so it builds no text: the object is the bare name.
func protected(v *ledger.GangState, until cluster.Instant) policy.Verdict {
	return policy.Verdict{Code: policy.Wait, Reason: ReasonMinRuntime, Object: v.Key.Name, WakeAt: until}
}

// until returns when the victim's protection against that cause of g ends; 0 when there is none now.
func (i *instance) until(r policy.EvictionCause, g, v *ledger.GangState) cluster.Instant {
	snap := i.view.Snapshot()
	start := snap.Past(v.LastStart)
	if start.IsZero() || v.Leaf == nil {
		return cluster.Instant{}
	}
	least := time.Duration(0)
	switch r {
	case policy.Preempt:
		least = nearest(v.Leaf, preemptOf, i.preempt)
	case policy.Reclaim:
		least = i.reclaimFor(g.Leaf, v.Leaf)
	}
	if least <= 0 {
		return cluster.Instant{}
	}
	if end := start.Add(least); end.After(snap.Now) {
		return end
	}
	return cluster.Instant{}
}

// reclaimFor returns the minimum runtime of the victim's queue towards the other.
func (i *instance) reclaimFor(beneficiary, victim *ledger.QueueLedger) time.Duration {
	if i.byQueue || beneficiary == nil {
		return nearest(victim, reclaimOf, i.reclaim)
	}
	// Climb to the same height, then together until the parents are one: then victim is the first queue of its way from
	// the top that is not on the other's.
	for victim.Depth > beneficiary.Depth {
		victim = victim.Parent
	}
	for beneficiary.Depth > victim.Depth {
		beneficiary = beneficiary.Parent
	}
	for victim != beneficiary && victim.Parent != beneficiary.Parent {
		victim, beneficiary = victim.Parent, beneficiary.Parent
	}
	if victim.Parent == nil {
		if own := reclaimOf(victim); own.Set {
			return own.Value
		}
		return i.reclaim
	}
	return nearest(victim, reclaimOf, i.reclaim)
}

func preemptOf(q *ledger.QueueLedger) cluster.Maybe[time.Duration] { return q.PreemptMinRuntime }
func reclaimOf(q *ledger.QueueLedger) cluster.Maybe[time.Duration] { return q.ReclaimMinRuntime }

// nearest returns the first stated value from q upwards, or the default.
func nearest(q *ledger.QueueLedger, read func(*ledger.QueueLedger) cluster.Maybe[time.Duration], otherwise time.Duration) time.Duration {
	for ; q != nil; q = q.Parent {
		if m := read(q); m.Set {
			return m.Value
		}
	}
	return otherwise
}
