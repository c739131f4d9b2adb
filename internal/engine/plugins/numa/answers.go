package numa

import (
	"encoding/binary"

	"github.com/muster-scheduler/muster/internal/cluster"
)

// few is how many containers are placed sooner than looked up.
const few = 8

// answers are how pods of one class come out on nodes of equal zones, of which equally much is free: a class is asked about on many nodes
// in a row, and there may be a thousand containers in a pod.
type answers struct {
	to  *demand
	are map[string]answer
	key []byte
}

type answer struct {
	taken   matrix // nobody's to write to
	verdict verdict
}

// place is shape.place for pods of a class.
func (i *instance) place(l *zoneLedger, c *cluster.Class, free matrix) (matrix, verdict) {
	d := i.demand(c)
	groups := d.groups(l.scope)
	if len(groups) <= few {
		return l.place(groups, free)
	}
	k := &i.known
	if k.to != d {
		k.to, k.are = d, map[string]answer{}
	}
	if l.like == "" {
		l.like = l.likeness()
	}
	k.key = numbers(append(k.key[:0], l.like...), free.v)
	a, known := k.are[string(k.key)]
	if !known {
		a.taken, a.verdict = l.place(groups, free)
		k.are[string(k.key)] = a
	}
	return a.taken, a.verdict
}

// likeness is equal for shapes on which all comes out alike, but for what is free.
func (s *shape) likeness() string {
	key := append([]byte(s.policy+"/"+cluster.ZonePolicy(s.scope)+"/"), byte(len(s.names)))
	for _, at := range s.local {
		key = binary.AppendVarint(key, int64(at))
	}
	return string(numbers(key, s.alloc.v))
}

func numbers(key []byte, of []int64) []byte {
	for _, x := range of {
		key = binary.AppendVarint(key, x)
	}
	return key
}
