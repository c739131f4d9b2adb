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

	topologyv1alpha2 "github.com/k8stopologyawareschedwg/noderesourcetopology-api/pkg/apis/topology/v1alpha2"
	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourcev1 "k8s.io/api/resource/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-scheduler/muster/api/kai/keys"
	"github.com/muster-scheduler/muster/api/kai/v1alpha1"
	v2 "github.com/muster-scheduler/muster/api/scheduling/v2"
	"github.com/muster-scheduler/muster/api/scheduling/v2alpha2"
	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/dialect/core"
	dra "github.com/muster-scheduler/muster/internal/dialect/devices"
	"github.com/muster-scheduler/muster/internal/dialect/kai"
	"github.com/muster-scheduler/muster/internal/dialect/nodetopology"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/engine/builtin"
	"github.com/muster-scheduler/muster/internal/engine/plugins/proportion"
	"github.com/muster-scheduler/muster/internal/engine/plugins/topology"
)

// maxRounds bounds Settle: a scenario that still changes after so many cycles goes in circles.
const maxRounds = 64

// Extension lets a caller add what this package may not know, such as the upstream filters, to the registry and profile.
type Extension func(engine.Profile, engine.Registry) (engine.Profile, engine.Registry)

// Translator feeds API objects to a store through the dialects, as the scheduler's feed does for a cluster of one shard.
type Translator struct {
	roles      kai.Roles
	priorities kai.Priorities
	mutation   Mutation
	problems   map[string]string          // of queues, by name
	promised   map[types.UID]*kai.Binding // where pods are on their way to
	flat       bool
	devices    *dra.Book
	nodes      map[string]*v1.Node // by name
	pods       map[string]*v1.Pod  // by "namespace/name"
	partition  kai.Partition       // the zero value: everything is ours
}

// NewTranslator returns one for which pods with one of these scheduler names are ours.
func NewTranslator(schedulerNames []string) *Translator {
	return &Translator{
		problems: map[string]string{}, promised: map[types.UID]*kai.Binding{},
		devices: dra.NewBook(keys.QueueLabel), nodes: map[string]*v1.Node{}, pods: map[string]*v1.Pod{},
		roles: kai.Roles{SchedulerNames: schedulerNames, ReservationApp: kai.DefaultReservationApp, Zones: true},
	}
}

// Engine is the backend without a cluster: objects in memory, the dialects, a store, and engine.Run.
type Engine struct {
	*Translator
	now       time.Time
	profile   engine.Profile
	registry  engine.Registry
	engine    *engine.Engine
	store     *cluster.Store
	options   cluster.Options
	objects   map[string]Object // by kind/namespace/name
	lives     map[string]int    // how often an object of that key was deleted
	postponed map[types.UID]bool
	usage     *cluster.UsageState // nil for no history
	moments   int64               // nanoseconds that settling took, so that what happens first is earlier
	taken     []engine.Bundle     // those with evictions that took effect

	pool   string    // its node pool, of several shards
	past   bool      // its shares look at the past
	shards []*Engine // all schedulers of the cluster, itself among them; nil when it is the only one

	// Watch, if set, is told of each cycle and may fail it.
	Watch func(snap *cluster.Snapshot, p engine.Profile, r engine.Registry, plans []engine.Plan) error
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
	if opts.Shards != nil {
		return newShards(opts, m, extend)
	}
	p, err := opts.Profile()
	if err != nil {
		return nil, err
	}
	b := &Engine{
		now: epoch, profile: p, registry: WithProbe(builtin.Registry()), objects: map[string]Object{}, lives: map[string]int{},
		Translator: NewTranslator(opts.Names()), postponed: map[types.UID]bool{},
	}
	b.mutation, b.flat, b.roles.RestrictGPU, b.roles.RestrictCPU = m, opts.FlatQueues, opts.RestrictGPU, opts.RestrictCPU
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
	o.DefaultQueue = keys.DefaultQueue
	s := cluster.NewStore(o)
	s.Apply(cluster.ObjectState{Kind: cluster.ConfigMaps, Key: defaultSpace + "/kube-root-ca.crt", Object: &v1.ConfigMap{}})
	return s
}

func key(o Object) string { return kindOf(o) + "/" + o.GetNamespace() + "/" + o.GetName() }

// Apply implements Backend.
func (b *Engine) Apply(o Object) error {
	for _, shard := range b.cluster() {
		if err := shard.learn(o); err != nil {
			return err
		}
	}
	return nil
}

// learn makes the backend know an object.
func (b *Engine) learn(o Object) error {
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
	b.Feed(b.store, o)
	if _, ok := o.(*schedulingv1.PriorityClass); ok {
		b.feedGangs()
	}
	return nil
}

// feedGangs tells the store about every gang again: their priorities may have changed.
func (b *Engine) feedGangs() {
	for _, k := range slices.Sorted(maps.Keys(b.objects)) {
		if pg, ok := b.objects[k].(*v2alpha2.PodGroup); ok {
			b.Feed(b.store, pg)
		}
	}
}

// Feed tells a store about an object as it is now. A priority class counts for the gangs that are fed after it.
func (b *Translator) Feed(s *cluster.Store, o Object) {
	if b.mutation.Object != nil {
		o = o.DeepCopyObject().(Object)
		b.mutation.Object(o)
	}
	if b.foreign(o) {
		return
	}
	switch o := o.(type) {
	case *v1.Node:
		b.nodes[o.Name] = o
		s.Apply(b.node(o))
	case *v1.Pod:
		b.pods[carriedKey(o)] = o
		s.Apply(b.pod(o))
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
	case *schedulingv1.PriorityClass:
		b.priorities.Set(o)
	case *topologyv1alpha2.NodeResourceTopology:
		z, _ := nodetopology.Zones(o)
		s.Apply(cluster.ObjectState{Kind: carried(o), Key: carriedKey(o), Object: z})
	case *v1alpha1.Topology:
		s.Apply(kai.Topology(o))
	case *policyv1.PodDisruptionBudget:
		s.Apply(cluster.ObjectState{Kind: carried(o), Key: carriedKey(o), Object: core.Budget(o)})
	default:
		if kind := carried(o); kind != "" {
			s.Apply(cluster.ObjectState{Kind: kind, Key: carriedKey(o), Object: o})
			b.book(s, kind, carriedKey(o), o)
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
	case *policyv1.PodDisruptionBudget:
		return cluster.PodDisruptionBudgets
	case *topologyv1alpha2.NodeResourceTopology:
		return cluster.NodeResourceTopologies
	case *resourcev1.ResourceClaim:
		return cluster.ResourceClaims
	case *resourcev1.ResourceSlice:
		return cluster.ResourceSlices
	case *resourcev1.DeviceClass:
		return cluster.DeviceClasses
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
	for _, shard := range b.cluster() {
		if err := shard.forget(o); err != nil {
			return err
		}
	}
	return nil
}

func (b *Engine) forget(o Object) error {
	k := key(o)
	old, ok := b.objects[k]
	if !ok {
		return nil
	}
	delete(b.objects, k)
	b.lives[k]++
	switch o := old.(type) {
	case *v1.Node:
		delete(b.nodes, o.Name)
		b.store.Apply(cluster.NodeGone{Name: o.Name})
	case *v1.Pod:
		delete(b.pods, carriedKey(o))
		b.devices.Forget(carriedKey(o))
		b.store.Apply(cluster.PodGone{UID: string(o.UID)})
	case *v2.Queue:
		b.store.Apply(cluster.QueueGone{Name: o.Name})
		delete(b.problems, o.Name)
	case *v2alpha2.PodGroup:
		b.store.Apply(cluster.GangGone{Key: kai.GangKey(o.Namespace, o.Name)})
	case *schedulingv1.PriorityClass:
		b.priorities.Remove(o.Name)
		b.feedGangs()
	case *v1alpha1.Topology:
		b.store.Apply(cluster.TopologyGone{Name: o.Name})
	default:
		b.Gone(b.store, o)
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

func (b *Engine) snapshot() *cluster.Snapshot {
	b.count()
	b.keepClaims()
	return b.store.Snapshot(b.now.UnixNano() + b.moments)
}

func decide(e *engine.Engine, snap *cluster.Snapshot) ([]engine.Plan, engine.Result) {
	var plans []engine.Plan
	r := e.Run(context.Background(), snap, func(p engine.Plan) { plans = append(plans, p) })
	return plans, r
}

// Cycle implements Backend, and checks what must hold for every cycle.
func (b *Engine) Cycle() ([]engine.Plan, error) {
	plans, _, err := b.cycle()
	return plans, err
}

func (b *Engine) cycle() ([]engine.Plan, engine.Result, error) {
	snap := b.snapshot()
	plans, result := decide(b.engine, snap)
	if b.mutation.active() { // a mutant may break what is checked below
		return plans, result, nil
	}
	if err := Audit(snap, plans, b.has(proportion.Name)); err != nil {
		return plans, result, err
	}
	if b.has(topology.Name) {
		if err := AuditTogether(snap, plans); err != nil {
			return plans, result, err
		}
	}
	cold, err := engine.New(b.profile, b.registry)
	if err != nil {
		return plans, result, err
	}
	anew := b.rebuilt(snap)
	again, _ := decide(cold, anew)
	if err := samePlans(translated(plans, snap.Dims, snap.Dims), translated(again, anew.Dims, snap.Dims)); err != nil || b.Watch == nil {
		return plans, result, err
	}
	return plans, result, b.Watch(snap, b.profile, b.registry, plans)
}

// has says whether the profile has a plugin.
func (b *Engine) has(plugin string) bool {
	for _, tier := range b.profile.Tiers {
		if slices.ContainsFunc(tier, func(u engine.PluginUse) bool { return u.Name == plugin }) {
			return true
		}
	}
	return false
}

// rebuilt returns the snapshot of a store that learns the same objects in the opposite order, and what snap remembers.
func (b *Engine) rebuilt(snap *cluster.Snapshot) *cluster.Snapshot {
	s := newStore(b.options)
	keys := slices.Sorted(maps.Keys(b.objects))
	for _, k := range slices.Backward(keys) {
		b.Feed(s, b.objects[k])
	}
	for uid := range b.postponed { // order: each pod on its own
		snap.EachPod(func(p *cluster.Pod) {
			if p.UID == string(uid) {
				s.Postpone(p.UID, p.NotBefore) // which goes back with the clock
			}
		})
	}
	if b.usage != nil {
		s.Apply(*b.usage)
	}
	m, dims := snap.Memory(), s.Snapshot(0).Dims
	m.Holds = slices.Clone(m.Holds)
	for i := range m.Holds {
		h := &m.Holds[i]
		h.Requests, h.Charge = under(h.Requests, snap.Dims, dims), under(h.Charge, snap.Dims, dims)
	}
	s.Restore(m)
	return s.Snapshot(snap.Now)
}

// under is a vector over one table of dimensions as another table has it, without trailing zeros: the order of a table is that in
// which names were first heard, and it only grows.
func under(r cluster.Resources, from, to cluster.Dims) (out cluster.Resources) {
	for d, x := range r {
		if at, ok := to.Index(from.Name(d)); ok && x != 0 {
			out.Set(at, x)
		}
	}
	return out
}

// translated returns plans that were made with one table of dimensions with their amounts as another table has them; see under.
func translated(plans []engine.Plan, from, to cluster.Dims) []engine.Plan {
	plans = slices.Clone(plans)
	for i := range plans {
		plans[i].Bundles = slices.Clone(plans[i].Bundles)
		for j := range plans[i].Bundles {
			b := &plans[i].Bundles[j]
			if b.Cause == nil {
				continue
			}
			cause := *b.Cause
			cause.Shares = slices.Clone(cause.Shares)
			b.Cause = &cause
			for k := range cause.Shares {
				c := &cause.Shares[k]
				for _, r := range []*cluster.Resources{&c.Quota, &c.FairShare, &c.Before, &c.After} {
					*r = under(*r, from, to)
				}
			}
		}
	}
	return plans
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
	delete(b.promised, p.UID)
	if node != "" {
		b.promised[p.UID] = &kai.Binding{Node: node}
	}
	b.Feed(b.store, p)
}

// RejectBind implements Backend.
func (b *Engine) RejectBind(p *v1.Pod, d time.Duration) error {
	until := b.now.Add(d).UnixNano()
	if !b.store.Postpone(string(p.UID), until) {
		return fmt.Errorf("pod %s/%s is not known to the store", p.Namespace, p.Name)
	}
	b.postponed[p.UID] = true
	return nil
}
