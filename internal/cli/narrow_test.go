package cli

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-scheduler/muster/api/kai/keys"
	"github.com/muster-scheduler/muster/api/scheduling/v2alpha2"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/engine/builtin"
)

// editor is an API server that lets its user read the PodGroups of namespace team, and nothing else.
func editor(t *testing.T) (kubeconfig string) {
	t.Helper()
	answer := func(w http.ResponseWriter, status int, what any) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		if err := json.NewEncoder(w).Encode(what); err != nil {
			t.Error(err)
		}
	}
	group := metav1.GroupVersionForDiscovery{GroupVersion: "scheduling.run.ai/v2alpha2", Version: "v2alpha2"}
	pg := func(name, message string) v2alpha2.PodGroup {
		g := v2alpha2.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name}, Spec: v2alpha2.PodGroupSpec{Queue: "vision"}}
		if message != "" {
			g.OwnerReferences = []metav1.OwnerReference{{Kind: "Job", Name: "train"}}
			g.Status.SchedulingConditions = []v2alpha2.SchedulingCondition{{
				Type: v2alpha2.UnschedulableOnNodePool, Status: v1.ConditionTrue, Message: message,
				Reasons: v2alpha2.UnschedulableExplanations{{Reason: "BindFailedRecently"}},
			}}
		}
		return g
	}
	noted := pg("noted", "")
	noted.Annotations = map[string]string{keys.WhyAnnotation: `{"apiVersion":"see.muster.dev/v1","at":"2026-01-02T03:04:05Z","word":"blocked","reason":"OverLimit","message":"asks for 16 gpu","turn":{"position":3,"of":9},"remedies":[{"by":"queue owner","changes":["raise the gpu limit of queue vision"],"evicts":2}],"starts":{"at":"2026-01-02T03:00:00Z","band":"14:20 to 17:00","text":"between 14:20 and 17:00 (8 in 10), if no more work comes."}}`}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/version":
			answer(w, 200, map[string]string{"major": "1", "minor": "36", "gitVersion": "v1.36.0"})
		case "/api":
			answer(w, 200, metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions", APIVersion: "v1"}, Versions: []string{"v1"}})
		case "/apis":
			answer(w, 200, metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}, Groups: []metav1.APIGroup{{Name: "scheduling.run.ai", Versions: []metav1.GroupVersionForDiscovery{group}, PreferredVersion: group}}})
		case "/api/v1":
			answer(w, 200, metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: "v1", APIResources: []metav1.APIResource{{Name: "nodes", Kind: "Node"}, {Name: "pods", Kind: "Pod", Namespaced: true}}})
		case "/apis/scheduling.run.ai/v2alpha2":
			answer(w, 200, metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: group.GroupVersion, APIResources: []metav1.APIResource{{Name: "podgroups", Kind: "PodGroup", Namespaced: true}}})
		case "/apis/scheduling.run.ai/v2alpha2/namespaces/team/podgroups":
			answer(w, 200, v2alpha2.PodGroupList{TypeMeta: metav1.TypeMeta{Kind: "PodGroupList", APIVersion: group.GroupVersion}, Items: []v2alpha2.PodGroup{pg("pg-train-1", "the last attempt to place team/train-0 failed"), pg("runs", ""), noted}})
		default:
			resource := r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]
			answer(w, 403, metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Failure", Reason: metav1.StatusReasonForbidden, Code: 403, Message: resource + ` is forbidden: User "jane" cannot list resource "` + resource + `" in API group "" at the cluster scope`})
		}
	}))
	t.Cleanup(s.Close)
	file := filepath.Join(t.TempDir(), "kubeconfig")
	text := `{"apiVersion":"v1","kind":"Config","current-context":"c","clusters":[{"name":"c","cluster":{"server":"` + s.URL + `"}}],"contexts":[{"name":"c","context":{"cluster":"c","namespace":"team"}}]}`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestNarrow: who may read only the PodGroups of his own namespace is told what the scheduler says of his gangs and in which queues they wait, and which one
// right is missing for more; what needs the whole cluster is refused by that right alone.
func TestNarrow(t *testing.T) {
	t.Parallel()
	file := editor(t)
	for line, want := range map[string][]string{
		"gang list":                   {"pg-train-1", "the last attempt to place", "runs", "you may not list "},
		"gang list --pending -o json": {`"reason": "BindFailedRecently"`, `"missingRight": "list `},
		"explain train":               {"Job train (gang team/pg-train-1): queue vision", "the last attempt to place team/train-0 failed [BindFailedRecently]", "you may not list "},
		"explain noted":               {"gang team/noted: blocked; queue vision, as the scheduler wrote at 2026-01-02T03:04:05Z", "why: asks for 16 gpu [OverLimit]", "turn: 3 of 9", "starts between 14:20 and 17:00 (8 in 10), if no more work comes.", "(queue owner):", "  - raise the gpu limit of queue vision", "2 pods", "you may not list "},
		"explain noted -o json":       {`"word": "blocked"`, `"raise the gpu limit of queue vision"`},
		"explain gang runs":           {"does not say that it waits"},
		"explain trian":               {"there is no gang trian in namespace team"},
		"explain train -n other":      {"you may not list podgroups at the cluster scope"},
		"queue list":                  {"As the gangs of namespace team have it", "vision", "3", "1", "BindFailedRecently 1", "you may not list "},
		"queue list -o json":          {`"queue": "vision"`, `"gangs": 3`, `"waiting": 1`, `"missingRight": "list `},
		"status":                      {"As the gangs of namespace team have it", "vision", "BindFailedRecently 1", "you may not list "},
		"gang list -A":                {"you may not list "},
	} {
		root := &cobra.Command{Use: "muster", SilenceUsage: true, SilenceErrors: true}
		root.AddCommand(New(Deps{Version: "test", Registry: func(bool) engine.Registry { return builtin.Registry() }})...)
		var out bytes.Buffer
		root.SetOut(&out)
		root.SetArgs(append(strings.Fields(line), "--kubeconfig", file))
		if err := root.ExecuteContext(t.Context()); err != nil {
			out.WriteString(err.Error())
		}
		for _, text := range want {
			if !strings.Contains(out.String(), text) {
				t.Errorf("muster %s: %q is not in\n%s", line, text, out.String())
			}
		}
		if n := strings.Count(out.String(), "may not list"); n > 1 {
			t.Errorf("muster %s: %d rights are named:\n%s", line, n, out.String())
		}
		if strings.Contains(line, "--pending") && strings.Contains(out.String(), "runs") {
			t.Errorf("muster %s: one that runs is among them", line)
		}
	}
}
