package conformance

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/engine/builtin"
	"github.com/muster-scheduler/muster/internal/profile"
)

// Statuses of pods, in the words of the files.
const (
	binding   = "Binding"
	nominated = "Pipelined"
	pending   = "Pending"
	running   = "Running"
	releasing = "Releasing"
)

// fate is where a pod stands.
type fate struct {
	status string
	node   string
	gpu    int64 // milli-GPU received by this run's decision
}

// world is a case while it runs.
type world struct {
	c      *Case
	engine *engine.Engine
	store  *cluster.Store
	now    int64
	keep   bool // nominations survive between rounds
	pods   map[string]cluster.PodState
	fates  map[string]fate

	snap               *cluster.Snapshot // of the last run
	trace              engine.Trace
	binds, nominations int
}

func newWorld(c *Case, keep bool) (*world, error) {
	w := &world{
		c: c, now: start, keep: keep, store: cluster.NewStore(cluster.Options{StuckAfter: stuckAfter}),
		pods: map[string]cluster.PodState{}, fates: map[string]fate{},
	}
	p, err := profile.Parse(c.Given.SchedulerConf)
	if err != nil {
		return nil, err
	}
	p.Actions = c.Actions
	for i := range c.Given.Nodes {
		if len(c.Given.Nodes[i].NUMA) > 0 && len(p.Tiers) > 0 {
			p.Tiers[0] = append(p.Tiers[0], engine.PluginUse{Name: "numa"})
			break
		}
	}
	if w.engine, err = engine.New(p, builtin.Registry()); err != nil {
		return nil, err
	}
	w.store.Apply(c.events()...)
	for i := range c.Given.Gangs {
		g := &c.Given.Gangs[i]
		for k := range g.Pods {
			st, err := g.pod(&g.Pods[k])
			if err != nil {
				return nil, err
			}
			if _, twice := w.pods[st.UID]; twice {
				return nil, fmt.Errorf("two pods are called %s", st.UID)
			}
			w.pods[st.UID] = st
			w.fates[st.UID] = fate{status: g.Pods[k].Status, node: st.NodeName}
			w.store.Apply(st)
		}
	}
	return w, nil
}

// cycle runs the actions once and notes what was decided.
func (w *world) cycle() {
	w.snap = w.store.Snapshot(w.now)
	r := w.engine.Run(context.Background(), w.snap, func(p engine.Plan) {
		for _, b := range p.Bundles {
			for _, in := range b.Intents {
				f := fate{status: binding, node: in.Node, gpu: in.GPU}
				if in.Verb == engine.Nominate {
					f.status = nominated
					w.nominations++
				} else {
					w.binds++
				}
				w.fates[in.UID] = f
			}
		}
	})
	w.trace = r.Trace
}

// settle turns decisions into facts between two rounds: bound pods run, nominated ones wait again, released ones are
// back without a node, and time goes by.
func (w *world) settle() {
	w.now += int64(w.c.Rounds.DelaySeconds * float64(second))
	for i := range w.c.Given.Gangs {
		g := &w.c.Given.Gangs[i]
		for k := range g.Pods {
			uid := g.Pods[k].Name
			f, st := w.fates[uid], w.pods[uid]
			switch f.status {
			case binding:
				st.Phase, st.NodeName, st.Nominated = cluster.Running, f.node, ""
				w.fates[uid] = fate{status: running, node: f.node, gpu: f.gpu}
			case nominated:
				if w.keep {
					st.Nominated = f.node
				}
				w.fates[uid] = fate{status: pending}
			case releasing:
				if g.DeletedDuringTest {
					continue
				}
				st.Phase, st.NodeName, st.DeletedAt = cluster.Pending, "", 0
				w.fates[uid] = fate{status: pending}
			default:
				continue
			}
			w.pods[uid] = st
			w.store.Apply(st)
		}
	}
}

// play runs the case and returns how it differs from what is expected; nil for not at all.
func (w *world) play() []Mismatch {
	if w.c.Rounds == nil {
		w.cycle()
		return w.compare()
	}
	for range w.c.Rounds.UntilMatch {
		w.cycle()
		w.settle()
	}
	if m := w.compare(); m != nil {
		return m
	}
	for range w.c.Rounds.AfterMatch {
		w.cycle()
		w.settle()
		if m := w.compare(); m != nil {
			return m
		}
	}
	return nil
}

func decode(text json.RawMessage, into any) error { return json.Unmarshal(text, into) }
