package ui

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/muster-scheduler/muster/internal/app/review"
	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/explain"
	"github.com/muster-scheduler/muster/internal/journal"
	"github.com/muster-scheduler/muster/internal/monitoring/judge"
	"github.com/muster-scheduler/muster/internal/see"
)

//go:embed pages
var files embed.FS

// cookieName is that of the cookie with the viewer's token: a browser sends it to this host alone, by TLS alone, and shows it to no script.
const cookieName = "__Host-muster-token"

// maxCookie is the longest token that fits a cookie.
const maxCookie = 3800

// sessionFor is how long a browser keeps it; what it is good for is the API server's to say.
const sessionFor = 12 * time.Hour

var views = template.Must(template.New("").Funcs(template.FuncMap{
	"stamp":   func(t time.Time) string { return t.UTC().Format(time.RFC3339) },
	"clock":   func(t time.Time) string { return t.UTC().Format("15:04:05 UTC") },
	"day":     func(t time.Time) string { return t.UTC().Format("Jan 2 15:04:05 UTC") },
	"seconds": func(s float64) string { return age(int64(s)) },
	"age":     age,
	"class":   func(w any) string { return strings.ReplaceAll(fmt.Sprint(w), " ", "-") },
	"state":   func(s judge.State) string { return strings.ReplaceAll(string(s), " ", "-") },
	"meaning": func(w explain.Word) string { return meanings[w] },
	"job": func(namespace, name string) string {
		return "/job/" + url.PathEscape(namespace) + "/" + url.PathEscape(name)
	},
	"total": func(p explain.Pods) int { return p.Running + p.Pending + p.Gated },
	"name":  func(k cluster.Key) string { return k.String() },
	"gpus":  func(milli int64) string { return cluster.BaseDims().FormatOne(cluster.GPU, milli) },
	"gpuOf": func(r cluster.Resources) string { return cluster.BaseDims().FormatOne(cluster.GPU, r.At(cluster.GPU)) },
	"hours": func(h float64) string { return fmt.Sprintf("%.1f", h) },
	"lines": func(list []string) string { return strings.Join(list, "\n") },
	"spark": spark, "bar": barOf, "moves": moves, "said": said, "urgent": urgent, "count": count,
	"foretold": func(list []see.GangLine) bool {
		return slices.ContainsFunc(list, func(g see.GangLine) bool { return g.Start != nil })
	},
	"gap":   func(m *journal.Missing) string { return m.Text() },
	"inc":   func(n int) int { return n + 1 },
	"depth": func(n int) string { return fmt.Sprintf("d%d", min(n, 4)) },
	"amount": func(m map[string]string, resource, none string) string {
		if x, ok := m[resource]; ok && x != "unlimited" {
			return x
		} else if ok {
			return "–"
		}
		return none
	},
}).ParseFS(files, "pages/pages.html"))

// meanings are what the words mean.
var meanings = map[explain.Word]string{
	explain.Starting: "The next run of the scheduler gives it room, or room that it was given is being released.",
	explain.InLine:   "By itself it could start; gangs that are served before it take what it needs.",
	explain.Blocked:  "It could not start even were it next. It may when others end, or when somebody changes something.",
	explain.Never:    "It would not start in an empty cluster either: somebody has to change something.",
}

// age prints seconds as people say them: 45 s, 12 min, 5 h, 3 d.
func age(seconds int64) string {
	switch {
	case seconds < 120:
		return fmt.Sprintf("%d s", seconds)
	case seconds < 7200:
		return fmt.Sprintf("%d min", seconds/60)
	case seconds < 48*3600:
		return fmt.Sprintf("%d h", seconds/3600)
	}
	return fmt.Sprintf("%d d", seconds/86400)
}

// page is what every page shows.
type page struct {
	Title, Namespace, Name, Resource, Back string
	Nav                                    []link
	Leave, SignIn, Proven, Kept            bool
	Live                                   bool // it renews itself
	No                                     *Refused
	Job                                    *see.Explanation
	Lists                                  []*see.GangList
	Ladders                                []*see.QueueList
	Combs                                  []*comb
	Hexagon                                string
	Away                                   []string // shards that give no answer, and why
	Decided                                *DecisionList
	Replay                                 *Replay
	Step                                   int // of it; 0: all
	Ledger                                 *Ledger
	Alerts                                 *AlertList
	Sim                                    *Proposal
	Outcome                                *see.Consequences
	Since                                  string
}

type link struct {
	Path, Text string
	Here       bool
}

// pages serves the pages.
func (a *Answerer) pages(mux *http.ServeMux) {
	for _, name := range []string{"style.css", "live.js", "icon.svg"} {
		mux.HandleFunc("GET /"+name, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Cache-Control", "max-age=300")
			http.ServeFileFS(w, r, files, "pages/"+name)
		})
	}
	mux.HandleFunc("GET /events", a.news)
	mux.HandleFunc("GET /{$}", a.show("gangs", func(q *question, p *page) error {
		if p.Title = "Jobs"; p.Namespace != "" {
			p.Title = "Jobs of namespace " + p.Namespace
		}
		out, err := a.gangs(q)
		if err != nil {
			return err
		}
		p.Lists = of[*see.GangList](out, p)
		return nil
	}))
	mux.HandleFunc("GET /job/{namespace}/{name...}", a.show("job", func(q *question, p *page) (err error) {
		p.Namespace, p.Name, p.Title = q.PathValue("namespace"), q.PathValue("name"), q.PathValue("name")
		p.Since = q.FormValue("since")
		p.Job, err = a.explain(q, true)
		p.Proven = q.FormValue("inLine") == "true"
		return err
	}))
	mux.HandleFunc("GET /queues", a.show("queues", func(q *question, p *page) error {
		p.Title = "Queues"
		out, err := a.queues(q)
		if err != nil {
			return err
		}
		p.Ladders = of[*see.QueueList](out, p)
		return nil
	}))
	mux.HandleFunc("GET /gpus", a.show("nodes", func(q *question, p *page) error {
		p.Title, p.Hexagon = "GPUs", hexagon
		out, err := a.nodes(q)
		if err != nil {
			return err
		}
		for _, l := range of[*see.NodeList](out, p) {
			p.Combs = append(p.Combs, draw(l, pageOf(q)))
		}
		return nil
	}))
	a.recordPages(mux)
	if a.local {
		return
	}
	mux.HandleFunc("POST /login", func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, 32<<10)
		token := strings.TrimSpace(r.PostFormValue("token"))
		if token == "" || len(token) > maxCookie {
			a.refuse(w, r, &see.Refusal{Field: "token", Rule: fmt.Sprintf("must have 1 to %d characters; longer ones come through a proxy that sends them as the header Authorization", maxCookie)})
			return
		}
		http.SetCookie(w, &http.Cookie{Name: cookieName, Value: token, Path: "/", MaxAge: int(sessionFor.Seconds()), Secure: true, HttpOnly: true, SameSite: http.SameSiteLaxMode})
		http.Redirect(w, r, within(r.PostFormValue("back")), http.StatusSeeOther)
	})
	mux.HandleFunc("POST /logout", func(w http.ResponseWriter, r *http.Request) {
		http.SetCookie(w, &http.Cookie{Name: cookieName, Path: "/", MaxAge: -1, Secure: true, HttpOnly: true, SameSite: http.SameSiteLaxMode})
		http.Redirect(w, r, "/", http.StatusSeeOther)
	})
}

// of are the lists of all shards; which give none the page says.
func of[L any](out any, p *page) (lists []L) {
	for _, one := range out.(*List).Items {
		switch one := one.(type) {
		case L:
			lists = append(lists, one)
		case *Refused:
			p.Away = append(p.Away, one.Object+": "+one.Message)
		}
	}
	return lists
}

// within is a path of this site, or its root for what is none.
func within(back string) string {
	u, err := url.Parse(back)
	if err != nil || u.Scheme != "" || u.Host != "" || u.User != nil || !strings.HasPrefix(back, "/") || strings.HasPrefix(back, "//") || strings.ContainsAny(back, "\\\r\n") {
		return "/"
	}
	return back
}

// signedIn has the token of the cookie count where a request brings none in its header, and refuses what another site's page has a browser send.
func signedIn(h http.Handler) http.Handler {
	return http.NewCrossOriginProtection().Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c, err := r.Cookie(cookieName); err == nil && r.Header.Get("Authorization") == "" {
			r.Header.Set("Authorization", "Bearer "+c.Value)
		}
		h.ServeHTTP(w, r)
	}))
}

// begin is a page before anything is known.
func (a *Answerer) begin(r *http.Request) *page {
	_, cookie := r.Cookie(cookieName)
	query := r.URL.Query() // a body is read once it is known whose it is
	p := &page{Namespace: query.Get("namespace"), Name: query.Get("name"), Resource: query.Get("resource"), Leave: cookie == nil && !a.local, Kept: a.journal != nil}
	if p.Resource == "" {
		p.Resource = "gpu"
	}
	keep := ""
	if p.Namespace != "" {
		keep = "?namespace=" + url.QueryEscape(p.Namespace)
	}
	for _, l := range []link{{Path: "/", Text: "Jobs"}, {Path: "/queues", Text: "Queues"}, {Path: "/gpus", Text: "GPUs"}, {Path: "/decisions", Text: "Decisions"}, {Path: "/ledger", Text: "Ledger"}, {Path: "/alerts", Text: "Alerts"}, {Path: "/what-if", Text: "What if"}} {
		l.Here = l.Path == r.URL.Path
		l.Path += keep
		p.Nav = append(p.Nav, l)
	}
	return p
}

// show serves a page that a function fills.
func (a *Answerer) show(view string, fill func(*question, *page) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		p := a.begin(r)
		if p.Namespace != "" && p.Name != "" && r.URL.Path == "/" { // the form's
			http.Redirect(w, r, "/job/"+url.PathEscape(p.Namespace)+"/"+url.PathEscape(p.Name), http.StatusSeeOther)
			return
		}
		if _, err := a.answer(r, func(q *question) (any, error) { return nil, fill(q, p) }); err != nil {
			a.refuse(w, r, err)
			return
		}
		// A cycle of the past stays as it is, and what takes long is done when somebody asks.
		_, tells := a.cycles.(teller)
		p.Live = tells && r.Method == http.MethodGet && !p.Proven && view != "cycle" && view != "whatif"
		a.draw(w, http.StatusOK, view, p)
	}
}

// refuse shows why there is no page.
func (a *Answerer) refuse(w http.ResponseWriter, r *http.Request, err error) {
	p := a.begin(r)
	p.No = a.refusal(err)
	p.Title, p.SignIn = http.StatusText(p.No.Code), errors.Is(err, review.ErrWho)
	if p.Back = r.URL.RequestURI(); r.Method != http.MethodGet {
		p.Back = "/"
	}
	headers(w, p.No)
	a.draw(w, p.No.Code, "refusal", p)
}

// draw writes a page, whole or not at all.
func (a *Answerer) draw(w http.ResponseWriter, code int, view string, p *page) {
	var b bytes.Buffer
	if err := views.ExecuteTemplate(&b, view, p); err != nil {
		http.Error(w, "the page cannot be drawn: "+err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(code)
	_, _ = w.Write(b.Bytes()) // who has gone is not told
}
