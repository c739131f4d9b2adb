package numa

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/muster-scheduler/muster/internal/cluster"
)

// TestAnswers: what is remembered of pods of many containers is what placing them says, on whichever node of whatever is free.
func TestAnswers(t *testing.T) {
	t.Parallel()
	remembered := 0
	rapid.Check(t, func(t *rapid.T) {
		i := &instance{demands: map[uint64]*demand{}}
		var classes []*cluster.Class
		for c := range 2 {
			d := &demand{}
			for range few + 1 + rapid.IntRange(0, 3).Draw(t, "more") {
				role := rapid.SampledFrom([]cluster.ContainerRole{cluster.Together, cluster.Before, cluster.Sidecar}).Draw(t, "role")
				d.each = append(d.each, group{role, one(rapid.IntRange(0, 2).Draw(t, "resource"), rapid.Int64Range(1, 2).Draw(t, "want"))})
			}
			classes = append(classes, &cluster.Class{ID: uint64(c)})
			i.demands[uint64(c)] = d
		}
		var nodes []*zoneLedger
		for range 3 {
			l := &zoneLedger{shape: shape{
				policy: rapid.SampledFrom([]cluster.ZonePolicy{cluster.ZonesSingle, cluster.ZonesRestricted, cluster.ZonesBestEffort}).Draw(t, "policy"),
				scope:  rapid.SampledFrom([]cluster.ZoneScope{cluster.PerContainer, cluster.PerPod}).Draw(t, "scope"),
				names:  make([]string, rapid.IntRange(1, 2).Draw(t, "zones")),
				local:  rapid.SampledFrom([][]int32{{0, 1, -1}, {1, 0, -1}, {-1, 0, 1}}).Draw(t, "local"),
			}}
			l.alloc = newMatrix(len(l.names), 2)
			for k := range l.alloc.v {
				l.alloc.v[k] = rapid.Int64Range(1, 2).Draw(t, "has") * 8
			}
			nodes = append(nodes, l)
		}
		for range 12 {
			c, l := rapid.SampledFrom(classes).Draw(t, "class"), rapid.SampledFrom(nodes).Draw(t, "node")
			free := l.alloc.clone()
			free.v[0] -= rapid.Int64Range(0, 2).Draw(t, "taken") * 4
			before := len(i.known.are)
			same := i.known.to == i.demand(c)
			got, v := i.place(l, c, free)
			if same && l.scope == cluster.PerContainer && len(i.known.are) == before {
				remembered++
			}
			want, v2 := l.place(i.demand(c).groups(l.scope), free)
			if v != v2 || fmt.Sprint(got.v) != fmt.Sprint(want.v) {
				t.Fatalf("%v (%d) is remembered, and it is %v (%d)", got.v, v, want.v, v2)
			}
		}
	})
	if remembered == 0 {
		t.Error("nothing was remembered")
	}
}
