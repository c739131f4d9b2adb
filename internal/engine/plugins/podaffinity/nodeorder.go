package podaffinity

import (
	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine/policy"
)

// Weight is the argument of nodeorder that weighs pods' affinities, 2 where it is not said.
const Weight = "podaffinity.weight"

// NodeOrderFactory declares the part of Volcano's nodeorder that is about preferred affinities between pods: kube-scheduler's sum as above, from 0 points for the least that any node has to 100 for
// the most, and none where all are equal, times the argument Weight, a whole number up to 1,000. Divisions are cut to whole points. It stands for what affinities count for gangs of all faces.
var NodeOrderFactory = policy.Makes(func(args policy.Arguments) (func(*policy.View) *attraction, []string, error) {
	by, err := args.Whole(Weight, 2, 1000)
	return func(v *policy.View) *attraction {
		return &attraction{instance: open(v), weight: by, relative: map[int]*relative{}}
	}, nil, err
})

// attraction is affinities between pods in one run.
type attraction struct {
	*instance
	weight   int64
	relative map[int]*relative
}

// relative are the scores of a kind of pods, each by what all are.
type relative struct {
	scores   []int64
	changed  []cluster.NodeID
	read     int // how much of what has changed is in the scores
	low, top int64
}

// Sole implements policy.SoleCompany.
func (*attraction) Sole() bool { return true }

// Kind implements policy.CompanyScore.
func (a *attraction) Kind(p *cluster.Pod) int {
	if a.weight == 0 {
		return 0
	}
	return a.instance.Kind(p)
}

// Company implements policy.CompanyScore. After a change it costs a look at each node.
func (a *attraction) Company(kind int) (scores []int64, changed []cluster.NodeID) {
	k := a.instance.kinds[kind-1]
	a.catchUp(k)
	sums, news := k.sums, k.changed
	r, known := a.relative[kind]
	if known && r.read == len(news) {
		return r.scores, r.changed
	}
	if !known {
		r = &relative{scores: make([]int64, len(sums))}
		a.relative[kind] = r
	}
	nodes := a.view.Snapshot().NodeOrder
	low, top := policy.Bounds(nodes, sums)
	if known && low == r.low && top == r.top {
		nodes = news[r.read:]
	}
	r.low, r.top, r.read = low, top, len(news)
	for _, n := range nodes {
		score := int64(0)
		if low < top {
			score = a.weight * (100 * (sums[n] - low) / (top - low)) * policy.ScorePoint
		}
		if r.scores[n] != score {
			r.scores[n] = score
			r.changed = append(r.changed, n)
		}
	}
	return r.scores, r.changed
}
