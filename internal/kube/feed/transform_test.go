package feed

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/muster-scheduler/muster/internal/dialect/core"
	"github.com/muster-scheduler/muster/internal/dialect/kai"
)

// fullPod has something in every field that is trimmed and in many that must stay.
func fullPod() *v1.Pod {
	container := func(name string) v1.Container {
		return v1.Container{
			Name: name, Image: "i", Command: []string{"c"}, Args: []string{"a"},
			Env: []v1.EnvVar{
				{Name: "A", Value: "a"},
				{Name: "B", ValueFrom: &v1.EnvVarSource{ConfigMapKeyRef: &v1.ConfigMapKeySelector{LocalObjectReference: v1.LocalObjectReference{Name: "env"}, Key: "k"}}},
				{Name: "C", ValueFrom: &v1.EnvVarSource{SecretKeyRef: &v1.SecretKeySelector{Key: "k"}}},
			},
			EnvFrom:      []v1.EnvFromSource{{ConfigMapRef: &v1.ConfigMapEnvSource{LocalObjectReference: v1.LocalObjectReference{Name: "from"}}}},
			Ports:        []v1.ContainerPort{{ContainerPort: 80, HostPort: 80, Protocol: "TCP"}},
			Resources:    v1.ResourceRequirements{Requests: v1.ResourceList{"cpu": resource.MustParse("1")}},
			VolumeMounts: []v1.VolumeMount{{Name: "v"}}, LivenessProbe: &v1.Probe{}, Lifecycle: &v1.Lifecycle{}, SecurityContext: &v1.SecurityContext{},
		}
	}
	p := pod("p", "u", 1)
	p.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "m"}}
	p.Annotations[lastApplied] = "{}"
	p.OwnerReferences = []metav1.OwnerReference{{Kind: "Job", Name: "j"}}
	p.Spec.InitContainers = []v1.Container{container("init")}
	p.Spec.InitContainers[0].RestartPolicy = ptr.To(v1.ContainerRestartPolicyAlways)
	p.Spec.Containers = []v1.Container{container("main")}
	p.Spec.Volumes = []v1.Volume{{Name: "v", VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "c"}}}}
	p.Spec.PriorityClassName, p.Spec.SecurityContext = "train", &v1.PodSecurityContext{}
	p.Status.Conditions = []v1.PodCondition{{Type: v1.PodScheduled, Status: "True"}}
	p.Status.PodIPs = []v1.PodIP{{IP: "1.1.1.1"}}
	p.Status.ContainerStatuses = []v1.ContainerStatus{{
		Name: "main", Ready: true, Image: "i", ContainerID: "x", State: v1.ContainerState{Running: &v1.ContainerStateRunning{}},
		Resources: &v1.ResourceRequirements{Requests: v1.ResourceList{"cpu": resource.MustParse("2")}},
	}}
	return p
}

// TestTrimKeepsWhatSchedulingReads: a pod means the same before and after.
func TestTrimKeepsWhatSchedulingReads(t *testing.T) {
	t.Parallel()
	var o cache.Options
	Trim(&o)
	roles := kai.Roles{SchedulerNames: []string{kai.DefaultSchedulerName}}
	want := core.Pod(fullPod())
	delete(want.Labels, lastApplied)
	roles.Complete(&want, fullPod())
	p := fullPod()
	for range 2 { // an informer may show an object twice
		for example, by := range o.ByObject {
			if _, ok := example.(*v1.Pod); ok {
				if _, err := by.Transform(p); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	got := core.Pod(p)
	roles.Complete(&got, p)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-before +after:\n%s", diff)
	}
	c := p.Spec.Containers[0]
	if len(c.Env) != 1 || c.Env[0].Name != "B" || c.Command != nil || c.LivenessProbe != nil || c.VolumeMounts != nil {
		t.Errorf("not trimmed: %+v", c)
	}
	if len(p.ManagedFields) != 0 || p.Annotations[lastApplied] != "" || p.Status.ContainerStatuses[0].State.Running != nil {
		t.Errorf("not trimmed: %+v", p)
	}
	if p.OwnerReferences == nil || p.Spec.Volumes == nil || p.Spec.PriorityClassName == "" || p.Status.Conditions == nil || p.Annotations[kai.PodGroupAnnotation] == "" {
		t.Errorf("trimmed too much: %+v", p)
	}
}

// TestTrimLeavesOthersAlone: a transform is shown whatever an informer holds.
func TestTrimLeavesOthersAlone(t *testing.T) {
	t.Parallel()
	whole := &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "c", Labels: map[string]string{"a": "b"}}, Data: map[string]string{"k": "v"}}
	got, err := trimConfigMap(whole)
	if err != nil || got.(*v1.ConfigMap).Data["k"] != "v" || got.(*v1.ConfigMap).Labels["a"] != "b" {
		t.Errorf("a ConfigMap watched whole was cut: %+v, %v", got, err)
	}
	meta := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "c", UID: "u", Labels: map[string]string{"a": "b"}, Annotations: map[string]string{"a": "b"}}}
	if _, err := trimConfigMap(meta); err != nil || meta.Labels != nil || meta.Annotations != nil || meta.UID != "u" {
		t.Errorf("metadata not trimmed: %+v, %v", meta, err)
	}
	n := node("n")
	n.Status.Images = []v1.ContainerImage{{Names: []string{"big"}}}
	if _, err := trimNode(n); err != nil || n.Status.Images != nil || n.Status.Allocatable == nil || n.Status.Conditions == nil {
		t.Errorf("node not trimmed: %+v, %v", n, err)
	}
	for _, f := range []func(any) (any, error){trimPod, trimNode, trimConfigMap} {
		if got, err := f("something else"); err != nil || got != "something else" {
			t.Errorf("%v, %v", got, err)
		}
	}
}
