package vcjob

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	batch "github.com/muster-scheduler/muster/api/volcano/batch/v1alpha1"
	"github.com/muster-scheduler/muster/api/volcano/keys"
)

// podName is the name of a task's pod.
func podName(job, task string, index int) string { return fmt.Sprintf("%s-%s-%d", job, task, index) }

// letters are twelve of [0-9a-z] that are the same for the same words. Where Volcano takes random ones, these cannot come out twice for one
// thing when a controller dies in between.
func letters(words ...string) string {
	h := sha256.New()
	for _, w := range words {
		fmt.Fprintf(h, "%d:%s", len(w), w)
	}
	sum := h.Sum(nil)
	out := make([]byte, 12)
	for i := range out {
		out[i] = "0123456789abcdefghijklmnopqrstuvwxyz"[sum[i]%36]
	}
	return string(out)
}

// ownedBy makes a Job the controller of what is made for it.
func ownedBy(j *batch.Job) []metav1.OwnerReference {
	return []metav1.OwnerReference{*metav1.NewControllerRef(j, batch.GroupVersion.WithKind("Job"))}
}

// fromJob are the Job's annotations that its pods have too.
var fromJob = []string{keys.Preemptable, keys.CooldownTime, keys.RevocableZone}

// podOf makes a task's pod.
func podOf(j *batch.Job, t *batch.TaskSpec, index int, plugins jobPlugins, group string, o rules) *corev1.Pod {
	template := t.Template.DeepCopy()
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: j.Namespace, Name: podName(j.Name, t.Name, index), OwnerReferences: ownedBy(j),
			Labels: template.Labels, Annotations: template.Annotations, Finalizers: template.Finalizers,
		},
		Spec: template.Spec,
	}
	if p.Spec.SchedulerName == "" {
		if p.Spec.SchedulerName = j.Spec.SchedulerName; p.Spec.SchedulerName == "" {
			p.Spec.SchedulerName = o.scheduler
		}
	}
	if p.Spec.PriorityClassName == "" {
		p.Spec.PriorityClassName = j.Spec.PriorityClassName
	}
	mount(j, &p.Spec)
	p.Annotations = annotate(p.Annotations, j, t, index, group)
	p.Labels = label(p.Labels, j, t, index)
	plugins.onPod(p, t, index)
	return p
}

func annotate(to map[string]string, j *batch.Job, t *batch.TaskSpec, index int, group string) map[string]string {
	if to == nil {
		to = map[string]string{}
	}
	maps.Copy(to, map[string]string{
		keys.TaskIndex: strconv.Itoa(index), keys.TaskSpec: t.Name, keys.GroupName: group, keys.JobName: j.Name, keys.JobQueueName: j.Spec.Queue,
		keys.JobVersion: strconv.Itoa(int(j.Status.Version)), keys.TemplateUID: j.Name + "-" + t.Name, keys.JobRetryCount: strconv.Itoa(int(j.Status.RetryCount)),
	})
	if t.TopologyPolicy != "" {
		to[keys.NumaTopologyPolicy] = string(t.TopologyPolicy)
	}
	for _, name := range fromJob {
		if v, ok := j.Annotations[name]; ok {
			to[name] = v
		}
	}
	if v, ok := j.Annotations[keys.JDBMinAvailable]; ok { // which wins over the other
		to[keys.JDBMinAvailable] = v
	} else if v, ok := j.Annotations[keys.JDBMaxUnavailable]; ok {
		to[keys.JDBMaxUnavailable] = v
	}
	if v, ok := j.Annotations[keys.JobForwarding]; ok {
		to[keys.JobForwarding] = v
	}
	return to
}

func label(to map[string]string, j *batch.Job, t *batch.TaskSpec, index int) map[string]string {
	if to == nil {
		to = map[string]string{}
	}
	maps.Copy(to, map[string]string{
		keys.TaskIndex: strconv.Itoa(index), keys.JobName: j.Name, keys.TaskSpec: t.Name, keys.JobNamespace: j.Namespace, keys.JobQueueName: j.Spec.Queue,
	})
	for _, name := range []string{keys.Preemptable, keys.CooldownTime} {
		if v, ok := j.Labels[name]; ok {
			to[name] = v
		}
	}
	if v, ok := j.Labels[keys.JobForwarding]; ok {
		to[keys.JobForwarding] = v
	}
	if t.PartitionPolicy != nil && t.PartitionPolicy.PartitionSize > 0 {
		to[keys.PartitionID] = strconv.Itoa(index / int(t.PartitionPolicy.PartitionSize))
	}
	return to
}

// mount gives every container, but those that run first, the Job's volumes: one for each claim.
func mount(j *batch.Job, p *corev1.PodSpec) {
	names := map[string]string{}
	for i := range j.Spec.Volumes {
		v := &j.Spec.Volumes[i]
		name, known := names[v.VolumeClaimName]
		if !known {
			name = j.Name + "-" + letters(string(j.UID), v.VolumeClaimName)
			names[v.VolumeClaimName] = name
			p.Volumes = append(p.Volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: v.VolumeClaimName},
			}})
		}
		for c := range p.Containers {
			p.Containers[c].VolumeMounts = append(p.Containers[c].VolumeMounts, corev1.VolumeMount{Name: name, MountPath: v.MountPath})
		}
	}
}

// volumes has claims made, and says what is wrong with a volume; empty: nothing.
func (b *book) volumes(j *batch.Job, p *plan, is *batch.JobStatus) string {
	for i := range j.Spec.Volumes {
		v := &j.Spec.Volumes[i]
		switch {
		case v.VolumeClaimName == "":
			return fmt.Sprintf("spec.volumes[%d]: neither volumeClaimName nor volumeClaim is given", i)
		case b.claims[key{Namespace: j.Namespace, Name: v.VolumeClaimName}]:
		case v.VolumeClaim == nil:
			return fmt.Sprintf("spec.volumes[%d]: claim %s does not exist", i, v.VolumeClaimName)
		default:
			p.claims = append(p.claims, &corev1.PersistentVolumeClaim{
				ObjectMeta: metav1.ObjectMeta{Namespace: j.Namespace, Name: v.VolumeClaimName, OwnerReferences: ownedBy(j)},
				Spec:       *v.VolumeClaim.DeepCopy(),
			})
		}
		made(is, "volume-pvc-"+v.VolumeClaimName, v.VolumeClaimName)
	}
	return ""
}

// made notes something that was made for a Job.
func made(is *batch.JobStatus, name, value string) {
	if is.ControlledResources[name] == value {
		return
	}
	is.ControlledResources = maps.Clone(is.ControlledResources)
	if is.ControlledResources == nil {
		is.ControlledResources = map[string]string{}
	}
	is.ControlledResources[name] = value
}
