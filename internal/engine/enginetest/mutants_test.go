//go:build mutants

package enginetest

import (
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sync/errgroup"
	"sigs.k8s.io/yaml"

	"github.com/muster-scheduler/muster/internal/engine/builtin"
	"github.com/muster-scheduler/muster/internal/engine/policy"
)

// TestMutants switches every extension point, plugin, field and option off in turn and fails for each that no scenario
// notices; and it fails for every reason key that no scenario pins. It prints who noticed.
func TestMutants(t *testing.T) {
	scs, err := Load(folder)
	if err != nil {
		t.Fatal(err)
	}
	ms, err := Mutations(builtin.Registry())
	if err != nil {
		t.Fatal(err)
	}
	var table strings.Builder
	row := func(name string, by []string) {
		if len(by) == 0 {
			t.Errorf("no scenario notices: %s", name)
		}
		first := by[:min(3, len(by))]
		fmt.Fprintf(&table, "%-64s %3d  %s\n", name, len(by), strings.Join(first, " "))
	}
	by := make([][]string, len(ms))
	var workers errgroup.Group
	var next atomic.Int64
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() error { // each plays scenarios of its own
			scs, err := Load(folder)
			if err != nil {
				return err
			}
			for i := int(next.Add(1)) - 1; i < len(ms); i = int(next.Add(1)) - 1 {
				for _, sc := range scs {
					if !slices.Contains(sc.Options.Needs, "filters") && notices(sc, ms[i]) { // the others another package plays
						by[i] = append(by[i], sc.Name)
					}
				}
			}
			return nil
		})
	}
	if err := workers.Wait(); err != nil {
		t.Fatal(err)
	}
	for i, m := range ms {
		row(m.Name, by[i])
	}
	for _, key := range reasons(t) {
		var by []string
		for _, sc := range scs {
			if slices.ContainsFunc(sc.archiveWants(), func(w string) bool { return strings.Contains(w, ": "+key) }) {
				by = append(by, sc.Name)
			}
		}
		row("reason "+key, by)
	}
	t.Logf("noticed by (how many, the first three)\n%s", table.String())
}

// TestMutantsOfTheLedger proves the evidence of the ledger of properties: a scenario that a row names goes otherwise when the field of
// that row is taken off.
func TestMutantsOfTheLedger(t *testing.T) {
	text, err := os.ReadFile("../../../docs/ledgers/properties.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var rows map[string]map[string]struct {
		Honoured string `json:"honoured"`
	}
	if err := yaml.Unmarshal(text, &rows); err != nil {
		t.Fatal(err)
	}
	scs, err := Load(folder)
	if err != nil {
		t.Fatal(err)
	}
	ms, err := Mutations(builtin.Registry())
	if err != nil {
		t.Fatal(err)
	}
	proven := 0
	for crd, kind := range map[string]string{"queues.scheduling.run.ai": "Queue", "podgroups.scheduling.run.ai": "PodGroup"} {
		for path, row := range rows[crd] {
			i := slices.IndexFunc(scs, func(sc *Scenario) bool { return sc.Name == row.Honoured })
			if i < 0 {
				continue // a Go test, or a promise
			}
			k := slices.IndexFunc(ms, func(m Mutation) bool { return m.Name == "field "+kind+"."+path })
			switch {
			case k < 0:
				t.Errorf("%s %s: no mutation takes this field off", crd, path)
			case !notices(scs[i], ms[k]):
				t.Errorf("%s %s: scenario %s does not notice when it is ignored", crd, path, row.Honoured)
			}
			proven++
		}
	}
	if proven < 20 {
		t.Errorf("only %d rows name a scenario", proven)
	}
}

// notices says whether the scenario goes otherwise under the mutation.
func notices(sc *Scenario, m Mutation) bool {
	b, err := NewEngine(&sc.Options, m, nil)
	if err != nil {
		return false // a profile that cannot be built proves nothing
	}
	turns, err := sc.Play(b)
	return err != nil || slices.ContainsFunc(turns, func(t Turn) bool { return !t.OK() })
}

func (sc *Scenario) archiveWants() []string {
	var out []string
	for i := range sc.steps {
		if sc.steps[i].kind == sectionRun {
			out = append(out, string(sc.archive.Files[sc.steps[i].want].Data))
		}
	}
	return out
}

// reasons are the keys of what engine and plugins may say, sorted. OtherQueue is said of gangs that nobody asks about: the solver passes the
// queues of another right whole. That a pod names a PodGroup which is not there is said by who writes conditions (kube/apply): the engine does not see such a pod.
func reasons(t *testing.T) []string {
	t.Helper()
	known, err := builtin.Registry().Known()
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range []*policy.Reason{policy.ReasonOtherQueue, policy.ReasonGroupMissing, policy.ReasonGroupNoName} {
		delete(known, r.Key)
	}
	return slices.Sorted(maps.Keys(known))
}
