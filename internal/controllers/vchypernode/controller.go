package vchypernode

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	topo "github.com/muster-scheduler/muster/api/volcano/topology/v1alpha1"
	"github.com/muster-scheduler/muster/internal/kube/control"
	"github.com/muster-scheduler/muster/internal/kube/write"
)

// settle is how long a change waits to be looked at, so that those of many nodes are looked at together.
const settle = time.Second

// everything is the one key that there is. What is told of a HyperNode has its name.
const everything = ""

// Controller is the controller of HyperNodes.
type Controller struct {
	*control.Controller[string, plan]
	kit   *write.Kit
	known map[string]bool // HyperNodes of which something was told; of the one worker
}

// New returns the controller, not yet running. namespace is where the ConfigMap keys.ControllerConfig says what is discovered.
func New(s control.Shell, namespace string) (*Controller, error) {
	b, c := newBook(namespace), &Controller{known: map[string]bool{}}
	kit, err := write.New(s.Client, "vchypernode", s.Registry)
	if err != nil {
		return nil, fmt.Errorf("vchypernode: %w", err)
	}
	c.kit = kit
	c.Controller, err = control.NewController(s, control.Role[string, plan]{
		Name: "vchypernode", Workers: 1, MinRetry: time.Second, MaxRetry: 3 * time.Minute,
		Decide: func(string, time.Time) (plan, []control.Due[string], time.Time) { return b.decide(), nil, time.Time{} },
		Write:  c.write,
	})
	if err != nil {
		return nil, err
	}
	due := func(news bool) []control.Due[string] { return control.If(news, everything, settle) }
	control.Watch(c.Loop, &corev1.Node{}, func(n *corev1.Node, gone bool) []control.Due[string] { return due(b.NodeSeen(n, gone)) })
	control.Watch(c.Loop, &corev1.ConfigMap{}, func(m *corev1.ConfigMap, gone bool) []control.Due[string] { return due(b.configSeen(m, gone)) })
	control.WatchLater(c.Loop, &topo.HyperNode{}, func(h *topo.HyperNode, gone bool) []control.Due[string] { return due(b.HyperSeen(h, gone)) })
	return c, nil
}

// write carries a plan out. What one HyperNode is refused keeps no other from its own.
func (c *Controller) write(ctx context.Context, p plan) error {
	if p.config != nil {
		c.Once(everything, p.config, p.bad)
	}
	for name, h := range p.about { // order: each on its own
		if n := p.wrong[name]; n != nil || c.known[name] {
			c.Once(name, h, n)
			c.known[name] = n != nil
		}
	}
	for name := range c.known { // order: each on its own
		if p.about[name] == nil {
			c.Once(name, nil, nil)
			delete(c.known, name)
		}
	}
	var errs []error
	for _, h := range p.create {
		if err := c.Shell.Client.Create(ctx, h.DeepCopy()); err != nil && !apierrors.IsAlreadyExists(err) {
			errs = append(errs, fmt.Errorf("create HyperNode %s: %w", h.Name, err))
		}
	}
	for _, one := range p.change {
		_, err := c.kit.Merge(ctx, &topo.HyperNode{ObjectMeta: metav1.ObjectMeta{Name: one.hyper.Name}}, one.patch)
		errs = append(errs, err)
	}
	for _, h := range p.remove {
		_, err := c.kit.Delete(ctx, h.DeepCopy())
		errs = append(errs, err)
	}
	for _, one := range p.counts {
		errs = append(errs, c.count(ctx, one))
	}
	return errors.Join(errs...)
}

// count writes how many nodes a HyperNode has.
func (c *Controller) count(ctx context.Context, one count) error {
	body := write.Body(map[string]any{"status": map[string]any{"nodeCount": one.nodes}})
	_, err := c.kit.MergeStatus(ctx, &topo.HyperNode{ObjectMeta: metav1.ObjectMeta{Name: one.hyper.Name}}, body)
	return err
}
