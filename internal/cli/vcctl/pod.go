package vcctl

import (
	"cmp"
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"

	"github.com/muster-scheduler/muster/api/volcano/keys"
)

func (o Options) podList() *cobra.Command {
	var job, queue string
	return o.command("list", "List pods", false, func(c *call, fs *pflag.FlagSet) {
		c.bindNamespace(fs)
		c.bindEverywhere(fs)
		c.bindOutput(fs)
		fs.StringVarP(&job, "job", "j", "", "only those of the `job`")
		fs.StringVarP(&queue, "queue", "q", "", "only those of the `queue`")
	}, func(ctx context.Context, c *call) error {
		var list corev1.PodList
		if err := c.client.List(ctx, &list, c.inNamespace()); err != nil {
			return fmt.Errorf("list pods: %w", err)
		}
		var pods []corev1.Pod
		for i := range list.Items {
			p := &list.Items[i]
			if (job == "" || p.Labels[keys.JobName] == job) && (queue == "" || queueOf(p) == queue) {
				pods = append(pods, *p)
			}
		}
		if len(pods) == 0 && c.output == "table" {
			c.say("No pods found.")
			return nil
		}
		titles := []string{"Name", "Ready", "Status", "Restart", "Age"}
		if c.everywhere {
			titles = append([]string{"Namespace"}, titles...)
		}
		return emit(c, pods, titles, func(p *corev1.Pod) []string {
			ready, restarts := 0, int32(0)
			for i := range p.Status.ContainerStatuses {
				if s := &p.Status.ContainerStatuses[i]; s.Ready {
					ready++
				}
				restarts += p.Status.ContainerStatuses[i].RestartCount
			}
			row := []string{p.Name, fmt.Sprintf("%d/%d", ready, len(p.Spec.Containers)), podStatus(p), fmt.Sprint(restarts), o.age(p.CreationTimestamp)}
			if c.everywhere {
				row = append([]string{p.Namespace}, row...)
			}
			return row
		})
	})
}

// queueOf is the queue that a pod names: a job's pod by label, a bare one by annotation.
func queueOf(p *corev1.Pod) string {
	return cmp.Or(p.Labels[keys.JobQueueName], p.Annotations[keys.JobQueueName], p.Annotations[keys.QueueName])
}

// podStatus is the word that says most about a pod: that it is being ended, what stops a container, or its phase.
func podStatus(p *corev1.Pod) string {
	if p.DeletionTimestamp != nil {
		return "Terminating"
	}
	word := cmp.Or(p.Status.Reason, string(p.Status.Phase), "Pending")
	for i := range p.Status.InitContainerStatuses {
		if reason := stopped(&p.Status.InitContainerStatuses[i]); reason != "" && reason != "Completed" {
			return "Init:" + reason
		}
	}
	for i := range p.Status.ContainerStatuses {
		if reason := stopped(&p.Status.ContainerStatuses[i]); reason != "" && (reason != "Completed" || p.Status.Phase == corev1.PodSucceeded) {
			word = reason
		}
	}
	return word
}

// stopped is why a container does not run; "" if it does, or nobody says.
func stopped(s *corev1.ContainerStatus) string {
	switch {
	case s.State.Waiting != nil:
		return s.State.Waiting.Reason
	case s.State.Terminated != nil:
		return s.State.Terminated.Reason
	}
	return ""
}
