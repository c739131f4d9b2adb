package vcctl

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	batch "github.com/muster-scheduler/muster/api/volcano/batch/v1alpha1"
	bus "github.com/muster-scheduler/muster/api/volcano/bus/v1alpha1"
)

const listJobs = "vcctl job list"

func (o Options) job() *cobra.Command {
	return group("job", "Run jobs, look at them and end them", o.jobRun(false), o.jobList(false), o.jobView(), o.jobCommand(suspend, false), o.jobCommand(resume, false), o.jobDelete(false))
}

// jobType is the label that says what kind of job it is; none is a batch job.
const jobType = "volcano.sh/job-type"

func (o Options) jobList(swapped bool) *cobra.Command {
	var queue, scheduler, part string
	return o.command("list", "List jobs", swapped, func(c *call, fs *pflag.FlagSet) {
		c.bindNamespace(fs)
		c.bindEverywhere(fs)
		c.bindOutput(fs)
		fs.StringVarP(&queue, "queue", "q", "", "only those of the `queue`")
		fs.StringVarP(&scheduler, "scheduler", "S", "", "only those of the `scheduler`")
		fs.StringVar(&part, "selector", "", "only those whose name has this `text` in it; it selects no labels")
	}, func(ctx context.Context, c *call) error {
		var list batch.JobList
		if err := c.client.List(ctx, &list, c.inNamespace()); err != nil {
			return fmt.Errorf("list jobs: %w", err)
		}
		var jobs []batch.Job
		for i := range list.Items {
			j := &list.Items[i]
			if (queue == "" || j.Spec.Queue == queue) && (scheduler == "" || j.Spec.SchedulerName == scheduler) && strings.Contains(j.Name, part) {
				jobs = append(jobs, *j)
			}
		}
		if len(jobs) == 0 && c.output == "table" {
			c.say("No jobs found.")
			return nil
		}
		titles := []string{"Name", "Creation", "Phase", "JobType", "Replicas", "Min", "Pending", "Running", "Succeeded", "Failed", "Unknown", "RetryCount"}
		if c.everywhere {
			titles = append([]string{"Namespace"}, titles...)
		}
		return emit(c, jobs, titles, func(j *batch.Job) []string {
			kind := j.Labels[jobType]
			if kind == "" {
				kind = "Batch"
			}
			s := &j.Status
			row := []string{j.Name, day(j.CreationTimestamp), dash(string(s.State.Phase)), kind}
			for _, n := range []int32{replicas(j), j.Spec.MinAvailable, s.Pending, s.Running, s.Succeeded, s.Failed, s.Unknown, s.RetryCount} {
				row = append(row, fmt.Sprint(n))
			}
			if c.everywhere {
				row = append([]string{j.Namespace}, row...)
			}
			return row
		})
	})
}

// replicas is how many pods a job has in all.
func replicas(j *batch.Job) (n int32) {
	for i := range j.Spec.Tasks {
		n += j.Spec.Tasks[i].Replicas
	}
	return n
}

func (o Options) jobDelete(swapped bool) *cobra.Command {
	return o.command("delete", "Delete a job, and its pods with it", swapped, func(c *call, fs *pflag.FlagSet) {
		c.bindNamespace(fs)
		c.bindName(fs, "job")
	}, func(ctx context.Context, c *call) error {
		if err := c.needName("job", listJobs); err != nil {
			return err
		}
		j := &batch.Job{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: c.name}}
		if err := c.client.Delete(ctx, j, client.PropagationPolicy(metav1.DeletePropagationBackground)); err != nil {
			return c.notFound(err, "job", listJobs+" -n "+c.namespace)
		}
		c.say("delete job %s successfully", c.name)
		return nil
	})
}

// verb is a command that a controller obeys.
type verb struct {
	use, short string
	action     bus.Action
}

var (
	suspend = verb{"suspend", "End a job's pods until it is resumed", bus.AbortJobAction}
	resume  = verb{"resume", "Start a job again that was suspended", bus.ResumeJobAction}
)

func (o Options) jobCommand(v verb, swapped bool) *cobra.Command {
	return o.command(v.use, v.short, swapped, func(c *call, fs *pflag.FlagSet) {
		c.bindNamespace(fs)
		c.bindName(fs, "job")
	}, func(ctx context.Context, c *call) error {
		var j batch.Job
		if err := c.get(ctx, &j, "job", listJobs+" -n "+c.namespace); err != nil {
			return err
		}
		if err := c.send(ctx, v.action, &j, batch.GroupVersion.WithKind("Job"), c.namespace); err != nil {
			return err
		}
		c.say("%s job %s successfully", v.use, c.name)
		return nil
	})
}

// send makes a Command that has a controller do something to the target. The Command belongs to the target, and goes with it if nobody obeys
// before. It does not hold up the target's deletion, so that its user needs no right to the target's finalizers.
func (c *call) send(ctx context.Context, action bus.Action, target client.Object, kind schema.GroupVersionKind, namespace string) error {
	ref := metav1.OwnerReference{APIVersion: kind.GroupVersion().String(), Kind: kind.Kind, Name: target.GetName(), UID: target.GetUID(), Controller: new(true)}
	command := &bus.Command{
		ObjectMeta: metav1.ObjectMeta{
			GenerateName: target.GetName() + "-" + strings.ToLower(string(action)) + "-", Namespace: namespace, OwnerReferences: []metav1.OwnerReference{ref},
		},
		Action: string(action), TargetObject: &ref,
	}
	if err := c.client.Create(ctx, command); err != nil {
		return fmt.Errorf("create the Command %s: %w", action, err)
	}
	return nil
}
