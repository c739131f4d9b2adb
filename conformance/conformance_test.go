package conformance

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/muster-scheduler/muster/docs/ledgers"
)

// cases finds the behaviour cases beside the checkout; a test without them is skipped.
func cases(t *testing.T) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for range 6 {
		if d := filepath.Join(dir, "shared", "conformance"); isDir(d) {
			return d
		}
		dir = filepath.Dir(dir)
	}
	t.Skip("shared/conformance does not lie beside this checkout: nothing to compare with")
	return ""
}

// TestAllocate runs what the spine must do: action allocate without the features that come later.
func TestAllocate(t *testing.T) {
	dir := cases(t)
	for _, keep := range []bool{false, true} {
		r, err := Run(dir, Options{
			Actions: []string{"allocate"}, KeepNominations: keep,
			Without: []string{"gpusharing", "gpumemory", "mig", "dra", "numa", "topology", "affinity"},
		})
		if err != nil {
			t.Fatal(err)
		}
		var b strings.Builder
		if err := r.Print(&b); err != nil {
			t.Fatal(err)
		}
		if !r.OK() || r.Total != 33 {
			t.Errorf("keep nominations %v:\n%s", keep, b.String())
		} else {
			t.Logf("keep nominations %v: %s", keep, b.String())
		}
	}
}

// TestDisruption runs what the actions that evict must do, and every case of several rounds, without the features that
// come later.
func TestDisruption(t *testing.T) {
	dir := cases(t)
	for _, keep := range []bool{false, true} {
		r, err := Run(dir, Options{
			Actions: []string{"reclaim", "preempt", "consolidation", "stalegangeviction", "rounds"}, KeepNominations: keep,
			Without: []string{"gpusharing", "gpumemory", "mig", "dra", "numa", "topology", "affinity"},
		})
		if err != nil {
			t.Fatal(err)
		}
		var b strings.Builder
		if err := r.Print(&b); err != nil {
			t.Fatal(err)
		}
		if !r.OK() || r.Total != 140 || r.Passed < 133 {
			t.Errorf("keep nominations %v:\n%s", keep, b.String())
		} else {
			t.Logf("keep nominations %v: %s", keep, b.String())
		}
	}
}

// TestPlacement runs what is about where pods go: every difference is in the ledger.
func TestPlacement(t *testing.T) {
	dir := cases(t)
	for _, keep := range []bool{false, true} {
		r, err := Run(dir, Options{
			Tags: []string{"topology", "subgroups", "gpusharing", "gpumemory", "mig", "dra", "numa", "affinity"}, KeepNominations: keep,
		})
		if err != nil {
			t.Fatal(err)
		}
		var b strings.Builder
		if err := r.Print(&b); err != nil {
			t.Fatal(err)
		}
		if !r.OK() || r.Passed*100 < r.Total*95 {
			t.Errorf("keep nominations %v:\n%s", keep, b.String())
		} else {
			t.Logf("keep nominations %v: %s", keep, b.String())
		}
	}
}

// TestAllRun plays every case there is: each passes or is in the ledger. It prints the counts by tag.
func TestAllRun(t *testing.T) {
	dir := cases(t)
	r, err := Run(dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range r.Failures {
		t.Errorf("%s differs, or cannot be run: %v %s", f.ID, f.Mismatches, f.Error)
	}
	for _, e := range r.LedgerErrors {
		t.Error(e)
	}
	for _, tag := range slices.Sorted(maps.Keys(r.Tags)) {
		n := r.Tags[tag]
		t.Logf("%-18s passed %3d of %3d, ledgered %d", tag, n.Passed, n.Total, n.Ledgered)
	}
	t.Attr("cases", fmt.Sprintf("%d of %d pass, %d in the ledger", r.Passed, r.Total, r.Ledgered))
}

const someCase = `{"id":"x/1","title":"t","tags":["allocate"],"actions":["allocate"],"defaultStalenessGraceSeconds":0,
 "given":{"nodes":[{"name":"n","gpus":2,"cpuMilli":1000,"memoryBytes":1000,"podSlots":10,"gpuMemoryMiB":100}],
 "queues":[{"name":"q","createdAt":0,"gpu":{"quota":"unlimited","limit":"unlimited","overQuotaWeight":1},
  "cpu":{"quota":"unlimited","limit":"unlimited","overQuotaWeight":1},"memory":{"quota":"unlimited","limit":"unlimited","overQuotaWeight":1}}],
 "gangs":[{"name":"g","queue":"q","priority":50,"ageSeconds":1,"perPod":{"gpus":1,"cpuMilli":1,"memoryBytes":1},
  "tree":{"members":[{"name":"default","minMember":1}]},"pods":[{"name":"g-0","status":"Pending"}]}]},
 "expect":{"gangs":{"g":{"status":"STATUS","gpusRequired":1}},"atMost":{"binds":1,"evictions":0,"pipelined":0}}}`

func write(t *testing.T, status string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "1.json"), []byte(strings.Replace(someCase, "STATUS", status, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestVerdicts(t *testing.T) {
	t.Parallel()
	row := ledgers.Case{ID: "x/1", Why: "w", Scenario: "s"}
	for _, tc := range []struct {
		name, status             string
		rows                     []ledgers.Case
		passed, ledgered, errors int
		ok                       bool
	}{
		{"match", "Binding", nil, 1, 0, 0, true},
		{"difference", "Pending", nil, 0, 0, 0, false},
		{"accepted difference", "Pending", []ledgers.Case{row}, 0, 1, 0, true},
		{"row without difference", "Binding", []ledgers.Case{row}, 1, 0, 1, false},
		{"row without case", "Binding", []ledgers.Case{{ID: "x/2"}}, 1, 0, 1, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			r, err := runCases(write(t, tc.status), Options{}, tc.rows)
			if err != nil {
				t.Fatal(err)
			}
			if r.Passed != tc.passed || r.Ledgered != tc.ledgered || len(r.LedgerErrors) != tc.errors || r.OK() != tc.ok {
				t.Errorf("got %+v", r)
			}
		})
	}
}

func TestPrint(t *testing.T) {
	t.Parallel()
	r, err := runCases(write(t, "Pending"), Options{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	if err := r.Print(&b); err != nil {
		t.Fatal(err)
	}
	want := `FAIL x/1
  given
    node n  [..] cpu=1000m
    queue q  gpu quota=unlimited limit=unlimited weight=1
    A gang g  queue=q priority=50 age=1s  tree=(default≥1)
        g-0 Pending gpu=1 cpu=1m
  expected
    pod g-0  Pending
  got
    pod g-0  Binding on n
  decided
    default/g: placed 1, nominated 0, ok

passed 0 of 1
ledgered 0
`
	if b.String() != want {
		t.Errorf("got:\n%s\nwant:\n%s", b.String(), want)
	}
}

// TestLedgerScenarios: what the ledger says about us is pinned by a scenario that exists.
func TestLedgerScenarios(t *testing.T) {
	t.Parallel()
	rows, err := ledgers.Cases()
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rows {
		if _, err := os.Stat(filepath.Join("..", "scenarios", r.Scenario)); err != nil {
			t.Errorf("%s: %v", r.ID, err)
		}
	}
}
