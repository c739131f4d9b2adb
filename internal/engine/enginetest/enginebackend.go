package enginetest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"

	v2 "github.com/muster-scheduler/muster/api/scheduling/v2"
	"github.com/muster-scheduler/muster/api/scheduling/v2alpha2"
	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/dialect/core"
	"github.com/muster-scheduler/muster/internal/dialect/kai"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/engine/builtin"
	"github.com/muster-scheduler/muster/internal/engine/plugins/proportion"
)

// maxRounds bounds Settle: a scenario that still changes after so many cycles goes in circles.
const maxRounds = 64

// Extension lets a caller add what this package may not know, such as the upstream filters, to the registry and profile.
type Extension func(engine.Profile, engine.Registry) (engine.Profile, engine.Registry)

// Engine is the backend without a cluster: objects in memory, the dialects, a store, and engine.Run.
type Engine struct {
	now        time.Time
	profile    engine.Profile
	registry   engine.Registry
	engine     *engine.Engine
	store      *cluster.Store
	options    cluster.Options
	roles      kai.Roles
	priorities kai.Priorities
	mutation   Mutation
	objects    map[string]Object // by kind/namespace/name
	lives      map[string]int    // how often an object of that key was deleted
	problems   map[string]string // of queues, by name
	postponed  map[types.UID]int64
	promised   map[types.UID]string // nodes to which pods are on their way
	flat       bool
}

// epoch is when scenarios begin: a whole second with room before it.
var epoch = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// NewEngine returns an empty cluster under the scenario's settings. m is what is switched off, the zero value for
// nothing; extend may be nil.
func NewEngine(o *Options, m Mutation, extend Extension) (*Engine, error) {
	opts := *o
	if m.Options != nil {
		m.Options(&opts)
	}
	p, err := opts.Profile()
	if err != nil {
		return nil, err
	}
	b := &Engine{
		now: epoch, profile: p, registry: WithProbe(builtin.Registry()), mutation: m, objects: map[string]Object{}, lives: map[string]int{},
		problems: map[string]string{}, postponed: map[types.UID]int64{}, promised: map[types.UID]string{}, flat: opts.FlatQueues,
		roles: kai.Roles{SchedulerNames: opts.Names(), ReservationApp: kai.DefaultReservationApp, RestrictGPU: opts.RestrictGPU, RestrictCPU: opts.RestrictCPU},
	}
	if opts.StuckAfter != "" {
		d, err := time.ParseDuration(opts.StuckAfter)
		if err != nil {
			return nil, fmt.Errorf("option stuck-after: %w", err)
		}
		b.options.StuckAfter = d.Nanoseconds()
	}
	if extend != nil {
		b.profile, b.registry = extend(b.profile, b.registry)
	}
	b.profile.Neutralised = append(b.profile.Neutralised, m.Neutralised...)
	if b.engine, err = engine.New(b.profile, b.registry); err != nil {
		return nil, err
	}
	b.store = newStore(b.options)
	return b, nil
}

// newStore returns a store that knows, like a feed that has listed them all, which ConfigMaps there are: none yet.
func newStore(o cluster.Options) *cluster.Store {
	s := cluster.NewStore(o)
	s.Apply(cluster.ObjectState{Kind: cluster.ConfigMaps, Key: defaultSpace + "/kube-root-ca.crt", Object: &v1.ConfigMap{}})
	return s
}

func key(o Object) string { return kindOf(o) + "/" + o.GetNamespace() + "/" + o.GetName() }

// Apply implements Backend.
func (b *Engine) Apply(o Object) error {
	if kindOf(o) == "" {
		return fmt.Errorf("cannot apply a %T", o)
	}
	o = o.DeepCopyObject().(Object)
	k := key(o)
	if o.GetUID() == "" {
		uid := fullName(o.GetNamespace(), o.GetName())
		if n := b.lives[k]; n > 0 {
			uid += "#" + strconv.Itoa(n)
		}
		o.SetUID(types.UID(uid))
	}
	if t := o.GetCreationTimestamp(); t.IsZero() {
		if old, ok := b.objects[k]; ok {
			o.SetCreationTimestamp(old.GetCreationTimestamp())
		}
	}
	if old, ok := b.objects[k].(*v2alpha2.PodGroup); ok {
		o.SetGeneration(old.Generation + 1)
	}
	b.objects[k] = o
	b.feed(b.store, o)
	if pc, ok := o.(*schedulingv1.PriorityClass); ok {
		pc = pc.DeepCopy()
		if b.mutation.Object != nil {
			b.mutation.Object(pc)
		}
		b.priorities.Set(pc)
		b.feedGangs()
	}
	return nil
}

// feedGangs tells the store about every gang again: their priorities may have changed.
func (b *Engine) feedGangs() {
	for _, k := range slices.Sorted(maps.Keys(b.objects)) {
		if pg, ok := b.objects[k].(*v2alpha2.PodGroup); ok {
			b.feed(b.store, pg)
		}
	}
}

// feed translates one object into the store's events.
func (b *Engine) feed(s *cluster.Store, o Object) {
	if b.mutation.Object != nil {
		o = o.DeepCopyObject().(Object)
		b.mutation.Object(o)
	}
	switch o := o.(type) {
	case *v1.Node:
		s.Apply(core.Node(o))
	case *v1.Pod:
		s.Apply(b.roles.Pod(o, b.promised[o.UID]))
	case *v2.Queue:
		st, problem := kai.Queue(o)
		if b.flat {
			st.Parent = ""
		}
		s.Apply(st)
		delete(b.problems, o.Name)
		if problem != "" {
			b.problems[o.Name] = problem
		}
	case *v2alpha2.PodGroup:
		s.Apply(kai.Gang(o, &b.priorities, kai.DefaultPool))
	default:
		if kind := carried(o); kind != "" {
			s.Apply(cluster.ObjectState{Kind: kind, Key: carriedKey(o), Object: o})
		}
	}
}

// carried is the kind under which the store carries an object for filters.
func carried(o Object) cluster.ObjectKind {
	switch o.(type) {
	case *v1.ConfigMap:
		return cluster.ConfigMaps
	case *v1.Namespace:
		return cluster.Namespaces
	case *v1.PersistentVolume:
		return cluster.PersistentVolumes
	case *v1.PersistentVolumeClaim:
		return cluster.PersistentVolumeClaims
	case *storagev1.StorageClass:
		return cluster.StorageClasses
	case *storagev1.CSINode:
		return cluster.CSINodes
	case *storagev1.CSIDriver:
		return cluster.CSIDrivers
	case *storagev1.CSIStorageCapacity:
		return cluster.CSIStorageCapacities
	}
	return ""
}

func carriedKey(o Object) string {
	if ns := o.GetNamespace(); ns != "" {
		return ns + "/" + o.GetName()
	}
	return o.GetName()
}

// Delete implements Backend.
func (b *Engine) Delete(o Object) error {
	k := key(o)
	old, ok := b.objects[k]
	if !ok {
		return nil
	}
	delete(b.objects, k)
	b.lives[k]++
	switch o := old.(type) {
	case *v1.Node:
		b.store.Apply(cluster.NodeGone{Name: o.Name})
	case *v1.Pod:
		b.store.Apply(cluster.PodGone{UID: string(o.UID)})
	case *v2.Queue:
		b.store.Apply(cluster.QueueGone{Name: o.Name})
		delete(b.problems, o.Name)
	case *v2alpha2.PodGroup:
		b.store.Apply(cluster.GangGone{Key: kai.GangKey(o.Namespace, o.Name)})
	case *schedulingv1.PriorityClass:
		b.priorities.Remove(o.Name)
		b.feedGangs()
	default:
		b.store.Apply(cluster.ObjectGone{Kind: carried(o), Key: carriedKey(o)})
	}
	return nil
}

// Pods implements Backend.
func (b *Engine) Pods() ([]*v1.Pod, error) {
	var out []*v1.Pod
	for _, k := range slices.Sorted(maps.Keys(b.objects)) {
		if p, ok := b.objects[k].(*v1.Pod); ok {
			out = append(out, p.DeepCopy())
		}
	}
	return out, nil
}

// Nodes implements Backend.
func (b *Engine) Nodes() ([]*v1.Node, error) {
	var out []*v1.Node
	for _, k := range slices.Sorted(maps.Keys(b.objects)) {
		if n, ok := b.objects[k].(*v1.Node); ok {
			out = append(out, n.DeepCopy())
		}
	}
	return out, nil
}

// Problems lists what is wrong with queues' numbers, by queue name.
func (b *Engine) Problems() []string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(b.problems)) {
		out = append(out, b.problems[name])
	}
	return out
}

func (b *Engine) snapshot() *cluster.Snapshot { return b.store.Snapshot(b.now.UnixNano()) }

func decide(e *engine.Engine, snap *cluster.Snapshot) ([]engine.Plan, engine.Result) {
	var plans []engine.Plan
	r := e.Run(context.Background(), snap, func(p engine.Plan) { plans = append(plans, p) })
	return plans, r
}

// Cycle implements Backend, and checks what must hold for every cycle.
func (b *Engine) Cycle() ([]engine.Plan, error) {
	snap := b.snapshot()
	plans, _ := decide(b.engine, snap)
	if b.mutation.active() { // a mutant may break what is checked below
		return plans, nil
	}
	if err := Audit(snap, plans, b.gated()); err != nil {
		return plans, err
	}
	cold, err := engine.New(b.profile, b.registry)
	if err != nil {
		return plans, err
	}
	again, _ := decide(cold, b.rebuilt())
	return plans, samePlans(plans, again)
}

// gated says whether the profile has the plugin that keeps queues within their limits.
func (b *Engine) gated() bool {
	for _, tier := range b.profile.Tiers {
		if slices.ContainsFunc(tier, func(u engine.PluginUse) bool { return u.Name == proportion.Name }) {
			return true
		}
	}
	return false
}

// rebuilt returns the snapshot of a store that learns the same objects in the opposite order.
func (b *Engine) rebuilt() *cluster.Snapshot {
	s := newStore(b.options)
	keys := slices.Sorted(maps.Keys(b.objects))
	for _, k := range slices.Backward(keys) {
		b.feed(s, b.objects[k])
	}
	for uid, until := range b.postponed { // order: each pod on its own
		s.Postpone(string(uid), until)
	}
	return s.Snapshot(b.now.UnixNano())
}

// samePlans says where two runs decided differently.
func samePlans(a, b []engine.Plan) error {
	x, err := json.Marshal(a)
	if err != nil {
		return fmt.Errorf("comparing plans: %w", err)
	}
	y, err := json.Marshal(b)
	if err != nil {
		return fmt.Errorf("comparing plans: %w", err)
	}
	if !bytes.Equal(x, y) {
		return fmt.Errorf("a cold engine on a rebuilt store decides otherwise:\n%s\nnot\n%s", y, x)
	}
	return nil
}

// Trace implements Backend.
func (b *Engine) Trace() (*engine.Trace, error) {
	_, r := decide(b.engine, b.snapshot())
	return &r.Trace, nil
}

// Settle implements Backend: it repeats cycles, each taking effect, until one decides to bind nothing and no pod goes.
func (b *Engine) Settle() error {
	for range maxRounds {
		plans, err := b.Cycle()
		if err != nil {
			return err
		}
		changed, err := b.enact(plans)
		if err != nil {
			return err
		}
		if b.giveUp() || b.age() {
			changed = true
		}
		if !changed {
			return nil
		}
	}
	return fmt.Errorf("still changing after %d cycles", maxRounds)
}

// enact lets the binds of the plans happen. Nominations are the scheduler's own promise and leave no trace in objects.
func (b *Engine) enact(plans []engine.Plan) (bool, error) {
	changed := false
	for _, plan := range plans {
		for _, bundle := range plan.Bundles {
			for _, in := range bundle.Intents {
				if in.Verb != engine.Bind {
					continue
				}
				p, ok := b.objects["Pod/"+in.Namespace+"/"+in.Pod].(*v1.Pod)
				if !ok || string(p.UID) != in.UID {
					return false, fmt.Errorf("plan binds pod %s/%s with UID %s, which does not exist", in.Namespace, in.Pod, in.UID)
				}
				p = p.DeepCopy()
				p.Spec.NodeName, p.Status.Phase = in.Node, v1.PodRunning
				if err := b.Apply(p); err != nil {
					return false, err
				}
				changed = true
			}
		}
	}
	return changed, nil
}

// age lets deleted pods go, unless something holds them, and bound ones start.
func (b *Engine) age() bool {
	changed := false
	for _, k := range slices.Sorted(maps.Keys(b.objects)) {
		p, ok := b.objects[k].(*v1.Pod)
		switch {
		case !ok:
		case p.DeletionTimestamp != nil && len(p.Finalizers) == 0:
			changed = b.Delete(p) == nil || changed
		case p.Spec.NodeName == "" && p.Status.Phase == v1.PodPending && b.promised[p.UID] != "":
			p = p.DeepCopy()
			p.Spec.NodeName = b.promised[p.UID]
			changed = b.Apply(p) == nil || changed
		case p.Spec.NodeName != "" && p.Status.Phase == v1.PodPending && p.DeletionTimestamp == nil:
			p = p.DeepCopy()
			p.Status.Phase = v1.PodRunning
			changed = b.Apply(p) == nil || changed
		}
	}
	return changed
}

// giveUp records on gangs with schedulingBackoff that they were tried in vain, as the scheduler's status writer does.
func (b *Engine) giveUp() bool {
	trace, err := b.Trace()
	if err != nil {
		return false
	}
	changed := false
	for i := range trace.Gangs {
		t := &trace.Gangs[i]
		pg, ok := b.objects["PodGroup/"+t.Gang.Namespace+"/"+t.Gang.Name].(*v2alpha2.PodGroup)
		if !ok || t.Diagnosis == nil || t.Placed+t.Nominated > 0 || len(pg.Status.SchedulingConditions) > 0 ||
			pg.Spec.SchedulingBackoff == nil || *pg.Spec.SchedulingBackoff != v2alpha2.SingleSchedulingBackoff {
			continue
		}
		pg = pg.DeepCopy()
		pg.Status.SchedulingConditions = []v2alpha2.SchedulingCondition{{
			Type: v2alpha2.UnschedulableOnNodePool, NodePool: kai.DefaultPool,
			Status: v1.ConditionTrue, Message: strings.TrimSpace(t.Diagnosis.String()),
		}}
		changed = b.Apply(pg) == nil || changed
	}
	return changed
}

// Now implements Backend.
func (b *Engine) Now() time.Time { return b.now }

// Advance implements Backend.
func (b *Engine) Advance(d time.Duration) error {
	b.now = b.now.Add(d)
	return nil
}

// Promise lets the pod be on its way to the node, as a BindRequest that is not served yet does; settle serves it.
// node "" takes the promise back.
func (b *Engine) Promise(p *v1.Pod, node string) {
	b.promised[p.UID] = node
	b.feed(b.store, p)
}

// RejectBind implements Backend.
func (b *Engine) RejectBind(p *v1.Pod, d time.Duration) error {
	until := b.now.Add(d).UnixNano()
	if !b.store.Postpone(string(p.UID), until) {
		return fmt.Errorf("pod %s/%s is not known to the store", p.Namespace, p.Name)
	}
	b.postponed[p.UID] = until
	return nil
}
