package enginetest

import (
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/muster-scheduler/muster/api/kai/keys"
)

// deviceClass makes a DeviceClass: deviceclass gpu driver=gpu.example.com, or select=CEL; resource=NAME lets pods ask for its
// devices by that extended resource.
func (c *compiler) deviceClass(s *statement) []Object {
	d := &resourcev1.DeviceClass{}
	d.Name = s.name()
	expressions := s.all("select")
	if driver := s.text("driver", ""); driver != "" {
		expressions = append(expressions, `device.driver == "`+driver+`"`)
	}
	d.Spec.Selectors = selectors(expressions)
	if r := s.text("resource", ""); r != "" {
		d.Spec.ExtendedResourceName = &r
	}
	return []Object{d}
}

func selectors(expressions []string) []resourcev1.DeviceSelector {
	var out []resourcev1.DeviceSelector
	for _, e := range expressions {
		out = append(out, resourcev1.DeviceSelector{CEL: &resourcev1.CELDeviceSelector{Expression: e}})
	}
	return out
}

// slice makes a ResourceSlice, the only one of its pool: slice n1-gpus node=n1 driver=gpu.example.com devices=4
// attr=model=a100 capacity=memory=80Gi. Without node= its devices are everywhere. The devices are called dev-0, dev-1, …
func (c *compiler) slice(s *statement) []Object {
	o := &resourcev1.ResourceSlice{}
	o.Name = s.name()
	o.Spec.Driver = s.text("driver", "gpu.example.com")
	o.Spec.Pool = resourcev1.ResourcePool{Name: s.text("pool", o.Name), ResourceSliceCount: 1}
	if node := s.text("node", ""); node != "" {
		o.Spec.NodeName = &node
	} else {
		o.Spec.AllNodes = new(true)
	}
	n := s.int("devices", 1)
	if n < 0 || n > resourcev1.ResourceSliceMaxDevices {
		s.bad("devices=%d: want 0 to %d", n, resourcev1.ResourceSliceMaxDevices)
		return nil
	}
	like := resourcev1.Device{}
	for _, text := range s.all("attr") {
		k, v, ok := strings.Cut(text, "=")
		if !ok {
			s.bad("attr=%s: want attr=NAME=VALUE", text)
		}
		if like.Attributes == nil {
			like.Attributes = map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{}
		}
		value := resourcev1.DeviceAttribute{StringValue: &v}
		if i, err := strconv.ParseInt(v, 10, 64); err == nil {
			value = resourcev1.DeviceAttribute{IntValue: &i}
		}
		like.Attributes[resourcev1.QualifiedName(k)] = value
	}
	for _, text := range s.all("capacity") {
		k, v, _ := strings.Cut(text, "=")
		q, err := resource.ParseQuantity(v)
		if err != nil {
			s.bad("capacity=%s: want capacity=NAME=QUANTITY", text)
		}
		if like.Capacity == nil {
			like.Capacity = map[resourcev1.QualifiedName]resourcev1.DeviceCapacity{}
		}
		like.Capacity[resourcev1.QualifiedName(k)] = resourcev1.DeviceCapacity{Value: q}
	}
	for i := range n {
		d := like.DeepCopy()
		d.Name = "dev-" + strconv.Itoa(i)
		o.Spec.Devices = append(o.Spec.Devices, *d)
	}
	return []Object{o}
}

// claimSpec reads what a claim asks for: class=NAME, count=N or count=all, select=CEL.
func claimSpec(s *statement) resourcev1.ResourceClaimSpec {
	request := resourcev1.ExactDeviceRequest{
		DeviceClassName: s.text("class", ""), AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: 1, Selectors: selectors(s.all("select")),
	}
	if request.DeviceClassName == "" {
		s.bad("want class=NAME")
	}
	switch text := s.text("count", "1"); text {
	case "all":
		request.AllocationMode, request.Count = resourcev1.DeviceAllocationModeAll, 0
	default:
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || n < 1 {
			s.bad("count=%s: want a number of devices, or all", text)
		}
		request.Count = n
	}
	return resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{
		Requests: []resourcev1.DeviceRequest{{Name: "devices", Exactly: &request}},
	}}
}

// resourceClaim makes a ResourceClaim: resourceclaim ns/name class=gpu count=2 queue=research; queue= is the label that a
// claim which several pods share needs.
func (c *compiler) resourceClaim(s *statement) []Object {
	o := &resourcev1.ResourceClaim{Spec: claimSpec(s)}
	o.Namespace, o.Name = splitName(s.name())
	o.Labels = map[string]string{}
	if q := s.text("queue", ""); q != "" {
		o.Labels[keys.QueueLabel] = q
	}
	pairs(s, "label", o.Labels)
	return []Object{o}
}

// claimTemplate makes a ResourceClaimTemplate: claimtemplate ns/name class=gpu count=2.
func (c *compiler) claimTemplate(s *statement) []Object {
	o := &resourcev1.ResourceClaimTemplate{}
	o.Namespace, o.Name = splitName(s.name())
	o.Spec.Spec = claimSpec(s)
	return []Object{o}
}

// claimDevices reads resourceclaim=NAME and claimtemplate=NAME of pods.
func claimDevices(p *v1.Pod, l layers) {
	add := func(claim v1.PodResourceClaim) {
		p.Spec.ResourceClaims = append(p.Spec.ResourceClaims, claim)
		main := &p.Spec.Containers[0].Resources
		main.Claims = append(main.Claims, v1.ResourceClaim{Name: claim.Name})
	}
	for _, name := range l.all("resourceclaim") {
		add(v1.PodResourceClaim{Name: name, ResourceClaimName: &name})
	}
	for _, name := range l.all("claimtemplate") {
		add(v1.PodResourceClaim{Name: name, ResourceClaimTemplateName: &name})
	}
}
