package enginetest

import (
	"fmt"

	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/engine/ledger"
	"github.com/muster-scheduler/muster/internal/engine/policy"
)

// probeName is a plugin that only scenarios have: it counts what statements do, and reports it at the end of the run.
const probeName = "probe"

// WithProbe adds the probe to a registry; a scenario's shard or config section switches it on.
func WithProbe(r engine.Registry) engine.Registry {
	r.Plugins[probeName] = []policy.Factory{policy.Opens(func(*policy.View) *probing { return &probing{} })}
	return r
}

type probing struct{ done, undone int }

// Done implements policy.Observer.
func (p *probing) Done(ledger.Op) { p.done++ }

// Undone implements policy.Observer.
func (p *probing) Undone(ledger.Op) { p.undone++ }

// Close implements policy.Closer.
func (p *probing) Close() any { return fmt.Sprintf("%d operations, %d undone", p.done, p.undone) }
