package vcqueue

import (
	"cmp"
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	bus "github.com/muster-scheduler/muster/api/volcano/bus/v1alpha1"
	"github.com/muster-scheduler/muster/api/volcano/keys"
	scheduling "github.com/muster-scheduler/muster/api/volcano/scheduling/v1beta1"
	"github.com/muster-scheduler/muster/internal/entry"
)

// book is what the controller knows.
type book struct {
	queues   map[string]*scheduling.Queue
	below    map[string]map[string]bool // by parent
	groups   *counts
	commands map[string]map[types.UID]*bus.Command // by queue
}

func newBook(groups *counts) *book {
	return &book{queues: map[string]*scheduling.Queue{}, below: map[string]map[string]bool{}, groups: groups, commands: map[string]map[types.UID]*bus.Command{}}
}

// parentOf is the queue above; root has none.
func parentOf(q *scheduling.Queue) string {
	if q.Name == keys.RootQueue {
		return ""
	}
	return cmp.Or(q.Spec.Parent, keys.RootQueue)
}

// queueSeen takes in a queue, and returns the queues to look at: it and those below.
func (b *book) queueSeen(q *scheduling.Queue, gone bool) []string {
	if had := b.queues[q.Name]; had != nil {
		up := parentOf(had)
		delete(b.below[up], q.Name)
		if len(b.below[up]) == 0 {
			delete(b.below, up)
		}
	}
	if gone {
		delete(b.queues, q.Name)
	} else {
		b.queues[q.Name] = q
		entry.Put(b.below, parentOf(q), q.Name, true)
	}
	return append([]string{q.Name}, slices.Sorted(maps.Keys(b.below[q.Name]))...)
}

// commandSeen takes in a Command, and returns the queue that it is for.
func (b *book) commandSeen(c *bus.Command, gone bool) []string {
	t := c.TargetObject
	if t == nil || t.Kind != "Queue" || t.APIVersion != scheduling.GroupVersion.String() {
		return nil
	}
	if gone {
		delete(b.commands[t.Name], c.UID)
		if len(b.commands[t.Name]) == 0 {
			delete(b.commands, t.Name)
		}
		return []string{t.Name}
	}
	entry.Put(b.commands, t.Name, c.UID, c)
	return []string{t.Name}
}

// order is the Command that a queue is to obey, the latest one; nil for none. Those before it, and those that name another queue of the name by its UID, are for
// nobody any more.
func (b *book) order(q *scheduling.Queue) (order *bus.Command, others []*bus.Command) {
	for _, c := range b.commandsFor(q.Name) {
		if uid := c.TargetObject.UID; uid != "" && uid != q.UID {
			others = append(others, c)
			continue
		}
		if order != nil {
			others = append(others, order)
		}
		order = c
	}
	return order, others
}

// commandsFor are the Commands for a queue, oldest first.
func (b *book) commandsFor(name string) []*bus.Command {
	return slices.SortedFunc(maps.Values(b.commands[name]), func(x, y *bus.Command) int {
		return cmp.Or(x.CreationTimestamp.Compare(y.CreationTimestamp.Time), cmp.Compare(x.Namespace, y.Namespace), cmp.Compare(x.Name, y.Name))
	})
}

// open says whether a queue takes work. One that nobody looked at does.
func open(q *scheduling.Queue) bool {
	return q.Status.State == "" || q.Status.State == scheduling.QueueStateOpen
}

// shut says whether a queue was closed: those below it are to be, too.
func shut(q *scheduling.Queue) bool {
	return q != nil && (q.Status.State == scheduling.QueueStateClosed || q.Status.State == scheduling.QueueStateClosing)
}

// next is the state after an action: Volcano's table of states. closed is what closing leads to.
func next(state scheduling.QueueState, action bus.Action, closed scheduling.QueueState) scheduling.QueueState {
	switch {
	case action == bus.OpenQueueAction:
		return scheduling.QueueStateOpen
	case state == scheduling.QueueStateClosed:
		return scheduling.QueueStateClosed
	case state == scheduling.QueueStateClosing, action == bus.CloseQueueAction:
		return closed
	case state == "":
		return scheduling.QueueStateOpen
	}
	return state
}

// founded are the queues that there always are: the one above all, of which nothing is taken back, and the one of work that names none. A
// queue of the name that somebody else made stays as it is.
func founded(name string) *scheduling.Queue {
	q := &scheduling.Queue{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: scheduling.QueueSpec{Weight: 1}}
	switch name {
	case keys.RootQueue:
		q.Spec.Reclaimable = ptr.To(false)
	case keys.DefaultQueue:
		q.Spec.Reclaimable, q.Spec.Parent = ptr.To(true), keys.RootQueue
	default:
		return nil
	}
	return q
}

// plan is what a look at a queue has written, in this order.
type plan struct {
	// found is a queue that has to be there and is not; nil for none.
	found *scheduling.Queue
	queue *scheduling.Queue // nil: nothing but Commands is written
	// take are Commands that are deleted first: they are for nobody any more.
	take []*bus.Command
	// adopt says that a queue without a parent gets root.
	adopt bool
	// mark is what the annotation closed-by-parent is to say; empty: as it is. It comes before the state when a queue is closed, after it when
	// one is opened, so that what is half done is gone on with.
	mark string
	// state is what the state is to be; empty: as it is.
	state scheduling.QueueState
	// obeys is the Command that is obeyed by all that, and deleted then: who dies before obeys it again, which changes nothing more. Nil: none.
	obeys *bus.Command
}

// decide says what is to be written of a queue.
func (b *book) decide(name string) plan {
	q := b.queues[name]
	switch {
	case q == nil:
		return plan{found: founded(name), take: b.commandsFor(name)}
	case q.DeletionTimestamp != nil:
		return plan{take: b.commandsFor(name)}
	}
	p := plan{queue: q}
	p.obeys, p.take = b.order(q)
	p.adopt = q.Spec.Parent == "" && name != keys.RootQueue
	action := bus.Action("")
	if p.obeys != nil {
		action = bus.Action(p.obeys.Action)
	}
	above, byParent := b.queues[parentOf(q)], q.Annotations[keys.ClosedByParent] == "true"
	switch {
	case action == bus.CloseQueueAction && name == keys.RootQueue:
		action = bus.SyncQueueAction // it cannot be closed
	case action == bus.OpenQueueAction && shut(above):
		action, p.obeys = bus.SyncQueueAction, nil // not before its parent is
	case action != bus.OpenQueueAction && open(q) && shut(above):
		action = bus.CloseQueueAction
		if !byParent {
			p.mark = "true"
		}
	case byParent && !shut(above) && (above != nil || parentOf(q) == keys.RootQueue) && action != bus.CloseQueueAction:
		action, p.mark = bus.OpenQueueAction, "false"
	case action == bus.OpenQueueAction && byParent:
		p.mark = "false"
	}
	closed := scheduling.QueueStateClosed
	if b.groups.queues[name] > 0 {
		closed = scheduling.QueueStateClosing
	}
	if to := next(q.Status.State, action, closed); to != q.Status.State {
		p.state = to
	}
	return p
}
