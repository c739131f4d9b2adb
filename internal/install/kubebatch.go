package install

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	kaiv1 "github.com/muster-scheduler/muster/api/kai/v1"
)

// Where a scheduler finds kube-batch's scheduler file in its container.
const (
	kubeBatchFolder = "/etc/kube-batch"
	kubeBatchFile   = "kube-batch.conf"
)

// kubeBatchFile gives a shard's scheduler the ConfigMap that AnnotationKubeBatchFile names. One that cannot be is told, and kube-batch's default file rules, by which nobody is taken from.
func (r *renderer) kubeBatchFile(s *kaiv1.SchedulingShard, w *workload) {
	const conf, volume, field = "kube-batch-scheduler-conf", "kube-batch", "metadata.annotations." + AnnotationKubeBatchFile
	said := s.Annotations[AnnotationKubeBatchFile]
	if said == "" {
		return
	}
	given := func(flag string) bool {
		return slices.ContainsFunc(w.args, func(arg string) bool { return strings.HasPrefix(arg, "--"+flag+"=") && arg != "--"+flag+"=" })
	}
	name, key, _ := strings.Cut(said, ":")
	switch {
	case len(validation.IsDNS1123Subdomain(name)) > 0 || len(validation.IsConfigMapKey(key)) > 0:
		r.warnShard(s, field, "is %.300q, must be NAME:KEY of a ConfigMap; it has no effect", said)
	case !given("kube-batch-scheduler-name"):
		r.warnShard(s, field, "has no effect: spec.args.kube-batch-scheduler-name does not say which pods are kube-batch's")
	case given(conf):
		r.warnShard(s, field, "has no effect beside spec.args.%s", conf)
	default:
		w.args = append(w.args, "--"+conf+"="+kubeBatchFolder+"/"+kubeBatchFile)
		w.volumes = append(w.volumes, corev1.Volume{Name: volume, VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
			LocalObjectReference: corev1.LocalObjectReference{Name: name}, Items: []corev1.KeyToPath{{Key: key, Path: kubeBatchFile}},
		}}})
		w.mounts = append(w.mounts, corev1.VolumeMount{Name: volume, MountPath: kubeBatchFolder, ReadOnly: true})
	}
}
