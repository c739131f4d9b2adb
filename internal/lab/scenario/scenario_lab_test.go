//go:build lab

package scenario

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/muster-scheduler/muster/internal/engine/enginetest"
	"github.com/muster-scheduler/muster/internal/lab"
)

// folder is where the repository keeps its scenarios.
const folder = "../../../scenarios"

// TestScenarios plays the scenarios on one lab, one after another.
func TestScenarios(t *testing.T) {
	scs, err := enginetest.Load(folder)
	if err != nil {
		t.Fatal(err)
	}
	l, err := lab.Start(t.Context(), lab.Options{Logf: t.Logf})
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
	begun, played := time.Now(), 0
	for _, sc := range scs {
		if slices.Contains(sc.Options.Needs, "engine") {
			continue
		}
		t.Run(sc.Name, func(t *testing.T) {
			played++
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
		})
	}
	t.Logf("played %d of %d scenarios in %v; the others need the engine", played, len(scs), time.Since(begun).Round(time.Second))
}
