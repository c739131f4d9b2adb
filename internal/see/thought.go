package see

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/explain"
)

// Thought is what somebody would do, as people write it; the command what-if and the role ui take it alike. Field names are stable.
type Thought struct {
	// Quota, Limit and Weight are to be set, each as QUEUE:RESOURCE=AMOUNT; Priority as QUEUE=NUMBER.
	Quota    []string `json:"quota,omitempty"`
	Limit    []string `json:"limit,omitempty"`
	Weight   []string `json:"weight,omitempty"`
	Priority []string `json:"priority,omitempty"`
	// AddNodes is how many nodes are added that are like Like.
	AddNodes int    `json:"addNodes,omitempty"`
	Like     string `json:"like,omitempty"`
	// Cordon names nodes that take no more pods, Delete gangs, each as NAMESPACE/NAME.
	Cordon []string `json:"cordon,omitempty"`
	Delete []string `json:"delete,omitempty"`
	// Submit are gangs that are submitted; whoever takes manifests makes it of them (package submit).
	Submit *explain.Change `json:"-"`
}

// Changes are what it comes to in a cluster. What cannot be read is a [Refusal], and so is nothing at all; what is named and is not there is refused by [WhatIf].
func (t *Thought) Changes(snap *cluster.Snapshot) ([]*explain.Change, error) {
	if n := len(t.Quota) + len(t.Limit) + len(t.Weight) + len(t.Priority) + len(t.Cordon) + len(t.Delete); n > MaxNodes {
		return nil, &Refusal{Field: "changes", Rule: fmt.Sprintf("are %d; there must be 1 to %d", n, MaxChanges)}
	}
	no := func(field, text string, rule any) ([]*explain.Change, error) {
		return nil, &Refusal{Field: fmt.Sprintf("%s %.100q", field, text), Rule: fmt.Sprint(rule)}
	}
	var out []*explain.Change
	for _, f := range []struct {
		name   string
		kind   explain.Kind
		values []string
	}{{"quota", explain.SetQuota, t.Quota}, {"limit", explain.SetLimit, t.Limit}, {"weight", explain.SetWeight, t.Weight}} {
		for _, text := range f.values {
			c, err := ofQueue(snap.Dims, f.kind, text)
			if err != nil {
				return no(f.name, text, err)
			}
			out = append(out, c)
		}
	}
	for _, text := range t.Priority {
		queue, number, ok := strings.Cut(text, "=")
		n, err := strconv.ParseInt(number, 10, 32)
		if !ok || err != nil {
			return no("priority", text, "must be QUEUE=NUMBER, such as vision=200")
		}
		out = append(out, explain.OfQueue(explain.SetPriority, queue, "", n))
	}
	switch {
	case (t.AddNodes == 0) != (t.Like == ""):
		return no("addNodes", t.Like, "and like go together: how many nodes, and like which one")
	case t.AddNodes != 0:
		out = append(out, explain.MoreNodes(t.Like, t.AddNodes))
	}
	if len(t.Cordon) > 0 {
		out = append(out, explain.CordonNodes(t.Cordon...))
	}
	for _, g := range t.Delete {
		namespace, name, ok := strings.Cut(g, "/")
		if !ok {
			return no("delete", g, "must be NAMESPACE/NAME")
		}
		out = append(out, explain.WithoutGang(cluster.Key{Face: "kai", Namespace: namespace, Name: name}))
	}
	if t.Submit != nil {
		out = append(out, t.Submit)
	}
	if len(out) == 0 {
		return nil, &Refusal{Rule: "nothing would be changed: say a quota, limit, weight, priority, nodes to add or to cordon, gangs to delete, or manifests to submit"}
	}
	return out, nil
}

// ofQueue reads QUEUE:RESOURCE=AMOUNT.
func ofQueue(dims cluster.Dims, kind explain.Kind, text string) (*explain.Change, error) {
	queue, rest, ok := strings.Cut(text, ":")
	dim, amount, there := strings.Cut(rest, "=")
	if !ok || !there || queue == "" {
		return nil, errors.New("must be QUEUE:RESOURCE=AMOUNT, such as vision:gpu=32")
	}
	d, known := dims.Index(dim)
	if !known {
		return nil, fmt.Errorf("%q is no resource that this cluster has", dim)
	}
	if amount == "unlimited" && kind != explain.SetWeight {
		return explain.OfQueue(kind, queue, dim, cluster.Unlimited), nil
	}
	q, err := resource.ParseQuantity(amount)
	if err != nil || q.Sign() < 0 {
		return nil, fmt.Errorf("%q is no amount: a number that is not negative, in the notation of Kubernetes", amount)
	}
	if q.CmpInt64(math.MaxInt64/1000) > 0 {
		return nil, fmt.Errorf("%q is more than there can be", amount)
	}
	if kind == explain.SetWeight || d == cluster.CPU || d == cluster.GPU {
		return explain.OfQueue(kind, queue, dim, min(q.MilliValue(), cluster.MaxQuantity)), nil
	}
	return explain.OfQueue(kind, queue, dim, min(q.Value(), cluster.MaxQuantity)), nil
}
