package workload

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Subject says which object a group is named after, owned by and gets its labels from.
type Subject int

const (
	// TopOwner makes one group of all pods below the last owner of the chain.
	TopOwner Subject = iota
	// OwnerBelowTop makes one group for each object that the top owner owns, such as the Jobs of a CronJob. When there is
	// none, the pod stands in for it.
	OwnerBelowTop
	// EachPod makes a group for each pod: named after the pod and owned by it, with the labels and hints of the top owner.
	EachPod
	// OwnerOfKind makes one group for each owner of the kind that Rule.Of names, such as the revisions of a Knative service.
	// When the chain has none, it is as TopOwner.
	OwnerOfKind
)

// Rule is one row of the table of kinds: how to derive a gang from workloads of a kind. It is plain data, but for the
// kinds whose subgroups no data can describe.
type Rule struct {
	// Group and Kind name the kind of the top owner.
	Group, Kind string
	// Versions are the API versions that the row is for; none means every version. A row that names the version wins.
	Versions []string
	// Between are the kinds of the objects that stand between the top owner and its pods, for the role's permissions
	// and watches.
	Between []schema.GroupKind

	// Skip says that the kind only wraps another: the owner below it counts as the top owner, and gets the labels and
	// annotations that it lacks from the wrapper. When there is none, the pod stands in for it.
	Skip bool
	// Subject says whose group it is, and Of is the kind for OwnerOfKind.
	Subject Subject
	Of      schema.GroupKind
	// Named, if set, is an object beside the chain of owners that stands for the gang in the top owner's place.
	Named *Named
	// Facts is the kind of the owner whose fields say what the gang looks like; none means the subject. When the chain has
	// none of the kind, the pod is not one of the gang: the nearest owner gets a plain group.
	Facts schema.GroupKind
	// PartLabel is a pod label whose values part the subject's pods into gangs. The value becomes part of the group's name,
	// after Infix.
	PartLabel, Infix string
	// NameLabel is a pod label whose value names the group, if the pod has AlsoLabel as well.
	NameLabel, AlsoLabel string
	// PodPrefix names the group after the pods' common prefix, which is their name without its last segment, instead of
	// after the subject.
	PodPrefix bool
	// PodNamed says that groups named pg-<pod name>-<owner UID>, which old installations made for this kind, are taken
	// over where they exist.
	PodNamed bool
	// KeepFlat says that a group that has no subgroups, which old installations made for this kind, stays without.
	KeepFlat bool

	// PriorityClass is the default, when the workload names no class that exists. Empty: train.
	PriorityClass string
	// PriorityLabel is a label on the top owner that names the class before any other hint.
	PriorityLabel string
	// PriorityPath is a field that names the class before any other hint but PriorityLabel.
	PriorityPath string
	// WholeChain lets the owners between pod and subject have a say, too, nearest first, where a hint of the workload is
	// looked up (priority, preemptibility, delays). Otherwise only the subject has.
	WholeChain bool

	// Required are fields that must be there.
	Required []string
	// Minimum are the places to look for the gang's minimum, the first that is present decides. None present: 1.
	Minimum []Source
	// Late are replicas that the operator makes only when the others run.
	Late *Late
	// Parts cut the gang into subgroups. Nil: it has none.
	Parts *Parts
	// tree derives minimum and subgroups where Minimum and Parts cannot say it.
	tree func(*hints) (*tree, error)

	// Watch says that objects of the kind are worth a watch of their metadata: there are many, or edits matter at once.
	// Otherwise they are read one by one.
	Watch bool
}

// Named says how a pod names the object that stands for its gang: by name, in a label.
type Named struct {
	Label string
	GVK   schema.GroupVersionKind
}

// Source is a place where a workload states the minimum of its gang. Exactly one of Annotation, Path and Sum is set.
type Source struct {
	// Annotation is a key on the subject; the value is an integer of at least 1. Anything else is ignored with a warning.
	Annotation string
	// Path is a field with an integer of at least 0.
	Path string
	// Sum is a path with one "*": the sum of the integers found, each at least 1; one that is absent counts 1.
	Sum string
	// Text lets the field at Path be a string of digits; Required makes its absence an error.
	Text, Required bool
	// ZeroIsNone says that 0 in the annotation is a proper value and states no minimum.
	ZeroIsNone bool
}

// Late are replicas of a part that the operator makes only when the other pods run, so that the gang cannot wait for them
// before one of their pods exists.
type Late struct {
	// Path and Value are the field, and its value, that ask for this.
	Path, Value string
	// Replicas is the field with the part's number of replicas; absent means 1.
	Replicas string
	// JobLabel holds the subject's name on the pods; Labels are those of the part's pods.
	JobLabel string
	Labels   map[string]string
}

// Parts are the subgroups of a gang, one for each type of replica that the workload lists. The last type present of
// Names takes what the types before it leave of the gang's minimum; each of the others needs all of its replicas.
type Parts struct {
	// Path is the field that maps the names of replica types, in any case, to {replicas, template}.
	Path string
	// Names are the subgroups in order, in lower case.
	Names []string
	// Rest is the name of the type that takes what the others leave of the minimum.
	Rest string
	// Label is the pod label whose value names the replica type.
	Label string
	// IndexLabel is the pod label with the pod's index within the Rest type. Where a segment size is asked for by
	// annotation, that type is cut into segments of consecutive indexes. Empty: it never is.
	IndexLabel string
}

// NeedsContent says whether the rule reads fields beyond an object's metadata, so that the object with the facts must bring
// its Content.
func (r *Rule) NeedsContent() bool {
	return r.Parts != nil || r.tree != nil || len(r.Required) > 0 || r.PriorityPath != "" ||
		slices.ContainsFunc(r.Minimum, func(s Source) bool { return s.Path != "" || s.Sum != "" })
}

// Table finds the rule for a kind. It is immutable and safe for concurrent use.
type Table struct {
	rows map[schema.GroupVersionKind]*Rule
	rest *Rule
	// partLabels are the pod labels that part the pods of one owner into gangs; watched are the kinds worth a watch, and
	// read those of which fields are read, besides the rows' own.
	partLabels    []string
	watched, read map[schema.GroupKind]bool
	late          []*Late
}

// NewTable compiles rules. It refuses two rows for the same kind and version, and rows that contradict themselves.
func NewTable(rules []Rule) (*Table, error) {
	t := &Table{
		rows:    make(map[schema.GroupVersionKind]*Rule, len(rules)),
		rest:    &Rule{WholeChain: true},
		watched: map[schema.GroupKind]bool{},
		read:    map[schema.GroupKind]bool{},
	}
	for i := range rules {
		r := rules[i]
		if err := r.check(); err != nil {
			return nil, fmt.Errorf("rule %d, %s.%s: %w", i, r.Kind, r.Group, err)
		}
		versions := r.Versions
		if len(versions) == 0 {
			versions = []string{anyVersion}
		}
		for _, v := range versions {
			gvk := schema.GroupVersionKind{Group: r.Group, Version: v, Kind: r.Kind}
			if t.rows[gvk] != nil {
				return nil, fmt.Errorf("rule %d: version %s of %s.%s has a rule already", i, v, r.Kind, r.Group)
			}
			t.rows[gvk] = &r
		}
		t.index(&r)
	}
	slices.Sort(t.partLabels)
	t.partLabels = slices.Compact(t.partLabels)
	return t, nil
}

func (t *Table) index(r *Rule) {
	for _, kind := range r.Between {
		t.watched[kind] = t.watched[kind] || r.Watch
	}
	if r.Facts != (schema.GroupKind{}) {
		t.read[r.Facts] = true
	}
	if r.PartLabel != "" {
		t.partLabels = append(t.partLabels, r.PartLabel)
	}
	if r.Named != nil {
		t.partLabels = append(t.partLabels, r.Named.Label)
	}
	if r.Late != nil {
		t.late = append(t.late, r.Late)
	}
}

const anyVersion = "*"

// Rule returns the row for the kind: the one for its version, else the one for every version, else the default row.
// It is never nil, and not to be changed.
func (t *Table) Rule(gvk schema.GroupVersionKind) *Rule {
	if r := t.row(gvk); r != nil {
		return r
	}
	return t.rest
}

// row is nil for kinds that only the default row is for.
func (t *Table) row(gvk schema.GroupVersionKind) *Rule {
	if r := t.rows[gvk]; r != nil {
		return r
	}
	gvk.Version = anyVersion
	return t.rows[gvk]
}

// Watched says whether owners of the kind are worth a watch of their metadata.
func (t *Table) Watched(gvk schema.GroupVersionKind) bool {
	return t.Rule(gvk).Watch || t.watched[gvk.GroupKind()]
}

// Read says whether fields of the kind's objects are read, so that a change of their spec may change a gang.
func (t *Table) Read(gvk schema.GroupVersionKind) bool {
	return t.Rule(gvk).NeedsContent() || t.read[gvk.GroupKind()]
}

func (r *Rule) check() error {
	if r.Kind == "" {
		return fmt.Errorf("no kind")
	}
	for i, s := range r.Minimum {
		set := 0
		for _, f := range []string{s.Annotation, s.Path, s.Sum} {
			if f != "" {
				set++
			}
		}
		if set != 1 {
			return fmt.Errorf("minimum %d: %d of annotation, path and sum are set, must be one", i, set)
		}
	}
	if p := r.Parts; p != nil {
		if p.Path == "" || p.Label == "" || !slices.Contains(p.Names, p.Rest) {
			return fmt.Errorf("parts need a path, a label, and a rest that is one of their names")
		}
		if r.Subject == EachPod {
			return fmt.Errorf("the group of a single pod has no parts")
		}
	}
	switch {
	case (r.Subject == OwnerOfKind) != (r.Of != schema.GroupKind{}):
		return fmt.Errorf("the subject is an owner of a kind exactly if the kind is named")
	case r.tree != nil && (r.Parts != nil || len(r.Minimum) > 0 || r.Late != nil):
		return fmt.Errorf("minimum and parts are derived by code or by data, not by both")
	case r.Skip && (r.Subject != TopOwner || r.NeedsContent()):
		return fmt.Errorf("a kind that is skipped has no gang of its own")
	}
	return nil
}
