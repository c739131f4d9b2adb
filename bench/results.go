package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/yaml"
)

// result is what was measured of a case, at its full size. results.yaml has one a case, in the order of cases.yaml.
type result struct {
	Case   string `json:"case"`
	Commit string `json:"commit"`
	Date   string `json:"date"`
	// Machine is what it ran on, in words: processors, memory, kernel; never a name.
	Machine string `json:"machine"`
	Command string `json:"command"`
	Rounds  int    `json:"rounds"`
	// Sides have the figures of each scheduler, by the keys of figureRows.
	Sides map[string]map[string]spread `json:"sides"`
}

// spread is a figure of several rounds.
type spread struct {
	Median float64 `json:"median"`
	Worst  float64 `json:"worst"`
}

// spreadOf a figure's values. The median of an even number is the worse one of the two in the middle.
func spreadOf(key string, values []float64) spread {
	all := slices.Sorted(slices.Values(values))
	if f, _ := figureOf(key); f.more {
		slices.Reverse(all)
	}
	return spread{Median: all[len(all)/2], Worst: all[len(all)-1]}
}

// verdict says whether a figure is what it should be; "" where nothing is said of it, or the other side is not there.
func (r *result) verdict(c *benchCase, f figure) string {
	want, ok := c.Reach[f.key]
	if !ok {
		return ""
	}
	mine, have := r.Sides[sideMuster][f.key]
	ratio, both := r.ratio(c, f)
	var reached bool
	switch {
	case want.Max != nil || want.Min != 0:
		if !have {
			return ""
		}
		reached = want.Max != nil && mine.Median <= *want.Max || want.Min != 0 && mine.Median >= want.Min || want.MinRatio != 0 && ratio >= want.MinRatio
	case !both:
		return ""
	case want.MaxMore != 0:
		reached = mine.Median <= r.Sides[c.reference()][f.key].Median+want.MaxMore
	default:
		reached = want.MaxRatio != 0 && ratio <= want.MaxRatio || want.MinRatio != 0 && ratio >= want.MinRatio
	}
	if reached {
		return "reached"
	}
	return "**not reached**"
}

// ratio is Muster's median divided by that of what it is compared with, where both are there and the latter is no less than a hundredth, below which clocks and rounding decide.
func (r *result) ratio(c *benchCase, f figure) (float64, bool) {
	mine, have := r.Sides[sideMuster][f.key]
	theirs, both := r.Sides[c.reference()][f.key]
	if !have || !both || theirs.Median < 0.01 {
		return 0, false
	}
	return mine.Median / theirs.Median, true
}

// words says what is to be reached.
func (w reach) words() string {
	switch {
	case w.Max != nil:
		return fmt.Sprintf("≤ %g", *w.Max)
	case w.Min != 0 && w.MinRatio != 0:
		return fmt.Sprintf("≥ %g, or ≥ %g ×", w.Min, w.MinRatio)
	case w.Min != 0:
		return fmt.Sprintf("≥ %g", w.Min)
	case w.MaxRatio != 0:
		return fmt.Sprintf("≤ %g ×", w.MaxRatio)
	case w.MaxMore != 0:
		return fmt.Sprintf("≤ + %g", w.MaxMore)
	}
	return fmt.Sprintf("≥ %g ×", w.MinRatio)
}

// table is the case's, in Markdown.
func (r *result) table(c *benchCase) string {
	var b strings.Builder
	mine := "Muster"
	if c.Seen {
		mine += ", the role ui beside"
	}
	fmt.Fprintf(&b, "| figure | %s | %s | ratio | reach | |\n|---|---|---|---|---|---|\n", mine, strings.Replace(c.reference(), "muster", "Muster", 1))
	for _, f := range figureRows {
		cells := []string{f.name}
		some := false
		for _, side := range []string{sideMuster, c.reference()} {
			s, ok := r.Sides[side][f.key]
			if !ok {
				cells = append(cells, "")
				continue
			}
			some = true
			cells = append(cells, fmt.Sprintf(f.format+" ("+f.format+")", s.Median, s.Worst))
		}
		if !some {
			continue
		}
		ratio, want := "", ""
		if v, ok := r.ratio(c, f); ok {
			ratio = fmt.Sprintf("%.2f", v)
		}
		if w, ok := c.Reach[f.key]; ok {
			want = w.words()
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", strings.Join(cells, " | "), ratio, want, r.verdict(c, f))
	}
	return b.String()
}

// page is what docs/operations/scale.md says of the results.
func page(cases []benchCase, results []result) string {
	var b strings.Builder
	for i := range cases {
		k := slices.IndexFunc(results, func(r result) bool { return r.Case == cases[i].Name })
		if k < 0 {
			continue
		}
		r := &results[k]
		fmt.Fprintf(&b, "### %s\n\n%s. `%s`, median (worst) of %d; commit `%s`, %s, %s.\n\n%s\n", r.Case, cases[i].About, r.Command, r.Rounds, r.Commit, r.Date, r.Machine, r.table(&cases[i]))
	}
	if b.Len() == 0 {
		return "No result is kept.\n\n"
	}
	return b.String()
}

// replaced are the results with one in the place of the case's former.
func replaced(all []result, r result) []result {
	out := slices.DeleteFunc(slices.Clone(all), func(o result) bool { return o.Case == r.Case })
	return append(out, r)
}

// readResults reads a file of results; one that is not there has none.
func readResults(name string) ([]result, error) {
	text, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the results: %w", err)
	}
	var out []result
	if err := yaml.UnmarshalStrict(text, &out); err != nil {
		return nil, fmt.Errorf("read the results: %s: %w", name, err)
	}
	return out, nil
}

func writeResults(name string, all []result) error {
	slices.SortFunc(all, func(a, b result) int { return strings.Compare(a.Case, b.Case) })
	text, err := yaml.Marshal(all)
	if err == nil {
		err = os.WriteFile(name, text, 0o644)
	}
	if err != nil {
		return fmt.Errorf("write the results: %w", err)
	}
	return nil
}

// originOf says which commit is measured, and where. A tree that is no commit is refused, but for the results and the page of them.
func originOf() (result, error) {
	changed, err := exec.Command("git", "status", "--porcelain", "--", ".", ":!bench/results.yaml", ":!docs/operations/scale.md").Output()
	if err != nil {
		return result{}, fmt.Errorf("git status: %w", err)
	}
	if len(changed) > 0 {
		return result{}, fmt.Errorf("the tree is no commit, and a result must name one; commit first:\n%s", changed)
	}
	head, err := exec.Command("git", "rev-parse", "--short=10", "HEAD").Output()
	if err != nil {
		return result{}, fmt.Errorf("git rev-parse: %w", err)
	}
	words := fmt.Sprintf("%d cores", runtime.NumCPU())
	if text, err := os.ReadFile("/proc/meminfo"); err == nil {
		var kib int64
		if _, err := fmt.Sscanf(string(text), "MemTotal: %d kB", &kib); err == nil {
			words += fmt.Sprintf(", %d GiB", (kib+1<<19)>>20)
		}
	}
	if text, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		version, _, _ := strings.Cut(strings.TrimSpace(string(text)), "-") // what follows is the builder's
		words += ", Linux " + version
	}
	return result{Commit: strings.TrimSpace(string(head)), Date: time.Now().UTC().Format(time.DateOnly), Machine: words}, nil
}
