package aside

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/go-logr/logr/funcr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllertest"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

func pod(name string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name}}
}

// TestSetAside: a panic is the failure of the work about one object: told with its stack, counted, and noticed to have ended; other
// failures pass as they are. A guard that is not there catches, too.
func TestSetAside(t *testing.T) {
	t.Parallel()
	var text strings.Builder
	log := funcr.New(func(_, args string) { text.WriteString(args) }, funcr.Options{})
	registry := prometheus.NewRegistry()
	var watched []string
	g, err := New("binder", log, registry, func(ctx context.Context, what string) (context.Context, func()) {
		watched = append(watched, what)
		return ctx, func() { watched = append(watched, "done") }
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := New("queue", log, registry, nil); err != nil {
		t.Errorf("a second role of the process: %v", err)
	}
	if err := g.Do(t.Context(), "a worker", "team/p", func(context.Context) error { panic("broken") }); !errors.Is(err, ErrDefect) || !strings.Contains(err.Error(), "broken") {
		t.Errorf("a panic: %v", err)
	}
	for _, part := range []string{"team/p", "broken", "TestSetAside"} {
		if !strings.Contains(text.String(), part) {
			t.Errorf("the log has no %q: %s", part, text.String())
		}
	}
	if n := testutil.ToFloat64(g.defects.WithLabelValues("binder", "a worker")); n != 1 {
		t.Errorf("counted %v", n)
	}
	plain := errors.New("plain")
	if err := g.Do(t.Context(), "a worker", "p", func(context.Context) error { return plain }); !errors.Is(err, plain) || errors.Is(err, ErrDefect) {
		t.Errorf("an error: %v", err)
	}
	if want := []string{"a worker of the role binder", "done", "a worker of the role binder", "done"}; !slices.Equal(watched, want) {
		t.Errorf("watched %q", watched)
	}
	if err := (*Guard)(nil).Do(t.Context(), "a worker", "p", func(context.Context) error { panic("x") }); !errors.Is(err, ErrDefect) {
		t.Errorf("without a guard: %v", err)
	}
	r := Reconciler(g, func(_ context.Context, of string) (reconcile.Result, error) {
		if of == "bad" {
			panic("bad")
		}
		return reconcile.Result{RequeueAfter: 7}, nil
	}, nil)
	if _, err := r.Reconcile(t.Context(), "bad"); !errors.Is(err, ErrDefect) {
		t.Errorf("a reconciler: %v", err)
	}
	if out, err := r.Reconcile(t.Context(), "good"); err != nil || out.RequeueAfter != 7 {
		t.Errorf("a reconciler of another object: %v %v", out, err)
	}
}

// TestObjectsAreNamed: whoever is to tell of defects hears of the object that brought one out, as it is or by its name, whatever the work
// was; of work about nothing in particular he hears nothing, and a defect in telling ends nothing.
func TestObjectsAreNamed(t *testing.T) {
	t.Parallel()
	var text strings.Builder
	g, err := New("binder", funcr.New(func(_, args string) { text.WriteString(args) }, funcr.Options{}), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	var heard []string
	g.Tell = func(o client.Object) {
		heard = append(heard, o.GetNamespace()+"/"+o.GetName()+" "+string(o.GetUID()))
		if o.GetName() == "worst" {
			panic("nobody can speak of it")
		}
	}
	bad := func(context.Context) error { panic("bad") }
	p := pod("p")
	p.UID, p.Spec.NodeName = "1", "secret"
	for _, object := range []any{p, "a text", named{pod("handled")}, named{toolscache.DeletedFinalStateUnknown{Key: "team/gone", Obj: pod("gone")}}, named{"nothing"}, pod(""), pod("worst")} {
		if err := g.Do(t.Context(), "a worker", object, bad); !errors.Is(err, ErrDefect) {
			t.Errorf("%v: %v", object, err)
		}
	}
	r := Reconciler(g, func(ctx context.Context, name string) (reconcile.Result, error) { return reconcile.Result{}, bad(ctx) },
		func(name string) client.Object { return pod(name) })
	if _, err := r.Reconcile(t.Context(), "named"); !errors.Is(err, ErrDefect) {
		t.Error(err)
	}
	g.About(pod("besides"))
	g.About(nil)
	(*Guard)(nil).About(p)
	if want := []string{"team/p 1", "team/handled ", "team/gone ", "team/worst ", "team/named ", "team/besides "}; !slices.Equal(heard, want) {
		t.Errorf("heard of %q, want %q", heard, want)
	}
	if log := text.String(); strings.Contains(log, "secret") || !strings.Contains(log, "*v1.Pod team/p") || !strings.Contains(log, "nobody can speak of it") {
		t.Errorf("the log: %s", log)
	}
}

// indexed is a cache that remembers how it is to index.
type indexed struct {
	cache.Cache
	extract client.IndexerFunc
}

func (c *indexed) IndexField(_ context.Context, _ client.Object, _ string, f client.IndexerFunc) error {
	c.extract = f
	return nil
}

// TestCache: handlers, indexes and transforms of a cache that one object brings down go on with the next.
func TestCache(t *testing.T) {
	t.Parallel()
	g, err := New("cache", funcr.New(func(string, string) {}, funcr.Options{}), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	fake := &informertest.FakeInformers{}
	under := &indexed{Cache: fake}
	c := g.Cache(under)
	var seen []string
	see := func(o any) {
		p, _ := o.(*corev1.Pod)
		if p.Name == "bad" {
			panic("bad")
		}
		seen = append(seen, p.Name)
	}
	h := toolscache.ResourceEventHandlerFuncs{AddFunc: see, UpdateFunc: func(_, o any) { see(o) }, DeleteFunc: see}
	gvk := corev1.SchemeGroupVersion.WithKind("Pod")
	for _, add := range []func(cache.Informer) error{
		func(i cache.Informer) error { _, err := i.AddEventHandler(h); return err },
		func(i cache.Informer) error { _, err := i.AddEventHandlerWithResyncPeriod(h, 0); return err },
		func(i cache.Informer) error {
			_, err := i.AddEventHandlerWithOptions(h, toolscache.HandlerOptions{})
			return err
		},
	} {
		fake.InformersByGVK, seen = nil, nil
		byType, err := c.GetInformer(t.Context(), &corev1.Pod{})
		if err != nil {
			t.Fatal(err)
		}
		if byKind, err := c.GetInformerForKind(t.Context(), gvk); err != nil || byKind == nil {
			t.Fatal(err)
		}
		if err := add(byType); err != nil {
			t.Fatal(err)
		}
		i, ok := fake.InformersByGVK[gvk].(*controllertest.FakeInformer)
		if !ok {
			t.Fatalf("%T", fake.InformersByGVK[gvk])
		}
		for _, name := range []string{"bad", "good"} {
			i.Add(pod(name))
			i.Update(pod(name), pod(name))
			i.Delete(pod(name))
		}
		if want := []string{"good", "good", "good"}; !slices.Equal(seen, want) {
			t.Errorf("handled %q", seen)
		}
	}
	if err := c.IndexField(t.Context(), &corev1.Pod{}, "x", func(o client.Object) []string { see(o); return []string{o.GetName()} }); err != nil {
		t.Fatal(err)
	}
	if got := append(under.extract(pod("bad")), under.extract(pod("good"))...); !slices.Equal(got, []string{"good"}) {
		t.Errorf("indexed %q", got)
	}
	trim := func(o any) (any, error) { see(o); return types.UID("trimmed"), nil }
	o := cache.Options{DefaultTransform: trim, ByObject: map[client.Object]cache.ByObject{&corev1.Pod{}: {Transform: trim}, &corev1.Node{}: {}}}
	g.Transforms(&o)
	all := []toolscache.TransformFunc{o.DefaultTransform}
	for _, by := range o.ByObject { // order: each on its own
		if by.Transform != nil {
			all = append(all, by.Transform)
		}
	}
	if len(all) != 2 {
		t.Fatalf("%d transforms", len(all))
	}
	for _, f := range all {
		bad := pod("bad")
		if out, err := f(bad); err != nil || out != any(bad) {
			t.Errorf("an object that cannot be trimmed: %v %v", out, err)
		}
		if out, err := f(pod("good")); err != nil || out != any(types.UID("trimmed")) {
			t.Errorf("another object: %v %v", out, err)
		}
	}
}
