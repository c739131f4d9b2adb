package policy

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine/ledger"
)

// listed is a plugin that permits the candidates whose names are in its list; "-" abstains.
type listed string

func (l listed) VotePreemptable(_ *ledger.GangState, _ cluster.Resources, c *Candidate) (Vote, Verdict) {
	switch {
	case l == "-":
		return Abstain, Verdict{}
	case strings.Contains(string(l), c.Pod.Name):
		return Permit, Verdict{}
	}
	return Reject, Verdict{Code: No, Reason: ReasonNoJudge}
}

// decided plays tiers, such as "ab b / c", and returns who may be taken of candidates a, b and c.
func decided(tiers string) string {
	ps, on := &Plugins{Faces: map[string][]*Plugins{}}, []*Candidate(nil)
	for _, name := range []string{"a", "b", "c"} {
		on = append(on, &Candidate{Pod: &cluster.Pod{PodState: cluster.PodState{Name: name}}})
	}
	for _, tier := range strings.Split(tiers, "/") {
		own := &Plugins{}
		for _, list := range strings.Fields(tier) {
			own.Preemptable = append(own.Preemptable, Named[Preemptable]{list, listed(list)})
		}
		ps.Faces[""] = append(ps.Faces[""], own)
	}
	judges, _ := ps.Judges(Preempt, &ledger.GangState{Gang: &cluster.Gang{}}, nil, on)
	out := ""
	for _, c := range on {
		if len(judges) > 0 && !slices.ContainsFunc(judges, func(j Judge) bool { vote, _ := j.Vote(c); return vote != Permit }) {
			out += c.Pod.Name
		}
	}
	return out
}

// TestJudges: lists of one tier are intersected; who abstains is passed over; an empty list drops the tier; an intersection that is empty is begun anew by the next list; the first tier
// with victims decides.
func TestJudges(t *testing.T) {
	t.Parallel()
	for tiers, want := range map[string]string{
		"":               "",
		"ab":             "ab",
		"ab bc":          "b",
		"ab bc / c":      "b",
		"- bc":           "bc",
		"bc - ab":        "b",
		"- - / a":        "a",
		"- / -":          "",
		"x / c":          "c", // an empty list
		"ab x abc / c":   "c", // which ends its tier
		"ab x abc":       "",
		"a b c / ab":     "c", // an empty intersection is begun anew
		"a b / c":        "c", // and is none
		"a b - / c":      "c",
		"a b c ac bc":    "c",
		"a b ab c / abc": "abc",
		"/ / ab":         "ab",
	} {
		if got := decided(tiers); got != want {
			t.Errorf("%q: %q may be taken, want %q", tiers, got, want)
		}
	}
}

// literal is the rule of Volcano's documentation, word by word.
func literal(tiers string) string {
	for _, tier := range strings.Split(tiers, "/") {
		victims := "" // none
		for _, list := range strings.Fields(tier) {
			if list == "-" {
				continue
			}
			if list == "x" {
				victims = ""
				break
			}
			if victims == "" {
				victims = list
				continue
			}
			both := ""
			for _, name := range victims {
				if strings.ContainsRune(list, name) {
					both += string(name)
				}
			}
			victims = both
		}
		if victims != "" {
			return victims
		}
	}
	return ""
}

// TestJudgesLiterally: any tiers decide as the documentation says.
func TestJudgesLiterally(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(4, 2))
	lists := []string{"a", "b", "c", "ab", "ac", "bc", "abc", "x", "-", "-"}
	for range 5000 {
		var tiers []string
		for range 1 + r.IntN(3) {
			tier := ""
			for range r.IntN(5) {
				tier += " " + lists[r.IntN(len(lists))]
			}
			tiers = append(tiers, tier)
		}
		text := strings.Join(tiers, "/")
		if got, want := decided(text), literal(text); got != want {
			t.Fatalf("%q: %q may be taken, want %q", text, got, want)
		}
	}
}
