package vcctl

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	batch "github.com/muster-scheduler/muster/api/volcano/batch/v1alpha1"
	"github.com/muster-scheduler/muster/api/volcano/keys"
)

// run is what `job run` makes a job of, where there is no file.
type run struct {
	file, image, requests, limits, scheduler, command string
	replicas, minimum                                 int32
}

func (o Options) jobRun(swapped bool) *cobra.Command {
	var r run
	return o.command("run", "Run a job of one task, or the one of a file", swapped, func(c *call, fs *pflag.FlagSet) {
		c.bindNamespace(fs)
		c.bindName(fs, "job")
		const each = "what each pod %s, such as cpu=2,memory=1Gi"
		fs.StringVarP(&r.file, "filename", "f", "", "YAML `file` of a Job; the flags that describe one are without effect then")
		fs.StringVarP(&r.image, "image", "i", "busybox", "the container's `image`")
		fs.StringVarP(&r.command, "command", "c", "", "`line` for the container's shell (sh -c); empty: what the image runs")
		fs.Int32VarP(&r.replicas, "replicas", "r", 1, "how many pods")
		fs.Int32VarP(&r.minimum, "min", "m", 1, "how many of them start together")
		fs.StringVarP(&r.requests, "requests", "R", "cpu=1000m,memory=100Mi", fmt.Sprintf(each, "requests"))
		fs.StringVarP(&r.limits, "limits", "L", "cpu=1000m,memory=100Mi", fmt.Sprintf(each, "may use at most"))
		fs.StringVarP(&r.scheduler, "scheduler", "S", keys.SchedulerName, "the `scheduler`")
	}, func(ctx context.Context, c *call) error {
		job, err := r.job(c)
		if err != nil {
			return err
		}
		if err := c.client.Create(ctx, job); err != nil {
			return fmt.Errorf("create job %s: %w", job.Name, err)
		}
		c.say("run job %s successfully", job.Name)
		return nil
	})
}

// job makes the job.
func (r *run) job(c *call) (*batch.Job, error) {
	if r.file != "" {
		jobs, err := read[batch.Job](c, r.file, "Job", batch.GroupVersion.String())
		if err != nil {
			return nil, err
		}
		if len(jobs) > 1 {
			return nil, fmt.Errorf("%s: there are %d Jobs in it, and one is run at a time: kubectl create -f makes all", r.file, len(jobs))
		}
		job := &jobs[0]
		if job.Namespace == "" {
			job.Namespace = c.namespace
		}
		if c.Flags().Changed("namespace") && job.Namespace != c.namespace {
			return nil, fmt.Errorf("%s: the Job is of namespace %s, and --namespace is %s", r.file, job.Namespace, c.namespace)
		}
		return job, nil
	}
	if c.name == "" {
		return nil, errors.New("the job needs a name (--name NAME), or a file that has one (--filename FILE)")
	}
	if r.replicas < 1 {
		return nil, fmt.Errorf("--replicas is %d; it must be 1 or more", r.replicas)
	}
	if r.minimum < 0 || r.minimum > r.replicas {
		return nil, fmt.Errorf("--min is %d; it must be between 0 and --replicas, which is %d", r.minimum, r.replicas)
	}
	requests, err := amounts("requests", r.requests)
	if err != nil {
		return nil, err
	}
	limits, err := amounts("limits", r.limits)
	if err != nil {
		return nil, err
	}
	container := corev1.Container{Name: c.name, Image: r.image, Resources: corev1.ResourceRequirements{Requests: requests, Limits: limits}}
	if r.command != "" {
		container.Command = []string{"sh", "-c", r.command}
	}
	return &batch.Job{
		ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: c.name},
		Spec: batch.JobSpec{
			SchedulerName: r.scheduler, MinAvailable: r.minimum, Queue: keys.DefaultQueue,
			Tasks: []batch.TaskSpec{{
				Name: "default0", Replicas: r.replicas, // the name that admission gives a first task without one
				Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{container}}},
			}},
		},
	}, nil
}

// amounts reads name=quantity,….
func amounts(flag, text string) (corev1.ResourceList, error) {
	if text == "" {
		return nil, nil
	}
	out := corev1.ResourceList{}
	for part := range strings.SplitSeq(text, ",") {
		name, value, ok := strings.Cut(part, "=")
		q, err := resource.ParseQuantity(value)
		if !ok || name == "" || err != nil || q.Sign() < 0 {
			return nil, fmt.Errorf("--%s has %q; it must be name=quantity, such as cpu=500m", flag, part)
		}
		if _, twice := out[corev1.ResourceName(name)]; twice {
			return nil, fmt.Errorf("--%s names %s twice", flag, name)
		}
		out[corev1.ResourceName(name)] = q
	}
	return out, nil
}
