package workload

import (
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/muster-scheduler/muster/api/kai/keys"
)

// Settings are what an installation decides about grouping.
type Settings struct {
	// QueueLabel and NodePoolLabel are label keys; see DefaultSettings for their usual values.
	QueueLabel, NodePoolLabel string
	// Kinds are defaults per kind of workload; keys are "Kind.group" or, of lower precedence, "Kind".
	Kinds map[string]KindDefaults
	// PriorityClassExists answers whether the cluster has a PriorityClass of that name. Nil: it has every class.
	PriorityClassExists func(name string) bool
	// Peers lists pods of a namespace that match. Nil: there are none. A few rules look at whether some pod of the gang is
	// there already. What it returns is not changed.
	Peers func(namespace string, matches labels.Selector) []*corev1.Pod
	// Definition finds the Karta definition for a kind that has no row, or nil. Nil: there are none.
	Definition func(kind schema.GroupVersionKind) *Definition
	// Authorized says that queues are authorized: only labels that policies judge when they are written name a queue. These are
	// the queue labels of the pod and of owners in the pod's namespace. Not judged are owners without a namespace, which any
	// pod may name, and the label project.
	Authorized bool
	// KnativePerPod makes a group for each pod of a Knative service, not one for each revision.
	KnativePerPod bool
}

// peer says whether there is a pod that matches and for which holds is true.
func (s *Settings) peer(namespace string, matches labels.Selector, holds func(*corev1.Pod) bool) bool {
	return s.Peers != nil && slices.ContainsFunc(s.Peers(namespace, matches), holds)
}

func (s *Settings) kind(gvk schema.GroupVersionKind) (KindDefaults, bool) {
	if d, ok := s.Kinds[gvk.Kind+"."+gvk.Group]; ok {
		return d, true
	}
	d, ok := s.Kinds[gvk.Kind]
	return d, ok
}

// KindDefaults hold for workloads of a kind that do not say otherwise.
type KindDefaults struct {
	// PriorityClass counts only if it exists; empty means the rule's own default.
	PriorityClass string
	// Preemptibility is "preemptible" or "non-preemptible"; anything else means that the priority decides.
	Preemptibility string
}

// DefaultSettings returns the settings of an installation that changed nothing.
func DefaultSettings() Settings {
	return Settings{QueueLabel: keys.QueueLabel, NodePoolLabel: keys.NodePoolLabel}
}

func (s *Settings) classExists(name string) bool {
	return s.PriorityClassExists == nil || s.PriorityClassExists(name)
}

// KindDefaultsKey is the key of the ConfigMap of defaults under which ParseKindDefaults' text stands.
const KindDefaultsKey = "types"

// ParseKindDefaults reads a JSON array of {typeName, group, priorityName, preemptibility}, as it stands in the ConfigMap
// of defaults, into Settings.Kinds. Of two entries for a kind the later one counts. An entry without typeName is an error.
func ParseKindDefaults(text string) (map[string]KindDefaults, error) {
	var entries []struct {
		TypeName       string `json:"typeName"`
		Group          string `json:"group"`
		PriorityName   string `json:"priorityName"`
		Preemptibility string `json:"preemptibility"`
	}
	if err := json.Unmarshal([]byte(text), &entries); err != nil {
		return nil, fmt.Errorf("defaults of kinds: must be a JSON array of {typeName, group, priorityName, preemptibility}: %w", err)
	}
	kinds := make(map[string]KindDefaults, len(entries))
	for i, e := range entries {
		if e.TypeName == "" {
			return nil, fmt.Errorf("defaults of kinds: entry %d: typeName must not be empty", i)
		}
		key := e.TypeName
		if e.Group != "" {
			key += "." + e.Group
		}
		kinds[key] = KindDefaults{PriorityClass: e.PriorityName, Preemptibility: e.Preemptibility}
	}
	return kinds, nil
}
