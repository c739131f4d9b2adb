package admission

import (
	"context"
	"encoding/json"
	"maps"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-scheduler/muster/api/kai/keys"
	"github.com/muster-scheduler/muster/api/scheduling/v2alpha2"
)

// TestOwnedPodsNameTheirQueue: whoever names an owner would get its queue, for which somebody else was judged, or nobody. So
// pods that have an owner name their queue themselves, or are made by one who may use all queues.
func TestOwnedPodsNameTheirQueue(t *testing.T) {
	t.Parallel()
	j := judges(t, strict())[PolicyQueueTemplates]
	const (
		pods, jobs = "pods.v1.", "jobs.v1.batch"
		owner      = `ownerReferences: [{apiVersion: batch/v1, kind: Job, name: hers, uid: u1}]`
		both       = `ownerReferences: [{apiVersion: batch/v1, kind: Job, name: hers, uid: u1}, {apiVersion: v1, kind: Namespace, name: theirs, uid: u2}]`
		blue       = "labels: {kai.scheduler/queue: blue}"
		says       = "metadata.ownerReferences: pods that have an owner must name their queue themselves, in the label kai.scheduler/queue"
	)
	pod := func(meta string) string {
		return "{metadata: {name: x, " + meta + "}, spec: {schedulerName: kai-scheduler}}"
	}
	of := func(meta, template, scheduler string) string {
		return "{metadata: {name: x, " + meta + "}, spec: {template: {metadata: {" + template + "}, spec: {schedulerName: " + scheduler + "}}}}"
	}
	j.expect(t, "its queue taken off by way of the status", asked{
		resource: pods, subresource: "status", object: pod(owner), old: pod(owner + ", " + blue), user: "eve", mayUse: []string{"blue"},
	}, says)
	j.expect(t, "a claim's template", asked{
		resource: "resourceclaimtemplates.v1.resource.k8s.io", object: "{metadata: {name: c}, spec: {metadata: {" + blue + "}}}", user: "eve",
	}, "eve may not use queue blue")
	for _, c := range []struct {
		name, resource, object, old, want string
	}{
		{"a pod", pods, pod(owner), "", says},
		{"with its queue", pods, pod(owner + ", " + blue), "", ""},
		{"without an owner", pods, pod("labels: {a: b}"), "", ""},
		{"given an owner", pods, pod(owner), pod("labels: {a: b}"), says},
		{"given another", pods, pod(both), pod(owner), says},
		{"touched", pods, pod(owner + ", labels: {a: b}"), pod(owner), ""},
		{"let go", pods, pod("labels: {a: b}"), pod(owner), ""},
		{"its queue taken off", pods, pod(owner), pod(owner + ", " + blue), says},
		{"another scheduler's", pods, "{metadata: {name: x, " + owner + "}, spec: {schedulerName: default-scheduler}}", "", ""},
		{"a Job of another's", jobs, of(owner, "", "kai-scheduler"), "", says},
		{"whose pods name it", jobs, of(owner, blue, "kai-scheduler"), "", ""},
		{"which names it itself only", jobs, of(owner+", "+blue, "", "kai-scheduler"), "", says},
		{"of another scheduler", jobs, of(owner, "", "default-scheduler"), "", ""},
		{"that becomes ours", "deployments.v1.apps", of(owner, "", "kai-scheduler"), of(owner, "", "default-scheduler"), says},
		{"its template's label taken off", "deployments.v1.apps", of(owner, "", "kai-scheduler"), of(owner, blue, "kai-scheduler"), says},
		{"scaled", "deployments.v1.apps", of(owner+", labels: {a: b}", "", "kai-scheduler"), of(owner, "", "kai-scheduler"), ""},
	} {
		j.expect(t, c.name, asked{resource: c.resource, object: c.object, old: c.old, user: "eve", mayUse: []string{"blue", "red"}}, c.want)
		name, groups := serviceAccount("kubeflow", "training-operator")
		j.expect(t, c.name, asked{resource: c.resource, object: c.object, old: c.old, user: name, groups: groups, mayUse: []string{"*"}}, "")
		name, groups = serviceAccount("kube-system", "job-controller")
		j.expect(t, c.name, asked{resource: c.resource, object: c.object, old: c.old, user: name, groups: groups}, "")
	}
}

// TestPodGroupHasOneQueue: the queue label of a PodGroup says with which queue it was made, so that its pods still are its pods when
// somebody moves it. Nobody writes another queue there, or whoever may use that one would bring pods into this one's gang.
func TestPodGroupHasOneQueue(t *testing.T) {
	t.Parallel()
	j := judges(t, strict())[PolicyQueueTemplates]
	group := func(label, queue string) string {
		return "{metadata: {name: g, labels: {" + label + "}}, spec: {queue: " + queue + "}}"
	}
	const red, blue, groups = "kai.scheduler/queue: red", "kai.scheduler/queue: blue", "podgroups.v2alpha2.scheduling.run.ai"
	const says = "PodGroup g: label kai.scheduler/queue: names blue; a PodGroup is of the queue of its spec, red"
	for _, c := range []struct{ name, object, old, want string }{
		{"none", group("", "red"), "", ""},
		{"the same", group(red, "red"), "", ""},
		{"another", group(blue, "red"), "", says},
		{"another, written later", group(blue, "red"), group("", "red"), says},
		{"another, for the same", group(blue, "red"), group(red, "red"), says},
		{"moved", group(blue, "red"), group(blue, "blue"), ""},
		{"touched", group(blue+", a: b", "red"), group(blue, "red"), ""},
		{"let go", group("", "red"), group(blue, "red"), ""},
	} {
		j.expect(t, c.name, asked{resource: groups, object: c.object, old: c.old, user: "eve", mayUse: []string{"red", "blue"}}, c.want)
		name, of := serviceAccount(keys.Namespace, "podgrouper")
		j.expect(t, c.name, asked{resource: groups, object: c.object, old: c.old, user: name, groups: of}, "")
	}
}

// TestDefaultQueueTakesNoRight: to name the default queue is the same as to name none.
func TestDefaultQueueTakesNoRight(t *testing.T) {
	t.Parallel()
	all := judges(t, strict())
	const meta = "metadata: {name: x, labels: {kai.scheduler/queue: default-queue}}"
	all[PolicyQueueLabels].expect(t, "a pod", asked{resource: "pods.v1.", object: "{" + meta + "}", user: "eve"}, "")
	all[PolicyQueueTemplates].expect(t, "a Job", asked{resource: "jobs.v1.batch", object: "{spec: {template: {" + meta + "}}}", user: "eve"}, "")
	all[PolicyQueueTemplates].expect(t, "a PodGroup", asked{resource: "podgroups.v2alpha2.scheduling.run.ai", object: "{spec: {queue: default-queue}}", user: "eve"}, "")
}

// TestPoliciesHoldEverywhere: the scheduler serves the pods of all namespaces, so no selector keeps a policy from one, nor the
// question whether a pod may be in the PodGroup that it names.
func TestPoliciesHoldEverywhere(t *testing.T) {
	t.Parallel()
	o := strict()
	o.NamespaceSelector, o.PodSelector, o.QueueLabelSelector = map[string]string{"n": "1"}, map[string]string{"p": "2"}, true
	all := judges(t, o)
	maps.Copy(all, installed(t, o))
	for name, j := range all {
		if m := j.binding.Spec.MatchResources; m != nil {
			t.Errorf("%s is bound to %+v only", name, m)
		}
		if s := j.policy.Spec.MatchConstraints.NamespaceSelector; len(s.MatchLabels)+len(s.MatchExpressions) != 0 {
			t.Errorf("%s looks at namespaces %+v only", name, s)
		}
	}
	_, v := o.Webhooks(nil)
	hooks := v[0].Webhooks
	last := hooks[len(hooks)-1]
	if last.Name != "podgroup-use.admission.kai-scheduler.svc" || *last.FailurePolicy != admissionregv1.Fail {
		t.Fatalf("the last webhook is %s", last.Name)
	}
	for _, s := range []*metav1.LabelSelector{last.NamespaceSelector, last.ObjectSelector} {
		if len(s.MatchLabels)+len(s.MatchExpressions) != 0 {
			t.Errorf("it is asked about %+v only", s)
		}
	}
}

// TestMembersNameTheQueueOfTheirPodGroup: a pod that names a PodGroup, which somebody else may have made, names its queue, too.
func TestMembersNameTheQueueOfTheirPodGroup(t *testing.T) {
	t.Parallel()
	groups := map[string]string{"reds": "red", "plain": "", "default": keys.DefaultQueue}
	h, err := NewHandler(*sharing(), Sources{
		QueueLabel: keys.QueueLabel,
		Group: func(_ context.Context, namespace, name string) (*v2alpha2.PodGroup, error) {
			if queue, ok := groups[name]; ok && namespace == "team" {
				return &v2alpha2.PodGroup{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v2alpha2.PodGroupSpec{Queue: queue}}, nil
			}
			return nil, nil
		},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	for _, c := range []struct{ group, queue, scheduler, deny string }{
		{"reds", "red", "kai-scheduler", ""},
		{"reds", "blue", "kai-scheduler", "PodGroup reds is of queue red; where queues are authorized the pod must name that queue in its label kai.scheduler/queue"},
		{"reds", `""`, "kai-scheduler", "PodGroup reds is of queue red"},
		{"reds", "blue", "default-scheduler", ""},
		{"plain", `""`, "kai-scheduler", ""},
		{"default", `""`, "kai-scheduler", ""},
		{"default", "red", "kai-scheduler", "PodGroup default is of queue default-queue"},
		{"nobody", "red", "kai-scheduler", `metadata.annotations[pod-group-name]: Forbidden: there is no PodGroup "nobody"`},
		{`""`, "red", "kai-scheduler", ""},
	} {
		object := "{metadata: {name: p, labels: {kai.scheduler/queue: " + c.queue + "}, annotations: {pod-group-name: " + c.group + "}}, spec: {schedulerName: " + c.scheduler + "}}"
		got := ask(t, server.URL, ValidateMemberPath, "p", "CREATE", object, "")
		if message := ""; got.Allowed == (c.deny != "") || !got.Allowed && !strings.Contains(got.Result.Message, c.deny) {
			if got.Result != nil {
				message = got.Result.Message
			}
			t.Errorf("%+v: allowed %t: %s", c, got.Allowed, message)
		}
	}
}

// TestStampQueue: a pod that nobody led into a queue says that it is in the default one, so that no controller that adopts it
// leads it into another.
func TestStampQueue(t *testing.T) {
	t.Parallel()
	r := sharing()
	r.StampQueue = keys.QueueLabel
	stamp := Operation{Op: "add", Path: "/metadata/labels/kai.scheduler~1queue", Value: keys.DefaultQueue}
	for text, want := range map[string][]Operation{
		"metadata: {name: p}":                                                  {{Op: "add", Path: "/metadata/labels", Value: map[string]string{}}, stamp},
		"metadata: {name: p, labels: {a: b}}":                                  {stamp},
		"metadata: {name: p, labels: {kai.scheduler/queue: red}}":              nil,
		"metadata: {name: p, ownerReferences: [{kind: Job, name: j, uid: u}]}": nil,
		"metadata: {name: p, annotations: {pod-group-name: g}}":                nil,
	} {
		ops, err := r.Mutate(pod(t, "{"+text+", spec: {schedulerName: kai-scheduler, containers: [{name: a}]}}"), "abc")
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want, ops); d != "" {
			t.Errorf("%s: %s", text, d)
		}
	}
}

// TestCopiesOfRunningPods: a manifest exported from a running pod, with everything that its binding wrote into it, comes through
// webhook and policies with identity enforced.
func TestCopiesOfRunningPods(t *testing.T) {
	t.Parallel()
	all := judges(t, DefaultOptions())
	notes := []string{"pod-group-name: g"}
	for _, key := range marks() {
		notes = append(notes, key+": x")
	}
	copied := pod(t, "{metadata: {name: p, labels: {runai-gpu-group: a, runai-gpu-group/b: b}, annotations: {"+strings.Join(notes, ", ")+"}}, "+
		"spec: {schedulerName: kai-scheduler, nodeName: n, containers: [{name: a}]}}")
	ops, err := sharing().Mutate(copied, "abc")
	if err != nil {
		t.Fatal(err)
	}
	body, err := json.Marshal(patched(t, copied, ops))
	if err != nil {
		t.Fatal(err)
	}
	text := string(body)
	all[PolicyPodIdentity].expect(t, "a copy", asked{resource: "pods.v1.", object: text, user: "eve"}, "")
	if strings.Contains(text, "nodeName") || !strings.Contains(text, "pod-group-name") {
		t.Errorf("what is left is %s", text)
	}
	byHand := pod(t, "{metadata: {name: p}, spec: {schedulerName: kai-scheduler, nodeName: n, containers: [{name: a}]}}")
	if ops, err := sharing().Mutate(byHand, "abc"); err != nil || ops != nil {
		t.Errorf("a node that somebody wrote by hand: %v, %v", ops, err)
	}
}
