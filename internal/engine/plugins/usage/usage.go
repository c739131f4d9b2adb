package usage

import (
	"fmt"
	"math/bits"
	"strconv"
	"time"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine/ledger"
	"github.com/muster-scheduler/muster/internal/engine/policy"
)

// Window is the time over which what is measured is a mean, and Fresh how long a measurement counts.
const (
	Window = 10 * time.Minute
	Fresh  = 5 * time.Minute
)

// Factory declares the plugin.
var Factory = policy.Makes(build, ReasonNodeBusy)

func build(args policy.Arguments) (func(*policy.View) *instance, []string, error) {
	s, unknown, err := parse(args)
	if err != nil {
		return nil, nil, err
	}
	return func(v *policy.View) *instance {
		return &instance{view: v, settings: s, placed: map[cluster.NodeID][2]int64{}}
	}, unknown, nil
}

type instance struct {
	view *policy.View
	*settings
	found  *measured
	placed map[cluster.NodeID][2]int64 // what pods are expected to use that this run places
}

// measured is what is known of nodes, made once in a run: O(nodes and their pods).
type measured struct {
	nodes []use    // by node ID
	busy  []uint64 // as bits by node ID
	many  int
	why   *policy.Verdict // of all that are busy, if it is one
}

// use is what is known of one node; pairs are of CPU and memory.
type use struct {
	known    bool
	real     [2]int64 // in millionths
	expected [2]int64 // of pods that the measurement does not tell of, in units of the dimension
	has      [2]int64
}

func (i *instance) nodes() *measured {
	if i.found != nil {
		return i.found
	}
	snap := i.view.Snapshot()
	m := &measured{nodes: make([]use, snap.MaxNodeID()), busy: make([]uint64, (snap.MaxNodeID()+63)/64)}
	i.found = m
	for _, id := range snap.NodeOrder {
		n := snap.Node(id)
		was := counting(snap, n)
		if was == nil {
			continue
		}
		m.nodes[id] = i.look(n, was)
		v := i.judge(&m.nodes[id])
		if v.Yes() {
			continue
		}
		m.busy[id>>6] |= 1 << (id & 63)
		if m.many == 0 {
			m.why = &v
		} else if m.why != nil && *m.why != v {
			m.why = nil
		}
		m.many++
	}
	return m
}

// counting is what was measured of a node and counts; nil for nothing.
func counting(snap *cluster.Snapshot, n *cluster.Node) *cluster.NodeUse {
	was, told := snap.Object(cluster.NodeUses, n.Name).(*cluster.NodeUse)
	if !told || was.At.After(snap.Now.Add(Fresh)) || !was.At.Add(Fresh).After(snap.Now) {
		return nil
	}
	return was
}

// look puts together what is known of a node.
func (i *instance) look(n *cluster.Node, was *cluster.NodeUse) use {
	snap, u := i.view.Snapshot(), use{known: true}
	u.real = [2]int64{percent(was.CPU), percent(was.Memory)}
	u.has = [2]int64{n.Allocatable.At(cluster.CPU), n.Allocatable.At(cluster.RAM)}
	for _, pod := range n.Pods {
		p := snap.Pod(pod)
		since := p.Held
		if since.IsZero() { // it was there before us, and came at some time after it was made
			since = p.Created
		}
		rest := one - int64(min(max(was.At.Sub(since), 0), Window)/(Window/one))
		if rest == 0 {
			continue
		}
		of := i.expect(p.Class)
		for d := range of {
			u.expected[d] += times(of[d], rest, one)
		}
	}
	return u
}

// percent is a measurement in millionths.
func percent(n int64) int64 { return min(max(n, 0), 100) * (one / 100) }

// expect is what a pod of the class is expected to use, whatever is around it.
func (i *instance) expect(c *cluster.Class) [2]int64 {
	cpu, memory := c.Requests.At(cluster.CPU), c.Requests.At(cluster.RAM)
	if cpu <= 0 && memory <= 0 {
		return i.bestEffort
	}
	return [2]int64{times(max(0, cpu), i.ratio, one), times(max(0, memory), i.ratio, one)}
}

// times is x·y ÷ z, none of which is negative and z not 0, cut to the unit below, at most [cluster.MaxQuantity].
func times(x, y, z int64) int64 {
	hi, lo := bits.Mul64(uint64(x), uint64(y))
	if hi >= uint64(z) {
		return cluster.MaxQuantity
	}
	q, _ := bits.Div64(hi, lo, uint64(z))
	return int64(min(q, cluster.MaxQuantity))
}

// judge says whether a node that was measured may get pods.
func (i *instance) judge(u *use) policy.Verdict {
	for d, name := range [2]string{"CPU is above %s %% (thresholds.cpu)", "memory is above %s %% (thresholds.mem)"} {
		if u.real[d] > i.threshold[d] {
			limit := strconv.FormatFloat(float64(i.threshold[d])*100/one, 'f', -1, 64)
			return policy.Verdict{Code: policy.No, Reason: ReasonNodeBusy, Detail: fmt.Sprintf(name, limit)}
		}
	}
	return policy.Verdict{}
}

// Wants implements policy.NodeFilter.
func (i *instance) Wants(*cluster.Class) bool { return i.nodes().many > 0 }

// CheckNode implements policy.NodeFilter.
func (i *instance) CheckNode(_ *cluster.Pod, n *cluster.Node) policy.Verdict {
	if u := &i.nodes().nodes[n.ID]; u.known {
		return i.judge(u)
	}
	return policy.Verdict{}
}

// CheckStay implements policy.NodeStay: who is on a node that is busy is part of why it is.
func (*instance) CheckStay(*cluster.Pod, *cluster.Node) bool { return true }

// Refuses implements policy.NodeRefusals.
func (i *instance) Refuses(*cluster.Pod) ([]uint64, *policy.Verdict) {
	m := i.nodes()
	return m.busy, m.why
}

// RefusesAll implements policy.NodeRefusals: what was measured stands whoever goes.
func (i *instance) RefusesAll(*cluster.Pod) bool {
	return i.nodes().many == len(i.view.Snapshot().NodeOrder)
}

// ScoreNode implements policy.NodeScore.
func (i *instance) ScoreNode(_ *cluster.Class, n *cluster.Node) int64 {
	u := &i.nodes().nodes[n.ID]
	weights := i.weight[0] + i.weight[1]
	if !u.known || weights == 0 {
		return 0
	}
	placed, spare := i.placed[n.ID], int64(0)
	for d := range u.real {
		spare += i.weight[d] * (one - i.used(u, placed[d], d))
	}
	return i.all * times(100*policy.ScorePoint, spare, weights*one)
}

// used is U of one dimension of a node, in millionths.
func (i *instance) used(u *use, placed int64, d int) int64 {
	part := int64(one) // of nothing
	if expected := max(0, u.expected[d]+placed); expected == 0 {
		part = 0
	} else if u.has[d] > 0 {
		part = times(expected, one, u.has[d])
	}
	if u.real[d]+part > i.riskFrom {
		part = times(part, i.riskBy, one)
	}
	return min(one, u.real[d]+part)
}

// Done implements policy.Observer.
func (i *instance) Done(op ledger.Op) { i.counted(op, 1) }

// Undone implements policy.Observer.
func (i *instance) Undone(op ledger.Op) { i.counted(op, -1) }

// counted counts pods that come to a node; who is to go uses it until he is gone.
func (i *instance) counted(op ledger.Op, by int64) {
	switch op.Verb {
	case ledger.Bind, ledger.Nominate, ledger.Move:
		of, sum := i.expect(op.Pod.Class), i.placed[op.Node]
		i.placed[op.Node] = [2]int64{sum[0] + by*of[0], sum[1] + by*of[1]}
	}
}

// NextChange implements policy.Timetable: when the next measurement counts no more. O(nodes).
func (i *instance) NextChange() cluster.Instant {
	next, snap := cluster.Forever, i.view.Snapshot()
	for _, id := range snap.NodeOrder {
		if was := counting(snap, snap.Node(id)); was != nil {
			next = cluster.Earliest(next, was.At.Add(Fresh))
		}
	}
	return next
}
