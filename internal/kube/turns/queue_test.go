package turns

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	testclock "k8s.io/utils/clock/testing"
	"pgregory.net/rapid"
)

// job is an item: the n-th of a tenant.
type job struct {
	tenant string
	n      int
}

func whose(j job) string { return j.tenant }

// TestOneRound: whatever arrives, whoever comes to the front of its tenant's line is served after each other tenant that has
// something to do was served once at most, and the items of one tenant are served in the order in which they came.
func TestOneRound(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		q := newQueue(&Options[job]{Tenant: whose, Workers: rapid.IntRange(1, 6).Draw(t, "workers")})
		lines := map[string][]job{} // what waits, as it should be served
		passed := map[string]int{}  // how many were served since the tenant's turn last came
		held := map[job]bool{}      // under way
		tenants := rapid.IntRange(1, 6).Draw(t, "tenants")
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			switch rapid.IntRange(0, 2).Draw(t, "step") {
			case 0:
				j := job{fmt.Sprint(rapid.IntRange(0, tenants-1).Draw(t, "tenant")), rapid.IntRange(0, 50).Draw(t, "item")}
				if slices.Contains(lines[j.tenant], j) || held[j] {
					q.Add(j)
					if held[j] {
						q.Done(j)
						delete(held, j)
						lines[j.tenant] = append(lines[j.tenant], j)
					}
					continue
				}
				q.Add(j)
				lines[j.tenant] = append(lines[j.tenant], j)
			case 1:
				if q.mu.Lock(); q.next() == nil || len(held) == q.workers {
					q.mu.Unlock()
					continue
				}
				q.mu.Unlock()
				got, over := q.Get()
				if over || len(lines[got.tenant]) == 0 || lines[got.tenant][0] != got {
					t.Fatalf("got %v, %v; waiting %v", got, over, lines)
				}
				lines[got.tenant], held[got], passed[got.tenant] = lines[got.tenant][1:], true, 0
				for other, line := range lines { // order: each on its own
					holds := slices.ContainsFunc(keys(held), func(j job) bool { return j.tenant == other })
					if len(line) == 0 || holds {
						passed[other] = 0
					} else if other != got.tenant {
						passed[other]++
					}
					if passed[other] >= tenants {
						t.Fatalf("tenant %s was passed %d times; %d tenants", other, passed[other], tenants)
					}
				}
			default:
				for _, j := range keys(held)[:min(1, len(held))] {
					q.Done(j)
					delete(held, j)
				}
			}
			// Idle workers serve whoever waits.
			if q.Len() > 0 && len(held) == 0 {
				if q.mu.Lock(); q.next() == nil {
					t.Fatal("all workers are idle, and nobody is served")
				}
				q.mu.Unlock()
			}
		}
		// Everything is served in the end, and nothing is kept.
		for _, j := range keys(held) {
			q.Done(j)
		}
		q.ShutDown()
		for {
			j, over := q.Get()
			if over {
				break
			}
			q.Done(j)
		}
		if len(q.lines)+q.ring.Len()+len(q.busy)+len(q.waiting) != 0 {
			t.Fatalf("left: %v", q)
		}
	})
}

func keys(m map[job]bool) []job {
	var out []job
	for j := range m { // order: sorted below
		out = append(out, j)
	}
	slices.SortFunc(out, func(a, b job) int { return slices.Compare([]int{a.n}, []int{b.n}) })
	return out
}

// TestNobodyHasAllWorkers: items that never end leave room for another tenant's.
func TestNobodyHasAllWorkers(t *testing.T) {
	t.Parallel()
	for _, workers := range []int{2, 4, 10, 40} {
		q := newQueue(&Options[job]{Tenant: whose, Workers: workers})
		for n := range 100 {
			q.Add(job{"noisy", n})
		}
		held := 0
		for q.next() != nil {
			if _, over := q.Get(); over {
				t.Fatal("over")
			}
			held++
		}
		if held < workers/2 || held >= workers {
			t.Errorf("%d workers: one tenant has %d", workers, held)
		}
		q.Add(job{"quiet", 0})
		if j, _ := q.Get(); j.tenant != "quiet" {
			t.Errorf("%d workers: got %v", workers, j)
		}
	}
}

// TestWokenWorkers: workers that sleep take up what comes, and end with the queue.
func TestWokenWorkers(t *testing.T) {
	t.Parallel()
	q := New(Options[job]{Tenant: whose, Workers: 4})
	var served sync.Map
	var all, workers sync.WaitGroup
	for range 4 {
		workers.Go(func() {
			for {
				j, over := q.Get()
				if over {
					return
				}
				if _, twice := served.LoadOrStore(j, true); !twice {
					all.Done()
				}
				q.Done(j)
			}
		})
	}
	all.Add(300)
	for n := range 100 {
		for _, tenant := range []string{"a", "b", "c"} {
			q.Add(job{tenant, n})
		}
	}
	all.Wait()
	q.ShutDownWithDrain()
	workers.Wait()
	if !q.ShuttingDown() || q.Len() != 0 {
		t.Error("not over")
	}
}

// TestRetries: a failure's wait doubles to its bound, a tenant's many retries come at a pace, and others are not slowed.
func TestRetries(t *testing.T) {
	t.Parallel()
	clock := testclock.NewFakeClock(time.Unix(1000, 0))
	l := newLimiter(&Options[job]{Tenant: whose, Backoff: time.Second, MaxBackoff: 5 * time.Minute, Clock: clock})
	for i, want := range []time.Duration{1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300} {
		if got := l.When(job{"a", 0}); got != want*time.Second {
			t.Errorf("failure %d: waits %v", i+1, got)
		}
	}
	l.Forget(job{"a", 0})
	last := time.Duration(0)
	for n := range 2500 {
		last = l.When(job{"noisy", n})
	}
	if want := (2499 - retryBurst) * retryEvery; last != want {
		t.Errorf("the last of 2,500 retries waits %v, want %v", last, want)
	}
	for n := range 10000 {
		last = l.When(job{"noisy", 2500 + n})
	}
	if last != 5*time.Minute {
		t.Errorf("the last of 12,500 retries waits %v", last)
	}
	if got := l.When(job{"b", 0}); got != time.Second {
		t.Errorf("another tenant's waits %v", got)
	}
	clock.Step(time.Hour)
	for n := range 200 {
		l.When(job{fmt.Sprint("tenant", n), 0})
		clock.Step(time.Second)
	}
	if len(l.next) > 130 {
		t.Errorf("%d tenants are remembered, one owes", len(l.next))
	}
}
