package main

import (
	"os"
	"strings"
	"testing"
	"unicode/utf8"
)

// TestNext: who has started a lab is told what to type, in few lines that a terminal has room for, with the programs as they were called
// and the folder if it is not the usual one; without examples where there are none.
func TestNext(t *testing.T) {
	was := os.Args[0]
	defer func() { os.Args[0] = was }()
	const kubeconfig = "/somewhere/in/a/folder/of/mine/.lab/kubeconfig"
	for _, c := range []struct {
		self    string
		f       upFlags
		want    []string
		without string
	}{
		{"bin/muster-lab", upFlags{dir: ".lab"}, []string{"export KUBECONFIG=" + kubeconfig, "  bin/muster run all\n", "  bin/muster status\n", "bin/muster-lab kubectl apply -f .lab/examples/train.yaml\n", "Ctrl-C or `bin/muster-lab down` ends it."}, "--dir"},
		{"muster-lab", upFlags{dir: "other", bare: true}, []string{"  muster run all\n", "`muster-lab down --dir other`"}, "kubectl"},
		{"./muster-lab", upFlags{dir: ".lab"}, []string{"  ./muster run all\n"}, "--dir"},
	} {
		os.Args[0] = c.self
		text := next("v1.37.2", kubeconfig, c.f, "Ctrl-C or ")
		for _, want := range c.want {
			if !strings.Contains(text, want) {
				t.Errorf("%s: %q is not in\n%s", c.self, want, text)
			}
		}
		if strings.Contains(text, c.without) {
			t.Errorf("%s: %q is in\n%s", c.self, c.without, text)
		}
		lines := strings.Split(text, "\n")
		for _, line := range lines {
			if n := utf8.RuneCountInString(line); n > 80 {
				t.Errorf("%d columns: %s", n, line)
			}
		}
		if len(lines) > 16 {
			t.Errorf("%d lines:\n%s", len(lines), text)
		}
	}
}
