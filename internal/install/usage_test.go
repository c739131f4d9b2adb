package install

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

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

// TestUsageClaimIsMade: a size has the operator make the claim, of the class that is named or of the cluster's default one, and what it
// holds outlives the shard, the Config and the operator, which may not delete it.
func TestUsageClaimIsMade(t *testing.T) {
	t.Parallel()
	shard := func(name string, extra map[string]string) kaiv1.SchedulingShard {
		s := kaiv1.SchedulingShard{}
		s.Name, s.Spec.PartitionLabelValue = name, name
		s.Spec.UsageDBConfig = &kaiv1.UsageDBConfig{ClientType: kaiv1.UsageClientEmbedded, UsageParams: &kaiv1.UsageParams{ExtraParams: extra}}
		return s
	}
	for _, c := range []struct {
		name, claim, class, refused string
		extra                       map[string]string
		other                       map[string]string // of a shard before it
	}{
		{name: "a size", extra: map[string]string{usage.ClaimSize: "5Gi"}, claim: "muster-scheduler-b-usage"},
		{name: "a class", extra: map[string]string{usage.ClaimSize: "5Gi", usage.ClaimClass: "fast"}, claim: "muster-scheduler-b-usage", class: "fast"},
		{name: "a name", extra: map[string]string{usage.ClaimSize: "5Gi", usage.Claim: "mine"}, claim: "mine"},
		{name: "no size", extra: map[string]string{usage.ClaimSize: "much"}, refused: `persistentVolumeClaimSize is "much"`},
		{name: "less than nothing", extra: map[string]string{usage.ClaimSize: "-1"}, refused: `persistentVolumeClaimSize is "-1"`},
		{name: "a class of nothing", extra: map[string]string{usage.ClaimClass: "fast"}, refused: "the class of a claim that nobody makes"},
		{name: "no name", extra: map[string]string{usage.ClaimSize: "5Gi", usage.Claim: "a b"}, refused: `persistentVolumeClaim is "a b"`},
		{name: "another's", extra: map[string]string{usage.Claim: "shared"}, other: map[string]string{usage.Claim: "shared"}, refused: "which is SchedulingShard a's already"},
	} {
		shards := []kaiv1.SchedulingShard{shard("b", c.extra)}
		if c.other != nil {
			shards = append(shards, shard("a", c.other))
		}
		objects, _, err := Render(&kaiv1.Config{}, shards, testEnvironment())
		if (err != nil) != (c.refused != "") || err != nil && !strings.Contains(err.Error(), c.refused) {
			t.Errorf("%s: %v", c.name, err)
		}
		i := slices.IndexFunc(objects, func(o client.Object) bool { _, ok := o.(*corev1.PersistentVolumeClaim); return ok })
		if (i >= 0) != (c.claim != "") {
			t.Errorf("%s: a claim is made: %v", c.name, i >= 0)
		}
		if i < 0 {
			continue
		}
		o := objects[i].(*corev1.PersistentVolumeClaim)
		if size := o.Spec.Resources.Requests[corev1.ResourceStorage]; o.Name != c.claim || size.String() != "5Gi" || ptr.Deref(o.Spec.StorageClassName, "") != c.class || !Kept(o) {
			t.Errorf("%s: %+v", c.name, o)
		}
	}
	for _, line := range permitted(Operator) {
		if strings.HasSuffix(line, "delete persistentvolumeclaims") {
			t.Errorf("%s", line)
		}
	}
}

// TestUsageOfABundledStore: what a Prometheus server without a claim keeps is lost with it, which is said of each shard that asks it.
func TestUsageOfABundledStore(t *testing.T) {
	t.Parallel()
	for _, kept := range []bool{true, false} {
		config := kaiv1.Config{}
		config.Spec.Prometheus = &kaiv1.Prometheus{Enabled: ptr.To(true), EnablePersistentStorage: ptr.To(kept)}
		_, _, warnings := usageShard(t, config, &kaiv1.UsageDBConfig{ClientType: kaiv1.UsageClientPrometheus})
		if said := slices.ContainsFunc(warnings, func(w Warning) bool { return w.Forgets && w.Object == "SchedulingShard default" }); said == kept {
			t.Errorf("kept %v, warnings %v", kept, warnings)
		}
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
