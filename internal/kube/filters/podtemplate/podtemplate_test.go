package podtemplate

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
)

// TestValidate: what an API server would refuse of a pod is told at its path, what it fills in is not missed, and the template stays as it is.
func TestValidate(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*corev1.PodTemplateSpec)
		want   string
	}{
		"as little as possible":  {func(*corev1.PodTemplateSpec) {}, ""},
		"no containers":          {func(p *corev1.PodTemplateSpec) { p.Spec.Containers = nil }, "template.spec.containers: Required value"},
		"a name":                 {func(p *corev1.PodTemplateSpec) { p.Spec.Containers[0].Name = "A_" }, "template.spec.containers[0].name: Invalid value"},
		"a policy of restarts":   {func(p *corev1.PodTemplateSpec) { p.Spec.RestartPolicy = "Sometimes" }, "template.spec.restartPolicy: Unsupported value"},
		"a label":                {func(p *corev1.PodTemplateSpec) { p.Labels = map[string]string{"a": "b c"} }, "template.labels: Invalid value"},
		"a volume that there is": {func(p *corev1.PodTemplateSpec) { p.Spec.Volumes = []corev1.Volume{{Name: "v"}} }, ""},
		"a mount of nothing": {func(p *corev1.PodTemplateSpec) {
			p.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "v", MountPath: "/v"}}
		}, "template.spec.containers[0].volumeMounts[0].name: Not found"},
		"a privileged container": {func(p *corev1.PodTemplateSpec) {
			p.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{Privileged: ptr.To(true)}
		}, ""},
	} { // order: each on its own
		p := &corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
		c.change(p)
		before := p.DeepCopy()
		got := Validate(p, field.NewPath("template"))
		if c.want == "" && len(got) > 0 || c.want != "" && (len(got) != 1 || !strings.Contains(got[0].Error(), c.want)) {
			t.Errorf("%s: %v, want %q", name, got, c.want)
		}
		if !equality.Semantic.DeepEqual(before, p) {
			t.Errorf("%s: the template is changed", name)
		}
	}
}
