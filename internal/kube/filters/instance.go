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
	"github.com/muster-scheduler/muster/internal/engine"
)

type (
	class = cluster.Class
	pod   = cluster.Pod
	node  = cluster.Node
)

// instance is the filters of one run. Everything in it is made when the first pod needs it.
type instance struct {
	view    *engine.View
	options Options
	ctx     context.Context
	log     []change
	seen    *world
	social  *affinity
	even    *spread
	disks   *volumes
}

// change is one operation of a statement, done (+1) or undone (-1). The log only grows: what is undone is logged again,
// so that whoever has read up to some point can catch up from there.
type change struct {
	pod  *pod
	node cluster.NodeID
	by   int
	info *podInfo // set once the world is open
}

func newInstance(v *engine.View, o Options) *instance { return &instance{view: v, options: o} }

// Wants implements engine.NodeFilter: pods that say something about other pods or about volumes, and every pod as long
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

// CheckPod implements engine.PodGate: a pod whose claims are not there, or can no longer be used, runs nowhere.
func (i *instance) CheckPod(c *class, namespace string) engine.Verdict {
	if len(c.Claims) == 0 {
		return engine.Verdict{}
	}
	return i.volumes().gate(c, namespace)
}

// CheckNode implements engine.NodeFilter, in the order of kube-scheduler's default profile.
func (i *instance) CheckNode(p *pod, n *node) engine.Verdict {
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

// Done implements engine.Observer. It costs one entry of the log until a pod needs the filters.
func (i *instance) Done(op engine.Op) {
	if len(op.Pod.Class.Claims) > 0 { // what is free to bind must be known before the pod counts as placed
		i.volumes().reserve(op.Pod, op.Node)
	}
	i.record(change{pod: op.Pod, node: op.Node, by: 1})
}

// Undone implements engine.Observer.
func (i *instance) Undone(op engine.Op) {
	i.record(change{pod: op.Pod, node: op.Node, by: -1})
	if len(op.Pod.Class.Claims) > 0 {
		i.volumes().release()
	}
}

func (i *instance) record(c change) {
	if i.seen != nil {
		i.seen.apply(&c)
	}
	i.log = append(i.log, c)
}

// world returns the view as upstream wants to see it, with everything that has happened in the run so far.
func (i *instance) world() *world {
	if i.seen == nil {
		// Upstream logs each of its steps; the engine's caller gets verdicts instead.
		i.ctx = klog.NewContext(context.Background(), logr.Discard())
		i.seen = newWorld(i.view.Snapshot())
		for k := range i.log {
			i.seen.apply(&i.log[k])
		}
	}
	return i.seen
}

// features are the gates of Kubernetes 1.36 that are on for every cluster.
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
func verdict(s *fwk.Status, reasons map[string]engine.Reason) engine.Verdict {
	if s.IsSuccess() || s.IsSkip() {
		return engine.Verdict{}
	}
	for _, said := range s.Reasons() {
		if r, ok := reasons[said]; ok {
			return engine.Verdict{Code: engine.No, Reason: r}
		}
	}
	return engine.Verdict{Code: engine.No, Reason: engine.ReasonFilter, Detail: strings.Join(s.Reasons(), "; ")}
}
