package engine

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine/placer"
	"github.com/muster-scheduler/muster/internal/engine/policy"
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
	// StaleGrace is how long a gang may stay below its minimum once it has run, unless it says itself;
	// negative for ever.
	StaleGrace time.Duration
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
	Arguments policy.Arguments
}

// Registry is every action and plugin a profile may name. It is a value: callers extend a copy.
type Registry struct {
	Actions map[string]func() Action
	Plugins map[string][]policy.Factory
}

// Clone returns a registry that can be extended without changing r.
func (r Registry) Clone() Registry {
	return Registry{Actions: maps.Clone(r.Actions), Plugins: maps.Clone(r.Plugins)}
}

// Engine is a profile resolved against a registry, with the caches that make the next run cheap. Caches never change a
// decision. An Engine runs one snapshot at a time; what-ifs build their own.
type Engine struct {
	profile Profile
	actions []namedAction
	plugins []namedPlugin
	reasons map[string]*policy.Reason
	places  placer.Cache
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
func (e *Engine) forget() { e.places, e.slabs, e.fragments = placer.Cache{}, slabs{}, fragments{} }

type namedAction struct {
	name   string
	action Action
}

type namedPlugin struct {
	name  string
	parts []pluginPart // one for each factory of the name
}

// pluginPart is what a factory made, and where what it opens is bound: at its points that are not neutralised.
type pluginPart struct {
	open func(*policy.View) policy.Instance
	at   []policy.Extension
}

// New resolves a profile. Unknown names, arguments that cannot be read, doubled names and two owners of an exclusive
// point are errors that name the offender and what is known instead.
func New(p Profile, r Registry) (*Engine, error) {
	known, err := r.Known()
	if err != nil {
		return nil, err
	}
	e := &Engine{profile: p, reasons: known}
	off := map[string]bool{}
	for _, n := range p.Neutralised {
		off[n] = true
	}
	seen, owners := map[string]bool{}, map[policy.Point]string{}
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
			factories, ok := r.Plugins[use.Name]
			if !ok {
				return nil, fmt.Errorf("profile: unknown plugin %q; known: %s", use.Name, strings.Join(sortedNames(r.Plugins), ", "))
			}
			if seen["plugin "+use.Name] {
				return nil, fmt.Errorf("profile: plugin %q is listed twice", use.Name)
			}
			seen["plugin "+use.Name] = true
			plugin, strange := namedPlugin{name: use.Name}, map[string]int{} // arguments, and how many do not know them
			for _, f := range factories {
				open, unknown, err := f.New(use.Arguments)
				if err != nil {
					return nil, fmt.Errorf("profile: plugin %q: %w", use.Name, err)
				}
				for _, a := range unknown {
					if strange[a]++; strange[a] == len(factories) {
						e.Warnings = append(e.Warnings, fmt.Sprintf("plugin %q does not know argument %q; it has no effect", use.Name, a))
					}
				}
				part := pluginPart{open: open}
				for x := range f.Extensions() {
					if owner := owners[x.Point]; x.Alone && owner != "" {
						return nil, fmt.Errorf("profile: plugins %q and %q both own the exclusive point %s; keep one", owner, use.Name, x.Point)
					}
					owners[x.Point] = use.Name
					if !off[string(x.Point)] && !off[use.Name+"/"+string(x.Point)] {
						part.at = append(part.at, x)
					}
				}
				plugin.parts = append(plugin.parts, part)
			}
			e.plugins = append(e.plugins, plugin)
		}
	}
	return e, nil
}

// Profile returns what the engine was built from.
func (e *Engine) Profile() Profile { return e.profile }

func sortedNames[T any](m map[string]T) []string { return slices.Sorted(maps.Keys(m)) }

// Known returns what may be said, by key: the engine's own reasons and the registry's. Two of one key are an error.
func (r Registry) Known() (map[string]*policy.Reason, error) {
	known := map[string]*policy.Reason{}
	all := policy.Reasons()
	for _, name := range sortedNames(r.Plugins) {
		for _, f := range r.Plugins[name] {
			all = append(all, f.Reasons...)
		}
	}
	for _, reason := range all {
		if known[reason.Key] != nil {
			return nil, fmt.Errorf("registry: reason %q is declared twice", reason.Key)
		}
		known[reason.Key] = reason
	}
	return known, nil
}

// NodesHelp returns what says of a key what [Reason.NodesHelp] says of the reason; yes of one that nobody knows: whoever wrote it thought
// the gang unschedulable.
func (r Registry) NodesHelp() func(key string) bool {
	known, _ := r.Known()
	return func(key string) bool { return known[key].NodesHelp() }
}
