package feed

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-scheduler/muster/api/scheduling/v1alpha2"
	"github.com/muster-scheduler/muster/api/scheduling/v2"
	"github.com/muster-scheduler/muster/api/scheduling/v2alpha2"
	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/dialect"
	"github.com/muster-scheduler/muster/internal/dialect/kai"
)

// script is a Source that a test speaks for. It behaves as an informer: it knows what it has said.
type script struct {
	handlers map[string]toolscache.ResourceEventHandler // by type
	known    map[string]client.Object
	synced   chan struct{}
	watching chan struct{} // one token per kind watched
	version  int
	told     func() int // how far the watch is, if it lags behind
}

func newScript() *script {
	return &script{
		handlers: map[string]toolscache.ResourceEventHandler{}, known: map[string]client.Object{},
		synced: make(chan struct{}), watching: make(chan struct{}, int(dialect.Kinds)),
	}
}

func (s *script) Watch(_ context.Context, example client.Object, h toolscache.ResourceEventHandler) (<-chan struct{}, error) {
	s.handlers[fmt.Sprintf("%T", example)] = h
	s.watching <- struct{}{}
	return s.synced, nil
}

func (s *script) key(o client.Object) string {
	return fmt.Sprintf("%T %s", o, client.ObjectKeyFromObject(o))
}

// say tells the feed that these objects are now so.
func (s *script) say(objects ...client.Object) {
	for _, o := range objects {
		s.version++
		o = o.DeepCopyObject().(client.Object)
		o.SetResourceVersion(fmt.Sprint(s.version))
		h, old := s.handlers[fmt.Sprintf("%T", o)], s.known[s.key(o)]
		s.known[s.key(o)] = o
		if old == nil {
			h.OnAdd(o, false)
		} else {
			h.OnUpdate(old, o)
		}
	}
}

// end tells the feed that these objects are gone.
func (s *script) end(objects ...client.Object) {
	for _, o := range objects {
		delete(s.known, s.key(o))
		s.handlers[fmt.Sprintf("%T", o)].OnDelete(o)
	}
}

// stage is a feed with its script and store, every kind being watched.
type stage struct {
	*script
	t     *testing.T
	feed  *Feed
	store *cluster.Store
}

func newStage(t *testing.T, o Options) *stage {
	t.Helper()
	s := &stage{script: newScript(), t: t, store: cluster.NewStore(cluster.Options{})}
	s.feed = New(s.script, o)
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.feed.Run(ctx) }()
	for range s.feed.kinds {
		<-s.watching
	}
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	return s
}

func (s *stage) drain() int { return s.feed.Drain(s.store) }

// expect drains and compares where the pods are: "name@node phase", by creation order of names.
func (s *stage) expect(want ...string) {
	s.t.Helper()
	s.drain()
	got := map[string]bool{}
	s.store.Snapshot(cluster.Instant{}).EachPod(func(p *cluster.Pod) { got[fmt.Sprintf("%s@%s %s", p.UID, p.NodeName, p.Phase)] = true })
	wanted := map[string]bool{}
	for _, w := range want {
		wanted[w] = true
	}
	if diff := cmp.Diff(wanted, got); diff != "" {
		s.t.Errorf("-want +got:\n%s", diff)
	}
}

func at(seconds int64) metav1.Time { return metav1.NewTime(time.Unix(seconds, 0)) }

func node(name string) *v1.Node {
	return &v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name)},
		Status: v1.NodeStatus{
			Conditions:  []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue}},
			Allocatable: v1.ResourceList{"cpu": resource.MustParse("8"), "nvidia.com/gpu": resource.MustParse("8"), "pods": resource.MustParse("110")},
		},
	}
}

func pod(name, uid string, created int64) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "a", Name: name, UID: types.UID(uid), CreationTimestamp: at(created),
			Annotations: map[string]string{kai.PodGroupAnnotation: "g"},
		},
		Spec: v1.PodSpec{SchedulerName: kai.DefaultSchedulerName, Containers: []v1.Container{{
			Name:      "main",
			Resources: v1.ResourceRequirements{Requests: v1.ResourceList{"cpu": resource.MustParse("1"), "nvidia.com/gpu": resource.MustParse("1")}},
		}}},
		Status: v1.PodStatus{Phase: v1.PodPending},
	}
}

func bind(p *v1.Pod, node string, created int64) *v1alpha2.BindRequest {
	in := kai.Intent{Namespace: p.Namespace, Pod: p.Name, PodUID: p.UID, Node: node, GPU: 1000}
	br := in.BindRequest()
	br.UID, br.CreationTimestamp = types.UID(fmt.Sprintf("br-%s-%d", p.UID, created)), at(created)
	return br
}

func gang(name, class string) *v2alpha2.PodGroup {
	return &v2alpha2.PodGroup{
		ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: name, UID: types.UID("uid-" + name)},
		Spec:       v2alpha2.PodGroupSpec{Queue: "q", PriorityClassName: class, MinMember: ptr.To(int32(1))},
	}
}

func TestLifeOfAPod(t *testing.T) {
	t.Parallel()
	s := newStage(t, Options{})
	p := pod("p", "u1", 10)
	s.say(node("n1"), p)
	s.expect("u1@ Pending")
	br := bind(p, "n1", 11)
	s.say(br)
	s.expect("u1@n1 Binding")
	br.Status.Phase = v1alpha2.BindRequestSucceeded
	s.say(br)
	s.expect("u1@n1 Binding")
	p.Spec.NodeName = "n1"
	s.say(p)
	s.expect("u1@n1 Bound")
	p.Status.Phase = v1.PodRunning
	s.say(p)
	s.expect("u1@n1 Running")
	p.DeletionTimestamp = ptr.To(at(50))
	s.say(p)
	s.expect("u1@n1 Releasing")
	s.end(p)
	s.expect()
	if got := s.feed.StaleBindRequests(); len(got) != 0 {
		t.Errorf("a request whose pod has gone is the garbage collector's: %+v", got)
	}
}

// TestRequestOfAnEarlierPod: S1. A StatefulSet's pod comes back under its name; what was decided for the earlier one does
// not move it, and is listed to be deleted.
func TestRequestOfAnEarlierPod(t *testing.T) {
	t.Parallel()
	for _, phase := range []v1alpha2.BindRequestPhase{"", v1alpha2.BindRequestPending, v1alpha2.BindRequestSucceeded} {
		s := newStage(t, Options{})
		first, second := pod("web-0", "u1", 10), pod("web-0", "u2", 20)
		br := bind(first, "n1", 11)
		br.Status.Phase = phase
		s.say(node("n1"), first, br)
		s.expect("u1@n1 Binding")
		s.end(first)
		s.say(second) // both within one drain
		s.expect("u2@ Pending")
		want := []StaleBindRequest{{Namespace: "a", Name: "web-0", UID: br.UID, Pod: "web-0", PodUID: "u1", Node: "n1", Reason: OtherPod}}
		if diff := cmp.Diff(want, s.feed.StaleBindRequests()); diff != "" {
			t.Errorf("phase %q: -want +got:\n%s", phase, diff)
		}
		s.end(br)
		s.say(bind(second, "n1", 21))
		s.expect("u2@n1 Binding")
		if got := s.feed.StaleBindRequests(); len(got) != 0 {
			t.Errorf("phase %q: still stale: %+v", phase, got)
		}
	}
}

// TestRequestForALaterPod: the request overtakes the event of the pod it was made for. It is neither obeyed nor condemned.
func TestRequestForALaterPod(t *testing.T) {
	t.Parallel()
	s := newStage(t, Options{})
	first, second := pod("web-0", "u1", 10), pod("web-0", "u2", 20)
	s.say(node("n1"), first, bind(second, "n1", 21))
	s.expect("u1@ Pending")
	if got := s.feed.StaleBindRequests(); len(got) != 0 {
		t.Errorf("stale: %+v", got)
	}
	s.end(first)
	s.say(second)
	s.expect("u2@n1 Binding")
}

func TestStaleRequests(t *testing.T) {
	t.Parallel()
	s := newStage(t, Options{})
	failed, retried, lost, ownerless := bind(pod("p1", "u1", 10), "n1", 11), bind(pod("p2", "u2", 10), "n1", 11), bind(pod("p3", "u3", 10), "n9", 11), bind(pod("p4", "u4", 10), "n1", 11)
	failed.Status.Phase = v1alpha2.BindRequestFailed
	retried.Status.Phase, retried.Status.FailedAttempts, retried.Spec.BackoffLimit = v1alpha2.BindRequestFailed, 1, ptr.To(int32(3))
	ownerless.OwnerReferences = nil
	s.say(node("n1"), failed, retried, lost, ownerless)
	for i := range 4 {
		s.say(pod(fmt.Sprint("p", i+1), fmt.Sprint("u", i+1), 10))
	}
	s.expect("u1@ Pending", "u2@n1 Binding", "u3@ Pending", "u4@ Pending")
	reasons := func() map[string]StaleReason {
		out := map[string]StaleReason{}
		for _, r := range s.feed.StaleBindRequests() {
			out[r.Name] = r.Reason
		}
		return out
	}
	if diff := cmp.Diff(map[string]StaleReason{"p1": Failed, "p3": NodeGone, "p4": Ownerless}, reasons()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	s.say(node("n9")) // the node's event was late
	s.expect("u1@ Pending", "u2@n1 Binding", "u3@n9 Binding", "u4@ Pending")
	s.end(node("n1"))
	s.expect("u1@ Pending", "u2@ Pending", "u3@n9 Binding", "u4@ Pending")
	if diff := cmp.Diff(map[string]StaleReason{"p1": Failed, "p2": NodeGone, "p4": NodeGone}, reasons()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestServedRequestOutlivesItsNode: what has succeeded is history; it is the garbage collector's with its pod.
func TestServedRequestOutlivesItsNode(t *testing.T) {
	t.Parallel()
	s := newStage(t, Options{})
	p := pod("p", "u", 1)
	br := bind(p, "n1", 2)
	br.Status.Phase = v1alpha2.BindRequestSucceeded
	p.Spec.NodeName, p.Status.Phase = "n1", v1.PodRunning
	s.say(p, br)
	s.expect("u@n1 Running")
	if got := s.feed.StaleBindRequests(); len(got) != 0 {
		t.Errorf("stale: %+v", got)
	}
}

// TestTwoRequestsForOnePod: clients other than ours may call a request as they like. One counts, whatever the order.
func TestTwoRequestsForOnePod(t *testing.T) {
	t.Parallel()
	for _, order := range [][2]int{{0, 1}, {1, 0}} {
		s := newStage(t, Options{})
		p := pod("p", "u", 1)
		both := [2]*v1alpha2.BindRequest{bind(p, "n1", 2), bind(p, "n2", 2)}
		both[0].Name, both[1].Name = "a", "b"
		s.say(node("n1"), node("n2"), p, both[order[0]], both[order[1]])
		s.expect("u@n1 Binding")
		s.end(both[0])
		s.expect("u@n2 Binding")
	}
}

// TestInboxTellsOnce: an object that came, went and came again before anyone looked is told once.
func TestInboxTellsOnce(t *testing.T) {
	t.Parallel()
	in, key, n := newInbox(), types.NamespacedName{Name: "n"}, node("n")
	in.put(dialect.Nodes, key, n, true)
	in.remove(dialect.Nodes, key)
	in.put(dialect.Nodes, key, n, true)
	boxes, _, _ := in.take()
	told := 0
	boxes[dialect.Nodes].each(func(types.NamespacedName, client.Object) { told++ })
	if told != 1 {
		t.Errorf("told %d times", told)
	}
}

// TestPartition: what belongs to another shard does not exist here, and its requests are not ours to delete.
func TestPartition(t *testing.T) {
	t.Parallel()
	s := newStage(t, Options{Partition: kai.Partition{Key: kai.DefaultNodePoolKey, Value: "gold"}})
	gold := map[string]string{kai.DefaultNodePoolKey: "gold"}
	n1, n2, q1, q2, g1, g2 := node("n1"), node("n2"), &v2.Queue{ObjectMeta: metav1.ObjectMeta{Name: "q1"}}, &v2.Queue{ObjectMeta: metav1.ObjectMeta{Name: "q2"}}, gang("g1", ""), gang("g2", "")
	n1.Labels, q1.Labels, g1.Labels = gold, gold, gold
	other := bind(pod("p", "u", 1), "n2", 2)
	s.say(n1, n2, q1, q2, g1, g2, pod("p", "u", 1), other)
	s.expect("u@ Pending")
	snap := s.store.Snapshot(cluster.Instant{})
	if snap.NodeByName("n1") == nil || snap.NodeByName("n2") != nil || snap.QueueByName("q1") == nil || snap.QueueByName("q2") != nil ||
		snap.GangByKey(kai.GangKey("a", "g1")) == nil || snap.GangByKey(kai.GangKey("a", "g2")) != nil {
		t.Error("the shard is not what its label says")
	}
	if got := s.feed.StaleBindRequests(); len(got) != 0 {
		t.Errorf("another shard's request listed: %+v", got)
	}
	n1.Labels, n2.Labels = nil, gold // the nodes change shards
	s.say(n1, n2)
	s.expect("u@n2 Binding")
	if snap = s.store.Snapshot(cluster.Instant{}); snap.NodeByName("n1") != nil || snap.NodeByName("n2") == nil {
		t.Error("the nodes did not change shards")
	}
}

// TestFairnessWithoutHierarchy: --full-hierarchy-fairness=false takes the queues' parents away.
func TestFairnessWithoutHierarchy(t *testing.T) {
	t.Parallel()
	for flat, want := range map[bool]string{true: "", false: "department"} {
		s := newStage(t, Options{FlatQueues: flat})
		s.say(&v2.Queue{ObjectMeta: metav1.ObjectMeta{Name: "team"}, Spec: v2.QueueSpec{ParentQueue: "department"}}, &v2.Queue{ObjectMeta: metav1.ObjectMeta{Name: "department"}})
		s.drain()
		if got := s.store.Snapshot(cluster.Instant{}).QueueByName("team").Parent; got != want {
			t.Errorf("flat %t: the parent is %q, want %q", flat, got, want)
		}
	}
}

func TestPriorityClassesReachGangs(t *testing.T) {
	t.Parallel()
	s := newStage(t, Options{})
	class := &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "train"}, Value: 70}
	usual := &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "usual"}, Value: 9, GlobalDefault: true}
	check := func(g1, g2 int32) {
		t.Helper()
		s.drain()
		snap := s.store.Snapshot(cluster.Instant{})
		if a, b := snap.GangByKey(kai.GangKey("a", "g1")).Priority, snap.GangByKey(kai.GangKey("a", "g2")).Priority; a != g1 || b != g2 {
			t.Errorf("priorities %d and %d, want %d and %d", a, b, g1, g2)
		}
	}
	s.say(gang("g1", "train"), gang("g2", "missing"))
	check(50, 50)
	s.say(class)
	check(70, 50)
	s.say(usual)
	check(70, 9)
	class.Value = 120
	s.say(class)
	check(120, 9)
	s.end(class, usual)
	check(50, 50)
}

func TestChangesThatAreNone(t *testing.T) {
	t.Parallel()
	s := newStage(t, Options{})
	cm := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "c", UID: "1"}}
	ns := &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "2"}}
	n, g, p := node("n1"), gang("g", ""), pod("p", "u", 1)
	s.say(cm, ns, n, g, p)
	if s.drain() == 0 {
		t.Fatal("nothing came in")
	}
	g.Status.ResourcesStatus.Requested = v1.ResourceList{"cpu": resource.MustParse("1")}
	ns.Annotations, cm.Annotations = map[string]string{"x": "y"}, map[string]string{"x": "y"}
	n.Status.Conditions[0].LastHeartbeatTime = at(99)
	p.Status.Conditions = []v1.PodCondition{{Type: v1.PodScheduled, Status: v1.ConditionFalse}}
	s.say(cm)
	if s.feed.Waiting() != 0 {
		t.Error("a ConfigMap's content is nobody's business")
	}
	s.say(ns, n, g, p)
	if got := s.drain(); got != 0 {
		t.Errorf("%d changes of nothing that matters", got)
	}
	h := s.handlers["*v1.Pod"]
	o := s.known[s.key(p)]
	h.OnUpdate(o, o)
	if s.feed.Waiting() != 0 {
		t.Error("a resync is no change")
	}
}

func TestCoalescing(t *testing.T) {
	t.Parallel()
	s := newStage(t, Options{})
	p := pod("p", "u", 1)
	for i := range 10_000 {
		p.Annotations["x"] = fmt.Sprint(i)
		s.say(p)
		q := pod(fmt.Sprint("q", i), fmt.Sprint("v", i), 1) // comes and goes
		s.say(q)
		s.end(q)
	}
	if got := s.feed.Waiting(); got != 1 {
		t.Errorf("%d objects wait, want the one that is there", got)
	}
	if got := len(s.feed.inbox.boxes[dialect.Pods].order); got > 100 {
		t.Errorf("the order has grown to %d keys", got)
	}
	if got := s.drain(); got != 1 {
		t.Errorf("%d changes for one pod", got)
	}
	s.end(p)
	if got := s.feed.Waiting(); got != 1 {
		t.Errorf("%d objects wait, want the end of a pod that is known", got)
	}
	s.say(p) // back again before anyone looked
	s.end(p)
	if got := s.feed.Waiting(); got != 1 {
		t.Errorf("%d objects wait, want the end of a pod that is known", got)
	}
	s.expect()
}

func TestSyncedAndChanged(t *testing.T) {
	t.Parallel()
	s := newStage(t, Options{})
	if s.feed.Synced() {
		t.Error("synced before anything was listed")
	}
	s.say(node("n1"))
	<-s.feed.Changed()
	close(s.synced)
	<-s.feed.Changed()
	if !s.feed.Synced() {
		t.Error("not synced after everything was listed")
	}
	if s.drain() != 1 {
		t.Error("the node is not there")
	}
}

// TestOrderDoesNotMatter replays one history in many interleavings, with drains anywhere: each object's own events in
// order, those of different objects in any. The store must come out the same.
func TestOrderDoesNotMatter(t *testing.T) {
	t.Parallel()
	type step func(*stage)
	say := func(o client.Object) step {
		o = o.DeepCopyObject().(client.Object)
		return func(s *stage) { s.say(o) }
	}
	end := func(o client.Object) step { return func(s *stage) { s.end(o) } }
	var histories [][]step
	for i := range 6 {
		first, second := pod(fmt.Sprint("p", i), fmt.Sprint("u", i), 10), pod(fmt.Sprint("p", i), fmt.Sprint("v", i), 20)
		running := second.DeepCopy()
		running.Spec.NodeName, running.Status.Phase = "n1", v1.PodRunning
		before, after := bind(first, "n1", 11), bind(second, "n1", 21)
		switch i % 3 {
		case 0: // replaced, and decided anew
			histories = append(histories, []step{say(first), end(first), say(second)}, []step{say(before), end(before), say(after)})
		case 1: // decided before
			histories = append(histories, []step{say(first), end(first), say(second)}, []step{say(before)})
		case 2: // runs
			histories = append(histories, []step{say(second), say(running)}, []step{say(after)})
		}
	}
	n2 := node("n2")
	histories = append(histories, []step{say(node("n1"))}, []step{say(n2), end(n2)}, []step{say(gang("g", "train"))}, []step{say(gang("h", "")), end(gang("h", ""))},
		[]step{say(&schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "train"}, Value: 70})}, []step{say(&v2.Queue{ObjectMeta: metav1.ObjectMeta{Name: "q"}})})
	var first *cluster.Snapshot
	var stale []StaleBindRequest
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 1))
		s := newStage(t, Options{})
		next := make([]int, len(histories))
		for left := 0; left >= 0; {
			left = -1
			for _, i := range rng.Perm(len(histories)) {
				if next[i] == len(histories[i]) {
					continue
				}
				left = 0
				if rng.IntN(2) == 0 {
					histories[i][next[i]](s)
					next[i]++
				}
				if rng.IntN(4) == 0 {
					s.drain()
				}
			}
		}
		s.drain()
		snap := s.store.Snapshot(cluster.Instant{})
		if first == nil {
			first, stale = snap, s.feed.StaleBindRequests()
			continue
		}
		if diff := Compare(first, snap); len(diff) > 0 {
			t.Fatalf("seed %d:\n%s", seed, strings.Join(diff, "\n"))
		}
		if diff := cmp.Diff(stale, s.feed.StaleBindRequests()); diff != "" {
			t.Fatalf("seed %d: stale requests:\n%s", seed, diff)
		}
	}
	if len(stale) != 2 {
		t.Errorf("stale: %+v", stale)
	}
}

func TestProblems(t *testing.T) {
	t.Parallel()
	s := newStage(t, Options{})
	q := &v2.Queue{ObjectMeta: metav1.ObjectMeta{Name: "q"}, Spec: v2.QueueSpec{Resources: &v2.QueueResources{CPU: v2.QueueResource{Quota: -7}}}}
	g := gang("g", "")
	g.Spec.MinMember = ptr.To(int32(-1))
	s.say(q, g)
	s.drain()
	want := map[string]string{
		"Queue q":      "Queue q: spec.resources.cpu.quota is -7; it must be -1 (unlimited) or not negative",
		"PodGroup a/g": "PodGroup a/g: spec.minMember is -1; it must not be negative",
	}
	if diff := cmp.Diff(want, s.feed.Problems()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	q.Spec.Resources.CPU.Quota = 7
	s.say(q)
	s.end(g)
	s.drain()
	if got := s.feed.Problems(); len(got) != 0 {
		t.Errorf("still problems: %v", got)
	}
}

// TestRestrictNodes: pods go to the workers for what they ask for, GPUs by claim are GPUs as soon as the claim is known, and a node that
// carries neither label takes nobody, so that nobody has a share of it.
func TestRestrictNodes(t *testing.T) {
	t.Parallel()
	s := newStage(t, Options{RestrictNodes: true, GPUWorkerLabel: "gpu", CPUWorkerLabel: "cpu"})
	p, q, c, d := pod("p", "u", 1), pod("q", "v", 1), pod("c", "w", 1), pod("d", "x", 1)
	for _, p := range []*v1.Pod{q, c, d} {
		delete(p.Spec.Containers[0].Resources.Requests, "nvidia.com/gpu")
	}
	c.Spec.ResourceClaims = []v1.PodResourceClaim{{Name: "device", ResourceClaimName: ptr.To("gpu")}}
	d.Spec.ResourceClaims = []v1.PodResourceClaim{{Name: "device", ResourceClaimName: ptr.To("nic")}}
	claim := func(name, class string) *resourcev1.ResourceClaim {
		return &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: name, UID: types.UID(name)}, Spec: resourcev1.ResourceClaimSpec{
			Devices: resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{{Name: "one", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: class, Count: 1}}}},
		}}
	}
	see := func(want map[string]string) {
		t.Helper()
		s.store.Snapshot(cluster.Instant{}).EachPod(func(p *cluster.Pod) {
			if len(p.Class.RestrictTo) != 1 || p.Class.RestrictTo[0] != want[p.Name] {
				t.Errorf("%s is restricted to %v, want %s", p.Name, p.Class.RestrictTo, want[p.Name])
			}
		})
	}
	s.say(p, q, c, d)
	s.drain()
	see(map[string]string{"p": "gpu", "q": "cpu", "c": "cpu", "d": "cpu"})
	s.say(claim("gpu", "gpu.example.com"), claim("nic", "nic.example.com"))
	s.drain()
	see(map[string]string{"p": "gpu", "q": "cpu", "c": "gpu", "d": "cpu"})

	bare, gpus, cpus, cordoned := node("bare"), node("gpus"), node("cpus"), node("cordoned")
	gpus.Labels, cpus.Labels, cordoned.Spec.Unschedulable = map[string]string{"gpu": "false"}, map[string]string{"cpu": ""}, true // the label counts, not its value
	s.say(bare, gpus, cpus, cordoned)
	s.drain()
	for name, want := range map[string]string{"bare": cluster.NoWorkerLabel, "gpus": "", "cpus": "", "cordoned": "Unschedulable"} {
		if got := s.store.Snapshot(cluster.Instant{}).NodeByName(name).Problem; got != want {
			t.Errorf("%s: problem %q, want %q", name, got, want)
		}
	}
	bare.Labels = map[string]string{"cpu": ""}
	s.say(bare)
	s.drain()
	if got := s.store.Snapshot(cluster.Instant{}).NodeByName("bare").Problem; got != "" {
		t.Errorf("labelled: problem %q", got)
	}
}

// TestMIGWorkerLabel: the label says whose GPUs are cut into slices, whatever its name.
func TestMIGWorkerLabel(t *testing.T) {
	t.Parallel()
	s := newStage(t, Options{MIGWorkerLabel: "cut"})
	n, m := node("n1"), node("n2")
	n.Labels = map[string]string{"cut": "true", "nvidia.com/mig.strategy": "single"}
	m.Labels = map[string]string{"nvidia.com/mig.strategy": "single", "node-role.kubernetes.io/mig-enabled": "true"}
	s.say(n, m)
	s.drain()
	snap := s.store.Snapshot(cluster.Instant{})
	if got := snap.NodeByName("n1").Slicing; got != cluster.SlicedSingle {
		t.Errorf("n1 is cut as %s", got)
	}
	if got := snap.NodeByName("n2").Slicing; got != cluster.Unsliced {
		t.Errorf("n2 is cut as %s", got)
	}
}

// TestStorageCapacity: what CSI drivers say about room is only looked at when it is asked for.
func TestStorageCapacity(t *testing.T) {
	t.Parallel()
	for _, asked := range []bool{false, true} {
		s := newStage(t, Options{StorageCapacity: asked})
		if _, watched := s.handlers[fmt.Sprintf("%T", &storagev1.CSIStorageCapacity{})]; watched != asked {
			t.Errorf("asked %v, watched %v", asked, watched)
		}
		if !asked {
			continue
		}
		s.say(&storagev1.CSIStorageCapacity{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "c"}, StorageClassName: "fast"})
		s.drain()
		if _, ok := s.store.Snapshot(cluster.Instant{}).Objects(cluster.CSIStorageCapacities)["a/c"]; !ok {
			t.Error("the capacity is not in the snapshot")
		}
	}
}

// TestFlatQueues: without full hierarchy fairness parents are not looked at.
func TestFlatQueues(t *testing.T) {
	t.Parallel()
	for _, flat := range []bool{false, true} {
		s := newStage(t, Options{FlatQueues: flat})
		s.say(&v2.Queue{ObjectMeta: metav1.ObjectMeta{Name: "team"}, Spec: v2.QueueSpec{ParentQueue: "dept"}})
		s.drain()
		if got, want := s.store.Snapshot(cluster.Instant{}).QueueByName("team").Parent, map[bool]string{false: "dept"}[flat]; got != want {
			t.Errorf("flat %v: parent %q, want %q", flat, got, want)
		}
	}
}

// TestLostDelete: an informer that missed the end of an object hands over a tombstone, perhaps without the object.
func TestLostDelete(t *testing.T) {
	t.Parallel()
	s := newStage(t, Options{})
	p := pod("p", "u", 1)
	s.say(node("n1"), p)
	s.expect("u@ Pending")
	s.handlers["*v1.Pod"].OnDelete(toolscache.DeletedFinalStateUnknown{Key: "a/p"})
	s.handlers["*v1.Node"].OnDelete(toolscache.DeletedFinalStateUnknown{Key: "n1"})
	s.expect()
	if s.store.Snapshot(cluster.Instant{}).NodeByName("n1") != nil {
		t.Error("the node is still there")
	}
}
