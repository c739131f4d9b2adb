package spec

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestParseCPU: field names in any case, as Virtlet's users write them.
func TestParseCPU(t *testing.T) {
	t.Parallel()
	got, err := ParseCPU(`
mode: custom
Match: exact
model: {value: Nehalem, fallback: forbid}
topology: {sockets: 1, cores: 2, threads: 2}
features:
- {name: vmx, policy: require}
- name: x2apic
numa:
  cell:
  - {id: 0, cpus: 0-1, memory: 1, unit: GiB}
  - {ID: 1, CPUs: "2,3", memory: 1048576, memAccess: shared}
`, 4, 2<<30)
	if err != nil {
		t.Fatal(err)
	}
	want := &CPU{
		Mode: "custom", Match: "exact", Model: &CPUModel{Value: "Nehalem", Fallback: "forbid"},
		Topology: &CPUTopology{Sockets: 1, Cores: 2, Threads: 2}, Features: []CPUFeature{{"vmx", "require"}, {Name: "x2apic"}},
		Numa: &CPUNuma{Cell: []CPUCell{{ID: 0, CPUs: "0-1", Memory: 1, Unit: "GiB"}, {ID: 1, CPUs: "2,3", Memory: 1 << 20, MemAccess: "shared"}}},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

// TestBadCPU: what is wrong is named by its field, and nothing gets into the XML that libvirt would read as something else.
func TestBadCPU(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"mode: [":                          "yaml",
		"- a":                              "must be a map of keys to values",
		"mode: fast":                       `mode "fast": must be custom, host-model, host-passthrough or maximum`,
		"mode: 3":                          "mode: must be a string, not a number",
		"xmlname: {local: devices}":        `unknown field "xmlname"`,
		"model: {value: '<x>'}":            `model.value "<x>": must be letters`,
		"model: {vendorid: short}":         `model.vendorid "short": must be 12 characters without a comma`,
		"topology: {cores: 3}":             "topology: must multiply to the machine's 2 CPUs, not to 3",
		"topology: {cores: -1}":            "topology.cores -1: must be 0 to 255",
		"topology: {cores: a}":             "topology.cores: must be a whole number, not a string",
		"features: [{name: a}, {name: a}]": `features[1].name "a": must be set, and each only once`,
		"features: [{policy: maybe}]":      `features[0].policy "maybe": must be force`,
		"cache: {level: 4, mode: emulate}": "cache.level 4: must be 0 to 3",
		"cache: {level: 3}":                "cache.mode: must be set",
		"numa: {cell: []}":                 "numa.cell: must have 1 to 32 entries",
		"numa: {cell: [{id: 0, cpus: 0-9, memory: 1}]}":            `numa.cell[0].cpus "0-9": must be CPUs of the machine`,
		"numa: {cell: [{id: 0, cpus: '0', memory: 8, unit: GiB}]}": "numa.cell: the cells' memory must add up to the machine's 1073741824 bytes, not to 8589934592",
	} {
		if _, err := ParseCPU(text, 2, 1<<30); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s gives %v, want %q", text, err, want)
		}
	}
}

// FuzzCPU: no setting makes the reader fail otherwise than by an error, and what it takes passes when it is written and read again.
func FuzzCPU(f *testing.F) {
	for _, seed := range []string{"mode: host-model", "features: [{name: vmx}]", "topology: {cores: 2}", "numa: {cell: [{memory: 1, unit: GiB}]}", "model: {value: a}", "xmlname: x"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		c, err := ParseCPU(text, 2, 1<<30)
		if err != nil {
			return
		}
		for _, s := range []string{c.Mode, c.Match, c.Check, c.Migratable, c.Vendor} {
			if strings.ContainsAny(s, "<>&\"'\x00\n") {
				t.Errorf("%q is in a setting that was taken", s)
			}
		}
		again, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := ParseCPU(string(again), 2, 1<<30); err != nil {
			t.Errorf("%s is not taken again: %v", again, err)
		}
	})
}

func TestCPUList(t *testing.T) {
	t.Parallel()
	for list, want := range map[string]string{"": "", "0": "0", "0-3,8": "0-3,8", "8,3,1-3": "1-3,8", " 1 , 2 ": "1-2"} {
		got, err := ParseCPUList(list)
		if err != nil || FormatCPUList(got) != want {
			t.Errorf("%q gives %q, %v; want %q", list, FormatCPUList(got), err, want)
		}
	}
	for _, list := range []string{"a", "3-1", "-1", "1-", "1,,2", "9999", "0-70000", strings.Repeat("0-8191,", 10000) + "0"} {
		if got, err := ParseCPUList(list); err == nil {
			t.Errorf("%q gives %v, want an error", Short(list), got)
		}
	}
}
