package history

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/tsdb/index"
	"github.com/prometheus/prometheus/tsdb/record"
	"go.etcd.io/bbolt"
)

// What Prometheus' database keeps in a folder, besides blocks, each of which is a folder of its own.
const (
	earlierJournal    = "wal"
	earlierChunks     = "chunks_head" // a copy of what the journal says, in another form
	earlierCheckpoint = "checkpoint."
	earlierIndex      = "index"
)

// slice is how much of a block is taken over at once, in milliseconds: it bounds the memory that takes.
const slice = int64(time.Hour / time.Millisecond)

// adopt takes over what an earlier version kept in the folder as Prometheus' database, blocks and journal, and removes that. A
// process that dies meanwhile leaves it, and the next one does it again: what is there already stays. So does an earlier
// version that was put back in between: it begins an empty database beside the file, which is taken over in turn. What cannot be read
// is an error that names it, and nothing is removed.
func (s *Store) adopt(ctx context.Context, log logr.Logger) error {
	entries, err := os.ReadDir(s.folder)
	if err != nil {
		return err
	}
	var done []string
	for _, e := range entries {
		path := filepath.Join(s.folder, e.Name())
		switch {
		case !e.IsDir():
			continue
		case e.Name() == earlierJournal:
			err = s.adoptJournal(ctx, path, log)
		case e.Name() == earlierChunks, strings.Contains(e.Name(), ".tmp-for-"):
		case exists(filepath.Join(path, earlierIndex)):
			err = s.adoptBlock(ctx, path)
		default:
			continue // somebody else's
		}
		if err != nil {
			return fmt.Errorf("take over %s, which an earlier version wrote (without that folder the history begins later): %w", path, err)
		}
		done = append(done, path)
	}
	if len(done) == 0 {
		return nil
	}
	err = syncFolder(s.folder) // the file's name is there for good before what it was made of goes
	for _, path := range done {
		if err == nil {
			err = os.RemoveAll(path)
		}
	}
	if err != nil {
		return fmt.Errorf("remove what has been taken over: %w", err)
	}
	log.Info("took over the history of an earlier version", "folder", s.folder)
	return nil
}

func syncFolder(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// adoptBlock takes over one block: an index of series, and chunks of their samples.
func (s *Store) adoptBlock(ctx context.Context, folder string) (err error) {
	ix, err := index.NewFileReader(filepath.Join(folder, earlierIndex), index.DecodePostingsRaw)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, ix.Close()) }()
	from, err := chunks.NewDirReader(filepath.Join(folder, "chunks"), nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, from.Close()) }()
	name, value := index.AllPostingsKey()
	all, err := ix.Postings(ctx, name, value)
	if err != nil {
		return err
	}
	refs, err := index.ExpandPostings(all)
	if err != nil {
		return err
	}
	b := &block{index: ix, chunks: from, refs: refs}
	first, last := int64(math.MaxInt64), int64(math.MinInt64)
	err = b.each(func(_ series, metas []chunks.Meta) error {
		for _, m := range metas {
			first, last = min(first, m.MinTime), max(last, m.MaxTime)
		}
		return nil
	})
	if err != nil {
		return err
	}
	for low := first; low <= last; low += slice {
		if err := ctx.Err(); err != nil {
			return err
		}
		moments, err := b.moments(low, low+slice)
		if err != nil {
			return err
		}
		if err := s.putAll(moments); err != nil {
			return err
		}
	}
	return nil
}

// ours is a series of an earlier version's. Another one is an error: the folder would be that of a Prometheus server, which must not
// lose what nobody takes over.
func ours(l labels.Labels) (series, error) {
	of, err := seriesOf(l)
	if err == nil && of.metric != capacity && !slices.ContainsFunc(dimensions(), func(d recorded) bool { return d.held == of.metric }) {
		err = fmt.Errorf("the series %s is none of Muster's: is this the folder of a Prometheus server?", l)
	}
	return of, err
}

// putAll puts points by their times, in one transaction, and keeps to the bounds of the store.
func (s *Store) putAll(moments map[int64][]point) error {
	return s.update(func(tx *bbolt.Tx) error {
		for _, at := range slices.Sorted(maps.Keys(moments)) {
			if err := put(tx, at, moments[at]); err != nil {
				return err
			}
		}
		last, known := newest(tx)
		if !known {
			return nil
		}
		return s.prune(tx, last)
	})
}

// block is an open one of Prometheus' database.
type block struct {
	index  *index.Reader
	chunks *chunks.Reader
	refs   []storage.SeriesRef
	labels labels.ScratchBuilder
	metas  []chunks.Meta
}

// each visits every series, with where its chunks are; those are valid during the visit.
func (b *block) each(visit func(series, []chunks.Meta) error) error {
	for _, ref := range b.refs {
		if err := b.index.Series(ref, &b.labels, &b.metas); err != nil {
			return err
		}
		of, err := ours(b.labels.Labels())
		if err != nil {
			return err
		}
		if err := visit(of, b.metas); err != nil {
			return err
		}
	}
	return nil
}

// moments are all points from a time to before another, by their times.
func (b *block) moments(from, to int64) (map[int64][]point, error) {
	out := map[int64][]point{}
	var it chunkenc.Iterator
	err := b.each(func(of series, metas []chunks.Meta) error {
		for _, m := range metas {
			if m.MaxTime < from || m.MinTime >= to {
				continue
			}
			c, _, err := b.chunks.ChunkOrIterable(m)
			if err != nil {
				return err
			}
			for it = c.Iterator(it); it.Next() == chunkenc.ValFloat; {
				if at, v := it.At(); at >= from && at < to {
					out[at] = append(out[at], point{of, v})
				}
			}
			if err := it.Err(); err != nil {
				return err
			}
		}
		return nil
	})
	return out, err
}

// adoptJournal takes over the samples of the journal: of its last checkpoint, and of the segments after that.
func (s *Store) adoptJournal(ctx context.Context, folder string, log logr.Logger) error {
	segments, err := journalSegments(folder)
	if err != nil {
		return err
	}
	j := journal{byRef: map[chunks.HeadSeriesRef]series{}, decoder: record.NewDecoder(labels.NewSymbolTable(), slog.New(logr.ToSlogHandler(log.V(1))))}
	for i, path := range segments {
		if err := ctx.Err(); err != nil {
			return err
		}
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		j.moments = map[int64][]point{}
		torn, err := readSegment(f, j.take)
		if err := errors.Join(err, f.Close()); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		if torn != nil && i < len(segments)-1 {
			return fmt.Errorf("%s is damaged: %w", path, torn)
		}
		if torn != nil { // as after a kill in the middle of a write
			log.Info("the journal of an earlier version ends in the middle of a record, which is left out", "segment", path, "found", torn.Error())
		}
		if err := s.putAll(j.moments); err != nil {
			return err
		}
	}
	return nil
}

// journalSegments are the files of a journal in their order: those of the last checkpoint first, then those that are newer.
func journalSegments(folder string) (out []string, err error) {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil, err
	}
	covered, checkpoint := -1, ""
	for _, e := range entries {
		rest, ok := strings.CutPrefix(e.Name(), earlierCheckpoint)
		if number, err := strconv.Atoi(rest); ok && err == nil && e.IsDir() && number > covered {
			covered, checkpoint = number, filepath.Join(folder, e.Name())
		}
	}
	type numbered struct {
		number int
		path   string
	}
	list := func(folder string, entries []fs.DirEntry, after int) {
		var files []numbered
		for _, e := range entries {
			if number, err := strconv.Atoi(e.Name()); err == nil && !e.IsDir() && number > after {
				files = append(files, numbered{number, filepath.Join(folder, e.Name())})
			}
		}
		slices.SortFunc(files, func(a, b numbered) int { return a.number - b.number })
		for _, f := range files {
			out = append(out, f.path)
		}
	}
	if checkpoint != "" {
		inside, err := os.ReadDir(checkpoint)
		if err != nil {
			return nil, err
		}
		list(checkpoint, inside, -1)
	}
	list(folder, entries, covered)
	return out, nil
}

// journal is what has been read of one.
type journal struct {
	decoder record.Decoder
	byRef   map[chunks.HeadSeriesRef]series
	moments map[int64][]point // of this segment
}

// take reads one record. What is neither series nor samples is not ours.
func (j *journal) take(rec []byte) error {
	switch kind := j.decoder.Type(rec); kind {
	case record.Series:
		all, err := j.decoder.Series(rec, nil)
		if err != nil {
			return err
		}
		for _, one := range all {
			if j.byRef[one.Ref], err = ours(one.Labels); err != nil {
				return err
			}
		}
	case record.Samples, record.SamplesV2:
		all, err := j.decoder.Samples(rec, nil)
		if err != nil {
			return err
		}
		for _, one := range all {
			if of, ok := j.byRef[one.Ref]; ok {
				j.moments[one.T] = append(j.moments[one.T], point{of, one.V})
			}
		}
	}
	return nil
}
