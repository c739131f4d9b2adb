package kubetest

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
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v2 "github.com/muster-scheduler/muster/api/scheduling/v2"
)

func config(name, value string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: map[string]string{"value": value}}, Data: map[string]string{"v": value},
	}
}

// watched compares what watches tell of the same changes: from nothing, from a version, with selectors, and of objects that come into and
// go out of what is selected.
func watched(t *testing.T, of *rest.Config) {
	t.Helper()
	c, err := client.NewWithWatch(of, client.Options{Scheme: Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	do := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	a := config("watched-a", "1")
	do(c.Create(t.Context(), a))
	first := a.ResourceVersion
	do(c.Patch(t.Context(), a, client.RawPatch(types.MergePatchType, []byte(`{"data":{"v":"2"},"metadata":{"labels":{"value":"2"}}}`))))
	do(c.Patch(t.Context(), a, client.RawPatch(types.MergePatchType, []byte(`{"data":{"v":"2"}}`)))) // nothing
	do(c.Patch(t.Context(), a, client.RawPatch(types.MergePatchType, []byte(`{"data":{"v":"1"},"metadata":{"labels":{"value":"1"}}}`))))
	b := config("watched-b", "2")
	do(c.Create(t.Context(), b))
	do(c.Delete(t.Context(), a))
	do(c.Delete(t.Context(), b))
	for what, w := range map[string]struct {
		options client.ListOptions
		want    []string
	}{
		"all":                   {client.ListOptions{}, []string{"MODIFIED watched-a 2", "MODIFIED watched-a 1", "ADDED watched-b 2", "DELETED watched-a 1", "DELETED watched-b 2"}},
		"what comes and goes":   {client.ListOptions{LabelSelector: labels.SelectorFromSet(labels.Set{"value": "1"})}, []string{"DELETED watched-a 1", "ADDED watched-a 1", "DELETED watched-a 1"}},
		"what was not there":    {client.ListOptions{LabelSelector: labels.SelectorFromSet(labels.Set{"value": "2"})}, []string{"ADDED watched-a 2", "DELETED watched-a 2", "ADDED watched-b 2", "DELETED watched-b 2"}},
		"in another namespace ": {client.ListOptions{Namespace: "kube-system"}, nil},
	} {
		o := w.options
		if o.Namespace == "" {
			o.Namespace = "default"
		}
		o.Raw = &metav1.ListOptions{ResourceVersion: first, TimeoutSeconds: new(int64)}
		*o.Raw.TimeoutSeconds = 2
		watch, err := c.Watch(t.Context(), &corev1.ConfigMapList{}, &o)
		do(err)
		var got []string
		for e := range watch.ResultChan() {
			m, ok := e.Object.(*corev1.ConfigMap)
			if !ok {
				t.Errorf("%s: %v", what, e.Object)
				continue
			}
			if strings.HasPrefix(m.Name, "watched-") {
				got = append(got, fmt.Sprintf("%s %s %s", e.Type, m.Name, m.Data["v"]))
			}
		}
		if d := cmp.Diff(w.want, got); d != "" {
			t.Errorf("%s (-want +got):\n%s", what, d)
		}
	}
}

func TestWatches(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { watched(t, New(Options{}).Process("tester").Config()) })
}

// reader is a process with a cache of ConfigMaps, and what it heard.
type reader struct {
	client client.Client
	cache  cache.Cache
	mu     sync.Mutex
	heard  []string
}

func (r *reader) hear(text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.heard = append(r.heard, text)
}

func (r *reader) take() []string {
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	out := r.heard
	r.heard = nil
	return out
}

func read(t *testing.T, p *Process) *reader {
	t.Helper()
	r := &reader{}
	var err error
	if r.client, err = p.Client(Scheme()); err != nil {
		t.Fatal(err)
	}
	if r.cache, err = p.Cache(cache.Options{Scheme: Scheme()}); err != nil {
		t.Fatal(err)
	}
	i, err := r.cache.GetInformer(t.Context(), &corev1.ConfigMap{}, cache.BlockUntilSynced(false))
	if err != nil {
		t.Fatal(err)
	}
	said := func(o any) string {
		m := o.(*corev1.ConfigMap)
		return m.Name + " " + m.Data["v"]
	}
	if _, err := i.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { r.hear("add " + said(o)) },
		UpdateFunc: func(_, o any) { r.hear("update " + said(o)) },
		DeleteFunc: func(o any) {
			if late, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
				o = late.Obj
			}
			r.hear("delete " + said(o))
		},
	}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.cache.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	if !r.cache.WaitForCacheSync(t.Context()) {
		t.Fatal("the cache is not in sync")
	}
	return r
}

// TestCaches: a real cache is told what happens, and catches up after a stale watch, one that is cut, and a history that is forgotten.
func TestCaches(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := New(Options{})
		s.Put(config("a", "1"))
		r := read(t, s.Process("reader"))
		expect := func(what string, want ...string) {
			t.Helper()
			if d := cmp.Diff(want, r.take()); d != "" {
				t.Errorf("%s (-want +got):\n%s", what, d)
			}
		}
		expect("the start", "add a 1")
		s.Put(config("a", "2"), config("b", "1"))
		expect("changes", "update a 2", "add b 1")
		s.Put(config("a", "2"))
		expect("no change")

		s.Hold("ConfigMap")
		s.Put(config("a", "3"))
		s.Remove(config("b", ""))
		expect("a stale watch")
		m := &corev1.ConfigMap{}
		if err := r.client.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "a"}, m); err != nil || m.Data["v"] != "3" {
			t.Errorf("a read that is not stale: %v, %v", m.Data, err)
		}
		s.Release("ConfigMap")
		expect("which goes on", "update a 3", "delete b 1")

		s.Cut("ConfigMap")
		s.Put(config("a", "4"))
		<-time.After(time.Minute)
		expect("a watch that was cut", "update a 4")

		s.Hold("ConfigMap")
		s.Put(config("c", "1"))
		s.Remove(config("a", ""))
		s.Expire("ConfigMap")
		<-time.After(time.Minute)
		heard := r.take()
		slices.Sort(heard)
		if d := cmp.Diff([]string{"add c 1", "delete a 4"}, heard); d != "" {
			t.Errorf("a history that is forgotten (-want +got):\n%s", d)
		}
		s.Release("ConfigMap")
		s.Put(config("c", "2"))
		<-time.After(time.Hour)
		expect("watches end and begin by themselves", "update c 2")
		if w := s.Writes(); len(w) != 0 {
			t.Errorf("writes of somebody who reads: %v", w)
		}
	})
}

// TestFaults: what a caller gets, and what is true then.
func TestFaults(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		outcome Outcome
		judge   func(error) bool
		done    bool
	}{
		"lost request": {LostRequest(), func(err error) bool { return statusOf(err) == nil }, false},
		"lost answer":  {LostAnswer(), func(err error) bool { return statusOf(err) == nil }, true},
		"conflict":     {Conflict(), apierrors.IsConflict, false},
		"defect":       {Broken("no leader"), apierrors.IsInternalError, false},
		"hangs":        {Outcome{Hang: true}, func(err error) bool { return errors.Is(err, context.DeadlineExceeded) }, false},
		"slow":         {Outcome{Delay: 30 * time.Second}, func(err error) bool { return err == nil }, true},
		"too slow":     {Outcome{Delay: 2 * time.Minute}, func(err error) bool { return errors.Is(err, context.DeadlineExceeded) }, false},
		"too many":     {TooMany(1), func(err error) bool { return err == nil }, true}, // clients ask again by themselves
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := New(Options{})
				client, err := s.Process("writer").Client(Scheme())
				if err != nil {
					t.Fatal(err)
				}
				s.Fault(Nth(2, Is("create ConfigMap"), c.outcome))
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				if err := client.Create(ctx, config("a", "1")); err != nil {
					t.Errorf("the first: %v", err)
				}
				if err := client.Create(ctx, config("b", "1")); !c.judge(err) || err == nil && !c.done {
					t.Errorf("the second: %v", err)
				}
				if done := s.Get(config("b", "")); done != c.done {
					t.Errorf("done: %v", done)
				}
				if w := s.Writes(); len(w) < 2 || w[0].String() != "create ConfigMap default/a" || w[0].Write != 1 || w[1].Write != 2 || w[0].Process != "writer" {
					t.Errorf("writes %v", w)
				}
			})
		})
	}
}

// TestCrash: a process dies at a write, before or after it, its watches with it; the next one lives.
func TestCrash(t *testing.T) {
	t.Parallel()
	for _, after := range []bool{false, true} {
		t.Run(fmt.Sprint(after), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := New(Options{})
				p := s.Process("writer")
				r := read(t, p)
				p.CrashAt(2, after)
				var errs []error
				for _, name := range []string{"a", "b", "c"} {
					errs = append(errs, r.client.Create(t.Context(), config(name, "1")))
				}
				<-p.Dead()
				if errs[0] != nil || !errors.Is(errs[1], ErrDead) || !errors.Is(errs[2], ErrDead) {
					t.Errorf("errors %v", errs)
				}
				for name, want := range map[string]bool{"a": true, "b": after, "c": false} {
					if s.Get(config(name, "")) != want {
						t.Errorf("%s is there: %v", name, !want)
					}
				}
				r.take()
				s.Put(config("d", "1"))
				if heard := r.take(); len(heard) > 0 {
					t.Errorf("the dead hear %v", heard)
				}
				next := read(t, s.Process("writer"))
				if err := next.client.Create(t.Context(), config("c", "1")); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// TestOnlyMetadata: who asks for metadata gets no more, in lists and watches.
func TestOnlyMetadata(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := New(Options{})
		s.Put(config("a", "1"))
		c, err := s.Process("reader").Client(Scheme())
		if err != nil {
			t.Fatal(err)
		}
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMapList"))
		if err := c.List(t.Context(), list); err != nil || len(list.Items) != 1 || list.Items[0].Name != "a" {
			t.Errorf("%v, %v", list.Items, err)
		}
		q := &v2.Queue{ObjectMeta: metav1.ObjectMeta{Name: "q"}}
		s.Put(q)
		Edit(s, q, func(q *v2.Queue) { q.Spec.ParentQueue = "p" })
		if q.Generation != 2 || q.ResourceVersion == "" || q.UID == "" || q.CreationTimestamp.IsZero() {
			t.Errorf("%+v", q.ObjectMeta)
		}
	})
}

// TestMetadata: who reads and patches metadata alone is shown nothing else, and leaves the rest as it is.
func TestMetadata(t *testing.T) {
	t.Parallel()
	s := New(Options{})
	s.Put(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p"}, Spec: corev1.PodSpec{NodeName: "n"}})
	c, err := s.Process("tester").Client(Scheme())
	if err != nil {
		t.Fatal(err)
	}
	m := &metav1.PartialObjectMetadata{}
	m.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Pod"))
	m.Namespace, m.Name = "default", "p"
	if err := c.Patch(t.Context(), m, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`))); err != nil || m.Labels["a"] != "b" {
		t.Errorf("%v, %v", m.Labels, err)
	}
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p"}}
	if !s.Get(p) || p.Spec.NodeName != "n" || p.Labels["a"] != "b" || p.Kind != "Pod" {
		t.Errorf("%+v", p)
	}
}

// TestServe: what is not served is unknown, and comes with what it had.
func TestServe(t *testing.T) {
	t.Parallel()
	s := New(Options{})
	m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "m"}}
	s.Put(m)
	c, err := s.Process("tester").Client(Scheme())
	if err != nil {
		t.Fatal(err)
	}
	s.Serve("ConfigMap", false)
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(m), m); !meta.IsNoMatchError(err) {
		t.Errorf("not served: %v", err)
	}
	s.Serve("ConfigMap", true)
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(m), m); err != nil {
		t.Error(err)
	}
}
