package domain

import (
	"fmt"
	"slices"

	"libvirt.org/go/libvirtxml"

	"github.com/muster-scheduler/muster/internal/vm/spec"
)

// compute fills in CPUs and memory.
func (in *Input) compute(d *libvirtxml.Domain) error {
	r := in.Spec.Resources
	if r.VCPUs < 1 || r.Memory < 1<<20 {
		return fmt.Errorf("%d CPUs and %d bytes of memory: must be at least 1 and 1 MiB", r.VCPUs, r.Memory)
	}
	d.VCPU = &libvirtxml.DomainVCPU{Placement: "static", Value: uint(r.VCPUs)}
	d.Memory = &libvirtxml.DomainMemory{Value: uint(r.Memory >> 10), Unit: "KiB"}
	if r.HugePage > 0 || len(in.Shares) > 0 {
		d.MemoryBacking = &libvirtxml.DomainMemoryBacking{}
	}
	if r.HugePage > 0 {
		d.MemoryBacking.MemoryHugePages = &libvirtxml.DomainMemoryHugepages{
			Hugepages: []libvirtxml.DomainMemoryHugepage{{Size: uint(r.HugePage >> 10), Unit: "KiB"}},
		}
	}
	if len(in.Shares) > 0 { // virtiofsd reads and writes the guest's memory
		d.MemoryBacking.MemorySource = &libvirtxml.DomainMemorySource{Type: "memfd"}
		d.MemoryBacking.MemoryAccess = &libvirtxml.DomainMemoryAccess{Mode: "shared"}
	}
	d.CPUTune = in.cpuTune()
	d.CPU = in.cpu()
	in.numa(d)
	return nil
}

// cpuTune has only what is set. The quota is the whole machine's, emulator included, as a container's is.
func (in *Input) cpuTune() *libvirtxml.DomainCPUTune {
	r := in.Spec.Resources
	t := &libvirtxml.DomainCPUTune{}
	if r.CPUShares > 0 {
		t.Shares = &libvirtxml.DomainCPUTuneShares{Value: uint(weight(r.CPUShares, in.Node.CgroupV2))}
	}
	if r.CPUQuota > 0 {
		t.GlobalPeriod = &libvirtxml.DomainCPUTunePeriod{Value: uint64(min(max(r.CPUPeriod, 1000), 1_000_000))}
		t.GlobalQuota = &libvirtxml.DomainCPUTuneQuota{Value: max(r.CPUQuota, 1000)} // libvirt's least
	}
	if cpus := sorted(r.CPUs); len(cpus) > 0 {
		all := spec.FormatCPUList(cpus)
		for i, pin := range in.pins() {
			t.VCPUPin = append(t.VCPUPin, libvirtxml.DomainCPUTuneVCPUPin{VCPU: uint(i), CPUSet: pin})
		}
		t.EmulatorPin = &libvirtxml.DomainCPUTuneEmulatorPin{CPUSet: all}
	}
	if t.Shares == nil && t.GlobalQuota == nil && t.EmulatorPin == nil {
		return nil
	}
	return t
}

// pins says for each virtual CPU which CPUs of the host it may run on: one of its own where there are enough, else all.
func (in *Input) pins() []string {
	r := in.Spec.Resources
	out := make([]string, r.VCPUs)
	cpus := in.byNode()
	for i := range out {
		if len(cpus) >= r.VCPUs {
			out[i] = spec.FormatCPUList(cpus[i : i+1])
		} else {
			out[i] = spec.FormatCPUList(sorted(r.CPUs))
		}
	}
	return out
}

// weight is cgroup v1's weight, or cgroup v2's by the formula of Kubernetes' KEP 2254: 2 becomes 1, 262144 becomes 10000, linear between.
func weight(shares int64, v2 bool) int64 {
	shares = min(max(shares, 2), 262144)
	if v2 {
		return 1 + (shares-2)*9999/262142
	}
	return shares
}

// cell is a NUMA node of the guest.
type cell struct {
	vcpus []int
	host  int // the host's node
}

// byNode are the first CPUs of the set, as many as the machine has, each node giving an equal part, node after node. Where it is not known which CPU
// is of which node, or the set is too small for that, they are as they come.
func (in *Input) byNode() []int {
	cells := in.cells()
	if len(cells) == 0 {
		return sorted(in.Spec.Resources.CPUs)
	}
	var out []int
	for _, c := range cells {
		out = append(out, in.bound(c.host)[:len(c.vcpus)]...)
	}
	return out
}

// bound are the machine's CPUs on a node of the host.
func (in *Input) bound(node int) []int {
	var out []int
	for _, n := range in.Node.NUMA {
		if n.ID != node {
			continue
		}
		for _, cpu := range sorted(n.CPUs) {
			if slices.Contains(in.Spec.Resources.CPUs, cpu) {
				out = append(out, cpu)
			}
		}
	}
	return out
}

// cells divides the machine among the nodes of the host that its CPUs are of. It is nil where they are of one node, or where not every
// virtual CPU can have a CPU of its own in an equal division: then the guest sees one node.
func (in *Input) cells() []cell {
	r := in.Spec.Resources
	var cells []cell
	for _, n := range in.Node.NUMA {
		if len(in.bound(n.ID)) > 0 {
			cells = append(cells, cell{host: n.ID})
		}
	}
	slices.SortFunc(cells, func(a, b cell) int { return a.host - b.host })
	if len(cells) < 2 || r.VCPUs < len(cells) || in.Spec.Machine.CPU != nil {
		return nil
	}
	next := 0
	for i := range cells {
		n := r.VCPUs / len(cells)
		if i < r.VCPUs%len(cells) {
			n++
		}
		if n > len(in.bound(cells[i].host)) {
			return nil
		}
		for range n {
			cells[i].vcpus = append(cells[i].vcpus, next)
			next++
		}
	}
	return cells
}

// numa binds the memory to the nodes of the host that the container may use, and shows the guest how its CPUs and memory belong together.
func (in *Input) numa(d *libvirtxml.Domain) {
	r := in.Spec.Resources
	mems := sorted(r.Mems)
	if len(mems) > 0 {
		d.NUMATune = &libvirtxml.DomainNUMATune{Memory: &libvirtxml.DomainNUMATuneMemory{Mode: "strict", Nodeset: spec.FormatCPUList(mems)}}
	}
	cells := in.cells()
	if len(cells) == 0 {
		return
	}
	if d.CPU == nil {
		d.CPU = &libvirtxml.DomainCPU{}
	}
	d.CPU.Numa = &libvirtxml.DomainNuma{}
	if d.NUMATune == nil {
		d.NUMATune = &libvirtxml.DomainNUMATune{}
	}
	unit := max(r.HugePage, 1<<20) // cells are made of whole pages
	rest := r.Memory
	for i, c := range cells {
		share := r.Memory / int64(len(cells)) / unit * unit
		if i == len(cells)-1 {
			share = rest
		}
		rest -= share
		id := uint(i)
		d.CPU.Numa.Cell = append(d.CPU.Numa.Cell, libvirtxml.DomainCell{
			ID: &id, CPUs: spec.FormatCPUList(c.vcpus), Memory: uint(share >> 10), Unit: "KiB",
		})
		node := libvirtxml.DomainNUMATuneMemNode{CellID: id, Mode: "preferred", Nodeset: fmt.Sprint(c.host)}
		switch {
		case slices.Contains(mems, c.host):
			node.Mode = "strict"
		case len(mems) > 0:
			node.Mode, node.Nodeset = "strict", spec.FormatCPUList(mems)
		}
		d.NUMATune.MemNodes = append(d.NUMATune.MemNodes, node)
	}
}

// cpu is the pod's CPU setting, or its CPU model; nil leaves it to QEMU.
func (in *Input) cpu() *libvirtxml.DomainCPU {
	m := in.Spec.Machine
	if m.CPU != nil {
		return cpuSetting(m.CPU)
	}
	switch m.CPUModel {
	case "":
		return nil
	case spec.HostModel:
		c := &libvirtxml.DomainCPU{Mode: spec.HostModel, Model: &libvirtxml.DomainCPUModel{Fallback: "forbid"}}
		if in.Node.Nested != "" && in.Node.DomainType == "kvm" { // required where it is not there, it would keep the machine from starting
			c.Features = []libvirtxml.DomainCPUFeature{{Policy: "require", Name: in.Node.Nested}}
		}
		return c
	case spec.HostPassthrough, spec.Maximum:
		return &libvirtxml.DomainCPU{Mode: m.CPUModel}
	}
	return &libvirtxml.DomainCPU{Mode: "custom", Match: "exact", Model: &libvirtxml.DomainCPUModel{Fallback: "forbid", Value: m.CPUModel}}
}

func cpuSetting(s *spec.CPU) *libvirtxml.DomainCPU {
	c := &libvirtxml.DomainCPU{Match: s.Match, Mode: s.Mode, Check: s.Check, Migratable: s.Migratable, Vendor: s.Vendor}
	if m := s.Model; m != nil {
		c.Model = &libvirtxml.DomainCPUModel{Fallback: m.Fallback, Value: m.Value, VendorID: m.VendorID}
	}
	if t := s.Topology; t != nil {
		c.Topology = &libvirtxml.DomainCPUTopology{Sockets: max(t.Sockets, 1), Dies: t.Dies, Clusters: t.Clusters, Cores: max(t.Cores, 1), Threads: max(t.Threads, 1)}
	}
	if k := s.Cache; k != nil {
		c.Cache = &libvirtxml.DomainCPUCache{Level: uint(k.Level), Mode: k.Mode}
	}
	if a := s.MaxPhysAddr; a != nil {
		c.MaxPhysAddr = &libvirtxml.DomainCPUMaxPhysAddr{Mode: a.Mode, Bits: uint(a.Bits), Limit: uint(a.Limit)}
	}
	for _, f := range s.Features {
		c.Features = append(c.Features, libvirtxml.DomainCPUFeature{Policy: f.Policy, Name: f.Name})
	}
	if s.Numa != nil {
		c.Numa = &libvirtxml.DomainNuma{}
		for i, n := range s.Numa.Cell {
			c.Numa.Cell = append(c.Numa.Cell, libvirtxml.DomainCell{ID: new(uint(i)), CPUs: n.CPUs, Memory: uint(n.Bytes() >> 10), Unit: "KiB", MemAccess: n.MemAccess})
		}
	}
	return c
}
