package ledgers

import (
	_ "embed"
	"fmt"

	"sigs.k8s.io/yaml"
)

//go:embed cases.yaml
var casesFile []byte

// Case accepts one difference between KAI's expectation in a behaviour case and what Muster does.
type Case struct {
	// ID is the case's, such as rounds/reclaim-009; Why is one sentence or two for people.
	ID  string `json:"id"`
	Why string `json:"why"`
	// KAI and Ours are what each side does.
	KAI  Outcome `json:"kai"`
	Ours Outcome `json:"ours"`
	// Scenario is the file under scenarios/ that pins ours.
	Scenario string `json:"scenario"`
}

// Outcome is one in numbers: GPUs placed, pods evicted, and one sentence on fairness.
type Outcome struct {
	GPUs      float64 `json:"gpusPlaced"`
	Evictions int     `json:"evictions"`
	Fairness  string  `json:"fairness"`
}

// Cases returns the accepted differences. A row that lacks a field is an error naming it.
func Cases() ([]Case, error) {
	var rows []Case
	if err := yaml.UnmarshalStrict(casesFile, &rows); err != nil {
		return nil, fmt.Errorf("ledger of cases: %w", err)
	}
	seen := map[string]bool{}
	for i, r := range rows {
		for _, f := range []struct{ name, value string }{
			{"id", r.ID},
			{"why", r.Why},
			{"scenario", r.Scenario},
			{"kai.fairness", r.KAI.Fairness},
			{"ours.fairness", r.Ours.Fairness},
		} {
			if f.value == "" {
				return nil, fmt.Errorf("ledger of cases: row %d (%s): %s is missing", i+1, r.ID, f.name)
			}
		}
		if seen[r.ID] {
			return nil, fmt.Errorf("ledger of cases: %s is listed twice", r.ID)
		}
		seen[r.ID] = true
	}
	return rows, nil
}
