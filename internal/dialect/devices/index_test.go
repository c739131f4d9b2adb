package devices

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-scheduler/muster/internal/cluster"
)

func request(class string, count int64) resourceapi.DeviceRequest {
	return resourceapi.DeviceRequest{Name: "r", Exactly: &resourceapi.ExactDeviceRequest{DeviceClassName: class, AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: count}}
}

func claimOf(name string, labels map[string]string, requests ...resourceapi.DeviceRequest) *resourceapi.ResourceClaim {
	c := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, Labels: labels}}
	c.Spec.Devices.Requests = requests
	return c
}

func sliceOf(node, driver string, devices int) *resourceapi.ResourceSlice {
	s := &resourceapi.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: node + "-" + driver}}
	s.Spec.NodeName, s.Spec.Driver = &node, driver
	s.Spec.Devices = make([]resourceapi.Device, devices)
	return s
}

// needs returns a pod's event as the book completes it.
func (b *Index) needs(p *v1.Pod) cluster.PodState {
	st := cluster.PodState{Phase: cluster.Pending, Spec: &cluster.ClassSpec{}, Requests: []cluster.Quantity{{Name: "cpu", Value: 1}}}
	b.Pod(&st, p)
	return st
}

func user(refs ...v1.PodResourceClaim) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p"}, Spec: v1.PodSpec{ResourceClaims: refs}}
}

// TestQueueLabel: which label of a shared claim names its queue is a setting.
func TestQueueLabel(t *testing.T) {
	t.Parallel()
	for key, want := range map[string]string{"team": "a", "other": ""} {
		b := NewIndex(key)
		b.Claim("ns/c", claimOf("c", map[string]string{"team": "a"}, request("gpu", 1)))
		st := b.needs(user(v1.PodResourceClaim{Name: "x", ResourceClaimName: new("c")}))
		if got := st.Spec.Devices[0]; got.Queue != want || got.Shared != "ns/c" {
			t.Errorf("label %s: %+v", key, got)
		}
	}
}

// TestTemplatesShareAClass: claims of the same spec make the same class, whatever they are called; a pod hears of its claim
// when it comes.
func TestTemplatesShareAClass(t *testing.T) {
	t.Parallel()
	b := NewIndex("queue")
	ref := v1.PodResourceClaim{Name: "x", ResourceClaimTemplateName: new("t")}
	made := func(claim string) *v1.Pod {
		p := user(ref)
		p.Name = "p-" + claim
		p.Status.ResourceClaimStatuses = []v1.PodResourceClaimStatus{{Name: "x", ResourceClaimName: &claim}}
		return p
	}
	if got := b.needs(user(ref)).Spec.Devices[0].Missing; got != "ns/t (template)" {
		t.Errorf("before the claim is made: %q", got)
	}
	if got := b.needs(made("one")).Spec.Devices[0].Missing; got != "ns/one" {
		t.Errorf("before the claim is known: %q", got)
	}
	b.Claim("ns/one", claimOf("one", nil, request("gpu", 2)))
	if pods, _ := b.Dirty(); !cmp.Equal(pods, []string{"ns/p-one"}) {
		t.Errorf("told anew: %v", pods)
	}
	b.Claim("ns/two", claimOf("two", nil, request("gpu", 2)))
	one, two := b.needs(made("one")), b.needs(made("two"))
	if diff := cmp.Diff(one.Spec, two.Spec); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]cluster.DeviceClaim{{Name: "x", Object: "ns/two"}}, two.DeviceClaims); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]cluster.Quantity{{Name: "cpu", Value: 1}, {Name: "gpu", Value: 2000}}, one.Charge); diff != "" {
		t.Error(diff)
	}
	status := claimOf("one", nil, request("gpu", 2))
	status.Status.Allocation = &resourceapi.AllocationResult{}
	b.Claim("ns/one", status)
	b.Forget("ns/p-two")
	b.Claim("ns/two", nil)
	if pods, _ := b.Dirty(); pods != nil {
		t.Errorf("told anew for nothing: %v", pods)
	}
}

// TestClaimsOfGroups: a claim that was made for the pod's PodGroup is one that its pods share, without a label of a queue; one that was made for something else of that name, or for
// another group, is taken for the pod's own, and the binder has the last word.
func TestClaimsOfGroups(t *testing.T) {
	t.Parallel()
	p := user(v1.PodResourceClaim{Name: "x", ResourceClaimTemplateName: new("t")})
	p.Spec.SchedulingGroup = &v1.PodSchedulingGroup{PodGroupName: new("g")}
	p.Status.ResourceClaimStatuses = []v1.PodResourceClaimStatus{{Name: "x", ResourceClaimName: new("made")}}
	for _, row := range []struct {
		version, kind, name string
		own                 bool
	}{
		{"scheduling.k8s.io/v1beta1", "PodGroup", "g", true},
		{"scheduling.k8s.io/v1alpha3", "PodGroup", "g", true},
		{"scheduling.k8s.io/v1beta1", "PodGroup", "h", false},
		{"scheduling.k8s.io/v1beta1", "Workload", "g", false},
		{"scheduling.volcano.sh/v1beta1", "PodGroup", "g", false},
		{"a/b/c", "PodGroup", "g", false},
	} {
		b := NewIndex("queue")
		c := claimOf("made", map[string]string{"queue": "theirs"}, request("gpu", 2))
		c.OwnerReferences = []metav1.OwnerReference{{APIVersion: row.version, Kind: row.kind, Name: row.name, UID: "u", Controller: new(true)}}
		b.Claim("ns/made", c)
		got := b.needs(p).Spec.Devices[0]
		if got.Own != row.own || (got.Shared == "ns/made") != row.own || got.Queue != "" {
			t.Errorf("%+v: %+v", row, got)
		}
		if OfGroup(c, p) != row.own {
			t.Errorf("%+v: OfGroup says %v", row, !row.own)
		}
	}
}

func TestGPUs(t *testing.T) {
	t.Parallel()
	all := request("gpu", 0)
	all.Exactly.AllocationMode = resourceapi.DeviceAllocationModeAll
	admin := request("gpu", 4)
	admin.Exactly.AdminAccess = new(true)
	first := resourceapi.DeviceRequest{FirstAvailable: []resourceapi.DeviceSubRequest{{DeviceClassName: "big-gpu", Count: 2}, {DeviceClassName: "gpu", Count: 4}}}
	for want, requests := range map[int64][]resourceapi.DeviceRequest{
		0:  {request("nic", 3), admin},
		1:  {all},
		3:  {request("nvidia.com/GPU", 2), request("gpu", 0)},
		2:  {first},
		32: {request("gpu", 1<<62)},
	} {
		if got := GPUs(&claimOf("c", nil, requests...).Spec); got != want {
			t.Errorf("%v: %d, want %d", requests, got, want)
		}
	}
}

// TestNodes: what slices make of a node, and when it is told anew.
func TestNodes(t *testing.T) {
	t.Parallel()
	b := NewIndex("queue")
	node := func() cluster.NodeState {
		st := cluster.NodeState{Name: "n", Allocatable: []cluster.Quantity{{Name: "cpu", Value: 8}}}
		b.Node(&st)
		return st
	}
	b.Slice("s", sliceOf("n", "gpu.example.com", 3))
	b.Slice("u", sliceOf("n", "nic.example.com", 2))
	if _, nodes := b.Dirty(); !cmp.Equal(nodes, []string{"n"}) {
		t.Errorf("told anew: %v", nodes)
	}
	if st := node(); st.ClaimGPUs != 3000 || st.ByClaim != nil {
		t.Errorf("%+v", st)
	}
	class := &resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "gpu"}}
	class.Spec.ExtendedResourceName = new("nvidia.com/gpu")
	b.Class("gpu", class)
	if _, nodes := b.Dirty(); !cmp.Equal(nodes, []string{"n"}) {
		t.Errorf("told anew: %v", nodes)
	}
	if st := node(); st.ClaimGPUs != 0 || fmt.Sprint(st.Allocatable) != "[{cpu 8} {deviceclass.resource.kubernetes.io/gpu 5} {gpu 3000}]" {
		t.Errorf("%+v", st)
	}
	p := user()
	p.Spec.Containers = []v1.Container{{Name: "main", Resources: v1.ResourceRequirements{Requests: v1.ResourceList{"nvidia.com/gpu": resource.MustParse("2")}}}}
	st := b.needs(p)
	if len(st.Spec.Devices) != 1 || !st.Spec.Devices[0].Extended || !cmp.Equal(st.Spec.Devices[0].Resources, []string{"nvidia.com/gpu"}) {
		t.Errorf("%+v", st.Spec.Devices)
	}
	b.Class("gpu", nil)
	if pods, _ := b.Dirty(); !cmp.Equal(pods, []string{"ns/p"}) {
		t.Errorf("told anew: %v", pods)
	}
	if st := b.needs(p); len(st.Spec.Devices) != 0 {
		t.Errorf("%+v", st.Spec.Devices)
	}
}

// TestExtendedResourcesAreOff: where the API server does not let pods have extended resources as devices, no class stands for one, until
// it does, or a class says extendedResourceName, which the API server would otherwise have dropped.
func TestExtendedResourcesAreOff(t *testing.T) {
	t.Parallel()
	b := NewIndex("queue")
	b.Slice("s", sliceOf("n", "gpu.example.com", 3))
	class := &resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "gpu"}}
	b.Class("gpu", class)
	p := user()
	const implicit = "deviceclass.resource.kubernetes.io/gpu"
	p.Spec.Containers = []v1.Container{{Name: "main", Resources: v1.ResourceRequirements{Requests: v1.ResourceList{implicit: resource.MustParse("1")}}}}
	expect := func(on, anew bool) {
		t.Helper()
		pods, nodes := b.Dirty()
		if (len(pods) == 1 && len(nodes) == 1) != anew {
			t.Errorf("told anew: %v, %v", pods, nodes)
		}
		st := cluster.NodeState{Name: "n"}
		b.Node(&st)
		if needs := b.needs(p).Spec.Devices; (len(needs) == 1) != on || (len(st.ByClaim) > 0) != on {
			t.Errorf("the pod needs %+v, the node offers %v; on: %v", needs, st.ByClaim, on)
		}
	}
	b.needs(p)
	b.Dirty()
	expect(true, false)
	b.Extended(true)
	expect(true, false)
	b.Extended(false)
	expect(false, true)
	b.Extended(false)
	expect(false, false)
	telling := &resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "other"}}
	telling.Spec.ExtendedResourceName = new("example.com/other")
	b.Class("other", telling)
	expect(true, true)
	b.Class("other", nil)
	expect(false, true)
	b.Extended(true)
	expect(true, true)
}

// TestLabelTakenOffASharedClaim: the label of a shared claim says who may use it next. A pod that uses it already is charged as before,
// whatever becomes of the label; its charge goes to its own queue, which the claim does not name.
func TestLabelTakenOffASharedClaim(t *testing.T) {
	t.Parallel()
	b := NewIndex("queue")
	p := user(v1.PodResourceClaim{Name: "x", ResourceClaimName: new("c")})
	p.Spec.NodeName = "n"
	var charges []string
	for _, labels := range []map[string]string{{"queue": "a"}, {}, {"queue": "b"}, nil} {
		b.Claim("ns/c", claimOf("c", labels, request("gpu", 2)))
		st := b.needs(p)
		if got := st.Spec.Devices[0]; got.GPUs != 2 || got.Missing != "" {
			t.Errorf("with labels %v it has %+v", labels, got)
		}
		charges = append(charges, fmt.Sprint(st.Charge))
	}
	for _, c := range charges {
		if c != charges[0] || c == "[]" {
			t.Errorf("what it is charged depends on a label: %v", charges)
		}
	}
}
