//go:build lab

package e2e

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/component-helpers/storage/volume"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// storageClass is a class of which a volume is made when its pod's node is chosen, and can be used there only.
const (
	storageClass = "local"
	provisioner  = "proof.example/local"
)

// provision makes the storage class and plays its provisioner until the test ends.
func (w *fixture) provision(t *testing.T) {
	t.Helper()
	w.create(t, &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: storageClass}, Provisioner: provisioner,
		VolumeBindingMode: ptr.To(storagev1.VolumeBindingWaitForFirstConsumer), ReclaimPolicy: ptr.To(corev1.PersistentVolumeReclaimRetain),
	})
	claims := make(chan *corev1.PersistentVolumeClaim, 1024)
	take := func(o any) {
		if c := o.(*corev1.PersistentVolumeClaim); c.Annotations[volume.AnnSelectedNode] != "" && c.Spec.VolumeName == "" {
			claims <- c
		}
	}
	informer, err := w.cache.GetInformer(t.Context(), &corev1.PersistentVolumeClaim{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{AddFunc: take, UpdateFunc: func(_, o any) { take(o) }}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	t.Cleanup(func() { cancel(); <-done })
	go func() {
		defer close(done)
		for {
			select {
			case c := <-claims:
				if err := w.client.Create(ctx, volumeFor(c)); err != nil && !apierrors.IsAlreadyExists(err) && ctx.Err() == nil {
					t.Errorf("a volume for claim %s/%s: %v", c.Namespace, c.Name, err)
				}
			case <-ctx.Done():
				return
			}
		}
	}()
}

// volumeFor is the volume that a claim gets: on the node that was selected, and only there.
func volumeFor(c *corev1.PersistentVolumeClaim) *corev1.PersistentVolume {
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "pv-" + string(c.UID), Annotations: map[string]string{volume.AnnDynamicallyProvisioned: provisioner}},
		Spec: corev1.PersistentVolumeSpec{
			Capacity: c.Spec.Resources.Requests, AccessModes: c.Spec.AccessModes, StorageClassName: storageClass,
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
			PersistentVolumeSource:        corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: "/scratch/" + string(c.UID)}},
			ClaimRef:                      &corev1.ObjectReference{APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: c.Namespace, Name: c.Name, UID: c.UID},
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{{
					Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn,
					Values: []string{c.Annotations[volume.AnnSelectedNode]},
				}},
			}}}},
		},
	}
}

// strayClaims says which claim of a namespace was given to another node than its pod; "" for none. nodes are those of
// the pods by name.
func (w *fixture) strayClaims(namespace string, nodes map[string]string) string {
	for _, c := range list(w, &corev1.PersistentVolumeClaimList{}, client.InNamespace(namespace)).Items {
		owner := metav1.GetControllerOf(&c)
		if owner == nil {
			continue
		}
		if at := c.Annotations[volume.AnnSelectedNode]; at != nodes[owner.Name] {
			return fmt.Sprintf("claim %s was given to node %q, its pod is on %q", c.Name, at, nodes[owner.Name])
		}
	}
	return ""
}
