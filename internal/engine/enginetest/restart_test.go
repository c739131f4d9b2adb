package enginetest

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/muster-scheduler/muster/internal/cluster"
)

// restarted is what a new process knows: the objects as they stand and, if told, the room that waiting pods say is held for
// them. All else that a Store remembers is lost.
func restarted(snap *cluster.Snapshot, told bool) *cluster.Store {
	s := cluster.NewStore(cluster.Options{})
	for _, id := range snap.NodeOrder {
		s.Apply(snap.Node(id).State(snap.Dims))
	}
	for _, id := range snap.QueueOrder {
		s.Apply(snap.Queue(id).State(snap.Dims))
	}
	snap.EachGang(func(g *cluster.Gang) { s.Apply(g.GangState) })
	snap.EachPod(func(p *cluster.Pod) { s.Apply(p.State(snap.Dims)) })
	for i := range snap.Holds {
		if h := &snap.Holds[i]; told && h.Pod != "" {
			s.HoldFor(h.Pod, h.Node, snap.Now.Add(60e9))
		}
	}
	return s
}

// TestEvictionsEndAcrossRestarts is L1 when the scheduler is replaced at random moments: evictions end all the same. What a restart
// forgets may have a pod evicted once more, and not again by the next restart without another cause: no pod goes more often than
// there were restarts, plus once; and a restart moves no share. How long evictions take to end is not bounded by a number of rounds:
// each may wait for the grace of the one before.
func TestEvictionsEndAcrossRestarts(t *testing.T) {
	t.Parallel()
	most, restarts := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		f := newFrozen(t)
		leaves := f.tree(t)
		for wave := range rapid.IntRange(1, 2).Draw(t, "waves") {
			f.wave(t, leaves, rapid.IntRange(1, 14).Draw(t, "gangs"), wave)
			if err := f.live(rapid.IntRange(1, 40).Draw(t, "rounds")); err != nil {
				t.Fatal(err)
			}
		}
		f.again = 0
		for range rapid.IntRange(1, 4).Draw(t, "restarts") {
			f.world.Restart(restarted(f.world.Store.Snapshot(f.world.Now()), rapid.Bool().Draw(t, "room is told")))
			clear(f.owed)
			f.again++
			restarts++
			if err := f.live(rapid.IntRange(1, 30).Draw(t, "rounds after")); err != nil {
				t.Fatal(err)
			}
		}
		if err := f.end(); err != nil {
			t.Fatal(err)
		}
		for _, n := range f.evicted { // order: maximum
			most = max(most, n)
		}
	})
	t.Logf("%d restarts; no pod was evicted more than %d times", restarts, most)
}
