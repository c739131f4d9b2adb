package enginetest

import (
	"encoding/json"
	"fmt"
	"strconv"
	"testing"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/muster-scheduler/muster/internal/cluster"
)

// TestNoDeviceTwice plays random clusters of devices by claim: nodes with devices of their own and devices that all can use,
// gangs with claims made for each pod and with claims that they share, pods that go, binds that fail, and whoever reclaims.
// Every plan is audited: no device has two claims in any prefix of it, a cold engine decides the same, and nobody who could
// be placed is left over at the end.
func TestNoDeviceTwice(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		b, err := NewEngine(&Options{}, Mutation{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		n := func(label string, from, to int) int { return rapid.IntRange(from, to).Draw(t, label) }
		script := "deviceclass gpu driver=gpu.example.com\ndeviceclass net driver=net.example.com\n"
		for i := range n("nodes", 1, 4) {
			script += fmt.Sprintf("node n%d cpu=%d\nslice n%d node=n%d devices=%d\n", i, n("cpu", 1, 6), i, i, n("devices", 0, 4))
		}
		if rapid.Bool().Draw(t, "fabric") {
			script += fmt.Sprintf("slice fabric driver=net.example.com devices=%d\n", n("ports", 1, 3))
		}
		script += "queue root quota=unlimited\nqueue root/a quota=2\nqueue root/b quota=2\n"
		script += "claimtemplate one class=gpu\nclaimtemplate two class=gpu count=2\nclaimtemplate port class=net\n"
		script += "resourceclaim common class=gpu queue=a\n"
		for i := range n("gangs", 1, 6) {
			queue := rapid.SampledFrom([]string{"a", "b"}).Draw(t, "queue")
			claims := rapid.SampledFrom([]string{"claimtemplate=one", "claimtemplate=two", "claimtemplate=port", "claimtemplate=one claimtemplate=port", "resourceclaim=common"}).Draw(t, "claims")
			script += fmt.Sprintf("gang g%d queue=%s pods=%d cpu=1 priority=%d %s\n", i, queue, n("pods", 1, 3), n("priority", 40, 60), claims)
		}
		lines, err := parseLines(script)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := newInterpreter(b, &Options{}).run(lines); err != nil {
			t.Fatalf("%v\n%s", err, script)
		}
		for range n("steps", 1, 4) {
			switch n("step", 0, 3) {
			case 0:
				if _, err := b.Cycle(); err != nil {
					t.Fatalf("%v\n%s", err, script)
				}
			case 1:
				pods, _ := b.Pods()
				if len(pods) > 0 {
					if err := b.Delete(pods[n("pod", 0, len(pods)-1)]); err != nil {
						t.Fatal(err)
					}
				}
			case 2:
				if err := b.Settle(); err != nil {
					t.Fatalf("%v\n%s", err, script)
				}
			default:
				_ = b.Advance(time.Minute)
			}
		}
	})
}

// BenchmarkClaims decides a gang of 64 pods, each with a claim of one of 8 GPUs chosen by attribute, on 500 nodes of which
// half are taken.
func BenchmarkClaims(b *testing.B) {
	const nodes, members = 500, 64
	class := &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "gpu"}}
	class.Spec.Selectors = []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{Expression: `device.driver == "gpu.example.com"`}}}
	s := plant{nodes: nodes}.store()
	s.Apply(cluster.ObjectState{Kind: cluster.DeviceClasses, Key: "gpu", Object: class})
	spec := resourcev1.ResourceClaimSpec{}
	spec.Devices.Requests = []resourcev1.DeviceRequest{{Name: "gpu", Exactly: &resourcev1.ExactDeviceRequest{
		DeviceClassName: "gpu", AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: 1,
		Selectors: []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{Expression: `device.attributes["gpu.example.com"].model == "GB200"`}}},
	}}}
	model := "GB200"
	for i := range nodes {
		node := fmt.Sprintf("node-%05d", i)
		slice := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: node}}
		slice.Spec = resourcev1.ResourceSliceSpec{Driver: "gpu.example.com", NodeName: &node, Pool: resourcev1.ResourcePool{Name: node, ResourceSliceCount: 1}}
		for d := range 8 {
			slice.Spec.Devices = append(slice.Spec.Devices, resourcev1.Device{
				Name: "gpu-" + strconv.Itoa(d), Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{"model": {StringValue: &model}},
			})
			if i%2 == 1 {
				continue
			}
			taken := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: node + "-" + strconv.Itoa(d)}, Spec: spec}
			taken.Status.Allocation = &resourcev1.AllocationResult{Devices: resourcev1.DeviceAllocationResult{Results: []resourcev1.DeviceRequestAllocationResult{
				{Request: "gpu", Driver: "gpu.example.com", Pool: node, Device: "gpu-" + strconv.Itoa(d)},
			}}}
			taken.Status.ReservedFor = []resourcev1.ResourceClaimConsumerReference{{Resource: "pods", Name: taken.Name, UID: "other"}}
			s.Apply(cluster.ObjectState{Kind: cluster.ResourceClaims, Key: "ns/" + taken.Name, Object: taken})
		}
		s.Apply(cluster.ObjectState{Kind: cluster.ResourceSlices, Key: node, Object: slice})
	}
	text, err := json.Marshal(spec)
	if err != nil {
		b.Fatal(err)
	}
	key := cluster.Key{Face: "kai", Namespace: "ns", Name: "gang"}
	s.Apply(cluster.GangState{Key: key, UID: "gang", Queue: "dept-0-team-0", Priority: 50, Preemptible: true, Sets: cluster.FlatTree(members)})
	for m := range members {
		name := fmt.Sprintf("gang-%02d", m)
		c := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}, Spec: spec}
		s.Apply(cluster.ObjectState{Kind: cluster.ResourceClaims, Key: "ns/" + name, Object: c})
		s.Apply(cluster.PodState{
			UID: name, Namespace: "ns", Name: name, Gang: key, Ours: true,
			Requests:     []cluster.Quantity{{Name: "cpu", Value: 1000}, {Name: "pods", Value: 1}},
			Charge:       []cluster.Quantity{{Name: "cpu", Value: 1000}, {Name: "gpu", Value: 1000}, {Name: "pods", Value: 1}},
			Spec:         &cluster.ClassSpec{Devices: []cluster.DeviceNeed{{Spec: string(text), GPUs: 1}}},
			DeviceClaims: []cluster.DeviceClaim{{Name: "gpu", Object: "ns/" + name}},
		})
	}
	snap := s.Snapshot(noon)
	plans, _ := decide(builtIn(b), snap)
	if err := Audit(snap, plans, true); err != nil {
		b.Fatal(err)
	}
	b.Run("cold", func(b *testing.B) {
		for b.Loop() {
			if plans, _ := decide(builtIn(b), snap); plans[0].Binds() != members {
				b.Fatalf("%d binds", plans[0].Binds())
			}
		}
	})
	b.Run("warm", func(b *testing.B) {
		e := builtIn(b)
		for b.Loop() {
			if plans, _ := decide(e, snap); plans[0].Binds() != members {
				b.Fatalf("%d binds", plans[0].Binds())
			}
		}
	})
}
