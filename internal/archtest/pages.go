package archtest

import (
	"errors"
	"fmt"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
)

// checkDocs looks at README.md and docs/**/*.md: links to files, paths of the tree in backticks or at the start of a line of a code
// block, and make targets. A line that says "planned" speaks of the future.
func checkDocs(t *Tree) ([]Violation, error) {
	const roots = `(?:api|bench|cmd|conformance|deploy|docs|internal|scenarios|web)`
	var (
		link   = regexp.MustCompile(`\]\(([^)#\s]+)(?:#[^)\s]*)?\)`)
		quoted = regexp.MustCompile("`(" + roots + `/[a-z0-9_./-]*[a-z0-9_/-])` + "`")
		drawn  = regexp.MustCompile(`^(` + roots + `/[a-z0-9_./-]*)(?:\s|$)`)
		target = regexp.MustCompile("(?:^|`)make ([a-z][a-z-]*)")
	)
	targets, err := makeTargets(filepath.Join(t.Root, "Makefile"))
	if err != nil {
		return nil, err
	}
	pages, err := t.pages()
	if err != nil {
		return nil, err
	}
	exists := func(rel string) bool {
		_, err := os.Stat(filepath.Join(t.Root, filepath.FromSlash(rel)))
		return err == nil
	}
	var out []Violation
	for _, l := range pages {
		add := func(format, what string) {
			out = append(out, Violation{Where: l.at, What: fmt.Sprintf(format, what)})
		}
		if strings.Contains(strings.ToLower(l.text), "planned") {
			continue
		}
		if !l.fenced {
			for _, m := range link.FindAllStringSubmatch(l.text, -1) {
				if !strings.Contains(m[1], ":") && !exists(path.Join(path.Dir(l.at.Filename), m[1])) {
					add("links to %s, which does not exist", m[1])
				}
			}
		}
		for _, m := range quoted.FindAllStringSubmatch(l.text, -1) {
			if !exists(m[1]) {
				add("names %s, which does not exist", m[1])
			}
		}
		if m := drawn.FindStringSubmatch(l.text); l.fenced && m != nil && !exists(m[1]) {
			add("names %s, which does not exist", m[1])
		}
		for _, m := range target.FindAllStringSubmatchIndex(l.text, -1) {
			// Outside a code block only what is in backticks is a command.
			if word := l.text[m[2]:m[3]]; (l.fenced || l.text[m[0]] == '`') && !targets[word] {
				add("names the target make %s, which the Makefile lacks", word)
			}
		}
	}
	return out, nil
}

// pageLine is one line of README.md or a page of docs, fences left out.
type pageLine struct {
	at     token.Position
	text   string
	fenced bool // in a code block
}

// commands are what a line has of code: all of it in a code block, else what stands in backticks. A bar of a table is written \|.
func (l pageLine) commands() (out []string) {
	if l.fenced {
		return []string{strings.TrimPrefix(strings.TrimSpace(l.text), "$ ")}
	}
	if strings.HasPrefix(l.text, "    go ") { // a code block by its indent
		return []string{strings.TrimSpace(l.text)}
	}
	for i, part := range strings.Split(l.text, "`") {
		if i%2 == 1 {
			out = append(out, strings.ReplaceAll(part, `\|`, "|"))
		}
	}
	return out
}

// pages are the lines of README.md and docs/**/*.md.
func (t *Tree) pages() ([]pageLine, error) {
	files, err := t.tracked()
	if err != nil {
		return nil, err
	}
	var out []pageLine
	for _, name := range files {
		if name != "README.md" && (!under(name, "docs") || path.Ext(name) != ".md") {
			continue
		}
		data, err := os.ReadFile(filepath.Join(t.Root, filepath.FromSlash(name)))
		if errors.Is(err, fs.ErrNotExist) {
			continue // deleted in the working tree
		}
		if err != nil {
			return nil, err
		}
		fenced := false
		for i, line := range strings.Split(string(data), "\n") {
			if strings.HasPrefix(strings.TrimSpace(line), "```") {
				fenced = !fenced
				continue
			}
			out = append(out, pageLine{at: token.Position{Filename: name, Line: i + 1}, text: line, fenced: fenced})
		}
	}
	return out, nil
}

// makeTargets are the explicit targets of a Makefile; none when there is no Makefile.
func makeTargets(file string) (map[string]bool, error) {
	data, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	targets := map[string]bool{}
	rule := regexp.MustCompile(`^([a-z][a-z -]*):(?:[^=]|$)`)
	for line := range strings.Lines(string(data)) {
		if m := rule.FindStringSubmatch(strings.TrimRight(line, "\n")); m != nil {
			for name := range strings.FieldsSeq(m[1]) {
				targets[name] = true
			}
		}
	}
	return targets, nil
}
