package podgroup

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-scheduler/muster/api/kai/keys"
	v2 "github.com/muster-scheduler/muster/api/scheduling/v2"
	"github.com/muster-scheduler/muster/api/scheduling/v2alpha2"
	"github.com/muster-scheduler/muster/internal/dialect/kai"
	"github.com/muster-scheduler/muster/internal/kube/control"
	"github.com/muster-scheduler/muster/internal/kube/links"
	"github.com/muster-scheduler/muster/internal/kubetest"
)

// fixture runs the role in a bubble of fake time.
type fixture struct {
	*kubetest.Server
	t     *testing.T
	role  *Controller
	start time.Time
	told  *links.Links
}

// startFixture starts the role; the caller is in a synctest bubble. Objects are those that exist.
func startFixture(t *testing.T, objects ...client.Object) *fixture {
	t.Helper()
	return startTold(t, nil, objects...)
}

// startTold is startFixture where the podgrouper of the process tells something.
func startTold(t *testing.T, told *links.Links, objects ...client.Object) *fixture {
	t.Helper()
	r := &fixture{Server: kubetest.New(kubetest.Options{}), t: t, told: told}
	r.Put(objects...)
	r.run(r.Process("podgroup"))
	r.start = time.Now()
	return r
}

// run runs the role in a process until the test ends, or what it returns is called.
func (r *fixture) run(p *kubetest.Process) (stop func()) {
	return p.Run(r.t, func(objects cache.Cache, writer client.Client) (func(context.Context) error, error) {
		c, err := New(control.Shell{Cache: objects, Client: writer, Log: logr.Discard(), Registry: prometheus.NewRegistry()}, r.told, DefaultOptions())
		if err != nil {
			return nil, err
		}
		r.role = c
		return c.Run, nil
	})
}

func (r *fixture) get(name string) *v2alpha2.PodGroup {
	pg := makeGroup(name)
	if !r.Get(pg) {
		r.t.Errorf("no PodGroup %s", name)
	}
	return pg
}

// sleep lets the bubble's clock run.
func (r *fixture) sleep(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// wrote is when statuses of PodGroups were written, or tried to be, since the last call.
func (r *fixture) wrote() (at []time.Duration) {
	for _, w := range r.Writes() {
		if w.Kind == "PodGroup" && w.Subresource == "status" {
			at = append(at, w.At.Sub(r.start))
		}
	}
	return at
}

func (r *fixture) expect(what string, want ...time.Duration) {
	r.t.Helper()
	if d := cmp.Diff(want, r.wrote()); d != "" {
		r.t.Errorf("%s: writes at other times: %s", what, d)
	}
}

const ms = time.Millisecond

func TestWritesAreFewAndTimely(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		pg := makeGroup("gang")
		r := startFixture(t, pg)
		r.Put(makePod("a"))
		r.sleep(500 * ms)
		r.Put(makePod("a", on("n1")))
		r.sleep(400 * ms)
		r.Put(makePod("a", on("n1"), phase(corev1.PodRunning)))
		r.sleep(5 * time.Second)
		r.expect("a gang that is placed at once", 1500*ms)

		r.Put(makePod("a", on("n1"), phase(corev1.PodSucceeded)))
		r.sleep(600 * ms)
		r.Remove(makePod("a", on("n1"), phase(corev1.PodSucceeded)))
		r.sleep(5 * time.Second)
		r.expect("its end", 6900*ms)
		if s := r.get("gang").Status.ResourcesStatus; len(s.Requested)+len(s.Allocated) != 0 {
			t.Errorf("left over: %+v", s)
		}
	})
}

// TestToldOwnGangIsTheQueues: what a pod asks for of which it was told alone what gang it is by itself is in the annotation of its queue as if
// that were written on it, whichever of the two the role hears first.
func TestToldOwnGangIsTheQueues(t *testing.T) {
	t.Parallel()
	for _, toldFirst := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			told := links.New()
			told.Open(func(map[string]string) bool { return true })
			q := &v2.Queue{ObjectMeta: metav1.ObjectMeta{Name: "q"}}
			r := startTold(t, told, q)
			p := makePod("a")
			p.Annotations = map[string]string{}
			text := kai.WriteOwnGang(p, makeGroup("gang", func(pg *v2alpha2.PodGroup) { pg.Spec.Queue = "q" }), "")
			rest := func(when, want string) {
				t.Helper()
				r.sleep(10 * time.Second)
				if r.Get(q); q.Annotations[keys.RemnantsAnnotation] != want {
					t.Errorf("%s: the queue says %s, want %s", when, q.Annotations[keys.RemnantsAnnotation], want)
				}
			}
			if !toldFirst {
				r.Put(p)
				rest("nobody has told", "")
			}
			told.Tell(p, nil, text, time.Now())
			if toldFirst {
				r.Put(p)
			}
			rest("it waits", `{"requested":{"cpu":"1","nvidia.com/gpu":"1"}}`)
			r.Put(makePod("a", on("n1"), func(p *corev1.Pod) {
				p.Annotations = map[string]string{keys.OwnGangAnnotation: text, keys.ChargedAnnotation: "q/gang"}
			}))
			rest("it is bound", `{"allocated":{"cpu":"1","nvidia.com/gpu":"1"},"requested":{"cpu":"1","nvidia.com/gpu":"1"}}`)
			r.Remove(p)
			rest("it is gone", "")
		})
	}
}

func TestRequestsAloneAreWrittenWithinThreeSeconds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		pg := makeGroup("gang")
		r := startFixture(t, pg)
		for i := range 50 { // a stream of events must not push the write off for ever
			r.Put(makePod(fmt.Sprint(i)))
			r.sleep(210 * ms)
		}
		r.sleep(5 * time.Second)
		r.expect("a trickle of pods over ten seconds", 3000*ms, 6150*ms, 9300*ms, 12450*ms)
		if got := shown(r.get("gang").Status.ResourcesStatus.Requested)["nvidia.com/gpu"]; got != "50" {
			t.Errorf("requested %s GPUs", got)
		}
	})
}

func TestFillCostsAtMostTwoWritesPerGang(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const n = 400
		var objects []client.Object
		for i := range n {
			objects = append(objects, makeGroup(fmt.Sprintf("g%d", i)))
		}
		r := startFixture(t)
		in := func(i int) func(*corev1.Pod) { return annotated(kai.PodGroupAnnotation, fmt.Sprintf("g%d", i)) }
		for i := range n { // created within a second, bound one by one over forty
			r.Put(objects[i])
			r.Put(makePod(fmt.Sprint(i), in(i)))
			r.sleep(2 * ms)
		}
		for i := range n {
			r.Put(makePod(fmt.Sprint(i), in(i), on("n1")))
			r.sleep(100 * ms)
			r.Put(makePod(fmt.Sprint(i), in(i), on("n1"), phase(corev1.PodRunning)))
		}
		r.sleep(10 * time.Second)
		writes := len(r.wrote())
		if writes > 2*n {
			t.Errorf("%d writes for %d gangs", writes, n)
		}
		t.Logf("%d writes for %d gangs", writes, n)
		for i := range n {
			if got := shown(r.get(fmt.Sprintf("g%d", i)).Status.ResourcesStatus.Allocated)["nvidia.com/gpu"]; got != "1" {
				t.Fatalf("gang g%d: allocated %q", i, got)
			}
		}
	})
}

func TestRestartWritesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		pg := makeGroup("gang", observed(v2alpha2.PodGroupResourcesStatus{
			Requested: list("cpu", "2", "nvidia.com/gpu", "2"), Allocated: list("cpu", "2", "nvidia.com/gpu", "2"),
		}))
		r := startFixture(t, pg, makePod("a", on("n1"), phase(corev1.PodRunning)), makePod("b", on("n1"), phase(corev1.PodRunning)))
		r.sleep(10 * time.Second)
		r.expect("nothing had changed")
	})
}

func TestFailedWritesAreRepeatedAtAMeasuredPace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		pg := makeGroup("gang")
		r := startFixture(t, pg)
		works := r.Fault(func(c kubetest.Call) kubetest.Outcome {
			if c.Write == 0 {
				return kubetest.Outcome{}
			}
			return kubetest.LostRequest()
		})
		r.Put(makePod("a", on("n1")))
		r.sleep(31500 * ms)
		r.expect("failures", 1000*ms, 2000*ms, 4000*ms, 8000*ms, 16000*ms, 24000*ms)
		works()
		r.sleep(10 * time.Second)
		r.expect("success", 32000*ms)
	})
}

// The PodGroup goes while its status waits to be written: no error, no retry, no end of the role.
func TestGangGoesBeforeItsWrite(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := startFixture(t, makeGroup("gang"))
		r.Hold("PodGroup")
		r.Remove(makeGroup("gang")) // which the role is not told
		r.Put(makePod("a", on("n1")))
		r.sleep(10 * time.Second)
		r.expect("one try", 1000*ms)
		r.Release("PodGroup")
		r.Put(makePod("a", on("n1"), containers()))
		r.sleep(10 * time.Second)
		r.expect("none for a gang that is gone")
	})
}

// A pod deleted and made anew while the watch was down comes as one update.
func TestReplacedPodIsCountedOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		pg := makeGroup("gang")
		r := startFixture(t, pg)
		r.Put(makePod("a", on("n1")))
		synctest.Wait()
		r.Hold("Pod")
		r.Put(makePod("a", func(p *corev1.Pod) { p.UID = "another" }))
		r.Expire("Pod")
		r.sleep(5 * time.Second)
		s := r.get("gang").Status.ResourcesStatus
		if d := cmp.Diff(map[string]string{"cpu": "1", "nvidia.com/gpu": "1"}, shown(s.Requested)); d != "" || len(s.Allocated) != 0 {
			t.Errorf("requested %s; allocated %v", d, s.Allocated)
		}
	})
}

func TestBadOptionsAreNamed(t *testing.T) {
	t.Parallel()
	for want, o := range map[string]Options{
		"podgroup role: --scheduler-name: at least one name is needed":       {MaxConcurrentReconciles: 1},
		"podgroup role: --scheduler-name: a name must not be empty":          {SchedulerNames: []string{""}, MaxConcurrentReconciles: 1},
		"podgroup role: --max-concurrent-reconciles=0: it must be 1 or more": {SchedulerNames: []string{"a"}},
	} {
		_, err := New(control.Shell{}, nil, o)
		if err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

// TestPodGroupsWithoutPodsCostNothing: PodGroups that somebody makes in masses cost no write, and no memory once they are gone.
func TestPodGroupsWithoutPodsCostNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := startFixture(t)
		for i := range 2000 {
			r.Put(makeGroup(fmt.Sprintf("g%d", i)))
		}
		r.sleep(10 * time.Second)
		for i := range 2000 {
			r.Remove(makeGroup(fmt.Sprintf("g%d", i)))
		}
		r.sleep(10 * time.Second)
		r.expect("they hold nothing, and say so")
		if n := len(r.role.aggregator.gangs); n != 0 {
			t.Errorf("%d are remembered", n)
		}
	})
}

// TestFlipsAreWrittenAtOurPace: whoever changes something of a running pod, or writes into a PodGroup's status, twenty times a second
// causes one write a second at most, and what is nothing to us causes none.
func TestFlipsAreWrittenAtOurPace(t *testing.T) {
	t.Parallel()
	const flips, every = 20 * 60, 50 * ms
	t.Run("labels and annotations of a pod", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			pg := makeGroup("gang")
			r := startFixture(t, pg)
			r.Put(makePod("a", on("n1")))
			r.sleep(5 * time.Second)
			r.expect("the pod", 1000*ms)
			for i := range flips {
				is := makePod("a", on("n1"), annotated("note", fmt.Sprint(i)))
				is.Labels = map[string]string{"kai.scheduler/queue": fmt.Sprint(i % 2)}
				r.Put(is)
				r.sleep(every)
			}
			r.expect("nothing that it holds changed")
		})
	})
	t.Run("the gang that a waiting pod says", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			here, there := makeGroup("gang"), makeGroup("other")
			r := startFixture(t, here, there)
			r.Put(makePod("a"))
			for i := range flips {
				is := makePod("a", annotated(kai.PodGroupAnnotation, []string{"other", "gang"}[i%2]))
				r.Put(is)
				r.sleep(every)
			}
			r.sleep(5 * time.Second)
			if n := len(r.wrote()); n > 2*60/3+4 {
				t.Errorf("%d writes in a minute of two gangs", n)
			}
		})
	})
	t.Run("a status that somebody else writes", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			pg := makeGroup("gang")
			r := startFixture(t, pg)
			r.Put(makePod("a", on("n1")))
			r.sleep(5 * time.Second)
			r.wrote()
			for i := range flips {
				kubetest.Edit(r.Server, pg, func(pg *v2alpha2.PodGroup) {
					pg.Status.ResourcesStatus.Allocated = list("nvidia.com/gpu", fmt.Sprint(100+i))
				})
				r.sleep(every)
			}
			if n := len(r.wrote()); n > 61 {
				t.Errorf("%d writes in a minute", n)
			}
			r.sleep(5 * time.Second)
			if got := shown(r.get("gang").Status.ResourcesStatus.Allocated)["nvidia.com/gpu"]; got != "1" {
				t.Errorf("what was written last stands: %s GPUs", got)
			}
		})
	})
}

// TestClaimsComeLater: without ResourceClaims the rest is counted; once the API server serves them, they are, too.
func TestClaimsComeLater(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := &fixture{Server: kubetest.New(kubetest.Options{}), t: t, start: time.Now()}
		r.Serve("ResourceClaim", false)
		r.Put(makeGroup("gang"), makeClaim("c", exactly("gpu.nvidia.com", 2)), makePod("a", on("n1"), uses("c")))
		r.run(r.Process("podgroup"))
		r.sleep(5 * time.Second)
		for _, want := range []string{"", "2"} {
			if got := shown(r.get("gang").Status.ResourcesStatus.Allocated); got["gpu.nvidia.com"] != want || got["cpu"] != "1" {
				t.Errorf("allocated %v, want %q of the claim", got, want)
			}
			r.Serve("ResourceClaim", true)
			r.sleep(time.Minute)
		}
	})
}

// TestCrashes: the role dies at its write, before or after it, and the next one writes what is true.
func TestCrashes(t *testing.T) {
	t.Parallel()
	kubetest.Story{
		Set: func(s *kubetest.Server) {
			s.Put(makeGroup("gang"), makeGroup("other"), makePod("a", on("n1")), makePod("b", on("n1"), annotated(kai.PodGroupAnnotation, "other")))
		},
		Run: func(t *testing.T, p *kubetest.Process) func() { return (&fixture{t: t}).run(p) }, Settle: 10 * time.Second,
		Check: func(t *testing.T, s *kubetest.Server) {
			for _, name := range []string{"gang", "other"} {
				if got := shown((&fixture{Server: s, t: t}).get(name).Status.ResourcesStatus.Allocated)["nvidia.com/gpu"]; got != "1" {
					t.Errorf("%s: %q GPUs", name, got)
				}
			}
			if got := s.Writes(); len(got) != 2 {
				t.Errorf("writes %v, want each once", got)
			}
		},
	}.Crashes(t)
}
