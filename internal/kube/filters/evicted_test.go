package filters

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/engine/policy"
)

// TestEvicted has one pod in the way of another: it counts where it is, not once it is evicted, again once it is spared, and
// where it goes once it is moved.
func TestEvicted(t *testing.T) {
	t.Parallel()
	one := int32(1)
	limit := func(node string) metav1.Object {
		return &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: node}, Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{
			Name: "disk.example.com", NodeID: node, Allocatable: &storagev1.VolumeNodeResources{Count: &one},
		}}}}
	}
	for name, c := range map[string]struct {
		given    []metav1.Object
		there, p *v1.Pod
		reason   *policy.Reason // of the node where there is
		inverse  bool           // p wants to be near instead
		anywhere bool           // there is in the way on every node
	}{
		"its anti-affinity":         {there: aPod("q", "x", "a1", apart(term("y", hostKey))), p: aPod("p", "y", ""), reason: ReasonPodAntiAffinity},
		"the other's anti-affinity": {there: aPod("q", "x", "a1"), p: aPod("p", "y", "", apart(term("x", hostKey))), reason: ReasonPodAntiAffinity},
		"a spread over hosts":       {there: aPod("q", "x", "a1"), p: aPod("p", "x", "", spreadOver(hostKey, "x", 1)), reason: ReasonTopologySpread},
		"an affinity":               {there: aPod("q", "x", "a1"), p: aPod("p", "y", "", near(term("x", hostKey))), reason: ReasonPodAffinity, inverse: true},
		"a claim that only one uses": {
			given: []metav1.Object{aClaim("c", "1Gi", boundTo("v"), exclusive), aVolume("v", "1Gi", "", "", heldBy("c"))},
			there: aPod("q", "x", "a1", mountingOne("c")), p: aPod("p", "y", "", mountingOne("c")), reason: ReasonVolumeInUse, anywhere: true,
		},
		"a limit of attached volumes": {
			given: []metav1.Object{
				limit("a1"), limit("b2"), aClaim("c", "1Gi", boundTo("v")), aVolume("v", "1Gi", "", "", heldBy("c")),
				aClaim("d", "1Gi", boundTo("w")), aVolume("w", "1Gi", "", "", heldBy("d")),
			},
			there: aPod("q", "x", "a1", mountingOne("c")), p: aPod("p", "y", "", mountingOne("d")), reason: ReasonVolumeLimit,
		},
	} {
		for _, warm := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				pl := newPlant(append(append(zones(), c.given...), c.there, c.p)...)
				pl.run(t, Options{}, func(s *engine.Session, i *instance) {
					q, p := podNamed(s.Snap, "q"), podNamed(s.Snap, "p")
					expect := func(when, at string) {
						t.Helper()
						for _, on := range []string{"a1", "b2"} {
							var want *policy.Reason
							if (c.anywhere && at != "") || (on == at) != c.inverse {
								want = c.reason
							}
							if got := judge(i, p, s.Snap.NodeByName(on)); got.Reason != want {
								t.Errorf("%s, on %s: %q, want %q", when, on, got.Reason, want)
							}
						}
					}
					if warm {
						expect("at first", "a1")
					}
					st := s.Ledger.Begin()
					st.Evict(q)
					expect("evicted", "")
					mark := st.Mark()
					st.Spare(q)
					expect("spared", "a1")
					st.RollbackTo(mark)
					expect("evicted again", "")
					st.Move(q, s.Snap.NodeByName("b2").ID)
					expect("moved", "b2")
					st.Discard()
					expect("at last", "a1")
				})
			})
		}
	}
}

// TestLogIsRead: what nobody has read and is undone leaves nothing to read, so that a search may try as often as it likes.
func TestLogIsRead(t *testing.T) {
	t.Parallel()
	pl := newPlant(append(zones(), aPod("q", "x", "a1", apart(term("y", hostKey))), aPod("r", "x", "b1"), aPod("p", "y", ""))...)
	pl.run(t, Options{}, func(s *engine.Session, i *instance) {
		q, r, p := podNamed(s.Snap, "q"), podNamed(s.Snap, "r"), podNamed(s.Snap, "p")
		try := func(ask bool) {
			st := s.Ledger.Begin()
			st.Evict(r)
			st.Evict(q)
			if ask && !judge(i, p, s.Snap.NodeByName("a1")).Yes() {
				t.Error("p has no place where q was")
			}
			st.Discard()
		}
		for range 10 {
			try(false)
		}
		if len(i.log) != 0 {
			t.Errorf("%d entries that nobody will need", len(i.log))
		}
		try(true)
		for range 10 {
			try(false)
		}
		if len(i.log) != 4 {
			t.Errorf("%d entries, want the 4 that were read or undo what was read", len(i.log))
		}
		if judge(i, p, s.Snap.NodeByName("a1")).Yes() {
			t.Error("p has a place where q is")
		}
	})
}
