package install

import (
	"fmt"

	"github.com/muster-scheduler/muster/internal/engine"
)

// refuse is a check that does not know one plugin.
func refuse(plugin string) func(engine.Profile) error {
	return func(p engine.Profile) error {
		for _, tier := range p.Tiers {
			for _, u := range tier {
				if u.Name == plugin {
					return fmt.Errorf("no plugin is called %s", plugin)
				}
			}
		}
		return nil
	}
}
