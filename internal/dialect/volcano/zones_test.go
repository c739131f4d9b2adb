package volcano

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"

	"github.com/muster-scheduler/muster/api/volcano/keys"
	nodeinfo "github.com/muster-scheduler/muster/api/volcano/nodeinfo/v1alpha1"
	"github.com/muster-scheduler/muster/internal/cluster"
)

// TestZones: on random nodes, CPU by CPU: one counts if it lies somewhere and is in the list of those to be given or a pod has it, less so many of the lowest as are reserved and not left
// out already; what a pod has is what any of its containers has.
func TestZones(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		count := rapid.IntRange(0, 12).Draw(t, "CPUs")
		some := func(what string) (text string, has [16]bool) {
			var parts []string
			for range rapid.IntRange(0, 3).Draw(t, what) {
				from := rapid.IntRange(0, 14).Draw(t, "from")
				to := rapid.IntRange(from, 15).Draw(t, "to")
				for id := from; id <= to; id++ {
					has[id] = true
				}
				if part := fmt.Sprintf("%d-%d", from, to); from == to {
					parts = append(parts, strconv.Itoa(from))
				} else {
					parts = append(parts, part)
				}
			}
			return strings.Join(parts, ","), has
		}
		n := &nodeinfo.Numatopology{}
		n.Spec.CPUDetail = map[string]nodeinfo.CPUInfo{}
		for id := range count {
			n.Spec.CPUDetail[strconv.Itoa(id)] = nodeinfo.CPUInfo{NUMANodeID: rapid.IntRange(0, 2).Draw(t, "zone")}
		}
		text, given := some("given")
		n.Spec.NumaResMap = map[string]nodeinfo.ResourceInfo{"cpu": {Allocatable: text}}
		reserved := rapid.IntRange(0, 3).Draw(t, "reserved")
		n.Spec.ResReserved = map[string]string{"cpu": strconv.Itoa(reserved)}
		held := map[string][16]bool{}
		for k := range rapid.IntRange(0, 2).Draw(t, "pods") {
			uid, all := fmt.Sprint("p", k), [16]bool{}
			pod := nodeinfo.PodAllocation{UID: uid}
			for range rapid.IntRange(0, 2).Draw(t, "containers") {
				text, has := some("has")
				pod.ContainerAllocations = append(pod.ContainerAllocations, nodeinfo.ContainerAllocation{Allocations: map[string]string{"cpu": text}})
				for id := range has {
					all[id] = all[id] || has[id]
				}
			}
			n.Spec.PodAllocations = append(n.Spec.PodAllocations, pod)
			held[uid] = all
		}
		in := func(id int) string { return "node-" + strconv.Itoa(n.Spec.CPUDetail[strconv.Itoa(id)].NUMANodeID) }
		var all []int
		for id := range count {
			counts := given[id]
			for _, has := range held { // order: any
				counts = counts || has[id]
			}
			if counts {
				all = append(all, id)
			}
		}
		for len(all) > 0 && len(all) > count-reserved {
			all = all[1:]
		}
		want := map[string]int64{}
		for _, id := range all {
			want[in(id)] += 1000
		}
		z, problem := Zones(n)
		got := map[string]int64{}
		for _, zone := range z.Zones {
			got[zone.Name] = zone.Allocatable[0].Value
		}
		if !maps.Equal(got, want) || problem != "" {
			t.Fatalf("%+v: zones %v, want %v (%s)", n.Spec, got, want, problem)
		}
		for uid, has := range held { // order: each for itself
			want, got := map[string]int64{}, map[string]int64{}
			for id := range count {
				if has[id] {
					want[in(id)] += 1000
				}
			}
			for _, share := range z.Pods[uid] {
				got[share.Zone] = share.Amounts[0].Value
			}
			if !maps.Equal(got, want) {
				t.Fatalf("%+v: pod %s has %v, want %v", n.Spec, uid, got, want)
			}
		}
	})
}

// FuzzNumatopology: whatever an agent may write, reading it ends, and says zones of different names, in order, with something in each.
func FuzzNumatopology(f *testing.F) {
	f.Add([]byte(`{"spec":{"policies":{"TopologyManagerPolicy":"x"},"numares":{"cpu":{"allocatable":"0-2147483647,-,1--2,٣"}},"cpuDetail":{"0":{"numa":0},"007":{"numa":9223372036854775807},"7":{}}}}`))
	f.Add([]byte(`{"spec":{"resReserved":{"cpu":"-1e99"},"numares":{"cpu":{"allocatable":"0"}},"cpuDetail":{"0":{}},"podAllocations":[{"uid":"a","containerAllocations":[{"allocations":{"cpu":"0"}}]},{"uid":"a"}]}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var n nodeinfo.Numatopology
		if json.Unmarshal(data, &n) != nil {
			return
		}
		z, problem := Zones(&n)
		if again, twice := Zones(&n); problem != twice || fmt.Sprint(again) != fmt.Sprint(z) {
			t.Fatalf("%s: %v %q, and then %v %q", data, z, problem, again, twice)
		}
		seen := map[string]bool{}
		for _, zone := range z.Zones {
			if seen[zone.Name] || len(zone.Allocatable) != 1 || zone.Allocatable[0].Value < 1000 || zone.Allocatable[0].Value > 1000*int64(len(n.Spec.CPUDetail)) {
				t.Fatalf("%s: %+v", data, z)
			}
			seen[zone.Name] = true
		}
		if len(z.Zones) > cluster.MaxZones || len(z.Pods) > len(n.Spec.PodAllocations) || strings.ContainsAny(problem, "\n\x00") {
			t.Fatalf("%s: %+v %q", data, z, problem)
		}
	})
}

// FuzzZonesBy: whatever a pod says, what is no policy is told and of bounded length.
func FuzzZonesBy(f *testing.F) {
	f.Add("restricted")
	f.Add("\xff\x00" + strings.Repeat("x", 4096))
	f.Fuzz(func(t *testing.T, text string) {
		p := &corev1.Pod{}
		p.Annotations = map[string]string{keys.NumaTopologyPolicy: text}
		by, problem := ZonesBy(p)
		known := slices.Contains([]string{"", "none", "best-effort", "restricted", "single-numa-node"}, text)
		if known != (problem == "") || len(by) > 200 || by == cluster.ZonesIgnored || !known && slices.Contains([]cluster.ZonePolicy{"", cluster.ZonesBestEffort, cluster.ZonesRestricted, cluster.ZonesSingle}, by) {
			t.Fatalf("%q: %q, %s", text, by, problem)
		}
	})
}
