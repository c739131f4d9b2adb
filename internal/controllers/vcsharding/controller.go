package vcsharding

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-scheduler/muster/api/volcano/keys"
	shard "github.com/muster-scheduler/muster/api/volcano/shard/v1alpha1"
	"github.com/muster-scheduler/muster/internal/kube/control"
	"github.com/muster-scheduler/muster/internal/kube/textfile"
	"github.com/muster-scheduler/muster/internal/kube/write"
)

// settle is how long a change waits to be looked at, so that those of many nodes are looked at together.
const settle = time.Second

// everything is the one key that there is.
const everything = ""

// Controller is the controller of NodeShards.
type Controller struct {
	*control.Controller[string, plan]
	kit  *write.Kit
	book *book
	told string // the last complaint about the configuration
}

// New returns the controller, not yet running. It does nothing before Configure tells it of a configuration.
func New(s control.Shell) (*Controller, error) {
	c := &Controller{book: newBook()}
	kit, err := write.New(s.Client, "vcsharding", s.Registry)
	if err != nil {
		return nil, fmt.Errorf("vcsharding: %w", err)
	}
	c.kit = kit
	c.Controller, err = control.NewController(s, control.Role[string, plan]{
		Name: "vcsharding", Workers: 1, MinRetry: time.Second, MaxRetry: 3 * time.Minute,
		Decide: func(_ string, now time.Time) (plan, []control.Due[string], time.Time) {
			p, again := c.book.decide(now)
			return p, nil, again
		},
		Write: c.write,
	})
	if err != nil {
		return nil, err
	}
	control.Watch(c.Loop, &corev1.Node{}, func(n *corev1.Node, gone bool) []control.Due[string] {
		return due(c.book.nodeSeen(n, gone) && c.book.config != nil && c.book.config.events)
	})
	control.Watch(c.Loop, &corev1.Pod{}, func(p *corev1.Pod, gone bool) []control.Due[string] {
		c.book.podSeen(p, gone)
		return nil
	})
	control.WatchLater(c.Loop, &shard.NodeShard{}, func(s *shard.NodeShard, gone bool) []control.Due[string] {
		return due(c.book.shardSeen(s, gone))
	})
	return c, nil
}

func due(news bool) []control.Due[string] { return control.If(news, everything, settle) }

// Configure takes in the configuration as it stands. A bad one is refused whole, while that before it rules on, and is told; without one NodeShards stay as they are. It is
// called by one goroutine at a time.
func (c *Controller) Configure(f textfile.Found) {
	var read *config
	why := f.Why
	if why == "" {
		var err error
		if read, err = readConfig(string(f.Text)); err != nil {
			why = err.Error()
		}
	}
	gone := f.Why != "" && f.About == nil
	if why == "" || gone {
		c.Lock()
		c.book.config = read
		c.Add(due(true)...)
		c.Unlock()
	}
	if why == c.told && why != "" {
		return
	}
	switch c.told = why; {
	case why == "" && read.odd != "":
		c.Shell.Log.Info("the configuration of sharding was understood in part", "problem", read.odd)
	case why == "":
	case gone:
		c.Shell.Log.Info("there is no configuration of sharding: NodeShards stay as they are", "problem", why)
	default:
		c.Shell.Log.Error(errors.New(why), "the configuration of sharding is refused, and the one before it rules")
		c.Say(f.About, control.Note{Warning: true, Reason: "InvalidConfiguration", Message: "the configuration is refused, and the one before it rules: " + why})
	}
}

// write carries a plan out. What one NodeShard is refused keeps no other from its own: a node that it has still is not another's before it has given it up.
func (c *Controller) write(ctx context.Context, p plan) error {
	var errs []error
	for _, s := range p.remove {
		_, err := c.kit.Delete(ctx, s.DeepCopy())
		errs = append(errs, err)
	}
	for _, one := range p.change {
		body := write.Body(map[string]any{"metadata": map[string]any{"uid": one.shard.UID}, "spec": map[string]any{"nodesDesired": one.nodes}})
		_, err := c.kit.Merge(ctx, &shard.NodeShard{ObjectMeta: metav1.ObjectMeta{Name: one.name}}, body)
		errs = append(errs, err)
	}
	for _, one := range p.create {
		s := &shard.NodeShard{ObjectMeta: metav1.ObjectMeta{Name: one.name, Labels: map[string]string{keys.ShardSource: keys.ShardSourceController}}, Spec: shard.NodeShardSpec{NodesDesired: one.nodes}}
		if err := c.Shell.Client.Create(ctx, s); err != nil && !apierrors.IsAlreadyExists(err) {
			errs = append(errs, fmt.Errorf("create NodeShard %s: %w", one.name, err))
		}
	}
	return errors.Join(errs...)
}
