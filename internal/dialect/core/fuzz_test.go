package core

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"github.com/muster-scheduler/muster/internal/cluster"
)

// FuzzPod: whatever a pod says, it reads the same twice, and its amounts are such that sums stay exact.
func FuzzPod(f *testing.F) {
	for _, seed := range []string{
		`{"metadata":{"namespace":"n","name":"p"},"spec":{"overhead":{"cpu":"-1"},"resources":{"requests":{"cpu":"9E"}},"containers":[{"name":"a","resources":{"requests":{"cpu":"1n","memory":"9223372036854775807","a/b":"1e30"},"limits":{"cpu":"1"}},"ports":[{"hostPort":99999}]}],"initContainers":[{"restartPolicy":"Always","resources":{"requests":{"cpu":"3"}}}]}}`,
		`{"spec":{"containers":[{"name":"a"}],"affinity":{},"topologySpreadConstraints":[{}],"volumes":[{"name":"v"},{"persistentVolumeClaim":{"claimName":"c"}},{"ephemeral":{}}]},"status":{"phase":"Running","qosClass":"Guaranteed","resize":"InProgress","containerStatuses":[{"name":"a","resources":{"requests":{"cpu":"2"}},"allocatedResources":{"cpu":"1"}}]}}`,
		`{"metadata":{"deletionTimestamp":"2026-01-01T00:00:00Z","deletionGracePeriodSeconds":-5},"spec":{"nodeName":"n"},"status":{"phase":"Odd"}}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		p := &v1.Pod{}
		if json.Unmarshal(text, p) != nil {
			return
		}
		st := Pod(p)
		if d := cmp.Diff(st, Pod(p.DeepCopy())); d != "" {
			t.Fatalf("the same pod reads differently: %s", d)
		}
		for _, q := range st.Requests {
			if q.Value < 0 || q.Value > cluster.MaxQuantity {
				t.Fatalf("%s is %d", q.Name, q.Value)
			}
		}
		for _, need := range Needs(p) {
			for _, q := range need.Amounts {
				if q.Value < 0 || q.Value > cluster.MaxQuantity {
					t.Fatalf("need of %s is %d", q.Name, q.Value)
				}
			}
		}
	})
}
