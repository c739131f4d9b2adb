package roles

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	volcano "github.com/muster-scheduler/muster/api/volcano/keys"
	"github.com/muster-scheduler/muster/internal/app"
	"github.com/muster-scheduler/muster/internal/controllers/vcsharding"
	"github.com/muster-scheduler/muster/internal/dialect/volcano/nodeshards"
	"github.com/muster-scheduler/muster/internal/kube/control"
	"github.com/muster-scheduler/muster/internal/kube/textfile"
)

// shardingModeFlag is Volcano's name of the flag that says what its NodeShard means for a scheduler.
const shardingModeFlag = "scheduler-sharding-mode"

// sharding is the scheduler's part in Volcano's NodeShards.
func (s *Settings) sharding() nodeshards.Sharding {
	return nodeshards.Sharding{Mode: nodeshards.Mode(s.ShardingMode), Name: s.ShardingName}
}

// checkSharding looks at the flags about it.
func (s *Settings) checkSharding() error {
	part := s.sharding()
	if err := part.Check(); err != nil {
		return fmt.Errorf("--%s: %w", shardingModeFlag, err)
	}
	if part.On() && len(s.VolcanoNames) == 0 {
		return fmt.Errorf("--%s: there are no gangs of Volcano's without --volcano-scheduler-name", shardingModeFlag)
	}
	return nil
}

// running is what runs as that function.
type running func(ctx context.Context) error

// Run implements runner.
func (r running) Run(ctx context.Context) error { return r(ctx) }

// shardingController builds the controller that divides nodes between schedulers, and what follows its ConfigMap. That is a cache of its own: the right to list it is by its name.
func (p *process) shardingController(s control.Shell) (runner, error) {
	ref := textfile.Ref{NamespacedName: types.NamespacedName{Namespace: p.ShardingSpace, Name: p.ShardingMap}, Key: volcano.ShardingConfigKey}
	if ref.Namespace == "" {
		ref.Namespace = p.Namespace
	}
	if len(validation.IsDNS1123Subdomain(ref.Name)) > 0 || len(validation.IsDNS1123Label(ref.Namespace)) > 0 {
		return nil, fmt.Errorf("--sharding-configmap: %q is no name of a ConfigMap", ref.String())
	}
	c, err := vcsharding.New(s)
	if err != nil {
		return nil, err
	}
	objects, err := p.newCache(ref.Cache())
	if err != nil {
		return nil, err
	}
	return running(func(ctx context.Context) error {
		var g app.Group
		g.Add("sharding-configmap-cache", untilAsked(objects.Start))
		g.Add("sharding-configmap", func(ctx context.Context) error {
			return textfile.ConfigMap(ctx, objects, ref, func(f textfile.Found) {
				if err := s.Guard.Catch("the configuration of sharding", ref.String(), func() error {
					c.Configure(f)
					return nil
				}); err != nil {
					s.Log.Error(err, "the configuration of sharding could not be read: a defect")
				}
			})
		})
		g.Add("sharding", untilAsked(c.Run))
		return g.Run(ctx)
	}), nil
}
