package binder

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/dialect/kai"
)

// TestWhoeverNeedsPreparingIsAsked: the scheduler, which binds pods that need no binder, leaves to the binder every pod for which one of the
// binder's own preparers has work.
func TestWhoeverNeedsPreparingIsAsked(t *testing.T) {
	t.Parallel()
	volume := func(v corev1.VolumeSource) func(*corev1.Pod, *kai.Intent) {
		return func(p *corev1.Pod, _ *kai.Intent) { p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: v}} }
	}
	for name, c := range map[string]struct {
		change func(*corev1.Pod, *kai.Intent)
		work   bool
	}{
		"nothing":             {func(*corev1.Pod, *kai.Intent) {}, false},
		"a Secret":            {volume(corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{}}), false},
		"a volume claim":      {volume(corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "c"}}), true},
		"a volume of its own": {volume(corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}), true},
		"a claim of devices":  {func(p *corev1.Pod, _ *kai.Intent) { p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "c"}} }, true},
		"devices for extended resources": {func(_ *corev1.Pod, in *kai.Intent) {
			in.Claims = []cluster.ClaimAllocation{{}}
			in.Containers = []corev1.ContainerExtendedResourceRequest{{ContainerName: "c", ResourceName: "r", RequestName: "x"}}
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pod := &corev1.Pod{}
			pod.Namespace, pod.Name, pod.UID = "a", "p", "u"
			in := kai.Intent{Namespace: "a", Pod: "p", PodUID: "u", Node: "n"}
			c.change(pod, &in)
			if work := relevant([]Preparer{volumes{}, claims{}}, in.BindRequest(), pod); work != c.work {
				t.Errorf("there is work: %v", work)
			}
			if c.work && !in.NeedsBinder(pod) {
				t.Error("the scheduler would bind it")
			}
		})
	}
}
