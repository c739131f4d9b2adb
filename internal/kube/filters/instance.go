package filters

import (
	"context"
	"errors"
	"strings"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	schedulerfeature "k8s.io/kubernetes/pkg/scheduler/framework/plugins/feature"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine/ledger"
	"github.com/muster-scheduler/muster/internal/engine/policy"
)

type (
	class = cluster.Class
	pod   = cluster.Pod
	node  = cluster.Node
)

// instance is the filters of one run. Everything in it is made when the first pod needs it.
type instance struct {
	view    *policy.View
	options Options
	ctx     context.Context
	log     []change
	read    int // how much of the log somebody has read
	seen    *upstreamSnapshot
	social  *affinity
	even    *spread
	disks   *volumes
}

// change is one pod that came to a node (+1) or left it (-1), by an operation of a statement or because one was undone.
// Whoever has read the log up to some point can catch up from there: what is undone is logged again, unless nobody has
// read of it yet.
type change struct {
	pod  *pod
	node cluster.NodeID
	by   int
}

func newInstance(v *policy.View, o Options) *instance { return &instance{view: v, options: o} }

// Wants implements policy.NodeFilter: pods that say something about other pods or about volumes, and every pod as long
// as some pod's anti-affinity may turn others away.
func (i *instance) Wants(c *class) bool {
	return len(c.Claims) > 0 || c.PodAffinity != nil && len(c.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution) > 0 ||
		requiresDistance(c) || requiresSpread(c) || i.view.Snapshot().HasAntiAffinity()
}

func requiresDistance(c *class) bool {
	return c.PodAntiAffinity != nil && len(c.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution) > 0
}

func requiresSpread(c *class) bool {
	for i := range c.Spread {
		if c.Spread[i].WhenUnsatisfiable == v1.DoNotSchedule {
			return true
		}
	}
	return false
}

// CheckPod implements policy.PodGate: a pod whose claims are not there, or can no longer be used, runs nowhere.
func (i *instance) CheckPod(c *class, namespace string) policy.Verdict {
	if len(c.Claims) == 0 {
		return policy.Verdict{}
	}
	return i.volumes().gate(c, namespace)
}

// CheckNode implements policy.NodeFilter, in the order of kube-scheduler's default profile.
func (i *instance) CheckNode(p *pod, n *node) policy.Verdict {
	if len(p.Class.Claims) > 0 {
		if v := i.volumes().check(p, n); !v.Yes() {
			return v
		}
	}
	if requiresSpread(p.Class) {
		if v := i.spread().check(p, n); !v.Yes() {
			return v
		}
	}
	return i.affinity().check(p, n)
}

// Done implements policy.Observer. It costs one entry of the log until a pod needs the filters.
func (i *instance) Done(op ledger.Op) {
	if reserves(op) { // what is free to bind must be known before the pod counts as placed
		i.volumes().reserve(op.Pod, op.Node)
	}
	i.record(change{pod: op.Pod, node: op.Node, by: op.Gives()})
}

// Undone implements policy.Observer.
func (i *instance) Undone(op ledger.Op) {
	i.record(change{pod: op.Pod, node: op.Node, by: -op.Gives()})
	if reserves(op) {
		i.volumes().release()
	}
}

// Turned implements policy.Promises: a pod to which room is promised counts as there, but for itself.
func (i *instance) Turned(h *cluster.Hold, open bool) {
	c, ok := i.promised(h)
	switch {
	case !ok || i.seen == nil: // promises are read as they stand when the upstream snapshot is made
		return
	case open:
		c.by = -1
	}
	i.record(c)
}

// promised returns the change by which the pod that a promise is for would come to its node.
func (i *instance) promised(h *cluster.Hold) (change, bool) {
	snap := i.view.Snapshot()
	p, n := snap.Pod(h.Waits), snap.NodeByName(h.Node)
	if p == nil || n == nil || p.Node != cluster.None {
		return change{}, false
	}
	return change{pod: p, node: n.ID, by: 1}, true
}

// reserves says whether an operation chooses volumes. A claim outlives its pod: one that goes leaves what was chosen for
// its claims, and one that stays after all finds it.
func reserves(op ledger.Op) bool {
	return op.Gives() > 0 && op.Verb != ledger.Spare && len(op.Pod.Class.Claims) > 0
}

func (i *instance) record(c change) {
	if i.seen != nil {
		i.seen.apply(&c)
	}
	if last := len(i.log) - 1; last >= i.read && i.log[last] == (change{c.pod, c.node, -c.by}) {
		i.log = i.log[:last]
		return
	}
	i.log = append(i.log, c)
}

// news returns what the log has since a reader last read it, and notes that it reads it now.
func (i *instance) news(read *int) []change {
	out := i.log[*read:]
	*read = len(i.log)
	i.read = len(i.log)
	return out
}

// upstreamSnapshot returns the view as upstream wants to see it, with everything that has happened in the run so far.
func (i *instance) upstream() *upstreamSnapshot {
	if i.seen == nil {
		// Upstream logs each of its steps; the engine's caller gets verdicts instead.
		i.ctx = klog.NewContext(context.Background(), logr.Discard())
		i.seen = newUpstreamSnapshot(i.view.Snapshot())
		i.view.EachHold(func(h *cluster.Hold, open bool) {
			if c, ok := i.promised(h); ok && !open {
				i.seen.apply(&c)
			}
		})
		for k := range i.log {
			i.seen.apply(&i.log[k])
		}
	}
	return i.seen
}

// features are the gates of Kubernetes 1.37 that are on for every cluster.
func features() schedulerfeature.Features {
	return schedulerfeature.Features{
		EnableNodeInclusionPolicyInPodTopologySpread: true, EnableMatchLabelKeysInPodTopologySpread: true,
		EnableVolumeAttributesClass: true,
	}
}

// must takes the plugin out of what an upstream constructor returned. Constructors fail on bad arguments, and ours are
// constants.
func must[P fwk.Plugin](p fwk.Plugin, err error) P {
	out, ok := p.(P)
	if err == nil && !ok {
		err = errors.New("another type of plugin")
	}
	if err != nil {
		panic("filters: build an upstream plugin: " + err.Error())
	}
	return out
}

// verdict translates a status of upstream's; reasons says what its sentences mean here. A sentence that is not among
// them is passed on in upstream's words.
func verdict(s *fwk.Status, reasons map[string]*policy.Reason) policy.Verdict {
	if s.IsSuccess() || s.IsSkip() {
		return policy.Verdict{}
	}
	for _, said := range s.Reasons() {
		if r, ok := reasons[said]; ok {
			return policy.Verdict{Code: policy.No, Reason: r}
		}
	}
	return policy.Verdict{Code: policy.No, Reason: ReasonFilter, Detail: strings.Join(s.Reasons(), "; ")}
}
