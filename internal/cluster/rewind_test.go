package cluster

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// remembered is a store that remembers all that can be remembered with a time, at the moment now.
func remembered(t *rapid.T, now Instant) *Store {
	s := NewStore(Options{StuckAfter: 60e9})
	gang := func(i int) Key { return Key{"kai", "x", fmt.Sprint("g", i)} }
	room := []Quantity{{"gpu", 64_000}, {"pods", 110}}
	s.Apply(NodeState{Name: "n1", UID: "n1", Allocatable: room}, QueueState{Name: "q", UID: "q"})
	pods := rapid.IntRange(1, 8).Draw(t, "pods")
	for i := range pods {
		p := PodState{UID: fmt.Sprint("p", i), Namespace: "x", Name: fmt.Sprint("p", i), Ours: true, Gang: gang(i % 2), Requests: []Quantity{{"gpu", 1000}}}
		switch rapid.IntRange(0, 2).Draw(t, "phase") {
		case 0:
			p.Phase, p.NodeName = Running, "n1"
		case 1:
			p.Phase, p.NodeName, p.DeletedAt = Releasing, "n1", now.Add(time.Duration(rapid.IntRange(0, 300).Draw(t, "grace"))*time.Second)
		}
		s.Apply(p)
	}
	for i := range 2 {
		s.Apply(GangState{Key: gang(i), UID: fmt.Sprint(i), Queue: "q", Preemptible: true})
	}
	s.Snapshot(now)
	until := func() Instant { return now.Add(time.Duration(rapid.IntRange(1, 3600).Draw(t, "until")) * time.Second) }
	for i := range pods {
		uid := fmt.Sprint("p", i)
		switch rapid.IntRange(0, 4).Draw(t, "memory") {
		case 0:
			s.Assume(uid, "n1", nil, until())
		case 1:
			s.AssumeEvicted(uid, gang(1), until())
		case 2:
			s.HoldFor(uid, "n1", until())
		case 3:
			s.Postpone(uid, until())
		}
	}
	s.Freeze(gang(0), gang(1), until())
	s.Started(gang(0))
	s.Stale(gang(1), now.Add(-5*time.Second))
	s.NoteShares(map[string]Resources{"q": {0, 0, 1000}})
	s.NoteShares(map[string]Resources{"q": {0, 0, 9000}})
	s.RememberAnswer("why", RememberedAnswer{Until: now.Add(10 * time.Second), Wake: Forever})
	return s
}

// from tells what a snapshot remembers, with every time as the distance from now.
func from(s *Snapshot) string {
	m, text := s.Memory(), ""
	ago := func(t Instant) time.Duration {
		if t.IsZero() || t == Forever {
			return time.Duration(t.UnixNano())
		}
		return t.Sub(s.Now)
	}
	for i := range m.Holds {
		text += fmt.Sprintln("hold", m.Holds[i].ID(), ago(m.Holds[i].Until))
	}
	s.EachGang(func(g *Gang) {
		text += fmt.Sprintln(g.Key, ago(g.Displaced), ago(g.Since), ago(g.LastStart), ago(g.LastEviction), ago(g.StaleSince))
		for _, d := range g.Displacements {
			text += fmt.Sprintln("displaced", ago(d.At), d.By)
		}
	})
	s.EachPod(func(p *Pod) {
		text += fmt.Sprintln(p.UID, p.Phase, ago(p.Held), p.NotBefore.After(s.Now), p.Evicting(), p.Assumed())
	})
	for _, f := range m.Frozen {
		text += fmt.Sprintln("frozen", ago(f.Until))
	}
	for name, at := range m.Moved {
		text += fmt.Sprintln("moved", name, ago(at))
	}
	return text
}

// TestClockSetBack: a store whose clock is set back, and goes on from there, is at every moment what one is whose clock goes
// right; remembered answers are forgotten, and the Store's next timer is as far ahead as the other's.
func TestClockSetBack(t *testing.T) {
	t.Parallel()
	now := UnixNano(1_700_000_000_000_000_000)
	rapid.Check(t, func(t *rapid.T) {
		var twins [2]*Store
		seed := rapid.Custom(func(t *rapid.T) *Store { return remembered(t, now) })
		n := rapid.IntRange(0, 1<<20).Draw(t, "seed")
		twins[0], twins[1] = seed.Example(n), seed.Example(n)
		by := time.Duration(rapid.IntRange(2, 40_000).Draw(t, "back")) * time.Second
		at := time.Duration(0)
		for range rapid.IntRange(1, 6).Draw(t, "looks") {
			right, set := twins[0].Snapshot(now.Add(at)), twins[1].Snapshot(now.Add(at).Add(-by))
			if want, got := from(right), from(set); got != want {
				t.Fatalf("%s later:\n%s\nset back:\n%s", at, want, got)
			}
			a, b := twins[0].NextTimer(), twins[1].NextTimer()
			if a != Forever && a.Sub(right.Now) != b.Sub(set.Now) || (a == Forever) != (b == Forever) {
				t.Fatalf("the next timer is in %s and in %s", a.Sub(right.Now), b.Sub(set.Now))
			}
			if _, ok := set.RememberedAnswer("why"); ok {
				t.Fatal("an answer is remembered until the clock catches up")
			}
			for i := range 2 {
				twins[i].NoteShares(map[string]Resources{"q": {0, 0, 9000}})
			}
			at += time.Duration(rapid.IntRange(0, 1200).Draw(t, "pass")) * time.Second
		}
	})
}
