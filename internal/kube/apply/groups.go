package apply

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

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
// A status says what the cluster is like, and is made of nothing that was in it before: whatever a tenant writes there counts for nothing, and is put right when
// the gang next changes. Volcano's PodGroups have no status subresource: a patch names no field but those below status.
type Groups struct {
	face   string
	kind   Kind
	put    func(ctx context.Context, key cluster.Key, uid string, want volcano.Status) error
	kit    *write.Kit
	reader client.Reader
	settle time.Duration
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
}

// NewGroups returns a writer of Volcano's statuses, which pool runs. settle is how long a reason must have stood before it is written; 0 means one second.
func NewGroups(pool *Pool, kit *write.Kit, reader client.Reader, settle time.Duration) *Groups {
	g := groupsOfFace(pool, kit, reader, settle, volcano.Face, groupWork)
	g.put = g.putVolcano
	return g
}

func groupsOfFace(pool *Pool, kit *write.Kit, reader client.Reader, settle time.Duration, face string, kind Kind) *Groups {
	g := &Groups{face: face, kind: kind, kit: kit, reader: reader, settle: cmp.Or(settle, time.Second), gangs: map[string]*group{}}
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
	if of.gang == gang && (of.want.Settled == settled || of.says == (said{})) {
		return again
	}
	of.gang = gang
	want := statusOf(snap, gang, of.says.reason, of.text, settled)
	if want == of.want && of.queued {
		return again
	}
	of.want, of.queued = want, true
	g.work.Put(0, object{gang.Key.Namespace, gang.UID})
	return again
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
	key, want := of.key, of.want
	g.mu.Unlock()
	return g.put(ctx, key, gang.uid, want)
}

// putVolcano writes what is to be said of a gang of Volcano's.
func (g *Groups) putVolcano(ctx context.Context, key cluster.Key, uid string, want volcano.Status) error {
	var pg v1beta1.PodGroup
	if err := g.reader.Get(ctx, types.NamespacedName{Namespace: key.Namespace, Name: key.Name}, &pg); err != nil {
		return client.IgnoreNotFound(err)
	}
	if string(pg.UID) != uid {
		return nil
	}
	status, changed := want.Over(&pg.Status, metav1.Now())
	if !changed {
		return nil
	}
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": uid}, "status": status})
	if err != nil {
		return fmt.Errorf("encode the status of PodGroup %s: %w", key, err)
	}
	if _, err := g.kit.Merge(ctx, volcano.PodGroup(key, uid), body); err != nil {
		return fmt.Errorf("status of PodGroup %s: %w", key, err)
	}
	return nil
}

// statusOf returns the status of a gang that waits for that reason, nil if it does not. settled says that it has for a while; before, only the phase depends on it.
//
// Of the pods with a place, and those that have ended, as many as the minimum make the gang Running, or Completed when all have ended; fewer, while some run and
// the rest waits, make it Unknown. A gang that waits for its queue or to be admitted, or is not in order, is Pending: it is not admitted. All others are Inqueue.
func statusOf(snap *cluster.Snapshot, gang *cluster.Gang, reason *policy.Reason, text string, settled bool) volcano.Status {
	s := volcano.Status{Settled: settled}
	placed, promised := int32(0), int32(0)
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
		s.Reason, s.Message = word(reason), reason.Key+": "+text
	}
	return s
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
