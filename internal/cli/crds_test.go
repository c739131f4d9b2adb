package cli

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/muster-scheduler/muster/api/crds"
	kubebatchcrds "github.com/muster-scheduler/muster/api/kubebatch/crds"
	volcanocrds "github.com/muster-scheduler/muster/api/volcano/crds"
)

// crdServer is as much of an API server as applying CRDs takes; it answers with the code, and notes what is written.
type crdServer struct {
	*httptest.Server
	mu     sync.Mutex
	writes []string
}

func newCRDServer(t *testing.T, code int) (*crdServer, string) {
	t.Helper()
	s := &crdServer{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		body, err := io.ReadAll(r.Body)
		if err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		answer := func(o any) { _ = json.NewEncoder(w).Encode(o) }
		group := map[string]any{"groupVersion": "apiextensions.k8s.io/v1", "version": "v1"}
		switch {
		case r.Method == http.MethodPatch:
			s.mu.Lock()
			defer s.mu.Unlock()
			s.writes = append(s.writes, r.Header.Get("Content-Type")+" "+r.URL.Path+"?"+r.URL.RawQuery)
			if code != http.StatusOK {
				w.WriteHeader(code)
				answer(map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Forbidden", "code": code, "message": "not for you"})
				return
			}
			_, _ = w.Write(body)
		case r.URL.Path == "/apis":
			answer(map[string]any{"kind": "APIGroupList", "apiVersion": "v1", "groups": []any{map[string]any{"name": "apiextensions.k8s.io", "versions": []any{group}, "preferredVersion": group}}})
		case strings.HasPrefix(r.URL.Path, "/apis/apiextensions.k8s.io"):
			answer(map[string]any{"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "apiextensions.k8s.io/v1", "resources": []any{
				map[string]any{"name": "customresourcedefinitions", "kind": "CustomResourceDefinition", "namespaced": false, "verbs": []string{"patch"}},
			}})
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	t.Cleanup(s.Close)
	file := filepath.Join(t.TempDir(), "kubeconfig")
	text := `{"apiVersion": "v1", "kind": "Config", "current-context": "x", "contexts": [{"name": "x", "context": {"cluster": "x"}}], "clusters": [{"name": "x", "cluster": {"server": "` + s.URL + `"}}]}`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return s, file
}

// TestCRDs: printed are all of them, and applied are all of them, on the server, over whoever managed their fields; the first refusal ends
// it and names the CRD.
func TestCRDs(t *testing.T) {
	t.Parallel()
	run := func(args ...string) (string, error) {
		c := NewCRDs(Deps{Version: "v"})
		var out bytes.Buffer
		c.SetOut(&out)
		c.SetErr(&out)
		c.SilenceUsage, c.SilenceErrors = true, true
		c.SetArgs(args)
		err := c.Execute()
		return out.String(), err
	}
	printed, err := run()
	if n := strings.Count(printed, "\nkind: CustomResourceDefinition\n"); err != nil || n != len(crds.All()) || strings.Count(printed, "---\n") != n {
		t.Errorf("%d are printed: %v", n, err)
	}
	good, file := newCRDServer(t, http.StatusOK)
	told, err := run("apply", "--kubeconfig="+file)
	if err != nil || strings.Count(told, "applied ") != len(crds.All()) {
		t.Errorf("%s%v", told, err)
	}
	const want = "application/apply-patch+yaml /apis/apiextensions.k8s.io/v1/customresourcedefinitions/queues.scheduling.run.ai?fieldManager=muster-crds&force=true"
	if len(good.writes) != len(crds.All()) || !slices.ContainsFunc(good.writes, func(w string) bool { return strings.HasPrefix(w, want) }) {
		t.Errorf("%q, want %s among them", good.writes, want)
	}
	both, file := newCRDServer(t, http.StatusOK)
	printed, err = run("--volcano", "--kube-batch")
	told, errs := run("apply", "--volcano", "--kube-batch", "--kubeconfig="+file)
	all := len(crds.All()) + len(volcanocrds.All()) + len(kubebatchcrds.All())
	if n := strings.Count(printed, "\nkind: CustomResourceDefinition\n"); err != nil || errs != nil || n != all || strings.Count(printed, "---\n") != n || strings.Count(told, "applied ") != n || len(both.writes) != n {
		t.Errorf("with those of other faces: %d are printed, %s; want %d: %v, %v", n, told, all, err, errs)
	}
	bad, file := newCRDServer(t, http.StatusForbidden)
	if _, err := run("apply", "--kubeconfig="+file); err == nil || !strings.Contains(err.Error(), "apply the CustomResourceDefinition configs.kai.scheduler") || len(bad.writes) != 1 {
		t.Errorf("%v, %q", err, bad.writes)
	}
}
