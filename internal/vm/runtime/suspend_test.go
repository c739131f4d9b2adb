package runtime

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/muster-scheduler/muster/internal/vm/spec"
)

// sleeper is a Job's pod whose machine is suspended, and the pods that replace it.
type sleeper struct{ pod, vm string }

func sleeperPod(uid string) *runtimeapi.PodSandboxConfig {
	c := podConfig("trainer", map[string]string{spec.OwnOnStop: "suspend", spec.OwnSuspendTo: "/claim"})
	c.Metadata.Uid = uid
	c.Labels["batch.kubernetes.io/controller-uid"], c.Labels["batch.kubernetes.io/job-completion-index"] = "job", "0"
	return c
}

func sleeperVM(attempt uint32) *runtimeapi.ContainerConfig {
	c := containerConfig("vm", "tiny", attempt)
	c.Mounts = []*runtimeapi.Mount{{ContainerPath: "/claim", HostPath: "/pods/claim"}}
	return c
}

func (p *sleeper) run(h *fixture, uid string) error {
	r, err := call(h, h.RunPodSandbox, &runtimeapi.RunPodSandboxRequest{Config: sleeperPod(uid)})
	p.pod = r.GetPodSandboxId()
	return err
}

func (p *sleeper) create(h *fixture, attempt uint32) error {
	r, err := call(h, h.CreateContainer, &runtimeapi.CreateContainerRequest{PodSandboxId: p.pod, Config: sleeperVM(attempt)})
	if r.GetContainerId() != "" {
		p.vm = r.GetContainerId()
	}
	return err
}

func (p *sleeper) start(h *fixture) error {
	_, err := call(h, h.StartContainer, &runtimeapi.StartContainerRequest{ContainerId: p.vm})
	return err
}

func (p *sleeper) stop(h *fixture, grace int64) error {
	_, err := call(h, h.StopContainer, &runtimeapi.StopContainerRequest{ContainerId: p.vm, Timeout: grace})
	return err
}

func (p *sleeper) remove(h *fixture) error {
	_, err := call(h, h.RemovePodSandbox, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: p.pod})
	return err
}

// ended says what is wrong with how its container ended.
func (p *sleeper) ended(h *fixture, code int32, reason string) error {
	r, err := call(h, h.ContainerStatus, &runtimeapi.ContainerStatusRequest{ContainerId: p.vm})
	if s := r.GetStatus(); err == nil && (s.GetState() != runtimeapi.ContainerState_CONTAINER_EXITED || s.GetExitCode() != code || s.GetReason() != reason) {
		err = fmt.Errorf("ended as %v, want %d %s", s, code, reason)
	}
	return err
}

// boot is of the machine that runs for a container; 0 if none does.
func (p *sleeper) boot(h *fixture) (boot int) {
	h.w.guest(p.vm, func(m *fakeMachine) { boot = m.memory.boot })
	return boot
}

func all(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// TestFunctions: a virtual function of the pod's network is the machine's, and such a machine is not one that can be saved.
func TestFunctions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFakeNode()
		w.function = "0000:3b:02.1"
		h := open(t, w, 0, false)
		defer h.end()
		r, err := call(h, h.RunPodSandbox, &runtimeapi.RunPodSandboxRequest{Config: podConfig("fast", nil)})
		all(t, err)
		c, err := call(h, h.CreateContainer, &runtimeapi.CreateContainerRequest{PodSandboxId: r.GetPodSandboxId(), Config: containerConfig("vm", "tiny", 0)})
		all(t, err)
		if got := h.container(c.GetContainerId()).rec.Load().Domain.HostDevices; !slices.Equal(got, []string{w.function}) {
			t.Errorf("the machine has the devices %v", got)
		}
		var p sleeper
		all(t, p.run(h, "u1"))
		if err := p.create(h, 0); status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), w.function) {
			t.Errorf("a machine that is to be saved: %v", err)
		}
	})
}

// TestSuspendLife: a stop with grace suspends, and the pod that replaces the pod resumes; so does the next. What they are told and what lies on the claim is of one machine at a time.
func TestSuspendLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := open(t, newFakeNode(), 0, false)
		defer h.end()
		var first, second sleeper
		all(t, first.run(h, "u1"), first.create(h, 0), first.start(h))
		mac := h.w.networks[first.pod].MAC
		boot := first.boot(h)
		all(t, second.run(h, "u2"))
		if err := second.create(h, 0); status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "with UID u1 still has the machine of owner job") {
			t.Errorf("before the first is stopped: %v", err)
		}
		all(t, first.stop(h, 30), first.ended(h, 143, "Suspended"))
		if len(h.w.memories) != 0 || len(h.w.states) != 1 {
			t.Errorf("on the node %v, on the claim %v", h.w.memories, h.w.states)
		}
		all(t, second.create(h, 0)) // while the first is still there
		if len(h.w.states) != 1 {
			t.Error("a machine that was not started has taken the state away")
		}
		all(t, second.start(h), first.remove(h))
		if got := h.w.networks[second.pod].MAC; mac == "" || got != mac {
			t.Errorf("the second wishes for MAC %q, the first for %q", got, mac)
		}
		if got := second.boot(h); got != boot || len(h.w.states) != 0 || len(h.w.memories) != 0 {
			t.Errorf("boot %d, was %d; on the node %v, on the claim %v", got, boot, h.w.memories, h.w.states)
		}
		all(t, second.stop(h, 30), second.ended(h, 143, "Suspended"), second.remove(h))
		var third sleeper
		all(t, third.run(h, "u3"), third.create(h, 0), third.start(h))
		if got := third.boot(h); got != boot {
			t.Errorf("boot %d, was %d", got, boot)
		}
		h.w.guest(third.vm, func(m *fakeMachine) {
			h.w.folders[third.vm] = "7\n"
			h.w.turn(m, Off, PoweredOff)
		})
		synctest.Wait()
		all(t, third.ended(h, 7, "Error"), third.remove(h))
		if left := h.w.left(); left != "true" || len(h.w.states) > 0 || len(h.w.corrupt) > 0 {
			t.Error(left, h.w.states, h.w.corrupt)
		}
	})
}

// TestSuspendNot: who boots instead of resuming, and who ends instead of being suspended.
func TestSuspendNot(t *testing.T) {
	for name, one := range map[string]struct { // order: each on a node of its own
		do     func(h *fixture, p *sleeper) error
		grace  int64
		code   int32
		reason string
		// then is what the next pod does between.
		then func(h *fixture, uid *string)
		// resumes says that the next pod does.
		resumes bool
		states  int
	}{
		"no grace":            {grace: 0, code: 137, reason: "Killed"},
		"it cannot be saved":  {grace: 7, code: 137, reason: "Killed", do: func(h *fixture, _ *sleeper) error { h.w.deaf = true; return nil }},
		"the claim is full":   {grace: 7, code: 0, reason: "Completed", do: func(h *fixture, _ *sleeper) error { h.w.full = true; return nil }},
		"another image":       {grace: 7, code: 143, reason: "Suspended", then: func(h *fixture, _ *string) { i := h.w.images["tiny"]; i.ID = "sha256:other"; h.w.images["tiny"] = i }},
		"the same pod":        {grace: 7, code: 143, reason: "Suspended", then: func(_ *fixture, uid *string) { *uid = "u1" }},
		"it had said its end": {grace: 7, code: 5, reason: "Error", do: func(h *fixture, p *sleeper) error { h.w.folders[p.vm] = "5\n"; return nil }},
		"it resumes":          {grace: 7, code: 143, reason: "Suspended", resumes: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := open(t, newFakeNode(), 0, false)
				defer h.end()
				var p, next sleeper
				all(t, p.run(h, "u1"), p.create(h, 0), p.start(h))
				boot := p.boot(h)
				if one.do != nil {
					all(t, one.do(h, &p))
				}
				all(t, p.stop(h, one.grace), p.ended(h, one.code, one.reason), p.remove(h))
				h.w.deaf, h.w.full = false, false
				uid := "u2"
				if one.then != nil {
					one.then(h, &uid)
				}
				all(t, next.run(h, uid), next.create(h, 1), next.start(h))
				if got := next.boot(h); (got == boot) != one.resumes || got == 0 {
					t.Errorf("boot %d, was %d", got, boot)
				}
				if len(h.w.states) > 0 || len(h.w.corrupt) > 0 {
					t.Error(h.w.states, h.w.corrupt)
				}
			})
		})
	}
}

// TestSuspendTwo: of two pods that would resume the same machine one does, and the other is told.
func TestSuspendTwo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFakeNode()
		h := open(t, w, 0, false)
		defer h.end()
		var p, a, b sleeper
		all(t, p.run(h, "u1"), p.create(h, 0), p.start(h), p.stop(h, 9), p.remove(h))
		all(t, a.run(h, "u2"), a.create(h, 0), b.run(h, "u3"))
		if err := b.create(h, 0); err == nil || !strings.Contains(err.Error(), "pod team/trainer has it") {
			t.Errorf("a second one: %v", err)
		}
		w.mu.Lock()
		w.states["job@0@vm on another node"], w.states["job@0@vm"] = w.states["job@0@vm"], nil
		delete(w.states, "job@0@vm")
		w.mu.Unlock()
		if err := a.start(h); err == nil || !strings.Contains(err.Error(), "another machine has begun from it") || a.boot(h) != 0 {
			t.Errorf("it was resumed elsewhere: %v", err)
		}
		w.mu.Lock()
		w.states["job@0@vm"] = w.states["job@0@vm on another node"]
		delete(w.states, "job@0@vm on another node")
		w.mu.Unlock()
		all(t, a.remove(h), b.create(h, 0), b.start(h))
		if b.boot(h) == 0 || len(w.corrupt) > 0 {
			t.Error(b.boot(h), w.corrupt)
		}
		a = b
		all(t, a.stop(h, 9), a.ended(h, 143, "Suspended"), a.remove(h))
	})
}

// TestSuspendKills: a process that dies at any write or side effect of a suspension and a resumption. The machine goes on from where it was or is said to be lost, never from a memory that knew
// another disk, and nothing leaks.
func TestSuspendKills(t *testing.T) {
	t.Parallel()
	play := func(t *testing.T, n int, after bool) (effects int) {
		w := newFakeNode()
		h := open(t, w, n, after)
		var p, q sleeper
		boot, resumed := 0, false
		steps := []struct {
			name string
			do   func() error
		}{
			{"run", func() error { return p.run(h, "u1") }},
			{"create", func() error { return p.create(h, 0) }},
			{"start", func() error { return p.start(h) }},
			{"stop", func() error {
				if b := p.boot(h); b != 0 {
					boot = b
				}
				return p.stop(h, 30)
			}},
			{"ended", func() error { return p.ended(h, 143, "Suspended") }},
			{"remove", func() error { return p.remove(h) }},
			{"run again", func() error { return q.run(h, "u2") }},
			{"create again", func() error { return q.create(h, 0) }},
			{"start again", func() error {
				err := q.start(h)
				if err != nil && q.ended(h, 137, "Lost") == nil {
					return nil
				}
				resumed = resumed || err == nil
				return err
			}},
			{"stop again", func() error { return q.stop(h, 0) }},
			{"remove again", func() error { return q.remove(h) }},
		}
		killed := false
		for _, st := range steps {
			err := st.do()
			synctest.Wait()
			if st.name == "start again" && err == nil && q.boot(h) != 0 && q.boot(h) != boot {
				t.Errorf("death at effect %d (after: %v): it was boot %d, and is %d", n, after, boot, q.boot(h))
			}
			if killed || !h.hand.dead {
				if err != nil {
					t.Errorf("death at effect %d (after: %v): %s: %v", n, after, st.name, err)
				}
				continue
			}
			killed = true
			h.kill()
			w.told()
			h = open(t, w, 0, false)
			time.Sleep(time.Minute + time.Second)
			synctest.Wait()
			if un := w.unowned(); un != "" {
				t.Errorf("death at effect %d (after: %v), in %s: leaked: %s", n, after, st.name, un)
			}
			if err := st.do(); err != nil {
				t.Errorf("death at effect %d (after: %v): %s, repeated: %v", n, after, st.name, err)
			}
			synctest.Wait()
		}
		if left := w.left(); left != "true" || len(w.corrupt) > 0 || len(w.memories) > 0 || len(w.states) > 0 {
			t.Errorf("death at effect %d (after: %v): at the end %s, %v, %v, %v", n, after, left, w.corrupt, w.memories, w.states)
		}
		h.end()
		return h.hand.count
	}
	effects := 0
	synctest.Test(t, func(t *testing.T) { effects = play(t, 0, false) })
	if effects < 40 {
		t.Fatalf("only %d effects", effects)
	}
	t.Logf("%d writes and side effects, each with a death before and after it", effects)
	for n := 1; n <= effects; n++ {
		for _, after := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) { play(t, n, after) })
		}
	}
}
