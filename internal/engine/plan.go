package engine

import (
	"encoding/hex"
	"hash/fnv"
	"strconv"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine/ledger"
	"github.com/muster-scheduler/muster/internal/engine/policy"
)

// Plan is what one action of one run decided: plain data, nothing applied yet.
type Plan struct {
	Action  string   `json:"action"`
	Bundles []Bundle `json:"bundles"`
	// Generation is that of the snapshot it was decided on: what the Store has learnt since is news to the plan. It is a count of one
	// Store, and no part of what was decided.
	Generation uint64 `json:"-"`
}

// Bundle is all-or-nothing: either all its intents take effect or none does.
type Bundle struct {
	// ID is unique over snapshots and restarts.
	ID string `json:"id"`
	// Gang is whom the bundle is for: who is placed, or, without a beneficiary, who is evicted.
	Gang cluster.Key `json:"gang"`
	UID  string      `json:"uid"`
	// Intents are in the order they were decided; evictions come before what they make room for.
	Intents []Intent `json:"intents"`
	// Starts says whether the bundle gives the gang its minimum after a time without any pod.
	Starts bool `json:"starts,omitempty"`
	// DependsOn are the IDs of the earlier bundles of the run that this one counts on: if one of them is not carried out,
	// neither is this. They are those that free room on a node on which this one promises some, and those for the same gang. It follows
	// from the intents, and is not written down with them.
	DependsOn []string `json:"-"`
	// Eviction is the record of the decision when the bundle evicts, nil when it does not.
	Eviction *EvictionRecord `json:"cause,omitempty"`
}

// Intent is one decision about one pod. Its precondition is that the pod still has this UID, and, to bind or nominate, no
// node, to evict, this node.
type Intent struct {
	Verb      ledger.Verb `json:"verb"`
	Namespace string      `json:"namespace"`
	Pod       string      `json:"pod"`
	UID       string      `json:"uid"`
	Node      string      `json:"node"`
	// To is the node that keeps room for the successor of an evicted pod; "" when it has none.
	To string `json:"to,omitempty"`
	// Gang and Set are the evicted pod's.
	Gang cluster.Key `json:"victim,omitzero"`
	Set  string      `json:"set,omitempty"`
	// BelowMinimum says that the evicted pod's gang is left without its minimum: it goes whole, or not at all.
	BelowMinimum bool `json:"core,omitempty"`
	// Budget names a PodDisruptionBudget that this eviction violates, "" for none.
	Budget string `json:"budget,omitempty"`
	// GPU is what the pod's queue is charged, in milli-GPU.
	GPU int64 `json:"gpu,omitempty"`
	// Claims are the devices that the pod's resource claims get with this placement; those that had theirs are not among them.
	Claims []cluster.ClaimAllocation `json:"claims,omitempty"`
	// Groups are the shared devices it takes, or gives, by the names of their groups. ToGroups are those that were found for
	// its successor.
	Groups   []string `json:"groups,omitempty"`
	ToGroups []string `json:"toGroups,omitempty"`
	// Zones are what the pod is expected to take from which NUMA zones of its node, or of To; nil when nobody says.
	Zones []cluster.ZoneShare `json:"zones,omitempty"`
	// Requests is what the pod takes of its node's sums, Share what it takes of devices, Charge what its queue is charged.
	Requests cluster.Resources `json:"-"`
	Share    cluster.Share     `json:"-"`
	Charge   cluster.Resources `json:"-"`
	// Charged is to whose account a pod that is bound holds its room.
	Charged cluster.Charged `json:"-"`
	// Kept is the ID of the hold that this intent makes good, "" for none.
	Kept string `json:"kept,omitempty"`
}

// EvictionRecord is the record of a decision that evicts: who had to go, for whom, by which rule, and what became of the shares.
type EvictionRecord struct {
	Cause policy.EvictionCause `json:"right"`
	// Queue is the beneficiary's.
	Queue   string   `json:"queue"`
	Victims []Victim `json:"victims"`
	// Shares are the queues concerned, before and after.
	Shares []ShareChange `json:"shares,omitempty"`
	// Evicted, Moved and Placed are milli-GPUs: of pods that lose their room, of pods that have room elsewhere, and of the
	// beneficiary.
	Evicted int64 `json:"evictedMilliGPU"`
	Moved   int64 `json:"movedMilliGPU"`
	Placed  int64 `json:"placedMilliGPU"`
	// Partial says that the search was cut short: a gentler choice may exist.
	Partial bool `json:"partial,omitempty"`
}

// Victim is what one gang gives.
type Victim struct {
	Gang     cluster.Key `json:"gang"`
	UID      string      `json:"uid"`
	Queue    string      `json:"queue"`
	Priority int32       `json:"priority"`
	Pods     int         `json:"pods"`
	Moved    int         `json:"moved"` // the part of Pods that has room elsewhere
	GPU      int64       `json:"milliGPU"`
	// Promised is how many of its waiting pods lose room that was promised to them; nobody is evicted for that.
	Promised int `json:"promised,omitempty"`
	// Seconds is the GPU time since the gang's start that is lost, in milli-GPU seconds.
	Seconds int64 `json:"milliGPUSeconds"`
	// Rule is what made it legal, in words that complete "because".
	Rule string `json:"rule"`
}

// ShareChange is a queue before and after a decision.
type ShareChange struct {
	Queue     string            `json:"queue"`
	Quota     cluster.Resources `json:"quota"`
	FairShare cluster.Resources `json:"fairShare"`
	Before    cluster.Resources `json:"before"`
	After     cluster.Resources `json:"after"`
}

// bundleID names a bundle by its content and the moment it was decided.
func bundleID(now cluster.Instant, gangUID string, intents []Intent) string {
	var room [20]byte
	h := fnv.New128a() // nothing of it leaves this function, so that only what is returned is on the heap
	h.Write(strconv.AppendInt(room[:0], now.UnixNano(), 10))
	h.Write([]byte("/"))
	h.Write([]byte(gangUID))
	for i := range intents {
		h.Write([]byte(intents[i].UID))
		h.Write([]byte(intents[i].Node))
	}
	return hex.EncodeToString(h.Sum(room[:0])[:10])
}

// Binds returns how many pods the plan binds.
func (p *Plan) Binds() int { return p.count(ledger.Bind) }

// Evictions returns how many pods the plan evicts, moved ones included.
func (p *Plan) Evictions() int { return p.count(ledger.Evict) }

func (p *Plan) count(v ledger.Verb) int {
	n := 0
	for i := range p.Bundles {
		n += p.Bundles[i].count(v)
	}
	return n
}

func (b *Bundle) count(v ledger.Verb) int {
	n := 0
	for i := range b.Intents {
		if b.Intents[i].Verb == v {
			n++
		}
	}
	return n
}
