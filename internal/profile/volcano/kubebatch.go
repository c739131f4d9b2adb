package volcano

import (
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/engine/policy"
)

// KubeBatchFace is the face of kube-batch, of which Volcano came: its scheduler file has the same form, with fewer words.
const KubeBatchFace = "kubebatch"

// KubeBatchDefault is the file that is compiled into kube-batch, and rules where it is given none.
const KubeBatchDefault = `actions: "allocate, backfill"
tiers:
- plugins:
  - name: priority
  - name: gang
- plugins:
  - name: drf
  - name: predicates
  - name: proportion
  - name: nodeorder
`

// ParseKubeBatch reads a scheduler file of kube-batch's: its actions, plugins and switches, and where a file says no weight of nodeorder the one that it has there. Plugins do what Volcano's of the same names do, where kube-batch's do. known is what there is to name. The error is a Fault.
func ParseKubeBatch(text []byte, known engine.Registry) (File, error) {
	return readFile(text, known, &family{
		face: KubeBatchFace, texts: true,
		hooks:     []string{"JobOrder", "JobReady", "JobPipelined", "TaskOrder", "Preemptable", "Reclaimable", "QueueOrder", "Predicate", "NodeOrder"},
		otherwise: map[string]policy.Arguments{"nodeorder": {"nodeaffinity.weight": "1", "podaffinity.weight": "1", "tainttoleration.weight": "0", "imagelocality.weight": "0", "podtopologyspread.weight": "0"}},
		// In kube-batch whoever has pods to place starves, as plugin priority says, and a queue is given pods until it holds what it deserves.
		never: map[string][]policy.Point{"gang": {"starving"}, "proportion": {"queue-gate"}},
	})
}
