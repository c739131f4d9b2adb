package vccron

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
	"github.com/muster-scheduler/muster/internal/kube/control"
	"github.com/muster-scheduler/muster/internal/kube/write"
)

// Controller is the controller of CronJobs.
type Controller struct {
	*control.Controller[key, plan]
	kit  *write.Kit
	book *book
}

// New returns the controller, not yet running. workers is how many CronJobs are written about at a time, 1 or more. check says what is wrong with a CronJob, as admission does,
// which may be off.
func New(s control.Shell, workers int, check func(*batch.CronJob) field.ErrorList) (*Controller, error) {
	b := newBook(check)
	c := &Controller{book: b}
	kit, err := write.New(s.Client, "vccron", s.Registry)
	if err != nil {
		return nil, fmt.Errorf("vccron: %w", err)
	}
	c.kit = kit
	c.Controller, err = control.NewController(s, control.Role[key, plan]{
		Name: "vccron", Workers: workers, MinRetry: 100 * time.Millisecond, MaxRetry: 3 * time.Minute,
		Tenant: func(k key) string { return k.Namespace },
		About:  control.Named[batch.CronJob],
		Decide: func(k key, now time.Time) (plan, []control.Due[key], time.Time) {
			p, again := b.decide(k, now)
			return p, nil, again
		},
		Write: c.write,
	})
	if err != nil {
		return nil, err
	}
	control.WatchLater(c.Loop, &batch.CronJob{}, func(o *batch.CronJob, gone bool) []control.Due[key] { return control.Keys(b.cronSeen(o, gone)...) })
	control.Watch(c.Loop, &batch.Job{}, func(j *batch.Job, gone bool) []control.Due[key] { return control.Keys(b.jobSeen(j, gone)...) })
	return c, nil
}

// write carries a plan out.
func (c *Controller) write(ctx context.Context, p plan) error {
	c.Once(p.key, p.cron, p.wrong)
	if p.cron == nil {
		return nil
	}
	for _, j := range p.replaced {
		if err := c.remove(ctx, p.cron, j, "ReplaceConcurrent"); err != nil {
			return err
		}
	}
	if p.create != nil {
		return c.create(ctx, p)
	}
	if err := c.status(ctx, p); err != nil {
		return err
	}
	var errs []error
	for _, j := range p.past {
		errs = append(errs, c.remove(ctx, p.cron, j, "SuccessfulDelete"))
	}
	return errors.Join(errs...)
}

// create makes the Job that is due. One of the name that is the CronJob's already is it; for somebody else's there is none at that time.
func (c *Controller) create(ctx context.Context, p plan) error {
	j := p.create.DeepCopy()
	err := c.Shell.Client.Create(ctx, j)
	if apierrors.IsAlreadyExists(err) {
		if err = c.Shell.Client.Get(ctx, client.ObjectKeyFromObject(j), j); apierrors.IsNotFound(err) {
			return fmt.Errorf("create Job %s: another of the name went meanwhile", j.Name)
		}
	} else if err == nil {
		c.Say(p.cron, control.Note{Reason: "SuccessfulCreate", Message: "made Job " + j.Name})
	}
	if err != nil {
		c.Say(p.cron, control.Note{Warning: true, Reason: "FailedCreate", Message: fmt.Sprintf("create Job %s: %v", j.Name, err)})
		return fmt.Errorf("create Job %s: %w", client.ObjectKeyFromObject(j), err)
	}
	ours := metav1.IsControlledBy(j, p.cron)
	if !ours {
		c.Say(p.cron, control.Note{Warning: true, Reason: "ForeignJob", Message: fmt.Sprintf("Job %s is another's; none is made for %s", j.Name, p.due.UTC().Format(time.RFC3339))})
	}
	c.Lock()
	defer c.Unlock()
	if !ours || scheduled(j).Before(p.due) { // of one minute there is one Job
		c.book.taken[p.key] = p.due
	}
	if have := c.book.crons[p.key]; ours && have != nil && have.UID == p.cron.UID {
		c.Add(control.Keys(c.book.jobSeen(j, false)...)...)
	}
	return nil
}

// status writes the status, and tells what is new in it.
func (c *Controller) status(ctx context.Context, p plan) error {
	if p.status == nil {
		return nil
	}
	body, err := control.StatusPatch(p.cron.UID, p.status)
	if err != nil {
		return err
	}
	o := &batch.CronJob{ObjectMeta: metav1.ObjectMeta{Namespace: p.cron.Namespace, Name: p.cron.Name}}
	result, err := c.kit.JSONStatus(ctx, o, body)
	if err == nil && result == write.Written {
		c.Say(p.cron, p.notes...)
		c.Lock()
		defer c.Unlock()
		if have := c.book.crons[client.ObjectKeyFromObject(o)]; have != nil && have.UID == o.UID {
			c.book.cronSeen(o, false)
		}
	}
	return err
}

// remove deletes a Job, and tells it.
func (c *Controller) remove(ctx context.Context, about *batch.CronJob, j *batch.Job, reason string) error {
	result, err := c.kit.Delete(ctx, j.DeepCopy())
	switch {
	case err != nil:
		c.Say(about, control.Note{Warning: true, Reason: "FailedDelete", Message: fmt.Sprintf("delete Job %s: %v", j.Name, err)})
	case result == write.Written:
		c.Say(about, control.Note{Reason: reason, Message: "deleted Job " + j.Name})
	}
	return err
}
