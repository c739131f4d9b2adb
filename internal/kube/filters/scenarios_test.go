package filters

import (
	"flag"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/engine/enginetest"
)

var update = flag.Bool("update", false, "rewrite the answers of scenarios that need the filters with what they are now")

// TestScenarios plays every scenario with the filters on. Those that do not need them go as they go without.
func TestScenarios(t *testing.T) {
	t.Parallel()
	const folder = "../../../scenarios"
	scs, err := enginetest.Load(folder)
	if err != nil {
		t.Fatal(err)
	}
	with := func(p engine.Profile, r engine.Registry) (engine.Profile, engine.Registry) {
		return p, Register(r, Options{StorageCapacity: true})
	}
	for _, sc := range scs {
		t.Run(sc.Name, func(t *testing.T) {
			t.Parallel()
			b, err := enginetest.NewEngine(&sc.Options, enginetest.Mutation{}, with)
			if err != nil {
				t.Fatal(err)
			}
			turns, err := sc.Play(b)
			if err != nil {
				t.Fatal(err)
			}
			rewrite := *update && slices.Contains(sc.Options.Needs, "filters")
			for _, turn := range turns {
				if !turn.OK() && !rewrite {
					t.Errorf("run:\n%s\nwant (-) and got (+):\n%s", turn.Run, cmp.Diff(turn.Want, turn.Got))
				}
			}
			if rewrite {
				if err := os.WriteFile(filepath.Join(folder, sc.Name+".txtar"), sc.Updated(turns), 0o600); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}
