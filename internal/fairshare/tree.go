package fairshare

import (
	"cmp"
	"slices"
)

// tree groups queues by parent. Buffers are reused from one build to the next.
type tree struct {
	// Children of queue p are members[start[p+1]:start[p+2]]; those of the top level have p = -1.
	start   []int32
	members []int32
	walk    []int32
}

// build groups the queues by parent and sorts every group by priority, highest first, then age, then UID. Queues whose
// parent does not exist are in no group.
func (t *tree) build(queues []Queue) {
	n := len(queues)
	t.start = resize(t.start, n+2)
	clear(t.start)
	for i := range queues {
		if p := queues[i].Parent; p >= -1 && int(p) < n {
			t.start[p+2]++
		}
	}
	for i := 1; i < len(t.start); i++ {
		t.start[i] += t.start[i-1]
	}
	t.members = resize(t.members, int(t.start[n+1]))
	t.walk = resize(t.walk, n+1) // here: where the next member of each group goes
	copy(t.walk, t.start)
	for i := range queues {
		if p := queues[i].Parent; p >= -1 && int(p) < n {
			t.members[t.walk[p+1]] = int32(i)
			t.walk[p+1]++
		}
	}
	for p := -1; p < n; p++ {
		if group := t.children(int32(p)); len(group) > 1 {
			slices.SortFunc(group, func(a, b int32) int { return compareRank(&queues[a], &queues[b]) })
		}
	}
	// Parents before children. A queue in a cycle of parents, or below one, is never reached.
	t.walk = append(t.walk[:0], t.children(-1)...)
	for i := 0; i < len(t.walk); i++ {
		t.walk = append(t.walk, t.children(t.walk[i])...)
	}
}

// children returns the sorted children of a queue, -1 being the root.
func (t *tree) children(parent int32) []int32 {
	return t.members[t.start[parent+1]:t.start[parent+2]]
}

// compareRank orders siblings: priority descending, creation ascending, UID ascending.
func compareRank(a, b *Queue) int {
	if c := cmp.Compare(b.Priority, a.Priority); c != 0 {
		return c
	}
	if c := cmp.Compare(a.Created, b.Created); c != 0 {
		return c
	}
	return cmp.Compare(a.UID, b.UID)
}

// resize returns a slice of length n that reuses the buffer if it is large enough. Its contents are arbitrary.
func resize[T any](buffer []T, n int) []T {
	if cap(buffer) < n {
		return make([]T, n, max(n, 2*cap(buffer)))
	}
	return buffer[:n]
}
