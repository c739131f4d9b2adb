package app

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"
)

// These tests run in a bubble of fake time: a four-second Lease costs nothing.

// elapse lets fake time pass.
func elapse(d time.Duration) { <-time.After(d) }

func holder(t *testing.T, client *fake.Clientset) string {
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
		go func() { ended <- e.RunLeading(ctx, "lease", "ns", untilDone) }()
		elapse(time.Minute)
		synctest.Wait()
		if got := holder(t, client); got != "a" {
			t.Errorf("the Lease is held by %q, want a", got)
		}
		shows("1")
		defer shows("0")
		stop()
		if err := <-ended; err != nil {
			t.Errorf("a graceful stop returned %v", err)
		}
		if got := holder(t, client); got != "" {
			t.Errorf("after the stop the Lease is held by %q, want nobody", got)
		}
	})
}

func TestElectionReturnsTheErrorOfLead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, broken := fake.NewClientset(), errors.New("broken")
		err := NewElection(client, "a").RunLeading(t.Context(), "lease", "ns", func(context.Context) error { return broken })
		if !errors.Is(err, broken) {
			t.Errorf("got %v, want the error of lead", err)
		}
		if got := holder(t, client); got != "" {
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
		go func() { ended <- NewElection(client, "a").RunLeading(first, "lease", "ns", lead(windDown, began)) }()
		<-began
		go func() { ended <- NewElection(client, "b").RunLeading(second, "lease", "ns", lead(0, began)) }()
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
		err := NewElection(client, "b").RunLeading(t.Context(), "lease", "ns", func(context.Context) error {
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

// When the API server fails, the leader gives up before the Lease runs out for others, and its context ends.
func TestElectionLosesTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		var down atomic.Bool
		client.PrependReactor("update", "leases", func(action k8stesting.Action) (bool, runtime.Object, error) {
			lease, ok := action.(k8stesting.UpdateAction).GetObject().(*coordinationv1.Lease)
			if down.Load() && ok && *lease.Spec.HolderIdentity != "" {
				return true, nil, errors.New("API server is gone")
			}
			return false, nil, nil
		})
		leading, ended := make(chan struct{}), make(chan struct{})
		result := make(chan error, 1)
		go func() {
			result <- NewElection(client, "a").RunLeading(t.Context(), "lease", "ns", func(ctx context.Context) error {
				close(leading)
				<-ctx.Done()
				close(ended)
				return nil
			})
		}()
		<-leading
		elapse(time.Minute)
		down.Store(true)
		lost := time.Now()
		err := <-result
		if !errors.Is(err, ErrLeaseLost) {
			t.Errorf("got %v, want ErrLeaseLost", err)
		}
		if took := time.Since(lost); took > 4*time.Second {
			t.Errorf("noticed after %s, later than others may take over", took)
		}
		// Renewals failed, but a release would have passed: it must not happen while lead works.
		if got := holder(t, client); got != "a" {
			t.Errorf("the Lease of a leader that still worked went to %q", got)
		}
		<-ended
	})
}

// A candidate that never led stops without an error and without touching the leader's Lease.
func TestElectionStopsWhileWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		first, stopFirst := context.WithCancel(t.Context())
		second, stopSecond := context.WithCancel(t.Context())
		ended := make(chan error, 2)
		go func() { ended <- NewElection(client, "a").RunLeading(first, "lease", "ns", untilDone) }()
		elapse(10 * time.Second)
		go func() {
			ended <- NewElection(client, "b").RunLeading(second, "lease", "ns", func(context.Context) error {
				t.Error("b led while a did")
				return nil
			})
		}()
		elapse(10 * time.Second)
		stopSecond()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if got := holder(t, client); got != "a" {
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
	e := NewElection(fake.NewClientset(), "a")
	e.Renew = e.Lease
	err := e.RunLeading(t.Context(), "lease", "ns", untilDone)
	if err == nil || !strings.Contains(err.Error(), "ns/lease") {
		t.Errorf("got %v, want an error that names the Lease", err)
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
	seen := map[string]string{}
	for _, role := range []string{"admission", "binder", "podgrouper", "podgroup", "queue", "nodescale", "operator"} {
		name, err := LeaseName(role)
		if err != nil {
			t.Error(err)
		}
		if other, twice := seen[name]; twice {
			t.Errorf("roles %s and %s share the Lease %s", role, other, name)
		}
		seen[name] = role
	}
	if _, err := LeaseName("scheduler"); err == nil {
		t.Error("the scheduler has one Lease per shard, so it must have none by role")
	}
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
