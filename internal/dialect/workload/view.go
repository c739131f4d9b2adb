package workload

import (
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// view is how a pod's owners look to the rule that counts.
type view struct {
	rule *Rule
	// definition is the Karta definition that stands in for a row, if any.
	definition *Definition
	self       Object
	// owners are the pod's, or the pod itself where it has none. last is the top owner's index, at the subject's.
	owners   []Object
	last, at int
	// subject is the owner that stands for the gang, with what it inherits; facts is whose fields are read.
	subject, facts *Object
	// content is the index of the owner that must bring its Content, or -1.
	content int
}

// view finds the rule and the objects that have a part in it.
func (t *Table) view(pod *corev1.Pod, owners []Object, define func(schema.GroupVersionKind) *Definition) *view {
	v := &view{self: FromPod(pod), owners: owners, content: -1}
	if len(owners) == 0 {
		v.owners = []Object{v.self}
	}
	v.last = len(v.owners) - 1
	v.rule = t.Rule(v.owners[v.last].GVK)
	for v.rule.Skip {
		if v.last == 0 {
			// The pod itself is below the wrapper.
			v.owners = append([]Object{v.self}, v.owners...)
			v.rule = t.Rule(v.self.GVK)
			break
		}
		v.last--
		v.rule = t.Rule(v.owners[v.last].GVK)
	}
	if define != nil && t.row(v.owners[v.last].GVK) == nil {
		v.definition = define(v.owners[v.last].GVK)
	}
	v.at = v.last
	switch v.rule.Subject {
	case OwnerBelowTop:
		if v.last > 0 {
			v.at--
		} else {
			v.at = -1
		}
	case OwnerOfKind:
		if i := v.ofKind(v.rule.Of); i >= 0 {
			v.at = i
		}
	}
	facts := v.at
	if v.rule.Facts != (schema.GroupKind{}) {
		if facts = v.ofKind(v.rule.Facts); facts < 0 {
			v.rule, v.at, facts = t.rest, 0, 0
		}
	}
	if v.at < 0 {
		v.subject, v.facts, v.last, v.at = &v.self, &v.self, 0, 0
		v.owners = append([]Object{v.self}, v.owners...)
		return v
	}
	v.subject = v.inherited(v.at, v.last)
	v.facts = &v.owners[facts]
	if v.rule.NeedsContent() || v.definition != nil {
		v.content = facts
	}
	return v
}

// ofKind is the index of the owner of a kind that is nearest to the top, or -1.
func (v *view) ofKind(kind schema.GroupKind) int {
	for i := v.last; i >= 0; i-- {
		if v.owners[i].GVK.GroupKind() == kind {
			return i
		}
	}
	return -1
}

// inherited is an owner with the labels and annotations that it lacks and an owner above it has. Owners between the subject
// and the top count only where the rule takes the subject from among them.
func (v *view) inherited(at, last int) *Object {
	from := last + 1
	if v.rule.Subject == OwnerOfKind {
		from = at + 1
	}
	if from >= len(v.owners) {
		return &v.owners[at]
	}
	o := v.owners[at]
	for _, above := range v.owners[from:] {
		o.Labels = lacking(o.Labels, above.Labels)
		o.Annotations = lacking(o.Annotations, above.Annotations)
	}
	return &o
}

// lacking adds what a map lacks to a copy of it.
func lacking(is, more map[string]string) map[string]string {
	if len(more) == 0 {
		return is
	}
	out := make(map[string]string, len(is)+len(more))
	maps.Copy(out, more)
	maps.Copy(out, is)
	return out
}

// Content is the index of the owner whose fields Group will read, or -1 when metadata is enough.
func (t *Table) Content(pod *corev1.Pod, owners []Object, define func(schema.GroupVersionKind) *Definition) int {
	if len(owners) == 0 {
		return -1
	}
	v := t.view(pod, owners, define)
	return v.content - (len(v.owners) - len(owners))
}

// Named returns the object that the pod names as its gang's, which Group wants as a further, last owner. ok is false for
// workloads of other kinds. The error is an *Invalid.
func (t *Table) Named(pod *corev1.Pod, owners []Object) (kind schema.GroupVersionKind, name string, ok bool, err error) {
	if len(owners) == 0 {
		return kind, "", false, nil
	}
	v := t.view(pod, owners, nil)
	n := v.rule.Named
	if n == nil {
		return kind, "", false, nil
	}
	name = pod.Labels[n.Label]
	if name == "" {
		return kind, "", false, invalidField(&v.self, "label "+n.Label, "must name the pod's %s", n.GVK.Kind)
	}
	return n.GVK, name, true, nil
}

// Part tells pods of one nearest owner apart that are in different gangs. It is "" for most.
func (t *Table) Part(pod *corev1.Pod) string {
	if len(pod.OwnerReferences) == 0 {
		return ""
	}
	part := ""
	for _, label := range t.partLabels {
		if v := pod.Labels[label]; v != "" {
			part += label + "=" + v + ","
		}
	}
	ref := pod.OwnerReferences[0]
	group, version, _ := strings.Cut(ref.APIVersion, "/")
	if t.Rule(schema.GroupVersionKind{Group: group, Version: version, Kind: ref.Kind}).PodPrefix {
		part += podPrefix(pod)
	}
	return part
}

// Decisive says whether the minimum of a gang may depend on the pod's being there or being placed, so that its coming, its
// binding and its end are reasons to look at the gang again.
func (t *Table) Decisive(pod *corev1.Pod) bool {
	for _, l := range t.late {
		matches := pod.Labels[l.JobLabel] != ""
		for k, v := range l.Labels { // order: all must hold
			matches = matches && pod.Labels[k] == v
		}
		if matches {
			return true
		}
	}
	return pod.Labels[lwsName] != "" && pod.Labels[lwsWorkerIndex] == "0"
}
