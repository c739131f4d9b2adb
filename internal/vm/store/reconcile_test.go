package store

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "write the golden files anew")

var uuidInText = regexp.MustCompile(`00000000-0000-5000-8000-[ 0]*([0-9]+)`)

// TestReconcileScenarios: testdata/reconcile.txt has worlds, and what is done in each. -update writes the latter anew.
func TestReconcileScenarios(t *testing.T) {
	const file = "testdata/reconcile.txt"
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	for _, one := range strings.Split(string(text), "== ")[1:] {
		head, rest, _ := strings.Cut(one, "\n")
		given, _, ok := strings.Cut(rest, "--\n")
		if !ok {
			t.Fatalf("%s: there is no --", head)
		}
		w := readWorld(t, given)
		fmt.Fprintf(&out, "== %s\n%s--\n", head, given)
		actions := Reconcile(w.facts())
		for _, a := range actions {
			fmt.Fprintln(&out, uuidInText.ReplaceAllString(a.String(), "$1"))
		}
		if err := Execute(actions, w.do); err != nil {
			t.Errorf("%s: %v", head, err)
		}
		if again := Reconcile(w.facts()); len(again) > 0 {
			t.Errorf("%s: there is still something to do: %v", head, again)
		}
	}
	if *update {
		if err := os.WriteFile(file, []byte(out.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if out.String() != string(text) && !*update {
		t.Errorf("%s differs; if it is right, run with -update. Now:\n%s", file, out.String())
	}
}

// outcome is what counts of a world once all is done.
type outcome struct {
	Sandboxes  map[string]SandboxState
	Containers map[string]ContainerState
	Domains    map[string]bool // live
	Networks   map[string]bool
	Files      map[string]bool
	Adopted    map[string]bool
	Intents    int
}

func outcomeOf(w *world) outcome {
	o := outcome{map[string]SandboxState{}, map[string]ContainerState{}, map[string]bool{}, map[string]bool{}, map[string]bool{}, map[string]bool{}, len(w.intents)}
	for id, s := range w.sandboxes {
		o.Sandboxes[id] = s.State
	}
	for id, c := range w.containers {
		o.Containers[id] = c.State
	}
	for id, d := range w.domains {
		o.Domains[id] = d.State != Off
	}
	for id := range w.networks {
		o.Networks[id] = true
	}
	o.Files = maps.Clone(w.files)
	for id := range w.adopted {
		// What was served may have gone since.
		if w.sandboxes[id].State == Ready || w.containers[id].State == Running {
			o.Adopted[id] = true
		}
	}
	return o
}

// oracle says what a world becomes, by sets and not by steps: which records stay and in which state, what they own, and that nothing else is left.
func oracle(w *world) outcome {
	o := outcome{map[string]SandboxState{}, map[string]ContainerState{}, map[string]bool{}, map[string]bool{}, map[string]bool{}, map[string]bool{}, 0}
	act := func(kind, id string) Act { return w.intents[kind+"/"+id].Act }
	for id, s := range w.sandboxes {
		if act("sandbox", id) == Remove {
			continue
		}
		o.Sandboxes[id] = NotReady
		if s.State == Ready && act("sandbox", id) != Stop && w.networks[id].Whole {
			o.Sandboxes[id], o.Networks[id], o.Adopted[id] = Ready, true, true
		}
	}
	files := map[string]bool{}
	for id, c := range w.containers {
		if _, ok := o.Sandboxes[c.SandboxID]; !ok || act("container", id) == Remove {
			continue
		}
		d := w.domains[c.Domain]
		mine := d.Container == id
		on := mine && d.State != Off
		state := Exited
		switch {
		case c.State == Exited:
		case on && (act("container", id) == Stop || act("sandbox", c.SandboxID) == Stop):
		case on && d.State == Paused && act("container", id) == Start:
		case on:
			state = Running
		case mine && d.Reason == NeverRan && c.State == Created:
			state = Created
		}
		o.Containers[id] = state
		if state == Running {
			o.Adopted[id] = true
		}
		if mine {
			o.Domains[c.Domain] = o.Adopted[id]
		}
	}
	for id, d := range w.domains {
		if d.Container == "" {
			o.Domains[id] = d.State != Off
		}
		if _, stays := o.Domains[id]; stays {
			for _, f := range d.Files {
				files[f] = true
			}
		}
	}
	for id, s := range w.sandboxes {
		if _, ok := o.Sandboxes[id]; ok {
			for _, f := range s.Files {
				files[f] = true
			}
		}
	}
	for id, c := range w.containers {
		if _, ok := o.Containers[id]; ok {
			for _, f := range c.Files {
				files[f] = true
			}
		}
	}
	for f := range w.files {
		for own := range files {
			if f == own || strings.HasPrefix(f, own+"/") || strings.HasPrefix(own, f+"/") {
				o.Files[f] = true
			}
		}
	}
	return o
}

// randomWorld has everything that can be there together, sense or not.
func randomWorld(r *rand.Rand) *world {
	w := newWorld()
	pick := func(of ...string) string { return of[r.IntN(len(of))] }
	sandboxes := []string{"s1", "s2", "s3", "s4"}
	for _, id := range sandboxes {
		if r.IntN(3) > 0 {
			w.sandboxes[id] = testSandbox(id, SandboxState(pick("ready", "ready", "notready")), "/s/"+id)
		}
		_, there := w.sandboxes[id]
		if r.IntN(3) == 0 {
			i := Intent{Kind: KindSandbox, ID: id, At: testTime, Act: Create, Files: []string{"/s/" + id}}
			if there {
				i.Act, i.Files = Act(pick("stop", "remove")), nil
			}
			w.intents[i.key()] = i
		}
		if r.IntN(3) > 0 {
			w.networks[id] = Network{ID: id, Whole: r.IntN(4) > 0}
		}
		if r.IntN(2) == 0 {
			w.files["/s/"+id] = true
		}
		if there && r.IntN(4) == 0 {
			w.adopted[id] = true
		}
	}
	for n := range 6 {
		id, num := fmt.Sprintf("c%d", n), fmt.Sprint(n)
		sandbox := pick(sandboxes...)
		_, there := w.sandboxes[sandbox]
		if there && r.IntN(4) > 0 {
			w.containers[id] = testContainer(id, sandbox, ContainerState(pick("created", "running", "running", "exited")), num, "/c/"+id, "/run/"+id)
			if r.IntN(3) == 0 {
				i := Intent{Kind: KindContainer, ID: id, At: testTime, Act: Act(pick("start", "stop", "remove"))}
				if i.Act == Stop {
					i.Deadline = testTime.Add(time.Duration(r.IntN(60)-30) * time.Second)
				}
				w.intents[i.key()] = i
			}
		} else if r.IntN(2) == 0 && there {
			i := Intent{Kind: KindContainer, ID: id, At: testTime, Act: Create, SandboxID: sandbox, Domain: testUUID(num), Files: []string{"/c/" + id, "/run/" + id}}
			w.intents[i.key()] = i
		}
		for _, f := range []string{"/c/" + id, "/run/" + id, "/c/" + id + ".part"} {
			if r.IntN(2) == 0 {
				w.files[f] = true
			}
		}
		if r.IntN(3) > 0 {
			of := id
			if r.IntN(6) == 0 {
				of = pick("", "c0", "c1", "c9")
			}
			d := Domain{UUID: testUUID(num), Container: of, State: DomainState(pick("live", "paused", "off"))}
			if d.State == Off {
				d.Reason = OffReason(pick("never ran", "shut down", "destroyed", "crashed", "saved"))
			}
			if r.IntN(2) == 0 {
				d.Files = []string{pick("/c/"+id+"/root", "/c/c1/root", "/c/c2.part")}
			}
			w.domains[d.UUID] = d
		}
	}
	return w
}

// TestReconcileProperty: a world becomes what the oracle says; then there is nothing left to do. So it does when the process dies after any action, when actions
// fail, and when sources are known only later.
func TestReconcileProperty(t *testing.T) {
	rounds := 1000
	if testing.Short() {
		rounds = 200
	}
	for seed := range rounds {
		r := rand.New(rand.NewPCG(uint64(seed), 1))
		start := randomWorld(r)
		want := oracle(start)
		fail := func(how string, w *world) {
			t.Helper()
			t.Fatalf("seed %d, %s:\n got %+v\nwant %+v\nactions %v", seed, how, outcomeOf(w), want, Reconcile(start.facts()))
		}
		w := start.clone()
		actions := Reconcile(w.facts())
		if again := Reconcile(w.facts()); !reflect.DeepEqual(actions, again) {
			t.Fatalf("seed %d: the same facts in another order: %v, then %v", seed, actions, again)
		}
		if err := Execute(actions, w.do); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if !reflect.DeepEqual(outcomeOf(w), want) {
			fail("carried out whole", w)
		}
		if again := Reconcile(w.facts()); len(again) > 0 {
			t.Fatalf("seed %d: there is still something to do: %v", seed, again)
		}
		for at := range actions {
			w := start.clone()
			if err := Execute(actions[:at], w.do); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			w.adopted = maps.Clone(start.adopted) // the process has died
			if err := Execute(Reconcile(w.facts()), w.do); err != nil {
				t.Fatalf("seed %d, dead after %d: %v", seed, at, err)
			}
			if !reflect.DeepEqual(outcomeOf(w), want) {
				fail(fmt.Sprintf("dead after %d", at), w)
			}
		}
		w = start.clone()
		broken := errors.New("broken")
		_ = Execute(actions, func(a Action) error {
			if r.IntN(3) == 0 {
				return broken
			}
			return w.do(a)
		})
		if err := Execute(Reconcile(w.facts()), w.do); err != nil {
			t.Fatalf("seed %d: after failures: %v", seed, err)
		}
		if !reflect.DeepEqual(outcomeOf(w), want) {
			fail("after failures", w)
		}
		w = start.clone()
		w.noDomains, w.noNetworks, w.noFiles = r.IntN(2) == 0, r.IntN(2) == 0, r.IntN(2) == 0
		if err := Execute(Reconcile(w.facts()), w.do); err != nil {
			t.Fatalf("seed %d: with sources unknown: %v", seed, err)
		}
		for _, f := range slices.Sorted(maps.Keys(want.Files)) {
			if !w.files[f] {
				t.Fatalf("seed %d: with sources unknown, %s went", seed, f)
			}
		}
		w.noDomains, w.noNetworks, w.noFiles = false, false, false
		if err := Execute(Reconcile(w.facts()), w.do); err != nil {
			t.Fatalf("seed %d: with sources known later: %v", seed, err)
		}
		if !reflect.DeepEqual(outcomeOf(w), want) {
			fail("with sources known later", w)
		}
	}
}

// TestEnded: the exit code is the guest's only where it powered off.
func TestEnded(t *testing.T) {
	three := int32(3)
	zero := int32(0)
	for _, c := range []struct {
		reason OffReason
		said   *int32
		code   int32
		why    string
	}{
		{ShutDown, nil, 0, ReasonCompleted},
		{ShutDown, &zero, 0, ReasonCompleted},
		{ShutDown, &three, 3, ReasonError},
		{Destroyed, &three, 137, ReasonKilled},
		{Crashed, &zero, 139, ReasonCrashed},
		{Saved, nil, 137, ReasonSuspended},
		{"", &zero, 255, ReasonLost},
	} {
		if code, why := Ended(c.reason, c.said); code != c.code || why != c.why {
			t.Errorf("Ended(%q, %v) is %d %s, want %d %s", c.reason, c.said, code, why, c.code, c.why)
		}
	}
}

func manyWorlds(n int) *world {
	w := newWorld()
	for i := range n {
		s, c, num := fmt.Sprintf("s%d", i), fmt.Sprintf("c%d", i), fmt.Sprint(i)
		w.sandboxes[s] = testSandbox(s, Ready, "/s/"+s)
		w.containers[c] = testContainer(c, s, Running, num, "/c/"+c)
		w.domains[testUUID(num)] = Domain{UUID: testUUID(num), Container: c, State: Live, Files: []string{"/c/" + c + "/root"}}
		w.networks[s] = Network{ID: s, Whole: true}
		w.files["/s/"+s], w.files["/c/"+c], w.files["/c/old"+num] = true, true, true
		if i%3 == 0 {
			w.intents["container/"+c] = Intent{Kind: KindContainer, ID: c, Act: Stop}
		}
	}
	return w
}

// BenchmarkReconcile is 500 pods, a third of them in the middle of a stop, and 500 files that nobody owns.
func BenchmarkReconcile(b *testing.B) {
	f := manyWorlds(500).facts()
	for b.Loop() {
		if len(Reconcile(f)) != 500+500+500 {
			b.Fatal("other actions than one for each sandbox, container and old file")
		}
	}
}
