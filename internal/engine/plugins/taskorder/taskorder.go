// Package taskorder places the pods of one pod set by the number their owner labelled them with: labelled before
// unlabelled, higher first. A label that is not a number counts as none.
package taskorder

import (
	"cmp"
	"strconv"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine/policy"
)

// Name is the plugin's name in a profile.
const Name = "taskorder"

// PriorityLabel is the pod label that holds the number.
const PriorityLabel = "kai.scheduler/task-priority"

// Factory declares the plugin; it takes no arguments.
var Factory = policy.Is(plugin{})

type plugin struct{}

// ComparePods implements policy.PodOrder.
func (plugin) ComparePods(l, r *cluster.Pod) int {
	lp, lok := number(l)
	rp, rok := number(r)
	return cmp.Or(policy.First(lok, rok), cmp.Compare(rp, lp))
}

func number(p *cluster.Pod) (int, bool) {
	s, ok := p.Labels[PriorityLabel]
	if !ok {
		return 0, false
	}
	n, err := strconv.Atoi(s)
	return n, err == nil
}
