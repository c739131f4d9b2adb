package kai

import (
	"encoding/json"
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-scheduler/muster/api/kai/keys"
	"github.com/muster-scheduler/muster/api/scheduling/v1alpha2"
	vckeys "github.com/muster-scheduler/muster/api/volcano/keys"
	"github.com/muster-scheduler/muster/internal/dialect/volcano"
)

// Bind returns the Binding that carries out a BindRequest, whether the request was ever written or not. The API server copies the annotations
// of a Binding to the pod in the write that gives it its node, so that nobody holds room without them. pod is the pod that was meant as it
// was last seen; nil if it was not. bundle is the decision that the pod is bound for, "" for none. A pod that is in the gang of its owner, of KAI's face or Volcano's, is told the
// name of its PodGroup so.
func Bind(br *v1alpha2.BindRequest, pod *v1.Pod, bundle string) (*v1.Binding, error) {
	said := Read(br)
	received := br.Spec.ReceivedResourceType
	if received == "" {
		received = v1alpha2.ResourceTypeRegular
	}
	b := &v1.Binding{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: said.Namespace, Name: said.Pod, UID: said.PodUID, Annotations: map[string]string{keys.ReceivedResourceTypeAnnotation: received},
		},
		Target: v1.ObjectReference{Kind: "Node", Name: said.Node},
	}
	for _, key := range []string{keys.ChargedAnnotation, keys.ChargedAsAnnotation, keys.DecidedAnnotation} {
		if text := br.Annotations[key]; text != "" || pod != nil && pod.Annotations[key] != "" { // what somebody else wrote there is overwritten
			b.Annotations[key] = text
		}
	}
	if bundle != "" {
		b.Annotations[BundleLabel] = bundle
	}
	c := ReadCharged(said.Namespace, br.Annotations)
	own := br.Annotations[keys.OwnGangAnnotation]
	if own != "" { // nobody has told the pod yet
		b.Annotations[keys.OwnGangAnnotation] = own
	}
	switch {
	case pod == nil, c.Gang.Name == "":
	case c.Gang == volcano.GangKey(pod.Namespace, volcano.GroupOfOwner(pod)) && pod.Annotations[vckeys.GroupName] == "":
		b.Annotations[vckeys.GroupName] = c.Gang.Name
	case own != "":
	case c.Gang == GangKey(pod.Namespace, GangOfOwner(pod)):
		b.Annotations[PodGroupAnnotation] = c.Gang.Name
	}
	if len(br.Spec.PredictedNUMAZones) > 0 {
		zones, err := json.Marshal(br.Spec.PredictedNUMAZones)
		if err != nil {
			return nil, fmt.Errorf("spec.predictedNUMAZones: %w", err)
		}
		b.Annotations[keys.NUMAPredictedAnnotation] = string(zones)
	}
	return b, nil
}

// Binding returns the object that carries the intent out for a pod that needs no preparing: see NeedsBinder.
func (in *Intent) Binding(pod *v1.Pod) (*v1.Binding, error) {
	return Bind(in.BindRequest(), pod, in.Bundle)
}

// NeedsBinder says whether the binder has something to do for the pod besides its Binding: to prepare a shared device, a claim of devices or
// a volume, or to tell its user how a slice of a device is kept apart. It looks at the pod's spec alone: a volume that is there already
// counts, too. Whatever one of the binder's preparers may find relevant is among it.
func (in *Intent) NeedsBinder(pod *v1.Pod) bool {
	if len(in.Groups)+len(in.Claims)+len(in.Containers)+len(pod.Spec.ResourceClaims) > 0 {
		return true
	}
	for i := range pod.Spec.Volumes {
		if v := &pod.Spec.Volumes[i]; v.PersistentVolumeClaim != nil || v.Ephemeral != nil {
			return true
		}
	}
	for _, list := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			for name := range list[i].Resources.Limits { // order: any will do
				if strings.HasPrefix(string(name), keys.MIGResourcePrefix) {
					return true
				}
			}
		}
	}
	return false
}
