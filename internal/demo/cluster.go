package demo

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-scheduler/muster/api/kai/keys"
	queuev2 "github.com/muster-scheduler/muster/api/scheduling/v2"
	"github.com/muster-scheduler/muster/api/scheduling/v2alpha2"
	"github.com/muster-scheduler/muster/internal/app"
	"github.com/muster-scheduler/muster/internal/dialect/kai"
	"github.com/muster-scheduler/muster/internal/scheduler"
)

const (
	// gpuResource is what GPUs are counted by.
	gpuResource corev1.ResourceName = "nvidia.com/gpu"
	// rackLabel, on a node of the lab, names its rack.
	rackLabel = "muster.lab/rack"
)

// jobLabels name the job of a pod, by who makes the pod.
var jobLabels = [...]string{batchv1.JobNameLabel, "training.kubeflow.org/job-name"}

// cluster is the user's view of the lab: a cache of what the story speaks about, which says when something changed.
type cluster struct {
	client  client.Client
	cache   cache.Cache
	changed chan struct{} // holds a value when an event has come since it was last read
	racks   map[string]string

	mu    sync.Mutex
	bound map[types.UID]time.Time // when a pod was first seen on a node
}

// connect returns when the cache has everything that is there now. It follows the cluster until ctx ends.
func connect(ctx context.Context, kubeconfig string) (*cluster, error) {
	config, err := app.RESTConfig(app.ClientOptions{Kubeconfig: kubeconfig, QPS: -1, UserAgent: "muster-demo"})
	if err != nil {
		return nil, err
	}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, queuev2.AddToScheme, v2alpha2.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("build the scheme: %w", err)
		}
	}
	c := &cluster{changed: make(chan struct{}, 1), racks: map[string]string{}, bound: map[types.UID]time.Time{}}
	if c.client, err = client.New(config, client.Options{Scheme: scheme}); err != nil {
		return nil, fmt.Errorf("build the client: %w", err)
	}
	if c.cache, err = cache.New(config, cache.Options{Scheme: scheme, DefaultTransform: cache.TransformStripManagedFields()}); err != nil {
		return nil, fmt.Errorf("build the cache: %w", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- c.cache.Start(ctx) }()
	for _, kind := range []client.Object{&corev1.Pod{}, &batchv1.Job{}, &corev1.Event{}, &queuev2.Queue{}, &v2alpha2.PodGroup{}} {
		i, err := c.cache.GetInformer(ctx, kind)
		if err != nil {
			return nil, fmt.Errorf("watch %T: %w", kind, err)
		}
		if _, err := i.AddEventHandler(toolscache.ResourceEventHandlerFuncs{AddFunc: c.see, UpdateFunc: func(_, o any) { c.see(o) }, DeleteFunc: c.see}); err != nil {
			return nil, fmt.Errorf("watch %T: %w", kind, err)
		}
	}
	if !c.cache.WaitForCacheSync(ctx) {
		if err := context.Cause(ctx); err != nil {
			return nil, err
		}
		return nil, fmt.Errorf("the cache did not sync: %w", <-ended)
	}
	var nodes corev1.NodeList
	if err := c.client.List(ctx, &nodes); err != nil {
		return nil, fmt.Errorf("list nodes: %w", err)
	}
	for i := range nodes.Items {
		c.racks[nodes.Items[i].Name] = nodes.Items[i].Labels[rackLabel]
	}
	return c, nil
}

// see takes note of an event.
func (c *cluster) see(o any) {
	if p, ok := o.(*corev1.Pod); ok && p.Spec.NodeName != "" {
		c.mu.Lock()
		if _, known := c.bound[p.UID]; !known {
			c.bound[p.UID] = time.Now()
		}
		c.mu.Unlock()
	}
	select {
	case c.changed <- struct{}{}:
	default:
	}
}

// await looks at the cluster now and after each change until ok. It gives up after patience, with what was last seen.
func (c *cluster) await(ctx context.Context, patience time.Duration, look func() (ok bool, seen string, err error)) error {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for {
		ok, seen, err := look()
		if ok || err != nil {
			return err
		}
		select {
		case <-c.changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-timer.C:
			return fmt.Errorf("not within %s; last seen: %s", patience, seen)
		}
	}
}

// create makes the objects.
func (c *cluster) create(ctx context.Context, objects []*unstructured.Unstructured) error {
	for _, o := range objects {
		if err := c.client.Create(ctx, o); err != nil {
			return fmt.Errorf("create %s %s: %w", o.GetKind(), o.GetName(), err)
		}
	}
	return nil
}

// remove deletes an object and has the garbage collector delete what it owns.
func (c *cluster) remove(ctx context.Context, apiVersion, kind, name string) error {
	o := &unstructured.Unstructured{}
	o.SetAPIVersion(apiVersion)
	o.SetKind(kind)
	o.SetNamespace(namespace)
	o.SetName(name)
	if err := c.client.Delete(ctx, o, client.PropagationPolicy(metav1.DeletePropagationBackground)); err != nil {
		return fmt.Errorf("delete %s %s: %w", kind, name, err)
	}
	return nil
}

// setParallelism is `kubectl patch job`.
func (c *cluster) setParallelism(ctx context.Context, job string, n int) error {
	o := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: job}}
	patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"spec":{"parallelism":%d}}`, n))
	if err := c.client.Patch(ctx, o, patch); err != nil {
		return fmt.Errorf("set parallelism of Job %s: %w", job, err)
	}
	return nil
}

// gang is what is seen of the pods of one job.
type gang struct {
	name  string
	group string // the name of its PodGroup, whether there is one yet or not, once every pod is in it
	// pods counts those that exist, and of them: bound those that have a node, running and done those in that phase,
	// leaving those that are being deleted.
	pods, bound, running, done, leaving int
	gpus                                int64    // of those bound and not done
	nodes                               []string // where they are, sorted, each once
	ran                                 []string // UIDs of those that run and stay, sorted
	spread                              time.Duration
}

// String says how it stands.
func (g gang) String() string {
	s := fmt.Sprintf("%s has %s, of which %d bound, %d running, %d done", g.name, count(g.pods, "pod"), g.bound, g.running, g.done)
	if g.leaving > 0 {
		s += fmt.Sprintf(", %d leaving", g.leaving)
	}
	return s
}

// whole reports whether n pods run, and all of them.
func (g gang) whole(n int) bool { return g.pods == n && g.running == n && g.leaving == 0 }

// pending reports whether n pods exist, grouped, and none is bound.
func (g gang) pending(n int) bool { return g.pods == n && g.bound == 0 && g.group != "" }

// racks counts the racks a gang is on.
func (c *cluster) racksOf(g gang) int {
	seen := map[string]bool{}
	for _, n := range g.nodes {
		seen[c.racks[n]] = true
	}
	return len(seen)
}

// gang looks at the pods of a job, or at the pod of that name.
func (c *cluster) gang(ctx context.Context, name string) (gang, error) {
	g := gang{name: name}
	var pods corev1.PodList
	if err := c.cache.List(ctx, &pods, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		return g, fmt.Errorf("list pods: %w", err)
	}
	grouped := 0
	var first, last time.Time
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range pods.Items {
		p := &pods.Items[i]
		if p.Name != name && p.Labels[jobLabels[0]] != name && p.Labels[jobLabels[1]] != name {
			continue
		}
		g.pods++
		if in, _ := kai.Membership(p); in.Name != "" {
			g.group = in.Name
			grouped++
		}
		if p.DeletionTimestamp != nil {
			g.leaving++
		}
		finished := p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
		switch p.Status.Phase {
		case corev1.PodSucceeded:
			g.done++
		case corev1.PodRunning:
			g.running++
			if p.DeletionTimestamp == nil {
				g.ran = append(g.ran, string(p.UID))
			}
		}
		if p.Spec.NodeName != "" {
			g.bound++
			g.nodes = append(g.nodes, p.Spec.NodeName)
			at := c.bound[p.UID]
			if first.IsZero() || at.Before(first) {
				first = at
			}
			if at.After(last) {
				last = at
			}
			if !finished {
				g.gpus += gpusOf(p)
			}
		}
	}
	if grouped < g.pods {
		g.group = ""
	}
	g.spread = last.Sub(first)
	slices.Sort(g.ran)
	slices.Sort(g.nodes)
	g.nodes = slices.Compact(g.nodes)
	return g, nil
}

func gpusOf(p *corev1.Pod) int64 {
	var sum int64
	for i := range p.Spec.Containers {
		q := p.Spec.Containers[i].Resources.Limits[gpuResource]
		sum += q.Value()
	}
	return sum
}

// reason is why Muster says a gang is not placed; empty if it says nothing.
func (c *cluster) reason(ctx context.Context, group string) (string, error) {
	var pg v2alpha2.PodGroup
	if err := c.cache.Get(ctx, types.NamespacedName{Namespace: namespace, Name: group}, &pg); err != nil {
		return "", client.IgnoreNotFound(err)
	}
	list := pg.Status.SchedulingConditions
	if len(list) == 0 || list[len(list)-1].Status != corev1.ConditionTrue {
		return "", nil
	}
	return list[len(list)-1].Message, nil
}

// allocated is what the queue controller says a queue holds, in GPUs.
func (c *cluster) allocated(ctx context.Context, queue string) (int64, error) {
	var q queuev2.Queue
	if err := c.cache.Get(ctx, types.NamespacedName{Name: queue}, &q); err != nil {
		return 0, fmt.Errorf("read queue %s: %w", queue, err)
	}
	held := q.Status.Allocated[gpuResource]
	return held.Value(), nil
}

// decisions are the records that events about a PodGroup carry.
func (c *cluster) decisions(ctx context.Context, group string) ([]scheduler.Record, error) {
	var events corev1.EventList
	if err := c.cache.List(ctx, &events, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list events: %w", err)
	}
	var out []scheduler.Record
	for i := range events.Items {
		e := &events.Items[i]
		text := e.Annotations[keys.DecisionAnnotation]
		if e.InvolvedObject.Name != group || text == "" {
			continue
		}
		var r scheduler.Record
		if err := json.Unmarshal([]byte(text), &r); err != nil || r.Eviction == nil {
			return nil, fmt.Errorf("event %s has a record that cannot be read (%w): %s", e.Name, err, text)
		}
		out = append(out, r)
	}
	return out, nil
}
