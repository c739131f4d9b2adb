package cluster

import (
	"fmt"
	"math/rand"
	"reflect"
	"testing"
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
	if told < 5000 {
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
