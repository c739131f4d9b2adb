package cluster

import (
	"fmt"
	"math/rand"
	"reflect"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestSince: whatever happens between two snapshots, the events of Since lead from the older one's image to the newer one's, and nothing is told that did not change: from a
// snapshot to itself there is none.
func TestSince(t *testing.T) {
	t.Parallel()
	told := 0
	for seed := range int64(200) {
		r := rand.New(rand.NewSource(seed))
		s := NewStore(Options{})
		old := s.Snapshot(UnixNano(1))
		shown := map[string]Event{}
		for step := range 20 {
			for range r.Intn(5) {
				s.Apply(happening(r))
			}
			snap := s.Snapshot(UnixNano(int64(step + 2)))
			events, ok := snap.Since(old)
			if !ok {
				t.Fatal("they are of one Store")
			}
			for _, e := range events {
				told++
				if name, gone := subject(e); gone {
					if _, there := shown[name]; !there {
						t.Errorf("seed %d: %s goes that was not there", seed, name)
					}
					delete(shown, name)
				} else {
					shown[name] = e
				}
			}
			want := map[string]Event{}
			for _, e := range snap.Image().Events {
				name, _ := subject(e)
				want[name] = e
			}
			if !reflect.DeepEqual(shown, want) {
				t.Fatalf("seed %d, step %d: it comes to\n%v\nand there is\n%v", seed, step, shown, want)
			}
			if again, _ := snap.Since(snap); len(again) > 0 {
				t.Fatalf("seed %d: from a snapshot to itself: %v", seed, again)
			}
			old = snap
		}
	}
	if told < 3000 {
		t.Errorf("only %d events", told)
	}
	if _, ok := NewStore(Options{}).Snapshot(UnixNano(1)).Since(NewStore(Options{}).Snapshot(UnixNano(1))); ok {
		t.Error("snapshots of two Stores are compared")
	}
}

// happening is something that comes, changes or goes.
func happening(r *rand.Rand) Event {
	name := fmt.Sprint("x", r.Intn(70)) // more than a page
	key := Key{Face: "kai", Namespace: "ns", Name: name}
	some := []Quantity{{Name: "cpu", Value: int64(1 + r.Intn(3))}}
	switch r.Intn(12) {
	case 0, 1:
		return NodeState{Name: name, Allocatable: some}
	case 2:
		return NodeGone{name}
	case 3:
		return QueueState{Name: name, Quota: some}
	case 4:
		return QueueGone{name}
	case 5:
		return GangState{Key: key, UID: name, Queue: "x1", Sets: FlatTree(1)}
	case 6:
		return GangGone{key}
	case 7, 8:
		return PodState{UID: name, Namespace: "ns", Name: name, Ours: true, Gang: key, Requests: some}
	case 9:
		return PodGone{name}
	case 10:
		return ObjectState{Kind: ConfigMaps, Key: "ns/" + name, Object: some}
	}
	return ObjectGone{ConfigMaps, "ns/" + name}
}

// subject is what an event is about, and whether that goes.
func subject(e Event) (name string, gone bool) {
	switch e := e.(type) {
	case NodeState:
		return "node " + e.Name, false
	case NodeGone:
		return "node " + e.Name, true
	case QueueState:
		return "queue " + e.Name, false
	case QueueGone:
		return "queue " + e.Name, true
	case GangState:
		return "gang " + e.Key.String(), false
	case GangGone:
		return "gang " + e.Key.String(), true
	case PodState:
		return "pod " + e.UID, false
	case PodGone:
		return "pod " + e.UID, true
	case ObjectState:
		return "object " + e.Key, false
	case ObjectGone:
		return "object " + e.Key, true
	}
	panic(fmt.Sprintf("%T", e))
}

// TestMemorySince: whatever happens between two snapshots, what the older one remembered and the part of MemorySince come to what the newer one remembers; and of what did not change nothing is said.
func TestMemorySince(t *testing.T) {
	t.Parallel()
	seen, said := map[string]int{}, 0
	for seed := range int64(300) {
		r := rand.New(rand.NewSource(seed))
		s := NewStore(Options{StuckAfter: 3})
		now := UnixNano(1000)
		old := s.Snapshot(now)
		known := map[string]map[string]string{} // by subject, what is remembered of it
		learn(known, old.Memory())
		for step := range 20 {
			for range r.Intn(12) {
				if r.Intn(4) == 0 {
					s.Apply(happening(r))
				} else {
					recollection(r, s, now)
				}
			}
			now = now.Add(time.Duration(r.Intn(3)))
			snap := s.Snapshot(now)
			events, _ := snap.Since(old)
			part, again := snap.MemorySince(old)
			for _, e := range events {
				name, _ := subject(e)
				delete(known, name)
			}
			for _, k := range again.Gangs {
				delete(known, "gang "+k.String())
			}
			for prefix, names := range map[string][]string{"pod ": again.Pods, "hold ": again.Holds, "question ": again.Questions} { // order: each on its own
				for _, n := range names {
					delete(known, prefix+n)
				}
			}
			for _, h := range part.Holds {
				delete(known, "hold "+h.ID())
			}
			for q := range part.Answers { // order: each on its own
				delete(known, "question "+q)
			}
			delete(known, "all")
			said += learn(known, part)
			for name, of := range known { // order: each on its own
				if at, ok := of["postponed"]; ok && at <= fmt.Sprintf("%020d", now) {
					delete(of, "postponed")
				}
				if len(of) == 0 {
					delete(known, name)
				}
			}
			want := map[string]map[string]string{}
			learn(want, snap.Memory())
			if !reflect.DeepEqual(known, want) {
				t.Fatalf("seed %d, step %d: %s", seed, step, cmp.Diff(want, known))
			}
			for _, of := range want { // order: a sum
				for fact := range of { // order: likewise
					seen[fact]++
				}
			}
			part, again = snap.MemorySince(snap)
			for q, a := range part.Answers { // order: each on its own
				if a.Asked == 0 { // whether it is the one that it was is not known
					delete(part.Answers, q)
				}
			}
			if len(part.Holds)+len(part.Gangs)+len(part.Held)+len(part.Moved)+len(part.Answers)+len(part.Charged)+len(part.Returning)+len(part.Gone)+len(part.Served)+len(part.Postponed) > 0 || !reflect.DeepEqual(again, Again{}) {
				t.Fatalf("seed %d: from a snapshot to itself: %v, %v", seed, part, again)
			}
			old = snap
		}
	}
	t.Logf("facts seen: %v; said: %d", seen, said)
	for _, fact := range []string{"gang", "held", "charged", "gone", "postponed", "moved", "served", "hold", "answer", "returning"} {
		if seen[fact] < 100 {
			t.Errorf("%s: seen %d times", fact, seen[fact])
		}
	}
}

// learn adds what is remembered, by its subject.
func learn(known map[string]map[string]string, m Memory) (n int) {
	put := func(subject, fact, what string) {
		n++
		if known[subject] == nil {
			known[subject] = map[string]string{}
		}
		known[subject][fact] = what
	}
	for _, g := range m.Gangs {
		put("gang "+g.Gang.String(), "gang", fmt.Sprintf("%+v", g))
	}
	for _, h := range m.Holds {
		put("hold "+h.ID(), "hold", fmt.Sprintf("%+v", h))
	}
	for _, uid := range m.Returning {
		put("pod "+uid, "returning", "")
	}
	for uid, at := range m.Held { // order: each on its own, as in those below
		put("pod "+uid, "held", fmt.Sprint(at))
	}
	for uid, c := range m.Charged { // order: likewise
		put("pod "+uid, "charged", fmt.Sprintf("%+v", c))
	}
	for uid, g := range m.Gone { // order: likewise
		put("pod "+uid, "gone", fmt.Sprintf("%+v", g))
	}
	for uid, at := range m.Postponed { // order: likewise
		put("pod "+uid, "postponed", fmt.Sprintf("%020d", at))
	}
	for q, at := range m.Moved { // order: likewise
		put("queue "+q, "moved", fmt.Sprint(at))
	}
	for q, at := range m.Served { // order: likewise
		put("queue "+q, "served", fmt.Sprint(at))
	}
	for q, a := range m.Answers { // order: likewise
		put("question "+q, "answer", fmt.Sprintf("%+v", a))
	}
	if len(m.Frozen) > 0 || !m.News.IsZero() {
		put("all", "frozen and news", fmt.Sprint(m.Frozen, m.News))
	}
	return n
}

// recollection is something that a Store remembers, or forgets, of what is there.
func recollection(r *rand.Rand, s *Store, now Instant) {
	name := fmt.Sprint("x", r.Intn(12)) // few, so that it meets
	key := Key{Face: "kai", Namespace: "ns", Name: name}
	some := []Quantity{{Name: "cpu", Value: int64(1 + r.Intn(3))}}
	until := now.Add(time.Duration(1 + r.Intn(9)))
	switch r.Intn(15) {
	case 0:
		s.Postpone(name, until)
	case 1:
		s.Hold(Hold{HoldState: HoldState{Gang: key, Pod: name, Node: "x1", Until: until}})
	case 2:
		s.Hold(Hold{HoldState: HoldState{Gang: key, Moved: name, Node: "x2", Bundle: fmt.Sprint(r.Intn(3)), Until: until}})
	case 3:
		s.RememberAnswer(name, RememberedAnswer{Until: until, Asked: s.Generation(), Wake: Forever, Why: s.Generation() % 3})
	case 4:
		s.RememberAnswer(name, RememberedAnswer{Until: until, Why: r.Intn(3)})
	case 5:
		s.Freeze(key, Key{Face: "kai", Namespace: "ns", Name: "x1"}, until)
	case 6:
		s.Apply(PodState{UID: name, Namespace: "ns", Name: name, Ours: true, Gang: key, Requests: some, Phase: Pending})
	case 7:
		s.Apply(PodState{UID: name, Namespace: "ns", Name: name, Ours: true, Gang: key, Requests: some, Phase: Running, NodeName: "x1", Recreated: r.Intn(2) == 0})
	case 8:
		s.Apply(GangState{Key: key, UID: name, Queue: fmt.Sprint("x", r.Intn(3)), Sets: FlatTree(1), Preemptible: r.Intn(2) == 0})
	case 9:
		s.Apply(NodeState{Name: "x1", Allocatable: some}, QueueState{Name: "x1", Quota: some})
	case 10:
		s.AssumeEvicted(name, key, until)
	case 11:
		s.Apply(PodState{UID: name, Namespace: "ns", Name: name, Ours: true, Gang: key, Requests: some, Phase: Releasing, NodeName: "x1", DeletedAt: until})
	case 12:
		s.ForgetAnswers()
	case 13:
		s.Assume(name, "x1", nil, until)
	case 14:
		share := Resources{int64(1 + r.Intn(1000)*1000)}
		s.shares["x1"] = noted{share: Resources{1 << 40}, since: s.now.Add(-2 * Dwell), other: share}
		s.NoteShares(map[string]Resources{"x1": share})
	}
}
