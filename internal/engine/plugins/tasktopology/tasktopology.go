package tasktopology

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine/ledger"
	"github.com/muster-scheduler/muster/internal/engine/policy"
)

// Name is the plugin's name in a scheduler file, and WeightArgument its argument.
const (
	Name           = "task-topology"
	WeightArgument = "task-topology.weight"
)

// mostWeight bounds the weight, and whole is the points of a node that has all.
const (
	mostWeight = 1000
	whole      = 100 * policy.ScorePoint
)

// Factory declares the plugin.
var Factory = policy.Makes(build)

func build(args policy.Arguments) (func(*policy.View) *instance, []string, error) {
	weight := int64(1)
	if text, said := args[WeightArgument]; said {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || n < 0 || n > mostWeight {
			return nil, nil, fmt.Errorf("argument %q is %.40q; it must be a whole number from 0 to %d", WeightArgument, text, mostWeight)
		}
		weight = n
	}
	return func(v *policy.View) *instance {
		return &instance{view: v, weight: weight, gangs: map[cluster.GangID]*crew{}, kinds: map[string]int{}}
	}, args.Unknown(WeightArgument), nil
}

type instance struct {
	view   *policy.View
	weight int64
	gangs  map[cluster.GangID]*crew
	kinds  map[string]int // by key, from 1
	list   []*kind
}

// crew is a gang that says something of its pods: made when the first of them is asked about.
type crew struct {
	roles   *roles
	buckets []*bucket
	of      map[cluster.PodID]*seat
	on      map[cluster.NodeID][]int64 // by role: how many pods there are now
	at      []map[cluster.NodeID][]int64
	kinds   map[cluster.PodID]int
}

// seat is what is known of a pod.
type seat struct {
	role   int
	bucket int // -1 for none
	rank   int // in the order in which pods are placed
}

// kind is pods of one class, role and mates.
type kind struct {
	crew    *crew
	pod     *cluster.Pod // one of them
	role    int
	drawn   int64
	rivals  int64
	mates   []mate
	scores  []int64
	changed []cluster.NodeID
	read    int // how much of View.Touched is in scores
}

// mate is pods of one class and role that wait, in a bucket.
type mate struct {
	class    *cluster.Class
	strength int64
	count    int
}

// crew returns that of a pod's gang; nil where it says nothing.
func (i *instance) crew(p *cluster.Pod) *crew {
	g := i.view.Snapshot().Gang(p.Gang)
	if g == nil || g.Company == nil {
		return nil
	}
	if c := i.gangs[g.ID]; c != nil {
		return c
	}
	c := &crew{roles: read(g.Company), of: map[cluster.PodID]*seat{}, on: map[cluster.NodeID][]int64{}, kinds: map[cluster.PodID]int{}}
	i.gangs[g.ID] = c
	var placed, waiting []*cluster.Pod
	for _, id := range g.Pods {
		p := i.view.Snapshot().Pod(id)
		role := c.roles.of(p)
		switch {
		case role < 0 || !p.Ours:
			continue
		case p.Phase.Active() && p.Node != cluster.None:
			placed = append(placed, p)
		case p.Phase == cluster.Pending:
			waiting = append(waiting, p)
		default:
			continue
		}
		c.of[id] = &seat{role: role, bucket: -1}
		c.roles.all[role]++
	}
	c.buckets = fill(c.roles, placed, waiting)
	c.at = make([]map[cluster.NodeID][]int64, len(c.buckets))
	for k, b := range c.buckets {
		c.at[k] = map[cluster.NodeID][]int64{}
		for _, p := range b.pods {
			c.of[p.ID].bucket = k
		}
	}
	c.rank()
	for _, p := range slices.Concat(placed, waiting) {
		if n := i.view.NodeOf(p); n != cluster.None {
			c.count(p.ID, n, 1)
		}
	}
	return c
}

// rank puts the pods in the order in which they are placed.
func (c *crew) rank() {
	order := make([]int, len(c.buckets))
	for k := range order {
		order[k] = k
	}
	slices.SortFunc(order, func(a, b int) int {
		l, r := c.buckets[a], c.buckets[b]
		return cmp.Or(policy.First(l.node != "", r.node != ""), cmp.Compare(len(r.pods), len(l.pods)), cmp.Compare(a, b))
	})
	n := 0
	for _, k := range order {
		b := c.buckets[k]
		slices.SortFunc(b.pods, func(x, y *cluster.Pod) int {
			return cmp.Or(cmp.Compare(c.roles.order[c.roles.of(x)], c.roles.order[c.roles.of(y)]), c.roles.comparePods(x, y))
		})
		for _, p := range b.pods {
			n++
			c.of[p.ID].rank = n
		}
	}
}

// count has so many pods more where one of a role is now.
func (c *crew) count(id cluster.PodID, n cluster.NodeID, by int64) {
	s := c.of[id]
	add := func(to map[cluster.NodeID][]int64) {
		if to[n] == nil {
			to[n] = make([]int64, len(c.roles.names))
		}
		to[n][s.role] += by
	}
	if add(c.on); s.bucket >= 0 {
		add(c.at[s.bucket])
	}
}

// Done implements policy.Observer.
func (i *instance) Done(op ledger.Op) { i.moved(op, int64(op.Gives())) }

// Undone implements policy.Observer.
func (i *instance) Undone(op ledger.Op) { i.moved(op, -int64(op.Gives())) }

func (i *instance) moved(op ledger.Op, by int64) {
	if op.Pod == nil || by == 0 {
		return
	}
	if c := i.gangs[op.Pod.Gang]; c != nil && c.of[op.Pod.ID] != nil {
		c.count(op.Pod.ID, op.Node, by)
	}
}

// ComparePods implements policy.PodOrder.
func (i *instance) ComparePods(l, r *cluster.Pod) int {
	c := i.crew(l)
	if c == nil || l.Gang != r.Gang {
		return 0
	}
	a, b := c.of[l.ID], c.of[r.ID]
	if a == nil || b == nil || a.rank == 0 || b.rank == 0 {
		return policy.First(a != nil && a.rank > 0, b != nil && b.rank > 0)
	}
	return cmp.Compare(a.rank, b.rank)
}

// sum is what so many pods by role have for one of a role, and what against it.
func (r *roles) sum(role int, pods []int64) (for_, against int64) {
	for of, n := range pods {
		if s := r.between[role][of]; s > 0 {
			for_ += s * n
		} else {
			against -= s * n
		}
	}
	return for_, against
}

// drawn is what all others of a pod's bucket have for it.
func (c *crew) drawn(s *seat) int64 {
	if s.bucket < 0 {
		return 0
	}
	all, _ := c.roles.sum(s.role, c.buckets[s.bucket].roles)
	return all - max(0, c.roles.between[s.role][s.role])
}

// Bonus implements policy.PodBonus: the node with the most of the pod's bucket, of equal ones the first by name.
func (i *instance) Bonus(p *cluster.Pod) (cluster.NodeID, int64) {
	c := i.crew(p)
	if c == nil || i.weight == 0 {
		return cluster.None, 0
	}
	s := c.of[p.ID]
	if s == nil || s.bucket < 0 {
		return cluster.None, 0
	}
	drawn := c.drawn(s)
	if drawn == 0 {
		return cluster.None, 0
	}
	best, most, name := cluster.NodeID(cluster.None), int64(0), ""
	for n, pods := range c.at[s.bucket] { // order: the most, and of equal ones the first by name
		on, _ := c.roles.sum(s.role, pods)
		if node := i.view.Snapshot().Node(n); on > 0 && node != nil && (on > most || on == most && strings.Compare(node.Name, name) < 0) {
			best, most, name = n, on, node.Name
		}
	}
	if best == cluster.None {
		return best, 0
	}
	return best, i.weight * whole * min(most, drawn) / drawn
}

// Kind implements policy.CompanyScore: pods of one class of a gang are of one that have the same task, and such mates.
func (i *instance) Kind(p *cluster.Pod) int {
	c := i.crew(p)
	if c == nil || i.weight == 0 {
		return 0
	}
	if n, known := c.kinds[p.ID]; known {
		return n
	}
	s := c.of[p.ID]
	if s == nil {
		return 0
	}
	k := &kind{crew: c, pod: p, role: s.role, drawn: c.drawn(s)}
	_, k.rivals = c.roles.sum(s.role, c.roles.all)
	if k.rivals -= max(0, -c.roles.between[s.role][s.role]); k.drawn > 0 {
		for _, o := range c.buckets[s.bucket].pods {
			strength := c.roles.between[s.role][c.of[o.ID].role]
			if o == p || o.Phase != cluster.Pending || strength <= 0 {
				continue
			}
			if n := len(k.mates); n > 0 && k.mates[n-1].class == o.Class && k.mates[n-1].strength == strength {
				k.mates[n-1].count++
			} else {
				k.mates = append(k.mates, mate{o.Class, strength, 1})
			}
		}
	}
	key := binary.AppendVarint(binary.AppendVarint(binary.AppendVarint(binary.AppendUvarint(nil, p.Class.ID), int64(p.Gang)), int64(s.role)), k.drawn)
	for _, m := range k.mates {
		key = binary.AppendVarint(binary.AppendVarint(binary.AppendUvarint(key, m.class.ID), m.strength), int64(m.count))
	}
	n, known := i.kinds[string(key)]
	if !known && (len(k.mates) > 0 || k.rivals > 0) {
		k.scores = make([]int64, i.view.Snapshot().MaxNodeID())
		k.read = len(i.view.Touched())
		for _, id := range i.view.Snapshot().NodeOrder {
			k.scores[id] = i.score(k, id)
		}
		i.list = append(i.list, k)
		n = len(i.list)
		i.kinds[string(key)] = n
	}
	c.kinds[p.ID] = n
	return n
}

// score is the points of a node for pods of a kind as the session stands.
func (i *instance) score(k *kind, n cluster.NodeID) (points int64) {
	if k.rivals > 0 {
		_, against := k.crew.roles.sum(k.role, k.crew.on[n])
		points -= i.weight * whole * min(against, k.rivals) / k.rivals
	}
	if len(k.mates) == 0 || !i.view.FitsIdle(k.pod.Class, n) {
		return points
	}
	room, fit := i.view.Idle(n).Clone(), int64(0)
	room.Sub(k.pod.Class.Requests)
	for _, m := range k.mates {
		have := m.class.Requests.CountIn(room, m.count)
		for d, x := range m.class.Requests {
			room[d] -= x * int64(have)
		}
		fit += int64(have) * m.strength
	}
	return points + i.weight*whole*fit/(2*k.drawn)
}

// Company implements policy.CompanyScore.
func (i *instance) Company(n int) ([]int64, []cluster.NodeID) {
	k := i.list[n-1]
	for touched := i.view.Touched(); k.read < len(touched); k.read++ {
		id := touched[k.read]
		if now := i.score(k, id); now != k.scores[id] {
			k.scores[id] = now
			k.changed = append(k.changed, id)
		}
	}
	return k.scores, k.changed
}
