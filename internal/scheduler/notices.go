package scheduler

import (
	"fmt"
	"strings"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-scheduler/muster/api/kai/keys"
	"github.com/muster-scheduler/muster/api/scheduling/v1alpha2"
	queuev2 "github.com/muster-scheduler/muster/api/scheduling/v2"
	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/kube/feed"
)

// problems tells, once each, what is wrong with objects: in the log, and for queues and pods by an event, too. What is wrong with a
// gang is its reason for waiting, and is told as such.
func (l *Loop) problems(c *cycle) {
	if c.snap == nil { // the first look will know the objects
		return
	}
	now := l.feed.Problems()
	pods := map[string]string{}
	for object, text := range now { // order: each problem on its own
		if c.problems[object] == text {
			continue
		}
		c.log.Info("an object is not as it should be", "object", object, "problem", text)
		if name, ok := strings.CutPrefix(object, "Queue "); ok {
			about := &queuev2.Queue{ObjectMeta: metav1.ObjectMeta{Name: name}}
			if q := c.snap.QueueByName(name); q != nil {
				about.UID = types.UID(q.UID)
			}
			l.o.Event(about, v1.EventTypeWarning, "InvalidQueue", text)
		}
		if name, ok := strings.CutPrefix(object, "Pod "); ok {
			pods[name] = text
		}
	}
	if len(pods) > 0 {
		c.snap.EachPod(func(p *cluster.Pod) {
			if text, ok := pods[p.FullName()]; ok && p.NodeName == "" {
				l.o.Event(&v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name, UID: types.UID(p.UID)}}, v1.EventTypeWarning, "SchedulingGroup", text)
			}
		})
	}
	c.problems = now
}

// overcommitted tells, once each, of nodes on which more is used than there is. We never decide so: a pod of another
// scheduler or a static pod took the room, a pod was resized, or devices failed. The engine sees negative room there and
// places nothing further. It costs one comparison per node and dimension.
func (l *Loop) overcommitted(c *cycle) {
	full := map[string]bool{}
	for _, id := range c.snap.NodeOrder {
		n := c.snap.Node(id)
		text := overuse(c.snap.Dims, n)
		if text == "" {
			continue
		}
		full[n.Name] = true
		if !c.full[n.Name] {
			c.log.Info("a node is overcommitted", "node", n.Name, "use", text)
			l.o.Event(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.Name, UID: types.UID(n.UID)}}, v1.EventTypeWarning, "Overcommitted",
				text+"; nothing further is placed here until its pods fit")
		}
	}
	c.full = full
	l.metrics.overcommitted.Set(float64(len(full)))
}

// forged tells of a BindRequest that names no pod as its owner, and is therefore deleted: there is no pod whose user could be
// told.
func (l *Loop) forged(stale *feed.StaleBindRequest) {
	about := &v1alpha2.BindRequest{ObjectMeta: metav1.ObjectMeta{Namespace: stale.Namespace, Name: stale.Name, UID: stale.UID}}
	l.o.Event(about, v1.EventTypeWarning, "Withdrawn", fmt.Sprintf(
		"BindRequest %s/%s: metadata.ownerReferences names no pod %s, so it is not known which pod is meant; the request is deleted",
		stale.Namespace, stale.Name, stale.Pod))
}

// bindFailed tells a pod that a decision for it came to nothing, as KAI's scheduler does.
func (l *Loop) bindFailed(namespace, name string, uid types.UID, text string) {
	about := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: uid}}
	l.o.Event(about, v1.EventTypeWarning, keys.EventFailedBinding, text)
}

// overuse says of what more is used on a node than there is; "" for nothing.
func overuse(d cluster.Dims, n *cluster.Node) string {
	var parts []string
	for i := range d.Len() {
		used, have := n.Used.At(i), n.Allocatable.At(i)
		if used <= have {
			continue
		}
		text := fmt.Sprintf("pods hold %s of %s %s", d.FormatOne(i, used), d.FormatOne(i, have), d.Name(i))
		if foreign := n.Foreign.At(i); foreign > 0 {
			text += fmt.Sprintf(", %s of it under other schedulers", d.FormatOne(i, foreign))
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, "; ")
}

// story logs what a plan decides, a line per bundle.
func story(log logr.Logger, p *engine.Plan, gangs map[cluster.Key]*cluster.Gang) {
	if !log.Enabled() {
		return
	}
	for i := range p.Bundles {
		b := &p.Bundles[i]
		n := map[engine.Verb]int{}
		for j := range b.Intents {
			n[b.Intents[j].Verb]++
		}
		queue := ""
		if g := gangs[b.Gang]; g != nil {
			queue = g.Queue
		}
		log.Info("decided", "gang", b.Gang.String(), "queue", queue, "bundle", b.ID, "action", p.Action,
			"binds", n[engine.Bind], "nominations", n[engine.Nominate], "evictions", n[engine.Evict])
	}
}
