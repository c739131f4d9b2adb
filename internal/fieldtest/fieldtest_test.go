package fieldtest

import (
	"reflect"
	"testing"
	"time"
)

type embedded struct{ E uint8 }

type sample struct {
	embedded
	A string
	B []int64
	C map[string]*bool
	D any
	F struct{ At time.Time }
}

// TestChanges: nothing is zero in a filled value, and each change makes another value.
func TestChanges(t *testing.T) {
	t.Parallel()
	full := Filled(sample{D: &embedded{}})
	for i := range reflect.TypeFor[sample]().NumField() {
		if f := reflect.TypeFor[sample]().Field(i); f.IsExported() && reflect.ValueOf(full).Field(i).IsZero() {
			t.Errorf("%s is zero", f.Name)
		}
	}
	all := Changes(sample{D: &embedded{}})
	for i, c := range all {
		if reflect.DeepEqual(Changed(sample{D: &embedded{}}, i), full) {
			t.Errorf("%s changes nothing", c)
		}
	}
	if len(all) < 12 {
		t.Errorf("only %v", all)
	}
	if c := (Change{"B[0]", "changed"}); !c.In(map[string]string{"B": ""}) || !c.In(map[string]string{"B[0] changed": ""}) || c.In(map[string]string{"A": ""}) {
		t.Error("tables of exceptions")
	}
}
