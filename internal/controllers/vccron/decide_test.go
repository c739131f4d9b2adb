package vccron

import (
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	batch "github.com/muster-scheduler/muster/api/volcano/batch/v1alpha1"
	"github.com/muster-scheduler/muster/api/volcano/keys"
	"github.com/muster-scheduler/muster/internal/controllers/admission/volcano"
)

// clock is a time of the day in which the tests play, in UTC.
func clock(t *testing.T, text string) time.Time {
	t.Helper()
	at, err := time.Parse(time.RFC3339, "2026-03-10T"+text+"Z")
	if err != nil {
		t.Fatal(err)
	}
	return at
}

func cronJob(schedule string, edit ...func(*batch.CronJob)) *batch.CronJob {
	c := &batch.CronJob{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "c", UID: "uid-c"}, Spec: batch.CronJobSpec{
		Schedule: schedule, TimeZone: ptr.To("Etc/UTC"), SuccessfulJobsHistoryLimit: ptr.To[int32](3), FailedJobsHistoryLimit: ptr.To[int32](1),
		JobTemplate: batch.JobTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"a": "b"}}, Spec: batch.JobSpec{Queue: "q"}},
	}}
	for _, e := range edit {
		e(c)
	}
	return c
}

// made is a Job of the CronJob that was due at a time, in a phase.
func made(c *batch.CronJob, due time.Time, phase batch.JobPhase) *batch.Job {
	j := jobOf(c, due)
	j.UID = types.UID("uid-" + j.Name)
	j.Status.State = batch.JobState{Phase: phase, LastTransitionTime: metav1.NewTime(due.Add(10 * time.Second))}
	return j
}

// TestWhatIsDue: which Job is made at 10:07:30, by schedule, deadline, policy, suspension and what there is.
func TestWhatIsDue(t *testing.T) {
	t.Parallel()
	type with = func(*batch.CronJob)
	deadline := func(s int64) with { return func(c *batch.CronJob) { c.Spec.StartingDeadlineSeconds = &s } }
	policy := func(p batch.ConcurrencyPolicy) with { return func(c *batch.CronJob) { c.Spec.ConcurrencyPolicy = p } }
	last := func(text string) with {
		return func(c *batch.CronJob) { c.Status.LastScheduleTime = ptr.To(metav1.NewTime(clock(t, text))) }
	}
	zone := func(name string) with { return func(c *batch.CronJob) { c.Spec.TimeZone = &name } }
	suspended := func(c *batch.CronJob) { c.Spec.Suspend = ptr.To(true) }
	since := func(text string) with {
		return func(c *batch.CronJob) { c.CreationTimestamp = metav1.NewTime(clock(t, text)) }
	}
	for name, c := range map[string]struct {
		schedule string
		edit     []with
		runs     string // a Job that runs, by when it was due
		want     string // due, what is replaced, the next look, what is told
	}{
		"each five minutes":            {"*/5 * * * *", []with{since("10:00:00")}, "", "10:05:00 next 10:10:00"},
		"not before the first time":    {"*/5 * * * *", []with{since("10:06:00")}, "", "next 10:10:00"},
		"made already":                 {"*/5 * * * *", []with{since("09:00:00"), last("10:05:00")}, "", "next 10:10:00"},
		"the latest of several missed": {"*/5 * * * *", []with{since("09:00:00"), last("09:40:00")}, "", "10:05:00 next 10:10:00"},
		"more than a hundred missed":   {"* * * * *", []with{since("08:00:00")}, "", "10:07:00 next 10:08:00 TooManyMissedTimes"},
		"a hundred missed":             {"* * * * *", []with{since("08:27:30")}, "", "10:07:00 next 10:08:00"},
		"too late":                     {"*/5 * * * *", []with{since("09:00:00"), deadline(100)}, "", "next 10:10:00"},
		"just in time":                 {"*/5 * * * *", []with{since("09:00:00"), deadline(151)}, "", "10:05:00 next 10:10:00"},
		"a deadline keeps many quiet":  {"* * * * *", []with{since("00:00:00"), deadline(200)}, "", "10:07:00 next 10:08:00"},
		"suspended":                    {"*/5 * * * *", []with{since("10:00:00"), suspended}, "", ""},
		"Allow":                        {"*/5 * * * *", []with{since("10:00:00"), policy(batch.AllowConcurrent)}, "10:00:00", "10:05:00 next 10:10:00"},
		"Forbid":                       {"*/5 * * * *", []with{since("10:00:00"), policy(batch.ForbidConcurrent)}, "10:00:00", "next 10:10:00 ForbidConcurrent"},
		"Forbid with nobody":           {"*/5 * * * *", []with{since("10:00:00"), policy(batch.ForbidConcurrent)}, "", "10:05:00 next 10:10:00"},
		"Replace":                      {"*/5 * * * *", []with{since("10:00:00"), policy(batch.ReplaceConcurrent)}, "10:00:00", "10:05:00 replaces 10:00:00 next 10:10:00"},
		"it runs already":              {"*/5 * * * *", []with{since("10:00:00"), policy(batch.ReplaceConcurrent)}, "10:05:00", "next 10:10:00"},
		"a zone":                       {"0 15 * * *", []with{since("00:00:00"), zone("Asia/Kolkata")}, "", "09:30:00 next 09:30:00"},
		"an hour that is another's":    {"5 10 * * *", []with{since("10:00:00"), zone("Europe/Berlin")}, "", "next 09:05:00"},
		"each so many seconds":         {"@every 50s", []with{since("10:00:00")}, "", "10:07:30 next 10:08:20"},
		"no such day":                  {"0 0 30 2 *", []with{since("10:00:00")}, "", ""},
		"no schedule":                  {"soon", []with{since("10:00:00")}, "", "UnParseableCronJobSchedule"},
		"empty":                        {"", []with{since("10:00:00")}, "", "UnParseableCronJobSchedule"},
		"a zone in the schedule":       {"TZ=0", []with{since("10:00:00")}, "", "UnParseableCronJobSchedule"},
		"no zone":                      {"* * * * *", []with{since("10:00:00"), zone("Mars/Olympus")}, "", "InvalidTimeZone"},
		"a zone of nobody's":           {"* * * * *", []with{since("10:00:00"), zone("Local")}, "", "InvalidTimeZone"},
		"a name that is too long":      {"* * * * *", []with{since("10:00:00"), func(c *batch.CronJob) { c.Name = strings.Repeat("x", 53) }}, "", "InvalidSchedule"},
		"it goes":                      {"* * * * *", []with{since("10:00:00"), func(c *batch.CronJob) { c.DeletionTimestamp = &metav1.Time{} }}, "", ""},
	} {
		b, cron := newBook(volcano.ValidateCronJob), cronJob(c.schedule, c.edit...)
		k := b.cronSeen(cron, false)[0]
		if c.runs != "" {
			b.jobSeen(made(cron, clock(t, c.runs), batch.Running), false)
		}
		p, again := b.decide(k, clock(t, "10:07:30"))
		var got []string
		if p.create != nil {
			got = append(got, p.due.UTC().Format(time.TimeOnly))
			if j := p.create; j.Name != fmt.Sprintf("c-%d", p.due.Unix()/60) || j.Labels["a"] != "b" || j.Spec.Queue != "q" || !metav1.IsControlledBy(j, cron) ||
				scheduled(j).Compare(p.due) != 0 || j.Annotations[keys.CronScheduled] == "" {
				t.Errorf("%s: the Job is %+v", name, j)
			}
		}
		for _, j := range p.replaced {
			got = append(got, "replaces "+scheduled(j).UTC().Format(time.TimeOnly))
		}
		if !again.IsZero() {
			got = append(got, "next "+again.Add(-late).UTC().Format(time.TimeOnly))
		}
		if p.wrong != nil {
			got = append(got, p.wrong.Reason)
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

// TestHistory: of the Jobs that ended so many are kept, the latest, completed ones apart from failed and terminated ones; the status says which run, when one was last
// due, and when one was last completed; what is new in it is told.
func TestHistory(t *testing.T) {
	t.Parallel()
	cron := cronJob("0 0 1 1 *", func(c *batch.CronJob) { c.CreationTimestamp = metav1.NewTime(clock(t, "09:00:00")) })
	b := newBook(volcano.ValidateCronJob)
	phases := []batch.JobPhase{
		batch.Completed, batch.Completed, batch.Failed, batch.Terminated, batch.Completed, batch.Terminated, batch.Completed, batch.Aborted, batch.Running, batch.Completing, "",
	}
	names := map[string]int{}
	for i, phase := range phases {
		j := made(cron, clock(t, fmt.Sprintf("09:%02d:00", i)), phase)
		names[j.Name] = i
		b.jobSeen(j, false)
		if i == 0 || i == 7 {
			cron.Status.Active = append(cron.Status.Active, reference(j))
		}
	}
	gone := made(cron, clock(t, "08:00:00"), batch.Running)
	cron.Status.Active = append(cron.Status.Active, reference(gone))
	k := b.cronSeen(cron, false)[0]
	p, _ := b.decide(k, clock(t, "10:00:00"))
	var past, active, told []string
	for _, j := range p.past {
		past = append(past, fmt.Sprint(names[j.Name]))
	}
	for _, r := range p.status.Active {
		active = append(active, fmt.Sprint(names[r.Name]))
	}
	for _, n := range p.notes {
		told = append(told, n.Reason)
	}
	if got := strings.Join(past, " "); got != "3 2 0" {
		t.Errorf("past are %s", got)
	}
	if got := strings.Join(active, " "); got != "7 8 9 10" {
		t.Errorf("active are %s", got)
	}
	if got := strings.Join(told, " "); got != "SawCompletedJob StaleReference" {
		t.Errorf("told: %s", got)
	}
	if s := p.status; !s.LastScheduleTime.Time.Equal(clock(t, "09:10:00")) || !s.LastSuccessfulTime.Time.Equal(clock(t, "09:06:10")) {
		t.Errorf("%+v", s)
	}
	cron.Status = *p.status
	b.cronSeen(cron, false)
	if p, _ := b.decide(k, clock(t, "10:00:00")); p.status != nil {
		t.Errorf("at rest: %+v", p.status)
	}
}

// TestLatest: the last time up to now is found whatever the schedule, as by counting.
func TestLatest(t *testing.T) {
	t.Parallel()
	now := clock(t, "10:07:30")
	for _, text := range []string{"* * * * *", "*/7 * * * *", "0 0 29 2 *", "30 3 * * 1-5", "* 0 1 1 *", "59 23 31 12 *", "0 12 10 3 *"} {
		for _, zone := range []string{"Etc/UTC", "America/New_York", "Australia/Lord_Howe"} {
			s, wrong := scheduleOf(cronJob(text, func(c *batch.CronJob) { c.Spec.TimeZone = &zone }), volcano.ValidateCronJob)
			if wrong != nil {
				t.Fatal(wrong)
			}
			for _, back := range []time.Duration{time.Second, 90 * time.Second, time.Hour, 48 * time.Hour, 400 * 24 * time.Hour} {
				var want time.Time
				for at := s.Next(now.Add(-back)); !at.IsZero() && !at.After(now); at = s.Next(at) {
					want = at
				}
				if got := latest(s, now.Add(-back), now); !got.Equal(want) {
					t.Errorf("%s in %s, %v back: %v, want %v", text, zone, back, got, want)
				}
			}
		}
	}
}

// FuzzSchedule: no schedule and no zone ends in a panic, or in a time that is not between.
func FuzzSchedule(f *testing.F) {
	for _, text := range []string{"* * * * *", "@every 1h", "@every 1ns", "@daily", "TZ=0", "CRON_TZ=UTC * * * * *", "*/0 * * * *", "60 * * * *", "0 0 30 2 *", "@every -1h", "? ? ? ? ?"} {
		f.Add(text, "Europe/Berlin")
	}
	now := time.Date(2026, 3, 29, 3, 0, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, text, zone string) {
		s, wrong := scheduleOf(cronJob(text, func(c *batch.CronJob) { c.Spec.TimeZone = &zone }), volcano.ValidateCronJob)
		if (s == nil) == (wrong == nil) {
			t.Fatalf("%v, %v", s, wrong)
		}
		if s == nil {
			return
		}
		earliest := now.Add(-72 * time.Hour)
		if at := latest(s, earliest, now); !at.IsZero() && (at.After(now) || at.Before(earliest)) {
			t.Errorf("%q in %q: %v", text, zone, at)
		}
		missed(s, earliest, now)
	})
}
