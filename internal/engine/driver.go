package engine

import (
	"context"

	"github.com/muster-scheduler/muster/internal/cluster"
)

// Driver takes a Store from one decision to the next. It is the one place where a decision begins to count: the live loop, the
// simulators, the scenarios and the conformance runner differ in how they carry plans out, and in nothing else. One cycle is
//
//	snap := d.Begin(ctx, now)
//	for p := d.Ready(); p != nil; p = d.Ready() {
//		// hand the plan to whoever carries it out
//	}
//	result := d.Advance()
//
// or, for who carries plans out when all are made, Cycle.
//
// What happens when:
//
//   - Begin takes the snapshot that the whole cycle decides on.
//   - Ready lets actions run until one has decided something, and has the Store assume the plan before anybody sees it: no news of
//     its being carried out can come before the assumption. The plan is the caller's from then on. Nil says that no action is left.
//   - Advance has the Store remember what the run found out, and ends the cycle. By then every plan is in the hands of whoever
//     carries it out; it need not have been carried out.
//
// What the caller keeps to:
//
//   - One goroutine calls a Driver and its Store. Of an Engine, and of a Store, one cycle is under way at a time.
//   - Begin, then Ready until it returns nil, then Advance: any other order is a programming error, and panics.
//   - Nothing waits for a network or a disk between Begin and Advance: what is decided is queued. Who has too much queued begins no
//     cycle until there is room.
//   - The Store may learn of events between any two calls; a cycle that is under way does not see them, the next one does.
//   - A bundle that cannot be carried out, or not wholly, is taken back by Bundle.Forget. Until then the Store counts on it, and so
//     do later cycles, until the assumption expires.
//   - When ctx ends, Ready soon returns nil and the trace says that the run was cut short. What was decided stands, and Advance is
//     called as ever.
//   - A panic of Begin, Ready or Advance is a broken invariant of an action or a plugin. Who recovers from it calls Abandon. What
//     the cycle had decided before stands; it has been handed over.
//
// A what-if has no Driver: Engine.Run on a snapshot changes nothing, so that there is nothing to assume or to remember.
type Driver struct {
	engine *Engine
	store  *cluster.Store
	run    *run // nil between cycles
	done   bool // Ready has returned nil

	ran    bool
	seen   uint64          // generation of the Store that was decided on last
	last   cluster.Instant // when
	wakeAt cluster.Instant // Trace.WakeAt of the last cycle
}

// NewDriver returns a driver at its beginning: a cycle is due.
func NewDriver(e *Engine, s *cluster.Store) *Driver {
	return &Driver{engine: e, store: s, wakeAt: cluster.Forever}
}

// Due says whether a cycle at this moment could decide otherwise than the last one: the Store has changed, a time
// has come that a verdict or the Store waits for, or the clock was set back.
func (d *Driver) Due(now cluster.Instant) bool {
	return !d.ran || d.store.Generation() != d.seen || now.Before(d.last) || !d.Wake().After(now)
}

// Wake is when a cycle becomes due by the passing of time alone; cluster.Forever for never.
func (d *Driver) Wake() cluster.Instant { return cluster.Earliest(d.wakeAt, d.store.NextTimer()) }

// Use has another engine decide from the next cycle on, which is due. It is called between cycles, so that a cycle is decided by one profile. What was decided, promised
// and admitted stands; remembered answers go with the engine that gave them.
func (d *Driver) Use(e *Engine) {
	if d.run != nil {
		panic("engine: Use within a cycle")
	}
	d.engine, d.ran = e, false
	d.store.ForgetAnswers()
}

// Skip tells the driver that the last changes of the Store need no cycle.
func (d *Driver) Skip() { d.seen = d.store.Generation() }

// Begin begins a cycle at this moment, due or not, and returns what it decides on.
func (d *Driver) Begin(ctx context.Context, now cluster.Instant) *cluster.Snapshot {
	if d.run != nil {
		panic("engine: Begin within a cycle")
	}
	snap := d.store.Snapshot(now)
	d.run, d.done, d.seen = &run{engine: d.engine, ctx: ctx, snap: snap}, false, snap.Generation
	return snap
}

// Ready returns the next plan, which the Store has assumed; nil when there is none any more. It takes what the actions take.
func (d *Driver) Ready() *Plan {
	if d.run == nil {
		panic("engine: Ready outside a cycle")
	}
	p := d.run.step()
	if p == nil {
		d.done = true
		return nil
	}
	p.assume(d.store, d.run.snap.Now)
	return p
}

// Advance ends the cycle, and returns what the run left besides its plans.
func (d *Driver) Advance() Result {
	if d.run == nil || !d.done {
		panic("engine: Advance before the last plan was taken")
	}
	r := d.run.end()
	r.remember(d.store)
	d.ran, d.last, d.wakeAt, d.run = true, d.run.snap.Now, r.Trace.WakeAt, nil
	return r
}

// Abandon ends a cycle that panicked. Nothing of it is remembered, and the engine starts afresh.
func (d *Driver) Abandon() {
	d.run = nil
	d.engine.forget()
}

// Cycle is a whole cycle: what was decided on, all that was decided, and what the run left besides.
func (d *Driver) Cycle(ctx context.Context, now cluster.Instant) (*cluster.Snapshot, []Plan, Result) {
	snap := d.Begin(ctx, now)
	var plans []Plan
	for p := d.Ready(); p != nil; p = d.Ready() {
		plans = append(plans, *p)
	}
	return snap, plans, d.Advance()
}
