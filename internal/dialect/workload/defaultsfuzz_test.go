package workload

import "testing"

// FuzzKindDefaults: the ConfigMap of defaults per kind is taken or refused; what is taken is about some kind.
func FuzzKindDefaults(f *testing.F) {
	for _, seed := range []string{`[{"typeName":"Job","group":"batch","priorityName":"build","preemptibility":"never"}]`, `[{}]`, `{}`, `[`, ``} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		kinds, err := ParseKindDefaults(text)
		if _, nothing := kinds[""]; err == nil && nothing {
			t.Fatal("defaults of nothing")
		}
	})
}
