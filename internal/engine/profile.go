package engine

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine/ledger"
)

// Profile says which actions run and which plugins rule, in order. It is what a scheduler configuration or a
// SchedulingShard resolves to.
type Profile struct {
	Actions []string
	// Tiers of plugins; combinators see the opinions tier by tier. KAI's configuration is one tier.
	Tiers [][]PluginUse
	// Settings are the numbers that rule actions.
	Settings Settings
	// Neutralised switches off one extension point ("queue-order") or one plugin at one point ("priority/gang-order").
	// It exists to prove that each of them matters.
	Neutralised []string
}

// Uses says whether a plugin is in the profile.
func (p *Profile) Uses(plugin string) bool {
	for _, tier := range p.Tiers {
		if slices.ContainsFunc(tier, func(u PluginUse) bool { return u.Name == plugin }) {
			return true
		}
	}
	return false
}

// Settings are the numbers that rule actions. The zero value is not KAI's defaults; DefaultSettings is.
type Settings struct {
	// QueueDepth is, per action, how many gangs of a queue it looks at in one cycle, in order; 0 or absent means all.
	QueueDepth map[string]int
	// ConsolidationVictims is how many gangs one consolidation may move; 0 switches consolidation off, a negative number
	// means no bound.
	ConsolidationVictims int
	// MovedAreFree says that reclaim need not count victims that have room elsewhere against shares.
	MovedAreFree bool
	// StaleGrace is how long a gang may stay below its minimum once it has run, in nanoseconds, unless it says itself;
	// negative for ever.
	StaleGrace int64
	// SearchSteps is what the searches of one action may cost in one cycle, in steps (a victim, a queue or a node looked at); 0 or
	// less means no bound. The search that reaches it is finished.
	SearchSteps int
}

// DefaultSettings are KAI's: any depth, 16 gangs, moved ones are free, a minute. Searches stop after about a twentieth of a second.
func DefaultSettings() Settings {
	return Settings{ConsolidationVictims: 16, MovedAreFree: true, StaleGrace: 60_000_000_000, SearchSteps: 25_000}
}

// PluginUse is one plugin of a profile.
type PluginUse struct {
	Name      string
	Arguments Arguments
}

// Registry is every action and plugin a profile may name. It is a value: callers extend a copy.
type Registry struct {
	Actions map[string]func() Action
	Plugins map[string]Factory
	// Reasons are what these say, but for the engine's own.
	Reasons []*Reason
}

// Clone returns a registry that can be extended without changing r.
func (r Registry) Clone() Registry {
	return Registry{Actions: maps.Clone(r.Actions), Plugins: maps.Clone(r.Plugins), Reasons: slices.Clone(r.Reasons)}
}

// Engine is a profile resolved against a registry, with the caches that make the next run cheap. Caches never change a
// decision. An Engine runs one snapshot at a time; what-ifs build their own.
type Engine struct {
	profile Profile
	actions []namedAction
	plugins []namedPlugin
	off     map[string]bool
	reasons map[string]*Reason
	statics staticCache
	slabs   slabs

	fragments fragments
	Warnings  []string // of New: unknown arguments
	// Around, if set, is called before each stage of a run, and what it returns after it: for whoever has a clock.
	Around func(Stage) (done func())
	// Trying, if set, is told which gang a run tries from now on; the zero key stands for none. Should the run panic, it is the one.
	Trying func(gang cluster.Key)
	// SearchSteps, if larger, stands for that of the profile's settings: for who decides nothing and wants answers.
	SearchSteps int
}

// forget drops what the engine keeps from one run for the next, so that nothing of a run that panicked is left.
func (e *Engine) forget() { e.statics, e.slabs, e.fragments = staticCache{}, slabs{}, fragments{} }

type namedAction struct {
	name   string
	action Action
}

type namedPlugin struct {
	name   string
	plugin Plugin
}

// New resolves a profile. Unknown names, arguments that cannot be read, doubled names and two owners of an exclusive
// point are errors that name the offender and what is known instead.
func New(p Profile, r Registry) (*Engine, error) {
	known, err := r.Known()
	if err != nil {
		return nil, err
	}
	e := &Engine{profile: p, off: map[string]bool{}, reasons: known}
	seen := map[string]bool{}
	for _, name := range p.Actions {
		f, ok := r.Actions[name]
		if !ok {
			return nil, fmt.Errorf("profile: unknown action %q; known: %s", name, strings.Join(sortedNames(r.Actions), ", "))
		}
		if seen["action "+name] {
			return nil, fmt.Errorf("profile: action %q is listed twice", name)
		}
		seen["action "+name] = true
		e.actions = append(e.actions, namedAction{name, f()})
	}
	for _, tier := range p.Tiers {
		for _, use := range tier {
			f, ok := r.Plugins[use.Name]
			if !ok {
				return nil, fmt.Errorf("profile: unknown plugin %q; known: %s", use.Name, strings.Join(sortedNames(r.Plugins), ", "))
			}
			if seen["plugin "+use.Name] {
				return nil, fmt.Errorf("profile: plugin %q is listed twice", use.Name)
			}
			seen["plugin "+use.Name] = true
			plugin, unknown, err := f(use.Arguments)
			if err != nil {
				return nil, fmt.Errorf("profile: plugin %q: %w", use.Name, err)
			}
			for _, a := range unknown {
				e.Warnings = append(e.Warnings, fmt.Sprintf("plugin %q does not know argument %q; it has no effect", use.Name, a))
			}
			e.plugins = append(e.plugins, namedPlugin{use.Name, plugin})
		}
	}
	for _, n := range p.Neutralised {
		e.off[n] = true
	}
	return e, e.checkExclusive()
}

// checkExclusive opens every plugin on nothing to see which points it owns.
func (e *Engine) checkExclusive() error {
	owners := map[Point]string{}
	for _, np := range e.plugins {
		inst := np.plugin.Open(nil)
		own := func(p Point, has bool) error {
			if !has {
				return nil
			}
			if owner := owners[p]; owner != "" {
				return fmt.Errorf("profile: plugins %q and %q both own the exclusive point %s; keep one", owner, np.name, p)
			}
			owners[p] = np.name
			return nil
		}
		_, shares := inst.(QueueShares)
		_, company := inst.(CompanyScore)
		if err := cmp.Or(own(PointQueueShares, shares), own(PointCompanyScore, company)); err != nil {
			return err
		}
	}
	return nil
}

// Profile returns what the engine was built from.
func (e *Engine) Profile() Profile { return e.profile }

func sortedNames[T any](m map[string]T) []string { return slices.Sorted(maps.Keys(m)) }

// points is everything opened for one run, by extension point.
type points struct {
	queueOrder []QueueOrder
	gangOrder  []GangOrder
	setOrder   []SetOrder
	podOrder   []PodOrder
	shares     QueueShares
	reclaim    []named[ReclaimGate]
	leaves     []named[GiverFilter]
	victims    []named[VictimFilter]
	units      []named[UnitCheck]
	givers     []VictimOrder
	tiers      []VictimTier
	queueGates []named[QueueGate]
	fixedQuota []named[FixedQuota]
	podGates   []named[PodGate]
	nodeSets   []named[NodeSets]
	statics    []named[NodeStatic]
	filters    []named[NodeFilter]
	refusals   []named[NodeRefusals]
	ready      []NodeReady
	promises   []Promises
	details    []Detailer
	scores     []NodeScore
	bonuses    []PodBonus
	company    CompanyScore

	deviceOrder []DeviceOrder
	observers   []Observer
	closers     []named[Closer]
}

// hooks are the points that the ledger asks and tells.
func (ps *points) hooks() ledger.Hooks {
	return ledger.Hooks{
		ComparePods: func(a, b *cluster.Pod) int {
			for _, o := range ps.podOrder {
				if c := o.ComparePods(a, b); c != 0 {
					return c
				}
			}
			return 0
		},
		CompareSets: func(g *GangState, a, b int32) int {
			for _, o := range ps.setOrder {
				if c := o.CompareSets(g, a, b); c != 0 {
					return c
				}
			}
			return 0
		},
		ScoreDevice: func(c *cluster.Class, n *cluster.Node, used, capacity int64) int64 {
			score := int64(0)
			for _, o := range ps.deviceOrder {
				score += o.ScoreDevice(c, n, used, capacity)
			}
			return score
		},
		Done: func(op Op) {
			for _, o := range ps.observers {
				o.Done(op)
			}
		},
		Undone: func(op Op) {
			for i := len(ps.observers) - 1; i >= 0; i-- {
				ps.observers[i].Undone(op)
			}
		},
		Turned: func(h *cluster.Hold, open bool) {
			for _, o := range ps.promises {
				o.Turned(h, open)
			}
		},
	}
}

type named[T any] struct {
	name string
	it   T
}

func (e *Engine) open(v *View) points {
	var ps points
	on := func(plugin string, p Point) bool { return !e.off[string(p)] && !e.off[plugin+"/"+string(p)] }
	for _, np := range e.plugins {
		done := e.around(StageOpenPlugin, np.name)
		inst := np.plugin.Open(v)
		done()
		if x, ok := inst.(QueueOrder); ok && on(np.name, PointQueueOrder) {
			ps.queueOrder = append(ps.queueOrder, x)
		}
		if x, ok := inst.(GangOrder); ok && on(np.name, PointGangOrder) {
			ps.gangOrder = append(ps.gangOrder, x)
		}
		if x, ok := inst.(SetOrder); ok && on(np.name, PointSetOrder) {
			ps.setOrder = append(ps.setOrder, x)
		}
		if x, ok := inst.(PodOrder); ok && on(np.name, PointPodOrder) {
			ps.podOrder = append(ps.podOrder, x)
		}
		if x, ok := inst.(QueueShares); ok && on(np.name, PointQueueShares) {
			ps.shares = x
		}
		if x, ok := inst.(ReclaimGate); ok && on(np.name, PointReclaimGate) {
			ps.reclaim = append(ps.reclaim, named[ReclaimGate]{np.name, x})
		}
		if x, ok := inst.(GiverFilter); ok && on(np.name, PointGiverFilter) {
			ps.leaves = append(ps.leaves, named[GiverFilter]{np.name, x})
		}
		if x, ok := inst.(VictimFilter); ok && on(np.name, PointVictimFilter) {
			ps.victims = append(ps.victims, named[VictimFilter]{np.name, x})
		}
		if x, ok := inst.(UnitCheck); ok && on(np.name, PointUnitCheck) {
			ps.units = append(ps.units, named[UnitCheck]{np.name, x})
		}
		if x, ok := inst.(VictimOrder); ok && on(np.name, PointVictimOrder) {
			ps.givers = append(ps.givers, x)
		}
		if x, ok := inst.(VictimTier); ok && on(np.name, PointVictimTier) {
			ps.tiers = append(ps.tiers, x)
		}
		if x, ok := inst.(FixedQuota); ok && on(np.name, PointFixedQuota) {
			ps.fixedQuota = append(ps.fixedQuota, named[FixedQuota]{np.name, x})
		}
		if x, ok := inst.(QueueGate); ok && on(np.name, PointQueueGate) {
			ps.queueGates = append(ps.queueGates, named[QueueGate]{np.name, x})
		}
		if x, ok := inst.(PodGate); ok && on(np.name, PointPodGate) {
			ps.podGates = append(ps.podGates, named[PodGate]{np.name, x})
		}
		if x, ok := inst.(NodeSets); ok && on(np.name, PointNodeSets) {
			ps.nodeSets = append(ps.nodeSets, named[NodeSets]{np.name, x})
		}
		if x, ok := inst.(NodeStatic); ok && on(np.name, PointNodeStatic) {
			ps.statics = append(ps.statics, named[NodeStatic]{np.name, x})
		}
		if x, ok := inst.(NodeFilter); ok && on(np.name, PointNodeFilter) {
			ps.filters = append(ps.filters, named[NodeFilter]{np.name, x})
			if r, ok := inst.(NodeRefusals); ok {
				ps.refusals = append(ps.refusals, named[NodeRefusals]{np.name, r})
			}
		}
		if x, ok := inst.(NodeReady); ok && on(np.name, PointNodeReady) {
			ps.ready = append(ps.ready, x)
		}
		if x, ok := inst.(Promises); ok && on(np.name, PointObserver) {
			ps.promises = append(ps.promises, x)
		}
		if x, ok := inst.(Detailer); ok && on(np.name, PointDetail) {
			ps.details = append(ps.details, x)
		}
		if x, ok := inst.(NodeScore); ok && on(np.name, PointNodeScore) {
			ps.scores = append(ps.scores, x)
		}
		if x, ok := inst.(DeviceOrder); ok && on(np.name, PointDeviceOrder) {
			ps.deviceOrder = append(ps.deviceOrder, x)
		}
		if x, ok := inst.(PodBonus); ok && on(np.name, PointPodBonus) {
			ps.bonuses = append(ps.bonuses, x)
		}
		if x, ok := inst.(CompanyScore); ok && on(np.name, PointCompanyScore) {
			ps.company = x
		}
		if x, ok := inst.(Observer); ok && on(np.name, PointObserver) {
			ps.observers = append(ps.observers, x)
		}
		if x, ok := inst.(Closer); ok && on(np.name, PointClose) {
			ps.closers = append(ps.closers, named[Closer]{np.name, x})
		}
	}
	return ps
}
