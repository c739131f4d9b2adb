package lab_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

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
		"pools: [{count: 1}]":                                             "name: is required",
		"pools: [{name: a, count: -1}]":                                   "count: is -1",
		"pools: [{name: a, count: 1000000}]":                              "count: is 1000000",
		"pools: [{name: a, count: 1, cpu: lots}]":                         `cpu: "lots" is no quantity`,
		"pools: [{name: a, count: 1, memory: -1Gi}]":                      "memory: is -1Gi",
		"pools: [{name: a, count: 1, prefix: A_}]":                        `node name "A_0"`,
		"pools: [{name: a, count: 1, labels: {'b c': d}}]":                `key "b c"`,
		"pools: [{name: a, count: 1, gpu: 8}]":                            `unknown field`,
		"pools: [{name: a, count: 1}, {name: b, count: 1, prefix: 'a-'}]": "node a-0 belongs to pool a already",
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
