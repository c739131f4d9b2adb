package ui

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/muster-scheduler/muster/internal/see"
)

// recordPages serves the pages of the journal and of what-ifs.
func (a *Answerer) recordPages(mux *http.ServeMux) {
	mux.HandleFunc("GET /decisions", a.show("decisions", func(q *question, p *page) (err error) {
		p.Title, p.Since = "Decisions", q.FormValue("since")
		p.Decided, err = a.decided(q)
		return err
	}))
	mux.HandleFunc("GET /cycle/{number}", a.show("cycle", func(q *question, p *page) (err error) {
		p.Title = "Cycle " + q.PathValue("number")
		if p.Replay, err = a.replayed(q); err != nil {
			return err
		}
		return p.step(q.FormValue("step"))
	}))
	mux.HandleFunc("GET /ledger", a.show("ledger", func(q *question, p *page) (err error) {
		p.Title, p.Since = "Ledger", q.FormValue("since")
		p.Ledger, err = a.account(q)
		return err
	}))
	mux.HandleFunc("GET /alerts", a.show("alerts", func(q *question, p *page) (err error) {
		p.Title = "Alerts"
		p.Alerts, err = a.judged(q)
		return err
	}))
	mux.HandleFunc("GET /what-if", a.show("whatif", func(q *question, p *page) error {
		p.Title, p.Sim = "What if", &Proposal{}
		return q.viewer.review.Resource(q.Context(), q.viewer.user, verbSimulate, groupWork, "queues", "")
	}))
	mux.HandleFunc("POST /what-if", func(w http.ResponseWriter, r *http.Request) {
		bounded(w, r, maxForm)
		a.show("whatif", func(q *question, p *page) (err error) {
			p.Title = "What if"
			if p.Sim, err = readForm(q.Request); err != nil {
				return err
			}
			p.Outcome, err = a.simulated(q, p.Sim)
			return err
		})(w, r)
	})
}

// step has the page show one step of a cycle, from 1 on; "" for all.
func (p *page) step(text string) error {
	if text == "" {
		return nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > len(p.Replay.Steps) {
		return &see.Refusal{Field: "step", Rule: fmt.Sprintf("is %.40q; it must be 1 to %d", text, len(p.Replay.Steps))}
	}
	p.Step, p.Title = n, fmt.Sprintf("%s, step %d of %d", p.Title, n, len(p.Replay.Steps))
	return nil
}

// Before is the step before the one that is shown; 0 for none.
func (p *page) Before() int { return max(p.Step-1, 0) }

// After is the step after the one that is shown; 0 for none.
func (p *page) After() int {
	if p.Step >= len(p.Replay.Steps) {
		return 0
	}
	return p.Step + 1
}

// readForm reads the form: a line for each.
func readForm(r *http.Request) (*Proposal, error) {
	if err := r.ParseForm(); err != nil {
		return nil, &see.Refusal{Field: "form", Rule: fmt.Sprintf("cannot be read, or is longer than %d bytes: what is longer the command or the API takes", maxForm)}
	}
	lines := func(name string) (out []string) {
		for _, l := range strings.Split(r.PostFormValue(name), "\n") {
			if l = strings.TrimSpace(l); l != "" {
				out = append(out, l)
			}
		}
		return out
	}
	number := func(name string) (int, error) {
		text := strings.TrimSpace(r.PostFormValue(name))
		if text == "" {
			return 0, nil
		}
		n, err := strconv.Atoi(text)
		if err != nil {
			return 0, wrongNumber(name, text)
		}
		return n, nil
	}
	s := &Proposal{Shard: r.PostFormValue("shard"), Manifests: r.PostFormValue("manifests"), Namespace: strings.TrimSpace(r.PostFormValue("namespace"))}
	s.Quota, s.Limit, s.Weight, s.Priority, s.Cordon, s.Delete, s.Like = lines("quota"), lines("limit"), lines("weight"), lines("priority"), lines("cordon"), lines("delete"), strings.TrimSpace(r.PostFormValue("like"))
	var err error
	if s.AddNodes, err = number("addNodes"); err == nil {
		s.Cycles, err = number("cycles")
	}
	return s, err
}

// sparkWidth and sparkHeight are the size of a drawn account.
const sparkWidth, sparkHeight = 200, 32

// spark is where the line of a queue's use or of what it is owed goes.
func spark(points []LedgerPoint, owed bool) string {
	if len(points) < 2 {
		return ""
	}
	most := 1.0
	for _, p := range points {
		most = max(most, p.Used, p.Owed)
	}
	first, span := points[0].At, points[len(points)-1].At.Sub(points[0].At).Seconds()
	var b strings.Builder
	for _, p := range points {
		y := p.Used
		if owed {
			y = p.Owed
		}
		fmt.Fprintf(&b, "%.1f,%.1f ", sparkWidth*p.At.Sub(first).Seconds()/max(span, 1), sparkHeight-1-(sparkHeight-2)*y/most)
	}
	return strings.TrimSpace(b.String())
}
