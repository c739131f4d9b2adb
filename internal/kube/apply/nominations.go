package apply

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-scheduler/muster/api/kai/keys"
	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/kube/write"
)

// NominationOptions tune the telling of held room.
type NominationOptions struct {
	// Settle is how long room must have been held before it is told; 0 means one second. Most victims are gone by then.
	Settle time.Duration
	// Event records an event about a pod to which room is promised. It must not block. Nil records none.
	Event func(about client.Object, kind, reason, message string)
}

// Nominations tells pods for which room is held where it is: status.nominatedNodeName, and a condition that says that we wrote
// it. Publish is called by the loop; the pool writes. A later process finds there what this one promised.
type Nominations struct {
	kit   *write.Kit
	cache client.Reader
	o     NominationOptions
	work  *Queue[object] // of pods

	mu   sync.Mutex
	pods map[string]*room // by pod UID
}

// room is what is known of one pod's room.
type room struct {
	id        cluster.PodID
	namespace string
	name      string
	node      string    // on which room is held now; "" for none
	since     time.Time // of node
	written   string    // what the pod shows, or is about to
}

// Promise is room that the pod of that UID was promised on a node.
type Promise struct{ UID, Node string }

// NewNominations returns a writer of held room, which pool runs.
func NewNominations(pool *Pool, kit *write.Kit, cache client.Reader, o NominationOptions) *Nominations {
	if o.Settle == 0 {
		o.Settle = time.Second
	}
	if o.Event == nil {
		o.Event = func(client.Object, string, string, string) {}
	}
	r := &Nominations{kit: kit, cache: cache, o: o, pods: map[string]*room{}}
	r.work = NewQueue(pool, nominationWork, Job[object]{Tenant: object.tenant, About: r.about, Pace: pace(), Try: r.serve})
	return r
}

// Restore returns what an earlier process promised: to pods that wait for a node and show both where and that it was us.
// Promises that had not settled yet, and those to pods that were still to be made anew, died with that process. Call it
// once, when the cache has synced.
func (r *Nominations) Restore(ctx context.Context) ([]Promise, error) {
	var list v1.PodList
	if err := r.cache.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list pods: %w", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []Promise
	for i := range list.Items {
		p := &list.Items[i]
		if p.Spec.NodeName != "" || p.Status.NominatedNodeName == "" || p.DeletionTimestamp != nil || !promised(p) {
			continue
		}
		uid, node := string(p.UID), p.Status.NominatedNodeName
		out = append(out, Promise{UID: uid, Node: node})
		r.pods[uid] = &room{id: cluster.None, namespace: p.Namespace, name: p.Name, node: node, since: time.Now(), written: node}
	}
	return out, nil
}

func promised(p *v1.Pod) bool {
	for i := range p.Status.Conditions {
		if c := &p.Status.Conditions[i]; c.Type == keys.RoomHeldCondition {
			return c.Status == v1.ConditionTrue
		}
	}
	return false
}

// Publish takes in which room is held. It returns when it should be called again for promises to settle, or the zero time.
// It costs what is held, and nothing when nothing is.
func (r *Nominations) Publish(snap *cluster.Snapshot) time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(snap.Holds) == 0 && len(r.pods) == 0 {
		return time.Time{}
	}
	now := time.Now()
	var next time.Time
	held := make(map[string]struct{}, len(snap.Holds))
	for i := range snap.Holds {
		h := &snap.Holds[i]
		p := snap.Pod(h.Waits)
		if h.Pod == "" || p == nil {
			continue
		}
		held[p.UID] = struct{}{}
		have := r.pods[p.UID]
		if have == nil {
			have = &room{namespace: p.Namespace, name: p.Name}
			r.pods[p.UID] = have
		}
		have.id = p.ID
		if have.node != h.Node {
			have.node, have.since = h.Node, now
		}
		if have.node == have.written {
			continue
		}
		switch at := have.since.Add(r.o.Settle); {
		case !at.After(now):
			r.work.Put(0, object{p.Namespace, p.UID})
		case next.IsZero() || at.Before(next):
			next = at
		}
	}
	for uid, have := range r.pods { // order: each pod on its own
		if _, ok := held[uid]; ok {
			continue
		}
		p := snap.Pod(have.id)
		switch {
		case have.written == "", p == nil && have.id != cluster.None, p != nil && (p.UID != uid || p.Phase > cluster.Binding):
			delete(r.pods, uid) // it shows nothing, or nothing is to be taken back any more
		case p != nil && p.Phase == cluster.Binding: // on its way there
		case have.node != "":
			have.node, have.since = "", now
			r.work.Put(0, object{have.namespace, uid})
		}
	}
	return next
}

// about is the pod of an item; without a name once nothing is known of it.
func (r *Nominations) about(pod object) any {
	out := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.namespace, UID: types.UID(pod.uid)}}
	r.mu.Lock()
	defer r.mu.Unlock()
	if have := r.pods[pod.uid]; have != nil {
		out.Name = have.name
	}
	return out
}

// serve brings one pod up to date.
func (r *Nominations) serve(ctx context.Context, pod object) error {
	uid := pod.uid
	r.mu.Lock()
	have := r.pods[uid]
	if have == nil || have.node == have.written {
		r.mu.Unlock()
		return nil
	}
	have.written = have.node
	node, ref := have.node, &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: have.namespace, Name: have.name, UID: types.UID(uid)}}
	r.mu.Unlock()
	condition := map[string]any{
		"type": keys.RoomHeldCondition, "status": v1.ConditionTrue, "reason": keys.ReasonWaitingForRelease,
		"message": "room on node " + node + " is held until those who leave it are gone", "lastTransitionTime": metav1.Now(),
	}
	status := map[string]any{"nominatedNodeName": node, "conditions": []any{condition}}
	if node == "" {
		status["nominatedNodeName"] = nil
		condition["status"], condition["reason"], condition["message"] = v1.ConditionFalse, keys.ReasonReleased, "no room is held any more"
	}
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": uid}, "status": status})
	if err != nil {
		return fmt.Errorf("encode the status of pod %s/%s: %w", ref.Namespace, ref.Name, err)
	}
	result, err := r.kit.StrategicStatus(ctx, ref, body)
	if result == write.Written && node != "" {
		r.o.Event(ref, v1.EventTypeNormal, keys.EventPipelined, "room on node "+node+" is held until those who leave it are gone")
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case err != nil:
		have.written = unknownNode
	case have.node == "" && have.written == "" && r.pods[uid] == have:
		delete(r.pods, uid)
	}
	return err
}

// unknownNode stands for what a pod shows after a write that failed; no node is called so.
const unknownNode = "?"
