package dialect

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-scheduler/muster/api/scheduling/v2alpha2"
	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/dialect/kai"
)

// A pod may be a gang by itself, for which there is no PodGroup (kai.OwnGang). It is taken for the PodGroup that it does without, for as
// long as there is none of its name: then that counts, for this pod too, if it is of the same queue. So whoever may make PodGroups moves
// no pod to another queue by the name of one; the podgrouper judges that.

// standing is what a gang is: its PodGroup, or else what the pod of the smallest UID among those that are it by themselves says; nil for
// neither. The latter costs a JSON decoding: it is not kept, since there may be as many such gangs as pods.
func (t *Translator) standing(key types.NamespacedName) *v2alpha2.PodGroup {
	if pg := t.groups[key]; pg != nil {
		return pg
	}
	var least *v1.Pod
	for _, pod := range t.owns[key] {
		if p := t.pods[pod]; least == nil || p.UID < least.UID {
			least = p
		}
	}
	if least == nil {
		return nil
	}
	return t.ownGangs.Of(least)
}

// own takes in what gang the pod is by itself, when it changes from old to p; nil is no pod. It returns the gang that it was and is not any
// more, to be told of once the pod has been.
func (t *Translator) own(key types.NamespacedName, old, p *v1.Pod, apply func(cluster.Event)) (left types.NamespacedName) {
	if kai.OwnGangSays(old) == kai.OwnGangSays(p) {
		return left
	}
	var before, after *v2alpha2.PodGroup
	if old != nil {
		before = t.ownGangs.Of(old)
	}
	if p != nil {
		after = t.ownGangs.Of(p)
	}
	if before != nil {
		gang := types.NamespacedName{Namespace: key.Namespace, Name: before.Name}
		pods := t.owns[gang]
		if at := slices.Index(pods, key); at >= 0 {
			pods = slices.Delete(pods, at, at+1)
		}
		if t.owns[gang] = pods; len(pods) == 0 {
			delete(t.owns, gang)
		}
		if after == nil || after.Name != before.Name {
			left = gang
		}
	}
	if after != nil {
		gang := types.NamespacedName{Namespace: key.Namespace, Name: after.Name}
		t.owns[gang] = append(t.owns[gang], key)
		t.readGang(gang, apply)
	}
	return left
}

// stranger says whether a pod is a gang by itself in another queue than the gang of that name is in: then it is in none.
func (t *Translator) stranger(p *v1.Pod) bool {
	own := t.ownGangs.Of(p)
	if own == nil {
		return false
	}
	gang := types.NamespacedName{Namespace: p.Namespace, Name: own.Name}
	if pods := t.owns[gang]; t.groups[gang] == nil && len(pods) == 1 && pods[0].Name == p.Name {
		return false // it stands for it
	}
	pg := t.standing(gang)
	return pg != nil && pg.Spec.Queue != own.Spec.Queue
}

// readGang tells of a gang as it stands.
func (t *Translator) readGang(key types.NamespacedName, apply func(cluster.Event)) {
	pg := t.standing(key)
	t.admit(key, pg)
	theirs := pg != nil && !t.partition.Includes(pg.Labels)
	inOtherShard := ""
	if theirs {
		inOtherShard = string(pg.UID)
	}
	t.gang(kai.GangKey(key.Namespace, key.Name), pg != nil && !theirs, inOtherShard)
	for _, pod := range t.owns[key] { // whether they are of its queue
		t.dirty[pod] = struct{}{}
	}
	if pg == nil || theirs {
		delete(t.gangs, key)
		t.problem(PodGroups, key, "")
		apply(cluster.GangGone{Key: kai.GangKey(key.Namespace, key.Name)})
		return
	}
	t.gangs[key] = struct{}{}
	st := kai.Gang(pg, &t.priorities, t.partition.Pool())
	t.problem(PodGroups, key, st.Invalid)
	apply(st)
}
