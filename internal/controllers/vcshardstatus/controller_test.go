package vcshardstatus

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	shard "github.com/muster-scheduler/muster/api/volcano/shard/v1alpha1"
	"github.com/muster-scheduler/muster/internal/kube/control"
	"github.com/muster-scheduler/muster/internal/kubetest"
)

func serves() kubetest.Options {
	return kubetest.Options{Kinds: append(kubetest.Builtin(), kubetest.Volcano()...)}
}

func run(t *testing.T, p *kubetest.Process) func() {
	return p.Run(t, func(objects cache.Cache, c client.Client) (func(context.Context) error, error) {
		r, err := New(control.Shell{Cache: objects, Client: c, Log: logr.Discard()}, "volcano")
		if err != nil {
			return nil, err
		}
		return r.Run, nil
	})
}

func node(name string) *corev1.Node { return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}} }

func nodeShard(name string, desired ...string) *shard.NodeShard {
	return &shard.NodeShard{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: shard.NodeShardSpec{NodesDesired: desired}}
}

func says(s *kubetest.Server) string {
	o := nodeShard("volcano")
	if !s.Get(o) {
		return "nothing"
	}
	return fmt.Sprintf("use %v remove %v add %v", o.Status.NodesInUse, o.Status.NodesToRemove, o.Status.NodesToAdd)
}

// TestLife: the status follows the NodeShard, and other NodeShards, and nodes; nothing is written at rest, and nothing of others.
func TestLife(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := kubetest.New(serves())
		s.Put(node("a"), node("b"))
		run(t, s.Process("vcshardstatus"))
		step := func(want string) {
			t.Helper()
			<-time.After(time.Minute)
			synctest.Wait()
			if got := says(s); got != want {
				t.Errorf("it says %s, want %s", got, want)
			}
			s.Writes()
			<-time.After(time.Hour)
			if w := s.Writes(); len(w) > 0 {
				t.Errorf("at rest: %v", w)
			}
		}
		step("nothing")
		s.Put(nodeShard("volcano", "b", "a", "gone"))
		step("use [a b] remove [] add []")
		other := nodeShard("other", "c")
		other.Status.NodesInUse = []string{"c"}
		s.Put(other, node("c"))
		change := func(desired ...string) {
			o := nodeShard("volcano")
			s.Get(o)
			o.Spec.NodesDesired = desired
			s.Put(o)
		}
		change("b", "c")
		<-time.After(3 * time.Second)
		synctest.Wait()
		if got := says(s); got != "use [a b] remove [a] add [c]" {
			t.Errorf("soon after the change it says %s", got)
		}
		step("use [b] remove [] add [c]")
		s.Remove(other)
		step("use [b c] remove [] add []")
		s.Remove(node("c"))
		step("use [b] remove [] add []")
	})
}

// TestCrashes: the controller dies before and after each of its writes, and the next one ends where it would have ended. Times of the status differ, so that this is no
// kubetest.Story.
func TestCrashes(t *testing.T) {
	t.Parallel()
	for n := 1; n <= 2; n++ {
		for _, after := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				s := kubetest.New(serves())
				o := nodeShard("volcano", "a")
				o.Status.NodesInUse = []string{"a", "b"}
				s.Put(node("a"), node("b"), o)
				p := s.Process("first")
				p.CrashAt(n, after)
				stop := run(t, p)
				<-p.Dead()
				stop()
				run(t, s.Process("second"))
				<-time.After(time.Minute)
				synctest.Wait()
				if got := says(s); got != "use [a] remove [] add []" {
					t.Errorf("write %d, after=%v: it says %s", n, after, got)
				}
			})
		}
	}
}
