package nodeuse

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/common/model"

	"github.com/muster-scheduler/muster/internal/cluster"
)

// patient bounds what a test waits for that happens at once.
const patient = 5 * time.Minute

// series is a sample with labels, as name, value and so on.
func series(value float64, labels ...string) *model.Sample {
	m := model.Metric{}
	for i := 0; i < len(labels); i += 2 {
		m[model.LabelName(labels[i])] = model.LabelValue(labels[i+1])
	}
	return &model.Sample{Metric: m, Value: model.SampleValue(value)}
}

// TestRead: a machine is of the node that its series name, or that it calls itself, or that its address is; one of which something is not known is none, and of two of one name
// the later counts.
func TestRead(t *testing.T) {
	t.Parallel()
	labels := [][]string{
		{"instance", "10.0.0.1:9100", "node", "n1"},
		{"instance", "10.0.0.2:9100"},
		{"instance", "n3:9100"},
		{"instance", "n4"},
		{"instance", "x:1", "node", "twice"},
		{"instance", "x:2", "node", "twice"},
		{"instance", "no-cpu"},
		{"instance", "no-time"},
		{"instance", "not-a-number"},
		{"instance", "equal:1", "node", "equal"},
		{"instance", "equal:2", "node", "equal"},
	}
	all := func(values ...float64) (out model.Vector) {
		for i, v := range values {
			if v != -1 {
				out = append(out, series(v, labels[i]...))
			}
		}
		return out
	}
	nan := math.NaN()
	got := read(model.Vector{series(1, "instance", "10.0.0.2:9100", "nodename", "n2"), series(1, "instance", "10.0.0.9:9100", "nodename", "n9")},
		all(100, 100.25, 100, 100, 200, 100, 100, -1, 100, 100, 100), all(12.4, 12.5, -3, 130, 1, 2, -1, 5, nan, 10, 20), all(0, 50, 60, 70, 3, 4, 5, 6, 7, 40, 30))
	at := func(seconds float64) cluster.Instant { return cluster.UnixNano(int64(seconds * 1e9)) }
	want := map[string]cluster.NodeUse{
		"n1": {CPU: 12, Memory: 0, At: at(100)}, "n2": {CPU: 13, Memory: 50, At: at(100.25)}, "n3": {CPU: 0, Memory: 60, At: at(100)}, "n4": {CPU: 100, Memory: 70, At: at(100)},
		"twice": {CPU: 1, Memory: 3, At: at(200)}, "equal": {CPU: 20, Memory: 40, At: at(100)},
	}
	if d := cmp.Diff(want, got, cmp.Comparer(cluster.Instant.Equal)); d != "" {
		t.Error(d)
	}
}

// prometheus answers each question by what answers has for a word of it.
func prometheus(t *testing.T, answers map[string]string) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		query := r.FormValue("query")
		for word, answer := range answers { // order: one word fits
			if strings.Contains(query, word) {
				_, _ = fmt.Fprint(w, answer)
				return
			}
		}
		http.Error(w, "what?", http.StatusBadRequest)
	}))
	t.Cleanup(s.Close)
	return s
}

func vector(value string) string {
	return fmt.Sprintf(`{"status":"success","data":{"resultType":"vector","result":[{"metric":{"instance":"a:1","node":"n1"},"value":[1,"%s"]}]}}`, value)
}

func healthy(cpu string) map[string]string {
	return map[string]string{"uname": vector("1"), "timestamp": vector("1000"), "cpu": vector(cpu), "MemAvailable": vector("33")}
}

// TestLook: a server is asked four questions. What fails, what is no list of series and what is too long is an error, which has no password in it.
func TestLook(t *testing.T) {
	t.Parallel()
	broken := func(word, answer string) map[string]string {
		out := healthy("40")
		out[word] = answer
		return out
	}
	var many strings.Builder
	for i := range maxSeries + 1 {
		fmt.Fprintf(&many, `,{"metric":{"instance":"%d"},"value":[1,"1"]}`, i)
	}
	for what, c := range map[string]struct {
		answers map[string]string
		err     string
	}{
		"healthy":         {healthy("40"), ""},
		"no answer":       {map[string]string{}, "ask for"},
		"no vector":       {broken("cpu", `{"status":"success","data":{"resultType":"scalar","result":[1,"1"]}}`), "not a vector"},
		"no JSON":         {broken("cpu", `oops`), "ask for"},
		"too long":        {broken("cpu", `{"status":"success","data":{"resultType":"vector","result":[`+strings.Repeat(" ", maxBytes)+`]}}`), "ask for"},
		"too many series": {broken("MemAvailable", `{"status":"success","data":{"resultType":"vector","result":[`+many.String()[1:]+`]}}`), "at most 20000 are read"},
		"nothing known":   {broken("cpu", `{"status":"success","data":{"resultType":"vector","result":[]}}`), "node_exporter"},
	} { // order: each on its own
		s, err := newServer(strings.Replace(prometheus(t, c.answers).URL, "http://", "http://user:secret@", 1))
		if err != nil {
			t.Fatal(err)
		}
		got, err := s.look(t.Context(), time.Unix(1, 0))
		s.close()
		if (err != nil) != (c.err != "") || err != nil && (!strings.Contains(err.Error(), c.err) || strings.Contains(err.Error(), "secret")) {
			t.Errorf("%s: %v", what, err)
		}
		if c.err == "" && cmp.Diff(map[string]cluster.NodeUse{"n1": {CPU: 40, Memory: 33, At: cluster.UnixNano(1e12)}}, got, cmp.Comparer(cluster.Instant.Equal)) != "" {
			t.Errorf("%s: %v", what, got)
		}
	}
	if _, err := newServer("http://user:secret@[::"); err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("no URL: %v", err)
	}
}

// store is a Store with some nodes.
func store(names ...string) *cluster.Store {
	s := cluster.NewStore(cluster.Options{})
	for _, name := range names {
		s.Apply(cluster.NodeState{Name: name})
	}
	return s
}

// told is what a store knows of a node.
func told(s *cluster.Store, node string) *cluster.NodeUse {
	u, _ := s.Snapshot(cluster.UnixNano(1)).Object(cluster.NodeUses, node).(*cluster.NodeUse)
	return u
}

// await waits until there is something to drain.
func await(t *testing.T, s *Source) {
	t.Helper()
	select {
	case <-s.Changed():
	case <-time.After(patient):
		t.Fatal("nothing comes")
	}
}

// TestSource: the server of the configuration is asked at once, and another one when that changes; of nobody nothing is known. A defect in a look is a look that failed, and Run ends
// with its context.
func TestSource(t *testing.T) {
	t.Parallel()
	defect := make(chan struct{})
	var once sync.Once
	s, st := New(func(work func() error) error {
		err := errors.New("a defect")
		first := false
		once.Do(func() { first = true; close(defect) })
		if !first {
			err = work()
		}
		return err
	}), store("n1")
	ctx, stop := context.WithCancel(logr.NewContext(t.Context(), logr.Discard()))
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	s.Follow(Config{Address: "http://127.0.0.1:1", Interval: time.Hour}) // whose look is the defect
	select {
	case <-defect:
	case <-time.After(patient):
		t.Fatal("nobody is asked")
	}
	for i, cpu := range []string{"40", "50"} {
		s.Follow(Config{Address: prometheus(t, healthy(cpu)).URL, Interval: time.Hour})
		for told(st, "n1") == nil || fmt.Sprint(told(st, "n1").CPU) != cpu {
			await(t, s)
			s.Drain(st)
		}
		if i == 0 && told(st, "n1").Memory != 33 {
			t.Error("memory is not told")
		}
	}
	s.Follow(Config{})
	await(t, s)
	s.Drain(st)
	if u := told(st, "n1"); u != nil {
		t.Errorf("of nobody %v is known", u)
	}
	stop()
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(patient):
		t.Error("it does not end")
	}
}

// TestDrain: the same is told again when it is two minutes newer, and not before; what changes at once; what nobody knows any more, or is of no node, is taken back.
func TestDrain(t *testing.T) {
	t.Parallel()
	s, at := New(nil), func(seconds int64) cluster.Instant { return cluster.UnixNano(seconds * 1e9) }
	st := store("n1", "n2")
	step := func(what string, found map[string]cluster.NodeUse, want int) {
		t.Helper()
		s.found, s.fresh = found, true
		before := st.Generation()
		if got := s.Drain(st); got != want || st.Generation()-before != uint64(want) {
			t.Errorf("%s: %d events, %d changes; want %d", what, got, st.Generation()-before, want)
		}
		if s.Drain(st) != 0 {
			t.Errorf("%s: told twice", what)
		}
	}
	step("first", map[string]cluster.NodeUse{"n1": {CPU: 1, Memory: 2, At: at(100)}, "n2": {CPU: 3, Memory: 4, At: at(100)}, "stranger": {At: at(100)}}, 2)
	step("the same, newer", map[string]cluster.NodeUse{"n1": {CPU: 1, Memory: 2, At: at(219)}, "n2": {CPU: 3, Memory: 4, At: at(219)}}, 0)
	step("the same, newer by two minutes", map[string]cluster.NodeUse{"n1": {CPU: 1, Memory: 2, At: at(220)}, "n2": {CPU: 3, Memory: 4, At: at(219)}}, 1)
	step("another", map[string]cluster.NodeUse{"n1": {CPU: 1, Memory: 3, At: at(221)}, "n2": {CPU: 3, Memory: 4, At: at(219)}}, 1)
	if u := told(st, "n1"); u == nil || u.Memory != 3 || !u.At.Equal(at(221)) {
		t.Errorf("%v", u)
	}
	step("not measured", map[string]cluster.NodeUse{"n1": {CPU: 1, Memory: 3, At: at(221)}}, 1)
	st.Apply(cluster.NodeGone{Name: "n1"})
	step("gone", map[string]cluster.NodeUse{"n1": {CPU: 1, Memory: 3, At: at(221)}}, 1)
	if told(st, "n1") != nil || told(st, "n2") != nil {
		t.Error("something is left")
	}
}

// TestLonger: a server that fails is asked less and less often, every five minutes at least.
func TestLonger(t *testing.T) {
	t.Parallel()
	wait, times := 30*time.Second, 0
	for ; wait < backOff; wait = longer(wait, 30*time.Second) {
		times++
	}
	if wait != backOff || longer(wait, 30*time.Second) != backOff || times != 4 || longer(time.Hour, time.Hour) != time.Hour {
		t.Errorf("%s after %d", wait, times)
	}
}
