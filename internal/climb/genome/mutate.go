package genome

import (
	"math/rand/v2"
	"slices"
)

// Palette says which genes of a climb may be other than plain, by [Genome.Features]' names without their values. A climb that may change
// everything soon finds what every climb finds.
type Palette map[string]bool

// NewPalette draws which genes may change; counts and sizes always may.
func NewPalette(r *rand.Rand) Palette {
	p := Palette{}
	x := Genome{Nodes: make([]Nodes, 1), Queues: make([]Queues, 1), Gangs: make([]Gangs, 1)} // for the names
	share := []float64{0.2, 0.4, 0.7}[r.IntN(3)]
	for _, g := range x.groups() {
		for _, gene := range g.genes {
			name := g.kind + "." + gene.name
			p[name] = r.Float64() < share
		}
	}
	for _, always := range []string{
		"nodes.count", "queues.count", "queues.quota", "gangs.count", "gangs.running", "gangs.queue", "gangs.pods", "gangs.milliGPU", "gangs.shapes",
	} {
		p[always] = true
	}
	return p
}

// Random draws a genome of a few groups.
func Random(r *rand.Rand, p Palette, l Limits) Genome {
	var g Genome
	for range 1 + r.IntN(2) {
		g.Nodes = append(g.Nodes, Nodes{})
	}
	for range 1 + r.IntN(4) {
		g.Queues = append(g.Queues, Queues{})
	}
	for range 2 + r.IntN(3) {
		g.Gangs = append(g.Gangs, Gangs{})
	}
	for _, x := range g.groups() {
		for _, gene := range x.genes {
			gene.setPlain()
			if p[x.kind+"."+gene.name] && (gene.name == "count" || r.IntN(2) == 0) {
				gene.draw(r, limit(l, x.kind))
			}
		}
	}
	g.Gangs[0].Running = 1
	g.Fit(l)
	return g
}

func limit(l Limits, kind string) int {
	switch kind {
	case "nodes":
		return l.Nodes
	case "queues":
		return l.Queues
	case "gangs":
		return l.Gangs
	}
	return 0
}

func (x *gene) setPlain() {
	if x.word != nil {
		*x.word = ""
		return
	}
	*x.number = x.plain
}

func (x *gene) isPlain() bool {
	if x.word != nil {
		return *x.word == ""
	}
	return *x.number == x.plain
}

// draw gives a gene any value, small ones as often as large ones; most is the largest count.
func (x *gene) draw(r *rand.Rand, most int) {
	if x.word != nil {
		*x.word = append([]string{""}, x.of...)[r.IntN(1+len(x.of))]
		return
	}
	high := x.most
	if x.name == "count" {
		high = min(high, most)
	}
	if r.IntN(10) == 0 {
		*x.number = x.least
		return
	}
	*x.number = between(r, max(1, x.least), high)
}

// between draws a number, each order of magnitude as often as another.
func between(r *rand.Rand, low, high int) int {
	steps := 0
	for n := low; n < high; n *= 2 {
		steps++
	}
	n := low
	for range r.IntN(steps + 1) {
		n *= 2
	}
	return min(high, n+r.IntN(n))
}

// Mutate returns a genome that differs from g in a few places. A group may come from another genome.
func Mutate(r *rand.Rand, g, other *Genome, p Palette, l Limits) Genome {
	for {
		out := g.Clone()
		for range 1 + r.IntN(3) {
			out.mutate(r, other, p, l)
		}
		out.Fit(l)
		if out.Check() == nil && !equal(&out, g) {
			return out
		}
	}
}

func equal(a, b *Genome) bool {
	return slices.Equal(a.Nodes, b.Nodes) && slices.Equal(a.Queues, b.Queues) && slices.Equal(a.Gangs, b.Gangs) && a.MinRuntime == b.MinRuntime && a.Spread == b.Spread
}

func (g *Genome) mutate(r *rand.Rand, other *Genome, p Palette, l Limits) {
	switch r.IntN(16) {
	case 0: // grow
		g.scale(func(n int) int { return n + n/2 + 1 })
	case 1: // shrink
		g.scale(func(n int) int { return max(1, n*2/3) })
	case 2:
		g.Nodes = regroup(r, g.Nodes, other.Nodes)
	case 3:
		g.Queues = regroup(r, g.Queues, other.Queues)
	case 4, 5:
		g.Gangs = regroup(r, g.Gangs, other.Gangs)
	case 6: // no two alike, or all
		x := &g.Gangs[r.IntN(len(g.Gangs))]
		k := r.IntN(3)
		if !p[[]string{"gangs.shapes", "gangs.labels", "gangs.priorities"}[k]] {
			return
		}
		at := []*int{&x.Shapes, &x.Labels, &x.Priorities}[k]
		if *at = x.Count; r.IntN(4) == 0 {
			*at = 1
		}
	default:
		all := g.groups()
		for range 20 { // until one may change
			x := all[r.IntN(len(all))]
			gene := x.genes[r.IntN(len(x.genes))]
			if !p[x.kind+"."+gene.name] {
				continue
			}
			gene.change(r, limit(l, x.kind))
			return
		}
	}
}

func (x *gene) change(r *rand.Rand, most int) {
	if x.word != nil {
		x.draw(r, most)
		return
	}
	n := *x.number
	switch r.IntN(8) {
	case 0:
		n *= 2
	case 1:
		n /= 2
	case 2:
		n += n/4 + 1
	case 3:
		n -= n/5 + 1
	case 4:
		n++
	case 5:
		n--
	default:
		x.draw(r, most)
		return
	}
	*x.number = min(max(n, x.least), x.most)
}

func (g *Genome) scale(by func(int) int) {
	for i := range g.Nodes {
		g.Nodes[i].Count = by(g.Nodes[i].Count)
	}
	for i := range g.Queues {
		g.Queues[i].Count = by(g.Queues[i].Count)
	}
	for i := range g.Gangs {
		g.Gangs[i].Count = by(g.Gangs[i].Count)
	}
}

// regroup doubles a group, drops one, lets two change places, or takes one from elsewhere.
func regroup[T any](r *rand.Rand, all, other []T) []T {
	i := r.IntN(len(all))
	switch k := r.IntN(4); {
	case k == 0 && len(all) < MostGroups:
		return slices.Insert(slices.Clone(all), r.IntN(len(all)+1), all[i])
	case k == 1 && len(all) > 1:
		return slices.Delete(slices.Clone(all), i, i+1)
	case k == 2:
		j := r.IntN(len(all))
		all[i], all[j] = all[j], all[i]
	case k == 3 && len(all) < MostGroups && len(other) > 0:
		return slices.Insert(slices.Clone(all), r.IntN(len(all)+1), other[r.IntN(len(other))])
	}
	return all
}

// Smaller returns genomes that are g with something left out, made plain, or made smaller, those that leave out most first. Each is valid,
// and of a smaller Size.
func (g *Genome) Smaller() []Genome {
	var out []Genome
	add := func(x Genome) {
		x.Fit(Limits{1 << 30, 1 << 30, 1 << 30, 1 << 30})
		if x.Check() == nil && x.Size() < g.Size() {
			out = append(out, x)
		}
	}
	for i := range g.Gangs {
		if x := g.Clone(); len(g.Gangs) > 1 {
			x.Gangs = slices.Delete(x.Gangs, i, i+1)
			add(x)
		}
	}
	for i := range g.Queues {
		if x := g.Clone(); len(g.Queues) > 1 {
			x.Queues = slices.Delete(x.Queues, i, i+1)
			for k := range x.Queues {
				if x.Queues[k].Below > i {
					x.Queues[k].Below--
				}
			}
			add(x)
		}
	}
	for i := range g.Nodes {
		if x := g.Clone(); len(g.Nodes) > 1 {
			x.Nodes = slices.Delete(x.Nodes, i, i+1)
			add(x)
		}
	}
	each := func(change func(name string, x *gene) bool) {
		for i, p := range g.groups() {
			for k := range p.genes {
				c := g.Clone()
				if x := &c.groups()[i].genes[k]; change(x.name, x) {
					add(c)
				}
			}
		}
	}
	each(func(name string, x *gene) bool {
		if x.isPlain() || name == "count" {
			return false
		}
		x.setPlain()
		return true
	})
	for _, by := range []func(int) int{func(n int) int { return n / 8 }, func(n int) int { return n / 2 }, func(n int) int { return n * 4 / 5 }} {
		each(func(name string, x *gene) bool {
			if x.number == nil || name != "count" && name != "pods" {
				return false
			}
			n := max(x.least, by(*x.number))
			if n == *x.number {
				return false
			}
			*x.number = n
			return true
		})
	}
	return out
}
