package dynamicresources

import (
	"encoding/binary"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/structured"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine/policy"
)

// Most nodes of a cluster publish the same devices, each under its own name. What the allocator said to somebody who asks on one of
// them it says on all of which the same devices are taken: thousands of claims that no device satisfies, no two of which are
// alike, are then tried on each sort of node and not on each node, and once and not in every run. A yes is only known to be
// one, as it names devices.

// memory is what is kept from run to run beside the catalog. It says how much work is done, never what comes of it.
type memory struct {
	age     int            // how many times everything was forgotten
	classes map[string]any // those of the wishes and answers
	ids     map[string]int32
	slices  map[*resourceapi.ResourceSlice]*described
	wishes  map[string]*wish // by the text of what is asked for
	wishOf  map[uint64]*wish // by class of pods, of one run
	answers map[asked]answer
}

// maxRemembered bounds what is kept, in entries of each kind; beyond it everything is forgotten.
const maxRemembered = 1 << 18

// asked is a wish and a sort of nodes, and whose the answer is; "" for everybody's.
type asked struct {
	wish, sort int32
	queue      string
}

// remember prepares what is kept for another run.
func (m *memory) remember(snap *cluster.Snapshot) {
	of := snap.Objects(cluster.DeviceClasses)
	if !sameMap(m.classes, of) || max(len(m.ids), len(m.answers), len(m.slices)) > maxRemembered {
		*m = memory{age: m.age + 1, classes: of, ids: map[string]int32{}, slices: map[*resourceapi.ResourceSlice]*described{}, wishes: map[string]*wish{}, answers: map[asked]answer{}}
	}
	m.wishOf = map[uint64]*wish{}
}

// id is a number for a text.
func (m *memory) id(text string) int32 {
	id, known := m.ids[text]
	if !known {
		id = int32(len(m.ids) + 1)
		m.ids[text] = id
	}
	return id
}

// described is a slice in short: all but the names of its node, its pool and its devices.
type described struct {
	rest    int32
	devices []describedDevice
}

type describedDevice struct {
	rest       int32
	many       bool        // several may have it
	attributes []attribute // by name
}

type attribute struct {
	name  string // with its domain
	id    int32  // of the name as it is written
	value int32
	plain bool // it is no error to look at it
	one   bool // it is no list
	text  *string
}

// describe reads a slice once.
func (m *memory) describe(s *resourceapi.ResourceSlice) *described {
	if d := m.slices[s]; d != nil {
		return d
	}
	spec := s.Spec
	spec.NodeName, spec.Devices, spec.Pool = nil, nil, resourceapi.ResourcePool{ResourceSliceCount: s.Spec.Pool.ResourceSliceCount}
	d := &described{rest: m.text(spec)}
	for i := range s.Spec.Devices {
		rest := s.Spec.Devices[i]
		of := rest.Attributes
		rest.Name, rest.Attributes = "", nil
		dd := describedDevice{rest: m.text(rest), many: rest.AllowMultipleAllocations != nil && *rest.AllowMultipleAllocations}
		for _, name := range slices.Sorted(maps.Keys(of)) {
			a := of[name]
			one := a.IntValue != nil || a.BoolValue != nil || a.StringValue != nil
			dd.attributes = append(dd.attributes, attribute{
				name: qualified(name, s.Spec.Driver), id: m.id("n" + string(name)), value: m.valueOf(&a), one: one, text: a.StringValue,
				plain: one || a.IntValues != nil || a.BoolValues != nil || a.StringValues != nil,
			})
		}
		d.devices = append(d.devices, dd)
	}
	m.slices[s] = d
	return d
}

func (m *memory) valueOf(a *resourceapi.DeviceAttribute) int32 {
	if a.StringValue != nil { // as nearly all are; another field beside it is no attribute that the API server lets in
		return m.id("s" + *a.StringValue)
	}
	return m.text(a)
}

func (m *memory) text(x any) int32 {
	text, err := json.Marshal(x)
	if err != nil {
		panic("dynamicresources: " + err.Error()) // these types marshal by construction
	}
	return m.id("j" + string(text))
}

// seen is the nodes as some who ask see them.
type seen struct {
	sight
	twins map[string]int32 // by node
}

// twin returns what a node publishes as it is seen: O(that) once, until some slice changes. 0 for a node that is like no other.
func (c *catalog) twin(key, node string) int32 {
	if len(c.shared) > 0 { // they may be there for some nodes and not for others
		return 0
	}
	of := c.sights[key]
	if id, known := of.twins[node]; known {
		return id
	}
	m := c.memory
	var b []byte
	put := func(x int64) { b = binary.AppendVarint(b, x) }
	pools, names, first := map[poolKey]int64{}, map[string]int64{}, map[[2]int32]int64{}
	oldest := map[poolKey]int64{}
	for _, s := range c.byNode[node] {
		k := poolKey{s.Spec.Driver, s.Spec.Pool.Name}
		if g, met := oldest[k]; !met || s.Spec.Pool.Generation < g {
			oldest[k] = s.Spec.Pool.Generation
		}
	}
	for _, s := range c.byNode[node] {
		d, k := m.describe(s), poolKey{s.Spec.Driver, s.Spec.Pool.Name}
		if _, met := pools[k]; !met {
			pools[k] = int64(len(pools))
		}
		put(pools[k])
		put(s.Spec.Pool.Generation - oldest[k])
		put(int64(d.rest))
		put(int64(len(d.devices)))
		for i := range d.devices {
			name := strconv.FormatInt(pools[k], 10) + "/" + s.Spec.Devices[i].Name
			if _, met := names[name]; !met {
				names[name] = int64(len(names))
			}
			put(names[name])
			put(int64(d.devices[i].rest))
			for _, a := range d.devices[i].attributes {
				switch {
				case of.all || !a.plain || of.named[a.name]:
					put(int64(a.id))
					put(int64(a.value))
				case of.equals[a.name] && a.one:
					at := [2]int32{m.id("q" + a.name), a.value}
					if _, met := first[at]; !met {
						first[at] = int64(len(first))
					}
					put(int64(a.id))
					put(-1 - first[at])
				case of.equals[a.name]:
					put(int64(a.id))
					put(int64(a.value))
				}
			}
			put(0)
		}
	}
	id := m.id("t" + string(b))
	of.twins[node] = id
	return id
}

// sortOf names the sort of a node for who sees it so; 0 if it is of none.
func (l *claimLedger) sortOf(key string, n *cluster.Node, s side) int32 {
	twin := l.catalog.twin(key, n.Name)
	if twin == 0 {
		return 0
	}
	taken, some := []byte(nil), false
	for _, slice := range l.catalog.byNode[n.Name] {
		k := poolKey{slice.Spec.Driver, slice.Spec.Pool.Name}
		if l.used[s].shared[k] != 0 {
			return 0
		}
		if l.used[s].pools[k] == 0 {
			taken = append(taken, make([]byte, len(slice.Spec.Devices))...)
			continue
		}
		for i := range slice.Spec.Devices {
			b := byte(0)
			if l.used[s].state.AllocatedDevices.Has(structured.MakeDeviceID(k.driver, k.name, slice.Spec.Devices[i].Name)) {
				b, some = 1, true
			}
			taken = append(taken, b)
		}
	}
	if !some {
		taken = nil
	}
	if taken == nil && len(n.ByClaim) == 0 {
		return twin
	}
	return l.catalog.memory.id("S" + strconv.Itoa(int(twin)) + "/" + string(taken) + "/" + strings.Join(n.ByClaim, ","))
}

// census counts the nodes of each sort, as somebody sees them.
type census struct {
	of     []int32 // by node ID
	count  map[int32]int
	order  []int32 // sorts that were met
	synced int     // how much of the ledger's log is included
}

// censusOf returns the sorts of nodes as they stand: O(nodes) once a run, and then what has changed.
func (l *claimLedger) censusOf(key string, s side) *census {
	at := censusKey{key, s}
	c := l.census[at]
	put := func(n *cluster.Node) {
		id := l.sortOf(key, n, s)
		c.of[n.ID] = id
		if _, met := c.count[id]; !met {
			c.order = append(c.order, id)
		}
		c.count[id]++
	}
	if c == nil || len(l.log)-c.synced > len(l.snap.NodeOrder) {
		c = &census{of: make([]int32, l.snap.MaxNodeID()), count: map[int32]int{}, synced: len(l.log)}
		l.census[at] = c
		for _, id := range l.snap.NodeOrder {
			put(l.snap.Node(id))
		}
		return c
	}
	for ; c.synced < len(l.log); c.synced++ {
		if n := l.snap.NodeByName(l.log[c.synced]); n != nil {
			c.count[c.of[n.ID]]--
			put(n)
		}
	}
	return c
}

type censusKey struct {
	sight string
	side  side
}

// nobody returns what all nodes say to a pod if none of them takes it, as a text: to whom they say the same it is the same. It is ""
// if some may. It costs a question for each sort of nodes that was not asked yet.
func (l *claimLedger) nobody(p *cluster.Pod) string {
	open := make([]int, len(p.Class.Devices))
	for k := range p.Class.Devices {
		c := l.claimOf(p, k)
		if p.Class.Devices[k].Extended || c == nil || c.object == nil || c.object.DeletionTimestamp != nil || c.full(p.UID) || c.held != nil || c.kept != nil {
			return ""
		}
		open[k] = k
	}
	for _, queue := range [...]string{"", l.queueOf(p)} {
		if before, known := l.refused[asker{p.Class.ID, queue}]; known && before.at == len(l.log) {
			return before.words
		}
	}
	words, hurried := l.askAll(p, open)
	l.refused[asker{p.Class.ID, l.whose(p, answer{hurried: hurried})}] = refusal{len(l.log), words}
	return words
}

// refusal is what nobody said at a moment.
type refusal struct {
	at    int
	words string
}

// askAll asks a node of each sort, until one takes the pod. It says whether any was asked in a hurry.
func (l *claimLedger) askAll(p *cluster.Pod, open []int) (words string, hurried bool) {
	w := l.catalog.wishOf(p.Class, l.cache)
	if few, known := l.candidates(w); known {
		return l.askFew(p, open, few)
	}
	key := l.catalog.seen(w)
	of := l.censusOf(key, later)
	if of.count[0] > 0 {
		return "", hurried
	}
	b := binary.AppendVarint([]byte(key+"\x00"), int64(len(l.log)))
	for _, sort := range of.order {
		if of.count[sort] == 0 {
			continue
		}
		a, met := l.recall(p, asked{w.id, sort, ""})
		if !met {
			at := l.snap.NodeOrder[slices.IndexFunc(l.snap.NodeOrder, func(id cluster.NodeID) bool { return of.of[id] == sort })]
			a = l.solve(p, l.snap.Node(at), open, later)
		}
		hurried = hurried || a.hurried
		if a.verdict.Yes() {
			return "", hurried
		}
		b = binary.AppendVarint(b, int64(sort))
		b = binary.AppendVarint(b, int64(l.said(a.verdict)))
	}
	return string(b), hurried
}

// recall returns what was said to such a question before, by this run or, if it was no, by another. A question of another run counts as if it were
// asked now, so that what a run decides does not depend on those before it.
func (l *claimLedger) recall(p *cluster.Pod, q asked) (answer, bool) {
	for _, queue := range [...]string{"", l.queueOf(p)} {
		if a, met := l.answers[asked{q.wish, q.sort, queue}]; met {
			return a, true
		}
	}
	if a, met := l.named[denied{p.Class.ID, q.sort}]; met {
		return a, true
	}
	a, met := l.catalog.memory.answers[q]
	if met {
		if allowed := l.allowed(l.queueOf(p)); a.cost >= allowed {
			a = answer{verdict: policy.Verdict{Code: policy.No, Reason: ReasonDevicesTaken, Partial: true}, cost: allowed, devices: a.devices, compiled: a.compiled, hurried: allowed < patience}
		}
		l.spend(p, a)
		l.answers[asked{q.wish, q.sort, l.whose(p, a)}] = a
	}
	return a, met
}

// asking is who asked last: he asks node after node. What nodes of a sort said no stands until something changes.
type asking struct {
	asker
	side   side
	at     int // length of the ledger's log
	census *census
	nos    map[int32]answer // by sort
}

func (k *asking) same(l *claimLedger, p *cluster.Pod, n *cluster.Node, s side) (answer, bool) {
	if k.census == nil || k.class != p.Class.ID || k.side != s || k.at != len(l.log) || k.queue != l.queueOf(p) {
		return answer{}, false
	}
	a, ok := k.nos[k.census.of[n.ID]]
	return a, ok
}

func (k *asking) keep(l *claimLedger, p *cluster.Pod, key string, s side, sort int32, a answer) {
	if who := (asker{p.Class.ID, l.queueOf(p)}); k.census == nil || k.asker != who || k.side != s || k.at != len(l.log) {
		*k = asking{asker: who, side: s, at: len(l.log), census: l.censusOf(key, s), nos: map[int32]answer{}}
	}
	k.nos[sort] = a
}

// learn keeps what was said, without the devices. What has the name of who asked in it is kept for those who are like him, and what
// has the node's for nobody.
func (l *claimLedger) learn(p *cluster.Pod, q asked, a answer, node string) {
	a.results = nil
	switch {
	case l.own(a, node):
	case a.verdict.Object != "":
		l.named[denied{p.Class.ID, q.sort}] = a
	default:
		if l.answers[asked{q.wish, q.sort, l.whose(p, a)}] = a; !a.verdict.Yes() && !a.hurried {
			l.catalog.memory.answers[q] = a
		}
	}
}

// denied is a class of pods and a sort of nodes.
type denied struct {
	class uint64
	sort  int32
}

// said is a number for a verdict.
func (l *claimLedger) said(v policy.Verdict) int32 {
	id, known := l.verdicts[v]
	if !known {
		id = int32(len(l.verdicts) + 1)
		l.verdicts[v] = id
	}
	return id
}

// own says whether the words of an answer name something of the node's own.
func (l *claimLedger) own(a answer, node string) bool {
	for _, slice := range l.catalog.byNode[node] {
		if strings.Contains(a.verdict.Detail, slice.Spec.Pool.Name) {
			return true
		}
	}
	return strings.Contains(a.verdict.Detail, node)
}
