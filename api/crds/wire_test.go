package crds_test

import (
	"reflect"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/json"

	kaiv1 "github.com/muster-scheduler/muster/api/kai/v1"
	kaiv1alpha1 "github.com/muster-scheduler/muster/api/kai/v1alpha1"
	"github.com/muster-scheduler/muster/api/scheduling/v1alpha2"
	schedulingv2 "github.com/muster-scheduler/muster/api/scheduling/v2"
	"github.com/muster-scheduler/muster/api/scheduling/v2alpha2"
)

// fill puts one element into every list and map and a value behind every pointer, and, if full, a value other than
// zero into everything plain.
func fill(v reflect.Value, full bool, depth int) {
	if depth > 30 {
		panic("type nests without end: " + v.Type().String())
	}
	switch at := v.Addr().Interface().(type) {
	case *metav1.Time:
		if full {
			*at = metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC).Local())
		}
		return
	case *metav1.Duration:
		at.Duration = 90 * time.Second
		return
	case *resource.Quantity:
		*at = resource.MustParse("3")
		return
	case *runtime.RawExtension:
		at.Raw = []byte(`{"a":"b"}`)
		return
	case *metav1.Condition:
		full = true // a condition without its time is refused
	case *metav1.TypeMeta, *metav1.ObjectMeta:
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		_, isTime := v.Interface().(*metav1.Time)
		fill(v.Elem(), full || isTime, depth+1) // who sets a pointer to a time sets a time
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0), full, depth+1)
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		key.SetString("key")
		fill(value, full, depth+1)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i), full, depth+1)
		}
	default:
		if full {
			plain(v)
		}
	}
}

func plain(v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		v.SetString("x")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Float64:
		v.SetFloat(0.5)
	case reflect.Int, reflect.Int32, reflect.Int64:
		v.SetInt(7)
	default:
		panic("no value known for " + v.Type().String())
	}
}

// TestWire encodes objects in which everything is present, with and without values. The API server must know every
// field, see no null where it wants a value, and hand back what was written.
func TestWire(t *testing.T) {
	t.Parallel()
	kinds := []struct {
		group, plural string
		make          func() runtime.Object
	}{
		{"kai.scheduler", "configs", func() runtime.Object { return &kaiv1.Config{} }},
		{"kai.scheduler", "schedulingshards", func() runtime.Object { return &kaiv1.SchedulingShard{} }},
		{"kai.scheduler", "topologies", func() runtime.Object { return &kaiv1alpha1.Topology{} }},
		{"scheduling.run.ai", "bindrequests", func() runtime.Object { return &v1alpha2.BindRequest{} }},
		{"scheduling.run.ai", "queues", func() runtime.Object { return &schedulingv2.Queue{} }},
		{"scheduling.run.ai", "podgroups", func() runtime.Object { return &v2alpha2.PodGroup{} }},
	}
	for _, kind := range kinds {
		validator := newValidator(t, kind.group, kind.plural)
		for _, full := range []bool{true, false} {
			t.Run(kind.plural, func(t *testing.T) {
				written := kind.make()
				fill(reflect.ValueOf(written).Elem(), full, 0)
				raw, err := json.Marshal(written)
				if err != nil {
					t.Fatal(err)
				}
				var stored map[string]any
				if err := json.Unmarshal(raw, &stored); err != nil {
					t.Fatal(err)
				}
				if paths := pruning.PruneWithOptions(stored, validator.structural, true, structuralschema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true}); len(paths) > 0 {
					t.Errorf("fields unknown to the schema: %q", paths)
				}
				if nulls := nullPaths("", stored); len(nulls) > 0 {
					t.Errorf("nulls on the wire: %q", nulls)
				}
				read := kind.make()
				if err := json.Unmarshal(raw, read); err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(written, read); diff != "" {
					t.Errorf("not what was written (-written +read):\n%s", diff)
				}
				if diff := cmp.Diff(written, written.DeepCopyObject()); diff != "" {
					t.Errorf("the deep copy differs:\n%s", diff)
				}
			})
		}
	}
}

func nullPaths(path string, value any) []string {
	var all []string
	switch typed := value.(type) {
	case nil:
		return []string{path}
	case map[string]any:
		for key, part := range typed {
			all = append(all, nullPaths(path+"."+key, part)...)
		}
	case []any:
		for _, part := range typed {
			all = append(all, nullPaths(path+"[]", part)...)
		}
	}
	return all
}
