package admission

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/muster-scheduler/muster/api/kai/keys"
	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/dialect/kai"
)

const (
	// maxMemory bounds gpu-memory, in MiB: a pebibyte, so that sums over all pods of a cluster stay exact.
	maxMemory = 1 << 30
	// maxDevices bounds gpu-fraction-num-devices, as the scheduler does. No machine has more.
	maxDevices = 1024
	// maxClaims bounds the device claims of a pod: for each, the devices of a node are searched.
	maxClaims = 64
	// maxPrefix bounds the annotation that begins ConfigMaps' names: the longest such name has to be one.
	maxPrefix = validation.DNS1123SubdomainMaxLength - len("-i99999-evar")
	// shown bounds how much of a user's text is repeated in an error.
	shown = 64
)

// annotation is the field of an error about one of the annotations.
func annotation(key string) *field.Path { return field.NewPath("metadata", "annotations").Key(key) }

// ours says whether the pod is for one of our schedulers.
func (r *Rules) ours(p *corev1.Pod) bool {
	return slices.Contains(r.SchedulerNames, p.Spec.SchedulerName)
}

// shares says whether the pod asks for parts of GPUs.
func shares(p *corev1.Pod) bool {
	_, fraction := p.Annotations[keys.GPUFractionAnnotation]
	_, memory := p.Annotations[keys.GPUMemoryAnnotation]
	return fraction || memory
}

// Validate returns everything that is wrong with a pod that is to be created: each error names the field and the rule. It is
// empty for a pod that is not ours.
func (r *Rules) Validate(p *corev1.Pod) field.ErrorList {
	if !r.ours(p) {
		return nil
	}
	out := append(r.share(p), r.devices(p)...)
	if n := len(p.Spec.ResourceClaims); n > maxClaims {
		out = append(out, field.TooMany(field.NewPath("spec", "resourceClaims"), n, maxClaims))
	}
	return out
}

// ValidateUpdate returns what is wrong with a pod as it is to become, and was not wrong before: rules that came after a pod do
// not keep anybody from labelling it or taking a finalizer off. Once a pod has a node, the share it asks for is what its queue
// is charged, and stays.
func (r *Rules) ValidateUpdate(old, p *corev1.Pod) field.ErrorList {
	if !r.ours(p) {
		return nil
	}
	before := map[string]bool{}
	for _, e := range r.Validate(old) {
		before[e.Error()] = true
	}
	out := slices.DeleteFunc(r.Validate(p), func(e *field.Error) bool { return before[e.Error()] })
	if old.Spec.NodeName == "" {
		return out
	}
	for _, key := range []string{
		keys.GPUFractionAnnotation, keys.GPUMemoryAnnotation, keys.GPUFractionDevicesAnnotation,
		keys.GPUFractionContainerAnnotation, keys.SharedGPUConfigMapAnnotation,
	} {
		was, had := old.Annotations[key]
		is, has := p.Annotations[key]
		if was != is || had != has {
			out = append(out, field.Forbidden(annotation(key), "must not change once the pod has a node"))
		}
	}
	return out
}

// incomplete returns what a pod that is to be created lacks although it passes Validate and Mutate must have seen it, or have seen no need to
// be asked: another webhook asked for parts of a GPU after Mutate's turn. An API server asks nobody again whom it had not asked before
// (reinvocation), and without the ConfigMaps that tell it its devices no binder can bind the pod.
func (r *Rules) incomplete(p *corev1.Pod) field.ErrorList {
	if _, done := p.Annotations[keys.SharedGPUConfigMapAnnotation]; done {
		return nil
	}
	if _, found := r.sharing(p); !r.ours(p) || !found {
		return nil
	}
	key := keys.GPUFractionAnnotation
	if _, ok := p.Annotations[key]; !ok {
		key = keys.GPUMemoryAnnotation
	}
	return field.ErrorList{field.Forbidden(annotation(key), "was added after the pod had been completed for what it asks; the webhook that adds it must come before, in the order of the webhook configurations' names")}
}

// share checks the annotations by which a pod asks for parts of GPUs.
func (r *Rules) share(p *corev1.Pod) (out field.ErrorList) {
	fraction, byFraction := p.Annotations[keys.GPUFractionAnnotation]
	memory, byMemory := p.Annotations[keys.GPUMemoryAnnotation]
	devices, counted := p.Annotations[keys.GPUFractionDevicesAnnotation]
	asks := keys.GPUFractionAnnotation + " or " + keys.GPUMemoryAnnotation
	if !byFraction && !byMemory {
		if p.Annotations[keys.MPSAnnotation] == "true" {
			out = append(out, field.Forbidden(annotation(keys.MPSAnnotation), "is only for pods with annotation "+asks))
		}
		if counted {
			out = append(out, field.Forbidden(annotation(keys.GPUFractionDevicesAnnotation), "is only for pods with annotation "+asks))
		}
		return out
	}
	key := keys.GPUFractionAnnotation
	if !byFraction {
		key = keys.GPUMemoryAnnotation
	}
	if !r.GPUSharing {
		return append(out, field.Forbidden(annotation(key), "sharing of GPUs is switched off in this cluster (--gpu-sharing-enabled)"))
	}
	if byFraction && byMemory {
		out = append(out, field.Forbidden(annotation(keys.GPUMemoryAnnotation), "must not be set together with annotation "+keys.GPUFractionAnnotation))
	}
	if at := wholeGPU(p); at != nil {
		out = append(out, field.Forbidden(at, fmt.Sprintf("must not be set together with annotation %s: a pod asks for whole devices or for parts of them", key)))
	}
	if byFraction {
		if problem := checkFraction(fraction); problem != "" {
			out = append(out, field.Invalid(annotation(keys.GPUFractionAnnotation), brief(fraction), problem))
		}
	}
	if byMemory {
		if n, err := strconv.ParseUint(memory, 10, 64); err != nil && !overflows(err) || err == nil && n == 0 {
			out = append(out, field.Invalid(annotation(keys.GPUMemoryAnnotation), brief(memory), "must be a whole number of MiB above 0, without a unit"))
		} else if err != nil || n > maxMemory {
			out = append(out, field.Invalid(annotation(keys.GPUMemoryAnnotation), brief(memory), fmt.Sprintf("must be at most %d MiB", maxMemory)))
		}
	}
	if counted {
		if n, err := strconv.ParseUint(devices, 10, 64); err != nil || n == 0 || n > maxDevices {
			out = append(out, field.Invalid(annotation(keys.GPUFractionDevicesAnnotation), brief(devices), fmt.Sprintf("must be a whole number from 1 to %d", maxDevices)))
		}
	}
	if len(p.Spec.Containers) > 0 { // what a pod without any lacks, the API server says better
		if _, err := kai.SharingContainer(p); err != nil {
			out = append(out, field.Invalid(annotation(keys.GPUFractionContainerAnnotation), brief(p.Annotations[keys.GPUFractionContainerAnnotation]),
				"must name one of the pod's containers or init containers"))
		}
	}
	if prefix, ok := p.Annotations[keys.SharedGPUConfigMapAnnotation]; ok {
		if len(prefix) > maxPrefix || len(validation.IsDNS1123Subdomain(prefix)) > 0 {
			out = append(out, field.Invalid(annotation(keys.SharedGPUConfigMapAnnotation), brief(prefix),
				fmt.Sprintf("must be the beginning of a ConfigMap's name: at most %d lower-case letters, digits, dots and dashes, with a letter or digit at both ends (it is set by admission; leave it out)", maxPrefix)))
		}
	}
	return out
}

// checkFraction says what is wrong with a value of gpu-fraction; "" for nothing. What passes is a number for everybody who
// reads it, as a float or as a quantity.
func checkFraction(text string) string {
	const rule = "must be a decimal number above 0 and below 1"
	f, err := strconv.ParseFloat(text, 64)
	if len(text) > shown || err != nil || math.IsNaN(f) || f <= 0 || f >= 1 {
		return rule
	}
	if math.Round(f*float64(cluster.WholePortion)) == 0 {
		return "must be at least one part in " + strconv.FormatInt(int64(cluster.WholePortion), 10)
	}
	if q, err := resource.ParseQuantity(text); err != nil || q.Sign() <= 0 || q.CmpInt64(1) >= 0 {
		return rule + ", such as 0.5"
	}
	return ""
}

// overflows says whether a number is one, only too large.
func overflows(err error) bool {
	e, ok := err.(*strconv.NumError)
	return ok && e.Err == strconv.ErrRange
}

// wholeGPU is the first limit of whole GPUs in the pod, 0 included; nil for none.
func wholeGPU(p *corev1.Pod) *field.Path {
	for _, list := range containerLists(p) {
		for i := range list.containers {
			if _, ok := list.containers[i].Resources.Limits[keys.GPUResource]; ok {
				return list.path.Index(i).Child("resources", "limits").Key(keys.GPUResource)
			}
		}
	}
	return nil
}

// containerList is one of the pod's two lists of containers.
type containerList struct {
	path       *field.Path
	init       bool
	containers []corev1.Container
}

func containerLists(p *corev1.Pod) [2]containerList {
	spec := field.NewPath("spec")
	return [2]containerList{{spec.Child("initContainers"), true, p.Spec.InitContainers}, {spec.Child("containers"), false, p.Spec.Containers}}
}

// devices refuses containers that name their devices themselves. The container that shares devices is not looked at: its
// environment is overwritten.
func (r *Rules) devices(p *corev1.Pod) (out field.ErrorList) {
	if !r.GuardDevices {
		return nil
	}
	sharing, found := r.sharing(p)
	for _, list := range containerLists(p) {
		for i := range list.containers {
			if found && sharing == (kai.ContainerAt{Init: list.init, Index: i}) {
				continue
			}
			out = append(out, visible(list.path.Index(i), list.containers[i].Env)...)
		}
	}
	for i := range p.Spec.EphemeralContainers {
		out = append(out, visible(field.NewPath("spec", "ephemeralContainers").Index(i), p.Spec.EphemeralContainers[i].Env)...)
	}
	return out
}

// sharing is the container that shares devices, if the pod has one.
func (r *Rules) sharing(p *corev1.Pod) (kai.ContainerAt, bool) {
	if !r.GPUSharing || !shares(p) {
		return kai.ContainerAt{}, false
	}
	at, err := kai.SharingContainer(p)
	return at, err == nil
}

// visible checks the environment of one container.
func visible(at *field.Path, env []corev1.EnvVar) (out field.ErrorList) {
	for i := range env {
		if env[i].Name != keys.VisibleDevicesEnv {
			continue
		}
		here := at.Child("env").Index(i)
		switch v := env[i].Value; {
		case v != "" && v != visibleVoid && v != "none":
			out = append(out, field.Invalid(here.Child("value"), brief(v), keys.VisibleDevicesEnv+" must be void or none: which devices a container sees is decided by the cluster"))
		case v == "" && env[i].ValueFrom != nil:
			out = append(out, field.Forbidden(here.Child("valueFrom"), keys.VisibleDevicesEnv+" must not be taken from elsewhere: which devices a container sees is decided by the cluster"))
		}
	}
	return out
}

// visibleVoid hides all devices from a container.
const visibleVoid = "void"

// brief cuts a user's text to a length fit for an error.
func brief(s string) string {
	if len(s) > shown {
		return strings.ToValidUTF8(s[:shown], "") + "…"
	}
	return s
}
