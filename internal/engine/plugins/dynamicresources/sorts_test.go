package dynamicresources

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/dynamic-resource-allocation/cel"
	"pgregory.net/rapid"

	"github.com/muster-scheduler/muster/internal/cluster"
)

const driver = "gpu.example.com"

// expressions look at devices in all ways that sights tell apart, and some are in error.
var expressions = []string{
	`device.attributes["gpu.example.com"].model == "a"`,
	`"b" == device.attributes["gpu.example.com"]["model"]`,
	`device.attributes["gpu.example.com"].uuid == "u1"`,
	`device.attributes["gpu.example.com"].uuid == "n0-0-0" && device.attributes["gpu.example.com"].index >= 0`,
	`device.attributes["gpu.example.com"].uuid == "u1" || device.attributes["gpu.example.com"].model == "b"`,
	`device.attributes["gpu.example.com"].index < 2`,
	`device.attributes["gpu.example.com"].index == "text"`,
	`"uuid" in device.attributes["gpu.example.com"]`,
	`has(device.attributes["gpu.example.com"].uuid) && device.attributes["gpu.example.com"].uuid.startsWith("n0")`,
	`device.attributes["gpu.example.com"].exists(k, k == "uuid")`,
	`cel.bind(a, device.attributes["gpu.example.com"], a.model == "a" && a.index == 1)`,
	`device.attributes["other.example.com"].model == "a"`,
	`device.attributes["gpu.example.com"].missing == "a"`,
	`device.driver == "gpu.example.com"`,
	`device.attributes["gpu.example.com"].index == 1 && device.attributes["gpu.example.com"].model == "a"`,
	`device.attributes["gpu.example.com"].model == "a" || device.attributes["gpu.example.com"].uuid == "n0-0-0"`,
	`device.attributes["gpu.example.com"].model == "c" && device.attributes["gpu.example.com"].missing`,
	`["u1", "u2"].exists(device, device == "u1")`,
	`true`,
}

// TestShared is that what is said to a claim on a node is what the allocator says there, whoever asked before, wherever, in this run or in another; and where
// too few devices are free, that the allocator says no, whatever its words.
func TestShared(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n := func(label string, from, to int) int { return rapid.IntRange(from, to).Draw(t, label) }
		s := cluster.NewStore(cluster.Options{})
		class := &resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "gpu"}}
		if k := n("class", 0, 2); k > 0 {
			class.Spec.Selectors = []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{Expression: []string{`device.driver == "gpu.example.com"`, `device.attributes["gpu.example.com"].index < 3`}[k-1]}}}
		}
		s.Apply(cluster.ObjectState{Kind: cluster.DeviceClasses, Key: "gpu", Object: class})
		models := make([][]string, n("models", 1, 2))
		for i := range models {
			for k := range n("slices", 0, 2) {
				text, err := json.Marshal(drawSlice(n, "@", k))
				if err != nil {
					t.Fatal(err)
				}
				models[i] = append(models[i], string(text))
			}
		}
		nodes := n("nodes", 1, 5)
		for i := range nodes {
			name := fmt.Sprint("n", i)
			s.Apply(cluster.NodeState{Name: name, Allocatable: []cluster.Quantity{{Name: "cpu", Value: 1000}}})
			for _, text := range models[n("model", 0, len(models)-1)] {
				slice := &resourceapi.ResourceSlice{}
				if err := json.Unmarshal([]byte(strings.ReplaceAll(text, "@", name)), slice); err != nil {
					t.Fatal(err)
				}
				s.Apply(cluster.ObjectState{Kind: cluster.ResourceSlices, Key: slice.Name, Object: slice})
			}
		}
		asking := n("asking", 1, 4)
		for i := range asking {
			name := fmt.Sprint("pod-", i)
			p := cluster.PodState{UID: name, Namespace: "ns", Name: name, Ours: true, Spec: &cluster.ClassSpec{}}
			for k := range n("claims", 4, 8) / 4 {
				spec := drawSpec(n)
				text, err := json.Marshal(spec)
				if err != nil {
					t.Fatal(err)
				}
				name := fmt.Sprint(name, "-", k)
				s.Apply(cluster.ObjectState{Kind: cluster.ResourceClaims, Key: "ns/" + name, Object: &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}, Spec: spec}})
				p.Spec.Devices = append(p.Spec.Devices, cluster.DeviceNeed{Spec: string(text), GPUs: int64(i)})
				p.DeviceClaims = append(p.DeviceClaims, cluster.DeviceClaim{Name: name, Object: "ns/" + name})
			}
			s.Apply(p)
		}
		cache := cel.NewCache(100, cel.Features{EnableConsumableCapacity: true, EnableListTypeAttributes: true})
		m := &memory{}
		for range n("runs", 1, 2) {
			snap := s.Snapshot(cluster.UnixNano(1))
			m.remember(snap)
			l := readLedger(snap, newCatalog(snap, m), cache, func() {})
			for range n("changes", 1, 3) {
				drawTaken(n, l, nodes)
				said := map[string][]string{}
				for range n("questions", 1, 2*asking) {
					var p *cluster.Pod
					which := fmt.Sprint("pod-", n("who", 0, asking-1))
					snap.EachPod(func(q *cluster.Pod) {
						if q.Name == which {
							p = q
						}
					})
					words := ""
					if n("all", 0, 1) == 1 {
						words = l.nobody(p)
					}
					var all []string
					for _, id := range snap.NodeOrder {
						clear(l.spent)
						at, side := snap.Node(id), side(n("side", 0, 1))
						open := make([]int, len(p.Class.Devices))
						for k := range open {
							open[k] = k
						}
						got, want := l.solve(p, at, open, side).verdict, l.consult(p, at, open, side, patience).verdict
						w := l.catalog.wishOf(p.Class, cache)
						_, few := l.scarce(w, at, side)
						few = few || l.unmatched(w, at, side)
						if few && want.Yes() || got != want && !(few && got == taken()) {
							t.Fatalf("%s on %s: %+v, but the allocator says %+v", p.Class.Devices[0].Spec, at.Name, got, want)
						}
						v := l.solve(p, at, open, later).verdict
						all = append(all, fmt.Sprintf("%+v", v))
						if words != "" && v.Yes() {
							t.Fatalf("%s: nobody takes it, but for %s", p.Class.Devices[0].Spec, at.Name)
						}
					}
					if before := said[words]; words != "" && before != nil && fmt.Sprint(before) != fmt.Sprint(all) {
						t.Fatalf("the same words %q stand for %v and for %v", words, before, all)
					}
					said[words] = all
				}
			}
		}
	})
}

// drawSlice draws a slice of one model of nodes.
func drawSlice(n func(string, int, int) int, node string, k int) *resourceapi.ResourceSlice {
	slice := &resourceapi.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint(node, "-", k)}}
	slice.Spec = resourceapi.ResourceSliceSpec{Driver: driver, NodeName: &node, Pool: resourceapi.ResourcePool{Name: fmt.Sprint("pool-", node, "-", k), ResourceSliceCount: 1}}
	switch n("pool", 0, 9) {
	case 0:
		slice.Spec.Pool.ResourceSliceCount = 2 // another is to come
	case 1:
		slice.Spec.Pool.Name = "pool-" + node // shared with the node's other slice, perhaps
	case 2:
		slice.Spec.Pool.Generation = 7
	case 3:
		slice.Spec.Driver = "other.example.com"
	}
	for d := range n("devices", 0, 4) {
		text := func(x string) resourceapi.DeviceAttribute { return resourceapi.DeviceAttribute{StringValue: &x} }
		index := int64(d)
		of := map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{"index": {IntValue: &index}}
		if x := n("model", 0, 5); x < 5 {
			of["model"] = text([]string{"a", "a", "b", "b", "c"}[x])
		}
		switch n("uuid", 0, 5) {
		case 0, 1:
			of["uuid"] = text(fmt.Sprint(node, "-", k, "-", d))
		case 2:
			of["uuid"] = text("u1")
		case 3:
			of["uuid"] = resourceapi.DeviceAttribute{StringValues: []string{"u1", node}}
		case 4:
			of[driver+"/uuid"] = text("u1")
		}
		if version := "broken"; n("version", 0, 12) == 0 {
			of["version"] = resourceapi.DeviceAttribute{VersionValue: &version}
		}
		name := fmt.Sprint("d", d)
		if n("name", 0, 15) == 0 {
			name = "d0"
		}
		many := n("many", 0, 9) == 0
		slice.Spec.Devices = append(slice.Spec.Devices, resourceapi.Device{Name: name, Attributes: of, AllowMultipleAllocations: &many})
	}
	return slice
}

func drawSpec(n func(string, int, int) int) resourceapi.ResourceClaimSpec {
	spec := resourceapi.ResourceClaimSpec{}
	for r := range n("requests", 1, 2) {
		q := &resourceapi.ExactDeviceRequest{DeviceClassName: "gpu", AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: int64(n("count", 1, 3))}
		if n("mode", 0, 5) == 0 {
			q.AllocationMode, q.Count = resourceapi.DeviceAllocationModeAll, 0
		}
		if admin := true; n("admin", 0, 5) == 0 {
			q.AdminAccess = &admin
		}
		for range n("selectors", 0, 2) {
			q.Selectors = append(q.Selectors, resourceapi.DeviceSelector{CEL: &resourceapi.CELDeviceSelector{Expression: expressions[n("expression", 0, len(expressions)-1)]}})
		}
		request := resourceapi.DeviceRequest{Name: fmt.Sprint("r", r), Exactly: q}
		if n("alternatives", 0, 9) == 0 {
			of := resourceapi.DeviceSubRequest{Name: "first", DeviceClassName: q.DeviceClassName, Selectors: q.Selectors, AllocationMode: q.AllocationMode, Count: q.Count}
			request.Exactly, request.FirstAvailable = nil, []resourceapi.DeviceSubRequest{of}
		}
		spec.Devices.Requests = append(spec.Devices.Requests, request)
	}
	if k := n("constraint", 0, 5); k < 4 {
		name := resourceapi.FullyQualifiedName(driver + "/" + []string{"uuid", "model"}[k%2])
		c := resourceapi.DeviceConstraint{MatchAttribute: &name}
		if k > 1 {
			c = resourceapi.DeviceConstraint{DistinctAttribute: &name}
		}
		if k := n("constrained", 0, 3); k < len(spec.Devices.Requests) {
			c.Requests = []string{spec.Devices.Requests[k].Name}
		}
		spec.Devices.Constraints = append(spec.Devices.Constraints, c)
	}
	return spec
}

// drawTaken gives away some devices, on both sides or on one.
func drawTaken(n func(string, int, int) int, l *claimLedger, nodes int) {
	for range n("taken", 0, 6) {
		node := fmt.Sprint("n", n("node", 0, nodes-1))
		a := &resourceapi.AllocationResult{Devices: resourceapi.DeviceAllocationResult{Results: []resourceapi.DeviceRequestAllocationResult{{
			Driver: driver, Pool: fmt.Sprint("pool-", node, "-", n("pool", 0, 1)), Device: fmt.Sprint("d", n("device", 0, 3)),
		}}}}
		st := state{held: a, kept: a}
		if n("goes", 0, 2) == 0 {
			st.kept = nil
		}
		l.take(st, 1)
		l.touch(a)
	}
}

// TestAskedOnce counts what the allocator is asked: each claim on each sort of nodes, however many nodes there are and whatever their
// serial numbers, and of what is asked for by serial number nothing where nobody has it.
func TestAskedOnce(t *testing.T) {
	t.Parallel()
	const nodes, pods = 60, 40
	const question = stepsToCompile + stepsToAsk + 8*stepsPerDevice + 8/devicesPerStep + 2
	for _, tt := range []struct {
		name, expression string
		count            int64
		same             string
		each             int // steps that a pod may cost
	}{
		{"model", `device.attributes["gpu.example.com"].model != "none-%d" && device.attributes["gpu.example.com"].index > 8`, 1, "", question},
		{"number", `device.attributes["gpu.example.com"].uuid == "none-%d"`, 1, "", 0},
		{"numbers of others", `device.attributes["gpu.example.com"].uuid == "n7-3" && %d < 0`, 1, "", question + stepsToCompile},
		{"error", `device.attributes["gpu.example.com"].missing == %d`, 1, "", question},
		{"too many", `%d >= 0`, 9, "", 1},
		{"too many of a model", `device.attributes["gpu.example.com"].model == "a" && %d >= 0`, 9, "", 1},
		{"too many of a zone", `%d >= 0`, 3, "zone", 1},
		{"too few match", `device.attributes["gpu.example.com"].index < 7 && %d >= 0`, 8, "", question + (8+8+stepsToMatch)*8/devicesPerStep},
		{"too few of a model", `device.attributes["gpu.example.com"].model == "b" && %d >= 0`, 2, "", stepsToCompile + 1},
		{"two of a number", `%d >= 0`, 2, "uuid", 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := cluster.NewStore(cluster.Options{})
			s.Apply(cluster.ObjectState{Kind: cluster.DeviceClasses, Key: "gpu", Object: &resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "gpu"}}})
			for i := range nodes {
				node := fmt.Sprint("n", i)
				slice := &resourceapi.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: node}}
				slice.Spec = resourceapi.ResourceSliceSpec{Driver: driver, NodeName: &node, Pool: resourceapi.ResourcePool{Name: node, ResourceSliceCount: 1}}
				for d := range 8 {
					model, uuid, index, zone := "a", fmt.Sprint(node, "-", d), int64(d), int64(d/2)
					if d == 7 {
						model = "b"
					}
					slice.Spec.Devices = append(slice.Spec.Devices, resourceapi.Device{Name: uuid, Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{
						"model": {StringValue: &model}, "uuid": {StringValue: &uuid}, "index": {IntValue: &index}, "zone": {IntValue: &zone},
					}})
				}
				s.Apply(cluster.NodeState{Name: node, Allocatable: []cluster.Quantity{{Name: "cpu", Value: 1000}}})
				s.Apply(cluster.ObjectState{Kind: cluster.ResourceSlices, Key: node, Object: slice})
			}
			for i := range pods {
				spec := spec(fmt.Sprintf(tt.expression, i), tt.count)
				if same := resourceapi.FullyQualifiedName(driver + "/" + tt.same); tt.same != "" {
					spec.Devices.Constraints = []resourceapi.DeviceConstraint{{MatchAttribute: &same}}
				}
				text, err := json.Marshal(spec)
				if err != nil {
					t.Fatal(err)
				}
				name := fmt.Sprint("pod-", i)
				s.Apply(cluster.ObjectState{Kind: cluster.ResourceClaims, Key: "ns/" + name, Object: &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}, Spec: spec}})
				s.Apply(cluster.PodState{
					UID: name, Namespace: "ns", Name: name, Ours: true, Spec: &cluster.ClassSpec{Devices: []cluster.DeviceNeed{{Spec: string(text)}}},
					DeviceClaims: []cluster.DeviceClaim{{Name: "gpu", Object: "ns/" + name}},
				})
			}
			snap, m := s.Snapshot(cluster.UnixNano(1)), &memory{}
			for run, before := 0, 0; run < 2; run++ {
				m.remember(snap)
				steps := 0
				l := readLedger(snap, newCatalog(snap, m), cel.NewCache(100, cel.Features{EnableConsumableCapacity: true, EnableListTypeAttributes: true}), func() { steps++ })
				snap.EachPod(func(p *cluster.Pod) {
					if l.nobody(p) == "" {
						t.Fatalf("somebody takes %s", p.Name)
					}
					for _, id := range snap.NodeOrder {
						l.solve(p, snap.Node(id), []int{0}, later)
					}
				})
				if steps > pods*tt.each {
					t.Fatalf("%d steps for %d claims on %d nodes", steps, pods, nodes)
				}
				if run > 0 && steps != before {
					t.Fatalf("%d steps, and %d when nothing was remembered", steps, before)
				}
				before = steps
			}
		})
	}
}
