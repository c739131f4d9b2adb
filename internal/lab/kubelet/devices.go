package kubelet

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-scheduler/muster/api/kai/keys"
	"github.com/muster-scheduler/muster/internal/lab"
)

// DeviceUUID is the UUID of a played node's GPU, by its index from 0. It is the same in every lab.
func DeviceUUID(node string, index int) string {
	s := sha256.Sum256(fmt.Appendf(nil, "%s/%d", node, index))
	return fmt.Sprintf("GPU-%x-%x-%x-%x-%x", s[0:4], s[4:6], s[6:8], s[8:10], s[10:16])
}

// holdsDevice says whether a pod is there to hold a GPU that others share, and to tell which one it got.
func holdsDevice(p *corev1.Pod) bool {
	return p.Labels[keys.AppLabel] == keys.ReservationNamespace
}

// giveDevices gives a pod that was admitted the first free GPUs of its node, as many as it asks for; a pod that an earlier
// Player gave one which it told keeps that. There are enough: admission counted them.
func (n *node) giveDevices(name string, q *pod) {
	want := int(q.requests[lab.GPUResource])
	told := q.obj.Annotations[keys.ReservedGPUAnnotation]
	total := int(n.allocatable[lab.GPUResource])
	for i := 0; i < total && told != ""; i++ {
		if DeviceUUID(name, i) == told {
			q.devices = append(q.devices, i)
			break
		}
	}
	for i := 0; i < total && len(q.devices) < want; i++ {
		if !n.devices[i] && !slices.Contains(q.devices, i) {
			q.devices = append(q.devices, i)
		}
	}
	for _, i := range q.devices {
		n.devices[i] = true
	}
}

// takeDevices takes them back.
func (n *node) takeDevices(q *pod) {
	for _, i := range q.devices {
		delete(n.devices, i)
	}
	q.devices = nil
}

// tellDevice has a pod that holds a device tell which one, as the program in it does on a real node.
func (p *Player) tellDevice(ctx context.Context, now pod) error {
	if !holdsDevice(now.obj) || len(now.devices) == 0 || now.obj.Annotations[keys.ReservedGPUAnnotation] != "" {
		return nil
	}
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid":         now.obj.UID,
		"annotations": map[string]string{keys.ReservedGPUAnnotation: DeviceUUID(now.obj.Spec.NodeName, now.devices[0])},
	}})
	if err != nil {
		return fmt.Errorf("encode the device of pod %s/%s: %w", now.obj.Namespace, now.obj.Name, err)
	}
	_, err = p.client.CoreV1().Pods(now.obj.Namespace).Patch(ctx, now.obj.Name, types.MergePatchType, body, metav1.PatchOptions{})
	return ignoreGone(err)
}
