package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/muster-scheduler/muster/internal/kube/feed"
)

// TestDebugStore: what a scheduler answers is told, and a difference is an error.
func TestDebugStore(t *testing.T) {
	t.Parallel()
	answer := feed.Inspection{Compared: map[string]int{"Pod": 7, "Node": 2, "Queue": 0}, Differences: []feed.Difference{}}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/store" {
			http.NotFound(w, r)
			return
		}
		if err := json.NewEncoder(w).Encode(answer); err != nil {
			t.Error(err)
		}
	}))
	defer server.Close()
	run := func(args ...string) (string, error) {
		c := newDebug(Deps{})
		var out bytes.Buffer
		c.SetOut(&out)
		c.SilenceUsage, c.SilenceErrors = true, true
		c.SetArgs(append([]string{"store", "--server", strings.TrimPrefix(server.URL, "http://")}, args...))
		err := c.Execute()
		return out.String(), err
	}
	if got, err := run(); err != nil || got != "9 objects compared, 0 differed. (Node 2, Pod 7)\n" {
		t.Errorf("%q, %v", got, err)
	}
	answer.Differences = append(answer.Differences, feed.Difference{Kind: "Pod", Namespace: "a", Name: "p", What: feed.Gone, Has: "3"})
	answer.Undecided = 1
	got, err := run()
	want := "Pod a/p: the store knows it at version 3; it does not exist\n" +
		"9 objects compared, 1 differed, 1 could not be decided: their watch has not come so far. (Node 2, Pod 7)\n"
	if !errors.Is(err, errDiffers) || got != want {
		t.Errorf("%q, %v", got, err)
	}
	if got, err = run("-o", "json"); !errors.Is(err, errDiffers) || !strings.Contains(got, `"what": "gone"`) {
		t.Errorf("%q, %v", got, err)
	}
	if _, err = run("-o", "xml"); err == nil || errors.Is(err, errDiffers) {
		t.Error(err)
	}
	server.Close()
	if _, err = run(); err == nil || !strings.Contains(err.Error(), "--plugin-server-port") {
		t.Error(err)
	}
}
