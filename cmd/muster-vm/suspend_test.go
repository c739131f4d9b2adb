package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/muster-scheduler/muster/internal/vm/spec"
)

// sleepMost is how long a machine of 128 MiB may take to be saved, and how long to be there again.
const sleepMost = 15 * time.Second

const counterScript = `#!/bin/sh
i=0
until [ -f /run/end ]; do
	i=$((i+1))
	echo "count $i of $(cat /proc/sys/kernel/random/boot_id)"
	sleep 1
done
exit 5
`

var counted = regexp.MustCompile(`stdout F count ([0-9]+) of ([0-9a-f-]{36})\n`)

// counts are the numbers in a pod's log, and the boots that it names.
func (n *realNode) counts(name string) (numbers []int, boots map[string]bool) {
	n.t.Helper()
	text, _ := os.ReadFile(n.path("log", name+".log"))
	boots = map[string]bool{}
	for _, m := range counted.FindAllStringSubmatch(string(text), -1) {
		i, _ := strconv.Atoi(m[1])
		numbers, boots[m[2]] = append(numbers, i), true
	}
	return numbers, boots
}

// TestSuspend: a pod's machine of 128 MiB is stopped with grace and saved, the pod is removed, and the pod that replaces it goes on in the same boot with the number that comes next; twice. Each takes at most
// 15 s. Then the guest ends, with its code, and nothing is left on the claim. A pod of the same owner then boots.
func TestSuspend(t *testing.T) {
	n, img := newRealNode(t)
	if err := os.Mkdir(n.path("claim"), 0o700); err != nil {
		t.Fatal(err)
	}
	pod := func(name string) (string, string) {
		t.Helper()
		return n.podOf(&runtimeapi.PodSandboxConfig{
			Labels:      map[string]string{"batch.kubernetes.io/controller-uid": "job-1", "batch.kubernetes.io/job-completion-index": "0"},
			Annotations: map[string]string{spec.OwnOnStop: "suspend", spec.OwnSuspendTo: "/claim", spec.KeyUserDataScript: counterScript},
		}, name, img, 128<<20, &runtimeapi.Mount{ContainerPath: "/claim", HostPath: n.path("claim")})
	}
	ctx, cancel := context.WithTimeout(t.Context(), lot)
	defer cancel()
	remove := func(box string) {
		t.Helper()
		_, err := n.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: box})
		_, bad := n.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: box})
		if err := errors.Join(err, bad); err != nil {
			t.Fatal(err)
		}
	}
	box, vm := pod("first")
	n.until("it counts", func() bool { got, _ := n.counts("first"); return len(got) > 2 })
	last, boot := 0, ""
	for i, next := range []string{"second", "third"} {
		began := time.Now()
		if _, err := n.StopContainer(ctx, &runtimeapi.StopContainerRequest{ContainerId: vm, Timeout: 60}); err != nil {
			t.Fatal(err)
		}
		slept := time.Since(began)
		if s := n.status(vm); s.GetState() != runtimeapi.ContainerState_CONTAINER_EXITED || s.GetExitCode() != 143 || s.GetReason() != "Suspended" {
			t.Fatalf("after a stop with grace: %v", s)
		}
		numbers, boots := n.counts([]string{"first", "second"}[i])
		last = numbers[len(numbers)-1]
		for b := range boots { // order: one is wanted
			if len(boots) != 1 || boot != "" && b != boot {
				t.Fatalf("boots %v, was %q", boots, boot)
			}
			boot = b
		}
		remove(box)
		began = time.Now()
		box, vm = pod(next)
		n.until("it counts on", func() bool { got, _ := n.counts(next); return len(got) > 1 })
		t.Logf("suspended in %v; on the way again %v after its pod began", slept, time.Since(began))
		if woke := time.Since(began); slept > sleepMost || woke > sleepMost {
			t.Errorf("suspended in %v, resumed in %v: want at most %v each", slept, woke, sleepMost)
		}
		numbers, boots = n.counts(next)
		if !boots[boot] || len(boots) != 1 || numbers[0] < last || numbers[0] > last+2 {
			t.Errorf("it goes on with %v in the boots %v; it was at %d in %s", numbers, boots, last, boot)
		}
	}
	st, err := n.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: box})
	if err != nil {
		t.Fatal(err)
	}
	out, err := n.ExecSync(ctx, &runtimeapi.ExecSyncRequest{ContainerId: vm, Cmd: []string{"udhcpc", "-n", "-q", "-f", "-i", "eth0", "-s", "/bin/true"}, Timeout: 60})
	if ip := st.GetStatus().GetNetwork().GetIp(); err != nil || !strings.Contains(string(out.GetStdout())+string(out.GetStderr()), "lease of "+ip+" obtained") {
		t.Errorf("a guest that asks for an address has not its new pod's, %s: %v, %v", ip, out, err)
	}
	out, err = n.ExecSync(ctx, &runtimeapi.ExecSyncRequest{ContainerId: vm, Cmd: []string{"sh", "-c", "hostname; touch /run/end"}, Timeout: 60})
	if err != nil || string(out.GetStdout()) != "first\n" {
		t.Errorf("exec: %v, %v", out, err)
	}
	n.until("its end", func() bool { return n.status(vm).GetState() == runtimeapi.ContainerState_CONTAINER_EXITED })
	if s := n.status(vm); s.GetExitCode() != 5 {
		t.Errorf("at the end: %v", s)
	}
	remove(box)
	if left, err := os.ReadDir(n.path("claim", ".muster-vm", "job-1@0@vm")); err != nil || len(left) > 0 {
		t.Errorf("left on the claim: %v, %v", left, err)
	}
	box, _ = pod("fourth")
	n.until("it boots", func() bool { got, _ := n.counts("fourth"); return len(got) > 0 })
	if numbers, boots := n.counts("fourth"); numbers[0] != 1 || boots[boot] {
		t.Errorf("it begins with %v in %v", numbers, boots)
	}
	remove(box)
	for _, dir := range []string{"containers", "volumes"} {
		left, err := os.ReadDir(n.path("d", "state", dir))
		for _, e := range left {
			if !strings.HasPrefix(e.Name(), ".") {
				err = errors.Join(err, fmt.Errorf("left: %s", e.Name()))
			}
		}
		if err != nil {
			t.Error(err)
		}
	}
}
