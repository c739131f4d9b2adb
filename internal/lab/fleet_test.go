package lab_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/muster-scheduler/muster/internal/lab"
)

func TestFleet(t *testing.T) {
	t.Parallel()
	f, err := lab.ReadFleet("testdata/fleet.yaml")
	if err != nil {
		t.Fatal(err)
	}
	nodes, err := f.Nodes()
	if err != nil {
		t.Fatal(err)
	}
	type row struct{ Name, Zone, Block, Rack, GPUs, CPU, Hca string }
	var got []row
	for _, n := range nodes {
		quantity := func(name corev1.ResourceName) string {
			q, ok := n.Status.Allocatable[name]
			if !ok {
				return ""
			}
			return q.String()
		}
		got = append(got, row{
			n.Name, n.Labels[lab.LabelZone], n.Labels[lab.LabelBlock], n.Labels[lab.LabelRack],
			quantity(lab.GPUResource), quantity("cpu"), quantity("rdma/hca"),
		})
	}
	want := []row{
		{"g-10", "a-zone-0", "a-block-0", "a-rack-0", "8", "96", "8"},
		{"g-11", "a-zone-0", "a-block-0", "a-rack-1", "8", "96", "8"},
		{"g-12", "a-zone-0", "a-block-1", "a-rack-2", "8", "96", "8"},
		{"g-13", "a-zone-0", "a-block-1", "a-rack-3", "8", "96", "8"},
		{"cpu-0", "b", "", "", "", "128", ""},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]corev1.Taint{{Key: "dedicated", Value: "ai", Effect: corev1.TaintEffectNoSchedule}}, nodes[0].Spec.Taints); diff != "" {
		t.Error(diff)
	}
}

func TestBadFleet(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"pools: [{count: 1}]":                                                                             "name: is required",
		"pools: [{name: a, count: -1}]":                                                                   "count: is -1",
		"pools: [{name: a, count: 1000000}]":                                                              "count: is 1000000",
		"pools: [{name: a, count: 1, cpu: lots}]":                                                         `cpu: "lots" is no quantity`,
		"pools: [{name: a, count: 1, memory: -1Gi}]":                                                      "memory: is -1Gi",
		"pools: [{name: a, count: 1, prefix: A_}]":                                                        `node name "A_0"`,
		"pools: [{name: a, count: 1, labels: {'b c': d}}]":                                                `key "b c"`,
		"pools: [{name: a, count: 6, tree: [{label: rack, count: 4}]}]":                                   "6 nodes cannot be split evenly among 4 domains",
		"pools: [{name: a, count: 2, racks: 2, tree: [{label: rack, count: 2}]}]":                         "tree: excludes racks",
		"pools: [{name: a, count: 1, tree: [{label: 'a b', count: 1}]}]":                                  `tree[0].label: "a b"`,
		"pools: [{name: a, count: 1, gpus: 1, mig: {strategy: all}}]":                                     `mig.strategy: is "all"`,
		"pools: [{name: a, count: 1, gpus: 1, mig: {strategy: mixed, slices: {small: 1}}}]":               `profile "small"`,
		"pools: [{name: a, count: 1, gpus: 1, mig: {strategy: single, slices: {1g.5gb: 1, 2g.10gb: 1}}}]": "strategy single has one profile",
		"pools: [{name: a, count: 1, devices: [{driver: Gpu, count: 1}]}]":                                `devices[0].driver: "Gpu"`,
		"pools: [{name: a, count: 1, devices: [{driver: g, count: 129}]}]":                                "devices[0].count: is 129",
		"pools: [{name: a, count: 1, devices: [{driver: g, count: 1, capacity: {memory: x}}]}]":           `"x" is no quantity`,
		"pools: [{name: a, count: 1, numa: {zones: 0}}]":                                                  "numa.zones: is 0",
		"pools: [{name: a, count: 1, numa: {zones: 2, policy: strict}}]":                                  `numa.policy: "strict"`,
		"pools: [{name: a, count: 1, gpu: 8}]":                                                            `unknown field`,
		"pools: [{name: a, count: 1}, {name: b, count: 1, prefix: 'a-'}]":                                 "node a-0 belongs to pool a already",
	} {
		path := filepath.Join(t.TempDir(), "fleet.yaml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := lab.ReadFleet(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got error %v, want one that says %q", text, err, want)
		}
	}
}

// TestTree: 4 zones of 8 blocks of 8 racks of 2 nodes.
func TestTree(t *testing.T) {
	t.Parallel()
	p := lab.Pool{Name: "n", Count: 512, GPUs: 8, Tree: []lab.Level{{Label: lab.LabelZone, Count: 4}, {Label: "example.com/block", Count: 8}, {Label: "example.com/rack", Count: 8, Name: "r"}}}
	nodes, err := p.Nodes()
	if err != nil {
		t.Fatal(err)
	}
	size := map[string]int{}
	parent := map[string]string{}
	for _, n := range nodes {
		path := []string{n.Labels[lab.LabelZone], n.Labels["example.com/block"], n.Labels["example.com/rack"]}
		for i, d := range path {
			size[d]++
			if above := append([]string{""}, path...)[i]; parent[d] != "" && parent[d] != above {
				t.Errorf("%s lies in %s and in %s", d, parent[d], above)
			} else {
				parent[d] = above
			}
		}
	}
	if len(size) != 4+32+256 {
		t.Errorf("%d domains", len(size))
	}
	for _, d := range []string{"zone-3", "block-31", "r-255"} {
		if want := map[string]int{"zone-3": 128, "block-31": 16, "r-255": 2}[d]; size[d] != want {
			t.Errorf("%s has %d nodes, want %d", d, size[d], want)
		}
	}
}

// TestHardware: what feature discovery, drivers and exporters say of a node.
func TestHardware(t *testing.T) {
	t.Parallel()
	f, err := lab.ReadFleet("testdata/hardware.yaml")
	if err != nil {
		t.Fatal(err)
	}
	nodes, err := f.Nodes()
	if err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	for _, n := range nodes {
		fmt.Fprintln(&got, n.Name)
		for _, k := range slices.Sorted(maps.Keys(n.Labels)) {
			if strings.HasPrefix(k, "nvidia.com/") || strings.Contains(k, "mig") {
				fmt.Fprintf(&got, "  %s=%s\n", k, n.Labels[k])
			}
		}
		for _, name := range slices.Sorted(maps.Keys(n.Status.Allocatable)) {
			if q := n.Status.Allocatable[name]; strings.HasPrefix(string(name), "nvidia.com/") {
				fmt.Fprintf(&got, "  %s: %s\n", name, q.String())
			}
		}
	}
	published, err := f.Published()
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range published {
		text, err := yaml.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&got, "---\n%s", text)
	}
	want, err := os.ReadFile("testdata/hardware.want")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got.String()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestStorage reads classes, and refuses those that break a rule with its name.
func TestStorage(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"storage: [{name: fast, capacity: 10Gi, reach: topology.kubernetes.io/zone, volumesPerNode: 8, delay: 1s}]": "",
		"storage: [{name: Fast}]":                            `storage[0]: name: "Fast"`,
		"storage: [{name: a, capacity: much}]":               `storage[0]: capacity: "much" is no quantity`,
		"storage: [{name: a, delay: soon}]":                  `storage[0]: delay: "soon" is no duration`,
		"storage: [{name: a, volumesPerNode: -1}]":           "storage[0]: volumesPerNode: is -1",
		"storage: [{name: a, reach: not a label}]":           `storage[0]: reach: "not a label"`,
		"storage: [{name: a}, {name: a}]":                    "storage[1]: class a is listed twice",
		"storage: [{name: a, size: 1Gi}]":                    "unknown field",
		"storage: [{name: " + strings.Repeat("a", 60) + "}]": "longer than 63",
	} {
		path := filepath.Join(t.TempDir(), "fleet.yaml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := lab.ReadFleet(path)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}
