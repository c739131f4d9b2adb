package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
)

// space is the namespace of the load, jobLabel tells which of its Jobs a pod is of: both are the load driver's.
const (
	space    = "load"
	jobLabel = "load/job"
)

// counts are how far the pods of the load have come.
type counts struct{ made, bound, ran, ended int }

func (c counts) String() string {
	return fmt.Sprintf("%d pods made, %d bound, %d seen running, %d ended", c.made, c.bound, c.ran, c.ended)
}

// observer watches the pods of the load by itself, and remembers when what befell them. It keeps one small row a pod.
type observer struct {
	prefix string                           // of the groups that count
	first  func(at time.Time, before int64) // called at the first pod that counts, with etcd's revision before that

	mu      sync.Mutex
	pods    map[types.UID]*pod
	counts  counts
	changed chan struct{} // closed, and another made, at each change
	err     error
	stop    func()
}

// watchPods begins to watch; the namespace must be there.
func watchPods(ctx context.Context, c kubernetes.Interface, prefix string, first func(time.Time, int64)) (*observer, error) {
	list, err := c.CoreV1().Pods(space).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("observe the pods: %w", err)
	}
	if len(list.Items) > 0 {
		return nil, fmt.Errorf("observe the pods: there are %d already", len(list.Items))
	}
	ctx, cancel := context.WithCancel(ctx)
	w, err := watchtools.NewRetryWatcherWithContext(ctx, list.ResourceVersion, &cache.ListWatch{
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return c.CoreV1().Pods(space).Watch(ctx, o)
		},
	})
	if err != nil {
		cancel()
		return nil, fmt.Errorf("observe the pods: %w", err)
	}
	o := &observer{prefix: prefix, first: first, pods: map[types.UID]*pod{}, changed: make(chan struct{}), stop: cancel}
	go func() {
		for e := range w.ResultChan() {
			o.see(e, time.Now())
		}
		o.fail(fmt.Errorf("the watch of the pods ended: %w", context.Cause(ctx)))
	}()
	return o, nil
}

func (o *observer) fail(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err == nil {
		o.err = err
		o.tell()
	}
}

// tell wakes who waits. The caller holds mu.
func (o *observer) tell() {
	close(o.changed)
	o.changed = make(chan struct{})
}

// see takes an event of the watch into account.
func (o *observer) see(e watch.Event, now time.Time) {
	p, ok := e.Object.(*corev1.Pod)
	if !ok {
		if e.Type == watch.Error {
			o.fail(fmt.Errorf("the watch of the pods: %w", apierrors.FromObject(e.Object)))
		}
		return
	}
	group := p.Labels[jobLabel]
	if !strings.HasPrefix(group, o.prefix) {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	row := o.pods[p.UID]
	if row == nil {
		row = &pod{group: group, made: now}
		o.pods[p.UID] = row
		if o.counts.made++; o.counts.made == 1 && o.first != nil {
			before, _ := strconv.ParseInt(p.ResourceVersion, 10, 64) // etcd's revisions are numbers
			o.first(now, before-1)
		}
	}
	once := func(when *time.Time, n *int, is bool) {
		if is && when.IsZero() {
			*when = now
			*n++
		}
	}
	once(&row.bound, &o.counts.bound, p.Spec.NodeName != "")
	once(&row.ran, &o.counts.ran, p.Status.Phase == corev1.PodRunning)
	once(&row.ended, &o.counts.ended, e.Type == watch.Deleted || p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed)
	o.tell()
}

// seen are the rows so far, in no order, and how far they have come.
func (o *observer) seen() ([]pod, counts) {
	o.mu.Lock()
	defer o.mu.Unlock()
	out := make([]pod, 0, len(o.pods))
	for _, p := range o.pods { // order: none is promised
		out = append(out, *p)
	}
	return out, o.counts
}

// wait waits until it is enough. An error says what was waited for, and how far it had come: that it took too long, that the watch broke, or
// that a process which should run has ended.
func (o *observer) wait(ctx context.Context, what string, patience time.Duration, alive *child, enough func(counts) bool) error {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("not within %s", patience))
	defer cancel()
	var died <-chan struct{}
	if alive != nil {
		died = alive.done
	}
	for {
		o.mu.Lock()
		now, changed, err := o.counts, o.changed, o.err
		o.mu.Unlock()
		if enough(now) {
			return nil
		}
		if err == nil {
			select {
			case <-changed:
				continue
			case <-died:
				err = alive.ended()
			case <-ctx.Done():
				err = context.Cause(ctx)
			}
		}
		return fmt.Errorf("wait until %s: %w; %s", what, err, now)
	}
}
