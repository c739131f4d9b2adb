package scheduler

import (
	"fmt"
	"maps"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/muster-scheduler/muster/api/kai/keys"
	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/dialect"
	"github.com/muster-scheduler/muster/internal/engine"
)

// Bounds of the monitor: a pair that comes back this often within the window is frozen for as long.
const (
	repeatWindow = time.Hour
	repeatMost   = 3
	repeatPairs  = 100_000
)

// monitor watches that evictions get somewhere. By the rules they do (docs/concepts/disruption.md); should a gang
// nevertheless be evicted for the same other gang again and again, having come back in between while the other stands no
// better, the pair is frozen. It is used by the loop's goroutine.
type monitor struct {
	open  map[string]map[pair]standing // by bundle: how things stood when it was decided
	pairs map[pair]*history
}

// pair is who was evicted for whom.
type pair struct{ taker, giver cluster.Key }

// standing is how many pods with room the two had before the decision.
type standing struct{ taker, giver int }

// history is what is known of a pair.
type history struct {
	before  standing // the last time
	given   int      // pods that the giver lost then
	repeats []time.Time
	last    time.Time
}

// decided notes how the gangs of a plan stood.
func (m *monitor) decided(p *engine.Plan, gangs map[cluster.Key]*cluster.Gang) {
	if p.Evictions() == 0 {
		return
	}
	active := func(k cluster.Key) int {
		if g := gangs[k]; g != nil {
			return int(g.ActivePods)
		}
		return 0
	}
	if m.open == nil || len(m.open) > 10000 { // outcomes that never came
		m.open = map[string]map[pair]standing{}
	}
	for i := range p.Bundles {
		b := &p.Bundles[i]
		if b.Eviction == nil || b.Eviction.Cause.Own() {
			continue
		}
		at := make(map[pair]standing, len(b.Eviction.Victims))
		for j := range b.Eviction.Victims {
			v := b.Eviction.Victims[j].Gang
			at[pair{b.Gang, v}] = standing{active(b.Gang), active(v)}
		}
		m.open[b.ID] = at
	}
}

// carried notes that a bundle was carried out, and returns the pairs that have repeated too often by that.
func (m *monitor) carried(b *engine.Bundle, now time.Time) []pair {
	at := m.open[b.ID]
	delete(m.open, b.ID)
	if len(at) == 0 {
		return nil
	}
	if m.pairs == nil {
		m.pairs = map[pair]*history{}
	}
	if len(m.pairs) > repeatPairs {
		maps.DeleteFunc(m.pairs, func(_ pair, h *history) bool { return now.Sub(h.last) > repeatWindow })
	}
	var out []pair
	for j := range b.Eviction.Victims {
		v := &b.Eviction.Victims[j]
		p := pair{b.Gang, v.Gang}
		was, known := at[p]
		if !known {
			continue
		}
		h := m.pairs[p]
		if h == nil || now.Sub(h.last) > repeatWindow {
			h = &history{}
			m.pairs[p] = h
		} else if was.giver > h.before.giver-h.given && was.taker <= h.before.taker {
			h.repeats = append(h.repeats, now)
			if len(h.repeats) >= repeatMost {
				if now.Sub(h.repeats[len(h.repeats)-repeatMost]) <= repeatWindow {
					out = append(out, p)
				}
				h.repeats = h.repeats[len(h.repeats)-repeatMost+1:]
			}
		}
		h.before, h.given, h.last = was, v.Pods, now
	}
	return out
}

// freeze stops a pair that goes round in circles, and says so.
func (l *Loop) freeze(p pair, uid string, now time.Time) {
	until := now.Add(repeatWindow)
	l.metrics.frozen.Inc()
	l.store.Freeze(p.taker, p.giver, cluster.InstantOf(until))
	text := fmt.Sprintf("pods of %s were evicted for it again and again, and came back each time; they are left alone until %s", p.giver, until.UTC().Format(time.RFC3339))
	l.annotations.Frozen(p.taker, uid, text, repeatWindow)
	l.o.Event(dialect.Group(p.taker, uid), v1.EventTypeWarning, keys.FrozenCondition, text)
}
