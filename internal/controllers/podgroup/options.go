package podgroup

import (
	"fmt"

	"github.com/spf13/pflag"

	"github.com/muster-scheduler/muster/api/kai/keys"
	"github.com/muster-scheduler/muster/internal/dialect/kai"
)

// Options are the settings of the podgroup role. The flags of the process around it (addresses, leader election,
// client rates) are not among them.
type Options struct {
	// SchedulerNames are the values of a pod's spec.schedulerName that make it count; pods of other schedulers do
	// not. At least one. Default: kai-scheduler.
	SchedulerNames []string

	// QueueLabel is the key of the label by which pods of Kubernetes' own groups say in which queue they ask; "" for kai.scheduler/queue.
	QueueLabel string

	// MaxConcurrentReconciles is the number of statuses written at the same time, at least 1. Default: 10.
	MaxConcurrentReconciles int
}

// DefaultOptions are KAI's.
func DefaultOptions() Options {
	return Options{SchedulerNames: []string{kai.DefaultSchedulerName}, QueueLabel: keys.QueueLabel, MaxConcurrentReconciles: 10}
}

// Bind declares the role's flags, by KAI's names, with the values of o as defaults.
func (o *Options) Bind(fs *pflag.FlagSet) {
	fs.StringSliceVar(&o.SchedulerNames, "scheduler-name", o.SchedulerNames, "scheduler names whose pods count")
	fs.StringVar(&o.QueueLabel, "queue-label-key", o.QueueLabel, "label that names the queue of pods of Kubernetes' own groups")
	fs.IntVar(&o.MaxConcurrentReconciles, "max-concurrent-reconciles", o.MaxConcurrentReconciles, "statuses written at the same time")
}

func (o Options) validate() error {
	if len(o.SchedulerNames) == 0 {
		return fmt.Errorf("podgroup role: --scheduler-name: at least one name is needed")
	}
	for _, name := range o.SchedulerNames {
		if name == "" {
			return fmt.Errorf("podgroup role: --scheduler-name: a name must not be empty")
		}
	}
	if o.MaxConcurrentReconciles < 1 {
		return fmt.Errorf("podgroup role: --max-concurrent-reconciles=%d: it must be 1 or more", o.MaxConcurrentReconciles)
	}
	return nil
}
