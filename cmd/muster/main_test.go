package main

import (
	"testing"

	"github.com/muster-scheduler/muster/internal/app/helptest"
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
}
