package apply

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/muster-scheduler/muster/api/scheduling/v2"
	"github.com/muster-scheduler/muster/api/scheduling/v2alpha2"
	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/dialect/core"
	"github.com/muster-scheduler/muster/internal/dialect/kai"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/engine/builtin"
	"github.com/muster-scheduler/muster/internal/kube/write"
	"github.com/muster-scheduler/muster/internal/profile"
)

// stage is an API server in memory, the engine's view of the same objects, and the reports between the two.
type stage struct {
	t       *testing.T
	client  client.Client
	store   *cluster.Store
	engine  *engine.Engine
	clock   *testclock.FakeClock
	reports *Reports
}

var began = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func newStage(t *testing.T, o ReportOptions) *stage {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{v1.AddToScheme, v2.AddToScheme, v2alpha2.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	s := &stage{t: t, store: cluster.NewStore(cluster.Options{}), clock: testclock.NewFakeClock(began),
		client: fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&v1.Pod{}, &v2alpha2.PodGroup{}).Build()}
	kit, err := write.New(s.client, "scheduler", nil)
	if err != nil {
		t.Fatal(err)
	}
	if s.engine, err = engine.New(profile.BuiltIn(), builtin.Registry()); err != nil {
		t.Fatal(err)
	}
	o.Clock = s.clock
	s.reports = NewReports(kit, s.client, s.client, o)
	return s
}

// say puts objects on the API server and tells the engine of them.
func (s *stage) say(objects ...client.Object) {
	s.t.Helper()
	roles := kai.Roles{SchedulerNames: []string{kai.DefaultSchedulerName}, ReservationApp: kai.DefaultReservationApp}
	for _, o := range objects {
		o.SetUID(types.UID("uid-" + o.GetName()))
		o.SetResourceVersion("")
		if err := s.client.Create(s.t.Context(), o); err != nil {
			s.t.Fatal(err)
		}
		switch o := o.(type) {
		case *v1.Node:
			s.store.Apply(core.Node(o))
		case *v2.Queue:
			st, _ := kai.Queue(o)
			s.store.Apply(st)
		case *v2alpha2.PodGroup:
			s.store.Apply(kai.Gang(o, &kai.Priorities{}, kai.DefaultPool))
		case *v1.Pod:
			s.store.Apply(roles.Pod(o, ""))
		}
	}
}

// cycle decides, publishes, waits until reasons have settled, publishes again and writes.
func (s *stage) cycle() {
	s.t.Helper()
	for range 2 {
		snap := s.store.Snapshot(s.clock.Now().UnixNano())
		result := s.engine.Run(s.t.Context(), snap, func(engine.Plan) {})
		s.reports.Publish(snap, &result.Trace)
		s.clock.Step(2 * time.Second)
	}
	s.write()
}

func (s *stage) write() {
	for uid, ok := s.reports.pop(); ok; uid, ok = s.reports.pop() {
		s.reports.write(context.Background(), uid)
	}
}

func (s *stage) gang(name string) *v2alpha2.PodGroup {
	s.t.Helper()
	pg := &v2alpha2.PodGroup{}
	if err := s.client.Get(s.t.Context(), types.NamespacedName{Namespace: "a", Name: name}, pg); err != nil {
		s.t.Fatal(err)
	}
	return pg
}

// told returns what the pod is told about its place: "" for nothing.
func (s *stage) told(name string) string {
	s.t.Helper()
	p := &v1.Pod{}
	if err := s.client.Get(s.t.Context(), types.NamespacedName{Namespace: "a", Name: name}, p); err != nil {
		s.t.Fatal(err)
	}
	for _, c := range p.Status.Conditions {
		if c.Type == v1.PodScheduled {
			return string(c.Status) + " " + c.Reason + ": " + c.Message
		}
	}
	return ""
}

func testNode(name, gpus string) *v1.Node {
	room := v1.ResourceList{v1.ResourceCPU: resource.MustParse("8"), v1.ResourceMemory: resource.MustParse("8Gi"), v1.ResourcePods: resource.MustParse("9"), core.NvidiaGPU: resource.MustParse(gpus)}
	return &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: v1.NodeStatus{Allocatable: room, Conditions: []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue}}}}
}

func testQueue(name, parent string, quota, limit float64) *v2.Queue {
	free := v2.QueueResource{Quota: v2.Unlimited, Limit: v2.Unlimited}
	return &v2.Queue{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v2.QueueSpec{ParentQueue: parent,
		Resources: &v2.QueueResources{CPU: free, Memory: free, GPU: v2.QueueResource{Quota: quota, Limit: limit, OverQuotaWeight: 1}}}}
}

// testGang is a gang of pods that ask for one GPU each, and those pods; edit may change the gang.
func testGang(name, queue string, pods int, edit func(*v2alpha2.PodGroup)) []client.Object {
	least := int32(pods)
	pg := &v2alpha2.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: name}, Spec: v2alpha2.PodGroupSpec{Queue: queue, MinMember: &least}}
	if edit != nil {
		edit(pg)
	}
	out := []client.Object{pg}
	for i := range pods {
		one := v1.ResourceList{core.NvidiaGPU: resource.MustParse("1")}
		out = append(out, &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: name + string(rune('0'+i)), Annotations: map[string]string{kai.PodGroupAnnotation: name}},
			Spec:   v1.PodSpec{SchedulerName: kai.DefaultSchedulerName, Containers: []v1.Container{{Name: "c", Resources: v1.ResourceRequirements{Requests: one, Limits: one}}}},
			Status: v1.PodStatus{Phase: v1.PodPending}})
	}
	return out
}

// TestGangIsToldWhyItWaits: the condition has KAI's shape, and every pod of the gang says the same.
func TestGangIsToldWhyItWaits(t *testing.T) {
	t.Parallel()
	s := newStage(t, ReportOptions{Pool: "gold", SchedulerName: "kai-scheduler"})
	s.say(testNode("n1", "1"), testNode("n2", "0"), testQueue("q", "", 8, 8))
	s.say(testGang("g", "q", 2, nil)...)
	s.cycle()
	text := "room for 1 of the 2 pods that must start together; nodes: 1 insufficient gpu"
	want := []v2alpha2.SchedulingCondition{{Type: "UnschedulableOnNodePool", Status: v1.ConditionTrue, NodePool: "gold", Reason: "Unschedulable", Message: text,
		TransitionID: "1", LastTransitionTime: metav1.NewTime(began.Add(4 * time.Second)),
		Reasons: v2alpha2.UnschedulableExplanations{{Reason: "GangNoRoom", Message: text}}}}
	if diff := cmp.Diff(want, s.gang("g").Status.SchedulingConditions); diff != "" {
		t.Errorf("conditions (-want +got):\n%s", diff)
	}
	for _, pod := range []string{"g0", "g1"} {
		if diff := cmp.Diff("False Unschedulable: "+text, s.told(pod)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", pod, diff)
		}
	}
	s.say(testNode("n3", "1")) // now it fits
	s.cycle()
	if got := s.gang("g").Status.SchedulingConditions; len(got) != 0 {
		t.Errorf("still told: %+v", got)
	}
}

// TestMarkUnschedulable: a gang that does not want its pods marked is told alone.
func TestMarkUnschedulable(t *testing.T) {
	t.Parallel()
	s := newStage(t, ReportOptions{Pool: kai.DefaultPool})
	s.say(testNode("n1", "1"), testQueue("q", "", 8, 8))
	no := false
	s.say(testGang("g", "q", 2, func(pg *v2alpha2.PodGroup) { pg.Spec.MarkUnschedulable = &no })...)
	s.cycle()
	if len(s.gang("g").Status.SchedulingConditions) != 1 {
		t.Error("the gang is not told")
	}
	if got := s.told("g0"); got != "" {
		t.Errorf("its pod is told %q", got)
	}
}

// TestDetailedFitErrors: with --detailed-fit-errors the text names the nodes, otherwise it counts them.
func TestDetailedFitErrors(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		detailed bool
		want     string
	}{{false, "; nodes: 10 insufficient gpu"}, {true, "; nodes: 10 insufficient gpu (n0, n1, n2, n3, n4, n5, n6, n7, …)"}} {
		s := newStage(t, ReportOptions{Pool: kai.DefaultPool, Detailed: c.detailed})
		for _, n := range strings.Split("n0 n1 n2 n3 n4 n5 n6 n7 n8 n9", " ") {
			s.say(testNode(n, "1"))
		}
		s.say(testQueue("q", "", 99, 99))
		s.say(testGang("held", "q", 9, nil)...)
		s.say(testGang("z", "q", 2, nil)...)
		s.say(testNode("m", "0"))
		s.cycle()
		if got := s.gang("z").Status.SchedulingConditions; len(got) != 1 || !strings.Contains(got[0].Message, "nodes: ") ||
			strings.Contains(got[0].Message, "(") != c.detailed {
			t.Errorf("detailed %v: %+v", c.detailed, got)
		}
		tally := engine.Tally{{Verdict: engine.Verdict{Code: engine.No, Reason: engine.ReasonInsufficient, Dim: "gpu"}, Nodes: 10, Named: strings.Split("n0 n1 n2 n3 n4 n5 n6 n7", " ")}}
		text := tally.String()
		if c.detailed {
			text = tally.Detailed()
		}
		if diff := cmp.Diff(c.want, "; nodes: "+text); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
	}
}

// TestQueueDetails: a gang that a queue holds back is told the numbers of that queue, whichever level it is on.
func TestQueueDetails(t *testing.T) {
	t.Parallel()
	gpus := func(n int64) v1.ResourceList {
		return v1.ResourceList{v1.ResourceCPU: *resource.NewMilliQuantity(0, resource.DecimalSI), v1.ResourceMemory: *resource.NewQuantity(0, resource.BinarySI), core.NvidiaGPU: *resource.NewMilliQuantity(n*1000, resource.DecimalSI)}
	}
	only := func(n int64) v1.ResourceList {
		return v1.ResourceList{core.NvidiaGPU: *resource.NewMilliQuantity(n*1000, resource.DecimalSI)}
	}
	for _, c := range []struct {
		name   string
		edit   func(*v2alpha2.PodGroup)
		dept   *v2.Queue
		reason v2alpha2.UnschedulableReason
		want   v2alpha2.QuotaDetails
	}{
		{"over a limit above", nil, testQueue("dept", "", 2, 1), v2alpha2.ReasonOverLimit, v2alpha2.QuotaDetails{Name: "dept",
			QueueRequestedResources: gpus(2), QueueDeservedResources: only(2), QueueAllocatedResources: gpus(0), QueueAllocatedNonPreemptibleResources: gpus(0),
			QueueResourceLimits: only(1), PodGroupRequestedResources: gpus(2)}},
		{"non-preemptible, over a quota above", func(pg *v2alpha2.PodGroup) { pg.Spec.Preemptibility = v2alpha2.NonPreemptible }, testQueue("dept", "", 1, v2.Unlimited),
			v2alpha2.ReasonNonPreemptibleOverQuota, v2alpha2.QuotaDetails{Name: "dept",
				QueueRequestedResources: gpus(2), QueueDeservedResources: only(1), QueueAllocatedResources: gpus(0), QueueAllocatedNonPreemptibleResources: gpus(0),
				QueueResourceLimits: v1.ResourceList{}, PodGroupRequestedResources: gpus(2), PodGroupRequestedNonPreemptibleResources: gpus(2)}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, ReportOptions{Pool: kai.DefaultPool})
			s.say(testNode("n1", "8"), c.dept, testQueue("q", "dept", 8, 8))
			s.say(testGang("g", "q", 2, c.edit)...)
			s.cycle()
			got := s.gang("g").Status.SchedulingConditions
			if len(got) != 1 || len(got[0].Reasons) != 1 || got[0].Reasons[0].Reason != c.reason || got[0].Reasons[0].Details == nil {
				t.Fatalf("conditions %+v", got)
			}
			same := cmp.Comparer(func(a, b v1.ResourceList) bool {
				if len(a) != len(b) {
					return false
				}
				for name, x := range a {
					if y, ok := b[name]; !ok || x.Cmp(y) != 0 {
						return false
					}
				}
				return true
			})
			if diff := cmp.Diff(&c.want, got[0].Reasons[0].Details.QueueDetails, same); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// TestConditions: what happens to conditions that are there already.
func TestConditions(t *testing.T) {
	t.Parallel()
	early, late := metav1.NewTime(began), metav1.NewTime(began.Add(time.Hour))
	v := engine.Verdict{Code: engine.No, Reason: engine.ReasonGangNoRoom}
	other := v2alpha2.SchedulingCondition{Type: v2alpha2.UnschedulableOnNodePool, NodePool: "silver", TransitionID: "7", Status: v1.ConditionTrue}
	ours := func(id, text string, since metav1.Time) v2alpha2.SchedulingCondition {
		return v2alpha2.SchedulingCondition{Type: v2alpha2.UnschedulableOnNodePool, NodePool: "gold", Reason: v2alpha2.ReasonUnschedulable, Message: text,
			Reasons: v2alpha2.UnschedulableExplanations{{Reason: "GangNoRoom", Message: text}}, TransitionID: id, LastTransitionTime: since, Status: v1.ConditionTrue}
	}
	type list = []v2alpha2.SchedulingCondition
	for _, c := range []struct {
		name string
		have list
		text string
		done bool
		want list // nil: no change
	}{
		{"the first", nil, "no", false, list{ours("1", "no", late)}},
		{"counts on from another pool's", list{other}, "no", false, list{other, ours("8", "no", late)}},
		{"the same again", list{ours("3", "no", early)}, "no", false, nil},
		{"another text: the next id, the time stays", list{ours("3", "no", early)}, "still no", false, list{ours("4", "still no", early)}},
		{"two of ours become one", list{ours("3", "no", early), ours("4", "no", early)}, "no", false, list{ours("5", "no", early)}},
		{"done: ours goes, others stay", list{other, ours("8", "no", early)}, "", true, list{other}},
		{"done, and nothing there", list{other}, "", true, nil},
	} {
		got, changed := Conditions(c.have, "gold", v, c.text, nil, c.done, late)
		if changed != (c.want != nil) {
			t.Errorf("%s: changed %v", c.name, changed)
		}
		if diff := cmp.Diff(c.want, got); changed && diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
	}
}
