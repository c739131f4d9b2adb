package apply

import (
	"os"
	"regexp"
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
)

// TestReasonsThatNodesDoNotLift: whoever adds a reason to the engine says here whether an autoscaler may be made to add a
// node for it.
func TestReasonsThatNodesDoNotLift(t *testing.T) {
	t.Parallel()
	no := []engine.Reason{
		engine.ReasonOverLimit, engine.ReasonNonPreemptibleOverQuota, engine.ReasonQueueMissing, engine.ReasonQueueNotLeaf, engine.ReasonQueueBroken,
		engine.ReasonQueueDepth, engine.ReasonGaveUp, engine.ReasonGangInvalid, engine.ReasonGangNotReady, engine.ReasonGated,
		engine.ReasonUnknownSubgroup, engine.ReasonUnsupported, engine.ReasonConfigMapMissing, engine.ReasonTopologyMissing,
		engine.ReasonTopologyLevel, engine.ReasonClaimMissing, engine.ReasonClaimBroken, engine.ReasonClaimQueue, engine.ReasonClaimFull,
		engine.ReasonDeviceClassMissing, engine.ReasonVolumeClaimMissing, engine.ReasonVolumeClaimBroken, engine.ReasonVolumeInUse,
		engine.ReasonPostponed, engine.ReasonBinding, engine.ReasonReleasing,
	}
	yes := []engine.Reason{
		engine.ReasonNone, engine.ReasonInsufficient, engine.ReasonNoSharedDevice, engine.ReasonNoDeviceMemory, engine.ReasonGangNoRoom,
		engine.ReasonTopologyNoRoom, engine.ReasonNodeNotReady, engine.ReasonTaint, engine.ReasonNodeSelector, engine.ReasonHostPort,
		engine.ReasonZones, engine.ReasonRestrictedNode, engine.ReasonSlicing, engine.ReasonLegacySlices, engine.ReasonTooBigForAnyNode,
		engine.ReasonFilter, engine.ReasonPodAffinity, engine.ReasonPodAntiAffinity, engine.ReasonTopologySpread,
		engine.ReasonVolumeNodeConflict, engine.ReasonVolumeNone, engine.ReasonVolumeNoSpace, engine.ReasonVolumeLimit,
		engine.ReasonClaimElsewhere, engine.ReasonDevicesNone, engine.ReasonDevicesTaken, engine.ReasonNodesEmpty,
		// What disruptive actions answer; it is never what a gang waits for by itself.
		engine.ReasonPreemptionDelay, engine.ReasonNotPreemptible, engine.ReasonOverFairShare, engine.ReasonVictimWithinShare,
		engine.ReasonSaturation, engine.ReasonMinRuntime, engine.ReasonHigherPriority, engine.ReasonNotRecreated, engine.ReasonReturned,
		engine.ReasonEvictionRate, engine.ReasonFrozen, engine.ReasonBudget, engine.ReasonOtherQueue, engine.ReasonBeingBound,
		engine.ReasonJustPlaced, engine.ReasonNoVictims, engine.ReasonVictimsTooFew, engine.ReasonNothingToMove, engine.ReasonOthersFirst, engine.ReasonNextCycle,
		engine.ReasonSwitchedOff,
	}
	for _, r := range no {
		if kai.NodesMayHelp(string(r)) {
			t.Errorf("%s: a node is said to help", r)
		}
	}
	for _, r := range yes {
		if !kai.NodesMayHelp(string(r)) {
			t.Errorf("%s: a node is said not to help", r)
		}
	}
	text, err := os.ReadFile("../../engine/verdict.go")
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, m := range regexp.MustCompile(`(?m)^\s+Reason\w+\s+Reason = "(\w*)"`).FindAllStringSubmatch(string(text), -1) {
		all = append(all, m[1])
		if r := engine.Reason(m[1]); !slices.Contains(no, r) && !slices.Contains(yes, r) {
			t.Errorf("%s is new: would a node help?", r)
		}
	}
	slices.Sort(all)
	known := kai.Helpless()
	slices.Sort(known)
	for _, r := range known {
		if _, ok := slices.BinarySearch(all, r); !ok {
			t.Errorf("%s is no reason of the engine", r)
		}
	}
}

// TestPreemptionDelayIsNamed: while a gang waits for its preemption delay, its condition says so in KAI's word, beside what it
// waits for; a node may help, all the same.
func TestPreemptionDelayIsNamed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := waiting(t, ReportOptions{}, nil)
		until := time.Now().Add(10 * time.Minute)
		wait := engine.Attempt{Action: "preempt", Verdict: engine.Verdict{Code: engine.Wait, Reason: engine.ReasonPreemptionDelay, WakeAt: until.UnixNano()}}
		snap := d.store.Snapshot(time.Now().UnixNano())
		g := snap.GangByKey(kai.GangKey("a", "g"))
		room := engine.Verdict{Code: engine.No, Reason: engine.ReasonGangNoRoom, Need: 2}
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
			if why := kai.Blocked(&pg); why != "" {
				t.Errorf("no node is said to help: %s", why)
			}
			return out
		}
		d.pass(2 * time.Second)
		if diff := cmp.Diff([]string{"GangNoRoom", "PreemptionDelayNotElapsed"}, reasons()); diff != "" {
			t.Error(diff)
		}
		d.trace.Gangs[0].Tried = nil
		d.publish(d.store.Snapshot(until.UnixNano()))
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
	over := engine.Verdict{Code: engine.No, Reason: engine.ReasonOverLimit, Object: "q", Dim: "gpu", Need: 8000}
	synctest.Test(t, func(t *testing.T) {
		d := waiting(t, ReportOptions{}, nil)
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
		gated := engine.Verdict{Code: engine.No, Reason: engine.ReasonGated, Have: 1}
		shows("gated", gated, "SchedulingGated: "+gated.String())
		postponed := engine.Verdict{Code: engine.Wait, Reason: engine.ReasonPostponed, Object: "p"}
		shows("a bind failed", postponed, "BindingError: "+postponed.String())
		shows("again", over, "Unschedulable: OverLimit: "+over.String())
		d.store.Apply(status)
		shows("an autoscaler comes", over, "OverLimit: "+over.String())
		d.store.Apply(cluster.ObjectGone{Kind: status.Kind, Key: status.Key})
		shows("it goes", over, "Unschedulable: OverLimit: "+over.String())
	})
	synctest.Test(t, func(t *testing.T) {
		d := waiting(t, ReportOptions{Unschedulable: UnschedulableAlways, Autoscaled: func() bool { return true }}, nil)
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
	for _, o := range []ReportOptions{{Autoscaled: func() bool { return true }}, {Unschedulable: UnschedulableIfNodesHelp}} {
		autoscalersAreNotMisled(t, o)
	}
}

func autoscalersAreNotMisled(t *testing.T, o ReportOptions) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		d := waiting(t, o, nil)
		for _, step := range []struct {
			verdict engine.Verdict
			want    string
		}{
			{noRoom(8000), v1.PodReasonUnschedulable},
			{engine.Verdict{Code: engine.No, Reason: engine.ReasonOverLimit, Object: "q", Dim: "gpu", Need: 8000}, "OverLimit"},
			{engine.Verdict{Code: engine.No, Reason: engine.ReasonNonPreemptibleOverQuota, Object: "q", Dim: "gpu", Need: 8000}, "NonPreemptibleOverQuota"},
			{noQueue(), "QueueDoesNotExist"},
			{engine.Verdict{Code: engine.No, Reason: engine.ReasonGated, Have: 1}, v1.PodReasonSchedulingGated},
			{engine.Verdict{Code: engine.No, Reason: engine.ReasonGangNotReady, Have: 2, Need: 3}, "GangNotReady"},
			{engine.Verdict{Code: engine.Wait, Reason: engine.ReasonPostponed, Object: "p"}, keys.ReasonBindingError},
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
