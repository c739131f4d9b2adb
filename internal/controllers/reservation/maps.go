package reservation

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-scheduler/muster/api/kai/keys"
	"github.com/muster-scheduler/muster/internal/dialect/kai"
)

// cdiPrefix begins the names of GPUs in the Container Device Interface.
const cdiPrefix = "k8s.device-plugin.nvidia.com/gpu="

// grant is what a pod received.
type grant struct {
	devices []string // UUIDs, in the order of the request's groups
	portion string   // of each of them, as the request writes it
}

// place says which ConfigMaps a pod's sharing container reads.
type place struct {
	capabilities, environment string // their names
	reads                     bool   // the list of devices is a key of the first, not of the second
}

// placeOf finds them. An error is a verdict.
func placeOf(pod *corev1.Pod) (place, error) {
	prefix := pod.Annotations[keys.SharedGPUConfigMapAnnotation]
	if prefix == "" {
		return place{}, verdictf("annotation %s is missing: the pod did not pass the admission webhook, and its containers cannot be told their devices", keys.SharedGPUConfigMapAnnotation)
	}
	at, err := kai.SharingContainer(pod)
	if err != nil {
		return place{}, verdictf("%v", err)
	}
	return place{at.CapabilitiesMap(prefix), at.EnvironmentMap(prefix), kai.ReadsDevices(at.Of(pod))}, nil
}

// content is what the two ConfigMaps say.
func (o Options) content(in place, g grant, node *corev1.Node) (capabilities, environment map[string]string) {
	names := make([]string, len(g.devices))
	for i, uuid := range g.devices {
		names[i] = uuid
		if o.CDI {
			names[i] = cdiPrefix + uuid
		}
	}
	capabilities, environment = map[string]string{keys.PortionEnv: g.portion, keys.LegacyPortionEnv: g.portion}, map[string]string{}
	if in.reads {
		capabilities[keys.VisibleDevicesEnv] = strings.Join(names, ",")
	} else {
		environment[keys.VisibleDevicesEnv] = strings.Join(names, ",")
	}
	if limit, ok := memoryLimit(node, g.portion); ok && o.MemoryLimits {
		capabilities[keys.MemoryLimitEnv] = limit
	}
	return capabilities, environment
}

// memoryLimit is the portion of a device's memory on the node, in the form of CUDA_DEVICE_MEMORY_LIMIT; false when the
// node does not say how much memory its devices have.
func memoryLimit(node *corev1.Node, portion string) (string, bool) {
	if node == nil {
		return "", false
	}
	mib, err := strconv.ParseInt(node.Labels[keys.GPUMemoryNodeLabel], 10, 64)
	part, bad := strconv.ParseFloat(portion, 64)
	if err != nil || bad != nil || mib <= 0 || mib > math.MaxInt32 || !(part > 0 && part <= 1) {
		return "", false
	}
	const parts = 1_000_000 // so that 0.29 of 100 is 29, which floats do not say
	return strconv.FormatInt(mib*int64(math.Round(part*parts))/parts, 10) + "m", true
}

// writeMaps makes the pod's ConfigMaps say what it received.
func (c *Controller) writeMaps(ctx context.Context, pod *corev1.Pod, g grant, node *corev1.Node) error {
	in, err := placeOf(pod)
	if err != nil {
		return err
	}
	capabilities, environment := c.options.content(in, g, node)
	if err := c.writeMap(ctx, pod, in.capabilities, capabilities); err != nil {
		return err
	}
	return c.writeMap(ctx, pod, in.environment, environment)
}

// writeMap makes one ConfigMap of the pod say data. One that is there already is taken over, unless it belongs to a pod
// that lives, or says things that only a user can have put there.
func (c *Controller) writeMap(ctx context.Context, pod *corev1.Pod, name string, data map[string]string) error {
	want := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: name, OwnerReferences: []metav1.OwnerReference{{
			APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID,
		}}},
		Data: data,
	}
	err := c.cluster.createMap(ctx, want)
	if !apierrors.IsAlreadyExists(err) {
		if err != nil {
			return fmt.Errorf("ConfigMap %s: %w", name, err)
		}
		return nil
	}
	now, err := c.cluster.liveMap(ctx, types.NamespacedName{Namespace: pod.Namespace, Name: name})
	switch {
	case err != nil:
		return err
	case now == nil:
		return fmt.Errorf("ConfigMap %s/%s went while it was written", pod.Namespace, name)
	}
	if _, legacy := now.Data[keys.LegacyVisibleDevicesKey]; legacy {
		if list, ok := data[keys.VisibleDevicesEnv]; ok {
			data[keys.LegacyVisibleDevicesKey] = list
		}
	}
	mine := false
	for _, owner := range now.OwnerReferences {
		if owner.Kind != "Pod" {
			continue
		}
		if owner.UID == pod.UID {
			mine = true
			continue
		}
		other, err := c.cluster.livePod(ctx, types.NamespacedName{Namespace: pod.Namespace, Name: owner.Name})
		if err != nil {
			return err
		}
		if other != nil && other.UID == owner.UID && !over(other) {
			return verdictf("ConfigMap %s belongs to pod %s: two pods must not have the same value of annotation %s", name, owner.Name, keys.SharedGPUConfigMapAnnotation)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(now.Data)) {
		if !slices.Contains(kai.DeviceMapKeys(), key) {
			return verdictf("ConfigMap %s has a key %s, which is not ours: it is not overwritten", name, key)
		}
	}
	if mine && len(now.OwnerReferences) == 1 && maps.Equal(now.Data, data) {
		return nil
	}
	want.ResourceVersion, want.UID = now.ResourceVersion, now.UID
	if err := c.cluster.updateMap(ctx, want); err != nil {
		// Whoever changed it at the same time is looked at next time.
		return fault(fmt.Errorf("ConfigMap %s: %w", name, err))
	}
	return nil
}

// dropMaps deletes the pod's ConfigMaps, if they are the pod's.
func (c *Controller) dropMaps(ctx context.Context, pod *corev1.Pod) error {
	in, err := placeOf(pod)
	if err != nil {
		return nil // none can have been written
	}
	for _, name := range []string{in.environment, in.capabilities} {
		now, err := c.cluster.liveMap(ctx, types.NamespacedName{Namespace: pod.Namespace, Name: name})
		if err != nil {
			return err
		}
		if now == nil || !slices.ContainsFunc(now.OwnerReferences, func(o metav1.OwnerReference) bool { return o.UID == pod.UID }) {
			continue
		}
		if err := c.cluster.deleteMap(ctx, now); err != nil {
			return fmt.Errorf("ConfigMap %s: %w", name, err)
		}
	}
	return nil
}

// toldDevices is the list of UUIDs that a pod's container was told; nil when that cannot be known any more.
func (c *Controller) toldDevices(ctx context.Context, pod *corev1.Pod) ([]string, error) {
	in, err := placeOf(pod)
	if err != nil {
		return nil, nil
	}
	name := in.environment
	if in.reads {
		name = in.capabilities
	}
	now, err := c.cluster.liveMap(ctx, types.NamespacedName{Namespace: pod.Namespace, Name: name})
	if err != nil || now == nil || now.Data[keys.VisibleDevicesEnv] == "" {
		return nil, err
	}
	list := strings.Split(now.Data[keys.VisibleDevicesEnv], ",")
	for i := range list {
		list[i] = strings.TrimPrefix(strings.TrimSpace(list[i]), cdiPrefix)
	}
	return list, nil
}
