package conformance

import (
	_ "embed"
	"fmt"

	"sigs.k8s.io/yaml"
)

//go:embed ledger.yaml
var ledgerText []byte

// Row accepts one difference between KAI's expectation and ours.
type Row struct {
	ID  string `json:"id"`
	Why string `json:"why"`
	// KAI and Ours are what each side does.
	KAI  Result `json:"kai"`
	Ours Result `json:"ours"`
	// Scenario is the file under scenarios/ that pins ours.
	Scenario string `json:"scenario"`
}

// Result is an outcome in numbers: GPUs placed, pods evicted, and one sentence on fairness.
type Result struct {
	GPUs      float64 `json:"gpusPlaced"`
	Evictions int     `json:"evictions"`
	Fairness  string  `json:"fairness"`
}

// Ledger returns the accepted differences. A row that lacks a field is an error naming it.
func Ledger() ([]Row, error) { return parseLedger(ledgerText) }

func parseLedger(text []byte) ([]Row, error) {
	var rows []Row
	if err := yaml.UnmarshalStrict(text, &rows); err != nil {
		return nil, fmt.Errorf("ledger: %w", err)
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
				return nil, fmt.Errorf("ledger: row %d (%s): %s is missing", i+1, r.ID, f.name)
			}
		}
		if seen[r.ID] {
			return nil, fmt.Errorf("ledger: %s is listed twice", r.ID)
		}
		seen[r.ID] = true
	}
	return rows, nil
}
