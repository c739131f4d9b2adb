package reservation

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/muster-scheduler/muster/api/kai/keys"
)

const (
	// containerName is the name of a reservation pod's only container.
	containerName = "resource-reservation"

	// command is the argument with which Muster's image for nodes reports its device.
	command = "reservation"

	// sleeper is the image of reservation pods where GPUs are simulated.
	sleeper = "ubuntu"
)

// podName is the name of a group's reservation pod on a node, the same in KAI.
func podName(node, group string) string {
	sum := sha256.Sum256([]byte(node + "/" + group))
	return "gpu-reservation-" + hex.EncodeToString(sum[:8])
}

// newPod is the pod that reserves a device of the node for a group. It tolerates everything: the pods that use the device come and go, each
// with tolerations of its own, and it must not be evicted before the last of them is. It goes when nobody uses the device.
func newPod(o Options, node, group string) *corev1.Pod {
	c := corev1.Container{
		Name: containerName, Image: o.Image, Args: arguments(o.Image), ImagePullPolicy: corev1.PullIfNotPresent,
		SecurityContext: o.ContainerSecurity.DeepCopy(), Resources: resources(o.Resources),
		Env: []corev1.EnvVar{fromField("POD_NAME", "metadata.name"), fromField("POD_NAMESPACE", "metadata.namespace")},
	}
	if o.Simulated {
		c.Image, c.Args = sleeper, []string{"sleep", "infinity"}
	}
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: o.Namespace, Name: podName(node, group),
			Labels:      map[string]string{keys.AppLabel: o.App, keys.GPUGroupLabel: group},
			Annotations: map[string]string{keys.KarpenterDoNotDisruptAnnotation: "true"},
		},
		Spec: corev1.PodSpec{
			NodeName: node, ServiceAccountName: o.ServiceAccount, Containers: []corev1.Container{c},
			SecurityContext: o.PodSecurity.DeepCopy(), Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
		},
	}
	if o.RuntimeClass != "" {
		p.Spec.RuntimeClassName = ptr.To(o.RuntimeClass)
	}
	return p
}

// arguments are what the image is told: Muster's for nodes holds several programs. KAI's, which is known by its name, holds one, and has
// never been told anything.
func arguments(image string) []string {
	name, _, _ := strings.Cut(image, "@")
	name, _, _ = strings.Cut(path.Base(name), ":")
	switch strings.TrimSuffix(name, "-fips") {
	case "resource-reservation", "resourcereservation":
		return nil
	}
	return []string{command}
}

func fromField(name, path string) corev1.EnvVar {
	return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: path}}}
}

// resources are one device, and what was configured besides.
func resources(configured *corev1.ResourceRequirements) corev1.ResourceRequirements {
	out := corev1.ResourceRequirements{Requests: corev1.ResourceList{}, Limits: corev1.ResourceList{}}
	if configured != nil {
		maps.Copy(out.Requests, configured.Requests)
		maps.Copy(out.Limits, configured.Limits)
	}
	out.Requests[keys.GPUResource], out.Limits[keys.GPUResource] = resource.MustParse("1"), resource.MustParse("1")
	return out
}

// groupsOf are the groups that a pod's labels name, each once, in order.
func groupsOf(p *corev1.Pod) []string {
	var out []string
	for key, value := range p.Labels { // order: sorted below
		if (key == keys.GPUGroupLabel || strings.HasPrefix(key, keys.GPUGroupLabelPrefix)) && value != "" {
			out = append(out, value)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// labelsFor are the labels that put a pod into groups: one has a key of its own, several are told apart by their keys.
func labelsFor(groups []string) map[string]string {
	if len(groups) == 1 {
		return map[string]string{keys.GPUGroupLabel: groups[0]}
	}
	out := make(map[string]string, len(groups))
	for _, g := range groups {
		out[keys.GPUGroupLabelPrefix+g] = g
	}
	return out
}

// relabel is the change of labels that takes a pod from its groups to those wanted: nil values remove. It is empty when
// the labels are right already.
func relabel(p *corev1.Pod, groups []string) map[string]any {
	want, out := map[string]string{}, map[string]any{}
	if len(groups) > 0 {
		want = labelsFor(groups)
	}
	for key := range p.Labels { // order: the result is a map
		if _, wanted := want[key]; !wanted && (key == keys.GPUGroupLabel || strings.HasPrefix(key, keys.GPUGroupLabelPrefix)) {
			out[key] = nil
		}
	}
	for key, value := range want { // order: the result is a map
		if p.Labels[key] != value {
			out[key] = value
		}
	}
	return out
}

// over says that a pod will not run any more.
func over(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
}

// deviceOf is the UUID of the device that a reservation pod holds, empty while it is not known.
func deviceOf(p *corev1.Pod) string { return p.Annotations[keys.ReservedGPUAnnotation] }

// best is the reservation pod of a group to be used: one that stays, and that knows its device; the oldest of several,
// which only foreign binders make. Nil if there is none. It sorts held.
func best(held []*corev1.Pod) *corev1.Pod {
	rank := func(p *corev1.Pod) int {
		switch {
		case p.DeletionTimestamp != nil:
			return 3
		case over(p):
			return 2
		case deviceOf(p) == "":
			return 1
		}
		return 0
	}
	slices.SortFunc(held, func(a, b *corev1.Pod) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	if len(held) == 0 {
		return nil
	}
	return held[0]
}
