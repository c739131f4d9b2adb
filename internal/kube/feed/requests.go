package feed

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-scheduler/muster/api/scheduling/v1alpha2"
	"github.com/muster-scheduler/muster/internal/dialect/kai"
)

// StaleReason says why a BindRequest no longer stands for anything.
type StaleReason string

// The reasons, by precedence.
const (
	// Failed: the binder has given up.
	Failed StaleReason = "Failed"
	// NodeGone: there is no such node in our shard.
	NodeGone StaleReason = "NodeGone"
	// Ownerless: it does not say which pod it was made for, so nobody may act on it.
	Ownerless StaleReason = "Ownerless"
	// OtherPod: the pod it was made for has gone, and another has its name.
	OtherPod StaleReason = "OtherPod"
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

// request takes in the latest state of a BindRequest; nil means it is gone.
func (d *desk) request(key types.NamespacedName, br *v1alpha2.BindRequest) {
	if old := d.requests[key]; old != nil {
		d.forget(key, old)
	}
	if br == nil {
		return
	}
	r := &request{Binding: kai.Read(br), ours: d.partition.Includes(br.Labels)}
	d.requests[key] = r
	pod := r.podKey()
	d.byPod[pod] = append(d.byPod[pod], r)
	d.dirty[pod] = struct{}{}
	d.judge(r)
}

func (d *desk) forget(key types.NamespacedName, r *request) {
	delete(d.requests, key)
	delete(d.stale, key)
	pod := r.podKey()
	d.dirty[pod] = struct{}{}
	rest := slices.DeleteFunc(d.byPod[pod], func(x *request) bool { return x == r })
	if len(rest) == 0 {
		delete(d.byPod, pod)
	} else {
		d.byPod[pod] = rest
	}
}

func (r *request) podKey() types.NamespacedName {
	return types.NamespacedName{Namespace: r.Namespace, Name: r.Pod}
}

// live says whether the request still stands for a pod on its way to a node.
func (d *desk) live(r *request) bool {
	_, there := d.nodes[r.Node]
	return there && !r.Failed && r.PodUID != ""
}

// judge lists the request as stale, or not. It is called whenever something changes on which the answer depends: the
// request, the pod of its name, the set of nodes.
//
// A request whose pod we do not know is left alone: the garbage collector removes it with its pod, or the pod's event is
// still on its way. So is one for another pod than the one we know, unless it is older than that pod: if it is not, it
// may be meant for a later pod whose event is still on its way.
func (d *desk) judge(r *request) {
	key := types.NamespacedName{Namespace: r.Namespace, Name: r.Name}
	reason := StaleReason("")
	_, there := d.nodes[r.Node]
	p := d.pods[r.podKey()]
	switch {
	case !r.ours:
	case r.Failed:
		reason = Failed
	case !there && !r.Succeeded:
		reason = NodeGone
	case r.PodUID == "" && !r.Succeeded:
		reason = Ownerless
	case p != nil && p.UID != r.PodUID && r.Created < p.CreationTimestamp.UnixNano():
		reason = OtherPod
	}
	if reason == "" {
		delete(d.stale, key)
		return
	}
	d.stale[key] = StaleBindRequest{Namespace: r.Namespace, Name: r.Name, UID: r.UID, Pod: r.Pod, PodUID: r.PodUID, Node: r.Node, Reason: reason}
}

// recheckNodes looks at all requests again after nodes came or went.
func (d *desk) recheckNodes() {
	if !d.nodesChanged {
		return
	}
	d.nodesChanged = false
	for _, r := range d.requests { // order: each request on its own
		d.dirty[r.podKey()] = struct{}{}
		d.judge(r)
	}
}
