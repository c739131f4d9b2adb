package podgrouper

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-scheduler/muster/api/scheduling/v2alpha2"
)

func remembered(owner string, links ...types.UID) *derivation {
	return &derivation{
		owner: types.UID(owner), chain: append([]types.UID{types.UID(owner)}, links...),
		group: types.NamespacedName{Namespace: "team", Name: "pg-" + owner},
	}
}

func (m *memory) put(t *testing.T, d *derivation) (stale bool) {
	t.Helper()
	_, stale, err := m.derive(context.Background(), d.owner, time.Time{}, func() (*derivation, error) { return d, nil })
	if err != nil {
		t.Fatal(err)
	}
	return stale
}

// TestMemoryBounded: what is used least recently is forgotten first, with all that leads to it.
func TestMemoryBounded(t *testing.T) {
	t.Parallel()
	m := newMemory(3)
	for i := range 100 {
		m.put(t, remembered(fmt.Sprint(i), "shared"))
		if i > 0 && m.get("0", time.Time{}) == nil {
			t.Fatalf("what is used was forgotten at %d", i)
		}
	}
	if len(m.entries) != 3 || m.recent.Len() != 3 || len(m.links) != 4 || len(m.links.of("shared")) != 3 || len(m.groups) != 3 {
		t.Errorf("sizes: %d entries, %d links, %d groups", len(m.entries), len(m.links), len(m.groups))
	}
	if got := m.forgetOwner("shared"); len(got) != 3 || len(m.entries)+len(m.links)+len(m.groups)+m.recent.Len() != 0 {
		t.Errorf("forgot %v, kept %d", got, len(m.entries))
	}
}

// TestMemoryIsLean: the gang that a pod is by itself is handed to who derived it, and only that there is one is remembered.
func TestMemoryIsLean(t *testing.T) {
	t.Parallel()
	m := newMemory(3)
	made := remembered("a")
	made.own, made.alone = &v2alpha2.PodGroup{}, "u"
	got, _, err := m.derive(t.Context(), "a", time.Time{}, func() (*derivation, error) { return made, nil })
	if err != nil || got.own == nil {
		t.Errorf("who derived it got %+v, %v", got, err)
	}
	kept := m.get("a", time.Time{})
	if kept == nil || kept.own != nil || kept.alone != "u" || kept.group != made.group {
		t.Errorf("remembered is %+v", kept)
	}
	if m.discard(kept); m.get("a", time.Time{}) != nil {
		t.Error("what was remembered cannot be discarded")
	}
}

// TestMemoryForgets: by link, by group, by time.
func TestMemoryForgets(t *testing.T) {
	t.Parallel()
	m := newMemory(10)
	m.put(t, remembered("a", "top"))
	m.put(t, remembered("b"))
	if got := m.forgetOwner("top"); len(got) != 1 || got[0] != "a" || m.get("a", time.Time{}) != nil || m.get("b", time.Time{}) == nil {
		t.Errorf("forgot %v", got)
	}
	if got := m.forgetGroup(key("pg-b")); len(got) != 1 || m.get("b", time.Time{}) != nil {
		t.Errorf("forgot %v", got)
	}
	now := time.Unix(100, 0)
	d := remembered("c")
	d.expires = now
	m.put(t, d)
	if m.get("c", now.Add(-1)) == nil || m.get("c", now) != nil {
		t.Error("trusted for another time than until it expires")
	}
	if _, _, err := m.derive(t.Context(), "c", now, func() (*derivation, error) { return remembered("c"), nil }); err != nil {
		t.Fatal(err)
	}
	m.discard(d)
	if m.get("c", now) == nil {
		t.Error("discarded what had replaced it")
	}
}

// TestMemoryChangeMeanwhile: what is derived while an owner changes is not kept; others are.
func TestMemoryChangeMeanwhile(t *testing.T) {
	t.Parallel()
	m := newMemory(10)
	for changed, keeps := range map[types.UID]bool{"top": false, "another": true} {
		_, stale, err := m.derive(t.Context(), "a", time.Time{}, func() (*derivation, error) {
			m.forgetOwner(changed)
			return remembered("a", "top"), nil
		})
		if err != nil || stale == keeps || (m.get("a", time.Time{}) != nil) != keeps {
			t.Errorf("%s changed: stale %v, %v", changed, stale, err)
		}
		m.forgetOwner("a")
		if len(m.changed) != 0 || len(m.making) != 0 {
			t.Errorf("left over: %v, %v", m.changed, m.making)
		}
	}
}

// TestMemoryOneAtATime: callers for one owner wait for the first; when it fails, the next tries.
func TestMemoryOneAtATime(t *testing.T) {
	t.Parallel()
	m := newMemory(10)
	begun, fail := make(chan struct{}), make(chan struct{})
	first := make(chan error)
	go func() {
		_, _, err := m.derive(context.Background(), "a", time.Time{}, func() (*derivation, error) {
			close(begun)
			<-fail
			return nil, errors.New("no luck")
		})
		first <- err
	}()
	<-begun
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := m.derive(ended, "a", time.Time{}, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("a caller whose context ended got %v", err)
	}
	second := make(chan *derivation)
	go func() {
		d, _, _ := m.derive(context.Background(), "a", time.Time{}, func() (*derivation, error) { return remembered("a"), nil })
		second <- d
	}()
	close(fail)
	if err := <-first; err == nil {
		t.Error("the first caller's error was lost")
	}
	if d := <-second; d == nil || d.owner != "a" {
		t.Errorf("the second caller got %v", d)
	}
}

// TestOwnChanges: the one change that we made is known as ours, once; others' are not.
func TestOwnChanges(t *testing.T) {
	t.Parallel()
	m := newMemory(2)
	a := key("a")
	m.changing(a, 4)
	if m.own(a, 4) || m.own(key("b"), 5) || m.own(a, 6) || !m.own(a, 5) || m.own(a, 5) {
		t.Error("of generations 4, 5 and 6 only 5 is ours, and once")
	}
	for i := range 100 {
		m.changing(key(fmt.Sprint(i)), 1)
	}
	if len(m.ours) > 2 {
		t.Errorf("%d notes are kept", len(m.ours))
	}
}
