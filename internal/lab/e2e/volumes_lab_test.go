//go:build lab

package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-scheduler/muster/internal/lab"
)

// TestVolumes has gangs whose members bring volumes: made where the members go, as many as there is room for; lying there
// already; and refused by a driver that has said nothing of how little it has.
func TestVolumes(t *testing.T) {
	w := newFixture(t, 4, lab.Options{Fleet: lab.Fleet{Storage: []lab.Storage{
		{Name: "scratch", Capacity: "10Gi", Delay: "100ms"},
		{Name: "silent", Capacity: "2Gi"},
	}}})
	muster := newProcess(t, "all", w.lab.Kubeconfig(), "--schedule-csi-storage")
	muster.start()
	muster.awaitReady(t)
	w.must(t, time.Minute, func() string {
		var published storagev1.CSIStorageCapacityList
		if err := w.client.List(t.Context(), &published); err != nil {
			return err.Error()
		}
		if len(published.Items) != 8 {
			return fmt.Sprintf("%d of 8 capacities are published", len(published.Items))
		}
		return ""
	})
	t.Run("capacity is given once", func(t *testing.T) { capacityOnce(t, w) })
	t.Run("volumes that are there", func(t *testing.T) { localVolumes(t, w) })
	t.Run("a driver that refuses", func(t *testing.T) { refused(t, w) })
	if !muster.running() {
		t.Errorf("muster has ended: %v", muster.exit())
	}
}

// carriers is a gang of n pods, each with a volume of its own that ends with it.
func carriers(namespace, name string, n int, class, size string) *batchv1.Job {
	j := gang(namespace, name, n, class)
	claim := j.Spec.Template.Spec.Volumes[0].Ephemeral.VolumeClaimTemplate
	claim.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}
	return j
}

// apart says which pod's volume is not where the pod is, or which volume two have; "" for none.
func (w *fixture) apart(t testing.TB, namespace string) string {
	at := map[string]string{}
	var volumes corev1.PersistentVolumeList
	if err := w.client.List(t.Context(), &volumes); err != nil {
		return err.Error()
	}
	for _, v := range volumes.Items {
		if v.Spec.NodeAffinity != nil {
			at[v.Name] = v.Spec.NodeAffinity.Required.NodeSelectorTerms[0].MatchExpressions[0].Values[0]
		}
	}
	holder := map[string]string{}
	for _, c := range list(w, &corev1.PersistentVolumeClaimList{}, client.InNamespace(namespace)).Items {
		pod := strings.TrimSuffix(c.Name, "-scratch")
		for _, p := range w.pods(namespace) {
			if p.Name == pod && at[c.Spec.VolumeName] != p.Spec.NodeName {
				return fmt.Sprintf("pod %s is on %s, its volume %q on %q", pod, p.Spec.NodeName, c.Spec.VolumeName, at[c.Spec.VolumeName])
			}
		}
		if other := holder[c.Spec.VolumeName]; c.Spec.VolumeName != "" && other != "" {
			return fmt.Sprintf("volume %s is claimed by %s and %s", c.Spec.VolumeName, other, pod)
		}
		holder[c.Spec.VolumeName] = pod
	}
	return ""
}

// capacityOnce has room for two volumes of 4 Gi on each of four nodes.
func capacityOnce(t *testing.T, w *fixture) {
	w.namespace(t, "once")
	w.create(t, carriers("once", "eight", 8, "scratch", "4Gi"))
	took := w.must(t, time.Minute, w.allRunning("once", 8))
	if what := w.apart(t, "once"); what != "" {
		t.Error(what)
	}
	if what := w.early("once", 8, false); what != "" {
		t.Error(what)
	}
	on := map[string]int{}
	for _, p := range w.pods("once") {
		on[p.Spec.NodeName]++
	}
	for node, n := range on {
		if n != 2 {
			t.Errorf("%d volumes of 4 Gi are on %s, which has room for two", n, node)
		}
	}
	w.namespace(t, "more")
	w.create(t, carriers("more", "one", 1, "scratch", "4Gi"))
	w.must(t, time.Minute, func() string {
		for _, p := range w.pods("more") {
			for _, c := range p.Status.Conditions {
				if strings.Contains(c.Message, "too little storage") {
					return ""
				}
			}
		}
		return "nobody was told that storage is what lacks"
	})
	w.erase(t, "once")
	again := w.must(t, time.Minute, w.allRunning("more", 1))
	w.erase(t, "more")
	t.Logf("8 pods with a volume each ran after %v; one more %v after the others were taken away", took.Round(time.Millisecond), again.Round(time.Millisecond))
}

// localVolumes has 16 volumes that lie on the nodes, equal ones, for a gang of 16.
func localVolumes(t *testing.T, w *fixture) {
	w.create(t, &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: "lying"}, Provisioner: "kubernetes.io/no-provisioner", VolumeBindingMode: ptr.To(storagev1.VolumeBindingWaitForFirstConsumer),
	})
	for i := range 16 {
		w.create(t, &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("lying-%d", i)}, Spec: corev1.PersistentVolumeSpec{
			Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			StorageClassName: "lying", PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
			PersistentVolumeSource: corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: fmt.Sprintf("/disk/%d", i)}},
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{fmt.Sprintf("n-%d", i%4)}}},
			}}}},
		}})
	}
	w.namespace(t, "lying")
	w.create(t, carriers("lying", "sixteen", 16, "lying", "1Gi"))
	took := w.must(t, time.Minute, w.allRunning("lying", 16))
	if what := w.apart(t, "lying"); what != "" {
		t.Error(what)
	}
	w.erase(t, "lying")
	t.Logf("16 pods ran on 16 volumes that were there, after %v", took.Round(time.Millisecond))
}

// refused has a driver say that it has more than it has: the gang is decided onto one node, refused there, and decided
// anew.
func refused(t *testing.T, w *fixture) {
	for i := range 4 {
		c := &storagev1.CSIStorageCapacity{ObjectMeta: metav1.ObjectMeta{Namespace: lab.StorageNamespace, Name: fmt.Sprintf("silent.n-%d", i)}}
		if err := w.client.Patch(t.Context(), c, client.RawPatch(types.MergePatchType, []byte(`{"capacity":"100Gi"}`))); err != nil {
			t.Fatal(err)
		}
	}
	w.namespace(t, "refused")
	w.create(t, carriers("refused", "pair", 2, "silent", "2Gi")) // packed onto one node, which has room for one
	said := w.must(t, time.Minute, func() string {
		for _, e := range list(w, &corev1.EventList{}, client.InNamespace("refused")).Items {
			if strings.Contains(e.Message, "cannot make a volume for claim") {
				return ""
			}
		}
		return "no attempt failed for want of storage"
	})
	took := w.must(t, 2*time.Minute, w.allRunning("refused", 2))
	if what := w.apart(t, "refused"); what != "" {
		t.Error(what)
	}
	if what := w.early("refused", 2, false); what != "" {
		t.Error(what)
	}
	w.erase(t, "refused")
	t.Logf("refused after %v, both ran %v later", said.Round(time.Millisecond), took.Round(time.Millisecond))
}
