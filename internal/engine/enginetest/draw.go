package enginetest

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/dialect/core"
	"github.com/muster-scheduler/muster/internal/dialect/kai"
	"github.com/muster-scheduler/muster/internal/engine"
)

// drawPlans prints plans for people: a line per bundle, and below it a line per run of equal decisions.
func drawPlans(plans []engine.Plan) string {
	var b strings.Builder
	for i := range plans {
		for j := range plans[i].Bundles {
			bundle := &plans[i].Bundles[j]
			fmt.Fprintf(&b, "%s %s", plans[i].Action, fullName(bundle.Gang.Namespace, bundle.Gang.Name))
			if bundle.Starts {
				b.WriteString(" starts")
			}
			b.WriteString("\n")
			in := bundle.Intents
			for k := 0; k < len(in); {
				n := 1
				for k+n < len(in) && follows(in[k+n-1], in[k+n]) {
					n++
				}
				fmt.Fprintf(&b, "  %-8s %s on %s\n", in[k].Verb, podRange(fullName(in[k].Namespace, in[k].Pod), n), in[k].Node)
				k += n
			}
		}
	}
	if b.Len() == 0 {
		return "nothing\n"
	}
	return b.String()
}

// follows says whether o decides the same for the next pod of the same series.
func follows(in, o engine.Intent) bool {
	base, i := series(in.Pod)
	next, k := series(o.Pod)
	return in.Verb == o.Verb && in.Node == o.Node && in.Namespace == o.Namespace && i >= 0 && base == next && k == i+1
}

// series splits a pod's name into what it shares with its siblings and its number; -1 for a name without one.
func series(name string) (string, int) {
	cut := strings.LastIndex(name, "-")
	if cut < 0 {
		return name, -1
	}
	n, err := strconv.Atoi(name[cut+1:])
	if err != nil || n < 0 {
		return name, -1
	}
	return name[:cut], n
}

// podRange names n pods from first on: train[0..3].
func podRange(first string, n int) string {
	base, i := series(first)
	switch {
	case i < 0:
		return first
	case n == 1:
		return fmt.Sprintf("%s[%d]", base, i)
	}
	return fmt.Sprintf("%s[%d..%d]", base, i, i+n-1)
}

// drawReason prints a gang's outcome: its reason key, the sentence, and what nodes said.
func drawReason(name string, t *engine.GangTrace) string {
	if t == nil {
		return name + ": waits for nothing\n"
	}
	var b strings.Builder
	got := ""
	if t.Placed > 0 {
		got += fmt.Sprintf(", %d placed", t.Placed)
	}
	if t.Nominated > 0 {
		got += fmt.Sprintf(", %d nominated", t.Nominated)
	}
	if t.Diagnosis == nil {
		return name + ":" + strings.TrimPrefix(got, ",") + "\n"
	}
	v := t.Diagnosis.Verdict
	fmt.Fprintf(&b, "%s: %s%s\n  %s\n", name, v.Reason, got, v)
	for _, c := range t.Diagnosis.Tally {
		fmt.Fprintf(&b, "  %d of %d nodes: %s, %s\n", c.Nodes, t.Diagnosis.Nodes, c.Verdict.Reason, c.Verdict)
	}
	return b.String()
}

// show prints a part of the state: show queues [gpu|cpu|memory], show nodes, show gangs, show gang NAME, show problems,
// show facts.
func (in *interpreter) show(s *statement) error {
	what, err := s.name()
	if err != nil {
		return err
	}
	switch what {
	case "queues":
		return in.showQueues(s)
	case "nodes":
		return in.showNodes()
	case "gangs":
		return in.showGangs("")
	case "gang":
		if len(s.words) != 2 {
			return s.errorf("want show gang NAME")
		}
		return in.showGangs(s.words[1])
	case "problems":
		p, ok := in.backend.(interface{ Problems() []string })
		if !ok {
			return s.errorf("this backend does not collect problems")
		}
		for _, line := range p.Problems() {
			in.printf("%s\n", line)
		}
		return nil
	case "facts":
		trace, err := in.backend.Trace()
		if err != nil {
			return err
		}
		for _, name := range slices.Sorted(maps.Keys(trace.Facts)) {
			in.printf("%s: %v\n", name, trace.Facts[name])
		}
		return nil
	}
	return s.errorf("cannot show %q", what)
}

func (in *interpreter) showQueues(s *statement) error {
	dim := cluster.GPU
	if len(s.words) > 1 {
		var ok bool
		if dim, ok = cluster.BaseDims().Index(s.words[1]); !ok {
			return s.errorf("%q is not cpu, memory or gpu", s.words[1])
		}
	}
	trace, err := in.backend.Trace()
	if err != nil {
		return err
	}
	rows := [][]string{{"queue", "quota", "limit", "fair", "used", "asks"}}
	for i := range trace.Queues {
		q := &trace.Queues[i]
		amount := func(r cluster.Resources, missing int64) string {
			if dim < len(r) {
				missing = r[dim]
			}
			if missing == cluster.Unlimited {
				return "-"
			}
			return cluster.BaseDims().FormatOne(dim, missing)
		}
		rows = append(rows, []string{
			strings.Repeat("  ", q.Depth) + q.Name, amount(q.Quota, 0), amount(q.Limit, cluster.Unlimited), amount(q.FairShare, 0),
			amount(q.Allocated, 0), amount(q.Requested, 0),
		})
	}
	in.table(rows)
	return nil
}

// table prints rows in columns: the first to the left, the others to the right.
func (in *interpreter) table(rows [][]string) {
	width := make([]int, len(rows[0]))
	for _, r := range rows {
		for i, cell := range r {
			width[i] = max(width[i], len(cell))
		}
	}
	for _, r := range rows {
		line := fmt.Sprintf("%-*s", width[0], r[0])
		for i, cell := range r[1:] {
			line += fmt.Sprintf("  %*s", width[i+1], cell)
		}
		in.printf("%s\n", strings.TrimRight(line, " "))
	}
}

// showNodes prints GPUs held and by whom.
func (in *interpreter) showNodes() error {
	nodes, err := in.backend.Nodes()
	if err != nil {
		return err
	}
	pods, err := in.backend.Pods()
	if err != nil {
		return err
	}
	sortPods(pods)
	for _, n := range nodes {
		var held int64
		var here []string
		for _, p := range pods {
			if p.Spec.NodeName == n.Name && p.Status.Phase != v1.PodSucceeded && p.Status.Phase != v1.PodFailed {
				held += gpusOf(core.Requests(p))
				here = append(here, fullName(p.Namespace, p.Name))
			}
		}
		in.printf("%s  %s/%s gpu", n.Name, cluster.BaseDims().FormatOne(cluster.GPU, held), cluster.BaseDims().FormatOne(cluster.GPU, gpusOf(core.Amounts(n.Status.Allocatable))))
		if problem := core.NodeProblem(n); problem != "" {
			in.printf("  %s", problem)
		}
		in.printf("%s\n", ranges(here))
	}
	return nil
}

// ranges joins sorted names, sibling pods in one word.
func ranges(names []string) string {
	out := ""
	for k := 0; k < len(names); {
		base, i := series(names[k])
		n := 1
		for k+n < len(names) && i >= 0 {
			next, j := series(names[k+n])
			if next != base || j != i+n {
				break
			}
			n++
		}
		out += "  " + podRange(names[k], n)
		k += n
	}
	return out
}

func sortPods(pods []*v1.Pod) {
	slices.SortFunc(pods, func(a, b *v1.Pod) int {
		x, i := series(a.Name)
		y, j := series(b.Name)
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(x, y), cmp.Compare(i, j))
	})
}

func gpusOf(qs []cluster.Quantity) int64 {
	for _, q := range qs {
		if q.Name == "gpu" {
			return q.Value
		}
	}
	return 0
}

// fewNodes is on how many nodes a gang may be for each to be named.
const fewNodes = 8

// showGangs prints where the pods of every gang, or of one, are.
func (in *interpreter) showGangs(only string) error {
	pods, err := in.backend.Pods()
	if err != nil {
		return err
	}
	sortPods(pods)
	type tally struct {
		what string
		n    int
	}
	var order []string
	gangs := map[string][]tally{}
	for _, p := range pods {
		group := p.Annotations[kai.PodGroupAnnotation]
		if group == "" {
			continue
		}
		name := fullName(p.Namespace, group)
		if only != "" && name != only {
			continue
		}
		if _, ok := gangs[name]; !ok {
			order = append(order, name)
		}
		what := strings.ToLower(core.PodPhase(p).String())
		if p.Spec.NodeName != "" {
			what += " on " + p.Spec.NodeName
		}
		i := slices.IndexFunc(gangs[name], func(t tally) bool { return t.what == what })
		if i < 0 {
			i = len(gangs[name])
			gangs[name] = append(gangs[name], tally{what: what})
		}
		gangs[name][i].n++
	}
	if only != "" && len(order) == 0 {
		in.printf("%s: no pods\n", only)
	}
	slices.Sort(order)
	for _, name := range order {
		places := map[string]int{} // by phase: on how many nodes
		count := map[string]int{}
		for _, t := range gangs[name] {
			phase, _, _ := strings.Cut(t.what, " on ")
			places[phase]++
			count[phase] += t.n
		}
		var parts []string
		for _, t := range gangs[name] {
			phase, _, _ := strings.Cut(t.what, " on ")
			switch {
			case places[phase] <= fewNodes:
				parts = append(parts, fmt.Sprintf("%d %s", t.n, t.what))
			case count[phase] > 0: // a gang on many nodes: one figure
				parts = append(parts, fmt.Sprintf("%d %s on %d nodes", count[phase], phase, places[phase]))
				count[phase] = 0
			}
		}
		in.printf("%s: %s\n", name, strings.Join(parts, ", "))
	}
	return nil
}
