// Package nodedevice runs in a reservation pod: it finds out which GPU the kubelet gave the pod, and writes the GPU's UUID
// into the pod's annotation, where the binder reads it for the pods that will share the GPU. Then it stays, because the
// GPU is reserved for as long as the pod runs.
package nodedevice

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-scheduler/muster/api/kai/keys"
	"github.com/muster-scheduler/muster/internal/kube/write"
)

// Devices are the GPUs that this process can see.
type Devices interface {
	// UUIDs returns their UUIDs.
	UUIDs() ([]string, error)
}

// Simulated is one GPU that does not exist: its UUID.
type Simulated string

// UUIDs implements Devices.
func (s Simulated) UUIDs() ([]string, error) {
	if strings.TrimSpace(string(s)) == "" {
		return nil, errors.New("the simulated device has no UUID")
	}
	return []string{string(s)}, nil
}

// Report writes the UUID of the one GPU there is into the pod's annotation, unless it is there already, and returns what
// the annotation says. No GPU, or more than one, is an error: the pod would stand for another device than it holds.
func Report(ctx context.Context, c client.Client, pod types.NamespacedName, d Devices) (string, error) {
	if pod.Namespace == "" || pod.Name == "" {
		return "", errors.New("which pod this is must be said in POD_NAMESPACE and POD_NAME")
	}
	var own corev1.Pod
	if err := c.Get(ctx, pod, &own); err != nil {
		return "", fmt.Errorf("read this pod, %s: %w", pod, err)
	}
	if uuid := own.Annotations[keys.ReservedGPUAnnotation]; uuid != "" { // a restart: the device is the same
		return uuid, nil
	}
	uuids, err := d.UUIDs()
	if err != nil {
		return "", fmt.Errorf("look for this pod's GPU: %w", err)
	}
	if len(uuids) != 1 {
		return "", fmt.Errorf("this pod sees %d GPUs %v; a reservation holds exactly one", len(uuids), uuids)
	}
	body := write.Body(map[string]any{"metadata": map[string]any{
		"uid": own.UID, "annotations": map[string]string{keys.ReservedGPUAnnotation: uuids[0]},
	}})
	kit, err := write.New(c, "reservation", nil)
	if err != nil {
		return "", err
	}
	result, err := kit.Merge(ctx, &corev1.Pod{ObjectMeta: own.ObjectMeta}, body)
	if err != nil {
		return "", err
	}
	if result != write.Written {
		return "", fmt.Errorf("annotate this pod, %s: it is %s", pod, result)
	}
	return uuids[0], nil
}

// Run reports, and then waits for the end of ctx.
func Run(ctx context.Context, c client.Client, pod types.NamespacedName, d Devices) error {
	uuid, err := Report(ctx, c, pod, d)
	if err != nil {
		return err
	}
	logr.FromContextOrDiscard(ctx).Info("reserved", "pod", pod.String(), "gpu", uuid)
	<-ctx.Done()
	return nil
}
