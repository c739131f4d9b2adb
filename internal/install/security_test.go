package install

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"

	kaiv1 "github.com/muster-scheduler/muster/api/kai/v1"
)

// TestPodsAreRestricted: by Kubernetes' own judgement, every Deployment keeps the Pod Security Standard "restricted".
func TestPodsAreRestricted(t *testing.T) {
	t.Parallel()
	evaluator, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		t.Fatal(err)
	}
	shard := kaiv1.SchedulingShard{}
	shard.Name = "default"
	shard.Spec.UsageDBConfig = &kaiv1.UsageDBConfig{ClientType: kaiv1.UsageClientEmbedded}
	objects, _, err := Render(&kaiv1.Config{}, []kaiv1.SchedulingShard{shard}, testEnvironment())
	if err != nil {
		t.Fatal(err)
	}
	judged := 0
	for _, o := range objects {
		d, ok := o.(*appsv1.Deployment)
		if !ok {
			continue
		}
		judged++
		pod := &d.Spec.Template
		for _, r := range evaluator.EvaluatePod(api.LevelVersion{Level: api.LevelRestricted, Version: api.LatestVersion()}, &pod.ObjectMeta, &pod.Spec) {
			if !r.Allowed {
				t.Errorf("%s: %s %s", d.Name, r.ForbiddenReason, r.ForbiddenDetail)
			}
		}
		if c := pod.Spec.Containers[0].SecurityContext; !*c.ReadOnlyRootFilesystem {
			t.Errorf("%s can write its root file system", d.Name)
		}
	}
	if judged != 7 {
		t.Errorf("%d Deployments were judged", judged)
	}
}
