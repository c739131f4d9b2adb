// Package builtin is the registry of the actions and plugins that need nothing but the engine. Callers that can offer
// more (the upstream filters) extend a copy.
package builtin

import (
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/engine/actions"
	"github.com/muster-scheduler/muster/internal/engine/plugins/elastic"
	"github.com/muster-scheduler/muster/internal/engine/plugins/kubeflow"
	"github.com/muster-scheduler/muster/internal/engine/plugins/nodeavailability"
	"github.com/muster-scheduler/muster/internal/engine/plugins/nodeplacement"
	"github.com/muster-scheduler/muster/internal/engine/plugins/nominatednode"
	"github.com/muster-scheduler/muster/internal/engine/plugins/predicates"
	"github.com/muster-scheduler/muster/internal/engine/plugins/priority"
	"github.com/muster-scheduler/muster/internal/engine/plugins/proportion"
	"github.com/muster-scheduler/muster/internal/engine/plugins/ray"
	"github.com/muster-scheduler/muster/internal/engine/plugins/resourcetype"
	"github.com/muster-scheduler/muster/internal/engine/plugins/subgrouporder"
	"github.com/muster-scheduler/muster/internal/engine/plugins/taskorder"
)

// Capabilities that will bring the names which are planned.
const (
	disruption = "fairness and disruption"
	placement  = "placement"
	plane      = "control plane"
)

// Registry returns a fresh registry of everything built in, and of KAI's names that are planned.
func Registry() engine.Registry {
	return engine.Registry{
		Actions: map[string]func() engine.Action{
			"allocate": func() engine.Action { return actions.Allocate{} },
		},
		Plugins: map[string]engine.Factory{
			elastic.Name:          elastic.New,
			kubeflow.Name:         kubeflow.New,
			nodeavailability.Name: nodeavailability.New,
			nodeplacement.Name:    nodeplacement.New,
			nominatednode.Name:    nominatednode.New,
			predicates.Name:       predicates.New,
			priority.Name:         priority.New,
			proportion.Name:       proportion.New,
			ray.Name:              ray.New,
			resourcetype.Name:     resourcetype.New,
			subgrouporder.Name:    subgrouporder.New,
			taskorder.Name:        taskorder.New,
		},
		PlannedActions: map[string]string{
			"consolidation": disruption, "reclaim": disruption, "preempt": disruption, "stalegangeviction": disruption,
		},
		PlannedPlugins: map[string]string{
			"minruntime": disruption, "sg-nodelocalgreedy": disruption, "sg-multinodegang": disruption,
			"topology": placement, "gpupack": placement, "gpuspread": placement, "gpusharingorder": placement,
			"dynamicresources": placement, "numa": placement, "podaffinity": placement,
			"snapshot": plane, "reflectjoborder": plane, "joborder": plane,
		},
	}
}
