package solver_test

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/engine/builtin"
	"github.com/muster-scheduler/muster/internal/engine/ledger"
	"github.com/muster-scheduler/muster/internal/engine/policy"
	"github.com/muster-scheduler/muster/internal/engine/recorder"
	"github.com/muster-scheduler/muster/internal/engine/solver"
	"github.com/muster-scheduler/muster/internal/kube/filters"
	"github.com/muster-scheduler/muster/internal/profile"
)

// trial asks the solver and the law about every waiting gang of one town, for one cause.
type trial struct {
	cause   policy.EvictionCause
	local   bool // the law looks at each node alone
	view    *policy.View
	answers []*answer
}

// answer is what both said about one gang.
type answer struct {
	*question
	legal   []gone // that suffice
	near    []gone // of them, for a single pod, those that are on one node, and take it there
	ok      bool   // the solver's
	partial bool
	bundle  *engine.Bundle
	snap    *cluster.Snapshot
	line    []int // who gives in policy order, those who may not left out
	need    int   // how many of them suffice
	found   []ledger.VictimUnit
	prefix  bool // the solver's prefix suffices
	kind    string
	idle    bool // room that is idle takes the gang by now: the next run's allocate gives it that, and nobody need go
	sorted  bool // after its answer those who may give next stand in their order
}

// eye lets the trial see where pods are in the session.
type eye struct{ t *trial }

func (e eye) open(v *policy.View) company { e.t.view = v; return company{v} }

// company is a filter for which more victims can mean a worse chance: pods with an affinity run only where a friend is and
// stays.
type company struct{ view *policy.View }

// Wants implements policy.NodeFilter.
func (c company) Wants(class *cluster.Class) bool { return class.PodAffinity != nil }

// CheckNode implements policy.NodeFilter.
func (c company) CheckNode(p *cluster.Pod, n *cluster.Node) policy.Verdict {
	for _, id := range n.Pods {
		if q := c.view.Snapshot().Pod(id); len(q.Labels) > 0 && c.view.NodeOf(q) == n.ID {
			return policy.Verdict{}
		}
	}
	return policy.Verdict{Code: policy.No, Reason: filters.ReasonPodAffinity}
}

// Run implements engine.Action.
func (t *trial) Run(s *engine.Session) {
	sv := solver.New(s, t.cause, nil)
	queue := s.NewGangQueue(s.Waiting())
	for g := queue.Pop(); g != nil; g = queue.Pop() {
		a := &answer{question: ask(s, t.view, g, t.cause), snap: s.Snap}
		if len(a.wants) > 0 && a.entitled() && t.cause != policy.Consolidation {
			if !t.local {
				for _, c := range a.reachable(cluster.None) {
					if a.enough(c) {
						a.legal = append(a.legal, c)
					}
				}
			} else if len(a.wants) == 1 {
				for _, n := range a.nodes {
					for _, c := range a.reachable(n.ID) {
						if a.enough(c) {
							a.near = append(a.near, c)
							break
						}
					}
				}
			}
		}
		if len(a.wants) > 0 && a.entitled() && t.cause != policy.Consolidation {
			a.line, a.need = a.queue(s)
			a.found, a.prefix = solver.Prefix(sv, g)
			ids, _ := s.Ledger.Next(g)
			switch {
			case s.Placer.Filtered(ids):
				a.kind = "filtered"
			case s.Placer.Exact(ids):
				a.kind = "alike"
			default:
				a.kind = "mixed"
			}
		}
		if len(a.wants) > 0 {
			st := s.Ledger.Begin()
			a.idle = s.Placer.Promise(st, g) == nil && st.Immediate()
			st.Discard()
		}
		var leaves []*ledger.QueueLedger
		leaves, a.ok = sv.Solve(g)
		for _, l := range leaves {
			queue.Changed(l)
		}
		a.sorted = solver.Sorted(sv)
		t.answers = append(t.answers, a)
	}
}

// try runs a trial and returns the answers.
func try(w *exampleCluster, cause policy.EvictionCause) []*answer {
	answers, _ := tryIn(w, cause, nil)
	return answers
}

// tryIn is try on a Store that remember has told more.
func tryIn(w *exampleCluster, cause policy.EvictionCause, remember func(*cluster.Store)) ([]*answer, *recorder.Trace) {
	return play(w, &trial{cause: cause}, remember)
}

// play runs a trial on a town.
func play(w *exampleCluster, t *trial, remember func(*cluster.Store)) ([]*answer, *recorder.Trace) {
	p := profile.BuiltIn()
	p.Actions = []string{"allocate", "trial"}
	p.Tiers[0] = append(slices.Clone(p.Tiers[0]), engine.PluginUse{Name: "eye"})
	r := builtin.Registry()
	r.Actions["trial"] = func() engine.Action { return t }
	r.Plugins["eye"] = []policy.Factory{policy.Opens(eye{t}.open)}
	e, err := engine.New(p, r)
	if err != nil {
		panic(err)
	}
	var bundles []engine.Bundle
	result := e.Run(context.Background(), w.store(remember).Snapshot(noon), func(p engine.Plan) {
		if p.Action == "trial" {
			bundles = p.Bundles
		}
	})
	for _, a := range t.answers {
		if a.ok {
			a.bundle, bundles = &bundles[0], bundles[1:]
			continue
		}
		for _, g := range result.Trace.Gangs {
			for _, tried := range g.Tried {
				if g.Gang.String() == a.g.name && tried.Action == "trial" {
					a.partial = tried.Verdict.Partial
				}
			}
		}
	}
	return t.answers, &result.Trace
}

// missed says whether the law knows a way and the solver none.
func (a *answer) missed() bool { return !a.ok && !a.idle && len(a.legal) > 0 }

// wrong returns why the solver's decision is none, or nil.
func (a *answer) wrong() error {
	if !a.ok {
		return nil
	}
	b := a.bundle
	if b.Gang.String() != a.g.name {
		return fmt.Errorf("the bundle is %s's", b.Gang)
	}
	pods := map[string]*cluster.Pod{}
	a.snap.EachPod(func(p *cluster.Pod) { pods[p.UID] = p })
	free, ports := make([]cluster.Resources, len(a.free)), slices.Clone(a.ports)
	at := map[string]int{}
	for i, n := range a.nodes {
		free[i], at[n.Name] = a.free[i].Clone(), i
	}
	killed, evicted := map[string]bool{}, map[string]bool{}
	for _, in := range b.Intents {
		if in.Verb == ledger.Evict {
			p := pods[in.UID]
			free[at[in.Node]].Add(p.Class.Requests)
			ports[at[in.Node]] -= len(p.Class.HostPorts)
			evicted[in.UID] = true
			killed[in.UID] = in.To == ""
			if in.To != "" && !p.Recreated {
				return fmt.Errorf("%s is moved, and nobody recreates it", in.Pod)
			}
		}
	}
	var placed []string
	for _, in := range b.Intents {
		node := in.Node
		switch {
		case in.Verb == ledger.Nominate:
			placed = append(placed, in.UID)
		case in.Verb == ledger.Evict && in.To != "":
			node = in.To
		case in.Verb == ledger.Evict:
			continue
		default:
			return fmt.Errorf("%s of %s", in.Verb, in.Pod)
		}
		p, i := pods[in.UID], at[node]
		if zone := p.Class.NodeSelector["zone"]; zone != "" && zone != a.nodes[i].Labels["zone"] {
			return fmt.Errorf("%s may not run on %s", in.Pod, node)
		}
		if !p.Class.Requests.Fits(free[i]) || len(p.Class.HostPorts) > 0 && ports[i] > 0 {
			return fmt.Errorf("%s does not fit on %s", in.Pod, node)
		}
		free[i].Sub(p.Class.Requests)
		ports[i] += len(p.Class.HostPorts)
	}
	for _, p := range a.wants {
		if a.g.open() {
			break // it is enough that it has its minimum
		}
		if !slices.Contains(placed, p.UID) {
			return fmt.Errorf("%s gets no room", p.Name)
		}
	}
	if len(placed) == 0 || len(placed) != len(a.wants) && !a.g.open() {
		return fmt.Errorf("%d pods get room, of %d", len(placed), len(a.wants))
	}
	has := slices.Clone(a.g.has)
	for _, uid := range placed {
		has[pods[uid].Set]++
	}
	if !a.g.enough(0, has) {
		return fmt.Errorf("half a gang: it has %v pods by set then", has)
	}
	if err := a.together(b, pods); err != nil {
		return err
	}
	if !a.entitled() {
		return fmt.Errorf("it may not disturb anybody")
	}
	return a.lawful(evicted, killed)
}

// together checks that what has to be in one zone is, of everybody whom the decision puts somewhere.
func (a *answer) together(b *engine.Bundle, pods map[string]*cluster.Pod) error {
	puts := map[string]string{} // by UID: the node, "" for none
	for _, in := range b.Intents {
		if puts[in.UID] = in.Node; in.Verb == ledger.Evict {
			puts[in.UID] = in.To
		}
	}
	zone := map[string]string{}
	for _, n := range a.nodes {
		zone[n.Name] = n.Labels["zone"]
	}
	for _, v := range append(slices.Clone(a.others), a.g) {
		is := map[int32]string{}
		moved := false
		for _, id := range v.state.Pods {
			p := a.snap.Pod(id)
			to, put := puts[p.UID]
			moved = moved || put && to != ""
			if i := slices.IndexFunc(v.seats, func(x seat) bool { return x.pod == p }); i >= 0 && !put {
				to = a.snap.Node(v.seats[i].node).Name
			}
			for _, i := range v.scopes(p) {
				if to != "" && is[i] != "" && is[i] != zone[to] && moved {
					return fmt.Errorf("apart: %s has pods in %s and %s", v.name, is[i], zone[to])
				}
				if to != "" {
					is[i] = zone[to]
				}
			}
		}
	}
	return nil
}

// loss is a unit that is killed.
type loss struct {
	v *lawGang
	u unit
}

// lawful checks the victims.
func (a *answer) lawful(evicted, killed map[string]bool) error {
	var losses []loss
	moved := maps.Clone(evicted)
	maps.DeleteFunc(moved, func(uid string, _ bool) bool { return killed[uid] })
	for _, v := range a.others {
		gave, dead := 0, []*cluster.Pod(nil)
		for _, p := range v.body {
			if evicted[p.UID] {
				gave++
				delete(evicted, p.UID)
			}
			if killed[p.UID] {
				dead = append(dead, p)
			}
		}
		if gave > 0 && !a.mayTouch(v) {
			return fmt.Errorf("%s may not be touched", v.name)
		}
		if has := v.without(dead...); len(dead) > 0 && len(dead) < v.active && !v.enough(0, has) {
			return fmt.Errorf("%s is left with %v pods by set", v.name, has)
		}
		for _, p := range dead {
			losses = append(losses, loss{v, unit{pods: []*cluster.Pod{p}}})
		}
	}
	if len(evicted) > 0 {
		return fmt.Errorf("evicted from nobody: %v", evicted)
	}
	if len(losses) > 0 && a.cause == policy.Consolidation {
		return fmt.Errorf("a pod is killed for a consolidation")
	}
	if c := a.fewer(losses); c != nil && len(moved) == 0 {
		return fmt.Errorf("fewer would do: %v of %v", c, losses)
	}
	if !a.attainable(killed) {
		return fmt.Errorf("there is no order in which the victims could be taken")
	}
	lost := given{}
	for _, l := range losses {
		lost.add(a.question, l.v, l.u)
	}
	if !a.admitted(lost) {
		return fmt.Errorf("a queue is above its limit, or quota, afterwards")
	}
	return nil
}

// fewer returns a part of the killed that is known to be lawful and enough; nil if there is none.
func (a *answer) fewer(killed []loss) gone {
	all := make(gone, len(a.others))
	for i, v := range a.others {
		for k, p := range v.body {
			if slices.ContainsFunc(killed, func(l loss) bool { return l.u.pods[0] == p }) {
				all[i] |= 1 << k
			}
		}
	}
	for _, c := range a.legal {
		part := c.size() < all.size()
		for i := range c {
			part = part && c[i]&^all[i] == 0
		}
		if part {
			return c
		}
	}
	return nil
}

// someOrder says whether the units can be taken one after another in some order.
func (a *answer) someOrder(losses []loss, lost given) bool {
	if len(losses) == 0 {
		return true
	}
	for i, l := range losses {
		if !a.mayTake(lost, l.v, l.u) {
			continue
		}
		next := given{}
		for name, r := range lost { // order: a copy
			next[name] = r.Clone()
		}
		next.add(a.question, l.v, l.u)
		if a.someOrder(slices.Delete(slices.Clone(losses), i, i+1), next) {
			return true
		}
	}
	return false
}

// oracleCases is the environment variable that says how many towns TestOracle looks at.
const oracleCases = "ORACLE_CASES"

func cases(t *testing.T, usual int) int {
	text := os.Getenv(oracleCases)
	if text == "" {
		return usual
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("%s is %q; it must be a number", oracleCases, text)
	}
	return n
}

var seed = flag.Uint64("oracle.seed", 1, "where the random towns begin")

// anyTown is the i-th random town: of every two, one of gangs with sets.
func anyTown(i int) exampleCluster {
	if i%2 == 1 {
		return townOf(i / 2)
	}
	return drawSets(rand.New(rand.NewPCG(*seed, uint64(i))))
}

// townOf is the i-th random town of gangs without sets: of every four, one of departments.
func townOf(i int) exampleCluster {
	r := rand.New(rand.NewPCG(*seed, uint64(i)))
	if i%4 == 3 {
		return drawDepartments(r)
	}
	return draw(r)
}

// TestOracle: whatever the law allows, the solver finds, and whatever it decides, the law allows.
func TestOracle(t *testing.T) {
	t.Parallel()
	for _, cause := range []policy.EvictionCause{policy.Reclaim, policy.Preempt, policy.Consolidation} {
		t.Run(string(cause), func(t *testing.T) {
			t.Parallel()
			n, questions, could, did, misses, partials := cases(t, 1500), 0, 0, 0, 0, 0
			reported := map[string]int{}
			for i := range n {
				w := anyTown(i)
				for _, a := range try(&w, cause) {
					questions++
					if len(a.legal) > 0 {
						could++
					}
					if a.ok {
						did++
					}
					if a.missed() && a.partial {
						partials++
					}
					if a.missed() && !a.partial {
						misses++
						if reported["miss"]++; reported["miss"] <= 3 {
							small := shrink(w, func(w *exampleCluster) bool {
								return slices.ContainsFunc(try(w, cause), func(a *answer) bool { return a.missed() && !a.partial })
							})
							t.Errorf("town %d: a way is missed\n%s", i, tell(&small, cause))
						}
					}
					if err := a.wrong(); err != nil {
						kind, _, _ := strings.Cut(err.Error(), " ")
						if reported[kind]++; reported[kind] <= 2 {
							small := shrink(w, func(w *exampleCluster) bool {
								return slices.ContainsFunc(try(w, cause), func(a *answer) bool { return a.wrong() != nil })
							})
							t.Errorf("town %d: %v\n%s", i, err, tell(&small, cause))
						}
					}
				}
			}
			t.Logf("%s: %d towns, %d questions, %d with a legal way, %d decided, %d missed, %d missed by a search that says it is partial (%v)",
				cause, n, questions, could, did, misses, partials, reported)
		})
	}
}

// tell prints a town and what was said about it.
func tell(w *exampleCluster, cause policy.EvictionCause) string {
	var b strings.Builder
	b.WriteString(w.String())
	for _, a := range try(w, cause) {
		fmt.Fprintf(&b, "%s for %s: solver %v (partial %v)", cause, a.g.name, a.ok, a.partial)
		if err := a.wrong(); err != nil {
			fmt.Fprintf(&b, ", wrong: %v", err)
		}
		b.WriteString("\n")
		if a.bundle != nil {
			for _, in := range a.bundle.Intents {
				fmt.Fprintf(&b, "  %s %s on %s to %q\n", in.Verb, in.Pod, in.Node, in.To)
			}
		}
		for _, c := range a.legal {
			b.WriteString("  the law allows")
			for _, l := range a.of(c) {
				b.WriteString(" " + l.u.pods[0].Name)
			}
			b.WriteString("\n")
		}
		for name, q := range a.queues { // order: a text for people
			fmt.Fprintf(&b, "  %s holds %v, fair %v\n", name, q.held, q.fair)
		}
	}
	return b.String()
}
