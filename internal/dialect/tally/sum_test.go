package tally

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"pgregory.net/rapid"
)

// list builds a resource list from names and amounts in turn.
func list(pairs ...string) corev1.ResourceList {
	out := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		out[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return out
}

func written(t interface {
	Helper()
	Fatal(...any)
}, l corev1.ResourceList,
) string {
	t.Helper()
	b, err := json.Marshal(l)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestSumShowsWhatItHolds(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		add, sub []corev1.ResourceList
		want     string
	}{
		"nothing":                  {want: `null`},
		"one":                      {add: []corev1.ResourceList{list("cpu", "1500m")}, want: `{"cpu":"1500m"}`},
		"memory is binary":         {add: []corev1.ResourceList{list("memory", "1024M"), list("memory", "1024M")}, want: `{"memory":"2000000Ki"}`},
		"others are decimal":       {add: []corev1.ResourceList{list("nvidia.com/gpu", "1Ki")}, want: `{"nvidia.com/gpu":"1024"}`},
		"zeros are left out":       {add: []corev1.ResourceList{list("cpu", "0", "memory", "1Gi")}, want: `{"memory":"1Gi"}`},
		"taken out again":          {add: []corev1.ResourceList{list("cpu", "1")}, sub: []corev1.ResourceList{list("cpu", "1000m")}, want: `null`},
		"never below zero":         {sub: []corev1.ResourceList{list("cpu", "1")}, want: `null`},
		"capped as stored":         {add: []corev1.ResourceList{list("x/y", "8E"), list("x/y", "8E")}, want: `{"x/y":"9223372036854775807"}`},
		"back from beyond 64 bits": {add: []corev1.ResourceList{list("x/y", "8E"), list("x/y", "8E")}, sub: []corev1.ResourceList{list("x/y", "8E")}, want: `{"x/y":"8E"}`},
		"thirds stay exact":        {add: []corev1.ResourceList{list("nvidia.com/gpu", "0.333"), list("nvidia.com/gpu", "0.667")}, want: `{"nvidia.com/gpu":"1"}`},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var s Sum
			for _, l := range tc.add {
				s.Add(l)
				s.AddAmounts(Of(l)) // and out again: the same, in the same steps
				s.SubAmounts(Of(l))
			}
			for _, l := range tc.sub {
				s.Sub(l)
			}
			if d := cmp.Diff(tc.want, written(t, s.List())); d != "" {
				t.Error(d)
			}
		})
	}
}

// The lists put in are shared with informers: whatever the sum does later must not reach them.
func TestSumKeepsItsHandsOffItsInput(t *testing.T) {
	t.Parallel()
	huge := list("x/y", "8E", "cpu", "1n")
	before := written(t, huge)
	var s Sum
	s.Add(huge)
	s.Add(huge)
	out := s.List()
	shown := written(t, out)
	s.Sub(huge)
	s.Add(huge)
	s.Add(huge)
	if d := cmp.Diff(before, written(t, huge)); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff(shown, written(t, out)); d != "" {
		t.Errorf("a list handed out changed: %s", d)
	}
}

func TestDiffIsTheMergePatch(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		observed, desired corev1.ResourceList
		want              map[string]any
	}{
		"both empty":        {},
		"nil and empty":     {observed: list()},
		"written otherwise": {observed: list("cpu", "1000m", "memory", "1024Mi"), desired: list("cpu", "1", "memory", "1Gi")},
		"new":               {desired: list("cpu", "1"), want: map[string]any{"cpu": "1"}},
		"gone":              {observed: list("cpu", "1", "memory", "1Gi"), desired: list("cpu", "1"), want: map[string]any{"memory": nil}},
		"other":             {observed: list("cpu", "1"), desired: list("cpu", "2"), want: map[string]any{"cpu": "2"}},
		"a zero is removed": {observed: list("cpu", "0"), want: map[string]any{"cpu": nil}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if d := cmp.Diff(tc.want, Diff(tc.observed, tc.desired)); d != "" {
				t.Error(d)
			}
			if (tc.want == nil) != Equal(tc.observed, tc.desired) {
				t.Error("Equal disagrees with Diff")
			}
		})
	}
}

func TestAccepted(t *testing.T) {
	t.Parallel()
	if d := cmp.Diff(`{"memory":"1Gi"}`, written(t, Accepted(list("cpu", "-1", "memory", "1Gi")))); d != "" {
		t.Error(d)
	}
}

// quantities are such as users write, the absurd ones included.
var quantities = []string{"0", "1n", "1m", "100m", "0.333", "1", "1500m", "3", "500M", "1Gi", "1Ti", "8E", "9223372036854775807"}

func anyList(t *rapid.T, label string) corev1.ResourceList {
	names := rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"cpu", "memory", "nvidia.com/gpu"}), 0, 3, rapid.ID[string]).Draw(t, label)
	out := corev1.ResourceList{}
	for _, name := range names {
		out[corev1.ResourceName(name)] = resource.MustParse(rapid.SampledFrom(quantities).Draw(t, name))
	}
	return out
}

func TestSumDependsOnItsContentsOnly(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var grown Sum
		var kept Amounts
		var in []corev1.ResourceList
		for range rapid.IntRange(0, 30).Draw(t, "steps") {
			if len(in) > 0 && rapid.Bool().Draw(t, "sub") {
				i := rapid.IntRange(0, len(in)-1).Draw(t, "which")
				grown.Sub(in[i])
				kept = kept.Minus(Of(in[i]))
				in = append(in[:i], in[i+1:]...)
				continue
			}
			l := anyList(t, "list")
			grown.Add(l)
			was := written(t, kept.List())
			more := kept.Plus(Of(l))
			if now := written(t, kept.List()); now != was {
				t.Fatalf("amounts that were %s are %s after others were put in", was, now)
			}
			kept = more
			in = append(in, l)
		}
		var fresh Sum
		for i := range in {
			fresh.Add(in[len(in)-1-i])
		}
		got, want := grown.List(), fresh.List()
		if !Equal(got, want) || Diff(got, want) != nil {
			t.Fatalf("grown %v, fresh %v", got, want)
		}
		if g, w := written(t, got), written(t, want); g != w {
			t.Fatalf("grown %s, fresh %s", g, w)
		}
		if k, w := written(t, kept.List()), written(t, want); k != w || kept.Empty() != fresh.Empty() {
			t.Fatalf("amounts %s, sum %s", k, w)
		}
		var stored corev1.ResourceList
		if err := json.Unmarshal([]byte(written(t, want)), &stored); err != nil {
			t.Fatal(err)
		}
		if !Equal(stored, want) {
			t.Fatalf("stored %v, shown %v: a controller would write for ever", stored, want)
		}
	})
}

func BenchmarkReplace(b *testing.B) {
	var s Sum
	l := list("cpu", "1", "memory", "8Gi", "nvidia.com/gpu", "1")
	s.Add(l)
	b.ReportAllocs()
	for b.Loop() {
		s.Add(l)
		s.Sub(l)
	}
}

// TestListsAreBounded: names of resources are whatever tenants write into pods that wait. However many there are, what is shown of a sum
// fits into an object, is always the same, and has what nodes and quotas know.
func TestListsAreBounded(t *testing.T) {
	t.Parallel()
	var s Sum
	usual := list("cpu", "1", "memory", "1Gi", "nvidia.com/gpu", "1", "run.ai/gpu.memory", "1", "hugepages-2Mi", "1Gi", "nvidia.com/mig-1g.5gb", "1", "amd.com/gpu", "1")
	many := corev1.ResourceList{}
	for i := range 5 * MaxNames {
		many[corev1.ResourceName(fmt.Sprintf("a.example.com/r%04d", i))] = resource.MustParse("1")
	}
	s.Add(many)
	s.Add(usual)
	shown := s.List()
	if len(shown) != MaxNames {
		t.Errorf("%d names are shown", len(shown))
	}
	for name := range usual {
		if _, ok := shown[name]; !ok {
			t.Errorf("%s is not among them", name)
		}
	}
	if _, ok := shown["a.example.com/r0000"]; !ok {
		t.Error("of the others, not the first by name are shown")
	}
	if d := cmp.Diff(written(t, shown), written(t, s.List())); d != "" {
		t.Error(d)
	}
	if got := Accepted(many); len(got) != MaxNames {
		t.Errorf("of a list of %d, %d names are taken in", len(many), len(got))
	}
	s.Sub(many)
	if d := cmp.Diff(written(t, usual), written(t, s.List())); d != "" {
		t.Error(d)
	}
}
