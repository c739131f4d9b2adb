package roles

import (
	"context"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"net"
	"net/http"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// What a process of the control plane serves, and to whom. Whatever is not health and not metrics is served to this machine alone,
// or guarded: by TLS and by answering nothing but what it was asked about (webhooks keep no secret and change nothing).
var (
	// listeners are the places of the tree that open a port, and what for.
	listeners = map[string]string{
		"internal/app/server.go: net.Listen":                       "Listen: health and metrics",
		"internal/app/local.go: net.Listen":                        "ListenLocal: the loopback",
		"internal/roles/ports.go: app.Listen":                      "health and metrics",
		"internal/roles/ports.go: app.ListenLocal":                 "the profiler, and what the scheduler remembers",
		"internal/roles/cycles.go: app.Listen":                     "the scheduler's cycles, by TLS, for who has a token and the right to get /cycle; off by default",
		"internal/roles/ui.go: app.Listen":                         "why work waits, by TLS, for who has a token, within what he may read; a role of its own, off by default",
		"internal/cli/ui.go: app.ListenLocal":                      "muster ui: the loopback of a person's own machine, for who knows a secret; ui.TestLocal",
		"internal/controllers/admission/controller.go: net.Listen": "webhooks",
		"internal/vm/network/links.go: dhcp.Listen":                "muster-vm: a packet socket on taps in a pod's own network namespace; only the pod's guest is heard",
		"internal/vm/ctl/ctl.go: net.Listen":                       "muster-vm ctl vnc: the loopback of a person's own host",
		"internal/vm/diag/serve.go: socket.Listen":                 "muster-vm: what a process tells of itself, a file for root alone",
		"internal/vm/network/run.go: socket.Listen":                "muster-vm: the socket that hands out taps; anybody on the node may connect, and the kernel and a token say who does",
		"internal/vm/node/run.go: socket.Listen":                   "muster-vm: the socket of its CRI, a file for root alone",
		"internal/vm/proxy/run.go: socket.Listen":                  "muster-vm: the kubelet's endpoint, a file of the mode that its settings say",
		"internal/trial/sim.go: new(net.ListenConfig).Listen":      "muster-lab sim fairshare --listen: a calculator for a user, at the address the user names",
	}
	// public are the patterns that are answered beyond this machine; they must stay so few.
	public = []string{
		"internal/app/server.go: GET /metrics",
		"internal/controllers/admission/server.go: POST ",
		"internal/cycles/server.go: GET /cycle",    // for who has the right; cycles.TestWhoMayFollow
		"internal/cycles/server.go: POST /outlook", // likewise, and words alone come of it; cycles.TestTold
		// For who has the rights, within his scope: ui.TestWhoSeesWhat. The last three, and the files, answer everybody, and know nothing.
		"internal/ui/serve.go: GET ", "internal/ui/pages.go: GET /{$}", "internal/ui/pages.go: GET /job/{namespace}/{name...}", "internal/ui/pages.go: GET /queues", "internal/ui/pages.go: GET /gpus",
		"internal/ui/pages.go: GET /",       // style.css, live.js, icon.svg
		"internal/ui/pages.go: GET /events", // that a cycle came, and nothing of it, for who has a token; ui.TestNews
		"internal/ui/pages.go: POST /login", "internal/ui/pages.go: POST /logout",
		// Likewise, of what was decided and of what-ifs: ui.TestWhoSeesWhatOfThePast, ui.TestWhatIf.
		"internal/ui/serve.go: POST ", "internal/ui/recordpages.go: GET /decisions", "internal/ui/recordpages.go: GET /cycle/{number}", "internal/ui/recordpages.go: GET /ledger", "internal/ui/recordpages.go: GET /alerts",
		"internal/ui/recordpages.go: GET /what-if", "internal/ui/recordpages.go: POST /what-if",
		"internal/sim/serve.go: /simulate", // of muster-lab sim fairshare --listen; it knows nothing but the question
	}
	// local are the files whose other patterns are served on the loopback only, which TestLocalOnly tries.
	local = []string{"internal/app/server.go", "internal/roles/ports.go"}
	// sockets are the files whose patterns are served at a unix socket of this process's user alone, which tests of theirs see.
	sockets = []string{"internal/vm/diag/serve.go"}
)

// TestListeners finds every place that opens a port and every pattern that is served, in all the code that cmd/muster is made of.
func TestListeners(t *testing.T) {
	t.Parallel()
	found := map[string]bool{}
	const root = "../.."
	for _, dir := range []string{"internal", "cmd/muster"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, d fs.DirEntry, err error) error {
			name, _ := filepath.Rel(root, path)
			name = filepath.ToSlash(name)
			switch {
			case err != nil:
				return err
			case d.IsDir() && (name == "internal/lab" || d.Name() == "testdata" || strings.HasSuffix(d.Name(), "test")):
				return fs.SkipDir
			case d.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go"):
				return nil
			}
			return inspect(path, name, found, func(pattern string) {
				entry := name + ": " + pattern
				switch {
				case slices.Contains(public, entry), slices.Contains(local, name), slices.Contains(sockets, name):
				default:
					t.Errorf("%s is served, and by whom it may be asked is not decided: serve it with app.Local on app.ListenLocal, or ask for a token", entry)
				}
			})
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	want := map[string]bool{}
	for place := range listeners {
		want[place] = true
	}
	if d := cmp.Diff(want, found); d != "" {
		t.Errorf("the places that open a port (-known +found):\n%s", d)
	}
}

// inspect reads one file.
func inspect(path, name string, listens map[string]bool, serves func(pattern string)) error {
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
	if err != nil {
		return err
	}
	ast.Inspect(file, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		sel, ok := call.Fun.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		switch verb := sel.Sel.Name; {
		case verb == "Listen" || verb == "ListenLocal" || verb == "ListenTCP" || strings.HasPrefix(verb, "ListenAndServe"):
			listens[name+": "+expression(sel)] = true
		case (verb == "Handle" || verb == "HandleFunc") && len(call.Args) == 2:
			pattern := "?"
			ast.Inspect(call.Args[0], func(n ast.Node) bool { // the first literal of "GET " + path
				if l, ok := n.(*ast.BasicLit); ok && pattern == "?" {
					pattern = strings.Trim(l.Value, "\"`")
				}
				return true
			})
			serves(pattern)
		}
		return true
	})
	return nil
}

func expression(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return expression(e.X) + "." + e.Sel.Name
	case *ast.CallExpr:
		if len(e.Args) == 1 {
			return expression(e.Fun) + "(" + expression(e.Args[0]) + ")"
		}
	}
	return fmt.Sprintf("%T", e)
}

// TestLocalOnly asks a process of all roles, with everything on, for everything, at every port it has opened: beyond this machine there
// are health and metrics, and webhooks behind TLS.
func TestLocalOnly(t *testing.T) {
	t.Parallel()
	server := newPlane(t, true)
	plugins, profiler := freePort(t), freePort(t)
	_, log, _ := launch(t, All, "--kubeconfig="+server.kubeconfig(), "--v=1", "--admission", "--webhook-addr=0",
		"--listen-address=:0", "--health-probe-bind-address=0", "--enable-profiler",
		fmt.Sprintf("--plugin-server-port=%d", plugins), fmt.Sprintf("--profiler-port=%d", profiler))
	server.await(begins(All))
	address := func(message string) string {
		pattern := regexp.MustCompile(message + `"? .*address=(\S+)`)
		for limit := time.After(20 * time.Second); ; {
			if found := pattern.FindStringSubmatch(log.String()); found != nil {
				return found[1]
			}
			select {
			case <-time.After(10 * time.Millisecond):
			case <-limit:
				t.Fatalf("nothing says %q:\n%s", message, log)
			}
		}
	}
	paths := []string{
		"/", "/metrics", "/healthz", "/readyz", "/healthz/cache", "/debug/pprof/", "/debug/pprof/heap", "/debug/pprof/cmdline", "/debug/vars",
		"/decisions", "/get-snapshot", "/get-job-order", "/explain", "/snapshot", "/config", "/flags",
	}
	for _, place := range []struct {
		message string
		local   bool
		answers []string // paths with another answer than "not found"
	}{
		{"msg=serving", false, []string{"/metrics", "/healthz", "/readyz"}},
		{"telling decisions", true, []string{"/decisions", "/get-snapshot", "/snapshot"}},
		{"profiling", true, []string{"/healthz", "/readyz", "/debug/pprof/", "/debug/pprof/heap", "/debug/pprof/cmdline"}},
	} {
		_, port, err := net.SplitHostPort(address(place.message))
		if err != nil {
			t.Fatal(err)
		}
		var answered []string
		for _, path := range paths {
			if code := ask(t, port, "localhost", path); code != http.StatusNotFound {
				answered = append(answered, path)
			}
			// A page of another name that leads here.
			if code := ask(t, port, "evil.example", path); place.local && code != http.StatusForbidden {
				t.Errorf("%s: %s is answered %d under a foreign name", place.message, path, code)
			}
		}
		if d := cmp.Diff(place.answers, answered); d != "" {
			t.Errorf("%s answers (-want +got):\n%s", place.message, d)
		}
		if host, _, _ := net.SplitHostPort(address(place.message)); place.local != net.ParseIP(host).IsLoopback() {
			t.Errorf("%s listens on %s", place.message, host)
		}
	}
	_, port, err := net.SplitHostPort(address("serving webhooks"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths { // plain HTTP gets nothing; TLS has no certificate before the API server has given one
		if code := ask(t, port, "localhost", path); code != 0 && code != http.StatusBadRequest {
			t.Errorf("webhooks: %s is answered %d without TLS", path, code)
		}
	}
}

// ask sends a GET to a port of this machine under a host name, and returns the status, 0 for no answer.
func ask(t *testing.T, port, host, path string) int {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://127.0.0.1:"+port+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Host = host
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0
	}
	resp.Body.Close()
	return resp.StatusCode
}
