// Package fieldtest states every field of a value and changes them one at a time, so that tests can tell whether code that goes over
// the fields of a type by hand forgets one.
//
//	for i, c := range fieldtest.Changes(T{}) {
//		was, is := fieldtest.Filled(T{}), fieldtest.Changed(T{}, i)
//		… whatever compares, copies or writes a T must tell is from was: c says what differs
//	}
//
// Weakness: it sees exported fields only, and one element of each list and map.
package fieldtest

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
)

// Change is one way in which a value can differ.
type Change struct {
	// Path is of what differs, from the value down: "Sets[0].Min". Of a map it goes on with ".value".
	Path string
	// How is "changed", "cleared" (the zero value) or, of a list or map, "grown" by one.
	How string
}

// String returns path and way: "Sets[0].Min changed", which tables of exceptions may name too.
func (c Change) String() string { return c.Path + " " + c.How }

// In says whether a table names the change, by its path, by path and way, or by a field that it is within.
func (c Change) In(table map[string]string) bool {
	for path := range table { // order: any will do
		if c.Path == path || c.String() == path || strings.HasPrefix(c.Path, path+".") || strings.HasPrefix(c.Path, path+"[") {
			return true
		}
	}
	return false
}

// Filled returns a value like of, with everything stated that is zero there: a text is its own path, a number 7, and each list and map has
// one entry. It shares with of what of states. What is behind an interface is filled if there is something; numbers within a list that
// of states are left as they are, zero or not.
func Filled[T any](of T) T {
	v := reflect.New(reflect.TypeOf(of)).Elem()
	v.Set(reflect.ValueOf(of))
	fill(v, "")
	return v.Interface().(T)
}

// Changes lists the ways in which Filled(of) can differ, in an order that is always the same.
func Changes[T any](of T) (all []Change) {
	v := reflect.New(reflect.TypeOf(of)).Elem()
	v.Set(reflect.ValueOf(Filled(of)))
	vary(v, "", func(c Change, _ func()) { all = append(all, c) })
	return all
}

// Changed returns Filled(of) with one of its Changes made. It writes into what of refers to.
func Changed[T any](of T, i int) T {
	v := reflect.New(reflect.TypeOf(of)).Elem()
	v.Set(reflect.ValueOf(Filled(of)))
	var do func()
	n := 0
	vary(v, "", func(_ Change, change func()) {
		if n == i {
			do = change
		}
		n++
	})
	do()
	return v.Interface().(T)
}

// amount says whether a value is one of a text that names it and a number.
func amount(v reflect.Value) bool {
	return v.Kind() == reflect.Struct && v.NumField() == 2 && v.Type().Field(0).Name == "Name" && v.Field(1).CanInt()
}

// opaque says whether a value keeps its fields to itself and is a number in files.
func opaque(v reflect.Value) bool {
	if v.Kind() != reflect.Struct || !v.CanAddr() || v.NumField() == 0 || v.Type().Field(0).IsExported() || v.Type().Field(0).Anonymous {
		return false
	}
	_, ok := v.Addr().Interface().(json.Unmarshaler)
	return ok
}

func read(v reflect.Value, text string) {
	if err := json.Unmarshal([]byte(text), v.Addr().Interface()); err != nil {
		panic("fieldtest: " + v.Type().String() + " is no number: " + err.Error())
	}
}

func fill(v reflect.Value, path string) {
	switch v.Interface().(type) {
	case time.Time:
		v.Set(reflect.ValueOf(time.Unix(7, 0)))
		return
	case resource.Quantity:
		v.Set(reflect.ValueOf(resource.MustParse("7")))
		return
	case []byte: // JSON, most often
		v.SetBytes([]byte("7"))
		return
	}
	if opaque(v) {
		if v.IsZero() {
			read(v, "7")
		}
		return
	}
	if amount(v) { // names mean something
		if v.IsZero() {
			v.Field(0).SetString("memory")
			v.Field(1).SetInt(7)
		}
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				fill(v.Field(i), join(path, v.Type().Field(i)))
			}
		}
	case reflect.Pointer:
		if v.IsNil() {
			v.Set(reflect.New(v.Type().Elem()))
		}
		fill(v.Elem(), path)
	case reflect.Slice:
		if v.Len() == 0 {
			v.Set(reflect.MakeSlice(v.Type(), 1, 1))
			fill(v.Index(0), path+"[0]")
		}
	case reflect.Map:
		if v.Len() == 0 {
			key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
			fill(key, path+".key")
			fill(value, path+".value")
			v.Set(reflect.MakeMap(v.Type()))
			v.SetMapIndex(key, value)
		}
	case reflect.Interface:
		if !v.IsNil() && v.Elem().Kind() == reflect.Pointer {
			fill(v.Elem(), path)
		}
	case reflect.String:
		if v.IsZero() {
			v.SetString(path)
		}
	case reflect.Bool:
		v.SetBool(true)
	default:
		if v.CanInt() && v.IsZero() {
			v.SetInt(7)
		} else if v.CanUint() && v.IsZero() {
			v.SetUint(1) // within the range of every enumeration
		}
	}
}

// vary calls f with each way in which a filled value can differ, and what makes it so.
func vary(v reflect.Value, path string, f func(Change, func())) {
	if v.Kind() != reflect.Interface && v.CanSet() && !v.IsZero() && path != "" {
		f(Change{path, "cleared"}, v.SetZero)
	}
	changes := func(do func()) { f(Change{path, "changed"}, do) }
	switch x := v.Interface().(type) {
	case time.Time:
		changes(func() { v.Set(reflect.ValueOf(x.Add(time.Second))) })
		return
	case resource.Quantity:
		changes(func() { v.Set(reflect.ValueOf(resource.MustParse("8"))) })
		return
	case []byte:
		changes(func() { v.SetBytes([]byte("8")) })
		return
	}
	if opaque(v) {
		changes(func() { read(v, "8") })
		return
	}
	if amount(v) {
		f(Change{path + ".Name", "changed"}, func() { v.Field(0).SetString("pods") })
		f(Change{path + ".Value", "changed"}, func() { v.Field(1).SetInt(v.Field(1).Int() + 1) })
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				vary(v.Field(i), join(path, v.Type().Field(i)), f)
			}
		}
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			vary(v.Elem(), path, f)
		}
	case reflect.Slice:
		f(Change{path, "grown"}, func() {
			one := reflect.New(v.Type().Elem()).Elem()
			fill(one, path+"[new]")
			if amount(one) {
				one.Field(0).SetString("pods")
			}
			v.Set(reflect.Append(v, one))
		})
		for i := range v.Len() {
			vary(v.Index(i), fmt.Sprintf("%s[%d]", path, i), f)
		}
	case reflect.Map:
		key := v.MapKeys()[0]
		value := v.MapIndex(key)
		f(Change{path, "grown"}, func() {
			other := reflect.New(v.Type().Key()).Elem()
			fill(other, path+".new")
			v.SetMapIndex(other, value)
		})
		edited := reflect.New(v.Type().Elem()).Elem()
		edited.Set(value)
		vary(edited, path+".value", func(c Change, do func()) {
			f(c, func() { do(); v.SetMapIndex(key, edited) })
		})
	case reflect.String:
		changes(func() { v.SetString(v.String() + "'") })
	case reflect.Bool:
		changes(func() { v.SetBool(!v.Bool()) })
	default:
		switch {
		case v.CanInt():
			changes(func() { v.SetInt(v.Int() + 1) })
		case v.CanUint():
			changes(func() { v.SetUint(v.Uint() + 1) })
		case v.CanSet():
			panic("fieldtest: no way to change a " + v.Type().String())
		}
	}
}

// join is the path of a field. What is embedded has the path of what it is in.
func join(path string, f reflect.StructField) string {
	switch {
	case f.Anonymous:
		return path
	case path == "":
		return f.Name
	}
	return path + "." + f.Name
}
