package sim

import (
	"strconv"
	"time"

	"github.com/muster-scheduler/muster/internal/cluster"
)

// NewClusterFrom returns a cluster that goes on from an image of a cluster (see [cluster.Snapshot.Image], replay.Case): at its moment, which
// stands for Options.Start, with its nodes, queues, gangs, pods and promises of room. The image is not written to, so that any
// number of worlds may start from one.
//
// lasts says for how long a gang works from its start on; 0 for ever. A gang that has its minimum already works since its last
// start; if its time is over, it ends in the first moment. Pods on their way to a node run; pods that are being deleted go when
// their grace ends, or in the first moment, and are made anew if somebody does that. Pods of no gang stay.
func NewClusterFrom(o Options, im *cluster.Image, lasts func(*cluster.GangState) time.Duration) *Cluster {
	o.Start = im.Now.Time()
	w := NewCluster(o)
	w.Restart(im.Store(cluster.Options{}))
	var changed []cluster.Event
	for _, e := range im.Events {
		switch e := e.(type) {
		case cluster.NodeState:
			w.nodes[e.Name] = &nodeState{state: e, pods: map[string]*pod{}}
		case cluster.GangState:
			g := &gangState{Gang: Gang{Name: e.Key.Name, Queue: e.Queue, Priority: e.Priority, Fixed: !e.Preemptible, Duration: lasts(&e)}, state: e, adopted: true}
			m := im.Memory.Gang(e.Key) // what its object will say later
			g.state.LastStart, g.state.LastEviction = cluster.Latest(e.LastStart, m.Started), cluster.Latest(e.LastEviction, m.Evicted)
			w.gangs[e.Key] = g
		}
	}
	loose := &gangState{loose: true}
	for _, e := range im.Events {
		st, ok := e.(cluster.PodState)
		if !ok {
			continue
		}
		p := &pod{gang: w.gangs[st.Gang], state: st, first: st.UID}
		if p.gang == nil || !st.Ours {
			p.gang = loose
		}
		for _, q := range st.Requests {
			if q.Name == "gpu" {
				p.gpu += q.Value
			}
		}
		p.gpu += st.Spec.Share.Charge(0)
		w.pods[st.UID] = p
		if n := w.nodes[st.NodeName]; n != nil && st.Phase.Holds() {
			n.pods[st.UID] = p
		}
		if p.gang != loose {
			p.index = len(p.gang.pods)
			p.gang.pods = append(p.gang.pods, p)
		}
		switch {
		case st.Phase.Active():
			p.state.Phase = cluster.Running
			if st.Phase != cluster.Running {
				changed = append(changed, p.state)
			}
			p.gang.active++
			w.held[p.gang.Queue] += p.gpu
		case st.Phase == cluster.Releasing || st.Phase == cluster.StuckReleasing:
			w.at(cluster.Latest(w.now, st.DeletedAt), func() {
				if w.pods[st.UID] == p {
					w.leave(p)
				}
			})
		}
	}
	w.Store.Apply(changed...)
	for _, e := range im.Events { // in the image's order: one image, one cluster
		if st, ok := e.(cluster.GangState); ok {
			if g := w.gangs[st.Key]; g.active > 0 && g.enough() {
				g.whole = true
				w.works(g, g.since(w.now))
			}
		}
	}
	return w
}

// since is when a gang that has its minimum got it, as far as is known, and not later than now.
func (g *gangState) since(now cluster.Instant) cluster.Instant {
	at := g.state.LastStart
	if at.IsZero() {
		at = g.state.Created
	}
	return cluster.Earliest(at, now)
}

// leave removes a pod that was going when its image was taken.
func (w *Cluster) leave(p *pod) {
	if p.gang.loose || !p.state.Recreated && !p.state.Returning {
		w.remove(p, w.now)
		return
	}
	w.gone(p)
}

// again lets the owner of an adopted pod make it anew, with a UID that never was.
func (w *Cluster) again(p *pod) {
	p.state.UID = p.first + "#" + strconv.Itoa(p.lives)
	p.state.Phase, p.state.NodeName, p.state.Nominated, p.state.Groups, p.state.Zones, p.state.Allocations = cluster.Pending, "", "", nil, nil, nil
	p.state.DeletedAt, p.state.Returning, p.state.Charged, p.state.InOtherShard, p.state.Created = cluster.Instant{}, false, cluster.Charged{}, "", w.now
	w.pods[p.state.UID] = p
	w.Store.Apply(p.state)
}

// Satisfied says whether members give a tree of sets its minimum: a leaf has so many of them, an inner set so many children that are
// satisfied. Members are counted by the name of the set that they ask for, "" for the default one: those that have room, and those that
// ended well.
func Satisfied(sets []cluster.Set, members map[string]int32) bool {
	if len(sets) == 0 {
		return false
	}
	counts, pods := make([]int32, len(sets)), make([]int32, len(sets))
	for i := len(sets) - 1; i > 0; i-- { // children come after their parents
		if sets[i].Leaf {
			counts[i] = members[sets[i].Name]
			if sets[i].Name == cluster.DefaultSet {
				counts[i] += members[""]
			}
		}
		parent := sets[i].Parent
		if parent < 0 || int(parent) >= i {
			continue
		}
		if counts[i] >= sets[i].Min && pods[i] >= sets[i].Pods {
			counts[parent]++
		}
		if sets[i].Leaf {
			pods[parent] += counts[i]
		}
	}
	return counts[0] >= sets[0].Min && pods[0] >= sets[0].Pods
}

// members counts the pods that count towards the minimum, by set.
func (g *gangState) members() map[string]int32 {
	counts := map[string]int32{}
	for _, p := range g.pods {
		if p.state.Phase.Active() || p.state.Phase == cluster.Succeeded {
			counts[p.state.SetName]++
		}
	}
	return counts
}
