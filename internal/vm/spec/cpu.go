package spec

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// CPU is libvirt's <cpu> element as VirtletLibvirtCPUSetting writes it: YAML whose keys are the field names below, in any case. Each field
// means what the element or attribute of its name means in libvirt's domain format, and holds only values that libvirt knows.
type CPU struct {
	// Mode is custom, host-model, host-passthrough or maximum; "" is custom.
	Mode string
	// Match is minimum, exact or strict. Check is none, partial or full. Migratable is on or off.
	Match, Check, Migratable string
	Model                    *CPUModel
	Vendor                   string
	Topology                 *CPUTopology
	Cache                    *CPUCache
	MaxPhysAddr              *CPUMaxPhysAddr
	Features                 []CPUFeature
	Numa                     *CPUNuma
}

// CPUModel names a CPU that libvirt knows. Fallback is allow or forbid.
type CPUModel struct{ Value, Fallback, VendorID string }

// CPUTopology has as product the number of the machine's CPUs; 0 counts as 1.
type CPUTopology struct{ Sockets, Dies, Clusters, Cores, Threads int }

// CPUCache is the cache that the guest sees: mode emulate, passthrough or disable, level 1 to 3.
type CPUCache struct {
	Level int
	Mode  string
}

// CPUMaxPhysAddr is the width of physical addresses: mode emulate or passthrough, bits and limit up to 64.
type CPUMaxPhysAddr struct {
	Mode        string
	Bits, Limit int
}

// CPUFeature is one feature. Policy is force, require, optional, disable or forbid; "" is require.
type CPUFeature struct{ Name, Policy string }

// CPUNuma is the guest's NUMA nodes.
type CPUNuma struct{ Cell []CPUCell }

// CPUCell is one NUMA node of the guest: its CPUs as a list such as "0-3,8", and its memory in Unit (KiB, MiB or GiB; "" is KiB).
type CPUCell struct {
	ID        int
	CPUs      string
	Memory    int64
	Unit      string
	MemAccess string
}

// Bytes is the cell's memory.
func (c CPUCell) Bytes() int64 {
	switch c.Unit {
	case "GiB":
		return c.Memory << 30
	case "MiB":
		return c.Memory << 20
	}
	return c.Memory << 10
}

// The bounds of a CPU setting.
const (
	maxFeatures = 512
	maxCells    = 32
)

var cpuName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.+-]{0,63}$`)

// ParseCPU reads a CPU setting for a machine of so many CPUs and bytes of memory; 0 where the memory is not known yet. Its errors name the
// field that is wrong.
func ParseCPU(text string, vcpus int, memory int64) (*CPU, error) {
	m, err := ParseYAMLMap([]byte(text))
	if err != nil {
		return nil, err
	}
	raw, err := json.Marshal(m)
	if err != nil {
		return nil, err
	}
	var c CPU
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.DisallowUnknownFields() // a field that does nothing would be a setting that is lost
	if err := dec.Decode(&c); err != nil {
		var wrong *json.UnmarshalTypeError
		if errors.As(err, &wrong) {
			return nil, fmt.Errorf("%s: must be a %s, not a %s", strings.ToLower(wrong.Field), kindName(wrong.Type.Kind().String()), wrong.Value)
		}
		return nil, errors.New(strings.TrimPrefix(err.Error(), "json: "))
	}
	return &c, c.check(vcpus, memory)
}

func kindName(kind string) string {
	switch kind {
	case "struct":
		return "map"
	case "slice":
		return "list"
	case "int", "int64":
		return "whole number"
	}
	return kind
}

// check gives the first field that is wrong.
func (c *CPU) check(vcpus int, memory int64) error {
	var err error
	oneOf := func(field, value string, allowed ...string) {
		if err == nil && value != "" && !slices.Contains(allowed, value) {
			err = fmt.Errorf("%s %q: must be %s", field, Short(value), alternatives(allowed))
		}
	}
	name := func(field, value string) {
		if err == nil && value != "" && !cpuName.MatchString(value) {
			err = fmt.Errorf("%s %q: must be letters, digits, '-', '_', '.' and '+', at most 64", field, Short(value))
		}
	}
	within := func(field string, value, low, high int64) {
		if err == nil && (value < low || value > high) {
			err = fmt.Errorf("%s %d: must be %d to %d", field, value, low, high)
		}
	}
	oneOf("mode", c.Mode, "custom", HostModel, HostPassthrough, Maximum)
	oneOf("match", c.Match, "minimum", "exact", "strict")
	oneOf("check", c.Check, "none", "partial", "full")
	oneOf("migratable", c.Migratable, "on", "off")
	name("vendor", c.Vendor)
	if m := c.Model; m != nil {
		name("model.value", m.Value)
		oneOf("model.fallback", m.Fallback, "allow", "forbid")
		if m.VendorID != "" && err == nil && (len(m.VendorID) != 12 || !plain(m.VendorID) || strings.Contains(m.VendorID, ",")) {
			err = fmt.Errorf("model.vendorid %q: must be 12 characters without a comma", Short(m.VendorID))
		}
	}
	if t := c.Topology; t != nil {
		product := int64(1)
		for _, part := range []struct {
			field string
			n     int
		}{{"sockets", t.Sockets}, {"dies", t.Dies}, {"clusters", t.Clusters}, {"cores", t.Cores}, {"threads", t.Threads}} {
			within("topology."+part.field, int64(part.n), 0, 255)
			product *= int64(max(part.n, 1)) // at most 255^5
		}
		if err == nil && product != int64(vcpus) {
			err = fmt.Errorf("topology: must multiply to the machine's %d CPUs, not to %d", vcpus, product)
		}
	}
	if k := c.Cache; k != nil {
		within("cache.level", int64(k.Level), 0, 3)
		oneOf("cache.mode", k.Mode, "emulate", "passthrough", "disable")
		if err == nil && k.Mode == "" {
			err = errors.New("cache.mode: must be set")
		}
	}
	if a := c.MaxPhysAddr; a != nil {
		oneOf("maxphysaddr.mode", a.Mode, "emulate", "passthrough")
		within("maxphysaddr.bits", int64(a.Bits), 0, 64)
		within("maxphysaddr.limit", int64(a.Limit), 0, 64)
	}
	within("features: their number", int64(len(c.Features)), 0, maxFeatures)
	seen := map[string]bool{}
	for i, f := range c.Features {
		field := fmt.Sprintf("features[%d]", i)
		oneOf(field+".policy", f.Policy, "force", "require", "optional", "disable", "forbid")
		name(field+".name", f.Name)
		if err == nil && (f.Name == "" || seen[f.Name]) {
			err = fmt.Errorf("%s.name %q: must be set, and each only once", field, f.Name)
		}
		seen[f.Name] = true
	}
	if err != nil {
		return err
	}
	return c.Numa.check(vcpus, memory)
}

func (n *CPUNuma) check(vcpus int, memory int64) error {
	if n == nil {
		return nil
	}
	if len(n.Cell) == 0 || len(n.Cell) > maxCells {
		return fmt.Errorf("numa.cell: must have 1 to %d entries", maxCells)
	}
	seen := map[int]bool{}
	var total int64
	for i, cell := range n.Cell {
		cpus, err := ParseCPUList(cell.CPUs)
		if err != nil {
			return fmt.Errorf("numa.cell[%d].cpus %q: %w", i, Short(cell.CPUs), err)
		}
		for _, cpu := range cpus {
			if cpu >= vcpus || seen[cpu] {
				return fmt.Errorf("numa.cell[%d].cpus %q: must be CPUs of the machine, below %d and each in one cell", i, Short(cell.CPUs), vcpus)
			}
			seen[cpu] = true
		}
		switch {
		case cell.ID != i:
			return fmt.Errorf("numa.cell[%d].id %d: must be %d", i, cell.ID, i)
		case cell.Memory <= 0 || cell.Memory > 1<<28:
			return fmt.Errorf("numa.cell[%d].memory %d: must be above 0", i, cell.Memory)
		case !slices.Contains([]string{"", "KiB", "MiB", "GiB"}, cell.Unit):
			return fmt.Errorf("numa.cell[%d].unit %q: must be KiB, MiB or GiB", i, Short(cell.Unit))
		case !slices.Contains([]string{"", "shared", "private"}, cell.MemAccess):
			return fmt.Errorf("numa.cell[%d].memaccess %q: must be shared or private", i, Short(cell.MemAccess))
		}
		total += cell.Bytes()
	}
	if memory > 0 && total != memory { // libvirt would take their sum for the machine's memory, whatever its limit
		return fmt.Errorf("numa.cell: the cells' memory must add up to the machine's %d bytes, not to %d", memory, total)
	}
	return nil
}

// alternatives is "a, b or c".
func alternatives(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:len(words)-1], ", ") + " or " + words[len(words)-1]
}
