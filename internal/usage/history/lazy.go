package history

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/muster-scheduler/muster/internal/usage"
)

// Lazy is a folder that is opened when it is first used, and tried again each time it is used after that failed. A file that is damaged is
// tried again when it is another one. So a folder that cannot be used is an error of a question or a sample, which a [usage.Keeper] tells and goes on
// from; a scheduler does not wait for it to be opened. Make one with [NewLazy]. Its methods may be called at any time.
type Lazy struct {
	config usage.Config
	folder string

	mu     sync.Mutex
	store  *Store
	damage error       // of the file, and
	found  os.FileInfo // what that looked like
	closed bool
}

// errClosed is what a folder says that is used after its end.
var errClosed = errors.New("the history of usage is closed")

// NewLazy returns a folder that is not open yet.
func NewLazy(c usage.Config, folder string) *Lazy { return &Lazy{config: c, folder: folder} }

// Fetch implements usage.Source.
func (l *Lazy) Fetch(ctx context.Context, now time.Time) (shares usage.Shares, err error) {
	err = l.with(ctx, func(s *Store) (err error) {
		shares, err = s.Fetch(ctx, now)
		return err
	})
	return shares, err
}

// Record implements usage.History.
func (l *Lazy) Record(ctx context.Context, at time.Time, sample usage.Sample) error {
	return l.with(ctx, func(s *Store) error { return s.Record(ctx, at, sample) })
}

// with does something with the open store.
func (l *Lazy) with(ctx context.Context, do func(*Store) error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return errClosed
	}
	path := filepath.Join(l.folder, fileName)
	if l.damage != nil {
		if now, err := os.Stat(path); err == nil && os.SameFile(now, l.found) && now.Size() == l.found.Size() && now.ModTime().Equal(l.found.ModTime()) {
			return l.damage
		}
		l.damage = nil
	}
	err := l.ready(ctx)
	if err == nil {
		err = do(l.store)
	}
	if errors.As(err, new(*damage)) {
		if l.store != nil {
			err = errors.Join(err, l.store.Close())
			l.store = nil
		}
		if found, gone := os.Stat(path); gone == nil {
			l.damage, l.found = err, found
		}
	}
	return err
}

func (l *Lazy) ready(ctx context.Context) (err error) {
	if l.store == nil {
		l.store, err = Open(ctx, l.config, l.folder)
	}
	return err
}

// Close closes the folder for good.
func (l *Lazy) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	if l.store == nil {
		return nil
	}
	err := l.store.Close()
	l.store = nil
	return err
}
