package ui

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strings"
	"time"

	"github.com/go-logr/logr"
	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/muster-scheduler/muster/api/kai/keys"
	"github.com/muster-scheduler/muster/internal/app/gate"
	"github.com/muster-scheduler/muster/internal/app/review"
	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/journal"
	"github.com/muster-scheduler/muster/internal/monitoring/judge"
	"github.com/muster-scheduler/muster/internal/see"
)

// maxName is the longest name that is looked for.
const maxName = 253 + len("job.example.com/") + 64

// Cycles are what is answered from: a Following, or a look at the cluster.
type Cycles interface {
	// Names lists the shards.
	Names() []string
	// Look returns the latest cycle of one and what is to be known of it besides, as Following.Look does.
	Look(ctx context.Context, shard string) (c *see.Cycle, note string, err error)
}

// Answerer answers. Make one with New.
type Answerer struct {
	cycles Cycles
	review Reviewer
	now    func() time.Time
	door   *line // requests whose sender is being found out, by the address that they come from
	usual  *line // questions, by who asks
	proofs *line // those with the proof that a gang starts at its place

	watchers *line // pages that are told of news
	ticking  func(time.Duration) (ticks <-chan time.Time, stop func())

	log    logr.Logger
	local  bool // whoever asks is the one whose machine this is, if he knows the secret
	secret string

	schedulerNames []string // whose pods are submitted
	shardLabel     string

	known   func(time.Time) *judge.Known // nil: nothing is known of metrics
	reading time.Duration                // for how long a journal is read for a page
	journal *journal.Journal             // nil: none is kept
	outlook func(string) *see.Outlook    // nil: nothing is forecast
}

// New returns what answers from these cycles to those that the reviewer knows. The log is told of defects, in words that nobody who
// asks is told. now is the clock; nil is time.Now.
func New(c Cycles, r Reviewer, log logr.Logger, now func() time.Time) *Answerer {
	if now == nil {
		now = time.Now
	}
	return &Answerer{
		cycles: c, review: r, log: log, now: now, shardLabel: keys.NodePoolLabel, reading: forTimeline, door: newLine(atDoor, doorMost, doorMost/4, 2*time.Second),
		usual: newLine(atOnce, inLineMost, ofOneCaller, 2*time.Second), proofs: newLine(1, inLineMost/4, ofOneCaller/4, 10*time.Second),
		watchers: newLine(watching, watching, ofOneWatching, 30*time.Second), ticking: ticking,
	}
}

// API is the path below which JSON is served.
const API = "/apis/" + see.APIVersion

// Refused is the answer to a question that has none. Field names are stable.
type Refused struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"` // Refusal
	// Code is the HTTP status.
	Code    int    `json:"code"`
	Message string `json:"message"`
	// Object, Field and Rule say what of the question is wrong, if it is the question.
	Object string `json:"object,omitempty"`
	Field  string `json:"field,omitempty"`
	Rule   string `json:"rule,omitempty"`
	// RetryAfterSeconds is when to ask again, 0 for never the same.
	RetryAfterSeconds int `json:"retryAfterSeconds,omitempty"`
}

// List holds the lists of all shards.
type List struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"` // List
	Items      []any  `json:"items"`
}

// refusal is what to answer to an error.
func refusal(err error) *Refused {
	r := &Refused{APIVersion: see.APIVersion, Kind: "Refusal", Code: http.StatusInternalServerError, Message: err.Error()}
	var full *busy
	var wrong *see.Refusal
	switch {
	case errors.As(err, &full):
		r.Code, r.RetryAfterSeconds = http.StatusTooManyRequests, int(math.Ceil(full.after.Seconds()))
	case errors.As(err, &wrong):
		r.Code, r.Object, r.Field, r.Rule = http.StatusBadRequest, wrong.Object, wrong.Field, wrong.Rule
		if wrong.Missing {
			r.Code = http.StatusNotFound
		}
	case errors.Is(err, review.ErrWho), errors.Is(err, review.ErrMayNot):
		r.Code = review.Status(err)
	case errors.Is(err, ErrNoJournal):
		r.Code = http.StatusNotFound
	case errors.Is(err, ErrNoCycle):
		r.Code, r.RetryAfterSeconds = http.StatusServiceUnavailable, 2
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		r.Code, r.RetryAfterSeconds, r.Message = http.StatusServiceUnavailable, 10, "the answer took too long"
	case errors.Is(err, errReview):
		r.Code, r.RetryAfterSeconds, r.Message = http.StatusServiceUnavailable, 2, errReview.Error()
	case errors.Is(err, ErrUndecided):
		r.Code, r.Message = http.StatusServiceUnavailable, ErrUndecided.Error()
	default: // names of anybody may be in it
		r.Message = "an answer could not be worked out, which is a defect: the log says why"
	}
	return r
}

// refusal is what to answer to an error. A defect is logged, and told to the one alone whose machine it is.
func (a *Answerer) refusal(err error) *Refused {
	no := refusal(err)
	if no.Code == http.StatusInternalServerError {
		a.log.Error(err, "a question cannot be answered: a defect")
		if a.local {
			no.Message = err.Error()
		}
	}
	return no
}

// errReview says that the API server could not be asked about rights.
var errReview = errors.New("the API server could not be asked who you are and what you may")

// Handler serves JSON below API, and pages for people elsewhere.
func (a *Answerer) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+API+"/gangs", a.json(a.gangs))
	mux.HandleFunc("GET "+API+"/namespaces/{namespace}/gangs/{name...}", a.json(a.gang))
	mux.HandleFunc("GET "+API+"/queues", a.json(a.queues))
	mux.HandleFunc("GET "+API+"/nodes", a.json(a.nodes))
	mux.HandleFunc("GET "+API+"/decisions", a.json(a.decisions))
	mux.HandleFunc("GET "+API+"/cycles/{number}", a.json(a.cycle))
	mux.HandleFunc("GET "+API+"/ledger", a.json(a.ledger))
	mux.HandleFunc("GET "+API+"/outlook", a.json(a.outlooks))
	mux.HandleFunc("GET "+API+"/alerts", a.json(a.alerts))
	mux.HandleFunc("POST "+API+"/what-if", func(w http.ResponseWriter, r *http.Request) {
		bounded(w, r, maxBody+1)
		a.json(a.simulate)(w, r)
	})
	a.pages(mux)
	var all http.Handler
	if a.local {
		all = a.guarded(mux)
	} else {
		all = signedIn(mux)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Cache-Control", "no-store")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Content-Security-Policy", "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'")
		all.ServeHTTP(w, r)
	})
}

// question is one question, and who asks; its context says until when.
type question struct {
	*http.Request
	viewer *viewer
}

// caller finds out whose a request is, with others that are at the door.
func (a *Answerer) caller(ctx context.Context, r *http.Request) (authenticationv1.UserInfo, error) {
	in, err := a.door.enter(ctx, gate.Peer(r.RemoteAddr)) // tokens without end are not the API server's trouble
	if err != nil {
		return authenticationv1.UserInfo{}, err
	}
	user, err := a.review.Caller(r)
	in()
	switch {
	case errors.Is(err, review.ErrWho):
		return user, err
	case err != nil:
		return user, fmt.Errorf("%w: %w", errReview, err)
	}
	gate.Proves(r)
	return user, nil
}

// ask finds out whose a request is and waits for its turn. The context of the question ends by itself.
func (a *Answerer) ask(r *http.Request) (*question, func(), error) {
	short, end := context.WithTimeout(r.Context(), forAnswer)
	defer end()
	user, err := a.caller(short, r)
	if err != nil {
		return nil, nil, err
	}
	l, within := a.usual, forAnswer
	if r.URL.Query().Get("inLine") == "true" || r.Method == http.MethodPost || strings.Contains(r.URL.Path, "/cycle") {
		l, within = a.proofs, forProof
	}
	ctx, cancel := context.WithTimeout(r.Context(), within)
	leave, err := l.enter(ctx, user.Username)
	if err != nil {
		cancel()
		return nil, nil, err
	}
	q := &question{Request: r.WithContext(ctx), viewer: &viewer{ctx: ctx, user: user, review: a.review, known: map[string]error{}}}
	return q, func() { leave(); cancel() }, nil
}

// answer asks one of the functions below, and lets nothing out if a right could not be asked about.
func (a *Answerer) answer(r *http.Request, what func(*question) (any, error)) (any, error) {
	q, leave, err := a.ask(r)
	if err != nil {
		return nil, err
	}
	defer leave()
	out, err := what(q)
	if q.viewer.broken != nil {
		return nil, fmt.Errorf("%w: %w", errReview, q.viewer.broken)
	}
	return out, err
}

// json serves what a function answers.
func (a *Answerer) json(what func(*question) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		out, err := a.answer(r, what)
		code := http.StatusOK
		if err != nil {
			no := a.refusal(err)
			out, code = no, no.Code
			headers(w, no)
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		_ = json.NewEncoder(w).Encode(out) // who has gone is not told
	}
}

// headers are those of a refusal.
func headers(w http.ResponseWriter, no *Refused) {
	if no.RetryAfterSeconds > 0 {
		w.Header().Set("Retry-After", fmt.Sprint(no.RetryAfterSeconds))
	}
	if no.Code == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", "Bearer")
	}
}

// shards are those that a question is about.
func (a *Answerer) shards(q *question) []string {
	if q.URL.Query().Has("shard") {
		return []string{q.FormValue("shard")}
	}
	return a.cycles.Names()
}

// look is the latest cycle of a shard, and what completes what is said of it.
func (a *Answerer) look(ctx context.Context, shard string) (*see.Cycle, func(*see.Origin), error) {
	c, note, err := a.cycles.Look(ctx, shard)
	if err != nil {
		return nil, nil, err
	}
	return c, func(o *see.Origin) {
		o.Aged(a.now())
		o.Shard = shard
		o.Note = strings.Join(strings.FieldsFunc(o.Note+"\n"+note, func(r rune) bool { return r == '\n' }), "; ")
	}, nil
}

// namespace is the one that a question names, of which the viewer may read the gangs; "" for all, which takes the right for all.
func namespace(q *question, name string) (string, error) {
	if name != "" {
		if wrong := validation.IsDNS1123Label(name); len(wrong) > 0 {
			return "", &see.Refusal{Field: "namespace", Rule: "is no namespace's name: " + wrong[0]}
		}
	}
	return name, q.viewer.gangs("kai", name)
}

// gangs lists gangs with their words: ?namespace=, none for all; ?shard=.
func (a *Answerer) gangs(q *question) (any, error) {
	ns, err := namespace(q, q.FormValue("namespace"))
	if err != nil {
		return nil, err
	}
	return a.each(q, func(c *see.Cycle, complete func(*see.Origin)) (any, error) {
		until := a.now().Add(forAnswer / 3)
		scope := c.Scope(q.viewer.may)
		l, err := see.Gangs(q.Context(), c, scope, func(k cluster.Key) bool {
			return (ns == "" || k.Namespace == ns) && q.viewer.gang(k)
		}, func() bool { return a.now().Before(until) })
		if err == nil {
			complete(&l.Cycle)
			if o := a.foretold(l.Cycle.Shard); o != nil {
				l.Foretell(o, scope)
			}
		}
		return l, err
	})
}

// queues is the ladder: all queues for those who may list queues, else those that gangs of ?namespace= name, and what is above these.
func (a *Answerer) queues(q *question) (any, error) {
	all := q.viewer.list(groupWork, "queues")
	if all != nil && !errors.Is(all, review.ErrMayNot) {
		return nil, fmt.Errorf("%w: %w", errReview, all)
	}
	ns := q.FormValue("namespace")
	if all != nil {
		if ns == "" {
			return nil, fmt.Errorf("%w; for the queues of your own gangs name their namespace", all)
		}
		var err error
		if ns, err = namespace(q, ns); err != nil {
			return nil, err
		}
	}
	return a.each(q, func(c *see.Cycle, complete func(*see.Origin)) (any, error) {
		l, err := see.Queues(q.Context(), c)
		if err != nil {
			return nil, err
		}
		complete(&l.Cycle)
		if all != nil {
			l = l.Of(c, func(k cluster.Key) bool { return k.Namespace == ns && q.viewer.gang(k) })
		}
		return l, nil
	})
}

// each asks of every shard. The list has a Refusal for one that gives no answer, if another does.
func (a *Answerer) each(q *question, ask func(*see.Cycle, func(*see.Origin)) (any, error)) (any, error) {
	out := &List{APIVersion: see.APIVersion, Kind: "List", Items: []any{}}
	shards := a.shards(q)
	if len(shards) == 0 {
		return nil, ErrNoCycle
	}
	var none error
	failed := 0
	for _, shard := range shards {
		var one any
		c, complete, err := a.look(q.Context(), shard)
		if err == nil {
			one, err = ask(c, complete)
		}
		if err != nil { // what the other shards have to say does not depend on it
			none = cmp.Or(none, err)
			failed++
			no := a.refusal(err)
			no.Object = fmt.Sprintf("shard %q", shard)
			one = no
		}
		out.Items = append(out.Items, one)
	}
	if failed == len(shards) {
		return nil, none
	}
	return out, nil
}

// gang explains one gang, by a name as see.Cycle.Find takes it: ?inLine=true with the proof that remedies start it at its place,
// ?timeline=true with what became of it since ?since=.
func (a *Answerer) gang(q *question) (any, error) {
	return a.explain(q, q.FormValue("timeline") == "true")
}

func (a *Answerer) explain(q *question, timeline bool) (*see.Explanation, error) {
	ns, name := q.PathValue("namespace"), q.PathValue("name")
	if ns == "" {
		return nil, &see.Refusal{Field: "namespace", Rule: "is missing"}
	}
	if name == "" || len(name) > maxName {
		return nil, &see.Refusal{Field: "name", Rule: fmt.Sprintf("must have 1 to %d characters", maxName)}
	}
	ns, err := namespace(q, ns)
	if err != nil {
		return nil, err // before anything is looked for: whether a gang is there is told to those who may read it
	}
	var none, away error // not there, and a shard in which it might be
	shards := a.shards(q)
	for _, shard := range shards {
		c, complete, err := a.look(q.Context(), shard)
		if err != nil {
			away = cmp.Or(away, err)
			continue
		}
		key, err := c.Find(q.Context(), ns, name)
		var wrong *see.Refusal
		if errors.As(err, &wrong) && wrong.Missing {
			none = cmp.Or(none, err)
			continue
		}
		if err != nil {
			return nil, err
		}
		if err := q.viewer.gangs(key.Face, ns); err != nil {
			return nil, err
		}
		ask := see.Explain
		if q.FormValue("inLine") == "true" {
			ask = see.InLine
		}
		e, err := ask(q.Context(), c, key)
		if err != nil {
			return nil, err
		}
		s := c.Scope(q.viewer.may)
		if e, err = e.Within(s); err != nil {
			return nil, err
		}
		a.expect(e, shard, key, s)
		if timeline && a.journal != nil {
			if e.Timeline, err = a.timeline(q, c, key, shard); err != nil {
				return nil, err
			}
		}
		complete(&e.Cycle)
		return e, nil
	}
	return nil, cmp.Or(away, none, error(ErrNoCycle))
}
