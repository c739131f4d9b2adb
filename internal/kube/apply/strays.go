package apply

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/dialect"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/engine/policy"
	"github.com/muster-scheduler/muster/internal/kube/write"
)

// strayFactor is how many times as long as another reason it has to have stood that a PodGroup is not there: whoever makes pods may make it a moment later, and the watch of
// one kind may be behind that of the other.
const strayFactor = 3

// Strays tells the pods of ours that name a PodGroup which is not there, of whichever face, in their condition PodScheduled: nothing is tried for them, and no gang could say why. When
// the PodGroup has come, and nobody has said anything else since, the condition is taken back. Publish is called by the loop; the pool writes.
//
// It remembers the pods that wait so, and no others. Each is written once when its PodGroup is found missing, once when it has come, and never at rest.
type Strays struct {
	kit    *write.Kit
	reader client.Reader
	o      StatusOptions
	settle time.Duration
	work   *Queue[object]

	mu       sync.Mutex
	turn     int               // which call of Publish
	pods     map[string]*stray // by UID
	restored bool              // some are known from an earlier process
}

// stray is what is known of one pod.
type stray struct {
	id   cluster.PodID
	name string
	turn int
	is   strayed   // as it was looked at last; zero once its PodGroup is there
	at   time.Time // since when
	want strayed   // what it is to say
	told bool      // it may say so already
}

// strayed is what must change for a pod to say something else: the gang that is not there, and whether nodes are bought for pods that say Unschedulable.
type strayed struct {
	gang   cluster.Key
	bought bool
}

// NewStrays returns a writer of these conditions, which pool runs. Of the options it takes Settle, Unschedulable and Autoscaled.
func NewStrays(pool *Pool, kit *write.Kit, reader client.Reader, o StatusOptions) *Strays {
	s := &Strays{kit: kit, reader: reader, o: o, settle: strayFactor * cmp.Or(o.Settle, time.Second), pods: map[string]*stray{}}
	s.work = NewQueue(pool, strayWork, Job[object]{Tenant: object.tenant, About: s.about, Try: s.serve})
	return s
}

// Restore finds the pods that an earlier process told, so that those whose PodGroup has come since are told so. It costs a look at each pod.
func (s *Strays) Restore(ctx context.Context) error {
	var list v1.PodList
	if err := s.reader.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list pods: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.restored = true
	for i := range list.Items {
		if p := &list.Items[i]; p.Spec.NodeName == "" && Missing(p) != "" {
			s.pods[string(p.UID)] = &stray{id: cluster.None, name: p.Name, is: strayed{gang: cluster.Key{Namespace: p.Namespace}}, told: true}
		}
	}
	return nil
}

// Publish takes in which pods ask for gangs that are not there. It costs these, and nothing when there are none. It returns when it should be called again, or the zero time.
func (s *Strays) Publish(snap *cluster.Snapshot, _ *engine.Trace) (next time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.turn++; s.restored {
		s.find(snap)
	}
	now, bought := time.Now(), sync.OnceValue(func() bool { return s.o.bought(snap) })
	due := func(at time.Time) bool {
		at = at.Add(s.settle)
		if at.After(now) {
			if next.IsZero() || at.Before(next) {
				next = at
			}
			return false
		}
		return true
	}
	for p := range snap.Astray() {
		of := s.pods[p.UID]
		if of == nil {
			of = &stray{name: p.Name, at: now}
			s.pods[p.UID] = of
		}
		is := strayed{p.GangKey(), bought()}
		if of.turn, of.id = s.turn, p.ID; of.is.gang != is.gang {
			of.at = now
		}
		if of.is = is; of.want != is && due(of.at) {
			of.want, of.told = is, true
			s.work.Put(0, object{p.Namespace, p.UID})
		}
	}
	for uid, of := range s.pods { // order: each on its own
		if of.turn == s.turn {
			continue
		}
		p := snap.Pod(of.id)
		if !of.told || p == nil || p.UID != uid || p.Phase != cluster.Pending && p.Phase != cluster.Binding {
			delete(s.pods, uid) // it says nothing, or what it says is not read any more
			continue
		}
		if of.is != (strayed{}) {
			of.is, of.at = strayed{}, now
		}
		if p.Phase == cluster.Pending && due(of.at) {
			of.want = strayed{}
			s.work.Put(0, object{p.Namespace, uid})
		}
	}
	return next
}

// find finds the pods of an earlier process's word. It costs a look at each pod, once.
func (s *Strays) find(snap *cluster.Snapshot) {
	if s.restored = false; len(s.pods) == 0 {
		return
	}
	snap.EachPod(func(p *cluster.Pod) {
		if of := s.pods[p.UID]; of != nil {
			of.id = p.ID
		}
	})
}

// about is the pod of an item; without a name once nothing is known of it.
func (s *Strays) about(pod object) any {
	out := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.namespace, UID: types.UID(pod.uid)}}
	s.mu.Lock()
	defer s.mu.Unlock()
	if of := s.pods[pod.uid]; of != nil {
		out.Name = of.name
	}
	return out
}

// serve brings what one pod says up to date.
func (s *Strays) serve(ctx context.Context, pod object) error {
	s.mu.Lock()
	of := s.pods[pod.uid]
	if of == nil {
		s.mu.Unlock()
		return nil
	}
	name, want := of.name, of.want
	s.mu.Unlock()
	var p v1.Pod
	err := s.reader.Get(ctx, types.NamespacedName{Namespace: pod.namespace, Name: name}, &p)
	switch {
	case err != nil:
		err = client.IgnoreNotFound(err)
	case string(p.UID) != pod.uid || p.Spec.NodeName != "":
	case want == (strayed{}):
		err = s.takeBack(ctx, &p)
	default:
		if named, ok := dialect.GroupNamedBy(&p, want.gang); ok {
			v := GroupMissing(named)
			_, err = unscheduled(ctx, s.kit, &p, v, want.bought, v.String())
		}
	}
	if err != nil || want != (strayed{}) {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pods[pod.uid] == of && of.want == (strayed{}) {
		of.told = false
	}
	return nil
}

// takeBack takes away the condition of a pod that says that its PodGroup is missing, and no other.
func (s *Strays) takeBack(ctx context.Context, p *v1.Pod) error {
	if Missing(p) == "" {
		return nil
	}
	body, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": p.UID, "resourceVersion": p.ResourceVersion},
		"status":   map[string]any{"conditions": []map[string]any{{"type": v1.PodScheduled, "$patch": "delete"}}},
	})
	if err != nil {
		return fmt.Errorf("encode the conditions of pod %s/%s: %w", p.Namespace, p.Name, err)
	}
	result, err := s.kit.StrategicStatus(ctx, p, body)
	if err == nil && result == write.Changed {
		err = fmt.Errorf("the condition of pod %s/%s: %w", p.Namespace, p.Name, errChanged)
	}
	return err
}

// GroupMissing is the verdict on a pod that names a PodGroup which is not there.
func GroupMissing(named dialect.NamedGroup) engine.Verdict {
	if !named.Possible {
		return engine.Verdict{Code: engine.NoForever, Reason: policy.ReasonGroupNoName, Object: named.Name, Detail: named.Field}
	}
	return engine.Verdict{Code: engine.No, Reason: policy.ReasonGroupMissing, Object: named.String(), Detail: named.Field}
}

// Missing is what a pod's condition says of the PodGroup that it names and that is not there; "" if it says nothing of that.
func Missing(p *v1.Pod) string {
	for i := range p.Status.Conditions {
		c := &p.Status.Conditions[i]
		if c.Type != v1.PodScheduled || c.Status != v1.ConditionFalse {
			continue
		}
		for _, r := range [...]*engine.Reason{policy.ReasonGroupMissing, policy.ReasonGroupNoName} {
			if text, begins := strings.CutPrefix(c.Message, r.Key+": "); begins || c.Reason == r.Key {
				return text
			}
		}
	}
	return ""
}
