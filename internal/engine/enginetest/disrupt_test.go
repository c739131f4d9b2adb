package enginetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sort"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/engine/builtin"
	"github.com/muster-scheduler/muster/internal/engine/ledger"
	"github.com/muster-scheduler/muster/internal/profile"
)

// newCrowd is a random cluster that is full: what can run of the herd's pods does, most of the rest waits, and gangs have a
// history.
func newCrowd(t *rapid.T) *herd {
	h := newHerd(t)
	for range rapid.IntRange(0, 8).Draw(t, "more gangs") {
		h.gang(t)
	}
	room := map[string][]cluster.Quantity{}
	for _, e := range h.list() {
		if n, ok := e.(cluster.NodeState); ok {
			room[n.Name] = slices.Clone(n.Allocatable)
		}
	}
	take := func(free []cluster.Quantity, p cluster.PodState) bool {
		for _, r := range p.Requests {
			if i := slices.IndexFunc(free, func(q cluster.Quantity) bool { return q.Name == r.Name }); r.Value > 0 && (i < 0 || free[i].Value < r.Value) {
				return false
			}
		}
		for _, r := range p.Requests {
			for i := range free {
				if free[i].Name == r.Name {
					free[i].Value -= r.Value
				}
			}
		}
		return true
	}
	for _, uid := range h.pods {
		p := h.events["4 "+uid].(cluster.PodState)
		p.Recreated = rapid.IntRange(0, 5).Draw(t, "recreated") > 0
		if p.NodeName != "" && !take(room[p.NodeName], p) {
			p.Phase, p.NodeName, p.DeletedAt = cluster.Pending, "", cluster.Instant{}
		}
		if p.Phase == cluster.Pending && p.Nominated == "" && rapid.IntRange(0, 2).Draw(t, "runs") > 0 {
			for _, n := range h.nodes {
				if take(room[n], p) {
					p.Phase, p.NodeName = cluster.Running, n
					break
				}
			}
		}
		h.events["4 "+uid] = p
	}
	for _, k := range h.gangs {
		g := h.events["3 "+k.String()].(cluster.GangState)
		if rapid.Bool().Draw(t, "has started") {
			g.LastStart = seconds(t, "last start")
		}
		h.events["3 "+k.String()] = g
	}
	return h
}

// everything is an engine with all actions, and more before them.
func everything(t *rapid.T, more ...string) *engine.Engine {
	p := profile.BuiltIn()
	p.Actions = append(more, p.Actions...)
	r := builtin.Registry()
	r.Actions["rehearse"] = func() engine.Action { return rehearsal{t} }
	r.Actions["upheave"] = func() engine.Action { return upheaval{t} }
	e, err := engine.New(p, r)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// life is a Store that has lived through plans: some are assumed, some have come true, some pods have gone and come back.
type life struct {
	*herd
	store *cluster.Store
	now   cluster.Instant
	lives map[string]int
}

func newLife(t *rapid.T) *life {
	l := &life{herd: newCrowd(t), store: cluster.NewStore(cluster.Options{}), now: noon, lives: map[string]int{}}
	l.store.Apply(l.list()...)
	return l
}

// decide runs the engine and lets the Store assume what was decided.
func (l *life) decide(t *rapid.T, e *engine.Engine) (*cluster.Snapshot, []engine.Plan) {
	snap, plans, _ := engine.NewDriver(e, l.store).Cycle(context.Background(), l.now)
	if err := errors.Join(Audit(snap, plans, true), AuditTogether(snap, plans)); err != nil {
		t.Fatal(err)
	}
	if err := promised(l.store.Snapshot(l.now)); err != nil {
		t.Fatal(err)
	}
	return snap, plans
}

// promised checks a snapshot on which a plan was just laid: all the room that is promised is there, so none is promised
// twice or given to somebody else, and nobody is promised room twice.
func promised(snap *cluster.Snapshot) error {
	later := map[string]cluster.Resources{}
	for _, id := range snap.NodeOrder {
		later[snap.Node(id).Name] = snap.Node(id).Later().Clone()
	}
	seen := map[string]bool{}
	for i := range snap.Holds {
		h := &snap.Holds[i]
		free, known := later[h.Node]
		if !known || !h.Requests.Fits(free) {
			return fmt.Errorf("%s is promised %s on %s, of which %s is left", h.Gang, snap.Dims.Format(h.Requests), h.Node, snap.Dims.Format(free))
		}
		free.Sub(h.Requests)
		later[h.Node] = free
		if seen[h.ID()] {
			return fmt.Errorf("pod %s is promised room twice", h.ID())
		}
		seen[h.ID()] = true
	}
	return nil
}

// happen lets a part of what was decided come true, and time pass.
func (l *life) happen(t *rapid.T, plans []engine.Plan) {
	set := func(p cluster.PodState) {
		l.events["4 "+p.UID] = p
		l.store.Apply(p)
	}
	for i := range plans {
		for j := range plans[i].Bundles {
			b := &plans[i].Bundles[j]
			fate := rapid.IntRange(0, 3).Draw(t, "fate")
			if fate == 0 {
				b.Forget(l.store, func(string) bool { return false })
				continue
			}
			for _, in := range b.Intents {
				p, ok := l.events["4 "+in.UID].(cluster.PodState)
				switch {
				case !ok || fate == 1: // assumed only, so far
				case in.Verb == ledger.Bind:
					p.Phase, p.NodeName = cluster.Running, in.Node
					set(p)
				case in.Verb == ledger.Evict && fate == 2:
					p.Phase, p.DeletedAt = cluster.Releasing, l.now.Add(1e9)
					set(p)
				case in.Verb == ledger.Evict:
					delete(l.events, "4 "+p.UID)
					l.store.Apply(cluster.PodGone{UID: p.UID})
					l.pods = slices.DeleteFunc(l.pods, func(uid string) bool { return uid == p.UID })
					if p.Recreated {
						l.lives[p.Name]++
						p.UID, p.Phase, p.NodeName, p.Created = fmt.Sprintf("%s/%s#%d", p.Namespace, p.Name, l.lives[p.Name]), cluster.Pending, "", l.now
						l.pods = append(l.pods, p.UID)
						set(p)
					}
				}
			}
		}
	}
	if len(l.pods) > 0 && rapid.IntRange(0, 2).Draw(t, "one ends") == 0 {
		if p := l.events["4 "+rapid.SampledFrom(l.pods).Draw(t, "which")].(cluster.PodState); p.Phase == cluster.Running {
			set(ended(t, p))
		}
	}
	l.now = l.now.Add(time.Duration(rapid.SampledFrom([]int{1, 1, 5, 90}).Draw(t, "seconds")) * 1e9)
}

// TestDisruptionIsSound is S4 to S6: whatever the history, every plan of all actions together is legal, feasible in every
// prefix, and gives its beneficiary all it needs.
func TestDisruptionIsSound(t *testing.T) {
	t.Parallel()
	evicted := 0
	rapid.Check(t, func(t *rapid.T) {
		l, e := newLife(t), everything(t)
		for range rapid.IntRange(1, 5).Draw(t, "rounds") {
			_, plans := l.decide(t, e)
			for i := range plans {
				evicted += plans[i].Evictions()
			}
			l.happen(t, plans)
		}
	})
	t.Logf("%d evictions", evicted)
}

// said is everything a run says in one text.
func said(t *rapid.T, e *engine.Engine, snap *cluster.Snapshot) string {
	var plans []engine.Plan
	r := e.Run(context.Background(), snap, func(p engine.Plan) { plans = append(plans, p) })
	text, err := json.MarshalIndent(plans, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	var why []string
	for _, g := range r.Trace.Gangs {
		why = append(why, fmt.Sprintf("%s placed %d nominated %d: %s %+v", g.Gang, g.Placed, g.Nominated, g.Diagnosis, g.Tried))
	}
	sort.Strings(why)
	slices.Sort(r.Void)
	return string(text) + "\n" + strings.Join(why, "\n") + fmt.Sprint(r.Void)
}

// TestDisruptionIsReproducible is S7: a Store that has lived, and one that learns the same objects in any order and is told
// what the first remembers, decide the same, byte for byte; so do a warm engine and a cold one.
func TestDisruptionIsReproducible(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		l, e := newLife(t), everything(t)
		for range rapid.IntRange(0, 4).Draw(t, "rounds") {
			_, plans := l.decide(t, e)
			l.happen(t, plans)
		}
		snap := l.store.Snapshot(l.now)
		got := said(t, e, snap)
		events := rapid.Permutation(l.list()).Draw(t, "order")
		// What the Store assumes beyond objects is in the snapshot: gangs and pods as they stand there.
		for i, e := range events {
			switch e := e.(type) {
			case cluster.GangState:
				if g := snap.GangByKey(e.Key); g != nil {
					events[i] = g.GangState
				}
			case cluster.PodState:
				snap.EachPod(func(p *cluster.Pod) {
					if p.UID == e.UID {
						events[i] = p.State(snap.Dims)
					}
				})
			}
		}
		s := cluster.NewStore(cluster.Options{})
		s.Apply(events...)
		s.Snapshot(l.now)
		s.Restore(snap.Memory())
		if want := said(t, everything(t), s.Snapshot(l.now)); got != want {
			t.Fatalf("lived\n%s\nrebuilt\n%s", got, want)
		}
		if again := said(t, e, l.store.Snapshot(l.now)); again != got {
			t.Fatalf("again\n%s\nbefore\n%s", again, got)
		}
	})
}

// upheaval is an action that evicts, spares, moves, opens, suspends and rolls back, and leaves nothing behind.
type upheaval struct{ t *rapid.T }

func (u upheaval) Run(s *engine.Session) {
	var gangs []*ledger.GangState
	s.Ledger.EachGang(func(g *ledger.GangState) { gangs = append(gangs, g) })
	state := func() string {
		var b strings.Builder
		b.WriteString(ledgers(s, gangs))
		for _, g := range gangs {
			fmt.Fprint(&b, g.Key, s.Ledger.Live(g), s.Ledger.Holds(g))
			for _, p := range s.Ledger.LivePods(g) {
				fmt.Fprint(&b, " ", p.UID, s.Ledger.Fate(p))
			}
			b.WriteString("\n")
		}
		return b.String()
	}
	before := state()
	st := s.Ledger.Begin()
	var evicted []ledger.VictimUnit
	type point struct {
		mark    ledger.Mark
		text    string
		evicted int
	}
	points := []point{{st.Mark(), before, 0}}
	for range rapid.IntRange(1, 12).Draw(u.t, "steps") {
		if len(gangs) == 0 {
			break
		}
		g := gangs[rapid.IntRange(0, len(gangs)-1).Draw(u.t, "gang")]
		switch rapid.IntRange(0, 6).Draw(u.t, "step") {
		case 0, 1:
			if unit, ok := s.Ledger.NextUnit(g); ok && g.Leaf != nil {
				st.EvictUnit(&unit)
				evicted = append(evicted, unit)
			}
		case 2:
			if n := len(evicted); n > 0 && s.Placer.SpareUnit(st, &evicted[n-1]) {
				evicted = evicted[:n-1]
			}
		case 3:
			if n := len(evicted); n > 0 && s.Placer.MoveUnit(st, &evicted[n-1]) {
				evicted = evicted[:n-1]
			}
		case 4:
			if s.Rules.Admit(g).Yes() {
				s.Placer.Promise(st, g)
			}
		case 5:
			now := state()
			st.Suspend(func() {
				if got := state(); got != before {
					u.t.Fatalf("suspended\n%s\nwas\n%s", got, before)
				}
			})
			if got := state(); got != now {
				u.t.Fatalf("resumed\n%s\nwas\n%s", got, now)
			}
		case 6:
			k := rapid.IntRange(0, len(points)-1).Draw(u.t, "back")
			if p := points[k]; p.evicted <= len(evicted) {
				if rapid.Bool().Draw(u.t, "redo") {
					now := state()
					ops := st.Cut(p.mark)
					if got := state(); got != p.text {
						u.t.Fatalf("cut\n%s\nwas\n%s", got, p.text)
					}
					st.Redo(ops)
					if got := state(); got != now {
						u.t.Fatalf("redone\n%s\nwas\n%s", got, now)
					}
				}
			}
		}
		points = append(points, point{st.Mark(), state(), len(evicted)})
	}
	for _, p := range slices.Backward(points) {
		st.RollbackTo(p.mark)
		if got := state(); got != p.text {
			u.t.Fatalf("back to\n%s\nwas\n%s", got, p.text)
		}
	}
	st.Discard()
	if got := state(); got != before {
		u.t.Fatalf("abandoned\n%s\nwas\n%s", got, before)
	}
}

// TestUpheavalLeavesNothing: every operation of statements has an exact inverse, and a run after any of them, undone, decides
// as if they had not been.
func TestUpheavalLeavesNothing(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		l, e := newLife(t), everything(t)
		for range rapid.IntRange(0, 3).Draw(t, "rounds") {
			_, plans := l.decide(t, e)
			l.happen(t, plans)
		}
		snap := l.store.Snapshot(l.now)
		want := said(t, everything(t), snap)
		if got := said(t, everything(t, "upheave"), snap); got != want {
			t.Fatalf("after an upheaval\n%s\nwithout\n%s", got, want)
		}
	})
}
