package podgrouper

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/muster-scheduler/muster/api/kai/keys"
)

// Options are the flags of the role. Flags that concern the process as a whole (addresses, leader election, API rates) are
// read by the process.
type Options struct {
	// SchedulerNames are the spec.schedulerName values of pods that are ours (--scheduler-name). At least one.
	SchedulerNames []string
	// QueueLabel and NodePoolLabel are label keys (--queue-label-key, --nodepool-label-key).
	QueueLabel, NodePoolLabel string
	// Workers is how many pods are worked on at a time, at least 1 (--max-concurrent-reconciles).
	Workers int
	// PodNamedGroups takes over groups that old installations named after a pod (--search-legacy-pg).
	PodNamedGroups bool
	// KnativeGangs makes one gang of each revision of a Knative service, else each pod is one (--knative-gang-schedule).
	KnativeGangs bool
	// Definitions lets Karta objects define kinds of workloads that have no rule (--generic-karta-fallback).
	Definitions bool
	// AuthorizeQueues takes a gang's queue only from what the admission role's policies have judged, and keeps pods that name
	// another queue out of a gang (--authorize-queues).
	AuthorizeQueues bool
	// OwnGangs lets a pod that is alone in its gang do without a PodGroup for as long as nothing needs one (--podgroups=needed): all that it
	// would say is an annotation of the pod.
	OwnGangs bool
	// DefaultsNamespace and DefaultsName name the ConfigMap with defaults per kind of workload
	// (--default-priorities-configmap-namespace, --default-priorities-configmap-name). Both empty: there is none.
	DefaultsNamespace, DefaultsName string
	// PodSelector and NamespaceSelector restrict the role to pods, and to the pods of namespaces, with these labels
	// (--pod-label-selector, --namespace-label-selector). A namespace that is labelled later is noticed with the next event
	// of each of its pods. Nil: everything.
	PodSelector, NamespaceSelector map[string]string
	// Remembered is the number of gangs, at least 1, whose derivation is kept in memory, about 500 bytes each.
	Remembered int
	// Backoff is the first wait before another attempt at a pod that failed; it doubles, to Patience.
	Backoff time.Duration
	// MaxBackoff is the least, and Patience the longest, wait before a workload that cannot be understood, or whose PodGroup is
	// refused, is looked at again without having changed: as long as its pod has waited already.
	MaxBackoff, Patience time.Duration
	// Refresh is how long a derivation is trusted whose owners are not watched, and how often all are checked against the
	// PodGroups that exist.
	Refresh time.Duration
}

// DefaultOptions returns what holds when no flag is given.
func DefaultOptions() Options {
	return Options{
		SchedulerNames: []string{keys.SchedulerName},
		QueueLabel:     keys.QueueLabel,
		NodePoolLabel:  keys.NodePoolLabel,
		Workers:        10,
		PodNamedGroups: true,
		KnativeGangs:   true,
		Definitions:    true,
		Remembered:     16384,
		Backoff:        time.Second,
		MaxBackoff:     time.Minute,
		Patience:       5 * time.Minute,
		Refresh:        time.Minute,
	}
}

// check finds every option that cannot be.
func (o *Options) check() error {
	var errs []error
	if len(o.SchedulerNames) == 0 || slices.Contains(o.SchedulerNames, "") {
		errs = append(errs, errors.New("scheduler names: at least one is needed, none may be empty"))
	}
	if o.QueueLabel == "" || o.NodePoolLabel == "" {
		errs = append(errs, errors.New("label keys of queue and node pool must not be empty"))
	}
	if o.Workers < 1 || o.Remembered < 1 {
		errs = append(errs, fmt.Errorf("workers and remembered gangs must be at least 1, are %d and %d", o.Workers, o.Remembered))
	}
	if o.Backoff <= 0 || o.MaxBackoff < o.Backoff || o.Patience < o.MaxBackoff || o.Refresh <= 0 {
		errs = append(errs, fmt.Errorf("waits must be positive and in order: backoff %v, max %v, patience %v, refresh %v", o.Backoff, o.MaxBackoff, o.Patience, o.Refresh))
	}
	if (o.DefaultsName == "") != (o.DefaultsNamespace == "") {
		errs = append(errs, errors.New("the ConfigMap of defaults needs both a name and a namespace"))
	}
	for _, s := range []map[string]string{o.PodSelector, o.NamespaceSelector} {
		if _, err := labels.ValidatedSelectorFromSet(s); err != nil {
			errs = append(errs, fmt.Errorf("label selector: %w", err))
		}
	}
	return errors.Join(errs...)
}
