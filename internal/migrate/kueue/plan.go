package kueue

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/muster-scheduler/muster/api/kai/keys"
	queuev2 "github.com/muster-scheduler/muster/api/scheduling/v2"
	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/dialect/core"
)

// Never is the minimum runtime that stands for "is never preempted": ten years.
const Never = 87600 * time.Hour

// lastPriority is the priority of a queue that is served after all others of its siblings: one with weight 0.
const lastPriority = 1

// fixedPriority is the priority from which on work is not preempted, unless it says otherwise.
const fixedPriority = 100

// maxPriority is the largest value of a PriorityClass that is not the system's.
const maxPriority = 1_000_000_000

// ignoreUndeclared is the strategy of Kueue's by which a resource without a quota is not counted.
const ignoreUndeclared = "IgnoreUndeclared"

// Options are what the caller decides.
type Options struct {
	// CohortPrefix is put before the name of each cohort for that of its Queue.
	CohortPrefix string
}

// Plan is what a cluster's Kueue becomes. Where Refusals has something, the rest is not whole and is not to be used.
type Plan struct {
	// Queues have parents before what is below them.
	Queues          []queuev2.Queue              `json:"queues"`
	PriorityClasses []schedulingv1.PriorityClass `json:"priorityClasses"`
	Labels          []Label                      `json:"labels"`
	Losses          []Note                       `json:"losses"`
	Refusals        []Note                       `json:"refusals,omitempty"`
}

// Label is what takes the place of a label of Kueue's on workloads.
type Label struct {
	// Namespace is where; "" everywhere.
	Namespace string `json:"namespace,omitempty"`
	// Kueue and Muster are labels in the form KEY=VALUE, on one line each.
	Kueue  string `json:"kueue"`
	Muster string `json:"muster"`
}

// Labels of Kueue's on workloads.
const (
	QueueLabel    = Group + "/queue-name"
	PriorityLabel = Group + "/priority-class"
)

// planner gathers.
type planner struct {
	in      *Objects
	options Options
	out     Plan
	// names are all resources that any quota is of, sorted.
	names []string
}

func (p *planner) refuse(object, field, rule, instead string) {
	p.out.Refusals = append(p.out.Refusals, Note{object, field, rule, instead})
}

func (p *planner) lose(object, field, rule, instead string) {
	p.out.Losses = append(p.out.Losses, Note{object, field, rule, instead})
}

// Translate says what the objects become. It changes none of them. Its cost is that of the product of nodes and pairs of flavor and resource.
func Translate(in *Objects, options Options) *Plan {
	p := &planner{in: in, options: options, out: Plan{
		Queues: []queuev2.Queue{}, PriorityClasses: []schedulingv1.PriorityClass{}, Labels: []Label{},
		Losses: append([]Note{}, in.Losses...), Refusals: slices.Clone(in.Refusals),
	}}
	all := p.plant()
	if len(p.out.Refusals) == 0 {
		sum(all)
		p.resources(all)
		for _, n := range all {
			p.out.Queues = append(p.out.Queues, p.queue(n))
		}
		p.reclaim(all)
		p.clusterQueues()
	}
	p.flavors()
	p.localQueues()
	p.priorities()
	p.settings()
	return &p.out
}

// resources notes the resources that quotas are of, and what is known of none.
func (p *planner) resources(all []*node) {
	seen, gpus := map[string]bool{}, []string{}
	for _, n := range all {
		for key := range n.nominal { // order: a set
			seen[key.resource] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(seen)) {
		if name == "pods" {
			continue
		}
		p.names = append(p.names, name)
		if devices(name) > 0 {
			gpus = append(gpus, name)
		}
	}
	if len(gpus) > 1 {
		p.lose("ClusterQueues", "spec.resourceGroups[].coveredResources[]", brief(strings.Join(gpus, ", "))+" count together as spec.resources.gpu, slices as the GPUs of their names", "see docs/concepts/mig.md; those but nvidia.com/gpu are counted by their own names besides")
	}
	if len(all) > 0 {
		p.lose("ClusterQueues", "spec.resourceGroups[].coveredResources[]", "a resource that no quota is of is not limited; Kueue does not admit work that asks for it", "add it to spec.resources.extended")
	}
}

// devices is how many GPUs one of a resource counts as; 0 if it is none.
func devices(name string) int64 {
	if name == string(core.NvidiaGPU) || name == string(core.AMDGPU) {
		return 1
	}
	return cluster.SliceGPUs(name)
}

// queue is the Queue of a node whose numbers are known.
func (p *planner) queue(n *node) queuev2.Queue {
	q := queuev2.Queue{TypeMeta: metav1.TypeMeta{APIVersion: queuev2.GroupVersion.String(), Kind: "Queue"}, ObjectMeta: metav1.ObjectMeta{Name: n.name}}
	if n.parent != nil {
		q.Spec.ParentQueue = n.parent.name
	}
	weight := 1.0
	if n.weight != nil {
		if x, ok := p.quantity(n.about, "spec.fairSharing.weight", *n.weight); ok {
			switch weight = x.AsApproximateFloat64(); {
			case weight == 0:
				// Last of all in what quotas leave over, and yet not without: what Kueue's weight 0 says.
				weight, q.Spec.Priority = 1, ptr.To(lastPriority)
			case weight < 0.001:
				p.lose(n.about, "spec.fairSharing.weight", fmt.Sprintf("is %s; weights count in thousandths, and it becomes 0.001", brief(string(*n.weight))), "multiply the weights of all siblings")
				weight = 0.001
			case weight > 1e9:
				p.lose(n.about, "spec.fairSharing.weight", fmt.Sprintf("is %s; weights beyond 1e9 make no difference", brief(string(*n.weight))), "divide the weights of all siblings")
				weight = 1e9
			default:
				weight = math.Round(weight*1000) / 1000
			}
		}
	}
	q.Spec.Resources = &queuev2.QueueResources{}
	res := q.Spec.Resources
	var gpu amounts
	for _, name := range p.names {
		a := p.amounts(n, name)
		if count := devices(name); count > 0 {
			gpu.add(a, count)
		}
		switch name {
		case "cpu":
			res.CPU = p.resource(n, name, a, 1000, 1, weight)
		case "memory":
			res.Memory = p.resource(n, name, a, 1e-6, 1e6, weight)
		case string(core.NvidiaGPU):
		default:
			if res.Extended == nil {
				res.Extended = map[string]queuev2.QueueResource{}
			}
			res.Extended[name] = p.resource(n, name, a, 1, 1, weight)
		}
	}
	if !slices.Contains(p.names, string(core.NvidiaGPU)) {
		gpu.add(p.amounts(n, string(core.NvidiaGPU)), 1) // none, but not limited either where Kueue does not count them
	}
	res.GPU = p.resource(n, "GPUs", gpu, 1, 100, weight)
	for _, missing := range []struct {
		name string
		into *queuev2.QueueResource
	}{{"cpu", &res.CPU}, {"memory", &res.Memory}} {
		if !slices.Contains(p.names, missing.name) {
			*missing.into = p.resource(n, missing.name, p.amounts(n, missing.name), 1, 1, weight)
		}
	}
	if n.queue != nil {
		p.stop(n, &q)
		if w := policy(n.queue.Spec.Preemption, func(c *Preemption) string { return c.WithinClusterQueue }); w == "Never" {
			q.Spec.PreemptMinRuntime = &metav1.Duration{Duration: Never}
			p.lose(n.about, "spec.preemption.withinClusterQueue", "is Never: preemptMinRuntime of the Queue keeps a gang's minimum; pods above it can be evicted", "take preemptMinRuntime out to have higher priorities preempt")
		}
	}
	return q
}

// amounts are the numbers of a resource at a node.
type amounts struct {
	quota, most, above resource.Quantity // above is what the parent may hold at most
	open               bool              // not limited at all
	top                bool
}

func (a *amounts) add(b amounts, times int64) {
	for _, sum := range []struct{ to, of *resource.Quantity }{{&a.quota, &b.quota}, {&a.most, &b.most}, {&a.above, &b.above}} {
		x := sum.of.DeepCopy()
		x.Mul(times)
		sum.to.Add(x)
	}
	a.open = a.open || b.open
	a.top = b.top
}

func (p *planner) amounts(n *node, name string) amounts {
	a := amounts{quota: of(n.total, name), top: n.parent == nil, open: p.excluded(n, name)}
	a.most = plus(a.quota, of(n.extra, name))
	if n.parent != nil {
		a.above = plus(of(n.parent.total, name), of(n.parent.extra, name))
	}
	return a
}

// excluded says that Kueue does not count a resource for a queue, or for one below it.
func (p *planner) excluded(n *node, name string) bool {
	if n.queue == nil {
		return slices.ContainsFunc(n.children, func(c *node) bool { return p.excluded(c, name) })
	}
	prefixes := n.queue.Spec.ExcludeResourcePrefixes
	covered := false
	for key := range n.nominal { // order: any
		covered = covered || key.resource == name
	}
	if c := p.in.Config; c != nil {
		prefixes = append(slices.Clone(prefixes), c.Resources.ExcludeResourcePrefixes...)
		if c.Resources.QuotaCheckStrategy == ignoreUndeclared && !covered {
			return true
		}
	}
	return slices.ContainsFunc(prefixes, func(prefix string) bool { return prefix != "" && strings.HasPrefix(name, prefix) })
}

// resource writes numbers in a Queue's unit, which has so many per unit of Kueue's, and so many steps to one of its own.
func (p *planner) resource(n *node, name string, a amounts, per, steps, weight float64) queuev2.QueueResource {
	number := func(x resource.Quantity) float64 {
		v := x.AsApproximateFloat64() * per
		if v*unitOf(name) > cluster.MaxQuantity {
			return queuev2.Unlimited
		}
		return math.Round(v*steps) / steps
	}
	r := queuev2.QueueResource{Quota: number(a.quota), Limit: number(a.most), OverQuotaWeight: weight}
	exact := a.quota.AsApproximateFloat64() * per
	switch field := "spec.resourceGroups[].flavors[].resources[].nominalQuota"; {
	case r.Quota == queuev2.Unlimited:
		p.lose(n.about, field, fmt.Sprintf("%s of %s is beyond any cluster, and becomes -1, unlimited", a.quota.String(), brief(name)), "give a number that the cluster may have")
	case math.Abs(r.Quota-exact)*steps > 1e-3:
		p.lose(n.about, field, fmt.Sprintf("%s of %s is rounded to %v", a.quota.String(), brief(name), r.Quota), "")
	}
	if a.open || !a.top && a.most.Cmp(a.above) >= 0 && !a.most.IsZero() {
		r.Limit = queuev2.Unlimited
	}
	return r
}

// unitOf is how many of the scheduler's units one of a Queue's has.
func unitOf(name string) float64 {
	switch name {
	case "memory":
		return 1e6
	case "GPUs":
		return 1000
	}
	return 1
}

// stop closes the Queue of a ClusterQueue that is stopped.
func (p *planner) stop(n *node, q *queuev2.Queue) {
	how := n.queue.Spec.StopPolicy
	if how == "" || how == "None" {
		return
	}
	var was []string
	shut := func(name string, r queuev2.QueueResource) queuev2.QueueResource {
		if r.Limit != 0 {
			was = append(was, fmt.Sprintf("%s %v", brief(name), r.Limit))
			r.Limit = 0
		}
		return r
	}
	res := q.Spec.Resources
	res.CPU, res.Memory, res.GPU = shut("cpu", res.CPU), shut("memory", res.Memory), shut("gpu", res.GPU)
	for _, name := range slices.Sorted(maps.Keys(res.Extended)) {
		res.Extended[name] = shut(name, res.Extended[name])
	}
	rule := "is " + brief(how) + ": the limits of the Queue are 0, so that nothing starts in it"
	if how == "HoldAndDrain" {
		rule += "; what runs is not ended"
	}
	p.lose(n.about, "spec.stopPolicy", rule, "to open it, set the limits that it would have: "+strings.Join(was, ", "))
}

// policy is a preemption policy of a ClusterQueue, with Kueue's default.
func policy(c *Preemption, which func(*Preemption) string) string {
	if c == nil || which(c) == "" {
		return "Never"
	}
	return which(c)
}

func reclaiming(q *ClusterQueue) string {
	return policy(q.Spec.Preemption, func(c *Preemption) string { return c.ReclaimWithinCohort })
}

// reclaim keeps a tree in which nobody reclaims from being reclaimed from, and tells what cannot be kept.
func (p *planner) reclaim(all []*node) {
	for i, top := range all {
		if top.parent != nil || top.queue != nil {
			continue
		}
		var below []*node
		for walk := []*node{top}; len(walk) > 0; walk = walk[1:] {
			walk = append(walk, walk[0].children...)
			if walk[0].queue != nil {
				below = append(below, walk[0])
			}
		}
		never := func(n *node) bool { return reclaiming(n.queue) == "Never" }
		if len(below) == 0 {
			continue
		}
		if !slices.ContainsFunc(below, func(n *node) bool { return !never(n) }) {
			p.out.Queues[i].Spec.ReclaimMinRuntime = &metav1.Duration{Duration: Never}
			p.lose(top.about, "ClusterQueues' spec.preemption.reclaimWithinCohort", "none of them reclaims: reclaimMinRuntime of the Queue keeps a gang's minimum; pods above it can be taken back", "take reclaimMinRuntime out to have quotas taken back")
			continue
		}
		for _, n := range below {
			if never(n) {
				p.lose(n.about, "spec.preemption.reclaimWithinCohort", "is Never, and that of others of its cohort is not: work of this Queue takes back what is its own, as theirs does", "reclaimMinRuntime on the Queues that shall not give")
			}
		}
		if p.in.Config == nil || p.in.Config.FairSharing == nil {
			p.lose(top.about, "", "what quotas leave over is divided by weight, and taken back from who holds more than his share; in Kueue without fairSharing who comes first has it", "reclaimMinRuntime on the Queues that shall keep it for a time")
		}
	}
}

// priorities are the PriorityClasses.
func (p *planner) priorities() {
	seen := map[string]bool{}
	for i := range p.in.Priorities {
		c := &p.in.Priorities[i]
		about := called("WorkloadPriorityClass", "", c.Name)
		value, taken := p.in.Taken[c.Name]
		switch {
		case seen[c.Name]:
			p.refuse(about, "metadata.name", "a second one of that name was read", "leave one out")
			continue
		case taken && value != c.Value:
			p.refuse(about, "value", fmt.Sprintf("is %d, and the PriorityClass of that name has %d; Muster has one kind of class", c.Value, value), "give one of them another name")
			continue
		case strings.HasPrefix(c.Name, "system-"):
			p.refuse(about, "metadata.name", "begins with system-, as only Kubernetes' own PriorityClasses may", "give it another name")
			continue
		case c.Value > maxPriority:
			p.refuse(about, "value", fmt.Sprintf("is %d; that of a PriorityClass is at most %d", c.Value, maxPriority), "give it a smaller one")
			continue
		case len(c.Name) > maxName || !labelValue.MatchString(c.Name):
			p.refuse(about, "metadata.name", fmt.Sprintf("is no value of a label, by which work names its class: at most %d small letters, digits, hyphens and dots", maxName), "give it another name")
			continue
		}
		seen[c.Name] = true
		p.out.Labels = append(p.out.Labels, Label{Kueue: PriorityLabel + "=" + c.Name, Muster: keys.PriorityClassLabel + "=" + c.Name})
		if c.Value >= fixedPriority {
			p.lose(about, "value", fmt.Sprintf("is %d: work of priority %d and more is not preempted, and stays within quota", c.Value, fixedPriority), "the label "+keys.PreemptibilityLabel+"=preemptible on the workloads, or values below "+fmt.Sprint(fixedPriority))
		}
		if taken {
			continue // the one that is there will do
		}
		p.out.PriorityClasses = append(p.out.PriorityClasses, schedulingv1.PriorityClass{
			TypeMeta: metav1.TypeMeta{APIVersion: "scheduling.k8s.io/v1", Kind: "PriorityClass"}, ObjectMeta: metav1.ObjectMeta{Name: c.Name},
			Value: c.Value, Description: c.Description,
		})
	}
}
