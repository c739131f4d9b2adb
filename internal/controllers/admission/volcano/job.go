package volcano

import (
	"flag"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	batch "github.com/muster-scheduler/muster/api/volcano/batch/v1alpha1"
	"github.com/muster-scheduler/muster/api/volcano/keys"
)

const (
	// defaultMaxRetry is how often a Job, and a task's containers, are restarted that do not say.
	defaultMaxRetry = 3
	// shown bounds how much of a user's text is repeated in an error, told how many errors are told of an object.
	shown = 64
	told  = 16
)

// Fill is a field that admission fills in: a JSON pointer, and its value.
type Fill struct {
	Path  string
	Value any
}

// plugins are the job plugins that there are, and those that each needs besides.
var plugins = map[string][]string{
	"env": nil, "svc": nil, "ssh": nil, "hcclrank": nil, "tensorflow": {"svc"}, "pytorch": {"svc"}, "ray": {"svc"}, "mpi": {"svc", "ssh"},
}

// DefaultJob returns what a Job that is to be created does not say itself. To apply it and ask again yields nothing.
func DefaultJob(j *batch.Job, scheduler string) (out []Fill) {
	s := &j.Spec
	if len(s.Tasks) == 0 {
		return nil // it is refused, and perhaps has no spec to put anything into
	}
	fill := func(lacks bool, path string, value any) {
		if lacks {
			out = append(out, Fill{path, value})
		}
	}
	fill(s.Queue == "", "/spec/queue", keys.DefaultQueue)
	fill(s.SchedulerName == "", "/spec/schedulerName", scheduler)
	fill(s.MaxRetry == 0, "/spec/maxRetry", defaultMaxRetry)
	sum := int64(0)
	for i := range s.Tasks {
		t, at := &s.Tasks[i], fmt.Sprintf("/spec/tasks/%d", i)
		fill(t.Name == "", at+"/name", fmt.Sprintf("default%d", i))
		fill(t.MaxRetry == 0, at+"/maxRetry", defaultMaxRetry)
		if spec := &t.Template.Spec; len(spec.Containers) > 0 { // or there may be no spec to put it into
			fill(spec.HostNetwork && spec.DNSPolicy == "", at+"/template/spec/dnsPolicy", corev1.DNSClusterFirstWithHostNet)
		}
		least := int64(t.Replicas)
		if p := t.PartitionPolicy; p != nil && p.MinPartitions > 0 {
			least = int64(p.MinPartitions) * int64(p.PartitionSize)
		}
		least = min(least, math.MaxInt32) // more is refused: it is more than the task's replicas
		fill(t.MinAvailable == nil, at+"/minAvailable", least)
		sum += int64(ptr.Deref(t.MinAvailable, int32(least)))
	}
	fill(s.MinAvailable == 0 && sum > 0, "/spec/minAvailable", min(sum, math.MaxInt32))
	lacking := map[string][]string{}
	for name := range s.Plugins { // order: the result is a map
		for _, needed := range plugins[name] {
			if _, has := s.Plugins[needed]; !has {
				lacking[needed] = []string{}
			}
		}
	}
	if len(lacking) > 0 {
		maps.Copy(lacking, s.Plugins)
		out = append(out, Fill{"/spec/plugins", lacking})
	}
	return out
}

// TemplateCheck returns what an API server would find wrong with pods of a template, at a path. It changes nothing.
type TemplateCheck func(*corev1.PodTemplateSpec, *field.Path) field.ErrorList

// ValidateJob returns what is wrong with a Job that is to be created, as DefaultJob leaves it, among the queues that there are. check judges its pod templates; nil takes them all.
func ValidateJob(j *batch.Job, queues Forest, check TemplateCheck) (wrong field.ErrorList) {
	spec, s := field.NewPath("spec"), &j.Spec
	tasks := spec.Child("tasks")
	if len(s.Tasks) == 0 {
		wrong = append(wrong, field.Required(tasks, "a Job needs at least one task"))
	}
	wrong = append(wrong, names(j)...)
	wrong = append(wrong, tiers(s.NetworkTopology, spec.Child("networkTopology"))...)
	wrong = append(wrong, policies(s.Policies, spec.Child("policies"))...)
	wrong = append(wrong, amounts(s)...)
	for i := range s.Tasks {
		wrong = append(wrong, task(&s.Tasks[i], tasks.Index(i), check)...)
	}
	wrong = append(wrong, pluginsOf(s, spec.Child("plugins"))...)
	wrong = append(wrong, volumes(s.Volumes, spec.Child("volumes"))...)
	wrong = append(wrong, order(s.Tasks, tasks)...)
	wrong = append(wrong, queues.takesJobs(s.Queue, spec.Child("queue"))...)
	return few(wrong)
}

// names checks those of the Job, its tasks and their pods.
func names(j *batch.Job) (out field.ErrorList) {
	name := j.Name
	if name == "" {
		name = j.GenerateName + "xxxxx" // as long as what the API server makes of it
	}
	for _, problem := range validation.IsQualifiedName(name) {
		out = append(out, field.Invalid(field.NewPath("metadata", "name"), brief(name), problem))
	}
	seen := map[string]bool{}
	for i := range j.Spec.Tasks {
		at, task := field.NewPath("spec", "tasks").Index(i).Child("name"), j.Spec.Tasks[i].Name
		if seen[task] {
			out = append(out, field.Duplicate(at, brief(task)))
			continue
		}
		seen[task] = true
		if pod := fmt.Sprintf("%s-%s-%d", name, task, i); len(validation.IsQualifiedName(pod)) > 0 {
			out = append(out, field.Invalid(at, brief(task), fmt.Sprintf("makes pods called %s: %s", brief(pod), strings.Join(validation.IsQualifiedName(pod), "; "))))
		}
	}
	return out
}

// amounts checks how many pods of tasks and of the Job there are, and start together: what an update may change.
func amounts(s *batch.JobSpec) (out field.ErrorList) {
	spec := field.NewPath("spec")
	sum := int64(0)
	for i := range s.Tasks {
		t, at := &s.Tasks[i], spec.Child("tasks").Index(i)
		sum += int64(t.Replicas)
		if t.Replicas < 0 {
			out = append(out, field.Invalid(at.Child("replicas"), t.Replicas, "must not be negative"))
		}
		if t.MinAvailable != nil {
			switch least := *t.MinAvailable; {
			case least < 0:
				out = append(out, field.Invalid(at.Child("minAvailable"), least, "must not be negative"))
			case least > t.Replicas:
				out = append(out, field.Invalid(at.Child("minAvailable"), least, fmt.Sprintf("must be at most replicas, which is %d", t.Replicas)))
			}
		}
		out = append(out, partitions(t, at.Child("partitionPolicy"))...)
	}
	switch {
	case s.MinAvailable < 0:
		out = append(out, field.Invalid(spec.Child("minAvailable"), s.MinAvailable, "must not be negative"))
	case int64(s.MinAvailable) > sum:
		out = append(out, field.Invalid(spec.Child("minAvailable"), s.MinAvailable, fmt.Sprintf("must be at most the sum of the tasks' replicas, which is %d", sum)))
	}
	return out
}

// partitions checks how a task is divided.
func partitions(t *batch.TaskSpec, at *field.Path) (out field.ErrorList) {
	p := t.PartitionPolicy
	if p == nil {
		return nil
	}
	out = tiers(p.NetworkTopology, at.Child("networkTopology"))
	if p.TotalPartitions <= 0 {
		out = append(out, field.Invalid(at.Child("totalPartitions"), p.TotalPartitions, "must be above 0"))
	}
	if p.PartitionSize <= 0 {
		out = append(out, field.Invalid(at.Child("partitionSize"), p.PartitionSize, "must be above 0"))
	}
	if all := int64(p.TotalPartitions) * int64(p.PartitionSize); all != int64(t.Replicas) {
		out = append(out, field.Invalid(at, fmt.Sprintf("%d partitions of %d", p.TotalPartitions, p.PartitionSize), fmt.Sprintf("must make up replicas, which is %d", t.Replicas)))
	}
	if least := int64(p.MinPartitions) * int64(p.PartitionSize); p.MinPartitions > 0 && t.MinAvailable != nil && int64(*t.MinAvailable) != least {
		out = append(out, field.Invalid(at.Child("minPartitions"), p.MinPartitions, fmt.Sprintf("of %d pods each are %d pods, but minAvailable is %d", p.PartitionSize, least, *t.MinAvailable)))
	}
	return out
}

// task checks what else a task says.
func task(t *batch.TaskSpec, at *field.Path, check TemplateCheck) (out field.ErrorList) {
	out = policies(t.Policies, at.Child("policies"))
	if check != nil {
		out = append(out, check(&t.Template, at.Child("template"))...)
	}
	if t.TopologyPolicy == "" || t.TopologyPolicy == batch.NumaPolicyNone {
		return out
	}
	spec := &t.Template.Spec
	for _, list := range []struct {
		name       string
		containers []corev1.Container
	}{{"initContainers", spec.InitContainers}, {"containers", spec.Containers}} {
		for i := range list.containers {
			r := &list.containers[i].Resources
			cpu, said := r.Requests[corev1.ResourceCPU]
			if !said {
				cpu = r.Limits[corev1.ResourceCPU]
			}
			if cpu.Sign() <= 0 || cpu.MilliValue()%1000 != 0 {
				out = append(out, field.Invalid(at.Child("template", "spec", list.name).Index(i).Child("resources", "requests").Key("cpu"), cpu.String(),
					fmt.Sprintf("must be a whole number above 0: topologyPolicy is %s", brief(string(t.TopologyPolicy)))))
			}
		}
	}
	return out
}

// tiers checks a network topology.
func tiers(n *batch.NetworkTopologySpec, at *field.Path) field.ErrorList {
	if n == nil || n.HighestTierAllowed == nil || n.HighestTierName == "" {
		return nil
	}
	return field.ErrorList{field.Forbidden(at.Child("highestTierName"), "must not be set together with highestTierAllowed")}
}

// pluginsOf checks the plugins of a Job.
func pluginsOf(s *batch.JobSpec, at *field.Path) (out field.ErrorList) {
	for _, name := range slices.Sorted(maps.Keys(s.Plugins)) {
		if _, known := plugins[name]; !known {
			out = append(out, field.NotSupported(at.Key(brief(name)), brief(name), slices.Sorted(maps.Keys(plugins))))
		}
	}
	args, mpi := s.Plugins["mpi"]
	if !mpi {
		return out
	}
	master := masterOf(args)
	if !slices.ContainsFunc(s.Tasks, func(t batch.TaskSpec) bool { return t.Name == master }) {
		out = append(out, field.Invalid(at.Key("mpi"), brief(master), "must be the name of a task: that of the master"))
	}
	return out
}

// masterOf is the task that plugin mpi is told to take for the master.
func masterOf(args []string) string {
	fs := flag.NewFlagSet("mpi", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	master := fs.String("master", "master", "")
	fs.String("worker", "worker", "")
	fs.Int("port", 22, "")
	_ = fs.Parse(args) // what cannot be read leaves what came before it
	return *master
}

// volumes checks the claims that a Job's pods mount.
func volumes(list []batch.VolumeSpec, at *field.Path) (out field.ErrorList) {
	seen := map[string]bool{}
	for i := range list {
		v, here := &list[i], at.Index(i)
		switch {
		case v.MountPath == "":
			out = append(out, field.Required(here.Child("mountPath"), "a volume is mounted somewhere"))
		case seen[v.MountPath]:
			out = append(out, field.Duplicate(here.Child("mountPath"), brief(v.MountPath)))
		}
		seen[v.MountPath] = true
		switch named := v.VolumeClaimName != ""; {
		case named && v.VolumeClaim != nil:
			out = append(out, field.Forbidden(here.Child("volumeClaim"), "must not be set together with volumeClaimName"))
		case !named && v.VolumeClaim == nil:
			out = append(out, field.Required(here, "one of volumeClaim and volumeClaimName is needed"))
		case named:
			for _, problem := range validation.IsDNS1123Subdomain(v.VolumeClaimName) {
				out = append(out, field.Invalid(here.Child("volumeClaimName"), brief(v.VolumeClaimName), problem))
			}
		}
	}
	return out
}

// order checks that tasks wait for tasks that there are, and not for each other. It takes time in proportion to what is written.
func order(tasks []batch.TaskSpec, at *field.Path) (out field.ErrorList) {
	graph := make(map[string][]string, len(tasks))
	for i := range tasks {
		graph[tasks[i].Name] = nil
	}
	for i := range tasks {
		if tasks[i].DependsOn == nil {
			continue
		}
		for k, name := range tasks[i].DependsOn.Name {
			if _, there := graph[name]; !there {
				out = append(out, field.NotFound(at.Index(i).Child("dependsOn", "name").Index(k), brief(name)))
				continue
			}
			graph[tasks[i].Name] = append(graph[tasks[i].Name], name)
		}
	}
	if loop := loopIn(graph); loop != nil {
		out = append(out, field.Invalid(at, chain(loop), "tasks wait for each other by dependsOn"))
	}
	return out
}

// ValidateJobUpdate returns what is wrong with a Job that is to replace old. Of the spec may change how many pods there are and start together, and the priority class; the controller
// writes the names of claims that it makes.
func ValidateJobUpdate(j, old *batch.Job) (wrong field.ErrorList) {
	spec := field.NewPath("spec")
	if len(j.Spec.Tasks) != len(old.Spec.Tasks) {
		wrong = append(wrong, field.Forbidden(spec.Child("tasks"), fmt.Sprintf("there were %d tasks, and none may be added or taken away", len(old.Spec.Tasks))))
	}
	wrong = append(wrong, amounts(&j.Spec)...)
	wrong = append(wrong, tiers(j.Spec.NetworkTopology, spec.Child("networkTopology"))...)
	if len(j.Spec.Tasks) != len(old.Spec.Tasks) {
		return few(wrong)
	}
	is, was := masked(&j.Spec), masked(&old.Spec)
	for i := range is.Tasks {
		for _, name := range changed(&is.Tasks[i], &was.Tasks[i]) {
			wrong = append(wrong, field.Forbidden(spec.Child("tasks").Index(i).Child(name), frozen))
		}
	}
	is.Tasks, was.Tasks = nil, nil
	for _, name := range changed(is, was) {
		wrong = append(wrong, field.Forbidden(spec.Child(name), frozen))
	}
	return few(wrong)
}

const frozen = "must not change: of a Job may change minAvailable, priorityClassName, and replicas and minAvailable of tasks"

// masked is a spec without what may change.
func masked(s *batch.JobSpec) *batch.JobSpec {
	out := s.DeepCopy()
	out.MinAvailable, out.PriorityClassName = 0, ""
	for i := range out.Tasks {
		out.Tasks[i].Replicas, out.Tasks[i].MinAvailable = 0, nil
	}
	for i := range out.Volumes {
		if out.Volumes[i].VolumeClaim != nil {
			out.Volumes[i].VolumeClaimName = ""
		}
	}
	return out
}

// changed are the fields in which two structs of one type differ, by their names in JSON. Amounts count, and not how they are written.
func changed[T any](is, was *T) (out []string) {
	for name, pair := range fieldsOf(is, was) { // order: sorted below
		if !equality.Semantic.DeepEqual(pair[0], pair[1]) {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// few are the first of many errors.
func few(wrong field.ErrorList) field.ErrorList {
	if len(wrong) > told {
		return append(wrong[:told:told], field.TooMany(field.NewPath(""), len(wrong), told))
	}
	return wrong
}

// brief cuts a user's text to a length fit for an error.
func brief(s string) string {
	if len(s) > shown {
		return strings.ToValidUTF8(s[:shown], "") + "…"
	}
	return s
}
