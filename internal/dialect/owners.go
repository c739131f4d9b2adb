package dialect

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-scheduler/muster/api/scheduling/v2alpha2"
	"github.com/muster-scheduler/muster/internal/dialect/kai"
	"github.com/muster-scheduler/muster/internal/entry"
)

// A pod that says nothing of a gang is in that of its owner (kai.GangOfOwner), unless the PodGroup of that name is not one for it: it has
// subgroups, or the pod names another queue. The podgrouper judges such a pod, and tells it its gang if it has one.

// admits is all of a gang by which the pods of its owner are told apart.
type admits struct {
	subgroups    bool
	queue, label string
}

// admit keeps by what pods of a gang's owner are judged, and has them told anew when that changes; nil is no gang. Of a gang that a pod is by itself it
// is kept while there is such a pod besides.
func (t *Translator) admit(key types.NamespacedName, pg *v2alpha2.PodGroup) {
	was, known := t.admitted[key]
	if pg == nil || t.groups[key] == nil && len(t.owned[key]) == 0 {
		delete(t.admitted, key)
	} else {
		is := admits{len(pg.Spec.SubGroups) > 0, pg.Spec.Queue, pg.Labels[t.queueLabel]}
		if known && was == is {
			return
		}
		t.admitted[key] = is
	}
	for pod := range t.owned[key] { // order: each pod on its own
		t.dirty[pod] = struct{}{}
	}
}

// excludes says whether a pod is not in the gang of its owner, as far as it would be by that alone.
func (t *Translator) excludes(p *v1.Pod) bool {
	name := kai.GangOfOwner(p)
	if name == "" {
		return false
	}
	a, there := t.admitted[types.NamespacedName{Namespace: p.Namespace, Name: name}]
	own := p.Labels[t.queueLabel]
	return there && (a.subgroups || own != "" && own != a.queue && own != a.label)
}

// ownedBy keeps which pods are in the gangs of their owners, when a pod changes from old to p; nil is no pod.
func (t *Translator) ownedBy(key types.NamespacedName, old, p *v1.Pod) {
	name := func(p *v1.Pod) (gang types.NamespacedName) {
		if p != nil {
			gang = types.NamespacedName{Namespace: p.Namespace, Name: kai.GangOfOwner(p)}
		}
		return gang
	}
	was, is := name(old), name(p)
	if was == is {
		return
	}
	if was.Name != "" {
		delete(t.owned[was], key)
		if len(t.owned[was]) == 0 {
			delete(t.owned, was)
		}
	}
	if is.Name != "" {
		entry.Put(t.owned, is, key, struct{}{})
		if _, known := t.admitted[is]; !known {
			t.admit(is, t.standing(is))
		}
	}
}
