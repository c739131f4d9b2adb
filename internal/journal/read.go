package journal

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/muster-scheduler/muster/internal/replay"
)

// ErrNone says that no cycle of a number is kept.
var ErrNone = errors.New("no such cycle is kept")

// view is what is there now.
func (j *Journal) view() []segment {
	j.mu.Lock()
	defer j.mu.Unlock()
	out := make([]segment, 0, len(j.segments))
	for _, s := range j.segments {
		out = append(out, *s)
	}
	return out
}

// Each tells the entries of a time and later, in the order in which they were written, until the callee wants no more. A segment that is damaged ends where it is, with a gap in the place of what
// follows. Errors are of the disk, or of ctx. Cost: the heads of the entries of that time.
func (j *Journal) Each(ctx context.Context, since time.Time, each func(*Entry) bool) error {
	for _, s := range j.view() {
		if s.last.Before(since) {
			continue
		}
		more := true
		_, err := j.scan(&s, func(f *framed) bool {
			if ctx.Err() != nil {
				return false
			}
			if !f.At.Before(since) {
				more = each(&f.Entry)
			}
			return more
		})
		switch {
		case ctx.Err() != nil:
			return fmt.Errorf("read the journal: %w", context.Cause(ctx))
		case errors.Is(err, os.ErrNotExist): // it was dropped meanwhile
		case errors.Is(err, errFrame):
			more = more && each(&Entry{Kind: Gap, At: s.last, Missing: &Missing{Why: Damaged, Since: s.begun}})
		case err != nil:
			return fmt.Errorf("read the journal: %w", err)
		}
		if !more {
			return nil
		}
	}
	return nil
}

// Latest returns what keep makes of the entries of a time and later, nil for none, in the order in which they were written, and the moment from which on none is left out: later than since where the journal begins
// later, where ctx ended before older ones were read, or once there are so many. Where no more was read it is the journal's time now. Errors are of the disk. Cost: as Each, the latest first.
func (j *Journal) Latest(ctx context.Context, since time.Time, most int, keep func(*Entry) *Entry) (out []*Entry, from time.Time, err error) {
	all := j.view()
	from = j.o.Now()
	for i := len(all) - 1; i >= 0; i-- {
		s := &all[i]
		if s.size == 0 {
			continue
		}
		if s.last.Before(since) || len(out) >= most {
			break
		}
		var here []*Entry
		_, err := j.scan(s, func(f *framed) bool {
			if ctx.Err() == nil && !f.At.Before(since) {
				if e := keep(&f.Entry); e != nil {
					here = append(here, e)
				}
			}
			return ctx.Err() == nil
		})
		switch {
		case ctx.Err() != nil, errors.Is(err, os.ErrNotExist): // what was dropped meanwhile is the oldest
			return out, from, nil
		case errors.Is(err, errFrame):
			if e := keep(&Entry{Kind: Gap, At: s.last, Missing: &Missing{Why: Damaged, Since: s.begun}}); e != nil {
				here = append(here, e)
			}
		case err != nil:
			return nil, from, fmt.Errorf("read the journal: %w", err)
		}
		out, from = append(here, out...), s.begun
	}
	if from.Before(since) {
		from = since
	}
	return out, from, nil
}

// Case returns a cycle by the number of its entry, as the scheduler had it, with the UID of its cluster. The error wraps ErrNone, or says that the disk or the file is at fault. Cost: the cycles of its segment
// before it.
func (j *Journal) Case(ctx context.Context, number uint64) (*replay.Case, *Entry, string, error) {
	all := j.view()
	k := -1
	for i := range all {
		if all[i].first <= number {
			k = i
		}
	}
	none := fmt.Errorf("%w: number %d", ErrNone, number)
	if k < 0 {
		return nil, nil, "", none
	}
	var at *Entry
	var of *replay.Follower
	bad, err := j.replay(ctx, &all[k], func(e *Entry, f *replay.Follower) bool {
		if e.Number == number {
			at, of = e, f
		}
		return e.Number < number
	})
	switch {
	case bad != nil:
		return nil, nil, "", fmt.Errorf("read cycle %d of the journal: %w", number, bad)
	case errors.Is(err, os.ErrNotExist), err == nil && (at == nil || at.Kind != Cycle):
		return nil, nil, "", none
	case err != nil && at == nil:
		return nil, nil, "", fmt.Errorf("read cycle %d of the journal: its file is damaged before it: %w", number, err)
	}
	return of.Case(), at, of.Cluster(), nil
}

// replay tells the entries of a segment, each with what its shard's cycles have come to. bad is what an entry that is whole has in it that cannot be; err is scan's.
func (j *Journal) replay(ctx context.Context, s *segment, each func(*Entry, *replay.Follower) bool) (bad, err error) {
	followers := map[string]*replay.Follower{}
	_, err = j.scan(s, func(f *framed) bool {
		if bad = context.Cause(ctx); bad != nil {
			return false
		}
		of := followers[f.Shard]
		if f.Kind == Cycle {
			if of == nil {
				of = &replay.Follower{}
				followers[f.Shard] = of
			}
			var line []byte
			if line, bad = f.line(); bad == nil {
				_, bad = of.Take(line)
			}
			if bad != nil {
				return false
			}
		}
		return each(&f.Entry, of)
	})
	return bad, err
}
