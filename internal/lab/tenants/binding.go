package tenants

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/muster-scheduler/muster/api/kai/keys"
)

// placed takes in that a pod got its node.
func (a *Auditor) placed(h *holder, p *corev1.Pod, now time.Time) {
	h.node, h.at, h.doubted = p.Spec.NodeName, now, now
	h.takes = room{pods: 1}
	for i := range p.Spec.Containers {
		r := p.Spec.Containers[i].Resources.Requests
		h.takes.add(room{gpu: milli(r[keys.GPUResource]), cpu: milli(r[corev1.ResourceCPU]), memory: value(r[corev1.ResourceMemory])}, 1)
	}
	h.gpu = h.takes.gpu
	if h.gpu == 0 {
		devices := int64(1)
		if n, err := strconv.ParseInt(p.Annotations[keys.GPUFractionDevicesAnnotation], 10, 64); err == nil && n > 0 && n <= 1024 {
			devices = n
		}
		part, memory := p.Annotations[keys.GPUFractionAnnotation], p.Annotations[keys.GPUMemoryAnnotation]
		if _, given, ok := strings.Cut(p.Annotations[keys.ChargedAsAnnotation], keys.ChargedShare); ok { // what it was given, if it asks otherwise since
			n, of, _ := strings.Cut(given, "x")
			devices, _ = strconv.ParseInt(n, 10, 64)
			if part, memory = of, ""; strings.HasSuffix(of, "Mi") {
				part, memory = "", strings.TrimSuffix(of, "Mi")
			}
		}
		if f, err := strconv.ParseFloat(part, 64); err == nil && f > 0 && f < 1 {
			h.gpu, h.loose = devices*int64(math.Round(f*1000)), 10*devices
		} else if n, err := strconv.ParseInt(memory, 10, 64); err == nil && n > 0 {
			const each = 81920 // MiB of a lab's GPU
			h.gpu, h.loose = devices*min(1000, n*1000/each), 1000*devices
		}
	}
	h.charge = p.Annotations[a.o.Charge]
	h.recorded = strings.Contains(p.Annotations[keys.ChargedAsAnnotation], keys.ChargedFixed)
	h.gang = h.member
	if parts := strings.Split(h.charge, "/"); len(parts) > 1 && p.Namespace+"/"+parts[1] == h.former && now.Sub(h.changed) < settle {
		h.gang = h.former // it went to another gang between the decision and its Binding
	}
	g := a.groups[h.gang]
	if g != nil {
		h.queue, h.fixed = g.queue, g.fixed
	}
	a.binds++
	if !h.ours {
		return
	}
	if h.made {
		h.forced = true
	}
	a.waiting = append(a.waiting, h)
	suspect := func(promise, format string, args ...any) {
		h.doubts = append(h.doubts, doubt{promise: promise, what: fmt.Sprintf(format, args...)})
	}
	if used, has := a.used(h.node), a.nodes[h.node]; used.gpu > has.gpu || used.cpu > has.cpu || used.memory > has.memory || used.pods > has.pods {
		suspect("S3", "bound where there is too little room: on %s %+v are taken then of %+v", h.node, used, has)
	}
	if allowed, is := a.o.Tenants[h.namespace]; is && a.o.Authorize && h.queue != keys.DefaultQueue && h.queue != "" && !slices.Contains(allowed, h.queue) {
		suspect("S8", "bound in a queue that its tenant may not use: %s", h.queue)
	}
	if g == nil || now.Sub(g.moved) < settle {
		return
	}
	if q, _, _ := strings.Cut(h.charge, "/"); q != "" && q != h.queue {
		suspect("charge", "bound for one queue, charged to another: %q, %q", h.queue, h.charge)
	}
	for q := a.queues[h.queue]; q != nil; q = a.queues[q.Spec.ParentQueue] {
		if q.Spec.Resources == nil {
			continue
		}
		all, fixed, _ := a.held(q.Name)
		if l := q.Spec.Resources.GPU.Limit; l >= 0 && h.gpu > 0 && float64(all) > l*1000 {
			promise, soon, late := "S4", int64(0), int64(0)
			for _, o := range a.pods { // order: sums
				switch {
				case !o.ours || o.node == "" || o.over || !o.leaving || o.forced || a.bound[o.uid] || !a.in(o.queue, q.Name):
				case o.until.Sub(now) > brieflyLeaving:
					late += o.gpu
				default:
					soon += o.gpu
				}
			}
			switch {
			case float64(all-soon) <= l*1000: // it gives back what it holds too much
				a.overlaps++
				continue
			case float64(all-soon-late) <= l*1000:
				promise = "S4, by pods that are leaving" // which hold their room all the same, for as long as their grace
			}
			suspect(promise, "bound beyond a limit: queue %s holds %s GPUs of %g then: %s", q.Name, thousandths(all), l, a.list(q.Name))
			d := &h.doubts[len(h.doubts)-1]
			d.queue, d.limit = q.Name, l*1000
		}
		if l := q.Spec.Resources.GPU.Quota; l >= 0 && h.fixed && h.gpu > 0 && float64(fixed) > l*1000 {
			suspect("S4", "bound beyond a quota as non-preemptible: of queue %s such pods hold %s GPUs of %g then: %s", q.Name, thousandths(fixed), l, a.list(q.Name))
			d := &h.doubts[len(h.doubts)-1]
			d.limit = l * 1000
			for _, o := range a.pods { // order: a sum is made of them
				if a.countsFixed(o, q.Name) {
					d.beside = append(d.beside, o)
				}
			}
		}
	}
}

func thousandths(n int64) string { return strconv.FormatFloat(float64(n)/1000, 'f', -1, 64) }

// used is what pods take of a node.
func (a *Auditor) used(node string) (sum room) {
	for _, h := range a.pods { // order: a sum
		if h.node == node && !h.over {
			sum.add(h.takes, 1)
		}
	}
	return sum
}

// in says whether a queue is another or below it.
func (a *Auditor) in(queue, above string) bool {
	for range 100 { // deeper trees are none
		if queue == above {
			return true
		}
		q := a.queues[queue]
		if q == nil || queue == "" {
			return false
		}
		queue = q.Spec.ParentQueue
	}
	return false
}

// held is what pods hold that were bound for a queue or one below it, in thousandths of GPUs; what of it non-preemptible ones
// do; and by how much it may be wrong.
func (a *Auditor) held(queue string) (all, fixed, loose int64) {
	for _, h := range a.pods { // order: sums
		if h.ours && h.node != "" && !h.over && a.in(h.queue, queue) {
			if h.forced || a.bound[h.uid] { // whose charge that is may be argued
				loose += h.gpu + h.loose
				continue
			}
			all += h.gpu
			loose += h.loose
			if a.countsFixed(h, queue) {
				fixed += h.gpu
			}
		}
	}
	return all, fixed, loose
}

// countsFixed says whether what a pod holds counts as non-preemptible for a queue.
func (a *Auditor) countsFixed(h *holder, queue string) bool {
	return h.fixed && h.ours && h.node != "" && !h.over && !h.forced && !a.bound[h.uid] && a.in(h.queue, queue)
}

// list names those that hold GPUs of a queue; "" for all.
func (a *Auditor) list(queue string) string {
	var out []string
	for _, h := range a.pods { // order: sorted below
		if h.node != "" && !h.over && (h.gpu > 0 || h.takes.gpu > 0) && (queue == "" || h.ours && a.in(h.queue, queue)) {
			leaving, by := "", ""
			if h.leaving {
				leaving = " leaving"
			}
			if h.forced {
				by = " (not bound by us)"
			}
			out = append(out, fmt.Sprintf("%s on %s holds %s for %q%s%s {%s}", h, h.node, thousandths(max(h.gpu, h.takes.gpu)), h.queue, leaving, by, h.marks))
		}
	}
	slices.Sort(out)
	return "\n        " + strings.Join(out, "\n        ")
}

// because adds the writes behind a violation; nil is one that is known already.
func (a *Auditor) because(v *Violation, h *holder) {
	if v != nil && a.evidence != nil {
		v.Evidence = append(v.Evidence, a.evidence(h.String())...)
	}
}
