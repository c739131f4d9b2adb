package see

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/muster-scheduler/muster/internal/cluster"
)

// APIVersion is that of everything this package says.
const APIVersion = "see.muster.dev/v1"

// Outlook is when the gangs that wait start.
type Outlook struct {
	APIVersion string    `json:"apiVersion"`
	Kind       string    `json:"kind"` // "Outlook"
	Cluster    string    `json:"cluster,omitempty"`
	At         time.Time `json:"at"` // of the cycle
	Draws      int       `json:"draws"`
	Seed       uint64    `json:"seed"`
	// Horizon is how far the draws look, Past how much of the past arrivals are drawn from; 0 where none is known.
	Horizon time.Duration `json:"horizon"`
	Past    time.Duration `json:"past"`
	// Gangs are those that wait, by namespace and name.
	Gangs []GangOutlook `json:"gangs"`
	// Unknown is how many running gangs there are of which nobody knows how long they run.
	Unknown int `json:"unknownRuntimes,omitempty"`
	// Notes are what a reader must know of the input.
	Notes []Note `json:"notes,omitempty"`
}

// Word is the kind of answer.
type Word string

// The words.
const (
	// Between: Low to High holds it in eight of ten; without an end where High is beyond the horizon.
	Between Word = "between"
	// NotWithinHorizon: half of the draws or more do not start it.
	NotWithinHorizon Word = "not within the horizon"
	// Unknown: half of the draws or more do not start it, and there are running gangs whose runtimes nobody knows.
	Unknown Word = "unknown"
)

// GangOutlook is when one gang starts.
type GangOutlook struct {
	Gang  cluster.Key `json:"gang"`
	UID   string      `json:"uid"`
	Queue string      `json:"queue"`
	Word  Word        `json:"word"`
	// P10, P50 and P90 are the band, scaled by its record; zero for beyond the horizon.
	P10 time.Time `json:"p10,omitzero"`
	P50 time.Time `json:"p50,omitzero"`
	P90 time.Time `json:"p90,omitzero"`
	// Drawn is the band before it was scaled, as waits from the cycle on.
	Drawn Band `json:"drawn"`
	// Never is the part of the draws that do not start it within the horizon, in 0 to 1.
	Never float64 `json:"never"`
	// Runtime is where its own runtime is from.
	Runtime Source `json:"runtime"`
	// Decides is what most draws wait for, "" where they do not agree or nothing is waited for; Part is the part of the draws that start it.
	Decides string  `json:"decides,omitempty"`
	Part    float64 `json:"part,omitempty"`
	// Awaits is the gang whose end that is, nil for none.
	Awaits *cluster.Key `json:"awaits,omitempty"`
	// Held of the last Of such bands held.
	Held int `json:"held"`
	Of   int `json:"of"`
}

// Note is something about the input that an answer depends on.
type Note struct {
	Code   NoteCode `json:"code"`
	Object string   `json:"object,omitempty"`
	Text   string   `json:"text"`
}

// NoteCode is the kind of a Note.
type NoteCode string

// The notes.
const (
	NoRuns          NoteCode = "NoRuns"          // no run has ended yet
	FewRuns         NoteCode = "FewRuns"         // fewer than are needed
	OnlyCensored    NoteCode = "OnlyCensored"    // runs were cut short, and none has ended by itself
	NoArrivals      NoteCode = "NoArrivals"      // nothing came while it was watched
	UnknownRuntimes NoteCode = "UnknownRuntimes" // nobody knows how long some of the running gangs run
	DeadlinePast    NoteCode = "DeadlinePast"    // a gang runs on beyond its deadline
	ClockSetBack    NoteCode = "ClockSetBack"    // the clock was set back while the history watched
	StartAhead      NoteCode = "StartAhead"      // a gang's start lies ahead of the cycle
)

// quantile is the value below which a part p of sorted waits lies, between neighbours in proportion; +Inf for never.
func quantile(sorted []float64, p float64) float64 {
	at := p * float64(len(sorted)-1)
	i := int(at)
	if i+1 >= len(sorted) || at == float64(i) {
		return sorted[i]
	}
	if math.IsInf(sorted[i+1], 1) {
		return sorted[i+1]
	}
	return sorted[i] + (at-float64(i))*(sorted[i+1]-sorted[i])
}

// Text says when the gang starts, in one sentence or two, in the time zone of loc.
func (o *Outlook) Text(g *GangOutlook, loc *time.Location) string {
	var b strings.Builder
	within := fmt.Sprintf("not within %s", o.Horizon)
	if o.Horizon == 24*time.Hour {
		within = "not within a day"
	}
	switch g.Word {
	case Between:
		switch {
		case g.P90.IsZero() && g.P10.IsZero():
			fmt.Fprintf(&b, "%s (9 in 10)", within)
		case g.P90.IsZero():
			fmt.Fprintf(&b, "not before %s (9 in 10)", o.clock(g.P10, loc))
		default:
			fmt.Fprintf(&b, "between %s and %s (8 in 10)", o.clock(g.P10, loc), o.clock(g.P90, loc))
		}
	case Unknown:
		fmt.Fprintf(&b, "unknown: nobody knows how long %d of the running gangs run", o.Unknown)
	default:
		b.WriteString(within)
	}
	if o.Past > 0 {
		fmt.Fprintf(&b, ", if work comes as in the last %s", days(o.Past))
	} else {
		b.WriteString(", if no more work comes")
	}
	if g.Decides != "" {
		fmt.Fprintf(&b, "; most likely when %s", g.Decides)
	}
	if g.Never > 0 && g.Word == Between {
		fmt.Fprintf(&b, "; in %.0f of 100 draws %s", 100*g.Never, within)
	}
	b.WriteByte('.')
	if g.Word == Between {
		if g.Of < trusted {
			fmt.Fprintf(&b, " There is no record of such bands yet (%d).", g.Of)
		} else {
			fmt.Fprintf(&b, " %d of the last %d such bands of queue %s held.", g.Held, g.Of, g.Queue)
		}
	}
	return b.String()
}

// Band says when the gang starts in a column's width, in the time zone of loc: "14:20 to 17:00", which holds for 8 in 10, "after 14:20" and "not within 24h", which hold for 9 in 10, or "unknown".
func (o *Outlook) Band(g *GangOutlook, loc *time.Location) string {
	switch {
	case g.Word == Unknown:
		return string(Unknown)
	case g.Word != Between || g.P10.IsZero() && g.P90.IsZero():
		return "not within " + strings.TrimSuffix(strings.TrimSuffix(o.Horizon.String(), "0s"), "0m")
	case g.P90.IsZero():
		return "after " + o.clock(g.P10, loc)
	}
	return o.clock(g.P10, loc) + " to " + o.clock(g.P90, loc)
}

// clock is a time of day, with the day where it is not the cycle's.
func (o *Outlook) clock(t time.Time, loc *time.Location) string {
	t, at := t.In(loc), o.At.In(loc)
	if t.YearDay() == at.YearDay() && t.Year() == at.Year() {
		return t.Format("15:04")
	}
	return t.Format("Jan 2 15:04")
}

// days says how long a time is, in the unit that fits it.
func days(d time.Duration) string {
	switch {
	case d >= 47*time.Hour:
		return fmt.Sprintf("%.0f days", d.Hours()/24)
	case d >= 2*time.Hour:
		return fmt.Sprintf("%.0f hours", d.Hours())
	}
	return fmt.Sprintf("%.0f minutes", d.Minutes())
}

// ReadOutlook reads a forecast as JSON. What is none is a [Refusal].
func ReadOutlook(text []byte) (*Outlook, error) {
	var o Outlook
	if err := json.Unmarshal(text, &o); err != nil {
		return nil, &Refusal{Field: "the forecast", Rule: "is none: " + err.Error()}
	}
	if o.APIVersion != APIVersion || o.Kind != "Outlook" {
		return nil, &Refusal{Field: "the forecast", Rule: fmt.Sprintf("is of version %.40q and kind %.40q; this version of muster reads %q and %q", o.APIVersion, o.Kind, APIVersion, "Outlook")}
	}
	slices.SortFunc(o.Gangs, func(a, b GangOutlook) int { return compareKeys(a.Gang, b.Gang) })
	return &o, nil
}

// Of returns a gang's outlook; nil for one that does not wait.
func (o *Outlook) Of(k cluster.Key) *GangOutlook {
	i, ok := slices.BinarySearchFunc(o.Gangs, k, func(g GangOutlook, k cluster.Key) int { return compareKeys(g.Gang, k) })
	if !ok {
		return nil
	}
	return &o.Gangs[i]
}

// Expected is what is forecast of one gang, as answers about it have it. Field names are stable.
type Expected struct {
	// At is the cycle that it was forecast from.
	At time.Time `json:"at"`
	// Text says it, in UTC.
	Text string `json:"text"`
	// Band says it in a column's width, as [Outlook.Band] does, in UTC.
	Band string `json:"band"`
	GangOutlook
}

// Expect returns what is forecast of a gang, as a viewer may read it; nil for one of which nothing is.
func (o *Outlook) Expect(k cluster.Key, s *Scope) *Expected {
	own := o.Of(k)
	if own == nil {
		return nil
	}
	g := own.within(s)
	return &Expected{At: o.At, Text: o.Text(&g, time.UTC), Band: o.Band(&g, time.UTC), GangOutlook: g}
}

// within hides the name of who is waited for.
func (g GangOutlook) within(s *Scope) GangOutlook {
	if k := g.Awaits; k != nil && !s.may(k.Namespace) {
		g.Decides, g.Awaits = someoneOf(s.queues[k.Namespace+"/"+k.Name])+" ends", nil
	}
	return g
}

// Within returns the outlook of those gangs that include is true for, as a viewer may read it. Notes are about the whole cluster: those that name a gang which he may not read are left out.
func (o *Outlook) Within(s *Scope, include func(cluster.Key) bool) *Outlook {
	out := *o
	out.Gangs, out.Notes = []GangOutlook{}, nil
	for _, g := range o.Gangs {
		if include(g.Gang) && s.may(g.Gang.Namespace) {
			out.Gangs = append(out.Gangs, g.within(s))
		}
	}
	for _, n := range o.Notes {
		if ns, _, named := strings.Cut(n.Object, "/"); !named || s.may(ns) {
			out.Notes = append(out.Notes, n)
		}
	}
	return &out
}
