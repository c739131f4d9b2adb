package sim

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func divide(t *testing.T, text string, hierarchy bool) (map[string]Amounts, error) {
	t.Helper()
	req, err := ReadDivide(strings.NewReader(text), true)
	if err != nil {
		return nil, err
	}
	return Divide(req, hierarchy)
}

// TestDivide: KAI's defaults, the worked example of package fairshare, and what a hierarchy changes.
func TestDivide(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, text string
		hierarchy  bool
		want       map[string]Amounts
	}{
		{"nothing", `{}`, false, map[string]Amounts{}},
		{
			"a queue that says nothing gets all it asks for by default", `{"totalResource":{"GPU":8,"CPU":50000,"Memory":250000},"queues":[{"uid":"a"}]}`, false,
			map[string]Amounts{"a": {8, 50000, 100000}},
		},
		{
			"keys in other cases", `{"TOTALRESOURCE":{"gpu":8},"Queues":[{"UID":"a","resourceshare":{"GPU":{"Request":3}}}]}`, false,
			map[string]Amounts{"a": {GPU: 3}},
		},
		{
			"eleven GPUs", `{"totalResource":{"GPU":11},"queues":[
				{"uid":"a","resourceShare":{"gpu":{"deserved":4,"overQuotaWeight":2,"request":10}}},
				{"uid":"b","resourceShare":{"gpu":{"deserved":2,"request":3}}},
				{"uid":"c","resourceShare":{"gpu":{"request":10}}}]}`, false,
			map[string]Amounts{"a": {GPU: 7}, "b": {GPU: 3}, "c": {GPU: 1}},
		},
		{
			"the older queue gets the remainder", `{"totalResource":{"GPU":3},"queues":[
				{"uid":"a","creationTimestamp":"2025-01-02T00:00:00Z","resourceShare":{"gpu":{}}},
				{"uid":"b","creationTimestamp":"2025-01-01T00:00:00Z","resourceShare":{"gpu":{}}}]}`, false,
			map[string]Amounts{"a": {GPU: 1}, "b": {GPU: 2}},
		},
		{
			"priority first, limits hold", `{"totalResource":{"GPU":10},"queues":[
				{"uid":"a","priority":1,"resourceShare":{"gpu":{"maxAllowed":6}}},
				{"uid":"b","resourceShare":{"gpu":{"overQuotaWeight":9}}}]}`, false,
			map[string]Amounts{"a": {GPU: 6}, "b": {GPU: 4}},
		},
		{
			"parents are siblings", `{"totalResource":{"GPU":12},"queues":[
				{"uid":"p","resourceShare":{"gpu":{}}},{"uid":"a","parentQueue":"p","resourceShare":{"gpu":{}}},{"uid":"b","resourceShare":{"gpu":{}}}]}`, false,
			map[string]Amounts{"p": {GPU: 4}, "a": {GPU: 4}, "b": {GPU: 4}},
		},
		{
			"parents divide", `{"totalResource":{"GPU":12},"queues":[
				{"uid":"a","parentQueue":"p","resourceShare":{"gpu":{"request":5}}},{"uid":"a2","parentQueue":"p","resourceShare":{"gpu":{"request":0.5}}},
				{"uid":"p","resourceShare":{"gpu":{"overQuotaWeight":5}}},{"uid":"b","resourceShare":{"gpu":{}}}]}`, true,
			map[string]Amounts{"p": {GPU: 5.5}, "a": {GPU: 5}, "a2": {GPU: 0.5}, "b": {GPU: 6.5}},
		},
		{
			"more than anybody has", `{"totalResource":{"GPU":1e300,"Memory":1e300},"queues":[{"uid":"a","resourceShare":{"gpu":{"request":7},"memory":{"deserved":-1,"request":1e30}}}]}`, false,
			map[string]Amounts{"a": {GPU: 7, Memory: float64(most)}},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got, err := divide(t, c.text, c.hierarchy)
			if err != nil {
				t.Fatal(err)
			}
			for uid, x := range got { // resources that a case does not speak of
				if c.want[uid].CPU == 0 && c.want[uid].Memory == 0 {
					got[uid] = Amounts{GPU: x.GPU}
				}
			}
			for uid, x := range got {
				if c.want[uid].CPU == 0 {
					x.CPU = 0
					got[uid] = x
				}
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("shares (-want +got):\n%s", diff)
			}
		})
	}
}

// TestDivideErrors: an error names the queue, the field and the rule.
func TestDivideErrors(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{`:                                    "unexpected EOF",
		"{\n \"queues\": 5}":                   "line 2, column 12: ",
		"{\n  oops}":                           "line 2, column 3: invalid character 'o'",
		`{} {}`:                                "more behind the JSON object",
		`{"quues":[]}`:                         `unknown field "quues"`,
		`{"queues":[{"name":"a"}]}`:            "queues[0]: uid is missing",
		`{"queues":[{"uid":"a"},{"uid":"a"}]}`: `queues[1]: uid "a" is that of queues[0] too`,
		`{"totalResource":{"CPU":-3}}`:         "totalResource.CPU is -3; it must not be negative",
		`{"queues":[{"uid":"a","resourceShare":{"gpu":{"deserved":-2}}}]}`:                `queue "a": resourceShare.gpu.deserved is -2; it must not be negative, except -1 for no bound`,
		`{"queues":[{"uid":"a","resourceShare":{"cpu":{"overQuotaWeight":-1}}}]}`:         `queue "a": resourceShare.cpu.overQuotaWeight is -1; it must not be negative`,
		`{"queues":[{"uid":"a","priority":99999999999}]}`:                                 "priority is 99999999999; it must be between",
		`{"queues":[{"uid":"a","creationTimestamp":"today"}]}`:                            "today",
		`{"queues":[{"uid":"a","parentQueue":"p"}]}`:                                      `queue "a": parentQueue "p" is no queue's uid`,
		`{"queues":[{"uid":"a","parentQueue":"b"},{"uid":"b","parentQueue":"a"}]}`:        `queue "a": its parents form a cycle`,
		`{"queues":[{"uid":"a","parentQueue":"a"}]}`:                                      `queue "a": its parents form a cycle`,
		`{"queues":[{"uid":"a","resourceShare":{"gpu":{"deserved":1,"requested":1}}}]}`:   `unknown field "requested"`,
		`{"queues":[{"uid":"a","resourceShare":{"gpu":{"request":-1}}},{"uid":"b"}]}`:     `queue "a": resourceShare.gpu.request is -1`,
		`{"queues":[{"uid":"a","resourceShare":{"memory":{"maxAllowed":-7}}}]}`:           `resourceShare.memory.maxAllowed is -7`,
		`{"queues":[{"uid":"a","resourceShare":{"memory":{"overQuotaWeight":"heavy"}}}]}`: "overQuotaWeight",
	} {
		if _, err := divide(t, text, true); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", text, err, want)
		}
	}
}

// TestDivideSane: whatever the numbers, nobody gets more than it asks for or may have, and nothing falls over.
func TestDivideSane(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		amount := rapid.OneOf(rapid.Float64Range(0, 20), rapid.Just(0.0), rapid.Float64Range(0, 1e40))
		req := DivideRequest{TotalResource: Amounts{GPU: amount.Draw(t, "gpu"), CPU: amount.Draw(t, "cpu"), Memory: amount.Draw(t, "memory")}}
		for i := range rapid.IntRange(0, 6).Draw(t, "queues") {
			q := DivideQueue{UID: fmt.Sprint(i)}
			if i > 0 && rapid.Bool().Draw(t, "child") {
				q.ParentQueue = fmt.Sprint(rapid.IntRange(0, i-1).Draw(t, "parent"))
			}
			s := &DivideShare{}
			for _, f := range []**float64{&s.Deserved, &s.MaxAllowed, &s.OverQuotaWeight, &s.Request} {
				if rapid.Bool().Draw(t, "says") {
					*f = new(amount.Draw(t, "amount"))
				}
			}
			q.ResourceShare.GPU = s
			req.Queues = append(req.Queues, q)
		}
		for _, hierarchy := range []bool{false, true} {
			got, err := Divide(&req, hierarchy)
			if err != nil {
				t.Fatal(err)
			}
			for i := range req.Queues {
				s, x := req.Queues[i].ResourceShare.GPU, got[req.Queues[i].UID].GPU
				if x < 0 || s.Request != nil && x > *s.Request+0.001 || s.MaxAllowed != nil && x > *s.MaxAllowed+0.001 {
					t.Fatalf("queue %d got %v of %+v", i, x, s)
				}
			}
		}
	})
}

// TestHandler: the wire format is KAI's, to the byte where a body comes back.
func TestHandler(t *testing.T) {
	t.Parallel()
	const body = `{"totalResource":{"GPU":3,"CPU":1000,"Memory":0},"queues":[{"uid":"b","resourceShare":{"gpu":{"request":2.5}}},{"uid":"a","more":1}]}`
	const want = `{"a":{"gpu":2,"cpu":1000,"memory":0},"b":{"gpu":1,"cpu":1000,"memory":0}}` + "\n"
	for _, c := range []struct {
		name, method, path, body string
		cors                     bool
		status                   int
		want                     string
	}{
		{"post", "POST", "/simulate", body, false, 200, want},
		{"bad JSON", "POST", "/simulate", "{", false, 400, "bad request body: unexpected EOF\n"},
		{"bad number", "POST", "/simulate", `{"queues":[{}]}`, false, 400, "bad request: queues[0]: uid is missing\n"},
		{"get", "GET", "/simulate", "", false, 405, "only POST is served here\n"},
		{"elsewhere", "POST", "/", body, false, 404, "404 page not found\n"},
		{"options", "OPTIONS", "/simulate", "", false, 405, "only POST is served here\n"},
		{"options with CORS", "OPTIONS", "/simulate", "", true, 200, ""},
		{"post with CORS", "POST", "/simulate", body, true, 200, want},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := httptest.NewRecorder()
			Handler(false, c.cors).ServeHTTP(w, httptest.NewRequest(c.method, c.path, strings.NewReader(c.body)))
			if w.Code != c.status || w.Body.String() != c.want {
				t.Errorf("answered %d %q, want %d %q", w.Code, w.Body.String(), c.status, c.want)
			}
			if got := w.Header().Get("Access-Control-Allow-Origin") == "*"; got != c.cors {
				t.Errorf("any origin may ask: %v, want %v", got, c.cors)
			}
			if w.Code == http.StatusOK && c.want != "" {
				if got := w.Header().Get("Content-Type"); got != "application/json" {
					t.Errorf("content type %q", got)
				}
				if !json.Valid(w.Body.Bytes()) {
					t.Error("not JSON")
				}
			}
		})
	}
}
