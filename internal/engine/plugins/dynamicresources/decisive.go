package dynamicresources

import (
	"encoding/binary"
	"maps"
	"slices"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine/policy"
)

// Many ask for a device by name: its serial number, its model. Where an expression is true only of devices that have an attribute of
// one value, the nodes that have such a device are looked up, and no others are asked.

// decisive is a value of an attribute that devices must have. Those that have another of the same attribute are refused, and looking
// at them is no error, if the expression compiles.
type decisive struct {
	name, value string
	expression  string // "" if it certainly compiles
}

// decisiveOf returns what decides about a claim; nil if nothing does, or the allocator might have something else to say.
func decisiveOf(d *resourceapi.DeviceClaim, of classes, read reader) *decisive {
	if len(d.Requests) != 1 {
		return nil
	}
	for _, c := range d.Constraints {
		if c.MatchAttribute == nil && c.DistinctAttribute == nil {
			return nil
		}
	}
	r := d.Requests[0].Exactly
	if r == nil || len(r.Selectors) == 0 {
		return nil
	}
	exactly := r.AllocationMode == resourceapi.DeviceAllocationModeExactCount && r.Count >= 1 && r.Count <= resourceapi.AllocationResultsMaxSize
	if !exactly && r.AllocationMode != resourceapi.DeviceAllocationModeAll {
		return nil
	}
	dc, err := of.Get(r.DeviceClassName)
	if err != nil || len(dc.Spec.Selectors) > 0 && !(len(dc.Spec.Selectors) == 1 && dc.Spec.Selectors[0].CEL != nil && ofDriver(read.tree(dc.Spec.Selectors[0].CEL.Expression))) {
		return nil
	}
	for i := range r.Selectors {
		if r.Selectors[i].CEL == nil {
			return nil
		}
	}
	tree := read.tree(r.Selectors[0].CEL.Expression)
	if tree == nil {
		return nil
	}
	found, simple := conjuncts(tree)
	if found != nil && !simple {
		found.expression = r.Selectors[0].CEL.Expression
	}
	return found
}

// conjuncts returns one comparison of those that must all be true, and whether there is nothing else.
func conjuncts(e ast.Expr) (*decisive, bool) {
	if e.Kind() != ast.CallKind {
		return nil, false
	}
	args := e.AsCall().Args()
	switch e.AsCall().FunctionName() {
	case operators.LogicalAnd:
		l, ls := conjuncts(args[0])
		r, rs := conjuncts(args[1])
		if l == nil {
			l = r
		}
		return l, ls && rs
	case operators.Equals:
		for i := range args {
			name, is := attributeOf(args[i])
			if value, ok := literal(args[1-i]); ok && is {
				return &decisive{name: name, value: value}, true
			}
		}
	}
	return nil, false
}

func isIndex(e ast.Expr) bool {
	return e.Kind() == ast.CallKind && e.AsCall().FunctionName() == operators.Index
}

// attributeOf is the attribute that an expression is, with its domain.
func attributeOf(e ast.Expr) (string, bool) {
	s := sight{named: map[string]bool{}}
	var ok bool
	switch {
	case e.Kind() == ast.SelectKind && !e.AsSelect().IsTestOnly():
		ok = s.note(e.AsSelect().Operand(), e.AsSelect().FieldName())
	case isIndex(e):
		id, text := literal(e.AsCall().Args()[1])
		ok = text && s.note(e.AsCall().Args()[0], id)
	}
	for name := range s.named { // order: one
		return name, ok
	}
	return "", false
}

// ofDriver says whether an expression does nothing but compare the driver's name.
func ofDriver(e ast.Expr) bool {
	if e == nil || e.Kind() != ast.CallKind || e.AsCall().FunctionName() != operators.Equals {
		return false
	}
	args := e.AsCall().Args()
	_, ok := literal(args[1])
	return ok && args[0].Kind() == ast.SelectKind && isDevice(args[0].AsSelect().Operand()) && args[0].AsSelect().FieldName() == "driver"
}

// where is which nodes have devices with an attribute, by its value, and those of which it cannot be said: all devices of the others
// have the attribute, as a text.
type where struct {
	by    map[string][]string
	vague map[string]bool
}

// whereIs looks at every device once, until some slice changes.
func (c *catalog) whereIs(name string) *where {
	if w := c.places[name]; w != nil {
		return w
	}
	w := &where{by: map[string][]string{}, vague: map[string]bool{}}
	c.places[name] = w
	for node, published := range c.byNode { // order: by node, and sorted below
		for _, s := range published {
			k := poolKey{s.Spec.Driver, s.Spec.Pool.Name}
			if len(c.pools[k].slices) != 1 || s.Spec.Pool.ResourceSliceCount != 1 || len(s.Spec.SharedCounters) > 0 {
				w.vague[node] = true
			}
			names := map[string]bool{}
			for i, d := range c.memory.describe(s).devices {
				n, value := 0, ""
				for _, a := range d.attributes {
					if !a.plain {
						n = 2
					}
					if a.name == name {
						n++
						if at := a.text; at != nil {
							value = *at
						} else {
							n++
						}
					}
				}
				if of := &s.Spec.Devices[i]; n != 1 || names[of.Name] || len(of.ConsumesCounters) > 0 {
					w.vague[node] = true
				}
				names[s.Spec.Devices[i].Name] = true
				if at := w.by[value]; len(at) == 0 || at[len(at)-1] != node {
					w.by[value] = append(at, node)
				}
			}
		}
	}
	return w
}

// fewNodes is up to how many nodes are asked one by one.
const fewNodes = 16

// candidates returns the nodes on which a wish may have a device; false if they are many, or it is not known.
func (c *catalog) candidates(w *wish) ([]string, bool) {
	if w.decisive == nil || len(c.shared) > 0 {
		return nil, false
	}
	at := c.whereIs(w.decisive.name)
	list := at.by[w.decisive.value]
	if len(list)+len(at.vague) > fewNodes {
		return nil, false
	}
	list = slices.AppendSeq(slices.Clone(list), maps.Keys(at.vague)) // order: sorted below
	slices.Sort(list)
	return slices.Compact(list), true
}

// hopeless says whether no device of a node is what a wish must have, taken or not.
func (l *claimLedger) hopeless(w *wish, node string) bool {
	if w.decisive == nil || len(l.catalog.byNode[node]) == 0 {
		return false
	}
	few, known := l.candidates(w)
	_, one := slices.BinarySearch(few, node)
	return known && !one
}

// candidates returns the only nodes on which a wish may have a device; false if they are many, or it is not known.
func (l *claimLedger) candidates(w *wish) ([]string, bool) {
	few, known := l.catalog.candidatesOf(w)
	if known && w.decisive.expression != "" {
		l.compile(w)
	}
	return few, known && l.compiles(w)
}

// compiles says whether the expression that decides about a wish is one.
func (l *claimLedger) compiles(w *wish) bool {
	return w.decisive.expression == "" || l.cache.GetOrCompile(w.decisive.expression).Error == nil
}

// candidatesOf is candidates, kept.
func (c *catalog) candidatesOf(w *wish) ([]string, bool) {
	f, met := c.few[w]
	if !met {
		f.nodes, f.known = c.candidates(w)
		c.few[w] = f
	}
	return f.nodes, f.known
}

// few is what candidates returned.
type few struct {
	nodes []string
	known bool
}

// taken is what is said where nothing of what there is will do.
func taken() policy.Verdict {
	return policy.Verdict{Code: policy.No, Reason: ReasonDevicesTaken}
}

// askFew is askAll where few nodes come into question.
func (l *claimLedger) askFew(p *cluster.Pod, open []int, nodes []string) (words string, hurried bool) {
	b := binary.AppendVarint([]byte("few\x00"), int64(len(l.log)))
	for _, name := range nodes {
		n := l.snap.NodeByName(name)
		if n == nil {
			continue
		}
		a := l.solve(p, n, open, later)
		v := a.verdict
		if hurried = hurried || a.hurried; v.Yes() {
			return "", hurried
		}
		if v != taken() {
			b = binary.AppendVarint(b, int64(n.ID))
			b = binary.AppendVarint(b, int64(l.said(v)))
		}
	}
	return string(b), hurried
}
