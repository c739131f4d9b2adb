package kubetest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
)

// step is a request of the table, and what is told of its answer.
type step struct {
	method, path, body string
	// want is the status code, then what show tells. UIDs and versions in bodies and answers are names: $NAME in a body is what an earlier
	// step has stored under the name.
	want string
	// as stores UID and resourceVersion of the answer under $NAME.uid and $NAME.version.
	as string
	// show are paths into the answer, "metadata.generation".
	show []string
}

const (
	merge     = string(types.MergePatchType)
	jsonPatch = string(types.JSONPatchType)
	strategic = string(types.StrategicMergePatchType)
	applyYAML = string(types.ApplyYAMLPatchType)

	pods    = "/api/v1/namespaces/default/pods"
	groups  = "/apis/scheduling.run.ai/v2alpha2/namespaces/default/podgroups"
	queues  = "/apis/scheduling.run.ai/v2/queues"
	configs = "/api/v1/namespaces/default/configmaps"
)

func podBody(name, more string) string {
	return fmt.Sprintf(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":%q,"labels":{"app":%q}},"spec":{"containers":[{"name":"c","image":"registry.example/x"}]%s}}`, name, name, more)
}

// requests is what roles ask of an API server. A method that patches carries the patch's type.
func requests() []step {
	return []step{
		// Objects are made once, with what the server gives.
		{method: "POST", path: queues, body: `{"apiVersion":"scheduling.run.ai/v2","kind":"Queue","metadata":{"name":"q"},"spec":{},"status":{"childQueues":["lie"]}}`, as: "q", show: []string{"metadata.generation", "status.childQueues"}, want: "201 1 -"},
		{method: "POST", path: queues, body: `{"apiVersion":"scheduling.run.ai/v2","kind":"Queue","metadata":{"name":"q"},"spec":{}}`, want: "409 AlreadyExists"},
		{method: "GET", path: queues + "/nobody", want: "404 NotFound"},
		{method: "GET", path: "/apis/nobody.example/v1/things", want: "404 -"},
		{method: "POST", path: "/api/v1/namespaces/nowhere/configmaps", body: `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"m"}}`, want: "404 NotFound"},
		{method: "POST", path: configs, body: `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"old","resourceVersion":"7"}}`, want: "500 -"},
		{method: "POST", path: configs, body: `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":"kube-system","name":"m"}}`, want: "400 BadRequest"},

		// The status is apart from the rest.
		{method: merge, path: queues + "/q", body: `{"metadata":{"annotations":{"a":"1"}},"status":{"childQueues":["lie"]}}`, show: []string{"metadata.generation", "metadata.annotations.a", "status.childQueues"}, want: "200 1 1 -"},
		{method: merge, path: queues + "/q", body: `{"spec":{"priority":5}}`, as: "q", show: []string{"metadata.generation", "spec.priority"}, want: "200 2 5"},
		{method: merge, path: queues + "/q/status", body: `{"metadata":{"annotations":{"a":"2"}},"spec":{"priority":6},"status":{"childQueues":["c"]}}`, show: []string{"metadata.generation", "metadata.annotations.a", "spec.priority", "status.childQueues"}, want: "200 2 1 5 [c]"},
		{method: merge, path: queues + "/q/status", body: `{"metadata":{"uid":"another"},"status":{"childQueues":["d"]}}`, show: []string{"status.childQueues"}, want: "200 [d]"},

		// Optimistic concurrency: a version, a UID, a test.
		{method: merge, path: queues + "/q", body: `{"metadata":{"resourceVersion":"$q.version"},"spec":{"priority":7}}`, want: "409 Conflict"},
		{method: merge, path: queues + "/q", body: `{"metadata":{"uid":"another"},"spec":{"priority":7}}`, want: "422 Invalid metadata.uid"},
		{method: jsonPatch, path: queues + "/q/status", body: `[{"op":"test","path":"/metadata/uid","value":"another"},{"op":"add","path":"/status","value":{"childQueues":["e"]}}]`, want: "422 Invalid"},
		{method: jsonPatch, path: queues + "/q/status", body: `[{"op":"test","path":"/metadata/uid","value":"$q.uid"},{"op":"add","path":"/status","value":{"childQueues":["e"]}}]`, as: "q", show: []string{"status.childQueues"}, want: "200 [e]"},
		{method: merge, path: queues + "/q/status", body: `{"status":{"childQueues":["e"]}}`, as: "again", show: []string{"metadata.resourceVersion=$q.version"}, want: "200 true"},
		{method: "PUT", path: queues + "/q", body: `{"apiVersion":"scheduling.run.ai/v2","kind":"Queue","metadata":{"name":"q"},"spec":{}}`, want: "422 Invalid metadata.resourceVersion"},
		{method: "PUT", path: queues + "/q", body: `{"apiVersion":"scheduling.run.ai/v2","kind":"Queue","metadata":{"name":"q","resourceVersion":"1"},"spec":{}}`, want: "409 Conflict"},
		{method: "PUT", path: queues + "/q", body: `{"apiVersion":"scheduling.run.ai/v2","kind":"Queue","metadata":{"name":"other","resourceVersion":"$q.version"},"spec":{}}`, want: "400 BadRequest"},
		{method: "PUT", path: queues + "/q", body: `{"apiVersion":"scheduling.run.ai/v2","kind":"Queue","metadata":{"name":"q","resourceVersion":"$q.version"},"spec":{}}`, show: []string{"metadata.generation", "spec.priority", "status.childQueues"}, want: "200 3 - [e]"},
		{method: strategic, path: queues + "/q", body: `{"spec":{"priority":7}}`, want: "415 UnsupportedMediaType"},
		{method: merge, path: queues + "/nobody", body: `{"spec":{"priority":7}}`, want: "404 NotFound"},

		// Pods: strategic patches, and what of them a status patch may touch.
		{method: "POST", path: pods, body: podBody("p", `,"terminationGracePeriodSeconds":20`), as: "p", show: []string{"status.phase"}, want: "201 Pending"},
		{method: strategic, path: pods + "/p/status", body: `{"metadata":{"uid":"$p.uid"},"status":{"conditions":[{"type":"A","status":"True"}]}}`, show: []string{"status.conditions.0.type"}, want: "200 A"},
		{method: strategic, path: pods + "/p/status", body: `{"status":{"conditions":[{"type":"B","status":"False"},{"type":"A","status":"False"}]}}`, as: "p", show: []string{"status.conditions.0.type", "status.conditions.1.status"}, want: "200 B False"},
		{method: strategic, path: pods + "/p/status", body: `{"metadata":{"uid":"another"},"status":{"nominatedNodeName":"x"}}`, want: "422 Invalid metadata.uid"},
		{method: merge, path: pods + "/p/status", body: `{"metadata":{"labels":{"more":"1"}},"spec":{"schedulerName":"lie"}}`, show: []string{"metadata.labels.more"}, want: "200 1"},

		// Binding.
		{method: "POST", path: pods + "/p/binding", body: `{"apiVersion":"v1","kind":"Binding","metadata":{"name":"p","uid":"another"},"target":{"kind":"Node","name":"n"}}`, want: "409 Conflict"},
		{method: "POST", path: pods + "/p/binding", body: `{"apiVersion":"v1","kind":"Binding","metadata":{"name":"p","uid":"$p.uid","annotations":{"by":"us"}},"target":{"kind":"Node","name":"n"}}`, want: "201 -"},
		{method: "GET", path: pods + "/p", show: []string{"spec.nodeName", "metadata.annotations.by"}, want: "200 n us"},
		{method: "POST", path: pods + "/p/binding", body: `{"apiVersion":"v1","kind":"Binding","metadata":{"name":"p"},"target":{"kind":"Node","name":"m"}}`, want: "409 Conflict"},
		{method: "POST", path: pods + "/nobody/binding", body: `{"apiVersion":"v1","kind":"Binding","metadata":{"name":"nobody"},"target":{"kind":"Node","name":"m"}}`, want: "404 NotFound"},
		{method: "POST", path: pods, body: podBody("gated", `,"schedulingGates":[{"name":"example.org/g"}]`), want: "201 -"},
		{method: "POST", path: pods + "/gated/binding", body: `{"apiVersion":"v1","kind":"Binding","metadata":{"name":"gated"},"target":{"kind":"Node","name":"m"}}`, want: "409 Conflict"},

		// Deleting: demands, grace, finalizers.
		{method: "DELETE", path: pods + "/p", body: `{"apiVersion":"v1","kind":"DeleteOptions","preconditions":{"uid":"another"}}`, want: "409 Conflict"},
		{method: "DELETE", path: pods + "/p", body: `{"apiVersion":"v1","kind":"DeleteOptions","preconditions":{"resourceVersion":"1"}}`, want: "409 Conflict"},
		{method: "DELETE", path: pods + "/p", body: `{"apiVersion":"v1","kind":"DeleteOptions","preconditions":{"uid":"$p.uid"}}`, show: []string{"metadata.deletionGracePeriodSeconds"}, want: "200 20"},
		{method: "GET", path: pods + "/p", show: []string{"metadata.deletionGracePeriodSeconds"}, want: "200 20"},
		{method: "DELETE", path: pods + "/p", body: `{"apiVersion":"v1","kind":"DeleteOptions","gracePeriodSeconds":1}`, show: []string{"metadata.deletionGracePeriodSeconds"}, want: "200 1"},
		{method: "DELETE", path: pods + "/p", body: `{"apiVersion":"v1","kind":"DeleteOptions","gracePeriodSeconds":9}`, show: []string{"metadata.deletionGracePeriodSeconds"}, want: "200 1"},
		{method: "DELETE", path: pods + "/p", body: `{"apiVersion":"v1","kind":"DeleteOptions","gracePeriodSeconds":0}`, want: "200 -"},
		{method: "GET", path: pods + "/p", want: "404 NotFound"},
		{method: "DELETE", path: pods + "/p", want: "404 NotFound"},
		{method: "DELETE", path: pods + "/gated", want: "200 -"}, // no grace where nothing runs
		{method: "GET", path: pods + "/gated", want: "404 NotFound"},
		{method: "POST", path: groups, body: `{"apiVersion":"scheduling.run.ai/v2alpha2","kind":"PodGroup","metadata":{"generateName":"g-","finalizers":["example.org/f"]},"spec":{"minMember":1,"queue":"q"}}`, as: "g", show: []string{"metadata.generateName"}, want: "201 g-"},
		{method: "DELETE", path: groups + "/$g.name", body: `{"apiVersion":"scheduling.run.ai/v2alpha2","kind":"DeleteOptions","preconditions":{"uid":"another"}}`, want: "409 Conflict"},
		{method: "DELETE", path: groups + "/$g.name", show: []string{"metadata.finalizers", "metadata.deletionGracePeriodSeconds"}, want: "200 [example.org/f] 0"},
		{method: merge, path: groups + "/$g.name", body: `{"metadata":{"finalizers":null}}`, want: "200 -"},
		{method: "GET", path: groups + "/$g.name", want: "404 NotFound"},

		// Evictions.
		{method: "POST", path: pods, body: podBody("e", ""), as: "e", want: "201 -"},
		{method: "POST", path: pods + "/e/eviction", body: `{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":"e"},"deleteOptions":{"preconditions":{"uid":"another"}}}`, want: "409 Conflict"},
		{method: "POST", path: pods + "/e/eviction", body: `{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":"e"},"deleteOptions":{"preconditions":{"uid":"$e.uid"}}}`, want: "201 -"},
		{method: "POST", path: pods + "/e/eviction", body: `{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":"e"}}`, want: "404 NotFound"},
		{method: "POST", path: pods, body: podBody("r", `,"nodeName":"n"`), want: "201 -"},
		{method: merge, path: pods + "/r/status", body: `{"status":{"phase":"Running"}}`, want: "200 -"},
		{method: "POST", path: "/apis/policy/v1/namespaces/default/poddisruptionbudgets", body: `{"apiVersion":"policy/v1","kind":"PodDisruptionBudget","metadata":{"name":"b"},"spec":{"minAvailable":1,"selector":{"matchLabels":{"app":"r"}}}}`, want: "201 -"},
		{method: "POST", path: pods + "/r/eviction", body: `{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":"r"}}`, want: "429 TooManyRequests DisruptionBudget"},
		{method: "DELETE", path: pods + "/r", body: `{"apiVersion":"v1","kind":"DeleteOptions","gracePeriodSeconds":0}`, want: "200 -"},

		// Server-side apply.
		{method: applyYAML, path: configs + "/m?fieldManager=a&force=true", body: `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"m"},"data":{"x":"1","y":"1"}}`, show: []string{"data.x", "data.y"}, want: "201 1 1"},
		{method: applyYAML, path: configs + "/m?fieldManager=b", body: `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"m"},"data":{"x":"2"}}`, want: "409 Conflict"},
		{method: applyYAML, path: configs + "/m?fieldManager=b&force=true", body: `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"m"},"data":{"x":"2","z":"2"}}`, show: []string{"data.x", "data.y", "data.z"}, want: "200 2 1 2"},
		{method: applyYAML, path: configs + "/m?fieldManager=a&force=true", body: `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"m"},"data":{"y":"1"}}`, show: []string{"data.x", "data.y", "data.z"}, want: "200 2 1 2"},
		{method: applyYAML, path: configs + "/m?fieldManager=a&force=true", body: `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"m"},"data":{}}`, show: []string{"data.x", "data.y", "data.z"}, want: "200 2 - 2"},
		{method: applyYAML, path: configs + "/m", body: `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"m"}}`, want: "422 Invalid fieldManager"},

		// Lists.
		{method: "POST", path: pods, body: podBody("l1", `,"nodeName":"n"`), want: "201 -"},
		{method: "POST", path: pods, body: podBody("l2", ""), want: "201 -"},
		{method: "GET", path: pods + "?labelSelector=app%3Dl2", show: []string{"items.0.metadata.name", "items.1.metadata.name"}, want: "200 l2 -"},
		{method: "GET", path: pods + "?labelSelector=app+in+(l1,l2),app%21%3Dl2", show: []string{"items.0.metadata.name", "items.1.metadata.name"}, want: "200 l1 -"},
		{method: "GET", path: pods + "?fieldSelector=spec.nodeName%3Dn", show: []string{"items.0.metadata.name", "items.1.metadata.name"}, want: "200 l1 -"},
		{method: "GET", path: pods + "?fieldSelector=metadata.name%3Dl2", show: []string{"items.0.metadata.name", "items.1.metadata.name"}, want: "200 l2 -"},
		{method: "GET", path: pods + "?fieldSelector=spec.nobody%3Dn", want: "400 BadRequest"},
		{method: "GET", path: pods + "?limit=1", as: "list", show: []string{"items.0.metadata.name", "items.1.metadata.name"}, want: "200 l1 -"},
		{method: "GET", path: pods + "?limit=1&continue=$list.continue", show: []string{"items.0.metadata.name", "items.1.metadata.name", "metadata.continue"}, want: "200 l2 - -"},
	}
}

// TestTableOfRequests: the server answers as the real one, which the same table is put to by the test behind the tag lab.
func TestTableOfRequests(t *testing.T) {
	t.Parallel()
	s := New(Options{})
	s.Put(&metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ServiceAccount"}, ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "default"}})
	conform(t, s.Process("tester").Config())
}

// conform puts the table to an API server that has our kinds, and nothing else of ours.
func conform(t *testing.T, config *rest.Config) {
	t.Helper()
	c, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]string{}
	for i, s := range requests() {
		method, kind := s.method, "application/json"
		if strings.HasPrefix(method, "application/") {
			method, kind = http.MethodPatch, s.method
		}
		var pairs []string
		for name, value := range names {
			pairs = append(pairs, "$"+name, value)
		}
		fill := strings.NewReplacer(pairs...)
		code, answer := ask(t.Context(), t, c, method, config.Host+fill.Replace(s.path), kind, fill.Replace(s.body))
		told := []string{fmt.Sprint(code)}
		if code >= 400 {
			told = append(told, refusal(answer)...)
		} else {
			for _, path := range s.show {
				told = append(told, show(answer, fill.Replace(path)))
			}
		}
		if len(told) == 1 {
			told = append(told, "-")
		}
		if d := cmp.Diff(s.want, strings.Join(told, " ")); d != "" {
			t.Errorf("step %d, %s %s %s (-want +got):\n%s%v", i, method, s.path, s.body, d, answer["message"])
		}
		if u := (&unstructured.Unstructured{Object: answer}); s.as != "" && code < 400 {
			names[s.as+".uid"], names[s.as+".version"], names[s.as+".name"] = string(u.GetUID()), u.GetResourceVersion(), u.GetName()
			names[s.as+".continue"] = show(answer, "metadata.continue")
		}
	}
}

func ask(ctx context.Context, t *testing.T, c *http.Client, method, url, kind, body string) (int, map[string]any) {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, method, url, bytes.NewBufferString(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", kind)
	r.Header.Set("Accept", "application/json")
	resp, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]any{}
	if err := json.Unmarshal(text, &out); err != nil && resp.StatusCode < 400 {
		t.Fatalf("%s %s: %v: %s", method, url, err, text)
	}
	return resp.StatusCode, out
}

// refusal tells a refusal's reason, and its causes' fields or types where those are what clients look at.
func refusal(answer map[string]any) []string {
	var s metav1.Status
	raw, _ := json.Marshal(answer)
	if json.Unmarshal(raw, &s) != nil || s.Reason == "" {
		return []string{"-"}
	}
	out := []string{string(s.Reason)}
	if s.Details != nil && s.Reason != metav1.StatusReasonConflict {
		for _, cause := range s.Details.Causes {
			if s.Code == http.StatusTooManyRequests {
				out = append(out, string(cause.Type))
			} else if cause.Field != "" && !slices.Contains(out, cause.Field) { // which the real one tells twice at times
				out = append(out, cause.Field)
			}
		}
	}
	return out
}

// show tells what is at a path, "-" for nothing; of PATH=VALUE whether it is that.
func show(at any, path string) string {
	path, is, compares := strings.Cut(path, "=")
	for _, name := range strings.Split(path, ".") {
		switch v := at.(type) {
		case map[string]any:
			at = v[name]
		case []any:
			n := 0
			if _, err := fmt.Sscan(name, &n); err != nil || n >= len(v) {
				return "-"
			}
			at = v[n]
		default:
			return "-"
		}
	}
	if compares {
		return fmt.Sprint(at == is)
	}
	if at == nil || at == "" {
		return "-"
	}
	return fmt.Sprint(at)
}
