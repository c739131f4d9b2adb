package profile

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/spelling"
)

// Unknown is a name in a configuration that nothing has. It is told and left out, as KAI does with plugins: a scheduler without one plugin
// serves better than none. It must never be left out without a word, because a policy may have been meant.
type Unknown struct {
	// Field is where it stands, such as plugins.topologyy.
	Field string
	// Rule says what is wrong, in words that follow the field's name.
	Rule string
}

// String is both in one line.
func (u Unknown) String() string { return u.Field + " " + u.Rule }

// Known returns the profile without the plugins that the registry does not have, and what was left out. An unknown action stays, and
// engine.New refuses it, as KAI's scheduler does: what is left of a list of actions is another list.
func Known(p engine.Profile, r engine.Registry) (engine.Profile, []Unknown) {
	var out []Unknown
	tiers := make([][]engine.PluginUse, len(p.Tiers))
	for i, tier := range p.Tiers {
		for _, u := range tier {
			if _, known := r.Plugins[u.Name]; !known {
				out = append(out, unknownName(fmt.Sprintf("tiers[%d].plugins", i), "plugin", u.Name, r.Plugins))
				continue
			}
			tiers[i] = append(tiers[i], u)
		}
	}
	if len(out) > 0 {
		p.Tiers = tiers
	}
	return p, out
}

// Unknown returns the names of plugins and actions in a shard that the registry does not have, by field, those that are switched off, too:
// who misspells what he switches off has it on.
func (s *Shard) Unknown(r engine.Registry) []Unknown {
	var out []Unknown
	for _, name := range slices.Sorted(maps.Keys(s.Plugins)) {
		if _, known := r.Plugins[name]; !known {
			out = append(out, unknownName("plugins", "plugin", name, r.Plugins))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.Actions)) {
		if _, known := r.Actions[name]; !known {
			out = append(out, unknownName("actions", "action", name, r.Actions))
		}
	}
	return out
}

// Refuse makes an error of the names in a shard that nothing has, nil of none: for where somebody has just written them, and is there to put
// them right.
func (s *Shard) Refuse(r engine.Registry) error {
	var out []error
	for _, u := range s.Unknown(r) {
		out = append(out, errors.New(u.String()))
	}
	return errors.Join(out...)
}

// Check compiles a shard's profile, as its scheduler does when it starts: what it does not know (names, and arguments of plugins), and why it
// would not start.
func Check(s Shard, p engine.Profile, r engine.Registry) ([]Unknown, error) {
	names := s.Unknown(r)
	p, _ = Known(p, r)
	e, err := engine.New(p, r)
	if err != nil {
		return names, err
	}
	for _, w := range e.Warnings {
		names = append(names, Unknown{Field: "plugins", Rule: "is understood in part: " + w})
	}
	return names, nil
}

func unknownName[T any](field, kind, name string, known map[string]T) Unknown {
	return Unknown{
		Field: field + "." + brief(name),
		Rule:  fmt.Sprintf("is the name of no %s; the nearest that is known is %s", kind, spelling.Nearest(name, slices.Collect(maps.Keys(known)), spelling.Any)),
	}
}

// brief cuts a name to a length fit for a sentence.
func brief(name string) string {
	if len(name) > spelling.Longest {
		return strings.ToValidUTF8(name[:spelling.Longest], "") + "…"
	}
	return name
}
