package workload

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/muster-scheduler/muster/api/kai/keys"
)

// Labels that workload operators put on their pods.
const (
	kubeflowJobName      = "training.kubeflow.org/job-name"
	kubeflowJobRole      = "training.kubeflow.org/job-role"
	kubeflowReplicaType  = "training.kubeflow.org/replica-type"
	kubeflowReplicaIndex = "training.kubeflow.org/replica-index"
	sparkAppName         = "spark-app-name"
	sparkAppSelector     = "spark-app-selector"
	knativeRevision      = "serving.knative.dev/revision"
	rayGroup             = "ray.io/group"
	rayPriority          = "ray.io/priority-class-name"
)

func groupKinds(group string, names ...string) []schema.GroupKind {
	out := make([]schema.GroupKind, 0, len(names))
	for _, n := range names {
		out = append(out, schema.GroupKind{Group: group, Kind: n})
	}
	return out
}

// knativeMinScale is the annotation with which Knative services say how many pods there are at least.
const knativeMinScale = "autoscaling.knative.dev/min-scale"

// Kinds returns the rows that Muster comes with. Whatever else owns pods gets the default row, unless a Karta object
// defines it.
func Kinds() []Rule {
	batchMinimum := []Source{{Annotation: keys.BatchMinMemberAnnotation}}
	plain := func(group, kind string, between []schema.GroupKind, versions ...string) Rule {
		return Rule{Group: group, Kind: kind, Versions: versions, Between: between, WholeChain: true, Watch: true}
	}
	with := func(r Rule, class string) Rule { r.PriorityClass = class; return r }
	apps := func(names ...string) []schema.GroupKind { return groupKinds("apps", names...) }
	job := groupKinds("batch", "Job")
	rows := []Rule{
		{Kind: "Pod", WholeChain: true, NameLabel: sparkAppSelector, AlsoLabel: sparkAppName},
		plain("apps", "StatefulSet", nil),
		plain("apps", "ReplicaSet", nil),
		{
			Group: "apps", Kind: "Deployment", Subject: EachPod, PriorityClass: keys.PriorityClassInference, Watch: true,
			Between: apps("ReplicaSet"),
		},
		{Group: "batch", Kind: "Job", Minimum: batchMinimum, PodNamed: true, Watch: true},
		{Group: "batch", Kind: "CronJob", Subject: OwnerBelowTop, Minimum: batchMinimum, Watch: true, Between: job},

		plain("machinelearning.seldon.io", "SeldonDeployment", apps("Deployment", "ReplicaSet"), "v1alpha2", "v1"),
		plain("kubevirt.io", "VirtualMachineInstance", nil, "v1"),
		plain("kubevirt.io", "VirtualMachine", groupKinds("kubevirt.io", "VirtualMachineInstance")),
		plain("sparkoperator.k8s.io", "SparkApplication", nil),
		plain("sparkoperator.k8s.io", "ScheduledSparkApplication", groupKinds("sparkoperator.k8s.io", "SparkApplication")),
		plain("workspace.devfile.io", "DevWorkspace", apps("Deployment", "ReplicaSet"), "v1alpha2"),
		plain("kubeflow.org", "ScheduledWorkflow", groupKinds("argoproj.io", "Workflow"), "v1alpha1"),
		plain("tekton.dev", "PipelineRun", groupKinds("tekton.dev", "TaskRun"), "v1"),
		plain("tekton.dev", "TaskRun", nil, "v1"),
		with(plain("kubeflow.org", "Notebook", apps("StatefulSet"), "v1beta1"), keys.PriorityClassBuild),
		with(plain("egx.nvidia.io", "SPOTRequest", nil, "v1"), keys.PriorityClassInference),
		{Group: "run.ai", Kind: "RunaiJob", Versions: []string{"v1"}, PodPrefix: true, PodNamed: true, WholeChain: true, Watch: true},
		{
			Group: "amlarc.azureml.com", Kind: "AmlJob", Versions: []string{"v1alpha1"}, WholeChain: true, Watch: true,
			Minimum: []Source{{Path: "spec.job.options.envs.AZUREML_NODE_COUNT", Text: true, Required: true}},
		},
		{
			Group: "serving.knative.dev", Kind: "Service", Versions: []string{"v1"},
			Subject: OwnerOfKind, Of: schema.GroupKind{Group: "serving.knative.dev", Kind: "Revision"},
			PriorityClass: keys.PriorityClassInference, Watch: true,
			Minimum: []Source{{Annotation: knativeMinScale, ZeroIsNone: true}},
			Between: slices.Concat(groupKinds("serving.knative.dev", "Configuration", "Revision"), apps("Deployment", "ReplicaSet")),
		},
	}
	rows = append(rows, kubeflow(job)...)
	rows = append(rows, ray(job)...)
	rows = append(rows,
		Rule{
			Group: "leaderworkerset.x-k8s.io", Kind: "LeaderWorkerSet", Versions: []string{"v1"}, Watch: true,
			PartLabel: lwsGroupIndex, Infix: "-group-", tree: lwsTree,
			Between: apps("StatefulSet"),
		},
		Rule{
			Group: "jobset.x-k8s.io", Kind: "JobSet", Versions: []string{"v1alpha2"}, Watch: true,
			KeepFlat: true, tree: jobSetTree, Between: job,
		},
		Rule{
			Group: "scheduler.grove.io", Kind: "PodGang", Versions: []string{"v1alpha1"}, WholeChain: true, Watch: true,
			PriorityPath: "spec.priorityClassName", tree: podGangTree,
		},
	)
	gang := &Named{Label: keys.GrovePodGangLabel, GVK: schema.GroupVersionKind{Group: "scheduler.grove.io", Version: "v1alpha1", Kind: "PodGang"}}
	for _, kind := range []string{"PodGangSet", "PodCliqueSet"} {
		rows = append(rows, Rule{
			Group: "grove.io", Kind: kind, Versions: []string{"v1alpha1"}, WholeChain: true, Watch: true, Named: gang,
			Between: groupKinds("grove.io", "PodClique", "PodCliqueScalingGroup"),
		})
	}
	for _, skipped := range []Rule{
		{Group: "argoproj.io", Kind: "Workflow", Versions: []string{"v1alpha1"}},
		{Group: "run.ai", Kind: "TrainingWorkload"},
		{Group: "run.ai", Kind: "InteractiveWorkload"},
		{Group: "run.ai", Kind: "DistributedWorkload"},
		{Group: "run.ai", Kind: "InferenceWorkload"},
		{Group: "run.ai", Kind: "DistributedInferenceWorkload"},
		{Group: "trainer.kubeflow.org", Kind: "TrainJob", Versions: []string{"v1alpha1"}, Between: slices.Concat(groupKinds("jobset.x-k8s.io", "JobSet"), job)},
		{Group: "nvidia.com", Kind: "DynamoGraphDeployment", Between: groupKinds("nvidia.com", "DynamoComponentDeployment")},
	} {
		skipped.Skip, skipped.Watch = true, true
		rows = append(rows, skipped)
	}
	return rows
}

// kubeflow are the kinds of kubeflow's training operator, version 1, and of its MPI operator.
func kubeflow(job []schema.GroupKind) []Rule {
	row := func(kind, replicas string, required ...string) Rule {
		for i := range required {
			required[i] = replicas + "." + required[i]
		}
		return Rule{
			Group: "kubeflow.org", Kind: kind, Versions: []string{"v1"}, Watch: true, Required: required,
			Minimum: []Source{
				{Path: "spec.runPolicy.schedulingPolicy.minAvailable"},
				{Sum: replicas + ".*.replicas"},
			},
		}
	}
	torch := row("PyTorchJob", "spec.pytorchReplicaSpecs")
	torch.Minimum = slices.Insert(torch.Minimum, 1, Source{Path: "spec.elasticPolicy.minReplicas"})
	torch.Parts = &Parts{
		Path:       "spec.pytorchReplicaSpecs",
		Names:      []string{"master", "worker"},
		Rest:       "worker",
		Label:      kubeflowReplicaType,
		IndexLabel: kubeflowReplicaIndex,
	}
	mpi := row("MPIJob", "spec.mpiReplicaSpecs", "Launcher")
	mpi.Versions, mpi.Between = []string{"v1", "v2beta1"}, job
	mpi.Late = &Late{
		Path: "spec.launcherCreationPolicy", Value: "WaitForWorkersReady", Replicas: "spec.mpiReplicaSpecs.Launcher.replicas",
		JobLabel: kubeflowJobName, Labels: map[string]string{kubeflowJobRole: "launcher"},
	}
	return []Rule{
		row("TFJob", "spec.tfReplicaSpecs"),
		row("XGBoostJob", "spec.xgbReplicaSpecs", "Master", "Worker"),
		row("JAXJob", "spec.jaxReplicaSpecs", "Worker"),
		torch,
		mpi,
	}
}

// ray are the kinds of KubeRay. The pods of all three belong to a RayCluster, which says what the gang is.
func ray(job []schema.GroupKind) []Rule {
	cluster := schema.GroupKind{Group: "ray.io", Kind: "RayCluster"}
	row := Rule{
		Group: "ray.io", Kind: "RayCluster", Versions: []string{"v1alpha1", "v1"}, Watch: true, KeepFlat: true,
		Facts: cluster, PriorityLabel: rayPriority, tree: rayTree,
	}
	batch, service := row, row
	batch.Kind, batch.Between = "RayJob", append(job, cluster)
	// While a service is being upgraded it has two clusters, each a gang of its own.
	service.Kind, service.Between = "RayService", []schema.GroupKind{cluster}
	service.Subject, service.Of = OwnerOfKind, cluster
	return []Rule{row, batch, service}
}

// Access is a resource of which the podgrouper reads objects.
type Access struct {
	// Group and Resource name it as RBAC rules do.
	Group, Resource string
	// Verbs are what the role does with it, in order.
	Verbs []string
}

// Accesses lists, sorted and once each, the resources of all owners that rules may lead to. Kinds that only the default
// row is for are not among them: whoever wants their own to be found grants get on them; until then the chain of owners ends
// below them.
func Accesses(rules []Rule) []Access {
	verbs := map[schema.GroupResource][]string{}
	add := func(kind schema.GroupKind, watch bool) {
		plural, _ := meta.UnsafeGuessKindToResource(kind.WithVersion("v1"))
		if kind.Group == "" && kind.Kind == "Pod" {
			watch = true
		}
		if watch {
			verbs[plural.GroupResource()] = []string{"get", "list", "watch"}
		} else if verbs[plural.GroupResource()] == nil {
			verbs[plural.GroupResource()] = []string{"get"}
		}
	}
	for i := range rules {
		r := &rules[i]
		add(schema.GroupKind{Group: r.Group, Kind: r.Kind}, r.Watch)
		for _, kind := range r.Between {
			add(kind, r.Watch)
		}
		if r.Named != nil {
			add(r.Named.GVK.GroupKind(), r.Watch)
		}
	}
	add(DefinitionKind.GroupKind(), false)
	verbs[schema.GroupResource{Group: DefinitionKind.Group, Resource: "kartas"}] = []string{"get", "list"}
	out := make([]Access, 0, len(verbs))
	for resource, v := range verbs { // order: sorted below
		out = append(out, Access{Group: resource.Group, Resource: resource.Resource, Verbs: v})
	}
	slices.SortFunc(out, func(a, b Access) int {
		if c := strings.Compare(a.Group, b.Group); c != 0 {
			return c
		}
		return strings.Compare(a.Resource, b.Resource)
	})
	return out
}
