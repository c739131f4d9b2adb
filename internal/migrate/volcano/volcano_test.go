package volcano

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	apivolcano "github.com/muster-scheduler/muster/api/volcano"
	"github.com/muster-scheduler/muster/docs/ledgers"
	"github.com/muster-scheduler/muster/internal/migrate"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// decode reads objects as YAML, of kinds that nobody knows too.
func decode(t testing.TB, text string) (out []client.Object) {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, apivolcano.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	for _, document := range strings.Split(text, "\n---\n") {
		u := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(document), &u.Object); err != nil {
			t.Fatalf("%v in %s", err, document)
		}
		if len(u.Object) == 0 {
			continue
		}
		typed, err := scheme.New(u.GroupVersionKind())
		if err != nil {
			out = append(out, u)
			continue
		}
		if err := yaml.UnmarshalStrict([]byte(document), typed); err != nil {
			t.Fatalf("%v in %s", err, document)
		}
		out = append(out, typed.(client.Object))
	}
	return out
}

// judge judges objects, and returns the findings in words: level, row, whom it is about, text and what to do.
func judge(t testing.TB, text string) (*migrate.Report, []string) {
	t.Helper()
	in := &Objects{}
	for _, o := range decode(t, text) {
		in.Add(o)
	}
	r, err := Judge(in, noon)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, f := range r.Findings {
		out = append(out, fmt.Sprintf("%s %s %s: %s [%s]", f.Level, f.Row, f.About, f.Text, f.Next))
	}
	return r, out
}

// each are the differences by key: a cluster that feels one, and whom it is told about, or how it begins to be told.
var each = map[string][2]string{
	"scheduler-file":         {configMap("volcano-scheduler-configmap", "volcano-scheduler.conf", "actions: allocate, backfill\ntiers:\n- plugins:\n  - name: usage\n  - name: frobnicate"), `ConfigMap volcano-system/volcano-scheduler-configmap:volcano-scheduler.conf: line 5: tiers[0].plugins[1].name is "frobnicate", which is no plugin, and is left out`},
	"shuffle":                {configMap("volcano-scheduler-configmap", "volcano-scheduler.conf", "actions: allocate, shuffle"), "ConfigMap volcano-system/volcano-scheduler-configmap:volcano-scheduler.conf: "},
	"rescheduling":           {configMap("volcano-scheduler-configmap", "volcano-scheduler.conf", "actions: allocate\ntiers:\n- plugins:\n  - name: rescheduling"), "ConfigMap volcano-system/volcano-scheduler-configmap:volcano-scheduler.conf: "},
	"scheduler-file-refused": {configMap("volcano-scheduler-configmap", "volcano-scheduler.conf", "actions: dance"), `ConfigMap volcano-system/volcano-scheduler-configmap:volcano-scheduler.conf: the scheduler file is refused: line 1: actions names "dance"`},
	"scheduler-flags":        {program("vc-scheduler", "--scheduler-conf=/a/b.conf -v=3 --plugins-dir=/plugins 2>&1", ""), "Deployment volcano-system/vc-scheduler: the flag --plugins-dir of Volcano's scheduler is not read"},
	"several-schedulers":     {program("vc-scheduler", "", "MULTI_SCHEDULER_ENABLE"), "Deployment volcano-system/vc-scheduler: MULTI_SCHEDULER_ENABLE"},
	"controller-flags":       {program("vc-controller-manager", "--feature-gates=WorkLoadSupport=false", ""), "Deployment volcano-system/vc-controller-manager: "},
	"admission-flags":        {program("vc-webhook-manager", "--enabled-admission /jobs/mutate", ""), "Deployment volcano-system/vc-webhook-manager: The role"},
	"controller-config":      {program("vc-controller-manager", "", "") + configMap("mine", "volcano-controller.conf", "networkTopologyDiscovery: []"), "ConfigMap volcano-system/mine: "},
	"discovery-interval":     {configMap("volcano-controller-configmap", "volcano-controller.conf", "networkTopologyDiscovery:\n- {source: label, enabled: true, interval: 10m}"), "ConfigMap volcano-system/volcano-controller-configmap: "},
	"discovery-ufm":          {configMap("volcano-controller-configmap", "volcano-controller.conf", "networkTopologyDiscovery:\n- {source: ufm, enabled: true}"), "ConfigMap volcano-system/volcano-controller-configmap: "},
	"pods-changed":           {configMap("volcano-admission-configmap", "volcano-admission.conf", "resourceGroups:\n- {resourceGroup: a}"), "ConfigMap volcano-system/volcano-admission-configmap: "},
	"queue-broken":           {queue("root", "") + queue("default", "{parent: root}") + queue("a", "{parent: root}") + queue("b", "{parent: a}") + group("g", "{queue: a}"), "PodGroup ns/g: queue a has queues below it"},
	"queues-founded":         {queue("a", ""), "Queue default, root: "},
	"queue-fifo":             {queue("root", "") + queue("default", "{dequeueStrategy: fifo}"), "Queue default: "},
	"queue-extras":           {queue("root", "") + queue("default", "{extendClusters: [{name: other}]}"), "Queue default: "},
	"queue-reservation":      {queue("default", "") + "\n---\n{apiVersion: scheduling.volcano.sh/v1beta1, kind: Queue, metadata: {name: root}, status: {allocated: {}, reservation: {nodes: [a]}}}", "Queue root: "},
	"topology-without-tier":  {queues + group("g", "{networkTopology: {mode: hard, highestTierName: moon}}"), "PodGroup ns/g: "},
	"topology-holds":         {queues + group("g", "{networkTopology: {mode: hard, highestTierAllowed: 1}}"), "PodGroup ns/g: "},
	"topology-annotation":    {queues + annotated("g", "volcano.sh/job-allocated-hypernode: h"), "PodGroup ns/g: "},
	"pod-topology":           {pod("p", "volcano.sh/network-topology-mode: maybe", ""), "Pod ns/p: "},
	"one-tree":               {hyperNode("a", 1, "Node", "x") + hyperNode("b", 1, "Node", "x") + hyperNode("c", 2, "Node", "x"), "HyperNode a, b: "},
	"hypernode-members":      {hyperNode("a", 1, "Node", "x") + hyperNode("b", 1, "HyperNode", "a"), "HyperNode b: "},
	"node-shards":            {"\n---\n{apiVersion: shard.volcano.sh/v1alpha1, kind: NodeShard, metadata: {name: s}, spec: {nodesDesired: [a]}}", "NodeShard s: "},
	"voted-anew":             {queues + "\n---\n{apiVersion: scheduling.volcano.sh/v1beta1, kind: PodGroup, metadata: {namespace: ns, name: g}, spec: {minResources: {cpu: 1}}, status: {phase: Inqueue}}", "PodGroup ns/g: "},
	"no-minimum":             {queues + "\n---\n{apiVersion: scheduling.volcano.sh/v1beta1, kind: PodGroup, metadata: {namespace: ns, name: g}, spec: {minMember: 1}}", "PodGroup ns/g: "},
	"task-minimums":          {queues + group("g", "{minTaskMember: {w: 1}, subGroupPolicy: [{name: other}]}"), "PodGroup ns/g: "},
	"revocable-zones":        {queues + annotated("g", "volcano.sh/revocable-zone: '*'"), "PodGroup ns/g: "},
	"kept-pods":              {pod("p", "volcano.sh/preemptable: 'false'", ""), "Pod ns/p: "},
	"queue-gates":            {pod("p", "", "schedulingGates: [{name: scheduling.volcano.sh/queue-allocation-gate}]"), "Pod ns/p: "},
	"fit-annotations":        {pod("p", "volcano.sh/resource-strategy-weight: '{}'", ""), "Pod ns/p: "},
	"numa":                   {pod("p", "volcano.sh/numa-topology-policy: single-numa-node", "") + "\n---\n{apiVersion: flow.volcano.sh/v1alpha1, kind: JobTemplate, metadata: {namespace: ns, name: t}, spec: {tasks: [{topologyPolicy: best-effort, template: {spec: {containers: []}}}]}}", "JobTemplate ns/t; Pod ns/p: "},
	"devices":                {pod("p", "", "containers: [{name: c, resources: {limits: {volcano.sh/vgpu-number: 1}}}]"), "Pod ns/p: "},
	"agent-scheduler":        {"\n---\n{apiVersion: v1, kind: Pod, metadata: {namespace: ns, name: p}, spec: {schedulerName: agent-scheduler, containers: []}}", "Pod ns/p: "},
	"colocation":             {"\n---\n{apiVersion: config.volcano.sh/v1alpha1, kind: ColocationConfiguration, metadata: {namespace: ns, name: c}}" + pod("p", "volcano.sh/qos-level: BE", ""), "ColocationConfiguration ns/c; Pod ns/p: "},
	"foreign-kinds":          {"\n---\n{apiVersion: training.volcano.sh/v1alpha1, kind: HyperJob, metadata: {namespace: ns, name: h}}", "HyperJob ns/h: "},
	"policy-pending":         {job("j", "{policies: [{event: PodPending, action: RestartPod, timeout: 1m}]}"), "Job ns/j: "},
	"policy-unknown":         {job("j", "{tasks: [{template: {spec: {containers: []}}, policies: [{events: [Unknown], action: RestartJob}]}]}"), "Job ns/j: "},
	"policy-updated":         {job("j", "{policies: [{event: JobUpdated, action: RestartJob}]}"), "Job ns/j: "},
	"no-duration":            {job("j", "{policies: [{event: PodFailed, action: RestartPod, timeout: soon}]}"), "Job ns/j: "},
	"commands":               {"\n---\n{apiVersion: bus.volcano.sh/v1alpha1, kind: Command, metadata: {namespace: ns, name: c}, action: AbortJob}", "Command ns/c: "},
	"cron-zone":              {"\n---\n{apiVersion: batch.volcano.sh/v1alpha1, kind: CronJob, metadata: {namespace: ns, name: c}, spec: {schedule: 'TZ=UTC 0 * * * *', jobTemplate: {spec: {}}}}", "CronJob ns/c: "},
	"cron-history":           {"\n---\n{apiVersion: batch.volcano.sh/v1alpha1, kind: Job, metadata: {namespace: ns, name: j, ownerReferences: [{apiVersion: batch.volcano.sh/v1alpha1, kind: CronJob, name: c, uid: u}]}, status: {state: {phase: Terminated}}}", "Job ns/j: "},
	"flow-probes":            {"\n---\n{apiVersion: flow.volcano.sh/v1alpha1, kind: JobFlow, metadata: {namespace: ns, name: f}, spec: {flows: [{name: a}, {name: b, dependsOn: {targets: [a], probe: {tcpSocketList: [{port: 1}]}}}]}}", "JobFlow ns/f: "},
}

var queues = queue("root", "") + queue("default", "{parent: root}")

func queue(name, spec string) string {
	return fmt.Sprintf("\n---\n{apiVersion: scheduling.volcano.sh/v1beta1, kind: Queue, metadata: {name: %s}, spec: %s}", name, orEmpty(spec))
}

func group(name, spec string) string {
	spec = strings.Replace(spec, "{", "{minResources: {cpu: 1}, ", 1)
	return fmt.Sprintf("\n---\n{apiVersion: scheduling.volcano.sh/v1beta1, kind: PodGroup, metadata: {namespace: ns, name: %s}, spec: %s}", name, spec)
}

func annotated(name, annotation string) string {
	return fmt.Sprintf("\n---\n{apiVersion: scheduling.volcano.sh/v1beta1, kind: PodGroup, metadata: {namespace: ns, name: %s, annotations: {%s}}, spec: {minResources: {cpu: 1}}}", name, annotation)
}

func pod(name, annotation, spec string) string {
	if !strings.Contains(spec, "containers") {
		spec = strings.TrimPrefix(spec+", containers: []", ", ")
	}
	return fmt.Sprintf("\n---\n{apiVersion: v1, kind: Pod, metadata: {namespace: ns, name: %s, annotations: {%s}}, spec: {schedulerName: volcano, %s}}", name, annotation, spec)
}

func job(name, spec string) string {
	return fmt.Sprintf("\n---\n{apiVersion: batch.volcano.sh/v1alpha1, kind: Job, metadata: {namespace: ns, name: %s}, spec: %s}", name, spec)
}

func hyperNode(name string, tier int, kind, member string) string {
	return fmt.Sprintf("\n---\n{apiVersion: topology.volcano.sh/v1alpha1, kind: HyperNode, metadata: {name: %s}, spec: {tier: %d, members: [{type: %s, selector: {exactMatch: {name: %s}}}]}}", name, tier, kind, member)
}

func configMap(name, key, text string) string {
	return fmt.Sprintf("\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {namespace: volcano-system, name: %s}\ndata:\n  %s: |\n    %s", name, key, strings.ReplaceAll(text, "\n", "\n    "))
}

// program is a Deployment of a program that has been stopped.
func program(name, args, variable string) string {
	if variable != "" {
		variable = fmt.Sprintf("{name: %s, value: 'true'}", variable)
	}
	return fmt.Sprintf("\n---\n{apiVersion: apps/v1, kind: Deployment, metadata: {namespace: volcano-system, name: %[1]s}, spec: {replicas: 0, selector: {}, template: {spec: {containers: [{name: c, image: 'docker.io/volcanosh/%[1]s:v1.16', args: ['%[2]s'], env: [%[3]s]}]}}}}", name, args, variable)
}

func orEmpty(spec string) string {
	if spec == "" {
		return "{}"
	}
	return spec
}

// TestEachDifference: each difference is found where it is felt, and no other with it; and where it is not felt, none.
func TestEachDifference(t *testing.T) {
	t.Parallel()
	for key, c := range each { // order: each by itself
		t.Run(key, func(t *testing.T) {
			t.Parallel()
			r, got := judge(t, c[0])
			if r.Stops() || len(got) == 0 {
				t.Fatalf("%d findings, in the way %v:\n%s", len(got), r.Stops(), strings.Join(got, "\n"))
			}
			if !slices.ContainsFunc(r.Findings, func(f migrate.Finding) bool { return strings.HasPrefix(f.About+": "+f.Text, c[1]) }) {
				t.Errorf("not told: %s\nin\n%s", c[1], strings.Join(got, "\n"))
			}
			for _, f := range r.Findings {
				if f.Row != key && (f.Row != "controller-flags" || key != "controller-config") {
					t.Errorf("found besides: %+v", f)
				}
			}
		})
	}
	plain := queues + group("g", "{queue: default}") + pod("p", "", "") + job("j", "{policies: [{event: PodFailed, action: RestartPod, timeout: 1m}]}") + hyperNode("a", 1, "Node", "x") + hyperNode("b", 2, "HyperNode", "a") +
		program("vc-scheduler", "--scheduler-conf=/a/volcano-scheduler.conf -v=3", "") + configMap("volcano-scheduler-configmap", "volcano-scheduler.conf", "actions: enqueue, allocate\ntiers:\n- plugins:\n  - name: gang")
	if r, got := judge(t, plain); r.Stops() || len(got) > 0 || len(r.Clear) != 5 {
		t.Errorf("%v\n%s", r.Clear, strings.Join(got, "\n"))
	}
}

// TestLedger: what is looked for, what this test has, and the ledger's rows that can be told are the same.
func TestLedger(t *testing.T) {
	t.Parallel()
	all, err := ledgers.Volcano()
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]int{}
	for _, part := range all { // order: a count
		for _, row := range part {
			if row.Told != "" {
				rows[row.Told]++
			}
		}
	}
	looked := map[string]bool{}
	for _, d := range slices.Concat(ofPrograms(), ofQueues(), ofWork(), ofTopology()) {
		if looked[d.row] || rows[d.row] != 1 {
			t.Errorf("%s is looked for twice, or is told by %d rows of the ledger", d.row, rows[d.row])
		}
		looked[d.row] = true
		if _, tested := each[d.row]; !tested {
			t.Errorf("%s has no test", d.row)
		}
	}
	for key := range rows { // order: each by itself
		if !looked[key] {
			t.Errorf("the ledger has %s, which nothing looks for", key)
		}
	}
}

// TestInTheWay: what of Volcano's runs stands in the way, and Muster's own programs do not.
func TestInTheWay(t *testing.T) {
	t.Parallel()
	runs := func(namespace, name, image, words string, ready int) string {
		return fmt.Sprintf("\n---\n{apiVersion: apps/v1, kind: Deployment, metadata: {namespace: %s, name: %s}, spec: {replicas: 1, selector: {}, template: {spec: {containers: [{name: c, image: '%s', %s}]}}}, status: {readyReplicas: %d}}", namespace, name, image, words, ready)
	}
	lease := func(namespace, name, renewed string) string {
		return fmt.Sprintf("\n---\n{apiVersion: coordination.k8s.io/v1, kind: Lease, metadata: {namespace: %s, name: %s}, spec: {holderIdentity: pod_1, leaseDurationSeconds: 15, renewTime: '%s'}}", namespace, name, renewed)
	}
	hook := "\n---\n{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingWebhookConfiguration, metadata: {name: volcano-admission-service-jobs-validate}, webhooks: [{name: a.b.c, clientConfig: {service: {namespace: volcano-system, name: volcano-admission-service}}, sideEffects: None, admissionReviewVersions: [v1]}]}"
	for _, c := range []struct {
		name, in string
		want     []string
	}{
		{"nothing", "", nil},
		{"the scheduler", runs("volcano-system", "volcano-scheduler", "r/volcanosh/vc-scheduler:v1", "args: [--logtostderr]", 1), []string{"stop  Deployment volcano-system/volcano-scheduler: Volcano's vc-scheduler runs: 1 of its pods are ready [kubectl -n volcano-system scale deployment volcano-scheduler --replicas=0]"}},
		{"an image of another name", runs("batch", "mine", "r/mirror@sha256:00", "command: [/bin/sh, -c, './vc-controller-manager --v=2']", 1), []string{"stop  Deployment batch/mine: Volcano's vc-controller-manager runs"}},
		{"by its place", runs("volcano-system", "volcano-controllers", "r/mirror/a", "args: [a]", 0), []string{"see  Deployment volcano-system/volcano-controllers: Volcano's vc-controller-manager is to run"}},
		{"of that name elsewhere", runs("shop", "volcano-controllers", "r/mirror/a", "args: [a]", 1), nil},
		{"Muster's", runs("kai-scheduler", "muster-vc-controller-manager", "r/muster:v1", "args: [run, vc-controller-manager]", 1) + runs("volcano-system", "volcano-scheduler", "r/x", "args: [run, scheduler]", 1) + runs("a", "b", "r/x", "command: [/bin/muster, run, vc-controller-manager]", 1), nil},
		{"its webhook's program", runs("volcano-system", "volcano-admission", "r/vc-webhook-manager", "args: [a]", 1) + hook, []string{"see  Deployment volcano-system/volcano-admission: Volcano's vc-webhook-manager is to run"}},
		{"its webhook", hook, []string{"stop  ValidatingWebhookConfiguration volcano-admission-service-jobs-validate: it is Volcano's, and none"}},
		{"a pod of its own", "\n---\n{apiVersion: v1, kind: Pod, metadata: {namespace: kube-system, name: s}, spec: {containers: [{name: c, image: r/vc-scheduler}]}, status: {phase: Running}}", []string{"stop  Pod kube-system/s: Volcano's vc-scheduler runs"}},
		{"leaders", lease("volcano-system", "volcano", "2026-01-01T11:59:50.000000Z") + lease("volcano-system", "vc-controller-manager", "2026-01-01T11:59:50.000000Z"), []string{
			"stop  Lease volcano-system/volcano: pod_1 leads as the scheduler", "stop  Lease volcano-system/vc-controller-manager: pod_1 leads as the controllers",
		}},
		{"former leaders", lease("volcano-system", "volcano", "2026-01-01T11:59:40.000000Z") + lease("elsewhere", "volcano", "2026-01-01T12:00:00.000000Z"), nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r, got := judge(t, c.in)
			ok := len(got) == len(c.want) && r.Stops() == slices.ContainsFunc(c.want, func(s string) bool { return strings.HasPrefix(s, "stop ") })
			for i := range c.want {
				ok = ok && strings.HasPrefix(got[i], c.want[i])
			}
			if !ok {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(c.want, "\n"))
			}
		})
	}
}

// TestBounded: a difference that many feel is told with few names and a count.
func TestBounded(t *testing.T) {
	t.Parallel()
	text := queues
	for i := range 500 {
		text += pod(fmt.Sprintf("p-%03d", i), "volcano.sh/preemptable: 'false'", "")
	}
	flags := ""
	for i := range 40 {
		flags += fmt.Sprintf(" --strange-%02d=1", i)
	}
	_, got := judge(t, text+program("vc-scheduler", flags, ""))
	if len(got) != 2 || !slices.ContainsFunc(got, func(s string) bool {
		return strings.HasPrefix(s, "differs kept-pods Pod ns/p-000, ns/p-001, ns/p-002 and 497 more: ")
	}) ||
		!slices.ContainsFunc(got, func(s string) bool { return strings.Contains(s, "; and 32 more. Why: ") }) {
		t.Errorf("%d:\n%s", len(got), strings.Join(got, "\n"))
	}
	text = queues
	for i := range 40 {
		text += group(fmt.Sprintf("g-%02d", i), fmt.Sprintf("{queue: lost-%02d}", i))
	}
	if _, got = judge(t, text); len(got) != mostTexts+1 || !strings.HasPrefix(got[mostTexts], "see queue-broken 32 more: ") {
		t.Errorf("%d:\n%s", len(got), strings.Join(got, "\n"))
	}
}

// fakeAPI plays a cluster: it lists what it has by type, and does not serve the types that it is told.
type fakeAPI struct {
	objects           []client.Object
	forbidden, absent string // list type
}

func (a fakeAPI) List(_ context.Context, into client.ObjectList, _ ...client.ListOption) error {
	name := fmt.Sprintf("%T", into)
	u, loose := into.(*unstructured.UnstructuredList)
	switch {
	case a.forbidden != "" && strings.HasSuffix(name, a.forbidden):
		return apierrors.NewForbidden(schema.GroupResource{Resource: a.forbidden}, "", nil)
	case a.absent != "" && strings.HasSuffix(name, a.absent) || loose && u.GetKind() != "HyperJobList":
		return &meta.NoKindMatchError{}
	}
	var found []runtime.Object
	for _, o := range a.objects {
		if x, ok := o.(*unstructured.Unstructured); ok && loose {
			u.Items = append(u.Items, *x)
		} else if reflect.TypeOf(o).String()+"List" == reflect.TypeOf(into).String() {
			found = append(found, o)
		}
	}
	if loose {
		return nil
	}
	return meta.SetList(into, found)
}

func (a fakeAPI) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	for _, o := range a.objects {
		if o.GetName() == key.Name && o.GetNamespace() == key.Namespace && reflect.TypeOf(o) == reflect.TypeOf(into) {
			reflect.ValueOf(into).Elem().Set(reflect.ValueOf(o).Elem())
			return nil
		}
	}
	return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
}

// TestCheck: a cluster that is read comes to the same findings as its objects; what may not be read is told, and so are kinds that are not served.
func TestCheck(t *testing.T) {
	t.Parallel()
	var text string
	for _, key := range []string{"scheduler-file", "several-schedulers", "queue-fifo", "one-tree", "foreign-kinds", "policy-updated", "flow-probes", "commands", "cron-zone", "kept-pods", "node-shards", "colocation"} {
		text += each[key][0]
	}
	objects := decode(t, text)
	want, _ := judge(t, text)
	got, err := Check(t.Context(), fakeAPI{objects: objects}, noon)
	if err != nil || !reflect.DeepEqual(got, want) || len(got.Findings) < 12 {
		t.Errorf("%v\n%+v\nwant\n%+v", err, got, want)
	}
	for _, kind := range []string{"DeploymentList", "LeaseList", "PodGroupList", "PodList"} {
		r, err := Check(t.Context(), fakeAPI{objects: objects, forbidden: kind}, noon)
		if err != nil || !slices.ContainsFunc(r.Findings, func(f migrate.Finding) bool { return strings.Contains(f.Text, "it may not read all it has to") }) {
			t.Errorf("%s: %v, %+v", kind, err, r)
		}
	}
	r, err := Check(t.Context(), fakeAPI{objects: objects, absent: "JobFlowList"}, noon)
	if err != nil || !slices.ContainsFunc(r.Findings, func(f migrate.Finding) bool { return strings.Contains(f.Text, "does not serve Volcano's JobFlows") }) {
		t.Errorf("%v, %+v", err, r)
	}
}

// FuzzConfigMaps: whatever text Volcano's ConfigMaps have, it is told or passed over, in bounded words, and nothing panics.
func FuzzConfigMaps(f *testing.F) {
	f.Add("actions: allocate, shuffle\ntiers:\n- plugins:\n  - name: usage\n    arguments: {a: 1}\n  - name: frobnicate", "--scheduler-conf /x/y.conf")
	f.Add("networkTopologyDiscovery:\n- {source: ufm, enabled: true, interval: 1h}\nresourceGroups: [1]", "--a -b=c")
	f.Add("actions: [\n- : {{", "--=")
	f.Add("networkTopologyDiscovery: 3", "-")
	f.Fuzz(func(t *testing.T, text, words string) {
		in := &Objects{Programs: []Program{{What: programScheduler, Kind: "Deployment", Namespace: "volcano-system", Name: "s", Words: strings.Fields(words), Maps: []string{"volcano-scheduler-configmap"}}}}
		for name, key := range map[string]string{"volcano-scheduler-configmap": "volcano-scheduler.conf", "volcano-controller-configmap": "volcano-controller.conf", "volcano-admission-configmap": "volcano-admission.conf"} { // order: each by itself
			in.Add(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "volcano-system", Name: name}, Data: map[string]string{key: text}})
		}
		for _, d := range ofPrograms() {
			var f found
			d.find(in, &f)
			for _, said := range f.texts {
				if len(said) > 8<<10 || len(called(f.at[said])) > 1<<10 {
					t.Errorf("%s: %d and %d bytes", d.row, len(said), len(called(f.at[said])))
				}
			}
		}
	})
}

// TestOdd: objects that say nothing, or nothing that can be, are looked at without a panic.
func TestOdd(t *testing.T) {
	t.Parallel()
	in := &Objects{}
	for _, o := range decode(t, queue("a", "{parent: a}")+queue("b", "{parent: c}")+queue("c", "{parent: b}")+group("g", "{queue: a}")+group("h", "{queue: c}")+group("i", "{queue: moon}")+
		"\n---\n{apiVersion: v1, kind: Pod, metadata: {}}\n---\n{apiVersion: apps/v1, kind: Deployment, metadata: {}}\n---\n{apiVersion: batch.volcano.sh/v1alpha1, kind: Job}\n---\n{apiVersion: scheduling.volcano.sh/v1beta1, kind: PodGroup}"+
		"\n---\n{apiVersion: flow.volcano.sh/v1alpha1, kind: JobFlow, spec: {flows: [{name: ''}]}}\n---\n{apiVersion: coordination.k8s.io/v1, kind: Lease}\n---\n{apiVersion: topology.volcano.sh/v1alpha1, kind: HyperNode, spec: {tier: 0, members: [{type: Node}, {type: HyperNode}]}}") {
		in.Add(o)
	}
	if _, err := Judge(in, noon); err != nil {
		t.Error(err)
	}
}
