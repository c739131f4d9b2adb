// Command status writes docs/status.md: what is claimed (claims.yaml, which people write), each with the commands that show it, and what
// came of them (results/ID.yaml, which this program leaves).
//
//	go run ./docs/status           write the page of the claims and results that are here (make status)
//	go run ./docs/status ID…       first run the commands of these claims, as they stand there, and leave their results
//
// A result says the commit, so a tree that differs from its commit is refused, but for this folder and the page. Commands run with -v and
// -count=1, so that a test's attributes (testing.T.Attr), benchmarks and skipped tests are seen, and no answer is an earlier run's; a command of the lab wants `make build` first.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"time"

	"sigs.k8s.io/yaml"
)

// Claims is the file claims.yaml.
type Claims struct {
	Works    []Capability `json:"works"`
	NotYet   []Row        `json:"notYet"`
	Promises []Row        `json:"promises"`
	Measured []Claim      `json:"measured"`
}

// Capability is a section of what works.
type Capability struct {
	Title  string  `json:"title"`
	Claims []Claim `json:"claims"`
}

// Claim is one sentence, with links to pages as from docs/, and the shell commands that show it, each run at the root of the repository.
type Claim struct {
	ID    string   `json:"id"`
	Title string   `json:"title,omitempty"` // of what is measured
	What  string   `json:"what"`
	Run   []string `json:"run"`
}

// Row is a row of the tables that have two columns.
type Row struct {
	What string `json:"what"`
	Then string `json:"then"`
}

// Result is what came of a claim's commands once. A file has at most one of each kind.
type Result struct {
	// Commit is what was run. "before COMMIT" is a result that was on the page before results were files: an upper bound is all that is known.
	Commit string `json:"commit"`
	Date   string `json:"date,omitempty"`
	// Machine is what it ran on, in words: processors, memory, system, never a name.
	Machine string `json:"machine,omitempty"`
	Passed  int    `json:"passed,omitempty"` // tests, with those below them
	Skipped int    `json:"skipped,omitempty"`
	Took    string `json:"took,omitempty"`
	// Failed are commands that did not end well.
	Failed  []string `json:"failed,omitempty"`
	Figures []string `json:"figures,omitempty"`
	Table   string   `json:"table,omitempty"` // in Markdown
}

const (
	folder = "docs/status"
	page   = "docs/status.md"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "status:", err)
		os.Exit(1)
	}
}

func run(ids []string) error {
	if _, err := os.Stat(folder); err != nil {
		return fmt.Errorf("run it at the root of the repository: %w", err)
	}
	claims, results, err := read(folder)
	if err != nil {
		return err
	}
	for _, id := range ids {
		if claims.find(id) == nil {
			return fmt.Errorf("claims.yaml has no claim %q", id)
		}
	}
	failed := false
	for _, id := range ids {
		commit, err := cleanCommit()
		if err != nil {
			return err
		}
		r := claims.find(id).show(os.Stdout)
		r.Commit, r.Date, r.Machine = commit, time.Now().UTC().Format(time.DateOnly), machine()
		failed = failed || len(r.Failed) > 0
		kept := []Result{}
		for _, old := range results[id] {
			if strings.HasPrefix(old.Commit, "before ") {
				kept = append(kept, old)
			}
		}
		results[id] = append(kept, r)
		data, err := yaml.Marshal(results[id])
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(folder, "results", id+".yaml"), data, 0o644); err != nil {
			return err
		}
	}
	if err := os.WriteFile(page, []byte(claims.page(results)), 0o644); err != nil {
		return err
	}
	if failed {
		return errors.New("a command failed; the results say which")
	}
	return nil
}

// read returns the claims and results of a folder, results by the claim's id.
func read(folder string) (Claims, map[string][]Result, error) {
	var claims Claims
	data, err := os.ReadFile(filepath.Join(folder, "claims.yaml"))
	if err != nil {
		return claims, nil, err
	}
	if err := yaml.UnmarshalStrict(data, &claims); err != nil {
		return claims, nil, fmt.Errorf("claims.yaml: %w", err)
	}
	files, err := filepath.Glob(filepath.Join(folder, "results", "*.yaml"))
	if err != nil {
		return claims, nil, err
	}
	results := map[string][]Result{}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return claims, nil, err
		}
		var one []Result
		if err := yaml.UnmarshalStrict(data, &one); err != nil {
			return claims, nil, fmt.Errorf("%s: %w", file, err)
		}
		results[strings.TrimSuffix(filepath.Base(file), ".yaml")] = one
	}
	return claims, results, nil
}

// all are the claims that have commands.
func (c *Claims) all() (out []*Claim) {
	for i := range c.Works {
		for j := range c.Works[i].Claims {
			out = append(out, &c.Works[i].Claims[j])
		}
	}
	for i := range c.Measured {
		out = append(out, &c.Measured[i])
	}
	return out
}

// find is the claim of an id; nil for none.
func (c *Claims) find(id string) *Claim {
	for _, claim := range c.all() {
		if claim.ID == id {
			return claim
		}
	}
	return nil
}

// show runs the claim's commands, in their order, and says what came of them. What they print goes to out, too.
func (c *Claim) show(out io.Writer) Result {
	var r Result
	start := time.Now()
	for _, command := range c.Run {
		fmt.Fprintln(out, "$", command)
		var said strings.Builder
		cmd := exec.Command("bash", "-euo", "pipefail", "-c", command)
		cmd.Env = append(os.Environ(), "GOFLAGS="+strings.TrimSpace(os.Getenv("GOFLAGS")+" -v -count=1"))
		for name, binary := range map[string]string{"MUSTER_BINARY": "bin/muster", "MUSTER_LAB_BINARY": "bin/muster-lab"} { // order: each on its own
			if full, err := filepath.Abs(binary); err == nil && os.Getenv(name) == "" {
				cmd.Env = append(cmd.Env, name+"="+full)
			}
		}
		cmd.Stdout, cmd.Stderr = io.MultiWriter(&said, out), os.Stderr
		if err := cmd.Run(); err != nil {
			r.Failed = append(r.Failed, command)
		}
		r.read(said.String())
	}
	r.Took = time.Since(start).Round(time.Second).String()
	return r
}

var (
	verdict   = regexp.MustCompile(`^\s*--- (PASS|SKIP): `)
	attribute = regexp.MustCompile(`^=== ATTR\s+\S+ (\S+) (.+)$`)
	benchmark = regexp.MustCompile(`^Benchmark(\S+?)(?:-\d+)?\s+\d+\s+([\d.]+) ns/op`)
)

// read counts the tests in what a command printed, and takes out its figures: attributes of tests, and times of benchmarks.
func (r *Result) read(said string) {
	for line := range strings.Lines(said) {
		line = strings.TrimRight(line, "\n")
		if m := verdict.FindStringSubmatch(line); m != nil && m[1] == "PASS" {
			r.Passed++
		} else if m != nil {
			r.Skipped++
		}
		if m := attribute.FindStringSubmatch(line); m != nil {
			r.Figures = append(r.Figures, m[1]+" "+m[2])
		}
		if m := benchmark.FindStringSubmatch(line); m != nil {
			ns, err := strconv.ParseFloat(m[2], 64)
			if err == nil {
				r.Figures = append(r.Figures, m[1]+" "+time.Duration(ns).Round(time.Microsecond).String())
			}
		}
	}
}

// cleanCommit is the commit that the tree is, this folder and the page aside; an error where it is none.
func cleanCommit() (string, error) {
	changed, err := exec.Command("git", "status", "--porcelain", "--", ".", ":!"+folder, ":!"+page).Output()
	if err != nil {
		return "", fmt.Errorf("git status: %w", err)
	}
	if len(changed) > 0 {
		return "", fmt.Errorf("the tree is no commit, and a result must name one; commit first:\n%s", changed)
	}
	head, err := exec.Command("git", "rev-parse", "--short=10", "HEAD").Output()
	return strings.TrimSpace(string(head)), err
}

// machine is what this runs on, in words.
func machine() string {
	words := strconv.Itoa(runtime.NumCPU()) + " cores"
	if data, err := os.ReadFile("/proc/meminfo"); err == nil {
		var kib int64
		if _, err := fmt.Sscanf(string(data), "MemTotal: %d kB", &kib); err == nil {
			words += fmt.Sprintf(", %d GiB", (kib+1<<19)>>20)
		}
	}
	return words + ", " + runtime.GOOS + "/" + runtime.GOARCH
}
