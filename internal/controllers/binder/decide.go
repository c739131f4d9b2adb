package binder

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/muster-scheduler/muster/api/kai/keys"
	schedulingv1alpha2 "github.com/muster-scheduler/muster/api/scheduling/v1alpha2"
)

// Verb says what an Action does.
type Verb int

const (
	// Prepare makes ready what the pod needs on its node before it is bound: its claims, its devices.
	Prepare Verb = iota + 1

	// Bind binds the pod.
	Bind

	// Report records that the pod is bound: pod condition, event, status.
	Report

	// Retract takes back what was prepared and records a failed attempt, the last one if Final.
	Retract

	// Drop deletes a request whose pod is gone, after the API server confirmed that it is.
	Drop

	// Discard deletes a request that failed for good, when its record was there long enough to be read.
	Discard
)

// String is the verb in lower case.
func (v Verb) String() string {
	switch v {
	case Prepare:
		return "prepare"
	case Bind:
		return "bind"
	case Report:
		return "report"
	case Retract:
		return "retract"
	case Drop:
		return "drop"
	case Discard:
		return "discard"
	}
	return fmt.Sprintf("Verb(%d)", int(v))
}

// Action is one thing to do for one member.
type Action struct {
	Verb   Verb
	Member *Member

	// Reason is what went wrong, for Retract.
	Reason string

	// Final says that the member is given up, for Retract.
	Final bool

	// Expired says that time is up: if the preparation is not finished now, it failed. For Prepare.
	Expired bool
}

// standing is where a member is between its arrival and its end.
type standing int

const (
	// standDone: bound where it was decided.
	standDone standing = iota
	// standOpen: to be prepared and bound.
	standOpen
	// standAbsent: its pod or node may still appear in the cache.
	standAbsent
	// standStale: there is nothing left to bind, if the API server agrees.
	standStale
	// standGone: there is nothing left to bind, certainly.
	standGone
	// standOver: given up, or to be given up.
	standOver
)

// position is the standing of a member at one time.
type position struct {
	standing standing
	// reason says why, for standStale, standGone and standOver.
	reason string
	// until is when the answer changes by itself, for standAbsent.
	until time.Time
}

// stand says where the member is.
func (m *Member) stand(o Options, now time.Time) position {
	pod, node, grace := m.podMeant(), m.Request.Spec.SelectedNode, m.Seen.Add(o.ArrivalGrace)
	switch {
	case m.Dropped:
		return position{standing: standGone, reason: "the pod is gone"}
	case m.PodUID != "" && m.Pod != nil && pod == nil && (m.PodConfirmed || !now.Before(grace)):
		// Whatever came of it, the request stands in the way of the pod that has its name now.
		return m.vacant("the pod was replaced by another one of that name")
	case pod != nil && pod.Spec.NodeName != "" && pod.Spec.NodeName != node:
		return position{standing: standOver, reason: fmt.Sprintf("the pod is bound to node %s already, %s was chosen", pod.Spec.NodeName, node)}
	case m.Bound, pod != nil && pod.Spec.NodeName != "", m.Request.Status.Phase == schedulingv1alpha2.BindRequestSucceeded:
		return position{standing: standDone}
	case m.Doomed != "":
		return position{standing: standOver, reason: m.Doomed}
	case m.Invalid != "":
		return position{standing: standOver, reason: m.Invalid}
	case pod == nil && !m.PodConfirmed && now.Before(grace):
		return position{standing: standAbsent, until: grace}
	case pod == nil:
		return m.vacant("the pod is gone")
	case pod.DeletionTimestamp != nil:
		return position{standing: standGone, reason: "the pod is being deleted"}
	case pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded:
		return position{standing: standGone, reason: "the pod has ended"}
	case len(pod.Spec.SchedulingGates) > 0:
		return position{standing: standOver, reason: "the pod has scheduling gates"}
	case m.Attempts > 0 && exhausted(m.Request, m.Attempts):
		return position{standing: standOver, reason: m.Problem}
	case !m.NodeSeen && now.Before(grace):
		return position{standing: standAbsent, until: grace}
	case !m.NodeSeen:
		return position{standing: standOver, reason: "node " + node + " is gone"}
	}
	return position{standing: standOpen}
}

// vacant is the position of a member whose pod does not exist, as far as is known.
func (m *Member) vacant(reason string) position {
	if m.PodConfirmed {
		return position{standing: standGone, reason: reason}
	}
	return position{standing: standStale, reason: reason}
}

// ready says that nothing is left to prepare.
func (m *Member) ready() bool { return !m.Needs || m.Prepared }

// startedFor says that the member was bound for its bundle, by this process or an earlier one, and not by somebody else
// who happened to choose the same node.
func (m *Member) startedFor(id string) bool {
	if m.Bound || m.Request.Status.Phase == schedulingv1alpha2.BindRequestSucceeded {
		return true
	}
	pod := m.podMeant()
	return pod != nil && pod.Spec.NodeName != "" && pod.Annotations[keys.BundleLabel] == id
}

// Decision is the answer of Decide.
type Decision struct {
	// Actions are what is to be done now. They may be executed in any order and at the same time.
	Actions []Action

	// Wake is when to ask again although nothing happened. Zero: never.
	Wake time.Time

	// Started says that a member was bound for the bundle.
	Started bool
}

// Decide says what is to be done for a bundle now. It is pure: the caller marks the members that actions are under way
// for as Busy or Reporting, remembers Started, and applies outcomes. Its cost is linear in the bundle's members.
func Decide(b *Bundle, o Options, now time.Time) Decision {
	d := &decider{o: o, now: now, bundle: b, positions: make([]position, len(b.Members)), Decision: Decision{Started: b.Started}}
	busy := false
	for i, m := range b.Members {
		d.positions[i] = m.stand(o, now)
		d.Started = d.Started || m.startedFor(b.Key.ID)
		busy = busy || m.Busy
		if d.positions[i].standing == standDone {
			d.report(m)
		}
		if grace := m.Seen.Add(o.ArrivalGrace); m.Pod != nil && m.podMeant() == nil && now.Before(grace) {
			// Whether the pod was replaced, or the cache is late, is asked when the cache had its time.
			d.at(grace)
		}
	}
	if d.Started {
		d.complete()
		return d.Decision
	}
	if reason := d.hopeless(); reason == "" {
		d.gather()
	} else if !busy {
		// While an action is under way it may yet bind a member; then the bundle is completed instead.
		d.withdraw(reason)
	}
	return d.Decision
}

// decider gathers the answer of one Decide.
type decider struct {
	Decision
	o         Options
	now       time.Time
	bundle    *Bundle
	positions []position
}

// at asks for another look at time t.
func (d *decider) at(t time.Time) {
	if d.Wake.IsZero() || t.Before(d.Wake) {
		d.Wake = t
	}
}

// do adds an action unless it has to wait until then.
func (d *decider) do(a Action, then time.Time) {
	if d.now.Before(then) {
		d.at(then)
		return
	}
	d.Actions = append(d.Actions, a)
}

// report records the success of a member that is bound, once.
func (d *decider) report(m *Member) {
	if !m.Reporting && m.Request.Status.Phase != schedulingv1alpha2.BindRequestSucceeded {
		d.do(Action{Verb: Report, Member: m}, m.RetryRecord)
	}
}

// complete does what is to be done for each member by itself, when the bundle has started.
func (d *decider) complete() {
	for i, m := range d.bundle.Members {
		if m.Busy {
			continue
		}
		switch p := d.positions[i]; p.standing {
		case standAbsent:
			d.at(p.until)
		case standStale, standGone:
			d.drop(m)
		case standOver:
			d.giveUp(m, p.reason)
		case standOpen:
			switch {
			case m.Attempts > m.Recorded:
				d.retract(m)
			case !m.ready():
				d.prepare(m)
			default:
				d.do(Action{Verb: Bind, Member: m}, m.Retry)
			}
		}
	}
}

// drop deletes the request of a pod that is gone.
func (d *decider) drop(m *Member) {
	if !m.Dropped {
		d.do(Action{Verb: Drop, Member: m}, m.RetryRecord)
	}
}

// giveUp records that a member failed for good, and removes the record in the end.
func (d *decider) giveUp(m *Member, reason string) {
	if !m.Closed {
		d.do(Action{Verb: Retract, Member: m, Reason: reason, Final: true}, m.RetryRecord)
		return
	}
	end := m.ClosedAt.Add(d.o.FailedLinger)
	if end.Before(m.RetryRecord) {
		end = m.RetryRecord
	}
	d.do(Action{Verb: Discard, Member: m}, end)
}

// retract records a failed attempt after which another one follows.
func (d *decider) retract(m *Member) {
	d.do(Action{Verb: Retract, Member: m, Reason: m.Problem}, m.RetryRecord)
}

// lookAgain is how long a preparation that goes on by itself is left alone without news. What it waits for announces
// itself; this is for whatever does not, so that nobody waits for PrepareTimeout in vain. A look reads caches only.
const lookAgain = 5 * time.Second

// prepare begins or continues the preparation of a member.
func (d *decider) prepare(m *Member) {
	a := Action{Verb: Prepare, Member: m}
	if !m.PrepareSince.IsZero() {
		end := m.PrepareSince.Add(d.o.PrepareTimeout)
		a.Expired = !d.now.Before(end)
		if !a.Expired {
			d.at(end)
			if m.Waiting {
				d.do(a, m.Looked.Add(lookAgain))
				return
			}
		}
	}
	d.do(a, m.Retry)
}

// hopeless says why a bundle of which no member is bound cannot be executed, if it cannot.
func (d *decider) hopeless() string {
	b, n := d.bundle, len(d.bundle.Members)
	for i, m := range b.Members {
		switch p := d.positions[i]; {
		case p.standing != standOver && p.standing != standGone:
		case m.Doomed != "" || n == 1 && b.Size <= 1:
			// What the member was given up for says already which bundle it was and who was to blame.
			return p.reason
		default:
			return fmt.Sprintf("bundle %s is withdrawn: pod %s: %s", b.Key, m.name(), p.reason)
		}
	}
	switch {
	case b.Conflict != "":
		return fmt.Sprintf("bundle %s is withdrawn: %s", b.Key, b.Conflict)
	case n > b.Size:
		return fmt.Sprintf("bundle %s is withdrawn: it has %d requests, its size is %d", b.Key, n, b.Size)
	case b.Complete && n < b.Size:
		return fmt.Sprintf("bundle %s is withdrawn: %d of its %d requests were deleted before any was executed", b.Key, b.Size-n, b.Size)
	case n < b.Size && !d.now.Before(b.LastArrival.Add(d.o.BundleTimeout)):
		return fmt.Sprintf("bundle %s is withdrawn: %d of its %d requests arrived within %v", b.Key, n, b.Size, d.o.BundleTimeout)
	}
	return ""
}

// withdraw gives up every member of a bundle of which none is bound.
func (d *decider) withdraw(reason string) {
	for i, m := range d.bundle.Members {
		switch d.positions[i].standing {
		case standStale, standGone:
			d.drop(m)
		case standDone:
			// Somebody else bound it where we would have; there is nothing to withdraw.
		default:
			d.giveUp(m, reason)
		}
	}
}

// gather waits for a bundle to be complete, then for all to be prepared, then binds.
func (d *decider) gather() {
	b := d.bundle
	complete := len(b.Members) == b.Size
	if !complete {
		d.at(b.LastArrival.Add(d.o.BundleTimeout))
	}
	ready := complete
	for i, m := range b.Members {
		switch p := d.positions[i]; {
		case p.standing == standDone:
		case p.standing == standAbsent:
			ready = false
			d.at(p.until)
		case p.standing == standStale:
			// The others wait for the API server's word on it.
			ready = false
			if !m.Busy {
				d.drop(m)
			}
		case m.Busy:
			// Binds under way were begun when all were ready; a preparation under way is not finished.
			ready = ready && m.ready()
		case m.Attempts > m.Recorded:
			ready = ready && !m.Needs
			d.retract(m)
		case !m.ready():
			ready = false
			if complete {
				d.prepare(m)
			}
		}
	}
	if !ready {
		return
	}
	for i, m := range b.Members {
		if d.positions[i].standing == standOpen && !m.Busy && m.Attempts <= m.Recorded {
			d.do(Action{Verb: Bind, Member: m}, m.Retry)
		}
	}
}
