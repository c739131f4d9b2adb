//go:build lab

package e2e

import (
	"strings"
	"testing"

	admissionregv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-scheduler/muster/internal/lab"
)

// sleeper is a Job's pod whose machine can be suspended: 128 MiB, which take 4 s.
func sleeper() *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: "trainer", Labels: map[string]string{"batch.kubernetes.io/controller-uid": "u"},
			Annotations: map[string]string{"vm.muster.dev/on-stop": "suspend", "vm.muster.dev/suspend-to": "/claim"},
		},
		Spec: corev1.PodSpec{
			RuntimeClassName: ptr.To("muster-vm"), TerminationGracePeriodSeconds: ptr.To(int64(4)), AutomountServiceAccountToken: ptr.To(false),
			Volumes: []corev1.Volume{
				{Name: "claim", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "c"}}},
				{Name: "settings", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "s"}}}},
				{Name: "data", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
			},
			Containers: []corev1.Container{{
				Name: "vm", Image: "vm", Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("128Mi")}},
				VolumeMounts: []corev1.VolumeMount{{Name: "claim", MountPath: "/claim/"}, {Name: "settings", MountPath: "/etc/settings"}},
			}},
		},
	}
}

// TestVMAdmission: a real API server with the chart's policy takes a pod whose machine can be suspended, and refuses, by name, what could not be saved.
func TestVMAdmission(t *testing.T) {
	rendered, err := render(t, "vm: {enabled: true, daemonSet: false}", false)
	if err != nil {
		t.Fatal(err)
	}
	p := newPlace(t, lab.Options{Dir: t.TempDir()})
	all := objects(t, map[string]string{"vm.yaml": rendered["vm.yaml"]})
	for _, o := range []client.Object{
		all["RuntimeClass /muster-vm"].(*nodev1.RuntimeClass),
		all["ValidatingAdmissionPolicy /muster-vm-suspend"].(*admissionregv1.ValidatingAdmissionPolicy),
		all["ValidatingAdmissionPolicyBinding /muster-vm-suspend"].(*admissionregv1.ValidatingAdmissionPolicyBinding),
	} {
		if err := p.client.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	answer := func(change func(*corev1.Pod)) string {
		pod := sleeper()
		change(pod)
		if err := p.client.Create(t.Context(), pod, client.DryRunAll); err != nil {
			return err.Error()
		}
		return ""
	}
	c := func(p *corev1.Pod) *corev1.Container { return &p.Spec.Containers[0] }
	orphan := func(p *corev1.Pod) { p.Labels = nil }
	p.step("the policy holds", nil, func() string {
		if said := answer(orphan); !strings.Contains(said, "the pod has no owner") {
			return "it was taken: " + said
		}
		return ""
	})
	for name, one := range map[string]struct { // order: nothing is kept
		change func(*corev1.Pod)
		want   string
	}{
		"good":                {func(*corev1.Pod) {}, ""},
		"good by annotation":  {func(p *corev1.Pod) { p.Labels = nil; p.Annotations["vm.muster.dev/owner"] = "u/0" }, ""},
		"no machine":          {func(p *corev1.Pod) { p.Labels, p.Spec.RuntimeClassName = nil, nil }, ""},
		"not suspended":       {func(p *corev1.Pod) { p.Labels = nil; delete(p.Annotations, "vm.muster.dev/on-stop") }, ""},
		"ephemeral claim":     {func(p *corev1.Pod) { p.Spec.Volumes[0].VolumeSource = ephemeral() }, ""},
		"no claim is named":   {func(p *corev1.Pod) { delete(p.Annotations, "vm.muster.dev/suspend-to") }, `vm.muster.dev/suspend-to "": must be the mountPath`},
		"no claim is mounted": {func(p *corev1.Pod) { c(p).VolumeMounts = c(p).VolumeMounts[1:] }, `vm.muster.dev/suspend-to "/claim": must be the mountPath`},
		"read-only":           {func(p *corev1.Pod) { c(p).VolumeMounts[0].ReadOnly = true }, `vm.muster.dev/suspend-to "/claim": must be the mountPath`},
		"no claim at all":     {func(p *corev1.Pod) { c(p).VolumeMounts[0].Name = "data" }, `vm.muster.dev/suspend-to "/claim": must be the mountPath`},
		"shared": {func(p *corev1.Pod) {
			c(p).VolumeMounts = append(c(p).VolumeMounts, corev1.VolumeMount{Name: "data", MountPath: "/data"})
		}, "a machine with mount /data cannot be saved: its files are shared with the host while it runs"},
		"a device": {func(p *corev1.Pod) { c(p).Resources.Limits["example.com/card"] = resource.MustParse("1") }, "a machine with devices of the host (example.com/card) cannot be saved"},
		"a claimed device": {func(p *corev1.Pod) {
			p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimName: ptr.To("g")}}
		}, "a machine with devices of the host (gpu) cannot be saved"},
		"nvme":      {func(p *corev1.Pod) { p.Annotations["VirtletDiskDriver"] = "nvme" }, "a machine with NVMe disks (VirtletDiskDriver) cannot be saved"},
		"too large": {func(p *corev1.Pod) { c(p).Resources.Limits["memory"] = resource.MustParse("161Mi") }, "saving 161 MiB takes about 5 s, and the pod's grace is 4 s: terminationGracePeriodSeconds must be at least 5"},
		"no limit":  {func(p *corev1.Pod) { c(p).Resources.Limits = nil }, "saving 1024 MiB takes about 26 s, and the pod's grace is 4 s: terminationGracePeriodSeconds must be at least 26"},
		"its first container": {func(p *corev1.Pod) {
			p.Spec.InitContainers = []corev1.Container{{Name: "init", Image: "vm"}}
		}, `vm.muster.dev/suspend-to "/claim": must be the mountPath`},
	} {
		if said := answer(one.change); said != "" && one.want == "" || !strings.Contains(said, one.want) {
			t.Errorf("%s: %q, want %q", name, said, one.want)
		}
	}
}

func ephemeral() corev1.VolumeSource {
	return corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{Spec: corev1.PersistentVolumeClaimSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
	}}}}
}
