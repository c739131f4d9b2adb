package admission

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	admissionregv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/muster-scheduler/muster/api/kai/keys"
)

// TestPoliciesPerRequest: what an installation sees most of is judged by one policy, and by nothing but its condition.
func TestPoliciesPerRequest(t *testing.T) {
	t.Parallel()
	o := DefaultOptions()
	all := installed(t, o)
	for _, r := range []struct{ resource, group, sub, operation string }{
		{"pods", "", "", "CREATE"},
		{"pods", "", "", "UPDATE"},
		{"pods", "", "", "DELETE"},
		{"pods", "", "status", "UPDATE"},
		{"pods", "", "binding", "CREATE"},
		{"pods", "", "resize", "UPDATE"},
		{"podgroups", "scheduling.run.ai", "", "CREATE"},
		{"podgroups", "scheduling.run.ai", "", "UPDATE"},
		{"bindrequests", "scheduling.run.ai", "", "CREATE"},
		{"bindrequests", "scheduling.run.ai", "status", "UPDATE"},
		{"bindrequests", "scheduling.run.ai", "", "DELETE"},
		{"resourceclaims", "resource.k8s.io", "status", "UPDATE"},
	} {
		version := map[string]string{"podgroups": "v2alpha2", "bindrequests": "v1alpha2"}[r.resource]
		if version == "" {
			version = "v1"
		}
		var who []string
		for name, j := range all { // order: one is wanted
			if j.matches(schema.GroupVersionResource{Group: r.group, Version: version, Resource: r.resource}, r.sub, r.operation, nil, nil) {
				who = append(who, name)
				if c := j.policy.Spec.MatchConditions; len(c) != 1 || c[0].Name != "breaks-a-rule" {
					t.Errorf("%s: conditions %+v", name, c)
				}
			}
		}
		if len(who) != 1 {
			t.Errorf("%s of %s/%s is judged by %v, want one", r.operation, r.resource, r.sub, who)
		}
	}
}

// TestJoinedTexts: what is put in where a variable is named is no part of a text, and the names of parts are told apart.
func TestJoinedTexts(t *testing.T) {
	t.Parallel()
	for _, mode := range []Mode{Off, Warn, Enforce} {
		o := DefaultOptions()
		o.Identity = mode
		for _, p := range join(o.parts()) {
			if !p.joined {
				continue
			}
			if strings.Contains(p.broken, "variables.") {
				t.Errorf("%s: the condition names a variable: %s", p.name, p.broken)
			}
			seen := map[string]bool{}
			for _, v := range p.variables {
				if seen[v.Name] {
					t.Errorf("%s: two variables are called %s", p.name, v.Name)
				}
				seen[v.Name] = true
			}
			for _, c := range p.checks {
				for _, e := range []string{c.Expression, c.MessageExpression} {
					for k, piece := range strings.Split(strings.ReplaceAll(e, `\'`, ""), "'") {
						if k%2 == 1 && strings.Contains(piece, "variables.") {
							t.Errorf("%s: a text names a variable: %s", p.name, e)
						}
					}
					for _, name := range ofVariables.FindAllString(e, -1) {
						if !seen[strings.TrimPrefix(name, "variables.")] {
							t.Errorf("%s: there is no %s in %s", p.name, name, e)
						}
					}
				}
			}
		}
	}
}

// TestLargeObjects: an object as large as the API server takes is judged within what an expression may cost, in the condition as in the checks.
func TestLargeObjects(t *testing.T) {
	t.Parallel()
	all := installed(t, DefaultOptions())
	many := func(n int, key string) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, "%s-%d.example.com/some-key-of-an-operator: value-%d, ", key, i, i)
		}
		return b.String()
	}
	containers := func(n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, "{name: c%d, image: i, env: [{name: a, value: b}], resources: {requests: {cpu: '1', memory: 1Gi, nvidia.com/gpu: '1'}, limits: {nvidia.com/gpu: '1'}}}, ", i)
		}
		return b.String()
	}
	status := func(n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, "{name: c%d, ready: true, state: {running: {startedAt: x}}}, ", i)
		}
		return b.String()
	}
	large := func(note string) string { // 4,000 annotations of 60 bytes: 240 of the 256 KiB that there may be
		return `{metadata: {name: p, labels: {` + many(500, "label") + `}, annotations: {` + note + many(4000, "note") + `}},
			spec: {schedulerName: kai-scheduler, nodeName: n, containers: [` + containers(100) + `]}, status: {phase: Running, containerStatuses: [` + status(100) + `]}}`
	}
	grouper, groups := serviceAccount(DefaultOptions().Namespace, AccountPodGrouper)
	for _, c := range []struct {
		name string
		a    asked
		want string
	}{
		{"a tenant's", asked{object: strings.Replace(large(""), "nodeName: n, ", "", 1), user: "eve"}, ""},
		{"its change", asked{object: large("a: b, "), old: large(""), user: "eve"}, ""},
		{"its charge", asked{object: large("muster.dev/charged-to: q, "), old: large(""), user: "eve"}, "only Muster itself may write muster.dev/charged-to"},
		{"the podgrouper's change", asked{object: large("pod-group-name: b, "), old: large(""), user: grouper, groups: groups}, ""},
		{"more than it may", asked{object: large("mine: b, "), old: large(""), user: grouper, groups: groups}, "may change nothing of a pod but pod-group-name"},
		{"a resize", asked{object: large(""), old: large(""), subresource: "resize", user: "eve"}, ""},
		{"a status", asked{object: large(""), old: large(""), subresource: "status", user: "eve"}, ""},
	} {
		c.a.resource = "pods.v1."
		all[PolicyPods].expect(t, c.name, c.a, c.want)
	}
}

// BenchmarkPolicies is what the API server's judgement of a request costs, as installed and by each part alone, as older versions had it.
func BenchmarkPolicies(b *testing.B) {
	o := DefaultOptions()
	alone, whole := judges(b, o), installed(b, o)
	grouper, groups := serviceAccount(o.Namespace, AccountPodGrouper)
	controller, controllers := serviceAccount("kube-system", "job-controller")
	made := pod(b, `{metadata: {name: p, namespace: team, labels: {kai.scheduler/queue: q, job-name: j}, finalizers: [batch.kubernetes.io/job-tracking], ownerReferences: [{kind: Job, name: j}]},
		spec: {terminationGracePeriodSeconds: 30, tolerations: [{key: a, operator: Exists}, {key: b, operator: Exists}], volumes: [{name: token}],
		containers: [{name: main, image: i, command: [a, b], resources: {limits: {nvidia.com/gpu: 1}, requests: {nvidia.com/gpu: 1}}, volumeMounts: [{name: token, mountPath: /token}]}]}}`)
	grouped := made.DeepCopy()
	grouped.Annotations = map[string]string{keys.PodGroupAnnotation: "g"}
	bound := grouped.DeepCopy()
	bound.Spec.NodeName = "n"
	runs := bound.DeepCopy()
	runs.Status.Phase = corev1.PodRunning
	for _, c := range []struct {
		name, sub string
		now, old  *corev1.Pod
		user      user.Info
	}{
		{"made by the controller of Jobs", "", made, nil, &user.DefaultInfo{Name: controller, Groups: controllers}},
		{"changed by the podgrouper", "", grouped, made, &user.DefaultInfo{Name: grouper, Groups: groups}},
		{"status by its node", "status", runs, bound, &user.DefaultInfo{Name: "system:node:n", Groups: []string{"system:nodes"}}},
	} {
		for which, policies := range map[string]map[string]*judge{"parts": alone, "installed": whole} {
			var of []*judge
			op, before := admission.Create, runtime.Object(nil)
			if c.old != nil {
				op, before = admission.Update, c.old
			}
			gvr, gvk := corev1.SchemeGroupVersion.WithResource("pods"), corev1.SchemeGroupVersion.WithKind("Pod")
			for _, j := range policies {
				if j.matches(gvr, c.sub, string(op), nil, nil) {
					of = append(of, j)
				}
			}
			a := &admission.VersionedAttributes{
				Attributes:      admission.NewAttributesRecord(c.now, before, gvk, "team", "p", gvr, c.sub, op, nil, false, c.user),
				VersionedObject: admission.NewLazyObject(c.now), VersionedOldObject: admission.NewLazyObject(before), VersionedKind: gvk,
			}
			b.Run(c.name+"/"+which, func(b *testing.B) {
				for b.Loop() {
					for _, j := range of {
						for _, d := range j.check.Validate(b.Context(), gvr, a, nil, nil, celconfig.RuntimeCELCostBudget, nil).Decisions {
							if d.Action != validating.ActionAdmit {
								b.Fatal(d.Message)
							}
						}
					}
				}
				b.ReportMetric(float64(len(of)), "policies")
			})
		}
	}
}

// TestMostMetadata: a condition asks in one expression what the parts ask in several, and for each expression there is as much. So it asks
// of a bound pod first whether its metadata changes at all: with the most annotations that there may be, 256 KiB of them, what leaves
// them as they are is judged, as when a controller takes its finalizer off.
func TestMostMetadata(t *testing.T) {
	t.Parallel()
	const letters = "abcdefghijklmnopqrstuvwxyz0123456789-._ABCDEFGHIJKLMNOPQRSTUVWXYZ"
	notes := map[string]string{}
	for i := range 80_000 { // three letters each, the fewest for so many
		notes[string([]byte{'a' + byte(i/len(letters)/len(letters)), letters[i/len(letters)%len(letters)], letters[i%len(letters)]})] = ""
	}
	object := func(finalizer string) string {
		return asJSON(map[string]any{
			"metadata": map[string]any{"name": "p", "annotations": notes, "finalizers": []string{finalizer}},
			"spec":     map[string]any{"schedulerName": "kai-scheduler", "nodeName": "n", "containers": []any{map[string]any{"name": "c", "image": "i"}}},
		})
	}
	controller, groups := serviceAccount("kube-system", "job-controller")
	a := asked{resource: "pods.v1.", object: object("kept"), old: object("taken"), user: controller, groups: groups}
	installed(t, DefaultOptions())[PolicyPods].expect(t, "a finalizer", a, "")
}

// TestManyTrusted: the condition names who is trusted once, however many parts trust them, and stays within what an expression may be long.
func TestManyTrusted(t *testing.T) {
	t.Parallel()
	o := DefaultOptions()
	for i := range 1000 {
		o.Trusted = append(o.Trusted, fmt.Sprintf("system:serviceaccount:some-namespace-of-a-team-%d:some-account", i))
	}
	p := installed(t, o)[PolicyPods]
	if n := strings.Count(p.policy.Spec.MatchConditions[0].Expression, o.Trusted[0]); n != 1 {
		t.Errorf("the trusted are named %d times", n)
	}
	written := asked{resource: "pods.v1.", object: "{metadata: {name: p, annotations: {muster.dev/charged-to: q}}, spec: {containers: []}}", user: "eve"}
	p.expect(t, "by a tenant", written, "only Muster itself may write")
	written.user = o.Trusted[999]
	p.expect(t, "by the last of the trusted", written, "")
}

// TestPartsCanBeJoined: a part says whom it is about by resource and operation, so its rules must not differ in anything else from those
// of the others about its kind of object, nor name everything.
func TestPartsCanBeJoined(t *testing.T) {
	t.Parallel()
	for _, mode := range []Mode{Warn, Enforce} {
		o := strict()
		o.Identity, o.ForbidForeignGPUs = mode, true
		groups := map[string]string{} // by kind
		for _, p := range o.parts() {
			if !p.joined {
				continue
			}
			if p.labelled != "" || len(p.checks) == 0 {
				t.Errorf("%s: looks at labels, or at nothing", p.name)
			}
			for _, r := range p.rules {
				kind := kindOf(&r)
				if was, ok := groups[kind]; len(r.APIGroups) != 1 || ok && was != r.APIGroups[0] {
					t.Errorf("%s: %s is of the groups %v and of %q", p.name, kind, r.APIGroups, was)
				}
				groups[kind] = r.APIGroups[0]
				if *r.Scope != admissionregv1.AllScopes || len(r.ResourceNames) > 0 || len(r.APIVersions) != 1 {
					t.Errorf("%s: its rule is about some only: %+v", p.name, r)
				}
				for _, of := range r.Resources {
					if k := kindOf(&admissionregv1.NamedRuleWithOperations{RuleWithOperations: admissionregv1.RuleWithOperations{Rule: admissionregv1.Rule{Resources: []string{of}}}}); k != kind || strings.Contains(of, "*") {
						t.Errorf("%s: a rule about %s names %s", p.name, kind, of)
					}
				}
				for _, op := range r.Operations {
					if op == admissionregv1.OperationAll {
						t.Errorf("%s: a rule names no operation", p.name)
					}
				}
			}
			for check := range p.surely {
				if !slices.ContainsFunc(p.checks, func(v admissionregv1.Validation) bool { return v.Expression == check }) {
					t.Errorf("%s: has no check %s", p.name, check)
				}
			}
		}
	}
}
