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
	// Faces are the faces whose gangs have a configuration of their own; a face that is not among them has only the above.
	Faces []Face `json:",omitempty"`
}

// Face is the configuration of one face: what is done for its gangs, and what of its own rules them, besides all that rules all gangs. The session and its ledger are
// one for all faces.
type Face struct {
	// Name is that of [cluster.Key].
	Name string
	// Actions are those done for its gangs, by the face's names: of the profile's actions, those for its gangs that are named here too; and the face's own. Nothing is
	// placed for its gangs without allocate.
	Actions []string
	// Tiers are the face's own plugins.
	Tiers [][]PluginUse
	// Arguments are those of its actions, by their names.
	Arguments map[string]policy.Arguments `json:",omitempty"`
}

// allocate is the name of the action that places gangs, for a face as for all.
const allocate = "allocate"

// acts says whether an action is done for gangs of a face.
func (p *Profile) acts(action, face string) bool {
	others := false
	for i := range p.Faces {
		f := &p.Faces[i]
		if f.Name == face {
			return slices.Contains(f.Actions, action)
		}
		others = others || slices.Contains(f.Actions, action)
	}
	return !others || slices.Contains(p.Actions, action) // one that another face has for itself is not for its gangs
}

// Uses says whether a plugin is in the profile.
func (p *Profile) Uses(plugin string) bool {
	return slices.ContainsFunc(slices.Concat(p.Tiers...), func(u PluginUse) bool { return u.Name == plugin })
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
	// Off are the points at which it is not asked. They are those of a face's plugins.
	Off []policy.Point `json:",omitempty"`
}

// Registry is every action and plugin a profile may name. It is a value: callers extend a copy.
type Registry struct {
	Actions map[string]func() Action
	Plugins map[string][]policy.Factory
	// Faces are the actions and plugins that the configuration of a face may name, by the face. An action of its own admits gangs, before all others; one
	// without a maker is that of the same name which all faces share, or nothing yet.
	Faces map[string]Registry
	// Late are, of a face, those of its Actions that are done after all of the profile's, for its gangs alone, in the order of its list.
	Late map[string]func() Action
}

// Configurable is an action that takes arguments; it refuses what it cannot read with an error naming the argument and the rule.
type Configurable interface {
	Action
	With(args policy.Arguments) (Action, error)
}

// Clone returns a registry that can be extended without changing r.
func (r Registry) Clone() Registry {
	faces := maps.Clone(r.Faces)
	for name, face := range faces { // order: each by itself
		faces[name] = face.Clone()
	}
	return Registry{Actions: maps.Clone(r.Actions), Plugins: maps.Clone(r.Plugins), Faces: faces, Late: maps.Clone(r.Late)}
}

// Engine is a profile resolved against a registry, with the caches that make the next run cheap. Caches never change a
// decision. An Engine runs one snapshot at a time; what-ifs build their own.
type Engine struct {
	profile Profile
	actions []namedAction
	plugins []namedPlugin
	faces   map[string][][]namedPlugin // by name: their tiers
	asked   []string                   // faces whose gangs have to be admitted
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
	if err := e.resolveFaces(r, off); err != nil {
		return nil, err
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
			plugin, err := e.build(use, factories, func(x policy.Extension) (bool, error) {
				if owner := owners[x.Point]; x.Alone && owner != "" {
					return false, fmt.Errorf("profile: plugins %q and %q both own the exclusive point %s; keep one", owner, use.Name, x.Point)
				}
				owners[x.Point] = use.Name
				return !off[string(x.Point)] && !off[use.Name+"/"+string(x.Point)], nil
			})
			if err != nil {
				return nil, err
			}
			e.plugins = append(e.plugins, plugin)
		}
	}
	return e, e.resolveLate(r)
}

// resolveLate resolves the actions that faces have for themselves, after all others.
func (e *Engine) resolveLate(r Registry) error {
	for _, face := range e.profile.Faces {
		for i, name := range face.Actions {
			f := r.Faces[face.Name].Late[name]
			if f == nil || slices.Contains(face.Actions[:i], name) {
				continue
			}
			a := f()
			if c, ok := a.(Configurable); ok {
				var err error
				if a, err = c.With(face.Arguments[name]); err != nil {
					return fmt.Errorf("profile: face %s: action %q: %w", face.Name, name, err)
				}
			}
			e.actions = append(e.actions, namedAction{name, a})
		}
	}
	return nil
}

// build builds a plugin out of its factories; at says of each of its points whether it is asked there.
func (e *Engine) build(use PluginUse, factories []policy.Factory, at func(policy.Extension) (bool, error)) (namedPlugin, error) {
	plugin, strange := namedPlugin{name: use.Name}, map[string]int{} // arguments, and how many do not know them
	for _, f := range factories {
		open, unknown, err := f.New(use.Arguments)
		if err != nil {
			return plugin, fmt.Errorf("profile: plugin %q: %w", use.Name, err)
		}
		for _, a := range unknown {
			if strange[a]++; strange[a] == len(factories) {
				e.Warnings = append(e.Warnings, fmt.Sprintf("plugin %q does not know argument %q; it has no effect", use.Name, a))
			}
		}
		part := pluginPart{open: open}
		for x := range f.Extensions() {
			is, err := at(x)
			if err != nil {
				return plugin, err
			}
			if is {
				part.at = append(part.at, x)
			}
		}
		plugin.parts = append(plugin.parts, part)
	}
	return plugin, nil
}

// resolveFaces resolves the configurations of faces.
func (e *Engine) resolveFaces(r Registry, off map[string]bool) error {
	e.faces = map[string][][]namedPlugin{}
	for _, face := range e.profile.Faces {
		known, ok := r.Faces[face.Name]
		if _, twice := e.faces[face.Name]; !ok || twice {
			return fmt.Errorf("profile: face %q is not known, or there twice; known: %s", face.Name, strings.Join(sortedNames(r.Faces), ", "))
		}
		for i, name := range face.Actions {
			f, ok := known.Actions[name]
			switch {
			case !ok:
				return fmt.Errorf("profile: face %s: unknown action %q; known: %s", face.Name, name, strings.Join(sortedNames(known.Actions), ", "))
			case f != nil && !slices.Contains(face.Actions[:i], name):
				e.actions, e.asked = append(e.actions, namedAction{name, f()}), append(e.asked, face.Name)
			}
		}
		tiers := make([][]namedPlugin, 0, len(face.Tiers))
		for _, uses := range face.Tiers {
			var tier []namedPlugin
			for _, use := range uses {
				factories, ok := known.Plugins[use.Name]
				if !ok {
					return fmt.Errorf("profile: face %s: unknown plugin %q; known: %s", face.Name, use.Name, strings.Join(sortedNames(known.Plugins), ", "))
				}
				plugin, err := e.build(use, factories, func(x policy.Extension) (bool, error) {
					return !slices.Contains(use.Off, x.Point) && !off[string(x.Point)] && !off[face.Name+":"+use.Name+"/"+string(x.Point)], nil
				})
				if err != nil {
					return err
				}
				tier = append(tier, plugin)
			}
			tiers = append(tiers, tier)
		}
		e.faces[face.Name] = tiers
	}
	return nil
}

// Profile returns what the engine was built from.
func (e *Engine) Profile() Profile { return e.profile }

func sortedNames[T any](m map[string]T) []string { return slices.Sorted(maps.Keys(m)) }

// Known returns what may be said, by key: the engine's own reasons and the registry's. Two of one key are an error.
func (r Registry) Known() (map[string]*policy.Reason, error) {
	known, twice := make(map[string]*policy.Reason, 128), ""
	add := func(reasons []*policy.Reason) {
		for _, reason := range reasons {
			if have := known[reason.Key]; have != nil && have != reason && (twice == "" || reason.Key < twice) { // two faces may have one plugin
				twice = reason.Key
			}
			known[reason.Key] = reason
		}
	}
	plugins := func(of map[string][]policy.Factory) {
		for _, factories := range of { // order: of several that are there twice, the first by key is named
			for i := range factories {
				add(factories[i].Reasons)
			}
		}
	}
	add(policy.Reasons())
	plugins(r.Plugins)
	for _, face := range r.Faces { // order: likewise
		plugins(face.Plugins)
	}
	if twice != "" {
		return nil, fmt.Errorf("registry: reason %q is declared twice", twice)
	}
	return known, nil
}

// NodesHelp returns what says of a key what [Reason.NodesHelp] says of the reason; yes of one that nobody knows: whoever wrote it thought
// the gang unschedulable.
func (r Registry) NodesHelp() func(key string) bool {
	known, _ := r.Known()
	return func(key string) bool { return known[key].NodesHelp() }
}
