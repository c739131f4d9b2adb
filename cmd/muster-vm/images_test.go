package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/go-logr/logr"

	"github.com/muster-scheduler/muster/internal/vm/config/cluster"
)

// TestImageMappings: VirtletImageMapping objects of an API server become the image store's mappings, by name; a bad one is named and hinders no other; while the
// server fails, what it said before counts.
func TestImageMappings(t *testing.T) {
	t.Parallel()
	items := `{"metadata":{"name":"b"},"spec":{"translations":[{"regexp":"fedora/(.*)","url":"https://h/$1","transport":"slow"}],"transports":{"slow":{"timeout":5}}}},
		{"metadata":{"name":"a"},"spec":{"prefix":"lab","translations":[{"name":"cirros","url":"http://u"}]}},
		{"metadata":{"name":"odd"},"spec":{"translations":[{"name":"x","regexp":"y","url":"ftp://u"}]}},
		{"metadata":{"name":"typo"},"spec":{"translation":[]}}`
	away := make(chan bool, 1)
	away <- false
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		now := <-away
		away <- now
		if r.URL.Path != "/apis/virtlet.k8s/v1/namespaces/kube-system/virtletimagemappings" || now {
			http.Error(w, "not now", http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"apiVersion":"virtlet.k8s/v1","kind":"VirtletImageMappingList","metadata":{},"items":[%s]}`, strings.ReplaceAll(items, `{"metadata"`, `{"apiVersion":"virtlet.k8s/v1","kind":"VirtletImageMapping","metadata"`))
	}))
	defer s.Close()
	kubeconfig := filepath.Join(t.TempDir(), "config")
	text := fmt.Sprintf("{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c, user: u}}], clusters: [{name: c, cluster: {server: %q}}], users: [{name: u, user: {}}]}", s.URL)
	if err := os.WriteFile(kubeconfig, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	client, err := clusterAt(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	from := &cluster.Images{From: client}
	for _, gone := range []bool{false, true} {
		<-away
		away <- gone
		got, err := imageMappings(t.Context(), from, logr.Discard())
		if len(got) != 2 || got[0].Prefix != "lab" || got[0].Translations[0].URL != "http://u" || got[1].Name != "VirtletImageMapping b" || got[1].Transports["slow"].TimeoutMilliseconds != 5 {
			t.Errorf("away %t: %+v", gone, got)
		}
		for _, want := range []string{"VirtletImageMapping odd", "translations[0]: must have either name or regexp", "translations[0].url", "VirtletImageMapping typo", `unknown field "translation"`} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("away %t: no %s in: %v", gone, want, err)
			}
		}
	}
	if _, err := clusterAt(filepath.Join(t.TempDir(), "none")); err == nil || !strings.Contains(err.Error(), "--kubeconfig") {
		t.Error(err)
	}
}

// TestKubeconfigReachesRuntime: up's cluster is asked by the runtime, and by no other process.
func TestKubeconfigReachesRuntime(t *testing.T) {
	t.Parallel()
	for _, one := range (&places{dir: "/d", kubeconfig: "/k"}).processes("/self", "/wrap", 1) {
		if has := slices.Contains(one.Argv, "--kubeconfig=/k"); has != (one.Name == "runtime") {
			t.Errorf("%s: %v", one.Name, one.Argv)
		}
	}
	for _, one := range (&places{dir: "/d"}).processes("/self", "/wrap", 1) {
		if strings.Contains(strings.Join(one.Argv, " "), "--kubeconfig") {
			t.Errorf("%s: %v", one.Name, one.Argv)
		}
	}
}
