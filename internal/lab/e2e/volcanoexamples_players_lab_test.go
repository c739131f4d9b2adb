//go:build lab

package e2e

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	vcbatch "github.com/muster-scheduler/muster/api/volcano/batch/v1alpha1"
	vckeys "github.com/muster-scheduler/muster/api/volcano/keys"
)

// playedCRD is a definition of another project's kind that takes any spec.
func playedCRD(group, version, kind string) []byte {
	plural, singular := meta.UnsafeGuessKindToResource(schema.GroupVersionKind{Group: group, Version: version, Kind: kind})
	return fmt.Appendf(nil, `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: %[1]s.%[2]s, annotations: {api-approved.kubernetes.io: unapproved}}
spec:
  group: %[2]s
  scope: Namespaced
  names: {kind: %[3]s, listKind: %[3]sList, plural: %[1]s, singular: %[4]s}
  versions:
  - name: %[5]s
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`, plural.Resource, group, kind, singular.Resource, version)
}

// last is what the play applied last of a kind.
func (x *exampleStage) last(kind string) *unstructured.Unstructured {
	for _, o := range slices.Backward(x.applied) {
		if o.GetKind() == kind {
			return o
		}
	}
	x.t.Fatalf("the play has applied no %s", kind)
	return nil
}

// submitted is the Workflow of a WorkflowTemplate, which is made the first time, as `argo submit --from` does.
func (x *exampleStage) submitted(template string) *unstructured.Unstructured {
	from := x.last("WorkflowTemplate")
	if from.GetName() != template {
		x.t.Fatalf("the WorkflowTemplate is %s", from.GetName())
	}
	for _, o := range x.applied {
		if o.GetKind() == "Workflow" {
			return o
		}
	}
	o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "spec": runtime.DeepCopyJSON(from.Object)["spec"]}}
	o.SetNamespace(from.GetNamespace())
	o.SetGenerateName(template + "-")
	x.create(x.t, o)
	x.applied = append(x.applied, o)
	return o
}

// argoNode is a task or step of a Workflow that has begun.
type argoNode struct {
	made *unstructured.Unstructured
	done bool
}

// playWorkflow goes on with a Workflow as far as it can, as Argo does: a task begins when those that it depends on are done. Of a resource template it creates what the manifest says, as the
// Workflow's account, and the task is done when status.state.phase is Completed, which is the condition of all the examples; of a container template it makes a pod, which is to succeed. It says what
// is not done yet.
func (x *exampleStage) playWorkflow(w *unstructured.Unstructured) string {
	spec, _, _ := unstructured.NestedMap(w.Object, "spec")
	templates := map[string]map[string]any{}
	for _, t := range objectsIn(spec, "templates") {
		templates[word(t, "name")] = t
	}
	entry := templates[word(spec, "entrypoint")]
	tasks := objectsIn(entry, "dag", "tasks")
	steps, _, _ := unstructured.NestedSlice(entry, "steps")
	var before []any
	for _, step := range steps { // all of one wait for all of the one before
		var names []any
		for _, s := range step.([]any) {
			task := s.(map[string]any)
			task["dependencies"] = before
			tasks, names = append(tasks, task), append(names, task["name"])
		}
		before = names
	}
	if len(tasks) == 0 {
		x.t.Fatalf("Workflow %s has no tasks", w.GetName())
	}
	x.end(x.t, x.programEnds)
	var lacking []string
	for _, task := range tasks {
		name := word(task, "name")
		n := x.argo[name]
		if n == nil {
			after, _, _ := unstructured.NestedSlice(task, "dependencies")
			if slices.ContainsFunc(after, func(d any) bool { return x.argo[d.(string)] == nil || !x.argo[d.(string)].done }) {
				lacking = append(lacking, name+" waits for "+fmt.Sprint(after))
				continue
			}
			n = &argoNode{made: x.argoMakes(w, spec, templates[word(task, "template")], task)}
			x.argo[name] = n
		}
		if !n.done {
			is := ""
			n.done, is = x.argoDone(n.made)
			if !n.done {
				lacking = append(lacking, name+" is "+is)
			}
		}
	}
	return strings.Join(lacking, ", ")
}

// programEnds says of which pods of the Workflows the program ends by itself: what says hello, what runs mpiexec once the workers are there, and what follows its logs.
func (x *exampleStage) programEnds(p *corev1.Pod) bool {
	switch p.Spec.Containers[0].Image {
	case "docker/whalesay":
		return true
	case "mcr.microsoft.com/oss/kubernetes/kubectl:v1.26.3":
		j := x.job(p.Namespace, "mpi-hello-job")
		return j != nil && (j.Status.Running == 3 || j.Status.State.Phase == vcbatch.Completed)
	}
	j := x.job(p.Namespace, p.Labels[vckeys.JobName])
	return p.Labels[vckeys.TaskSpec] == "mpimaster" && j != nil && j.Status.Running == 3
}

// argoMakes makes what a template says with a task's arguments.
func (x *exampleStage) argoMakes(w *unstructured.Unstructured, spec, template, task map[string]any) *unstructured.Unstructured {
	pairs := []string{"{{workflow.name}}", w.GetName(), "{{workflow.uid}}", string(w.GetUID())}
	for _, p := range objectsIn(spec, "arguments", "parameters") {
		pairs = append(pairs, "{{workflow.parameters."+word(p, "name")+"}}", word(p, "value"))
	}
	for _, p := range objectsIn(task, "arguments", "parameters") {
		pairs = append(pairs, "{{inputs.parameters."+word(p, "name")+"}}", word(p, "value"))
	}
	account := word(spec, "serviceAccountName")
	o := &unstructured.Unstructured{}
	if text := word(template, "resource", "manifest"); text != "" {
		if action := word(template, "resource", "action"); action != "create" {
			x.t.Fatalf("a template has the action %q", action)
		}
		if err := yaml.Unmarshal([]byte(strings.NewReplacer(pairs...).Replace(text)), &o.Object); err != nil {
			x.t.Fatal(err)
		}
	} else {
		container, _, _ := unstructured.NestedMap(template, "container")
		container["name"] = "main"
		o.Object = map[string]any{"apiVersion": "v1", "kind": "Pod", "spec": map[string]any{"serviceAccountName": account, "restartPolicy": "Never", "containers": []any{container}}}
		o.SetGenerateName(w.GetName() + "-")
	}
	o.SetNamespace(w.GetNamespace())
	as := x.client
	if own, _, _ := unstructured.NestedBool(template, "resource", "setOwnerReference"); own || o.GetKind() == "Pod" {
		o.SetOwnerReferences([]metav1.OwnerReference{*metav1.NewControllerRef(w, w.GroupVersionKind())})
	}
	if o.GetKind() != "Pod" {
		config := x.lab.Config()
		config.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:" + w.GetNamespace() + ":" + account, Groups: []string{"system:serviceaccounts", "system:authenticated"}}
		var err error
		if as, err = client.New(config, client.Options{Scheme: x.client.Scheme(), Mapper: x.client.RESTMapper()}); err != nil {
			x.t.Fatal(err)
		}
	}
	if err := as.Create(x.t.Context(), o, client.FieldValidation(metav1.FieldValidationStrict)); err != nil {
		x.t.Fatalf("%s of Workflow %s: %v", o.GetKind(), w.GetName(), err)
	}
	return o
}

// argoDone says whether what a task made is as it should be in the end, and how it is.
func (x *exampleStage) argoDone(made *unstructured.Unstructured) (bool, string) {
	if made.GetKind() == "Pod" {
		for _, p := range x.pods(made.GetNamespace()) {
			if p.Name == made.GetName() {
				return p.Status.Phase == corev1.PodSucceeded, string(p.Status.Phase)
			}
		}
		return false, "a pod that is not there"
	}
	j := x.job(made.GetNamespace(), made.GetName())
	if j == nil {
		return false, "a Job that is not there"
	}
	phase := j.Status.State.Phase
	if phase == vcbatch.Failed {
		x.t.Fatalf("Job %s has failed: %+v", j.Name, j.Status)
	}
	return phase == vcbatch.Completed, string(phase) + x.sayGroups(j.Namespace)
}

// playSpark makes the pods of a SparkApplication as its operator of 2019 does, the executors once the driver runs, with the scheduler and the annotations that it says. It says what does not run yet.
func (x *exampleStage) playSpark(app *unstructured.Unstructured) string {
	spec, _, _ := unstructured.NestedMap(app.Object, "spec")
	put := func(owner *unstructured.Unstructured, role, name string) {
		part, _, _ := unstructured.NestedMap(spec, role)
		notes, _, _ := unstructured.NestedStringMap(part, "annotations")
		labels, _, _ := unstructured.NestedStringMap(part, "labels")
		labels["spark-role"], labels["sparkoperator.k8s.io/app-name"] = role, app.GetName()
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace: app.GetNamespace(), Name: name, Labels: labels, Annotations: notes,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(owner, owner.GroupVersionKind())},
		}}
		p.Spec.SchedulerName, p.Spec.ServiceAccountName, p.Spec.RestartPolicy = word(part, "schedulerName"), word(part, "serviceAccount"), corev1.RestartPolicyNever
		p.Spec.Containers = []corev1.Container{{Name: role, Image: word(spec, "image"), Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse(fmt.Sprint(part["cores"])), corev1.ResourceMemory: resource.MustParse("896Mi"), // those 512m and Spark's overhead, 384Mi
		}}}}
		x.create(x.t, p)
	}
	driver, executors := app.GetName()+"-driver", 0
	var runs *corev1.Pod
	made := false
	for _, p := range x.pods(app.GetNamespace()) {
		switch {
		case p.Name == driver:
			made = true
			if p.Status.Phase == corev1.PodRunning {
				runs = &p
			}
		case p.Labels["spark-role"] == "executor":
			executors++
		}
	}
	switch {
	case !made && x.argo["driver"] == nil:
		x.argo["driver"] = &argoNode{}
		put(app, "driver", driver)
		fallthrough
	case runs == nil:
		return "the driver does not run" + x.sayGroups(app.GetNamespace())
	case x.argo["executor"] == nil:
		x.argo["executor"] = &argoNode{}
		owner := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Pod"}}
		owner.SetName(driver)
		owner.SetUID(runs.UID)
		n, err := strconv.Atoi(fmt.Sprint(spec["executor"].(map[string]any)["instances"]))
		if err != nil {
			x.t.Fatal(err)
		}
		for i := range n {
			put(owner, "executor", fmt.Sprintf("%s-exec-%d", app.GetName(), i+1))
		}
	}
	if text := x.podsRun("spark-role", "executor", 15, vckeys.SchedulerName); text != "" {
		return text + x.sayGroups(app.GetNamespace())
	}
	return ""
}

// objectsIn are the objects of a list below a path.
func objectsIn(in map[string]any, path ...string) (out []map[string]any) {
	all, _, _ := unstructured.NestedSlice(in, path...)
	for _, o := range all {
		out = append(out, o.(map[string]any))
	}
	return out
}

// word is the text below a path; "" for none.
func word(in map[string]any, path ...string) string {
	s, _, _ := unstructured.NestedString(in, path...)
	return s
}
