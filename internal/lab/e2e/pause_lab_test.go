//go:build lab

package e2e

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-scheduler/muster/api/kai/keys"
	"github.com/muster-scheduler/muster/internal/lab"
)

// accepted are the writes of one process that the API server took, in the order of its answers. Leases and questions that are asked
// by writing do not count.
type accepted struct {
	mu    sync.Mutex
	times []time.Time
	what  []string
}

// follow has a proxy keep account of the writes that pass it, until its Reset.
func (a *accepted) follow(p *lab.Proxy) {
	p.Count(lab.Match{AnySubresource: true, Where: func(r lab.Request) bool {
		if r.Method == http.MethodGet || r.Resource == "leases" || strings.HasSuffix(r.Resource, "reviews") {
			return false
		}
		a.mu.Lock()
		defer a.mu.Unlock()
		a.times = append(a.times, time.Now())
		a.what = append(a.what, fmt.Sprintf("%s %s %s/%s", r.Method, r.Resource, r.Namespace, r.Name))
		return true
	}})
}

// after is the first write after a moment; ok is false if there was none.
func (a *accepted) after(since time.Time) (at time.Time, what string, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	i := slices.IndexFunc(a.times, func(t time.Time) bool { return t.After(since) })
	if i < 0 {
		return time.Time{}, "", false
	}
	return a.times[i], a.what[i], true
}

// roleLeases is how many Leases a process with all roles holds that leads in all of them.
const roleLeases = 5

// leaders are the processes that hold Leases of roles, each with how many, by a watch (see watch).
func (w *fixture) leaders(t *testing.T) map[string]int {
	t.Helper()
	held := map[string]int{}
	for _, l := range list(w, &coordinationv1.LeaseList{}, client.InNamespace(keys.Namespace)).Items {
		if by := ptr.Deref(l.Spec.HolderIdentity, ""); by != "" {
			held[by]++
		}
	}
	return held
}

// TestPause: of two processes with all roles the one that leads is stopped by SIGSTOP for longer than its Leases last, or gets no
// answers for as long; the other takes all of them over. From its first write on nothing that the old one writes is taken, and the old
// one ends as soon as it looks. (Leases are taken over one by one. If the old one could go on before the last, it would rightly write
// what that one allows; so it is held until then.)
func TestPause(t *testing.T) {
	w := newFixture(t, 8, lab.Options{})
	var pair [2]*process
	var proxies [2]*lab.Proxy
	var audits [2]*accepted
	for i := range pair {
		proxy, err := w.lab.NewProxy()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := proxy.Close(); err != nil {
				t.Error(err)
			}
		})
		proxies[i], audits[i] = proxy, &accepted{}
		audits[i].follow(proxy)
		pair[i] = newProcess(t, "all", proxy.Kubeconfig(), "--leader-elect", "--plugin-server-port=0")
		pair[i].kept = true
	}
	w.watch(t, &coordinationv1.Lease{})
	leader, standby := 0, 1
	pair[leader].start()
	l := newLoad(t, w, "load")
	l.flows(t, loadSize, 30*time.Second)
	pair[standby].start()
	for i := range runs(t, 3) {
		for _, fault := range []string{"SIGSTOP", "no answers"} {
			pair[standby].awaitReady(t)
			l.flows(t, 2*loadSize, 30*time.Second)
			var old string
			w.must(t, 20*time.Second, func() string {
				held := w.leaders(t)
				for old = range held { // order: there is one
				}
				if len(held) != 1 || held[old] != roleLeases {
					return fmt.Sprintf("the Leases are held by %v, and one process should lead in all roles", held)
				}
				return ""
			})
			began, ended := time.Now(), pair[leader].ended
			var goOn func()
			if fault == "SIGSTOP" {
				pair[leader].send(t, syscall.SIGSTOP)
				goOn = func() { pair[leader].send(t, syscall.SIGCONT) }
			} else {
				proxies[leader].Reset() // of the fault before, which is over
				audits[leader].follow(proxies[leader])
				over := make(chan struct{})
				proxies[leader].Fail(lab.Fault{Match: lab.Match{AnySubresource: true, Where: func(lab.Request) bool { return true }}, Until: over})
				goOn = func() { close(over) }
			}
			w.must(t, 20*time.Second, func() string {
				if held := w.leaders(t); held[old] > 0 || len(held) != 1 {
					return fmt.Sprintf("the Leases are held by %v, and %s should have lost them all to one other", held, old)
				}
				if _, _, ok := audits[standby].after(began); !ok {
					return "the standby has written nothing"
				}
				return ""
			})
			goOn()
			back := time.Now()
			select {
			case <-ended:
			case <-time.After(10 * time.Second):
				t.Fatal("the leader of before did not end")
			}
			tookOver, first, _ := audits[standby].after(began)
			t.Logf("%s %d: first write of the successor %v after it began: %s; the old one ended %v after it was over", fault, i, tookOver.Sub(began).Round(10*time.Millisecond), first, time.Since(back).Round(10*time.Millisecond))
			l.flows(t, 2*loadSize, 30*time.Second)
			if at, what, ok := audits[leader].after(tookOver); ok {
				t.Errorf("%s %d: a write of the old leader was taken %v after the first one of its successor: %s", fault, i, at.Sub(tookOver), what)
			}
			leader, standby = standby, leader
		}
	}
	l.stop(t)
}

// TestAPIPause: the API server stops for 15 s, with its connections open. The only process, though it holds Leases that nobody could
// renew, is the same afterwards, and goes on.
func TestAPIPause(t *testing.T) {
	w := newFixture(t, 8, lab.Options{Split: true})
	p := newProcess(t, "all", w.lab.Kubeconfig(), "--leader-elect", "--plugin-server-port=0")
	p.kept = true
	p.start()
	p.awaitReady(t)
	l := newLoad(t, w, "load")
	l.flows(t, 2*loadSize, 30*time.Second)
	l.blind(t)
	for range runs(t, 1) {
		resume, err := w.lab.PauseAPIServer()
		if err != nil {
			t.Fatal(err)
		}
		<-time.NewTimer(15 * time.Second).C
		if err := resume(); err != nil {
			t.Fatal(err)
		}
		after := l.flows(t, 2*loadSize, 60*time.Second)
		t.Logf("%d pods were bound %v after the API server went on", 2*loadSize, after.Round(10*time.Millisecond))
		l.within(t)
	}
	if p.started != 1 || !p.running() {
		t.Errorf("it was started %d times: %v", p.started, p.exit())
	}
	l.stop(t)
}
