package roles

import (
	"fmt"
	"slices"
	"strings"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	vcbatch "github.com/muster-scheduler/muster/api/volcano/batch/v1alpha1"
	vcbus "github.com/muster-scheduler/muster/api/volcano/bus/v1alpha1"
	volcano "github.com/muster-scheduler/muster/api/volcano/keys"
	vcscheduling "github.com/muster-scheduler/muster/api/volcano/scheduling/v1beta1"
	"github.com/muster-scheduler/muster/internal/app"
	"github.com/muster-scheduler/muster/internal/controllers/vcgc"
	"github.com/muster-scheduler/muster/internal/controllers/vcjob"
	"github.com/muster-scheduler/muster/internal/controllers/vcqueue"
	"github.com/muster-scheduler/muster/internal/kube/aside"
)

// volcanoRole runs Volcano's controllers, each under the name that --controllers of Volcano's program has for it. It is a role of its own
// process: a cluster without Volcano's kinds has no such process, and is the same as before.
func volcanoRole() role {
	return role{
		name: VolcanoControllers, about: "Run Volcano's controllers: Jobs, queues, Jobs whose time is up", lease: volcano.LeaseControllers,
		home: volcano.Namespace, // where Volcano's own program looks for the Lease: one of both leads
		needs: []schema.GroupVersionKind{
			vcbatch.GroupVersion.WithKind("Job"), vcscheduling.GroupVersion.WithKind("PodGroup"), vcscheduling.GroupVersion.WithKind("Queue"),
			vcbus.GroupVersion.WithKind("Command"),
		},
		watched: []client.Object{
			&vcscheduling.Queue{}, &schedulingv1.PriorityClass{}, &corev1.PersistentVolumeClaim{}, &vcbatch.Job{}, &vcscheduling.PodGroup{},
			&corev1.Pod{}, &vcbus.Command{},
		},
		trim: trimVolcano, apart: true, flags: (*Settings).volcanoFlags,
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
)

// volcanoNames are the controllers that --controllers knows, and whether there is one of the name here.
func volcanoNames() map[string]bool {
	return map[string]bool{
		jobController: true, queueController: true, gcController: true,
		"pg-controller": false, "jobflow-controller": false, "jobtemplate-controller": false, "cronjob-controller": false,
		"hyperNode-controller": false, "sharding-controller": false,
	}
}

// volcanoClientOptions are Volcano's.
func volcanoClientOptions() app.ClientOptions { return app.ClientOptions{QPS: 50, Burst: 100} }

// volcanoFlags declares the flags of the role vc-controller-manager: Volcano's, with Volcano's defaults, besides those that all roles have.
func (s *Settings) volcanoFlags(fs *pflag.FlagSet) {
	o, c := vcjob.DefaultOptions(), volcanoClientOptions()
	app.BindLogFlags(fs, &s.Log)
	fs.Float32Var(&s.Client.QPS, "kube-api-qps", c.QPS, "the same as --qps")
	fs.IntVar(&s.Client.Burst, "kube-api-burst", c.Burst, "the same as --burst")
	fs.StringVar(&s.Listen, "listen-address", ":8081", "address of /metrics; empty or 0 for none")
	fs.StringVar(&s.ProbeListen, volcanoProbeFlag, ":11251", "address of /healthz and /readyz; empty or 0 for none")
	fs.StringSliceVar(&s.Controllers, "controllers", []string{"*", "-sharding-controller"}, "which controllers run: * for all, NAME or +NAME for one, -NAME for all but one; known: "+strings.Join(knownControllers(), ", "))
	fs.IntVar(&s.Workers, "worker-threads", o.Workers, "Jobs that are written about at a time")
	fs.IntVar(&s.QueueWorkers, "worker-threads-for-queue", 5, "queues that are written at a time")
	fs.IntVar(&s.CollectorWorkers, "worker-threads-for-gc", 1, "Jobs whose time is up that are deleted at a time")
	fs.IntVar(&s.MaxRequeue, "max-requeue-num", o.MaxRequeue, "how many times in turn the API server may refuse what a Job needs before the Job is terminated; negative: without end")
	for name, usage := range map[string]string{
		"enable-healthz": "health is always told, at --" + volcanoProbeFlag, "enable-metrics": "metrics are always served, at --listen-address",
		"inherit-owner-annotations": "there is no controller of bare pods yet", "worker-threads-for-podgroup": "there is no controller of bare pods yet",
		"worker-threads-for-cronjob": "there is no controller of CronJobs yet", "feature-gates": "there is nothing that they switch",
	} { // order: the set sorts them
		fs.String(name, "", "accepted, no effect: "+usage)
		fs.Lookup(name).NoOptDefVal, fs.Lookup(name).Hidden = "true", true
	}
}

// knownControllers are the names that --controllers takes, sorted.
func knownControllers() (out []string) {
	for name := range volcanoNames() { // order: sorted below
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}

// controllers says which controllers run, and which are asked for by name that there are none of.
func (s *Settings) controllers() (on map[string]bool, lacking []string, err error) {
	on = map[string]bool{}
	known, said := volcanoNames(), map[string]bool{}
	all := slices.Contains(s.Controllers, "*")
	for _, word := range s.Controllers {
		if word == "*" {
			continue
		}
		name, off := strings.CutPrefix(word, "-")
		if !off {
			name = strings.TrimPrefix(word, "+")
		}
		here, ok := known[name]
		if !ok {
			return nil, nil, fmt.Errorf("--controllers: %q: there is no controller of the name; known: %s", word, strings.Join(knownControllers(), ", "))
		}
		if yes, twice := said[name]; twice && yes == off {
			return nil, nil, fmt.Errorf("--controllers: %s is both to run and not to run", name)
		}
		said[name] = !off
		if !off && !here {
			lacking = append(lacking, name)
		}
	}
	for name, here := range known { // order: the result is a map
		yes, named := said[name]
		on[name] = here && (yes || all && !named)
	}
	if !slices.ContainsFunc(knownControllers(), func(name string) bool { return on[name] }) {
		return nil, nil, fmt.Errorf("--controllers: %s leaves none to run", strings.Join(s.Controllers, ","))
	}
	return on, lacking, nil
}

// jobController is what the controller of Jobs is told.
func (s *Settings) jobController() vcjob.Options {
	return vcjob.Options{Workers: s.Workers, MaxRequeue: s.MaxRequeue, SchedulerName: s.SchedulerNames[0]}
}

// volcanoControllers builds those of the controllers that are to run.
func (p *process) volcanoControllers(log logr.Logger, c client.Client, guard *aside.Guard) (*app.Group, error) {
	on, lacking, err := p.controllers()
	if err != nil {
		return nil, err
	}
	for _, name := range lacking {
		log.Info("a controller was asked for that there is not yet", "controller", name)
	}
	record := p.events.recorder(VolcanoControllers)
	tell := func(job client.Object, warning bool, reason, message string) {
		kind := corev1.EventTypeNormal
		if warning {
			kind = corev1.EventTypeWarning
		}
		record(job, kind, reason, message)
	}
	g := &app.Group{}
	for _, one := range []struct {
		name  string
		build func(logr.Logger) (runner, error)
	}{
		{jobController, func(log logr.Logger) (runner, error) {
			return vcjob.New(vcjob.Deps{Cache: p.cache, Client: c, Log: log, Registry: p.registry, Guard: guard, Tell: tell}, p.jobController())
		}},
		{queueController, func(log logr.Logger) (runner, error) {
			return vcqueue.New(vcqueue.Deps{Cache: p.cache, Client: c, Log: log, Registry: p.registry, Guard: guard}, p.QueueWorkers)
		}},
		{gcController, func(log logr.Logger) (runner, error) {
			return vcgc.New(vcgc.Deps{Cache: p.cache, Client: c, Log: log, Guard: guard}, p.CollectorWorkers)
		}},
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

// trimVolcano keeps of pods what the controllers read, and no more: whoever may create a pod decides how large it is. That is who owns it, what
// Volcano's keys say, and what became of its containers. Jobs and what is made of them stay whole.
func trimVolcano(o *cache.Options) {
	o.DefaultTransform = cache.TransformStripManagedFields()
	o.ByObject = map[client.Object]cache.ByObject{&corev1.Pod{}: {Transform: func(obj any) (any, error) {
		p, ok := obj.(*corev1.Pod)
		if !ok {
			return obj, nil
		}
		kept := &corev1.Pod{TypeMeta: p.TypeMeta, ObjectMeta: *p.ObjectMeta.DeepCopy(), Status: corev1.PodStatus{Phase: p.Status.Phase}}
		kept.ManagedFields, kept.Finalizers = nil, nil
		kept.Annotations, kept.Labels = volcanoNotes(kept.Annotations), volcanoNotes(kept.Labels)
		kept.Status.InitContainerStatuses, kept.Status.ContainerStatuses = fates(p.Status.InitContainerStatuses), fates(p.Status.ContainerStatuses)
		return kept, nil
	}}}
}

// volcanoNotes are those of annotations or labels whose keys are Volcano's.
func volcanoNotes(all map[string]string) map[string]string {
	kept := map[string]string{}
	for k, v := range all { // order: the result is a map
		if strings.HasPrefix(k, volcano.OwnPrefix) {
			kept[k] = v
		}
	}
	return kept
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
