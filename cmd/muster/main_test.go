package main

import (
	"testing"

	"github.com/muster-scheduler/muster/internal/app/helptest"
	"github.com/muster-scheduler/muster/internal/cli/vcctl"
)

// TestHelp: every flag of every command says what it is for, and calls its value by a name.
func TestHelp(t *testing.T) {
	t.Parallel()
	helptest.Check(t, command())
}

// TestPages: the command lines of muster that pages show are ones that it takes.
func TestPages(t *testing.T) {
	t.Parallel()
	helptest.Pages(t, command(), "../..")
	helptest.Pages(t, called("vcctl"), "../..")
	for _, name := range vcctl.Names() {
		helptest.Pages(t, called(name), "../..")
	}
}

// TestCalled: the program is what its name says, wherever it lies; any other name is muster's.
func TestCalled(t *testing.T) {
	t.Parallel()
	for argv0, want := range map[string]string{
		"muster": "muster", "/bin/muster": "muster", "renamed": "muster", "": "muster", "/usr/local/bin/vcctl": "vcctl",
		"vsub": "vsub", "./vjobs": "vjobs", "vqueues": "vqueues", "vcancel": "vcancel", "vsuspend": "vsuspend", "vresume": "vresume",
	} {
		if got := called(argv0).Name(); got != want {
			t.Errorf("%q is %s, want %s", argv0, got, want)
		}
	}
	for argv0, want := range map[string]string{"/usr/local/bin/kubectl-muster": "kubectl muster explain", "kubectl-muster.exe": "kubectl muster explain", "muster": "muster explain", "kubectl-musters": "muster explain"} {
		if c, _, err := called(argv0).Find([]string{"explain"}); err != nil || c.CommandPath() != want {
			t.Errorf("%q is %q, %v", argv0, c.CommandPath(), err)
		}
	}
	c, _, err := command().Find([]string{"vcctl", "job", "run"})
	if err != nil || c.CommandPath() != "muster vcctl job run" {
		t.Errorf("muster vcctl job run is %v, %v", c.CommandPath(), err)
	}
}
