package ui

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/cycles"
	"github.com/muster-scheduler/muster/internal/dialect/submit"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/engine/builtin"
	"github.com/muster-scheduler/muster/internal/journal"
	"github.com/muster-scheduler/muster/internal/monitoring/judge"
	"github.com/muster-scheduler/muster/internal/profile"
	"github.com/muster-scheduler/muster/internal/replay"
	"github.com/muster-scheduler/muster/internal/see"
)

// Registers has the cycles of a test decided again.
func (still) Registers(bool) engine.Registry { return builtin.Registry() }

// chronicle is a journal that has the cycle of a town, and two hours of what its queues used.
func chronicle(t *testing.T) *journal.Journal {
	t.Helper()
	j, err := journal.Open(journal.Options{Folder: t.TempDir(), Now: func() time.Time { return noon }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = j.Close() })
	add := func(e *journal.Entry) {
		if _, err := j.Append(e, nil); err != nil {
			t.Fatal(err)
		}
	}
	use := func(ago time.Duration, reds, blues int64) {
		add(&journal.Entry{At: noon.Add(-ago), Kind: journal.Use, Queues: []journal.QueueUse{
			{Queue: "reds", Parent: "root", FairShare: 4000, Used: reds, Requested: 8000}, {Queue: "blues", Parent: "root", FairShare: 4000, Used: blues, Requested: 8000},
		}})
	}
	use(2*time.Hour, 1000, 7000)
	use(time.Hour, 4000, 4000)
	add(&journal.Entry{At: noon.Add(-30 * time.Minute), Kind: journal.Gap, Missing: &journal.Missing{Why: journal.Away, Since: noon.Add(-45 * time.Minute)}})
	use(15*time.Minute, 8000, 0)

	c := town(t)
	run, err := c.Look(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s := replay.NewStream("v1", profile.BuiltIn(), false)
	s.Decided(run.Snapshot(), run.Plans())
	enough := errors.New("enough")
	var line []byte
	if err := s.Follow(t.Context(), func(text []byte) error { line = bytes.Clone(text); return enough }); !errors.Is(err, enough) {
		t.Fatal(err)
	}
	k := &journal.Keeper{Journal: j, Rest: -1, Log: logr.Discard(), Decide: func(ctx context.Context, k *replay.Case, id string) (*see.Cycle, error) {
		out := &see.Cycle{Cluster: id, Case: k, Registry: builtin.Registry()}
		_, err := out.Look(ctx)
		return out, err
	}}
	k.Take(t.Context(), line)
	add(&journal.Entry{At: noon, Kind: journal.Came, Starts: []journal.Start{
		{Gang: cluster.Key{Face: "kai", Namespace: "red", Name: "redbig"}, Queue: "reds", Held: 2, Of: 3}, {Gang: cluster.Key{Face: "kai", Namespace: "blue", Name: "bluesecret"}, Queue: "blues", Held: 1, Of: 1},
	}})
	return j
}

// TestWhoSeesWhatOfThePast is the matrix of what the journal answers: no name of another namespace is told, and counts stay.
func TestWhoSeesWhatOfThePast(t *testing.T) {
	t.Parallel()
	who := usual()
	j := chronicle(t)
	h := answerer(still{"": town(t)}, who).Keeping(j, nil).Handler()
	var number string
	if m := regexp.MustCompile(`"number":(\d+)[^}]*"kind":"cycle"`).FindStringSubmatch(get(t, h, "ada", API+"/decisions").Body.String()); m == nil {
		t.Fatalf("no cycle: %s", get(t, h, "ada", API+"/decisions").Body)
	} else {
		number = m[1]
	}
	const foreign = "bluesecret|bluejob"
	for _, c := range []struct {
		who, path string
		code      int
		has, not  string
	}{
		{"", "/decisions", 401, "no valid token", foreign},
		{"ruth", "/decisions", 403, "get podgroups", foreign + "|redbig"},
		{"ruth", "/decisions?namespace=blue", 403, "get podgroups", foreign},
		{"ruth", "/decisions?namespace=red", 200, `DecisionList|redbig|pg-redjob|a gang of queue blues|"held":2|"why":"away"|reclaim`, foreign + `|redvc|"shares"`},
		{"ruth", "/decisions?namespace=red&gang=redjob", 200, "pg-redjob", foreign + "|redbig"},
		{"ruth", "/decisions?namespace=red&since=1s", 200, `"items":[]`, foreign + "|redbig"},
		{"ruth", "/decisions?namespace=red&last=1", 200, `"more":true`, foreign},
		{"ruth", "/decisions?namespace=red&since=soon", 400, `"field":"since"`, ""},
		{"ruth", "/decisions?namespace=red&last=0", 400, `"field":"last"`, ""},
		{"vera", "/decisions?namespace=red", 200, "redvc", foreign},
		{"bill", "/decisions?namespace=blue", 200, "bluesecret|a gang of queue reds", "redbig|redjob|redvc"},
		{"ada", "/decisions", 200, `bluesecret|pg-redjob|"shares"`, ""},
		{"ruth", "/cycles/" + number, 403, "get podgroups", foreign},
		{"ruth", "/cycles/" + number + "?namespace=red", 200, `"kind":"Replay"|"same":true|a gang of queue blues|redbig|"others":`, foreign + `|redvc|"shares"`},
		{"bill", "/cycles/" + number + "?namespace=blue", 200, "bluesecret|a gang of queue reds", "redbig|redjob|redvc"},
		{"ada", "/cycles/" + number, 200, `bluesecret|redbig|"shares"`, "a gang of queue"},
		{"ada", "/cycles/" + number, 200, `"holds":[{"queue":"blues","beforeMilliGPU":8000,"afterMilliGPU":0}`, "a gang of queue"},
		{"ruth", "/cycles/" + number + "?namespace=red", 200, `"steps":`, `"holds"`},
		{"ada", "/cycles/4711", 404, "is not kept", ""},
		{"ada", "/cycles/x", 400, `"field":"cycle"`, ""},
		{"ada", "/ledger?since=3h", 200, `"queue":"reds"|"queue":"blues"|"why":"away"`, "hidden"},
		{"ruth", "/ledger", 403, "list queues", "reds"},
		{"ruth", "/ledger?namespace=red", 200, `"queue":"reds"|"hidden":1`, "blues"},
		{"ada", "/outlook", 404, "", foreign},
		{"ruth", "/alerts", 403, "ruth list queues.scheduling.run.ai", "Muster|reds|" + foreign},
		{"", "/alerts", 401, "no valid token", "Muster"},
		{"ada", "/alerts", 200, `AlertList|"name":"MusterQueueStarving"|"state":"not evaluated"|which only a Prometheus server knows|the journal has a gap: Nobody kept a journal`, `"state":"quiet"|redbig|` + foreign},
		{"ruth", "/namespaces/red/gangs/redbig?timeline=true", 200, `"timeline":|"what":"gap"|"what":"waits"|"unsure":true|"what":"forecast"|"from":"2026-11-26T10:00:00Z"`, foreign},
		{"ruth", "/namespaces/red/gangs/redbig", 200, "Explanation", `"timeline"`},
		{"ruth", "/namespaces/red/gangs/redjob?timeline=true&since=10m", 200, `"what":"room"`, foreign + `|"what":"gap"`},
		{"bill", "/namespaces/blue/gangs/bluesecret?timeline=true", 200, `"what":"evicted"|"by":"a gang of queue reds"|"reason":"reclaim"`, "redjob|redbig|redvc"},
		{"ada", "/namespaces/blue/gangs/bluesecret?timeline=true", 200, `"by":"red/pg-redjob`, ""},
		{"ruth", "/namespaces/red/gangs/redbig?timeline=true&since=soon", 400, `"field":"since"`, ""},
		{"ruth", "/namespaces/blue/gangs/bluesecret?timeline=true", 403, "get podgroups", foreign + "|timeline"},
	} {
		w := get(t, h, c.who, API+c.path)
		if w.Code != c.code {
			t.Errorf("%s %s: %d, want %d\n%s", c.who, c.path, w.Code, c.code, w.Body)
		}
		check(t, c.who+" "+c.path, w.Body.String(), c.has, c.not)
	}
	for _, c := range []struct {
		who, path string
		code      int
		has, not  string
	}{
		{"ruth", "/decisions?namespace=red", 200, "a gang of queue blues|<strong>red/redbig</strong>|2 of 3 forecasts held|/cycle/" + number + "?namespace=red|Nobody kept a journal", foreign},
		{"ruth", "/job/red/redbig", 200, `<a href="/decisions?namespace=red&amp;gang=redbig">|<h2>Timeline</h2>|Nobody kept a journal|(or earlier: something is missing before it)|/cycle/` + number + `?namespace=red`, foreign},
		{"bill", "/job/blue/bluesecret?since=3h", 200, "reclaim for a gang of queue reds|<h2>Timeline</h2>", "redjob|redbig|redvc"},
		{"ruth", "/cycle/" + number + "?namespace=red", 200, "a gang of queue blues|byte for byte|red/redbig", foreign},
		{"ada", "/cycle/" + number, 200, "evict blue/bluesecret-|→", ""},
		{"ada", "/cycle/" + number + "?step=1", 200, "Cycle " + number + ", step 1 of |What queues hold after it|<th scope=\"row\">blues</th>|all steps", "the step before"},
		{"ruth", "/cycle/" + number + "?step=1&namespace=red", 200, "a gang of queue blues|step 1 of ", foreign + "|What queues hold"},
		{"ada", "/cycle/" + number + "?step=99", 400, "step is", ""},
		{"ada", "/cycle/" + number + "?step=0", 400, "step is", ""},
		{"ruth", "/ledger?namespace=red", 200, "reds|polyline|1 more queues", "blues"},
		{"ruth", "/alerts", 403, "ruth list queues.scheduling.run.ai", "Starving"},
		{"ada", "/alerts", 200, `<span class="word not-evaluated">not evaluated</span>|MusterQueueStarving|0 of 21 rules are evaluated here`, foreign},
		{"ruth", "/what-if", 403, "ruth simulate queues.scheduling.run.ai", ""},
		{"", "/decisions", 401, "/login", ""},
	} {
		w := get(t, h, c.who, c.path)
		if w.Code != c.code {
			t.Errorf("%s %s: %d, want %d\n%s", c.who, c.path, w.Code, c.code, w.Body)
		}
		check(t, c.who+" "+c.path, w.Body.String(), c.has, c.not)
	}
	none := answerer(still{"": town(t)}, who).Handler()
	if w := get(t, none, "ada", API+"/decisions"); w.Code != http.StatusNotFound || !strings.Contains(w.Body.String(), "no journal is kept here") {
		t.Errorf("without a journal: %d %s", w.Code, w.Body)
	}
}

// TestLedger: what was used and owed is added up over what is known, by hand: two hours ago reds used 1 of 4 for an hour, then 4 for a quarter of an hour; nobody looked for half an hour; then 8 for a quarter.
func TestLedger(t *testing.T) {
	t.Parallel()
	l := &Ledger{From: noon.Add(-2 * time.Hour), To: noon}
	if err := sum(t.Context(), chronicle(t), l); err != nil {
		t.Fatal(err)
	}
	near := func(a, b float64) bool { return math.Abs(a-b) < 1e-9 }
	for _, q := range l.Queues {
		want := map[string][4]float64{"reds": {1 + 1 + 2, 6, 1, 3}, "blues": {7 + 1 + 0, 6, 3, 1}}[q.Queue]
		if q.Queue != "reds" && q.Queue != "blues" {
			continue // of the cycle at noon, which no time follows
		}
		if !near(q.Used, want[0]) || !near(q.Owed, want[1]) || !near(q.Above, want[2]) || !near(q.Below, want[3]) {
			t.Errorf("%s: %+v, want %v", q.Queue, q, want)
		}
	}
	if !near(l.Hours, 1.5) || len(l.Gaps) != 1 {
		t.Errorf("%v hours, %d gaps", l.Hours, len(l.Gaps))
	}
}

// post asks with a body.
func post(t *testing.T, h http.Handler, who, path, kind, body string, headers ...string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, strings.NewReader(body))
	r.Header.Set("Content-Type", kind)
	if who != "" {
		r.Header.Set("Authorization", "Bearer "+who)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// TestAlerts: what cycles say of queues over forty minutes is what the rules are evaluated on: a queue that lacks its share that long fires, by name, and what takes other metrics is not said to be well. Of a
// scheduler that is not heard nothing is said to be quiet.
func TestAlerts(t *testing.T) {
	t.Parallel()
	c := town(t)
	run, err := c.Look(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s := &shard{client: &cycles.Client{}}
	f := &Following{shards: map[string]*shard{"": s}}
	for ago := 40 * time.Minute; ago >= 0; ago -= 5 * time.Minute {
		s.gauges.take(run, noon.Add(-ago))
	}
	for k, points := range s.gauges.tracks {
		if len(*points) != 1 {
			t.Errorf("%v: %d points of what stayed as it was", k, len(*points))
		}
	}
	known := f.Known(noon)
	states := func() map[string]judge.Verdict {
		out := map[string]judge.Verdict{}
		list, err := judge.Evaluate(t.Context(), known)
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range list {
			out[v.Name] = v
		}
		return out
	}
	if v := states()["MusterQueueStarving"]; v.State != judge.Firing || len(v.Instances) != 1 || v.Instances[0].Summary != "Queue reds lacks 4 GPUs of its share, and has gangs that wait." {
		t.Errorf("%+v", v)
	}
	if v := states()["MusterNodesOvercommitted"]; v.State != judge.NotEvaluated || !strings.Contains(v.Why, "no news comes from the scheduler") {
		t.Errorf("unheard: %+v", v)
	}
	clear(known.Doubt)
	if v := states()["MusterNodesOvercommitted"]; v.State != judge.Quiet || !v.From.Equal(noon.Add(-40*time.Minute)) {
		t.Errorf("%+v", v)
	}
	h := answerer(still{"": c}, usual()).Judging(f.Known).Handler()
	check(t, "JSON", get(t, h, "ada", API+"/alerts").Body.String(), `"state":"firing"|Queue reds lacks 4 GPUs|"evaluated":1`, `"state":"quiet"|bluesecret|redbig`)
	check(t, "the page", get(t, h, "ada", "/alerts").Body.String(), `<span class="word firing">firing</span>|Queue reds lacks 4 GPUs|1 of 21 rules`, "bluesecret|redbig")

	var points []judge.Point
	for i := range 3000 { // a value each six seconds: of a minute two are kept, of time two hours
		at := noon.Add(time.Duration(i) * 6 * time.Second)
		points = append(points, judge.Point{At: at, Value: float64(i)})
		forget(&points, at)
	}
	if n := len(points); n < 240 || n > 244 {
		t.Errorf("%d points of two hours", n)
	}
}

// jobText is the manifest of a Job whose pods ask for a GPU each, and all at once.
func jobText(namespace string, pods int) string {
	return fmt.Sprintf(`apiVersion: batch/v1
kind: Job
metadata: {name: new, namespace: %q, labels: {kai.scheduler/queue: reds}, annotations: {kai.scheduler/batch-min-member: "%d"}}
spec:
  parallelism: %d
  template:
    spec:
      schedulerName: kai-scheduler
      containers: [{name: c, resources: {limits: {nvidia.com/gpu: 1}}}]
`, namespace, pods, pods)
}

// manifests is a what-if of it.
func manifests(namespace string, pods int) string {
	text, err := json.Marshal(map[string]string{"manifests": jobText(namespace, pods)})
	if err != nil {
		panic(err)
	}
	return string(text)
}

// TestWhatIf: who may simulate queues is told what would become of changes, within his scope; nobody else is, nor does another site's page have it asked; what cannot be meant is refused with field and rule.
func TestWhatIf(t *testing.T) {
	t.Parallel()
	who := usual()
	who.have = append(who.have, "ruth simulate queues.scheduling.run.ai", "ada simulate queues.scheduling.run.ai")
	h := answerer(still{"": town(t)}, who).Handler()
	const path, plain = API + "/what-if", "application/json"
	for _, c := range []struct {
		who, kind, body string
		code            int
		has, not        string
	}{
		{"", plain, `{"quota":["reds:gpu=8"]}`, 401, "no valid token", ""},
		{"bill", plain, `{"quota":["reds:gpu=8"]}`, 403, "bill simulate queues.scheduling.run.ai", "Consequences"},
		{"ruth", plain, `{"limit":["reds:gpu=0"],"cycles":20}`, 200, `Consequences|redjob|a gang of queue blues|"stops":true`, "bluesecret|bluejob"},
		{"ada", plain, `{"limit":["reds:gpu=0"],"cycles":20}`, 200, "bluesecret", ""},
		{"ada", plain, `{"delete":["blue/bluesecret"]}`, 200, "delete gang blue/bluesecret", ""},
		{"ada", plain, `{"addNodes":3,"like":"n"}`, 200, "redbig", ""},
		{"ada", plain, `{"cordon":["n"]}`, 200, "Consequences", ""},
		{"ruth", plain, `{"delete":["blue/bluesecret"]}`, 403, "get podgroups", "Consequences"},
		{"ruth", plain, `{"delete":["blue/nothing"]}`, 403, "get podgroups", "there is no"},
		{"ruth", plain, `{"delete":["red/redvc"]}`, 403, "podgroups.scheduling.volcano.sh", "Consequences"},
		{"ada", plain, `{"delete":["blue/nothing"]}`, 404, "there is no gang nothing", ""},
		{"ada", plain, `{}`, 400, "nothing would be changed", ""},
		{"ada", plain, `{"quota":["reds:gpu=many"]}`, 400, "is no amount", ""},
		{"ada", plain, `{"quota":["lost:gpu=1"]}`, 400, `"rule":"does not exist"`, ""},
		{"ada", plain, `{"addNodes":100000,"like":"n"}`, 400, `"field":"count"`, ""},
		{"ada", plain, `{"quota":["reds:gpu=8"],"cycles":100000}`, 400, `"field":"horizon"`, ""},
		{"ada", plain, `{"quota":["reds:gpu=8"],"shard":"gold"}`, 503, "no cycle", ""},
		{"ada", plain, `{"more":1}`, 400, `"field":"body"`, ""},
		{"ada", plain, "", 400, `"field":"body"`, ""},
		{"ada", plain, `{"cordon":["` + strings.Repeat("x", maxBody) + `"]}`, 400, `"field":"body"`, ""},
		{"ruth", plain, manifests("red", 1), 200, `"submitted":|"workload":"new"|"namespace":"red"|"placed":`, "bluesecret|bluejob"},
		{"ruth", plain, manifests("red", 9), 200, `"word":"never"|"needed":9`, "bluesecret|bluejob"},
		{"ruth", plain, manifests("blue", 1), 403, "get podgroups", "Consequences|submitted"},
		{"ruth", plain, manifests("", 1), 400, `"object":"Job new"|"field":"metadata.namespace"`, ""},
		{"ada", plain, `{"namespace":"red","manifests":"kind: Deployment\napiVersion: apps/v1\nmetadata: {name: web}"}`, 400, `"object":"Deployment web"|is of a kind that is not simulated, apps/v1 Deployment`, ""},
		{"ruth", plain, `{"namespace":"red","manifests":"kind: PodGroup\napiVersion: scheduling.run.ai/v2alpha2\nmetadata: {name: bluesecret, namespace: blue}"}`, 403, "get podgroups", "already"},
		{"ada", plain, `{"manifests":"kind: PodGroup\napiVersion: scheduling.run.ai/v2alpha2\nmetadata: {name: bluesecret, namespace: blue}"}`, 400, "is there already", ""},
		{"ada", plain, `{"manifests":"` + strings.Repeat("x", submit.MaxBytes+1) + `"}`, 400, "are of more than 10485760 bytes", ""},
		{"ada", "application/x-www-form-urlencoded", `quota=reds:gpu=8`, 400, `"field":"Content-Type"`, ""},
	} {
		w := post(t, h, c.who, path, c.kind, c.body)
		if w.Code != c.code || !json.Valid(w.Body.Bytes()) {
			t.Errorf("%s %.80s: %d, want %d\n%s", c.who, c.body, w.Code, c.code, w.Body)
		}
		check(t, c.who+" "+c.body[:min(80, len(c.body))], w.Body.String(), c.has, c.not)
	}
	const form = "application/x-www-form-urlencoded"
	submitted := post(t, h, "ruth", "/what-if", form, url.Values{"namespace": {"red"}, "manifests": {jobText("", 9)}}.Encode())
	check(t, "the page of manifests", submitted.Body.String(), `<span class="word never">never</span>|red/new|kind: Job`, "bluesecret|bluejob")
	long := post(t, h, "ruth", "/what-if", form, url.Values{"manifests": {strings.Repeat("x", maxForm)}}.Encode())
	if check(t, "a long form", long.Body.String(), "cannot be read, or is longer than", ""); long.Code != http.StatusBadRequest {
		t.Errorf("a long form: %d", long.Code)
	}
	fields := url.Values{"limit": {"reds:gpu=0\r\n"}, "quota": {"reds:gpu=8\r\nblues:gpu=4\r\n"}, "cycles": {"20"}}.Encode()
	w := post(t, h, "ruth", "/what-if", form, fields)
	if w.Code != http.StatusOK {
		t.Errorf("the page: %d %s", w.Code, w.Body)
	}
	check(t, "the page", w.Body.String(), "a gang of queue blues|redjob|reds:gpu=8\nblues:gpu=4</textarea>", "bluesecret|bluejob")
	for _, header := range [][]string{{"Sec-Fetch-Site", "cross-site"}, {"Origin", "https://evil.example"}} {
		if w := post(t, h, "ruth", "/what-if", form, fields, header...); w.Code != http.StatusForbidden {
			t.Errorf("another site's form, %v: %d", header, w.Code)
		}
	}
	if w := post(t, h, "ruth", "/what-if", form, "addNodes=x"); w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), "addNodes") {
		t.Errorf("no number: %d %s", w.Code, w.Body)
	}
}

// TestManyWhatIfs: of 200 at once some are answered, and all others told when to come again.
func TestManyWhatIfs(t *testing.T) {
	t.Parallel()
	who := usual()
	who.have = append(who.have, "ada simulate queues.scheduling.run.ai")
	who.hold = make(chan struct{})
	h := answerer(still{"": town(t)}, who).Handler()
	codes := make(chan string, 200)
	for range 200 {
		go func() {
			w := post(t, h, "ada", API+"/what-if", "application/json", `{"quota":["reds:gpu=8"]}`)
			codes <- fmt.Sprint(w.Code, " ", w.Header().Get("Retry-After"))
		}()
	}
	got := map[string]int{}
	for range 200 - ofOneCaller/4 {
		got[<-codes]++
	}
	close(who.hold)
	for range ofOneCaller / 4 {
		got[<-codes]++
	}
	if len(got) != 2 || got["200 "] != ofOneCaller/4 || got["429 10"] != 200-ofOneCaller/4 {
		t.Errorf("%v", got)
	}
}
