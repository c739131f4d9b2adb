package validate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"strings"
	"time"
)

// Check is one thing to look at.
type Check struct {
	Name string
	// Run says what it saw, or what is wrong.
	Run func(ctx context.Context) (saw string, err error)
	// Do is what to do about an error that has no advice of its own: see Advise.
	Do string
	// Time bounds Run. 0: 30 s.
	Time time.Duration
}

// Finding is what became of a check.
type Finding struct {
	Check string `json:"check"`
	OK    bool   `json:"ok"`
	Saw   string `json:"saw,omitempty"`
	// Wrong and Do are set unless OK.
	Wrong string `json:"wrong,omitempty"`
	Do    string `json:"do,omitempty"`
}

// Advise gives an error its advice.
func Advise(err error, do string, args ...any) error {
	if err == nil {
		return nil
	}
	return advised{err, fmt.Sprintf(do, args...)}
}

type advised struct {
	error
	do string
}

func (a advised) Unwrap() error { return a.error }

// Run runs checks in their order, and tells each finding when it is there.
func Run(ctx context.Context, checks []Check, tell func(Finding)) (ok bool) {
	ok = true
	for _, c := range checks {
		f := c.run(ctx)
		ok = ok && f.OK
		tell(f)
	}
	return ok
}

func (c Check) run(ctx context.Context) Finding {
	limit := c.Time
	if limit <= 0 {
		limit = 30 * time.Second
	}
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("no end within %v", limit))
	defer cancel()
	type end struct {
		saw string
		err error
	}
	done := make(chan end, 1)
	go func() {
		defer func() {
			if p := recover(); p != nil {
				done <- end{err: fmt.Errorf("a defect: %v\n%s", p, debug.Stack())}
			}
		}()
		saw, err := c.Run(ctx)
		done <- end{saw, err}
	}()
	var e end
	select {
	case e = <-done:
	case <-ctx.Done():
		e.err = context.Cause(ctx)
	}
	f := Finding{Check: c.Name, OK: e.err == nil, Saw: e.saw}
	if e.err != nil {
		f.Wrong, f.Do = e.err.Error(), c.Do
		var a advised
		if errors.As(e.err, &a) {
			f.Do = a.do
		}
	}
	return f
}

// Write writes a finding for people.
func (f Finding) Write(to io.Writer) error {
	indent := func(s string) string { return strings.ReplaceAll(strings.TrimSpace(s), "\n", "\n      ") }
	if f.OK {
		_, err := fmt.Fprintf(to, "ok    %s: %s\n", f.Check, indent(f.Saw))
		return err
	}
	_, err := fmt.Fprintf(to, "FAIL  %s: %s\n      do: %s\n", f.Check, indent(f.Wrong), indent(f.Do))
	return err
}
