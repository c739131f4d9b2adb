package nodescale

import (
	"maps"
	"math"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-scheduler/muster/api/scheduling/v2alpha2"
	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/dialect/kai"
)

type key = types.NamespacedName

// book is what the role knows of the cluster: of pods that share GPUs, of gangs that nodes would not help, of pods that are
// being bound, and of scaling pods. Each method says whether a decision could come out otherwise. It is not safe for
// concurrent use.
type book struct {
	o         Options
	nodesHelp func(reason string) bool
	sharers   map[key]*sharer
	blocked   map[key]bool // PodGroups that name a reason that no node lifts
	binding   map[key]types.UID
	asks      map[string]ask // by name
}

// sharer is a pod that shares GPUs.
type sharer struct {
	pod    *corev1.Pod // the cache's
	group  key
	want   demand
	marked bool // the scheduler says that it finds no node
	bound  bool // it has a node, or is promised one
}

func newBook(o Options, nodesHelp func(string) bool) *book {
	return &book{o: o, nodesHelp: nodesHelp, sharers: map[key]*sharer{}, blocked: map[key]bool{}, binding: map[key]types.UID{}, asks: map[string]ask{}}
}

func keyOf(namespace, name string) key { return key{Namespace: namespace, Name: name} }

// podSeen takes in a pod that was created or updated. It is kept, not changed.
func (b *book) podSeen(p *corev1.Pod) bool {
	if b.o.ours(p) {
		a := askOf(p)
		was, known := b.asks[p.Name]
		b.asks[p.Name] = a
		return !known || was != a
	}
	name := keyOf(p.Namespace, p.Name)
	was := b.sharers[name]
	now := b.read(p)
	if now == nil {
		delete(b.sharers, name)
		return was != nil
	}
	b.sharers[name] = now
	return was == nil || was.want != now.want || was.marked != now.marked || was.bound != now.bound || was.group != now.group
}

// read is what a pod is to the role; nil when it is nothing to it.
func (b *book) read(p *corev1.Pod) *sharer {
	if !slices.Contains(b.o.SchedulerNames, p.Spec.SchedulerName) || p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
		return nil
	}
	share, wrong := kai.Share(p)
	if share.None() || wrong != "" {
		return nil
	}
	s := &sharer{pod: p, want: demand{pod: keyOf(p.Namespace, p.Name), devices: int64(share.Devices), portion: share.Portion}}
	if share.Portion == 0 {
		s.want.portion = max(1, cluster.Portion(math.Round(b.o.MemoryRatio*float64(cluster.WholePortion))))
	}
	c := b.o.constraintsOf(p)
	s.want.shape = c.shape()
	if gang, _ := kai.Membership(p); gang.Name != "" {
		s.group = keyOf(p.Namespace, gang.Name)
	}
	s.bound = p.Spec.NodeName != "" || p.Status.NominatedNodeName != ""
	for i := range p.Status.Conditions {
		if c := &p.Status.Conditions[i]; c.Type == corev1.PodScheduled {
			s.marked = c.Status == corev1.ConditionFalse && c.Reason == corev1.PodReasonUnschedulable
		}
	}
	if p.DeletionTimestamp != nil || len(p.Spec.SchedulingGates) > 0 {
		s.marked = false
	}
	return s
}

// podGone takes in that a pod was deleted.
func (b *book) podGone(p *corev1.Pod) bool {
	if b.o.ours(p) {
		_, known := b.asks[p.Name]
		delete(b.asks, p.Name)
		return known
	}
	name := keyOf(p.Namespace, p.Name)
	known := b.sharers[name] != nil
	delete(b.sharers, name)
	return known
}

// groupSeen takes in a PodGroup; gone says that it was deleted.
func (b *book) groupSeen(pg *v2alpha2.PodGroup, gone bool) bool {
	name := keyOf(pg.Namespace, pg.Name)
	was := b.blocked[name]
	now := !gone && kai.Blocked(pg, b.nodesHelp) != ""
	if now {
		b.blocked[name] = true
	} else {
		delete(b.blocked, name)
	}
	return was != now
}

// requestSeen takes in a BindRequest for the pod called name; gone says that it was deleted.
func (b *book) requestSeen(namespace, name string, uid types.UID, gone bool) bool {
	pod := keyOf(namespace, name)
	was := b.binding[pod]
	switch {
	case !gone:
		b.binding[pod] = uid
	case was == uid:
		delete(b.binding, pod)
	}
	return (was != "") != (b.binding[pod] != "")
}

// look says how a pod is doing.
func (b *book) look(pod key) standing {
	s := b.sharers[pod]
	switch {
	case s == nil:
		return absent
	case s.bound || b.binding[pod] != "":
		return placed
	case !s.marked || b.blocked[s.group]:
		return blocked
	}
	return waiting
}

// state is what decide needs, in the order of names.
func (b *book) state() (demands []demand, asks []ask) {
	for name, s := range b.sharers { // order: sorted below
		if b.look(name) == waiting {
			demands = append(demands, s.want)
		}
	}
	asks = slices.Collect(maps.Values(b.asks)) // decide sorts them
	slices.SortFunc(demands, func(a, b demand) int { return strings.Compare(a.pod.String(), b.pod.String()) })
	return demands, asks
}
