package apply

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-scheduler/muster/api/kai/keys"
	"github.com/muster-scheduler/muster/api/scheduling/v2alpha2"
	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/dialect/kai"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/engine/builtin"
	"github.com/muster-scheduler/muster/internal/engine/plugins/dynamicresources"
	"github.com/muster-scheduler/muster/internal/engine/plugins/minruntime"
	"github.com/muster-scheduler/muster/internal/engine/plugins/nodegroup"
	"github.com/muster-scheduler/muster/internal/engine/plugins/nodescores"
	"github.com/muster-scheduler/muster/internal/engine/plugins/numa"
	"github.com/muster-scheduler/muster/internal/engine/plugins/predicates"
	"github.com/muster-scheduler/muster/internal/engine/plugins/proportion"
	"github.com/muster-scheduler/muster/internal/engine/plugins/tdm"
	"github.com/muster-scheduler/muster/internal/engine/plugins/topology"
	"github.com/muster-scheduler/muster/internal/engine/plugins/usage"
	"github.com/muster-scheduler/muster/internal/engine/plugins/votes"
	"github.com/muster-scheduler/muster/internal/engine/policy"
	"github.com/muster-scheduler/muster/internal/kube/filters"
)

// TestReasonsThatNodesDoNotLift: whoever adds a reason to the engine says here whether an autoscaler may be made to add a
// node for it.
func TestReasonsThatNodesDoNotLift(t *testing.T) {
	t.Parallel()
	no := []*engine.Reason{
		proportion.ReasonOverLimit, proportion.ReasonNonPreemptibleOverQuota, policy.ReasonQueueMissing, policy.ReasonQueueNotLeaf, policy.ReasonQueueClosed, policy.ReasonQueueBroken,
		policy.ReasonQueueDepth, policy.ReasonBehind, policy.ReasonGaveUp, policy.ReasonGangInvalid, policy.ReasonGangNotReady, policy.ReasonGated,
		policy.ReasonUnknownSubgroup, predicates.ReasonUnsupported, predicates.ReasonConfigMapMissing, topology.ReasonTopologyMissing,
		topology.ReasonTopologyLevel, dynamicresources.ReasonClaimMissing, dynamicresources.ReasonClaimBroken, dynamicresources.ReasonClaimQueue, dynamicresources.ReasonClaimFull,
		dynamicresources.ReasonDeviceClassMissing, filters.ReasonVolumeClaimMissing, filters.ReasonVolumeClaimBroken, filters.ReasonVolumeInUse,
		policy.ReasonNoAllocate, policy.ReasonGroupMissing, policy.ReasonGroupNoName, votes.ReasonNamespaceFull, policy.ReasonPostponed, policy.ReasonBinding, policy.ReasonReleasing,
	}
	yes := []*engine.Reason{
		nil, policy.ReasonInsufficient, policy.ReasonNoSharedDevice, predicates.ReasonNoDeviceMemory, policy.ReasonGangNoRoom,
		topology.ReasonTopologyNoRoom, topology.ReasonNotInTopology, topology.ReasonNotInDomain, predicates.ReasonNodeNotReady, predicates.ReasonTaint, predicates.ReasonNodeSelector, predicates.ReasonHostPort,
		numa.ReasonZones, numa.ReasonZonePolicy, predicates.ReasonRestrictedNode, predicates.ReasonNotInSet, predicates.ReasonSlicing, predicates.ReasonLegacySlices, predicates.ReasonTooBigForAnyNode,
		filters.ReasonFilter, filters.ReasonPodAffinity, filters.ReasonPodAntiAffinity, filters.ReasonTopologySpread,
		filters.ReasonVolumeNodeConflict, filters.ReasonVolumeNone, filters.ReasonVolumeNoSpace, filters.ReasonVolumeLimit,
		dynamicresources.ReasonClaimElsewhere, dynamicresources.ReasonDevicesNone, dynamicresources.ReasonDevicesTaken, policy.ReasonNodesEmpty,
		votes.ReasonOvercommitted, votes.ReasonQueueFull, nodescores.ReasonReserved, nodegroup.ReasonInNoGroup, nodegroup.ReasonNotForQueue, tdm.ReasonZoneClosed, tdm.ReasonNotRevocable, usage.ReasonNodeBusy,
		// What disruptive actions answer; it is never what a gang waits for by itself.
		policy.ReasonPreemptionDelay, policy.ReasonNotPreemptible, policy.ReasonPodKept, proportion.ReasonOverFairShare, policy.ReasonVictimWithinShare,
		policy.ReasonSaturation, minruntime.ReasonMinRuntime, policy.ReasonHigherPriority, policy.ReasonNotRecreated, policy.ReasonReturned,
		policy.ReasonEvictionRate, policy.ReasonFrozen, policy.ReasonBudget, policy.ReasonOtherQueue, policy.ReasonBeingBound,
		policy.ReasonJustPlaced, policy.ReasonNoVictims, policy.ReasonVictimsTooFew, policy.ReasonNothingToMove, policy.ReasonOthersFirst, policy.ReasonNextCycle,
		policy.ReasonSwitchedOff, policy.ReasonNotStarving, policy.ReasonNotReclaimable, policy.ReasonNoJudge, policy.ReasonUnbroken,
		votes.ReasonQueueOverused, votes.ReasonOverDeserved, votes.ReasonWithinDeserved, votes.ReasonGuaranteed, votes.ReasonNothingInCommon, votes.ReasonAtMinimum, votes.ReasonSystem,
		votes.ReasonBeyondDeserved, votes.ReasonBeyondCapability, votes.ReasonLargerShare, votes.ReasonCooldown, tdm.ReasonMakesNoWay, tdm.ReasonMakesWay, tdm.ReasonGangBudget,
	}
	registry := filters.Register(builtin.Registry(), filters.Options{})
	known, err := registry.Known()
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range slices.Concat(no, yes) {
		if help := slices.Contains(yes, r); r.NodesHelp() != help || registry.NodesHelp()(r.String()) != help {
			t.Errorf("%s: a node is said to help: %v", r, !help)
		}
	}
	for key, r := range known {
		if !slices.Contains(no, r) && !slices.Contains(yes, r) {
			t.Errorf("%s is new: would a node help?", key)
		}
	}
	if len(no)+len(yes) != len(known)+1 { // none is none
		t.Errorf("%d reasons are declared, and %d listed here", len(known), len(no)+len(yes)-1)
	}
}

// TestPreemptionDelayIsNamed: while a gang waits for its preemption delay, its condition says so in KAI's word, beside what it
// waits for; a node may help, all the same.
func TestPreemptionDelayIsNamed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := waiting(t, StatusOptions{}, nil)
		until := time.Now().Add(10 * time.Minute)
		wait := engine.Attempt{Action: "preempt", Verdict: engine.Verdict{Code: engine.Wait, Reason: policy.ReasonPreemptionDelay, WakeAt: cluster.InstantOf(until)}}
		snap := d.store.Snapshot(cluster.InstantOf(time.Now()))
		g := snap.GangByKey(kai.GangKey("a", "g"))
		room := engine.Verdict{Code: engine.No, Reason: policy.ReasonGangNoRoom, Need: 2}
		d.trace = engine.Trace{Gangs: []engine.GangTrace{{Gang: g.Key, UID: g.UID, ID: g.ID, Diagnosis: &engine.Diagnosis{Verdict: room}, Tried: []engine.Attempt{wait}}}}
		d.publish(snap)
		reasons := func() (out []string) {
			var pg v2alpha2.PodGroup
			if err := d.client.Get(t.Context(), client.ObjectKey{Namespace: "a", Name: "g"}, &pg); err != nil {
				t.Fatal(err)
			}
			for _, c := range pg.Status.SchedulingConditions {
				for _, r := range c.Reasons {
					out = append(out, string(r.Reason))
				}
			}
			if why := kai.Blocked(&pg, builtin.Registry().NodesHelp()); why != "" {
				t.Errorf("no node is said to help: %s", why)
			}
			return out
		}
		d.pass(2 * time.Second)
		if diff := cmp.Diff([]string{"GangNoRoom", "PreemptionDelayNotElapsed"}, reasons()); diff != "" {
			t.Error(diff)
		}
		d.trace.Gangs[0].Tried = nil
		d.publish(d.store.Snapshot(cluster.InstantOf(until)))
		d.pass(2 * time.Minute)
		if diff := cmp.Diff([]string{"GangNoRoom"}, reasons()); diff != "" {
			t.Errorf("afterwards: %s", diff)
		}
	})
}

// TestUnschedulableIsSaid: where no node is bought, programs that wait for upstream's word find it on every pod that waits, and
// in the message which reason it is. Once an autoscaler comes, pods that no node helps say their own.
func TestUnschedulableIsSaid(t *testing.T) {
	t.Parallel()
	status := cluster.ObjectState{Kind: cluster.ConfigMaps, Key: "kube-system/cluster-autoscaler-status", Object: &metav1.PartialObjectMetadata{}}
	over := engine.Verdict{Code: engine.No, Reason: proportion.ReasonOverLimit, Object: "q", Dim: "gpu", Need: 8000}
	synctest.Test(t, func(t *testing.T) {
		d := waiting(t, StatusOptions{}, nil)
		shows := func(what string, v engine.Verdict, want string) {
			t.Helper()
			d.say(map[string]engine.Verdict{"g": v})
			d.pass(2 * time.Second)
			if diff := cmp.Diff("False "+want, d.podShows("p")); diff != "" {
				t.Errorf("%s: %s", what, diff)
			}
		}
		shows("a node helps", noRoom(8000), "Unschedulable: "+noRoom8)
		shows("no node helps", over, "Unschedulable: OverLimit: "+over.String())
		gated := engine.Verdict{Code: engine.No, Reason: policy.ReasonGated, Have: 1}
		shows("gated", gated, "SchedulingGated: "+gated.String())
		postponed := engine.Verdict{Code: engine.Wait, Reason: policy.ReasonPostponed, Object: "p"}
		shows("a bind failed", postponed, "BindingError: "+postponed.String())
		shows("again", over, "Unschedulable: OverLimit: "+over.String())
		d.store.Apply(status)
		shows("an autoscaler comes", over, "OverLimit: "+over.String())
		d.store.Apply(cluster.ObjectGone{Kind: status.Kind, Key: status.Key})
		shows("it goes", over, "Unschedulable: OverLimit: "+over.String())
	})
	synctest.Test(t, func(t *testing.T) {
		d := waiting(t, StatusOptions{Unschedulable: UnschedulableAlways, Autoscaled: func() bool { return true }}, nil)
		d.store.Apply(status)
		d.say(map[string]engine.Verdict{"g": over})
		d.pass(2 * time.Second)
		if diff := cmp.Diff("False Unschedulable: OverLimit: "+over.String(), d.podShows("p")); diff != "" {
			t.Errorf("always: %s", diff)
		}
	})
}

// TestAutoscalersAreNotMisled: a pod says Unschedulable, which is what makes autoscalers buy nodes, only while a node might
// help it.
func TestAutoscalersAreNotMisled(t *testing.T) {
	t.Parallel()
	for _, o := range []StatusOptions{{Autoscaled: func() bool { return true }}, {Unschedulable: UnschedulableIfNodesHelp}} {
		autoscalersAreNotMisled(t, o)
	}
}

func autoscalersAreNotMisled(t *testing.T, o StatusOptions) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		d := waiting(t, o, nil)
		for _, step := range []struct {
			verdict engine.Verdict
			want    string
		}{
			{noRoom(8000), v1.PodReasonUnschedulable},
			{engine.Verdict{Code: engine.No, Reason: proportion.ReasonOverLimit, Object: "q", Dim: "gpu", Need: 8000}, "OverLimit"},
			{engine.Verdict{Code: engine.No, Reason: proportion.ReasonNonPreemptibleOverQuota, Object: "q", Dim: "gpu", Need: 8000}, "NonPreemptibleOverQuota"},
			{noQueue(), "QueueDoesNotExist"},
			{engine.Verdict{Code: engine.No, Reason: policy.ReasonGated, Have: 1}, v1.PodReasonSchedulingGated},
			{engine.Verdict{Code: engine.No, Reason: policy.ReasonGangNotReady, Have: 2, Need: 3}, "GangNotReady"},
			{engine.Verdict{Code: engine.Wait, Reason: policy.ReasonPostponed, Object: "p"}, keys.ReasonBindingError},
			{noRoom(8000), v1.PodReasonUnschedulable},
		} {
			d.say(map[string]engine.Verdict{"g": step.verdict})
			d.pass(2 * time.Second)
			if diff := cmp.Diff("False "+step.want+": "+step.verdict.String(), d.podShows("p")); diff != "" {
				t.Error(diff)
			}
		}
	})
}
