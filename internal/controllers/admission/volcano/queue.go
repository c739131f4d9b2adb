package volcano

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/muster-scheduler/muster/api/volcano/keys"
	"github.com/muster-scheduler/muster/api/volcano/scheduling/v1beta1"
)

// Forest is the tree of queues as it is. A queue whose parent is not said is below root. Its zero value has none.
type Forest struct {
	queues   map[string]*v1beta1.Queue
	children map[string][]*v1beta1.Queue // by parent, sorted by name
}

// NewForest is the tree of these queues.
func NewForest(queues ...*v1beta1.Queue) Forest {
	f := Forest{map[string]*v1beta1.Queue{}, map[string][]*v1beta1.Queue{}}
	for _, q := range queues {
		f.queues[q.Name] = q
	}
	for _, name := range slices.Sorted(maps.Keys(f.queues)) {
		up := parentOf(f.queues[name])
		f.children[up] = append(f.children[up], f.queues[name])
	}
	return f
}

// QueueRules are Volcano's settings of what may be done with queues.
type QueueRules struct {
	// MaxDepth is how many queues there may be one below the other, root not counted; 1 or more.
	MaxDepth int
	// ProtectRoot keeps capability, deserved and guarantee of root as they are.
	ProtectRoot bool
	// KeepBusy refuses to delete a queue while pods run in it.
	KeepBusy bool
}

// DefaultQueueRules are Volcano's.
func DefaultQueueRules() QueueRules { return QueueRules{MaxDepth: 5, ProtectRoot: true} }

// parentOf is the queue above; root has none.
func parentOf(q *v1beta1.Queue) string {
	if q.Name == keys.RootQueue {
		return ""
	}
	return cmp.Or(q.Spec.Parent, keys.RootQueue)
}

// below are the queues right below one, by name.
func (f Forest) below(name string) []*v1beta1.Queue { return f.children[name] }

// with is the tree as it is with q in it.
func (f Forest) with(q *v1beta1.Queue) Forest {
	all := maps.Clone(f.queues)
	if all == nil {
		all = map[string]*v1beta1.Queue{}
	}
	all[q.Name] = q
	return NewForest(slices.Collect(maps.Values(all))...)
}

// takesJobs checks that a Job may be in the queue of that name. One of which nobody has said anything yet is open.
func (f Forest) takesJobs(name string, at *field.Path) field.ErrorList {
	q := f.queues[name]
	switch {
	case name == keys.RootQueue:
		return field.ErrorList{field.Forbidden(at, "no Job is in root: a queue below it is needed")}
	case q == nil:
		return field.ErrorList{field.NotFound(at, brief(name))}
	case !open(q):
		return field.ErrorList{field.Invalid(at, brief(name), fmt.Sprintf("its state is %s, and work is taken only by a queue that is Open", q.Status.State))}
	}
	if below := f.below(name); len(below) > 0 {
		return field.ErrorList{field.Invalid(at, brief(name), fmt.Sprintf("has queues below it, such as %s: a Job is in a queue without any", brief(below[0].Name)))}
	}
	return nil
}

func open(q *v1beta1.Queue) bool {
	return q.Status.State == "" || q.Status.State == v1beta1.QueueStateOpen
}

// DefaultQueue returns what a Queue that is to be created does not say itself. To apply it and ask again yields nothing.
func DefaultQueue(q *v1beta1.Queue) (out []Fill) {
	lacksSpec := q.Spec.Reclaimable == nil && q.Spec.Weight == 0 // perhaps there is none to put it into
	switch {
	case lacksSpec && equality.Semantic.DeepEqual(q.Spec, v1beta1.QueueSpec{}):
		out = append(out, Fill{"/spec", map[string]any{"reclaimable": true, "weight": 1}})
	default:
		if q.Spec.Reclaimable == nil {
			out = append(out, Fill{"/spec/reclaimable", true})
		}
		if q.Spec.Weight == 0 {
			out = append(out, Fill{"/spec/weight", 1})
		}
	}
	path, weights := q.Annotations[keys.Hierarchy], q.Annotations[keys.HierarchyWeights]
	if path != "" && weights != "" && path != keys.RootQueue && !strings.HasPrefix(path, keys.RootQueue+"/") {
		out = append(out,
			Fill{"/metadata/annotations/" + escape(keys.Hierarchy), keys.RootQueue + "/" + path},
			Fill{"/metadata/annotations/" + escape(keys.HierarchyWeights), "1/" + weights})
	}
	return out
}

// escape writes a key as a step of a JSON pointer.
func escape(key string) string { return strings.NewReplacer("~", "~0", "/", "~1").Replace(key) }

// ValidateQueue returns what is wrong with q, which is to be created or to replace old (nil for a creation), among the queues that there are. What q says as old did is not judged again: a queue from before
// the rules may be changed otherwise. busy says whether pods run in a queue.
func (r QueueRules) ValidateQueue(q, old *v1beta1.Queue, others Forest, busy func(queue string) (bool, error)) (wrong field.ErrorList, err error) {
	spec := field.NewPath("spec")
	same := old != nil && equality.Semantic.DeepEqual(amountsOf(q), amountsOf(old))
	if !same {
		wrong = append(wrong, resources(q, spec)...)
	}
	if s := q.Status.State; (old == nil || old.Status.State != s) && s != "" && s != v1beta1.QueueStateOpen && s != v1beta1.QueueStateClosed {
		wrong = append(wrong, field.NotSupported(field.NewPath("status", "state"), s, []v1beta1.QueueState{v1beta1.QueueStateOpen, v1beta1.QueueStateClosed}))
	}
	if old == nil || pathOf(q) != pathOf(old) {
		wrong = append(wrong, hierarchy(q, others)...)
	}
	if q.Name == keys.RootQueue {
		if r.ProtectRoot && old != nil {
			for _, name := range changed(&q.Spec, &old.Spec) {
				if name == "capability" || name == "deserved" || name == "guarantee" {
					wrong = append(wrong, field.Forbidden(spec.Child(name), "of root must not change"))
				}
			}
		}
		return few(wrong), nil
	}
	moved := old == nil || parentOf(old) != parentOf(q)
	if moved {
		broken, err := r.parent(q, others, busy)
		if err != nil {
			return nil, err
		}
		if wrong = append(wrong, broken...); len(broken) > 0 {
			return few(wrong), nil // what is above it is not known
		}
	}
	if moved || !same {
		wrong = append(wrong, others.with(q).sums(q, spec)...)
	}
	return few(wrong), nil
}

// amountsOf are a queue's resources.
func amountsOf(q *v1beta1.Queue) [3]corev1.ResourceList {
	return [3]corev1.ResourceList{q.Spec.Capability, q.Spec.Deserved, q.Spec.Guarantee.Resource}
}

// pathOf are a queue's annotations of hierarchies.
func pathOf(q *v1beta1.Queue) [2]string {
	return [2]string{q.Annotations[keys.Hierarchy], q.Annotations[keys.HierarchyWeights]}
}

// resources checks the queue's resources among each other.
func resources(q *v1beta1.Queue, spec *field.Path) (out field.ErrorList) {
	capability, deserved, guarantee := spec.Child("capability"), spec.Child("deserved"), spec.Child("guarantee", "resource")
	for _, list := range []struct {
		at  *field.Path
		all corev1.ResourceList
	}{{capability, q.Spec.Capability}, {deserved, q.Spec.Deserved}, {guarantee, q.Spec.Guarantee.Resource}} {
		for _, name := range sorted(list.all) {
			if x := list.all[name]; x.Sign() < 0 {
				out = append(out, field.Invalid(list.at.Key(brief(string(name))), x.String(), "must not be negative"))
			}
		}
	}
	for _, name := range sorted(q.Spec.Guarantee.Resource) {
		x, due := q.Spec.Guarantee.Resource[name], q.Spec.Deserved[name]
		if x.Cmp(due) > 0 {
			out = append(out, field.Invalid(guarantee.Key(brief(string(name))), x.String(), fmt.Sprintf("must be at most what is deserved, which is %s", due.String())))
		}
	}
	for _, name := range sorted(q.Spec.Deserved) {
		x := q.Spec.Deserved[name]
		if most, bounded := q.Spec.Capability[name]; bounded && x.Cmp(most) > 0 {
			out = append(out, field.Invalid(deserved.Key(brief(string(name))), x.String(), fmt.Sprintf("must be at most the capability, which is %s", most.String())))
		}
	}
	return out
}

// hierarchy checks the annotations of hierarchies.
func hierarchy(q *v1beta1.Queue, others Forest) (out field.ErrorList) {
	at := field.NewPath("metadata", "annotations")
	path, weights := q.Annotations[keys.Hierarchy], q.Annotations[keys.HierarchyWeights]
	if path == "" && weights == "" {
		return nil
	}
	steps, numbers := strings.Split(path, "/"), strings.Split(weights, "/")
	if len(steps) != len(numbers) {
		out = append(out, field.Invalid(at.Key(keys.HierarchyWeights), brief(weights), fmt.Sprintf("has %d weights, and the path in %s has %d steps", len(numbers), keys.Hierarchy, len(steps))))
	}
	for _, text := range numbers {
		if w, err := strconv.ParseFloat(text, 64); err != nil || !(w > 0) || math.IsInf(w, 0) {
			out = append(out, field.Invalid(at.Key(keys.HierarchyWeights), brief(text), "must be a number above 0"))
			break
		}
	}
	for _, name := range slices.Sorted(maps.Keys(others.queues)) {
		if other := others.queues[name].Annotations[keys.Hierarchy]; name != q.Name && path != "" && strings.HasPrefix(other, path+"/") {
			out = append(out, field.Invalid(at.Key(keys.Hierarchy), brief(path), fmt.Sprintf("leads on to Queue %s, which is %s: a queue has a path that does not", brief(name), brief(other))))
			break
		}
	}
	return out
}

// parent checks the queue that q hangs below anew.
func (r QueueRules) parent(q *v1beta1.Queue, others Forest, busy func(string) (bool, error)) (field.ErrorList, error) {
	at, name := field.NewPath("spec", "parent"), parentOf(q)
	if name == keys.RootQueue {
		return r.depth(q, others, at), nil
	}
	if name == q.Name {
		return field.ErrorList{field.Invalid(at, brief(name), "a queue cannot be its own parent")}, nil
	}
	if others.queues[name] == nil {
		return field.ErrorList{field.NotFound(at, brief(name))}, nil
	}
	if wrong := r.depth(q, others, at); len(wrong) > 0 {
		return wrong, nil
	}
	if len(others.below(name)) > 0 {
		return nil, nil
	}
	runs, err := busy(name)
	if err != nil || !runs {
		return nil, err
	}
	return field.ErrorList{field.Invalid(at, brief(name), "pods run in it: a queue that has queues below it has no pods of its own")}, nil
}

// depth checks how deep the tree is below root with q in it: above it, and with all that is below it.
func (r QueueRules) depth(q *v1beta1.Queue, others Forest, at *field.Path) field.ErrorList {
	all := others.with(q)
	above, seen := 0, map[string]bool{}
	for one := q; one != nil && one.Name != keys.RootQueue; one = all.queues[parentOf(one)] {
		if seen[one.Name] {
			return field.ErrorList{field.Invalid(at, brief(parentOf(q)), "makes a loop of parents")}
		}
		seen[one.Name] = true
		above++
	}
	deepest := 0
	for level := all.below(q.Name); len(level) > 0; deepest++ {
		var next []*v1beta1.Queue
		for _, one := range level {
			next = append(next, all.below(one.Name)...)
		}
		level = next
	}
	if above+deepest > r.MaxDepth {
		return field.ErrorList{field.Invalid(at, brief(parentOf(q)), fmt.Sprintf("makes %d queues one below the other; at most %d are allowed", above+deepest, r.MaxDepth))}
	}
	return nil
}

// sums checks the queue's resources against those above, beside and below it. Between root and those below it nothing is checked.
func (f Forest) sums(q *v1beta1.Queue, spec *field.Path) (out field.ErrorList) {
	for _, name := range sorted(q.Spec.Capability) {
		x := q.Spec.Capability[name]
		seen := map[string]bool{q.Name: true}
		for up := f.queues[parentOf(q)]; up != nil && up.Name != keys.RootQueue && !seen[up.Name]; up = f.queues[parentOf(up)] {
			seen[up.Name] = true
			most, bounded := up.Spec.Capability[name]
			if !bounded {
				continue
			}
			if x.Cmp(most) > 0 {
				out = append(out, field.Invalid(spec.Child("capability").Key(brief(string(name))), x.String(), fmt.Sprintf("must be at most that of Queue %s above it, which is %s", brief(up.Name), most.String())))
			}
			break
		}
	}
	if up := f.queues[parentOf(q)]; up != nil && up.Name != keys.RootQueue {
		out = append(out, f.shared(up, q, spec, fmt.Sprintf("with those of the queues beside it is %%s; Queue %s above them has %%s", brief(up.Name)))...)
	}
	if q.Name != keys.RootQueue && len(f.below(q.Name)) > 0 {
		out = append(out, f.shared(q, q, spec, "is below the sum of the queues below it, %s: it has %s")...)
	}
	level, seen := f.below(q.Name), map[string]bool{q.Name: true}
	for len(level) > 0 {
		var next []*v1beta1.Queue
		for _, one := range level {
			if seen[one.Name] {
				continue
			}
			seen[one.Name] = true
			for _, name := range sorted(one.Spec.Capability) {
				x := one.Spec.Capability[name]
				if most, bounded := q.Spec.Capability[name]; bounded && x.Cmp(most) > 0 {
					out = append(out, field.Invalid(spec.Child("capability").Key(brief(string(name))), most.String(), fmt.Sprintf("must be at least that of Queue %s below it, which is %s", brief(one.Name), x.String())))
				}
			}
			next = append(next, f.below(one.Name)...)
		}
		level = next
	}
	return out
}

// shared checks that a queue has what those right below it are promised together, when q, which is it or one of those, is written. rule is a sentence about the sum and what it has.
func (f Forest) shared(up, q *v1beta1.Queue, spec *field.Path, rule string) (out field.ErrorList) {
	for _, list := range []struct {
		at *field.Path
		of func(*v1beta1.Queue) corev1.ResourceList
	}{
		{spec.Child("guarantee", "resource"), func(q *v1beta1.Queue) corev1.ResourceList { return q.Spec.Guarantee.Resource }},
		{spec.Child("deserved"), func(q *v1beta1.Queue) corev1.ResourceList { return q.Spec.Deserved }},
	} {
		sum := corev1.ResourceList{}
		for _, one := range f.below(up.Name) {
			for name, x := range list.of(one) { // order: sums
				total := sum[name]
				total.Add(x)
				sum[name] = total
			}
		}
		for _, name := range sorted(sum) {
			total, have := sum[name], list.of(up)[name]
			if total.Cmp(have) > 0 {
				out = append(out, field.Invalid(list.at.Key(brief(string(name))), amountOf(list.of(q), name), fmt.Sprintf(rule, total.String(), have.String())))
			}
		}
	}
	return out
}

func amountOf(list corev1.ResourceList, name corev1.ResourceName) string {
	x, said := list[name]
	if !said {
		x = resource.Quantity{}
	}
	return x.String()
}

// sorted are the names of a list.
func sorted(list corev1.ResourceList) []corev1.ResourceName { return slices.Sorted(maps.Keys(list)) }

// ValidateQueueDeletion returns why a queue must not be deleted.
func (r QueueRules) ValidateQueueDeletion(name string, all Forest, busy func(queue string) (bool, error)) (wrong field.ErrorList, err error) {
	at := field.NewPath("metadata", "name")
	if name == keys.RootQueue || name == keys.DefaultQueue {
		return field.ErrorList{field.Forbidden(at, "the queues root and default must not be deleted")}, nil
	}
	if below := all.below(name); len(below) > 0 {
		wrong = append(wrong, field.Forbidden(at, fmt.Sprintf("has queues below it, such as %s", brief(below[0].Name))))
	}
	if r.KeepBusy {
		runs, err := busy(name)
		if err != nil {
			return nil, err
		}
		if runs {
			wrong = append(wrong, field.Forbidden(at, "pods run in it"))
		}
	}
	return wrong, nil
}
