package admission

import (
	kaiv1 "github.com/muster-scheduler/muster/api/kai/v1"
)

// ShardCheck says what a scheduler that is given the shard would refuse (an error that names the field and the rule), and what it
// would ignore. It is what reads the configuration of schedulers: the role has no rules of its own about shards.
type ShardCheck func(*kaiv1.SchedulingShardSpec) (warnings []string, err error)
