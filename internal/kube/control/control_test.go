package control_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-scheduler/muster/internal/kube/aside"
	"github.com/muster-scheduler/muster/internal/kube/control"
	"github.com/muster-scheduler/muster/internal/kubetest"
)

// echo is a controller whose book is the values of ConfigMaps, and whose writes are notes of them with their times.
type echo struct {
	start time.Time
	book  map[string]string
	again map[string]time.Duration // of a name, once

	mu    sync.Mutex
	notes []string
	fails int
	loop  *control.Loop[string, string]
}

func newEcho(objects cache.Cache) *echo {
	e := &echo{start: time.Now(), book: map[string]string{}, again: map[string]time.Duration{}}
	var guard *aside.Guard
	e.loop = control.New(control.Deps{Cache: objects, Guard: guard}, control.Role[string, string]{
		Name: "echo", Workers: 2, MinRetry: time.Second, MaxRetry: 4 * time.Second,
		Decide: func(name string, now time.Time) (string, []control.Due[string], time.Time) {
			if e.book[name] == "panic" {
				panic("broken")
			}
			var again time.Time
			if d := e.again[name]; d > 0 {
				again = now.Add(d)
				delete(e.again, name)
			}
			var more []control.Due[string]
			if e.book[name] == "more" {
				more = append(more, control.Due[string]{Key: "other", After: time.Second})
			}
			return name + "=" + e.book[name], more, again
		},
		Write: e.write,
	})
	control.Watch(e.loop, &corev1.ConfigMap{}, func(m *corev1.ConfigMap, gone bool) []control.Due[string] {
		if e.book[m.Name] = m.Data["v"]; gone {
			delete(e.book, m.Name)
		}
		return []control.Due[string]{{Key: m.Name, After: 100 * time.Millisecond}}
	})
	return e
}

func (e *echo) write(_ context.Context, text string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.notes = append(e.notes, fmt.Sprintf("%v %s", time.Since(e.start), text))
	if e.fails > 0 {
		e.fails--
		return errors.New("no")
	}
	return nil
}

func value(name, v string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Data: map[string]string{"v": v}}
}

// TestLoop: what is seen is decided about and written, once for a burst; failures are decided about anew; a defect of one key is its own.
func TestLoop(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := kubetest.New(kubetest.Options{})
		s.Put(value("a", "1"))
		var e *echo
		s.Process("echo").Run(t, func(objects cache.Cache, _ client.Client) (func(context.Context) error, error) {
			e = newEcho(objects)
			return e.loop.Run, nil
		})
		expect := func(what string, want ...string) {
			t.Helper()
			<-time.After(20 * time.Second)
			synctest.Wait()
			e.mu.Lock()
			defer e.mu.Unlock()
			if d := cmp.Diff(want, e.notes); d != "" {
				t.Errorf("%s (-want +got):\n%s", what, d)
			}
			e.notes, e.start = nil, time.Now()
		}
		e.mu.Lock()
		if len(e.notes) != 1 {
			t.Errorf("at the start: %v", e.notes)
		}
		e.notes, e.start = nil, time.Now()
		e.mu.Unlock()

		for i := range 10 {
			s.Put(value("a", fmt.Sprint(i)))
		}
		expect("a burst", "100ms a=9")

		e.fails = 4
		s.Put(value("a", "x"))
		expect("failures", "100ms a=x", "1.1s a=x", "3.1s a=x", "7.1s a=x", "11.1s a=x")

		s.Put(value("bad", "panic"), value("a", "more"))
		expect("a defect, and what is due besides", "100ms a=more", "1.1s other=")
		s.Remove(value("bad", ""))
		expect("it is gone", "100ms bad=")

		e.again["a"] = 3 * time.Second
		s.Put(value("a", "y"))
		expect("once more by itself", "100ms a=y", "3.1s a=y")
	})
}

// TestLater: a kind that is not served yet is watched once it is; an object that was replaced unseen is gone first; tenants are served in turn.
func TestLater(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := kubetest.New(kubetest.Options{})
		s.Serve("ConfigMap", false)
		s.Put(value("a", "1"))
		var seen []string
		var loop *control.Loop[string, string]
		s.Process("late").Run(t, func(objects cache.Cache, _ client.Client) (func(context.Context) error, error) {
			loop = control.New(control.Deps{Cache: objects}, control.Role[string, string]{
				Name: "late", Workers: 1, MinRetry: time.Second, MaxRetry: time.Second, Tenant: func(name string) string { return name[:1] },
				Decide: func(name string, _ time.Time) (string, []control.Due[string], time.Time) {
					return name, nil, time.Time{}
				},
				Write: func(_ context.Context, name string) error {
					loop.Lock()
					defer loop.Unlock()
					seen = append(seen, "write "+name)
					return nil
				},
			})
			control.WatchLater(loop, &corev1.ConfigMap{}, func(m *corev1.ConfigMap, gone bool) []control.Due[string] {
				seen = append(seen, fmt.Sprint(m.Name, " ", m.Data["v"], " ", gone))
				return []control.Due[string]{{Key: m.Name, After: time.Second}}
			})
			return loop.Run, nil
		})
		expect := func(what string, want ...string) {
			t.Helper()
			<-time.After(time.Minute)
			synctest.Wait()
			loop.Lock()
			defer loop.Unlock()
			if d := cmp.Diff(want, seen); d != "" {
				t.Errorf("%s (-want +got):\n%s", what, d)
			}
			seen = nil
		}
		expect("there are none")
		s.Serve("ConfigMap", true)
		expect("it comes", "a 1 false", "write a")

		s.Hold("ConfigMap")
		is := value("a", "2")
		is.UID = "another"
		s.Put(is)
		s.Expire("ConfigMap")
		s.Release("ConfigMap")
		expect("replaced", "a 1 true", "a 2 false", "write a")

		s.Put(value("b1", ""), value("b2", ""), value("b3", ""), value("c", ""))
		<-time.After(time.Minute)
		loop.Lock()
		defer loop.Unlock()
		if c := slices.Index(seen, "write c"); c < 4 || c > 5 || len(seen) != 8 {
			t.Errorf("in turn: %v", seen)
		}
	})
}

// TestNothingBeforeAllIsSeen: a kind that is slow to come is waited for by what is decided about another.
func TestNothingBeforeAllIsSeen(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := kubetest.New(kubetest.Options{})
		s.Put(value("a", "1"), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "s"}})
		s.Fault(kubetest.Nth(1, kubetest.Is("list Secret"), kubetest.Outcome{Delay: 5 * time.Second}))
		s.Fault(kubetest.Nth(1, kubetest.Is("watch Secret"), kubetest.Outcome{Delay: 5 * time.Second}))
		secrets, early, decisions := 0, 0, 0
		s.Process("slow").Run(t, func(objects cache.Cache, _ client.Client) (func(context.Context) error, error) {
			loop := control.New(control.Deps{Cache: objects}, control.Role[string, string]{
				Name: "slow", Workers: 1, MinRetry: time.Second, MaxRetry: time.Second,
				Decide: func(name string, _ time.Time) (string, []control.Due[string], time.Time) {
					if decisions++; secrets == 0 {
						early++
					}
					return name, nil, time.Time{}
				},
				Write: func(context.Context, string) error { return nil },
			})
			control.Watch(loop, &corev1.ConfigMap{}, func(m *corev1.ConfigMap, _ bool) []control.Due[string] {
				return []control.Due[string]{{Key: m.Name}}
			})
			control.Watch(loop, &corev1.Secret{}, func(*corev1.Secret, bool) []control.Due[string] {
				secrets++
				return nil
			})
			return loop.Run, nil
		})
		<-time.After(time.Minute)
		synctest.Wait()
		if decisions == 0 || early > 0 {
			t.Errorf("%d decisions, of which %d came before all was seen", decisions, early)
		}
	})
}

// TestAdd: what is added by others than watches is decided about, before the loop runs as well as after.
func TestAdd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := kubetest.New(kubetest.Options{})
		var e *echo
		s.Process("echo").Run(t, func(objects cache.Cache, _ client.Client) (func(context.Context) error, error) {
			e = newEcho(objects)
			e.loop.Add(control.Due[string]{Key: "early"})
			return e.loop.Run, nil
		})
		e.loop.Lock()
		e.loop.Add(control.Due[string]{Key: "late", After: time.Second}, control.Due[string]{Key: "late", After: 2 * time.Second})
		e.loop.Unlock()
		<-time.After(20 * time.Second)
		synctest.Wait()
		e.mu.Lock()
		defer e.mu.Unlock()
		if len(e.notes) != 2 || !strings.HasSuffix(e.notes[0], " early=") || e.notes[1] != "2s late=" {
			t.Error(e.notes)
		}
	})
}
