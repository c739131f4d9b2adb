//go:build lab

package scenario

import (
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/muster-scheduler/muster/api/volcano/crds"
	"github.com/muster-scheduler/muster/internal/engine/enginetest"
	"github.com/muster-scheduler/muster/internal/lab"
)

// folder is where the repository keeps its scenarios.
const folder = "../../../scenarios"

// labs is how many labs share the scenarios: one alone waits most of the time.
const labs = 2

// TestScenarios plays the scenarios, each on a lab that no other uses at the time.
func TestScenarios(t *testing.T) {
	scs, err := enginetest.Load(folder)
	if err != nil {
		t.Fatal(err)
	}
	free := make(chan *Cluster, labs)
	for range labs {
		free <- open(t)
	}
	begun := time.Now()
	var played atomic.Int32
	t.Cleanup(func() {
		t.Logf("played %d of %d scenarios in %v; the others need the engine", played.Load(), len(scs), time.Since(begun).Round(time.Second))
	})
	for _, sc := range scs {
		if slices.Contains(sc.Options.Needs, "engine") {
			continue
		}
		t.Run(sc.Name, func(t *testing.T) {
			t.Parallel()
			c := <-free
			defer func() { free <- c }()
			played.Add(1)
			play(t, c, sc)
		})
	}
}

// TestReservationAccount: after a scenario that begins with a pod in the namespace of reservation pods, others have their account all the same.
func TestReservationAccount(t *testing.T) {
	t.Parallel()
	c := open(t)
	scs, err := enginetest.Load(folder)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"utility-pods", "gpusharingorder"} {
		play(t, c, scs[slices.IndexFunc(scs, func(sc *enginetest.Scenario) bool { return sc.Name == name })])
	}
}

// open starts a lab with the definitions of every face, for as long as the test runs.
func open(t *testing.T) *Cluster {
	t.Helper()
	var volcanos [][]byte
	for _, f := range crds.All() {
		volcanos = append(volcanos, f.YAML)
	}
	l, err := lab.Start(t.Context(), lab.Options{Logf: t.Logf, CRDs: volcanos})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Stop(); err != nil {
			t.Error(err)
		}
	})
	c, err := Open(l.Config(), l.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// play plays one scenario.
func play(t *testing.T, c *Cluster, sc *enginetest.Scenario) {
	t.Helper()
	begun := time.Now()
	if err := c.Clean(t.Context()); err != nil {
		t.Fatal(err)
	}
	cleaned := time.Since(begun)
	b, err := c.New(t.Context(), &sc.Options)
	if err != nil {
		t.Fatal(err)
	}
	turns, err := sc.Play(b)
	for _, turn := range turns {
		if !turn.OK() {
			t.Errorf("run:\n%s\nwant (-) and got (+):\n%s", turn.Run, cmp.Diff(turn.Want, turn.Got))
		}
	}
	if err != nil {
		t.Error(err)
	}
	t.Logf("%v, of which %v cleaning", time.Since(begun).Round(time.Millisecond), cleaned.Round(time.Millisecond))
}
