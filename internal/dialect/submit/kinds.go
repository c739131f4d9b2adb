package submit

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/muster-scheduler/muster/internal/dialect/workload"
)

// expands are the kinds that pods are made of, each as its controller makes them.
var expands = map[schema.GroupVersionKind]func(*reader, *unstructured.Unstructured) error{
	v1.SchemeGroupVersion.WithKind("Pod"):                           (*reader).pod,
	batchv1.SchemeGroupVersion.WithKind("Job"):                      (*reader).job,
	{Group: "kubeflow.org", Version: "v1", Kind: "PyTorchJob"}:      (*reader).pytorch,
	{Group: "jobset.x-k8s.io", Version: "v1alpha2", Kind: "JobSet"}: (*reader).jobSet,
}

// Kinds are those that can be submitted, for people.
const Kinds = "Pod, Job (batch/v1), PyTorchJob (kubeflow.org/v1), JobSet (jobset.x-k8s.io/v1alpha2), PodGroup (scheduling.run.ai/v2alpha2)"

func (r *reader) unknown(u *unstructured.Unstructured) error {
	return refuse(u, "", fmt.Sprintf("is of a kind that is not simulated, %.100s %.60s; these are: %s", u.GetAPIVersion(), u.GetKind(), Kinds))
}

func (r *reader) object(u *unstructured.Unstructured) error {
	expand := expands[u.GroupVersionKind()]
	if expand == nil {
		return r.unknown(u)
	}
	if err := r.named(u); err != nil {
		return err
	}
	return expand(r, u)
}

func (r *reader) pod(u *unstructured.Unstructured) error {
	p := &v1.Pod{}
	if err := into(u, p); err != nil {
		return err
	}
	return r.member(p, nil)
}

// template is a pod template as JSON has it.
func template(u *unstructured.Unstructured, at map[string]any, path string) (*v1.PodTemplateSpec, error) {
	t := &v1.PodTemplateSpec{}
	of, ok := at["template"].(map[string]any)
	if !ok {
		return nil, refuse(u, path+".template", "must be there")
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(of, t, true); err != nil {
		return nil, refuse(u, path+".template", fmt.Sprintf("cannot be read: %.200s", err))
	}
	return t, nil
}

// stamped makes a pod of a template.
func stamped(t *v1.PodTemplateSpec, namespace, name string, labels map[string]string) *v1.Pod {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: t.Labels, Annotations: t.Annotations}, Spec: t.Spec}
	for k, v := range labels { // order: into a map
		p.Labels = with(p.Labels, k, v)
	}
	return p
}

// owner views an object as an owner with its content.
func owner(u *unstructured.Unstructured) workload.Object {
	return workload.FromMeta(u.GroupVersionKind(), u, u.Object)
}

// number is the number at a field, or what holds where there is none.
func number(u *unstructured.Unstructured, of map[string]any, path, field string, absent int64) (int64, error) {
	value, there := of[field]
	if !there || value == nil {
		return absent, nil
	}
	n, ok := value.(int64)
	if !ok || n < 0 || n > MaxPods {
		return 0, refuse(u, path+"."+field, fmt.Sprintf("must be an integer from 0 to %d, is %.40q", MaxPods, fmt.Sprint(value)))
	}
	return n, nil
}

// job makes the pods that the Job controller makes at first.
func (r *reader) job(u *unstructured.Unstructured) error {
	if err := into(u.DeepCopy(), &batchv1.Job{}); err != nil {
		return err
	}
	spec, _ := u.Object["spec"].(map[string]any)
	return r.jobPods(u, spec, "spec", u.GetName(), []workload.Object{owner(u)}, nil)
}

// jobPods makes the pods of the spec of a Job: as many as run at a time, and no more than have to end.
func (r *reader) jobPods(u *unstructured.Unstructured, spec map[string]any, path, name string, owners []workload.Object, labels map[string]string) error {
	parallelism, err := number(u, spec, path, "parallelism", 1)
	if err != nil {
		return err
	}
	n, err := number(u, spec, path, "completions", parallelism)
	if err != nil {
		return err
	}
	if suspended, _ := spec["suspend"].(bool); suspended {
		return refuse(u, path+".suspend", "must not be true: a Job that is suspended makes no pods")
	}
	t, err := template(u, spec, path)
	if err != nil {
		return err
	}
	for i := range min(n, parallelism) {
		index := strconv.FormatInt(i, 10)
		p := stamped(t, u.GetNamespace(), name+"-"+index, labels)
		p.Labels = with(with(p.Labels, batchv1.JobNameLabel, name), "job-name", name)
		if spec["completionMode"] == string(batchv1.IndexedCompletion) {
			p.Labels, p.Annotations = with(p.Labels, batchv1.JobCompletionIndexAnnotation, index), with(p.Annotations, batchv1.JobCompletionIndexAnnotation, index)
		}
		if err := r.member(p, owners); err != nil {
			return err
		}
	}
	return nil
}

// pytorch makes the pods that kubeflow's training operator makes.
func (r *reader) pytorch(u *unstructured.Unstructured) error {
	const path = "spec.pytorchReplicaSpecs"
	specs, found, err := unstructured.NestedMap(u.Object, "spec", "pytorchReplicaSpecs")
	if err != nil || !found || len(specs) == 0 {
		return refuse(u, path, "must have a Master or a Worker")
	}
	if suspended, _, _ := unstructured.NestedBool(u.Object, "spec", "runPolicy", "suspend"); suspended {
		return refuse(u, "spec.runPolicy.suspend", "must not be true: a PyTorchJob that is suspended makes no pods")
	}
	for _, role := range slices.Sorted(maps.Keys(specs)) {
		at := path + "." + role
		of, ok := specs[role].(map[string]any)
		if !ok || role != "Master" && role != "Worker" {
			return refuse(u, at, "must be an object, and called Master or Worker")
		}
		n, err := number(u, of, at, "replicas", 1)
		if err != nil {
			return err
		}
		t, err := template(u, of, at)
		if err != nil {
			return err
		}
		kind := strings.ToLower(role)
		for i := range n {
			index := strconv.FormatInt(i, 10)
			labels := map[string]string{
				"training.kubeflow.org/job-name": u.GetName(), "training.kubeflow.org/operator-name": "pytorchjob-controller",
				"training.kubeflow.org/replica-type": kind, "training.kubeflow.org/replica-index": index,
			}
			if kind == "master" {
				labels["training.kubeflow.org/job-role"] = kind
			}
			if err := r.member(stamped(t, u.GetNamespace(), u.GetName()+"-"+kind+"-"+index, labels), []workload.Object{owner(u)}); err != nil {
				return err
			}
		}
	}
	return nil
}

// jobSet makes the Jobs that the JobSet controller makes, all of them, and their pods. Jobs that would be started later are there too: who schedules would meet them.
func (r *reader) jobSet(u *unstructured.Unstructured) error {
	if suspended, _, _ := unstructured.NestedBool(u.Object, "spec", "suspend"); suspended {
		return refuse(u, "spec.suspend", "must not be true: a JobSet that is suspended makes no pods")
	}
	list, _, err := unstructured.NestedSlice(u.Object, "spec", "replicatedJobs")
	if err != nil || len(list) == 0 {
		return refuse(u, "spec.replicatedJobs", "must be a list of at least one")
	}
	top := owner(u)
	for i, one := range list {
		at := fmt.Sprintf("spec.replicatedJobs[%d]", i)
		of, _ := one.(map[string]any)
		name, _ := of["name"].(string)
		if name == "" {
			return refuse(u, at+".name", "must be there")
		}
		n, err := number(u, of, at, "replicas", 1)
		if err != nil {
			return err
		}
		spec, found, err := unstructured.NestedMap(of, "template", "spec")
		if err != nil || !found {
			return refuse(u, at+".template.spec", "must be there")
		}
		notes, _, _ := unstructured.NestedStringMap(of, "template", "metadata", "annotations")
		for k := range n {
			job := fmt.Sprintf("%s-%s-%d", u.GetName(), name, k)
			labels := map[string]string{
				"jobset.sigs.k8s.io/jobset-name": u.GetName(), "jobset.sigs.k8s.io/replicatedjob-name": name, "jobset.sigs.k8s.io/job-index": strconv.FormatInt(k, 10),
			}
			below := workload.Object{
				GVK: batchv1.SchemeGroupVersion.WithKind("Job"), Namespace: u.GetNamespace(), Name: job, UID: r.uid(), Labels: labels, Annotations: notes,
				Owners: []metav1.OwnerReference{{APIVersion: u.GetAPIVersion(), Kind: u.GetKind(), Name: u.GetName(), UID: u.GetUID(), Controller: new(true)}},
			}
			if err := r.jobPods(u, spec, at+".template.spec", job, []workload.Object{below, top}, labels); err != nil {
				return err
			}
		}
	}
	return nil
}
