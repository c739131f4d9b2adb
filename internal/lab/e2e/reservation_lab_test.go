//go:build lab

package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-scheduler/muster/api/kai/keys"
	"github.com/muster-scheduler/muster/internal/lab"
)

// nodeBinaryEnv names the environment variable that points the tests at a built muster-node.
const nodeBinaryEnv = "MUSTER_NODE_BINARY"

// nodeBinary is a muster-node: the one given, or one built from this tree; "" if the tree has none.
func nodeBinary(t *testing.T) string {
	t.Helper()
	if path := os.Getenv(nodeBinaryEnv); path != "" {
		return path
	}
	const source = "../../../cmd/muster-node"
	if _, err := os.Stat(source); err != nil {
		t.Log("there is no muster-node to run: nothing to do")
		return ""
	}
	path := filepath.Join(t.TempDir(), "muster-node")
	build := exec.Command("go", "build", "-ldflags", "-s -w", "-o", path, source)
	build.Env = append(os.Environ(), "CGO_ENABLED=0") // its GPUs are simulated
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build muster-node: %v\n%s", err, out)
	}
	return path
}

// nodeImage is the name under which the lab runs muster-node in pods.
const nodeImage = "registry.example/muster-node:lab"

// processes counts the running processes of a program.
func processes(t *testing.T, program string) (n int) {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if line, err := os.ReadFile(file); err == nil && strings.HasPrefix(string(line), program+"\x00") {
			n++
		}
	}
	return n
}

// TestReservationProcess: the program in reservation pods runs for real, under the account and with no more rights than it has in
// a cluster; what it reports is what the containers see.
func TestReservationProcess(t *testing.T) {
	program := nodeBinary(t)
	if program == "" {
		return
	}
	w := newSharingLab(t, 1, lab.Options{Programs: map[string]string{nodeImage: program}})
	// Exactly what the installed role has.
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
	w.namespace(t, "share")
	for _, name := range []string{"first", "second"} {
		w.create(t, fractionPod("share", name, nil))
		w.checkDevices(t, w.awaitRunning(t, "share", name), "main", 1, "0.50")
	}
	w.create(t, fractionPod("share", "two", map[string]string{keys.GPUMemoryAnnotation: "8100", keys.GPUFractionDevicesAnnotation: "2"}))
	w.awaitRunning(t, "share", "two")

	var pods corev1.PodList
	if err := w.client.List(t.Context(), &pods, client.InNamespace(keys.ReservationNamespace)); err != nil {
		t.Fatal(err)
	}
	if n := processes(t, program); n != len(pods.Items) || n == 0 {
		t.Errorf("%d processes run for %d reservation pods", n, len(pods.Items))
	}
	for _, p := range pods.Items {
		by := ""
		for _, m := range p.ManagedFields {
			if m.FieldsV1 != nil && strings.Contains(string(m.FieldsV1.Raw), keys.ReservedGPUAnnotation) {
				by = m.Manager
			}
		}
		if !strings.HasPrefix(by, "muster-") || by == "muster-lab" {
			t.Errorf("the device of %s was told by %q", p.Name, by)
		}
		t.Logf("%s: %s, told by %s", p.Name, p.Annotations[keys.ReservedGPUAnnotation], by)
	}

	for _, p := range w.pods("share") {
		if err := w.client.Delete(t.Context(), &p, client.GracePeriodSeconds(0)); err != nil {
			t.Fatal(err)
		}
	}
	w.poll(t, "no device is held for nobody", func() bool { return len(w.pods(keys.ReservationNamespace)) == 0 })
	w.poll(t, "no process outlives its pod", func() bool { return processes(t, program) == 0 })
	logs, err := filepath.Glob(filepath.Join(w.lab.Dir(), "pods", "*", "*.log"))
	if err != nil || !slices.ContainsFunc(logs, func(file string) bool {
		text, err := os.ReadFile(file)
		return err == nil && strings.Contains(string(text), "reserved")
	}) {
		t.Errorf("the processes left no logs: %q, %v", logs, err)
	}
	muster.stop(t)
}
