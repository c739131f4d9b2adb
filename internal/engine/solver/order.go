package solver

import (
	"slices"
	"sort"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/engine/ledger"
	"github.com/muster-scheduler/muster/internal/engine/policy"
	"github.com/muster-scheduler/muster/internal/engine/recorder"
)

// victimQueues is everyone who may have to give, in the order in which they do: down the queue forest by the victim order,
// and within a leaf in the reverse of the order in which gangs are served. It belongs to one action of one run.
type victimQueues struct {
	s      *engine.Session
	byID   map[cluster.QueueID]*leaf
	top    []*branch
	all    []*branch
	nodes  map[cluster.QueueID]*branch
	sieve  sieve
	ground *stand // who gives next for anybody; nil until one reclaims
	broods map[*branch]*brood
	sorted int             // how much of what was charged is in them
	whole  bool            // they are everybody's
	count  int             // gangs that hold something
	wake   cluster.Instant // when the first rule ends with time that barred anybody in the running search
}

// branch is one queue that has victims below it.
type branch struct {
	queue *ledger.QueueLedger
	up    *branch // nil at the top
	at    int     // among those below it
	kids  []*branch
	leaf  *leaf
	kind  *kind  // nil until asked for
	below *heads // nil until asked for
	noted *stand // by which it was noted last; nil once it has played there
}

// heads is how many gangs below a queue may be victims at all, and what a barrier names of these alone.
type heads struct {
	count int
	names []string
}

func (b *branch) heads() *heads {
	if b.below == nil {
		of := recorder.Barrier{}
		b.each(func(l *leaf) {
			of.Gangs += len(l.raw.gangs)
			for _, text := range l.raw.names() {
				nameAs(&of, text)
			}
		})
		b.below = &heads{of.Gangs, of.Named}
	}
	return b.below
}

// leaf is a leaf queue's gangs, first victim first. Gangs that have given all are skipped. Most leaves never have to give,
// so states of gangs are built, and sorted, for those that do.
type leaf struct {
	queue  *ledger.QueueLedger
	branch *branch
	raw    crowd   // that may be victims at all
	never  crowd   // that may not: non-preemptible, and not too much
	ranks  []int32 // priorities that gangs of raw have, sorted; nil until asked for
	gangs  []*ledger.GangState
	built  bool
	start  int // gangs before it have nothing left
}

// crowd is gangs of which it may be told in one that they may not be touched.
type crowd struct {
	gangs []*cluster.Gang
	first []string // what a barrier names of these alone; nil until asked for
}

func (c *crowd) names() []string {
	if c.first == nil && len(c.gangs) > 0 {
		b := recorder.Barrier{}
		for _, g := range c.gangs {
			name(&b, g.Key)
		}
		c.first = b.Named
	}
	return c.first
}

// below is how many of the priorities that gangs of the leaf have are below another: beneficiaries for whom it is the same may take from
// the same gangs by preemption.
func (l *leaf) below(priority int32) int {
	n, _ := l.rank(priority)
	return n
}

// upTo is below, and one more if there is the priority itself.
func (l *leaf) upTo(priority int32) int {
	n, there := l.rank(priority)
	if there {
		n++
	}
	return n
}

func (l *leaf) rank(priority int32) (int, bool) {
	if l.ranks == nil {
		for _, g := range l.raw.gangs {
			l.ranks = append(l.ranks, g.Priority)
		}
		slices.Sort(l.ranks)
		l.ranks = slices.Compact(l.ranks)
	}
	return slices.BinarySearch(l.ranks, priority)
}

// newVictimQueues groups all gangs that hold something by leaf: O(gangs), a few nanoseconds each.
func newVictimQueues(s *engine.Session) *victimQueues {
	n := s.Snap.MaxQueueID()
	vq := &victimQueues{s: s, whole: true, wake: cluster.Forever, byID: make(map[cluster.QueueID]*leaf, n), nodes: make(map[cluster.QueueID]*branch, n)}
	byName := make(map[string]*leaf, n)
	s.Snap.EachGang(func(gang *cluster.Gang) {
		if gang.ActivePods == 0 && !s.Ledger.Promises(gang.ID) {
			return
		}
		l, known := byName[gang.Queue]
		if !known {
			if q := s.Ledger.LeafOf(gang); q != nil {
				l = &leaf{queue: q}
				vq.byID[q.ID] = l
				l.branch = vq.branch(q)
				l.branch.leaf = l
			}
			byName[gang.Queue] = l
		}
		switch {
		case l == nil:
		case s.Rules.Yields(gang):
			l.raw.gangs = append(l.raw.gangs, gang)
			vq.count++
		default:
			l.never.gangs = append(l.never.gangs, gang)
		}
	})
	return vq
}

func (vq *victimQueues) branch(q *ledger.QueueLedger) *branch {
	if b := vq.nodes[q.ID]; b != nil {
		return b
	}
	b := &branch{queue: q}
	vq.nodes[q.ID] = b
	if q.Parent == nil {
		b.at, vq.top = len(vq.top), append(vq.top, b)
	} else {
		b.up = vq.branch(q.Parent)
		b.at, b.up.kids = len(b.up.kids), append(b.up.kids, b)
	}
	vq.all = append(vq.all, b)
	return b
}

// ready builds and sorts a leaf on first use. It costs no step: it is done once in an action, whatever is asked, and where it
// used up the bound, each cycle would do it again and answer one question.
func (vq *victimQueues) ready(l *leaf) {
	if !l.built {
		l.built = true
		l.gangs = make([]*ledger.GangState, len(l.raw.gangs))
		for i, gang := range l.raw.gangs {
			l.gangs[i] = vq.s.Ledger.Gang(gang.ID)
		}
		slices.SortFunc(l.gangs, func(a, b *ledger.GangState) int { return vq.s.Rules.CompareGangs(b, a) })
	}
	for l.start < len(l.gangs) && vq.s.Ledger.Live(l.gangs[l.start]) == 0 {
		l.start++
	}
}

// given puts gangs that gave a part in their new place, after a decision was accepted, and takes out those that gave all: a gang with
// nothing left has no place in the order any more, and a search for another's place must not meet it.
func (vq *victimQueues) given(gangs []*ledger.GangState) {
	vq.sieve = nil
	var back []*ledger.GangState
	for _, v := range gangs {
		l := vq.byID[v.Leaf.ID]
		if l == nil || !l.built {
			continue
		}
		if vq.ground != nil {
			vq.ground.note(l.branch)
		}
		i := slices.Index(l.gangs[l.start:], v)
		if i < 0 {
			continue
		}
		l.gangs = slices.Delete(l.gangs, l.start+i, l.start+i+1)
		if vq.s.Ledger.Live(v) > 0 {
			back = append(back, v)
		}
	}
	for _, v := range back {
		l := vq.byID[v.Leaf.ID]
		rest := l.gangs[l.start:]
		at := l.start + sort.Search(len(rest), func(k int) bool { return vq.s.Rules.CompareGangs(rest[k], v) < 0 })
		l.gangs = slices.Insert(l.gangs, at, v)
	}
}

// walk hands out units for one beneficiary. It evicts nothing itself: the caller evicts each unit before it asks for the
// next, so that shares are what they would be.
type walk struct {
	queues      *victimQueues
	cause       policy.EvictionCause
	g           *ledger.GangState
	request     cluster.Resources
	at          map[*leaf]*cursor
	stand       *stand // who gives next; nil until the first unit is asked for
	beneficiary string // what the rules about gangs know of g; "" until asked for
	tier        int    // units above it are put off
	later       []*ledger.GangState
	strict      bool                         // ask the rules that look at each unit; without, the caller does
	on          func(cluster.NodeID) bool    // where room is needed; nil for anywhere
	of          func(*cluster.Pod) bool      // with it, whose room
	asked       map[*ledger.QueueLedger]bool // the queues that had to give at some moment of the search
	barred      []recorder.Barrier
	listed      map[policy.Verdict]int // where in barred a rule is; nil while those are few
	refused     bool                   // some unit was, by a rule about units: with other victims it might be legal
	kinds       []recorder.Barrier     // what is told of siblings of one kind together, too many to tell of each
	turned      turned
	open        []*branch        // queues beside the beneficiary's way that may be asked, for all leaves below them
	status      map[*branch]bool // whether a queue is one of those; nil where each leaf is asked
	wide        []openKind       // more of those, by kind, until they are needed one by one
	hinges      bool             // a queue was never to be asked, and might be if others nearer could be taken that were refused
}

// cursor is how far the walk has come in a leaf.
type cursor struct {
	closed bool // the queue need not give
	next   int
	back   []*ledger.GangState // gave a part and may give more, first victim first
}

func (vq *victimQueues) walk(cause policy.EvictionCause, g *ledger.GangState, request cluster.Resources) *walk {
	return &walk{queues: vq, cause: cause, g: g, request: request, at: map[*leaf]*cursor{}, strict: true, asked: map[*ledger.QueueLedger]bool{}}
}

// cursor starts in a leaf, at the first gang that the rules about gangs allow.
func (w *walk) cursor(l *leaf) *cursor {
	c := w.at[l]
	if c == nil {
		c = w.enter(l)
		w.at[l] = c
		if !c.closed {
			w.sift(l, c)
		}
	}
	return c
}

// enter asks about a leaf as a whole: queues that need not give are passed without a look at their gangs.
func (w *walk) enter(l *leaf) *cursor {
	c := &cursor{}
	w.queues.s.Recorder.Step()
	switch w.above(l.branch) {
	case shut:
		c.closed = true // told of with all below the queue
		return c
	case asked:
		w.asked[l.queue] = true
	}
	if v := w.mayAsk(l.queue); !v.Yes() {
		c.closed = true
		if v.Reason != policy.ReasonOtherQueue {
			w.shut(closure{leaf: l, gangs: &l.raw, why: v, before: true})
		}
		return c
	}
	w.barAll(&l.never, policy.Verdict{Code: policy.No, Reason: policy.ReasonNotPreemptible})
	if w.cause == policy.Preempt && !slices.ContainsFunc(l.raw.gangs, func(v *cluster.Gang) bool { return v.Priority < w.g.Priority }) {
		c.closed = true
		w.barAll(&l.raw, policy.Verdict{Code: policy.No, Reason: policy.ReasonHigherPriority})
		return c
	}
	w.queues.ready(l)
	return c
}

// top returns the leaf's next victim that the rules about gangs allow, nil when there is none.
func (w *walk) top(l *leaf) *ledger.GangState {
	c := w.cursor(l)
	if c.closed {
		return nil
	}
	for c.next < len(l.gangs) {
		v := l.gangs[c.next]
		if v == w.g || w.queues.s.Ledger.Live(v) == 0 {
			c.next++
			continue
		}
		verdict := w.queues.s.Rules.CheckVictim(w.cause, w.g, w.request, v)
		if verdict.Yes() {
			break
		}
		w.queues.s.Recorder.Step()
		w.bar(v, verdict)
		c.next++
	}
	if len(c.back) > 0 && (c.next >= len(l.gangs) || w.queues.s.Rules.CompareGangs(c.back[0], l.gangs[c.next]) > 0) {
		return c.back[0]
	}
	if c.next < len(l.gangs) {
		return l.gangs[c.next]
	}
	return nil
}

// take removes the victim that top returned.
func (w *walk) take(l *leaf, v *ledger.GangState) {
	c := w.cursor(l)
	w.stand.stale(l)
	if len(c.back) > 0 && c.back[0] == v {
		c.back = c.back[1:]
		return
	}
	c.next++
}

// giveBack returns a victim that gave a part and has more.
func (w *walk) giveBack(l *leaf, v *ledger.GangState) {
	c := w.cursor(l)
	w.stand.stale(l)
	at := sort.Search(len(c.back), func(k int) bool { return w.queues.s.Rules.CompareGangs(c.back[k], v) < 0 })
	c.back = slices.Insert(c.back, at, v)
}

// taken is a unit with the reasons for it.
type taken struct {
	ledger.VictimUnit
	rule   string
	budget string // a promise to its owner that it breaks
}

// next returns the next unit that may be taken.
func (w *walk) next() (taken, bool) {
	for {
		w.queues.s.Recorder.Step()
		l, v := w.pick()
		if v == nil {
			if w.again() {
				continue
			}
			if len(w.later) == 0 {
				w.finish()
				return taken{}, false
			}
			w.tier++
			for _, v := range w.later {
				w.giveBack(w.queues.byID[v.Leaf.ID], v)
			}
			w.later = nil
			continue
		}
		w.take(l, v)
		u, ok := w.unit(v)
		if !ok {
			continue
		}
		tier, broken := w.queues.s.Rules.Tier(&u)
		if tier > w.tier && !u.BelowMinimum { // another of its pods may do
			if other, ok := w.queues.s.Rules.GentleUnit(v, w.of); ok {
				u, tier, broken = other, 0, ""
			}
		}
		if tier > w.tier {
			w.later = append(w.later, v)
			continue
		}
		t := taken{VictimUnit: u}
		if tier > 0 {
			t.budget = broken
		}
		if w.strict {
			rule, verdict := w.queues.s.Rules.CheckUnit(w.cause, w.g, w.request, &u)
			if !verdict.Yes() && !u.BelowMinimum { // another of its pods may be lawful
				if other, ok := w.queues.s.Rules.LawfulUnit(w.cause, w.g, v, w.wants); ok {
					if why, no := w.queues.s.Rules.CheckUnit(w.cause, w.g, w.request, &other); no.Yes() {
						_, t.budget = w.queues.s.Rules.Tier(&other)
						t.VictimUnit, rule, verdict = other, why, no
					}
				}
			}
			if !verdict.Yes() {
				w.refused = true
				w.refuse(v, verdict)
				if verdict.Reason == policy.ReasonVictimWithinShare { // the queue has given what it must, whatever is next
					w.close(l, verdict)
				}
				continue
			}
			t.rule = rule
		}
		return t, true
	}
}

// wants says whether a unit is of those that are taken now.
func (w *walk) wants(u *ledger.VictimUnit) bool {
	tier, _ := w.queues.s.Rules.Tier(u)
	return tier <= w.tier && (w.of == nil || slices.ContainsFunc(u.Pods, w.of))
}

// close passes over what is left of a leaf.
func (w *walk) close(l *leaf, why policy.Verdict) {
	c := w.cursor(l)
	rest := make([]*cluster.Gang, 0, len(l.gangs)-c.next)
	for _, v := range l.gangs[c.next:] {
		rest = append(rest, v.Gang)
	}
	for _, v := range c.back {
		rest = append(rest, v.Gang)
	}
	c.closed = true
	w.stand.stale(l)
	w.shut(closure{leaf: l, gangs: &crowd{gangs: rest}, why: why})
}

// gave tells the walk that the unit was evicted, so that its gang may give more.
func (w *walk) gave(t *taken) {
	w.turned.near = max(w.turned.near, nearness(w.g.Leaf, t.Gang.Leaf))
	if !t.BelowMinimum && w.queues.s.Ledger.Live(t.Gang) > 0 {
		w.giveBack(w.queues.byID[t.Gang.Leaf.ID], t.Gang)
	}
}
