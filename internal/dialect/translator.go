package dialect

import (
	"fmt"
	"runtime/debug"
	"strings"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourcev1 "k8s.io/api/resource/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	schedulingv1alpha3 "k8s.io/api/scheduling/v1alpha3"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-scheduler/muster/api/kai/keys"
	"github.com/muster-scheduler/muster/api/kai/v1alpha1"
	"github.com/muster-scheduler/muster/api/scheduling/v1alpha2"
	"github.com/muster-scheduler/muster/api/scheduling/v2"
	"github.com/muster-scheduler/muster/api/scheduling/v2alpha2"
	"github.com/muster-scheduler/muster/api/volcano/scheduling/v1beta1"
	vcshard "github.com/muster-scheduler/muster/api/volcano/shard/v1alpha1"
	vctopology "github.com/muster-scheduler/muster/api/volcano/topology/v1alpha1"
	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/dialect/devices"
	"github.com/muster-scheduler/muster/internal/dialect/kai"
	"github.com/muster-scheduler/muster/internal/dialect/kubebatch"
	"github.com/muster-scheduler/muster/internal/dialect/volcano"
	"github.com/muster-scheduler/muster/internal/dialect/volcano/nodeshards"
)

// Options say whose scheduler objects are translated for. The zero value is KAI's defaults without shards.
type Options struct {
	// Roles tell pods apart. Without SchedulerNames they are kai.DefaultSchedulerName alone.
	Roles kai.Roles
	// Volcano are the values of spec.schedulerName by which pods are Volcano's; none: there is no such face, and objects of its kinds
	// are not handed over.
	Volcano []string
	// KubeBatch is the face of kube-batch; the zero value is none, as of Volcano's.
	KubeBatch KubeBatch
	// Sharding is the part of Volcano's pods in its NodeShards; the zero value is none.
	Sharding nodeshards.Sharding
	// Partition is the shard: nodes, queues and PodGroups outside it do not exist.
	Partition kai.Partition
	// FlatQueues puts all queues side by side: parents are not looked at.
	FlatQueues bool
	// QueueLabel is the key of the label that says to which queue a resource claim that pods share belongs; "" means KAI's.
	QueueLabel string
	// Extended says, whenever it is asked, whether the API server gives extended resources as devices (devices.Index); nil means
	// that it does.
	Extended func() bool
	// Broken hears of an object the reading of which ended in a panic: what was known of it stays, and the others are read. Nil
	// lets the panic go on to the caller, as tests want it.
	Broken func(v any, k Kind, key types.NamespacedName, stack []byte)
}

// Translator makes events of objects. It remembers what one event needs of other objects: a pod's BindRequests, the values of
// priority classes, which nodes there are. NewTranslator makes one; one goroutine works with it.
//
// Invariants, each pinned by a test:
//
//   - The state that events make of a store does not depend on the order in which objects are told of, nor on how they are put
//     into batches.
//   - To tell of an object again, without a change, changes nothing.
//   - A BindRequest moves only the pod it was made for, by UID.
//   - What is only another shard's makes no event that changes a store.
type Translator struct {
	roles     kai.Roles
	ownGangs  *kai.OwnGangs
	partition kai.Partition
	flat      bool        // queues have no parents
	extended  func() bool // see Options
	report    func(v any, k Kind, key types.NamespacedName, stack []byte)

	priorities  kai.Priorities
	nodes       map[string]*v1.Node // those of our shard
	devices     *devices.Index
	groups      map[types.NamespacedName]*v2alpha2.PodGroup                // the objects, of all shards
	owns        map[types.NamespacedName][]types.NamespacedName            // of gangs that pods are by themselves, those pods
	owned       map[types.NamespacedName]map[types.NamespacedName]struct{} // pods that are in the gang of that name by their owner
	admitted    map[types.NamespacedName]admits                            // by what they have been judged, by gang
	queueLabel  string
	gangs       map[types.NamespacedName]struct{} // those of our shard, of either kind
	volcano     volcanoFace
	upstream    upstreamFace
	kubebatch   kubeBatchFace
	pods        map[types.NamespacedName]*v1.Pod
	requests    map[types.NamespacedName]*request
	byPod       map[types.NamespacedName][]*request
	stale       map[types.NamespacedName]StaleBindRequest
	otherShards otherShards
	problems    map[name]string
	broken      map[name]bool // objects the reading of which ends in a panic
	applying    bool          // whoever gets the events is at work

	// What a batch has found out so far, and has not acted upon yet.
	dirty        map[types.NamespacedName]struct{} // pods of which something else has changed
	nodesChanged bool                              // a node came or went
	reprioritise bool                              // a priority class changed
}

// name is an object's.
type name struct {
	kind Kind
	key  types.NamespacedName
}

// NewTranslator returns a translator that knows no object.
func NewTranslator(o Options) *Translator {
	if o.Roles.SchedulerNames == nil {
		o.Roles.SchedulerNames = []string{kai.DefaultSchedulerName}
	}
	if o.QueueLabel == "" {
		o.QueueLabel = keys.QueueLabel
	}
	o.Roles.OwnGangs = new(kai.OwnGangs)
	return &Translator{
		roles: o.Roles, ownGangs: o.Roles.OwnGangs, partition: o.Partition, flat: o.FlatQueues, extended: o.Extended, report: o.Broken,
		nodes: map[string]*v1.Node{}, devices: devices.NewIndex(o.QueueLabel), gangs: map[types.NamespacedName]struct{}{},
		groups: map[types.NamespacedName]*v2alpha2.PodGroup{}, owns: map[types.NamespacedName][]types.NamespacedName{},
		owned: map[types.NamespacedName]map[types.NamespacedName]struct{}{}, admitted: map[types.NamespacedName]admits{}, queueLabel: o.QueueLabel,
		volcano: newVolcanoFace(o.Volcano, o.Sharding), upstream: newUpstreamFace(), kubebatch: newKubeBatchFace(o.KubeBatch),
		pods: map[types.NamespacedName]*v1.Pod{}, requests: map[types.NamespacedName]*request{}, byPod: map[types.NamespacedName][]*request{},
		stale: map[types.NamespacedName]StaleBindRequest{}, otherShards: newOtherShards(), problems: map[name]string{}, broken: map[name]bool{},
		dirty: map[types.NamespacedName]struct{}{},
	}
}

// Translate takes in a batch of changes, and hands to apply the events that come of it. It calls each once for every kind, in
// their order; each calls take for every object of that kind that has changed: with its latest state, nil for one that is gone.
// Events for objects that did not change themselves come too, where what changed makes a difference to them. What it costs is
// the batch, and what hangs on it: the pods of a node that came or went cost a look at every pod.
func (t *Translator) Translate(each func(k Kind, take func(key types.NamespacedName, o Object)), apply func(cluster.Event)) {
	if t.extended != nil {
		t.devices.Extended(t.extended())
	}
	tell := func(e cluster.Event) {
		t.applying = true
		apply(e)
		t.applying = false
	}
	var k Kind
	take := func(key types.NamespacedName, o Object) { t.one(k, key, func() { t.read(k, key, o, tell) }) }
	for k = range Kinds {
		switch k {
		case PodGroups:
			t.recheckGangs(tell)
		case PriorityClasses:
			t.recheckNodeShards(tell)
		case Namespaces: // after what asks for HyperNodes, and after all groups
			t.recheckHyperNodes(tell)
			t.recheckUpstreams(tell)
			t.recheckKubeBatch(tell)
		case Pods:
			t.recheckNodes()
			t.recheckMoved()
			t.recheckDevices(tell)
		}
		each(k, take)
	}
	t.recheckSubgroups(tell)
	t.recheckUpstreams(tell)
	t.recheckKubeBatch(tell)
	for key := range t.dirty { // order: each pod on its own
		if p := t.pods[key]; p != nil {
			t.one(Pods, key, func() { t.tellPod(key, p, tell) })
		}
	}
	clear(t.dirty)
}

// Take is Translate for one object, nil for one that is gone.
func (t *Translator) Take(k Kind, key types.NamespacedName, o Object, apply func(cluster.Event)) {
	t.Translate(func(of Kind, take func(types.NamespacedName, Object)) {
		if of == k {
			take(key, o)
		}
	}, apply)
}

// Problems says, as of the last batch, which objects were understood only in part, and why: one sentence by
// "Kind namespace/name".
func (t *Translator) Problems() map[string]string {
	out := make(map[string]string, len(t.problems))
	for of, text := range t.problems { // order: a map again
		out[of.kind.String()+" "+strings.TrimPrefix(of.key.String(), "/")] = text
	}
	return out
}

// one takes in one object. One that cannot be read because that ends in a panic is a defect of ours, which must not keep the rest of the
// cluster from being scheduled: what was known of the object stays, and it is told of as a problem until it is read. A panic of
// whoever gets the events is no object's matter.
func (t *Translator) one(k Kind, key types.NamespacedName, take func()) {
	if t.report == nil {
		take()
		return
	}
	defer func() {
		v := recover()
		if v == nil && len(t.broken) == 0 {
			return
		}
		of := name{k, key}
		switch {
		case v == nil && t.broken[of]:
			delete(t.broken, of)
			delete(t.problems, of)
		case v == nil:
		case t.applying:
			panic(v)
		default:
			t.broken[of] = true
			t.problems[of] = fmt.Sprintf("Reading it ended in a defect of the scheduler (%v): what was known of it before counts.", v)
			t.report(v, k, key, debug.Stack())
		}
	}()
	take()
}

// read takes in one object's latest state; nil means it is gone.
func (t *Translator) read(k Kind, key types.NamespacedName, object Object, apply func(cluster.Event)) {
	if rows[k].Carried != "" {
		t.carry(k, key, object, apply)
	}
	switch k {
	case Nodes:
		n, _ := object.(*v1.Node)
		_, known := t.nodes[key.Name]
		_, theirs := t.otherShards.nodes[key.Name]
		ours := n != nil && t.partition.Includes(n.Labels)
		var had, has map[string]string
		if old := t.nodes[key.Name]; old != nil {
			had = old.Labels
		}
		if ours {
			has = n.Labels
		}
		t.labelled(had, has, apply)
		t.volcano.node(key.Name, n, ours)
		t.volcano.resharded = t.volcano.resharded || ours != known && t.volcano.sharding.On()
		if t.node(key.Name, n != nil && !ours); ours != known || (n != nil && !ours) != theirs {
			t.otherShards.moved[key.Name] = struct{}{}
		}
		if !ours {
			t.nodesChanged = t.nodesChanged || known
			delete(t.nodes, key.Name)
			apply(cluster.NodeGone{Name: key.Name})
			return
		}
		t.nodesChanged = t.nodesChanged || !known
		t.nodes[key.Name] = n
		t.tellNode(n, apply)
	case Topologies:
		if o, _ := object.(*v1alpha1.Topology); o != nil {
			apply(kai.Topology(o))
		} else {
			apply(cluster.TopologyGone{Name: key.Name})
		}
	case VolcanoHyperNodes:
		h, _ := object.(*vctopology.HyperNode)
		t.readHyperNode(key, h)
	case VolcanoNodeShards:
		s, _ := object.(*vcshard.NodeShard)
		t.readNodeShard(key, s)
	case PriorityClasses:
		if c, _ := object.(*schedulingv1.PriorityClass); c != nil {
			t.reprioritise = t.priorities.Set(c) || t.reprioritise
		} else {
			t.reprioritise = t.priorities.Remove(key.Name) || t.reprioritise
		}
	case Queues:
		q, _ := object.(*v2.Queue)
		if q == nil || !t.partition.Includes(q.Labels) {
			t.problem(k, key, "")
			apply(cluster.QueueGone{Name: key.Name})
			return
		}
		st, problem := kai.Queue(q)
		if t.flat {
			st.Parent = ""
		}
		t.problem(k, key, problem)
		apply(st)
	case PodGroups:
		pg, _ := object.(*v2alpha2.PodGroup)
		if pg == nil {
			delete(t.groups, key)
		} else {
			t.groups[key] = pg
		}
		t.readGang(key, apply)
	case VolcanoQueues:
		q, _ := object.(*v1beta1.Queue)
		t.readVolcanoQueue(key, q, apply)
	case VolcanoPodGroups:
		pg, _ := object.(*v1beta1.PodGroup)
		t.readVolcanoGroup(key, pg, apply)
	case UpstreamPodGroups:
		pg, _ := object.(*schedulingv1beta1.PodGroup)
		t.readUpstreamGang(key, pg)
	case CompositePodGroups:
		c, _ := object.(*schedulingv1alpha3.CompositePodGroup)
		t.readComposite(key, c)
	case KubeBatchQueues, KubeBatchSigsQueues:
		t.readKubeBatchQueue(k, key.Name, object, apply)
	case KubeBatchPodGroups, KubeBatchSigsPodGroups:
		t.readKubeBatchGang(k, key, object)
	case PodDisruptionBudgets:
		b, _ := object.(*policyv1.PodDisruptionBudget)
		t.readKubeBatchBudget(key, b)
	case DeviceClasses:
		c, _ := object.(*resourcev1.DeviceClass)
		t.devices.Class(key.Name, c)
	case ResourceSlices:
		s, _ := object.(*resourcev1.ResourceSlice)
		t.devices.Slice(key.Name, s)
	case ResourceClaims:
		c, _ := object.(*resourcev1.ResourceClaim)
		t.devices.Claim(key.String(), c)
	case BindRequests:
		br, _ := object.(*v1alpha2.BindRequest)
		t.request(key, br)
	case Pods:
		p, _ := object.(*v1.Pod)
		old := t.pods[key]
		if old != nil && (p == nil || p.UID != old.UID) {
			apply(cluster.PodGone{UID: string(old.UID)})
		}
		t.member(key, old, p)
		t.volcano.member(old, p)
		t.ownedBy(key, old, p)
		if p == nil {
			delete(t.pods, key)
		} else {
			t.pods[key] = p
		}
		t.followUpstream(key, old, p)
		t.followKubeBatch(key, old, p)
		left, leftVolcano := t.own(key, old, p, apply), t.ownVolcano(key, old, p, apply)
		delete(t.dirty, key)
		if p == nil {
			t.problem(Pods, key, "")
			t.devices.Forget(key.String())
		} else {
			t.tellPod(key, p, apply)
		}
		if left != (types.NamespacedName{}) {
			t.readGang(left, apply)
		}
		if leftVolcano != (types.NamespacedName{}) {
			t.readVolcanoGang(leftVolcano, apply)
		}
		if old == nil || p == nil || p.UID != old.UID {
			for _, r := range t.byPod[key] {
				t.judge(r)
			}
		}
	}
}

// carry passes on an object for filters.
func (t *Translator) carry(k Kind, key types.NamespacedName, object Object, apply func(cluster.Event)) {
	id := key.Name
	if key.Namespace != "" {
		id = key.Namespace + "/" + key.Name
	}
	if object == nil {
		t.problem(k, key, "")
		apply(cluster.ObjectGone{Kind: rows[k].Carried, Key: id})
		return
	}
	carried := any(object)
	if part := rows[k].carry; part != nil {
		var problem string
		carried, problem = part(object)
		t.problem(k, key, problem)
	}
	apply(cluster.ObjectState{Kind: rows[k].Carried, Key: id, Object: carried})
}

// tellPod applies the event of a pod as it is, with what other objects say about it. A pod that is other shards' business
// does not exist here.
func (t *Translator) tellPod(key types.NamespacedName, p *v1.Pod, apply func(cluster.Event)) {
	promised := t.promised(key, p)
	st := t.roles.Pod(p, promised)
	group, upstreams := t.upstreams(p)
	if !upstreams {
		t.problem(Pods, key, "")
	}
	switch {
	case t.volcano.ours(p):
		t.problem(Pods, key, volcano.Member(&st, p))
		if by, _ := volcano.ZonesBy(p); by != "" && st.Phase.Holds() {
			st.Zones = kai.Zones(p, promised)
		}
		t.volcano.subgroup(&st, p)
		t.volcano.keep(&st)
	case t.kubebatch.ours(p):
		t.problem(Pods, key, kubebatch.Member(&st, p))
	case upstreams:
		t.joinUpstream(key, group, p, &st)
	case t.stranger(p), t.excludes(p):
		st.Gang, st.SetName = cluster.Key{}, ""
	}
	t.devices.Pod(&st, p)
	t.roles.Restrict(&st)
	if t.elsewhere(&st) {
		apply(cluster.PodGone{UID: st.UID})
		return
	}
	st.InOtherShard = t.left(&st)
	apply(st)
}

// tellNode applies the event of a node as it is, with what other objects say about it.
func (t *Translator) tellNode(n *v1.Node, apply func(cluster.Event)) {
	st := t.roles.Node(n)
	t.devices.Node(&st)
	t.volcano.place(&st)
	apply(st)
}

// recheckGangs makes anew the events of all gangs after a priority class changed. Those that changed themselves come again
// later, which costs little.
func (t *Translator) recheckGangs(apply func(cluster.Event)) {
	if !t.reprioritise {
		return
	}
	t.reprioritise = false
	for key := range t.gangs { // order: each gang on its own
		t.one(PodGroups, key, func() { apply(kai.Gang(t.standing(key), &t.priorities, t.partition.Pool())) })
	}
	for key := range t.upstream.alone { // order: a set
		t.upstream.groupsDirty[key] = struct{}{}
	}
	for root := range t.upstream.trees { // order: the same
		t.upstream.treesDirty[root] = struct{}{}
	}
	for key := range t.kubebatch.told { // order: the same
		t.kubebatch.dirty[key] = struct{}{}
	}
	for key, pg := range t.volcano.groups { // order: the same
		t.one(VolcanoPodGroups, key, func() { apply(t.volcanoGang(key, pg)) })
	}
}

// recheckDevices makes anew the events of nodes to which a claim, a slice or a class makes a difference, and later those of
// pods.
func (t *Translator) recheckDevices(apply func(cluster.Event)) {
	pods, nodes := t.devices.Dirty()
	for _, name := range nodes {
		if n := t.nodes[name]; n != nil {
			t.tellNode(n, apply)
		}
	}
	for _, name := range pods {
		namespace, name, _ := strings.Cut(name, "/")
		t.dirty[types.NamespacedName{Namespace: namespace, Name: name}] = struct{}{}
	}
}

// problem remembers what is wrong with an object; "" forgets it.
func (t *Translator) problem(k Kind, key types.NamespacedName, text string) {
	switch {
	case text != "":
		t.problems[name{k, key}] = text
	case len(t.problems) > 0:
		delete(t.problems, name{k, key})
	}
}
