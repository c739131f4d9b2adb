package workload

import (
	"strconv"

	"github.com/muster-scheduler/muster/api/scheduling/v2alpha2"
)

// rayHead is the value of the label ray.io/group on head pods, and the name of their subgroup.
const rayHead = "headgroup"

// indexed is a field of the i-th element of a list, for messages.
func indexed(path string, i int, field string) string {
	return path + "[" + strconv.Itoa(i) + "]" + field
}

// rayTree is the gang of a RayCluster: its head, and of each worker group the number that it may not shrink below, where it
// says so, else all. A suspended group and one without replicas have no pods.
func rayTree(h *hints) (*tree, error) {
	const list = "spec.workerGroupSpecs"
	groups, err := h.listAt(list)
	if err != nil {
		return nil, err
	}
	names := map[string]string{rayHead: rayHead}
	head := leaf(rayHead, 1, "")
	head.TopologyConstraint = h.templateTopology(stringsAt(h.facts.Content, "spec.headGroupSpec.template.metadata.annotations"))
	out := &tree{subGroups: []v2alpha2.SubGroup{head}}
	counts := []int64{1}
	for i, g := range groups {
		at := indexed(list, i, ".")
		n, err := h.rayWorkers(g, at)
		if err != nil {
			return nil, err
		}
		name := textAt(g, "groupName")
		if name == "" {
			name = "worker-group-" + strconv.Itoa(i)
		}
		names[name] = name
		if n == 0 {
			// It has no pods, or as many as the autoscaler likes. They need a place all the same.
			out.subGroups = append(out.subGroups, leaf(name, 0, ""))
			continue
		}
		counts = append(counts, n)
		if n, err := h.sum(at+"replicas", n); err == nil {
			s := leaf(name, n, "")
			s.TopologyConstraint = h.templateTopology(stringsAt(g, "template.metadata.annotations"))
			out.subGroups = append(out.subGroups, s)
		}
	}
	out.members = byLabel(rayGroup, names)
	out.minimum, err = h.sum(list, counts...)
	return out, err
}

// rayWorkers is the number of pods of a worker group that the gang needs. KubeRay raises replicas to minReplicas.
func (h *hints) rayWorkers(g map[string]any, at string) (int64, error) {
	replicas, err := h.number(g, at, "replicas", 0, 0)
	if err != nil {
		return 0, err
	}
	least, err := h.number(g, at, "minReplicas", 0, 0)
	if err != nil {
		return 0, err
	}
	hosts, err := h.number(g, at, "numOfHosts", 1, 1)
	if err != nil {
		return 0, err
	}
	if suspended, _ := g["suspend"].(bool); suspended {
		return 0, nil
	}
	if least > 0 {
		return int64(least) * int64(hosts), nil
	}
	return int64(replicas) * int64(hosts), nil
}
