package vcjob

import (
	"flag"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	batch "github.com/muster-scheduler/muster/api/volcano/batch/v1alpha1"
	"github.com/muster-scheduler/muster/api/volcano/keys"
	"github.com/muster-scheduler/muster/internal/kube/write"
)

// env tells containers their pod's number in its task.
type env struct{}

func newEnv(*batch.Job, []string) (plugin, error) { return env{}, nil }

func (env) onPod(p *corev1.Pod, _ *batch.TaskSpec, index int) {
	n := strconv.Itoa(index)
	setEnv(containers(p, true), corev1.EnvVar{Name: "VK_TASK_INDEX", Value: n}, corev1.EnvVar{Name: "VC_TASK_INDEX", Value: n})
}

func (env) objects() []object { return nil }

// svc gives pods names that resolve, and tells containers those of all tasks.
type svc struct {
	job                         *batch.Job
	early, open, injectHostsEnv bool
}

func newSVC(j *batch.Job, args []string) (plugin, error) {
	s := &svc{job: j}
	return s, flags(args, func(f *flag.FlagSet) {
		f.BoolVar(&s.early, "publish-not-ready-addresses", false, "")
		f.BoolVar(&s.open, "disable-network-policy", false, "")
		f.BoolVar(&s.injectHostsEnv, "inject-hosts-env", true, "")
	})
}

func (s *svc) onPod(p *corev1.Pod, t *batch.TaskSpec, index int) {
	name, domain := host(s.job, t, index)
	p.Spec.Hostname, p.Spec.Subdomain = name, domain
	volume := s.job.Name + "-svc"
	all := containers(p, true)
	if s.injectHostsEnv {
		for i := range s.job.Spec.Tasks {
			for _, suffix := range []string{"HOSTS", "NUM"} {
				v := variable(s.job.Spec.Tasks[i].Name, suffix)
				setEnv(all, corev1.EnvVar{Name: v, ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{
					LocalObjectReference: corev1.LocalObjectReference{Name: volume}, Key: v,
				}}})
			}
		}
	}
	for _, c := range all {
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: volume, MountPath: "/etc/volcano"})
	}
	p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: volume, VolumeSource: corev1.VolumeSource{
		ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: volume}},
	}})
}

// variable is the name of a variable that tells of a task.
func variable(task, suffix string) string {
	return "VC_" + strings.ToUpper(fieldName(task)) + "_" + suffix
}

// hosts are the files and variables that tell of the tasks.
func (s *svc) hosts() map[string]string {
	data := map[string]string{}
	for i := range s.job.Spec.Tasks {
		t := &s.job.Spec.Tasks[i]
		all := addresses(s.job, t)
		data[fieldName(t.Name)+".host"] = strings.Join(all, "\n")
		data[variable(t.Name, "HOSTS")] = strings.Join(all, ",")
		data[variable(t.Name, "NUM")] = strconv.Itoa(int(t.Replicas))
	}
	return data
}

func (s *svc) objects() []object {
	j := s.job
	meta := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: j.Namespace, Name: name, OwnerReferences: ownedBy(j)}
	}
	pods := map[string]string{keys.JobName: j.Name, keys.JobNamespace: j.Namespace}
	data := s.hosts()
	refresh := write.Body([]patchOp{{"test", "/metadata/ownerReferences/0/uid", j.UID}, {"add", "/data", data}})
	out := []object{
		{Object: &corev1.ConfigMap{ObjectMeta: meta(j.Name + "-svc"), Data: data}, refresh: refresh},
		{Object: &corev1.Service{ObjectMeta: meta(j.Name), Spec: corev1.ServiceSpec{
			ClusterIP: corev1.ClusterIPNone, Selector: pods, PublishNotReadyAddresses: s.early,
		}}},
	}
	if !s.open {
		own := metav1.LabelSelector{MatchLabels: pods}
		out = append(out, object{Object: &networkingv1.NetworkPolicy{ObjectMeta: meta(j.Name), Spec: networkingv1.NetworkPolicySpec{
			PodSelector: own, PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress},
			Ingress: []networkingv1.NetworkPolicyIngressRule{{From: []networkingv1.NetworkPolicyPeer{{PodSelector: &own}}}},
		}}})
	}
	return out
}
