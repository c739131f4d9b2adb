package admission

import (
	"fmt"
	"go/ast"
	"go/parser"
	gotoken "go/token"
	"path/filepath"
	"strings"
	"testing"

	admissionregv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/muster-scheduler/muster/api/kai/keys"
)

// strict are options with every policy, enforced.
func strict() Options {
	o := DefaultOptions()
	o.Identity, o.AuthorizeQueues, o.Trusted = Enforce, true, []string{"our-operator"}
	return o
}

// TestModes: which policies there are, and what they do.
func TestModes(t *testing.T) {
	t.Parallel()
	for mode, want := range map[Mode]string{Off: "none", Warn: "[Warn Audit]", Enforce: "[Deny]"} {
		o := DefaultOptions()
		o.Identity = mode
		all := judges(t, o)
		for _, name := range []string{PolicyPodIdentity, PolicyGroupIdentity, PolicyRequestIdentity, PolicyBindingIdentity, PolicyRoomIdentity} {
			got := "none"
			if j := all[name]; j != nil {
				got = fmt.Sprint(j.binding.Spec.ValidationActions)
			}
			if got != want {
				t.Errorf("%s: %s does %s, want %s", mode, name, got, want)
			}
		}
		if all[PolicyQueueLabels] != nil || all[PolicyQueueTemplates] != nil || all[PolicyQueues] == nil || all[PolicyAdvice] == nil {
			t.Errorf("%s: policies %v", mode, all)
		}
	}
	o := strict()
	for name, j := range judges(t, o) {
		if *j.policy.Spec.FailurePolicy != admissionregv1.Fail {
			t.Errorf("%s: a rule that cannot be evaluated must not let things pass", name)
		}
	}
}

// TestOldestAPIServer: Kubernetes 1.34, the oldest that Muster is installed on, takes in new policies no CEL that came after 1.33.
func TestOldestAPIServer(t *testing.T) {
	t.Parallel()
	o := strict()
	o.ForbidForeignGPUs, o.Volcano = true, []string{"volcano"}
	for _, object := range append(o.Policies(), o.VolcanoPolicies()...) {
		if p, ok := object.(*admissionregv1.ValidatingAdmissionPolicy); ok {
			compileFor(t, p, version.MajorMinor(1, 33))
		}
	}
}

// TestQueuePolicies: what the API server says of a Queue or Config by itself.
func TestQueuePolicies(t *testing.T) {
	t.Parallel()
	all := judges(t, DefaultOptions())
	const queues, configs = "queues.v2.scheduling.run.ai", "configs.v1.kai.scheduler"
	for _, c := range []struct{ name, policy, resource, object, want string }{
		{"a queue", PolicyQueues, queues, `{metadata: {name: q}, spec: {resources: {}}}`, ""},
		{"below another", PolicyQueues, queues, `{metadata: {name: q}, spec: {parentQueue: p, resources: {gpu: {quota: 1, limit: 2}}}}`, ""},
		{"no resources", PolicyQueues, queues, `{metadata: {name: q}, spec: {parentQueue: p}}`, "Queue q: spec.resources: resources must be specified"},
		{"nothing", PolicyQueues, queues, `{metadata: {name: q}}`, "resources must be specified"},
		{"its own parent", PolicyQueues, queues, `{metadata: {name: q}, spec: {parentQueue: q, resources: {}}}`, "Queue q: spec.parentQueue: a queue cannot be its own parent"},
		{"quota within limit", PolicyAdvice, queues, `{metadata: {name: q}, spec: {resources: {gpu: {quota: 2, limit: 2.5}, cpu: {quota: -1, limit: -1}, memory: {quota: 5, limit: -1}}}}`, ""},
		{"quota above limit", PolicyAdvice, queues, `{metadata: {name: q}, spec: {resources: {gpu: {quota: 3, limit: 2.5}}}}`, "Queue q: spec.resources.gpu: the quota is above the limit"},
		{"quota without bound", PolicyAdvice, queues, `{metadata: {name: q}, spec: {resources: {cpu: {quota: -1, limit: 1000}}}}`, "spec.resources.cpu: the quota is above"},
		{"memory", PolicyAdvice, queues, `{metadata: {name: q}, spec: {resources: {memory: {quota: 1, limit: 0}}}}`, "spec.resources.memory: the quota is above"},
		{"no resources, no advice", PolicyAdvice, queues, `{metadata: {name: q}}`, ""},
		{"the Config", PolicyAdvice, configs, `{metadata: {name: kai-config}, spec: {}}`, ""},
		{"another Config", PolicyAdvice, configs, `{metadata: {name: mine}}`, "Config mine: metadata.name: only the Config called kai-config has an effect"},
	} {
		all[c.policy].expect(t, c.name, asked{resource: c.resource, object: c.object, user: "admin"}, c.want)
	}
}

// TestConfigsAreUnderstood: a Config that says of a guard what nobody understands is refused.
func TestConfigsAreUnderstood(t *testing.T) {
	t.Parallel()
	j := judges(t, DefaultOptions())[PolicyConfigs]
	config := func(key, value string) string {
		if key == "" {
			return "{metadata: {name: kai-config}}"
		}
		return fmt.Sprintf("{metadata: {name: kai-config, annotations: {%s: %q}}}", key, value)
	}
	for _, c := range []struct{ key, value, old, want string }{
		{"", "", "", ""},
		{AnnotationIdentity, "enforce", "", ""},
		{AnnotationIdentity, "off", "enforce", ""},
		{AnnotationIdentity, "Enforce", "", `Config kai-config: metadata.annotations[muster.dev/identity]: is "Enforce", must be off or warn or enforce`},
		{AnnotationIdentity, "Enforce", "warn", `is "Enforce"`},
		{AnnotationIdentity, "Enforce", "Enforce", ""}, // of old: it keeps nobody from changing something else
		{AnnotationAuthorizeQueues, "true", "", ""},
		{AnnotationAuthorizeQueues, "True", "", `metadata.annotations[muster.dev/authorize-queues]: is "True", must be true or false`},
		{AnnotationTrustedUsers, "anybody", "", ""},
	} {
		a := asked{resource: "configs.v1.kai.scheduler", object: config(c.key, c.value), user: "admin"}
		if c.old != "" {
			a.old = config(c.key, c.old)
		}
		j.expect(t, c.key+"="+c.value, a, c.want)
	}
}

// TestIdentity: only Muster says what only Muster may say.
func TestIdentity(t *testing.T) {
	t.Parallel()
	all := judges(t, strict())
	const (
		pods, groups, requests = "pods.v1.", "podgroups.v2alpha2.scheduling.run.ai", "bindrequests.v1alpha2.scheduling.run.ai"
		plain                  = `{metadata: {name: p, labels: {app: web}, annotations: {note: x}}, spec: {schedulerName: kai-scheduler}}`
		grouped                = `{metadata: {name: p, labels: {runai-gpu-group: g}}, spec: {schedulerName: kai-scheduler}}`
		several                = `{metadata: {name: p, labels: {runai-gpu-group/g: g, app: web}}, spec: {schedulerName: kai-scheduler}}`
		received               = `{metadata: {name: p, annotations: {received-resource-type: Fraction}}, spec: {schedulerName: kai-scheduler}}`
	)
	pod := func(meta string) string {
		return "{metadata: {name: p, " + meta + "}, spec: {schedulerName: default-scheduler}}"
	}
	waiting := func(meta string) string {
		return "{metadata: {name: p, " + meta + "}, spec: {schedulerName: kai-scheduler}}"
	}
	type row struct {
		name, policy, resource, object, old, want string
		sub                                       string
		mayBind                                   bool
	}
	rows := []row{
		{name: "a pod", policy: PolicyPodIdentity, resource: pods, object: plain},
		{name: "nothing at all", policy: PolicyPodIdentity, resource: pods, object: `{metadata: {name: p}}`},
		{name: "a group", policy: PolicyPodIdentity, resource: pods, object: grouped, want: "metadata: only Muster itself may write runai-gpu-group"},
		{name: "several groups", policy: PolicyPodIdentity, resource: pods, object: several, old: plain, want: "only Muster itself may write runai-gpu-group/g"},
		{name: "a group taken off", policy: PolicyPodIdentity, resource: pods, object: plain, old: grouped, want: "may write runai-gpu-group"},
		{name: "a group that stays", policy: PolicyPodIdentity, resource: pods, object: grouped, old: grouped},
		{name: "by way of the status", policy: PolicyPodIdentity, resource: pods, sub: "status", object: received, old: plain, want: "may write received-resource-type"},
		{name: "a reservation", policy: PolicyPodIdentity, resource: pods, object: pod("labels: {app: kai-resource-reservation}"), want: "metadata.labels[app]: only Muster itself makes pods of kai-resource-reservation"},
		{name: "a scaling pod", policy: PolicyPodIdentity, resource: pods, object: pod("labels: {app: scaling-pod}"), old: pod("labels: {app: web}"), want: "makes pods of scaling-pod"},
		{name: "a reservation that was one", policy: PolicyPodIdentity, resource: pods, object: pod("labels: {app: kai-resource-reservation}"), old: pod("labels: {app: kai-resource-reservation}")},
		{name: "bound by itself", policy: PolicyPodIdentity, resource: pods, object: `{metadata: {name: p}, spec: {schedulerName: kai-scheduler, nodeName: n}}`, want: "spec.nodeName: the scheduler decides where a pod of kai-scheduler goes"},
		{name: "another scheduler's, bound", policy: PolicyPodIdentity, resource: pods, object: `{metadata: {name: p}, spec: {schedulerName: default-scheduler, nodeName: n}}`},
		{
			name: "bound, and updated", policy: PolicyPodIdentity, resource: pods,
			object: `{metadata: {name: p, labels: {a: b}}, spec: {schedulerName: kai-scheduler, nodeName: n}}`, old: `{metadata: {name: p}, spec: {schedulerName: kai-scheduler, nodeName: n}}`,
		},
		{name: "a Binding", policy: PolicyBindingIdentity, resource: pods, sub: "binding", object: `{metadata: {name: p, labels: {topology.kubernetes.io/zone: a}, annotations: {note: x}}, target: {name: n}}`, want: "pods/binding: only a scheduler binds pods"},
		{name: "a scheduler's Binding", policy: PolicyBindingIdentity, resource: pods, sub: "binding", object: `{metadata: {name: p, labels: {topology.kubernetes.io/zone: a}, annotations: {note: x}}, target: {name: n}}`, mayBind: true},
		{name: "a scheduler's Binding with a device", policy: PolicyBindingIdentity, resource: pods, sub: "binding", object: `{metadata: {name: p, labels: {runai-gpu-group: g}}, target: {name: n}}`, mayBind: true, want: "only Muster itself may write runai-gpu-group"},
		{name: "a Binding with a device", policy: PolicyBindingIdentity, resource: pods, sub: "binding", object: `{metadata: {name: p, labels: {runai-gpu-group: g}}, target: {name: n}}`, want: "only Muster itself may write runai-gpu-group"},
		{name: "a Binding with an app", policy: PolicyBindingIdentity, resource: pods, sub: "binding", object: `{metadata: {name: p, labels: {app: kai-resource-reservation}}, target: {name: n}}`, want: "may write app"},
		{name: "a Binding with a charge", policy: PolicyBindingIdentity, resource: pods, sub: "binding", object: `{metadata: {name: p, annotations: {muster.dev/charged-to: q/g}}, target: {name: n}}`, want: "may write muster.dev/charged-to"},
		{name: "before it is bound", policy: PolicyPodIdentity, resource: pods, object: waiting(`annotations: {pod-group-name: h}`), old: waiting(`annotations: {pod-group-name: g}`)},
		{name: "bound, with slices", policy: PolicyPodIdentity, resource: pods, object: `{metadata: {name: p, annotations: {nvidia.com/mig-1g.10gb: "7"}}, spec: {schedulerName: kai-scheduler, nodeName: n}}`, old: `{metadata: {name: p}, spec: {schedulerName: kai-scheduler, nodeName: n}}`, want: "may write nvidia.com/mig-1g.10gb"},
		{name: "bound, without its slices", policy: PolicyPodIdentity, resource: pods, old: `{metadata: {name: p, annotations: {nvidia.com/mig-1g.10gb: "7"}}, spec: {schedulerName: kai-scheduler, nodeName: n}}`, object: `{metadata: {name: p}, spec: {schedulerName: kai-scheduler, nodeName: n}}`, want: "may write nvidia.com/mig-1g.10gb"},
		{name: "another's, bound", policy: PolicyPodIdentity, resource: pods, object: `{metadata: {name: p, annotations: {pod-group-name: h}}, spec: {schedulerName: other, nodeName: n}}`, old: `{metadata: {name: p}, spec: {schedulerName: other, nodeName: n}}`},
		{name: "a PodGroup", policy: PolicyGroupIdentity, resource: groups, object: `{metadata: {name: g, annotations: {user: me}}, spec: {minMember: 2}}`},
		{name: "a BindRequest", policy: PolicyRequestIdentity, resource: requests, object: `{metadata: {name: p}, spec: {podName: p}}`, want: "BindRequest p: only Muster itself may write BindRequests"},
		{name: "its status", policy: PolicyRequestIdentity, resource: requests, sub: "status", object: `{metadata: {name: p}}`, old: `{metadata: {name: p}}`, want: "only Muster itself may write"},
	}
	for _, key := range marks() {
		rows = append(rows, row{name: key, policy: PolicyPodIdentity, resource: pods, object: pod(`annotations: {"` + key + `": x}`), old: pod("annotations: {a: b}"), want: "may write " + key})
	}
	o := strict()
	annotations, labels := o.frozen()
	for kind, list := range map[string][]string{"annotations": annotations, "labels": labels} { // order: each row on its own
		for _, key := range list {
			bound := func(value string) string {
				return `{metadata: {name: p, ` + kind + `: {"` + key + `": ` + value + `, note: x}}, spec: {schedulerName: kai-scheduler, nodeName: n}}`
			}
			rows = append(rows,
				row{name: "bound, and moved by " + key, policy: PolicyPodIdentity, resource: pods, object: bound("b"), old: bound("a"), want: "may write " + key},
				row{name: "bound, with " + key, policy: PolicyPodIdentity, resource: pods, object: bound("a"), old: bound("a")})
		}
	}
	for _, key := range notes() {
		rows = append(rows, row{
			name: key, policy: PolicyGroupIdentity, resource: groups, object: `{metadata: {name: g, annotations: {"` + key + `": "2030-01-01T00:00:00Z"}}}`,
			old: `{metadata: {name: g, annotations: {"` + key + `": "2020-01-01T00:00:00Z"}}}`, want: "metadata.annotations: only Muster itself may write " + key,
		})
	}
	trusted := map[string][]string{"our-operator": nil, "system:node:n1": {"system:nodes"}}
	for _, ns := range []string{keys.Namespace, keys.ReservationNamespace} {
		name, groups := serviceAccount(ns, "any")
		trusted[name] = groups
	}
	tenants := map[string][]string{"eve": {"system:authenticated"}}
	for _, ns := range []string{"team", "kube-system"} { // a controller says what a tenant wrote into a template
		name, groups := serviceAccount(ns, "any")
		tenants[name] = groups
	}
	for _, r := range rows {
		for name, groups := range tenants {
			all[r.policy].expect(t, r.name+" by "+name, asked{resource: r.resource, object: r.object, old: r.old, subresource: r.sub, user: name, groups: groups, mayBind: r.mayBind}, r.want)
		}
		for name, groups := range trusted {
			all[r.policy].expect(t, r.name+" by "+name, asked{resource: r.resource, object: r.object, old: r.old, subresource: r.sub, user: name, groups: groups}, "")
		}
	}
}

// TestGuardedKeys: every key whose comment says that a component writes it is guarded, or is listed here with the reason why not.
func TestGuardedKeys(t *testing.T) {
	t.Parallel()
	free := map[string]string{
		"SharedGPUConfigMapAnnotation": "names ConfigMaps of the pod's own namespace, and KAI lets users choose it",
		"PodGroupAnnotation":           "users may group pods themselves",
		"SubGroupLabel":                "users may group pods themselves",
		"TopOwnerAnnotation":           "says something to people only",
		"SelectedForAnnotation":        "is on a volume claim and guards against repeating a step; without it the step is repeated",
		"DecisionAnnotation":           "is on an event: says something to people only",
		"BundleSizeLabel":              "is on BindRequests, which are guarded as a whole",
		"ExtendedResourcesAnnotation":  "is on Queues, which tenants do not write",
		"RemnantsAnnotation":           "is on Queues, which tenants do not write",
		"SelectedNodeLabel":            "is on BindRequests, which are guarded as a whole",
	}
	guarded := map[string]bool{keys.GPUGroupLabel: true, keys.GPUGroupLabelPrefix: true}
	for _, k := range append(marks(), notes()...) {
		guarded[k] = true
	}
	files, err := filepath.Glob("../../../api/kai/keys/*.go")
	if err != nil || len(files) < 5 {
		t.Fatalf("%d files of keys: %v", len(files), err)
	}
	seen := 0
	for _, file := range files {
		f, err := parser.ParseFile(gotoken.NewFileSet(), file, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			g, ok := d.(*ast.GenDecl)
			if !ok || g.Tok != gotoken.CONST {
				continue
			}
			for _, s := range g.Specs {
				v := s.(*ast.ValueSpec)
				doc := strings.Join(strings.Fields(v.Doc.Text()+g.Doc.Text()), " ")
				ours := strings.Contains(doc, "Written by") || strings.HasPrefix(g.Doc.Text(), "Notes that the scheduler keeps")
				lit, literal := v.Values[0].(*ast.BasicLit)
				if !ours || !literal || lit.Kind != gotoken.STRING || strings.HasPrefix(v.Names[0].Name, "Event") || strings.HasPrefix(v.Names[0].Name, "Reason") || strings.HasPrefix(v.Names[0].Name, "Condition") {
					continue
				}
				seen++
				if name := v.Names[0].Name; !guarded[strings.Trim(lit.Value, `"`)] && free[name] == "" {
					t.Errorf("%s: keys.%s is written by a component, and nobody guards it", filepath.Base(file), name)
				}
			}
		}
	}
	if seen < 12 {
		t.Errorf("only %d keys are written by components: the comments are not understood", seen)
	}
}

// TestQueueUse: who submits work to a queue needs the right to use it, whatever makes the pods.
func TestQueueUse(t *testing.T) {
	t.Parallel()
	all := judges(t, strict())
	const pods, jobs, cronjobs = "pods.v1.", "jobs.v1.batch", "cronjobs.v1.batch"
	meta := func(labels string) string { return "metadata: {name: x, labels: {" + labels + "}}" }
	const red, blue = "kai.scheduler/queue: red", "kai.scheduler/queue: blue"
	template := func(labels, scheduler string) string {
		return "template: {" + meta(labels) + ", spec: {schedulerName: " + scheduler + "}}"
	}
	const no = "eve may not use queue red (it takes the verb use on that queue, resource queues.scheduling.run.ai)"
	for _, c := range []struct {
		name, policy, resource, object, old, want string
		may                                       []string
	}{
		{"a pod", PolicyQueueLabels, pods, "{" + meta(red) + "}", "", no, []string{"blue"}},
		{"a pod, allowed", PolicyQueueLabels, pods, "{" + meta(red) + "}", "", "", []string{"red"}},
		{"any kind", PolicyQueueLabels, "things.v9.example.com", "{" + meta(red) + "}", "", no, nil},
		{"a claim", PolicyQueueLabels, "resourceclaims.v1.resource.k8s.io", "{" + meta(red) + "}", "", no, nil},
		{"moved", PolicyQueueLabels, jobs, "{" + meta(red) + "}", "{" + meta(blue) + "}", no, []string{"blue"}},
		{"relabelled otherwise", PolicyQueueLabels, jobs, "{" + meta(red+", a: b") + "}", "{" + meta(red) + "}", "", nil},
		{"let go", PolicyQueueLabels, jobs, "{" + meta("") + "}", "{" + meta(red) + "}", "", nil},
		{"a Job's template", PolicyQueueTemplates, jobs, "{spec: {" + template(red, "x") + "}}", "", no, nil},
		{"allowed", PolicyQueueTemplates, jobs, "{spec: {" + template(red, "x") + "}}", "", "", []string{"red"}},
		{"no labels", PolicyQueueTemplates, jobs, "{spec: {template: {spec: {}}}}", "", "", nil},
		{"no spec", PolicyQueueTemplates, jobs, "{metadata: {name: x}}", "", "", nil},
		{"changed", PolicyQueueTemplates, "deployments.v1.apps", "{spec: {" + template(red, "x") + "}}", "{spec: {" + template(blue, "x") + "}}", no, []string{"blue"}},
		{"scaled", PolicyQueueTemplates, "deployments.v1.apps", "{spec: {replicas: 5, " + template(red, "x") + "}}", "{spec: {" + template(red, "x") + "}}", "", nil},
		{"a CronJob's pods", PolicyQueueTemplates, cronjobs, "{spec: {jobTemplate: {spec: {" + template(red, "x") + "}}}}", "", no, nil},
		{"a CronJob's Jobs", PolicyQueueTemplates, cronjobs, "{spec: {jobTemplate: {" + meta(red) + ", spec: {}}}}", "", no, nil},
		{"a PyTorchJob", PolicyQueueTemplates, "pytorchjobs.v1.kubeflow.org", "{spec: {pytorchReplicaSpecs: {Master: {replicas: 1}, Worker: {" + template(red, "x") + "}}}}", "", no, nil},
		{"a RayCluster's workers", PolicyQueueTemplates, "rayclusters.v1.ray.io", "{spec: {headGroupSpec: {" + template(blue, "x") + "}, workerGroupSpecs: [{" + template(blue, "x") + "}]}}", "", "", []string{"blue"}},
		{"a RayJob's workers", PolicyQueueTemplates, "rayjobs.v1.ray.io", "{spec: {rayClusterSpec: {workerGroupSpecs: [{groupName: a}, {" + template(red, "x") + "}]}}}", "", no, nil},
		{"a JobSet's Jobs", PolicyQueueTemplates, "jobsets.v1alpha2.jobset.x-k8s.io", "{spec: {replicatedJobs: [{template: {" + meta(red) + "}}]}}", "", no, nil},
		{"a JobSet's pods", PolicyQueueTemplates, "jobsets.v1alpha2.jobset.x-k8s.io", "{spec: {replicatedJobs: [{template: {spec: {" + template(red, "x") + "}}}]}}", "", no, nil},
		{"a LeaderWorkerSet", PolicyQueueTemplates, "leaderworkersets.v1.leaderworkerset.x-k8s.io", "{spec: {leaderWorkerTemplate: {workerTemplate: {" + meta(red) + "}}}}", "", no, nil},
		{"a Workflow", PolicyQueueTemplates, "workflows.v1alpha1.argoproj.io", "{spec: {templates: [{name: a}, {" + meta(red) + "}]}}", "", no, nil},
		{"two queues", PolicyQueueTemplates, "pytorchjobs.v1.kubeflow.org", "{spec: {pytorchReplicaSpecs: {A: {" + template(blue, "x") + "}, B: {" + template(red, "x") + "}}}}", "", "one object may name one queue, this one names", []string{"blue"}},
		{"a PodGroup", PolicyQueueTemplates, "podgroups.v2alpha2.scheduling.run.ai", "{spec: {queue: red}}", "", no, nil},
		{"a PodGroup, moved", PolicyQueueTemplates, "podgroups.v2alpha2.scheduling.run.ai", "{spec: {queue: red}}", "{spec: {queue: blue}}", no, []string{"blue"}},
		{"a PodGroup, touched", PolicyQueueTemplates, "podgroups.v2alpha2.scheduling.run.ai", "{spec: {queue: red, minMember: 1}}", "{spec: {queue: red}}", "", nil},
		{"a project", PolicyQueueTemplates, jobs, "{spec: {" + template("project: red", "kai-scheduler") + "}}", "", "label project: the right to use a queue cannot be judged by it", []string{"*"}},
		{"a project above", PolicyQueueTemplates, jobs, "{" + meta("project: red") + ", spec: {" + template("", "kai-scheduler") + "}}", "", "label project", []string{"*"}},
		{"a pod's project", PolicyQueueTemplates, pods, "{" + meta("project: red") + ", spec: {schedulerName: kai-scheduler}}", "", "label project", []string{"*"}},
		{"a project beside a queue", PolicyQueueTemplates, jobs, "{spec: {" + template("project: red, "+blue, "kai-scheduler") + "}}", "", "", []string{"blue"}},
		{"a project below a queue", PolicyQueueTemplates, jobs, "{" + meta(blue) + ", spec: {" + template("project: red", "kai-scheduler") + "}}", "", "", []string{"blue"}},
		{"which does not count", PolicyQueueTemplates, cronjobs, "{" + meta(blue) + ", spec: {jobTemplate: {spec: {" + template("project: red", "kai-scheduler") + "}}}}", "", "label project", []string{"*"}},
		{"somebody else's project", PolicyQueueTemplates, jobs, "{spec: {" + template("project: red", "default-scheduler") + "}}", "", "", nil},
		{"a project added later", PolicyQueueTemplates, "deployments.v1.apps", "{spec: {" + template("project: red", "kai-scheduler") + "}}", "{spec: {" + template("a: b", "kai-scheduler") + "}}", "label project", []string{"*"}},
		{"a project of old", PolicyQueueTemplates, "deployments.v1.apps", "{spec: {replicas: 2, " + template("project: red", "kai-scheduler") + "}}", "{spec: {" + template("project: red", "kai-scheduler") + "}}", "", nil},
	} {
		all[c.policy].expect(t, c.name, asked{resource: c.resource, object: c.object, old: c.old, user: "eve", mayUse: c.may}, c.want)
		for _, ns := range []string{"kube-system", keys.Namespace} { // they speak for others
			name, groups := serviceAccount(ns, "job-controller")
			all[c.policy].expect(t, c.name, asked{resource: c.resource, object: c.object, old: c.old, user: name, groups: groups}, "")
		}
	}
	// An operator that is not one of Kubernetes' own has no right by itself.
	name, groups := serviceAccount("kubeflow", "training-operator")
	all[PolicyQueueLabels].expect(t, "an operator's pod", asked{resource: pods, object: "{" + meta(red) + "}", user: name, groups: groups}, name+" may not use queue red")
	all[PolicyQueueLabels].expect(t, "an operator with the right", asked{resource: pods, object: "{" + meta(red) + "}", user: name, groups: groups, mayUse: []string{"*"}}, "")
	all[PolicyQueueLabels].expect(t, "no queue", asked{resource: pods, object: "{" + meta("a: b") + "}", user: "eve", wantUnmatched: true}, "")
}

// TestForeignGPUs: where it is asked for, GPUs go only to pods that a queue is charged for.
func TestForeignGPUs(t *testing.T) {
	t.Parallel()
	if judges(t, strict())[PolicyForeignGPUs] != nil {
		t.Error("it is not off by default")
	}
	o := strict()
	o.ForbidForeignGPUs = true
	j := judges(t, o)[PolicyForeignGPUs]
	pod := func(scheduler, resource string) string {
		return `{metadata: {name: p}, spec: {schedulerName: ` + scheduler + `, containers: [{name: c, resources: {limits: {` + resource + `: "1"}}}]}}`
	}
	const no = "a pod that asks for them names the scheduler kai-scheduler"
	for _, c := range []struct{ object, want string }{
		{pod("kai-scheduler", "nvidia.com/gpu"), ""},
		{pod("default-scheduler", "cpu"), ""},
		{`{metadata: {name: p}, spec: {schedulerName: default-scheduler, containers: [{name: c}]}}`, ""},
		{pod("default-scheduler", "nvidia.com/gpu"), no},
		{pod("default-scheduler", "nvidia.com/mig-1g.5gb"), no},
		{pod("default-scheduler", "amd.com/gpu"), no},
		{`{metadata: {name: p}, spec: {schedulerName: other, containers: [{name: c}], initContainers: [{name: i, resources: {requests: {nvidia.com/gpu: 1}}}]}}`, no},
	} {
		j.expect(t, c.object, asked{resource: "pods.v1.", object: c.object, user: "tenant"}, c.want)
	}
}
