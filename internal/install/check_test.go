package install

import (
	"fmt"

	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/profile"
)

// refuse is a check that refuses one plugin.
func refuse(plugin string) func(profile.Shard, engine.Profile) ([]profile.Unknown, error) {
	return func(_ profile.Shard, p engine.Profile) ([]profile.Unknown, error) {
		if p.Uses(plugin) {
			return nil, fmt.Errorf("plugin %s makes no sense", plugin)
		}
		return nil, nil
	}
}
