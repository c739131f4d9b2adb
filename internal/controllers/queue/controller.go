package queue

import (
	"context"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v2 "github.com/muster-scheduler/muster/api/scheduling/v2"
	"github.com/muster-scheduler/muster/api/scheduling/v2alpha2"
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

// Controller is the queue role. Its book is the aggregator.
type Controller struct {
	*control.Controller[string, patches]
	kit     *write.Kit
	metrics *metrics
}

// patches are what is to be written of one queue; nil bodies are nothing.
type patches struct {
	queue              string
	status, annotation []byte
}

// New checks the options and returns the role, not yet running.
func New(s control.Shell, o Options) (*Controller, error) {
	extra, err := o.mapped()
	if err != nil {
		return nil, err
	}
	f, c := newAggregator(), &Controller{}
	kit, err := write.New(s.Client, "queue", s.Registry)
	if err != nil {
		return nil, fmt.Errorf("queue role: %w", err)
	}
	c.kit = kit
	c.Controller, err = control.NewController(s, control.Role[string, patches]{
		Name: "queue", Workers: writers, MinRetry: settle, MaxRetry: retryMax,
		About: func(name string) client.Object { return &v2.Queue{ObjectMeta: metav1.ObjectMeta{Name: name}} },
		Decide: func(name string, now time.Time) (patches, []control.Due[string], time.Time) {
			status, annotation, more := f.take(name, now)
			return patches{name, status, annotation}, due(more), time.Time{}
		},
		Write: c.write,
	})
	if err != nil {
		return nil, err
	}
	control.Watch(c.Loop, &v2.Queue{}, func(q *v2.Queue, gone bool) []control.Due[string] {
		if gone {
			return due(f.queueGone(q.Name))
		}
		return due(f.queueChanged(q))
	})
	control.Watch(c.Loop, &v2alpha2.PodGroup{}, func(pg *v2alpha2.PodGroup, gone bool) []control.Due[string] {
		if gone {
			return due(f.groupGone(client.ObjectKeyFromObject(pg)))
		}
		return due(f.groupChanged(pg))
	})
	c.metrics = newMetrics(c.Loop, f, o.MetricsNamespace, extra)
	return c, nil
}

// due makes the queues that have changed wait to be written.
func due(names []string) []control.Due[string] { return control.After(settle, names...) }

// Run keeps statuses and serves metrics until ctx ends, which is no error. It must be called once. It writes nothing
// before every object that existed at its start has been taken in.
func (c *Controller) Run(ctx context.Context) error {
	if registry := c.Shell.Registry; registry != nil {
		if err := registry.Register(c.metrics); err != nil {
			return fmt.Errorf("queue role: register metrics: %w", err)
		}
		defer registry.Unregister(c.metrics) // who does not lead knows nothing to report
	}
	return c.Controller.Run(ctx)
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
