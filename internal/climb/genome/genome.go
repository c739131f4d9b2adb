package genome

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
)

// Genome is a cluster with gangs that run and gangs that wait.
type Genome struct {
	Nodes  []Nodes  `json:"nodes"`
	Queues []Queues `json:"queues"`
	Gangs  []Gangs  `json:"gangs"`
	// MinRuntime is the profile's minimum runtime against reclaim and against preempt, in seconds; 0 for none.
	MinRuntime int `json:"minRuntime,omitempty"`
	// Spread lets the profile spread pods over nodes and GPUs, without consolidation, and not pack them.
	Spread int `json:"spread,omitempty"`
}

// Nodes are nodes of one kind.
type Nodes struct {
	Count int `json:"count"`
	GPUs  int `json:"gpus"` // of each
	CPUs  int `json:"cpus"` // cores of each
	// Rack is how many nodes are in a rack, Block how many racks in a block, Zones in how many zones the nodes are, in turn; 0 for
	// nodes that are in none.
	Rack  int `json:"rack,omitempty"`
	Block int `json:"block,omitempty"`
	Zones int `json:"zones,omitempty"`
	// Own gives each node a label of its own, Tainted a taint of its own.
	Own     int `json:"own,omitempty"`
	Tainted int `json:"tainted,omitempty"`
}

// Queues are queues of one kind.
type Queues struct {
	Count int `json:"count"`
	// Below is the number of the group, among those before this one, whose queues are the parents, in turn; 0 for none, 1 for the first.
	Below int `json:"below,omitempty"`
	// Quota is in GPUs, -1 for unlimited. Quotas is how many amounts there are, each larger by a GPU than the one before.
	Quota  int `json:"quota"`
	Quotas int `json:"quotas"`
	// Limit is in GPUs, -1 for none.
	Limit      int `json:"limit"`
	Weight     int `json:"weight"` // over quota
	Priority   int `json:"priority"`
	Priorities int `json:"priorities"` // how many, each larger by 1 than the one before
	// MinRuntime is the minimum runtime against reclaim and against preempt, in seconds; 0 for what the queues above say.
	MinRuntime int `json:"minRuntime,omitempty"`
}

// Gangs are gangs of one kind.
type Gangs struct {
	Count int `json:"count"`
	// Running says that the gangs run, as far as there is room; PerNode is on how many pods of the group a node ends, 0 for as many as fit.
	Running int `json:"running,omitempty"`
	PerNode int `json:"perNode,omitempty"`
	// Mixed is the seed by which the gangs are shuffled before they get their queues, shapes, priorities and labels in turn; 0 for in order.
	Mixed int `json:"mixed,omitempty"`
	// Queue is the number of the group of queues, of those without children, that the gangs are in, in turn.
	Queue int `json:"queue,omitempty"`
	Pods  int `json:"pods"`          // of each gang
	Min   int `json:"min,omitempty"` // how many it needs; 0 for all
	Sets  int `json:"sets"`          // of each gang, of equal size
	// MilliGPU is what a pod takes; below 1,000 it shares a GPU.
	MilliGPU int `json:"milliGPU"`
	// MilliCPU is what a pod of the first shape takes; each further one takes one more.
	MilliCPU   int `json:"milliCPU"`
	Shapes     int `json:"shapes"`
	Priority   int `json:"priority"`
	Priorities int `json:"priorities"` // how many, each larger by 1 than the one before
	// Fixed is each how manieth gang is not preemptible; 0 for none of them.
	Fixed int `json:"fixed,omitempty"`
	// Age is of the youngest, in seconds; each gang is a second older than the one before. Started is how long ago it started, of a
	// running one, in seconds; 0 for unknown. Delay is how long others may not be disturbed for it, in seconds.
	Age     int `json:"age,omitempty"`
	Started int `json:"started,omitempty"`
	Delay   int `json:"delay,omitempty"`
	// Near is the level of the topology that a gang's pods must have in common, Prefer the one that they should, SetNear the one that
	// those of each of its sets must; "" for none.
	Near    string `json:"near,omitempty"`
	Prefer  string `json:"prefer,omitempty"`
	SetNear string `json:"setNear,omitempty"`
	// Labels is how many labels the gangs have, in turn. Says is what a pod says of other pods, Of of which ones, and Where in which domain.
	Labels int    `json:"labels"`
	Says   string `json:"says,omitempty"`
	Of     string `json:"of,omitempty"`
	Where  string `json:"where,omitempty"`
	// Selects says that each gang names the label of a node of its own, or of none that exists; Tolerates, that it tolerates the taint of
	// a node of its own, or those of all.
	Selects   string `json:"selects,omitempty"`
	Tolerates string `json:"tolerates,omitempty"`
	// Budgets is for how many of the labels there is a PodDisruptionBudget that allows nothing.
	Budgets int `json:"budgets,omitempty"`
}

// The levels of the topology, and label keys of nodes.
const (
	Rack  = "rack"
	Block = "block"
	Host  = "kubernetes.io/hostname"
	Zone  = "zone"
	Own   = "own"
)

// What pods say of others.
const (
	Requires    = "near"        // pod affinity that is required
	Prefers     = "near-softly" // pod affinity that is preferred
	Avoids      = "apart"       // pod anti-affinity that is required
	AvoidsSoft  = "apart-softly"
	SpreadsHard = "spread" // a topology spread constraint, DoNotSchedule
)

// Of which others; of those of the same label, "", if nothing is said.
const (
	OfAll    = "all"
	OfNobody = "nobody"
)

// Which nodes.
const (
	OneNode  = "one"
	NoNode   = "none"
	AllNodes = "all"
)

// gene is one number, or one word, of a genome.
type gene struct {
	name               string
	number             *int
	least, most, plain int
	word               *string // instead of number; plain is ""
	of                 []string
}

func number(name string, at *int, least, most, plain int) gene {
	return gene{name: name, number: at, least: least, most: most, plain: plain}
}

func word(name string, at *string, of ...string) gene { return gene{name: name, word: at, of: of} }

func (n *Nodes) genes() []gene {
	return []gene{
		number("count", &n.Count, 1, 10_000, 1),
		number("gpus", &n.GPUs, 0, 16, 8),
		number("cpus", &n.CPUs, 1, 512, 128),
		number("rack", &n.Rack, 0, 1000, 0),
		number("block", &n.Block, 0, 100, 0),
		number("zones", &n.Zones, 0, 100, 0),
		number("own", &n.Own, 0, 1, 0),
		number("tainted", &n.Tainted, 0, 1, 0),
	}
}

func (q *Queues) genes() []gene {
	return []gene{
		number("count", &q.Count, 1, 100_000, 1),
		number("below", &q.Below, 0, 10, 0),
		number("quota", &q.Quota, -1, 10_000, 0),
		number("quotas", &q.Quotas, 1, 10_000, 1),
		number("limit", &q.Limit, -1, 10_000, -1),
		number("weight", &q.Weight, 0, 100, 1),
		number("priority", &q.Priority, 0, 1000, 100),
		number("priorities", &q.Priorities, 1, 1000, 1),
		number("minRuntime", &q.MinRuntime, 0, 3600, 0),
	}
}

func (g *Gangs) genes() []gene {
	return []gene{
		number("count", &g.Count, 1, 100_000, 1),
		number("running", &g.Running, 0, 1, 0),
		number("perNode", &g.PerNode, 0, 16, 0),
		number("mixed", &g.Mixed, 0, 9, 0),
		number("queue", &g.Queue, 0, 10, 0),
		number("pods", &g.Pods, 1, 2000, 1),
		number("min", &g.Min, 0, 2000, 0),
		number("sets", &g.Sets, 1, 100, 1),
		number("milliGPU", &g.MilliGPU, 0, 16_000, 1000),
		number("milliCPU", &g.MilliCPU, 0, 512_000, 1000),
		number("shapes", &g.Shapes, 1, 100_000, 1),
		number("priority", &g.Priority, 0, 1000, 50),
		number("priorities", &g.Priorities, 1, 1000, 1),
		number("fixed", &g.Fixed, 0, 1000, 0),
		number("age", &g.Age, 0, 100_000, 0),
		number("started", &g.Started, 0, 10_000, 0),
		number("delay", &g.Delay, 0, 3600, 0),
		word("near", &g.Near, Rack, Block),
		word("prefer", &g.Prefer, Rack, Block),
		word("setNear", &g.SetNear, Rack, Block),
		number("labels", &g.Labels, 1, 100_000, 1),
		word("says", &g.Says, Requires, Prefers, Avoids, AvoidsSoft, SpreadsHard),
		word("of", &g.Of, OfAll, OfNobody),
		word("where", &g.Where, Zone, Rack),
		word("selects", &g.Selects, OneNode, NoNode),
		word("tolerates", &g.Tolerates, OneNode, AllNodes),
		number("budgets", &g.Budgets, 0, 1000, 0),
	}
}

// group is one group of a genome.
type group struct {
	kind  string // "nodes", "queues", "gangs", "profile"
	index int
	genes []gene
}

// groups are all groups, the profile last. They point into the genome.
func (g *Genome) groups() []group {
	var out []group
	for i := range g.Nodes {
		out = append(out, group{"nodes", i, g.Nodes[i].genes()})
	}
	for i := range g.Queues {
		out = append(out, group{"queues", i, g.Queues[i].genes()})
	}
	for i := range g.Gangs {
		out = append(out, group{"gangs", i, g.Gangs[i].genes()})
	}
	return append(out, group{"profile", 0, []gene{number("minRuntime", &g.MinRuntime, 0, 3600, 0), number("spread", &g.Spread, 0, 1, 0)}})
}

// Clone returns a copy that shares nothing.
func (g *Genome) Clone() Genome {
	out := *g
	out.Nodes, out.Queues, out.Gangs = slices.Clone(g.Nodes), slices.Clone(g.Queues), slices.Clone(g.Gangs)
	return out
}

// Parse reads a genome. What is wrong with it, the error says: which group, which field, and the rule.
func Parse(text []byte) (Genome, error) {
	var g Genome
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&g); err != nil {
		return g, fmt.Errorf("genome: %w", err)
	}
	return g, g.Check()
}

// Check says what is wrong with a genome: which group, which field, and the rule.
func (g *Genome) Check() error {
	for _, kind := range []struct {
		name string
		n    int
	}{{"nodes", len(g.Nodes)}, {"queues", len(g.Queues)}, {"gangs", len(g.Gangs)}} {
		if kind.n < 1 || kind.n > MostGroups {
			return fmt.Errorf("genome: %s has %d groups; it must have 1 to %d", kind.name, kind.n, MostGroups)
		}
	}
	for _, p := range g.groups() {
		for _, x := range p.genes {
			switch {
			case x.word != nil && *x.word != "" && !slices.Contains(x.of, *x.word):
				return fmt.Errorf("genome: %s[%d].%s is %q; it must be empty or one of %q", p.kind, p.index, x.name, *x.word, x.of)
			case x.number != nil && (*x.number < x.least || *x.number > x.most):
				return fmt.Errorf("genome: %s[%d].%s is %d; it must be %d to %d", p.kind, p.index, x.name, *x.number, x.least, x.most)
			}
		}
	}
	for i := range g.Queues {
		if g.Queues[i].Below > i {
			return fmt.Errorf("genome: queues[%d].below is %d; it must be the number of a group before it, the first of which is 1", i, g.Queues[i].Below)
		}
	}
	return nil
}

// MostGroups is how many groups of a kind a genome may have.
const MostGroups = 8

// Limits are what a genome may come to: objects in all, of each kind at least as many as there may be groups of it.
type Limits struct{ Nodes, Queues, Gangs, Pods int }

// Fit makes a genome valid, and cuts the counts of its groups, the last first, until it is within limits.
func (g *Genome) Fit(l Limits) {
	for i := range g.Queues {
		g.Queues[i].Below = min(g.Queues[i].Below, i)
	}
	for _, p := range g.groups() {
		for _, x := range p.genes {
			if x.number != nil {
				*x.number = min(max(*x.number, x.least), x.most)
			}
		}
	}
	cut := func(room, n, after int) int { return max(1, min(n, room-after)) } // each group after it needs one
	nodes, queues, gangs, pods := l.Nodes, l.Queues, l.Gangs, l.Pods
	for i := range g.Nodes {
		x := &g.Nodes[i]
		x.Count = cut(nodes, x.Count, len(g.Nodes)-1-i)
		nodes -= x.Count
	}
	for i := range g.Queues {
		x := &g.Queues[i]
		x.Count = cut(queues, x.Count, len(g.Queues)-1-i)
		queues -= x.Count
	}
	for i := range g.Gangs {
		x, after := &g.Gangs[i], len(g.Gangs)-1-i
		x.Pods = cut(pods, x.Pods, after)
		x.Sets = min(x.Sets, x.Pods)
		x.Min = min(x.Min, x.Pods)
		x.Count = min(cut(gangs, x.Count, after), max(1, (pods-after)/x.Pods))
		gangs, pods = gangs-x.Count, pods-x.Count*x.Pods
	}
}

// Within says whether a genome is within limits: whether Fit would leave it alone.
func (g *Genome) Within(l Limits) bool {
	c := g.Clone()
	c.Fit(l)
	return equal(&c, g)
}

// Size grows with the number of objects and, so that what does not matter goes, with each gene that is not plain.
func (g *Genome) Size() int {
	const surprise = 20 // what a gene that is not plain weighs, in objects
	out := 0
	for i := range g.Nodes {
		out += g.Nodes[i].Count
	}
	for i := range g.Queues {
		out += g.Queues[i].Count
	}
	for i := range g.Gangs {
		out += g.Gangs[i].Count * (1 + g.Gangs[i].Pods)
	}
	return out + surprise*len(g.Features())
}

// Features names what is not plain in a genome, in a fixed order, each once: "gangs.shapes" and the like. Counts are none.
func (g *Genome) Features() []string {
	var out []string
	for _, p := range g.groups() {
		for _, x := range p.genes {
			name := p.kind + "." + x.name
			switch {
			case x.word != nil && *x.word != "":
				out = append(out, name+"="+*x.word)
			case x.number != nil && x.name != "count" && *x.number != x.plain:
				out = append(out, name)
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
