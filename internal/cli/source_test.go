package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-scheduler/muster/internal/replay"
)

// clusterNamed is an API server whose namespace kube-system has that UID, as a kubeconfig.
func clusterNamed(t *testing.T, uid types.UID) string {
	t.Helper()
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/api/v1/namespaces/kube-system" {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(w).Encode(&v1.Namespace{TypeMeta: metav1.TypeMeta{Kind: "Namespace", APIVersion: "v1"}, ObjectMeta: metav1.ObjectMeta{Name: "kube-system", UID: uid}}); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(api.Close)
	file := filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf(`{apiVersion: v1, kind: Config, current-context: c, clusters: [{name: c, cluster: {server: %q}}],
users: [{name: u, user: {}}], contexts: [{name: c, context: {cluster: c, user: u}}]}`, api.URL)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestAnotherClustersScheduler: a scheduler of another cluster than the kubeconfig's is not taken for the one that is meant, whatever it is
// asked for; who names it, and no cluster, is told. A file says which cluster it is of.
func TestAnotherClustersScheduler(t *testing.T) {
	address, _ := recorder(t)
	behind := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: address})
	scheduler := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set(replay.ClusterHeader, "town")
		if r.URL.Path == "/store" {
			fmt.Fprint(w, "{}")
			return
		}
		behind.ServeHTTP(w, r)
	}))
	defer scheduler.Close()
	ours, theirs := clusterNamed(t, "town"), clusterNamed(t, "village")
	file := filepath.Join(t.TempDir(), "f")
	server := strings.TrimPrefix(scheduler.URL, "http://")
	call := func(args ...string) (string, string, error) {
		root := &cobra.Command{Use: "muster", SilenceUsage: true, SilenceErrors: true}
		root.AddCommand(NewReplay(Deps{Version: "v1"})...)
		var out, notes bytes.Buffer
		root.SetOut(&out)
		root.SetErr(&notes)
		root.SetArgs(append(args, "--server", server))
		err := root.ExecuteContext(t.Context())
		return out.String(), notes.String(), err
	}
	for _, command := range [][]string{{"snapshot", "save", file}, {"snapshot", "list"}, {"debug", "store"}} {
		_, notes, err := call(append(command, "--kubeconfig", theirs)...)
		if err == nil || !strings.Contains(err.Error(), server+" is of another cluster (town) than the one of the kubeconfig (village, http://127") {
			t.Errorf("%q with another's kubeconfig: %v %s", command, err, notes)
		}
		if _, err := os.Stat(file); err == nil {
			t.Fatalf("%q wrote a file of another cluster", command)
		}
		t.Setenv("KUBECONFIG", theirs)
		if _, notes, _ = call(command...); !strings.Contains(notes, "another cluster (town)") {
			t.Errorf("%q by address: %s", command, notes)
		}
		t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
		if _, notes, _ = call(command...); !strings.Contains(notes, "is of cluster town; whether") {
			t.Errorf("%q without a kubeconfig: %s", command, notes)
		}
		_ = os.Remove(file) // it may not be there
		if _, notes, err = call(append(command, "--kubeconfig", ours)...); err != nil || notes != "" {
			t.Errorf("%q with the right kubeconfig: %v %s", command, err, notes)
		}
		if command[1] == "save" {
			out, err := run(t, "replay", file)
			if !strings.Contains(out, ", cluster town\n") {
				t.Errorf("%s %v", out, err)
			}
			_ = os.Remove(file) // it may not be there
		}
	}
}
