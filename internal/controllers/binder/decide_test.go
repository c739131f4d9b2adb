package binder

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/muster-scheduler/muster/api/kai/keys"
	schedulingv1alpha2 "github.com/muster-scheduler/muster/api/scheduling/v1alpha2"
)

// TestDecide is the table of decisions about a bundle of three members, all of whom are ready to be bound unless a row
// says otherwise. A line of the answer is "verb pod", with "!" for a final retraction and the reason after it.
func TestDecide(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_700_000_000, 0)
	onNode := func(m *Member, node string) {
		m.Pod = m.Pod.DeepCopy()
		m.Pod.Spec.NodeName = node
	}
	ours := func(m *Member) {
		onNode(m, "n1")
		m.Pod.Annotations = map[string]string{keys.BundleLabel: "g"}
	}
	succeeded := func(m *Member) {
		m.Request = m.Request.DeepCopy()
		m.Request.Status.Phase = schedulingv1alpha2.BindRequestSucceeded
	}
	withdrawal := func(why string) string { return "bundle team/g is withdrawn: " + why }
	all := func(why string) []string {
		return []string{"retract p0! " + withdrawal(why), "retract p1! " + withdrawal(why), "retract p2! " + withdrawal(why)}
	}
	allBound := []string{"bind p0", "bind p1", "bind p2"}
	rows := []struct {
		name string
		edit func(b *Bundle, a, c, e *Member)
		want []string
		wake time.Duration // 0: never
	}{
		{name: "complete", want: allBound},
		{
			name: "incomplete",
			edit: func(b *Bundle, _, _, _ *Member) { b.Members, b.Complete = b.Members[:2], false },
			wake: 25 * time.Second,
		},
		{
			name: "incomplete for too long",
			edit: func(b *Bundle, _, _, _ *Member) {
				b.Members, b.Complete, b.LastArrival = b.Members[:2], false, now.Add(-30*time.Second)
			},
			want: all("2 of its 3 requests arrived within 30s")[:2],
		},
		{
			name: "incomplete, but started",
			edit: func(b *Bundle, a, _, _ *Member) {
				b.Members, b.Complete, b.LastArrival = b.Members[:2], false, now.Add(-time.Hour)
				ours(a)
			},
			want: []string{"report p0", "bind p1"},
		},
		{
			name: "incomplete, and somebody else bound one there",
			edit: func(b *Bundle, a, _, _ *Member) {
				b.Members, b.Complete = b.Members[:2], false
				onNode(a, "n1")
			},
			want: []string{"report p0"}, wake: 25 * time.Second,
		},
		{
			name: "a request was deleted before the start",
			edit: func(b *Bundle, _, _, _ *Member) { b.Members = b.Members[:2] },
			want: all("1 of its 3 requests were deleted before any was executed")[:2],
		},
		{
			name: "more requests than the size",
			edit: func(b *Bundle, _, _, _ *Member) { b.Size = 2 },
			want: all("it has 3 requests, its size is 2"),
		},
		{
			name: "contradiction",
			edit: func(b *Bundle, _, _, _ *Member) { b.Conflict = "they differ" },
			want: all("they differ"),
		},
		{
			name: "one needs preparation",
			edit: func(_ *Bundle, _, c, _ *Member) { c.Needs = true },
			want: []string{"prepare p1"},
		},
		{
			name: "preparation goes on by itself",
			edit: func(_ *Bundle, _, c, _ *Member) {
				c.Needs, c.Waiting, c.PrepareSince, c.Looked = true, true, now.Add(-20*time.Second), now.Add(-time.Second)
			},
			wake: lookAgain - time.Second,
		},
		{
			name: "preparation goes on by itself and nothing was heard of it",
			edit: func(_ *Bundle, _, c, _ *Member) {
				c.Needs, c.Waiting, c.PrepareSince, c.Looked = true, true, now.Add(-20*time.Second), now.Add(-lookAgain)
			},
			want: []string{"prepare p1"},
			wake: 100 * time.Second,
		},
		{
			name: "preparation takes too long",
			edit: func(_ *Bundle, _, c, _ *Member) {
				c.Needs, c.Waiting, c.PrepareSince = true, true, now.Add(-120*time.Second)
			},
			want: []string{"prepare p1 expired"},
		},
		{
			name: "preparation is under way",
			edit: func(_ *Bundle, _, c, _ *Member) { c.Needs, c.Busy = true, true },
		},
		{
			name: "prepared",
			edit: func(_ *Bundle, _, c, _ *Member) { c.Needs, c.Prepared = true, true },
			want: allBound,
		},
		{
			name: "a bind is under way",
			edit: func(_ *Bundle, _, c, _ *Member) { c.Busy = true },
			want: []string{"bind p0", "bind p2"},
		},
		{
			name: "an attempt is to be recorded, and what was prepared for it to be taken back, before anything else",
			edit: func(_ *Bundle, a, _, _ *Member) {
				a.Request.Spec.BackoffLimit = ptr.To[int32](2)
				a.Needs, a.Prepared, a.Attempts, a.Problem = true, true, 1, "no luck"
			},
			want: []string{"retract p0 no luck"},
		},
		{
			name: "a plain pod's wait holds up no other",
			edit: func(_ *Bundle, a, _, _ *Member) {
				a.Request.Spec.BackoffLimit = ptr.To[int32](2)
				a.Attempts, a.Recorded, a.Retry = 1, 1, now.Add(time.Second)
			},
			want: []string{"bind p1", "bind p2"}, wake: time.Second,
		},
		{
			name: "one failed for good while a bind is under way",
			edit: func(_ *Bundle, a, c, _ *Member) { a.Attempts, a.Problem, c.Busy = 1, "no luck", true },
		},
		{
			name: "one failed for good",
			edit: func(_ *Bundle, a, _, _ *Member) { a.Attempts, a.Problem = 1, "no luck" },
			want: all("pod team/p0: no luck"),
		},
		{
			name: "one failed for good after the start",
			edit: func(_ *Bundle, a, c, _ *Member) { a.Attempts, a.Problem, c.Bound = 1, "no luck", true },
			want: []string{"report p1", "retract p0! no luck", "bind p2"},
		},
		{
			name: "one failed for good after a start of which nothing is left",
			edit: func(b *Bundle, a, _, _ *Member) { a.Attempts, a.Problem, b.Started = 1, "no luck", true },
			want: []string{"retract p0! no luck", "bind p1", "bind p2"},
		},
		{
			name: "an earlier process began to withdraw",
			edit: func(_ *Bundle, a, _, _ *Member) {
				a.Doomed, a.Closed, a.ClosedAt = withdrawal("pod team/p1: no luck"), true, now
			},
			want: all("pod team/p1: no luck")[1:], wake: time.Minute,
		},
		{
			name: "the record of a failure is old",
			edit: func(_ *Bundle, a, c, e *Member) {
				for _, m := range []*Member{a, c, e} {
					m.Doomed, m.Closed, m.ClosedAt = "x", true, now.Add(-time.Minute)
				}
			},
			want: []string{"discard p0", "discard p1", "discard p2"},
		},
		{
			name: "bound elsewhere",
			edit: func(_ *Bundle, a, _, _ *Member) { onNode(a, "n2") },
			want: all("pod team/p0: the pod is bound to node n2 already, n1 was chosen"),
		},
		{
			name: "the node is not seen yet",
			edit: func(_ *Bundle, a, _, _ *Member) { a.NodeSeen, a.Seen = false, now },
			wake: 2 * time.Second,
		},
		{
			name: "the node is gone",
			edit: func(_ *Bundle, a, _, _ *Member) { a.NodeSeen = false },
			want: all("pod team/p0: node n1 is gone"),
		},
		{
			name: "the pod is not seen yet",
			edit: func(_ *Bundle, a, _, _ *Member) { a.Pod, a.Seen = nil, now },
			wake: 2 * time.Second,
		},
		{
			name: "the pod is not seen at all: ask",
			edit: func(_ *Bundle, a, _, _ *Member) { a.Pod = nil },
			want: []string{"drop p0"},
		},
		{
			name: "the pod is gone",
			edit: func(_ *Bundle, a, _, _ *Member) { a.Pod, a.PodConfirmed = nil, true },
			want: append([]string{"drop p0"}, all("pod team/p0: the pod is gone")[1:]...),
		},
		{
			name: "another pod of the name: ask",
			edit: func(_ *Bundle, a, _, _ *Member) { a.Pod = a.Pod.DeepCopy(); a.Pod.UID = "new" },
			want: []string{"drop p0"},
		},
		{
			name: "another pod of the name, although the request succeeded",
			edit: func(b *Bundle, a, c, e *Member) {
				for _, m := range []*Member{a, c, e} {
					succeeded(m)
				}
				a.Pod = a.Pod.DeepCopy()
				a.Pod.UID = "new"
			},
			want: []string{"drop p0"},
		},
		{
			name: "the pod is being deleted",
			edit: func(_ *Bundle, a, _, _ *Member) {
				a.Pod = a.Pod.DeepCopy()
				a.Pod.DeletionTimestamp = &metav1.Time{Time: now}
			},
			want: append([]string{"drop p0"}, all("pod team/p0: the pod is being deleted")[1:]...),
		},
		{
			name: "the pod has gates",
			edit: func(_ *Bundle, a, _, _ *Member) {
				a.Pod = a.Pod.DeepCopy()
				a.Pod.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "x"}}
			},
			want: all("pod team/p0: the pod has scheduling gates"),
		},
		{
			name: "all done",
			edit: func(_ *Bundle, a, c, e *Member) { succeeded(a); succeeded(c); succeeded(e) },
		},
		{
			name: "one is not reported",
			edit: func(_ *Bundle, a, c, e *Member) { succeeded(a); ours(c); succeeded(e) },
			want: []string{"report p1"},
		},
		{
			name: "the report is under way",
			edit: func(_ *Bundle, a, c, e *Member) { succeeded(a); ours(c); succeeded(e); c.Reporting = true },
		},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			b := &Bundle{Key: BundleKey{ns, "g"}, Size: 3, Complete: true, LastArrival: now.Add(-5 * time.Second)}
			for i := range 3 {
				name := fmt.Sprintf("p%d", i)
				b.Members = append(b.Members, &Member{
					Request: &schedulingv1alpha2.BindRequest{
						ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name},
						Spec:       schedulingv1alpha2.BindRequestSpec{PodName: name, SelectedNode: "n1"},
					},
					PodName: types.NamespacedName{Namespace: ns, Name: name}, PodUID: types.UID(name),
					Pod:      &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, UID: types.UID(name)}},
					NodeSeen: true, Seen: now.Add(-5 * time.Second), Size: 3,
				})
			}
			if row.edit != nil {
				row.edit(b, b.Members[0], b.Members[1], b.Members[2])
			}
			d := Decide(b, DefaultOptions(), now)
			var got []string
			for _, a := range d.Actions {
				line := a.Verb.String() + " " + a.Member.PodName.Name
				if a.Final {
					line += "!"
				}
				if a.Expired {
					line += " expired"
				}
				got = append(got, strings.TrimSpace(line+" "+a.Reason))
			}
			if diff := cmp.Diff(row.want, got); diff != "" {
				t.Errorf("actions (-want +got):\n%s", diff)
			}
			wake := time.Duration(0)
			if !d.Wake.IsZero() {
				wake = d.Wake.Sub(now)
			}
			if wake != row.wake {
				t.Errorf("wakes after %v, want %v", wake, row.wake)
			}
		})
	}
}

// TestBadRequests: what no client should write is refused with the object, the field and the rule.
func TestBadRequests(t *testing.T) {
	t.Parallel()
	type request = schedulingv1alpha2.BindRequest
	label := func(key, value string) func(*request) {
		return func(r *request) { metav1.SetMetaDataLabel(&r.ObjectMeta, key, value) }
	}
	for _, row := range []struct {
		name string
		edit func(*request)
		want string
	}{
		{"no owner", func(r *request) { r.OwnerReferences = nil }, "metadata.ownerReferences names no pod p0"},
		{"no node", func(r *request) { r.Spec.SelectedNode = "" }, "spec.selectedNode is empty"},
		{"no size", label(keys.BundleLabel, "g"), "label muster.dev/bundle is set without label muster.dev/bundle-size"},
		{"no bundle", label(keys.BundleSizeLabel, "1"), "label muster.dev/bundle-size is set without a value of label muster.dev/bundle"},
		{"size of nothing", func(r *request) { label(keys.BundleLabel, "g")(r); label(keys.BundleSizeLabel, "0")(r) }, `label muster.dev/bundle-size is "0", must be a number of at least 1`},
		{"size of letters", func(r *request) { label(keys.BundleLabel, "g")(r); label(keys.BundleSizeLabel, "NaN")(r) }, `is "NaN", must be a number`},
		{"huge size", func(r *request) {
			label(keys.BundleLabel, "g")(r)
			label(keys.BundleSizeLabel, "99999999999999999999")(r)
		}, "must be a number"},
		{"fraction", func(r *request) { r.Spec.ReceivedResourceType = "Fraction" }, "does not prepare shared GPUs"},
		{"unknown type", func(r *request) { r.Spec.ReceivedResourceType = "Half" }, `spec.receivedResourceType is "Half", must be Regular or Fraction`},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			w := newFakeAPI(t, "n1")
			w.addPod("p0")
			w.request("p0", "n1", "", 1, row.edit)
			p := w.start()
			p.settle()
			s := w.requests["p0"].Status
			if s.Phase != schedulingv1alpha2.BindRequestFailed || !strings.Contains(s.Reason, row.want) {
				t.Errorf("status %+v, want a failure with %q", s, row.want)
			}
			if len(w.boundPods()) > 0 {
				t.Error("the pod was bound")
			}
		})
	}
}

// TestForgedRequestsInMasses: each request that cannot be carried out costs the binder one status, its deletion in time, a condition and an event of the pod that it
// names if there is one, and nothing after that however long it stays; nothing is remembered of those that are gone.
func TestForgedRequestsInMasses(t *testing.T) {
	t.Parallel()
	w := newFakeAPI(t, "n1")
	writes := map[string]int{}
	w.fault = func(write, _ string, after bool) error {
		if !after {
			writes[write]++
		}
		return nil
	}
	const many = 300
	for i := range many {
		name := fmt.Sprint("p", i)
		w.addPod(name)
		w.request(name, "n1", "", 1, func(r *schedulingv1alpha2.BindRequest) { r.OwnerReferences = nil })
	}
	p := w.start()
	p.settle()
	p.pass(10 * time.Minute)
	for i := range many {
		w.editPod(fmt.Sprint("p", i), func(p *corev1.Pod) { metav1.SetMetaDataLabel(&p.ObjectMeta, "flip", "x") })
	}
	p.settle()
	p.pass(10 * time.Minute)
	if writes["status"] != many || writes["bind"] != 0 || writes["condition"] > many || writes["event"] > many || writes["delete"] > many {
		t.Errorf("writes %v for %d requests", writes, many)
	}
	for i := range many {
		if name := fmt.Sprint("p", i); w.requests[name] != nil {
			w.removeRequest(name)
		}
	}
	p.settle()
	if b := p.book; len(b.bundles)+len(b.members)+len(b.byPod)+len(b.byNode)+len(b.byClaim) != 0 {
		t.Errorf("left over: %d bundles, %d members", len(b.bundles), len(b.members))
	}
}

// TestPlainRequest: a request without labels, as other clients write it, is bound and told of in four writes.
func TestPlainRequest(t *testing.T) {
	t.Parallel()
	w := newFakeAPI(t, "n1")
	w.addPod("p0")
	w.request("p0", "n1", "", 1)
	var writes []string
	w.fault = func(write, _ string, after bool) error {
		if !after {
			writes = append(writes, write)
		}
		return nil
	}
	p := w.start()
	p.settle()
	p.pass(time.Minute)
	if want := []string{"bind", "condition", "event", "status"}; !slices.Equal(writes, want) {
		t.Errorf("writes %v, want %v", writes, want)
	}
	pod := w.pods["p0"]
	if got := pod.Annotations[keys.ReceivedResourceTypeAnnotation]; got != "Regular" {
		t.Errorf("%s is %q", keys.ReceivedResourceTypeAnnotation, got)
	}
	if c := podBound(pod); c == nil || c.Status != corev1.ConditionTrue || c.Reason != "Bound" {
		t.Errorf("condition %v", c)
	}
	if want := []string{"p0 Normal Bound: Bound to node n1"}; !slices.Equal(w.sent, want) {
		t.Errorf("events %v, want %v", w.sent, want)
	}
	if got := w.requests["p0"].Status; got.Phase != schedulingv1alpha2.BindRequestSucceeded {
		t.Errorf("status %+v", got)
	}
	// A pod that lives on costs nothing.
	w.editPod("p0", func(p *corev1.Pod) { p.Status.Phase = corev1.PodRunning })
	p.deliver("pod")
	if len(p.dirty) > 0 {
		t.Error("an event of a settled pod leads to a decision")
	}
}

// TestReplacedPod: the request of a pod that was replaced is deleted, whatever its phase, and nothing is bound for it.
func TestReplacedPod(t *testing.T) {
	t.Parallel()
	for _, phase := range []schedulingv1alpha2.BindRequestPhase{"", "Pending", "Failed"} {
		t.Run(string(phase), func(t *testing.T) {
			t.Parallel()
			w := newFakeAPI(t, "n1")
			w.addPod("p0")
			w.request("p0", "n1", "", 1, func(r *schedulingv1alpha2.BindRequest) { r.Status.Phase = phase })
			w.deletePod("p0")
			w.addPod("p0")
			p := w.start()
			p.settle()
			p.pass(3 * time.Second)
			if w.requests["p0"] != nil || len(w.boundPods()) > 0 {
				t.Errorf("request %v, bound %v", w.requests["p0"], w.boundPods())
			}
		})
	}
}

// BenchmarkDecide is a decision about a gang that lacks the last of its 501 members.
func BenchmarkDecide(b *testing.B) {
	w := newFakeAPI(failFast{}, "n1")
	w.gang(501, 500)
	p := w.start()
	key := BundleKey{ns, "g"}
	b.ReportAllocs()
	for b.Loop() {
		if tasks, _ := p.book.decide(key, w.now); len(tasks) > 0 {
			b.Fatal("bound too early")
		}
	}
}

type failFast struct{}

func (failFast) Fatal(args ...any)                 { panic(fmt.Sprint(args...)) }
func (failFast) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }
