package feed

import (
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-scheduler/muster/api/scheduling/v1alpha2"
	"github.com/muster-scheduler/muster/api/scheduling/v2"
	"github.com/muster-scheduler/muster/api/scheduling/v2alpha2"
	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/dialect/core"
	"github.com/muster-scheduler/muster/internal/dialect/kai"
)

// desk is where objects become events. It remembers what one event needs of other objects: a pod's BindRequests, the
// values of priority classes, which nodes there are. One goroutine works at it.
type desk struct {
	roles     kai.Roles
	partition kai.Partition
	flat      bool // queues have no parents

	priorities kai.Priorities
	nodes      map[string]struct{} // those of our shard
	gangs      map[types.NamespacedName]*v2alpha2.PodGroup
	pods       map[types.NamespacedName]*v1.Pod
	requests   map[types.NamespacedName]*request
	byPod      map[types.NamespacedName][]*request
	stale      map[types.NamespacedName]StaleBindRequest
	problems   map[string]string

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
		roles:     kai.Roles{SchedulerNames: o.SchedulerNames, ReservationApp: o.ReservationApp},
		partition: o.Partition, flat: o.FlatQueues,
		nodes: map[string]struct{}{}, gangs: map[types.NamespacedName]*v2alpha2.PodGroup{}, pods: map[types.NamespacedName]*v1.Pod{},
		requests: map[types.NamespacedName]*request{}, byPod: map[types.NamespacedName][]*request{},
		stale: map[types.NamespacedName]StaleBindRequest{}, problems: map[string]string{}, dirty: map[types.NamespacedName]struct{}{},
	}
	if d.roles.SchedulerNames == nil {
		d.roles.SchedulerNames = []string{kai.DefaultSchedulerName}
	}
	if d.roles.ReservationApp == "" {
		d.roles.ReservationApp = kai.DefaultReservationApp
	}
	if o.RestrictNodes {
		d.roles.RestrictGPU, d.roles.RestrictCPU = o.GPUWorkerLabel, o.CPUWorkerLabel
	}
	return d
}

// work turns one drain's objects into events, applies them, and returns how many changed the store.
func (d *desk) work(in [kinds]box, store *cluster.Store) int {
	n := 0
	apply := func(e cluster.Event) {
		if store.Apply(e) {
			n++
		}
	}
	for k := range kinds {
		switch k {
		case gangs:
			if d.reprioritise { // those that changed themselves come again below, which costs little
				d.reprioritise = false
				for _, pg := range d.gangs { // order: each gang on its own
					apply(kai.Gang(pg, &d.priorities, d.partition.Pool()))
				}
			}
		case pods:
			d.recheckNodes()
		}
		in[k].each(func(key types.NamespacedName, object client.Object) { d.translate(k, key, object, apply) })
	}
	for key := range d.dirty { // order: each pod on its own
		if p := d.pods[key]; p != nil {
			apply(d.roles.Pod(p, d.promised(key, p)))
		}
	}
	clear(d.dirty)
	return n
}

// translate takes in one object's latest state; nil means it is gone.
func (d *desk) translate(k kind, key types.NamespacedName, object client.Object, apply func(cluster.Event)) {
	if c := k.carried(); c != "" {
		d.carry(c, key, object, apply)
	}
	switch k {
	case nodes:
		n, _ := object.(*v1.Node)
		_, known := d.nodes[key.Name]
		if n == nil || !d.partition.Includes(n.Labels) {
			d.nodesChanged = d.nodesChanged || known
			delete(d.nodes, key.Name)
			apply(cluster.NodeGone{Name: key.Name})
			return
		}
		d.nodesChanged = d.nodesChanged || !known
		d.nodes[key.Name] = struct{}{}
		apply(core.Node(n))
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
		if pg == nil || !d.partition.Includes(pg.Labels) {
			delete(d.gangs, key)
			d.problem("PodGroup", key, "")
			apply(cluster.GangGone{Key: kai.GangKey(key.Namespace, key.Name)})
			return
		}
		d.gangs[key] = pg
		st := kai.Gang(pg, &d.priorities, d.partition.Pool())
		d.problem("PodGroup", key, st.Invalid)
		apply(st)
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
		if p == nil {
			delete(d.pods, key)
		} else {
			d.pods[key] = p
			apply(d.roles.Pod(p, d.promised(key, p)))
		}
		if old == nil || p == nil || p.UID != old.UID {
			for _, r := range d.byPod[key] {
				d.judge(r)
			}
		}
	}
}

// promised returns the node that a live BindRequest promises to p; "" for none. Should several be live, the first by
// name counts.
func (d *desk) promised(key types.NamespacedName, p *v1.Pod) string {
	var chosen *request
	for _, r := range d.byPod[key] {
		if d.live(r) && r.Meant(p) && (chosen == nil || r.Name < chosen.Name) {
			chosen = r
		}
	}
	if chosen == nil {
		return ""
	}
	return chosen.Node
}

// carry passes on an object for filters. Of namespaces and ConfigMaps only what filters read is passed on, so that
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
