package operator

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
)

// maxReplicas bounds the pods of one replica type, so that a typing error does not fill the API server.
const maxReplicas = 10_000

// replicaSpec is one entry of the map at Kind.Replicas.
type replicaSpec struct {
	Replicas      *int32                 `json:"replicas,omitempty"`
	RestartPolicy string                 `json:"restartPolicy,omitempty"`
	Template      corev1.PodTemplateSpec `json:"template,omitempty"`
}

// tally counts the pods of a replica type.
type tally struct{ active, succeeded, failed int }

// sync makes one object's pods and status what the operator would.
func (p *player) sync(ctx context.Context, name cache.ObjectName) error {
	o, found, err := p.jobs.GetStore().GetByKey(name.String())
	if err != nil || !found {
		return err // a deleted object's pods are the garbage collector's
	}
	job, ok := o.(*unstructured.Unstructured)
	if !ok || job.GetDeletionTimestamp() != nil {
		return nil
	}
	pods := p.podsOf(job)
	specs, err := p.specs(job)
	switch {
	case err != nil:
		return p.setStatus(ctx, job, nil, "Failed", err.Error())
	case finished(job):
		return p.clean(ctx, job, pods)
	case suspended(job):
		if err := p.remove(ctx, slices.Collect(maps.Values(pods))); err != nil {
			return err
		}
		return p.setStatus(ctx, job, nil, "Suspended", "spec.runPolicy.suspend is set")
	}

	counts := map[string]int{}
	for t, s := range specs {
		counts[t] = int(*s.Replicas)
	}
	var missing []*corev1.Pod
	var surplus []*corev1.Pod
	tallies := map[string]tally{}
	phase, why := "", ""
	for _, t := range slices.Sorted(maps.Keys(specs)) {
		spec, n := specs[t], tally{}
		for i := range counts[t] {
			m := Member{Job: job.GetName(), Type: t, Index: i, Counts: counts}
			pod := pods[m.PodName()]
			delete(pods, m.PodName())
			switch {
			case pod == nil:
				missing = append(missing, p.newPod(job, m, spec))
			case pod.Status.Phase == corev1.PodSucceeded:
				n.succeeded++
			case pod.Status.Phase == corev1.PodFailed:
				n.failed++
				if pod.DeletionTimestamp == nil && !restarts(spec.RestartPolicy, pod) {
					phase, why = "Failed", fmt.Sprintf("pod %s failed", pod.Name)
				} else {
					surplus = append(surplus, pod) // deleted here, made anew once it is gone
				}
			case pod.Status.Phase == corev1.PodRunning:
				n.active++
			}
		}
		tallies[t] = n
	}
	surplus = append(surplus, slices.Collect(maps.Values(pods))...) // beyond the number of replicas
	if phase == "" {
		phase, why = p.progress(job.GetName(), tallies, counts)
	}
	if phase != "Failed" && phase != "Succeeded" {
		if err := p.create(ctx, missing); err != nil {
			return err
		}
		if err := p.remove(ctx, surplus); err != nil {
			return err
		}
	}
	return p.setStatus(ctx, job, tallies, phase, why)
}

// specs reads the replica types of an object; its errors name the field.
func (p *player) specs(job *unstructured.Unstructured) (map[string]replicaSpec, error) {
	path := strings.Join(p.kind.Replicas, ".")
	raw, _, err := unstructured.NestedMap(job.Object, p.kind.Replicas...)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	specs := map[string]replicaSpec{}
	for t, v := range raw {
		m, ok := v.(map[string]any)
		if !ok {
			return nil, fmt.Errorf("%s.%s: is no object", path, t)
		}
		var s replicaSpec
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(m, &s); err != nil {
			return nil, fmt.Errorf("%s.%s: %w", path, t, err)
		}
		if s.Replicas == nil {
			s.Replicas = new(int32(1))
		}
		if *s.Replicas < 0 || *s.Replicas > maxReplicas {
			return nil, fmt.Errorf("%s.%s.replicas: is %d, must be 0 to %d", path, t, *s.Replicas, maxReplicas)
		}
		if s.RestartPolicy == "" {
			s.RestartPolicy = p.kind.RestartPolicy
		}
		specs[t] = s
	}
	return specs, nil
}

// podsOf returns the object's pods by name.
func (p *player) podsOf(job *unstructured.Unstructured) map[string]*corev1.Pod {
	objs, _ := p.pods.GetIndexer().ByIndex(byJob, job.GetNamespace()+"/"+job.GetName())
	pods := map[string]*corev1.Pod{}
	for _, o := range objs {
		if pod, ok := o.(*corev1.Pod); ok && metav1.IsControlledBy(pod, job) {
			pods[pod.Name] = pod
		}
	}
	return pods
}

func (p *player) newPod(job *unstructured.Unstructured, m Member, spec replicaSpec) *corev1.Pod {
	t := spec.Template.DeepCopy()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: m.PodName(), Namespace: job.GetNamespace(), Labels: t.Labels, Annotations: t.Annotations,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(job, p.kind.Resource.GroupVersion().WithKind(p.kind.Kind))},
		},
		Spec: t.Spec,
	}
	if pod.Labels == nil {
		pod.Labels = map[string]string{}
	}
	fill := strings.NewReplacer("{job}", m.Job, "{type}", strings.ToLower(m.Type), "{index}", strconv.Itoa(m.Index))
	for k, v := range p.kind.Labels {
		pod.Labels[k] = fill.Replace(v)
	}
	if leader := p.leader(m.Counts); m.Type == leader || leader == "" && m.Type == p.kind.Worker && m.Index == 0 {
		maps.Copy(pod.Labels, p.kind.LeaderLabels)
	}
	// The replica's policy replaces the template's; ExitCode is the operator's own and means Never to a kubelet.
	pod.Spec.RestartPolicy = corev1.RestartPolicy(spec.RestartPolicy)
	if spec.RestartPolicy == "ExitCode" {
		pod.Spec.RestartPolicy = corev1.RestartPolicyNever
	}
	if p.kind.Finish != nil {
		p.kind.Finish(m, pod)
	}
	return pod
}

// leader is the replica type that leads, or "" if the first worker does.
func (p *player) leader(counts map[string]int) string {
	for _, t := range p.kind.Leaders {
		if _, ok := counts[t]; ok {
			return t
		}
	}
	return ""
}

// progress says how a job with no fatal failure goes.
func (p *player) progress(job string, tallies map[string]tally, counts map[string]int) (phase, why string) {
	t := p.leader(counts)
	if t == "" {
		t = p.kind.Worker
	}
	switch n := tallies[t]; {
	case counts[t] > 0 && n.succeeded == counts[t]:
		return "Succeeded", fmt.Sprintf("%s %s is successfully completed.", p.kind.Kind, job)
	case n.active > 0:
		return "Running", fmt.Sprintf("%s %s is running.", p.kind.Kind, job)
	}
	return "Created", fmt.Sprintf("%s %s is created.", p.kind.Kind, job)
}

// restarts says whether the operator makes a failed pod anew. ExitCode retries what a signal ended.
func restarts(policy string, pod *corev1.Pod) bool {
	if policy != "ExitCode" {
		return policy != "Never"
	}
	for _, c := range pod.Status.ContainerStatuses {
		if t := c.State.Terminated; t != nil && t.ExitCode > 0 && t.ExitCode < 128 {
			return false
		}
	}
	return true
}

func suspended(job *unstructured.Unstructured) bool {
	yes, _, _ := unstructured.NestedBool(job.Object, "spec", "runPolicy", "suspend")
	return yes
}

// clean removes a finished job's pods as its clean-up policy says.
func (p *player) clean(ctx context.Context, job *unstructured.Unstructured, pods map[string]*corev1.Pod) error {
	policy, _, _ := unstructured.NestedString(job.Object, "spec", "runPolicy", "cleanPodPolicy")
	var doomed []*corev1.Pod
	for _, pod := range pods {
		if policy == "All" || policy == "Running" && pod.Status.Phase == corev1.PodRunning {
			doomed = append(doomed, pod)
		}
	}
	return p.remove(ctx, doomed)
}

func (p *player) create(ctx context.Context, pods []*corev1.Pod) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(16)
	for _, pod := range pods {
		g.Go(func() error {
			// A pod of that name may still be leaving, or our own be on its way to us: either shows as an event.
			_, err := p.client.CoreV1().Pods(pod.Namespace).Create(ctx, pod, metav1.CreateOptions{})
			if err != nil && !apierrors.IsAlreadyExists(err) {
				return fmt.Errorf("create pod %s/%s: %w", pod.Namespace, pod.Name, err)
			}
			return nil
		})
	}
	return g.Wait()
}

func (p *player) remove(ctx context.Context, pods []*corev1.Pod) error {
	for _, pod := range pods {
		if pod.DeletionTimestamp != nil {
			continue
		}
		err := p.client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, *metav1.NewPreconditionDeleteOptions(string(pod.UID)))
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			return fmt.Errorf("delete pod %s/%s: %w", pod.Namespace, pod.Name, err)
		}
	}
	return nil
}

// setStatus writes the object's status if it says something new.
func (p *player) setStatus(ctx context.Context, job *unstructured.Unstructured, tallies map[string]tally, phase, why string) error {
	next := job.DeepCopy()
	status, _, _ := unstructured.NestedMap(next.Object, "status")
	if status == nil {
		status = map[string]any{}
	}
	now := metav1.Now().UTC().Format(time.RFC3339)
	if status["startTime"] == nil && phase != "Suspended" {
		status["startTime"] = now
	}
	if (phase == "Succeeded" || phase == "Failed") && status["completionTime"] == nil {
		status["completionTime"] = now
	}
	replicas := map[string]any{}
	for t, n := range tallies {
		replicas[t] = map[string]any{"active": int64(n.active), "succeeded": int64(n.succeeded), "failed": int64(n.failed)}
	}
	status["replicaStatuses"] = replicas
	conditions, _ := status["conditions"].([]any)
	conditions = p.condition(conditions, "Created", "True", fmt.Sprintf("%s %s is created.", p.kind.Kind, job.GetName()), now)
	for _, past := range []string{"Running", "Suspended"} {
		if phase != past && slices.ContainsFunc(conditions, func(c any) bool {
			m, ok := c.(map[string]any)
			return ok && m["type"] == past
		}) {
			conditions = p.condition(conditions, past, "False", why, now)
		}
	}
	if phase != "Created" {
		conditions = p.condition(conditions, phase, "True", why, now)
	}
	status["conditions"] = conditions
	old, _, _ := unstructured.NestedMap(job.Object, "status")
	if reflect.DeepEqual(old, status) {
		return nil
	}
	next.Object["status"] = status
	_, err := p.dyn.Resource(p.kind.Resource).Namespace(job.GetNamespace()).UpdateStatus(ctx, next, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("write the status of %s %s/%s: %w", p.kind.Kind, job.GetNamespace(), job.GetName(), err)
	}
	return nil
}

// condition sets one condition and keeps its times when nothing changed.
func (p *player) condition(list []any, kind, status, message, now string) []any {
	c := map[string]any{
		"type": kind, "status": status, "reason": p.kind.Kind + kind, "message": message,
		"lastTransitionTime": now, "lastUpdateTime": now,
	}
	for i, o := range list {
		m, ok := o.(map[string]any)
		if !ok || m["type"] != kind {
			continue
		}
		if m["status"] == status {
			return list
		}
		list = slices.Clone(list)
		list[i] = c
		return list
	}
	return append(slices.Clone(list), c)
}

func finished(job *unstructured.Unstructured) bool {
	conditions, _, _ := unstructured.NestedSlice(job.Object, "status", "conditions")
	for _, c := range conditions {
		if m, ok := c.(map[string]any); ok && (m["type"] == "Succeeded" || m["type"] == "Failed") && m["status"] == "True" {
			return true
		}
	}
	return false
}
