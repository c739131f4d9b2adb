package cli

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/muster-scheduler/muster/api/kai/keys"
	"github.com/muster-scheduler/muster/api/scheduling/v2alpha2"
	"github.com/muster-scheduler/muster/internal/cli/form"
	"github.com/muster-scheduler/muster/internal/explain"
	"github.com/muster-scheduler/muster/internal/see"
)

// Whoever may read only the PodGroups of his namespace gets what the scheduler wrote into them: why each waits. What would change it takes a
// look at the whole cluster, and which right is missing for that is said.

// NarrowReport is a gang as its own object has it. Field names are stable.
type NarrowReport struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Workload is what it was made for ("Job train"); "" where it has no owner.
	Workload string `json:"workload,omitempty"`
	Queue    string `json:"queue"`
	// Waits says that the scheduler says that it waits; Reason, Message and Since are its words.
	Waits   bool       `json:"waits"`
	Reason  string     `json:"reason,omitempty"`
	Message string     `json:"message,omitempty"`
	Since   *time.Time `json:"since,omitempty"`
	// Brief is what the scheduler wrote for those who may read no more, if it is told to (--explain-gangs).
	Brief *see.Brief `json:"brief,omitempty"`
	// Missing is the right without which there is no more to say.
	Missing string `json:"missingRight"`
}

// narrow reports gangs by their own objects, by name.
func narrow(groups []v2alpha2.PodGroup, missing string) []NarrowReport {
	out := make([]NarrowReport, 0, len(groups))
	for i := range groups {
		g := &groups[i]
		r := NarrowReport{Namespace: g.Namespace, Name: g.Name, Queue: g.Spec.Queue, Missing: missing}
		if len(g.OwnerReferences) > 0 {
			r.Workload = g.OwnerReferences[0].Kind + " " + g.OwnerReferences[0].Name
		}
		if c := unschedulable(g); c != nil {
			r.Waits, r.Reason, r.Message, r.Since = true, reasonOf(c), c.Message, new(c.LastTransitionTime.UTC())
		}
		if text := g.Annotations[keys.WhyAnnotation]; text != "" {
			r.Brief, _ = see.ReadBrief(text) // what is no brief says nothing
		}
		out = append(out, r)
	}
	slices.SortFunc(out, func(a, b NarrowReport) int { return strings.Compare(a.Name, b.Name) })
	return out
}

func (l *looker) listNarrow(c *cobra.Command, namespace string, pending bool, no *Forbidden) error {
	groups, err := l.groups(c.Context(), namespace)
	if err != nil {
		return err
	}
	gangs := slices.DeleteFunc(narrow(groups, no.Right), func(g NarrowReport) bool { return pending && !g.Waits })
	return form.Emit(c.OutOrStdout(), l.output, gangs, func() string { return drawNarrow(gangs, no) })
}

func drawNarrow(gangs []NarrowReport, no *Forbidden) string {
	rows := make([][]string, 0, len(gangs))
	for _, g := range gangs {
		rows = append(rows, []string{g.Name, g.Queue, g.Message})
	}
	return fmt.Sprintf("As the gangs' own objects have it; %s, which more would take\n", no) +
		form.Table([]form.Column{{Title: "NAME"}, {Title: "QUEUE"}, {Title: "WAITS BECAUSE", Wrap: true}}, rows)
}

func (l *looker) explainNarrow(c *cobra.Command, namespace, name string, no *Forbidden) error {
	groups, err := l.groups(c.Context(), namespace)
	if err != nil {
		return err
	}
	g, err := pick(narrow(groups, no.Right), namespace, name)
	if err != nil {
		return err
	}
	return form.Emit(c.OutOrStdout(), l.output, g, g.text)
}

// pick finds the gang that is meant by a name, as explain does.
func pick(gangs []NarrowReport, namespace, name string) (*NarrowReport, error) {
	name = strings.TrimSuffix(name, "…")
	var here, meant []string
	var found *NarrowReport
	for i := range gangs {
		g := &gangs[i]
		if g.Name == name {
			return g, nil
		}
		here = append(here, g.Name)
		if strings.HasPrefix(g.Name, name) || called(g.Name, name) {
			found, meant = g, append(meant, g.Name)
		}
	}
	switch len(meant) {
	case 0:
		return nil, fmt.Errorf("there is no gang %s in namespace %s%s", name, namespace, explain.Near(name, here))
	case 1:
		return found, nil
	}
	return nil, fmt.Errorf("%d gangs in namespace %s could be meant by %s: %s", len(meant), namespace, name, strings.Join(meant[:min(4, len(meant))], ", "))
}

func (g *NarrowReport) text() string {
	who := "gang " + g.Namespace + "/" + g.Name
	if g.Workload != "" {
		who = g.Workload + " (" + who + ")"
	}
	if g.Brief != nil {
		return who + ": " + briefText(g.Brief, g.Queue) + "the whole cluster says more: you may not " + g.Missing + "\n"
	}
	s := fmt.Sprintf("%s: queue %s\n", who, g.Queue)
	if !g.Waits {
		return s + "the scheduler does not say that it waits\n"
	}
	return s + fmt.Sprintf("why, as the scheduler says since %s: %s [%s]\nwhat would change it takes a look at the whole cluster: you may not %s\n", g.Since.Format(time.RFC3339), g.Message, g.Reason, g.Missing)
}

// briefText is a brief for people.
func briefText(n *see.Brief, queue string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s; queue %s, as the scheduler wrote at %s\n", n.Word, queue, n.At.UTC().Format(time.RFC3339))
	if n.Message != "" {
		fmt.Fprintf(&b, "why: %s [%s]\n", n.Message, n.Reason)
	}
	if t := n.Starts; t != nil {
		fmt.Fprintf(&b, "starts %s\n", cmp.Or(t.Text, t.Band+" (UTC)"))
	}
	if t := n.Turn; t != nil {
		fmt.Fprintf(&b, "turn: %d of %d\n", t.Position, t.Of)
	}
	for i, r := range n.Remedies {
		start := "were it next, it would start with this"
		if i > 0 {
			start = "or instead"
		}
		fmt.Fprintf(&b, "%s (%s):\n", start, r.By)
		for _, text := range r.Changes {
			fmt.Fprintf(&b, "  - %s\n", text)
		}
		if r.Evicts > 0 {
			fmt.Fprintf(&b, "    others would have to go for it: %d pods\n", r.Evicts)
		}
	}
	return b.String()
}

// NarrowQueue is a queue as the gangs of one namespace have it that name it. Field names are stable.
type NarrowQueue struct {
	Queue     string `json:"queue"`
	Namespace string `json:"namespace"`
	Gangs     int    `json:"gangs"`
	Waiting   int    `json:"waiting"`
	// Reasons counts those that wait by what the scheduler says.
	Reasons map[string]int `json:"reasons,omitempty"`
	// Missing is the right without which there is no more to say.
	Missing string `json:"missingRight"`
}

// queuesNarrow prints the queues that the gangs of the kubeconfig's namespace name.
func (l *looker) queuesNarrow(c *cobra.Command, no *Forbidden) error {
	namespace, err := l.namespace("")
	if err != nil {
		return err
	}
	groups, err := l.groups(c.Context(), namespace)
	if err != nil {
		return err
	}
	queues := narrowQueues(narrow(groups, no.Right))
	return form.Emit(c.OutOrStdout(), l.output, queues, func() string { return drawNarrowQueues(queues, namespace, no) })
}

// narrowQueues counts gangs by queue, by name.
func narrowQueues(gangs []NarrowReport) []NarrowQueue {
	out := []NarrowQueue{}
	for i := range gangs {
		g := &gangs[i]
		k := slices.IndexFunc(out, func(q NarrowQueue) bool { return q.Queue == g.Queue })
		if k < 0 {
			k = len(out)
			out = append(out, NarrowQueue{Queue: g.Queue, Namespace: g.Namespace, Missing: g.Missing, Reasons: map[string]int{}})
		}
		out[k].Gangs++
		if g.Waits {
			out[k].Waiting++
			out[k].Reasons[g.Reason]++
		}
	}
	slices.SortFunc(out, func(a, b NarrowQueue) int { return strings.Compare(a.Queue, b.Queue) })
	return out
}

func drawNarrowQueues(queues []NarrowQueue, namespace string, no *Forbidden) string {
	rows := make([][]string, 0, len(queues))
	for _, q := range queues {
		var why []string
		for _, r := range slices.Sorted(maps.Keys(q.Reasons)) {
			why = append(why, fmt.Sprintf("%s %d", r, q.Reasons[r]))
		}
		rows = append(rows, []string{q.Queue, strconv.Itoa(q.Gangs), strconv.Itoa(q.Waiting), strings.Join(why, ", ")})
	}
	return fmt.Sprintf("As the gangs of namespace %s have it; %s, which more would take\n", namespace, no) +
		form.Table([]form.Column{{Title: "QUEUE"}, {Title: "GANGS", Right: true}, {Title: "WAITING", Right: true}, {Title: "BECAUSE", Wrap: true}}, rows)
}
