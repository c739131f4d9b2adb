package dialect

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"
)

// TestPanicOfOneObject: an object the reading of which panics is told of until it is read, and keeps nobody else from being read; a
// panic of the store is passed on, and every panic where nobody is to hear of it.
func TestPanicOfOneObject(t *testing.T) {
	t.Parallel()
	var heard []string
	d := NewTranslator(Options{Broken: func(_ any, k Kind, key types.NamespacedName, stack []byte) {
		if len(stack) == 0 {
			t.Error("no stack")
		}
		heard = append(heard, fmt.Sprintf("%s %s", k, key))
	}})
	key := types.NamespacedName{Namespace: "a", Name: "p"}
	d.one(Pods, key, func() { panic("odd") })
	const name = "Pod a/p"
	if text := d.Problems()[name]; !strings.Contains(text, "odd") || len(heard) != 1 || heard[0] != name {
		t.Errorf("told %q of %q", text, heard)
	}
	d.one(Pods, types.NamespacedName{Namespace: "a", Name: "other"}, func() {})
	if d.Problems()[name] == "" {
		t.Error("forgotten before it was read")
	}
	d.one(Pods, key, func() {})
	if text := d.Problems()[name]; text != "" {
		t.Errorf("read, and still told of: %s", text)
	}
	passes := func(d *Translator, take func()) (passed bool) {
		defer func() { passed = recover() != nil }()
		d.one(Pods, key, take)
		return
	}
	if !passes(d, func() { d.applying = true; panic("the store") }) {
		t.Error("a panic of the store was taken for the object's")
	}
	if !passes(NewTranslator(Options{}), func() { panic("odd") }) {
		t.Error("a panic that nobody hears of was swallowed")
	}
}
