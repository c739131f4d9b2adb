package podgroup

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-scheduler/muster/api/kai/keys"
	v2 "github.com/muster-scheduler/muster/api/scheduling/v2"
	"github.com/muster-scheduler/muster/api/scheduling/v2alpha2"
	"github.com/muster-scheduler/muster/internal/dialect/kai"
	"github.com/muster-scheduler/muster/internal/dialect/tally"
	"github.com/muster-scheduler/muster/internal/entry"
	"github.com/muster-scheduler/muster/internal/kube/write"
)

// balance is what pods ask for and hold.
type balance struct {
	requested, allocated, fixed tally.Amounts // fixed: allocated to pods that were placed as non-preemptible
}

func (b balance) plus(other balance) balance {
	return balance{b.requested.Plus(other.requested), b.allocated.Plus(other.allocated), b.fixed.Plus(other.fixed)}
}

func (b balance) minus(other balance) balance {
	return balance{b.requested.Minus(other.requested), b.allocated.Minus(other.allocated), b.fixed.Minus(other.fixed)}
}

func (b balance) empty() bool {
	return b.requested.Empty() && b.allocated.Empty() && b.fixed.Empty()
}

func (b balance) equal(other balance) bool {
	return b.requested.Equal(other.requested) && b.allocated.Equal(other.allocated) && b.fixed.Equal(other.fixed)
}

// of is the balance of a gang that is, or is not, non-preemptible now.
func (b balance) of(fixed bool) balance {
	if fixed {
		b.fixed = b.allocated
	}
	return b
}

// status is a balance as objects show it.
func (b balance) status() v2alpha2.PodGroupResourcesStatus {
	return v2alpha2.PodGroupResourcesStatus{Allocated: b.allocated.List(), Requested: b.requested.List(), AllocatedNonPreemptible: b.fixed.List()}
}

// account is the balance of the pods of one gang that are charged to one queue.
type account struct {
	queue string
	balance
	told balance // the part of it that is in the queue's rest
}

// account is where the account of a queue is; below 0: there is none.
func (g *gang) account(queue string) int {
	return slices.IndexFunc(g.accounts, func(a account) bool { return a.queue == queue })
}

// queueRest is what is charged to a queue and is in the status of no PodGroup: what pods hold whose PodGroup is gone, or is in
// another queue now.
type queueRest struct {
	exists                      bool // the Queue does
	queued                      bool
	observed                    string
	gangs                       int // that have told of something
	requested, allocated, fixed tally.Sum
}

// book changes what a member is charged for.
func (f *aggregator) book(m *member, was, now share, u urgency) {
	g := m.gang
	at := g.account(m.queue)
	if at < 0 {
		at, g.accounts = len(g.accounts), append(g.accounts, account{queue: m.queue})
	}
	a := &g.accounts[at]
	a.balance = a.minus(was.balance(m.fixed)).plus(now.balance(m.fixed))
	f.tell(g, a)
	if a.empty() {
		g.accounts = slices.Delete(g.accounts, at, at+1)
	}
	if m.queue == "" || m.queue == g.queue {
		f.mark(g, u)
	}
}

// restOf looks at all accounts of a gang, whose queue or preemptibility may have changed.
func (f *aggregator) restOf(g *gang) {
	for i := range g.accounts {
		f.tell(g, &g.accounts[i])
	}
}

// tell puts an account of a gang into the rest of its queue, if no PodGroup's status has it.
func (f *aggregator) tell(g *gang, a *account) {
	if a.queue == "" {
		return
	}
	var now balance
	if !g.exists || g.queue != a.queue {
		now = a.of(g.exists && g.fixed)
	}
	was := a.told
	if was.equal(now) {
		return
	}
	a.told = now
	q := f.rest(a.queue)
	if !was.empty() {
		q.gangs--
	}
	if !now.empty() {
		q.gangs++
	}
	q.requested.SubAmounts(was.requested)
	q.requested.AddAmounts(now.requested)
	q.allocated.SubAmounts(was.allocated)
	q.allocated.AddAmounts(now.allocated)
	q.fixed.SubAmounts(was.fixed)
	q.fixed.AddAmounts(now.fixed)
	f.markRest(a.queue, q)
}

func (f *aggregator) rest(queue string) *queueRest { return entry.Of(f.queues, queue) }

// markRest reports a queue whose annotation is not what it should be, and forgets one that nobody needs.
func (f *aggregator) markRest(name string, q *queueRest) {
	switch {
	case q.exists && !q.queued && q.observed != q.desired():
		q.queued = true
		f.changes = append(f.changes, change{types.NamespacedName{Name: name}, soon})
	case !q.exists && q.gangs == 0:
		delete(f.queues, name)
	}
}

// queueChanged takes in a Queue that was created or updated, which is also how the aggregator sees its own writes.
func (f *aggregator) queueChanged(queue *v2.Queue) []change {
	f.changes = f.changes[:0]
	q := f.rest(queue.Name)
	q.exists, q.observed = true, queue.Annotations[keys.RemnantsAnnotation]
	f.markRest(queue.Name, q)
	return f.changes
}

// queueGone takes in that a Queue was deleted.
func (f *aggregator) queueGone(name string) {
	if q := f.queues[name]; q != nil {
		q.exists, q.queued, q.observed = false, false, ""
		f.markRest(name, q)
	}
}

// desired is what the annotation has to be, "" for none.
func (q *queueRest) desired() string {
	return kai.WriteRemnants(v2alpha2.PodGroupResourcesStatus{Requested: q.requested.List(), Allocated: q.allocated.List(), AllocatedNonPreemptible: q.fixed.List()})
}

// takeRest returns the merge patch that makes a queue's annotation what it should be, nil when it is that already or there is no
// such Queue. From now on events report the queue again.
func (f *aggregator) takeRest(name string) []byte {
	q := f.queues[name]
	if q == nil || !q.exists {
		return nil
	}
	q.queued = false
	var value any
	switch desired := q.desired(); desired {
	case q.observed:
		return nil
	case "":
	default:
		value = desired
	}
	return write.Body(map[string]any{"metadata": map[string]any{"annotations": map[string]any{keys.RemnantsAnnotation: value}}})
}
