// Package networktopology is Volcano's plugin network-topology-aware: which HyperNode a gang goes to that has to be in one, and which nodes pods go to for the HyperNodes that
// these are in. The formulas are those of Volcano's documentation.
//
// Amounts are integers in the model's units, scores billionths of a point, and every division is cut to the unit below.
package networktopology

import (
	"fmt"
	"math/big"
	"math/bits"
	"strconv"
	"strings"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine/ledger"
	"github.com/muster-scheduler/muster/internal/engine/policy"
)

// Name is the plugin's name in a scheduler file, and Tree the topology that is made of HyperNodes.
const (
	Name = "network-topology-aware"
	Tree = "volcano:HyperNodes"
)

const (
	// whole is the score of the best node or HyperNode: 100 points.
	whole = 100 * policy.ScorePoint
	// mostWeight is the largest weight that is read, and mostResources how many resources are looked at.
	mostWeight    = 1000
	mostResources = 32
	millionths    = 1_000_000
)

// Factory declares it. The argument weight (1) is that of nodes; hypernode.binpack.cpu and .memory (1 each), and .resources.NAME (1) of those that
// hypernode.binpack.resources lists, are the weights of resources. Pods that ask for no topology look at HyperNodes where hypernode.binpack.normal-pod.enable (true) says so,
// and count a tier hypernode.binpack.normal-pod.fading (0.8) times as much as the one below. hypernode.gradient.evict.max-hypernodes is read and has no effect here.
var Factory = policy.Makes(build)

type weighed struct {
	name   string
	weight int64
}

type settings struct {
	weight int64
	of     []weighed
	normal bool
	fading int64 // in millionths
}

func build(args policy.Arguments) (func(*policy.View) *instance, []string, error) {
	const binpack = "hypernode.binpack."
	known := []string{
		"weight", binpack + "cpu", binpack + "memory", binpack + "resources", binpack + "normal-pod.enable", binpack + "normal-pod.fading", "hypernode.gradient.evict.max-hypernodes",
	}
	s := settings{normal: true, fading: 800_000}
	var err error
	if s.weight, err = args.Whole("weight", 1, mostWeight); err != nil {
		return nil, nil, err
	}
	if _, err := args.Whole("hypernode.gradient.evict.max-hypernodes", 8, mostWeight*mostWeight); err != nil {
		return nil, nil, err
	}
	names, keys := []string{"cpu", "memory"}, map[string]string{"cpu": binpack + "cpu", "memory": binpack + "memory"}
	for name := range strings.SplitSeq(args[binpack+"resources"], ",") {
		if name = strings.TrimSpace(name); name == "" || keys[name] != "" {
			continue
		}
		if len(names) >= mostResources {
			return nil, nil, fmt.Errorf("argument %q names more than %d resources", binpack+"resources", mostResources)
		}
		keys[name] = binpack + "resources." + name
		names, known = append(names, name), append(known, keys[name])
	}
	for _, name := range names {
		w, err := args.Whole(keys[name], 1, mostWeight)
		if err != nil {
			return nil, nil, err
		}
		s.of = append(s.of, weighed{name, w})
	}
	if text, said := args[binpack+"normal-pod.enable"]; said {
		if s.normal, err = strconv.ParseBool(text); err != nil {
			return nil, nil, fmt.Errorf("argument %q is %.40q; it must be true or false", binpack+"normal-pod.enable", text)
		}
	}
	if text, said := args[binpack+"normal-pod.fading"]; said {
		f, ok := new(big.Rat).SetString(text)
		if !ok || len(text) > 32 || f.Sign() < 0 || f.Cmp(big.NewRat(1, 1)) > 0 {
			return nil, nil, fmt.Errorf("argument %q is %.40q; it must be a number from 0 to 1", binpack+"normal-pod.fading", text)
		}
		f.Mul(f, big.NewRat(millionths, 1))
		s.fading = new(big.Int).Quo(f.Num(), f.Denom()).Int64()
	}
	return func(v *policy.View) *instance { return open(v, s) }, args.Unknown(known...), nil
}

type dimWeight struct {
	dim    int
	weight int64
}

type instance struct {
	settings
	view *policy.View
	dims []dimWeight

	sums    *sums // of the topology that was asked about last
	base    *sums // of Tree as the run begins; nil until asked for
	anchors map[cluster.GangID][]anchor
	kinds   map[kindKey]int
	scores  [][]int64 // by kind, which counts from 1
}

// anchor is the narrowest domain that has all pods of a set which have room.
type anchor struct {
	t   *cluster.Topology
	set int32
	at  cluster.DomainID // None for no such pod
}

// kindKey names a kind of pods: those whose gang is within a domain, or those of a class that ask for no topology.
type kindKey struct {
	topology string
	at       cluster.DomainID
	class    uint64
}

// open opens the plugin for a run.
func open(v *policy.View, s settings) *instance {
	i := &instance{settings: s, view: v, anchors: map[cluster.GangID][]anchor{}, kinds: map[kindKey]int{}}
	for _, r := range s.of {
		dim, ok := v.Snapshot().Dims.Index(r.name)
		if r.name == "nvidia.com/gpu" {
			dim, ok = cluster.GPU, true
		}
		if ok && r.weight > 0 {
			i.dims = append(i.dims, dimWeight{dim, r.weight})
		}
	}
	return i
}

// sums are what the domains of a topology have and hold.
type sums struct {
	t         *cluster.Topology
	has, used []cluster.Resources // by domain
	of        []cluster.Resources // by node: what of it is in used
	read      int                 // how much of View.Touched is
}

// newSums adds up what nodes have, and what is used of them as held says: O(nodes · levels).
func newSums(snap *cluster.Snapshot, t *cluster.Topology, used func(n *cluster.Node) cluster.Resources) *sums {
	s := &sums{t: t, has: make([]cluster.Resources, t.MaxDomainID()), used: make([]cluster.Resources, t.MaxDomainID()), of: make([]cluster.Resources, snap.MaxNodeID())}
	for d := range s.has {
		s.has[d], s.used[d] = make(cluster.Resources, snap.Dims.Len()), make(cluster.Resources, snap.Dims.Len())
	}
	for _, id := range snap.NodeOrder {
		n := snap.Node(id)
		s.of[id] = make(cluster.Resources, snap.Dims.Len())
		for d := t.Narrowest(id); d != cluster.None; d = t.Domain(d).Parent {
			s.has[d].AddCapped(n.Allocatable)
		}
		s.set(id, used(n))
	}
	return s
}

// set has a node count for what is used of it now.
func (s *sums) set(id cluster.NodeID, now cluster.Resources) {
	for dim := range s.of[id] {
		if by := now.At(dim) - s.of[id][dim]; by != 0 {
			s.of[id][dim] += by
			for d := s.t.Narrowest(id); d != cluster.None; d = s.t.Domain(d).Parent {
				s.used[d][dim] += by
			}
		}
	}
}

// current are the sums of a topology as the session stands: O(levels) for each node that has changed.
func (i *instance) current(t *cluster.Topology) *sums {
	snap := i.view.Snapshot()
	used := func(n *cluster.Node) cluster.Resources {
		idle, out := i.view.Idle(n.ID), make(cluster.Resources, snap.Dims.Len())
		for dim := range out {
			out[dim] = max(0, n.Allocatable.At(dim)-idle.At(dim))
		}
		return out
	}
	touched := i.view.Touched()
	if i.sums == nil || i.sums.t != t {
		i.sums = newSums(snap, t, used)
	} else {
		for _, id := range touched[i.sums.read:] {
			i.sums.set(id, used(snap.Node(id)))
		}
	}
	i.sums.read = len(touched)
	return i.sums
}

// filled is how full a domain would be with so much more in it, from 0 to whole: of what is asked for and has a weight, the mean by weight; 0 where something is more than there is.
func (i *instance) filled(s *sums, d cluster.DomainID, asks cluster.Resources) int64 {
	sum, weights := int64(0), int64(0)
	for _, r := range i.dims {
		ask := asks.At(r.dim)
		if ask <= 0 {
			continue
		}
		used, of := s.used[d][r.dim]+ask, s.has[d].At(r.dim)
		if used > of {
			return 0
		}
		sum += r.weight * part(whole, used, of)
		weights += r.weight
	}
	if weights == 0 {
		return 0
	}
	return sum / weights
}

// part is points times x of y, 0 ≤ x ≤ y and 0 < y, cut to the unit below.
func part(points, x, y int64) int64 {
	hi, lo := bits.Mul64(uint64(points), uint64(x))
	q, _ := bits.Div64(hi, lo, uint64(y))
	return int64(q)
}

// ScoreDomain implements policy.DomainScore: how full it would be with the pods.
func (i *instance) ScoreDomain(q *policy.SetQuery, t *cluster.Topology, d cluster.DomainID) int64 {
	var asks cluster.Resources
	for _, k := range q.Pods {
		all := k.Class.Requests.Clone()
		for dim, x := range all {
			all[dim] = min(x, cluster.MaxSum/int64(max(1, k.Count))) * int64(k.Count)
		}
		asks.AddCapped(all)
	}
	return i.filled(i.current(t), d, asks)
}

// Kind implements policy.CompanyScore: pods of gangs that ask for a topology are of that of the domain in which their gang is, others of their class.
func (i *instance) Kind(p *cluster.Pod) int {
	if i.weight == 0 {
		return 0
	}
	g := i.view.Snapshot().Gang(p.Gang)
	set, near := nearest(g, p.Set)
	if near.Topology == "" {
		return i.ordinary(p)
	}
	t := i.view.Snapshot().Topology(near.Topology)
	if t == nil || t.Declared == nil {
		return 0
	}
	at := i.anchor(t, g.ID, set)
	if at == cluster.None {
		return 0
	}
	key := kindKey{near.Topology, at, 0}
	if n := i.kinds[key]; n > 0 {
		return n
	}
	return i.add(key, i.closeTo(t, at))
}

// nearest is the set, from one upwards, that asks for a topology, with what it asks for.
func nearest(g *cluster.Gang, set int32) (int32, cluster.Constraint) {
	for set = max(0, set); set != cluster.None; set = g.Sets[set].Parent {
		if near := g.Sets[set].Near; near.Topology != "" {
			return set, near
		}
	}
	return cluster.None, cluster.Constraint{}
}

func (i *instance) add(key kindKey, scores []int64) int {
	i.scores = append(i.scores, scores)
	i.kinds[key] = len(i.scores)
	return len(i.scores)
}

// Company implements policy.CompanyScore; the scores of a kind do not change within a run.
func (i *instance) Company(kind int) ([]int64, []cluster.NodeID) { return i.scores[kind-1], nil }

// closeTo scores nodes by the tier of the narrowest HyperNode that has them and the gang: from the widest tier, which is that of the whole cluster, down to the lowest.
func (i *instance) closeTo(t *cluster.Topology, at cluster.DomainID) []int64 {
	snap := i.view.Snapshot()
	out := make([]int64, snap.MaxNodeID())
	widest, lowest := t.Levels[0].Tier, t.Levels[len(t.Levels)-1].Tier
	for _, id := range snap.NodeOrder {
		d := t.Narrowest(id)
		switch common := meet(t, d, at); {
		case d == cluster.None || t.Domain(d).Level <= 0: // in no HyperNode
		case d == at:
			out[id] = i.weight * whole
		case common != cluster.None && t.Domain(common).Level >= 0 && widest > lowest:
			out[id] = i.weight * part(whole, int64(widest-t.Levels[t.Domain(common).Level].Tier), int64(widest-lowest))
		}
	}
	return out
}

// meet is the narrowest domain that two are in; None for none.
func meet(t *cluster.Topology, a, b cluster.DomainID) cluster.DomainID {
	for a != cluster.None && b != cluster.None && a != b {
		if t.Domain(a).Level >= t.Domain(b).Level {
			a = t.Domain(a).Parent
		} else {
			b = t.Domain(b).Parent
		}
	}
	if a == cluster.None || b == cluster.None {
		return cluster.None
	}
	return a
}

// anchor is where a set's pods are.
func (i *instance) anchor(t *cluster.Topology, id cluster.GangID, set int32) cluster.DomainID {
	for _, a := range i.anchors[id] {
		if a.set == set && a.t == t {
			return a.at
		}
	}
	at, some := cluster.DomainID(cluster.None), false
	i.view.Members(i.view.Gang(id), set, func(n cluster.NodeID) {
		if d := t.Narrowest(n); !some {
			at, some = d, true
		} else {
			at = meet(t, at, d)
		}
	})
	i.anchors[id] = append(i.anchors[id], anchor{t, set, at})
	return at
}

// Done implements policy.Observer: where a gang is grows with each pod that is given room.
func (i *instance) Done(op ledger.Op) {
	if op.Verb != ledger.Bind && op.Verb != ledger.Nominate {
		i.Undone(op)
		return
	}
	of := i.anchors[op.Pod.Gang]
	for k := range of {
		a := &of[k]
		if !below(i.view.Snapshot().Gang(op.Pod.Gang), op.Pod.Set, a.set) {
			continue
		}
		if d := a.t.Narrowest(op.Node); a.at == cluster.None {
			a.at = d
		} else {
			a.at = meet(a.t, a.at, d)
		}
	}
}

// Undone implements policy.Observer.
func (i *instance) Undone(op ledger.Op) {
	if op.Gives() != 0 {
		delete(i.anchors, op.Pod.Gang)
	}
}

// below says whether a set is another, or below it.
func below(g *cluster.Gang, set, top int32) bool {
	for ; set != cluster.None && set != top; set = g.Sets[set].Parent {
	}
	return set == top
}

// ordinary is the kind of a pod that asks for no topology: its class.
func (i *instance) ordinary(p *cluster.Pod) int {
	snap := i.view.Snapshot()
	t := snap.Topology(Tree)
	if !i.normal || t == nil || len(t.Levels) < 2 {
		return 0
	}
	c := p.Class.Alone()
	key := kindKey{"", cluster.None, c.ID}
	if n := i.kinds[key]; n > 0 {
		return n
	}
	if i.base == nil {
		i.base = newSums(snap, t, func(n *cluster.Node) cluster.Resources { return n.Used })
	}
	points := make([]int64, t.MaxDomainID()) // of a domain alone
	known := make([]bool, t.MaxDomainID())
	out := make([]int64, snap.MaxNodeID())
	for _, id := range snap.NodeOrder {
		d := t.Narrowest(id)
		if d == cluster.None || t.Domain(d).Level <= 0 {
			out[id] = i.weight * whole
			continue
		}
		for last := ""; t.Domain(d).Level > 0; d = t.Domain(d).Parent {
			if t.Domain(d).Value == last {
				continue // the same HyperNode, which stands for one of a higher tier
			}
			last = t.Domain(d).Value
			if !known[d] {
				known[d], points[d] = true, part(i.filled(i.base, d, c.Requests), i.faded(t.Levels[t.Domain(d).Level].Tier), millionths)
			}
			out[id] += i.weight * points[d]
		}
	}
	return i.add(key, out)
}

// faded is the fading to the power of a tier less 1, in millionths, 1 for tiers below 2; each multiplication is cut.
func (i *instance) faded(tier int) int64 {
	out := int64(millionths)
	for range max(0, tier-1) {
		if out = out * i.fading / millionths; out == 0 || i.fading == millionths {
			break
		}
	}
	return out
}
