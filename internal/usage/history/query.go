package history

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/util/annotations"
	"go.etcd.io/bbolt"
)

// Querier implements storage.Queryable: what the query engine reads samples through.
func (s *Store) Querier(from, to int64) (storage.Querier, error) { return &querier{s, from, to}, nil }

// querier reads the samples from a time to a time, both included.
type querier struct {
	store    *Store
	from, to int64
}

// Select returns the series that match, in the order of their labels. They are read at once, so that no transaction stays open
// while a question is answered: that would keep the file from reusing room.
func (q *querier) Select(ctx context.Context, _ bool, hints *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
	from, to := q.from, q.to
	if hints != nil {
		from, to = max(from, hints.Start), min(to, hints.End)
	}
	var found []*trail
	err := q.store.view(func(tx *bbolt.Tx) (err error) {
		found, err = read(ctx, tx, from, to, matchers)
		return err
	})
	if err != nil {
		return storage.ErrSeriesSet(err)
	}
	return &seriesSet{list: found, at: -1}
}

// LabelValues implements storage.LabelQuerier; no function of the language that is switched on asks for it.
func (*querier) LabelValues(context.Context, string, *storage.LabelHints, ...*labels.Matcher) ([]string, annotations.Annotations, error) {
	return nil, nil, errors.ErrUnsupported
}

// LabelNames is as LabelValues.
func (*querier) LabelNames(context.Context, *storage.LabelHints, ...*labels.Matcher) ([]string, annotations.Annotations, error) {
	return nil, nil, errors.ErrUnsupported
}

// Close implements storage.LabelQuerier.
func (*querier) Close() error { return nil }

// read collects the series that match, with what they were from a time to a time.
func read(ctx context.Context, tx *bbolt.Tx, from, to int64, matchers []*labels.Matcher) ([]*trail, error) {
	blocks := tx.Bucket(keyBlocks)
	if blocks == nil || to < 0 {
		return nil, nil
	}
	from = max(from, 0)
	trails, count := map[string]*trail{}, 0
	c := blocks.Cursor()
	for key, _ := c.Seek(timeKey(from - from%blockLength)); key != nil && keyTimeOf(key) <= to; key, _ = c.Next() {
		block := blocks.Bucket(key)
		err := block.ForEachBucket(func(metric []byte) error {
			for _, m := range matchers {
				if m.Name == model.MetricNameLabel && !m.Matches(string(metric)) {
					return nil
				}
			}
			byNumber, err := matching(block.Bucket(metric), matchers, trails)
			if err != nil || len(byNumber) == 0 {
				return err
			}
			rows := block.Bucket(metric).Bucket(keySamples).Cursor()
			for key, row := rows.Seek(timeKey(from)); key != nil && keyTimeOf(key) <= to; key, row = rows.Next() {
				if err := ctx.Err(); err != nil {
					return err
				}
				at := keyTimeOf(key)
				err := readRow(row, func(number uint64, value float64) {
					if t := byNumber[number]; t != nil {
						t.samples = append(t.samples, sample{at, value})
						count++
					}
				})
				if err != nil {
					return err
				}
				if count > maxSamples {
					return promql.ErrTooManySamples("the history of usage")
				}
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	var out []*trail
	for _, t := range trails { // order: sorted below
		if len(t.samples) > 0 {
			out = append(out, t)
		}
	}
	slices.SortFunc(out, func(a, b *trail) int { return labels.Compare(a.labels, b.labels) })
	return out, nil
}

// matching are the series of a metric in a block that match, by their numbers there. Those that earlier blocks have are gone on with.
func matching(metric *bbolt.Bucket, matchers []*labels.Matcher, trails map[string]*trail) (map[uint64]*trail, error) {
	out := map[uint64]*trail{}
	err := metric.Bucket(keySeries).ForEach(func(key, number []byte) error {
		t := trails[string(key)]
		if t == nil {
			t = &trail{}
			if err := json.Unmarshal(key, &t.labels); err != nil {
				return fmt.Errorf("the series %.100q: %w", key, err)
			}
		}
		for _, m := range matchers {
			if !m.Matches(t.labels.Get(m.Name)) {
				return nil
			}
		}
		if len(number) != 8 {
			return fmt.Errorf("the series %.100q: its number is damaged", key)
		}
		trails[string(key)] = t
		out[binary.BigEndian.Uint64(number)] = t
		return nil
	})
	return out, err
}

// trail is a series with its samples, in the order of their times.
type trail struct {
	labels labels.Labels
	samples
}

// Labels implements storage.Series.
func (t *trail) Labels() labels.Labels { return t.labels }

// Iterator implements storage.Series.
func (t *trail) Iterator(chunkenc.Iterator) chunkenc.Iterator {
	return storage.NewListSeriesIterator(t.samples)
}

// samples implement storage.Samples.
type samples []sample

// Get implements storage.Samples.
func (s samples) Get(i int) chunks.Sample { return &s[i] }

// Len implements storage.Samples.
func (s samples) Len() int { return len(s) }

// sample is what a series was at a time. It implements chunks.Sample; there are no histograms here, and nothing is counted from a start.
type sample struct {
	at    int64
	value float64
}

// T is the time, in Unix milliseconds.
func (s *sample) T() int64 { return s.at }

// F is the value.
func (s *sample) F() float64 { return s.value }

// Type says that the value is a number.
func (*sample) Type() chunkenc.ValueType { return chunkenc.ValFloat }

// ST is no start.
func (*sample) ST() int64 { return 0 }

// H is no histogram.
func (*sample) H() *histogram.Histogram { return nil }

// FH is no histogram.
func (*sample) FH() *histogram.FloatHistogram { return nil }

// Copy is a sample of its own.
func (s *sample) Copy() chunks.Sample { c := *s; return &c }

// seriesSet is what a selection found.
type seriesSet struct {
	list []*trail
	at   int
}

// Next implements storage.SeriesSet.
func (s *seriesSet) Next() bool { s.at++; return s.at < len(s.list) }

// At implements storage.SeriesSet.
func (s *seriesSet) At() storage.Series { return s.list[s.at] }

// Err implements storage.SeriesSet.
func (*seriesSet) Err() error { return nil }

// Warnings implements storage.SeriesSet.
func (*seriesSet) Warnings() annotations.Annotations { return nil }
