package feed

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-scheduler/muster/api/scheduling/v1alpha2"
	"github.com/muster-scheduler/muster/api/scheduling/v2"
	"github.com/muster-scheduler/muster/api/scheduling/v2alpha2"
	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/fieldtest"
)

// shelf is a client.Reader that lists what lies on it.
type shelf struct {
	client.Reader
	objects []client.Object
	fail    string // the list type that cannot be read
}

func (r shelf) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	if fmt.Sprintf("%T", list) == r.fail {
		return errors.New("forbidden")
	}
	for _, o := range r.objects {
		switch l := list.(type) {
		case *v1.NodeList:
			if x, ok := o.(*v1.Node); ok {
				l.Items = append(l.Items, *x)
			}
		case *v1.PodList:
			if x, ok := o.(*v1.Pod); ok {
				l.Items = append(l.Items, *x)
			}
		case *v2.QueueList:
			if x, ok := o.(*v2.Queue); ok {
				l.Items = append(l.Items, *x)
			}
		case *v2alpha2.PodGroupList:
			if x, ok := o.(*v2alpha2.PodGroup); ok {
				l.Items = append(l.Items, *x)
			}
		case *v1alpha2.BindRequestList:
			if x, ok := o.(*v1alpha2.BindRequest); ok {
				l.Items = append(l.Items, *x)
			}
		case *schedulingv1.PriorityClassList:
			if x, ok := o.(*schedulingv1.PriorityClass); ok {
				l.Items = append(l.Items, *x)
			}
		}
	}
	return nil
}

// TestRebuildIsTheFeed: a look at the cluster gives what watching it gave, and what differs is named.
func TestRebuildIsTheFeed(t *testing.T) {
	t.Parallel()
	p, q, r := pod("p", "u1", 1), pod("q", "u2", 1), pod("r", "u3", 1)
	r.Spec.NodeName, r.Status.Phase = "n1", v1.PodRunning
	objects := []client.Object{
		node("n1"), node("n2"), &v2.Queue{ObjectMeta: metav1.ObjectMeta{Name: "q"}}, gang("g", "train"),
		&schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "train"}, Value: 70}, p, q, r, bind(p, "n2", 2),
	}
	s := newStage(t, Options{})
	for i := range objects {
		s.say(objects[len(objects)-1-i])
	}
	s.drain()
	fresh := func(objects ...client.Object) *cluster.Snapshot {
		store := cluster.NewStore(cluster.Options{})
		if err := Rebuild(t.Context(), shelf{objects: objects}, Options{}, store); err != nil {
			t.Fatal(err)
		}
		return store.Snapshot(cluster.Instant{})
	}
	if diff := Compare(s.store.Snapshot(cluster.Instant{}), fresh(objects...)); len(diff) > 0 {
		t.Errorf("the feed differs from a fresh look:\n%s", strings.Join(diff, "\n"))
	}
	s.store.Assume("u2", "n1", nil, cluster.Forever)
	if diff := Compare(s.store.Snapshot(cluster.Instant{}), fresh(objects...)); len(diff) > 0 {
		t.Errorf("an assumption counts as a difference:\n%s", strings.Join(diff, "\n"))
	}
	// Without n1, r and the request: both are gone, with them p's place and n2's ledger.
	diff := Compare(s.store.Snapshot(cluster.Instant{}), fresh(objects[1:7]...))
	want := []string{"node n1: only in the first", "node n2: [", "pod a/p (u1): [{", "pod a/r (u3): only in the first"}
	for i := range max(len(diff), len(want)) {
		if i >= len(diff) || i >= len(want) || !strings.HasPrefix(diff[i], want[i]) {
			t.Fatalf("differences, want those of %q:\n%s", want, strings.Join(diff, "\n"))
		}
	}
	err := Rebuild(t.Context(), shelf{fail: "*v1.PodList"}, Options{}, cluster.NewStore(cluster.Options{}))
	if err == nil || !strings.Contains(err.Error(), "list *v1.Pod: forbidden") {
		t.Errorf("error %v", err)
	}
}

// TestAuditSeesEveryField: snapshots that differ in any field of any observed object do not compare equal.
func TestAuditSeesEveryField(t *testing.T) {
	t.Parallel()
	ignored := map[string]string{
		"Spec.Requests": "Requests are used", "Spec.Charge": "Charge is used",
		"Spec.Tolerations[0].TolerationSeconds": "says when to leave a node; where pods may run is the same",
	}
	differs(t, ignored, func() cluster.NodeState { return cluster.NodeState{} })
	differs(t, ignored, func() cluster.TopologyState { return cluster.TopologyState{} })
	differs(t, ignored, func() cluster.QueueState { return cluster.QueueState{} })
	differs(t, ignored, func() cluster.GangState { return cluster.GangState{Sets: cluster.FlatTree(7)} })
	differs(t, ignored, func() cluster.PodState {
		return cluster.PodState{Phase: cluster.Running, Requests: []cluster.Quantity{{Name: "cpu", Value: 7}}}
	})
}

func differs[E cluster.Event](t *testing.T, ignored map[string]string, state func() E) {
	t.Helper()
	snapshot := func(e cluster.Event) *cluster.Snapshot {
		s := cluster.NewStore(cluster.Options{})
		s.Apply(e)
		return s.Snapshot(cluster.UnixNano(1))
	}
	for i, c := range fieldtest.Changes(state()) {
		if c.In(ignored) || strings.HasPrefix(c.Path, "Sets[0].Children") { // no tree
			continue
		}
		was, is := fieldtest.Filled(state()), fieldtest.Changed(state(), i)
		if out := Compare(snapshot(was), snapshot(fieldtest.Filled(state()))); len(out) > 0 {
			t.Fatalf("%T: the same compares as %v", was, out)
		}
		if len(Compare(snapshot(was), snapshot(is))) == 0 {
			t.Errorf("%T: %s is not seen", was, c)
		}
	}
}
