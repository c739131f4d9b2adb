package policy

import (
	"iter"
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
func (f *Factory) Extensions() iter.Seq[Extension] {
	return func(yield func(Extension) bool) {
		for _, x := range extensions {
			if slices.Contains(f.Points, x.Point) && !yield(x) {
				return
			}
		}
	}
}

// Point names an extension point, in configuration (what a mutation neutralises) and in errors. This is how the opinions of several
// plugins combine; they are asked tier by tier, in the order of the profile:
//
//	point                interface          combination
//	queue-order          QueueOrder         first opinion that is not 0
//	gang-order           GangOrder          first opinion that is not 0, then age, then key
//	set-order            SetOrder           first opinion that is not 0, then name
//	pod-order            PodOrder           first opinion that is not 0, then age, then name as text
//	queue-shares         QueueShares        exclusive: two owners are a start-up error
//	reclaim-gate         ReclaimGate        all must agree; the first no is the verdict; nobody asked means no
//	victim-queue-filter  VictimQueueFilter  all must agree; the first no is the verdict
//	victim-filter        VictimFilter       all must agree; the first no is the verdict
//	unit-check           UnitCheck          all must agree; the first no is the verdict
//	victim-order         VictimOrder        first opinion that is not 0, then the reverse of queue-order's fallback
//	victim-tier          VictimTier         largest
//	queue-gate           QueueGate          all must agree; the first no is the verdict
//	fixed-quota          FixedQuota         one yes is enough
//	admission-vote       AdmissionVote      a no ends it; after a tier with a yes no later one is asked; no vote means yes
//	pod-gate             PodGate            all must agree; the first no is the verdict
//	node-sets            NodeSets           first that narrows a set
//	node-static          NodeStatic         all must agree; cached per class and node
//	node-filter          NodeFilter         all must agree; asked for each placement
//	node-ready           NodeReady          all must agree; a no turns a placement into a nomination
//	node-score           NodeScore          sum
//	pod-bonus            PodBonus           sum
//	company-score        CompanyScore       exclusive: two owners are a start-up error; with a face's own: sum
//	device-order         DeviceOrder        sum; larger first, then devices in use, then the group
//	observer             Observer           told in order, undone in reverse order
//	                     Promises           told in order
//	detail               Detailer           all asked, in order
//	timetable            Timetable          the earliest
//	close                Closer             all called, in order
//
// Of a face's own plugins alone, about gangs of the face:
//
//	preemptable          Preemptable        node by node and tier by tier, see [Plugins.Judges]
//	reclaimable          Reclaimable        the same
//	queue-turn           QueueTurn          one no is enough
//	starving             Starving           all of the first tier that has any must agree; nobody asked means no
//	leaf-order           LeafOrder          first opinion that is not 0, then age, then UID
//	domain-score         DomainScore        sum
//	victim-source        VictimSource       those of the first tier that names anybody, all of them
//	                     VictimKeeper       of all tiers, one yes is enough
//
// A face's own have these of the above for gangs of the face besides: gang-order, which stands for that of all; pod-order, likewise, and then the number at the end of the name,
// age, name; queue-gate, all must agree, they and those of all; node-filter and node-ready, likewise; node-score, which stands for that of all; company-score, which may (SoleCompany); pod-bonus; detail; observer, which hears of all pods; timetable.
type Point string

// extensions are all of them, point by point in the order of the table at [Point].
var extensions = []Extension{
	many("queue-order", func(ps *Plugins) *[]QueueOrder { return &ps.QueueOrder }),
	many("gang-order", func(ps *Plugins) *[]GangOrder { return &ps.GangOrder }),
	many("set-order", func(ps *Plugins) *[]SetOrder { return &ps.setOrder }),
	many("pod-order", func(ps *Plugins) *[]PodOrder { return &ps.podOrder }),
	one("queue-shares", func(ps *Plugins) *QueueShares { return &ps.Shares }),
	naming("reclaim-gate", func(ps *Plugins) *[]Named[ReclaimGate] { return &ps.Reclaim }),
	naming("victim-queue-filter", func(ps *Plugins) *[]Named[VictimQueueFilter] { return &ps.VictimQueues }),
	naming("victim-filter", func(ps *Plugins) *[]Named[VictimFilter] { return &ps.Victims }),
	naming("unit-check", func(ps *Plugins) *[]Named[UnitCheck] { return &ps.Units }),
	many("victim-order", func(ps *Plugins) *[]VictimOrder { return &ps.VictimOrders }),
	many("victim-tier", func(ps *Plugins) *[]VictimTier { return &ps.Tiers }),
	naming("queue-gate", func(ps *Plugins) *[]Named[QueueGate] { return &ps.QueueGates }),
	naming("fixed-quota", func(ps *Plugins) *[]Named[FixedQuota] { return &ps.FixedQuota }),
	naming("admission-vote", func(ps *Plugins) *[]Named[AdmissionVote] { return &ps.Votes }),
	naming("pod-gate", func(ps *Plugins) *[]Named[PodGate] { return &ps.PodGates }),
	naming("node-sets", func(ps *Plugins) *[]Named[NodeSets] { return &ps.NodeSets }),
	naming("node-static", func(ps *Plugins) *[]Named[NodeStatic] { return &ps.Statics }),
	naming("node-filter", func(ps *Plugins) *[]Named[NodeFilter] { return &ps.Filters }),
	naming("node-filter", func(ps *Plugins) *[]Named[NodeRefusals] { return &ps.Refusals }),
	many("node-ready", func(ps *Plugins) *[]NodeReady { return &ps.Ready }),
	many("node-score", func(ps *Plugins) *[]NodeScore { return &ps.Scores }),
	many("pod-bonus", func(ps *Plugins) *[]PodBonus { return &ps.Bonuses }),
	{"company-score", true, has[CompanyScore], func(ps *Plugins, _ string, i Instance) {
		ps.Company = beside(ps.Company, i.(CompanyScore))
		if s, ok := i.(SoleCompany); ok && s.Sole() {
			ps.sole = true
		}
	}},
	many("device-order", func(ps *Plugins) *[]DeviceOrder { return &ps.deviceOrder }),
	many("observer", func(ps *Plugins) *[]Observer { return &ps.observers }),
	many("observer", func(ps *Plugins) *[]Promises { return &ps.promises }),
	many("detail", func(ps *Plugins) *[]Detailer { return &ps.Details }),
	many("timetable", func(ps *Plugins) *[]Timetable { return &ps.timetables }),
	naming("preemptable", func(ps *Plugins) *[]Named[Preemptable] { return &ps.Preemptable }),
	naming("reclaimable", func(ps *Plugins) *[]Named[Reclaimable] { return &ps.Reclaimable }),
	naming("queue-turn", func(ps *Plugins) *[]Named[QueueTurn] { return &ps.Turns }),
	naming("starving", func(ps *Plugins) *[]Named[Starving] { return &ps.Starving }),
	many("leaf-order", func(ps *Plugins) *[]LeafOrder { return &ps.leafOrder }),
	many("domain-score", func(ps *Plugins) *[]DomainScore { return &ps.domains }),
	many("victim-source", func(ps *Plugins) *[]VictimSource { return &ps.sources }),
	many("victim-source", func(ps *Plugins) *[]VictimKeeper { return &ps.keepers }),
	naming("close", func(ps *Plugins) *[]Named[Closer] { return &ps.Closers }),
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
