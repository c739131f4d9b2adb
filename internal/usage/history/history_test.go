package history

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/usage"
	"github.com/muster-scheduler/muster/internal/usage/usagetest"
)

func open(t *testing.T, c usage.Config, folder string) *Store {
	t.Helper()
	s, err := Open(t.Context(), c, folder)
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
			s := open(t, c, folder)
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
					s = open(t, c, folder)
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
	s := open(t, usagetest.Parse(t, `{}`), t.TempDir())
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
	s := open(t, c, t.TempDir())
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
// lost, a torn end of the journal is survived, and two processes cannot have the folder.
func TestKilled(t *testing.T) {
	t.Parallel()
	c := usagetest.Parse(t, `{"usageParams":{"windowSize":"1d"}}`)
	folder, left := t.TempDir(), t.TempDir()
	s := open(t, c, folder)
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
	segments, err := filepath.Glob(filepath.Join(left, "killed", "wal", "0*"))
	if err != nil || len(segments) == 0 {
		t.Fatal(segments, err)
	}
	f, err := os.OpenFile(segments[len(segments)-1], os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write([]byte{1, 0, 40, 1, 2, 3}); err != nil { // half a record
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	again := open(t, c, filepath.Join(left, "killed"))
	got, err := again.Fetch(t.Context(), at)
	if err != nil {
		t.Fatal(err)
	}
	usagetest.Near(t, "after the kill", got, p.Shares(&c, at))
	if err := again.Record(t.Context(), at.Add(time.Minute), p[0].Sample); err != nil {
		t.Error(err)
	}
}

// TestBounded: the folder stops growing once the window is full, and what is in the window is still there.
func TestBounded(t *testing.T) {
	t.Parallel()
	c := usagetest.Parse(t, `{"usageParams":{"windowSize":"6h"}}`)
	folder := t.TempDir()
	s := open(t, c, folder)
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
			if err := s.db.Compact(context.Background()); err != nil { // as its own goroutine does within a minute
				t.Fatal(err)
			}
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
