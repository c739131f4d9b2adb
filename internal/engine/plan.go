package engine

import (
	"fmt"
	"hash/fnv"

	"github.com/muster-scheduler/muster/internal/cluster"
)

// Plan is what one action of one run decided: plain data, nothing applied yet.
type Plan struct {
	Action  string   `json:"action"`
	Bundles []Bundle `json:"bundles"`
}

// Bundle is all-or-nothing: either all its intents take effect or none does.
type Bundle struct {
	// ID is unique over snapshots and restarts.
	ID   string      `json:"id"`
	Gang cluster.Key `json:"gang"`
	UID  string      `json:"uid"`
	// Intents are in the order they were decided.
	Intents []Intent `json:"intents"`
	// Starts says whether the bundle gives the gang its minimum after a time without any pod.
	Starts bool `json:"starts,omitempty"`
}

// Verb is what an intent asks for.
type Verb string

// The verbs.
const (
	Bind     Verb = "bind"     // run the pod on the node
	Nominate Verb = "nominate" // keep the room that is being released on the node for the pod
)

// Intent is one decision about one pod. Its precondition is that the pod still has this UID and no node.
type Intent struct {
	Verb      Verb   `json:"verb"`
	Namespace string `json:"namespace"`
	Pod       string `json:"pod"`
	UID       string `json:"uid"`
	Node      string `json:"node"`
	// GPU is what the pod takes, in milli-GPU.
	GPU int64 `json:"gpu,omitempty"`
}

// bundleID names a bundle by its content and the moment it was decided.
func bundleID(now int64, gangUID string, intents []Intent) string {
	h := fnv.New128a()
	fmt.Fprintf(h, "%d/%s", now, gangUID)
	for i := range intents {
		h.Write([]byte(intents[i].UID))
		h.Write([]byte(intents[i].Node))
	}
	return fmt.Sprintf("%x", h.Sum(nil)[:10])
}

// Binds returns how many pods the plan binds.
func (p *Plan) Binds() int {
	n := 0
	for i := range p.Bundles {
		for j := range p.Bundles[i].Intents {
			if p.Bundles[i].Intents[j].Verb == Bind {
				n++
			}
		}
	}
	return n
}
