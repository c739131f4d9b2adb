package dynamicresources

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine/policy"
)

// features are all that the allocator can do, but for what is alpha in Kubernetes 1.37: pools whose devices have compatibility groups are
// incomplete to it, devices that skip calls on the node are not given away, and claims with derived attributes are refused. What a cluster
// has switched off cannot be written into its objects.
func features() structured.Features {
	return structured.Features{
		AdminAccess: true, ConsumableCapacity: true, DeviceBindingAndStatus: true, DeviceTaints: true, FractionalCapacityRange: true,
		ListTypeAttributes: true, PartitionableDevices: true, PrioritizedList: true,
	}
}

// side is which devices an allocation may choose.
type side uint8

const (
	later side = iota // those that are free once all that is being released has gone
	now               // those that are free now, and not promised either
	sides
)

// claimLedger is what is taken, in one run. Every operation pushes what it changed, and its undo pops it, so that the ledger is
// then what it was.
type claimLedger struct {
	snap    *cluster.Snapshot
	catalog *catalog
	cache   *cel.Cache

	claims map[string]*claim // by object key; synthetic ones by pod
	used   [sides]*usage

	clock   uint64 // grows with every change
	changed map[string]uint64
	global  uint64 // when devices that several nodes can use last changed
	made    map[poolKey]int

	step     func() // counts one step of a search
	memo     map[question]answer
	answers  map[asked]answer  // of this run, by sort of node
	named    map[denied]answer // those that name who asked
	census   map[censusKey]*census
	log      []string // every node whose devices have changed hands, in order; "" for many
	refused  map[asker]refusal
	verdicts map[policy.Verdict]int32
	compiled map[*wish]bool
	asking   asking
	free     map[place]*free
	accounts

	nodes map[cluster.NodeID]site
	steps []step
	given map[cluster.PodID][]cluster.ClaimAllocation // what placements of this run chose, for pods that are placed
	last  map[choice][]cluster.ClaimAllocation        // what was chosen when the pod was on the node last, to be chosen again
}

// claim is a resource claim in the session.
type claim struct {
	object *resourceapi.ResourceClaim // nil for one that the binder will make
	state
}

// state is what operations change of a claim.
type state struct {
	held  *resourceapi.AllocationResult // what it takes now; nil for nothing
	kept  *resourceapi.AllocationResult // what it takes once all that is being released has gone
	users int32                         // pods that use it and stay
}

// step is what one operation did.
type step struct {
	changes []change
	pod     cluster.PodID
	given   []cluster.ClaimAllocation // what was in given before
}

type change struct {
	claim  *claim
	before state
}

// asker is a class of pods; queue is "" for what holds for all of them, wherever they are.
type asker struct {
	class uint64
	queue string
}

// question is what a class asks of a node; answer is what the allocator said.
type question struct {
	asker
	node cluster.NodeID
	side side
}

type answer struct {
	node, global uint64 // what the ledger's clocks said
	results      []resourceapi.AllocationResult
	verdict      policy.Verdict
	cost         int  // steps that the allocator took
	devices      int  // that it looked at
	compiled     bool // expressions had to be
	hurried      bool // it would have taken more, and was allowed fewer than patience
}

type choice struct {
	pod  cluster.PodID
	node cluster.NodeID
}

// newLedger costs one look at each claim and each pod.
func newLedger(view *policy.View, c *catalog, cache *cel.Cache) *claimLedger {
	l := readLedger(view.Snapshot(), c, cache, view.Step)
	view.EachHold(func(h *cluster.Hold, open bool) {
		if !open {
			l.promise(h, 1)
		}
	})
	return l
}

// readLedger is newLedger without what is promised.
func readLedger(snap *cluster.Snapshot, c *catalog, cache *cel.Cache, step func()) *claimLedger {
	l := &claimLedger{
		snap: snap, catalog: c, cache: cache, claims: map[string]*claim{}, used: [sides]*usage{newUsage(), newUsage()},
		changed: map[string]uint64{}, made: map[poolKey]int{}, step: step, memo: map[question]answer{}, nodes: map[cluster.NodeID]site{},
		answers: map[asked]answer{}, named: map[denied]answer{}, census: map[censusKey]*census{}, refused: map[asker]refusal{}, verdicts: map[policy.Verdict]int32{},
		given: map[cluster.PodID][]cluster.ClaimAllocation{}, last: map[choice][]cluster.ClaimAllocation{},
		compiled: map[*wish]bool{}, free: map[place]*free{}, accounts: accounts{spent: map[string]int{}, queues: map[string]bool{}},
	}
	for key, o := range snap.Objects(cluster.ResourceClaims) { // order: each claim on its own
		if object, ok := o.(*resourceapi.ResourceClaim); ok {
			l.claims[key] = &claim{object: object, state: state{held: object.Status.Allocation}}
		}
	}
	seen := map[string]bool{}    // UIDs of pods that are known
	leaving := map[*claim]bool{} // claims that somebody uses who goes
	snap.EachPod(func(p *cluster.Pod) {
		if len(p.DeviceClaims) == 0 {
			return
		}
		seen[p.UID] = true
		if queue := l.queueOf(p); p.Phase == cluster.Pending && !l.queues[queue] && snap.QueueByName(queue) != nil {
			l.queues[queue] = true // a name that anybody writes has no part
		}
		if !p.Phase.Holds() {
			return
		}
		for k := range p.Class.Devices {
			c := l.claimOf(p, k)
			if c == nil {
				continue
			}
			c.underWay(p, k)
			if p.Phase == cluster.Releasing {
				leaving[c] = true
			} else {
				c.users++
			}
		}
	})
	for _, c := range l.claims { // order: sums
		if c.object != nil {
			for k := range c.object.Status.ReservedFor {
				if uid := string(c.object.Status.ReservedFor[k].UID); !seen[uid] {
					c.users++
				}
			}
		}
		if c.users > 0 || !leaving[c] {
			c.kept = c.held
		}
		l.take(c.state, 1)
	}
	return l
}

// full says whether no further pod can be written among the claim's users.
func (c *claim) full(uid string) bool {
	if c.users >= resourceapi.ResourceClaimReservedForMaxSize {
		return true
	}
	return c.object != nil && len(c.object.Status.ReservedFor) >= resourceapi.ResourceClaimReservedForMaxSize &&
		!slices.ContainsFunc(c.object.Status.ReservedFor, func(r resourceapi.ResourceClaimConsumerReference) bool { return string(r.UID) == uid })
}

// underWay has the claim take what a decision on its way gives it as the pod's k-th, unless it has got something already.
func (c *claim) underWay(p *cluster.Pod, k int) {
	for i := range p.Allocations {
		if c.held == nil && p.Allocations[i].Name == p.DeviceClaims[k].Name {
			c.held = p.Allocations[i].Allocation
		}
	}
}

// claimOf returns what stands for the pod's k-th need; nil while there is no claim.
func (l *claimLedger) claimOf(p *cluster.Pod, k int) *claim {
	if k >= len(p.DeviceClaims) {
		return nil
	}
	key := p.DeviceClaims[k].Object
	if p.Class.Devices[k].Extended && l.claims[key] == nil { // not made yet
		key = "pod/" + p.UID
		if l.claims[key] == nil {
			l.claims[key] = extended(p, &p.Class.Devices[k])
		}
	}
	return l.claims[key]
}

// needed says whether a need is one on the node: extended resources that a device plugin offers there are none.
func needed(need *cluster.DeviceNeed, n *cluster.Node) bool {
	return !need.Extended || slices.ContainsFunc(need.Resources, func(r string) bool { return slices.Contains(n.ByClaim, r) })
}

// on returns the claim as the node has to satisfy it: of extended resources, those that are given as devices there.
func (c *claim) on(resources, byClaim []string) *resourceapi.ResourceClaim {
	plugin := func(r string) bool { return !slices.Contains(byClaim, r) }
	if !slices.ContainsFunc(resources, plugin) {
		return c.object
	}
	part := *c.object
	part.Spec.Devices.Requests = nil
	for i, r := range resources {
		if !plugin(r) {
			part.Spec.Devices.Requests = append(part.Spec.Devices.Requests, c.object.Spec.Devices.Requests[i])
		}
	}
	return &part
}

// check says whether the pod's claims can be had on a node.
func (l *claimLedger) check(p *cluster.Pod, n *cluster.Node, s side) policy.Verdict {
	open, v := l.open(p, n, s)
	if !v.Yes() || len(open) == 0 {
		return v
	}
	return l.solve(p, n, open, s).verdict
}

// open returns which of the pod's needs have no devices yet, or why those that have them cannot be used on the node.
func (l *claimLedger) open(p *cluster.Pod, n *cluster.Node, s side) ([]int, policy.Verdict) {
	var open []int
	for k := range p.Class.Devices {
		if !needed(&p.Class.Devices[k], n) {
			continue
		}
		c := l.claimOf(p, k)
		if c == nil {
			return nil, policy.Verdict{Code: policy.No, Reason: ReasonClaimMissing, Object: p.Class.Devices[k].Shared}
		}
		name := p.Class.Devices[k].Shared
		switch {
		case c.full(p.UID):
			return nil, policy.Verdict{Code: policy.No, Reason: ReasonClaimFull, Object: name, Have: resourceapi.ResourceClaimReservedForMaxSize}
		case c.object != nil && c.object.DeletionTimestamp != nil:
			return nil, policy.Verdict{Code: policy.No, Reason: ReasonClaimMissing, Object: name, Detail: "it is being deleted"}
		case c.kept == nil && c.held != nil && p.Node == n.ID: // back to where it was, with the devices it had
			if s == later && l.stillFree(c.held) {
				continue
			}
			return nil, policy.Verdict{Code: policy.No, Reason: ReasonDevicesTaken}
		case c.kept == nil:
			open = append(open, k)
			continue
		case s == now && c.held == nil: // somebody else waits for its devices
			return nil, policy.Verdict{Code: policy.No, Reason: ReasonDevicesTaken}
		}
		if reaches, err := reachable(c.kept.NodeSelector, l.node(n)); err != nil || !reaches {
			return nil, policy.Verdict{Code: policy.No, Reason: ReasonClaimElsewhere, Object: name}
		}
	}
	return open, policy.Verdict{}
}

// reachable says whether the devices of an allocation can be used on a node.
func reachable(selector *v1.NodeSelector, at site) (bool, error) {
	if selector == nil {
		return true, nil
	}
	s, err := nodeaffinity.NewNodeSelector(selector)
	if err != nil {
		return false, err
	}
	return s.Match(at.Node), nil
}

func (l *claimLedger) node(n *cluster.Node) site {
	at, ok := l.nodes[n.ID]
	if !ok {
		at = newSite(n.Name, n.Labels)
		l.nodes[n.ID] = at
	}
	return at
}

// solve asks the allocator, or remembers what it said: pods of a class ask for the same.
func (l *claimLedger) solve(p *cluster.Pod, n *cluster.Node, open []int, s side) answer {
	whole := len(open) == len(p.Class.Devices)
	if whole {
		if a, ok := l.asking.same(l, p, n, s); ok {
			return a
		}
		for _, queue := range [...]string{"", l.queueOf(p)} {
			if a, ok := l.memo[question{asker{p.Class.ID, queue}, n.ID, s}]; ok && l.stands(a, n) {
				return a
			}
		}
	}
	var like asked
	var w *wish
	a, known := answer{}, false
	if whole {
		w = l.catalog.wishOf(p.Class, l.cache)
		if l.hopeless(w, n.Name) {
			return answer{verdict: taken()}
		}
		key := l.catalog.seen(w)
		if like = (asked{w.id, l.censusOf(key, s).of[n.ID], ""}); like.sort != 0 {
			if a, known = l.recall(p, like); known && !a.verdict.Yes() {
				l.asking.keep(l, p, key, s, like.sort, a)
			}
		}
	}
	if b, ok := l.memo[question{asker{p.Class.ID, ""}, n.ID, 1 - s}]; known && a.verdict.Yes() && ok && b.verdict.Yes() && l.stands(b, n) &&
		l.censusOf(l.catalog.seen(w), 1-s).of[n.ID] == like.sort {
		a = b // the same is taken on both sides
	} else if !known || a.verdict.Yes() {
		scarce := false
		if whole && !known {
			a, scarce = l.scarce(w, n, s)
		}
		if !scarce {
			a = l.allocate(p, n, open, s)
		}
		l.spend(p, a)
		if !known && like.sort != 0 {
			l.learn(p, like, a, n.Name)
		}
	}
	a.node, a.global = l.changed[n.Name], l.global
	if whole && (a.verdict.Yes() || like.sort == 0) { // a no is kept for the sort
		l.memo[question{asker{p.Class.ID, l.whose(p, a)}, n.ID, s}] = a
	}
	return a
}

// stands says whether nothing has changed on the node since an answer was given.
func (l *claimLedger) stands(a answer, n *cluster.Node) bool {
	return a.node == l.changed[n.Name] && a.global == l.global
}

// allocate asks for a straight way first, then whether there is none for certain, and only then for any way.
func (l *claimLedger) allocate(p *cluster.Pod, n *cluster.Node, open []int, s side) answer {
	w, allowed := l.catalog.wishOf(p.Class, l.cache), l.allowed(l.queueOf(p))
	straight := w.straight()
	if straight == 0 || len(open) < len(p.Class.Devices) {
		straight = allowed
	}
	a := l.consult(p, n, open, s, min(straight, allowed))
	if before := a.cost + stepsToMatch; a.verdict.Partial && before < allowed {
		if l.unmatched(w, n, s) {
			a = answer{verdict: taken(), devices: a.devices, compiled: true}
		} else {
			a = l.consult(p, n, open, s, allowed-before)
		}
		a.cost += before
	}
	if a.verdict.Partial {
		a.cost, a.hurried = allowed, allowed < patience
	}
	return a
}

// consult runs the structured allocator, for so many steps.
func (l *claimLedger) consult(p *cluster.Pod, n *cluster.Node, open []int, s side, steps int) answer {
	out := answer{verdict: policy.Verdict{Code: policy.No, Reason: ReasonDevicesTaken}}
	published := l.catalog.on(n.Name)
	if len(published) == 0 {
		out.verdict.Reason = ReasonDevicesNone
		return out
	}
	for _, slice := range published {
		out.devices += len(slice.Spec.Devices)
	}
	out.compiled = out.devices > 0
	objects := make([]*resourceapi.ResourceClaim, len(open))
	for i, k := range open {
		objects[i] = l.claimOf(p, k).on(p.Class.Devices[k].Resources, n.ByClaim)
	}
	ctx := &bounded{Context: context.Background(), left: steps}
	a, err := structured.NewAllocator(ctx, features(), l.used[s].state, l.catalog.classes, published, l.cache)
	if err == nil {
		out.results, err = a.Allocate(ctx, l.node(n).Node, objects)
	}
	switch out.cost = steps - ctx.left; {
	case ctx.left <= 0:
		out.results, out.verdict.Partial = nil, true
	case errors.Is(err, structured.ErrFailedAllocationOnNode):
		out.verdict.Detail = oneLine(err)
	case err != nil:
		out.verdict.Reason, out.verdict.Object, out.verdict.Detail = ReasonClaimBroken, p.Namespace+"/"+objects[0].Name, ofAnyDevice(oneLine(err))
	case len(out.results) == len(objects):
		out.verdict = policy.Verdict{}
	}
	return out
}

// oneLine is an error's text as a part of a sentence: compilers draw over several lines.
func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }

// ofAnyDevice leaves out of an expression's error on which device it came up: nodes that are alike say the same, and are asked once.
func ofAnyDevice(text string) string {
	if before, rest, named := strings.Cut(text, " on device "); named {
		if _, after, ok := strings.Cut(rest, ": "); ok {
			return before + ": " + after
		}
	}
	return text
}

// stillFree says whether devices that were given back can be had again as they were. Of a pool whose devices share
// something it is enough that nobody has got anything since.
func (l *claimLedger) stillFree(a *resourceapi.AllocationResult) bool {
	for i := range a.Devices.Results {
		r := &a.Devices.Results[i]
		key := poolKey{r.Driver, r.Pool}
		if p := l.catalog.pools[key]; (r.ShareID != nil || p != nil && p.counters) && l.made[key] > 0 {
			return false
		}
	}
	return l.used[later].free(a)
}

// shareName makes the ID of a share of a device: equal decisions give equal IDs, and no two shares have the same.
func shareName(uid string, need, result int, device string) string {
	return fingerprint(uid + "/" + strconv.Itoa(need) + "/" + strconv.Itoa(result) + "/" + device)
}
