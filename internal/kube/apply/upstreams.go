package apply

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/dialect"
	"github.com/muster-scheduler/muster/internal/dialect/upstream"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/kube/write"
)

// errOvertaken says that an object was written by somebody else since it was read.
var errOvertaken = errors.New("it was written by somebody else meanwhile")

// Upstreams keeps the scheduler's condition, PodGroupInitiallyScheduled, of those of Kubernetes' own PodGroups that pods of ours are in, in trees too. CompositePodGroups say nothing, as they do not where kube-scheduler 1.37 is. What waiting pods say themselves
// Statuses writes. Publish is called by the loop; the pool writes. Of groups of other schedulers' pods nothing is written.
type Upstreams struct {
	kit    *write.Kit
	reader client.Reader
	settle time.Duration
	work   *Queue[object]

	mu     sync.Mutex
	turn   int                       // which call of Publish
	groups map[string]*upstreamGroup // by UID
}

// upstreamGroup is what is known of one PodGroup.
type upstreamGroup struct {
	key  cluster.Key
	turn int
	says said
	text string
	at   time.Time // since when it says so
	want upstream.Status
}

// NewUpstreams returns a writer of these conditions, which pool runs. settle is how long a reason must have stood before it is written; 0 means one second.
func NewUpstreams(pool *Pool, kit *write.Kit, reader client.Reader, settle time.Duration) *Upstreams {
	u := &Upstreams{kit: kit, reader: reader, settle: cmp.Or(settle, time.Second), groups: map[string]*upstreamGroup{}}
	u.work = NewQueue(pool, upstreamWork, Job[object]{Tenant: object.tenant, About: u.about, Try: u.serve})
	return u
}

// Restore does nothing: every PodGroup is compared with what the first Publish finds.
func (u *Upstreams) Restore(context.Context) error { return nil }

// Publish takes in a run over snap. It costs a look at each gang, and at the pods of those groups that have not started. It returns when it should be called again for
// reasons to settle, or the zero time.
func (u *Upstreams) Publish(snap *cluster.Snapshot, t *engine.Trace) (next time.Time) {
	waits := map[cluster.Key]*engine.GangTrace{}
	for i := range t.Gangs {
		if w := &t.Gangs[i]; w.Diagnosis != nil {
			waits[w.Gang] = w
		}
	}
	now := time.Now()
	u.mu.Lock()
	defer u.mu.Unlock()
	u.turn++
	snap.EachGang(func(gang *cluster.Gang) {
		if gang.Key.Face != upstream.Face && gang.Key.Face != upstream.CompositeFace || len(gang.Pods) == 0 {
			return
		}
		w := waits[gang.Key]
		if w != nil && w.UID != gang.UID {
			w = nil
		}
		// What went wrong has been told; what is said of the others stands.
		_ = u.work.guard.Catch(upstreamWork.Name, dialect.Group(gang.Key, gang.UID), func() error {
			for _, of := range partsOf(snap, gang) {
				if at := u.look(of, w, t.Truncated, now); !at.IsZero() && (next.IsZero() || at.Before(next)) {
					next = at
				}
			}
			return nil
		})
	})
	for uid, of := range u.groups { // order: each on its own
		if of.turn != u.turn {
			delete(u.groups, uid)
		}
	}
	return next
}

// part is a PodGroup that pods of ours are in: a gang, or a set of one that is a tree.
type part struct {
	key     cluster.Key
	uid     string
	started bool // as many of its pods have a place, or have ended, as it needs
}

// partsOf are the PodGroups of a gang. It costs a look at each pod, and at each set.
func partsOf(snap *cluster.Snapshot, gang *cluster.Gang) []part {
	pods, placed := make([]int, len(gang.Sets)), make([]int, len(gang.Sets))
	for _, id := range gang.Pods {
		p, up := snap.Pod(id), int32(0)
		if p.Set != cluster.None {
			up = p.Set
		}
		has := 0
		switch p.Phase {
		case cluster.Bound, cluster.Running, cluster.Releasing, cluster.StuckReleasing, cluster.Succeeded, cluster.Failed:
			has = 1
		}
		for ; up != cluster.None; up = gang.Sets[up].Parent {
			pods[up]++
			placed[up] += has
		}
	}
	of := func(i int32, key cluster.Key, uid string) part {
		return part{key, uid, placed[i] > 0 && placed[i] >= gang.MinPodsOf(i)}
	}
	if gang.Key.Face == upstream.Face {
		return []part{of(0, gang.Key, gang.UID)}
	}
	var out []part
	for i := range gang.Sets {
		if s := &gang.Sets[i]; s.UID != "" && pods[i] > 0 {
			out = append(out, of(int32(i), upstream.GangKey(gang.Key.Namespace, s.Name), s.UID))
		}
	}
	return out
}

// look brings what is known of a group up to date, and queues what is to be written. w is why its gang waits, nil if it does not, or if the run was cut short.
func (u *Upstreams) look(is part, w *engine.GangTrace, cut bool, now time.Time) (again time.Time) {
	of := u.groups[is.uid]
	if of == nil {
		of = &upstreamGroup{key: is.key}
		u.groups[is.uid] = of
	}
	of.turn = u.turn
	if of.want.Started { // that stays true
		return again
	}
	if w != nil || !cut {
		var says said
		if w != nil {
			says = said{reason: w.Diagnosis.Verdict.Reason, object: w.Diagnosis.Verdict.Object}
		}
		if says != of.says {
			of.says, of.at, of.text = says, now, ""
			if w != nil {
				of.text = w.Message()
			}
		}
	}
	want := upstream.Status{Started: is.started}
	switch settled := of.at.Add(u.settle); {
	case want.Started || of.says.reason == nil:
	case now.Before(settled):
		again = settled
	default:
		want.Message = of.says.reason.Key + ": " + of.text
	}
	if want == of.want || want == (upstream.Status{}) {
		return again
	}
	of.want = want
	u.work.Put(0, object{is.key.Namespace, is.uid})
	return again
}

// about is the PodGroup of an item; without a name once nothing is to be said of it.
func (u *Upstreams) about(group object) any {
	u.mu.Lock()
	defer u.mu.Unlock()
	if of := u.groups[group.uid]; of != nil {
		return upstream.PodGroup(of.key, group.uid)
	}
	return upstream.PodGroup(cluster.Key{}, group.uid)
}

// serve writes what is to be said of one group, if its object does not say so. The patch replaces the list of conditions, and names the version of the object that they
// were made of: what somebody else wrote meanwhile is not lost.
func (u *Upstreams) serve(ctx context.Context, group object) error {
	u.mu.Lock()
	of := u.groups[group.uid]
	if of == nil {
		u.mu.Unlock()
		return nil
	}
	key, want := of.key, of.want
	u.mu.Unlock()
	var pg schedulingv1beta1.PodGroup
	if err := u.reader.Get(ctx, types.NamespacedName{Namespace: key.Namespace, Name: key.Name}, &pg); err != nil {
		return client.IgnoreNotFound(err)
	}
	if string(pg.UID) != group.uid {
		return nil
	}
	conditions, changed := want.Over(pg.Status.Conditions, pg.Generation, metav1.Now())
	if !changed {
		return nil
	}
	body, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": group.uid, "resourceVersion": pg.ResourceVersion}, "status": map[string]any{"conditions": conditions},
	})
	if err != nil {
		return fmt.Errorf("encode the status of PodGroup %s: %w", key, err)
	}
	result, err := u.kit.MergeStatus(ctx, upstream.PodGroup(key, group.uid), body)
	if err == nil && result == write.Changed {
		err = errOvertaken
	}
	if err != nil {
		return fmt.Errorf("status of PodGroup %s of %s: %w", key, schedulingv1beta1.GroupName, err)
	}
	return nil
}
