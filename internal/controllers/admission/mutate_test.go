package admission

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"

	"github.com/muster-scheduler/muster/internal/dialect/kai"
)

// mutated is the pod after Mutate, which must have nothing to do a second time.
func mutated(t testing.TB, r *Rules, p *corev1.Pod) *corev1.Pod {
	t.Helper()
	ops, err := r.Mutate(p, "abc2345")
	if err != nil {
		t.Fatal(err)
	}
	out := patched(t, p, ops)
	again, err := r.Mutate(out, "other22")
	if err != nil {
		t.Fatal(err)
	}
	if len(again) > 0 {
		t.Errorf("asked again, it does more: %v", again)
	}
	return out
}

func TestMutate(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		rules    *Rules
		pod, out string
	}{
		"a fraction": {
			pod: `{metadata: {name: p, annotations: {gpu-fraction: "0.5"}}, spec: {schedulerName: kai-scheduler, containers: [{name: main, resources: {}}]}}`,
			out: `
metadata: {name: p, annotations: {gpu-fraction: "0.5", runai/shared-gpu-configmap: p-abc2345-shared-gpu}}
spec:
  schedulerName: kai-scheduler
  runtimeClassName: nvidia
  containers:
  - name: main
    resources: {}
    env:
    - {name: NVIDIA_VISIBLE_DEVICES, valueFrom: {configMapKeyRef: {name: p-abc2345-shared-gpu-0, key: NVIDIA_VISIBLE_DEVICES}}}
    - {name: RUNAI_NUM_OF_GPUS, valueFrom: {configMapKeyRef: {name: p-abc2345-shared-gpu-0, key: RUNAI_NUM_OF_GPUS}}}
    - {name: GPU_PORTION, valueFrom: {configMapKeyRef: {name: p-abc2345-shared-gpu-0, key: GPU_PORTION}}}
    envFrom: [{configMapRef: {name: p-abc2345-shared-gpu-0-evar, optional: false}}]
  volumes: [{name: p-abc2345-shared-gpu-0-vol, configMap: {name: p-abc2345-shared-gpu-0}}]
`,
		},
		"an init container, with memory limits": {
			rules: &Rules{SchedulerNames: []string{"kai-scheduler"}, GPUSharing: true, MemoryLimits: true},
			pod: `{metadata: {generateName: trainer-, ownerReferences: [{apiVersion: v1, kind: Job, name: my.job, uid: u}], annotations: {gpu-memory: "5", gpu-fraction-container-name: warm}},
spec: {schedulerName: kai-scheduler, volumes: [{name: data, emptyDir: {}}], containers: [{name: main, resources: {}}],
 initContainers: [{name: first, resources: {}}, {name: warm, resources: {}, env: [{name: GPU_PORTION, value: "1"}, {name: MINE, value: "2"}, {name: NVIDIA_VISIBLE_DEVICES, value: all}], envFrom: [{secretRef: {name: s}}]}]}}`,
			out: `
metadata:
  generateName: trainer-
  ownerReferences: [{apiVersion: v1, kind: Job, name: my.job, uid: u}]
  annotations: {gpu-memory: "5", gpu-fraction-container-name: warm, runai/shared-gpu-configmap: my.job-abc2345-shared-gpu}
spec:
  schedulerName: kai-scheduler
  containers: [{name: main, resources: {}}]
  initContainers:
  - {name: first, resources: {}}
  - name: warm
    resources: {}
    env:
    - {name: MINE, value: "2"}
    - {name: NVIDIA_VISIBLE_DEVICES, valueFrom: {configMapKeyRef: {name: my.job-abc2345-shared-gpu-i1, key: NVIDIA_VISIBLE_DEVICES}}}
    - {name: RUNAI_NUM_OF_GPUS, valueFrom: {configMapKeyRef: {name: my.job-abc2345-shared-gpu-i1, key: RUNAI_NUM_OF_GPUS}}}
    - {name: GPU_PORTION, valueFrom: {configMapKeyRef: {name: my.job-abc2345-shared-gpu-i1, key: GPU_PORTION}}}
    - {name: CUDA_DEVICE_MEMORY_LIMIT, valueFrom: {configMapKeyRef: {name: my.job-abc2345-shared-gpu-i1, key: CUDA_DEVICE_MEMORY_LIMIT, optional: true}}}
    envFrom: [{secretRef: {name: s}}, {configMapRef: {name: my.job-abc2345-shared-gpu-i1-evar, optional: false}}]
  volumes: [{name: data, emptyDir: {}}, {name: my-job-abc2345-shared-gpu-i1-vol, configMap: {name: my.job-abc2345-shared-gpu-i1}}]
`,
		},
		"guarded devices": {
			rules: &Rules{SchedulerNames: []string{"kai-scheduler"}, GuardDevices: true},
			pod: `{spec: {schedulerName: kai-scheduler, containers: [{name: plain, resources: {}},
 {name: whole, resources: {requests: {nvidia.com/gpu: 1}, limits: {nvidia.com/gpu: 1}}}, {name: slice, resources: {limits: {nvidia.com/mig-1g.5gb: 1}}},
 {name: zero, resources: {limits: {nvidia.com/gpu: 0}}, env: [{name: A, value: a}, {name: NVIDIA_VISIBLE_DEVICES, value: none}, {name: B, value: b}]}]}}`,
			out: `
spec:
  schedulerName: kai-scheduler
  containers:
  - {name: plain, resources: {}, env: [{name: NVIDIA_VISIBLE_DEVICES, value: void}]}
  - {name: whole, resources: {requests: {nvidia.com/gpu: 1}, limits: {nvidia.com/gpu: 1}}}
  - {name: slice, resources: {limits: {nvidia.com/mig-1g.5gb: 1}}}
  - {name: zero, resources: {limits: {nvidia.com/gpu: 0}}, env: [{name: A, value: a}, {name: B, value: b}, {name: NVIDIA_VISIBLE_DEVICES, value: void}]}
`,
		},
		"a manifest of a running pod": {
			pod: `{metadata: {labels: {app: x, runai-gpu-group: g, runai-gpu-group/h: h}, annotations: {received-resource-type: Fraction, kai.scheduler/numa-placement-observed: "[]", muster.dev/bundle: b, run.ai/reserve_for_gpu_index: g}}, spec: {schedulerName: kai-scheduler, containers: [{name: a, resources: {}}]}}`,
			out: `{metadata: {labels: {app: x}}, spec: {schedulerName: kai-scheduler, containers: [{name: a, resources: {}}]}}`,
		},
		"a pod of others": {
			rules: all(),
			pod:   `{metadata: {labels: {runai-gpu-group: g}, annotations: {gpu-fraction: "0.5"}}, spec: {schedulerName: x, containers: [{name: a, resources: {}}]}}`,
			out:   `{metadata: {labels: {runai-gpu-group: g}, annotations: {gpu-fraction: "0.5"}}, spec: {schedulerName: x, containers: [{name: a, resources: {}}]}}`,
		},
		"a runtime class of one's own": {
			pod: `{metadata: {annotations: {gpu-fraction: "0.5"}}, spec: {schedulerName: kai-scheduler, runtimeClassName: kata, containers: []}}`,
			out: `{metadata: {annotations: {gpu-fraction: "0.5"}}, spec: {schedulerName: kai-scheduler, runtimeClassName: kata, containers: []}}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := c.rules
			if r == nil {
				r = sharing()
			}
			got := mutated(t, r, pod(t, c.pod))
			if d := cmp.Diff(asYAML(t, pod(t, c.out)), asYAML(t, got)); d != "" {
				t.Error(d)
			}
		})
	}
}

func asYAML(t *testing.T, p *corev1.Pod) string {
	t.Helper()
	text, err := yaml.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	return strings.ReplaceAll(string(text), "  annotations: {}\n", "")
}

// TestNames: whatever the owner is called, the names made of it are names.
func TestNames(t *testing.T) {
	t.Parallel()
	for _, owner := range []string{"", "a", "A_b:c", "-x.", strings.Repeat("a.b-", 60), strings.Repeat("x", 253), "äöü", "a.b.c"} {
		for _, at := range []kai.ContainerAt{{}, {Init: true, Index: 12}, {Index: 9999}} {
			p := &corev1.Pod{}
			p.OwnerReferences = append(p.OwnerReferences, owners(owner)...)
			prefix := mapPrefix(p, at, "abc2345")
			for _, name := range []string{at.CapabilitiesMap(prefix), at.EnvironmentMap(prefix)} {
				if errs := validation.IsDNS1123Subdomain(name); len(errs) > 0 || len(name) > 63 {
					t.Errorf("owner %q: %s (%d): %v", owner, name, len(name), errs)
				}
			}
			if errs := validation.IsDNS1123Label(volumeName(at.CapabilitiesMap(prefix))); len(errs) > 0 {
				t.Errorf("owner %q: volume %s: %v", owner, volumeName(prefix), errs)
			}
		}
	}
}

// FuzzPod: whatever a user writes into a pod, both hooks answer; what passes can be completed, once, and still passes.
func FuzzPod(f *testing.F) {
	f.Add([]byte(`{"metadata":{"annotations":{"gpu-fraction":"0.5"}},"spec":{"schedulerName":"kai-scheduler","containers":[{"name":"a"}]}}`))
	f.Add([]byte(`{"metadata":{"annotations":{"gpu-memory":"5","gpu-fraction-container-name":"i"}},"spec":{"schedulerName":"kai-scheduler","initContainers":[{"name":"i","env":[{"name":"GPU_PORTION"},{"name":"GPU_PORTION"}]}],"containers":[{"name":"a"}],"volumes":[{"name":"v"}]}}`))
	f.Add([]byte(`{"metadata":{"labels":{"runai-gpu-group/~x":"y"},"annotations":{"gpu-fraction":"NaN"}},"spec":{"schedulerName":"muster","containers":[]}}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		p := &corev1.Pod{}
		if json.Unmarshal(raw, p) != nil {
			return
		}
		r := all()
		if wrong := r.Validate(p); len(wrong) > 0 {
			for _, e := range wrong {
				if e.Field == "" || e.Detail == "" && e.Type != "FieldValueDuplicate" {
					t.Errorf("an error without field or rule: %v", e)
				}
			}
			return
		}
		if r.ours(p) {
			if _, wrong := kai.Share(p); wrong != "" {
				t.Errorf("it passes, and will never be placed: %s", wrong)
			}
		}
		out := mutated(t, r, p)
		if wrong := r.Validate(out); len(wrong) > 0 && utf8.Valid(raw) {
			t.Errorf("completed, it is wrong: %v", wrong)
		}
		if wrong := r.ValidateUpdate(p, p); len(wrong) > 0 {
			t.Errorf("unchanged, it is wrong: %v", wrong)
		}
	})
}

func owners(name string) []metav1.OwnerReference {
	if name == "" {
		return nil
	}
	return []metav1.OwnerReference{{Name: name}}
}

// FuzzFraction: what passes is a number for the scheduler, too.
func FuzzFraction(f *testing.F) {
	for _, s := range []string{"0.5", "NaN", "inf", "1e-1", "0x1p-2", "500m", "0.999999999999999999999", "1e-400", "5e-7"} {
		f.Add(s, "1")
		f.Add("0.5", s)
	}
	f.Fuzz(func(t *testing.T, fraction, devices string) {
		p := &corev1.Pod{Spec: corev1.PodSpec{SchedulerName: "kai-scheduler", Containers: []corev1.Container{{Name: "a"}}}}
		p.Annotations = map[string]string{"gpu-fraction": fraction, "gpu-fraction-num-devices": devices}
		if wrong := sharing().Validate(p); len(wrong) > 0 {
			return
		}
		if s, wrong := kai.Share(p); wrong != "" || s.None() {
			t.Errorf("%q of %q devices passes, and will never be placed: %s", fraction, devices, wrong)
		}
	})
}
