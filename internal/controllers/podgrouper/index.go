package podgrouper

import (
	"maps"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// index finds values by what they have in common. The zero value of either is none.
type index[K, V comparable] map[K]several[V]

// several are values: mostly one, for which there is no map. Many are not a list, of which taking out is dear.
type several[V comparable] struct {
	one  V
	more map[V]struct{}
}

// add adds a value, once. One that is there is replaced by its equal, so that no text is kept that nobody else has any more.
func (x index[K, V]) add(by K, v V) {
	s := x[by]
	var none V
	_, among := s.more[v]
	switch {
	case s.one == v, s.one == none && !among:
		s.one = v
	case s.more == nil:
		s.more = map[V]struct{}{v: {}}
	default:
		s.more[v] = struct{}{}
	}
	x[by] = s
}

func (x index[K, V]) remove(by K, v V) {
	s, found := x[by]
	if !found {
		return
	}
	var none V
	delete(s.more, v)
	if s.one == v {
		s.one = none
	}
	if x[by] = s; s.one == none && len(s.more) == 0 {
		delete(x, by)
	}
}

// of are the values, a copy.
func (x index[K, V]) of(by K) []V {
	s := x[by]
	out := make([]V, 0, 1+len(s.more))
	var none V
	if s.one != none {
		out = append(out, s.one)
	}
	return slices.AppendSeq(out, maps.Keys(s.more))
}

// owned finds the pods of the role's schedulers by the UID of their first owner. There is an entry for each pod that stands alone, which a field
// index of the cache keeps in five times the space: two sets, and a text that is the key of each. It hears of a pod before anybody is
// asked to work on it. It is safe for concurrent use.
type owned struct {
	schedulers []string

	mu   sync.Mutex
	pods index[types.UID, types.NamespacedName]
}

func newOwned(schedulers []string) *owned {
	return &owned{schedulers: schedulers, pods: index[types.UID, types.NamespacedName]{}}
}

// saw takes in that a pod is what it was not; nil is no pod.
func (o *owned) saw(was, is *corev1.Pod) {
	before, now := o.owner(was), o.owner(is)
	o.mu.Lock()
	defer o.mu.Unlock()
	if before != "" && before != now {
		o.pods.remove(before, types.NamespacedName{Namespace: was.Namespace, Name: was.Name})
	}
	if now != "" {
		o.pods.add(now, types.NamespacedName{Namespace: is.Namespace, Name: is.Name})
	}
}

// of are the pods of an owner, in no particular order.
func (o *owned) of(owner types.UID) []types.NamespacedName {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.pods.of(owner)
}

// owner is by what a pod is found: its first owner, if it is of the role's schedulers; "" for none.
func (o *owned) owner(pod *corev1.Pod) types.UID {
	if pod == nil || len(pod.OwnerReferences) == 0 || !slices.Contains(o.schedulers, pod.Spec.SchedulerName) {
		return ""
	}
	return pod.OwnerReferences[0].UID
}
