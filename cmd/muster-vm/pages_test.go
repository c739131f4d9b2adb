package main

import (
	"testing"

	"github.com/muster-scheduler/muster/internal/app/helptest"
)

// TestPages: the command lines of muster-vm that pages show are ones that it takes.
func TestPages(t *testing.T) {
	t.Parallel()
	helptest.Pages(t, root(), "../..")
}
