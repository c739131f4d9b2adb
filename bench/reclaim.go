package main

import (
	"context"
	"fmt"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
)

// The groups of reclaim, by what their names begin with, as the load driver has them: who fills the nodes, and who takes.
const (
	givers = "a-"
	takers = "b-"
)

// reclaim fills the nodes with Jobs of one queue; the other, which has half of the quota, then submits gangs, which are measured.
func (t *trial) reclaim(ctx context.Context) (map[string]float64, error) {
	c := t.c
	var err error
	if t.side == sideBare {
		err = t.clear(ctx)
	} else {
		err = t.ready(ctx)
	}
	if err != nil {
		return nil, err
	}
	full, err := watchPods(ctx, t.lab.Client(), givers, nil)
	if err != nil {
		return nil, err
	}
	defer full.stop()
	all := c.Nodes * gpusPerNode
	if err := each(ctx, all, func(i int) error { return t.job(ctx, fmt.Sprintf("%s%05d", givers, i), 1, 1, 0, nil) }); err != nil {
		return nil, err
	}
	if err := full.wait(ctx, "the nodes are full", bindPatience, t.sched, func(n counts) bool { return n.ran >= all }); err != nil {
		return nil, err
	}
	if _, err := t.rest(ctx); err != nil {
		return nil, err
	}
	if err := each(ctx, c.pods()/c.Gang, func(i int) error { return t.job(ctx, fmt.Sprintf("%s%05d", takers, i), c.Gang, 1, 0, nil) }); err != nil {
		return nil, err
	}
	if err := t.o.wait(ctx, "all pods are bound", bindPatience, t.sched, func(n counts) bool { return n.bound >= c.pods() }); err != nil {
		return nil, err
	}
	return t.finish(ctx)
}

// clearing is what bare does in reclaim: who fills the nodes is bound when made, one node after the other; a gang that is whole has as many of those deleted, and gets
// their nodes when they have ended. Nothing is told.
type clearing struct {
	t    *trial
	do   chan func() error
	seen map[string]bool // pods without a node, by name

	filled int
	runs   map[string]*corev1.Pod // may go
	goes   map[string]string      // was deleted, on which node
	gangs  map[string][]string    // not whole yet
	waits  []string               // pods of gangs that are whole, in order
}

// clear watches the pods and does that, until the trial ends.
func (t *trial) clear(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	x := &clearing{t: t, do: make(chan func() error, 1<<16), seen: map[string]bool{}, runs: map[string]*corev1.Pod{}, goes: map[string]string{}, gangs: map[string][]string{}}
	pods := cache.NewSharedIndexInformer(cache.NewListWatchFromClient(t.lab.Client().CoreV1().RESTClient(), "pods", space, fields.Everything()), &corev1.Pod{}, 0, cache.Indexers{})
	handler, err := pods.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { x.see(ctx, o.(*corev1.Pod), false) },
		UpdateFunc: func(_, o any) { x.see(ctx, o.(*corev1.Pod), false) },
		DeleteFunc: func(o any) {
			if gone, ok := o.(cache.DeletedFinalStateUnknown); ok {
				o = gone.Obj
			}
			if p, ok := o.(*corev1.Pod); ok {
				x.see(ctx, p, true)
			}
		},
	})
	if err != nil {
		cancel()
		return fmt.Errorf("watch the pods: %w", err)
	}
	var wg sync.WaitGroup
	t.hands = func() { cancel(); wg.Wait() }
	wg.Go(func() { pods.RunWithContext(ctx) })
	for range writers {
		wg.Go(func() {
			for {
				select {
				case do := <-x.do:
					if err := do(); err != nil && ctx.Err() == nil {
						t.stop(err)
					}
				case <-ctx.Done():
					return
				}
			}
		})
	}
	if !cache.WaitForCacheSync(ctx.Done(), handler.HasSynced) {
		return context.Cause(ctx)
	}
	return nil
}

// see takes what has become of a pod into account. Events come one after the other.
func (x *clearing) see(ctx context.Context, p *corev1.Pod, gone bool) {
	group, name := p.Labels[jobLabel], p.Name
	giver, ended := strings.HasPrefix(group, givers), gone || p.Status.Phase == corev1.PodFailed || p.Status.Phase == corev1.PodSucceeded
	switch {
	case giver && ended:
		delete(x.runs, name)
		if node, ok := x.goes[name]; ok {
			delete(x.goes, name)
			next := x.waits[0]
			x.waits = x.waits[1:]
			x.do <- func() error { return x.t.bind(ctx, next, node) }
		}
	case ended || x.seen[name] && p.Spec.NodeName == "":
	case giver && p.Spec.NodeName == "" && x.filled < x.t.c.Nodes*gpusPerNode:
		x.seen[name] = true
		node := x.t.node(x.filled)
		x.filled++
		x.do <- func() error { return x.t.bind(ctx, name, node) }
	case giver && p.Status.Phase == corev1.PodRunning && p.DeletionTimestamp == nil:
		x.runs[name] = p
	case !giver && p.Spec.NodeName == "":
		x.seen[name] = true
		x.gangs[group] = append(x.gangs[group], name)
		if len(x.gangs[group]) == x.t.c.Gang {
			x.take(ctx, x.gangs[group])
		}
	}
}

// take has as many pods deleted as a gang has, whichever they are.
func (x *clearing) take(ctx context.Context, gang []string) {
	x.waits = append(x.waits, gang...)
	for name, p := range x.runs { // order: any will do
		if len(gang) == 0 {
			break
		}
		gang = gang[1:]
		delete(x.runs, name)
		x.goes[name] = p.Spec.NodeName
		x.do <- func() error {
			err := x.t.lab.Client().CoreV1().Pods(space).Delete(ctx, name, metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)})
			if err != nil && !apierrors.IsNotFound(err) {
				return fmt.Errorf("delete pod %s: %w", name, err)
			}
			return nil
		}
	}
}
