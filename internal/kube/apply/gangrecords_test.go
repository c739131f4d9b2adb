package apply

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-scheduler/muster/api/kai/keys"
	"github.com/muster-scheduler/muster/api/scheduling/v1alpha2"
	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/dialect/kai"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/kubetest"
)

// threesome is the decision that pods p, q and r go to node n1, and who pays.
func threesome() engine.Plan {
	b := bundle("b1", "p", "q", "r")
	b.Starts = true
	for i := range b.Intents {
		b.Intents[i].Charged = cluster.Charged{Queue: "q", Gang: kai.GangKey("a", "g")}
	}
	return engine.Plan{Bundles: []engine.Bundle{b}}
}

// recording runs Binds that record decisions about gangs over one plan in a process. Like the loop it first carries on what an earlier
// process left, and decides only if there was nothing and nobody has a node.
func recording(t *testing.T, p *kubetest.Process, plan engine.Plan, complete func(b *engine.Bundle, asked bool)) (b *Binds, stop func()) {
	t.Helper()
	stop = p.Run(t, func(objects cache.Cache, c client.Client) (func(context.Context) error, error) {
		for _, o := range []client.Object{&v1.Pod{}, &v1alpha2.BindRequest{}} {
			if _, err := objects.GetInformer(t.Context(), o, cache.BlockUntilSynced(false)); err != nil {
				return nil, err
			}
		}
		pool := NewPool(nil)
		b = NewBinds(pool, c, objects, BindOptions{Workers: 4, Alone: true, Records: "home", Complete: complete})
		return func(ctx context.Context) error {
			objects.WaitForCacheSync(ctx)
			if err := carryOn(ctx, b, c, plan); err != nil {
				return err
			}
			return pool.Run(ctx)
		}, nil
	})
	return b, stop
}

func carryOn(ctx context.Context, b *Binds, c client.Client, plan engine.Plan) error {
	left, err := b.Left(ctx)
	if err != nil {
		return err
	}
	for i := range left {
		var rest []kai.Intent
		for _, m := range left[i].Members {
			var p v1.Pod
			if err := c.Get(ctx, client.ObjectKey{Namespace: m.Namespace, Name: m.Pod}, &p); err == nil && p.Spec.NodeName == "" {
				rest = append(rest, m)
			}
		}
		b.Resume(&left[i], rest)
	}
	var p v1.Pod
	if len(left) == 0 && c.Get(ctx, client.ObjectKey{Namespace: "a", Name: "p"}, &p) == nil && p.Spec.NodeName == "" {
		b.Submit(plan)
	}
	return nil
}

// world has the three pods and the namespace of records.
func world(s *kubetest.Server) {
	s.Put(&v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "home"}}, &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, aPod("p"), aPod("q"), aPod("r"))
}

// records are the names of the records that there are, and requests those of BindRequests.
func records(s *kubetest.Server) (out []string) {
	for name := range s.State() {
		if strings.Contains(name, "ConfigMap") || strings.Contains(name, "BindRequest") {
			out = append(out, name)
		}
	}
	return out
}

// TestRecordCrashes: whenever the scheduler dies around a write of a decision about a gang (its record, each Binding, the delete of the record),
// all members are bound once, to where the first process decided, and nothing else is left.
func TestRecordCrashes(t *testing.T) {
	t.Parallel()
	kubetest.Story{
		Set: world,
		Run: func(t *testing.T, p *kubetest.Process) func() {
			_, stop := recording(t, p, threesome(), nil)
			return stop
		},
		Settle: 10 * time.Second,
		Check: func(t *testing.T, s *kubetest.Server) {
			for _, name := range []string{"p", "q", "r"} {
				p := aPod(name)
				s.Get(p)
				if at, err := time.Parse(time.RFC3339, p.Annotations[keys.DecidedAnnotation]); err != nil || time.Since(at) > time.Minute {
					t.Errorf("%s: decided %q", name, p.Annotations[keys.DecidedAnnotation])
				}
				delete(p.Annotations, keys.DecidedAnnotation)
				want := map[string]string{keys.ReceivedResourceTypeAnnotation: "Regular", keys.ChargedAnnotation: "q/g", keys.BundleLabel: "b1"}
				if d := cmp.Diff(want, p.Annotations); d != "" || p.Spec.NodeName != "n1" {
					t.Errorf("%s is on node %q, %s", name, p.Spec.NodeName, d)
				}
			}
			if left := records(s); len(left) > 0 {
				t.Errorf("left over: %v", left)
			}
		},
	}.Crashes(t)
}

// TestRecordFaults: what becomes of a gang when the writes of its decision do not go well.
func TestRecordFaults(t *testing.T) {
	t.Parallel()
	const record, erase = "create ConfigMap home/gang-b1", "delete ConfigMap home/gang-b1"
	bind := func(pod string) string { return "create Pod/binding a/" + pod }
	behind := func(change func(*v1.Pod)) func(*kubetest.Server) {
		return func(s *kubetest.Server) {
			s.Hold("Pod")
			kubetest.Edit(s, aPod("q"), change)
		}
	}
	for name, c := range map[string]struct {
		fault  func(kubetest.Call) kubetest.Outcome
		before func(*kubetest.Server)
		bound  string // who is, in the end
		lost   string // who is decided on anew
		asked  bool   // there are BindRequests
	}{
		"all is well":                           {bound: "pqr"},
		"the record's answer is lost":           {fault: kubetest.Nth(1, kubetest.Is(record), kubetest.LostAnswer()), bound: "pqr"},
		"the record's request is lost":          {fault: kubetest.Nth(1, kubetest.Is(record), kubetest.LostRequest()), bound: "pqr"},
		"the record is never written":           {fault: always(record, kubetest.LostRequest()), lost: "pqr"},
		"no answer about the record ever comes": {fault: always(record, kubetest.LostAnswer()), lost: "pqr"},
		"a Binding's answer is lost":            {fault: kubetest.Nth(1, kubetest.Is(bind("q")), kubetest.LostAnswer()), bound: "pqr"},
		"a Binding never gets there":            {fault: always(bind("q"), kubetest.LostRequest()), bound: "pr", lost: "q"},
		"a Binding is refused":                  {fault: always(bind("q"), forbidden), bound: "pr", lost: "q"},
		"the record's delete is lost":           {fault: kubetest.Nth(1, kubetest.Is(erase), kubetest.LostRequest()), bound: "pqr"},
		"the answer to the delete is lost":      {fault: kubetest.Nth(1, kubetest.Is(erase), kubetest.LostAnswer()), bound: "pqr"},
		"no right to write records":             {fault: always(record, forbidden), asked: true},
		"no namespace for records":              {fault: always(record, kubetest.Outcome{Err: apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, "home")}), asked: true},
		"a member has a volume":                 {before: func(s *kubetest.Server) { kubetest.Edit(s, aPod("q"), claimed) }, asked: true},
		"a member was deleted since":            {before: func(s *kubetest.Server) { s.Remove(aPod("q")) }, lost: "pqr"},
		"a member is bound since":               {before: func(s *kubetest.Server) { kubetest.Edit(s, aPod("q"), func(p *v1.Pod) { p.Spec.NodeName = "n7" }) }, lost: "pqr"},
		"another asked the binder for a member": {before: func(s *kubetest.Server) { s.Put(asked("u-p", false)) }, lost: "pqr"},
		"a member is bound elsewhere, not seen": {before: behind(func(p *v1.Pod) { p.Spec.NodeName = "n7" }), bound: "pr", lost: "q"},
		"another pod has a member's name":       {before: behind(func(p *v1.Pod) { p.UID = "other" }), bound: "pr", lost: "q"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := kubetest.New(kubetest.Options{})
				world(s)
				var whole, parts atomic.Int64
				b, _ := recording(t, s.Process("scheduler"), engine.Plan{}, func(b *engine.Bundle, asked bool) {
					if asked != c.asked {
						t.Errorf("asked is %v", asked)
					}
					whole.Add(1)
					parts.Add(int64(len(b.Intents)))
				})
				if c.before != nil {
					c.before(s)
					synctest.Wait()
				}
				if c.fault != nil {
					s.Fault(c.fault)
				}
				b.Submit(threesome())
				<-time.After(time.Minute)
				synctest.Wait()
				lost := ""
				for _, f := range b.Failures() {
					for _, in := range f.Bundle.Intents {
						lost += in.Pod
					}
					if errors.Is(f.Err, context.Canceled) {
						t.Error(f.Err)
					}
				}
				bound := ""
				for _, name := range []string{"p", "q", "r"} {
					if p := aPod(name); s.Get(p) && p.Spec.NodeName == "n1" {
						bound += name
					}
				}
				if bound != c.bound || lost != c.lost {
					t.Errorf("bound %q and lost %q, want %q and %q", bound, lost, c.bound, c.lost)
				}
				if want := len(c.bound); !c.asked && parts.Load() != int64(want) {
					t.Errorf("told of %d pods that are bound, want %d", parts.Load(), want)
				}
				left := 0
				for _, o := range records(s) {
					if strings.Contains(o, "ConfigMap") {
						t.Errorf("left over: %s", o)
					} else {
						left++
					}
				}
				if want := map[bool]int{true: 3}[c.asked]; left != want && !strings.HasPrefix(name, "another asked") {
					t.Errorf("%d BindRequests, want %d", left, want)
				}
			})
		})
	}
}

var forbidden = kubetest.Outcome{Err: apierrors.NewForbidden(schema.GroupResource{Resource: "things"}, "x", errors.New("no"))}

// claimed gives a pod a volume, which the binder prepares.
func claimed(p *v1.Pod) {
	p.Spec.Volumes = []v1.Volume{{Name: "v", VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "c"}}}}
}

// TestRecordsLeft: a leader finds the records of its shard alone, leaves alone what it cannot read, and does without where it has no right.
func TestRecordsLeft(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := kubetest.New(kubetest.Options{})
		world(s)
		made := func(bundle, pool string) *v1.ConfigMap {
			r := kai.GangRecord{Bundle: bundle, Gang: kai.GangKey("a", "g"), Partition: kai.Partition{Key: "pool", Value: pool}, Members: []kai.Intent{{Pod: "p", PodUID: "u-p", Node: "n1"}}}
			cm, err := r.ConfigMap("home")
			if err != nil {
				t.Fatal(err)
			}
			return cm
		}
		unread := made("b3", "")
		unread.Data["format"] = "2"
		s.Put(made("b2", ""), made("b1", "gold"), unread, &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "home", Name: "settings"}})
		b, _ := recording(t, s.Process("scheduler"), engine.Plan{}, nil)
		synctest.Wait()
		<-time.After(time.Second)
		if left := fmt.Sprint(records(s)); strings.Contains(left, "gang-b2") || !strings.Contains(left, "gang-b1") || !strings.Contains(left, "gang-b3") || !strings.Contains(left, "settings") {
			t.Errorf("left are %s, want those of b1, b3 and settings", left)
		}
		s.Fault(func(c kubetest.Call) kubetest.Outcome {
			if strings.HasPrefix(c.String(), "list ConfigMap") {
				return forbidden
			}
			return kubetest.Outcome{}
		})
		if left, err := b.Left(t.Context()); err != nil || len(left) > 0 {
			t.Errorf("without the right: %v, %v", left, err)
		}
	})
}
