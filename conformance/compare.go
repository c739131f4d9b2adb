package conformance

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine/policy"
)

// Mismatch is one expectation that was not met.
type Mismatch struct {
	What     string `json:"what"` // "pod x", "gang y", "node z", "binds"
	Expected string `json:"expected"`
	Got      string `json:"got"`
}

// String prints the mismatch in one line.
func (m Mismatch) String() string {
	return fmt.Sprintf("%s: expected %s, got %s", m.What, m.Expected, m.Got)
}

// compare holds what became of the case against what is expected.
func (w *caseRun) compare() []Mismatch {
	var out []Mismatch
	e := &w.c.Expect
	miss := func(what, expected, got string) { out = append(out, Mismatch{what, expected, got}) }
	for _, name := range slices.Sorted(maps.Keys(e.Gangs)) {
		want := e.Gangs[name]
		g := w.gang(name)
		if g == nil {
			miss("gang "+name, want.text(), "no such gang")
			continue
		}
		var total int64
		for i := range g.Pods {
			w.checkPod(g.Pods[i].Name, want, miss)
			total += g.gpus(&g.Pods[i])
		}
		w.checkRequest("gang "+name, g, total, want, miss)
		w.checkMessage(g, want, miss)
	}
	for _, name := range slices.Sorted(maps.Keys(e.Pods)) {
		want := e.Pods[name]
		g, p := w.pod(name)
		if p == nil {
			miss("pod "+name, want.text(), "no such pod")
			continue
		}
		w.checkPod(name, want, miss)
		w.checkRequest("pod "+name, g, g.gpus(p), want, miss)
		w.checkMessage(g, want, miss)
	}
	w.checkDevices(miss)
	for _, name := range slices.Sorted(maps.Keys(e.Nodes)) {
		w.checkNode(name, e.Nodes[name], miss)
	}
	for _, b := range []struct {
		what  string
		bound *int
		got   int
	}{{"binds", e.AtMost.Binds, w.binds}, {"evictions", e.AtMost.Evictions, w.evictions}, {"nominations", e.AtMost.Nominations, w.nominations}} {
		if b.bound != nil && b.got > *b.bound {
			miss(b.what, "at most "+strconv.Itoa(*b.bound), strconv.Itoa(b.got))
		}
	}
	return out
}

type reporter func(what, expected, got string)

func (o Outcome) text() string {
	s := o.Status
	if o.Node != "" {
		s += " on " + o.Node
	}
	return s
}

func (f fate) text() string {
	if f.node != "" {
		return f.status + " on " + f.node
	}
	return f.status
}

func (w *caseRun) checkPod(name string, want Outcome, miss reporter) {
	got := w.fates[name]
	if got.status != want.Status || want.Node != "" && got.node != want.Node && !w.alike(name, want.Node, got.node) {
		miss("pod "+name, want.text(), got.text())
		return
	}
	if want.GPUsAccepted != nil && float64(got.gpu) != *want.GPUsAccepted*1000 {
		miss("pod "+name, gpus(int64(*want.GPUsAccepted*1000))+" accepted", gpus(got.gpu))
	}
	if zones := w.zones(got); len(want.NUMAZones) > 0 && !slices.Equal(zones, want.NUMAZones) {
		miss("pod "+name, fmt.Sprintf("in NUMA zones %v", want.NUMAZones), fmt.Sprintf("in %v", zones))
	}
	if want.StartedLongerAgo != nil {
		if lasted := int64((w.now.Sub(start) + startedAgo) / second); got.status != running || lasted <= *want.StartedLongerAgo {
			miss("pod "+name, fmt.Sprintf("started more than %d s ago", *want.StartedLongerAgo), fmt.Sprintf("%s, started %d s ago", got.status, lasted))
		}
	}
}

// checkRequest holds our reading of the request against the file's own restatement of it. Shares and slices are stated
// there in other units.
func (w *caseRun) checkRequest(what string, g *Gang, milli int64, want Outcome, miss reporter) {
	if want.GPUsRequired == nil || milli%1000 != 0 || g.PerPod != nil && (g.PerPod.GPUMemoryMiB > 0 || g.PerPod.GPUDevices > 0) {
		return
	}
	for i := range g.Pods {
		if p := &g.Pods[i]; len(p.MIG) > 0 || len(p.Claims) > 0 || len(p.Annotations) > 0 || g.gpus(p)%1000 != 0 {
			return
		}
	}
	if x := int64(*want.GPUsRequired * 1000); x != milli {
		miss(what, "asks for "+gpus(x), "read as "+gpus(milli))
	}
}

// checkMessage compares the rule that an expected message is about: the messages contain KAI's name of it.
func (w *caseRun) checkMessage(g *Gang, want Outcome, miss reporter) {
	if want.ErrorMessage == "" {
		return
	}
	why := "no reason"
	for i := range w.trace.Gangs {
		if t := &w.trace.Gangs[i]; t.Gang == g.key() && t.Diagnosis != nil {
			r := t.Diagnosis.Verdict.Reason
			if (r.Unblock == policy.UnblockQuota || r.Unblock == policy.UnblockLimit) && strings.Contains(want.ErrorMessage, r.Key) {
				return
			}
			if says(t.Diagnosis.Verdict, want.ErrorMessage) {
				return
			}
			why = t.Diagnosis.String()
		}
	}
	miss("gang "+g.Name, "a reason that says: "+strings.Join(strings.Fields(want.ErrorMessage), " "), why)
}

// checkNode computes what is left of a node after the last run's decisions.
func (w *caseRun) checkNode(name string, want NodeOutcome, miss reporter) {
	if w.snap.NodeByName(name) == nil {
		miss("node "+name, "to exist", "no such node")
		return
	}
	idle, giving := w.left(name)
	if want.IdleGPUs != nil && idle != int64(*want.IdleGPUs*1000) {
		miss("node "+name, gpus(int64(*want.IdleGPUs*1000))+" idle", gpus(idle))
	}
	if want.ReleasingGPUs != nil && giving != int64(*want.ReleasingGPUs*1000) {
		miss("node "+name, gpus(int64(*want.ReleasingGPUs*1000))+" being released", gpus(giving))
	}
	w.checkZones(name, want, miss)
}

// zones are the indices, in its node's list, of the zones that a pod has something of.
func (w *caseRun) zones(f fate) []int {
	var out []int
	for i := range w.c.Given.Nodes {
		n := &w.c.Given.Nodes[i]
		if n.Name != f.node || n.NUMA == nil {
			continue
		}
		for k := range n.NUMA.Zones {
			if slices.ContainsFunc(f.zones, func(z cluster.ZoneShare) bool { return z.Zone == n.NUMA.Zones[k].ID }) {
				out = append(out, k)
			}
		}
	}
	return out
}

// checkZones computes what is left of a node's zones: what they can give, without what the pods have that are on it, or
// are promised room there.
func (w *caseRun) checkZones(node string, want NodeOutcome, miss reporter) {
	left := map[string]map[string]int64{} // zone, resource
	var ids []string
	for i := range w.c.Given.Nodes {
		if n := &w.c.Given.Nodes[i]; n.Name == node && n.NUMA != nil {
			for _, z := range n.NUMA.Zones {
				ids, left[z.ID] = append(ids, z.ID), maps.Clone(z.Allocatable)
			}
		}
	}
	for _, f := range w.fates { // order: sums
		if f.node != node || f.status == releasing {
			continue
		}
		for _, z := range f.zones {
			for _, q := range z.Amounts {
				if _, ok := left[z.Zone][q.Name]; ok {
					left[z.Zone][q.Name] -= q.Value
				}
			}
		}
	}
	for _, index := range slices.Sorted(maps.Keys(want.NUMAZonesAvailable)) {
		for _, name := range slices.Sorted(maps.Keys(want.NUMAZonesAvailable[index])) {
			text := want.NUMAZonesAvailable[index][name]
			q, err := resource.ParseQuantity(text)
			k, notNumber := strconv.Atoi(index)
			if err != nil || notNumber != nil || k < 0 || k >= len(ids) {
				miss("node "+node, "NUMA zone "+index+" with "+name+" "+text, "no such zone")
				continue
			}
			x := q.Value()
			if name == "cpu" {
				x = q.MilliValue()
			}
			if got := left[ids[k]][name]; got != x {
				miss("node "+node, fmt.Sprintf("%s %s left in NUMA zone %s", text, name, index), strconv.FormatInt(got, 10))
			}
		}
	}
}

func (w *caseRun) gang(name string) *Gang {
	for i := range w.c.Given.Gangs {
		if g := &w.c.Given.Gangs[i]; g.Name == name {
			return g
		}
	}
	return nil
}

func (w *caseRun) pod(name string) (*Gang, *Pod) {
	for i := range w.c.Given.Gangs {
		g := &w.c.Given.Gangs[i]
		for k := range g.Pods {
			if g.Pods[k].Name == name {
				return g, &g.Pods[k]
			}
		}
	}
	return nil, nil
}

func gpus(milli int64) string {
	return cluster.BaseDims().FormatOne(cluster.GPU, milli) + " GPUs"
}
