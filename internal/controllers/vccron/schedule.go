package vccron

import (
	"fmt"
	"time"
	_ "time/tzdata" // a container may have no time zones of its own

	"github.com/robfig/cron/v3"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	batch "github.com/muster-scheduler/muster/api/volcano/batch/v1alpha1"
	"github.com/muster-scheduler/muster/internal/kube/control"
)

// tooMany is how many missed times in turn are worth a warning.
const tooMany = 100

// scheduleOf reads when a CronJob's Jobs are due. What check finds wrong comes first: nothing that it lets pass may end in a panic.
func scheduleOf(c *batch.CronJob, check func(*batch.CronJob) field.ErrorList) (cron.Schedule, *control.Note) {
	if wrong := check(c); len(wrong) > 0 {
		reason := "InvalidSchedule"
		switch wrong[0].Field {
		case "spec.schedule":
			reason = "UnParseableCronJobSchedule"
		case "spec.timeZone":
			reason = "InvalidTimeZone"
		}
		return nil, &control.Note{Warning: true, Reason: reason, Message: wrong.ToAggregate().Error()}
	}
	at, err := time.LoadLocation(ptr.Deref(c.Spec.TimeZone, "Local"))
	if err != nil {
		return nil, &control.Note{Warning: true, Reason: "InvalidTimeZone", Message: err.Error()}
	}
	s, err := cron.ParseStandard(c.Spec.Schedule)
	if err != nil {
		return nil, &control.Note{Warning: true, Reason: "UnParseableCronJobSchedule", Message: err.Error()}
	}
	if fields, ok := s.(*cron.SpecSchedule); ok {
		fields.Location = at
	}
	return s, nil
}

// latest is the last time of a schedule after earliest, up to now; zero for none. It asks the schedule some thirty times, however long ago earliest is.
func latest(s cron.Schedule, earliest, now time.Time) time.Time {
	if every, ok := s.(cron.ConstantDelaySchedule); ok { // its times are counted from the last one
		n := now.Sub(earliest) / every.Delay
		if n < 1 {
			return time.Time{}
		}
		return earliest.Add(n * every.Delay).Truncate(time.Second)
	}
	due := func(t time.Time) bool {
		next := s.Next(t)
		return !next.IsZero() && !next.After(now)
	}
	low, high := earliest, now // something is due after low, nothing after high
	if !low.Before(high) || !due(low) {
		return time.Time{}
	}
	for high.Sub(low) > time.Second {
		if middle := low.Add(high.Sub(low) / 2); due(middle) {
			low = middle
		} else {
			high = middle
		}
	}
	return s.Next(low)
}

// missed says that more than tooMany times have passed since earliest, if so.
func missed(s cron.Schedule, earliest, now time.Time) *control.Note {
	t := earliest
	for range tooMany + 1 {
		if t = s.Next(t); t.IsZero() || t.After(now) {
			return nil
		}
	}
	return &control.Note{Warning: true, Reason: "TooManyMissedTimes", Message: fmt.Sprintf(
		"more than %d Jobs have been due since %s; the latest is made, and no other. spec.startingDeadlineSeconds says how late one may be, and clocks may differ", tooMany, earliest.UTC().Format(time.RFC3339))}
}
