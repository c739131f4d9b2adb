package admission

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/muster-scheduler/muster/api/volcano/scheduling/v1beta1"
	"github.com/muster-scheduler/muster/internal/controllers/admission/volcano"
)

// bothFaces are options with Volcano's face on.
func bothFaces() Options {
	o := DefaultOptions()
	o.Volcano = []string{"volcano", "mine"}
	return o
}

// TestVolcanoPolicies: what the API server says by itself of Volcano's pods and PodGroups, and of nobody else's.
func TestVolcanoPolicies(t *testing.T) {
	t.Parallel()
	o := bothFaces()
	pods, groups := o.volcanoPods(), volcanoGroups()
	all := map[string]*judge{PolicyVolcanoPods: compiled(t, pods.objects()), PolicyVolcanoGroups: compiled(t, groups.objects())}
	pod := func(scheduler, notes string) string {
		return "{metadata: {name: p, annotations: {" + notes + "}}, spec: {schedulerName: " + scheduler + ", containers: [{name: c, image: i}]}}"
	}
	const least, most = "volcano.sh/jdb-min-available", "volcano.sh/jdb-max-unavailable"
	for value, ok := range map[string]bool{
		"1": true, "25": true, "007": true, "1%": true, "99%": true, "0": false, "-1": false, "0%": false, "100%": false, "1.5": false, "": false, "half": false, "5 %": false, "99999999999": false,
	} {
		for _, key := range []string{least, most} {
			want := ""
			if !ok {
				want = fmt.Sprintf(`metadata.annotations[%s]: is "%s", must be a whole number above 0, or from 1%% to 99%%`, key, value)
			}
			a := asked{resource: "pods.v1.", object: pod("volcano", fmt.Sprintf("%s: %q", key, value)), user: "eve"}
			all[PolicyVolcanoPods].expect(t, key+"="+value, a, want)
			a.object = pod("kai-scheduler", fmt.Sprintf("%s: %q", key, value))
			all[PolicyVolcanoPods].expect(t, "another scheduler's "+key+"="+value, a, "")
		}
	}
	all[PolicyVolcanoPods].expect(t, "both", asked{resource: "pods.v1.", object: pod("mine", least+`: "1", `+most+`: "1"`), user: "eve"}, "metadata.annotations["+most+"]: must not be set together with "+least)
	for spec, want := range map[string]string{
		"": "", "spec: {}": "", "spec: {networkTopology: {mode: hard, highestTierAllowed: 1}}": "", "spec: {networkTopology: {highestTierName: rack}}": "",
		"spec: {networkTopology: {highestTierAllowed: 0, highestTierName: rack}}":                                                 "PodGroup g: spec.networkTopology.highestTierName: must not be set together with highestTierAllowed",
		"spec: {subGroupPolicy: [{name: a}, {name: b, networkTopology: {highestTierAllowed: 1}}]}":                                "",
		"spec: {subGroupPolicy: [{name: a}, {name: b, networkTopology: {highestTierAllowed: 1, highestTierName: rack}}]}":         "PodGroup g: spec.subGroupPolicy[].networkTopology.highestTierName: must not be set together",
		"spec: {networkTopology: {highestTierAllowed: 1}, subGroupPolicy: [{name: b, networkTopology: {highestTierName: rack}}]}": "",
	} {
		all[PolicyVolcanoGroups].expect(t, spec, asked{resource: "podgroups.v1beta1.scheduling.volcano.sh", object: "{metadata: {name: g}, " + spec + "}", user: "eve"}, want)
	}
}

// TestVolcanoIsOff: without the face nothing is said, served or installed of what is Volcano's, and with it what there was stays as it was.
func TestVolcanoIsOff(t *testing.T) {
	t.Parallel()
	off, on := DefaultOptions(), bothFaces()
	have := map[string]string{}
	for _, object := range on.Objects(nil) {
		text, err := json.Marshal(object)
		if err != nil {
			t.Fatal(err)
		}
		have[fmt.Sprintf("%T %s", object, object.GetName())] = string(text)
	}
	n := 0
	for _, object := range off.Objects(nil) {
		text, err := json.Marshal(object)
		if err != nil {
			t.Fatal(err)
		}
		if name := fmt.Sprintf("%T %s", object, object.GetName()); have[name] != string(text) || strings.Contains(string(text), "volcano") {
			t.Errorf("%s is another with Volcano's face", name)
		}
		n++
	}
	if len(have) != n+2 || len(on.VolcanoPolicies()) != 4 || len(off.VolcanoPolicies()) != 0 {
		t.Errorf("%d objects with the face, %d without", len(have), n)
	}
	h, err := NewHandler(off.Rules, Sources{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	if h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, MutateJobPath, strings.NewReader("{}"))); w.Code != http.StatusNotFound {
		t.Errorf("%s is served: %d", MutateJobPath, w.Code)
	}
}

// volcanos answers about Volcano's kinds in a cluster with the queues root, default, closed and team, in which pods run; the namespace team names the queue team. away is a
// cluster that cannot be read.
func volcanos(t testing.TB, away error) *Handler {
	t.Helper()
	var queues []*v1beta1.Queue
	for name, state := range map[string]v1beta1.QueueState{"root": "Open", "default": "Open", "closed": "Closed", "team": ""} {
		q := &v1beta1.Queue{}
		q.Name, q.Status.State = name, state
		queues = append(queues, q)
	}
	h, err := NewHandler(bothFaces().Rules, Sources{Volcano: VolcanoSources{
		Queues: func(context.Context) (volcano.Forest, error) { return volcano.NewForest(queues...), away },
		Busy:   func(_ context.Context, queue string) (bool, error) { return queue == "team", away },
		Notes: func(_ context.Context, namespace string) (map[string]string, error) {
			return map[string]string{"scheduling.volcano.sh/queue-name": namespace}, away
		},
	}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// answers has a handler review the change of an object into another, each YAML, "" for none, and returns what it comes to.
func answers(t testing.TB, h *Handler, path, now, old string) string {
	t.Helper()
	raw := func(text string) (out runtime.RawExtension) {
		if text == "" {
			return out
		}
		body, err := yaml.YAMLToJSON([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		out.Raw = body
		return out
	}
	req := &admissionv1.AdmissionRequest{UID: "u", Operation: admissionv1.Create, Namespace: "team", Object: raw(now), OldObject: raw(old)}
	switch {
	case now == "":
		req.Operation = admissionv1.Delete
	case old != "":
		req.Operation = admissionv1.Update
	}
	in := admissionv1.AdmissionReview{Request: req}
	in.Kind, in.APIVersion = "AdmissionReview", "admission.k8s.io/v1"
	body, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, path, strings.NewReader(string(body))))
	if w.Code != http.StatusOK {
		return fmt.Sprintf("%d %s", w.Code, w.Body)
	}
	var out admissionv1.AdmissionReview
	if err := json.Unmarshal(w.Body.Bytes(), &out); err != nil {
		t.Fatal(err)
	}
	if !out.Response.Allowed {
		return "denied: " + out.Response.Result.Message
	}
	return "allowed" + string(out.Response.Patch)
}

// TestVolcanoReviews: each path judges what it is for, and only that, and names the object.
func TestVolcanoReviews(t *testing.T) {
	t.Parallel()
	h := volcanos(t, nil)
	const (
		task  = "tasks: [{name: a, replicas: 1, minAvailable: 1, maxRetry: 3, template: {spec: {containers: [{name: c, image: i}]}}}]"
		job   = "{metadata: {name: j}, spec: {queue: default, schedulerName: volcano, minAvailable: 1, maxRetry: 3, " + task + "}}"
		other = "{metadata: {name: j}, spec: {queue: team, schedulerName: volcano, minAvailable: 1, maxRetry: 3, " + task + "}}"
	)
	for _, c := range []struct{ name, path, now, old, want string }{
		{"a Job that says all", MutateJobPath, job, "", "allowed"},
		{"one that does not", MutateJobPath, strings.Replace(job, "schedulerName: volcano, ", "", 1), "", `allowed[{"op":"add","path":"/spec/schedulerName","value":"volcano"}]`},
		{"one that is changed", MutateJobPath, "{metadata: {name: j}, spec: {" + task + "}}", job, "allowed"},
		{"a good Job", ValidateJobPath, job, "", "allowed"},
		{"a Job in a closed queue", ValidateJobPath, strings.Replace(job, "default", "closed", 1), "", `denied: Job.batch.volcano.sh "j" is invalid: spec.queue: Invalid value: "closed"`},
		{"a Job that is made by a name's beginning", ValidateJobPath, "{metadata: {generateName: j-}, spec: {queue: gone, " + task + "}}", "", `denied: Job.batch.volcano.sh "j-*" is invalid: spec.queue: Not found`},
		{"a Job that moves", ValidateJobPath, other, job, `denied: Job.batch.volcano.sh "j" is invalid: spec.queue: Forbidden`},
		{"a Job that goes", ValidateJobPath, strings.Replace(other, "name: j}", "name: j, deletionTimestamp: '2026-01-01T00:00:00Z'}", 1), job, "allowed"},
		{"a Queue", MutateVCQueuePath, "{metadata: {name: q}, spec: {weight: 2}}", "", `allowed[{"op":"add","path":"/spec/reclaimable","value":true}]`},
		{"a good Queue", ValidateVCQueuePath, "{metadata: {name: q}, spec: {weight: 2}}", "", "allowed"},
		{"a Queue below one in which pods run", ValidateVCQueuePath, "{metadata: {name: q}, spec: {parent: team}}", "", `denied: Queue.scheduling.volcano.sh "q" is invalid: spec.parent: Invalid value: "team": pods run in it`},
		{"a Queue that is changed", ValidateVCQueuePath, "{metadata: {name: q}, spec: {parent: gone}}", "{metadata: {name: q}}", `denied: Queue.scheduling.volcano.sh "q" is invalid: spec.parent: Not found`},
		{"the end of default", ValidateVCQueuePath, "", "{metadata: {name: default}}", `denied: Queue.scheduling.volcano.sh "default" is invalid: metadata.name: Forbidden`},
		{"the end of a Queue", ValidateVCQueuePath, "", "{metadata: {name: team}}", "allowed"},
		{"a PodGroup", MutateVCGroupPath, "{metadata: {name: g}, spec: {queue: default}}", "", `allowed[{"op":"add","path":"/spec/queue","value":"team"}]`},
		{"a good PodGroup", ValidateVCGroupPath, "{metadata: {name: g}, spec: {queue: team}}", "", "allowed"},
		{"a PodGroup in no queue", ValidateVCGroupPath, "{metadata: {name: g}, spec: {queue: gone}}", "", `denied: PodGroup.scheduling.volcano.sh "g" is invalid: spec.queue: Not found`},
		{"a PodGroup that is changed", ValidateVCGroupPath, "{metadata: {name: g}, spec: {queue: gone}}", "{metadata: {name: g}}", "allowed"},
		{"a HyperNode", ValidateHyperNodePath, "{metadata: {name: h}, spec: {tier: 1}}", "", "denied: HyperNode.topology.volcano.sh"},
		{"a JobFlow", ValidateJobFlowPath, "{metadata: {name: f}, spec: {flows: [{name: a, dependsOn: {targets: [a]}}]}}", "", "denied: JobFlow.flow.volcano.sh"},
		{"a CronJob", ValidateCronJobPath, "{metadata: {name: c}, spec: {schedule: x, jobTemplate: {}}}", "", "denied: CronJob.batch.volcano.sh"},
	} {
		got := answers(t, h, c.path, c.now, c.old)
		if c.want == "allowed" && got != c.want || !strings.HasPrefix(got, c.want) {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
	for _, path := range []string{ValidateJobPath, ValidateVCQueuePath, MutateVCGroupPath, ValidateVCGroupPath} {
		if got := answers(t, volcanos(t, errors.New("away")), path, job, ""); !strings.HasPrefix(got, "500") {
			t.Errorf("%s of a cluster that cannot be read: %s", path, got)
		}
	}
}

// TestVolcanoIsAskedWhatIsNew: the API server asks about what says something that it did not say before, and about nothing else.
func TestVolcanoIsAskedWhatIsNew(t *testing.T) {
	t.Parallel()
	o := bothFaces()
	mutating, validating := o.volcanoWebhooks(nil)
	doors := map[string]door{}
	for i := range validating.Webhooks {
		doors[validating.Webhooks[i].Name] = doorOf(t, validating.Webhooks[i].MatchConditions)
	}
	for i := range mutating.Webhooks {
		doors[mutating.Webhooks[i].Name] = doorOf(t, mutating.Webhooks[i].MatchConditions)
	}
	for _, f := range []*admissionregv1.FailurePolicyType{mutating.Webhooks[0].FailurePolicy, validating.Webhooks[0].FailurePolicy} {
		if *f != admissionregv1.Fail {
			t.Error("what is not judged is let through")
		}
	}
	object := func(text string) runtime.Object {
		if text == "" {
			return nil
		}
		u := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(text), &u.Object); err != nil {
			t.Fatal(err)
		}
		return u
	}
	const suffix = ".volcano.muster.dev"
	for _, c := range []struct {
		webhook, now, old string
		want              bool
	}{
		{"jobs", "{spec: {queue: a}}", "", true},
		{"jobs", "{spec: {queue: a}}", "{spec: {queue: b}}", true},
		{"jobs", "{metadata: {labels: {a: b}}, spec: {queue: a}}", "{spec: {queue: a}}", false},
		{"queues", "{spec: {weight: 1}, status: {state: Open}}", "{spec: {weight: 1}, status: {state: Open}}", false},
		{"queues", "{spec: {weight: 2}}", "{spec: {weight: 1}}", true},
		{"queues", "{metadata: {annotations: {volcano.sh/closed-by-parent: 'true'}}}", "{metadata: {}}", false},
		{"queues", "{metadata: {annotations: {volcano.sh/hierarchy: a}}}", "{metadata: {}}", true},
		{"queues", "{metadata: {annotations: {volcano.sh/hierarchy-weights: a}}}", "{metadata: {annotations: {volcano.sh/hierarchy-weights: b}}}", true},
		{"queues", "{status: {state: Open}}", "{}", true},
		{"podgroups", "{spec: {queue: a}}", "", true},
		{"podgroups", "{spec: {queue: ''}}", "", false},
		{"podgroups", "{}", "", false},
		{"fill-podgroups", "{spec: {queue: default}}", "", true},
		{"fill-podgroups", "{spec: {queue: a}}", "", false},
		{"fill-jobs", "{}", "", true},
		{"hypernodes", "{spec: {tier: 1}}", "{spec: {tier: 1}, status: {nodeCount: 2}}", false},
	} {
		d, there := doors[c.webhook+suffix]
		if !there {
			t.Fatalf("there is no webhook %s", c.webhook)
		}
		var old runtime.Object
		if c.old != "" {
			old = object(c.old)
		}
		if got := d.asks(t, c.webhook, "It", object(c.now), old); got != c.want {
			t.Errorf("%s of %s after %s: asked %v", c.webhook, c.now, c.old, got)
		}
	}
}
