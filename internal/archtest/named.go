package archtest

import (
	"cmp"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// checkNamed looks at what pages name beside paths: go test commands, whose patterns must find something in each of their packages'
// tests; tests, scenarios, files and names of Go code; flags; and variables of tests. Links and make targets are checkDocs'; what a command line of
// ours may say is checked by its program (internal/app/helptest), metrics by docs/operations.
func checkNamed(t *Tree) ([]Violation, error) {
	all, err := t.names()
	if err != nil {
		return nil, err
	}
	pages, err := t.pages()
	if err != nil {
		return nil, err
	}
	var (
		test      = regexp.MustCompile("`((?:Test|Benchmark|Fuzz)[A-Z]\\w*)`")
		goFile    = regexp.MustCompile("`(?:[\\w./]*/)?(\\w+\\.go)`")
		member    = regexp.MustCompile("`([A-Za-z]\\w*)\\.([A-Z]\\w+)`")
		flag      = regexp.MustCompile("`(--[a-z][a-z0-9-]+)[^`]*`")
		variable  = regexp.MustCompile(`\b(MUSTER_[A-Z_]+)\b`)
		scenarios = regexp.MustCompile("scenarios? (`[a-z0-9*-]+`(?:(?:, | and |, and )`[a-z0-9*-]+`)*)")
		quoted    = regexp.MustCompile("`([^`]+)`")
	)
	var out []Violation
	for _, l := range pages {
		add := func(format string, args ...any) {
			out = append(out, Violation{Where: l.at, What: fmt.Sprintf(format, args...)})
		}
		for _, command := range l.commands() {
			for _, wrong := range all.goTest(command) {
				add("%s", wrong)
			}
		}
		for _, m := range test.FindAllStringSubmatch(l.text, -1) {
			if !all.has("", regexp.MustCompile("^"+m[1]+"$")) {
				add("names %s, and there is no such test", m[1])
			}
		}
		for _, m := range goFile.FindAllStringSubmatch(l.text, -1) {
			if !all.files[m[1]] {
				add("names the file %s, and there is none", m[1])
			}
		}
		for _, m := range member.FindAllStringSubmatch(l.text, -1) {
			if !all.words[m[1]] || !all.words[m[2]] {
				add("names %s.%s, and no code has such a name", m[1], m[2])
			}
		}
		for _, m := range variable.FindAllStringSubmatch(l.text, -1) {
			if !strings.Contains(all.source, m[1]) {
				add("names the variable %s, which nothing reads", m[1])
			}
		}
		for _, m := range flag.FindAllStringSubmatch(l.text, -1) {
			if !all.flag(m[1]) {
				add("names the flag %s, which no program of ours has, nor KAI's by docs/ledgers/flags.yaml; another program's is written with its name", m[1])
			}
		}
		for _, m := range scenarios.FindAllStringSubmatch(l.text, -1) {
			for _, name := range quoted.FindAllStringSubmatch(m[1], -1) {
				found, err := filepath.Glob(filepath.Join(t.Root, "scenarios", name[1]+".txtar"))
				if err != nil || len(found) == 0 {
					add("names the scenario %s, and there is none", name[1])
				}
			}
		}
	}
	return out, nil
}

// names are what pages may name.
type names struct {
	root   string
	tests  map[string][]string // tests, benchmarks, fuzzers and examples by folder, of nested modules too
	files  map[string]bool     // Go files by their last name
	words  map[string]bool     // of all Go code
	source string              // all Go code, the Makefile and the ledger of KAI's flags
}

// names reads the tracked files.
func (t *Tree) names() (*names, error) {
	tracked, err := t.tracked()
	if err != nil {
		return nil, err
	}
	out := &names{root: t.Root, tests: map[string][]string{}, files: map[string]bool{}, words: map[string]bool{}}
	declared := regexp.MustCompile(`(?m)^func ((?:Test|Benchmark|Fuzz|Example)\w*)\(`)
	word := regexp.MustCompile(`\w+`)
	var source strings.Builder
	for _, name := range tracked {
		isGo := strings.HasSuffix(name, ".go")
		if !isGo && name != "Makefile" && name != "docs/ledgers/flags.yaml" {
			continue
		}
		data, err := os.ReadFile(filepath.Join(t.Root, filepath.FromSlash(name)))
		if err != nil {
			continue // deleted in the working tree
		}
		source.Write(data)
		if !isGo {
			continue
		}
		out.files[path.Base(name)] = true
		for _, w := range word.FindAllString(string(data), -1) {
			out.words[w] = true
		}
		dir := path.Dir(name)
		if strings.HasSuffix(name, "_test.go") {
			for _, m := range declared.FindAllStringSubmatch(string(data), -1) {
				out.tests[dir] = append(out.tests[dir], m[1])
			}
		}
	}
	out.source = source.String()
	return out, nil
}

// has reports whether the name of some test, benchmark or fuzzer matches every pattern, in a folder, or in any below for dir/...; "" is
// anywhere.
func (n *names) has(dir string, patterns ...*regexp.Regexp) bool {
	below, deep := strings.CutSuffix(dir, "/...")
	for at, tests := range n.tests { // order: is there one
		if dir != "" && at != dir && (!deep || !under(at, below)) {
			continue
		}
		for _, test := range tests {
			if !slices.ContainsFunc(patterns, func(p *regexp.Regexp) bool { return !p.MatchString(test) }) {
				return true
			}
		}
	}
	return false
}

// flag reports whether a flag may be defined somewhere: its name is a literal of the code, or a row of the ledger of KAI's. The flag of
// another program is written with the program's name before it.
func (n *names) flag(name string) bool {
	bare := strings.TrimLeft(name, "-")
	return strings.Contains(n.source, `"`+bare+`"`) || strings.Contains(n.source, "\n  "+bare+":")
}

// goTest says what is wrong with a command line of go test: a package that is not there, or a part of a pattern that finds nothing in
// any of its packages. Where no package is named, or all, tests anywhere will do.
func (n *names) goTest(command string) (wrong []string) {
	before, rest, found := strings.Cut(command, "go test ")
	if !found {
		return nil
	}
	in := "."
	if m := regexp.MustCompile(`\bcd (\S+) && `).FindStringSubmatch(before); m != nil {
		in = m[1]
	}
	patterns, dirs := map[string]string{}, []string{}
	words := shellWords(rest)
	for i, word := range words {
		key, value, joined := strings.Cut(word, "=")
		key = "-" + strings.TrimLeft(key, "-")
		switch {
		case key == "-run" || key == "-bench" || key == "-fuzz":
			if !joined && i+1 < len(words) {
				value = words[i+1]
			}
			patterns[key] = value
		case word == "." && in != ".", strings.HasPrefix(word, "./") && (word != "./..." || in != "."):
			dir := path.Join(in, word)
			dirs = append(dirs, dir)
			if _, err := os.Stat(filepath.Join(n.root, filepath.FromSlash(strings.TrimSuffix(dir, "/...")))); err != nil {
				wrong = append(wrong, fmt.Sprintf("names the package %s, which does not exist", word))
			}
		}
	}
	if len(dirs) == 0 {
		dirs = []string{""}
	}
	for _, key := range []string{"-run", "-bench", "-fuzz"} {
		prefix := map[string]string{"-run": "^(Test|Fuzz|Example)", "-bench": "^Benchmark", "-fuzz": "^Fuzz"}[key]
		for _, part := range alternatives(patterns[key]) {
			part, sub, _ := strings.Cut(part, "/")
			if part == "" || part == "XXX" || part == "^$" || part == "." {
				continue
			}
			re, err := regexp.Compile(part)
			if err != nil {
				wrong = append(wrong, fmt.Sprintf("has the pattern %s: %v", part, err))
				continue
			}
			ok := false
			for _, dir := range dirs {
				ok = ok || n.has(dir, regexp.MustCompile(prefix), re)
			}
			if !ok {
				wrong = append(wrong, fmt.Sprintf("has %s %s, which finds nothing in %s", key, part, cmp.Or(strings.Join(dirs, ", "), "any package")))
			}
			if part != "Scenarios" {
				continue
			}
			for _, name := range alternatives(strings.Trim(sub, "()$")) {
				if files, err := filepath.Glob(filepath.Join(n.root, "scenarios", strings.Trim(name, "^$")+"*.txtar")); err != nil || len(files) == 0 {
					wrong = append(wrong, fmt.Sprintf("has -run %s/%s, and no scenario begins so", part, name))
				}
			}
		}
	}
	return wrong
}

// alternatives are the parts of a pattern between bars that stand in no brackets.
func alternatives(pattern string) (out []string) {
	depth, from := 0, 0
	for i, r := range pattern {
		switch r {
		case '(', '[':
			depth++
		case ')', ']':
			depth--
		case '|':
			if depth == 0 {
				out, from = append(out, pattern[from:i]), i+1
			}
		}
	}
	return append(out, pattern[from:])
}

// shellWords splits a command line at blanks, but for those between single or double quotes.
func shellWords(line string) (out []string) {
	for _, m := range regexp.MustCompile(`'([^']*)'|"([^"]*)"|(\S+)`).FindAllStringSubmatch(line, -1) {
		out = append(out, m[1]+m[2]+m[3])
	}
	return out
}
