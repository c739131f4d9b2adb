// Package builtin is the registry of the actions and plugins that need nothing but the engine. Callers that can offer
// more (the upstream filters) extend a copy.
package builtin

import (
	"sync"

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
	"github.com/muster-scheduler/muster/internal/engine/plugins/networktopology"
	"github.com/muster-scheduler/muster/internal/engine/plugins/nodeaffinity"
	"github.com/muster-scheduler/muster/internal/engine/plugins/nodeavailability"
	"github.com/muster-scheduler/muster/internal/engine/plugins/nodegroup"
	"github.com/muster-scheduler/muster/internal/engine/plugins/nodeplacement"
	"github.com/muster-scheduler/muster/internal/engine/plugins/nodescores"
	"github.com/muster-scheduler/muster/internal/engine/plugins/nominatednode"
	"github.com/muster-scheduler/muster/internal/engine/plugins/numa"
	"github.com/muster-scheduler/muster/internal/engine/plugins/podaffinity"
	"github.com/muster-scheduler/muster/internal/engine/plugins/predicates"
	"github.com/muster-scheduler/muster/internal/engine/plugins/priority"
	"github.com/muster-scheduler/muster/internal/engine/plugins/proportion"
	"github.com/muster-scheduler/muster/internal/engine/plugins/ray"
	"github.com/muster-scheduler/muster/internal/engine/plugins/rescheduling"
	"github.com/muster-scheduler/muster/internal/engine/plugins/resourcetype"
	"github.com/muster-scheduler/muster/internal/engine/plugins/subgrouporder"
	"github.com/muster-scheduler/muster/internal/engine/plugins/taskorder"
	"github.com/muster-scheduler/muster/internal/engine/plugins/tasktopology"
	"github.com/muster-scheduler/muster/internal/engine/plugins/tdm"
	"github.com/muster-scheduler/muster/internal/engine/plugins/topology"
	"github.com/muster-scheduler/muster/internal/engine/plugins/usage"
	"github.com/muster-scheduler/muster/internal/engine/plugins/votes"
	"github.com/muster-scheduler/muster/internal/engine/policy"
)

// Registry returns a fresh registry of everything built in.
func Registry() engine.Registry { return everything().Clone() }

// everything is made once and copied: every what-if makes an engine.
var everything = sync.OnceValue(func() engine.Registry {
	volcano := volcanos()
	return engine.Registry{
		Actions: map[string]func() engine.Action{
			"allocate":          func() engine.Action { return actions.Allocate{} },
			"consolidation":     func() engine.Action { return actions.Disrupt{Cause: policy.Consolidation} },
			"reclaim":           func() engine.Action { return actions.Disrupt{Cause: policy.Reclaim} },
			"preempt":           func() engine.Action { return actions.Disrupt{Cause: policy.Preempt} },
			"stalegangeviction": func() engine.Action { return actions.StaleGang{} },
			QueueGates:          func() engine.Action { return actions.QueueGates{} },
		},
		Plugins: map[string][]policy.Factory{
			budgets.Name:          {budgets.Factory},
			dynamicresources.Name: {dynamicresources.Factory},
			elastic.Name:          {elastic.Factory},
			fragmentation.Name:    {fragmentation.Factory},
			gpupack.Name:          {gpupack.Factory},
			gpusharingorder.Name:  {gpusharingorder.Factory},
			gpuspread.Name:        {gpuspread.Factory},
			kubeflow.Name:         {kubeflow.Factory},
			minruntime.Name:       {minruntime.Factory},
			nodeaffinity.Name:     {nodeaffinity.Factory},
			nodeavailability.Name: {nodeavailability.Factory},
			nodeplacement.Name:    {nodeplacement.Factory},
			nominatednode.Name:    {nominatednode.Factory},
			numa.Name:             {numa.Factory},
			podaffinity.Name:      {podaffinity.Factory},
			predicates.Name:       {predicates.Factory},
			priority.Name:         {priority.Factory},
			proportion.Name:       {proportion.Factory},
			ray.Name:              {ray.Factory},
			resourcetype.Name:     {resourcetype.Factory},
			subgrouporder.Name:    {subgrouporder.Factory},
			taskorder.Name:        {taskorder.Factory},
			topology.Name:         {topology.Factory},
			// The scheduler answers questions where these are in the profile; they have no say in a decision.
			"snapshot": {mute}, "reflectjoborder": {mute}, "joborder": {mute},
			// Where KAI's search for victims looks. Package solver has one search, which needs no such hints.
			"sg-nodelocalgreedy": {mute}, "sg-multinodegang": {mute},
		},
		Faces: map[string]engine.Registry{VolcanosFace: volcano, KubeBatchsFace: kubeBatchs(volcano)},
	}
})

// QueueGates is the action by which queues let pods in that ask for it. It is in a profile where the scheduler is told to, before all others.
const QueueGates = "queuegates"

// VolcanosFace is the face whose configuration is Volcano's.
const VolcanosFace = "volcano"

// KubeBatchsFace is the face whose configuration is kube-batch's.
const KubeBatchsFace = "kubebatch"

// kubeBatchs are the actions and plugins that a scheduler file of kube-batch's may name: Volcano's of the same names.
func kubeBatchs(all engine.Registry) engine.Registry {
	r := engine.Registry{Actions: map[string]func() engine.Action{}, Plugins: map[string][]policy.Factory{}}
	for _, name := range []string{"allocate", "backfill", "preempt", "reclaim"} {
		r.Actions[name] = all.Actions[name]
	}
	for _, name := range []string{votes.Conformance, votes.DRF, votes.Gang, nodescores.NodeOrder, predicates.Name, votes.Priority, votes.Proportion} {
		r.Plugins[name] = all.Plugins[name]
	}
	return r
}

// volcanos are the actions and plugins that a scheduler file of Volcano's may name. Those without a maker, and without a point, have no part of their own: the session
// does for all gangs what they are for, or nothing yet.
func volcanos() engine.Registry {
	r := engine.Registry{
		Actions: map[string]func() engine.Action{"enqueue": func() engine.Action { return actions.Enqueue{} }},
		Plugins: map[string][]policy.Factory{
			votes.Overcommit: {votes.OvercommitFactory}, votes.SLA: {votes.SLAFactory},
			votes.Proportion: {votes.ProportionFactory, votes.DeservedFactory}, votes.Capacity: {votes.CapacityFactory, votes.QuotasFactory},
			votes.Gang: {votes.GangFactory}, votes.Priority: {votes.PriorityFactory}, votes.Conformance: {votes.ConformanceFactory},
			votes.DRF:      {votes.DRFFactory},
			votes.Cooldown: {votes.CooldownFactory}, budgets.LawName: {budgets.LawFactory},
			nodescores.Binpack: {nodescores.BinpackFactory}, nodescores.NodeOrder: {nodescores.NodeOrderFactory, podaffinity.NodeOrderFactory, nodescores.SpreadFactory}, nodescores.StrategyFit: {nodescores.StrategyFitFactory},
			votes.NamespaceQuota: {votes.NamespaceQuotaFactory},
			nodegroup.Name:       {nodegroup.Factory}, predicates.Name: {predicates.SwitchesFactory}, networktopology.Name: {networktopology.Factory},
			tasktopology.Name: {tasktopology.Factory}, tdm.Name: {tdm.Factory}, numa.AwareName: {numa.AwareFactory}, rescheduling.Name: {rescheduling.Factory},
			usage.Name: {usage.Factory},
		},
	}
	r.Late = map[string]func() engine.Action{
		"gangpreempt": func() engine.Action {
			return actions.Disrupt{Cause: policy.Preempt, Bundles: policy.Bundles{Ordered: true}}
		},
		"gangreclaim": func() engine.Action {
			return actions.Disrupt{Cause: policy.Reclaim, Bundles: policy.Bundles{Ordered: true}}
		},
		"shuffle": func() engine.Action { return actions.Shuffle{Face: VolcanosFace} },
	}
	for _, name := range []string{"allocate", "backfill", "preempt", "reclaim", "shuffle", "gangpreempt", "gangreclaim"} {
		r.Actions[name] = nil
	}
	for _, name := range []string{
		"deviceshare", "extender",
	} {
		r.Plugins[name] = []policy.Factory{silent}
	}
	return r
}

// silent is mute, and takes any arguments.
var silent = policy.Makes(func(policy.Arguments) (func(*policy.View) struct{}, []string, error) {
	return func(*policy.View) struct{} { return struct{}{} }, nil, nil
})

// mute is a plugin that a decision does not depend on: it has no point.
var mute = policy.Is(struct{}{})
