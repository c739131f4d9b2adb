package sim

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	"github.com/muster-scheduler/muster/internal/fairshare"
)

// Amounts are the three resources that queues share, as KAI's simulator counts them: GPUs (fractions allowed), milli-CPUs,
// and bytes. Keys are read without regard to case.
type Amounts struct {
	GPU    float64 `json:"gpu"`
	CPU    float64 `json:"cpu"`
	Memory float64 `json:"memory"`
}

// DivideRequest is the body of KAI's POST /simulate.
type DivideRequest struct {
	// TotalResource is what there is to divide. KAI writes its keys GPU, CPU, Memory.
	TotalResource Amounts       `json:"totalResource"`
	Queues        []DivideQueue `json:"queues"`
}

// DivideQueue is one queue of a DivideRequest. What is left out has KAI's default: see [DivideShare].
type DivideQueue struct {
	UID               string        `json:"uid"`
	Name              string        `json:"name,omitempty"`
	ParentQueue       string        `json:"parentQueue,omitempty"`
	ChildQueues       []string      `json:"childQueues,omitempty"`
	CreationTimestamp time.Time     `json:"creationTimestamp"`
	Priority          int           `json:"priority,omitempty"`
	ResourceShare     DivideDemands `json:"resourceShare"`
}

// DivideDemands are a queue's numbers by resource. A queue that says nothing of CPU or memory is entitled to all of it; one that
// says nothing of GPUs, to none.
type DivideDemands struct {
	GPU    *DivideShare `json:"gpu,omitempty"`
	CPU    *DivideShare `json:"cpu,omitempty"`
	Memory *DivideShare `json:"memory,omitempty"`
}

// DivideShare is what a queue says of one resource. Of what is left out, Deserved is 0, MaxAllowed -1 (no limit),
// OverQuotaWeight 1 and Request 100000. The other fields are accepted, as KAI accepts them, and have no influence.
type DivideShare struct {
	Deserved        *float64 `json:"deserved,omitempty"`
	MaxAllowed      *float64 `json:"maxAllowed,omitempty"`
	OverQuotaWeight *float64 `json:"overQuotaWeight,omitempty"`
	Request         *float64 `json:"request,omitempty"`

	FairShare               *float64 `json:"fairShare,omitempty"`
	Allocated               *float64 `json:"allocated,omitempty"`
	AllocatedNotPreemptible *float64 `json:"allocatedNotPreemptible,omitempty"`
	AbsoluteUsage           *float64 `json:"absoluteUsage,omitempty"`
	VacantAdjustedUsage     *float64 `json:"vacantAdjustedUsage,omitempty"`
}

// defaultRequest is what a queue that does not say so asks for: more than most clusters have.
const defaultRequest = 100000

// ReadDivide reads a DivideRequest. strict refuses keys that nobody would read, which KAI's service ignores.
func ReadDivide(r io.Reader, strict bool) (*DivideRequest, error) {
	text, err := io.ReadAll(r)
	if err != nil {
		return nil, fmt.Errorf("read: %w", err)
	}
	d := json.NewDecoder(bytes.NewReader(text))
	if strict {
		d.DisallowUnknownFields()
	}
	var req DivideRequest
	if err := d.Decode(&req); err != nil {
		return nil, fmt.Errorf("%s%w", place(text, err), err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("there is more behind the JSON object")
	}
	return &req, nil
}

// place says where in the text an error of the decoder is, when the error knows.
func place(text []byte, err error) string {
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	at := int64(-1)
	switch {
	case errors.As(err, &syntax):
		at = syntax.Offset
	case errors.As(err, &kind):
		at = kind.Offset
	}
	if at < 0 || at > int64(len(text)) {
		return ""
	}
	before := text[:at]
	return fmt.Sprintf("line %d, column %d: ", bytes.Count(before, []byte("\n"))+1, len(before)-bytes.LastIndexByte(before, '\n')-1)
}

// The dimensions of a division: KAI's three resources, in its units, but GPUs in thousandths.
const (
	dimGPU = iota
	dimCPU
	dimMemory
	dims
)

// Divide returns every queue's fair share by UID, as the scheduler would divide it without history (k-value 0). KAI's
// simulator takes all queues for siblings; with hierarchy the children of a queue (those that name its UID as parentQueue) divide
// what it got, and a queue with children that states no request asks for the sum of what they may use. Amounts are rounded to thousandths of
// a GPU, milli-CPUs and bytes. An error names the queue and the field.
func Divide(req *DivideRequest, hierarchy bool) (map[string]Amounts, error) {
	in := fairshare.Input{Unit: []int64{1000, 1, 1}, Queues: make([]fairshare.Queue, len(req.Queues))}
	total := req.TotalResource
	for _, x := range []struct {
		name  string
		value float64
		scale float64
	}{{"GPU", total.GPU, 1000}, {"CPU", total.CPU, 1}, {"Memory", total.Memory, 1}} {
		if x.value < 0 {
			return nil, fmt.Errorf("totalResource.%s is %v; it must not be negative", x.name, x.value)
		}
		in.Total = append(in.Total, units(x.value, x.scale))
	}
	index := make(map[string]int32, len(req.Queues))
	for i := range req.Queues {
		q := &req.Queues[i]
		if q.UID == "" {
			return nil, fmt.Errorf("queues[%d]: uid is missing", i)
		}
		if k, twice := index[q.UID]; twice {
			return nil, fmt.Errorf("queues[%d]: uid %q is that of queues[%d] too", i, q.UID, k)
		}
		index[q.UID] = int32(i)
	}
	for i := range req.Queues {
		q := &req.Queues[i]
		out, err := q.input()
		if err != nil {
			return nil, fmt.Errorf("queue %q: %w", q.UID, err)
		}
		if hierarchy && q.ParentQueue != "" {
			parent, ok := index[q.ParentQueue]
			if !ok {
				return nil, fmt.Errorf("queue %q: parentQueue %q is no queue's uid", q.UID, q.ParentQueue)
			}
			out.Parent = parent
		}
		in.Queues[i] = out
	}
	if hierarchy {
		if err := sumRequests(req, in.Queues); err != nil {
			return nil, err
		}
	}
	var d fairshare.Divider
	shares := d.Divide(&in)
	out := make(map[string]Amounts, len(req.Queues))
	for i := range req.Queues {
		s := shares.Of(i)
		out[req.Queues[i].UID] = Amounts{GPU: float64(s[dimGPU]) / 1000, CPU: float64(s[dimCPU]), Memory: float64(s[dimMemory])}
	}
	return out, nil
}

// allowed is a limit as an amount.
func allowed(limit int64) int64 {
	if limit == fairshare.Unlimited {
		return most
	}
	return limit
}

// sumRequests gives queues with children that state no request the sum of what their children may use of theirs.
func sumRequests(req *DivideRequest, queues []fairshare.Queue) error {
	children := make([][]int32, len(queues))
	for i := range queues {
		at, steps := int32(i), 0
		for at >= 0 && steps <= len(queues) {
			at, steps = queues[at].Parent, steps+1
		}
		if at >= 0 {
			return fmt.Errorf("queue %q: its parents form a cycle", req.Queues[i].UID)
		}
		if p := queues[i].Parent; p >= 0 {
			children[p] = append(children[p], int32(i))
		}
	}
	var visit func(i int32)
	visit = func(i int32) {
		var sum [dims]int64
		for _, c := range children[i] {
			visit(c)
			for d := range sum {
				sum[d] = min(sum[d]+min(queues[c].Request[d], allowed(queues[c].Limit[d])), most)
			}
		}
		if len(children[i]) == 0 {
			return
		}
		r := &req.Queues[i].ResourceShare
		for d, s := range []*DivideShare{r.GPU, r.CPU, r.Memory} {
			if s == nil || s.Request == nil {
				queues[i].Request[d] = sum[d]
			}
		}
	}
	for i := range queues {
		if queues[i].Parent < 0 {
			visit(int32(i))
		}
	}
	return nil
}

// input is the queue as the division sees it, at the top level.
func (q *DivideQueue) input() (fairshare.Queue, error) {
	out := fairshare.Queue{Parent: -1, UID: q.UID, Created: q.CreationTimestamp.UnixMilli()}
	if q.Priority < math.MinInt32 || q.Priority > math.MaxInt32 {
		return out, fmt.Errorf("priority is %d; it must be between %d and %d", q.Priority, math.MinInt32, math.MaxInt32)
	}
	out.Priority = int32(q.Priority)
	for _, x := range []struct {
		name    string
		share   *DivideShare
		without DivideShare
		scale   float64
	}{
		{"gpu", q.ResourceShare.GPU, DivideShare{}, 1000},
		{"cpu", q.ResourceShare.CPU, DivideShare{Deserved: new(-1.0)}, 1},
		{"memory", q.ResourceShare.Memory, DivideShare{Deserved: new(-1.0)}, 1},
	} {
		s := x.share
		if s == nil {
			s = &x.without
		}
		for _, f := range []struct {
			name    string
			value   *float64
			missing float64
			bound   bool // -1 means that there is none
			scale   float64
			into    *[]int64
		}{
			{"deserved", s.Deserved, 0, true, x.scale, &out.Quota},
			{"maxAllowed", s.MaxAllowed, -1, true, x.scale, &out.Limit},
			{"overQuotaWeight", s.OverQuotaWeight, 1, false, float64(fairshare.One), &out.Weight},
			{"request", s.Request, defaultRequest, false, x.scale, &out.Request},
		} {
			v := f.missing
			if f.value != nil {
				v = *f.value
			}
			switch {
			case f.bound && v == -1:
				*f.into = append(*f.into, fairshare.Unlimited)
			case v >= 0:
				*f.into = append(*f.into, units(v, f.scale))
			case f.bound:
				return out, fmt.Errorf("resourceShare.%s.%s is %v; it must not be negative, except -1 for no bound", x.name, f.name, v)
			default:
				return out, fmt.Errorf("resourceShare.%s.%s is %v; it must not be negative", x.name, f.name, v)
			}
		}
	}
	return out, nil
}

// most is the largest amount of anything: beyond it numbers mean "very many".
const most = int64(1) << 61

// units is a non-negative number in fixed-point.
func units(v, scale float64) int64 {
	if scaled := math.Round(v * scale); scaled < float64(most) {
		return int64(scaled)
	}
	return most
}
