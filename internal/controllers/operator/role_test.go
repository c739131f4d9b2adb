package operator

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kaiv1 "github.com/muster-scheduler/muster/api/kai/v1"
	"github.com/muster-scheduler/muster/internal/install"
	"github.com/muster-scheduler/muster/internal/kubetest"
)

// run runs the role in a process.
func run(t *testing.T, p *kubetest.Process) (stop func()) {
	return p.Run(t, func(_ cache.Cache, c client.Client) (func(context.Context) error, error) {
		role, err := New(Deps{Config: p.Config(), Scheme: kubetest.Scheme(), Client: c}, Options{Tag: "v1"})
		if err != nil {
			return nil, err
		}
		return role.Run, nil
	})
}

// asked is an installation with a shard, and a scheduler of one that there was.
func asked(s *kubetest.Server) {
	config := &kaiv1.Config{ObjectMeta: metav1.ObjectMeta{Name: kaiv1.ConfigName}}
	s.Put(config, &kaiv1.SchedulingShard{ObjectMeta: metav1.ObjectMeta{Name: "default"}})
	left := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "kai-scheduler", Name: "muster-scheduler-left", Labels: map[string]string{install.LabelPartOf: install.PartOf}}}
	left.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(config, kaiv1.GroupVersion.WithKind("Config"))}
	s.Put(left)
}

// TestRole: it installs what is asked for, puts right what others change, and follows the shards, each because of an event.
func TestRole(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := kubetest.New(kubetest.Options{})
		asked(s)
		run(t, s.Process("operator"))
		scheduler := func(shard string) *appsv1.Deployment {
			return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "kai-scheduler", Name: "muster-scheduler-" + shard}}
		}
		expect := func(what string, there ...bool) {
			t.Helper()
			<-time.After(20 * time.Second) // less than the role's own period
			synctest.Wait()
			for i, shard := range []string{"default", "b", "left"} {
				if got := s.Get(scheduler(shard)); got != there[i] {
					t.Errorf("%s: a scheduler of shard %s is there: %v", what, shard, got)
				}
			}
		}
		expect("installed", true, false, false)
		s.Writes()
		<-time.After(time.Hour)
		if w := s.Writes(); len(w) > 0 {
			t.Errorf("at rest: %v", w)
		}
		s.Remove(scheduler("default"))
		expect("removed by somebody", true, false, false)
		s.Put(&kaiv1.SchedulingShard{ObjectMeta: metav1.ObjectMeta{Name: "b"}, Spec: kaiv1.SchedulingShardSpec{PartitionLabelValue: "b"}})
		expect("a shard comes", true, true, false)
		s.Remove(&kaiv1.SchedulingShard{ObjectMeta: metav1.ObjectMeta{Name: "b"}})
		expect("and goes", true, false, false)
		c := &kaiv1.Config{ObjectMeta: metav1.ObjectMeta{Name: kaiv1.ConfigName}}
		if s.Get(c); !strings.HasPrefix(condition(c.Status.Conditions, kaiv1.ConditionDeployed), "True") {
			t.Errorf("conditions %+v", c.Status.Conditions)
		}
	})
}

// TestCrashes: the role dies at a write, before or after it, and the next one comes to the same.
func TestCrashes(t *testing.T) {
	t.Parallel()
	kubetest.Story{Set: asked, Run: run, Settle: time.Minute, Stride: 15}.Crashes(t)
}
