package network

import (
	"errors"
	"fmt"
	"testing"

	"github.com/muster-scheduler/muster/internal/vm"
)

// TestCollect: over the socket, a dry run names what no pod has and leaves it; the other takes just that.
func TestCollect(t *testing.T) {
	t.Parallel()
	ctx, s := t.Context(), serveFake(t)
	for _, id := range []string{"kept", "failing"} {
		if _, err := s.Add(ctx, pod(id)); err != nil {
			t.Fatal(err)
		}
	}
	check := func(dry bool, want string) {
		t.Helper()
		got, err := s.Collect(ctx, dry)
		text := ""
		for _, g := range got {
			text += fmt.Sprint(g.What, " ", g.ID, " (", g.Error, ") ")
			if g.Why == "" {
				t.Errorf("%+v", g)
			}
		}
		if err != nil || text != want {
			t.Errorf("dry %v: %q, %v; want %q", dry, text, err, want)
		}
	}
	check(true, "")
	s.w.mu.Lock()
	s.w.netns["/netns/nobody"] = &space{}
	s.w.delFails = errors.New("plugin is away")
	s.w.mu.Unlock()
	if err := s.Release(ctx, "failing"); err == nil {
		t.Fatal("the removal was to fail")
	}
	before := s.w.left()
	check(true, "network failing () network namespace /netns/nobody () ")
	if after := s.w.left(); after != before {
		t.Errorf("a dry run left %s of %s", after, before)
	}
	s.w.mu.Lock()
	s.w.delFails = nil
	s.w.mu.Unlock()
	check(false, "network failing () network namespace /netns/nobody () ")
	if got, want := s.w.left(), "[/netns/kept] [kept] 1"; got != want {
		t.Errorf("left %s, want %s", got, want)
	}
	check(true, "")
	s.as(getUID)
	_, err := s.Collect(ctx, false)
	kind(t, err, vm.Invalid)
}

// TestCollectLeavesWork: a pod that comes after the namespaces were looked at keeps its own, and one that a call is at work on is left to it.
func TestCollectLeavesWork(t *testing.T) {
	t.Parallel()
	w := newFakeHost()
	b := begin(t, w, t.TempDir())
	defer b.end()
	if _, err := b.Add(t.Context(), pod("new")); err != nil {
		t.Fatal(err)
	}
	if was, err := b.orphan(t.Context(), "/netns/new"); was || err != nil || !w.alive("/netns/new") {
		t.Errorf("%v, %v", was, err)
	}
	r, _, err := b.records.get("new")
	if err != nil {
		t.Fatal(err)
	}
	r.Phase = phaseRemoving
	if err := b.records.put(r); err != nil {
		t.Fatal(err)
	}
	unlock, err := b.lock(t.Context(), "new")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := b.Collect(t.Context(), false); err != nil || len(got) > 0 {
		t.Errorf("%+v, %v", got, err)
	}
	unlock()
	if got, err := b.Collect(t.Context(), true); err != nil || len(got) != 1 {
		t.Errorf("%+v, %v", got, err)
	}
}
