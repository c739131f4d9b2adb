package app

import (
	"context"
	"sync"
	"time"

	"github.com/go-logr/logr"
)

const (
	// libraryLevel is added to the levels above 0 at which libraries log: what is housekeeping to them is noise beside our own story.
	libraryLevel = 3
	// repeatedEvery is the time between two lines of a library with the same message, and rememberedMessages of how many messages it is
	// known when they were written.
	repeatedEvery      = 10 * time.Second
	rememberedMessages = 256
)

// Library returns a context for what is done by the Kubernetes libraries, with its logger less loud: their lines above level 0 count as
// three levels higher, and of other lines with the same message, such as those of each reflector when the API server is away, one is written
// every ten seconds at most, with the key more for how many others there were.
func Library(ctx context.Context) context.Context {
	return logr.NewContext(ctx, libraryLogger(logr.FromContextOrDiscard(ctx)))
}

func libraryLogger(log logr.Logger) logr.Logger {
	if log.GetSink() == nil {
		return log
	}
	return log.WithSink(&librarySink{log.GetSink(), &repeats{said: map[string]*repeat{}}})
}

// librarySink is the sink of a library's logger.
type librarySink struct {
	logr.LogSink
	repeats *repeats
}

// Enabled says whether lines of the level are written.
func (s *librarySink) Enabled(level int) bool { return s.LogSink.Enabled(libraryLevelOf(level)) }

// Info writes a line.
func (s *librarySink) Info(level int, msg string, keysAndValues ...any) {
	if level > 0 { // whoever asks for these wants them all
		s.LogSink.Info(libraryLevelOf(level), msg, keysAndValues...)
	} else if more, due := s.repeats.due(msg); due {
		s.LogSink.Info(level, msg, with(keysAndValues, more)...)
	}
}

// Error writes a line about an error.
func (s *librarySink) Error(err error, msg string, keysAndValues ...any) {
	if more, due := s.repeats.due(msg); due {
		s.LogSink.Error(err, msg, with(keysAndValues, more)...)
	}
}

// WithValues returns a sink whose lines have these, too.
func (s *librarySink) WithValues(keysAndValues ...any) logr.LogSink {
	return &librarySink{s.LogSink.WithValues(keysAndValues...), s.repeats}
}

// WithName returns a sink of that name.
func (s *librarySink) WithName(name string) logr.LogSink {
	return &librarySink{s.LogSink.WithName(name), s.repeats}
}

func libraryLevelOf(level int) int {
	if level > 0 {
		return level + libraryLevel
	}
	return level
}

func with(keysAndValues []any, more int) []any {
	if more == 0 {
		return keysAndValues
	}
	return append(keysAndValues[:len(keysAndValues):len(keysAndValues)], "more", more)
}

// repeats knows which messages were written when.
type repeats struct {
	mu   sync.Mutex
	said map[string]*repeat
}

type repeat struct {
	at   time.Time
	more int // since then
}

// due says whether a line with this message is to be written, and how many were not since the last.
func (r *repeats) due(msg string) (more int, due bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	m := r.said[msg]
	if m == nil {
		if len(r.said) >= rememberedMessages { // libraries put names into messages, too
			clear(r.said)
		}
		m = &repeat{}
		r.said[msg] = m
	}
	if !m.at.IsZero() && now.Sub(m.at) < repeatedEvery {
		m.more++
		return 0, false
	}
	more, m.at, m.more = m.more, now, 0
	return more, true
}
