package replay

import (
	"encoding/json"
	"time"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine"
)

// Format names the file format and its version; it changes with every change of the fields below, or of the model's that they
// contain, after which an older reader would decide otherwise.
const Format = "muster.snapshot/v1"

// file is a case as it is written.
type file struct {
	Format          string                                            `json:"format"`
	Version         string                                            `json:"version,omitzero"`
	Now             cluster.Instant                                   `json:"now"`
	Profile         engine.Profile                                    `json:"profile"`
	StorageCapacity bool                                              `json:"storageCapacity,omitzero"`
	Dims            []string                                          `json:"dims"`
	Nodes           []cluster.NodeState                               `json:"nodes,omitzero"`
	Topologies      []cluster.TopologyState                           `json:"topologies,omitzero"`
	Queues          []cluster.QueueState                              `json:"queues,omitzero"`
	Usage           map[string][]cluster.Quantity                     `json:"usage,omitzero"`
	Gangs           []cluster.GangState                               `json:"gangs,omitzero"`
	Classes         []class                                           `json:"classes,omitzero"`
	Pods            []placed                                          `json:"pods,omitzero"`
	Objects         map[cluster.ObjectKind]map[string]json.RawMessage `json:"objects,omitzero"`
	Postponed       map[string]cluster.Instant                        `json:"postponed,omitzero"`
	Memory          memory                                            `json:"memory,omitzero"`
	Decided         bool                                              `json:"decided,omitzero"`
	Plans           []engine.Plan                                     `json:"plans,omitzero"`

	packed []packed // what Pods is of a file that is read, of one that is written
}

// class is what pods of one class have in common. The amounts in Spec are empty: those here are named.
type class struct {
	Spec     cluster.ClassSpec  `json:"spec"`
	Requests []cluster.Quantity `json:"requests"`
	Charge   []cluster.Quantity `json:"charge,omitzero"`
}

// pod is a cluster.PodState as files name its fields; one that is missing here does not compile. What is left out is said elsewhere:
// by the class, by the phase's name, and by the memory.
type pod struct {
	UID          string                    `json:"uid"`
	Namespace    string                    `json:"namespace,omitzero"`
	Name         string                    `json:"name"`
	Labels       map[string]string         `json:"labels,omitzero"`
	Requests     []cluster.Quantity        `json:"-"`
	Charge       []cluster.Quantity        `json:"-"`
	Spec         *cluster.ClassSpec        `json:"-"`
	Groups       []string                  `json:"groups,omitzero"`
	Zones        []cluster.ZoneShare       `json:"zones,omitzero"`
	Phase        cluster.Phase             `json:"-"`
	NodeName     string                    `json:"node,omitzero"`
	Gang         cluster.Key               `json:"gang,omitzero"`
	SetName      string                    `json:"set,omitzero"`
	Ours         bool                      `json:"ours,omitzero"`
	Kept         bool                      `json:"kept,omitzero"`
	Cooldown     time.Duration             `json:"cooldown,omitzero"`
	Scheduled    cluster.Instant           `json:"scheduled,omitzero"`
	Entry        cluster.Entry             `json:"entry,omitzero"`
	Priority     int32                     `json:"priority,omitzero"`
	Utility      bool                      `json:"utility,omitzero"`
	Created      cluster.Instant           `json:"created,omitzero"`
	DeletedAt    cluster.Instant           `json:"deletedAt,omitzero"`
	Nominated    string                    `json:"nominated,omitzero"`
	Recreated    bool                      `json:"recreated,omitzero"`
	Returning    bool                      `json:"-"`
	Charged      cluster.Charged           `json:"charged,omitzero"`
	InOtherShard string                    `json:"abroad,omitzero"`
	DeviceClaims []cluster.DeviceClaim     `json:"claims,omitzero"`
	Allocations  []cluster.ClaimAllocation `json:"allocations,omitzero"`
}

// placed is a pod with the index of its class and the name of its phase.
type placed struct {
	pod
	Class int    `json:"class"`
	Phase string `json:"phase"`
}

// memory is a cluster.Memory with its answers, of which the model does not know what they say.
type memory struct {
	cluster.Memory
	Rests map[string]rest `json:"rests,omitzero"`
}

// rest is a remembered answer: an attempt of the solver, or what allocate told a gang. Ago is how many changes of the Store it is old,
// counted from 1; 0 where that is not known.
type rest struct {
	Until cluster.Instant `json:"until"`
	Why   *engine.Attempt `json:"why,omitzero"`
	Told  *engine.Told    `json:"told,omitzero"`
	Ago   uint64          `json:"ago,omitzero"`
	Wake  cluster.Instant `json:"wake,omitzero"`
}
