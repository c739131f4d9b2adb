package scheduler

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"

	"github.com/muster-scheduler/muster/api/kai/keys"
	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/dialect"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/engine/recorder"
	"github.com/muster-scheduler/muster/internal/kube/apply"
)

// promiseAfterRestart is how long a promise of an earlier process stands from our start on.
const promiseAfterRestart = 10 * time.Minute

// restore takes over what an earlier process left.
func (l *Loop) restore(ctx context.Context) error {
	if err := l.statuses.Restore(ctx); err != nil {
		return err
	}
	promises, err := l.nominations.Restore(ctx)
	if err != nil {
		return err
	}
	l.feed.Drain(l.store)
	until := cluster.InstantOf(time.Now().Add(promiseAfterRestart))
	for _, p := range promises {
		l.store.HoldFor(p.UID, p.Node, until)
	}
	return l.resume(ctx)
}

// sooner returns the earlier of two times, of which the zero time is none.
func sooner(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// evicted takes in what became of bundles that evict. One that was not carried out whole is forgotten, but for the pods
// that are going, and whom it was for waits a little.
func (l *Loop) evicted(log logr.Logger) {
	for _, o := range l.evictions.Outcomes() {
		now := time.Now()
		if o.Err != nil && o.Bundle.Eviction.Cause != engine.Repair {
			last := o.Bundle.Forget(l.store, func(uid string) bool { return o.Evicted[uid] })
			for i := range o.Bundle.Intents {
				if in := &o.Bundle.Intents[i]; last && in.Verb == engine.Nominate {
					l.postpone(in.UID)
				}
			}
		} // what could not be repaired is tried again when the assumption ends
		if o.Err != nil {
			l.metrics.failedBundles.Inc()
			if !errors.Is(o.Err, apply.ErrMoved) && !errors.Is(o.Err, apply.ErrBlocked) && !errors.Is(o.Err, apply.ErrUndone) {
				log.Info("evictions were not carried out", "gang", o.Bundle.Gang.String(), "bundle", o.Bundle.ID, "error", o.Err.Error())
			}
		}
		l.metrics.evicted(&o)
		rec := newRecord(&o, now)
		l.o.Records.add(rec)
		l.tell(&o, &rec, now)
		if o.Err == nil {
			for _, pair := range l.repeats.carried(&o.Bundle, now) {
				l.freeze(pair, o.Bundle.UID, now)
			}
		}
	}
}

// tell tells the gangs concerned, in events and annotations. One event of each decision carries its record: the one about
// whom it was for, or, of a repair, the one about the gang itself.
func (l *Loop) tell(o *apply.Outcome, rec *Record, now time.Time) {
	b := &o.Bundle
	spared := sparedBecause(o.Err)
	decision := map[string]string{keys.DecisionAnnotation: rec.brief(spared)}
	gone := map[cluster.Key]int{}
	for i := range b.Intents {
		if in := &b.Intents[i]; in.Verb == engine.Evict && o.Evicted[in.UID] {
			gone[in.Gang]++
		}
	}
	for i := range b.Eviction.Victims {
		v := &b.Eviction.Victims[i]
		n := gone[v.Gang]
		if n == 0 {
			continue
		}
		l.annotations.Set(v.Gang, v.UID, keys.LastEvictionAnnotation, cluster.InstantOf(now))
		note := victimNote{v.Gang, b.Gang, v.UID, o.Action, v.Rule, n}
		switch cause := b.Eviction.Cause; cause {
		case engine.Preempt, engine.Reclaim: // the room is for others, who wait for it; of the victims there may be thousands
			l.o.Later(func() { l.tellVictim(&note, cause, nil) })
		default:
			l.tellVictim(&note, cause, decision)
		}
	}
	switch {
	case b.Eviction.Cause.Own():
	case o.Err != nil:
		l.o.Annotated(dialect.Group(b.Gang, b.UID), keys.EventEvictionsSpared, fmt.Sprintf("%s: %d pods were spared: %s", o.Action, countEvictions(b)-len(o.Evicted), spared), decision)
	default:
		l.o.Annotated(dialect.Group(b.Gang, b.UID), keys.EventRoomMade, fmt.Sprintf("%s: %d pods of %d gangs leave", o.Action, len(o.Evicted), len(gone)), decision)
	}
}

// victimNote is what a gang is told of pods of it that were evicted. Thousands may wait to be said.
type victimNote struct {
	gang, taker  cluster.Key
	uid          string
	action, rule string
	pods         int
}

// tellVictim tells a gang, in an event, that pods of it were evicted; decision is the record of why, which the event carries where nobody else is told of it.
func (l *Loop) tellVictim(n *victimNote, cause engine.EvictionCause, decision map[string]string) {
	text := fmt.Sprintf("%d pods evicted by %s for %s", n.pods, n.action, n.taker)
	annotations := map[string]string{
		keys.EvictedPodsAnnotation: strconv.Itoa(n.pods), keys.EvictorActionAnnotation: n.action,
		keys.EvictorPodGroupAnnotation: n.taker.Name, keys.EvictorNamespaceAnnotation: n.taker.Namespace,
	}
	if cause.Own() {
		text = fmt.Sprintf("%d pods released by %s", n.pods, n.action)
		maps.Copy(annotations, decision)
	}
	if n.rule != "" {
		text += ": " + n.rule
	}
	l.o.Annotated(dialect.Group(n.gang, n.uid), keys.EventEvict, text, annotations)
}

// tellRisks tells the owners of gangs, in events, that pods hold room otherwise than the gang reads: once while it is so.
func (l *Loop) tellRisks(t *engine.Trace) {
	if len(t.Risks)+len(l.risks) == 0 || t.Truncated {
		return
	}
	now := make(map[riskOf]struct{}, len(t.Risks))
	for i := range t.Risks {
		r := &t.Risks[i]
		of := riskOf{r.UID, r.Kind, r.Queue}
		now[of] = struct{}{}
		if _, told := l.risks[of]; !told {
			l.o.Event(dialect.Group(r.Gang, r.UID), v1.EventTypeWarning, keys.EventRoomAtRisk, r.String())
		}
	}
	l.risks = now
}

// riskOf is a risk that was told of.
type riskOf struct {
	uid   string
	kind  recorder.RiskKind
	queue string
}

// tellStale has gangs carry since when they have had too few pods.
func (l *Loop) tellStale(t *engine.Trace) {
	for i := range t.Stale {
		s := &t.Stale[i]
		since, told := l.stale[s.UID]
		switch {
		case told && since == s.Since:
			continue
		case s.Since.IsZero():
			delete(l.stale, s.UID)
		default:
			l.stale[s.UID] = s.Since
			l.o.Event(dialect.Group(s.Gang, s.UID), v1.EventTypeNormal, keys.EventStaleGang, "it has fewer pods than its minimum")
		}
		l.annotations.Set(s.Gang, s.UID, keys.StaleSinceAnnotation, s.Since)
	}
	if len(l.stale) > 10000 { // gangs that are gone; the others are told once more
		clear(l.stale)
	}
}
