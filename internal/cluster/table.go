package cluster

// pageBits sizes a page: 64 entries, half a kilobyte of pointers, so that touching one entry after a Snapshot copies
// little and a directory of a hundred thousand entries stays at sixteen hundred pointers.
const pageBits = 6

type page[T any] struct {
	epoch   uint64
	entries [1 << pageBits]*T
}

// table maps dense IDs to objects in copy-on-write pages. A view (freeze) shares the pages; the owner copies a page the
// first time it writes to it in a new epoch.
type table[T any] struct {
	pages []*page[T]
	free  []int32 // recycled ids, used last in first out
	n     int32   // ids handed out so far
}

func (t *table[T]) get(id int32) *T {
	if id < 0 || id >= t.n {
		return nil
	}
	return t.pages[id>>pageBits].entries[id&(1<<pageBits-1)]
}

func (t *table[T]) set(epoch uint64, id int32, v *T) {
	p := t.pages[id>>pageBits]
	if p.epoch != epoch {
		c := *p
		c.epoch = epoch
		p = &c
		t.pages[id>>pageBits] = p
	}
	p.entries[id&(1<<pageBits-1)] = v
}

func (t *table[T]) alloc(epoch uint64) int32 {
	if k := len(t.free); k > 0 {
		id := t.free[k-1]
		t.free = t.free[:k-1]
		return id
	}
	id := t.n
	t.n++
	if int(id>>pageBits) == len(t.pages) {
		t.pages = append(t.pages, &page[T]{epoch: epoch})
	}
	return id
}

func (t *table[T]) release(epoch uint64, id int32) {
	t.set(epoch, id, nil)
	t.free = append(t.free, id)
}

// freeze returns a view that later writes through t do not change, provided the owner moves to a new epoch.
func (t *table[T]) freeze() table[T] {
	return table[T]{pages: append(make([]*page[T], 0, len(t.pages)), t.pages...), n: t.n}
}

// each calls f for every entry in ID order.
func (t *table[T]) each(f func(*T)) {
	for _, p := range t.pages {
		for _, v := range p.entries {
			if v != nil {
				f(v)
			}
		}
	}
}
