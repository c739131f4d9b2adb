package see

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/muster-scheduler/muster/internal/cluster"
)

// Happening is what became of a gang at some moment.
type Happening string

// The happenings.
const (
	WasMade     Happening = "made"     // the oldest of its pods that are there now was made
	WasGrouped  Happening = "grouped"  // its PodGroup was made
	WasWaiting  Happening = "waits"    // for another reason than before
	WaitsNoMore Happening = "no wait"  // no reason is left
	WasBound    Happening = "bound"    // pods were given a node
	WasStarted  Happening = "starts"   // so many that it has its minimum
	MadeRoom    Happening = "room"     // others were made to give way to it
	WasEvicted  Happening = "evicted"  // pods of it had to give way
	WasForeseen Happening = "forecast" // it started, and forecasts of that were scored
	IsMissing   Happening = "gap"      // what happened meanwhile is not kept
)

// Moment is one line of a [Timeline]. Field names are stable.
type Moment struct {
	At   time.Time `json:"at"`
	What Happening `json:"what"`
	// Text says it for people, without the moment.
	Text string `json:"text"`
	// Pods are how many it is about, 0 for all or none.
	Pods int `json:"pods,omitempty"`
	// Reason is the key of the rule that the gang waits for, or the right by which it was evicted.
	Reason string `json:"reason,omitempty"`
	// By is for whom it had to give way, as the viewer may read it.
	By string `json:"by,omitempty"`
	// Cycle is the number of the journal's entry, by which it can be replayed; 0 for none.
	Cycle uint64 `json:"cycle,omitempty"`
	// Unsure says that the journal has a gap before it: what it tells may have been so earlier.
	Unsure bool `json:"unsure,omitempty"`
}

// Timeline is what became of a gang, the oldest first. Field names are stable.
type Timeline struct {
	// From is the moment from which on nothing is left out that was kept; what the gang lived through before it is not told.
	From time.Time `json:"from"`
	// Omitted is how many moments since then are left out, the oldest, so that the list has an end.
	Omitted int      `json:"omitted,omitempty"`
	Items   []Moment `json:"items"`
}

// Born returns when a gang of the cycle was made: of its PodGroup, and of the oldest of its pods that are there now; zero for what nobody knows. The cycle must have been looked at. O(pods).
func (c *Cycle) Born(key cluster.Key) (group, pod time.Time) {
	first := cluster.Forever
	for _, e := range c.Case.Image.Events {
		switch e := e.(type) {
		case cluster.GangState:
			if e.Key == key && !e.Created.IsZero() {
				group = e.Created.Time().UTC()
			}
		case cluster.PodState:
			if e.Gang == key && !e.Created.IsZero() && e.Created.Before(first) {
				first = e.Created
			}
		}
	}
	if first != cluster.Forever {
		pod = first.Time().UTC()
	}
	return group, pod
}

// With returns the timeline with when the gang was made, each in its place.
func (t *Timeline) With(group, pod time.Time) *Timeline {
	out := *t
	out.Items = slices.Clone(t.Items) // those of the journal stay in the order in which they were written, whatever the clock did
	for _, m := range []Moment{{At: group, What: WasGrouped, Text: "its PodGroup was made"}, {At: pod, What: WasMade, Text: "the oldest of its pods was made"}} {
		if m.At.IsZero() {
			continue
		}
		k := slices.IndexFunc(out.Items, func(x Moment) bool { return !x.At.Before(m.At) })
		if k < 0 {
			k = len(out.Items)
		}
		out.Items = slices.Insert(out.Items, k, m)
	}
	return &out
}

// Text is the timeline for people, a line for each moment.
func (t *Timeline) Text() string {
	var b strings.Builder
	if t == nil {
		return ""
	}
	fmt.Fprintf(&b, "timeline, as far as it is kept since %s:\n", t.From.UTC().Format(time.RFC3339))
	if t.Omitted > 0 {
		fmt.Fprintf(&b, "  %d earlier moments are left out\n", t.Omitted)
	}
	for i := range t.Items {
		m := &t.Items[i]
		unsure := ""
		if m.Unsure {
			unsure = " (or earlier: something is missing before it)"
		}
		fmt.Fprintf(&b, "  %s  %s%s\n", m.At.UTC().Format(time.RFC3339), m.Text, unsure)
	}
	return b.String()
}
