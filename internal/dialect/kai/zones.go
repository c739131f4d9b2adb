package kai

import (
	"encoding/json"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/muster-scheduler/muster/api/kai/keys"
	"github.com/muster-scheduler/muster/api/scheduling/v1alpha2"
	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/dialect/core"
)

// Zones returns what is on record for the NUMA zones of a pod that has, or is promised, a node: what the node observed,
// or else what the BindRequest promises (nil for none), or else what was predicted. A record that cannot be read counts
// as none.
func Zones(p *v1.Pod, promised *Binding) []cluster.ZoneShare {
	if z := readZones(p.Annotations[keys.NUMAObservedAnnotation]); z != nil {
		return z
	}
	if promised != nil && promised.Zones != nil {
		return promised.Zones
	}
	return readZones(p.Annotations[keys.NUMAPredictedAnnotation])
}

func readZones(text string) []cluster.ZoneShare {
	if text == "" {
		return nil
	}
	var list []v1alpha2.NUMAZonePlacement
	if json.Unmarshal([]byte(text), &list) != nil {
		return nil
	}
	return zonesOf(list)
}

// zonesOf reads placements, at most cluster.MaxZones of them; zones without a name or an amount are left out.
func zonesOf(list []v1alpha2.NUMAZonePlacement) []cluster.ZoneShare {
	var out []cluster.ZoneShare
	for i := range list[:min(len(list), cluster.MaxZones)] {
		amounts := core.Amounts(list[i].Amount)
		if list[i].Zone == "" || len(amounts) == 0 {
			continue
		}
		slices.SortFunc(amounts, func(a, b cluster.Quantity) int { return strings.Compare(a.Name, b.Name) })
		out = append(out, cluster.ZoneShare{Zone: list[i].Zone, Amounts: amounts})
	}
	return out
}

// placements is the inverse of zonesOf.
func placements(zones []cluster.ZoneShare) []v1alpha2.NUMAZonePlacement {
	if len(zones) == 0 {
		return nil
	}
	out := make([]v1alpha2.NUMAZonePlacement, len(zones))
	for i := range zones {
		out[i] = v1alpha2.NUMAZonePlacement{Zone: zones[i].Zone, Amount: core.Quantities(zones[i].Amounts)}
	}
	return out
}
