package policy

import (
	"encoding/binary"

	"github.com/muster-scheduler/muster/internal/cluster"
)

// together are several CompanyScores as one: what each says of a node is added up. Pods are of one kind that are of one kind for each of them.
type together struct {
	of    []CompanyScore
	known map[string]int
	kinds []*joint
}

// joint is one kind.
type joint struct {
	kinds   []int // for each of them, 0 for none
	read    []int // how much of what each has changed is in the scores
	scores  []int64
	changed []cluster.NodeID
}

// beside returns two as one; either may be nil.
func beside(a, b CompanyScore) CompanyScore {
	if a == nil {
		return b
	}
	return &together{of: []CompanyScore{a, b}, known: map[string]int{}}
}

// Kind implements CompanyScore.
func (t *together) Kind(p *cluster.Pod) int {
	var room [2 * binary.MaxVarintLen64]byte
	key, none := room[:0], true
	for _, c := range t.of {
		k := c.Kind(p)
		key, none = binary.AppendVarint(key, int64(k)), none && k == 0
	}
	if none {
		return 0
	}
	n, known := t.known[string(key)]
	if !known {
		j := &joint{}
		for _, c := range t.of {
			k, read := c.Kind(p), 0
			if k != 0 {
				scores, changed := c.Company(k)
				if read = len(changed); j.scores == nil {
					j.scores = make([]int64, len(scores))
				}
				for i, x := range scores {
					j.scores[i] += x
				}
			}
			j.kinds, j.read = append(j.kinds, k), append(j.read, read)
		}
		t.kinds = append(t.kinds, j)
		n = len(t.kinds)
		t.known[string(key)] = n
	}
	return n
}

// Company implements CompanyScore.
func (t *together) Company(kind int) (scores []int64, changed []cluster.NodeID) {
	j := t.kinds[kind-1]
	from := len(j.changed)
	for i, c := range t.of {
		if j.kinds[i] != 0 {
			_, news := c.Company(j.kinds[i])
			j.changed = append(j.changed, news[j.read[i]:]...)
			j.read[i] = len(news)
		}
	}
	for _, n := range j.changed[from:] {
		sum := int64(0)
		for i, c := range t.of {
			if j.kinds[i] != 0 {
				scores, _ := c.Company(j.kinds[i])
				sum += scores[n]
			}
		}
		j.scores[n] = sum
	}
	return j.scores, j.changed
}

// companyOfFace is a CompanyScore of a face's own: pods of others have no company.
type companyOfFace struct {
	CompanyScore
	face string
	view *View
}

// Kind implements CompanyScore.
func (c companyOfFace) Kind(p *cluster.Pod) int {
	if !c.view.ofFace(p, c.face) {
		return 0
	}
	return c.CompanyScore.Kind(p)
}

// companyOfRest is the CompanyScore of all faces but some.
type companyOfRest struct {
	CompanyScore
	without []string
	view    *View
}

// Kind implements CompanyScore.
func (c *companyOfRest) Kind(p *cluster.Pod) int {
	for _, face := range c.without {
		if c.view.ofFace(p, face) {
			return 0
		}
	}
	return c.CompanyScore.Kind(p)
}
