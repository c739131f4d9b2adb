package kai

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v2 "github.com/muster-scheduler/muster/api/scheduling/v2"
	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/dialect/core"
)

// The units of a Queue's numbers, as amounts of the model per 1.
const (
	queueMilliCPU = 1
	queueMegabyte = 1e6
	queueGPU      = 1000
	queueWeight   = 1000
)

// maxWeight is the largest over-quota weight, in the model's thousandths: sums over a million queues stay exact.
const maxWeight = int64(1e12)

// Queue returns the event that makes the model know q as it is, and what is wrong with its numbers ("" for nothing):
// one sentence per bad number, each naming object, field and rule. A number that is NaN, infinite, or negative without
// being -1 counts as 0; one too large counts as the largest. A negative minimum runtime counts as 0.
//
// A queue without spec.resources has quota, limit and weight 0 of cpu, memory and gpu, and so admits nothing, as in KAI.
func Queue(q *v2.Queue) (cluster.QueueState, string) {
	st := cluster.QueueState{
		Name: q.Name, UID: string(q.UID), Display: q.Spec.DisplayName, Parent: queueName(q.Spec.ParentQueue),
		Priority: v2.DefaultPriority, Created: core.Nanoseconds(&q.CreationTimestamp),
	}
	if st.Display == "" {
		st.Display = q.Name
	}
	r := reader{state: &st}
	if p := q.Spec.Priority; p != nil {
		st.Priority = int32(max(math.MinInt32, min(*p, math.MaxInt32)))
		if int(st.Priority) != *p {
			r.complain("spec.priority", fmt.Sprintf("is %d; it must fit 32 bits", *p))
		}
	}
	res := q.Spec.Resources
	if res == nil {
		res = &v2.QueueResources{}
	}
	r.read("spec.resources.cpu", "cpu", &res.CPU, func(x float64) float64 { return math.Round(x * queueMilliCPU) })
	r.read("spec.resources.memory", "memory", &res.Memory, func(x float64) float64 { return math.Round(x * queueMegabyte) })
	r.read("spec.resources.gpu", "gpu", &res.GPU, func(x float64) float64 { return math.Round(x*100) * (queueGPU / 100) })
	st.PreemptMinRuntime = r.runtime("spec.preemptMinRuntime", q.Spec.PreemptMinRuntime)
	st.ReclaimMinRuntime = r.runtime("spec.reclaimMinRuntime", q.Spec.ReclaimMinRuntime)
	extended, root, problem := Extended(q)
	if problem != "" {
		r.complain(root, problem)
	}
	for _, name := range slices.Sorted(maps.Keys(extended)) {
		field := root + "[" + name + "]"
		switch name {
		case "", "cpu", "memory", "gpu", string(core.NvidiaGPU):
			r.complain(field, "is not an extended resource; use spec.resources.cpu, memory and gpu")
			continue
		}
		e := extended[name]
		r.read(field, name, &e, math.Round)
	}
	switch v, stated := q.Annotations[BudgetsAnnotation]; {
	case v == BudgetsBlock:
		st.BudgetsBlock = true
	case stated && v != BudgetsOrder:
		r.complain("annotation "+BudgetsAnnotation, fmt.Sprintf("is %q; it must be %s or %s", core.Brief(v), BudgetsOrder, BudgetsBlock))
	}
	if len(r.problems) == 0 {
		return st, ""
	}
	return st, "Queue " + q.Name + ": " + strings.Join(r.problems, "; ")
}

// reader collects a queue's amounts, and what is wrong with them.
type reader struct {
	state    *cluster.QueueState
	problems []string
}

func (r *reader) complain(field, rule string) { r.problems = append(r.problems, field+" "+rule) }

// runtime reads a time for which work is protected; a negative one protects nothing.
func (r *reader) runtime(field string, d *metav1.Duration) cluster.Maybe[time.Duration] {
	m := duration(d)
	if m.Value < 0 {
		r.complain(field, fmt.Sprintf("is %s; it must not be negative", d.Duration))
		m.Value = 0
	}
	return m
}

func (r *reader) read(field, dim string, res *v2.QueueResource, unit func(float64) float64) {
	r.state.Quota = append(r.state.Quota, cluster.Quantity{Name: dim, Value: r.amount(field+".quota", res.Quota, unit)})
	r.state.Limit = append(r.state.Limit, cluster.Quantity{Name: dim, Value: r.amount(field+".limit", res.Limit, unit)})
	r.state.Weight = append(r.state.Weight, cluster.Quantity{Name: dim, Value: r.weight(field+".overQuotaWeight", res.OverQuotaWeight)})
}

func (r *reader) amount(field string, x float64, unit func(float64) float64) int64 {
	switch {
	case x == v2.Unlimited:
		return cluster.Unlimited
	case math.IsNaN(x), math.IsInf(x, 0):
		r.complain(field, fmt.Sprintf("is %v; it must be a number", x))
		return 0
	case x < 0:
		r.complain(field, fmt.Sprintf("is %v; it must be -1 (unlimited) or not negative", x))
		return 0
	}
	v := unit(x)
	if v > float64(cluster.MaxQuantity) {
		r.complain(field, fmt.Sprintf("is %v, which is beyond any cluster; use -1 for unlimited", x))
		return cluster.MaxQuantity
	}
	return int64(v)
}

func (r *reader) weight(field string, x float64) int64 {
	switch {
	case math.IsNaN(x), math.IsInf(x, 0):
		r.complain(field, fmt.Sprintf("is %v; it must be a number", x))
		return 0
	case x < 0:
		r.complain(field, fmt.Sprintf("is %v; it must not be negative", x))
		return 0
	}
	v := math.Round(x * queueWeight)
	if v > float64(maxWeight) {
		r.complain(field, fmt.Sprintf("is %v; weights beyond %d make no difference", x, maxWeight/queueWeight))
		return maxWeight
	}
	return int64(v)
}
