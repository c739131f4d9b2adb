package placer

import (
	"math"
	"slices"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine/policy"
)

// unfit is the score of a node that cannot take one more pod of the class.
const unfit = math.MinInt64

// ranking keeps, for one class, the best node at the root of a tournament over the nodes of an order, and how many pods of
// the class would fit, in all and in each domain. A change of one node costs the height of the tree; a gang of ten thousand
// equal pods is placed by ten thousand such changes and not by ten thousand scans. A domain's nodes are neighbours, so the
// best of a domain, too, costs no more than the height.
//
// A draw goes to the smaller name.
type ranking struct {
	class  *cluster.Class
	kind   int    // whose company its pods are, 0 for nobody's
	face   string // whose own scores count, "" for those of all
	order  *nodeOrder
	width  int     // leaves, a power of two
	score  []int64 // per leaf; nil, like count and winner, until one fits: a thousand classes may ask about nodes that are all full
	count  []int32 // per leaf: how many pods of the class fit into what will be free
	winner []int32 // per inner node and leaf: the leaf that wins below; index 1 is the root
	room   int     // sum of count
	places []int   // by domain, sum of count; nil for an order without a topology
	synced int     // how much of Ledger.Touched() is included
	heard  int     // how much of what has changed in company is included
}

// rankingKey names a ranking.
type rankingKey struct {
	class uint64
	order int32
	kind  int
	face  string
}

// Rated returns how many nodes have been rated for classes in this run: a thousand classes, each of which has every node rated, are
// work that the bound of an action has to know of.
func (pl *Placer) Rated() int { return pl.rated }

// ranking returns the class's tournament over all nodes, built or brought up to date, with nobody's company counted.
func (pl *Placer) ranking(c *cluster.Class) *ranking { return pl.rankingIn(c, pl.all()) }

// rankingIn is ranking over the nodes of an order.
func (pl *Placer) rankingIn(c *cluster.Class, order *nodeOrder) *ranking {
	return pl.rankingOf(c, order, 0, "")
}

// rankingFor is rankingIn for pods like p, with the company of p counted, and what p's face has of its own to say of nodes.
func (pl *Placer) rankingFor(p *cluster.Pod, order *nodeOrder) *ranking {
	kind, face := 0, ""
	if pl.points.Company != nil {
		kind = pl.points.Company.Kind(p)
	}
	if len(pl.points.FaceScores) > 0 {
		if g := pl.snap.Gang(p.Gang); g != nil && pl.points.FaceScores[g.Key.Face] != nil {
			face = g.Key.Face
		}
	}
	return pl.rankingOf(p.Class, order, kind, face)
}

func (pl *Placer) rankingOf(c *cluster.Class, order *nodeOrder, kind int, face string) *ranking {
	c = c.Alone()
	key := rankingKey{c.ID, order.id, kind, face}
	var changed []cluster.NodeID
	if kind != 0 {
		_, changed = pl.points.Company.Company(kind)
	}
	r := pl.rankings[key]
	if r == nil {
		r = pl.buildRanking(c, order, kind, face)
		pl.rankings[key] = r
		return r
	}
	if len(pl.ledger.Touched())-r.synced+len(changed)-r.heard > 4*r.width { // cheaper to start over than to replay
		*r = *pl.buildRanking(c, order, kind, face)
		return r
	}
	pl.rated += len(pl.ledger.Touched()) - r.synced + len(changed) - r.heard
	for ; r.synced < len(pl.ledger.Touched()); r.synced++ {
		n := pl.ledger.Touched()[r.synced]
		if i := order.at[n]; i >= 0 {
			pl.refresh(r, n, i)
		}
	}
	for ; r.heard < len(changed); r.heard++ {
		if i := order.at[changed[r.heard]]; i >= 0 {
			pl.refresh(r, changed[r.heard], i)
		}
	}
	return r
}

func (pl *Placer) buildRanking(c *cluster.Class, order *nodeOrder, kind int, face string) *ranking {
	pl.rated += len(order.nodes)
	width := 1
	for width < len(order.nodes) {
		width *= 2
	}
	r := &ranking{class: c, order: order, kind: kind, face: face, width: width, synced: len(pl.ledger.Touched())}
	if kind != 0 {
		_, changed := pl.points.Company.Company(kind)
		r.heard = len(changed)
	}
	if order.topology != nil {
		r.places = make([]int, order.topology.MaxDomainID())
	}
	if kind == 0 {
		pl.rateAll(r)
	} else {
		pl.rateCompany(r, pl.rankingOf(c, order, 0, face))
	}
	if r.room > 0 {
		r.playAll()
	}
	return r
}

// playAll plays every match, and begins the tournament with the first of them.
func (r *ranking) playAll() {
	if r.winner == nil {
		r.winner = make([]int32, 2*r.width)
		for i := range r.width {
			r.winner[r.width+i] = int32(i)
		}
	}
	for i := r.width - 1; i >= 1; i-- {
		r.winner[i] = r.play(r.winner[2*i], r.winner[2*i+1])
	}
}

// rateAll rates every node of the order.
func (pl *Placer) rateAll(r *ranking) {
	mask := pl.staticMask(r.class)
	for i, id := range r.order.nodes {
		if mask.has(id) {
			pl.rate(r, id, int32(i))
		}
	}
}

// begin makes the leaves, none of which fits.
func (r *ranking) begin() {
	r.score, r.count = make([]int64, r.width), make([]int32, r.width)
	for i := range r.score {
		r.score[i] = unfit
	}
}

// rateCompany adds company to what the nodes are without it: gangs whose company differs, each the only one of its kind, cost an
// addition for each node.
func (pl *Placer) rateCompany(r, without *ranking) {
	if without.score == nil {
		return
	}
	r.begin()
	copy(r.score, without.score)
	copy(r.count, without.count)
	copy(r.places, without.places)
	r.room = without.room
	scores, _ := pl.points.Company.Company(r.kind)
	for i, id := range r.order.nodes {
		if r.score[i] != unfit {
			r.score[i] += scores[id]
		}
	}
}

// play returns the leaf with the larger score; of equal ones that with the smaller name.
func (r *ranking) play(l, m int32) int32 {
	if r.score[m] > r.score[l] || r.score[m] == r.score[l] && r.score[m] != unfit && r.order.rank[m] < r.order.rank[l] {
		return m
	}
	return l
}

// rate computes leaf i from the session's ledgers.
func (pl *Placer) rate(r *ranking, n cluster.NodeID, i int32) {
	count := int32(pl.ledger.CountLater(r.class, n))
	if r.score == nil {
		if count == 0 {
			return
		}
		r.begin()
	}
	before := r.count[i]
	r.count[i] = count
	if by := int(r.count[i] - before); by != 0 {
		r.room += by
		if r.places != nil {
			t := r.order.topology
			for d := r.order.of[i]; d != cluster.None; d = t.Domain(d).Parent {
				r.places[d] += by
			}
		}
	}
	if r.count[i] == 0 {
		r.score[i] = unfit
		return
	}
	r.score[i] = pl.scoreNode(r.class, pl.snap.Node(n), r.face)
	if r.kind != 0 {
		scores, _ := pl.points.Company.Company(r.kind)
		r.score[i] += scores[n]
	}
}

// scoreNode sums what is said of a node: by the plugins of all, or, where a face has scores of its own, by those, and that room which is there comes before room which will be.
// For pods that prefer a set of nodes it does too, and then nodes of the set come before others.
func (pl *Placer) scoreNode(c *cluster.Class, n *cluster.Node, face string) int64 {
	sum, scores := int64(0), pl.points.Scores
	if face != "" {
		scores = pl.points.FaceScores[face]
	}
	if (face != "" || c.Prefers != "") && pl.ledger.FitsIdle(c, n.ID) {
		sum = idleFirst
	}
	if c.Prefers != "" && n.In(c.Prefers) {
		sum += preferredFirst
	}
	for _, p := range scores {
		sum += p.ScoreNode(c, n)
	}
	return sum
}

// refresh recomputes a leaf after its node changed, and the matches above it.
func (pl *Placer) refresh(r *ranking, n cluster.NodeID, i int32) {
	if !pl.staticMask(r.class).has(n) {
		return
	}
	pl.rate(r, n, i)
	r.replay(i)
}

func (r *ranking) replay(i int32) {
	if r.winner == nil {
		if r.room > 0 {
			r.playAll()
		}
		return
	}
	for k := (int32(r.width) + i) / 2; k >= 1; k /= 2 {
		r.winner[k] = r.play(r.winner[2*k], r.winner[2*k+1])
	}
}

// best returns the leaf that wins among those of a range, and false when no node of it fits.
func (r *ranking) best(in nodeRange) (int32, bool) {
	if r.winner == nil {
		return 0, false
	}
	if in.lo == 0 && int(in.hi) == len(r.order.nodes) {
		i := r.winner[1]
		return i, r.score[i] != unfit
	}
	if in.lo >= in.hi {
		return 0, false
	}
	best := in.lo
	for l, h := in.lo+int32(r.width), in.hi+int32(r.width); l < h; l, h = l/2, h/2 {
		if l&1 == 1 {
			best = r.play(best, r.winner[l])
			l++
		}
		if h&1 == 1 {
			h--
			best = r.play(best, r.winner[h])
		}
	}
	return best, r.score[best] != unfit
}

// in returns how many pods of the class fit into a range, each for itself.
func (r *ranking) in(in nodeRange) int {
	if in.lo == 0 && int(in.hi) == len(r.order.nodes) {
		return r.room
	}
	return r.places[in.domain]
}

// setAside takes a leaf out of the tournament and returns its score for restore.
func (r *ranking) setAside(i int32) int64 {
	old := r.score[i]
	r.score[i] = unfit
	r.replay(i)
	return old
}

// restore puts leaves back that were set aside, with their scores.
func (r *ranking) restore(leaves []int32, scores []int64) {
	for k, i := range leaves {
		r.score[i] = scores[k]
	}
	r.replayed(leaves)
}

// replayed plays the matches above leaves whose scores have changed: O(log nodes) for each, and O(nodes) for many.
func (r *ranking) replayed(leaves []int32) {
	if len(leaves) > r.width/manyLeaves {
		r.playAll()
		return
	}
	for _, i := range leaves {
		r.replay(i)
	}
}

// manyLeaves is the part of a ranking, one in so many, whose matches cost about as much, one by one, as all there are.
const manyLeaves = 8

// refusedLeaves sets aside the leaves of a range of which filters say, without being asked about each, that they refuse p, and returns
// them with their scores. If one of them refuses all that fit, it sets none aside and says so. It costs a look at each node.
func (pl *Placer) refusedLeaves(r *ranking, p *cluster.Pod, in nodeRange) (leaves []int32, scores []int64, none bool) {
	for _, f := range pl.points.Refusals {
		if !f.It.Wants(p.Class) || r.winner == nil { // nothing fits
			continue
		}
		refused, _ := f.It.Refuses(p)
		if !slices.ContainsFunc(refused, func(nodes uint64) bool { return nodes != 0 }) {
			continue
		}
		of, open := mask{bits: refused}, false
		for i := in.lo; i < in.hi && !open; i++ {
			open = r.score[i] != unfit && !of.has(in.order.nodes[i])
		}
		if !open {
			r.restore(leaves, scores)
			return nil, nil, true
		}
		for i := in.lo; i < in.hi; i++ {
			if r.score[i] != unfit && of.has(in.order.nodes[i]) {
				leaves, scores = append(leaves, i), append(scores, r.score[i])
				r.score[i] = unfit
			}
		}
		r.replayed(leaves)
	}
	return leaves, scores, false
}

// favourite returns the best leaf for this very pod: the tournament's winner, or one of the few nodes the pod has a
// bonus on.
func (pl *Placer) favourite(r *ranking, p *cluster.Pod, in nodeRange) (int32, bool) {
	best, ok := r.best(in)
	kept, held := pl.ledger.HoldFor(p)
	if !ok || len(pl.points.Bonuses) == 0 && kept == nil {
		return best, ok
	}
	type extra struct {
		leaf  int32
		score int64
	}
	var extras []extra
	for _, b := range pl.points.Bonuses {
		n, x := b.Bonus(p)
		if n == cluster.None || pl.snap.Node(n) == nil || !in.has(n) {
			continue
		}
		i := in.order.at[n]
		if k := slices.IndexFunc(extras, func(e extra) bool { return e.leaf == i }); k >= 0 {
			extras[k].score += x
		} else if r.score[i] != unfit {
			extras = append(extras, extra{i, r.score[i] + x})
		}
	}
	if kept != nil && in.has(held) {
		// Where its room is held: before all others once the room is there; until then, before others that are not free either.
		n, x := held, heldBonus
		if !pl.ledger.FitsIdle(p.Class, n) {
			x = waitingBonus
			if p.Class.Prefers != "" {
				x += preferredFirst
			}
		}
		if i := in.order.at[n]; r.score[i] != unfit {
			extras = append(extras, extra{i, r.score[i] + x})
		}
	}
	top := r.score[best]
	for _, e := range extras {
		if e.score > top || e.score == top && in.order.rank[e.leaf] < in.order.rank[best] {
			best, top = e.leaf, e.score
		}
	}
	return best, true
}

// The bonus of a node whose room is held for the pod: above every other score, and, while the room is being released,
// below that of room that is there.
const (
	heldBonus    = 10_000_000 * policy.ScorePoint
	waitingBonus = 500 * policy.ScorePoint
	// idleFirst is that of a node where the pod fits at once, for a face with scores of its own: above all that these come to, and below heldBonus.
	idleFirst = 5_000_000 * policy.ScorePoint
	// preferredFirst is that of a node of the set that pods prefer: above all that scores come to, and twice it is below idleFirst.
	preferredFirst = 2_000_000 * policy.ScorePoint
)
