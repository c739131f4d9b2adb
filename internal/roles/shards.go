package roles

import (
	"fmt"

	kaiv1 "github.com/muster-scheduler/muster/api/kai/v1"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/engine/builtin"
	"github.com/muster-scheduler/muster/internal/kube/filters"
	"github.com/muster-scheduler/muster/internal/profile"
)

// checkShard says what a scheduler that is given the shard would refuse, and what it would ignore: it resolves the shard and
// compiles the profile, as the scheduler does when it starts. A name of a plugin or an action that nobody has, which a scheduler would leave
// out, is refused here: who writes it is there to put it right.
func checkShard(spec *kaiv1.SchedulingShardSpec) (warnings []string, err error) {
	s := profile.Of(spec)
	warnings = s.Warnings()
	p, err := profile.ForShard(s)
	if err != nil {
		return warnings, err
	}
	registry := filters.Register(builtin.Registry(), filters.Options{})
	if err := s.Refuse(registry); err != nil {
		return warnings, fmt.Errorf("spec: %w", err)
	}
	e, err := engine.New(p, registry)
	if err != nil {
		return warnings, err
	}
	return append(warnings, e.Warnings...), nil
}
