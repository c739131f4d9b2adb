package podaffinity

import (
	"cmp"
	"slices"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/muster-scheduler/muster/internal/cluster"
)

// term is one pod affinity term, ready to be matched.
type term struct {
	topology   string
	weight     int64 // negative for anti-affinity
	selector   labels.Selector
	namespaces []string
	spaces     labels.Selector // by labels of the namespace
	label      pair            // that all whom it means have
	named      bool            // there is such a one
}

// means says whether the term speaks of a pod; space are the labels of its namespace.
func (t *term) means(namespace string, of, space map[string]string) bool {
	return (slices.Contains(t.namespaces, namespace) || t.spaces.Matches(labels.Set(space))) && t.selector.Matches(labels.Set(of))
}

// parse reads a term of a pod in a namespace; false for one that cannot be read, which scores nothing.
func parse(t *v1.PodAffinityTerm, namespace string, weight int64) (term, bool) {
	selector, err := metav1.LabelSelectorAsSelector(t.LabelSelector)
	if err != nil {
		return term{}, false
	}
	spaces, err := metav1.LabelSelectorAsSelector(t.NamespaceSelector)
	if err != nil {
		return term{}, false
	}
	out := term{topology: t.TopologyKey, weight: weight, selector: selector, namespaces: t.Namespaces, spaces: spaces}
	out.label, out.named = label(t.LabelSelector)
	if len(t.Namespaces) == 0 && t.NamespaceSelector == nil {
		out.namespaces = []string{namespace}
	}
	return out, true
}

// voiceOf reads what pods of a class say about others.
func voiceOf(c *cluster.Class) *voice {
	v := &voice{class: c}
	prefer := func(ts []v1.WeightedPodAffinityTerm, sign int64) {
		for i := range ts {
			if t, ok := parse(&ts[i].PodAffinityTerm, c.Namespace, sign*int64(ts[i].Weight)); ok {
				v.prefers = append(v.prefers, t)
			}
		}
	}
	if a := c.PodAffinity; a != nil {
		prefer(a.PreferredDuringSchedulingIgnoredDuringExecution, 1)
		for i := range a.RequiredDuringSchedulingIgnoredDuringExecution {
			if t, ok := parse(&a.RequiredDuringSchedulingIgnoredDuringExecution[i], c.Namespace, requiredWeight); ok {
				v.asks = append(v.asks, t)
			}
		}
	}
	if a := c.PodAntiAffinity; a != nil {
		prefer(a.PreferredDuringSchedulingIgnoredDuringExecution, -1)
	}
	return v
}

// listen finds the classes that say something about others: one look at every pod, once per run.
func (i *instance) listen() {
	if i.voices != nil {
		return
	}
	i.voices, i.byKey, i.byPod, i.domains = map[uint64]*voice{}, map[string]int{}, map[cluster.PodID]int{}, map[string]map[string][]cluster.NodeID{}
	i.view.Snapshot().EachPod(func(p *cluster.Pod) {
		if _, known := i.voices[p.Class.ID]; known || !p.Class.PrefersPods() {
			return
		}
		v := voiceOf(p.Class)
		i.voices[p.Class.ID] = v
		i.order = append(i.order, v)
	})
	slices.SortFunc(i.order, func(a, b *voice) int { return cmp.Compare(a.class.Key, b.class.Key) })
	i.index.name(i.order)
}

// namespace returns a namespace's labels.
func (i *instance) namespace(name string) map[string]string {
	if n, ok := i.view.Snapshot().Object(cluster.Namespaces, name).(*v1.Namespace); ok {
		return n.Labels
	}
	return nil
}
