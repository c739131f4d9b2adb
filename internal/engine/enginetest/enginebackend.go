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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-scheduler/muster/api/kai/keys"
	"github.com/muster-scheduler/muster/api/scheduling/v1alpha2"
	"github.com/muster-scheduler/muster/api/scheduling/v2alpha2"
	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/dialect"
	"github.com/muster-scheduler/muster/internal/dialect/kai"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/engine/builtin"
	"github.com/muster-scheduler/muster/internal/engine/plugins/proportion"
	"github.com/muster-scheduler/muster/internal/engine/plugins/topology"
	"github.com/muster-scheduler/muster/internal/engine/recorder"
)

// maxRounds bounds Settle: a scenario that still changes after so many cycles goes in circles.
const maxRounds = 64

// Extension lets a caller add what this package may not know, such as the upstream filters, to the registry and profile.
type Extension func(engine.Profile, engine.Registry) (engine.Profile, engine.Registry)

// Engine is the backend without a cluster: objects in memory, the dialects, a store, and a driver of it.
type Engine struct {
	tell      *dialect.Translator
	reads     dialect.Options // of tell
	mutation  Mutation
	now       time.Time
	profile   engine.Profile
	registry  engine.Registry
	engine    *engine.Engine
	driver    *engine.Driver
	store     *cluster.Store
	options   cluster.Options
	objects   map[string]Object // by kind/namespace/name
	lives     map[string]int    // how often an object of that key was deleted
	postponed map[types.UID]bool
	usage     *cluster.UsageState         // nil for no history
	uses      map[string]*cluster.NodeUse // by node
	moments   int64                       // nanoseconds that settling took, so that what happens first is earlier
	taken     []engine.Bundle             // those with evictions that took effect
	rarely    int                         // every so many cycles a cold engine decides again; 0 for each
	checked   int                         // cycles so far

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
		mutation: m, postponed: map[types.UID]bool{}, reads: dialect.Options{
			Roles:      kai.Roles{SchedulerNames: opts.Names(), RestrictGPU: opts.RestrictGPU, RestrictCPU: opts.RestrictCPU, Zones: true},
			Volcano:    opts.VolcanoNames(),
			KubeBatch:  opts.KubeBatchFace(),
			Sharding:   opts.NodeShards(),
			FlatQueues: opts.FlatQueues,
		},
	}
	b.tell = dialect.NewTranslator(b.reads)
	if opts.StuckAfter != "" {
		d, err := time.ParseDuration(opts.StuckAfter)
		if err != nil {
			return nil, fmt.Errorf("option stuck-after: %w", err)
		}
		b.options.StuckAfter = time.Duration(d.Nanoseconds())
	}
	if extend != nil {
		b.profile, b.registry = extend(b.profile, b.registry)
	}
	b.profile.Neutralised = append(b.profile.Neutralised, m.Neutralised...)
	if b.engine, err = engine.New(b.profile, b.registry); err != nil {
		return nil, err
	}
	b.restart()
	return b, nil
}

// newStore returns a store that knows, like a feed that has listed them all, which ConfigMaps there are: none yet.
func newStore(o cluster.Options) *cluster.Store {
	o.DefaultQueue = keys.DefaultQueue
	s := cluster.NewStore(o)
	s.Apply(cluster.ObjectState{Kind: cluster.ConfigMaps, Key: defaultSpace + "/kube-root-ca.crt", Object: &v1.ConfigMap{}})
	return s
}

func key(o Object) string {
	kind := ""
	if k, ok := dialect.KindOf(o); ok {
		kind = k.String()
	}
	return kind + "/" + o.GetNamespace() + "/" + o.GetName()
}

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
	if _, ok := dialect.KindOf(o); !ok {
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
	b.feed(b.tell, b.store, o)
	return nil
}

// feed tells a store about an object as it is now, as the scheduler's feed does.
func (b *Engine) feed(t *dialect.Translator, s *cluster.Store, o Object) {
	if b.mutation.Object != nil {
		o = o.DeepCopyObject().(Object)
		b.mutation.Object(o)
	}
	if k, ok := dialect.KindOf(o); ok {
		t.Take(k, dialect.KeyOf(o), o, func(e cluster.Event) { s.Apply(e) })
	}
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
	if kind, ok := dialect.KindOf(old); ok {
		b.tell.Take(kind, dialect.KeyOf(old), nil, func(e cluster.Event) { b.store.Apply(e) })
	}
	if p, ok := old.(*v1.Pod); ok {
		return b.forget(&v1alpha2.BindRequest{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name}}) // the garbage collector does
	}
	return nil
}

// Pods implements Backend.
func (b *Engine) Pods() ([]*v1.Pod, error) { return copies[*v1.Pod](b), nil }

// Nodes implements Backend.
func (b *Engine) Nodes() ([]*v1.Node, error) { return copies[*v1.Node](b), nil }

// copies are the objects of a kind, by name.
func copies[T Object](b *Engine) (out []T) {
	for _, k := range slices.Sorted(maps.Keys(b.objects)) {
		if o, ok := b.objects[k].(T); ok {
			out = append(out, o.DeepCopyObject().(T))
		}
	}
	return out
}

// Problems lists what is wrong with queues' numbers, and with what pods name, by their names.
func (b *Engine) Problems() []string {
	var out []string
	problems := b.tell.Problems()
	for _, name := range slices.Sorted(maps.Keys(problems)) {
		kind, _, _ := strings.Cut(name, " ")
		if slices.Contains([]string{
			dialect.Queues.String(), dialect.Pods.String(), dialect.VolcanoNodeShards.String(), dialect.KubeBatchPodGroups.String(), dialect.KubeBatchSigsPodGroups.String(),
			dialect.KubeBatchQueues.String(), dialect.KubeBatchSigsQueues.String(), dialect.PodDisruptionBudgets.String(),
		}, kind) {
			out = append(out, problems[name])
		}
	}
	return out
}

// restart gives the backend an empty store, and a driver of it.
func (b *Engine) restart() {
	b.store = newStore(b.options)
	b.driver = engine.NewDriver(b.engine, b.store)
}

// moment is the present, in Unix nanoseconds, when controllers have done what they do.
func (b *Engine) moment() cluster.Instant {
	b.count()
	b.keepClaims()
	return cluster.UnixNano(b.now.UnixNano()).Add(time.Duration(b.moments))
}

func (b *Engine) snapshot() *cluster.Snapshot { return b.store.Snapshot(b.moment()) }

// decide is a what-if: what would be decided.
func decide(e *engine.Engine, snap *cluster.Snapshot) ([]engine.Plan, engine.Result) {
	var plans []engine.Plan
	r := e.Run(context.Background(), snap, func(p engine.Plan) { plans = append(plans, p) })
	return plans, r
}

// Cycle implements Backend, and checks what must hold for every cycle.
func (b *Engine) Cycle() ([]engine.Plan, error) {
	snap := b.snapshot()
	plans, _ := decide(b.engine, snap)
	return plans, b.check(snap, plans)
}

// check checks what must hold for every cycle.
func (b *Engine) check(snap *cluster.Snapshot, plans []engine.Plan) error {
	if b.mutation.active() { // a mutant may break what is checked below
		return nil
	}
	if err := Audit(snap, plans, b.profile.Uses(proportion.Name)); err != nil {
		return err
	}
	if b.profile.Uses(topology.Name) {
		if err := AuditTogether(snap, plans); err != nil {
			return err
		}
	}
	if b.checked++; b.rarely > 0 && b.checked%b.rarely != 0 {
		return nil
	}
	cold, err := engine.New(b.profile, b.registry)
	if err != nil {
		return err
	}
	anew := b.rebuilt(snap)
	again, _ := decide(cold, anew)
	if err := samePlans(translated(plans, snap.Dims, snap.Dims), translated(again, anew.Dims, snap.Dims)); err != nil || b.Watch == nil {
		return err
	}
	return b.Watch(snap, b.profile, b.registry, plans)
}

// rebuilt returns the snapshot of a store that learns the same objects in the opposite order, from a translator that knows
// nothing yet, and what snap remembers.
func (b *Engine) rebuilt(snap *cluster.Snapshot) *cluster.Snapshot {
	s, tell := newStore(b.options), dialect.NewTranslator(b.reads)
	keys := slices.Sorted(maps.Keys(b.objects))
	for _, k := range slices.Backward(keys) {
		b.feed(tell, s, b.objects[k])
	}
	if b.usage != nil {
		s.Apply(*b.usage)
	}
	b.measured(s)
	s.Snapshot(cluster.Instant{})
	s.Restore(snap.Memory())
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
			if b.Eviction == nil {
				continue
			}
			record := *b.Eviction
			record.Shares = slices.Clone(record.Shares)
			b.Eviction = &record
			for k := range record.Shares {
				c := &record.Shares[k]
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
func (b *Engine) Trace() (*recorder.Trace, error) {
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
			Type: v2alpha2.UnschedulableOnNodePool, NodePool: b.reads.Partition.Pool(),
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

// Promise lets the pod be on its way to the node, by a BindRequest that is not served yet; settle serves it.
// node "" takes the promise back.
func (b *Engine) Promise(p *v1.Pod, node string) error {
	in := kai.Intent{Namespace: p.Namespace, Pod: p.Name, PodUID: p.UID, Node: node, Partition: b.reads.Partition}
	if node == "" {
		return b.Delete(in.BindRequest())
	}
	return b.Apply(in.BindRequest())
}

// promised is the node that a pod is on its way to, "" for none.
func (b *Engine) promised(p *v1.Pod) string {
	br, ok := b.objects["BindRequest/"+p.Namespace+"/"+p.Name].(*v1alpha2.BindRequest)
	if !ok || kai.PodUID(br) != p.UID {
		return ""
	}
	return br.Spec.SelectedNode
}

// RejectBind implements Backend.
func (b *Engine) RejectBind(p *v1.Pod, d time.Duration) error {
	until := cluster.InstantOf(b.now.Add(d))
	if !b.store.Postpone(string(p.UID), until) {
		return fmt.Errorf("pod %s/%s is not known to the store", p.Namespace, p.Name)
	}
	b.postponed[p.UID] = true
	return nil
}
