package volcano

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/muster-scheduler/muster/api/volcano/keys"
	"github.com/muster-scheduler/muster/api/volcano/scheduling/v1beta1"
	"github.com/muster-scheduler/muster/internal/cluster"
)

// anyZone is what pods say that may run on nodes that are lent for a time, whatever zone these are of. Volcano knows no other value.
const anyZone = "*"

// yields says whether a PodGroup makes way for others: by its annotation, or else its label.
func yields(pg *v1beta1.PodGroup) bool {
	text, said := pg.Annotations[keys.Preemptable]
	if !said {
		text = pg.Labels[keys.Preemptable]
	}
	return truth(text)
}

// budget is how many pods of a PodGroup may be taken at a time; nil where it does not say. Of two values that of how many may be missing counts.
func budget(pg *v1beta1.PodGroup) (*cluster.GangBudget, error) {
	for _, key := range [...]string{keys.JDBMaxUnavailable, keys.JDBMinAvailable} {
		text, said := pg.Annotations[key]
		if !said {
			continue
		}
		number, percent := strings.CutSuffix(text, "%")
		n, err := strconv.ParseInt(number, 10, 32)
		if err != nil || n < 0 || percent && n > 100 {
			return nil, fmt.Errorf("metadata.annotations[%s] is %q; it must be a number from 0 up, or a percentage up to 100%%: it is overlooked, and one pod may be taken at a time", key, brief(text))
		}
		return &cluster.GangBudget{Number: int32(n), Percent: percent, Left: key == keys.JDBMinAvailable}, nil
	}
	return nil, nil
}
