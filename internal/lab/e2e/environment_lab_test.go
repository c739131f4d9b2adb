//go:build lab

package e2e

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/muster-scheduler/muster/api/kai/keys"
	"github.com/muster-scheduler/muster/internal/lab"
	"github.com/muster-scheduler/muster/internal/lab/kubelet"
)

// newSharingFixture is a fixture in which GPUs can be shared: where reservation pods live, and their account, exist.
func newSharingFixture(t *testing.T, nodes int) *fixture {
	t.Helper()
	return newSharingLab(t, nodes, lab.Options{})
}

// newSharingLab is newSharingFixture in a lab of one's own choice.
func newSharingLab(t *testing.T, nodes int, o lab.Options) *fixture {
	t.Helper()
	w := newFixture(t, nodes, o)
	w.create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: keys.ReservationNamespace}})
	w.create(t, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: keys.ReservationNamespace, Name: keys.ReservationNamespace}})
	return w
}

// seenDevices is what the containers of a pod see of GPUs: by the container's name, its variables about devices.
func (w *fixture) seenDevices(t *testing.T, p *corev1.Pod) map[string]map[string]string {
	t.Helper()
	from := kubelet.SourcesOf(t.Context(), w.lab.Client(), p.Namespace)
	out := map[string]map[string]string{}
	for _, c := range slices.Concat(p.Spec.InitContainers, p.Spec.Containers) {
		env, err := kubelet.Environment(p, &c, from)
		if err != nil {
			t.Fatalf("pod %s would not start: %v", p.Name, err)
		}
		maps.DeleteFunc(env, func(name, _ string) bool {
			return name != keys.VisibleDevicesEnv && name != keys.PortionEnv && name != keys.LegacyPortionEnv && name != keys.MemoryLimitEnv
		})
		out[c.Name] = env
	}
	return out
}

// held is the device of each group, by what its reservation pod says.
func (w *fixture) held(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	var pods corev1.PodList
	if err := w.client.List(t.Context(), &pods, client.InNamespace(keys.ReservationNamespace)); err != nil {
		t.Fatal(err)
	}
	for i := range pods.Items {
		p := &pods.Items[i]
		group, device := p.Labels[keys.GPUGroupLabel], p.Annotations[keys.ReservedGPUAnnotation]
		if group == "" || device == "" {
			t.Errorf("reservation pod %s: group %q, device %q", p.Name, group, device)
		}
		if other, twice := out[group]; twice {
			t.Errorf("group %s holds %s and %s", group, other, device)
		}
		out[group] = device
	}
	return out
}

// groups are those a pod was put into, sorted.
func groups(p *corev1.Pod) []string {
	var out []string
	for key, value := range p.Labels { // order: sorted below
		if key == keys.GPUGroupLabel || strings.HasPrefix(key, keys.GPUGroupLabelPrefix) {
			out = append(out, value)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// checkDevices says what is wrong with what a pod's containers see: the one called sharing sees the devices of the pod's groups,
// so many, with that portion, and all others see none. It returns the devices.
func (w *fixture) checkDevices(t *testing.T, p *corev1.Pod, sharing string, devices int, portion string) []string {
	t.Helper()
	held, env := w.held(t), w.seenDevices(t, p)
	var want []string
	for _, g := range groups(p) {
		if held[g] == "" {
			t.Errorf("pod %s is of group %s, for which no device is held", p.Name, g)
		}
		want = append(want, held[g])
	}
	slices.Sort(want)
	for name, vars := range env {
		if name != sharing {
			if v := vars[keys.VisibleDevicesEnv]; v != "" && v != "void" {
				t.Errorf("pod %s: container %s shares nothing and sees %s", p.Name, name, v)
			}
			continue
		}
		got := strings.Split(vars[keys.VisibleDevicesEnv], ",")
		slices.Sort(got)
		if !slices.Equal(got, want) || len(slices.Compact(got)) != devices {
			t.Errorf("pod %s: container %s sees %q, its groups hold %q, and it asked for %d", p.Name, name, got, want, devices)
		}
		if vars[keys.PortionEnv] != portion || vars[keys.LegacyPortionEnv] != portion {
			t.Errorf("pod %s: container %s is told that it has %q and %q of each device, want %s", p.Name, name, vars[keys.PortionEnv], vars[keys.LegacyPortionEnv], portion)
		}
	}
	if env[sharing] == nil {
		t.Errorf("pod %s has no container %s", p.Name, sharing)
	}
	return want
}

// awaitRunning waits until a pod runs, and returns it as the API server has it.
func (w *fixture) awaitRunning(t *testing.T, namespace, name string) *corev1.Pod {
	t.Helper()
	p := &corev1.Pod{}
	w.must(t, 60*time.Second, func() string {
		if err := w.client.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, p); err != nil {
			return err.Error()
		}
		if p.Status.Phase != corev1.PodRunning {
			return fmt.Sprintf("pod %s/%s is %s on node %q: %+v", namespace, name, p.Status.Phase, p.Spec.NodeName, p.Status.Conditions)
		}
		return ""
	})
	return p
}

// TestEnvironments: what a kubelet would make of the ConfigMaps, the environment of every container, names the devices that
// are held for the pod: the same within a group, different ones across.
func TestEnvironments(t *testing.T) {
	w := newSharingFixture(t, 1)
	muster := admitting(t, w)
	w.namespace(t, "share")
	run := func(p *corev1.Pod) *corev1.Pod {
		w.create(t, p)
		return w.awaitRunning(t, p.Namespace, p.Name)
	}
	half := map[string]string{keys.GPUFractionAnnotation: "0.5"}
	with := func(more ...string) map[string]string {
		out := maps.Clone(half)
		for i := 0; i < len(more); i += 2 {
			out[more[i]] = more[i+1]
		}
		return out
	}

	first, second := run(fractionPod("share", "first", with())), run(fractionPod("share", "second", with()))
	a, b := w.checkDevices(t, first, "main", 1, "0.50"), w.checkDevices(t, second, "main", 1, "0.50")
	if !slices.Equal(groups(first), groups(second)) || !slices.Equal(a, b) {
		t.Errorf("two halves: groups %q and %q, devices %q and %q", groups(first), groups(second), a, b)
	}

	two := w.checkDevices(t, run(fractionPod("share", "two", with(keys.GPUFractionDevicesAnnotation, "2"))), "main", 2, "0.50")
	if slices.Contains(two, a[0]) {
		t.Errorf("device %s is full, and is shared once more: %q", a[0], two)
	}

	memory := fractionPod("share", "memory", map[string]string{keys.GPUMemoryAnnotation: "8100"})
	w.checkDevices(t, run(memory), "main", 1, "0.10")

	early := fractionPod("share", "early", with(keys.GPUFractionContainerAnnotation, "warm"))
	early.Spec.InitContainers = []corev1.Container{{Name: "first", Image: "registry.example/x"}, {Name: "warm", Image: "registry.example/x"}}
	w.checkDevices(t, run(early), "warm", 1, "0.50")

	named := fractionPod("share", "named", with(keys.GPUFractionContainerAnnotation, "side"))
	named.Spec.Containers = append(named.Spec.Containers, corev1.Container{Name: "side", Image: "registry.example/x", Env: []corev1.EnvVar{{Name: keys.VisibleDevicesEnv, Value: "all"}}})
	w.checkDevices(t, run(named), "side", 1, "0.50")

	held := w.held(t)
	if devices := slices.Sorted(maps.Values(held)); len(slices.Compact(devices)) != len(held) {
		t.Errorf("%d groups share the devices %q", len(held), devices)
	}
	t.Logf("%d groups, each with a device of its own", len(held))

	// When the pods are gone, so are the devices and all that told of them.
	for _, p := range w.pods("share") {
		if err := w.client.Delete(t.Context(), &p, client.GracePeriodSeconds(0)); err != nil {
			t.Fatal(err)
		}
	}
	w.poll(t, "nothing is held for nobody", func() bool { return len(w.pods(keys.ReservationNamespace)) == 0 })
	w.poll(t, "the ConfigMaps go with their pods", func() bool {
		var all corev1.ConfigMapList
		err := w.client.List(t.Context(), &all, client.InNamespace("share"))
		return err == nil && !slices.ContainsFunc(all.Items, func(m corev1.ConfigMap) bool { return strings.Contains(m.Name, "-shared-gpu-") })
	})
	muster.stop(t)
}

// examples is the folder of KAI's example manifests, "" if it is not there.
func examples(t *testing.T) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for range 6 {
		folder := filepath.Join(dir, "shared", "compat", "kai", "examples")
		if _, err := os.Stat(folder); err == nil {
			return folder
		}
		dir = filepath.Dir(dir)
	}
	t.Log("KAI's examples are not beside this checkout: nothing to do")
	return ""
}

// applyFile creates what a manifest says, as it is, in a namespace where it names none. It returns the names of its pods.
func (w *fixture) applyFile(t *testing.T, file, namespace string) (pods []string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range strings.Split(string(text), "\n---") {
		o := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(part), &o.Object); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		if len(o.Object) == 0 {
			continue
		}
		if o.GetKind() != "Queue" && o.GetNamespace() == "" {
			o.SetNamespace(namespace)
		}
		w.create(t, o)
		if o.GetKind() == "Pod" {
			pods = append(pods, o.GetName())
		}
	}
	return pods
}

// TestSharingExamples: KAI's examples for shared GPUs, applied as they are.
func TestSharingExamples(t *testing.T) {
	folder := examples(t)
	if folder == "" {
		return
	}
	w := newSharingFixture(t, 1)
	muster := admitting(t, w)
	w.applyFile(t, filepath.Join(folder, "examples", "quickstart", "default-queues.yaml"), "")
	for i, c := range []struct{ file, seen, container, portion string }{
		{"gpu-sharing.yaml", "the container sees one device, of which it has half", "gpu-workload", "0.50"},
		{"gpu-memory.yaml", "the container sees one device, of which it has the hundredths that 2000 MiB are", "gpu-workload", "0.03"},
		{"gpu-sharing-init-container.yaml", "the init container sees the device, the main one sees none", "gpu-init", "0.50"},
		{"gpu-sharing-non-default-container.yaml", "the named container sees the device, both sidecars see none", "gpu-workload", "0.50"},
		{"mps/gpu-sharing-with-mps.yaml", "the container sees the device beside its own volume for MPS", "gpu-workload", "0.50"},
	} {
		namespace := fmt.Sprintf("example-%d", i)
		w.namespace(t, namespace)
		names := w.applyFile(t, filepath.Join(folder, "docs", "gpu-sharing", c.file), namespace)
		if len(names) != 1 {
			t.Fatalf("%s makes the pods %q", c.file, names)
		}
		p := w.awaitRunning(t, namespace, names[0])
		devices := w.checkDevices(t, p, c.container, 1, c.portion)
		if c.file == "mps/gpu-sharing-with-mps.yaml" && (p.Spec.Volumes[0].Name != "mps" || p.Spec.Volumes[0].HostPath == nil || p.Spec.Containers[0].VolumeMounts[0].Name != "mps") {
			t.Errorf("%s: the volume is lost: %+v", c.file, p.Spec.Volumes)
		}
		if !t.Failed() {
			t.Logf("%s: %s: seen, %s", c.file, c.seen, devices[0])
		}
	}
	muster.stop(t)
}
