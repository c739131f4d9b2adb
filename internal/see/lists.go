package see

import (
	"cmp"
	"context"
	"slices"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/explain"
)

// GangLine is a gang in a list. Field names are stable.
type GangLine struct {
	Namespace string        `json:"namespace"`
	Gang      string        `json:"gang"`
	Workload  string        `json:"workload,omitempty"`
	Queue     string        `json:"queue"`
	Priority  int32         `json:"priority"`
	Phase     explain.Phase `json:"phase"`
	Pods      explain.Pods  `json:"pods"`
	// AgeSeconds is how long before the cycle the gang was created.
	AgeSeconds int64 `json:"ageSeconds"`
	// Word, Reason and Message say why it waits, as [Explanation] has them; "" for one for which nothing waits.
	Word    explain.Word  `json:"word,omitempty"`
	Reason  string        `json:"reason,omitempty"`
	Message string        `json:"message,omitempty"`
	Turn    *explain.Turn `json:"turn,omitempty"`
	// Unasked says that it waits, and that there was no time to find out its word.
	Unasked bool `json:"unasked,omitempty"`
	// Start is when it starts, as far as that is forecast.
	Start *Expected `json:"start,omitempty"`

	key cluster.Key
}

// Foretell has those of the gangs that wait say when they start, as an outlook has it and a viewer may read it.
func (l *GangList) Foretell(o *Outlook, s *Scope) {
	for i := range l.Items {
		if g := &l.Items[i]; g.Word != "" || g.Unasked {
			g.Start = o.Expect(g.key, s)
		}
	}
}

// GangList is the gangs of a cycle, by namespace and name.
type GangList struct {
	APIVersion string     `json:"apiVersion"`
	Kind       string     `json:"kind"`
	Cycle      Origin     `json:"cycle"`
	Items      []GangLine `json:"items"`
}

// Gangs lists those of the gangs that include is true for, within a viewer's scope. Those that wait are asked about one by one as long as more says that
// there is time; the first of each shape costs what [Explain] costs. Gangs without pods, and those whose pods have ended, are left out.
func Gangs(ctx context.Context, c *Cycle, s *Scope, include func(cluster.Key) bool, more func() bool) (_ *GangList, err error) {
	run, err := c.Look(ctx)
	if err != nil {
		return nil, err
	}
	defer caught("explain gangs", &err)
	out := &GangList{APIVersion: APIVersion, Kind: "GangList", Cycle: c.origin(), Items: []GangLine{}}
	snap := run.Snapshot()
	var keys []cluster.Key
	snap.EachGang(func(g *cluster.Gang) {
		if !g.Key.Remnant() && s.may(g.Key.Namespace) && include(g.Key) {
			keys = append(keys, g.Key)
		}
	})
	slices.SortFunc(keys, func(a, b cluster.Key) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Face, b.Face))
	})
	for _, k := range keys {
		g := snap.GangByKey(k)
		l := GangLine{
			key: k, Namespace: k.Namespace, Gang: k.Name, Workload: workload(c.Works[k].Kind, k.Name), Queue: g.Queue, Priority: g.Priority,
			AgeSeconds: int64(max(0, snap.Now.Sub(g.Created))) / 1e9,
		}
		if l.Phase, l.Pods = explain.Count(snap, g); l.Phase == explain.Empty || l.Phase == explain.Finished {
			continue
		}
		if l.Pods.Pending+l.Pods.Gated > 0 {
			if l.Unasked = !more(); !l.Unasked {
				e, err := run.Gang(ctx, k)
				if err != nil {
					return nil, err
				}
				l.Word, l.Reason, l.Message, l.Turn = e.Word, e.Reason, s.words(e.Message), e.Turn
			}
		}
		out.Items = append(out.Items, l)
	}
	return out, nil
}
