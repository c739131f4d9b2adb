//go:build lab

package e2e

import (
	"fmt"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-scheduler/muster/api/kai/keys"
	"github.com/muster-scheduler/muster/api/scheduling/v1alpha2"
	"github.com/muster-scheduler/muster/internal/lab"
)

// runsEnv names the environment variable that says how often each fault is played. Unless it is set, a test has a number of
// its own.
const runsEnv = "MUSTER_AVAILABILITY_RUNS"

func runs(t *testing.T, usually int) int {
	t.Helper()
	text := os.Getenv(runsEnv)
	if text == "" {
		return usually
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("%s is %q; it must be a whole number above 0", runsEnv, text)
	}
	return n
}

// faultTime is how long the API server misbehaves in each way.
const faultTime = 3 * time.Second

// figures prints the median and the worst of some times.
func figures(ds []time.Duration) string {
	s := slices.Sorted(slices.Values(ds))
	var all []string
	for _, d := range ds {
		all = append(all, d.Round(10*time.Millisecond).String())
	}
	return fmt.Sprintf("median %v, worst %v (%s)", s[len(s)/2].Round(10*time.Millisecond), s[len(s)-1].Round(10*time.Millisecond), strings.Join(all, " "))
}

// TestFailover: of two processes with all roles the one that leads is killed by SIGKILL while work comes and goes, again and
// again; the other takes over.
func TestFailover(t *testing.T) {
	w := newFixture(t, 8, lab.Options{})
	var pair [2]*process
	for i := range pair {
		pair[i] = newProcess(t, "all", w.lab.Kubeconfig(), "--leader-elect", "--plugin-server-port=0")
		pair[i].kept = true
	}
	leader, standby := pair[0], pair[1]
	leader.start()
	l := newLoad(t, w, "load")
	l.flows(t, loadSize, 30*time.Second)
	standby.start()
	var took []time.Duration
	for i := range runs(t, 2) {
		ns := fmt.Sprintf("failover-%d", i)
		w.namespace(t, ns)
		standby.awaitReady(t) // its cache has everything
		l.flows(t, 2*loadSize, 30*time.Second)
		leader.kill()
		took = append(took, w.probe(t, ns, time.Now(), 20*time.Second))
		w.erase(t, ns)
		leader.start()
		leader, standby = standby, leader
	}
	l.stop(t)
	t.Logf("time from SIGKILL of the leader of all roles until the other bound the first pod of a gang submitted then: %s", figures(took))
	if worst := slices.Max(took); worst > 10*time.Second {
		t.Errorf("the worst takeover took %v", worst)
	}
}

// TestRollingUpgrade: each role in a process of its own is replaced under load, as a rolling upgrade does it: a new process
// stands by until it is ready, then the old one is asked to stop.
func TestRollingUpgrade(t *testing.T) {
	w := newFixture(t, 8, lab.Options{})
	roles := []string{"scheduler", "binder", "podgrouper", "podgroup", "queue"}
	now := map[string]*process{}
	start := func(role string) *process {
		args := []string{"--leader-elect"}
		if role == "scheduler" {
			args = append(args, "--plugin-server-port=0")
		}
		p := newProcess(t, role, w.lab.Kubeconfig(), args...)
		p.kept = true
		p.start()
		return p
	}
	for _, role := range roles {
		now[role] = start(role)
	}
	l := newLoad(t, w, "load")
	l.flows(t, loadSize, 30*time.Second)
	for _, role := range roles {
		var took, ends []time.Duration
		for i := range runs(t, 1) {
			ns := fmt.Sprintf("upgrade-%s-%d", role, i)
			w.namespace(t, ns)
			next := start(role)
			next.awaitReady(t)
			l.flows(t, loadSize, 30*time.Second)
			since := time.Now()
			stopped := make(chan time.Duration, 1)
			go func(old *process) { stopped <- old.stop(t) }(now[role])
			took = append(took, w.probe(t, ns, since, 20*time.Second))
			ends = append(ends, <-stopped)
			now[role] = next
			w.erase(t, ns)
		}
		t.Logf("%s replaced: first bind of a gang submitted at SIGTERM of the old one: %s; the old one ended after at most %v", role, figures(took), slices.Max(ends).Round(10*time.Millisecond))
		if worst := slices.Max(took); worst > 10*time.Second {
			t.Errorf("%s: the worst replacement took %v", role, worst)
		}
	}
	l.stop(t)
}

// TestAPIServerFaults: the API server misbehaves in every way a proxy can make it, and then dies, while one process runs all
// roles under load. The process survives all of it, and its memory stays bounded.
func TestAPIServerFaults(t *testing.T) {
	w := newFixture(t, 8, lab.Options{Split: true})
	proxy, err := w.lab.NewProxy()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := proxy.Close(); err != nil {
			t.Error(err)
		}
	})
	p := newProcess(t, "all", proxy.Kubeconfig(), "--plugin-server-port=0")
	p.start()
	p.awaitReady(t)
	l := newLoad(t, w, "load")
	l.flows(t, loadSize, 30*time.Second)
	requests := v1alpha2.GroupVersion.Group
	writes := lab.Match{AnySubresource: true, Where: func(r lab.Request) bool { return r.Method != http.MethodGet }}
	for _, phase := range []struct {
		name   string
		faults []lab.Fault
		drop   bool
	}{
		{"all connections cut, five times a second", nil, true},
		{"409 to every second bind and BindRequest", []lab.Fault{
			{Match: lab.Match{Method: http.MethodPost, Resource: "pods", Subresource: "binding"}, Every: 2, Status: http.StatusConflict, Reason: metav1.StatusReasonConflict},
			{Match: lab.Match{Group: requests, Resource: "bindrequests", AnySubresource: true, Where: writes.Where}, Every: 2, Status: http.StatusConflict, Reason: metav1.StatusReasonConflict},
		}, false},
		{"429 with Retry-After: 1 to every third write", []lab.Fault{{Match: writes, Every: 3, Status: http.StatusTooManyRequests, Reason: metav1.StatusReasonTooManyRequests, RetryAfter: 1}}, false},
		{"503 to every second write", []lab.Fault{{Match: writes, Every: 2, Status: http.StatusServiceUnavailable, Reason: metav1.StatusReasonServiceUnavailable}}, false},
		{"binds and BindRequests take 2 s, as behind a slow webhook", []lab.Fault{
			{Match: lab.Match{Method: http.MethodPost, Resource: "pods", Subresource: "binding"}, Delay: 2 * time.Second},
			{Match: lab.Match{Method: http.MethodPost, Group: requests, Resource: "bindrequests"}, Delay: 2 * time.Second},
		}, false},
		{"no event can be written", []lab.Fault{{Match: lab.Match{Method: http.MethodPost, Resource: "events"}, Status: http.StatusTooManyRequests, Reason: metav1.StatusReasonTooManyRequests, RetryAfter: 1}}, false},
	} {
		from := w.binds("load")
		var hits []func() int
		for _, f := range phase.faults {
			hits = append(hits, proxy.Fail(f))
		}
		cut := 0
		tick, over := time.NewTicker(200*time.Millisecond), time.NewTimer(faultTime)
		for open := true; open; {
			select {
			case <-tick.C:
				if phase.drop {
					cut += proxy.Drop()
				}
			case <-over.C:
				open = false
			}
		}
		tick.Stop()
		meanwhile := w.binds("load") - from
		for _, hit := range hits {
			cut += hit()
		}
		proxy.Reset()
		if cut == 0 {
			t.Errorf("%s: nothing was hit", phase.name)
		}
		after := l.flows(t, 2*loadSize, 30*time.Second)
		t.Logf("%s, for %v: %d hit, %d pods bound meanwhile; %d further ones bound %v after it was over; %s", phase.name, faultTime, cut, meanwhile, 2*loadSize, after.Round(10*time.Millisecond), memory(t, p))
	}
	var gone, back []time.Duration
	w.namespace(t, "outage")
	l.blind(t)
	for i := range runs(t, 1) {
		took, err := w.lab.KillAPIServer(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		gone = append(gone, took)
		back = append(back, w.placeOne(t, fmt.Sprintf("after-%d", i)))
		// More than were submitted before: what comes next has to come, too.
		l.flows(t, (loadGangs+2)*loadSize, 90*time.Second)
		l.within(t)
	}
	t.Logf("API server killed by SIGKILL: away for %s; a pod submitted when it was ready again was bound after: %s; %s", figures(gone), figures(back), memory(t, p))
	if p.started != 1 || !p.running() {
		t.Errorf("the process did not survive: %v", p.exit())
	}
	l.stop(t)
	if rss := resident(t, p, "VmHWM"); rss > 512 {
		t.Errorf("the process had %d MiB of memory", rss)
	}
}

// placeOne makes a pod without a Job and returns how long it took until it had a node. It asks the API server itself: the
// watches of the test, and of the Job controller, have to recover from the outage, too.
func (w *fixture) placeOne(t *testing.T, name string) time.Duration {
	t.Helper()
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "outage", Name: name, Labels: map[string]string{keys.QueueLabel: "team"}},
		Spec:       gang("outage", name, 1, "").Spec.Template.Spec,
	}
	since := time.Now()
	w.create(t, p)
	tick, limit := time.NewTicker(50*time.Millisecond), time.After(90*time.Second)
	defer tick.Stop()
	for {
		var now corev1.Pod
		if err := w.client.Get(t.Context(), client.ObjectKeyFromObject(p), &now); err == nil && now.Spec.NodeName != "" {
			return time.Since(since)
		}
		select {
		case <-tick.C:
		case <-limit:
			t.Fatalf("pod %s has no node after 90 s", name)
		}
	}
}

// memory is what a process holds, in words.
func memory(t *testing.T, p *process) string {
	return fmt.Sprintf("RSS %d MiB, at most %d MiB", resident(t, p, "VmRSS"), resident(t, p, "VmHWM"))
}

// resident reads a line of a process's status, in MiB.
func resident(t *testing.T, p *process, line string) int {
	t.Helper()
	p.mu.Lock()
	pid := p.cmd.Process.Pid
	p.mu.Unlock()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for l := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(l, line+":"); ok {
			n, err := strconv.Atoi(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(value), "kB")))
			if err != nil {
				t.Fatal(err)
			}
			return n / 1024
		}
	}
	t.Fatalf("no line %s", line)
	return 0
}
