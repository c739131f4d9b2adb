// Package dynamicresources places pods that ask for devices by resource claim (Dynamic Resource Allocation): a node
// passes when the upstream structured allocator finds devices there for all claims of the pod that have none yet, among
// those that neither the API server nor a decision on its way nor this run has given away.
//
//	ResourceSlices, DeviceClasses ──► catalog (kept from run to run)
//	ResourceClaims, pods on their way ──► ledger ◄── operations of statements, and their undo
//	                                        │
//	                        NodeFilter, NodeReady, Detailer
//
// The ledger has two sides, like a node's resources: what is taken now, and what will be once all that is being released
// has gone. A nomination may count on the second; a placement must find its devices free on both.
//
// What the allocator answered for a class on a node is kept until something changes there; a no, for all nodes that are alike to
// the claim, from run to run.
package dynamicresources

import (
	"encoding/json"
	"fmt"
	"strconv"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/cel"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine/ledger"
	"github.com/muster-scheduler/muster/internal/engine/policy"
)

// Name is the plugin's name in a profile.
const Name = "dynamicresources"

// maxCELCacheEntries is KAI's argument: how many compiled selectors are kept. KAI's default is 10.
const maxCELCacheEntries = "maxCelCacheEntries"

// leastCELCacheEntries is how many are kept whatever the argument says: a thousand claims that no two say alike are common, and a
// compilation costs a fifth of a millisecond.
const leastCELCacheEntries = 1024

// Factory declares the plugin. Its argument maxCelCacheEntries is a positive number.
var Factory = policy.Makes(build,
	ReasonClaimMissing, ReasonClaimBroken, ReasonClaimElsewhere, ReasonClaimFull, ReasonClaimQueue, ReasonDeviceClassMissing, ReasonDevicesNone,
	ReasonDevicesTaken,
)

func build(args policy.Arguments) (func(*policy.View) *instance, []string, error) {
	size := leastCELCacheEntries
	if text, ok := args[maxCELCacheEntries]; ok {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			return nil, nil, fmt.Errorf("argument %s: %q is not a positive number", maxCELCacheEntries, text)
		}
		size = max(size, n)
	}
	features := cel.Features{EnableConsumableCapacity: true, EnableListTypeAttributes: true}
	return (&plugin{cache: cel.NewCache(size, features)}).open, args.Unknown(maxCELCacheEntries), nil
}

// plugin keeps what is the same from run to run: compiled selectors, and the catalog as long as no slice changes.
type plugin struct {
	cache   *cel.Cache
	catalog *catalog
	memory  memory
}

// instance is one run. It reads the claims when the first pod that has any is looked at.
type instance struct {
	plugin *plugin
	view   *policy.View
	ledger *claimLedger
}

// open opens the plugin for a run.
func (p *plugin) open(v *policy.View) *instance { return &instance{plugin: p, view: v} }

// Wants implements policy.NodeFilter and policy.NodeReady.
func (i *instance) Wants(c *cluster.Class) bool { return len(c.Devices) > 0 }

func (i *instance) claims() *claimLedger {
	if i.ledger == nil {
		snap := i.view.Snapshot()
		if i.plugin.memory.remember(snap); i.plugin.catalog == nil || !i.plugin.catalog.current(snap) || i.plugin.catalog.age != i.plugin.memory.age {
			i.plugin.catalog = newCatalog(snap, &i.plugin.memory)
		}
		i.ledger = newLedger(i.view, i.plugin.catalog, i.plugin.cache)
	}
	return i.ledger
}

// CheckPod implements policy.PodGate: a claim that is not there, or asks for a class that is not there, runs nowhere.
func (i *instance) CheckPod(c *cluster.Class, _ string) policy.Verdict {
	for k := range c.Devices {
		need := &c.Devices[k]
		if need.Missing != "" {
			return policy.Verdict{Code: policy.No, Reason: ReasonClaimMissing, Object: need.Missing}
		}
		var spec resourceapi.ResourceClaimSpec
		if err := json.Unmarshal([]byte(need.Spec), &spec); err != nil {
			return policy.Verdict{Code: policy.NoForever, Reason: ReasonClaimBroken, Object: need.Shared, Detail: err.Error()}
		}
		classes := i.view.Snapshot().Objects(cluster.DeviceClasses)
		for r := range spec.Devices.Requests {
			if missing := missingClass(&spec.Devices.Requests[r], classes); missing != "" {
				return policy.Verdict{Code: policy.No, Reason: ReasonDeviceClassMissing, Object: missing}
			}
		}
	}
	return policy.Verdict{}
}

// missingClass names the first class that a request asks for and that does not exist; "" for none. Of alternatives, the
// allocator needs all.
func missingClass(r *resourceapi.DeviceRequest, classes map[string]any) string {
	if r.Exactly != nil {
		if _, ok := classes[r.Exactly.DeviceClassName]; !ok {
			return r.Exactly.DeviceClassName
		}
	}
	for k := range r.FirstAvailable {
		if name := r.FirstAvailable[k].DeviceClassName; classes[name] == nil {
			return name
		}
	}
	return ""
}

// CheckNode implements policy.NodeFilter.
func (i *instance) CheckNode(p *cluster.Pod, n *cluster.Node) policy.Verdict {
	if g := i.view.Snapshot().Gang(p.Gang); g != nil {
		for k := range p.Class.Devices {
			if need := &p.Class.Devices[k]; need.Shared != "" && need.GPUs > 0 && !need.Own && need.Queue != g.Queue {
				return policy.Verdict{Code: policy.NoForever, Reason: ReasonClaimQueue, Object: need.Shared, Detail: g.Queue}
			}
		}
	}
	return i.claims().check(p, n, later)
}

// Nobody implements policy.Unanimous.
func (i *instance) Nobody(p *cluster.Pod) string {
	for k := range p.Class.Devices {
		if need := &p.Class.Devices[k]; need.Shared != "" && need.GPUs > 0 { // whose it is comes first
			return ""
		}
	}
	return i.claims().nobody(p)
}

// CheckReady implements policy.NodeReady.
func (i *instance) CheckReady(p *cluster.Pod, n *cluster.Node) policy.Verdict {
	return i.claims().check(p, n, now)
}

// Done implements policy.Observer.
func (i *instance) Done(op ledger.Op) {
	if op.Gives() != 0 && i.Wants(op.Pod.Class) {
		i.claims().do(op)
	}
}

// Undone implements policy.Observer.
func (i *instance) Undone(op ledger.Op) {
	if op.Gives() != 0 && i.Wants(op.Pod.Class) {
		i.claims().undo(op)
	}
}

// Turned implements policy.Promises.
func (i *instance) Turned(h *cluster.Hold, open bool) {
	switch {
	case len(h.Claims) == 0 || i.ledger == nil: // it is read as it stands when the ledger is made
	case open:
		i.ledger.promise(h, -1)
	default:
		i.ledger.promise(h, 1)
	}
}

// Detail implements policy.Detailer.
func (i *instance) Detail(op ledger.Op, to *policy.Detail) {
	if i.Wants(op.Pod.Class) {
		to.Claims = i.claims().allocations(op.Pod)
	}
}
