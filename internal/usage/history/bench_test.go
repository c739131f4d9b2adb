package history

import (
	"fmt"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/usage"
	"github.com/muster-scheduler/muster/internal/usage/usagetest"
)

// BenchmarkFetch is one fetch over the default window, a week of samples a minute apart, of 100 queues, with a half-life:
// the first after a start, and any further one.
func BenchmarkFetch(b *testing.B) {
	const queues = 100
	c := usagetest.Parse(b, `{"usageParams":{"halfLifePeriod":"24h"}}`)
	folder := b.TempDir()
	s, err := openWith(b.Context(), c, folder, false)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = s.Close() })
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	sample := usage.Sample{Had: cluster.Resources{1 << 20, 1 << 40, 800_000}, Held: map[string]cluster.Resources{}}
	for step := range 7 * 24 * 60 {
		at = at.Add(time.Minute)
		for q := range queues {
			sample.Held[fmt.Sprintf("queue-%03d", q)] = cluster.Resources{int64(step*q) % 10_000, int64(step+q) << 20, int64(step/60*1000+q) % 8000}
		}
		if err := s.Record(b.Context(), at, sample); err != nil {
			b.Fatal(err)
		}
	}
	err = s.view(func(tx *bbolt.Tx) error {
		b.Logf("%d MB on disk, of which %d MB are in use", size(b, folder)>>20, s.used(tx)>>20)
		return nil
	})
	if err != nil {
		b.Fatal(err)
	}
	fetch := func(b *testing.B, at time.Time) {
		got, err := s.Fetch(b.Context(), at)
		if err != nil || len(got) != queues {
			b.Fatal(len(got), err)
		}
	}
	b.Run("first", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			s.reader = usage.NewPatientReader(c, s.ask)
			fetch(b, at)
		}
	})
	b.Run("further", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			fetch(b, at)
		}
	})
}

// BenchmarkRecord is one sample of 100 queues.
func BenchmarkRecord(b *testing.B) {
	c := usagetest.Parse(b, `{}`)
	s, err := Open(b.Context(), c, b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = s.Close() })
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	sample := usage.Sample{Had: cluster.Resources{1 << 20, 1 << 40, 800_000}, Held: map[string]cluster.Resources{}}
	for q := range 100 {
		sample.Held[fmt.Sprintf("queue-%03d", q)] = cluster.Resources{1000, 1 << 30, 1000}
	}
	b.ReportAllocs()
	for b.Loop() {
		at = at.Add(time.Minute)
		if err := s.Record(b.Context(), at, sample); err != nil {
			b.Fatal(err)
		}
	}
}
