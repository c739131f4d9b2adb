package journal

import (
	"fmt"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/see"
)

// maxMoments bounds a timeline.
const maxMoments = 200

// Timeline is what entries, in the order in which they were written, tell of a gang of a shard. The entries are what its reader may read: whatever names they have are told. O(entries).
func Timeline(gang cluster.Key, shard string, entries []*Entry) *see.Timeline {
	out := &see.Timeline{Items: []see.Moment{}}
	missing, waits, known := false, "", false
	for _, e := range entries {
		if e.Shard != "" && e.Shard != shard {
			continue
		}
		var here []see.Moment
		tell := func(m see.Moment) {
			m.At, m.Unsure = e.At, missing && e.Kind != Gap
			if e.Kind == Cycle {
				m.Cycle = e.Number
			}
			here = append(here, m)
		}
		if e.Missing != nil {
			tell(see.Moment{What: see.IsMissing, Text: e.Missing.Text()})
		}
		for i := range e.Decisions {
			decided(&e.Decisions[i], gang, tell)
		}
		for i := range e.Reasons {
			r := &e.Reasons[i]
			if r.Gang != gang || known && r.Reason == waits { // told again after nobody was there
				continue
			}
			known, waits = true, r.Reason
			if r.Reason == "" {
				tell(see.Moment{What: see.WaitsNoMore, Text: "waits no more"})
			} else {
				tell(see.Moment{What: see.WasWaiting, Text: "waits: " + r.Text, Reason: r.Reason})
			}
		}
		for i := range e.Starts {
			if s := &e.Starts[i]; e.Kind == Came && s.Gang == gang {
				tell(see.Moment{What: see.WasForeseen, Text: fmt.Sprintf("has started; %d of %d forecasts of that held", s.Held, s.Of)})
			}
		}
		if e.Kind == Gap {
			missing = true
		} else if len(here) > 0 {
			missing = false
		}
		out.Items = append(out.Items, here...)
	}
	if n := len(out.Items) - maxMoments; n > 0 {
		out.Omitted, out.Items = n, out.Items[n:]
	}
	return out
}

// decided tells what a decision did to a gang.
func decided(d *Decision, gang cluster.Key, tell func(see.Moment)) {
	c := d.Cause
	lost := false
	if c != nil {
		for i := range c.Victims {
			v := &c.Victims[i]
			if v.Gang != gang {
				continue
			}
			lost = true
			m := see.Moment{What: see.WasEvicted, Pods: v.Pods, Reason: string(c.Cause), By: d.Gang.String()}
			m.Text = fmt.Sprintf("%s for %s%s", c.Cause, m.By, given(v.Pods, v.Moved, v.Promised))
			if d.Gang == gang {
				m.By, m.Text = "", string(c.Cause)+given(v.Pods, v.Moved, v.Promised)
			}
			if v.Rule != "" {
				m.Text += ", because " + v.Rule
			}
			tell(m)
		}
	}
	if d.Gang != gang {
		return
	}
	switch {
	case c == nil || d.Evicts == 0:
	case c.Cause.Own() && !lost:
		tell(see.Moment{What: see.WasEvicted, Pods: d.Evicts, Reason: string(c.Cause), Text: fmt.Sprintf("released: %d of its pods, fewer than its minimum", d.Evicts)})
	case !c.Cause.Own():
		tell(see.Moment{What: see.MadeRoom, Pods: d.Evicts, Reason: string(c.Cause), Text: fmt.Sprintf("%s: %d pods are made to give way to it", c.Cause, d.Evicts)})
	}
	if d.Binds > 0 {
		m := see.Moment{What: see.WasBound, Pods: d.Binds, Text: fmt.Sprintf("%d pods bound", d.Binds)}
		if d.Starts {
			m.What, m.Text = see.WasStarted, m.Text+": it has its minimum"
		}
		tell(m)
	}
}

// given is what a gang had to give.
func given(pods, moved, promised int) string {
	switch {
	case pods == 0:
		return fmt.Sprintf(": the room promised to %d of its pods", promised)
	case pods == moved:
		return fmt.Sprintf(": %d pods moved", pods)
	case moved > 0:
		return fmt.Sprintf(": %d pods evicted, %d of them moved", pods, moved)
	}
	return fmt.Sprintf(": %d pods evicted", pods)
}

// Text says what is missing, for people.
func (m *Missing) Text() string {
	said := map[Why]string{
		Away: "Nobody kept a journal", Torn: "The last entry before a crash was not written to its end", Damaged: "A file of the journal is damaged",
		Full: "The disk took no more", Slow: "There were more cycles than could be kept", Behind: "The scheduler was ahead of its reader",
		Unreadable: "The scheduler said what this version cannot read", SetBack: "The clock was set back", Other: "A cycle could not be decided on again",
	}[m.Why]
	if said == "" {
		said = string(m.Why)
	}
	if !m.Since.IsZero() {
		said += ", since " + m.Since.UTC().Format("Jan 2 15:04:05 UTC")
	}
	if m.Count > 0 {
		said += fmt.Sprintf("; %d are missing", m.Count)
	}
	return said + "."
}
