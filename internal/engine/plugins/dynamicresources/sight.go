package dynamicresources

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/cel"

	"github.com/muster-scheduler/muster/internal/cluster"
)

// A claim sees little of a device: the attributes that its expressions name, and of those that a constraint names, which devices
// have the same. Devices that differ in other attributes only, as in their serial numbers, are the same to it.

// sight is what somebody who asks can see of devices.
type sight struct {
	all    bool            // everything: what an expression looks at is not known
	named  map[string]bool // attributes that expressions name, by domain/id
	equals map[string]bool // attributes that constraints compare
}

// wish is what claims ask for, without their names.
type wish struct {
	id int32
	sight
	decisive *decisive // nil for nothing
	requests []request // those whose devices can be counted
	needs    []need
}

// maxSights bounds how many sights of one catalog are told apart: each costs a look at every device. Who comes later sees everything.
const maxSights = 32

// wishOf returns what the pods of a class ask for: one parse of each expression, until a class of devices changes.
func (c *catalog) wishOf(class *cluster.Class, cache *cel.Cache) *wish {
	if w := c.memory.wishOf[class.ID]; w != nil {
		return w
	}
	var text strings.Builder
	for k := range class.Devices {
		text.WriteString(class.Devices[k].Spec)
		text.WriteByte(0)
	}
	w := c.memory.wishes[text.String()]
	if w == nil {
		read := reader{cache: cache, trees: map[string]ast.Expr{}}
		w = &wish{id: c.memory.id("w" + text.String()), sight: sight{named: map[string]bool{}, equals: map[string]bool{}}}
		for k := range class.Devices {
			var spec resourceapi.ResourceClaimSpec
			if err := json.Unmarshal([]byte(class.Devices[k].Spec), &spec); err != nil {
				w.all = true
				continue
			}
			w.look(&spec.Devices, c.classes, read)
			if class.Devices[k].Extended { // nodes whose device plugins have some need not have all
				continue
			}
			w.needsOf(&spec.Devices)
			if len(class.Devices) == 1 {
				w.decisive = decisiveOf(&spec.Devices, c.classes, read)
			}
		}
		w.together()
		c.memory.wishes[text.String()] = w
	}
	c.memory.wishOf[class.ID] = w
	return w
}

// look adds what a claim looks at.
func (s *sight) look(d *resourceapi.DeviceClaim, of classes, read reader) {
	class := func(name string) {
		if dc, err := of.Get(name); err == nil {
			s.choose(dc.Spec.Selectors, read)
		}
	}
	for i := range d.Requests {
		r := &d.Requests[i]
		if r.Exactly != nil {
			class(r.Exactly.DeviceClassName)
			s.choose(r.Exactly.Selectors, read)
		}
		for k := range r.FirstAvailable {
			class(r.FirstAvailable[k].DeviceClassName)
			s.choose(r.FirstAvailable[k].Selectors, read)
		}
	}
	for i := range d.Constraints {
		for _, name := range []*resourceapi.FullyQualifiedName{d.Constraints[i].MatchAttribute, d.Constraints[i].DistinctAttribute} {
			if name != nil {
				s.equals[string(*name)] = true
			}
		}
	}
}

func (s *sight) choose(selectors []resourceapi.DeviceSelector, read reader) {
	for i := range selectors {
		if selectors[i].CEL == nil {
			continue
		}
		if tree := read.tree(selectors[i].CEL.Expression); tree != nil { // else the allocator says so of every device
			s.all = s.all || !s.read(tree)
		}
	}
}

// reader parses each expression once.
type reader struct {
	cache *cel.Cache
	trees map[string]ast.Expr
}

// tree returns an expression as it is written; nil if it cannot be read.
func (r reader) tree(expression string) ast.Expr {
	out, known := r.trees[expression]
	if !known {
		if tree, issues := r.cache.GetOrCompile("true").Environment.Parse(expression); issues.Err() == nil {
			out = tree.NativeRep().Expr()
		}
		r.trees[expression] = out
	}
	return out
}

// read notes the attributes that an expression names, and says whether it looks at nothing else of them.
func (s *sight) read(e ast.Expr) bool {
	switch e.Kind() {
	case ast.LiteralKind:
		return true
	case ast.IdentKind:
		return e.AsIdent() != "device"
	case ast.SelectKind:
		sel := e.AsSelect()
		if isDevice(sel.Operand()) {
			return sel.FieldName() == "driver" || sel.FieldName() == "allowMultipleAllocations"
		}
		if s.note(sel.Operand(), sel.FieldName()) {
			return true
		}
		return s.read(sel.Operand())
	case ast.CallKind:
		call := e.AsCall()
		args := call.Args()
		if call.FunctionName() == operators.Index {
			if id, ok := literal(args[1]); ok && s.note(args[0], id) {
				return true
			}
		}
		if call.FunctionName() == operators.In {
			if id, ok := literal(args[0]); ok && s.note(args[1], id) {
				return true
			}
		}
		if call.IsMemberFunction() && !s.read(call.Target()) {
			return false
		}
		return s.readAll(args)
	case ast.ListKind:
		return s.readAll(e.AsList().Elements())
	case ast.ComprehensionKind:
		c := e.AsComprehension()
		return s.readAll([]ast.Expr{c.IterRange(), c.AccuInit(), c.LoopCondition(), c.LoopStep(), c.Result()})
	}
	return false
}

func (s *sight) readAll(es []ast.Expr) bool {
	for _, e := range es {
		if !s.read(e) {
			return false
		}
	}
	return true
}

// note notes an attribute of a domain of the device's attributes, which an expression is, or is not. What a device has of
// capacities everybody sees.
func (s *sight) note(of ast.Expr, id string) bool {
	if of.Kind() != ast.CallKind || of.AsCall().FunctionName() != operators.Index {
		return false
	}
	args := of.AsCall().Args()
	domain, ok := literal(args[1])
	if !ok || args[0].Kind() != ast.SelectKind || !isDevice(args[0].AsSelect().Operand()) {
		return false
	}
	switch args[0].AsSelect().FieldName() {
	case "attributes":
		s.named[domain+"/"+id] = true
		return true
	case "capacity":
		return true
	}
	return false
}

func isDevice(e ast.Expr) bool { return e.Kind() == ast.IdentKind && e.AsIdent() == "device" }

func literal(e ast.Expr) (string, bool) {
	if e.Kind() != ast.LiteralKind {
		return "", false
	}
	text, ok := e.AsLiteral().Value().(string)
	return text, ok
}

// seen returns what a wish sees of the devices there are, and its name. Attributes that no device has are not seen.
func (c *catalog) seen(w *wish) string {
	if c.names == nil {
		c.names = map[string]bool{}
		for _, o := range c.slicesSeen { // order: a set
			s, ok := o.(*resourceapi.ResourceSlice)
			if !ok {
				continue
			}
			for i := range s.Spec.Devices {
				for name := range s.Spec.Devices[i].Attributes { // order: a set
					c.names[qualified(name, s.Spec.Driver)] = true
				}
			}
		}
	}
	if key, known := c.seenBy[w]; known {
		return key
	}
	list := func(set map[string]bool) string {
		var out []string
		for name := range set { // order: sorted below
			if c.names[name] {
				out = append(out, name)
			}
		}
		slices.Sort(out)
		return strings.Join(out, ",")
	}
	key := list(w.named) + ";" + list(w.equals)
	if _, known := c.sights[key]; w.all || !known && len(c.sights) >= maxSights {
		key = "*"
	}
	if c.sights[key] == nil {
		c.sights[key] = &seen{sight: w.sight, twins: map[string]int32{}}
		c.sights[key].all = key == "*"
	}
	c.seenBy[w] = key
	return key
}

// qualified is an attribute's name with its domain.
func qualified(name resourceapi.QualifiedName, driver string) string {
	if strings.Contains(string(name), "/") {
		return string(name)
	}
	return driver + "/" + string(name)
}
