package scheduler

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/kube/apply"
)

// keptRecords is how many decisions are remembered.
const keptRecords = 1024

// Record is a decision that took pods from their nodes, and what became of it.
type Record struct {
	At       time.Time              `json:"at"`
	Action   string                 `json:"action"`
	Bundle   string                 `json:"bundle"`
	Gang     string                 `json:"gang"` // whom it was for
	Eviction *engine.EvictionRecord `json:"cause"`
	// Pods is how many were to go, Evicted how many of them did.
	Pods    int `json:"pods"`
	Evicted int `json:"evicted"`
	// Spared is why the others did not; "" when all did.
	Spared string `json:"spared,omitempty"`
	// More is how many victims the cause leaves out: the record in an event names the first ones.
	More int `json:"more,omitempty"`
}

// toldVictims is how many victims the record in an event names.
const toldVictims = 32

// brief is the record as JSON for the annotation of an event: of many victims, the first ones; and nothing that is only those's to know
// in whose namespaces it is.
func (r Record) brief(spared string) string {
	r.Spared = spared
	if r.Eviction != nil {
		c := *r.Eviction
		r.More = max(0, len(c.Victims)-toldVictims)
		c.Victims = slices.Clone(c.Victims[:len(c.Victims)-r.More])
		for i := range c.Victims {
			c.Victims[i].UID = ""
		}
		r.Eviction = &c
	}
	text, err := json.Marshal(r)
	if err != nil {
		return "{}" // a record has nothing that JSON cannot say
	}
	return string(text)
}

// sparedBecause is why an eviction was not carried out, in words for whom it was for: the error itself names pods of others, and may be
// what somebody's webhook says of them. "" for nil.
func sparedBecause(err error) string {
	if err == nil {
		return ""
	}
	for _, known := range []error{apply.ErrBlocked, apply.ErrMoved, apply.ErrNoRoom, apply.ErrUndone} {
		if errors.Is(err, known) {
			return known.Error()
		}
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return "it took too long"
	}
	return "an eviction was not taken; the scheduler's log says more"
}

// Records are the latest decisions that evicted. It serves them as JSON, the latest first. It is safe for concurrent use.
type Records struct {
	mu   sync.Mutex
	ring []Record
	next int
}

// add remembers a record, instead of the oldest when there are many.
func (r *Records) add(rec Record) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.ring) < keptRecords {
		r.ring = append(r.ring, rec)
		return
	}
	r.ring[r.next] = rec
	r.next = (r.next + 1) % keptRecords
}

// Latest returns what is remembered, the latest first.
func (r *Records) Latest() []Record {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make([]Record, 0, len(r.ring))
	for i := range r.ring {
		out = append(out, r.ring[(r.next+len(r.ring)-1-i)%len(r.ring)])
	}
	return out
}

// ServeHTTP answers a GET with all that is remembered.
func (r *Records) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	_ = e.Encode(r.Latest()) // the reader has gone
}

// newRecord is what is remembered of an outcome.
func newRecord(o *apply.Outcome, at time.Time) Record {
	rec := Record{
		At: at.UTC(), Action: o.Action, Bundle: o.Bundle.ID, Gang: o.Bundle.Gang.String(), Eviction: o.Bundle.Eviction,
		Pods: countEvictions(&o.Bundle), Evicted: len(o.Evicted),
	}
	if o.Err != nil {
		rec.Spared = o.Err.Error()
	}
	return rec
}

// countEvictions counts the pods that a bundle evicts.
func countEvictions(b *engine.Bundle) (n int) {
	for i := range b.Intents {
		if b.Intents[i].Verb == engine.Evict {
			n++
		}
	}
	return n
}
