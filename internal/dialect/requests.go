package dialect

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-scheduler/muster/api/scheduling/v1alpha2"
	"github.com/muster-scheduler/muster/internal/dialect/kai"

	"github.com/muster-scheduler/muster/internal/cluster"
)

// StaleReason says why a BindRequest no longer stands for anything.
type StaleReason string

// The reasons, by precedence.
const (
	// StaleFailed: the binder has given up.
	StaleFailed StaleReason = "Failed"
	// StaleNodeGone: there is no such node in our shard.
	StaleNodeGone StaleReason = "NodeGone"
	// StaleOwnerless: it does not say which pod it was made for, so nobody may act on it.
	StaleOwnerless StaleReason = "Ownerless"
	// StaleOtherPod: the pod it was made for has gone, and another has its name.
	StaleOtherPod StaleReason = "OtherPod"
)

// StaleBindRequest is a BindRequest that ought to be deleted; UID is the precondition of the delete.
type StaleBindRequest struct {
	Namespace, Name string
	UID             types.UID
	// Pod is the name of the pod it speaks of, in the same namespace, PodUID that of the pod it was made for ("" for
	// an ownerless one), Node the node it chose.
	Pod    string
	PodUID types.UID
	Node   string
	Reason StaleReason
}

// request is a BindRequest we know.
type request struct {
	kai.Binding
	ours bool // of our shard
}

// Stale lists, as of the last batch, the BindRequests of our shard that no longer stand for anything and stand in the way of a
// new decision, by namespace and name. Each stays listed until it is gone.
func (t *Translator) Stale() []StaleBindRequest {
	if len(t.stale) == 0 {
		return nil
	}
	return slices.SortedFunc(maps.Values(t.stale), func(a, b StaleBindRequest) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
}

// promised returns the live BindRequest that promises something to p; nil for none. Should several be live, the first by
// name counts.
func (t *Translator) promised(key types.NamespacedName, p *v1.Pod) *kai.Binding {
	var chosen *request
	for _, r := range t.byPod[key] {
		if t.live(r) && r.Meant(p) && (chosen == nil || r.Name < chosen.Name) {
			chosen = r
		}
	}
	if chosen == nil {
		return nil
	}
	return &chosen.Binding
}

// request takes in the latest state of a BindRequest; nil means it is gone.
func (t *Translator) request(key types.NamespacedName, br *v1alpha2.BindRequest) {
	if old := t.requests[key]; old != nil {
		t.forget(key, old)
	}
	if br == nil {
		return
	}
	r := &request{Binding: kai.Read(br), ours: t.partition.Includes(br.Labels)}
	t.requests[key] = r
	pod := r.podKey()
	t.byPod[pod] = append(t.byPod[pod], r)
	t.dirty[pod] = struct{}{}
	t.judge(r)
}

func (t *Translator) forget(key types.NamespacedName, r *request) {
	delete(t.requests, key)
	delete(t.stale, key)
	pod := r.podKey()
	t.dirty[pod] = struct{}{}
	rest := slices.DeleteFunc(t.byPod[pod], func(x *request) bool { return x == r })
	if len(rest) == 0 {
		delete(t.byPod, pod)
	} else {
		t.byPod[pod] = rest
	}
}

func (r *request) podKey() types.NamespacedName {
	return types.NamespacedName{Namespace: r.Namespace, Name: r.Pod}
}

// live says whether the request still stands for a pod on its way to a node.
func (t *Translator) live(r *request) bool {
	_, there := t.nodes[r.Node]
	return there && !r.Failed && r.PodUID != ""
}

// judge lists the request as stale, or not. It is called whenever something changes on which the answer depends: the
// request, the pod of its name, the set of nodes.
//
// A request whose pod we do not know is left alone: the garbage collector removes it with its pod, or the pod's event is
// still on its way. So is one for another pod than the one we know, unless it is older than that pod: if it is not, it
// may be meant for a later pod whose event is still on its way.
func (t *Translator) judge(r *request) {
	key := types.NamespacedName{Namespace: r.Namespace, Name: r.Name}
	reason := StaleReason("")
	_, there := t.nodes[r.Node]
	p := t.pods[r.podKey()]
	switch {
	case !r.ours:
	case r.Failed:
		reason = StaleFailed
	case !there && !r.Succeeded:
		reason = StaleNodeGone
	case r.PodUID == "" && !r.Succeeded:
		reason = StaleOwnerless
	case p != nil && p.UID != r.PodUID && r.Created.Before(cluster.InstantOf(p.CreationTimestamp.Time)):
		reason = StaleOtherPod
	}
	if reason == "" {
		delete(t.stale, key)
		return
	}
	t.stale[key] = StaleBindRequest{Namespace: r.Namespace, Name: r.Name, UID: r.UID, Pod: r.Pod, PodUID: r.PodUID, Node: r.Node, Reason: reason}
}

// recheckNodes looks at all requests again after nodes came or went.
func (t *Translator) recheckNodes() {
	if !t.nodesChanged {
		return
	}
	t.nodesChanged = false
	for _, r := range t.requests { // order: each request on its own
		t.dirty[r.podKey()] = struct{}{}
		t.judge(r)
	}
}
