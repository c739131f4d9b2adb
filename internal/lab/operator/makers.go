package operator

import (
	"fmt"
	"maps"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

type fields = map[string]any

type labels = map[string]string

// made is a row whose operator is played by code.
func made(apiVersion, kind string, make func(*Maker)) Kind {
	gvr, _ := meta.UnsafeGuessKindToResource(schema.FromAPIVersionAndKind(apiVersion, kind))
	return Kind{Resource: gvr, Kind: kind, Make: make}
}

// makers are the rows that are played by code. Each names the program whose objects it makes.
func makers() []Kind {
	return []Kind{
		made("kubeflow.org/v2beta1", "MPIJob", mpiJob),                              // kubeflow/mpi-operator v0.6.0
		made("jobset.x-k8s.io/v1alpha2", "JobSet", jobSet),                          // kubernetes-sigs/jobset v0.10.1
		made("trainer.kubeflow.org/v1alpha1", "TrainJob", trainJob),                 // kubeflow/trainer v2.1.0, runtime torch-distributed
		made("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", leaderWorkerSet),     // kubernetes-sigs/lws v0.7.0
		made("ray.io/v1", "RayCluster", rayCluster),                                 // ray-project/kuberay v1.4.2
		made("ray.io/v1", "RayJob", rayOwner("rayClusterSpec", "RayJob")),           // the same
		made("ray.io/v1", "RayService", rayOwner("rayClusterConfig", "RayService")), // the same
		made("argoproj.io/v1alpha1", "Workflow", workflow),                          // argoproj/argo-workflows v3.6.10
		made("tekton.dev/v1", "PipelineRun", pipelineRun),                           // tektoncd/pipeline v1.3.0
		made("tekton.dev/v1", "TaskRun", taskRun),                                   // the same
		made("serving.knative.dev/v1", "Service", knativeService),                   // knative/serving v0.46.0
		made("sparkoperator.k8s.io/v1beta2", "SparkApplication", sparkApplication),  // kubeflow/spark-operator v2.3.0, apache/spark 3.5
		made("kubevirt.io/v1", "VirtualMachineInstance", machine),                   // kubevirt v1.6.0
		made("workspace.devfile.io/v1alpha2", "DevWorkspace", deployed("controller.devfile.io/devworkspace_name")),
		made("machinelearning.seldon.io/v1", "SeldonDeployment", deployed("seldon-deployment-id")),
		made("apps.nvidia.com/v1alpha1", "NIMService", deployed("app.kubernetes.io/name")),
		made("kubeflow.org/v1beta1", "Notebook", notebook),
		made("kubeflow.org/v1alpha1", "ScheduledWorkflow", wraps("argoproj.io/v1alpha1", "Workflow")),
		made("grove.io/v1alpha1", "PodCliqueSet", podCliqueSet),
		made("grove.io/v1alpha1", "PodGangSet", podCliqueSet),
		made("nvidia.com/v1alpha1", "DynamoGraphDeployment", wraps("grove.io/v1alpha1", "PodCliqueSet")),
		made("egx.nvidia.io/v1", "SPOTRequest", pods),
		made("run.ai/v1", "RunaiJob", pods),
		made("amlarc.azureml.com/v1alpha1", "AmlJob", pods),
		made("example.org/v1", "Fleet", pods),
		made("run.ai/v2alpha1", "TrainingWorkload", wraps("run.ai/v1", "RunaiJob")),
		made("run.ai/v2alpha1", "InteractiveWorkload", wraps("apps/v1", "StatefulSet")),
		made("run.ai/v2alpha1", "DistributedWorkload", wraps("kubeflow.org/v1", "PyTorchJob")),
		made("run.ai/v2alpha1", "InferenceWorkload", wraps("serving.knative.dev/v1", "Service")),
		made("run.ai/v2alpha1", "DistributedInferenceWorkload", wraps("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet")),
	}
}

func object(apiVersion, kind, name string, l labels, spec fields) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: fields{"apiVersion": apiVersion, "kind": kind}}
	u.SetName(name)
	if len(l) > 0 {
		u.SetLabels(l)
	}
	if spec != nil {
		u.Object["spec"] = runtime.DeepCopyJSON(spec)
	}
	return u
}

// at reads an object below a path; an empty one where there is none.
func at(m fields, path ...string) fields {
	out, _, _ := unstructured.NestedMap(m, path...)
	if out == nil {
		return fields{}
	}
	return out
}

// listed reads a list of objects below a path.
func listed(m fields, path ...string) []fields {
	list, _, _ := unstructured.NestedSlice(m, path...)
	var out []fields
	for _, e := range list {
		if f, ok := e.(fields); ok {
			out = append(out, f)
		}
	}
	return out
}

func number(m fields, field string, otherwise int64) int64 {
	if n, found, err := unstructured.NestedInt64(m, field); found && err == nil {
		return min(n, maxReplicas)
	}
	return otherwise
}

func text(m fields, path ...string) string {
	s, _, _ := unstructured.NestedString(m, path...)
	return s
}

// with adds labels and annotations to a copy of a pod template.
func with(template fields, l, annotations labels) fields {
	out := &unstructured.Unstructured{Object: runtime.DeepCopyJSON(template)}
	if out.Object["metadata"] == nil {
		out.Object["metadata"] = fields{}
	}
	ls, as := out.GetLabels(), out.GetAnnotations()
	if ls == nil {
		ls = labels{}
	}
	if as == nil {
		as = labels{}
	}
	maps.Copy(ls, l)
	maps.Copy(as, annotations)
	out.SetLabels(ls)
	out.SetAnnotations(as)
	return out.Object
}

// pod is a pod of a template.
func pod(name string, template fields, l, annotations labels) *unstructured.Unstructured {
	filled := with(template, l, annotations)
	u := object("v1", "Pod", name, nil, at(filled, "spec"))
	from := &unstructured.Unstructured{Object: filled}
	u.SetLabels(from.GetLabels())
	u.SetAnnotations(from.GetAnnotations())
	return u
}

// plainPod is the template for objects that have none: one container, of the scheduler that the object names.
func plainPod(scheduler string) fields {
	return fields{"spec": fields{"schedulerName": scheduler, "containers": []any{fields{"name": "main", "image": "registry.example/main"}}}}
}

func deployment(name string, l labels, replicas int64, template fields) *unstructured.Unstructured {
	return object("apps/v1", "Deployment", name, nil, fields{
		"replicas": replicas, "selector": fields{"matchLabels": anyMap(l)}, "template": with(template, l, nil),
	})
}

func anyMap(m labels) fields {
	out := fields{}
	for k, v := range m {
		out[k] = v
	}
	return out
}

// wraps makes one object of another kind, of the same name, out of the wrapper's spec.
func wraps(apiVersion, kind string) func(*Maker) {
	return func(m *Maker) {
		m.Make(m.Object, object(apiVersion, kind, m.Object.GetName(), nil, at(m.Object.Object, "spec", "template")))
	}
}

// pods makes spec.replicas pods of spec.template: for kinds without a public operator.
func pods(m *Maker) {
	spec := at(m.Object.Object, "spec")
	for i := range number(spec, "replicas", 1) {
		m.Make(m.Object, pod(fmt.Sprintf("%s-%d", m.Object.GetName(), i), at(spec, "template"), nil, nil))
	}
}

func deployed(label string) func(*Maker) {
	return func(m *Maker) {
		spec, name := at(m.Object.Object, "spec"), m.Object.GetName()
		template := at(spec, "template")
		if len(listed(template, "spec", "containers")) == 0 {
			template = plainPod("kai-scheduler")
		}
		m.Make(m.Object, deployment(name, labels{label: name}, number(spec, "replicas", 1), template))
	}
}

func notebook(m *Maker) {
	name := m.Object.GetName()
	l := labels{"statefulset": name, "notebook-name": name}
	m.Make(m.Object, object("apps/v1", "StatefulSet", name, nil, fields{
		"replicas": int64(1), "serviceName": name, "selector": fields{"matchLabels": fields{"statefulset": name}},
		"template": with(at(m.Object.Object, "spec", "template"), l, nil),
	}))
}

func mpiJob(m *Maker) {
	name, specs := m.Object.GetName(), at(m.Object.Object, "spec", "mpiReplicaSpecs")
	l := func(role string) labels {
		return labels{
			"training.kubeflow.org/operator-name": "mpi-operator", "training.kubeflow.org/job-name": name, "training.kubeflow.org/job-role": role,
		}
	}
	ready := true
	for i := range number(at(specs, "Worker"), "replicas", 0) {
		own := l("worker")
		own["training.kubeflow.org/replica-index"] = strconv.FormatInt(i, 10)
		p := m.Make(m.Object, pod(fmt.Sprintf("%s-worker-%d", name, i), at(specs, "Worker", "template"), own, nil))
		ready = ready && p != nil && text(p.Object, "status", "phase") == "Running"
	}
	if text(m.Object.Object, "spec", "launcherCreationPolicy") == "WaitForWorkersReady" && !ready {
		if m.err == nil {
			m.err = errNotYet
		}
		return
	}
	template := with(at(specs, "Launcher", "template"), l("launcher"), nil)
	if text(template, "spec", "restartPolicy") == "" {
		_ = unstructured.SetNestedField(template, "OnFailure", "spec", "restartPolicy")
	}
	m.Make(m.Object, object("batch/v1", "Job", name+"-launcher", labels{"app": name}, fields{"template": template}))
}

func jobSet(m *Maker) {
	name := m.Object.GetName()
	for _, rj := range listed(m.Object.Object, "spec", "replicatedJobs") {
		if len(listed(rj, "dependsOn")) > 0 {
			continue // made when what it waits for has come, which is not played
		}
		for i := range number(rj, "replicas", 1) {
			job := fmt.Sprintf("%s-%s-%d", name, text(rj, "name"), i)
			l := labels{
				"jobset.sigs.k8s.io/jobset-name": name, "jobset.sigs.k8s.io/jobset-uid": string(m.Object.GetUID()),
				"jobset.sigs.k8s.io/replicatedjob-name": text(rj, "name"), "jobset.sigs.k8s.io/job-index": strconv.FormatInt(i, 10),
				"jobset.sigs.k8s.io/replicatedjob-replicas": strconv.FormatInt(number(rj, "replicas", 1), 10),
				"jobset.sigs.k8s.io/restart-attempt":        "0",
			}
			spec := at(rj, "template", "spec")
			spec["template"] = with(at(spec, "template"), l, l)
			u := object("batch/v1", "Job", job, l, spec)
			u.SetAnnotations(l)
			m.Make(m.Object, u)
		}
	}
}

func trainJob(m *Maker) {
	trainer := at(m.Object.Object, "spec", "trainer")
	template := plainPod("kai-scheduler")
	_ = unstructured.SetNestedField(template, "Never", "spec", "restartPolicy")
	nodes := number(trainer, "numNodes", 1)
	m.Make(m.Object, object("jobset.x-k8s.io/v1alpha2", "JobSet", m.Object.GetName(), nil, fields{"replicatedJobs": []any{fields{
		"name": "node", "replicas": int64(1),
		"template": fields{
			"metadata": fields{"labels": fields{"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}},
			"spec":     fields{"parallelism": nodes, "completions": nodes, "template": template},
		},
	}}}))
}

func leaderWorkerSet(m *Maker) {
	const prefix = "leaderworkerset.sigs.k8s.io/"
	name, spec := m.Object.GetName(), at(m.Object.Object, "spec")
	t := at(spec, "leaderWorkerTemplate")
	size, replicas := number(t, "size", 1), number(spec, "replicas", 1)
	leader := at(t, "leaderTemplate")
	if len(leader) == 0 {
		leader = at(t, "workerTemplate")
	}
	a := labels{prefix + "size": strconv.FormatInt(size, 10)}
	own := labels{prefix + "name": name, prefix + "worker-index": "0"}
	m.Make(m.Object, object("apps/v1", "StatefulSet", name, own, fields{
		"replicas": replicas, "serviceName": name, "podManagementPolicy": "Parallel", "selector": fields{"matchLabels": anyMap(own)},
		"template": with(leader, own, a),
	}))
	for g := range replicas {
		lead := m.Await("v1", "Pod", fmt.Sprintf("%s-%d", name, g))
		if lead == nil {
			return
		}
		group := labels{prefix + "group-index": strconv.FormatInt(g, 10), prefix + "group-key": fmt.Sprintf("key-%s-%d", name, g)}
		if lead.GetLabels()[prefix+"group-index"] == "" {
			m.Label(lead, group)
		}
		if size == 1 {
			continue
		}
		if text(spec, "startupPolicy") == "LeaderReady" && text(lead.Object, "status", "phase") != "Running" {
			m.err = errNotYet
			continue
		}
		group[prefix+"name"] = name
		workers := maps.Clone(a)
		workers[prefix+"leader-name"] = lead.GetName()
		m.Make(lead, object("apps/v1", "StatefulSet", lead.GetName(), group, fields{
			"replicas": size - 1, "serviceName": name, "podManagementPolicy": "Parallel", "ordinals": fields{"start": int64(1)},
			"selector": fields{"matchLabels": anyMap(group)}, "template": with(at(t, "workerTemplate"), group, workers),
		}))
		for i := range size - 1 {
			w := m.Await("v1", "Pod", fmt.Sprintf("%s-%d", lead.GetName(), i+1))
			if w != nil && w.GetLabels()[prefix+"worker-index"] == "" {
				m.Label(w, labels{prefix + "worker-index": strconv.FormatInt(i+1, 10)})
			}
		}
	}
}

func rayCluster(m *Maker) {
	name := m.Object.GetName()
	l := func(kind, group string) labels {
		return labels{
			"ray.io/is-ray-node": "yes", "ray.io/cluster": name, "ray.io/node-type": kind, "ray.io/group": group,
			"ray.io/identifier": name + "-" + kind, "app.kubernetes.io/name": "kuberay", "app.kubernetes.io/created-by": "kuberay-operator",
		}
	}
	m.Make(m.Object, pod(name+"-head", at(m.Object.Object, "spec", "headGroupSpec", "template"), l("head", "headgroup"), nil))
	for _, g := range listed(m.Object.Object, "spec", "workerGroupSpecs") {
		if suspended, _, _ := unstructured.NestedBool(g, "suspend"); suspended {
			continue
		}
		group := text(g, "groupName")
		n := max(number(g, "replicas", 0), number(g, "minReplicas", 0)) * number(g, "numOfHosts", 1)
		for i := range n {
			m.Make(m.Object, pod(fmt.Sprintf("%s-%s-worker-%d", name, group, i), at(g, "template"), l("worker", group), nil))
		}
	}
}

func rayOwner(field, kind string) func(*Maker) {
	return func(m *Maker) {
		l := maps.Clone(m.Object.GetLabels())
		if l == nil {
			l = labels{}
		}
		l["ray.io/originated-from-cr-name"], l["ray.io/originated-from-crd"] = m.Object.GetName(), kind
		m.Make(m.Object, object("ray.io/v1", "RayCluster", m.Object.GetName()+"-raycluster-x", l, at(m.Object.Object, "spec", field)))
	}
}

func workflow(m *Maker) {
	name := m.Object.GetName()
	for _, t := range listed(m.Object.Object, "spec", "templates") {
		if len(at(t, "container")) == 0 {
			continue
		}
		template := fields{"spec": fields{
			"schedulerName": text(m.Object.Object, "spec", "schedulerName"), "restartPolicy": "Never", "containers": []any{named(at(t, "container"), "main")},
		}}
		m.Make(m.Object, pod(name+"-"+text(t, "name"), template, labels{
			"workflows.argoproj.io/workflow": name, "workflows.argoproj.io/completed": "false",
		}, labels{"workflows.argoproj.io/node-name": name}))
	}
}

func named(container fields, name string) fields {
	container["name"] = name
	return container
}

func pipelineRun(m *Maker) {
	name := m.Object.GetName()
	for _, t := range listed(m.Object.Object, "spec", "pipelineSpec", "tasks") {
		m.Make(m.Object, object("tekton.dev/v1", "TaskRun", name+"-"+text(t, "name"), labels{
			"tekton.dev/pipelineRun": name, "tekton.dev/pipelineTask": text(t, "name"), "app.kubernetes.io/managed-by": "tekton-pipelines",
		}, fields{"taskSpec": at(t, "taskSpec"), "podTemplate": at(m.Object.Object, "spec", "taskRunTemplate", "podTemplate")}))
	}
}

func taskRun(m *Maker) {
	name := m.Object.GetName()
	var containers []any
	for i, s := range listed(m.Object.Object, "spec", "taskSpec", "steps") {
		step := text(s, "name")
		if step == "" {
			step = fmt.Sprintf("unnamed-%d", i)
		}
		containers = append(containers, fields{"name": "step-" + step, "image": text(s, "image")})
	}
	l := maps.Clone(m.Object.GetLabels())
	if l == nil {
		l = labels{}
	}
	l["tekton.dev/taskRun"], l["app.kubernetes.io/managed-by"] = name, "tekton-pipelines"
	m.Make(m.Object, pod(name+"-pod", fields{"spec": fields{
		"schedulerName": text(m.Object.Object, "spec", "podTemplate", "schedulerName"), "restartPolicy": "Never", "containers": containers,
	}}, l, nil))
}

func knativeService(m *Maker) {
	const prefix = "serving.knative.dev/"
	name, revision := m.Object.GetName(), m.Object.GetName()+"-00001"
	template := at(m.Object.Object, "spec", "template")
	c := m.Make(m.Object, object(prefix+"v1", "Configuration", name, labels{prefix + "service": name}, fields{"template": template}))
	l := labels{prefix + "configuration": name, prefix + "service": name, prefix + "configurationGeneration": "1"}
	r := object(prefix+"v1", "Revision", revision, l, at(template, "spec"))
	r.SetAnnotations((&unstructured.Unstructured{Object: template}).GetAnnotations())
	made := m.Make(c, r)
	pods := labels{prefix + "revision": revision, prefix + "service": name, prefix + "configuration": name, "app": revision}
	n, err := strconv.ParseInt(r.GetAnnotations()["autoscaling.knative.dev/min-scale"], 10, 32)
	if err != nil {
		n = 1
	}
	m.Make(made, deployment(revision+"-deployment", pods, n, template))
}

func sparkApplication(m *Maker) {
	name, spec := m.Object.GetName(), at(m.Object.Object, "spec")
	selector := "spark-" + strings.ReplaceAll(string(m.Object.GetUID()), "-", "")
	template := plainPod(text(spec, "batchScheduler"))
	_ = unstructured.SetNestedField(template, "Never", "spec", "restartPolicy")
	l := func(role string) labels {
		out := labels{
			"spark-app-name": name, "spark-app-selector": selector, "spark-role": role, "spark-version": text(spec, "sparkVersion"),
			"sparkoperator.k8s.io/app-name": name, "sparkoperator.k8s.io/launched-by-spark-operator": "true",
		}
		set, _, _ := unstructured.NestedStringMap(spec, role, "labels")
		maps.Copy(out, set)
		return out
	}
	driver := m.Make(m.Object, pod(name+"-driver", template, l("driver"), nil))
	if driver == nil {
		return
	}
	if text(driver.Object, "status", "phase") != "Running" {
		m.err = errNotYet
		return
	}
	for i := range number(at(spec, "executor"), "instances", 1) {
		own := l("executor")
		own["spark-exec-id"] = strconv.FormatInt(i+1, 10)
		m.Make(driver, pod(fmt.Sprintf("%s-exec-%d", name, i+1), template, own, nil))
	}
}

func machine(m *Maker) {
	name := m.Object.GetName()
	m.Make(m.Object, pod("virt-launcher-"+name, plainPod(text(m.Object.Object, "spec", "schedulerName")), labels{
		"kubevirt.io": "virt-launcher", "kubevirt.io/created-by": string(m.Object.GetUID()), "vm.kubevirt.io/name": name,
	}, nil))
}

func podCliqueSet(m *Maker) {
	name := m.Object.GetName()
	gang := name + "-0"
	type clique struct {
		name     string
		least, n int64
		template fields
	}
	var cliques []clique
	var groups []any
	for _, c := range listed(m.Object.Object, "spec", "template", "cliques") {
		q := clique{name: gang + "-" + text(c, "name"), n: number(at(c, "spec"), "replicas", 1), template: fields{"spec": at(c, "spec", "podSpec")}}
		q.least = number(at(c, "spec"), "minAvailable", q.n)
		cliques = append(cliques, q)
		groups = append(groups, fields{"name": q.name, "minReplicas": q.least, "podReferences": []any{}})
	}
	l := labels{"app.kubernetes.io/managed-by": "grove-operator", "app.kubernetes.io/part-of": name}
	m.Make(m.Object, object("scheduler.grove.io/v1alpha1", "PodGang", gang, l, fields{"podgroups": groups}))
	for _, q := range cliques {
		c := m.Make(m.Object, object("grove.io/v1alpha1", "PodClique", q.name, l, fields{"replicas": q.n}))
		own := maps.Clone(l)
		own["grove.io/podgang"], own["grove.io/podclique"] = gang, q.name
		for i := range q.n {
			m.Make(c, pod(fmt.Sprintf("%s-%d", q.name, i), q.template, own, nil))
		}
	}
}
