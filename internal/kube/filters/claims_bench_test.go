package filters

import (
	"context"
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/engine/builtin"
	"github.com/muster-scheduler/muster/internal/profile"
)

// claimed is n nodes of 8 GPUs, of which all have room but those on which there are the volumes of m waiting gangs: each has a claim of its
// own, bound to a volume that says which node may use it.
func claimed(n, m int) []cluster.Event {
	var out []cluster.Event
	at := int64(1_000_000) * 1e9
	free := []cluster.Quantity{{Name: "cpu", Value: cluster.Unlimited}, {Name: "memory", Value: cluster.Unlimited}, {Name: "gpu", Value: cluster.Unlimited}}
	out = append(out, cluster.QueueState{Name: "team", UID: "team", Quota: free, Limit: free})
	for i := range n {
		name, gpus := fmt.Sprintf("node-%05d", i), int64(8000)
		if i == 0 {
			gpus = 0
		}
		out = append(out, cluster.NodeState{
			Name: name, UID: name, Labels: map[string]string{hostKey: name},
			Allocatable: []cluster.Quantity{{Name: "cpu", Value: 128000}, {Name: "memory", Value: 1 << 40}, {Name: "gpu", Value: gpus}, {Name: "pods", Value: 110}},
		})
	}
	for i := range m {
		name := fmt.Sprintf("waiting-%05d", i)
		size := v1.ResourceList{v1.ResourceStorage: resource.MustParse("1Gi")}
		pv := &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}}
		pv.Spec.Capacity, pv.Spec.AccessModes = size, []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce}
		pv.Spec.ClaimRef = &v1.ObjectReference{Namespace: "ns", Name: name}
		pv.Spec.NodeAffinity = &v1.VolumeNodeAffinity{Required: &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{{
			MatchExpressions: []v1.NodeSelectorRequirement{{Key: hostKey, Operator: v1.NodeSelectorOpIn, Values: []string{"node-00000"}}},
		}}}}
		pv.Status.Phase = v1.VolumeBound
		pvc := &v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, Annotations: map[string]string{"pv.kubernetes.io/bind-completed": "yes"}}}
		pvc.Spec.VolumeName, pvc.Spec.AccessModes = name, pv.Spec.AccessModes
		pvc.Spec.Resources.Requests = size
		pvc.Status.Phase = v1.ClaimBound
		key := cluster.Key{Face: "kai", Namespace: "ns", Name: name}
		out = append(out,
			cluster.ObjectState{Kind: cluster.PersistentVolumes, Key: name, Object: pv},
			cluster.ObjectState{Kind: cluster.PersistentVolumeClaims, Key: "ns/" + name, Object: pvc},
			cluster.GangState{Key: key, UID: name, Queue: "team", Priority: 50, Preemptible: true, Created: at - 1e9, Sets: cluster.FlatTree(1)},
			cluster.PodState{
				UID: name, Namespace: "ns", Name: name, Gang: key, Ours: true, Recreated: true, Created: at - 1e9,
				Spec:     cluster.ClassSpec{Namespace: "ns", Claims: []string{name}},
				Requests: []cluster.Quantity{{Name: "cpu", Value: 1000}, {Name: "gpu", Value: 1000}, {Name: "pods", Value: 1}},
			})
	}
	return out
}

// BenchmarkClaimed runs allocate alone for gangs each of which has a volume that only a full node may use.
func BenchmarkClaimed(b *testing.B) {
	for _, m := range []int{100, 1000} {
		b.Run(fmt.Sprintf("gangs=%d", m), func(b *testing.B) {
			prof := profile.BuiltIn()
			prof.Actions = []string{"allocate"}
			e, err := engine.New(prof, Register(builtin.Registry(), Options{}))
			if err != nil {
				b.Fatal(err)
			}
			st := cluster.NewStore(cluster.Options{})
			st.Apply(claimed(5000, m)...)
			snap := st.Snapshot(1_000_000 * 1e9)
			for b.Loop() {
				binds := 0
				e.Run(context.Background(), snap, func(p engine.Plan) { binds += p.Binds() })
				if binds != 0 {
					b.Fatalf("%d are bound", binds)
				}
			}
		})
	}
}
