package tenants

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/muster-scheduler/muster/api/kai/keys"
)

// Check looks at what takes time to be wrong: bindings that nothing explains, gangs that stay partial, statuses that stay
// behind. It is to be called about once a second.
func (a *Auditor) Check(now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.explain(now)
	a.gangs(now)
	a.statuses(now)
	a.protected(now)
}

// protected looks for pods that tenants made look as if nobody could evict them, without anybody being told: those of a
// subgroup that there is not, and those that turned non-preemptible beyond their queue's quota.
func (a *Auditor) protected(now time.Time) {
	fixed, told := map[string]int64{}, map[string]bool{}
	for _, h := range a.pods { // order: each by itself, and sums
		if !h.ours || h.node == "" || h.over || h.forced || a.bound[h.uid] {
			continue
		}
		g := a.groups[h.gang] // what it names since then does not count
		if g == nil {
			continue
		}
		if g.fixed {
			for name, q := range a.queues { // order: sums
				if q.Spec.Resources != nil && q.Spec.Resources.GPU.Quota >= 0 && a.in(h.queue, name) {
					fixed[name] += h.gpu
					told[name] = told[name] || g.told
				}
			}
		}
		switch {
		case g.gone || g.told || g.sets[h.set]:
			h.unknown = time.Time{}
		case h.unknown.IsZero():
			h.unknown = now
		case now.Sub(h.unknown) > partial:
			a.because(a.note("S6", h.String(), now, "it runs in no subgroup of its PodGroup and nobody is told: %q", h.set), h)
		}
	}
	for name, q := range a.queues { // order: each by itself
		over := q.Spec.Resources != nil && float64(fixed[name]) > q.Spec.Resources.GPU.Quota*1000 && fixed[name] > 0 && !told[name]
		switch since := a.beyond[name]; {
		case !over:
			delete(a.beyond, name)
		case since.IsZero():
			a.beyond[name] = now
		case now.Sub(since) > partial:
			a.note("S6", "queue "+name, now, "running pods became non-preemptible beyond its quota and nobody is told: %s GPUs of %g: %s", thousandths(fixed[name]), q.Spec.Resources.GPU.Quota, a.list(name))
		}
	}
}

// explain settles the doubts about bindings.
func (a *Auditor) explain(now time.Time) {
	a.waiting = slices.DeleteFunc(a.waiting, func(h *holder) bool {
		if now.Sub(h.doubted) < settle {
			return false
		}
		if g := a.groups[h.gang]; g != nil && g.turned.After(h.at.Add(-settle)) {
			h.fixed = h.recorded // it turned about when the pod was bound, and who decided may have known it otherwise
		}
		// A BindRequest says so, or the record of its gang; or it stands alone (ADR 18), and the write that gave it its node brought a bundle that it has to itself.
		decided := slices.Contains(a.chosen[string(h.uid)], h.node) || h.bundle != "" && a.brought[h.bundle] == 1
		switch {
		case h.made:
			if a.o.Enforce && a.o.Tenants[h.namespace] != nil {
				a.because(a.note("S8", h.String(), now, "a pod of ours was created on a node"), h)
			}
		case a.bound[h.uid]:
			h.forced = true
		case decided:
		case a.forgedFor[string(h.uid)]:
			h.forced = true
			a.because(a.note("S8", h.String(), now, "it was bound by a forged BindRequest"), h)
		case a.tried[h.uid]: // it may have been bound without an answer
			h.forced = true
		default:
			a.because(a.note("S1", h.String(), now, "it was bound to %s, and neither a BindRequest for this pod said so, nor a record of its gang, nor a bundle of its own: %v", h.node, a.chosen[string(h.uid)]), h)
		}
		for _, d := range h.doubts {
			if h.forced && d.promise != "S8" || d.promise == "S3" && a.excused(h) {
				continue
			}
			if d.queue != "" && a.remains(h, d.queue, now) <= d.limit {
				a.overlaps++
				continue
			}
			if d.beside != nil {
				sum := int64(0)
				for _, o := range d.beside { // without those of whom it is known by now that they were bound as preemptible
					if o.fixed {
						sum += o.gpu
					}
				}
				if !h.fixed || float64(sum) <= d.limit {
					continue
				}
			}
			if g := a.groups[h.gang]; d.evicted && g != nil && g.shifted.After(h.doubted.Add(-settle)) {
				continue // nobody's share protects from being moved
			}
			a.because(a.note(d.promise, h.String(), now, "%s", d.what), h)
		}
		h.doubts = nil
		return true
	})
}

// remains is what a queue holds of what it held when the pod was bound, in thousandths of GPUs: its victims may be evicted a
// moment after it is bound elsewhere.
func (a *Auditor) remains(h *holder, queue string, now time.Time) float64 {
	sum := h.gpu
	for _, o := range a.pods { // order: a sum
		if o != h && o.ours && o.node != "" && !o.over && !o.forced && !a.bound[o.uid] && !o.at.After(h.at) && a.in(o.queue, queue) &&
			!(o.leaving && o.until.Sub(now) <= brieflyLeaving) {
			sum += o.gpu
		}
	}
	return float64(sum)
}

// excused says whether something else than our decision explains that a node has too little room: one who went past us came
// there shortly before, or somebody lied about a pod's end.
func (a *Auditor) excused(h *holder) bool {
	for _, o := range a.pods { // order: any
		if o.node == h.node && a.disturbed[o.uid] {
			return true // for its kubelet it still runs
		}
		if o.node == h.node && (!o.ours || o.forced) && o.at.After(h.doubted.Add(-settle)) && o.at.Before(h.doubted.Add(settle)) {
			return true
		}
	}
	return false
}

// gangs looks for gangs of honest tenants that stay bound in part.
func (a *Auditor) gangs(now time.Time) {
	have := map[string]int{}
	for _, h := range a.pods { // order: counts
		if h.node != "" && slices.Contains(a.o.Honest, h.namespace) {
			have[h.member]++
		}
	}
	for key, g := range a.groups { // order: each by itself
		switch n := have[key]; {
		case n >= g.least:
			g.whole = true
		case n == 0 || g.whole:
			g.partial = time.Time{}
		case g.partial.IsZero():
			g.partial = now
		case now.Sub(g.partial) > partial:
			a.note("S2", key, now, "%d of at least %d members are bound for %s", n, g.least, now.Sub(g.partial).Round(time.Second))
		}
	}
}

// statuses compares what queues say they hold with what is on the nodes.
func (a *Auditor) statuses(now time.Time) {
	for name := range a.queues { // order: each by itself
		what := a.differs(name)
		since, known := a.unequal[name]
		switch {
		case what == "":
			if known {
				a.slowest = max(a.slowest, now.Sub(since))
			}
			delete(a.unequal, name)
		case !known:
			a.unequal[name] = now
		case now.Sub(since) > lag:
			if v := a.note("charge", "queue "+name, now, "%s, for %s: %s", what, now.Sub(since).Round(time.Second), a.list(name)); v != nil && a.evidence != nil {
				for ns, queues := range a.o.Tenants { // order: all are named
					if slices.Contains(queues, name) {
						v.Evidence = append(v.Evidence, a.evidence(ns+"/")...)
					}
				}
			}
		}
	}
}

// differs says how a queue's status differs from what is on the nodes; "" for not at all.
func (a *Auditor) differs(name string) string {
	truth, _, loose := a.held(name)
	said := milli(a.queues[name].Status.Allocated[keys.GPUResource])
	if d := said - truth; d > loose || d < -loose {
		return fmt.Sprintf("its status is not the truth: it says %s GPUs, pods bound for it hold %s", thousandths(said), thousandths(truth))
	}
	return ""
}

// Equal says which queues differ from what is on the nodes now; "" for none.
func (a *Auditor) Equal() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	var out []string
	for name := range a.queues { // order: sorted below
		if what := a.differs(name); what != "" {
			out = append(out, name+": "+what)
		}
	}
	slices.Sort(out)
	return strings.Join(out, "; ")
}

// Owed says whether a queue is owed so many whole GPUs, with what it holds already: they are free, or others hold them beyond
// their quotas. If not, why. Besides it returns what others hold beyond their quotas, in thousandths of GPUs.
func (a *Auditor) Owed(queue string, gpus int64) (why string, over int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	var total, entitled, other int64
	for _, n := range a.nodes { // order: a sum
		total += n.gpu
	}
	for name, q := range a.queues { // order: sums
		if q.Spec.Resources == nil || q.Spec.Resources.GPU.Quota < 0 || slices.ContainsFunc(a.leaves(), func(other string) bool { return other != name && a.in(other, name) }) {
			continue
		}
		quota := int64(q.Spec.Resources.GPU.Quota * 1000)
		held, _, _ := a.held(name)
		if name != queue {
			entitled += min(quota, held)
			over += max(0, held-quota)
		} else {
			gpus -= held / 1000
		}
	}
	for _, h := range a.pods { // order: a sum
		if h.node == "" || h.over {
			continue
		}
		switch {
		case !h.ours || h.forced || a.bound[h.uid] || a.queues[h.queue] == nil: // reservations of shared devices among them
			other += h.takes.gpu
		case h.leaving && h.until.Sub(a.latest) > brieflyLeaving: // nobody can have it sooner
			other += h.takes.gpu
		}
	}
	if total-entitled-other < gpus*1000 {
		return fmt.Sprintf("of %s GPUs %s are held within quotas and %s by others", thousandths(total), thousandths(entitled), thousandths(other)), over
	}
	for _, h := range a.pods { // order: any
		// One that is a gang by itself need not say so before it has a node.
		if _, hostile := a.o.Tenants[h.namespace]; hostile && h.ours && h.node == "" && !h.over && a.groups[h.member] == nil && a.in(h.asks, queue) {
			return "tenants' pods ask for room in its queue, and may", over
		}
	}
	for key, g := range a.groups { // order: any
		ns, _, _ := strings.Cut(key, "/")
		if _, hostile := a.o.Tenants[ns]; hostile && !g.gone && a.in(g.queue, queue) {
			return "tenants ask for room in its queue, and may", over
		}
	}
	return "", over
}

// OwedNode says whether the same queue is owed a whole node, and which: what is on it may be taken, because its queues hold so
// much beyond their quotas, with all of its gangs that are elsewhere too. "" for none. Of non-preemptible work only what is too
// much may be taken, the youngest first, and which that is is not reckoned here: a node with any counts as not owed.
func (a *Auditor) OwedNode(queue string) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	for name := range a.nodes { // order: any will do
		if a.takeable(name, queue) {
			return name
		}
	}
	return ""
}

func (a *Auditor) takeable(node, queue string) bool {
	gangs := map[string]bool{}
	for _, h := range a.pods { // order: all are asked
		if h.node != node || h.over || h.gpu == 0 && h.takes.gpu == 0 || h.namespace == keys.ReservationNamespace || a.in(h.queue, queue) {
			continue
		}
		if !h.ours || h.forced || a.bound[h.uid] || a.queues[h.queue] == nil || h.leaving {
			return false
		}
		if g := a.groups[h.gang]; h.fixed || h.recorded || g != nil && g.fixed {
			return false
		}
		gangs[h.gang] = true
	}
	for name, q := range a.queues { // order: all are asked
		if q.Spec.Resources == nil || q.Spec.Resources.GPU.Quota < 0 || a.in(queue, name) {
			continue
		}
		var goes int64
		for _, h := range a.pods { // order: a sum
			if h.node != "" && !h.over && gangs[h.gang] && a.in(h.queue, name) {
				goes += h.gpu
			}
		}
		if held, _, _ := a.held(name); goes > 0 && held-goes < int64(q.Spec.Resources.GPU.Quota*1000) {
			return false
		}
	}
	return true
}

// leaves are the queues without others below.
func (a *Auditor) leaves() (out []string) {
	for name := range a.queues { // order: a set
		leaf := true
		for _, q := range a.queues { // order: any
			leaf = leaf && q.Spec.ParentQueue != name
		}
		if leaf {
			out = append(out, name)
		}
	}
	return out
}

// Starved notes that an honest gang was owed room and did not get it.
func (a *Auditor) Starved(gang string, waited time.Duration, said string, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	v := a.note("S5", gang, now, "it is owed room and has waited %s; it is told: %s; who holds GPUs: %s", waited.Round(time.Second), said, a.list(""))
	if v != nil && a.evidence != nil {
		for ns := range a.o.Tenants { // order: all are named
			v.Evidence = append(v.Evidence, a.evidence(ns+"/")...)
		}
	}
}

// Blame notes a violation that somebody else found.
func (a *Auditor) Blame(promise, object, format string, args ...any) {
	a.blame(promise, object, time.Now(), format, args...)
}

// Figures are what was looked at.
func (a *Auditor) Figures() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return fmt.Sprintf("%d bindings audited, %d of them beyond a limit only until others have left, the slowest status was behind for %s", a.binds, a.overlaps, a.slowest.Round(100*time.Millisecond))
}
