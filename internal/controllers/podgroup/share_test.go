package podgroup

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-scheduler/muster/internal/dialect/core"
	"github.com/muster-scheduler/muster/internal/dialect/kai"
	"github.com/muster-scheduler/muster/internal/dialect/tally"
)

// list builds a resource list from names and amounts in turn.
func list(pairs ...string) corev1.ResourceList {
	out := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		out[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return out
}

// shown turns a list into text, for comparisons that do not care how amounts are written.
func shown(l corev1.ResourceList) map[string]string {
	out := map[string]string{}
	var sum tally.Sum
	sum.Add(l)
	for name, q := range sum.List() {
		out[string(name)] = q.String()
	}
	return out
}

// container is a container that asks for the given amounts.
func container(pairs ...string) corev1.Container {
	return corev1.Container{Name: "c", Resources: corev1.ResourceRequirements{Requests: list(pairs...)}}
}

// makePod returns a pending pod of one GPU that belongs to gang ns/gang.
func makePod(name string, edits ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: name, UID: types.UID("uid-" + name),
			Annotations: map[string]string{kai.PodGroupAnnotation: "gang"},
		},
		Spec:   corev1.PodSpec{SchedulerName: "kai-scheduler", Containers: []corev1.Container{container("cpu", "1", "nvidia.com/gpu", "1")}},
		Status: corev1.PodStatus{Phase: corev1.PodPending},
	}
	for _, edit := range edits {
		edit(p)
	}
	return p
}

func on(node string) func(*corev1.Pod) { return func(p *corev1.Pod) { p.Spec.NodeName = node } }

func phase(ph corev1.PodPhase) func(*corev1.Pod) { return func(p *corev1.Pod) { p.Status.Phase = ph } }

func annotated(key, value string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Annotations[key] = value }
}

func containers(cs ...corev1.Container) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.Containers = cs }
}

func TestShareOfAPod(t *testing.T) {
	t.Parallel()
	always := corev1.ContainerRestartPolicyAlways
	tests := map[string]struct {
		pod                  *corev1.Pod
		requested, allocated corev1.ResourceList
		err                  string
	}{
		"pending": {
			pod:       makePod("p"),
			requested: list("cpu", "1", "nvidia.com/gpu", "1"),
		},
		"bound": {
			pod:       makePod("p", on("n1")),
			requested: list("cpu", "1", "nvidia.com/gpu", "1"), allocated: list("cpu", "1", "nvidia.com/gpu", "1"),
		},
		"pending, said to be scheduled": {
			pod: makePod("p", func(p *corev1.Pod) {
				p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue}}
			}),
			requested: list("cpu", "1", "nvidia.com/gpu", "1"), allocated: list("cpu", "1", "nvidia.com/gpu", "1"),
		},
		"running": {
			pod:       makePod("p", on("n1"), phase(corev1.PodRunning)),
			requested: list("cpu", "1", "nvidia.com/gpu", "1"), allocated: list("cpu", "1", "nvidia.com/gpu", "1"),
		},
		"succeeded": {pod: makePod("p", on("n1"), phase(corev1.PodSucceeded))},
		"failed":    {pod: makePod("p", on("n1"), phase(corev1.PodFailed))},
		"no containers": {
			pod: makePod("p", containers()),
		},
		"all that a pod can ask for": {
			pod: makePod("p", containers(container("cpu", "1")), func(p *corev1.Pod) {
				sidecar := container("cpu", "500m")
				sidecar.RestartPolicy = &always
				p.Spec.InitContainers = []corev1.Container{sidecar, container("cpu", "2", "memory", "1Gi")}
				p.Spec.Overhead = list("cpu", "250m")
			}),
			// The init container runs beside the sidecar started before it: 2.5 cores, more than the 1.5 that follow.
			requested: list("cpu", "2750m", "memory", "1Gi"),
		},
		"fraction": {
			pod:       makePod("p", containers(container("cpu", "1")), annotated(kai.FractionAnnotation, "0.5")),
			requested: list("cpu", "1", "nvidia.com/gpu", "500m"),
		},
		"fraction of three devices, all of them held": {
			pod: makePod("p", containers(container("cpu", "1")), on("n1"), annotated(kai.FractionAnnotation, "0.5"),
				annotated(annotationDevices, "3"), annotated(annotationReceived, receivedFraction)),
			requested: list("cpu", "1", "nvidia.com/gpu", "1500m"), allocated: list("cpu", "1", "nvidia.com/gpu", "1500m"),
		},
		"fraction not received": {
			pod:       makePod("p", containers(container("cpu", "1")), on("n1"), annotated(kai.FractionAnnotation, "0.5")),
			requested: list("cpu", "1", "nvidia.com/gpu", "500m"), allocated: list("cpu", "1"),
		},
		"by memory": {
			pod: makePod("p", containers(container("cpu", "1")), on("n1"), annotated(kai.MemoryAnnotation, "10000"),
				annotated(annotationDevices, "2"), annotated(annotationReceived, receivedFraction)),
			requested: list("cpu", "1", "run.ai/gpu.memory", "20000"), allocated: list("cpu", "1", "nvidia.com/gpu", "500m"),
		},
		"by memory on a node that says nothing": {
			pod: makePod("p", containers(container("cpu", "1")), on("n2"), annotated(kai.MemoryAnnotation, "10000"),
				annotated(annotationReceived, receivedFraction)),
			requested: list("cpu", "1", "run.ai/gpu.memory", "10000"), allocated: list("cpu", "1"),
			err: "n2",
		},
		"NaN": {
			pod: makePod("p", containers(container("cpu", "1")), annotated(kai.FractionAnnotation, "NaN")), requested: list("cpu", "1"),
			err: `annotation gpu-fraction="NaN": it must be a number above 0 and below 1`,
		},
		"fraction of one": {
			pod: makePod("p", containers(container("cpu", "1")), annotated(kai.FractionAnnotation, "1")), requested: list("cpu", "1"),
			err: `annotation gpu-fraction="1": it must be a number above 0 and below 1`,
		},
		"negative memory": {
			pod: makePod("p", containers(container("cpu", "1")), annotated(kai.MemoryAnnotation, "-5")), requested: list("cpu", "1"),
			err: `annotation gpu-memory="-5": it must be a whole number of MiB above 0`,
		},
		"both": {
			pod: makePod("p", containers(container("cpu", "1")), annotated(kai.FractionAnnotation, "0.5"), annotated(kai.MemoryAnnotation, "5")), requested: list("cpu", "1"),
			err: "annotations gpu-fraction and gpu-memory exclude each other",
		},
		"absurd devices": {
			pod: makePod("p", containers(container("cpu", "1")), annotated(kai.FractionAnnotation, "0.5"), annotated(annotationDevices, "99999999999999999999")), requested: list("cpu", "1"),
			err: `annotation gpu-fraction-num-devices="99999999999999999999": it must be a whole number from 1 to 65536`,
		},
	}
	around := newAggregator(nil, "")
	around.nodeChanged("n1", map[string]string{core.GPUMemoryLabel: "40000"}, true)
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := shareOf(tc.pod, around)
			if (err != nil) != (tc.err != "") || err != nil && !strings.Contains(err.Error(), tc.err) {
				t.Errorf("error %v, want %q", err, tc.err)
			}
			if d := cmp.Diff(shown(tc.requested), shown(got.requested.List())); d != "" {
				t.Errorf("requested: %s", d)
			}
			if d := cmp.Diff(shown(tc.allocated), shown(got.allocated.List())); d != "" {
				t.Errorf("allocated: %s", d)
			}
		})
	}
}

func TestGPUMemoryOfANode(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		labels map[string]string
		want   int64
		err    string
	}{
		"nvidia":      {labels: map[string]string{core.GPUMemoryLabel: "81559"}, want: 81559},
		"amd":         {labels: map[string]string{"beta.amd.com/gpu.vram.64G": "8"}, want: 64000},
		"two of amd":  {labels: map[string]string{"beta.amd.com/gpu.vram.64G": "8", "beta.amd.com/gpu.vram.32G": "1"}, want: 32000},
		"both":        {labels: map[string]string{core.GPUMemoryLabel: "81559", "beta.amd.com/gpu.vram.64G": "8"}, err: "only one kind"},
		"none":        {err: "no GPU memory"},
		"no number":   {labels: map[string]string{core.GPUMemoryLabel: "80G"}, err: "whole number"},
		"zero":        {labels: map[string]string{core.GPUMemoryLabel: "0"}, err: "whole number"},
		"no size":     {labels: map[string]string{"beta.amd.com/gpu.vram.big": ""}, err: "size"},
		"just prefix": {labels: map[string]string{"beta.amd.com/gpu.vram.": ""}, err: "size"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := gpuMemoryOf(tc.labels)
			if got != tc.want || (err != nil) != (tc.err != "") || err != nil && !strings.Contains(err.Error(), tc.err) {
				t.Errorf("got %d, %v; want %d, %q", got, err, tc.want, tc.err)
			}
		})
	}
}
