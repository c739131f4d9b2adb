package vchypernode

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	topo "github.com/muster-scheduler/muster/api/volcano/topology/v1alpha1"
	"github.com/muster-scheduler/muster/internal/kube/control"
	"github.com/muster-scheduler/muster/internal/kubetest"
)

func serves() kubetest.Options {
	return kubetest.Options{Kinds: append(kubetest.Builtin(), kubetest.Volcano()...)}
}

func start(t *testing.T, p *kubetest.Process, tell func(text string)) func() {
	return p.Run(t, func(objects cache.Cache, c client.Client) (func(context.Context) error, error) {
		r, err := New(control.Shell{Cache: objects, Client: c, Log: logr.Discard(), Tell: func(o client.Object, _ bool, reason, _ string) {
			if tell != nil {
				tell(o.GetName() + " " + reason)
			}
		}}, "volcano-system")
		if err != nil {
			return nil, err
		}
		return r.Run, nil
	})
}

func run(t *testing.T, p *kubetest.Process) func() { return start(t, p, nil) }

func put(s *kubetest.Server) {
	s.Put(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "volcano-system"}}, config(conf), node("a1", "A", "1"), node("a2", "A", "1"), node("b1", "A", "2"), hyper("mine", 1, "Node:regex=^a"))
}

// counts are the HyperNodes that there are, each as TIER LABEL:COUNT, or by its name if nobody discovered it.
func counts(s *kubetest.Server) string {
	var out []string
	for name := range s.State() { // order: sorted below
		kind, rest, _ := strings.Cut(name, " ")
		h := &topo.HyperNode{ObjectMeta: metav1.ObjectMeta{Name: strings.TrimPrefix(rest, "/")}}
		if kind != "HyperNode" || !s.Get(h) {
			continue
		}
		label := h.Name
		if h.Spec.TierName != "" {
			label = strings.TrimPrefix(h.Spec.TierName, "example.com/") + h.Labels[h.Spec.TierName]
		}
		out = append(out, label+":"+string(rune('0'+h.Status.NodeCount)))
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

// TestLife: HyperNodes follow the labels of nodes, and say how many nodes they have; a node's heartbeat costs nothing; what is wrong is told once.
func TestLife(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := kubetest.New(serves())
		told := map[string]int{}
		put(s)
		start(t, s.Process("vchypernode"), func(text string) { told[text]++ })
		step := func(want string) {
			t.Helper()
			<-time.After(10 * time.Second)
			synctest.Wait()
			if got := counts(s); got != want {
				t.Errorf("there are %s, want %s", got, want)
			}
			s.Writes()
			n := node("a1", "A", "1")
			s.Get(n)
			n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: corev1.NodeReady, LastHeartbeatTime: metav1.Now()})
			s.Put(n)
			<-time.After(time.Hour)
			if w := s.Writes(); len(w) > 0 {
				t.Errorf("at rest: %v", w)
			}
		}
		step("blockA:3 mine:2 rack1:2 rack2:1")
		s.Put(node("a3", "A", "1"), node("c", "B", "3"))
		step("blockA:4 blockB:1 mine:3 rack1:3 rack2:1 rack3:1")
		s.Remove(node("b1", "", ""))
		s.Put(config("{"), hyper("odd", 1, "Node:regex=("))
		step("blockA:3 blockB:1 mine:3 odd:0 rack1:3 rack3:1")
		s.Put(hyper("odd", 1, "Node:regex=a"))
		s.Put(config(conf))
		step("blockA:3 blockB:1 mine:3 odd:3 rack1:3 rack3:1")
		s.Remove(config(""))
		s.Remove(node("c", "", ""))
		step("blockA:3 blockB:0 mine:3 odd:3 rack1:3 rack3:0")
		if told["volcano-controller-configmap InvalidConfiguration"] != 1 || told["odd InvalidMember"] != 1 || len(told) != 2 {
			t.Errorf("told: %v", told)
		}
	})
}

// TestRefused: what the API server refuses of one HyperNode hinders no other.
func TestRefused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := kubetest.New(serves())
		put(s)
		s.Fault(func(c kubetest.Call) kubetest.Outcome {
			if c.Verb == "create" && c.Kind == "HyperNode" && strings.Contains(string(c.Body), `"example.com/rack":"1"`) {
				return kubetest.Outcome{Err: apierrors.NewForbidden(schema.GroupResource{Resource: "hypernodes"}, c.Name, errors.New("no"))}
			}
			return kubetest.Outcome{}
		})
		run(t, s.Process("vchypernode"))
		<-time.After(time.Minute)
		synctest.Wait()
		if got := counts(s); got != "blockA:1 mine:2 rack2:1" {
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
			put(s)
			gone := hyper("hypernode-net-tier1-zzzzz", 1, "Node:exact=a1")
			gone.Labels, gone.Spec.TierName = map[string]string{"volcano.sh/network-topology-source": "label", "example.com/rack": "9"}, "example.com/rack"
			stale := gone.DeepCopy()
			stale.Name, stale.Labels["example.com/rack"] = "hypernode-net-tier1-yyyyy", "1"
			s.Put(gone, stale)
		},
		Run: run, Settle: time.Minute,
		Check: func(t *testing.T, s *kubetest.Server) {
			if got := counts(s); got != "blockA:3 mine:2 rack1:2 rack2:1" {
				t.Errorf("there are %s", got)
			}
		},
	}.Crashes(t)
}
