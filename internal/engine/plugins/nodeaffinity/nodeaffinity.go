// Package nodeaffinity gives nodes points for the preferred node affinity of pods (preferredDuringSchedulingIgnoredDuringExecution):
// the sum of the weights of the terms that the node matches, each term matched as kube-scheduler does.
//
// One of the weight counts ten points, and all of a pod's together at most 990: more than packing, which gives up to nine, and less
// than a node's being free now, which gives 1,000, so that nobody waits for a node that is only preferred. It takes no arguments. KAI
// has no such plugin, and so it is on only where a profile names it.
//
// A term that cannot be parsed is left out: the API server refuses one, so that it is not there in practice. The plugin refuses no node;
// required affinity is the plugin predicates'.
package nodeaffinity

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine/policy"
)

// Name is the plugin's name in a profile.
const Name = "nodeaffinity"

const (
	points = 10 * policy.ScorePoint // for one of a term's weight
	most   = 99                     // of the weight that counts
)

// Factory declares the plugin; it takes no arguments.
var Factory = policy.Opens(func(*policy.View) instance { return instance{} })

// instance is the plugin in one run: the terms of classes by ID, parsed when a class is first asked about; nil for a class that has none.
type instance map[uint64]*nodeaffinity.PreferredSchedulingTerms

// ScoreNode implements policy.NodeScore.
func (i instance) ScoreNode(c *cluster.Class, n *cluster.Node) int64 {
	if c.NodeAffinity == nil {
		return 0
	}
	terms, known := i[c.ID]
	if !known {
		terms = parse(c.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution)
		i[c.ID] = terms
	}
	if terms == nil {
		return 0
	}
	node := v1.Node{}
	node.Name, node.Labels = n.Name, n.Labels
	return max(0, min(most, terms.Score(&node))) * points
}

// parse returns the terms, those left out that are in error; nil for none.
func parse(terms []v1.PreferredSchedulingTerm) *nodeaffinity.PreferredSchedulingTerms {
	var sound []v1.PreferredSchedulingTerm
	for k := range terms {
		if _, err := nodeaffinity.NewPreferredSchedulingTerms(terms[k : k+1]); err == nil {
			sound = append(sound, terms[k])
		}
	}
	if len(sound) == 0 {
		return nil
	}
	out, err := nodeaffinity.NewPreferredSchedulingTerms(sound)
	if err != nil {
		return nil
	}
	return out
}
