package admission

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	kaiv1 "github.com/muster-scheduler/muster/api/kai/v1"
)

// ask posts a review of an object, written as YAML, and returns the answer.
func ask(t *testing.T, server, path, name string, op admissionv1.Operation, object, old string) *admissionv1.AdmissionResponse {
	t.Helper()
	raw := func(text string) runtime.RawExtension {
		if text == "" {
			return runtime.RawExtension{}
		}
		body, err := yaml.YAMLToJSON([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return runtime.RawExtension{Raw: body}
	}
	body, err := json.Marshal(admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{Kind: "AdmissionReview", APIVersion: "admission.k8s.io/v1"},
		Request:  &admissionv1.AdmissionRequest{UID: "u", Name: name, Namespace: "team", Operation: op, Object: raw(object), OldObject: raw(old)},
	})
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.Post(server+path, "application/json", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var out admissionv1.AdmissionReview
	if err := json.NewDecoder(resp.Body).Decode(&out); err != nil {
		t.Fatal(err)
	}
	if out.Response == nil || out.Response.UID != "u" || out.APIVersion != "admission.k8s.io/v1" {
		t.Fatalf("no answer to the review: %+v", out)
	}
	return out.Response
}

func TestHandler(t *testing.T) {
	t.Parallel()
	queues := forest(t, `{metadata: {name: root}, spec: {resources: {}}}`, `{metadata: {name: a}, spec: {parentQueue: root, resources: {}}}`, `{metadata: {name: used}, spec: {resources: {}}}`)
	h, err := NewHandler(*sharing(), Sources{
		Queues: func(context.Context) (Forest, error) { return queues, nil },
		Groups: func(_ context.Context, queue string) ([]string, bool, error) {
			if queue == "used" {
				return []string{"n/g"}, false, nil
			}
			return nil, false, nil
		},
		Shard: func(s *kaiv1.SchedulingShardSpec) ([]string, error) {
			if s.PartitionLabelValue == "bad" {
				return nil, errors.New("partitionLabelValue is bad")
			}
			return []string{"careful"}, nil
		},
	}, prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	const (
		good = `{metadata: {name: p, annotations: {gpu-fraction: "0.5"}}, spec: {schedulerName: kai-scheduler, containers: [{name: a}]}}`
		done = `{metadata: {name: p, annotations: {gpu-fraction: "0.5", runai/shared-gpu-configmap: m}}, spec: {schedulerName: kai-scheduler, containers: [{name: a}]}}`
		bad  = `{metadata: {generateName: p-, annotations: {gpu-fraction: "5"}}, spec: {schedulerName: kai-scheduler, containers: [{name: a}]}}`
		lost = `{metadata: {name: p, namespace: other}, spec: {schedulerName: kai-scheduler, containers: [{name: a}]}}`
		top  = `{metadata: {name: t}, spec: {levels: [{nodeLabel: a, alias: b}, {nodeLabel: b}]}}`
		leaf = `{metadata: {name: q}, spec: {parentQueue: a, resources: {}}}`
		loop = `{metadata: {name: root}, spec: {parentQueue: a, resources: {}}}`
		gone = `{metadata: {name: root, deletionTimestamp: "2026-01-01T00:00:00Z"}, spec: {parentQueue: a}}`
		tree = `{metadata: {name: g}, spec: {subGroups: [{name: a}]}}`
		odd  = `{metadata: {name: s}, spec: {partitionLabelValue: bad}}`
		fine = `{metadata: {name: s}, spec: {partitionLabelValue: good}}`
	)
	for _, c := range []struct {
		path, name  string
		op          admissionv1.Operation
		object, old string
		patch       bool
		deny, warn  string
	}{
		{path: MutatePodPath, op: "CREATE", object: good, patch: true},
		{path: MutatePodPath, op: "CREATE", object: bad, deny: `Pod "p-*" is invalid: metadata.annotations[gpu-fraction]: Invalid value: "5": must be`},
		{path: MutatePodPath, op: "CREATE", object: lost, deny: `metadata.namespace: is "other", but the pod is created in namespace "team"`},
		{path: MutatePodPath, op: "UPDATE", object: good},
		{path: ValidatePodPath, op: "CREATE", object: done},
		{path: ValidatePodPath, op: "CREATE", object: good, deny: "metadata.annotations[gpu-fraction]: Forbidden: was added after the pod had been completed"},
		{path: ValidatePodPath, op: "CREATE", object: strings.Replace(good, `gpu-fraction: "0.5"`, `gpu-memory: "5"`, 1), deny: "metadata.annotations[gpu-memory]: Forbidden: was added after"},
		{path: ValidatePodPath, op: "CREATE", object: strings.Replace(good, "kai-scheduler", "other", 1)},
		{path: ValidatePodPath, op: "CREATE", object: `{metadata: {name: p}, spec: {schedulerName: kai-scheduler, terminationGracePeriodSeconds: 31536000, containers: [{name: a}]}}`, warn: "spec.terminationGracePeriodSeconds: is 31536000"},
		{path: ValidatePodPath, op: "CREATE", object: `{metadata: {name: p}, spec: {schedulerName: kai-scheduler, terminationGracePeriodSeconds: 3600, containers: [{name: a}]}}`},
		{path: ValidatePodPath, op: "CREATE", object: `{metadata: {name: p, annotations: {gpu-fraction: "0.5", runai/shared-gpu-configmap: m, mps: "True"}}, spec: {schedulerName: kai-scheduler, containers: [{name: a}]}}`, warn: `metadata.annotations[mps]: is "True"; only true has an effect`},
		{path: ValidatePodPath, op: "CREATE", object: bad, deny: "gpu-fraction"},
		{path: ValidatePodPath, op: "UPDATE", object: bad, old: bad},
		{path: ValidatePodPath, op: "UPDATE", object: bad, old: good, deny: "gpu-fraction"},
		{path: ValidatePodPath, op: "DELETE", old: good},
		{path: ValidateTopologyPath, op: "CREATE", object: top, deny: `Topology.kai.scheduler "t" is invalid: spec.levels[0].alias`},
		{path: ValidateTopologyPath, op: "DELETE", old: top},
		{path: ValidateQueuePath, op: "CREATE", object: leaf},
		{path: ValidateQueuePath, op: "CREATE", object: loop, deny: `Queue.scheduling.run.ai "root" is invalid: spec.parentQueue`},
		{path: ValidateQueuePath, op: "UPDATE", object: loop, old: `{metadata: {name: root}, spec: {resources: {}}}`, deny: "makes a loop"},
		{path: ValidateQueuePath, op: "UPDATE", object: loop, old: loop}, // only its metadata changed
		{path: ValidateQueuePath, op: "UPDATE", object: gone, old: leaf},
		{path: ValidateQueuePath, name: "root", op: "DELETE", old: leaf, warn: "nothing more is scheduled in the queues below root until it is back, or they have another parent: a"},
		{path: ValidateQueuePath, name: "used", op: "DELETE", old: leaf, warn: "PodGroups name queue used; what of them waits, waits until it is back, what runs can be reclaimed: n/g"},
		{path: ValidateQueuePath, name: "a", op: "DELETE", old: leaf},
		{path: ValidatePodGroupPath, op: "CREATE", object: tree, deny: `PodGroup.scheduling.run.ai "g" is invalid: spec.subGroups[0].minMember: Required`},
		{path: ValidatePodGroupPath, op: "UPDATE", object: tree, old: tree},
		{path: ValidatePodGroupPath, op: "DELETE", old: tree},
		{path: ValidateShardPath, op: "CREATE", object: odd, deny: `SchedulingShard.kai.scheduler "s" is invalid: spec: Forbidden: partitionLabelValue is bad`},
		{path: ValidateShardPath, op: "UPDATE", object: odd, old: odd},
		{path: ValidateShardPath, op: "UPDATE", object: odd, old: fine, deny: "is bad"},
		{path: ValidateShardPath, op: "UPDATE", object: `{metadata: {name: s}, spec: {partitionLabelValue: bad, kValue: 2}}`, old: odd, warn: "is bad"},
		{path: ValidateShardPath, op: "CREATE", object: fine, warn: "careful"},
		{path: ValidateQueuePath, op: "CREATE", object: `{metadata: {name: q}, spec: {parentQueue: nobody, resources: {}}}`, warn: `there is no Queue "nobody" yet`},
	} {
		got := ask(t, server.URL, c.path, c.name, c.op, c.object, c.old)
		message := ""
		if got.Result != nil {
			message = got.Result.Message
		}
		if got.Allowed != (c.deny == "") || !strings.Contains(message, c.deny) || (len(got.Patch) > 0) != c.patch || c.patch != (got.PatchType != nil) {
			t.Errorf("%s %s %s: allowed %t %q, patch %s", c.path, c.op, c.object, got.Allowed, message, got.Patch)
		}
		if warned := strings.Join(got.Warnings, "; "); (warned == "") != (c.warn == "") || !strings.Contains(warned, c.warn) {
			t.Errorf("%s %s %s: warns %q, want %q", c.path, c.op, c.object, warned, c.warn)
		}
	}
}

// TestSourcesFail: what cannot be known is no answer, so that the API server does what the configuration says.
func TestSourcesFail(t *testing.T) {
	t.Parallel()
	h, err := NewHandler(*sharing(), Sources{
		Queues: func(context.Context) (Forest, error) { return nil, errors.New("no connection") },
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, ValidateQueuePath, strings.NewReader(
		`{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"u","operation":"CREATE","object":{"spec":{"parentQueue":"a"}}}}`)))
	if w.Code != http.StatusInternalServerError || !strings.Contains(w.Body.String(), "the cluster cannot be read: no connection") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// TestMalformed: what no API server sends is refused, and the process goes on.
func TestMalformed(t *testing.T) {
	t.Parallel()
	h, err := NewHandler(*sharing(), Sources{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	for _, c := range []struct {
		method, path, body string
		want               int
	}{
		{"GET", MutatePodPath, "", 405},
		{"POST", "/elsewhere", "", 404},
		{"POST", MutatePodPath, "", 400},
		{"POST", MutatePodPath, "{}", 400},
		{"POST", MutatePodPath, `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1beta1","request":{"uid":"u"}}`, 400},
		{"POST", MutatePodPath, `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1"}`, 400},
		{"POST", MutatePodPath, `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"u","operation":"CREATE"}}`, 400},
		{"POST", ValidatePodPath, `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"u","operation":"CREATE","object":[1]}}`, 400},
		{"POST", ValidateTopologyPath, strings.Repeat(" ", maxReview+1), 413},
	} {
		r, err := http.NewRequestWithContext(t.Context(), c.method, server.URL+c.path, strings.NewReader(c.body))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != c.want {
			t.Errorf("%s %s %.40q: %d %s %v, want %d", c.method, c.path, c.body, resp.StatusCode, text, err, c.want)
		}
	}
}

// TestToken: tokens of many pods hardly ever meet, and are fit for a name.
func TestToken(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for range 1000 {
		s := token()
		if len(s) != 7 || strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789") != "" || seen[s] {
			t.Fatalf("token %q", s)
		}
		seen[s] = true
	}
}

// TestWebhooks: what the API server is told to ask about.
func TestWebhooks(t *testing.T) {
	t.Parallel()
	o := DefaultOptions()
	m, v := o.Webhooks([]byte("ca"))
	var got []string
	tell := func(configuration, name, path, scope string, policy admissionregv1.FailurePolicyType, rules []admissionregv1.RuleWithOperations) {
		line := configuration + " " + name + " " + path + " " + string(policy)
		for _, r := range rules {
			line += " " + fmt.Sprint(r.Operations) + strings.Join(r.Resources, ",")
		}
		got = append(got, line+" "+scope)
	}
	condition := func(list []admissionregv1.MatchCondition) string {
		if len(list) == 0 {
			return "all"
		}
		out := list[0].Name + ": " + list[0].Expression
		for _, c := range list[1:] {
			out += ", " + c.Name
		}
		return strings.TrimSuffix(out, ": "+hasTree())
	}
	h := m.Webhooks[0]
	tell(m.Name, h.Name, *h.ClientConfig.Service.Path, condition(h.MatchConditions), *h.FailurePolicy, h.Rules)
	for _, c := range v {
		for _, h := range c.Webhooks {
			tell(c.Name, h.Name, *h.ClientConfig.Service.Path, condition(h.MatchConditions), *h.FailurePolicy, h.Rules)
			if string(h.ClientConfig.CABundle) != "ca" || h.ClientConfig.Service.Name != "admission" || h.ClientConfig.Service.Namespace != "kai-scheduler" {
				t.Errorf("%s is asked at %+v", h.Name, h.ClientConfig)
			}
		}
	}
	const ours = " scheduler-name-match: object.spec.schedulerName == 'kai-scheduler'"
	want := []string{
		"mutating-kai-admission admission.kai-scheduler.svc /mutate--v1-pod Fail [CREATE]pods" + ours + ", lacks-something",
		"validating-kai-admission admission.kai-scheduler.svc /validate--v1-pod Fail [CREATE UPDATE]pods [UPDATE]pods/ephemeralcontainers" + ours + ", says-something",
		"validating-kai-admission topology.admission.kai-scheduler.svc /validate-kai-scheduler-v1alpha1-topology Ignore [CREATE UPDATE]topologies all",
		"validating-kai-admission schedulingshard.admission.kai-scheduler.svc /validate-kai-scheduler-v1-schedulingshard Ignore [CREATE UPDATE]schedulingshards all",
		"kai-queue-validation-v2 queue-validation.kai.scheduler /validate-scheduling-run-ai-v2-queue Fail [CREATE UPDATE]queues all",
		"kai-queue-validation-v2 queue-deletion.kai.scheduler /validate-scheduling-run-ai-v2-queue Ignore [DELETE]queues all",
		"kai-podgroup-validation-v2alpha2 podgroup-validation.kai.scheduler /validate-scheduling-run-ai-v2alpha2-podgroup Ignore [CREATE UPDATE]podgroups has-a-tree",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]string{"kube-system", "kai-scheduler"}, m.Webhooks[0].NamespaceSelector.MatchExpressions[0].Values); d != "" {
		t.Error(d)
	}
	o.SchedulerNames, o.URL = []string{"a", `it's`}, "https://127.0.0.1:9443"
	o.NamespaceSelector, o.PodSelector, o.QueueLabelSelector, o.QueueWebhook, o.PodGroupWebhook = map[string]string{"n": "1"}, map[string]string{"p": "2"}, true, "", ""
	m, v = o.Webhooks(nil)
	if len(v) != 1 {
		t.Errorf("%d validating configurations, wanted one", len(v))
	}
	scope := m.Webhooks[0]
	if scope.NamespaceSelector.MatchLabels["n"] != "1" || scope.ObjectSelector.MatchLabels["p"] != "2" || scope.NamespaceSelector.MatchExpressions[1].Key != "kai.scheduler/queue" {
		t.Errorf("the selectors do not reach the webhook: %+v %+v", scope.NamespaceSelector, scope.ObjectSelector)
	}
	if d := cmp.Diff(scope.NamespaceSelector, v[0].Webhooks[0].NamespaceSelector); d != "" {
		t.Errorf("pods that are completed are not those that are judged: %s", d)
	}
	if got := v[0].Webhooks[0].MatchConditions[0].Expression; got != `object.spec.schedulerName in ['a', 'it\'s']` {
		t.Error(got)
	}
	if got := *v[0].Webhooks[1].ClientConfig.URL; got != "https://127.0.0.1:9443"+ValidateTopologyPath {
		t.Error(got)
	}
}

func TestOptions(t *testing.T) {
	t.Parallel()
	for want, change := range map[string]func(*Options){
		"":                                 func(*Options) {},
		"--webhook-addr is 70000":          func(o *Options) { o.Port = 70000 },
		`--webhook-url is "http://x"`:      func(o *Options) { o.URL = "http://x" },
		`--webhook-url is "https://x/y"`:   func(o *Options) { o.URL = "https://x/y" },
		"--webhook-secret must not":        func(o *Options) { o.Secret = "" },
		"--mutating-webhook-configuration": func(o *Options) { o.Mutating = "" },
		`--identity is "maybe"`:            func(o *Options) { o.Identity = "maybe" },
	} {
		o := DefaultOptions()
		change(&o)
		if err := o.check(); (err != nil) != (want != "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

// TestDefectIsAnAnswer: an object that brings down its judge is answered with an error that says so, and counted; the next object is
// judged.
func TestDefectIsAnAnswer(t *testing.T) {
	t.Parallel()
	h, err := NewHandler(*sharing(), Sources{Shard: func(s *kaiv1.SchedulingShardSpec) ([]string, error) {
		if s.PartitionLabelValue == "bad" {
			panic("broken")
		}
		return nil, nil
	}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	body := `{"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": {"uid": "u", "operation": "CREATE", "object": {"spec": {"partitionLabelValue": "bad"}}}}`
	resp, err := http.Post(server.URL+ValidateShardPath, "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatalf("no answer: %v", err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusInternalServerError || !strings.Contains(string(text), "a defect") {
		t.Errorf("%d %s %v", resp.StatusCode, text, err)
	}
	if n := testutil.ToFloat64(h.reviews.WithLabelValues(ValidateShardPath, "failed")); n != 1 {
		t.Errorf("counted %v", n)
	}
	if a := ask(t, server.URL, ValidateShardPath, "s", admissionv1.Create, `{spec: {partitionLabelValue: good}}`, ""); !a.Allowed {
		t.Errorf("another object: %+v", a)
	}
}
