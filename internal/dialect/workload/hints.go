package workload

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-scheduler/muster/api/kai/keys"
	"github.com/muster-scheduler/muster/api/scheduling/v2alpha2"
)

// hints looks up what users may state about a gang on its workload or pods, and collects a warning for each statement
// that is malformed and therefore has no effect.
type hints struct {
	settings *Settings
	pod      *corev1.Pod
	podAs    Object
	// subject is the object that stands for the whole gang; chain are the owners that have a say, nearest first, with the
	// subject among them.
	subject *Object
	chain   []Object
	// top is the top owner, facts the one whose fields are read. above are all owners there are, wrappers those that only
	// wrap the top one.
	top, facts      *Object
	above, wrappers []Object
	warnings        []string
}

func (h *hints) warn(o *Object, field, format string, args ...any) {
	h.warnings = append(h.warnings, o.String()+": "+field+": "+fmt.Sprintf(format, args...))
}

// queue: the queue label of subject, then pod, then of the other owners, nearest first; then the project label of subject,
// then pod; then the default queue. Where queues are authorized the pod comes first, since its label is what its author was
// judged by, and project names nothing: what queue it means cannot be judged where it is written.
func (h *hints) queue() string {
	label := h.settings.QueueLabel
	labelled := []*Object{h.subject, &h.podAs}
	if h.settings.Authorized {
		labelled = []*Object{&h.podAs, h.subject}
	}
	for _, o := range labelled {
		if q := o.Labels[label]; q != "" {
			return q
		}
	}
	for i := range h.above {
		if q := h.above[i].Labels[label]; q != "" {
			return q
		}
	}
	for _, o := range []*Object{h.subject, &h.podAs} {
		project := o.Labels[keys.ProjectLabel]
		if project == "" {
			continue
		}
		if h.settings.Authorized {
			h.warn(o, "label "+keys.ProjectLabel, "names no queue where queues are authorized, label %s does; ignored", label)
			break
		}
		if pool := h.pod.Labels[h.settings.NodePoolLabel]; pool != "" {
			return project + "-" + pool
		}
		return project
	}
	return keys.DefaultQueue
}

// priorityClass: the label of the nearest owner, the pod's label, the class of the pod's spec, the labels of further
// owners; each counts only if such a class exists. Then the configured default of the kind, then the rule's.
func (h *hints) priorityClass(rule *Rule) string {
	accept := func(o *Object, field, class string) bool {
		if class == "" {
			return false
		}
		if h.settings.classExists(class) {
			return true
		}
		h.warn(o, field, "must name an existing PriorityClass, %q does not exist; ignored", class)
		return false
	}
	if rule.PriorityLabel != "" {
		if c := h.top.Labels[rule.PriorityLabel]; accept(h.top, "label "+rule.PriorityLabel, c) {
			return c
		}
	}
	if rule.PriorityPath != "" {
		value, _, _ := lookup(h.facts.Content, rule.PriorityPath)
		if c, _ := value.(string); accept(h.facts, rule.PriorityPath, c) {
			return c
		}
	}
	const label = "label " + keys.PriorityClassLabel
	nearest := h.chain[0]
	if c := nearest.Labels[keys.PriorityClassLabel]; accept(&nearest, label, c) {
		return c
	}
	if nearest.UID != h.podAs.UID {
		if c := h.podAs.Labels[keys.PriorityClassLabel]; accept(&h.podAs, label, c) {
			return c
		}
	}
	if c := h.pod.Spec.PriorityClassName; accept(&h.podAs, "spec.priorityClassName", c) {
		return c
	}
	for i := range h.chain[1:] {
		o := &h.chain[1+i]
		if c := o.Labels[keys.PriorityClassLabel]; accept(o, label, c) {
			return c
		}
	}
	if d, ok := h.kindDefaults(); ok && d.PriorityClass != "" && h.settings.classExists(d.PriorityClass) {
		return d.PriorityClass
	}
	if rule.PriorityClass != "" {
		return rule.PriorityClass
	}
	return keys.PriorityClassTrain
}

// preemptibility: labels of the owners, nearest first, then the pod's, then the configured default of the kind.
func (h *hints) preemptibility() v2alpha2.Preemptibility {
	const label = "label " + keys.PreemptibilityLabel
	for i := range h.sources() {
		o := h.source(i)
		value, set := o.Labels[keys.PreemptibilityLabel]
		if !set {
			continue
		}
		if p, ok := preemptibility(value); ok {
			return p
		}
		h.warn(o, label, "must be %s or %s, is %q; ignored", v2alpha2.Preemptible, v2alpha2.NonPreemptible, value)
	}
	if d, ok := h.kindDefaults(); ok {
		if p, ok := preemptibility(d.Preemptibility); ok {
			return p
		}
	}
	return ""
}

func preemptibility(value string) (v2alpha2.Preemptibility, bool) {
	p := v2alpha2.Preemptibility(value)
	return p, p == v2alpha2.Preemptible || p == v2alpha2.NonPreemptible
}

// duration: the annotation of the owners, nearest first, then the pod's. Malformed values are passed over.
func (h *hints) duration(key string, negative bool) *metav1.Duration {
	for i := range h.sources() {
		o := h.source(i)
		value, set := o.Annotations[key]
		if !set {
			continue
		}
		d, err := time.ParseDuration(value)
		switch {
		case err != nil:
			h.warn(o, "annotation "+key, "must be a duration such as 90s or 1h30m, is %q; ignored", value)
		case d < 0 && !negative:
			h.warn(o, "annotation "+key, "must not be negative, is %q; ignored", value)
		default:
			return &metav1.Duration{Duration: d}
		}
	}
	return nil
}

// topology reads a constraint from the first of the given annotation maps that has one of the keys, key by key.
func topology(required, preferred string, from ...map[string]string) v2alpha2.TopologyConstraint {
	return v2alpha2.TopologyConstraint{
		Topology:               first(keys.TopologyAnnotation, from),
		RequiredTopologyLevel:  first(required, from),
		PreferredTopologyLevel: first(preferred, from),
	}
}

func first(key string, from []map[string]string) string {
	for _, m := range from {
		if v := m[key]; v != "" {
			return v
		}
	}
	return ""
}

// warnTopology tells of a constraint that has no effect because it names no Topology.
func (h *hints) warnTopology(c v2alpha2.TopologyConstraint, required, preferred string) {
	if c.Topology != "" {
		return
	}
	key := required
	if c.RequiredTopologyLevel == "" {
		key = preferred
	}
	if c.RequiredTopologyLevel != "" || c.PreferredTopologyLevel != "" {
		h.warn(h.subject, "annotation "+key, "has no effect without annotation %s", keys.TopologyAnnotation)
	}
}

// positive reads an annotation that must be an integer of at least 1. Malformed values are passed over.
func (h *hints) positive(o *Object, key string) (int32, bool) {
	value, set := o.Annotations[key]
	if !set {
		return 0, false
	}
	n, err := strconv.ParseInt(strings.TrimSpace(value), 10, 32)
	if err != nil || n < 1 {
		h.warn(o, "annotation "+key, "must be an integer of at least 1, is %q; ignored", value)
		return 0, false
	}
	return int32(n), true
}

// sources and source enumerate who may carry a hint: the chain, then the pod, unless it is its own owner.
func (h *hints) sources() int {
	if h.chain[0].UID == h.podAs.UID {
		return len(h.chain)
	}
	return len(h.chain) + 1
}

func (h *hints) source(i int) *Object {
	if i < len(h.chain) {
		return &h.chain[i]
	}
	return &h.podAs
}

// kindDefaults finds what the installation configured for the kind that the user sees: the topmost wrapper, then the others,
// then the subject.
func (h *hints) kindDefaults() (KindDefaults, bool) {
	for i := len(h.wrappers) - 1; i >= 0; i-- {
		if d, ok := h.settings.kind(h.wrappers[i].GVK); ok {
			return d, true
		}
	}
	if d, ok := h.settings.kind(h.top.GVK); ok {
		return d, true
	}
	return h.settings.kind(h.subject.GVK)
}
