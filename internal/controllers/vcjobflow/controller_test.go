package vcjobflow

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	batch "github.com/muster-scheduler/muster/api/volcano/batch/v1alpha1"
	flow "github.com/muster-scheduler/muster/api/volcano/flow/v1alpha1"
	"github.com/muster-scheduler/muster/api/volcano/keys"
	"github.com/muster-scheduler/muster/internal/controllers/admission/volcano"
	"github.com/muster-scheduler/muster/internal/kube/control"
	"github.com/muster-scheduler/muster/internal/kubetest"
)

func serves() kubetest.Options {
	return kubetest.Options{Kinds: append(kubetest.Builtin(), kubetest.Volcano()...)}
}

// start runs the controller; connect is what becomes of a connection to a pod.
func start(t *testing.T, p *kubetest.Process, tell func(text string), connect func(ip string, port int) error) func() {
	return p.Run(t, func(objects cache.Cache, c client.Client) (func(context.Context) error, error) {
		r, err := New(control.Shell{Cache: objects, Client: c, Log: logr.Discard(), Tell: func(_ client.Object, _ bool, reason, _ string) {
			if tell != nil {
				tell(reason)
			}
		}}, 2, volcano.ValidateJobFlow)
		if err != nil {
			return nil, err
		}
		r.connect = func(_ context.Context, ip string, port int) error { return connect(ip, port) }
		return r.Run, nil
	})
}

func run(t *testing.T, p *kubetest.Process) func() { return start(t, p, nil, nil) }

func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// jobs are the Jobs of the flow f that there are, with their phases.
func jobs(s *kubetest.Server) string {
	var out []string
	for _, part := range []string{"a", "b", "c", "d", "e"} {
		j := &batch.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "f-" + part}}
		if s.Get(j) {
			out = append(out, strings.TrimSuffix(part+"="+string(j.Status.State.Phase), "="))
		}
	}
	return strings.Join(out, " ")
}

// become brings a Job to a phase.
func become(s *kubetest.Server, part string, phase batch.JobPhase) {
	j := &batch.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "f-" + part}}
	kubetest.Edit(s, j, func(j *batch.Job) { j.Status.State = batch.JobState{Phase: phase, LastTransitionTime: metav1.Now()} })
}

func put(s *kubetest.Server, f *flow.JobFlow) {
	for _, p := range f.Spec.Flows {
		s.Put(template(p.Name))
	}
	s.Put(f)
}

func phase(s *kubetest.Server) flow.JobFlowPhase {
	f := jobFlow()
	s.Get(f)
	return f.Status.State.Phase
}

// TestLife: Volcano's example of a flow from its start to its end, where no Job is kept; between its Jobs' changes nothing is written.
func TestLife(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := kubetest.New(serves())
		run(t, s.Process("vcjobflow"))
		f := jobFlow("a", "b<a", "c<b", "d<b", "e<c,d")
		f.Spec.JobRetainPolicy = flow.Delete
		put(s, f)
		step := func(want string, phase flow.JobFlowPhase) {
			t.Helper()
			pass(time.Second)
			s.Get(f)
			if got := jobs(s); got != want || f.Status.State.Phase != phase {
				t.Errorf("there are %q, %s; want %q, %s", got, f.Status.State.Phase, want, phase)
			}
			s.Writes()
			pass(time.Hour)
			if w := s.Writes(); len(w) > 0 {
				t.Errorf("at rest: %v", w)
			}
		}
		step("a", flow.Pending)
		become(s, "a", batch.Running)
		step("a=Running", flow.Running)
		become(s, "a", batch.Completed)
		step("a=Completed b", flow.Running)
		s.Remove(&batch.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "f-a"}}) // its time was up
		become(s, "b", batch.Completed)
		step("b=Completed c d", flow.Running)
		become(s, "d", batch.Completed)
		step("b=Completed c d=Completed", flow.Running)
		become(s, "c", batch.Completed)
		step("b=Completed c=Completed d=Completed e", flow.Running)
		become(s, "e", batch.Completed)
		step("", flow.Succeed)
		if len(f.Status.CompletedJobs) != 5 || len(f.Status.JobStatusList) != 5 {
			t.Errorf("%+v", f.Status)
		}
	})
}

// TestFails: a Job that failed fails the flow, and no Job is made any more; those that there are stay.
func TestFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := kubetest.New(serves())
		run(t, s.Process("vcjobflow"))
		put(s, jobFlow("a", "b", "c<a"))
		pass(time.Second)
		become(s, "b", batch.Failed)
		pass(time.Second)
		become(s, "a", batch.Completed)
		pass(time.Hour)
		if got := jobs(s); got != "a=Completed b=Failed" || phase(s) != flow.Failed {
			t.Errorf("there are %s, %s", got, phase(s))
		}
	})
}

// TestOdd: a template that comes later, a Job of the name that is another's, a cycle: each is told once, and hinders no other flow.
func TestOdd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := kubetest.New(serves())
		told := map[string]int{}
		start(t, s.Process("vcjobflow"), func(text string) { told[text]++ }, nil)
		cycle, late := jobFlow("a<b", "b<a"), jobFlow("late")
		cycle.Name, cycle.UID, late.Name, late.UID = "cycle", "uid-cycle", "g", "uid-g"
		foreign := &batch.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "f-b"}}
		s.Put(cycle, late, foreign)
		put(s, jobFlow("a", "b"))
		pass(time.Minute)
		late.Labels = map[string]string{"a": "b"}
		s.Put(late)
		pass(time.Minute)
		if got := jobs(s); got != "a b" || told["InvalidJobFlow"] != 1 || told["JobTemplateNotFound"] != 1 || told["ForeignJob"] != 1 {
			t.Errorf("there are %s, told %v", got, told)
		}
		s.Remove(foreign)
		s.Put(template("late"))
		pass(5 * time.Minute)
		b, g := &batch.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "f-b"}}, &batch.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "g-late"}}
		if !s.Get(g) || !s.Get(b) || !metav1.IsControlledBy(b, jobFlow()) {
			t.Errorf("%+v, %+v", g, b)
		}
	})
}

// TestPodsAreAsked: a part with a probe starts when all pods of the task answer, and not before there are all.
func TestPodsAreAsked(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := kubetest.New(serves())
		var mu sync.Mutex
		open := map[string]bool{}
		start(t, s.Process("vcjobflow"), nil, func(ip string, port int) error {
			mu.Lock()
			defer mu.Unlock()
			if !open[net.JoinHostPort(ip, strconv.Itoa(port))] {
				return errors.New("closed")
			}
			return nil
		})
		f := jobFlow("a", "b<a")
		f.Spec.Flows[1].DependsOn.Probe = &flow.Probe{TCPSocketList: []flow.TCPSocket{{TaskName: "t", Port: 80}}}
		put(s, f)
		pass(time.Second)
		j := &batch.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "f-a"}}
		s.Get(j)
		pod := func(name, ip string, of *batch.Job) *corev1.Pod {
			return &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{
					Namespace: "default", Name: name, Labels: map[string]string{keys.JobName: "f-a", keys.TaskSpec: "t"},
					OwnerReferences: []metav1.OwnerReference{{APIVersion: batch.GroupVersion.String(), Kind: "Job", Name: of.Name, UID: of.UID, Controller: ptr.To(true)}},
				},
				Status: corev1.PodStatus{PodIP: ip},
			}
		}
		step := func(want string) {
			t.Helper()
			pass(time.Minute)
			if got := jobs(s); got != want {
				t.Errorf("there are %s, want %s", got, want)
			}
		}
		answer := func(address string) {
			mu.Lock()
			defer mu.Unlock()
			open[address] = true
		}
		another := j.DeepCopy()
		another.UID = "another"
		s.Put(pod("p0", "10.0.0.1", j), pod("forged", "10.0.0.9", another))
		answer("10.0.0.1:80")
		answer("10.0.0.9:80")
		step("a")
		s.Put(pod("p1", "10.0.0.2", j))
		step("a")
		answer("10.0.0.2:80")
		step("a b")
	})
}

// TestCrashes: the controller dies before and after each of its writes, and the next one ends where it would have ended: no Job twice.
func TestCrashes(t *testing.T) {
	t.Parallel()
	kubetest.Story{
		Options: serves(),
		Set: func(s *kubetest.Server) {
			f := jobFlow("a", "b<a", "c<b")
			f.Spec.JobRetainPolicy = flow.Delete
			put(s, f)
		},
		Beside: func(ctx context.Context, s *kubetest.Server) { // Jobs are completed two seconds after they were made
			for {
				select {
				case <-ctx.Done():
					return
				case <-time.After(2 * time.Second):
				}
				for _, part := range []string{"a", "b", "c"} {
					j := &batch.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "f-" + part}}
					if s.Get(j) && j.Status.State.Phase == "" {
						become(s, part, batch.Completed)
					}
				}
			}
		},
		Run:    run,
		Settle: time.Minute,
		Check: func(t *testing.T, s *kubetest.Server) {
			made := map[string]int{}
			for _, w := range s.Writes() {
				if w.Verb == "create" {
					made[w.Name]++
				}
			}
			if got := jobs(s); got != "" || phase(s) != flow.Succeed {
				t.Errorf("in the end: %s, %s", got, phase(s))
			}
			for name, n := range made { // order: each on its own
				if n > 2 { // who died after it asks once more, and is told that it is there
					t.Errorf("%s was asked for %d times", name, n)
				}
			}
		},
	}.Crashes(t)
}

// TestTroubles: lost answers, conflicts and refusals of writes end where undisturbed ones do.
func TestTroubles(t *testing.T) {
	t.Parallel()
	for _, what := range []string{"create Job", "patch JobFlow/status", "delete Job"} {
		for name, o := range map[string]kubetest.Outcome{
			"lost request": kubetest.LostRequest(), "lost answer": kubetest.LostAnswer(), "conflict": kubetest.Conflict(), "busy": kubetest.TooMany(1), "broken": kubetest.Broken("disk"),
		} {
			t.Run(what+" "+name, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					s := kubetest.New(serves())
					for n := 1; n < 4; n += 2 {
						s.Fault(kubetest.Nth(n, kubetest.Is(what), o))
					}
					run(t, s.Process("vcjobflow"))
					f := jobFlow("a", "b<a")
					f.Spec.JobRetainPolicy = flow.Delete
					put(s, f)
					pass(5 * time.Minute)
					become(s, "a", batch.Completed)
					pass(5 * time.Minute)
					become(s, "b", batch.Completed)
					pass(5 * time.Minute)
					if got := jobs(s); got != "" || phase(s) != flow.Succeed {
						t.Errorf("in the end: %s, %s", got, phase(s))
					}
				})
			})
		}
	}
}

// TestAnswers: what counts as an answer of a pod, on sockets.
func TestAnswers(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/ok" && r.URL.RawQuery == "a=b" && r.Header.Get("X") == "y", r.Host == "other":
		case r.URL.Path == "/moved":
			http.Redirect(w, r, "http://127.0.0.1:1/", http.StatusFound)
		default:
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	defer server.Close()
	ip, text, err := net.SplitHostPort(server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	for what, want := range map[*flow.HTTPGet]bool{
		{Path: "/ok?a=b", Port: port, HTTPHeader: &corev1.HTTPHeader{Name: "X", Value: "y"}}: true, {Path: "/ok", Port: port}: false, {Path: "/moved", Port: port}: true, {Path: "%", Port: port}: false,
		{Port: port, HTTPHeader: &corev1.HTTPHeader{Name: "host", Value: "other"}}: true, {Port: port, HTTPHeader: &corev1.HTTPHeader{Name: "a b", Value: "\n"}}: false,
	} {
		if err := get(t.Context(), ip, what); (err == nil) != want {
			t.Errorf("%+v: %v", what, err)
		}
	}
	if err := connect(t.Context(), ip, port); err != nil {
		t.Error(err)
	}
}
