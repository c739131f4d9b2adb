package conformance

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-scheduler/muster/api/kai/keys"
	"github.com/muster-scheduler/muster/api/scheduling/v2alpha2"
	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/dialect"
	"github.com/muster-scheduler/muster/internal/dialect/kai"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/engine/builtin"
	"github.com/muster-scheduler/muster/internal/engine/enginetest"
	"github.com/muster-scheduler/muster/internal/kube/filters"
	"github.com/muster-scheduler/muster/internal/profile"
)

// Statuses of pods, in the words of the files.
const (
	binding   = "Binding"
	nominated = "Pipelined"
	pending   = "Pending"
	running   = "Running"
	releasing = "Releasing"
	stuck     = "StuckInReleasing"
)

// fate is where a pod stands.
type fate struct {
	status string
	node   string
	gpu    int64    // milli-GPU received by this run's decision
	groups []string // the shared devices it is on, or was chosen for
	zones  []cluster.ZoneShare
}

// pace is what a round takes besides its delay, so that what happens first is earlier.
const pace = second / 1000

// caseRun is a case while it runs.
type caseRun struct {
	c      *Case
	driver *engine.Driver
	store  *cluster.Store
	tell   *dialect.Translator // of objects to the store
	now    cluster.Instant
	keep   bool // nominations survive between rounds
	pods   map[string]*v1.Pod
	fates  map[string]fate
	claims map[string][]cluster.ClaimAllocation // devices that this run chose, by pod
	made   map[string]*resourcev1.ResourceClaim // the claims as they are, by "namespace/name"

	gangs  map[cluster.Key]*v2alpha2.PodGroup
	leaves map[string]leave // pods that were evicted, by UID

	snap  *cluster.Snapshot // of the last run
	trace engine.Trace
	// How often each was decided. A moved pod counts as evicted and as nominated, as KAI counts.
	binds, evictions, nominations int
	round                         int
	told                          []string // evictions, a line each
}

// leave is a pod's way from the node and the shared devices it was evicted from to where it has room, "" for nowhere.
type leave struct {
	from, to string
	groups   []string
}

// statuses are those that a pod may have at the start.
var statuses = map[string]bool{pending: true, nominated: true, running: true, releasing: true, stuck: true, "Failed": true, "Succeeded": true}

func newCaseRun(c *Case, keep bool) (*caseRun, error) {
	w := &caseRun{
		c: c, now: start, keep: keep, store: cluster.NewStore(cluster.Options{StuckAfter: stuckAfter}), tell: dialect.NewTranslator(dialect.Options{Roles: kai.Roles{Zones: true}}),
		claims: map[string][]cluster.ClaimAllocation{}, made: map[string]*resourcev1.ResourceClaim{},
		pods: map[string]*v1.Pod{}, fates: map[string]fate{}, gangs: map[cluster.Key]*v2alpha2.PodGroup{}, leaves: map[string]leave{},
	}
	p, err := profile.Parse(c.Given.SchedulerConf)
	if err != nil {
		return nil, err
	}
	p.Actions = c.Actions
	p.Settings = engine.Settings{ConsolidationVictims: -1, MovedAreFree: true, StaleGrace: time.Duration(c.DefaultStalenessGraceSeconds) * second}
	for i := range c.Given.Nodes {
		if c.Given.Nodes[i].NUMA != nil && len(p.Tiers) > 0 {
			p.Tiers[0] = append(p.Tiers[0], engine.PluginUse{Name: "numa"})
			break
		}
	}
	e, err := engine.New(p, filters.Register(builtin.Registry(), filters.Options{}))
	if err != nil {
		return nil, err
	}
	w.driver = engine.NewDriver(e, w.store)
	for _, o := range c.objects() {
		if claim, ok := o.(*resourcev1.ResourceClaim); ok {
			w.made[claim.Namespace+"/"+claim.Name] = claim
		}
		w.feed(o)
	}
	groups := c.devices()
	for i := range c.Given.Gangs {
		g := &c.Given.Gangs[i]
		w.know(g.object())
		for k := range g.Pods {
			p := &g.Pods[k]
			if _, twice := w.pods[p.Name]; twice {
				return nil, fmt.Errorf("two pods are called %s", p.Name)
			}
			if !statuses[p.Status] {
				return nil, fmt.Errorf("pod %s: status %q is unknown", p.Name, p.Status)
			}
			w.fates[p.Name] = fate{status: p.Status, node: p.Node, groups: groups[p.Name]}
			if pod := g.pod(p, groups[p.Name]); pod.Spec.NodeName != "" {
				w.fates[p.Name] = fate{status: p.Status, node: p.Node, groups: groups[p.Name], zones: kai.Zones(pod, nil)}
			}
			w.put(g.pod(p, groups[p.Name]))
		}
	}
	return w, nil
}

// cycle runs the actions once and notes what was decided.
func (w *caseRun) cycle() {
	w.round++
	snap, plans, r := w.driver.Cycle(context.Background(), w.now)
	w.snap, w.trace = snap, r.Trace
	for i := range plans {
		for j := range plans[i].Bundles {
			b := &plans[i].Bundles[j]
			for k := range b.Intents {
				w.decide(b, &b.Intents[k])
			}
			if b.Starts {
				w.note(b.Gang, keys.LastStartAnnotation)
			}
		}
	}
}

// decide notes one decision.
func (w *caseRun) decide(b *engine.Bundle, in *engine.Intent) {
	switch in.Verb {
	case engine.Bind:
		w.binds++
		w.claims[in.UID] = in.Claims
		w.fates[in.UID] = fate{status: binding, node: in.Node, gpu: in.GPU, groups: in.Groups, zones: in.Zones}
	case engine.Nominate:
		w.nominations++
		w.fates[in.UID] = fate{status: nominated, node: in.Node, gpu: in.GPU, groups: in.Groups, zones: in.Zones}
	case engine.Evict:
		w.evictions++
		w.told = append(w.told, told(w.round, b, in))
		w.leaves[in.UID] = leave{in.Node, in.To, w.fates[in.UID].groups}
		w.fates[in.UID] = fate{status: releasing, node: in.Node, gpu: in.GPU, groups: w.fates[in.UID].groups, zones: w.fates[in.UID].zones}
		w.note(in.Gang, keys.LastEvictionAnnotation)
		if in.To != "" {
			w.nominations++
			w.fates[in.UID] = fate{status: nominated, node: in.To, gpu: in.GPU, groups: in.ToGroups, zones: in.Zones}
		}
	}
}

func (w *caseRun) feed(o dialect.Object) {
	if k, ok := dialect.KindOf(o); ok {
		w.tell.Take(k, dialect.KeyOf(o), o, func(e cluster.Event) { w.store.Apply(e) })
	}
}

func (w *caseRun) know(g *v2alpha2.PodGroup) {
	w.gangs[cluster.Key{Face: "kai", Namespace: g.Namespace, Name: g.Name}] = g
	w.feed(g)
}

// note writes the present time on a gang.
func (w *caseRun) note(gang cluster.Key, annotation string) {
	if g, ok := w.gangs[gang]; ok {
		g = g.DeepCopy()
		g.Annotations[annotation] = stamp(w.now)
		w.know(g)
	}
}

func (w *caseRun) put(p *v1.Pod) {
	w.pods[string(p.UID)] = p
	w.feed(p)
}

// settle turns decisions into facts between two rounds: bound pods run, nominated ones wait again, evicted ones are
// back without a node, and time goes by.
func (w *caseRun) settle() {
	w.now = w.now.Add(pace + time.Duration(w.c.Rounds.DelaySeconds*float64(second)))
	for i := range w.c.Given.Gangs {
		g := &w.c.Given.Gangs[i]
		for k := range g.Pods {
			uid := g.Pods[k].Name
			f, p := w.fates[uid], w.pods[uid].DeepCopy()
			gone, evicted := w.leaves[uid]
			switch {
			case f.status == binding:
				p.Status.Phase, p.Spec.NodeName, p.Status.NominatedNodeName = v1.PodRunning, f.node, ""
				enginetest.SetGroups(p, f.groups)
				w.fates[uid] = fate{status: running, node: f.node, gpu: f.gpu, groups: f.groups}
			case (evicted || f.status == releasing) && g.DeletedDuringTest:
				if !evicted {
					continue
				}
				now := moment(w.now)
				p.DeletionTimestamp = &now
				w.fates[uid] = fate{status: releasing, node: gone.from, gpu: f.gpu, groups: gone.groups}
			case f.status == nominated, f.status == releasing:
				p.Status.Phase, p.Spec.NodeName, p.DeletionTimestamp, p.Status.NominatedNodeName = v1.PodPending, "", nil, ""
				enginetest.SetGroups(p, nil)
				if w.keep && f.status == nominated {
					p.Status.NominatedNodeName = f.node
				}
				w.fates[uid] = fate{status: pending}
			default:
				continue
			}
			delete(w.leaves, uid)
			w.put(p)
		}
	}
	w.settleClaims()
	if !w.keep {
		for _, h := range w.store.Snapshot(w.now).Holds {
			w.store.Release(h.ID())
		}
	}
}

// settleClaims writes into claims what pods that were bound got, and strikes off those that are not on a node any more.
func (w *caseRun) settleClaims() {
	gone := func(uid types.UID) bool { p := w.pods[string(uid)]; return p != nil && p.Spec.NodeName == "" }
	for _, key := range slices.Sorted(maps.Keys(w.made)) {
		c, changed := enginetest.Release(w.made[key], gone)
		for _, uid := range slices.Sorted(maps.Keys(w.claims)) {
			p := w.pods[uid]
			for i := range w.claims[uid] {
				if a := &w.claims[uid][i]; a.Object == key && p.Spec.NodeName != "" {
					c, changed = enginetest.Reserve(c, p, a.Allocation), true
				}
			}
			if k := slices.IndexFunc(p.Spec.ResourceClaims, func(r v1.PodResourceClaim) bool { return p.Namespace+"/"+*r.ResourceClaimName == key }); k >= 0 && p.Spec.NodeName != "" {
				c, changed = enginetest.Reserve(c, p, nil), true
			}
		}
		if changed {
			w.made[key] = c
			w.feed(c)
		}
	}
	clear(w.claims)
}

// play runs the case and returns how it differs from what is expected; nil for not at all.
func (w *caseRun) play() []Mismatch {
	if w.c.Rounds == nil {
		w.cycle()
		return w.compare()
	}
	for range w.c.Rounds.UntilMatch {
		w.cycle()
		w.settle()
	}
	if m := w.compare(); m != nil {
		return m
	}
	for range w.c.Rounds.AfterMatch {
		w.cycle()
		w.settle()
		if m := w.compare(); m != nil {
			return m
		}
	}
	return nil
}
