package kubetest

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"syscall"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Call is a request as faults see it and as Writes tells it.
type Call struct {
	// Process is who asks.
	Process string
	// Verb is get, list, watch, create, update, patch, apply or delete.
	Verb string
	// Kind and Subresource say of what: "Pod", "binding".
	Kind, Subresource string
	// Namespace and Name are the object's; Name is empty in lists, watches, and where the server is to make a name up.
	Namespace, Name string
	// Body is what was sent.
	Body []byte
	// Write is 1 for the process' first write, and so on; 0 for what only reads.
	Write int
	// At is when it came.
	At time.Time
}

// String is the call in words: "create Pod ns/p", "patch Queue/status q".
func (c Call) String() string {
	what := c.Kind
	if c.Subresource != "" {
		what += "/" + c.Subresource
	}
	name := c.Name
	if c.Namespace != "" {
		name = c.Namespace + "/" + name
	}
	return strings.TrimSpace(c.Verb + " " + what + " " + name)
}

// Outcome is what becomes of a call. The zero value: it is served.
type Outcome struct {
	// Delay is how long the server takes before it looks at it.
	Delay time.Duration
	// Err, if set, is what the caller gets: an API status is answered, and any other error is a connection that breaks.
	Err error
	// Done says that the call takes effect although Err is what the caller gets.
	Done bool
	// Hang says that there is no answer as long as the caller waits. Done says whether it takes effect.
	Hang bool
}

// ErrLost is the error of a connection that breaks.
var ErrLost = fmt.Errorf("kubetest: %w", syscall.ECONNRESET)

// The faults that tests have most use for.

// LostRequest never arrives.
func LostRequest() Outcome { return Outcome{Err: ErrLost} }

// LostAnswer takes effect, which the caller is not told.
func LostAnswer() Outcome { return Outcome{Err: ErrLost, Done: true} }

// Conflict is the answer that somebody else was faster.
func Conflict() Outcome {
	return Outcome{Err: apierrors.NewConflict(schema.GroupResource{Resource: "objects"}, "it", errors.New("the object has been modified"))}
}

// TooMany is the answer of an API server that asks to be left alone for so many seconds.
func TooMany(seconds int) Outcome {
	return Outcome{Err: apierrors.NewTooManyRequests("the server is busy", seconds)}
}

// Broken is the answer of an API server with a defect or without its store.
func Broken(text string) Outcome { return Outcome{Err: apierrors.NewInternalError(errors.New(text))} }

// fault is one rule.
type fault struct{ rule func(Call) Outcome }

// Fault has a rule asked about every call, after those that were there before; the first that does not say to serve it has its way. A rule
// is asked by one caller at a time, and must not call the server. The returned function takes it away.
func (s *Server) Fault(rule func(Call) Outcome) (remove func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := &fault{rule}
	s.faults = append(s.faults, f)
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		for i := range s.faults {
			if s.faults[i] == f {
				s.faults = append(s.faults[:i:i], s.faults[i+1:]...)
				return
			}
		}
	}
}

// Nth makes a rule for the n-th call, counted from 1, that which accepts.
func Nth(n int, which func(Call) bool, o Outcome) func(Call) Outcome {
	return func(c Call) Outcome {
		if !which(c) {
			return Outcome{}
		}
		if n--; n == 0 {
			return o
		}
		return Outcome{}
	}
}

// Is accepts calls that String tells with this beginning: Is("create Pod").
func Is(beginning string) func(Call) bool {
	return func(c Call) bool { return strings.HasPrefix(c.String(), beginning) }
}

// judge is what becomes of a call. The lock is held.
func (s *Server) judge(c Call) Outcome {
	for _, f := range s.faults {
		if o := f.rule(c); o != (Outcome{}) {
			return o
		}
	}
	return Outcome{}
}

// Writes returns the writes that came since the last call of it, whatever became of them; not those before which a process died.
func (s *Server) Writes() []Call {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.writes
	s.writes = nil
	return out
}

// Drop has a field of a kind not be kept from now on, without a word, as by a server whose feature gate for it is off.
func (s *Server) Drop(kind string, field ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dropped[kind] = append(s.dropped[kind], field)
}

// Hold keeps what happens to objects of o's kind from watches, which go on without a word, until Release: caches are stale. Reads are not.
func (s *Server) Hold(kind string) { s.each(kind, func(t *table) { t.until = len(t.log) }) }

// Release ends Hold: watches are told what they missed.
func (s *Server) Release(kind string) { s.each(kind, func(t *table) { t.until = -1 }) }

// Cut ends all watches of a kind. Clients go on from where they were.
func (s *Server) Cut(kind string) { s.each(kind, func(t *table) { t.cut++ }) }

// Expire forgets what has happened to a kind, and ends its watches with 410 (Gone): clients list anew.
func (s *Server) Expire(kind string) {
	s.each(kind, func(t *table) {
		t.expired++
		t.lost = s.version
	})
}

func (s *Server) each(kind string, do func(*table)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	found := false
	for _, t := range s.tables { // order: each on its own
		if t.kind.Kind == kind {
			do(t)
			found = true
		}
	}
	if !found {
		panic("kubetest: kind " + kind + " is not served")
	}
	s.wake()
}

// statusOf is the answer that an error is; nil for a connection that breaks.
func statusOf(err error) apierrors.APIStatus {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		return status
	}
	return nil
}

// writes says whether a verb changes anything.
func writes(method string) bool { return method != http.MethodGet }
