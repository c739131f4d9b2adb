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
	ReasonGangNoRoom              Reason = "GangNoRoom"              // fewer places than the gang's minimum needs
	ReasonNodeNotReady            Reason = "NodeNotReady"            // the node takes no pods (condition or cordon)
	ReasonTaint                   Reason = "UntoleratedTaint"        //
	ReasonNodeSelector            Reason = "NodeSelector"            // node selector or required node affinity
	ReasonHostPort                Reason = "HostPortTaken"           //
	ReasonRestrictedNode          Reason = "RestrictedNode"          // nodes without a worker label take none of ours
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
)

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
	case ReasonGangNoRoom:
		if v.Need == 1 {
			return "no node has room for the pod"
		}
		text := fmt.Sprintf("room for %d of the %d pods that must start together", v.Have, v.Need)
		if v.Partial {
			text += " (searched: partial)"
		}
		return text
	case ReasonNodeNotReady:
		return "node takes no pods: " + v.Object
	case ReasonTaint:
		return "untolerated taint " + v.Object
	case ReasonNodeSelector:
		return "node selector or required affinity does not match"
	case ReasonHostPort:
		return "host port " + v.Object + " is taken"
	case ReasonRestrictedNode:
		return "node has no worker label (restricted scheduling)"
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
	case ReasonOverLimit:
		return fmt.Sprintf("queue %s: asks for %s %s, %s left under its limit", v.Object, amount(v.Need), v.Dim, amount(v.Have))
	case ReasonNonPreemptibleOverQuota:
		return fmt.Sprintf("queue %s: non-preemptible work asks for %s %s, %s left under its quota", v.Object, amount(v.Need), v.Dim, amount(v.Have))
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
		return "the last bind of " + v.Object + " failed; waiting before the next try"
	case ReasonBinding:
		return fmt.Sprintf("%d pods of the gang are being bound; it goes on when its minimum is", v.Have)
	case ReasonReleasing:
		return fmt.Sprintf("%d pods wait for room that is being released", v.Have)
	case ReasonNodesEmpty:
		return "there are no nodes"
	}
	return strings.TrimSpace(string(v.Reason) + " " + v.Detail)
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

func compareCounts(a, b Count) int {
	return cmp.Or(cmp.Compare(b.Nodes, a.Nodes), cmp.Compare(a.Verdict.Reason, b.Verdict.Reason), cmp.Compare(a.Verdict.Object, b.Verdict.Object),
		cmp.Compare(a.Verdict.Dim, b.Verdict.Dim), cmp.Compare(a.Verdict.Detail, b.Verdict.Detail))
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
