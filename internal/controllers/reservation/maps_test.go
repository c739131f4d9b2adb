package reservation

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-scheduler/muster/api/kai/keys"
	schedulingv1alpha2 "github.com/muster-scheduler/muster/api/scheduling/v1alpha2"
)

// node is a node whose devices have so much memory.
func nodeWith(memory string, labels ...string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: map[string]string{keys.GPUMemoryNodeLabel: memory}}}
	for i := 0; i < len(labels); i += 2 {
		n.Labels[labels[i]] = labels[i+1]
	}
	return n
}

// TestWhatContainersAreTold: both ConfigMaps, by container and configuration.
func TestWhatContainersAreTold(t *testing.T) {
	t.Parallel()
	two := grant{devices: []string{"GPU-a", "GPU-b"}, portion: "0.29"}
	for name, tc := range map[string]struct {
		edit                      func(*corev1.Pod)
		options                   func(*Options)
		memory                    string
		capabilities, environment map[string]string
		names                     string
	}{
		"as admission leaves it": {
			capabilities: map[string]string{"GPU_PORTION": "0.29", "RUNAI_NUM_OF_GPUS": "0.29", "NVIDIA_VISIBLE_DEVICES": "GPU-a,GPU-b"},
			environment:  map[string]string{}, names: "a-x-shared-gpu-0 a-x-shared-gpu-0-evar",
		},
		"no reference to the list": {
			edit:         func(p *corev1.Pod) { p.Spec.Containers[0].Env = nil },
			capabilities: map[string]string{"GPU_PORTION": "0.29", "RUNAI_NUM_OF_GPUS": "0.29"},
			environment:  map[string]string{"NVIDIA_VISIBLE_DEVICES": "GPU-a,GPU-b"}, names: "a-x-shared-gpu-0 a-x-shared-gpu-0-evar",
		},
		"an init container": {
			edit: func(p *corev1.Pod) {
				p.Annotations[keys.GPUFractionContainerAnnotation] = "setup"
				p.Spec.InitContainers = []corev1.Container{{Name: "other"}, {Name: "setup"}}
			},
			capabilities: map[string]string{"GPU_PORTION": "0.29", "RUNAI_NUM_OF_GPUS": "0.29"},
			environment:  map[string]string{"NVIDIA_VISIBLE_DEVICES": "GPU-a,GPU-b"}, names: "a-x-shared-gpu-i1 a-x-shared-gpu-i1-evar",
		},
		"names of the Container Device Interface": {
			options: func(o *Options) { o.CDI = true },
			capabilities: map[string]string{
				"GPU_PORTION": "0.29", "RUNAI_NUM_OF_GPUS": "0.29",
				"NVIDIA_VISIBLE_DEVICES": "k8s.device-plugin.nvidia.com/gpu=GPU-a,k8s.device-plugin.nvidia.com/gpu=GPU-b",
			},
			environment: map[string]string{}, names: "a-x-shared-gpu-0 a-x-shared-gpu-0-evar",
		},
		"a limit of memory, exact": {
			options: func(o *Options) { o.MemoryLimits = true }, memory: "100",
			capabilities: map[string]string{"GPU_PORTION": "0.29", "RUNAI_NUM_OF_GPUS": "0.29", "NVIDIA_VISIBLE_DEVICES": "GPU-a,GPU-b", "CUDA_DEVICE_MEMORY_LIMIT": "29m"},
			environment:  map[string]string{}, names: "a-x-shared-gpu-0 a-x-shared-gpu-0-evar",
		},
		"a limit of memory, rounded down": {
			options: func(o *Options) { o.MemoryLimits = true }, memory: "81559",
			capabilities: map[string]string{"GPU_PORTION": "0.29", "RUNAI_NUM_OF_GPUS": "0.29", "NVIDIA_VISIBLE_DEVICES": "GPU-a,GPU-b", "CUDA_DEVICE_MEMORY_LIMIT": "23652m"},
			environment:  map[string]string{}, names: "a-x-shared-gpu-0 a-x-shared-gpu-0-evar",
		},
		"a limit of memory, but the node does not state any": {
			options: func(o *Options) { o.MemoryLimits = true }, memory: "plenty",
			capabilities: map[string]string{"GPU_PORTION": "0.29", "RUNAI_NUM_OF_GPUS": "0.29", "NVIDIA_VISIBLE_DEVICES": "GPU-a,GPU-b"},
			environment:  map[string]string{}, names: "a-x-shared-gpu-0 a-x-shared-gpu-0-evar",
		},
	} {
		pod, _ := newFakeAPI(t, 0).fractional("a", "n1", "g", "h")
		o := DefaultOptions()
		if tc.edit != nil {
			tc.edit(pod)
		}
		if tc.options != nil {
			tc.options(&o)
		}
		in, err := placeOf(pod)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		capabilities, environment := o.content(in, two, nodeWith(tc.memory))
		if d := cmp.Diff(tc.capabilities, capabilities); d != "" {
			t.Errorf("%s: %s", name, d)
		}
		if d := cmp.Diff(tc.environment, environment); d != "" {
			t.Errorf("%s: %s", name, d)
		}
		if d := cmp.Diff(tc.names, in.capabilities+" "+in.environment); d != "" {
			t.Errorf("%s: %s", name, d)
		}
	}
}

// TestMapsThatExist: whose ConfigMaps are taken over, and whose are not.
func TestMapsThatExist(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		data   map[string]string
		owners func(w *fakeAPI) []metav1.OwnerReference
		want   string // what the container is told, or
		err    string
	}{
		"of an earlier attempt":        {data: map[string]string{keys.VisibleDevicesEnv: "GPU-old"}, owners: ownedBy("a"), want: "GPU-n1-0"},
		"of a pod that is gone":        {data: map[string]string{keys.VisibleDevicesEnv: "GPU-old"}, owners: ownedBy("gone"), want: "GPU-n1-0"},
		"of a pod that lives":          {data: map[string]string{keys.VisibleDevicesEnv: "GPU-old"}, owners: ownedBy("b"), err: "belongs to pod b"},
		"of a user":                    {data: map[string]string{"settings.yaml": "x"}, owners: ownedBy(""), err: "has a key settings.yaml, which is not ours"},
		"of nobody, with what is ours": {data: map[string]string{keys.PortionEnv: "0.10"}, owners: ownedBy(""), want: "GPU-n1-0"},
		"with the old key":             {data: map[string]string{keys.LegacyVisibleDevicesKey: "GPU-old"}, owners: ownedBy("a"), want: "GPU-n1-0"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newFakeAPI(t, 1)
			c := w.start()
			w.fractional("b", "n1", "other")
			pod, r := w.fractional("a", "n1", "g")
			m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: team, Name: "a-x-shared-gpu-0", OwnerReferences: tc.owners(w)}, Data: tc.data}
			w.stamp(&m.ObjectMeta)
			w.maps[key(m)] = m
			if _, err := c.Prepare(ctx, r, pod); err != nil {
				t.Fatal(err)
			}
			w.settle(c)
			_, err := c.Prepare(ctx, r, pod)
			if tc.err != "" {
				if _, about := err.(interface{ AboutRequest() }); !about || !strings.Contains(err.Error(), tc.err) {
					t.Fatalf("%v, want %q", err, tc.err)
				}
				if err := c.Undo(ctx, r, pod); err != nil {
					t.Fatal(err)
				}
				if d := cmp.Diff(tc.data, w.maps[key(m)].Data); d != "" {
					t.Errorf("it was changed: %s", d)
				}
				return
			}
			if err != nil || w.told("a") != tc.want {
				t.Fatalf("told %s, %v", w.told("a"), err)
			}
			if o := w.maps[key(m)].OwnerReferences; len(o) != 1 || o[0].UID != pod.UID {
				t.Errorf("owners %v", o)
			}
			if old, had := tc.data[keys.LegacyVisibleDevicesKey]; had && w.maps[key(m)].Data[keys.LegacyVisibleDevicesKey] == old {
				t.Error("the old key was not refreshed")
			}
		})
	}
}

// ownedBy is an owner reference to the pod of that name, which may not exist; none for an empty one.
func ownedBy(name string) func(w *fakeAPI) []metav1.OwnerReference {
	return func(w *fakeAPI) []metav1.OwnerReference {
		if name == "" {
			return nil
		}
		o := metav1.OwnerReference{APIVersion: "v1", Kind: "Pod", Name: name, UID: "uid-of-another"}
		if p := w.pods[team+"/"+name]; p != nil {
			o.UID = p.UID
		}
		return []metav1.OwnerReference{o}
	}
}

// TestNotAdmitted: a pod that no admission webhook prepared is refused before anything is reserved for it.
func TestNotAdmitted(t *testing.T) {
	t.Parallel()
	w := newFakeAPI(t, 1)
	c := w.start()
	pod, r := w.fractional("a", "n1", "g")
	delete(pod.Annotations, keys.SharedGPUConfigMapAnnotation)
	if _, err := c.Prepare(ctx, r, pod); err == nil || !strings.Contains(err.Error(), "runai/shared-gpu-configmap is missing") {
		t.Error(err)
	}
	pod.Annotations[keys.SharedGPUConfigMapAnnotation], pod.Annotations[keys.GPUFractionContainerAnnotation] = "x", "nobody"
	if _, err := c.Prepare(ctx, r, pod); err == nil || !strings.Contains(err.Error(), `no container of the pod is called "nobody"`) {
		t.Error(err)
	}
	if len(w.writes) > 0 {
		t.Errorf("writes %v", w.writes)
	}
}

// TestCheck: requests that make no sense.
func TestCheck(t *testing.T) {
	t.Parallel()
	type request = schedulingv1alpha2.BindRequest
	c := newFakeAPI(t, 1).start()
	for _, tc := range []struct {
		edit    func(*request)
		problem string
	}{
		{func(*request) {}, ""},
		{func(r *request) { r.Spec.SelectedGPUGroups = nil }, "spec.selectedGPUGroups is empty"},
		{func(r *request) { r.Spec.SelectedGPUGroups = []string{"g", "g"} }, "names group g twice"},
		{func(r *request) { r.Spec.SelectedGPUGroups = []string{"a b"} }, `"a b" cannot be a label`},
		{func(r *request) { r.Spec.SelectedGPUGroups = []string{strings.Repeat("g", 64)} }, "cannot be a label"},
		{func(r *request) { r.Spec.SelectedGPUGroups = []string{""} }, "cannot be a label"},
		{func(r *request) { r.Spec.ReceivedGPU = nil }, "spec.receivedGPU is missing"},
		{func(r *request) { r.Spec.ReceivedGPU.Count = 2 }, "spec.receivedGPU.count is 2, spec.selectedGPUGroups has 1 groups"},
		{func(r *request) { r.Spec.ReceivedGPU.Portion = "" }, `spec.receivedGPU.portion is ""`},
		{func(r *request) { r.Spec.ReceivedGPU.Portion = "NaN" }, `spec.receivedGPU.portion is "NaN"`},
		{func(r *request) { r.Spec.ReceivedGPU.Portion = "1.01" }, `spec.receivedGPU.portion is "1.01"`},
	} {
		_, r := newFakeAPI(t, 1).fractional("a", "n1", "g")
		tc.edit(r)
		known, problem := c.Check(r)
		if !known || tc.problem == "" && problem != "" || !strings.Contains(problem, tc.problem) {
			t.Errorf("%v, %q, want %q", known, problem, tc.problem)
		}
	}
	if known, problem := c.Check(&request{Spec: schedulingv1alpha2.BindRequestSpec{SelectedGPUGroups: []string{"g"}}}); known || problem != "" {
		t.Errorf("a regular request: %v, %q", known, problem)
	}
}

// TestOtherNode: a group is a device of one node.
func TestOtherNode(t *testing.T) {
	t.Parallel()
	w := newFakeAPI(t, 1)
	c := w.start()
	w.fractional("a", "n1", "g")
	w.run(c, "a")
	pod, r := w.fractional("b", "n2", "g")
	if _, err := c.Prepare(ctx, r, pod); err == nil || !strings.Contains(err.Error(), "group g shares a device of node n1, not of node n2") {
		t.Error(err)
	}
}

// TestNotes: what the condition PodBound says of isolation.
func TestNotes(t *testing.T) {
	t.Parallel()
	w := newFakeAPI(t, 1)
	pod, r := w.fractional("a", "n1", "g")
	c := w.start()
	if got := c.Note(r, pod); !strings.HasPrefix(got, "Receives 0.50 of a shared GPU. GPU isolation: none (nothing limits") {
		t.Error(got)
	}
	pod.Annotations[keys.MPSAnnotation] = "true"
	if got := c.Note(r, pod); !strings.HasSuffix(got, "MPS was asked for, but the node does not offer it.") {
		t.Error(got)
	}
	o := DefaultOptions()
	for _, tc := range []struct {
		limits bool
		node   *corev1.Node
		want   Isolation
	}{
		{false, nil, IsolationNone},
		{false, nodeWith("1"), IsolationNone},
		{false, nodeWith("1", keys.MPSCapableNodeLabel, "true"), IsolationMPS},
		{true, nodeWith("1", keys.MPSCapableNodeLabel, "true"), IsolationHAMi},
	} {
		o.MemoryLimits = tc.limits
		if got := o.isolationOf(pod, tc.node); got != tc.want {
			t.Errorf("%s, want %s", got, tc.want)
		}
	}
	plain := &schedulingv1alpha2.BindRequest{}
	if got := c.Note(plain, &corev1.Pod{}); got != "" {
		t.Error(got)
	}
	mig := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{
		Limits: corev1.ResourceList{"nvidia.com/mig-1g.5gb": resource.MustParse("1")},
	}}}}}
	if got := c.Note(plain, mig); got != "GPU isolation: MIG (the hardware divides the device)." {
		t.Error(got)
	}
}
