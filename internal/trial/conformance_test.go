package trial

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const emptyCase = `{"id":"x/1","tags":["allocate"],"actions":["allocate"],"given":{"nodes":[],"queues":[],"gangs":[]},"expect":{}}`

func TestConformance(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "1.json"), []byte(emptyCase), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name, out, err string
		args           []string
	}{
		{"text", "passed 1 of 1\nledgered 0\n", "", []string{dir}},
		{"json", `"passed": 1`, "", []string{dir, "-o", "json"}},
		{"format", "", "--output is", []string{dir, "-o", "xml"}},
		{"nothing selected", "", "none of the 1", []string{dir, "--action", "reclaim"}},
		{"no folder", "", "reading behaviour cases", []string{filepath.Join(dir, "absent")}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			c := NewConformance()
			c.SetArgs(tc.args)
			c.SetOut(&out)
			c.SetErr(&out)
			err := c.Execute()
			if tc.err == "" && err != nil || tc.err != "" && (err == nil || !strings.Contains(err.Error(), tc.err)) {
				t.Errorf("error %v, want %q", err, tc.err)
			}
			if !strings.Contains(out.String(), tc.out) {
				t.Errorf("printed %q, want %q in it", out.String(), tc.out)
			}
		})
	}
}
