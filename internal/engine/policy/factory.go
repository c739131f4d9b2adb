package policy

import (
	"reflect"
	"slices"
)

// Factory is a plugin as it is declared, before there is one: which points it has, what it may say, and how it is built. [Makes],
// [Opens] and [Is] declare one. Several of one name in a registry are one plugin: all of them are opened, asked and told, in their order.
type Factory struct {
	// Points are those that the plugin has in any profile.
	Points []Point
	// Reasons are what it may say beside the engine's own reasons.
	Reasons []*Reason
	// New builds it once per profile; it refuses arguments it cannot read with an error naming the argument and the rule, and
	// reports those it does not know by name. What it returns is called once per run.
	New func(args Arguments) (open func(v *View) Instance, unknown []string, err error)
}

// Makes declares a plugin with arguments. build reads them, and returns what opens a run: an instance that lives for that run only, so
// that state cannot leak from one cycle into the next. Its points are those that T implements. A nil pointer has nothing to say in that
// run.
func Makes[T any](build func(Arguments) (func(*View) T, []string, error), reasons ...*Reason) Factory {
	var none T
	pointer := reflect.TypeFor[T]().Kind() == reflect.Pointer
	return Factory{pointsOf(none), reasons, func(args Arguments) (func(*View) Instance, []string, error) {
		open, unknown, err := build(args)
		return func(v *View) Instance {
			if i := any(open(v)); !pointer || i != any(none) {
				return i
			}
			return nil
		}, unknown, err
	}}
}

// Opens declares a plugin without arguments.
func Opens[T any](open func(*View) T, reasons ...*Reason) Factory {
	return Makes(func(args Arguments) (func(*View) T, []string, error) { return open, args.Unknown(), nil }, reasons...)
}

// Is declares a plugin without arguments or state.
func Is[T any](policy T, reasons ...*Reason) Factory {
	return Opens(func(*View) T { return policy }, reasons...)
}

// Extension is one interface of one extension point.
type Extension struct {
	Point Point
	Alone bool // two owners are an error

	has  func(i Instance) bool
	bind func(ps *Plugins, plugin string, i Instance) // to an instance that has it
}

// Bind has an instance of a plugin asked there, if it has that interface.
func (x *Extension) Bind(ps *Plugins, plugin string, i Instance) {
	if x.has(i) {
		x.bind(ps, plugin, i)
	}
}

// Extensions are those of the points that the plugin has.
func (f *Factory) Extensions() []Extension {
	var out []Extension
	for _, x := range extensions {
		if slices.Contains(f.Points, x.Point) {
			out = append(out, x)
		}
	}
	return out
}

// extensions are all of them, point by point in the order of the table at [Point].
var extensions = []Extension{
	many(PointQueueOrder, func(ps *Plugins) *[]QueueOrder { return &ps.QueueOrder }),
	many(PointGangOrder, func(ps *Plugins) *[]GangOrder { return &ps.GangOrder }),
	many(PointSetOrder, func(ps *Plugins) *[]SetOrder { return &ps.setOrder }),
	many(PointPodOrder, func(ps *Plugins) *[]PodOrder { return &ps.podOrder }),
	one(PointQueueShares, func(ps *Plugins) *QueueShares { return &ps.Shares }),
	naming(PointReclaimGate, func(ps *Plugins) *[]Named[ReclaimGate] { return &ps.Reclaim }),
	naming(PointVictimQueueFilter, func(ps *Plugins) *[]Named[VictimQueueFilter] { return &ps.VictimQueues }),
	naming(PointVictimFilter, func(ps *Plugins) *[]Named[VictimFilter] { return &ps.Victims }),
	naming(PointUnitCheck, func(ps *Plugins) *[]Named[UnitCheck] { return &ps.Units }),
	many(PointVictimOrder, func(ps *Plugins) *[]VictimOrder { return &ps.VictimOrders }),
	many(PointVictimTier, func(ps *Plugins) *[]VictimTier { return &ps.Tiers }),
	naming(PointQueueGate, func(ps *Plugins) *[]Named[QueueGate] { return &ps.QueueGates }),
	naming(PointFixedQuota, func(ps *Plugins) *[]Named[FixedQuota] { return &ps.FixedQuota }),
	naming(PointPodGate, func(ps *Plugins) *[]Named[PodGate] { return &ps.PodGates }),
	naming(PointNodeSets, func(ps *Plugins) *[]Named[NodeSets] { return &ps.NodeSets }),
	naming(PointNodeStatic, func(ps *Plugins) *[]Named[NodeStatic] { return &ps.Statics }),
	naming(PointNodeFilter, func(ps *Plugins) *[]Named[NodeFilter] { return &ps.Filters }),
	naming(PointNodeFilter, func(ps *Plugins) *[]Named[NodeRefusals] { return &ps.Refusals }),
	many(PointNodeReady, func(ps *Plugins) *[]NodeReady { return &ps.Ready }),
	many(PointNodeScore, func(ps *Plugins) *[]NodeScore { return &ps.Scores }),
	many(PointPodBonus, func(ps *Plugins) *[]PodBonus { return &ps.Bonuses }),
	one(PointCompanyScore, func(ps *Plugins) *CompanyScore { return &ps.Company }),
	many(PointDeviceOrder, func(ps *Plugins) *[]DeviceOrder { return &ps.deviceOrder }),
	many(PointObserver, func(ps *Plugins) *[]Observer { return &ps.observers }),
	many(PointObserver, func(ps *Plugins) *[]Promises { return &ps.promises }),
	many(PointDetail, func(ps *Plugins) *[]Detailer { return &ps.Details }),
	naming(PointClose, func(ps *Plugins) *[]Named[Closer] { return &ps.Closers }),
}

func has[T any](i Instance) bool {
	_, ok := i.(T)
	return ok
}

func many[T any](p Point, at func(*Plugins) *[]T) Extension {
	return Extension{p, false, has[T], func(ps *Plugins, _ string, i Instance) { *at(ps) = append(*at(ps), i.(T)) }}
}

// naming is many of a point whose verdicts name the plugin.
func naming[T any](p Point, at func(*Plugins) *[]Named[T]) Extension {
	return Extension{p, false, has[T], func(ps *Plugins, plugin string, i Instance) { *at(ps) = append(*at(ps), Named[T]{plugin, i.(T)}) }}
}

func one[T any](p Point, at func(*Plugins) *T) Extension {
	return Extension{p, true, has[T], func(ps *Plugins, _ string, i Instance) { *at(ps) = i.(T) }}
}

// Points lists every extension point.
func Points() []Point {
	var out []Point
	for _, x := range extensions {
		out = append(out, x.Point)
	}
	return slices.Compact(out)
}

func pointsOf(i Instance) []Point {
	var out []Point
	for _, x := range extensions {
		if x.has(i) {
			out = append(out, x.Point)
		}
	}
	return slices.Compact(out)
}
