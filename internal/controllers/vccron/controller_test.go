package vccron

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	batch "github.com/muster-scheduler/muster/api/volcano/batch/v1alpha1"
	"github.com/muster-scheduler/muster/api/volcano/keys"
	"github.com/muster-scheduler/muster/internal/controllers/admission/volcano"
	"github.com/muster-scheduler/muster/internal/kube/control"
	"github.com/muster-scheduler/muster/internal/kubetest"
)

func serves() kubetest.Options {
	return kubetest.Options{Kinds: append(kubetest.Builtin(), kubetest.Volcano()...)}
}

func start(t *testing.T, p *kubetest.Process, tell func(text string)) func() {
	return p.Run(t, func(objects cache.Cache, c client.Client) (func(context.Context) error, error) {
		r, err := New(control.Shell{Cache: objects, Client: c, Log: logr.Discard(), Tell: func(o client.Object, _ bool, reason, message string) {
			if tell != nil {
				tell(fmt.Sprintf("%s %s: %s", o.GetName(), reason, message))
			}
		}}, 2, volcano.ValidateCronJob)
		if err != nil {
			return nil, err
		}
		return r.Run, nil
	})
}

func run(t *testing.T, p *kubetest.Process) func() { return start(t, p, nil) }

// jobs are the Jobs of the CronJob c that there are, by the minute after midnight that they were due and their phase.
func jobs(s *kubetest.Server) (out []string) {
	for name := range s.State() { // order: sorted below
		j := &batch.Job{}
		if kind, rest, _ := strings.Cut(name, " "); kind != "Job" || !strings.HasPrefix(rest, "default/") {
			continue
		}
		j.Namespace, j.Name, _ = strings.Cut(strings.TrimPrefix(name, "Job "), "/")
		if s.Get(j) {
			at := scheduled(j).UTC()
			out = append(out, strings.TrimSpace(fmt.Sprintf("%03d %s", at.Hour()*60+at.Minute(), j.Status.State.Phase)))
		}
	}
	slices.Sort(out)
	return out
}

// end brings the Jobs that run to a phase.
func end(s *kubetest.Server, phase batch.JobPhase) {
	for name := range s.State() { // order: each on its own
		j := &batch.Job{}
		if !strings.HasPrefix(name, "Job default/") {
			continue
		}
		j.Namespace, j.Name, _ = strings.Cut(strings.TrimPrefix(name, "Job "), "/")
		if s.Get(j) && !ended(j) {
			kubetest.Edit(s, j, func(j *batch.Job) { j.Status.State = batch.JobState{Phase: phase, LastTransitionTime: metav1.Now()} })
		}
	}
}

// TestLife: Jobs come as they are due, and go as there are too many; between times nothing is written. Bubbles begin at midnight.
func TestLife(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := kubetest.New(serves())
		var told []string
		start(t, s.Process("vccron"), func(text string) { told = append(told, text) })
		c := cronJob("*/10 * * * *", func(c *batch.CronJob) { c.Spec.ConcurrencyPolicy = batch.ForbidConcurrent })
		s.Put(c)
		step := func(d time.Duration, want string) {
			t.Helper()
			<-time.After(d)
			synctest.Wait()
			if got := strings.Join(jobs(s), " "); got != want {
				t.Errorf("there are %s, want %s", got, want)
			}
		}
		step(5*time.Minute, "")
		step(6*time.Minute, "010")
		s.Writes()
		step(8*time.Minute, "010")
		if w := s.Writes(); len(w) > 0 {
			t.Errorf("at rest: %v", w)
		}
		step(6*time.Minute, "010") // forbidden
		end(s, batch.Terminated)
		step(time.Minute, "010 Terminated 020") // which is made up for
		end(s, batch.Terminated)
		step(10*time.Minute, "020 Terminated 030")
		for range 5 {
			end(s, batch.Completed)
			<-time.After(10 * time.Minute)
		}
		step(0, "020 Terminated 050 Completed 060 Completed 070 Completed 080")
		s.Get(c)
		if st := c.Status; len(st.Active) != 1 || st.LastScheduleTime.UTC().Minute() != 20 || st.LastSuccessfulTime == nil {
			t.Errorf("%+v", st)
		}
		all := strings.Join(told, "\n")
		for _, want := range []string{"c SuccessfulCreate: made Job c-", "c ForbidConcurrent: no Job is made for 2000-01-01T00:20:00Z while c-", "c SawCompletedJob: Job c-", "c SuccessfulDelete: deleted Job c-"} {
			if !strings.Contains(all, want) {
				t.Errorf("nobody is told %q:\n%s", want, all)
			}
		}
	})
}

// TestOdd: a Job of the name that is somebody else's takes the CronJob its time and no more; a schedule that is none is told once and hinders nobody; of one minute there is one Job.
func TestOdd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := kubetest.New(serves())
		var told []string
		start(t, s.Process("vccron"), func(text string) { told = append(told, text) })
		bad := cronJob("never ever")
		bad.Name, bad.UID = "bad", "uid-bad"
		often := cronJob("@every 20s")
		often.Name, often.UID, often.Namespace = "often", "uid-often", "other"
		first := jobOf(cronJob(""), time.Now().Add(time.Minute))
		s.Put(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "other"}}, &batch.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: first.Name}}, bad, cronJob("* * * * *"), often)
		<-time.After(150 * time.Second)
		synctest.Wait()
		if got := strings.Join(jobs(s), " "); got != "000 002" {
			t.Errorf("there are %s", got)
		}
		s.Put(bad)
		<-time.After(time.Second)
		synctest.Wait()
		count := map[string]int{}
		for _, text := range told {
			name, _, _ := strings.Cut(text, ":")
			count[name]++
		}
		if count["bad UnParseableCronJobSchedule"] != 1 || count["c ForeignJob"] != 1 || count["c SuccessfulCreate"] != 1 || count["often SuccessfulCreate"] != 3 {
			t.Errorf("told: %v\n%s", count, strings.Join(told, "\n"))
		}
	})
}

// TestCrashes: the controller dies before and after each of its writes, and the next one ends where it would have ended: no Job twice.
func TestCrashes(t *testing.T) {
	t.Parallel()
	kubetest.Story{
		Options: serves(),
		Set: func(s *kubetest.Server) {
			replace := cronJob("0 0 * * *", func(c *batch.CronJob) {
				c.CreationTimestamp, c.Spec.ConcurrencyPolicy = metav1.NewTime(time.Now().Add(-time.Hour)), batch.ReplaceConcurrent
			})
			s.Put(replace)
			for i, phase := range []batch.JobPhase{batch.Failed, batch.Terminated, batch.Running} {
				j := made(replace, time.Now().Add(time.Duration(i-30)*time.Minute), phase)
				s.Put(j)
				replace.Status.Active = append(replace.Status.Active, reference(j))
			}
			s.Put(replace)
		},
		Run:    run,
		Settle: time.Minute,
		Check: func(t *testing.T, s *kubetest.Server) {
			if got := strings.Join(jobs(s), " "); got != "000 1411 Terminated" {
				t.Errorf("there are %s", got)
			}
			c := cronJob("")
			if s.Get(c); len(c.Status.Active) != 1 || !c.Status.LastScheduleTime.Time.Equal(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)) {
				t.Errorf("%+v", c.Status)
			}
		},
	}.Crashes(t)
}

// TestTroubles: lost answers, conflicts and refusals of writes end where undisturbed ones do.
func TestTroubles(t *testing.T) {
	t.Parallel()
	for _, what := range []string{"create Job", "patch CronJob/status", "delete Job"} {
		for name, o := range map[string]kubetest.Outcome{
			"lost request": kubetest.LostRequest(), "lost answer": kubetest.LostAnswer(), "conflict": kubetest.Conflict(), "busy": kubetest.TooMany(1), "broken": kubetest.Broken("disk"),
		} {
			t.Run(what+" "+name, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					s := kubetest.New(serves())
					for n := 1; n < 4; n += 2 {
						s.Fault(kubetest.Nth(n, kubetest.Is(what), o))
					}
					run(t, s.Process("vccron"))
					c := cronJob("0 * * * *")
					s.Put(c)
					for range 4 {
						<-time.After(time.Hour)
						end(s, batch.Failed)
					}
					<-time.After(5 * time.Minute)
					synctest.Wait()
					if got := strings.Join(jobs(s), " "); got != "240 Failed" {
						t.Errorf("there are %s", got)
					}
				})
			})
		}
	}
}

// TestKept: what the annotation of a Job says counts only if it is a time that has been.
func TestKept(t *testing.T) {
	t.Parallel()
	c := cronJob("0 * * * *", func(c *batch.CronJob) { c.CreationTimestamp = metav1.NewTime(clock(t, "09:30:00")) })
	b := newBook(volcano.ValidateCronJob)
	k := b.cronSeen(c, false)[0]
	j := made(c, clock(t, "23:00:00"), batch.Completed)
	b.jobSeen(j, false)
	odd := made(c, clock(t, "08:00:00"), batch.Completed)
	odd.Annotations[keys.CronScheduled] = "soon"
	b.jobSeen(odd, false)
	if p, _ := b.decide(k, clock(t, "10:07:30")); p.create == nil {
		t.Errorf("%+v", p)
	}
}
