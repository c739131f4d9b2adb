package vcjob

import (
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"sigs.k8s.io/controller-runtime/pkg/client"

	batch "github.com/muster-scheduler/muster/api/volcano/batch/v1alpha1"
	bus "github.com/muster-scheduler/muster/api/volcano/bus/v1alpha1"
	"github.com/muster-scheduler/muster/api/volcano/keys"
	scheduling "github.com/muster-scheduler/muster/api/volcano/scheduling/v1beta1"
)

// key names a Job.
type key = types.NamespacedName

// book is what the controller knows.
type book struct {
	jobs    map[key]*entry
	queues  map[string]*scheduling.Queue
	classes map[string]*schedulingv1.PriorityClass
	claims  map[key]bool
	making  time.Time // when a pod was made last
}

// entry is what is known of a Job: it, and what is there in its name, which may come first or stay longer.
type entry struct {
	job      *batch.Job // nil: there is none
	pods     map[string]*member
	groups   map[string]*scheduling.PodGroup
	commands map[types.UID]*bus.Command

	// The rest is no copy of what the API server has.

	evicted  map[string]*request     // pods that others deleted, by name
	updates  int                     // how often the spec has changed in what may change
	answered int                     // how many of the updates are answered
	failedAt map[types.UID]time.Time // when a pod was first seen failed that does not say when it did
	refused  int                     // how many times in turn the API server has refused what was to be written
	hosts    string                  // what the ConfigMap of plugin svc was last made to say
	made     map[string]time.Time    // when pods and PodGroups were made that were not seen yet, by name
	trails   time.Time               // since when only the status's counts are not written; zero if they are
}

// member is a pod of a Job, with what its annotations say.
type member struct {
	pod              *corev1.Pod
	owner            types.UID
	task, partition  string
	index            int
	version, retries int32
}

func newBook() *book {
	return &book{
		jobs: map[key]*entry{}, queues: map[string]*scheduling.Queue{}, classes: map[string]*schedulingv1.PriorityClass{}, claims: map[key]bool{},
	}
}

func (b *book) entry(k key) *entry {
	e := b.jobs[k]
	if e == nil {
		e = &entry{
			pods: map[string]*member{}, groups: map[string]*scheduling.PodGroup{}, commands: map[types.UID]*bus.Command{},
			evicted: map[string]*request{}, failedAt: map[types.UID]time.Time{}, made: map[string]time.Time{},
		}
		b.jobs[k] = e
	}
	return e
}

// tidy forgets an entry that says nothing.
func (b *book) tidy(k key) {
	if e := b.jobs[k]; e != nil && e.job == nil && len(e.pods)+len(e.groups)+len(e.commands) == 0 {
		delete(b.jobs, k)
	}
}

// jobSeen takes in a Job, or an answer to a write of it. What is older than what is known is overlooked.
func (b *book) jobSeen(j *batch.Job, gone bool) {
	k := client.ObjectKeyFromObject(j)
	e := b.entry(k)
	defer b.tidy(k)
	had := e.job
	switch {
	case gone && (had == nil || had.UID != j.UID):
		return
	case gone:
		e.forget()
	case had == nil || had.UID != j.UID:
		e.forget()
		e.job = j
	case !older(j, had):
		if !sameChangeable(&had.Spec, &j.Spec) {
			e.updates++
		}
		e.job = j
	}
}

// jobWritten takes in the API server's answer to a write of a Job, unless the Job is gone meanwhile.
func (b *book) jobWritten(j *batch.Job) {
	if e := b.jobs[client.ObjectKeyFromObject(j)]; e != nil && e.job != nil && e.job.UID == j.UID {
		b.jobSeen(j, false)
	}
}

// forget drops what is known of one Job, when it is gone, and perhaps another has its name. Its pods and groups stay: they are there.
func (e *entry) forget() {
	e.job, e.updates, e.answered, e.refused, e.hosts, e.trails = nil, 0, 0, 0, "", time.Time{}
	clear(e.evicted)
	clear(e.failedAt)
	clear(e.made)
}

// unseen is how long what was made may take to be seen before it is made again, should it have come and gone unnoticed.
const unseen = 10 * time.Second

// awaits says until when nothing more is made of a name, because it was made and is not seen yet; false: it is to be made.
func (e *entry) awaits(name string, now time.Time) (until time.Time, yes bool) {
	at, made := e.made[name]
	until = at.Add(unseen)
	if made && !now.Before(until) {
		delete(e.made, name)
		return time.Time{}, false
	}
	return until, made
}

// older compares versions of one object. Those of API servers that cannot be compared are taken as they come.
func older(a, b client.Object) bool {
	order, err := resourceversion.CompareResourceVersion(a.GetResourceVersion(), b.GetResourceVersion())
	return err == nil && order < 0
}

// sameChangeable compares what users may change of a Job: its minimum and priority, and the tasks' pods and minimums.
func sameChangeable(a, b *batch.JobSpec) bool {
	if a.MinAvailable != b.MinAvailable || a.PriorityClassName != b.PriorityClassName || len(a.Tasks) != len(b.Tasks) {
		return false
	}
	for i := range a.Tasks {
		x, y := &a.Tasks[i], &b.Tasks[i]
		if x.Replicas != y.Replicas || !equality.Semantic.DeepEqual(x.MinAvailable, y.MinAvailable) {
			return false
		}
	}
	return true
}

// ownerJob is the Job that controls an object; false if none does.
func ownerJob(o client.Object) (key, types.UID, bool) {
	c := metav1.GetControllerOf(o)
	if c == nil || c.Kind != "Job" || c.APIVersion != batch.GroupVersion.String() {
		return key{}, "", false
	}
	return key{Namespace: o.GetNamespace(), Name: c.Name}, c.UID, true
}

// podSeen takes in a pod, and says whose it is. Pods are a Job's if it controls them, and they say which task's they are and under which
// version they were made.
func (b *book) podSeen(p *corev1.Pod, gone bool) (key, bool) {
	k, uid, ok := ownerJob(p)
	if !ok {
		return key{}, false
	}
	version, err := strconv.ParseInt(p.Annotations[keys.JobVersion], 10, 32)
	if err != nil || p.Annotations[keys.JobName] == "" || p.Annotations[keys.TaskSpec] == "" {
		if e := b.jobs[k]; e != nil && e.pods[p.Name] != nil && e.pods[p.Name].pod.UID == p.UID { // somebody took them away
			delete(e.pods, p.Name)
			b.tidy(k)
		}
		return k, true
	}
	m := &member{pod: p, owner: uid, task: p.Annotations[keys.TaskSpec], partition: p.Labels[keys.PartitionID], version: int32(version)}
	if n, err := strconv.ParseInt(p.Annotations[keys.JobRetryCount], 10, 32); err == nil {
		m.retries = int32(n)
	}
	m.index = indexOf(p)
	e := b.entry(k)
	defer b.tidy(k)
	delete(e.made, p.Name)
	if !gone {
		if had := e.pods[p.Name]; had == nil || had.pod.UID != p.UID || !older(p, had.pod) {
			e.pods[p.Name] = m
		}
		return k, true
	}
	if had := e.pods[p.Name]; had == nil || had.pod.UID != p.UID {
		return k, true
	}
	delete(e.pods, p.Name)
	delete(e.failedAt, p.UID)
	if e.job != nil && e.job.UID == uid && p.Annotations[keys.OutOfSync] != "true" {
		e.evicted[p.Name] = &request{event: bus.PodEvictedEvent, task: m.task, pod: p.Name, partition: m.partition, version: m.version}
	}
	return k, true
}

// indexOf is a pod's number in its task: the annotation's, or the end of its name; -1 for none.
func indexOf(p *corev1.Pod) int {
	text := p.Annotations[keys.TaskIndex]
	if text == "" {
		text = p.Name[strings.LastIndexByte(p.Name, '-')+1:]
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		return -1
	}
	return n
}

// groupSeen takes in a PodGroup, and says whose it is.
func (b *book) groupSeen(g *scheduling.PodGroup, gone bool) (key, bool) {
	k, _, ok := ownerJob(g)
	if !ok {
		return key{}, false
	}
	e := b.entry(k)
	defer b.tidy(k)
	delete(e.made, g.Name)
	if gone {
		delete(e.groups, g.Name)
	} else {
		e.groups[g.Name] = g
	}
	return k, true
}

// commandSeen takes in a Command, and says whom it is for.
func (b *book) commandSeen(c *bus.Command, gone bool) (key, bool) {
	t := c.TargetObject
	if t == nil || t.Kind != "Job" || t.APIVersion != batch.GroupVersion.String() {
		return key{}, false
	}
	k := key{Namespace: c.Namespace, Name: t.Name}
	e := b.entry(k)
	defer b.tidy(k)
	if gone {
		delete(e.commands, c.UID)
	} else {
		e.commands[c.UID] = c
	}
	return k, true
}

// queueSeen takes in a queue, and returns the Jobs that it may matter to.
func (b *book) queueSeen(q *scheduling.Queue, gone bool) (due []key) {
	had := b.queues[q.Name]
	if gone {
		delete(b.queues, q.Name)
	} else {
		b.queues[q.Name] = q
		if had != nil && (len(had.Spec.ExtendClusters) > 0) == (len(q.Spec.ExtendClusters) > 0) {
			return nil
		}
	}
	for k, e := range b.jobs { // order: they are looked at each for itself
		if e.job != nil && e.job.Spec.Queue == q.Name {
			due = append(due, k)
		}
	}
	return due
}

// claimSeen takes in a claim, and returns the Jobs that wait for it.
func (b *book) claimSeen(c *corev1.PersistentVolumeClaim, gone bool) (due []key) {
	k := client.ObjectKeyFromObject(c)
	if gone {
		delete(b.claims, k)
		return nil
	}
	if b.claims[k] {
		return nil
	}
	b.claims[k] = true
	for k, e := range b.jobs { // order: they are looked at each for itself
		if e.job != nil && k.Namespace == c.Namespace && e.job.Status.State.Reason == reasonClaim {
			due = append(due, k)
		}
	}
	return due
}

// classSeen takes in a priority class: PodGroups are compared with it when their Job is looked at next.
func (b *book) classSeen(c *schedulingv1.PriorityClass, gone bool) {
	if gone {
		delete(b.classes, c.Name)
	} else {
		b.classes[c.Name] = c
	}
}
