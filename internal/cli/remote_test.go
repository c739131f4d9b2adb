package cli

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/engine/builtin"
	"github.com/muster-scheduler/muster/internal/explain"
	"github.com/muster-scheduler/muster/internal/see"
	"github.com/muster-scheduler/muster/internal/ui"
)

// TestExplainAsksTheRole: with an address of the role, explain asks there with the kubeconfig's token, and prints its answer as text and as JSON. Where the role gives none, or shows another
// certificate, that is said, and the command looks at the cluster itself; the token goes nowhere else.
func TestExplainAsksTheRole(t *testing.T) {
	answers, elsewhere := http.StatusOK, ""
	role := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case elsewhere != "":
			http.Redirect(w, r, elsewhere, http.StatusFound)
			return
		case r.Header.Get("Authorization") != "Bearer janes" || r.URL.EscapedPath() != "/apis/see.muster.dev/v1/namespaces/team/gangs/Job%20train" || r.FormValue("inLine") != "true":
			t.Errorf("%s, authorization %q", r.URL, r.Header.Get("Authorization"))
		}
		w.WriteHeader(answers)
		if answers != http.StatusOK {
			_ = json.NewEncoder(w).Encode(ui.Refused{Kind: "Refusal", Message: "no room at all"})
			return
		}
		var line *see.Timeline
		if r.FormValue("timeline") == "true" && r.FormValue("since") == "3d" {
			at := time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)
			line = &see.Timeline{From: at, Omitted: 2, Items: []see.Moment{{At: at, What: see.WasBound, Text: "2 pods bound", Unsure: true}}}
		}
		_ = json.NewEncoder(w).Encode(see.Explanation{
			APIVersion: see.APIVersion, Timeline: line, Kind: "Explanation", Cycle: see.Origin{Scheduler: true, AgeSeconds: 1.2}, Start: &see.Expected{Text: "between 14:20 and 17:00 (8 in 10), if no more work comes."},
			Explanation: explain.Explanation{
				Namespace: "team", Gang: "pg-train-1", Workload: "Job train", Queue: "q", Word: explain.Blocked, Reason: "OverLimit", Message: "queue q: asks for 16 gpu",
				Pods: explain.Pods{Pending: 2, Needed: 2}, Remedies: []explain.Remedy{{By: explain.QueueOwner, First: true, Changes: []*explain.Change{{Kind: explain.RaiseLimit, Text: "raise the limit"}}}},
			},
		})
	}))
	defer role.Close()
	thief := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("somebody else is shown %q", r.Header.Get("Authorization"))
	}))
	defer thief.Close()
	dir := t.TempDir()
	ca, kubeconfig := filepath.Join(dir, "ca.crt"), filepath.Join(dir, "kubeconfig")
	for file, text := range map[string]string{
		ca: string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: role.Certificate().Raw})),
		kubeconfig: `{apiVersion: v1, kind: Config, current-context: c, clusters: [{name: c, cluster: {server: "https://127.0.0.1:1"}}],
users: [{name: u, user: {token: janes}}], contexts: [{name: c, context: {cluster: c, user: u, namespace: team}}]}`,
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	run := func(args ...string) (string, string, error) {
		root := &cobra.Command{Use: "muster", SilenceUsage: true, SilenceErrors: true}
		root.AddCommand(New(Deps{Version: "v1", Registry: func(bool) engine.Registry { return builtin.Registry() }})...)
		var out, notes bytes.Buffer
		root.SetOut(&out)
		root.SetErr(&notes)
		root.SetArgs(append([]string{"explain", "Job train", "--kubeconfig", kubeconfig}, args...))
		err := root.ExecuteContext(t.Context())
		return out.String(), notes.String(), err
	}
	out, notes, err := run("--ui", role.URL, "--ui-certificate-authority", ca)
	want := "Job train (gang team/pg-train-1): blocked; room for 0 of 2 pods, 2 needed to start; queue q,\n  priority 0\nwhy: queue q: asks for 16 gpu [OverLimit]\n" +
		"were it next, but not at its turn (queue owner):\n  - raise the limit\nstarts between 14:20 and 17:00 (8 in 10), if no more work comes.\nas the scheduler saw it, 1 s ago\n"
	if out != want || notes != "" || err != nil {
		t.Errorf("%s%s%v", out, notes, err)
	}
	line := "timeline, as far as it is kept since 2026-11-26T12:00:00Z:\n  2 earlier moments are left out\n  2026-11-26T12:00:00Z  2 pods bound (or earlier: something is missing before it)\n"
	if out, notes, err := run("--ui", role.URL, "--ui-certificate-authority", ca, "--timeline", "--since", "3d"); out != want+line || notes != "" || err != nil {
		t.Errorf("with its timeline: %s%s%v", out, notes, err)
	}
	if out, notes, err := run("--ui", role.URL, "--ui-certificate-authority", ca, "--timeline"); out != want || !strings.Contains(notes, "keeps no journal") || err != nil {
		t.Errorf("without a journal: %s%s%v", out, notes, err)
	}
	t.Setenv(EnvUI, role.URL)
	var e see.Explanation
	if out, _, err = run("--ui-certificate-authority", ca, "-o", "json"); err != nil || json.Unmarshal([]byte(out), &e) != nil || !e.Cycle.Scheduler || e.Word != explain.Blocked {
		t.Errorf("as JSON: %v %s", err, out)
	}
	print := sha256.Sum256(role.Certificate().Raw)
	if out, notes, err = run("--ui-certificate-fingerprint", hex.EncodeToString(print[:])); out != want || notes != "" || err != nil {
		t.Errorf("by its fingerprint: %s%s%v", out, notes, err)
	}
	for _, c := range []struct {
		name string
		args []string
		code int
		to   string
		says string
	}{
		{"refused", []string{"--ui-certificate-authority", ca}, http.StatusTooManyRequests, "", "the role ui says: no room at all\nlooking at the cluster itself"},
		{"another certificate", nil, http.StatusOK, "", "certificate"},
		{"another fingerprint", []string{"--ui-certificate-fingerprint", strings.Repeat("0", 64)}, http.StatusOK, "", "not the one that was named"},
		{"led elsewhere", []string{"--ui-certificate-authority", ca}, http.StatusOK, thief.URL, "answers 302"},
		{"no TLS", []string{"--ui", "http://127.0.0.1:1"}, http.StatusOK, "", "is no address that begins with https://"},
		{"nobody there", []string{"--ui", "https://127.0.0.1:1"}, http.StatusOK, "", "ask the role ui: "},
	} {
		answers, elsewhere = c.code, c.to
		if _, notes, err := run(c.args...); err == nil || !strings.Contains(notes, c.says) || !strings.Contains(err.Error(), "127.0.0.1:1") {
			t.Errorf("%s: %s, %v", c.name, notes, err)
		}
	}
}

// TestGangListAsksTheRole: with an address of the role, the list is its, in the scheduler's own view, and has when gangs start where that is forecast; a shard that is away is told of. Filters hold as without it. Where
// the role gives no answer that is said, and the command looks itself.
func TestGangListAsksTheRole(t *testing.T) {
	code := http.StatusOK
	role := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/apis/see.muster.dev/v1/gangs" || r.FormValue("namespace") != "team" {
			t.Errorf("asked for %s", r.URL)
		}
		w.WriteHeader(code)
		if code != http.StatusOK {
			_ = json.NewEncoder(w).Encode(ui.Refused{Kind: "Refusal", Message: "no room at all"})
			return
		}
		_ = json.NewEncoder(w).Encode(ui.List{Kind: "List", Items: []any{
			see.GangList{Kind: "GangList", Cycle: see.Origin{Scheduler: true}, Items: []see.GangLine{
				{Namespace: "team", Gang: "runs", Queue: "q", Phase: explain.Running, Pods: explain.Pods{Running: 1, Needed: 1}, AgeSeconds: 7200},
				{
					Namespace: "team", Gang: "waits", Queue: "q", Phase: explain.Pending, Pods: explain.Pods{Pending: 2, Needed: 2}, AgeSeconds: 60, Word: explain.Blocked, Reason: "OverLimit",
					Message: "queue q: asks for 16 gpu", Start: &see.Expected{Band: "14:20 to 17:00"},
				},
			}},
			ui.Refused{Kind: "Refusal", Object: `shard "gold"`, Message: "no cycle of the scheduler is known"},
		}})
	}))
	defer role.Close()
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(kubeconfig, []byte(`{apiVersion: v1, kind: Config, current-context: c, clusters: [{name: c, cluster: {server: "https://127.0.0.1:1"}}],
users: [{name: u, user: {token: janes}}], contexts: [{name: c, context: {cluster: c, user: u, namespace: team}}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	print := sha256.Sum256(role.Certificate().Raw)
	run := func(args ...string) (string, string, error) {
		root := &cobra.Command{Use: "muster", SilenceUsage: true, SilenceErrors: true}
		root.AddCommand(New(Deps{Version: "v1", Registry: func(bool) engine.Registry { return builtin.Registry() }})...)
		var out, notes bytes.Buffer
		root.SetOut(&out)
		root.SetErr(&notes)
		root.SetArgs(append([]string{"gang", "list", "--kubeconfig", kubeconfig, "--ui", role.URL, "--ui-certificate-fingerprint", hex.EncodeToString(print[:])}, args...))
		err := root.ExecuteContext(t.Context())
		return out.String(), notes.String(), err
	}
	const away = "shard \"gold\": no cycle of the scheduler is known\n"
	out, notes, err := run()
	want := "NAME   QUEUE  PRIO  RUN  PEND  MIN  AGE  STARTS (UTC)    REASON\nruns   q         0    1     0    1   2h\nwaits  q         0    0     2    2  60s  14:20 to 17:00  queue q: asks for 16 gpu\n"
	if out != want || notes != away || err != nil {
		t.Errorf("%s%s%v", out, notes, err)
	}
	if out, _, err := run("--pending"); err != nil || strings.Contains(out, "runs") || !strings.Contains(out, "waits") {
		t.Errorf("those that wait: %v %s", err, out)
	}
	var gangs []GangReport
	if out, _, err := run("-o", "json", "--queue", "q"); err != nil || json.Unmarshal([]byte(out), &gangs) != nil || len(gangs) != 2 || gangs[1].Word != explain.Blocked || gangs[1].Start.Band != "14:20 to 17:00" {
		t.Errorf("as JSON: %v %s", err, out)
	}
	code = http.StatusTooManyRequests
	if _, notes, err := run(); err == nil || !strings.Contains(notes, "the role ui says: no room at all\nlooking at the cluster itself") {
		t.Errorf("refused: %s, %v", notes, err)
	}
}

// TestVersion: the command says which version this is, also to programs.
func TestVersion(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{"version": "muster v1, go", "version -o json": `"version": "v1"`, "version -o x": "error"} {
		root := &cobra.Command{Use: "muster", SilenceUsage: true, SilenceErrors: true}
		root.AddCommand(newVersion(Deps{Version: "v1"}))
		var out bytes.Buffer
		root.SetOut(&out)
		root.SetErr(&out)
		root.SetArgs(strings.Fields(args))
		err := root.Execute()
		if text := out.String(); (err != nil) != (want == "error") || err == nil && !strings.Contains(text, want) {
			t.Errorf("%s: %v %s", args, err, text)
		}
	}
}
