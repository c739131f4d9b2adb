package queue

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v2 "github.com/muster-scheduler/muster/api/scheduling/v2"
	"github.com/muster-scheduler/muster/api/scheduling/v2alpha2"
	"github.com/muster-scheduler/muster/internal/kube/aside"
	"github.com/muster-scheduler/muster/internal/kube/control"
	"github.com/muster-scheduler/muster/internal/kube/write"
)

const (
	// settle is how long a changed queue waits to be written. As every event after a write waits as long, it is also
	// the least time between two writes of one status.
	settle = time.Second

	// retryMax bounds the exponential wait after failed writes, so that a status is never older than 10 s once the
	// API server answers again.
	retryMax = 8 * time.Second

	// writers is the number of statuses written at the same time. Queues are few, and written once a second at most.
	writers = 4
)

// Deps are what the role needs of the process around it.
type Deps struct {
	// Cache feeds Queues and PodGroups; it is started by the process.
	Cache cache.Cache
	// Client writes Queue statuses. It must know the Queue kind.
	Client client.Client
	// Log takes the role's messages.
	Log logr.Logger
	// Registry takes the role's metrics; nil for none.
	Registry prometheus.Registerer
	// Clock times the writes and the conditions; nil is the real one.
	Clock clock.WithTicker
	// Guard sets aside what ends in a defect, and has hung work noticed; nil: nobody is told.
	Guard *aside.Guard
}

// Controller is the queue role. Its book is the aggregator.
type Controller struct {
	deps    Deps
	kit     *write.Kit
	metrics *metrics
	loop    *control.Loop[string, patches]
}

// patches are what is to be written of one queue; nil bodies are nothing.
type patches struct {
	queue              string
	status, annotation []byte
}

// New checks the options and returns the role, not yet running.
func New(deps Deps, o Options) (*Controller, error) {
	extra, err := o.mapped()
	if err != nil {
		return nil, err
	}
	kit, err := write.New(deps.Client, "queue", deps.Registry)
	if err != nil {
		return nil, fmt.Errorf("queue role: %w", err)
	}
	f := newAggregator()
	c := &Controller{deps: deps, kit: kit}
	c.loop = control.New(control.Deps{Cache: deps.Cache, Log: deps.Log, Clock: deps.Clock, Guard: deps.Guard}, control.Role[string, patches]{
		Name: "queue", Workers: writers, MinRetry: settle, MaxRetry: retryMax,
		About: func(name string) client.Object { return &v2.Queue{ObjectMeta: metav1.ObjectMeta{Name: name}} },
		Decide: func(name string, now time.Time) (patches, []control.Due[string], time.Time) {
			status, annotation, more := f.take(name, now)
			return patches{name, status, annotation}, due(more), time.Time{}
		},
		Write: c.write,
	})
	control.Watch(c.loop, &v2.Queue{}, func(q *v2.Queue, gone bool) []control.Due[string] {
		if gone {
			return due(f.queueGone(q.Name))
		}
		return due(f.queueChanged(q))
	})
	control.Watch(c.loop, &v2alpha2.PodGroup{}, func(pg *v2alpha2.PodGroup, gone bool) []control.Due[string] {
		if gone {
			return due(f.groupGone(client.ObjectKeyFromObject(pg)))
		}
		return due(f.groupChanged(pg))
	})
	c.metrics = newMetrics(c.loop, f, o.MetricsNamespace, extra)
	return c, nil
}

// due makes the queues that have changed wait to be written.
func due(names []string) (out []control.Due[string]) {
	for _, name := range names {
		out = append(out, control.Due[string]{Key: name, After: settle})
	}
	return out
}

// Run keeps statuses and serves metrics until ctx ends, which is no error. It must be called once. It writes nothing
// before every object that existed at its start has been taken in.
func (c *Controller) Run(ctx context.Context) error {
	if c.deps.Registry != nil {
		if err := c.deps.Registry.Register(c.metrics); err != nil {
			return fmt.Errorf("queue role: register metrics: %w", err)
		}
		defer c.deps.Registry.Unregister(c.metrics) // who does not lead knows nothing to report
	}
	return c.loop.Run(ctx)
}

// write makes one queue's status and annotation what they should be.
func (c *Controller) write(ctx context.Context, p patches) error {
	q := &v2.Queue{}
	q.Name = p.queue
	_, err := c.kit.MergeStatus(ctx, q, p.status)
	if p.annotation != nil {
		_, failed := c.kit.Merge(ctx, q, p.annotation)
		err = errors.Join(err, failed)
	}
	return err
}
