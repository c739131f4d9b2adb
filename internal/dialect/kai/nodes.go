package kai

import (
	"strconv"

	v1 "k8s.io/api/core/v1"

	"github.com/muster-scheduler/muster/api/scheduling/v2alpha2"
)

// helpless are the reasons for waiting that a further node does not lift: policy forbids the gang, something that it names
// is missing, it is not complete, or it is about to start anyway. By the keys that stand in conditions; a test keeps them
// in step with the scheduler's.
var helpless = map[string]bool{
	// Policy.
	"OverLimit": true, "NonPreemptibleOverQuota": true, "QueueDoesNotExist": true, "QueueNotLeaf": true, "QueueTreeBroken": true,
	"BeyondQueueDepth": true, "BackoffReached": true,
	// The gang itself.
	"InvalidGang": true, "GangNotReady": true, "SchedulingGated": true, "UnknownSubgroup": true, "UnsupportedFeature": true,
	// What it names.
	"ConfigMapMissing": true, "TopologyDoesNotExist": true, "TopologyLevelUnknown": true, "ResourceClaimMissing": true,
	"ResourceClaimBroken": true, "ResourceClaimQueue": true, "ResourceClaimFull": true, "DeviceClassMissing": true,
	"VolumeClaimMissing": true, "VolumeClaimBroken": true, "VolumeInUse": true,
	// It has room, or had it a moment ago.
	"BindFailedRecently": true, "MembersBinding": true, "WaitingForRelease": true,
}

// NodesMayHelp says whether a gang that waits for this reason, a key as it stands in a scheduling condition, could start if
// the cluster had another node. Of a reason that is not known it says yes: whoever wrote it thought the gang unschedulable.
func NodesMayHelp(reason string) bool { return !helpless[reason] }

// Helpless returns the reasons of which NodesMayHelp says no, in no order.
func Helpless() []string {
	out := make([]string, 0, len(helpless))
	for r := range helpless { // order: the caller's
		out = append(out, r)
	}
	return out
}

// Blocked says why no node would help a PodGroup: the first such reason of its latest scheduling condition, "" for none.
func Blocked(pg *v2alpha2.PodGroup) string {
	var latest *v2alpha2.SchedulingCondition
	last := -1
	for i := range pg.Status.SchedulingConditions {
		c := &pg.Status.SchedulingConditions[i]
		if c.Type != v2alpha2.UnschedulableOnNodePool || c.Status != v1.ConditionTrue {
			continue
		}
		id, err := strconv.Atoi(c.TransitionID)
		if err != nil || id < last {
			continue
		}
		latest, last = c, id
	}
	if latest == nil {
		return ""
	}
	for i := range latest.Reasons {
		if r := string(latest.Reasons[i].Reason); !NodesMayHelp(r) {
			return r
		}
	}
	return ""
}
