package engine

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/muster-scheduler/muster/internal/cluster"
)

// Code is how final an answer is.
type Code uint8

// The codes.
const (
	OK        Code = iota
	No             // not now: room or policy may change it
	NoForever      // not until the gang or the configuration is edited
	Wait           // not before Verdict.WakeAt
)

// Reason is the stable key of a no. Docs, metrics, conditions and tests use the key; people read the text.
type Reason string

// The reasons, each with the object it is about. Adding one means a case in Verdict.String and a scenario.
const (
	ReasonNone                    Reason = ""
	ReasonInsufficient            Reason = "InsufficientResources"   // a node has too little of a dimension
	ReasonNoSharedDevice          Reason = "NoSharedDevice"          // no device of the node has so much left to share
	ReasonNoDeviceMemory          Reason = "GPUMemoryUnknown"        // GPU memory is asked for, and the node's is not known
	ReasonGangNoRoom              Reason = "GangNoRoom"              // fewer places than the gang's minimum needs
	ReasonTopologyNoRoom          Reason = "TopologyNoRoom"          // room enough, but not in one domain
	ReasonTopologyMissing         Reason = "TopologyDoesNotExist"    //
	ReasonTopologyLevel           Reason = "TopologyLevelUnknown"    // the topology has no such level, or none is named
	ReasonNodeNotReady            Reason = "NodeNotReady"            // the node takes no pods (condition or cordon)
	ReasonTaint                   Reason = "UntoleratedTaint"        //
	ReasonNodeSelector            Reason = "NodeSelector"            // node selector or required node affinity
	ReasonHostPort                Reason = "HostPortTaken"           //
	ReasonZones                   Reason = "NUMAZones"               // the node's NUMA zones cannot serve the pod as its policy demands
	ReasonRestrictedNode          Reason = "RestrictedNode"          // nodes without a worker label take none of ours
	ReasonSlicing                 Reason = "GPUSlicing"              // the node's GPUs are not cut as the pod needs; Object is how they are
	ReasonLegacySlices            Reason = "LegacySlices"            // slices by name beside slices by annotation, or the other way round
	ReasonTooBigForAnyNode        Reason = "TooBigForAnyNode"        // no node, even empty, is large enough
	ReasonConfigMapMissing        Reason = "ConfigMapMissing"        //
	ReasonUnsupported             Reason = "UnsupportedFeature"      //
	ReasonFilter                  Reason = "RejectedByFilter"        // an upstream filter; Detail has its words
	ReasonPodAffinity             Reason = "PodAffinity"             // no pod that required pod affinity asks for
	ReasonPodAntiAffinity         Reason = "PodAntiAffinity"         // required anti-affinity of the pod or of one there
	ReasonTopologySpread          Reason = "TopologySpread"          // a spread constraint that says DoNotSchedule
	ReasonVolumeClaimMissing      Reason = "VolumeClaimMissing"      //
	ReasonVolumeClaimBroken       Reason = "VolumeClaimBroken"       // the claim exists and cannot be used; Detail says why
	ReasonVolumeNodeConflict      Reason = "VolumeNodeConflict"      // a volume that the node cannot reach
	ReasonVolumeNone              Reason = "VolumeNone"              // no volume to bind on the node, and none can be made
	ReasonVolumeNoSpace           Reason = "VolumeNoSpace"           // published storage capacity
	ReasonVolumeInUse             Reason = "VolumeInUse"             // ReadWriteOncePod, and another pod has it
	ReasonVolumeLimit             Reason = "VolumeLimit"             // the CSI driver attaches no more to the node
	ReasonClaimMissing            Reason = "ResourceClaimMissing"    // or its template
	ReasonClaimBroken             Reason = "ResourceClaimBroken"     // the allocator cannot work with it; Detail says why
	ReasonClaimElsewhere          Reason = "ResourceClaimElsewhere"  // its devices cannot be reached from the node
	ReasonClaimFull               Reason = "ResourceClaimFull"       // as many pods use it as may
	ReasonClaimQueue              Reason = "ResourceClaimQueue"      // a shared claim of GPUs that is not labelled with the queue
	ReasonDeviceClassMissing      Reason = "DeviceClassMissing"      //
	ReasonDevicesNone             Reason = "NoDevices"               // no driver publishes devices for the node
	ReasonDevicesTaken            Reason = "InsufficientDevices"     // the devices that are free do not satisfy the claims
	ReasonOverLimit               Reason = "OverLimit"               // queue limit
	ReasonNonPreemptibleOverQuota Reason = "NonPreemptibleOverQuota" // queue quota, non-preemptible work
	ReasonQueueMissing            Reason = "QueueDoesNotExist"       //
	ReasonQueueNotLeaf            Reason = "QueueNotLeaf"            //
	ReasonQueueBroken             Reason = "QueueTreeBroken"         // parent missing or a cycle
	ReasonGangInvalid             Reason = "InvalidGang"             //
	ReasonGangNotReady            Reason = "GangNotReady"            // too few pods exist
	ReasonGated                   Reason = "SchedulingGated"         //
	ReasonUnknownSubgroup         Reason = "UnknownSubgroup"         // pods name a pod set the gang does not have
	ReasonGaveUp                  Reason = "BackoffReached"          // schedulingBackoff
	ReasonPostponed               Reason = "BindFailedRecently"      //
	ReasonBinding                 Reason = "MembersBinding"          // a gang below its minimum whose other members are on their way
	ReasonReleasing               Reason = "WaitingForRelease"       // promised room that is still being released
	ReasonNodesEmpty              Reason = "NoNodes"                 // the cluster (or shard) has no node
	ReasonQueueDepth              Reason = "BeyondQueueDepth"        // more gangs of the queue are before it than an action looks at
	ReasonNextCycle               Reason = "NextCycle"               // searches for those before it took what one cycle may spend
	ReasonPreemptionDelay         Reason = "PreemptionDelay"         // waits for room to come free by itself first
	ReasonNotPreemptible          Reason = "NotPreemptible"          // the gang must not be disturbed, or must not disturb
	ReasonOverFairShare           Reason = "OverFairShare"           // the queue would hold more than its fair share
	ReasonVictimWithinShare       Reason = "WithinShare"             // the queue holds no more than its own
	ReasonSaturation              Reason = "ShareBalance"            // the taker's queue would be better off than the giver's
	ReasonMinRuntime              Reason = "MinRuntime"              // not long enough since its start
	ReasonHigherPriority          Reason = "PriorityNotLower"        // not of lower priority
	ReasonNotRecreated            Reason = "NobodyRecreates"         // a pod that nobody makes anew cannot be moved
	ReasonReturned                Reason = "DisplacedBefore"         // evicted before while the same gang waited
	ReasonEvictionRate            Reason = "EvictedTooOften"         // evicted too often lately
	ReasonFrozen                  Reason = "Frozen"                  // evicted for the same gang again and again, and left alone for a while
	ReasonBudget                  Reason = "DisruptionBudget"        // a PodDisruptionBudget that the queue lets block
	ReasonOtherQueue              Reason = "OtherQueue"              // preemption stays inside a queue
	ReasonBeingBound              Reason = "BeingBound"              // pods of it are on their way to their nodes
	ReasonJustPlaced              Reason = "JustPlaced"              // got room in this very cycle
	ReasonNoVictims               Reason = "NoVictims"               // nobody may be disturbed
	ReasonVictimsTooFew           Reason = "VictimsDoNotSuffice"     // all who may be disturbed would not make room enough
	ReasonNothingToMove           Reason = "NoRearrangement"         // no arrangement of what runs makes the room
	ReasonOthersFirst             Reason = "OthersFirst"             // somebody with a right to the room waits
	ReasonSwitchedOff             Reason = "SwitchedOff"             // by configuration
)

// Room says whether the reason is a want of room, which may come back or be made.
func (r Reason) Room() bool { return r == ReasonGangNoRoom || r == ReasonTopologyNoRoom }

// Verdict is a typed answer. The zero Verdict is yes.
type Verdict struct {
	Code   Code   `json:"code"`
	Reason Reason `json:"reason,omitempty"`
	// Plugin names who said it; "" for the engine itself.
	Plugin string `json:"plugin,omitempty"`
	// Object names what it is about: a queue, a pod, a taint, a ConfigMap.
	Object string `json:"object,omitempty"`
	// Dim is the dimension by name, Need what was asked, Have what there is, in base units of Dim (or pods for Dim "").
	Dim  string `json:"dim,omitempty"`
	Need int64  `json:"need,omitempty"`
	Have int64  `json:"have,omitempty"`
	// Detail is one sentence that the other fields cannot say.
	Detail string `json:"detail,omitempty"`
	// Partial says that the search was not exhaustive: a placement may exist that was not found.
	Partial bool `json:"partial,omitempty"`
	// WakeAt is when a Wait is over, Unix nanoseconds.
	WakeAt int64 `json:"wakeAt,omitempty"`
}

// Yes says whether the verdict lets things pass.
func (v Verdict) Yes() bool { return v.Code == OK }

// String prints the verdict as one sentence for people.
func (v Verdict) String() string {
	if v.Code == OK {
		return "ok"
	}
	amount := func(x int64) string {
		d := cluster.BaseDims()
		i, ok := d.Index(v.Dim)
		if !ok {
			i = d.Len()
		}
		return d.FormatOne(i, x)
	}
	switch v.Reason {
	case ReasonInsufficient:
		return fmt.Sprintf("insufficient %s", v.Dim)
	case ReasonNoSharedDevice:
		return "no GPU has so much left to share"
	case ReasonNoDeviceMemory:
		return "the node does not say how much memory its GPUs have"
	case ReasonGangNoRoom:
		if v.Need == 1 {
			return "no node has room for the pod"
		}
		text := fmt.Sprintf("room for %d of the %d pods that must start together", v.Have, v.Need)
		if v.Partial {
			text += " (searched: partial)"
		}
		return text
	case ReasonTopologyNoRoom:
		text := fmt.Sprintf("no %s has room for the %d pods that must be together", v.Object, v.Need)
		if v.Detail != "" {
			text += fmt.Sprintf("; %s has room for %d", v.Detail, v.Have)
		}
		if v.Partial {
			text += " (searched: partial)"
		}
		return text
	case ReasonTopologyMissing:
		return fmt.Sprintf("topology %q does not exist; create it, or correct the topology constraint", v.Object)
	case ReasonTopologyLevel:
		return fmt.Sprintf("the topology constraint is wrong: topology %q %s", v.Object, v.Detail)
	case ReasonNodeNotReady:
		return "node takes no pods: " + v.Object
	case ReasonTaint:
		return "untolerated taint " + v.Object
	case ReasonNodeSelector:
		return "node selector or required affinity does not match"
	case ReasonHostPort:
		return "host port " + v.Object + " is taken"
	case ReasonZones:
		text := "the node's NUMA zones have too little left for the pod under policy " + v.Object
		if v.Detail != "" {
			text = "the node's NUMA zones cannot take the pod under policy " + v.Object + ", " + v.Detail
		}
		if v.Partial {
			text += " (searched: partial)"
		}
		return text
	case ReasonRestrictedNode:
		return "node has no worker label (restricted scheduling)"
	case ReasonSlicing:
		if v.Object == cluster.Unsliced.String() {
			return "the GPUs of the node are not cut into slices"
		}
		return "the GPUs of the node are cut into slices (strategy " + v.Object + "), which serve others"
	case ReasonLegacySlices:
		return "slices of GPUs by name and by annotation do not go together; the node has pod " + v.Object
	case ReasonTooBigForAnyNode:
		return fmt.Sprintf("a pod asks for %s %s; the largest node has %s", amount(v.Need), v.Dim, amount(v.Have))
	case ReasonConfigMapMissing:
		return "ConfigMap " + v.Object + " does not exist"
	case ReasonUnsupported:
		return "asks for " + v.Object + ", which this version does not schedule"
	case ReasonFilter:
		return v.Detail
	case ReasonPodAffinity:
		return "no pod that the pod's affinity asks for is near"
	case ReasonPodAntiAffinity:
		return "pod anti-affinity keeps it away from pods that are near"
	case ReasonTopologySpread:
		return "pods would be spread too unevenly"
	case ReasonVolumeClaimMissing:
		return "PersistentVolumeClaim " + v.Object + " does not exist"
	case ReasonVolumeClaimBroken:
		return "PersistentVolumeClaim " + v.Object + " " + v.Detail
	case ReasonVolumeNodeConflict:
		return "a volume cannot be reached from the node"
	case ReasonVolumeNone:
		return "no volume for a claim, and none can be made there"
	case ReasonVolumeNoSpace:
		return "too little storage for a volume that is to be made"
	case ReasonVolumeInUse:
		return "a ReadWriteOncePod volume is in use by another pod"
	case ReasonVolumeLimit:
		return "the node can attach no more volumes"
	case ReasonClaimMissing:
		return strings.TrimSpace("ResourceClaim " + v.Object + " does not exist yet " + v.Detail)
	case ReasonClaimBroken:
		return "ResourceClaim " + v.Object + ": " + v.Detail
	case ReasonClaimElsewhere:
		return strings.TrimSpace("the devices of claim "+v.Object) + " cannot be reached from the node"
	case ReasonClaimFull:
		return fmt.Sprintf("ResourceClaim %s is used by %d pods, which is the most", v.Object, v.Have)
	case ReasonClaimQueue:
		return fmt.Sprintf("ResourceClaim %s is shared and has GPUs: its queue label must name queue %s", v.Object, v.Detail)
	case ReasonDeviceClassMissing:
		return "DeviceClass " + v.Object + " does not exist"
	case ReasonDevicesNone:
		return "no driver publishes devices there"
	case ReasonDevicesTaken:
		if v.Partial {
			return "no free devices that satisfy its claims were found (searched: partial)"
		}
		return strings.TrimSpace("insufficient free devices for its claims " + v.Detail)
	case ReasonOverLimit:
		return v.but(fmt.Sprintf("queue %s: asks for %s %s, %s left under its limit", v.Object, amount(v.Need), v.Dim, amount(v.Have)))
	case ReasonNonPreemptibleOverQuota:
		return v.but(fmt.Sprintf("queue %s: non-preemptible work asks for %s %s, %s left under its quota", v.Object, amount(v.Need), v.Dim, amount(v.Have)))
	case ReasonQueueMissing:
		return fmt.Sprintf("queue %q does not exist", v.Object)
	case ReasonQueueNotLeaf:
		return fmt.Sprintf("queue %q has child queues; work belongs in a leaf", v.Object)
	case ReasonQueueBroken:
		return fmt.Sprintf("queue %q: %s", v.Object, v.Detail)
	case ReasonGangInvalid:
		return v.Detail
	case ReasonGangNotReady:
		return fmt.Sprintf("%d of %d pods needed exist", v.Have, v.Need)
	case ReasonGated:
		return fmt.Sprintf("%d pods have scheduling gates", v.Have)
	case ReasonUnknownSubgroup:
		return fmt.Sprintf("pod %s asks for subgroup %q, which the gang does not have", v.Object, v.Detail)
	case ReasonGaveUp:
		return "not tried again: schedulingBackoff is reached"
	case ReasonPostponed:
		return "the last attempt to place " + v.Object + " failed; waiting before the next try"
	case ReasonBinding:
		return fmt.Sprintf("%d pods of the gang are being bound; it goes on when its minimum is", v.Have)
	case ReasonReleasing:
		text := fmt.Sprintf("%d pods wait for room that is being released", v.Have)
		if v.Detail != "" {
			text += ", " + v.Detail
		}
		return text
	case ReasonNodesEmpty:
		return "there are no nodes"
	case ReasonQueueDepth:
		return fmt.Sprintf("%d gangs of queue %s are before it, and no more are looked at in a cycle", v.Have, v.Object)
	case ReasonNextCycle:
		return "the searches for those before it took what one cycle may spend; it is asked about in the next"
	case ReasonPreemptionDelay:
		return "its preemption delay is not over"
	case ReasonNotPreemptible:
		return "non-preemptible"
	case ReasonOverFairShare:
		return fmt.Sprintf("queue %s would hold %s %s, above its fair share of %s", v.Object, amount(v.Need), v.Dim, amount(v.Have))
	case ReasonVictimWithinShare:
		if v.Object == "" { // of many queues in one, as in the two that follow
			return "their queues hold no more than their own"
		}
		return fmt.Sprintf("queue %s holds no more than its own", v.Object)
	case ReasonSaturation:
		if v.Object == "" {
			return "their queues would be worse off than the queue that takes"
		}
		return fmt.Sprintf("queue %s would be worse off than the queue that takes", v.Object)
	case ReasonMinRuntime:
		return "protected by its minimum runtime"
	case ReasonHigherPriority:
		return "its priority is not lower"
	case ReasonNotRecreated:
		return "nobody would recreate its pods"
	case ReasonReturned:
		return "it was evicted before while the same gang waited"
	case ReasonEvictionRate:
		return fmt.Sprintf("evicted %d times in the last hour", v.Have)
	case ReasonFrozen:
		return "evicted for the same gang again and again; left alone for a while"
	case ReasonBudget:
		if v.Object == "" {
			return "their PodDisruptionBudgets allow no more disruptions"
		}
		return "PodDisruptionBudget " + v.Object + " allows no more disruptions"
	case ReasonOtherQueue:
		return "in another queue"
	case ReasonBeingBound:
		return "its pods are being bound"
	case ReasonJustPlaced:
		return "got room in this cycle"
	case ReasonNoVictims:
		return "there is nobody it may displace"
	case ReasonVictimsTooFew:
		text := fmt.Sprintf("all that may be displaced (%d gangs) would not make room enough", v.Have)
		if v.Partial {
			text = "no set of gangs that may be displaced was found that makes room enough " + partly(v.Detail)
		}
		return text
	case ReasonNothingToMove:
		text := "no rearrangement of what runs makes room for it"
		if v.Partial {
			text += " (searched: partial)"
		}
		return text
	case ReasonOthersFirst:
		return v.Object + " waits for the same room and has the right to it"
	case ReasonSwitchedOff:
		return "switched off"
	}
	return strings.TrimSpace(string(v.Reason) + " " + v.Detail)
}

// but adds the detail to a text.
func (v Verdict) but(text string) string {
	if v.Detail == "" {
		return text
	}
	return text + "; " + v.Detail
}

// partly says that a search was partial, and what it gave up at if that is known.
func partly(why string) string {
	if why == "" {
		return "(searched: partial)"
	}
	return "(searched: partial; " + why + ")"
}

// Tally counts equal verdicts over nodes, for "why not": most frequent first.
type Tally []Count

// Count is how many nodes gave one verdict.
type Count struct {
	Verdict Verdict `json:"verdict"`
	Nodes   int     `json:"nodes"`
	// Named are the first of these nodes by name, at most eight.
	Named []string `json:"named,omitempty"`
}

// maxNamed is how many nodes a Count names.
const maxNamed = 8

// maxKinds is how many verdicts a Tally tells apart. Further ones count by their reason alone, with "…" for what they are about.
const maxKinds = 32

func compareCounts(a, b *Count) int {
	if a.Nodes != b.Nodes {
		return b.Nodes - a.Nodes
	}
	if c := strings.Compare(string(a.Verdict.Reason), string(b.Verdict.Reason)); c != 0 {
		return c
	}
	if c := strings.Compare(a.Verdict.Object, b.Verdict.Object); c != 0 {
		return c
	}
	return cmp.Or(strings.Compare(a.Verdict.Dim, b.Verdict.Dim), strings.Compare(a.Verdict.Detail, b.Verdict.Detail))
}

// Detailed is String with the names of nodes: "3 insufficient gpu (n1, n2, n3)".
func (t Tally) Detailed() string {
	parts := make([]string, 0, len(t))
	for _, c := range t {
		part := fmt.Sprintf("%d %s", c.Nodes, c.Verdict)
		if names := strings.Join(c.Named, ", "); names != "" {
			if c.Nodes > len(c.Named) {
				names += ", …"
			}
			part += " (" + names + ")"
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, ", ")
}

// String prints "3 insufficient gpu, 1 node takes no pods: NotReady".
func (t Tally) String() string {
	parts := make([]string, 0, len(t))
	for _, c := range t {
		parts = append(parts, fmt.Sprintf("%d %s", c.Nodes, c.Verdict))
	}
	return strings.Join(parts, ", ")
}
