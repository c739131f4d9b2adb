package engine

import (
	"slices"

	"github.com/muster-scheduler/muster/internal/cluster"
)

// noRoom explains, as the session stands, why no node of a region takes p, after have of need pods had found a place. What nodes say
// of the class whatever room they have is counted once, until a node changes.
func (s *Session) noRoom(p *cluster.Pod, have, need int, in Region) *Diagnosis {
	if s.promise || s.moving { // a what-if: nobody asks for the reasons
		return &Diagnosis{Verdict: Verdict{Code: No, Reason: ReasonGangNoRoom, Have: int64(have), Need: int64(need)}}
	}
	d := &Diagnosis{
		Verdict: Verdict{Code: No, Reason: ReasonGangNoRoom, Have: int64(have), Need: int64(need)},
		Class:   s.Snap.Dims.Format(s.Snap.ChargeWaiting(p.Class)), Pods: p.Class, Nodes: in.Size(),
	}
	may := s.staticMask(p.Class)
	refused, why := s.refusedFirst(p)
	now, last, lastShort := tallier{}, -1, -1
	for i, id := range in.v.nodes[in.lo:in.hi] {
		if !may.has(id) {
			continue
		}
		n := s.Snap.Node(id)
		dim, short := p.Class.Requests.Short(s.Later(id))
		if !short || dim != lastShort { // neighbours are often alike
			v := Verdict{Code: No, Reason: ReasonInsufficient}
			if lastShort = -1; short {
				v.Dim, lastShort = s.Snap.Dims.Name(dim), dim
			} else if why != nil && refused.has(id) && s.FitsLater(p.Class, id) {
				v = *why
			} else if v = s.whyNot(p, n); v.Yes() {
				continue
			}
			if last < 0 || now.tally[last].Verdict != v {
				last = now.kind(&v, i)
			}
		}
		now.count(last, n.Name)
	}
	d.Tally = merged(s.refusals(p.Class, in, may), &now)
	slices.SortFunc(d.Tally, compareCounts)
	return d
}

// refusedFirst returns the nodes that the first filter that has a say about p refuses all for one reason, as far as it knows beforehand,
// and that reason; nil for none.
func (s *Session) refusedFirst(p *cluster.Pod) (mask, *Verdict) {
	for _, f := range s.points.filters {
		if !f.it.Wants(p.Class) {
			continue
		}
		r, ok := f.it.(NodeRefusals)
		if !ok {
			break
		}
		nodes, why := r.Refuses(p)
		if why == nil {
			break
		}
		said := *why
		said.Plugin = f.name
		return mask{bits: nodes}, &said
	}
	return mask{}, nil
}

// whyNot is one node's verdict on one pod that may use it, and for which it has room in sums.
func (s *Session) whyNot(p *cluster.Pod, n *cluster.Node) Verdict {
	if !s.FitsLater(p.Class, n.ID) {
		return Verdict{Code: No, Reason: ReasonNoSharedDevice}
	}
	for _, f := range s.points.filters {
		if f.it.Wants(p.Class) {
			if v := f.it.CheckNode(p, n); !v.Yes() {
				v.Plugin = f.name
				return v
			}
		}
	}
	return Verdict{}
}

// refusals counts what the nodes of a region say that pods of the class may not use.
func (s *Session) refusals(c *cluster.Class, in Region, may *mask) *tallier {
	whole := in.v.id == 0 && in.Size() == len(in.v.nodes)
	if whole && may.why != nil && may.whyGen == s.Snap.StaticGen {
		return may.why
	}
	out, last := &tallier{}, -1
	var before *Verdict
	add := func(no *Verdict, n *cluster.Node, at int) {
		if no != before {
			last, before = out.kind(no, at), no
		}
		out.count(last, n.Name)
	}
	if whole && may.said != nil {
		for i, no := range may.said {
			if no != nil {
				add(no, s.Snap.Node(in.v.nodes[i]), i)
			}
		}
	} else {
		var refused []*cluster.Node
		var at []int
		for i, id := range in.v.nodes[in.lo:in.hi] {
			if !may.has(id) {
				refused, at = append(refused, s.Snap.Node(id)), append(at, i)
			}
		}
		for i, no := range s.checkStatics(c, refused) {
			add(no, refused[i], at[i])
		}
	}
	if whole {
		may.why, may.whyGen, may.said = out, s.Snap.StaticGen, nil
	}
	return out
}

// tallier makes a tally: of up to maxKinds verdicts, in the order in which they are met, and of reasons beyond.
type tallier struct {
	tally  Tally
	first  []int            // by place in the tally: where the verdict was met first
	at     map[string][]int // by object: verdicts that differ are mostly about others
	others map[Reason]int   // where those count who are not told apart any more
}

// kind returns the place of a verdict that is met at a node.
func (t *tallier) kind(v *Verdict, node int) int {
	for _, i := range t.at[v.Object] {
		if t.tally[i].Verdict == *v {
			return i
		}
	}
	if len(t.tally)-len(t.others) >= maxKinds { // as with taints of which each node has its own
		i, known := t.others[v.Reason]
		if !known {
			if t.others == nil {
				t.others = map[Reason]int{}
			}
			i = t.add(Verdict{Code: v.Code, Reason: v.Reason, Plugin: v.Plugin, Object: "…"}, node)
			t.others[v.Reason] = i
		}
		return i
	}
	if t.at == nil {
		t.at = map[string][]int{}
	}
	i := t.add(*v, node)
	t.at[v.Object] = append(t.at[v.Object], i)
	return i
}

func (t *tallier) add(v Verdict, node int) int {
	t.tally, t.first = append(t.tally, Count{Verdict: v}), append(t.first, node)
	return len(t.tally) - 1
}

// count counts a node at a place.
func (t *tallier) count(at int, name string) {
	c := &t.tally[at]
	if c.Nodes++; len(c.Named) < maxNamed {
		c.Named = append(c.Named, name)
	}
}

// merged is the tally of the nodes of both, as if they had been met in their order.
func merged(a, b *tallier) Tally {
	switch {
	case len(b.tally) == 0:
		return slices.Clone(a.tally)
	case len(a.tally) == 0:
		return b.tally
	}
	var out tallier
	for i, k := 0, 0; i < len(a.tally) || k < len(b.tally); {
		from := a
		at := i
		if i == len(a.tally) || k < len(b.tally) && b.first[k] < a.first[i] {
			from, at = b, k
			k++
		} else {
			i++
		}
		c := &from.tally[at]
		to := &out.tally
		place := out.kind(&c.Verdict, from.first[at])
		(*to)[place].Nodes += c.Nodes
		names := slices.Concat((*to)[place].Named, c.Named)
		slices.Sort(names)
		(*to)[place].Named = names[:min(len(names), maxNamed)]
	}
	return out.tally
}
