package store

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"
)

// mortal plays the runtime's part in the life of pods, on a real store and a made-up node, and dies before or after one of its steps: each side effect, and each transaction. What is in
// the file at that moment is copied: that is what the next process finds.
type mortal struct {
	t     *testing.T
	dir   string
	s     *Store
	w     *world
	at    int // the step to die at; 0: never
	after bool
	steps int
	dead  bool
	// left is the file as the death left it.
	left string
}

func (m *mortal) die() {
	m.dead = true
	m.left = filepath.Join(m.dir, "left.db")
	b, err := os.ReadFile(filepath.Join(m.dir, "vm.db"))
	must(m.t, err)
	must(m.t, os.WriteFile(m.left, b, 0o600))
}

// step is one side effect, or what a transaction is to the disk.
func (m *mortal) step(do func()) {
	if m.dead {
		return
	}
	m.steps++
	if m.steps == m.at && !m.after {
		m.die()
		return
	}
	do()
	if m.steps == m.at {
		m.die()
	}
}

// tx is one transaction, as one step: bbolt makes it whole or not at all.
func (m *mortal) tx(f func(*Tx) error) {
	if !m.dead {
		m.step(func() { must(m.t, m.s.Update(f)) })
	}
}

// life is what a kubelet has done to two pods, and what their guests do.
func (m *mortal) life() {
	run := func(id string) {
		files := []string{"/s/" + id}
		m.tx(func(tx *Tx) error {
			return tx.Begin(Intent{Kind: KindSandbox, ID: id, Act: Create, At: testTime, Files: files})
		})
		m.step(func() { m.w.files["/s/"+id] = true })
		m.step(func() { m.w.networks[id] = Network{ID: id, Whole: true} })
		m.tx(func(tx *Tx) error {
			tx.End(KindSandbox, id)
			return tx.PutSandbox(testSandbox(id, Ready, files...))
		})
	}
	create := func(id, box, num string) {
		files := []string{"/c/" + id, "/run/" + id}
		m.tx(func(tx *Tx) error {
			return tx.Begin(Intent{Kind: KindContainer, ID: id, Act: Create, At: testTime, SandboxID: box, Domain: testUUID(num), Files: files})
		})
		m.step(func() { m.w.files["/c/"+id] = true })
		m.step(func() { m.w.files["/run/"+id] = true })
		m.step(func() {
			m.w.domains[testUUID(num)] = Domain{UUID: testUUID(num), Container: id, State: Off, Reason: NeverRan, Files: []string{"/c/" + id + "/root"}}
		})
		m.tx(func(tx *Tx) error {
			tx.End(KindContainer, id)
			return tx.PutContainer(testContainer(id, box, Created, num, files...))
		})
	}
	set := func(num string, state DomainState, reason OffReason) {
		m.step(func() {
			d := m.w.domains[testUUID(num)]
			d.State, d.Reason = state, reason
			m.w.domains[d.UUID] = d
		})
	}
	begin := func(kind Kind, id string, act Act) {
		m.tx(func(tx *Tx) error {
			return tx.Begin(Intent{Kind: kind, ID: id, Act: act, At: testTime, Deadline: testTime.Add(10 * time.Second)})
		})
	}
	state := func(id string, to ContainerState) {
		m.tx(func(tx *Tx) error {
			tx.End(KindContainer, id)
			c, _ := tx.Container(id)
			c.State = to
			if to == Running {
				c.StartedAt = testTime
			} else {
				c.FinishedAt = testTime
			}
			return tx.PutContainer(c)
		})
	}
	start := func(id, num string) {
		begin(KindContainer, id, Start)
		set(num, Paused, "")
		set(num, Live, "")
		state(id, Running)
	}
	remove := func(id, num string) {
		begin(KindContainer, id, Remove)
		m.step(func() { delete(m.w.domains, testUUID(num)) })
		m.step(func() { delete(m.w.files, "/c/"+id) })
		m.step(func() { delete(m.w.files, "/run/"+id) })
		m.tx(func(tx *Tx) error {
			tx.End(KindContainer, id)
			tx.DeleteContainer(id)
			return nil
		})
	}
	run("s1")
	create("c1", "s1", "1")
	start("c1", "1")
	run("s2")
	create("c2", "s2", "2")
	set("1", Off, ShutDown)
	state("c1", Exited)
	create("c3", "s1", "3") // the next container of the first pod
	start("c3", "3")
	start("c2", "2")
	begin(KindContainer, "c3", Stop)
	set("3", Off, Destroyed)
	state("c3", Exited)
	remove("c1", "1")
	remove("c3", "3")
	begin(KindSandbox, "s1", Stop)
	m.step(func() { delete(m.w.networks, "s1") })
	m.tx(func(tx *Tx) error {
		tx.End(KindSandbox, "s1")
		return tx.PutSandbox(testSandbox("s1", NotReady, "/s/s1"))
	})
	begin(KindSandbox, "s1", Remove)
	m.step(func() { delete(m.w.files, "/s/s1") })
	m.tx(func(tx *Tx) error {
		tx.End(KindSandbox, "s1")
		tx.DeleteSandbox("s1")
		return nil
	})
}

// TestCrash: the runtime dies before and after each of its writes. The next one reconciles, and may die at each of its own; in the end everything there is belongs to a record, every
// record has what it speaks of, no intent is open, and what ran still runs.
func TestCrash(t *testing.T) {
	points := 0
	for _, after := range []bool{false, true} {
		for at := 1; ; at++ {
			m := &mortal{t: t, dir: t.TempDir(), w: newWorld(), at: at, after: after}
			m.s = openTest(t, filepath.Join(m.dir, "vm.db"))
			m.life()
			if !m.dead {
				t.Logf("%d steps", m.steps)
				break
			}
			points++
			must(t, m.s.Close())
			recover1(t, m, fmt.Sprintf("dead at %d, after: %v", at, after))
		}
	}
	if points < 100 {
		t.Errorf("only %d points", points)
	}
}

// recover1 reconciles what a death left, with a second death after each number of actions.
func recover1(t *testing.T, m *mortal, where string) {
	t.Helper()
	before, err := os.ReadFile(m.left)
	must(t, err)
	for second := 0; ; second++ {
		path := filepath.Join(m.dir, fmt.Sprintf("second%d.db", second))
		must(t, os.WriteFile(path, before, 0o600))
		w := m.w.clone()
		s := openTest(t, path)
		gather := func() Facts {
			f := s.Facts()
			w.sandboxes, w.containers, w.intents = map[string]Sandbox{}, map[string]Container{}, map[string]Intent{}
			for _, r := range f.Sandboxes {
				w.sandboxes[r.ID] = r
			}
			for _, r := range f.Containers {
				w.containers[r.ID] = r
			}
			for _, r := range f.Intents {
				w.intents[r.key()] = r
			}
			return w.facts()
		}
		do := func(a Action) error {
			if a.Op == OpWrite {
				must(t, s.Apply(a))
			}
			if a.Op == OpStop {
				must(t, s.Update(func(tx *Tx) error {
					c, _ := tx.Container(a.ID)
					c.State, c.FinishedAt = Exited, testTime
					tx.End(KindContainer, a.ID)
					return tx.PutContainer(c)
				}))
			}
			return w.do(a)
		}
		actions := Reconcile(gather())
		want := oracle(w)
		whole := second >= len(actions)
		if !whole {
			must(t, Execute(actions[:second], do))
			must(t, s.Close())
			w.adopted = map[string]bool{}
			s = openTest(t, path)
			actions = Reconcile(gather())
		}
		if err := Execute(actions, do); err != nil {
			t.Fatalf("%s, then after %d: %v", where, second, err)
		}
		rest := Reconcile(gather())
		if len(rest) > 0 {
			t.Fatalf("%s, then after %d: still to do: %v", where, second, rest)
		}
		if got := outcomeOf(w); !reflect.DeepEqual(got, want) {
			t.Fatalf("%s, then after %d:\n got %+v\nwant %+v", where, second, got, want)
		}
		owned(t, w, where)
		must(t, s.Close())
		if whole {
			return
		}
	}
}

// owned: what there is belongs to a record, and a machine that a record says runs does.
func owned(t *testing.T, w *world, where string) {
	t.Helper()
	files := map[string]bool{}
	for id, s := range w.sandboxes {
		for _, f := range s.Files {
			files[f] = true
		}
		if (s.State == Ready) != w.networks[id].Whole {
			t.Errorf("%s: sandbox %s is %s, its network %v", where, id, s.State, w.networks[id])
		}
	}
	uuids := map[string]bool{}
	for _, c := range w.containers {
		uuids[c.Domain] = true
		for _, f := range c.Files {
			files[f] = true
			if !w.files[f] {
				t.Errorf("%s: container %s has lost %s", where, c.ID, f)
			}
		}
		if d := w.domains[c.Domain]; (c.State == Running) != (d.State == Live) {
			t.Errorf("%s: container %s is %s, its domain %v", where, c.ID, c.State, d)
		}
	}
	for f := range w.files {
		if !files[f] {
			t.Errorf("%s: %s is left", where, f)
		}
	}
	for id := range w.domains {
		if !uuids[id] {
			t.Errorf("%s: domain %s is left", where, id)
		}
	}
	for id := range w.networks {
		if _, ok := w.sandboxes[id]; !ok {
			t.Errorf("%s: network %s is left", where, id)
		}
	}
	if len(w.intents) > 0 {
		t.Errorf("%s: intents %v", where, w.intents)
	}
}
