package vcjobtemplate

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	batch "github.com/muster-scheduler/muster/api/volcano/batch/v1alpha1"
	flow "github.com/muster-scheduler/muster/api/volcano/flow/v1alpha1"
	"github.com/muster-scheduler/muster/api/volcano/keys"
	"github.com/muster-scheduler/muster/internal/entry"
	"github.com/muster-scheduler/muster/internal/kube/control"
	"github.com/muster-scheduler/muster/internal/kube/write"
)

const (
	// settle is how long a change waits to be looked at, so that those of a flow are looked at together.
	settle = 100 * time.Millisecond
	// most is how many Jobs a status names, the latest; an object has a bound.
	most = 1000
)

// key names a JobTemplate, or a Job.
type key = types.NamespacedName

// book is what the controller knows.
type book struct {
	templates map[key]*flow.JobTemplate
	jobs      map[key]map[key]*batch.Job // by the template
	of        map[key]key                // a Job's template
}

func newBook() *book {
	return &book{templates: map[key]*flow.JobTemplate{}, jobs: map[key]map[key]*batch.Job{}, of: map[key]key{}}
}

// templateSeen takes in a JobTemplate.
func (b *book) templateSeen(t *flow.JobTemplate, gone bool) []key {
	k := client.ObjectKeyFromObject(t)
	if b.templates[k] = t; gone {
		delete(b.templates, k)
	}
	return []key{k}
}

// jobSeen takes in a Job, and returns the templates to look at: none if it is known.
func (b *book) jobSeen(j *batch.Job, gone bool) (due []key) {
	k := client.ObjectKeyFromObject(j)
	was, had := b.of[k]
	if had {
		delete(b.of, k)
		if delete(b.jobs[was], k); len(b.jobs[was]) == 0 {
			delete(b.jobs, was)
		}
		due = append(due, was)
	}
	space, name, ok := strings.Cut(cmp.Or(j.Annotations[keys.CreatedByJobTemplate], j.Labels[keys.CreatedByJobTemplate]), ".") // no namespace has a dot
	if !ok || space != j.Namespace || gone {
		return due
	}
	of := key{Namespace: space, Name: name}
	b.of[k] = of
	entry.Put(b.jobs, of, k, j)
	if had && was == of {
		return nil
	}
	return append(due, of)
}

// plan is the status that a JobTemplate is to have; nil: as it is.
type plan struct {
	template *flow.JobTemplate
	status   *flow.JobTemplateStatus
}

// decide says what a JobTemplate's status is to be.
func (b *book) decide(k key) plan {
	t := b.templates[k]
	if t == nil || t.DeletionTimestamp != nil {
		return plan{}
	}
	jobs := slices.SortedFunc(maps.Values(b.jobs[k]), func(x, y *batch.Job) int {
		return cmp.Or(y.CreationTimestamp.Compare(x.CreationTimestamp.Time), cmp.Compare(x.Name, y.Name))
	})
	var names []string
	for _, j := range jobs[:min(len(jobs), most)] {
		names = append(names, j.Name)
	}
	slices.Sort(names)
	if slices.Equal(names, t.Status.JobDependsOnList) {
		return plan{}
	}
	return plan{t, &flow.JobTemplateStatus{JobDependsOnList: names}}
}

// Controller is the controller of JobTemplates.
type Controller struct {
	*control.Controller[key, plan]
	kit *write.Kit
}

// New returns the controller, not yet running. workers is how many JobTemplates are written about at a time, 1 or more.
func New(s control.Shell, workers int) (*Controller, error) {
	b, c := newBook(), &Controller{}
	kit, err := write.New(s.Client, "vcjobtemplate", s.Registry)
	if err != nil {
		return nil, fmt.Errorf("vcjobtemplate: %w", err)
	}
	c.kit = kit
	c.Controller, err = control.NewController(s, control.Role[key, plan]{
		Name: "vcjobtemplate", Workers: workers, MinRetry: 100 * time.Millisecond, MaxRetry: 3 * time.Minute,
		Tenant: func(k key) string { return k.Namespace },
		About:  control.Named[flow.JobTemplate],
		Decide: func(k key, _ time.Time) (plan, []control.Due[key], time.Time) { return b.decide(k), nil, time.Time{} },
		Write:  c.write,
	})
	if err != nil {
		return nil, err
	}
	due := func(names []key) []control.Due[key] { return control.After(settle, names...) }
	control.WatchLater(c.Loop, &flow.JobTemplate{}, func(t *flow.JobTemplate, gone bool) []control.Due[key] { return due(b.templateSeen(t, gone)) })
	control.Watch(c.Loop, &batch.Job{}, func(j *batch.Job, gone bool) []control.Due[key] { return due(b.jobSeen(j, gone)) })
	return c, nil
}

// write carries a plan out.
func (c *Controller) write(ctx context.Context, p plan) error {
	if p.status == nil {
		return nil
	}
	body, err := control.StatusPatch(p.template.UID, p.status)
	if err != nil {
		return err
	}
	o := &flow.JobTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: p.template.Namespace, Name: p.template.Name}}
	_, err = c.kit.JSONStatus(ctx, o, body)
	return err
}
