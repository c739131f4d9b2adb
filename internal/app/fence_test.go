package app

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"
)

// clocks are two clocks that a test sets.
type clocks struct {
	mu sync.Mutex
	at moment
}

func (c *clocks) read() moment {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *clocks) pass(steady, wall time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at.steady += steady
	c.at.wall += wall
}

// TestFenceWindow: the window ends by whichever clock shows more, so that neither a stop of the process, nor a sleep of the machine,
// nor a clock that is set lets a write pass too late; the next renewal opens it again.
func TestFenceWindow(t *testing.T) {
	t.Parallel()
	const window = 10 * time.Second
	for _, c := range []struct {
		name         string
		steady, wall time.Duration
		open         bool
	}{
		{"in time", window - 1, window - 1, true},
		{"stopped for longer", window, window, false},
		{"asleep: the steady clock stood still", 0, time.Hour, false},
		{"the wall clock was set back", window, -time.Hour, false},
		{"the wall clock was set back a little, in time", time.Second, -time.Hour, true},
	} {
		clock := &clocks{}
		f := newFence(window)
		f.clock = clock.read
		if !errors.Is(f.Check(), ErrFenced) {
			t.Errorf("%s: it was open at first", c.name)
		}
		f.renewed(clock.read())
		clock.pass(c.steady, c.wall)
		if err := f.Check(); (err == nil) != c.open {
			t.Errorf("%s: %v", c.name, err)
		}
		f.renewed(clock.read())
		if err := f.Check(); err != nil {
			t.Errorf("%s: renewed, but %v", c.name, err)
		}
		// A renewal whose answer came late is as old as its question.
		asked := clock.read()
		clock.pass(window, window)
		f.renewed(asked)
		if f.Check() == nil {
			t.Errorf("%s: an old renewal opened it", c.name)
		}
		f.renewed(clock.read())
		f.shut()
		if f.Check() == nil {
			t.Errorf("%s: shut, but open", c.name)
		}
	}
}

// TestFenceGuard: behind a closed fence reads pass, writes of every kind fail before they are sent, and one that is under way is
// cut when the window ends.
func TestFenceGuard(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var got []string
	reached, gone := make(chan struct{}, 1), make(chan struct{}, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return // it did not come in full: an API server does nothing then
		}
		mu.Lock()
		got = append(got, r.Method+" "+string(body))
		mu.Unlock()
		if r.URL.Path == "/slow" {
			reached <- struct{}{}
			<-r.Context().Done()
			gone <- struct{}{}
		}
		_, _ = io.WriteString(w, "done")
	}))
	t.Cleanup(server.Close)
	clock := &clocks{}
	f := newFence(time.Hour)
	f.clock = clock.read
	config := &rest.Config{Host: server.URL}
	client, err := rest.HTTPClientFor(f.Guard(config))
	if err != nil {
		t.Fatal(err)
	}
	ask := func(method, path string, body io.Reader) error {
		r, err := http.NewRequestWithContext(t.Context(), method, server.URL+path, body)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := client.Do(r)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		_, err = io.ReadAll(resp.Body)
		return err
	}
	all := []string{http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete}
	expect := func(what string, open bool) {
		t.Helper()
		got = nil
		for _, method := range all {
			if err := ask(method, "/", strings.NewReader("x")); open != (err == nil) || !open && !errors.Is(err, ErrFenced) {
				t.Errorf("%s: %s: %v", what, method, err)
			}
		}
		if err := ask(http.MethodGet, "/", nil); err != nil {
			t.Errorf("%s: a read: %v", what, err)
		}
		if want := map[bool]int{true: 5, false: 1}[open]; len(got) != want {
			t.Errorf("%s: the server heard %q, want %d requests", what, got, want)
		}
	}
	expect("before the first turn", false)
	f.renewed(clock.read())
	expect("while it leads", true)

	// Stopped between the check and the body: a pause that no check before the request can see.
	got = nil
	late := readerFunc(func(p []byte) (int, error) { return copy(p, "late"), io.EOF })
	if err := ask(http.MethodPost, "/", pausing{late, func() { clock.pass(2*time.Hour, 2*time.Hour) }}); !errors.Is(err, ErrFenced) {
		t.Errorf("the body of a process that was stopped: %v", err)
	}
	if len(got) > 0 {
		t.Errorf("the server heard %q", got)
	}
	expect("after a stop", false)

	f.renewed(clock.read())
	failed := make(chan error, 1)
	go func() { failed <- ask(http.MethodPost, "/slow", strings.NewReader("x")) }()
	<-reached
	f.shut()
	if err := <-failed; !errors.Is(err, ErrFenced) || errors.Is(err, context.Canceled) && !errors.Is(err, ErrFenced) {
		t.Errorf("a write that was under way: %v", err)
	}
	<-gone
	if len(f.flying) != 0 {
		t.Errorf("%d writes are still under way", len(f.flying))
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// pausing pauses before each part, after the transport has asked for it.
type pausing struct {
	io.Reader
	pause func()
}

func (p pausing) Read(b []byte) (int, error) {
	p.pause()
	return p.Reader.Read(b)
}
