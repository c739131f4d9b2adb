package profile

import (
	"fmt"
	"maps"
	"slices"
	"time"

	kaiv1 "github.com/muster-scheduler/muster/api/kai/v1"
)

// budgetsOfTime are KAI's scenarioSearchBudgets. They are checked as KAI checks them, so that a file that works there works
// here and one that does not is refused, and have no effect: our searches are bounded in steps.
type budgetsOfTime struct {
	MaxActionSearchDuration    map[string]string `json:"maxActionSearchDuration,omitempty"`
	MaxJobSearchDuration       *string           `json:"maxJobSearchDuration,omitempty"`
	MinJobSearchDuration       *string           `json:"minJobSearchDuration,omitempty"`
	MaxGeneratorSearchDuration map[string]string `json:"maxGeneratorSearchDuration,omitempty"`
}

// jobSearch is how long KAI looks for victims for one job at most, where nothing is said.
const jobSearch = 4 * time.Minute

// timesOf is what a shard says of times, as it stands in a configuration file.
func timesOf(s *kaiv1.ScenarioSearchBudgets) *budgetsOfTime {
	if s == nil {
		return nil
	}
	b := &budgetsOfTime{MaxActionSearchDuration: map[string]string{}, MaxGeneratorSearchDuration: map[string]string{}}
	for name, d := range s.MaxActionSearchDuration { // order: each by its own name
		b.MaxActionSearchDuration[name] = d.Duration.String()
	}
	for name, d := range s.MaxGeneratorSearchDuration { // order: each by its own name
		b.MaxGeneratorSearchDuration[name] = d.Duration.String()
	}
	if d := s.MaxJobSearchDuration; d != nil {
		text := d.Duration.String()
		b.MaxJobSearchDuration = &text
	}
	if d := s.MinJobSearchDuration; d != nil {
		b.MinJobSearchDuration = new(d.Duration.String())
	}
	return b
}

// check refuses what KAI refuses: actions that never search, negative times, and a least time that is not below the most.
func (b *budgetsOfTime) check() error {
	if b == nil {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(b.MaxActionSearchDuration)) {
		if !slices.Contains([]string{"default", "reclaim", "preempt", "consolidation"}, name) {
			return fmt.Errorf("scenarioSearchBudgets.maxActionSearchDuration: %q is not one of default, reclaim, preempt, consolidation", name)
		}
		if _, err := notNegative("maxActionSearchDuration."+name, b.MaxActionSearchDuration[name]); err != nil {
			return err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(b.MaxGeneratorSearchDuration)) {
		if _, err := notNegative("maxGeneratorSearchDuration."+name, b.MaxGeneratorSearchDuration[name]); err != nil {
			return err
		}
	}
	most, least := jobSearch, time.Duration(0)
	var err error
	if b.MaxJobSearchDuration != nil {
		if most, err = notNegative("maxJobSearchDuration", *b.MaxJobSearchDuration); err != nil {
			return err
		}
	}
	if b.MinJobSearchDuration != nil {
		if least, err = notNegative("minJobSearchDuration", *b.MinJobSearchDuration); err != nil {
			return err
		}
	}
	if most != 0 && least >= most {
		return fmt.Errorf("scenarioSearchBudgets.minJobSearchDuration is %v; it must be below maxJobSearchDuration, %v", least, most)
	}
	return nil
}

func notNegative(field, text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		return 0, fmt.Errorf("scenarioSearchBudgets.%s is %q; it must be a Go duration that is not negative, such as 30s or 2m", field, text)
	}
	return d, nil
}
