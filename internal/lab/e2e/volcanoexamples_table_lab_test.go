//go:build lab

package e2e

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	vckeys "github.com/muster-scheduler/muster/api/volcano/keys"
)

// argoRights are what a user of Argo gives the account of workflows in namespace default, where the examples do not: the Role of integrations/argo/mpi/rbac.yaml.
const argoRights = `
apiVersion: v1
kind: ServiceAccount
metadata: {name: argo}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: argo}
rules:
- {apiGroups: [batch.volcano.sh], resources: [jobs], verbs: [create, get, list, watch, delete]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: argo}
subjects: [{kind: ServiceAccount, name: argo, namespace: default}]
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: argo}
`

// sparkNeeds are the account of Spark's operator, and the PodGroup that the executors name: that of the file is of kube-batch's API group, where Volcano's were in 2019, and where the Volcano of today
// looks for none, nor its face here.
const sparkNeeds = `
apiVersion: v1
kind: ServiceAccount
metadata: {name: spark-operator-sparkoperator}
---
apiVersion: scheduling.volcano.sh/v1beta1
kind: PodGroup
metadata: {name: spark-pi-group}
spec: {minMember: 3}
`

// volcanoPlays are all files of Volcano's examples. Jobs whose programs serve run until they are withdrawn; those whose programs end complete.
func volcanoPlays() []volcanoPlay {
	hierarchy := []string{"root-eng-prod", "root-eng-dev", "root-sci-prod", "root-sci-dev"}
	one := func(file, see string, jobs ...exampleJob) volcanoPlay {
		return volcanoPlay{files: []volcanoFile{{name: file, see: see, jobs: jobs}}}
	}
	refused := func(file, see string, parts ...string) volcanoPlay {
		return volcanoPlay{files: []volcanoFile{{name: file, see: see, refused: parts}}}
	}
	stock := func(file string, n int) volcanoPlay {
		return volcanoPlay{files: []volcanoFile{{
			name: file, see: fmt.Sprintf("%d pods run, which the stock scheduler places beside", n),
			lacking: func(x *exampleStage) string { return x.podsRun("app", "nginx", n, corev1.DefaultSchedulerName) },
		}}}
	}
	return []volcanoPlay{
		{waits: true, files: []volcanoFile{{
			name: "cronjob/cronjob.yaml", see: "a Job is made when the clock says so, and is completed",
			lacking: (*exampleStage).cronMakes,
		}}},

		one("job.yaml", "six pods run", exampleJob{"test-job", 6, ""}),
		{files: []volcanoFile{{
			name: "job-plugin.yaml", see: "three pods run, and there are the plugins' Service, ConfigMap, Secret and NetworkPolicy",
			jobs:    []exampleJob{{"test-job-plugin", 3, ""}},
			lacking: func(x *exampleStage) string { return x.pluginsMake("test-job-plugin") },
		}}},
		one("MindSpore-example/mindspore_cpu/mindspore-cpu.yaml", "eight pods run, and end", exampleJob{"mindspore-cpu", 8, "pod"}),
		one("MindSpore-example/mindspore_gpu/mindspore-gpu.yaml", "three pods run, of which two ask for a GPU", exampleJob{"mindspore-gpu", 3, ""}),
		one("integrations/mpi/mpi-example.yaml", "three pods run, and the Job is completed with the master", exampleJob{"lm-mpi-job", 3, "mpimaster"}),
		one("integrations/mxnet/train/train-mnist-cpu.yaml", "five pods of three tasks run", exampleJob{"mxnet-job", 5, ""}),
		one("integrations/paddlepaddle/ctr-paddlepaddle-on-volcano.yaml", "four pods run, and the Job is completed with the trainers", exampleJob{"ctr-volcano", 4, "trainer"}),
		one("integrations/ray/ray-example.yaml", "a head and two workers run", exampleJob{"ray-cluster-job", 3, ""}),
		one("integrations/tensorflow/benchmark/tf-example.yaml", "three pods run, and the Job is completed with the workers", exampleJob{"tensorflow-benchmark", 3, "worker"}),
		one("integrations/tensorflow/dist-mnist/tf-dist-mnist-example.yaml", "three pods run, and the Job is completed with the workers", exampleJob{"tensorflow-dist-mnist", 3, "worker"}),
		one("task-start-dependency/job.yaml", "eleven pods of three tasks run, which wait for each other", exampleJob{"job", 11, ""}),
		one("task-start-dependency/mpi.yaml", "ten workers and the master, which waits for them, run, and the Job is completed with the master", exampleJob{"lm-mpi-job", 11, "mpimaster"}),
		one("kubecon-2019-china/gang/mpi-example.yaml", "four pods run, and the Job is completed with the master", exampleJob{"lm-mpi-job", 4, "mpimaster"}),
		one("kubecon-2019-china/horovod-sample/lm-horovod-tf-mnist-v0.5.yaml", "four pods run, and the Job is completed with the master", exampleJob{"lm-horovod-job", 4, "master"}),
		one("kubecon-2019-china/mpi-sample/mpi-example.yaml", "three pods run, and the Job is completed with the master", exampleJob{"lm-mpi-job", 3, "mpimaster"}),
		one("kubecon-2019-china/tf-sample/tf-example.yaml", "three pods run, and the Job is completed with the workers", exampleJob{"tensorflow-benchmark", 3, "worker"}),

		{files: []volcanoFile{
			{
				name: "hierarchical-jobs/queues.yaml", see: "four queues are open",
				lacking: func(x *exampleStage) string { return x.queuesOpen(hierarchy...) },
			},
			{
				name: "hierarchical-jobs/jobs.yaml", see: "six pods run in each of the four queues",
				jobs: []exampleJob{{"eng-prod-job", 6, ""}, {"eng-dev-job", 6, ""}, {"sci-prod-job", 6, ""}, {"sci-dev-job", 6, ""}},
			},
		}},
		{files: []volcanoFile{
			{name: "deployment/queue.yaml", see: "the queue is open", lacking: func(x *exampleStage) string { return x.queuesOpen("test") }},
			{
				name: "deployment/deployment.yaml", see: "the Deployment's pod runs in a PodGroup of that queue",
				lacking: func(x *exampleStage) string { return x.bareRun("app", "nginx", 1, "test") },
			},
		}},
		{files: []volcanoFile{
			{name: "jobflow/JobTemplate.yaml", see: "the API server takes the five templates"},
			{
				name: "jobflow/JobFlow.yaml", see: "a, then b, then c and d, then e; the flow has succeeded, and its Jobs are deleted",
				lacking: func(x *exampleStage) string {
					return x.flowEnds("test", map[string]string{"a": "", "b": "a", "c": "b", "d": "b", "e": "cd"})
				},
			},
		}},
		{files: []volcanoFile{
			{name: "kubecon-2019-china/drf/nginx.yaml", see: "eight pods run, which the stock scheduler places beside", lacking: func(x *exampleStage) string {
				return x.podsRun("app", "nginx", 8, corev1.DefaultSchedulerName)
			}},
			{name: "kubecon-2019-china/drf/nginx-1.yaml", see: "eight bare pods run in one PodGroup", lacking: func(x *exampleStage) string { return x.bareRun("app", "nginx-1", 8, vckeys.DefaultQueue) }},
			{name: "kubecon-2019-china/drf/nginx-2.yaml", see: "eight others run in another one", lacking: func(x *exampleStage) string { return x.bareRun("app", "nginx-2", 8, vckeys.DefaultQueue) }},
		}},
		stock("kubecon-2019-china/gang/nginx.yaml", 6),
		stock("kubecon-2019-china/task-priority/nginx.yaml", 4),
		{files: []volcanoFile{{
			name: "kubecon-2019-china/node-selector/nginx.yaml", see: "eight bare pods run on the one node that they select",
			lacking: func(x *exampleStage) string {
				for _, p := range x.pods("default") {
					if node := p.Spec.NodeName; p.Labels["app"] == "nginx" && node != "" && node != "192.168.23.24" {
						return "pod " + p.Name + " is on " + node
					}
				}
				return x.bareRun("app", "nginx", 8, vckeys.DefaultQueue)
			},
		}}},

		refused("invalid_jobs/duplicatedPolicyEvent-webhook-deny.yaml", "admission denies the second policy of an event", "denied the request",
			`Job.batch.volcano.sh "test-job-webhook-disallow" is invalid`, `spec.policies[1].event: Duplicate value: "PodFailed"`),
		refused("invalid_jobs/duplicatedTaskName-webhook-deny.yaml", "admission denies the second task of a name", "denied the request",
			`Job.batch.volcano.sh "test-job-webhook-disallow" is invalid`, `spec.tasks[1].name: Duplicate value: "task-1"`),
		refused("invalid_jobs/minAvailable-webhook-deny.yaml", "admission denies a minimum above the sum of the replicas", "denied the request",
			`Job.batch.volcano.sh "test-job-webhook-disallow" is invalid`, "spec.minAvailable: Invalid value: 5: must be at most the sum of the tasks' replicas, which is 4"),
		refused("kubecon-2019-china/task-priority/high-priority.yaml", "no API server since 1.22 has PriorityClasses of v1beta1",
			`no matches for kind "PriorityClass" in version "scheduling.k8s.io/v1beta1"`, "the server could not find the requested resource"),
		refused("kubecon-2019-china/task-priority/normal-priority.yaml", "no API server since 1.22 has PriorityClasses of v1beta1",
			`no matches for kind "PriorityClass" in version "scheduling.k8s.io/v1beta1"`, "the server could not find the requested resource"),
		refused("kubecon-2019-china/task-priority/elastic-job.yaml", "the API server does not know the field",
			`strict decoding error: unknown field "spec.tasks[0].template.spec.priorityClass", unknown field "spec.tasks[1].template.spec.priorityClass"`),

		{needs: argoRights, files: []volcanoFile{{
			name: "integrations/argo/10-job-step.yaml", see: "three Jobs of two pods in two steps, each completed",
			lacking: func(x *exampleStage) string { return x.playWorkflow(x.last("Workflow")) },
		}}},
		{needs: argoRights, files: []volcanoFile{{
			name: "integrations/argo/20-job-DAG.yaml", see: "four Jobs of two pods by their dependencies, each completed",
			lacking: func(x *exampleStage) string { return x.playWorkflow(x.last("Workflow")) },
		}}},
		{
			needs: "{apiVersion: v1, kind: ServiceAccount, metadata: {name: argo, namespace: argo}}",
			files: []volcanoFile{
				{name: "integrations/argo/mpi/rbac.yaml", see: "the API server takes the rights, by which the next file's Job is made"},
				{
					name: "integrations/argo/mpi/hello-world.yaml", see: "a Workflow of the template: three pods run beside the one that follows, and the Job is completed with the master",
					lacking: func(x *exampleStage) string { return x.playWorkflow(x.submitted("volcano-mpi-hello")) },
				},
			},
		},
		{
			needs: sparkNeeds,
			files: []volcanoFile{{
				name: "kubecon-2019-china/spark-sample/spark-pi.yaml", see: "the driver runs, and fifteen executors once there is a PodGroup of Volcano's besides the file's",
				lacking: func(x *exampleStage) string { return x.playSpark(x.last("SparkApplication")) },
			}},
		},

		{files: []volcanoFile{{
			name: "sharding/sharding-config-configmap.yaml", see: "the nodes are divided between two NodeShards",
			lacking: func(x *exampleStage) string { return x.shardsDivide("agent-scheduler", "volcano") },
		}}},
	}
}
