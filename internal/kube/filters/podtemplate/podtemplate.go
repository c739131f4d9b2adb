// Package podtemplate judges pod templates by the API server's own rules, before there is a pod: what it finds wrong would otherwise be said of each pod that is made
// of the template, where nobody looks who wrote it.
//
// The rules are upstream's, of the version of Kubernetes that is linked: an older server may take less, and a younger one more. It lies below kube/filters because it is, as these are, upstream's code behind a few words of ours.
package podtemplate

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/kubernetes/pkg/api/pod"
	"k8s.io/kubernetes/pkg/apis/core"
	corev1defaults "k8s.io/kubernetes/pkg/apis/core/v1"
	"k8s.io/kubernetes/pkg/apis/core/validation"
	"k8s.io/kubernetes/pkg/capabilities"
)

// Validate returns what an API server would find wrong with pods of that template, at the path at. Privileged containers are allowed: whether this cluster wants them is for
// whoever judges its pods. The template is not changed. It costs some tenths of a millisecond.
func Validate(t *corev1.PodTemplateSpec, at *field.Path) field.ErrorList {
	capabilities.Setup(true, 0) // once in a process; what came before stays
	whole := &corev1.PodTemplate{Template: *t.DeepCopy()}
	corev1defaults.SetObjectDefaults_PodTemplate(whole)
	var inner core.PodTemplateSpec
	if err := corev1defaults.Convert_v1_PodTemplateSpec_To_core_PodTemplateSpec(&whole.Template, &inner, nil); err != nil {
		return field.ErrorList{field.Invalid(at, "", err.Error())}
	}
	return validation.ValidatePodTemplateSpec(&inner, at, pod.GetValidationOptionsFromPodTemplate(&inner, nil))
}
