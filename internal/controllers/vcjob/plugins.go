package vcjob

import (
	"flag"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	batch "github.com/muster-scheduler/muster/api/volcano/batch/v1alpha1"
)

// plugin is a job plugin: what it adds to pods, and what it has made for a Job.
type plugin interface {
	// onPod adds to a task's pod.
	onPod(p *corev1.Pod, t *batch.TaskSpec, index int)
	// objects are made once for the Job, in its namespace and owned by it.
	objects() []object
}

// object is something that is made for a Job unless it exists.
type object struct {
	client.Object
	// keys says that it is the Secret of plugin ssh, which lacks a pair of keys yet.
	keys bool
	// refresh is a JSON patch for one that exists and is the Job's; nil: it is left as it is.
	refresh []byte
}

// known are the plugins, in the order in which they see a pod: who reads what another wrote comes after it. Volcano's order is random.
var known = []struct {
	name string
	make func(*batch.Job, []string) (plugin, error)
}{
	{"env", newEnv}, {"mpi", newMPI}, {"pytorch", newPyTorch}, {"ray", newRay}, {"ssh", newSSH}, {"svc", newSVC}, {"tensorflow", newTensorFlow}, {"hcclrank", newHCCLRank},
}

// Plugins are the names of the job plugins there are.
func Plugins() (names []string) {
	for i := range known {
		names = append(names, known[i].name)
	}
	return names
}

// jobPlugins are those of a Job.
type jobPlugins struct {
	names []string
	list  []plugin
}

// pluginsOf reads a Job's plugins and their arguments; the error names what is wrong.
func pluginsOf(j *batch.Job) (jobPlugins, error) {
	var ps jobPlugins
	for i := range known {
		args, asked := j.Spec.Plugins[known[i].name]
		if !asked {
			continue
		}
		p, err := known[i].make(j, args)
		if err != nil {
			return jobPlugins{}, fmt.Errorf("spec.plugins[%s]: %w", known[i].name, err)
		}
		ps.names, ps.list = append(ps.names, known[i].name), append(ps.list, p)
	}
	for _, name := range slices.Sorted(maps.Keys(j.Spec.Plugins)) {
		if !slices.Contains(ps.names, name) {
			return jobPlugins{}, fmt.Errorf("spec.plugins[%s]: there is no such plugin, but %s", name, strings.Join(Plugins(), ", "))
		}
	}
	return ps, nil
}

func (ps jobPlugins) onPod(p *corev1.Pod, t *batch.TaskSpec, index int) {
	for _, plugin := range ps.list {
		plugin.onPod(p, t, index)
	}
}

// objects has made what the plugins need and the status does not say was made, and the hosts kept up to date.
func (ps jobPlugins) objects(e *entry, p *plan, is *batch.JobStatus) {
	for i, plugin := range ps.list {
		there := is.ControlledResources["plugin-"+ps.names[i]] == ps.names[i]
		if there && e.job.Generation <= 1 {
			continue // as it is at nearly all looks
		}
		for _, o := range plugin.objects() {
			stale := o.refresh != nil && e.hosts != string(o.refresh) && (!there || e.job.Generation > 1) // one of generation 1 was never changed
			if o.refresh != nil {
				p.hosts = string(o.refresh)
			}
			if !there || stale {
				p.objects = append(p.objects, o)
			}
		}
		made(is, "plugin-"+ps.names[i], ps.names[i])
	}
}

// flags reads a plugin's arguments, which have the form of Go's flags.
func flags(args []string, declare func(*flag.FlagSet)) error {
	f := flag.NewFlagSet("", flag.ContinueOnError)
	f.SetOutput(io.Discard)
	declare(f)
	if err := f.Parse(args); err != nil {
		return fmt.Errorf("arguments %q: %w", args, err)
	}
	return nil
}

// containers are a pod's, those that run first included if first says so.
func containers(p *corev1.Pod, first bool) (out []*corev1.Container) {
	for i := range p.Spec.Containers {
		out = append(out, &p.Spec.Containers[i])
	}
	if first {
		for i := range p.Spec.InitContainers {
			out = append(out, &p.Spec.InitContainers[i])
		}
	}
	return out
}

// setEnv adds variables to containers.
func setEnv(to []*corev1.Container, vars ...corev1.EnvVar) {
	for _, c := range to {
		c.Env = append(c.Env, vars...)
	}
}

// openPort opens a port of containers by name, unless one of this number is open.
func openPort(to []*corev1.Container, name string, port int32) {
	for _, c := range to {
		if !slices.ContainsFunc(c.Ports, func(p corev1.ContainerPort) bool { return p.ContainerPort == port }) {
			c.Ports = append(c.Ports, corev1.ContainerPort{Name: name, ContainerPort: port})
		}
	}
}

// taskOf is a Job's task by name; nil if there is none.
func taskOf(j *batch.Job, name string) *batch.TaskSpec {
	for i := range j.Spec.Tasks {
		if j.Spec.Tasks[i].Name == name {
			return &j.Spec.Tasks[i]
		}
	}
	return nil
}

// host is the address of a task's pod: a name in the Job's headless Service. A template may give both parts.
func host(j *batch.Job, t *batch.TaskSpec, index int) (name, domain string) {
	if name = t.Template.Spec.Hostname; name == "" {
		name = podName(j.Name, t.Name, index)
	}
	if domain = t.Template.Spec.Subdomain; domain == "" {
		domain = j.Name
	}
	return name, domain
}

// address is host as one word.
func address(j *batch.Job, t *batch.TaskSpec, index int) string {
	name, domain := host(j, t, index)
	return name + "." + domain
}

// addresses are those of a task's pods: one if the template gives a name, which all have.
func addresses(j *batch.Job, t *batch.TaskSpec) []string {
	if t == nil {
		return nil
	}
	var out []string
	for i := range int(t.Replicas) {
		out = append(out, address(j, t, i))
		if t.Template.Spec.Hostname != "" {
			break
		}
	}
	return out
}
