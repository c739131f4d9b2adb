package vcjob

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	batch "github.com/muster-scheduler/muster/api/volcano/batch/v1alpha1"
	"github.com/muster-scheduler/muster/api/volcano/keys"
	scheduling "github.com/muster-scheduler/muster/api/volcano/scheduling/v1beta1"
)

// work does the work of the phase that a Job is in.
func (b *book) work(e *entry, own []*member, p *plan, now time.Time, o rules) {
	j := e.job
	for _, m := range own {
		if m.pod.DeletionTimestamp == nil && e.victim(m) && len(p.kill) < batchSize {
			p.kill = append(p.kill, m.pod)
		}
	}
	is := e.counted(own)
	if works(j.Status.State.Phase) {
		if is.MinAvailable = j.Spec.MinAvailable; is.State.Phase != batch.Running {
			is.State.Phase = batch.Pending
		}
		is.State.Reason, is.State.Message = "", ""
		b.sync(e, own, p, is, now, o)
		is.State.Phase = settled(j, is)
	} else {
		if g := e.group(); g != nil && aim(&j.Status.State).action == "" && !e.adopted(own) {
			p.group = &groupWrite{group: g, remove: true}
		}
		if len(p.kill) == 0 {
			is.State.Phase = settled(j, is)
		}
		kept(&j.Status, is)
	}
	if until := b.standBack(e, is, now); !until.IsZero() {
		p.again = sooner(p.again, until)
		return
	}
	p.status = stamped(&j.Status, is, now)
}

// adopted says whether a Job restarts of which nobody says how, as Volcano's controller leaves them, and pods of its present version are
// there: a restart of some pods, which keeps the PodGroup.
func (e *entry) adopted(own []*member) bool {
	return e.job.Status.State.Phase == batch.Restarting && e.job.Status.State.Reason == "" &&
		slices.ContainsFunc(own, func(m *member) bool { return m.version >= e.job.Status.Version })
}

// sync makes what a Job lacks, and ends what it has too much.
func (b *book) sync(e *entry, own []*member, p *plan, is *batch.JobStatus, now time.Time, o rules) {
	j := e.job
	because := func(reason, format string, args ...any) {
		is.State.Reason, is.State.Message = reason, fmt.Sprintf(format, args...)
		if j.Status.State.Reason != reason || j.Status.State.Message != is.State.Message {
			p.tell = append(p.tell, note{warning: true, reason: reason, message: is.State.Message})
		}
	}
	queue := b.queues[j.Spec.Queue]
	if queue == nil {
		because(reasonQueue, "queue %s does not exist", j.Spec.Queue)
		return
	}
	if p.patch = named(j, len(queue.Spec.ExtendClusters) > 0); p.patch != nil {
		return // its answer is looked at
	}
	plugins, err := pluginsOf(j)
	if err != nil {
		because(reasonPlugin, "%v", err)
		p.wrong = err
		return
	}
	if missing := b.volumes(j, p, is); missing != "" {
		because(reasonClaim, "%s", missing)
		return
	}
	plugins.objects(e, p, is)
	g := e.group()
	p.group = b.groupFor(j, g)
	if until, made := e.awaits(groupName(j), now); g == nil && made {
		p.group, p.again = nil, sooner(p.again, until)
	}
	if g != nil && g.Status.Phase != "" && g.Status.Phase != scheduling.PodGroupPending {
		b.missing(e, own, p, plugins, g.Name, now, o)
	}
	if c := waitsFor(g); c != nil && settled(j, is) == batch.Pending && !(c.Reason == scheduling.NotEnoughPodsReason && e.enough(own, p)) {
		because(reasonGroup, "%s: %s", c.Reason, c.Message)
	}
	e.surplus(own, p)
}

// enough says whether the gang has its minimum of pods by now, or is getting them: that it lacks pods is what the scheduler says while they are being made.
func (e *entry) enough(own []*member, p *plan) bool {
	return len(own)+len(p.make)+len(e.made) >= int(e.job.Spec.MinAvailable)
}

// waitsFor is the newest condition of a group that says what it waits for; nil if none does.
func waitsFor(g *scheduling.PodGroup) (newest *scheduling.PodGroupCondition) {
	if g == nil {
		return nil
	}
	for i := range g.Status.Conditions {
		c := &g.Status.Conditions[i]
		if c.Status == corev1.ConditionTrue && c.Type != scheduling.PodGroupScheduled && (newest == nil || newest.LastTransitionTime.Before(&c.LastTransitionTime)) {
			newest = c
		}
	}
	return newest
}

// surplus ends pods that no task has, or that are beyond their task's replicas.
func (e *entry) surplus(own []*member, p *plan) {
	most := map[string]int64{}
	for i := range e.job.Spec.Tasks {
		most[e.job.Spec.Tasks[i].Name] = int64(e.job.Spec.Tasks[i].Replicas)
	}
	for _, m := range own {
		if m.pod.DeletionTimestamp == nil && (m.index < 0 || int64(m.index) >= most[m.task]) && len(p.kill) < batchSize && !slices.Contains(p.kill, m.pod) {
			p.kill = append(p.kill, m.pod)
		}
	}
}

// missing makes pods of tasks that need not wait for others. A name that any pod has, be it another Job's, is not made. Those of the highest priority are made first: a gang
// that may start with few pods is placed as they come, and who comes last finds no room.
func (b *book) missing(e *entry, own []*member, p *plan, plugins jobPlugins, group string, now time.Time, o rules) {
	j := e.job
	for _, t := range b.byPriority(&j.Spec) {
		if !ready(j, t, own) {
			continue
		}
		for n := range int(t.Replicas) {
			if len(p.make) == batchSize {
				return
			}
			name := podName(j.Name, t.Name, n)
			if e.pods[name] != nil {
				continue
			}
			if until, made := e.awaits(name, now); made {
				p.again = sooner(p.again, until)
				continue
			}
			p.make = append(p.make, podOf(j, t, n, plugins, group, o))
		}
	}
}

// ready says whether a task's pods may be made: those that it depends on are there. Any is enough only of several that it names.
func ready(j *batch.Job, t *batch.TaskSpec, own []*member) bool {
	d := t.DependsOn
	if d == nil || len(d.Name) == 0 {
		return true
	}
	some := d.Iteration == batch.IterationAny && len(d.Name) > 1
	for _, name := range d.Name {
		is := up(j, name, own)
		if is && some {
			return true
		}
		if !is && !some {
			return false
		}
	}
	return !some
}

// up says whether so many pods of a task as it needs have succeeded, or run with all containers ready. A task that does not exist never is.
func up(j *batch.Job, name string, own []*member) bool {
	for i := range j.Spec.Tasks {
		t := &j.Spec.Tasks[i]
		if t.Name != name {
			continue
		}
		if t.MinAvailable == nil {
			return true
		}
		var n int32
		for _, m := range own {
			if m.task == name && m.pod.DeletionTimestamp == nil && (m.pod.Status.Phase == corev1.PodSucceeded || m.pod.Status.Phase == corev1.PodRunning && allReady(m.pod)) {
				n++
			}
		}
		return n >= *t.MinAvailable
	}
	return false
}

func allReady(p *corev1.Pod) bool {
	for i := range p.Status.ContainerStatuses {
		if !p.Status.ContainerStatuses[i].Ready {
			return false
		}
	}
	return true
}

// patchOp is an operation of a JSON patch.
type patchOp struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
}

// named is the patch that gives claims that are to be made their names, and says of a Job that its queue has other clusters; nil: all is so.
func named(j *batch.Job, forwards bool) []byte {
	var ops []patchOp
	for i := range j.Spec.Volumes {
		if v := &j.Spec.Volumes[i]; v.VolumeClaimName == "" && v.VolumeClaim != nil {
			ops = append(ops, patchOp{"add", fmt.Sprintf("/spec/volumes/%d/volumeClaimName", i), j.Name + "-pvc-" + letters(string(j.UID), fmt.Sprint(i))})
		}
	}
	if forwards && j.Annotations[keys.JobForwarding] != "true" {
		if j.Annotations == nil {
			ops = append(ops, patchOp{"add", "/metadata/annotations", map[string]string{keys.JobForwarding: "true"}})
		} else {
			ops = append(ops, patchOp{"add", "/metadata/annotations/volcano.sh~1job-forwarding", "true"})
		}
	}
	if ops == nil {
		return nil
	}
	body, err := json.Marshal(append([]patchOp{{"test", "/metadata/resourceVersion", j.ResourceVersion}}, ops...))
	if err != nil {
		panic(fmt.Sprintf("a patch of text does not encode: %v", err))
	}
	return body
}
