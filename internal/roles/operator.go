package roles

import (
	"os"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-scheduler/muster/internal/controllers/operator"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/engine/builtin"
	"github.com/muster-scheduler/muster/internal/kube/aside"
	"github.com/muster-scheduler/muster/internal/kube/filters"
	"github.com/muster-scheduler/muster/internal/profile"
)

// newOperator builds the role that installs the others.
func (p *process) newOperator(log logr.Logger, c client.Client, guard *aside.Guard) (*operator.Controller, error) {
	return operator.New(operator.Deps{
		Config: p.config, Scheme: p.scheme, Client: c, Log: log, Registry: p.registry, Event: p.events.recorder("operator"), Guard: guard,
	}, p.Settings.operator(os.Getenv))
}

// CheckProfile says whether the scheduler would run a shard's profile, and what it would not know of it: it has the actions and plugins.
func CheckProfile(s profile.Shard, p engine.Profile) ([]profile.Unknown, error) {
	return profile.Check(s, p, filters.Register(builtin.Registry(), filters.Options{}))
}
