package history

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"go.etcd.io/bbolt"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/usage"
	"github.com/muster-scheduler/muster/internal/usage/usagetest"
)

// opened is an open store. Power cuts are for TestTorn.
func opened(t *testing.T, c usage.Config, folder string) *Store {
	t.Helper()
	s, err := openWith(t.Context(), c, folder, false)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// TestOracle compares the store with the slow sums on three days of random history with gaps, a growing cluster, and
// queues that come and go, for each kind of window, with and without half-life, across a restart.
func TestOracle(t *testing.T) {
	t.Parallel()
	for _, params := range []string{
		`"windowSize":"1d"`,
		`"windowSize":"2d","halfLifePeriod":"5h"`,
		`"windowType":"tumbling","windowSize":"20h","tumblingWindowStartTime":"2026-03-01T03:00:00Z"`,
		`"windowType":"tumbling","windowSize":"20h","tumblingWindowStartTime":"2027-03-01T03:00:00Z","halfLifePeriod":"1h"`,
		`"windowType":"cron","cronString":"CRON_TZ=Europe/Berlin 0 5 * * *"`,
		`"windowType":"cron","cronString":"30 */7 * * *","halfLifePeriod":"90m"`,
		`"windowSize":"6h","halfLifePeriod":"10m","extraParams":{"queryResolution":"10m"}`,
	} {
		t.Run(params, func(t *testing.T) {
			t.Parallel()
			c := usagetest.Parse(t, `{"usageParams":{`+params+`}}`)
			folder := t.TempDir()
			s := opened(t, c, folder)
			rng := rand.New(rand.NewPCG(1, 2))
			// Summer time begins in the middle.
			p := usagetest.Random(time.Date(2026, 3, 27, 22, 0, 0, 0, time.UTC), c.Resolution, int(3*24*time.Hour/c.Resolution), true)
			var at time.Time
			for i, m := range p {
				at = m.At
				if err := s.Record(t.Context(), at, m.Sample); err != nil {
					t.Fatal(err)
				}
				if i%499 == 0 || i%997 == 3 {
					now := at.Add(time.Duration(rng.Int64N(int64(c.Resolution))))
					got, err := s.Fetch(t.Context(), now)
					if err != nil {
						t.Fatal(err)
					}
					usagetest.Near(t, fmt.Sprintf("at %s", now), got, p[:i+1].Shares(&c, now))
				}
				if i == 2000 {
					if err := s.Close(); err != nil {
						t.Fatal(err)
					}
					s = opened(t, c, folder)
				}
			}
			got, err := s.Fetch(t.Context(), at)
			if err != nil {
				t.Fatal(err)
			}
			usagetest.Near(t, "at the end", got, p.Shares(&c, at))
			if len(got) == 0 {
				t.Error("nobody has used anything: this proves nothing")
			}
		})
	}
}

// TestEmpty: what was never recorded was not used.
func TestEmpty(t *testing.T) {
	t.Parallel()
	s := opened(t, usagetest.Parse(t, `{}`), t.TempDir())
	got, err := s.Fetch(t.Context(), time.Now())
	if err != nil || got == nil || len(got) != 0 {
		t.Errorf("%v, %v", got, err)
	}
}

// TestOddTimes: a sample recorded twice counts once, an earlier one is dropped, and a history from the future is refused
// with a way out.
func TestOddTimes(t *testing.T) {
	t.Parallel()
	c := usagetest.Parse(t, `{"usageParams":{"windowSize":"1h"}}`)
	s := opened(t, c, t.TempDir())
	at := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	record := func(at time.Time, gpus int64) error {
		return s.Record(t.Context(), at, usage.Sample{Had: cluster.Resources{0, 0, 8000}, Held: map[string]cluster.Resources{"a": {0, 0, gpus}}})
	}
	for _, d := range []time.Duration{0, time.Minute, time.Minute, 0} {
		if err := record(at.Add(d), 2000+int64(d/time.Second)); err != nil {
			t.Fatal(err)
		}
	}
	got, err := s.Fetch(t.Context(), at.Add(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	usagetest.Near(t, "two samples", got, usage.Shares{"a": {"gpu": (2000 + 2060) * usage.One / 16000}})
	if err := record(at.Add(-2*time.Hour), 1000); err == nil {
		t.Error("a history that ends in the future is written on")
	} else {
		t.Log(err)
	}
}

// copyAtRest copies a folder of an open store. A copy during which the store wrote a block, as it does behind its callers' backs,
// is the state of no moment; then it is made anew.
func copyAtRest(t *testing.T, from, to string) {
	t.Helper()
	listing := func() (files []string) {
		err := filepath.WalkDir(from, func(path string, d os.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			info, err := d.Info()
			if err == nil {
				files = append(files, fmt.Sprint(path, info.Size(), info.ModTime().UnixNano()))
			}
			return err
		})
		if err != nil {
			return nil // a file went while it was looked at
		}
		return files
	}
	for limit := time.Now().Add(30 * time.Second); time.Now().Before(limit); {
		before := listing()
		err := os.CopyFS(to, os.DirFS(from))
		if err == nil && before != nil && slices.Equal(before, listing()) {
			return
		}
		if err := os.RemoveAll(to); err != nil {
			t.Fatal(err)
		}
	}
	t.Fatalf("%s is never at rest", from)
}

// TestKilled: a copy of the folder taken while the store is open is what a killed process leaves. Nothing recorded is
// lost, and two processes cannot have the folder.
func TestKilled(t *testing.T) {
	t.Parallel()
	c := usagetest.Parse(t, `{"usageParams":{"windowSize":"1d"}}`)
	folder, left := t.TempDir(), t.TempDir()
	s := opened(t, c, folder)
	if other, err := Open(t.Context(), c, folder); err == nil {
		_ = other.Close()
		t.Error("opened twice")
	} else {
		t.Log(err)
	}
	var p usagetest.Past
	at := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	for range 600 {
		at = at.Add(time.Minute)
		sample := usage.Sample{Had: cluster.Resources{0, 0, 8000}, Held: map[string]cluster.Resources{"a": {0, 0, 1000 * int64(len(p)%8)}}}
		if err := s.Record(t.Context(), at, sample); err != nil {
			t.Fatal(err)
		}
		p = append(p, usagetest.Moment{At: at, Sample: sample})
	}
	copyAtRest(t, folder, filepath.Join(left, "killed"))
	again := opened(t, c, filepath.Join(left, "killed"))
	got, err := again.Fetch(t.Context(), at)
	if err != nil {
		t.Fatal(err)
	}
	usagetest.Near(t, "after the kill", got, p.Shares(&c, at))
	if err := again.Record(t.Context(), at.Add(time.Minute), p[0].Sample); err != nil {
		t.Error(err)
	}
}

// TestTorn: a power cut in the middle of the last write, when the page that says where everything is has been written by half, takes no
// more than the last sample.
func TestTorn(t *testing.T) {
	t.Parallel()
	c := usagetest.Parse(t, `{"usageParams":{"windowSize":"1d"}}`)
	folder := t.TempDir()
	s, err := Open(t.Context(), c, folder)
	if err != nil {
		t.Fatal(err)
	}
	p := usagetest.GPUs(time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC), time.Minute, 20, 8, func(step int) map[string]int64 { return map[string]int64{"a": int64(step % 8)} })
	for _, m := range p {
		if err := s.Record(t.Context(), m.At, m.Sample); err != nil {
			t.Fatal(err)
		}
	}
	size := int64(s.db.Info().PageSize)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(filepath.Join(folder, fileName), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	const number = 16 + 48 // the place of the transaction's number in each of the first two pages; the checksum is behind it
	var numbers [2]uint64
	for i := range numbers {
		var b [8]byte
		if _, err := f.ReadAt(b[:], int64(i)*size+number); err != nil {
			t.Fatal(err)
		}
		numbers[i] = binary.NativeEndian.Uint64(b[:])
	}
	last := int64(0)
	if numbers[1] > numbers[0] {
		last = 1
	}
	if _, err := f.WriteAt([]byte("torn"), last*size+number+8); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	again := opened(t, c, folder)
	end := p[len(p)-1]
	got, err := again.Fetch(t.Context(), end.At)
	if err != nil {
		t.Fatal(err)
	}
	usagetest.Near(t, "after the power cut", got, p[:len(p)-1].Shares(&c, end.At))
	if err := again.Record(t.Context(), end.At, end.Sample); err != nil {
		t.Error(err)
	}
}

// TestDamaged: whatever became of the file, what cannot be read is an error that names it, and the process goes on.
func TestDamaged(t *testing.T) {
	t.Parallel()
	c := usagetest.Parse(t, `{"usageParams":{"windowSize":"2d","extraParams":{"queryResolution":"10m"}}}`)
	folder := t.TempDir()
	s := opened(t, c, folder)
	p := usagetest.Random(time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC), c.Resolution, 200, true)
	for _, m := range p {
		if err := s.Record(t.Context(), m.At, m.Sample); err != nil {
			t.Fatal(err)
		}
	}
	page := s.db.Info().PageSize
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(filepath.Join(folder, fileName))
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	refused := 0
	for i := range 120 {
		damaged := slices.Clone(whole)
		switch at := rng.IntN(len(whole)); i % 4 {
		case 0: // the end is missing
			damaged = damaged[:at]
		case 1: // a page is zero
			clear(damaged[at/page*page : at/page*page+page])
		case 2: // a page is another one
			copy(damaged[at/page*page:], whole[rng.IntN(len(whole)/page)*page:][:page])
		case 3:
			for k := at; k < min(at+64, len(whole)); k++ {
				damaged[k] = byte(rng.Uint32())
			}
		}
		path := filepath.Join(t.TempDir(), fileName)
		if err := os.WriteFile(path, damaged, 0o600); err != nil {
			t.Fatal(err)
		}
		check := func(err error) {
			if err == nil {
				return
			}
			if refused++; !strings.Contains(err.Error(), path) {
				t.Errorf("%d: %v does not name %s", i, err, path)
			}
		}
		s, err := openWith(t.Context(), c, filepath.Dir(path), false)
		if check(err); err != nil {
			continue
		}
		end := p[len(p)-1].At
		_, err = s.Fetch(t.Context(), end)
		check(err)
		check(s.Record(t.Context(), end.Add(c.Resolution), p[0].Sample))
		check(s.Close())
	}
	if refused < 30 {
		t.Errorf("%d damages were found: this proves nothing", refused)
	}
}

// TestFull: what the file may hold bounds it, and the oldest goes first.
func TestFull(t *testing.T) {
	t.Parallel()
	c := usagetest.Parse(t, `{"usageParams":{"windowSize":"30d"}}`)
	s := opened(t, c, t.TempDir())
	s.most = 1 << 20
	at := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	p := usagetest.Random(at, time.Minute, 8*24*60, true)
	for _, m := range p {
		if err := s.Record(t.Context(), m.At, m.Sample); err != nil {
			t.Fatal(err)
		}
	}
	// bbolt doubles a file below 16 MiB, so that what is in use may be half of it.
	if size := size(t, s.folder); size > 2*s.most {
		t.Errorf("the folder has %d bytes; the bound is %d", size, s.most)
	}
	var first int64
	err := s.db.View(func(tx *bbolt.Tx) error {
		key, _ := tx.Bucket(keyBlocks).Cursor().First()
		first = keyTimeOf(key)
		return nil
	})
	end := p[len(p)-1].At
	t.Logf("%d bytes, %s are kept", size(t, s.folder), end.Sub(time.UnixMilli(first)))
	if kept := end.Sub(time.UnixMilli(first)); err != nil || kept < 24*time.Hour || kept > 7*24*time.Hour {
		t.Errorf("%s are kept (%v)", kept, err)
	}
}

// TestRows: what is read of a row is what was written, whatever order and however odd; a damaged one is an error.
func TestRows(t *testing.T) {
	t.Parallel()
	s := opened(t, usagetest.Parse(t, `{}`), t.TempDir())
	values := []float64{0, 1, -1, 0.1, 1e300, math.Inf(1), math.SmallestNonzeroFloat64, 1 << 40, 3.25}
	var points []point
	for i, v := range values {
		of, err := seriesOf(labels.FromStrings("__name__", "m", "i", fmt.Sprint(i)))
		if err != nil {
			t.Fatal(err)
		}
		points = append(points, point{of, v})
	}
	const at = 1_767_225_600_000
	err := s.db.Update(func(tx *bbolt.Tx) error {
		return errors.Join(put(tx, at, points[4:]), put(tx, at, points), put(tx, at, []point{{points[0].of, 7}}))
	})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range values {
		got, err := s.ask(t.Context(), fmt.Sprintf(`m{i="%d"}`, i), time.UnixMilli(at))
		if err != nil || len(got) != 1 || float64(got[0].Value) != want {
			t.Errorf("%v: %v, %v", want, got, err)
		}
	}
	if got, err := s.ask(t.Context(), `count({__name__=~"m|n",i!="3"})`, time.UnixMilli(at)); err != nil || len(got) != 1 || int(got[0].Value) != len(values)-1 {
		t.Errorf("%v, %v", got, err)
	}
	for _, damaged := range [][]byte{{1}, {0x80}, {1, 0x80}} {
		if err := readRow(damaged, func(uint64, float64) {}); err == nil {
			t.Errorf("%v is taken", damaged)
		}
	}
	err = s.db.Update(func(tx *bbolt.Tx) error { return put(tx, -1, points) })
	if err == nil {
		t.Error("a sample before 1970 is taken")
	}
	if _, err := seriesOf(labels.FromStrings("a", "b")); err == nil {
		t.Error("a series without a metric is taken")
	}
}

// TestBounded: the folder stops growing once the window is full, and what is in the window is still there.
func TestBounded(t *testing.T) {
	t.Parallel()
	c := usagetest.Parse(t, `{"usageParams":{"windowSize":"6h"}}`)
	folder := t.TempDir()
	s := opened(t, c, folder)
	at := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	var p usagetest.Past
	sizes := []int64{}
	for step := range 10 * 24 * 60 {
		at = at.Add(time.Minute)
		sample := usage.Sample{Had: cluster.Resources{0, 0, 8000}, Held: map[string]cluster.Resources{}}
		for q := range 20 {
			sample.Held[fmt.Sprintf("q%d", q)] = cluster.Resources{0, 0, int64((step*7 + q*13) % 400)}
		}
		if err := s.Record(t.Context(), at, sample); err != nil {
			t.Fatal(err)
		}
		p = append(p, usagetest.Moment{At: at, Sample: sample})
		if step%(24*60) == 24*60-1 {
			sizes = append(sizes, size(t, folder))
		}
	}
	t.Log("bytes on disk, day by day:", sizes)
	if last := sizes[len(sizes)-1]; last > 2*sizes[1] {
		t.Errorf("the folder has grown from %d to %d bytes", sizes[1], last)
	}
	got, err := s.Fetch(t.Context(), at)
	if err != nil {
		t.Fatal(err)
	}
	usagetest.Near(t, "after ten days", got, p.Shares(&c, at))
}

func size(t testing.TB, folder string) (sum int64) {
	t.Helper()
	err := filepath.Walk(folder, func(_ string, f os.FileInfo, err error) error {
		if err == nil && !f.IsDir() {
			sum += f.Size()
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return sum
}
