package enginetest

import (
	"fmt"

	"github.com/muster-scheduler/muster/internal/engine"
)

// probeName is a plugin that only scenarios have: it counts what statements do, and reports it at the end of the run.
const probeName = "probe"

// WithProbe adds the probe to a registry; a scenario's shard or config section switches it on.
func WithProbe(r engine.Registry) engine.Registry {
	r.Plugins[probeName] = []engine.Factory{engine.Opens(func(*engine.View) *probing { return &probing{} })}
	return r
}

type probing struct{ done, undone int }

// Done implements engine.Observer.
func (p *probing) Done(engine.Op) { p.done++ }

// Undone implements engine.Observer.
func (p *probing) Undone(engine.Op) { p.undone++ }

// Close implements engine.Closer.
func (p *probing) Close() any { return fmt.Sprintf("%d operations, %d undone", p.done, p.undone) }
