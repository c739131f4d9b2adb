package enginetest

import (
	"encoding/json"
	"fmt"

	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-scheduler/muster/internal/cluster"
)

// The cliffs of this file are those of devices by claim: a thousand gangs with a claim each, on a thousand nodes with devices.

const gpuDriver = "gpu.example.com"

// publishing is nodes that publish so many devices each; describe adds to what the d-th of node i says of itself.
func publishing(nodes, devices int, describe func(i, d int, of map[resourcev1.QualifiedName]resourcev1.DeviceAttribute)) *situation {
	s := &situation{}
	s.plant(nodes)
	s.rest = append(s.rest, queue("team", "", cluster.Unlimited))
	s.rest = append(s.rest, cluster.ObjectState{Kind: cluster.DeviceClasses, Key: "gpu", Object: &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "gpu"}}})
	for i := range nodes {
		node := nodeName(i)
		slice := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: node}}
		slice.Spec = resourcev1.ResourceSliceSpec{Driver: gpuDriver, NodeName: &node, Pool: resourcev1.ResourcePool{Name: node, ResourceSliceCount: 1}}
		for d := range devices {
			of := map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{"model": text("GB200"), "index": number(int64(d))}
			if describe != nil {
				describe(i, d, of)
			}
			slice.Spec.Devices = append(slice.Spec.Devices, resourcev1.Device{Name: fmt.Sprint("gpu-", d), Attributes: of})
		}
		s.nodes = append(s.nodes, cluster.ObjectState{Kind: cluster.ResourceSlices, Key: node, Object: slice})
	}
	return s
}

func text(x string) resourcev1.DeviceAttribute  { return resourcev1.DeviceAttribute{StringValue: &x} }
func number(x int64) resourcev1.DeviceAttribute { return resourcev1.DeviceAttribute{IntValue: &x} }

// numbered gives every device a serial number of its own.
func numbered(i, d int, of map[resourcev1.QualifiedName]resourcev1.DeviceAttribute) {
	of["uuid"] = text(serial(i, d))
}

func serial(i, d int) string { return fmt.Sprintf("GPU-%05d-%02d", i, d) }

// exactly is a claim of so many devices that an expression chooses; "" for any.
func exactly(count int64, expression string) resourcev1.ResourceClaimSpec {
	r := &resourcev1.ExactDeviceRequest{DeviceClassName: "gpu", AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: count}
	if expression != "" {
		r.Selectors = []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{Expression: expression}}}
	}
	spec := resourcev1.ResourceClaimSpec{}
	spec.Devices.Requests = []resourcev1.DeviceRequest{{Name: "gpu", Exactly: r}}
	return spec
}

func attributeIs(name, value string) string {
	return fmt.Sprintf("device.attributes[%q].%s == %q", gpuDriver, name, value)
}

// claiming adds n gangs of one pod each, each with a claim of its own.
func (s *situation) claiming(n int, spec func(i int) resourcev1.ResourceClaimSpec) *situation {
	for i := range n {
		name := fmt.Sprintf("waiting-%06d", i)
		s.claim(name, spec(i), "", "")
		s.claimant(name, "ns/"+name, spec(i))
	}
	return s
}

// claimant adds a gang of one pod, which has a claim.
func (s *situation) claimant(name, object string, spec resourcev1.ResourceClaimSpec) {
	need := cluster.DeviceNeed{Spec: marshalled(spec), GPUs: 1}
	if object != "ns/"+name {
		need.Shared, need.GPUs = object, 0
	}
	s.crew(crew{name: name, queue: "team", pods: 1, age: 1, priority: 50, preemptible: true, spec: cluster.ClassSpec{Devices: []cluster.DeviceNeed{need}}})
	p := s.rest[len(s.rest)-1].(cluster.PodState)
	p.DeviceClaims = []cluster.DeviceClaim{{Name: "gpu", Object: object}}
	s.rest[len(s.rest)-1] = p
}

func marshalled(spec resourcev1.ResourceClaimSpec) string {
	out, err := json.Marshal(spec)
	if err != nil {
		panic(err)
	}
	return string(out)
}

// claim adds a claim, which has a device of a node for somebody whom nobody knows, or has none ("").
func (s *situation) claim(name string, spec resourcev1.ResourceClaimSpec, node, device string) {
	c := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}, Spec: spec}
	if node != "" {
		c.Status.Allocation = &resourcev1.AllocationResult{Devices: resourcev1.DeviceAllocationResult{Results: []resourcev1.DeviceRequestAllocationResult{
			{Request: "gpu", Driver: gpuDriver, Pool: node, Device: device},
		}}}
		c.Status.ReservedFor = []resourcev1.ResourceClaimConsumerReference{{Resource: "pods", Name: name, UID: "other"}}
	}
	s.rest = append(s.rest, cluster.ObjectState{Kind: cluster.ResourceClaims, Key: "ns/" + name, Object: c})
}

// taking gives devices to others.
func (s *situation) taking(nodes, devices int, taken func(i, d int) bool) *situation {
	for i := range nodes {
		for d := range devices {
			if taken(i, d) {
				s.claim(fmt.Sprintf("taken-%05d-%02d", i, d), exactly(1, ""), nodeName(i), fmt.Sprint("gpu-", d))
			}
		}
	}
	return s
}

// constrained is a claim of devices that have an attribute in common.
func constrained(count int64, expression, attribute string) resourcev1.ResourceClaimSpec {
	spec := exactly(count, expression)
	name := resourcev1.FullyQualifiedName(gpuDriver + "/" + attribute)
	spec.Devices.Constraints = []resourcev1.DeviceConstraint{{MatchAttribute: &name}}
	return spec
}

// fruitless is what the i-th of many gangs asks: a device, by an expression of its own that nothing satisfies.
func fruitless(i int) resourcev1.ResourceClaimSpec {
	return exactly(1, attributeIs("model", fmt.Sprint("none-", i)))
}

// claimCliffs are those of claims.
func claimCliffs() []cliff {
	const n = 1000
	all := func(_, _ int) bool { return true }
	bound := func(evicted, _, bound int) bool { return evicted == 0 && bound == n }
	return []cliff{
		{"claims=100", func() *situation { return publishing(n, 8, nil).claiming(100, fruitless) }, nil, idly},
		{"claims=1000", func() *situation { return publishing(n, 8, nil).claiming(n, fruitless) }, nil, idly},
		{"claims=1000/one-expression", func() *situation {
			return publishing(n, 8, nil).claiming(n, func(int) resourcev1.ResourceClaimSpec { return fruitless(0) })
		}, nil, idly},
		{"claims=1000/numbered", func() *situation { return publishing(n, 8, numbered).claiming(n, fruitless) }, nil, idly},
		{"claims=1000/by-number-missing", func() *situation {
			return publishing(n, 8, numbered).claiming(n, func(i int) resourcev1.ResourceClaimSpec {
				return exactly(1, attributeIs("uuid", serial(i+n, 0)))
			})
		}, nil, idly},
		{"claims=1000/by-number-taken", func() *situation {
			return publishing(n, 8, numbered).claiming(n, func(i int) resourcev1.ResourceClaimSpec {
				return exactly(1, attributeIs("uuid", serial(i, 0)))
			}).taking(n, 8, func(_, d int) bool { return d == 0 })
		}, nil, idly},
		{"claims=1000/fit", func() *situation {
			return publishing(n, 8, numbered).claiming(n, func(i int) resourcev1.ResourceClaimSpec {
				return exactly(1, attributeIs("model", "GB200")+fmt.Sprintf(" && %d >= 0", i))
			})
		}, nil, bound},
		{"claims=1000/taken", func() *situation {
			return publishing(n, 8, numbered).claiming(n, func(i int) resourcev1.ResourceClaimSpec {
				return exactly(1, attributeIs("model", "GB200")+fmt.Sprintf(" && %d >= 0", i))
			}).taking(n, 8, all)
		}, nil, idly},
		{"claims=1000/unevenly-taken", func() *situation {
			return publishing(n, 8, numbered).claiming(n, func(i int) resourcev1.ResourceClaimSpec {
				return exactly(5, attributeIs("model", "GB200")+fmt.Sprintf(" && %d >= 0", i))
			}).taking(n, 8, func(i, d int) bool { return (i%56+d*7)%8 < 4 })
		}, nil, idly},
		{"claims=1000/half-of-16", func() *situation {
			return publishing(n, 16, numbered).claiming(n, func(i int) resourcev1.ResourceClaimSpec {
				return exactly(8, fmt.Sprintf("device.attributes[%q].index < 7 && %d >= 0", gpuDriver, i))
			})
		}, nil, idly},
		{"claims=1000/all", func() *situation {
			return publishing(n, 8, numbered).claiming(n, func(i int) resourcev1.ResourceClaimSpec {
				spec := fruitless(i)
				spec.Devices.Requests[0].Exactly.AllocationMode, spec.Devices.Requests[0].Exactly.Count = resourcev1.DeviceAllocationModeAll, 0
				return spec
			})
		}, nil, idly},
		{"claims=1000/same-numa", func() *situation {
			return publishing(n, 16, func(i, d int, of map[resourcev1.QualifiedName]resourcev1.DeviceAttribute) {
				numbered(i, d, of)
				of["numa"] = number(int64(d / 4))
			}).claiming(n, func(i int) resourcev1.ResourceClaimSpec {
				return constrained(5, attributeIs("model", "GB200")+fmt.Sprintf(" && %d >= 0", i), "numa")
			})
		}, nil, idly},
		{"claims=1000/same-number", func() *situation {
			return publishing(n, 16, numbered).claiming(n, func(i int) resourcev1.ResourceClaimSpec {
				return constrained(2, attributeIs("model", "GB200")+fmt.Sprintf(" && %d >= 0", i), "uuid")
			})
		}, nil, idly},
		{"claims=1000/admin", func() *situation {
			return publishing(n, 8, numbered).claiming(n, func(i int) resourcev1.ResourceClaimSpec {
				spec, yes := fruitless(i), true
				spec.Devices.Requests[0].Exactly.AdminAccess = &yes
				return spec
			})
		}, nil, idly},
		{"claims=1000/in-error", func() *situation {
			return publishing(n, 8, numbered).claiming(n, func(i int) resourcev1.ResourceClaimSpec {
				return exactly(1, attributeIs("missing", fmt.Sprint(i)))
			})
		}, nil, idly},
		{"claims=20/everything-looked-at", func() *situation {
			return publishing(n, 8, numbered).claiming(20, func(i int) resourcev1.ResourceClaimSpec {
				return exactly(1, fmt.Sprintf(`device.attributes[%q].exists(k, k == "none-%d")`, gpuDriver, i))
			})
		}, nil, idly},
		{"claims=1000/shared", func() *situation {
			s := publishing(n, 8, numbered)
			for i := range n {
				common := fmt.Sprint("common-", i/10)
				if i%10 == 0 {
					s.claim(common, fruitless(i), "", "")
				}
				s.claimant(fmt.Sprintf("waiting-%06d", i), "ns/"+common, fruitless(i-i%10))
			}
			return s
		}, nil, idly},
	}
}
