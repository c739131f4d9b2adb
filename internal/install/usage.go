package install

import (
	"errors"
	"fmt"
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"

	kaiv1 "github.com/muster-scheduler/muster/api/kai/v1"
	"github.com/muster-scheduler/muster/internal/usage"
)

// usageFolder is where an embedded history lies in the scheduler's container.
const usageFolder = "/var/lib/muster/usage"

// SecretUsage is the Secret, in the control plane's namespace, whose keys are the environment variables that a shard's
// usageDBConfig.connectionStringEnvVar may name. The installation only refers to it.
const SecretUsage = "muster-usage-db"

// past is where a shard's embedded history lies; its zero value is none.
type past struct {
	folder string             // in the container
	claim  string             // the PersistentVolumeClaim it is on; empty: with the pod
	size   *resource.Quantity // of the claim, if it is to be made
	class  *string            // its storage class; nil: the cluster's default one
}

// place reads what extraParams say of the claim. One that is made and has no name is called after the shard's scheduler.
//
// No claim is made unless its size is said. A claim is bound by a storage class that a cluster need not have, and its volume follows
// the scheduler to another node only when the old one lets it go, minutes after that has died: who has one by default would wait for
// decisions where he now waits for shares to settle.
func (p *past) place(scheduler string, extra map[string]string) error {
	const field = "spec.usageDBConfig.usageParams.extraParams."
	p.claim = extra[usage.Claim]
	class, named := extra[usage.ClaimClass]
	text, made := extra[usage.ClaimSize]
	if !made {
		if named {
			return fmt.Errorf("%s%s is the class of a claim that nobody makes: %s says how large one is to be", field, usage.ClaimClass, usage.ClaimSize)
		}
		return nil
	}
	size, err := resource.ParseQuantity(text)
	if err != nil || size.Sign() <= 0 {
		return fmt.Errorf("%s%s is %q; it must be an amount of bytes like 5Gi", field, usage.ClaimSize, text)
	}
	p.size = &size
	if p.claim == "" {
		p.claim = scheduler + "-usage"
	}
	if named {
		p.class = &class
	}
	for key, name := range map[string]string{usage.Claim: p.claim, usage.ClaimClass: class} { // order: one error at most matters
		if errs := validation.IsDNS1123Subdomain(name); name != "" && len(errs) > 0 {
			return fmt.Errorf("%s%s is %q: %s", field, key, name, strings.Join(errs, ", "))
		}
	}
	return nil
}

// claim refuses a shard whose claim is another's already: one process at a time has a history open.
func (r *renderer) claim(s *kaiv1.SchedulingShard, name string) error {
	if name == "" {
		return nil
	}
	if other, taken := r.claims[name]; taken {
		return fmt.Errorf("spec.usageDBConfig keeps the history of usage on the claim %s, which is SchedulingShard %s's already", name, other)
	}
	r.claims[name] = s.Name
	return nil
}

// history renders where a shard keeps what queues used, if it keeps that itself.
func (r *renderer) history(s *kaiv1.SchedulingShard, w *workload, conf *schedulerConf) {
	p := &conf.past
	if p.folder == "" {
		return
	}
	from := corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{SizeLimit: ptr.To(resource.MustParse("4Gi"))}}
	if p.claim == "" {
		r.forgets(s, "spec.usageDBConfig", "keeps the history of usage in the scheduler's pod: it is lost with it, at each rollout and when its node fails; usageParams.extraParams.%s has a claim made that keeps it, %s names one that is there", usage.ClaimSize, usage.Claim)
	} else {
		from = corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: p.claim}}
		w.alone = true
		if w.replicas > 1 {
			r.warnShard(s, "spec.usageDBConfig.usageParams.extraParams."+usage.Claim, "is mounted by %d replicas: its access mode must be ReadWriteMany, or they must be on one node", w.replicas)
		}
	}
	if p.size != nil {
		r.add(Scheduler, &corev1.PersistentVolumeClaim{
			TypeMeta:   kind("v1", "PersistentVolumeClaim"),
			ObjectMeta: metav1.ObjectMeta{Namespace: r.spec.Namespace, Name: p.claim, Labels: map[string]string{LabelShard: ShardLabel(s.Name)}},
			Spec: corev1.PersistentVolumeClaimSpec{
				AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, StorageClassName: p.class,
				Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: *p.size}},
			},
		})
	}
	w.volumes = append(w.volumes, corev1.Volume{Name: "usage", VolumeSource: from})
	w.mounts = append(w.mounts, corev1.VolumeMount{Name: "usage", MountPath: p.folder})
}

// forgets warns that a shard's history of usage is lost with a pod.
func (r *renderer) forgets(s *kaiv1.SchedulingShard, field, rule string, args ...any) {
	r.warnShard(s, field, rule, args...)
	r.warnings[len(r.warnings)-1].Forgets = true
}

// usage is the shard's usageDBConfig as its scheduler needs it: with an address.
func (r *renderer) usage(s *kaiv1.SchedulingShard, conf *schedulerConf) (*kaiv1.UsageDBConfig, error) {
	u := s.Spec.UsageDBConfig.DeepCopy()
	if u == nil {
		return nil, nil
	}
	conf.env = u.ConnectionStringEnvVar
	if errs := validation.IsEnvVarName(conf.env); conf.env != "" && len(errs) > 0 {
		return nil, fmt.Errorf("spec.usageDBConfig.connectionStringEnvVar is %q: %s", conf.env, strings.Join(errs, ", "))
	}
	named := u.ConnectionString != "" || u.ConnectionStringEnvVar != ""
	switch p := r.spec.Prometheus; u.ClientType {
	case kaiv1.UsageClientPrometheus:
		external := ptr.Deref(p.ExternalPrometheusURL, "")
		switch {
		case named:
		case external != "":
			u.ConnectionString = external
		case *p.Enabled:
			u.UsageParams = r.ours(u.UsageParams)
			u.ConnectionString = fmt.Sprintf("http://%s.%s.svc.cluster.local:%d", PrometheusService, r.spec.Namespace, PrometheusPort)
			if !*p.EnablePersistentStorage {
				r.forgets(s, "spec.usageDBConfig", "keeps the history of usage in the pod of the Prometheus server: it is lost with it; spec.prometheus.enablePersistentStorage of the Config keeps it")
			}
		default:
			return nil, errors.New("spec.usageDBConfig: connectionString is missing, and the Config has neither spec.prometheus.enabled nor spec.prometheus.externalPrometheusUrl")
		}
	case "", kaiv1.UsageClientEmbedded, kaiv1.UsageClientFakeWithHistory:
		u.ClientType = kaiv1.UsageClientEmbedded
		if !named {
			u.ConnectionString = usageFolder
		}
		if u.ConnectionStringEnvVar != "" {
			break // a folder that nobody here knows
		}
		if conf.past.folder = u.ConnectionString; !strings.HasPrefix(conf.past.folder, "/") {
			return nil, fmt.Errorf("spec.usageDBConfig.connectionString is %q; the embedded store needs the absolute path of a folder", conf.past.folder)
		}
		if u.UsageParams != nil {
			return u, conf.past.place(SchedulerName(s.Name), u.UsageParams.ExtraParams)
		}
	}
	return u, nil
}

// ours has the bundled store asked for what our own queue role says, and nobody else, unless the shard names its metrics.
func (r *renderer) ours(p *kaiv1.UsageParams) *kaiv1.UsageParams {
	if p == nil {
		p = &kaiv1.UsageParams{}
	}
	extra := map[string]string{}
	for _, d := range usage.Dimensions() {
		extra[d.Name+"AllocationMetric"] = fmt.Sprintf("%s{namespace=%q,job=%q}", d.Held, r.spec.Namespace, r.name(Queue))
	}
	maps.Copy(extra, p.ExtraParams)
	p.ExtraParams = extra
	return p
}
