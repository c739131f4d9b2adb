package binder

import (
	"cmp"
	"context"
	"errors"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/storage/volume"

	"github.com/muster-scheduler/muster/api/kai/keys"
	schedulingv1alpha2 "github.com/muster-scheduler/muster/api/scheduling/v1alpha2"
)

// storage is what the volumes preparer needs of the cluster. Objects that do not exist are nil, without an error. What
// is read may come from a cache and is never changed.
type storage interface {
	// claim returns a claim, from a cache or, live, as the API server has it.
	claim(ctx context.Context, name types.NamespacedName, live bool) (*corev1.PersistentVolumeClaim, error)

	class(ctx context.Context, name string) (*storagev1.StorageClass, error)
	volumes(ctx context.Context) ([]*corev1.PersistentVolume, error)
	volume(ctx context.Context, name string) (*corev1.PersistentVolume, error)
	node(ctx context.Context, name string) (*corev1.Node, error)

	// selectNode sets the claim's annotations that say which node was selected, and for which request; it removes
	// them when node is empty. It fails if the claim is not the version that was read; if it is gone there is nothing
	// to do.
	selectNode(ctx context.Context, claim *corev1.PersistentVolumeClaim, node string, request types.UID) error

	// reserveVolume sets the volume's claim, nil for none, and the mark that says that no user did so. It fails with
	// errChanged if the volume is not the version that was read; if it is gone there is nothing to do.
	reserveVolume(ctx context.Context, v *corev1.PersistentVolume, ref *corev1.ObjectReference, mark bool) error
}

// volumes prepares the claims of which the volume is found or made only when the pod's node is known (binding mode
// WaitForFirstConsumer). It does for them what the upstream scheduler does before it binds a pod: an existing volume
// that fits the node is reserved for the claim; else the provisioner is told the node. Then it waits for the claim to
// be bound. Bound claims need nothing but a volume that the node can reach.
type volumes struct{ storage storage }

// Name implements Preparer.
func (volumes) Name() string { return "volumes" }

// Relevant implements Preparer: pods with a claim, bound or not.
func (volumes) Relevant(_ *schedulingv1alpha2.BindRequest, pod *corev1.Pod) bool {
	for i := range pod.Spec.Volumes {
		if claimName(pod, &pod.Spec.Volumes[i]) != "" {
			return true
		}
	}
	return false
}

// claimName returns the name of the claim behind a volume of the pod, empty if there is none.
func claimName(pod *corev1.Pod, v *corev1.Volume) string {
	switch {
	case v.PersistentVolumeClaim != nil:
		return v.PersistentVolumeClaim.ClaimName
	case v.Ephemeral != nil:
		return pod.Name + "-" + v.Name
	}
	return ""
}

// claimsOf returns the pod's claims, each once, in order of their name.
func claimsOf(pod *corev1.Pod) []types.NamespacedName {
	var out []types.NamespacedName
	for i := range pod.Spec.Volumes {
		if name := claimName(pod, &pod.Spec.Volumes[i]); name != "" {
			out = append(out, types.NamespacedName{Namespace: pod.Namespace, Name: name})
		}
	}
	slices.SortFunc(out, func(a, b types.NamespacedName) int { return cmp.Compare(a.Name, b.Name) })
	return slices.Compact(out)
}

// Prepare implements Preparer.
func (p volumes) Prepare(ctx context.Context, r *schedulingv1alpha2.BindRequest, pod *corev1.Pod) (bool, error) {
	node, err := p.storage.node(ctx, r.Spec.SelectedNode)
	switch {
	case err != nil:
		return false, err
	case node == nil:
		return false, verdictf("node %s is gone", r.Spec.SelectedNode)
	}
	ready := true
	taken := map[string]*corev1.PersistentVolume{}
	for _, name := range claimsOf(pod) {
		done, err := p.prepareClaim(ctx, name, r.UID, pod, node, taken)
		if err != nil {
			return false, err
		}
		ready = ready && done
	}
	return ready, nil
}

// errChanged says that an object is not the version that was read.
var errChanged = errors.New("changed in the meantime")

// prepareClaim prepares one claim for the request of that UID; taken are the volumes that this pod's other claims were
// given.
func (p volumes) prepareClaim(ctx context.Context, name types.NamespacedName, request types.UID, pod *corev1.Pod, node *corev1.Node, taken map[string]*corev1.PersistentVolume) (bool, error) {
	claim, err := p.storage.claim(ctx, name, false)
	switch {
	case err != nil:
		return false, err
	case claim == nil && ephemeral(pod, name.Name):
		return false, nil // its controller will make it
	case claim == nil:
		return false, verdictf("claim %s does not exist", name.Name)
	case claim.DeletionTimestamp != nil:
		return false, verdictf("claim %s is being deleted", name.Name)
	case ephemeral(pod, name.Name) && !ownedBy(claim, pod.UID):
		return false, verdictf("claim %s was not made for this pod", name.Name)
	case claim.Status.Phase == corev1.ClaimLost:
		return false, verdictf("claim %s has lost its volume", name.Name)
	case bound(claim):
		return p.reachable(ctx, claim, node)
	case claim.Spec.VolumeName != "":
		return false, nil // its controller is finishing the binding
	}
	class, err := p.storage.class(ctx, volume.GetPersistentVolumeClaimClass(claim))
	if err != nil {
		return false, err
	}
	if class == nil || class.VolumeBindingMode == nil || *class.VolumeBindingMode != storagev1.VolumeBindingWaitForFirstConsumer {
		return false, nil // bound by its controller without regard to the pod
	}
	if selected := claim.Annotations[volume.AnnSelectedNode]; selected == node.Name {
		return false, nil
	} else if selected != "" {
		other, err := p.storage.node(ctx, selected)
		if err != nil {
			return false, err
		}
		if other != nil {
			return false, verdictf("claim %s is being provisioned for node %s", name.Name, selected)
		}
	} else if claim.Annotations[keys.SelectedForAnnotation] == string(request) {
		return false, verdictf("the provisioner %s cannot make a volume for claim %s on node %s", class.Provisioner, name.Name, node.Name)
	}
	all, err := p.storage.volumes(ctx)
	if err != nil {
		return false, err
	}
	for {
		match, err := volume.FindMatchingVolume(claim, all, node, taken, false, true)
		switch {
		case err != nil:
			return false, verdictf("claim %s: %v", name.Name, err)
		case match == nil && class.Provisioner == volume.NotSupportedProvisioner:
			return false, verdictf("no volume on node %s fits claim %s", node.Name, name.Name)
		case match == nil:
			return false, p.storage.selectNode(ctx, claim, node.Name, request)
		}
		taken[match.Name] = match
		if err = p.reserve(ctx, match, claim); !errors.Is(err, errChanged) {
			return false, err
		}
		// Another pod was faster, as when the members of a gang look for equal volumes at one time. Each try leaves out
		// one volume more.
	}
}

// reserve writes the claim into an existing volume, unless it is there already.
func (p volumes) reserve(ctx context.Context, v *corev1.PersistentVolume, claim *corev1.PersistentVolumeClaim) error {
	reserved, dirty, err := volume.GetBindVolumeToClaim(v, claim)
	if err != nil {
		return verdictf("volume %s for claim %s: %v", v.Name, claim.Name, err)
	}
	if !dirty {
		return nil
	}
	_, mark := reserved.Annotations[volume.AnnBoundByController]
	return p.storage.reserveVolume(ctx, reserved, reserved.Spec.ClaimRef, mark)
}

// reachable says whether the node can reach a bound claim's volume.
func (p volumes) reachable(ctx context.Context, claim *corev1.PersistentVolumeClaim, node *corev1.Node) (bool, error) {
	v, err := p.storage.volume(ctx, claim.Spec.VolumeName)
	switch {
	case err != nil:
		return false, err
	case v == nil:
		return false, nil // the cache has the claim already and the volume not yet
	}
	if err := volume.CheckNodeAffinity(v, node.Labels); err != nil {
		return false, verdictf("volume %s of claim %s cannot be reached from node %s", v.Name, claim.Name, node.Name)
	}
	return true, nil
}

// Undo implements Preparer: reservations and selected nodes of claims that are still unbound are removed.
func (p volumes) Undo(ctx context.Context, r *schedulingv1alpha2.BindRequest, pod *corev1.Pod) error {
	var errs []error
	names := claimsOf(pod)
	slices.Reverse(names)
	for _, name := range names {
		claim, err := p.storage.claim(ctx, name, true) // the cache may not show yet what was prepared
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if claim == nil || claim.Spec.VolumeName != "" {
			continue
		}
		if claim.Annotations[volume.AnnSelectedNode] == r.Spec.SelectedNode || claim.Annotations[keys.SelectedForAnnotation] == string(r.UID) {
			errs = append(errs, p.storage.selectNode(ctx, claim, "", ""))
		}
		errs = append(errs, p.release(ctx, claim))
	}
	return errors.Join(errs...)
}

// release removes the claim from a volume that was reserved for it by a scheduler and not by a user.
func (p volumes) release(ctx context.Context, claim *corev1.PersistentVolumeClaim) error {
	all, err := p.storage.volumes(ctx)
	if err != nil {
		return err
	}
	for _, v := range all {
		ref := v.Spec.ClaimRef
		if ref == nil || ref.UID != claim.UID || v.Annotations[volume.AnnBoundByController] == "" || v.Annotations[volume.AnnDynamicallyProvisioned] != "" {
			continue
		}
		if err := p.storage.reserveVolume(ctx, v, nil, false); err != nil {
			return err
		}
	}
	return nil
}

// bound says that a claim has its volume for good.
func bound(claim *corev1.PersistentVolumeClaim) bool {
	_, completed := claim.Annotations[volume.AnnBindCompleted]
	return completed && claim.Spec.VolumeName != ""
}

// ephemeral says whether the pod's claim of that name is made for it alone and ends with it.
func ephemeral(pod *corev1.Pod, claim string) bool {
	return slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool {
		return v.Ephemeral != nil && pod.Name+"-"+v.Name == claim
	})
}

// ownedBy says whether a claim was made for the pod with that UID.
func ownedBy(claim *corev1.PersistentVolumeClaim, uid types.UID) bool {
	for i := range claim.OwnerReferences {
		if claim.OwnerReferences[i].UID == uid {
			return true
		}
	}
	return false
}
