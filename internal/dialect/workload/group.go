package workload

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"

	"github.com/muster-scheduler/muster/api/kai/keys"
	"github.com/muster-scheduler/muster/api/scheduling/v2alpha2"
)

// Grouping is what should exist for a pod.
type Grouping struct {
	// PodGroup is the gang as the workload describes it, in the pod's namespace.
	PodGroup *v2alpha2.PodGroup
	// Flat, if set, says what to make of it where a group exists that has no subgroups; see Flatten.
	Flat *Flat
	// EachPod says that the group is this pod's alone; otherwise every pod with the same nearest owner
	// and Part gets the same one.
	EachPod bool
	// Anew says that another pod of the same owner may be in another group, for reasons that Part does not know.
	Anew bool
	// PodNamed says that PodNamedGroup, if it exists, is to be used instead.
	PodNamed bool
	// Members says which subgroup a pod is in.
	Members Members
	// Warnings tell, one sentence each, what the user wrote that has no effect.
	Warnings []string
}

// Group derives the gang of a pod from the pod's owners, nearest first; the last one is the top owner, or what Named told to
// add. The owner at Content, if any, must bring its Content. The error is an *Invalid.
//
// The result depends on the pod only through the hints that the owners leave open, and through Part, so all pods of a gang
// that are made from one template give the same PodGroup.
func (t *Table) Group(pod *corev1.Pod, owners []Object, settings *Settings) (*Grouping, error) {
	v := t.view(pod, settings.judged(pod, owners), settings.Definition)
	rule := v.rule
	if settings.KnativePerPod && rule.Group == "serving.knative.dev" {
		each := *rule
		each.Subject, each.Of, each.Minimum = EachPod, schema.GroupKind{}, nil
		rule = &each
		v.subject = v.inherited(v.last, v.last)
	}
	h := &hints{
		settings: settings, pod: pod, podAs: v.self, subject: v.subject, top: &v.owners[v.last], facts: v.facts,
		wrappers: v.owners[v.last+1:], above: v.owners, chain: []Object{*v.subject},
	}
	if rule.WholeChain {
		h.chain = append(slices.Clone(v.owners[:v.at]), *v.subject)
	}
	g := &Grouping{EachPod: rule.Subject == EachPod || v.subject.UID == v.self.UID, PodNamed: rule.PodNamed}
	named := v.subject
	if rule.Subject == EachPod {
		named = &v.self
	}
	name, err := h.name(rule, named)
	if err != nil {
		return nil, err
	}
	shape, err := h.tree(rule, v.definition)
	if err != nil {
		return nil, err
	}
	if shape.name != "" {
		name, g.Anew = shape.name, true
	}
	group := &v2alpha2.PodGroup{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:   pod.Namespace,
			Name:        name,
			Labels:      h.labels(),
			Annotations: h.annotations(),
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: named.GVK.GroupVersion().String(), Kind: named.GVK.Kind, Name: named.Name, UID: named.UID,
			}},
		},
		Spec: v2alpha2.PodGroupSpec{
			MinMember:            &shape.minimum,
			Queue:                h.queue(),
			PriorityClassName:    h.priorityClass(rule),
			Preemptibility:       h.preemptibility(),
			PreemptionDelay:      h.duration(keys.PreemptionDelayAnnotation, false),
			StalenessGracePeriod: h.duration(keys.StalenessGracePeriodAnnotation, true),
			TopologyConstraint: topology(keys.TopologyRequiredAnnotation, keys.TopologyPreferredAnnotation,
				v.subject.Annotations),
			SubGroups: shape.subGroups,
		},
	}
	if shape.minSubGroup != nil {
		group.Spec.MinMember, group.Spec.MinSubGroup = nil, shape.minSubGroup
	}
	if shape.constraint != nil {
		group.Spec.TopologyConstraint = *shape.constraint
	}
	h.warnTopology(group.Spec.TopologyConstraint, keys.TopologyRequiredAnnotation, keys.TopologyPreferredAnnotation)
	if err := h.distinct(shape.subGroups); err != nil {
		return nil, err
	}
	if rule.KeepFlat && len(shape.subGroups) > 0 {
		g.Flat = &Flat{Minimum: shape.minimum}
	}
	g.PodGroup, g.Members, g.Warnings = group, shape.members, h.warnings
	return g, nil
}

// Flat is how a group looks that has no subgroups because it was made when its kind had none.
type Flat struct {
	// Minimum is the gang's minimum in pods.
	Minimum int32
}

// Flatten takes the subgroups out of a grouping, if Flat is set and the group that exists has none.
func (g *Grouping) Flatten(existing *v2alpha2.PodGroup) {
	if g.Flat == nil || len(existing.Spec.SubGroups) > 0 {
		return
	}
	g.PodGroup.Spec.MinMember, g.PodGroup.Spec.MinSubGroup, g.PodGroup.Spec.SubGroups = new(g.Flat.Minimum), nil, nil
	g.Members = Members{}
}

// name is the group's, for the object that it is named after.
func (h *hints) name(rule *Rule, named *Object) (string, error) {
	if rule.NameLabel != "" && h.pod.Labels[rule.AlsoLabel] != "" {
		if name := h.pod.Labels[rule.NameLabel]; len(validation.IsDNS1123Subdomain(name)) == 0 {
			return name, nil
		} else if name != "" {
			return "", invalidField(&h.podAs, "label "+rule.NameLabel, "must be the name of a PodGroup, is %q", name)
		}
	}
	if rule.PodPrefix {
		return GroupName(podPrefix(h.pod), named.UID), nil
	}
	name := GroupName(named.Name, named.UID)
	if rule.PartLabel == "" {
		return name, nil
	}
	part := h.pod.Labels[rule.PartLabel]
	if len(validation.IsDNS1123Label(part)) > 0 {
		return "", invalidField(&h.podAs, "label "+rule.PartLabel, "must say which of the workload's gangs the pod is in, is %q", part)
	}
	if name += rule.Infix + part; len(name) > maxName {
		return "", invalidField(named, "metadata.name", "must be short enough for its PodGroups' names to have at most %d characters", maxName)
	}
	return name, nil
}

// podPrefix is the pod's name without its last segment.
func podPrefix(pod *corev1.Pod) string {
	if i := strings.LastIndexByte(pod.Name, '-'); i > 0 {
		return pod.Name[:i]
	}
	return pod.Name
}

// distinct refuses a tree in which two subgroups have one name, or a name that the API refuses.
func (h *hints) distinct(groups []v2alpha2.SubGroup) error {
	if len(groups) > maxSubGroups {
		return invalidField(h.facts, "spec", "must make at most %d subgroups, makes %d", maxSubGroups, len(groups))
	}
	seen := make(map[string]bool, len(groups))
	for i := range groups {
		name := groups[i].Name
		if len(validation.IsDNS1123Label(name)) > 0 && !plainLabel(name) {
			return invalidField(h.facts, "spec", "must give subgroups names of lower-case letters, digits and dashes, gives %q", name)
		}
		if seen[name] {
			return invalidField(h.facts, "spec", "must give subgroups names of their own, %q is the name of two", name)
		}
		seen[name] = true
	}
	return nil
}

// plainLabel says whether a name that is too long for a label has the characters of one; subgroups may be longer.
func plainLabel(name string) bool {
	return len(name) <= maxName && plainName(name) && !strings.Contains(name, ".") &&
		!strings.HasPrefix(name, "-") && !strings.HasSuffix(name, "-")
}

// maxSubGroups bounds the tree of one gang.
const maxSubGroups = MaxSegments + 100

// minimum evaluates the rule's sources in order.
func (h *hints) minimum(rule *Rule) (int32, error) {
	for _, path := range rule.Required {
		if _, found, _ := lookup(h.facts.Content, path); !found {
			return 0, invalidField(h.facts, path, "must be there")
		}
	}
	n, err := h.stated(rule)
	if err != nil || rule.Late == nil {
		return n, err
	}
	late, err := h.late(rule.Late)
	return max(n-late, 1), err
}

func (h *hints) stated(rule *Rule) (int32, error) {
	for _, s := range rule.Minimum {
		switch {
		case s.Annotation != "":
			if s.ZeroIsNone && strings.TrimSpace(h.facts.Annotations[s.Annotation]) == "0" {
				continue
			}
			if n, found := h.positive(h.facts, s.Annotation); found {
				return n, nil
			}
		case s.Path != "":
			n, found, err := integerAt(h.facts, s.Path, s.Text)
			if found || err != nil {
				return n, err
			}
			if s.Required {
				return 0, invalidField(h.facts, s.Path, "must be an integer of at least 0, is absent")
			}
		default:
			if n, found, err := sumAt(h.facts, s.Sum); found || err != nil {
				return n, err
			}
		}
	}
	return 1, nil
}

// late is the number of replicas that the gang cannot wait for yet.
func (h *hints) late(l *Late) (int32, error) {
	if value, _, _ := lookup(h.facts.Content, l.Path); value != l.Value {
		return 0, nil
	}
	of := maps.Clone(l.Labels)
	of[l.JobLabel] = h.facts.Name
	matches := labels.SelectorFromSet(of)
	if matches.Matches(labels.Set(h.pod.Labels)) || h.settings.peer(h.pod.Namespace, matches, alive) {
		return 0, nil
	}
	n, found, err := integerAt(h.facts, l.Replicas, false)
	if !found {
		n = 1
	}
	return n, err
}

func alive(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp == nil && pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed
}

// labels are those of the subject, with the pod's user and node pool where the subject does not say.
func (h *hints) labels() map[string]string {
	out := make(map[string]string, len(h.subject.Labels)+2)
	for _, key := range []string{keys.User, h.settings.NodePoolLabel} {
		if v := h.pod.Labels[key]; v != "" {
			out[key] = v
		}
	}
	maps.Copy(out, h.subject.Labels)
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

// describe renders an object's identity as YAML. It is done for every pod: where all texts stand as they are, by hand, for what marshals YAML takes
// twenty kilobytes a time.
func describe(o *Object) string {
	group, version, kind := o.GVK.Group, o.GVK.Version, o.GVK.Kind
	if asItIs(kind) && asItIs(o.Name) && (asItIs(string(o.UID)) || isUUID(string(o.UID))) && asItIs(version) && (group == "" || asItIs(group)) {
		if group == "" {
			group = `""`
		}
		return "group: " + group + "\nkind: " + kind + "\nname: " + o.Name + "\nuid: " + string(o.UID) + "\nversion: " + version + "\n"
	}
	raw, err := yaml.Marshal(map[string]string{
		"name": o.Name, "uid": string(o.UID), "group": o.GVK.Group, "version": o.GVK.Version, "kind": o.GVK.Kind,
	})
	if err != nil {
		panic(fmt.Sprintf("a map of strings has no YAML form: %v", err))
	}
	return string(raw)
}

// asItIs says whether a text is certainly the YAML of itself: letters, digits, dashes and dots, the first one a letter, and no word that YAML takes for
// something else.
func asItIs(text string) bool {
	if text == "" || !letter(text[0]) {
		return false
	}
	for i := range len(text) {
		if c := text[i]; !letter(c) && (c < '0' || c > '9') && c != '-' && c != '.' {
			return false
		}
	}
	switch strings.ToLower(text) {
	case "y", "yes", "on", "true", "n", "no", "off", "false", "null":
		return false
	}
	return true
}

func letter(c byte) bool { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' }

// isUUID says whether a text is a UUID, as UIDs are: with its dashes it is no number, nor a date.
func isUUID(text string) bool {
	for i := range len(text) {
		c := text[i]
		if dash := i == 8 || i == 13 || i == 18 || i == 23; dash != (c == '-') || !dash && (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return len(text) == 36
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
	name = lowered(name)
	if len(name) > room {
		name = name[:max(room, 0)]
	}
	return "pg-" + trimmed(name) + suffix
}

// plainSubdomain makes a name that a PodGroup may have of one that it may not have.
func plainSubdomain(name string) string {
	name = lowered(name)
	return trimmed(name[:min(len(name), maxName)])
}

func lowered(name string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9', r == '-', r == '.':
			return r
		case r >= 'A' && r <= 'Z':
			return r - 'A' + 'a'
		}
		return '-'
	}, name)
}

// trimmed sees to it that dots stand between letters or digits, so that none meets the dashes around the name.
func trimmed(name string) string {
	var labels []string
	for label := range strings.SplitSeq(name, ".") {
		if label = strings.Trim(label, "-"); label != "" {
			labels = append(labels, label)
		}
	}
	return strings.Join(labels, ".")
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
