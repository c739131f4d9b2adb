package placer

import (
	"cmp"
	"slices"
	"strings"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine/policy"
	"github.com/muster-scheduler/muster/internal/engine/recorder"
)

// noRoom explains, as the session stands, why no node of a range takes p, after have of need pods had found a place. What nodes say
// of the class whatever room they have is counted once, until a node changes.
func (tr *trial) noRoom(p *cluster.Pod, have, need int, in nodeRange) *recorder.Diagnosis {
	if tr.mode != asItStands { // a what-if: nobody asks for the reasons
		return &recorder.Diagnosis{Verdict: policy.Verdict{Code: policy.No, Reason: policy.ReasonGangNoRoom, Have: int64(have), Need: int64(need)}}
	}
	d := &recorder.Diagnosis{
		Verdict: policy.Verdict{Code: policy.No, Reason: policy.ReasonGangNoRoom, Have: int64(have), Need: int64(need)},
		Class:   tr.snap.Dims.Format(tr.snap.ChargeWaiting(p.Class)), Pods: p.Class, Nodes: in.size(),
	}
	key := tallyKey{p.Class.Alone().ID, tr.nobody(p), in.order.id, in.lo, in.hi, len(tr.ledger.Touched())}
	if d.Tally = tr.tallies[key]; d.Tally != nil && tr.filtersOf(p) == 1 {
		return d
	}
	may, sums := tr.staticMask(p.Class), tr.sums(p.Class, in)
	own := &tallier{}
	if refused, why := tr.refusedFirst(p); why != nil && sums.room.within(refused) {
		tr.one(own, *why, sums, in)
	} else {
		last := -1
		for i, id := range in.order.nodes[in.lo:in.hi] {
			if !sums.room.has(id) {
				continue
			}
			v := policy.Verdict{}
			if n := tr.snap.Node(id); why != nil && refused.has(id) {
				v = *why
			} else if v = tr.whyNot(p, n); v.Yes() {
				continue
			}
			if last < 0 || own.tally[last].Verdict != v {
				last = own.kind(&v, i)
			}
			own.count(last, tr.snap.Node(id).Name)
		}
	}
	d.Tally = sorted(merged(tr.refusals(p.Class, in, may), merged(&sums.tallier, own)).tally)
	if key.words != "" && tr.filtersOf(p) == 1 {
		tr.tallies[key] = d.Tally
	}
	return d
}

// sums is what the nodes of a range that a class may use say of it for what they hold, and which of them have room.
type sums struct {
	tallier
	room mask
	many int // nodes in room
}

type sumsKey struct {
	class   uint64
	order   int32
	lo, hi  int32
	touched int
}

// sums returns what the nodes of a range have to say of a class as the session stands, whatever its pods say of others. That is kept:
// a thousand gangs that want the same room, each with another volume, wait because of the same nodes.
func (pl *Placer) sums(c *cluster.Class, in nodeRange) *sums {
	key := sumsKey{c.Alone().ID, in.order.id, in.lo, in.hi, len(pl.ledger.Touched())}
	if pl.said.sums != nil && pl.said.of == key {
		return pl.said.sums
	}
	x := &sums{room: mask{bits: make([]uint64, (pl.snap.MaxNodeID()+63)/64)}}
	may, last, lastShort := pl.staticMask(c), -1, -1
	for i, id := range in.order.nodes[in.lo:in.hi] {
		if !may.has(id) {
			continue
		}
		dim, short := c.Requests.Short(pl.ledger.Later(id))
		switch {
		case short && dim == lastShort: // neighbours are often alike
		case short:
			last, lastShort = x.kind(&policy.Verdict{Code: policy.No, Reason: policy.ReasonInsufficient, Dim: pl.snap.Dims.Name(dim)}, i), dim
		case !pl.ledger.FitsLater(c, id):
			last, lastShort = x.kind(&policy.Verdict{Code: policy.No, Reason: policy.ReasonNoSharedDevice}, i), -1
		default:
			x.room.bits[id>>6] |= 1 << (id & 63)
			x.many++
			continue
		}
		x.count(last, pl.snap.Node(id).Name)
	}
	pl.said.sums, pl.said.of = x, key
	return x
}

// one makes a tally of one verdict of all nodes of a range that have room.
func (pl *Placer) one(t *tallier, v policy.Verdict, x *sums, in nodeRange) {
	for i := in.lo; i < in.hi && (len(t.tally) == 0 || len(t.tally[0].Named) < maxNamed); i++ {
		if id := in.order.nodes[i]; x.room.has(id) {
			t.count(t.kind(&v, int(i-in.lo)), pl.snap.Node(id).Name)
		}
	}
	if len(t.tally) > 0 {
		t.tally[0].Nodes = x.many
	}
}

// within says whether the mask holds none that another does not.
func (m *mask) within(of mask) bool {
	for i, word := range m.bits {
		if i < len(of.bits) {
			word &^= of.bits[i]
		}
		if word != 0 {
			return false
		}
	}
	return true
}

// tallyKey names what the nodes of a range say to pods that all of them refuse, as the session stands: who takes as much of a node,
// and is told the same by the one filter that has a say, is told the same.
type tallyKey struct {
	class   uint64
	words   string
	order   int32
	lo, hi  int32
	touched int
}

// nobody returns what a filter says of all nodes if it knows that none takes p, as a text; see [Unanimous].
func (pl *Placer) nobody(p *cluster.Pod) string {
	for _, f := range pl.points.Filters {
		if u, ok := f.It.(policy.Unanimous); ok && u.Wants(p.Class) {
			if words := u.Nobody(p); words != "" {
				return words
			}
		}
	}
	return ""
}

// filtersOf counts the filters that have a say about p.
func (pl *Placer) filtersOf(p *cluster.Pod) int {
	n := 0
	for _, f := range pl.points.Filters {
		if f.It.Wants(p.Class) {
			n++
		}
	}
	return n
}

// refusedFirst returns the nodes that the first filter that has a say about p refuses all for one reason, as far as it knows beforehand,
// and that reason; nil for none.
func (pl *Placer) refusedFirst(p *cluster.Pod) (mask, *policy.Verdict) {
	for _, f := range pl.points.Filters {
		if !f.It.Wants(p.Class) {
			continue
		}
		r, ok := f.It.(policy.NodeRefusals)
		if !ok {
			break
		}
		nodes, why := r.Refuses(p)
		if why == nil {
			break
		}
		said := *why
		said.Plugin = f.Name
		return mask{bits: nodes}, &said
	}
	return mask{}, nil
}

// filtersAllow says whether the filters allow a pod on a node.
func (pl *Placer) filtersAllow(p *cluster.Pod, n cluster.NodeID) bool {
	return pl.whyNot(p, pl.snap.Node(n)).Yes()
}

// whyNot is one node's verdict on one pod that may use it, and for which it has room.
func (pl *Placer) whyNot(p *cluster.Pod, n *cluster.Node) policy.Verdict {
	for _, f := range pl.points.Filters {
		if f.It.Wants(p.Class) {
			if v := f.It.CheckNode(p, n); !v.Yes() {
				v.Plugin = f.Name
				return v
			}
		}
	}
	return policy.Verdict{}
}

// refusals counts what the nodes of a range say that pods of the class may not use.
func (pl *Placer) refusals(c *cluster.Class, in nodeRange, may *mask) *tallier {
	whole := in.order.id == 0 && in.size() == len(in.order.nodes)
	if whole && may.why != nil && may.whyGen == pl.snap.StaticGen {
		return may.why
	}
	out, last := &tallier{tally: pl.said.room[:0]}, -1
	var before *policy.Verdict
	pl.said.begin()
	add := func(no *policy.Verdict, n *cluster.Node, at int) {
		if no != before {
			last, before = pl.said.kind(out, no, at), no
		}
		out.count(last, n.Name)
	}
	if whole && may.said != nil {
		for i, no := range may.said {
			if no != nil {
				add(no, pl.snap.Node(in.order.nodes[i]), i)
			}
		}
	} else {
		var refused []*cluster.Node
		var at []int
		for i, id := range in.order.nodes[in.lo:in.hi] {
			if !may.has(id) {
				refused, at = append(refused, pl.snap.Node(id)), append(at, i)
			}
		}
		for i, no := range pl.checkStatics(c, refused) {
			add(no, refused[i], at[i])
		}
	}
	pl.said.room, out.tally = out.tally, slices.Clone(out.tally)
	if whole {
		may.why, may.whyGen, may.said = out, pl.snap.StaticGen, nil
	}
	return out
}

// sayings numbers what nodes say, by what is said, so that a thousand tallies of a thousand verdicts each find their places at the
// cost of a number.
type sayings struct {
	told  map[*policy.Verdict]int32
	known map[policy.Verdict]int32
	turn  int          // of the tally that is being made
	in    []int        // by number: the tally that told it apart last
	place []int        // there
	room  policy.Tally // for the tally that is being made

	sums *sums // that were asked for last
	of   sumsKey
}

func (x *sayings) begin() { x.turn++ }

// kind is tallier.kind for the tally that has begun, all of which is met in this way.
func (x *sayings) kind(t *tallier, v *policy.Verdict, node int) int {
	i, ok := x.told[v]
	if !ok {
		i = x.number(v)
	}
	switch {
	case x.in[i] == x.turn:
		return x.place[i]
	case t.full():
		return t.other(v, node)
	}
	x.in[i], x.place[i] = x.turn, t.add(*v, node)
	return x.place[i]
}

func (x *sayings) number(v *policy.Verdict) int32 {
	if x.told == nil {
		x.told, x.known = map[*policy.Verdict]int32{}, map[policy.Verdict]int32{}
	}
	i, ok := x.known[*v]
	if !ok {
		i = int32(len(x.in))
		x.known[*v] = i
		x.in, x.place = append(x.in, 0), append(x.place, 0)
	}
	x.told[v] = i
	return i
}

// maxNamed is how many nodes a Count names.
const maxNamed = 8

// maxKinds is how many verdicts a Tally tells apart. Further ones count by their reason alone, with "…" for what they are about.
const maxKinds = 32

// tallier makes a tally: of up to maxKinds verdicts, in the order in which they are met, and of reasons beyond.
type tallier struct {
	tally  policy.Tally
	first  []int // by place in the tally: where the verdict was met first
	others []int // the places where those count that are not told apart any more, one for each reason
}

// kind returns the place of a verdict that is met at a node.
func (t *tallier) kind(v *policy.Verdict, node int) int {
	for i := range t.tally {
		if t.tally[i].Verdict == *v && !slices.Contains(t.others, i) {
			return i
		}
	}
	if t.full() {
		return t.other(v, node)
	}
	return t.add(*v, node)
}

func (t *tallier) full() bool { return len(t.tally)-len(t.others) >= maxKinds }

// other returns the place of one that is not told apart, as with taints of which each node has its own.
func (t *tallier) other(v *policy.Verdict, node int) int {
	for _, i := range t.others {
		if t.tally[i].Verdict.Reason == v.Reason {
			return i
		}
	}
	i := t.add(policy.Verdict{Code: v.Code, Reason: v.Reason, Plugin: v.Plugin, Object: "…"}, node)
	t.others = append(t.others, i)
	return i
}

func (t *tallier) add(v policy.Verdict, node int) int {
	t.tally, t.first = append(t.tally, policy.Count{Verdict: v}), append(t.first, node)
	return len(t.tally) - 1
}

// count counts a node at a place.
func (t *tallier) count(at int, name string) {
	c := &t.tally[at]
	if c.Nodes++; len(c.Named) < maxNamed {
		c.Named = append(c.Named, name)
	}
}

func compareCounts(a, b *policy.Count) int {
	if a.Nodes != b.Nodes {
		return b.Nodes - a.Nodes
	}
	if c := strings.Compare(a.Verdict.Reason.String(), b.Verdict.Reason.String()); c != 0 {
		return c
	}
	if c := strings.Compare(a.Verdict.Object, b.Verdict.Object); c != 0 {
		return c
	}
	return cmp.Or(strings.Compare(a.Verdict.Dim, b.Verdict.Dim), strings.Compare(a.Verdict.Detail, b.Verdict.Detail))
}

// sorted is a tally in the order in which it is told.
func sorted(t policy.Tally) policy.Tally {
	order := make([]*policy.Count, len(t))
	for i := range t {
		order[i] = &t[i]
	}
	slices.SortFunc(order, compareCounts)
	out := make(policy.Tally, len(t))
	for i, c := range order {
		out[i] = *c
	}
	return out
}

// merged is the tally of the nodes of both, as if they had been met in their order.
func merged(a, b *tallier) *tallier {
	switch {
	case len(b.tally) == 0:
		return a
	case len(a.tally) == 0:
		return b
	}
	n := len(a.tally) + len(b.tally)
	out, of := &tallier{tally: make(policy.Tally, 0, n), first: make([]int, 0, n)}, make([]*tallier, 0, n)
	for i, k := 0, 0; i < len(a.tally) || k < len(b.tally); {
		from, at := a, i
		if i == len(a.tally) || k < len(b.tally) && b.first[k] < a.first[i] {
			from, at = b, k
			k++
		} else {
			i++
		}
		c := &from.tally[at]
		place := 0 // one tally tells its verdicts apart
		for place < len(of) && (of[place] == from || out.tally[place].Verdict != c.Verdict || slices.Contains(out.others, place)) {
			place++
		}
		switch {
		case place < len(of):
		case out.full():
			place = out.other(&c.Verdict, from.first[at])
		default:
			place = out.add(c.Verdict, from.first[at])
		}
		if len(of) < len(out.tally) {
			of = append(of, from)
		}
		to := &out.tally[place]
		to.Nodes += c.Nodes
		if len(to.Named) == 0 {
			to.Named = c.Named
			continue
		}
		names := slices.Concat(to.Named, c.Named)
		slices.Sort(names)
		to.Named = names[:min(len(names), maxNamed)]
	}
	return out
}
