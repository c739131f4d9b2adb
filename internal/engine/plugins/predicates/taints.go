package predicates

import (
	"encoding/binary"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine/policy"
)

// taints is those of all nodes that keep pods away, so arranged that a class is asked about kinds of nodes first, which have taints
// of the same keys and effects in the same order, and about a node only what its kind leaves open: which values its taints have. A
// node costs little, however many taints it has and however many a class tolerates.
type taints struct {
	of      []tainted // by node
	all     []taint
	number  map[kind]int32
	ofKey   map[string][]int32 // kinds
	kinds   []kindOf           // by number
	effects []v1.TaintEffect

	// What the class that was told last tolerates is marked with its turn: effects, whatever the key, kinds, and values.
	turn   uint32
	effect []uint32
	value  []uint32
}

// tainted is a node: its row, nil for no taints, and where the first of its taints is, which are in its order.
type tainted struct {
	row  *row
	from int32
}

// taint is one of a node.
type taint struct {
	is    *v1.Taint
	value int32           // its number, once the values of its kind have one
	no    *policy.Verdict // nil until said
}

// kind is the taints of a key and an effect.
type kind struct {
	key    string
	effect v1.TaintEffect
}

// kindOf is what is known of a kind.
type kindOf struct {
	effect int
	at     []int32          // its taints
	values map[string]int32 // a number for each of their values; nil until a class tolerates one
	turn   uint32
}

// row is nodes whose taints are of the same kinds, in order.
type row struct {
	kinds []int32
	first int32  // where the taints of the first such node are
	alike []bool // by place: all of them have the first one's value

	turn uint32  // of the class that it was asked for last
	open []int32 // the places that may keep the class away, up to one that does from all of them
}

// tolerate tells what a class tolerates.
func (s *statics) tolerate(c *cluster.Class, snap *cluster.Snapshot) {
	if s.taints == nil {
		s.taints = arrange(snap)
	}
	if t := s.taints; len(t.all) > 0 {
		t.tolerate(c.Tolerations)
	}
}

// arrange costs O(taints of all nodes); most nodes look like the one before.
func arrange(snap *cluster.Snapshot) *taints {
	t := &taints{of: make([]tainted, snap.MaxNodeID()), number: map[kind]int32{}, ofKey: map[string][]int32{}}
	known := map[string]*row{}
	var before *row
	var kinds []int32
	var key []byte
	for _, id := range snap.NodeOrder {
		from := int32(len(t.all))
		kinds, key = kinds[:0], key[:0]
		node := snap.Node(id)
		for k := range node.Taints {
			x := &node.Taints[k]
			if x.Effect == v1.TaintEffectPreferNoSchedule {
				continue
			}
			i := t.kindOf(x, before, len(kinds))
			t.kinds[i].at = append(t.kinds[i].at, int32(len(t.all)))
			t.all = append(t.all, taint{is: x})
			kinds, key = append(kinds, i), binary.LittleEndian.AppendUint32(key, uint32(i))
		}
		if len(kinds) == 0 {
			continue
		}
		r := known[string(key)]
		if r == nil {
			r = &row{kinds: slices.Clone(kinds), first: from, alike: slices.Repeat([]bool{true}, len(kinds))}
			known[string(key)] = r
		}
		for k, same := range r.alike {
			r.alike[k] = same && t.all[int(r.first)+k].is.Value == t.all[int(from)+k].is.Value
		}
		t.of[id], before = tainted{r, from}, r
	}
	t.effect = make([]uint32, len(t.effects))
	return t
}

// kindOf returns a taint's kind; it looks first at what is at the same place of another row.
func (t *taints) kindOf(x *v1.Taint, guess *row, place int) int32 {
	if guess != nil && place < len(guess.kinds) {
		if y := t.all[int(guess.first)+place].is; y.Key == x.Key && y.Effect == x.Effect {
			return guess.kinds[place]
		}
	}
	is := kind{x.Key, x.Effect}
	i, known := t.number[is]
	if !known {
		i = int32(len(t.kinds))
		t.number[is] = i
		effect := slices.Index(t.effects, x.Effect)
		if effect < 0 {
			effect = len(t.effects)
			t.effects = append(t.effects, x.Effect)
		}
		t.kinds, t.ofKey[x.Key] = append(t.kinds, kindOf{effect: effect}), append(t.ofKey[x.Key], i)
	}
	return i
}

// tolerate marks what is tolerated; see tolerated.
func (t *taints) tolerate(all []v1.Toleration) {
	t.turn++
	for k := range all {
		o := &all[k]
		exists := o.Operator == v1.TolerationOpExists
		if exists && o.Key == "" {
			for i, effect := range t.effects {
				if o.Effect == "" || o.Effect == effect {
					t.effect[i] = t.turn
				}
			}
			continue
		}
		for _, i := range t.ofKey[o.Key] {
			switch of := &t.kinds[i]; {
			case o.Effect != "" && o.Effect != t.effects[of.effect]:
			case exists:
				of.turn = t.turn
			case o.Key != "" && (o.Operator == "" || o.Operator == v1.TolerationOpEqual):
				t.markValue(of, o.Value)
			}
		}
	}
}

// markValue marks the taints of a kind that have a value. The first time, it numbers the values of the kind.
func (t *taints) markValue(of *kindOf, value string) {
	if of.values == nil {
		of.values = map[string]int32{}
		for _, at := range of.at {
			x := &t.all[at]
			id, known := of.values[x.is.Value]
			if !known {
				id = int32(len(t.value))
				of.values[x.is.Value] = id
				t.value = append(t.value, 0)
			}
			x.value = id
		}
	}
	if i, ok := of.values[value]; ok {
		t.value[i] = t.turn
	}
}

// tolerates says whether the class that was told last tolerates the value of a taint of a kind.
func (t *taints) tolerates(of *kindOf, x *taint) bool {
	return of.values != nil && t.value[x.value] == t.turn
}

// ask finds which places of a row are open for the class that was told last.
func (t *taints) ask(r *row) {
	r.turn, r.open = t.turn, r.open[:0]
	for k, i := range r.kinds {
		of := &t.kinds[i]
		if of.turn == t.turn || t.effect[of.effect] == t.turn || r.alike[k] && t.tolerates(of, &t.all[int(r.first)+k]) {
			continue
		}
		if r.open = append(r.open, int32(k)); r.alike[k] || of.values == nil {
			return
		}
	}
}

// untolerated says which taint of a node, the first of them, keeps pods of the class that was told last away; nil for none.
func (t *taints) untolerated(n cluster.NodeID, refusal func(v1.Taint) *policy.Verdict) *policy.Verdict {
	at := t.of[n]
	if at.row == nil {
		return nil
	}
	if at.row.turn != t.turn {
		t.ask(at.row)
	}
	for _, k := range at.row.open {
		if x := &t.all[at.from+k]; !t.tolerates(&t.kinds[at.row.kinds[k]], x) {
			if x.no == nil {
				x.no = refusal(*x.is)
			}
			return x.no
		}
	}
	return nil
}
