package scheduler

import (
	"context"
	"slices"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/dialect/kai"
	"github.com/muster-scheduler/muster/internal/kube/apply"
)

// resumedStands is how long a decision that was taken over is taken for granted: as long as one of our own.
const resumedStands = 2 * time.Minute

// resume takes over the decisions about whole gangs that an earlier process recorded and did not carry out (ADR 18). It is called before the
// first cycle, and when it returns their members hold their room.
func (l *Loop) resume(ctx context.Context) error {
	left, err := l.binds.Left(ctx)
	if err != nil || len(left) == 0 {
		return err
	}
	// The latest decision about a pod counts.
	slices.SortStableFunc(left, func(a, b kai.GangRecord) int { return b.Decided.Compare(a.Decided) })
	pods := map[types.UID]*cluster.Pod{}
	for i := range left {
		for j := range left[i].Members {
			pods[left[i].Members[j].PodUID] = nil
		}
	}
	l.snapshot().EachPod(func(p *cluster.Pod) {
		if _, asked := pods[types.UID(p.UID)]; asked {
			pods[types.UID(p.UID)] = p
		}
	})
	for i := range left {
		if err := l.takeOver(ctx, &left[i], pods); err != nil {
			return err
		}
	}
	return nil
}

// takeOver judges one record. pods are as they were before any was taken over.
func (l *Loop) takeOver(ctx context.Context, r *kai.GangRecord, pods map[types.UID]*cluster.Pod) error {
	var waits []kai.Intent
	stand := 0
	for i := range r.Members {
		m := &r.Members[i]
		switch p := pods[m.PodUID]; {
		case p == nil:
		case p.PodState.NodeName == m.Node && p.Phase > cluster.Binding:
			stand++
		case l.store.Assume(string(m.PodUID), m.Node, nil, cluster.InstantOf(time.Now().Add(resumedStands))):
			if m.Zones != nil {
				l.store.AssumeZones(string(m.PodUID), m.Zones)
			}
			waits = append(waits, *m)
		}
	}
	snap := l.snapshot()
	waits = slices.DeleteFunc(waits, func(m kai.Intent) bool {
		if apply.Fits(snap, m.Node, pods[m.PodUID].Class.Requests) == nil {
			return false
		}
		l.store.Forget(string(m.PodUID))
		snap = l.snapshot() // in which the next on its node may have room
		return true
	})
	log := logr.FromContextOrDiscard(ctx).WithValues("gang", r.Gang.String(), "bundle", r.Bundle, "members", len(r.Members), "bound", stand, "waiting", len(waits))
	if lost := len(r.Members) - stand - len(waits); stand == 0 && lost > 0 {
		given, err := l.binds.Withdraw(ctx, r)
		if err != nil {
			return err
		}
		if given {
			for i := range waits {
				l.store.Forget(string(waits[i].PodUID))
			}
			log.Info("a decision that an earlier process recorded does not hold any more, and is made anew")
			return nil
		}
	}
	if r.Starts && len(waits) > 0 {
		l.store.Started(r.Gang)
	}
	log.Info("a decision that an earlier process recorded is carried on")
	l.binds.Resume(r, waits)
	return nil
}

// snapshot is the cluster as the store has it now.
func (l *Loop) snapshot() *cluster.Snapshot { return l.store.Snapshot(cluster.InstantOf(time.Now())) }
