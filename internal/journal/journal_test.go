package journal

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/engine/builtin"
	"github.com/muster-scheduler/muster/internal/profile"
	"github.com/muster-scheduler/muster/internal/replay"
	"github.com/muster-scheduler/muster/internal/see"
	"github.com/muster-scheduler/muster/internal/sim"
)

// world is a cluster that lives, whose cycles are told to a keeper as a scheduler's stream would.
type world struct {
	*sim.Cluster
	t      testing.TB
	lines  [][]byte             // that are new
	want   map[time.Time]string // cycles that a journal is to have, by their moment: as they are written
	before map[cluster.Key]string
	all    int
}

// newWorld has four nodes of eight GPUs and three queues; gangs come at random, and more of them than there is room for.
func newWorld(t testing.TB) *world {
	t.Helper()
	w := &world{t: t, want: map[time.Time]string{}, before: map[cluster.Key]string{}}
	e, err := engine.New(profile.BuiltIn(), builtin.Registry())
	if err != nil {
		t.Fatal(err)
	}
	stream := replay.NewStream("v", profile.BuiltIn(), false)
	told, ended := make(chan []byte), make(chan error, 1)
	ctx, end := context.WithCancel(context.Background())
	go func() {
		ended <- stream.Follow(ctx, func(line []byte) error {
			select {
			case told <- bytes.Clone(line):
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
	}()
	t.Cleanup(func() {
		end()
		if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
	source, at, n := rand.New(rand.NewPCG(1, 2)), time.Duration(0), 0
	w.Cluster = sim.NewCluster(sim.Options{
		Engine: e, Cycle: 10 * time.Second, Grace: 20 * time.Second,
		Arrivals: func() (sim.Gang, bool) {
			at += time.Duration(source.ExpFloat64() * float64(6*time.Minute))
			n++
			return sim.Gang{
				Name: fmt.Sprint("g", n), Queue: []string{"a", "b", "c"}[source.IntN(3)], At: at, Pods: 1 + source.IntN(3), Requests: sim.Room(1000*int64(1+source.IntN(4)), 1000, 1<<30, 1),
				Priority: int32(50 + 25*source.IntN(3)), Duration: time.Duration(source.ExpFloat64() * float64(50*time.Minute)),
			}, true
		},
		Check: func(snap *cluster.Snapshot, plans []engine.Plan, trace *engine.Trace) error {
			stream.Decided(snap, plans)
			for {
				line := <-told
				if !bytes.Contains(line, []byte(`"kind":"still"`)) {
					w.lines = append(w.lines, line)
					break
				}
			}
			w.expect(snap, plans, trace)
			return nil
		},
	})
	for i := range 4 {
		if err := w.AddNode(sim.Node{Name: fmt.Sprint("node-", i), Allocatable: sim.Room(8000, 128_000, 1<<40, 250)}); err != nil {
			t.Fatal(err)
		}
	}
	for _, q := range []string{"a", "b", "c"} {
		w.Store.Apply(cluster.QueueState{
			Name: q, UID: q, Priority: 100, Created: w.Now(), Weight: []cluster.Quantity{{Name: "gpu", Value: 1000}},
			Quota: []cluster.Quantity{{Name: "gpu", Value: 10_000}, {Name: "cpu", Value: cluster.Unlimited}, {Name: "memory", Value: cluster.Unlimited}},
		})
	}
	return w
}

// expect is the other definition of what a journal keeps: from what the live engine said, and not from deciding again.
func (w *world) expect(snap *cluster.Snapshot, plans []engine.Plan, trace *engine.Trace) {
	w.all++
	keep := false
	for _, p := range plans {
		for _, b := range p.Bundles {
			for _, in := range b.Intents {
				keep = keep || in.Verb == engine.Bind || in.Verb == engine.Evict
			}
		}
	}
	now := map[cluster.Key]string{}
	for _, g := range trace.Gangs {
		if g.Diagnosis != nil {
			now[g.Gang] = g.Diagnosis.Verdict.Reason.Key
			keep = keep || w.before[g.Gang] != now[g.Gang]
		}
	}
	for key := range w.before {
		keep = keep || now[key] == "" && snap.GangByKey(key) != nil
	}
	w.before = now
	if keep {
		w.want[snap.Now.Time().UTC()] = written(w.t, &replay.Case{Version: "v", Profile: profile.BuiltIn(), Image: snap.Image(), Decided: true, Plans: plans})
	}
}

func written(t testing.TB, c *replay.Case) string {
	t.Helper()
	var b strings.Builder
	if err := replay.Write(&b, c); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// live lets a time pass, and tells the keeper of it.
func (w *world) live(d time.Duration, k *Keeper) {
	w.t.Helper()
	for end := w.Now().Add(d); w.Now().Before(end); {
		if more, err := w.Step(w.t.Context()); err != nil || !more {
			w.t.Fatal(more, err)
		}
		for _, line := range w.lines {
			if k != nil {
				k.Take(w.t.Context(), line)
			}
		}
		if k != nil {
			w.lines = nil
		}
	}
}

// keeper decides again on every cycle.
func (w *world) keeper(j *Journal) *Keeper {
	return &Keeper{Shard: "", Journal: j, Rest: -1, Log: logr.Discard(), Decide: decide}
}

func decide(ctx context.Context, c *replay.Case, id string) (*see.Cycle, error) {
	k := &see.Cycle{Cluster: id, Case: c, Registry: builtin.Registry()}
	_, err := k.Look(ctx)
	return k, err
}

func open(t testing.TB, w *world, o Options) *Journal {
	t.Helper()
	if o.Folder == "" {
		o.Folder = t.TempDir()
	}
	if w != nil && o.Now == nil {
		o.Now = func() time.Time { return w.Now().Time() }
	}
	j, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = j.Close() })
	return j
}

// entries are all that there are.
func entries(t testing.TB, j *Journal) (out []*Entry) {
	t.Helper()
	if err := j.Each(t.Context(), time.Time{}, func(e *Entry) bool { out = append(out, e); return true }); err != nil {
		t.Fatal(err)
	}
	return out
}

func gaps(all []*Entry) (out []string) {
	for _, e := range all {
		if e.Kind == Gap {
			out = append(out, fmt.Sprint(e.Missing.Why, " ", e.Missing.Count))
		}
	}
	return out
}

// TestDaysAreReplayed: of simulated hours (JOURNAL_HOURS; a week by `make prove-journal`) the journal has the cycles that bind, evict or change a reason, by another definition of these, and no others; each is as
// the scheduler had it, and to decide on it again comes to its plans, byte for byte. Decisions and reasons are those of the cycle.
func TestDaysAreReplayed(t *testing.T) {
	t.Parallel()
	hours := 2
	if text := os.Getenv("JOURNAL_HOURS"); text != "" {
		var err error
		if hours, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	w := newWorld(t)
	j := open(t, w, Options{Keep: 30 * 24 * time.Hour})
	w.live(time.Duration(hours)*time.Hour, w.keeper(j))
	began := time.Now()
	kinds, causes, bytesOnDisk := map[Kind]int{}, 0, int64(0)
	var last time.Time
	var some []uint64
	for _, s := range j.view() {
		bytesOnDisk += s.size
		bad, err := j.replay(t.Context(), &s, func(e *Entry, f *replay.Follower) bool {
			kinds[e.Kind]++
			if e.Kind != Cycle {
				return true
			}
			want, wanted := w.want[e.At]
			c := f.Case()
			if !wanted || written(t, c) != want || !e.At.After(last) {
				t.Errorf("the cycle of %s: wanted %v, and is another one, or out of order", e.At, wanted)
				return false
			}
			last = e.At
			if out, err := c.Run(t.Context(), builtin.Registry()); err != nil || !out.Same {
				t.Errorf("the cycle of %s is decided otherwise: %v", e.At, err)
				return false
			}
			for _, d := range e.Decisions {
				if d.Cause == nil && d.Evicts > 0 || d.Gang.Name == "" || d.Queue == "" {
					t.Errorf("the cycle of %s: %+v", e.At, d)
				}
				if d.Cause != nil {
					causes++
				}
			}
			if kinds[Cycle]%97 == 1 {
				some = append(some, e.Number)
			}
			return true
		})
		if bad != nil || err != nil {
			t.Fatal(bad, err)
		}
	}
	for _, n := range some {
		c, e, _, err := j.Case(t.Context(), n)
		if err != nil || written(t, c) != w.want[e.At] {
			t.Errorf("cycle %d: %v", n, err)
		}
	}
	t.Logf("%d simulated hours, %d cycles, of which %d are kept (%d decisions evict), all decided again byte for byte in %.0f s; %d entries of use; %d KiB in %d files",
		hours, w.all, kinds[Cycle], causes, time.Since(began).Seconds(), kinds[Use], bytesOnDisk>>10, len(j.view()))
	if kinds[Cycle] != len(w.want) || kinds[Cycle] == w.all || causes == 0 || kinds[Use] < 10 || kinds[Gap] != 0 {
		t.Errorf("%v, and %d cycles should be kept", kinds, len(w.want))
	}
}

// TestCrashAtEachByte: whatever a process had written when it was killed, the next one reads all entries that were whole, says if one was torn, numbers none anew, replays the last whole cycle, and goes on.
func TestCrashAtEachByte(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	folder := t.TempDir()
	j := open(t, w, Options{Folder: folder})
	w.live(12*time.Minute, w.keeper(j))
	segments := j.view()
	if len(segments) != 1 {
		t.Fatalf("%d files", len(segments))
	}
	var ends []int64 // of entries
	if _, err := j.scan(&segments[0], func(f *framed) bool { ends = append(ends, f.size); return true }); err != nil {
		t.Fatal(err)
	}
	for i := 1; i < len(ends); i++ {
		ends[i] += ends[i-1]
	}
	if len(ends) < 4 {
		t.Fatalf("%d entries are too few for a test", len(ends))
	}
	text, err := os.ReadFile(segments[0].path)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d bytes, %d entries", len(text), len(ends))
	again := filepath.Join(t.TempDir(), "j")
	name := filepath.Join(again, filepath.Base(segments[0].path))
	for cut := range len(text) + 1 {
		near := slices.ContainsFunc(ends, func(e int64) bool { return int64(cut) > e-20 && int64(cut) < e+40 })
		if os.Getenv("JOURNAL_HOURS") == "" && !near && cut > 40 && cut%9 != 0 {
			continue // what `make prove-journal` does
		}
		if err := errors.Join(os.RemoveAll(again), os.Mkdir(again, 0o700), os.WriteFile(name, text[:cut], 0o600)); err != nil {
			t.Fatal(err)
		}
		k, err := Open(Options{Folder: again, Now: func() time.Time { return w.Now().Time() }})
		if err != nil {
			t.Fatalf("cut at %d: %v", cut, err)
		}
		whole, torn := 0, cut > 0
		for _, e := range ends {
			if int64(cut) >= e {
				whole++
			}
			torn = torn && int64(cut) != e
		}
		all := entries(t, k)
		want := []string{}
		if torn || cut == 0 {
			want = append(want, "torn 0")
		}
		if whole > 0 {
			want = append(want, "away 0")
		}
		if got := gaps(all); !slices.Equal(got, want) || len(all) != whole+len(want) {
			t.Fatalf("cut at %d of %v: %d entries, gaps %q, want %d and %q", cut, ends, len(all), got, whole+len(want), want)
		}
		for i := 1; i < len(all); i++ {
			if all[i].Number <= all[i-1].Number {
				t.Fatalf("cut at %d: number %d comes after %d", cut, all[i].Number, all[i-1].Number)
			}
		}
		if whole > 0 && all[whole-1].Kind == Cycle && cut%8 == 0 {
			if c, e, _, err := k.Case(t.Context(), all[whole-1].Number); err != nil || written(t, c) != w.want[e.At] {
				t.Fatalf("cut at %d: %v", cut, err)
			}
		}
		if err := k.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// brittle is a disk that takes so many bytes more.
type brittle struct {
	*os.File
	left *int
}

func (b brittle) Write(p []byte) (int, error) {
	n := min(len(p), *b.left)
	*b.left -= n
	m, err := b.File.Write(p[:n])
	if err == nil && n < len(p) {
		err = syscall.ENOSPC
	}
	return m, err
}

// TestFullDisk: while the disk takes no more, entries are left out, with a typed error; when it does again, the first one is a gap that counts them, and the cycles that follow can be replayed.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	left := 1 << 30
	j := open(t, w, Options{open: func(path string) (file, error) {
		if left == 0 {
			return nil, &os.PathError{Op: "open", Path: path, Err: syscall.ENOSPC}
		}
		f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
		return brittle{f, &left}, err
	}})
	k := w.keeper(j)
	w.live(30*time.Minute, k)
	before := len(entries(t, j))
	left = 700 // in the midst of an entry
	w.live(30*time.Minute, k)
	if _, err := j.Append(&Entry{At: w.Now().Time(), Kind: Use}, nil); !errors.Is(err, ErrFull) || !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("a full disk: %v", err)
	}
	lost := j.lost
	left = 1 << 30
	w.live(30*time.Minute, k)
	all := entries(t, j)
	if got, want := gaps(all), []string{fmt.Sprint("full ", lost)}; !slices.Equal(got, want) || lost < 3 || len(all) < before+5 {
		t.Errorf("gaps %q, want %q, of %d entries, %d before", got, want, len(all), before)
	}
	for _, e := range all {
		if e.Kind == Gap && (strings.Contains(e.Missing.Detail, "/") || e.Missing.Since.IsZero()) {
			t.Errorf("%+v", e.Missing)
		}
		if e.Kind == Cycle {
			if c, _, _, err := j.Case(t.Context(), e.Number); err != nil || written(t, c) != w.want[e.At] {
				t.Errorf("cycle %d: %v", e.Number, err)
			}
		}
	}
}

// TestBounds: a journal takes no more bytes than it may, and keeps nothing for longer than it should; what it still has can be replayed, and what it has no more is none. A file that is damaged is a gap, and what follows it is there.
func TestBounds(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	folder := t.TempDir()
	small := newWorld(t)
	least := open(t, small, Options{Bytes: leastBytes})
	j := open(t, w, Options{Folder: folder, Bytes: 1 << 20, Keep: 2 * time.Hour})
	k, l := w.keeper(j), small.keeper(least)
	for range 12 {
		w.live(30*time.Minute, k)
		small.live(30*time.Minute, l)
		for _, j := range []*Journal{j, least} {
			sum := int64(0)
			for _, s := range j.view() {
				sum += s.size
			}
			if sum > j.o.Bytes {
				t.Fatalf("%d bytes of %d", sum, j.o.Bytes)
			}
		}
	}
	if few := entries(t, least); few[0].Number == 1 || len(few) < 20 {
		t.Errorf("the smallest one has %d entries from number %d on", len(few), few[0].Number)
	}
	all := entries(t, j)
	if age := w.Now().Time().Sub(all[0].At); age > 2*time.Hour+10*time.Minute || age < 90*time.Minute {
		t.Errorf("the oldest entry is of %s ago", age)
	}
	for i, e := range all {
		if e.Kind == Cycle && (i < 20 || i > len(all)-20) {
			if c, _, _, err := j.Case(t.Context(), e.Number); err != nil || written(t, c) != w.want[e.At] {
				t.Errorf("cycle %d: %v", e.Number, err)
			}
		}
	}
	for _, n := range []uint64{0, 1, all[len(all)-1].Number + 1} {
		if _, _, _, err := j.Case(t.Context(), n); !errors.Is(err, ErrNone) {
			t.Errorf("cycle %d: %v", n, err)
		}
	}
	if _, err := Open(Options{Folder: folder}); !errors.Is(err, ErrInUse) {
		t.Errorf("a second one: %v", err)
	}
	for _, o := range []Options{{}, {Folder: "x", Keep: time.Minute}, {Folder: "x", Bytes: 5}} {
		if _, err := Open(o); err == nil {
			t.Errorf("%+v is accepted", o)
		}
	}
	s := j.view()
	if len(s) < 3 {
		t.Fatalf("%d files", len(s))
	}
	f, err := os.OpenFile(s[1].path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte("damage"), s[1].size/2); err != nil {
		t.Fatal(err)
	}
	f.Close()
	damaged := entries(t, j)
	if got := gaps(damaged); !slices.Equal(got, []string{"damaged 0"}) || len(damaged) >= len(all)+1 || damaged[len(damaged)-1].Number != all[len(all)-1].Number {
		t.Errorf("gaps %q; %d entries of %d", got, len(damaged), len(all))
	}
}

// TestClockSetBack: a cycle whose moment lies before that of the one before is kept, after an entry that says so.
func TestClockSetBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	j := open(t, w, Options{})
	w.live(10*time.Minute, w.keeper(j))
	late := newWorld(t)
	k := late.keeper(j)
	late.live(10*time.Minute, k)
	all := entries(t, j)
	if got := gaps(all); !slices.Equal(got, []string{"clock 0"}) {
		t.Errorf("gaps %q", got)
	}
	for _, e := range all {
		if e.Kind == Cycle {
			if c, _, _, err := j.Case(t.Context(), e.Number); err != nil || written(t, c) != w.want[e.At] {
				t.Errorf("cycle %d: %v", e.Number, err)
			}
		}
	}
}

// TestSlowKeeper: what a keeper has no time for is left out without anybody's waiting; a gap counts it, and what comes then is kept again. So is what the scheduler says that it left out.
func TestSlowKeeper(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	j := open(t, w, Options{})
	k := w.keeper(j)
	var live replay.Follower // the client's
	offer := func(lines [][]byte) {
		for _, line := range lines {
			e, err := replay.ReadEntry(line)
			if err == nil {
				_, err = live.Add(e)
			}
			if err != nil {
				t.Fatal(err)
			}
			k.Offer(e, live.Whole)
		}
	}
	drain := func() {
		for e, missed := k.next(); e != nil; e, missed = k.next() {
			if missed > 0 {
				k.gap(Slow, missed)
			}
			k.add(t.Context(), e)
		}
	}
	w.live(20*time.Minute, nil)
	offer(w.lines)
	drain()
	w.lines = nil
	w.live(20*time.Minute, nil)
	first, _ := k.next()
	if first != nil {
		t.Fatal("something waits")
	}
	k.mu.Lock()
	k.bytes = maxQueuedBytes // as if much waited
	k.mu.Unlock()
	n := len(w.lines)
	offer(w.lines[:n-1])
	offer(w.lines[n-1:])
	drain()
	w.lines = nil
	w.live(20*time.Minute, nil)
	offer(w.lines)
	drain()
	all := entries(t, j)
	got := gaps(all)
	if len(got) != 1 || got[0] != "slow 1" {
		t.Errorf("gaps %q", got)
	}
	for _, e := range all {
		if e.Kind == Cycle {
			if c, _, _, err := j.Case(t.Context(), e.Number); err != nil {
				t.Errorf("cycle %d: %v", e.Number, err)
			} else if out, err := c.Run(t.Context(), builtin.Registry()); err != nil || !out.Same {
				t.Errorf("cycle %d: decided otherwise: %v", e.Number, err)
			}
		}
	}
}
