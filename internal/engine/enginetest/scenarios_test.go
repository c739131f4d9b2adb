package enginetest

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite the answers of scenarios with what they are now")

// folder is where the repository keeps its scenarios.
const folder = "../../../scenarios"

// TestScenarios plays every scenario on the engine. Those that need what the engine alone does not have are played by
// the packages that do.
func TestScenarios(t *testing.T) {
	t.Parallel()
	scs, err := Load(folder)
	if err != nil {
		t.Fatal(err)
	}
	wire := 0
	for _, sc := range scs {
		if !slices.Contains(sc.Options.Needs, "engine") {
			wire++
		}
	}
	t.Attr("scenarios", fmt.Sprintf("%d on the engine, %d of them on a real API server too", len(scs), wire))
	for _, sc := range scs {
		t.Run(sc.Name, func(t *testing.T) {
			t.Parallel()
			if slices.Contains(sc.Options.Needs, "filters") {
				t.Log("needs the upstream filters: played by their package")
				return
			}
			b, err := NewEngine(&sc.Options, Mutation{}, nil)
			if err != nil {
				t.Fatal(err)
			}
			b.Watch = replayed
			turns, err := sc.Play(b)
			if err != nil {
				t.Fatal(err)
			}
			for _, turn := range turns {
				if !turn.OK() && !*update {
					t.Errorf("run:\n%s\nwant (-) and got (+):\n%s", turn.Run, cmp.Diff(turn.Want, turn.Got))
				}
			}
			if *update {
				if err := os.WriteFile(filepath.Join(folder, sc.Name+".txtar"), sc.Updated(turns), 0o600); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}
