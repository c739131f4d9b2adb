package reservation

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/muster-scheduler/muster/api/kai/keys"
	schedulingv1alpha2 "github.com/muster-scheduler/muster/api/scheduling/v1alpha2"
	"github.com/muster-scheduler/muster/internal/dialect/kai"
	"github.com/muster-scheduler/muster/internal/kube/control"
)

// Name is the controller's name among the binder's preparers.
func (c *Controller) Name() string { return "devices" }

// Relevant says whether the pod receives shared devices.
func (c *Controller) Relevant(r *schedulingv1alpha2.BindRequest, _ *corev1.Pod) bool {
	return r.Spec.ReceivedResourceType == schedulingv1alpha2.ResourceTypeFraction
}

// requestGroups are the groups that a request names, each once; none for one without shared devices.
func requestGroups(r *schedulingv1alpha2.BindRequest) []string {
	if r.Spec.ReceivedResourceType != schedulingv1alpha2.ResourceTypeFraction {
		return nil
	}
	out := slices.Clone(r.Spec.SelectedGPUGroups)
	slices.Sort(out)
	return slices.Compact(out)
}

// Check says whether the request is about shared devices, and what is wrong with it.
func (c *Controller) Check(r *schedulingv1alpha2.BindRequest) (known bool, problem string) {
	if !c.Relevant(r, nil) {
		return false, ""
	}
	groups := r.Spec.SelectedGPUGroups
	if len(groups) == 0 {
		return true, "spec.selectedGPUGroups is empty: a pod that shares devices needs a group for each"
	}
	for i, g := range groups {
		if slices.Contains(groups[:i], g) {
			return true, fmt.Sprintf("spec.selectedGPUGroups names group %s twice", g)
		}
		if errs := append(validation.IsValidLabelValue(g), validation.IsQualifiedName(keys.GPUGroupLabelPrefix+g)...); len(errs) > 0 {
			return true, fmt.Sprintf("spec.selectedGPUGroups: %q cannot be a label: %s", g, strings.Join(errs, "; "))
		}
	}
	got := r.Spec.ReceivedGPU
	if got == nil {
		return true, "spec.receivedGPU is missing: it says how much of each device the pod receives"
	}
	if got.Count != len(groups) {
		return true, fmt.Sprintf("spec.receivedGPU.count is %d, spec.selectedGPUGroups has %d groups", got.Count, len(groups))
	}
	if part, err := strconv.ParseFloat(got.Portion, 64); err != nil || !(part > 0 && part <= 1) {
		return true, fmt.Sprintf("spec.receivedGPU.portion is %q, must be a number above 0 and at most 1", got.Portion)
	}
	return true, ""
}

// Prepare reserves the devices of the request's groups, puts the pod into the groups, and writes what its container reads.
func (c *Controller) Prepare(ctx context.Context, r *schedulingv1alpha2.BindRequest, pod *corev1.Pod) (bool, error) {
	if c.options.Maps {
		if _, err := placeOf(pod); err != nil {
			return false, err
		}
	}
	groups := r.Spec.SelectedGPUGroups
	// Noted before anything is read, so that no news is missed.
	now := c.now()
	var since time.Time
	c.locked(func() { since = c.waits.begin(r, requestGroups(r), now) })
	left := c.options.Timeout - now.Sub(since)
	devices := make([]string, len(groups))
	ready := true
	for i, g := range groups {
		device, err := c.reserve(ctx, g, r.Spec.SelectedNode, pod, left)
		if err != nil {
			return false, err
		}
		if j := slices.Index(devices[:i], device); device != "" && j >= 0 {
			return false, verdictf("groups %s and %s hold the same device %s", groups[j], g, device)
		}
		devices[i] = device
		ready = ready && device != ""
	}
	if !ready {
		c.locked(func() {
			for _, g := range requestGroups(r) {
				c.add(control.Due[item]{Key: item{r.Namespace, g, true}, After: max(left, 0) + time.Millisecond})
			}
		})
		return false, nil
	}
	c.locked(func() { c.waits.end(r.UID) })
	if change := relabel(pod, groups); len(change) > 0 {
		done, err := c.cluster.patchMeta(ctx, pod, change, nil, false)
		if err != nil {
			return false, err
		}
		if !done {
			return false, fmt.Errorf("pod %s/%s is gone", pod.Namespace, pod.Name)
		}
	}
	if !c.options.Maps {
		return true, nil
	}
	node, err := c.cluster.node(ctx, r.Spec.SelectedNode)
	if err != nil {
		return false, err
	}
	return true, c.writeMaps(ctx, pod, grant{devices, r.Spec.ReceivedGPU.Portion}, node)
}

// Undo takes the pod out of its groups again. Their devices are released when nobody else needs them. The pod as the API server has it
// decides: what is bound where the request says keeps what it was given, whatever this process knew before a pause, and only the very
// version that was read is changed.
func (c *Controller) Undo(ctx context.Context, r *schedulingv1alpha2.BindRequest, pod *corev1.Pod) error {
	c.locked(func() { c.waits.end(r.UID) })
	now, err := c.cluster.livePod(ctx, types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name})
	switch {
	case err != nil:
		return err
	case now != nil && now.UID == pod.UID && now.Spec.NodeName != "" && now.Spec.NodeName == r.Spec.SelectedNode:
		return nil
	}
	if err := c.dropMaps(ctx, pod); err != nil {
		return err
	}
	// The pod as it was when the attempt began may not have its labels yet: all that it can have got are removed.
	change := map[string]any{keys.GPUGroupLabel: nil}
	for _, g := range requestGroups(r) {
		if len(validation.IsQualifiedName(keys.GPUGroupLabelPrefix+g)) == 0 {
			change[keys.GPUGroupLabelPrefix+g] = nil
		}
	}
	if now != nil && now.UID == pod.UID {
		maps.Copy(change, relabel(now, nil))
		done, err := c.cluster.patchMeta(ctx, now, change, nil, true)
		if err == nil && !done {
			err = fault(fmt.Errorf("pod %s/%s changed meanwhile", pod.Namespace, pod.Name))
		}
		if err != nil {
			return err
		}
	}
	c.locked(func() { c.add(c.heard(r.Namespace, requestGroups(r)...)...) })
	return nil
}

// live says whether a request may still be executed.
func live(r *schedulingv1alpha2.BindRequest) bool {
	b := kai.Read(r)
	return !b.Succeeded && !b.Failed && r.DeletionTimestamp == nil
}
