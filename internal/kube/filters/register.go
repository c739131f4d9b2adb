package filters

import (
	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine"
)

// Host is the plugin whose name opens the filters as well: KAI's `predicates` contains its inter-pod affinity and volume
// checks, so a profile that lists `predicates` has asked for them.
const Host = "predicates"

// Options are the settings of the process that bear on the filters. The zero value is KAI's defaults.
type Options struct {
	// StorageCapacity takes the free capacity that CSI drivers publish into account when a volume is still to be made
	// (--schedule-csi-storage). Without it, every node that the storage class allows is taken to have room.
	StorageCapacity bool
}

// Register returns a copy of r in which Host opens the filters too, after whatever it opened before. The plugin takes
// the arguments it took before.
func Register(r engine.Registry, o Options) engine.Registry {
	c := r.Clone()
	inner := c.Plugins[Host]
	c.Plugins[Host] = func(args engine.Arguments) (engine.Plugin, []string, error) {
		if inner == nil {
			return plugin{options: o}, args.Unknown(), nil
		}
		p, unknown, err := inner(args)
		if err != nil {
			return nil, unknown, err
		}
		return plugin{first: p, options: o}, unknown, nil
	}
	c.Reasons = append(c.Reasons, Reasons()...)
	return c
}

// plugin opens the host's own instance and the filters as one.
type plugin struct {
	first   engine.Plugin // nil for none
	options Options
}

// Open implements engine.Plugin. The filters cost nothing until a pod needs them.
func (p plugin) Open(v *engine.View) engine.Instance {
	own := newInstance(v, p.options)
	if p.first == nil {
		return own
	}
	first := p.first.Open(v)
	b := &both{own: own}
	b.gate, _ = first.(engine.PodGate)
	b.static, _ = first.(engine.NodeStatic)
	b.filter, _ = first.(engine.NodeFilter)
	b.refusals, _ = first.(engine.NodeRefusals)
	b.ready, _ = first.(engine.NodeReady)
	b.observer, _ = first.(engine.Observer)
	return b
}

// both is the host's instance and ours: the host is asked and told first, and undone last. It has the points that the
// host has; a host that gains another one needs another field here, and a test says so.
type both struct {
	gate     engine.PodGate
	static   engine.NodeStatic
	filter   engine.NodeFilter
	refusals engine.NodeRefusals
	ready    engine.NodeReady
	observer engine.Observer
	own      *instance
}

// CheckPod implements engine.PodGate.
func (b *both) CheckPod(c *class, namespace string) engine.Verdict {
	if b.gate != nil {
		if v := b.gate.CheckPod(c, namespace); !v.Yes() {
			return v
		}
	}
	return b.own.CheckPod(c, namespace)
}

// CheckStatic implements engine.NodeStatic.
func (b *both) CheckStatic(c *class, nodes []*node, no []*engine.Verdict) {
	if b.static != nil {
		b.static.CheckStatic(c, nodes, no)
	}
}

// Wants implements engine.NodeFilter.
func (b *both) Wants(c *class) bool {
	return b.filter != nil && b.filter.Wants(c) || b.own.Wants(c)
}

// CheckNode implements engine.NodeFilter.
func (b *both) CheckNode(p *pod, n *node) engine.Verdict {
	if b.filter != nil && b.filter.Wants(p.Class) {
		if v := b.filter.CheckNode(p, n); !v.Yes() {
			return v
		}
	}
	if !b.own.Wants(p.Class) {
		return engine.Verdict{}
	}
	return b.own.CheckNode(p, n)
}

// Refuses implements engine.NodeRefusals: the host's, which is asked first, if it has a say.
func (b *both) Refuses(p *pod) ([]uint64, *engine.Verdict) {
	switch {
	case b.filter == nil || !b.filter.Wants(p.Class):
		return b.own.Refuses(p)
	case b.refusals != nil:
		return b.refusals.Refuses(p)
	}
	return nil, nil
}

// RefusesAll implements engine.NodeRefusals.
func (b *both) RefusesAll(p *pod) bool {
	return b.refusals != nil && b.refusals.Wants(p.Class) && b.refusals.RefusesAll(p) || b.own.RefusesAll(p)
}

// CheckReady implements engine.NodeReady. Our own filters count who is leaving as there.
func (b *both) CheckReady(p *pod, n *node) engine.Verdict {
	if b.ready == nil || !b.ready.Wants(p.Class) {
		return engine.Verdict{}
	}
	return b.ready.CheckReady(p, n)
}

// Turned implements engine.Promises.
func (b *both) Turned(h *cluster.Hold, open bool) { b.own.Turned(h, open) }

// Done implements engine.Observer.
func (b *both) Done(op engine.Op) {
	if b.observer != nil {
		b.observer.Done(op)
	}
	b.own.Done(op)
}

// Undone implements engine.Observer.
func (b *both) Undone(op engine.Op) {
	b.own.Undone(op)
	if b.observer != nil {
		b.observer.Undone(op)
	}
}
