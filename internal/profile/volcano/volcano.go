package volcano

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/engine/plugins/predicates"
	"github.com/muster-scheduler/muster/internal/engine/plugins/usage"
	"github.com/muster-scheduler/muster/internal/engine/policy"
	"github.com/muster-scheduler/muster/internal/spelling"
)

// Face is the face that the file is about.
const Face = "volcano"

// Default is the file that is compiled into Volcano's scheduler, and rules where it is given none.
const Default = `actions: "enqueue, allocate, backfill"
tiers:
- plugins:
  - name: priority
  - name: gang
  - name: conformance
- plugins:
  - name: overcommit
  - name: drf
  - name: predicates
  - name: proportion
  - name: nodeorder
`

// The bounds of a file: its bytes, and how many tiers, and plugins of all tiers, it has.
const (
	MostBytes   = 256 << 10
	MostTiers   = 64
	MostPlugins = 256
)

// File is what a scheduler file says.
type File struct {
	Face engine.Face
	// Metrics is where it is known how busy nodes are; nil where no plugin is to know, or nobody does.
	Metrics *Metrics
	// Told are what has no effect, in the order of the file.
	Told []Fault
}

// Fault is something that is wrong with a file, or without effect in it.
type Fault struct {
	Line  int    // counted from 1
	Field string // such as tiers[0].plugins[2].name
	Rule  string // what is wrong, in words that follow the field's name
}

// Error says all of it.
func (f Fault) Error() string { return fmt.Sprintf("line %d: %s %s", f.Line, f.Field, f.Rule) }

// hooks are what a plugin can be switched off at, by the name that follows enable or enabled: Volcano's keys have either, and both are taken of each.
func hooks() []string {
	return []string{
		"JobOrder", "JobReady", "JobPipelined", enqueued, "TaskOrder", "Preemptable", "Reclaimable", "Preemptive", "QueueOrder", "Predicate", "BestNode", "NodeOrder",
		"TargetJob", "ReservedNodes", "Victim", "JobStarving", "Overused", "Allocatable", "HyperNodeOrder", "SubJobReady", "SubJobPipelined", "SubJobOrder",
		"HyperNodeGradient", hierarchy, "ClusterOrder",
	}
}

// The hooks that mean something here.
const (
	enqueued  = "JobEnqueued"
	hierarchy = "Hierarchy"
)

// pointsOf are the points at which a plugin is not asked whose hook is switched off.
func pointsOf(hook string) []policy.Point {
	if hook == "NodeOrder" {
		return []policy.Point{"node-score", "company-score", "pod-bonus"}
	}
	if hook == "Predicate" {
		return []policy.Point{"node-filter", "node-ready"}
	}
	if p := pointOf(hook); p != "" {
		return []policy.Point{p}
	}
	return nil
}

// pointOf is that point, of a hook that has one; "" where it is none.
func pointOf(hook string) policy.Point {
	switch hook {
	case enqueued:
		return "admission-vote"
	case "Preemptable":
		return "preemptable"
	case "Reclaimable":
		return "reclaimable"
	case "Preemptive":
		return "reclaim-gate"
	case "Overused":
		return "queue-turn"
	case "JobStarving":
		return "starving"
	case "JobOrder":
		return "gang-order"
	case "TaskOrder":
		return "pod-order"
	case "QueueOrder":
		return "leaf-order"
	case "Allocatable":
		return "queue-gate"
	case "Predicate":
		return "node-filter"
	case "HyperNodeOrder":
		return "domain-score"
	case "Victim":
		return "victim-source"
	}
	return ""
}

// The actions and plugins that are looked for.
const (
	actionReclaim = "reclaim"
	pluginDRF     = "drf"
	pluginShares  = "proportion"
	pluginQuotas  = "capacity"
	pluginGroups  = "nodegroup"
)

// family is what tells the files of one face from those of another.
type family struct {
	face  string
	hooks []string
	// texts says that a file has actions and tiers alone, and that an argument is one value.
	texts bool
	// otherwise are the arguments of plugins where a file does not say them, if they are others than Volcano's.
	otherwise map[string]policy.Arguments
	// never are points of plugins that only Volcano's ask at.
	never map[string][]policy.Point
}

// reader reads one file.
type reader struct {
	of      *family
	known   engine.Registry // of the face
	out     File
	plugins map[string]int // by name: its line
	idle    []string       // plugins that are known and have no part of their own
	idleAt  int
	// metricsAt is the line of the key metrics, 0 for none.
	metricsAt int
}

// Parse reads a scheduler file; known is what there is to name. The error is a Fault.
func Parse(text []byte, known engine.Registry) (File, error) {
	return readFile(text, known, &family{face: Face, hooks: hooks()})
}

func readFile(text []byte, known engine.Registry, of *family) (File, error) {
	r := reader{of: of, known: known.Faces[of.face], out: File{Face: engine.Face{Name: of.face}}, plugins: map[string]int{}}
	if err := r.file(text); err != nil {
		return File{}, err
	}
	if len(r.idle) > 0 {
		slices.Sort(r.idle)
		r.tell(r.idleAt, "tiers", "name plugins that have no part of their own yet: "+strings.Join(r.idle, ", "))
	}
	return r.out, nil
}

func (r *reader) tell(line int, field, rule string) {
	r.out.Told = append(r.out.Told, Fault{line, field, rule})
}

// faultLine is where YAML's own errors say that they are.
var faultLine = regexp.MustCompile(`line (\d+)`)

func (r *reader) file(text []byte) error {
	if len(text) > MostBytes {
		return Fault{1, "the file", fmt.Sprintf("has %d bytes; at most %d are read", len(text), MostBytes)}
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(text, &doc); err != nil {
		line := 1
		if m := faultLine.FindStringSubmatch(err.Error()); m != nil {
			line, _ = strconv.Atoi(m[1])
		}
		return Fault{line, "the file", "is not YAML: " + brief(err.Error())}
	}
	if doc.Kind == 0 || len(doc.Content) == 0 || doc.Content[0].Tag == "!!null" {
		return Fault{1, "the file", "is empty; actions and tiers are expected"}
	}
	if err := plain(&doc, 0); err != nil {
		return err
	}
	var actions, tiers *yaml.Node
	err := entries(doc.Content[0], "the file", func(key, value *yaml.Node) error {
		switch key.Value {
		case "actions":
			actions = value
			return nil
		case "tiers":
			tiers = value
			return nil
		}
		switch {
		case r.of.texts:
			r.tell(key.Line, brief(key.Value), "is no key of a scheduler file; known are actions and tiers")
		case key.Value == "configurations":
			return r.configurations(value)
		case key.Value == "metrics":
			return r.metrics(key, value)
		default:
			r.tell(key.Line, brief(key.Value), "is no key of a scheduler file; known are actions, tiers, configurations and metrics")
		}
		return nil
	})
	if err != nil {
		return err
	}
	if actions == nil {
		return Fault{1, "actions", "is missing"}
	}
	if err := r.actions(actions); err != nil {
		return err
	}
	if tiers != nil {
		if err := r.tiers(tiers); err != nil {
			return err
		}
	}
	r.measured()
	return nil
}

// plain refuses aliases, which could make a short file long, and what is nested beyond any use.
func plain(n *yaml.Node, depth int) error {
	switch {
	case n.Kind == yaml.AliasNode:
		return Fault{n.Line, "*" + brief(n.Value), "is an alias, which is not followed; write out what it stands for"}
	case depth > 32:
		return Fault{n.Line, "the file", "is nested too deeply"}
	}
	for _, c := range n.Content {
		if err := plain(c, depth+1); err != nil {
			return err
		}
	}
	return nil
}

// entries calls f for each entry of a mapping, each key of which is there once. What is null has none.
func entries(n *yaml.Node, field string, f func(key, value *yaml.Node) error) error {
	if n.Tag == "!!null" {
		return nil
	}
	if n.Kind != yaml.MappingNode {
		return Fault{n.Line, field, "must be a mapping of keys to values"}
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		if key.Kind != yaml.ScalarNode {
			return Fault{key.Line, field, "has a key that is no text"}
		}
		if seen[key.Value] {
			return Fault{key.Line, field + "." + brief(key.Value), "is there twice"}
		}
		seen[key.Value] = true
		if err := f(key, n.Content[i+1]); err != nil {
			return err
		}
	}
	return nil
}

// list returns the items of a list; none of what is null.
func list(n *yaml.Node, field string) ([]*yaml.Node, error) {
	switch {
	case n.Tag == "!!null":
		return nil, nil
	case n.Kind != yaml.SequenceNode:
		return nil, Fault{n.Line, field, "must be a list"}
	}
	return n.Content, nil
}

// scalar returns a value that is one text, number or switch.
func scalar(n *yaml.Node, field string) (string, error) {
	if n.Kind != yaml.ScalarNode || n.Tag == "!!null" {
		return "", Fault{n.Line, field, "must be one value"}
	}
	return n.Value, nil
}

func (r *reader) actions(n *yaml.Node) error {
	text, err := scalar(n, "actions")
	if err != nil {
		return err
	}
	for _, name := range strings.Split(text, ",") {
		name = strings.TrimSpace(name)
		if err := r.action(name, n.Line, "actions"); err != nil {
			return err
		}
		if !slices.Contains(r.out.Face.Actions, name) {
			r.out.Face.Actions = append(r.out.Face.Actions, name)
		}
	}
	if before, after := disordered(r.out.Face.Actions); before != "" {
		r.tell(n.Line, "actions", fmt.Sprintf("has %s before %s, and the order has no effect: actions are done in that of the scheduler's own configuration, %s, and then those in bundles and shuffle", before, after, strings.Join(order(), ", ")))
	}
	return nil
}

// order is that in which the actions of a scheduler's own configuration are done, unless it says otherwise, as far as a file may name them.
func order() []string { return []string{"enqueue", "allocate", actionReclaim, "preempt"} }

// disordered returns the first two neighbours of a list of actions that are done the other way round; "" for none. Backfill is part of allocate, and of those in bundles and shuffle the file
// says which is first.
func disordered(actions []string) (before, after string) {
	rank := func(name string) int {
		if i := slices.Index(order(), name); i >= 0 {
			return i
		}
		return len(order())
	}
	last := ""
	for _, name := range actions {
		if name == "backfill" {
			continue
		}
		if last != "" && rank(last) > rank(name) {
			return last, name
		}
		last = name
	}
	return "", ""
}

// action refuses what is no action.
func (r *reader) action(name string, line int, field string) error {
	if _, known := r.known.Actions[name]; known {
		return nil
	}
	names := slices.Collect(maps.Keys(r.known.Actions)) // the nearest of equally near ones is the first by name
	return Fault{line, field, fmt.Sprintf("names %q, which is no action; the nearest that is one is %s", brief(name), spelling.Nearest(name, names, spelling.Any))}
}

// configurations are of single actions.
func (r *reader) configurations(n *yaml.Node) error {
	items, err := list(n, "configurations")
	if err != nil {
		return err
	}
	for i, item := range items {
		field := fmt.Sprintf("configurations[%d]", i)
		named, of := false, ""
		args, at := policy.Arguments{}, map[string]int{}
		err := entries(item, field, func(key, value *yaml.Node) error {
			switch key.Value {
			case "name":
				named = true
				name, err := scalar(value, field+".name")
				if err != nil {
					return err
				}
				of = name
				return r.action(name, value.Line, field+".name")
			case "arguments":
				return entries(value, field+".arguments", func(key, value *yaml.Node) error {
					if at[key.Value], args[key.Value] = key.Line, value.Value; value.Kind != yaml.ScalarNode {
						args[key.Value] = "no one value"
					}
					return nil
				})
			}
			r.tell(key.Line, field+"."+brief(key.Value), "is no key of a configuration")
			return nil
		})
		if err != nil {
			return err
		}
		if !named {
			return Fault{item.Line, field + ".name", "is missing"}
		}
		if err := r.configure(of, field+".arguments", args, at); err != nil {
			return err
		}
	}
	return nil
}

// configure takes the arguments of an action: of those that have any all that they know, and nothing of others.
func (r *reader) configure(name, field string, args policy.Arguments, at map[string]int) error {
	known := map[string]bool{}
	if f := r.known.Late[name]; f != nil {
		if c, ok := f().(engine.Configurable); ok {
			if _, err := c.With(args); err != nil {
				line := 0
				for key, l := range at { // order: one is named
					if strings.Contains(err.Error(), strconv.Quote(key)) {
						line = l
					}
				}
				return Fault{line, field, "cannot be: " + err.Error()}
			}
			known[argumentWhole] = true
		}
	}
	for _, key := range slices.SortedFunc(maps.Keys(at), func(a, b string) int { return cmp.Compare(at[a], at[b]) }) {
		switch {
		case !known[key]:
			r.tell(at[key], field+"."+brief(key), "has no effect yet")
		case r.out.Face.Arguments == nil:
			r.out.Face.Arguments = map[string]policy.Arguments{name: {key: args[key]}}
		case r.out.Face.Arguments[name] == nil:
			r.out.Face.Arguments[name] = policy.Arguments{key: args[key]}
		default:
			r.out.Face.Arguments[name][key] = args[key]
		}
	}
	return nil
}

// argumentWhole says whether an action that takes in bundles may break gangs.
const argumentWhole = "allowWholeBundle"

func (r *reader) tiers(n *yaml.Node) error {
	tiers, err := list(n, "tiers")
	if err != nil {
		return err
	}
	if len(tiers) > MostTiers {
		return Fault{n.Line, "tiers", fmt.Sprintf("has %d entries; at most %d are allowed", len(tiers), MostTiers)}
	}
	for i, tier := range tiers {
		at := fmt.Sprintf("tiers[%d]", i)
		var uses []engine.PluginUse
		err := entries(tier, at, func(key, value *yaml.Node) error {
			if key.Value != "plugins" {
				r.tell(key.Line, at+"."+brief(key.Value), "is no key of a tier")
				return nil
			}
			plugins, err := list(value, at+".plugins")
			if err != nil {
				return err
			}
			by, hierarchies := map[string]int{}, 0
			for k, one := range plugins {
				field := fmt.Sprintf("%s.plugins[%d]", at, k)
				use, name, on, err := r.plugin(one, field)
				if err != nil {
					return err
				}
				if by[name] = one.Line; name == pluginDRF && on {
					hierarchies = one.Line
				}
				if use != nil {
					uses = append(uses, *use)
				}
			}
			if hierarchies > 0 && by[pluginShares] > 0 {
				return Fault{hierarchies, at, "has drf with enableHierarchy beside proportion; a tier has at most one of both"}
			}
			return nil
		})
		if err != nil {
			return err
		}
		r.out.Face.Tiers = append(r.out.Face.Tiers, uses)
	}
	return nil
}

// plugin reads one plugin; use is nil for one that nothing has. tree says that it has enableHierarchy.
func (r *reader) plugin(n *yaml.Node, field string) (use *engine.PluginUse, name string, tree bool, err error) {
	var nameAt *yaml.Node
	args, at, switches := policy.Arguments{}, map[string]int{}, map[string]bool{}
	err = entries(n, field, func(key, value *yaml.Node) error {
		switch hook, is := r.of.hookOf(key.Value); {
		case key.Value == "name":
			nameAt = value
			name, err = scalar(value, field+".name")
			return err
		case key.Value == "arguments":
			return entries(value, field+".arguments", func(key, value *yaml.Node) error {
				at[key.Value] = key.Line
				if args[key.Value] = value.Value; value.Kind != yaml.ScalarNode {
					if r.of.texts {
						return Fault{key.Line, field + ".arguments." + brief(key.Value), "must be one value"}
					}
					var deep any
					err := value.Decode(&deep)
					text, err2 := json.Marshal(deep)
					if err = cmp.Or(err, err2); err != nil {
						return Fault{key.Line, field + ".arguments." + brief(key.Value), "cannot be read: " + brief(err.Error())}
					}
					args[key.Value] = string(text)
				}
				return nil
			})
		case !is:
			r.tell(key.Line, field+"."+brief(key.Value), "is no key of a plugin; known are name, arguments, and enable with one of "+strings.Join(r.of.hooks, ", "))
		default:
			on, err := truth(value, field+"."+key.Value)
			if err != nil {
				return err
			}
			if was, said := switches[hook]; said && was != on {
				return Fault{key.Line, field + "." + key.Value, "says otherwise than the other spelling of the same key"}
			}
			switches[hook] = on
		}
		return nil
	})
	if err != nil {
		return nil, name, false, err
	}
	if nameAt == nil || name == "" {
		return nil, name, false, Fault{n.Line, field + ".name", "is missing"}
	}
	if line, twice := r.plugins[name]; twice {
		return nil, name, false, Fault{nameAt.Line, field + ".name", fmt.Sprintf("is %q, which line %d has already", brief(name), line)}
	}
	if r.plugins[name] = nameAt.Line; len(r.plugins) > MostPlugins {
		return nil, name, false, Fault{nameAt.Line, field, fmt.Sprintf("is one plugin too many; at most %d are allowed", MostPlugins)}
	}
	use, err = r.use(name, nameAt.Line, field, args, at, switches)
	return use, name, switches[hierarchy], err
}

// use is how the engine is told of a plugin; nil of one that nothing has.
func (r *reader) use(name string, line int, field string, args policy.Arguments, at map[string]int, switches map[string]bool) (*engine.PluginUse, error) {
	factories, known := r.known.Plugins[name]
	if !known {
		names := slices.Collect(maps.Keys(r.known.Plugins)) // as above
		r.tell(line, field+".name", fmt.Sprintf("is %q, which is no plugin, and is left out; the nearest that is one is %s", brief(name), spelling.Nearest(name, names, spelling.Any)))
		return nil, nil
	}
	for key, text := range r.of.otherwise[name] { // order: each on its own
		if _, said := args[key]; !said {
			args[key] = text
		}
	}
	points := 0
	for i := range factories {
		points += len(factories[i].Points)
		_, strange, err := factories[i].New(args)
		if err != nil {
			for key, l := range at { // order: at most one is named
				if strings.Contains(err.Error(), strconv.Quote(key)) {
					line = l
				}
			}
			return nil, Fault{line, field + ".arguments", "cannot be: " + err.Error()}
		}
		for _, key := range strange {
			top := key[:strings.IndexAny(key+".[", ".[")] // of what is within a list
			if at[key] == 0 && at[top] > 0 {
				r.tell(at[top], field+".arguments."+brief(key), "is nothing that plugin "+name+" knows, and has no effect")
				continue
			}
			r.tell(at[key], field+".arguments."+brief(key), "is no argument of plugin "+name)
		}
	}
	r.idleArguments(name, field, args, at)
	use := &engine.PluginUse{Name: name, Arguments: args}
	if points == 0 {
		if len(r.idle) == 0 {
			r.idleAt = line
		}
		r.idle = append(r.idle, name)
		use.Arguments = nil // nobody reads them
	}
	use.Off = append(use.Off, r.of.never[name]...)
	for _, hook := range r.of.hooks {
		if on, said := switches[hook]; said && !on {
			use.Off = append(use.Off, pointsOf(hook)...)
		}
	}
	if rest := partly()[name]; rest != "" {
		r.tell(line, field+".name", "is "+name+", of which is not honoured yet: "+rest)
	}
	if name == pluginShares || name == pluginQuotas || name == pluginDRF || name == pluginGroups {
		// Switches of the file, and what its actions come to: no arguments of the file's have these names, or they are told above.
		delete(use.Arguments, argumentHierarchy)
		delete(use.Arguments, argumentReclaim)
		if name != pluginShares && switches[hierarchy] {
			use.Arguments[argumentHierarchy] = "true"
		}
		if (name == pluginShares || name == pluginQuotas) && slices.Contains(r.out.Face.Actions, actionReclaim) {
			use.Arguments[argumentReclaim] = "true"
		}
	}
	if len(use.Arguments) == 0 {
		use.Arguments = nil
	}
	return use, nil
}

// idleArguments tells of arguments that are known and change nothing.
func (r *reader) idleArguments(name, field string, args policy.Arguments, at map[string]int) {
	if name == usage.Name {
		r.idleUsage(field, args, at)
	}
	if name != predicates.Name {
		return
	}
	for _, s := range predicates.Switches() {
		if on, err := strconv.ParseBool(args[s.Argument]); err == nil && !on {
			r.tell(at[s.Argument], field+".arguments."+s.Argument, "is false and has no effect: "+s.Why)
		}
	}
	for _, key := range []string{"volumebinding.weight", "volumebinding.bindTimeoutSeconds", "volumebinding.shape", "dynamicresources.filterTimeoutSeconds"} {
		if line, said := at[key]; said {
			r.tell(line, field+".arguments."+key, "has no effect: volumes and devices are chosen, and waited for, as for all gangs")
		}
	}
}

// partly are the plugins of which a part is not honoured yet.
func partly() map[string]string {
	return map[string]string{
		"nodeorder":             "imagelocality",
		"resource-strategy-fit": "what pods say by annotations",
		"nodegroup":             "the annotation volcano.sh/nodegroup-resource-limits of queues",
	}
}

// The names by which switches reach plugins as arguments.
const (
	argumentHierarchy = "enableHierarchy"
	argumentReclaim   = "reclaim"
)

// hookOf returns the hook that a key switches on or off.
func (f *family) hookOf(key string) (string, bool) {
	for _, prefix := range [...]string{"enable", "enabled"} {
		if name, ok := strings.CutPrefix(key, prefix); ok && slices.Contains(f.hooks, name) {
			return name, true
		}
	}
	return "", false
}

// truth reads a switch.
func truth(n *yaml.Node, field string) (bool, error) {
	var on bool
	if n.Kind != yaml.ScalarNode || n.Tag == "!!null" || n.Decode(&on) != nil {
		return false, Fault{n.Line, field, fmt.Sprintf("is %q; it must be true or false", brief(n.Value))}
	}
	return on, nil
}

// brief cuts a user's text to a length fit for a sentence, in one line.
func brief(text string) string {
	const most = 64
	text = strings.Join(strings.Fields(text), " ")
	if len(text) > most {
		return strings.ToValidUTF8(text[:most], "") + "…"
	}
	return text
}
