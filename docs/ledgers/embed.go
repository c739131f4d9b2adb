package ledgers

import (
	_ "embed"
	"fmt"

	"sigs.k8s.io/yaml"
)

//go:embed flags.yaml
var flagsFile []byte

// Flag is one row of the flag ledger.
type Flag struct {
	// Default is KAI's default; "" when it is empty.
	Default string `json:"default"`
	// Exactly one of these is set: what proves that the flag is honoured, why it has no effect, or what will honour it.
	Honoured string `json:"honoured,omitempty"`
	Accepted string `json:"accepted,omitempty"`
	Planned  string `json:"planned,omitempty"`
}

// Flags returns the flags of one of KAI's programs by name; an error for a program the ledger does not have.
func Flags(program string) (map[string]Flag, error) {
	var all map[string]map[string]Flag
	if err := yaml.UnmarshalStrict(flagsFile, &all); err != nil {
		return nil, fmt.Errorf("flag ledger: %w", err)
	}
	rows, ok := all[program]
	if !ok {
		return nil, fmt.Errorf("flag ledger: no program %q", program)
	}
	return rows, nil
}

//go:embed properties.yaml
var propertiesFile []byte

// Property is one row of the ledger of properties.
type Property struct {
	// Exactly one of these is set: what proves that the property is honoured, why it has no effect, or what will honour it.
	Honoured string `json:"honoured,omitempty"`
	Accepted string `json:"accepted,omitempty"`
	Planned  string `json:"planned,omitempty"`
	// Ours says that KAI does not have it.
	Ours bool `json:"ours,omitempty"`
}

// Properties returns the rows of one custom resource, such as queues.scheduling.run.ai, by path; an error for one the ledger
// does not have.
func Properties(resource string) (map[string]Property, error) {
	var all map[string]map[string]Property
	if err := yaml.UnmarshalStrict(propertiesFile, &all); err != nil {
		return nil, fmt.Errorf("property ledger: %w", err)
	}
	rows, ok := all[resource]
	if !ok {
		return nil, fmt.Errorf("property ledger: no resource %q", resource)
	}
	return rows, nil
}

//go:embed differences.yaml
var differencesFile []byte

// Difference is one row of the list of what Muster does otherwise than KAI.
type Difference struct {
	// What says what Muster does and what KAI does, Why gives the reason; both in Markdown, with links as from a page of docs/operations.
	What string `json:"what"`
	Why  string `json:"why"`
	// Shown names scenarios that show it.
	Shown []string `json:"shown,omitempty"`
	// Concerns is what a cluster must use, one of it, for the difference to matter; empty: it may matter to everybody.
	Concerns []string `json:"concerns,omitempty"`
}

// Differences returns the list by area.
func Differences() (map[string][]Difference, error) {
	var all map[string][]Difference
	if err := yaml.UnmarshalStrict(differencesFile, &all); err != nil {
		return nil, fmt.Errorf("list of differences: %w", err)
	}
	return all, nil
}

//go:embed virtlet.yaml
var virtletFile []byte

// VirtletRow says what muster-vm does with one thing of Virtlet's.
type VirtletRow struct {
	// Default is Virtlet's, where it has one.
	Default string `json:"default,omitempty"`
	// Exactly one of these is set: what takes or shows it, or why it has no effect.
	Taken   string `json:"taken,omitempty"`
	Without string `json:"without,omitempty"`
	// Differs is what is otherwise than in Virtlet, with the reason.
	Differs string `json:"differs,omitempty"`
}

// Virtlet returns the ledger of Virtlet's interface by section and name.
func Virtlet() (map[string]map[string]VirtletRow, error) {
	var all map[string]map[string]VirtletRow
	if err := yaml.UnmarshalStrict(virtletFile, &all); err != nil {
		return nil, fmt.Errorf("ledger of Virtlet: %w", err)
	}
	return all, nil
}

//go:embed volcano.yaml
var volcanoFile []byte

// VolcanoRow says what Muster does otherwise than Volcano, or than kube-batch, of which Volcano came.
type VolcanoRow struct {
	// What says what Muster does and what Volcano does, Why gives the reason.
	What string `json:"what"`
	// Told is the key under which a check of a cluster finds it; "" where it cannot be seen from objects.
	Told string `json:"told,omitempty"`
	Why  string `json:"why"`
	// Shown names Go tests that show it.
	Shown []string `json:"shown,omitempty"`
	// Planned says that Muster does not do it yet.
	Planned bool `json:"planned,omitempty"`
}

// Volcano returns the list of differences from Volcano by part.
func Volcano() (map[string][]VolcanoRow, error) {
	var all map[string][]VolcanoRow
	if err := yaml.UnmarshalStrict(volcanoFile, &all); err != nil {
		return nil, fmt.Errorf("ledger of Volcano: %w", err)
	}
	return all, nil
}

//go:embed volcanovalues.yaml
var volcanoValuesFile []byte

// VolcanoValue says what becomes of a value of Volcano's Helm chart. Exactly one of To, Gate and Ignored is set.
type VolcanoValue struct {
	// Default is Volcano's; nil where it has none, or none that says anything.
	Default any `json:"default,omitempty"`
	// To are the places in the values of Muster's chart that get it: PATH, PATH[].KEY for a list of one map, or PATH --FLAG for a flag that is added to a list.
	To []string `json:"to,omitempty"`
	// Gate is, for a text of feature gates, the place that is true where one of them is.
	Gate map[string]string `json:"gate,omitempty"`
	// Ignored says why it has no effect.
	Ignored string `json:"ignored,omitempty"`
}

// VolcanoValues returns the ledger of the values of Volcano's Helm chart, by path, such as custom.scheduler_name.
func VolcanoValues() (map[string]VolcanoValue, error) {
	var all map[string]VolcanoValue
	if err := yaml.UnmarshalStrict(volcanoValuesFile, &all); err != nil {
		return nil, fmt.Errorf("ledger of Volcano's values: %w", err)
	}
	return all, nil
}

//go:embed kubebatch.yaml
var kubeBatchFile []byte

// KubeBatch returns the list of differences from kube-batch by part. What a row is shown by may be scenarios too.
func KubeBatch() (map[string][]VolcanoRow, error) {
	var all map[string][]VolcanoRow
	if err := yaml.UnmarshalStrict(kubeBatchFile, &all); err != nil {
		return nil, fmt.Errorf("ledger of kube-batch: %w", err)
	}
	return all, nil
}

//go:embed upstream.yaml
var upstreamFile []byte

// UpstreamRow says what Muster does with one field of Kubernetes' own groups, and all below it.
type UpstreamRow struct {
	// Exactly one of these is set: the scenarios and Go tests that show that it is honoured, why it has no effect, or what is missing.
	Honoured []string `json:"honoured,omitempty"`
	Accepted string   `json:"accepted,omitempty"`
	Planned  string   `json:"planned,omitempty"`
	// Differs says what kube-scheduler does otherwise.
	Differs string `json:"differs,omitempty"`
}

// Upstream returns the ledger of Kubernetes' own groups by kind and field.
func Upstream() (map[string]map[string]UpstreamRow, error) {
	var all map[string]map[string]UpstreamRow
	if err := yaml.UnmarshalStrict(upstreamFile, &all); err != nil {
		return nil, fmt.Errorf("ledger of Kubernetes' own groups: %w", err)
	}
	return all, nil
}
