package conformity

import (
	"bufio"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// The verdicts of a table: see the package's comment.
const (
	passes = "passes"
	cannot = "cannot"
	fails  = "fails"
)

// The tables.
const (
	direct  = "testdata/direct.tsv"
	proxied = "testdata/proxied.tsv"
)

// spec is one of critest's, as its report has it.
type spec struct {
	ContainerHierarchyTexts []string
	LeafNodeType            string
	LeafNodeText            string
	State                   string
	RunTime                 time.Duration
	Failure                 struct{ Message string }
}

// name is what a focus is compared with.
func (s *spec) name() string {
	return strings.Join(append(append([]string(nil), s.ContainerHierarchyTexts...), s.LeafNodeText), " ")
}

// row is what is expected of a spec. One that fails says a part of its failure, so that it is seen when it fails for another reason.
type row struct{ verdict, name, reason, says string }

// table reads one of testdata's: a line for each spec, with verdict, name, reason and a part of its failure between tabs.
func table(t *testing.T, file string) []row {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var rows []row
	seen := map[string]bool{}
	s := bufio.NewScanner(f)
	for n := 1; s.Scan(); n++ {
		if s.Text() == "" || strings.HasPrefix(s.Text(), "#") {
			continue
		}
		part := strings.Split(s.Text(), "\t")
		columns := map[string]int{passes: 2, cannot: 3, fails: 4}[part[0]]
		if len(part) != columns || slices.Contains(part, "") || seen[part[1]] {
			t.Fatalf("%s:%d: must be a verdict, a name that no other line has, a reason unless it passes, and if it fails a part of its failure, with tabs between them", file, n)
		}
		part = append(part, "", "")
		r := row{part[0], part[1], part[2], part[3]}
		seen[r.name] = true
		rows = append(rows, r)
	}
	if err := s.Err(); err != nil {
		t.Fatal(err)
	}
	return rows
}

// focus is the regular expression of those that are to run. The suite puts its own name and a space before theirs.
func focus(rows []row) string {
	var all []string
	for _, r := range rows {
		if r.verdict != cannot {
			all = append(all, " "+regexp.QuoteMeta(r.name)+"$")
		}
	}
	return strings.Join(all, "|")
}

// judge holds what the suite says against a table.
func judge(rows []row, specs []spec) (problems []string) {
	bad := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	found := map[string]spec{}
	for _, s := range specs {
		found[s.name()] = s
	}
	for _, r := range rows {
		s, ok := found[r.name]
		delete(found, r.name)
		switch {
		case !ok:
			bad("the table has %q, and the suite has it no more", r.name)
		case r.verdict == passes && s.State != "passed":
			bad("%q passed once and now it is %s, after %v: %s", r.name, s.State, s.RunTime, s.Failure.Message)
		case r.verdict == fails && s.State == "passed":
			bad("%q passes: the table says that it does not (%s)", r.name, r.reason)
		case r.verdict == fails && s.State != "failed":
			bad("%q is %s and was to be run", r.name, s.State)
		case r.verdict == fails && !strings.Contains(s.Failure.Message, r.says):
			bad("%q was to fail with %q (%s), and fails with: %s", r.name, r.says, r.reason, s.Failure.Message)
		case r.verdict == cannot && s.State != "skipped":
			bad("%q is %s and was not to be run", r.name, s.State)
		}
	}
	for name := range found { // order: each is a problem of its own
		bad("the suite has %q, and the table has not", name)
	}
	return problems
}

// TestJudge: each way in which a table and the suite can differ is seen.
func TestJudge(t *testing.T) {
	t.Parallel()
	is := func(name, state string) spec {
		s := spec{LeafNodeText: name, State: state}
		s.Failure.Message = "because"
		return s
	}
	for _, test := range []struct {
		row   []row
		spec  []spec
		wants string // "": all is well
	}{
		{[]row{{passes, "a", "", ""}}, []spec{is("a", "passed")}, ""},
		{[]row{{fails, "a", "r", "because"}}, []spec{is("a", "failed")}, ""},
		{[]row{{cannot, "a", "r", ""}}, []spec{is("a", "skipped")}, ""},
		{[]row{{passes, "a", "", ""}}, []spec{is("a", "failed")}, "passed once"},
		{[]row{{passes, "a", "", ""}}, []spec{is("a", "skipped")}, "passed once"},
		{[]row{{passes, "a", "", ""}}, []spec{is("a", "panicked")}, "passed once"},
		{[]row{{fails, "a", "r", "because"}}, []spec{is("a", "passed")}, "the table says that it does not (r)"},
		{[]row{{fails, "a", "r", "because"}}, []spec{is("a", "skipped")}, "was to be run"},
		{[]row{{cannot, "a", "r", ""}}, []spec{is("a", "passed")}, "was not to be run"},
		{[]row{{fails, "a", "r", "of that"}}, []spec{is("a", "failed")}, `was to fail with "of that" (r), and fails with: because`},
		{[]row{{passes, "a", "", ""}}, nil, "no more"},
		{nil, []spec{is("a", "skipped")}, "the table has not"},
	} {
		got := strings.Join(judge(test.row, test.spec), "\n")
		if (got == "") != (test.wants == "") || !strings.Contains(got, test.wants) {
			t.Errorf("%v and %v: %q, want %q", test.row, test.spec, got, test.wants)
		}
	}
}

// TestTables: both can be read, name the same specs, and have as many that pass as were asked for.
func TestTables(t *testing.T) {
	t.Parallel()
	names := map[string][]string{}
	for _, file := range []string{direct, proxied} {
		pass := 0
		for _, r := range table(t, file) {
			names[file] = append(names[file], r.name)
			if r.verdict == passes {
				pass++
			}
		}
		slices.Sort(names[file])
		t.Logf("%s: %d of %d specs have to pass", file, pass, len(names[file]))
	}
	if !slices.Equal(names[direct], names[proxied]) {
		t.Errorf("%s and %s do not name the same specs", direct, proxied)
	}
}
