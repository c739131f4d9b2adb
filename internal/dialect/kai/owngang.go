package kai

import (
	"encoding/json"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-scheduler/muster/api/kai/keys"
	"github.com/muster-scheduler/muster/api/scheduling/v2alpha2"
)

// maxOwnGang is how long the annotation may be, in bytes: what caches keep of one.
const maxOwnGang = 4096

// ownGangText is the text of keys.OwnGangAnnotation.
type ownGangText struct {
	// Pod is whose gang it is: on another pod, made of the same template or copied, it is none.
	Pod types.UID `json:"pod"`
	// Name is the PodGroup's, UID that of what it is named after: the pod itself, or the workload that makes it anew.
	Name string    `json:"name"`
	UID  types.UID `json:"uid"`
	// Labels is the PodGroup's label of its node pool, if it has one.
	Labels map[string]string     `json:"labels,omitempty"`
	Spec   v2alpha2.PodGroupSpec `json:"spec"`
}

// OwnGang returns the gang that a pod is by itself, as the PodGroup that it does without; nil for a pod that names a PodGroup, or is in no
// gang. One that was bound as that gang stays it, whatever PodGroup it names since. The PodGroup's UID is that of what it is named after: there
// is no object of it. It costs a JSON decoding; see OwnGangs.
func OwnGang(p *v1.Pod) *v2alpha2.PodGroup { return new(OwnGangs).Of(p) }

// OwnGangs is OwnGang for who asks about a pod several times over before he asks about another: it remembers its last answer. The zero value is
// ready. It is not safe for concurrent use.
type OwnGangs struct {
	said OwnGangSaid
	gang *v2alpha2.PodGroup
	text string // that was decoded last
	own  *ownGangText
}

// OwnGangSaid is all that OwnGang reads of a pod; the zero value if the pod is certainly no gang by itself.
type OwnGangSaid struct {
	namespace             string
	uid                   types.UID
	created               metav1.Time
	own, group, decidedAt string
	charged               string
	bound                 bool
}

// OwnGangSays is all that OwnGang reads of a pod, nil for none.
func OwnGangSays(p *v1.Pod) OwnGangSaid {
	if p == nil || p.Annotations[keys.OwnGangAnnotation] == "" {
		return OwnGangSaid{}
	}
	return OwnGangSaid{
		namespace: p.Namespace, uid: p.UID, created: p.CreationTimestamp,
		own: p.Annotations[keys.OwnGangAnnotation], group: p.Annotations[PodGroupAnnotation], decidedAt: p.Annotations[keys.DecidedAnnotation],
		charged: p.Annotations[keys.ChargedAnnotation], bound: p.Spec.NodeName != "",
	}
}

// Of is OwnGang of a pod. What it returns is not to be changed.
func (g *OwnGangs) Of(p *v1.Pod) *v2alpha2.PodGroup {
	said := OwnGangSays(p)
	if said.own == "" || said.group != "" && !said.bound {
		return nil
	}
	if said != g.said {
		g.gang = g.read(&said)
		g.said = said
	}
	return g.gang
}

func (g *OwnGangs) read(said *OwnGangSaid) *v2alpha2.PodGroup {
	if said.own != g.text {
		g.text, g.own = said.own, new(ownGangText)
		if json.Unmarshal([]byte(said.own), g.own) != nil {
			*g.own = ownGangText{}
		}
	}
	own := g.own
	if own.Pod != said.uid || own.Name == "" || own.Spec.Queue == "" {
		return nil
	}
	if said.group != "" && ReadCharged(said.namespace, map[string]string{keys.ChargedAnnotation: said.charged}).Gang.Name != own.Name {
		return nil
	}
	pg := &v2alpha2.PodGroup{
		ObjectMeta: metav1.ObjectMeta{Namespace: said.namespace, Name: own.Name, UID: own.UID, Labels: own.Labels, CreationTimestamp: said.created},
		Spec:       own.Spec,
	}
	if at := said.decidedAt; at != "" && said.bound { // before, anybody could have written it
		pg.Annotations = map[string]string{LastStartAnnotation: at}
	}
	return pg
}

// WriteOwnGang returns the annotation by which a pod is, by itself, the gang of a PodGroup as wanted; "" if it cannot be said so: the gang is
// of more than one pod, or the text too long. pool is the key of the label of node pools.
func WriteOwnGang(p *v1.Pod, wanted *v2alpha2.PodGroup, pool string) string {
	spec := &wanted.Spec
	if spec.MinMember != nil && *spec.MinMember > 1 || spec.MinSubGroup != nil || len(spec.SubGroups) > 0 || spec.Queue == "" || p.UID == "" {
		return ""
	}
	own := ownGangText{Pod: p.UID, Name: wanted.Name, UID: p.UID, Spec: *spec}
	if len(wanted.OwnerReferences) > 0 {
		own.UID = wanted.OwnerReferences[0].UID
	}
	if value, labelled := wanted.Labels[pool]; labelled {
		own.Labels = map[string]string{pool: value}
	}
	text, err := json.Marshal(own)
	if err != nil || len(text) > maxOwnGang {
		return ""
	}
	return string(text)
}

// Decided is the text of keys.DecidedAnnotation.
func Decided(at time.Time) string { return at.UTC().Format(time.RFC3339Nano) }
