package feed

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestPanicOfOneObject: an object the reading of which panics is told of until it is read, and keeps nobody else from being read; a
// panic of the store is passed on.
func TestPanicOfOneObject(t *testing.T) {
	t.Parallel()
	var heard []string
	d := newDesk(Options{Broken: func(_ any, object client.Object, stack []byte) {
		if len(stack) == 0 {
			t.Error("no stack")
		}
		heard = append(heard, fmt.Sprintf("%T %s", object, client.ObjectKeyFromObject(object)))
	}})
	key := types.NamespacedName{Namespace: "a", Name: "p"}
	d.one(pods, key, func() { panic("odd") })
	const name = "Pod a/p"
	if text := d.problemTexts()[name]; !strings.Contains(text, "odd") || len(heard) != 1 || heard[0] != "*v1.Pod a/p" {
		t.Errorf("told %q of %q", text, heard)
	}
	d.one(pods, types.NamespacedName{Namespace: "a", Name: "other"}, func() {})
	if d.problemTexts()[name] == "" {
		t.Error("forgotten before it was read")
	}
	d.one(pods, key, func() {})
	if text := d.problemTexts()[name]; text != "" {
		t.Errorf("read, and still told of: %s", text)
	}
	passed := func() (passed bool) {
		defer func() { passed = recover() != nil }()
		d.one(pods, key, func() { d.applying = true; panic("the store") })
		return
	}()
	if !passed {
		t.Error("a panic of the store was taken for the object's")
	}
}
