package volcano

import (
	"fmt"
	"regexp"
	"strings"
	"time"
	_ "time/tzdata" // a container may have no time zones of its own

	"github.com/robfig/cron/v3"
	"k8s.io/apimachinery/pkg/util/validation/field"

	batch "github.com/muster-scheduler/muster/api/volcano/batch/v1alpha1"
	flow "github.com/muster-scheduler/muster/api/volcano/flow/v1alpha1"
	"github.com/muster-scheduler/muster/api/volcano/keys"
	"github.com/muster-scheduler/muster/api/volcano/scheduling/v1beta1"
	topology "github.com/muster-scheduler/muster/api/volcano/topology/v1alpha1"
)

// DefaultPodGroup returns what a PodGroup that is to be created does not say itself: a namespace may have another queue than default, by its annotations notes.
func DefaultPodGroup(g *v1beta1.PodGroup, notes map[string]string) []Fill {
	if own := notes[keys.QueueName]; own != "" && own != keys.DefaultQueue && g.Spec.Queue == keys.DefaultQueue {
		return []Fill{{"/spec/queue", own}}
	}
	return nil
}

// ValidatePodGroup returns what is wrong with the queue of a PodGroup that is to be created, among the queues that there are.
func ValidatePodGroup(g *v1beta1.PodGroup, queues Forest) field.ErrorList {
	at, name := field.NewPath("spec", "queue"), g.Spec.Queue
	q := queues.queues[name]
	switch {
	case name == "":
		return nil
	case q == nil:
		return field.ErrorList{field.NotFound(at, brief(name))}
	case !open(q):
		return field.ErrorList{field.Invalid(at, brief(name), fmt.Sprintf("its state is %s, and work is taken only by a queue that is Open", q.Status.State))}
	}
	return nil
}

// ValidateHyperNode returns what is wrong with a HyperNode.
func ValidateHyperNode(n *topology.HyperNode) (wrong field.ErrorList) {
	at := field.NewPath("spec", "members")
	if len(n.Spec.Members) == 0 {
		wrong = append(wrong, field.Required(at, "a HyperNode has at least one member"))
	}
	for i := range n.Spec.Members {
		m := n.Spec.Members[i].Selector.RegexMatch
		if m == nil {
			continue
		}
		if _, err := regexp.Compile(m.Pattern); err != nil {
			wrong = append(wrong, field.Invalid(at.Index(i).Child("selector", "regexMatch", "pattern"), brief(m.Pattern), "must be a regular expression: "+brief(err.Error())))
		}
	}
	return few(wrong)
}

// ValidateJobFlow returns what is wrong with a JobFlow: its Jobs wait for Jobs of it, and not for each other. Of two of one name the later counts.
func ValidateJobFlow(f *flow.JobFlow) (wrong field.ErrorList) {
	at := field.NewPath("spec", "flows")
	graph := map[string][]string{}
	for i := range f.Spec.Flows {
		graph[f.Spec.Flows[i].Name] = nil
	}
	for i := range f.Spec.Flows {
		one := &f.Spec.Flows[i]
		graph[one.Name] = nil
		if one.DependsOn == nil {
			continue
		}
		for k, name := range one.DependsOn.Targets {
			if _, there := graph[name]; !there {
				wrong = append(wrong, field.NotFound(at.Index(i).Child("dependsOn", "targets").Index(k), brief(name)))
				continue
			}
			graph[one.Name] = append(graph[one.Name], name)
		}
	}
	if loop := loopIn(graph); loop != nil {
		wrong = append(wrong, field.Invalid(at, chain(loop), "Jobs wait for each other by dependsOn"))
	}
	return few(wrong)
}

// maxCronName is how long the name of a CronJob may be: those of its Jobs have a time behind it.
const maxCronName = 52

// ValidateCronJob returns what is wrong with when a CronJob makes Jobs.
func ValidateCronJob(c *batch.CronJob) (wrong field.ErrorList) {
	spec := field.NewPath("spec")
	switch s, at := c.Spec.Schedule, spec.Child("schedule"); {
	case s == "":
		wrong = append(wrong, field.Required(at, "it says when Jobs are made"))
	case strings.Contains(s, "TZ"):
		wrong = append(wrong, field.Invalid(at, brief(s), "must not name a time zone: spec.timeZone does"))
	default:
		if _, err := cron.ParseStandard(s); err != nil {
			wrong = append(wrong, field.Invalid(at, brief(s), "must have the form of cron: "+brief(err.Error())))
		}
	}
	if c.Spec.TimeZone != nil {
		zone, at := *c.Spec.TimeZone, spec.Child("timeZone")
		switch _, err := time.LoadLocation(zone); {
		case zone == "":
			wrong = append(wrong, field.Invalid(at, zone, "must not be empty; without it the controller's counts"))
		case strings.EqualFold(zone, "Local"):
			wrong = append(wrong, field.Invalid(at, zone, "must be a time zone of the IANA list: whose Local it is nobody knows"))
		case err != nil:
			wrong = append(wrong, field.Invalid(at, brief(zone), "must be a time zone of the IANA list"))
		}
	}
	if len(c.Name) > maxCronName {
		wrong = append(wrong, field.TooLong(field.NewPath("metadata", "name"), brief(c.Name), maxCronName))
	}
	return wrong
}
