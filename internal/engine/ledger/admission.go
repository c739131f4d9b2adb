package ledger

import (
	"slices"

	"github.com/muster-scheduler/muster/internal/cluster"
)

// Claims is what gangs lay claim to, beside what they hold.
type Claims struct {
	// Inqueue is what those that are admitted may still take to have their minimums: all of it, while they have not started.
	Inqueue cluster.Resources
	// Elastic is what gangs hold beyond what their minimums ask for; one that does not say what these ask for has nothing beyond.
	Elastic cluster.Resources
}

// admissions is who is admitted, of the gangs that have to be, and what they lay claim to.
type admissions struct {
	faces  []string                // whose gangs have to be
	is     map[cluster.GangID]bool // of these, those that are: they have started, or were admitted
	held   map[*cluster.Class]bool // whether a node could hold a pod of the class, if it were empty
	all    Claims
	queues []Claims // by queue ID: of the subtree
	now    []cluster.Key
	over   []cluster.Key
}

// OpenAdmission says that gangs of these faces have to be admitted, and adds up what those lay claim to that are: O(gangs of the faces and their pods). The ledger
// follows by then.
//
// A gang has started when as many of its pods as its minimum have a place, or have ended; until then it is admitted if that was remembered. One that has started and
// falls below its minimum has to be admitted anew. An admitted gang claims what its minimum asks for, less what its gated pods do, and nothing while no node could hold
// the pods that its minimum takes; a started one with its minimum what it lacks of that.
func (l *Ledger) OpenAdmission(faces []string) {
	l.admissions = admissions{faces: faces, is: map[cluster.GangID]bool{}, held: map[*cluster.Class]bool{}, queues: make([]Claims, l.MaxQueueID())}
	a := &l.admissions
	l.snap.EachGang(func(gang *cluster.Gang) {
		if !slices.Contains(faces, gang.Key.Face) || gang.Key.Remnant() {
			return
		}
		least, holds := gang.MinPods(), l.chargeOfGang(gang)
		if minimum, said := gang.Minimum(); said && holds != nil {
			l.claim(l.LeafOf(gang), beyond(holds, minimum), true)
		}
		switch {
		case l.placed(gang) >= max(1, least):
			a.is[gang.ID] = true
			if gang.Admitted {
				a.over = append(a.over, gang.Key)
			}
			if int(gang.ActivePods) >= least {
				l.claim(l.LeafOf(gang), beyond(l.Asks(gang), holds), false)
			}
		case gang.Admitted:
			a.is[gang.ID] = true
			l.claim(l.LeafOf(gang), l.Asks(gang), false)
		}
	})
}

// placed is how many pods of a gang have a place, or have ended.
func (l *Ledger) placed(gang *cluster.Gang) (n int) {
	for _, id := range gang.Pods {
		if p := l.snap.Pod(id); p.Ours && (p.Phase.Holds() || p.Phase == cluster.Succeeded || p.Phase == cluster.Failed) {
			n++
		}
	}
	return n
}

// chargeOfGang is what the queue of a gang is charged for its pods; nil if none holds room.
func (l *Ledger) chargeOfGang(gang *cluster.Gang) (holds cluster.Resources) {
	if gang.ActivePods == 0 {
		return nil
	}
	for _, id := range gang.Pods {
		if p := l.snap.Pod(id); p.Ours && p.Phase.Active() {
			holds.AddCapped(p.Charge)
		}
	}
	return holds
}

// beyond is what a has more than b, dimension by dimension.
func beyond(a, b cluster.Resources) cluster.Resources {
	out := a.Clone()
	for d := range out {
		out[d] = max(0, out[d]-b.At(d))
	}
	return out
}

// Asks is what the minimum of a gang asks for to be admitted: what it says, less what its gated pods ask for; nothing where it says nothing, or no node could hold the
// pods that its minimum takes. Of slots for pods it asks for none.
func (l *Ledger) Asks(gang *cluster.Gang) cluster.Resources {
	least, said := gang.Minimum()
	if !said || !l.holdable(gang) {
		return nil
	}
	out := least.Clone()
	if gang.GatedPods > 0 {
		for _, id := range gang.Pods {
			if p := l.snap.Pod(id); p.Ours && p.Phase == cluster.Gated {
				out = beyond(out, p.Class.Requests)
			}
		}
	}
	if len(out) > cluster.Slots {
		out[cluster.Slots] = 0
	}
	return out
}

// holdable says whether nodes could hold the pods that the minimum of a gang takes, each for itself, if they were empty: as far as these exist.
func (l *Ledger) holdable(gang *cluster.Gang) bool {
	if !slices.ContainsFunc(gang.Pods, func(id cluster.PodID) bool { return l.unfit(l.snap.Pod(id)) }) {
		return true
	}
	g := l.Gang(gang.ID)
	for i := range g.sets {
		g.sets[i].unfit = 0
	}
	for _, id := range gang.Pods {
		if p := l.snap.Pod(id); l.unfit(p) {
			g.sets[g.leaf(p)].unfit++
		}
	}
	return !g.Ready() || g.reaches(0, func(st *setState) int32 { return st.alive - st.unfit })
}

// unfit says whether a pod waits that is larger than any node.
func (l *Ledger) unfit(p *cluster.Pod) bool {
	if !p.Ours || p.Phase != cluster.Pending {
		return false
	}
	fits, known := l.admissions.held[p.Class]
	if !known {
		fits = slices.ContainsFunc(l.snap.NodeOrder, func(id cluster.NodeID) bool { return p.Class.Requests.Fits(l.snap.Node(id).Allocatable) })
		l.admissions.held[p.Class] = fits
	}
	return !fits
}

// claim adds to what is claimed of a leaf, of the queues above it, and in all.
func (l *Ledger) claim(leaf *QueueLedger, r cluster.Resources, elastic bool) {
	to := func(c *Claims) {
		if elastic {
			c.Elastic.AddCapped(r)
		} else {
			c.Inqueue.AddCapped(r)
		}
	}
	to(&l.admissions.all)
	for q := leaf; q != nil; q = q.Parent {
		to(&l.admissions.queues[q.ID])
	}
}

// Claimed is what is claimed of a queue and those below it, or of the cluster for nil, as the session stands. It must not be written to.
func (l *Ledger) Claimed(q *QueueLedger) Claims {
	switch {
	case q == nil:
		return l.admissions.all
	case int(q.ID) < len(l.admissions.queues):
		return l.admissions.queues[q.ID]
	}
	return Claims{}
}

// Admitted says whether a gang need not be admitted any more: it is, it has started, or it never has to.
func (l *Ledger) Admitted(g *GangState) bool {
	return !slices.Contains(l.admissions.faces, g.Key.Face) || g.Key.Remnant() || l.admissions.is[g.ID]
}

// Admit admits a gang that has to be, for what it asks for.
func (l *Ledger) Admit(g *GangState, asks cluster.Resources) {
	l.admissions.is[g.ID] = true
	l.admissions.now = append(l.admissions.now, g.Key)
	l.claim(g.Leaf, asks, false)
}

// Admissions returns who was admitted in this run, and who had been and has started since.
func (l *Ledger) Admissions() (now, over []cluster.Key) { return l.admissions.now, l.admissions.over }
