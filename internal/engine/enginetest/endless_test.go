package enginetest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/engine/builtin"
	"github.com/muster-scheduler/muster/internal/engine/ledger"
	"github.com/muster-scheduler/muster/internal/engine/recorder"
	"github.com/muster-scheduler/muster/internal/profile"
	"github.com/muster-scheduler/muster/internal/sim"
)

// furtherRounds is how much longer than anybody waits for something a frozen world is watched.
const furtherRounds = 50

// frozen is a world in which nothing happens by itself: gangs have come in waves, evicted pods come back, and that is all.
type frozen struct {
	world   *sim.Cluster
	evicted map[string]int  // by pod's name, since the last wave or since a share moved to stay
	news    cluster.Instant // when a share last did
	last    int             // the round of the last eviction since then
	round   int
	tick    time.Duration
	grace   time.Duration
	story   []string
	again   int            // how many more times a pod may go: once for each restart
	owed    map[string]int // by UID of who was promised room that somebody was evicted for: since which round
}

func newFrozen(t *rapid.T) *frozen {
	e, err := engine.New(profile.BuiltIn(), builtin.Registry())
	if err != nil {
		t.Fatal(err)
	}
	f := &frozen{evicted: map[string]int{}, owed: map[string]int{}}
	grace := time.Duration(rapid.SampledFrom([]int{0, 3, 20, 120}).Draw(t, "grace")) * time.Second
	f.grace, f.tick = grace, max(time.Second, grace/20)
	f.world = sim.NewCluster(sim.Options{Engine: e, Cycle: time.Second, Grace: grace, Check: f.check})
	for i := range rapid.IntRange(1, 20).Draw(t, "nodes") {
		room := sim.Room(int64(rapid.SampledFrom([]int{1, 2, 4, 8}).Draw(t, "gpus"))*1000, 32_000, 1<<38, 110)
		if err := f.world.AddNode(sim.Node{Name: fmt.Sprintf("n%02d", i), Allocatable: room}); err != nil {
			t.Fatal(err)
		}
	}
	return f
}

// tree gives the world queues and returns the leaves.
func (f *frozen) tree(t *rapid.T) []string {
	amount := func(label string, xs ...int64) int64 { return rapid.SampledFrom(xs).Draw(t, label) }
	var leaves []string
	add := func(name, parent string) {
		room := func(gpu int64) []cluster.Quantity {
			return []cluster.Quantity{{Name: "gpu", Value: gpu}, {Name: "cpu", Value: cluster.Unlimited}, {Name: "memory", Value: cluster.Unlimited}}
		}
		f.world.Store.Apply(cluster.QueueState{
			Name: name, UID: name, Parent: parent, Priority: int32(amount("queue priority", 100, 100, 200)), Created: f.world.Now().Add(-time.Duration(len(name)) * 1e9),
			Quota: room(amount("quota", 0, 0, 1000, 4000, 8000, cluster.Unlimited)), Limit: room(amount("limit", cluster.Unlimited, cluster.Unlimited, 4000, 9000)),
			Weight: []cluster.Quantity{{Name: "gpu", Value: amount("weight", 0, 1000, 1000, 3000)}, {Name: "cpu", Value: 1000}, {Name: "memory", Value: 1000}},
		})
	}
	for d := range rapid.IntRange(1, 3).Draw(t, "departments") {
		dept := fmt.Sprintf("d%d", d)
		add(dept, "")
		teams := rapid.IntRange(0, 3).Draw(t, "teams")
		for k := range teams {
			leaf := fmt.Sprintf("%s-t%d", dept, k)
			add(leaf, dept)
			leaves = append(leaves, leaf)
		}
		if teams == 0 {
			leaves = append(leaves, dept)
		}
	}
	return leaves
}

// wave lets gangs come, all at once.
func (f *frozen) wave(t *rapid.T, leaves []string, n, wave int) {
	for i := range n {
		g := sim.Gang{
			Name: fmt.Sprintf("w%dg%02d", wave, i), Queue: rapid.SampledFrom(leaves).Draw(t, "queue"), Pods: rapid.IntRange(1, 6).Draw(t, "pods"),
			Priority: int32(rapid.SampledFrom([]int{50, 50, 50, 60, 75}).Draw(t, "priority")), Fixed: rapid.IntRange(0, 9).Draw(t, "fixed") == 0,
			Requests: sim.Room(int64(rapid.SampledFrom([]int{1, 1, 1, 2, 2, 4, 8}).Draw(t, "gpu"))*1000, 1000, 0, 1),
		}
		g.Min = rapid.IntRange(1, g.Pods).Draw(t, "minimum")
		if rapid.Bool().Draw(t, "rigid") {
			g.Min = g.Pods
		}
		if err := f.world.Submit(g); err != nil {
			t.Fatal(err)
		}
	}
	clear(f.evicted)
	f.last, f.round, f.story = 0, 0, nil
}

// check audits, and counts who is evicted.
func (f *frozen) check(snap *cluster.Snapshot, plans []engine.Plan, _ *recorder.Trace) error {
	if err := errors.Join(Audit(snap, plans, true), AuditTogether(snap, plans)); err != nil {
		return err
	}
	for _, id := range snap.QueueOrder {
		if at := snap.Queue(id).ShareMoved; at.After(f.news) { // a minute after the wave that moved it
			if f.again > 0 {
				return fmt.Errorf("the share of queue %s moved in round %d, though nothing but restarts happened:%s", snap.Queue(id).Name, f.round, lines(f.story))
			}
			f.news = at
			clear(f.evicted)
		}
	}
	for i := range plans {
		for j := range plans[i].Bundles {
			b := &plans[i].Bundles[j]
			if b.Eviction != nil {
				for _, v := range b.Eviction.Victims {
					if v.Promised > 0 { // taken by a better right
						f.absolve(v.Gang.Name)
					}
				}
			}
			for _, in := range b.Intents {
				switch {
				case in.Verb == ledger.Bind:
					delete(f.owed, in.UID)
				case in.Verb == ledger.Nominate && b.Eviction != nil:
					f.owed[in.UID] = f.round
				}
				if in.Verb != ledger.Evict {
					continue
				}
				f.absolve(in.Gang.Name) // who loses its place has no promise any more
				f.last = f.round
				f.story = append(f.story, fmt.Sprintf("round %d: %s for %s evicts %s from %s to %q", f.round, b.Eviction.Cause, b.Gang, in.Pod, in.Node, in.To))
				if f.evicted[in.Pod]++; f.evicted[in.Pod] > 1+f.again {
					return fmt.Errorf("pod %s is evicted %d times: %s", in.Pod, f.evicted[in.Pod], lines(f.story))
				}
			}
		}
	}
	return nil
}

// absolve takes note that a gang is owed nothing any more.
func (f *frozen) absolve(gang string) {
	for uid := range f.owed { // order: each on its own
		if strings.HasPrefix(uid, gang+"-") {
			delete(f.owed, uid)
		}
	}
}

func lines(ls []string) string {
	out := ""
	for _, l := range ls {
		out += "\n  " + l
	}
	return out
}

// live lets so many cycles pass, whether or not anything is due.
func (f *frozen) live(rounds int) error {
	for range rounds {
		f.round++
		if err := f.world.Advance(f.world.Now().Add(f.tick)); err != nil {
			return err
		}
		if _, err := f.world.Decide(context.Background()); err != nil {
			return err
		}
		if err := promised(f.world.Store.Snapshot(f.world.Now())); err != nil {
			return err
		}
	}
	return nil
}

// end lives until nobody has been evicted for furtherRounds longer than anybody waits for something: a grace, the minute after which
// what has changed counts, ten seconds of an answer's rest. That evictions end is that this ends: check counts them, and each has to
// come before the waiting is over, so that it does or fails.
func (f *frozen) end() error {
	quiet := int((f.grace+time.Minute+10*time.Second)/f.tick) + furtherRounds
	for since := f.round; f.round-max(f.last, since) < quiet; {
		if err := f.live(1); err != nil {
			return err
		}
	}
	return nil
}

// TestEvictionsEnd is L1 and S5: with nothing coming and going but what we evict, no pod is evicted twice, after a while
// nobody is any more, and everybody for whom somebody was evicted has run,
// or had to make way in turn. (Every plan on the way is audited.)
func TestEvictionsEnd(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		f := newFrozen(t)
		leaves := f.tree(t)
		for wave := range rapid.IntRange(1, 3).Draw(t, "waves") {
			f.wave(t, leaves, rapid.IntRange(1, 14).Draw(t, "gangs"), wave)
			if err := f.live(rapid.IntRange(1, 40).Draw(t, "rounds")); err != nil {
				t.Fatal(err)
			}
		}
		if err := f.end(); err != nil {
			t.Fatal(err)
		}
		for uid, since := range f.owed { // order: any
			t.Fatalf("%s never ran, for which somebody was evicted in round %d of %d:%s", uid, since, f.round, lines(f.story))
		}
	})
}
