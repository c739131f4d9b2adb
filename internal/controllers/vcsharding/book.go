package vcsharding

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-scheduler/muster/api/volcano/keys"
	shard "github.com/muster-scheduler/muster/api/volcano/shard/v1alpha1"
	"github.com/muster-scheduler/muster/internal/dialect/core"
	"github.com/muster-scheduler/muster/internal/entry"
)

// book is what the controller knows.
type book struct {
	config *config // nil: nothing is to be done
	nodes  map[string]node
	pods   map[types.UID]pod
	asked  map[string]int64 // by node, what pods on it ask for, in thousandths of a CPU
	shards map[string]*shard.NodeShard
}

type node struct {
	cpu  int64 // in thousandths
	warm bool
}

// pod is one that has a node and has not ended.
type pod struct {
	node string
	cpu  int64
}

func newBook() *book {
	return &book{nodes: map[string]node{}, pods: map[types.UID]pod{}, asked: map[string]int64{}, shards: map[string]*shard.NodeShard{}}
}

// nodeSeen takes in a node, and says whether it is another than before.
func (b *book) nodeSeen(n *corev1.Node, gone bool) bool {
	was, had := b.nodes[n.Name]
	if gone || n.DeletionTimestamp != nil {
		delete(b.nodes, n.Name)
		return had
	}
	is := node{cpu: n.Status.Allocatable.Cpu().MilliValue(), warm: n.Labels[keys.WarmNode] == "true"}
	b.nodes[n.Name] = is
	return !had || was != is
}

// podSeen takes in a pod.
func (b *book) podSeen(p *corev1.Pod, gone bool) {
	if was, had := b.pods[p.UID]; had {
		delete(b.pods, p.UID)
		if b.asked[was.node] -= was.cpu; b.asked[was.node] == 0 {
			delete(b.asked, was.node)
		}
	}
	if gone || p.Spec.NodeName == "" || p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
		return
	}
	is := pod{node: p.Spec.NodeName}
	for _, q := range core.Requests(p) {
		if q.Name == "cpu" {
			is.cpu = q.Value
		}
	}
	if is.cpu != 0 {
		b.pods[p.UID] = is
		b.asked[is.node] += is.cpu
	}
}

// shardSeen takes in a NodeShard, and says whether it came or went: one that somebody changes is put right in the next period.
func (b *book) shardSeen(s *shard.NodeShard, gone bool) bool {
	_, had := b.shards[s.Name]
	if b.shards[s.Name] = s; gone {
		delete(b.shards, s.Name)
	}
	return had == gone
}

// used is which part of a node's CPU is asked for, in millionths; more than there is counts as all.
func (b *book) used(name string) int64 {
	have, asked := b.nodes[name].cpu, b.asked[name]
	switch {
	case asked <= 0:
		return 0
	case asked >= have:
		return whole
	}
	return int64(float64(asked) / float64(have) * whole)
}

// holders says in which NodeShards each node is, as these say.
func (b *book) holders() map[string]map[string]bool {
	out := map[string]map[string]bool{}
	for name := range maps.Keys(b.shards) { // order: sets
		for _, n := range b.shards[name].Spec.NodesDesired {
			entry.Put(out, n, name, true)
		}
	}
	return out
}
