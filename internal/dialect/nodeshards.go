package dialect

import (
	"fmt"

	"k8s.io/apimachinery/pkg/types"

	vcshard "github.com/muster-scheduler/muster/api/volcano/shard/v1alpha1"
	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/dialect/volcano/nodeshards"
)

// sharded is what is known of Volcano's NodeShards. Where sharding is off nothing ever is.
type sharded struct {
	sharding  nodeshards.Sharding
	shards    *nodeshards.Book
	inShard   map[string]bool // nodes that are this scheduler's, as of the last look
	resharded bool            // there is to be a look: a NodeShard changed, or a node came or went
}

func newSharded(s nodeshards.Sharding) sharded {
	return sharded{sharding: s, shards: nodeshards.New(), inShard: map[string]bool{}, resharded: s.On()}
}

// readNodeShard takes in a NodeShard.
func (t *Translator) readNodeShard(key types.NamespacedName, s *vcshard.NodeShard) {
	f, gone := &t.volcano.sharded, s == nil
	if gone {
		s = &vcshard.NodeShard{}
		s.Name = key.Name
	}
	f.resharded = f.shards.Seen(s, gone) && f.sharding.On() || f.resharded
}

// recheckNodeShards makes anew the events of nodes that are this scheduler's now, or not any more. It costs the names in NodeShards, after a change of them or of what nodes there are.
func (t *Translator) recheckNodeShards(apply func(cluster.Event)) {
	f := &t.volcano.sharded
	if !f.resharded {
		return
	}
	own := types.NamespacedName{Name: f.sharding.Name}
	t.one(VolcanoNodeShards, own, func() {
		f.resharded = false
		use, awaited := f.shards.Use(f.sharding.Name)
		was := f.inShard
		f.inShard = make(map[string]bool, len(use))
		lacking := 0
		for _, name := range use {
			if t.nodes[name] == nil {
				lacking++
			}
			f.inShard[name] = true
		}
		t.problem(VolcanoNodeShards, own, f.trouble(len(use), lacking, awaited))
		for name := range f.inShard { // order: each node on its own
			if n := t.nodes[name]; n != nil && !was[name] {
				t.tellNode(n, apply)
			}
		}
		for name := range was { // order: the same
			if n := t.nodes[name]; n != nil && !f.inShard[name] {
				t.tellNode(n, apply)
			}
		}
	})
}

// trouble says what is wrong with this scheduler's NodeShard, "" for nothing.
func (f *sharded) trouble(use, lacking int, awaited []string) string {
	consequence := "no pod of Volcano's is placed on any node"
	if f.sharding.Mode == nodeshards.Soft {
		consequence = "pods of Volcano's are placed on all nodes alike"
	}
	switch {
	case f.shards.Shards[f.sharding.Name] == nil:
		return "There is no such NodeShard: " + consequence + "."
	case len(awaited) > 0:
		return fmt.Sprintf("Other NodeShards have %d of its nodes in use, node %s among them; they are waited for.", len(awaited), awaited[0])
	case use == lacking:
		return "It names no node that there is: " + consequence + "."
	case lacking > 0:
		return fmt.Sprintf("%d of the nodes that it names are not there.", lacking)
	}
	return ""
}

// keep has a pod of Volcano's keep to this scheduler's nodes, or prefer them.
func (f *sharded) keep(st *cluster.PodState) {
	switch f.sharding.Mode {
	case nodeshards.Hard:
		st.Spec.Within = f.sharding.Name
	case nodeshards.Soft:
		st.Spec.Prefers = f.sharding.Name
	case nodeshards.None:
	}
}

// place says of a node whether it is this scheduler's.
func (f *sharded) place(st *cluster.NodeState) {
	if f.inShard[st.Name] {
		st.Sets = []string{f.sharding.Name}
	}
}
