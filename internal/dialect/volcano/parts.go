package volcano

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/muster-scheduler/muster/internal/cluster"
)

// Part names what a pod asks for by the resources of Volcano's plugin deviceshare: a part of a GPU, or one that this plugin chooses. "" for nothing. The first container counts, and of it
// the first name.
//
// Which device such a pod gets Volcano's scheduler writes into annotations, which the device plugin of the node waits for. The description that this is made by has the names of the keys,
// and neither what stands in them nor in which units the resources are: so nobody here could tell a device plugin anything, and a pod without the annotations would fail on its node.
func Part(spec *corev1.PodSpec) string {
	for _, list := range [2][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range list {
			var names []string
			for _, of := range [2]corev1.ResourceList{list[i].Resources.Requests, list[i].Resources.Limits} {
				for name, q := range of { // order: the first by name
					if s := string(name); !q.IsZero() && (strings.HasPrefix(s, "volcano.sh/vgpu-") || s == "volcano.sh/gpu-memory" || s == "volcano.sh/gpu-number") {
						names = append(names, s)
					}
				}
			}
			if len(names) > 0 {
				return slices.Min(names)
			}
		}
	}
	return ""
}

// refuseParts has a pod wait that asks for a part of a GPU by plugin deviceshare.
func refuseParts(st *cluster.PodState, p *corev1.Pod) {
	if st.Spec == nil || !st.Phase.Alive() || st.Spec.Unsupported != "" {
		return
	}
	if name := Part(&p.Spec); name != "" {
		st.Spec.Unsupported = brief(name) + " (Volcano's plugin deviceshare, whose annotations a device plugin would wait for)"
	}
}
