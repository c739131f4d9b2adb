package roles

import (
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/utils/ptr"

	kaiv1 "github.com/muster-scheduler/muster/api/kai/v1"
	"github.com/muster-scheduler/muster/docs/ledgers"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/install"
	"github.com/muster-scheduler/muster/internal/profile"
)

// TestInstalledCommandLines holds what an installation starts against the flags that there are: each Deployment runs a role,
// and the role takes every one of its arguments.
func TestInstalledCommandLines(t *testing.T) {
	t.Parallel()
	shard := kaiv1.SchedulingShard{}
	shard.Name = "default"
	shard.Spec.Args = map[string]string{"detailed-fit-errors": "true"}
	config := kaiv1.Config{Spec: kaiv1.ConfigSpec{
		Global: &kaiv1.GlobalConfig{JSONLog: ptr.To(true), PodLabelSelector: map[string]string{"a": "b"}, NamespaceLabelSelector: map[string]string{"a": "b"}},
		Binder: &kaiv1.Binder{
			Service:                 &kaiv1.Service{K8sClientConfig: &kaiv1.K8sClientConfig{QPS: ptr.To(1), Burst: ptr.To(2)}},
			MaxConcurrentReconciles: ptr.To(3), Plugins: map[string]kaiv1.PluginConfig{"hamicore": {Enabled: ptr.To(true)}},
			ResourceReservation: &kaiv1.ResourceReservation{AllocationTimeout: ptr.To(3), RuntimeClassName: ptr.To("x"), PodResources: &kaiv1.Resources{}},
		},
		PodGrouper: &kaiv1.PodGrouper{MaxConcurrentReconciles: ptr.To(3), Args: &kaiv1.PodGrouperArgs{
			GangScheduleKnative: ptr.To(true), DefaultPrioritiesConfigMapName: ptr.To("x"), DefaultPrioritiesConfigMapNamespace: ptr.To("y"),
		}},
		QueueController: &kaiv1.QueueController{
			MetricsNamespace: ptr.To("x"), QueueLabelToMetricLabel: ptr.To("a=b"), QueueLabelToDefaultMetricValue: ptr.To("a=c"),
		},
		PodGroupController: &kaiv1.PodGroupController{MaxConcurrentReconciles: ptr.To(3)},
		Admission:          &kaiv1.Admission{GPUPodRuntimeClassName: ptr.To("x"), GPUFractionRuntimeClassName: ptr.To("y")},
		NodeScaleAdjuster:  &kaiv1.NodeScaleAdjuster{Args: &kaiv1.NodeScaleAdjusterArgs{GPUMemoryToFractionRatio: ptr.To(0.5)}},
	}}
	config.Annotations = map[string]string{
		install.AnnotationLeaseDuration: "15s", install.AnnotationRenewDeadline: "10s", install.AnnotationRetryPeriod: "2s", install.AnnotationHungAfter: "5m",
		install.AnnotationRoles: `{"all": {"logLevel": "debug"}}`,
	}
	objects, _, err := install.Render(&config, []kaiv1.SchedulingShard{shard}, install.Environment{SimulatedGPUs: true, SchedulerFlags: FlagNames(Scheduler)})
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, o := range objects {
		d, ok := o.(*appsv1.Deployment)
		if !ok {
			continue
		}
		args := d.Spec.Template.Spec.Containers[0].Args
		if len(args) < 2 || args[0] != "run" {
			t.Errorf("%s: %v does not run a role", d.Name, args)
			continue
		}
		seen[args[1]] = true
		if fs := flagsOf(t, args[1]); fs != nil {
			if err := fs.Parse(args[2:]); err != nil {
				t.Errorf("%s: muster run %s refuses its arguments: %v", d.Name, args[1], err)
			}
		}
	}
	for _, role := range append(Names(), "nodescale") {
		if !seen[role] && role != "operator" {
			t.Errorf("no Deployment runs the role %s", role)
		}
	}
	if !slices.Contains(FlagNames(Scheduler), "detailed-fit-errors") {
		t.Error("the scheduler's flags are incomplete")
	}
}

// flagsOf are a role's flags; of one that is not built yet, those that KAI's has.
func flagsOf(t *testing.T, role string) *pflag.FlagSet {
	t.Helper()
	for _, c := range Command("test").Commands() {
		if c.Name() == role {
			return c.Flags()
		}
	}
	rows, err := ledgers.Flags(strings.Replace(role, "nodescale", "nodescaleadjuster", 1))
	if err != nil {
		t.Fatal(err)
	}
	fs := pflag.NewFlagSet(role, pflag.ContinueOnError)
	for name := range rows {
		fs.String(name, "", "")
	}
	for _, name := range []string{"metrics-bind-address", "health-probe-bind-address"} {
		if fs.Lookup(name) == nil {
			fs.String(name, "", "")
		}
	}
	return fs
}

// TestOperatorFlags: what the operator is told about images reaches what it installs.
func TestOperatorFlags(t *testing.T) {
	t.Parallel()
	s := &Settings{}
	fs := pflag.NewFlagSet("x", pflag.ContinueOnError)
	if err := s.flags(Operator, fs); err != nil {
		t.Fatal(err)
	}
	if err := fs.Parse([]string{"--image-pull-secret=pull"}); err != nil {
		t.Fatal(err)
	}
	o := s.operator(func(name string) string {
		return map[string]string{"MS_REPOSITORY": "r", "MS_TAG": "t", "MS_DIGEST": "sha256:1", "MS_NODE_DIGEST": "sha256:2"}[name]
	})
	if o.PullSecret != "pull" || o.Repository != "r" || o.Tag != "t" || o.Digests[install.Program] != "sha256:1" || o.Digests[install.NodeProgram] != "sha256:2" || !slices.Contains(o.SchedulerFlags, "eviction-mode") || o.Check == nil {
		t.Errorf("%+v", o)
	}
	if _, err := o.Check(profile.Shard{}, engine.Profile{Actions: []string{"nosuch"}}); err == nil {
		t.Error("a profile with an unknown action passes")
	}
}
