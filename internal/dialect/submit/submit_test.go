package submit

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/dialect/kai"
)

// there is a cluster with a PriorityClass and a gang.
func there(t testing.TB) *cluster.Snapshot {
	t.Helper()
	store := cluster.NewStore(cluster.Options{})
	store.Apply(
		cluster.ObjectState{Kind: cluster.PriorityClasses, Key: "high", Object: &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "high"}, Value: 90}},
		cluster.GangState{Key: kai.GangKey("team", "old"), UID: "old", Queue: "q", Sets: cluster.FlatTree(1)},
	)
	return store.Snapshot(cluster.InstantOf(time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)))
}

const podOf = `
      template:
        spec:
          schedulerName: kai-scheduler
          containers: [{name: c, image: i, resources: {limits: {nvidia.com/gpu: 1}}}]
`

const (
	job = `apiVersion: batch/v1
kind: Job
metadata: {name: train, namespace: team, labels: {kai.scheduler/queue: q, priorityClassName: high}}
spec: {parallelism: 3, completions: 2, template: {spec: {schedulerName: kai-scheduler, restartPolicy: Never, containers: [{name: c, resources: {limits: {nvidia.com/gpu: 1}}}]}}}
`
	torch = `apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {name: bert, labels: {kai.scheduler/queue: q}}
spec:
  pytorchReplicaSpecs:
    Master:` + podOf + `
    Worker:
      replicas: 3` + podOf
	jobset = `apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata: {name: set, labels: {kai.scheduler/queue: q}}
spec:
  replicatedJobs:
  - {name: driver, template: {spec: {template: {spec: {schedulerName: kai-scheduler, containers: [{name: c}]}}}}}
  - name: workers
    replicas: 2
    template: {spec: {parallelism: 4, template: {spec: {schedulerName: kai-scheduler, containers: [{name: c}]}}}}
`
	pods = `
# a pod that is named before its gang
apiVersion: v1
kind: Pod
metadata: {name: a, annotations: {pod-group-name: hand}}
spec: {schedulerName: kai-scheduler, containers: [{name: c}]}
--- # and the gang
apiVersion: scheduling.run.ai/v2alpha2
kind: PodGroup
metadata: {name: hand}
spec: {minMember: 1, queue: q}
---
{"apiVersion": "v1", "kind": "Pod", "metadata": {"generateName": "alone-", "labels": {"kai.scheduler/queue": "q2"}}, "spec": {"schedulerName": "kai-scheduler", "containers": [{"name": "c"}]}}
`
)

// TestRead: each kind becomes the gangs and pods that its controller and the podgrouper would make, as this table, written by hand, says.
func TestRead(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ text, want string }{
		"job":     {job, "gang team/pg-train-UID queue q priority 90 needs 1; team/train-0 gpu 1000; team/train-1 gpu 1000"},
		"pytorch": {torch, "gang here/pg-bert-UID queue q priority 50 needs 4; here/bert-master-0 in master gpu 1000; here/bert-worker-0 in worker gpu 1000; here/bert-worker-1 in worker gpu 1000; here/bert-worker-2 in worker gpu 1000"},
		"jobset": {jobset, "gang here/pg-set-UID queue q priority 50 needs 9; here/set-driver-0-0 in driver-replica-0 gpu 0; " +
			"here/set-workers-0-0 in workers-replica-0 gpu 0; here/set-workers-0-1 in workers-replica-0 gpu 0; here/set-workers-0-2 in workers-replica-0 gpu 0; here/set-workers-0-3 in workers-replica-0 gpu 0; " +
			"here/set-workers-1-0 in workers-replica-1 gpu 0; here/set-workers-1-1 in workers-replica-1 gpu 0; here/set-workers-1-2 in workers-replica-1 gpu 0; here/set-workers-1-3 in workers-replica-1 gpu 0"},
		"pods": {pods, "gang here/hand queue q priority 50 needs 1; gang here/pg-alone-00000-UID queue q2 priority 50 needs 1; here/a gpu 0; here/alone-00000 gpu 0"},
	} {
		s, err := Read([]byte(c.text), there(t), Options{Namespace: "here"})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got := shown(t, s); got != c.want {
			t.Errorf("%s:\n%s, want\n%s", name, got, c.want)
		}
		again, err := Read([]byte(c.text), there(t), Options{Namespace: "here"})
		if err != nil || shown(t, again) != shown(t, s) {
			t.Errorf("%s is another one the second time: %v", name, err)
		}
	}
}

// shown prints a submission, as a store has it.
func shown(t testing.TB, s *Submission) string {
	t.Helper()
	var out []string
	gangs := map[cluster.Key]bool{}
	for _, e := range s.Events {
		switch e := e.(type) {
		case cluster.GangState:
			gangs[e.Key] = true
			store := cluster.NewStore(cluster.Options{})
			store.Apply(s.Events...)
			g := store.Snapshot(cluster.InstantOf(time.Unix(1, 0))).GangByKey(e.Key)
			name := e.Key.String()
			if i := strings.Index(name, "-00000000-0000-4000-8000-"); i > 0 {
				name = name[:i] + "-UID"
			}
			out = append(out, fmt.Sprintf("gang %s queue %s priority %d needs %d", name, e.Queue, e.Priority, g.MinPods()))
		case cluster.PodState:
			if !gangs[e.Gang] || !e.Ours || e.Phase != cluster.Pending {
				t.Errorf("pod %s: %+v", e.Name, e)
			}
			set, gpu := "", int64(0)
			if e.SetName != "" {
				set = " in " + e.SetName
			}
			for _, q := range e.Requests {
				if q.Name == "gpu" {
					gpu = q.Value
				}
			}
			out = append(out, fmt.Sprintf("%s/%s%s gpu %d", e.Namespace, e.Name, set, gpu))
		}
	}
	return strings.Join(out, "; ")
}

// TestRefusals: what cannot be simulated is refused by object, field and rule.
func TestRefusals(t *testing.T) {
	t.Parallel()
	sub := func(old, new string) string {
		if !strings.Contains(job, old) {
			t.Fatalf("no %q", old)
		}
		return strings.Replace(job, old, new, 1)
	}
	const pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {schedulerName: kai-scheduler, containers: [{name: c}]"
	many := strings.Builder{}
	for range MaxDocuments + 1 {
		many.WriteString("---\n" + pod + "}\n")
	}
	gangs := strings.Builder{}
	for i := range MaxGangs + 1 {
		gangs.WriteString("---\n" + strings.Replace(pod, "name: p", fmt.Sprintf("name: p%d", i), 1) + "}\n")
	}
	bomb := "a: &a [x,x,x,x,x,x,x,x,x]\n"
	for i := 'b'; i < 'l'; i++ {
		bomb += fmt.Sprintf("%c: &%c [*%c,*%c,*%c,*%c,*%c,*%c,*%c,*%c,*%c]\n", i, i, i-1, i-1, i-1, i-1, i-1, i-1, i-1, i-1, i-1)
	}
	for name, c := range map[string]struct{ text, want string }{
		"nothing":       {"# only this\n---\n", "manifests: have no object in them"},
		"no YAML":       {"a: [", "document 1: is no YAML"},
		"twice a key":   {"kind: Pod\nkind: Job\n", "document 1: is no YAML"},
		"a bomb":        {bomb, "document 1: is no YAML"},
		"no object":     {"[1, 2]", "document 1: is no object"},
		"another kind":  {"apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\n", "Deployment web: is of a kind that is not simulated, apps/v1 Deployment; these are: Pod, Job"},
		"another one":   {job + "---\napiVersion: batch/v2\nkind: Job\nmetadata: {name: x}\n", "Job x: is of a kind that is not simulated, batch/v2 Job"},
		"old PodGroup":  {"apiVersion: scheduling.run.ai/v1\nkind: PodGroup\nmetadata: {name: x}\n", "PodGroup x: is of a kind"},
		"no namespace":  {sub(", namespace: team", ""), "Job train: metadata.namespace must be there"},
		"bad namespace": {sub("namespace: team", "namespace: A/b"), "metadata.namespace is no namespace's name"},
		"no name":       {sub("name: train, ", ""), "metadata.name must be a name"},
		"no scheduler":  {sub("schedulerName: kai-scheduler, ", ""), `Pod team/train-0: spec.schedulerName must be kai-scheduler`},
		"typo":          {sub("parallelism", "paralelism"), "Job team/train: cannot be read"},
		"many":          {sub("parallelism: 3, completions: 2", "parallelism: 10001"), "Job team/train: spec.parallelism must be an integer from 0 to 10000"},
		"none":          {sub("parallelism: 3", "parallelism: 0"), "manifests: make no pods"},
		"suspended":     {sub("parallelism: 3", "suspend: true"), "Job team/train: spec.suspend must not be true"},
		"claims":        {"apiVersion: v1\nkind: Pod\nmetadata: {name: p, namespace: ns}\nspec: {schedulerName: kai-scheduler, resourceClaims: [{name: c}], containers: [{name: c}]}\n", "Pod ns/p: spec.resourceClaims are not simulated"},
		"on a node":     {strings.Replace(pod, "name: p", "name: p, namespace: ns", 1) + ", nodeName: n1}\n", "Pod ns/p: spec.nodeName must not be there"},
		"twice":         {strings.Repeat("---\n"+strings.Replace(pod, "name: p", "name: p, namespace: ns", 1)+"}\n", 2), "Pod ns/p: is there twice"},
		"documents":     {many.String(), "manifests: are of more than 100 documents"},
		"gangs":         {strings.ReplaceAll(gangs.String(), "metadata: {", "metadata: {namespace: ns, "), "manifests: make more than 32 gangs"},
		"bytes":         {strings.Repeat("#", MaxBytes+1), "manifests: are of more than 10485760 bytes"},
		"no gang":       {strings.Replace(pod, "name: p", "name: p, namespace: ns, annotations: {pod-group-name: x}", 1) + "}\n", "annotation pod-group-name must name a PodGroup of the manifests"},
		"no pods":       {"apiVersion: scheduling.run.ai/v2alpha2\nkind: PodGroup\nmetadata: {name: x, namespace: ns}\nspec: {minMember: 1, queue: q}\n", "PodGroup ns/x: has no pods among the manifests"},
		"there":         {"apiVersion: scheduling.run.ai/v2alpha2\nkind: PodGroup\nmetadata: {name: old, namespace: team}\n", "PodGroup team/old: is there already"},
		"a torch role":  {strings.Replace(torch, "Master:", "Boss:", 1), "PyTorchJob"},
		"no template":   {"apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nmetadata: {name: x, namespace: ns}\nspec: {pytorchReplicaSpecs: {Worker: {replicas: 2}}}\n", "PyTorchJob ns/x: spec.pytorchReplicaSpecs.Worker.template must be there"},
		"no jobs":       {"apiVersion: jobset.x-k8s.io/v1alpha2\nkind: JobSet\nmetadata: {name: x, namespace: ns}\n", "JobSet ns/x: spec.replicatedJobs must be a list"},
	} {
		_, err := Read([]byte(c.text), there(t), Options{})
		var no *Refusal
		if !errors.As(err, &no) || !strings.Contains(err.Error(), c.want) || len(err.Error()) > 1000 {
			t.Errorf("%s: %.300v, want %q", name, err, c.want)
		}
	}
	_, err := Read([]byte(job), there(t), Options{Partition: kai.Partition{Key: "pool", Value: "gold"}})
	if err == nil || !strings.Contains(err.Error(), `label pool must be "gold"`) {
		t.Errorf("another shard's: %v", err)
	}
	mayNot := errors.New("may not")
	if _, err := Read([]byte(strings.Replace(job, "parallelism", "paralelism", 1)), there(t), Options{Allow: func(string) error { return mayNot }}); !errors.Is(err, mayNot) {
		t.Errorf("without a right: %v", err)
	}
}

// FuzzRead: no text makes it panic, what comes of one is within bounds, and all that it tells a store is of new gangs.
func FuzzRead(f *testing.F) {
	for _, text := range []string{job, torch, jobset, pods, "", "---", "a: *b"} {
		f.Add([]byte(text))
	}
	snap := there(f)
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := Read(text, snap, Options{Namespace: "here"})
		if err != nil {
			if !errors.As(err, new(*Refusal)) {
				t.Errorf("%v is no refusal", err)
			}
			return
		}
		if s.Pods < 1 || s.Pods > MaxPods || len(s.Gangs) > MaxGangs || len(s.Events) != s.Pods+len(s.Gangs) {
			t.Errorf("%d pods, %d gangs, %d events", s.Pods, len(s.Gangs), len(s.Events))
		}
		store := cluster.Fork(snap, cluster.Options{})
		store.Apply(s.Events...)
		store.Snapshot(snap.Now)
	})
}
