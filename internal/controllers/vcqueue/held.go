package vcqueue

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-scheduler/muster/api/volcano/keys"
	scheduling "github.com/muster-scheduler/muster/api/volcano/scheduling/v1beta1"
	"github.com/muster-scheduler/muster/internal/dialect/core"
	"github.com/muster-scheduler/muster/internal/dialect/tally"
	"github.com/muster-scheduler/muster/internal/dialect/volcano"
	"github.com/muster-scheduler/muster/internal/entry"
	"github.com/muster-scheduler/muster/internal/kube/control"
	"github.com/muster-scheduler/muster/internal/kube/write"
)

// settle is how long a queue whose pods have changed waits to be written. As every event after a write waits as long, it is also the least time between two writes of what one queue holds.
const settle = time.Second

// Holdings is the part of the controller that says in status.allocated what the pods of a queue and of those below it hold, and beside it how many PodGroups of its own are in which phase. It has a loop of
// its own, so that no Command waits for it.
type Holdings struct {
	*control.Controller[string, *corrected]
	kit *write.Kit
}

// corrected is what is to be written of a queue.
type corrected struct {
	queue *scheduling.Queue
	patch []byte
}

// NewHoldings returns it, not yet running. workers is how many queues are written at a time, 1 or more; schedulers are whose pods count.
func NewHoldings(s control.Shell, workers int, schedulers []string) (*Holdings, error) {
	kit, err := write.New(s.Client, "vcqueue", s.Registry)
	if err != nil {
		return nil, fmt.Errorf("queue controller: %w", err)
	}
	b, h := newLedger(schedulers), &Holdings{kit: kit}
	h.Controller, err = control.NewController(s, control.Role[string, *corrected]{
		Name: "vcqueue-holdings", Workers: workers, MinRetry: settle, MaxRetry: 3 * time.Minute,
		About: func(name string) client.Object { return &scheduling.Queue{ObjectMeta: metav1.ObjectMeta{Name: name}} },
		Decide: func(name string, _ time.Time) (*corrected, []control.Due[string], time.Time) {
			q, patch, more := b.decide(name)
			if patch == nil {
				return nil, later(more), time.Time{}
			}
			return &corrected{q, patch}, later(more), time.Time{}
		},
		Write: h.write,
	})
	if err != nil {
		return nil, err
	}
	control.Watch(h.Loop, &scheduling.Queue{}, func(q *scheduling.Queue, gone bool) []control.Due[string] { return later(b.queueSeen(q, gone)) })
	control.Watch(h.Loop, &scheduling.PodGroup{}, func(g *scheduling.PodGroup, gone bool) []control.Due[string] { return later(b.groupSeen(g, gone)) })
	control.Watch(h.Loop, &corev1.Pod{}, func(p *corev1.Pod, gone bool) []control.Due[string] { return later(b.podSeen(p, gone)) })
	return h, nil
}

func later(names []string) []control.Due[string] { return control.After(settle, names...) }

// write says what the very queue holds that was looked at.
func (h *Holdings) write(ctx context.Context, c *corrected) error {
	if c == nil {
		return nil
	}
	_, err := h.kit.MergeStatus(ctx, &scheduling.Queue{ObjectMeta: metav1.ObjectMeta{Name: c.queue.Name}}, c.patch)
	return err
}

// ledger is what the queues hold. A pod is of the queue that its PodGroup names, or will name; it holds what it asks for, and one of pods, from when it has a node until it has ended. Sums move up the tree with
// each change, as many steps as the queue lies deep; the tree is added up anew once after a change of parents. PodGroups are counted for their own queue alone. It is guarded by the loop's lock.
type ledger struct {
	schedulers []string
	queues     map[string]*scheduling.Queue
	groups     map[types.NamespacedName]counted // where a PodGroup counts
	counts     map[counted]int32                // how many do; none for none
	pods       map[types.NamespacedName]pod
	gangs      map[types.NamespacedName]*tally.Sum // what the pods that name a PodGroup hold, whether it is there or not
	owed       map[types.NamespacedName]string     // the queue of a PodGroup that is still to be made, of pods that hold something (volcano.Own)
	own, total map[string]*tally.Sum               // of a queue by itself, and with those below it
	stale      bool                                // parents have changed
}

// pod is what one pod holds, and for whom.
type pod struct {
	group types.NamespacedName
	holds tally.Amounts
}

func newLedger(schedulers []string) *ledger {
	return &ledger{
		schedulers: schedulers, queues: map[string]*scheduling.Queue{}, groups: map[types.NamespacedName]counted{}, counts: map[counted]int32{}, pods: map[types.NamespacedName]pod{},
		gangs: map[types.NamespacedName]*tally.Sum{}, owed: map[types.NamespacedName]string{}, own: map[string]*tally.Sum{}, total: map[string]*tally.Sum{},
	}
}

// holds is what a pod holds; nothing unless it is a gang's, has a node and has not ended.
func (l *ledger) holds(p *corev1.Pod) pod {
	group := p.Annotations[keys.GroupName]
	if group == "" || p.Spec.NodeName == "" || p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed || !slices.Contains(l.schedulers, p.Spec.SchedulerName) {
		return pod{}
	}
	list := core.RequestList(p)
	if list == nil {
		list = corev1.ResourceList{}
	}
	list[corev1.ResourcePods] = *resource.NewQuantity(1, resource.DecimalSI)
	return pod{types.NamespacedName{Namespace: p.Namespace, Name: group}, tally.Of(list)}
}

// podSeen takes in a pod, and returns the queues to look at.
func (l *ledger) podSeen(p *corev1.Pod, gone bool) (due []string) {
	k := client.ObjectKeyFromObject(p)
	now := pod{}
	if !gone {
		now = l.holds(p)
	}
	was := l.pods[k]
	if was.group == now.group && was.holds.Equal(now.holds) {
		return nil
	}
	if delete(l.pods, k); !now.holds.Empty() {
		l.pods[k] = now
		if _, there := l.groups[now.group]; !there && l.gangs[now.group] == nil && volcano.SaysOwn(p) {
			l.owed[now.group] = volcano.Own(p).Spec.Queue
		}
	}
	for _, one := range []struct {
		pod
		change func(*tally.Sum, corev1.ResourceList)
	}{{now, (*tally.Sum).Add}, {was, (*tally.Sum).Sub}} {
		if one.holds.Empty() {
			continue
		}
		list := one.holds.List()
		gang := entry.Of(l.gangs, one.group)
		if queue, ok := l.queueOf(one.group); ok {
			due = append(due, l.move(queue, list, one.change)...)
		}
		if one.change(gang, list); gang.Empty() {
			delete(l.gangs, one.group)
			delete(l.owed, one.group)
		}
	}
	return due
}

// queueOf is the queue in which a PodGroup is, or will be.
func (l *ledger) queueOf(group types.NamespacedName) (queue string, ok bool) {
	if in, there := l.groups[group]; there {
		return in.queue, true
	}
	queue, ok = l.owed[group]
	return queue, ok
}

// groupSeen takes in a PodGroup, and returns the queues to look at.
func (l *ledger) groupSeen(g *scheduling.PodGroup, gone bool) (due []string) {
	k := client.ObjectKeyFromObject(g)
	was, had := l.groups[k]
	now := countedAs(g)
	if had && !gone && was == now {
		return nil
	}
	if had {
		if l.counts[was]--; l.counts[was] == 0 {
			delete(l.counts, was)
		}
		delete(l.groups, k)
		due = append(due, was.queue)
	}
	if !gone {
		l.counts[now]++
		l.groups[k] = now
		due = append(due, now.queue)
	}
	before, counted := was.queue, had
	if queue, owes := l.owed[k]; owes {
		before, counted = queue, true
		delete(l.owed, k)
	}
	if counted && !gone && before == now.queue { // what it holds stays where it is
		return due[:1]
	}
	gang := l.gangs[k]
	if gang == nil {
		gang = &tally.Sum{}
	}
	list := gang.List()
	if counted {
		due = append(due, l.move(before, list, (*tally.Sum).Sub)...)
	}
	if !gone {
		due = append(due, l.move(now.queue, list, (*tally.Sum).Add)...)
	}
	return due
}

// move changes what a queue holds, and with it all above, and returns these.
func (l *ledger) move(queue string, list corev1.ResourceList, change func(*tally.Sum, corev1.ResourceList)) (due []string) {
	if len(list) == 0 {
		return nil
	}
	own := entry.Of(l.own, queue)
	if change(own, list); own.Empty() {
		delete(l.own, queue)
	}
	if l.stale {
		return nil // all are looked at once the tree is added up anew
	}
	for _, name := range l.way(queue) {
		change(entry.Of(l.total, name), list)
		due = append(due, name)
	}
	return due
}

// way is a queue and those above it, each once: parents that go round in a circle end it.
func (l *ledger) way(queue string) (names []string) {
	for name := queue; name != "" && !slices.Contains(names, name); {
		names = append(names, name)
		q := l.queues[name]
		if q == nil {
			break
		}
		name = parentOf(q)
	}
	return names
}

// queueSeen takes in a queue, and returns what is to be looked at.
func (l *ledger) queueSeen(q *scheduling.Queue, gone bool) []string {
	had := l.queues[q.Name]
	if gone {
		delete(l.queues, q.Name)
	} else {
		l.queues[q.Name] = q
	}
	if gone != (had == nil) || had != nil && !gone && parentOf(had) != parentOf(q) {
		l.stale = true
	}
	return []string{q.Name}
}

// decide says what is to be written of a queue, nil for nothing; and, because a stale tree is added up first, which queues are to be looked at after it.
func (l *ledger) decide(name string) (q *scheduling.Queue, patch []byte, more []string) {
	if l.stale {
		l.stale, l.total = false, map[string]*tally.Sum{}
		for queue, own := range l.own { // order: sums are exact
			for _, above := range l.way(queue) {
				entry.Of(l.total, above).AddSum(own)
			}
		}
		for other, q := range l.queues { // order: each on its own
			if other != name && l.correct(q) != nil {
				more = append(more, other)
			}
		}
	}
	if q = l.queues[name]; q == nil || q.DeletionTimestamp != nil {
		return nil, nil, more
	}
	return q, l.correct(q), more
}

// correct is the merge patch that makes the status of a queue say what it holds and counts; nil if it does. Nothing is kept for a queue, so that a reservation is nobody's word.
func (l *ledger) correct(q *scheduling.Queue) []byte {
	status := map[string]any{}
	total := l.total[q.Name]
	if total == nil {
		total = &tally.Sum{}
	}
	if d := tally.Diff(q.Status.Allocated, total.List()); d != nil {
		status["allocated"] = d
	}
	for phase, is := range map[scheduling.PodGroupPhase]int32{
		scheduling.PodGroupPending: q.Status.Pending, scheduling.PodGroupInqueue: q.Status.Inqueue, scheduling.PodGroupRunning: q.Status.Running, scheduling.PodGroupUnknown: q.Status.Unknown, scheduling.PodGroupCompleted: q.Status.Completed,
	} { // order: each its own field
		if n := l.counts[counted{q.Name, phase}]; n != is {
			status[countNames[phase]] = n
		}
	}
	if r := &q.Status.Reservation; len(r.Nodes) > 0 || len(r.Resource) > 0 {
		status["reservation"] = nil
	}
	if len(status) == 0 {
		return nil
	}
	return write.Body(map[string]any{"metadata": map[string]any{"uid": q.UID}, "status": status})
}
