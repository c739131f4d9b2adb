package vcjob

import (
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	batch "github.com/muster-scheduler/muster/api/volcano/batch/v1alpha1"
	bus "github.com/muster-scheduler/muster/api/volcano/bus/v1alpha1"
)

// A Command is obeyed once, wherever the controller dies: the write of the Job's status that obeys it says so, by the Command's UID among what the Job controls,
// and only then the Command is deleted. Who finds it there, and its UID in the status, deletes it and does nothing else. Once it is gone, so is the record.

// recordPrefix begins the names of such records in status.controlledResources.
const recordPrefix = "command-"

// record notes in a status that it obeys a Command.
func record(is *batch.JobStatus, command types.UID, action bus.Action) {
	is.ControlledResources = maps.Clone(is.ControlledResources)
	if is.ControlledResources == nil {
		is.ControlledResources = map[string]string{}
	}
	is.ControlledResources[recordPrefix+string(command)] = string(action)
}

// obeyed says whether a status records a Command.
func obeyed(s *batch.JobStatus, command types.UID) bool {
	_, ok := s.ControlledResources[recordPrefix+string(command)]
	return ok
}

// dropRecords drops from a status the records of Commands that are gone.
func (e *entry) dropRecords(is *batch.JobStatus) {
	maps.DeleteFunc(is.ControlledResources, func(name, _ string) bool {
		uid, ok := strings.CutPrefix(name, recordPrefix)
		return ok && e.commands[types.UID(uid)] == nil
	})
}

// orders are the Commands that wait, oldest first.
func (e *entry) orders() []*bus.Command {
	if e == nil {
		return nil
	}
	return slices.SortedFunc(maps.Values(e.commands), func(a, b *bus.Command) int {
		if order := a.CreationTimestamp.Compare(b.CreationTimestamp.Time); order != 0 {
			return order
		}
		return compare(a.Name, b.Name)
	})
}

// done are those of the Commands that are deleted: that were obeyed, or are for an earlier Job of the name, which its UID tells.
func (e *entry) done() (out []*bus.Command) {
	for _, c := range e.orders() {
		if uid := c.TargetObject.UID; e.job == nil || uid != "" && uid != e.job.UID || obeyed(&e.job.Status, c.UID) {
			out = append(out, c)
		}
	}
	return out
}

// asked is what the Commands ask for that are not done, in their order.
func (e *entry) asked() (out []request) {
	done := e.done()
	for _, c := range e.orders() {
		if !slices.Contains(done, c) {
			out = append(out, request{event: bus.CommandIssuedEvent, action: bus.Action(c.Action), command: c.UID})
		}
	}
	return out
}

// idle are the Commands that change nothing, as the Job is: of several requests, those before the one that is answered, or all of them if that is none of theirs; the
// answered one too, if nothing begins with it.
func (e *entry) idle(requests []request, answered *request, begins bool) (out []*bus.Command) {
	for i := range requests {
		r := &requests[i]
		if r.command == "" || r == answered && begins {
			break
		}
		out = append(out, e.commands[r.command])
		if r == answered {
			break
		}
	}
	return out
}
