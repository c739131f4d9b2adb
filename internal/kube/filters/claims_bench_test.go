package filters

import (
	"context"
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/engine/builtin"
	"github.com/muster-scheduler/muster/internal/profile"
)

// bigCluster is how many nodes it has.
const bigCluster = 5000

// claimed is five thousand nodes of 8 GPUs in four zones, and m gangs that each wait with a claim of its own for what a cluster of that name has
// no room for.
func claimed(name string, m int) []cluster.Event {
	var out []cluster.Event
	at := cluster.UnixNano(int64(1_000_000) * 1e9)
	free := []cluster.Quantity{{Name: "cpu", Value: cluster.Unlimited}, {Name: "memory", Value: cluster.Unlimited}, {Name: "gpu", Value: cluster.Unlimited}}
	out = append(out, cluster.QueueState{Name: "team", UID: "team", Quota: free, Limit: free})
	object := func(kind cluster.ObjectKind, key string, o metav1.Object) {
		out = append(out, cluster.ObjectState{Kind: kind, Key: key, Object: o})
	}
	pod := func(name, claim, node string) {
		key := cluster.Key{Face: "kai", Namespace: "ns", Name: name}
		p := cluster.PodState{
			UID: name, Namespace: "ns", Name: name, Gang: key, Ours: true, Recreated: true, Created: at.Add(-1e9), NodeName: node,
			Spec:     &cluster.ClassSpec{Namespace: "ns", Claims: []string{claim}},
			Requests: []cluster.Quantity{{Name: "cpu", Value: 1000}, {Name: "gpu", Value: 1000}, {Name: "pods", Value: 1}},
		}
		if node != "" {
			p.Phase = cluster.Running
		}
		out = append(out, cluster.GangState{Key: key, UID: name, Queue: "team", Priority: 50, Preemptible: true, Created: at.Add(-1e9), Sets: cluster.FlatTree(1)}, p)
	}
	claim := func(claim, key, value string) {
		size := v1.ResourceList{v1.ResourceStorage: resource.MustParse("1Gi")}
		pvc := &v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: claim}}
		pvc.Spec.AccessModes = []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce}
		pvc.Spec.Resources.Requests = size
		object(cluster.PersistentVolumeClaims, "ns/"+claim, pvc)
		if name == "topologies" {
			class := "wait"
			pvc.Spec.StorageClassName = &class
			return
		}
		pv := &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: claim}}
		pv.Spec.Capacity, pv.Spec.AccessModes = size, pvc.Spec.AccessModes
		pv.Spec.ClaimRef = &v1.ObjectReference{Namespace: "ns", Name: claim}
		pv.Spec.CSI = &v1.CSIPersistentVolumeSource{Driver: "disk.example.com", VolumeHandle: claim}
		pv.Status.Phase = v1.VolumeBound
		if key != "" {
			pv.Spec.NodeAffinity = &v1.VolumeNodeAffinity{Required: &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{{
				MatchExpressions: []v1.NodeSelectorRequirement{{Key: key, Operator: v1.NodeSelectorOpIn, Values: []string{value}}},
			}}}}
		}
		pvc.Annotations = map[string]string{"pv.kubernetes.io/bind-completed": "yes"}
		pvc.Spec.VolumeName, pvc.Status.Phase = claim, v1.ClaimBound
		if name == "exclusive" {
			exclusive(pvc)
		}
		object(cluster.PersistentVolumes, claim, pv)
	}
	object(cluster.StorageClasses, "wait", aStorageClass("wait", "disk.example.com", true, "z0"))
	for i := range bigCluster {
		node, gpus := fmt.Sprintf("node-%05d", i), int64(8000)
		switch name {
		case "host":
			gpus *= int64(min(i, 1))
		case "hosts", "zone", "topologies":
			gpus *= int64(min(i%4, 1))
		case "limits":
			most := int32(1)
			object(cluster.CSINodes, node, &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: node}, Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{
				Name: "disk.example.com", NodeID: node, Allocatable: &storagev1.VolumeNodeResources{Count: &most},
			}}}})
		}
		out = append(out, cluster.NodeState{
			Name: node, UID: node, Labels: map[string]string{hostKey: node, zoneKey: fmt.Sprint("z", i%4)},
			Allocatable: []cluster.Quantity{{Name: "cpu", Value: 128000}, {Name: "memory", Value: 1 << 40}, {Name: "gpu", Value: gpus}, {Name: "pods", Value: 110}},
		})
		if name == "limits" {
			claim(fmt.Sprintf("running-%05d", i), "", "")
			pod(fmt.Sprintf("running-%05d", i), fmt.Sprintf("running-%05d", i), node)
		}
	}
	for i := range m {
		waits := fmt.Sprintf("waiting-%05d", i)
		switch name {
		case "host":
			claim(waits, hostKey, "node-00000")
		case "hosts":
			claim(waits, hostKey, fmt.Sprintf("node-%05d", i%(bigCluster/4)*4))
		case "zone":
			claim(waits, zoneKey, "z0")
		default:
			claim(waits, "", "")
		}
		pod(waits, waits, "")
		if name == "exclusive" {
			pod("running-"+waits, waits, "node-00000")
		}
	}
	return out
}

// BenchmarkClaimed runs allocate alone for gangs each of which has a claim that keeps it waiting.
func BenchmarkClaimed(b *testing.B) {
	for _, name := range []string{"host", "hosts", "zone", "topologies", "exclusive", "limits"} {
		b.Run(name, func(b *testing.B) {
			prof := profile.BuiltIn()
			prof.Actions = []string{"allocate"}
			e, err := engine.New(prof, Register(builtin.Registry(), Options{}))
			if err != nil {
				b.Fatal(err)
			}
			st := cluster.NewStore(cluster.Options{})
			st.Apply(claimed(name, 1000)...)
			snap := st.Snapshot(cluster.UnixNano(1_000_000 * 1e9))
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
