package enginetest

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

// TestWildFaces tells stories as TestWild does, of clusters that several faces share: gangs of KAI's, of Volcano's, of kube-batch's in half of them and of Kubernetes' own, with Volcano's and kube-batch's scheduler files of many kinds,
// queues that hand out in order, that let in pods by a gate, that lend and that do not, pods that another's admission holds back, HyperNodes, and NodeShards, nodes that are lent for hours,
// and pods that are balanced.
func TestWildFaces(t *testing.T) {
	t.Parallel()
	tellAll(t, facesStory)
}

// facesWild draws commands of a cluster with several faces.
type facesWild struct {
	wild
	gates, shards, hyper bool
	batch                *rand.Rand // nil unless kube-batch's face is on: it has the gangs of another
	lent                 *rand.Rand // nil unless nodes are lent for hours, pods are balanced and tasks would rather be together
}

// lends says yes once in n where nodes are lent.
func (w *facesWild) lends(n int) bool { return w.lent != nil && w.lent.IntN(n) == 0 }

func (w *facesWild) nodeLine(i int) string {
	s := w.wild.nodeLine(i)
	if w.lends(2) {
		s += " label=volcano.sh/revocable-zone=" + []string{"night", "night", "day", "moon"}[w.lent.IntN(4)]
	}
	return s
}

// batches says yes once in n where kube-batch's face is on.
func (w *facesWild) batches(n int) bool { return w.batch != nil && w.batch.IntN(n) == 0 }

// face is a word that makes a gang another face's, and a queue for it.
func (w *facesWild) face() (word, queue string) {
	if w.batches(4) {
		return " kubebatch" + []string{"", " sigs", " shadow"}[w.batch.IntN(3)], []string{"one", "two", "default", "gone"}[w.batch.IntN(4)]
	}
	switch w.r.IntN(5) {
	case 0, 1:
		return " volcano", w.pick("v1", "v2", "v3", "v3", "default", "gone")
	case 2:
		return " upstream", w.leaf()
	}
	return "", w.leaf()
}

func (w *facesWild) gangLines(name string) []string {
	face, queue := w.face()
	k := 1 + w.r.IntN(5)
	head := "gang " + name + face + " queue=" + queue + " priority=" + w.pick("50", "50", "75", "60", "-5")
	least := 1 + w.r.IntN(k)
	gate := ""
	if w.one(4) { // as Kueue holds back what it has not admitted
		gate = " gate=kueue.x-k8s.io/admission"
	}
	switch {
	case face == " upstream":
		head += w.pick("", "", " all", " never", " basic")
		if w.kinds["topology"] && w.one(3) {
			head += " layout=" + w.pick("zone", "rack")
		}
	case face == " volcano":
		if w.one(3) {
			head += " asks=cpu:" + w.pick("1", "2", "8", "64") + w.pick("", ",nvidia.com/gpu:1")
		}
		if w.one(8) {
			head += " sla=" + w.pick("1s", "1m", "1h")
		}
		if w.hyper && w.one(2) {
			head += w.pick(" soft", " within=1", " within=1", " within=2")
		}
		if w.gates && w.one(2) {
			gate += " annotation=scheduling.volcano.sh/queue-allocation-gate=true gate=scheduling.volcano.sh/queue-allocation-gate"
		}
		if w.one(8) {
			head += " annotation=volcano.sh/preemptable=" + w.pick("false", "true")
		}
		if w.one(10) {
			head += " label=volcano.sh/cooldown-time=" + w.pick("1m", "30m")
		}
		if w.lent != nil && !w.lends(3) {
			head += " annotation=volcano.sh/revocable-zone=*"
		}
	case strings.HasPrefix(face, " kubebatch"):
	default:
		head += w.pick("", "", " nonpreemptible") + w.near()
	}
	shape := " gpu=" + w.pick("0", "1", "1", "2", "4") + " cpu=" + w.pick("0", "1", "1", "2", "4") + gate
	if w.one(8) {
		shape += " selector=zone=" + w.pick("z0", "z1", "z9")
	}
	if face != " upstream" && !strings.HasPrefix(face, " kubebatch") && w.one(4) {
		if w.one(3) {
			head += " min=" + w.pick("1", "2", "4")
		}
		return []string{head + shape, fmt.Sprintf("  set s pods=%d min=%d", k, least), fmt.Sprintf("  set t pods=2 min=%d", w.r.IntN(3))}
	}
	return []string{fmt.Sprintf("%s pods=%d min=%d%s", head, k, least, shape) + w.place(k)}
}

// volcanoQueue is a queue of Volcano's as a manifest.
func (w *facesWild) volcanoQueue(name string) string {
	spec := []string{"weight: " + w.pick("1", "1", "2", "7")}
	amounts := func() string {
		return fmt.Sprintf("{cpu: %q, nvidia.com/gpu: %q}", w.pick("1", "4", "8"), w.pick("0", "1", "2", "8"))
	}
	if w.one(3) {
		spec = append(spec, "capability: "+amounts())
	}
	if w.one(2) {
		spec = append(spec, "deserved: "+amounts())
	}
	if w.one(6) {
		spec = append(spec, "guarantee: {resource: {cpu: \"1\", nvidia.com/gpu: \"1\"}}")
	}
	if w.one(3) {
		spec = append(spec, "dequeueStrategy: "+w.pick("fifo", "fifo", "traverse"))
	}
	if w.one(5) {
		spec = append(spec, "reclaimable: false")
	}
	if w.one(4) {
		spec = append(spec, "priority: "+w.pick("1", "5"))
	}
	if w.one(5) {
		spec = append(spec, "parent: "+w.pick("root", "v1", "default", "nowhere"))
	}
	status := ""
	if w.one(10) {
		status = ", status: {state: " + w.pick("Closed", "Closing", "Open") + "}"
	}
	return fmt.Sprintf("manifest {apiVersion: scheduling.volcano.sh/v1beta1, kind: Queue, metadata: {name: %s}, spec: {%s}%s}", name, strings.Join(spec, ", "), status)
}

// batchQueue is a queue of kube-batch's as a manifest, of either of its groups.
func (w *facesWild) batchQueue() string {
	kinds, names := []string{"scheduling.incubator.k8s.io/v1alpha1", "scheduling.sigs.dev/v1alpha2"}, []string{"one", "two", "default"}
	return fmt.Sprintf("manifest {apiVersion: %s, kind: Queue, metadata: {name: %s}, spec: {weight: %d}}", kinds[w.batch.IntN(2)], names[w.batch.IntN(3)], 1+w.batch.IntN(3))
}

func (w *facesWild) nodeShard() string {
	var nodes []string
	for i := range w.nodes {
		if w.one(2) {
			nodes = append(nodes, fmt.Sprintf("n%d", i+1))
		}
	}
	name, list := w.pick("volcano", "volcano", "agent-scheduler"), "["+strings.Join(nodes, ", ")+"]"
	return fmt.Sprintf("manifest {apiVersion: shard.volcano.sh/v1alpha1, kind: NodeShard, metadata: {name: %s}, spec: {nodesDesired: %s}, status: {nodesInUse: %s}}", name, list, w.pick("[]", list))
}

func (w *facesWild) hyperNode() string {
	if w.one(3) {
		return "manifest {apiVersion: topology.volcano.sh/v1alpha1, kind: HyperNode, metadata: {name: top}, spec: {tier: 2, members: [{type: HyperNode, selector: {regexMatch: {pattern: ^h}}}]}}"
	}
	k := w.r.IntN(3)
	return fmt.Sprintf("manifest {apiVersion: topology.volcano.sh/v1alpha1, kind: HyperNode, metadata: {name: h%d}, spec: {tier: 1, members: [{type: Node, selector: {labelMatch: {matchLabels: {rack: r%d}}}}]}}", k, w.r.IntN(3))
}

// file is a scheduler file of Volcano's, "" for none.
func (w *facesWild) file() string {
	if w.one(5) {
		return ""
	}
	actions := w.pick("enqueue, allocate, backfill", "enqueue, allocate, preempt, reclaim, backfill", "allocate, reclaim", "enqueue, allocate, gangpreempt, gangreclaim", "enqueue, allocate, reclaim, preempt")
	first, second := []string{"priority", "gang"}, []string{w.pick("proportion", "capacity")}
	if w.one(2) {
		first = append(first, "conformance")
	}
	for _, name := range []string{"overcommit", "drf", "predicates", "nodeorder", "binpack"} {
		if w.one(2) {
			second = append(second, name)
		}
	}
	if w.one(4) {
		first = append(first, w.pick("sla", "pdb", "cdp"))
	}
	if w.hyper && w.one(2) {
		second = append(second, "network-topology-aware")
	}
	if w.lent != nil {
		actions += ", shuffle"
		for _, name := range []string{"tdm", "rescheduling", "task-topology"} {
			if !w.lends(4) {
				second = append(second, name)
			}
		}
	}
	arguments := map[string]string{
		"tdm":          `{tdm.revocable-zone.night: "20:00-11:30", tdm.revocable-zone.day: "10:00-13:00"}`,
		"rescheduling": `{interval: 30s, strategies: [{name: lowNodeUtilization, params: {thresholds: {cpu: 50, nvidia.com/gpu: 50}, targetThresholds: {cpu: 60, nvidia.com/gpu: 60}}}]}`,
	}
	var b strings.Builder
	fmt.Fprintf(&b, "actions: %q\ntiers:\n", actions)
	for _, tier := range [][]string{first, second} {
		b.WriteString("- plugins:\n")
		for _, name := range tier {
			fmt.Fprintf(&b, "  - name: %s\n", name)
			if text := arguments[name]; text != "" {
				fmt.Fprintf(&b, "    arguments: %s\n", text)
			}
		}
	}
	return b.String()
}

// batchFile is a scheduler file of kube-batch's, "" for that which is compiled into it.
func (w *facesWild) batchFile() string {
	if w.batches(4) {
		return ""
	}
	actions := []string{"reclaim, allocate, backfill, preempt", "allocate, backfill, reclaim", "allocate, preempt"}[w.batch.IntN(3)]
	text := fmt.Sprintf("actions: %q\ntiers:\n- plugins:\n  - name: priority\n  - name: gang\n- plugins:\n  - name: predicates\n", actions)
	for _, name := range []string{"conformance", "drf", "proportion", "proportion", "nodeorder"} {
		if w.batch.IntN(2) == 0 && !strings.Contains(text, name) {
			text += "  - name: " + name + "\n"
		}
	}
	return text
}

func (w *facesWild) command() []string {
	if w.batches(16) {
		return []string{w.batchQueue()}
	}
	switch w.r.IntN(20) {
	case 0, 1, 2, 3:
		w.gangs++
		return w.gangLines(fmt.Sprintf("g%d", w.gangs))
	case 4, 5:
		return []string{w.volcanoQueue(w.pick("v1", "v2", "v3", "default"))}
	case 6:
		if w.shards {
			return []string{w.nodeShard()}
		}
		if w.hyper {
			return []string{w.hyperNode()}
		}
		return []string{"edit queue " + w.pick("a", "b", "c", "a/a1", "b/b2") + w.queueAttrs()}
	case 7, 8:
		return []string{"ungate gang " + w.gang() + " gate=kueue.x-k8s.io/admission"}
	case 9:
		return []string{"ungate " + w.pods() + " gate=kueue.x-k8s.io/admission"}
	case 10:
		return []string{"delete gang " + w.gang()}
	case 11:
		return []string{"end " + w.pods()}
	}
	return w.wild.command()
}

func facesStory(seed int) (story [][]string, options string) {
	w := &facesWild{wild: wild{r: rand.New(rand.NewPCG(78, uint64(seed))), kinds: map[string]bool{}}}
	w.kinds["topology"], w.gates, w.shards, w.hyper = w.one(3), w.one(3), w.one(3), w.one(3)
	if lent := rand.New(rand.NewPCG(79, uint64(seed))); lent.IntN(2) == 0 {
		w.lent = lent
	}
	if batch := rand.New(rand.NewPCG(80, uint64(seed))); batch.IntN(2) == 0 {
		w.batch = batch
	}
	if w.kinds["topology"] {
		story = append(story, []string{"topology dc levels=zone,rack"})
	}
	w.nodes = 1 + w.r.IntN(6)
	for i := range w.nodes {
		story = append(story, []string{w.nodeLine(i + 1)})
	}
	for _, l := range w.queueLines() {
		story = append(story, []string{l})
	}
	for _, name := range []string{"default", "v1", "v2", "v3"} {
		story = append(story, []string{w.volcanoQueue(name)})
	}
	for range 3 {
		if w.batch != nil {
			story = append(story, []string{w.batchQueue()})
		}
		if w.hyper {
			story = append(story, []string{w.hyperNode()})
		}
		if w.shards {
			story = append(story, []string{w.nodeShard()})
		}
	}
	for range 3 + w.r.IntN(6) {
		w.gangs++
		story = append(story, w.gangLines(fmt.Sprintf("g%d", w.gangs)))
	}
	for range 8 + w.r.IntN(22) {
		story = append(story, w.command())
		if w.one(2) {
			story = append(story, []string{"settle"})
		} else if w.one(4) {
			story = append(story, []string{"cycle"})
		}
	}
	story = append(story, []string{"settle"})
	options = "volcano\n"
	if w.batch != nil {
		options += "kube-batch\n"
	}
	if w.gates {
		options += "queue-gates\n"
	}
	if w.shards {
		options += "sharding " + w.pick("hard", "soft") + " volcano\n"
	}
	if w.one(4) {
		options += "moved-count\n"
	}
	if file := w.file(); file != "" {
		options += "-- " + sectionVolcano + " --\n" + file
	}
	if w.batch != nil {
		if file := w.batchFile(); file != "" {
			options += "-- " + sectionKubeBatch + " --\n" + file
		}
	}
	return story, options
}
