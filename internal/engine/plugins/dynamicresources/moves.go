package dynamicresources

import (
	"encoding/json"
	"fmt"
	"hash/fnv"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine/ledger"
)

// do takes an operation into the ledger.
func (l *claimLedger) do(op ledger.Op) {
	p := op.Pod
	st := step{pod: p.ID, given: l.given[p.ID]}
	for k := range p.Class.Devices {
		if c := l.claimOf(p, k); c != nil {
			st.changes = append(st.changes, change{c, c.state})
		}
	}
	l.steps = append(l.steps, st)
	switch op.Verb {
	case ledger.Evict:
		for _, ch := range st.changes {
			next := ch.before
			if next.users = max(0, next.users-1); next.users == 0 {
				next.kept = nil
			}
			l.set(ch.claim, next)
		}
		delete(l.given, p.ID)
	case ledger.Spare:
		for _, ch := range st.changes {
			next := ch.before
			next.users++
			if next.kept == nil {
				next.kept = next.held
			}
			l.set(ch.claim, next)
		}
	default:
		l.place(op)
	}
}

// place gives a pod that comes the devices it lacks.
func (l *claimLedger) place(op ledger.Op) {
	p, n, s := op.Pod, l.snap.Node(op.Node), later
	if op.Verb == ledger.Bind {
		s = now
	}
	var lacks []int
	for k := range p.Class.Devices {
		if c := l.claimOf(p, k); c != nil && c.kept == nil && needed(&p.Class.Devices[k], n) {
			lacks = append(lacks, k)
		}
	}
	given := l.choose(p, n, lacks, s)
	for k := range p.Class.Devices {
		c := l.claimOf(p, k)
		if c == nil {
			continue
		}
		next := c.state
		next.users++
		if next.kept == nil {
			for i := range given {
				if given[i].DeviceClaim == p.DeviceClaims[k] {
					next.kept = given[i].Allocation
				}
			}
		}
		if s == now && next.held == nil {
			next.held = next.kept
		}
		l.set(c, next)
	}
	if s == now { // what others chose for a claim in this run is written by each of its pods
		for k := range p.Class.Devices {
			c := l.claimOf(p, k)
			if c != nil && c.kept != nil && (c.object == nil || c.object.Status.Allocation == nil) && !named(given, p.DeviceClaims[k]) {
				given = append(given, cluster.ClaimAllocation{DeviceClaim: p.DeviceClaims[k], Allocation: c.kept})
			}
		}
	}
	l.given[p.ID] = given
}

func named(as []cluster.ClaimAllocation, c cluster.DeviceClaim) bool {
	for i := range as {
		if as[i].DeviceClaim == c {
			return true
		}
	}
	return false
}

// choose returns devices for the needs of a pod on a node: those it was given there before, if they are free, so that
// what is undone and done again is what it was.
func (l *claimLedger) choose(p *cluster.Pod, n *cluster.Node, lacks []int, s side) []cluster.ClaimAllocation {
	if len(lacks) == 0 {
		return nil
	}
	if before := l.last[choice{p.ID, n.ID}]; len(before) > 0 && l.again(p, before, lacks, s) {
		return append([]cluster.ClaimAllocation(nil), before...)
	}
	found := l.solve(p, n, lacks, s)
	if !found.verdict.Yes() {
		return nil // who placed it did not ask; without devices it will not be bound
	}
	out := make([]cluster.ClaimAllocation, 0, len(lacks))
	for i, k := range lacks {
		a := found.results[i].DeepCopy()
		for r := range a.Devices.Results {
			if d := &a.Devices.Results[r]; d.ShareID != nil {
				d.ShareID = new(types.UID(shareName(p.UID, k, r, d.Driver+"/"+d.Pool+"/"+d.Device)))
			}
		}
		given := cluster.ClaimAllocation{DeviceClaim: p.DeviceClaims[k], Allocation: a}
		if need := &p.Class.Devices[k]; need.Extended {
			given.Requests = l.claimOf(p, k).on(need.Resources, n.ByClaim).Spec.Devices.Requests
		}
		out = append(out, given)
	}
	l.last[choice{p.ID, n.ID}] = out
	return append([]cluster.ClaimAllocation(nil), out...)
}

// again says whether what was chosen before serves now: for the same needs, and still free.
func (l *claimLedger) again(p *cluster.Pod, before []cluster.ClaimAllocation, lacks []int, s side) bool {
	if len(before) != len(lacks) {
		return false
	}
	for i, k := range lacks {
		a := before[i].Allocation
		if before[i].DeviceClaim != p.DeviceClaims[k] || !l.used[s].free(a) || !l.untouched(a) {
			return false
		}
	}
	return true
}

// untouched says that none of an allocation's devices shares anything with others.
func (l *claimLedger) untouched(a *resourceapi.AllocationResult) bool {
	for i := range a.Devices.Results {
		r := &a.Devices.Results[i]
		if p := l.catalog.pools[poolKey{r.Driver, r.Pool}]; r.ShareID != nil || p == nil || p.counters {
			return false
		}
	}
	return true
}

// undo takes back the last operation.
func (l *claimLedger) undo(ledger.Op) {
	st := l.steps[len(l.steps)-1]
	l.steps = l.steps[:len(l.steps)-1]
	for i := len(st.changes) - 1; i >= 0; i-- {
		l.set(st.changes[i].claim, st.changes[i].before)
	}
	if st.given == nil {
		delete(l.given, st.pod)
	} else {
		l.given[st.pod] = st.given
	}
}

// set moves a claim from one state to another, and the devices with it. What is kept and not held is taken on both
// sides: a promise binds those who place, too.
func (l *claimLedger) set(c *claim, next state) {
	before := c.state
	c.state = next
	if before.held == next.held && before.kept == next.kept {
		return
	}
	l.take(before, -1)
	l.take(next, 1)
	original := (*resourceapi.AllocationResult)(nil)
	if c.object != nil {
		original = c.object.Status.Allocation
	}
	l.count(before.kept, original, -1)
	l.count(next.kept, original, 1)
	for _, a := range [...]*resourceapi.AllocationResult{before.held, before.kept, next.held, next.kept} {
		l.touch(a)
	}
}

// take moves what a claim's state takes, on both sides.
func (l *claimLedger) take(st state, by int) {
	l.used[later].move(st.kept, by)
	l.used[now].move(st.held, by)
	if st.kept != st.held {
		l.used[now].move(st.kept, by)
	}
}

// promise moves the devices that a promise of room is about: who was not promised them does not get them.
func (l *claimLedger) promise(h *cluster.Hold, by int) {
	for i := range h.Claims {
		l.take(state{kept: h.Claims[i].Allocation}, by)
		l.touch(h.Claims[i].Allocation)
	}
}

// count keeps how many allocations that were made in this run there are, by pool.
func (l *claimLedger) count(a, original *resourceapi.AllocationResult, by int) {
	if a == nil || a == original {
		return
	}
	for i := range a.Devices.Results {
		l.made[poolKey{a.Devices.Results[i].Driver, a.Devices.Results[i].Pool}] += by
	}
}

// touch notes where answers may be different now.
func (l *claimLedger) touch(a *resourceapi.AllocationResult) {
	if a == nil {
		return
	}
	l.clock++
	for i := range a.Devices.Results {
		r := &a.Devices.Results[i]
		if node := l.catalog.nodeOfPool(r.Driver, r.Pool); node != "" {
			l.changed[node] = l.clock
			l.log = append(l.log, node)
		} else {
			l.global = l.clock
			l.log = append(l.log, "")
		}
	}
}

// allocations are what the placement of a pod in this run gave its claims, and the API server does not know yet.
func (l *claimLedger) allocations(p *cluster.Pod) []cluster.ClaimAllocation { return l.given[p.ID] }

// extended is the claim that the binder will make for a pod that asks for extended resources.
func extended(p *cluster.Pod, need *cluster.DeviceNeed) *claim {
	c := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name + "-extended-resources", UID: types.UID(p.UID)}}
	if err := json.Unmarshal([]byte(need.Spec), &c.Spec); err != nil {
		c.Spec = resourceapi.ResourceClaimSpec{} // CheckPod says so
	}
	return &claim{object: c}
}

// fingerprint is a UID made of a text.
func fingerprint(text string) string {
	h := fnv.New128a()
	h.Write([]byte(text))
	s := h.Sum(nil)
	return fmt.Sprintf("%x-%x-%x-%x-%x", s[0:4], s[4:6], s[6:8], s[8:10], s[10:16])
}
