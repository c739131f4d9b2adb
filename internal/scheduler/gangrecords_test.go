package scheduler

import (
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/dialect/kai"
)

// recorded is a decision of an earlier process that these pods of gang g go to that node.
func recorded(bundle, node string, decided int64, pods ...string) kai.GangRecord {
	r := kai.GangRecord{Bundle: bundle, Gang: kai.GangKey("a", "g"), GangUID: "g-g", Starts: true, Decided: time.Unix(decided, 0)}
	for _, p := range pods {
		r.Members = append(r.Members, kai.Intent{Namespace: "a", Pod: p, PodUID: types.UID("u-" + p), Node: node})
	}
	return r
}

// TestResume: what an earlier process recorded about gangs is carried on, or given up as a whole, before anything else is decided; and what is
// carried on holds its room.
func TestResume(t *testing.T) {
	t.Parallel()
	key := kai.GangKey("a", "g")
	on := func(name, node string) cluster.Event { return pod(name, key, cluster.Bound, node) }
	n2 := cluster.NodeState{Name: "n2", UID: "n2", Allocatable: []cluster.Quantity{{Name: "cpu", Value: 64000}, {Name: "memory", Value: 1 << 40}, {Name: "gpu", Value: 2000}, {Name: "pods", Value: 110}}}
	taker := pod("t", cluster.Key{}, cluster.Bound, "n2") // another scheduler's
	taker.Ours = false
	for name, c := range map[string]struct {
		left    []kai.GangRecord
		world   []cluster.Event // besides gang g of p and q, who wait, and h of x and y, who ask for two GPUs of the four
		begun   bool
		resumed []string
		given   []string
		plans   []string // of the first cycle
	}{
		"nobody has a node": {
			left: []kai.GangRecord{recorded("b1", "n2", 1, "p", "q")}, resumed: []string{"b1 p q"}, plans: []string{"0.00 x y"},
		},
		"one has": {
			left: []kai.GangRecord{recorded("b1", "n2", 1, "p", "q")}, world: []cluster.Event{on("p", "n2")}, resumed: []string{"b1 q"}, plans: []string{"0.00 x y"},
		},
		"all have": {
			left: []kai.GangRecord{recorded("b1", "n2", 1, "p", "q")}, world: []cluster.Event{on("p", "n2"), on("q", "n2")}, resumed: []string{"b1"}, plans: []string{"0.00 x y"},
		},
		"nobody has a node, and one is gone": {
			left: []kai.GangRecord{recorded("b1", "n2", 1, "p", "q", "gone")}, given: []string{"b1"}, plans: []string{"0.00 p q x y"},
		},
		"one is gone, and one has a node that the feed does not know of": {
			left: []kai.GangRecord{recorded("b1", "n2", 1, "p", "q", "gone")}, begun: true, resumed: []string{"b1 p q"}, plans: []string{"0.00 x y"},
		},
		"one is gone, and one has a node": {
			left: []kai.GangRecord{recorded("b1", "n2", 1, "p", "q", "gone")}, world: []cluster.Event{on("p", "n2")}, resumed: []string{"b1 q"}, plans: []string{"0.00 x y"},
		},
		"the node is gone": {
			left: []kai.GangRecord{recorded("b1", "n3", 1, "p", "q")}, given: []string{"b1"}, plans: []string{"0.00 p q x y"},
		},
		"there is not room for all": {
			left: []kai.GangRecord{recorded("b1", "n2", 1, "p", "q")}, world: []cluster.Event{taker}, given: []string{"b1"}, plans: []string{"0.00 p q"},
		},
		"there is not room for who waits, and one has a node": {
			left: []kai.GangRecord{recorded("b1", "n2", 1, "p", "q")}, world: []cluster.Event{on("p", "n2"), taker}, resumed: []string{"b1"}, plans: []string{"0.00 q"},
		},
		"two decisions about the same pods": {
			left: []kai.GangRecord{recorded("b1", "n1", 1, "p", "q"), recorded("b2", "n2", 2, "p", "q")}, resumed: []string{"b2 p q"}, given: []string{"b1"}, plans: []string{"0.00 x y"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := begin(t, Options{}, func(w *fixture) {
					w.left, w.begun = c.left, c.begun
					w.happens(n2)
					w.happens(gang("g", "p", "q")...)
					w.happens(gang("h", "x", "y")...)
					w.happens(c.world...)
				})
				synctest.Wait()
				w.expect("resumed", &w.resumed, c.resumed...)
				w.expect("withdrawn", &w.given, c.given...)
				w.expect("plans", &w.plans, c.plans...)
			})
		})
	}
}
