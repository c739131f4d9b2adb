// Package history keeps the history of usage in a folder of its own: samples in one bbolt file, questions answered by
// Prometheus' query engine in process, so that shares can look at the past without a server to run.
//
// Samples are recorded at multiples of the resolution, under the names that KAI's queries use. What is older than the
// window ever reaches is deleted, a block at a time. A process that dies loses nothing that was recorded: each sample is a
// transaction. One process at a time may have a folder open.
//
// Earlier versions kept Prometheus' own database in the folder, whose package needs the configuration of all of Prometheus,
// and so the kits of three clouds. What such a folder holds is taken over when it is opened (see adopt).
//
// A scheduler uses a folder through [Lazy], so that what is wrong with it is told and keeps nobody from scheduling.
//
//	Record ──► blocks of six hours: metric ──► series, rows by time ──► Select ──► promql ──► usage.Reader ──► Fetch
package history

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/tsdb/fileutil"
	"go.etcd.io/bbolt"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/usage"
)

// Store is an open folder. Record may be called while Fetch is under way; two calls of Fetch may not.
type Store struct {
	db     *bbolt.DB
	file   *os.File // which db holds
	damage atomic.Pointer[damage]
	lock   fileutil.Releaser
	engine *promql.Engine
	reader *usage.Reader
	folder string
	path   string // of the file
	keep   int64  // milliseconds that the window ever reaches back
	most   int64  // bytes of the file that may be in use
}

// Bounds on what the store takes.
const (
	// maxBytes bounds what is kept on disk. The oldest goes first. At the defaults (a week, a sample a minute) 100 queues
	// whose holdings change each minute take 64 MB (BenchmarkFetch).
	maxBytes = 2 << 30
	// maxSamples bounds what a question may hold in memory, at 16 bytes each, once read and once more as an answer: enough
	// for some 27,000 queues.
	maxSamples = 20_000_000
	// lockWait is how long a file is waited for whose lock is the last thing that another process lets go of.
	lockWait = time.Second
)

// The names in a folder. The lock is the one that Prometheus' database takes, so that an earlier version keeps out, too.
const (
	fileName = "usage.db"
	lockName = "lock"
)

// Open opens the store in a folder, which is made if need be. What an earlier version left there is taken over first, some
// million samples in a few seconds. Errors name the folder.
func Open(ctx context.Context, c usage.Config, folder string) (*Store, error) {
	return openWith(ctx, c, folder, true)
}

// openWith is Open; without sync a power cut may damage the file, which tests need not survive.
func openWith(ctx context.Context, c usage.Config, folder string, sync bool) (s *Store, err error) {
	log := logr.FromContextOrDiscard(ctx).WithName("history")
	defer func() {
		if err != nil {
			err = fmt.Errorf("open the history of usage in %s: %w", folder, err)
		}
	}()
	if err := os.MkdirAll(folder, 0o777); err != nil {
		return nil, err
	}
	lock, _, err := fileutil.Flock(filepath.Join(folder, lockName))
	if err != nil {
		return nil, fmt.Errorf("another process has it open: %w", err)
	}
	path := filepath.Join(folder, fileName)
	db, file, err := openFile(path, sync)
	if err != nil {
		return nil, errors.Join(err, lock.Release())
	}
	s = &Store{
		db: db, file: file, lock: lock, folder: folder, path: path, most: maxBytes, keep: (c.Window.Longest() + c.Resolution).Milliseconds(),
		engine: promql.NewEngine(promql.EngineOpts{
			Logger: slog.New(logr.ToSlogHandler(log.V(1))), Reg: prometheus.NewRegistry(), MaxSamples: maxSamples, Timeout: c.Timeout,
			// A sample stands for the resolution before it and nothing else: time that nobody recorded counts for nobody.
			LookbackDelta: c.Resolution,
			Parser:        parser.NewParser(parser.Options{}),
		}),
	}
	s.reader = usage.NewPatientReader(c, s.ask)
	if err := s.adopt(ctx, log); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// Close closes the folder.
func (s *Store) Close() error {
	return errors.Join(s.engine.Close(), s.closeFile(), s.lock.Release())
}

// Fetch implements usage.Source.
func (s *Store) Fetch(ctx context.Context, now time.Time) (usage.Shares, error) {
	shares, err := s.reader.Fetch(ctx, now)
	if shares == nil && err == nil {
		shares = usage.Shares{} // nothing has been recorded: nobody has used anything
	}
	return shares, err
}

func (s *Store) ask(ctx context.Context, query string, at time.Time) (model.Vector, error) {
	q, err := s.engine.NewInstantQuery(ctx, s, nil, query, at)
	if err != nil {
		return nil, err
	}
	defer q.Close()
	r := q.Exec(ctx)
	if r.Err != nil {
		return nil, r.Err
	}
	vector, err := r.Vector()
	if err != nil {
		return nil, err
	}
	out := make(model.Vector, 0, len(vector))
	for _, s := range vector {
		metric := model.Metric{}
		s.Metric.Range(func(l labels.Label) { metric[model.LabelName(l.Name)] = model.LabelValue(l.Value) })
		out = append(out, &model.Sample{Metric: metric, Value: model.SampleValue(s.F)})
	}
	return out, nil
}

// capacity is what the cluster had, of each dimension.
const capacity = "kube_node_status_capacity"

// recorded says under which names a dimension is recorded, and how many base units one unit of them is.
type recorded struct {
	dim       int
	held      string
	resource  string
	unit      string
	baseUnits float64
}

func dimensions() []recorded {
	return []recorded{
		{cluster.GPU, "kai_queue_allocated_gpus", "nvidia_com_gpu", "integer", 1000},
		{cluster.CPU, "kai_queue_allocated_cpu_cores", "cpu", "core", 1000},
		{cluster.RAM, "kai_queue_allocated_memory_bytes", "memory", "byte", 1},
	}
}

// wrongClock is how far the recorded history may be ahead of a new sample before somebody has to look.
const wrongClock = time.Hour

// Record keeps what a sample says as of a time. Times have to grow: a sample of a time that has one already, or that
// came a little earlier, is dropped without an error, as after a restart or a correction of the clock.
func (s *Store) Record(_ context.Context, at time.Time, sample usage.Sample) error {
	err := s.update(func(tx *bbolt.Tx) error {
		now := at.UnixMilli()
		switch last, known := newest(tx); {
		case known && last-now > wrongClock.Milliseconds():
			return fmt.Errorf("the history ends at %s, which is in the future: a clock was wrong; without the file it begins anew", time.UnixMilli(last).UTC().Format(time.RFC3339))
		case known && now <= last:
			return nil
		}
		points, err := measured(sample)
		if err != nil {
			return err
		}
		if err := put(tx, now, points); err != nil {
			return err
		}
		return s.prune(tx, now)
	})
	if err != nil {
		return fmt.Errorf("record usage: %w", err)
	}
	return nil
}

// measured is a sample as points of series.
func measured(sample usage.Sample) (out []point, err error) {
	add := func(value float64, name ...string) {
		if err == nil {
			var of series
			of, err = seriesOf(labels.FromStrings(name...))
			out = append(out, point{of, value})
		}
	}
	for _, d := range dimensions() {
		add(float64(sample.Had.At(d.dim))/d.baseUnits, model.MetricNameLabel, capacity, "resource", d.resource, "unit", d.unit)
		for queue, held := range sample.Held { // order: each its own series
			add(float64(held.At(d.dim))/d.baseUnits, model.MetricNameLabel, d.held, "queue_name", queue)
		}
	}
	return out, err
}
