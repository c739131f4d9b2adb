package conformance

import (
	"fmt"
	"strings"

	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/engine/policy"
)

// alike says whether a pod on node got is as well placed as on node want, in a case about topologies: at every level the pods
// that were placed are grouped as expected, and the domains it is in had as much room at first. Which of such domains
// or nodes is taken is chance.
func (w *caseRun) alike(pod, want, got string) bool {
	for i := range w.c.Given.Topologies {
		var labels []string
		for _, l := range w.c.Given.Topologies[i].Spec.Levels {
			labels = append(labels, l.NodeLabel)
			if w.free(labels, want) != w.free(labels, got) {
				return false
			}
			for other, o := range w.c.Expect.Pods { // order: all must agree
				if at := w.fates[other].node; o.Status == binding && o.Node != "" && other != pod &&
					(w.domain(labels, o.Node) == w.domain(labels, want)) != (w.domain(labels, at) == w.domain(labels, got)) {
					return false
				}
			}
		}
	}
	return len(w.c.Given.Topologies) > 0 && w.free([]string{nodeTypeLabel}, want) == w.free([]string{nodeTypeLabel}, got)
}

// domain names the domain of a node at the level of the last label.
func (w *caseRun) domain(labels []string, node string) string {
	for i := range w.c.Given.Nodes {
		if n := &w.c.Given.Nodes[i]; n.Name == node {
			values := make([]string, len(labels))
			for k, l := range labels {
				if values[k] = n.Labels[l]; l == nodeTypeLabel {
					values[k] = n.Name
				}
			}
			return strings.Join(values, "\x00")
		}
	}
	return "?"
}

// free is how many milli-GPU the domain of a node had at first.
func (w *caseRun) free(labels []string, node string) int64 {
	at, sum := w.domain(labels, node), int64(0)
	for i := range w.c.Given.Nodes {
		if n := &w.c.Given.Nodes[i]; w.domain(labels, n.Name) == at {
			sum += n.GPUs * 1000
		}
	}
	for i := range w.c.Given.Gangs {
		g := &w.c.Given.Gangs[i]
		for k := range g.Pods {
			if p := &g.Pods[k]; p.Node != "" && w.domain(labels, p.Node) == at {
				sum -= g.gpus(p)
			}
		}
	}
	return sum
}

// says says whether a verdict about room states the facts of KAI's message about a topology: which level of which topology,
// how many pods the best domain takes, and how many it must.
func says(v engine.Verdict, message string) bool {
	switch v.Reason.Unblock {
	case policy.UnblockRoom:
		return strings.Contains(message, "not enough resources in the cluster")
	case policy.UnblockTogether:
		level, topology, ok := strings.Cut(v.Object, " of topology ")
		topology, _, _ = strings.Cut(topology, " (")
		return ok && strings.Contains(message, "topology "+topology+", requirement "+level+" couldn't be satisfied") &&
			strings.Contains(message, fmt.Sprintf("can allocate only %d of %d required pods", v.Have, v.Need))
	}
	return false
}
