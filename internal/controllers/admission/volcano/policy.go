package volcano

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"

	batch "github.com/muster-scheduler/muster/api/volcano/batch/v1alpha1"
	bus "github.com/muster-scheduler/muster/api/volcano/bus/v1alpha1"
)

// events are those that a user may answer, actions are what he may answer with.
var (
	events = []bus.Event{
		bus.AnyEvent, bus.PodFailedEvent, bus.PodEvictedEvent, bus.PodPendingEvent, bus.JobUnknownEvent, bus.TaskCompletedEvent, bus.TaskFailedEvent, bus.JobUpdatedEvent,
	}
	actions = []bus.Action{
		bus.AbortJobAction, bus.RestartJobAction, bus.RestartTaskAction, bus.RestartPodAction, bus.RestartPartitionAction, bus.TerminateJobAction, bus.CompleteJobAction, bus.ResumeJobAction,
	}
)

// policies checks the policies of a Job or a task: each answers events or an exit code, and nothing is answered twice.
func policies(list []batch.LifecyclePolicy, at *field.Path) (out field.ErrorList) {
	answered, codes := map[bus.Event]bool{}, map[int32]bool{}
	for i := range list {
		p, here := &list[i], at.Index(i)
		asked := slices.Clone(p.Events)
		if p.Event != "" {
			asked = append(asked, p.Event)
		}
		slices.Sort(asked)
		asked = slices.Compact(asked)
		switch {
		case len(asked) > 0 && p.ExitCode != nil:
			out = append(out, field.Forbidden(here.Child("exitCode"), "must not be set together with event or events"))
			continue
		case len(asked) == 0 && p.ExitCode == nil:
			out = append(out, field.Required(here, "one of event, events and exitCode is needed"))
			continue
		}
		if !slices.Contains(actions, p.Action) {
			out = append(out, field.NotSupported(here.Child("action"), brief(string(p.Action)), texts(actions)))
		}
		if p.ExitCode != nil {
			switch code := *p.ExitCode; {
			case code == 0:
				out = append(out, field.Invalid(here.Child("exitCode"), code, "must not be 0, which is success"))
			case codes[code]:
				out = append(out, field.Duplicate(here.Child("exitCode"), code))
			default:
				codes[code] = true
			}
			continue
		}
		for _, e := range asked {
			switch {
			case !slices.Contains(events, e):
				out = append(out, field.NotSupported(here.Child("event"), brief(string(e)), texts(events)))
			case answered[e]:
				out = append(out, field.Duplicate(here.Child("event"), string(e)))
			}
			answered[e] = true
		}
	}
	if answered[bus.AnyEvent] && len(answered) > 1 {
		out = append(out, field.Invalid(at, string(bus.AnyEvent), fmt.Sprintf("answers every event, and %d are answered besides", len(answered)-1)))
	}
	return out
}

func texts[T ~string](list []T) (out []string) {
	for _, one := range list {
		out = append(out, string(one))
	}
	return out
}
