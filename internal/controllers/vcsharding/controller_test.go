package vcsharding

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-scheduler/muster/api/volcano/keys"
	shard "github.com/muster-scheduler/muster/api/volcano/shard/v1alpha1"
	"github.com/muster-scheduler/muster/internal/kube/control"
	"github.com/muster-scheduler/muster/internal/kube/textfile"
	"github.com/muster-scheduler/muster/internal/kubetest"
)

func serves() kubetest.Options {
	return kubetest.Options{Kinds: append(kubetest.Builtin(), kubetest.Volcano()...)}
}

func configMap(text string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: keys.Namespace, Name: keys.ShardingConfig}, Data: map[string]string{keys.ShardingConfigKey: text}}
}

func start(t *testing.T, p *kubetest.Process, tell func(text string)) func() {
	ref := textfile.Ref{NamespacedName: types.NamespacedName{Namespace: keys.Namespace, Name: keys.ShardingConfig}, Key: keys.ShardingConfigKey}
	return p.Run(t, func(objects cache.Cache, c client.Client) (func(context.Context) error, error) {
		r, err := New(control.Shell{Cache: objects, Client: c, Log: logr.Discard(), Tell: func(o client.Object, _ bool, reason, message string) {
			if tell != nil {
				tell(o.GetName() + " " + reason + ": " + message)
			}
		}})
		if err != nil {
			return nil, err
		}
		return func(ctx context.Context) error {
			done := make(chan error)
			go func() { done <- textfile.ConfigMap(ctx, objects, ref, r.Configure) }()
			return errors.Join(r.Run(ctx), <-done)
		}, nil
	})
}

func run(t *testing.T, p *kubetest.Process) func() { return start(t, p, nil) }

// put sets nodes, each as NAME=CPUs asked for, by pods on them.
func put(t interface{ Fatal(...any) }, s *kubetest.Server, nodes string) {
	for _, text := range strings.Fields(nodes) {
		name, amount, _ := strings.Cut(text, "=")
		cpu, err := strconv.Atoi(amount)
		if err != nil {
			t.Fatal(err)
		}
		s.Put(machine(name, false), load(name, cpu))
	}
}

// shards are the NodeShards that there are.
func shards(s *kubetest.Server) string {
	var out []string
	for name := range s.State() { // order: sorted below
		kind, rest, _ := strings.Cut(name, " ")
		o := &shard.NodeShard{ObjectMeta: metav1.ObjectMeta{Name: strings.TrimPrefix(rest, "/")}}
		if kind == "NodeShard" && s.Get(o) {
			out = append(out, o.Name+":"+strings.Join(o.Spec.NodesDesired, ","))
		}
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

// TestLife: NodeShards follow the ConfigMap, nodes, and what is asked for of them; a bad ConfigMap is refused, and told; nothing is written at rest.
func TestLife(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := kubetest.New(serves())
		var told []string
		s.Put(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: keys.Namespace}})
		put(t, s, "n1=8 n2=3 n3=0")
		start(t, s.Process("vcsharding"), func(text string) { told = append(told, text) })
		soon := func(after time.Duration, want string) {
			t.Helper()
			<-time.After(after)
			synctest.Wait()
			if got := shards(s); got != want {
				t.Errorf("there are %s, want %s", got, want)
			}
		}
		step := func(want string) {
			t.Helper()
			soon(2*time.Minute, want)
			s.Writes()
			<-time.After(time.Hour)
			if w := s.Writes(); len(w) > 0 {
				t.Errorf("at rest: %v", w)
			}
		}
		step("")
		s.Put(configMap(conf))
		soon(5*time.Second, "agent-scheduler:n1 volcano:n2,n3")
		step("agent-scheduler:n1 volcano:n2,n3")
		put(t, s, "n2=9") // it is looked at in the next period
		step("agent-scheduler:n1,n2 volcano:n3")
		put(t, s, "n1=1 n2=3")
		step("agent-scheduler:n2 volcano:n1,n3")
		put(t, s, "n4=9")
		soon(5*time.Second, "agent-scheduler:n4 volcano:n1,n2,n3")
		s.Put(configMap("schedulerConfigs: 7"))
		step("agent-scheduler:n4 volcano:n1,n2,n3")
		s.Put(configMap("schedulerConfigs: [{name: all}]"))
		soon(10*time.Second, "all:n1,n2,n3,n4")
		step("all:n1,n2,n3,n4")
		s.Remove(configMap(""))
		s.Remove(machine("n4", false))
		step("all:n1,n2,n3,n4")
		if len(told) != 1 || !strings.HasPrefix(told[0], keys.ShardingConfig+" InvalidConfiguration: the configuration is refused, and the one before it rules: it cannot be read: ") {
			t.Errorf("told: %v", told)
		}
	})
}

// TestRefused: what the API server refuses of one NodeShard hinders no other, and no node is in two.
func TestRefused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := kubetest.New(serves())
		put(t, s, "n1=9 n2=0 n3=9")
		s.Put(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: keys.Namespace}}, configMap(conf), nodeShard("agent-scheduler", true), nodeShard("volcano", true, "n1"))
		s.Fault(func(c kubetest.Call) kubetest.Outcome {
			if c.Verb == "patch" && c.Kind == "NodeShard" && c.Name == "volcano" {
				return kubetest.Outcome{Err: apierrors.NewForbidden(schema.GroupResource{Resource: "nodeshards"}, c.Name, errors.New("no"))}
			}
			return kubetest.Outcome{}
		})
		run(t, s.Process("vcsharding"))
		<-time.After(time.Minute)
		synctest.Wait()
		if got := shards(s); got != "agent-scheduler:n3 volcano:n1" {
			t.Errorf("there are %s", got)
		}
	})
}

// TestCrashes: the controller dies before and after each of its writes, and the next one ends where it would have ended.
func TestCrashes(t *testing.T) {
	t.Parallel()
	kubetest.Story{
		Options: serves(),
		Set: func(s *kubetest.Server) {
			put(t, s, "n1=9 n2=0 n3=0 n4=9")
			s.Put(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: keys.Namespace}}, configMap(conf), nodeShard("volcano", true, "n1", "n2"), nodeShard("old", true, "n3"))
		},
		Run: run, Settle: 3 * time.Minute,
		Check: func(t *testing.T, s *kubetest.Server) {
			if got := shards(s); got != "agent-scheduler:n1,n4 volcano:n2,n3" {
				t.Errorf("there are %s", got)
			}
		},
	}.Crashes(t)
}
