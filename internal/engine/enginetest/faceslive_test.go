package enginetest

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	kbkeys "github.com/muster-scheduler/muster/api/kubebatch/keys"
	vckeys "github.com/muster-scheduler/muster/api/volcano/keys"
	"github.com/muster-scheduler/muster/internal/engine/ledger"
	"github.com/muster-scheduler/muster/internal/engine/policy"
)

// facesRounds is the environment variable that says how many cycles TestFacesLive runs: make test-soak sets it.
const facesRounds = "SOAK_ROUNDS"

// TestFacesLive lets a cluster live that four faces share: gangs of KAI's, of Volcano's and of kube-batch's, each with a scheduler file that preempts and reclaims, of Kubernetes' own, and some that
// Kueue holds back and admits pod by pod. They come, run and end, nodes fail and come back, the scheduler is started anew. Each cycle is audited, and decided a second time by a cold engine; the room of
// nodes is counted from pods alone. While the queue trees of KAI's, Volcano's and kube-batch's all ask for more than a third of the cluster, each holds a third of what is held, as the virtual root
// says, and each takes back from the others. Then nothing happens any more, and it comes to rest: no pod is evicted twice. The short one is for every day; make test-soak asks for 10,000 cycles of
// 100 nodes.
func TestFacesLive(t *testing.T) {
	t.Parallel()
	rounds, nodes, rarely := 110, 40, 1
	if text := os.Getenv(facesRounds); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil {
			t.Fatalf("%s is %q; it must be a number", facesRounds, text)
		}
		rounds, nodes, rarely = n, 100, 20
	}
	c := newFacesCity(t, nodes, rarely)
	for round := range rounds {
		c.live(round)
	}
	c.report(rounds)
	c.freeze()
}

const facesGPUs = 8 // per node

const facesFile = `actions: "enqueue, allocate, backfill, preempt, reclaim"
tiers:
- plugins:
  - name: priority
  - name: gang
  - name: conformance
- plugins:
  - name: predicates
  - name: proportion
  - name: nodeorder
  - name: binpack
`

// facesBatchFile is kube-batch's scheduler file: that of its samples.
const facesBatchFile = `actions: "reclaim, allocate, backfill, preempt"
tiers:
- plugins:
  - name: priority
  - name: gang
  - name: conformance
- plugins:
  - name: drf
  - name: predicates
  - name: proportion
  - name: nodeorder
`

// facesTrees are the faces that have queues of their own, each a tree below the virtual root; Kubernetes' own gangs are in KAI's.
var facesTrees = [...]string{"kai", "volcano", "kubebatch"}

// facesTree is the tree of the gangs that a face's are.
func facesTree(face string) int { return max(0, slices.Index(facesTrees[:], face)) }

// facesGang is a gang of the city: when it is admitted, if Kueue holds it back, and how many rounds it runs once it has started.
type facesGang struct {
	name, kind      string
	admitted, lasts int
	gated           bool
}

// facesCity is a cluster that several faces share.
type facesCity struct {
	*testing.T
	r       *rand.Rand
	b       *Engine
	in      *interpreter
	nodes   int
	made    int
	gangs   []*facesGang
	down    map[string]int // nodes that failed, and when they come back
	evicted map[string]int // pods by cause and faces
	frozen  map[string]int // how often each pod was evicted since nothing happens any more; nil before

	ready, used int64                                 // GPUs, over all cycles
	rounds      int                                   // cycles in which all queue trees asked for more than their part
	held        [len(facesTrees)]int64                // what each held in those
	took        [len(facesTrees)][len(facesTrees)]int // pods that gangs of one tree reclaimed from those of another
}

func newFacesCity(t *testing.T, nodes, rarely int) *facesCity {
	o := &Options{Volcano: true, VolcanoConfig: facesFile, KubeBatch: true, KubeBatchConfig: facesBatchFile}
	b, err := NewEngine(o, Mutation{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	c := &facesCity{T: t, r: rand.New(rand.NewPCG(16, 15)), b: b, in: newInterpreter(b, o), nodes: nodes, down: map[string]int{}, evicted: map[string]int{}}
	b.rarely = rarely
	c.do("topology dc levels=rack")
	for i := range nodes {
		c.do(fmt.Sprintf("node n%03d gpu=%d cpu=96 label=rack=r%d", i, facesGPUs, i/10))
	}
	gpus := nodes * facesGPUs
	c.do(fmt.Sprintf("queue research quota=%d\nqueue research/deep quota=%d\nqueue research/wide quota=%d weight=2\nqueue product quota=0 limit=%d", gpus/4, gpus/8, gpus/8, gpus/4))
	for _, queue := range [][2]string{{"default", "{}"}, {"steady", "{weight: 3}"}, {"small", fmt.Sprintf("{weight: 1, capability: {nvidia.com/gpu: %d}}", gpus/5)}} { // in an order: who is older counts
		if err := c.in.manifests("{apiVersion: scheduling.volcano.sh/v1beta1, kind: Queue, metadata: {name: " + queue[0] + "}, spec: " + queue[1] + "}"); err != nil {
			t.Fatal(err)
		}
	}
	for _, queue := range []string{"scheduling.incubator.k8s.io/v1alpha1, kind: Queue, metadata: {name: default}, spec: {weight: 1}", "scheduling.sigs.dev/v1alpha2, kind: Queue, metadata: {name: heavy}, spec: {weight: 2}"} {
		if err := c.in.manifests("{apiVersion: " + queue + "}"); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

func (c *facesCity) do(text string) {
	c.Helper()
	ss, err := parseLines(text)
	if err == nil {
		_, err = c.in.run(ss)
	}
	if err != nil {
		c.Fatalf("%s: %v", text, err)
	}
}

func (c *facesCity) pick(xs ...string) string { return xs[c.r.IntN(len(xs))] }

// come makes one more gang of the kind.
func (c *facesCity) come(kind string, round int) {
	c.made++
	g := &facesGang{name: fmt.Sprintf("%s-%d", kind, c.made), kind: kind, lasts: 5 + c.r.IntN(60)}
	name, pods := g.name, 1<<c.r.IntN(5)
	gpus := min(facesGPUs, 1<<c.r.IntN(4), max(1, 16/pods))
	line := fmt.Sprintf("gang %s age=0s pods=%d gpu=%d cpu=%d priority=%s", g.name, pods, gpus, 1+c.r.IntN(4), c.pick("50", "50", "60", "75"))
	if c.r.IntN(3) == 0 {
		line += fmt.Sprintf(" min=%d", (pods+1)/2)
	}
	switch kind {
	case "kai":
		line += " queue=" + c.pick("deep", "wide", "product") + c.pick("", "", " required=rack")
	case "volcano":
		line += " volcano queue=" + c.pick("default", "steady", "small")
	case "kubebatch":
		switch line += " kubebatch"; c.r.IntN(3) {
		case 0:
			line += " queue=" + c.pick("default", "heavy")
		case 1:
			line += " sigs queue=" + c.pick("default", "heavy")
		case 2:
			line += " shadow" // of its default queue
			name = "shadow_" + g.name
		}
	case "upstream":
		line += " upstream queue=" + c.pick("deep", "wide") + c.pick("", " all", " layout=rack")
	case "kueue":
		g.admitted, g.gated = round+1+c.r.IntN(6), true
		line += " upstream queue=" + c.pick("deep", "product") + " gate=kueue.x-k8s.io/admission"
	}
	if c.r.IntN(10) == 0 {
		line += " finalizer"
	}
	c.do(line)
	g.name = name
	c.gangs = append(c.gangs, g)
}

// live is one round of ten seconds: things happen, and a cycle takes effect.
func (c *facesCity) live(round int) {
	c.do("advance 10s")
	waits, members := map[string]int{}, map[string][]*v1.Pod{}
	for _, k := range slices.Sorted(maps.Keys(c.b.objects)) {
		if p, ok := c.b.objects[k].(*v1.Pod); ok {
			members[groupOf(p)] = append(members[groupOf(p)], p)
		}
	}
	left := c.gangs[:0]
	for _, g := range c.gangs {
		pods, placed := members[g.name], 0
		for _, p := range pods {
			if p.Spec.NodeName != "" && p.DeletionTimestamp == nil {
				placed++
			}
		}
		if placed == 0 {
			waits[g.kind]++
		} else {
			g.lasts--
		}
		if g.gated && round >= g.admitted { // pod by pod
			open := true
			for _, p := range pods {
				if len(p.Spec.SchedulingGates) > 0 {
					c.do("ungate " + p.Name + " gate=kueue.x-k8s.io/admission")
					open = p == pods[len(pods)-1]
					break
				}
			}
			g.gated = !open
		}
		for _, p := range pods {
			if p.DeletionTimestamp != nil && len(p.Finalizers) > 0 && c.r.IntN(3) == 0 {
				c.do("free " + p.Name)
			}
		}
		if g.lasts > 0 {
			left = append(left, g)
			continue
		}
		c.do("delete gang " + g.name)
	}
	c.gangs = left
	for _, kind := range []string{"kai", "volcano", "volcano", "kubebatch", "kubebatch", "upstream", "kueue"} {
		if waits[kind] < 12 && c.r.IntN(2) == 0 {
			c.come(kind, round)
		}
	}
	if name := fmt.Sprintf("n%03d", c.r.IntN(c.nodes)); c.r.IntN(20) == 0 && c.down[name] == 0 {
		c.do(c.pick("fail ", "cordon ") + name)
		c.down[name] = round + 15
	}
	for i := range c.nodes {
		if name := fmt.Sprintf("n%03d", i); c.down[name] != 0 && c.down[name] <= round {
			c.do("restore " + name + "\nuncordon " + name)
			delete(c.down, name)
		}
	}
	if round%100 == 99 {
		c.do("restart")
	}
	c.step(round)
}

// step is a cycle that takes effect, and what is counted of it by pods alone. It says whether there is more to come.
func (c *facesCity) step(round int) bool {
	c.Helper()
	more, err := c.b.step()
	if err != nil {
		c.Fatalf("round %d: %v", round, err)
	}
	used, ready := map[string]int64{}, int64(0)
	var held, asked [len(facesTrees)]int64
	for _, o := range c.b.objects { // order: sums
		if n, ok := o.(*v1.Node); ok && !n.Spec.Unschedulable && c.down[n.Name] == 0 {
			ready += facesGPUs
		}
		p, ok := o.(*v1.Pod)
		if !ok || p.Status.Phase == v1.PodSucceeded || p.Status.Phase == v1.PodFailed {
			continue
		}
		tree := facesTree(map[string]string{vckeys.SchedulerName: "volcano", kbkeys.SchedulerName: "kubebatch"}[p.Spec.SchedulerName])
		q := p.Spec.Containers[0].Resources.Requests["nvidia.com/gpu"]
		if len(p.Spec.SchedulingGates) == 0 {
			asked[tree] += q.Value()
		}
		if p.Spec.NodeName != "" {
			used[p.Spec.NodeName] += q.Value()
			held[tree] += q.Value()
		}
	}
	for name, n := range used {
		if n > facesGPUs {
			c.Fatalf("round %d: node %s holds %d GPUs", round, name, n)
		}
	}
	c.ready += ready
	all := round > 50
	for tree, n := range held {
		c.used += n
		all = all && asked[tree] > ready/int64(len(held))
	}
	if all {
		c.rounds++
		for tree, n := range held {
			c.held[tree] += n
		}
	}
	for _, d := range c.b.Decisions() {
		for _, in := range d.Intents {
			if in.Verb == ledger.Evict {
				c.evicted[fmt.Sprintf("%s, a gang of %s's moves or ends one of %s's", d.Eviction.Cause, d.Gang.Face, in.Gang.Face)]++
				if d.Eviction.Cause == policy.Reclaim {
					c.took[facesTree(d.Gang.Face)][facesTree(in.Gang.Face)]++
				}
				if c.frozen != nil {
					c.frozen[in.Pod]++
				}
			}
		}
	}
	return more
}

// report prints how it went, and judges what each queue tree held while all asked for more than their part, and that each took back from both others.
func (c *facesCity) report(rounds int) {
	c.Helper()
	var sum int64
	for _, n := range c.held {
		sum += n
	}
	var b, parts strings.Builder
	for _, what := range slices.Sorted(maps.Keys(c.evicted)) {
		fmt.Fprintf(&b, "\n%s: %d pods", what, c.evicted[what])
	}
	for tree, n := range c.held {
		part := float64(n) / float64(max(1, sum))
		fmt.Fprintf(&parts, " %s %.1f %%", facesTrees[tree], 100*part)
		if part < 0.30 || part > 0.37 {
			c.Errorf("the queues of %s held %.1f %% while all asked for more than a third", facesTrees[tree], 100*part)
		}
		for other, n := range c.took[tree] {
			if n == 0 {
				c.Errorf("gangs of %s reclaimed nothing from those of %s", facesTrees[tree], facesTrees[other])
			}
		}
	}
	c.Logf("%d cycles, %d nodes: %d gangs came, %.1f %% of the ready GPUs in use; in %d cycles all trees asked for more than a third, and held%s%s",
		rounds, c.nodes, c.made, 100*float64(c.used)/float64(c.ready), c.rounds, parts.String(), b.String())
	if c.rounds < rounds/3 {
		c.Errorf("in %d of %d cycles all asked for more than a third", c.rounds, rounds)
	}
}

// freeze lets nothing come, end or fail any more, and sees the scheduler come to rest.
func (c *facesCity) freeze() {
	c.Helper()
	pods, err := c.b.Pods()
	if err != nil {
		c.Fatal(err)
	}
	for _, p := range pods {
		if len(p.Finalizers) > 0 {
			c.do("free " + p.Name)
		}
	}
	c.frozen = map[string]int{}
	cycles := 0
	for quiet := 0; quiet < 13; { // time passes, and nothing happens
		if cycles++; cycles > 1000 {
			c.Fatal("frozen: it does not come to rest")
		}
		before := len(c.frozen)
		if c.step(0) || len(c.frozen) > before {
			quiet = 0
			continue
		}
		quiet++
		c.do("advance 61s")
	}
	for pod, n := range c.frozen {
		if n > 1 {
			c.Errorf("frozen: pod %s was evicted %d times", pod, n)
		}
	}
	c.Logf("frozen: at rest after %d cycles, %d pods were evicted", cycles, len(c.frozen))
}
