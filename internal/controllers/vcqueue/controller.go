package vcqueue

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bus "github.com/muster-scheduler/muster/api/volcano/bus/v1alpha1"
	"github.com/muster-scheduler/muster/api/volcano/keys"
	scheduling "github.com/muster-scheduler/muster/api/volcano/scheduling/v1beta1"
	"github.com/muster-scheduler/muster/internal/kube/control"
	"github.com/muster-scheduler/muster/internal/kube/write"
)

// Controller is the queue controller.
type Controller struct {
	*control.Controller[string, plan]
	kit  *write.Kit
	book *book
}

// New returns the controller, not yet running. workers is how many queues are written at a time, 1 or more.
func New(s control.Shell, workers int) (*Controller, error) {
	n, err := newCounts(s.Registry)
	if err != nil {
		return nil, err
	}
	b := newBook(n)
	c := &Controller{book: b}
	kit, err := write.New(s.Client, "vcqueue", s.Registry)
	if err != nil {
		return nil, fmt.Errorf("queue controller: %w", err)
	}
	c.kit = kit
	c.Controller, err = control.NewController(s, control.Role[string, plan]{
		Name: "vcqueue", Workers: workers, MinRetry: 5 * time.Millisecond, MaxRetry: 3 * time.Minute,
		About: func(name string) client.Object { return &scheduling.Queue{ObjectMeta: metav1.ObjectMeta{Name: name}} },
		Decide: func(name string, _ time.Time) (plan, []control.Due[string], time.Time) {
			return b.decide(name), nil, time.Time{}
		},
		Write: c.write,
	})
	if err != nil {
		return nil, err
	}
	c.Lock()
	c.Add(control.Keys(keys.RootQueue, keys.DefaultQueue)...) // of what is missing no watch tells
	c.Unlock()
	control.Watch(c.Loop, &scheduling.Queue{}, func(q *scheduling.Queue, gone bool) []control.Due[string] {
		return control.Keys(b.queueSeen(q, gone)...)
	})
	control.Watch(c.Loop, &scheduling.PodGroup{}, func(g *scheduling.PodGroup, gone bool) []control.Due[string] { return control.Keys(n.seen(g, gone)...) })
	control.Watch(c.Loop, &bus.Command{}, func(m *bus.Command, gone bool) []control.Due[string] { return control.Keys(b.commandSeen(m, gone)...) })
	return c, nil
}

// write carries a plan out.
func (c *Controller) write(ctx context.Context, p plan) error {
	for _, m := range p.take {
		if err := c.take(ctx, m); err != nil {
			return err
		}
	}
	if err := c.make(ctx, p.found); err != nil {
		return err
	}
	q := p.queue
	if q == nil {
		return nil
	}
	for _, step := range []func() error{
		func() error {
			return c.patch(ctx, q, p.adopt, map[string]any{"spec": map[string]any{"parent": keys.RootQueue}})
		},
		func() error { return c.mark(ctx, q, p.mark, "true") },
		func() error { return c.state(ctx, q, p.state) },
		func() error { return c.mark(ctx, q, p.mark, "false") },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	if p.obeys != nil {
		return c.take(ctx, p.obeys)
	}
	return nil
}

// make makes a queue that has to be there, unless somebody else was faster.
func (c *Controller) make(ctx context.Context, q *scheduling.Queue) error {
	if q == nil {
		return nil
	}
	if err := c.Shell.Client.Create(ctx, q); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create Queue %s: %w", q.Name, err)
	}
	return nil
}

// take deletes a Command. It is not obeyed again before its end is told.
func (c *Controller) take(ctx context.Context, m *bus.Command) error {
	if _, err := c.kit.Delete(ctx, m); err != nil {
		return err
	}
	c.Lock()
	defer c.Unlock()
	c.book.commandSeen(m, true)
	return nil
}

// patch merges into the very queue that was looked at, if that is wanted.
func (c *Controller) patch(ctx context.Context, q *scheduling.Queue, wanted bool, change map[string]any) error {
	if !wanted {
		return nil
	}
	meta, _ := change["metadata"].(map[string]any)
	if meta == nil {
		meta = map[string]any{}
		change["metadata"] = meta
	}
	meta["uid"] = q.UID
	_, err := c.kit.Merge(ctx, &scheduling.Queue{ObjectMeta: metav1.ObjectMeta{Name: q.Name}}, write.Body(change))
	return err
}

// mark writes the annotation, if it is the turn of what it is to say.
func (c *Controller) mark(ctx context.Context, q *scheduling.Queue, mark, turn string) error {
	return c.patch(ctx, q, mark == turn, map[string]any{"metadata": map[string]any{"annotations": map[string]string{keys.ClosedByParent: mark}}})
}

// state writes the state, if there is one to write.
func (c *Controller) state(ctx context.Context, q *scheduling.Queue, state scheduling.QueueState) error {
	if state == "" {
		return nil
	}
	body := write.Body(map[string]any{"status": map[string]any{"state": state}})
	_, err := c.kit.MergeStatus(ctx, &scheduling.Queue{ObjectMeta: metav1.ObjectMeta{Name: q.Name}}, body)
	return err
}
