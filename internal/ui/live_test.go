package ui

import (
	"bufio"
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// telling are cycles that come when the test says so.
type telling struct {
	still
	came atomic.Uint64
}

func (t *telling) Came() uint64 { return t.came.Load() }

// TestNews: a page hears of each cycle that has come, and nothing of what is in it; at times, that it is heard. The clock is the test's. It ends with the page and after ten minutes, so many are told at once, so many of one person, and nobody who is not known.
func TestNews(t *testing.T) {
	t.Parallel()
	from := &telling{still: still{"": town(t)}}
	a := answerer(from, usual())
	ticks, stopped := make(chan time.Time), make(chan struct{}, watching)
	a.ticking = func(every time.Duration) (<-chan time.Time, func()) {
		if every != newsEvery {
			t.Errorf("it looks every %s", every)
		}
		return ticks, func() { stopped <- struct{}{} }
	}
	s := httptest.NewServer(a.Handler())
	defer s.Close()
	guard, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	open := func(ctx context.Context, who string) *http.Response {
		t.Helper()
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL+"/events", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+who)
		w, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = w.Body.Close() })
		return w
	}
	if w := open(guard, "nobody"); w.StatusCode != http.StatusUnauthorized {
		t.Errorf("a stranger: %d", w.StatusCode)
	}
	page, leave := context.WithCancel(guard)
	w := open(page, "ruth")
	if w.StatusCode != http.StatusOK || w.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("%d %v", w.StatusCode, w.Header)
	}
	lines := bufio.NewScanner(w.Body)
	hear := func(want string) {
		t.Helper()
		for lines.Scan() {
			if line := lines.Text(); line != "" {
				if line != want {
					t.Fatalf("it hears %q, want %q", line, want)
				}
				return
			}
		}
		t.Fatalf("it ends, instead of %q: %v", want, lines.Err())
	}
	hear("retry: 5000")
	from.came.Add(3)
	ticks <- time.Time{}
	hear("event: cycle")
	hear("data:")
	for range stillNews - 1 { // nothing has come: it is told at the fifth look that it is heard
		ticks <- time.Time{}
	}
	hear(":")
	from.came.Add(1)
	ticks <- time.Time{}
	hear("event: cycle")
	hear("data:")

	// One person's pages are so many; another one's are told.
	var more []*http.Response
	for range ofOneWatching - 1 {
		if w := open(guard, "ruth"); w.StatusCode != http.StatusOK {
			t.Fatalf("another page: %d", w.StatusCode)
		} else {
			more = append(more, w)
		}
	}
	if w := open(guard, "ruth"); w.StatusCode != http.StatusTooManyRequests || w.Header.Get("Retry-After") != "30" {
		t.Errorf("one page too many: %d %v", w.StatusCode, w.Header)
	}
	if w := open(guard, "ada"); w.StatusCode != http.StatusOK {
		t.Errorf("another person: %d", w.StatusCode)
	}
	leave()
	wait := func() {
		t.Helper()
		select {
		case <-stopped:
		case <-guard.Done():
			t.Fatal("it does not end with its page")
		}
	}
	wait()
	for _, w := range more[1:] {
		_ = w.Body.Close()
		wait()
	}
	// Two are left, and both end when their time is over.
	for range 2 * watchedFor {
		select {
		case ticks <- time.Time{}:
		case <-guard.Done():
			t.Fatal("it does not look")
		}
	}
	wait()
	wait()
}

// TestNoNews: where nobody can say that a cycle has come, browsers are told not to ask again, and pages have no script.
func TestNoNews(t *testing.T) {
	t.Parallel()
	h := answerer(still{"": town(t)}, usual()).Handler()
	if w := get(t, h, "ruth", "/events"); w.Code != http.StatusNoContent {
		t.Errorf("%d", w.Code)
	}
	if w := get(t, h, "ruth", "/?namespace=red"); strings.Contains(w.Body.String(), "<script") {
		t.Error("the page asks for news")
	}
	h = answerer(&telling{still: still{"": town(t)}}, usual()).Handler()
	for path, live := range map[string]bool{"/?namespace=red": true, "/job/red/redbig": true, "/job/red/redbig?inLine=true": false, "/job/red/nothing": false} { // order: each on its own
		if w := get(t, h, "ruth", path); strings.Contains(w.Body.String(), `<script src="/live.js" defer></script>`) != live {
			t.Errorf("%s: %s", path, w.Body)
		}
	}
	if w := get(t, h, "", "/live.js"); w.Code != http.StatusOK || !strings.Contains(w.Header().Get("Content-Type"), "javascript") {
		t.Errorf("%d %v", w.Code, w.Header())
	}
}
