package runtime

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/muster-scheduler/muster/internal/vm"
	"github.com/muster-scheduler/muster/internal/vm/network"
)

// strew leaves something of nobody's of each kind.
func (w *fakeNode) strew() {
	w.mu.Lock()
	defer w.mu.Unlock()
	const uuid = "5d3b1c1e-6c0f-4d6b-9c39-0d1d3c4c5b6a"
	w.machines[uuid] = &fakeMachine{Machine: Machine{UUID: uuid, ContainerID: "stray", State: Runs}}
	w.networks["stray"] = network.Pod{ID: "stray"}
	w.volumes["stray"], w.folders["stray"] = true, ""
}

// TestCollect: a dry run names everything of nobody's and takes nothing; the other takes just that, and a machine that runs runs on.
func TestCollect(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newFakeNode()
		h := open(t, w, 0, false)
		defer func() { h.end() }()
		s := newStory()
		for _, step := range s.steps[:6] { // a pod with an ended container and a machine that runs
			if err := step.do(h); err != nil {
				t.Fatalf("%s: %v", step.name, err)
			}
		}
		if got, err := h.Collect(t.Context(), false); err != nil || len(got) > 0 {
			t.Fatalf("there is garbage already: %v, %v", got, err)
		}
		w.told()
		w.strew()
		want := []string{"kill 5d3b1c1e-6c0f-4d6b-9c39-0d1d3c4c5b6a", "release stray", "teardown stray", "clear stray"}
		check := func(dry bool) {
			t.Helper()
			got, err := h.Collect(t.Context(), dry)
			var names []string
			for _, g := range got {
				names = append(names, fmt.Sprint(g.Verb, " ", g.ID))
				if g.Why == "" || g.Err != nil {
					t.Errorf("%+v", g)
				}
			}
			if err != nil || !slices.Equal(names, want) {
				t.Errorf("dry %v: %v, %v", dry, names, err)
			}
		}
		check(true)
		check(true)
		if told := w.told(); len(told) > 0 {
			t.Errorf("a dry run did %v", told)
		}
		check(false)
		if left := w.unowned(); left != "" || !w.running()[s.app] {
			t.Errorf("left %s, running %v", left, w.running())
		}
		want = nil
		check(true)
		for _, step := range s.steps[6:] {
			if err := step.do(h); err != nil {
				t.Fatalf("%s: %v", step.name, err)
			}
		}
		check(true)
	})
}

// TestCollectWhileAway: of a part that does not answer nothing is decided, and what fails is told with what it was.
func TestCollectWhileAway(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newFakeNode()
		h := open(t, w, 0, false)
		defer func() { h.end() }()
		w.strew()
		w.mu.Lock()
		w.away["network"] = true
		w.mu.Unlock()
		got, err := h.Collect(t.Context(), true)
		if vm.KindOf(err) != vm.Unavailable || slices.ContainsFunc(got, func(g Garbage) bool { return g.Verb == Release }) || len(got) != 3 {
			t.Errorf("%+v, %v", got, err)
		}
	})
}

// TestCollectLeavesWork: what a call is making is no garbage, though its record says that it is not whole.
func TestCollectLeavesWork(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newFakeNode()
		h := open(t, w, 0, false)
		defer func() { h.end() }()
		still := make(chan struct{})
		w.mu.Lock()
		w.stuck["network add"] = still
		w.mu.Unlock()
		done := make(chan error, 1)
		go func() {
			_, err := call(h, h.RunPodSandbox, &runtimeapi.RunPodSandboxRequest{Config: podConfig("web", nil)})
			done <- err
		}()
		synctest.Wait()
		boxes, _ := h.Recorded()
		if len(boxes) != 1 || boxes[0].Phase != Creating {
			t.Fatalf("%v", boxes)
		}
		for _, dry := range []bool{true, false} {
			if got, err := h.Collect(t.Context(), dry); err != nil || len(got) > 0 {
				t.Errorf("%+v, %v", got, err)
			}
		}
		close(still)
		if err := <-done; err != nil {
			t.Error(err)
		}
		if boxes, containers := h.Recorded(); len(boxes) != 1 || boxes[0].Phase != Ready || len(containers) > 0 || strings.Contains(fmt.Sprint(boxes), "hunter2") {
			t.Errorf("%v, %v", boxes, containers)
		}
	})
}
