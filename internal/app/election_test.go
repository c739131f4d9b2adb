package app

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"
)

// These tests run in a bubble of fake time: a four-second Lease costs nothing.

// elapse lets fake time pass.
func elapse(d time.Duration) { <-time.After(d) }

func held(t *testing.T, client *fake.Clientset) string {
	t.Helper()
	lease, err := client.CoordinationV1().Leases("ns").Get(t.Context(), "lease", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if lease.Spec.HolderIdentity == nil {
		return ""
	}
	return *lease.Spec.HolderIdentity
}

func untilDone(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

func TestElectionLeadsAndReleases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		registry := prometheus.NewPedanticRegistry()
		e := NewElection(client, "a")
		var err error
		if e.Told, err = LeaderGauge(registry); err != nil {
			t.Fatal(err)
		}
		shows := func(want string) {
			t.Helper()
			help := "# HELP leader_election_master_status 1 while this process holds the Lease of that name, 0 while it stands by. No series without --leader-elect.\n# TYPE leader_election_master_status gauge\n"
			if err := testutil.GatherAndCompare(registry, strings.NewReader(help+`leader_election_master_status{name="lease"} `+want+"\n")); err != nil {
				t.Error(err)
			}
		}
		go func() { ended <- e.Turn("lease", "ns").RunLeading(ctx, untilDone) }()
		elapse(time.Minute)
		synctest.Wait()
		if got := held(t, client); got != "a" {
			t.Errorf("the Lease is held by %q, want a", got)
		}
		shows("1")
		defer shows("0")
		stop()
		if err := <-ended; err != nil {
			t.Errorf("a graceful stop returned %v", err)
		}
		if got := held(t, client); got != "" {
			t.Errorf("after the stop the Lease is held by %q, want nobody", got)
		}
	})
}

func TestElectionReturnsTheErrorOfLead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, broken := fake.NewClientset(), errors.New("broken")
		err := NewElection(client, "a").Turn("lease", "ns").RunLeading(t.Context(), func(context.Context) error { return broken })
		if !errors.Is(err, broken) {
			t.Errorf("got %v, want the error of lead", err)
		}
		if got := held(t, client); got != "" {
			t.Errorf("the Lease is still held by %q", got)
		}
	})
}

// Two candidates: the second starts when the first has stopped, soon after, and at no time do both lead.
func TestElectionHandsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		var leaders atomic.Int32
		lead := func(windDown time.Duration, began chan<- time.Time) func(context.Context) error {
			return func(ctx context.Context) error {
				if n := leaders.Add(1); n != 1 {
					t.Errorf("%d leaders at once", n)
				}
				began <- time.Now()
				<-ctx.Done()
				elapse(windDown)
				leaders.Add(-1)
				return nil
			}
		}
		first, stopFirst := context.WithCancel(t.Context())
		second, stopSecond := context.WithCancel(t.Context())
		began := make(chan time.Time, 1)
		ended := make(chan error, 2)
		// The first winds down for longer than the Lease lasts: it must keep renewing until it is done.
		const windDown = 20 * time.Second
		go func() { ended <- NewElection(client, "a").Turn("lease", "ns").RunLeading(first, lead(windDown, began)) }()
		<-began
		go func() { ended <- NewElection(client, "b").Turn("lease", "ns").RunLeading(second, lead(0, began)) }()
		elapse(time.Minute)
		asked := time.Now()
		stopFirst()
		gap := (<-began).Sub(asked) - windDown
		if gap < 0 || gap > 3*time.Second {
			t.Errorf("the successor began %s after the end of the leader, want between 0 and 3 s", gap)
		}
		stopSecond()
		for range 2 {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
	})
}

// A leader that dies without releasing is replaced after the Lease has run out.
func TestElectionReplacesTheDead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := metav1.NowMicro()
		dead, seconds := "dead", int32(4)
		client := fake.NewClientset(&coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: "lease", Namespace: "ns"},
			Spec:       coordinationv1.LeaseSpec{HolderIdentity: &dead, LeaseDurationSeconds: &seconds, AcquireTime: &now, RenewTime: &now},
		})
		start := time.Now()
		var took time.Duration
		err := NewElection(client, "b").Turn("lease", "ns").RunLeading(t.Context(), func(context.Context) error {
			took = time.Since(start)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if took < 4*time.Second || took > 7*time.Second {
			t.Errorf("took over after %s, want 4 to 7 s", took)
		}
	})
}

// records is a store of one Lease that, as an API server and unlike the fake client, refuses a change of an older version. While it is
// away nobody gets an answer.
type records struct {
	mu    sync.Mutex
	away  bool
	lease *coordinationv1.Lease
	n     int
}

func (r *records) client() *fake.Clientset {
	c := fake.NewClientset()
	kind := schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}
	c.PrependReactor("*", "leases", func(action k8stesting.Action) (bool, runtime.Object, error) {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.away {
			return true, nil, errors.New("nobody answers")
		}
		switch a := action.(type) {
		case k8stesting.GetAction:
			if r.lease == nil {
				return true, nil, apierrors.NewNotFound(kind, a.GetName())
			}
		case k8stesting.UpdateAction: // a CreateAction is one too
			l, ok := a.GetObject().(*coordinationv1.Lease)
			if !ok {
				return true, nil, errors.New("no Lease")
			}
			switch {
			case a.GetVerb() == "create" && r.lease != nil:
				return true, nil, apierrors.NewAlreadyExists(kind, l.Name)
			case a.GetVerb() == "update" && r.lease == nil:
				return true, nil, apierrors.NewNotFound(kind, l.Name)
			case a.GetVerb() == "update" && l.ResourceVersion != r.lease.ResourceVersion:
				return true, nil, apierrors.NewConflict(kind, l.Name, errors.New("another version"))
			}
			r.n++
			r.lease = l.DeepCopy()
			r.lease.ResourceVersion = strconv.Itoa(r.n)
		}
		return true, r.lease.DeepCopy(), nil
	})
	return c
}

func (r *records) set(away bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.away = away
}

func (r *records) holder() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return holder(r.lease)
}

// A leader that gets no answer stops writing before others may take over, keeps what it has, and goes on when there is an answer
// and nobody else has led. Until then it does not give the Lease away either.
func TestElectionRidesThrough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &records{}
		var told []bool
		e := NewElection(r.client(), "a")
		e.Told = func(_ string, leads bool) { told = append(told, leads) }
		turn := e.Turn("lease", "ns")
		if turn.Fence.Check() == nil {
			t.Error("a candidate may write")
		}
		ctx, stop := context.WithCancel(t.Context())
		turns := 0
		ended := make(chan error, 1)
		go func() {
			ended <- turn.RunLeading(ctx, func(ctx context.Context) error {
				turns++
				return untilDone(ctx)
			})
		}()
		elapse(time.Minute)
		for _, away := range []time.Duration{time.Second, 15 * time.Second, time.Hour} {
			if err := turn.Fence.Check(); err != nil {
				t.Fatalf("before the outage of %s: %v", away, err)
			}
			r.set(true)
			elapse(min(away, e.Renew))
			if err := turn.Fence.Check(); away > e.Renew && !errors.Is(err, ErrFenced) {
				t.Errorf("%s without an answer: it may write: %v", e.Renew, err)
			}
			elapse(away - min(away, e.Renew))
			if r.holder() != "a" {
				t.Errorf("the Lease of a leader that still works went to %q", r.holder())
			}
			r.set(false)
			elapse(e.Retry + time.Millisecond)
			if err := turn.Fence.Check(); err != nil {
				t.Errorf("after an outage of %s: %v", away, err)
			}
		}
		stop()
		if err := <-ended; err != nil || turns != 1 {
			t.Errorf("ended with %v after %d turns, want one turn and no error", err, turns)
		}
		if r.holder() != "" {
			t.Errorf("after the stop the Lease is held by %q", r.holder())
		}
		// Twice it was away for longer than the window.
		if want := []bool{false, true, false, true, false, true, false}; !slices.Equal(told, want) {
			t.Errorf("it was told to lead %v, want %v", told, want)
		}
	})
}

// A leader that is cut off writes nothing from before its successor begins, and ends when it sees the successor.
func TestElectionEndsWhenAnotherLeads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for range 20 { // the successor looks at random times
			r := &records{}
			first := NewElection(r.client(), "a").Turn("lease", "ns")
			second := NewElection(r.client(), "b").Turn("lease", "ns")
			cutOff := atomic.Bool{}
			client, ok := first.e.Client.(*fake.Clientset)
			if !ok {
				t.Fatal("no fake client")
			}
			client.PrependReactor("*", "leases", func(k8stesting.Action) (bool, runtime.Object, error) {
				return cutOff.Load(), nil, errors.New("nobody answers")
			})
			ctx, stop := context.WithCancel(t.Context())
			ended, ended2, leads := make(chan error, 1), make(chan error, 1), make(chan struct{})
			stopped := make(chan struct{})
			go func() {
				ended <- first.RunLeading(ctx, func(ctx context.Context) error {
					defer close(stopped)
					return untilDone(ctx)
				})
			}()
			elapse(10 * time.Second)
			go func() {
				ended2 <- second.RunLeading(ctx, func(ctx context.Context) error {
					if first.Fence.Check() == nil {
						t.Error("two processes may write")
					}
					close(leads)
					return untilDone(ctx)
				})
			}()
			elapse(10 * time.Second)
			cutOff.Store(true)
			<-leads
			elapse(time.Minute)
			if first.Fence.Check() == nil || second.Fence.Check() != nil {
				t.Error("not the successor, and it alone, may write")
			}
			cutOff.Store(false)
			if err := <-ended; !errors.Is(err, ErrLeaseLost) {
				t.Errorf("got %v, want ErrLeaseLost", err)
			}
			<-stopped
			if first.Fence.Check() == nil {
				t.Error("it may write after its end")
			}
			stop()
			if err := <-ended2; err != nil {
				t.Error(err)
			}
		}
	})
}

// A successor goes by each renewal, however many there are in one second: else it would begin before the leader's window ends.
func TestElectionCountsEveryRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for range 50 {
			r := &records{}
			e := NewElection(r.client(), "a")
			e.Retry = 300 * time.Millisecond
			first := e.Turn("lease", "ns")
			e.Identity, e.Retry = "b", 10*time.Millisecond
			second := e.Turn("lease", "ns")
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan error, 2)
			go func() { ended <- first.RunLeading(ctx, untilDone) }()
			elapse(10*time.Second + rand.N(time.Second))
			go func() {
				ended <- second.RunLeading(ctx, func(context.Context) error {
					if first.Fence.Check() == nil {
						t.Error("two processes may write")
					}
					return nil
				})
			}()
			elapse(10 * time.Second)
			client, ok := first.e.Client.(*fake.Clientset)
			if !ok {
				t.Fatal("no fake client")
			}
			client.PrependReactor("*", "leases", func(action k8stesting.Action) (bool, runtime.Object, error) {
				l, ok := action.(k8stesting.UpdateAction)
				return ok && holder(l.GetObject().(*coordinationv1.Lease)) == "a", nil, errors.New("refused")
			})
			if err := <-ended; err != nil {
				t.Error(err)
			}
			stop()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
	})
}

// A leader whose work hangs gives its Lease up without a word from the work.
func TestElectionGivesUpWhatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hangs, release := errors.New("hangs"), make(chan struct{})
		r := &records{}
		e := NewElection(r.client(), "a")
		began := time.Now()
		e.Alive = func() error {
			if time.Since(began) > time.Minute {
				return hangs
			}
			return nil
		}
		turn := e.Turn("lease", "ns")
		err := turn.RunLeading(t.Context(), func(context.Context) error {
			<-release
			return nil
		})
		if !errors.Is(err, hangs) || time.Since(began) > 62*time.Second || turn.Fence.Check() == nil {
			t.Errorf("%v after %s; it may write: %v", err, time.Since(began), turn.Fence.Check() == nil)
		}
		if r.holder() != "a" {
			t.Errorf("a Lease whose work has not ended went to %q at once", r.holder())
		}
		close(release)
	})
}

// A candidate that never led stops without an error and without touching the leader's Lease.
func TestElectionStopsWhileWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		first, stopFirst := context.WithCancel(t.Context())
		second, stopSecond := context.WithCancel(t.Context())
		ended := make(chan error, 2)
		go func() { ended <- NewElection(client, "a").Turn("lease", "ns").RunLeading(first, untilDone) }()
		elapse(10 * time.Second)
		go func() {
			ended <- NewElection(client, "b").Turn("lease", "ns").RunLeading(second, func(context.Context) error {
				t.Error("b led while a did")
				return nil
			})
		}()
		elapse(10 * time.Second)
		stopSecond()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if got := held(t, client); got != "a" {
			t.Errorf("the Lease is held by %q, want a", got)
		}
		stopFirst()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

func TestElectionRefusesImpossibleTimes(t *testing.T) {
	t.Parallel()
	for _, times := range []LeaseTimes{
		{3 * time.Second, 3 * time.Second, time.Second},
		{1500 * time.Millisecond, time.Second, time.Millisecond},
		{0, 0, 0},
		{3 * time.Second, 2 * time.Second, 1500 * time.Millisecond},
		{3 * time.Second, 2 * time.Second, 0},
	} {
		e := NewElection(fake.NewClientset(), "a")
		e.LeaseTimes = times
		err := e.Turn("lease", "ns").RunLeading(t.Context(), untilDone)
		if err == nil || !strings.Contains(err.Error(), "ns/lease") {
			t.Errorf("%v: got %v, want an error that names the Lease", times, err)
		}
	}
	if err := DefaultLeaseTimes().Validate(); err != nil {
		t.Error(err)
	}
}

func TestNewIdentity(t *testing.T) {
	t.Parallel()
	a, err := NewIdentity()
	if err != nil {
		t.Fatal(err)
	}
	b, err := NewIdentity()
	if err != nil {
		t.Fatal(err)
	}
	if a == b || strings.Count(a, "_") < 1 {
		t.Errorf("identities %q and %q: want HOST_UUID, each its own", a, b)
	}
}

func TestLeaseNames(t *testing.T) {
	t.Parallel()
	if got := SchedulerLease("kai-scheduler", ""); got != "kai-scheduler" {
		t.Errorf("got %s", got)
	}
	if got := SchedulerLease("kai-scheduler", "a100"); got != "kai-scheduler-a100" {
		t.Errorf("got %s", got)
	}
}

// TestSchedulerLeaseCanBeMade: whatever a label's value may be, the Lease has a name that the API server takes, KAI's where that
// is one, and no two partitions share it.
func TestSchedulerLeaseCanBeMade(t *testing.T) {
	t.Parallel()
	seen := map[string]string{}
	for partition, want := range map[string]string{
		"": "kai-scheduler", "a100": "kai-scheduler-a100", "v1.2": "kai-scheduler-v1.2", "GPU_Pool": "", "gpu-pool": "kai-scheduler-gpu-pool", "gpu_pool": "", "A": "",
	} {
		got := SchedulerLease("kai-scheduler", partition)
		if want != "" && got != want {
			t.Errorf("partition %q: %s, want %s", partition, got, want)
		}
		if errs := validation.IsDNS1123Subdomain(got); len(errs) > 0 {
			t.Errorf("partition %q: %s: %v", partition, got, errs)
		}
		if other, ok := seen[got]; ok {
			t.Errorf("partitions %q and %q share %s", partition, other, got)
		}
		seen[got] = partition
	}
}

// The Lease says where its leader is found; a successor that says it too overwrites it.
func TestElectionNotesWhereTheLeaderIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		for _, who := range []string{"a", "b"} {
			turn := NewElection(client, who).Turn("lease", "ns")
			turn.Notes = map[string]string{"place": who}
			if err := turn.RunLeading(t.Context(), func(context.Context) error {
				elapse(time.Minute) // through renewals
				l, err := client.CoordinationV1().Leases("ns").Get(t.Context(), "lease", metav1.GetOptions{})
				if err != nil || l.Annotations["place"] != who {
					t.Errorf("%v, %v", l.Annotations, err)
				}
				return nil
			}); err != nil {
				t.Fatal(err)
			}
		}
	})
}
