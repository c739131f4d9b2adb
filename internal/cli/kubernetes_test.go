package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/version"

	"github.com/muster-scheduler/muster/internal/kube/served"
)

// TestDebugKubernetes: what an API server lacks is told with what follows from it.
func TestDebugKubernetes(t *testing.T) {
	t.Parallel()
	info := version.Info{Major: "1", Minor: "36", GitVersion: "v1.36.3", EmulationMajor: "1", EmulationMinor: "35"}
	without := map[string]bool{"topology.node.k8s.io/v1alpha2": true}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		gv := strings.TrimPrefix(r.URL.Path, "/apis/")
		var answer any = &info
		if r.URL.Path != "/version" {
			if without[gv] {
				w.WriteHeader(http.StatusNotFound)
			}
			list := &metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: gv}
			for _, n := range served.Needs() {
				for _, k := range n.Kinds {
					if k.GroupVersion().String() == gv {
						list.APIResources = append(list.APIResources, metav1.APIResource{Kind: k.Kind})
					}
				}
			}
			answer = list
		}
		if err := json.NewEncoder(w).Encode(answer); err != nil {
			t.Error(err)
		}
	}))
	defer server.Close()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf(`{apiVersion: v1, kind: Config, current-context: c, clusters: [{name: c, cluster: {server: %q}}],
users: [{name: u, user: {}}], contexts: [{name: c, context: {cluster: c, user: u}}]}`, server.URL)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	run := func(args ...string) string {
		t.Helper()
		c := newDebug(Deps{Version: "v1"})
		var out bytes.Buffer
		c.SetOut(&out)
		c.SilenceUsage, c.SilenceErrors = true, true
		c.SetArgs(append([]string{"kubernetes", "--kubeconfig", file}, args...))
		if err := c.Execute(); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	got := run()
	for _, want := range []string{
		"Kubernetes v1.36.3, which behaves like 1.35\n", "DRAExtendedResource", "OFF by default", "with plugin numa",
		"Without DRADeviceTaints drivers cannot taint devices", "Without noderesourcetopologies.topology.node.k8s.io the plugin numa knows no zones",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not in:\n%s", want, got)
		}
	}
	if strings.Contains(got, "Without resourceclaims") {
		t.Errorf("what is there is said to be lost:\n%s", got)
	}
	var report ServerReport
	if err := json.Unmarshal([]byte(run("-o", "json")), &report); err != nil || report.BehavesLike != "1.35" || len(report.Needs) != len(served.Needs()) {
		t.Errorf("%+v, %v", report, err)
	}
	info.EmulationMajor, info.EmulationMinor, without = "", "", nil
	if got := run(); strings.Contains(got, "Without") || !strings.HasPrefix(got, "Kubernetes v1.36.3\n") {
		t.Errorf("nothing is lacking, but:\n%s", got)
	}
}
