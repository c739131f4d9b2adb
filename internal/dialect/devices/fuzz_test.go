package devices

import (
	"encoding/json"
	"testing"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/dialect/core"
)

// FuzzBook: whatever claims, slices, classes and pods say, and in whatever way they do not fit, the book answers, and a pod is
// charged an amount in the model's range.
func FuzzBook(f *testing.F) {
	const pod = `{"metadata":{"namespace":"n","name":"p"},"spec":{"containers":[{"resources":{"requests":{"x.example/gpu":"9E"}}}],"resourceClaims":[{"name":"a","resourceClaimName":"c"},{"name":"b","resourceClaimTemplateName":"t"},{"name":"d","resourceClaimName":""},{"name":"e"}]},"status":{"resourceClaimStatuses":[{"name":"b"}],"extendedResourceClaimStatus":{"resourceClaimName":""}}}`
	f.Add([]byte(pod),
		[]byte(`{"metadata":{"labels":{"kai.scheduler/queue":"q"}},"spec":{"devices":{"requests":[{"name":"r","exactly":{"deviceClassName":"gpu","allocationMode":"ExactCount","count":9223372036854775807}},{"firstAvailable":[]}]}},"status":{"allocation":{"devices":{"results":[{}]}}}}`),
		[]byte(`{"spec":{"driver":"d","pool":{"name":"p","generation":-1,"resourceSliceCount":0},"devices":[{"name":"a"},{"name":"a"}]}}`),
		[]byte(`{"metadata":{"name":"gpu"},"spec":{"extendedResourceName":"x.example/gpu"}}`))
	f.Add([]byte(`{}`), []byte(`{}`), []byte(`{}`), []byte(`{}`))
	f.Fuzz(func(t *testing.T, podText, claimText, sliceText, classText []byte) {
		p, c, s, class := &v1.Pod{}, &resourceapi.ResourceClaim{}, &resourceapi.ResourceSlice{}, &resourceapi.DeviceClass{}
		for text, into := range map[*[]byte]any{&podText: p, &claimText: c, &sliceText: s, &classText: class} {
			if json.Unmarshal(*text, into) != nil {
				return
			}
		}
		b := NewIndex("kai.scheduler/queue")
		b.Class(class.Name, class)
		b.Slice("s", s)
		b.Claim(p.Namespace+"/c", c)
		st := core.Pod(p)
		b.Pod(&st, p)
		for _, q := range st.Charge {
			if q.Value < 0 || q.Value > cluster.MaxQuantity {
				t.Fatalf("charged %d of %s", q.Value, q.Name)
			}
		}
		node := cluster.NodeState{Name: "n"}
		b.Node(&node)
		Containers(p, nil)
		b.Claim(p.Namespace+"/c", nil)
		b.Slice("s", nil)
		b.Class(class.Name, nil)
		b.Forget(p.Namespace + "/" + p.Name)
		b.Dirty()
	})
}
