package queue

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v2 "github.com/muster-scheduler/muster/api/scheduling/v2"
	model "github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/dialect/devices"
)

// The reasons of a queue's conditions.
const (
	reasonParentNotFound = "ParentNotFound"
	reasonParentCycle    = "ParentCycle"
	reasonParentFound    = "ParentFound"
	reasonOverQuota      = "AllocatedAboveQuota"
	reasonWithinQuota    = "AllocatedWithinQuota"
)

// shownCycle bounds the names of a circle that a message lists.
const shownCycle = 10

// conditions are the queue's conditions as they should be, and whether they differ from the observed ones. Foreign
// conditions stay as they are; ours appear when they are first true and then stay, true or false.
func (n *node) conditions(now time.Time) (list []v2.QueueCondition, changed bool) {
	list = n.observed.Conditions
	set := func(c v2.QueueCondition) {
		i := slices.IndexFunc(list, func(o v2.QueueCondition) bool { return o.Type == c.Type })
		if i < 0 && c.Status != corev1.ConditionTrue {
			return
		}
		if i >= 0 && list[i].Status == c.Status && list[i].Reason == c.Reason && list[i].Message == c.Message {
			return
		}
		if !changed {
			list, changed = slices.Clone(list), true
		}
		c.LastProbeTime, c.LastTransitionTime = metav1.NewTime(now), metav1.NewTime(now)
		if i < 0 {
			list = append(list, c)
			return
		}
		if list[i].Status == c.Status {
			c.LastTransitionTime = list[i].LastTransitionTime
		}
		list[i] = c
	}
	set(n.orphan())
	set(n.overQuota())
	return list, changed
}

func (n *node) orphan() v2.QueueCondition {
	c := v2.QueueCondition{Type: v2.QueueOrphan, Status: corev1.ConditionTrue}
	switch {
	case n.cycle != nil:
		c.Reason = reasonParentCycle
		c.Message = fmt.Sprintf("spec.parentQueue: the queue is its own ancestor: %s. Nothing of it or below it is scheduled until one of these queues gets another parent",
			around(n.cycle))
	case n.spec.ParentQueue != "" && n.parent == nil:
		c.Reason = reasonParentNotFound
		c.Message = fmt.Sprintf("spec.parentQueue: there is no queue %q. Nothing of this queue or below it is scheduled until there is", n.spec.ParentQueue)
	default:
		c.Status, c.Reason = corev1.ConditionFalse, reasonParentFound
	}
	return c
}

// around writes a circle out, each queue followed by its parent.
func around(circle []string) string {
	if len(circle) > shownCycle {
		return fmt.Sprintf("%s → … (%d queues) → %s", strings.Join(circle[:shownCycle], " → "), len(circle), circle[0])
	}
	return strings.Join(circle, " → ") + " → " + circle[0]
}

func (n *node) overQuota() v2.QueueCondition {
	c := v2.QueueCondition{Type: v2.QueueOverQuota, Status: corev1.ConditionFalse, Reason: reasonWithinQuota}
	var over []string
	for _, h := range n.holdings() {
		// A negative quota is no bound.
		if h.quota >= 0 && h.allocated > h.quota {
			over = append(over, fmt.Sprintf("%s: %s of %s", h.name, number(h.allocated), number(h.quota)))
		}
	}
	if over != nil {
		c.Status, c.Reason = corev1.ConditionTrue, reasonOverQuota
		c.Message = "allocated of quota: " + strings.Join(over, ", ")
	}
	return c
}

func number(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) }

// holding compares what a queue holds of a resource with its quota, in base units: devices, cores, bytes.
type holding struct {
	name             string
	allocated, quota float64
}

// holdings are GPU, CPU, memory, then the extended resources by name. Quotas of -1 stay -1. A queue that states no
// resources has quota 0 of the first three.
func (n *node) holdings() []holding {
	resources := v2.QueueResources{}
	if n.spec.Resources != nil {
		resources = *n.spec.Resources
	}
	allocated := n.total.allocated.List()
	amount := func(name corev1.ResourceName) float64 {
		q := allocated[name]
		return q.AsApproximateFloat64()
	}
	out := []holding{
		{"gpu", gpus(allocated), resources.GPU.Quota},
		{"cpu cores", amount(corev1.ResourceCPU), scaled(resources.CPU.Quota, 1e-3)},
		{"memory bytes", amount(corev1.ResourceMemory), scaled(resources.Memory.Quota, 1e6)},
	}
	for name, r := range n.extended {
		out = append(out, holding{name, amount(corev1.ResourceName(name)), r.Quota})
	}
	slices.SortFunc(out[3:], func(a, b holding) int { return strings.Compare(a.name, b.name) })
	return out
}

// scaled converts a quota to base units; -1, without bound, stays what it is.
func scaled(quota, by float64) float64 {
	if quota == v2.Unlimited {
		return quota
	}
	// 1500 millicores times 0.001 is not quite 1.5, but 1500 divided by 1000 is.
	if by < 1 {
		return quota / math.Round(1/by)
	}
	return quota * by
}

// gpus is the number of devices of all makers, as the scheduler charges them: resources whose name ends in /gpu, device
// classes of claims, and slices, by what each counts as.
func gpus(list corev1.ResourceList) float64 {
	var names []string
	for name := range list {
		if gpusPer(string(name)) > 0 {
			names = append(names, string(name))
		}
	}
	slices.Sort(names) // floats add up differently in another order
	sum := 0.0
	for _, name := range names {
		q := list[corev1.ResourceName(name)]
		sum += q.AsApproximateFloat64() * gpusPer(name)
	}
	return sum
}

// gpusPer is how many GPUs one unit of a resource counts as; 0 for one that is none.
func gpusPer(name string) float64 {
	switch {
	case strings.HasSuffix(name, "/gpu"):
		return 1
	case !strings.Contains(name, "/") && devices.IsGPU(name): // only device classes are listed under such names
		return 1
	}
	return float64(model.SliceGPUs(name))
}
