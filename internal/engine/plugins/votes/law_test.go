package votes_test

import (
	"context"
	"fmt"
	"maps"
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/engine/builtin"
	"github.com/muster-scheduler/muster/internal/engine/ledger"
	"github.com/muster-scheduler/muster/internal/engine/policy"
	"github.com/muster-scheduler/muster/internal/profile"
)

// The law of who may take from whom, read off Volcano's documentation with maps and fractions, and asked of the engine pod by pod.

type (
	realm struct {
		nodes []amounts
		funds []fund
		jobs  []job
		tiers [][]use
		tree  bool
		allow map[string]int // disruptions that the budget of an app allows, for those that have one
	}
	fund struct {
		name                            string
		weight                          int64
		guarantee, deserved, capability amounts
		kept                            bool // reclaimable: false
		parent                          string
		priority                        int
		created                         int64
		path                            []string
		weights                         []int64
	}
	job struct {
		name, space, queue string
		min, priority      int
		tasks              []task
		created            int64
		wait               int64 // sla-waiting-time; 0 for not said
	}
	task struct {
		name  string
		node  int // -1 for pending
		ended bool
		needs amounts

		priority int
		created  int64

		app               string        // its label
		cooldown, running time.Duration // cooldown 0 for not said; running is since when, 0 for not on record
	}
	use struct {
		name                   string
		noPreempt, noReclaim   bool
		noStarving, noPreempts bool // enableJobStarving and enablePreemptive are false
		noOverused             bool
		noJobs, noTasks        bool // enableJobOrder and enableTaskOrder
		noQueues, noAllocates  bool // enableQueueOrder and enabledAllocatable
	}
)

// both are the two resources of these clusters.
var both = [...]string{"cpu", "gpu"}

// drawRealm makes up a cluster with everybody's switches.
func drawRealm(r *rand.Rand) *realm {
	some := func(most int64) amounts {
		a := amounts{}
		for _, name := range both {
			if r.IntN(3) > 0 {
				a[name] = r.Int64N(most + 1)
			}
		}
		return a
	}
	w := &realm{tree: r.IntN(2) == 0}
	for range 1 + r.IntN(3) {
		w.nodes = append(w.nodes, amounts{"cpu": 4 + r.Int64N(20), "gpu": r.Int64N(8)})
	}
	for i := range 1 + r.IntN(4) {
		f := fund{name: fmt.Sprint("q", i), weight: 1 + r.Int64N(4), guarantee: amounts{}, deserved: amounts{}, capability: amounts{}, kept: r.IntN(6) == 0}
		if r.IntN(3) > 0 {
			f.deserved = some(12)
		}
		if r.IntN(3) == 0 {
			f.guarantee = some(5)
		}
		if r.IntN(3) == 0 {
			f.capability = some(20)
		}
		w.funds = append(w.funds, f)
	}
	for i := range 2 + r.IntN(5) {
		j := job{name: fmt.Sprint("j", i), space: "d", queue: w.funds[r.IntN(len(w.funds))].name, min: r.IntN(4), priority: r.IntN(3)}
		switch r.IntN(12) {
		case 0:
			j.space = "kube-system"
		case 1:
			j.priority = 2_000_000_000
		}
		for k := range 1 + r.IntN(4) {
			t := task{name: fmt.Sprint(j.name, "-", k), node: -1, needs: some(4)}
			switch x := r.IntN(7); {
			case x < 4:
				t.node = r.IntN(len(w.nodes))
			case x == 4:
				t.ended = true
			}
			t.app = []string{"", "", "x", "y"}[r.IntN(4)]
			if r.IntN(3) == 0 {
				t.cooldown, t.running = time.Duration(1+r.IntN(3))*time.Minute, time.Duration(r.IntN(5)-1)*time.Minute-time.Duration(r.IntN(2))
			}
			j.tasks = append(j.tasks, t)
		}
		w.jobs = append(w.jobs, j)
	}
	w.allow = map[string]int{}
	for _, app := range []string{"x", "y"} {
		if r.IntN(3) > 0 {
			w.allow[app] = r.IntN(3)
		}
	}
	plugins := []string{"gang", "priority", "conformance", "drf", "pdb", "cdp", []string{"proportion", "capacity"}[r.IntN(2)]}
	r.Shuffle(len(plugins), func(i, k int) { plugins[i], plugins[k] = plugins[k], plugins[i] })
	w.tiers = make([][]use, 1+r.IntN(3))
	for _, name := range plugins {
		if r.IntN(6) > 0 {
			off := func() bool { return r.IntN(6) == 0 }
			at := r.IntN(len(w.tiers))
			w.tiers[at] = append(w.tiers[at], use{name: name, noPreempt: off(), noReclaim: off(), noStarving: off(), noPreempts: off(), noOverused: off()})
		}
	}
	return w
}

// store is a Store that knows the realm.
func (w *realm) store() *cluster.Store {
	s := cluster.NewStore(cluster.Options{})
	list := func(a amounts) []cluster.Quantity {
		out := []cluster.Quantity{}
		for _, name := range both {
			if x, said := a[name]; said {
				out = append(out, cluster.Quantity{Name: name, Value: x})
			}
		}
		return out
	}
	for i, n := range w.nodes {
		s.Apply(cluster.NodeState{Name: fmt.Sprint("n", i), Allocatable: append(list(n), cluster.Quantity{Name: "pods", Value: 99})})
	}
	s.Apply(cluster.QueueState{Name: "volcano:root", UID: "root"})
	for _, f := range w.funds {
		quota := amounts{}
		for _, name := range both {
			if x := max(f.deserved[name], f.guarantee[name]); x > 0 {
				quota[name] = x
			}
		}
		weights := []cluster.Quantity{{Name: "cpu", Value: f.weight * 1000}, {Name: "gpu", Value: f.weight * 1000}}
		s.Apply(cluster.QueueState{
			Name: "volcano:" + f.name, UID: f.name, Parent: "volcano:root", Weight: weights, Guarantee: list(f.guarantee), Quota: list(quota), Limit: list(f.capability),
			NotReclaimable: f.kept,
		})
	}
	for app, n := range w.allow { // order: a set
		b := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "d", Name: app}}
		b.Spec.Selector, b.Status.DisruptionsAllowed = &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}, int32(n)
		s.Apply(cluster.ObjectState{Kind: cluster.PodDisruptionBudgets, Key: "d/" + app, Object: b})
	}
	for _, j := range w.jobs {
		key := cluster.Key{Face: "volcano", Namespace: j.space, Name: j.name}
		s.Apply(cluster.GangState{Key: key, UID: j.name, Queue: "volcano:" + j.queue, Preemptible: true, Priority: int32(j.priority), Created: now, Sets: cluster.FlatTree(int32(j.min))})
		for _, t := range j.tasks {
			ps := cluster.PodState{UID: t.name, Namespace: j.space, Name: t.name, Requests: list(t.needs), Gang: key, Ours: true, Created: now, Cooldown: t.cooldown}
			if t.app != "" {
				ps.Labels = map[string]string{"app": t.app}
			}
			if t.cooldown > 0 && t.running != 0 {
				ps.Scheduled = now.Add(-t.running)
			}
			switch {
			case t.ended:
				ps.Phase = cluster.Succeeded
			case t.node >= 0:
				ps.Phase, ps.NodeName = cluster.Running, fmt.Sprint("n", t.node)
				if t.node == 0 { // bound, and not running yet: it holds its room as much
					ps.Phase = cluster.Bound
				}
			}
			s.Apply(ps)
		}
	}
	return s
}

// face is the tiers as a profile has them.
func (w *realm) face() engine.Face {
	f := engine.Face{Name: "volcano", Actions: []string{"allocate", "reclaim", "preempt"}}
	for _, tier := range w.tiers {
		var uses []engine.PluginUse
		for _, u := range tier {
			pu := engine.PluginUse{Name: u.name, Arguments: policy.Arguments{}}
			if u.name == "capacity" && w.tree {
				pu.Arguments["enableHierarchy"] = "true"
			}
			for point, off := range map[policy.Point]bool{ // order: a set
				"preemptable": u.noPreempt, "reclaimable": u.noReclaim, "starving": u.noStarving, "reclaim-gate": u.noPreempts, "queue-turn": u.noOverused,
			} {
				if off {
					pu.Off = append(pu.Off, point)
				}
			}
			uses = append(uses, pu)
		}
		f.Tiers = append(f.Tiers, uses)
	}
	return f
}

func (w *realm) fund(name string) *fund {
	return &w.funds[slices.IndexFunc(w.funds, func(f fund) bool { return f.name == name })]
}

func (w *realm) job(name string) *job {
	return &w.jobs[slices.IndexFunc(w.jobs, func(j job) bool { return j.name == name })]
}

// sum adds up what tasks of a queue need.
func (w *realm) sum(queue, name string, which func(*task) bool) (x int64) {
	for i := range w.jobs {
		if j := &w.jobs[i]; j.queue == queue {
			for k := range j.tasks {
				if which(&j.tasks[k]) {
					x += j.tasks[k].needs[name]
				}
			}
		}
	}
	return x
}

func runs(t *task) bool  { return t.node >= 0 && !t.ended }
func waits(t *task) bool { return t.node < 0 && !t.ended }

func (w *realm) allocated(queue, name string) int64 { return w.sum(queue, name, runs) }

// real is realCapability: what is left of all when the guarantees of all are taken off, and one's own put back; at most the capability.
func (w *realm) real(f *fund, name string) int64 {
	total, promised := int64(0), int64(0)
	for _, n := range w.nodes {
		total += n[name]
	}
	for i := range w.funds {
		if !w.tree || w.funds[i].name != f.name {
			promised += w.funds[i].guarantee[name]
		}
	}
	if w.tree { // each takes its own off and puts it back
		promised += f.guarantee[name]
	}
	x := max(0, total-promised) + f.guarantee[name]
	if limit, said := f.capability[name]; said {
		x = min(x, limit)
	}
	return x
}

// weighed is what proportion says that queues deserve.
func (w *realm) weighed() map[string]amounts {
	out, in, left := map[string]amounts{}, map[string]bool{}, amounts{}
	request := func(q, name string) int64 {
		return w.sum(q, name, func(t *task) bool { return runs(t) || waits(t) })
	}
	for _, n := range w.nodes {
		for _, name := range both {
			left[name] += n[name]
		}
	}
	for _, f := range w.funds {
		out[f.name] = amounts{}
		if request(f.name, "cpu") > 0 || request(f.name, "gpu") > 0 || w.sum(f.name, "tasks", func(*task) bool { return true }) > 0 {
			in[f.name] = true
		}
	}
	for len(in) > 0 {
		weights := int64(0)
		for _, f := range w.funds {
			if in[f.name] {
				weights += f.weight
			}
		}
		given, leave := amounts{}, []string{}
		for i := range w.funds {
			f := &w.funds[i]
			if !in[f.name] {
				continue
			}
			satisfied, moved := true, false
			for _, name := range both {
				old := out[f.name][name]
				piece := new(big.Int).Mul(big.NewInt(left[name]), big.NewInt(f.weight))
				x := old + piece.Quo(piece, big.NewInt(weights)).Int64()
				if may := w.real(f, name); x > may {
					x = may
				}
				if asks := request(f.name, name); x > asks {
					x = asks
				}
				if least := f.guarantee[name]; x < least {
					x = least
				}
				out[f.name][name] = x
				given[name] += x - old
				satisfied = satisfied && request(f.name, name) <= x
				moved = moved || x != old
			}
			if satisfied || !moved {
				leave = append(leave, f.name)
			}
		}
		for _, name := range leave {
			delete(in, name)
		}
		for _, name := range both {
			left[name] = max(0, left[name]-given[name])
		}
	}
	return out
}

// said is what capacity says that a queue deserves.
func (w *realm) said(f *fund, name string) int64 {
	x := f.deserved[name]
	if !w.tree && x > w.real(f, name) {
		x = w.real(f, name)
	}
	return max(x, f.guarantee[name])
}

// list is what a plugin's function for victims returns of candidates that come in this order; judges is false where it has none.
func (w *realm) list(u use, preempt bool, g *job, asks amounts, on []*task, deserved map[string]amounts) (list []*task, judges bool) {
	if preempt && u.noPreempt || !preempt && u.noReclaim || preempt && (u.name == "proportion" || u.name == "capacity") || !preempt && (u.name == "priority" || u.name == "drf") {
		return nil, false
	}
	ready, left, holds, allows := map[string]int{}, map[string]amounts{}, map[string]amounts{}, maps.Clone(w.allow)
	for i := range w.jobs {
		holds[w.jobs[i].name] = w.holds(&w.jobs[i])
	}
	with := w.holds(g)
	for name, x := range asks {
		with[name] += x
	}
	for i := range w.jobs {
		for k := range w.jobs[i].tasks {
			if t := &w.jobs[i].tasks[k]; t.ended || t.node >= 0 {
				ready[w.jobs[i].name]++
			}
		}
	}
	for _, f := range w.funds {
		left[f.name] = amounts{"cpu": w.allocated(f.name, "cpu"), "gpu": w.allocated(f.name, "gpu")}
	}
	for _, t := range on {
		v := w.of(t)
		f, has := w.fund(v.queue), left[v.queue]
		yes := false
		switch u.name {
		case "gang":
			if yes = ready[v.name] > v.min; yes {
				ready[v.name]--
			}
		case "priority":
			yes = v.priority < g.priority
		case "drf":
			rest := holds[v.name]
			for name, x := range t.needs {
				rest[name] -= x
			}
			difference := new(big.Rat).Sub(w.share(with), w.share(rest)) // a millionth more counts as equal
			yes = difference.Cmp(big.NewRat(1, 1_000_000)) <= 0
		case "pdb": // of pods that run, in the namespace of the budgets
			n, bound := allows[t.app]
			if yes = !bound || v.space != "d" || t.node == 0 || n > 0; yes && bound && v.space == "d" && t.node != 0 {
				allows[t.app]--
			}
		case "cdp": // of pods that run, from when they got their node, if that is known and has been, or will have been within the minute that clocks may differ
			yes = t.node == 0 || t.running == 0 || t.running < -time.Minute || t.running >= t.cooldown
		case "conformance":
			yes = v.space != "kube-system" && v.priority != 2_000_000_000
		case "proportion":
			yes = has["cpu"] > deserved[f.name]["cpu"] || has["gpu"] > deserved[f.name]["gpu"]
		case "capacity":
			shares, guaranteed, named, over := false, true, false, false
			for _, name := range both {
				if t.needs[name] == 0 {
					continue
				}
				shares = shares || asks[name] > 0
				guaranteed = guaranteed && has[name]-t.needs[name] >= f.guarantee[name]
				named = named || w.said(f, name) > 0
				over = over || asks[name] > 0 && has[name] > w.said(f, name)
			}
			yes = shares && guaranteed && (!named || over)
		}
		if yes {
			list = append(list, t)
			if u.name == "proportion" || u.name == "capacity" {
				has["cpu"], has["gpu"] = has["cpu"]-t.needs["cpu"], has["gpu"]-t.needs["gpu"]
			}
		}
	}
	return list, true
}

// holds is what the tasks of a job that run hold.
func (w *realm) holds(j *job) amounts {
	out := amounts{}
	for k := range j.tasks {
		if t := &j.tasks[k]; runs(t) {
			for name, x := range t.needs {
				out[name] += x
			}
		}
	}
	return out
}

// share is the dominant share: the largest part of anything that the nodes have.
func (w *realm) share(of amounts) *big.Rat {
	out := new(big.Rat)
	for _, name := range both {
		total := int64(0)
		for _, n := range w.nodes {
			total += n[name]
		}
		s := big.NewRat(1, 1) // of something that there is nothing of
		if total > 0 {
			s = big.NewRat(of[name], total)
		}
		if of[name] > 0 && s.Cmp(out) > 0 {
			out = s
		}
	}
	return out
}

func (w *realm) of(t *task) *job {
	return &w.jobs[slices.IndexFunc(w.jobs, func(j job) bool { return slices.ContainsFunc(j.tasks, func(o task) bool { return o.name == t.name }) })]
}

// victims are who may be taken on a node, with candidates in this order.
func (w *realm) victims(preempt bool, g *job, asks amounts, on []*task, deserved map[string]amounts) (victims []*task) {
	for _, tier := range w.tiers {
		victims = nil
		for _, u := range tier {
			list, judges := w.list(u, preempt, g, asks, on, deserved)
			switch {
			case !judges:
				continue
			case len(list) == 0:
				victims = nil
			case len(victims) == 0:
				victims = list
			default:
				victims = slices.DeleteFunc(slices.Clone(victims), func(t *task) bool { return !slices.Contains(list, t) })
			}
			if len(list) == 0 {
				break
			}
		}
		if len(victims) > 0 {
			return victims
		}
	}
	return nil
}

// severally are who may be taken on a node where each plugin has its list of candidates in an order of its own.
func (w *realm) severally(preempt bool, g *job, asks amounts, on []*task, deserved map[string]amounts) (results [][]*task) {
	lists := map[string]map[string][]*task{} // by plugin, by who is in it; none for one that does not judge
	for _, tier := range w.tiers {
		for _, u := range tier {
			lists[u.name] = map[string][]*task{}
			orders(on, func(on []*task) {
				if list, judges := w.list(u, preempt, g, asks, slices.Clone(on), deserved); judges {
					names := []string{}
					for _, t := range list {
						names = append(names, t.name)
					}
					slices.Sort(names)
					lists[u.name][fmt.Sprint(names)] = list
				}
			})
		}
	}
	var walk func(i, k int, victims []*task)
	walk = func(i, k int, victims []*task) {
		switch {
		case i == len(w.tiers):
			return
		case k == len(w.tiers[i]) && len(victims) > 0:
			results = append(results, victims)
			return
		case k == len(w.tiers[i]):
			walk(i+1, 0, nil)
			return
		case len(lists[w.tiers[i][k].name]) == 0:
			walk(i, k+1, victims)
		}
		for _, list := range lists[w.tiers[i][k].name] { // order: a set
			switch {
			case len(list) == 0:
				walk(i+1, 0, nil)
			case len(victims) == 0:
				walk(i, k+1, list)
			default:
				walk(i, k+1, slices.DeleteFunc(slices.Clone(victims), func(t *task) bool { return !slices.Contains(list, t) }))
			}
		}
	}
	walk(0, 0, nil)
	return results
}

// bundled says whether one task may be taken where gangs are taken from in bundles: everybody of all tiers who judges it must let it go, but drf, which does not judge, and gang, which lets all go.
func (w *realm) bundled(preempt bool, g *job, asks amounts, x *task, deserved map[string]amounts) bool {
	somebody := false
	for _, tier := range w.tiers {
		for _, u := range tier {
			list, judges := w.list(u, preempt, g, asks, []*task{x}, deserved)
			switch {
			case !judges || u.name == "drf":
			case u.name == "gang" || len(list) == 1:
				somebody = true
			default:
				return false
			}
		}
	}
	return somebody
}

// orders calls f with each order of the tasks.
func orders(on []*task, f func([]*task)) {
	var walk func(k int)
	walk = func(k int) {
		if k == len(on) {
			f(on)
			return
		}
		for i := k; i < len(on); i++ {
			on[k], on[i] = on[i], on[k]
			walk(k + 1)
			on[k], on[i] = on[i], on[k]
		}
	}
	walk(0)
}

// starves is JobStarving.
func (w *realm) starves(g *job) bool {
	for _, tier := range w.tiers {
		any, all := false, true
		for _, u := range tier {
			if u.noStarving || u.name != "gang" && u.name != "priority" {
				continue
			}
			any = true
			ready := 0
			for k := range g.tasks {
				if !waits(&g.tasks[k]) {
					ready++
				}
			}
			all = all && (u.name == "gang" && ready < g.min || u.name == "priority" && ready < len(g.tasks))
		}
		if any {
			return all
		}
	}
	return false
}

// mayReclaim is Preemptive of all, and that nobody says Overused.
func (w *realm) mayReclaim(g *job, asks amounts, deserved map[string]amounts) bool {
	f := w.fund(g.queue)
	for _, tier := range w.tiers {
		for _, u := range tier {
			overused, within, fits, owed := true, true, true, len(asks) == 0
			for _, name := range both {
				has := w.allocated(f.name, name)
				overused = overused && deserved[f.name][name] <= has
				if asks[name] > 0 {
					within = within && has+asks[name] <= deserved[f.name][name]
					fits = fits && has+asks[name] <= w.real(f, name)
					owed = owed || has+asks[name] <= w.said(f, name)
				}
			}
			switch {
			case u.name == "proportion" && !u.noOverused && overused, u.name == "proportion" && !u.noPreempts && !within, u.name == "capacity" && !u.noPreempts && !(fits && owed):
				return false
			}
		}
	}
	return true
}

// asker asks the engine's rules of everybody who waits.
type asker struct{ ask func(s *engine.Session) }

func (a asker) Run(s *engine.Session) { a.ask(s) }

// TestLaw: on random clusters the engine lets gangs take whom the documentation lets them take, one pod and several. Where Volcano leaves it to the order of a map, a pod may be taken if
// some order of those on its node lets it go, and may if all do.
func TestLaw(t *testing.T) {
	t.Parallel()
	realms := cases(t, 2500)
	count := map[string]int{}
	for seed := range uint64(realms) {
		r := rand.New(rand.NewPCG(seed, 41))
		w := drawRealm(r)
		deserved := w.weighed()
		known := builtin.Registry()
		known.Actions["ask"] = func() engine.Action {
			return asker{func(s *engine.Session) {
				for _, g := range s.Waiting() {
					for _, cause := range []policy.EvictionCause{policy.Preempt, policy.Reclaim} {
						w.check(t, r, s, cause, g, deserved, count)
					}
				}
			}}
		}
		p := profile.BuiltIn()
		p.Actions, p.Faces = []string{"ask"}, []engine.Face{w.face()}
		p.Faces[0].Actions = append(p.Faces[0].Actions, "ask")
		known.Faces["volcano"].Actions["ask"] = nil
		e, err := engine.New(p, known)
		if err != nil {
			t.Fatal(err)
		}
		e.Run(context.Background(), w.store().Snapshot(now), func(engine.Plan) {})
		if t.Failed() {
			t.Fatalf("realm %d: %+v", seed, w)
		}
	}
	t.Log(count)
	if odd := count["by orders of their own"]; odd > count["preempt may"]/100 {
		t.Errorf("%d of %d answers are lawful by no one order", odd, count["preempt may"])
	}
	for _, what := range []string{"starves", "does not starve", "may reclaim", "may not reclaim", "preempt may", "preempt may not", "reclaim may", "reclaim may not", "several", "bundles may", "bundles may not"} {
		if count[what] < 200 {
			t.Errorf("%s: only %d", what, count[what])
		}
	}
}

// check asks about one gang that waits.
func (w *realm) check(t *testing.T, r *rand.Rand, s *engine.Session, cause policy.EvictionCause, g *ledger.GangState, deserved map[string]amounts, count map[string]int) {
	_, vector := s.Ledger.Next(g)
	asks, mine, request := amounts{}, w.job(g.Key.Name), vector.Clone()
	for i, name := range map[int]string{int(cluster.CPU): "cpu", int(cluster.GPU): "gpu"} { // order: each by itself
		if x := request.At(i); x > 0 {
			asks[name] = x
		}
	}
	tell := func(is bool, yes, no string) {
		if is {
			count[yes]++
		} else {
			count[no]++
		}
	}
	pods := map[string]*cluster.Pod{}
	s.Snap.EachGang(func(g *cluster.Gang) {
		for _, id := range g.Pods {
			p := s.Snap.Pod(id)
			pods[p.UID] = p
		}
	})
	starving := s.Rules.CheckStarving(g)
	if want := w.starves(mine); starving.Yes() != want {
		t.Errorf("%s starves: %v, want %v", mine.name, starving, want)
	}
	tell(starving.Yes(), "starves", "does not starve")
	if cause == policy.Reclaim {
		may := s.Rules.CheckReclaim(g, request)
		if want := w.mayReclaim(mine, asks, deserved); may.Yes() != want {
			t.Errorf("%s may reclaim %v: %v, want %v", mine.name, asks, may, want)
		}
		tell(may.Yes(), "may reclaim", "may not reclaim")
	}
	s.Rules.OpenLaw(cause, g, request)
	for n := range w.nodes {
		var on []*task
		for i := range w.jobs {
			v := &w.jobs[i]
			if (v.queue == mine.queue) != (cause == policy.Preempt) || v == mine || cause == policy.Reclaim && w.fund(v.queue).kept {
				continue
			}
			for k := range v.tasks {
				if x := &v.tasks[k]; runs(x) && x.node == n {
					on = append(on, x)
				}
			}
		}
		if len(on) == 0 || len(on) > 5 {
			continue
		}
		r.Shuffle(len(on), func(i, k int) { on[i], on[k] = on[k], on[i] })
		sequence := slices.Clone(on)
		var results [][]*task
		orders(on, func(on []*task) {
			results = append(results, w.victims(cause == policy.Preempt, mine, asks, slices.Clone(on), deserved))
		})
		unit := func(x *task) *ledger.VictimUnit {
			p := pods[x.name]
			return &ledger.VictimUnit{Gang: s.Ledger.Gang(p.Gang), Pods: []*cluster.Pod{p}, Charge: p.Charge}
		}
		for _, x := range on {
			_, v := s.Rules.CheckUnit(cause, g, request, unit(x))
			some, all := false, true
			for _, victims := range results {
				is := slices.Contains(victims, x)
				some, all = some || is, all && is
			}
			if v.Yes() && !some { // who decides is settled by each plugin's list of those that it would let go alone
				some = slices.ContainsFunc(w.severally(cause == policy.Preempt, mine, asks, on, deserved), func(victims []*task) bool { return slices.Contains(victims, x) })
				count["by orders of their own"]++
			}
			if v.Yes() && !some || !v.Yes() && all {
				t.Errorf("%s by %s of %s: %v, some order %v, all %v", cause, mine.name, x.name, v, some, all)
			}
			tell(v.Yes(), string(cause)+" may", string(cause)+" may not")
		}
		s.Rules.TakeIn(policy.Bundles{Ordered: true})
		s.Rules.OpenLaw(cause, g, request)
		for _, x := range on {
			_, v := s.Rules.CheckUnit(cause, g, request, unit(x))
			if want := w.bundled(cause == policy.Preempt, mine, asks, x, deserved); v.Yes() != want {
				t.Errorf("%s in bundles by %s of %s: %v, want %v", cause, mine.name, x.name, v, want)
			}
			tell(v.Yes(), "bundles may", "bundles may not")
		}
		s.Rules.TakeIn(policy.Bundles{})
		s.Rules.OpenLaw(cause, g, request)
		st := s.Ledger.Begin()
		var taken []*task
		for _, x := range sequence {
			u := unit(x)
			if _, v := s.Rules.CheckUnit(cause, g, request, u); v.Yes() {
				st.EvictUnit(u)
				taken = append(taken, x)
			}
		}
		st.Discard()
		if len(taken) > 1 {
			count["several"]++
		}
		together := func(victims []*task) bool {
			return !slices.ContainsFunc(taken, func(x *task) bool { return !slices.Contains(victims, x) })
		}
		switch {
		case len(taken) == 0 || slices.ContainsFunc(results, together):
		case slices.ContainsFunc(w.severally(cause == policy.Preempt, mine, asks, on, deserved), together):
			count["by orders of their own"]++
		default:
			t.Errorf("%s by %s of %v together: no order lets them go", cause, mine.name, taken)
		}
	}
}
