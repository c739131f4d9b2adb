package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-scheduler/muster/api/kai/keys"
	"github.com/muster-scheduler/muster/api/kai/v1alpha1"
	queuev2 "github.com/muster-scheduler/muster/api/scheduling/v2"
	vcbatch "github.com/muster-scheduler/muster/api/volcano/batch/v1alpha1"
	vckeys "github.com/muster-scheduler/muster/api/volcano/keys"
	vcscheduling "github.com/muster-scheduler/muster/api/volcano/scheduling/v1beta1"
	"github.com/muster-scheduler/muster/internal/controllers/vcjob"
	"github.com/muster-scheduler/muster/internal/lab"
)

const (
	// others is the namespace of pods that neither scheduler places.
	others = "others"
	// queueName is the load driver's, too, as is that of who takes in reclaim.
	queueName   = "load-a"
	takersQueue = "load-b"
	gpusPerNode = 8
	// writers is how many requests of ours are under way at most.
	writers = 32
	// churnLife is how long a gang of the case churn runs, churnFull which part of the nodes is to be in use.
	churnLife = 20 * time.Second
	churnFull = 0.95
)

// spec is a pod's: it asks for so many GPUs.
func (t *trial) spec(gpus int) corev1.PodSpec {
	s := corev1.PodSpec{
		SchedulerName: schedulerName(t.side), RestartPolicy: corev1.RestartPolicyNever, TerminationGracePeriodSeconds: ptr.To[int64](0),
		Containers: []corev1.Container{{Name: "main", Image: "sim", Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1"), corev1.ResourceMemory: resource.MustParse("1Gi")},
		}}},
	}
	if gpus > 0 {
		s.Containers[0].Resources.Limits = corev1.ResourceList{lab.GPUResource: *resource.NewQuantity(int64(gpus), resource.DecimalSI)}
	}
	return s
}

func schedulerName(side string) string {
	if isMuster(side) {
		return keys.SchedulerName
	}
	return corev1.DefaultSchedulerName
}

// labels are those of a group's Jobs and pods: the queue, which for takers is another, and the group.
func labels(group string) map[string]string {
	queue := queueName
	if strings.HasPrefix(group, takers) {
		queue = takersQueue
	}
	return map[string]string{keys.QueueLabel: queue, jobLabel: group}
}

// pod makes one that stands alone.
func (t *trial) pod(ctx context.Context, namespace, group, name string, gpus int, node string) error {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace, Labels: labels(group)}, Spec: t.spec(gpus)}
	if p.Spec.NodeName = node; node != "" {
		p.Spec.SchedulerName = "another-scheduler"
	}
	if _, err := t.lab.Client().CoreV1().Pods(namespace).Create(ctx, p, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("make pod %s/%s: %w", namespace, name, err)
	}
	return nil
}

// job makes a gang: a Job of so many pods, which run together or not at all where the scheduler knows of gangs. With a life they end by
// themselves, and the Job goes then.
func (t *trial) job(ctx context.Context, name string, size, gpus int, life time.Duration, notes map[string]string) error {
	n := int32(size)
	j := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: space, Labels: labels(name), Annotations: map[string]string{keys.BatchMinMemberAnnotation: strconv.Itoa(size)}},
		Spec: batchv1.JobSpec{
			Parallelism: &n, Completions: &n, BackoffLimit: ptr.To[int32](0),
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels(name)}, Spec: t.spec(gpus)},
		},
	}
	for k, v := range notes { // order: a map again
		j.Annotations[k] = v
	}
	if life > 0 {
		j.Spec.TTLSecondsAfterFinished = ptr.To[int32](0)
		j.Spec.Template.Annotations = map[string]string{lab.AnnotationRunFor: life.String()}
	}
	if _, err := t.lab.Client().BatchV1().Jobs(space).Create(ctx, j, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("make Job %s: %w", name, err)
	}
	return nil
}

// queues makes the load's, without limits; in reclaim each has half of the GPUs for its quota.
func (t *trial) queues(ctx context.Context) error {
	c, err := ours(t.lab)
	if err != nil {
		return err
	}
	names := []string{"load", queueName}
	if t.c.Load == "reclaim" {
		names = append(names, takersQueue)
	}
	for _, name := range names {
		unlimited := queuev2.QueueResource{Quota: -1, Limit: -1, OverQuotaWeight: 1}
		q := &queuev2.Queue{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: queuev2.QueueSpec{Resources: &queuev2.QueueResources{GPU: unlimited, CPU: unlimited, Memory: unlimited}}}
		if name != "load" {
			q.Spec.ParentQueue = "load"
			if t.c.Load == "reclaim" {
				q.Spec.Resources.GPU.Quota = float64(t.c.Nodes * gpusPerNode / 2)
			}
		}
		if err := c.Create(ctx, q); err != nil {
			return fmt.Errorf("make Queue %s: %w", name, err)
		}
	}
	return nil
}

// ready starts the scheduler, and returns when it has bound a pod that is not counted.
func (t *trial) ready(ctx context.Context) error {
	if err := errors.Join(t.queues(ctx), t.start(ctx)); err != nil {
		return err
	}
	if err := t.pod(ctx, others, "probe", "probe", 0, ""); err != nil {
		return err
	}
	return await(ctx, t.side+" binds a first pod", func() (string, error) {
		if err := t.sched.ended(); err != nil {
			return "", err
		}
		p, err := t.lab.Client().CoreV1().Pods(others).Get(ctx, "probe", metav1.GetOptions{})
		if err != nil || p.Spec.NodeName != "" {
			return "", err
		}
		return "it has no node", nil
	})
}

// each does something for the numbers below n, some at a time, and returns the first error.
func each(ctx context.Context, n int, do func(i int) error) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var next atomic.Int64
	var wg sync.WaitGroup
	for range writers {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < n && ctx.Err() == nil; i = int(next.Add(1)) - 1 {
				if err := do(i); err != nil {
					stop(err)
				}
			}
		})
	}
	wg.Wait()
	return context.Cause(ctx)
}

// lastBound is when the last pod of a group had its node.
func (t *trial) lastBound(group string) (last time.Time) {
	pods, _ := t.o.seen()
	for _, p := range pods {
		if p.group == group {
			last = later(last, p.bound)
		}
	}
	return last
}

// large fills thousands of nodes but for the room of a gang, submits that, adds pods of others, and has the scheduler start again.
func (t *trial) large(ctx context.Context) (map[string]float64, error) {
	c := t.c
	bare := t.side == sideBare
	if !bare {
		if err := t.ready(ctx); err != nil {
			return nil, err
		}
	}
	all := c.pods()
	if err := each(ctx, all, func(i int) error {
		name := fmt.Sprintf("fill-%05d", i)
		err := t.pod(ctx, space, "fill", name, 1, "")
		if err == nil && bare {
			err = t.bind(ctx, name, t.node(i))
		}
		return err
	}); err != nil {
		return nil, err
	}
	if err := t.o.wait(ctx, "all pods are bound", bindPatience, t.sched, func(n counts) bool { return n.bound >= all }); err != nil {
		return nil, err
	}
	out, err := t.finish(ctx)
	if err != nil || bare {
		return out, err
	}
	say("%s: %d pods bound, %.0f a second in the middle, %.0f MiB", t.side, all, out["middle_per_s"], out["rss_mib"])
	at := time.Now()
	if err := t.job(ctx, "gang", c.Gang, 1, 0, nil); err != nil {
		return nil, err
	}
	if err := t.o.wait(ctx, "the gang is bound", patience, t.sched, func(n counts) bool { return n.bound >= all+c.Gang }); err != nil {
		return nil, err
	}
	out["gang_s"] = t.lastBound("gang").Sub(at).Seconds()
	if err := each(ctx, c.Others, func(i int) error {
		return t.pod(ctx, others, "other", fmt.Sprintf("other-%05d", i), 0, t.node(i))
	}); err != nil {
		return nil, err
	}
	if _, err := t.rest(ctx); err != nil {
		return nil, err
	}
	after := memoryOf(t.sched.pid(), "VmHWM")
	killed := t.sched
	t.sched = nil
	at = time.Now()
	killed.signal(syscall.SIGKILL)
	if err := errors.Join(t.start(ctx), t.pod(ctx, space, "after", "after", 0, "")); err != nil {
		return nil, err
	}
	if err := t.o.wait(ctx, "the scheduler that started again binds a pod", patience, t.sched, func(n counts) bool { return n.bound > all+c.Gang }); err != nil {
		return nil, err
	}
	out["restart_s"] = t.lastBound("after").Sub(at).Seconds()
	if _, err := t.rest(ctx); err != nil { // it reads on
		return nil, err
	}
	out["rss_after_mib"] = max(after, memoryOf(t.sched.pid(), "VmHWM"))
	return out, nil
}

// racks has gangs that require a rack, all made before the scheduler starts.
func (t *trial) racks(ctx context.Context) (map[string]float64, error) {
	c := t.c
	writer, err := ours(t.lab)
	if err != nil {
		return nil, err
	}
	topology := &v1alpha1.Topology{ObjectMeta: metav1.ObjectMeta{Name: "layout"}}
	topology.Spec.Levels = []v1alpha1.TopologyLevel{{NodeLabel: lab.LabelRack}, {NodeLabel: corev1.LabelHostname}}
	if err := errors.Join(t.queues(ctx), writer.Create(ctx, topology)); err != nil {
		return nil, fmt.Errorf("make the Queues and the Topology: %w", err)
	}
	notes := map[string]string{keys.TopologyAnnotation: topology.Name, keys.TopologyRequiredAnnotation: lab.LabelRack}
	if err := each(ctx, c.Size, func(i int) error { return t.job(ctx, fmt.Sprintf("gang-%05d", i), c.Gang, 1, 0, notes) }); err != nil {
		return nil, err
	}
	if err := t.o.wait(ctx, "all pods are made", bindPatience, nil, func(n counts) bool { return n.made >= c.pods() }); err != nil {
		return nil, err
	}
	if _, err := t.rest(ctx); err != nil {
		return nil, err
	}
	begin := t.startMarked
	if t.side == sideBare {
		begin = t.bindMarked
	}
	if err := begin(ctx); err != nil {
		return nil, err
	}
	if err := t.o.wait(ctx, "all pods are bound", bindPatience, t.sched, func(n counts) bool { return n.bound >= c.pods() }); err != nil {
		return nil, err
	}
	return t.finish(ctx)
}

// node is the name of one by its number, the first again after the last.
func (t *trial) node(i int) string { return fmt.Sprintf("node-%d", i%t.c.Nodes) }

// bind gives a pod a node.
func (t *trial) bind(ctx context.Context, name, node string) error {
	to := corev1.ObjectReference{Kind: "Node", Name: node}
	if err := t.lab.Client().CoreV1().Pods(space).Bind(ctx, &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: name}, Target: to}, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("bind pod %s: %w", name, err)
	}
	return nil
}

// bindMarked gives all pods nodes; that is the beginning of what is measured.
func (t *trial) bindMarked(ctx context.Context) error {
	pods, err := t.lab.Client().CoreV1().Pods(space).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list the pods: %w", err)
	}
	before, err := t.revision(ctx)
	if err != nil {
		return err
	}
	t.mark(time.Now(), before)
	return each(ctx, len(pods.Items), func(i int) error { return t.bind(ctx, pods.Items[i].Name, t.node(i)) })
}

// groupGates are what Kubernetes' own groups need of its components.
const groupGates = "GenericWorkload=true,TopologyAwareWorkloadScheduling=true"

// groups has pods of Kubernetes' own PodGroups, all of which are there first, as kube-scheduler's own benchmarks have them: on nodes of 4 cores, perhaps in one rack each, perhaps
// of a higher priority than pods that fill the nodes.
func (t *trial) groups(ctx context.Context) (map[string]float64, error) {
	c := t.c
	api := t.lab.Client()
	if err := t.ready(ctx); err != nil {
		return nil, err
	}
	for name, value := range map[string]int32{"bench-low": 10, "bench-high": 90} { // order: two of a kind
		if _, err := api.SchedulingV1().PriorityClasses().Create(ctx, &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Value: value}, metav1.CreateOptions{}); err != nil {
			return nil, fmt.Errorf("make PriorityClass %s: %w", name, err)
		}
	}
	err := await(ctx, "the API server takes pods of the PriorityClasses", func() (string, error) {
		_, err := api.CoreV1().Pods(space).Create(ctx, t.small("try", "try", "bench-high", "100m"), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if apierrors.IsForbidden(err) {
			return err.Error(), nil
		}
		return "", err
	})
	if err == nil {
		err = t.crowd(ctx)
	}
	if err != nil {
		return nil, err
	}
	groupName := func(i int) string { return fmt.Sprintf("gang-%05d", i) }
	err = each(ctx, c.Size, func(i int) error {
		g := &schedulingv1beta1.PodGroup{ObjectMeta: metav1.ObjectMeta{Name: groupName(i), Namespace: space, Labels: labels(groupName(i))}}
		g.Spec.PriorityClassName = "bench-high"
		if c.Basic {
			g.Spec.SchedulingPolicy.Basic = &schedulingv1beta1.BasicSchedulingPolicy{}
		} else {
			g.Spec.SchedulingPolicy.Gang = &schedulingv1beta1.GangSchedulingPolicy{MinCount: int32(c.Gang)}
		}
		if c.Racks > 0 {
			g.Spec.SchedulingConstraints = &schedulingv1beta1.PodGroupSchedulingConstraints{Topology: []schedulingv1beta1.TopologyConstraint{{Key: lab.LabelRack}}}
		}
		if _, err := api.SchedulingV1beta1().PodGroups(space).Create(ctx, g, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("make PodGroup %s: %w", g.Name, err)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if _, err := t.rest(ctx); err != nil {
		return nil, err
	}
	err = each(ctx, c.pods(), func(i int) error {
		group := groupName(i / c.Gang)
		p := t.small(group, fmt.Sprintf("%s-%d", group, i%c.Gang), "bench-high", cmp.Or(c.CPU, "100m"))
		p.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: &group}
		if _, err := api.CoreV1().Pods(space).Create(ctx, p, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("make pod %s: %w", p.Name, err)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if err := t.o.wait(ctx, "all pods are bound", bindPatience, t.sched, func(n counts) bool { return n.bound >= c.pods() }); err != nil {
		return nil, err
	}
	return t.finish(ctx)
}

// small is a pod that asks for little.
func (t *trial) small(group, name, class, cpu string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: space, Labels: labels(group)}, Spec: t.spec(0)}
	p.Spec.PriorityClassName = class
	p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse("100Mi")}
	return p
}

// crowd has pods of a low priority on the nodes, spread evenly by ports of the node that only one of each kind can have, and waits until each has its node.
func (t *trial) crowd(ctx context.Context) error {
	c := t.c
	if c.Others == 0 {
		return nil
	}
	kinds := (c.Others + c.Nodes - 1) / c.Nodes
	err := each(ctx, c.Others, func(i int) error {
		p := t.small("low", fmt.Sprintf("low-%05d", i), "bench-low", "40m")
		p.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 80, HostPort: int32(8000 + i%kinds)}}
		if _, err := t.lab.Client().CoreV1().Pods(space).Create(ctx, p, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("make pod %s: %w", p.Name, err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return await(ctx, "the pods of a low priority have nodes", func() (string, error) {
		if err := t.sched.ended(); err != nil {
			return "", err
		}
		waiting, err := t.lab.Client().CoreV1().Pods(space).List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName="})
		if err != nil || len(waiting.Items) == 0 {
			return "", err
		}
		return fmt.Sprintf("%d have none", len(waiting.Items)), nil
	})
}

// vcjob is a Job of Volcano's.
func (t *trial) vcjob(i int) *vcbatch.Job {
	c, tasks := t.c, max(1, t.c.Tasks)
	name := fmt.Sprintf("job-%05d", i)
	j := &vcbatch.Job{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: space}}
	j.Spec.SchedulerName, j.Spec.MinAvailable, j.Spec.MaxRetry = vckeys.SchedulerName, int32(c.Gang), 3
	j.Spec.Queue = vckeys.DefaultQueue
	for _, plugin := range c.Plugins {
		if j.Spec.Plugins == nil {
			j.Spec.Plugins = map[string][]string{}
		}
		j.Spec.Plugins[plugin] = []string{}
	}
	for k := range tasks {
		spec := t.spec(0)
		spec.SchedulerName, spec.RestartPolicy = "", corev1.RestartPolicyOnFailure
		j.Spec.Tasks = append(j.Spec.Tasks, vcbatch.TaskSpec{
			Name: fmt.Sprintf("t%d", k), Replicas: int32(c.Gang / tasks), MinAvailable: ptr.To(int32(c.Gang / tasks)),
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels(name)}, Spec: spec},
		})
	}
	return j
}

// creates returns what makes an object, of Kubernetes' or of Volcano's.
func (t *trial) creates(ctx context.Context) (func(client.Object) error, error) {
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), vcbatch.AddToScheme(scheme), vcscheduling.AddToScheme(scheme)); err != nil {
		return nil, err
	}
	writer, err := client.New(t.lab.Config(), client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("a client of Volcano's kinds: %w", err)
	}
	return func(o client.Object) error {
		if err := writer.Create(ctx, o); err != nil {
			return fmt.Errorf("make %T %s: %w", o, o.GetName(), err)
		}
		return nil
	}, nil
}

// vcjobs has Jobs of Volcano's, submitted at once while Muster runs, until all their pods run.
func (t *trial) vcjobs(ctx context.Context) (map[string]float64, error) {
	c := t.c
	if err := t.ready(ctx); err != nil {
		return nil, err
	}
	create, err := t.creates(ctx)
	if err != nil {
		return nil, err
	}
	at := time.Now()
	if err := each(ctx, c.Size, func(i int) error { return create(t.vcjob(i)) }); err != nil {
		return nil, err
	}
	return t.ran(ctx, at)
}

// ran measures, once all pods of Jobs of Volcano's run, the first of which was submitted at.
func (t *trial) ran(ctx context.Context, at time.Time) (map[string]float64, error) {
	if err := t.o.wait(ctx, "all pods run", bindPatience, t.sched, func(n counts) bool { return n.ran >= t.c.pods() }); err != nil {
		return nil, err
	}
	out, err := t.finish(ctx)
	if err != nil {
		return nil, err
	}
	pods, _ := t.o.seen()
	var ran time.Time
	for _, p := range pods {
		ran = later(ran, p.ran)
	}
	out["all_ran_s"], out["made_per_s"] = ran.Sub(at).Seconds(), madePerSecond(pods)
	return out, nil
}

// bare makes the Jobs of vcjobs, and for each at once all that Muster's controller makes, by itself, and gives each pod a node when the last of its Job is made: as fast as the API server takes it, and Kubernetes' own controllers and the kubelets with it, when nobody has anything to
// decide or to tell. Pods that were left without a node would leave out what these do about a pod that starts, which is more than making it where a namespace has many Services.
func (t *trial) bare(ctx context.Context) (map[string]float64, error) {
	create, err := t.creates(ctx)
	if err != nil {
		return nil, err
	}
	at := time.Now()
	err = each(ctx, t.c.Size, func(i int) error {
		j := t.vcjob(i)
		if err := create(j); err != nil {
			return err
		}
		var pods []*corev1.Pod
		for _, o := range vcjob.Makes(j) {
			if err := create(o); err != nil {
				return err
			}
			if p, ok := o.(*corev1.Pod); ok {
				pods = append(pods, p)
			}
		}
		for k, p := range pods {
			if err := t.bind(ctx, p.Name, t.node(i*t.c.Gang+k)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return t.ran(ctx, at)
}

// churn keeps a part of the nodes in use by gangs that end soon: another is submitted for each that has ended.
func (t *trial) churn(ctx context.Context) (map[string]float64, error) {
	c := t.c
	if err := t.ready(ctx); err != nil {
		return nil, err
	}
	crowd := max(1, int(churnFull*float64(c.Nodes)/float64(c.Gang)))
	sampled, stop := t.sample(ctx)
	defer stop()
	end := time.Now().Add(time.Duration(c.Seconds) * time.Second)
	submitted := 0
	for time.Now().Before(end) {
		if submitted < crowd { // the first ones begin one after the other, so that they do not end together
			select {
			case <-time.After(churnLife / time.Duration(crowd)):
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			}
		} else if err := t.o.wait(ctx, "a gang has ended", patience, t.sched, func(n counts) bool { return submitted-n.ended/c.Gang < crowd }); err != nil {
			return nil, err
		}
		if err := t.job(ctx, fmt.Sprintf("gang-%05d", submitted), c.Gang, gpusPerNode, churnLife, nil); err != nil {
			return nil, err
		}
		submitted++
	}
	stop()
	if err := t.o.wait(ctx, "all gangs have ended", patience, t.sched, func(n counts) bool { return n.ended >= submitted*c.Gang }); err != nil {
		return nil, err
	}
	out, err := t.finish(ctx)
	if err != nil {
		return nil, err
	}
	for _, key := range []string{"all_bound_s", "first_bound_s", "last_made_to_bound_s", "middle_per_s", "busy_pct"} {
		delete(out, key) // they say nothing of a crowd that comes and goes
	}
	pods, _ := t.o.seen()
	waits := roomToBind(pods, c.Nodes)
	if len(waits) == 0 {
		return nil, errors.New("no gang was bound")
	}
	out["gangs"] = float64(len(waits))
	out["room_p50_s"], out["room_p99_s"] = quantile(waits, 0.5).Seconds(), quantile(waits, 0.99).Seconds()
	out["rss_growth_pct"] = growth(sampled())
	return out, nil
}

// sample reads the scheduler's memory each second until stop, which may be called again; get is for after that.
func (t *trial) sample(ctx context.Context) (get func() []float64, stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	pid := t.sched.pid()
	var out []float64
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				out = append(out, memoryOf(pid, "VmRSS"))
			case <-ctx.Done():
				return
			}
		}
	})
	return func() []float64 { return out }, func() { cancel(); wg.Wait() }
}
