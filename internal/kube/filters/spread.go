package filters

import (
	"slices"

	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/podtopologyspread"

	"github.com/muster-scheduler/muster/internal/engine"
)

// spread asks upstream's PodTopologySpread. Upstream's AddPod and RemovePod keep only the two emptiest domains, enough
// for the removal of pods from one node at a time; a gang goes to many. So the count is made anew whenever a pod of the
// namespace has come or gone: one look at every pod on a node.
type spread struct {
	*instance
	upstream *podtopologyspread.PodTopologySpread
	reasons  map[string]engine.Reason
	classes  map[uint64]*spreading
}

// spreading is a pod, standing for its class, that is asked about.
type spreading struct {
	info   *podInfo
	state  fwk.CycleState
	failed engine.Verdict
	read   int
}

func spreadReasons() map[string]engine.Reason {
	return map[string]engine.Reason{
		podtopologyspread.ErrReasonConstraintsNotMatch: engine.ReasonTopologySpread,
		podtopologyspread.ErrReasonNodeLabelNotMatch:   engine.ReasonTopologySpread,
	}
}

func (i *instance) spread() *spread {
	if i.even == nil {
		h := newHandle(i.world(), i.options)
		p, err := podtopologyspread.New(i.ctx, &config.PodTopologySpreadArgs{DefaultingType: config.ListDefaulting}, h, features())
		i.even = &spread{instance: i, upstream: must[*podtopologyspread.PodTopologySpread](p, err), reasons: spreadReasons(), classes: map[uint64]*spreading{}}
	}
	return i.even
}

func (s *spread) check(p *pod, n *node) engine.Verdict {
	c := s.classes[p.Class.ID]
	if c == nil {
		c = &spreading{info: s.seen.info(p), read: -1}
		s.classes[p.Class.ID] = c
	}
	if s.stale(c) {
		state := framework.NewCycleState()
		_, status := s.upstream.PreFilter(s.ctx, state, &c.info.pod, s.seen.nodes)
		c.state, c.failed = state, verdict(status, s.reasons)
	}
	if !c.failed.Yes() {
		return c.failed
	}
	return verdict(s.upstream.Filter(s.ctx, c.state, &c.info.pod, s.seen.byID[n.ID]), s.reasons)
}

// stale says whether the count has to be made, or made anew.
func (s *spread) stale(c *spreading) bool {
	if c.read < 0 {
		c.read = 0
		s.news(&c.read)
		return true
	}
	return slices.ContainsFunc(s.news(&c.read), func(x change) bool { return x.pod.Namespace == c.info.pod.Namespace })
}
