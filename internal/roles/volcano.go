package roles

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-scheduler/muster/api/kai/keys"
	vcbatch "github.com/muster-scheduler/muster/api/volcano/batch/v1alpha1"
	vcbus "github.com/muster-scheduler/muster/api/volcano/bus/v1alpha1"
	vcflow "github.com/muster-scheduler/muster/api/volcano/flow/v1alpha1"
	volcano "github.com/muster-scheduler/muster/api/volcano/keys"
	vcscheduling "github.com/muster-scheduler/muster/api/volcano/scheduling/v1beta1"
	vcshard "github.com/muster-scheduler/muster/api/volcano/shard/v1alpha1"
	vctopology "github.com/muster-scheduler/muster/api/volcano/topology/v1alpha1"
	"github.com/muster-scheduler/muster/internal/app"
	vcreview "github.com/muster-scheduler/muster/internal/controllers/admission/volcano"
	"github.com/muster-scheduler/muster/internal/controllers/vccron"
	"github.com/muster-scheduler/muster/internal/controllers/vcgc"
	"github.com/muster-scheduler/muster/internal/controllers/vchypernode"
	"github.com/muster-scheduler/muster/internal/controllers/vcjob"
	"github.com/muster-scheduler/muster/internal/controllers/vcjobflow"
	"github.com/muster-scheduler/muster/internal/controllers/vcjobtemplate"
	"github.com/muster-scheduler/muster/internal/controllers/vcpodgroup"
	"github.com/muster-scheduler/muster/internal/controllers/vcqueue"
	"github.com/muster-scheduler/muster/internal/kube/aside"
	"github.com/muster-scheduler/muster/internal/kube/control"
)

// volcanoRole runs Volcano's controllers, each under the name that --controllers of Volcano's program has for it. It is a role of its own
// process: a cluster without Volcano's kinds has no such process, and is the same as before.
func volcanoRole() role {
	return role{
		name: VolcanoControllers, about: "Run Volcano's controllers: Jobs and what makes them, queues, bare pods, HyperNodes", lease: volcano.LeaseControllers,
		home: volcano.Namespace, // where Volcano's own program looks for the Lease: one of both leads
		needs: []schema.GroupVersionKind{
			vcbatch.GroupVersion.WithKind("Job"), vcscheduling.GroupVersion.WithKind("PodGroup"), vcscheduling.GroupVersion.WithKind("Queue"),
			vcbus.GroupVersion.WithKind("Command"),
		},
		watched: []client.Object{
			&vcscheduling.Queue{}, &schedulingv1.PriorityClass{}, &corev1.PersistentVolumeClaim{}, &vcbatch.Job{}, &vcscheduling.PodGroup{},
			&appsv1.ReplicaSet{}, &appsv1.StatefulSet{}, &appsv1.DaemonSet{}, &batchv1.Job{}, &corev1.Pod{}, &vcbus.Command{},
			&vcbatch.CronJob{}, &vcflow.JobFlow{}, &vcflow.JobTemplate{}, &vctopology.HyperNode{}, &vcshard.NodeShard{}, &corev1.Node{},
		},
		trim: (*Settings).trimVolcano, apart: true, flags: (*Settings).volcanoFlags,
		build: func(p *process, log logr.Logger, c client.Client, guard *aside.Guard) (runner, error) {
			return p.volcanoControllers(log, c, guard)
		},
	}
}

// volcanoProbeFlag is Volcano's name of the flag that says where probes are answered.
const volcanoProbeFlag = "healthz-address"

// Names of Volcano's controllers.
const (
	jobController   = "job-controller"
	queueController = "queue-controller"
	gcController    = "gc-controller"
	pgController    = "pg-controller"

	cronController      = "cronjob-controller"
	flowController      = "jobflow-controller"
	templateController  = "jobtemplate-controller"
	hyperNodeController = "hyperNode-controller"
	shardingController  = "sharding-controller"
)

// volcanoClientOptions are Volcano's.
func volcanoClientOptions() app.ClientOptions { return app.ClientOptions{QPS: 50, Burst: 100} }

// volcanoFlags declares the flags of the role vc-controller-manager: Volcano's, with Volcano's defaults, besides those that all roles have.
func (s *Settings) volcanoFlags(fs *pflag.FlagSet) {
	o, g, c := vcjob.DefaultOptions(), vcpodgroup.DefaultOptions(), volcanoClientOptions()
	app.BindLogFlags(fs, &s.Log)
	s.profilerFlags(fs)
	fs.Float32Var(&s.Client.QPS, "kube-api-qps", c.QPS, "the same as --qps")
	fs.IntVar(&s.Client.Burst, "kube-api-burst", c.Burst, "the same as --burst")
	fs.StringVar(&s.Listen, "listen-address", ":8081", "address of /metrics; empty or 0 for none")
	fs.StringVar(&s.ProbeListen, volcanoProbeFlag, ":11251", "address of /healthz and /readyz; empty or 0 for none")
	fs.StringSliceVar(&s.Controllers, "controllers", []string{"*", "-" + shardingController}, "which controllers run: * for all, NAME or +NAME for one, -NAME for all but one; known: "+strings.Join(knownControllers(), ", "))
	fs.IntVar(&s.Workers, "worker-threads", o.Workers, "workers, each of which writes about four Jobs at a time; and JobFlows and JobTemplates that are written about at a time")
	fs.IntVar(&s.QueueWorkers, "worker-threads-for-queue", 5, "queues that are written at a time")
	fs.BoolVar(&s.QueueAllocated, "queue-allocated", true, "say in the status of queues what they hold; false where Volcano's own scheduler does")
	fs.IntVar(&s.GroupWorkers, "worker-threads-for-podgroup", g.Workers, "PodGroups of bare pods that are written about at a time")
	fs.IntVar(&s.CronWorkers, "worker-threads-for-cronjob", 3, "CronJobs that are written about at a time")
	fs.DurationVar(&s.NameAfter, "group-name-after", g.NameAfter, "how long a bare pod waits until it is told the name of its PodGroup, which else comes with its Binding, and until when the PodGroup of one that needs none to be placed may be made later; 0 where Volcano's own scheduler is, which waits for both")
	fs.BoolVar(&s.InheritNotes, "inherit-owner-annotations", g.InheritAnnotations, "give PodGroups of bare pods the annotations volcano.sh/* of what owns the pods")
	fs.StringVar(&s.ShardingMap, "sharding-configmap", volcano.ShardingConfig, "name of the ConfigMap that says how the "+shardingController+" divides nodes, in its key "+volcano.ShardingConfigKey+". It takes the rights to list and watch it")
	fs.StringVar(&s.ShardingSpace, "sharding-configmap-namespace", "", "namespace of that ConfigMap; empty for that of the Leases")
	fs.IntVar(&s.CollectorWorkers, "worker-threads-for-gc", 1, "Jobs whose time is up that are deleted at a time")
	fs.IntVar(&s.MaxRequeue, "max-requeue-num", o.MaxRequeue, "how many times in turn the API server may refuse what a Job needs before the Job is terminated; negative: without end")
	for name, usage := range map[string]string{
		"enable-healthz": "health is always told, at --" + volcanoProbeFlag, "enable-metrics": "metrics are always served, at --listen-address",
		"feature-gates": "there is nothing that they switch",
	} { // order: the set sorts them
		fs.String(name, "", "accepted, no effect: "+usage)
		fs.Lookup(name).NoOptDefVal, fs.Lookup(name).Hidden = "true", true
	}
}

// knownControllers are the names that --controllers takes, sorted.
func knownControllers() []string {
	return []string{
		cronController, gcController, hyperNodeController, jobController, flowController, templateController, pgController, queueController, shardingController,
	}
}

// controllers says which controllers run.
func (s *Settings) controllers() (on map[string]bool, err error) {
	on = map[string]bool{}
	said, all := map[string]bool{}, slices.Contains(s.Controllers, "*")
	for _, word := range s.Controllers {
		if word == "*" {
			continue
		}
		name, off := strings.CutPrefix(word, "-")
		if !off {
			name = strings.TrimPrefix(word, "+")
		}
		if !slices.Contains(knownControllers(), name) {
			return nil, fmt.Errorf("--controllers: %q: there is no controller of the name; known: %s", word, strings.Join(knownControllers(), ", "))
		}
		if yes, twice := said[name]; twice && yes == off {
			return nil, fmt.Errorf("--controllers: %s is both to run and not to run", name)
		}
		said[name] = !off
	}
	for _, name := range knownControllers() {
		yes, named := said[name]
		if yes || all && !named {
			on[name] = true
		}
	}
	if len(on) == 0 {
		return nil, fmt.Errorf("--controllers: %s leaves none to run", strings.Join(s.Controllers, ","))
	}
	return on, nil
}

// jobController is what the controller of Jobs is told.
func (s *Settings) jobController() vcjob.Options {
	return vcjob.Options{Workers: s.Workers, MaxRequeue: s.MaxRequeue, SchedulerName: s.SchedulerNames[0]}
}

// groupController is what the controller of bare pods is told.
func (s *Settings) groupController() vcpodgroup.Options {
	return vcpodgroup.Options{Workers: s.GroupWorkers, SchedulerNames: s.SchedulerNames, NameAfter: s.NameAfter, InheritAnnotations: s.InheritNotes}
}

// queueController opens and closes queues, and says what they hold, unless somebody else does.
func (p *process) queueController(s control.Shell) (runner, error) {
	c, err := vcqueue.New(s, p.QueueWorkers)
	if err != nil || !p.QueueAllocated {
		return c, err
	}
	h, err := vcqueue.NewHoldings(s, p.QueueWorkers, p.SchedulerNames)
	if err != nil {
		return nil, err
	}
	g := &app.Group{}
	g.Add("queues", untilAsked(c.Run))
	g.Add("queue-holdings", untilAsked(h.Run))
	return g, nil
}

// volcanoControllers builds those of the controllers that are to run.
func (p *process) volcanoControllers(log logr.Logger, c client.Client, guard *aside.Guard) (*app.Group, error) {
	on, err := p.controllers()
	if err != nil {
		return nil, err
	}
	record := p.events.recorder(VolcanoControllers)
	tell := func(about client.Object, warning bool, reason, message string) {
		kind := corev1.EventTypeNormal
		if warning {
			kind = corev1.EventTypeWarning
		}
		record(about, kind, reason, message)
	}
	shell := func(log logr.Logger) control.Shell {
		s := p.shell(log, c, guard)
		s.Tell = tell
		return s
	}
	g := &app.Group{}
	for _, one := range []struct {
		name  string
		build func(logr.Logger) (runner, error)
	}{
		{jobController, func(log logr.Logger) (runner, error) {
			return vcjob.New(vcjob.Deps{Cache: p.cache, Client: c, Log: log, Registry: p.registry, Guard: guard, Tell: tell}, p.jobController())
		}},
		{queueController, func(log logr.Logger) (runner, error) { return p.queueController(shell(log)) }},
		{pgController, func(log logr.Logger) (runner, error) {
			return vcpodgroup.New(vcpodgroup.Deps{Cache: p.cache, Client: c, Log: log, Registry: p.registry, Guard: guard, Tell: tell}, p.groupController())
		}},
		{gcController, func(log logr.Logger) (runner, error) { return vcgc.New(shell(log), p.CollectorWorkers) }},
		{cronController, func(log logr.Logger) (runner, error) {
			return vccron.New(shell(log), p.CronWorkers, vcreview.ValidateCronJob)
		}},
		{flowController, func(log logr.Logger) (runner, error) {
			return vcjobflow.New(shell(log), p.Workers, vcreview.ValidateJobFlow)
		}},
		{templateController, func(log logr.Logger) (runner, error) { return vcjobtemplate.New(shell(log), p.Workers) }},
		{hyperNodeController, func(log logr.Logger) (runner, error) { return vchypernode.New(shell(log), p.Namespace) }},
		{shardingController, func(log logr.Logger) (runner, error) { return p.shardingController(shell(log)) }},
	} {
		if !on[one.name] {
			continue
		}
		r, err := one.build(log.WithName(one.name))
		if err != nil {
			return nil, err
		}
		g.Add(one.name, untilAsked(r.Run))
	}
	return g, nil
}

// trimVolcano keeps of pods, and of what owns them, what the controllers read, and no more: whoever may create one decides how large it is. That is
// who owns it, what Volcano's keys say, of pods their address and what became of their containers, and of those that Volcano's scheduler places what they request; of nodes the
// labels. Jobs of Volcano and what is made of them stay whole. Of ConfigMaps it is the one that says what is discovered.
func (s *Settings) trimVolcano(o *cache.Options) {
	o.DefaultTransform = cache.TransformStripManagedFields()
	on, err := s.controllers()
	sharding := err == nil && on[shardingController] // what is wrong with the flag is told where the controllers are built
	trim := func(obj any) (any, error) { return trimOfVolcano(obj, s.SchedulerNames, sharding), nil }
	o.ByObject = map[client.Object]cache.ByObject{}
	for _, kind := range []client.Object{&corev1.Pod{}, &appsv1.ReplicaSet{}, &appsv1.StatefulSet{}, &appsv1.DaemonSet{}, &batchv1.Job{}, &corev1.Node{}} {
		o.ByObject[kind] = cache.ByObject{Transform: trim}
	}
	o.ByObject[&corev1.ConfigMap{}] = cache.ByObject{
		Namespaces: map[string]cache.Config{s.Namespace: {}}, Field: fields.OneTermEqualSelector(metav1.ObjectNameField, volcano.ControllerConfig),
	}
}

// trimOfVolcano is what is kept of an object, which it does not change. sharding keeps how much CPU nodes have and pods on them ask for.
func trimOfVolcano(obj any, schedulers []string, sharding bool) any {
	switch o := obj.(type) {
	case *corev1.Pod:
		kept := &corev1.Pod{TypeMeta: o.TypeMeta, ObjectMeta: metaOfVolcano(&o.ObjectMeta), Status: corev1.PodStatus{Phase: o.Status.Phase, PodIP: o.Status.PodIP}}
		kept.Status.InitContainerStatuses, kept.Status.ContainerStatuses = fates(o.Status.InitContainerStatuses), fates(o.Status.ContainerStatuses)
		if kept.Spec.SchedulerName = o.Spec.SchedulerName; slices.Contains(schedulers, o.Spec.SchedulerName) {
			kept.Spec.PriorityClassName, kept.Spec.Overhead, kept.Spec.NodeName, kept.Spec.Resources = o.Spec.PriorityClassName, o.Spec.Overhead.DeepCopy(), o.Spec.NodeName, o.Spec.Resources.DeepCopy()
			kept.Spec.InitContainers, kept.Spec.Containers = rooms(o.Spec.InitContainers), rooms(o.Spec.Containers)
			if i := slices.IndexFunc(o.Status.Conditions, func(c corev1.PodCondition) bool {
				return c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse
			}); i >= 0 {
				kept.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse}}
			}
		}
		if sharding {
			kept.Spec.NodeName, kept.Spec.Overhead = o.Spec.NodeName, o.Spec.Overhead.DeepCopy()
			kept.Spec.InitContainers, kept.Spec.Containers = rooms(o.Spec.InitContainers), rooms(o.Spec.Containers)
		}
		return kept
	case *corev1.Node:
		kept := &corev1.Node{TypeMeta: o.TypeMeta, ObjectMeta: metav1.ObjectMeta{Name: o.Name, UID: o.UID, ResourceVersion: o.ResourceVersion, Labels: maps.Clone(o.Labels)}}
		if sharding {
			kept.Status.Allocatable = corev1.ResourceList{corev1.ResourceCPU: o.Status.Allocatable.Cpu().DeepCopy()}
		}
		return kept
	case *appsv1.ReplicaSet:
		return &appsv1.ReplicaSet{TypeMeta: o.TypeMeta, ObjectMeta: metaOfVolcano(&o.ObjectMeta), Spec: appsv1.ReplicaSetSpec{Replicas: o.Spec.Replicas}}
	case *appsv1.StatefulSet:
		return &appsv1.StatefulSet{
			TypeMeta: o.TypeMeta, ObjectMeta: metaOfVolcano(&o.ObjectMeta), Spec: appsv1.StatefulSetSpec{Replicas: o.Spec.Replicas},
			Status: appsv1.StatefulSetStatus{UpdateRevision: o.Status.UpdateRevision},
		}
	case *appsv1.DaemonSet:
		return &appsv1.DaemonSet{TypeMeta: o.TypeMeta, ObjectMeta: metaOfVolcano(&o.ObjectMeta)}
	case *batchv1.Job:
		return &batchv1.Job{TypeMeta: o.TypeMeta, ObjectMeta: metaOfVolcano(&o.ObjectMeta)}
	}
	return obj
}

// metaOfVolcano is what is kept of an object's metadata.
func metaOfVolcano(m *metav1.ObjectMeta) metav1.ObjectMeta {
	kept := *m.DeepCopy()
	kept.ManagedFields, kept.Finalizers = nil, nil
	kept.Annotations, kept.Labels = volcanoNotes(kept.Annotations), volcanoNotes(kept.Labels)
	return kept
}

// volcanoNotes are those of annotations or labels that the controllers read.
func volcanoNotes(all map[string]string) map[string]string {
	kept := map[string]string{}
	for k, v := range all { // order: the result is a map
		if strings.HasPrefix(k, volcano.OwnPrefix) || strings.HasPrefix(k, "scheduling.volcano.sh/") || k == volcano.GroupName || k == keys.OwnGangAnnotation || k == appsv1.ControllerRevisionHashLabelKey {
			kept[k] = v
		}
	}
	return kept
}

// rooms are what containers request.
func rooms(all []corev1.Container) (out []corev1.Container) {
	for i := range all {
		out = append(out, corev1.Container{Name: all[i].Name, Resources: *all[i].Resources.DeepCopy(), RestartPolicy: all[i].RestartPolicy})
	}
	return out
}

// fates are what is read of containers: whether they are ready, how often they were restarted, how and when they ended.
func fates(all []corev1.ContainerStatus) (out []corev1.ContainerStatus) {
	for i := range all {
		s := corev1.ContainerStatus{Name: all[i].Name, Ready: all[i].Ready, RestartCount: all[i].RestartCount}
		if t := all[i].State.Terminated; t != nil {
			s.State.Terminated = &corev1.ContainerStateTerminated{ExitCode: t.ExitCode, FinishedAt: t.FinishedAt}
		}
		out = append(out, s)
	}
	return out
}
