package vcjobflow

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"

	batch "github.com/muster-scheduler/muster/api/volcano/batch/v1alpha1"
	flow "github.com/muster-scheduler/muster/api/volcano/flow/v1alpha1"
	"github.com/muster-scheduler/muster/internal/entry"
	"github.com/muster-scheduler/muster/internal/kube/control"
	"github.com/muster-scheduler/muster/internal/kube/write"
)

// Controller is the controller of JobFlows.
type Controller struct {
	*control.Controller[key, plan]
	kit     *write.Kit
	book    *book
	connect func(ctx context.Context, ip string, port int) error
	get     func(ctx context.Context, ip string, what *flow.HTTPGet) error
}

// New returns the controller, not yet running. workers is how many JobFlows are written about at a time, 1 or more. check says what is wrong with a JobFlow, as admission
// does, which may be off.
func New(s control.Shell, workers int, check func(*flow.JobFlow) field.ErrorList) (*Controller, error) {
	b := newBook(check)
	c := &Controller{book: b, connect: connect, get: get}
	kit, err := write.New(s.Client, "vcjobflow", s.Registry)
	if err != nil {
		return nil, fmt.Errorf("vcjobflow: %w", err)
	}
	c.kit = kit
	c.Controller, err = control.NewController(s, control.Role[key, plan]{
		Name: "vcjobflow", Workers: workers, MinRetry: 100 * time.Millisecond, MaxRetry: 3 * time.Minute,
		Tenant: func(k key) string { return k.Namespace },
		About:  control.Named[flow.JobFlow],
		Decide: func(k key, now time.Time) (plan, []control.Due[key], time.Time) {
			p, again := b.decide(k, now)
			return p, nil, again
		},
		Write: c.write,
	})
	if err != nil {
		return nil, err
	}
	control.WatchLater(c.Loop, &flow.JobFlow{}, func(f *flow.JobFlow, gone bool) []control.Due[key] { return control.Keys(b.flowSeen(f, gone)...) })
	control.WatchLater(c.Loop, &flow.JobTemplate{}, func(t *flow.JobTemplate, gone bool) []control.Due[key] {
		return control.Keys(b.templateSeen(t, gone)...)
	})
	control.Watch(c.Loop, &batch.Job{}, func(j *batch.Job, gone bool) []control.Due[key] { return control.Keys(b.jobSeen(j, gone)...) })
	return c, nil
}

// write carries a plan out.
func (c *Controller) write(ctx context.Context, p plan) error {
	if p.flow == nil {
		c.Once(p.key, nil, nil)
		return nil
	}
	var errs []error
	for _, j := range p.create {
		wrong, err := c.create(ctx, p, j)
		if errs = append(errs, err); p.wrong == nil {
			p.wrong = wrong
		}
	}
	c.Once(p.key, p.flow, p.wrong)
	errs = append(errs, c.status(ctx, p))
	for _, j := range p.remove {
		_, err := c.kit.Delete(ctx, j.DeepCopy())
		errs = append(errs, err)
	}
	if len(p.ask) > 0 {
		c.askAll(ctx, p)
	}
	return errors.Join(errs...)
}

// create makes a Job, and returns what the user is to be told. One of the name that is the flow's already is it.
func (c *Controller) create(ctx context.Context, p plan, j *batch.Job) (*control.Note, error) {
	err := c.Shell.Client.Create(ctx, j)
	if apierrors.IsAlreadyExists(err) {
		err = c.Shell.Client.Get(ctx, client.ObjectKeyFromObject(j), j)
	}
	if err != nil {
		err = fmt.Errorf("create Job %s: %w", j.Name, err)
		return &control.Note{Warning: true, Reason: "FailedCreate", Message: err.Error()}, err
	}
	if !metav1.IsControlledBy(j, p.flow) {
		err := fmt.Errorf("job %s is another's; the flow waits until it is gone", j.Name)
		return &control.Note{Warning: true, Reason: "ForeignJob", Message: err.Error()}, err
	}
	c.Lock()
	defer c.Unlock()
	if have := c.book.flows[p.key]; have != nil && have.UID == p.flow.UID {
		c.Add(control.Keys(c.book.jobSeen(j, false)...)...)
	}
	return nil, nil
}

// status writes the status.
func (c *Controller) status(ctx context.Context, p plan) error {
	if p.status == nil {
		return nil
	}
	body, err := control.StatusPatch(p.flow.UID, p.status)
	if err != nil {
		return err
	}
	f := &flow.JobFlow{ObjectMeta: metav1.ObjectMeta{Namespace: p.key.Namespace, Name: p.key.Name}}
	result, err := c.kit.JSONStatus(ctx, f, body)
	if err == nil && result == write.Written {
		c.Lock()
		defer c.Unlock()
		if have := c.book.flows[p.key]; have != nil && have.UID == f.UID {
			c.Add(control.Keys(c.book.flowSeen(f, false)...)...)
		}
	}
	return err
}

// askAll asks the pods that parts wait for. Those whose pods are ready have their turn.
func (c *Controller) askAll(ctx context.Context, p plan) {
	ctx, cancel := context.WithTimeout(ctx, patienceInAll)
	defer cancel()
	for _, a := range p.ask {
		if err := c.ask(ctx, a); err != nil {
			c.Shell.Log.V(1).Info("a part of a flow is not ready", "flow", p.key, "part", a.part, "error", err.Error())
			continue
		}
		c.Lock()
		if have := c.book.flows[p.key]; have != nil && have.UID == p.flow.UID {
			entry.Put(c.book.answered, have.UID, a.part, true)
			c.Add(control.Keys(p.key)...)
		}
		c.Unlock()
	}
}
