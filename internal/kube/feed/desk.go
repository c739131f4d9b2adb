package feed

import (
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
	"strings"

	topologyv1alpha2 "github.com/k8stopologyawareschedwg/noderesourcetopology-api/pkg/apis/topology/v1alpha2"
	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourcev1 "k8s.io/api/resource/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-scheduler/muster/api/kai/keys"
	"github.com/muster-scheduler/muster/api/kai/v1alpha1"
	"github.com/muster-scheduler/muster/api/scheduling/v1alpha2"
	"github.com/muster-scheduler/muster/api/scheduling/v2"
	"github.com/muster-scheduler/muster/api/scheduling/v2alpha2"
	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/dialect/core"
	"github.com/muster-scheduler/muster/internal/dialect/devices"
	"github.com/muster-scheduler/muster/internal/dialect/kai"
	"github.com/muster-scheduler/muster/internal/dialect/nodetopology"
)

// desk is where objects become events. It remembers what one event needs of other objects: a pod's BindRequests, the
// values of priority classes, which nodes there are. One goroutine works at it.
type desk struct {
	roles     kai.Roles
	partition kai.Partition
	flat      bool // queues have no parents

	priorities kai.Priorities
	nodes      map[string]*v1.Node // those of our shard
	devices    *devices.Book
	extended   func() bool // see Options
	gangs      map[types.NamespacedName]*v2alpha2.PodGroup
	pods       map[types.NamespacedName]*v1.Pod
	requests   map[types.NamespacedName]*request
	byPod      map[types.NamespacedName][]*request
	stale      map[types.NamespacedName]StaleBindRequest
	problems   map[string]string
	broken     map[string]bool // objects the reading of which ends in a panic, as in problems
	applying   bool            // the store is at work
	report     func(v any, object client.Object, stack []byte)
	abroad     abroad
	doubted    map[doubt]bool                          // objects of which there is a suspicion; true: something was told of it since
	versions   [kinds]map[types.NamespacedName]version // of all objects that it was told of

	// What a drain has found out so far, and has not acted upon yet.
	dirty        map[types.NamespacedName]struct{} // pods whose BindRequests changed
	nodesChanged bool                              // a node came or went
	reprioritise bool                              // a priority class changed
}

// request is a BindRequest we know.
type request struct {
	kai.Binding
	ours bool // of our shard
}

func newDesk(o Options) *desk {
	d := &desk{
		roles:     kai.Roles{SchedulerNames: o.SchedulerNames, ReservationApp: o.ReservationApp, ReservationSpace: o.ReservationSpace, ScalingSpace: o.ScalingSpace, MIGWorker: o.MIGWorkerLabel},
		partition: o.Partition, flat: o.FlatQueues,
		nodes: map[string]*v1.Node{}, devices: devices.NewBook(o.QueueLabel), gangs: map[types.NamespacedName]*v2alpha2.PodGroup{}, pods: map[types.NamespacedName]*v1.Pod{},
		requests: map[types.NamespacedName]*request{}, byPod: map[types.NamespacedName][]*request{},
		stale: map[types.NamespacedName]StaleBindRequest{}, problems: map[string]string{}, dirty: map[types.NamespacedName]struct{}{},
		broken: map[string]bool{}, report: o.Broken, abroad: newAbroad(), extended: o.Extended,
	}
	if d.roles.SchedulerNames == nil {
		d.roles.SchedulerNames = []string{kai.DefaultSchedulerName}
	}
	if d.report == nil {
		d.report = func(any, client.Object, []byte) {}
	}
	if o.QueueLabel == "" {
		d.devices = devices.NewBook(keys.QueueLabel)
	}
	if d.roles.ReservationApp == "" {
		d.roles.ReservationApp = kai.DefaultReservationApp
	}
	if o.RestrictNodes {
		d.roles.RestrictGPU, d.roles.RestrictCPU = o.GPUWorkerLabel, o.CPUWorkerLabel
	}
	d.roles.Zones = o.Zones
	return d
}

// work turns one drain's objects into events, applies them, and returns how many changed the store.
func (d *desk) work(in [kinds]box, store *cluster.Store) int {
	if d.extended != nil {
		d.devices.Extended(d.extended())
	}
	n := 0
	apply := func(e cluster.Event) {
		d.applying = true
		if store.Apply(e) {
			n++
		}
		d.applying = false
	}
	for k := range kinds {
		switch k {
		case gangs:
			if d.reprioritise { // those that changed themselves come again below, which costs little
				d.reprioritise = false
				for key, pg := range d.gangs { // order: each gang on its own
					d.one(gangs, key, func() { apply(kai.Gang(pg, &d.priorities, d.partition.Pool())) })
				}
			}
		case pods:
			d.recheckNodes()
			d.recheckMoved()
			d.recheckDevices(apply)
		}
		in[k].each(func(key types.NamespacedName, object client.Object) {
			d.one(k, key, func() { d.translate(k, key, object, apply) })
		})
	}
	for key := range d.dirty { // order: each pod on its own
		if p := d.pods[key]; p != nil {
			d.one(pods, key, func() { d.tellPod(key, p, apply) })
		}
	}
	clear(d.dirty)
	return n
}

// one takes in one object. One that cannot be read because that ends in a panic is a defect of ours, which must not keep the rest of the
// cluster from being scheduled: what was known of the object stays, and it is told of as a problem until it is read. A panic of the
// store's own is no object's matter.
func (d *desk) one(k kind, key types.NamespacedName, take func()) {
	defer func() {
		v := recover()
		if v == nil && len(d.broken) == 0 {
			return
		}
		kind := fmt.Sprintf("%T", k.example())
		name := kind[strings.LastIndexByte(kind, '.')+1:] + " " + strings.TrimPrefix(key.String(), "/")
		switch {
		case v == nil && d.broken[name]:
			delete(d.broken, name)
			delete(d.problems, name)
		case v == nil:
		case d.applying:
			panic(v)
		default:
			d.broken[name] = true
			d.problems[name] = fmt.Sprintf("Reading it ended in a defect of the scheduler (%v): what was known of it before counts.", v)
			object := k.example()
			object.SetNamespace(key.Namespace)
			object.SetName(key.Name)
			d.report(v, object, debug.Stack())
		}
	}()
	take()
}

// tellPod applies the event of a pod as it is, with what other objects say about it. A pod that is other shards' business
// does not exist here.
func (d *desk) tellPod(key types.NamespacedName, p *v1.Pod, apply func(cluster.Event)) {
	st := d.roles.Pod(p, d.promised(key, p))
	d.devices.Pod(&st, p)
	d.roles.Restrict(&st)
	if d.elsewhere(&st) {
		apply(cluster.PodGone{UID: st.UID})
		return
	}
	st.Abroad = d.left(&st)
	apply(st)
}

// tellNode applies the event of a node as it is, with what other objects say about it.
func (d *desk) tellNode(n *v1.Node, apply func(cluster.Event)) {
	st := d.roles.Node(n)
	d.devices.Node(&st)
	apply(st)
}

// recheckDevices makes anew the events of pods and nodes to which a claim, a slice or a class makes a difference.
func (d *desk) recheckDevices(apply func(cluster.Event)) {
	pods, nodes := d.devices.Dirty()
	for _, name := range nodes {
		if n := d.nodes[name]; n != nil {
			d.tellNode(n, apply)
		}
	}
	for _, name := range pods {
		namespace, name, _ := strings.Cut(name, "/")
		d.dirty[types.NamespacedName{Namespace: namespace, Name: name}] = struct{}{}
	}
}

// translate takes in one object's latest state; nil means it is gone.
func (d *desk) translate(k kind, key types.NamespacedName, object client.Object, apply func(cluster.Event)) {
	d.note(k, key, object)
	if c := k.carried(); c != "" {
		d.carry(c, key, object, apply)
	}
	switch k {
	case nodes:
		n, _ := object.(*v1.Node)
		_, known := d.nodes[key.Name]
		_, theirs := d.abroad.nodes[key.Name]
		ours := n != nil && d.partition.Includes(n.Labels)
		if d.node(key.Name, n != nil && !ours); ours != known || (n != nil && !ours) != theirs {
			d.abroad.moved[key.Name] = struct{}{}
		}
		if !ours {
			d.nodesChanged = d.nodesChanged || known
			delete(d.nodes, key.Name)
			apply(cluster.NodeGone{Name: key.Name})
			return
		}
		d.nodesChanged = d.nodesChanged || !known
		d.nodes[key.Name] = n
		d.tellNode(n, apply)
	case nodeZones:
		t, _ := object.(*topologyv1alpha2.NodeResourceTopology)
		if t == nil {
			d.problem("NodeResourceTopology", key, "")
			apply(cluster.ObjectGone{Kind: cluster.NodeResourceTopologies, Key: key.Name})
			return
		}
		z, problem := nodetopology.Zones(t)
		d.problem("NodeResourceTopology", key, problem)
		apply(cluster.ObjectState{Kind: cluster.NodeResourceTopologies, Key: key.Name, Object: z})
	case topologies:
		if t, _ := object.(*v1alpha1.Topology); t != nil {
			apply(kai.Topology(t))
		} else {
			apply(cluster.TopologyGone{Name: key.Name})
		}
	case priorityClasses:
		if c, _ := object.(*schedulingv1.PriorityClass); c != nil {
			d.reprioritise = d.priorities.Set(c) || d.reprioritise
		} else {
			d.reprioritise = d.priorities.Remove(key.Name) || d.reprioritise
		}
	case queues:
		q, _ := object.(*v2.Queue)
		if q == nil || !d.partition.Includes(q.Labels) {
			d.problem("Queue", key, "")
			apply(cluster.QueueGone{Name: key.Name})
			return
		}
		st, problem := kai.Queue(q)
		if d.flat {
			st.Parent = ""
		}
		d.problem("Queue", key, problem)
		apply(st)
	case gangs:
		pg, _ := object.(*v2alpha2.PodGroup)
		theirs := pg != nil && !d.partition.Includes(pg.Labels)
		abroad := ""
		if theirs {
			abroad = string(pg.UID)
		}
		d.gang(key, pg != nil && !theirs, abroad)
		if pg == nil || theirs {
			delete(d.gangs, key)
			d.problem("PodGroup", key, "")
			apply(cluster.GangGone{Key: kai.GangKey(key.Namespace, key.Name)})
			return
		}
		d.gangs[key] = pg
		st := kai.Gang(pg, &d.priorities, d.partition.Pool())
		d.problem("PodGroup", key, st.Invalid)
		apply(st)
	case deviceClasses:
		c, _ := object.(*resourcev1.DeviceClass)
		d.devices.Class(key.Name, c)
	case resourceSlices:
		s, _ := object.(*resourcev1.ResourceSlice)
		d.devices.Slice(key.Name, s)
	case resourceClaims:
		c, _ := object.(*resourcev1.ResourceClaim)
		d.devices.Claim(key.String(), c)
	case requests:
		br, _ := object.(*v1alpha2.BindRequest)
		d.request(key, br)
	case pods:
		p, _ := object.(*v1.Pod)
		old := d.pods[key]
		if old != nil && (p == nil || p.UID != old.UID) {
			apply(cluster.PodGone{UID: string(old.UID)})
		}
		delete(d.dirty, key)
		d.member(key, old, p)
		if p == nil {
			delete(d.pods, key)
			d.devices.Forget(key.String())
		} else {
			d.pods[key] = p
			d.tellPod(key, p, apply)
		}
		if old == nil || p == nil || p.UID != old.UID {
			for _, r := range d.byPod[key] {
				d.judge(r)
			}
		}
	}
}

// promised returns the live BindRequest that promises something to p; nil for none. Should several be live, the first by
// name counts.
func (d *desk) promised(key types.NamespacedName, p *v1.Pod) *kai.Binding {
	var chosen *request
	for _, r := range d.byPod[key] {
		if d.live(r) && r.Meant(p) && (chosen == nil || r.Name < chosen.Name) {
			chosen = r
		}
	}
	if chosen == nil {
		return nil
	}
	return &chosen.Binding
}

// carry passes on an object for filters. Of namespaces, ConfigMaps and budgets only what is read is passed on, so that
// their other changes are none.
func (d *desk) carry(c cluster.ObjectKind, key types.NamespacedName, object client.Object, apply func(cluster.Event)) {
	name := key.Name
	if key.Namespace != "" {
		name = key.Namespace + "/" + key.Name
	}
	switch o := object.(type) {
	case nil:
		apply(cluster.ObjectGone{Kind: c, Key: name})
		return
	case *v1.Namespace:
		object = &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: o.Name, UID: o.UID, Labels: o.Labels}}
	case *policyv1.PodDisruptionBudget:
		object = core.Budget(o)
	case *metav1.PartialObjectMetadata:
		object = &metav1.PartialObjectMetadata{TypeMeta: o.TypeMeta, ObjectMeta: metav1.ObjectMeta{Namespace: o.Namespace, Name: o.Name, UID: o.UID}}
	}
	apply(cluster.ObjectState{Kind: c, Key: name, Object: object})
}

// problem remembers what is wrong with an object; "" forgets it.
func (d *desk) problem(kind string, key types.NamespacedName, text string) {
	if text == "" && len(d.problems) == 0 {
		return
	}
	name := kind + " " + strings.TrimPrefix(key.String(), "/")
	if text == "" {
		delete(d.problems, name)
		return
	}
	d.problems[name] = text
}

func (d *desk) problemTexts() map[string]string { return maps.Clone(d.problems) }

func (d *desk) staleRequests() []StaleBindRequest {
	if len(d.stale) == 0 {
		return nil
	}
	return slices.SortedFunc(maps.Values(d.stale), func(a, b StaleBindRequest) int {
		if c := strings.Compare(a.Namespace, b.Namespace); c != 0 {
			return c
		}
		return strings.Compare(a.Name, b.Name)
	})
}
