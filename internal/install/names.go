package install

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/muster-scheduler/muster/internal/controllers/admission"
)

// The roles that an installation runs, as `muster run` calls them, and those of its parts that are no role of that program.
const (
	Scheduler  = "scheduler"
	Binder     = "binder"
	PodGrouper = "podgrouper"
	PodGroup   = "podgroup"
	Queue      = "queue"
	Admission  = "admission"
	NodeScale  = "nodescale"
	Operator   = "operator"
	// VolcanoControllers is no part of KAI's face: the chart installs it, where that is asked for.
	VolcanoControllers = "vc-controller-manager"
	// UI is no part of KAI's face either: it answers people, where that is asked for.
	UI = "ui"
	// VolcanoScheduler is no program and no account: it is what the scheduler's account may do besides where the scheduler reads Volcano's kinds.
	VolcanoScheduler = "scheduler-volcano"
	// VolcanoQueueGates is no program and no account either: it is what the scheduler's account may do besides where queues of Volcano's let pods in.
	VolcanoQueueGates = "scheduler-volcano-gates"
	// KubeBatchScheduler is no program and no account: it is what the scheduler's account may do besides where the scheduler reads kube-batch's kinds.
	KubeBatchScheduler = "scheduler-kube-batch"
	// VolcanoSchedulerFile is the ConfigMap of Volcano's scheduler file that the chart makes, in the control plane's namespace.
	VolcanoSchedulerFile = "muster-volcano-scheduler"
	// VolcanoAdmission is the same of the account of admission.
	VolcanoAdmission = "admission-volcano"

	// Reservation is the program in pods that hold shared GPUs, which the binder makes.
	Reservation = "reservation"
	// Exporter is the agent that reports NUMA placements.
	Exporter = "numa-exporter"
	// Prometheus is the store of metrics that the Prometheus operator runs for us, if Config asks for one.
	Prometheus = "prometheus"
)

// Roles lists everything that has an account of its own, in the order in which it is rendered. Those of ByChart are installed by the chart,
// all others by the operator.
func Roles() []string {
	return []string{Scheduler, Binder, PodGrouper, PodGroup, Queue, Admission, NodeScale, Operator, VolcanoControllers, UI, Reservation, Exporter, Prometheus}
}

// ByChart says whether the chart installs a role. Then the operator grants it nothing, and has none of its rights.
func ByChart(role string) bool { return role == Operator || role == VolcanoControllers || role == UI }

// prefix begins the names of what we install, so that it lies beside KAI's objects and not on top of them.
const prefix = "muster-"

// Name is the name of a role's Deployment or DaemonSet, ServiceAccount, Service, ClusterRole and bindings. The scheduler's
// Deployments and Services have SchedulerName instead: there is one per shard.
func Name(role string) string { return prefix + role }

// name is Name, or, in an installation that has KAI's names, KAI's name of the role's Deployment or DaemonSet, account and Service.
func (r *renderer) name(role string) string {
	if r.kaiNames() {
		return admission.KAIAccount(Name(role))
	}
	return Name(role)
}

// schedulerName is SchedulerName, or, in an installation that has KAI's names, SCHEDULER-SHARD after the name by which pods ask for it.
func (r *renderer) schedulerName(shard string) string {
	if r.kaiNames() {
		return fitted(*r.spec.Global.SchedulerName + "-" + shard)
	}
	return SchedulerName(shard)
}

// servesCycles says whether schedulers serve their cycles to the role ui.
func (r *renderer) servesCycles() bool { return r.notes[AnnotationUI] == "true" }

// kaiNames says whether the Config wants KAI's names.
func (r *renderer) kaiNames() bool { return r.notes[AnnotationKAINames] == "true" }

// SchedulerName is the name of the Deployment, Service and ConfigMap of a shard's scheduler: muster-scheduler-<shard>. A shard
// whose name fits no Service (more than 46 characters, or a dot) has its name shortened, with a hash of it at the end.
func SchedulerName(shard string) string { return fitted(Name(Scheduler) + "-" + shard) }

// fitted is name if it can name a Service and be a label's value; else a name derived from it that can, and that no other has.
func fitted(name string) string {
	if len(validation.IsDNS1035Label(name)) == 0 {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	short := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '-' {
			return r
		}
		return '-'
	}, strings.ToLower(name))
	const hash = 8
	if most := validation.DNS1035LabelMaxLength - hash - 1; len(short) > most {
		short = short[:most]
	}
	return strings.TrimRight(short, "-") + "-" + hex.EncodeToString(sum[:hash/2])
}

// Services by which other parts find a component, where KAI has fixed the name.
const (
	// AdmissionService is the Service of all webhooks; its certificate names it.
	AdmissionService = "admission"
	// PrometheusService is the Service of the store of metrics, which shards get as their usage history.
	PrometheusService = "usage-prometheus"
)

// Programs are the two images.
const (
	// Program is the image of all roles; its entry point is the muster binary.
	Program = "muster"
	// NodeProgram is the image of what runs on nodes; its entry point is the muster-node binary.
	NodeProgram = "muster-node"
)

// Ports of containers and Services unless Config says otherwise.
const (
	// MetricsPort serves /metrics. The roles scheduler and queue, as KAI's, serve /healthz and /readyz here too.
	MetricsPort = 8080
	// ProbePort serves /healthz and /readyz of the other roles, and /metrics as well.
	ProbePort = 8081
	// WebhookPort serves the webhooks, and WebhookServicePort is their Service's.
	WebhookPort        = 9443
	WebhookServicePort = 443
	// CyclesPort is where schedulers serve their cycles, if they do.
	CyclesPort = 8443
	// PrometheusPort is the store's.
	PrometheusPort = 9090
)

// Names of ports of containers and Services; ServiceMonitors select by them.
const (
	// PortMetrics is the name of the metrics port of every Service but the queue role's.
	PortMetrics = "http-metrics"
	// PortQueueMetrics is the queue role's, as KAI names it; Config can change it.
	PortQueueMetrics = "metrics"
	// PortProbes is the name of the container's port of health checks where it is one of its own.
	PortProbes = "probes"
	// PortCycles is the name of the port of a scheduler's cycles.
	PortCycles = "cycles"
	// PortWebhook is the name of the webhooks' port.
	PortWebhook = "webhook"
)

// Labels of everything that the operator installs.
const (
	// LabelManagedBy has the value Manager; of Deployments with KAI's names KAIManager, which KAI's operator writes. (KAI's chart
	// deletes Deployments of that value when it is uninstalled.)
	LabelManagedBy = "app.kubernetes.io/managed-by"
	// LabelPartOf has the value PartOf.
	LabelPartOf = "app.kubernetes.io/part-of"
	// LabelComponent is the role.
	LabelComponent = "app.kubernetes.io/component"
	// LabelApp, on pods, is the name of their Deployment or DaemonSet; Services and budgets select by it.
	LabelApp = "app"
	// LabelShard is the name of the SchedulingShard that asks for an object, shortened if it is no label's value.
	LabelShard = "muster.dev/shard"
)

// Values of these labels, and the operator's name as the manager of fields.
const (
	Manager    = "muster-operator"
	KAIManager = "kai-operator"
	PartOf     = "muster"
)

// Annotations of ours. Those of a Config are settings that KAI's Config has no field for: a field of our own would be lost when
// KAI's CRD is applied over ours.
const (
	// AnnotationIdentity, AnnotationAuthorizeQueues and AnnotationTrustedUsers, on a Config, are the admission role's options
	// Identity, AuthorizeQueues and Trusted.
	AnnotationIdentity        = admission.AnnotationIdentity
	AnnotationAuthorizeQueues = admission.AnnotationAuthorizeQueues
	AnnotationTrustedUsers    = admission.AnnotationTrustedUsers
	// AnnotationClientCA, on a Config, names a ConfigMap from which the role's option ClientCA comes.
	AnnotationClientCA = admission.AnnotationClientCA
	// AnnotationForbidForeignGPUs, on a Config, refuses pods of other schedulers that ask for GPUs: true or false.
	AnnotationForbidForeignGPUs = "muster.dev/forbid-foreign-gpus"
	// AnnotationKAINames, on a Config, gives Deployments, DaemonSets, accounts, Services and pods' label app the names that KAI's have,
	// for monitors, policies, rights and scripts that go by them: true or false.
	AnnotationKAINames = "muster.dev/kai-names"
	// AnnotationUI, on a Config, has each scheduler serve its cycles at CyclesPort, which pods of the role ui alone can reach: true or false. The chart says it
	// where it installs that role, and gives the scheduler's account the right to ask who its callers are.
	AnnotationUI = "muster.dev/ui"
	// AnnotationLeaseDuration, AnnotationRenewDeadline, AnnotationRetryPeriod and AnnotationHungAfter, on a Config, are every role's
	// flags of those names: durations, such as 15s.
	AnnotationLeaseDuration = "muster.dev/lease-duration"
	AnnotationRenewDeadline = "muster.dev/renew-deadline"
	AnnotationRetryPeriod   = "muster.dev/retry-period"
	AnnotationHungAfter     = "muster.dev/hung-after"
	// AnnotationKubeBatchFile, on a SchedulingShard, is NAME:KEY of a ConfigMap in the control plane's namespace: kube-batch's scheduler file for the shard's scheduler, which reads it
	// when it starts.
	AnnotationKubeBatchFile = "muster.dev/kube-batch-scheduler-file"
	// AnnotationConfig, on a scheduler's pods, changes with its configuration file, so that a new one rolls them.
	AnnotationConfig = "muster.dev/config-hash"
)

// ShardLabel is the value of LabelShard of a shard.
func ShardLabel(shard string) string {
	if len(shard) <= validation.LabelValueMaxLength {
		return shard
	}
	return fitted(shard)
}

// Labels are those of an object of a role.
func Labels(role string) map[string]string {
	return map[string]string{LabelManagedBy: Manager, LabelPartOf: PartOf, LabelComponent: role}
}

// Selector is by which Services, budgets and policies find the pods of a Deployment or DaemonSet. It never changes.
func Selector(name string) map[string]string {
	return map[string]string{LabelApp: name, LabelPartOf: PartOf}
}
