//go:build lab

package e2e

import (
	"fmt"
	"testing"
	"time"

	"github.com/muster-scheduler/muster/internal/lab"
)

// TestRolesAlone runs the roles as processes of their own, each under its Lease, and ends them in every way.
func TestRolesAlone(t *testing.T) {
	w := newFixture(t, 4, lab.Options{})

	t.Run("five processes", func(t *testing.T) {
		var roles []*process
		start := func(role string) *process {
			p := newProcess(t, role, w.lab.Kubeconfig(), "--leader-elect")
			p.start()
			roles = append(roles, p)
			return p
		}
		leader := start("scheduler")
		for _, role := range []string{"binder", "podgrouper", "podgroup", "queue"} {
			start(role)
		}
		w.namespace(t, "first")
		w.create(t, gang("first", "gang", 8, ""))
		t.Logf("a gang of 8 runs %v after it was submitted, the processes having just been started", w.must(t, 20*time.Second, w.allRunning("first", 8)).Round(time.Millisecond))

		standby := start("scheduler")
		standby.awaitReady(t)
		leader.kill()
		w.namespace(t, "second")
		w.create(t, gang("second", "gang", 8, ""))
		took := w.must(t, 10*time.Second, func() string {
			if w.bound("second") == 0 {
				return "no pod is bound 10 s after the leader was killed"
			}
			return ""
		})
		t.Logf("the standby bound its first pod %v after the leader was killed", took.Round(time.Millisecond))
		w.must(t, 10*time.Second, w.allRunning("second", 8))

		leader.start()
		leader.awaitReady(t)
		standby.stop(t)
		w.namespace(t, "third")
		w.create(t, gang("third", "gang", 8, ""))
		took = w.must(t, 10*time.Second, w.allRunning("third", 8))
		t.Logf("after a graceful stop the next leader had a gang running in %v", took.Round(time.Millisecond))
		for _, p := range roles {
			if p != standby {
				t.Logf("%s ended %v after SIGTERM", p.role, p.stop(t).Round(time.Millisecond))
			}
		}
		for _, ns := range []string{"first", "second", "third"} {
			w.erase(t, ns)
		}
	})

	t.Run("SIGTERM", func(t *testing.T) {
		proxy, err := w.lab.NewProxy()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := proxy.Close(); err != nil {
				t.Error(err)
			}
		})
		for i, args := range [][]string{nil, {"--leader-elect"}} {
			p := newProcess(t, "all", proxy.Kubeconfig(), args...)
			p.start()
			p.awaitReady(t)
			ns := fmt.Sprintf("term-%d", i)
			w.namespace(t, ns)
			busy := proxy.On(lab.Match{Method: "POST", Resource: "pods", Subresource: "binding"}, 16, lab.AfterForward, func(lab.Request) {})
			w.create(t, gang(ns, "gang", 32, ""))
			select {
			case <-busy:
			case <-time.After(20 * time.Second):
				t.Fatal("nothing was bound")
			}
			t.Logf("all %v, in the midst of binding: ended %v after SIGTERM", args, p.stop(t).Round(time.Millisecond))
			p.start()
			t.Logf("started again, the gang was whole after %v", w.must(t, 15*time.Second, w.allRunning(ns, 32)).Round(time.Millisecond))
			p.awaitReady(t)
			t.Logf("all %v, idle: ended %v after SIGTERM", args, p.stop(t).Round(time.Millisecond))
			p.start() // so that what is left of the gang is cleaned up
			p.awaitReady(t)
			w.erase(t, ns)
			p.stop(t)
		}
	})
}
