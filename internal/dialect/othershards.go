package dialect

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/dialect/kai"
	"github.com/muster-scheduler/muster/internal/dialect/kubebatch"
	"github.com/muster-scheduler/muster/internal/dialect/upstream"
	"github.com/muster-scheduler/muster/internal/dialect/volcano"
	"github.com/muster-scheduler/muster/internal/entry"
)

// otherShards is what belongs to other shards. Pods carry no label of a shard: whose a pod is follows from its gang and its node.
// One that is neither of a gang of ours nor on a node of ours is nothing to us if its gang or its node is another shard's, and
// is left out of the store. A pod of which neither is known stays: a workload that is deleted may lose its gang before its
// pods, and a queue is charged for them until they go.
type otherShards struct {
	gangs map[cluster.Key]string // their UIDs
	nodes map[string]struct{}
	// members are the known pods of each gang, whosever it is. It is kept from when something of another shard is first seen.
	members map[cluster.Key]map[types.NamespacedName]struct{}
	moved   map[string]struct{} // nodes that came, went or changed shards in this drain
}

func newOtherShards() otherShards {
	return otherShards{gangs: map[cluster.Key]string{}, nodes: map[string]struct{}{}, moved: map[string]struct{}{}}
}

// gang notes whose a gang is that exists or is gone, and has its members told anew if that has changed. theirs is its UID if it
// is another shard's.
func (t *Translator) gang(gang cluster.Key, ours bool, theirs string) {
	if t.known(gang) == ours && t.otherShards.gangs[gang] == theirs {
		return
	}
	if theirs != "" {
		t.otherShards.gangs[gang] = theirs
		t.enlist()
	} else {
		delete(t.otherShards.gangs, gang)
	}
	for pod := range t.otherShards.members[gang] { // order: each pod on its own
		t.dirty[pod] = struct{}{}
	}
}

// known says whether there is a gang of our shard.
func (t *Translator) known(gang cluster.Key) (ok bool) {
	key := types.NamespacedName{Namespace: gang.Namespace, Name: gang.Name}
	switch gang.Face {
	case kai.Face:
		_, ok = t.gangs[key]
	case volcano.Face:
		_, ok = t.volcano.groups[key]
	case kubebatch.Face:
		_, ok = t.kubebatch.told[key]
	case upstream.Face:
		_, ok = t.upstream.alone[key]
	case upstream.CompositeFace:
		_, ok = t.upstream.trees[key]
	}
	return ok
}

// node notes whether a node is another shard's.
func (t *Translator) node(name string, theirs bool) {
	if theirs {
		t.otherShards.nodes[name] = struct{}{}
		t.enlist()
	} else {
		delete(t.otherShards.nodes, name)
	}
}

// enlist begins to keep members, with those that are known.
func (t *Translator) enlist() {
	if t.otherShards.members != nil {
		return
	}
	t.otherShards.members = map[cluster.Key]map[types.NamespacedName]struct{}{}
	for key, p := range t.pods { // order: each pod on its own
		t.member(key, nil, p)
	}
}

// member keeps the members of gangs when a pod changes from old to p; nil is no pod.
func (t *Translator) member(key types.NamespacedName, old, p *v1.Pod) {
	if t.otherShards.members == nil {
		return
	}
	var before, after cluster.Key
	if old != nil {
		before = t.gangOf(old)
	}
	if p != nil {
		after = t.gangOf(p)
	}
	if before != after && before != (cluster.Key{}) {
		delete(t.otherShards.members[before], key)
		if len(t.otherShards.members[before]) == 0 {
			delete(t.otherShards.members, before)
		}
	}
	if after == (cluster.Key{}) {
		return
	}
	entry.Put(t.otherShards.members, after, key, struct{}{})
}

// gangOf is the gang whose shard a pod belongs to: of one that is bound, the one that it was bound for.
func (t *Translator) gangOf(p *v1.Pod) cluster.Key {
	if p.Spec.NodeName != "" {
		if c := kai.ReadCharged(p.Namespace, p.Annotations); c.Queue != "" {
			return c.Gang
		}
	}
	if t.volcano.ours(p) {
		return volcano.Membership(p)
	}
	if t.kubebatch.ours(p) {
		gang, _ := kubebatch.Membership(p)
		return gang
	}
	if group, ok := t.upstreams(p); ok {
		return upstream.GangKey(group.Namespace, group.Name)
	}
	gang, _ := kai.MembershipOf(p, t.ownGangs.Of(p))
	return gang
}

// recheckMoved has the pods on nodes that came, went or changed shards told anew. It costs a look at every pod; nodes seldom
// do.
func (t *Translator) recheckMoved() {
	if len(t.otherShards.moved) == 0 {
		return
	}
	for key, p := range t.pods { // order: each pod on its own
		if _, moved := t.otherShards.moved[p.Spec.NodeName]; moved {
			t.dirty[key] = struct{}{}
		}
	}
	clear(t.otherShards.moved)
}

// elsewhere says that a pod is other shards' business alone.
func (t *Translator) elsewhere(st *cluster.PodState) bool {
	if _, here := t.nodes[st.NodeName]; here {
		return false
	}
	of := st.Gang
	if st.Charged.Queue != "" {
		of = st.Charged.Gang
	}
	if t.known(of) {
		return false
	}
	_, gang := t.otherShards.gangs[of]
	_, node := t.otherShards.nodes[st.NodeName]
	return gang || node
}

// left is the UID of the gang that a pod holds its room for if that has gone to another shard; "" otherwise. Who is charged here
// for pods of it is told of them there.
func (t *Translator) left(st *cluster.PodState) string {
	if !st.Ours || st.Charged.Queue == "" {
		return ""
	}
	return t.otherShards.gangs[st.Charged.Gang]
}
