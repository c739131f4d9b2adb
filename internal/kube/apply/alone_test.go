package apply

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-scheduler/muster/api/kai/keys"
	"github.com/muster-scheduler/muster/api/scheduling/v1alpha2"
	vckeys "github.com/muster-scheduler/muster/api/volcano/keys"
	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/dialect/kai"
	"github.com/muster-scheduler/muster/internal/dialect/volcano"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/kube/links"
	"github.com/muster-scheduler/muster/internal/kubetest"
)

// lonely is the decision that pod p goes to node n1, and who pays.
func lonely() engine.Plan {
	b := bundle("b1", "p")
	b.Intents[0].Charged = cluster.Charged{Queue: "q", Gang: kai.GangKey("a", "g")}
	return engine.Plan{Bundles: []engine.Bundle{b}}
}

// binding runs Binds, which bind lone pods, over one plan in a process.
func binding(t *testing.T, p *kubetest.Process, plan engine.Plan, bound func(*engine.Intent)) (b *Binds, stop func()) {
	t.Helper()
	return bindingTold(t, p, plan, nil, bound)
}

// bindingTold is binding where the podgrouper of the process has told something.
func bindingTold(t *testing.T, p *kubetest.Process, plan engine.Plan, told *links.Links, bound func(*engine.Intent)) (b *Binds, stop func()) {
	t.Helper()
	stop = p.Run(t, func(objects cache.Cache, c client.Client) (func(context.Context) error, error) {
		for _, o := range []client.Object{&v1.Pod{}, &v1alpha2.BindRequest{}} {
			if _, err := objects.GetInformer(t.Context(), o, cache.BlockUntilSynced(false)); err != nil {
				return nil, err
			}
		}
		pool := NewPool(nil)
		var alone atomic.Int64
		b = NewBinds(pool, c, objects, BindOptions{Workers: 4, Alone: true, Links: told, Bound: func(in *engine.Intent) {
			alone.Add(1)
			if bound != nil {
				bound(in)
			}
		}, Complete: func(b *engine.Bundle, asked bool) {
			if asked != (alone.Load() == 0) {
				t.Errorf("%s: asked is %v, and the scheduler bound %d", b.ID, asked, alone.Load())
			}
		}})
		return func(ctx context.Context) error {
			objects.WaitForCacheSync(ctx) // as the loop waits, before it decides anything
			b.Submit(plan)
			return pool.Run(ctx)
		}, nil
	})
	return b, stop
}

// TestAloneCrashes: whenever the scheduler dies around the one write of a lone pod, the pod is bound once, and nothing else is left.
func TestAloneCrashes(t *testing.T) {
	t.Parallel()
	kubetest.Story{
		Set: func(s *kubetest.Server) { s.Put(aPod("p")) },
		Run: func(t *testing.T, p *kubetest.Process) func() {
			_, stop := binding(t, p, lonely(), nil)
			return stop
		},
		Settle: 10 * time.Second,
		Check: func(t *testing.T, s *kubetest.Server) {
			p := aPod("p")
			s.Get(p)
			if at, err := time.Parse(time.RFC3339, p.Annotations[keys.DecidedAnnotation]); err != nil || time.Since(at) > time.Minute {
				t.Errorf("decided %q", p.Annotations[keys.DecidedAnnotation])
			}
			delete(p.Annotations, keys.DecidedAnnotation)
			want := map[string]string{keys.ReceivedResourceTypeAnnotation: "Regular", keys.ChargedAnnotation: "q/g", keys.BundleLabel: "b1"}
			if d := cmp.Diff(want, p.Annotations); d != "" || p.Spec.NodeName != "n1" {
				t.Errorf("on node %q, %s", p.Spec.NodeName, d)
			}
			if s.Get(&v1alpha2.BindRequest{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "p"}}) {
				t.Error("there is a BindRequest")
			}
		},
	}.Crashes(t)
}

// TestAloneOfVolcanos: a bare pod of Volcano's, which names no PodGroup, says its owner's with its Binding, whenever the scheduler dies.
func TestAloneOfVolcanos(t *testing.T) {
	t.Parallel()
	yes := true
	bare := aPod("p")
	bare.Spec.SchedulerName = vckeys.SchedulerName
	bare.OwnerReferences = []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: "j", UID: "u-j", Controller: &yes}}
	plan := lonely()
	plan.Bundles[0].Intents[0].Charged = cluster.Charged{Queue: volcano.QueueName("q"), Gang: volcano.GangKey("a", volcano.GroupOfOwner(bare))}
	kubetest.Story{
		Set: func(s *kubetest.Server) { s.Put(bare.DeepCopy()) },
		Run: func(t *testing.T, p *kubetest.Process) func() {
			_, stop := binding(t, p, plan, nil)
			return stop
		},
		Settle: 10 * time.Second,
		Check: func(t *testing.T, s *kubetest.Server) {
			p := aPod("p")
			if s.Get(p); p.Spec.NodeName != "n1" || p.Annotations[vckeys.GroupName] != "podgroup-u-j" || p.Annotations[keys.ChargedAnnotation] != "volcano:q/podgroup-u-j" {
				t.Errorf("on node %q: %v", p.Spec.NodeName, p.Annotations)
			}
		},
	}.Crashes(t)
}

// TestAloneTold: a pod of which it was told what gang it is by itself says so with its Binding, whoever binds it, and whenever the scheduler
// dies: nobody ever sees it on a node without that.
func TestAloneTold(t *testing.T) {
	t.Parallel()
	group := kai.PodGroup(kai.GangKey("a", "g"), "u-p")
	group.Spec.Queue = "q"
	text := kai.WriteOwnGang(aPod("p"), group, "")
	for _, prepared := range []bool{false, true} {
		kubetest.Story{
			Set: func(s *kubetest.Server) {
				p := aPod("p")
				if prepared {
					p.Spec.Volumes = []v1.Volume{{Name: "v", VolumeSource: v1.VolumeSource{Ephemeral: &v1.EphemeralVolumeSource{}}}}
				}
				s.Put(&v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, p)
			},
			Run: func(t *testing.T, p *kubetest.Process) func() {
				told := links.New()
				told.Open(func(map[string]string) bool { return true })
				told.Tell(aPod("p"), nil, text, time.Now())
				_, stop := bindingTold(t, p, lonely(), told, nil)
				return stop
			},
			Settle: 10 * time.Second,
			Check: func(t *testing.T, s *kubetest.Server) {
				p, br := aPod("p"), &v1alpha2.BindRequest{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "p"}}
				said := map[string]string{}
				if s.Get(p); prepared {
					s.Get(br)
					said = br.Annotations
				} else if p.Spec.NodeName == "n1" {
					said = p.Annotations
				}
				if said[keys.OwnGangAnnotation] != text {
					t.Errorf("it says %q, want %q", said[keys.OwnGangAnnotation], text)
				}
			},
		}.Crashes(t)
	}
}

// TestAloneFaults: what becomes of a lone pod when its Binding does not go well.
func TestAloneFaults(t *testing.T) {
	t.Parallel()
	const call = "create Pod/binding a/p"
	behind := func(change func(*v1.Pod)) func(*kubetest.Server) { // the scheduler's back: its cache does not know
		return func(s *kubetest.Server) {
			s.Hold("Pod")
			kubetest.Edit(s, aPod("p"), change)
		}
	}
	for name, c := range map[string]struct {
		fault  func(kubetest.Call) kubetest.Outcome
		behind func(*kubetest.Server)
		node   string // the pod is on in the end
		moved  bool
		failed bool
		calls  int
	}{
		"all is well":                       {nil, nil, "n1", false, false, 1},
		"the answer is lost":                {kubetest.Nth(1, kubetest.Is(call), kubetest.LostAnswer()), nil, "n1", false, false, 1},
		"the request is lost":               {kubetest.Nth(1, kubetest.Is(call), kubetest.LostRequest()), nil, "n1", false, false, 2},
		"the server is busy":                {kubetest.Nth(1, kubetest.Is(call), kubetest.Broken("no store")), nil, "n1", false, false, 2},
		"the server stays away":             {always(call, kubetest.LostRequest()), nil, "", false, true, bindWork.Tries},
		"another bound it elsewhere":        {nil, behind(func(p *v1.Pod) { p.Spec.NodeName = "n7" }), "n7", true, true, 1},
		"another bound it there":            {nil, behind(func(p *v1.Pod) { p.Spec.NodeName = "n1" }), "n1", true, true, 1},
		"another pod has its name":          {nil, behind(func(p *v1.Pod) { p.UID = "other" }), "", true, true, 1},
		"it has been given a gate":          {nil, behind(func(p *v1.Pod) { p.Spec.SchedulingGates = []v1.PodSchedulingGate{{Name: "x"}} }), "", true, true, 1},
		"it is gone":                        {nil, func(s *kubetest.Server) { s.Hold("Pod"); s.Remove(aPod("p")) }, "", true, true, 1},
		"another has asked the binder":      {nil, func(s *kubetest.Server) { s.Put(asked("u-p", false)) }, "", true, true, 0},
		"a request that failed is there":    {nil, func(s *kubetest.Server) { s.Put(asked("u-p", true)) }, "n1", false, false, 1},
		"an earlier pod's request is there": {nil, func(s *kubetest.Server) { s.Put(asked("u-before", false)) }, "n1", false, false, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := kubetest.New(kubetest.Options{})
				s.Put(aPod("p"))
				bound := 0
				b, _ := binding(t, s.Process("scheduler"), engine.Plan{}, func(*engine.Intent) { bound++ })
				if c.behind != nil {
					c.behind(s)
					synctest.Wait()
				}
				if c.fault != nil {
					s.Fault(c.fault)
				}
				s.Writes()
				b.Submit(lonely())
				<-time.After(time.Minute)
				synctest.Wait()
				failures := b.Failures()
				if c.failed != (len(failures) == 1) || c.failed && c.moved != errors.Is(failures[0].Err, ErrMoved) {
					t.Errorf("failures %v", failures)
				}
				p := aPod("p")
				s.Get(p)
				if p.Spec.NodeName != c.node || (bound == 1) == c.failed {
					t.Errorf("on node %q; told %d times that it is bound", p.Spec.NodeName, bound)
				}
				var calls []string
				for _, w := range s.Writes() {
					calls = append(calls, w.String())
				}
				if want := slices.Repeat([]string{call}, c.calls); !slices.Equal(calls, want) {
					t.Errorf("wrote %v", calls)
				}
			})
		})
	}
}

// always has each such call end so.
func always(call string, o kubetest.Outcome) func(kubetest.Call) kubetest.Outcome {
	return func(c kubetest.Call) kubetest.Outcome {
		if c.String() == call {
			return o
		}
		return kubetest.Outcome{}
	}
}

// asked is another's BindRequest for pod p of that UID to node n9.
func asked(uid string, failed bool) *v1alpha2.BindRequest {
	br := existing("p", uid, "", failed)
	br.UID = ""
	return br
}

// TestWhoIsAlone: only a pod that is decided on by itself, and for which the binder has nothing to do, is bound without a BindRequest.
func TestWhoIsAlone(t *testing.T) {
	t.Parallel()
	volume := func(v v1.VolumeSource) func(*v1.Pod, *engine.Plan) {
		return func(p *v1.Pod, _ *engine.Plan) { p.Spec.Volumes = []v1.Volume{{Name: "v", VolumeSource: v}} }
	}
	for name, c := range map[string]struct {
		change func(p *v1.Pod, plan *engine.Plan)
		alone  bool
	}{
		"a pod":          {func(*v1.Pod, *engine.Plan) {}, true},
		"with ConfigMap": {volume(v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{}}), true},
		"with a promise for another": {func(_ *v1.Pod, plan *engine.Plan) {
			plan.Bundles[0].Intents = append(plan.Bundles[0].Intents, engine.Intent{Verb: engine.Nominate, Namespace: "a", Pod: "q", UID: "u-q", Node: "n1"})
		}, true},
		"two of a gang":           {func(_ *v1.Pod, plan *engine.Plan) { plan.Bundles[0] = bundle("b1", "p", "q") }, false},
		"with a volume claim":     {volume(v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "c"}}), false},
		"with its own volume":     {volume(v1.VolumeSource{Ephemeral: &v1.EphemeralVolumeSource{}}), false},
		"with a claim of devices": {func(p *v1.Pod, _ *engine.Plan) { p.Spec.ResourceClaims = []v1.PodResourceClaim{{Name: "c"}} }, false},
		"with devices for its resources": {func(_ *v1.Pod, plan *engine.Plan) {
			plan.Bundles[0].Intents[0].Claims = []cluster.ClaimAllocation{{}}
		}, false},
		"with a shared device": {func(_ *v1.Pod, plan *engine.Plan) { plan.Bundles[0].Intents[0].Groups = []string{"g"} }, false},
		"with a slice of one": {func(p *v1.Pod, _ *engine.Plan) {
			p.Spec.Containers = []v1.Container{{Name: "c", Resources: v1.ResourceRequirements{Limits: v1.ResourceList{keys.MIGResourcePrefix + "1g.5gb": {}}}}}
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p, plan := aPod("p"), lonely()
				c.change(p, &plan)
				s := kubetest.New(kubetest.Options{})
				s.Put(&v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, p, aPod("q"))
				b, _ := binding(t, s.Process("scheduler"), plan, nil)
				<-time.After(time.Minute)
				if failures := b.Failures(); len(failures) > 0 {
					t.Error(failures[0].Err)
				}
				s.Get(p)
				asked := s.Get(&v1alpha2.BindRequest{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "p"}})
				if bound := p.Spec.NodeName != ""; bound != c.alone || asked == c.alone {
					t.Errorf("bound %v, asked the binder %v", bound, asked)
				}
			})
		})
	}
}

// TestBoundIsToldLater: events of bound pods wait until binds pause, all of them come, and none holds up whoever binds.
func TestBoundIsToldLater(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		var told []time.Duration
		of := map[types.UID]int{}
		pool := NewPool(nil)
		n := NewEvents(pool, "pool", 0, func(about client.Object, _, reason, _ string) {
			if reason == keys.EventScheduled {
				told = append(told, time.Since(start))
				of[about.GetUID()]++
			}
		})
		go func() { _ = pool.Run(t.Context()) }()
		const binds = 3000 // forty a second, for longer than a pod waits at most
		for i := range binds {
			n.Bound(&engine.Intent{Pod: "p", UID: string(rune(i + 1)), Node: "n"})
			<-time.After(25 * time.Millisecond)
		}
		<-time.After(time.Minute)
		synctest.Wait()
		if len(told) != binds || len(of) != binds {
			t.Fatalf("%d events of %d pods", len(told), len(of))
		}
		if told[0] < boundLongest || told[0] > boundLongest+time.Second {
			t.Errorf("the first is told after %v", told[0])
		}
		during := 0
		for _, at := range told {
			if at < 75*time.Second {
				during++
			}
		}
		if most := boundBusy*15 + 1; during > most || during < most/2 {
			t.Errorf("%d are told while binds go on", during)
		}
	})
}

// TestOthersAreToldLater: what is to be said later, and that a pod was bound, stands back while pods are bound in gangs or evicted; a minute at most.
func TestOthersAreToldLater(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		told := map[string]time.Duration{}
		pool := NewPool(nil)
		n := NewEvents(pool, "pool", 0, func(about client.Object, _, _, _ string) { told[about.GetName()] = time.Since(start) })
		go func() { _ = pool.Run(t.Context()) }()
		n.Bound(&engine.Intent{Pod: "p", UID: "p", Node: "n"})
		for range 40 { // ten seconds
			n.Busy()
			<-time.After(250 * time.Millisecond)
		}
		n.Busy()
		n.Later(func() { told["first"] = time.Since(start) })
		n.OfPodLater(podNamed("q"), v1.EventTypeNormal, keys.EventPipelined, "room is held")
		<-time.After(5 * time.Second)
		if at := told["p"]; at < 10*time.Second+boundQuiet || at > 11*time.Second {
			t.Errorf("a bind before evictions that took ten seconds is told of after %v", at)
		}
		for _, what := range []string{"first", "q"} {
			if at := told[what]; at < 10*time.Second+boundQuiet || at > 11*time.Second {
				t.Errorf("what was to be said then (%s) is said after %v", what, at)
			}
		}
		n.Later(func() { told["second"] = time.Since(start) })
		for range 4 * 70 {
			n.Busy()
			<-time.After(250 * time.Millisecond)
		}
		if at := told["second"] - 15*time.Second; at < boundLongest || at > boundLongest+time.Second {
			t.Errorf("what stood back is said after %v", at)
		}
	})
}

// TestTrailingEventsLeaveRequests: once nobody is bound any more, events that stood back come as fast as is told, or take four fifths of the requests that the process may make.
func TestTrailingEventsLeaveRequests(t *testing.T) {
	t.Parallel()
	for qps, want := range map[float32]time.Duration{0: 10 * time.Second, -1: 10 * time.Second, 3000: 10 * time.Second, 50: time.Minute, 10: 5 * time.Minute} { // order: each on its own
		synctest.Test(t, func(t *testing.T) {
			pool, told := NewPool(nil), 0
			n := NewEvents(pool, "pool", qps, func(client.Object, string, string, string) { told++ })
			go func() { _ = pool.Run(t.Context()) }()
			const events = 10 * boundRate
			for range events {
				n.Later(func() { told++ })
			}
			<-time.After(want - time.Second)
			synctest.Wait()
			if told >= events {
				t.Errorf("%v a second: all %d are told before %v", qps, events, want)
			}
			<-time.After(3 * time.Second)
			synctest.Wait()
			if told != events {
				t.Errorf("%v a second: %d of %d are told after %v", qps, told, events, want)
			}
		})
	}
}

// TestTrailingEventsGoTogether: events that stood back come in groups, none larger than what may be told meanwhile, so that who takes them is not woken for each; where
// few may be told each comes by itself.
func TestTrailingEventsGoTogether(t *testing.T) {
	t.Parallel()
	const together = int(boundRate * boundTogether / time.Second)
	for qps, want := range map[float32]int{0: together, 150: together / 2, 10: 1} { // order: each on its own
		synctest.Test(t, func(t *testing.T) {
			start, told := time.Now(), map[time.Duration]int{}
			pool := NewPool(nil)
			n := NewEvents(pool, "pool", qps, nil)
			go func() { _ = pool.Run(t.Context()) }()
			events := 100 * want
			for range events {
				n.Later(func() { told[time.Since(start)]++ })
			}
			<-time.After(time.Minute)
			synctest.Wait()
			most, all := 0, 0
			for _, k := range told { // order: a sum
				most, all = max(most, k), all+k
			}
			if all != events || most > want+1 || len(told) > events/want+2 {
				t.Errorf("%v requests a second: %d of %d events in %d groups of %d at most, want groups of %d", qps, all, events, len(told), most, want)
			}
		})
	}
}
