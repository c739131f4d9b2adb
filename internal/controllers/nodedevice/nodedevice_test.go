package nodedevice

import (
	"context"
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-scheduler/muster/api/kai/keys"
	"github.com/muster-scheduler/muster/internal/kubetest"
)

type devices func() ([]string, error)

func (d devices) UUIDs() ([]string, error) { return d() }

// server is a client of an API server with these objects.
func server(t *testing.T, objects ...client.Object) client.Client {
	t.Helper()
	s := kubetest.New(kubetest.Options{})
	s.Put(objects...)
	c, err := s.Process("nodedevice").Client(kubetest.Scheme())
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestReport(t *testing.T) {
	t.Parallel()
	name := types.NamespacedName{Namespace: "kai-resource-reservation", Name: "gpu-reservation-1"}
	for _, c := range []struct {
		about  string
		before string // the annotation
		see    Devices
		want   string
		fails  string
	}{
		{"one GPU is written down", "", Simulated("GPU-a"), "GPU-a", ""},
		{"a restarted container leaves what is written", "GPU-a", devices(func() ([]string, error) { return nil, errors.New("not asked") }), "GPU-a", ""},
		{"no GPU", "", devices(func() ([]string, error) { return nil, nil }), "", "sees 0 GPUs"},
		{"two GPUs", "", devices(func() ([]string, error) { return []string{"GPU-a", "GPU-b"}, nil }), "", "sees 2 GPUs [GPU-a GPU-b]"},
		{"the driver fails", "", devices(func() ([]string, error) { return nil, errors.New("no driver") }), "", "no driver"},
		{"a simulated device without a UUID", "", Simulated(" "), "", "no UUID"},
	} {
		t.Run(c.about, func(t *testing.T) {
			t.Parallel()
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name, UID: "u", Labels: map[string]string{"app": "r"}}}
			if c.before != "" {
				pod.Annotations = map[string]string{keys.ReservedGPUAnnotation: c.before}
			}
			api := server(t, pod)
			got, err := Report(context.Background(), api, name, c.see)
			if (err != nil) != (c.fails != "") || err != nil && !strings.Contains(err.Error(), c.fails) {
				t.Fatalf("error %v, want one that says %q", err, c.fails)
			}
			var after corev1.Pod
			if err := api.Get(context.Background(), name, &after); err != nil {
				t.Fatal(err)
			}
			if got != c.want || after.Annotations[keys.ReservedGPUAnnotation] != c.want || after.Labels["app"] != "r" {
				t.Errorf("reported %q and wrote %v; want %q", got, after.Annotations, c.want)
			}
		})
	}
	t.Run("a pod that is not there", func(t *testing.T) {
		t.Parallel()
		if _, err := Report(context.Background(), server(t), name, Simulated("GPU-a")); err == nil || !strings.Contains(err.Error(), name.Name) {
			t.Errorf("error %v, want one that names the pod", err)
		}
		if _, err := Report(context.Background(), server(t), types.NamespacedName{}, Simulated("GPU-a")); err == nil || !strings.Contains(err.Error(), "POD_NAME") {
			t.Errorf("error %v, want one that names the variables", err)
		}
	})
}

func TestRunStaysUntilItIsToldToGo(t *testing.T) {
	t.Parallel()
	name := types.NamespacedName{Namespace: "ns", Name: "r"}
	api := server(t, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "r"}})
	ctx, stop := context.WithCancel(context.Background())
	asked := make(chan struct{})
	end := make(chan error)
	go func() {
		end <- Run(ctx, api, name, devices(func() ([]string, error) { close(asked); return []string{"GPU-a"}, nil }))
	}()
	<-asked
	select {
	case err := <-end:
		t.Fatalf("it ended by itself: %v", err)
	default:
	}
	stop()
	if err := <-end; err != nil && !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
