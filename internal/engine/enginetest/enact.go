package enginetest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/muster-scheduler/muster/api/kai/keys"
	"github.com/muster-scheduler/muster/api/scheduling/v2alpha2"
	vckeys "github.com/muster-scheduler/muster/api/volcano/keys"
	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/dialect"
	"github.com/muster-scheduler/muster/internal/dialect/core"
	"github.com/muster-scheduler/muster/internal/dialect/kai"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/engine/ledger"
	"github.com/muster-scheduler/muster/internal/engine/recorder"
)

// evictionGrace is how long an evicted pod may take to end. Settle lets it end before, unless something holds it.
const evictionGrace = 30 * time.Second

// Settle implements Backend: it repeats cycles, each taking effect, until one decides to bind and evict nothing, leaves no
// question for the next, no pod goes, and none comes.
func (b *Engine) Settle() error {
	for range maxRounds {
		if changed, err := b.step(); err != nil || !changed {
			return err
		}
	}
	return fmt.Errorf("still changing after %d cycles", maxRounds)
}

// step is one cycle that takes effect, and says whether there is more to come: something was decided, waits for the next cycle, goes, or comes.
func (b *Engine) step() (bool, error) {
	b.moments++
	snap, plans, result := b.driver.Cycle(context.Background(), b.moment())
	if err := b.check(snap, plans); err != nil {
		return false, err
	}
	changed, err := b.enact(plans)
	if err != nil {
		return false, err
	}
	if changed, err = b.lift(result.Trace.Lifted, changed); err != nil {
		return false, err
	}
	for _, step := range []func() bool{b.giveUp, b.age} {
		changed = step() || changed
	}
	changed = b.mark(result.Trace.Stale) || changed || !result.Trace.WakeAt.After(cluster.UnixNano(b.now.UnixNano()).Add(time.Duration(b.moments)))
	return changed, nil
}

// lift takes the queue's gate off the pods that are let in.
func (b *Engine) lift(lifted []recorder.Lift, changed bool) (bool, error) {
	for _, l := range lifted {
		p, ok := b.objects["Pod/"+l.Namespace+"/"+l.Pod].(*v1.Pod)
		if !ok || string(p.UID) != l.UID {
			return changed, fmt.Errorf("pod %s/%s with UID %s is let in, and does not exist", l.Namespace, l.Pod, l.UID)
		}
		p = p.DeepCopy()
		dropGate(p, vckeys.QueueAllocationGate)
		if err := b.Apply(p); err != nil {
			return changed, err
		}
		changed = true
	}
	return changed, nil
}

// dropGate takes one scheduling gate off a pod.
func dropGate(p *v1.Pod, name string) {
	p.Spec.SchedulingGates = slices.DeleteFunc(p.Spec.SchedulingGates, func(g v1.PodSchedulingGate) bool { return g.Name == name })
}

// enact lets the decisions happen. Nominations are the scheduler's own promise and leave no trace in objects.
func (b *Engine) enact(plans []engine.Plan) (bool, error) {
	changed := false
	for i := range plans {
		for j := range plans[i].Bundles {
			bundle := &plans[i].Bundles[j]
			for _, in := range bundle.Intents {
				if in.Verb == ledger.Nominate {
					continue
				}
				p, ok := b.objects["Pod/"+in.Namespace+"/"+in.Pod].(*v1.Pod)
				if !ok || string(p.UID) != in.UID {
					return false, fmt.Errorf("plan wants to %s pod %s/%s with UID %s, which does not exist", in.Verb, in.Namespace, in.Pod, in.UID)
				}
				p = p.DeepCopy()
				switch in.Verb {
				case ledger.Bind:
					settleOn(p, in.Node, in.Groups, in.Charged)
					if err := predict(p, in.Zones); err != nil {
						return false, err
					}
					p.Status.Phase = v1.PodRunning
					if err := b.claimed(p, in.Claims); err != nil {
						return false, err
					}
				case ledger.Evict:
					at := p.Spec.NodeName
					if at == "" { // it goes before it has arrived
						at = b.promised(p)
					}
					if p.DeletionTimestamp != nil || at != in.Node {
						return false, fmt.Errorf("plan evicts pod %s/%s from %s, where it is not, or not to stay", in.Namespace, in.Pod, in.Node)
					}
					p.DeletionTimestamp = new(metav1.NewTime(b.now.Add(evictionGrace)))
					p.Status.Conditions = append(p.Status.Conditions, v1.PodCondition{Type: v1.DisruptionTarget, Status: v1.ConditionTrue, Reason: v1.PodReasonPreemptionByScheduler})
					b.annotate(in.Gang, kai.LastEvictionAnnotation)
				}
				if err := b.Apply(p); err != nil {
					return false, err
				}
				if in.Verb == ledger.Evict {
					if err := b.Promise(p, ""); err != nil {
						return false, err
					}
				}
				changed = true
			}
			if bundle.Starts {
				b.annotate(bundle.Gang, kai.LastStartAnnotation)
			}
			if bundle.Eviction != nil {
				b.taken = append(b.taken, *bundle)
			}
		}
	}
	return changed, nil
}

// annotate notes the present time on a gang, as those who write statuses do.
func (b *Engine) annotate(key cluster.Key, annotation string) {
	b.setAnnotation(key, annotation, b.now.UTC().Format(time.RFC3339))
}

// setAnnotation sets an annotation of a gang, or takes it off when the value is "", and says whether that changed it. Its
// generation stays.
func (b *Engine) setAnnotation(key cluster.Key, annotation, value string) bool {
	if key.Face != kai.Face { // others' objects have no such annotations
		return false
	}
	k := "PodGroup/" + key.Namespace + "/" + key.Name
	pg, ok := b.objects[k].(*v2alpha2.PodGroup)
	if !ok || pg.Annotations[annotation] == value {
		return false
	}
	pg = pg.DeepCopy()
	if pg.Annotations == nil {
		pg.Annotations = map[string]string{}
	}
	pg.Annotations[annotation] = value
	if value == "" {
		delete(pg.Annotations, annotation)
	}
	b.objects[k] = pg
	b.feed(b.tell, b.store, pg)
	return true
}

// age lets deleted pods go, unless something holds them, and bound ones start. A pod that was evicted and has a
// controller is made anew under the same name.
func (b *Engine) age() bool {
	changed := false
	for _, k := range slices.Sorted(maps.Keys(b.objects)) {
		p, ok := b.objects[k].(*v1.Pod)
		switch {
		case !ok:
		case p.DeletionTimestamp != nil && len(p.Finalizers) == 0:
			changed = b.Delete(p) == nil || changed
			if Recreates(p) {
				changed = b.Apply(Recreate(p, b.now)) == nil || changed
			}
		case p.Spec.NodeName == "" && p.Status.Phase == v1.PodPending && b.promised(p) != "":
			p = p.DeepCopy()
			settleOn(p, b.promised(p), nil, cluster.Charged{})
			if predict(p, nil) != nil {
				continue
			}
			changed = b.Apply(p) == nil || changed
		case p.Spec.NodeName != "" && p.Status.Phase == v1.PodPending && p.DeletionTimestamp == nil:
			p = p.DeepCopy()
			p.Status.Phase = v1.PodRunning
			changed = b.Apply(p) == nil || changed
		}
	}
	return changed
}

// settleOn does what the binder does to a pod: it gives it its node, the record of its charge, and labels for the devices that
// it shares.
func settleOn(p *v1.Pod, node string, groups []string, charged cluster.Charged) {
	p.Spec.NodeName = node
	for key, text := range kai.WriteCharged(charged) { // order: a map again
		if p.Annotations == nil {
			p.Annotations = map[string]string{}
		}
		p.Annotations[key] = text
	}
	if len(groups) > 0 {
		SetGroups(p, groups)
	}
}

// Recreates says whether the end of this pod makes its controller make another: it was evicted, and has a controller.
func Recreates(p *v1.Pod) bool {
	return metav1.GetControllerOf(p) != nil && slices.ContainsFunc(p.Status.Conditions, func(c v1.PodCondition) bool {
		return c.Type == v1.DisruptionTarget && c.Status == v1.ConditionTrue
	})
}

// Recreate returns the pod that takes the place of one that was evicted: of the same name and index, and another pod.
func Recreate(p *v1.Pod, now time.Time) *v1.Pod {
	n := p.DeepCopy()
	n.UID, n.ResourceVersion, n.DeletionTimestamp, n.DeletionGracePeriodSeconds = "", "", nil, nil
	n.CreationTimestamp = metav1.NewTime(now)
	SetGroups(n, nil)
	delete(n.Annotations, keys.NUMAObservedAnnotation)
	delete(n.Annotations, keys.NUMAPredictedAnnotation)
	delete(n.Annotations, keys.ChargedAnnotation)
	delete(n.Annotations, keys.ChargedAsAnnotation)
	n.Spec.NodeName = ""
	n.Status = v1.PodStatus{Phase: v1.PodPending}
	return n
}

// mark notes on gangs what a run found out: since when they have pods and too few of them.
func (b *Engine) mark(stale []recorder.StaleGang) bool {
	changed := false
	for i := range stale {
		since := ""
		if !stale[i].Since.IsZero() {
			since = stale[i].Since.Time().UTC().Format(time.RFC3339)
		}
		changed = b.setAnnotation(stale[i].Gang, kai.StaleSinceAnnotation, since) || changed
	}
	return changed
}

// count sets how many disruptions each budget allows, as the disruption controller does: of the pods that it selects, those
// that run and are not leaving may become fewer, down to spec.minAvailable. A budget without one has a fixed number.
func (b *Engine) count() {
	for _, k := range slices.Sorted(maps.Keys(b.objects)) {
		pdb, ok := b.objects[k].(*policyv1.PodDisruptionBudget)
		if !ok || pdb.Spec.MinAvailable == nil {
			continue
		}
		selector, err := metav1.LabelSelectorAsSelector(pdb.Spec.Selector)
		if err != nil {
			continue
		}
		healthy := int32(0)
		for _, o := range b.objects { // order: a sum
			if p, ok := o.(*v1.Pod); ok && p.Namespace == pdb.Namespace && selector.Matches(labels.Set(p.Labels)) && core.PodPhase(p) == cluster.Running {
				healthy++
			}
		}
		if allowed := max(0, healthy-pdb.Spec.MinAvailable.IntVal); allowed != pdb.Status.DisruptionsAllowed {
			pdb = pdb.DeepCopy()
			pdb.Status.DisruptionsAllowed = allowed
			b.objects[k] = pdb
			b.feed(b.tell, b.store, pdb)
		}
	}
}

// Usage sets what queues used of the cluster lately.
func (b *Engine) Usage(u cluster.UsageState) {
	if b.shards != nil && !b.past {
		return
	}
	b.usage = &u
	b.store.Apply(u)
}

// Use sets what of a node was measured to be in use; nil for nothing.
func (b *Engine) Use(node string, u *cluster.NodeUse) {
	if u == nil {
		delete(b.uses, node)
		b.store.Apply(cluster.ObjectGone{Kind: cluster.NodeUses, Key: node})
		return
	}
	if b.uses == nil {
		b.uses = map[string]*cluster.NodeUse{}
	}
	b.uses[node] = u
	b.measured(b.store)
}

// measured tells a store what was measured.
func (b *Engine) measured(s *cluster.Store) {
	for _, node := range slices.Sorted(maps.Keys(b.uses)) {
		s.Apply(cluster.ObjectState{Kind: cluster.NodeUses, Key: node, Object: b.uses[node]})
	}
}

// Freeze forbids for an hour that taker has giver evicted.
func (b *Engine) Freeze(taker, giver cluster.Key) {
	b.store.Freeze(taker, giver, cluster.InstantOf(b.now.Add(time.Hour)))
}

// Restart puts another scheduler in the place of this one: it knows what objects say, and nothing else.
func (b *Engine) Restart() {
	b.restart()
	b.tell = dialect.NewTranslator(b.reads)
	clear(b.postponed)
	for _, k := range slices.Sorted(maps.Keys(b.objects)) {
		b.feed(b.tell, b.store, b.objects[k])
	}
	if b.usage != nil {
		b.store.Apply(*b.usage)
	}
	b.measured(b.store)
}

// Decisions returns the bundles with evictions that took effect, oldest first, and forgets them.
func (b *Engine) Decisions() []engine.Bundle {
	out := b.taken
	b.taken = nil
	return out
}

// Holds returns the room that is promised, and the pods by UID.
func (b *Engine) Holds() ([]cluster.Hold, map[string]string) {
	snap := b.snapshot()
	names := map[string]string{}
	snap.EachPod(func(p *cluster.Pod) { names[p.UID] = fullName(p.Namespace, p.Name) })
	return snap.Holds, names
}
