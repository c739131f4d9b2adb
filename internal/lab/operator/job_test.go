package operator

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func row(t *testing.T, kind string) *player {
	t.Helper()
	for _, k := range Table() {
		if k.Kind == kind {
			return &player{kind: k}
		}
	}
	t.Fatalf("no row for %s", kind)
	return nil
}

func job(kind string, replicas map[string]any, path string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "kubeflow.org/v1", "kind": kind,
		"metadata": map[string]any{"name": "train", "namespace": "ns", "uid": "u"},
		"spec":     map[string]any{path: replicas},
	}}
}

func replica(n int64, restart string) map[string]any {
	return map[string]any{"replicas": n, "restartPolicy": restart, "template": map[string]any{
		"spec": map[string]any{"containers": []any{map[string]any{"name": "main"}}},
	}}
}

func TestPyTorchPod(t *testing.T) {
	t.Parallel()
	p := row(t, "PyTorchJob")
	j := job("PyTorchJob", map[string]any{"Master": replica(1, "ExitCode"), "Worker": replica(3, "")}, "pytorchReplicaSpecs")
	specs, err := p.specs(j)
	if err != nil {
		t.Fatal(err)
	}
	counts := map[string]int{"Master": 1, "Worker": 3}
	master := p.newPod(j, Member{Job: "train", Type: "Master", Counts: counts}, specs["Master"])
	worker := p.newPod(j, Member{Job: "train", Type: "Worker", Index: 2, Counts: counts}, specs["Worker"])
	if master.Name != "train-master-0" || worker.Name != "train-worker-2" {
		t.Errorf("names are %s and %s", master.Name, worker.Name)
	}
	if master.Spec.RestartPolicy != corev1.RestartPolicyNever || worker.Spec.RestartPolicy != corev1.RestartPolicyOnFailure {
		t.Errorf("restart policies are %s and %s", master.Spec.RestartPolicy, worker.Spec.RestartPolicy)
	}
	if len(master.Spec.InitContainers) != 0 || len(worker.Spec.InitContainers) != 1 {
		t.Error("a worker waits for its master in an init container, a master does not")
	}
	env := map[string]string{}
	for _, e := range worker.Spec.Containers[0].Env {
		env[e.Name] = e.Value
	}
	want := map[string]string{
		"PYTHONUNBUFFERED": "1", "MASTER_ADDR": "train-master-0", "PET_MASTER_ADDR": "train-master-0", "MASTER_PORT": "23456",
		"PET_MASTER_PORT": "23456", "WORLD_SIZE": "4", "RANK": "3", "PET_NODE_RANK": "3", "PET_NNODES": "4",
	}
	if diff := cmp.Diff(want, env); diff != "" {
		t.Error(diff)
	}
}

func TestLeaderOfWorkersOnly(t *testing.T) {
	t.Parallel()
	p := row(t, "PyTorchJob")
	j := job("PyTorchJob", nil, "pytorchReplicaSpecs")
	counts := map[string]int{"Worker": 2}
	for i, want := range []string{"master", ""} {
		pod := p.newPod(j, Member{Job: "train", Type: "Worker", Index: i, Counts: counts}, replicaSpec{})
		if got := pod.Labels["training.kubeflow.org/job-role"]; got != want {
			t.Errorf("worker %d: job-role %q, want %q", i, got, want)
		}
	}
}

func TestProgress(t *testing.T) {
	t.Parallel()
	p := row(t, "TFJob")
	for _, c := range []struct {
		tallies map[string]tally
		counts  map[string]int
		want    string
	}{
		{map[string]tally{}, map[string]int{"Worker": 2}, "Created"},
		{map[string]tally{"Worker": {active: 1, succeeded: 1}}, map[string]int{"Worker": 2}, "Running"},
		{map[string]tally{"Worker": {succeeded: 2}}, map[string]int{"Worker": 2}, "Succeeded"},
		{map[string]tally{"Worker": {active: 2}, "Chief": {succeeded: 1}}, map[string]int{"Worker": 2, "Chief": 1}, "Succeeded"},
		{map[string]tally{"Worker": {active: 2}}, map[string]int{"Worker": 2, "Chief": 1}, "Created"},
		{map[string]tally{}, map[string]int{}, "Created"},
	} {
		if got, _ := p.progress("j", c.tallies, c.counts); got != c.want {
			t.Errorf("%v of %v: %s, want %s", c.tallies, c.counts, got, c.want)
		}
	}
}

func TestBadSpecs(t *testing.T) {
	t.Parallel()
	p := row(t, "XGBoostJob")
	for want, j := range map[string]*unstructured.Unstructured{
		"spec.xgbReplicaSpecs.Worker.replicas: is -1":    job("XGBoostJob", map[string]any{"Worker": replica(-1, "")}, "xgbReplicaSpecs"),
		"spec.xgbReplicaSpecs.Worker.replicas: is 10001": job("XGBoostJob", map[string]any{"Worker": replica(10001, "")}, "xgbReplicaSpecs"),
		"spec.xgbReplicaSpecs.Worker: is no object":      job("XGBoostJob", map[string]any{"Worker": "x"}, "xgbReplicaSpecs"),
	} {
		if _, err := p.specs(j); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got error %v, want one that says %q", err, want)
		}
	}
}
