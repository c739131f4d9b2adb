package feed

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/dialect/kai"
)

// abroad is what belongs to other shards. Pods carry no label of a shard: whose a pod is follows from its gang and its node.
// One that is neither of a gang of ours nor on a node of ours is nothing to us if its gang or its node is another shard's, and
// is left out of the store. A pod of which neither is known stays: a workload that is deleted may lose its gang before its
// pods, and a queue is charged for them until they go.
type abroad struct {
	gangs map[cluster.Key]string // their UIDs
	nodes map[string]struct{}
	// members are the known pods of each gang, whosever it is. It is kept from when something of another shard is first seen.
	members map[cluster.Key]map[types.NamespacedName]struct{}
	moved   map[string]struct{} // nodes that came, went or changed shards in this drain
}

func newAbroad() abroad {
	return abroad{gangs: map[cluster.Key]string{}, nodes: map[string]struct{}{}, moved: map[string]struct{}{}}
}

// gang notes whose a gang is that exists or is gone, and has its members told anew if that has changed. theirs is its UID if it
// is another shard's.
func (d *desk) gang(key types.NamespacedName, ours bool, theirs string) {
	gang := kai.GangKey(key.Namespace, key.Name)
	_, wasOurs := d.gangs[key]
	if wasOurs == ours && d.abroad.gangs[gang] == theirs {
		return
	}
	if theirs != "" {
		d.abroad.gangs[gang] = theirs
		d.enlist()
	} else {
		delete(d.abroad.gangs, gang)
	}
	for pod := range d.abroad.members[gang] { // order: each pod on its own
		d.dirty[pod] = struct{}{}
	}
}

// node notes whether a node is another shard's.
func (d *desk) node(name string, theirs bool) {
	if theirs {
		d.abroad.nodes[name] = struct{}{}
		d.enlist()
	} else {
		delete(d.abroad.nodes, name)
	}
}

// enlist begins to keep members, with those that are known.
func (d *desk) enlist() {
	if d.abroad.members != nil {
		return
	}
	d.abroad.members = map[cluster.Key]map[types.NamespacedName]struct{}{}
	for key, p := range d.pods { // order: each pod on its own
		d.member(key, nil, p)
	}
}

// member keeps the members of gangs when a pod changes from old to p; nil is no pod.
func (d *desk) member(key types.NamespacedName, old, p *v1.Pod) {
	if d.abroad.members == nil {
		return
	}
	var before, after cluster.Key
	if old != nil {
		before = gangOf(old)
	}
	if p != nil {
		after = gangOf(p)
	}
	if before != after && before != (cluster.Key{}) {
		delete(d.abroad.members[before], key)
		if len(d.abroad.members[before]) == 0 {
			delete(d.abroad.members, before)
		}
	}
	if after == (cluster.Key{}) {
		return
	}
	of := d.abroad.members[after]
	if of == nil {
		of = map[types.NamespacedName]struct{}{}
		d.abroad.members[after] = of
	}
	of[key] = struct{}{}
}

// gangOf is the gang whose shard a pod belongs to: of one that is bound, the one that it was bound for.
func gangOf(p *v1.Pod) cluster.Key {
	if p.Spec.NodeName != "" {
		if c := kai.ReadCharged(p.Namespace, p.Annotations); c.Queue != "" {
			return c.Gang
		}
	}
	gang, _ := kai.Membership(p)
	return gang
}

// recheckMoved has the pods on nodes that came, went or changed shards told anew. It costs a look at every pod; nodes seldom
// do.
func (d *desk) recheckMoved() {
	if len(d.abroad.moved) == 0 {
		return
	}
	for key, p := range d.pods { // order: each pod on its own
		if _, moved := d.abroad.moved[p.Spec.NodeName]; moved {
			d.dirty[key] = struct{}{}
		}
	}
	clear(d.abroad.moved)
}

// elsewhere says that a pod is other shards' business alone.
func (d *desk) elsewhere(st *cluster.PodState) bool {
	if _, here := d.nodes[st.NodeName]; here {
		return false
	}
	of := st.Gang
	if st.Charged.Queue != "" {
		of = st.Charged.Gang
	}
	if _, ours := d.gangs[types.NamespacedName{Namespace: of.Namespace, Name: of.Name}]; ours && of != (cluster.Key{}) {
		return false
	}
	_, gang := d.abroad.gangs[of]
	_, node := d.abroad.nodes[st.NodeName]
	return gang || node
}

// left is the UID of the gang that a pod holds its room for if that has gone to another shard; "" otherwise. Who is charged here
// for pods of it is told of them there.
func (d *desk) left(st *cluster.PodState) string {
	if !st.Ours || st.Charged.Queue == "" {
		return ""
	}
	return d.abroad.gangs[st.Charged.Gang]
}
