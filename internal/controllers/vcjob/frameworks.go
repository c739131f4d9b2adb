package vcjob

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	batch "github.com/muster-scheduler/muster/api/volcano/batch/v1alpha1"
	"github.com/muster-scheduler/muster/api/volcano/keys"
)

// tensorflow tells TensorFlow's processes of each other.
type tensorflow struct {
	job                         *batch.Job
	ps, worker, chief, evaluate string
	port                        int
}

func newTensorFlow(j *batch.Job, args []string) (plugin, error) {
	p := &tensorflow{job: j}
	return p, flags(args, func(f *flag.FlagSet) {
		f.StringVar(&p.ps, "ps", "ps", "")
		f.StringVar(&p.worker, "worker", "worker", "")
		f.StringVar(&p.chief, "chief", "chief", "")
		f.StringVar(&p.evaluate, "evaluator", "evaluator", "")
		f.IntVar(&p.port, "port", 2222, "")
	})
}

// tfConfig is what TensorFlow reads from TF_CONFIG.
type tfConfig struct {
	Cluster tfCluster `json:"cluster"`
	Task    tfTask    `json:"task"`
}

type tfCluster struct {
	PS        []string `json:"ps,omitempty"`
	Worker    []string `json:"worker,omitempty"`
	Chief     []string `json:"chief,omitempty"`
	Evaluator []string `json:"evaluator,omitempty"`
}

type tfTask struct {
	Type  string `json:"type"`
	Index int    `json:"index"`
}

func (p *tensorflow) onPod(pod *corev1.Pod, t *batch.TaskSpec, index int) {
	role := map[string]string{p.ps: "ps", p.worker: "worker", p.chief: "chief", p.evaluate: "evaluator"}[t.Name]
	if role == "" || len(p.job.Spec.Tasks) == 1 && p.job.Spec.Tasks[0].Replicas == 1 {
		return
	}
	at := func(task string) []string {
		all := addresses(p.job, taskOf(p.job, task))
		for i := range all {
			all[i] += ":" + strconv.Itoa(p.port)
		}
		return all
	}
	text, err := json.Marshal(tfConfig{tfCluster{at(p.ps), at(p.worker), at(p.chief), at(p.evaluate)}, tfTask{role, index}})
	if err != nil {
		panic(fmt.Sprintf("texts do not encode: %v", err))
	}
	setEnv(containers(pod, false), corev1.EnvVar{Name: "TF_CONFIG", Value: string(text)})
}

func (*tensorflow) objects() []object { return nil }

// pytorch tells PyTorch's processes of their master and their ranks.
type pytorch struct {
	job            *batch.Job
	master, worker string
	port           int
	wait           bool
	timeout        int
	image          string
}

func newPyTorch(j *batch.Job, args []string) (plugin, error) {
	p := &pytorch{job: j}
	return p, flags(args, func(f *flag.FlagSet) {
		f.StringVar(&p.master, "master", "master", "")
		f.StringVar(&p.worker, "worker", "worker", "")
		f.IntVar(&p.port, "port", 23456, "")
		f.BoolVar(&p.wait, "wait-master-enabled", false, "")
		f.IntVar(&p.timeout, "wait-master-timeout", 300, "")
		f.StringVar(&p.image, "wait-master-image", "busybox:1.36.1", "")
	})
}

func (p *pytorch) onPod(pod *corev1.Pod, t *batch.TaskSpec, index int) {
	master, worker := taskOf(p.job, p.master), taskOf(p.job, p.worker)
	if master == nil || t.Name != p.master && t.Name != p.worker {
		return
	}
	world, rank := int(master.Replicas), index
	if worker != nil {
		world += int(worker.Replicas)
	}
	if t.Name == p.worker {
		rank = index + 1
	}
	at, port := address(p.job, master, 0), strconv.Itoa(p.port)
	all := containers(pod, false)
	openPort(all, "pytorchjob-port", int32(p.port)) //nolint:gosec // the API server judges it
	setEnv(
		all, corev1.EnvVar{Name: "MASTER_ADDR", Value: at}, corev1.EnvVar{Name: "MASTER_PORT", Value: port},
		corev1.EnvVar{Name: "WORLD_SIZE", Value: strconv.Itoa(world)}, corev1.EnvVar{Name: "RANK", Value: strconv.Itoa(rank)},
	)
	if p.wait && t.Name == p.worker {
		script := fmt.Sprintf("n=0; until nc -z -w 2 %s %s; do n=$((n+2)); [ $n -ge %d ] && exit 1; sleep 2; done", at, port, p.timeout)
		pod.Spec.InitContainers = append(pod.Spec.InitContainers, corev1.Container{Name: "wait-for-master", Image: p.image, Command: []string{"sh", "-c", script}})
	}
}

func (*pytorch) objects() []object { return nil }

// mpi tells an MPI launcher where its workers are.
type mpi struct {
	job            *batch.Job
	master, worker string
	port           int
}

func newMPI(j *batch.Job, args []string) (plugin, error) {
	p := &mpi{job: j}
	return p, flags(args, func(f *flag.FlagSet) {
		f.StringVar(&p.master, "master", "master", "")
		f.StringVar(&p.worker, "worker", "worker", "")
		f.IntVar(&p.port, "port", sshPort, "")
	})
}

func (p *mpi) onPod(pod *corev1.Pod, t *batch.TaskSpec, _ int) {
	if t.Name == p.master {
		setEnv(containers(pod, true), corev1.EnvVar{Name: "MPI_HOST", Value: strings.Join(addresses(p.job, taskOf(p.job, p.worker)), ",")})
	}
	openPort(containers(pod, false), "mpijob-port", int32(p.port)) //nolint:gosec // the API server judges it
}

func (*mpi) objects() []object { return nil }

// hcclRank tells Huawei's collective library a pod's rank.
type hcclRank struct {
	job            *batch.Job
	master, worker string
}

func newHCCLRank(j *batch.Job, args []string) (plugin, error) {
	p := &hcclRank{job: j}
	return p, flags(args, func(f *flag.FlagSet) {
		f.StringVar(&p.master, "master", "master", "")
		f.StringVar(&p.worker, "worker", "worker", "")
	})
}

func (p *hcclRank) onPod(pod *corev1.Pod, t *batch.TaskSpec, index int) {
	rank := ""
	for _, c := range containers(pod, false) {
		for i := range c.Env {
			if c.Env[i].Name == "RANK" && rank == "" {
				rank = c.Env[i].Value
			}
		}
	}
	switch master := taskOf(p.job, p.master); {
	case rank != "":
	case t.Name == p.master:
		rank = strconv.Itoa(index)
	case t.Name == p.worker && master != nil:
		rank = strconv.Itoa(int(master.Replicas) + index)
	case t.Name == p.worker:
		rank = strconv.Itoa(index)
	default:
		return
	}
	pod.Annotations["hccl/rankIndex"] = rank
}

func (*hcclRank) objects() []object { return nil }

// ray starts Ray's head and workers.
type ray struct {
	job                                          *batch.Job
	head, headContainer, worker, workerContainer string
	port, dashboard, client                      int
}

func newRay(j *batch.Job, args []string) (plugin, error) {
	p := &ray{job: j}
	err := flags(args, func(f *flag.FlagSet) {
		f.StringVar(&p.head, "head", "head", "")
		f.StringVar(&p.headContainer, "headContainer", "head", "")
		f.StringVar(&p.worker, "worker", "worker", "")
		f.StringVar(&p.workerContainer, "workerContainer", "worker", "")
		f.IntVar(&p.port, "port", 6379, "")
		f.IntVar(&p.dashboard, "dashboardPort", 8265, "")
		f.IntVar(&p.client, "clientPort", 10001, "")
	})
	if err == nil && taskOf(j, p.head) == nil {
		err = errors.New("there is no task " + p.head + ", which is to be Ray's head")
	}
	return p, err
}

// ports are the head's, by name.
func (p *ray) ports() []corev1.ServicePort {
	of := func(name string, n int) corev1.ServicePort {
		return corev1.ServicePort{Name: name, Port: int32(n), TargetPort: intstr.FromInt(n)} //nolint:gosec // the API server judges it
	}
	return []corev1.ServicePort{of("gcs", p.port), of("dashboard", p.dashboard), of("client-server", p.client)}
}

func (p *ray) onPod(pod *corev1.Pod, t *batch.TaskSpec, _ int) {
	for _, c := range containers(pod, false) {
		switch {
		case t.Name == p.head && c.Name == p.headContainer:
			c.Command = []string{"sh", "-c", fmt.Sprintf(
				"ray start --head --block --dashboard-host=0.0.0.0 --port=%d --dashboard-port=%d --ray-client-server-port=%d", p.port, p.dashboard, p.client)}
			for _, port := range p.ports() {
				openPort([]*corev1.Container{c}, port.Name, port.Port)
			}
		case t.Name == p.worker && c.Name == p.workerContainer:
			c.Command = []string{"sh", "-c", fmt.Sprintf("ray start --block --address=%s:%d", address(p.job, taskOf(p.job, p.head), 0), p.port)}
		}
	}
}

func (p *ray) objects() []object {
	return []object{{Object: &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: p.job.Namespace, Name: p.job.Name + "-head-svc", OwnerReferences: ownedBy(p.job)},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeClusterIP, Ports: p.ports(),
			Selector: map[string]string{keys.JobName: p.job.Name, keys.JobNamespace: p.job.Namespace, keys.TaskSpec: p.head},
		},
	}}}
}
