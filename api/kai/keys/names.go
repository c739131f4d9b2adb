package keys

// Fixed names and defaults of an installation.
const (
	// SchedulerName is the spec.schedulerName of pods that are ours, unless configured otherwise.
	SchedulerName = "kai-scheduler"

	// Namespace is where the control plane runs, unless configured otherwise.
	Namespace = "kai-scheduler"

	// ReservationNamespace is where pods that hold shared devices run, unless configured otherwise. Their service
	// account and the value of their AppLabel have the same name.
	ReservationNamespace = "kai-resource-reservation"

	// ScaleAdjustNamespace is where pods run that show demand to a cluster autoscaler, unless configured otherwise.
	ScaleAdjustNamespace = "kai-scale-adjust"

	// AppLabel tells the components' own pods apart.
	AppLabel = "app"

	// ScalingPodApp is the AppLabel of pods that show demand to a cluster autoscaler.
	ScalingPodApp = "scaling-pod"

	// DefaultQueue is the queue of workloads that name none.
	DefaultQueue = "default-queue"

	// DefaultNodePool is the name under which messages speak of the nodes that belong to no pool.
	DefaultNodePool = "default"

	// MetricsNamespace is what the names of metrics begin with, unless configured otherwise.
	MetricsNamespace = "kai"

	// RuntimeClass is the runtime class given to pods that share GPUs, unless configured otherwise.
	RuntimeClass = "nvidia"

	// AccountingLabel, set to "true" on a ServiceMonitor, makes our Prometheus collect from it. It is the default of
	// a configurable key.
	AccountingLabel = "kai.scheduler/accounting"

	// DeprecationAnnotation, on a Prometheus object that is no longer wanted, is the RFC 3339 time since when.
	DeprecationAnnotation = "kai/deprecation-timestamp"

	// ManagedByLabel, on what the operator deploys, has the value OperatorManager.
	ManagedByLabel = "app.kubernetes.io/managed-by"

	// OperatorManager is the operator's name as the value of ManagedByLabel.
	OperatorManager = "kai-operator"
)

// PriorityClasses that an installation brings along.
const (
	// PriorityClassTrain, value 50, is for training and all else that may be evicted. It is the default.
	PriorityClassTrain = "train"

	// PriorityClassBuildPreemptible, value 75, is for interactive work that may be evicted.
	PriorityClassBuildPreemptible = "build-preemptible"

	// PriorityClassBuild, value 100, is for interactive work that is not evicted.
	PriorityClassBuild = "build"

	// PriorityClassInference, value 125, is for serving; it is not evicted.
	PriorityClassInference = "inference"
)

const (
	// DefaultGangPriority is the priority of a gang for which no PriorityClass is found.
	DefaultGangPriority int32 = 50

	// NonPreemptiblePriority is the priority from which on gangs that do not say otherwise are never evicted in
	// favour of others.
	NonPreemptiblePriority int32 = 100
)

// Names of the Lease objects by which replicas elect the one that works. The scheduler's is its scheduler name, with a
// dash and the shard's partition value when there is one.
const (
	// LeaseAdmission is the admission component's.
	LeaseAdmission = "ojptxr84.kai.scheduler"

	// LeaseBinder is the binder's.
	LeaseBinder = "2ad35f9c.kai.scheduler"

	// LeasePodGrouper is the podgrouper's.
	LeasePodGrouper = "54dff599.kai.scheduler"

	// LeasePodGroupController is the podgroup controller's.
	LeasePodGroupController = "o1x22tjj.kai.scheduler"

	// LeaseQueueController is the queue controller's.
	LeaseQueueController = "ov3xj497.kai.scheduler"

	// LeaseNodeScaleAdjuster is the node scale adjuster's.
	LeaseNodeScaleAdjuster = "7n7h49uc.kai.scheduler"

	// LeaseOperator is the operator's.
	LeaseOperator = "41fce092.run.ai"
)

// Further foreign keys that the podgrouper reads.
const (
	// GrovePodGangLabel, on a pod, names its Grove PodGang.
	GrovePodGangLabel = "grove.io/podgang"

	// GroveTopologyAnnotation, on a PodGang, names a Topology.
	GroveTopologyAnnotation = "grove.io/topology-name"

	// KartaGroupLabel, KartaVersionLabel and KartaKindLabel, on a Karta object, say for which kind of workload it
	// holds the rule.
	KartaGroupLabel = "run.ai/karta-group"

	// KartaVersionLabel: see KartaGroupLabel.
	KartaVersionLabel = "run.ai/karta-version"

	// KartaKindLabel: see KartaGroupLabel.
	KartaKindLabel = "run.ai/karta-kind"
)
