package admission

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/muster-scheduler/muster/api/kai/keys"
	"github.com/muster-scheduler/muster/internal/dialect/kai"
)

// Operation is one step of a JSON patch (RFC 6902).
type Operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
}

// Mutate returns the patch that completes a pod which is to be created; empty when there is nothing to do: the pod is not ours,
// or has all it needs. The pod must have passed Validate. token is put into the name of the pod's ConfigMaps to tell them from
// those of other pods: some lower-case letters and digits, fresh for each pod.
//
// The patch touches only what it adds or replaces, so that fields unknown to this version survive. To apply it and call Mutate
// again yields an empty patch.
func (r *Rules) Mutate(p *corev1.Pod, token string) ([]Operation, error) {
	if !r.ours(p) {
		return nil, nil
	}
	b := &patch{}
	b.forget(p)
	if r.StampQueue != "" && p.Labels[r.StampQueue] == "" && len(p.OwnerReferences) == 0 && p.Annotations[keys.PodGroupAnnotation] == "" {
		if p.Labels == nil {
			b.add("/metadata/labels", map[string]string{})
		}
		b.add("/metadata/labels/"+escape(r.StampQueue), keys.DefaultQueue)
	}
	sharing, found := r.sharing(p)
	if found {
		if err := r.handDevices(b, p, sharing, token); err != nil {
			return nil, err
		}
		if r.RuntimeClass != "" && ptr.Deref(p.Spec.RuntimeClassName, "") == "" {
			b.add("/spec/runtimeClassName", r.RuntimeClass)
		}
	}
	if r.GuardDevices {
		for _, list := range containerLists(p) {
			for i := range list.containers {
				if at := (kai.ContainerAt{Init: list.init, Index: i}); !(found && at == sharing) && !wantsDevices(&list.containers[i]) {
					b.env(at, list.containers[i].Env, corev1.EnvVar{Name: keys.VisibleDevicesEnv, Value: visibleVoid})
				}
			}
		}
	}
	return b.ops, nil
}

// handDevices makes the sharing container take its devices from the ConfigMaps that the binder will write.
func (r *Rules) handDevices(b *patch, p *corev1.Pod, at kai.ContainerAt, token string) error {
	prefix, ok := p.Annotations[keys.SharedGPUConfigMapAnnotation]
	if !ok {
		prefix = mapPrefix(p, at, token)
		b.add("/metadata/annotations/"+escape(keys.SharedGPUConfigMapAnnotation), prefix)
	}
	capabilities, environment := at.CapabilitiesMap(prefix), at.EnvironmentMap(prefix)
	from := func(name string, optional *bool) corev1.EnvVar {
		return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{
			LocalObjectReference: corev1.LocalObjectReference{Name: capabilities}, Key: name, Optional: optional,
		}}}
	}
	vars := []corev1.EnvVar{from(keys.VisibleDevicesEnv, nil), from(keys.LegacyPortionEnv, nil), from(keys.PortionEnv, nil)}
	if r.MemoryLimits {
		vars = append(vars, from(keys.MemoryLimitEnv, ptr.To(true)))
	}
	c := at.Of(p)
	if c == nil {
		return fmt.Errorf("the pod has no container %+v", at)
	}
	b.env(at, c.Env, vars...)
	// The kubelet starts the container only once this ConfigMap is there: not before the devices are known.
	b.envFrom(at, c.EnvFrom, corev1.EnvFromSource{ConfigMapRef: &corev1.ConfigMapEnvSource{
		LocalObjectReference: corev1.LocalObjectReference{Name: environment}, Optional: ptr.To(false),
	}})
	b.volume(p, corev1.Volume{Name: volumeName(capabilities), VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
		LocalObjectReference: corev1.LocalObjectReference{Name: capabilities},
	}}})
	return nil
}

// mapPrefix makes up what the names of a pod's ConfigMaps begin with: after the pod's owner, or the pod itself, and so short
// that all names made of it are labels.
func mapPrefix(p *corev1.Pod, at kai.ContainerAt, token string) string {
	base := p.Name
	if len(p.OwnerReferences) > 0 {
		base = p.OwnerReferences[0].Name
	} else if base == "" {
		base = p.GenerateName
	}
	base = label(base, true)
	if most := 63 - 13 - 10 - len(at.Suffix()) - 1 - 5; len(base) > most {
		base = base[:most]
	}
	if base = strings.Trim(base, ".-"); base == "" {
		base = "pod"
	}
	return base + "-" + token + "-shared-gpu"
}

// volumeName is the name of the volume that holds a ConfigMap: a DNS label, which the ConfigMap's own name need not be.
func volumeName(configMap string) string {
	const end = "-vol"
	name := label(configMap, false)
	if most := 63 - len(end); len(name) > most {
		name = name[:most]
	}
	return strings.Trim(name, "-") + end
}

// label makes every character one that a DNS label, or a name of several, may have.
func label(s string, dots bool) string {
	return strings.Map(func(c rune) rune {
		if c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '-' || dots && c == '.' {
			return c
		}
		return '-'
	}, strings.ToLower(s))
}

// wantsDevices says whether a container asks for devices by itself: whole ones, or MIG slices.
func wantsDevices(c *corev1.Container) bool {
	for _, list := range [2]corev1.ResourceList{c.Resources.Requests, c.Resources.Limits} {
		for name, q := range list { // order: any
			if (name == keys.GPUResource || strings.HasPrefix(string(name), keys.MIGResourcePrefix)) && !q.IsZero() {
				return true
			}
		}
	}
	return false
}

// patch collects operations.
type patch struct{ ops []Operation }

func (b *patch) add(path string, value any) {
	b.ops = append(b.ops, Operation{Op: "add", Path: path, Value: value})
}

func (b *patch) remove(path string) { b.ops = append(b.ops, Operation{Op: "remove", Path: path}) }

// forget takes off what only a binder can say, of a pod that has a node. A manifest copied from a running pod carries it, and
// would pass for a user of devices that it was never given. The node goes with it where the manifest is known for a copy by the
// gang that it names: whoever writes a node by hand is refused instead, and told.
func (b *patch) forget(p *corev1.Pod) {
	var stale []string
	for key := range p.Labels { // order: sorted below
		if key == keys.GPUGroupLabel || strings.HasPrefix(key, keys.GPUGroupLabelPrefix) {
			stale = append(stale, key)
		}
	}
	slices.Sort(stale)
	for _, key := range stale {
		b.remove("/metadata/labels/" + escape(key))
	}
	if p.Spec.NodeName != "" && p.Annotations[keys.PodGroupAnnotation] != "" {
		b.remove("/spec/nodeName")
	}
	for _, key := range marks() {
		if _, ok := p.Annotations[key]; ok {
			b.remove("/metadata/annotations/" + escape(key))
		}
	}
}

// env makes each variable appear exactly once, as given, at the end.
func (b *patch) env(at kai.ContainerAt, have []corev1.EnvVar, want ...corev1.EnvVar) {
	path := containerPath(at) + "/env"
	names := map[string]int{} // index into want
	for i := range want {
		names[want[i].Name] = i
	}
	count, right := make([]int, len(want)), make([]bool, len(want))
	for i := range have {
		if w, ok := names[have[i].Name]; ok {
			count[w]++
			right[w] = reflect.DeepEqual(have[i], want[w])
		}
	}
	done := func(w int) bool { return count[w] == 1 && right[w] }
	for i := len(have) - 1; i >= 0; i-- { // from the end, so that indices stay valid
		if w, ok := names[have[i].Name]; ok && !done(w) {
			b.remove(path + "/" + strconv.Itoa(i))
		}
	}
	exists := len(have) > 0
	for w := range want {
		if done(w) {
			continue
		}
		if !exists {
			b.add(path, []corev1.EnvVar{want[w]})
			exists = true
			continue
		}
		b.add(path+"/-", want[w])
	}
}

// envFrom adds a source unless the container has it.
func (b *patch) envFrom(at kai.ContainerAt, have []corev1.EnvFromSource, want corev1.EnvFromSource) {
	path := containerPath(at) + "/envFrom"
	switch {
	case len(have) == 0:
		b.add(path, []corev1.EnvFromSource{want})
	case !slices.ContainsFunc(have, func(s corev1.EnvFromSource) bool { return reflect.DeepEqual(s, want) }):
		b.add(path+"/-", want)
	}
}

// volume adds a volume unless the pod has one of that name.
func (b *patch) volume(p *corev1.Pod, want corev1.Volume) {
	switch {
	case len(p.Spec.Volumes) == 0:
		b.add("/spec/volumes", []corev1.Volume{want})
	case !slices.ContainsFunc(p.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == want.Name }):
		b.add("/spec/volumes/-", want)
	}
}

func containerPath(at kai.ContainerAt) string {
	list := "containers"
	if at.Init {
		list = "initContainers"
	}
	return "/spec/" + list + "/" + strconv.Itoa(at.Index)
}

// escape writes a key as one step of a JSON pointer.
func escape(key string) string {
	return strings.NewReplacer("~", "~0", "/", "~1").Replace(key)
}
