package trial

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/muster-scheduler/muster/internal/climb"
)

// TestClimb: bad flags and files are named; the runner answers a line with a line.
func TestClimb(t *testing.T) {
	t.Parallel()
	bad := filepath.Join(t.TempDir(), "bad.json")
	if err := os.WriteFile(bad, []byte(`{"found":"","genome":{"nodes":[]}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	const good = "../climb/testdata/cases/old_consolidation_queues.json"
	f, err := climb.ReadCase(good)
	if err != nil {
		t.Fatal(err)
	}
	ask, err := json.Marshal(climb.Ask{Genome: f.Genome, Cycles: 1, Runs: 1, Limit: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		args []string
		in   string
		out  string
		err  string
	}{
		{[]string{"search", "--nodes", "1"}, "", "", "--nodes is 1; it must be 8 to"},
		{[]string{"search", "--for", "0s"}, "", "", "must be above 0"},
		{[]string{"search", "-o", "xml"}, "", "", "--output is"},
		{[]string{"search", bad}, "", "", "bad.json: genome: nodes has 0 groups"},
		{[]string{"measure", bad}, "", "", "bad.json: genome: nodes has 0 groups"},
		{[]string{"measure", "--runner", "no-such-program", good}, "", "", "starting the runner"},
		{[]string{"runner"}, string(ask), `"cpuNanoseconds":`, ""},
		{[]string{"runner"}, "{", "", "reading what to measure"},
	} {
		t.Run(strings.Join(tc.args, " "), func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			c := NewClimb()
			c.SetArgs(tc.args)
			c.SetIn(strings.NewReader(tc.in))
			c.SetOut(&out)
			c.SetErr(&out)
			c.SilenceUsage, c.SilenceErrors = true, true
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
