package roles

import (
	kaiv1 "github.com/muster-scheduler/muster/api/kai/v1"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/engine/builtin"
	"github.com/muster-scheduler/muster/internal/kube/filters"
	"github.com/muster-scheduler/muster/internal/profile"
)

// checkShard says what a scheduler that is given the shard would refuse, and what it would ignore: it resolves the shard and
// compiles the profile, as the scheduler does when it starts.
func checkShard(spec *kaiv1.SchedulingShardSpec) (warnings []string, err error) {
	s := profile.Of(spec)
	warnings = s.Warnings()
	p, err := profile.ForShard(s)
	if err != nil {
		return warnings, err
	}
	e, err := engine.New(p, filters.Register(builtin.Registry(), filters.Options{}))
	if err != nil {
		return warnings, err
	}
	return append(warnings, e.Warnings...), nil
}
