package kaizip

import (
	"reflect"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-scheduler/muster/internal/dialect"
)

// each calls f with the kind of every list, and with the slice, which can be set.
func (o *objects) each(f func(k dialect.Kind, list reflect.Value)) {
	for _, list := range reflect.ValueOf(o).Elem().Fields() {
		k, ok := dialect.Typed(list.Type().Elem())
		if !ok {
			panic("kaizip: no such kind: " + list.Type().String())
		}
		f(k, list)
	}
}

// items are the objects of a list.
func items(list reflect.Value) []client.Object {
	out := make([]client.Object, list.Len())
	for i := range out {
		out[i] = list.Index(i).Interface().(client.Object)
	}
	return out
}
