package vcctl

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"sigs.k8s.io/controller-runtime/pkg/client"

	batch "github.com/muster-scheduler/muster/api/volcano/batch/v1alpha1"
	"github.com/muster-scheduler/muster/internal/cli/form"
)

func (o Options) jobView() *cobra.Command {
	return o.command("view", "Describe a job, with its events", false, func(c *call, fs *pflag.FlagSet) {
		c.bindNamespace(fs)
		c.bindName(fs, "job")
		c.bindOutput(fs)
	}, func(ctx context.Context, c *call) error {
		var j batch.Job
		if err := c.get(ctx, &j, "job", listJobs+" -n "+c.namespace); err != nil {
			return err
		}
		if c.output != "table" {
			return emitOne(c, &j, c.output)
		}
		var events corev1.EventList
		err := c.client.List(ctx, &events, client.InNamespace(c.namespace), client.MatchingFieldsSelector{Selector: fields.OneTermEqualSelector("involvedObject.name", c.name)})
		if err != nil {
			return fmt.Errorf("list the job's events: %w", err)
		}
		events.Items = slices.DeleteFunc(events.Items, func(e corev1.Event) bool {
			return e.InvolvedObject.Kind != "Job" || j.UID != "" && e.InvolvedObject.UID != j.UID // another object of the name, or an earlier one
		})
		slices.SortStableFunc(events.Items, func(a, b corev1.Event) int { return a.LastTimestamp.Compare(b.LastTimestamp.Time) })
		c.say("%s", strings.TrimRight(describe(o, &j, events.Items), "\n"))
		return nil
	})
}

// describe tells a job and its events.
func describe(o Options, j *batch.Job, events []corev1.Event) string {
	var b strings.Builder
	line := func(indent int, name string, value any) {
		if name != "" {
			name += ":"
		}
		fmt.Fprintln(&b, strings.TrimRight(fmt.Sprintf("%s%-*s %v", strings.Repeat("  ", indent), 18-2*indent, name, value), " "))
	}
	pairs := func(name string, m map[string]string) {
		if len(m) == 0 {
			line(0, name, "<none>")
			return
		}
		for _, k := range slices.Sorted(maps.Keys(m)) {
			line(0, name, k+"="+m[k])
			name = ""
		}
	}
	s := &j.Status
	line(0, "Name", j.Name)
	line(0, "Namespace", j.Namespace)
	pairs("Labels", j.Labels)
	pairs("Annotations", j.Annotations)
	line(0, "API Version", batch.GroupVersion.String())
	line(0, "Kind", "Job")
	line(0, "Created", fmt.Sprintf("%s (%s ago)", day(j.CreationTimestamp), o.age(j.CreationTimestamp)))
	line(0, "Queue", j.Spec.Queue)
	line(0, "Scheduler", j.Spec.SchedulerName)
	line(0, "Priority Class", dash(j.Spec.PriorityClassName))
	line(0, "Min Available", j.Spec.MinAvailable)
	line(0, "Max Retry", j.Spec.MaxRetry)
	line(0, "Plugins", dash(strings.Join(slices.Sorted(maps.Keys(j.Spec.Plugins)), ", ")))
	b.WriteString("Tasks:\n")
	for i := range j.Spec.Tasks {
		t := &j.Spec.Tasks[i]
		line(1, "Name", t.Name)
		line(2, "Replicas", t.Replicas)
		for k := range t.Template.Spec.Containers {
			ct := &t.Template.Spec.Containers[k]
			line(2, "Container", ct.Name)
			line(2, "Image", ct.Image)
			line(2, "Requests", list(ct.Resources.Requests))
			line(2, "Limits", list(ct.Resources.Limits))
		}
	}
	b.WriteString("Status:\n")
	line(1, "Phase", dash(string(s.State.Phase)))
	if s.State.Reason != "" || s.State.Message != "" {
		line(1, "Why", strings.TrimSpace(s.State.Reason+" "+s.State.Message))
	}
	line(1, "Pods", fmt.Sprintf("%d pending, %d running, %d succeeded, %d failed, %d terminating, %d unknown", s.Pending, s.Running, s.Succeeded, s.Failed, s.Terminating, s.Unknown))
	line(1, "Retries", s.RetryCount)
	line(1, "Version", s.Version)
	if len(events) == 0 {
		line(0, "Events", "<none>")
		return b.String()
	}
	b.WriteString("Events:\n")
	rows := make([][]string, len(events))
	for i := range events {
		e := &events[i]
		rows[i] = []string{e.Type, e.Reason, o.age(e.LastTimestamp), dash(e.Source.Component), e.Message}
	}
	b.WriteString(form.Table([]form.Column{{Title: "Type"}, {Title: "Reason"}, {Title: "Age"}, {Title: "From"}, {Title: "Message", Wrap: true}}, rows))
	return b.String()
}

// list writes amounts in the order of their names.
func list(r corev1.ResourceList) string {
	var out []string
	for name, q := range r {
		out = append(out, string(name)+"="+q.String())
	}
	slices.Sort(out)
	return dash(strings.Join(out, ", "))
}
