package kubetest

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"sync"
	"time"

	topologyv1alpha2 "github.com/k8stopologyawareschedwg/noderesourcetopology-api/pkg/apis/topology/v1alpha2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/json"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kaiv1 "github.com/muster-scheduler/muster/api/kai/v1"
	kaiv1alpha1 "github.com/muster-scheduler/muster/api/kai/v1alpha1"
	"github.com/muster-scheduler/muster/api/kubebatch"
	schedulingv1alpha2 "github.com/muster-scheduler/muster/api/scheduling/v1alpha2"
	schedulingv2 "github.com/muster-scheduler/muster/api/scheduling/v2"
	schedulingv2alpha2 "github.com/muster-scheduler/muster/api/scheduling/v2alpha2"
	"github.com/muster-scheduler/muster/api/volcano"
)

// Options say what a server serves.
type Options struct {
	// Kinds are what it serves; nil: Builtin and Own.
	Kinds []Kind
	// More are kinds besides those.
	More []Kind
}

// object is one that is stored. It is never changed: a write stores another.
type object = *unstructured.Unstructured

// event is a change of one object.
type event struct {
	version int
	old     object // nil: it was made
	now     object // what it is, or the last that it was
	gone    bool
}

// table holds the objects of a kind.
type table struct {
	kind    *Kind
	objects map[types.NamespacedName]object
	log     []event
	lost    int // the changes up to this version are forgotten
	until   int // how many of log watches are told; -1 for all
	expired int // counts the calls of Expire
	cut     int // counts the calls of Cut
}

// Server is the API server. It is an http.Handler, and safe for concurrent use. One that is used in a synctest bubble is made in it.
type Server struct {
	kinds  []Kind
	scheme *runtime.Scheme                 // of the Go types of what it serves
	tables map[schema.GroupResource]*table // by resource: each is served in one version, or in several with the same content

	mu      sync.Mutex
	version int
	serial  int
	hidden  map[string]bool // kinds that are not served
	dropped map[string][][]string
	news    chan struct{} // closed and replaced when watches have something to look at
	faults  []*fault
	writes  []Call
}

// New returns a server with the namespaces default and kube-system.
func New(o Options) *Server {
	quiet()
	if o.Kinds == nil {
		o.Kinds = append(Builtin(), Own()...)
	}
	s := &Server{
		kinds: slices.Concat(o.Kinds, o.More), tables: map[schema.GroupResource]*table{}, hidden: map[string]bool{}, dropped: map[string][][]string{}, scheme: Scheme(),
		version: 1, news: make(chan struct{}),
	}
	for i := range s.kinds {
		k := &s.kinds[i]
		s.tables[k.groupResource()] = &table{kind: k, objects: map[types.NamespacedName]object{}, until: -1}
	}
	for _, name := range []string{"default", "kube-system"} {
		if t := s.tables[schema.GroupResource{Resource: "namespaces"}]; t != nil {
			s.put(t, object(&unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": name}}}))
		}
	}
	return s
}

// Scheme returns the Go types of Builtin, Own and Volcano, and those of NodeResourceTopologies.
func Scheme() *runtime.Scheme {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, kaiv1.AddToScheme, kaiv1alpha1.AddToScheme, schedulingv1alpha2.AddToScheme, schedulingv2.AddToScheme,
		schedulingv2alpha2.AddToScheme, topologyv1alpha2.AddToScheme, volcano.AddToScheme, kubebatch.AddToScheme,
	} {
		if err := add(s); err != nil {
			panic(fmt.Sprintf("kubetest: %v", err))
		}
	}
	return s
}

// Put makes objects what they are here, status included, as whoever else works on the cluster: one that exists is replaced and keeps its
// UID unless the object says another. The objects get UID, resourceVersion, generation and creationTimestamp as they are stored.
// An object of a kind that is not served is a panic.
func (s *Server) Put(objects ...client.Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range objects {
		u, k := s.content(o)
		stored := s.put(s.tables[k.groupResource()], u)
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(stored.Object, o); err != nil {
			panic(fmt.Sprintf("kubetest: put %s: %v", client.ObjectKeyFromObject(o), err))
		}
	}
}

// Edit changes the object of o's kind and name by edit, status included, as whoever else works on the cluster; o becomes it. That there is
// none, or one of an unknown kind, is a panic.
func Edit[T client.Object](s *Server, o T, edit func(T)) {
	if !s.Get(o) {
		panic(fmt.Sprintf("kubetest: edit %T %s: there is none", o, client.ObjectKeyFromObject(o)))
	}
	edit(o)
	s.Put(o)
}

// Get fills o with the object of its kind and name; false if there is none.
func (s *Server) Get(o client.Object) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	u, k := s.content(o)
	have := s.tables[k.groupResource()].objects[key(u)]
	if have == nil {
		return false
	}
	reflect.ValueOf(o).Elem().SetZero() // what the stored one lacks is not there
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(have.DeepCopy().Object, o); err != nil {
		panic(fmt.Sprintf("kubetest: get %s: %v", client.ObjectKeyFromObject(o), err))
	}
	return true
}

// Remove takes objects away at once, by kind and name, as a kubelet, a garbage collector or a person with force does. One that does not
// exist is nothing.
func (s *Server) Remove(objects ...client.Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range objects {
		u, k := s.content(o)
		t := s.tables[k.groupResource()]
		if have := t.objects[key(u)]; have != nil {
			s.drop(t, have)
		}
	}
}

// content is an object as it is stored, and its kind.
func (s *Server) content(o client.Object) (object, *Kind) {
	raw, err := json.Marshal(o)
	if err != nil {
		panic(fmt.Sprintf("kubetest: %T: %v", o, err))
	}
	u := &unstructured.Unstructured{Object: map[string]any{}}
	if err := json.Unmarshal(raw, &u.Object); err != nil {
		panic(fmt.Sprintf("kubetest: %T: %v", o, err))
	}
	k := s.kindOf(o)
	if k == nil {
		panic(fmt.Sprintf("kubetest: %T %s: its kind is not served; put it into Options.More", o, client.ObjectKeyFromObject(o)))
	}
	u.SetGroupVersionKind(k.GroupVersionKind)
	return u, k
}

func (s *Server) put(t *table, u object) object {
	if !t.kind.Namespaced {
		u.SetNamespace("")
	}
	old := t.objects[key(u)]
	if old != nil {
		if u.GetUID() == "" || u.GetUID() == old.GetUID() {
			u.SetUID(old.GetUID())
			u.SetCreationTimestamp(old.GetCreationTimestamp())
			u.SetGeneration(old.GetGeneration())
			s.count(t.kind, old, u)
		} else { // another object of the name
			s.drop(t, old)
			old = nil
		}
	}
	if old == nil {
		s.stamp(t.kind, u)
	}
	return s.store(t, old, u)
}

// stamp gives a new object what the server gives.
func (s *Server) stamp(k *Kind, u object) {
	if u.GetUID() == "" {
		s.serial++
		u.SetUID(types.UID(fmt.Sprintf("%08x-0000-4000-8000-%012x", len(k.Kind), s.serial)))
	}
	if at := u.GetCreationTimestamp(); at.IsZero() {
		u.SetCreationTimestamp(metav1.Now())
	}
	if k.Generation && u.GetGeneration() == 0 {
		u.SetGeneration(1)
	}
}

// store makes u what is stored, unless that changes nothing.
func (s *Server) store(t *table, old, u object) object {
	for _, field := range s.dropped[t.kind.Kind] {
		unstructured.RemoveNestedField(u.Object, field...)
	}
	tidy(u)
	if old != nil {
		u.SetResourceVersion(old.GetResourceVersion())
		if same(old.Object, u.Object) {
			return old
		}
	}
	s.version++
	u.SetResourceVersion(strconv.Itoa(s.version))
	t.objects[key(u)] = u
	s.tell(t, event{version: s.version, old: old, now: u})
	return u
}

func (s *Server) drop(t *table, have object) {
	s.version++
	last := have.DeepCopy()
	last.SetResourceVersion(strconv.Itoa(s.version))
	delete(t.objects, key(have))
	s.tell(t, event{version: s.version, old: have, now: last, gone: true})
}

func (s *Server) tell(t *table, e event) {
	t.log = append(t.log, e)
	s.wake()
}

// wake has all watches look.
func (s *Server) wake() {
	close(s.news)
	s.news = make(chan struct{})
}

// count raises the generation if what it counts has changed.
func (s *Server) count(k *Kind, old, u object) {
	if !k.Generation {
		return
	}
	a, b := maps.Clone(old.Object), maps.Clone(u.Object)
	for _, m := range []map[string]any{a, b} {
		delete(m, "metadata")
		delete(m, "status")
	}
	if !same(a, b) {
		u.SetGeneration(old.GetGeneration() + 1)
	}
}

// tidy removes what an encoder of Go types leaves of nothing.
func tidy(u object) {
	if m, ok := u.Object["metadata"].(map[string]any); ok {
		for _, field := range []string{"creationTimestamp", "namespace"} {
			if v, has := m[field]; has && (v == nil || v == "") {
				delete(m, field)
			}
		}
		for _, field := range []string{"labels", "annotations", "finalizers", "ownerReferences"} {
			switch v := m[field].(type) {
			case map[string]any:
				if len(v) == 0 {
					delete(m, field)
				}
			case []any:
				if len(v) == 0 {
					delete(m, field)
				}
			case nil:
				delete(m, field)
			}
		}
	}
}

// sorted are the objects of a table that lie in a namespace, or in all, by name.
func (t *table) sorted(namespace string) []object {
	var out []object
	for name, o := range t.objects { // order: sorted below
		if namespace == "" || name.Namespace == namespace {
			out = append(out, o)
		}
	}
	slices.SortFunc(out, func(a, b object) int {
		return cmp.Or(cmp.Compare(a.GetNamespace(), b.GetNamespace()), cmp.Compare(a.GetName(), b.GetName()))
	})
	return out
}

func key(u object) types.NamespacedName {
	return types.NamespacedName{Namespace: u.GetNamespace(), Name: u.GetName()}
}

// wait returns after d, or when ctx ends.
func wait(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
