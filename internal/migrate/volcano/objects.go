package volcano

import (
	"maps"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	batch "github.com/muster-scheduler/muster/api/volcano/batch/v1alpha1"
	bus "github.com/muster-scheduler/muster/api/volcano/bus/v1alpha1"
	config "github.com/muster-scheduler/muster/api/volcano/config/v1alpha1"
	flow "github.com/muster-scheduler/muster/api/volcano/flow/v1alpha1"
	"github.com/muster-scheduler/muster/api/volcano/keys"
	scheduling "github.com/muster-scheduler/muster/api/volcano/scheduling/v1beta1"
	shard "github.com/muster-scheduler/muster/api/volcano/shard/v1alpha1"
	topology "github.com/muster-scheduler/muster/api/volcano/topology/v1alpha1"
)

// Objects are what a cluster has, as far as it is looked at.
type Objects struct {
	Programs   []Program // Volcano's
	Queues     []scheduling.Queue
	Groups     []scheduling.PodGroup
	Jobs       []batch.Job
	CronJobs   []batch.CronJob
	Flows      []flow.JobFlow
	Templates  []flow.JobTemplate
	HyperNodes []topology.HyperNode
	Shards     []shard.NodeShard
	Commands   []bus.Command
	Pods       []corev1.Pod
	Leases     []coordinationv1.Lease
	Webhooks   []Webhook
	ConfigMaps []corev1.ConfigMap
	// Others are objects that nothing of Muster's reads: ColocationConfigurations, and kinds that this module has no types of.
	Others []client.Object
	// Absent are the kinds that the API server does not serve.
	Absent []string
	// Unread are the errors of what may not be read, by kind.
	Unread map[string]error
}

// Program is one of Volcano's programs, as a Deployment or a pod runs it.
type Program struct {
	// What is the program's name, such as vc-scheduler.
	What                  string
	Kind, Namespace, Name string
	// Ready is how many of its pods are; Wanted says that there are to be some.
	Ready  int32
	Wanted bool
	// Words are its command line, word by word; Variables the names of its environment's variables; Maps the ConfigMaps that it mounts.
	Words, Variables, Maps []string
}

// Webhook is a webhook configuration that calls a service of Volcano's.
type Webhook struct {
	Kind, Name string
	// Closed says that without an answer what it judges is refused.
	Closed bool
}

// The programs.
const (
	programScheduler   = "vc-scheduler"
	programControllers = "vc-controller-manager"
	programAdmission   = "vc-webhook-manager"
	programAgent       = "vc-agent-scheduler"
)

// programs are those that are looked for, by the names of their images and files; and by what Volcano's chart calls their Deployments.
func programs() map[string]string {
	return map[string]string{
		programScheduler: programScheduler, programControllers: programControllers, programAdmission: programAdmission, programAgent: programAgent,
		"volcano-scheduler": programScheduler, "volcano-controllers": programControllers, "volcano-admission": programAdmission, "volcano-agent-scheduler": programAgent,
	}
}

// Add adds an object, as an API server hands it out; one of a kind that is not looked at is an other.
func (o *Objects) Add(object client.Object) {
	switch x := object.(type) {
	case *appsv1.Deployment:
		o.program(&x.Spec.Template.Spec, Program{
			Kind: "Deployment", Namespace: x.Namespace, Name: x.Name, Ready: x.Status.ReadyReplicas, Wanted: x.Spec.Replicas == nil || *x.Spec.Replicas > 0 || x.Status.Replicas > 0,
		})
	case *corev1.Pod:
		o.Pods = append(o.Pods, *x)
		if ended := x.Status.Phase == corev1.PodSucceeded || x.Status.Phase == corev1.PodFailed; !ended && !owned(x) {
			p := Program{Kind: "Pod", Namespace: x.Namespace, Name: x.Name, Wanted: true}
			if x.Status.Phase == corev1.PodRunning {
				p.Ready = 1
			}
			o.program(&x.Spec, p)
		}
	case *scheduling.Queue:
		o.Queues = append(o.Queues, *x)
	case *scheduling.PodGroup:
		o.Groups = append(o.Groups, *x)
	case *batch.Job:
		o.Jobs = append(o.Jobs, *x)
	case *batch.CronJob:
		o.CronJobs = append(o.CronJobs, *x)
	case *flow.JobFlow:
		o.Flows = append(o.Flows, *x)
	case *flow.JobTemplate:
		o.Templates = append(o.Templates, *x)
	case *topology.HyperNode:
		o.HyperNodes = append(o.HyperNodes, *x)
	case *shard.NodeShard:
		o.Shards = append(o.Shards, *x)
	case *bus.Command:
		o.Commands = append(o.Commands, *x)
	case *coordinationv1.Lease:
		o.Leases = append(o.Leases, *x)
	case *corev1.ConfigMap:
		o.ConfigMaps = append(o.ConfigMaps, *x)
	case *admissionregistrationv1.ValidatingWebhookConfiguration:
		for i := range x.Webhooks {
			o.webhook("ValidatingWebhookConfiguration", x.Name, x.Webhooks[i].ClientConfig.Service, x.Webhooks[i].FailurePolicy)
		}
	case *admissionregistrationv1.MutatingWebhookConfiguration:
		for i := range x.Webhooks {
			o.webhook("MutatingWebhookConfiguration", x.Name, x.Webhooks[i].ClientConfig.Service, x.Webhooks[i].FailurePolicy)
		}
	case *config.ColocationConfiguration, *unstructured.Unstructured:
		o.Others = append(o.Others, object)
	}
}

// owned says that a ReplicaSet made a pod: it is its Deployment's.
func owned(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.OwnerReferences, func(r metav1.OwnerReference) bool { return r.Kind == "ReplicaSet" })
}

// program adds a program of Volcano's, if one of the containers is any: by the name of its image or its file, or by what Volcano's chart calls it in Volcano's namespace. What runs `muster run`
// is not.
func (o *Objects) program(spec *corev1.PodSpec, p Program) {
	known := programs()
	for i := range spec.Containers {
		c := &spec.Containers[i]
		words := append(strings.Fields(strings.Join(c.Command, " ")), strings.Fields(strings.Join(c.Args, " "))...)
		if base(c.Image) == "muster" || len(c.Args) > 0 && c.Args[0] == "run" || len(words) > 0 && base(words[0]) == "muster" {
			continue
		}
		what := known[base(c.Image)]
		for _, word := range words[:min(len(words), 4)] { // such as sh -c /vc-scheduler
			if named := known[base(word)]; what == "" && strings.HasPrefix(base(word), "vc-") {
				what = named
			}
		}
		if what == "" && p.Namespace == keys.Namespace && p.Kind == "Deployment" {
			what = known[p.Name]
		}
		if what == "" {
			continue
		}
		p.What, p.Words = what, words
		for _, e := range c.Env {
			p.Variables = append(p.Variables, e.Name)
		}
		for _, v := range spec.Volumes {
			if v.ConfigMap != nil {
				p.Maps = append(p.Maps, v.ConfigMap.Name)
			}
		}
		o.Programs = append(o.Programs, p)
		return
	}
}

// base is the name of an image or file: without what is before it, without tag and digest.
func base(path string) string {
	path, _, _ = strings.Cut(path, "@")
	name, _, _ := strings.Cut(path[strings.LastIndex(path, "/")+1:], ":")
	return name
}

func (o *Objects) webhook(kind, name string, to *admissionregistrationv1.ServiceReference, policy *admissionregistrationv1.FailurePolicyType) {
	if to == nil || !strings.HasPrefix(to.Name, "volcano-admission") {
		return
	}
	closed := policy == nil || *policy == admissionregistrationv1.Fail
	for i := range o.Webhooks {
		if w := &o.Webhooks[i]; w.Kind == kind && w.Name == name {
			w.Closed = w.Closed || closed
			return
		}
	}
	o.Webhooks = append(o.Webhooks, Webhook{Kind: kind, Name: name, Closed: closed})
}

// values are what a program is given a flag with, once for each time; "" for a flag without a value.
func (p *Program) values(name string) (out []string) {
	for i, word := range p.Words {
		word, dashed := strings.CutPrefix(word, "-")
		key, said, equals := strings.Cut(strings.TrimPrefix(word, "-"), "=")
		if !dashed || key != name {
			continue
		}
		if !equals && i+1 < len(p.Words) && !strings.HasPrefix(p.Words[i+1], "-") {
			said = p.Words[i+1]
		}
		out = append(out, said)
	}
	return out
}

// namespaces are those in which Volcano lies.
func (o *Objects) namespaces() []string {
	all := map[string]bool{keys.Namespace: true}
	for i := range o.Programs {
		all[o.Programs[i].Namespace] = true
	}
	return slices.Sorted(maps.Keys(all))
}

// schedulers are the names of pods' schedulers that Volcano's is given.
func (o *Objects) schedulers() map[string]bool {
	all := map[string]bool{keys.SchedulerName: true}
	for i := range o.Programs {
		if o.Programs[i].What != programScheduler {
			continue
		}
		for _, name := range o.Programs[i].values("scheduler-name") {
			if name != "" {
				all[name] = true
			}
		}
	}
	return all
}
