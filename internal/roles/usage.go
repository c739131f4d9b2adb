package roles

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/go-logr/logr"

	"github.com/muster-scheduler/muster/internal/app"
	"github.com/muster-scheduler/muster/internal/kube/aside"
	"github.com/muster-scheduler/muster/internal/usage"
	"github.com/muster-scheduler/muster/internal/usage/history"
	"github.com/muster-scheduler/muster/internal/usage/promapi"
)

// past is where the scheduler's history of usage comes from. Its zero value is none.
type past struct {
	config  *usage.Config
	address string
	metrics *usage.Metrics
	guard   *aside.Guard
}

// guarded is a source and a history; a defect in either is a failure of that question or that sample.
type guarded struct {
	usage.Source
	usage.History
	guard *aside.Guard
}

// Fetch asks the source.
func (g guarded) Fetch(ctx context.Context, now time.Time) (shares usage.Shares, err error) {
	err = g.guard.Catch("the usage of queues", "all queues", func() (err error) {
		shares, err = g.Source.Fetch(ctx, now)
		return err
	})
	return shares, err
}

// Record tells the history.
func (g guarded) Record(ctx context.Context, at time.Time, s usage.Sample) error {
	return g.guard.Catch("a sample of usage", "all queues", func() error { return g.History.Record(ctx, at, s) })
}

// usage reads the configuration of the history of usage and registers its metrics.
func (p *process) usage() (past, error) {
	c, err := p.Settings.usage()
	if err != nil || c == nil {
		return past{}, err
	}
	if c.Client == usage.Fake {
		p.log.Info("usageDBConfig: the client is fake: no queue has a history")
		return past{}, nil
	}
	address, err := c.Resolve(os.LookupEnv)
	if err != nil {
		return past{}, err
	}
	if c.Client == usage.Embedded && address == "" {
		address = historyFolder(os.UserCacheDir, app.SchedulerLease(p.SchedulerNames[0], p.Partition))
	}
	m, err := usage.NewMetrics(p.MetricsNamespace, p.registry)
	if err != nil {
		return past{}, fmt.Errorf("register metrics: %w", err)
	}
	return past{config: c, address: address, metrics: m}, nil
}

// historyFolder is where an embedded history goes that names no folder: one per scheduler and shard, in the user's cache
// folder, or among temporary files where there is none, as in a bare container.
func historyFolder(cache func() (string, error), lease string) string {
	folder, err := cache()
	if err != nil {
		folder = os.TempDir()
	}
	return filepath.Join(folder, "muster", "usage", lease)
}

// open makes the history ready, for the process that leads; nil if there is none. A folder is opened by the keeper, so that none that
// cannot be opened keeps anybody from scheduling. The caller calls done when the keeper has ended.
func (h past) open(ctx context.Context) (k *usage.Keeper, done func(), err error) {
	log := logr.FromContextOrDiscard(ctx).WithName("usage")
	closing := func(what interface{ Close() error }) func() {
		return func() {
			if err := what.Close(); err != nil {
				log.Error(err, "close the history of usage")
			}
		}
	}
	switch {
	case h.config == nil:
		return nil, func() {}, nil
	case h.config.Client == usage.Prometheus:
		s, err := promapi.New(*h.config, h.address)
		if err != nil {
			return nil, nil, fmt.Errorf("usageDBConfig: %w", err)
		}
		log.Info("queues' usage comes from a Prometheus server", "every", h.config.Interval.String())
		return usage.NewKeeper(*h.config, guarded{Source: s, guard: h.guard}, nil, h.metrics), closing(s), nil
	}
	s := history.NewLazy(*h.config, h.address)
	log.Info("queues' usage is recorded and read here", "folder", h.address, "every", h.config.Resolution.String())
	both := guarded{s, s, h.guard}
	return usage.NewKeeper(*h.config, both, both, h.metrics), closing(s), nil
}
