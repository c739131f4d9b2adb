package kubelet

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-scheduler/muster/api/kai/keys"
	"github.com/muster-scheduler/muster/internal/lab"
)

// trimPod keeps of a pod what a played kubelet reads, so that tens of thousands of them are cheap to hold.
func trimPod(o any) (any, error) {
	full, ok := o.(*corev1.Pod)
	if !ok {
		return o, nil
	}
	slim := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: full.Name, Namespace: full.Namespace, UID: full.UID, ResourceVersion: full.ResourceVersion,
			DeletionTimestamp: full.DeletionTimestamp, DeletionGracePeriodSeconds: full.DeletionGracePeriodSeconds,
		},
		Spec: corev1.PodSpec{
			NodeName: full.Spec.NodeName, Overhead: full.Spec.Overhead, Resources: full.Spec.Resources,
			Containers: trimContainers(full.Spec.Containers), InitContainers: trimContainers(full.Spec.InitContainers),
		},
		Status: corev1.PodStatus{
			Phase: full.Status.Phase, StartTime: full.Status.StartTime, ExtendedResourceClaimStatus: full.Status.ExtendedResourceClaimStatus,
		},
	}
	for _, key := range []string{lab.AnnotationStartAfter, lab.AnnotationRunFor, lab.AnnotationOutcome, lab.AnnotationExitCode, lab.AnnotationStopAfter, keys.ReservedGPUAnnotation, keys.NUMAPredictedAnnotation, keys.NUMAObservedAnnotation} {
		if v, ok := full.Annotations[key]; ok {
			if slim.Annotations == nil {
				slim.Annotations = map[string]string{}
			}
			slim.Annotations[key] = v
		}
	}
	if holdsDevice(full) {
		slim.Labels = map[string]string{keys.AppLabel: full.Labels[keys.AppLabel]}
	}
	for _, c := range full.Status.Conditions {
		if c.Type == corev1.PodReady {
			slim.Status.Conditions = []corev1.PodCondition{{Type: c.Type, Status: c.Status}}
		}
	}
	return slim, nil
}

func trimContainers(full []corev1.Container) []corev1.Container {
	var slim []corev1.Container
	for _, c := range full {
		slim = append(slim, corev1.Container{Name: c.Name, Image: c.Image, RestartPolicy: c.RestartPolicy, Resources: c.Resources})
	}
	return slim
}

func trimNode(o any) (any, error) {
	full, ok := o.(*corev1.Node)
	if !ok {
		return o, nil
	}
	slim := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: full.Name, UID: full.UID, ResourceVersion: full.ResourceVersion},
		Status:     corev1.NodeStatus{Capacity: full.Status.Capacity, Allocatable: full.Status.Allocatable},
	}
	if v, ok := full.Labels[lab.LabelPool]; ok {
		slim.Labels = map[string]string{lab.LabelPool: v}
	}
	if v, ok := full.Annotations[lab.AnnotationFailed]; ok {
		slim.Annotations = map[string]string{lab.AnnotationFailed: v}
	}
	for _, c := range full.Status.Conditions {
		if c.Type == corev1.NodeReady {
			slim.Status.Conditions = []corev1.NodeCondition{{Type: c.Type, Status: c.Status}}
		}
	}
	return slim, nil
}

func readyOf(n *corev1.Node) corev1.ConditionStatus {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status
		}
	}
	return corev1.ConditionUnknown
}
