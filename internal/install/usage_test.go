package install

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	kaiv1 "github.com/muster-scheduler/muster/api/kai/v1"
	"github.com/muster-scheduler/muster/internal/usage"
)

// usageShard renders a shard with a history of usage.
func usageShard(t *testing.T, config kaiv1.Config, u *kaiv1.UsageDBConfig) (d *appsv1.Deployment, file string, warnings []Warning) {
	t.Helper()
	shard := kaiv1.SchedulingShard{}
	shard.Name, shard.Spec.UsageDBConfig = "default", u
	objects, warnings, err := Render(&config, []kaiv1.SchedulingShard{shard}, testEnvironment())
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range objects {
		switch o := o.(type) {
		case *appsv1.Deployment:
			if o.Name == SchedulerName("default") {
				d = o
			}
		case *corev1.ConfigMap:
			if o.Name == SchedulerName("default") {
				file = o.Data[configFile]
			}
		}
	}
	return d, file, warnings
}

// TestUsageClaim: an embedded history lies on the claim that is named for it, which one pod at a time holds; without one that it goes
// with the pod is said.
func TestUsageClaim(t *testing.T) {
	t.Parallel()
	volume := func(d *appsv1.Deployment) corev1.VolumeSource {
		i := slices.IndexFunc(d.Spec.Template.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == "usage" })
		return d.Spec.Template.Spec.Volumes[i].VolumeSource
	}
	said := func(warnings []Warning) bool {
		return slices.ContainsFunc(warnings, func(w Warning) bool { return strings.Contains(w.Rule, usage.Claim) })
	}
	d, _, warnings := usageShard(t, kaiv1.Config{}, &kaiv1.UsageDBConfig{ClientType: kaiv1.UsageClientEmbedded})
	if volume(d).EmptyDir == nil || !said(warnings) || d.Spec.Strategy.Type != appsv1.RollingUpdateDeploymentStrategyType {
		t.Errorf("without a claim: %+v, warnings %v", volume(d), warnings)
	}
	d, _, warnings = usageShard(t, kaiv1.Config{}, &kaiv1.UsageDBConfig{
		ClientType: kaiv1.UsageClientEmbedded, UsageParams: &kaiv1.UsageParams{ExtraParams: map[string]string{usage.Claim: "history"}},
	})
	if c := volume(d).PersistentVolumeClaim; c == nil || c.ClaimName != "history" || said(warnings) || d.Spec.Strategy.Type != appsv1.RecreateDeploymentStrategyType {
		t.Errorf("with a claim: %+v, warnings %v", volume(d), warnings)
	}
	if g := d.Spec.Template.Spec.SecurityContext.FSGroup; g == nil || *g != volumeGroup {
		t.Errorf("the claim's folder is not the scheduler's: %v", g)
	}
}

// TestUsageIsOurs: the bundled store is asked for the series of our own queue role in our own namespace, but for those that the shard
// names itself.
func TestUsageIsOurs(t *testing.T) {
	t.Parallel()
	config := kaiv1.Config{}
	config.Spec.Prometheus = &kaiv1.Prometheus{Enabled: ptr.To(true)}
	_, file, _ := usageShard(t, config, &kaiv1.UsageDBConfig{
		ClientType: kaiv1.UsageClientPrometheus, UsageParams: &kaiv1.UsageParams{ExtraParams: map[string]string{"cpuAllocationMetric": "mine"}},
	})
	for _, want := range []string{
		fmt.Sprintf(`gpuAllocationMetric: kai_queue_allocated_gpus{namespace=%q,job=%q}`, "kai-scheduler", Name(Queue)), "cpuAllocationMetric: mine",
	} {
		if !strings.Contains(file, want) {
			t.Errorf("the file lacks %s:\n%s", want, file)
		}
	}
}
