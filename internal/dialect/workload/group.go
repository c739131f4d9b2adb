package workload

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/muster-scheduler/muster/api/kai/keys"
	"github.com/muster-scheduler/muster/api/scheduling/v2alpha2"
)

// Grouping is what should exist for a pod.
type Grouping struct {
	// PodGroup is the gang as the workload describes it, in the pod's namespace.
	PodGroup *v2alpha2.PodGroup
	// EachPod says that the group is this pod's alone; otherwise every pod with the same nearest owner gets the same one.
	EachPod bool
	// PodNamed says that PodNamedGroup, if it exists, is to be used instead.
	PodNamed bool
	// Members says which subgroup a pod is in.
	Members Members
	// Warnings tell, one sentence each, what the user wrote that has no effect.
	Warnings []string
}

// Group derives the gang of a pod from the pod's owners, nearest first; the last one is the top owner. A pod without
// owners is its own. The owner that the top owner's rule makes the subject must bring its Content if the rule
// NeedsContent. The error is an *Invalid.
//
// The result depends on the pod only through the hints that the owners leave open, so all pods of a gang that are made
// from one template give the same PodGroup.
func (t *Table) Group(pod *corev1.Pod, owners []Object, settings *Settings) (*Grouping, error) {
	self := FromPod(pod)
	if len(owners) == 0 {
		owners = []Object{self}
	}
	last := len(owners) - 1
	rule := t.Rule(owners[last].GVK)
	subject := &owners[last]
	if rule.Subject == OwnerBelowTop {
		subject = &self
		if last > 0 {
			last--
			subject = &owners[last]
		}
	}
	h := &hints{settings: settings, pod: pod, podAs: self, subject: subject, chain: []Object{*subject}}
	if rule.WholeChain {
		h.chain = owners[:last+1]
	}
	g := &Grouping{EachPod: rule.Subject == EachPod || subject.UID == self.UID, PodNamed: rule.PodNamed}
	named := subject
	if rule.Subject == EachPod {
		named = &self
	}

	minimum, err := h.minimum(rule)
	if err != nil {
		return nil, err
	}
	group := &v2alpha2.PodGroup{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:   pod.Namespace,
			Name:        GroupName(named.Name, named.UID),
			Labels:      h.labels(),
			Annotations: h.annotations(),
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: named.GVK.GroupVersion().String(), Kind: named.GVK.Kind, Name: named.Name, UID: named.UID,
			}},
		},
		Spec: v2alpha2.PodGroupSpec{
			MinMember:            &minimum,
			Queue:                h.queue(),
			PriorityClassName:    h.priorityClass(rule),
			Preemptibility:       h.preemptibility(),
			PreemptionDelay:      h.duration(keys.PreemptionDelayAnnotation, false),
			StalenessGracePeriod: h.duration(keys.StalenessGracePeriodAnnotation, true),
			TopologyConstraint: topology(keys.TopologyRequiredAnnotation, keys.TopologyPreferredAnnotation,
				subject.Annotations),
		},
	}
	h.warnTopology(group.Spec.TopologyConstraint, keys.TopologyRequiredAnnotation, keys.TopologyPreferredAnnotation)
	if rule.Parts != nil {
		group.Spec.SubGroups, g.Members, err = h.parts(rule.Parts, minimum)
		if err != nil {
			return nil, err
		}
	}
	g.PodGroup, g.Warnings = group, h.warnings
	return g, nil
}

// minimum evaluates the rule's sources in order.
func (h *hints) minimum(rule *Rule) (int32, error) {
	for _, s := range rule.Minimum {
		switch {
		case s.Annotation != "":
			if n, found := h.positive(h.subject, s.Annotation); found {
				return n, nil
			}
		case s.Path != "":
			if n, found, err := integerAt(h.subject, s.Path, 0); found || err != nil {
				return n, err
			}
		default:
			if n, found, err := sumAt(h.subject, s.Sum); found || err != nil {
				return n, err
			}
		}
	}
	return 1, nil
}

// labels are those of the subject, with the pod's user and node pool where the subject does not say.
func (h *hints) labels() map[string]string {
	out := make(map[string]string, len(h.subject.Labels)+2)
	for _, key := range []string{keys.User, h.settings.NodePoolLabel} {
		if v := h.pod.Labels[key]; v != "" {
			out[key] = v
		}
	}
	for k, v := range h.subject.Labels {
		out[k] = v
	}
	return out
}

// annotations are those of the subject, with the pod's user where the subject does not say, and a description of the
// subject. The copy that kubectl keeps of what was applied is left out: it describes another object, and is large. So are the
// scheduler's notes: since when a gang runs says how long it is safe, and no tenant may say that.
func (h *hints) annotations() map[string]string {
	out := make(map[string]string, len(h.subject.Annotations)+2)
	if v := h.pod.Annotations[keys.User]; v != "" {
		out[keys.User] = v
	}
	for k, v := range h.subject.Annotations {
		if k != corev1.LastAppliedConfigAnnotation && !schedulers(k) {
			out[k] = v
		}
	}
	out[keys.TopOwnerAnnotation] = describe(h.subject)
	return out
}

// describe renders an object's identity as YAML.
func describe(o *Object) string {
	raw, err := yaml.Marshal(map[string]string{
		"name": o.Name, "uid": string(o.UID), "group": o.GVK.Group, "version": o.GVK.Version, "kind": o.GVK.Kind,
	})
	if err != nil {
		panic(fmt.Sprintf("a map of strings has no YAML form: %v", err))
	}
	return string(raw)
}

// maxName is the longest name of an API object.
const maxName = 253

// GroupName is the name of the PodGroup made for an object: pg-<name>-<uid>. Where that is too long the name is cut, and
// where the object's name has characters that a PodGroup's cannot have they are replaced; the UID keeps it unique.
func GroupName(name string, uid types.UID) string {
	suffix := "-" + string(uid)
	room := maxName - len("pg-") - len(suffix)
	if plainName(name) && len(name) <= room {
		return "pg-" + name + suffix
	}
	name = strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9', r == '-', r == '.':
			return r
		case r >= 'A' && r <= 'Z':
			return r - 'A' + 'a'
		}
		return '-'
	}, name)
	if len(name) > room {
		name = name[:max(room, 0)]
	}
	// A dot must stand between letters or digits, so it may not meet the dashes around the name.
	labels := strings.FieldsFunc(name, func(r rune) bool { return r == '.' })
	for i := range labels {
		labels[i] = strings.Trim(labels[i], "-")
	}
	return "pg-" + strings.Trim(strings.Join(labels, "."), ".-") + suffix
}

func plainName(name string) bool {
	for i := range len(name) {
		c := name[i]
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' && c != '.' {
			return false
		}
	}
	return true
}

// PodNamedGroup is the name that old installations gave to the group of a Job, after one of its pods.
func PodNamedGroup(pod *corev1.Pod, owner types.UID) string {
	return "pg-" + pod.Name + "-" + string(owner)
}
