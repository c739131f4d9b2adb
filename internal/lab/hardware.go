package lab

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Level is one level of a pool's tree of domains.
type Level struct {
	// Label is the node label whose value names the domain.
	Label string `json:"label"`
	// Count is how many such domains lie in each domain of the level before, or, for the first level, in the pool.
	Count int `json:"count"`
	// Name is what the domains are called, followed by a number: rack-0, rack-1 and so on throughout the pool. Default: what
	// follows the last slash of Label.
	Name string `json:"name,omitempty"`
}

// MIG says into which slices the GPUs of a node are cut.
type MIG struct {
	// Strategy is "mixed", in which each profile is a resource of its own, or "single", in which all slices are of one
	// profile and offered as nvidia.com/gpu.
	Strategy string `json:"strategy"`
	// Slices are how many of each profile a node offers, for instance 1g.10gb: 14.
	Slices map[string]int `json:"slices"`
}

// Devices are what a driver of resource claims offers on each node of a pool: one ResourceSlice of equal devices.
type Devices struct {
	// Driver is the driver's name, for instance gpu.example.com.
	Driver string `json:"driver"`
	// Count is how many of them a node has, at most 128.
	Count int `json:"count"`
	// Class is the DeviceClass that is made for them; default: the driver's name.
	Class string `json:"class,omitempty"`
	// Attributes and Capacity are those of each device. A value that is a whole number is one, all others are text.
	Attributes map[string]string `json:"attributes,omitempty"`
	Capacity   map[string]string `json:"capacity,omitempty"`
}

// NUMA says how a node is divided, and how its kubelet places pods in the parts.
type NUMA struct {
	// Zones is the number of NUMA zones, among which CPU, memory and GPUs are split evenly.
	Zones int `json:"zones"`
	// Policy is none, best-effort, restricted or single-numa-node (the default); Scope is container (the default) or pod.
	Policy string `json:"policy,omitempty"`
	Scope  string `json:"scope,omitempty"`
}

// generations are what feature discovery says of a product: its family, and the version of CUDA's instructions.
var generations = []struct{ product, family, major, minor string }{
	{"B200", "blackwell", "10", "0"},
	{"B300", "blackwell", "10", "3"},
	{"H100", "hopper", "9", "0"},
	{"H200", "hopper", "9", "0"},
	{"H20", "hopper", "9", "0"},
	{"L40", "ada-lovelace", "8", "9"},
	{"L4", "ada-lovelace", "8", "9"},
	{"A100", "ampere", "8", "0"},
	{"A10", "ampere", "8", "6"},
	{"V100", "volta", "7", "0"},
	{"T4", "turing", "7", "5"},
}

// checkHardware returns what is wrong with the pool's tree, slices, devices and zones.
func (p Pool) checkHardware() []error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	check(len(p.Tree) == 0 || p.Racks == 0 && p.Blocks == 0 && p.Zones == 0, "tree: excludes racks, blocks and zones")
	total := 1
	for i, l := range p.Tree {
		if e := validation.IsQualifiedName(l.Label); len(e) > 0 {
			errs = append(errs, fmt.Errorf("tree[%d].label: %q: %s", i, l.Label, e[0]))
		}
		check(l.Count > 0 && l.Count <= MaxNodes, "tree[%d].count: is %d, must be 1 to %d", i, l.Count, MaxNodes)
		total = min(total*min(max(l.Count, 1), MaxNodes), MaxNodes+1)
		if e := validation.IsValidLabelValue(p.DomainPrefix + l.name() + "-0"); len(e) > 0 {
			errs = append(errs, fmt.Errorf("tree[%d].name: %s", i, e[0]))
		}
	}
	check(p.Count%total == 0, "tree: %d nodes cannot be split evenly among %d domains", p.Count, total)
	if m := p.MIG; m != nil {
		check(m.Strategy == "mixed" || m.Strategy == "single", "mig.strategy: is %q, must be mixed or single", m.Strategy)
		check(m.Strategy != "single" || len(m.Slices) == 1, "mig.slices: strategy single has one profile, not %d", len(m.Slices))
		check(p.GPUs > 0, "mig: needs gpus, the number of devices that are cut")
		for _, profile := range slices.Sorted(maps.Keys(m.Slices)) {
			_, err := profileMemory(profile)
			check(err == nil, "mig.slices: %v", err)
			check(m.Slices[profile] >= 0 && m.Slices[profile] <= 1024*7, "mig.slices[%s]: is %d, must be 0 to %d", profile, m.Slices[profile], 1024*7)
		}
	}
	for i, d := range p.Devices {
		if e := validation.IsDNS1123Subdomain(d.Driver); len(e) > 0 {
			errs = append(errs, fmt.Errorf("devices[%d].driver: %q: %s", i, d.Driver, e[0]))
		}
		check(d.Count >= 0 && d.Count <= 128, "devices[%d].count: is %d, must be 0 to 128", i, d.Count)
		check(!slices.ContainsFunc(p.Devices[:i], func(o Devices) bool { return o.Driver == d.Driver }), "devices[%d].driver: %s is listed twice", i, d.Driver)
		for _, k := range slices.Sorted(maps.Keys(d.Capacity)) {
			_, err := resource.ParseQuantity(d.Capacity[k])
			check(err == nil, "devices[%d].capacity[%s]: %q is no quantity", i, k, d.Capacity[k])
		}
	}
	if n := p.NUMA; n != nil {
		check(n.Zones >= 1 && n.Zones <= 64, "numa.zones: is %d, must be 1 to 64", n.Zones)
		check(slices.Contains([]string{"", "none", "best-effort", "restricted", "single-numa-node"}, n.Policy), "numa.policy: %q is none of none, best-effort, restricted, single-numa-node", n.Policy)
		check(slices.Contains([]string{"", "container", "pod"}, n.Scope), "numa.scope: %q is neither container nor pod", n.Scope)
	}
	return errs
}

func (l Level) name() string {
	if l.Name != "" {
		return l.Name
	}
	return l.Label[strings.LastIndex(l.Label, "/")+1:]
}

// treeLabels returns the labels of the domains that the pool's i-th node lies in.
func (p Pool) treeLabels(i int) map[string]string {
	out := map[string]string{}
	total := 1
	for _, l := range p.Tree {
		total *= l.Count
		out[l.Label] = fmt.Sprintf("%s%s-%d", p.DomainPrefix, l.name(), i*total/p.Count)
	}
	return out
}

// profileMemory reads the memory of a slice from its profile, such as 1g.10gb, in MiB.
func profileMemory(profile string) (int, error) {
	g, rest, ok := strings.Cut(profile, "g.")
	memory, isGB := strings.CutSuffix(rest, "gb")
	n, err1 := strconv.Atoi(g)
	gb, err2 := strconv.Atoi(memory)
	if !ok || !isGB || errors.Join(err1, err2) != nil || n < 1 || n > 7 || gb < 1 || gb > 1024 {
		return 0, fmt.Errorf("profile %q: want a form such as 1g.10gb", profile)
	}
	return gb * 1024, nil
}

// cut replaces the resource of whole GPUs by those of the slices.
func (p Pool) cut(quantities map[string]string) {
	if p.MIG == nil {
		return
	}
	delete(quantities, string(GPUResource))
	for profile, n := range p.MIG.Slices { // order: a map
		name := "nvidia.com/mig-" + profile
		if p.MIG.Strategy == "single" {
			name = string(GPUResource)
		}
		quantities[name] = strconv.Itoa(n)
	}
}

// gpuLabels returns what GPU feature discovery says of a node with GPUs.
func (p Pool) gpuLabels() map[string]string {
	if p.GPUs == 0 {
		return nil
	}
	memory, product := p.GPUMemoryMiB, p.GPUProduct
	if memory == 0 {
		memory = 81920
	}
	if product == "" {
		product = "NVIDIA-H100-80GB-HBM3"
	}
	l := map[string]string{
		"nvidia.com/gpu.count": strconv.Itoa(p.GPUs), "nvidia.com/gpu.memory": strconv.Itoa(memory),
		"nvidia.com/gpu.product": product, "nvidia.com/gpu.present": "true", "nvidia.com/gpu.replicas": "1", "nvidia.com/mps.capable": "false",
	}
	for _, g := range generations {
		if strings.Contains(product, g.product) {
			l["nvidia.com/gpu.family"], l["nvidia.com/gpu.compute.major"], l["nvidia.com/gpu.compute.minor"] = g.family, g.major, g.minor
			break
		}
	}
	if p.MIG == nil {
		return l
	}
	l["nvidia.com/mig.capable"], l["nvidia.com/mig.strategy"] = "true", p.MIG.Strategy
	l["node-role.kubernetes.io/mig-enabled"] = "true"
	for profile, n := range p.MIG.Slices { // order: a map
		mib, err := profileMemory(profile)
		if err != nil {
			continue // validate has said so
		}
		if p.MIG.Strategy == "single" {
			l["nvidia.com/gpu.product"], l["nvidia.com/gpu.count"], l["nvidia.com/gpu.memory"] = product+"-MIG-"+profile, strconv.Itoa(n), strconv.Itoa(mib)
			continue
		}
		prefix := "nvidia.com/mig-" + profile
		l[prefix+".count"], l[prefix+".memory"], l[prefix+".product"] = strconv.Itoa(n), strconv.Itoa(mib), product+"-MIG-"+profile
	}
	return l
}

// zoned returns the part of each resource that a NUMA zone of the node has: CPU, memory and devices. What cannot be split
// evenly goes to the first zones.
func zoned(room corev1.ResourceList, zones, zone int) map[corev1.ResourceName]resource.Quantity {
	out := map[corev1.ResourceName]resource.Quantity{}
	for name, q := range room { // order: a map
		device := strings.Contains(string(name), "/")
		if name != corev1.ResourceCPU && name != corev1.ResourceMemory && !device {
			continue
		}
		total := q.Value()
		part := total / int64(zones)
		if int64(zone) < total%int64(zones) {
			part++
		}
		out[name] = *resource.NewQuantity(part, q.Format)
	}
	return out
}
