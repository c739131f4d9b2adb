package volcano

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/muster-scheduler/muster/api/volcano/keys"
	nodeinfo "github.com/muster-scheduler/muster/api/volcano/nodeinfo/v1alpha1"
	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/dialect/core"
)

// staticCPUs is the policy of a kubelet's CPU manager by which containers get CPUs of their own.
const staticCPUs = "static"

// ZonesBy is the policy of NUMA zones that a pod asks of its node, "" for none. problem says what is wrong with it, "" for nothing: what is no policy no node has.
func ZonesBy(p *corev1.Pod) (by cluster.ZonePolicy, problem string) {
	text := p.Annotations[keys.NumaTopologyPolicy]
	switch by = cluster.ZonePolicy(text); by {
	case "", cluster.ZonesIgnored:
		return "", ""
	case cluster.ZonesBestEffort, cluster.ZonesRestricted, cluster.ZonesSingle:
		return by, ""
	}
	return cluster.ZonePolicy(brief(text)), fmt.Sprintf("metadata.annotations[%s] is %q; it must be %s, %s, %s or %s: no node has such a policy, and with plugin numa-aware the pod waits",
		keys.NumaTopologyPolicy, brief(text), cluster.ZonesIgnored, cluster.ZonesBestEffort, cluster.ZonesRestricted, cluster.ZonesSingle)
}

// align notes what a pod's owner asks of its node's zones, and what would be taken from them.
func align(st *cluster.PodState, p *corev1.Pod) (problem string) {
	if st.Spec == nil || !st.Phase.Alive() {
		return ""
	}
	if st.Spec.ZonesBy, problem = ZonesBy(p); st.Spec.ZonesBy != "" {
		st.Spec.Align = core.Needs(p)
	}
	return problem
}

// zoneName and a zone's number are its name, as the exporters of NodeResourceTopologies have it.
const zoneName = "node-"

// Zones returns what a Numatopology says of its node, of whose CPUs alone it says in which zones they are. Given to pods can be CPUs that are allocatable or that a pod has, less those
// that are reserved, if they are among them: the lowest, as the kubelet has it. problem says what of t was not understood, "" for nothing; that is as if it were not there.
func Zones(t *nodeinfo.Numatopology) (z *cluster.NodeZones, problem string) {
	tell := func(format string, args ...any) { problem = cmp.Or(problem, fmt.Sprintf(format, args...)) }
	z = &cluster.NodeZones{Policy: cluster.ZonesIgnored, Scope: cluster.PerContainer, Shared: t.Spec.Policies[nodeinfo.CPUManagerPolicy] != staticCPUs}
	switch by := cluster.ZonePolicy(t.Spec.Policies[nodeinfo.TopologyManagerPolicy]); by {
	case cluster.ZonesIgnored, cluster.ZonesBestEffort, cluster.ZonesRestricted, cluster.ZonesSingle:
		z.Policy = by
	case "":
	default:
		tell("spec.policies[%s] is %q; it must be %s, %s, %s or %s: the node counts as one that aligns nothing", nodeinfo.TopologyManagerPolicy, brief(string(by)),
			cluster.ZonesIgnored, cluster.ZonesBestEffort, cluster.ZonesRestricted, cluster.ZonesSingle)
	}
	lie := map[int]int{}                       // the zone of each CPU
	for text, info := range t.Spec.CPUDetail { // order: a map again, and the least of what is wrong
		id, err := strconv.ParseUint(text, 10, 31)
		if err != nil || info.NUMANodeID < 0 {
			problem = least(problem, fmt.Sprintf("spec.cpuDetail[%s]: a CPU is a whole number from 0 up, in a zone from 0 up: it is left out", brief(text)))
			continue
		}
		lie[int(id)] = info.NUMANodeID
	}
	cpu := string(corev1.ResourceCPU)
	given, err := cpus(t.Spec.NumaResMap[cpu].Allocatable)
	if err != nil {
		tell("spec.numares[%s].allocatable %s: there are none", cpu, err)
	}
	z.Pods = map[string][]cluster.ZoneShare{}
	for i := range t.Spec.PodAllocations {
		pod := &t.Spec.PodAllocations[i]
		var has ranges
		for k := range pod.ContainerAllocations {
			some, err := cpus(pod.ContainerAllocations[k].Allocations[cpu])
			if err != nil {
				tell("spec.podAllocations[%d].containerAllocations[%d].allocations[%s] %s: there are none", i, k, cpu, err)
			}
			has = append(has, some...)
		}
		has.sort()
		given = append(given, has...)
		if shares := split(has.among(lie), lie); len(shares) > 0 && pod.UID != "" {
			z.Pods[pod.UID] = shares
		}
	}
	given.sort()
	all := given.among(lie)
	if kept, said := t.Spec.ResReserved[cpu]; said {
		q, err := resource.ParseQuantity(kept)
		if err != nil || q.Sign() < 0 {
			tell("spec.resReserved[%s] is %q; it must be an amount of CPUs: nothing is reserved", cpu, brief(kept))
		} else if over := int64(len(all)) - max(0, int64(len(lie))-min(q.Value(), int64(len(lie)))); over > 0 {
			all = all[over:]
		}
	}
	for _, s := range split(all, lie) {
		z.Zones = append(z.Zones, cluster.Zone{Name: s.Zone, Allocatable: s.Amounts})
	}
	if n := len(z.Zones); n > cluster.MaxZones {
		tell("spec.cpuDetail: there are %d zones; only the first %d are looked at", n, cluster.MaxZones)
		z.Zones = z.Zones[:cluster.MaxZones]
	}
	if len(z.Pods) == 0 {
		z.Pods = nil
	}
	return z, problem
}

// least is the one of two texts that is first, "" for none.
func least(a, b string) string {
	if a == "" {
		return b
	}
	return min(a, b)
}

// split says how many of some CPUs are in each zone, by the zones' numbers.
func split(ids []int, lie map[int]int) []cluster.ZoneShare {
	count := map[int]int64{}
	for _, id := range ids {
		count[lie[id]]++
	}
	out := make([]cluster.ZoneShare, 0, len(count))
	for _, zone := range slices.Sorted(maps.Keys(count)) {
		out = append(out, cluster.ZoneShare{Zone: zoneName + strconv.Itoa(zone), Amounts: []cluster.Quantity{{Name: "cpu", Value: 1000 * count[zone]}}})
	}
	return out
}

// ranges are numbers from the first to the second.
type ranges [][2]int

// cpus reads a list of numbers and ranges, such as 0-3,8.
func cpus(text string) (ranges, error) {
	if text = strings.TrimSpace(text); text == "" {
		return nil, nil
	}
	var out ranges
	for part := range strings.SplitSeq(text, ",") {
		first, last, wide := strings.Cut(strings.TrimSpace(part), "-")
		if !wide {
			last = first
		}
		from, err := strconv.ParseUint(first, 10, 31)
		to, err2 := strconv.ParseUint(last, 10, 31)
		if err != nil || err2 != nil || from > to {
			return nil, fmt.Errorf("has %q; it must be a list of numbers and ranges, such as 0-3,8", brief(part))
		}
		out = append(out, [2]int{int(from), int(to)})
	}
	return out, nil
}

// sort puts them in order, and makes one of those that touch.
func (r *ranges) sort() {
	slices.SortFunc(*r, func(a, b [2]int) int { return cmp.Or(cmp.Compare(a[0], b[0]), cmp.Compare(a[1], b[1])) })
	var out ranges
	for _, x := range *r {
		if n := len(out); n > 0 && x[0] <= out[n-1][1]+1 {
			out[n-1][1] = max(out[n-1][1], x[1])
			continue
		}
		out = append(out, x)
	}
	*r = out
}

// among are the known CPUs that are in the ranges, which are in order; lowest first.
func (r ranges) among(known map[int]int) []int {
	var out []int
	for id := range known { // order: sorted below
		at, exact := slices.BinarySearchFunc(r, id, func(x [2]int, id int) int { return cmp.Compare(x[0], id) })
		if exact || at > 0 && r[at-1][1] >= id {
			out = append(out, id)
		}
	}
	slices.Sort(out)
	return out
}
