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
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/engine/ledger"
	"github.com/muster-scheduler/muster/internal/engine/recorder"
)

// drawPlans prints plans for people: a line per bundle, below it a line per run of equal decisions, and why whoever is
// evicted had to go. called names a shared device of a node.
func drawPlans(plans []engine.Plan, called func(node, group string) string) string {
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
				first, n := stretch(in[k:])
				fmt.Fprintf(&b, "  %-8s %s on %s", in[k].Verb, podRange(fullName(in[k].Namespace, in[k+first].Pod), n), in[k].Node)
				for i, g := range in[k].Groups {
					b.WriteString([]string{" gpu ", ","}[min(i, 1)] + called(in[k].Node, g))
				}
				if in[k].To != "" {
					b.WriteString(" -> " + in[k].To)
					for i, g := range in[k].ToGroups {
						b.WriteString([]string{" gpu ", ","}[min(i, 1)] + called(in[k].To, g))
					}
				}
				for i, z := range zoneNames(in[k].Zones) {
					b.WriteString([]string{" zone ", ","}[min(i, 1)] + z)
				}
				if in[k].Budget != "" {
					b.WriteString(" violates budget " + in[k].Budget)
				}
				b.WriteString("\n")
				k += n
			}
			if bundle.Eviction != nil {
				drawEviction(&b, bundle.Eviction)
			}
		}
	}
	if b.Len() == 0 {
		return "nothing\n"
	}
	return b.String()
}

// drawEviction prints the record of a decision that evicts: each victim with the rule that made it legal, the shares of
// queues that changed, and the GPUs given and got.
func drawEviction(b *strings.Builder, c *engine.EvictionRecord) {
	gpus := func(milli int64) string { return cluster.BaseDims().FormatOne(cluster.GPU, milli) }
	for i := range c.Victims {
		v := &c.Victims[i]
		var what []string
		if n := v.Pods - v.Moved; n > 0 {
			what = append(what, fmt.Sprintf("gives %d", n))
		}
		if v.Moved > 0 {
			what = append(what, fmt.Sprintf("moves %d", v.Moved))
		}
		if v.Promised > 0 {
			fmt.Fprintf(b, "  because  %s (queue %s, priority %d) gives up what was promised to %d of its pods: %s\n",
				fullName(v.Gang.Namespace, v.Gang.Name), v.Queue, v.Priority, v.Promised, v.Rule)
		}
		if v.Pods == 0 {
			continue
		}
		fmt.Fprintf(b, "  because  %s (queue %s, priority %d) %s of its pods: %s\n",
			fullName(v.Gang.Namespace, v.Gang.Name), v.Queue, v.Priority, strings.Join(what, " and "), v.Rule)
	}
	for i := range c.Shares {
		drawChange(b, &c.Shares[i])
	}
	fmt.Fprintf(b, "  gpus     %s evicted, %s moved, %s placed", gpus(c.Evicted), gpus(c.Moved), gpus(c.Placed))
	if c.Partial {
		b.WriteString(" (searched: partial)")
	}
	b.WriteString("\n")
}

// drawChange prints what became of a queue, in the dimensions that changed.
func drawChange(b *strings.Builder, c *engine.ShareChange) {
	dims := cluster.BaseDims()
	for d := range max(len(c.Before), len(c.After)) {
		if d == cluster.Slots || c.Before.At(d) == c.After.At(d) {
			continue
		}
		name := "dimension " + strconv.Itoa(d)
		if d < dims.Len() {
			name = dims.Name(d)
		}
		amount := func(x int64) string {
			if x == cluster.Unlimited {
				return "-"
			}
			return dims.FormatOne(d, x)
		}
		fmt.Fprintf(b, "  share    %s %s %s -> %s (quota %s, fair %s)\n", c.Queue, name, amount(c.Before.At(d)), amount(c.After.At(d)), amount(c.Quota.At(d)), amount(c.FairShare.At(d)))
	}
}

// drawTried prints what the actions that disturb others had to say to a gang.
func drawTried(b *strings.Builder, attempts []recorder.Attempt) {
	for i := range attempts {
		a := &attempts[i]
		fmt.Fprintf(b, "  %s: %s, %s\n", a.Action, a.Verdict.Reason, a.Verdict)
		for _, bar := range a.Barred {
			fmt.Fprintf(b, "    %d not touched: %s, %s (%s)\n", bar.Gangs, bar.Verdict.Reason, bar.Verdict, strings.Join(bar.Named, ", "))
		}
	}
}

// stretch returns how many decisions from the first on are equal but for the pods' numbers, which rise or, for victims,
// fall one by one, and which of them has the smallest number.
func stretch(in []engine.Intent) (first, n int) {
	n = 1
	for n < len(in) && follows(in[n-1], in[n]) {
		n++
	}
	if n > 1 {
		return 0, n
	}
	for n < len(in) && in[0].Verb == ledger.Evict && follows(in[n], in[n-1]) {
		n++
	}
	return n - 1, n
}

// follows says whether o decides the same for the next pod of the same series.
func follows(in, o engine.Intent) bool {
	base, i := series(in.Pod)
	next, k := series(o.Pod)
	return in.Verb == o.Verb && in.Node == o.Node && in.To == o.To && in.Budget == o.Budget && in.Namespace == o.Namespace && slices.Equal(in.Groups, o.Groups) && slices.Equal(in.ToGroups, o.ToGroups) &&
		slices.Equal(zoneNames(in.Zones), zoneNames(o.Zones)) && i >= 0 && base == next && k == i+1
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

// drawReason prints a gang's outcome: its reason key, the sentence, what nodes said, and, if tried is asked for, what
// came of attempts to make room.
func drawReason(name string, t *recorder.GangTrace, tried bool) string {
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
	if tried {
		drawTried(&b, t.Tried)
	}
	return b.String()
}

// show prints a part of the state: show queues [gpu|cpu|memory], show nodes, show gangs, show gang NAME [by=LEVEL], show domains [TOPOLOGY],
// show problems, show facts, show holds, show decisions.
func (in *interpreter) show(s *statement) error {
	what := s.name()
	switch what {
	case "queues":
		return in.showQueues(s)
	case "nodes":
		return in.showNodes()
	case "gangs":
		return in.showGangs("")
	case "gang":
		if len(s.words) != 2 {
			return s.errorf("want show gang NAME [by=LEVEL]")
		}
		if level := s.text("by", ""); level != "" {
			return in.showSpread(s.words[1], level)
		}
		return in.showGangs(s.words[1])
	case "zones":
		return in.showZones()
	case "domains":
		return in.showDomains(s)
	case "decisions":
		b, ok := in.backend.(interface{ Decisions() []engine.Bundle })
		if !ok {
			return s.errorf("this backend keeps no decisions: the scenario needs the engine")
		}
		for _, bundle := range b.Decisions() {
			var text strings.Builder
			fmt.Fprintf(&text, "%s for %s", bundle.Eviction.Cause, fullName(bundle.Gang.Namespace, bundle.Gang.Name))
			if bundle.Eviction.Queue != "" {
				text.WriteString(" of " + bundle.Eviction.Queue)
			}
			text.WriteString("\n")
			drawEviction(&text, bundle.Eviction)
			in.out.WriteString(text.String())
		}
		return nil
	case "holds":
		return in.showHolds(s)
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

// showHolds prints the room that is promised: for whom, how many pods, and where.
func (in *interpreter) showHolds(s *statement) error {
	b, ok := in.backend.(interface {
		Holds() ([]cluster.Hold, map[string]string)
	})
	if !ok {
		return s.errorf("this backend does not show what it holds")
	}
	holds, names := b.Holds()
	var lines []string
	for i := range holds {
		h := &holds[i]
		line := fullName(h.Gang.Namespace, h.Gang.Name)
		switch {
		case h.Moved != "":
			line += ", for a pod that was moved"
		case names[h.Pod] != "":
			line = podRange(names[h.Pod], 1)
		}
		lines = append(lines, line+" on "+h.Node)
	}
	slices.Sort(lines)
	for _, l := range lines {
		in.printf("%s\n", l)
	}
	if len(lines) == 0 {
		in.printf("nothing\n")
	}
	return nil
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

// showNodes prints GPUs held and by whom, and the devices that are shared.
func (in *interpreter) showNodes() error {
	nodes, pods, err := in.world()
	if err != nil {
		return err
	}
	for _, n := range nodes {
		here := podsOn(pods, n.Name)
		names := make([]string, len(here))
		for i, p := range here {
			names[i] = fullName(p.Namespace, p.Name)
		}
		in.printf("%s  %s/%s gpu", n.Name, cluster.BaseDims().FormatOne(cluster.GPU, in.held(here)), cluster.BaseDims().FormatOne(cluster.GPU, gpusOf(core.Amounts(n.Status.Allocatable))))
		if problem := core.NodeProblem(n); problem != "" {
			in.printf("  %s", problem)
		}
		in.printf("%s\n", ranges(names))
		in.showDevices(in.shared(here))
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
		group := groupOf(p)
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
