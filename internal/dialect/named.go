package dialect

import (
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	"k8s.io/apimachinery/pkg/util/validation"

	kbkeys "github.com/muster-scheduler/muster/api/kubebatch/keys"
	kbv1alpha1 "github.com/muster-scheduler/muster/api/kubebatch/v1alpha1"
	kbv1alpha2 "github.com/muster-scheduler/muster/api/kubebatch/v1alpha2"
	"github.com/muster-scheduler/muster/api/scheduling/v2alpha2"
	vckeys "github.com/muster-scheduler/muster/api/volcano/keys"
	vcv1beta1 "github.com/muster-scheduler/muster/api/volcano/scheduling/v1beta1"
	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/dialect/kai"
	"github.com/muster-scheduler/muster/internal/dialect/kubebatch"
	"github.com/muster-scheduler/muster/internal/dialect/upstream"
	"github.com/muster-scheduler/muster/internal/dialect/volcano"
)

// NamedGroup is the PodGroup that a pod names as the one it is in.
type NamedGroup struct {
	// Field is the pod's field that names it.
	Field string
	// Name is what stands there, cut to a length fit for a sentence.
	Name string
	// Possible says that a PodGroup can have that name.
	Possible bool

	namespace, of string
}

// String is "train of scheduling.volcano.sh in namespace team": of which API groups it is looked for, and where.
func (n NamedGroup) String() string {
	return fmt.Sprintf("%s of %s in namespace %s", n.Name, n.of, n.namespace)
}

// GroupNamedBy is the PodGroup that p names if that is the gang of that key, whether it is there or not. ok is false for a pod that names none: one that is in the gang of its owner, or a gang without an object.
func GroupNamedBy(p *v1.Pod, gang cluster.Key) (named NamedGroup, ok bool) {
	name := ""
	switch gang.Face {
	case volcano.Face:
		named.of, name, named.Field = vcv1beta1.GroupVersion.Group, p.Annotations[vckeys.GroupName], annotation(vckeys.GroupName)
	case kubebatch.Face:
		named.of, name, named.Field = kbv1alpha1.GroupVersion.Group+" or "+kbv1alpha2.GroupVersion.Group, p.Annotations[kbkeys.GroupName], annotation(kbkeys.GroupName)
	case upstream.Face:
		named.of, name, named.Field = schedulingv1beta1.GroupName, upstream.Membership(p).Name, "spec.schedulingGroup.podGroupName"
	case kai.Face:
		named.of, name, named.Field = v2alpha2.GroupVersion.Group, p.Annotations[kai.PodGroupAnnotation], annotation(kai.PodGroupAnnotation)
	}
	if name == "" || name != gang.Name || p.Namespace != gang.Namespace {
		return NamedGroup{}, false
	}
	named.namespace, named.Name, named.Possible = p.Namespace, shortened(name), len(validation.IsDNS1123Subdomain(name)) == 0
	return named, true
}

func annotation(key string) string { return "metadata.annotations[" + key + "]" }

// shortened cuts a user's text to what any object may be called.
func shortened(s string) string {
	const most = 253
	if len(s) > most {
		return strings.ToValidUTF8(s[:most], "") + "…"
	}
	return strings.ToValidUTF8(s, "�")
}
