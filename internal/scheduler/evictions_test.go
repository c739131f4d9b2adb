package scheduler

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-scheduler/muster/api/kai/keys"
	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/dialect/kai"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/kube/apply"
)

// evictor plays the writer of evictions.
type evictor struct {
	*fixture
	settled  chan struct{}
	said     []string // "seconds verb pod…" of each bundle that evicts
	fail     error    // of every bundle, after the first eviction
	silent   bool     // no outcome ever comes
	outcomes []apply.Outcome
}

func (e *evictor) Submit(p engine.Plan) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, b := range p.Bundles {
		o := apply.Outcome{Action: p.Action, Bundle: b, Evicted: map[string]bool{}, Err: e.fail}
		line := e.seconds() + " " + p.Action
		for _, in := range b.Intents {
			if in.Verb == engine.Evict {
				line += " -" + in.Pod
				if e.fail == nil || len(o.Evicted) == 0 {
					o.Evicted[in.UID] = true
				}
			}
		}
		if len(o.Evicted) == 0 {
			continue
		}
		e.said = append(e.said, line)
		if !e.silent {
			e.outcomes = append(e.outcomes, o)
		}
	}
	if len(e.outcomes) > 0 {
		select {
		case e.settled <- struct{}{}:
		default:
		}
	}
}

func (e *evictor) Settled() <-chan struct{} { return e.settled }

func (e *evictor) Outcomes() []apply.Outcome {
	e.mu.Lock()
	defer e.mu.Unlock()
	out := e.outcomes
	e.outcomes = nil
	return out
}

// rooms plays the writer of held room.
type rooms struct {
	*fixture
	before []apply.Promise
	held   string // as last published: "pod@node …"
}

func (r *rooms) Restore(context.Context) ([]apply.Promise, error) { return r.before, nil }

func (r *rooms) Publish(snap *cluster.Snapshot) time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.held = ""
	for i := range snap.Holds {
		h := &snap.Holds[i]
		r.held += h.ID() + "@" + h.Node + " "
	}
	return time.Time{}
}

func (w *fixture) Set(gang cluster.Key, _, annotation string, at cluster.Instant) {
	w.set(func() {
		line := w.seconds() + " " + gang.Name + " " + annotation[strings.Index(annotation, "/")+1:]
		if at.IsZero() {
			line += " gone"
		}
		w.marks = append(w.marks, line)
	})
}

func (w *fixture) Frozen(gang cluster.Key, _, _ string, lasts time.Duration) {
	w.set(func() { w.marks = append(w.marks, fmt.Sprintf("%s %s frozen for %v", w.seconds(), gang.Name, lasts)) })
}

// urgent is a gang of higher priority.
func urgent(name string, pods ...string) []cluster.Event {
	out := gang(name, pods...)
	g := out[0].(cluster.GangState)
	g.Priority = 100
	out[0] = g
	return out
}

// full fills the node with a gang of one pod per name that can lose one.
func full(w *fixture, names ...string) {
	events := gang("old", names...)
	g := events[0].(cluster.GangState)
	g.Sets[0].Min = 1
	events[0] = g
	for i := range names {
		p := events[i+1].(cluster.PodState)
		p.Phase, p.NodeName = cluster.Running, "n1"
		events[i+1] = p
	}
	w.events = append(w.events, events...)
}

func TestEvictionIsAssumedAndRoomHeld(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := begin(t, Options{Period: time.Hour}, func(w *fixture) { full(w, "a", "b") })
		w.pass(time.Second)
		w.happens(urgent("new", "p")...)
		w.pass(500 * time.Millisecond)
		w.expect("who goes", &w.evictions.said, "1.00 preempt -b")
		w.set(func() {
			if w.rooms.held != "u-p@n1 " {
				t.Errorf("held: %q", w.rooms.held)
			}
		})
		w.expect("told", &w.marks, "1.00 old last-eviction-timestamp")
		w.plans = nil
		w.happens(pod("b", kai.GangKey("a", "old"), cluster.Releasing, "n1"))
		w.pass(10 * time.Second)
		w.happens(gang("other", "q")...)
		w.pass(time.Second)
		w.expect("nothing is decided while it leaves", &w.plans)
		w.expect("nobody else goes", &w.evictions.said)
		w.happens(cluster.PodGone{UID: "u-b"})
		w.pass(time.Second)
		w.expect("who waited for it gets it", &w.plans, "12.50 p")
		if n := counter(w.metrics.evictions.WithLabelValues("preempt")); n != 1 {
			t.Errorf("%v evictions counted", n)
		}
		got := w.records.Latest()
		if len(got) != 1 || got[0].Action != "preempt" || got[0].Gang != "a/new" || got[0].Evicted != 1 || got[0].Spared != "" {
			t.Errorf("remembered: %+v", got)
		}
	})
}

// TestSparedBundleIsForgotten: whom it was for waits a little, and those that were spared are what they were.
func TestSparedBundleIsForgotten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var events []string
		w := begin(t, Options{Period: time.Hour, Annotated: func(_ client.Object, reason, message string, annotations map[string]string) {
			var r Record
			if text := annotations[keys.DecisionAnnotation]; text != "" && (json.Unmarshal([]byte(text), &r) != nil || r.Pods == 0 || r.Eviction == nil) {
				t.Errorf("record: %s", text)
			}
			if r.Eviction != nil {
				events = append(events, reason+" "+message)
				// It is read in the namespace of whom it was for.
				if strings.Contains(message+r.Spared, "secret") || slices.ContainsFunc(r.Eviction.Victims, func(v engine.Victim) bool { return v.UID != "" }) {
					t.Errorf("one tenant is told of another's pods, or of the UIDs of its PodGroups: %s; %+v", message, r)
				}
			}
		}}, func(w *fixture) { full(w, "a", "b") })
		w.pass(time.Second)
		w.evictions.fail = fmt.Errorf("others/secret: %w", apply.ErrBlocked)
		w.happens(urgent("new", "p", "q")...)
		w.pass(100 * time.Millisecond)
		w.expect("who goes", &w.evictions.said, "1.00 preempt -b -a")
		w.set(func() { w.evictions.fail = nil })
		w.pass(800 * time.Millisecond)
		w.expect("whom it was for waits", &w.evictions.said)
		w.pass(200 * time.Millisecond)
		w.expect("and then only who was spared goes", &w.evictions.said, "2.00 preempt -a")
		if len(events) == 0 || !strings.HasPrefix(events[0], "EvictionsSpared preempt: 1 pods were spared: a PodDisruptionBudget allows no eviction now") {
			t.Errorf("told: %q", events)
		}
		if got := w.records.Latest(); len(got) != 2 || got[1].Spared != "others/secret: a PodDisruptionBudget allows no eviction now" || got[1].Pods != 2 || got[1].Evicted != 1 {
			t.Errorf("remembered: %+v", got)
		}
	})
}

// TestVictimsAreToldLater: that room was made is told at once; whom it was taken from is told once there is time, in the same words.
func TestVictimsAreToldLater(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var events []string
		var later []func()
		w := begin(t, Options{Period: time.Hour, Later: func(say func()) { later = append(later, say) }, Annotated: func(about client.Object, reason, message string, annotations map[string]string) {
			events = append(events, about.GetName()+" "+reason+" "+message+" "+annotations[keys.EvictedPodsAnnotation]+annotations[keys.EvictorActionAnnotation]+annotations[keys.EvictorPodGroupAnnotation])
		}}, func(w *fixture) { full(w, "a", "b") })
		w.pass(time.Second)
		w.happens(urgent("new", "p")...)
		w.pass(time.Second)
		w.expect("who goes", &w.evictions.said, "1.00 preempt -b")
		if d := cmp.Diff([]string{"new RoomMade preempt: 1 pods of 1 gangs leave "}, events); d != "" {
			t.Error(d)
		}
		events = nil
		for _, say := range later {
			say()
		}
		if len(events) != 1 || !strings.HasPrefix(events[0], "old Evict 1 pods evicted by preempt for a/new") || !strings.HasSuffix(events[0], " 1preemptnew") {
			t.Errorf("told later: %q", events)
		}
	})
}

// TestLostEvictionIsDecidedAnew: an eviction of which nothing is ever heard is spared in the end.
func TestLostEvictionIsDecidedAnew(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := begin(t, Options{Period: time.Hour}, func(w *fixture) { full(w, "a", "b") })
		w.pass(time.Second)
		w.evictions.silent = true
		w.happens(urgent("new", "p")...)
		w.pass(time.Minute)
		w.expect("who goes", &w.evictions.said, "1.00 preempt -b", "31.10 preempt -b")
	})
}

// TestStuckVictim: while a victim drains, nobody else goes; once it is stuck, there is a new plan.
func TestStuckVictim(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := begin(t, Options{Period: time.Hour}, func(w *fixture) { full(w, "a", "b") })
		w.pass(time.Second)
		w.happens(urgent("new", "p")...)
		w.pass(time.Second)
		w.expect("who goes", &w.evictions.said, "1.00 preempt -b")
		leaving := pod("b", kai.GangKey("a", "old"), cluster.Releasing, "n1")
		leaving.DeletedAt = cluster.InstantOf(time.Now().Add(30 * time.Second))
		w.happens(leaving)
		w.pass(2*time.Minute + 25*time.Second)
		w.expect("it drains", &w.evictions.said)
		w.pass(10 * time.Second)
		w.expect("it is stuck", &w.evictions.said, "152.00 preempt -a")
	})
}

// TestPromisesOutliveAProcess: the first run knows what the process before promised.
func TestPromisesOutliveAProcess(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := begin(t, Options{Period: time.Hour}, func(w *fixture) {
			full(w, "a", "b")
			leaving := pod("b", kai.GangKey("a", "old"), cluster.Releasing, "n1")
			w.events = append(w.events, leaving)
			w.events = append(w.events, gang("early", "q")...)
			w.events = append(w.events, urgent("new", "p")...)
			w.rooms.before = []apply.Promise{{UID: "u-q", Node: "n1"}}
		})
		w.pass(time.Second)
		w.expect("the victims are those of the one without a promise", &w.evictions.said, "0.00 preempt -a")
		w.set(func() {
			if w.rooms.held != "u-q@n1 u-p@n1 " {
				t.Errorf("held: %q", w.rooms.held)
			}
		})
	})
}

func TestRecords(t *testing.T) {
	t.Parallel()
	var r Records
	for i := range keptRecords + 3 {
		r.add(Record{Pods: i})
	}
	got := r.Latest()
	if len(got) != keptRecords || got[0].Pods != keptRecords+2 || got[len(got)-1].Pods != 3 {
		t.Errorf("%d records, from %d to %d", len(got), got[0].Pods, got[len(got)-1].Pods)
	}
	var none *Records
	none.add(Record{})
	answer := httptest.NewRecorder()
	r.ServeHTTP(answer, nil)
	if text := answer.Body.String(); !strings.HasPrefix(text, "[\n") || answer.Header().Get("Content-Type") != "application/json" {
		t.Errorf("%.100q", text)
	}
}

// TestMonitor: a gang that is evicted for another one again and again, and comes back while the other stands no better, is
// noticed; a gang that shrinks for one that grows is not.
func TestMonitor(t *testing.T) {
	t.Parallel()
	taker, giver := kai.GangKey("a", "taker"), kai.GangKey("a", "giver")
	start := time.Unix(1e9, 0)
	for _, c := range []struct {
		name   string
		taker  []int // pods with room before each decision
		giver  []int
		every  time.Duration
		frozen []int // decisions by which it was noticed
	}{
		{"circle", []int{0, 0, 0, 0, 0}, []int{1, 1, 1, 1, 1}, time.Minute, []int{3, 4}},
		{"slow circle", []int{0, 0, 0, 0, 0}, []int{1, 1, 1, 1, 1}, 31 * time.Minute, nil},
		{"shrinks", []int{0, 0, 0, 0, 0}, []int{5, 4, 3, 2, 1}, time.Minute, nil},
		{"grows", []int{0, 1, 2, 3, 4}, []int{5, 5, 5, 5, 5}, time.Minute, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var m monitor
			var got []int
			for i := range c.taker {
				now := start.Add(time.Duration(i) * c.every)
				s := cluster.NewStore(cluster.Options{})
				for key, n := range map[cluster.Key]int{taker: c.taker[i], giver: c.giver[i]} { // order: two gangs
					s.Apply(cluster.GangState{Key: key, UID: key.Name})
					for k := range n {
						s.Apply(pod(fmt.Sprint(key.Name, k), key, cluster.Running, "n"))
					}
				}
				p := engine.Plan{Bundles: []engine.Bundle{{
					ID: fmt.Sprint(i), Gang: taker, Intents: []engine.Intent{{Verb: engine.Evict}},
					Eviction: &engine.EvictionRecord{Cause: engine.Reclaim, Victims: []engine.Victim{{Gang: giver, Pods: 1}}},
				}}}
				m.decided(&p, gangsOf(&p, s, s.Snapshot(cluster.UnixNano(1))))
				if pairs := m.carried(&p.Bundles[0], now); len(pairs) > 0 {
					got = append(got, i)
				}
			}
			if d := cmp.Diff(c.frozen, got); d != "" {
				t.Error(d)
			}
		})
	}
}

// TestBrief keeps the record of a large decision small enough for an event, and leaves the one in memory whole.
func TestBrief(t *testing.T) {
	t.Parallel()
	r := Record{Eviction: &engine.EvictionRecord{Victims: make([]engine.Victim, 100)}}
	var told Record
	if err := json.Unmarshal([]byte(r.brief("")), &told); err != nil {
		t.Fatal(err)
	}
	if len(told.Eviction.Victims) != toldVictims || told.More != 100-toldVictims || len(r.Eviction.Victims) != 100 || r.More != 0 {
		t.Errorf("told %d and %d more, kept %d", len(told.Eviction.Victims), told.More, len(r.Eviction.Victims))
	}
}
