package ui

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/muster-scheduler/muster/internal/explain"
	"github.com/muster-scheduler/muster/internal/see"
)

// words are those of lists, in the order in which they want somebody's eye; those of gangs for which nothing waits, and which nobody was asked about, come last.
var words = []string{string(explain.Never), string(explain.Blocked), string(explain.InLine), string(explain.Starting), "waits", "runs"}

// said is the one word of a gang in a list.
func said(g see.GangLine) string {
	switch {
	case g.Word != "":
		return string(g.Word)
	case g.Unasked:
		return "waits"
	}
	return "runs"
}

// urgent lists gangs by their words; those of one word stay as they were.
func urgent(list []see.GangLine) []see.GangLine {
	out := slices.Clone(list)
	slices.SortStableFunc(out, func(a, b see.GangLine) int {
		return cmp.Compare(slices.Index(words, said(a)), slices.Index(words, said(b)))
	})
	return out
}

// counted is how many gangs have a word.
type counted struct {
	Word string
	N    int
}

// count says how many gangs of a list have each word that one has.
func count(list []see.GangLine) (out []counted) {
	n := map[string]int{}
	for _, g := range list {
		n[said(g)]++
	}
	for _, w := range words {
		if n[w] > 0 {
			out = append(out, counted{w, n[w]})
		}
	}
	return out
}

// moves says what was done with pods, without what was not.
func moves(binds, promises, evicts int) string {
	var parts []string
	for _, p := range []struct {
		n    int
		what string
	}{{binds, "bound"}, {promises, "promised"}, {evicts, "evicted"}} {
		if p.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", p.n, p.what))
		}
	}
	return cmp.Or(strings.Join(parts, ", "), "nothing to bind")
}

// barWidth is that of a queue's bar, its frame's edges left out.
const barWidth = 168

// bar is a queue's use, drawn beside its quota and its fair share; in the drawing's units.
type bar struct{ Within, Lent, LentAt, Quota, Fair float64 }

// barOf draws what a queue holds of a resource; nil where there is nothing to draw, as without a quota and without use.
func barOf(q see.QueueLine, name string) *bar {
	value := func(m map[string]string) float64 {
		x, err := resource.ParseQuantity(m[name])
		if err != nil { // it is not named, or unlimited
			return 0
		}
		return max(0, x.AsApproximateFloat64())
	}
	quota, fair, used := value(q.Quota), value(q.FairShare), value(q.Used)
	most := max(quota, fair, used)
	if most == 0 {
		return nil
	}
	at := func(x float64) float64 { return float64(int(10*barWidth*x/most)) / 10 }
	return &bar{Within: at(min(used, quota)), Lent: at(max(0, used-quota)), LentAt: 1 + at(min(used, quota)), Quota: at(quota), Fair: 1 + min(at(fair), barWidth-1)}
}
