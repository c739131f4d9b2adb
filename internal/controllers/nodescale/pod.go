package nodescale

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"

	"github.com/muster-scheduler/muster/api/kai/keys"
	"github.com/muster-scheduler/muster/internal/dialect/core"
	"github.com/muster-scheduler/muster/internal/kube/write"
)

const (
	// containerName is the name of a scaling pod's only container.
	containerName = "scaling-pod"

	// command is the argument with which Muster's image ends at once.
	command = "scalingpod"

	resourceGPU corev1.ResourceName = "nvidia.com/gpu"
)

// constraints are what decides which nodes a pod can use, as far as a scaling pod repeats it.
type constraints struct {
	NodeSelector map[string]string   `json:"nodeSelector,omitempty"`
	Affinity     *corev1.Affinity    `json:"affinity,omitempty"`
	Tolerations  []corev1.Toleration `json:"tolerations,omitempty"`
}

// constraintsOf are those of a pod, the nodes of its shard included.
func (o *Options) constraintsOf(p *corev1.Pod) constraints {
	c := constraints{NodeSelector: p.Spec.NodeSelector, Affinity: p.Spec.Affinity.DeepCopy(), Tolerations: p.Spec.Tolerations}
	if pool := p.Labels[o.NodePoolLabel]; o.NodePoolLabel != "" && pool != "" {
		c.NodeSelector = map[string]string{o.NodePoolLabel: pool}
		for k, v := range p.Spec.NodeSelector { // order: a map again; what the pod says itself counts
			c.NodeSelector[k] = v
		}
	}
	at(c.Affinity, p.Namespace)
	return c
}

// at names the namespace of terms that mean the pod's own: the scaling pod is in another.
func at(a *corev1.Affinity, namespace string) {
	if a == nil {
		return
	}
	name := func(t *corev1.PodAffinityTerm) {
		if len(t.Namespaces) == 0 && t.NamespaceSelector == nil {
			t.Namespaces = []string{namespace}
		}
	}
	all := func(required []corev1.PodAffinityTerm, preferred []corev1.WeightedPodAffinityTerm) {
		for i := range required {
			name(&required[i])
		}
		for i := range preferred {
			name(&preferred[i].PodAffinityTerm)
		}
	}
	if x := a.PodAffinity; x != nil {
		all(x.RequiredDuringSchedulingIgnoredDuringExecution, x.PreferredDuringSchedulingIgnoredDuringExecution)
	}
	if x := a.PodAntiAffinity; x != nil {
		all(x.RequiredDuringSchedulingIgnoredDuringExecution, x.PreferredDuringSchedulingIgnoredDuringExecution)
	}
}

// shape names the constraints.
func (c *constraints) shape() string {
	text, err := json.Marshal(c)
	if err != nil {
		panic("nodescale: constraints: " + err.Error()) // these types have a JSON form
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8])
}

// podName is the name of the scaling pod of a source: KAI's, or, where that is no name or may be another pod's, one with a
// hash.
func podName(source types.NamespacedName, plain bool) string {
	name := source.Namespace + "-" + source.Name
	if plain && len(name) <= validation.DNS1123SubdomainMaxLength {
		return name
	}
	sum := sha256.Sum256([]byte(source.String()))
	if len(name) > 200 {
		name = strings.TrimRight(name[:200], "-.")
	}
	return name + "-" + hex.EncodeToString(sum[:8])
}

// newPod is the scaling pod of a source that needs so many devices, under one of its two names.
func (o *Options) newPod(source *corev1.Pod, devices int64, plain bool) *corev1.Pod {
	name := types.NamespacedName{Namespace: source.Namespace, Name: source.Name}
	c := o.constraintsOf(source)
	gpus := *resource.NewQuantity(devices, resource.DecimalSI)
	requests := corev1.ResourceList{resourceGPU: gpus}
	asked := core.RequestList(source)
	for _, r := range [...]corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage} {
		if q, ok := asked[r]; ok && q.Sign() > 0 {
			requests[r] = q
		}
	}
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: o.Namespace, Name: podName(name, plain),
			Labels: map[string]string{keys.AppLabel: o.App, keys.ScalingPodSourceNamespaceLabel: source.Namespace},
			Annotations: map[string]string{
				keys.ScalingPodSourceLabel: source.Name, keys.ScalingShapeAnnotation: c.shape(),
			},
		},
		Spec: corev1.PodSpec{
			NodeSelector: c.NodeSelector, Affinity: c.Affinity, Tolerations: c.Tolerations,
			RestartPolicy: corev1.RestartPolicyOnFailure, ServiceAccountName: o.ServiceAccount,
			AutomountServiceAccountToken: ptr.To(false), TerminationGracePeriodSeconds: ptr.To(int64(1)),
			SecurityContext: &corev1.PodSecurityContext{
				RunAsNonRoot: ptr.To(true), RunAsUser: ptr.To(int64(65532)),
				SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			},
			Containers: []corev1.Container{{
				Name: containerName, Image: o.Image, ImagePullPolicy: corev1.PullIfNotPresent, Args: []string{command},
				Resources: corev1.ResourceRequirements{Requests: requests, Limits: corev1.ResourceList{resourceGPU: gpus}},
				SecurityContext: &corev1.SecurityContext{
					AllowPrivilegeEscalation: ptr.To(false), ReadOnlyRootFilesystem: ptr.To(true),
					Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
				},
			}},
		},
	}
	if len(validation.IsValidLabelValue(source.Name)) == 0 { // names of pods can be longer than labels
		p.Labels[keys.ScalingPodSourceLabel] = source.Name
	}
	return p
}

// ours says whether a pod is a scaling pod.
func (o *Options) ours(p *corev1.Pod) bool {
	return p.Namespace == o.Namespace && p.Labels[keys.AppLabel] == o.App
}

// askOf reads a scaling pod, be it Muster's or KAI's.
func askOf(p *corev1.Pod) ask {
	a := ask{
		name: p.Name, uid: p.UID, shape: p.Annotations[keys.ScalingShapeAnnotation],
		source: types.NamespacedName{Namespace: p.Labels[keys.ScalingPodSourceNamespaceLabel], Name: p.Annotations[keys.ScalingPodSourceLabel]},
		ended:  p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed,
		going:  p.DeletionTimestamp != nil, created: p.CreationTimestamp.Time,
	}
	if a.source.Name == "" {
		a.source.Name = p.Labels[keys.ScalingPodSourceLabel]
	}
	for i := range p.Spec.Containers {
		q := p.Spec.Containers[i].Resources.Requests[resourceGPU]
		a.devices += min(max(0, q.Value()), maxDevices)
	}
	return a
}

// maxDevices bounds what is believed of a scaling pod's requests: no pod can share more devices.
const maxDevices = 1024

// waitsForNode is the body of the patch that shows a scaling pod to autoscalers at once.
func waitsForNode(uid types.UID, now metav1.Time) []byte {
	return write.Body(map[string]any{
		"metadata": map[string]any{"uid": uid},
		"status": map[string]any{"conditions": []map[string]any{{
			"type": corev1.PodScheduled, "status": corev1.ConditionFalse, "reason": corev1.PodReasonUnschedulable,
			"message": "asks for " + strconv.Quote(string(resourceGPU)) + " on behalf of a pod that shares GPUs", "lastTransitionTime": now,
		}}},
	})
}
