package operator

import (
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Kind is one row of the table: how an operator turns an object into pods.
type Kind struct {
	// Resource and Kind name the API; its CRD is Resource.Resource + "." + Resource.Group.
	Resource schema.GroupVersionResource
	Kind     string
	// Replicas is the path to a map from replica type to {replicas, restartPolicy, template}.
	Replicas []string
	// Leaders are the replica types whose end is the end of the job, in order of preference. When the object has
	// none of them, its first worker leads, and the job ends when all its workers have.
	Leaders []string
	// Worker is the replica type of ordinary members.
	Worker string
	// Labels are put on every pod. {job}, {type} and {index} stand for the object's name, the lower-case replica
	// type, and the index within it.
	Labels map[string]string
	// LeaderLabels are put on the leading pods as well.
	LeaderLabels map[string]string
	// JobLabel and Selector find the pods again: the label that holds the object's name, and one label of Labels
	// that pods of no other kind carry.
	JobLabel, Selector string
	// RestartPolicy is used where the object gives none.
	RestartPolicy string
	// Make, if set, plays the operator alone; of the other fields only Resource and Kind count then.
	Make func(*Maker)
	// Finish completes a pod that has its name, labels and owner.
	Finish func(m Member, pod *corev1.Pod)
}

// Member is one pod's place in its job.
type Member struct {
	Job    string         // name of the object
	Type   string         // replica type as written in the object
	Index  int            // within the type
	Counts map[string]int // replicas by type
}

// PodName is how the kubeflow operators name a pod: <job>-<type>-<index> in lower case.
func (m Member) PodName() string {
	return m.Job + "-" + strings.ToLower(m.Type) + "-" + strconv.Itoa(m.Index)
}

// Table returns the kinds that are played.
func Table() []Kind {
	return append(makers(),
		kubeflow("PyTorchJob", "pytorchReplicaSpecs", "OnFailure", []string{"Master"}, pyTorch),
		kubeflow("TFJob", "tfReplicaSpecs", "Never", []string{"Chief", "Master"}, nil),
		kubeflow("XGBoostJob", "xgbReplicaSpecs", "Never", []string{"Master"}, nil),
		kubeflow("PaddleJob", "paddleReplicaSpecs", "OnFailure", []string{"Master"}, nil),
		kubeflow("JAXJob", "jaxReplicaSpecs", "Never", nil, nil),
	)
}

// kubeflow is the common shape of the kinds of kubeflow's training-operator v1.8.
func kubeflow(kind, replicas, restart string, leaders []string, finish func(Member, *corev1.Pod)) Kind {
	const label = "training.kubeflow.org/"
	name := strings.ToLower(kind)
	return Kind{
		Resource:      schema.GroupVersionResource{Group: "kubeflow.org", Version: "v1", Resource: name + "s"},
		Kind:          kind,
		Replicas:      []string{"spec", replicas},
		Leaders:       leaders,
		Worker:        "Worker",
		RestartPolicy: restart,
		Labels: map[string]string{
			label + "operator-name": name + "-controller",
			label + "job-name":      "{job}",
			label + "replica-type":  "{type}",
			label + "replica-index": "{index}",
		},
		LeaderLabels: map[string]string{label + "job-role": "master"},
		JobLabel:     label + "job-name",
		Selector:     label + "operator-name=" + name + "-controller",
		Finish:       finish,
	}
}

// pyTorch adds what torch.distributed reads, and the init container in which workers wait for their master. The
// latter matters to a scheduler: its requests count towards the pod's.
func pyTorch(m Member, pod *corev1.Pod) {
	const port = "23456"
	total := 0
	for _, n := range m.Counts {
		total += n
	}
	_, hasMaster := m.Counts["Master"]
	master := Member{Job: m.Job, Type: "Master"}.PodName()
	env := []corev1.EnvVar{{Name: "PYTHONUNBUFFERED", Value: "1"}}
	if hasMaster {
		rank := m.Index
		if m.Type == "Worker" {
			rank++
		}
		env = append(env,
			corev1.EnvVar{Name: "MASTER_PORT", Value: port}, corev1.EnvVar{Name: "PET_MASTER_PORT", Value: port},
			corev1.EnvVar{Name: "MASTER_ADDR", Value: master}, corev1.EnvVar{Name: "PET_MASTER_ADDR", Value: master},
			corev1.EnvVar{Name: "WORLD_SIZE", Value: strconv.Itoa(total)},
			corev1.EnvVar{Name: "RANK", Value: strconv.Itoa(rank)},
			corev1.EnvVar{Name: "PET_NODE_RANK", Value: strconv.Itoa(rank)})
	}
	env = append(env, corev1.EnvVar{Name: "PET_NNODES", Value: strconv.Itoa(total)})
	for i := range pod.Spec.Containers {
		pod.Spec.Containers[i].Env = append(pod.Spec.Containers[i].Env, env...)
	}
	if hasMaster && m.Type == "Worker" {
		pod.Spec.InitContainers = append(pod.Spec.InitContainers, corev1.Container{
			Name: "init-pytorch", Image: "alpine:3.10", ImagePullPolicy: corev1.PullIfNotPresent,
			Command: []string{"sh", "-c", "until nslookup " + master + "; do sleep 2; done"},
			Resources: corev1.ResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("50m"), corev1.ResourceMemory: resource.MustParse("10Mi")},
				Limits:   corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("20Mi")},
			},
		})
	}
}
