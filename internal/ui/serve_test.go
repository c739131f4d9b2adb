package ui

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	authenticationv1 "k8s.io/api/authentication/v1"

	"github.com/muster-scheduler/muster/internal/app/review"
	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine/builtin"
	"github.com/muster-scheduler/muster/internal/profile"
	"github.com/muster-scheduler/muster/internal/replay"
	"github.com/muster-scheduler/muster/internal/see"
)

// rights are who may what: "USER VERB RESOURCE.GROUP NAMESPACE".
type rights struct {
	have []string
	away bool // of the authorizer
	hold chan struct{}
}

func (r *rights) Caller(req *http.Request) (authenticationv1.UserInfo, error) {
	name, ok := strings.CutPrefix(req.Header.Get("Authorization"), "Bearer ")
	if !ok || name == "nobody" {
		return authenticationv1.UserInfo{}, review.ErrWho
	}
	return authenticationv1.UserInfo{Username: name}, nil
}

func (r *rights) Resource(ctx context.Context, user authenticationv1.UserInfo, verb, group, resource, namespace string) error {
	if r.hold != nil {
		select {
		case <-r.hold:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if r.away {
		return fmt.Errorf("no route to host")
	}
	right := strings.TrimSpace(fmt.Sprintf("%s %s %s.%s %s", user.Username, verb, resource, group, namespace))
	if !slices.Contains(r.have, right) {
		return fmt.Errorf("%w: %s", review.ErrMayNot, right)
	}
	return nil
}

// usual are the rights of a tenant of red, one of blue, and an admin.
func usual() *rights {
	return &rights{have: []string{
		"ruth get podgroups.scheduling.run.ai red", "bill get podgroups.scheduling.run.ai blue",
		"vera get podgroups.scheduling.run.ai red", "vera get podgroups.scheduling.volcano.sh red",
		"ada get podgroups.scheduling.run.ai", "ada get podgroups.scheduling.volcano.sh", "ada list queues.scheduling.run.ai", "ada list nodes.",
	}}
}

// still are the cycles of shards that stand still.
type still map[string]*see.Cycle

func (s still) Names() []string {
	var out []string
	for name := range s {
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}

func (s still) Look(_ context.Context, shard string) (*see.Cycle, string, error) {
	if s[shard] == nil {
		return nil, "", ErrNoCycle
	}
	return s[shard], "", nil
}

var noon = time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)

// town is a cycle: red and blue share a node, which blue has; red's gang would have to have blue's evicted.
func town(t *testing.T) *see.Cycle {
	t.Helper()
	store := cluster.NewStore(cluster.Options{})
	gpu := func(n int64) []cluster.Quantity { return []cluster.Quantity{{Name: "gpu", Value: n * 1000}} }
	events := []cluster.Event{
		cluster.NodeState{Name: "n", UID: "n", Allocatable: append(gpu(8), cluster.Quantity{Name: "pods", Value: 110})},
		cluster.QueueState{Name: "root", UID: "root", Quota: gpu(8)},
		cluster.QueueState{Name: "reds", UID: "reds", Parent: "root", Quota: gpu(4)},
		cluster.QueueState{Name: "blues", UID: "blues", Parent: "root", Quota: gpu(4)},
	}
	gang := func(face, ns, name, queue string, pods int, phase cluster.Phase, node string) {
		k := cluster.Key{Face: face, Namespace: ns, Name: name}
		events = append(events, cluster.GangState{Key: k, UID: ns + name, Queue: queue, Sets: cluster.FlatTree(int32(pods)), Preemptible: true})
		for i := range pods {
			events = append(events, cluster.PodState{
				UID: fmt.Sprint(ns, name, i), Namespace: ns, Name: fmt.Sprintf("%s-%d", name, i), Gang: k, Ours: true, Phase: phase, NodeName: node, Requests: gpu(1),
			})
		}
	}
	gang("kai", "blue", "bluesecret", "blues", 8, cluster.Running, "n")
	gang("kai", "blue", "pg-bluejob-0409daa7-0381-4310-a815-4b00f0ad07da", "blues", 12, cluster.Pending, "")
	gang("kai", "red", "pg-redjob-1409daa7-0381-4310-a815-4b00f0ad07da", "reds", 4, cluster.Pending, "")
	gang("kai", "red", "redbig", "reds", 9, cluster.Pending, "")
	gang("volcano", "red", "redvc", "reds", 2, cluster.Pending, "")
	store.Apply(events...)
	c := see.NewCycle(store.Snapshot(cluster.InstantOf(noon)), profile.BuiltIn(), builtin.Registry())
	c.Works = map[cluster.Key]see.Work{{Face: "kai", Namespace: "red", Name: "pg-redjob-1409daa7-0381-4310-a815-4b00f0ad07da"}: {Kind: "Job", Stem: "redjob"}}
	return c
}

func answerer(c Cycles, r Reviewer) *Answerer {
	a := New(c, r, logr.Discard(), func() time.Time { return noon.Add(1500 * time.Millisecond) })
	a.reading = time.Minute // a busy machine is no reason to leave anything out
	return a
}

// get asks as somebody, and returns the answer.
func get(t *testing.T, h http.Handler, who, path string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil)
	if who != "" {
		r.Header.Set("Authorization", "Bearer "+who)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// TestWhoSeesWhat is the matrix: two tenants, one who may read Volcano's gangs too, an admin and strangers, each asking everything, as JSON and as pages. Nobody but the admin finds a name of a namespace that
// is not his, and a refusal names the missing right alone.
func TestWhoSeesWhat(t *testing.T) {
	t.Parallel()
	h := answerer(still{"": town(t)}, usual()).Handler()
	const red, blue = "/namespaces/red/gangs/", "/namespaces/blue/gangs/"
	for _, c := range []struct {
		who, path string
		code      int
		has, not  string // words of the answer, by |
	}{
		{"", "/gangs", 401, "no valid token", ""},
		{"nobody", "/gangs?namespace=red", 401, "no valid token", ""},
		{"ruth", "/gangs", 403, "get podgroups.scheduling.run.ai", "red|blue"},
		{"ruth", "/gangs?namespace=blue", 403, "ruth get podgroups.scheduling.run.ai blue", "secret|bluejob"},
		{"ruth", "/gangs?namespace=red", 200, `"workload":"Job redjob"|redbig|"word":"never"|"ageSeconds":1.5|GangList|see.muster.dev/v1`, "redvc"},
		{"vera", "/gangs?namespace=red", 200, "redvc|redbig", ""},
		{"bill", "/gangs?namespace=blue", 200, "bluesecret|bluejob", "redjob|redbig|redvc"},
		{"ada", "/gangs", 200, "bluesecret|redbig|redvc", ""},
		{"ruth", red + "redjob", 200, `"word":"starting"|Explanation|a gang of queue blues|"evicted":`, "bluesecret|bluejob"},
		{"ruth", red + "Job%20redjob", 200, "Job redjob", ""},
		{"ruth", red + "job/redjob", 200, "Job redjob", ""},
		{"ruth", red + "redbig-3", 200, `"gang":"redbig"`, ""},
		{"ruth", red + "redbig?inLine=true", 200, `"gang":"redbig"`, "bluesecret|bluejob"},
		{"ada", red + "redjob", 200, "bluesecret", ""},
		{"ruth", red + "redvc", 403, "podgroups.scheduling.volcano.sh", ""},
		{"vera", red + "redvc", 200, `"gang":"redvc"`, "bluesecret"},
		{"ruth", blue + "bluesecret", 403, "right is missing", "room|Running"},
		{"ruth", blue + "isnotthere", 403, "right is missing", "no gang"},
		{"ruth", red + "bluesecret", 404, "there is no gang bluesecret in namespace red", ""},
		{"ruth", red + "redbgi", 404, "did you mean redbig?", "bluesecret"},
		{"ruth", red + "pg-", 200, "Job redjob", ""},
		{"ruth", red + "red", 400, "could mean 2 gangs in namespace red", "bluesecret"},
		{"ada", "/queues", 200, `"name":"reds"|"name":"blues"|QueueList`, "hidden"},
		{"ruth", "/queues", 403, "ruth list queues.scheduling.run.ai; for the queues of your own gangs", "blues"},
		{"ruth", "/queues?namespace=blue", 403, "get podgroups", "blues"},
		{"ruth", "/queues?namespace=red", 200, `"name":"root"|"name":"reds"|"hidden":1`, `"name":"blues"`},
		{"ruth", "/gangs?namespace=red&shard=gold", 503, "no cycle", ""},
		{"ruth", "/gangs?namespace=Red%3Cb%3E", 400, `"field":"namespace"`, ""},
		{"ruth", red + strings.Repeat("x", 400), 400, `"field":"name"`, ""},
		{"ruth", "/nodes", 403, "ruth list nodes.", "usedMilli"},
		{"ada", "/nodes", 200, `"name":"n"|"queue":"blues"|"usedMilli":1000|NodeList`, ""},
		{"ada", "/else", 404, "", ""},
	} {
		w := get(t, h, c.who, API+c.path)
		text := w.Body.String()
		if w.Code != c.code {
			t.Errorf("%s %s: %d, want %d\n%s", c.who, c.path, w.Code, c.code, text)
		}
		check(t, c.who+" "+c.path, text, c.has, c.not)
		if w.Code != 404 && !json.Valid(w.Body.Bytes()) {
			t.Errorf("%s %s is no JSON: %s", c.who, c.path, text)
		}
	}
	for _, c := range []struct {
		who, path string
		code      int
		has, not  string
	}{
		{"", "/", 401, `<form method="post" action="/login">|<html lang="en">`, "bluesecret|redbig"},
		{"ruth", "/", 403, "right is missing|<form method=\"get\"", "bluesecret"},
		{"ruth", "/?namespace=red", 200, "Job redjob|/job/red/redbig|never|<caption>|As of <time datetime=\"2026-11-26T12:00:00Z\">12:00:00 UTC</time>, <span class=\"ago\" data-age=\"1.5\">1 s</span> ago|not the scheduler's view", "bluesecret|bluejob"},
		{"ruth", "/?namespace=red&name=redbig", 303, "", ""},
		{"ruth", "/job/red/redbig", 200, `<span class="word never">never</span>|<h2>Why</h2>|<h2>What would change it</h2>|(cluster admin)|Try what holds at its turn|room for`, "bluesecret|bluejob"},
		{"ruth", "/job/red/redjob", 200, "<h1>Job redjob</h1>|starting|a gang of queue blues", "bluesecret|bluejob"},
		{"ruth", "/job/blue/bluesecret", 403, "right is missing", "Running"},
		{"ruth", "/queues?namespace=red", 200, "reds|1 more queues are not yours to see", "blues"},
		{"ada", "/queues", 200, "reds|blues|Fair share", ""},
		{"ruth", "/?namespace=%3Cscript%3Ealert(1)%3C/script%3E", 400, "&lt;script&gt;", "<script"},
		{"ruth", "/job/red/%3Cscript%3Ealert(1)%3C%2Fscript%3E", 404, "&lt;script&gt;", "<script"},
		{"ruth", "/gpus", 403, "ruth list nodes.", `class="comb"`},
		{"ada", "/gpus", 200, `<svg class="comb"|8 of 8 GPUs are held|n: 8 of queue blues|class="q0"|As a table`, ""},
		{"ruth", "/alerts", 403, "ruth list queues.scheduling.run.ai", "Starving"},
		{"ada", "/alerts", 200, "0 of 21 rules are evaluated here|MusterNoLeader", ">quiet<|bluesecret"},
		{"ruth", "/what-if", 403, "ruth simulate queues.scheduling.run.ai", "textarea"},
		{"", "/style.css", 200, "prefers-color-scheme", ""},
	} {
		w := get(t, h, c.who, c.path)
		if w.Code != c.code {
			t.Errorf("%s %s: %d, want %d\n%s", c.who, c.path, w.Code, c.code, w.Body)
		}
		check(t, c.who+" "+c.path, w.Body.String(), c.has, c.not)
		if csp := w.Header().Get("Content-Security-Policy"); !strings.HasPrefix(csp, "default-src 'none'; style-src 'self'") {
			t.Errorf("%s: the policy is %q", c.path, csp)
		}
		if text := w.Body.String(); strings.Contains(text, " style=") || strings.Contains(text, "<script>") || strings.Contains(text, " onclick=") {
			t.Errorf("%s: the policy forbids what the page has", c.path)
		}
	}
}

func check(t *testing.T, what, text, has, not string) {
	t.Helper()
	for _, word := range strings.Split(has, "|") {
		if !strings.Contains(text, word) {
			t.Errorf("%s does not say %q:\n%s", what, word, text)
		}
	}
	for _, word := range strings.Split(not, "|") {
		if word != "" && strings.Contains(text, word) {
			t.Errorf("%s says %q:\n%s", what, word, text)
		}
	}
}

// TestNotTheSchedulersView: a cycle on which to decide again comes to other plans says so in every answer.
func TestNotTheSchedulersView(t *testing.T) {
	t.Parallel()
	made := town(t)
	run, err := made.Look(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, own := range []bool{true, false} {
		c := &see.Cycle{Registry: builtin.Registry(), Case: &replay.Case{Profile: profile.BuiltIn(), Image: made.Case.Image, Decided: true}}
		if own {
			c.Case.Plans = run.Plans()
		}
		h := answerer(still{"": c}, usual()).Handler()
		for _, path := range []string{API + "/gangs", API + "/queues", API + "/namespaces/red/gangs/redbig", "/", "/queues", "/job/red/redbig"} {
			w := get(t, h, "ada", path)
			if w.Code != 200 || strings.Contains(w.Body.String(), "not the scheduler") == own {
				t.Errorf("own %t, %s: %d %s", own, path, w.Code, w.Body)
			}
		}
	}
}

// TestOneShardIsAway: a shard whose scheduler tells nothing keeps nobody from what the others tell, and is named; what may be in it is not said to be nowhere.
func TestOneShardIsAway(t *testing.T) {
	t.Parallel()
	h := answerer(still{"": town(t), "gold": nil}, usual()).Handler()
	for path, want := range map[string]string{
		API + "/gangs?namespace=red": `200 "redbig"|"object":"shard \"gold\""|no cycle`, API + "/namespaces/red/gangs/redbig": `200 "redbig"`,
		API + "/namespaces/red/gangs/nothing": "503 no cycle", "/?namespace=red": "200 redbig|shard &#34;gold&#34;: no cycle", API + "/gangs?namespace=red&shard=": `200 "redbig"`,
	} {
		w := get(t, h, "ruth", path)
		code, words, _ := strings.Cut(want, " ")
		if fmt.Sprint(w.Code) != code {
			t.Errorf("%s: %d", path, w.Code)
		}
		check(t, path, w.Body.String(), words, "")
	}
}

// broken are cycles of which there is nothing but an error.
type broken struct{ err error }

func (broken) Names() []string { return []string{""} }

func (b broken) Look(context.Context, string) (*see.Cycle, string, error) { return nil, "", b.err }

// TestDefects: what goes wrong is told with a status and in words that have no names in them; the log has the rest, where it is a defect.
func TestDefects(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err  error
		code int
		says string
		logs bool
	}{
		{fmt.Errorf("the engine panics on gang blue/bluesecret"), 500, "which is a defect: the log says why", true},
		{fmt.Errorf("%w: no plugin bluesecret", ErrUndecided), 503, "is the scheduler of another version?", false},
		{context.DeadlineExceeded, 503, "took too long", false},
	} {
		var log strings.Builder
		h := New(broken{c.err}, usual(), funcr.New(func(_, args string) { log.WriteString(args) }, funcr.Options{}), nil).Handler()
		for _, path := range []string{API + "/gangs?namespace=red", API + "/namespaces/red/gangs/x", "/?namespace=red", "/job/red/x"} {
			log.Reset()
			w := get(t, h, "ruth", path)
			if w.Code != c.code || strings.Contains(log.String(), "bluesecret") != c.logs {
				t.Errorf("%v at %s: %d, logged %q", c.err, path, w.Code, log.String())
			}
			check(t, path, w.Body.String(), c.says, "bluesecret")
		}
	}
}

// TestNobodyToAsk: where the API server cannot be asked about rights, nothing is told.
func TestNobodyToAsk(t *testing.T) {
	t.Parallel()
	h := answerer(still{"": town(t)}, &rights{away: true}).Handler()
	for _, path := range []string{API + "/gangs", API + "/queues", API + "/namespaces/red/gangs/redbig", "/", "/queues?namespace=red"} {
		if w := get(t, h, "ada", path); w.Code != http.StatusServiceUnavailable || strings.Contains(w.Body.String(), "redbig\"") || strings.Contains(w.Body.String(), "route") {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
}

// TestNoRoom: who asks too much at once is told when to come again, and keeps nobody else out.
func TestNoRoom(t *testing.T) {
	t.Parallel()
	r := usual()
	r.hold = make(chan struct{})
	h := answerer(still{"": town(t)}, r).Handler()
	codes := make(chan int, 200)
	for range 200 {
		go func() { codes <- get(t, h, "ada", API+"/gangs?namespace=red").Code }()
	}
	for range 200 - ofOneCaller { // the others wait in line
		if code := <-codes; code != http.StatusTooManyRequests {
			t.Fatalf("%d", code)
		}
	}
	w := get(t, h, "ada", API+"/gangs")
	if w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") != "2" || !strings.Contains(w.Body.String(), `"retryAfterSeconds":2`) {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	done := make(chan int)
	go func() { done <- get(t, h, "ruth", API+"/gangs?namespace=red").Code }()
	close(r.hold)
	if code := <-done; code != http.StatusOK {
		t.Errorf("another one: %d", code)
	}
	for range ofOneCaller {
		if code := <-codes; code != http.StatusOK {
			t.Errorf("one that waited: %d", code)
		}
	}
}

// TestSignIn: a token becomes a cookie that no script reads and that counts as the header does; what another site's page has a browser send is refused, and nobody is led elsewhere.
func TestSignIn(t *testing.T) {
	t.Parallel()
	h := answerer(still{"": town(t)}, usual()).Handler()
	post := func(path, body, site string) *httptest.ResponseRecorder {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, strings.NewReader(body))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Sec-Fetch-Site", site)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w
	}
	w := post("/login", "token=ruth&back=%2Fjob%2Fred%2Fredbig", "same-origin")
	cookies := w.Result().Cookies()
	if w.Code != http.StatusSeeOther || w.Header().Get("Location") != "/job/red/redbig" || len(cookies) != 1 {
		t.Fatalf("%d %v", w.Code, w.Header())
	}
	if c := cookies[0]; !c.HttpOnly || !c.Secure || c.SameSite != http.SameSiteLaxMode || c.Path != "/" || c.Domain != "" {
		t.Errorf("%+v", c)
	}
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/job/red/redbig", nil)
	r.AddCookie(cookies[0])
	got := httptest.NewRecorder()
	if h.ServeHTTP(got, r); got.Code != http.StatusOK || !strings.Contains(got.Body.String(), "sign out") {
		t.Errorf("with the cookie: %d", got.Code)
	}
	if w := post("/login", "token=ruth", "cross-site"); w.Code != http.StatusForbidden || len(w.Result().Cookies()) > 0 {
		t.Errorf("another site signs somebody in: %d", w.Code)
	}
	if w := post("/login", "token="+strings.Repeat("x", 5000), "same-origin"); w.Code != http.StatusBadRequest || len(w.Result().Cookies()) > 0 {
		t.Errorf("a long token: %d", w.Code)
	}
	for _, back := range []string{"//evil.example", "https://evil.example/", `/\evil.example`, "javascript:alert(1)", ""} {
		if got := within(back); got != "/" {
			t.Errorf("%q leads to %q", back, got)
		}
	}
	if w := post("/logout", "", "same-origin"); w.Code != http.StatusSeeOther || w.Result().Cookies()[0].MaxAge >= 0 {
		t.Errorf("%d %v", w.Code, w.Header())
	}
}
