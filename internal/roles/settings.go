package roles

import (
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/pflag"

	"github.com/muster-scheduler/muster/api/kai/keys"
	volcano "github.com/muster-scheduler/muster/api/volcano/keys"
	"github.com/muster-scheduler/muster/docs/ledgers"
	"github.com/muster-scheduler/muster/internal/app"
	"github.com/muster-scheduler/muster/internal/controllers/admission"
	vcreview "github.com/muster-scheduler/muster/internal/controllers/admission/volcano"
	"github.com/muster-scheduler/muster/internal/controllers/nodescale"
	"github.com/muster-scheduler/muster/internal/controllers/reservation"
	"github.com/muster-scheduler/muster/internal/dialect/volcano/nodeshards"
	"github.com/muster-scheduler/muster/internal/kube/apply"
	"github.com/muster-scheduler/muster/internal/kube/write"
)

// The roles, in the order in which they are started and listed.
const (
	Scheduler  = "scheduler"
	Binder     = "binder"
	PodGrouper = "podgrouper"
	PodGroup   = "podgroup"
	Queue      = "queue"
	Admission  = "admission"
	NodeScale  = "nodescale"
	Operator   = "operator"
	UI         = "ui"
	All        = "all"

	// VolcanoControllers is the program of Volcano's that it takes the place of.
	VolcanoControllers = "vc-controller-manager"
)

// Names lists the roles a process can run one of, without All.
func Names() []string { return rolesNamed(false) }

// Apart lists the roles that are no part of All: the operator deploys the others, Volcano's controllers have the flags, the Lease and the
// rights of another face, and who answers people has rights of his own, and dies alone.
func Apart() []string { return rolesNamed(true) }

// FlagNames lists the flags of a role, KAI's that have no effect included; none for an unknown role.
func FlagNames(role string) []string {
	var names []string
	fs := pflag.NewFlagSet(role, pflag.ContinueOnError)
	if err := (&Settings{}).flags(role, fs); err != nil {
		return nil
	}
	fs.VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	return names
}

// pluginPort is where KAI's scheduler answers questions, and probeAddress where KAI's other programs answer probes.
const (
	pluginPort   = 8081
	probeFlag    = "health-probe-bind-address"
	probeAddress = ":8081"
)

// Settings is everything the flags of the roles say. Roles of one process share what they have in common.
type Settings struct {
	Client app.ClientOptions
	Log    app.LogOptions

	SchedulerNames   []string
	Namespace        string
	MetricsNamespace string
	Listen           string
	ProbeListen      string
	LeaderElect      bool
	LeaseDuration    time.Duration
	RenewDeadline    time.Duration
	RetryPeriod      time.Duration
	HungAfter        time.Duration
	Profiler         bool
	ProfilerPort     int

	VolcanoNames    []string
	VolcanoQueues   vcreview.QueueRules
	VolcanoConf     string
	VolcanoMap      string
	GroupsMap       string
	KubeBatchNames  []string
	KubeBatchQueue  string
	KubeBatchConf   string
	KubeBatchClass  bool
	ShardingMode    string
	ShardingName    string
	ShardingMap     string
	ShardingSpace   string
	QueueGates      bool
	QueueAllocated  bool
	SchedulerConf   string
	Period          time.Duration
	StuckAfter      time.Duration
	NodePoolKey     string
	Partition       string
	QueueLabel      string
	ReservationApp  string
	RestrictNodes   bool
	CPUWorkerLabel  string
	GPUWorkerLabel  string
	MIGWorkerLabel  string
	CSIStorage      bool
	FullHierarchy   bool
	DetailedReasons bool
	Unschedulable   string
	ShowVersion     bool
	EvictionMode    string
	BindRequests    string
	PodGroups       string
	MarkEvictions   bool
	MaxGrace        time.Duration
	MaxMoved        int
	MovedAreFree    bool
	StaleGrace      time.Duration
	PluginPort      int
	CycleListen     string
	UIListen        string
	UICert          string
	UIKey           string
	Journal         string
	JournalKeep     time.Duration
	JournalBytes    string
	ForecastEvery   time.Duration
	Explain         bool
	RecordDecisions int

	ReservationSpace     string
	ReservationAccount   string
	ReservationImage     string
	ReservationTimeout   int
	ReservationResources string
	ReservationPodSec    string
	ReservationSecurity  string
	ScalingSpace         string
	FakeGPUs             bool
	BinderPlugins        string
	RuntimeClass         string

	Workers          int
	RateLimiterBase  int
	RateLimiterMax   int
	PlainGroups      bool
	KnativeGangs     bool
	Definitions      bool
	DefaultsName     string
	DefaultsSpace    string
	PodSelector      string
	NamespaceChooser string

	WithNodeScale bool
	ScalingImage  string
	ScalingApp    string
	ScalingUser   string
	MemoryRatio   float64
	PullSecret    string

	LabelToMetric  string
	LabelToDefault string

	WithAdmission     bool
	WebhookPort       int
	WebhookURL        string
	WebhookSecret     string
	Mutating          string
	Validating        string
	GPUSharing        bool
	HAMiCore          bool
	GuardDevices      bool
	QueueWebhook      bool
	PodGroupWebhook   bool
	QueueConfig       string
	PodGroupConfig    string
	Quotas            bool
	QueueNamespaces   bool
	Identity          string
	TrustedUsers      []string
	ClientCA          string
	AuthorizeQueues   bool
	Controllers       []string
	QueueWorkers      int
	CollectorWorkers  int
	CronWorkers       int
	GroupWorkers      int
	InheritNotes      bool
	NameAfter         time.Duration
	MaxRequeue        int
	KAINames          bool
	ForbidForeignGPUs bool
	SharingClass      string
	OlderSharingClass string
}

// flags declares the flags of one role on fs. A flag another role has declared already is shared. Flags of KAI's that have
// no effect here are taken from the ledger, accepted with KAI's default, and hidden from the help.
func (s *Settings) flags(role string, fs *pflag.FlagSet) error {
	own := pflag.NewFlagSet(role, pflag.ContinueOnError)
	r, err := roleOf(role)
	if err != nil {
		return err
	}
	if s.Client == (app.ClientOptions{}) {
		s.Client = app.DefaultClientOptions()
		if role == VolcanoControllers {
			s.Client = volcanoClientOptions()
		}
	}
	app.BindClientFlags(own, &s.Client)
	ours := keys.SchedulerName
	if role == VolcanoControllers {
		ours = volcano.SchedulerName
	}
	own.StringSliceVar(&s.SchedulerNames, "scheduler-name", []string{ours}, "spec.schedulerName of the pods that are ours; repeat it, or separate names by commas, to answer to several")
	own.BoolVar(&s.LeaderElect, "leader-elect", false, "hold a Lease while working, so that a second process can stand by")
	times := app.DefaultLeaseTimes()
	own.DurationVar(&s.LeaseDuration, "lease-duration", times.Lease, "how long others wait after the last renewal of a Lease before they take over; whole seconds")
	own.DurationVar(&s.RenewDeadline, "renew-deadline", times.Renew, "for how long after a renewal of its Lease a leader writes; below --lease-duration")
	own.DurationVar(&s.RetryPeriod, "retry-period", times.Retry, "time between two attempts to renew a Lease, or to take it over; at most half of --renew-deadline")
	own.DurationVar(&s.HungAfter, "hung-after", app.DefaultHungAfter, "after how long without getting on the role's work counts as hung: /healthz says so, and a leader gives up its Lease; 0 for never")
	namespace, otherwise := keys.Namespace, "; not given: $NAMESPACE, else the namespace of the pod this runs in"
	switch {
	case role == Operator:
		namespace = "runai-engine" // KAI's; it only ever counts outside of a pod
	case r.home != "":
		namespace, otherwise = r.home, ", wherever this runs"
	}
	own.StringVar(&s.Namespace, "namespace", namespace, "namespace of the Leases"+otherwise)
	r.flags(s, own)
	if role != Scheduler && role != VolcanoControllers {
		app.BindZapFlags(own, &s.Log)
		if role != Queue {
			own.StringVar(&s.Listen, "metrics-bind-address", ":8080", "address of /metrics; empty or 0 for none")
			own.StringVar(&s.ProbeListen, probeFlag, probeAddress, "address of /healthz and /readyz; empty or 0 for none")
		}
	}
	if r.kai != "" {
		if err := acceptKAI(r.kai, own); err != nil {
			return err
		}
	}
	own.VisitAll(func(f *pflag.Flag) {
		if fs.Lookup(f.Name) == nil {
			fs.AddFlag(f)
		}
	})
	return nil
}

// schedulerFlags declares the flags of the role scheduler.
func (s *Settings) schedulerFlags(fs *pflag.FlagSet) {
	s.Log.Verbosity = 3 // KAI's scheduler tells the story of its decisions unless asked not to
	app.BindLogFlags(fs, &s.Log)
	fs.StringVar(&s.Listen, "listen-address", ":8080", "address of /metrics, /healthz and /readyz; empty or 0 for none")
	fs.StringVar(&s.MetricsNamespace, "metrics-namespace", keys.MetricsNamespace, "what the names of KAI's metrics begin with")
	s.profilerFlags(fs)
	fs.StringSliceVar(&s.VolcanoNames, "volcano-scheduler-name", nil, "spec.schedulerName of the pods that are Volcano's, whose PodGroups and Queues are read then; none: such pods are somebody else's")
	fs.StringVar(&s.VolcanoConf, volcanoConfFlag, "", "scheduler file in Volcano's format, followed live, for the gangs that are Volcano's: actions, tiers, plugins. Empty, with the next one: they are admitted by their queue alone, and all actions are done for them")
	fs.StringVar(&s.VolcanoMap, volcanoMapFlag, "", "the same in a ConfigMap, NAMESPACE/NAME:KEY, or NAMESPACE/NAME of one with one key. It takes the rights to list and watch it")
	s.kubeBatchFlags(fs)
	fs.StringVar(&s.ShardingMode, shardingModeFlag, string(nodeshards.None), "what the NodeShard of Volcano's means for the pods that are Volcano's: none, nothing; soft, they are placed on its nodes first; hard, on no others")
	fs.StringVar(&s.ShardingName, "scheduler-sharding-name", volcano.SchedulerName, "name of that NodeShard, whose status the scheduler writes")
	fs.BoolVar(&s.QueueGates, queueGatesFlag, false, "have Volcano's queues let pods in that ask for it, by annotation, and take the scheduling gate scheduling.volcano.sh/queue-allocation-gate off them. It takes the right to patch pods")
	fs.StringVar(&s.SchedulerConf, "scheduler-conf", "", "configuration file in KAI's format; empty for the built-in one")
	fs.DurationVar(&s.Period, "schedule-period", time.Second, "longest time between two looks at the cluster")
	fs.DurationVar(&s.StuckAfter, "stuck-in-releasing-threshold", 2*time.Minute, "after how long past its grace a pod that does not go stops being counted as leaving")
	fs.StringVar(&s.EvictionMode, "eviction-mode", string(apply.ByEviction), "how pods are evicted: eviction keeps PodDisruptionBudgets, delete does not ask them")
	fs.StringVar(&s.BindRequests, "bind-requests", bindRequestsNeeded, "who gets a BindRequest: needed, gangs one of whose pods something must be prepared for, the others being bound by the scheduler; or all, as with KAI")
	fs.DurationVar(&s.MaxGrace, "max-eviction-grace", write.MaxGrace, "longest grace period of a pod that is evicted, whatever it says itself; 0 leaves every pod its own")
	fs.BoolVar(&s.MarkEvictions, "update-pod-eviction-condition", false, "mark pods as targets of a disruption before they are deleted; the eviction API always does")
	fs.IntVar(&s.MaxMoved, "max-consolidation-preemptees", 16, "how many gangs one consolidation may move; 0 for none, a negative number for any")
	fs.BoolVar(&s.MovedAreFree, "allow-consolidating-reclaim", true, "do not count what reclaim moves elsewhere as taken")
	fs.DurationVar(&s.StaleGrace, "default-staleness-grace-period", time.Minute, "how long a gang may have fewer pods than its minimum before it is released; negative for ever")
	fs.IntVar(&s.PluginPort, "plugin-server-port", pluginPort, "port on 127.0.0.1 that tells the latest evictions (/decisions) and what was decided on (/snapshot, /get-snapshot, /get-job-order); 0 for none")
	fs.StringVar(&s.CycleListen, cycleFlag, "", "address at which each cycle is served over TLS to callers that may get the path /cycle, such as :8443; empty or 0 for none. It takes the right to create TokenReviews and SubjectAccessReviews")
	fs.BoolVar(&s.Explain, "explain-gangs", false, "write into the PodGroup of each gang that waits, as the annotation muster.dev/why, why it does and what would change that: at most 5 a second, and once a minute for a gang. It takes a tenth of a processor while the cluster changes")
	fs.IntVar(&s.RecordDecisions, "record-decisions", 0, "keep, for muster snapshot save --cycle, so many cycles that decided something, besides the latest one; each holds what has changed since")
	fs.StringVar(&s.NodePoolKey, "nodepool-label-key", keys.NodePoolLabel, "label by which shards divide nodes, queues and gangs")
	fs.StringVar(&s.Partition, "partition-label-value", "", "this shard's value of that label; empty for objects without it")
	fs.StringVar(&s.QueueLabel, "queue-label-key", keys.QueueLabel, "label that names the queue")
	fs.StringVar(&s.ReservationApp, "resource-reservation-app-label", "kai-resource-reservation", "value of the label app on GPU reservation pods")
	fs.StringVar(&s.ReservationSpace, "resource-reservation-namespace", keys.ReservationNamespace, "namespace of those pods; the label counts nowhere else")
	fs.StringVar(&s.ScalingSpace, "scale-adjust-namespace", keys.ScaleAdjustNamespace, "namespace of the pods that show demand to a cluster autoscaler")
	fs.BoolVar(&s.RestrictNodes, "restrict-node-scheduling", false, "place GPU pods only on GPU workers and other pods only on CPU workers")
	fs.StringVar(&s.CPUWorkerLabel, "cpu-worker-node-label-key", keys.CPUWorkerNodeLabel, "label of CPU workers")
	fs.StringVar(&s.GPUWorkerLabel, "gpu-worker-node-label-key", keys.GPUWorkerNodeLabel, "label of GPU workers")
	fs.StringVar(&s.MIGWorkerLabel, "mig-worker-node-label-key", keys.MIGWorkerNodeLabel, "label that says whether the GPUs of a node are cut into MIG slices")
	fs.BoolVar(&s.CSIStorage, "schedule-csi-storage", false, "take the capacity CSI drivers publish into account")
	fs.BoolVar(&s.FullHierarchy, "full-hierarchy-fairness", true, "divide the cluster level by level; false puts all queues side by side")
	fs.BoolVar(&s.DetailedReasons, "detailed-fit-errors", false, "say in every reason what each group of nodes answered")
	fs.StringVar(&s.Unschedulable, "unschedulable-reason", string(apply.UnschedulableAuto), "which pods that wait give Unschedulable as the reason: always, if-nodes-help, or auto, which is the latter where an autoscaler buys nodes for such pods")
	fs.BoolVar(&s.ShowVersion, "version", true, "log the version at start")
}

// profilerFlags declares those of the roles whose profiles are served.
func (s *Settings) profilerFlags(fs *pflag.FlagSet) {
	fs.BoolVar(&s.Profiler, "enable-profiler", false, "serve /debug/pprof on 127.0.0.1")
	fs.IntVar(&s.ProfilerPort, "profiler-port", 8182, "port of the profiler")
}

// binderFlags declares the flags of the role binder.
func (s *Settings) binderFlags(fs *pflag.FlagSet) {
	fs.IntVar(&s.Workers, "max-concurrent-reconciles", 10, "requests worked on at a time")
	fs.IntVar(&s.RateLimiterBase, "rate-limiter-base-delay", 1, "seconds before the first retry of a failed bind")
	fs.IntVar(&s.RateLimiterMax, "rate-limiter-max-delay", 60, "seconds between retries at most")
	fs.StringVar(&s.ReservationSpace, "resource-reservation-namespace", keys.ReservationNamespace, "namespace of the pods that hold shared GPUs")
	fs.StringVar(&s.ReservationAccount, "resource-reservation-service-account", keys.ReservationNamespace, "their service account")
	fs.StringVar(&s.ReservationApp, "resource-reservation-app-label", keys.ReservationNamespace, "value of their label app")
	fs.StringVar(&s.ReservationImage, "resource-reservation-pod-image", reservation.DefaultOptions().Image, "their image; it is given the argument reservation, which Muster's needs, unless its name is that of KAI's")
	fs.IntVar(&s.ReservationTimeout, "resource-reservation-allocation-timeout", 40, "seconds within which they have to report their device")
	fs.StringVar(&s.ReservationResources, "resource-reservation-pod-resources", "", "what they ask for besides a GPU, as JSON")
	fs.StringVar(&s.ReservationPodSec, "resource-reservation-pod-security-context", "", "their security context, as JSON")
	fs.StringVar(&s.ReservationSecurity, "resource-reservation-container-security-context", "", "that of their container, as JSON")
	fs.StringVar(&s.ScalingSpace, "scale-adjust-namespace", keys.ScaleAdjustNamespace, "namespace of the pods that show demand to a cluster autoscaler; while they wait, no GPU is newly shared")
	fs.BoolVar(&s.FakeGPUs, "fake-gpu-nodes", false, "GPUs are simulated: the pods that hold them only sleep")
	fs.StringVar(&s.BinderPlugins, "plugins", "", "what differs from the usual plugins, as JSON: {name: {enabled, priority, arguments}}")
	fs.StringVar(&s.RuntimeClass, "runtime-class-name", "", "runtime class of the pods that hold shared GPUs; empty for the cluster's default")
}

// podGrouperFlags declares the flags of the role podgrouper.
func (s *Settings) podGrouperFlags(fs *pflag.FlagSet) {
	fs.IntVar(&s.Workers, "max-concurrent-reconciles", 10, "pods worked on at a time")
	fs.StringVar(&s.QueueLabel, "queue-label-key", keys.QueueLabel, "label that names the queue")
	fs.StringVar(&s.NodePoolKey, "nodepool-label-key", keys.NodePoolLabel, "label by which shards divide gangs")
	fs.BoolVar(&s.PlainGroups, "search-legacy-pg", true, "take over PodGroups that old installations named after a pod")
	fs.BoolVar(&s.KnativeGangs, "knative-gang-schedule", true, "make one gang of each revision of a Knative service, not of each pod")
	fs.BoolVar(&s.Definitions, "generic-karta-fallback", true, "let Karta objects define kinds of workloads that have no rule")
	fs.StringVar(&s.PodGroups, "podgroups", podGroupsNeeded, "which gangs get a PodGroup: needed, those of more than one pod and those that wait, a pod that is alone in its gang having all of it in an annotation; or all, as with KAI")
	fs.StringVar(&s.DefaultsName, "default-priorities-configmap-name", "", "ConfigMap with defaults per kind of workload")
	fs.StringVar(&s.DefaultsSpace, "default-priorities-configmap-namespace", "", "its namespace")
	fs.BoolVar(&s.AuthorizeQueues, "authorize-queues", false, "queues are authorized: take a queue only from what the admission policies judge")
	fs.StringVar(&s.PodSelector, "pod-label-selector", "", "only pods with these labels, k=v,k=v")
	fs.StringVar(&s.NamespaceChooser, "namespace-label-selector", "", "only pods of namespaces with these labels, k=v,k=v")
}

// operatorFlags declares the flags of the role operator.
func (s *Settings) operatorFlags(fs *pflag.FlagSet) {
	fs.StringVar(&s.PullSecret, "image-pull-secret", "", "a further pull secret of everything that is deployed")
}

// podGroupFlags declares the flags of the role podgroup.
func (s *Settings) podGroupFlags(fs *pflag.FlagSet) {
	fs.IntVar(&s.Workers, "max-concurrent-reconciles", 10, "statuses written at a time")
	fs.StringVar(&s.QueueLabel, "queue-label-key", keys.QueueLabel, "label that names the queue of pods of Kubernetes' own groups")
	s.podGroupWebhookFlag(fs)
}

// queueFlags declares the flags of the role queue.
func (s *Settings) queueFlags(fs *pflag.FlagSet) {
	s.queueWebhookFlags(fs)
	fs.StringVar(&s.MetricsNamespace, "metrics-namespace", keys.MetricsNamespace, "what the names of KAI's metrics begin with")
	fs.StringVar(&s.LabelToMetric, "queue-label-to-metric-label", "", "labels of queues to add to metrics, label=metric_label,…")
	fs.StringVar(&s.LabelToDefault, "queue-label-to-default-metric-value", "", "their values for queues without the label, label=value,…")
	fs.StringVar(&s.Listen, "metrics-listen-address", ":8080", "address of /metrics; empty or 0 for none")
}

// unset is the default of the flag that has precedence over an older one: nobody names a class so.
const unset = "\x00"

// admissionFlags declares the flags of the admission role, KAI's first and then ours.
func (s *Settings) admissionFlags(fs *pflag.FlagSet) {
	o := admission.DefaultOptions()
	fs.IntVar(&s.WebhookPort, "webhook-addr", o.Port, "port of the webhooks; 0 for any free one")
	fs.BoolVar(&s.GPUSharing, "gpu-sharing-enabled", o.GPUSharing, "let pods ask for parts of GPUs")
	fs.BoolVar(&s.HAMiCore, "hami-core-enabled", o.MemoryLimits, "hand containers that share a GPU the memory limit that HAMi-core enforces")
	fs.BoolVar(&s.GuardDevices, "block-nvidia-visible-devices", o.GuardDevices, "refuse containers that name their devices themselves, and hide the devices from those that ask for none")
	s.SharingClass, s.OlderSharingClass = unset, unset
	s.queueWebhookFlags(fs)
	s.podGroupWebhookFlag(fs)
	fs.StringVar(&s.QueueConfig, "queue-webhook-configuration", o.QueueWebhook, "configuration of the webhook for Queues, told to trust the role's certificates")
	fs.StringVar(&s.PodGroupConfig, "podgroup-webhook-configuration", o.PodGroupWebhook, "configuration of the webhook for PodGroups, told to trust the role's certificates")
	fs.StringVar(&s.QueueLabel, "queue-label-key", o.QueueLabel, "label that names the queue")
	fs.StringVar(&s.ReservationApp, "resource-reservation-app-label", o.ReservationApp, "value of the label app on pods that hold shared GPUs")
	fs.StringVar(&s.ReservationSpace, "resource-reservation-namespace", keys.ReservationNamespace, "namespace of those pods; what its service accounts say of pods is believed")
	fs.StringVar(&s.PodSelector, "pod-label-selector", "", "only pods with these labels, k=v,k=v")
	fs.StringVar(&s.NamespaceChooser, "namespace-label-selector", "", "only pods of namespaces with these labels, k=v,k=v")
	fs.BoolVar(&s.QueueNamespaces, "queue-label-selector", o.QueueLabelSelector, "only pods of namespaces that have the queue label")
	fs.StringVar(&s.Identity, "identity", string(o.Identity), "what becomes of a user who says what only Muster may say, such as which device a pod has: off, warn or enforce")
	fs.StringVar(&s.ClientCA, "webhook-client-ca-file", o.ClientCA, "certificates of who signs the API server's client certificate; empty to answer anybody")
	fs.StringSliceVar(&s.TrustedUsers, "trusted-users", o.Trusted, "names of users that may say it, besides the service accounts of the control plane")
	fs.BoolVar(&s.ForbidForeignGPUs, "forbid-foreign-gpus", o.ForbidForeignGPUs, "refuse pods of other schedulers that ask for GPUs, for which no queue is charged")
	fs.BoolVar(&s.KAINames, "kai-names", o.KAINames, "Muster's service accounts are called as KAI's are: the policies about them name those")
	fs.BoolVar(&s.AuthorizeQueues, "authorize-queues", o.AuthorizeQueues, "demand the verb use on a queue of whoever submits work to it")
	fs.Var(text{&s.SharingClass, o.RuntimeClass}, "gpu-fraction-runtime-class-name", "runtime class of pods that share a GPU and name none; empty to leave them as they are")
	fs.Var(text{&s.OlderSharingClass, o.RuntimeClass}, "gpu-pod-runtime-class-name", "the same under its older name; the newer one has precedence")
	fs.StringSliceVar(&s.VolcanoNames, "volcano-scheduler-name", nil, "spec.schedulerName of the pods that are Volcano's, whose Jobs, Queues and other kinds are completed and judged then; the first goes to Jobs that name none")
	fs.IntVar(&s.VolcanoQueues.MaxDepth, "max-queue-depth", o.VolcanoQueues.MaxDepth, "how many of Volcano's queues there may be one below the other, root not counted")
	fs.BoolVar(&s.VolcanoQueues.ProtectRoot, "enable-root-queue-protection", o.VolcanoQueues.ProtectRoot, "keep capability, deserved and guarantee of Volcano's queue root as they are")
	fs.BoolVar(&s.VolcanoQueues.KeepBusy, "enable-queue-allocated-pods-check", o.VolcanoQueues.KeepBusy, "refuse to delete one of Volcano's queues while pods run in it")
	fs.BoolVar(&s.QueueGates, queueGatesFlag, false, "put the scheduling gate of queues on pods of Volcano's that ask for it by annotation: only where the scheduler is given the same flag, which takes it off")
	fs.StringVar(&s.GroupsMap, groupsMapFlag, "", "Volcano's resource groups, by which the API server changes pods that are made: a ConfigMap, NAMESPACE/NAME:KEY, or NAMESPACE/NAME of one with one key. It takes the rights to list and watch it, and to list, watch, create and delete PodTemplates of its namespace")
	fs.BoolVar(&s.WithAdmission, "admission", false, "run the role admission too, where all roles run in one process")
	fs.StringVar(&s.WebhookURL, "webhook-url", o.URL, "how the API server reaches the webhooks where there is no Service, https://HOST:PORT; the role then creates the webhook configurations by itself")
	fs.StringVar(&s.WebhookSecret, "webhook-secret", o.Secret, "Secret of the certificates")
	fs.StringVar(&s.Mutating, "mutating-webhook-configuration", o.Mutating, "configuration that is told to trust the role's certificates")
	fs.StringVar(&s.Validating, "validating-webhook-configuration", o.Validating, "configuration that is told to trust the role's certificates")
}

// nodeScaleFlags declares the flags of the nodescale role, KAI's first and then ours.
func (s *Settings) nodeScaleFlags(fs *pflag.FlagSet) {
	o := nodescale.DefaultOptions()
	fs.StringVar(&s.ScalingImage, "scaling-pod-image", o.Image, "image of scaling pods; it must end at once, as Muster's does with the argument scalingpod, which they are given")
	fs.StringVar(&s.ScalingSpace, "scale-adjust-namespace", o.Namespace, "namespace of scaling pods")
	fs.StringVar(&s.ScalingApp, "scaling-pod-app-label", o.App, "value of their label app")
	fs.StringVar(&s.ScalingUser, "scaling-pod-service-account", o.ServiceAccount, "their service account")
	fs.Float64Var(&s.MemoryRatio, "gpu-memory-to-fraction-ratio", o.MemoryRatio, "what part of a GPU a pod counts as that asks for an amount of its memory")
	fs.StringVar(&s.NodePoolKey, "nodepool-label-key", o.NodePoolLabel, "label by which shards divide nodes: nodes for a pod that has it must have it too; empty for none")
	fs.BoolVar(&s.WithNodeScale, "nodescale", false, "run the role nodescale too, where all roles run in one process")
}

// queueWebhookFlags are KAI's flags of its queue controller, which judges Queues by itself. Here the role admission does, so that
// both roles take them.
func (s *Settings) queueWebhookFlags(fs *pflag.FlagSet) {
	fs.BoolVar(&s.QueueWebhook, "enable-webhook", true, "judge Queues before they exist (the role admission does)")
	fs.BoolVar(&s.Quotas, "enable-quota-validation", false, "warn of quotas that are more than the parent queue's (the role admission does)")
}

// podGroupWebhookFlag is KAI's flag of its podgroup controller.
func (s *Settings) podGroupWebhookFlag(fs *pflag.FlagSet) {
	fs.BoolVar(&s.PodGroupWebhook, "enable-podgroup-webhook", true, "judge PodGroups before they exist (the role admission does)")
}

// text is a flag's value that remembers whether it was given.
type text struct {
	to       *string
	fallback string
}

// String is the value as it stands.
func (v text) String() string {
	if v.to == nil || *v.to == unset {
		return v.fallback
	}
	return *v.to
}

// Set takes the value given.
func (v text) Set(s string) error {
	*v.to = s
	return nil
}

// Type is what the help calls it.
func (text) Type() string { return "string" }

// acceptKAI declares the flags of a program of KAI that nothing here reads.
func acceptKAI(program string, fs *pflag.FlagSet) error {
	rows, err := ledgers.Flags(program)
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(rows)) {
		row := rows[name]
		if fs.Lookup(name) != nil {
			continue
		}
		usage := "accepted, no effect: " + row.Accepted
		if row.Planned != "" {
			usage = "planned (" + row.Planned + "), no effect yet"
		}
		if _, err := strconv.ParseBool(row.Default); err == nil && row.Default != "0" && row.Default != "1" {
			fs.Bool(name, row.Default == "true", usage)
		} else {
			fs.String(name, row.Default, usage)
		}
		if err := fs.MarkHidden(name); err != nil {
			return err
		}
	}
	return nil
}
