package disk

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/component-helpers/storage/volume"

	"github.com/muster-scheduler/muster/internal/lab"
)

// left returns what a place has left, in bytes.
func (p *player) left(at place) int64 {
	room, limited := p.classes[at.class].Room()
	if !limited {
		return math.MaxInt64
	}
	for _, v := range p.made {
		if v.place == at {
			room -= v.size
		}
	}
	return max(0, room)
}

// publish writes what a place has left, if that is limited and has changed.
func (p *player) publish(ctx context.Context, at place) error {
	s := p.classes[at.class]
	if _, limited := s.Room(); !limited {
		return nil
	}
	left := p.left(at)
	if said, ok := p.said[at]; ok && said == left {
		return nil
	}
	c := &storagev1.CSIStorageCapacity{
		ObjectMeta:       metav1.ObjectMeta{Namespace: lab.StorageNamespace, Name: at.class + "." + at.value},
		StorageClassName: at.class, NodeTopology: &metav1.LabelSelector{MatchLabels: map[string]string{s.Key(): at.value}},
		Capacity: resource.NewQuantity(left, resource.BinarySI),
	}
	api := p.client.StorageV1().CSIStorageCapacities(c.Namespace)
	_, err := api.Create(ctx, c, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		body := fmt.Sprintf(`{"capacity":%q}`, c.Capacity.String())
		_, err = api.Patch(ctx, c.Name, types.MergePatchType, []byte(body), metav1.PatchOptions{})
	}
	if err != nil {
		return fmt.Errorf("capacity %s: %w", c.Name, err)
	}
	p.said[at] = left
	return nil
}

// claim makes the volume of a claim, once it is due.
func (p *player) claim(ctx context.Context, c *corev1.PersistentVolumeClaim) error {
	name := cache.MetaObjectToName(c)
	s := p.classes[volume.GetPersistentVolumeClaimClass(c)]
	if s == nil || c.Spec.VolumeName != "" || c.DeletionTimestamp != nil {
		delete(p.due, name)
		return nil
	}
	selected := c.Annotations[volume.AnnSelectedNode]
	if selected == "" && !s.Immediate {
		delete(p.due, name)
		return nil
	}
	if _, made := p.made[volumeName(c)]; made {
		return nil // its binding is on its way
	}
	if wait := s.Wait(); wait > 0 {
		at, begun := p.due[name]
		if !begun {
			at = time.Now().Add(wait)
			p.due[name] = at
		}
		if rest := time.Until(at); rest > 0 {
			p.queue.AddAfter(task{aClaim, name}, rest)
			return nil
		}
	}
	request := c.Spec.Resources.Requests[corev1.ResourceStorage]
	at, ok := p.choose(s, selected, request.Value())
	if !ok {
		delete(p.due, name)
		if selected == "" {
			return fmt.Errorf("claim %s: no room", name)
		}
		return p.refuse(ctx, c)
	}
	v := volumeOf(c, s, at)
	if _, err := p.client.CoreV1().PersistentVolumes().Create(ctx, v, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("volume %s: %w", v.Name, err)
	}
	p.made[v.Name] = part{at, request.Value()}
	delete(p.due, name)
	return p.publish(ctx, at)
}

// choose returns where a volume of that size is made: at the selected node, or wherever there is room.
func (p *player) choose(s *lab.Storage, selected string, size int64) (place, bool) {
	values := map[string]bool{}
	for _, o := range p.nodes.GetStore().List() {
		if n := o.(*corev1.Node); (selected == "" || n.Name == selected) && n.Labels[s.Key()] != "" {
			values[n.Labels[s.Key()]] = true
		}
	}
	for _, value := range slices.Sorted(maps.Keys(values)) {
		if at := (place{s.Name, value}); p.left(at) >= size {
			return at, true
		}
	}
	return place{}, false
}

// refuse takes the selected node off a claim: whoever chose it has to choose again.
func (p *player) refuse(ctx context.Context, c *corev1.PersistentVolumeClaim) error {
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": c.UID, "resourceVersion": c.ResourceVersion, "annotations": map[string]any{volume.AnnSelectedNode: nil},
	}})
	if err != nil {
		return err
	}
	_, err = p.client.CoreV1().PersistentVolumeClaims(c.Namespace).Patch(ctx, c.Name, types.MergePatchType, body, metav1.PatchOptions{})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil // its next event comes
	}
	return err
}

// volume takes note of a volume, and deletes one that was given back.
func (p *player) volume(ctx context.Context, v *corev1.PersistentVolume) error {
	if !p.learn(v) {
		return nil
	}
	if v.Status.Phase == corev1.VolumeReleased && v.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimDelete && v.DeletionTimestamp == nil {
		if err := p.client.CoreV1().PersistentVolumes().Delete(ctx, v.Name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("delete volume %s: %w", v.Name, err)
		}
	}
	return p.publish(ctx, p.made[v.Name].place)
}

// learn takes note of a volume, and says whether it is one of ours.
func (p *player) learn(v *corev1.PersistentVolume) bool {
	s := p.classes[v.Spec.StorageClassName]
	if s == nil || v.Spec.CSI == nil || v.Spec.CSI.Driver != s.Driver() {
		return false
	}
	size := v.Spec.Capacity[corev1.ResourceStorage]
	p.made[v.Name] = part{place{s.Name, v.Spec.CSI.VolumeAttributes[placeAttribute]}, size.Value()}
	return true
}

// gone gives back the room of a volume that was deleted.
func (p *player) gone(ctx context.Context, name string) error {
	v, ours := p.made[name]
	if !ours {
		return nil
	}
	delete(p.made, name)
	return p.publish(ctx, v.place)
}

// placeAttribute of a volume says where it is.
const placeAttribute = "place"

func volumeName(c *corev1.PersistentVolumeClaim) string { return "pvc-" + string(c.UID) }

func volumeOf(c *corev1.PersistentVolumeClaim, s *lab.Storage, at place) *corev1.PersistentVolume {
	v := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: volumeName(c), Annotations: map[string]string{volume.AnnDynamicallyProvisioned: s.Driver()}},
		Spec: corev1.PersistentVolumeSpec{
			Capacity: c.Spec.Resources.Requests, AccessModes: c.Spec.AccessModes, StorageClassName: s.Name, VolumeMode: c.Spec.VolumeMode,
			PersistentVolumeReclaimPolicy: *s.Class().ReclaimPolicy,
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
				Driver: s.Driver(), VolumeHandle: string(c.UID), VolumeAttributes: map[string]string{placeAttribute: at.value},
			}},
			ClaimRef: &corev1.ObjectReference{APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: c.Namespace, Name: c.Name, UID: c.UID},
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{{Key: s.Key(), Operator: corev1.NodeSelectorOpIn, Values: []string{at.value}}},
			}}}},
		},
	}
	return v
}
