package kueue

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-scheduler/muster/api/kai/keys"
	queuev2 "github.com/muster-scheduler/muster/api/scheduling/v2"
	"github.com/muster-scheduler/muster/internal/dialect/workload"
	"github.com/muster-scheduler/muster/internal/migrate"
)

// What of Kueue's workloads and pods carry.
const (
	gatePrefix     = Group + "/" // of scheduling gates
	podGroupLabel  = Group + "/pod-group-name"
	minParallelism = Group + "/job-min-parallelism"
)

// checker gathers.
type checker struct {
	ctx     context.Context
	reader  client.Reader
	options Options
	report  *migrate.Report
	in      *Objects
	plan    *Plan
	// ready is how many pods of Kueue's controller are.
	ready int32
}

// Check looks at a cluster, and answers whether its work can be moved from Kueue to Muster now, and what will differ. It reads, and writes
// nothing.
func Check(ctx context.Context, reader client.Reader, options Options) (*migrate.Report, error) {
	c := &checker{ctx: ctx, reader: reader, options: options, report: migrate.NewReport()}
	return c.report, c.report.Run([]migrate.Step{
		{Clear: "no Deployment of Kueue's is there", Look: c.deployments},
		{Clear: "no webhook of Kueue's is left behind", Look: c.webhooks},
		{Clear: "Kueue's objects can be carried over, and nothing of them gets lost", Look: c.objects},
		{Clear: "no Queue that is there is another than the one to be made", Look: c.queues},
		{Clear: "no Job or pod is held by Kueue", Look: c.held},
		{Clear: "each kind that Kueue manages here is one that Muster knows", Look: c.kinds},
	})
}

func (c *checker) add(l migrate.Level, about, text, next string) { c.report.Add(l, about, text, next) }

func (c *checker) list(into client.ObjectList, what string) error {
	if err := c.reader.List(c.ctx, into); err != nil {
		return fmt.Errorf("list %s: %w", what, err)
	}
	return nil
}

// controller says that a Deployment is Kueue's: an image called kueue in a folder called so, as released, or Kueue's labels.
func controller(d *appsv1.Deployment) bool {
	for i := range d.Spec.Template.Spec.Containers {
		image, _, _ := strings.Cut(d.Spec.Template.Spec.Containers[i].Image, "@")
		parts := strings.Split(image, "/")
		name, _, _ := strings.Cut(parts[len(parts)-1], ":")
		if name == "kueue" && len(parts) > 1 && parts[len(parts)-2] == "kueue" {
			return true
		}
	}
	return d.Labels["app.kubernetes.io/name"] == "kueue" && d.Labels["control-plane"] == "controller-manager"
}

func (c *checker) deployments() error {
	var all appsv1.DeploymentList
	if err := c.list(&all, "Deployments"); err != nil {
		return err
	}
	for i := range all.Items {
		d := &all.Items[i]
		if !controller(d) {
			continue
		}
		if d.Spec.Replicas != nil && *d.Spec.Replicas == 0 && d.Status.ReadyReplicas == 0 {
			continue // stopped on purpose; what its webhooks still keep from being made is looked at by itself
		}
		c.ready += d.Status.ReadyReplicas
		about := fmt.Sprintf("Deployment %s/%s", d.Namespace, d.Name)
		stop := fmt.Sprintf("kubectl -n %s scale deployment %s --replicas=0, and delete Kueue's webhook configurations", d.Namespace, d.Name)
		if d.Status.ReadyReplicas > 0 {
			c.add(migrate.See, about, "Kueue runs. That is no harm: a pod that it gates holds nothing in Muster, and what it admits starts whole. But work with both labels has two judges, whose quotas both count",
				"move work by taking "+QueueLabel+" off as "+keys.QueueLabel+" and schedulerName come on; when none is left, "+stop)
		} else {
			c.add(migrate.See, about, "Kueue is there and none of its pods is ready: nobody admits what it holds, and its webhooks answer nobody", stop)
		}
	}
	return nil
}

// webhooks looks for configurations that call Kueue's Service while nobody answers: then Jobs, and maybe pods, cannot be created.
func (c *checker) webhooks() error {
	var validating admissionregistrationv1.ValidatingWebhookConfigurationList
	var mutating admissionregistrationv1.MutatingWebhookConfigurationList
	if err := c.list(&validating, "ValidatingWebhookConfigurations"); err != nil {
		return err
	}
	if err := c.list(&mutating, "MutatingWebhookConfigurations"); err != nil {
		return err
	}
	look := func(kind, name string, fails []bool) {
		if !strings.HasPrefix(name, "kueue-") || c.ready > 0 || !slices.Contains(fails, true) {
			return
		}
		c.add(migrate.Stop, kind+" "+name, "it is Kueue's, and none of Kueue's pods is ready: what it judges cannot be created", "kubectl delete "+strings.ToLower(kind)+" "+name+", or start Kueue")
	}
	closed := func(p *admissionregistrationv1.FailurePolicyType) bool {
		return p == nil || *p == admissionregistrationv1.Fail
	}
	for i := range validating.Items {
		var fails []bool
		for j := range validating.Items[i].Webhooks {
			fails = append(fails, closed(validating.Items[i].Webhooks[j].FailurePolicy))
		}
		look("ValidatingWebhookConfiguration", validating.Items[i].Name, fails)
	}
	for i := range mutating.Items {
		var fails []bool
		for j := range mutating.Items[i].Webhooks {
			fails = append(fails, closed(mutating.Items[i].Webhooks[j].FailurePolicy))
		}
		look("MutatingWebhookConfiguration", mutating.Items[i].Name, fails)
	}
	return nil
}

// objects translates what the cluster has, and tells what comes of it.
func (c *checker) objects() error {
	in, absent, err := Look(c.ctx, c.reader)
	if err != nil {
		return err
	}
	c.in, c.plan = in, Translate(in, c.options)
	for _, what := range absent {
		c.add(migrate.Differs, "Kueue's "+what, "the API server does not have it in a version that is read: nothing is known of it", "")
	}
	for _, n := range c.plan.Refusals {
		c.add(migrate.Stop, n.Object, strings.TrimPrefix(n.String(), n.Object+": "), n.Instead)
	}
	for _, n := range c.plan.Losses {
		c.add(migrate.Differs, n.Object, strings.TrimPrefix(n.String(), n.Object+": "), n.Instead)
	}
	if in.Config != nil && in.Config.ManageJobsWithoutQueueName && c.ready > 0 {
		c.add(migrate.Stop, "Kueue's configuration", "manageJobsWithoutQueueName: Kueue suspends every Job that names no queue of its own, those too that are Muster's", "set it to false, or leave Muster's namespaces out by managedJobsNamespaceSelector, or stop Kueue")
	}
	return nil
}

// queues compares Queues that are there with those that would be made.
func (c *checker) queues() error {
	var all queuev2.QueueList
	if err := c.list(&all, "Queues"); meta.IsNoMatchError(err) {
		c.add(migrate.See, "CustomResourceDefinition queues.scheduling.run.ai", "it is not installed", "muster crds apply")
		return nil
	} else if err != nil {
		return err
	}
	if c.plan == nil || len(c.plan.Refusals) > 0 {
		c.add(migrate.See, "Queues", "they were not compared with Kueue's objects, which could not be carried over", "")
		return nil
	}
	have := map[string]*queuev2.Queue{}
	for i := range all.Items {
		have[all.Items[i].Name] = &all.Items[i]
	}
	missing := 0
	for i := range c.plan.Queues {
		q := &c.plan.Queues[i]
		switch there := have[q.Name]; {
		case there == nil:
			missing++
		case !equality.Semantic.DeepEqual(there.Spec, q.Spec):
			c.add(migrate.See, "Queue "+q.Name, "it is there, and is not what Kueue's objects come to", "compare: muster migrate queues --from kueue | kubectl diff -f -")
		}
	}
	if missing > 0 {
		c.add(migrate.See, "Queues", fmt.Sprintf("%d of %d are not there yet", missing, len(c.plan.Queues)), "muster migrate queues --from kueue | kubectl apply -f -")
	}
	return nil
}

// held counts what Kueue holds, and what is judged by both.
func (c *checker) held() error {
	var jobs batchv1.JobList
	if err := c.list(&jobs, "Jobs"); err != nil {
		return err
	}
	var pods corev1.PodList
	if err := c.list(&pods, "Pods"); err != nil {
		return err
	}
	suspended, partial, both, bothPods, gated, grouped := 0, 0, 0, 0, 0, 0
	for i := range jobs.Items {
		j := &jobs.Items[i]
		if j.Labels[QueueLabel] == "" || j.Status.CompletionTime != nil {
			continue
		}
		if j.Spec.Suspend != nil && *j.Spec.Suspend {
			suspended++
		}
		if j.Annotations[minParallelism] != "" {
			partial++
		}
		if t := &j.Spec.Template; j.Labels[keys.QueueLabel] != "" || t.Labels[keys.QueueLabel] != "" || t.Spec.SchedulerName == keys.SchedulerName {
			both++
		}
	}
	for i := range pods.Items {
		p := &pods.Items[i]
		if slices.ContainsFunc(p.Spec.SchedulingGates, func(g corev1.PodSchedulingGate) bool { return strings.HasPrefix(g.Name, gatePrefix) }) {
			gated++
		}
		if p.Labels[podGroupLabel] != "" && p.Spec.SchedulingGroup == nil {
			grouped++
		}
		if p.Labels[QueueLabel] != "" && metav1.GetControllerOfNoCopy(p) == nil && (p.Labels[keys.QueueLabel] != "" || p.Spec.SchedulerName == keys.SchedulerName) {
			bothPods++
		}
	}
	level, note := migrate.Differs, "a gated pod and a suspended Job hold nothing in Muster, and start whole when Kueue admits them"
	next := ""
	if c.ready == 0 {
		level, note, next = migrate.See, "nobody admits them now", "suspend: false on the Jobs, and the gates off the pods, once they name Muster's scheduler and queue; or make them anew"
	}
	if suspended > 0 {
		c.add(level, "Jobs", fmt.Sprintf("%d are suspended in a queue of Kueue's: %s", suspended, note), next)
	}
	if gated > 0 {
		c.add(level, "Pods", fmt.Sprintf("%d wait behind a gate of Kueue's: %s", gated, note), next)
	}
	twice := func(kind string, n int) {
		if n > 0 {
			c.add(migrate.See, kind, fmt.Sprintf("%d are both Kueue's and Muster's: quota of both counts, and each may end them for work of its own", n), "leave one of the labels")
		}
	}
	twice("Jobs", both)
	twice("Pods", bothPods)
	if partial > 0 {
		c.add(migrate.Differs, "Jobs", fmt.Sprintf("%d may be admitted with fewer pods (%s), which Kueue writes into parallelism; Muster starts a gang from its minimum on", partial, minParallelism), "the annotation "+keys.BatchMinMemberAnnotation)
	}
	if grouped > 0 {
		c.add(migrate.Differs, "Pods", fmt.Sprintf("%d are in groups of Kueue's (%s), which Muster does not read: each is a gang of its own", grouped, podGroupLabel), "a PodGroup, as docs/concepts/upstream.md has it")
	}
	return nil
}

// kinds compares the kinds that Kueue manages with those that the podgrouper knows.
func (c *checker) kinds() error {
	managed := map[string]bool{} // group/kind, in small letters
	if c.in != nil && c.in.Config != nil {
		for _, f := range c.in.Config.Integrations.Frameworks {
			managed[strings.ToLower(f)] = true
		}
		for _, f := range c.in.Config.Integrations.ExternalFrameworks { // Kind.version.group
			if parts := strings.SplitN(strings.ToLower(f), ".", 3); len(parts) == 3 {
				managed[parts[2]+"/"+parts[0]] = true
			}
		}
	}
	work, err := list(c.ctx, c.reader, "Workload", []string{"v1beta2", "v1beta1"})
	if err != nil {
		return err
	}
	if work != nil {
		for i := range work.Items {
			for _, o := range work.Items[i].GetOwnerReferences() {
				group, _, ok := strings.Cut(o.APIVersion, "/")
				if !ok {
					group = ""
				}
				managed[strings.TrimPrefix(strings.ToLower(group+"/"+o.Kind), "/")] = true
			}
		}
	}
	known := map[string]bool{"pod": true, "deployment": true, "statefulset": true} // as Kueue calls those of Kubernetes
	for _, r := range workload.Kinds() {
		known[strings.TrimPrefix(strings.ToLower(r.Group+"/"+r.Kind), "/")] = true
	}
	for _, name := range slices.Sorted(maps.Keys(managed)) {
		if !known[name] {
			c.add(migrate.Differs, "workloads of the kind "+brief(name), "Kueue manages them, and Muster has no rule for them: each gets a PodGroup whose minimum is one pod", "a Karta that defines the kind, or an annotation or PodGroup of your own: docs/concepts/workloads.md")
		}
	}
	return nil
}
