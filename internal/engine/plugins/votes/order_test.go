package votes_test

import (
	"cmp"
	"context"
	"fmt"
	"math/big"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/engine/builtin"
	"github.com/muster-scheduler/muster/internal/engine/policy"
	"github.com/muster-scheduler/muster/internal/profile"
)

// The order in which queues, gangs and pods are served, and what a queue is given, read off Volcano's documentation with maps and fractions, and held against the engine step by step
// while it fills a node.

// court is a realm with a tree of queues, whose tasks all run on one node.
type court struct {
	*realm
	hdrf bool
	wait int64 // of sla
}

// unit is one of any resource, fine enough for parts of it to be whole numbers.
const unit = 1_000_000

// drawCourt makes up a cluster and a file.
func drawCourt(r *rand.Rand) *court {
	some := func(most int64) amounts {
		a := amounts{}
		for _, name := range both {
			if r.IntN(3) > 0 {
				a[name] = r.Int64N(most+1) * unit
			}
		}
		return a
	}
	c := &court{realm: &realm{tree: r.IntN(2) == 0, nodes: []amounts{{"cpu": (6 + r.Int64N(30)) * unit, "gpu": r.Int64N(12) * unit}}}, hdrf: r.IntN(3) == 0}
	if r.IntN(2) == 0 {
		c.wait = 1 + r.Int64N(100)
	}
	for i := range 1 + r.IntN(6) {
		f := fund{name: fmt.Sprint("q", i), weight: 1 + r.Int64N(4), guarantee: amounts{}, deserved: amounts{}, capability: amounts{}, created: r.Int64N(3)}
		if i > 0 && r.IntN(3) == 0 {
			f.parent = c.funds[r.IntN(i)].name
		}
		if r.IntN(4) == 0 {
			f.priority = r.IntN(3)
		}
		if r.IntN(3) > 0 {
			f.deserved = some(12)
		}
		if r.IntN(4) == 0 {
			f.guarantee = some(4)
		}
		if r.IntN(4) == 0 {
			f.capability = some(20)
		}
		for range r.IntN(4) {
			f.path = append(f.path, []string{"a", "b"}[r.IntN(2)])
			f.weights = append(f.weights, r.Int64N(4)) // below 1 is 1
		}
		c.funds = append(c.funds, f)
	}
	var leaves []string
	for _, f := range c.funds {
		if !slices.ContainsFunc(c.funds, func(o fund) bool { return o.parent == f.name }) {
			leaves = append(leaves, f.name)
		}
	}
	for i := range 2 + r.IntN(8) {
		j := job{name: fmt.Sprint("j", i), space: "d", queue: leaves[r.IntN(len(leaves))], min: r.IntN(4), created: r.Int64N(3)}
		if r.IntN(2) == 0 {
			j.priority = r.IntN(3)
		}
		if r.IntN(3) == 0 {
			j.wait = 1 + r.Int64N(100)
		}
		for k := range 1 + r.IntN(5) {
			t := task{name: fmt.Sprint(j.name, "-", []string{"x", ""}[r.IntN(2)], 97*k%11, []string{"y", "", ""}[r.IntN(3)]), node: -1, needs: some(3), priority: r.IntN(2), created: r.Int64N(2)}
			switch x := r.IntN(8); {
			case x < 2:
				t.node = 0
			case x == 2:
				t.ended = true
			}
			j.tasks = append(j.tasks, t)
		}
		c.jobs = append(c.jobs, j)
	}
	for _, name := range both { // what runs there has room
		holds := int64(0)
		for _, f := range c.funds {
			holds += c.allocated(f.name, name)
		}
		c.nodes[0][name] = max(holds, c.nodes[0][name])
	}
	plugins := []string{"gang", "priority", "drf", "sla", []string{"proportion", "capacity"}[r.IntN(2)]}
	r.Shuffle(len(plugins), func(i, k int) { plugins[i], plugins[k] = plugins[k], plugins[i] })
	c.tiers = make([][]use, 1+r.IntN(3))
	for _, name := range plugins {
		if r.IntN(6) > 0 {
			off := func() bool { return r.IntN(8) == 0 }
			at := r.IntN(len(c.tiers))
			c.tiers[at] = append(c.tiers[at], use{name: name, noOverused: off(), noJobs: off(), noTasks: off(), noQueues: off(), noAllocates: r.IntN(3) == 0})
		}
	}
	return c
}

func (c *court) store() *cluster.Store {
	s := cluster.NewStore(cluster.Options{})
	list := func(a amounts) []cluster.Quantity {
		out := []cluster.Quantity{}
		for _, name := range both {
			if x, said := a[name]; said {
				out = append(out, cluster.Quantity{Name: name, Value: x})
			}
		}
		return out
	}
	s.Apply(cluster.NodeState{Name: "n0", Allocatable: append(list(c.nodes[0]), cluster.Quantity{Name: "pods", Value: 99})})
	s.Apply(cluster.QueueState{Name: "volcano:root", UID: "root"})
	for _, f := range c.funds {
		quota := amounts{}
		for _, name := range both {
			if x := max(f.deserved[name], f.guarantee[name]); x > 0 {
				quota[name] = x
			}
		}
		st := cluster.QueueState{
			Name: "volcano:" + f.name, UID: f.name, Parent: "volcano:" + cmp.Or(f.parent, "root"), Priority: int32(f.priority), Created: now.Add(time.Duration(f.created)),
			Weight:    []cluster.Quantity{{Name: "cpu", Value: f.weight * 1000}, {Name: "gpu", Value: f.weight * 1000}},
			Guarantee: list(f.guarantee), Quota: list(quota), Limit: list(f.capability),
		}
		for i, name := range f.path {
			st.Path = append(st.Path, cluster.Step{Name: name, Weight: f.weights[i] * 1_000_000})
		}
		s.Apply(st)
	}
	for _, j := range c.jobs {
		key := cluster.Key{Face: "volcano", Namespace: j.space, Name: j.name}
		st := cluster.GangState{Key: key, UID: j.name, Queue: "volcano:" + j.queue, Preemptible: true, Priority: int32(j.priority), Created: now.Add(time.Duration(j.created) * time.Minute), Sets: cluster.FlatTree(int32(j.min))}
		if j.wait > 0 {
			st.AdmitAfter = cluster.Maybe[time.Duration]{Set: true, Value: time.Duration(j.wait) * time.Minute}
		}
		s.Apply(st)
		for _, t := range j.tasks {
			ps := cluster.PodState{UID: t.name, Namespace: j.space, Name: t.name, Requests: list(t.needs), Gang: key, Ours: true, Created: now.Add(time.Duration(t.created)), Priority: int32(t.priority)}
			switch {
			case t.ended:
				ps.Phase = cluster.Succeeded
			case t.node >= 0:
				ps.Phase, ps.NodeName = cluster.Running, "n0"
			}
			s.Apply(ps)
		}
	}
	return s
}

func (c *court) face() engine.Face {
	f := engine.Face{Name: "volcano", Actions: []string{"allocate", "serve"}}
	for _, tier := range c.tiers {
		var uses []engine.PluginUse
		for _, u := range tier {
			pu := engine.PluginUse{Name: u.name, Arguments: policy.Arguments{}}
			if u.name == "capacity" && c.tree || u.name == "drf" && c.hdrf {
				pu.Arguments["enableHierarchy"] = "true"
			}
			if u.name == "sla" && c.wait > 0 {
				pu.Arguments["sla-waiting-time"] = fmt.Sprint(c.wait, "m")
			}
			for point, off := range map[policy.Point]bool{ // order: a set
				"queue-turn": u.noOverused, "gang-order": u.noJobs, "pod-order": u.noTasks, "leaf-order": u.noQueues, "queue-gate": u.noAllocates,
			} {
				if off {
					pu.Off = append(pu.Off, point)
				}
			}
			uses = append(uses, pu)
		}
		f.Tiers = append(f.Tiers, uses)
	}
	return f
}

// tasksBefore says whether a task goes before another of its job.
func (c *court) tasksBefore(a, b *task) int {
	for _, tier := range c.tiers {
		for _, u := range tier {
			if u.name == "priority" && !u.noTasks && a.priority != b.priority {
				return b.priority - a.priority
			}
		}
	}
	trailing := func(name string) (n int) {
		at := len(name)
		for at > 0 && name[at-1] >= '0' && name[at-1] <= '9' {
			at--
		}
		if at == len(name) {
			return 1 << 40 // none comes last
		}
		_, _ = fmt.Sscan(name[at:], &n)
		return n
	}
	return cmp.Or(trailing(a.name)-trailing(b.name), int(a.created-b.created), strings.Compare(a.name, b.name))
}

// jobsBefore says whether a job goes before another of its queue.
func (c *court) jobsBefore(a, b *job) int {
	ready := func(j *job) bool {
		n := 0
		for k := range j.tasks {
			if t := &j.tasks[k]; !waits(t) || t.needs["cpu"] == 0 && t.needs["gpu"] == 0 {
				n++
			}
		}
		return n >= j.min
	}
	deadline := func(j *job) (int64, bool) {
		if w := cmp.Or(j.wait, c.wait); w > 0 {
			return j.created + w, true
		}
		return 0, false
	}
	for _, tier := range c.tiers {
		for _, u := range tier {
			d := 0
			switch {
			case u.noJobs:
			case u.name == "priority":
				d = b.priority - a.priority
			case u.name == "gang" && ready(a) != ready(b):
				if d = 1; !ready(a) {
					d = -1
				}
			case u.name == "drf":
				d = c.share(c.holds(a)).Cmp(c.share(c.holds(b)))
			case u.name == "sla":
				da, sa := deadline(a)
				db, sb := deadline(b)
				switch {
				case sa && !sb:
					d = -1
				case sb && !sa:
					d = 1
				case sa && sb:
					d = int(da - db)
				}
			}
			if d != 0 {
				return d
			}
		}
	}
	return cmp.Or(int(a.created-b.created), strings.Compare(a.name, b.name))
}

// below are the leaves below a queue, or itself.
func (c *court) below(f *fund) (out []string) {
	for i := range c.funds {
		if c.funds[i].parent == f.name {
			out = append(out, c.below(&c.funds[i])...)
		}
	}
	if out == nil {
		return []string{f.name}
	}
	return out
}

func (c *court) heldBelow(f *fund, name string) (x int64) {
	for _, leaf := range c.below(f) {
		x += c.allocated(leaf, name)
	}
	return x
}

// may is realCapability of capacity.
func (c *court) may(f *fund, name string) int64 {
	total := c.nodes[0][name]
	promised := int64(0)
	for i := range c.funds {
		if !c.tree || c.funds[i].parent == f.parent {
			promised += c.funds[i].guarantee[name]
		}
	}
	if c.tree && f.parent != "" {
		total = c.may(c.fund(f.parent), name)
	}
	x := max(0, total-promised) + f.guarantee[name]
	if limit, said := f.capability[name]; said {
		x = min(x, limit)
	}
	return x
}

// deserves is what a queue deserves by capacity.
func (c *court) deserves(f *fund, name string) int64 {
	x := f.deserved[name]
	if !c.tree {
		x = min(x, c.may(f, name))
	}
	return max(x, f.guarantee[name])
}

// ancestors are a queue and those above it, from the top.
func (c *court) ancestors(f *fund) (out []*fund) {
	for ; ; f = c.fund(f.parent) {
		out = append([]*fund{f}, out...)
		if f.parent == "" {
			return out
		}
	}
}

// ratio is the largest part of what is deserved.
func ratio(holds, deserved func(name string) int64) *big.Rat {
	out := new(big.Rat)
	for _, name := range both {
		has, owed := holds(name), deserved(name)
		part := new(big.Rat)
		switch {
		case has > 0 && owed > 0:
			part = big.NewRat(has, owed)
		case has > 0:
			part = big.NewRat(1, 1)
		}
		if part.Cmp(out) > 0 {
			out = part
		}
	}
	return out
}

// queuesBefore says whether a leaf queue goes before another.
func (c *court) queuesBefore(a, b *fund, deserved map[string]amounts) int {
	for _, tier := range c.tiers {
		for _, u := range tier {
			d := 0
			switch {
			case u.noQueues:
			case u.name == "proportion":
				part := func(f *fund) *big.Rat {
					return ratio(func(n string) int64 { return c.allocated(f.name, n) }, func(n string) int64 { return deserved[f.name][n] })
				}
				d = cmp.Or(b.priority-a.priority, part(a).Cmp(part(b)))
			case u.name == "capacity":
				x, y := a, b
				if c.tree {
					way, other := c.ancestors(a), c.ancestors(b)
					for way[0] == other[0] {
						way, other = way[1:], other[1:]
					}
					x, y = way[0], other[0]
				}
				part := func(f *fund) (*big.Rat, int) {
					if c.deserves(f, "cpu") == 0 && c.deserves(f, "gpu") == 0 {
						return big.NewRat(1, 1), 1
					}
					return ratio(func(n string) int64 { return c.heldBelow(f, n) }, func(n string) int64 { return c.deserves(f, n) }), 0
				}
				px, nothingX := part(x)
				py, nothingY := part(y)
				d = cmp.Or(b.priority-a.priority, px.Cmp(py), nothingX-nothingY)
			case u.name == "drf" && c.hdrf:
				d = c.steps(a, b)
			}
			if d != 0 {
				return d
			}
		}
	}
	return cmp.Or(int(a.created-b.created), strings.Compare(a.name, b.name))
}

// spot is a place of the hierarchy by its path.
type spot struct {
	holds     amounts
	share     *big.Int // in million-millionths, cut
	saturated bool
	weight    int64
}

// way is a queue's path: itself last, below the place that it names.
func way(f *fund) []string {
	path := f.path
	if len(path) == 0 {
		path = []string{f.name}
	}
	return append(slices.Clone(path), "queue "+f.name)
}

// at works out a place of the hierarchy from those below it.
func (c *court) at(prefix []string) spot {
	out := spot{holds: amounts{}, saturated: true, weight: 1}
	cut := func(of amounts) *big.Int {
		s := c.share(of)
		n := new(big.Int).Mul(s.Num(), big.NewInt(1_000_000_000_000))
		return n.Quo(n, s.Denom())
	}
	var children []string
	first := true
	for i := range c.funds {
		f := &c.funds[i]
		if len(c.below(f)) > 1 || c.below(f)[0] != f.name {
			continue
		}
		path := way(f)
		if len(path) < len(prefix) || !slices.Equal(path[:len(prefix)], prefix) {
			continue
		}
		if k := len(prefix) - 1; first && k >= 0 && k < len(f.weights) {
			out.weight = max(1, f.weights[k])
		}
		first = false
		if len(path) == len(prefix) {
			for _, name := range both {
				out.holds[name] = c.allocated(f.name, name)
			}
			more, short := false, false
			for _, name := range both {
				asks := c.sum(f.name, name, func(t *task) bool { return runs(t) || waits(t) })
				left := c.nodes[0][name]
				for _, o := range c.funds {
					left -= c.allocated(o.name, name)
				}
				if asks > out.holds[name] {
					more, short = true, short || left <= 0
				}
			}
			out.saturated, out.share = !more || short, cut(out.holds)
			return out
		}
		if next := path[len(prefix)]; !slices.Contains(children, next) {
			children = append(children, next)
		}
	}
	var spots []spot
	var least *big.Int
	for _, name := range children {
		s := c.at(append(slices.Clone(prefix), name))
		if spots = append(spots, s); !s.saturated && (least == nil || s.share.Cmp(least) < 0) {
			least = s.share
		}
	}
	for _, s := range spots {
		out.saturated = out.saturated && s.saturated
		for name, x := range s.holds {
			if !s.saturated && s.share.Sign() > 0 {
				n := new(big.Int).Mul(big.NewInt(x), least)
				x = n.Quo(n, s.share).Int64()
			} else if !s.saturated {
				x = 0
			}
			out.holds[name] += x
		}
	}
	out.share = cut(out.holds)
	return out
}

// steps compares two queues step by step of the hierarchy.
func (c *court) steps(a, b *fund) int {
	x, y := way(a), way(b)
	k := 0
	for x[k] == y[k] {
		k++
	}
	p, q := c.at(x[:k+1]), c.at(y[:k+1])
	if p.saturated != q.saturated {
		if q.saturated {
			return -1
		}
		return 1
	}
	l, r := new(big.Int).Mul(p.share, big.NewInt(q.weight)), new(big.Int).Mul(q.share, big.NewInt(p.weight))
	return l.Cmp(r)
}

// gives says whether a queue is given so much, and that it is so by who has no say of faces: its limits, and the room of the node.
func (c *court) gives(f *fund, asks amounts, deserved map[string]amounts) (turn, given, room bool) {
	turn, given, room = true, true, true
	for _, name := range both {
		x := asks[name]
		if x == 0 {
			continue
		}
		left := c.nodes[0][name]
		for _, o := range c.funds {
			left -= c.allocated(o.name, name)
		}
		room = room && x <= left
		for _, q := range c.ancestors(f) {
			limit, said := q.capability[name]
			room = room && (!said || c.heldBelow(q, name)+x <= limit)
		}
	}
	for _, tier := range c.tiers {
		for _, u := range tier {
			over, above := true, false
			for _, name := range both {
				has, x := c.allocated(f.name, name), asks[name]
				over = over && deserved[f.name][name] <= has
				switch {
				case x == 0:
				case u.name == "proportion":
					above = above || has+x > deserved[f.name][name]
				case u.name == "capacity" && !c.tree:
					above = above || has+x > c.may(f, name)
				case u.name == "capacity":
					for _, q := range c.ancestors(f) {
						above = above || c.heldBelow(q, name)+x > c.may(q, name)
					}
				}
			}
			if u.name == "proportion" && !u.noOverused && over && (asks["cpu"] > 0 || asks["gpu"] > 0) {
				turn = false
			}
			given = given && (u.noAllocates || !above)
		}
	}
	return turn, given, room
}

// TestOrder: on random clusters the engine serves queues, gangs and pods in the order that the documentation says, and gives a queue what it says, at each step. Where the comparison of queues
// goes round in a circle, which it does with trees, any queue of the circle may be the next.
func TestOrder(t *testing.T) {
	t.Parallel()
	courts := cases(t, 4000)
	count := map[string]int{}
	for seed := range uint64(courts) {
		c := drawCourt(rand.New(rand.NewPCG(seed, 43)))
		known := builtin.Registry()
		known.Actions["serve"] = func() engine.Action { return asker{func(s *engine.Session) { c.serve(t, s, count) }} }
		known.Faces["volcano"].Actions["serve"] = nil
		p := profile.BuiltIn()
		p.Actions, p.Faces = []string{"serve"}, []engine.Face{c.face()}
		e, err := engine.New(p, known)
		if err != nil {
			t.Fatal(err)
		}
		drawn := fmt.Sprintf("%+v %+v", c, c.realm)
		e.Run(context.Background(), c.store().Snapshot(now), func(engine.Plan) {})
		if t.Failed() {
			t.Fatalf("court %d: %s", seed, drawn)
		}
	}
	t.Log(count)
	for _, what := range []string{"given", "no turn", "not given", "no room", "between queues", "between jobs", "between tasks"} {
		if count[what] < 300 {
			t.Errorf("%s: only %d", what, count[what])
		}
	}
}

// serve is the action allocate, with every step of it held against the documentation.
func (c *court) serve(t *testing.T, s *engine.Session, count map[string]int) {
	deserved := c.weighed()
	waiting := map[string]bool{}
	pending := s.Pending()
	for _, g := range pending {
		waiting[g.Key.Name] = true
	}
	queue := s.NewGangQueue(pending)
	for g := queue.Pop(); g != nil; g = queue.Pop() {
		mine := c.job(g.Key.Name)
		c.first(t, mine, waiting, deserved, count)
		delete(waiting, mine.name)
		pods, _ := s.Ledger.Next(g)
		var left, next []*task
		for k := range mine.tasks {
			if x := &mine.tasks[k]; waits(x) {
				left = append(left, x)
			}
		}
		slices.SortFunc(left, c.tasksBefore)
		asks := amounts{}
		for i, id := range pods {
			x := left[i]
			if name := s.Snap.Pod(id).Name; name != x.name {
				t.Errorf("of %s pod %s is next, want %s", mine.name, name, x.name)
				return
			}
			for name, amount := range x.needs {
				asks[name] += amount
			}
			next = append(next, x)
		}
		if len(left) > len(pods) {
			count["between tasks"]++
		}
		turn, given, room := c.gives(c.fund(mine.queue), asks, deserved)
		if v := s.Rules.CheckTurn(g); v.Yes() != turn {
			t.Errorf("%s has its turn: %v, want %v", mine.queue, v, turn)
			return
		}
		st := s.Ledger.Begin()
		if !turn {
			count["no turn"]++
			st.Discard()
			continue
		}
		d := s.Placer.TryGang(st, g)
		if (d == nil) != (given && room) {
			t.Errorf("%s of %s asks for %v: %+v, want %v, %v", mine.name, mine.queue, asks, d, given, room)
			st.Discard()
			return
		}
		switch {
		case !given:
			count["not given"]++
		case !room:
			count["no room"]++
		}
		if d != nil {
			continue
		}
		count["given"]++
		s.Accept(st)
		for _, x := range next {
			x.node = 0
		}
		if pods, _ := s.Ledger.Next(g); len(pods) > 0 {
			waiting[mine.name] = true
			queue.Push(g)
		}
	}
}

// first holds against the documentation that a job is the next of those that wait.
func (c *court) first(t *testing.T, mine *job, waiting map[string]bool, deserved map[string]amounts, count map[string]int) {
	own := c.fund(mine.queue)
	var queues []*fund
	for name := range waiting { // order: each by itself
		other := c.job(name)
		if other == mine {
			continue
		}
		if other.queue == mine.queue {
			if count["between jobs"]++; c.jobsBefore(other, mine) < 0 {
				t.Errorf("%s is next, and %s comes before it", mine.name, name)
			}
		} else if f := c.fund(other.queue); !slices.Contains(queues, f) {
			queues = append(queues, f)
		}
	}
	before := func(a, b *fund) bool { return c.queuesBefore(a, b, deserved) < 0 }
	for _, f := range queues {
		if count["between queues"]++; !before(f, own) {
			continue
		}
		if slices.ContainsFunc(queues, func(o *fund) bool { return before(own, o) && before(o, f) }) {
			count["in circles"]++
			continue
		}
		t.Errorf("%s of queue %s is next, and queue %s comes before it", mine.name, mine.queue, f.name)
	}
}
