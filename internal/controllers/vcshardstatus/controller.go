// Package vcshardstatus is what a scheduler tells others in the status of its NodeShard: the nodes that it has in use, those that it is giving up, and those that it waits for.
// What that is package nodeshards says, by which the scheduler reads the NodeShard too; here it is watched for and written.
package vcshardstatus

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	shard "github.com/muster-scheduler/muster/api/volcano/shard/v1alpha1"
	"github.com/muster-scheduler/muster/internal/dialect/volcano/nodeshards"
	"github.com/muster-scheduler/muster/internal/kube/control"
	"github.com/muster-scheduler/muster/internal/kube/write"
)

// settle is how long a change waits to be looked at, so that those of many nodes are looked at together.
const settle = time.Second

// plan is the status that a NodeShard is to have; without one nothing is written.
type plan struct {
	about *shard.NodeShard
	next  *shard.NodeShardStatus
}

// Controller keeps the status of one NodeShard.
type Controller struct {
	*control.Controller[string, plan]
	kit *write.Kit
}

// New returns the controller, not yet running. name is that of the NodeShard.
func New(s control.Shell, name string) (*Controller, error) {
	book, nodes, c := nodeshards.New(), map[string]bool{}, &Controller{}
	kit, err := write.New(s.Client, "vcshardstatus", s.Registry)
	if err != nil {
		return nil, fmt.Errorf("vcshardstatus: %w", err)
	}
	c.kit = kit
	c.Controller, err = control.NewController(s, control.Role[string, plan]{
		Name: "vcshardstatus", Workers: 1, MinRetry: time.Second, MaxRetry: time.Minute,
		Decide: func(_ string, now time.Time) (plan, []control.Due[string], time.Time) {
			next, again := book.Status(name, func(node string) bool { return nodes[node] }, now)
			return plan{book.Shards[name], next}, nil, again
		},
		Write: c.write,
	})
	if err != nil {
		return nil, err
	}
	control.Watch(c.Loop, &corev1.Node{}, func(n *corev1.Node, gone bool) []control.Due[string] {
		news := nodes[n.Name] == gone
		if nodes[n.Name] = true; gone {
			delete(nodes, n.Name)
		}
		return control.If(news, name, settle)
	})
	control.WatchLater(c.Loop, &shard.NodeShard{}, func(s *shard.NodeShard, gone bool) []control.Due[string] {
		others := book.Seen(s, gone)
		return control.If(s.Name == name || others, name, settle)
	})
	return c, nil
}

// write writes the status.
func (c *Controller) write(ctx context.Context, p plan) error {
	if p.next == nil {
		return nil
	}
	body := write.Body(map[string]any{"metadata": map[string]any{"uid": p.about.UID}, "status": map[string]any{
		"lastUpdateTime": p.next.LastUpdateTime, "nodesInUse": p.next.NodesInUse, "nodesToRemove": p.next.NodesToRemove, "nodesToAdd": p.next.NodesToAdd,
	}})
	_, err := c.kit.MergeStatus(ctx, &shard.NodeShard{ObjectMeta: metav1.ObjectMeta{Name: p.about.Name}}, body)
	return err
}
