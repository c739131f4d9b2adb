package apply

import (
	"context"
	"sync"
)

// line is a queue that takes whatever it is given, at once: who decides does not wait for who writes. It is full while it holds as much
// as its bound or more. Who sees that decides nothing more before there is room, so that a line holds its bound and what one cycle
// decides at most. It is safe for concurrent use.
type line[T any] struct {
	bound int
	some  chan struct{} // something may be taken
	room  chan struct{} // it was full, and is not any more

	mu    sync.Mutex
	items []T
}

func newLine[T any](bound int) *line[T] {
	return &line[T]{bound: bound, some: make(chan struct{}, 1), room: make(chan struct{}, 1)}
}

// put appends items.
func (l *line[T]) put(items ...T) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.items = append(l.items, items...)
	if len(l.items) > 0 {
		signal(l.some)
	}
}

// take waits for the first item and removes it; false when ctx ends.
func (l *line[T]) take(ctx context.Context) (item T, ok bool) {
	for ctx.Err() == nil {
		if item, ok = l.first(); ok {
			return item, true
		}
		select {
		case <-l.some:
		case <-ctx.Done():
		}
	}
	return item, false
}

func (l *line[T]) first() (item T, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := len(l.items)
	if n == 0 {
		return item, false
	}
	var none T
	item, l.items[0] = l.items[0], none // so that it can go
	l.items = l.items[1:]
	if n > 1 {
		signal(l.some) // for the next who takes
	}
	if n == l.bound {
		signal(l.room)
	}
	return item, true
}

func (l *line[T]) full() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.items) >= l.bound
}

// signal tells whoever waits, once.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
