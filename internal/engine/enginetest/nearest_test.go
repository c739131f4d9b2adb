package enginetest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// rackSite is racks (tier 1) of nodes, all in one HyperNode of tier 2, with gangs of one-CPU pods that run, and one that waits and may have any of these racks.
type rackSite struct {
	action string
	cpus   []int
	racks  [][]int  // nodes
	gangs  []runner // that run
	wants  int
}

type runner struct {
	at  []int // node by pod
	min int
}

func drawRacks(r *rand.Rand) *rackSite {
	s := &rackSite{action: []string{"preempt", "reclaim", "gangpreempt", "gangreclaim"}[r.IntN(4)]}
	for range 2 + r.IntN(2) {
		var rack []int
		for range 1 + r.IntN(3) {
			rack = append(rack, len(s.cpus))
			s.cpus = append(s.cpus, 1+r.IntN(3))
		}
		s.racks = append(s.racks, rack)
	}
	free := slices.Clone(s.cpus)
	for range 3 + r.IntN(4) {
		g := runner{}
		for range 1 + r.IntN(4) {
			if n := r.IntN(len(free)); free[n] > 0 {
				free[n]--
				g.at = append(g.at, n)
			}
		}
		if len(g.at) > 0 {
			g.min = 1 + r.IntN(len(g.at))
			s.gangs = append(s.gangs, g)
		}
	}
	s.wants = 1 + r.IntN(4)
	return s
}

func (s *rackSite) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "Random racks.\n-- options --\nvolcano\n-- volcano-config --\nactions: \"enqueue, allocate, backfill, %s\"\ntiers:\n- plugins:\n  - name: priority\n  - name: gang\n- plugins:\n  - name: predicates\n  - name: capacity\n  - name: nodeorder\n-- yaml --\n", s.action)
	for i, rack := range s.racks {
		fmt.Fprintf(&b, "apiVersion: topology.volcano.sh/v1alpha1\nkind: HyperNode\nmetadata: {name: r%d}\nspec:\n  tier: 1\n  members:\n", i)
		for _, n := range rack {
			fmt.Fprintf(&b, "  - {type: Node, selector: {exactMatch: {name: n%d}}}\n", n)
		}
		b.WriteString("---\n")
	}
	b.WriteString("apiVersion: topology.volcano.sh/v1alpha1\nkind: HyperNode\nmetadata: {name: s}\nspec: {tier: 2, members: [{type: HyperNode, selector: {regexMatch: {pattern: \"^r\"}}}]}\n")
	b.WriteString("---\napiVersion: scheduling.volcano.sh/v1beta1\nkind: Queue\nmetadata: {name: owner}\nspec: {deserved: {cpu: \"100\"}}\n---\napiVersion: scheduling.volcano.sh/v1beta1\nkind: Queue\nmetadata: {name: borrows}\nspec: {}\n-- cluster --\n")
	for i, c := range s.cpus {
		fmt.Fprintf(&b, "node n%d cpu=%d\n", i, c)
	}
	queue := "borrows"
	if strings.HasSuffix(s.action, "preempt") {
		queue = "owner"
	}
	for i, g := range s.gangs {
		var at []string
		for _, n := range g.at {
			at = append(at, fmt.Sprintf("n%d:1", n))
		}
		fmt.Fprintf(&b, "gang v%d volcano queue=%s priority=1 pods=%d min=%d cpu=1 running=%s\n", i, queue, len(g.at), g.min, strings.Join(at, ","))
	}
	fmt.Fprintf(&b, "gang g volcano queue=owner priority=5 pods=%d cpu=1 within=2\n-- run --\ncycle\n-- want --\n", s.wants)
	return b.String()
}

// holds says whether a rack can hold the gang once those of it have gone who may: of each gang those beyond its minimum, or all of them.
func (s *rackSite) holds(rack []int, all bool) bool {
	room := 0
	for _, n := range rack {
		room += s.cpus[n]
	}
	for _, g := range s.gangs {
		here := 0
		for _, n := range g.at {
			if slices.Contains(rack, n) {
				here++
			}
		}
		if room -= here; all {
			room += here
		} else {
			room += min(here, len(g.at)-g.min)
		}
	}
	return room >= s.wants
}

// TestNearestHyperNode: a gang for which others are evicted, and that may have any nodes of a HyperNode of tier 2, is in one of tier 1 where some of
// these can be made to hold it by taking what gangs can do without, or, of the actions that take whole gangs, where one loses its minimum for it anyway, by taking anybody.
func TestNearestHyperNode(t *testing.T) {
	t.Parallel()
	near, far := map[string]int{}, 0
	for seed := range uint64(1000) {
		s := drawRacks(rand.New(rand.NewPCG(seed, 14)))
		sc, err := Parse("random", []byte(s.text()))
		if err != nil {
			t.Fatalf("seed %d: %v\n%s", seed, err, s.text())
		}
		b, err := NewEngine(&sc.Options, Mutation{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		played, err := sc.Play(b)
		if err != nil {
			t.Fatalf("seed %d: %v\n%s", seed, err, s.text())
		}
		told := played[len(played)-1].Got
		var racks []int
		left := make([]int, len(s.gangs))
		plan := strings.NewReplacer("[", " ", "..", " ", "] on n", " ")
		for line := range strings.Lines(told) {
			var v, from, to, node int
			words := strings.Fields(plan.Replace(line))
			if len(words) < 4 || strings.Contains(line, "->") || words[0] != "evict" && words[0] != "nominate" {
				continue
			}
			_, _ = fmt.Sscan(words[2], &from)
			_, _ = fmt.Sscan(words[len(words)-2], &to)
			_, _ = fmt.Sscan(words[len(words)-1], &node)
			for range to - from + 1 {
				if words[0] == "nominate" {
					racks = append(racks, slices.IndexFunc(s.racks, func(rack []int) bool { return slices.Contains(rack, node) }))
				} else if _, err := fmt.Sscanf(words[1], "v%d", &v); err == nil {
					left[v]++
				}
			}
		}
		evicted, breaks := 0, false
		for v, n := range left {
			evicted += n
			breaks = breaks || n > 0 && len(s.gangs[v].at)-n < s.gangs[v].min
		}
		if evicted == 0 {
			continue
		}
		if len(racks) != s.wants {
			t.Fatalf("seed %d: %d pods of %d were read\n%s\n%s", seed, len(racks), s.wants, s.text(), told)
		}
		if bundles := strings.HasPrefix(s.action, "gang"); bundles && breaks && s.holds(slices.Concat(s.racks...), false) {
			t.Errorf("seed %d: a gang loses its minimum, and what gangs can do without would do\n%s\n%s", seed, s.text(), told)
		}
		could := slices.ContainsFunc(s.racks, func(rack []int) bool { return s.holds(rack, breaks && strings.HasPrefix(s.action, "gang")) })
		switch one := len(slices.Compact(slices.Sorted(slices.Values(racks)))) == 1; {
		case could && !one:
			t.Errorf("seed %d: the gang is in racks %v, and one would do\n%s\n%s", seed, racks, s.text(), told)
		case one:
			near[s.action]++
		default:
			far++
		}
	}
	t.Attr("gangs", fmt.Sprintf("in one rack %v, in several as no rack can hold it %d", near, far))
	if len(near) < 4 || far < 30 {
		t.Errorf("in one rack %v, in several %d", near, far)
	}
}
