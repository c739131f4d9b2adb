package filters

import (
	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/labels"
	corelisters "k8s.io/client-go/listers/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/interpodaffinity"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine/policy"
)

// affinity asks upstream's InterPodAffinity. What upstream computes for a pod before it looks at nodes is kept, per class
// or per pod, and follows placements through upstream's own AddPod and RemovePod.
type affinity struct {
	*instance
	upstream   *interpodaffinity.InterPodAffinity
	namespaces corelisters.NamespaceLister
	reasons    map[string]*policy.Reason
	classes    map[uint64]*neighbour // of pods with terms of their own: labels and namespace are in the class
	pods       map[cluster.PodID]*neighbour
	aways      map[string]*keptAway // by what their terms say
}

// neighbour is a pod, standing for all like it, that is asked about.
type neighbour struct {
	info   *podInfo
	own    bool           // it has terms of its own
	made   bool           // state is made; it is when the first node is asked about, as that costs a look at all whom the terms mean
	state  fwk.CycleState // nil when every node is fine
	failed policy.Verdict // its terms cannot be understood
	read   int            // how much of the log is in state
}

func affinityReasons() map[string]*policy.Reason {
	return map[string]*policy.Reason{
		interpodaffinity.ErrReasonAffinityRulesNotMatch:             ReasonPodAffinity,
		interpodaffinity.ErrReasonAntiAffinityRulesNotMatch:         ReasonPodAntiAffinity,
		interpodaffinity.ErrReasonExistingAntiAffinityRulesNotMatch: ReasonPodAntiAffinity,
	}
}

func (i *instance) affinity() *affinity {
	if i.social == nil {
		h := newHandle(i.upstream(), i.options)
		p, err := interpodaffinity.New(i.ctx, &config.InterPodAffinityArgs{}, h, features())
		i.social = &affinity{
			instance: i, upstream: must[*interpodaffinity.InterPodAffinity](p, err), namespaces: h.SharedInformerFactory().Core().V1().Namespaces().Lister(),
			reasons: affinityReasons(), classes: map[uint64]*neighbour{}, pods: map[cluster.PodID]*neighbour{}, aways: map[string]*keptAway{},
		}
	}
	return i.social
}

func (a *affinity) check(p *pod, n *node) policy.Verdict {
	b := a.neighbour(p)
	if b.made {
		a.catchUp(b)
	} else {
		if r := a.refuses(p); r.why != nil && holds(r.nodes, n.ID) {
			return *r.why
		}
		a.compute(b)
	}
	if b.state == nil {
		return b.failed
	}
	return verdict(a.upstream.Filter(a.ctx, b.state, &b.info.pod, a.seen.byID[n.ID]), a.reasons)
}

func (a *affinity) neighbour(p *pod) *neighbour {
	c := p.Class
	own := requiresDistance(c) || c.PodAffinity != nil && len(c.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution) > 0
	var b *neighbour
	if own {
		b = a.classes[c.ID]
	} else {
		b = a.pods[p.ID]
	}
	if b != nil {
		return b
	}
	b = &neighbour{info: a.seen.info(p), own: own}
	if own {
		a.classes[c.ID] = b
	} else {
		a.pods[p.ID] = b
	}
	return b
}

// compute asks upstream from scratch: it looks at the pods of every node where one may be that the pod's own terms mean, and at those
// with anti-affinity; not at all if it has no terms and none of theirs means this pod.
func (a *affinity) compute(b *neighbour) {
	a.news(&b.read)
	b.made, b.state, b.failed = true, nil, policy.Verdict{}
	if !b.own && !a.disliked(b.info) {
		return
	}
	state := framework.NewCycleState()
	a.seen.asks = &b.info.pod
	_, s := a.upstream.PreFilter(a.ctx, state, &b.info.pod, a.seen.meant(b.info.spec.class))
	a.seen.asks = nil
	switch {
	case s.IsSkip():
	case s.IsSuccess():
		b.state = state
	default:
		b.failed = verdict(s, a.reasons)
	}
}

// disliked says whether the anti-affinity of any pod on a node means this pod.
func (a *affinity) disliked(p *podInfo) bool {
	var of labels.Set
	known := false
	for s := range a.seen.wary(p.pod.Labels) {
		if !known {
			of, known = interpodaffinity.GetNamespaceLabelsSnapshot(logr.Discard(), p.pod.Namespace, a.namespaces), true
		}
		for t := range s.anti {
			if s.anti[t].Matches(&p.pod, of) {
				return true
			}
		}
	}
	return false
}

// catchUp takes what has come and gone since into the state.
func (a *affinity) catchUp(b *neighbour) {
	if b.read == len(a.log) || !b.failed.Yes() {
		return
	}
	news := a.news(&b.read)
	if b.state == nil { // only a pod with anti-affinity that comes can change that
		for i := range news {
			if c := &news[i]; c.by > 0 && requiresDistance(c.pod.Class) {
				a.compute(b)
				return
			}
		}
		return
	}
	for i := range news {
		var s *fwk.Status
		c := &news[i]
		if info := a.seen.info(c.pod); c.by > 0 {
			s = a.upstream.AddPod(a.ctx, b.state, &b.info.pod, info, a.seen.byID[c.node])
		} else {
			s = a.upstream.RemovePod(a.ctx, b.state, &b.info.pod, info, a.seen.byID[c.node])
		}
		if !s.IsSuccess() {
			panic("filters: inter-pod affinity lost its state: " + s.Message())
		}
	}
}
