package main

import (
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestPage: status.md is what claims and results give.
func TestPage(t *testing.T) {
	t.Parallel()
	claims, results, err := read(".")
	if err != nil {
		t.Fatal(err)
	}
	have, err := os.ReadFile("../status.md")
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(claims.page(results), string(have)); d != "" {
		t.Errorf("docs/status.md is not what docs/status/claims.yaml and docs/status/results give; run make status (-want +have):\n%s", d)
	}
}

// TestClaims: each claim is one sentence with a command, each result is of a claim and says where it comes from.
func TestClaims(t *testing.T) {
	t.Parallel()
	claims, results, err := read(".")
	if err != nil {
		t.Fatal(err)
	}
	ids := map[string]bool{}
	for _, claim := range claims.all() {
		if ids[claim.ID] || !regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`).MatchString(claim.ID) {
			t.Errorf("claim %q: its id is not small words with hyphens, or is another's too", claim.ID)
		}
		ids[claim.ID] = true
		if len(claim.Run) == 0 {
			t.Errorf("claim %s: a line without a command is not a claim", claim.ID)
		}
		if claim.Title == "" && (strings.Count(claim.What, "\n") > 0 || len(claim.What) > 330) {
			t.Errorf("claim %s: has %d bytes; one sentence will do, the rest belongs to a page that it links to", claim.ID, len(claim.What))
		}
	}
	commit := regexp.MustCompile(`^(before )?[0-9a-f]{7,40}$`)
	day := regexp.MustCompile(`^\d{4}-\d\d-\d\d$`)
	for id, all := range results { // order: each on its own
		if !ids[id] {
			t.Errorf("results/%s.yaml: no claim has this id: it came to nothing", id)
		}
		before, fresh := 0, 0
		for _, r := range all {
			m := commit.FindStringSubmatch(r.Commit)
			switch {
			case m == nil:
				t.Errorf("results/%s.yaml: the commit must be COMMIT or before COMMIT, not %q", id, r.Commit)
			case m[1] != "":
				before++
			default:
				if fresh++; !day.MatchString(r.Date) || r.Machine == "" || r.Took == "" {
					t.Errorf("results/%s.yaml: a result at a commit says date, machine and how long it took", id)
				}
			}
			if strings.ContainsAny(r.Machine, `/\`) && !regexp.MustCompile(`[a-z]+/[a-z0-9]+$`).MatchString(r.Machine) {
				t.Errorf("results/%s.yaml: the machine is said in words, not as %q", id, r.Machine)
			}
		}
		if before > 1 || fresh > 1 || before+fresh == 0 {
			t.Errorf("results/%s.yaml: has %d results from before and %d others, want at most one of each, and one", id, before, fresh)
		}
	}
}

// TestRead: what a command prints becomes counts and figures.
func TestRead(t *testing.T) {
	t.Parallel()
	var r Result
	r.read("=== RUN   TestA\n=== ATTR  TestA cases 292 of 300\n--- PASS: TestA (0.00s)\n    --- PASS: TestA/x (0.00s)\n    --- SKIP: TestA/y (0.00s)\n" +
		"BenchmarkPlace/nodes=5000-2 \t      10\t 14250499 ns/op\t 12 B/op\nok x 1s\nthe line --- PASS: is none\n")
	want := Result{Passed: 2, Skipped: 1, Figures: []string{"cases 292 of 300", "Place/nodes=5000 14.25ms"}}
	if d := cmp.Diff(want, r); d != "" {
		t.Error(d)
	}
}

// TestShow: a command that fails is said, what it printed before counts, and the next one runs.
func TestShow(t *testing.T) {
	t.Parallel()
	c := Claim{Run: []string{"echo '--- PASS: TestA'; false", "echo '--- PASS: TestB'"}}
	var said strings.Builder
	r := c.show(&said)
	if r.Passed != 2 || len(r.Failed) != 1 || r.Failed[0] != c.Run[0] || r.Took == "" || !strings.Contains(said.String(), "$ "+c.Run[1]) {
		t.Errorf("%+v of %q", r, said.String())
	}
	r.Commit, r.Took = "0123456789", "0s" // however long it took
	if got := r.cell(); !strings.HasPrefix(got, "**failed: `echo '--- PASS: TestA'; false`** in 0s (at `0123456789`)") {
		t.Errorf("shown as %q", got)
	}
	for want, r := range map[string]Result{ // order: each on its own
		"a; 2 tests passed, 1 NOT CHECKED in 3s (at `c`, 2026-01-02, 2 cores)": {Commit: "c", Date: "2026-01-02", Machine: "2 cores", Passed: 2, Skipped: 1, Took: "3s", Figures: []string{"a"}},
		"NOT CHECKED in 1s (at `c`)": {Commit: "c", Skipped: 1, Took: "1s"},
		"passed in 1s (at `c`)":      {Commit: "c", Took: "1s"},
		"a (before `c`)":             {Commit: "before c", Figures: []string{"a"}},
	} {
		if got := r.cell(); got != want {
			t.Errorf("shown as %q, want %q", got, want)
		}
	}
}

// TestCommits: the commits that results name are in the history, and those of docs/contributing/adding.md touched as many files as it says.
// A checkout without all of its history cannot tell.
func TestCommits(t *testing.T) {
	t.Parallel()
	shallow, err := exec.Command("git", "rev-parse", "--is-shallow-repository").Output()
	if err != nil || strings.TrimSpace(string(shallow)) != "false" {
		t.Skip("NOT CHECKED: no history here, or not all of it, to look up commits in")
	}
	filesOf := func(commit string) int {
		names, err := exec.Command("git", "show", "--format=", "--name-only", commit+"^{commit}", "--").Output()
		if err != nil {
			t.Errorf("there is no commit %s: take the one that came of it (git log)", commit)
		}
		return strings.Count(string(names), "\n")
	}
	_, results, err := read(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, all := range results { // order: each on its own
		for _, r := range all {
			filesOf(strings.TrimPrefix(r.Commit, "before "))
		}
	}
	page, err := os.ReadFile("../contributing/adding.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile("`([0-9a-f]{7,40})`(?: \\| (\\d+) \\|)?").FindAllStringSubmatch(string(page), -1) {
		if n := filesOf(m[1]); m[2] != "" && m[2] != strconv.Itoa(n) {
			t.Errorf("docs/contributing/adding.md: %s touched %d files, not %s", m[1], n, m[2])
		}
	}
}
