package roles

import (
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/muster-scheduler/muster/api/kai/keys"
	"github.com/muster-scheduler/muster/internal/controllers/binder"
	"github.com/muster-scheduler/muster/internal/controllers/podgroup"
	"github.com/muster-scheduler/muster/internal/controllers/podgrouper"
	"github.com/muster-scheduler/muster/internal/controllers/queue"
	"github.com/muster-scheduler/muster/internal/dialect/kai"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/kube/apply"
	"github.com/muster-scheduler/muster/internal/kube/feed"
	"github.com/muster-scheduler/muster/internal/profile"
	"github.com/muster-scheduler/muster/internal/scheduler"
)

// The functions of this file hand what the flags say to the packages that act on it. A field of Settings that none of
// them reads is a flag without effect.

func (s *Settings) partition() kai.Partition {
	return kai.Partition{Key: s.NodePoolKey, Value: s.Partition}
}

func (s *Settings) profile() (engine.Profile, error) {
	if s.SchedulerConf == "" {
		return profile.BuiltIn(), nil
	}
	text, err := os.ReadFile(s.SchedulerConf)
	if err != nil {
		return engine.Profile{}, fmt.Errorf("--scheduler-conf: %w", err)
	}
	p, err := profile.Parse(text)
	if err != nil {
		return engine.Profile{}, fmt.Errorf("%s: %w", s.SchedulerConf, err)
	}
	return p, nil
}

func (s *Settings) feed() feed.Options {
	return feed.Options{
		SchedulerNames: s.SchedulerNames, Partition: s.partition(), ReservationApp: s.ReservationApp, FlatQueues: !s.FullHierarchy,
		RestrictNodes: s.RestrictNodes, GPUWorkerLabel: s.GPUWorkerLabel, CPUWorkerLabel: s.CPUWorkerLabel, StorageCapacity: s.CSIStorage,
	}
}

func (s *Settings) loop() scheduler.Options {
	return scheduler.Options{Period: s.Period, StuckAfter: s.StuckAfter}
}

func (s *Settings) reports() apply.ReportOptions {
	return apply.ReportOptions{Pool: s.partition().Pool(), Detailed: s.DetailedReasons}
}

func (s *Settings) binder() binder.Options {
	o := binder.DefaultOptions()
	o.MaxConcurrentReconciles = s.Workers
	o.RateLimiterBaseDelay, o.RateLimiterMaxDelay = time.Duration(s.RateLimiterBase)*time.Second, time.Duration(s.RateLimiterMax)*time.Second
	return o
}

func (s *Settings) podgrouper() (o podgrouper.Options, err error) {
	o = podgrouper.DefaultOptions()
	o.SchedulerNames, o.QueueLabel, o.NodePoolLabel = s.SchedulerNames, s.QueueLabel, s.NodePoolKey
	o.Workers, o.PodNamedGroups, o.DefaultsName, o.DefaultsNamespace = s.Workers, s.PlainGroups, s.DefaultsName, s.DefaultsSpace
	if o.PodSelector, err = parseLabels("pod-label-selector", s.PodSelector); err != nil {
		return o, err
	}
	o.NamespaceSelector, err = parseLabels("namespace-label-selector", s.NamespaceChooser)
	return o, err
}

func (s *Settings) podgroup() podgroup.Options {
	o := podgroup.DefaultOptions()
	o.SchedulerNames, o.MaxConcurrentReconciles = s.SchedulerNames, s.Workers
	return o
}

func (s *Settings) queue() queue.Options {
	return queue.Options{MetricsNamespace: s.MetricsNamespace, LabelToMetricLabel: s.LabelToMetric, LabelToDefaultMetricValue: s.LabelToDefault}
}

// parseLabels reads "k=v,k=v".
func parseLabels(flag, text string) (map[string]string, error) {
	if text == "" {
		return nil, nil
	}
	out := map[string]string{}
	for part := range strings.SplitSeq(text, ",") {
		k, v, ok := strings.Cut(strings.TrimSpace(part), "=")
		if !ok || k == "" {
			return nil, fmt.Errorf("--%s: %q is not of the form key=value,key=value", flag, text)
		}
		out[k] = v
	}
	return out, nil
}

// serviceAccountNamespace is the file in which a pod finds its own namespace.
const serviceAccountNamespace = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

// home is the namespace of the Leases when no flag names one: $NAMESPACE, else the namespace of the pod this runs in, else
// KAI's.
func home(lookup func(string) (string, bool), file string) string {
	if name, ok := lookup("NAMESPACE"); ok && name != "" {
		return name
	}
	if text, err := os.ReadFile(file); err == nil && len(strings.TrimSpace(string(text))) > 0 {
		return strings.TrimSpace(string(text))
	}
	return keys.Namespace
}
