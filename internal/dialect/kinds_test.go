package dialect

import (
	"reflect"
	"strings"
	"testing"

	"github.com/muster-scheduler/muster/internal/cluster"
)

// TestEveryRowIsWhole: what a row says fits together, and every kind is found by its type and by its name.
func TestEveryRowIsWhole(t *testing.T) {
	t.Parallel()
	metadata := 0
	carried := map[cluster.ObjectKind]bool{}
	for k := range Kinds {
		r := k.Row()
		if r.New == nil || r.List == nil {
			t.Errorf("kind %d has no row", k)
			continue
		}
		object, list := r.New(), r.List()
		kind, group, _ := strings.Cut(r.Name, ".")
		if (group == "") != (r.Face == "" || k == ResourceQuotas) { // Kubernetes' own, for plugins of the face
			t.Errorf("%s: of face %q", r.Name, r.Face)
		}
		if name := reflect.TypeOf(object).Elem().Name(); name != kind || reflect.TypeOf(list).Elem().Name() != name+"List" {
			t.Errorf("%s: objects of type %T, lists of type %T", r.Name, object, list)
		}
		for _, o := range []Object{object, k.Watched()} {
			if got, ok := KindOf(o); !ok || got != k {
				t.Errorf("%s: a %T is taken for a %s", k, o, got)
			}
		}
		if got, ok := Named(r.Name); !ok || got != k {
			t.Errorf("%s: by name it is a %s", k, got)
		}
		if !r.Metadata.Empty() {
			metadata++
			if r.Metadata.Kind != r.Name || k.WatchedList().GetObjectKind().GroupVersionKind().Kind != r.Name+"List" {
				t.Errorf("%s: its metadata are those of %s", k, r.Metadata)
			}
		}
		if r.Unread && r.Carried != "" {
			t.Errorf("%s: nobody reads it, and it is carried", k)
		}
		if r.Carried == "" {
			continue
		}
		if carried[r.Carried] || string(r.Carried) != r.Name {
			t.Errorf("%s is carried as %s", k, r.Carried)
		}
		carried[r.Carried] = true
		want := reflect.TypeOf(any(object))
		if r.carry != nil {
			part, problem := r.carry(object)
			if want = reflect.TypeOf(part); problem != "" && k != NodeResourceTopologies {
				t.Errorf("%s, empty: %s", k, problem)
			}
		}
		if got := reflect.TypeOf(Blank(r.Carried)); got != want {
			t.Errorf("%s: files are read into a %v, and a %v is carried", k, got, want)
		}
	}
	if metadata != 1 {
		t.Errorf("%d kinds are watched as metadata; Typed can tell one", metadata)
	}
	if Blank("Widget") != nil || Blank("") != nil {
		t.Error("what is not carried has a type")
	}
	if _, ok := Named(strings.ToLower(Pods.String())); ok {
		t.Error("a name that is none is known")
	}
}
