package nodetopology

import (
	"encoding/json"
	"flag"
	"slices"
	"strings"
	"testing"

	"github.com/k8stopologyawareschedwg/noderesourcetopology-api/pkg/apis/topology/v1alpha2"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/dialect/dialecttest"
)

var _ = flag.Bool("update", false, "rewrite the want sections of the golden files")

func TestGolden(t *testing.T) {
	t.Parallel()
	dialecttest.Golden(t, func(t *testing.T, objects []dialecttest.Object) string {
		var out strings.Builder
		for _, o := range objects {
			var n v1alpha2.NodeResourceTopology
			o.Into(t, &n)
			z, problem := Zones(&n)
			out.WriteString(dialecttest.Text(t, n.Name, z))
			if problem != "" {
				out.WriteString("problem: " + problem + "\n")
			}
		}
		return out.String()
	})
}

func TestOrder(t *testing.T) {
	t.Parallel()
	names := []string{"node-10", "b", "node-2", "node-00", "a", "node-0", "node-18446744073709551616", "node-9"}
	slices.SortFunc(names, compare)
	if got, want := strings.Join(names, " "), "a b node-0 node-00 node-2 node-9 node-10 node-18446744073709551616"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// FuzzZones: whatever a node may publish, its translation ends and stays in range.
func FuzzZones(f *testing.F) {
	f.Add([]byte(`{"zones":[{"name":"node-0","type":"Node","resources":[{"name":"cpu","allocatable":"1e99","available":"-4"}]}],"attributes":[{"name":"topologyManagerPolicy","value":"x"}]}`))
	f.Add([]byte(`{"topologyPolicies":["SingleNUMANodePodLevel"],"zones":[{"type":"Node"},{"type":"Node"}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var n v1alpha2.NodeResourceTopology
		if json.Unmarshal(data, &n) != nil {
			return
		}
		z, _ := Zones(&n)
		if len(z.Zones) > cluster.MaxZones || z.Policy == "" || z.Scope == "" {
			t.Fatalf("%s: %+v", data, z)
		}
		seen := map[string]bool{}
		for i := range z.Zones {
			if seen[z.Zones[i].Name] {
				t.Fatalf("%s: two zones are called %q", data, z.Zones[i].Name)
			}
			seen[z.Zones[i].Name] = true
			for _, q := range slices.Concat(z.Zones[i].Allocatable, z.Zones[i].Available) {
				if q.Value <= 0 || q.Value > cluster.MaxQuantity {
					t.Fatalf("%s: %+v", data, q)
				}
			}
		}
	})
}
