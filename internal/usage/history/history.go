// Package history keeps the history of usage in a folder of its own, with Prometheus' time-series database and query
// engine in process, so that shares can look at the past without a server to run.
//
// Samples are recorded at multiples of the resolution, under the names that KAI's queries use. What is older than the
// window ever reaches is deleted. A process that dies loses nothing that was recorded: the database replays its journal
// when it is opened again. One process at a time may have a folder open.
package history

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb"
	"github.com/prometheus/prometheus/util/compression"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/usage"
)

// Store is an open folder. Record may be called while Fetch is under way; two calls of Fetch may not.
type Store struct {
	db     *tsdb.DB
	engine *promql.Engine
	reader *usage.Reader
	folder string
}

// Bounds on what the store takes.
const (
	// block is the time after which samples go from memory to disk.
	block = 2 * time.Hour
	// maxBytes bounds the blocks on disk. The oldest go first. At the defaults (a week, a sample a minute) 100 queues
	// whose holdings change each minute take 13 MB.
	maxBytes = 2 << 30
	// segment is the size of a piece of the journal and of a file of chunks.
	segment = 16 << 20
	// maxSamples bounds what a question may hold in memory, at 16 bytes each: enough for some 27,000 queues.
	maxSamples = 20_000_000
)

// Open opens the store in a folder, which is made if need be. It replays the journal, which takes a second per some
// million samples.
func Open(ctx context.Context, c usage.Config, folder string) (*Store, error) {
	logger := slog.New(logr.ToSlogHandler(logr.FromContextOrDiscard(ctx).WithName("history").V(1)))
	o := tsdb.DefaultOptions()
	o.RetentionDuration = (c.Window.Longest() + c.Resolution).Milliseconds()
	o.MaxBytes = maxBytes
	o.MinBlockDuration = block.Milliseconds()
	// As Prometheus does: no block so long that deleting it late costs much more disk than the window needs.
	o.MaxBlockDuration = max(block.Milliseconds(), o.RetentionDuration/10)
	o.WALSegmentSize = segment
	o.MaxBlockChunkSegmentSize = segment
	o.WALCompression = compression.Snappy
	o.StripeSize = 1024 // series, not metrics of a data centre
	db, err := tsdb.Open(folder, logger, nil, o, nil)
	if err != nil {
		return nil, fmt.Errorf("open the history of usage in %s: %w", folder, err)
	}
	engine := promql.NewEngine(promql.EngineOpts{
		Logger: logger, Reg: prometheus.NewRegistry(), MaxSamples: maxSamples, Timeout: c.Timeout,
		// A sample stands for the resolution before it and nothing else: time that nobody recorded counts for nobody.
		LookbackDelta: c.Resolution,
		Parser:        parser.NewParser(parser.Options{}),
	})
	s := &Store{db: db, engine: engine, folder: folder}
	s.reader = usage.NewPatientReader(c, s.ask)
	return s, nil
}

// Close closes the folder.
func (s *Store) Close() error {
	return errors.Join(s.engine.Close(), s.db.Close())
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
	q, err := s.engine.NewInstantQuery(ctx, s.db, nil, query, at)
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
func (s *Store) Record(ctx context.Context, at time.Time, sample usage.Sample) error {
	if last := time.UnixMilli(s.db.Head().MaxTime()); s.db.Head().NumSeries() > 0 && last.Sub(at) > wrongClock {
		return fmt.Errorf("record usage: the history in %s ends at %s, which is in the future: a clock was wrong; remove the folder to start anew", s.folder, last.UTC().Format(time.RFC3339))
	}
	app := s.db.Appender(ctx)
	add := func(value float64, name ...string) error {
		_, err := app.Append(0, labels.FromStrings(name...), at.UnixMilli(), value)
		if dropped(err) {
			return nil
		}
		return err
	}
	if err := record(sample, add); err != nil {
		return errors.Join(fmt.Errorf("record usage: %w", err), app.Rollback())
	}
	if err := app.Commit(); err != nil {
		return fmt.Errorf("record usage: %w", err)
	}
	return nil
}

func record(sample usage.Sample, add func(value float64, name ...string) error) error {
	for _, d := range dimensions() {
		had := float64(sample.Had.At(d.dim)) / d.baseUnits
		if err := add(had, model.MetricNameLabel, "kube_node_status_capacity", "resource", d.resource, "unit", d.unit); err != nil {
			return err
		}
		for queue, held := range sample.Held { // order: each its own series
			if err := add(float64(held.At(d.dim))/d.baseUnits, model.MetricNameLabel, d.held, "queue_name", queue); err != nil {
				return err
			}
		}
	}
	return nil
}

// dropped says whether the database refused a sample because of its time.
func dropped(err error) bool {
	return errors.Is(err, storage.ErrDuplicateSampleForTimestamp) || errors.Is(err, storage.ErrOutOfOrderSample) ||
		errors.Is(err, storage.ErrOutOfBounds) || errors.Is(err, storage.ErrTooOldSample)
}
