package apply

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-scheduler/muster/api/volcano/scheduling/v1beta1"
	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/dialect"
	"github.com/muster-scheduler/muster/internal/dialect/volcano"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/engine/policy"
	"github.com/muster-scheduler/muster/internal/kube/write"
)

// Groups keeps the status of the PodGroups of one face, Volcano's or kube-batch's: the phase that lets a Job's pods be made, how many pods run or have ended, and why a gang waits. What waiting
// pods say themselves Statuses writes, for every face. Publish is called by the loop; the pool writes.
//
// A gang that ran and has lost every place is Pending for a moment before it is Inqueue again, as with Volcano, whose programs and users wait for that.
//
// A status says what the cluster is like, and is made of nothing that was in it before: whatever a tenant writes there counts for nothing, and is put right when
// the gang next changes. Volcano's PodGroups have no status subresource: a patch names no field but those below status.
type Groups struct {
	face   string
	kind   Kind
	put    func(ctx context.Context, key cluster.Key, uid string, want volcano.Status) (client.Object, error) // the object that says something new; nil for none
	kit    *write.Kit
	reader client.Reader
	settle time.Duration
	bound  func() time.Time
	event  func(about client.Object, kind, reason, message string)
	work   *Queue[object]

	mu    sync.Mutex
	turn  int               // which call of Publish
	gangs map[string]*group // by UID
}

// group is what is known of one PodGroup.
type group struct {
	key  cluster.Key
	turn int
	gang *cluster.Gang // as it was looked at last
	says said
	text string
	at   time.Time // since when it says so

	want   volcano.Status
	queued bool
	// trails is since when something is to be written for which nobody waits; zero if nothing is, or somebody waits for it.
	trails time.Time
	placed int32
	told   said // the reason of the last event about it; none once it has its places
	// fell is until when it is Pending, since it ran and has lost every place: it begins anew.
	fell time.Time
}

// NewGroups returns a writer of Volcano's statuses, which pool runs, and of the event that tells of a new reason. Of the options it takes Settle, Bound and Event.
func NewGroups(pool *Pool, kit *write.Kit, reader client.Reader, o StatusOptions) *Groups {
	g := groupsOfFace(pool, kit, reader, o, volcano.Face, groupWork)
	g.put = g.putVolcano
	return g
}

func groupsOfFace(pool *Pool, kit *write.Kit, reader client.Reader, o StatusOptions, face string, kind Kind) *Groups {
	g := &Groups{face: face, kind: kind, kit: kit, reader: reader, settle: cmp.Or(o.Settle, time.Second), bound: o.Bound, event: o.Event, gangs: map[string]*group{}}
	if g.event == nil {
		g.event = func(client.Object, string, string, string) {}
	}
	if g.bound == nil {
		g.bound = func() time.Time { return time.Time{} }
	}
	g.work = NewQueue(pool, kind, Job[object]{Tenant: object.tenant, About: g.about, Try: g.serve})
	return g
}

// Restore does nothing: every PodGroup is compared with what the first Publish finds.
func (g *Groups) Restore(context.Context) error { return nil }

// Publish takes in a run over snap. It costs a look at each gang of the face, and the pods of those that have changed. It returns when it should be called again
// for reasons to settle, or the zero time.
func (g *Groups) Publish(snap *cluster.Snapshot, t *engine.Trace) (next time.Time) {
	waits := map[string]*engine.GangTrace{}
	for i := range t.Gangs {
		if w := &t.Gangs[i]; w.Gang.Face == g.face && w.Diagnosis != nil {
			waits[w.UID] = w
		}
	}
	now := time.Now()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.turn++
	snap.EachGang(func(gang *cluster.Gang) {
		if gang.Key.Face != g.face || len(dialect.Groups(gang.Key)) == 0 {
			return
		}
		// What went wrong has been told; what is said of the others stands.
		_ = g.work.guard.Catch(g.kind.Name, dialect.Group(gang.Key, gang.UID), func() error {
			if at := g.look(snap, gang, waits[gang.UID], t.Truncated, now); !at.IsZero() && (next.IsZero() || at.Before(next)) {
				next = at
			}
			return nil
		})
	})
	for uid, of := range g.gangs { // order: each on its own
		if of.turn != g.turn {
			delete(g.gangs, uid)
		}
	}
	return next
}

// look brings what is known of a gang up to date, and queues what is to be written. w is why it waits, nil if it does not, or if the run was cut short.
func (g *Groups) look(snap *cluster.Snapshot, gang *cluster.Gang, w *engine.GangTrace, cut bool, now time.Time) (again time.Time) {
	of := g.gangs[gang.UID]
	if of == nil {
		of = &group{key: gang.Key}
		g.gangs[gang.UID] = of
	}
	of.turn = g.turn
	if w != nil || !cut {
		var says said
		if w != nil {
			says = said{reason: w.Diagnosis.Verdict.Reason, object: w.Diagnosis.Verdict.Object}
		}
		if says != of.says {
			of.says, of.at, of.gang, of.text = says, now, nil, ""
			if w != nil {
				of.text = w.Message()
			}
		}
	}
	settled := !now.Before(of.at.Add(g.settle))
	if !settled && of.says != (said{}) {
		again = of.at.Add(g.settle)
	}
	if of.gang == gang && (of.want.Settled == settled || of.says == (said{})) && of.fell.IsZero() {
		return again
	}
	of.gang = gang
	want, placed := statusOf(snap, gang, of.says.reason, of.text, settled)
	if want.Phase == v1beta1.PodGroupInqueue && placed == 0 {
		if of.placed > 0 {
			of.fell = now.Add(g.settle)
		}
		if now.Before(of.fell) {
			want.Phase = v1beta1.PodGroupPending
			if again.IsZero() {
				again = of.fell
			}
		} else {
			of.fell = time.Time{}
		}
	} else {
		of.fell = time.Time{}
	}
	of.placed = placed
	if want == of.want && of.queued {
		return again
	}
	of.want, of.queued = want, true
	switch {
	case awaited(snap, gang, &want):
		of.trails = time.Time{}
	case of.trails.IsZero():
		of.trails = now
	}
	g.work.Put(g.left(of, now), object{gang.Key.Namespace, gang.UID})
	return again
}

// What nobody waits for is written once it has stood for as long as a reason, so that the phases and counts of a gang that is placed come in one write, and stands back while pods are bound (ADR 5): until none was for boundQuiet, trailLongest at most.
// In between it is looked at every trailStep.
const (
	trailLongest = 10 * time.Second
	trailStep    = 2 * time.Second
)

// left is how long what is to be said of a gang is not written yet.
func (g *Groups) left(of *group, now time.Time) time.Duration {
	if of.trails.IsZero() {
		return 0
	}
	due := of.trails.Add(g.settle)
	if quiet := g.bound().Add(boundQuiet); quiet.After(due) {
		due = quiet
		if step := now.Add(trailStep); due.Before(step) {
			due = step
		}
		if last := of.trails.Add(trailLongest); last.Before(due) {
			due = last
		}
	}
	return due.Sub(now)
}

// awaited says of a status that somebody may wait for it: who makes the pods of a gang that has not all that it needs, and who is to be told that it is not admitted, has lost its places, or why it waits. That a gang which has its
// pods is admitted, as Volcano's session does it with placing it, and that it runs and how many of it do, is read by people.
func awaited(snap *cluster.Snapshot, gang *cluster.Gang, want *volcano.Status) bool {
	switch {
	case want.Placed:
		return false
	case want.Phase != v1beta1.PodGroupInqueue || want.Reason != "":
		return true
	}
	alive := 0
	for _, id := range gang.Pods {
		if p := snap.Pod(id); p.Phase.Alive() || p.Finished() {
			alive++
		}
	}
	return alive == 0 || alive < gang.MinPods()
}

// about is the PodGroup of an item; without a name once nothing is to be said of it.
func (g *Groups) about(gang object) any {
	g.mu.Lock()
	defer g.mu.Unlock()
	if of := g.gangs[gang.uid]; of != nil {
		return dialect.Group(of.key, gang.uid)
	}
	return dialect.Group(cluster.Key{Face: g.face}, gang.uid)
}

// serve writes what is to be said of one gang, if its object does not say so.
func (g *Groups) serve(ctx context.Context, gang object) error {
	g.mu.Lock()
	of := g.gangs[gang.uid]
	if of == nil {
		g.mu.Unlock()
		return nil
	}
	if left := g.left(of, time.Now()); left > 0 {
		g.mu.Unlock()
		g.work.Put(left, gang)
		return nil
	}
	key, want, says := of.key, of.want, of.says
	of.trails = time.Time{}
	g.mu.Unlock()
	about, err := g.put(ctx, key, gang.uid, want)
	if err == nil && about != nil {
		g.tell(gang.uid, about, want, says)
	}
	return err
}

// putVolcano writes what is to be said of a gang of Volcano's.
func (g *Groups) putVolcano(ctx context.Context, key cluster.Key, uid string, want volcano.Status) (client.Object, error) {
	var pg v1beta1.PodGroup
	if err := g.reader.Get(ctx, types.NamespacedName{Namespace: key.Namespace, Name: key.Name}, &pg); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	if string(pg.UID) != uid {
		return nil, nil
	}
	status, changed := want.Over(&pg.Status, metav1.Now())
	if !changed {
		return nil, nil
	}
	body := write.Body(map[string]any{"metadata": map[string]any{"uid": uid}, "status": status})
	if _, err := g.kit.Merge(ctx, volcano.PodGroup(key, uid), body); err != nil {
		return nil, fmt.Errorf("status of PodGroup %s: %w", key, err)
	}
	return &pg, nil
}

// tell has an event say why a gang waits, once per reason, when its status says so.
func (g *Groups) tell(uid string, about client.Object, is volcano.Status, says said) {
	g.mu.Lock()
	of := g.gangs[uid]
	news := of != nil && is.Reason != "" && of.told != says
	if of != nil && (news || is.Placed) {
		of.told = says
	}
	g.mu.Unlock()
	if news {
		g.event(about, corev1.EventTypeWarning, string(v1beta1.PodGroupUnschedulableType), is.Message)
	}
}

// statusOf returns the status of a gang that waits for that reason, nil if it does not, and how many of its pods have a place or have ended. settled says that it has for a while;
// before, only the phase depends on it.
//
// Of the pods with a place, and those that have ended, as many as the minimum make the gang Running, or Completed when all have ended; fewer, while some run and
// the rest waits, make it Unknown. A gang that waits for its queue or to be admitted, or is not in order, is Pending: it is not admitted. All others are Inqueue.
func statusOf(snap *cluster.Snapshot, gang *cluster.Gang, reason *policy.Reason, text string, settled bool) (s volcano.Status, placed int32) {
	s.Settled = settled
	promised := int32(0)
	for _, id := range gang.Pods {
		switch p := snap.Pod(id); p.Phase {
		case cluster.Running:
			s.Running++
			placed++
		case cluster.Succeeded:
			s.Succeeded++
			placed++
		case cluster.Failed:
			s.Failed++
			placed++
		case cluster.Bound, cluster.Releasing, cluster.StuckReleasing:
			placed++
		case cluster.Binding:
			promised++
		}
	}
	least := int32(gang.MinPods())
	s.Placed = placed > 0 && placed >= least
	switch {
	case s.Placed && placed == s.Succeeded+s.Failed:
		s.Phase = v1beta1.PodGroupCompleted
	case s.Placed:
		s.Phase = v1beta1.PodGroupRunning
	case s.Running > 0 && reason != nil && settled && placed+promised < least:
		s.Phase = v1beta1.PodGroupUnknown
	case refused(reason):
		s.Phase = v1beta1.PodGroupPending
	default:
		s.Phase = v1beta1.PodGroupInqueue
	}
	if reason != nil && settled && !s.Placed {
		s.Reason, s.Message = word(reason), lacking(snap, gang)+reason.Key+": "+text
	}
	return s, placed
}

// lacking says in Volcano's words how many pods of a gang's minimum lack a place, of how many pods there are, and how these are: programs look for them.
func lacking(snap *cluster.Snapshot, gang *cluster.Gang) string {
	least, ready, are := gang.MinPods(), 0, map[string]int{}
	for _, id := range gang.Pods {
		is := snap.Pod(id).Phase
		switch is {
		case cluster.Running, cluster.Succeeded, cluster.Bound, cluster.Binding:
			ready++
		}
		are[is.String()]++
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%d/%d tasks in gang unschedulable: pod group is not ready, ", max(0, least-ready), len(gang.Pods))
	for _, is := range slices.Sorted(maps.Keys(are)) {
		fmt.Fprintf(&b, "%d %s, ", are[is], is)
	}
	fmt.Fprintf(&b, "%d minAvailable; ", least)
	return b.String()
}

// refused says of a reason that the gang is not admitted: by its queue, because it is not in order, or by a vote.
func refused(r *policy.Reason) bool {
	if r != nil && (r.Unblock == policy.UnblockAdmission || r.Unblock == policy.UnblockNamespace) {
		return true
	}
	switch r {
	case policy.ReasonQueueMissing, policy.ReasonQueueNotLeaf, policy.ReasonQueueBroken, policy.ReasonQueueClosed, policy.ReasonGangInvalid:
		return true
	}
	return false
}

// word is Volcano's word for a reason, where it has one.
func word(r *policy.Reason) string {
	switch {
	case r == policy.ReasonGangNotReady, r == policy.ReasonGated:
		return v1beta1.NotEnoughPodsReason
	case refused(r):
		return r.Key
	}
	return v1beta1.NotEnoughResourcesReason
}
