package feed

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-scheduler/muster/api/scheduling/v2"
	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/dialect"
)

// truth is an API server: it has objects and lists them in parts. What it says to its watch is the test's business.
type truth struct {
	client.Reader
	version *int
	objects map[string]client.Object // by type and key
	part    int
	expired bool // the next part of a list is of a moment that is forgotten
	// before is called before each answer.
	before func()
}

func (r *truth) name(o client.Object, key client.ObjectKey) string {
	return fmt.Sprintf("%T %s", o, key)
}

func (r *truth) put(o client.Object) { r.objects[r.name(o, client.ObjectKeyFromObject(o))] = o }

func (r *truth) drop(o client.Object) {
	delete(r.objects, r.name(o, client.ObjectKeyFromObject(o)))
}

func (r *truth) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	r.before()
	o := r.objects[r.name(into, key)]
	if o == nil {
		return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
	}
	switch x := into.(type) {
	case *v1.Pod:
		*x = *o.(*v1.Pod).DeepCopy()
	case *v1.Node:
		*x = *o.(*v1.Node).DeepCopy()
	case *v1.Namespace:
		*x = *o.(*v1.Namespace).DeepCopy()
	default:
		return fmt.Errorf("unexpected %T", into)
	}
	return nil
}

func (r *truth) List(_ context.Context, list client.ObjectList, opts ...client.ListOption) error {
	r.before()
	o := (&client.ListOptions{}).ApplyOptions(opts)
	var of []client.Object
	for k := range dialect.Kinds {
		if fmt.Sprintf("%T", k.WatchedList()) != fmt.Sprintf("%T", list) {
			continue
		}
		for _, x := range r.objects { // order: sorted below
			if fmt.Sprintf("%T", x) == fmt.Sprintf("%T", k.Watched()) {
				of = append(of, x)
			}
		}
	}
	slices.SortFunc(of, func(a, b client.Object) int {
		return compareKeys(client.ObjectKeyFromObject(a), client.ObjectKeyFromObject(b))
	})
	of = slices.DeleteFunc(of, func(x client.Object) bool {
		return o.Continue != "" && client.ObjectKeyFromObject(x).String() <= o.Continue
	})
	if o.Continue != "" && r.expired {
		r.expired = false
		err := apierrors.NewResourceExpired("forgotten")
		err.ErrStatus.Continue = o.Continue
		return err
	}
	list.SetResourceVersion(fmt.Sprint(*r.version))
	if len(of) > r.part {
		of = of[:r.part]
		list.SetContinue(client.ObjectKeyFromObject(of[len(of)-1]).String())
	}
	items := make([]runtime.Object, len(of))
	for i := range of {
		items[i] = of[i].DeepCopyObject()
	}
	return meta.SetList(list, items)
}

// exhibit is a feed with its store, the truth beside it, and somebody who drains.
type exhibit struct {
	*stage
	truth  *truth
	in     *Inspector
	orders chan func()
}

// Reached makes the script a source that says how far its watch is: all the way, or as far as it has told.
func (s *script) Reached(context.Context, client.Object) string {
	if s.told != nil {
		return fmt.Sprint(s.told())
	}
	return fmt.Sprint(s.version)
}

// exhibits runs do in a bubble of time.
func exhibits(t *testing.T, do func(t *testing.T, x *exhibit)) {
	synctest.Test(t, func(t *testing.T) {
		x := &exhibit{stage: newStage(t, Options{}), orders: make(chan func())}
		x.truth = &truth{version: &x.version, objects: map[string]client.Object{}, part: 3, before: func() {}}
		var err error
		if x.in, err = NewInspector(x.feed, x.truth, InspectorOptions{}); err != nil {
			t.Fatal(err)
		}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			for {
				select {
				case <-x.feed.Changed():
					x.feed.Drain(x.store)
				case order, more := <-x.orders:
					if !more {
						return
					}
					order()
				}
			}
		}()
		close(x.synced)
		synctest.Wait()
		do(t, x)
		close(x.orders)
		<-ended
	})
}

// happen makes objects so, and tells of it.
func (x *exhibit) happen(objects ...client.Object) {
	for _, o := range objects {
		x.say(o)
		x.truth.put(x.known[x.key(o)])
	}
}

// withhold makes objects so, and tells nobody.
func (x *exhibit) withhold(objects ...client.Object) {
	for _, o := range objects {
		x.version++
		o = o.DeepCopyObject().(client.Object)
		o.SetResourceVersion(fmt.Sprint(x.version))
		x.truth.put(o)
	}
}

func (x *exhibit) world() {
	x.happen(node("n1"), node("n2"), node("n3"), node("n4"), &v2.Queue{ObjectMeta: metav1.ObjectMeta{Name: "q"}}, gang("g", "train"),
		&v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "u-a"}})
	for i := range 7 {
		x.happen(pod(fmt.Sprint("p", i), fmt.Sprint("u", i), int64(i)))
	}
	x.happen(bind(pod("p0", "u0", 0), "n1", 1))
	synctest.Wait()
}

func (x *exhibit) all(t *testing.T) *Inspection {
	t.Helper()
	got, err := x.in.All(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// TestInspectorFindsWhatDiffers: events that were withheld, and a store that was tampered with, are found, healed and counted, by
// everything at once and by one part after another; what the scheduler decided itself is no difference.
func TestInspectorFindsWhatDiffers(t *testing.T) {
	t.Parallel()
	for _, slow := range []bool{false, true} {
		exhibits(t, func(t *testing.T, x *exhibit) {
			x.world()
			x.orders <- func() {
				x.store.Assume("u1", "n2", nil, cluster.Forever)
				x.store.AssumeEvicted("u2", cluster.Key{}, cluster.Forever)
			}
			x.truth.expired = true
			if got := x.all(t); len(got.Differences)+got.Undecided != 0 || got.Compared["Pod"] != 7 || got.Compared["Node"] != 4 {
				t.Fatalf("before: %+v", got)
			}
			running := pod("p3", "u3", 3)
			running.Spec.NodeName, running.Status.Phase = "n3", v1.PodRunning
			x.withhold(running, pod("new", "u-new", 9), &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "b", UID: "u-b"}})
			x.truth.drop(pod("p4", "u4", 4))
			x.orders <- func() {
				x.store.Apply(cluster.PodGone{UID: "u5"}, cluster.NodeGone{Name: "n4"})
			}
			var found []string
			if slow {
				ctx, stop := context.WithCancel(t.Context())
				done := make(chan error, 1)
				x.in.o.Every = inspectEvery
				go func() { done <- x.in.Run(ctx) }()
				<-x.in.o.Clock.After((time.Duration(dialect.Kinds) + 20) * inspectEvery) // every kind, in parts of three, and what is in doubt
				stop()
				if err := <-done; err != nil {
					t.Fatal(err)
				}
			} else {
				for _, d := range x.all(t).Differences {
					found = append(found, d.String())
				}
				slices.Sort(found)
				want := []string{
					"Namespace b: the store does not know it", "Node n4: the store took version", "Pod a/new: the store does not know it",
					"Pod a/p3: the store knows version", "Pod a/p4: the store knows it at version", "Pod a/p5: the store took version",
				}
				for i := range max(len(found), len(want)) {
					if i >= len(found) || i >= len(want) || !strings.HasPrefix(found[i], want[i]) {
						t.Fatalf("found, want those of %q:\n%s", want, strings.Join(found, "\n"))
					}
				}
			}
			for kind, want := range map[string]float64{"Pod": 4, "Node": 1, "Namespace": 1, "Queue": 0} {
				if got := testutil.ToFloat64(x.in.counts.WithLabelValues(kind)); got != want {
					t.Errorf("%v differences of kind %s are counted, want %v", got, kind, want)
				}
			}
			if got := x.all(t); len(got.Differences)+got.Undecided != 0 {
				t.Errorf("healed: %+v", got)
			}
			order := make(chan bool)
			x.orders <- func() {
				where := map[string]string{}
				x.store.Snapshot(cluster.Instant{}).EachPod(func(p *cluster.Pod) { where[p.UID] = p.NodeName })
				_, gone := where["u4"]
				_, there := where["u5"]
				if where["u1"] != "n2" || where["u3"] != "n3" || gone || !there {
					t.Errorf("pods are at %v", where)
				}
				close(order)
			}
			<-order
		})
	}
}

// TestInspectorUnderChurn: while objects come, change and go, and the watch lags behind, nothing differs.
func TestInspectorUnderChurn(t *testing.T) {
	t.Parallel()
	exhibits(t, func(t *testing.T, x *exhibit) {
		x.world()
		random := rand.New(rand.NewPCG(1, 2))
		type event struct {
			version int
			tell    func()
		}
		var late []event // what the watch has not told yet
		x.told = func() int {
			if len(late) > 0 {
				return late[0].version - 1
			}
			return x.version
		}
		phases := []v1.PodPhase{v1.PodPending, v1.PodRunning, v1.PodSucceeded}
		x.truth.before = func() {
			for range random.IntN(4) {
				i := random.IntN(12)
				p := pod(fmt.Sprint("p", i), fmt.Sprintf("u%d-%d", i, random.IntN(2)), int64(i))
				p.Status.Phase = phases[random.IntN(len(phases))]
				if p.Status.Phase != v1.PodPending {
					p.Spec.NodeName = "n1"
				}
				if random.IntN(3) == 0 {
					if x.truth.objects[x.key(p)] != nil {
						x.version++
						x.truth.drop(p)
						late = append(late, event{x.version, func() { x.end(x.known[x.key(p)]) }})
					}
					continue
				}
				x.withhold(p)
				now := x.truth.objects[x.key(p)]
				late = append(late, event{x.version, func() {
					h, old := x.handlers["*v1.Pod"], x.known[x.key(now)]
					x.known[x.key(now)] = now
					if old == nil {
						h.OnAdd(now, false)
					} else {
						h.OnUpdate(old, now)
					}
				}})
			}
			for len(late) > 0 && random.IntN(3) > 0 {
				late[0].tell()
				late = late[1:]
			}
			synctest.Wait()
		}
		for range 30 {
			if got := x.all(t); len(got.Differences) != 0 {
				t.Fatalf("found %v", got.Differences)
			}
		}
	})
}
