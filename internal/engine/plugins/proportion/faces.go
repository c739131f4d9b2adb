package proportion

import (
	"slices"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine/ledger"
	"github.com/muster-scheduler/muster/internal/fairshare"
)

// Where queues of several faces share a cluster, it is divided between the faces first, as if each were one queue without quota below a root that is
// nobody's: by weight, which is the same for each, and by what each asks for. So none is short for what another does not use. A face then divides over its
// own queues what the others have no claim on; alone, or while nobody else asks for anything, that is the whole cluster.

// faceWeight is the weight of each face.
const faceWeight = 1000

// apart is the parent of a queue that takes no part in a division.
const apart = -2

// split says of which face each queue is, by that of its top one; nil where all are of one.
func split(queues []*ledger.QueueLedger) (of []string, faces []string) {
	of = make([]string, len(queues))
	for k, q := range queues {
		top := q
		for top.Parent != nil {
			top = top.Parent
		}
		face, _ := cluster.SplitQueue(top.Name)
		if of[k] = face; !slices.Contains(faces, face) {
			faces = append(faces, face)
		}
	}
	if len(faces) < 2 {
		return nil, nil
	}
	slices.Sort(faces)
	return of, faces
}

// divideFaces is Divide for queues of several faces, and what each of these has a claim on.
func (p *plugin) divideFaces(in *fairshare.Input, of, faces []string) (fair func(k int) cluster.Resources, claims map[string]cluster.Resources) {
	root := *in
	root.Queues = make([]fairshare.Queue, len(faces))
	for f, face := range faces {
		root.Queues[f] = asOne(in, of, face)
	}
	shares := p.divider.Divide(&root).Clone()
	claims = make(map[string]cluster.Resources, len(faces))
	parts := make(map[string]fairshare.Shares, len(faces))
	for f, face := range faces {
		claims[face] = shares.Of(f)
		part := *in
		part.Total = slices.Clone(in.Total)
		for g := range faces {
			if g != f {
				for d := range part.Total {
					part.Total[d] = max(0, part.Total[d]-shares.Of(g)[d])
				}
			}
		}
		part.Queues = slices.Clone(in.Queues)
		for k := range part.Queues {
			if of[k] != face && part.Queues[k].Parent < 0 {
				part.Queues[k].Parent = apart
			}
		}
		parts[face] = p.divider.Divide(&part).Clone()
	}
	return func(k int) cluster.Resources { return parts[of[k]].Of(k) }, claims
}

// asOne is the queue that a face is below the root: what its top queues ask for together.
func asOne(in *fairshare.Input, of []string, face string) fairshare.Queue {
	q := fairshare.Queue{Parent: -1, UID: face, Request: make([]int64, len(in.Total)), Weight: make([]int64, len(in.Total))}
	for d := range q.Weight {
		q.Weight[d] = faceWeight
	}
	for k := range in.Queues {
		top := &in.Queues[k]
		if of[k] != face || top.Parent >= 0 {
			continue
		}
		for d := range min(len(q.Request), len(top.Request)) {
			asks := top.Request[d]
			if d < len(top.Limit) && top.Limit[d] != fairshare.Unlimited {
				asks = min(asks, top.Limit[d])
			}
			q.Request[d] = min(q.Request[d]+asks, cluster.MaxQuantity)
		}
	}
	return q
}
