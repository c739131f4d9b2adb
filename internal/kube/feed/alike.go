package feed

import (
	"hash/maphash"
	"maps"
	"reflect"
	"slices"
	"sync"
	"unsafe"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// alike keeps once what many cached objects say alike, since whatever a watch tells is decoded into memory of its own: of pods of one shape
// that is a third. It remembers what it saw last for each slot of its tables, which bounds it; what is not shared is only larger. What it gives out is
// never written to. It is safe for concurrent use.
type alike struct {
	seed        maphash.Seed
	mu          sync.Mutex
	words       [1024]string
	texts       [256]map[string]string
	amounts     [256]v1.ResourceList
	tolerations [64][]v1.Toleration
}

const (
	// maxWord is how long a text is that is kept once, in bytes; maxAlike how many entries a list has.
	maxWord  = 64
	maxAlike = 32
)

func newAlike() *alike { return &alike{seed: maphash.MakeSeed()} }

// metadata does it for what objects of every kind have.
func (a *alike) metadata(o client.Object) {
	a.mu.Lock()
	defer a.mu.Unlock()
	owners := o.GetOwnerReferences()
	for i := range owners { // of the object: they are no copy for what is cached
		word(a, &owners[i].APIVersion)
		word(a, &owners[i].Kind)
	}
	value := func(s *string) {
		if *s == o.GetName() {
			*s = o.GetName()
			return
		}
		for i := range owners {
			switch *s {
			case owners[i].Name:
				*s = owners[i].Name
				return
			case string(owners[i].UID):
				*s = string(owners[i].UID)
				return
			}
		}
		word(a, s)
	}
	if m, changed := a.pairs(o.GetLabels(), value); changed {
		o.SetLabels(m)
	}
	if m, changed := a.pairs(o.GetAnnotations(), func(*string) {}); changed {
		o.SetAnnotations(m)
	}
}

// pairs is the map that another has if that is equal and of short texts, as the annotations of an owner of pods mostly are; or else one with the keys, and with
// value the values, that others have.
func (a *alike) pairs(m map[string]string, value func(*string)) (map[string]string, bool) {
	if len(m) == 0 || len(m) > maxAlike {
		return m, false
	}
	sum, short := uint64(0), true
	for k, v := range m { // order: sums
		sum += maphash.String(a.seed, k) * (maphash.String(a.seed, v) | 1)
		short = short && len(k) <= maxWord && len(v) <= maxWord
	}
	slot := &a.texts[sum%uint64(len(a.texts))]
	if short && maps.Equal(*slot, m) {
		return *slot, reflect.ValueOf(*slot).Pointer() != reflect.ValueOf(m).Pointer()
	}
	out, changed := make(map[string]string, len(m)), false
	for k, v := range m { // order: each for itself
		sharedKey, sharedValue := k, v
		word(a, &sharedKey)
		value(&sharedValue)
		changed = changed || !same(k, sharedKey) || !same(v, sharedValue)
		out[sharedKey] = sharedValue
	}
	if !changed {
		out = m
	}
	if short {
		*slot = out
	}
	return out, changed
}

// pod does it for the rest of a pod.
func (a *alike) pod(p *v1.Pod) {
	a.mu.Lock()
	defer a.mu.Unlock()
	word(a, &p.Namespace)
	for i := range p.Finalizers {
		word(a, &p.Finalizers[i])
	}
	s := &p.Spec
	for _, text := range [...]*string{&s.NodeName, &s.SchedulerName, &s.ServiceAccountName, &s.DeprecatedServiceAccount, &s.PriorityClassName} {
		word(a, text)
	}
	word(a, &s.RestartPolicy)
	word(a, &s.DNSPolicy)
	for _, list := range [2][]v1.Container{s.InitContainers, s.Containers} {
		for i := range list {
			c := &list[i]
			word(a, &c.Name)
			word(a, &c.Image)
			word(a, &c.ImagePullPolicy)
			word(a, &c.TerminationMessagePath)
			word(a, &c.TerminationMessagePolicy)
			a.share(&c.Resources.Requests)
			a.share(&c.Resources.Limits)
		}
	}
	a.tolerate(&s.Tolerations)
	word(a, &p.Status.Phase)
	word(a, &p.Status.QOSClass)
	for i := range p.Status.Conditions {
		c := &p.Status.Conditions[i]
		word(a, &c.Type)
		word(a, &c.Status)
		word(a, &c.Reason)
	}
	for _, list := range [2][]v1.ContainerStatus{p.Status.InitContainerStatuses, p.Status.ContainerStatuses} {
		for i := range list {
			word(a, &list[i].Name)
		}
	}
}

// node does it for the rest of a node.
func (a *alike) node(n *v1.Node) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.share(&n.Status.Capacity)
	a.share(&n.Status.Allocatable)
}

// share makes a list of amounts the one of all that are equal, to the letter.
func (a *alike) share(l *v1.ResourceList) {
	if len(*l) == 0 || len(*l) > maxAlike {
		return
	}
	var sum uint64
	for name, q := range *l { // order: a sum
		sum += maphash.String(a.seed, string(name)) * uint64(q.Value()+1)
	}
	slot := &a.amounts[sum%uint64(len(a.amounts))]
	if !maps.Equal(*slot, *l) {
		*slot = *l
	} else if reflect.ValueOf(*slot).Pointer() != reflect.ValueOf(*l).Pointer() {
		*l = *slot
	}
}

// tolerate makes a list of tolerations the one of all that are equal.
func (a *alike) tolerate(l *[]v1.Toleration) {
	if len(*l) == 0 || len(*l) > maxAlike {
		return
	}
	slot := &a.tolerations[maphash.String(a.seed, (*l)[0].Key+(*l)[len(*l)-1].Key)%uint64(len(a.tolerations))]
	if !slices.EqualFunc(*slot, *l, func(x, y v1.Toleration) bool {
		return x.MatchToleration(&y) && ptr.Equal(x.TolerationSeconds, y.TolerationSeconds)
	}) {
		*slot = slices.Clip(*l)
	} else if &(*slot)[0] != &(*l)[0] {
		*l = *slot
	}
}

// word makes a text the one of all that are equal. It is called with a's lock held.
func word[S ~string](a *alike, s *S) {
	text := string(*s)
	if text == "" || len(text) > maxWord {
		return
	}
	slot := &a.words[maphash.String(a.seed, text)%uint64(len(a.words))]
	if *slot != text {
		*slot = text
	} else if !same(*slot, text) {
		*s = S(*slot)
	}
}

// same says whether two equal texts are one in memory: nothing is to be written then.
func same(x, y string) bool { return unsafe.StringData(x) == unsafe.StringData(y) }
