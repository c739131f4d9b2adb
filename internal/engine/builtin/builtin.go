// Package builtin is the registry of the actions and plugins that need nothing but the engine. Callers that can offer
// more (the upstream filters) extend a copy.
package builtin

import (
	"slices"

	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/engine/actions"
	"github.com/muster-scheduler/muster/internal/engine/plugins/budgets"
	"github.com/muster-scheduler/muster/internal/engine/plugins/dynamicresources"
	"github.com/muster-scheduler/muster/internal/engine/plugins/elastic"
	"github.com/muster-scheduler/muster/internal/engine/plugins/fragmentation"
	"github.com/muster-scheduler/muster/internal/engine/plugins/gpupack"
	"github.com/muster-scheduler/muster/internal/engine/plugins/gpusharingorder"
	"github.com/muster-scheduler/muster/internal/engine/plugins/gpuspread"
	"github.com/muster-scheduler/muster/internal/engine/plugins/kubeflow"
	"github.com/muster-scheduler/muster/internal/engine/plugins/minruntime"
	"github.com/muster-scheduler/muster/internal/engine/plugins/nodeavailability"
	"github.com/muster-scheduler/muster/internal/engine/plugins/nodeplacement"
	"github.com/muster-scheduler/muster/internal/engine/plugins/nominatednode"
	"github.com/muster-scheduler/muster/internal/engine/plugins/numa"
	"github.com/muster-scheduler/muster/internal/engine/plugins/podaffinity"
	"github.com/muster-scheduler/muster/internal/engine/plugins/predicates"
	"github.com/muster-scheduler/muster/internal/engine/plugins/priority"
	"github.com/muster-scheduler/muster/internal/engine/plugins/proportion"
	"github.com/muster-scheduler/muster/internal/engine/plugins/ray"
	"github.com/muster-scheduler/muster/internal/engine/plugins/resourcetype"
	"github.com/muster-scheduler/muster/internal/engine/plugins/subgrouporder"
	"github.com/muster-scheduler/muster/internal/engine/plugins/taskorder"
	"github.com/muster-scheduler/muster/internal/engine/plugins/topology"
)

// Registry returns a fresh registry of everything built in.
func Registry() engine.Registry {
	return engine.Registry{
		Actions: map[string]func() engine.Action{
			"allocate":          func() engine.Action { return actions.Allocate{} },
			"consolidation":     func() engine.Action { return actions.Disrupt{Right: engine.Consolidation} },
			"reclaim":           func() engine.Action { return actions.Disrupt{Right: engine.Reclaim} },
			"preempt":           func() engine.Action { return actions.Disrupt{Right: engine.Preempt} },
			"stalegangeviction": func() engine.Action { return actions.StaleGang{} },
		},
		Plugins: map[string]engine.Factory{
			budgets.Name:          budgets.New,
			dynamicresources.Name: dynamicresources.New,
			elastic.Name:          elastic.New,
			fragmentation.Name:    fragmentation.New,
			gpupack.Name:          gpupack.New,
			gpusharingorder.Name:  gpusharingorder.New,
			gpuspread.Name:        gpuspread.New,
			kubeflow.Name:         kubeflow.New,
			minruntime.Name:       minruntime.New,
			nodeavailability.Name: nodeavailability.New,
			nodeplacement.Name:    nodeplacement.New,
			nominatednode.Name:    nominatednode.New,
			numa.Name:             numa.New,
			podaffinity.Name:      podaffinity.New,
			predicates.Name:       predicates.New,
			priority.Name:         priority.New,
			proportion.Name:       proportion.New,
			ray.Name:              ray.New,
			resourcetype.Name:     resourcetype.New,
			subgrouporder.Name:    subgrouporder.New,
			taskorder.Name:        taskorder.New,
			topology.Name:         topology.New,
			// The scheduler answers questions where these are in the profile; they have no say in a decision.
			"snapshot": mute, "reflectjoborder": mute, "joborder": mute,
			// Where KAI's search for victims looks. Package solver has one search, which needs no such hints.
			"sg-nodelocalgreedy": mute, "sg-multinodegang": mute,
		},
		Reasons: slices.Concat(
			dynamicresources.Reasons(), minruntime.Reasons(), numa.Reasons(), predicates.Reasons(), proportion.Reasons(), topology.Reasons(),
		),
	}
}

// silent is a plugin that a decision does not depend on.
type silent struct{}

// Open returns something that implements no point.
func (silent) Open(*engine.View) engine.Instance { return silent{} }

func mute(a engine.Arguments) (engine.Plugin, []string, error) { return silent{}, a.Unknown(), nil }
