package solver_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/engine/ledger"
	"github.com/muster-scheduler/muster/internal/engine/policy"
)

// queue lists who gives, in policy order, one unit after another, those left out whom the law protects; and how many of
// them it takes until the gang fits, -1 if all are too few.
func (q *question) queue(s *engine.Session) (line []int, need int) {
	st := s.Ledger.Begin()
	defer st.Discard()
	taken, out := make(choice, len(q.others)), make([]bool, len(q.others))
	for i, v := range q.others {
		out[i] = !q.mayTouch(v)
	}
	need = -1
	asked := 0 // how many had been taken when those who were refused were last asked again
	for {
		if need < 0 && q.suffices(taken) {
			need = len(line)
		}
		i := q.first(s, taken, out)
		if i < 0 && len(line) > asked {
			asked = len(line)
			for i, v := range q.others {
				out[i] = !q.mayTouch(v)
			}
			continue
		}
		if i < 0 {
			return line, need
		}
		v := q.others[i]
		u := v.units[taken[i]]
		if !q.mayTake(q.lost(taken), v, u) {
			out[i] = true
			continue
		}
		line, taken[i] = append(line, i), taken[i]+1
		st.EvictUnit(&ledger.VictimUnit{Gang: v.state, Pods: u.pods})
	}
}

// first returns who gives next: of each leaf who is served last, of siblings whose queue gives first.
func (q *question) first(s *engine.Session, taken choice, out []bool) int {
	best := map[string]int{} // by queue: who stands for it
	ledgers := map[string]*ledger.QueueLedger{}
	deepest := 0
	for i, v := range q.others {
		if out[i] || taken[i] == len(v.units) {
			continue
		}
		k, known := best[v.queue]
		if !known || s.Rules.CompareGangs(v.state, q.others[k].state) > 0 {
			best[v.queue] = i
		}
		for l := v.state.Leaf; l != nil; l = l.Parent {
			ledgers[l.Name] = l
			deepest = max(deepest, l.Depth)
		}
	}
	size := func(i int) (r cluster.Resources) {
		for _, p := range q.others[i].units[taken[i]].pods {
			r.Add(p.Class.Requests)
		}
		return r
	}
	top := -1
	for depth := deepest; depth >= 0; depth-- {
		champion := map[string]*ledger.QueueLedger{} // by parent
		for name, l := range ledgers {               // order: the best does not depend on it
			i, known := best[name]
			if l.Depth != depth || !known {
				continue
			}
			o := champion[l.Queue.Parent]
			if o == nil || s.Rules.CompareVictimQueues(l, o, size(i), size(best[o.Name])) < 0 {
				champion[l.Queue.Parent] = l
			}
		}
		for parent, l := range champion { // order: each parent on its own
			if best[parent] = best[l.Name]; depth == 0 {
				top = best[l.Name]
			}
		}
	}
	return top
}

// upTo is the first n units of the line as a choice.
func (a *answer) upTo(n int) choice {
	c := make(choice, len(a.others))
	for _, i := range a.line[:n] {
		c[i]++
	}
	return c
}

// closed says whether the pods that go leave no gang with a part that cannot run.
func closed(q *question, c []loss) bool {
	for _, v := range q.others {
		rest := v.active
		for _, l := range c {
			if l.v == v {
				rest -= len(l.u.pods)
			}
		}
		if rest != v.active && rest != 0 && rest < v.least {
			return false
		}
	}
	return true
}

// units lists those of a choice.
func (q *question) units(c choice) []loss {
	var out []loss
	for i, n := range c {
		for _, u := range q.others[i].units[:n] {
			out = append(out, loss{q.others[i], u})
		}
	}
	return out
}

func (q *question) seconds(ls []loss) int64 {
	sum := int64(0)
	for _, l := range ls {
		for _, p := range l.u.pods {
			sum += p.Class.Requests.At(cluster.GPU) / 1000 * (int64(q.now.Sub(l.v.since)) / 1e9)
		}
	}
	return sum
}

// works says whether the gang may start when some are killed and some only move.
func (a *answer) works(killed, moved []loss) bool {
	var gone []*cluster.Pod
	pods := slices.Clone(a.wants)
	lost := given{}
	for _, l := range killed {
		gone = append(gone, l.u.pods...)
		lost.add(a.question, l.v, l.u)
	}
	for _, l := range moved {
		for _, p := range l.u.pods {
			if !p.Recreated {
				return false
			}
		}
		gone, pods = append(gone, l.u.pods...), append(pods, l.u.pods...)
	}
	return closed(a.question, killed) && a.admitted(lost) && a.readmitted(moved, lost) && a.someOrder(killed, given{}) && a.fits(pods, gone)
}

// readmitted says whether the queues of those that move are within their limits in the end: or the pods that are made anew
// could not start.
func (a *answer) readmitted(moved []loss, lost given) bool {
	mine := a.ways(a.g.queue)
	for _, l := range moved {
		for _, p := range a.ways(l.v.queue) {
			for d := range a.request {
				held := a.held(p, lost, d)
				if slices.Contains(mine, p) {
					held += a.request.At(d)
				}
				if b := limit(p, d); d != cluster.Slots && b != cluster.Unlimited && held > b {
					return false
				}
			}
		}
	}
	return true
}

// split sorts the units of the decision: killed, and only moved.
func (a *answer) split() (killed, moved []loss) {
	to := map[string]bool{}
	evicted := map[string]bool{}
	for _, in := range a.bundle.Intents {
		if in.Verb == ledger.Evict {
			evicted[in.UID] = true
			to[in.UID] = in.To != ""
		}
	}
	for _, v := range a.others {
		goes := slices.DeleteFunc(slices.Clone(v.body), func(p *cluster.Pod) bool { return !evicted[p.UID] })
		units := v.units
		if v.active-len(goes) >= v.least { // any of its pods above the minimum, one by one
			units = nil
			for _, p := range goes {
				units = append(units, unit{pods: []*cluster.Pod{p}})
			}
		}
		for _, u := range units {
			var here []*cluster.Pod
			for _, p := range u.pods {
				if evicted[p.UID] {
					here = append(here, p)
				}
			}
			switch {
			case len(here) == 0:
			case to[here[0].UID]:
				moved = append(moved, loss{v, unit{pods: here, core: u.core}})
			default:
				killed = append(killed, loss{v, unit{pods: here, core: u.core}})
			}
		}
	}
	return killed, moved
}

// reducible returns a part of the killed that need not have been, nil if there is none.
func (a *answer) reducible() []loss {
	killed, moved := a.split()
	for bits := range 1<<len(killed) - 1 {
		var fewer []loss
		for i, l := range killed {
			if bits>>i&1 == 1 {
				fewer = append(fewer, l)
			}
		}
		if a.works(fewer, moved) {
			return append(fewer, loss{}) // not nil
		}
	}
	return nil
}

// least returns the smallest harm of all ways that take from the first units of the line only, with the killed and the
// moved chosen freely, and of all legal ways without moves.
func (a *answer) least() (prefix, all int64) {
	prefix, all = -1, -1
	for _, c := range a.legal {
		h := a.seconds(a.of(c))
		if all < 0 || h < all {
			all = h
		}
	}
	if a.need < 0 {
		return prefix, all
	}
	units := a.units(a.upTo(a.need))
	for bits := range 1 << len(units) { // who goes
		var gone []loss
		for i, l := range units {
			if bits>>i&1 == 1 {
				gone = append(gone, l)
			}
		}
		for kill := range 1 << len(gone) { // who of them for good
			var killed, moved []loss
			for i, l := range gone {
				if kill>>i&1 == 1 {
					killed = append(killed, l)
				} else {
					moved = append(moved, l)
				}
			}
			if h := a.seconds(killed); (prefix < 0 || h < prefix) && a.works(killed, moved) {
				prefix = h
			}
		}
	}
	return prefix, all
}

// TestHarm: nobody is killed who need not be, and the GPU-seconds that are lost are near the least that could be.
func TestHarm(t *testing.T) {
	t.Parallel()
	n, decided, reducible := cases(t, 1500), 0, 0
	var near, far []float64
	free := 0
	for i := range n {
		w := townOf(i)
		for _, cause := range []policy.EvictionCause{policy.Reclaim, policy.Preempt} {
			for _, a := range try(&w, cause) {
				if !a.ok {
					continue
				}
				decided++
				if a.reducible() != nil {
					if reducible++; reducible <= 3 {
						small := shrink(w, func(w *exampleCluster) bool {
							return slices.ContainsFunc(try(w, cause), func(a *answer) bool { return a.ok && a.reducible() != nil })
						})
						t.Errorf("town %d: fewer would do\n%s", i, tell(&small, cause))
					}
				}
				killed, _ := a.split()
				did := float64(a.seconds(killed))
				prefix, all := a.least()
				ratio := func(best int64) (float64, bool) {
					switch {
					case best > 0:
						return did / float64(best), true
					case best == 0 && did == 0:
						return 1, true
					case best == 0:
						free++
						return 1e9, true
					}
					return 0, false
				}
				if x, ok := ratio(prefix); ok {
					near = append(near, x)
				}
				if x, ok := ratio(all); ok {
					far = append(far, x)
				}
			}
		}
	}
	t.Logf("%d towns, %d decisions, %d reducible; GPU-seconds against the least in the same order: %s; against all legal sets without moves: %s (%d against nothing)",
		n, decided, reducible, quantiles(near), quantiles(far), free)
	if m := quantile(near, 50); m > 1.1 {
		t.Errorf("the median is %.3f times the least", m)
	}
}

func quantile(xs []float64, percent int) float64 {
	if len(xs) == 0 {
		return 0
	}
	slices.Sort(xs)
	return xs[min(len(xs)-1, len(xs)*percent/100)]
}

func quantiles(xs []float64) string {
	sum := 0
	for _, x := range xs {
		if x <= 1 {
			sum++
		}
	}
	return fmt.Sprintf("median %.3f, p90 %.3f, p99 %.3f, %d of %d at the least or below", quantile(xs, 50), quantile(xs, 90), quantile(xs, 99), sum, len(xs))
}

// TestPrefix: the units that the search takes are the first of the line, as short a beginning of it as suffices; and whoever gave
// has its place in the line anew.
func TestPrefix(t *testing.T) {
	t.Parallel()
	type tally struct{ asked, same, longer, missed int }
	n, kinds := cases(t, 1500), map[string]*tally{"alike": {}, "mixed": {}, "filtered": {}}
	towns := []int{22475} // a gang that gave a part, beside one that gave all
	for i := range n {
		towns = append(towns, i)
	}
	for _, i := range towns {
		w := townOf(i)
		for _, cause := range []policy.EvictionCause{policy.Reclaim, policy.Preempt} {
			for _, a := range try(&w, cause) {
				if !a.sorted {
					t.Errorf("town %d: after the answer of %s those who give next are not in their order\n%s", i, a.g.name, tell(&w, cause))
					return
				}
				if a.kind == "" || a.need < 0 && !a.prefix {
					continue
				}
				k := kinds[a.kind]
				k.asked++
				wrong := ""
				switch {
				case a.need < 0:
					wrong = "a prefix is found, and none suffices"
				case !a.prefix:
					k.missed++
					if a.kind == "alike" {
						wrong = "no prefix is found"
					}
				case len(a.found) < a.need:
					wrong = "the prefix found does not suffice"
				case len(a.found) > a.need:
					k.longer++
					if a.kind == "alike" {
						wrong = "the prefix found is too long"
					}
				default:
					k.same++
				}
				for m := 0; wrong == "" && m < len(a.found); m++ {
					if a.others[a.line[m]].name != a.found[m].Gang.Key.String() {
						wrong = fmt.Sprintf("unit %d is %s's, and should be %s's", m, a.found[m].Gang.Key, a.others[a.line[m]].name)
					}
				}
				if wrong != "" {
					t.Errorf("town %d, %s pods, %s: found %d, shortest %d\n%s", i, a.kind, wrong, len(a.found), a.need, tell(&w, cause))
					return
				}
			}
		}
	}
	for _, kind := range []string{"alike", "mixed", "filtered"} {
		t.Logf("%s pods: %+v", kind, *kinds[kind])
	}
}
