package engine

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

// extension is one interface of one extension point.
type extension struct {
	point Point
	alone bool                                        // two owners are an error
	has   func(i Instance) bool                       // says whether an instance has it
	bind  func(ps *points, plugin string, i Instance) // to an instance that has it
}

// extensions are all of them, point by point in the order of the table at [Point].
var extensions = []extension{
	many(PointQueueOrder, func(ps *points) *[]QueueOrder { return &ps.queueOrder }),
	many(PointGangOrder, func(ps *points) *[]GangOrder { return &ps.gangOrder }),
	many(PointSetOrder, func(ps *points) *[]SetOrder { return &ps.setOrder }),
	many(PointPodOrder, func(ps *points) *[]PodOrder { return &ps.podOrder }),
	one(PointQueueShares, func(ps *points) *QueueShares { return &ps.shares }),
	naming(PointReclaimGate, func(ps *points) *[]named[ReclaimGate] { return &ps.reclaim }),
	naming(PointVictimQueueFilter, func(ps *points) *[]named[VictimQueueFilter] { return &ps.victimQueues }),
	naming(PointVictimFilter, func(ps *points) *[]named[VictimFilter] { return &ps.victims }),
	naming(PointUnitCheck, func(ps *points) *[]named[UnitCheck] { return &ps.units }),
	many(PointVictimOrder, func(ps *points) *[]VictimOrder { return &ps.victimOrders }),
	many(PointVictimTier, func(ps *points) *[]VictimTier { return &ps.tiers }),
	naming(PointQueueGate, func(ps *points) *[]named[QueueGate] { return &ps.queueGates }),
	naming(PointFixedQuota, func(ps *points) *[]named[FixedQuota] { return &ps.fixedQuota }),
	naming(PointPodGate, func(ps *points) *[]named[PodGate] { return &ps.podGates }),
	naming(PointNodeSets, func(ps *points) *[]named[NodeSets] { return &ps.nodeSets }),
	naming(PointNodeStatic, func(ps *points) *[]named[NodeStatic] { return &ps.statics }),
	naming(PointNodeFilter, func(ps *points) *[]named[NodeFilter] { return &ps.filters }),
	naming(PointNodeFilter, func(ps *points) *[]named[NodeRefusals] { return &ps.refusals }),
	many(PointNodeReady, func(ps *points) *[]NodeReady { return &ps.ready }),
	many(PointNodeScore, func(ps *points) *[]NodeScore { return &ps.scores }),
	many(PointPodBonus, func(ps *points) *[]PodBonus { return &ps.bonuses }),
	one(PointCompanyScore, func(ps *points) *CompanyScore { return &ps.company }),
	many(PointDeviceOrder, func(ps *points) *[]DeviceOrder { return &ps.deviceOrder }),
	many(PointObserver, func(ps *points) *[]Observer { return &ps.observers }),
	many(PointObserver, func(ps *points) *[]Promises { return &ps.promises }),
	many(PointDetail, func(ps *points) *[]Detailer { return &ps.details }),
	naming(PointClose, func(ps *points) *[]named[Closer] { return &ps.closers }),
}

func has[T any](i Instance) bool {
	_, ok := i.(T)
	return ok
}

func many[T any](p Point, at func(*points) *[]T) extension {
	return extension{p, false, has[T], func(ps *points, _ string, i Instance) { *at(ps) = append(*at(ps), i.(T)) }}
}

// naming is many of a point whose verdicts name the plugin.
func naming[T any](p Point, at func(*points) *[]named[T]) extension {
	return extension{p, false, has[T], func(ps *points, plugin string, i Instance) { *at(ps) = append(*at(ps), named[T]{plugin, i.(T)}) }}
}

func one[T any](p Point, at func(*points) *T) extension {
	return extension{p, true, has[T], func(ps *points, _ string, i Instance) { *at(ps) = i.(T) }}
}

// Points lists every extension point.
func Points() []Point {
	var out []Point
	for _, x := range extensions {
		out = append(out, x.point)
	}
	return slices.Compact(out)
}

func pointsOf(i Instance) []Point {
	var out []Point
	for _, x := range extensions {
		if x.has(i) {
			out = append(out, x.point)
		}
	}
	return slices.Compact(out)
}

// open opens the plugins for a run.
func (e *Engine) open(v *View) points {
	var ps points
	for _, np := range e.plugins {
		done := e.around(StageOpenPlugin, np.name)
		for _, part := range np.parts {
			i := part.open(v)
			for _, x := range part.at {
				if x.has(i) {
					x.bind(&ps, np.name, i)
				}
			}
		}
		done()
	}
	return ps
}
