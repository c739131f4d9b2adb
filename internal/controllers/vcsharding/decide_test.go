package vcsharding

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/muster-scheduler/muster/api/volcano/keys"
	shard "github.com/muster-scheduler/muster/api/volcano/shard/v1alpha1"
)

// machine is a node of 10 CPUs.
func machine(name string, warm bool) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("10")}}}
	if warm {
		n.Labels = map[string]string{keys.WarmNode: "true"}
	}
	return n
}

// load is a pod on a node that asks for so many CPUs.
func load(on string, cpu int) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "load-" + on, UID: types.UID("load-" + on)},
		Spec: corev1.PodSpec{NodeName: on, Containers: []corev1.Container{{Name: "c", Image: "i", Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceCPU: *resource.NewQuantity(int64(cpu), resource.DecimalSI)},
		}}}},
	}
}

func nodeShard(name string, made bool, nodes ...string) *shard.NodeShard {
	s := &shard.NodeShard{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: shard.NodeShardSpec{NodesDesired: nodes}}
	if made {
		s.Labels = map[string]string{keys.ShardSource: keys.ShardSourceController}
	}
	return s
}

// world is what is told of a cluster: nodes as NAME[*]=CPUs asked for, * for a warm one, and NodeShards as NAME:NODE,NODE.
func world(t interface{ Fatal(...any) }, conf, nodes, shards string) *book {
	b := newBook()
	c, err := readConfig(conf)
	if err != nil {
		t.Fatal(err)
	}
	b.config = c
	for _, text := range strings.Fields(nodes) {
		name, amount, _ := strings.Cut(text, "=")
		cpu, err := strconv.Atoi(amount)
		if err != nil {
			t.Fatal(err)
		}
		name, warm := strings.CutSuffix(name, "*")
		b.nodeSeen(machine(name, warm), false)
		b.podSeen(load(name, cpu), false)
	}
	for _, text := range strings.Fields(shards) {
		name, list, _ := strings.Cut(text, ":")
		name, strange := strings.CutSuffix(name, "!")
		b.shardSeen(nodeShard(name, !strange, strings.FieldsFunc(list, func(r rune) bool { return r == ',' })...), false)
	}
	return b
}

// play writes what a plan says into the book, as the API server's events would.
func (b *book) play(p plan) (writes int) {
	for _, s := range p.remove {
		b.shardSeen(s, true)
	}
	for _, c := range slices.Concat(p.change, p.create) {
		b.shardSeen(nodeShard(c.name, true, c.nodes...), false)
	}
	return len(p.remove) + len(p.change) + len(p.create)
}

func (b *book) text() string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(b.shards)) {
		out = append(out, name+":"+strings.Join(b.shards[name].Spec.NodesDesired, ","))
	}
	return strings.Join(out, " ")
}

// rest plays plans until there is nothing to write.
func (b *book) rest() string {
	for range 10 {
		p, _ := b.decide(time.Unix(0, 0))
		if b.play(p) == 0 {
			return b.text()
		}
	}
	return "it does not come to rest"
}

// TestDivide: who gets which nodes.
func TestDivide(t *testing.T) {
	t.Parallel()
	pair := func(a, b string) string {
		return "schedulerConfigs: [{name: a, policies: [" + a + "]}, {name: b, policies: [" + b + "]}]"
	}
	limit := func(least, most int) string {
		return fmt.Sprintf("{name: node-limit, arguments: {minNodes: %d, maxNodes: %d}}", least, most)
	}
	for what, c := range map[string]struct{ conf, nodes, shards, want string }{
		"by what is asked for": {conf, "n1=8 n2=3 n3=7 n4=0", "", "agent-scheduler:n1,n3 volcano:n2,n4"},
		"both forms":           {older, "n1=8 n2=3 n3=7 n4=0", "", "agent-scheduler:n1,n3 volcano:n2,n4"},
		"more than there is":   {conf, "n1=12 n2=3", "", "agent-scheduler:n1 volcano:n2"},
		"none of the range: one is given all the same":              {conf, "n1=0 n2=0", "", "agent-scheduler:n1 volcano:n2"},
		"which one follows from what there is, not from who had it": {conf, "n1=0 n2=0 n3=0", "agent-scheduler:n3 volcano:n1,n2", "agent-scheduler:n1 volcano:n2,n3"},
		"the nearest is given":                                      {conf, "n1=1 n2=3 n3=0", "", "agent-scheduler:n2 volcano:n1,n3"},
		"one of its range comes":                                    {conf, "n1=9 n2=0 n3=0", "agent-scheduler:n3 volcano:n1,n2", "agent-scheduler:n1 volcano:n2,n3"},
		"nobody gives what he needs himself":                        {conf, "n1=0", "", "agent-scheduler: volcano:n1"},
		"no node":                                                   {conf, "", "", "agent-scheduler: volcano:"},
		"between ranges it stays": {
			"schedulerConfigs: [{name: a, cpuUtilizationMin: 0.8}, {name: b, cpuUtilizationMax: 0.2}]", "n1=5 n2=5 n3=5", "a:n1 b:n2", "a:n1 b:n2",
		},
		"at most":            {pair(limit(0, 2), limit(0, 1)), "n1=0 n2=0 n3=0 n4=0", "", "a:n1,n2 b:n3"},
		"who has them keeps": {pair(limit(0, 2), limit(0, 1)), "n1=0 n2=0 n3=0 n4=0", "a:n3,n4 b:n1", "a:n3,n4 b:n1"},
		"at least":           {pair(limit(0, 5), limit(2, 5)), "n1=0 n2=0 n3=0", "", "a:n3 b:n1,n2"},
		"warm ones first":    {pair("{name: warmup}, "+limit(0, 1), limit(0, 5)), "n1=0 n2*=0 n3=0", "", "a:n2 b:n1,n3"},
		"without warmup":     {pair(limit(0, 1), limit(0, 5)), "n1=0 n2*=0 n3=0", "", "a:n1 b:n2,n3"},
		"a node is gone":     {conf, "n1=0 n2=0", "agent-scheduler:n3 volcano:n1,n2,n4", "agent-scheduler:n1 volcano:n2"},
		"a NodeShard that nobody names is deleted, if the controller made it": {conf, "n1=9 n2=0", "old:n1", "agent-scheduler:n1 volcano:n2"},
		"one of somebody else's keeps its nodes":                              {conf, "n1=9 n2=0 n3=9", "theirs!:n1", "agent-scheduler:n3 theirs:n1 volcano:n2"},
		"one that somebody made is the scheduler's if it has its name":        {conf, "n1=9 n2=0", "volcano!:n1", "agent-scheduler:n1 volcano:n2"},
		"a node that is in two":                                               {conf, "n1=9 n2=0", "agent-scheduler:n1 volcano:n1", "agent-scheduler:n1 volcano:n2"},
	} { // order: each on its own
		b := world(t, c.conf, c.nodes, c.shards)
		if got := b.rest(); got != c.want {
			t.Errorf("%s: %s, want %s", what, got, c.want)
		}
	}
}

// TestMoves: a node that moves is in no NodeShard between: it is given up, and given once that is seen.
func TestMoves(t *testing.T) {
	t.Parallel()
	b := world(t, conf, "n1=9 n2=0 n3=0", "agent-scheduler:n3 volcano:n1,n2")
	p, again := b.decide(time.Unix(0, 0))
	if b.play(p); b.text() != "agent-scheduler: volcano:n2" || !again.Equal(time.Unix(1, 0)) {
		t.Errorf("first: %s, again %v", b.text(), again)
	}
	p, again = b.decide(time.Unix(1, 0))
	if b.play(p); b.text() != "agent-scheduler:n1 volcano:n2,n3" || !again.Equal(time.Unix(61, 0)) {
		t.Errorf("then: %s, again %v", b.text(), again)
	}
}

// TestExclusive: whatever there is, and whichever of the writes come to pass, in any order, no node that was in one NodeShard at most is ever in two; it comes to rest, and then
// nothing is written; and then who has fewer than the least could have got no more.
func TestExclusive(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		b := world(t, conf, "", "")
		for i := range b.config.schedulers {
			s := &b.config.schedulers[i]
			s.least = rapid.IntRange(0, 3).Draw(t, "least")
			s.most = s.least + rapid.IntRange(0, 3).Draw(t, "more")
			s.from = int64(rapid.IntRange(0, 10).Draw(t, "from")) * whole / 10
			s.to = min(whole, s.from+int64(rapid.IntRange(0, 10).Draw(t, "range"))*whole/10)
		}
		names := []string{"n1", "n2", "n3", "n4", "n5", "n6"}
		of := map[string][]string{}
		for _, n := range names {
			if name := rapid.SampledFrom([]string{"agent-scheduler", "volcano", "old", "theirs", ""}).Draw(t, "in"); name != "" {
				of[name] = append(of[name], n)
			}
		}
		for name, nodes := range of { // order: a set
			b.shardSeen(nodeShard(name, name != "theirs", nodes...), false)
		}
		stir := func() {
			for _, n := range names {
				b.nodeSeen(machine(n, rapid.Bool().Draw(t, "warm")), rapid.IntRange(0, 5).Draw(t, "gone") == 0)
				b.podSeen(load(n, rapid.IntRange(0, 11).Draw(t, "cpu")), false)
			}
		}
		check := func() {
			seen := map[string]string{}
			for name, s := range b.shards { // order: any
				for _, n := range s.Spec.NodesDesired {
					if seen[n] != "" {
						t.Fatalf("node %s is in %s and %s", n, seen[n], name)
					}
					seen[n] = name
				}
			}
		}
		for range 5 {
			stir()
			p, _ := b.decide(time.Unix(0, 0))
			one := func(part plan) {
				if rapid.Bool().Draw(t, "fails") {
					return
				}
				b.play(part)
				check()
			}
			var parts []plan
			for _, s := range p.remove {
				parts = append(parts, plan{remove: []*shard.NodeShard{s}})
			}
			for _, c := range p.change {
				parts = append(parts, plan{change: []change{c}})
			}
			for _, c := range p.create {
				parts = append(parts, plan{create: []change{c}})
			}
			for _, part := range rapid.Permutation(parts).Draw(t, "order") {
				one(part)
			}
		}
		if text := b.rest(); !strings.Contains(text, ":") {
			t.Fatal(text)
		}
		check()
	})
}

// TestLarge: 5,000 nodes.
func TestLarge(t *testing.T) {
	t.Parallel()
	b := world(t, strings.Replace(conf, `"100"`, "3000", 1), "", "")
	for i := range 5000 {
		name := fmt.Sprintf("node-%04d", i)
		b.nodeSeen(machine(name, false), false)
		b.podSeen(load(name, i%2*9), false)
	}
	if b.rest(); len(b.shards["agent-scheduler"].Spec.NodesDesired) != 2500 || len(b.shards["volcano"].Spec.NodesDesired) != 2500 {
		t.Errorf("%d and %d nodes", len(b.shards["agent-scheduler"].Spec.NodesDesired), len(b.shards["volcano"].Spec.NodesDesired))
	}
}

// TestPods: what is asked for follows pods that come, move, end and go.
func TestPods(t *testing.T) {
	t.Parallel()
	b := world(t, conf, "n1=0 n2=0", "")
	step := func(p *corev1.Pod, gone bool, one, two int64) {
		t.Helper()
		b.podSeen(p, gone)
		if b.used("n1") != one || b.used("n2") != two {
			t.Errorf("used are %d and %d, want %d and %d", b.used("n1"), b.used("n2"), one, two)
		}
	}
	p := load("n1", 5)
	step(p, false, whole/2, 0)
	step(p, false, whole/2, 0)
	ended := p.DeepCopy()
	ended.Status.Phase = corev1.PodSucceeded
	step(ended, false, 0, 0)
	step(p, false, whole/2, 0)
	step(p, true, 0, 0)
	step(p, true, 0, 0)
	waits := load("", 5)
	step(waits, false, 0, 0)
	if len(b.pods)+len(b.asked) > 0 {
		t.Errorf("%v and %v stay", b.pods, b.asked)
	}
}
