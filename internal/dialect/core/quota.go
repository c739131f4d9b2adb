package core

import (
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/muster-scheduler/muster/internal/cluster"
)

// Quota returns what a ResourceQuota says of what pods ask for: requests.NAME means the same as NAME. Limits, and counts of objects but pods, are left out: nobody says beforehand what
// gangs take of them. Its scopes are not looked at.
func Quota(q *v1.ResourceQuota) *cluster.SpaceQuota {
	out := &cluster.SpaceQuota{}
	for _, name := range slices.Sorted(maps.Keys(q.Spec.Hard)) {
		resource := v1.ResourceName(strings.TrimPrefix(string(name), "requests."))
		if strings.HasPrefix(string(name), "limits.") || strings.HasPrefix(string(name), "count/") {
			continue
		}
		amount := func(list v1.ResourceList) int64 {
			of := Amounts(v1.ResourceList{resource: list[name]})
			if len(of) == 0 {
				return 0
			}
			return of[0].Value
		}
		out.Bounds = append(out.Bounds, cluster.QuotaBound{Dim: Dimension(resource), Hard: amount(q.Spec.Hard), Used: amount(q.Status.Used)})
	}
	return out
}
