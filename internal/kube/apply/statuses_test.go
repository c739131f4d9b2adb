package apply

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-scheduler/muster/api/scheduling/v2alpha2"
	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/dialect/kai"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/engine/plugins/predicates"
	"github.com/muster-scheduler/muster/internal/engine/plugins/proportion"
	"github.com/muster-scheduler/muster/internal/engine/policy"
	"github.com/muster-scheduler/muster/internal/kube/write"
)

// statusFixture is Statuses at work on a server, with a store from which traces are told.
type statusFixture struct {
	*server
	t       *testing.T
	store   *cluster.Store
	pool    *Pool // not begun
	reports *Statuses
	trace   engine.Trace
	next    time.Time

	mu     sync.Mutex
	events []string
}

// gangOf is a gang of one default set.
func gangOf(name string, change func(*cluster.GangState)) cluster.GangState {
	g := cluster.GangState{
		Key: kai.GangKey("a", name), UID: "g-" + name, Queue: "q", MarkUnschedulable: true, Preemptible: true,
		Sets: []cluster.Set{{Name: cluster.DefaultSet, Leaf: true, Min: 1, Parent: cluster.None}},
	}
	if change != nil {
		change(&g)
	}
	return g
}

func podOf(name, gang string, phase cluster.Phase) cluster.PodState {
	return cluster.PodState{
		UID: "u-" + name, Namespace: "a", Name: name, Gang: kai.GangKey("a", gang), Phase: phase, Ours: true,
		Requests: []cluster.Quantity{{Name: "cpu", Value: 500}, {Name: "gpu", Value: 1000}, {Name: "pods", Value: 1}},
	}
}

func groupNamed(name string) *v2alpha2.PodGroup {
	return &v2alpha2.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: name, UID: types.UID("g-" + name)}}
}

func newDesk(t *testing.T, s *server, o StatusOptions) *statusFixture {
	t.Helper()
	kit, err := write.New(s.client, "test", nil)
	if err != nil {
		t.Fatal(err)
	}
	d := &statusFixture{server: s, t: t, store: cluster.NewStore(cluster.Options{})}
	o.Pool = kai.DefaultPool
	o.Event = func(about client.Object, kind, reason, message string) {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.events = append(d.events, fmt.Sprintf("%s %s %s: %s", about.GetName(), kind, reason, message))
	}
	d.pool = NewPool(nil)
	d.reports = NewStatuses(d.pool, kit, s.client, o)
	return d
}

// say publishes that the gangs named wait for the reasons given, and nobody else does.
func (d *statusFixture) say(waits map[string]engine.Verdict) {
	d.t.Helper()
	d.trace = engine.Trace{}
	snap := d.store.Snapshot(cluster.InstantOf(time.Now()))
	for name, v := range waits {
		g := snap.GangByKey(kai.GangKey("a", name))
		if g == nil {
			d.t.Fatalf("no gang %s", name)
		}
		d.trace.Gangs = append(d.trace.Gangs, engine.GangTrace{Gang: g.Key, UID: g.UID, ID: g.ID, Diagnosis: &engine.Diagnosis{
			Verdict: v,
			Tally:   policy.Tally{{Verdict: engine.Verdict{Code: engine.No, Reason: predicates.ReasonNodeSelector}, Nodes: 3}},
		}})
	}
	d.publish(snap)
}

func (d *statusFixture) publish(snap *cluster.Snapshot) {
	d.next = d.reports.Publish(snap, &d.trace)
	synctest.Wait()
}

// pass lets time pass, and publishes the same trace again when that was asked for, as the loop does.
func (d *statusFixture) pass(total time.Duration) {
	end := time.Now().Add(total)
	for !d.next.IsZero() && !d.next.After(end) {
		<-time.After(max(time.Until(d.next), time.Millisecond))
		d.publish(d.store.Snapshot(cluster.InstantOf(time.Now())))
	}
	<-time.After(time.Until(end))
	synctest.Wait()
}

// happened compares the writes and events since the last call.
func (d *statusFixture) happened(what string, want ...string) {
	d.t.Helper()
	d.mu.Lock()
	got := append(d.story(), d.events...)
	d.events = nil
	d.mu.Unlock()
	slices.Sort(got)
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" {
		d.t.Errorf("%s: %s", what, diff)
	}
}

// shows returns what a gang's condition says: "id reason: message", or "" for none.
func (d *statusFixture) shows(name string) string {
	d.t.Helper()
	var pg v2alpha2.PodGroup
	if err := d.client.Get(d.t.Context(), client.ObjectKey{Namespace: "a", Name: name}, &pg); err != nil {
		d.t.Fatal(err)
	}
	var out []string
	for _, c := range pg.Status.SchedulingConditions {
		out = append(out, fmt.Sprintf("%s %s %s: %s", c.NodePool, c.TransitionID, c.Reasons[0].Reason, c.Message))
	}
	return strings.Join(out, ", ")
}

func (d *statusFixture) podShows(name string) string {
	d.t.Helper()
	var p v1.Pod
	if err := d.client.Get(d.t.Context(), client.ObjectKey{Namespace: "a", Name: name}, &p); err != nil {
		d.t.Fatal(err)
	}
	for _, c := range p.Status.Conditions {
		if c.Type == v1.PodScheduled {
			return fmt.Sprintf("%s %s: %s", c.Status, c.Reason, c.Message)
		}
	}
	return ""
}

func noRoom(have int64) engine.Verdict {
	return engine.Verdict{Code: engine.No, Reason: predicates.ReasonTooBigForAnyNode, Dim: "gpu", Need: 9000, Have: have}
}

func noQueue() engine.Verdict {
	return engine.Verdict{Code: engine.No, Reason: policy.ReasonQueueMissing, Object: "q"}
}

const (
	noRoom8     = "a pod asks for 9 gpu; the largest node has 8"
	noRoom4     = "a pod asks for 9 gpu; the largest node has 4"
	noQueueText = `queue "q" does not exist`
)

// waiting returns a statusFixture with a gang g of pods p and q that wait.
func waiting(t *testing.T, o StatusOptions, change func(*cluster.GangState), objects ...client.Object) *statusFixture {
	t.Helper()
	if len(objects) == 0 {
		objects = []client.Object{groupNamed("g"), aPod("p"), aPod("q")}
	}
	d := newDesk(t, newServer(t, objects...), o)
	begin(t, d.pool)
	d.store.Apply(gangOf("g", change), podOf("p", "g", cluster.Pending), podOf("q", "g", cluster.Pending))
	return d
}

func TestReasonIsWrittenOnceItHasSettled(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := waiting(t, StatusOptions{}, nil)
		d.say(map[string]engine.Verdict{"g": noRoom(8000)})
		d.pass(900 * time.Millisecond)
		d.happened("before it settled")
		d.pass(200 * time.Millisecond)
		d.happened("after", "patch a/g", "patch a/p", "patch a/q", "g Normal Unschedulable: "+noRoom8, "p Warning Unschedulable: "+noRoom8, "q Warning Unschedulable: "+noRoom8)
		if got, want := d.shows("g"), "default 1 TooBigForAnyNode: "+noRoom8; got != want {
			t.Errorf("the gang shows %q, want %q", got, want)
		}
		if got, want := d.podShows("p"), "False Unschedulable: "+noRoom8; got != want {
			t.Errorf("the pod shows %q, want %q", got, want)
		}

		d.pass(10 * time.Minute)
		for range 20 {
			d.say(map[string]engine.Verdict{"g": noRoom(8000)})
		}
		d.pass(10 * time.Minute)
		d.happened("nothing new in all that time")

		d.say(map[string]engine.Verdict{"g": noQueue()})
		d.pass(2 * time.Second)
		d.happened("another reason", "patch a/g", "patch a/p", "patch a/q", "g Normal Unschedulable: "+noQueueText, "p Warning Unschedulable: "+noQueueText, "q Warning Unschedulable: "+noQueueText)
		if got, want := d.shows("g"), "default 2 QueueDoesNotExist: "+noQueueText; got != want {
			t.Errorf("the gang shows %q, want %q", got, want)
		}
	})
}

// TestFlippingReasonIsToldOnceItStays: whoever makes his gang wait now for this and now for that, twenty times a second for a minute,
// causes no write meanwhile, and one when it stays.
func TestFlippingReasonIsToldOnceItStays(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := waiting(t, StatusOptions{}, nil)
		for i := range 20 * 60 {
			d.say(map[string]engine.Verdict{"g": []engine.Verdict{noRoom(8000), noQueue()}[i%2]})
			d.pass(50 * time.Millisecond)
		}
		d.happened("while it flips")
		d.pass(2 * time.Second)
		d.happened("once it stays", "patch a/g", "patch a/p", "patch a/q", "g Normal Unschedulable: "+noQueueText, "p Warning Unschedulable: "+noQueueText, "q Warning Unschedulable: "+noQueueText)
	})
}

func TestNumbersAreRefreshedOnceAMinute(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := waiting(t, StatusOptions{}, nil)
		d.say(map[string]engine.Verdict{"g": noRoom(8000)})
		d.pass(2 * time.Second)
		d.happened("first", "patch a/g", "patch a/p", "patch a/q", "g Normal Unschedulable: "+noRoom8, "p Warning Unschedulable: "+noRoom8, "q Warning Unschedulable: "+noRoom8)
		for i := range 50 {
			d.say(map[string]engine.Verdict{"g": noRoom(int64(8000 - 1000*(i%5)))}) // 8, 7, … 4
			d.pass(time.Second)
		}
		d.happened("numbers that jump about")
		d.say(map[string]engine.Verdict{"g": noRoom(4000)})
		d.pass(20 * time.Second) // no further say: the refresh was asked for
		d.happened("refreshed", "patch a/g", "patch a/p", "patch a/q")
		if got, want := d.shows("g"), "default 2 TooBigForAnyNode: "+noRoom4; got != want {
			t.Errorf("the gang shows %q, want %q", got, want)
		}
	})
}

func TestPlacedGangIsTakenBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := waiting(t, StatusOptions{}, nil)
		d.say(map[string]engine.Verdict{"g": noRoom(8000)})
		d.pass(500 * time.Millisecond)
		d.say(nil) // placed before the reason settled
		d.pass(5 * time.Second)
		d.happened("never told")
		if n := len(d.reports.gangs); n != 0 {
			t.Errorf("%d gangs remembered", n)
		}
		d.say(map[string]engine.Verdict{"g": noRoom(8000)})
		d.pass(2 * time.Second)
		d.say(nil)
		d.pass(2 * time.Second)
		if got := d.shows("g"); got != "" {
			t.Errorf("a placed gang shows %q", got)
		}
		if n := len(d.reports.gangs); n != 0 {
			t.Errorf("%d gangs remembered", n)
		}
		d.say(map[string]engine.Verdict{"g": noRoom(8000)})
		d.pass(2 * time.Second)
		if got := d.shows("g"); got == "" {
			t.Error("a gang that waits again shows nothing")
		}
		d.trace = engine.Trace{Truncated: true}
		d.publish(d.store.Snapshot(cluster.Instant{}))
		d.pass(2 * time.Second)
		if got := d.shows("g"); got == "" {
			t.Error("a run cut short took a reason back")
		}
	})
}

// TestTakenBackAndWaitingAgain: the gang waits again while its condition is being taken back.
func TestTakenBackAndWaitingAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := waiting(t, StatusOptions{}, nil)
		d.say(map[string]engine.Verdict{"g": noRoom(8000)})
		d.pass(2 * time.Second)
		slow := make(chan struct{})
		d.hold = func(_ context.Context, call string) error {
			if call == "patch a/g" {
				<-slow
			}
			return nil
		}
		d.say(nil)
		d.say(map[string]engine.Verdict{"g": noRoom(8000)})
		close(slow)
		d.pass(5 * time.Second)
		if got := d.shows("g"); got == "" {
			t.Error("it shows nothing although it waits")
		}
	})
}

func TestPodsThatComeLaterAreTold(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := waiting(t, StatusOptions{}, nil, groupNamed("g"), aPod("p"), aPod("q"), aPod("r"))
		d.say(map[string]engine.Verdict{"g": noRoom(8000)})
		d.pass(2 * time.Second)
		d.story()
		d.mu.Lock()
		d.events = nil
		d.mu.Unlock()
		d.store.Apply(podOf("r", "g", cluster.Pending))
		d.say(map[string]engine.Verdict{"g": noRoom(7000)})
		d.pass(2 * time.Second)
		d.happened("the late pod alone, in the words in force", "patch a/r", "r Warning Unschedulable: "+noRoom8)
	})
}

func TestUnmarkedGang(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := waiting(t, StatusOptions{}, func(g *cluster.GangState) { g.MarkUnschedulable = false })
		d.say(map[string]engine.Verdict{"g": noRoom(8000)})
		d.pass(2 * time.Second)
		d.happened("markUnschedulable: false", "patch a/g", "g Normal Unschedulable: "+noRoom8)
	})
}

// TestNotReadyIsTheGangsNews: of a gang that is not complete by its own rules the PodGroup is told, by the event that KAI has for it, Normal
// NotReady: of which one pod is there, whose pods are gated, which asks for more subgroups than it has.
func TestNotReadyIsTheGangsNews(t *testing.T) {
	t.Parallel()
	for _, v := range []engine.Verdict{
		{Code: engine.No, Reason: policy.ReasonGangNotReady, Have: 1, Need: 2},
		{Code: engine.No, Reason: policy.ReasonGated, Have: 1},
		{Code: engine.NoForever, Reason: policy.ReasonGangInvalid, Detail: "spec.minSubGroup is 3, but it has 2 direct subgroups; so many can never be complete"},
	} {
		synctest.Test(t, func(t *testing.T) {
			d := newDesk(t, newServer(t, groupNamed("g"), aPod("p")), StatusOptions{})
			begin(t, d.pool)
			d.store.Apply(gangOf("g", nil), podOf("p", "g", cluster.Pending))
			d.say(map[string]engine.Verdict{"g": v})
			d.pass(2 * time.Second)
			d.happened(v.Reason.Key, "patch a/g", "patch a/p", "g Normal NotReady: "+v.String(), "p Warning Unschedulable: "+v.String())
		})
	}
}

// TestRunningGangHasNoCondition: only its pods that wait are told.
func TestRunningGangHasNoCondition(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := waiting(t, StatusOptions{}, nil)
		running := podOf("q", "g", cluster.Running)
		running.NodeName = "n1"
		d.store.Apply(cluster.NodeState{Name: "n1", UID: "n1"}, running)
		d.say(map[string]engine.Verdict{"g": noRoom(8000)})
		d.pass(2 * time.Second)
		d.happened("the pod alone", "patch a/p", "p Warning Unschedulable: "+noRoom8)
	})
}

// TestBackoffCountsAttemptsOnly: the condition is what a gang with schedulingBackoff gives up over, so it must not come of
// anything but an attempt; and giving up does not hide what it gave up over.
func TestBackoffCountsAttemptsOnly(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := waiting(t, StatusOptions{}, func(g *cluster.GangState) { g.Backoff = true })
		d.say(map[string]engine.Verdict{"g": {Code: engine.No, Reason: policy.ReasonGangNotReady, Have: 2, Need: 3}})
		d.pass(2 * time.Second)
		if got := d.shows("g"); got != "" {
			t.Errorf("not ready, but shows %q", got)
		}
		const text = "2 of 3 pods needed exist"
		d.happened("not ready", "patch a/p", "patch a/q", "g Normal NotReady: "+text, "p Warning Unschedulable: "+text, "q Warning Unschedulable: "+text)
		d.say(map[string]engine.Verdict{"g": noRoom(8000)})
		d.pass(2 * time.Second)
		d.say(map[string]engine.Verdict{"g": {Code: engine.NoForever, Reason: policy.ReasonGaveUp}})
		d.pass(2 * time.Minute)
		if got, want := d.shows("g"), "default 1 TooBigForAnyNode: "+noRoom8; got != want {
			t.Errorf("it gave up and shows %q, want %q", got, want)
		}
	})
}

func TestDetailed(t *testing.T) {
	t.Parallel()
	for detailed, want := range map[bool]string{false: noRoom8, true: noRoom8 + "; nodes: 3 node selector or required affinity does not match"} {
		synctest.Test(t, func(t *testing.T) {
			d := waiting(t, StatusOptions{Detailed: detailed}, nil)
			d.say(map[string]engine.Verdict{"g": noRoom(8000)})
			d.pass(2 * time.Second)
			if got := d.podShows("p"); got != "False Unschedulable: "+want {
				t.Errorf("detailed %t: %q", detailed, got)
			}
		})
	}
}

// TestRestart: a new process writes nothing that stands already, and takes back what has lost its reason meanwhile.
func TestRestart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		objects := []client.Object{groupNamed("g"), groupNamed("h"), aPod("p"), aPod("q")}
		d := waiting(t, StatusOptions{}, nil, objects...)
		d.store.Apply(gangOf("h", nil))
		d.say(map[string]engine.Verdict{"g": noRoom(8000), "h": noRoom(8000)})
		d.pass(2 * time.Second)
		d.story()
		second := newDesk(t, d.server, StatusOptions{})
		begin(t, second.pool)
		second.store = d.store
		if err := second.reports.Restore(t.Context()); err != nil {
			t.Fatal(err)
		}
		second.say(map[string]engine.Verdict{"g": noRoom(8000)})
		second.pass(5 * time.Second)
		second.happened("after the restart", "patch a/h")
		if d.shows("g") == "" || d.shows("h") != "" {
			t.Errorf("g shows %q, h shows %q", d.shows("g"), d.shows("h"))
		}
	})
}

func TestObjectsReplacedMeanwhile(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, p := groupNamed("g"), aPod("p")
		g.UID, p.UID = "another", "another"
		d := waiting(t, StatusOptions{}, nil, g, p) // q is gone
		d.say(map[string]engine.Verdict{"g": noRoom(8000)})
		d.pass(2 * time.Second)
		d.happened("none of them is what it was")
	})
}

// TestFailedReportsAreRepeated: without another trace, ever more slowly, and only what failed.
func TestFailedReportsAreRepeated(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := waiting(t, StatusOptions{}, nil)
		d.fail = func(call string, n int) error {
			if call == "patch a/g" && n < 5 || call == "patch a/q" && n < 3 {
				return errors.New("API server is gone")
			}
			return nil
		}
		d.say(map[string]engine.Verdict{"g": noRoom(8000)})
		d.pass(1100 * time.Millisecond)
		d.happened("at first", "patch a/p", "p Warning Unschedulable: "+noRoom8)
		d.pass(time.Minute)
		d.happened("in the end", "patch a/g", "patch a/q", "g Normal Unschedulable: "+noRoom8, "q Warning Unschedulable: "+noRoom8)
		if d.seen["patch a/g"] != 5 {
			t.Errorf("%d attempts, want 5", d.seen["patch a/g"])
		}
	})
}

func TestQueueDetails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := waiting(t, StatusOptions{}, func(g *cluster.GangState) { g.Preemptible = false })
		d.trace.Queues = []engine.QueueTrace{{Name: "other"}, {
			Name: "team", Quota: cluster.Resources{4000, 0, 2000}, Limit: cluster.Resources{-1, -1, 3000},
			Allocated: cluster.Resources{1000, 0, 1500, 3}, NonPreemptible: cluster.Resources{0, 0, 1000}, Requested: cluster.Resources{2000, 1 << 30, 4000},
		}}
		snap := d.store.Snapshot(cluster.Instant{})
		g := snap.GangByKey(kai.GangKey("a", "g"))
		v := engine.Verdict{Code: engine.No, Reason: proportion.ReasonOverLimit, Object: "team", Dim: "gpu", Need: 2000, Have: 1500}
		d.trace.Gangs = []engine.GangTrace{{Gang: g.Key, UID: g.UID, ID: g.ID, Diagnosis: &engine.Diagnosis{Verdict: v}}}
		d.publish(snap)
		d.pass(2 * time.Second)
		var pg v2alpha2.PodGroup
		if err := d.client.Get(t.Context(), client.ObjectKey{Namespace: "a", Name: "g"}, &pg); err != nil {
			t.Fatal(err)
		}
		if len(pg.Status.SchedulingConditions) != 1 || pg.Status.SchedulingConditions[0].Reasons[0].Details == nil {
			t.Fatalf("%+v", pg.Status)
		}
		why := pg.Status.SchedulingConditions[0].Reasons[0]
		if why.Reason != v2alpha2.ReasonOverLimit {
			t.Errorf("reason %s", why.Reason)
		}
		got := map[string]string{}
		q := why.Details.QueueDetails
		for name, list := range map[string]v1.ResourceList{
			"deserved": q.QueueDeservedResources, "limits": q.QueueResourceLimits, "allocated": q.QueueAllocatedResources,
			"non-preemptible": q.QueueAllocatedNonPreemptibleResources, "requested": q.QueueRequestedResources, "gang": q.PodGroupRequestedResources,
			"gang's non-preemptible": q.PodGroupRequestedNonPreemptibleResources,
		} {
			for r, amount := range list {
				got[name+" "+string(r)] = amount.String()
			}
		}
		if diff := cmp.Diff(map[string]string{
			"deserved cpu": "4", "deserved nvidia.com/gpu": "2", "limits nvidia.com/gpu": "3", "allocated cpu": "1", "allocated nvidia.com/gpu": "1500m",
			"non-preemptible nvidia.com/gpu": "1", "requested cpu": "2", "requested memory": "1Gi", "requested nvidia.com/gpu": "4",
			"gang cpu": "1", "gang nvidia.com/gpu": "2", "gang's non-preemptible cpu": "1", "gang's non-preemptible nvidia.com/gpu": "2",
		}, got); diff != "" || q.Name != "team" {
			t.Errorf("queue %s: %s", q.Name, diff)
		}
	})
}

func TestConditions(t *testing.T) {
	t.Parallel()
	at := func(s int64) metav1.Time { return metav1.Unix(s, 0) }
	condition := func(pool, id, text string, since int64) v2alpha2.SchedulingCondition {
		return v2alpha2.SchedulingCondition{
			Type: v2alpha2.UnschedulableOnNodePool, NodePool: pool, Reason: v2alpha2.ReasonUnschedulable, Message: text,
			Reasons: v2alpha2.UnschedulableExplanations{{Reason: "R", Message: text}}, TransitionID: id, LastTransitionTime: at(since), Status: v1.ConditionTrue,
		}
	}
	off := condition("default", "3", "x", 5)
	off.Status = v1.ConditionFalse
	nameless := condition("", "3", "x", 5)
	type list = []v2alpha2.SchedulingCondition
	for name, tc := range map[string]struct {
		have    list
		text    string // "" for none
		want    list
		changed bool
	}{
		"first":                          {nil, "x", list{condition("default", "1", "x", 9)}, true},
		"the same":                       {list{condition("default", "3", "x", 5)}, "x", list{condition("default", "3", "x", 5)}, false},
		"another text keeps the time":    {list{condition("default", "3", "x", 5)}, "y", list{condition("default", "4", "y", 5)}, true},
		"one that was off begins anew":   {list{off}, "x", list{condition("default", "4", "x", 9)}, true},
		"another pool's stays":           {list{condition("gold", "7", "z", 1)}, "x", list{condition("gold", "7", "z", 1), condition("default", "8", "x", 9)}, true},
		"several become one":             {list{condition("default", "3", "x", 5), condition("gold", "7", "z", 1), condition("default", "8", "x", 6)}, "x", list{condition("gold", "7", "z", 1), condition("default", "9", "x", 6)}, true},
		"the other spelling of the pool": {list{nameless}, "", list{}, true},
		"an id that is no number":        {list{condition("gold", "x", "z", 1)}, "x", list{condition("gold", "x", "z", 1), condition("default", "1", "x", 9)}, true},
		"done":                           {list{condition("gold", "7", "z", 1), condition("default", "8", "x", 6)}, "", list{condition("gold", "7", "z", 1)}, true},
		"nothing to take back":           {list{condition("gold", "7", "z", 1)}, "", list{condition("gold", "7", "z", 1)}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var why *v2alpha2.UnschedulableExplanation
			if tc.text != "" {
				why = &v2alpha2.UnschedulableExplanation{Reason: "R", Message: tc.text}
			}
			got, changed := Conditions(tc.have, "default", why, at(9))
			if d := cmp.Diff(tc.want, got); d != "" || changed != tc.changed {
				t.Errorf("changed %t: %s", changed, d)
			}
		})
	}
}

func TestCut(t *testing.T) {
	t.Parallel()
	for n, want := range map[int]string{0: "", 1: "a", 2: "a", 3: "aé", 9: "aéz"} {
		if got := cut("aéz", n); got != want {
			t.Errorf("%d: %q, want %q", n, got, want)
		}
	}
}

// TestEventsAreFew: every pod of a gang has the reason in its condition, a few have an event about it; a pod that is all of
// its gang has the only one.
func TestEventsAreFew(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		objects := []client.Object{groupNamed("g"), groupNamed("one"), aPod("single")}
		var want []string
		for i := range 9 {
			name := fmt.Sprintf("p%d", i)
			objects, want = append(objects, aPod(name)), append(want, "patch a/"+name)
			if i < eventPods {
				want = append(want, name+" Warning Unschedulable: "+noRoom8)
			}
		}
		d := newDesk(t, newServer(t, objects...), StatusOptions{})
		begin(t, d.pool)
		d.store.Apply(gangOf("g", nil), gangOf("one", nil), podOf("single", "one", cluster.Pending))
		for i := range 9 {
			d.store.Apply(podOf(fmt.Sprintf("p%d", i), "g", cluster.Pending))
		}
		d.say(map[string]engine.Verdict{"g": noRoom(8000), "one": noRoom(8000)})
		d.pass(2 * time.Second)
		d.happened("both", append(want, "patch a/g", "g Normal Unschedulable: "+noRoom8, "patch a/one", "patch a/single", "single Warning Unschedulable: "+noRoom8)...)
		if got, want := d.shows("one"), "default 1 TooBigForAnyNode: "+noRoom8; got != want {
			t.Errorf("the gang shows %q, want %q", got, want)
		}
	})
}
