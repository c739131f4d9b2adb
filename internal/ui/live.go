package ui

import (
	"context"
	"net/http"
	"time"
)

// Bounds of pages that renew themselves.
const (
	// watching is how many pages are told of news at a time, ofOneWatching how many of one person's.
	watching, ofOneWatching = 256, 16
	// newsEvery is the time between two looks whether a cycle has come; each stillNews'th one a page is told at least that it is heard.
	newsEvery, stillNews = 2 * time.Second, 5
	// watchedFor is how many looks a page is told of before it has to ask anew, and to show again who it is.
	watchedFor = int(10 * time.Minute / newsEvery)
	// newsWithin is how long one line may take to be taken.
	newsWithin = 10 * time.Second
)

// teller is what pages can be told the news of: its answer is another one when a cycle has come.
type teller interface{ Came() uint64 }

// Came is how many cycles of all shards have come since the process began, those of shards that are no more left out.
func (f *Following) Came() (n uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, s := range f.shards { // order: a sum
		n += s.came.Load()
	}
	return n
}

// ticking has a channel tick, until stop.
func ticking(every time.Duration) (ticks <-chan time.Time, stop func()) {
	t := time.NewTicker(every)
	return t.C, t.Stop
}

// news tells a page, by server-sent events, each time that a cycle has come, and nothing of what is in it: it asks again then, as its viewer. It ends with the page,
// and after ten minutes, when the page asks for it anew. Where nobody can say that a cycle has come the answer is 204, after which browsers do not ask again.
func (a *Answerer) news(w http.ResponseWriter, r *http.Request) {
	from, ok := a.cycles.(teller)
	if !ok {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	no := func(err error) {
		said := a.refusal(err)
		headers(w, said)
		http.Error(w, said.Message, said.Code)
	}
	short, cancel := context.WithTimeout(r.Context(), forAnswer)
	defer cancel()
	user, err := a.caller(short, r)
	if err != nil {
		no(err)
		return
	}
	leave, err := a.watchers.enter(short, user.Username)
	if err != nil {
		no(err)
		return
	}
	defer leave()
	w.Header().Set("Content-Type", "text/event-stream")
	out := http.NewResponseController(w)
	tell := func(line string) bool {
		_ = out.SetWriteDeadline(time.Now().Add(newsWithin)) // where that cannot be said, the server's own holds
		_, err := w.Write([]byte(line))
		return err == nil && out.Flush() == nil
	}
	ticks, stop := a.ticking(newsEvery)
	defer stop()
	known := from.Came()
	if !tell("retry: 5000\n\n") {
		return
	}
	for n := 1; n <= watchedFor; n++ {
		select {
		case <-r.Context().Done():
			return
		case <-ticks:
		}
		line := ""
		if came := from.Came(); came != known {
			known, line = came, "event: cycle\ndata:\n\n"
		} else if n%stillNews == 0 {
			line = ":\n\n"
		}
		if line != "" && !tell(line) {
			return
		}
	}
}
