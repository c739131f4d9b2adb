//go:build lab

package e2e

import (
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-scheduler/muster/api/kai/keys"
	"github.com/muster-scheduler/muster/internal/lab"
)

// cudaEnv names the environment variable that points the test at testdata/cuda.c, compiled; without it a C compiler is looked for.
const cudaEnv = "MUSTER_CUDA_BINARY"

// realGPU is what the driver's own tool says of the machine's GPU.
type realGPU struct {
	uuid, name, mig, driver string
	memory                  int // in MiB
}

// realGPUs asks the driver's own tool, so that what muster-node finds out has something to be compared with.
func realGPUs(t *testing.T) []realGPU {
	t.Helper()
	tool := "nvidia-smi"
	for _, path := range []string{"/usr/local/nvidia/bin/nvidia-smi", "/usr/lib/wsl/lib/nvidia-smi"} {
		if _, err := exec.LookPath(tool); err != nil {
			tool = path
		}
	}
	out, err := exec.Command(tool, "--query-gpu=uuid,memory.total,mig.mode.current,driver_version,name", "--format=csv,noheader,nounits").Output()
	if err != nil {
		t.Skipf("NOT CHECKED: there is no GPU here: %v", err)
	}
	var all []realGPU
	for _, line := range strings.Split(strings.TrimSpace(string(out)), "\n") {
		f := strings.SplitN(line, ", ", 5)
		if len(f) != 5 {
			t.Fatalf("nvidia-smi says %q", line)
		}
		memory, err := strconv.Atoi(f[1])
		if err != nil {
			t.Fatalf("nvidia-smi says %q", line)
		}
		all = append(all, realGPU{uuid: f[0], memory: memory, mig: f[2], driver: f[3], name: f[4]})
	}
	return all
}

// script is a program that runs another where the GPU driver's libraries are found, as a container's runtime has it.
func script(t *testing.T, name, before, program string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	libraries := os.Getenv("LD_LIBRARY_PATH") + ":/usr/local/nvidia/lib64:/usr/local/nvidia/lib"
	text := fmt.Sprintf("#!/bin/sh\n%s\nexport LD_LIBRARY_PATH='%s'\nexec '%s' \"$@\"\n", before, libraries, program)
	if err := os.WriteFile(path, []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
	return path
}

// cudaProgram is testdata/cuda.c compiled, or "" if nothing here can compile it.
func cudaProgram(t *testing.T) string {
	t.Helper()
	if path := os.Getenv(cudaEnv); path != "" {
		return path
	}
	path := filepath.Join(t.TempDir(), "cuda")
	if out, err := exec.Command("cc", "-O", "-o", path, "testdata/cuda.c", "-ldl").CombinedOutput(); err != nil {
		t.Logf("NOT CHECKED: what CUDA sees; cc: %v %s", err, out)
		return ""
	}
	return path
}

// TestRealGPU needs a machine with one NVIDIA GPU. The cluster is the lab's, and what touches the GPU is real: the reservation pod's program
// asks the driver, and containers of pods that share the GPU use it by what they are told. The table at the end is that of
// docs/contributing/gpu.md. Nothing of the GPU's settings is changed.
func TestRealGPU(t *testing.T) {
	gpus := realGPUs(t)
	if len(gpus) != 1 {
		t.Skipf("NOT CHECKED: this process sees %d GPUs, and a reservation pod sees one: run this where one is visible", len(gpus))
	}
	gpu := gpus[0]
	if os.Getenv(nodeBinaryEnv) == "" {
		t.Fatalf("%s has to name a muster-node that was built with cgo (run: make test-gpu)", nodeBinaryEnv)
	}
	var table []string
	row := func(what, found string, ok bool) {
		verdict := "as it should be"
		if !ok {
			verdict = "**wrong**"
			t.Errorf("%s: %s", what, found)
		}
		table = append(table, fmt.Sprintf("| %s | %s | %s |", what, found, verdict))
	}
	unchecked := func(what, why string) {
		table = append(table, fmt.Sprintf("| %s | %s | NOT CHECKED |", what, why))
	}
	defer func() {
		t.Logf("%s, driver %s, %d MiB, MIG %s\n%s", gpu.name, gpu.driver, gpu.memory, gpu.mig, strings.Join(table, "\n"))
	}()

	const cudaImage = "registry.example/cuda:lab"
	programs := map[string]string{nodeImage: script(t, "muster-node", "unset MUSTER_SIMULATED_DEVICE", os.Getenv(nodeBinaryEnv))}
	cuda := cudaProgram(t)
	if cuda != "" {
		programs[cudaImage] = script(t, "cuda", "", cuda)
	}
	w := newSharingLab(t, 1, lab.Options{
		Programs: programs, Fleet: lab.Fleet{Pools: []lab.Pool{{Name: "n", Count: 1, GPUs: 1, GPUMemoryMiB: gpu.memory}}},
	})
	w.create(t, &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Namespace: keys.ReservationNamespace, Name: keys.ReservationNamespace},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get", "patch"}}},
	})
	w.create(t, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: keys.ReservationNamespace, Name: keys.ReservationNamespace},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: keys.ReservationNamespace},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: keys.ReservationNamespace, Name: keys.ReservationNamespace}},
	})
	muster := admitting(t, w, "--resource-reservation-pod-image="+nodeImage)
	defer muster.stop(t)
	w.namespace(t, "share")

	share := func(name string, annotations map[string]string) (*corev1.Pod, map[string]string) {
		p := fractionPod("share", name, annotations)
		if cuda != "" {
			p.Spec.Containers[0].Image = cudaImage
		}
		begun := time.Now()
		w.create(t, p)
		p = w.awaitRunning(t, "share", name)
		t.Logf("%s runs %v after it was made", name, time.Since(begun).Round(time.Millisecond))
		return p, w.seenDevices(t, p)["main"]
	}
	half, told := share("half", nil)
	var holders corev1.PodList
	if err := w.client.List(t.Context(), &holders, client.InNamespace(keys.ReservationNamespace)); err != nil {
		t.Fatal(err)
	}
	reported := ""
	for _, p := range holders.Items {
		reported += p.Annotations[keys.ReservedGPUAnnotation]
	}
	row("the UUID that the reservation pod reports, by NVML", reported, reported == gpu.uuid)
	row("what the container of a half is told", keys.VisibleDevicesEnv+"="+told[keys.VisibleDevicesEnv]+" "+keys.PortionEnv+"="+told[keys.PortionEnv],
		told[keys.VisibleDevicesEnv] == gpu.uuid && told[keys.PortionEnv] == "0.50")

	quarter, told := share("quarter", map[string]string{keys.GPUMemoryAnnotation: strconv.Itoa(gpu.memory / 4)})
	part, err := strconv.ParseFloat(told[keys.PortionEnv], 64)
	row(fmt.Sprintf("what the container of %d MiB, a quarter, is told", gpu.memory/4), keys.VisibleDevicesEnv+"="+told[keys.VisibleDevicesEnv]+" "+keys.PortionEnv+"="+told[keys.PortionEnv],
		err == nil && told[keys.VisibleDevicesEnv] == gpu.uuid && math.Abs(part-0.25) <= 0.011)

	for _, c := range []struct {
		pod  *corev1.Pod
		part float64
	}{{half, 0.5}, {quarter, part}} {
		what := "what CUDA sees and gives to the pod " + c.pod.Name + ", beside the other"
		if cuda == "" {
			unchecked(what, "no C compiler")
			continue
		}
		var line string
		w.poll(t, "CUDA answers", func() bool {
			text, _ := os.ReadFile(filepath.Join(w.lab.Dir(), "pods", "share_"+c.pod.Name+"_"+string(c.pod.UID), "main.log"))
			line = strings.TrimSpace(string(text))
			return strings.Contains(line, "taken") || strings.Contains(line, "failed")
		})
		var devices, total, taken int
		var first string
		_, err := fmt.Sscanf(line, "devices %d first %s total %d taken %d", &devices, &first, &total, &taken)
		// The driver keeps a little of the memory for itself.
		row(what, line, err == nil && devices == 1 && first == gpu.uuid && math.Abs(float64(total)/float64(gpu.memory)-1) < 0.03 &&
			math.Abs(float64(taken)-0.9*c.part*float64(total)) < 2)
	}
	unchecked("slices (MIG)", "MIG is "+gpu.mig+", and this test changes no setting")

	for _, p := range w.pods("share") {
		if err := w.client.Delete(t.Context(), &p, client.GracePeriodSeconds(0)); err != nil {
			t.Fatal(err)
		}
	}
	w.poll(t, "no device is held for nobody", func() bool { return len(w.pods(keys.ReservationNamespace)) == 0 })
	row("the reservation, after both have gone", "has gone", true)
}
