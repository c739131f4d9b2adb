//go:build lab

package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/muster-scheduler/muster/api/scheduling/v1alpha2"
	queuev2 "github.com/muster-scheduler/muster/api/scheduling/v2"
	"github.com/muster-scheduler/muster/api/scheduling/v2alpha2"
	"github.com/muster-scheduler/muster/internal/lab"
)

// TestBadInput applies what makes no sense, all of it to one running muster.
func TestBadInput(t *testing.T) {
	w := newFixture(t, 4, lab.Options{})
	muster := newProcess(t, "all", w.lab.Kubeconfig())
	muster.start()
	muster.awaitReady(t)
	w.namespace(t, "elsewhere")
	if err := w.apply(t, "elsewhere", "apiVersion: scheduling.run.ai/v2alpha2\nkind: PodGroup\nmetadata: {name: theirs}\nspec: {minMember: 1, queue: team}"); err != nil {
		t.Fatal(err)
	}

	cases := badInputs()
	refused := make([]string, len(cases))
	for i, c := range cases {
		ns := c.namespace(i)
		w.namespace(t, ns)
		for doc := range strings.SplitSeq(c.objects, "\n---\n") {
			if err := w.apply(t, ns, doc); err != nil {
				refused[i] += "refused: " + err.Error()
			}
		}
	}
	// The bystander comes last, and needs what everybody needs.
	w.namespace(t, "bystander")
	w.create(t, gang("bystander", "gang", 8, ""))
	delay := w.must(t, 5*time.Second, w.allRunning("bystander", 8))

	report := &strings.Builder{}
	for i, c := range cases {
		said := ""
		_, lacking := w.await(15*time.Second, func() string {
			said = refused[i] + w.said(c.namespace(i), c.queues)
			for _, want := range c.want {
				if !strings.Contains(said, want) {
					return fmt.Sprintf("nothing says %q", want)
				}
			}
			if c.runs > 0 && w.running(c.namespace(i)) != c.runs {
				return fmt.Sprintf("%d pods run, want %d", w.running(c.namespace(i)), c.runs)
			}
			if c.runs == 0 && w.bound(c.namespace(i)) > 0 {
				return fmt.Sprintf("%d pods are bound", w.bound(c.namespace(i)))
			}
			return ""
		})
		if lacking != "" {
			t.Errorf("%s: %s; it said: %s", c.name, lacking, said)
		}
		fmt.Fprintf(report, "\n%-34s %.600s", c.name, strings.ReplaceAll(said, "\n", " "))
	}
	t.Logf("bad input, and what its author is told:%s", report)
	if muster.started != 1 || !muster.running() {
		t.Errorf("muster has ended: %v", muster.exit())
	}
	if err := muster.ready(); err != nil {
		t.Error(err)
	}
	w.namespace(t, "late")
	w.create(t, gang("late", "gang", 8, ""))
	t.Logf("a gang that came after all of them ran after %v, one that came when all had been judged after %v",
		delay.Round(time.Millisecond), w.must(t, 5*time.Second, w.allRunning("late", 8)).Round(time.Millisecond))
}

// apply creates what a YAML document describes, in the namespace if it belongs in one. The error is the API server's.
func (w *fixture) apply(t testing.TB, namespace, doc string) error {
	t.Helper()
	var u unstructured.Unstructured
	if err := yaml.Unmarshal([]byte(doc), &u.Object); err != nil {
		t.Fatalf("%v in:\n%s", err, doc)
	}
	if u.GetKind() != "Queue" && u.GetNamespace() == "" {
		u.SetNamespace(namespace)
	}
	return w.client.Create(t.Context(), &u)
}

// said gathers what users are told about the objects of a namespace and about queues: conditions, statuses and events.
func (w *fixture) said(namespace string, queues []string) string {
	var all []string
	add := func(about string, parts ...string) {
		text := about + ": " + strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), ": ")
		if !slices.Contains(all, text) {
			all = append(all, text)
		}
	}
	for _, pg := range list(w, &v2alpha2.PodGroupList{}, client.InNamespace(namespace)).Items {
		for _, c := range pg.Status.SchedulingConditions {
			add("PodGroup", string(c.Reason), c.Message)
		}
		for _, c := range pg.Status.Conditions {
			add("PodGroup", string(c.Type), c.Reason, c.Message)
		}
	}
	for _, p := range w.pods(namespace) {
		for _, c := range p.Status.Conditions {
			if c.Message != "" {
				add("Pod", string(c.Type), c.Reason, c.Message)
			}
		}
	}
	for _, r := range list(w, &v1alpha2.BindRequestList{}, client.InNamespace(namespace)).Items {
		if r.Status.Reason != "" {
			add("BindRequest", string(r.Status.Phase), r.Status.Reason)
		}
	}
	for _, q := range list(w, &queuev2.QueueList{}).Items {
		if slices.Contains(queues, q.Name) {
			for _, c := range q.Status.Conditions {
				if c.Status == corev1.ConditionTrue {
					add("Queue "+q.Name, string(c.Type), c.Message)
				}
			}
		}
	}
	for _, e := range list(w, &corev1.EventList{}).Items {
		about := e.InvolvedObject
		if (about.Namespace == namespace || about.Kind == "Queue" && slices.Contains(queues, about.Name)) && e.Source.Component != "job-controller" && e.Source.Component != "kubelet" {
			add("event on "+about.Kind, e.Reason, e.Message)
		}
	}
	slices.Sort(all)
	return strings.Join(all, " | ")
}

// badInput is an object, or several, that make no sense.
type badInput struct {
	name    string
	objects string   // YAML documents
	queues  []string // those whose conditions answer
	want    []string // each occurs in what is said
	runs    int      // how many pods run all the same
}

func (badInput) namespace(i int) string { return fmt.Sprintf("bad-%d", i) }

// badPod is a pod of ours: one line of YAML for each of metadata, spec and container.
func badPod(name, metadata, spec, requests string) string {
	if requests == "" {
		requests = "nvidia.com/gpu: 1"
	}
	return fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: %s%s}\nspec: {schedulerName: kai-scheduler%s, containers: [{name: main, image: registry.example/i, resources: {limits: {%s}}}]}",
		name, metadata, spec, requests)
}

// badJob is a Job of two pods of ours.
func badJob(labels, annotations string) string {
	return fmt.Sprintf("apiVersion: batch/v1\nkind: Job\nmetadata: {name: job, labels: {%s}, annotations: {%s}}\n"+
		"spec: {parallelism: 2, completions: 2, template: {spec: {schedulerName: kai-scheduler, restartPolicy: Never, containers: [{name: main, image: registry.example/i, resources: {limits: {nvidia.com/gpu: 1}}}]}}}",
		labels, annotations)
}

// podGroup is a PodGroup called gang with a pod in it.
func podGroup(spec, podLabels string) string {
	return "apiVersion: scheduling.run.ai/v2alpha2\nkind: PodGroup\nmetadata: {name: gang}\nspec: {" + spec + "}\n---\n" +
		badPod("member", ", labels: {kai.scheduler/queue: team"+podLabels+"}, annotations: {pod-group-name: gang}", "", "")
}

func badQueue(name, spec string) string {
	return "apiVersion: scheduling.run.ai/v2\nkind: Queue\nmetadata: {name: " + name + "}\nspec: {" + spec + "}"
}

const (
	team = "kai.scheduler/queue: team"
	free = "resources: {gpu: {quota: -1, limit: -1, overQuotaWeight: 1}, cpu: {quota: -1, limit: -1, overQuotaWeight: 1}, memory: {quota: -1, limit: -1, overQuotaWeight: 1}}"
)

func badInputs() []badInput {
	var many, deep strings.Builder
	for i := range 10000 {
		fmt.Fprintf(&many, "{name: s%d, minMember: 1}, ", i)
	}
	for i := range 60 {
		parent := ""
		if i > 0 {
			parent = fmt.Sprintf("parentQueue: deep-%d, ", i-1)
		}
		deep.WriteString(badQueue(fmt.Sprintf("deep-%d", i), parent+free) + "\n---\n")
	}
	long := strings.Repeat("n", 253)
	return []badInput{
		{"negative minMember", podGroup("minMember: -3, queue: team", ""), nil, []string{"spec.minMember"}, 0},
		{"minMember beyond 32 bits", podGroup("minMember: 99999999999, queue: team", ""), nil, []string{"spec.minMember"}, 0},
		{"minMember of two billion", podGroup("minMember: 2147483647, queue: team", ""), nil, []string{"2147483647"}, 0},
		{"both minimums", podGroup("minMember: 1, minSubGroup: 1, queue: team", ""), nil, []string{"both minMember and minSubGroup"}, 0},
		{"queues in a circle", badQueue("circle-a", "parentQueue: circle-b, "+free) + "\n---\n" + badQueue("circle-b", "parentQueue: circle-a, "+free) + "\n---\n" +
			badJob("kai.scheduler/queue: circle-a", ""), []string{"circle-a"}, []string{"its own ancestor: circle-a", "PodGroup"}, 0},
		{
			"queue that is its own parent", badQueue("narcissus", "parentQueue: narcissus, "+free) + "\n---\n" + badJob("kai.scheduler/queue: narcissus", ""),
			[]string{"narcissus"},
			[]string{"its own ancestor", "PodGroup"},
			0,
		},
		{
			"queue whose parent is missing", badQueue("orphan", "parentQueue: nobody, "+free) + "\n---\n" + badJob("kai.scheduler/queue: orphan", ""),
			[]string{"orphan"},
			[]string{`there is no queue "nobody"`, "PodGroup"},
			0,
		},
		{"missing queue", badJob("kai.scheduler/queue: nowhere", ""), nil, []string{"PodGroup", "nowhere"}, 0},
		{"no queue label, no default queue", badJob("", ""), nil, []string{"PodGroup", "default-queue"}, 0},
		{"a department as queue", badJob("kai.scheduler/queue: root", ""), nil, []string{"PodGroup", "root"}, 0},
		{"quota of NaN", badQueue("nan", `resources: {gpu: {quota: "NaN", limit: -1, overQuotaWeight: 1}}`), nil, []string{"spec.resources.gpu.quota"}, 0},
		{"negative quota", badQueue("minus", "parentQueue: root, resources: {gpu: {quota: -5, limit: -7, overQuotaWeight: -1}, cpu: {quota: -1, limit: -1}, memory: {quota: -1, limit: -1}}") +
			"\n---\n" + badJob("kai.scheduler/queue: minus", ""), []string{"minus"}, []string{"spec.resources.gpu.limit", "PodGroup"}, 0},
		{"huge quota and weight", badQueue("huge", "parentQueue: root, resources: {gpu: {quota: 1e300, limit: 1e308, overQuotaWeight: 1e300}, cpu: {quota: 1e300, limit: 1e300}, memory: {quota: 1e300, limit: 1e300}}") +
			"\n---\n" + badJob("kai.scheduler/queue: huge", ""), []string{"huge"}, []string{"beyond any cluster"}, 2},
		{"sixty levels of queues", deep.String() + badJob("kai.scheduler/queue: deep-59", ""), nil, nil, 2},
		{"10,000 subgroups", podGroup("queue: team, subGroups: ["+many.String()+"]", ""), nil, []string{"spec.subGroups has 10000 entries"}, 0},
		{"unknown subgroup", podGroup("queue: team, subGroups: [{name: a, minMember: 1}]", ", kai.scheduler/subgroup-name: b"), nil, []string{`"b"`}, 0},
		{"subgroup not named", podGroup("queue: team, subGroups: [{name: a, minMember: 1}]", ""), nil, []string{"PodGroup"}, 0},
		{"subgroup twice", podGroup("queue: team, subGroups: [{name: a, minMember: 1}, {name: a, minMember: 1}]", ""), nil, []string{"names must be unique"}, 0},
		{"subgroups in a circle", podGroup("queue: team, subGroups: [{name: a, parent: b}, {name: b, parent: a}]", ""), nil, []string{"cycle"}, 0},
		{"subgroup without its parent", podGroup("queue: team, subGroups: [{name: a, parent: zeus, minMember: 1}]", ""), nil, []string{"zeus"}, 0},
		{"a topology that does not exist", podGroup("queue: team, minMember: 1, topologyConstraint: {topology: t, requiredTopologyLevel: rack}", ""), nil, []string{`topology "t" does not exist`}, 0},
		{"gang of another namespace", badPod("stranger", ", labels: {"+team+"}, annotations: {pod-group-name: theirs}", "", ""), nil, []string{"theirs"}, 0},
		{"gang of another namespace, in full", badPod("stranger", ", labels: {"+team+"}, annotations: {pod-group-name: elsewhere/theirs}", "", ""), nil, []string{"elsewhere/theirs"}, 0},
		{"min-member x", badJob(team, `kai.scheduler/batch-min-member: "x"`), nil, []string{"batch-min-member"}, 2},
		{"min-member -1", badJob(team, `kai.scheduler/batch-min-member: "-1"`), nil, []string{"batch-min-member"}, 2},
		{"min-member 1e9", badJob(team, `kai.scheduler/batch-min-member: "1000000000"`), nil, []string{"1000000000"}, 0},
		{"min-member 1e30", badJob(team, `kai.scheduler/batch-min-member: "1000000000000000000000000000000"`), nil, []string{"batch-min-member"}, 2},
		{"staleness grace in words", badJob(team, `kai.scheduler/staleness-grace-period: soon`), nil, []string{"staleness-grace-period"}, 2},
		{"missing priority class", badJob(team+", priorityClassName: royal", ""), nil, []string{"royal"}, 2},
		{"a thousand million million GPUs", badPod("giant", ", labels: {"+team+"}", "", `nvidia.com/gpu: "1000000000000000"`), nil, []string{"PodGroup"}, 0},
		{"nine exabytes of memory", badPod("giant", ", labels: {"+team+"}", "", `memory: 9E, cpu: "9000000000000000"`), nil, []string{"PodGroup"}, 0},
		{"half a GPU in words", badPod("half", ", labels: {"+team+"}, annotations: {gpu-fraction: half}", "", "cpu: 1"), nil, []string{"gpu-fraction"}, 0},
		{"affinity for no number", badPod("odd", ", labels: {"+team+"}",
			", affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: rank, operator: Gt, values: [high]}]}]}}}", ""), nil, []string{"PodGroup"}, 0},
		{"pod with the longest name", badPod(long, ", labels: {"+team+"}", "", ""), nil, nil, 1},
		{
			"BindRequest for nobody", "apiVersion: scheduling.run.ai/v1alpha2\nkind: BindRequest\nmetadata: {name: forged}\nspec: {podName: nobody, selectedNode: n-0, receivedResourceType: Regular}",
			nil,
			[]string{"ownerReferences"},
			0,
		},
		{
			"BindRequest of an odd size", "apiVersion: scheduling.run.ai/v1alpha2\nkind: BindRequest\nmetadata: {name: odd, labels: {muster.dev/bundle: b, muster.dev/bundle-size: many}}\nspec: {podName: nobody, selectedNode: n-0, receivedResourceType: Regular}",
			nil,
			[]string{"ownerReferences"},
			0,
		},
	}
}
