package cli

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	v1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-scheduler/muster/api/kai/keys"
	"github.com/muster-scheduler/muster/internal/app"
	"github.com/muster-scheduler/muster/internal/cli/form"
	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/scheduler"
)

func newDecisions(d Deps) *cobra.Command {
	var namespace, gang, output string
	var last int
	var detail bool
	var since string
	var role remote
	o := app.ClientOptions{QPS: -1, UserAgent: "muster/" + d.Version}
	c := &cobra.Command{
		Use: "decisions", Short: "List the latest decisions that took room from somebody: for whom, from whom, by which rule", Args: cobra.NoArgs,
		Long: "List the latest decisions that took room from somebody, the latest first: when, by which right, for whom, how many pods\n" +
			"gave way, and the GPUs that were evicted, moved and placed. They are read from the events of the cluster, which API servers keep for an hour.\n\n" +
			"With --since, the journal of the role ui (--ui) is read instead: all that bound, evicted or changed a reason in that time, with the number of the\n" +
			"cycle, which `muster replay --cycle` decides again, and what is missing.",
		Example: "  muster decisions --last 5\n  muster decisions --gang train --detail\n  muster decisions --since 3d --ui https://muster-ui.example",
		RunE: func(c *cobra.Command, _ []string) error {
			switch err := form.Check(output); {
			case err != nil:
				return err
			case last < 1:
				return errors.New("--last must be at least 1")
			case since != "":
				return role.decisions(c, o, namespace, gang, since, last, output)
			}
			api, config, err := dial(o, v1.AddToScheme)
			if err != nil {
				return err
			}
			var events []v1.Event
			for _, reason := range []string{keys.EventRoomMade, keys.EventEvictionsSpared, keys.EventEvict} {
				var list v1.EventList
				if err := api.List(c.Context(), &list, client.InNamespace(namespace), client.MatchingFields{"reason": reason}); err != nil {
					return advise(err, config.Host)
				}
				events = append(events, list.Items...)
			}
			records := decisions(events, gang)
			records = records[:min(last, len(records))]
			return form.Emit(c.OutOrStdout(), output, records, func() string {
				if detail {
					return tellDecisions(records)
				}
				return drawDecisions(records)
			})
		},
	}
	fs := c.Flags()
	clientFlags(fs, &o)
	fs.StringVarP(&output, "output", "o", "table", "table, json or yaml")
	fs.StringVarP(&namespace, "namespace", "n", "", "only decisions for gangs of this namespace; empty: of all")
	fs.StringVar(&gang, "gang", "", "only decisions for or against gangs whose PodGroup or workload has this name")
	fs.StringVar(&since, "since", "", "how far back the journal of the role ui is read, such as 36h or 3d; empty: events are read")
	role.flags(c)
	fs.IntVar(&last, "last", 20, "at most this many")
	fs.BoolVar(&detail, "detail", false, "all there is to each: who gave what, by which rule, and the shares before and after")
	return c
}

// decisions are the records that events carry, the latest first. A name keeps those that concern a gang of that name.
func decisions(events []v1.Event, name string) []scheduler.Record {
	out := []scheduler.Record{}
	for i := range events {
		text := events[i].Annotations[keys.DecisionAnnotation]
		var r scheduler.Record
		// Anybody may write events; what is no record of ours is none.
		if text == "" || json.Unmarshal([]byte(text), &r) != nil || r.Eviction == nil {
			continue
		}
		_, beneficiary, _ := strings.Cut(r.Gang, "/")
		if name == "" || called(beneficiary, name) || slices.ContainsFunc(r.Eviction.Victims, func(v engine.Victim) bool { return called(v.Gang.Name, name) }) {
			out = append(out, r)
		}
	}
	slices.SortFunc(out, func(a, b scheduler.Record) int { return cmp.Or(b.At.Compare(a.At), cmp.Compare(a.Bundle, b.Bundle)) })
	return out
}

// called says whether a PodGroup has that name, or is the one that Muster made for a workload of that name.
func called(group, name string) bool {
	return group == name || strings.HasPrefix(group, "pg-"+name+"-")
}

// drawDecisions draws one line for each.
func drawDecisions(records []scheduler.Record) string {
	if len(records) == 0 {
		return "No decision of the last hour took room from anybody.\n"
	}
	columns := []form.Column{
		{Title: "TIME", Keep: true},
		{Title: "BY", Keep: true},
		{Title: "FOR"},
		{Title: "PODS", Right: true},
		{Title: "EVICTED", Right: true},
		{Title: "MOVED", Right: true},
		{Title: "PLACED", Right: true},
		{Title: "BECAUSE", Wrap: true},
	}
	rows := make([][]string, 0, len(records))
	for i := range records {
		r := &records[i]
		pods := strconv.Itoa(r.Pods)
		if r.Evicted != r.Pods {
			pods = fmt.Sprintf("%d of %d", r.Evicted, r.Pods)
		}
		rows = append(rows, []string{
			r.At.UTC().Format(time.TimeOnly), string(r.Eviction.Cause), r.Gang, pods,
			gpus(r.Eviction.Evicted), gpus(r.Eviction.Moved), gpus(r.Eviction.Placed), because(r),
		})
	}
	return "Times are UTC; EVICTED, MOVED and PLACED count GPUs; --detail says from whom\n" + form.Table(columns, rows)
}

// because is the rule that most victims had to go by, or why they were spared.
func because(r *scheduler.Record) string {
	if r.Spared != "" {
		return "spared: " + r.Spared
	}
	if r.Eviction.Cause == engine.Repair && (len(r.Eviction.Victims) == 0 || r.Eviction.Victims[0].Rule == "") {
		return "fewer pods than its minimum"
	}
	rules := map[string]int{}
	best := ""
	for _, v := range r.Eviction.Victims {
		rules[v.Rule]++
		if best == "" || rules[v.Rule] > rules[best] {
			best = v.Rule
		}
	}
	return best
}

// tellDecisions tells all there is to each.
func tellDecisions(records []scheduler.Record) string {
	if len(records) == 0 {
		return drawDecisions(records)
	}
	var b strings.Builder
	line := func(indent, format string, args ...any) {
		rest := fmt.Sprintf(format, args...)
		for i := 0; rest != ""; i++ {
			var first string
			first, rest = form.Break(rest, form.Width-len(indent)-2)
			if i > 0 {
				first = "  " + first
			}
			b.WriteString(indent + first + "\n")
		}
	}
	for i := range records {
		r := &records[i]
		c := r.Eviction
		if c.Cause.Own() {
			line("", "%s  %s releases %s (queue %s)", r.At.UTC().Format(time.TimeOnly), r.Action, r.Gang, c.Queue)
		} else {
			line("", "%s  %s for %s (queue %s)", r.At.UTC().Format(time.TimeOnly), c.Cause, r.Gang, c.Queue)
		}
		for _, v := range c.Victims {
			what := fmt.Sprintf("gives %s", podsOf(v.Pods))
			switch {
			case v.Moved == v.Pods:
				what = fmt.Sprintf("moves %s", podsOf(v.Pods))
			case v.Moved > 0:
				what += fmt.Sprintf(", %d of them to another node", v.Moved)
			}
			rule := ""
			if v.Rule != "" {
				rule = ": " + v.Rule
			}
			line("  ", "%s (queue %s, priority %d) %s, %s gpu%s", v.Gang, v.Queue, v.Priority, what, gpus(v.GPU), rule)
		}
		if r.More > 0 {
			line("  ", "and %d more gangs", r.More)
		}
		for _, s := range c.Shares {
			if before, after := s.Before.At(cluster.GPU), s.After.At(cluster.GPU); before != after {
				line("  ", "queue %s: %s -> %s gpu (quota %s, fair share %s)", s.Queue, gpus(before), gpus(after), gpus(s.Quota.At(cluster.GPU)), gpus(s.FairShare.At(cluster.GPU)))
			}
		}
		line("  ", "gpu: %s evicted, %s moved, %s placed", gpus(c.Evicted), gpus(c.Moved), gpus(c.Placed))
		if c.Partial {
			line("  ", "the search was cut short: a gentler choice may exist")
		}
		if r.Spared != "" {
			line("  ", "%d of %s spared: %s", r.Pods-r.Evicted, podsOf(r.Pods), r.Spared)
		}
	}
	return b.String()
}

func podsOf(n int) string {
	if n == 1 {
		return "1 pod"
	}
	return strconv.Itoa(n) + " pods"
}

// gpus prints milli-GPUs.
func gpus(milli int64) string {
	if milli == cluster.Unlimited {
		return "unlimited"
	}
	return cluster.BaseDims().FormatOne(cluster.GPU, milli)
}
