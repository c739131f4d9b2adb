package roles

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/muster-scheduler/muster/api/kai/keys"
	"github.com/muster-scheduler/muster/internal/app"
	"github.com/muster-scheduler/muster/internal/controllers/admission"
	"github.com/muster-scheduler/muster/internal/controllers/binder"
	"github.com/muster-scheduler/muster/internal/controllers/nodescale"
	"github.com/muster-scheduler/muster/internal/controllers/operator"
	"github.com/muster-scheduler/muster/internal/controllers/podgroup"
	"github.com/muster-scheduler/muster/internal/controllers/podgrouper"
	"github.com/muster-scheduler/muster/internal/controllers/queue"
	"github.com/muster-scheduler/muster/internal/controllers/reservation"
	"github.com/muster-scheduler/muster/internal/dialect/kai"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/engine/builtin"
	"github.com/muster-scheduler/muster/internal/install"
	"github.com/muster-scheduler/muster/internal/kube/apply"
	"github.com/muster-scheduler/muster/internal/kube/feed"
	"github.com/muster-scheduler/muster/internal/kube/textfile"
	"github.com/muster-scheduler/muster/internal/profile"
	"github.com/muster-scheduler/muster/internal/profile/volcano"
	"github.com/muster-scheduler/muster/internal/scheduler"
	"github.com/muster-scheduler/muster/internal/usage"
)

// The functions of this file hand what the flags say to the packages that act on it. A field of Settings that none of
// them reads is a flag without effect.

func (s *Settings) partition() kai.Partition {
	return kai.Partition{Key: s.NodePoolKey, Value: s.Partition}
}

func (s *Settings) profile() (engine.Profile, error) {
	text, err := s.conf()
	if err != nil {
		return engine.Profile{}, err
	}
	p := profile.BuiltIn()
	if text != nil {
		if p, err = profile.Parse(text); err != nil {
			return engine.Profile{}, fmt.Errorf("%s: %w", s.SchedulerConf, err)
		}
	}
	if s.VolcanoConf+s.VolcanoMap != "" {
		file, err := s.volcanoFile()
		if err != nil {
			return engine.Profile{}, err
		}
		p.Faces = append(p.Faces, file.Face)
	}
	if len(s.KubeBatchNames) > 0 {
		file, err := s.kubeBatchFile()
		if err != nil {
			return engine.Profile{}, err
		}
		p.Faces = append(p.Faces, file.Face)
	}
	if s.QueueGates {
		p.Actions = append([]string{builtin.QueueGates}, p.Actions...)
	}
	p.Settings.ConsolidationVictims, p.Settings.MovedAreFree, p.Settings.StaleGrace = s.MaxMoved, s.MovedAreFree, s.StaleGrace
	return p, nil
}

// mostOfFile is how much of a file is read: enough to say that it is too long.
const mostOfFile = 4 * volcano.MostBytes

// lease is the times of Leases.
func (s *Settings) lease() app.LeaseTimes {
	return app.LeaseTimes{Lease: s.LeaseDuration, Renew: s.RenewDeadline, Retry: s.RetryPeriod}
}

// usage is where the history of usage comes from; nil for none.
func (s *Settings) usage() (*usage.Config, error) {
	text, err := s.conf()
	if text == nil {
		return nil, err
	}
	c, err := profile.Usage(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.SchedulerConf, err)
	}
	return c, nil
}

// conf is the text of the scheduler's configuration file; nil if there is none.
func (s *Settings) conf() ([]byte, error) {
	if s.SchedulerConf == "" {
		return nil, nil
	}
	text, err := os.ReadFile(s.SchedulerConf)
	if err != nil {
		return nil, fmt.Errorf("--scheduler-conf: %w", err)
	}
	return text, nil
}

// The values of --bind-requests.
const (
	bindRequestsNeeded = "needed"
	bindRequestsAll    = "all"
)

func (s *Settings) binds() (apply.BindOptions, error) {
	o := apply.BindOptions{Partition: s.partition(), Alone: cmp.Or(s.BindRequests, bindRequestsNeeded) == bindRequestsNeeded} // "" where no flags are read
	if !o.Alone && s.BindRequests != bindRequestsAll {
		return o, fmt.Errorf("--bind-requests: %q is neither %s nor %s", s.BindRequests, bindRequestsNeeded, bindRequestsAll)
	}
	if o.Alone {
		o.Records = s.Namespace
	}
	return o, nil
}

func (s *Settings) evictions() (apply.EvictionOptions, error) {
	o := apply.EvictionOptions{Mode: apply.Mode(s.EvictionMode), Mark: s.MarkEvictions, MaxGrace: s.MaxGrace}
	if o.Mode != apply.ByEviction && o.Mode != apply.ByDelete {
		return o, fmt.Errorf("--eviction-mode: %q is neither %s nor %s", s.EvictionMode, apply.ByEviction, apply.ByDelete)
	}
	if o.MaxGrace < 0 || o.MaxGrace > 0 && o.MaxGrace < time.Second {
		return o, fmt.Errorf("--max-eviction-grace: must be 0 or at least a second, is %s", o.MaxGrace)
	}
	return o, nil
}

func (s *Settings) feed() feed.Options {
	return feed.Options{
		SchedulerNames: s.SchedulerNames, Volcano: s.VolcanoNames, KubeBatch: s.kubeBatch(), Sharding: s.sharding(), Partition: s.partition(), FlatQueues: !s.FullHierarchy,
		ReservationApp: s.ReservationApp, ReservationSpace: s.ReservationSpace, ScalingSpace: s.ScalingSpace,
		RestrictNodes: s.RestrictNodes, GPUWorkerLabel: s.GPUWorkerLabel, CPUWorkerLabel: s.CPUWorkerLabel, MIGWorkerLabel: s.MIGWorkerLabel,
		StorageCapacity: s.CSIStorage, QueueLabel: s.QueueLabel,
	}
}

func (s *Settings) loop() scheduler.Options {
	return scheduler.Options{Period: s.Period, StuckAfter: s.StuckAfter}
}

func (s *Settings) statusOptions() (apply.StatusOptions, error) {
	o := apply.StatusOptions{Pool: s.partition().Pool(), Detailed: s.DetailedReasons, Unschedulable: apply.Unschedulable(s.Unschedulable)}
	switch o.Unschedulable {
	case apply.UnschedulableAuto, apply.UnschedulableAlways, apply.UnschedulableIfNodesHelp:
		return o, nil
	}
	return o, fmt.Errorf("--unschedulable-reason: %q is neither %s nor %s nor %s", s.Unschedulable, apply.UnschedulableAuto, apply.UnschedulableAlways, apply.UnschedulableIfNodesHelp)
}

func (s *Settings) binder() (o binder.Options, err error) {
	o = binder.DefaultOptions()
	o.MaxConcurrentReconciles = s.Workers
	o.RateLimiterBaseDelay, o.RateLimiterMaxDelay = time.Duration(s.RateLimiterBase)*time.Second, time.Duration(s.RateLimiterMax)*time.Second
	if o.Plugins, err = binder.ParsePlugins(s.BinderPlugins); err != nil {
		return o, fmt.Errorf("--%w", err)
	}
	o.PrepareTimeout = 0
	for _, p := range o.Plugins {
		t, err := p.Timeout(binder.DefaultOptions().PrepareTimeout)
		if err != nil {
			return o, fmt.Errorf("--%w", err)
		}
		o.PrepareTimeout = max(o.PrepareTimeout, t)
	}
	return o, nil
}

// reservation is how shared devices are held; plugins are the binder's.
func (s *Settings) reservation(plugins []binder.Plugin) (o reservation.Options, err error) {
	o = reservation.DefaultOptions()
	o.Namespace, o.ServiceAccount, o.App, o.Image = s.ReservationSpace, s.ReservationAccount, s.ReservationApp, s.ReservationImage
	o.Timeout, o.ScalingNamespace = time.Duration(s.ReservationTimeout)*time.Second, s.ScalingSpace
	o.Simulated, o.RuntimeClass = s.FakeGPUs, s.RuntimeClass
	sharing := binder.Find(plugins, binder.PluginGPUSharing)
	o.Maps, o.MemoryLimits = sharing.Enabled, binder.Find(plugins, binder.PluginHAMiCore).Enabled
	if o.CDI, err = sharing.CDI(); err != nil {
		return o, fmt.Errorf("--%w", err)
	}
	for _, flag := range []struct {
		name, text string
		into       any
	}{
		{"resource-reservation-pod-resources", s.ReservationResources, &o.Resources},
		{"resource-reservation-pod-security-context", s.ReservationPodSec, &o.PodSecurity},
		{"resource-reservation-container-security-context", s.ReservationSecurity, &o.ContainerSecurity},
	} {
		if flag.text == "" {
			continue
		}
		if err := json.Unmarshal([]byte(flag.text), flag.into); err != nil {
			return o, fmt.Errorf("--%s: %w", flag.name, err)
		}
	}
	return o, nil
}

// The values of --podgroups.
const (
	podGroupsNeeded = "needed"
	podGroupsAll    = "all"
)

func (s *Settings) podgrouper() (o podgrouper.Options, err error) {
	o = podgrouper.DefaultOptions()
	switch which := cmp.Or(s.PodGroups, podGroupsNeeded); which { // "" where no flags are read
	case podGroupsNeeded, podGroupsAll:
		o.OwnGangs = which == podGroupsNeeded
	default:
		return o, fmt.Errorf("--podgroups: %q is neither %s nor %s", which, podGroupsNeeded, podGroupsAll)
	}
	o.SchedulerNames, o.QueueLabel, o.NodePoolLabel = s.SchedulerNames, s.QueueLabel, s.NodePoolKey
	o.Workers, o.PodNamedGroups, o.DefaultsName, o.DefaultsNamespace = s.Workers, s.PlainGroups, s.DefaultsName, s.DefaultsSpace
	o.KnativeGangs, o.Definitions, o.AuthorizeQueues = s.KnativeGangs, s.Definitions, s.AuthorizeQueues
	if o.PodSelector, err = parseLabels("pod-label-selector", s.PodSelector); err != nil {
		return o, err
	}
	o.NamespaceSelector, err = parseLabels("namespace-label-selector", s.NamespaceChooser)
	return o, err
}

func (s *Settings) podgroup() podgroup.Options {
	o := podgroup.DefaultOptions()
	o.SchedulerNames, o.MaxConcurrentReconciles, o.QueueLabel = s.SchedulerNames, s.Workers, s.QueueLabel
	return o
}

func (s *Settings) queue() queue.Options {
	return queue.Options{MetricsNamespace: s.MetricsNamespace, LabelToMetricLabel: s.LabelToMetric, LabelToDefaultMetricValue: s.LabelToDefault}
}

func (s *Settings) nodescale() nodescale.Options {
	return nodescale.Options{
		SchedulerNames: s.SchedulerNames, Namespace: s.ScalingSpace, App: s.ScalingApp, ServiceAccount: s.ScalingUser, Image: s.ScalingImage,
		MemoryRatio: s.MemoryRatio, NodePoolLabel: s.NodePoolKey,
	}
}

func (s *Settings) admission() (o admission.Options, err error) {
	o = admission.DefaultOptions()
	o.SchedulerNames, o.GPUSharing, o.MemoryLimits, o.GuardDevices, o.Quotas = s.SchedulerNames, s.GPUSharing, s.HAMiCore, s.GuardDevices, s.Quotas
	o.Host = app.ListenHost()
	o.Namespace, o.Port, o.URL, o.Secret, o.Mutating, o.Validating = s.Namespace, s.WebhookPort, s.WebhookURL, s.WebhookSecret, s.Mutating, s.Validating
	o.QueueWebhook, o.PodGroupWebhook = "", ""
	if s.QueueWebhook {
		o.QueueWebhook = s.QueueConfig
	}
	if s.PodGroupWebhook {
		o.PodGroupWebhook = s.PodGroupConfig
	}
	o.QueueLabel, o.ReservationApp, o.QueueLabelSelector = s.QueueLabel, s.ReservationApp, s.QueueNamespaces
	o.Identity, o.AuthorizeQueues, o.KAINames = admission.Mode(s.Identity), s.AuthorizeQueues, s.KAINames
	o.ForbidForeignGPUs = s.ForbidForeignGPUs
	o.Volcano, o.VolcanoQueues, o.VolcanoGates = s.VolcanoNames, s.VolcanoQueues, s.QueueGates
	if s.GroupsMap != "" {
		ref, err := textfile.ParseRef(s.GroupsMap)
		switch {
		case err != nil:
			return o, fmt.Errorf("--%s: %w", groupsMapFlag, err)
		case len(s.VolcanoNames) == 0:
			return o, fmt.Errorf("--%s: there are no resource groups of Volcano's without --volcano-scheduler-name", groupsMapFlag)
		}
		o.VolcanoGroupsIn = ref.Namespace
	}
	o.TrustedNamespaces, o.ClientCA = []string{s.ReservationSpace}, s.ClientCA
	if len(s.TrustedUsers) > 0 {
		o.Trusted = s.TrustedUsers
	}
	for _, given := range []string{s.OlderSharingClass, s.SharingClass} { // the later one has precedence
		if given != unset {
			o.RuntimeClass = given
		}
	}
	if o.PodSelector, err = parseLabels("pod-label-selector", s.PodSelector); err != nil {
		return o, err
	}
	o.NamespaceSelector, err = parseLabels("namespace-label-selector", s.NamespaceChooser)
	return o, err
}

// Environment of the operator, as KAI's: where images come from that Config does not say it of.
const (
	envRepository = "MS_REPOSITORY"
	envTag        = "MS_TAG"
	envDigest     = "MS_DIGEST"      // of the image of all roles
	envNodeDigest = "MS_NODE_DIGEST" // of the image of what runs on nodes
)

func (s *Settings) operator(lookup func(string) string) operator.Options {
	return operator.Options{
		Repository: lookup(envRepository), Tag: lookup(envTag), Digests: map[string]string{install.Program: lookup(envDigest), install.NodeProgram: lookup(envNodeDigest)}, PullSecret: s.PullSecret, SchedulerFlags: FlagNames(Scheduler), Check: CheckProfile,
	}
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
