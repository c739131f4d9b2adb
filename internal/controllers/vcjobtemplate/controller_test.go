package vcjobtemplate

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	batch "github.com/muster-scheduler/muster/api/volcano/batch/v1alpha1"
	flow "github.com/muster-scheduler/muster/api/volcano/flow/v1alpha1"
	"github.com/muster-scheduler/muster/api/volcano/keys"
	"github.com/muster-scheduler/muster/internal/kube/control"
	"github.com/muster-scheduler/muster/internal/kubetest"
)

func serves() kubetest.Options {
	return kubetest.Options{Kinds: append(kubetest.Builtin(), kubetest.Volcano()...)}
}

func run(t *testing.T, p *kubetest.Process) func() {
	return p.Run(t, func(objects cache.Cache, c client.Client) (func(context.Context) error, error) {
		r, err := New(control.Shell{Cache: objects, Client: c, Log: logr.Discard()}, 2)
		if err != nil {
			return nil, err
		}
		return r.Run, nil
	})
}

func template(name string) *flow.JobTemplate {
	return &flow.JobTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
}

func made(name, of string) *batch.Job {
	return &batch.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Annotations: map[string]string{keys.CreatedByJobTemplate: of}}}
}

func list(s *kubetest.Server, name string) string {
	t := template(name)
	s.Get(t)
	return strings.Join(t.Status.JobDependsOnList, " ")
}

// TestList: a template's status names the Jobs that were made of it, and no others; at rest nothing is written.
func TestList(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := kubetest.New(serves())
		run(t, s.Process("vcjobtemplate"))
		byLabel := made("y", "")
		byLabel.Annotations, byLabel.Labels = nil, map[string]string{keys.CreatedByJobTemplate: "default.a.b"}
		s.Put(template("a.b"), template("c"), made("x", "default.a.b"), byLabel, made("z", "default.c"), made("odd", "other.c"), made("odder", "c"), made("none", "default.gone"))
		step := func(a, c string) {
			t.Helper()
			<-time.After(time.Second)
			synctest.Wait()
			if x, y := list(s, "a.b"), list(s, "c"); x != a || y != c {
				t.Errorf("%q and %q, want %q and %q", x, y, a, c)
			}
			s.Writes()
			<-time.After(time.Hour)
			if w := s.Writes(); len(w) > 0 {
				t.Errorf("at rest: %v", w)
			}
		}
		step("x y", "z")
		s.Remove(made("x", ""))
		s.Put(made("z", "default.a.b"))
		step("y z", "")
	})
}

// TestMany: a status names the latest Jobs, within its bound.
func TestMany(t *testing.T) {
	t.Parallel()
	b := newBook()
	k := b.templateSeen(template("a"), false)[0]
	for i := range most + 1 {
		j := made(fmt.Sprintf("j%05d", i), "default.a")
		j.CreationTimestamp = metav1.Unix(int64(i), 0)
		b.jobSeen(j, false)
	}
	if l := b.decide(k).status.JobDependsOnList; len(l) != most || l[0] != "j00001" {
		t.Errorf("%d, from %s", len(l), l[0])
	}
}

// TestCrashes: the controller dies before and after each of its writes, and the next one ends where it would have ended.
func TestCrashes(t *testing.T) {
	t.Parallel()
	kubetest.Story{
		Options: serves(),
		Set: func(s *kubetest.Server) {
			s.Put(template("a"), template("b"), made("x", "default.a"), made("y", "default.b"))
		},
		Run: run, Settle: time.Minute,
		Check: func(t *testing.T, s *kubetest.Server) {
			if list(s, "a") != "x" || list(s, "b") != "y" {
				t.Errorf("%q, %q", list(s, "a"), list(s, "b"))
			}
		},
	}.Crashes(t)
}
