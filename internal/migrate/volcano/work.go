package volcano

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	batch "github.com/muster-scheduler/muster/api/volcano/batch/v1alpha1"
	bus "github.com/muster-scheduler/muster/api/volcano/bus/v1alpha1"
	config "github.com/muster-scheduler/muster/api/volcano/config/v1alpha1"
	flow "github.com/muster-scheduler/muster/api/volcano/flow/v1alpha1"
	"github.com/muster-scheduler/muster/api/volcano/keys"
	scheduling "github.com/muster-scheduler/muster/api/volcano/scheduling/v1beta1"
)

// What pods carry that nothing of Muster's reads.
const (
	agentScheduler = "agent-scheduler"
	qosLevel       = "volcano.sh/qos-level"
	fitType        = "volcano.sh/resource-strategy-scoring-type"
	fitWeight      = "volcano.sh/resource-strategy-weight"
)

// longestCronName is how long a CronJob's name may be.
const longestCronName = 52

// ofWork are the differences that are seen from what users submit.
func ofWork() []difference {
	return []difference{
		{row: "voted-anew", find: groups(func(_ *Objects, g *scheduling.PodGroup) bool {
			return g.Status.Phase == scheduling.PodGroupInqueue && g.Status.Running == 0
		})},
		{row: "no-minimum", find: groups(func(_ *Objects, g *scheduling.PodGroup) bool {
			return g.Spec.MinResources == nil || len(*g.Spec.MinResources) == 0
		})},
		{row: "task-minimums", find: groups(func(_ *Objects, g *scheduling.PodGroup) bool {
			return len(g.Spec.SubGroupPolicy) > 0 && slices.ContainsFunc(slices.Collect(maps.Keys(g.Spec.MinTaskMember)), func(task string) bool {
				return !slices.ContainsFunc(g.Spec.SubGroupPolicy, func(s scheduling.SubGroupPolicySpec) bool { return s.Name == task })
			})
		})},
		{row: "revocable-zones", next: "set the annotation on the pods", find: deafZones},
		{row: "kept-pods", find: pods(func(p *corev1.Pod) bool {
			return p.Annotations[keys.Preemptable] == "false" || p.Labels[keys.Preemptable] == "false"
		})},
		{row: "queue-gates", next: "the chart's volcano.queueGates=true: without it nobody takes the gate away", find: pods(func(p *corev1.Pod) bool {
			return slices.ContainsFunc(p.Spec.SchedulingGates, func(g corev1.PodSchedulingGate) bool { return g.Name == keys.QueueAllocationGate })
		})},
		{row: "fit-annotations", find: pods(func(p *corev1.Pod) bool { return p.Annotations[fitType] != "" || p.Annotations[fitWeight] != "" })},
		{row: "numa", find: numaPolicies},
		{row: "devices", next: "whole devices, or parts of them as Muster gives them out: docs/concepts/gpu-sharing.md", find: pods(asksForDevices)},
		{row: "agent-scheduler", next: "keep vc-agent-scheduler for them, apart by NodeShards; or schedulerName volcano", find: func(o *Objects, f *found) {
			for i := range o.Pods {
				if p := &o.Pods[i]; p.Spec.SchedulerName == agentScheduler {
					f.add("", "Pod", p.Namespace, p.Name)
				}
			}
		}},
		{row: "colocation", find: colocation},
		{row: "foreign-kinds", find: func(o *Objects, f *found) {
			for _, x := range o.Others {
				if _, ours := x.(*config.ColocationConfiguration); !ours {
					f.add("", brief(x.GetObjectKind().GroupVersionKind().Kind), x.GetNamespace(), x.GetName())
				}
			}
		}},
		{row: "policy-pending", find: answers(bus.PodPendingEvent)},
		{row: "policy-unknown", find: answers(bus.JobUnknownEvent)},
		{row: "policy-updated", find: answers(bus.JobUpdatedEvent)},
		{row: "no-duration", find: jobs(func(s *batch.JobSpec) bool {
			return slices.ContainsFunc(policies(s), func(p batch.LifecyclePolicy) bool {
				if p.Timeout == nil {
					return false
				}
				_, err := p.Timeout.Value()
				return err != nil
			})
		})},
		{row: "commands", find: func(o *Objects, f *found) {
			for i := range o.Commands {
				f.add("", "Command", o.Commands[i].Namespace, o.Commands[i].Name)
			}
		}},
		{row: "cron-zone", next: "spec.timeZone, and a shorter name", find: func(o *Objects, f *found) {
			for i := range o.CronJobs {
				if c := &o.CronJobs[i]; strings.Contains(c.Spec.Schedule, "TZ") || len(c.Name) > longestCronName {
					f.add("", "CronJob", c.Namespace, c.Name)
				}
			}
		}},
		{row: "cron-history", find: func(o *Objects, f *found) {
			for i := range o.Jobs {
				j := &o.Jobs[i]
				for _, r := range j.OwnerReferences {
					if r.Kind == "CronJob" && j.Status.State.Phase == batch.Terminated {
						f.add("", "Job", j.Namespace, j.Name)
					}
				}
			}
		}},
		{row: "flow-probes", find: func(o *Objects, f *found) {
			for i := range o.Flows {
				x := &o.Flows[i]
				if slices.ContainsFunc(x.Spec.Flows, func(part flow.Flow) bool {
					return part.Patch != nil || part.DependsOn != nil && part.DependsOn.Probe != nil
				}) {
					f.add("", "JobFlow", x.Namespace, x.Name)
				}
			}
		}},
	}
}

func groups(is func(*Objects, *scheduling.PodGroup) bool) func(*Objects, *found) {
	return func(o *Objects, f *found) {
		for i := range o.Groups {
			if g := &o.Groups[i]; is(o, g) {
				f.add("", "PodGroup", g.Namespace, g.Name)
			}
		}
	}
}

// pods are those of Volcano's scheduler that have not ended.
func pods(is func(*corev1.Pod) bool) func(*Objects, *found) {
	return func(o *Objects, f *found) {
		whose := o.schedulers()
		for i := range o.Pods {
			p := &o.Pods[i]
			if ended := p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed; whose[p.Spec.SchedulerName] && !ended && is(p) {
				f.add("", "Pod", p.Namespace, p.Name)
			}
		}
	}
}

// jobs are Jobs, and what CronJobs and flows make them of.
func jobs(is func(*batch.JobSpec) bool) func(*Objects, *found) {
	return func(o *Objects, f *found) {
		for i := range o.Jobs {
			if j := &o.Jobs[i]; is(&j.Spec) {
				f.add("", "Job", j.Namespace, j.Name)
			}
		}
		for i := range o.CronJobs {
			if c := &o.CronJobs[i]; is(&c.Spec.JobTemplate.Spec) {
				f.add("", "CronJob", c.Namespace, c.Name)
			}
		}
		for i := range o.Templates {
			if x := &o.Templates[i]; is(&x.Spec) {
				f.add("", "JobTemplate", x.Namespace, x.Name)
			}
		}
	}
}

// deafZones finds PodGroups that say that they are revocable while none of their pods does.
func deafZones(o *Objects, f *found) {
	said := map[types.NamespacedName]bool{}
	for i := range o.Pods {
		if p := &o.Pods[i]; p.Annotations[keys.RevocableZone] != "" {
			said[types.NamespacedName{Namespace: p.Namespace, Name: p.Annotations[keys.GroupName]}] = true
		}
	}
	for i := range o.Groups {
		if g := &o.Groups[i]; g.Annotations[keys.RevocableZone] != "" && !said[types.NamespacedName{Namespace: g.Namespace, Name: g.Name}] {
			f.add("", "PodGroup", g.Namespace, g.Name)
		}
	}
}

func numaPolicies(o *Objects, f *found) {
	is := func(policy batch.NumaPolicy) bool { return policy != "" && policy != batch.NumaPolicyNone }
	jobs(func(s *batch.JobSpec) bool {
		return slices.ContainsFunc(s.Tasks, func(t batch.TaskSpec) bool { return is(t.TopologyPolicy) })
	})(o, f)
	pods(func(p *corev1.Pod) bool { return is(batch.NumaPolicy(p.Annotations[keys.NumaTopologyPolicy])) })(o, f)
}

// policies are those of a Job and its tasks.
func policies(s *batch.JobSpec) []batch.LifecyclePolicy {
	all := slices.Clone(s.Policies)
	for i := range s.Tasks {
		all = append(all, s.Tasks[i].Policies...)
	}
	return all
}

// answers finds Jobs with a policy for an event.
func answers(event bus.Event) func(*Objects, *found) {
	return jobs(func(s *batch.JobSpec) bool {
		return slices.ContainsFunc(policies(s), func(p batch.LifecyclePolicy) bool { return p.Event == event || slices.Contains(p.Events, event) })
	})
}

// asksForDevices says that a pod asks for a part of a device of Volcano's plugin deviceshare, or for a device of Ascend's.
func asksForDevices(p *corev1.Pod) bool {
	asks := func(list corev1.ResourceList) bool {
		for name := range list { // order: any will do
			if s := string(name); strings.HasPrefix(s, "volcano.sh/vgpu-") || strings.HasPrefix(s, "volcano.sh/gpu-") || strings.HasPrefix(s, "huawei.com/Ascend") {
				return true
			}
		}
		return false
	}
	return slices.ContainsFunc(slices.Concat(p.Spec.InitContainers, p.Spec.Containers), func(c corev1.Container) bool { return asks(c.Resources.Limits) || asks(c.Resources.Requests) })
}

func colocation(o *Objects, f *found) {
	for _, x := range o.Others {
		if c, ours := x.(*config.ColocationConfiguration); ours {
			f.add("", "ColocationConfiguration", c.Namespace, c.Name)
		}
	}
	for i := range o.Pods {
		if p := &o.Pods[i]; p.Annotations[qosLevel] != "" {
			f.add("", "Pod", p.Namespace, p.Name)
		}
	}
}

// sorted are the keys of a map, in order.
func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
