package admission

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	kaiv1alpha1 "github.com/muster-scheduler/muster/api/kai/v1alpha1"
)

func TestValidateTopology(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		levels []kaiv1alpha1.TopologyLevel
		want   []string
	}{
		"no aliases": {levels: []kaiv1alpha1.TopologyLevel{{NodeLabel: "a"}, {NodeLabel: "b"}}},
		"aliases":    {levels: []kaiv1alpha1.TopologyLevel{{NodeLabel: "a", Alias: "zone"}, {NodeLabel: "b", Alias: "rack"}}},
		"doubled": {
			levels: []kaiv1alpha1.TopologyLevel{{NodeLabel: "a", Alias: "x"}, {NodeLabel: "b", Alias: "x"}, {NodeLabel: "c", Alias: "x"}},
			want:   []string{`spec.levels[1].alias: Duplicate value: "x"`},
		},
		"a label's name": {
			levels: []kaiv1alpha1.TopologyLevel{{NodeLabel: "a", Alias: "b"}, {NodeLabel: "b"}},
			want:   []string{`spec.levels[0].alias: Invalid value: "b": an alias must differ from every node label of the Topology`},
		},
		"its own label": {
			levels: []kaiv1alpha1.TopologyLevel{{NodeLabel: "a", Alias: "a"}},
			want:   []string{`spec.levels[0].alias: Invalid value: "a": an alias must differ from every node label of the Topology`},
		},
	} {
		topology := &kaiv1alpha1.Topology{Spec: kaiv1alpha1.TopologySpec{Levels: c.levels}}
		if d := cmp.Diff(c.want, lines(ValidateTopology(topology))); d != "" {
			t.Errorf("%s: %s", name, d)
		}
	}
}
