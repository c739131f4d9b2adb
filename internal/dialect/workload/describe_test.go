package workload

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
	"sigs.k8s.io/yaml"
)

// TestDescribe: whatever an object is called, and of whatever kind it is, the description is the YAML of that.
func TestDescribe(t *testing.T) {
	t.Parallel()
	const uid = "5d5c9f7e-0a2b-4c3d-8e9f-aabbccddeeff"
	words := []string{
		"", "batch", "v1", "Job", "fill-17", "a.b-c", "a-", "a.", "a:b", "a #b", " a", "a b", "é", "'", `"`, "\n", "-", "?", "~", ".inf", ".nan", "=", "<<", "!x", "&x", "*x", "[", "{",
		"y", "Y", "yes", "Yes", "n", "NO", "on", "off", "true", "TRUE", "false", "null", "Null", "tRUE", "nan", "inf", "1", "0", "1e3", "1.5", "0x1f", "0b1", "0o7", "1_000", "2001-01-01", "12:30",
		"e1", "x1f", uid, strings.ToUpper(uid), "00000000-0000-0000-0000-000000000000", "12345678-1234-1234-1234-123456789012", "1234567e-1234-1234-1234-123456789012", strings.ReplaceAll(uid, "-", ""),
		uid + "0", strings.Repeat("a", 300), strings.Repeat("a-", 100) + "b", strings.Repeat("ab ", 60),
	}
	same := func(t interface{ Errorf(string, ...any) }, o *Object) {
		raw, err := yaml.Marshal(map[string]string{
			"name": o.Name, "uid": string(o.UID), "group": o.GVK.Group, "version": o.GVK.Version, "kind": o.GVK.Kind,
		})
		if got := describe(o); err != nil || got != string(raw) {
			t.Errorf("%+v: %q, want %q (%v)", o.GVK, got, raw, err)
		}
	}
	for _, w := range words {
		same(t, &Object{GVK: schema.GroupVersionKind{Group: "g", Version: "v1", Kind: "Job"}, Name: w, UID: uid})
		same(t, &Object{GVK: schema.GroupVersionKind{Group: "g", Version: "v1", Kind: "Job"}, Name: "n", UID: types.UID(w)})
		same(t, &Object{GVK: schema.GroupVersionKind{Group: w, Version: w, Kind: w}, Name: w, UID: types.UID(w)})
	}
	text := rapid.OneOf(rapid.SampledFrom(words), rapid.StringMatching(`[a-zA-Z0-9.-]{1,6}`), rapid.StringMatching(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`), rapid.StringMatching(`[ -~é]{0,20}`))
	rapid.Check(t, func(t *rapid.T) {
		same(t, &Object{
			GVK:  schema.GroupVersionKind{Group: text.Draw(t, "group"), Version: text.Draw(t, "version"), Kind: text.Draw(t, "kind")},
			Name: text.Draw(t, "name"), UID: types.UID(text.Draw(t, "uid")),
		})
	})
}

// BenchmarkDescribe is what it takes to describe a Job.
func BenchmarkDescribe(b *testing.B) {
	o := &Object{GVK: schema.GroupVersionKind{Group: "batch", Version: "v1", Kind: "Job"}, Name: "fill-17", UID: "5d5c9f7e-0a2b-4c3d-8e9f-aabbccddeeff"}
	b.ReportAllocs()
	for b.Loop() {
		describe(o)
	}
}
