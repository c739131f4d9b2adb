package vcgc

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	batch "github.com/muster-scheduler/muster/api/volcano/batch/v1alpha1"
	"github.com/muster-scheduler/muster/internal/kube/control"
	"github.com/muster-scheduler/muster/internal/kubetest"
)

func serves() kubetest.Options {
	return kubetest.Options{Kinds: append(kubetest.Builtin(), kubetest.Volcano()...)}
}

func run(t *testing.T, p *kubetest.Process) func() {
	return p.Run(t, func(objects cache.Cache, c client.Client) (func(context.Context) error, error) {
		g, err := New(control.Shell{Cache: objects, Client: c, Log: logr.Discard()}, 1)
		if err != nil {
			return nil, err
		}
		return g.Run, nil
	})
}

// ended is a Job that came into its phase just now, with so many seconds to live; -1 for none.
func ended(name string, phase batch.JobPhase, seconds int32) *batch.Job {
	j := &batch.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	j.Status.State = batch.JobState{Phase: phase, LastTransitionTime: metav1.Now()}
	if seconds >= 0 {
		j.Spec.TTLSecondsAfterFinished = &seconds
	}
	return j
}

func left(s *kubetest.Server, names ...string) string {
	return strings.Join(slices.DeleteFunc(names, func(name string) bool { return !s.Get(ended(name, "", -1)) }), " ")
}

// TestTime: a Job goes when its time is up, and no other.
func TestTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := kubetest.New(serves())
		run(t, s.Process("vcgc"))
		s.Put(
			ended("completed", batch.Completed, 10), ended("failed", batch.Failed, 20), ended("terminated", batch.Terminated, 0),
			ended("aborted", batch.Aborted, 0), ended("running", batch.Running, 0), ended("kept", batch.Completed, -1), ended("changed", batch.Failed, 30),
		)
		names := []string{"completed", "failed", "terminated", "aborted", "running", "kept", "changed"}
		step := func(d time.Duration, want string) {
			t.Helper()
			<-time.After(d)
			synctest.Wait()
			if got := left(s, slices.Clone(names)...); got != want {
				t.Errorf("left are %s, want %s", got, want)
			}
		}
		step(5*time.Second, "completed failed aborted running kept changed")
		step(10*time.Second, "failed aborted running kept changed")
		s.Put(ended("changed", batch.Failed, 30)) // its state changed once more: the time begins anew
		step(10*time.Second, "aborted running kept changed")
		step(15*time.Second, "aborted running kept changed")
		step(10*time.Second, "aborted running kept")
		step(time.Hour, "aborted running kept")
	})
}

// TestStale: a Job that changed without the cache's knowledge is not deleted for what it was.
func TestStale(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := kubetest.New(serves())
		run(t, s.Process("vcgc"))
		s.Put(ended("j", batch.Completed, 10))
		<-time.After(time.Second)
		s.Hold("Job")
		s.Put(ended("j", batch.Completed, 3600))
		<-time.After(time.Minute)
		if left(s, "j") == "" {
			t.Error("it is gone")
		}
		s.Release("Job")
		<-time.After(2 * time.Hour)
		synctest.Wait()
		if left(s, "j") != "" {
			t.Error("it is still there")
		}
	})
}

// TestCrashes: the controller dies before and after each delete, and the next one does the rest.
func TestCrashes(t *testing.T) {
	t.Parallel()
	kubetest.Story{
		Options: serves(),
		Set: func(s *kubetest.Server) {
			s.Put(ended("a", batch.Completed, 1), ended("b", batch.Failed, 1), ended("c", batch.Aborted, 1))
		},
		Run:    run,
		Settle: time.Minute,
		Check: func(t *testing.T, s *kubetest.Server) {
			if got := left(s, "a", "b", "c"); got != "c" {
				t.Errorf("left are %s", got)
			}
		},
	}.Crashes(t)
}
