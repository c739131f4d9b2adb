package ledgers_test

import (
	"bufio"
	"os"
	"strings"
	"testing"

	"github.com/muster-scheduler/muster/docs/ledgers"
	"github.com/muster-scheduler/muster/internal/vm/config"
)

// TestVirtletConfig: every key of Virtlet's has a row, no other has one, and rows, program and Virtlet's list say the same.
func TestVirtletConfig(t *testing.T) {
	t.Parallel()
	all, err := ledgers.Virtlet()
	if err != nil {
		t.Fatal(err)
	}
	rows := all["config"]
	program := map[string]config.Key{}
	for _, k := range config.Keys() {
		program[k.Field] = k
	}
	list, err := os.Open("testdata/virtlet-config.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer list.Close()
	known := map[string]bool{}
	lines := bufio.NewScanner(list)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) == 0 || fields[0] == "#" {
			continue
		}
		if len(fields) != 4 {
			t.Fatalf("%q is not: key flag variable default", lines.Text())
		}
		for i, s := range fields {
			if s == "-" {
				fields[i] = ""
			}
		}
		name, flag, env, value := fields[0], fields[1], fields[2], fields[3]
		known[name] = true
		row, ok := rows[name]
		k, there := program[name]
		switch {
		case !ok:
			t.Errorf("%s: there is no row", name)
		case !there:
			t.Errorf("%s: the program does not know it", name)
		case row.Default != value:
			t.Errorf("%s: default %q, Virtlet's is %q", name, row.Default, value)
		case k.Flag != flag || k.Env != env:
			t.Errorf("%s: the program has flag %q and variable %q, Virtlet %q and %q", name, k.Flag, k.Env, flag, env)
		case row.Without != k.Without:
			t.Errorf("%s: the row says %q, the program %q", name, row.Without, k.Without)
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	for name := range rows { // order: each by itself
		if !known[name] {
			t.Errorf("%s: a row that Virtlet has no key for", name)
		}
	}
	for name := range program { // order: each by itself
		if !known[name] {
			t.Errorf("%s: the program has it, Virtlet has not", name)
		}
	}
}

// TestVirtletRows: every row says one thing, what it names as taken is a test or a command, and reasons are reasons.
func TestVirtletRows(t *testing.T) {
	t.Parallel()
	all, err := ledgers.Virtlet()
	if err != nil {
		t.Fatal(err)
	}
	tests := testFunctions(t, repositoryRoot(t))
	for section, rows := range all { // order: each by itself
		for name, r := range rows { // order: each by itself
			switch {
			case (r.Taken == "") == (r.Without == ""):
				t.Errorf("%s %s: want exactly one of taken and without", section, name)
			case strings.HasPrefix(r.Taken, "muster-vm "):
			case r.Taken != "" && !tests[r.Taken]:
				t.Errorf("%s %s: there is no Go test %s", section, name, r.Taken)
			case r.Without != "" && len(strings.Fields(r.Without)) < 3:
				t.Errorf("%s %s: %q is no reason", section, name, r.Without)
			}
		}
	}
}
