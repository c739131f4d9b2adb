package volcano

import (
	"fmt"
	"slices"
	"strings"

	"github.com/muster-scheduler/muster/api/volcano/keys"
	"github.com/muster-scheduler/muster/api/volcano/scheduling/v1beta1"
	"github.com/muster-scheduler/muster/internal/cluster"
)

// company is what a PodGroup says of which tasks would rather be on one node; nil for nothing. Names that are empty are left out. Where there are too many of them, none
// counts.
func company(pg *v1beta1.PodGroup) (*cluster.Company, error) {
	var c cluster.Company
	left := cluster.MaxCompany
	for _, part := range [...]struct {
		key  string
		into *[][]string
	}{{keys.TaskTopologyAffinity, &c.Together}, {keys.TaskTopologyAntiAffinity, &c.Apart}} {
		for group := range strings.SplitSeq(pg.Annotations[part.key], ";") {
			names := listed(group, &left)
			if left < 0 {
				return nil, tooMany(part.key)
			}
			if len(names) > 0 {
				*part.into = append(*part.into, names)
			}
		}
	}
	if c.Order = listed(pg.Annotations[keys.TaskTopologyOrder], &left); left < 0 {
		return nil, tooMany(keys.TaskTopologyOrder)
	}
	if len(c.Together)+len(c.Apart)+len(c.Order) == 0 {
		return nil, nil
	}
	return &c, nil
}

func tooMany(key string) error {
	return fmt.Errorf("metadata.annotations[%s] has too many names: of more than %d in all, what the annotations of a task topology say is overlooked", key, cluster.MaxCompany)
}

// listed is the names of a list, each once, as long as some are left; left is below 0 then.
func listed(list string, left *int) (names []string) {
	for name := range strings.SplitSeq(list, ",") {
		name = strings.TrimSpace(name)
		if name == "" || slices.Contains(names, name) {
			continue
		}
		if *left--; *left < 0 {
			return nil
		}
		names = append(names, name)
	}
	return names
}
