package apply

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-scheduler/muster/api/kai/keys"
	"github.com/muster-scheduler/muster/api/scheduling/v2alpha2"
	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/dialect/kai"
	"github.com/muster-scheduler/muster/internal/kube/write"
	"github.com/muster-scheduler/muster/internal/kubetest"
)

// paper is an API server in memory that tells what was written, and fails when it is told to.
type paper struct {
	t      *testing.T
	client client.Client
	start  time.Time
	mu     sync.Mutex
	said   []string // "seconds name body"
	fail   int      // how many of the next writes fail
	events []string
}

// newPaper has the pods p and q and the PodGroup g of heldWorld, unless objects say otherwise.
func newPaper(t *testing.T, objects ...client.Object) *paper {
	t.Helper()
	s := kubetest.New(kubetest.Options{})
	s.Put(&v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, &v2alpha2.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "g", UID: "u"}})
	for _, name := range []string{"p", "q"} {
		s.Put(&v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: name, UID: types.UID("u-" + name)}})
	}
	s.Put(objects...)
	c, err := s.Process("scheduler").Client(kubetest.Scheme())
	if err != nil {
		t.Fatal(err)
	}
	p := &paper{t: t, client: c, start: time.Now()}
	s.Fault(p.note)
	return p
}

func (p *paper) note(c kubetest.Call) kubetest.Outcome {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c.Write == 0 {
		return kubetest.Outcome{}
	}
	if p.fail > 0 {
		p.fail--
		return kubetest.Broken("not now")
	}
	var read struct {
		Metadata struct {
			UID         string
			Annotations map[string]any
		}
		Status struct {
			NominatedNodeName any
			Conditions        []struct{ Type, Status, Reason, Message string }
		}
	}
	if err := json.Unmarshal(c.Body, &read); err != nil {
		p.t.Error(err)
	}
	line := c.At.Sub(p.start).Truncate(time.Millisecond).String() + " " + c.Name + "/" + read.Metadata.UID
	if read.Metadata.Annotations != nil {
		text, _ := json.Marshal(read.Metadata.Annotations)
		line += " " + string(text)
	}
	if strings.Contains(string(c.Body), "nominatedNodeName") {
		text, _ := json.Marshal(read.Status.NominatedNodeName)
		line += " " + string(text)
	}
	for _, c := range read.Status.Conditions {
		line += " " + c.Type + "=" + c.Status + ":" + c.Reason
	}
	if strings.Contains(string(c.Body), `"conditions":[]`) {
		line += " no conditions"
	}
	p.said = append(p.said, line)
	return kubetest.Outcome{}
}

func (p *paper) kit() *write.Kit {
	kit, err := write.New(p.client, "scheduler", nil)
	if err != nil {
		p.t.Fatal(err)
	}
	return kit
}

func (p *paper) expect(what string, want ...string) {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if d := cmp.Diff(want, p.said); d != "" {
		p.t.Errorf("%s: %s", what, d)
	}
	p.said = nil
}

// work lets a writer run until the test ends.
func (p *paper) work(run func(context.Context) error) {
	ctx, stop := context.WithCancel(p.t.Context())
	done := make(chan error, 1)
	go func() { done <- run(ctx) }()
	p.t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			p.t.Error(err)
		}
	})
}

// after lets time pass, publishing as the loop does.
func (p *paper) after(d time.Duration, publish func() time.Time) {
	until := time.Now().Add(d)
	for {
		next := until
		if publish != nil {
			if at := publish(); !at.IsZero() && at.Before(until) {
				next = at
			}
		}
		<-time.After(time.Until(next))
		synctest.Wait()
		if !next.Before(until) {
			return
		}
	}
}

func heldWorld() *cluster.Store {
	s := cluster.NewStore(cluster.Options{})
	s.Apply(cluster.NodeState{Name: "n1"}, cluster.NodeState{Name: "n2"}, cluster.GangState{Key: kai.GangKey("a", "g"), UID: "g"})
	for _, name := range []string{"p", "q"} {
		s.Apply(waits(name, cluster.Pending, ""))
	}
	return s
}

func waits(name string, phase cluster.Phase, node string) cluster.PodState {
	return cluster.PodState{UID: "u-" + name, Namespace: "a", Name: name, Gang: kai.GangKey("a", "g"), Ours: true, Phase: phase, NodeName: node}
}

// TestNominations: room that is held for longer than a moment is told, moved, and taken back; a pod that gets its room needs
// nothing more.
func TestNominations(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, s := newPaper(t), heldWorld()
		pool := NewPool(nil)
		r := NewNominations(pool, p.kit(), p.client, NominationOptions{Event: func(about client.Object, kind, reason, message string) {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.events = append(p.events, about.GetName()+" "+kind+" "+reason+": "+message)
		}})
		p.work(pool.Run)
		publish := func() time.Time { return r.Publish(s.Snapshot(cluster.UnixNano(1))) }
		forever := cluster.Forever

		s.HoldFor("u-p", "n1", forever)
		p.after(900*time.Millisecond, publish)
		s.Release("u-p")
		p.after(time.Minute, publish)
		p.expect("a moment")

		s.HoldFor("u-p", "n1", forever)
		s.HoldFor("u-q", "n1", forever)
		s.Hold(cluster.Hold{HoldState: cluster.HoldState{Gang: kai.GangKey("a", "g"), Moved: "other", Node: "n1", Until: forever}})
		p.after(5*time.Second, publish)
		p.mu.Lock()
		if len(p.said) != 2 {
			t.Errorf("told: %q", p.said)
		}
		p.said = nil
		p.mu.Unlock()
		s.HoldFor("u-p", "n2", forever)
		p.after(5*time.Second, publish)
		p.expect("elsewhere", `1m6.9s p/u-p "n2" RoomHeld=True:WaitingForRelease`)

		s.Release("u-p")
		p.after(time.Second, publish)
		p.expect("no more", `1m10.9s p/u-p null RoomHeld=False:Released`)

		s.Assume("u-q", "n1", nil, forever)
		p.after(time.Second, publish)
		s.Apply(waits("q", cluster.Bound, "n1"))
		p.after(time.Minute, publish)
		p.expect("it has it")
		if len(r.pods) != 0 {
			t.Errorf("remembered: %v", r.pods)
		}
		const text = " Normal Pipelined: room on node n1 is held until those who leave it are gone"
		slices.Sort(p.events[:2])
		if d := cmp.Diff([]string{"p" + text, "q" + text, strings.Replace("p"+text, "n1", "n2", 1)}, p.events); d != "" {
			t.Errorf("events: %s", d)
		}
	})
}

// TestNominationsAreToldAgain: after a write that failed; and a decision that is taken back is room that is held no more.
func TestNominationsAreToldAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, s := newPaper(t), heldWorld()
		pool := NewPool(nil)
		r := NewNominations(pool, p.kit(), p.client, NominationOptions{})
		p.work(pool.Run)
		publish := func() time.Time { return r.Publish(s.Snapshot(cluster.UnixNano(1))) }
		p.fail = 2
		s.HoldFor("u-p", "n1", cluster.Forever)
		p.after(20*time.Second, publish)
		p.expect("in the end", `4s p/u-p "n1" RoomHeld=True:WaitingForRelease`)
		s.Assume("u-p", "n1", nil, cluster.Forever)
		p.after(time.Second, publish)
		s.Forget("u-p")
		p.after(time.Second, publish)
		p.expect("taken back", `21s p/u-p null RoomHeld=False:Released`)
	})
}

// TestNominationsRestore: what an earlier process promised is found by its condition; what stands no more is taken back.
func TestNominationsRestore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		shown := func(name, node, onNode string, held v1.ConditionStatus) client.Object {
			o := &v1.Pod{
				ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: name, UID: types.UID("u-" + name)}, Spec: v1.PodSpec{NodeName: onNode},
				Status: v1.PodStatus{NominatedNodeName: node},
			}
			if held != "" {
				o.Status.Conditions = []v1.PodCondition{{Type: keys.RoomHeldCondition, Status: held}}
			}
			return o
		}
		p, s := newPaper(t, shown("p", "n1", "", v1.ConditionTrue), shown("q", "n1", "", v1.ConditionTrue), shown("bound", "n1", "n1", v1.ConditionTrue),
			shown("other", "n1", "", ""), shown("released", "n1", "", v1.ConditionFalse), shown("none", "", "", v1.ConditionTrue)), heldWorld()
		pool := NewPool(nil)
		r := NewNominations(pool, p.kit(), p.client, NominationOptions{})
		p.work(pool.Run)
		got, err := r.Restore(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff([]Promise{{"u-p", "n1"}, {"u-q", "n1"}}, got); d != "" {
			t.Error(d)
		}
		s.HoldFor("u-p", "n1", cluster.Forever)
		p.after(time.Second, func() time.Time { return r.Publish(s.Snapshot(cluster.UnixNano(1))) })
		p.expect("one stands, one does not", `0s q/u-q null RoomHeld=False:Released`)
	})
}

// TestAnnotations: what is said in short succession is written together, the last word counts, and what failed is said again.
func TestAnnotations(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPaper(t)
		pool := NewPool(nil)
		m := NewAnnotations(pool, p.kit(), nil)
		p.work(pool.Run)
		g, at := kai.GangKey("a", "g"), cluster.InstantOf(time.Date(2026, 1, 2, 3, 4, 5, 6, time.FixedZone("", 3600)))
		m.Set(g, "u", keys.LastStartAnnotation, at)
		m.Set(g, "u", keys.StaleSinceAnnotation, at)
		p.after(100*time.Millisecond, nil)
		m.Set(g, "u", keys.StaleSinceAnnotation, cluster.Instant{})
		p.after(time.Second, nil)
		p.expect("together", `200ms g/u {"kai.scheduler/last-start-timestamp":"2026-01-02T02:04:05Z","kai.scheduler/stale-podgroup-timestamp":null}`)

		p.mu.Lock()
		p.fail = 1
		p.mu.Unlock()
		m.Set(g, "u", keys.LastEvictionAnnotation, at)
		p.after(300*time.Millisecond, nil)
		m.Set(g, "u", keys.LastEvictionAnnotation, at.Add(time.Hour))
		p.after(5*time.Second, nil)
		p.expect("the last word", `1.6s g/u {"kai.scheduler/last-eviction-timestamp":"2026-01-02T03:04:05Z"}`)
	})
}

// TestFrozenCondition: as long as it lasts.
func TestFrozenCondition(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPaper(t)
		pool := NewPool(nil)
		m := NewAnnotations(pool, p.kit(), nil)
		p.work(pool.Run)
		m.Frozen(kai.GangKey("a", "g"), "u", "left alone", time.Hour)
		p.after(50*time.Minute, nil)
		p.expect("said", "200ms g/u EvictionsFrozen=True:RepeatedEvictions")
		p.after(time.Hour, nil)
		p.expect("taken back", "1h0m0s g/u no conditions")
	})
}
