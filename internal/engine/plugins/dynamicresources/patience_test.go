package dynamicresources

import (
	"encoding/json"
	"fmt"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/dynamic-resource-allocation/cel"

	"github.com/muster-scheduler/muster/internal/cluster"
)

// TestPatienceOfEach is that who asks what takes the allocator too long takes nothing from other queues: they are answered as if they
// were alone, also where somebody in a hurry was told no to the same question.
func TestPatienceOfEach(t *testing.T) {
	t.Parallel()
	numa, same := resourceapi.FullyQualifiedName(driver+"/numa"), resourceapi.FullyQualifiedName(driver+"/model")
	const model = `device.attributes["gpu.example.com"].model == "a"`
	larger := spec(`true`, 11) // of 10 devices in one zone and 11 in another
	larger.Devices.Constraints = []resourceapi.DeviceConstraint{{MatchAttribute: &numa}}
	largerByModel := spec(model, 11)
	largerByModel.Devices.Constraints = larger.Devices.Constraints
	endless := spec(`true`, 8, 2) // no two differ, whichever eight are chosen first
	endless.Devices.Constraints = []resourceapi.DeviceConstraint{{DistinctAttribute: &same, Requests: []string{"r1"}}}
	for _, tt := range []struct {
		name   string
		larger resourceapi.ResourceClaimSpec
		shared bool // there are devices that several nodes can use, so that no two nodes are alike
	}{{"sorts", larger, false}, {"few nodes", largerByModel, false}, {"no sorts", larger, true}} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := cluster.NewStore(cluster.Options{})
			s.Apply(cluster.ObjectState{Kind: cluster.DeviceClasses, Key: "gpu", Object: &resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "gpu"}}})
			s.Apply(cluster.NodeState{Name: "n", Allocatable: []cluster.Quantity{{Name: "cpu", Value: 1000}}})
			slice := &resourceapi.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
			node := "n"
			slice.Spec = resourceapi.ResourceSliceSpec{Driver: driver, NodeName: &node, Pool: resourceapi.ResourcePool{Name: "n", ResourceSliceCount: 1}}
			for d := range 21 {
				model, zone := "a", int64(min(d/10, 1))
				slice.Spec.Devices = append(slice.Spec.Devices, resourceapi.Device{Name: fmt.Sprint("d", d), Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{
					"model": {StringValue: &model}, "numa": {IntValue: &zone},
				}})
			}
			s.Apply(cluster.ObjectState{Kind: cluster.ResourceSlices, Key: "n", Object: slice})
			if tt.shared {
				everywhere := true
				slice := &resourceapi.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: "net"}}
				slice.Spec = resourceapi.ResourceSliceSpec{Driver: "z.example.com", AllNodes: &everywhere, Pool: resourceapi.ResourcePool{Name: "net", ResourceSliceCount: 1}}
				s.Apply(cluster.ObjectState{Kind: cluster.ResourceSlices, Key: "net", Object: slice})
			}
			asks := map[string]*cluster.Pod{}
			for _, a := range []struct {
				name, queue string
				spec        resourceapi.ResourceClaimSpec
			}{{"endless", "greedy", endless}, {"hurried", "greedy", tt.larger}, {"patient", "other", tt.larger}} {
				claiming(t, s, a.name, a.queue, a.spec)
			}
			snap := s.Snapshot(cluster.UnixNano(1))
			snap.EachPod(func(p *cluster.Pod) { asks[p.Name] = p })
			if asks["hurried"].Class != asks["patient"].Class {
				t.Fatal("they do not ask the same")
			}
			m := &memory{}
			cache := cel.NewCache(100, cel.Features{EnableConsumableCapacity: true, EnableListTypeAttributes: true})
			for run := range 2 {
				m.remember(snap)
				l := readLedger(snap, newCatalog(snap, m), cache, func() {})
				at := snap.Node(snap.NodeOrder[0])
				solve := func(who string) answer { return l.solve(asks[who], at, []int{0}, later) }
				if tt.name != "sorts" {
					l.spend(asks["endless"], answer{cost: patience}) // which takes two seconds
				} else if v := solve("endless").verdict; v.Yes() || !v.Partial {
					t.Fatalf("run %d: it ended: %+v", run, v)
				}
				if words := l.nobody(asks["hurried"]); words == "" && !tt.shared {
					t.Fatalf("run %d: somebody takes who has used up his queue's steps", run)
				}
				if v := solve("hurried").verdict; v.Yes() || !v.Partial {
					t.Fatalf("run %d: it is in no hurry: %+v", run, v)
				}
				if words := l.nobody(asks["patient"]); words != "" {
					t.Fatalf("run %d: nobody takes the other", run)
				}
				if v := solve("patient").verdict; !v.Yes() {
					t.Fatalf("run %d: %+v", run, v)
				}
			}
		})
	}
}

// TestPatienceTogether is that all queues together spend no more than three queues may, and that each has its part of what one may, whoever asked
// before.
func TestPatienceTogether(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 2, 5, 6, 50, 5000} {
		a := accounts{spent: map[string]int{}, queues: map[string]bool{}}
		for i := range n {
			a.queues[fmt.Sprint(i)] = true
		}
		for i := range n {
			queue := fmt.Sprint(i)
			if allowed := a.allowed(queue); allowed < min(patience, max(hurry, patience/n)) {
				t.Fatalf("the %d-th of %d may take %d", i, n, allowed)
			}
			for a.allowed(queue) > hurry {
				a.took(queue, a.allowed(queue))
			}
			if a.spent[queue] > patience {
				t.Fatalf("the %d-th of %d took %d", i, n, a.spent[queue])
			}
		}
		if a.all > together+patience {
			t.Fatalf("%d queues took %d", n, a.all)
		}
	}
}

// TestHurryTakesNothing is that a queue which has spent its patience takes nothing from others by going on asking, nor by naming queues
// that do not exist.
func TestHurryTakesNothing(t *testing.T) {
	t.Parallel()
	a := accounts{spent: map[string]int{}, queues: map[string]bool{"greedy": true, "other": true}}
	for range 10_000 {
		a.took("greedy", a.allowed("greedy"))
	}
	if allowed := a.allowed("other"); allowed != patience {
		t.Errorf("the other queue may take %d", allowed)
	}
	s := cluster.NewStore(cluster.Options{})
	s.Apply(cluster.QueueState{Name: "real", UID: "real"})
	for i := range 100 {
		claiming(t, s, fmt.Sprint("invented-", i), fmt.Sprint("invented-", i), spec("true", 1))
	}
	claiming(t, s, "real", "real", spec("true", 1))
	snap, m := s.Snapshot(cluster.UnixNano(1)), &memory{}
	m.remember(snap)
	l := readLedger(snap, newCatalog(snap, m), cel.NewCache(10, cel.Features{}), func() {})
	if len(l.queues) != 1 || !l.queues["real"] {
		t.Errorf("parts are for %v", l.queues)
	}
}

// spec is a claim with a request for each count.
func spec(expression string, counts ...int64) resourceapi.ResourceClaimSpec {
	out := resourceapi.ResourceClaimSpec{}
	for r, count := range counts {
		out.Devices.Requests = append(out.Devices.Requests, resourceapi.DeviceRequest{Name: fmt.Sprint("r", r), Exactly: &resourceapi.ExactDeviceRequest{
			DeviceClassName: "gpu", AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: count,
			Selectors: []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{Expression: expression}}},
		}})
	}
	return out
}

// claiming adds a gang of a queue with one pod that has a claim of its own.
func claiming(t *testing.T, s *cluster.Store, name, queue string, spec resourceapi.ResourceClaimSpec) {
	t.Helper()
	text, err := json.Marshal(spec)
	if err != nil {
		t.Fatal(err)
	}
	key := cluster.Key{Face: "kai", Namespace: "ns", Name: name}
	s.Apply(cluster.GangState{Key: key, UID: name, Queue: queue, Sets: cluster.FlatTree(1)})
	s.Apply(cluster.ObjectState{Kind: cluster.ResourceClaims, Key: "ns/" + name, Object: &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}, Spec: spec}})
	s.Apply(cluster.PodState{
		UID: name, Namespace: "ns", Name: name, Gang: key, Ours: true, Spec: &cluster.ClassSpec{Devices: []cluster.DeviceNeed{{Spec: string(text)}}},
		DeviceClaims: []cluster.DeviceClaim{{Name: "gpu", Object: "ns/" + name}},
	})
}
