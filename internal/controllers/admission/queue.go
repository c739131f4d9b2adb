package admission

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	v2 "github.com/muster-scheduler/muster/api/scheduling/v2"
	"github.com/muster-scheduler/muster/internal/dialect/kai"
)

// Forest is the tree of queues as it is: by name.
type Forest map[string]*v2.Queue

// children are the names of the queues right below one, sorted.
func (f Forest) children(name string) (out []string) {
	for n, q := range f { // order: sorted below
		if q.Spec.ParentQueue == name && n != name {
			out = append(out, n)
		}
	}
	slices.Sort(out)
	return out
}

// ValidateQueue returns what is wrong with q, which is to be created or to replace old (nil for a creation), among the queues
// that there are, and what is allowed and hardly meant. What can be seen without the others is the API server's to judge: see
// PolicyQueues.
//
// A parent may be missing: manifests come in any order.
func (r *Rules) ValidateQueue(q, old *v2.Queue, others Forest) (wrong field.ErrorList, warnings []string) {
	at := field.NewPath("spec", "parentQueue")
	if old == nil || old.Spec.ParentQueue != q.Spec.ParentQueue {
		if path := loop(q, others); path != nil {
			wrong = append(wrong, field.Invalid(at, brief(q.Spec.ParentQueue), "makes a loop: "+chainText(path)))
		}
	}
	if p := q.Spec.ParentQueue; p != "" && p != q.Name && others[p] == nil {
		warnings = append(warnings, fmt.Sprintf("%s: there is no Queue %q yet; until there is, nothing of this queue is scheduled", at, brief(p)))
	}
	if _, problem := kai.Queue(q); problem != "" {
		warnings = append(warnings, problem)
	}
	if r.Quotas {
		warnings = append(warnings, quotas(q, others)...)
	}
	for i := range warnings {
		warnings[i] = short(warnings[i])
	}
	return wrong, warnings
}

// loop is the way from q up to q; nil if there is none.
func loop(q *v2.Queue, others Forest) []string {
	path := []string{q.Name}
	seen := map[string]bool{q.Name: true}
	for at := q.Spec.ParentQueue; at != ""; {
		path = append(path, at)
		if at == q.Name {
			return path
		}
		p := others[at]
		if p == nil || seen[at] { // a loop of others is not this queue's doing
			return nil
		}
		seen[at] = true
		at = p.Spec.ParentQueue
	}
	return nil
}

// chainText writes a way through the tree, leaving out the middle of a long one.
func chainText(path []string) string {
	const most = 8
	if len(path) > most {
		path = slices.Concat(path[:most/2], []string{"…"}, path[len(path)-most/2:])
	}
	return strings.Join(path, " -> ")
}

// quotas compares a queue's quotas with its parent's, and those of its children with its own. Unlimited is above everything.
func quotas(q *v2.Queue, others Forest) (out []string) {
	if p := others[q.Spec.ParentQueue]; p != nil {
		if p.Spec.Resources == nil {
			out = append(out, fmt.Sprintf("spec.parentQueue: Queue %q has no resources", p.Name))
		} else if q.Spec.Resources != nil {
			siblings := []*v2.Queue{q}
			for _, name := range others.children(p.Name) {
				if name != q.Name {
					siblings = append(siblings, others[name])
				}
			}
			out = append(out, beyond(p, siblings)...)
		}
	}
	var below []*v2.Queue
	for _, name := range others.children(q.Name) {
		below = append(below, others[name])
	}
	if q.Spec.Resources != nil && len(below) > 0 {
		out = append(out, beyond(q, below)...)
	}
	return out
}

// beyond says for which resources children have more quota than their parent: the first of them alone, or all together.
func beyond(parent *v2.Queue, children []*v2.Queue) (out []string) {
	for _, r := range []struct {
		name string
		of   func(*v2.QueueResources) float64
	}{
		{"gpu", func(r *v2.QueueResources) float64 { return r.GPU.Quota }},
		{"cpu", func(r *v2.QueueResources) float64 { return r.CPU.Quota }},
		{"memory", func(r *v2.QueueResources) float64 { return r.Memory.Quota }},
	} {
		have := r.of(parent.Spec.Resources)
		if have == v2.Unlimited {
			continue
		}
		sum, unlimited := 0.0, ""
		for _, c := range children {
			if c.Spec.Resources == nil {
				continue
			}
			x := r.of(c.Spec.Resources)
			if x == v2.Unlimited && unlimited == "" {
				unlimited = c.Name
			}
			sum += max(0, x)
		}
		switch at := "spec.resources." + r.name + ".quota"; {
		case unlimited != "":
			out = append(out, fmt.Sprintf("%s: Queue %q is without bound, its parent %q has %g", at, unlimited, parent.Name, have))
		case sum > have:
			out = append(out, fmt.Sprintf("%s: the queues below %q have %g together, it has %g", at, parent.Name, sum, have))
		}
	}
	return out
}

// maxWarning bounds a warning, as the API server does: it cuts longer ones and drops them all beyond 4 KiB together.
const maxWarning = 240

// short cuts a warning.
func short(s string) string {
	if len(s) > maxWarning {
		return strings.ToValidUTF8(s[:maxWarning], "") + "…"
	}
	return s
}

// Missed warns of what waits once a queue is deleted: what is in the queues below it, and PodGroups that name it (the first few of
// them); nil if nobody misses it. The deletion itself is nobody's to refuse: manifests go in any order, as they come.
func Missed(name string, others Forest, groups []string, more bool) (warnings []string) {
	list := func(names []string, more bool) string {
		const most = 3
		if len(names) > most {
			names, more = names[:most], true
		}
		text := strings.Join(names, ", ")
		if more {
			text += " and others"
		}
		return text
	}
	if below := others.children(name); len(below) > 0 {
		warnings = append(warnings, short("nothing more is scheduled in the queues below "+brief(name)+" until it is back, or they have another parent: "+list(below, false)))
	}
	if len(groups) > 0 {
		warnings = append(warnings, short("PodGroups name queue "+brief(name)+"; what of them waits, waits until it is back, what runs can be reclaimed: "+list(groups, more)))
	}
	return warnings
}
