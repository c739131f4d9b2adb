package workload

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/muster-scheduler/muster/api/kai/keys"
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
)

// Rule is one row of the table of kinds: how to derive a gang from workloads of a kind. It is plain data.
type Rule struct {
	// Group and Kind name the kind of the top owner.
	Group, Kind string
	// Versions are the API versions that the row is for; none means every version. A row that names the version wins.
	Versions []string
	// Subject says whose group it is.
	Subject Subject
	// PriorityClass is the default, when the workload names no class that exists. Empty: train.
	PriorityClass string
	// WholeChain lets the owners between pod and subject have a say, too, nearest first, where a hint of the workload is
	// looked up (priority, preemptibility, delays). Otherwise only the subject has.
	WholeChain bool
	// Minimum are the places to look for the gang's minimum, the first that is present decides. None present: 1.
	Minimum []Source
	// Parts cut the gang into subgroups. Nil: it has none.
	Parts *Parts
	// PodNamed says that groups named pg-<pod name>-<owner UID>, which old installations made for this kind, are taken
	// over where they exist.
	PodNamed bool
	// Watch says that objects of the kind are worth a watch of their metadata: there are many, or edits matter at once.
	// Otherwise they are read one by one.
	Watch bool
}

// Source is a place where a workload states the minimum of its gang. Exactly one field is set.
type Source struct {
	// Annotation is a key on the subject; the value is an integer of at least 1. Anything else is ignored with a warning.
	Annotation string
	// Path is a field with an integer of at least 0.
	Path string
	// Sum is a path with one "*": the sum of the integers found, all of which must be present and at least 1.
	Sum string
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

// NeedsContent says whether the rule reads fields beyond an object's metadata, so that the subject's Object must bring its
// Content.
func (r *Rule) NeedsContent() bool {
	return r.Parts != nil || slices.ContainsFunc(r.Minimum, func(s Source) bool { return s.Path != "" || s.Sum != "" })
}

// Table finds the rule for a kind. It is immutable and safe for concurrent use.
type Table struct {
	rows map[schema.GroupVersionKind]*Rule
	rest *Rule
}

// NewTable compiles rules. It refuses two rows for the same kind and version, and rows that contradict themselves.
func NewTable(rules []Rule) (*Table, error) {
	t := &Table{
		rows: make(map[schema.GroupVersionKind]*Rule, len(rules)),
		rest: &Rule{WholeChain: true},
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
	}
	return t, nil
}

const anyVersion = "*"

// Rule returns the row for the kind: the one for its version, else the one for every version, else the default row.
// It is never nil, and not to be changed.
func (t *Table) Rule(gvk schema.GroupVersionKind) *Rule {
	if r := t.rows[gvk]; r != nil {
		return r
	}
	gvk.Version = anyVersion
	if r := t.rows[gvk]; r != nil {
		return r
	}
	return t.rest
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
	return nil
}

// Kinds returns the rows that Muster comes with.
func Kinds() []Rule {
	batchMinimum := []Source{{Annotation: keys.BatchMinMemberAnnotation}}
	return []Rule{
		{Kind: "Pod", WholeChain: true},
		{Group: "apps", Kind: "StatefulSet", WholeChain: true, Watch: true},
		{Group: "apps", Kind: "ReplicaSet", WholeChain: true, Watch: true},
		{Group: "apps", Kind: "Deployment", Subject: EachPod, PriorityClass: keys.PriorityClassInference, Watch: true},
		{Group: "batch", Kind: "Job", Minimum: batchMinimum, PodNamed: true, Watch: true},
		{Group: "batch", Kind: "CronJob", Subject: OwnerBelowTop, Minimum: batchMinimum, Watch: true},
		{
			Group: "kubeflow.org", Kind: "PyTorchJob", Versions: []string{"v1"}, Watch: true,
			Minimum: []Source{
				{Path: "spec.runPolicy.schedulingPolicy.minAvailable"},
				{Path: "spec.elasticPolicy.minReplicas"},
				{Sum: "spec.pytorchReplicaSpecs.*.replicas"},
			},
			Parts: &Parts{
				Path:       "spec.pytorchReplicaSpecs",
				Names:      []string{"master", "worker"},
				Rest:       "worker",
				Label:      "training.kubeflow.org/replica-type",
				IndexLabel: "training.kubeflow.org/replica-index",
			},
		},
	}
}
