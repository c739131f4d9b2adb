package spec

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseYAML(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		text string
		want any
	}{
		{"", nil},
		{"a: [1, 2.5, yes, 'yes', ~, 0644]", map[string]any{"a": []any{int64(1), 2.5, true, "yes", nil, int64(420)}}},
		{"1: x\ntrue: y", map[string]any{"1": "x", "true": "y"}},
		{"a: 1\na: 2", map[string]any{"a": int64(2)}},
		{"d: 2001-01-01", map[string]any{"d": "2001-01-01"}},
		{"n: .nan", map[string]any{"n": ".nan"}},
		{"base: &b {x: 1, y: 2}\nc: {<<: *b, y: 3}", map[string]any{
			"base": map[string]any{"x": int64(1), "y": int64(2)}, "c": map[string]any{"x": int64(1), "y": int64(3)},
		}},
		{"text: |\n  #!/bin/sh\n  echo\n", map[string]any{"text": "#!/bin/sh\necho\n"}},
		{"big: 18446744073709551615", map[string]any{"big": uint64(18446744073709551615)}},
		{`{"json": {"too": true}}`, map[string]any{"json": map[string]any{"too": true}}},
	} {
		got, err := ParseYAML([]byte(test.text))
		if err != nil {
			t.Errorf("%q: %v", test.text, err)
			continue
		}
		if d := cmp.Diff(test.want, got); d != "" {
			t.Errorf("%q: %s", test.text, d)
		}
	}
}

// TestYAMLBounds: a text of a few lines cannot grow, nor contain itself.
func TestYAMLBounds(t *testing.T) {
	t.Parallel()
	var laughs strings.Builder
	fmt.Fprint(&laughs, "a0: &a0 [lol,lol,lol,lol,lol,lol,lol,lol,lol]\n")
	for i := 1; i < 12; i++ {
		one := fmt.Sprintf("*a%d", i-1)
		fmt.Fprintf(&laughs, "a%d: &a%d [%s]\n", i, i, strings.Join([]string{one, one, one, one, one, one, one, one, one}, ","))
	}
	for text, want := range map[string]string{
		laughs.String():             "must have at most 65536 nodes with its aliases followed",
		"a: &a [*a]":                "",
		strings.Repeat("[", 100):    "",
		strings.Repeat("[", 200000): "",
		"{a: " + strings.Repeat("[", 40) + strings.Repeat("]", 40) + "}": "must not be deeper than 32 levels",
		"? [a]\n: b":               "a key must be a plain value",
		"a: {<<: 3}":               "what is merged must be a map",
		"\xff":                     "must be UTF-8",
		strings.Repeat("x", 2<<20): "must be at most 1048576 bytes, has 2097152",
		"*nowhere":                 "",
	} {
		v, err := ParseYAML([]byte(text))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q gives %v, %v; want an error with %q", Short(text), v, err, want)
		}
	}
}

// TestMerge is the rule of user-data: maps key by key, lists appended, everything else replaced.
func TestMerge(t *testing.T) {
	t.Parallel()
	parse := func(text string) map[string]any {
		m, err := ParseYAMLMap([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	for _, test := range []struct{ base, over, want string }{
		{"{a: 1, b: {c: 1, d: [1]}}", "{b: {d: [2], e: 3}, f: 4}", "{a: 1, b: {c: 1, d: [1, 2], e: 3}, f: 4}"},
		{"{a: [1]}", "{a: {b: 1}}", "{a: {b: 1}}"},
		{"{a: {b: 1}}", "{a: text}", "{a: text}"},
		{"{a: 1}", "{a: ~}", "{a: ~}"},
		{"{}", "{}", "{}"},
	} {
		base, over := parse(test.base), parse(test.over)
		got := Merge(base, over)
		if d := cmp.Diff(parse(test.want), got); d != "" {
			t.Errorf("%s and %s: %s", test.base, test.over, d)
		}
		if d := cmp.Diff(parse(test.base), base) + cmp.Diff(parse(test.over), over); d != "" {
			t.Errorf("merging %s and %s changed them: %s", test.base, test.over, d)
		}
	}
}

// FuzzYAML: no text makes the reader fail otherwise than by an error; what it gives is in bounds, is JSON, and merges by the rule.
func FuzzYAML(f *testing.F) {
	for _, seed := range []string{"a: 1", "a: &a [*a]", "{a: [1, {b: ~}]}", "<<: {a: 1}\n", "a: !!binary aGk=", "- - - -", "a: .inf", "? a", "a: *b", "--- a\n--- b"} {
		f.Add([]byte(seed), []byte("a: {b: [2]}"))
	}
	f.Fuzz(func(t *testing.T, one, two []byte) {
		a, errA := ParseYAMLMap(one)
		b, errB := ParseYAMLMap(two)
		if errA != nil || errB != nil {
			return
		}
		if n, depth := measure(a); n > maxYAMLNodes || depth > maxYAMLDepth+1 {
			t.Errorf("%d nodes, %d levels", n, depth)
		}
		if _, err := json.Marshal(a); err != nil {
			t.Errorf("no JSON: %v", err)
		}
		merged := Merge(a, b)
		for k, v := range b { // the rule again, at the top level only
			switch v := v.(type) {
			case map[string]any:
				for inner := range v {
					if _, ok := merged[k].(map[string]any)[inner]; !ok {
						t.Errorf("%s.%s is lost", k, inner)
					}
				}
			case []any:
				want := len(v)
				if list, ok := a[k].([]any); ok {
					want += len(list)
				}
				if got := len(merged[k].([]any)); got != want {
					t.Errorf("%s has %d entries, want %d", k, got, want)
				}
			default:
				if !cmp.Equal(merged[k], v) {
					t.Errorf("%s is %v, want %v", k, merged[k], v)
				}
			}
		}
		for k := range a {
			if _, ok := merged[k]; !ok {
				t.Errorf("%s is lost", k)
			}
		}
	})
}

func measure(v any) (nodes, depth int) {
	var children []any
	switch v := v.(type) {
	case map[string]any:
		for _, child := range v {
			children = append(children, child)
		}
	case []any:
		children = v
	}
	for _, child := range children {
		n, d := measure(child)
		nodes, depth = nodes+n, max(depth, d)
	}
	return nodes + 1, depth + 1
}
