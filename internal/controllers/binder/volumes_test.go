package binder

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/storage/volume"
	"k8s.io/utils/ptr"

	"github.com/muster-scheduler/muster/api/kai/keys"
	schedulingv1alpha2 "github.com/muster-scheduler/muster/api/scheduling/v1alpha2"
)

// withClaims gives the gang's pods a claim each that is provisioned for the chosen node.
func withClaims(w *fakeAPI) {
	w.classes["local"] = &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: "local"}, Provisioner: "disks",
		VolumeBindingMode: ptr.To(storagev1.VolumeBindingWaitForFirstConsumer),
	}
	for name := range w.pods {
		w.putClaim(&corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "c-" + name, UID: w.newUID()},
			Spec:       corev1.PersistentVolumeClaimSpec{StorageClassName: ptr.To("local")},
		})
		w.editPod(name, func(p *corev1.Pod) {
			p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "c-" + name},
			}}}
		})
	}
}

// TestVolumes is the table of pods with one claim.
func TestVolumes(t *testing.T) {
	t.Parallel()
	onNode := func(name, node string) *corev1.PersistentVolume {
		return &corev1.PersistentVolume{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: corev1.PersistentVolumeSpec{
				StorageClassName: "local", Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("10Gi")},
				AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
					MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{node}}},
				}}}},
			},
			Status: corev1.PersistentVolumeStatus{Phase: corev1.VolumeAvailable},
		}
	}
	boundTo := func(c *corev1.PersistentVolumeClaim, name string) {
		c.Spec.VolumeName = name
		c.Annotations = map[string]string{volume.AnnBindCompleted: "yes"}
	}
	for _, row := range []struct {
		name     string
		edit     func(w *fakeAPI, c *corev1.PersistentVolumeClaim)
		wait     time.Duration
		selected string // the claim's selected node before anything is provisioned
		reserved string // the volume that is reserved for the claim then
		fails    string // why the request fails; empty: the pod is bound
	}{
		{name: "provisioned", selected: "n1"},
		{name: "bound already", edit: func(w *fakeAPI, c *corev1.PersistentVolumeClaim) { w.pvs["v"] = onNode("v", "n1"); boundTo(c, "v") }},
		{
			name:  "bound where the node cannot reach",
			edit:  func(w *fakeAPI, c *corev1.PersistentVolumeClaim) { w.pvs["v"] = onNode("v", "n2"); boundTo(c, "v") },
			fails: "volume v of claim c-p0 cannot be reached from node n1",
		},
		{
			name: "an existing volume",
			edit: func(w *fakeAPI, _ *corev1.PersistentVolumeClaim) {
				w.pvs["v1"], w.pvs["v2"] = onNode("v1", "n1"), onNode("v2", "n2")
				w.classes["local"].Provisioner = volume.NotSupportedProvisioner
			},
			reserved: "v1",
		},
		{
			name: "no existing volume",
			edit: func(w *fakeAPI, _ *corev1.PersistentVolumeClaim) {
				w.pvs["v2"] = onNode("v2", "n2")
				w.classes["local"].Provisioner = volume.NotSupportedProvisioner
			},
			fails: "no volume on node n1 fits claim c-p0",
		},
		{
			name: "being provisioned for another node",
			edit: func(_ *fakeAPI, c *corev1.PersistentVolumeClaim) {
				c.Annotations = map[string]string{volume.AnnSelectedNode: "n2"}
			},
			selected: "n2", fails: "claim c-p0 is being provisioned for node n2",
		},
		{
			name: "was being provisioned for a node that is gone",
			edit: func(_ *fakeAPI, c *corev1.PersistentVolumeClaim) {
				c.Annotations = map[string]string{volume.AnnSelectedNode: "n9"}
			},
			selected: "n1",
		},
		{name: "never provisioned", wait: 3 * time.Minute, selected: "n1", fails: "preparing volumes: not finished in time"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			w := newFakeAPI(t, "n1", "n2")
			w.gang(1, 1)
			withClaims(w)
			c := w.claims["c-p0"]
			c.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
			c.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
			if row.edit != nil {
				row.edit(w, c)
			}
			p := w.start()
			p.settle()
			if got := w.claims["c-p0"].Annotations[volume.AnnSelectedNode]; got != row.selected {
				t.Errorf("selected node %q, want %q", got, row.selected)
			}
			reserved := ""
			for _, v := range w.pvs {
				if v.Spec.ClaimRef != nil && v.Spec.ClaimRef.UID == c.UID {
					reserved = v.Name
				}
			}
			if reserved != row.reserved {
				t.Errorf("reserved volume %q, want %q", reserved, row.reserved)
			}
			p.pass(row.wait)
			if row.wait == 0 && row.fails == "" {
				w.provision()
			}
			p.settle()
			s := w.requests["p0"]
			switch {
			case row.fails == "" && w.pods["p0"].Spec.NodeName != "n1":
				t.Errorf("the pod is not bound: %+v", s.Status)
			case row.fails != "" && row.wait == 0 && !strings.Contains(s.Status.Reason, row.fails):
				t.Errorf("status %+v, want a failure with %q", s.Status, row.fails)
			case row.fails != "" && w.pods["p0"].Spec.NodeName != "":
				t.Error("the pod was bound")
			case row.fails != "" && row.selected == "n1" && w.claims["c-p0"].Annotations[volume.AnnSelectedNode] != "":
				t.Error("the claim is still held")
			}
		})
	}
}

// TestUndoVolume: a volume that was reserved for a member of a bundle that is withdrawn is free again, one that a user
// reserved is not touched.
func TestUndoVolume(t *testing.T) {
	t.Parallel()
	w := newFakeAPI(t, "n1")
	w.gang(2, 2)
	withClaims(w)
	w.classes["local"].Provisioner = volume.NotSupportedProvisioner
	w.classes["local"].VolumeBindingMode = ptr.To(storagev1.VolumeBindingWaitForFirstConsumer)
	for _, name := range []string{"v1", "v2"} {
		w.pvs[name] = &corev1.PersistentVolume{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec:       corev1.PersistentVolumeSpec{StorageClassName: "local"},
			Status:     corev1.PersistentVolumeStatus{Phase: corev1.VolumeAvailable},
		}
	}
	c := w.claims["c-p1"]
	w.pvs["v2"].Spec.ClaimRef = &corev1.ObjectReference{Kind: "PersistentVolumeClaim", APIVersion: "v1", Namespace: ns, Name: c.Name, UID: c.UID}
	p := w.start()
	p.settle()
	if w.pvs["v1"].Spec.ClaimRef == nil {
		t.Fatal("no volume was reserved")
	}
	w.dropNode("n1")
	p.settle()
	p.pass(5 * time.Second)
	if ref := w.pvs["v1"].Spec.ClaimRef; ref != nil {
		t.Errorf("the volume is still reserved: %v", ref)
	}
	if w.pvs["v2"].Spec.ClaimRef == nil {
		t.Error("the user's own reservation is gone")
	}
	if s := w.requests["p0"].Status; s.Phase != schedulingv1alpha2.BindRequestFailed || !strings.Contains(s.Reason, "node n1 is gone") {
		t.Errorf("status %+v", s)
	}
}

// TestRefusedVolume: a provisioner that takes the selected node off has no room there, so the request fails instead of
// selecting the node again, and nothing is left on the claim.
func TestRefusedVolume(t *testing.T) {
	t.Parallel()
	w := newFakeAPI(t, "n1")
	w.gang(1, 1)
	withClaims(w)
	p := w.start()
	p.settle()
	c := w.claims["c-p0"].DeepCopy()
	if c.Annotations[volume.AnnSelectedNode] != "n1" {
		t.Fatal("no node was selected")
	}
	delete(c.Annotations, volume.AnnSelectedNode)
	w.putClaim(c)
	p.settle()
	if s := w.requests["p0"].Status; s.Phase != schedulingv1alpha2.BindRequestFailed || !strings.Contains(s.Reason, "cannot make a volume for claim c-p0 on node n1") {
		t.Errorf("status %+v", s)
	}
	if a := w.claims["c-p0"].Annotations; a[volume.AnnSelectedNode]+a[keys.SelectedForAnnotation] != "" {
		t.Errorf("the claim is still held: %v", a)
	}
}

// TestOneVolumeEach has the members of a gang look for equal volumes at one time.
func TestOneVolumeEach(t *testing.T) {
	t.Parallel()
	w := newFakeAPI(t, "n1")
	w.gang(16, 16)
	withClaims(w)
	w.classes["local"].Provisioner = volume.NotSupportedProvisioner
	for i := range 16 {
		name := fmt.Sprintf("v%d", i)
		w.pvs[name] = &corev1.PersistentVolume{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PersistentVolumeSpec{StorageClassName: "local"},
			Status: corev1.PersistentVolumeStatus{Phase: corev1.VolumeAvailable},
		}
	}
	p := w.start()
	p.settle()
	w.provision()
	p.settle()
	if n := len(w.boundPods()); n != 16 {
		t.Errorf("%d of 16 pods are bound", n)
	}
}

// TestVolumeAfterItsClaim: caches of different kinds do not keep step. A claim that is bound already waits for its
// volume, and the volume ends the wait, not a clock.
func TestVolumeAfterItsClaim(t *testing.T) {
	t.Parallel()
	w := newFakeAPI(t, "n1")
	w.gang(4, 4)
	withClaims(w)
	p := w.start()
	p.settle()
	w.provision()
	news := p.queues["volume"]
	p.queues["volume"] = nil
	if p.settle(); len(news) != 4 || len(w.boundPods()) != 0 {
		t.Fatalf("%d volumes, bound before they were seen: %v", len(news), w.boundPods())
	}
	p.queues["volume"] = news
	if p.settle(); len(w.boundPods()) != 4 {
		t.Errorf("%d of 4 pods are bound", len(w.boundPods()))
	}
}
