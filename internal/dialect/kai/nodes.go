package kai

import (
	"strconv"

	v1 "k8s.io/api/core/v1"

	"github.com/muster-scheduler/muster/api/scheduling/v2alpha2"
)

// Blocked says why no node would help a PodGroup: the first reason of its latest scheduling condition, by its key, that nodes do not
// lift, "" for none.
func Blocked(pg *v2alpha2.PodGroup, nodesHelp func(reason string) bool) string {
	var latest *v2alpha2.SchedulingCondition
	last := -1
	for i := range pg.Status.SchedulingConditions {
		c := &pg.Status.SchedulingConditions[i]
		if c.Type != v2alpha2.UnschedulableOnNodePool || c.Status != v1.ConditionTrue {
			continue
		}
		id, err := strconv.Atoi(c.TransitionID)
		if err != nil || id < last {
			continue
		}
		latest, last = c, id
	}
	if latest == nil {
		return ""
	}
	for i := range latest.Reasons {
		if r := string(latest.Reasons[i].Reason); !nodesHelp(r) {
			return r
		}
	}
	return ""
}
