package predicates

import (
	v1 "k8s.io/api/core/v1"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine"
)

// taints is those of all nodes that keep pods away, numbered, so that which of them a class tolerates is found from its side: a
// node costs a look at a number for each taint of it, however many tolerations there are.
type taints struct {
	hard  [][]int32 // by node
	all   []v1.Taint
	no    []*engine.Verdict
	keyOf []int32
	keys  map[string]int32
	ofKey [][]int32 // by key
	alike map[alike][]int32

	// What the class that was told last tolerates: those marked with its turn.
	turn  uint32
	every bool
	key   []uint32
	one   []uint32
}

// alike is taints that differ in their effects only.
type alike struct{ key, value string }

// tolerate tells what a class tolerates.
func (s *statics) tolerate(c *cluster.Class, snap *cluster.Snapshot) {
	if s.taints == nil {
		s.taints = s.number(snap)
	}
	if t := s.taints; len(t.all) > 0 {
		t.tolerate(c.Tolerations)
	}
}

// number costs O(taints of all nodes).
func (s *statics) number(snap *cluster.Snapshot) *taints {
	t := &taints{hard: make([][]int32, snap.MaxNodeID()), keys: map[string]int32{}, alike: map[alike][]int32{}}
	known := map[v1.Taint]int32{}
	for _, node := range snap.NodeOrder {
		for _, x := range snap.Node(node).Taints {
			if x.Effect == v1.TaintEffectPreferNoSchedule {
				continue
			}
			x.TimeAdded = nil
			id, ok := known[x]
			if !ok {
				id = int32(len(t.all))
				known[x] = id
				t.add(id, x, s.refusal(x))
			}
			t.hard[node] = append(t.hard[node], id)
		}
	}
	t.key, t.one = make([]uint32, len(t.keys)), make([]uint32, len(t.all))
	return t
}

func (t *taints) add(id int32, x v1.Taint, no *engine.Verdict) {
	key, ok := t.keys[x.Key]
	if !ok {
		key = int32(len(t.keys))
		t.keys[x.Key] = key
		t.ofKey = append(t.ofKey, nil)
	}
	at := alike{x.Key, x.Value}
	t.all, t.no, t.keyOf = append(t.all, x), append(t.no, no), append(t.keyOf, key)
	t.ofKey[key], t.alike[at] = append(t.ofKey[key], id), append(t.alike[at], id)
}

// tolerate marks what is tolerated; see tolerated.
func (t *taints) tolerate(all []v1.Toleration) {
	t.turn++
	t.every = false
	for k := range all {
		o := &all[k]
		key, known := t.keys[o.Key]
		exists := o.Operator == v1.TolerationOpExists
		switch {
		case exists && o.Key == "" && o.Effect == "":
			t.every = true
		case exists && o.Key == "":
			for _, ids := range t.ofKey {
				t.mark(ids, o.Effect)
			}
		case !known:
		case exists && o.Effect == "":
			t.key[key] = t.turn
		case exists:
			t.mark(t.ofKey[key], o.Effect)
		case o.Key != "" && (o.Operator == "" || o.Operator == v1.TolerationOpEqual):
			t.mark(t.alike[alike{o.Key, o.Value}], o.Effect)
		}
	}
}

// mark marks those with an effect; "" for any.
func (t *taints) mark(ids []int32, effect v1.TaintEffect) {
	for _, id := range ids {
		if effect == "" || t.all[id].Effect == effect {
			t.one[id] = t.turn
		}
	}
}

func (t *taints) untolerated(n cluster.NodeID) *engine.Verdict {
	for _, id := range t.hard[n] {
		if t.one[id] != t.turn && !t.every && t.key[t.keyOf[id]] != t.turn {
			return t.no[id]
		}
	}
	return nil
}
