package runtime

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/muster-scheduler/muster/internal/vm/spec"
)

// story is a pod's life as a kubelet leads it: each step may be repeated until it succeeds.
type story struct {
	pod, init, app string
	steps          []step
}

type step struct {
	name string
	do   func(*fixture) error
	ends bool // whether it ends machines
}

func newStory() *story {
	s := &story{}
	create := func(id *string, name string) func(*fixture) error {
		return func(h *fixture) error {
			r, err := call(h, h.CreateContainer, &runtimeapi.CreateContainerRequest{PodSandboxId: s.pod, Config: containerConfig(name, "tiny", 0)})
			*id = r.GetContainerId()
			return err
		}
	}
	start := func(id *string) func(*fixture) error {
		return func(h *fixture) error {
			_, err := call(h, h.StartContainer, &runtimeapi.StartContainerRequest{ContainerId: *id})
			return err
		}
	}
	s.steps = []step{
		{name: "run", do: func(h *fixture) error {
			r, err := call(h, h.RunPodSandbox, &runtimeapi.RunPodSandboxRequest{Config: podConfig("web", nil)})
			s.pod = r.GetPodSandboxId()
			return err
		}},
		{name: "create init", do: create(&s.init, "init")},
		{name: "start init", do: start(&s.init)},
		{name: "init ends", ends: true, do: func(h *fixture) error {
			h.w.guest(s.init, func(m *fakeMachine) {
				h.w.folders[s.init] = "0\n"
				h.w.turn(m, Off, PoweredOff)
			})
			synctest.Wait()
			r, err := call(h, h.ContainerStatus, &runtimeapi.ContainerStatusRequest{ContainerId: s.init})
			if st := r.GetStatus(); err == nil && (st.GetState() != runtimeapi.ContainerState_CONTAINER_EXITED || st.GetExitCode() != 0 || st.GetFinishedAt() == 0) {
				return fmt.Errorf("the end of init is not known: %v", st)
			}
			return err
		}},
		{name: "create app", do: create(&s.app, "app")},
		{name: "start app", do: start(&s.app)},
		{name: "limit app", do: func(h *fixture) error {
			_, err := call(h, h.UpdateContainerResources, &runtimeapi.UpdateContainerResourcesRequest{ContainerId: s.app, Linux: &runtimeapi.LinuxContainerResources{CpuShares: 512}})
			return err
		}},
		{name: "stop app", ends: true, do: func(h *fixture) error {
			h.w.mu.Lock()
			h.w.deaf = true
			h.w.mu.Unlock()
			_, err := call(h, h.StopContainer, &runtimeapi.StopContainerRequest{ContainerId: s.app, Timeout: 7})
			return err
		}},
		{name: "remove init", do: func(h *fixture) error {
			_, err := call(h, h.RemoveContainer, &runtimeapi.RemoveContainerRequest{ContainerId: s.init})
			return err
		}},
		{name: "start again", do: create(&s.app, "more")},
		{name: "start more", do: start(&s.app)},
		{name: "stop pod", ends: true, do: func(h *fixture) error {
			_, err := call(h, h.StopPodSandbox, &runtimeapi.StopPodSandboxRequest{PodSandboxId: s.pod})
			return err
		}},
		{name: "remove pod", ends: true, do: func(h *fixture) error {
			_, err := call(h, h.RemovePodSandbox, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: s.pod})
			return err
		}},
	}
	return s
}

// running gives the machines that run now.
func (w *fakeNode) running() map[string]bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := map[string]bool{}
	for _, m := range w.machines {
		if m.State == Runs {
			out[m.ContainerID] = true
		}
	}
	return out
}

// unowned names what no record owns.
func (w *fakeNode) unowned() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []string
	add := func(what, id string, owned bool) {
		if !owned {
			out = append(out, what+" of "+id)
		}
	}
	for id := range w.networks {
		add("network", id, w.sandboxes[id] != nil)
	}
	for id := range w.volumes {
		add("volumes", id, w.containers[id] != nil)
	}
	for id := range w.folders {
		add("folder", id, w.containers[id] != nil)
	}
	for id := range w.groups {
		add("cgroup", id, w.containers[id] != nil)
	}
	for id := range w.logs {
		add("console", id, w.containers[id] != nil)
	}
	for _, m := range w.machines {
		add("machine", m.ContainerID, w.containers[m.ContainerID] != nil)
	}
	return strings.Join(out, ", ")
}

// TestKills plays the story with a process that dies before, or right after, one of its writes or side effects, for every one of them. A new
// process on the same node then has to leave running what ran, clean up what nobody owns, and let the call be repeated and the story end well.
func TestKills(t *testing.T) {
	t.Parallel()
	effects := 0
	synctest.Test(t, func(t *testing.T) {
		h := open(t, newFakeNode(), 0, false)
		for _, st := range newStory().steps {
			if err := st.do(h); err != nil {
				t.Fatalf("%s: %v", st.name, err)
			}
			synctest.Wait()
		}
		effects = h.hand.count
		if left := h.w.left(); left != "true" {
			t.Error(left)
		}
		h.end()
	})
	if effects < 50 {
		t.Fatalf("only %d effects", effects)
	}
	t.Logf("%d writes and side effects, each with a death before and after it", effects)
	for n := 1; n <= effects; n++ {
		for _, after := range []bool{false, true} {
			// The process that comes after may die as well, at one of the first things that it does: 0 is never.
			for again := range 3 {
				synctest.Test(t, func(t *testing.T) { killAt(t, n, after, again) })
			}
		}
	}
}

func killAt(t *testing.T, n int, after bool, again int) {
	w := newFakeNode()
	h := open(t, w, n, after)
	s := newStory()
	killed := false
	for _, st := range s.steps {
		err := st.do(h)
		synctest.Wait()
		if killed || !h.hand.dead {
			if err != nil {
				t.Errorf("death at effect %d (after: %v): %s: %v", n, after, st.name, err)
			}
			continue
		}
		killed = true
		ran := w.running()
		h.kill()
		w.told()
		h = open(t, w, again, !after)
		if h.hand.dead {
			h.kill()
			h = open(t, w, 0, false)
		}
		h.hand.die = 0
		at := fmt.Sprintf("death at effect %d (after: %v), in %s, and at %d of the next process", n, after, st.name, again)
		if !st.ends {
			for id := range ran {
				if !w.running()[id] {
					t.Errorf("%s: the machine of %s ran, and does not run on: %q", at, id, w.told())
				}
			}
		}
		for id := range w.running() {
			w.mu.Lock()
			if !w.logs[id] {
				t.Errorf("%s: the machine of %s runs, and nobody writes its log", at, id)
			}
			w.mu.Unlock()
		}
		time.Sleep(time.Minute + time.Second) // what could not be done at once is done by the next sweep
		synctest.Wait()
		if un := w.unowned(); un != "" {
			t.Errorf("%s: leaked: %s", at, un)
		}
		if err := st.do(h); err != nil {
			t.Errorf("%s: repeated: %v", at, err)
		}
		synctest.Wait()
	}
	if !killed {
		t.Errorf("nothing died at effect %d", n)
	}
	if left := w.left(); left != "true" {
		t.Errorf("death at effect %d (after: %v): at the end %s", n, after, left)
	}
	h.end()
}

// TestNoSecret: what annotations tell a guest is in no record (see fakeRecords), also where the process ends before the container is created; who
// creates it says it again.
func TestNoSecret(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFakeNode()
		h := open(t, w, 0, false)
		pod := podConfig("web", map[string]string{spec.KeyUserData: "password: hunter2", spec.KeyVCPUCount: "2", manifest: "hunter2"})
		box, err := call(h, h.RunPodSandbox, &runtimeapi.RunPodSandboxRequest{Config: pod})
		if err != nil {
			t.Fatal(err)
		}
		h.kill()
		h = open(t, w, 0, false)
		got, err := call(h, h.PodSandboxStatus, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: box.GetPodSandboxId()})
		if a := got.GetStatus().GetAnnotations(); err != nil || a[spec.KeyUserData] != Withheld || a[spec.KeyVCPUCount] != "2" {
			t.Error(a, err)
		}
		create := &runtimeapi.CreateContainerRequest{PodSandboxId: box.GetPodSandboxId(), Config: containerConfig("app", "tiny", 0)}
		if _, err := call(h, h.CreateContainer, create); err == nil || !strings.Contains(err.Error(), "sandbox_config.annotations: must have "+spec.KeyUserData) {
			t.Errorf("without what is not kept: %v", err)
		}
		create.SandboxConfig = pod
		if _, err := call(h, h.CreateContainer, create); err != nil {
			t.Error(err)
		}
		if !strings.Contains(w.firstBoot, "password: hunter2") {
			t.Errorf("the guest was told %s", w.firstBoot)
		}
		h.kill()
	})
}
