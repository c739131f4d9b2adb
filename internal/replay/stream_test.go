package replay_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/engine/builtin"
	"github.com/muster-scheduler/muster/internal/engine/enginetest"
	"github.com/muster-scheduler/muster/internal/profile"
	"github.com/muster-scheduler/muster/internal/replay"
)

// followed is a reader of a stream that takes a line when it is asked to.
type followed struct {
	replay.Follower
	t     *testing.T
	lines chan []byte
	ended chan error
	end   context.CancelFunc
}

func follow(t *testing.T, s *replay.Stream) *followed {
	t.Helper()
	ctx, end := context.WithCancel(t.Context())
	f := &followed{t: t, lines: make(chan []byte), ended: make(chan error, 1), end: end}
	go func() {
		f.ended <- s.Follow(ctx, func(line []byte) error {
			select {
			case f.lines <- line:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
	}()
	t.Cleanup(end)
	return f
}

// take takes in the next entry that says something.
func (f *followed) take() (replay.EntryKind, []byte) {
	f.t.Helper()
	for {
		select {
		case line := <-f.lines:
			kind, err := f.Take(line)
			if err != nil {
				f.t.Fatal(err)
			}
			if kind != replay.Still {
				return kind, line
			}
		case err := <-f.ended:
			f.t.Fatalf("the stream has ended: %v", err)
		}
	}
}

// TestFollowed: a reader that has followed a scheduler through every cycle of every scenario has each as the scheduler had it: written, the same
// bytes; decided on again, the same plans byte for byte. Most are told by what differs; whole are the first one of each scenario and of each new Store.
func TestFollowed(t *testing.T) {
	t.Parallel()
	scs, err := enginetest.Load(filepath.Join("..", "..", "scenarios"))
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[replay.EntryKind]int{}
	for _, sc := range scs {
		b, err := enginetest.NewEngine(&sc.Options, enginetest.Mutation{}, nil)
		if err != nil {
			continue // needs the upstream filters
		}
		var s *replay.Stream
		var f *followed
		var kept replay.Follower // of two cycles in three
		n := 0
		b.Watch = func(snap *cluster.Snapshot, p engine.Profile, r engine.Registry, plans []engine.Plan) error {
			if s == nil {
				s = replay.NewStream("v", p, false)
				f = follow(t, s)
			}
			s.Decided(snap, plans)
			kind, line := f.take()
			kinds[kind]++
			own, theirs := &replay.Case{Version: "v", Profile: p, Image: snap.Image(), Decided: true, Plans: plans}, f.Case()
			if !bytes.Equal(written(t, own), written(t, theirs)) {
				return fmt.Errorf("%s: it has another cluster:\n%s\nthe scheduler's is\n%s", kind, unpacked(t, written(t, theirs)), unpacked(t, written(t, own)))
			}
			if n++; n%3 != 0 {
				var text bytes.Buffer
				whole, err := f.Condensed(&text, n%12 == 1)
				if err != nil {
					return err
				}
				if _, err := kept.Take(text.Bytes()); err != nil {
					return fmt.Errorf("condensed (whole %v): %w", whole, err)
				}
				switch {
				case whole:
				case bytes.Equal(text.Bytes(), line):
					kinds["as it came"]++
				default:
					kinds["condensed"]++
				}
				if !bytes.Equal(written(t, own), written(t, kept.Case())) {
					return fmt.Errorf("condensed (whole %v), it has another cluster", whole)
				}
			}
			out, err := theirs.Run(t.Context(), r)
			if err == nil && !out.Same {
				err = errors.New("it comes to other plans")
			}
			return err
		}
		if _, err := sc.Play(b); err != nil {
			t.Errorf("%s: %v", sc.Name, err)
		}
		if f != nil {
			f.end()
		}
	}
	t.Logf("entries by kind: %v", kinds)
	if kinds[replay.Change] < 500 || kinds["condensed"] < 80 || kinds["as it came"] < 80 || kinds[replay.Gap] > 0 {
		t.Errorf("entries by kind: %v", kinds)
	}
}

// TestChangesAreSmall: a cycle that differs by one queue costs no more for what is remembered of a thousand pods that run; one of an older version, that says the whole memory, is read as well, and what is condensed
// of it says the whole once.
func TestChangesAreSmall(t *testing.T) {
	t.Parallel()
	store := smallCluster().Image.Store(cluster.Options{})
	store.Snapshot(cluster.UnixNano(1))
	for i := range 1000 {
		key := cluster.Key{Face: "kai", Namespace: "ns", Name: fmt.Sprint("gang", i)}
		uid := fmt.Sprint("pod", i)
		store.Apply(cluster.GangState{Key: key, UID: key.Name, Queue: "q", Sets: cluster.FlatTree(1)}, cluster.PodState{UID: uid, Namespace: "ns", Name: uid, Ours: true, Gang: key})
		if !store.Assume(uid, "n", nil, cluster.Forever) {
			t.Fatal("it is not assumed")
		}
	}
	s := replay.NewStream("v", profile.BuiltIn(), false)
	decide := func(quota int64) (line []byte, f *followed) {
		store.Apply(cluster.QueueState{Name: "q", UID: "q", Quota: []cluster.Quantity{{Name: "gpu", Value: quota}}})
		s.Decided(store.Snapshot(cluster.UnixNano(quota)), nil)
		f = follow(t, s)
		_, line = f.take()
		return line, f
	}
	keyframe, f := decide(2)
	if n := len(f.Case().Image.Memory.Held); n != 1000 || len(keyframe) < 100_000 {
		t.Fatalf("a keyframe of %d bytes; %d pods are held", len(keyframe), n)
	}
	whole, g := decide(3)
	if kind, line := f.take(); kind != replay.Change || len(line) > 8000 {
		t.Errorf("a %s of %d bytes", kind, len(line))
	}
	if !bytes.Equal(written(t, f.Case()), written(t, g.Case())) {
		t.Error("it comes to another cluster than the keyframe of the same cycle")
	}

	old := replay.Follower{}
	first := bytes.Replace(whole, []byte(`"kind":"keyframe"`), []byte(`"kind":"cycle"`), 1)
	first = bytes.Replace(first, []byte(`"format":"muster.cycles/v2",`), nil, 1)
	for i, line := range [][]byte{bytes.Replace(keyframe, []byte("cycles/v2"), []byte("cycles/v1"), 1), first} {
		if _, err := old.Take(line); err != nil {
			t.Fatal(err)
		}
		var text bytes.Buffer
		if isWhole, err := old.Condensed(&text, false); err != nil || isWhole != (i == 0) || i == 1 && bytes.Contains(text.Bytes(), []byte(`"again"`)) {
			t.Errorf("condensed: whole %v, %v", isWhole, err)
		}
	}
	if !bytes.Equal(written(t, f.Case()), written(t, old.Case())) {
		t.Error("what a version without parts says comes to another cluster")
	}
}

// cycles makes a small cluster of whose queue the quota changes from cycle to cycle.
func cycles(s *replay.Stream) (decide func()) {
	store, n := smallCluster().Image.Store(cluster.Options{}), int64(0)
	return func() {
		n++
		store.Apply(cluster.QueueState{Name: "q", UID: "q", Quota: []cluster.Quantity{{Name: "gpu", Value: n}}})
		s.Decided(store.Snapshot(cluster.UnixNano(n)), nil)
	}
}

// TestSlowReader: a reader that is too slow finds a gap that counts what it missed, and then the whole latest cycle; it delays neither the scheduler nor
// another reader. One that is merely late misses nothing.
func TestSlowReader(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := replay.NewStream("v", profile.BuiltIn(), false)
		decide := cycles(s)
		slow, quick := follow(t, s), follow(t, s)
		synctest.Wait()
		decide()
		for _, f := range []*followed{slow, quick} {
			if kind, _ := f.take(); kind != replay.Keyframe {
				t.Fatalf("it begins with a %s", kind)
			}
		}
		for range 10 {
			decide()
		}
		for want := uint64(2); want <= 11; want++ {
			if kind, _ := slow.take(); kind != replay.Change {
				t.Fatalf("one that is late gets a %s", kind)
			}
		}
		for i := range 200 {
			decide()
			if i == 0 {
				synctest.Wait() // the slow one's write of its next cycle blocks, before it is late
			}
			if kind, _ := quick.take(); kind != replay.Change {
				t.Fatalf("a quick one gets a %s", kind)
			}
		}
		synctest.Wait()
		if kind, _ := slow.take(); kind != replay.Change {
			t.Fatalf("what was under way is a %s", kind)
		}
		if kind, _ := slow.take(); kind != replay.Gap || slow.Case() != nil {
			t.Fatalf("one that is too slow gets a %s", kind)
		}
		if kind, _ := slow.take(); kind != replay.Keyframe {
			t.Fatalf("after a gap comes a %s", kind)
		}
		number, missed := slow.Cycle()
		if quick.take(); number != 211 || missed != 198 {
			t.Errorf("it has cycle %d and missed %d", number, missed)
		}
		if q, ok := slow.Case().Image.Events[2].(cluster.QueueState); !ok || q.Quota[2].Value != 211 {
			t.Errorf("%+v", slow.Case().Image.Events[2])
		}
	})
}

// TestReaders: who follows before there is a cycle waits; a stream in which nothing happens says so; there is room for so many, and a place that
// was left is free again.
func TestReaders(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := replay.NewStream("v", profile.BuiltIn(), false)
		var all []*followed
		for range 8 {
			all = append(all, follow(t, s))
		}
		synctest.Wait()
		if err := s.Follow(t.Context(), nil); !errors.Is(err, replay.ErrReaders) {
			t.Errorf("a ninth: %v", err)
		}
		line := <-all[0].lines
		if kind, err := all[0].Take(line); kind != replay.Still || err != nil || all[0].Case() != nil {
			t.Errorf("%s, %v", kind, err)
		}
		all[0].end()
		if err := <-all[0].ended; err != nil {
			t.Errorf("it ends with %v", err)
		}
		cycles(s)()
		if kind, _ := follow(t, s).take(); kind != replay.Keyframe {
			t.Errorf("one that comes after one has left gets a %s", kind)
		}
	})
}

// TestTakeRefuses: what does not follow, what is of another format and what no scheduler would say is refused by name, and what was there before holds.
func TestTakeRefuses(t *testing.T) {
	t.Parallel()
	s := replay.NewStream("v", profile.BuiltIn(), false)
	decide := cycles(s)
	decide()
	f := follow(t, s)
	_, first := f.take()
	decide()
	_, second := f.take()
	decide()
	third := <-f.lines
	for want, line := range map[string]string{
		"read a cycle: ": "hello",
		"an entry of kind \"dream\" is not known":     `{"kind":"dream"}`,
		"after the entry comes \"{}\"":                strings.TrimSuffix(string(third), "\n") + "{}\n",
		`the keyframe's format is ""`:                 strings.Replace(string(third), `,"cycle":`, `,"kind":"keyframe","cycle":`, 1),
		"an entry without a case":                     `{"kind":"keyframe","format":"muster.cycles/v2"}`,
		`the stream's format is "muster.cycles/v9"`:   strings.Replace(string(first), "cycles/v2", "cycles/v9", 1),
		"cycle 2 does not follow on 2":                string(second),
		`unknown field "more"`:                        `{"kind":"still","more":1}`,
		`queues[0] (q): quota of gpu is -7`:           strings.Replace(string(third), `"gpu","Value":3`, `"gpu","Value":-7`, 1),
		`names the dimension "gold", which dims does`: strings.Replace(string(third), `"gpu","Value":3`, `"gold","Value":3`, 1),
	} {
		if _, err := f.Take([]byte(line)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", want, err)
		}
		if number, _ := f.Cycle(); number != 2 || f.Case() == nil {
			t.Errorf("%q: it has cycle %d", want, number)
		}
	}
	if _, err := f.Take(third); err != nil {
		t.Error(err)
	}
	if out, err := f.Case().Run(t.Context(), builtin.Registry()); err != nil || !out.Same {
		t.Errorf("%+v, %v", out, err)
	}
}
