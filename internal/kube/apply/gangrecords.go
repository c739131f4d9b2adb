package apply

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-scheduler/muster/internal/dialect/kai"
	"github.com/muster-scheduler/muster/internal/engine"
)

// The decision about a gang none of whose members needs the binder is one object, its record: written before the first of them is bound, and
// deleted when the last is. From the moment that it is there the decision stands, whoever carries it out (ADR 18).

// recordName is the record of a bundle, by the bundle's id, which is to be deleted.
type recordName struct{ bundle string }

func (n recordName) about() any { return kai.GangRecordName(n.bundle) }

// record makes the decision about a gang stand, after a look at each of its members; or leaves the gang to the binder, when one of them needs
// him, or the record cannot be. Until the record is there nothing is, so that a verdict costs nothing.
func (b *Binds) record(ctx context.Context, run *bundleRun) error {
	r, err := b.whole(ctx, run)
	if err != nil || r == nil {
		return err
	}
	cm, err := r.ConfigMap(b.o.Records)
	if err == nil {
		err = b.client.Create(ctx, cm)
	}
	switch {
	case err == nil, apierrors.IsAlreadyExists(err): // an earlier try made it, and its answer was lost
		run.recorded = true
		return nil
	case !errors.Is(err, kai.ErrTooLarge) && passes(err):
		run.unsure = true
		return fmt.Errorf("create the record of gang %s: %w", run.bundle.Gang, err)
	}
	// No such namespace, no right to it, a quota, or a gang that is too large: the way that is always there.
	if apierrors.IsNotFound(err) && b.homeless.CompareAndSwap(false, true) {
		logr.FromContextOrDiscard(ctx).Info("decisions about gangs are not recorded: there is no such namespace; until it is made gangs have BindRequests, which are more writes", "namespace", b.o.Records)
	}
	logr.FromContextOrDiscard(ctx).V(1).Info("a gang is bound by BindRequests: its decision cannot be recorded", "gang", run.bundle.Gang.String(), "namespace", b.o.Records, "error", err.Error())
	clear(run.made)
	return nil
}

// whole looks at all members of a bundle, says how each is bound, and returns the record of it; nil if one of them needs the binder.
func (b *Binds) whole(ctx context.Context, run *bundleRun) (*kai.GangRecord, error) {
	if err := b.o.Fates.check(run.bundle.DependsOn); err != nil {
		return nil, err
	}
	r := &kai.GangRecord{
		Bundle: run.bundle.ID, Gang: run.bundle.Gang, GangUID: run.bundle.UID, Starts: run.bundle.Starts, Decided: run.submitted, Partition: b.o.Partition,
		Members: make([]kai.Intent, 0, run.size),
	}
	for i := range run.bundle.Intents {
		in := &run.bundle.Intents[i]
		if in.Verb != engine.Bind {
			continue
		}
		p, err := stillWaits(ctx, b.pods, in)
		if err != nil {
			return nil, err
		}
		want := b.want(run, in, p)
		if want.NeedsBinder(p) || in.Namespace != run.bundle.Gang.Namespace {
			clear(run.made)
			return nil, nil
		}
		if err := cmp.Or(b.unasked(ctx, &want), b.o.Latest.checkBind(run.decided, in)); err != nil {
			return nil, err
		}
		r.Members = append(r.Members, want)
		run.made[i].write = func(ctx context.Context) error { return b.bind(ctx, in, p, &want) }
	}
	return r, nil
}

// bound ends a bundle with a record, all of whose members have been bound or given up: those are decided on anew, the others stay.
func (b *Binds) bound(run *bundleRun) {
	b.records.Put(0, recordName{run.bundle.ID})
	done, rest, err := run.bundle, run.bundle, error(nil)
	done.Intents, rest.Intents = nil, nil
	for i := range run.made {
		in := run.bundle.Intents[i]
		if lost := run.made[i].lost; lost != nil {
			rest.Intents, err = append(rest.Intents, in), cmp.Or(err, lost)
		} else {
			done.Intents = append(done.Intents, in)
		}
	}
	if len(rest.Intents) < run.size {
		b.o.Complete(&done, false)
	}
	switch {
	case err == nil:
		b.o.Fates.end(run.bundle.ID, nil)
	case len(rest.Intents) < run.size:
		b.lose(rest, fmt.Errorf("%d of %d pods were bound: %w", run.size-len(rest.Intents), run.size, err))
	default:
		b.lose(run.bundle, err)
	}
}

// erase deletes a record. One that is gone is no error.
func (b *Binds) erase(ctx context.Context, n recordName) error {
	cm := &v1.ConfigMap{}
	cm.Namespace, cm.Name = b.o.Records, kai.GangRecordName(n.bundle)
	if err := b.client.Delete(ctx, cm); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete ConfigMap %s/%s: %w", cm.Namespace, cm.Name, err)
	}
	return nil
}

// Left returns the records that an earlier process of the shard left, the first by name first. It asks the API server itself, and is only
// right to be called while nothing is written. What cannot be read is told of, and stays: a newer version wrote it.
func (b *Binds) Left(ctx context.Context) ([]kai.GangRecord, error) {
	if b.o.Records == "" {
		return nil, nil
	}
	var list v1.ConfigMapList
	err := b.client.List(ctx, &list, client.InNamespace(b.o.Records), client.MatchingLabels(kai.GangRecordsOf(b.o.Partition)))
	if apierrors.IsForbidden(err) { // then there never was one
		logr.FromContextOrDiscard(ctx).Info("decisions about gangs are not recorded: no right to ConfigMaps of the namespace; gangs have BindRequests", "namespace", b.o.Records)
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list ConfigMaps of namespace %s: %w", b.o.Records, err)
	}
	var out []kai.GangRecord
	for i := range list.Items {
		r, err := kai.ReadGangRecord(&list.Items[i], b.o.Partition)
		if err != nil {
			logr.FromContextOrDiscard(ctx).Error(err, "a record is left alone")
			continue
		}
		out = append(out, *r)
	}
	return out, nil
}

// Resume carries a decision on that an earlier process recorded: rest are the members that still wait. Without any it is done.
func (b *Binds) Resume(r *kai.GangRecord, rest []kai.Intent) {
	run := b.again(r, rest)
	if run.size == 0 {
		b.records.Put(0, recordName{r.Bundle})
		return
	}
	b.o.Fates.begin(run.bundle.ID)
	b.work.Put(0, run.each()...)
}

// Withdraw gives a record up of which, as far as the cache knows, nobody has a node. It reports whether that is so; else nothing has
// happened.
func (b *Binds) Withdraw(ctx context.Context, r *kai.GangRecord) (bool, error) {
	for i := range r.Members {
		m := &r.Members[i]
		var p v1.Pod
		err := b.client.Get(ctx, types.NamespacedName{Namespace: m.Namespace, Name: m.Pod}, &p)
		if client.IgnoreNotFound(err) != nil {
			return false, fmt.Errorf("read pod %s/%s: %w", m.Namespace, m.Pod, err)
		}
		if err == nil && p.UID == m.PodUID && p.Spec.NodeName == m.Node {
			return false, nil
		}
	}
	b.records.Put(0, recordName{r.Bundle})
	return true, nil
}

// again is a recorded decision as a bundle in flight.
func (b *Binds) again(r *kai.GangRecord, rest []kai.Intent) *bundleRun {
	run := &bundleRun{
		bundle:    engine.Bundle{ID: r.Bundle, Gang: r.Gang, UID: r.GangUID, Starts: r.Starts},
		submitted: r.Decided, size: len(rest), made: make([]made, len(rest)), recorded: true,
	}
	for i := range rest {
		m := &rest[i]
		run.bundle.Intents = append(run.bundle.Intents, engine.Intent{
			Verb: engine.Bind, Namespace: m.Namespace, Pod: m.Pod, UID: string(m.PodUID), Node: m.Node, GPU: m.GPU, Zones: m.Zones, Charged: m.Charged,
		})
	}
	for i := range rest {
		in, want := &run.bundle.Intents[i], &rest[i]
		run.made[i].write = func(ctx context.Context) error {
			p, err := stillWaits(ctx, b.pods, in)
			if err != nil && (p == nil || p.Spec.NodeName == "" || string(p.UID) != in.UID) {
				return err
			}
			return b.bind(ctx, in, p, want) // which says what it means that it has a node
		}
	}
	return run
}
