package history

import (
	"archive/zip"
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/muster-scheduler/muster/internal/usage"
	"github.com/muster-scheduler/muster/internal/usage/usagetest"
)

// earlier is a folder that an earlier version wrote, with Prometheus' database: 40 hours of usagetest.Random ten minutes apart,
// blocks cut every two hours and a checkpoint of the journal among it. What is "closed" was closed; what is "killed" is a copy of it
// before that, with half a record at the end of its journal.
func earlier(t *testing.T, kind string) (usage.Config, string, usagetest.Past) {
	t.Helper()
	r, err := zip.OpenReader(filepath.Join("testdata", kind+".zip"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	folder := filepath.Join(t.TempDir(), "usage")
	if err := os.CopyFS(folder, r); err != nil {
		t.Fatal(err)
	}
	c := usagetest.Parse(t, `{"usageParams":{"windowSize":"2d","halfLifePeriod":"5h","extraParams":{"queryResolution":"10m"}}}`)
	return c, folder, usagetest.Random(time.Date(2026, 3, 27, 22, 0, 0, 0, time.UTC), c.Resolution, 240, true)
}

// TestEarlier: what an earlier version recorded is there, every sample of it, and its form is gone; so it is when the process died
// before it could remove that, and when an earlier version was put back for a while.
func TestEarlier(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"closed", "killed"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			c, folder, p := earlier(t, kind)
			for _, part := range []string{"*/index", "*/chunks/*", "wal/checkpoint.*/*", "wal/0*"} {
				if found, err := filepath.Glob(filepath.Join(folder, part)); err != nil || len(found) == 0 {
					t.Fatalf("there is no %s: this proves nothing", part)
				}
			}
			for again := range 2 {
				s := opened(t, c, folder)
				for i, m := range p {
					if i%7 != 0 && i != len(p)-1 {
						continue
					}
					got, err := s.Fetch(t.Context(), m.At)
					if err != nil {
						t.Fatal(err)
					}
					usagetest.Near(t, fmt.Sprintf("at %s, time %d", m.At, again), got, p[:i+1].Shares(&c, m.At))
				}
				if left, err := filepath.Glob(filepath.Join(folder, "*")); err != nil || len(left) != 2 {
					t.Errorf("left are %v, %v; want the file and the lock", left, err)
				}
				next := p[len(p)-1].At.Add(c.Resolution)
				if err := s.Record(t.Context(), next, p[0].Sample); err != nil {
					t.Fatal(err)
				}
				p = append(p, usagetest.Moment{At: next, Sample: p[0].Sample})
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
				// The same once more, beside what has been taken over.
				_, same, _ := earlier(t, kind)
				for _, name := range []string{"wal", "chunks_head"} {
					if err := os.CopyFS(filepath.Join(folder, name), os.DirFS(filepath.Join(same, name))); err != nil {
						t.Fatal(err)
					}
				}
			}
		})
	}
}

// TestEarlierDamaged: what cannot be read is named, and nothing of the folder goes.
func TestEarlierDamaged(t *testing.T) {
	t.Parallel()
	for _, what := range []string{"*/index", "*/chunks/000001", "wal/checkpoint.*/00000000", "wal/00000017"} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			c, folder, _ := earlier(t, "closed")
			files, err := filepath.Glob(filepath.Join(folder, what))
			if err != nil || len(files) == 0 {
				t.Fatal(files, err)
			}
			if err := os.WriteFile(files[0], []byte("is damaged"), 0o600); err != nil {
				t.Fatal(err)
			}
			before := sizes(t, folder)
			for range 2 { // the lock is free again
				s, err := openWith(t.Context(), c, folder, false)
				if err == nil {
					_ = s.Close()
					t.Fatal("taken")
				}
				name, err2 := filepath.Rel(folder, files[0])
				part, _, _ := strings.Cut(name, "/")
				if err2 != nil || !strings.Contains(err.Error(), filepath.Join(folder, part)) {
					t.Errorf("%v does not name %s", err, part)
				}
				t.Log(err)
			}
			after := sizes(t, folder)
			for name, size := range before {
				if now, there := after[name]; !there || now != size {
					t.Errorf("%s is gone or changed", name)
				}
			}
		})
	}
}

// sizes are those of all files below a folder.
func sizes(t *testing.T, folder string) map[string]int64 {
	t.Helper()
	out := map[string]int64{}
	err := filepath.Walk(folder, func(path string, f os.FileInfo, err error) error {
		if err == nil && !f.IsDir() {
			out[path] = f.Size()
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// FuzzSegment: whatever a segment holds, reading it ends, and no record is longer than the segment can say.
func FuzzSegment(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte{1, 0, 40, 1, 2, 3})
	f.Add([]byte{1, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0})
	f.Add(bytes.Repeat([]byte{0}, page+1))
	f.Fuzz(func(t *testing.T, segment []byte) {
		_, err := readSegment(bytes.NewReader(segment), func([]byte) error { return nil })
		if err != nil {
			t.Error(err)
		}
	})
}

// TestNotOurs: what a Prometheus server keeps is neither taken over nor removed.
func TestNotOurs(t *testing.T) {
	t.Parallel()
	if _, err := ours(labels.FromStrings("__name__", "up", "job", "x")); err == nil || !strings.Contains(err.Error(), "Prometheus server") {
		t.Error(err)
	}
	for _, name := range []string{"kube_node_status_capacity", "kai_queue_allocated_gpus"} {
		if _, err := ours(labels.FromStrings("__name__", name)); err != nil {
			t.Error(err)
		}
	}
}
