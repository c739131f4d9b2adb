// Package podaffinity gives nodes points for the pods near them, by preferred pod affinity and anti-affinity: what a pod
// prefers about those that are there, and what those prefer about it.
//
// The sums are kube-scheduler's (InterPodAffinity, before it normalises them), and one of them counts a million points, as
// in KAI: more than everything but a node that was nominated. What is there includes what the run has placed, so the
// second member of a gang is drawn to, or pushed away from, where the first one went.
package podaffinity

import (
	"strconv"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine/ledger"
	"github.com/muster-scheduler/muster/internal/engine/policy"
)

// Name is the plugin's name in a profile.
const Name = "podaffinity"

// requiredWeight is what a required affinity of a pod that is there counts for those whom it means (kube-scheduler's
// hardPodAffinityWeight, at its default).
const requiredWeight = 1

// Factory declares the plugin; it takes no arguments.
var Factory = policy.Opens(open)

// open opens the plugin for a run. It costs nothing as long as no pod has terms that score.
func open(v *policy.View) *instance {
	i := &instance{view: v}
	i.on = v.Snapshot().HasPodPreferences()
	return i
}

// instance is the plugin in one run.
type instance struct {
	view    *policy.View
	on      bool              // some pod has terms that score
	voices  map[uint64]*voice // classes with such terms, by ID; nil until asked for
	order   []*voice          // in the order of their keys
	byKey   map[string]int    // numbers of kinds by what makes them differ
	byPod   map[cluster.PodID]int
	kinds   []*kind
	index   index
	domains map[string]map[string][]cluster.NodeID // nodes by label key and value, of the keys that were asked for
	log     []change
	seen    int // how much of the log some kind has read
}

// voice is a class of pods with terms that bear on others.
type voice struct {
	class   *cluster.Class
	prefers []term // its preferred terms
	asks    []term // its required affinity
}

// term returns the voice's terms by number: the preferred ones come first.
func (v *voice) term(n int) *term {
	if n < len(v.prefers) {
		return &v.prefers[n]
	}
	return &v.asks[n-len(v.prefers)]
}

// kind is a set of pods for which each node has one score.
type kind struct {
	own     []term            // what they prefer
	meant   map[uint64][]term // by class: the terms of pods of that class that mean this kind
	sums    []int64           // by node ID
	scores  []int64           // by node ID
	changed []cluster.NodeID
	seen    int // how much of the log is in the sums
}

// change is one pod that came to a node (+1) or left it (-1).
type change struct {
	pod  *cluster.Pod
	node cluster.NodeID
	by   int64
}

// Done implements policy.Observer.
func (i *instance) Done(op ledger.Op) { i.record(change{op.Pod, op.Node, int64(op.Gives())}) }

// Undone implements policy.Observer.
func (i *instance) Undone(op ledger.Op) { i.record(change{op.Pod, op.Node, -int64(op.Gives())}) }

// record notes what happened. What is undone before anybody has read of it leaves nothing to read.
func (i *instance) record(c change) {
	if !i.on {
		return
	}
	if last := len(i.log) - 1; last >= i.seen && i.log[last] == (change{c.pod, c.node, -c.by}) {
		i.log = i.log[:last]
		return
	}
	i.log = append(i.log, c)
}

// Kind implements policy.CompanyScore. It costs a look at each term of the cluster's classes, once per pod.
func (i *instance) Kind(p *cluster.Pod) int {
	if !i.on {
		return 0
	}
	if n, ok := i.byPod[p.ID]; ok {
		return n
	}
	i.listen()
	n := i.kindOf(p)
	i.byPod[p.ID] = n
	return n
}

// kindOf says which kind a pod is of, and makes it if it is the first.
func (i *instance) kindOf(p *cluster.Pod) int {
	k := &kind{meant: map[uint64][]term{}}
	var key []byte
	if v := i.voices[p.Class.ID]; v != nil && len(v.prefers) > 0 {
		k.own = v.prefers // labels and namespace are part of such a class
		key = strconv.AppendUint(key, p.Class.ID, 36)
	}
	space := i.namespace(p.Namespace)
	for _, m := range i.index.about(p.Labels) {
		v := i.order[m.voice]
		if x := v.term(m.term); x.means(p.Namespace, p.Labels, space) {
			k.meant[v.class.ID] = append(k.meant[v.class.ID], *x)
			key = strconv.AppendInt(append(key, ' '), int64(m.voice), 36)
			key = strconv.AppendInt(append(key, '.'), int64(m.term), 36)
		}
	}
	if len(key) == 0 {
		return 0
	}
	n, known := i.byKey[string(key)]
	if !known {
		i.begin(k)
		n = len(i.kinds)
		i.byKey[string(key)] = n
	}
	return n
}

// begin sums up what is there for a new kind: a look at every pod that its terms may mean, and at every pod whose terms mean it.
func (i *instance) begin(k *kind) {
	snap := i.view.Snapshot()
	k.sums, k.scores = make([]int64, snap.MaxNodeID()), make([]int64, snap.MaxNodeID())
	i.seen = len(i.log)
	i.index.follow(snap, i.log)
	for t := range k.own {
		for _, c := range i.index.meant(&k.own[t]) {
			if x := &k.own[t]; x.means(c.pod.Namespace, c.pod.Labels, i.namespace(c.pod.Namespace)) {
				i.add(k, x, snap.Node(c.node), c.by)
			}
		}
	}
	for class, terms := range k.meant { // order: sums
		for _, c := range i.index.of[class] {
			for t := range terms {
				i.add(k, &terms[t], snap.Node(c.node), c.by)
			}
		}
	}
	k.changed, k.seen = k.changed[:0], len(i.log)
	i.kinds = append(i.kinds, k)
}

// Company implements policy.CompanyScore.
func (i *instance) Company(n int) (scores []int64, changed []cluster.NodeID) {
	k := i.kinds[n-1]
	i.catchUp(k)
	return k.scores, k.changed
}

func (i *instance) catchUp(k *kind) {
	for ; k.seen < len(i.log); k.seen++ {
		i.count(k, i.log[k.seen])
	}
	i.seen = len(i.log)
}

// count takes one pod's coming or going into the sums of every node it is near.
func (i *instance) count(k *kind, c change) {
	node := i.view.Snapshot().Node(c.node)
	if len(node.Labels) == 0 {
		return
	}
	for t := range k.own {
		if x := &k.own[t]; x.means(c.pod.Namespace, c.pod.Labels, i.namespace(c.pod.Namespace)) {
			i.add(k, x, node, c.by)
		}
	}
	meant := k.meant[c.pod.Class.ID]
	for t := range meant {
		i.add(k, &meant[t], node, c.by)
	}
}

func (i *instance) add(k *kind, x *term, node *cluster.Node, by int64) {
	value, ok := node.Labels[x.topology]
	if !ok {
		return
	}
	for _, id := range i.domain(x.topology)[value] {
		k.sums[id] += by * x.weight
		k.scores[id] = points(k.sums[id])
		k.changed = append(k.changed, id)
	}
}

// domain returns the nodes by the value of a label.
func (i *instance) domain(key string) map[string][]cluster.NodeID {
	d := i.domains[key]
	if d == nil {
		d = map[string][]cluster.NodeID{}
		snap := i.view.Snapshot()
		for _, id := range snap.NodeOrder {
			if value, ok := snap.Node(id).Labels[key]; ok {
				d[value] = append(d[value], id)
			}
		}
		i.domains[key] = d
	}
	return d
}

// Where sums are so large that a million points for each would not fit, they go on counting for less: the order of nodes
// stays that of their sums.
const (
	dear  = 4_096
	cheap = 4_000_000
)

// points is the score of a sum.
func points(sum int64) int64 {
	if sum < 0 {
		return -points(-sum)
	}
	return min(sum, dear)*1_000_000*policy.ScorePoint + min(max(0, sum-dear), cheap)*1_000*policy.ScorePoint
}
