package roles

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"

	"github.com/muster-scheduler/muster/internal/app"
	"github.com/muster-scheduler/muster/internal/kube/aside"
	"github.com/muster-scheduler/muster/internal/replay"
)

// get asks a process's own server.
func get(t *testing.T, url string) (status int, body string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

// freePort is one that nobody listens on at the moment.
func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// TestRoleEndpoints: each role serves metrics, and health where KAI's has a flag for it, where its flags say. A process
// whose cache is not complete is alive and not ready.
func TestRoleEndpoints(t *testing.T) {
	t.Parallel()
	for role, flags := range map[string][]string{
		Scheduler: {"listen-address"}, Queue: {"metrics-listen-address"},
		Binder: {"metrics-bind-address", "health-probe-bind-address"}, PodGrouper: {"metrics-bind-address", "health-probe-bind-address"},
		PodGroup: {"metrics-bind-address", "health-probe-bind-address"}, Admission: {"metrics-bind-address", "health-probe-bind-address"},
		NodeScale: {"metrics-bind-address", "health-probe-bind-address"}, All: {"listen-address", "health-probe-bind-address"},
	} {
		t.Run(role, func(t *testing.T) {
			t.Parallel()
			server := newPlane(t, true)
			args := []string{"--kubeconfig=" + server.kubeconfig()}
			for _, flag := range flags {
				args = append(args, fmt.Sprintf("--%s=127.0.0.1:%d", flag, freePort(t)))
			}
			more := args
			if role == Admission {
				more = append(slices.Clone(args), "--webhook-addr=0")
			}
			_, _, stop := launch(t, role, more...)
			server.await(begins(role)) // the listeners are open before anything is watched
			for _, arg := range args[1:] {
				_, address, _ := strings.Cut(arg, "=")
				for path, want := range map[string]int{"/metrics": 200, "/healthz": 200, "/readyz": 500} {
					if status, body := get(t, "http://"+address+path); status != want {
						t.Errorf("%s%s: %d %s", arg, path, status, body)
					}
				}
			}
			if err := stop(); err != nil {
				t.Error(err)
			}
			_, address, _ := strings.Cut(args[1], "=")
			if status, _ := get(t, "http://"+address+"/healthz"); status != 0 {
				t.Error("it still listens after its end")
			}
		})
	}
}

// TestPortTaken: a port that is taken stops the start, whichever role wants it for what; the error names it, its flag, and how to choose
// another.
func TestPortTaken(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	port := l.Addr().(*net.TCPAddr).Port
	address := l.Addr().String()
	tried := map[string]bool{}
	for _, role := range append(everyRole(), Operator) {
		for flag, value := range map[string]string{
			"listen-address": address, "metrics-bind-address": address, "metrics-listen-address": address, probeFlag: address,
			"profiler-port": fmt.Sprint(port), "plugin-server-port": fmt.Sprint(port), "webhook-addr": fmt.Sprint(port),
		} {
			given := "--" + flag + "=" + value
			s, err := tryParse(role, append(quiet(role, "--kubeconfig="+newPlane(t, true).kubeconfig()), given)...)
			if err != nil {
				continue // not a flag of this role
			}
			tried[flag] = true
			named := flag
			if role == All && strings.HasPrefix(flag, "metrics-") {
				named = "listen-address" // one process has one such address, by whichever flag it is given
			}
			s.Profiler = flag == "profiler-port"
			p, err := newProcess(roleNames(role), s, "v", logr.Discard())
			if err != nil {
				t.Fatal(err)
			}
			err = p.run(t.Context())
			for _, want := range []string{fmt.Sprint(port), "--" + named + ":", "choose another with --" + named + "="} {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("%s %s: %v lacks %q", role, given, err, want)
				}
			}
		}
	}
	if len(tried) != 7 {
		t.Errorf("tried only %v", tried)
	}
}

// TestDefaultPorts: what one process serves by default has a port of its own each; all roles in one answer probes beside their metrics,
// and serve decisions where the scheduler alone does.
func TestDefaultPorts(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]bool{
		"": true, "--plugin-server-port=9": false, "--health-probe-bind-address=:9": false, "--listen-address=0": false,
	} {
		p := &process{Settings: parse(t, All, strings.Fields(args)...), names: Names()}
		if p.probesGiveWay() != want {
			t.Errorf("%q: probes give way: %t", args, !want)
		}
	}
	p := &process{Settings: parse(t, Binder), names: []string{Binder}}
	if p.probesGiveWay() {
		t.Error("a binder has no other port for probes")
	}
}

// TestOneAddressForBoth: metrics and health may share a port.
func TestOneAddressForBoth(t *testing.T) {
	t.Parallel()
	server := newPlane(t, true)
	address := fmt.Sprintf("127.0.0.1:%d", freePort(t))
	launch(t, Binder, "--kubeconfig="+server.kubeconfig(), "--metrics-bind-address="+address, "--health-probe-bind-address="+address)
	server.await(begins(Binder))
	if status, _ := get(t, "http://"+address+"/healthz"); status != 200 {
		t.Errorf("status %d", status)
	}
}

func TestProfilerEndpoint(t *testing.T) {
	t.Parallel()
	server := newPlane(t, true)
	port := freePort(t)
	url := fmt.Sprintf("http://127.0.0.1:%d/debug/pprof/", port)
	args := quiet(Scheduler, "--kubeconfig="+server.kubeconfig(), fmt.Sprintf("--profiler-port=%d", port))
	_, _, stop := launch(t, Scheduler, args...)
	server.await(begins(Scheduler))
	if status, _ := get(t, url); status != 0 {
		t.Error("profiles are served without --enable-profiler")
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	server.paths = nil
	launch(t, Scheduler, append(args, "--enable-profiler")...)
	server.await(begins(Scheduler))
	if status, body := get(t, url); status != 200 || !strings.Contains(body, "goroutine") {
		t.Errorf("%d %s", status, body)
	}
}

// begins is what a role asks for when it begins to work. (An index that it declares before makes it ask for pods.)
func begins(role string) string {
	return map[string]string{
		Scheduler: "v1/nodes", Binder: "v1/nodes", PodGrouper: "v2alpha2/podgroups", PodGroup: "v2alpha2/podgroups",
		Queue: "v2/queues", Admission: "secrets/admission-webhook-tls-secret", NodeScale: "/podgroups", All: "/bindrequests",
	}[role]
}

// leaseOf is the path of each role's Lease below that of Leases.
func leaseOf(role string) string {
	return map[string]string{
		Scheduler: "kai-scheduler", Binder: "2ad35f9c.kai.scheduler", PodGrouper: "54dff599.kai.scheduler",
		PodGroup: "o1x22tjj.kai.scheduler", Queue: "ov3xj497.kai.scheduler", Admission: "ojptxr84.kai.scheduler", NodeScale: "7n7h49uc.kai.scheduler",
	}[role]
}

// TestLeaderElection: with --leader-elect a role only watches before it holds its Lease, which has KAI's name, so that its turn
// begins with what it knows (but admission, which needs no cache to lead); without, it asks for none.
func TestLeaderElection(t *testing.T) {
	t.Parallel()
	for _, role := range everyRole() {
		t.Run(role, func(t *testing.T) {
			t.Parallel()
			free := newPlane(t, true)
			_, _, stop := launch(t, role, quiet(role, "--kubeconfig="+free.kubeconfig())...)
			free.await(begins(role))
			if err := stop(); err != nil {
				t.Error(err)
			}
			if free.asked("lease") {
				t.Error("asked for a Lease without --leader-elect")
			}

			server := newPlane(t, true)
			server.refuse = true
			launch(t, role, quiet(role, "--kubeconfig="+server.kubeconfig(), "--leader-elect")...)
			for _, r := range roleNames(role) {
				server.await("namespaces/kai-scheduler/leases/" + leaseOf(r))
			}
			for _, r := range roleNames(role) {
				if r != Admission {
					server.await(begins(r))
				}
			}
			server.mu.Lock()
			if slices.Contains(roleNames(role), Admission) && server.asked(begins(Admission)) {
				t.Errorf("admission began to work without its Lease: %q", server.paths)
			}
			if len(server.writes) > 0 {
				t.Errorf("%s wrote without its Lease: %q", role, server.writes)
			}
			server.refuse = false
			server.mu.Unlock()
			for _, r := range roleNames(role) {
				server.await(begins(r))
			}
		})
	}
}

// TestLeaseNamespace: --namespace, else $NAMESPACE, else the pod's own, else KAI's.
func TestLeaseNamespace(t *testing.T) {
	t.Parallel()
	for _, role := range everyRole() {
		t.Run(role, func(t *testing.T) {
			t.Parallel()
			server := newPlane(t, true)
			server.refuse = true
			launch(t, role, quiet(role, "--kubeconfig="+server.kubeconfig(), "--leader-elect", "--namespace=elsewhere")...)
			for _, r := range roleNames(role) {
				server.await("namespaces/elsewhere/leases/" + leaseOf(r))
			}
		})
	}
}

// TestLeaseOfAShard: each shard has a Lease of its own.
func TestLeaseOfAShard(t *testing.T) {
	t.Parallel()
	server := newPlane(t, true)
	server.refuse = true
	launch(t, Scheduler, quiet(Scheduler, "--kubeconfig="+server.kubeconfig(), "--leader-elect", "--scheduler-name=muster,kai-scheduler", "--partition-label-value=gold")...)
	server.await("namespaces/kai-scheduler/leases/muster-gold")
}

// TestMissingKinds: a cluster without the CRDs stops every role at once, with words that say what to do.
func TestMissingKinds(t *testing.T) {
	t.Parallel()
	server := newPlane(t, false)
	for _, role := range everyRole() {
		s := parse(t, role, quiet(role, "--kubeconfig="+server.kubeconfig())...)
		p, err := newProcess(roleNames(role), s, "v", logr.Discard())
		if err != nil {
			t.Fatal(err)
		}
		err = p.run(t.Context())
		if err == nil {
			t.Errorf("%s ran without the CRDs", role)
			continue
		}
		for _, want := range []string{server.URL, "PodGroup", "Queue", "BindRequest", "install the CustomResourceDefinitions"} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v lacks %q", role, err, want)
			}
		}
	}
}

// TestAPIServerGone: a process that is started before the API server answers, or while it takes requests and says nothing, is alive
// and not ready, says what it waits for, and ends when it is told to; when the API server is there, its roles begin.
func TestAPIServerGone(t *testing.T) {
	t.Parallel()
	for _, role := range everyRole() {
		for _, mute := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/mute=%t", role, mute), func(t *testing.T) {
				t.Parallel()
				server := newPlane(t, true)
				server.away(true, mute)
				address := fmt.Sprintf("127.0.0.1:%d", freePort(t))
				flag := "--health-probe-bind-address="
				switch role {
				case Scheduler:
					flag = "--listen-address="
				case Queue:
					flag = "--metrics-listen-address="
				}
				_, log, stop := launch(t, role, append(quiet(role, "--kubeconfig="+server.kubeconfig()), flag+address)...)
				<-server.visited
				for path, want := range map[string]int{"/healthz": 200, "/readyz": 500} {
					if status, body := await(t, "http://"+address+path); status != want {
						t.Errorf("%s: %d %s", path, status, body)
					}
				}
				for _, want := range []string{server.URL, "waiting for the API server", "$KUBECONFIG", server.file} {
					for !strings.Contains(log.String(), want) && t.Context().Err() == nil {
						runtime.Gosched()
					}
				}
				if !mute {
					server.away(false, false)
					server.await(begins(role))
					return
				}
				began := time.Now()
				if err := stop(); err != nil || time.Since(began) > 5*time.Second {
					t.Errorf("ended with %v, %s after it was told to", err, time.Since(began))
				}
			})
		}
	}
}

// await asks a process's own server until it listens.
func await(t *testing.T, url string) (status int, body string) {
	t.Helper()
	for status == 0 && t.Context().Err() == nil {
		status, body = get(t, url)
	}
	return status, body
}

// TestVersionFlag: --version, KAI's default, says the version in the log and goes on.
func TestVersionFlag(t *testing.T) {
	t.Parallel()
	server := newPlane(t, true)
	for arg, want := range map[string]bool{"--version": true, "--version=false": false} {
		_, log, stop := launch(t, Scheduler, quiet(Scheduler, "--kubeconfig="+server.kubeconfig(), arg)...)
		server.await(begins(Scheduler))
		if err := stop(); err != nil {
			t.Error(err)
		}
		if got := strings.Contains(log.String(), "v1.2.3"); got != want {
			t.Errorf("%s: version in the log: %t", arg, got)
		}
		server.paths = nil
	}
}

// TestEndsWithItsContext: a process that is told to stop before anything answered ends.
func TestEndsWithItsContext(t *testing.T) {
	t.Parallel()
	server := newPlane(t, true)
	s := parse(t, All, quiet(Scheduler, quiet(Binder, "--kubeconfig="+server.kubeconfig())...)...)
	p, err := newProcess(Names(), s, "v", logr.Discard())
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer stop()
	if err := p.run(ctx); err != nil {
		t.Error(err)
	}
}

// TestDecisionsEndpoint: the latest evictions are told on this machine alone, at --plugin-server-port.
func TestDecisionsEndpoint(t *testing.T) {
	t.Parallel()
	server := newPlane(t, true)
	port := freePort(t)
	_, _, stop := launch(t, Scheduler, quiet(Scheduler, "--kubeconfig="+server.kubeconfig(), fmt.Sprintf("--plugin-server-port=%d", port))...)
	server.await(begins(Scheduler))
	for path, want := range map[string]string{"/decisions": "[]", "/get-nothing": "plugin not found", "/get-job-order": "plugin not found"} {
		if status, body := get(t, fmt.Sprintf("http://127.0.0.1:%d%s", port, path)); status == 0 || strings.TrimSpace(body) != want {
			t.Errorf("%s: %d %q", path, status, body)
		}
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	if status, _ := get(t, fmt.Sprintf("http://127.0.0.1:%d/decisions", port)); status != 0 {
		t.Error("it still listens after its end")
	}
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	p := &process{recorder: &replay.Recorder{}, Settings: &Settings{PluginPort: taken.Addr().(*net.TCPAddr).Port}, names: []string{Scheduler}, log: logr.Discard()}
	if err := p.tell(); err == nil || !strings.Contains(err.Error(), "--plugin-server-port") {
		t.Errorf("a port that is taken: %v", err)
	}
}

// TestWebhookPort: the webhooks are served at --webhook-addr; with all roles in one process only if asked for.
func TestWebhookPort(t *testing.T) {
	t.Parallel()
	dial := func(port int) error {
		c, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err == nil {
			c.Close()
		}
		return err
	}
	for _, tc := range []struct {
		role string
		args []string
		want bool
	}{{Admission, nil, true}, {All, nil, false}, {All, []string{"--admission"}, true}} {
		server, port := newPlane(t, true), freePort(t)
		args := append(tc.args, "--kubeconfig="+server.kubeconfig(), fmt.Sprintf("--webhook-addr=%d", port), "--metrics-bind-address=0", "--health-probe-bind-address=0")
		if tc.role == All {
			args = append(args, "--listen-address=0")
		}
		_, log, stop := launch(t, tc.role, args...)
		server.await(begins(tc.role))
		if tc.want {
			server.await(begins(Admission))
			for !strings.Contains(log.String(), "serving webhooks") { // the log is written by another goroutine
				runtime.Gosched()
			}
		}
		if err := dial(port); (err == nil) != tc.want {
			t.Errorf("%s %q: %v", tc.role, tc.args, err)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
		if dial(port) == nil {
			t.Errorf("%s still listens after its end", tc.role)
		}
	}
}

// TestHungWorkIsNoticed: what any role does goes through a guard that has the process's watchdog notice when it hangs: its liveness and
// its election hear which work of which role; what has ended is forgotten. What panics is one piece of work that failed.
func TestHungWorkIsNoticed(t *testing.T) {
	t.Parallel()
	for _, role := range append(everyRole(), Operator) {
		t.Run(role, func(t *testing.T) {
			t.Parallel()
			server := newPlane(t, true)
			p, err := newProcess(roleNames(role), parse(t, role, quiet(role, "--kubeconfig="+server.kubeconfig(), "--leader-elect", "--hung-after=1ns")...), "v1.2.3", logr.Discard())
			if err != nil {
				t.Fatal(err)
			}
			g, err := p.guard(role)
			if err != nil {
				t.Fatal(err)
			}
			var heard error
			if err := g.Do(t.Context(), "the test", "an object", func(context.Context) error {
				for heard == nil && t.Context().Err() == nil {
					heard = p.election.Alive()
				}
				panic("at last")
			}); !errors.Is(err, aside.ErrDefect) || !errors.Is(heard, app.ErrHung) || !strings.Contains(heard.Error(), "the test of the role "+role) {
				t.Errorf("%v; the election heard %v", err, heard)
			}
			if err := p.dog.Alive(); err != nil && strings.Contains(err.Error(), "the test") {
				t.Errorf("it has ended, but %v", err)
			}
		})
	}
}
